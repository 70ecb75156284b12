/* Writes of a program through the library, with every byte checked. */
#include <arpa/inet.h>

#include "pair.h"

static struct ibv_send_wr write_of(const struct end *to, struct ibv_sge *elements, int count, uint64_t wr_id)
{
	struct ibv_send_wr wr = {.wr_id = wr_id, .sg_list = elements, .num_sge = count, .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED};

	wr.wr.rdma.remote_addr = (uintptr_t)to->memory;
	wr.wr.rdma.rkey = to->mr->rkey;
	return wr;
}

static void sizes(char **sockets)
{
	static const uint32_t lengths[] = {1, 2, 63, 64, 65, 511, 1023, 1024, 1025, 4096, 65537, 1 << 20};
	struct pair pair = open_pair(sockets, USUAL_SIZES);

	for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		size_t offset = 4096 + i * 3;
		memset(pair.b.memory, 0, REGION_BYTES);
		write_and_check(&pair.a, &pair.b, offset, lengths[i], i + 1);
		CHECK(is_zero(pair.b.memory, offset));
		CHECK(is_zero(pair.b.memory + offset + lengths[i], REGION_BYTES - offset - lengths[i]));
		write_and_check(&pair.b, &pair.a, offset + 1, lengths[i], i + 100);
	}
	close_pair(&pair);
}

static void inline_bytes(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);
	uint8_t bytes[512];

	for (uint32_t length = 1; length <= 512; length = length < 64 ? length + 21 : length * 2) {
		struct ibv_sge elements[2] = {{(uintptr_t)bytes, length / 2, 0},
					      {(uintptr_t)bytes + length / 2, length - length / 2, 0}};
		struct ibv_send_wr wr = write_of(&pair.b, elements, 2, length);
		wr.send_flags |= IBV_SEND_INLINE;
		fill(bytes, length, length);
		EQUAL(post_send(pair.a.qp, &wr), 0);
		memset(bytes, 0xee, sizeof bytes); /* they are the program's again at once */
		expect(next_completion(pair.a.send_cq), length, IBV_WC_SUCCESS);
		CHECK(is_filled(pair.b.memory, length, length));
	}
	struct ibv_sge too_long = {(uintptr_t)pair.a.memory, 513, 0};
	struct ibv_send_wr wr = write_of(&pair.b, &too_long, 1, 1);
	wr.send_flags |= IBV_SEND_INLINE;
	EQUAL(post_send(pair.a.qp, &wr), EINVAL);
	struct ibv_sge wrapped[2] = {{(uintptr_t)pair.a.memory, UINT32_MAX, 0}, {(uintptr_t)pair.a.memory, 2, 0}};
	wr = write_of(&pair.b, wrapped, 2, 1); /* the sum of the lengths is 1 in 32 bits */
	wr.send_flags |= IBV_SEND_INLINE;
	EQUAL(post_send(pair.a.qp, &wr), EINVAL);
	close_pair(&pair);
}

static void elements(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);
	struct ibv_sge elements[16];

	for (int count = 1; count <= 16; count += 5) {
		uint32_t total = 0;
		for (int i = 0; i < count; i++) {
			uint32_t length = 100 + 300 * i;
			elements[i] = (struct ibv_sge){(uintptr_t)pair.a.memory + 65536 * i + i, length, pair.a.mr->lkey};
			fill(pair.a.memory + 65536 * i + i, length, i + count);
			total += length;
		}
		memset(pair.b.memory, 0, REGION_BYTES);
		struct ibv_send_wr wr = write_of(&pair.b, elements, count, count);
		EQUAL(post_send(pair.a.qp, &wr), 0);
		expect(next_completion(pair.a.send_cq), count, IBV_WC_SUCCESS);
		size_t at = 0;
		for (int i = 0; i < count; at += elements[i++].length)
			CHECK(is_filled(pair.b.memory + at, elements[i].length, i + count));
		CHECK(is_zero(pair.b.memory + total, 4096));
	}
	struct ibv_send_wr wr = write_of(&pair.b, elements, 17, 1);
	EQUAL(post_send(pair.a.qp, &wr), EINVAL);
	close_pair(&pair);
}

static void immediates(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);

	for (uint64_t i = 0; i < 40; i++)
		EQUAL(post_recv(pair.b.qp, 1000 + i), 0);
	for (uint64_t i = 0; i < 40; i++) {
		struct ibv_sge element = {(uintptr_t)pair.a.memory, 100 + i, pair.a.mr->lkey};
		struct ibv_send_wr wr = write_of(&pair.b, &element, 1, i);
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.imm_data = htonl(0x80000000u + i);
		fill(pair.a.memory, 100 + i, i);
		EQUAL(post_send(pair.a.qp, &wr), 0);
		struct ibv_wc received = next_completion(pair.b.recv_cq);
		expect(received, 1000 + i, IBV_WC_SUCCESS);
		EQUAL(received.opcode, 129); /* IBV_WC_RECV_RDMA_WITH_IMM */
		EQUAL(ntohl(received.imm_data), 0x80000000u + i);
		EQUAL(received.byte_len, 100 + i);
		EQUAL(received.qp_num, pair.b.qp->qp_num);
		EQUAL(received.wc_flags & 2, 2); /* IBV_WC_WITH_IMM */
		CHECK(is_filled(pair.b.memory, 100 + i, i));
		expect(next_completion(pair.a.send_cq), i, IBV_WC_SUCCESS);
	}
	struct ibv_wc wc;
	EQUAL(poll_cq(pair.b.send_cq, 1, &wc), 0);
	EQUAL(poll_cq(pair.a.recv_cq, 1, &wc), 0);
	close_pair(&pair);
}

static void unsignaled(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);

	for (unsigned round = 0; round < 8; round++) {
		for (unsigned i = 0; i < 63; i++) {
			fill(pair.a.memory + i * 256, 200, round * 64 + i);
			EQUAL(write_at(&pair.a, &pair.b, i * 256, 200, i, 0), 0);
		}
		EQUAL(write_at(&pair.a, &pair.b, 65536, 1, 4242, IBV_SEND_SIGNALED), 0);
		expect(next_completion(pair.a.send_cq), 4242, IBV_WC_SUCCESS);
		for (unsigned i = 0; i < 63; i++)
			CHECK(is_filled(pair.b.memory + i * 256, 200, round * 64 + i));
	}
	close_pair(&pair);
}

static void send_queue_full(char **sockets)
{
	struct pair pair = open_pair(sockets, (struct sizes){64, {16, 16, 1, 1, 0}});

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 16; i++)
			EQUAL(write_at(&pair.a, &pair.b, i, 1, i, IBV_SEND_SIGNALED), 0);
		EQUAL(write_at(&pair.a, &pair.b, 0, 1, 99, IBV_SEND_SIGNALED), ENOMEM);
		expect(next_completion(pair.a.send_cq), 0, IBV_WC_SUCCESS);
		EQUAL(write_at(&pair.a, &pair.b, 0, 1, 16, IBV_SEND_SIGNALED), 0);
		EQUAL(write_at(&pair.a, &pair.b, 0, 1, 99, IBV_SEND_SIGNALED), ENOMEM);
		for (int i = 1; i <= 16; i++)
			expect(next_completion(pair.a.send_cq), i, IBV_WC_SUCCESS);
	}
	/* Of a list, those before the one that does not fit are posted, and it is named. */
	struct ibv_sge element = {(uintptr_t)pair.a.memory, 1, pair.a.mr->lkey};
	struct ibv_send_wr list[20], *bad = NULL;
	for (int i = 0; i < 20; i++) {
		list[i] = write_of(&pair.b, &element, 1, i);
		list[i].next = i < 19 ? &list[i + 1] : NULL;
	}
	EQUAL(pair.a.context->ops.post_send(pair.a.qp, list, &bad), ENOMEM);
	EQUAL(bad - list, 16);
	for (int i = 0; i < 16; i++)
		expect(next_completion(pair.a.send_cq), i, IBV_WC_SUCCESS);
	close_pair(&pair);
}

static void receive_queue_full(char **sockets)
{
	struct pair pair = open_pair(sockets, (struct sizes){64, {16, 8, 1, 1, 0}});

	for (int i = 0; i < 8; i++)
		EQUAL(post_recv(pair.b.qp, i), 0);
	EQUAL(post_recv(pair.b.qp, 8), ENOMEM);
	struct ibv_sge element = {(uintptr_t)pair.a.memory, 1, pair.a.mr->lkey};
	struct ibv_send_wr wr = write_of(&pair.b, &element, 1, 1);
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	EQUAL(post_send(pair.a.qp, &wr), 0);
	expect(next_completion(pair.b.recv_cq), 0, IBV_WC_SUCCESS);
	EQUAL(post_recv(pair.b.qp, 8), 0);
	EQUAL(post_recv(pair.b.qp, 9), ENOMEM);
	close_pair(&pair);
}

static void immediate_limit(char **sockets)
{
	struct pair pair = open_pair(sockets, (struct sizes){4096, {2048, 2048, 1, 1, 0}});
	struct ibv_sge element = {(uintptr_t)pair.a.memory, 1, pair.a.mr->lkey};
	struct ibv_send_wr wr = write_of(&pair.b, &element, 1, 1);
	int limit = 0, result;

	for (int i = 0; i < 2048; i++)
		EQUAL(post_recv(pair.b.qp, i), 0);
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	while (!(result = post_send(pair.a.qp, &wr)) && limit < 2048)
		limit++;
	EQUAL(result, ENOMEM);
	CHECK(limit > 0 && limit < 2048);
	EQUAL(write_at(&pair.a, &pair.b, 0, 1, 2, IBV_SEND_SIGNALED), 0); /* writes without immediate go on */
	for (int i = 0; i < limit; i++)
		expect(next_completion(pair.a.send_cq), 1, IBV_WC_SUCCESS);
	for (int i = 0; i < limit; i++)
		EQUAL(post_send(pair.a.qp, &wr), 0);
	EQUAL(post_send(pair.a.qp, &wr), ENOMEM);
	close_pair(&pair);
}

static void refused(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);
	struct ibv_sge element = {(uintptr_t)pair.a.memory, 8, pair.a.mr->lkey};

	for (uint32_t opcode = IBV_WR_SEND; opcode <= IBV_WR_TSO + 1; opcode++) {
		struct ibv_send_wr wr = write_of(&pair.b, &element, 1, 1);
		wr.opcode = opcode;
		EQUAL(post_send(pair.a.qp, &wr), EOPNOTSUPP);
	}
	struct ibv_send_wr wr = write_of(&pair.b, &element, 1, 1);
	wr.send_flags |= IBV_SEND_FENCE;
	EQUAL(post_send(pair.a.qp, &wr), EINVAL);
	wr.send_flags = IBV_SEND_SOLICITED;
	EQUAL(post_send(pair.a.qp, &wr), EINVAL);
	wr = write_of(&pair.b, &element, -1, 1);
	EQUAL(post_send(pair.a.qp, &wr), EINVAL);

	/* Receives for a SEND are refused, of a list from the first on; one with an element of no bytes is for a WriteIMM. */
	struct ibv_recv_wr list[] = {{.wr_id = 1, .sg_list = &element, .num_sge = 0, .next = &list[1]},
				     {.wr_id = 2, .sg_list = &element, .num_sge = 1}}, *bad = NULL;
	EQUAL(pair.b.context->ops.post_recv(pair.b.qp, list, &bad), EOPNOTSUPP);
	CHECK(bad == &list[1]);
	element.length = 0;
	EQUAL(pair.b.context->ops.post_recv(pair.b.qp, &list[1], &bad), 0);
	for (int i = 1; i <= 2; i++) {
		wr = write_of(&pair.b, &element, 1, i);
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		EQUAL(post_send(pair.a.qp, &wr), 0);
		expect(next_completion(pair.a.send_cq), i, IBV_WC_SUCCESS);
		expect(next_completion(pair.b.recv_cq), i, IBV_WC_SUCCESS);
	}
	write_and_check(&pair.a, &pair.b, 0, 4096, 3); /* nothing of these has harmed the QP */
	close_pair(&pair);
}

static void wrong_keys(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);
	struct ibv_sge element = {(uintptr_t)pair.a.memory, 8, pair.a.mr->lkey + 1};
	struct ibv_send_wr wr = write_of(&pair.b, &element, 1, 5);

	EQUAL(post_send(pair.a.qp, &wr), 0);
	expect(next_completion(pair.a.send_cq), 5, 4); /* IBV_WC_LOC_PROT_ERR */
	EQUAL(post_send(pair.a.qp, &wr), 0);
	expect(next_completion(pair.a.send_cq), 5, IBV_WC_WR_FLUSH_ERR);
	close_pair(&pair);
}

static const struct test tests[] = {
	{"sizes", sizes}, {"inline_bytes", inline_bytes}, {"elements", elements}, {"immediates", immediates},
	{"unsignaled", unsignaled}, {"send_queue_full", send_queue_full}, {"receive_queue_full", receive_queue_full},
	{"immediate_limit", immediate_limit}, {"refused", refused}, {"wrong_keys", wrong_keys}};
RUN_TESTS(tests)
