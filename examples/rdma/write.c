/* Write to another host over MRC for some seconds, and show the rate while you cut links.
 *
 *     gcc -o write write.c $(mrc devices --flags)
 *     mrc exec h2 -- ./write                  # the responder: waits, and checks every byte at the end
 *     mrc exec h0 -- ./write 10.64.0.3 10     # the requestor: ten seconds to h2
 *     mrc link p0-t0-0 p0-t1-0 down           # meanwhile, in another terminal
 */
#include <arpa/inet.h>
#include <mrc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef SIZE
#define SIZE (1 << 20) /* bytes of a write */
#endif
#define DEPTH 8
#define PORT 18600

#define CHECK(call) \
	if (!(call)) { \
		perror(#call); \
		exit(1); \
	}

/* What each end tells the other before the first packet. */
struct hello {
	union ibv_gid gid;
	uint64_t address;
	uint32_t qpn, rkey;
};

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

static int meet(const char *host)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	int file = socket(AF_INET, SOCK_STREAM, 0);

	if (host) {
		CHECK(inet_pton(AF_INET, host, &address.sin_addr) == 1);
		while (connect(file, (struct sockaddr *)&address, sizeof address))
			usleep(100000);
		return file;
	}
	CHECK(!setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)));
	CHECK(!bind(file, (struct sockaddr *)&address, sizeof address) && !listen(file, 1));
	return accept(file, NULL, NULL);
}

static struct hello swap(int file, struct hello ours)
{
	CHECK(write(file, &ours, sizeof ours) == sizeof ours);
	CHECK(read(file, &ours, sizeof ours) == sizeof ours);
	return ours;
}

static void bring_up(struct ibv_context *device, struct mrc_qp *qp, const struct hello *peer)
{
	struct ibv_port_attr port;
	struct mrc_qp_attr no_mrc = {0};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	CHECK(!ibv_query_port(device, 1, &port));
	CHECK(!mrc_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS, &no_mrc, 0));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .dest_qp_num = peer->qpn};
	attr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh.dgid = peer->gid};
	CHECK(!mrc_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
			     &no_mrc, 0));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!mrc_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN, &no_mrc, 0));
}

/* Keep DEPTH writes in flight for some seconds; return 1 when one fails. */
static int write_all(struct mrc_qp *qp, struct mrc_cq *cq, struct ibv_mr *mr, const struct hello *peer, double seconds)
{
	struct ibv_sge element = {.addr = (uintptr_t)mr->addr, .length = SIZE, .lkey = mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &element, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				       .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {peer->address, peer->rkey}};
	double start = now(), shown = start;
	unsigned posted = 0, done = 0, done_then = 0;

	while (done < posted || now() < start + seconds) {
		struct ibv_wc wc[DEPTH];
		while (posted - done < DEPTH && now() < start + seconds && ++posted)
			CHECK(!mrc_post_send(qp, &wr, &bad));
		int count = mrc_poll_cq(cq, DEPTH, wc);
		CHECK(count >= 0);
		for (int i = 0; i < count; i++, done++)
			if (wc[i].status)
				return fprintf(stderr, "a write failed: %s\n", ibv_wc_status_str(wc[i].status)), 1;
		if (now() >= shown + 1) {
			printf("%5.1f s  %6.1f MB/s\n", now() - start, (done - done_then) * (SIZE / 1e6) / (now() - shown));
			fflush(stdout);
			shown = now(), done_then = done;
		}
	}
	printf("%u writes in %.1f s\n", done, now() - start);
	return 0;
}

int main(int argc, char **argv)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	CHECK(devices && devices[0]);
	struct ibv_context *device = ibv_open_device(devices[0]);
	CHECK(device);
	struct mrc_context *context = mrc_create_context(device, NULL);
	struct ibv_pd *pd = ibv_alloc_pd(device);
	struct mrc_cq *cq = mrc_create_cq(context, 2 * DEPTH, NULL, NULL, 0);
	struct mrc_qp *qp = mrc_create_qp(context, &(struct mrc_qp_init_attr){
		.send_cq = cq, .recv_cq = cq, .pd = pd, .cap = {DEPTH, 1, 1, 1, 0}});
	uint8_t *memory = aligned_alloc(4096, SIZE);
	CHECK(context && pd && cq && qp && memory);
	for (int i = 0; i < SIZE; i++)
		memory[i] = argc > 1 ? i * 7 + (i >> 8) : 0;
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr);
	struct hello ours = {.address = (uintptr_t)memory, .rkey = mr->rkey};
	CHECK(!mrc_get_qpn(qp, &ours.qpn) && !ibv_query_gid(device, 1, 0, &ours.gid));
	int file = meet(argc > 1 ? argv[1] : NULL);
	struct hello peer = swap(file, ours);
	bring_up(device, qp, &peer);
	swap(file, ours); /* nobody writes before both ends are up */
	int failed = argc > 1 && write_all(qp, cq, mr, &peer, argc > 2 ? atof(argv[2]) : 5);
	swap(file, ours); /* all has arrived */
	for (int i = 0; argc < 2 && i < SIZE && !failed; i++)
		failed = memory[i] != (uint8_t)(i * 7 + (i >> 8));
	if (argc < 2)
		puts(failed ? "wrong bytes arrived" : "every byte is right");
	mrc_destroy_qp(qp);
	mrc_destroy_cq(cq);
	ibv_dereg_mr(mr);
	ibv_dealloc_pd(pd);
	mrc_destroy_context(context);
	ibv_close_device(device);
	return failed;
}
