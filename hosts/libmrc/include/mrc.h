/* MRC for programs: queue pairs, completion queues and their attributes, ABI 1.0.1.
 *
 * Devices, protection domains, memory regions and GIDs are those of libibverbs. Link with -lmrc, or run the program by
 * `mrc exec HOST -- PROGRAM`, which loads the library. Functions return 0, or -1 and errno; those that mirror a
 * function of libibverbs which returns an errno return that errno, and set errno too.
 */
#ifndef MRC_H
#define MRC_H

#include <stdint.h>

#include "mrc_api_ver.h"
#ifdef LIBMRC_BUILD
#include "ibverbs_abi.h"
#else
#include <infiniband/verbs.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define MRC_MAX_VENDOR_CFG_SIZE 128

struct mrc_context;
struct mrc_cq;
struct mrc_comp_channel;
struct mrc_qp;
struct mrc_qp_hint;

/* Version of the protocol on the wire. */
enum mrc_protocol_version {
	MRC_PROTOCOL_VERSION_0 = 0, /* the device's choice */
	MRC_PROTOCOL_VERSION_1 = 1,
};

enum mrc_device_cap {
	MRC_DEVICE_CAP_TRIM_NACK = 1 << 0,
	MRC_DEVICE_CAP_DYNAMIC_MPR = 1 << 1,
	MRC_DEVICE_CAP_SVC_TIME = 1 << 2,
};

struct mrc_device_attr {
	uint32_t mrc_protocol_version; /* bitmap: bit n - 1 is version n */
	struct {
		uint16_t max_wimm;
		uint16_t max_wimm_dest;
	} wimm_attr;
	struct {
		uint8_t max_mpr;        /* in units of 128 packets, as all MPRs */
		uint8_t mpr_resolution;
	} mpr_attr;
	struct {
		uint32_t max_qp_hint;
	} qp_attr;
	uint32_t cap; /* enum mrc_device_cap */
};

struct mrc_context_attr {
	uint32_t mrc_api_version_used; /* MRC_API_VER_USED */
	uint32_t mrc_vendor_api_version_used;
};

enum mrc_qp_hint_attr_mask {
	MRC_QP_HINT_NUM_QPS_PER_PEER = 1 << 0,
	MRC_QP_HINT_NUM_SEND_PEERS = 1 << 1,
	MRC_QP_HINT_NUM_REMOTE_RECV_PEERS = 1 << 2,
	MRC_QP_HINT_VENDOR_CFG = 1 << 31,
};

struct mrc_qp_hint_attr {
	int num_qps_per_peer;
	int num_send_peers;
	int num_remote_recv_peers;
	uint8_t vendor_cfg[MRC_MAX_VENDOR_CFG_SIZE];
};

struct mrc_qp_hint_init_attr {
	struct mrc_qp_hint_attr attr;
};

struct mrc_qp_init_attr {
	void *qp_context;
	struct mrc_cq *send_cq;
	struct mrc_cq *recv_cq;
	struct ibv_qp_cap cap;
	int sq_sig_all;
	struct ibv_pd *pd;
	uint64_t send_ops_flags; /* enum ibv_qp_create_send_ops_flags: writes, with immediate or without; 0: both */
	enum mrc_protocol_version protocol_version;
};

enum mrc_qp_attr_mask {
	MRC_QP_MAX_WIMM = 1 << 0,
	MRC_QP_MAX_WIMM_DEST = 1 << 1,
	MRC_QP_MPR = 1 << 2,
	MRC_QP_MPR_DEST = 1 << 3,
	MRC_QP_TIMEOUT = 1 << 4,
	MRC_QP_EV_PROFILE_ID = 1 << 5,
	MRC_QP_CC_PROFILE_ID = 1 << 6,
	MRC_QP_HINT = 1 << 7,
	MRC_QP_RETRY_CNT = 1 << 8,
	MRC_QP_CAP = 1 << 9,
	MRC_QP_VENDOR_CFG = 1 << 31,
};

enum mrc_qp_cap {
	MRC_QP_CAP_TRIM_NACK_DEST_UNSUPPORTED = 1 << 0,
	MRC_QP_CAP_DYNAMIC_MPR = 1 << 1,
	MRC_QP_CAP_SVC_TIME_DEST_UNSUPPORTED = 1 << 2,
};

struct mrc_qp_attr {
	struct {
		uint8_t mpr;      /* as requestor */
		uint8_t mpr_dest; /* as responder */
	} mpr;
	struct {
		uint16_t max_wimm;
		uint16_t max_wimm_dest;
	} wimm;
	uint8_t timeout; /* 1.024 us x 2^timeout, 1 to 24 */
	struct {
		uint64_t ev_profile_id;
		uint64_t cc_profile_id;
	} profile;
	struct {
		uint8_t linear_cnt; /* 0 to 7 */
		uint8_t exp_cnt;    /* 0 to 25, which is for ever */
	} retry;
	struct mrc_qp_hint *qp_hint; /* NULL: none */
	uint32_t cap;                /* enum mrc_qp_cap */
	uint8_t vendor_cfg[MRC_MAX_VENDOR_CFG_SIZE];
};

struct mrc_async_event {
	union {
		struct mrc_cq *cq;
		struct mrc_qp *qp;
		int port_num;
	} element;
	enum ibv_event_type event_type;
};

/* Devices and contexts. A version is MAJOR << 24 | MINOR << 16 | SUBMINOR. */
#if MRC_API_VER_USED >= MRC_API_VER(1, 0, 1)
int mrc_query_device_ex(struct ibv_context *context, struct mrc_context *mcontext, struct mrc_device_attr *attr,
			int *supported);
#endif
int mrc_query_device(struct ibv_context *context, struct mrc_device_attr *attr, int *supported);
void mrc_query_version(uint32_t *current, uint32_t *last_supported, uint32_t *vendor, uint32_t *last_supported_vendor);
struct mrc_context *mrc_create_context(struct ibv_context *context, struct mrc_context_attr *attr);
int mrc_destroy_context(struct mrc_context *context);

/* Completions. */
int mrc_create_comp_channel(struct mrc_context *context, struct mrc_comp_channel **channel);
int mrc_get_comp_channel_fd(struct mrc_comp_channel *channel, int *fd);
int mrc_destroy_comp_channel(struct mrc_comp_channel *channel);
struct mrc_cq *mrc_create_cq(struct mrc_context *context, int cqe, void *cq_context, struct mrc_comp_channel *channel,
			     int comp_vector);
int mrc_poll_cq(struct mrc_cq *cq, int num_entries, struct ibv_wc *wc);
int mrc_req_notify_cq(struct mrc_cq *cq, int solicited_only);
int mrc_get_cq_event(struct mrc_comp_channel *channel, struct mrc_cq **cq, void **cq_context);
void mrc_ack_cq_events(struct mrc_cq *cq, unsigned int nevents);
int mrc_destroy_cq(struct mrc_cq *cq);

/* Queue pairs. */
struct mrc_qp_hint *mrc_create_qp_hint(struct mrc_context *context, struct mrc_qp_hint_init_attr *init);
int mrc_query_qp_hint(struct mrc_qp_hint *hint, struct mrc_qp_hint_attr *attr, int mask);
int mrc_modify_qp_hint(struct mrc_qp_hint *hint, struct mrc_qp_hint_attr *attr, int mask);
int mrc_destroy_qp_hint(struct mrc_qp_hint *hint);
struct mrc_qp *mrc_create_qp(struct mrc_context *context, struct mrc_qp_init_attr *init);
int mrc_modify_qp(struct mrc_qp *qp, struct ibv_qp_attr *attr, int attr_mask, struct mrc_qp_attr *mrc_attr,
		  int mrc_attr_mask);
int mrc_query_qp(struct mrc_qp *qp, struct ibv_qp_attr *attr, int attr_mask, struct mrc_qp_attr *mrc_attr,
		 int mrc_attr_mask, struct mrc_qp_init_attr *init);
int mrc_get_qpn(struct mrc_qp *qp, uint32_t *qpn);
int mrc_post_send(struct mrc_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int mrc_post_recv(struct mrc_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int mrc_destroy_qp(struct mrc_qp *qp);

int mrc_get_async_event(struct mrc_context *context, struct mrc_async_event *event);
void mrc_ack_async_event(struct mrc_async_event *event);

#ifdef __cplusplus
}
#endif

#endif
