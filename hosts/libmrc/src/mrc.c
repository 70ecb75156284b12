/* The functions of mrc.h, over the objects that ibverbs.c has. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libmrc.h"
#include "mrc_objects.h"

#define WRITE_OPERATIONS 3 /* RDMA_WRITE, RDMA_WRITE_WITH_IMM: bits of ibv_qp_create_send_ops_flags */

/* ---- devices and contexts ---- */

static int query_device(struct ibv_context *context, struct mrc_device_attr *attr, int *supported)
{
	struct call call = {0};
	int result = nic_call(context_of(context), NICD_OP_QUERY_DEVICE, &call);

	if (result || call.count != NICD_DEVICE_VALUES)
		return result ? result : EPROTO;
	*attr = (struct mrc_device_attr){
		.mrc_protocol_version = call.values[NICD_DEVICE_PROTOCOLS], .cap = call.values[NICD_DEVICE_CAP],
		.wimm_attr = {call.values[NICD_DEVICE_MAX_WIMM], call.values[NICD_DEVICE_MAX_WIMM_DEST]},
		.mpr_attr = {call.values[NICD_DEVICE_MAX_MPR], call.values[NICD_DEVICE_MPR_RESOLUTION]},
		.qp_attr = {call.values[NICD_DEVICE_MAX_QP_HINT]}};
	*supported = 1;
	return 0;
}

EXPORT int mrc_query_device(struct ibv_context *context, struct mrc_device_attr *attr, int *supported)
{
	return as_minus_one(query_device(context, attr, supported));
}

EXPORT int mrc_query_device_ex(struct ibv_context *context, struct mrc_context *mcontext, struct mrc_device_attr *attr,
			       int *supported)
{
	return as_minus_one(mcontext && mcontext->ibv != context ? EINVAL : query_device(context, attr, supported));
}

EXPORT void mrc_query_version(uint32_t *current, uint32_t *last_supported, uint32_t *vendor,
			      uint32_t *last_supported_vendor)
{
	*current = MRC_API_CURRENT_VERSION;
	*last_supported = MRC_API_LAST_SUPPORTED_VERSION;
	*vendor = MRC_VENDOR_API_CURRENT_VERSION;
	*last_supported_vendor = MRC_VENDOR_API_LAST_SUPPORTED_VERSION;
}

EXPORT struct mrc_context *mrc_create_context(struct ibv_context *ibv, struct mrc_context_attr *attr)
{
	uint32_t version = attr ? attr->mrc_api_version_used : 0;
	struct mrc_context *context = NULL;

	if (version > MRC_API_CURRENT_VERSION && version != UINT32_MAX /* LATEST */) {
		explain("libmrc: the program uses version 0x%x of mrc.h; this library has 0x%x", version,
			MRC_API_CURRENT_VERSION);
		errno = EINVAL;
	} else {
		context = calloc(1, sizeof *context);
	}
	if (context)
		*context = (struct mrc_context){.ibv = ibv, .version = version ? version : MRC_API_CURRENT_VERSION};
	return context;
}

EXPORT int mrc_destroy_context(struct mrc_context *context)
{
	if (__atomic_load_n(&context->users, __ATOMIC_SEQ_CST))
		return as_minus_one(EBUSY);
	free(context);
	return 0;
}

/* ---- completions ---- */

EXPORT int mrc_create_comp_channel(struct mrc_context *context, struct mrc_comp_channel **channel)
{
	struct ibv_comp_channel *ibv = ibv_create_comp_channel(context->ibv);
	struct mrc_comp_channel *made = ibv ? calloc(1, sizeof *made) : NULL;

	if (!made) {
		int result = errno;
		if (ibv)
			ibv_destroy_comp_channel(ibv);
		return as_errno(result);
	}
	made->ibv = ibv;
	*channel = made;
	return 0;
}

EXPORT int mrc_get_comp_channel_fd(struct mrc_comp_channel *channel, int *fd)
{
	*fd = channel->ibv->fd;
	return 0;
}

EXPORT int mrc_destroy_comp_channel(struct mrc_comp_channel *channel)
{
	int result = ibv_destroy_comp_channel(channel->ibv);

	if (!result)
		free(channel);
	return as_errno(result);
}

/* Return the program's queue over one of libibverbs', which is destroyed where that fails; NULL for NULL. */
struct mrc_cq *face_of_cq(struct mrc_context *context, struct ibv_cq *ibv)
{
	struct mrc_cq *cq = ibv ? calloc(1, sizeof *cq) : NULL;

	if (ibv && !cq)
		ibv_destroy_cq(ibv);
	if (!cq)
		return NULL;
	cq->ibv = ibv;
	cq->context = context;
	((struct completion_queue *)ibv)->face = cq;
	__atomic_add_fetch(&context->users, 1, __ATOMIC_SEQ_CST);
	return cq;
}

EXPORT struct mrc_cq *mrc_create_cq(struct mrc_context *context, int cqe, void *cq_context,
				    struct mrc_comp_channel *channel, int comp_vector)
{
	return face_of_cq(context, ibv_create_cq(context->ibv, cqe, cq_context, channel ? channel->ibv : NULL, comp_vector));
}

EXPORT int mrc_poll_cq(struct mrc_cq *cq, int count, struct ibv_wc *completions)
{
	return poll_cq(cq->ibv, count, completions);
}

EXPORT int mrc_req_notify_cq(struct mrc_cq *cq, int solicited_only)
{
	return as_errno(arm_cq(cq->ibv, solicited_only));
}

EXPORT int mrc_get_cq_event(struct mrc_comp_channel *channel, struct mrc_cq **cq, void **cq_context)
{
	struct ibv_cq *ibv;

	if (ibv_get_cq_event(channel->ibv, &ibv, cq_context))
		return -1;
	*cq = ((struct completion_queue *)ibv)->face;
	return 0;
}

EXPORT void mrc_ack_cq_events(struct mrc_cq *cq, unsigned int count)
{
	ibv_ack_cq_events(cq->ibv, count);
}

EXPORT int mrc_destroy_cq(struct mrc_cq *cq)
{
	int result = ibv_destroy_cq(cq->ibv);

	if (!result) {
		__atomic_sub_fetch(&cq->context->users, 1, __ATOMIC_SEQ_CST);
		free(cq);
	}
	return as_errno(result);
}

/* ---- hints: kept and given back, for this device sizes nothing by them ---- */

static void copy_hint(struct mrc_qp_hint_attr *to, const struct mrc_qp_hint_attr *from, int mask)
{
	if (mask & MRC_QP_HINT_NUM_QPS_PER_PEER)
		to->num_qps_per_peer = from->num_qps_per_peer;
	if (mask & MRC_QP_HINT_NUM_SEND_PEERS)
		to->num_send_peers = from->num_send_peers;
	if (mask & MRC_QP_HINT_NUM_REMOTE_RECV_PEERS)
		to->num_remote_recv_peers = from->num_remote_recv_peers;
	if (mask & MRC_QP_HINT_VENDOR_CFG)
		memcpy(to->vendor_cfg, from->vendor_cfg, sizeof to->vendor_cfg);
}

static bool is_hint(const struct mrc_qp_hint_attr *attr)
{
	return attr->num_qps_per_peer >= 0 && attr->num_send_peers >= 0 && attr->num_remote_recv_peers >= 0;
}

EXPORT struct mrc_qp_hint *mrc_create_qp_hint(struct mrc_context *context, struct mrc_qp_hint_init_attr *init)
{
	struct mrc_qp_hint *hint = is_hint(&init->attr) ? calloc(1, sizeof *hint) : NULL;

	if (!hint) {
		errno = is_hint(&init->attr) ? ENOMEM : EINVAL;
		return NULL;
	}
	*hint = (struct mrc_qp_hint){.context = context, .attr = init->attr};
	__atomic_add_fetch(&context->users, 1, __ATOMIC_SEQ_CST);
	return hint;
}

EXPORT int mrc_query_qp_hint(struct mrc_qp_hint *hint, struct mrc_qp_hint_attr *attr, int mask)
{
	copy_hint(attr, &hint->attr, mask);
	return 0;
}

EXPORT int mrc_modify_qp_hint(struct mrc_qp_hint *hint, struct mrc_qp_hint_attr *attr, int mask)
{
	struct mrc_qp_hint_attr changed = hint->attr;

	copy_hint(&changed, attr, mask);
	if (!is_hint(&changed))
		return as_minus_one(EINVAL);
	hint->attr = changed;
	return 0;
}

EXPORT int mrc_destroy_qp_hint(struct mrc_qp_hint *hint)
{
	if (__atomic_load_n(&hint->users, __ATOMIC_SEQ_CST))
		return as_minus_one(EBUSY);
	__atomic_sub_fetch(&hint->context->users, 1, __ATOMIC_SEQ_CST);
	free(hint);
	return 0;
}

/* ---- queue pairs ---- */

EXPORT struct mrc_qp *mrc_create_qp(struct mrc_context *context, struct mrc_qp_init_attr *init)
{
	struct ibv_qp_init_attr attr = {.qp_context = init->qp_context, .send_cq = init->send_cq ? init->send_cq->ibv : NULL,
					.recv_cq = init->recv_cq ? init->recv_cq->ibv : NULL, .cap = init->cap,
					.qp_type = IBV_QPT_RC, .sq_sig_all = init->sq_sig_all};

	if (init->send_ops_flags & ~(uint64_t)WRITE_OPERATIONS) {
		explain("libmrc: send_ops_flags 0x%llx: MRC has RDMA_WRITE and RDMA_WRITE_WITH_IMM alone",
			(unsigned long long)init->send_ops_flags);
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!init->pd || init->pd->context != context->ibv || init->protocol_version > MRC_PROTOCOL_VERSION_1) {
		errno = EINVAL;
		return NULL;
	}
	struct mrc_qp *qp = calloc(1, sizeof *qp);
	struct queue_pair *made = qp ? make_qp(init->pd, &attr) : NULL;
	if (!made) {
		free(qp);
		return NULL;
	}
	made->face = qp;
	*qp = (struct mrc_qp){.ibv = &made->ibv, .context = context, .init = *init};
	__atomic_add_fetch(&context->users, 1, __ATOMIC_SEQ_CST);
	return qp;
}

static void fill_mrc_values(const struct mrc_qp_attr *attr, uint64_t values[NICD_QP_VALUES])
{
	values[NICD_QP_MAX_WIMM] = attr->wimm.max_wimm;
	values[NICD_QP_MAX_WIMM_DEST] = attr->wimm.max_wimm_dest;
	values[NICD_QP_MPR] = attr->mpr.mpr;
	values[NICD_QP_MPR_DEST] = attr->mpr.mpr_dest;
	values[NICD_QP_TIMEOUT] = attr->timeout;
	values[NICD_QP_LINEAR_CNT] = attr->retry.linear_cnt;
	values[NICD_QP_EXP_CNT] = attr->retry.exp_cnt;
	values[NICD_QP_EV_PROFILE] = attr->profile.ev_profile_id;
	values[NICD_QP_CC_PROFILE] = attr->profile.cc_profile_id;
	values[NICD_QP_CAP] = attr->cap;
}

static void use_hint(struct mrc_qp *qp, struct mrc_qp_hint *hint)
{
	if (qp->hint)
		__atomic_sub_fetch(&qp->hint->users, 1, __ATOMIC_SEQ_CST);
	if (hint)
		__atomic_add_fetch(&hint->users, 1, __ATOMIC_SEQ_CST);
	qp->hint = hint;
}

EXPORT int mrc_modify_qp(struct mrc_qp *qp, struct ibv_qp_attr *attr, int mask, struct mrc_qp_attr *mrc_attr,
			 int mrc_mask)
{
	static const struct mrc_qp_attr no_attr;
	static const struct ibv_qp_attr no_ibv_attr;
	uint64_t values[NICD_QP_VALUES] = {0};

	if ((mask && !attr) || (mrc_mask && !mrc_attr))
		return as_errno(EINVAL);
	fill_values(attr ? attr : &no_ibv_attr, mask, values);
	fill_mrc_values(mrc_attr ? mrc_attr : &no_attr, values);
	int of_library = MRC_QP_HINT | MRC_QP_VENDOR_CFG;
	int result = modify_qp((struct queue_pair *)qp->ibv, (unsigned)mask, (unsigned)(mrc_mask & ~of_library), values);
	if (result)
		return as_errno(result);
	if (mrc_mask & MRC_QP_HINT)
		use_hint(qp, mrc_attr->qp_hint);
	if (mrc_mask & MRC_QP_VENDOR_CFG)
		memcpy(qp->vendor_cfg, mrc_attr->vendor_cfg, sizeof qp->vendor_cfg);
	return 0;
}

EXPORT int mrc_query_qp(struct mrc_qp *qp, struct ibv_qp_attr *attr, int mask, struct mrc_qp_attr *mrc_attr,
			int mrc_mask, struct mrc_qp_init_attr *init)
{
	uint64_t values[NICD_QP_VALUES];
	int result = query_qp((struct queue_pair *)qp->ibv, values);

	(void)mask;
	(void)mrc_mask;
	if (result)
		return as_errno(result);
	if (attr)
		take_values((struct queue_pair *)qp->ibv, values, attr);
	if (mrc_attr) {
		*mrc_attr = (struct mrc_qp_attr){
			.mpr = {values[NICD_QP_MPR], values[NICD_QP_MPR_DEST]},
			.wimm = {values[NICD_QP_MAX_WIMM], values[NICD_QP_MAX_WIMM_DEST]}, .timeout = values[NICD_QP_TIMEOUT],
			.profile = {values[NICD_QP_EV_PROFILE], values[NICD_QP_CC_PROFILE]},
			.retry = {values[NICD_QP_LINEAR_CNT], values[NICD_QP_EXP_CNT]}, .qp_hint = qp->hint,
			.cap = values[NICD_QP_CAP]};
		memcpy(mrc_attr->vendor_cfg, qp->vendor_cfg, sizeof qp->vendor_cfg);
	}
	if (init)
		*init = qp->init;
	return 0;
}

EXPORT int mrc_get_qpn(struct mrc_qp *qp, uint32_t *qpn)
{
	*qpn = qp->ibv->qp_num;
	return 0;
}

EXPORT int mrc_post_send(struct mrc_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	return as_errno(post_send(qp->ibv, wr, bad_wr));
}

EXPORT int mrc_post_recv(struct mrc_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	return as_errno(post_recv(qp->ibv, wr, bad_wr));
}

EXPORT int mrc_destroy_qp(struct mrc_qp *qp)
{
	int result = destroy_qp((struct queue_pair *)qp->ibv);

	if (!result) {
		use_hint(qp, NULL);
		__atomic_sub_fetch(&qp->context->users, 1, __ATOMIC_SEQ_CST);
		free(qp);
	}
	return as_errno(result);
}

/* ---- asynchronous events ---- */

EXPORT int mrc_get_async_event(struct mrc_context *context, struct mrc_async_event *event)
{
	struct ibv_async_event ibv;

	if (ibv_get_async_event(context->ibv, &ibv))
		return -1;
	event->event_type = ibv.event_type;
	if (ibv.event_type == IBV_EVENT_CQ_ERR)
		event->element.cq = ((struct completion_queue *)ibv.element.cq)->face;
	else if (ibv.event_type == IBV_EVENT_QP_FATAL)
		event->element.qp = ((struct queue_pair *)ibv.element.qp)->face;
	else
		event->element.port_num = ibv.element.port_num;
	return 0;
}

EXPORT void mrc_ack_async_event(struct mrc_async_event *event)
{
	struct ibv_async_event ibv = {.event_type = event->event_type};

	if (event->event_type == IBV_EVENT_CQ_ERR)
		ibv.element.cq = event->element.cq->ibv;
	else if (event->event_type == IBV_EVENT_QP_FATAL)
		ibv.element.qp = event->element.qp->ibv;
	ibv_ack_async_event(&ibv);
}
