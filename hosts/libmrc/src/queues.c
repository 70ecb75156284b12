/* Queues: posting into the submission ring, polling the rings of completion queues. No call here waits for the NIC
 * process, except where the submission ring is full, and poll_cq() when it has found nothing many times in a row.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "libmrc.h"

#define IDLE_POLLS 16                 /* empty polls in a row before poll_cq() sleeps */
#define IDLE_SLEEP_NS 50000           /* a program that spins would take the CPU from the NIC process */
#define FULL_SLEEP_NS 20000
#define FULL_SLEEPS 50000             /* one second at the least: the NIC process hangs */
#define CHECK_EVERY 32                /* sleeps between two looks whether the NIC process lives */

static uint64_t *word(uint8_t *ring, size_t at)
{
	return (uint64_t *)(ring + at);
}

static void rest(long nanoseconds)
{
	nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL);
}

/* ---- completion queues ---- */

static int completion_bytes(uint64_t slots)
{
	return NICD_SLOTS_AT + slots * NICD_SLOT_BYTES;
}

/* Make a completion queue; NULL and errno when the NIC process refuses. */
struct completion_queue *make_cq(struct context *context, uint32_t operation, int entries, void *cq_context,
				 struct ibv_comp_channel *channel)
{
	struct call call = {.count = 2, .values = {entries, channel ? ((struct channel *)channel)->number : 0}};
	struct completion_queue *cq = calloc(1, sizeof *cq);
	int result = ENOMEM;

	if (cq)
		result = nic_call(context, operation, &call);
	else
		call.count = 0;
	if (!result && (call.count != 2 || call.fd_count != 1 || !call.values[1] || call.values[1] & (call.values[1] - 1)))
		result = EPROTO;
	if (!result) {
		cq->slots = call.values[1];
		cq->ring_bytes = completion_bytes(cq->slots);
		cq->ring = mmap(NULL, cq->ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, call.fds[0], 0);
		result = cq->ring == MAP_FAILED ? errno : 0;
		close(call.fds[0]);
	}
	if (result) {
		if (call.count == 2) /* it is there, but not for us */
			nic_request(context, NICD_OP_DESTROY_CQ, 1, call.values);
		free(cq);
		errno = result;
		return NULL;
	}
	cq->ibv = (struct ibv_cq){.context = &context->verbs.context, .channel = channel, .cq_context = cq_context,
				  .handle = call.values[0], .cqe = entries};
	cq->has_ev_events = operation == NICD_OP_CREATE_EV_EVENT_CQ;
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	pthread_mutex_init(&cq->poll_mutex, NULL);
	pthread_mutex_lock(&context->objects_mutex);
	cq->next = context->cqs;
	context->cqs = cq;
	pthread_mutex_unlock(&context->objects_mutex);
	return cq;
}

/* Destroy a completion queue, once the program has acknowledged its events. Return an errno. */
int destroy_cq(struct completion_queue *cq)
{
	struct context *context = context_of(cq->ibv.context);
	const uint64_t number = cq->ibv.handle;
	int result = nic_request(context, NICD_OP_DESTROY_CQ, 1, &number);

	if (result && !context->is_dead)
		return result;
	pthread_mutex_lock(&context->objects_mutex);
	for (struct completion_queue **place = &context->cqs; *place; place = &(*place)->next)
		if (*place == cq) {
			*place = cq->next;
			break;
		}
	pthread_mutex_unlock(&context->objects_mutex);
	pthread_mutex_lock(&cq->ibv.mutex);
	while (cq->ibv.comp_events_completed != cq->events_sent || cq->ibv.async_events_completed != cq->async_events_sent)
		pthread_cond_wait(&cq->ibv.cond, &cq->ibv.mutex);
	pthread_mutex_unlock(&cq->ibv.mutex);
	munmap(cq->ring, cq->ring_bytes);
	free(cq);
	return 0;
}

/* Note that requests up to a number are over. */
static void retire(struct queue_pair *qp, bool is_recv, uint64_t number)
{
	struct work_queue *queue = is_recv ? &qp->recv : &qp->send;

	if (number > __atomic_load_n(&queue->posted, __ATOMIC_RELAXED))
		return;
	for (uint64_t i = queue->retired; !is_recv && i < number; i++)
		if (qp->is_wimm[i % qp->send.limit])
			__atomic_sub_fetch(&qp->wimm_in_flight, 1, __ATOMIC_RELAXED);
	if (number > queue->retired)
		__atomic_store_n(&queue->retired, number, __ATOMIC_RELEASE);
}

/* Copy an entry for the program; false where it is of a QP that was destroyed or reset since. */
static bool take_completion(struct context *context, const void *slot, uint64_t at, void *out, int index)
{
	const struct nicd_completion *entry = slot;
	struct ibv_wc *wc = (struct ibv_wc *)out + index;
	struct queue_pair *qp = context->qps[entry->qpn & 0xffff];

	if (!qp || qp->ibv.qp_num != entry->qpn || at < qp->cqe_after[entry->is_recv != 0])
		return false;
	retire(qp, entry->is_recv, entry->retired);
	*wc = (struct ibv_wc){.wr_id = entry->wr_id, .status = entry->status, .opcode = entry->opcode,
			      .vendor_err = entry->vendor_error, .byte_len = entry->bytes, .imm_data = htonl(entry->imm),
			      .qp_num = entry->qpn, .src_qp = entry->peer_qpn, .wc_flags = entry->flags};
	return true;
}

static void idle(struct completion_queue *cq)
{
	if (++cq->idle_polls < IDLE_POLLS)
		return;
	rest(IDLE_SLEEP_NS);
	if (cq->idle_polls % CHECK_EVERY == 0)
		nic_check_alive(context_of(cq->ibv.context));
}

/* Return the number of entries taken, at most `count`; -1 and errno EIO when the NIC process has ended. */
int poll_entries(struct completion_queue *cq, int count, take_entry *take, void *out)
{
	struct context *context = context_of(cq->ibv.context);
	int taken = 0;

	if (context->socket < 0) { /* in a child of fork(): the ring is its parent's */
		errno = EIO;
		return -1;
	}
	pthread_mutex_lock(&cq->poll_mutex);
	uint64_t tail = __atomic_load_n(word(cq->ring, NICD_TAIL_AT), __ATOMIC_ACQUIRE);
	while (taken < count && cq->head != tail) {
		const uint8_t *slot = cq->ring + NICD_SLOTS_AT + (cq->head & (cq->slots - 1)) * NICD_SLOT_BYTES;
		taken += take(context, slot, cq->head, out, taken);
		cq->head++;
	}
	__atomic_store_n(word(cq->ring, NICD_HEAD_AT), cq->head, __ATOMIC_RELEASE);
	if (taken)
		cq->idle_polls = 0;
	else if (count > 0)
		idle(cq);
	pthread_mutex_unlock(&cq->poll_mutex);
	if (!taken && context->is_dead) {
		errno = EIO;
		return -1;
	}
	return taken;
}

/* Return the number of completions, at most `count`; -1 and errno when it cannot be polled. */
int poll_cq(struct ibv_cq *ibv, int count, struct ibv_wc *completions)
{
	struct completion_queue *cq = (struct completion_queue *)ibv;

	if (cq->has_ev_events) {
		errno = EINVAL;
		return -1;
	}
	return poll_entries(cq, count, take_completion, completions);
}

/* ---- the submission ring ---- */

/* Return the first of `slots` free slots, with `mutex` of the ring held; NULL and errno when none becomes free. */
static struct nicd_record *free_slots(struct context *context, uint64_t tail, uint32_t slots)
{
	for (int sleeps = 0; sleeps < FULL_SLEEPS; sleeps++) {
		uint64_t head = __atomic_load_n(word(context->ring, NICD_HEAD_AT), __ATOMIC_ACQUIRE);
		if (context->is_dead)
			break;
		if (tail + slots - head <= NICD_SQ_SLOTS)
			return (void *)(context->ring + NICD_SLOTS_AT + (tail & (NICD_SQ_SLOTS - 1)) * NICD_SLOT_BYTES);
		rest(FULL_SLEEP_NS);
		if (sleeps % CHECK_EVERY == 0)
			nic_check_alive(context);
	}
	errno = context->is_dead ? EIO : ENOMEM;
	return NULL;
}

static struct nicd_record *slot(struct context *context, uint64_t at)
{
	return (void *)(context->ring + NICD_SLOTS_AT + (at & (NICD_SQ_SLOTS - 1)) * NICD_SLOT_BYTES);
}

/* Show the NIC process what was written up to `tail`, and wake it if it sleeps. */
static void publish(struct context *context, uint64_t tail)
{
	if (tail == context->tail)
		return;
	context->tail = tail;
	__atomic_store_n(word(context->ring, NICD_TAIL_AT), tail, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(word(context->ring, NICD_ASLEEP_AT), __ATOMIC_SEQ_CST) &&
	    __atomic_exchange_n(word(context->ring, NICD_ASLEEP_AT), 0, __ATOMIC_SEQ_CST)) {
		const uint64_t one = 1;
		if (send(context->doorbell, &one, sizeof one, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			nic_check_alive(context);
	}
}

/* Ask for an event at the next completion; one that came after the newest polled entry counts. */
int arm_cq(struct ibv_cq *ibv, int solicited_only)
{
	struct completion_queue *cq = (struct completion_queue *)ibv;
	struct context *context = context_of(ibv->context);

	if (!ibv->channel)
		return EINVAL;
	pthread_mutex_lock(&context->ring_mutex);
	struct nicd_record *record = free_slots(context, context->tail, 1);
	if (record) {
		*record = (struct nicd_record){
			.kind = NICD_KIND_ARM, .slots = 1, .number = ibv->handle, .flags = solicited_only != 0,
			.wr_id = __atomic_load_n(word(cq->ring, NICD_TAIL_AT), __ATOMIC_ACQUIRE)};
		publish(context, context->tail + 1);
	}
	pthread_mutex_unlock(&context->ring_mutex);
	return record ? 0 : errno;
}

static const char *const refused_operations[] = {
	[IBV_WR_SEND] = "SEND", [IBV_WR_SEND_WITH_IMM] = "SEND_WITH_IMM", [IBV_WR_RDMA_READ] = "RDMA_READ",
	[IBV_WR_ATOMIC_CMP_AND_SWP] = "ATOMIC_CMP_AND_SWP", [IBV_WR_ATOMIC_FETCH_AND_ADD] = "ATOMIC_FETCH_AND_ADD",
	[IBV_WR_LOCAL_INV] = "LOCAL_INV", [IBV_WR_BIND_MW] = "BIND_MW", [IBV_WR_SEND_WITH_INV] = "SEND_WITH_INV",
	[IBV_WR_TSO] = "TSO"};

/* Return an errno for a request that cannot be posted, and the bytes of an inline one. */
static int check_send(const struct queue_pair *qp, const struct ibv_send_wr *wr, uint64_t *inline_bytes)
{
	*inline_bytes = 0;
	if (wr->opcode > IBV_WR_RDMA_WRITE_WITH_IMM) {
		bool is_known = wr->opcode < sizeof refused_operations / sizeof *refused_operations;
		explain("libmrc: IBV_WR_%s is no operation of MRC, which has RDMA_WRITE and RDMA_WRITE_WITH_IMM",
			is_known ? refused_operations[wr->opcode] : "(unknown)");
		return EOPNOTSUPP;
	}
	if (qp->ibv.state != IBV_QPS_RTS && qp->ibv.state != IBV_QPS_ERR)
		return EINVAL;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->send.sge_limit)
		return EINVAL;
	if (qp->send.posted - __atomic_load_n(&qp->send.retired, __ATOMIC_ACQUIRE) >= qp->send.limit)
		return ENOMEM;
	bool is_wimm = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	if (is_wimm && __atomic_load_n(&qp->wimm_in_flight, __ATOMIC_RELAXED) >= qp->max_wimm)
		return ENOMEM;
	if (wr->send_flags & IBV_SEND_FENCE || (wr->send_flags & IBV_SEND_SOLICITED && !is_wimm))
		return EINVAL;
	for (int i = 0; wr->send_flags & IBV_SEND_INLINE && i < wr->num_sge; i++)
		*inline_bytes += wr->sg_list[i].length;
	return *inline_bytes > qp->inline_limit ? EINVAL : 0;
}

/* Write elements, or inline bytes, behind a record; slots of the ring may wrap between them. */
static void fill_payload(struct context *context, uint64_t at, const struct ibv_send_wr *wr, bool is_inline)
{
	uint8_t bytes[NICD_MAX_INLINE + NICD_SLOT_BYTES];
	size_t length = 0;

	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *element = &wr->sg_list[i];
		if (is_inline) {
			memcpy(bytes + length, (void *)element->addr, element->length);
			length += element->length;
		} else {
			const struct nicd_sge copy = {element->addr, element->length, element->lkey};
			memcpy(bytes + length, &copy, sizeof copy);
			length += sizeof copy;
		}
	}
	for (size_t done = 0; done < length; done += NICD_SLOT_BYTES)
		memcpy(slot(context, at++), bytes + done, length - done < NICD_SLOT_BYTES ? length - done : NICD_SLOT_BYTES);
}

static int write_send(struct context *context, struct queue_pair *qp, const struct ibv_send_wr *wr, uint64_t *tail)
{
	uint64_t inline_bytes;
	int result = check_send(qp, wr, &inline_bytes);

	if (result)
		return result;
	bool is_inline = wr->send_flags & IBV_SEND_INLINE;
	uint64_t extra = is_inline ? inline_bytes : wr->num_sge * sizeof(struct nicd_sge);
	uint32_t slots = 1 + (extra + NICD_SLOT_BYTES - 1) / NICD_SLOT_BYTES;
	// What is written but not shown yet takes room too: show it, or the ring can never become free.
	if (*tail + slots - context->tail > NICD_SQ_SLOTS)
		publish(context, *tail);
	struct nicd_record *record = free_slots(context, *tail, slots);
	if (!record)
		return errno;
	*record = (struct nicd_record){
		.kind = NICD_KIND_SEND, .slots = slots, .number = qp->ibv.qp_num, .wr_id = wr->wr_id,
		.flags = wr->send_flags | (qp->sq_sig_all ? IBV_SEND_SIGNALED : 0), .remote_addr = wr->wr.rdma.remote_addr,
		.rkey = wr->wr.rdma.rkey, .imm = ntohl(wr->imm_data), .opcode = wr->opcode,
		.sge_count = is_inline ? 0 : wr->num_sge, .inline_bytes = inline_bytes, .serial = qp->send.posted};
	fill_payload(context, *tail + 1, wr, is_inline);
	bool is_wimm = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	qp->is_wimm[qp->send.posted % qp->send.limit] = is_wimm;
	__atomic_add_fetch(&qp->wimm_in_flight, is_wimm, __ATOMIC_RELAXED);
	qp->send.posted++;
	*tail += slots;
	return 0;
}

/* Post requests; return an errno, and in `bad_wr` the one that was refused. */
int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct context *context = context_of(ibv->context);

	pthread_mutex_lock(&context->ring_mutex);
	int result = context->is_dead ? EIO : 0;
	uint64_t tail = context->tail;
	for (; wr && !result; wr = result ? wr : wr->next)
		result = write_send(context, (struct queue_pair *)ibv, wr, &tail);
	publish(context, tail);
	pthread_mutex_unlock(&context->ring_mutex);
	if (result && bad_wr)
		*bad_wr = wr;
	return result;
}

static int write_recv(struct context *context, struct queue_pair *qp, const struct ibv_recv_wr *wr, uint64_t *tail)
{
	if (qp->ibv.state == IBV_QPS_RESET || wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->recv.sge_limit)
		return EINVAL;
	if (qp->recv.posted - __atomic_load_n(&qp->recv.retired, __ATOMIC_ACQUIRE) >= qp->recv.limit)
		return ENOMEM;
	if (*tail + 1 - context->tail > NICD_SQ_SLOTS)
		publish(context, *tail);
	struct nicd_record *record = free_slots(context, *tail, 1);
	if (!record)
		return errno;
	*record = (struct nicd_record){.kind = NICD_KIND_RECV, .slots = 1, .number = qp->ibv.qp_num, .wr_id = wr->wr_id,
				       .serial = qp->recv.posted++};
	*tail += 1;
	return 0;
}

/* Post receives: a WriteIMM of the peer uses one up. Their elements are not used: a write names its own memory. */
int post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct context *context = context_of(ibv->context);

	pthread_mutex_lock(&context->ring_mutex);
	int result = context->is_dead ? EIO : 0;
	uint64_t tail = context->tail;
	for (; wr && !result; wr = result ? wr : wr->next)
		result = write_recv(context, (struct queue_pair *)ibv, wr, &tail);
	publish(context, tail);
	pthread_mutex_unlock(&context->ring_mutex);
	if (result && bad_wr)
		*bad_wr = wr;
	return result;
}

/* ---- queue pairs ---- */

static uint32_t at_least_one(uint32_t number)
{
	return number ? number : 1;
}

static uint64_t cqe_count(struct ibv_cq *cq)
{
	return cq ? __atomic_load_n(word(((struct completion_queue *)cq)->ring, NICD_TAIL_AT), __ATOMIC_ACQUIRE) : 0;
}

/* Make a QP in RESET; NULL and errno when the NIC process refuses. */
struct queue_pair *make_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct context *context = context_of(pd->context);
	struct ibv_qp_cap *cap = &init->cap;
	struct queue_pair *qp = calloc(1, sizeof *qp);
	uint8_t *is_wimm = calloc(at_least_one(cap->max_send_wr), 1);
	struct call call = {
		.count = 10,
		.values = {pd->handle, init->send_cq ? init->send_cq->handle : 0, init->recv_cq ? init->recv_cq->handle : 0,
			   at_least_one(cap->max_send_wr), at_least_one(cap->max_recv_wr), at_least_one(cap->max_send_sge),
			   at_least_one(cap->max_recv_sge), cap->max_inline_data, init->sq_sig_all != 0, 0}};
	int result = qp && is_wimm ? nic_call(context, NICD_OP_CREATE_QP, &call) : ENOMEM;

	if (!result && call.count != 1)
		result = EPROTO;
	if (result) {
		free(qp);
		free(is_wimm);
		errno = result;
		return NULL;
	}
	qp->ibv = (struct ibv_qp){.context = pd->context, .qp_context = init->qp_context, .pd = pd, .send_cq = init->send_cq,
				  .recv_cq = init->recv_cq, .handle = call.values[0], .qp_num = call.values[0],
				  .qp_type = init->qp_type};
	qp->send = (struct work_queue){.limit = at_least_one(cap->max_send_wr), .sge_limit = at_least_one(cap->max_send_sge)};
	qp->recv = (struct work_queue){.limit = at_least_one(cap->max_recv_wr), .sge_limit = at_least_one(cap->max_recv_sge)};
	qp->inline_limit = cap->max_inline_data;
	qp->sq_sig_all = init->sq_sig_all;
	qp->is_wimm = is_wimm;
	pthread_mutex_init(&qp->ibv.mutex, NULL);
	pthread_cond_init(&qp->ibv.cond, NULL);
	qp->cqe_after[0] = cqe_count(init->send_cq); /* what is there is of an earlier QP with this number */
	qp->cqe_after[1] = cqe_count(init->recv_cq);
	context->qps[qp->ibv.qp_num & 0xffff] = qp;
	return qp;
}

/* Destroy a QP, once the program has acknowledged its events. Return an errno. */
int destroy_qp(struct queue_pair *qp)
{
	struct context *context = context_of(qp->ibv.context);
	const uint64_t number = qp->ibv.qp_num;
	int result = nic_request(context, NICD_OP_DESTROY_QP, 1, &number);

	if (result && !context->is_dead)
		return result;
	context->qps[qp->ibv.qp_num & 0xffff] = NULL;
	pthread_mutex_lock(&qp->ibv.mutex);
	while (qp->ibv.events_completed != qp->async_events_sent)
		pthread_cond_wait(&qp->ibv.cond, &qp->ibv.mutex);
	pthread_mutex_unlock(&qp->ibv.mutex);
	free(qp->is_wimm);
	free(qp);
	return 0;
}

/* Change attributes and state, as the masks say. Return an errno. */
int modify_qp(struct queue_pair *qp, uint64_t mask, uint64_t mrc_mask, const uint64_t values[NICD_QP_VALUES])
{
	struct call call = {.count = 3 + NICD_QP_VALUES, .values = {qp->ibv.qp_num, mask, mrc_mask}};

	memcpy(call.values + 3, values, NICD_QP_VALUES * sizeof *values);
	int result = nic_call(context_of(qp->ibv.context), NICD_OP_MODIFY_QP, &call);
	if (result)
		return result;
	if (call.count < 2)
		return EPROTO;
	qp->ibv.state = call.values[0];
	qp->max_wimm = call.values[1];
	if (mask & IBV_QP_STATE && values[NICD_QP_STATE] == IBV_QPS_RESET) {
		qp->cqe_after[0] = cqe_count(qp->ibv.send_cq);
		qp->cqe_after[1] = cqe_count(qp->ibv.recv_cq);
		qp->send.posted = qp->send.retired = qp->recv.posted = qp->recv.retired = 0;
		qp->wimm_in_flight = 0;
	}
	return 0;
}

/* Read the attributes in force. Return an errno. */
int query_qp(struct queue_pair *qp, uint64_t values[NICD_QP_VALUES])
{
	struct call call = {.count = 1, .values = {qp->ibv.qp_num}};
	int result = nic_call(context_of(qp->ibv.context), NICD_OP_QUERY_QP, &call);

	if (result || call.count != NICD_QP_VALUES)
		return result ? result : EPROTO;
	memcpy(values, call.values, NICD_QP_VALUES * sizeof *values);
	qp->ibv.state = values[NICD_QP_STATE];
	return 0;
}

/* ---- for the NIC process ---- */

/* Store an index by one aligned store, after all that was written before. */
EXPORT void mrc_nic_publish(uint64_t *index, uint64_t value)
{
	__atomic_store_n(index, value, __ATOMIC_RELEASE);
}

/* Return an index, before all that is read after. */
EXPORT uint64_t mrc_nic_read(uint64_t *index)
{
	return __atomic_load_n(index, __ATOMIC_ACQUIRE);
}

/* Say that the reader of a submission ring will sleep; return the ring's tail, which it must look at once more. */
EXPORT uint64_t mrc_nic_sleep(uint8_t *ring)
{
	__atomic_store_n(word(ring, NICD_ASLEEP_AT), 1, __ATOMIC_SEQ_CST);
	return __atomic_load_n(word(ring, NICD_TAIL_AT), __ATOMIC_SEQ_CST);
}
