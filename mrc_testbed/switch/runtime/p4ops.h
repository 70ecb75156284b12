/* p4ops.h: operations of P4 that C has no operator for. For generated programs only (mrc_testbed/switch/compiler).
 *
 * A value of bit<N> or int<N> lives in the low N bits of an unsigned C integer (8, 16, 32, 64 or 128 bits wide), its
 * other bits zero; int<N> in two's complement. Every operation here keeps that.
 */
#ifndef P4OPS_H
#define P4OPS_H

#include "p4rt.h"

typedef unsigned __int128 u128;
typedef __int128 i128;

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define p4_be16(x) (x)
#define p4_be32(x) (x)
#define p4_be64(x) (x)
#else
#define p4_be16(x) __builtin_bswap16(x)
#define p4_be32(x) __builtin_bswap32(x)
#define p4_be64(x) __builtin_bswap64(x)
#endif

#define U128(high, low) ((u128)(high) << 64 | (low))
#define P4_AT_NONE 0xffff /* `at` of a header that has no bytes in the frame */

/* Tracing. The ordinary build of a program pays nothing: its events are no code. */
#ifdef P4_TRACE
#define P4_EVENT(event, name, where, data, len) dev->ops->trace(dev, pkt, event, name, where, data, len)

static inline void p4_table_event(struct p4rt_device *dev, const struct p4rt_packet *pkt, const char *where,
                                  uint32_t table, const uint64_t *key, uint32_t key_bytes,
                                  const struct p4rt_entry *entry, const struct p4rt_action *act)
{
    const struct p4_program *program = dev->program;
    uint32_t params = act ? program->actions[act->action].params_bytes : 0;
    struct p4rt_trace_table head = {table, entry->hit, act ? act->action : P4RT_NONE, act ? act->member : 0,
                                    entry->group ? entry->group->id : 0, key_bytes, params, entry->priority};
    uint8_t data[sizeof head + P4RT_MAX_KEY_WORDS * 8 + 4096];

    if (params > 4096)
        head.params_bytes = params = 0;
    memcpy(data, &head, sizeof head);
    memcpy(data + sizeof head, key, key_bytes);
    if (params)
        memcpy(data + sizeof head + key_bytes, act->params, params);
    P4_EVENT(P4RT_EV_TABLE, program->tables[table].name, where, data, (uint32_t)sizeof head + key_bytes + params);
}

#define P4_TABLE_EVENT(where, table, key, key_bytes, entry, act) \
    p4_table_event(dev, pkt, where, table, key, key_bytes, entry, act)

/* A register's cell of more than 128 bits: its index, then its bytes. */
#define P4_REGISTER_WIDE(event, name, where, index, value) \
    do { \
        uint8_t cell_[8 + sizeof (value).b]; \
        memcpy(cell_, &(uint64_t){index}, 8); \
        memcpy(cell_ + 8, (value).b, sizeof (value).b); \
        P4_EVENT(event, name, where, cell_, (uint32_t)sizeof cell_); \
    } while (0)
#else
#define P4_REGISTER_WIDE(event, name, where, index, value) ((void)0)
#define P4_EVENT(event, name, where, data, len) ((void)0)
#define P4_TABLE_EVENT(where, table, key, key_bytes, entry, act) ((void)0)
#endif
#define P4_STATE(name, where) P4_EVENT(P4RT_EV_STATE, name, where, NULL, 0)
#define P4_EXTRACT(name, where, at, bytes) P4_EVENT(P4RT_EV_EXTRACT, name, where, ((uint32_t[]){at, bytes}), 8)
#define P4_PARSED(where, error) P4_EVENT(P4RT_EV_PARSED, error_names[error], where, ((uint32_t[]){error}), 4)
#define P4_CONTROL(name, where) P4_EVENT(P4RT_EV_CONTROL, name, where, NULL, 0)
#define P4_ACTION(name, where) P4_EVENT(P4RT_EV_ACTION, name, where, NULL, 0)
#define P4_DONE() P4_EVENT(P4RT_EV_DONE, "", "", NULL, 0)
#define P4_NOTE(name, where) P4_EVENT(P4RT_EV_NOTE, name, where, NULL, 0)
#define P4_NOTE_NUMBER(name, where, number) P4_EVENT(P4RT_EV_NOTE, name, where, ((uint64_t[]){number}), 8)
#define P4_COUNT(name, where, index) P4_EVENT(P4RT_EV_COUNT, name, where, ((uint64_t[]){index}), 8)
#define P4_VALUE(name, where, value) \
    P4_EVENT(P4RT_EV_VALUE, name, where, ((uint64_t[]){(uint64_t)(value), (uint64_t)((u128)(value) >> 64)}), 16)
#define P4_REGISTER(event, name, where, index, value) \
    P4_EVENT(event, name, where, ((uint64_t[]){index, (uint64_t)(value), (uint64_t)((u128)(value) >> 64)}), 24)

/* What applying a table gives. `action` is P4RT_NONE when none ran. */
struct p4_applied {
    uint8_t hit;
    uint8_t exited;
    uint32_t action;
};

static inline u128 p4_mask(unsigned bits)
{
    return bits >= 128 ? ~(u128)0 : ((u128)1 << bits) - 1;
}

/* The signed value of the low `bits` bits. */
static inline i128 p4_signed(u128 value, unsigned bits)
{
    return (i128)(value << (128 - bits)) >> (128 - bits);
}

static inline unsigned p4_amount(u128 shift)
{
    return shift > 128 ? 128 : (unsigned)shift;
}

static inline u128 p4_shl(u128 value, u128 shift, unsigned bits)
{
    unsigned by = p4_amount(shift);
    return by >= bits ? 0 : value << by & p4_mask(bits);
}

static inline u128 p4_shr(u128 value, u128 shift)
{
    unsigned by = p4_amount(shift);
    return by >= 128 ? 0 : value >> by;
}

static inline u128 p4_sar(u128 value, u128 shift, unsigned bits)
{
    unsigned by = p4_amount(shift);
    return (u128)(p4_signed(value, bits) >> (by > 127 ? 127 : by)) & p4_mask(bits);
}

/* value, of `bits` bits, with `taken` bits of `part` in the place of those from bit `low` up. */
static inline u128 p4_put_slice(u128 value, unsigned bits, u128 low, unsigned taken, u128 part)
{
    unsigned by = p4_amount(low);
    return by >= bits ? value : (value & ~(p4_mask(taken) << by)) | (part << by & p4_mask(bits));
}

/* Division by zero, which P4 leaves open, gives 0 and leaves the dividend. */
static inline u128 p4_div(u128 a, u128 b)
{
    return !b ? 0 : (a | b) >> 64 ? a / b : (uint64_t)a / (uint64_t)b;
}

static inline u128 p4_mod(u128 a, u128 b)
{
    return !b ? a : (a | b) >> 64 ? a % b : (uint64_t)a % (uint64_t)b;
}

static inline u128 p4_add_sat(u128 a, u128 b, unsigned bits)
{
    return a > p4_mask(bits) - b ? p4_mask(bits) : a + b;
}

static inline u128 p4_sub_sat(u128 a, u128 b)
{
    return a > b ? a - b : 0;
}

static inline u128 p4_clamp(i128 value, int overflow, int negative, unsigned bits)
{
    i128 high = (i128)(p4_mask(bits) >> 1), low = -high - 1;
    if (overflow)
        value = negative ? low : high;
    return (u128)(value > high ? high : value < low ? low : value) & p4_mask(bits);
}

static inline u128 p4_add_sat_signed(u128 a, u128 b, unsigned bits)
{
    i128 sum, x = p4_signed(a, bits), y = p4_signed(b, bits);
    int overflow = __builtin_add_overflow(x, y, &sum);
    return p4_clamp(sum, overflow, x < 0, bits);
}

static inline u128 p4_sub_sat_signed(u128 a, u128 b, unsigned bits)
{
    i128 difference, x = p4_signed(a, bits), y = p4_signed(b, bits);
    int overflow = __builtin_sub_overflow(x, y, &difference);
    return p4_clamp(difference, overflow, x < 0, bits);
}

/* Big-endian loads and stores of the usual widths, as single instructions. */
static inline uint16_t p4_get16(const uint8_t *from)
{
    uint16_t value;
    memcpy(&value, from, 2);
    return p4_be16(value);
}

static inline uint32_t p4_get32(const uint8_t *from)
{
    uint32_t value;
    memcpy(&value, from, 4);
    return p4_be32(value);
}

static inline uint64_t p4_get64(const uint8_t *from)
{
    uint64_t value;
    memcpy(&value, from, 8);
    return p4_be64(value);
}

static inline u128 p4_get128(const uint8_t *from)
{
    return U128(p4_get64(from), p4_get64(from + 8));
}

static inline void p4_put16(uint8_t *to, uint16_t value)
{
    value = p4_be16(value);
    memcpy(to, &value, 2);
}

static inline void p4_put32(uint8_t *to, uint32_t value)
{
    value = p4_be32(value);
    memcpy(to, &value, 4);
}

static inline void p4_put64(uint8_t *to, uint64_t value)
{
    value = p4_be64(value);
    memcpy(to, &value, 8);
}

static inline void p4_put128(uint8_t *to, u128 value)
{
    p4_put64(to, (uint64_t)(value >> 64));
    p4_put64(to + 8, (uint64_t)value);
}

/* `bits` bits, at most 128, that begin `offset` bits after `from`, most significant first. */
static inline u128 p4_get_bits(const uint8_t *from, unsigned offset, unsigned bits)
{
    u128 value = 0;
    for (unsigned done = 0; done < bits;) {
        unsigned skip = (offset + done) & 7, take = 8 - skip;
        if (take > bits - done)
            take = bits - done;
        unsigned piece = from[(offset + done) >> 3] >> (8 - skip - take) & ((1u << take) - 1);
        value = value << take | piece;
        done += take;
    }
    return value;
}

static inline void p4_put_bits(uint8_t *to, unsigned offset, unsigned bits, u128 value)
{
    for (unsigned done = 0; done < bits;) {
        unsigned skip = (offset + done) & 7, take = 8 - skip;
        if (take > bits - done)
            take = bits - done;
        unsigned shift = 8 - skip - take, mask = ((1u << take) - 1) << shift;
        unsigned piece = (unsigned)(value >> (bits - done - take)) << shift;
        uint8_t *byte = &to[(offset + done) >> 3];
        *byte = (uint8_t)((*byte & ~mask) | (piece & mask));
        done += take;
    }
}

/* Are two varbit values equal? `bits` are whole bytes. */
static inline int p4_same_varbit(uint32_t bits, const uint8_t *bytes, uint32_t other_bits, const uint8_t *other_bytes)
{
    return bits == other_bits && !memcmp(bytes, other_bytes, bits / 8);
}

/* Index of a header stack of `size` elements; `size` itself for one beyond the end. */
static inline uint32_t p4_index(u128 index, uint32_t size)
{
    return index < size ? (uint32_t)index : size;
}

/* identity of v1model: the first eight bytes, as a big-endian number. */
static inline uint64_t p4_identity(const uint8_t *data, size_t len)
{
    uint64_t value = 0;
    for (size_t i = 0; i < len && i < 8; i++)
        value = value << 8 | data[i];
    return value;
}

/* hash() of v1model: a number in base .. base + max - 1; base when max is 0. */
static inline u128 p4_in_range(u128 hash, u128 base, u128 max)
{
    return max ? base + hash % max : base;
}

/* p4rt_random for more than 64 bits: random bits, as many as high - low has, until they are no more than that. */
static inline u128 p4_random(struct p4rt_device *dev, u128 low, u128 high)
{
    u128 range = high - low, mask = range, drawn;
    if (high <= low)
        return low;
    for (unsigned by = 1; by < 128; by *= 2)
        mask |= mask >> by;
    do {
        drawn = (u128)dev->ops->random(dev) << 64;
        drawn = (drawn | dev->ops->random(dev)) & mask;
    } while (drawn > range);
    return low + drawn;
}

/* The same between numbers with a sign. */
static inline u128 p4_random_signed(struct p4rt_device *dev, u128 low, u128 high, unsigned bits)
{
    u128 flip = (u128)1 << (bits - 1);
    return p4_random(dev, low ^ flip, high ^ flip) ^ flip;
}

#endif
