/* Parts of the library that programs load. What each file has stands at its top. */
#ifndef LIBMRC_H
#define LIBMRC_H

#include <stdbool.h>

#include "without-libibverbs/infiniband/verbs.h"
#include "nicd.h"

#define EXPORT __attribute__((visibility("default")))
#define SOCKET_VARIABLE "MRC_NIC_SOCKET" /* path of the NIC process's socket, as `mrc exec` sets it */
#define START_VARIABLE "MRC_NIC_START"   /* command of the shell that starts the NIC process */

/* A request to the NIC process, and its reply in place of it. */
struct call {
	uint32_t count;
	uint32_t fd_count;
	uint64_t values[NICD_MAX_VALUES];
	int fds[4];
};

struct queue_pair;

/* An open device. `mutex` of each part is held for as long as it is read or written. */
struct context {
	struct verbs_context verbs;
	int socket;
	int doorbell;
	int pages;
	bool is_dead;                       /* the NIC process ended, or this is a child of fork() */
	pthread_mutex_t call_mutex;
	pthread_mutex_t ring_mutex;
	uint8_t *ring;
	uint64_t tail;
	uint32_t planes;
	pthread_mutex_t objects_mutex;
	bool has_told_end;                  /* the program had DEVICE_FATAL */
	struct queue_pair **qps;            /* by the low 16 bits of their numbers */
	struct completion_queue *cqs;
	struct context *next;
};

struct channel {
	struct ibv_comp_channel ibv;
	uint32_t number;
};

struct completion_queue {
	struct ibv_cq ibv;
	uint8_t *ring;
	size_t ring_bytes;
	uint64_t slots;
	uint64_t head;
	uint32_t idle_polls;
	uint32_t events_sent;               /* completion events that the program was given */
	uint32_t async_events_sent;
	pthread_mutex_t poll_mutex;
	bool has_ev_events;                 /* in place of completions */
	struct mrc_cq *face;                /* the program's, where it has one */
	struct completion_queue *next;
};

/* One direction's requests. They are over when their completion, or a later one's, was polled. */
struct work_queue {
	uint64_t posted;
	uint64_t retired;
	uint32_t limit;
	uint32_t sge_limit;
};

struct queue_pair {
	struct ibv_qp ibv;
	struct work_queue send, recv;
	uint64_t cqe_after[2];              /* send, recv: completions before belong to an earlier life of the QP */
	uint32_t inline_limit;
	uint32_t async_events_sent;
	uint32_t max_wimm, wimm_in_flight;
	uint8_t *is_wimm;                   /* by the number of the request modulo `send.limit` */
	bool sq_sig_all;
	struct mrc_qp *face;                /* the program's, where it has one */
};

static inline struct context *context_of(struct ibv_context *context)
{
	return (struct context *)((char *)context - offsetof(struct verbs_context, context));
}

/* connection.c */
int nic_call(struct context *context, uint32_t operation, struct call *call);
int nic_request(struct context *context, uint32_t operation, uint32_t count, const uint64_t *values);
void nic_has_ended(struct context *context);
void nic_check_alive(struct context *context);
void explain(const char *format, ...) __attribute__((format(printf, 1, 2)));
struct ibv_device **device_list(int *count);
struct context *open_context(struct ibv_device *device);
int close_context(struct context *context);

/* pages.c */
int make_pages(void);
int share_pages(struct context *context, uint64_t address, uint64_t length);
void unshare_in_child(int pages);

/* queues.c. `take` copies the entry number `at` of a ring to element `index` of `out`; false passes over it. */
typedef bool take_entry(struct context *context, const void *entry, uint64_t at, void *out, int index);
struct completion_queue *make_cq(struct context *context, uint32_t operation, int entries, void *cq_context,
				 struct ibv_comp_channel *channel);
int destroy_cq(struct completion_queue *cq);
int poll_entries(struct completion_queue *cq, int count, take_entry *take, void *out);
int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *completions);
int arm_cq(struct ibv_cq *cq, int solicited_only);
struct queue_pair *make_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init);
int destroy_qp(struct queue_pair *qp);
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int modify_qp(struct queue_pair *qp, uint64_t mask, uint64_t mrc_mask, const uint64_t values[NICD_QP_VALUES]);
int query_qp(struct queue_pair *qp, uint64_t values[NICD_QP_VALUES]);

/* ibverbs.c */
struct ibv_cq *create_cq(struct ibv_context *context, uint32_t operation, int entries, void *cq_context,
			 struct ibv_comp_channel *channel, int vector);
void fill_values(const struct ibv_qp_attr *attr, int mask, uint64_t values[NICD_QP_VALUES]);
void take_values(const struct queue_pair *qp, const uint64_t values[NICD_QP_VALUES], struct ibv_qp_attr *attr);

#endif
