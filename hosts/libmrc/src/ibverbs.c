/* The functions of libibverbs, for programs that are linked to it and loaded with this library before it.
 *
 * All functions that take a context or a part of one are here, those that MRC cannot have as refusals: with a context
 * of ours, the library's own would read memory that is not there.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libmrc.h"

#define MAX_REGION_BYTES (1ull << 40)
#define FULL_PKEY 0xffff
#define GIDS 4 /* of a port, all the same: programs ask for number 0, 1 or 3 unless told otherwise */

static int with_errno(int result)
{
	if (result)
		errno = result;
	return result ? -1 : 0;
}

/* ---- devices ---- */

EXPORT struct ibv_device **ibv_get_device_list(int *count)
{
	return device_list(count);
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	(void)device;
	return 0;
}

EXPORT uint64_t ibv_get_device_guid(struct ibv_device *device)
{
	struct context *context = open_context(device);
	struct call call = {0};
	uint64_t guid = 0;

	if (!context)
		return 0;
	if (!nic_call(context, NICD_OP_QUERY_DEVICE, &call) && call.count == NICD_DEVICE_VALUES)
		guid = htobe64(call.values[NICD_DEVICE_GUID]);
	close_context(context);
	return guid;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct context *context = open_context(device);

	return context ? &context->verbs.context : NULL;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	return close_context(context_of(context));
}

EXPORT int ibv_fork_init(void)
{
	return 0; /* children of fork() have copies of registered pages in any case */
}

EXPORT int ibv_is_fork_initialized(void)
{
	return 1; /* IBV_FORK_ENABLED */
}

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct call call = {0};
	int result = nic_call(context_of(context), NICD_OP_QUERY_DEVICE, &call);

	if (result || call.count != NICD_DEVICE_VALUES)
		return result ? result : EPROTO;
	const uint64_t *values = call.values;
	*attr = (struct ibv_device_attr){
		.fw_ver = "mrc-testbed", .node_guid = htobe64(values[NICD_DEVICE_GUID]),
		.sys_image_guid = htobe64(values[NICD_DEVICE_GUID]), .max_mr_size = MAX_REGION_BYTES,
		.page_size_cap = ~0xfffull, .max_qp = values[NICD_DEVICE_MAX_QP], .max_qp_wr = values[NICD_DEVICE_MAX_QP_WR],
		.max_sge = values[NICD_DEVICE_MAX_SGE], .max_cq = values[NICD_DEVICE_MAX_CQ], .max_cqe = values[NICD_DEVICE_MAX_CQE],
		.max_mr = values[NICD_DEVICE_MAX_MR], .max_pd = values[NICD_DEVICE_MAX_PD], .atomic_cap = IBV_ATOMIC_NONE, .max_pkeys = 1,
		.phys_port_cnt = values[NICD_DEVICE_PORTS]};
	return 0;
}

static uint32_t mtu_number(uint64_t bytes)
{
	uint32_t number = 1;

	while (number < 5 && (256ull << number) <= bytes)
		number++;
	return number;
}

EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	struct call call = {.count = 1, .values = {port}};
	int result = nic_call(context_of(context), NICD_OP_QUERY_PORT, &call);

	if (result || call.count != 4)
		return result ? result : EPROTO;
	const struct ibv_port_attr values = {
		.state = call.values[0], .max_mtu = mtu_number(call.values[1]), .active_mtu = mtu_number(call.values[1]),
		.gid_tbl_len = GIDS, .max_msg_sz = 1u << 31, .pkey_tbl_len = 1, .max_vl_num = 1, .active_width = 2,
		.active_speed = 32, .phys_state = call.values[0] == IBV_PORT_ACTIVE ? 5 : 3,
		.link_layer = IBV_LINK_LAYER_ETHERNET};
	memcpy(attr, &values, offsetof(struct ibv_port_attr, port_cap_flags2));
	return 0;
}

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	struct call call = {.count = 1, .values = {port}};
	int result = index < 0 || index >= GIDS ? EINVAL : nic_call(context_of(context), NICD_OP_QUERY_PORT, &call);

	if (!result && call.count != 4)
		result = EPROTO;
	if (!result) {
		gid->global.subnet_prefix = htobe64(call.values[2]);
		gid->global.interface_id = htobe64(call.values[3]);
	}
	return with_errno(result);
}

EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, uint32_t *type)
{
	union ibv_gid gid;

	if (ibv_query_gid(context, port, index, &gid))
		return -1;
	*type = 1; /* RoCE v2, in the numbers of this older function */
	return 0;
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
			     uint32_t flags, size_t entry_size)
{
	struct ibv_gid_entry copy = {.gid_index = index, .port_num = port, .gid_type = IBV_GID_TYPE_ROCE_V2};

	if (flags || port > 255)
		return EINVAL;
	if (ibv_query_gid(context, port, index, &copy.gid))
		return errno;
	memcpy(entry, &copy, entry_size < sizeof copy ? entry_size : sizeof copy);
	return 0;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
				    uint32_t flags, size_t entry_size)
{
	ssize_t count = 0;

	for (uint32_t port = 1; port <= context_of(context)->planes && (size_t)count < max; port++, count++) {
		int result = _ibv_query_gid_ex(context, port, 0, (void *)((char *)entries + count * entry_size), flags, entry_size);
		if (result)
			return -result;
	}
	return count;
}

EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, uint16_t *pkey)
{
	(void)context;
	(void)port;
	*pkey = FULL_PKEY;
	return index ? with_errno(EINVAL) : 0;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, uint16_t pkey)
{
	(void)context;
	(void)port;
	return pkey == htobe16(FULL_PKEY) ? 0 : with_errno(EINVAL);
}

/* ---- protection domains and memory ---- */

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct call call = {0};
	struct ibv_pd *pd = calloc(1, sizeof *pd);
	int result = pd ? nic_call(context_of(context), NICD_OP_ALLOC_PD, &call) : ENOMEM;

	if (result) {
		free(pd);
		errno = result;
		return NULL;
	}
	*pd = (struct ibv_pd){.context = context, .handle = call.values[0]};
	return pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct context *context = context_of(pd->context);
	const uint64_t number = pd->handle;
	int result = nic_request(context, NICD_OP_DEALLOC_PD, 1, &number);

	if (result && !context->is_dead)
		return result;
	free(pd);
	return 0;
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	struct context *context = context_of(pd->context);
	struct call call = {.count = 5, .values = {pd->handle, (uintptr_t)addr, length, iova, access}};
	struct ibv_mr *mr = calloc(1, sizeof *mr);
	int result = mr ? share_pages(context, (uintptr_t)addr, length) : ENOMEM;

	if (!result)
		result = nic_call(context, NICD_OP_REG_MR, &call);
	if (result) {
		free(mr);
		errno = result;
		return NULL;
	}
	*mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = length, .handle = call.values[0],
			      .lkey = call.values[0], .rkey = call.values[0]};
	return mr;
}

#undef ibv_reg_mr
EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, access);
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct context *context = context_of(mr->context);
	const uint64_t key = mr->lkey;
	int result = nic_request(context, NICD_OP_DEREG_MR, 1, &key);

	if (result && !context->is_dead)
		return result;
	free(mr);
	return 0;
}

/* ---- completion channels and queues ---- */

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct call call = {0};
	struct channel *channel = calloc(1, sizeof *channel);
	int result = channel ? nic_call(context_of(context), NICD_OP_CREATE_CHANNEL, &call) : ENOMEM;

	if (!result && (call.count != 1 || call.fd_count != 1))
		result = EPROTO;
	if (result) {
		if (result == EMFILE && call.count == 1)
			nic_request(context_of(context), NICD_OP_DESTROY_CHANNEL, 1, call.values);
		free(channel);
		errno = result;
		return NULL;
	}
	channel->ibv = (struct ibv_comp_channel){.context = context, .fd = call.fds[0]};
	channel->number = call.values[0];
	return &channel->ibv;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	struct context *context = context_of(ibv->context);
	const uint64_t number = ((struct channel *)ibv)->number;
	int result = ibv->refcnt ? EBUSY : nic_request(context, NICD_OP_DESTROY_CHANNEL, 1, &number);

	if (result && (result == EBUSY || !context->is_dead))
		return result;
	close(ibv->fd);
	free(ibv);
	return 0;
}

/* Create a queue by an operation of the NIC process: of completions, or of EV events. */
struct ibv_cq *create_cq(struct ibv_context *context, uint32_t operation, int entries, void *cq_context,
			 struct ibv_comp_channel *channel, int vector)
{
	if (vector < 0 || vector >= context->num_comp_vectors || entries < 1) {
		errno = EINVAL;
		return NULL;
	}
	struct completion_queue *cq = make_cq(context_of(context), operation, entries, cq_context, channel);
	if (cq && channel)
		__atomic_add_fetch(&channel->refcnt, 1, __ATOMIC_SEQ_CST);
	return (struct ibv_cq *)cq;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *cq_context,
				    struct ibv_comp_channel *channel, int vector)
{
	return create_cq(context, NICD_OP_CREATE_CQ, entries, cq_context, channel, vector);
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct ibv_comp_channel *channel = cq->channel;
	int result = destroy_cq((struct completion_queue *)cq);

	if (!result && channel)
		__atomic_sub_fetch(&channel->refcnt, 1, __ATOMIC_SEQ_CST);
	return result;
}

/* Read an event from a socket of the NIC process; -1 and errno when there is none, or never will be. */
static int read_event(struct context *context, int file, struct nicd_event *event)
{
	ssize_t length = recv(file, event, sizeof *event, 0);

	if (length == sizeof *event)
		return 0;
	if (length >= 0) {
		nic_check_alive(context);
		errno = EIO;
	}
	return -1;
}

static struct completion_queue *find_cq(struct context *context, uint32_t number)
{
	struct completion_queue *cq = context->cqs;

	while (cq && cq->ibv.handle != number)
		cq = cq->next;
	return cq;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ibv, void **cq_context)
{
	struct context *context = context_of(channel->context);
	struct completion_queue *cq = NULL;

	/* An event of a CQ that is gone by now is passed over. */
	while (!cq) {
		struct nicd_event event;
		if (read_event(context, channel->fd, &event))
			return -1;
		pthread_mutex_lock(&context->objects_mutex);
		cq = find_cq(context, event.number);
		if (cq)
			cq->events_sent++;
		pthread_mutex_unlock(&context->objects_mutex);
	}
	*ibv = &cq->ibv;
	*cq_context = cq->ibv.cq_context;
	return 0;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += count;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

/* ---- queue pairs ---- */

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	if (init->qp_type != IBV_QPT_RC || init->srq) {
		explain("libmrc: MRC has reliable connections (IBV_QPT_RC) without shared receive queues alone");
		errno = EOPNOTSUPP;
		return NULL;
	}
	return (struct ibv_qp *)make_qp(pd, init);
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	return destroy_qp((struct queue_pair *)qp);
}

/* Write the attributes of libibverbs as the NIC process takes them. */
void fill_values(const struct ibv_qp_attr *attr, int mask, uint64_t values[NICD_QP_VALUES])
{
	values[NICD_QP_STATE] = attr->qp_state;
	values[NICD_QP_CUR_STATE] = attr->cur_qp_state;
	values[NICD_QP_PKEY_INDEX] = attr->pkey_index;
	values[NICD_QP_PORT] = attr->port_num;
	values[NICD_QP_ACCESS] = attr->qp_access_flags;
	values[NICD_QP_PATH_MTU] = mask & IBV_QP_PATH_MTU && attr->path_mtu < 16 ? 128ull << attr->path_mtu : 0;
	values[NICD_QP_DEST_QPN] = attr->dest_qp_num;
	values[NICD_QP_RQ_PSN] = attr->rq_psn;
	values[NICD_QP_SQ_PSN] = attr->sq_psn;
	values[NICD_QP_GID_HIGH] = be64toh(attr->ah_attr.grh.dgid.global.subnet_prefix);
	values[NICD_QP_GID_LOW] = be64toh(attr->ah_attr.grh.dgid.global.interface_id);
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	uint64_t values[NICD_QP_VALUES] = {0};

	fill_values(attr, mask, values);
	return modify_qp((struct queue_pair *)qp, (unsigned)mask, 0, values);
}

/* Read the values of the NIC process into the attributes of libibverbs. */
void take_values(const struct queue_pair *qp, const uint64_t values[NICD_QP_VALUES], struct ibv_qp_attr *attr)
{
	*attr = (struct ibv_qp_attr){
		.qp_state = values[NICD_QP_STATE], .cur_qp_state = values[NICD_QP_STATE],
		.path_mtu = values[NICD_QP_PATH_MTU] ? mtu_number(values[NICD_QP_PATH_MTU]) : 0,
		.rq_psn = values[NICD_QP_RQ_PSN], .sq_psn = values[NICD_QP_SQ_PSN], .dest_qp_num = values[NICD_QP_DEST_QPN],
		.qp_access_flags = values[NICD_QP_ACCESS], .port_num = 1,
		.cap = {qp->send.limit, qp->recv.limit, qp->send.sge_limit, qp->recv.sge_limit, qp->inline_limit},
		.ah_attr = {.is_global = 1, .port_num = 1}};
	attr->ah_attr.grh.dgid.global.subnet_prefix = htobe64(values[NICD_QP_GID_HIGH]);
	attr->ah_attr.grh.dgid.global.interface_id = htobe64(values[NICD_QP_GID_LOW]);
}

EXPORT int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct queue_pair *qp = (struct queue_pair *)ibv;
	uint64_t values[NICD_QP_VALUES];
	int result = query_qp(qp, values);

	(void)mask;
	if (result)
		return result;
	take_values(qp, values, attr);
	if (init)
		*init = (struct ibv_qp_init_attr){.qp_context = ibv->qp_context, .send_cq = ibv->send_cq,
						  .recv_cq = ibv->recv_cq, .cap = attr->cap, .qp_type = ibv->qp_type,
						  .sq_sig_all = qp->sq_sig_all};
	return 0;
}

/* ---- asynchronous events ---- */

static bool name_element(struct context *context, const struct nicd_event *from, struct ibv_async_event *event)
{
	event->event_type = from->type;
	if (from->type == IBV_EVENT_CQ_ERR) {
		struct completion_queue *cq = find_cq(context, from->number);
		event->element.cq = cq ? &cq->ibv : NULL;
		if (cq)
			cq->async_events_sent++;
		return cq;
	}
	if (from->type == IBV_EVENT_QP_FATAL) {
		struct queue_pair *qp = context->qps[from->number & 0xffff];
		event->element.qp = qp ? &qp->ibv : NULL;
		if (qp) {
			qp->ibv.state = IBV_QPS_ERR;
			qp->async_events_sent++;
		}
		return qp;
	}
	event->element.port_num = from->number;
	return true;
}

/* Tell once that the NIC process has ended: the device is gone, whose QPs give no completions any more. */
static bool tells_end(struct context *context, struct ibv_async_event *event)
{
	pthread_mutex_lock(&context->objects_mutex);
	bool is_first = context->is_dead && !context->has_told_end;
	context->has_told_end |= is_first;
	pthread_mutex_unlock(&context->objects_mutex);
	if (is_first)
		*event = (struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL};
	return is_first;
}

EXPORT int ibv_get_async_event(struct ibv_context *ibv, struct ibv_async_event *event)
{
	struct context *context = context_of(ibv);
	bool has_element = false;

	while (!has_element) {
		struct nicd_event from;
		if (read_event(context, ibv->async_fd, &from)) {
			if (errno != EIO)
				return -1;
			nic_has_ended(context); /* it closes this socket then alone, perhaps before the one of requests */
			if (tells_end(context, event))
				return 0;
			errno = EIO;
			return -1;
		}
		pthread_mutex_lock(&context->objects_mutex);
		has_element = name_element(context, &from, event);
		pthread_mutex_unlock(&context->objects_mutex);
	}
	return 0;
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	if (event->event_type == IBV_EVENT_CQ_ERR) {
		struct ibv_cq *cq = event->element.cq;
		pthread_mutex_lock(&cq->mutex);
		cq->async_events_completed++;
		pthread_cond_signal(&cq->cond);
		pthread_mutex_unlock(&cq->mutex);
	} else if (event->event_type == IBV_EVENT_QP_FATAL) {
		struct ibv_qp *qp = event->element.qp;
		pthread_mutex_lock(&qp->mutex);
		qp->events_completed++;
		pthread_cond_signal(&qp->cond);
		pthread_mutex_unlock(&qp->mutex);
	}
}

/* ---- what MRC has not ---- */

static void refuse(const char *name)
{
	explain("libmrc: %s: MRC has no such thing (writes over reliable connections alone)", name);
	errno = EOPNOTSUPP;
}

#define REFUSED_POINTER(name) \
	EXPORT void *name(void); \
	EXPORT void *name(void) \
	{ \
		refuse(#name); \
		return NULL; \
	}
#define REFUSED_NUMBER(name) \
	EXPORT int name(void); \
	EXPORT int name(void) \
	{ \
		refuse(#name); \
		return EOPNOTSUPP; \
	}

#define MISSING_POINTER(name) \
	EXPORT void *name(void); \
	EXPORT void *name(void) \
	{ \
		errno = EOPNOTSUPP; \
		return NULL; \
	}
#define MISSING_NUMBER(name) \
	EXPORT int name(void); \
	EXPORT int name(void) \
	{ \
		errno = EOPNOTSUPP; \
		return EOPNOTSUPP; \
	}

REFUSED_POINTER(ibv_create_ah)
REFUSED_POINTER(ibv_create_ah_from_wc)
REFUSED_POINTER(ibv_create_srq)
REFUSED_POINTER(ibv_import_device)
REFUSED_POINTER(ibv_import_dm)
REFUSED_POINTER(ibv_import_mr)
REFUSED_POINTER(ibv_import_pd)
REFUSED_NUMBER(ibv_attach_mcast)
REFUSED_NUMBER(ibv_destroy_ah)
REFUSED_NUMBER(ibv_destroy_srq)
REFUSED_NUMBER(ibv_detach_mcast)
REFUSED_NUMBER(ibv_init_ah_from_wc)
REFUSED_NUMBER(ibv_modify_srq)
REFUSED_NUMBER(ibv_query_srq)
REFUSED_NUMBER(ibv_rereg_mr)
REFUSED_NUMBER(ibv_resize_cq)

/* Programs try these and do without. */
MISSING_POINTER(ibv_qp_to_qp_ex)
MISSING_POINTER(ibv_reg_dmabuf_mr)
MISSING_NUMBER(ibv_query_ece)
MISSING_NUMBER(ibv_query_qp_data_in_order)
MISSING_NUMBER(ibv_set_ece)
