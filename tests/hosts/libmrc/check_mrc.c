/* Each function of mrc.h: what it does, and what it refuses. */
#define LIBMRC_BUILD
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>

#include "mrc.h"
#include "pair.h"

struct mrc_end {
	struct ibv_context *ibv;
	struct mrc_context *context;
	struct mrc_comp_channel *channel;
	struct mrc_cq *send_cq, *recv_cq;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct mrc_qp *qp;
	uint8_t *memory;
	uint32_t qpn;
};

#define NO_VALUE(call, expected) \
	do { \
		errno = 0; \
		CHECK(!(call)); \
		EQUAL(errno, expected); \
	} while (0)
#define MINUS_ONE(call, expected) \
	do { \
		errno = 0; \
		EQUAL(call, -1); \
		EQUAL(errno, expected); \
	} while (0)

static int the_context;

static struct mrc_end open_mrc_end(const char *socket)
{
	struct mrc_end end = {.ibv = open_host(socket)};
	struct mrc_context_attr attr = {.mrc_api_version_used = MRC_API_CURRENT_VERSION};

	CHECK(end.context = mrc_create_context(end.ibv, &attr));
	EQUAL(mrc_create_comp_channel(end.context, &end.channel), 0);
	CHECK(end.send_cq = mrc_create_cq(end.context, 64, &the_context, end.channel, 0));
	CHECK(end.recv_cq = mrc_create_cq(end.context, 64, &the_context, end.channel, 0));
	CHECK(end.pd = ibv_alloc_pd(end.ibv));
	CHECK(end.memory = calloc(1, REGION_BYTES));
	CHECK(end.mr = ibv_reg_mr(end.pd, end.memory, REGION_BYTES, WRITE_ACCESS));
	struct mrc_qp_init_attr init = {.qp_context = &the_context, .send_cq = end.send_cq, .recv_cq = end.recv_cq,
					.cap = {32, 32, 4, 1, 64}, .pd = end.pd, .send_ops_flags = 3,
					.protocol_version = MRC_PROTOCOL_VERSION_1};
	CHECK(end.qp = mrc_create_qp(end.context, &init));
	EQUAL(mrc_get_qpn(end.qp, &end.qpn), 0);
	return end;
}

static void bring_up_mrc(struct mrc_end *end, const struct mrc_end *peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = WRITE_ACCESS};
	struct mrc_qp_attr mrc = {.mpr = {2, 2}, .wimm = {8, 8}, .timeout = 14, .retry = {3, 4}};

	EQUAL(mrc_modify_qp(end->qp, &attr, 1 << 0 | 1 << 4 | 1 << 5 | 1 << 3, &mrc, 0), 0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = 3, .dest_qp_num = peer->qpn, .rq_psn = 7};
	CHECK(!ibv_query_gid(peer->ibv, 1, 0, &attr.ah_attr.grh.dgid));
	EQUAL(mrc_modify_qp(end->qp, &attr, 1 << 0 | 1 << 7 | 1 << 8 | 1 << 20 | 1 << 12, &mrc,
			    MRC_QP_MPR_DEST | MRC_QP_MAX_WIMM_DEST), 0);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = 7};
	EQUAL(mrc_modify_qp(end->qp, &attr, 1 << 0 | 1 << 16, &mrc,
			    MRC_QP_MPR | MRC_QP_MAX_WIMM | MRC_QP_TIMEOUT | MRC_QP_RETRY_CNT), 0);
}

static void close_mrc_end(struct mrc_end *end)
{
	MINUS_ONE(mrc_destroy_context(end->context), EBUSY);
	EQUAL(mrc_destroy_qp(end->qp), 0);
	EQUAL(mrc_destroy_cq(end->send_cq), 0);
	EQUAL(mrc_destroy_cq(end->recv_cq), 0);
	EQUAL(mrc_destroy_comp_channel(end->channel), 0);
	EQUAL(mrc_destroy_context(end->context), 0);
	EQUAL(ibv_dereg_mr(end->mr), 0);
	EQUAL(ibv_dealloc_pd(end->pd), 0);
	EQUAL(ibv_close_device(end->ibv), 0);
	free(end->memory);
}

static void device(char **sockets)
{
	struct ibv_context *ibv = open_host(sockets[0]);
	struct mrc_device_attr attr = {0}, again = {0};
	struct mrc_context_attr version = {.mrc_api_version_used = MRC_API_CURRENT_VERSION + 1};
	uint32_t versions[4];
	int supported = 0;

	EQUAL(mrc_query_device(ibv, &attr, &supported), 0);
	CHECK(supported && attr.wimm_attr.max_wimm > 0 && attr.mpr_attr.max_mpr > 0);
	EQUAL(attr.mrc_protocol_version & 1, 1);
	EQUAL(mrc_query_device_ex(ibv, NULL, &again, &supported), 0);
	CHECK(!memcmp(&attr, &again, sizeof attr));
	mrc_query_version(&versions[0], &versions[1], &versions[2], &versions[3]);
	EQUAL(versions[0], MRC_API_CURRENT_VERSION);
	EQUAL(versions[1], MRC_API_LAST_SUPPORTED_VERSION);
	EQUAL(versions[2], MRC_VENDOR_API_CURRENT_VERSION);
	EQUAL(versions[3], MRC_VENDOR_API_LAST_SUPPORTED_VERSION);
	NO_VALUE(mrc_create_context(ibv, &version), EINVAL);
	EQUAL(ibv_close_device(ibv), 0);
}

static void hints(char **sockets)
{
	struct mrc_end end = open_mrc_end(sockets[0]);
	struct mrc_qp_hint_init_attr init = {.attr = {.num_qps_per_peer = 4, .num_send_peers = 2}};
	struct mrc_qp_hint_attr attr = {0}, wrong = {.num_send_peers = -1};
	struct mrc_qp_hint *hint = mrc_create_qp_hint(end.context, &init);

	CHECK(hint);
	EQUAL(mrc_query_qp_hint(hint, &attr, MRC_QP_HINT_NUM_QPS_PER_PEER), 0);
	CHECK(attr.num_qps_per_peer == 4 && attr.num_send_peers == 0);
	attr.num_send_peers = 9;
	EQUAL(mrc_modify_qp_hint(hint, &attr, MRC_QP_HINT_NUM_SEND_PEERS), 0);
	MINUS_ONE(mrc_modify_qp_hint(hint, &wrong, MRC_QP_HINT_NUM_SEND_PEERS), EINVAL);
	EQUAL(mrc_query_qp_hint(hint, &attr, MRC_QP_HINT_NUM_SEND_PEERS), 0);
	EQUAL(attr.num_send_peers, 9);
	struct ibv_qp_attr ibv = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct mrc_qp_attr mrc = {.qp_hint = hint, .vendor_cfg = {1, 2, 3}};
	EQUAL(mrc_modify_qp(end.qp, &ibv, 1 << 0 | 1 << 3 | 1 << 4 | 1 << 5, &mrc, MRC_QP_HINT | MRC_QP_VENDOR_CFG), 0);
	MINUS_ONE(mrc_destroy_qp_hint(hint), EBUSY);
	struct mrc_qp_attr read = {0};
	struct mrc_qp_init_attr read_init = {0};
	EQUAL(mrc_query_qp(end.qp, &ibv, 1, &read, MRC_QP_HINT | MRC_QP_VENDOR_CFG, &read_init), 0);
	CHECK(read.qp_hint == hint && read.vendor_cfg[2] == 3 && read_init.qp_context == &the_context);
	EQUAL(mrc_modify_qp(end.qp, &ibv, 0, &(struct mrc_qp_attr){0}, MRC_QP_HINT), 0);
	EQUAL(mrc_destroy_qp_hint(hint), 0);
	close_mrc_end(&end);
}

static void writes(char **sockets)
{
	struct mrc_end a = open_mrc_end(sockets[0]), b = open_mrc_end(sockets[1]);
	struct mrc_cq *cq;
	struct ibv_wc wc;
	void *context;
	int fd;

	bring_up_mrc(&a, &b);
	bring_up_mrc(&b, &a);
	EQUAL(mrc_get_comp_channel_fd(b.channel, &fd), 0);
	CHECK(fcntl(fd, F_GETFD) >= 0);
	for (unsigned i = 0; i < 100; i++) {
		struct ibv_recv_wr receive = {.wr_id = i}, *bad_receive;
		struct ibv_sge element = {(uintptr_t)a.memory + i, 5000 + i, a.mr->lkey};
		struct ibv_send_wr wr = {.wr_id = i, .sg_list = &element, .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htonl(i),
					 .send_flags = IBV_SEND_SIGNALED}, *bad;
		wr.wr.rdma.remote_addr = (uintptr_t)b.memory;
		wr.wr.rdma.rkey = b.mr->rkey;
		fill(a.memory + i, 5000 + i, i);
		EQUAL(mrc_post_recv(b.qp, &receive, &bad_receive), 0);
		EQUAL(mrc_req_notify_cq(b.recv_cq, 0), 0);
		EQUAL(mrc_post_send(a.qp, &wr, &bad), 0);
		while (!mrc_poll_cq(b.recv_cq, 1, &wc)) {
			EQUAL(mrc_get_cq_event(b.channel, &cq, &context), 0);
			CHECK(cq == b.recv_cq && context == &the_context);
			mrc_ack_cq_events(cq, 1);
			EQUAL(mrc_req_notify_cq(b.recv_cq, 0), 0);
		}
		expect(wc, i, IBV_WC_SUCCESS);
		EQUAL(ntohl(wc.imm_data), i);
		CHECK(is_filled(b.memory, 5000 + i, i));
		while (!mrc_poll_cq(a.send_cq, 1, &wc))
			;
		expect(wc, i, IBV_WC_SUCCESS);
	}
	struct ibv_qp_attr attr;
	struct mrc_qp_attr mrc;
	struct mrc_qp_init_attr init;
	EQUAL(mrc_query_qp(a.qp, &attr, IBV_QP_STATE, &mrc, MRC_QP_TIMEOUT, &init), 0);
	CHECK(attr.qp_state == IBV_QPS_RTS && mrc.timeout == 14 && mrc.wimm.max_wimm == 8 && mrc.retry.exp_cnt == 4);

	/* A key that the peer has not: both hear of the end of their QPs. */
	struct ibv_sge element = {(uintptr_t)a.memory, 8, a.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &element, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
	struct mrc_async_event event;
	wr.wr.rdma.rkey = b.mr->rkey + 1;
	EQUAL(mrc_post_send(a.qp, &wr, &bad), 0);
	EQUAL(mrc_get_async_event(a.context, &event), 0);
	EQUAL(event.event_type, IBV_EVENT_QP_FATAL);
	CHECK(event.element.qp == a.qp);
	mrc_ack_async_event(&event);
	EQUAL(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	while (!mrc_get_cq_event(b.channel, &cq, &context))
		mrc_ack_cq_events(cq, 1);
	close_mrc_end(&a);
	close_mrc_end(&b);
}

/* What a program may do wrong harms nothing: after each refusal the objects are as before. */
static void refused(char **sockets)
{
	struct mrc_end a = open_mrc_end(sockets[0]), b = open_mrc_end(sockets[1]);
	struct mrc_device_attr device;
	struct mrc_qp_hint_init_attr hint = {.attr = {.num_qps_per_peer = -1}};
	struct mrc_qp_init_attr init = {.send_cq = a.send_cq, .recv_cq = a.recv_cq, .cap = {8, 8, 1, 1, 0}, .pd = a.pd};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	int supported;

	MINUS_ONE(mrc_query_device_ex(a.ibv, b.context, &device, &supported), EINVAL);
	NO_VALUE(mrc_create_cq(a.context, 0, NULL, NULL, 0), EINVAL);
	NO_VALUE(mrc_create_cq(a.context, 1 << 30, NULL, NULL, 0), EINVAL);
	NO_VALUE(mrc_create_cq(a.context, 8, NULL, NULL, 1000), EINVAL);
	NO_VALUE(mrc_create_qp_hint(a.context, &hint), EINVAL);
	init.pd = b.pd;
	NO_VALUE(mrc_create_qp(a.context, &init), EINVAL);
	init.pd = a.pd;
	init.send_ops_flags = 1 << 2; /* SEND */
	NO_VALUE(mrc_create_qp(a.context, &init), EOPNOTSUPP);
	init.send_ops_flags = 0;
	init.protocol_version = 2;
	NO_VALUE(mrc_create_qp(a.context, &init), EINVAL);
	EQUAL(mrc_modify_qp(a.qp, &attr, IBV_QP_STATE, NULL, 0), EINVAL); /* RTS after RESET */
	EQUAL(mrc_modify_qp(a.qp, NULL, IBV_QP_STATE, NULL, 0), EINVAL);
	EQUAL(mrc_modify_qp(a.qp, &attr, 0, NULL, MRC_QP_TIMEOUT), EINVAL);
	EQUAL(mrc_destroy_cq(a.send_cq), EBUSY);
	EQUAL(mrc_destroy_comp_channel(a.channel), EBUSY);
	MINUS_ONE(mrc_destroy_context(a.context), EBUSY);
	bring_up_mrc(&a, &b);
	bring_up_mrc(&b, &a);

	/* Requests: the first of a list is posted, the second named. */
	struct ibv_sge element = {(uintptr_t)a.memory, 8, a.mr->lkey};
	struct ibv_send_wr wrs[] = {
		{.wr_id = 1, .next = &wrs[1], .sg_list = &element, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		 .send_flags = IBV_SEND_SIGNALED},
		{.wr_id = 2, .sg_list = &element, .num_sge = 1, .opcode = IBV_WR_RDMA_READ}}, *bad = NULL;
	struct ibv_recv_wr receives[] = {{.wr_id = 3, .next = &receives[1]},
					 {.wr_id = 4, .sg_list = &element, .num_sge = 1}}, *bad_receive = NULL;
	struct mrc_cq *cq = mrc_create_cq(a.context, 8, NULL, NULL, 0);
	struct mrc_async_event event;
	struct ibv_wc wc;
	void *context;
	int count;

	wrs[0].wr.rdma.remote_addr = (uintptr_t)b.memory;
	wrs[0].wr.rdma.rkey = b.mr->rkey;
	EQUAL(mrc_post_send(a.qp, wrs, &bad), EOPNOTSUPP);
	CHECK(bad == &wrs[1]);
	while (!(count = mrc_poll_cq(a.send_cq, 1, &wc)))
		;
	EQUAL(count, 1);
	expect(wc, 1, IBV_WC_SUCCESS);
	EQUAL(mrc_post_recv(b.qp, receives, &bad_receive), EOPNOTSUPP);
	CHECK(bad_receive == &receives[1]);
	CHECK(cq);
	EQUAL(mrc_req_notify_cq(cq, 0), EINVAL); /* it has no channel */
	EQUAL(mrc_destroy_cq(cq), 0);
	int fd;
	EQUAL(mrc_get_comp_channel_fd(a.channel, &fd), 0);
	EQUAL(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	MINUS_ONE(mrc_get_cq_event(a.channel, &cq, &context), EAGAIN);
	EQUAL(fcntl(a.ibv->async_fd, F_SETFL, O_NONBLOCK), 0);
	MINUS_ONE(mrc_get_async_event(a.context, &event), EAGAIN);
	close_mrc_end(&a);
	close_mrc_end(&b);
}

static bool is_destroyed;

static void *destroy_qp(void *qp)
{
	EQUAL(mrc_destroy_qp(qp), 0);
	__atomic_store_n(&is_destroyed, true, __ATOMIC_SEQ_CST);
	return NULL;
}

static void *destroy_cq(void *cq)
{
	EQUAL(mrc_destroy_cq(cq), 0);
	__atomic_store_n(&is_destroyed, true, __ATOMIC_SEQ_CST);
	return NULL;
}

/* Begin to destroy an object of which an event is not acknowledged yet: that does not end. */
static pthread_t begin(void *(*destroy)(void *), void *object)
{
	pthread_t thread;

	__atomic_store_n(&is_destroyed, false, __ATOMIC_SEQ_CST);
	EQUAL(pthread_create(&thread, NULL, destroy, object), 0);
	usleep(50000);
	CHECK(!__atomic_load_n(&is_destroyed, __ATOMIC_SEQ_CST));
	return thread;
}

/* Queues with events are destroyed once these are acknowledged, not before. */
static void acknowledged(char **sockets)
{
	struct mrc_end a = open_mrc_end(sockets[0]), b = open_mrc_end(sockets[1]);
	struct ibv_sge element = {(uintptr_t)a.memory, 8, a.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &element, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct mrc_async_event event;
	struct mrc_cq *cq;
	struct ibv_wc wc;
	void *context;

	bring_up_mrc(&a, &b);
	bring_up_mrc(&b, &a);
	wr.wr.rdma.rkey = b.mr->rkey + 1; /* the QP ends */
	EQUAL(mrc_req_notify_cq(a.send_cq, 0), 0);
	EQUAL(mrc_post_send(a.qp, &wr, &bad), 0);
	EQUAL(mrc_get_cq_event(a.channel, &cq, &context), 0);
	CHECK(cq == a.send_cq && context == &the_context);
	EQUAL(mrc_get_async_event(a.context, &event), 0);
	EQUAL(event.event_type, IBV_EVENT_QP_FATAL);
	EQUAL(mrc_poll_cq(cq, 1, &wc), 1);
	EQUAL(wc.status, IBV_WC_REM_ACCESS_ERR);

	pthread_t thread = begin(destroy_qp, a.qp);
	mrc_ack_async_event(&event);
	EQUAL(pthread_join(thread, NULL), 0);
	thread = begin(destroy_cq, a.send_cq);
	mrc_ack_cq_events(cq, 1);
	EQUAL(pthread_join(thread, NULL), 0);
	EQUAL(mrc_destroy_cq(a.recv_cq), 0);
	EQUAL(mrc_destroy_comp_channel(a.channel), 0);
	EQUAL(mrc_destroy_context(a.context), 0);
	EQUAL(ibv_dereg_mr(a.mr), 0);
	EQUAL(ibv_dealloc_pd(a.pd), 0);
	EQUAL(ibv_close_device(a.ibv), 0);
	free(a.memory);
	close_mrc_end(&b);
}

/* Poll until the NIC process has ended: each function says so, and what there is can be destroyed. */
static void nic_ends(char **sockets)
{
	struct mrc_end end = open_mrc_end(sockets[0]);
	struct mrc_qp_init_attr init = {.send_cq = end.send_cq, .recv_cq = end.recv_cq, .cap = {8, 8, 1, 1, 0},
					.pd = end.pd};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE}, *bad;
	struct ibv_recv_wr receive = {0}, *bad_receive;
	struct mrc_comp_channel *channel;
	struct mrc_device_attr device;
	struct mrc_async_event event;
	struct mrc_qp_attr mrc_attr;
	struct mrc_cq *cq;
	struct ibv_wc wc;
	void *context;
	int supported = 0;

	puts("ready");
	fflush(stdout);
	while (mrc_poll_cq(end.send_cq, 1, &wc) >= 0)
		;
	EQUAL(errno, EIO);
	MINUS_ONE(mrc_poll_cq(end.send_cq, 1, &wc), EIO);
	MINUS_ONE(mrc_query_device(end.ibv, &device, &supported), EIO);
	MINUS_ONE(mrc_query_device_ex(end.ibv, end.context, &device, &supported), EIO);
	EQUAL(supported, 0);
	EQUAL(mrc_create_comp_channel(end.context, &channel), EIO);
	NO_VALUE(mrc_create_cq(end.context, 8, NULL, NULL, 0), EIO);
	NO_VALUE(mrc_create_qp(end.context, &init), EIO);
	EQUAL(mrc_req_notify_cq(end.send_cq, 0), EIO);
	MINUS_ONE(mrc_get_cq_event(end.channel, &cq, &context), EIO);
	EQUAL(mrc_modify_qp(end.qp, &attr, IBV_QP_STATE, NULL, 0), EIO);
	EQUAL(mrc_query_qp(end.qp, &attr, IBV_QP_STATE, &mrc_attr, 0, &init), EIO);
	EQUAL(mrc_post_send(end.qp, &wr, &bad), EIO);
	CHECK(bad == &wr);
	EQUAL(mrc_post_recv(end.qp, &receive, &bad_receive), EIO);
	CHECK(bad_receive == &receive);
	EQUAL(mrc_get_async_event(end.context, &event), 0);
	EQUAL(event.event_type, IBV_EVENT_DEVICE_FATAL);
	MINUS_ONE(mrc_get_async_event(end.context, &event), EIO);
	close_mrc_end(&end);
}

static const struct test tests[] = {
	{"device", device}, {"hints", hints}, {"writes", writes}, {"refused", refused}, {"acknowledged", acknowledged},
	{"nic_ends", nic_ends}, /* ended from outside */
};
RUN_TESTS(tests)
