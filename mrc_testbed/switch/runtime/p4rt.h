/* p4rt.h: what a generated P4 program and the runtime know of each other.
 *
 * The compiler (mrc_testbed/switch/compiler) writes one C file per program; it includes this header, is compiled to one shared object
 * that needs nothing but libc, and exports exactly one symbol:
 *
 *     const struct p4_program p4_program = { .abi = P4RT_ABI, ... };
 *
 * The runtime (the other files of this folder) opens it, allocates the state which the descriptor asks for, installs
 * the initial entries, and then calls, packet by packet,
 *
 *     program->ingress(dev, pkt)      parse, verify checksums, ingress control
 *     (runtime: clone, resubmit, replicate, drop: pipeline.c; the traffic manager: traffic.c)
 *     program->egress(dev, pkt)       egress control
 *     (runtime: clone, drop)
 *     program->deparse(dev, pkt)      compute checksums, deparse in place
 *     (runtime: recirculate, or send)
 *
 * Conventions
 *   * Bit fields are native integers inside the program and big-endian bytes, each field padded to whole bytes
 *     (value right-aligned), wherever they cross this interface: table keys, action parameters.
 *   * A table key is the fields of the P4 key in order, concatenated (`selector` fields left out), in a buffer of
 *     P4RT_WORDS(key_bytes) 64-bit words whose last bytes are zero:  uint64_t key[P4RT_WORDS(6)] = {0};
 *   * Action indexes are positions in program->actions; table, profile, counter and register indexes are positions
 *     in their arrays. P4Info ids appear only in descriptors.
 *   * One device is never entered by two threads at once: the runtime holds the device's lock around every call.
 */
#ifndef P4RT_H
#define P4RT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define P4RT_ABI 8
#define P4RT_SYMBOL "p4_program"

#define P4RT_HEADROOM 256     /* bytes in front of a frame that a deparser may grow into */
#define P4RT_MAX_FRAME 16384  /* longest frame, bytes, before and after the deparser may have grown it */
#define P4RT_DROP_PORT 511    /* v1model: egress_spec of a dropped packet */
#define P4RT_MAX_KEY_WORDS 64 /* longest table key, 64-bit words (512 bytes) */
#define P4RT_NONE UINT32_MAX  /* "no such index" in descriptors */

#define P4RT_WORDS(bytes) (((bytes) + 7) / 8 + ((bytes) == 0)) /* 64-bit words of a key; at least 1 */

/* ---- packet ---------------------------------------------------------------------------------------------- */

/* standard_metadata_t of v1model, widened to native integers, with simple_switch's meanings and units. The runtime
 * fills in ingress_port, packet_length, instance_type, the timestamps and (issue: traffic manager) the queue
 * fields, and zeroes the rest before ingress; between ingress and egress it sets egress_port = egress_spec and
 * egress_spec = 0, as simple_switch does. */
struct p4rt_std {
    uint16_t ingress_port;
    uint16_t egress_spec;             /* P4RT_DROP_PORT after ingress or egress: the packet is dropped */
    uint16_t egress_port;
    uint16_t mcast_grp;
    uint32_t instance_type;           /* 0 normal, 1 ingress clone, 2 egress clone, 4 recirc, 5 replication, 6 resubmit */
    uint32_t packet_length;           /* bytes, as received; in the egress with `grown` */
    uint32_t enq_timestamp;           /* microseconds */
    uint32_t enq_qdepth;              /* packets */
    uint32_t deq_timedelta;           /* microseconds in the queue */
    uint32_t deq_qdepth;              /* packets */
    uint64_t ingress_global_timestamp;/* microseconds since the device started */
    uint64_t egress_global_timestamp;
    uint32_t parser_error;            /* number of the error in the program's order; 0 NoError */
    uint16_t egress_rid;
    uint8_t checksum_error;
    uint8_t priority;                 /* intrinsic priority of the packet, 0..7 */
};

struct p4rt_packet {
    uint8_t *data;         /* first byte of the frame; a deparser moves it by (old - new) header bytes */
    uint32_t len;          /* bytes at data */
    uint32_t received;     /* bytes as it came in: what counters and meters count */
    int32_t grown;         /* bytes of headers that setValid and setInvalid of the controls added, less those taken away */
    uint32_t headroom;     /* writable bytes in front of data; at least P4RT_HEADROOM when ingress is called */
    uint32_t truncate;     /* truncate(n): the runtime cuts the deparsed frame to this; UINT32_MAX: no cut */
    uint32_t asked;        /* enum p4rt_ask: what the program asked the runtime to do when the pipeline ends */
    uint32_t clone_session, clone_list; /* of P4RT_ASK_CLONE; list of fields to keep, or P4RT_NONE */
    uint32_t again_list;   /* of P4RT_ASK_AGAIN: the same */
    uint32_t kept_list;    /* of `kept` */
    uint32_t rounds;       /* times the packet has been copied or sent round */
    const void *kept;      /* phv of the packet that this is a copy of: the program takes the fields of kept_list from
                            * it before it parses; NULL: it begins with nothing */
    void *phv;             /* program->phv_bytes bytes, 16-byte aligned, contents undefined at ingress, kept until
                            * egress has returned; the program initialises what it needs */
    struct p4rt_std std;
};

enum p4rt_ask {
    P4RT_ASK_CLONE = 1,    /* clone: I2E in the ingress, E2E in the egress */
    P4RT_ASK_AGAIN = 2,    /* resubmit in the ingress, recirculate in the egress */
    P4RT_ASK_STOP = 4,     /* an assert or assume was false: the packet is dropped, and nothing else it asked for is done */
};

/* ---- descriptors: constant data of the program ------------------------------------------------------------ */

enum p4rt_match { P4RT_EXACT = 0, P4RT_LPM = 1, P4RT_TERNARY = 2, P4RT_RANGE = 3, P4RT_OPTIONAL = 4 };
enum p4rt_count { P4RT_COUNT_NONE = 0, P4RT_COUNT_PACKETS = 1, P4RT_COUNT_BYTES = 2, P4RT_COUNT_BOTH = 3 };

struct p4rt_field_desc {
    const char *name;      /* as in P4Info */
    uint32_t id;           /* match field id (1, 2, ...) or parameter id */
    uint32_t bits;
    enum p4rt_match match; /* of key fields; P4RT_EXACT for parameters */
};

struct p4rt_action_desc {
    const char *name;
    uint32_t id;
    uint32_t n_params;
    const struct p4rt_field_desc *params;
    uint32_t params_bytes; /* sum of the byte widths */
    uint32_t metered;      /* it reads the direct meter of its table */
};

/* One entry present from the start (`const entries`, `entries`). Encoding of key and aux: see struct p4rt_entry. */
struct p4rt_init_entry {
    const uint8_t *key, *aux;
    int32_t priority;      /* larger wins; 0 in tables of exact and lpm fields */
    uint32_t action;
    const uint8_t *params;
    uint32_t constant;     /* 1: `const`: only its direct resources may change */
};

struct p4rt_table_desc {
    const char *name;
    uint32_t id;
    uint32_t n_fields;
    const struct p4rt_field_desc *fields;
    uint32_t key_bytes;    /* sum of the byte widths; 0: a table without key, always its default */
    uint32_t size;         /* most entries it holds */
    uint32_t n_actions;
    const uint32_t *actions;              /* indexes */
    uint32_t profile;                     /* index of its action profile or selector, or P4RT_NONE */
    uint32_t default_action;              /* index of the initial default action, or P4RT_NONE: a miss does nothing */
    const uint8_t *default_params;
    enum p4rt_count direct_counter;
    uint32_t n_entries;
    const struct p4rt_init_entry *entries;
    uint32_t idle_timeout;                /* 1: support_timeout: entries know when they were hit last */
};

struct p4rt_profile_desc {
    const char *name;
    uint32_t id;
    uint32_t size;              /* most members */
    uint32_t max_group_size;    /* largest sum of weights of a group; 0: no bound but size */
    uint32_t selector;          /* 1: has groups (action_selector) */
};

struct p4rt_counter_desc {
    const char *name;
    uint32_t id;
    uint32_t size;
    enum p4rt_count kind;
};

struct p4rt_register_desc {
    const char *name;
    uint32_t id;
    uint32_t size;
    uint32_t bits;
};

struct p4rt_meter_desc {
    const char *name;
    uint32_t id;
    uint32_t size;
    uint32_t bytes;             /* 1: counts bytes, 0: packets */
};

struct p4rt_digest_desc {
    const char *name;
    uint32_t id;
};

/* A type that the control plane sees translated to another width: its own. */
struct p4rt_type_desc {
    const char *name;
    uint32_t bits;
};

struct p4rt_device;
struct p4_program;

/* The one symbol a program exports; everything is built with -fvisibility=hidden. */
extern const struct p4_program p4_program __attribute__((visibility("default")));

struct p4_program {
    uint32_t abi;                          /* P4RT_ABI */
    uint32_t phv_bytes;
    const char *name;
    void (*parse)(struct p4rt_device *, struct p4rt_packet *);    /* the parser alone: for a clone of what came in */
    void (*ingress)(struct p4rt_device *, struct p4rt_packet *);
    void (*egress)(struct p4rt_device *, struct p4rt_packet *);
    void (*deparse)(struct p4rt_device *, struct p4rt_packet *);
    void (*forget)(struct p4rt_packet *);                         /* metadata as they begin, but those of kept_list */
    uint32_t n_actions, n_tables, n_profiles, n_counters, n_registers, n_digests, n_meters;
    const struct p4rt_action_desc *actions;
    const struct p4rt_table_desc *tables;
    const struct p4rt_profile_desc *profiles;
    const struct p4rt_counter_desc *counters;
    const struct p4rt_register_desc *registers;
    const struct p4rt_digest_desc *digests;
    const struct p4rt_meter_desc *meters;
    uint32_t n_types;
    const struct p4rt_type_desc *types;    /* of headers of packet-ins and packet-outs */
    const struct p4rt_trace_field *trace;  /* ends with a name of NULL; NULL: not compiled for tracing */
};

/* ---- state: allocated by the runtime, read by the program through the functions below ----------------------- */

/* An action bound to its parameters: what runs. */
struct p4rt_action {
    uint32_t action;            /* index in program->actions */
    uint32_t member;            /* id of the action profile member this is; 0: none */
    uint8_t *params;            /* params_bytes bytes */
};

/* Live choices of one selector group: members whose watch port is down are left out, a member of weight w stands
 * w times. Rebuilt when members, weights or watched ports change, so that a packet pays one modulo. */
struct p4rt_group {
    uint32_t n_live;
    uint32_t id;
    const struct p4rt_action **live;
};

struct p4rt_cell {
    uint64_t packets, bytes;
};

/* Rates in packets or bytes a second, bursts in packets or bytes; tokens in millionths of these. */
struct p4rt_meter_cell {
    uint64_t configured;        /* 0: always green */
    uint64_t cir, cburst, pir, pburst;
    uint64_t c_tokens, p_tokens, last_us;
};

/* A table entry. key and aux are key_bytes long, per field:
 *   exact     key = value, aux = all ones of the field's width
 *   lpm       key = value, aux = mask of the prefix        (bits outside the mask are zero in key)
 *   ternary   key = value, aux = mask                      (same)
 *   optional  as ternary, aux all ones or zero
 *   range     key = low,   aux = high */
struct p4rt_entry {
    const struct p4rt_action *act;    /* what runs on a match; NULL: nothing (or ask group) */
    const struct p4rt_group *group;   /* not NULL: the action is p4rt_pick(group, hash) */
    struct p4rt_cell count;           /* direct counter; counts in tables with p4rt_table.noted */
    uint64_t hit_us;                  /* program's time of the last hit, or of the insertion; there too */
    struct p4rt_meter_cell *meter;    /* direct meter; NULL: not configured */
    uint64_t *value, *mask;           /* words compared with the key: (key & mask) == value; range fields are 0 */
    uint8_t *key, *aux;
    int32_t priority;
    uint32_t hit;                     /* 1; 0 in a table's default entry */
    struct p4rt_action own;           /* storage when the action is the entry's own */
};

/* Open addressing, linear probing, power-of-two capacity, at most half full: a miss ends at an empty slot. */
struct p4rt_slot {
    uint64_t hash;
    struct p4rt_entry *entry;         /* NULL: empty */
};

/* The entries of one mask: all of an exact table, those of one prefix length of an lpm table. */
struct p4rt_hash {
    struct p4rt_slot *slots;
    uint64_t limit;                   /* capacity - 1 */
    uint32_t used;
    uint32_t prefix_bits;
    uint64_t *mask;                   /* words; NULL in an exact table */
};

enum p4rt_search { P4RT_SEARCH_NONE = 0, P4RT_SEARCH_EXACT = 1, P4RT_SEARCH_LPM = 2, P4RT_SEARCH_LIST = 3 };

struct p4rt_range { uint32_t offset, bytes; };

struct p4rt_table {
    enum p4rt_search search;
    uint32_t words;                   /* of a key */
    struct p4rt_hash *hashes;         /* exact: one; lpm: longest prefix first */
    uint32_t n_hashes;
    uint32_t n_list;                  /* list: entries by falling priority, the older first among equals */
    struct p4rt_entry **list;
    const struct p4rt_range *ranges;  /* range fields of the key */
    uint32_t n_ranges;
    uint32_t noted;                   /* 1: it has a direct counter or idle timeouts */
    struct p4rt_entry miss;           /* the default entry */
};

struct p4rt_counter { struct p4rt_cell *cells; uint32_t size; enum p4rt_count kind; };
struct p4rt_meter { struct p4rt_meter_cell *cells; uint32_t size, bytes; };
/* Cells of up to 128 bits are numbers of the machine; longer ones are bytes as p4wide.h has them. */
struct p4rt_register { void *cells; uint32_t size, bits, cell_bytes; };

/* ---- tracing: a program compiled with -DP4_TRACE tells what happens to a packet (p4ops.h, trace.c) ------------------ */

enum p4rt_event {
    P4RT_EV_START = 1,            /* the packet as the runtime hands it to ingress() or egress() */
    P4RT_EV_STATE = 2,            /* parser state entered */
    P4RT_EV_EXTRACT = 3,          /* data: offset in the frame, bytes (uint32_t each) */
    P4RT_EV_PARSED = 4,           /* the parser is done; data: number of the error */
    P4RT_EV_CONTROL = 5,
    P4RT_EV_TABLE = 6,            /* data: struct p4rt_trace_table, key, parameters */
    P4RT_EV_ACTION = 7,           /* called directly */
    P4RT_EV_DONE = 8,             /* of the innermost control, table or action */
    P4RT_EV_REGISTER_READ = 9,    /* data: index, low and high half of the value (uint64_t each) */
    P4RT_EV_REGISTER_WRITE = 10,
    P4RT_EV_COUNT = 11,           /* data: index */
    P4RT_EV_VALUE = 12,           /* a result of random or hash; data: low and high half */
    P4RT_EV_NOTE = 13,            /* anything else: the name says what; data: a number, if any */
};

struct p4rt_trace_table {
    uint32_t table, hit, action, member, group, key_bytes, params_bytes;
    int32_t priority;
};

/* Where a field lives: `bits` 0 is the validity of a header. */
struct p4rt_trace_field {
    const char *name;
    uint32_t standard;            /* 1: in struct p4rt_std, 0: in the program's phv */
    uint32_t offset, bytes, bits;
};

/* What the runtime does for programs and is too long to inline. */
struct p4rt_ops {
    void (*trace)(struct p4rt_device *dev, const struct p4rt_packet *pkt, enum p4rt_event event, const char *name,
                  const char *where, const void *data, uint32_t len);
    uint16_t (*crc16)(const uint8_t *data, size_t len);            /* CRC-16/ARC: BMv2's crc16 */
    uint32_t (*crc32)(const uint8_t *data, size_t len);            /* CRC-32 of Ethernet: BMv2's crc32 */
    uint64_t (*random)(struct p4rt_device *dev);                   /* 64 random bits, repeatable by seed */
    uint32_t (*meter)(struct p4rt_device *dev, struct p4rt_meter_cell *cell, uint32_t bytes,
                      const struct p4rt_packet *pkt);
    void (*digest)(struct p4rt_device *dev, uint32_t digest, const uint8_t *data, uint32_t len);
};

/* The head of a device; the runtime keeps more behind it. */
struct p4rt_device {
    const struct p4_program *program;
    const struct p4rt_ops *ops;
    struct p4rt_table *tables;
    struct p4rt_counter *counters;
    struct p4rt_register *registers;
    struct p4rt_meter *meters;
    const char *false_assert;   /* place of the last assert or assume that was false; NULL: none was */
};

/* ---- bytes <-> integers ------------------------------------------------------------------------------------- */

/* `bytes` (1..8) big-endian bytes. With constant `bytes` gcc makes one load and a byte swap of the usual widths. */
static inline uint64_t p4rt_get(const uint8_t *from, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value = value << 8 | from[i];
    return value;
}

static inline void p4rt_put(uint8_t *to, uint64_t value, unsigned bytes)
{
    for (unsigned i = bytes; i-- > 0; value >>= 8)
        to[i] = (uint8_t)value;
}

/* The same for up to 16 bytes. */
static inline unsigned __int128 p4rt_get128(const uint8_t *from, unsigned bytes)
{
    unsigned __int128 value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value = value << 8 | from[i];
    return value;
}

static inline void p4rt_put128(uint8_t *to, unsigned __int128 value, unsigned bytes)
{
    for (unsigned i = bytes; i-- > 0; value >>= 8)
        to[i] = (uint8_t)value;
}

/* ---- tables --------------------------------------------------------------------------------------------------- */

static inline uint64_t p4rt_hash_words(const uint64_t *key, unsigned words)
{
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (unsigned i = 0; i < words; i++) {
        h = (h ^ key[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

static inline int p4rt_same_words(const uint64_t *a, const uint64_t *b, unsigned words)
{
    for (unsigned i = 0; i < words; i++)
        if (a[i] != b[i])
            return 0;
    return 1;
}

static inline struct p4rt_entry *p4rt_hash_find(const struct p4rt_hash *hash, const uint64_t *key, unsigned words)
{
    uint64_t h = p4rt_hash_words(key, words);
    for (uint64_t at = h & hash->limit;; at = (at + 1) & hash->limit) {
        const struct p4rt_slot *slot = &hash->slots[at];
        if (!slot->entry)
            return NULL;
        if (slot->hash == h && p4rt_same_words(slot->entry->value, key, words))
            return slot->entry;
    }
}

/* An lpm field and the exact fields beside it. */

static inline struct p4rt_entry *p4rt_find_lpm(const struct p4rt_table *table, const uint64_t *key, unsigned words)
{
    uint64_t masked[P4RT_MAX_KEY_WORDS];
    for (uint32_t i = 0; i < table->n_hashes; i++) {
        const struct p4rt_hash *hash = &table->hashes[i];
        for (unsigned w = 0; w < words; w++)
            masked[w] = key[w] & hash->mask[w];
        struct p4rt_entry *entry = p4rt_hash_find(hash, masked, words);
        if (entry)
            return entry;
    }
    return NULL;
}

static inline struct p4rt_entry *p4rt_find_list(const struct p4rt_table *table, const uint64_t *key, unsigned words)
{
    for (uint32_t i = 0; i < table->n_list; i++) {
        struct p4rt_entry *entry = table->list[i];
        unsigned ok = 1;
        for (unsigned w = 0; w < words && ok; w++)
            ok = (key[w] & entry->mask[w]) == entry->value[w];
        for (uint32_t r = 0; r < table->n_ranges && ok; r++) {
            uint32_t at = table->ranges[r].offset, n = table->ranges[r].bytes;
            const uint8_t *field = (const uint8_t *)key + at;
            ok = memcmp(field, entry->key + at, n) >= 0 && memcmp(field, entry->aux + at, n) <= 0;
        }
        if (ok)
            return entry;
    }
    return NULL;
}

/* Apply the matching part of table number `index`: the entry that matches `key`, or the default entry; never NULL.
 * entry->hit tells which. Counts the table's direct counter (v1model: whenever the table is applied). `key_bytes`
 * is the table's; as a constant it unrolls the search. Then, with `p4rt_entry *entry`:
 *
 *     const struct p4rt_action *act = entry->group ? p4rt_pick(entry->group, hash) : entry->act;
 *     if (act) switch (act->action) { case ACTION_X: ... p4rt_get(act->params + 0, 2) ... }
 *
 * (tables without a selector may leave the first alternative out). */
static inline struct p4rt_entry *p4rt_apply(struct p4rt_device *dev, uint32_t index, const uint64_t *key,
                                            unsigned key_bytes, const struct p4rt_packet *pkt)
{
    struct p4rt_table *table = &dev->tables[index];
    struct p4rt_entry *entry = NULL;
    unsigned words = P4RT_WORDS(key_bytes);

    if (table->search == P4RT_SEARCH_EXACT)
        entry = p4rt_hash_find(&table->hashes[0], key, words);
    else if (table->search == P4RT_SEARCH_LPM)
        entry = p4rt_find_lpm(table, key, words);
    else if (table->search == P4RT_SEARCH_LIST)
        entry = p4rt_find_list(table, key, words);
    if (!entry)
        entry = &table->miss;
    if (table->noted) {
        entry->count.packets++;
        entry->count.bytes += pkt->received;
        entry->hit_us = pkt->std.egress_global_timestamp > pkt->std.ingress_global_timestamp
                            ? pkt->std.egress_global_timestamp : pkt->std.ingress_global_timestamp;
    }
    return entry;
}

/* The member of a selector group for a hash of the packet's selector fields; NULL when no member is alive: then the
 * table hits and no action runs (BMv2's behaviour for an empty group). */
static inline const struct p4rt_action *p4rt_pick(const struct p4rt_group *group, uint64_t hash)
{
    return group->n_live ? group->live[hash % group->n_live] : NULL;
}

/* ---- counters and registers: an index out of range is ignored, and what a read or a meter would set stays ---------- */

static inline void p4rt_count(struct p4rt_device *dev, uint32_t counter, uint64_t index,
                              const struct p4rt_packet *pkt)
{
    struct p4rt_counter *c = &dev->counters[counter];
    if (index < c->size) {
        c->cells[index].packets++;
        c->cells[index].bytes += pkt->received;
    }
}

static inline unsigned __int128 p4rt_register_read(struct p4rt_device *dev, uint32_t reg, uint64_t index,
                                                   unsigned __int128 otherwise)
{
    const struct p4rt_register *r = &dev->registers[reg];
    return index < r->size ? ((const unsigned __int128 *)r->cells)[index] : otherwise;
}

/* `value` must fit the register's width: the program masks it. */
static inline void p4rt_register_write(struct p4rt_device *dev, uint32_t reg, uint64_t index, unsigned __int128 value)
{
    struct p4rt_register *r = &dev->registers[reg];
    if (index < r->size)
        ((unsigned __int128 *)r->cells)[index] = value;
}

/* The same for cells of more than 128 bits. */
static inline void p4rt_register_read_wide(struct p4rt_device *dev, uint32_t reg, uint64_t index, uint8_t *value)
{
    const struct p4rt_register *r = &dev->registers[reg];
    if (index < r->size)
        memcpy(value, (const uint8_t *)r->cells + index * r->cell_bytes, r->cell_bytes);
}

static inline void p4rt_register_write_wide(struct p4rt_device *dev, uint32_t reg, uint64_t index,
                                            const uint8_t *value)
{
    struct p4rt_register *r = &dev->registers[reg];
    if (index < r->size)
        memcpy((uint8_t *)r->cells + index * r->cell_bytes, value, r->cell_bytes);
}

/* ---- meters: the colour, 0 green, 1 yellow, 2 red ------------------------------------------------------------------ */

static inline uint64_t p4rt_meter(struct p4rt_device *dev, uint32_t meter, uint64_t index, uint64_t otherwise,
                                  const struct p4rt_packet *pkt)
{
    struct p4rt_meter *m = &dev->meters[meter];
    return index < m->size ? dev->ops->meter(dev, &m->cells[index], m->bytes, pkt) : otherwise;
}

static inline uint32_t p4rt_entry_meter(struct p4rt_device *dev, const struct p4rt_entry *entry, uint32_t bytes,
                                        const struct p4rt_packet *pkt)
{
    return dev->ops->meter(dev, entry ? entry->meter : NULL, bytes, pkt);
}

/* ---- hashes, checksums, random ----------------------------------------------------------------------------------- */

static inline uint16_t p4rt_crc16(struct p4rt_device *dev, const uint8_t *data, size_t len)
{
    return dev->ops->crc16(data, len);
}

static inline uint32_t p4rt_crc32(struct p4rt_device *dev, const uint8_t *data, size_t len)
{
    return dev->ops->crc32(data, len);
}

/* Sum of the big-endian 16-bit words of data added to `sum`, not folded: chain parts of even length, then
 * p4rt_csum16_end. The last odd byte counts as the high byte of a word. */
static inline uint64_t p4rt_csum16_add(uint64_t sum, const uint8_t *data, size_t len)
{
    for (; len >= 2; data += 2, len -= 2)
        sum += (uint32_t)data[0] << 8 | data[1];
    return len ? sum + ((uint32_t)data[0] << 8) : sum;
}

static inline uint16_t p4rt_csum16_end(uint64_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

/* csum16 of v1model: the ones' complement checksum of IPv4, UDP and TCP. */
static inline uint16_t p4rt_csum16(const uint8_t *data, size_t len)
{
    return p4rt_csum16_end(p4rt_csum16_add(0, data, len));
}

/* xor16 of v1model: XOR of the 16-bit words. */
static inline uint16_t p4rt_xor16(const uint8_t *data, size_t len)
{
    uint16_t x = 0;
    for (; len >= 2; data += 2, len -= 2)
        x ^= (uint16_t)(data[0] << 8 | data[1]);
    return len ? (uint16_t)(x ^ data[0] << 8) : x;
}

/* digest() of v1model: `len` bytes of data for the control plane, laid out as mrc_testbed/switch/compiler/p4info/typespec.py says. */
static inline void p4rt_digest(struct p4rt_device *dev, uint32_t digest, const uint8_t *data, uint32_t len)
{
    dev->ops->digest(dev, digest, data, len);
}

/* A number in low..high, both included; low when the interval is empty. */
static inline uint64_t p4rt_random(struct p4rt_device *dev, uint64_t low, uint64_t high)
{
    uint64_t span = high - low + 1;
    if (high <= low)
        return low;
    return span ? low + dev->ops->random(dev) % span : dev->ops->random(dev);
}

#endif
