/* The calls of mrc_ctl.h: ports, profiles of EVs and congestion control, EV events, probes. */
#include <stddef.h>

#include "pair.h"

#define LIBMRC_BUILD
#include "mrc_ctl.h"

#define FAILS(call, expected) \
	do { \
		errno = 0; \
		EQUAL(call, -1); \
		EQUAL(errno, expected); \
	} while (0)
#define FORMAT 13
#define PROFILE 1
#define MANY 300 /* EVs: more than two requests hold */

static struct mrc_context *open_mrc(const char *socket, uint32_t version)
{
	struct mrc_context_attr attr = {.mrc_api_version_used = version};
	struct mrc_context *context = mrc_create_context(open_host(socket), &attr);

	CHECK(context);
	return context;
}

static struct ibv_context *ibv_of(struct mrc_context *context)
{
	return *(struct ibv_context **)context; /* its first member */
}

static void close_mrc(struct mrc_context *context)
{
	struct ibv_context *ibv = ibv_of(context);

	EQUAL(mrc_destroy_context(context), 0);
	EQUAL(ibv_close_device(ibv), 0);
}

/* EV of a STEV format of 8 + 8 bits: plane and uplink. */
static struct mrc_ctl_ev ev_of(int plane, int uplink)
{
	return (struct mrc_ctl_ev){.val = {plane, uplink}, .port = plane + 1};
}

static int set_format_state(struct mrc_context *context, enum mrc_ctl_profile_state state)
{
	struct mrc_ctl_ev_fmt_profile_attr attr = {.profile_state = state};

	return mrc_ctl_modify_ev_fmt_profile(context, FORMAT, &attr, MRC_CTL_EV_FMT_PROFILE_STATE);
}

static int set_state(struct mrc_context *context, enum mrc_ctl_profile_state state)
{
	struct mrc_ctl_ev_profile_attr attr = {.profile_state = state};

	return mrc_ctl_modify_ev_profile(context, PROFILE, &attr, MRC_CTL_EV_PROFILE_STATE);
}

static void make_format(struct mrc_context *context)
{
	struct mrc_ctl_ev_fmt_field fields[] = {{8}, {8}};
	struct mrc_ctl_ev_fmt_profile_attr attr = {
		.profile_state = MRC_CTL_PROFILE_OFFLINE, .ev_fmt_mode = MRC_CTL_EV_FMT_MODE_STEV,
		.ev_fmt_op = {MRC_CTL_EV_FMT_OP_MODIFY_FIELDS, fields, 2}};
	int mask = MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_MODE | MRC_CTL_EV_FMT_PROFILE_OP;

	EQUAL(mrc_ctl_modify_ev_fmt_profile(context, FORMAT, &attr, mask), 0);
	EQUAL(set_format_state(context, MRC_CTL_PROFILE_ONLINE), 0);
}

static void make_explicit(struct mrc_context *context, int count)
{
	struct mrc_ctl_ev_profile_attr attr = {
		.profile_state = MRC_CTL_PROFILE_OFFLINE, .ev_mode = MRC_CTL_EV_MODE_EXP, .ev_fmt_profile_id = FORMAT,
		.ev_count = count, .ev_min_active = count / 4, .ev_event_mask = MRC_CTL_EV_GOOD | MRC_CTL_EV_ASSUMED_BAD};
	int mask = MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_MODE | MRC_CTL_EV_PROFILE_FMT_ID |
		   MRC_CTL_EV_PROFILE_COUNT | MRC_CTL_EV_PROFILE_MIN_ACTIVE | MRC_CTL_EV_PROFILE_EVENT_MASK;

	make_format(context);
	EQUAL(mrc_ctl_modify_ev_profile(context, PROFILE, &attr, mask), 0);
}

static void forget_profiles(struct mrc_context *context)
{
	EQUAL(set_state(context, MRC_CTL_PROFILE_OFFLINE), 0);
	EQUAL(set_state(context, MRC_CTL_PROFILE_INIT), 0);
	EQUAL(set_format_state(context, MRC_CTL_PROFILE_OFFLINE), 0);
	EQUAL(set_format_state(context, MRC_CTL_PROFILE_INIT), 0);
}

static int run_op(struct mrc_context *context, enum mrc_ctl_ev_op op, struct mrc_ctl_ev_op_entry *entries, int count)
{
	struct mrc_ctl_ev_profile_attr attr = {.ev_op = {op, entries, count}};
	bool is_query = op == MRC_CTL_EV_OP_QUERY_EV_STATE;

	return (is_query ? mrc_ctl_query_ev_profile : mrc_ctl_modify_ev_profile)(context, PROFILE, &attr,
										 MRC_CTL_EV_PROFILE_EV_OP);
}

/* ---- tests ---- */

static void device(char **sockets)
{
	struct mrc_context *context = open_mrc(sockets[0], MRC_API_CURRENT_VERSION);
	struct mrc_ctl_device_attr attr = {0}, again = {0};
	uint32_t versions[4];
	int supported = 0;

	EQUAL(mrc_ctl_query_device_ex(ibv_of(context), context, &attr, &supported), 0);
	EQUAL(mrc_ctl_query_device(ibv_of(context), &again), 0);
	EQUAL(supported, 1);
	EQUAL(memcmp(&attr, &again, sizeof attr), 0);
	EQUAL(attr.mrc_ctl_protocol_version, 1);
	EQUAL(attr.ev.ev_mode_mask, MRC_CTL_EV_MODE_AUTO | MRC_CTL_EV_MODE_EXP | MRC_CTL_EV_MODE_GEN);
	EQUAL(attr.ev.ev_fmt_mode_mask, 7);
	EQUAL(attr.ev.ev_free_count, attr.ev.ev_max_count);
	EQUAL(attr.ev.ev_count_align, 1);
	EQUAL(attr.phy_port_mask, 1 << 1 | 1 << 2);
	CHECK(attr.opt_attr & MRC_CTL_OPT_CAP_EV_EVENT && attr.opt_attr & MRC_CTL_OPT_CAP_EP_OP_EV_PROBE);
	CHECK(attr.cc.cc_max_profiles > 0);
	EQUAL(strcmp(attr.cc.algorithms[0], "uet-1.0-nscc"), 0);
	CHECK(!attr.cc.algorithms[2]);
	mrc_ctl_query_version(versions, versions + 1, versions + 2, versions + 3);
	EQUAL(versions[0], MRC_API_VER(1, 0, 1));
	EQUAL(versions[1], MRC_CTL_API_LAST_SUPPORTED_VERSION);
	EQUAL(versions[2], MRC_CTL_VENDOR_API_CURRENT_VERSION);
	EQUAL(versions[3], MRC_CTL_VENDOR_API_LAST_SUPPORTED_VERSION);
	struct mrc_context *at_peer = open_mrc(sockets[1], 0);
	FAILS(mrc_ctl_query_device_ex(ibv_of(context), at_peer, &attr, &supported), EINVAL);
	close_mrc(at_peer);
	close_mrc(context);
}

static void ports(char **sockets)
{
	struct mrc_context *context = open_mrc(sockets[0], 0);
	struct mrc_ctl_port_attr attr = {MRC_CTL_PORT_ADMIN_DISABLED};
	struct ibv_port_attr port;

	EQUAL(mrc_ctl_modify_port(context, 2, &attr, MRC_CTL_PORT_ADMIN_STATE), 0);
	EQUAL(ibv_query_port(ibv_of(context), 2, &port), 0);
	EQUAL(port.state, IBV_PORT_DOWN);
	attr.port_admin_state = MRC_CTL_PORT_ADMIN_ENABLED;
	EQUAL(mrc_ctl_query_port(context, 2, &attr, MRC_CTL_PORT_ADMIN_STATE), 0);
	EQUAL(attr.port_admin_state, MRC_CTL_PORT_ADMIN_DISABLED);
	attr.port_admin_state = MRC_CTL_PORT_ADMIN_ENABLED;
	EQUAL(mrc_ctl_modify_port(context, 2, &attr, 0), 0); /* the mask names nothing */
	EQUAL(ibv_query_port(ibv_of(context), 2, &port), 0);
	EQUAL(port.state, IBV_PORT_DOWN);
	EQUAL(mrc_ctl_modify_port(context, 2, &attr, MRC_CTL_PORT_ADMIN_STATE), 0);
	EQUAL(ibv_query_port(ibv_of(context), 2, &port), 0);
	EQUAL(port.state, IBV_PORT_ACTIVE);
	attr.port_admin_state = 2;
	FAILS(mrc_ctl_modify_port(context, 2, &attr, MRC_CTL_PORT_ADMIN_STATE), EINVAL);
	FAILS(mrc_ctl_modify_port(context, 3, &attr, MRC_CTL_PORT_ADMIN_STATE), EINVAL);
	FAILS(mrc_ctl_query_port(context, 0, &attr, MRC_CTL_PORT_ADMIN_STATE), EINVAL);
	FAILS(mrc_ctl_query_port(context, 1, &attr, 1 << 5), EINVAL);
	close_mrc(context);
}

static void formats(char **sockets)
{
	struct mrc_context *context = open_mrc(sockets[0], 0);
	struct mrc_ctl_ev_fmt_field fields[2] = {{0}}, many[200];
	struct mrc_ctl_ev_fmt_profile_attr attr = {.ev_fmt_op = {MRC_CTL_EV_FMT_OP_QUERY_FIELDS, fields, 1}};
	int all = MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_CUR_STATE | MRC_CTL_EV_FMT_PROFILE_MODE |
		  MRC_CTL_EV_FMT_PROFILE_OP;

	make_format(context);
	FAILS(mrc_ctl_query_ev_fmt_profile(context, FORMAT, &attr, all), E2BIG);
	EQUAL(attr.ev_fmt_op.fmt_field_count, 2);
	EQUAL(mrc_ctl_query_ev_fmt_profile(context, FORMAT, &attr, all), 0);
	EQUAL(attr.profile_state, MRC_CTL_PROFILE_ONLINE);
	EQUAL(attr.cur_profile_state, MRC_CTL_PROFILE_ONLINE);
	EQUAL(attr.ev_fmt_mode, MRC_CTL_EV_FMT_MODE_STEV);
	EQUAL(fields[0].width + fields[1].width, 16);
	attr.ev_fmt_op.op = MRC_CTL_EV_FMT_OP_MODIFY_FIELDS;
	FAILS(mrc_ctl_query_ev_fmt_profile(context, FORMAT, &attr, all), EINVAL);
	FAILS(mrc_ctl_modify_ev_fmt_profile(context, FORMAT, &attr, MRC_CTL_EV_FMT_PROFILE_OP), EBUSY); /* ONLINE */
	EQUAL(set_format_state(context, MRC_CTL_PROFILE_OFFLINE), 0);
	FAILS(mrc_ctl_modify_ev_fmt_profile(context, FORMAT, &attr, MRC_CTL_EV_FMT_PROFILE_CUR_STATE), EINVAL);
	memset(many, 1, sizeof many);
	attr.ev_fmt_op.fmt_fields = many;
	attr.ev_fmt_op.fmt_field_count = 200;
	FAILS(mrc_ctl_modify_ev_fmt_profile(context, FORMAT, &attr, MRC_CTL_EV_FMT_PROFILE_OP), E2BIG);
	FAILS(set_format_state(context, 3), EINVAL);
	FAILS(mrc_ctl_modify_ev_fmt_profile(context, FORMAT, &attr, MRC_CTL_EV_FMT_VENDOR_CFG), EINVAL);
	EQUAL(set_format_state(context, MRC_CTL_PROFILE_INIT), 0);
	close_mrc(context);
}

/* EVs of more than one request: written, read, and those before a failing entry stay written. */
static void explicit_evs(char **sockets)
{
	struct mrc_context *context = open_mrc(sockets[0], 0);
	static struct mrc_ctl_ev_op_entry entries[MANY], read[MANY];
	struct mrc_ctl_ev_profile_attr attr = {.ev_op = {MRC_CTL_EV_OP_QUERY_EV_ARRAY, read, MANY - 1}};
	struct mrc_ctl_ev_op_entry entry;

	make_explicit(context, MANY);
	for (int i = 0; i < MANY; i++)
		entries[i] = (struct mrc_ctl_ev_op_entry){.ev_new = ev_of(i & 1, i >> 1), .state = MRC_CTL_EV_GOOD};
	entries[200].ev_new.port = 9;
	FAILS(run_op(context, MRC_CTL_EV_OP_REPLACE_EV, entries, MANY), EINVAL);
	FAILS(mrc_ctl_query_ev_profile(context, PROFILE, &attr, MRC_CTL_EV_PROFILE_EV_OP), E2BIG);
	EQUAL(attr.ev_op.entry_count, MANY);
	EQUAL(mrc_ctl_query_ev_profile(context, PROFILE, &attr, MRC_CTL_EV_PROFILE_EV_OP), 0);
	EQUAL(memcmp(&read[199].ev, &entries[199].ev_new, sizeof read[199].ev), 0);
	EQUAL(read[199].state, MRC_CTL_EV_GOOD);
	EQUAL(memcmp(&read[200].ev, &MRC_CTL_EV_UNPOPULATED, sizeof read[200].ev), 0);
	EQUAL(read[200].state, (int)MRC_CTL_EV_UNKNOWN);
	FAILS(set_state(context, MRC_CTL_PROFILE_ONLINE), EINVAL); /* some are not filled in */

	entries[200].ev_new.port = 1;
	entries[250].ev_new.val[31] = 1;
	FAILS(run_op(context, MRC_CTL_EV_OP_REPLACE_EV, entries + 200, MANY - 200), EINVAL); /* a segment of an SRH */
	entries[250].ev_new.val[31] = 0;
	entries[250].ev_new.val[2] = 1;
	FAILS(run_op(context, MRC_CTL_EV_OP_REPLACE_EV, entries + 250, MANY - 250), EINVAL); /* 24 bits, of 16 */
	entries[250].ev_new.val[2] = 0;
	/* The last entries, and ONLINE at once; but first an assertion that fails before any entry is written. */
	attr = (struct mrc_ctl_ev_profile_attr){
		.profile_state = MRC_CTL_PROFILE_ONLINE, .cur_profile_state = MRC_CTL_PROFILE_INIT,
		.ev_op = {MRC_CTL_EV_OP_REPLACE_EV, entries + 250, MANY - 250}};
	int mask = MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_CUR_STATE | MRC_CTL_EV_PROFILE_EV_OP;
	FAILS(mrc_ctl_modify_ev_profile(context, PROFILE, &attr, mask), EINVAL);
	attr.cur_profile_state = MRC_CTL_PROFILE_OFFLINE;
	EQUAL(mrc_ctl_modify_ev_profile(context, PROFILE, &attr, mask), 0);

	entry = (struct mrc_ctl_ev_op_entry){.ev = ev_of(1, 7), .state = MRC_CTL_EV_DENIED};
	FAILS(run_op(context, MRC_CTL_EV_OP_REPLACE_EV, &entry, 1), EBUSY);
	EQUAL(run_op(context, MRC_CTL_EV_OP_MODIFY_EV_STATE, &entry, 1), 0);
	for (int i = 0; i < MANY; i++) {
		read[i].ev = entries[i].ev_new;
		read[i].state = 0;
	}
	EQUAL(run_op(context, MRC_CTL_EV_OP_QUERY_EV_STATE, read, MANY), 0);
	for (int i = 0; i < MANY; i++)
		EQUAL(read[i].state, i == 15 ? MRC_CTL_EV_DENIED : MRC_CTL_EV_GOOD);
	entry.ev.val[1] = 250;
	FAILS(run_op(context, MRC_CTL_EV_OP_QUERY_EV_STATE, &entry, 1), ENOENT);
	entry = (struct mrc_ctl_ev_op_entry){.ev = ev_of(1, 7), .state = MRC_CTL_EV_GOOD, .flags = 2};
	FAILS(run_op(context, MRC_CTL_EV_OP_MODIFY_EV_STATE, &entry, 1), EINVAL);
	FAILS(run_op(context, MRC_CTL_EV_OP_QUERY_EV_ARRAY, &entry, 1), EINVAL); /* in a call that modifies */
	FAILS(run_op(context, MRC_CTL_EV_OP_MODIFY_EV_STATE, NULL, 1), EINVAL);
	FAILS(run_op(context, MRC_CTL_EV_OP_MODIFY_EV_STATE, entries, -1), EINVAL);
	FAILS(mrc_ctl_modify_ev_profile(context, PROFILE, &attr,
					MRC_CTL_EV_PROFILE_EV_OP | MRC_CTL_EV_PROFILE_EV_FIELDS_OP), EINVAL);
	FAILS(mrc_ctl_modify_ev_profile(context, PROFILE, &attr, (int)MRC_CTL_EV_PROFILE_VENDOR_CFG), EINVAL);
	forget_profiles(context);
	FAILS(run_op(context, MRC_CTL_EV_OP_QUERY_EV_STATE, &entry, 1), ENOENT); /* no such profile any more */
	close_mrc(context);
}

static void all_copies(char **sockets)
{
	struct mrc_context *context = open_mrc(sockets[0], 0);
	struct mrc_ctl_ev_op_entry entries[3] = {{.ev_new = ev_of(0, 1), .state = MRC_CTL_EV_GOOD}};
	struct mrc_ctl_ev_profile_attr attr = {.ev_op = {MRC_CTL_EV_OP_QUERY_EV_ARRAY, entries, 3}};

	make_explicit(context, 3);
	EQUAL(run_op(context, MRC_CTL_EV_OP_REPLACE_EV, entries, 1), 0);
	entries[0] = (struct mrc_ctl_ev_op_entry){
		.ev_new = ev_of(1, 0), .state = MRC_CTL_EV_DENIED, .flags = MRC_CTL_EV_OP_F_ALL_COPIES};
	EQUAL(run_op(context, MRC_CTL_EV_OP_REPLACE_EV, entries, 1), 0);
	EQUAL(mrc_ctl_query_ev_profile(context, PROFILE, &attr, MRC_CTL_EV_PROFILE_EV_OP), 0);
	EQUAL(entries[0].ev.val[1], 1);
	for (int i = 1; i < 3; i++) {
		EQUAL(entries[i].ev.port, 2);
		EQUAL(entries[i].state, MRC_CTL_EV_DENIED);
	}
	EQUAL(set_state(context, MRC_CTL_PROFILE_ONLINE), 0);
	forget_profiles(context);
	close_mrc(context);
}

/* EVs of fields are as long as the masks have bits, and begin at the first. */
static void generated_evs(char **sockets)
{
	struct mrc_context *context = open_mrc(sockets[0], 0);
	struct mrc_ctl_ev_field fields[] = {{8, 0, 0, 1, 0x01}, {8, 0xf0, 0, 3, 0x03}}, read[2];
	struct mrc_ctl_ev_op_entry evs[6];
	struct mrc_ctl_ev_profile_attr attr = {
		.profile_state = MRC_CTL_PROFILE_OFFLINE, .ev_mode = MRC_CTL_EV_MODE_GEN, .ev_fmt_profile_id = FORMAT,
		.ev_count = 6, .ev_fields_op = {MRC_CTL_EV_FIELDS_OP_MODIFY_FIELDS, fields, 2}};
	int mask = MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_MODE | MRC_CTL_EV_PROFILE_FMT_ID |
		   MRC_CTL_EV_PROFILE_COUNT | MRC_CTL_EV_PROFILE_EV_FIELDS_OP;

	make_format(context);
	EQUAL(mrc_ctl_modify_ev_profile(context, PROFILE, &attr, mask), 0);
	EQUAL(set_state(context, MRC_CTL_PROFILE_ONLINE), 0);
	attr = (struct mrc_ctl_ev_profile_attr){.ev_fields_op = {MRC_CTL_EV_FIELDS_OP_QUERY_FIELDS, read, 1}};
	mask = MRC_CTL_EV_PROFILE_CUR_STATE | MRC_CTL_EV_PROFILE_MODE | MRC_CTL_EV_PROFILE_FMT_ID |
	       MRC_CTL_EV_PROFILE_COUNT | MRC_CTL_EV_PROFILE_MIN_ACTIVE | MRC_CTL_EV_PROFILE_EVENT_MASK |
	       MRC_CTL_EV_PROFILE_EV_FIELDS_OP;
	FAILS(mrc_ctl_query_ev_profile(context, PROFILE, &attr, mask), E2BIG);
	EQUAL(attr.ev_fields_op.field_count, 2);
	EQUAL(mrc_ctl_query_ev_profile(context, PROFILE, &attr, mask), 0);
	EQUAL(memcmp(read, fields, sizeof fields), 0);
	EQUAL(attr.cur_profile_state, MRC_CTL_PROFILE_ONLINE);
	EQUAL(attr.profile_state, 0); /* not asked for */
	EQUAL(attr.ev_mode, MRC_CTL_EV_MODE_GEN);
	EQUAL(attr.ev_fmt_profile_id, FORMAT);
	EQUAL(attr.ev_count, 6);
	EQUAL(attr.ev_event_mask, 0);
	attr = (struct mrc_ctl_ev_profile_attr){.ev_op = {MRC_CTL_EV_OP_QUERY_EV_ARRAY, evs, 6}};
	EQUAL(mrc_ctl_query_ev_profile(context, PROFILE, &attr, MRC_CTL_EV_PROFILE_EV_OP), 0);
	unsigned seen = 0;
	for (int i = 0; i < 6; i++) {
		EQUAL(evs[i].ev.val[0] & 0x1f, 0); /* three bits alone */
		seen |= 1 << (evs[i].ev.val[0] >> 5);
		CHECK(is_zero(evs[i].ev.val + 1, MRC_CTL_EV_MAX_BYTES - 1));
	}
	EQUAL(__builtin_popcount(seen), 6);
	forget_profiles(context);
	close_mrc(context);
}

static void congestion(char **sockets)
{
	struct mrc_context *context = open_mrc(sockets[0], 0);
	const struct mrc_ctl_cc_nscc_cfg config = {
		.adjust_bytes_threshold = 32768, .adjust_period_threshold = 12000, .base_rtt = 12000, .eta = 0.25f, .fi = 12.5f,
		.fi_scale = 0.5f, .gamma = 0.8f, .max_md_jump = 0.5f, .max_cwnd = 1 << 20, .qa_gate = 3,
		.qa_threshold = UINT32_MAX};
	struct mrc_ctl_cc_nscc_cfg read = {0};
	struct mrc_ctl_cc_profile_attr attr = {
		.profile_state = MRC_CTL_PROFILE_OFFLINE, .algorithm = "uet-1.0-nscc", .cc_config = &config};
	int all = MRC_CTL_CC_PROFILE_STATE | MRC_CTL_CC_PROFILE_ALGORITHM | MRC_CTL_CC_PROFILE_CONFIG;

	EQUAL(mrc_ctl_modify_cc_profile(context, 5, &attr, MRC_CTL_CC_PROFILE_STATE | MRC_CTL_CC_PROFILE_ALGORITHM), 0);
	FAILS(mrc_ctl_query_cc_profile(context, 5, &attr, MRC_CTL_CC_PROFILE_CONFIG), EINVAL); /* none yet */
	attr.profile_state = MRC_CTL_PROFILE_ONLINE;
	EQUAL(mrc_ctl_modify_cc_profile(context, 5, &attr, all), 0);
	attr = (struct mrc_ctl_cc_profile_attr){.cc_config = &read};
	EQUAL(mrc_ctl_query_cc_profile(context, 5, &attr, all), 0);
	EQUAL(attr.profile_state, MRC_CTL_PROFILE_ONLINE);
	EQUAL(strcmp(attr.algorithm, "uet-1.0-nscc"), 0);
	EQUAL(memcmp(&read, &config, sizeof config), 0);
	attr = (struct mrc_ctl_cc_profile_attr){0};
	EQUAL(mrc_ctl_query_cc_profile(context, 5, &attr, MRC_CTL_CC_PROFILE_CONFIG), 0);
	EQUAL(memcmp(attr.cc_config, &config, sizeof config), 0);
	EQUAL(attr.algorithm == NULL, 1); /* not asked for */
	FAILS(mrc_ctl_modify_cc_profile(context, 5, &attr, MRC_CTL_CC_PROFILE_CONFIG), EBUSY); /* ONLINE */
	FAILS(mrc_ctl_modify_cc_profile(context, 5, &attr, MRC_CTL_CC_PROFILE_ALGORITHM), EBUSY);
	attr.profile_state = MRC_CTL_PROFILE_OFFLINE;
	EQUAL(mrc_ctl_modify_cc_profile(context, 5, &attr, MRC_CTL_CC_PROFILE_STATE), 0);
	attr.algorithm = "cubic";
	FAILS(mrc_ctl_modify_cc_profile(context, 5, &attr, MRC_CTL_CC_PROFILE_ALGORITHM), EINVAL);
	attr.algorithm = NULL; /* no congestion control */
	EQUAL(mrc_ctl_modify_cc_profile(context, 5, &attr, MRC_CTL_CC_PROFILE_ALGORITHM), 0);
	attr.algorithm = "?";
	EQUAL(mrc_ctl_query_cc_profile(context, 5, &attr, MRC_CTL_CC_PROFILE_ALGORITHM), 0);
	CHECK(!attr.algorithm);
	read = config;
	read.gamma = 2;
	attr.cc_config = &read;
	FAILS(mrc_ctl_modify_cc_profile(context, 5, &attr, MRC_CTL_CC_PROFILE_CONFIG), EINVAL);
	attr.cc_config = NULL;
	FAILS(mrc_ctl_modify_cc_profile(context, 5, &attr, MRC_CTL_CC_PROFILE_CONFIG), EINVAL);
	attr.profile_state = MRC_CTL_PROFILE_INIT;
	EQUAL(mrc_ctl_modify_cc_profile(context, 5, &attr, MRC_CTL_CC_PROFILE_STATE), 0);
	close_mrc(context);
}

/* Profiles are the device's, the controller one program's until it ends. */
static void second_controller(char **sockets)
{
	struct mrc_context *first = open_mrc(sockets[0], 0), *second = open_mrc(sockets[0], 0);
	struct mrc_context *at_peer = open_mrc(sockets[1], 0);
	struct mrc_ctl_ev_fmt_profile_attr attr;

	make_format(first);
	FAILS(mrc_ctl_query_ev_fmt_profile(second, FORMAT, &attr, MRC_CTL_EV_FMT_PROFILE_STATE), EBUSY);
	EQUAL(mrc_ctl_query_ev_fmt_profile(at_peer, FORMAT, &attr, MRC_CTL_EV_FMT_PROFILE_STATE), 0);
	EQUAL(attr.profile_state, MRC_CTL_PROFILE_INIT);
	close_mrc(at_peer);
	close_mrc(first);
	/* The NIC process hears of the end a moment later. */
	while (mrc_ctl_query_ev_fmt_profile(second, FORMAT, &attr, MRC_CTL_EV_FMT_PROFILE_STATE))
		EQUAL(errno, EBUSY);
	EQUAL(attr.profile_state, MRC_CTL_PROFILE_ONLINE);
	EQUAL(set_format_state(second, MRC_CTL_PROFILE_OFFLINE), 0);
	EQUAL(set_format_state(second, MRC_CTL_PROFILE_INIT), 0);
	close_mrc(second);
}

static void unprivileged(char **sockets)
{
	struct mrc_context *context = open_mrc(sockets[0], 0);
	struct mrc_ctl_device_attr device;
	struct mrc_ctl_port_attr port = {0};
	struct mrc_ctl_ep_req request = {.ev_fmt_mode = MRC_CTL_EV_FMT_MODE_STEV};
	struct mrc_ctl_ep_rsp response;
	struct mrc_ctl_ev_fmt_profile_attr format = {0};
	struct mrc_ctl_ev_profile_attr ev = {0};
	struct mrc_ctl_cc_profile_attr cc = {0};
	int count = 7, supported = 0;

	FAILS(mrc_ctl_query_device(ibv_of(context), &device), EPERM);
	FAILS(mrc_ctl_query_device_ex(ibv_of(context), context, &device, &supported), EPERM);
	EQUAL(supported, 0);
	FAILS(mrc_ctl_query_port(context, 1, &port, MRC_CTL_PORT_ADMIN_STATE), EPERM);
	FAILS(mrc_ctl_modify_port(context, 1, &port, 0), EPERM);
	FAILS(set_format_state(context, MRC_CTL_PROFILE_OFFLINE), EPERM);
	FAILS(set_state(context, MRC_CTL_PROFILE_OFFLINE), EPERM);
	FAILS(mrc_ctl_modify_cc_profile(context, 5, &cc, MRC_CTL_CC_PROFILE_STATE), EPERM);
	FAILS(mrc_ctl_query_ev_fmt_profile(context, FORMAT, &format, MRC_CTL_EV_FMT_PROFILE_STATE), EPERM);
	FAILS(mrc_ctl_query_ev_profile(context, PROFILE, &ev, MRC_CTL_EV_PROFILE_STATE), EPERM);
	FAILS(mrc_ctl_query_cc_profile(context, 5, &cc, MRC_CTL_CC_PROFILE_STATE), EPERM);
	CHECK(!mrc_ctl_create_ev_event_cq(context, 16, NULL, NULL, 0));
	EQUAL(errno, EPERM);
	FAILS(mrc_ctl_ep_batch_send_wait(context, 0, MRC_CTL_EP_OP_EV_PROBE, &request, 1, 1000000, &response, &count), EPERM);
	EQUAL(count, 0);
	close_mrc(context);
}

/* Write over all paths, of which the test has cut two: one event for each. */
static void ev_events(char **sockets, uint32_t version, size_t size)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);
	struct mrc_context_attr versions = {.mrc_api_version_used = version};
	struct mrc_context *context = mrc_create_context(pair.a.context, &versions);
	struct mrc_comp_channel *channel;
	uint8_t bytes[5 * sizeof(struct mrc_ctl_ev_event)];
	struct ibv_wc wc;
	void *cq_context;

	CHECK(context);
	EQUAL(mrc_create_comp_channel(context, &channel), 0);
	struct mrc_cq *cq = mrc_ctl_create_ev_event_cq(context, 16, &pair, channel, 0), *announced;
	CHECK(cq);
	EQUAL(mrc_ctl_poll_ev_event(cq, 4, (void *)bytes), 0);
	EQUAL(mrc_poll_cq(cq, 1, &wc), -1); /* it holds no completions */
	EQUAL(mrc_req_notify_cq(cq, 0), 0);
	EQUAL(mrc_destroy_comp_channel(channel), EBUSY);
	for (int i = 0; i < 200; i++)
		write_and_check(&pair.a, &pair.b, 0, 20000, i);
	EQUAL(mrc_get_cq_event(channel, &announced, &cq_context), 0);
	CHECK(announced == cq && cq_context == &pair);
	mrc_ack_cq_events(cq, 1);
	memset(bytes, 0xee, sizeof bytes);
	int count = 0, taken;
	while (count < 2) {
		taken = mrc_ctl_poll_ev_event(cq, 4 - count, (void *)(bytes + count * size));
		CHECK(taken >= 0);
		count += taken;
	}
	EQUAL(count, 2);
	unsigned uplinks = 0;
	for (int i = 0; i < 2; i++) {
		struct mrc_ctl_ev_event event = {.state = MRC_CTL_EV_ASSUMED_BAD};
		memcpy(&event, bytes + i * size, size);
		EQUAL(event.profile_id, 0);
		EQUAL(event.drop_count, 0);
		EQUAL(event.state, MRC_CTL_EV_ASSUMED_BAD);
		EQUAL(event.ev.val[2] + 1, event.ev.port); /* plane; an EV of AUTO has 32 bits */
		uplinks |= 1 << (event.ev.val[2] * 2 + event.ev.val[3]);
	}
	EQUAL(uplinks, 1 << 1 | 1 << 2);
	for (size_t i = 2 * size; i < sizeof bytes; i++)
		EQUAL(bytes[i], 0xee); /* nothing behind the events that came */
	struct mrc_cq *usual = mrc_create_cq(context, 16, NULL, NULL, 0);
	EQUAL(mrc_ctl_poll_ev_event(usual, 1, (void *)bytes), -EINVAL);
	EQUAL(mrc_destroy_cq(usual), 0);
	EQUAL(mrc_destroy_cq(cq), 0);
	EQUAL(mrc_destroy_comp_channel(channel), 0);
	EQUAL(mrc_destroy_context(context), 0);
	close_pair(&pair);
}

static void events(char **sockets)
{
	ev_events(sockets, MRC_API_VER(1, 0, 1), 56);
}

static void old_events(char **sockets)
{
	ev_events(sockets, MRC_API_VER(1, 0, 0), 48);
}

static struct mrc_ctl_ep_req probe_of(struct mrc_context *from, struct mrc_context *to, int id, int plane, int uplink)
{
	struct mrc_ctl_ep_req request = {
		.req_id = id, .ev_fmt_mode = MRC_CTL_EV_FMT_MODE_STEV, .req_ev = {{0, 0, plane, uplink}, plane + 1}};

	CHECK(!ibv_query_gid(ibv_of(from), plane + 1, 0, &request.sgid));
	CHECK(!ibv_query_gid(ibv_of(to), plane + 1, 0, &request.dgid));
	return request;
}

static int probe(struct mrc_context *context, struct mrc_ctl_ep_req *requests, int count, struct mrc_ctl_ep_rsp *responses,
		 int *response_count)
{
	return mrc_ctl_ep_batch_send_wait(context, 10, MRC_CTL_EP_OP_EV_PROBE, requests, count, 4000000000u, responses,
					  response_count);
}

/* The paths of plane 0, uplink 1 and plane 1, uplink 0 are cut: 48 of 96 probes are answered. */
static void probes(char **sockets)
{
	struct mrc_context *a = open_mrc(sockets[0], 0), *b = open_mrc(sockets[1], 0);
	struct mrc_ctl_ep_req requests[96];
	struct mrc_ctl_ep_rsp responses[96];
	int count = -1;

	for (int i = 0; i < 96; i++)
		requests[i] = probe_of(a, b, 1000 + i, i & 1, i >> 1 & 1);
	FAILS(probe(a, requests, 96, responses, &count), ETIMEDOUT);
	EQUAL(count, 48);
	for (int i = 0; i < count; i++) {
		int number = responses[i].req_id - 1000;
		CHECK(number >= 0 && number < 96 && (number % 4 == 0 || number % 4 == 3));
		EQUAL(responses[i].port, (number & 1) + 1);
		EQUAL(responses[i].rtt, 10000000); /* twice the wire's delay */
	}
	memset(&requests[0].sgid, 0, sizeof requests[0].sgid); /* that of the port */
	EQUAL(probe(a, requests, 1, responses, &count), 0);
	EQUAL(count, 1);

	requests[1] = requests[0];
	FAILS(probe(a, requests, 2, responses, &count), EINVAL); /* one id twice */
	EQUAL(count, 0);
	requests[0].sgid = requests[0].dgid;
	FAILS(probe(a, requests, 1, responses, &count), EINVAL); /* not ours */
	requests[0] = probe_of(a, b, 1, 1, 1);
	requests[0].ev_fmt_mode = MRC_CTL_EV_FMT_MODE_UDP; /* 16 bits, and these are 32 */
	FAILS(probe(a, requests, 1, responses, &count), EINVAL);
	requests[0].ev_fmt_mode = 0;
	FAILS(probe(a, requests, 1, responses, &count), EINVAL);
	FAILS(mrc_ctl_ep_batch_send_wait(a, 0, MRC_CTL_EP_OP_PORT_STATUS_UPDATE, requests + 2, 1, 1000, responses, &count),
	      ENOTSUP);
	FAILS(mrc_ctl_ep_batch_send_wait(a, 64, MRC_CTL_EP_OP_EV_PROBE, requests + 2, 1, 1000, responses, &count), EINVAL);
	FAILS(mrc_ctl_ep_batch_send_wait(a, 0, MRC_CTL_EP_OP_EV_PROBE, requests + 2, 1, 0, responses, &count), EINVAL);
	FAILS(probe(a, requests, 0, responses, &count), EINVAL);
	close_mrc(a);
	close_mrc(b);
}

/* ---- QPs with an explicit profile: over SRv6 EVs of plane and uplink, which a live host has too ---- */

static void make_srv6_profile(struct mrc_context *context)
{
	struct mrc_ctl_ev_fmt_field fields[] = {{8}, {8}};
	struct mrc_ctl_ev_fmt_profile_attr format = {
		.profile_state = MRC_CTL_PROFILE_OFFLINE, .ev_fmt_mode = MRC_CTL_EV_FMT_MODE_SRV6,
		.ev_fmt_op = {MRC_CTL_EV_FMT_OP_MODIFY_FIELDS, fields, 2}};
	struct mrc_ctl_ev_op_entry entries[4];
	struct mrc_ctl_ev_profile_attr attr = {
		.profile_state = MRC_CTL_PROFILE_OFFLINE, .ev_mode = MRC_CTL_EV_MODE_EXP, .ev_fmt_profile_id = FORMAT,
		.ev_count = 4, .ev_op = {MRC_CTL_EV_OP_REPLACE_EV, entries, 4}};
	int fmt_mask = MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_MODE | MRC_CTL_EV_FMT_PROFILE_OP;
	int mask = MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_MODE | MRC_CTL_EV_PROFILE_FMT_ID |
		   MRC_CTL_EV_PROFILE_COUNT | MRC_CTL_EV_PROFILE_EV_OP;

	for (int i = 0; i < 4; i++)
		entries[i] = (struct mrc_ctl_ev_op_entry){.ev_new = ev_of(i & 1, i >> 1), .state = MRC_CTL_EV_GOOD};
	EQUAL(mrc_ctl_modify_ev_fmt_profile(context, FORMAT, &format, fmt_mask), 0);
	EQUAL(set_format_state(context, MRC_CTL_PROFILE_ONLINE), 0);
	EQUAL(mrc_ctl_modify_ev_profile(context, PROFILE, &attr, mask), 0);
	EQUAL(set_state(context, MRC_CTL_PROFILE_ONLINE), 0);
}

/* Have the end's QP anew, with the explicit profile. */
static struct mrc_qp *use_profile(struct mrc_context *context, struct end *end)
{
	struct mrc_qp_init_attr init = {.cap = USUAL_SIZES.cap, .pd = end->pd};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = WRITE_ACCESS};
	struct mrc_qp_attr mrc_attr = {.profile = {.ev_profile_id = PROFILE}};

	EQUAL(ibv_destroy_qp(end->qp), 0);
	EQUAL(ibv_destroy_cq(end->send_cq), 0);
	EQUAL(ibv_destroy_cq(end->recv_cq), 0);
	CHECK(init.send_cq = mrc_create_cq(context, 64, NULL, NULL, 0));
	CHECK(init.recv_cq = mrc_create_cq(context, 64, NULL, NULL, 0));
	end->send_cq = *(struct ibv_cq **)init.send_cq; /* the first member */
	end->recv_cq = *(struct ibv_cq **)init.recv_cq;
	struct mrc_qp *qp = mrc_create_qp(context, &init);
	CHECK(qp);
	end->qp = *(struct ibv_qp **)qp;
	EQUAL(mrc_modify_qp(qp, &attr, 1 << 0 | 1 << 4 | 1 << 5 | 1 << 3, &mrc_attr, MRC_QP_EV_PROFILE_ID), 0);
	return qp;
}

static void used_profile(char **sockets)
{
	struct pair pair = open_pair(sockets, USUAL_SIZES);
	struct mrc_context *context = mrc_create_context(pair.a.context, NULL);
	struct mrc_ctl_ev_op_entry entry = {.ev = ev_of(0, 1), .state = MRC_CTL_EV_DENIED};

	make_srv6_profile(context);
	struct mrc_qp *qp = use_profile(context, &pair.a);
	bring_up(&pair.a, &pair.b); /* INIT again leaves the profile as it is */
	EQUAL(ibv_modify_qp(pair.b.qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_RESET}, 1), 0);
	bring_up(&pair.b, &pair.a);
	for (int i = 0; i < 20; i++)
		write_and_check(&pair.a, &pair.b, 0, 20000, i);
	FAILS(set_state(context, MRC_CTL_PROFILE_OFFLINE), EBUSY);
	EQUAL(run_op(context, MRC_CTL_EV_OP_MODIFY_EV_STATE, &entry, 1), 0);
	EQUAL(run_op(context, MRC_CTL_EV_OP_QUERY_EV_STATE, &entry, 1), 0);
	EQUAL(entry.state, MRC_CTL_EV_DENIED);
	write_and_check(&pair.a, &pair.b, 0, 20000, 99);
	struct mrc_qp_init_attr init;
	struct mrc_qp_attr mrc_attr;
	struct ibv_qp_attr attr;
	EQUAL(mrc_query_qp(qp, &attr, IBV_QP_STATE, &mrc_attr, MRC_QP_EV_PROFILE_ID, &init), 0);
	EQUAL(mrc_attr.profile.ev_profile_id, PROFILE);
	EQUAL(mrc_destroy_qp(qp), 0);
	EQUAL(mrc_destroy_cq(init.send_cq), 0);
	EQUAL(mrc_destroy_cq(init.recv_cq), 0);
	forget_profiles(context);
	EQUAL(mrc_destroy_context(context), 0);
	EQUAL(ibv_destroy_comp_channel(pair.a.channel), 0);
	EQUAL(ibv_dereg_mr(pair.a.mr), 0);
	EQUAL(ibv_dealloc_pd(pair.a.pd), 0);
	EQUAL(ibv_close_device(pair.a.context), 0);
	free(pair.a.memory);
	close_end(&pair.b);
}

/* ---- on the ports of a host ---- */

static void wait_for_port(struct ibv_context *context, int number, int state)
{
	struct ibv_port_attr port;
	double deadline = now_s() + PATIENCE_S;

	do {
		EQUAL(ibv_query_port(context, number, &port), 0);
		CHECK(now_s() < deadline);
	} while ((int)port.state != state);
}

static void live(char **sockets)
{
	struct mrc_context *a = open_mrc(sockets[0], 0), *b = open_mrc(sockets[1], 0);
	struct mrc_ctl_port_attr port = {MRC_CTL_PORT_ADMIN_DISABLED};
	struct mrc_ctl_ep_req requests[4];
	struct mrc_ctl_ep_rsp responses[4];
	int count = 0;

	for (int i = 0; i < 4; i++) {
		requests[i] = probe_of(a, b, i, i & 1, i >> 1);
		requests[i].ev_fmt_mode = MRC_CTL_EV_FMT_MODE_SRV6;
		requests[i].req_ev = (struct mrc_ctl_ev){.port = (i & 1) + 1};
		requests[i].req_ev.val[14] = i & 1; /* the EV of the T1 uSID, in place of a whole address */
		requests[i].req_ev.val[15] = i >> 1;
	}
	EQUAL(probe(a, requests, 4, responses, &count), 0);
	EQUAL(count, 4);
	for (int i = 0; i < 4; i++)
		CHECK(responses[i].rtt > 0 && responses[i].port == (responses[i].req_id & 1) + 1);
	EQUAL(mrc_ctl_modify_port(a, 2, &port, MRC_CTL_PORT_ADMIN_STATE), 0);
	wait_for_port(ibv_of(a), 2, IBV_PORT_DOWN);
	FAILS(mrc_ctl_ep_batch_send_wait(a, 0, MRC_CTL_EP_OP_EV_PROBE, requests, 4, 300000000, responses, &count), ETIMEDOUT);
	EQUAL(count, 2);
	port.port_admin_state = MRC_CTL_PORT_ADMIN_ENABLED;
	EQUAL(mrc_ctl_modify_port(a, 2, &port, MRC_CTL_PORT_ADMIN_STATE), 0);
	wait_for_port(ibv_of(a), 2, IBV_PORT_ACTIVE);
	close_mrc(a);
	close_mrc(b);
}

static const struct test tests[] = {
	{"device", device},
	{"ports", ports},
	{"formats", formats},
	{"explicit_evs", explicit_evs},
	{"all_copies", all_copies},
	{"generated_evs", generated_evs},
	{"congestion", congestion},
	{"second_controller", second_controller},
	{"unprivileged", unprivileged},
	{"events", events},
	{"old_events", old_events},
	{"probes", probes},
	{"used_profile", used_profile},
	{"live", live},
};

RUN_TESTS(tests)
