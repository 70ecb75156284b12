/* Two ends of a connection in one program, each at a device of its own: what the C tests of libmrc begin with. */
#ifndef PAIR_H
#define PAIR_H

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "without-libibverbs/infiniband/verbs.h"

#define REGION_BYTES (2ul << 20)
#define WRITE_ACCESS 3 /* local and remote write */
#define PATIENCE_S 60  /* a call that takes longer hangs */

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, errno, strerror(errno)); \
			_exit(1); \
		} \
	} while (0)
#define EQUAL(value, expected) \
	do { \
		long long value_ = (long long)(value), expected_ = (long long)(expected); \
		if (value_ != expected_) { \
			fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #value, value_, expected_); \
			_exit(1); \
		} \
	} while (0)

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
};

struct pair {
	struct end a, b;
};

struct sizes {
	int entries;             /* of each CQ */
	struct ibv_qp_cap cap;
};

#define USUAL_SIZES ((struct sizes){256, {64, 64, 16, 1, 512}})

static inline int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	return cq->context->ops.poll_cq(cq, count, wc);
}

static inline int arm(struct ibv_cq *cq, int solicited_only)
{
	return cq->context->ops.req_notify_cq(cq, solicited_only);
}

static inline int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	return qp->context->ops.post_send(qp, wr, &bad);
}

static inline int post_recv(struct ibv_qp *qp, uint64_t wr_id)
{
	struct ibv_recv_wr wr = {.wr_id = wr_id}, *bad = NULL;
	return qp->context->ops.post_recv(qp, &wr, &bad);
}

static inline double now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Wait for one completion. */
static inline struct ibv_wc next_completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	double deadline = now_s() + PATIENCE_S;
	int count;

	while (!(count = poll_cq(cq, 1, &wc)))
		CHECK(now_s() < deadline);
	EQUAL(count, 1);
	return wc;
}

static inline struct ibv_context *open_host(const char *socket)
{
	int count;

	CHECK(!setenv("MRC_NIC_SOCKET", socket, 1));
	struct ibv_device **list = ibv_get_device_list(&count);
	EQUAL(count, 1);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

static inline void make_qp_of(struct end *end, struct sizes sizes)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->send_cq, .recv_cq = end->recv_cq, .cap = sizes.cap, .qp_type = IBV_QPT_RC};
	end->qp = ibv_create_qp(end->pd, &init);
	CHECK(end->qp);
}

static inline void open_end(struct end *end, const char *socket, struct sizes sizes)
{
	end->context = open_host(socket);
	CHECK(end->pd = ibv_alloc_pd(end->context));
	CHECK(end->memory = calloc(1, REGION_BYTES));
	CHECK(end->channel = ibv_create_comp_channel(end->context));
	CHECK(end->send_cq = ibv_create_cq(end->context, sizes.entries, end->memory, end->channel, 0));
	CHECK(end->recv_cq = ibv_create_cq(end->context, sizes.entries, end->memory, end->channel, 0));
	CHECK(end->mr = ibv_reg_mr(end->pd, end->memory, REGION_BYTES, WRITE_ACCESS));
	make_qp_of(end, sizes);
}

static inline void bring_up(struct end *end, const struct end *peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = WRITE_ACCESS};
	union ibv_gid gid;

	CHECK(!ibv_query_gid(peer->context, 1, 0, &gid));
	EQUAL(ibv_modify_qp(end->qp, &attr, 1 << 0 | 1 << 4 | 1 << 5 | 1 << 3), 0); /* STATE, PKEY_INDEX, PORT, ACCESS */
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = 3, .dest_qp_num = peer->qp->qp_num, .rq_psn = 7,
				    .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid}}};
	EQUAL(ibv_modify_qp(end->qp, &attr, 1 << 0 | 1 << 7 | 1 << 8 | 1 << 20 | 1 << 12), 0); /* STATE, AV, MTU, DEST, RQ_PSN */
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = 7};
	EQUAL(ibv_modify_qp(end->qp, &attr, 1 << 0 | 1 << 16), 0); /* STATE, SQ_PSN */
	EQUAL(end->qp->state, IBV_QPS_RTS);
}

static inline void connect_pair(struct pair *pair)
{
	bring_up(&pair->a, &pair->b);
	bring_up(&pair->b, &pair->a);
}

static inline struct pair open_pair(char **sockets, struct sizes sizes)
{
	struct pair pair = {0};

	open_end(&pair.a, sockets[0], sizes);
	open_end(&pair.b, sockets[1], sizes);
	connect_pair(&pair);
	return pair;
}

static inline void close_end(struct end *end)
{
	EQUAL(ibv_destroy_qp(end->qp), 0);
	EQUAL(ibv_destroy_cq(end->send_cq), 0);
	EQUAL(ibv_destroy_cq(end->recv_cq), 0);
	EQUAL(ibv_destroy_comp_channel(end->channel), 0);
	EQUAL(ibv_dereg_mr(end->mr), 0);
	EQUAL(ibv_dealloc_pd(end->pd), 0);
	EQUAL(ibv_close_device(end->context), 0);
	free(end->memory);
}

static inline void close_pair(struct pair *pair)
{
	close_end(&pair->a);
	close_end(&pair->b);
}

/* Fill bytes that depend on a number, so that no two messages are alike. */
static inline void fill(uint8_t *bytes, size_t length, unsigned number)
{
	uint32_t state = number * 2654435761u + 1;

	for (size_t i = 0; i < length; i++) {
		state = state * 1664525u + 1013904223u;
		bytes[i] = state >> 24;
	}
}

static inline bool is_filled(const uint8_t *bytes, size_t length, unsigned number)
{
	uint32_t state = number * 2654435761u + 1;

	for (size_t i = 0; i < length; i++) {
		state = state * 1664525u + 1013904223u;
		if (bytes[i] != state >> 24)
			return false;
	}
	return true;
}

static inline bool is_zero(const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i])
			return false;
	return true;
}

/* Post a write of bytes of the sender's region to the same place of the receiver's. */
static inline int write_at(const struct end *from, const struct end *to, size_t offset, uint32_t length, uint64_t wr_id,
			   unsigned flags)
{
	struct ibv_sge element = {(uintptr_t)from->memory + offset, length, from->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = wr_id, .sg_list = &element, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = flags};

	wr.wr.rdma.remote_addr = (uintptr_t)to->memory + offset;
	wr.wr.rdma.rkey = to->mr->rkey;
	return post_send(from->qp, &wr);
}

static inline void expect(struct ibv_wc wc, uint64_t wr_id, int status)
{
	EQUAL(wc.status, status);
	EQUAL(wc.wr_id, wr_id);
}

/* Write, wait, and check every byte and those around. */
static inline void write_and_check(struct end *from, struct end *to, size_t offset, uint32_t length, unsigned number)
{
	fill(from->memory + offset, length, number);
	EQUAL(write_at(from, to, offset, length, number, IBV_SEND_SIGNALED), 0);
	expect(next_completion(from->send_cq), number, IBV_WC_SUCCESS);
	CHECK(is_filled(to->memory + offset, length, number));
}

struct test {
	const char *name;
	void (*run)(char **sockets);
};

/* Run the test that the first argument names, with the sockets behind it. */
static inline int run_test(const struct test *tests, int count, char **argv)
{
	for (const struct test *test = tests; argv[1] && test < tests + count; test++)
		if (!strcmp(test->name, argv[1])) {
			test->run(argv + 2);
			puts("passed");
			return 0;
		}
	fprintf(stderr, "no test %s\n", argv[1] ? argv[1] : "named");
	return 2;
}

#define RUN_TESTS(tests) \
	int main(int argc, char **argv) \
	{ \
		(void)argc; \
		return run_test(tests, sizeof tests / sizeof *tests, argv); \
	}

#endif
