/* Completion events, resets, the ends of QPs, and the wrap of the rings. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>

#include "nicd.h"
#include "pair.h"

#define ROUNDS 2000

static void take_event(struct end *end, struct ibv_cq *expected)
{
	struct ibv_cq *cq;
	void *context;

	EQUAL(ibv_get_cq_event(end->channel, &cq, &context), 0);
	CHECK(cq == expected && context == end->memory);
	ibv_ack_cq_events(cq, 1);
}

/* Take all completions that there are, and return their number. */
static int drain(struct ibv_cq *cq)
{
	struct ibv_wc wc[16];
	int count, sum = 0;

	while ((count = poll_cq(cq, 16, wc)) > 0)
		for (int i = 0; i < count; i++, sum++)
			EQUAL(wc[i].status, IBV_WC_SUCCESS);
	EQUAL(count, 0);
	return sum;
}

/* Wait for events alone: one that is lost hangs. An event too many is allowed, a completion without one is not. */
static void events(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);

	EQUAL(arm(pair.a.send_cq, 0), 0);
	for (int done = 0, posted = 0; done < ROUNDS;) {
		for (int i = 0; i < 1 + posted % 3 && posted < ROUNDS; i++, posted++)
			EQUAL(write_at(&pair.a, &pair.b, 0, 64, posted, IBV_SEND_SIGNALED), 0);
		while (done < posted) {
			take_event(&pair.a, pair.a.send_cq);
			if (done % 2) { /* arm before the poll, and after it with another poll behind */
				EQUAL(arm(pair.a.send_cq, 0), 0);
				done += drain(pair.a.send_cq);
			} else {
				done += drain(pair.a.send_cq);
				EQUAL(arm(pair.a.send_cq, 0), 0);
				done += drain(pair.a.send_cq);
			}
		}
	}
	close_pair(&pair);
}

static void *answer(void *argument)
{
	struct pair *pair = argument;

	EQUAL(arm(pair->b.recv_cq, 0), 0);
	for (int done = 0; done < ROUNDS / 4;) {
		int count = drain(pair->b.recv_cq);
		for (int i = 0; i < count; i++) {
			EQUAL(post_recv(pair->b.qp, 0), 0);
			EQUAL(write_at(&pair->b, &pair->a, 64 + done % 64 * 64, 64, 0, done % 16 ? 0 : IBV_SEND_SIGNALED), 0);
			drain(pair->b.send_cq);
			done++;
		}
		if (!count && done < ROUNDS / 4) {
			take_event(&pair->b, pair->b.recv_cq);
			EQUAL(arm(pair->b.recv_cq, 0), 0);
		}
	}
	return NULL;
}

/* Two threads, each asleep until the other's message: posts ring a NIC process that sleeps, or nothing goes on. */
static void ping_pong(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);
	pthread_t thread;

	for (int i = 0; i < 32; i++)
		EQUAL(post_recv(pair.b.qp, 0), 0);
	EQUAL(pthread_create(&thread, NULL, answer, &pair), 0);
	for (int i = 0; i < ROUNDS / 4; i++) {
		struct ibv_sge element = {(uintptr_t)pair.a.memory, 8, pair.a.mr->lkey};
		struct ibv_send_wr wr = {.sg_list = &element, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
					 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED};
		volatile uint8_t *mark = pair.a.memory + 64 + i % 64 * 64;
		*mark = 0;
		fill(pair.b.memory + 64 + i % 64 * 64, 64, i);
		pair.b.memory[64 + i % 64 * 64] = 1;
		wr.wr.rdma.remote_addr = (uintptr_t)pair.b.memory;
		wr.wr.rdma.rkey = pair.b.mr->rkey;
		EQUAL(arm(pair.a.send_cq, 0), 0);
		EQUAL(post_send(pair.a.qp, &wr), 0);
		while (!drain(pair.a.send_cq))
			take_event(&pair.a, pair.a.send_cq);
		while (!*mark)
			usleep(20);
	}
	EQUAL(pthread_join(thread, NULL), 0);
	/* What the last arming left behind would keep destroy_cq() waiting: it is acknowledged here. */
	EQUAL(fcntl(pair.a.channel->fd, F_SETFL, O_NONBLOCK), 0);
	struct ibv_cq *cq;
	void *context;
	while (!ibv_get_cq_event(pair.a.channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
	close_pair(&pair);
}

/* Only solicited messages, and failures, give an event to a CQ that was armed for these. */
static void solicited(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);
	struct ibv_sge element = {(uintptr_t)pair.a.memory, 8, pair.a.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &element, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				 .send_flags = IBV_SEND_SIGNALED};
	struct pollfd file = {.fd = pair.b.channel->fd, .events = POLLIN};

	wr.wr.rdma.remote_addr = (uintptr_t)pair.b.memory;
	wr.wr.rdma.rkey = pair.b.mr->rkey;
	EQUAL(arm(pair.b.recv_cq, 1), 0);
	for (int i = 0; i < 2; i++)
		EQUAL(post_recv(pair.b.qp, i), 0);
	struct ibv_qp_attr attr;
	EQUAL(ibv_query_qp(pair.b.qp, &attr, IBV_QP_STATE, NULL), 0); /* a reply means that the NIC has seen the posts */
	EQUAL(post_send(pair.a.qp, &wr), 0);
	next_completion(pair.a.send_cq);
	next_completion(pair.b.recv_cq);
	EQUAL(poll(&file, 1, 0), 0);
	wr.send_flags |= IBV_SEND_SOLICITED;
	EQUAL(post_send(pair.a.qp, &wr), 0);
	take_event(&pair.b, pair.b.recv_cq);
	next_completion(pair.b.recv_cq);
	next_completion(pair.a.send_cq);
	close_pair(&pair);
}

/* A write outside of the peer's region ends both QPs; both programs hear of it. */
static void fatal(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);
	struct ibv_async_event event;

	EQUAL(post_recv(pair.b.qp, 77), 0);
	EQUAL(write_at(&pair.a, &pair.b, REGION_BYTES - 4, 4, 1, 0), 0);
	pair.b.mr->rkey++;
	EQUAL(write_at(&pair.a, &pair.b, 0, 4, 2, 0), 0);
	EQUAL(write_at(&pair.a, &pair.b, 0, 4, 3, 0), 0);
	expect(next_completion(pair.a.send_cq), 2, 10); /* IBV_WC_REM_ACCESS_ERR */
	expect(next_completion(pair.a.send_cq), 3, IBV_WC_WR_FLUSH_ERR);
	expect(next_completion(pair.b.recv_cq), 77, IBV_WC_WR_FLUSH_ERR);
	EQUAL(ibv_get_async_event(pair.a.context, &event), 0);
	EQUAL(event.event_type, IBV_EVENT_QP_FATAL);
	CHECK(event.element.qp == pair.a.qp);
	ibv_ack_async_event(&event);
	struct ibv_qp_attr attr;
	EQUAL(ibv_query_qp(pair.a.qp, &attr, IBV_QP_STATE, NULL), 0);
	EQUAL(attr.qp_state, IBV_QPS_ERR);
	close_pair(&pair);
}

/* More completions than a CQ holds: the program hears of it, and the others go on. */
static void overrun(char **sockets)
{
	struct pair pair = open_pair(sockets, (struct sizes){2, {64, 1, 1, 1, 0}});
	struct ibv_async_event event;

	for (int i = 0; i < 64; i++)
		EQUAL(write_at(&pair.a, &pair.b, 0, 4, i, IBV_SEND_SIGNALED), 0);
	EQUAL(ibv_get_async_event(pair.a.context, &event), 0);
	EQUAL(event.event_type, IBV_EVENT_CQ_ERR);
	CHECK(event.element.cq == pair.a.send_cq);
	ibv_ack_async_event(&event);
	write_and_check(&pair.b, &pair.a, 4096, 4096, 9); /* the 64 writes may arrive at 0 still */
	close_pair(&pair);
}

static void to_state(struct ibv_qp *qp, uint32_t state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
}

/* RESET with requests posted a moment ago, unpolled completions and receives; then the QPs begin anew. */
static void resets(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);
	struct ibv_wc wc;

	for (unsigned round = 0; round < 60; round++) {
		for (unsigned i = 0; i < round; i++) {
			EQUAL(write_at(&pair.a, &pair.b, 0, 3000, 1000 + i, i % 3 ? IBV_SEND_SIGNALED : 0), 0);
			EQUAL(post_recv(pair.a.qp, i), 0);
		}
		if (round % 3 == 1)
			usleep(500);
		if (round % 3 == 2)
			poll_cq(pair.a.send_cq, 1, &wc);
		to_state(pair.a.qp, IBV_QPS_RESET);
		EQUAL(pair.a.qp->state, IBV_QPS_RESET);
		to_state(pair.b.qp, IBV_QPS_RESET);
		EQUAL(poll_cq(pair.a.send_cq, 1, &wc), 0);
		EQUAL(poll_cq(pair.a.recv_cq, 1, &wc), 0);
		EQUAL(post_recv(pair.a.qp, 1), EINVAL);
		EQUAL(write_at(&pair.a, &pair.b, 0, 1, 1, 0), EINVAL);
		connect_pair(&pair);
		write_and_check(&pair.a, &pair.b, 0, 5000, round);
		write_and_check(&pair.b, &pair.a, 0, 5000, round + 1);
	}
	close_pair(&pair);
}

/* Requests posted in the moment before a move to ERROR are flushed, each with a completion and in order. */
static void errors(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);

	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 40; i++) {
			EQUAL(write_at(&pair.a, &pair.b, 0, 4096, i, IBV_SEND_SIGNALED), 0);
			EQUAL(post_recv(pair.a.qp, 100 + i), 0);
		}
		to_state(pair.a.qp, IBV_QPS_ERR);
		for (int i = 0; i < 40; i++) {
			struct ibv_wc wc = next_completion(pair.a.send_cq);
			EQUAL(wc.wr_id, i);
			CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR);
			expect(next_completion(pair.a.recv_cq), 100 + i, IBV_WC_WR_FLUSH_ERR);
		}
		to_state(pair.a.qp, IBV_QPS_RESET);
		to_state(pair.b.qp, IBV_QPS_RESET);
		connect_pair(&pair);
	}
	close_pair(&pair);
}

/* QPs, CQs and regions are destroyed with writes on their way; the others of the program go on. */
static void destroyed(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES), busy = open_pair(sockets, USUAL_SIZES);

	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 50; i++)
			EQUAL(write_at(&busy.a, &busy.b, i * 8192, 8192, i, IBV_SEND_SIGNALED), 0);
		if (round % 2)
			EQUAL(ibv_dereg_mr(busy.a.mr), 0);
		EQUAL(ibv_destroy_qp(busy.a.qp), 0);
		EQUAL(ibv_destroy_qp(busy.b.qp), 0);
		if (round % 2)
			CHECK(busy.a.mr = ibv_reg_mr(busy.a.pd, busy.a.memory, REGION_BYTES, WRITE_ACCESS));
		write_and_check(&pair.a, &pair.b, 0, 10000, round);
		make_qp_of(&busy.a, USUAL_SIZES);
		make_qp_of(&busy.b, USUAL_SIZES);
		connect_pair(&busy);
		write_and_check(&busy.a, &busy.b, 0, 10000, round);
	}
	close_pair(&busy);
	EQUAL(ibv_destroy_cq(pair.a.send_cq), EBUSY);
	EQUAL(ibv_dealloc_pd(pair.a.pd), EBUSY);
	EQUAL(ibv_destroy_comp_channel(pair.a.channel), EBUSY);
	close_pair(&pair);
}

/* Post a write of 13 elements of a byte each, which takes five slots, or of inline bytes, which takes two to nine. */
static uint32_t post_numbered(struct pair *pair, unsigned number, size_t offset)
{
	bool is_inline = number % 3 == 0;
	uint32_t length = is_inline ? 1 + number % 512 : 13;
	struct ibv_sge elements[13] = {{(uintptr_t)pair->a.memory + offset, length, 0}};
	struct ibv_send_wr wr = {.wr_id = number, .sg_list = elements, .num_sge = is_inline ? 1 : 13,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED | (is_inline ? IBV_SEND_INLINE : 0)};

	for (int i = 0; !is_inline && i < 13; i++)
		elements[i] = (struct ibv_sge){(uintptr_t)pair->a.memory + offset + i, 1, pair->a.mr->lkey};
	wr.wr.rdma.remote_addr = (uintptr_t)pair->b.memory + offset;
	wr.wr.rdma.rkey = pair->b.mr->rkey;
	fill(pair->a.memory + offset, 512, number);
	EQUAL(post_send(pair->a.qp, &wr), 0);
	return length;
}

/* More slots than the submission ring has, in records of every length, so that each wraps somewhere. */
static void wrap(char **sockets)
{
	enum { DEPTH = 256 };
	struct pair pair = open_pair(sockets, (struct sizes){DEPTH, {DEPTH, 64, 16, 1, 512}});
	uint32_t lengths[DEPTH];

	for (unsigned slots = 0, number = 0; slots < 3 * NICD_SQ_SLOTS; number += DEPTH) {
		for (unsigned i = 0; i < DEPTH; i++) {
			lengths[i] = post_numbered(&pair, number + i, i * 512);
			slots += (number + i) % 3 ? 5 : 1 + (lengths[i] + 63) / 64;
		}
		for (unsigned i = 0; i < DEPTH; i++) {
			expect(next_completion(pair.a.send_cq), number + i, IBV_WC_SUCCESS);
			CHECK(is_filled(pair.b.memory + i * 512, lengths[i], number + i));
		}
	}
	close_pair(&pair);
}

/* One list of requests that takes more slots than the ring has. */
static void long_list(char **sockets)
{
	enum { COUNT = 5000 };
	struct pair pair = open_pair(sockets, (struct sizes){COUNT, {COUNT, 64, 16, 1, 512}});
	struct ibv_send_wr *list = calloc(COUNT, sizeof *list), *bad = NULL;
	struct ibv_sge elements[16];

	for (int i = 0; i < 16; i++)
		elements[i] = (struct ibv_sge){(uintptr_t)pair.a.memory + i, 1, pair.a.mr->lkey};
	fill(pair.a.memory, 16, 1);
	for (int i = 0; i < COUNT; i++) {
		list[i] = (struct ibv_send_wr){.wr_id = i, .next = i < COUNT - 1 ? &list[i + 1] : NULL, .sg_list = elements,
					       .num_sge = 16, .opcode = IBV_WR_RDMA_WRITE,
					       .send_flags = i == COUNT - 1 ? IBV_SEND_SIGNALED : 0};
		list[i].wr.rdma.remote_addr = (uintptr_t)pair.b.memory + 16 * i;
		list[i].wr.rdma.rkey = pair.b.mr->rkey;
	}
	EQUAL(pair.a.context->ops.post_send(pair.a.qp, list, &bad), 0);
	expect(next_completion(pair.a.send_cq), COUNT - 1, IBV_WC_SUCCESS);
	for (int i = 0; i < COUNT; i++)
		CHECK(is_filled(pair.b.memory + 16 * i, 16, 1));
	free(list);
	close_pair(&pair);
}

/* A process gets as many objects as the device says, ENOMEM beyond, and anew what it gave back. */
static void limits(char **sockets)
{
	struct ibv_context *context = open_host(sockets[0]);
	struct ibv_device_attr attr;
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);

	EQUAL(ibv_query_device(context, &attr), 0);
	struct ibv_pd **pds = calloc(attr.max_pd, sizeof *pds);
	struct ibv_qp **qps = calloc(attr.max_qp, sizeof *qps);
	struct ibv_cq **cqs = calloc(attr.max_cq, sizeof *cqs);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	for (int i = 0; i < attr.max_pd; i++)
		CHECK(pds[i] = ibv_alloc_pd(context));
	CHECK(!ibv_alloc_pd(context) && errno == ENOMEM);
	for (int i = 0; i < attr.max_qp; i++)
		CHECK(qps[i] = ibv_create_qp(pds[0], &init));
	CHECK(!ibv_create_qp(pds[0], &init) && errno == ENOMEM);
	for (int i = 0; i < attr.max_qp; i++)
		EQUAL(ibv_destroy_qp(qps[i]), 0);
	CHECK(qps[0] = ibv_create_qp(pds[0], &init));
	EQUAL(ibv_destroy_qp(qps[0]), 0);
	for (int i = 0; i < attr.max_pd; i++)
		EQUAL(ibv_dealloc_pd(pds[i]), 0);
	for (int i = 1; i < attr.max_cq; i++)
		CHECK(cqs[i] = ibv_create_cq(context, 1, NULL, NULL, 0));
	CHECK(!ibv_create_cq(context, 1, NULL, NULL, 0) && errno == ENOMEM);
	for (int i = 1; i < attr.max_cq; i++)
		EQUAL(ibv_destroy_cq(cqs[i]), 0);
	free(cqs);
	free(qps);
	free(pds);
	EQUAL(ibv_destroy_cq(cq), 0);
	EQUAL(ibv_close_device(context), 0);
}

/* Without a descriptor left calls say EMFILE; what the NIC process made for them goes, and the rest works. */
static void few_descriptors(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);
	int next = dup(0);
	struct rlimit old, few;
	struct ibv_device_attr attr;

	EQUAL(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = (struct rlimit){next, old.rlim_max};
	close(next);
	EQUAL(ibv_query_device(pair.a.context, &attr), 0);
	EQUAL(setrlimit(RLIMIT_NOFILE, &few), 0);
	for (int i = 0; i < attr.max_cq; i++)
		CHECK(!ibv_create_cq(pair.a.context, 4, NULL, NULL, 0) && errno == EMFILE);
	for (int i = 0; i < attr.max_cq; i++)
		CHECK(!ibv_create_comp_channel(pair.a.context) && errno == EMFILE);
	CHECK(!ibv_open_device(pair.a.context->device) && errno == EMFILE);
	write_and_check(&pair.a, &pair.b, 0, 60000, 1);
	EQUAL(setrlimit(RLIMIT_NOFILE, &old), 0);
	struct ibv_cq *cq = ibv_create_cq(pair.a.context, 4, NULL, NULL, 0);
	CHECK(cq);
	EQUAL(ibv_destroy_cq(cq), 0);
	close_pair(&pair);
}

static const struct test tests[] = {
	{"events", events}, {"ping_pong", ping_pong}, {"solicited", solicited}, {"fatal", fatal}, {"overrun", overrun},
	{"resets", resets}, {"errors", errors}, {"destroyed", destroyed}, {"wrap", wrap}, {"long_list", long_list},
	{"limits", limits}, {"few_descriptors", few_descriptors}};
RUN_TESTS(tests)
