/* The functions of mrc_ctl.h: requests to the NIC process, whose device has one controller at a time. Arrays that are
 * longer than a request go in pieces; EV operations end at the first entry that fails, and those before stay done.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libmrc.h"
#include "mrc_objects.h"

#include "mrc_ctl.h"

#define VENDOR_CFG (1u << 31) /* of every mask */
#define EV_BYTES 16           /* of an address; an SRH's segment would follow */
#define MAX_ALGORITHMS 8
#define NAME_BYTES (NICD_NAME_VALUES * 8)

static int ask(struct mrc_context *context, uint32_t operation, struct call *call)
{
	return nic_call(context_of(context->ibv), operation, call);
}

/* Return an errno for bits that name no attribute, or one of a vendor, of which this device has none. */
static int check_mask(uint32_t mask, uint32_t known)
{
	if (mask & VENDOR_CFG)
		explain("libmrc: VENDOR_CFG: this device has no configuration of a vendor");
	else if (mask & ~known)
		explain("libmrc: mask 0x%x: this call has the attributes 0x%x", mask, known);
	return mask & ~known ? EINVAL : 0;
}

/* Return an errno for an array that is not there. */
static int check_array(const void *array, int count)
{
	return count < 0 || (count && !array) ? EINVAL : 0;
}

/* ---- device and ports ---- */

static char algorithm_names[MAX_ALGORITHMS][NAME_BYTES];
static const char *algorithms[MAX_ALGORITHMS + 1];
static pthread_mutex_t algorithms_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Return the library's copy of a name, which stays for good; NULL for an empty one. */
static const char *keep_name(const uint64_t values[NICD_NAME_VALUES])
{
	int i = 0;

	if (!values[0])
		return NULL;
	pthread_mutex_lock(&algorithms_mutex);
	while (i < MAX_ALGORITHMS && algorithms[i] && memcmp(algorithms[i], values, NAME_BYTES))
		i++;
	if (i < MAX_ALGORITHMS && !algorithms[i]) {
		memcpy(algorithm_names[i], values, NAME_BYTES - 1);
		algorithms[i] = algorithm_names[i];
	}
	pthread_mutex_unlock(&algorithms_mutex);
	return algorithms[i];
}

static int query_device(struct ibv_context *context, struct mrc_ctl_device_attr *attr)
{
	struct call call = {0};
	int result = nic_call(context_of(context), NICD_OP_CTL_QUERY_DEVICE, &call);
	const uint64_t *value = call.values;

	if (!result && (call.count < NICD_CTL_DEVICE_VALUES || (call.count - NICD_CTL_DEVICE_VALUES) % NICD_NAME_VALUES))
		result = EPROTO;
	if (result)
		return result;
	for (uint32_t at = NICD_CTL_DEVICE_VALUES; at < call.count; at += NICD_NAME_VALUES)
		keep_name(call.values + at);
	*attr = (struct mrc_ctl_device_attr){
		.mrc_ctl_protocol_version = value[0],
		.ev = {value[1], value[2], value[3], value[4], value[5], value[6], value[7], value[8], value[9], value[10]},
		.cc = {value[11], algorithms}, .phy_port_mask = value[12], .opt_attr = value[13]};
	return 0;
}

EXPORT int mrc_ctl_query_device(struct ibv_context *context, struct mrc_ctl_device_attr *attr)
{
	return as_minus_one(query_device(context, attr));
}

EXPORT int mrc_ctl_query_device_ex(struct ibv_context *context, struct mrc_context *mcontext,
				   struct mrc_ctl_device_attr *attr, int *supported)
{
	int result = mcontext && mcontext->ibv != context ? EINVAL : query_device(context, attr);

	if (!result)
		*supported = 1;
	return as_minus_one(result);
}

EXPORT void mrc_ctl_query_version(uint32_t *current, uint32_t *last_supported, uint32_t *vendor,
				  uint32_t *last_supported_vendor)
{
	*current = MRC_CTL_API_CURRENT_VERSION;
	*last_supported = MRC_CTL_API_LAST_SUPPORTED_VERSION;
	*vendor = MRC_CTL_VENDOR_API_CURRENT_VERSION;
	*last_supported_vendor = MRC_CTL_VENDOR_API_LAST_SUPPORTED_VERSION;
}

EXPORT int mrc_ctl_query_port(struct mrc_context *context, uint8_t port, struct mrc_ctl_port_attr *attr, int mask)
{
	struct call call = {.count = 1, .values = {port}};
	int result = check_mask(mask, MRC_CTL_PORT_ADMIN_STATE);

	if (!result)
		result = ask(context, NICD_OP_CTL_QUERY_PORT, &call);
	if (!result && call.count != 1)
		result = EPROTO;
	if (!result && mask & MRC_CTL_PORT_ADMIN_STATE)
		attr->port_admin_state = call.values[0];
	return as_minus_one(result);
}

EXPORT int mrc_ctl_modify_port(struct mrc_context *context, uint8_t port, struct mrc_ctl_port_attr *attr, int mask)
{
	struct call call = {.count = 3, .values = {port, (unsigned)mask, attr->port_admin_state}};
	int result = check_mask(mask, MRC_CTL_PORT_ADMIN_STATE);

	return as_minus_one(result ? result : ask(context, NICD_OP_CTL_MODIFY_PORT, &call));
}

/* ---- EV format profiles ---- */

#define EV_FMT_BITS                                                                                                    \
	(MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_CUR_STATE | MRC_CTL_EV_FMT_PROFILE_MODE |               \
	 MRC_CTL_EV_FMT_PROFILE_OP)

EXPORT int mrc_ctl_modify_ev_fmt_profile(struct mrc_context *context, uint64_t id,
					 struct mrc_ctl_ev_fmt_profile_attr *attr, int mask)
{
	struct call call = {.count = 5, .values = {id, (unsigned)mask, attr->profile_state, attr->cur_profile_state,
						   attr->ev_fmt_mode}};
	bool has_fields = mask & MRC_CTL_EV_FMT_PROFILE_OP;
	int count = has_fields ? attr->ev_fmt_op.fmt_field_count : 0;
	int result = check_mask(mask, EV_FMT_BITS);

	if (!result && has_fields && attr->ev_fmt_op.op != MRC_CTL_EV_FMT_OP_MODIFY_FIELDS)
		result = EINVAL;
	if (!result)
		result = check_array(attr->ev_fmt_op.fmt_fields, count);
	if (!result && count > NICD_MAX_VALUES - (int)call.count)
		result = E2BIG;
	if (result)
		return as_minus_one(result);
	for (int i = 0; i < count; i++)
		call.values[call.count++] = attr->ev_fmt_op.fmt_fields[i].width;
	return as_minus_one(ask(context, NICD_OP_CTL_MODIFY_EV_FMT, &call));
}

EXPORT int mrc_ctl_query_ev_fmt_profile(struct mrc_context *context, uint64_t id,
					struct mrc_ctl_ev_fmt_profile_attr *attr, int mask)
{
	struct call call = {.count = 1, .values = {id}};
	bool has_fields = mask & MRC_CTL_EV_FMT_PROFILE_OP;
	int result = check_mask(mask, EV_FMT_BITS);

	if (!result && has_fields && attr->ev_fmt_op.op != MRC_CTL_EV_FMT_OP_QUERY_FIELDS)
		result = EINVAL;
	if (!result)
		result = ask(context, NICD_OP_CTL_QUERY_EV_FMT, &call);
	if (!result && call.count < 2)
		result = EPROTO;
	if (result)
		return as_minus_one(result);
	if (mask & MRC_CTL_EV_FMT_PROFILE_STATE)
		attr->profile_state = call.values[0];
	if (mask & MRC_CTL_EV_FMT_PROFILE_CUR_STATE)
		attr->cur_profile_state = call.values[0];
	if (mask & MRC_CTL_EV_FMT_PROFILE_MODE)
		attr->ev_fmt_mode = call.values[1];
	if (!has_fields)
		return 0;
	int room = attr->ev_fmt_op.fmt_fields ? attr->ev_fmt_op.fmt_field_count : 0;
	attr->ev_fmt_op.fmt_field_count = call.count - 2;
	if (room < attr->ev_fmt_op.fmt_field_count)
		return as_minus_one(E2BIG);
	for (int i = 0; i < attr->ev_fmt_op.fmt_field_count; i++)
		attr->ev_fmt_op.fmt_fields[i].width = call.values[2 + i];
	return 0;
}

/* ---- EVs ---- */

/* Write an EV as two halves; return an errno for one that this device cannot send. */
static int put_ev(const struct mrc_ctl_ev *ev, uint64_t halves[2])
{
	static const uint8_t no_segment[MRC_CTL_EV_MAX_BYTES - EV_BYTES];

	if (memcmp(ev->val + EV_BYTES, no_segment, sizeof no_segment)) {
		explain("libmrc: bytes 16 to 31 of the EV are the segment of an SRH, which this device does not send: zeros");
		return EINVAL;
	}
	memcpy(halves, ev->val, EV_BYTES);
	halves[0] = be64toh(halves[0]);
	halves[1] = be64toh(halves[1]);
	return 0;
}

static void take_ev(const uint64_t halves[2], uint8_t port, struct mrc_ctl_ev *ev)
{
	const uint64_t bytes[2] = {htobe64(halves[0]), htobe64(halves[1])};

	*ev = (struct mrc_ctl_ev){.port = port};
	memcpy(ev->val, bytes, EV_BYTES);
}

static int put_entry(const struct mrc_ctl_ev_op_entry *entry, uint64_t values[NICD_EV_ENTRY_VALUES])
{
	int result = put_ev(&entry->ev, values);

	values[4] = entry->ev.port | (uint64_t)entry->ev_new.port << 8 | (uint64_t)entry->flags << 32;
	values[5] = (uint32_t)entry->state;
	return result ? result : put_ev(&entry->ev_new, values + 2);
}

/* Carry out one piece of an operation, from entry `first` on; return an errno, and in `done` the entries of the piece.
 * An entry that cannot be sent ends the piece: those before it are carried out. */
static int run_piece(struct mrc_context *context, uint64_t id, enum mrc_ctl_ev_op op,
		     struct mrc_ctl_ev_op_entry *entries, int count, int first, int *done)
{
	struct call call = {.count = 3, .values = {id, op, count}};
	int result = 0, sent = 0;

	while (first + sent < count && call.count + NICD_EV_ENTRY_VALUES <= NICD_MAX_VALUES) {
		struct mrc_ctl_ev_op_entry entry = entries[first + sent];
		if (op != MRC_CTL_EV_OP_REPLACE_EV)
			entry.ev_new = MRC_CTL_EV_UNPOPULATED;
		result = put_entry(&entry, call.values + call.count);
		if (result)
			break;
		call.count += NICD_EV_ENTRY_VALUES;
		sent++;
	}
	int answer = ask(context, NICD_OP_CTL_EV_OP, &call);
	if (!answer && call.count != (uint32_t)sent)
		answer = EPROTO;
	for (int i = 0; !answer && op == MRC_CTL_EV_OP_QUERY_EV_STATE && i < sent; i++)
		entries[first + i].state = call.values[i];
	*done = sent;
	return answer ? answer : result;
}

/* Carry out an operation on all entries, or up to the first that fails. Return an errno. */
static int run_ev_op(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_profile_attr *attr)
{
	struct mrc_ctl_ev_op_entry *entries = attr->ev_op.entries;
	int count = attr->ev_op.entry_count, at = 0, done = 0;
	int result = check_array(entries, count);

	do {
		result = result ? result : run_piece(context, id, attr->ev_op.op, entries, count, at, &done);
		at += done;
	} while (!result && at < count);
	return result;
}

/* Read the array of EVs; return E2BIG where it is longer than the program's, and its length in any case. */
static int query_ev_array(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_profile_attr *attr)
{
	struct mrc_ctl_ev_op_entry *entries = attr->ev_op.entries;
	int room = entries ? attr->ev_op.entry_count : 0, at = 0;

	do {
		struct call call = {.count = 2, .values = {id, at}};
		int result = ask(context, NICD_OP_CTL_QUERY_EVS, &call);
		if (result || !call.count)
			return result ? result : EPROTO;
		int piece = (call.count - 1) / NICD_EV_VALUES;
		attr->ev_op.entry_count = call.values[0];
		if (attr->ev_op.entry_count > room)
			return E2BIG;
		if (attr->ev_op.entry_count < at + piece || (!piece && at < attr->ev_op.entry_count))
			return EPROTO;
		for (const uint64_t *value = call.values + 1; piece--; at++, value += NICD_EV_VALUES) {
			take_ev(value, value[2] & 0xff, &entries[at].ev);
			entries[at].state = value[2] >> 32;
		}
	} while (at < attr->ev_op.entry_count);
	return 0;
}

/* ---- EV profiles ---- */

#define EV_PROFILE_BITS                                                                                                \
	(MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_CUR_STATE | MRC_CTL_EV_PROFILE_MODE |                           \
	 MRC_CTL_EV_PROFILE_FMT_ID | MRC_CTL_EV_PROFILE_COUNT | MRC_CTL_EV_PROFILE_MIN_ACTIVE |                        \
	 MRC_CTL_EV_PROFILE_EVENT_MASK | MRC_CTL_EV_PROFILE_EV_OP | MRC_CTL_EV_PROFILE_EV_FIELDS_OP)

static int check_ev_mask(uint32_t mask)
{
	const uint32_t both = MRC_CTL_EV_PROFILE_EV_OP | MRC_CTL_EV_PROFILE_EV_FIELDS_OP;
	int result = check_mask(mask, EV_PROFILE_BITS);

	return result ? result : (mask & both) == both ? EINVAL : 0;
}

/* Write the attributes of a mask, without the EVs. Return an errno. */
static int write_ev_profile(struct mrc_context *context, uint64_t id, const struct mrc_ctl_ev_profile_attr *attr,
			    uint32_t mask)
{
	struct call call = {.count = 9, .values = {id, mask, attr->profile_state, attr->cur_profile_state, attr->ev_mode,
						   attr->ev_fmt_profile_id, attr->ev_count, attr->ev_min_active,
						   (uint32_t)attr->ev_event_mask}};
	int count = mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP ? attr->ev_fields_op.field_count : 0;
	int result = check_array(attr->ev_fields_op.fields, count);

	if (!result && count > (NICD_MAX_VALUES - 9) / NICD_FIELD_VALUES)
		result = E2BIG;
	for (int i = 0; !result && i < count; i++) {
		const struct mrc_ctl_ev_field *field = &attr->ev_fields_op.fields[i];
		call.values[call.count++] = field->width | (uint64_t)field->init_val << 32;
		call.values[call.count++] = field->min_val | (uint64_t)field->max_val << 32;
		call.values[call.count++] = field->mask;
	}
	return result ? result : ask(context, NICD_OP_CTL_MODIFY_EV_PROFILE, &call);
}

EXPORT int mrc_ctl_modify_ev_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_profile_attr *attr,
				     int mask)
{
	bool has_op = mask & MRC_CTL_EV_PROFILE_EV_OP;
	uint32_t attributes = (uint32_t)mask & ~MRC_CTL_EV_PROFILE_EV_OP;
	/* EVs exist from OFFLINE on, and must be complete before ONLINE. */
	bool op_first = has_op && mask & MRC_CTL_EV_PROFILE_STATE && attr->profile_state == MRC_CTL_PROFILE_ONLINE;
	int result = check_ev_mask(mask);

	if (!result && has_op && attr->ev_op.op != MRC_CTL_EV_OP_REPLACE_EV && attr->ev_op.op != MRC_CTL_EV_OP_MODIFY_EV_STATE)
		result = EINVAL;
	if (!result && mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP && attr->ev_fields_op.op != MRC_CTL_EV_FIELDS_OP_MODIFY_FIELDS)
		result = EINVAL;
	if (!result && op_first)
		result = write_ev_profile(context, id, attr, attributes & MRC_CTL_EV_PROFILE_CUR_STATE);
	if (!result && op_first)
		result = run_ev_op(context, id, attr);
	if (!result && (attributes || !has_op))
		result = write_ev_profile(context, id, attr, attributes);
	if (!result && has_op && !op_first)
		result = run_ev_op(context, id, attr);
	return as_minus_one(result);
}

static int take_fields(struct mrc_ctl_ev_profile_attr *attr, const uint64_t *values, int count)
{
	int room = attr->ev_fields_op.fields ? attr->ev_fields_op.field_count : 0;

	attr->ev_fields_op.field_count = count;
	if (count > room)
		return E2BIG;
	for (int i = 0; i < count; i++, values += NICD_FIELD_VALUES)
		attr->ev_fields_op.fields[i] = (struct mrc_ctl_ev_field){
			.width = values[0], .init_val = values[0] >> 32, .min_val = values[1], .max_val = values[1] >> 32,
			.mask = values[2]};
	return 0;
}

/* Read the attributes of a mask, and fields, into the program's. Return an errno. */
static int read_ev_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_profile_attr *attr, uint32_t mask)
{
	struct call call = {.count = 1, .values = {id}};
	int result = ask(context, NICD_OP_CTL_QUERY_EV_PROFILE, &call);

	if (!result && (call.count < 6 || (call.count - 6) % NICD_FIELD_VALUES))
		result = EPROTO;
	if (result)
		return result;
	if (mask & MRC_CTL_EV_PROFILE_STATE)
		attr->profile_state = call.values[0];
	if (mask & MRC_CTL_EV_PROFILE_CUR_STATE)
		attr->cur_profile_state = call.values[0];
	if (mask & MRC_CTL_EV_PROFILE_MODE)
		attr->ev_mode = call.values[1];
	if (mask & MRC_CTL_EV_PROFILE_FMT_ID)
		attr->ev_fmt_profile_id = call.values[2];
	if (mask & MRC_CTL_EV_PROFILE_COUNT)
		attr->ev_count = call.values[3];
	if (mask & MRC_CTL_EV_PROFILE_MIN_ACTIVE)
		attr->ev_min_active = call.values[4];
	if (mask & MRC_CTL_EV_PROFILE_EVENT_MASK)
		attr->ev_event_mask = call.values[5];
	if (mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP)
		return take_fields(attr, call.values + 6, (call.count - 6) / NICD_FIELD_VALUES);
	return 0;
}

EXPORT int mrc_ctl_query_ev_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_profile_attr *attr,
				    int mask)
{
	bool has_op = mask & MRC_CTL_EV_PROFILE_EV_OP;
	int result = check_ev_mask(mask);

	if (!result && has_op && attr->ev_op.op != MRC_CTL_EV_OP_QUERY_EV_STATE && attr->ev_op.op != MRC_CTL_EV_OP_QUERY_EV_ARRAY)
		result = EINVAL;
	if (!result && mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP && attr->ev_fields_op.op != MRC_CTL_EV_FIELDS_OP_QUERY_FIELDS)
		result = EINVAL;
	if (!result)
		result = read_ev_profile(context, id, attr, mask);
	if (!result && has_op && attr->ev_op.op == MRC_CTL_EV_OP_QUERY_EV_STATE)
		result = run_ev_op(context, id, attr);
	else if (!result && has_op)
		result = query_ev_array(context, id, attr);
	return as_minus_one(result);
}

/* ---- profiles of congestion control ---- */

#define CC_PROFILE_BITS                                                                                                \
	(MRC_CTL_CC_PROFILE_STATE | MRC_CTL_CC_PROFILE_CUR_STATE | MRC_CTL_CC_PROFILE_ALGORITHM |                      \
	 MRC_CTL_CC_PROFILE_CONFIG)

static uint64_t float_bits(float number)
{
	uint32_t bits;

	memcpy(&bits, &number, sizeof bits);
	return bits;
}

static float bits_float(uint64_t value)
{
	const uint32_t bits = value;
	float number;

	memcpy(&number, &bits, sizeof number);
	return number;
}

static void put_config(const struct mrc_ctl_cc_nscc_cfg *config, uint64_t *values)
{
	const uint64_t copy[NICD_CC_VALUES] = {
		config->disable_qa, config->adjust_bytes_threshold, config->adjust_period_threshold, config->base_rtt,
		float_bits(config->eta), float_bits(config->fi), float_bits(config->fi_scale), float_bits(config->gamma),
		float_bits(config->max_md_jump), config->max_cwnd, config->qa_gate, config->qa_threshold, config->target_delay};

	memcpy(values, copy, sizeof copy);
}

static void take_config(const uint64_t *values, struct mrc_ctl_cc_nscc_cfg *config)
{
	*config = (struct mrc_ctl_cc_nscc_cfg){
		values[0], values[1], values[2], values[3], bits_float(values[4]), bits_float(values[5]), bits_float(values[6]),
		bits_float(values[7]), bits_float(values[8]), values[9], values[10], values[11], values[12]};
}

EXPORT int mrc_ctl_modify_cc_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_cc_profile_attr *attr,
				     int mask)
{
	struct call call = {.count = 4 + NICD_NAME_VALUES + NICD_CC_VALUES,
			    .values = {id, (unsigned)mask, attr->profile_state, attr->cur_profile_state}};
	int result = check_mask(mask, CC_PROFILE_BITS);

	if (!result && mask & MRC_CTL_CC_PROFILE_ALGORITHM && attr->algorithm) {
		size_t length = strlen(attr->algorithm);
		if (!length || length >= NAME_BYTES)
			result = EINVAL;
		else
			memcpy(call.values + 4, attr->algorithm, length);
	}
	if (!result && mask & MRC_CTL_CC_PROFILE_CONFIG && !attr->cc_config)
		result = EINVAL;
	else if (!result && mask & MRC_CTL_CC_PROFILE_CONFIG)
		put_config(attr->cc_config, call.values + 4 + NICD_NAME_VALUES);
	return as_minus_one(result ? result : ask(context, NICD_OP_CTL_MODIFY_CC_PROFILE, &call));
}

EXPORT int mrc_ctl_query_cc_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_cc_profile_attr *attr,
				    int mask)
{
	static __thread struct mrc_ctl_cc_nscc_cfg newest;
	struct call call = {.count = 1, .values = {id}};
	int result = check_mask(mask, CC_PROFILE_BITS);

	if (!result)
		result = ask(context, NICD_OP_CTL_QUERY_CC_PROFILE, &call);
	if (!result && call.count != 2 + NICD_NAME_VALUES + NICD_CC_VALUES)
		result = EPROTO;
	if (!result && mask & MRC_CTL_CC_PROFILE_CONFIG && !call.values[1]) {
		explain("libmrc: CC profile %llu has no configuration: the device derives it", (unsigned long long)id);
		result = EINVAL;
	}
	if (result)
		return as_minus_one(result);
	if (mask & MRC_CTL_CC_PROFILE_STATE)
		attr->profile_state = call.values[0];
	if (mask & MRC_CTL_CC_PROFILE_CUR_STATE)
		attr->cur_profile_state = call.values[0];
	if (mask & MRC_CTL_CC_PROFILE_ALGORITHM)
		attr->algorithm = keep_name(call.values + 2);
	if (mask & MRC_CTL_CC_PROFILE_CONFIG) {
		if (!attr->cc_config)
			attr->cc_config = &newest;
		take_config(call.values + 2 + NICD_NAME_VALUES, (struct mrc_ctl_cc_nscc_cfg *)attr->cc_config);
	}
	return 0;
}

/* ---- EV events ---- */

EXPORT struct mrc_cq *mrc_ctl_create_ev_event_cq(struct mrc_context *context, int cqe, void *cq_context,
						 struct mrc_comp_channel *channel, int comp_vector)
{
	return face_of_cq(context, create_cq(context->ibv, NICD_OP_CREATE_EV_EVENT_CQ, cqe, cq_context,
					     channel ? channel->ibv : NULL, comp_vector));
}

/* The program's array of events, whose elements are shorter before version 1.0.1. */
struct events {
	uint8_t *bytes;
	size_t size;
};

static bool take_event(struct context *context, const void *slot, uint64_t at, void *out, int index)
{
	const struct nicd_ev_event *entry = slot;
	const struct events *events = out;
	struct mrc_ctl_ev_event event = {.profile_id = entry->profile, .drop_count = entry->drop_count, .state = entry->state};

	(void)context;
	(void)at;
	take_ev(entry->ev, entry->port, &event.ev);
	memcpy(events->bytes + index * events->size, &event, events->size);
	return true;
}

EXPORT int mrc_ctl_poll_ev_event(struct mrc_cq *cq, int count, struct mrc_ctl_ev_event *array)
{
	struct completion_queue *queue = (struct completion_queue *)cq->ibv;
	bool is_old = cq->context->version < MRC_API_VER(1, 0, 1);
	struct events events = {(uint8_t *)array, is_old ? offsetof(struct mrc_ctl_ev_event, state) : sizeof *array};

	if (!queue->has_ev_events || count < 0)
		return -EINVAL;
	int taken = poll_entries(queue, count, take_event, &events);
	return taken < 0 ? -errno : taken;
}

/* ---- endpoint operations ---- */

static int put_request(const struct mrc_ctl_ep_req *request, uint64_t values[NICD_EP_VALUES])
{
	values[0] = request->req_id | (uint64_t)request->req_ev.port << 16 | (uint64_t)(uint32_t)request->ev_fmt_mode << 32;
	values[1] = be64toh(request->sgid.global.subnet_prefix);
	values[2] = be64toh(request->sgid.global.interface_id);
	values[3] = be64toh(request->dgid.global.subnet_prefix);
	values[4] = be64toh(request->dgid.global.interface_id);
	return put_ev(&request->req_ev, values + 5);
}

/* Hand the requests of a batch to the NIC process, and have it send them. Return an errno, and the socket on which the
 * outcome will come: other calls of the program can go on meanwhile. */
static int send_batch(struct mrc_context *context, uint8_t dscp, enum mrc_ctl_ep_op_type type,
		      const struct mrc_ctl_ep_req *requests, int count, uint32_t timeout, int *socket)
{
	uint64_t batch = 0;

	for (int at = 0; at < count;) {
		struct call call = {.count = 1, .values = {batch}};
		for (; at < count && call.count + NICD_EP_VALUES <= NICD_MAX_VALUES; at++, call.count += NICD_EP_VALUES)
			put_request(&requests[at], call.values + call.count);
		int result = ask(context, NICD_OP_CTL_EP_ADD, &call);
		if (result)
			return result;
		batch = call.values[0];
	}
	struct call call = {.count = 4, .values = {batch, type, dscp, timeout}};
	int result = ask(context, NICD_OP_CTL_EP_SEND, &call);
	if (!result && call.fd_count != 1)
		result = EPROTO;
	*socket = call.fds[0];
	return result;
}

/* Wait for the outcome of a batch; return an errno. */
static int receive_outcome(struct mrc_context *context, int socket, int count, struct mrc_ctl_ep_rsp *responses,
			   int *response_count)
{
	size_t size = sizeof(struct nicd_ep_outcome) + count * sizeof(struct nicd_ep_response);
	struct nicd_ep_outcome *outcome = malloc(size);
	ssize_t length = 0;

	if (!outcome)
		return ENOMEM;
	do
		length = recv(socket, outcome, size, 0);
	while (length < 0 && errno == EINTR);
	if (length < (ssize_t)sizeof *outcome || outcome->count > (uint64_t)count) {
		nic_check_alive(context_of(context->ibv));
		free(outcome);
		return EIO;
	}
	*response_count = outcome->count;
	for (int i = 0; i < *response_count; i++) {
		const struct nicd_ep_response *response = &outcome->responses[i];
		responses[i] = (struct mrc_ctl_ep_rsp){.req_id = response->id, .port = response->port, .rtt = response->rtt,
						       .adj_svc_time = response->adj_svc_time};
	}
	free(outcome);
	return *response_count < count ? ETIMEDOUT : 0;
}

EXPORT int mrc_ctl_ep_batch_send_wait(struct mrc_context *context, uint8_t dscp, enum mrc_ctl_ep_op_type type,
				      struct mrc_ctl_ep_req *requests, int count, uint32_t timeout,
				      struct mrc_ctl_ep_rsp *responses, int *response_count)
{
	uint64_t values[NICD_EP_VALUES];
	int socket = -1, result = count < 1 || !requests || !responses ? EINVAL : 0;

	*response_count = 0;
	for (int i = 0; !result && i < count; i++)
		result = put_request(&requests[i], values); /* all, before any is sent */
	if (!result)
		result = send_batch(context, dscp, type, requests, count, timeout, &socket);
	if (result)
		return as_minus_one(result);
	result = receive_outcome(context, socket, count, responses, response_count);
	close(socket);
	return as_minus_one(result);
}
