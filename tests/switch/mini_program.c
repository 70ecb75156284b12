/* A program written by hand against p4rt.h: the test of that interface, and of the runtime without the compiler.
 *
 * Frame: Ethernet (14 bytes), then op (1 byte), then 7 bytes of key: a.32, b.16, c.8. The op chooses the table:
 *   0 by_mac   exact  dst.48            3 by_acl  ternary b.16, range c.8, optional op.8
 *   1 by_addr  lpm    a.32              4 by_hash exact c.8, action selector on src.48
 *   2 by_both  exact c.8, lpm a.32      5 no table: register 0 counts, frame goes back where it came from
 * Actions: forward(port.9), push(port.9, tag.16): 4 bytes grown after the addresses, pop(port.9): the inverse,
 * cut(port.9, bytes.16): truncate, copy_wide(value.72): writes the low 8 bits of value to c, drop().
 */
#include "p4rt.h"

enum { FORWARD, PUSH, POP, CUT, COPY_WIDE, DROP };
enum { BY_MAC, BY_ADDR, BY_BOTH, BY_ACL, BY_HASH };

struct phv {
    uint8_t head[22]; /* Ethernet, op, a, b, c */
    uint16_t tag;
    uint8_t valid, pushed, popped;
};

static const struct p4rt_field_desc forward_params[] = {{"port", 1, 9, P4RT_EXACT}};
static const struct p4rt_field_desc push_params[] = {{"port", 1, 9, P4RT_EXACT}, {"tag", 2, 16, P4RT_EXACT}};
static const struct p4rt_field_desc cut_params[] = {{"port", 1, 9, P4RT_EXACT}, {"bytes", 2, 16, P4RT_EXACT}};
static const struct p4rt_field_desc wide_params[] = {{"value", 1, 72, P4RT_EXACT}};

static const struct p4rt_action_desc actions[] = {
    [FORWARD] = {"forward", 0x01000001, 1, forward_params, 2},
    [PUSH] = {"push", 0x01000002, 2, push_params, 4},
    [POP] = {"pop", 0x01000003, 1, forward_params, 2},
    [CUT] = {"cut", 0x01000004, 2, cut_params, 4},
    [COPY_WIDE] = {"copy_wide", 0x01000005, 1, wide_params, 9},
    [DROP] = {"drop", 0x01000006, 0, NULL, 0},
};

static const struct p4rt_field_desc mac_key[] = {{"dst", 1, 48, P4RT_EXACT}};
static const struct p4rt_field_desc addr_key[] = {{"a", 1, 32, P4RT_LPM}};
static const struct p4rt_field_desc both_key[] = {{"c", 1, 8, P4RT_EXACT}, {"a", 2, 32, P4RT_LPM}};
static const struct p4rt_field_desc acl_key[] = {
    {"b", 1, 16, P4RT_TERNARY}, {"c", 2, 8, P4RT_RANGE}, {"op", 3, 8, P4RT_OPTIONAL}};
static const struct p4rt_field_desc hash_key[] = {{"c", 1, 8, P4RT_EXACT}};
static const uint32_t all_actions[] = {FORWARD, PUSH, POP, CUT, COPY_WIDE, DROP};

static const struct p4rt_init_entry both_entries[] = {
    {(const uint8_t *)"\xee\x0a\x00\x00\x00", (const uint8_t *)"\xff\xff\x00\x00\x00", 0, FORWARD,
     (const uint8_t *)"\x00\x09", 0}};

static const struct p4rt_table_desc tables[] = {
    [BY_MAC] = {"by_mac", 0x02000001, 1, mac_key, 6, 1024, 6, all_actions, P4RT_NONE, DROP, NULL, P4RT_COUNT_BOTH, 0,
                NULL, 1},
    [BY_ADDR] = {"by_addr", 0x02000002, 1, addr_key, 4, 16384, 6, all_actions, P4RT_NONE, FORWARD,
                 (const uint8_t *)"\x01\xfd", P4RT_COUNT_NONE, 0, NULL, 0},
    [BY_BOTH] = {"by_both", 0x02000003, 2, both_key, 5, 64, 6, all_actions, P4RT_NONE, P4RT_NONE, NULL,
                 P4RT_COUNT_NONE, 1, both_entries, 0},
    [BY_ACL] = {"by_acl", 0x02000004, 3, acl_key, 4, 512, 6, all_actions, P4RT_NONE, DROP, NULL, P4RT_COUNT_PACKETS, 0,
                NULL, 0},
    [BY_HASH] = {"by_hash", 0x02000005, 1, hash_key, 1, 8, 6, all_actions, 0, DROP, NULL, P4RT_COUNT_NONE, 0, NULL, 0},
};
static const struct p4rt_profile_desc profiles[] = {{"spray", 0x11000001, 8, 16, 1}};
static const struct p4rt_counter_desc counters[] = {{"by_port", 0x12000001, 16, P4RT_COUNT_BOTH}};
static const struct p4rt_register_desc registers[] = {{"seen", 0x16000001, 4, 128}};

static void run(struct p4rt_packet *pkt, const struct p4rt_action *act)
{
    struct phv *phv = pkt->phv;
    if (!act)
        return;
    switch (act->action) {
    case PUSH:
        phv->pushed = 1;
        phv->tag = (uint16_t)p4rt_get(act->params + 2, 2);
        break;
    case POP:
        phv->popped = 1;
        break;
    case CUT:
        pkt->truncate = (uint32_t)p4rt_get(act->params + 2, 2);
        break;
    case COPY_WIDE:
        phv->head[21] = (uint8_t)p4rt_get128(act->params, 9);
        pkt->std.egress_spec = pkt->std.ingress_port;
        return;
    case DROP:
        pkt->std.egress_spec = P4RT_DROP_PORT;
        return;
    }
    pkt->std.egress_spec = (uint16_t)p4rt_get(act->params, 2);
}

static void ingress(struct p4rt_device *dev, struct p4rt_packet *pkt)
{
    struct phv *phv = pkt->phv;
    struct p4rt_entry *entry;
    union { uint64_t words[1]; uint8_t bytes[8]; } key = {.words = {0}};

    memset(phv, 0, sizeof *phv);
    pkt->std.egress_spec = P4RT_DROP_PORT;
    p4rt_count(dev, 0, pkt->std.ingress_port, pkt);
    if (pkt->len < sizeof phv->head)
        return;
    memcpy(phv->head, pkt->data, sizeof phv->head);
    phv->valid = 1;
    switch (phv->head[14]) {
    case 0:
        memcpy(key.bytes, phv->head, 6);
        run(pkt, p4rt_apply(dev, BY_MAC, key.words, 6, pkt)->act);
        break;
    case 1:
        memcpy(key.bytes, phv->head + 15, 4);
        run(pkt, p4rt_apply(dev, BY_ADDR, key.words, 4, pkt)->act);
        break;
    case 2:
        key.bytes[0] = phv->head[21];
        memcpy(key.bytes + 1, phv->head + 15, 4);
        run(pkt, p4rt_apply(dev, BY_BOTH, key.words, 5, pkt)->act);
        break;
    case 4:
        key.bytes[0] = phv->head[21];
        entry = p4rt_apply(dev, BY_HASH, key.words, 1, pkt);
        run(pkt, entry->group ? p4rt_pick(entry->group, p4rt_crc32(dev, phv->head + 6, 6)) : entry->act);
        break;
    case 5:
        p4rt_register_write(dev, 0, phv->head[21], p4rt_register_read(dev, 0, phv->head[21], 0) + 1);
        pkt->std.egress_spec = pkt->std.ingress_port;
        break;
    default:
        memcpy(key.bytes, phv->head + 19, 3);
        key.bytes[3] = phv->head[14];
        run(pkt, p4rt_apply(dev, BY_ACL, key.words, 4, pkt)->act);
    }
}

static void parse(struct p4rt_device *dev, struct p4rt_packet *pkt)
{
    (void)dev, (void)pkt;
}

static void forget(struct p4rt_packet *pkt)
{
    (void)pkt;
}

static void deparse(struct p4rt_device *dev, struct p4rt_packet *pkt)
{
    struct phv *phv = pkt->phv;

    (void)dev;
    pkt->data[21] = phv->head[21];
    if (phv->pushed) {
        pkt->data -= 4;
        pkt->len += 4;
        memcpy(pkt->data, phv->head, 12);
        p4rt_put(pkt->data + 12, 0x8100, 2);
        p4rt_put(pkt->data + 14, phv->tag, 2);
    } else if (phv->popped) {
        pkt->data += 4;
        pkt->len -= 4;
        memcpy(pkt->data, phv->head, 12);
    }
}

const struct p4_program p4_program = {
    .abi = P4RT_ABI, .phv_bytes = sizeof(struct phv), .name = "mini", .parse = parse, .ingress = ingress,
    .egress = parse, .deparse = deparse, .forget = forget,
    .n_actions = 6, .n_tables = 5, .n_profiles = 1, .n_counters = 1, .n_registers = 1,
    .actions = actions, .tables = tables, .profiles = profiles, .counters = counters, .registers = registers,
};
