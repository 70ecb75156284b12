/* Messages between the ranks of a job, on the public functions of mrc.h.
 *
 * Each pair of ranks has a QP. A message is cut into chunks. A chunk is a WriteIMM into the next slot of the peer's
 * ring; its immediate says length and sequence number, and its completion at the peer says that all bytes are there. The
 * peer gives slots back by writing how many it has emptied into our memory. One such write is in flight at a time:
 * MRC places writes in any order, and an older count must not replace a newer one.
 *
 * One thread moves all chunks; it sleeps while no request waits. It holds no lock of Python's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <mrc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define SLOT_BYTES (64 * 1024)
#define SLOTS 16
#define RING_BYTES ((size_t)SLOTS * SLOT_BYTES)
#define LENGTH_BITS 17 /* of an immediate; the sequence number has the rest */
#define POLLED 16
#define PROBE_S 1.0    /* silence of a peer that a request waits for, after which a write asks whether it lives */
#define FLUSH_S 10.0   /* time at close for the last writes to arrive */
#define NAME_BYTES 160
#define EXPORT __attribute__((visibility("default")))

struct header {
	uint64_t tag, length;
};

/* What each end tells the other before the first packet. */
struct hello {
	union ibv_gid gid;
	uint64_t ring_address, emptied_address;
	uint32_t qpn, rkey;
};

struct request {
	struct request *next;
	uint64_t tag;
	uint8_t *bytes;
	size_t length, moved;
	int peer, source;
	int error;
	bool has_header, is_done;
};

struct list {
	struct request *first, **end;
};

/* Memory that a peer and we share; the first two are written by the peer. */
struct shared {
	uint8_t ring[RING_BYTES];
	uint64_t emptied; /* our chunks that the peer has taken */
	uint8_t outgoing[RING_BYTES];
	uint64_t taken; /* the peer's chunks that we have taken, as we write it to the peer */
};

struct peer {
	struct mrc_qp *qp;
	struct ibv_mr *mr;
	struct shared *shared;
	struct hello hello;
	uint64_t posted, completed; /* chunks sent */
	uint64_t arrived, taken;    /* chunks received; taken from the ring */
	uint64_t emptied;           /* the highest `shared->emptied` seen */
	uint32_t qpn, lengths[SLOTS];
	bool credit_in_flight, is_failed;
	uint64_t credited;
	double heard_at;
	struct list sends, receives, unexpected;
	struct request *incoming; /* message whose chunks arrive now; NULL between messages */
};

struct messenger {
	struct ibv_context *device;
	struct mrc_context *context;
	struct ibv_pd *pd;
	struct mrc_cq *cq;
	struct peer *peers;
	struct list any; /* receives from any rank */
	int ranks, rank, requests;
	bool is_ending, has_thread;
	char text[NAME_BYTES];
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a request came or ended */
};

enum { WR_CHUNK = 1, WR_CREDIT, WR_RECEIVE };
enum { ANY_RANK = -1, KEPT = -2 }; /* in place of a request's rank */

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

static void append(struct list *list, struct request *request)
{
	request->next = NULL;
	if (!list->first)
		list->end = &list->first;
	*list->end = request;
	list->end = &request->next;
}

static void take_out(struct list *list, struct request *request)
{
	struct request **link = &list->first;

	while (*link && *link != request)
		link = &(*link)->next;
	if (!*link)
		return;
	*link = request->next;
	if (list->end == &request->next)
		list->end = link;
}

static void finish(struct messenger *m, struct request *request, int error)
{
	request->error = error;
	request->is_done = true;
	m->requests--;
	pthread_cond_broadcast(&m->changed);
}

static void free_kept(struct request *request)
{
	free(request->bytes);
	free(request);
}

static void finish_all(struct messenger *m, struct list *list, int error)
{
	while (list->first) {
		struct request *request = list->first;

		take_out(list, request);
		finish(m, request, error);
	}
}

static void fail_peer(struct messenger *m, struct peer *peer, int error)
{
	if (peer->is_failed)
		return;
	peer->is_failed = true;
	/* A message of the peer that is half here is a request's, or kept by us. */
	if (peer->incoming && peer->incoming->peer == KEPT)
		free_kept(peer->incoming);
	else if (peer->incoming)
		finish(m, peer->incoming, error);
	peer->incoming = NULL;
	finish_all(m, &peer->sends, error);
	finish_all(m, &peer->receives, error);
	finish_all(m, &m->any, error); /* the message may have been the lost rank's */
}

static int write_to(struct peer *peer, int kind, void *from, uint32_t length, uint64_t to, uint32_t immediate)
{
	struct ibv_sge element = {.addr = (uintptr_t)from, .length = length, .lkey = peer->mr->lkey};
	struct ibv_send_wr *bad, wr = {
		.wr_id = kind, .sg_list = &element, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
		.opcode = kind == WR_CHUNK ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
		.wr.rdma = {to, peer->hello.rkey},
	};

	if (kind == WR_CHUNK)
		wr.imm_data = immediate;
	return mrc_post_send(peer->qp, &wr, &bad);
}

static int post_receive(struct peer *peer)
{
	struct ibv_recv_wr *bad, wr = {.wr_id = WR_RECEIVE};

	return mrc_post_recv(peer->qp, &wr, &bad);
}

/* Send what fits of the peer's messages. */
static bool send_chunks(struct messenger *m, struct peer *peer)
{
	uint64_t emptied = __atomic_load_n(&peer->shared->emptied, __ATOMIC_ACQUIRE);
	bool has_moved = false;

	if (emptied > peer->emptied && emptied <= peer->posted)
		peer->emptied = emptied, peer->heard_at = now();
	while (peer->sends.first && peer->posted < peer->emptied + SLOTS && peer->posted < peer->completed + SLOTS) {
		struct request *request = peer->sends.first;
		uint8_t *slot = peer->shared->outgoing + peer->posted % SLOTS * SLOT_BYTES;
		size_t filled = 0, rest = request->length - request->moved;

		if (!request->has_header) {
			memcpy(slot, &(struct header){request->tag, request->length}, filled = sizeof(struct header));
			request->has_header = true;
		}
		size_t count = rest < SLOT_BYTES - filled ? rest : SLOT_BYTES - filled;
		if (count)
			memcpy(slot + filled, request->bytes + request->moved, count);
		uint32_t immediate = (uint32_t)(peer->posted << LENGTH_BITS) | (uint32_t)(filled + count);
		int error = write_to(peer, WR_CHUNK, slot, filled + count,
				     peer->hello.ring_address + peer->posted % SLOTS * SLOT_BYTES, immediate);
		if (error) {
			fail_peer(m, peer, error);
			return true;
		}
		request->moved += count;
		peer->posted++;
		has_moved = true;
		if (request->moved == request->length) {
			take_out(&peer->sends, request);
			finish(m, request, 0);
		}
	}
	return has_moved;
}

static struct request *waiting_for(struct list *list, uint64_t tag)
{
	struct request *request = list->first;

	while (request && request->tag != tag)
		request = request->next;
	if (request)
		take_out(list, request);
	return request;
}

/* Take out the request that a message of a peer is for; NULL when there is none yet. */
static struct request *request_for(struct messenger *m, struct peer *peer, uint64_t tag)
{
	struct request *request = waiting_for(&peer->receives, tag);

	if (!request)
		request = waiting_for(&m->any, tag);
	if (request)
		request->source = peer - m->peers;
	return request;
}

/* Give a request the message that was kept for it. */
static void hand_over(struct messenger *m, struct request *request, struct request *kept)
{
	if (request->length == kept->length && kept->length)
		memcpy(request->bytes, kept->bytes, kept->length);
	finish(m, request, request->length == kept->length ? 0 : EMSGSIZE);
	free_kept(kept);
}

/* Find the request that a message is for, or make one that keeps it until somebody asks. */
static struct request *begin_message(struct messenger *m, struct peer *peer, const struct header *header)
{
	struct request *request = request_for(m, peer, header->tag);

	if (request) {
		if (request->length == header->length)
			return request;
		finish(m, request, EMSGSIZE); /* and the message goes nowhere */
	}
	struct request *kept = calloc(1, sizeof *kept);

	if (!kept)
		return NULL;
	*kept = (struct request){.tag = header->tag, .length = header->length, .peer = KEPT};
	if (request || !header->length)
		return kept;
	kept->bytes = malloc(header->length);
	if (!kept->bytes) {
		free(kept);
		return NULL;
	}
	return kept;
}

static void end_message(struct messenger *m, struct peer *peer)
{
	struct request *request = peer->incoming;

	peer->incoming = NULL;
	if (request->peer != KEPT) {
		finish(m, request, 0);
		return;
	}
	if (!request->bytes && request->length) {
		free(request); /* nobody wants it: it has not the length that was asked for */
		return;
	}
	struct request *receive = request_for(m, peer, request->tag); /* it may have come meanwhile */
	if (receive)
		hand_over(m, receive, request);
	else
		append(&peer->unexpected, request);
}

/* Take the chunks that have come, and tell the peer of the slots. */
static bool take_chunks(struct messenger *m, struct peer *peer)
{
	bool has_moved = false;

	while (peer->taken < peer->arrived && !peer->is_failed) {
		const uint8_t *chunk = peer->shared->ring + peer->taken % SLOTS * SLOT_BYTES;
		size_t length = peer->lengths[peer->taken % SLOTS], skipped = 0;

		if (!peer->incoming) {
			struct header header;

			if (length < sizeof header) {
				fail_peer(m, peer, EPROTO);
				return true;
			}
			memcpy(&header, chunk, skipped = sizeof header);
			peer->incoming = begin_message(m, peer, &header);
			if (!peer->incoming) {
				fail_peer(m, peer, ENOMEM);
				return true;
			}
		}
		struct request *request = peer->incoming;
		size_t count = length - skipped;
		if (count > request->length - request->moved) {
			fail_peer(m, peer, EPROTO);
			return true;
		}
		if (request->bytes && count)
			memcpy(request->bytes + request->moved, chunk + skipped, count);
		request->moved += count;
		if (request->moved == request->length)
			end_message(m, peer);
		peer->taken++;
		has_moved = true;
		int error = post_receive(peer);
		if (error)
			fail_peer(m, peer, error);
	}
	double time = now();
	bool is_silent = (peer->receives.first || m->any.first || peer->sends.first || peer->incoming) &&
			 time > peer->heard_at + PROBE_S;
	if (!peer->is_failed && !peer->credit_in_flight && (peer->credited < peer->taken || is_silent)) {
		peer->shared->taken = peer->taken;
		int error = write_to(peer, WR_CREDIT, &peer->shared->taken, 8, peer->hello.emptied_address, 0);
		if (error)
			fail_peer(m, peer, error);
		peer->credit_in_flight = true;
		peer->credited = peer->taken;
		peer->heard_at = time;
	}
	return has_moved;
}

static struct peer *peer_of(struct messenger *m, uint32_t qpn)
{
	for (int i = 0; i < m->ranks; i++)
		if (m->peers[i].qp && m->peers[i].qpn == qpn)
			return &m->peers[i];
	return NULL;
}

static void on_completion(struct messenger *m, const struct ibv_wc *wc)
{
	struct peer *peer = peer_of(m, wc->qp_num);

	if (!peer || peer->is_failed)
		return;
	if (wc->status) {
		snprintf(m->text, sizeof m->text, "rank %d is lost: %s", (int)(peer - m->peers),
			 wc->status == IBV_WC_WR_FLUSH_ERR ? "it does not answer any more" : ibv_wc_status_str(wc->status));
		fail_peer(m, peer, ECONNRESET);
		return;
	}
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		uint32_t length = wc->imm_data & ((1u << LENGTH_BITS) - 1);

		if (wc->imm_data >> LENGTH_BITS != (uint32_t)(peer->arrived << LENGTH_BITS) >> LENGTH_BITS ||
		    length > SLOT_BYTES || peer->arrived - peer->taken >= SLOTS) {
			fail_peer(m, peer, EPROTO);
			return;
		}
		peer->lengths[peer->arrived++ % SLOTS] = length;
		peer->heard_at = now();
	} else if (wc->wr_id == WR_CREDIT) {
		peer->credit_in_flight = false;
	} else {
		peer->completed++;
	}
}

static bool has_writes(struct messenger *m)
{
	for (int i = 0; i < m->ranks; i++) {
		struct peer *peer = &m->peers[i];

		if (peer->qp && !peer->is_failed && (peer->completed < peer->posted || peer->credit_in_flight))
			return true;
	}
	return false;
}

static void *run(void *argument)
{
	struct messenger *m = argument;
	double flush_end = 0;

	pthread_mutex_lock(&m->lock);
	for (;;) {
		while (!m->requests && !m->is_ending && !has_writes(m))
			pthread_cond_wait(&m->changed, &m->lock);
		if (m->is_ending) {
			flush_end = flush_end ? flush_end : now() + FLUSH_S;
			if (!has_writes(m) || now() > flush_end)
				break;
		}
		pthread_mutex_unlock(&m->lock);
		struct ibv_wc wc[POLLED];
		int count = mrc_poll_cq(m->cq, POLLED, wc); /* sleeps for a moment when there is nothing */
		pthread_mutex_lock(&m->lock);
		for (int i = 0; i < count; i++)
			on_completion(m, &wc[i]);
		for (int i = 0; i < m->ranks; i++) {
			struct peer *peer = &m->peers[i];

			if (!peer->qp || peer->is_failed)
				continue;
			if (count < 0)
				fail_peer(m, peer, -count);
			else
				while ((take_chunks(m, peer) | send_chunks(m, peer)) && !peer->is_failed)
					;
		}
	}
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

/* ---- functions for Python ---- */

EXPORT void messenger_close(struct messenger *m);

/* Open the device of this host for a rank; NULL, with errno and the name of the call in `call`. */
EXPORT struct messenger *messenger_open(int ranks, int rank, const char **call)
{
	struct messenger *m = calloc(1, sizeof *m);
	struct ibv_device **devices = ibv_get_device_list(NULL);

	*call = "ibv_get_device_list";
	if (!m || !devices || !devices[0]) {
		free(m);
		errno = errno ? errno : ENODEV;
		return NULL;
	}
	m->ranks = ranks, m->rank = rank;
	pthread_mutex_init(&m->lock, NULL);
	pthread_condattr_t attributes;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&m->changed, &attributes);
	*call = "ibv_open_device";
	m->device = ibv_open_device(devices[0]);
	ibv_free_device_list(devices);
	if (m->device)
		*call = "mrc_create_context", m->context = mrc_create_context(m->device, NULL);
	if (m->context)
		*call = "ibv_alloc_pd", m->pd = ibv_alloc_pd(m->device);
	if (m->pd)
		*call = "mrc_create_cq", m->cq = mrc_create_cq(m->context, ranks * (3 * SLOTS + 2), NULL, NULL, 0);
	if (m->cq)
		m->peers = calloc(ranks, sizeof *m->peers);
	if (!m->peers) {
		int error = errno;

		messenger_close(m);
		errno = error;
		return NULL;
	}
	return m;
}

EXPORT int messenger_hello_bytes(void)
{
	return sizeof(struct hello);
}

/* Make the QP to a peer, and write what it has to know; 0 or an errno. */
EXPORT int messenger_hello(struct messenger *m, int rank, struct hello *ours)
{
	struct peer *peer = &m->peers[rank];

	peer->shared = mmap(NULL, sizeof *peer->shared, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (peer->shared == MAP_FAILED) {
		peer->shared = NULL;
		return errno;
	}
	peer->mr = ibv_reg_mr(m->pd, peer->shared, sizeof *peer->shared, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!peer->mr)
		return errno;
	peer->qp = mrc_create_qp(m->context, &(struct mrc_qp_init_attr){
		.send_cq = m->cq, .recv_cq = m->cq, .pd = m->pd, .cap = {SLOTS + 1, SLOTS, 1, 1, 0}});
	if (!peer->qp)
		return errno;
	*ours = (struct hello){.ring_address = (uintptr_t)peer->shared->ring, .rkey = peer->mr->rkey,
			       .emptied_address = (uintptr_t)&peer->shared->emptied};
	int error = mrc_get_qpn(peer->qp, &ours->qpn);
	peer->qpn = ours->qpn;
	return error ? error : ibv_query_gid(m->device, 1, 0, &ours->gid) ? EIO : 0;
}

/* Connect the QP to a peer that said hello; 0 or an errno. */
EXPORT int messenger_connect(struct messenger *m, int rank, const struct hello *theirs)
{
	struct peer *peer = &m->peers[rank];
	struct ibv_port_attr port;
	struct mrc_qp_attr no_mrc = {0};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	int error = ibv_query_port(m->device, 1, &port);

	if (!error)
		error = mrc_modify_qp(peer->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS, &no_mrc, 0);
	for (int i = 0; !error && i < SLOTS; i++)
		error = post_receive(peer);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .dest_qp_num = theirs->qpn};
	attr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh.dgid = theirs->gid};
	if (!error)
		error = mrc_modify_qp(peer->qp, &attr,
				      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, &no_mrc, 0);
	attr.qp_state = IBV_QPS_RTS;
	if (!error)
		error = mrc_modify_qp(peer->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN, &no_mrc, 0);
	peer->hello = *theirs;
	peer->heard_at = now();
	return error;
}

/* Begin to move messages, when all peers are connected at both ends. */
EXPORT int messenger_start(struct messenger *m)
{
	int error = pthread_create(&m->thread, NULL, run, m);

	m->has_thread = !error;
	return error;
}

static struct request *add(struct messenger *m, struct list *list, struct request values)
{
	struct request *request = malloc(sizeof *request);

	if (!request)
		return NULL;
	*request = values;
	m->requests++;
	append(list, request);
	pthread_cond_broadcast(&m->changed);
	return request;
}

/* Send bytes, which stay unchanged until the request is done; NULL without memory. */
EXPORT struct request *messenger_send(struct messenger *m, int rank, uint64_t tag, const void *bytes, size_t length)
{
	struct peer *peer = &m->peers[rank];

	pthread_mutex_lock(&m->lock);
	struct request *request =
		add(m, &peer->sends, (struct request){.tag = tag, .bytes = (uint8_t *)bytes, .length = length, .peer = rank});
	if (request && peer->is_failed)
		finish_all(m, &peer->sends, ECONNRESET);
	pthread_mutex_unlock(&m->lock);
	return request;
}

/* Receive the next message of a tag from a rank, or from any (-1); NULL without memory. */
EXPORT struct request *messenger_receive(struct messenger *m, int rank, uint64_t tag, void *bytes, size_t length)
{
	struct request *kept = NULL, values = {.tag = tag, .bytes = bytes, .length = length, .peer = rank};

	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < m->ranks && !kept; i++)
		if ((rank < 0 || rank == i) && (kept = waiting_for(&m->peers[i].unexpected, tag)))
			values.source = i;
	struct list *list = rank < 0 ? &m->any : &m->peers[rank].receives;
	struct request *request = add(m, list, values);
	if (request && kept) {
		take_out(list, request);
		hand_over(m, request, kept);
	} else if (request && rank >= 0 && m->peers[rank].is_failed) {
		finish_all(m, list, ECONNRESET);
	}
	pthread_mutex_unlock(&m->lock);
	return request;
}

/* Wait for a request and free it: 0, its errno, or ETIMEDOUT after some seconds. The source's rank goes to `source`. */
EXPORT int messenger_wait(struct messenger *m, struct request *request, double seconds, int *source)
{
	double end = now() + seconds;
	struct timespec until = {.tv_sec = (time_t)end, .tv_nsec = (long)((end - (time_t)end) * 1e9)};
	int error = 0;

	pthread_mutex_lock(&m->lock);
	while (!request->is_done && !error)
		error = pthread_cond_timedwait(&m->changed, &m->lock, &until);
	if (request->is_done) {
		error = request->error;
	} else {
		/* Nobody may touch the bytes from now on. A message cut in half ends the connection. */
		if (request->peer >= 0) {
			struct peer *peer = &m->peers[request->peer];

			if (request->moved || request->has_header)
				fail_peer(m, peer, ETIMEDOUT);
			take_out(&peer->sends, request);
			take_out(&peer->receives, request);
		}
		take_out(&m->any, request);
		for (int i = 0; i < m->ranks; i++)
			if (m->peers[i].incoming == request)
				fail_peer(m, &m->peers[i], ETIMEDOUT);
		if (!request->is_done)
			m->requests--;
		error = ETIMEDOUT;
	}
	if (source)
		*source = request->source;
	pthread_mutex_unlock(&m->lock);
	free(request);
	return error;
}

EXPORT bool messenger_is_done(struct messenger *m, struct request *request)
{
	pthread_mutex_lock(&m->lock);
	bool is_done = request->is_done;
	pthread_mutex_unlock(&m->lock);
	return is_done;
}

/* Words about the last rank that was lost; empty when none was. */
EXPORT const char *messenger_text(struct messenger *m)
{
	return m->text;
}

/* Give up all connections: what waits ends with ECANCELED. */
EXPORT void messenger_abort(struct messenger *m)
{
	pthread_mutex_lock(&m->lock);
	for (int i = 0; i < m->ranks; i++)
		fail_peer(m, &m->peers[i], ECANCELED);
	pthread_mutex_unlock(&m->lock);
}

/* End the thread when the last writes have arrived, and free everything. */
EXPORT void messenger_close(struct messenger *m)
{
	pthread_mutex_lock(&m->lock);
	m->is_ending = true;
	pthread_cond_broadcast(&m->changed);
	pthread_mutex_unlock(&m->lock);
	if (m->has_thread)
		pthread_join(m->thread, NULL);
	for (int i = 0; m->peers && i < m->ranks; i++) {
		struct peer *peer = &m->peers[i];

		finish_all(m, &peer->sends, ECANCELED);
		finish_all(m, &peer->receives, ECANCELED);
		if (peer->qp)
			mrc_destroy_qp(peer->qp);
		if (peer->mr)
			ibv_dereg_mr(peer->mr);
		if (peer->shared)
			munmap(peer->shared, sizeof *peer->shared);
		while (peer->unexpected.first) {
			struct request *kept = peer->unexpected.first;

			take_out(&peer->unexpected, kept);
			free_kept(kept);
		}
	}
	if (m->cq)
		mrc_destroy_cq(m->cq);
	if (m->pd)
		ibv_dealloc_pd(m->pd);
	if (m->context)
		mrc_destroy_context(m->context);
	if (m->device)
		ibv_close_device(m->device);
	free(m->peers);
	free(m);
}
