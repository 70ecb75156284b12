/* Registration of every kind of memory, and the ends of programs: fork(), and a NIC process that is gone. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "pair.h"

#define PAGE 4096ul

static uint8_t initialized[3 * PAGE] = {1, 2, 3};

/* Register bytes at the receiver, have them written to, and check them and their neighbours. */
static void receive_in(struct pair *pair, uint8_t *bytes, size_t length, unsigned number)
{
	struct ibv_mr *mr = ibv_reg_mr(pair->b.pd, bytes, length, WRITE_ACCESS);
	CHECK(mr);
	struct end to = {.memory = bytes, .mr = mr};
	fill(pair->a.memory, length, number);
	EQUAL(write_at(&pair->a, &to, 0, length, number, IBV_SEND_SIGNALED), 0);
	expect(next_completion(pair->a.send_cq), number, IBV_WC_SUCCESS);
	CHECK(is_filled(bytes, length, number));
	EQUAL(ibv_dereg_mr(mr), 0);
	CHECK(is_filled(bytes, length, number)); /* still the program's */
}

/* Send bytes of the program's memory from a region of its own. */
static void send_from(struct pair *pair, uint8_t *bytes, size_t length, unsigned number)
{
	struct ibv_mr *mr = ibv_reg_mr(pair->a.pd, bytes, length, WRITE_ACCESS);
	CHECK(mr);
	struct ibv_sge element = {(uintptr_t)bytes, length, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = number, .sg_list = &element, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED};
	fill(bytes, length, number);
	wr.wr.rdma.remote_addr = (uintptr_t)pair->b.memory;
	wr.wr.rdma.rkey = pair->b.mr->rkey;
	EQUAL(post_send(pair->a.qp, &wr), 0);
	expect(next_completion(pair->a.send_cq), number, IBV_WC_SUCCESS);
	CHECK(is_filled(pair->b.memory, length, number));
	EQUAL(ibv_dereg_mr(mr), 0);
}

static void kinds(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);
	uint8_t on_stack[2 * PAGE + 100], around[2] = {0xaa, 0x55};
	uint8_t *of_heap = malloc(100000);
	uint8_t *neighbour = malloc(100);

	memset(neighbour, 0x77, 100);
	for (unsigned round = 0; round < 3; round++) {
		receive_in(&pair, on_stack + 50, 2 * PAGE, 1 + round);
		send_from(&pair, on_stack + 10, 2 * PAGE, 11 + round);
		receive_in(&pair, of_heap + 3, 99990, 21 + round);
		send_from(&pair, of_heap + 3, 99990, 31 + round);
		receive_in(&pair, initialized + 100, 2 * PAGE, 41 + round);
		send_from(&pair, initialized + 100, 2 * PAGE, 51 + round);
		CHECK(around[0] == 0xaa && around[1] == 0x55 && initialized[0] == 1 && initialized[2] == 3);
		for (int i = 0; i < 100; i++)
			CHECK(neighbour[i] == 0x77);
	}
	free(of_heap);
	free(neighbour);
	close_pair(&pair);
}

/* Regions that overlap, on the same pages, in both orders; what is written through the one is seen in the other. */
static void overlaps(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);
	uint8_t *bytes = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mrs[4];
	static const size_t starts[] = {4 * PAGE + 5, 0, 8 * PAGE + 1, 4 * PAGE + 6};
	static const size_t lengths[] = {2 * PAGE, 16 * PAGE, 100, 1};

	for (unsigned i = 0; i < 16 * PAGE; i++)
		bytes[i] = i / PAGE;
	for (int i = 0; i < 4; i++)
		CHECK(mrs[i] = ibv_reg_mr(pair.b.pd, bytes + starts[i], lengths[i], WRITE_ACCESS));
	for (unsigned i = 0; i < 16 * PAGE; i++)
		CHECK(bytes[i] == i / PAGE);
	for (int i = 0; i < 4; i++) {
		struct end to = {.memory = bytes + starts[i], .mr = mrs[i]};
		fill(pair.a.memory, lengths[i], i);
		EQUAL(write_at(&pair.a, &to, 0, lengths[i], i, IBV_SEND_SIGNALED), 0);
		expect(next_completion(pair.a.send_cq), i, IBV_WC_SUCCESS);
		CHECK(is_filled(bytes + starts[i], lengths[i], i));
		EQUAL(ibv_dereg_mr(mrs[i]), 0);
	}
	munmap(bytes, 16 * PAGE);
	close_pair(&pair);
}

/* Memory that moved, and addresses that were unmapped and mapped anew. */
static void moved(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);

	for (unsigned round = 0; round < 3; round++) {
		uint8_t *bytes = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		receive_in(&pair, bytes, 8 * PAGE, round);
		uint8_t *longer = mmap(NULL, 32 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		uint8_t *at = mremap(bytes, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, longer);
		CHECK(at == longer);
		CHECK(is_filled(at, 8 * PAGE, round));
		receive_in(&pair, at, 8 * PAGE, 10 + round);
		send_from(&pair, at, 8 * PAGE, 20 + round);
		/* The same addresses with other memory: old contents must not come back. */
		CHECK(mmap(at, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
		CHECK(is_zero(at, 8 * PAGE));
		at[5] = 42;
		receive_in(&pair, at + PAGE, 2 * PAGE, 30 + round);
		CHECK(at[5] == 42 && is_zero(at + 6, PAGE - 6) && is_zero(at + 3 * PAGE, 5 * PAGE));
		struct ibv_mr *mr = ibv_reg_mr(pair.b.pd, at, 8 * PAGE, WRITE_ACCESS);
		CHECK(mr);
		CHECK(at[5] == 42 && is_filled(at + PAGE, 2 * PAGE, 30 + round) && is_zero(at + 3 * PAGE, 5 * PAGE));
		/* Unmapped while it is registered: what the peer writes reaches nothing of ours. */
		munmap(at, 8 * PAGE);
		uint8_t *anew = mmap(at, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		struct end to = {.memory = anew, .mr = mr};
		EQUAL(write_at(&pair.a, &to, 0, 8 * PAGE, 1, IBV_SEND_SIGNALED), 0);
		expect(next_completion(pair.a.send_cq), 1, IBV_WC_SUCCESS);
		CHECK(is_zero(anew, 8 * PAGE));
		receive_in(&pair, anew, 8 * PAGE, 50 + round);
		EQUAL(ibv_dereg_mr(mr), 0);
		munmap(longer, 32 * PAGE);
	}
	close_pair(&pair);
}

static void refused(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);
	uint8_t *shared = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint8_t *with_hole = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *closed = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(!ibv_reg_mr(pair.a.pd, shared, 4 * PAGE, WRITE_ACCESS));
	EQUAL(errno, EOPNOTSUPP);
	munmap(with_hole + PAGE, PAGE);
	memset(with_hole, 9, PAGE);
	CHECK(!ibv_reg_mr(pair.a.pd, with_hole, 4 * PAGE, WRITE_ACCESS));
	EQUAL(errno, EFAULT);
	CHECK(with_hole[0] == 9 && with_hole[PAGE - 1] == 9);
	CHECK(!ibv_reg_mr(pair.a.pd, closed, PAGE, WRITE_ACCESS));
	EQUAL(errno, EFAULT);
	CHECK(!ibv_reg_mr(pair.a.pd, (void *)(UINTPTR_MAX - 10), 100, WRITE_ACCESS));
	EQUAL(errno, EFAULT);
	CHECK(!ibv_reg_mr(pair.a.pd, NULL, PAGE, WRITE_ACCESS));
	EQUAL(errno, EFAULT);
	CHECK(!ibv_reg_mr(pair.a.pd, pair.a.memory, 0, WRITE_ACCESS));
	EQUAL(errno, EINVAL);
	write_and_check(&pair.a, &pair.b, 0, 4096, 1);
	close_pair(&pair);
}

/* A child sees its parent's bytes, and changes copies; its calls fail, and the parent goes on. */
static void forked(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);
	int status;

	write_and_check(&pair.a, &pair.b, 0, 8 * PAGE, 1);
	for (unsigned round = 0; round < 4; round++) {
		int ready[2];
		CHECK(!pipe(ready));
		pid_t child = fork();
		CHECK(child >= 0);
		if (!child) {
			struct ibv_wc wc;
			char byte;
			CHECK(is_filled(pair.b.memory, 8 * PAGE, 1 + round));
			CHECK(read(ready[0], &byte, 1) == 1); /* the parent has received more: not seen here */
			CHECK(is_filled(pair.a.memory, 8 * PAGE, 1 + round));
			CHECK(is_filled(pair.b.memory, 8 * PAGE, 1 + round));
			memset(pair.a.memory, 0xcc, REGION_BYTES);
			memset(pair.b.memory, 0xcc, REGION_BYTES);
			EQUAL(write_at(&pair.a, &pair.b, 0, 8, 1, IBV_SEND_SIGNALED), EIO);
			EQUAL(post_recv(pair.a.qp, 1), EIO);
			EQUAL(poll_cq(pair.a.send_cq, 1, &wc), -1);
			EQUAL(arm(pair.a.send_cq, 0), EIO);
			CHECK(!ibv_reg_mr(pair.a.pd, pair.a.memory, PAGE, WRITE_ACCESS));
			CHECK(!ibv_alloc_pd(pair.a.context));
			_exit(0);
		}
		fill(pair.a.memory, 8 * PAGE, 2 + round);
		EQUAL(write_at(&pair.a, &pair.b, 0, 8 * PAGE, 5, IBV_SEND_SIGNALED), 0);
		expect(next_completion(pair.a.send_cq), 5, IBV_WC_SUCCESS);
		EQUAL(write_at(&pair.a, &pair.b, 0, 8, 6, IBV_SEND_SIGNALED), 0);
		CHECK(write(ready[1], "x", 1) == 1);
		CHECK(waitpid(child, &status, 0) == child);
		EQUAL(status, 0);
		expect(next_completion(pair.a.send_cq), 6, IBV_WC_SUCCESS);
		CHECK(is_filled(pair.a.memory, 8 * PAGE, 2 + round));
		CHECK(is_filled(pair.b.memory, 8 * PAGE, 2 + round));
		write_and_check(&pair.a, &pair.b, 0, 8 * PAGE, 2 + round);
		close(ready[0]);
		close(ready[1]);
	}
	close_pair(&pair);
}

/* A child opens the device anew, and writes and registers as any program. */
static void child_with_its_own(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);
	pid_t child = fork();
	int status;

	CHECK(child >= 0);
	if (!child) {
		struct pair own = open_pair(sockets, USUAL_SIZES);
		write_and_check(&own.a, &own.b, 100, 100000, 7);
		receive_in(&own, pair.b.memory, 4 * PAGE, 8); /* pages that were its parent's region */
		receive_in(&own, initialized, 2 * PAGE, 9);
		close_pair(&own);
		_exit(0);
	}
	for (unsigned i = 0; i < 50; i++)
		write_and_check(&pair.a, &pair.b, 0, 4 * PAGE, i);
	CHECK(waitpid(child, &status, 0) == child);
	EQUAL(status, 0);
	CHECK(initialized[1] == 2);
	close_pair(&pair);
}

/* Write on and on, until standard input ends; a test may kill it before. */
static void until_told(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

	puts("ready");
	fflush(stdout);
	for (unsigned i = 0; !poll(&input, 1, 0); i++) {
		write_and_check(&pair.a, &pair.b, i % 1000, 60000, i);
		write_and_check(&pair.b, &pair.a, i % 1000, 1 + i % 5000, i);
	}
	close_pair(&pair);
}

static struct pair ended;

static void *wait_for_event(void *argument)
{
	struct ibv_cq *cq;
	void *context;

	(void)argument;
	EQUAL(ibv_get_cq_event(ended.a.channel, &cq, &context), -1);
	return NULL;
}

static void *wait_for_async(void *argument)
{
	struct ibv_async_event event;

	(void)argument;
	do /* power that goes off takes the ports first */
		EQUAL(ibv_get_async_event(ended.a.context, &event), 0);
	while (event.event_type == IBV_EVENT_PORT_ERR);
	EQUAL(event.event_type, IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&event);
	EQUAL(ibv_get_async_event(ended.a.context, &event), -1);
	EQUAL(errno, EIO);
	return NULL;
}

/* Write until the NIC process has ended: no call hangs, and each says so. */
static void nic_ends(char **sockets)
{
	struct ibv_wc wc;
	pthread_t threads[2];
	int result, count;

	ended = open_pair(sockets, USUAL_SIZES);
	EQUAL(pthread_create(&threads[0], NULL, wait_for_event, NULL), 0);
	EQUAL(pthread_create(&threads[1], NULL, wait_for_async, NULL), 0);
	puts("ready");
	fflush(stdout);
	do {
		result = write_at(&ended.a, &ended.b, 0, 60000, 1, IBV_SEND_SIGNALED);
		count = poll_cq(ended.a.send_cq, 1, &wc);
	} while (count >= 0 && (!result || result == ENOMEM));
	while (poll_cq(ended.a.send_cq, 1, &wc) >= 0) /* what had completed may still be polled */
		;
	EQUAL(errno, EIO);
	EQUAL(write_at(&ended.a, &ended.b, 0, 8, 1, IBV_SEND_SIGNALED), EIO);
	EQUAL(post_recv(ended.a.qp, 1), EIO);
	EQUAL(arm(ended.a.send_cq, 0), EIO);
	CHECK(!ibv_reg_mr(ended.a.pd, ended.a.memory, 8, WRITE_ACCESS));
	EQUAL(errno, EIO);
	for (int i = 0; i < 2; i++)
		EQUAL(pthread_join(threads[i], NULL), 0);
	close_pair(&ended);
}

/* Write until nothing reaches the peer: the write fails, and the event says whose QP did. */
static void peer_ends(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);
	struct ibv_async_event event;
	struct ibv_wc wc;

	puts("ready");
	fflush(stdout);
	do {
		EQUAL(write_at(&pair.a, &pair.b, 0, 60000, 1, IBV_SEND_SIGNALED), 0);
		wc = next_completion(pair.a.send_cq);
	} while (wc.status == IBV_WC_SUCCESS);
	EQUAL(wc.status, IBV_WC_RETRY_EXC_ERR);
	do
		EQUAL(ibv_get_async_event(pair.a.context, &event), 0);
	while (event.event_type == IBV_EVENT_PORT_ERR);
	EQUAL(event.event_type, IBV_EVENT_QP_FATAL);
	CHECK(event.element.qp == pair.a.qp);
	ibv_ack_async_event(&event);
	EQUAL(write_at(&pair.a, &pair.b, 0, 8, 2, IBV_SEND_SIGNALED), 0);
	expect(next_completion(pair.a.send_cq), 2, IBV_WC_WR_FLUSH_ERR);
	close_pair(&pair);
}

static const struct test tests[] = {
	{"kinds", kinds}, {"overlaps", overlaps}, {"moved", moved}, {"refused", refused}, {"forked", forked},
	{"child_with_its_own", child_with_its_own},
	{"until_told", until_told}, {"nic_ends", nic_ends}, {"peer_ends", peer_ends}, /* ended from outside */
};
RUN_TESTS(tests)
