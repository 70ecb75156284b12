/* p4wide.h: numbers of more than 128 bits. For generated programs only (mrc_testbed/switch/compiler).
 *
 * A value of bit<N> or int<N> is N bits in (N + 7) / 8 bytes, big-endian, at their low end; the bits in front are zero.
 * int<N> is in two's complement. Every operation keeps that, and its result may be one of its operands.
 */
#ifndef P4WIDE_H
#define P4WIDE_H

#include "p4ops.h"

#define P4W_MAX 256 /* bytes of the longest number that the compiler takes */

static inline unsigned p4w_bytes(unsigned bits)
{
    return (bits + 7) / 8;
}

static inline void p4w_trim(uint8_t *to, unsigned bits)
{
    if (bits % 8)
        to[0] &= (uint8_t)((1u << bits % 8) - 1);
}

static inline int p4w_negative(const uint8_t *a, unsigned bits)
{
    return a[0] >> (bits - 1) % 8 & 1;
}

/* Less than 0, 0, more than 0: a is less than b, equal, more. */
static inline int p4w_compare(const uint8_t *a, const uint8_t *b, unsigned bits, int is_signed)
{
    int flip = is_signed ? 1 << (bits - 1) % 8 : 0, first = (a[0] ^ flip) - (b[0] ^ flip);
    return first ? first : memcmp(a, b, p4w_bytes(bits));
}

/* to = a + b; returns the carry out of the number. */
static inline int p4w_add(uint8_t *to, const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned carry = 0;
    for (unsigned i = p4w_bytes(bits); i-- > 0;) {
        carry += (unsigned)a[i] + b[i];
        to[i] = (uint8_t)carry;
        carry >>= 8;
    }
    if (bits % 8)
        carry = to[0] >> bits % 8;
    p4w_trim(to, bits);
    return (int)carry;
}

/* to = a - b; returns 1 when a < b, as numbers without sign. */
static inline int p4w_sub(uint8_t *to, const uint8_t *a, const uint8_t *b, unsigned bits)
{
    int less = p4w_compare(a, b, bits, 0) < 0;
    unsigned borrow = 0;
    for (unsigned i = p4w_bytes(bits); i-- > 0;) {
        unsigned part = 256u + a[i] - b[i] - borrow;
        to[i] = (uint8_t)part;
        borrow = part < 256;
    }
    p4w_trim(to, bits);
    return less;
}

static inline void p4w_neg(uint8_t *to, const uint8_t *a, unsigned bits)
{
    static const uint8_t zero[P4W_MAX];
    p4w_sub(to, zero, a, bits);
}

static inline void p4w_not(uint8_t *to, const uint8_t *a, unsigned bits)
{
    for (unsigned i = 0; i < p4w_bytes(bits); i++)
        to[i] = (uint8_t)~a[i];
    p4w_trim(to, bits);
}

#define P4W_BITWISE(name, op) \
    static inline void p4w_##name(uint8_t *to, const uint8_t *a, const uint8_t *b, unsigned bits) \
    { \
        for (unsigned i = 0; i < p4w_bytes(bits); i++) \
            to[i] = a[i] op b[i]; \
    }
P4W_BITWISE(and, &)
P4W_BITWISE(or, |)
P4W_BITWISE(xor, ^)

static inline void p4w_mul(uint8_t *to, const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned n = p4w_bytes(bits);
    uint8_t product[P4W_MAX] = {0};
    for (unsigned i = 0; i < n; i++) {
        unsigned carry = 0;
        for (unsigned j = 0; i + j < n; j++) {
            carry += product[n - 1 - i - j] + (unsigned)a[n - 1 - i] * b[n - 1 - j];
            product[n - 1 - i - j] = (uint8_t)carry;
            carry >>= 8;
        }
    }
    memcpy(to, product, n);
    p4w_trim(to, bits);
}

/* Bit by bit; division by zero gives 0 and leaves the dividend, as p4_div and p4_mod do. */
static inline void p4w_divide(uint8_t *quotient, uint8_t *rest, const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned n = p4w_bytes(bits);
    uint8_t q[P4W_MAX] = {0}, r[P4W_MAX] = {0};
    int zero = 1;
    for (unsigned i = 0; i < n; i++)
        zero &= !b[i];
    for (unsigned i = 0; !zero && i < 8 * n; i++) {
        int carry = p4w_add(r, r, r, 8 * n);
        r[n - 1] |= a[i / 8] >> (7 - i % 8) & 1;
        if (carry || p4w_compare(r, b, 8 * n, 0) >= 0) {
            p4w_sub(r, r, b, 8 * n);
            q[i / 8] |= (uint8_t)(1u << (7 - i % 8));
        }
    }
    if (rest)
        memmove(rest, zero ? a : r, n);
    if (quotient)
        memcpy(quotient, q, n);
}

static inline void p4w_div(uint8_t *to, const uint8_t *a, const uint8_t *b, unsigned bits)
{
    p4w_divide(to, NULL, a, b, bits);
}

static inline void p4w_mod(uint8_t *to, const uint8_t *a, const uint8_t *b, unsigned bits)
{
    p4w_divide(NULL, to, a, b, bits);
}

static inline void p4w_add_sat(uint8_t *to, const uint8_t *a, const uint8_t *b, unsigned bits)
{
    if (p4w_add(to, a, b, bits)) {
        memset(to, 0xff, p4w_bytes(bits));
        p4w_trim(to, bits);
    }
}

static inline void p4w_sub_sat(uint8_t *to, const uint8_t *a, const uint8_t *b, unsigned bits)
{
    if (p4w_sub(to, a, b, bits))
        memset(to, 0, p4w_bytes(bits));
}

/* The greatest (negative = 0) or least number of int<bits>. */
static inline void p4w_end(uint8_t *to, int negative, unsigned bits)
{
    unsigned sign = 1u << (bits - 1) % 8;
    memset(to, negative ? 0 : 0xff, p4w_bytes(bits));
    to[0] = (uint8_t)(negative ? sign : sign - 1);
}

static inline void p4w_add_sat_signed(uint8_t *to, const uint8_t *a, const uint8_t *b, unsigned bits)
{
    int x = p4w_negative(a, bits), y = p4w_negative(b, bits);
    p4w_add(to, a, b, bits);
    if (x == y && p4w_negative(to, bits) != x)
        p4w_end(to, x, bits);
}

static inline void p4w_sub_sat_signed(uint8_t *to, const uint8_t *a, const uint8_t *b, unsigned bits)
{
    int x = p4w_negative(a, bits), y = p4w_negative(b, bits);
    p4w_sub(to, a, b, bits);
    if (x != y && p4w_negative(to, bits) != x)
        p4w_end(to, x, bits);
}

/* ---- shifts, parts ---------------------------------------------------------------------------------------------- */

/* to, of `bits` bits, = those that begin `offset` bits after `from`. */
static inline void p4w_get(uint8_t *to, unsigned bits, const uint8_t *from, unsigned offset)
{
    unsigned n = p4w_bytes(bits), first = bits % 8 ? bits % 8 : 8;
    uint8_t out[P4W_MAX];
    for (unsigned i = 0; i < n; i++)
        out[i] = (uint8_t)(i ? p4_get_bits(from, offset + first + 8 * (i - 1), 8) : p4_get_bits(from, offset, first));
    memcpy(to, out, n);
}

static inline void p4w_put(uint8_t *to, unsigned offset, unsigned bits, const uint8_t *value)
{
    unsigned first = bits % 8 ? bits % 8 : 8;
    p4_put_bits(to, offset, first, value[0]);
    for (unsigned i = 1; i < p4w_bytes(bits); i++)
        p4_put_bits(to, offset + first + 8 * (i - 1), 8, value[i]);
}

/* to, of `bits` bits, = bits low..low + bits - 1 of a number of `from_bits` bits. */
static inline void p4w_slice(uint8_t *to, unsigned bits, const uint8_t *from, unsigned from_bits, unsigned low)
{
    p4w_get(to, bits, from, 8 * p4w_bytes(from_bits) - low - bits);
}

static inline void p4w_resize(uint8_t *to, unsigned bits, const uint8_t *from, unsigned from_bits, int is_signed)
{
    if (bits <= from_bits) {
        p4w_slice(to, bits, from, from_bits, 0);
        return;
    }
    memset(to, is_signed && p4w_negative(from, from_bits) ? 0xff : 0, p4w_bytes(bits));
    p4w_put(to, 8 * p4w_bytes(bits) - from_bits, from_bits, from);
    p4w_trim(to, bits);
}

static inline void p4w_set(uint8_t *to, unsigned bits, u128 value, int negative)
{
    unsigned n = p4w_bytes(bits);
    memset(to, negative ? 0xff : 0, n);
    p4_put128(to + n - 16, value);
    p4w_trim(to, bits);
}

static inline void p4w_shl(uint8_t *to, const uint8_t *a, u128 by, unsigned bits)
{
    unsigned n = p4w_bytes(bits), whole = by < bits ? (unsigned)by / 8 : n, part = (unsigned)(by % 8);
    for (unsigned i = 0; i < n; i++) {
        unsigned high = i + whole < n ? a[i + whole] : 0, low = i + whole + 1 < n ? a[i + whole + 1] : 0;
        to[i] = (uint8_t)(high << part | low >> (8 - part));
    }
    p4w_trim(to, bits);
}

/* `fill` 1: the bits that come in are ones. */
static inline void p4w_shift_right(uint8_t *to, const uint8_t *a, u128 by, unsigned bits, int fill)
{
    unsigned n = p4w_bytes(bits), whole = by < bits ? (unsigned)by / 8 : n, part = (unsigned)(by % 8);
    unsigned outside = fill ? 0xff : 0, top = fill && bits % 8 ? 0xffu << bits % 8 & 0xff : 0;
    for (unsigned i = n; i-- > 0;) {
        unsigned low = i >= whole ? a[i - whole] | (i == whole ? top : 0) : outside;
        unsigned high = i >= whole + 1 ? a[i - whole - 1] | (i == whole + 1 ? top : 0) : outside;
        to[i] = (uint8_t)(high << (8 - part) | low >> part);
    }
    p4w_trim(to, bits);
}

static inline void p4w_shr(uint8_t *to, const uint8_t *a, u128 by, unsigned bits)
{
    p4w_shift_right(to, a, by, bits, 0);
}

static inline void p4w_sar(uint8_t *to, const uint8_t *a, u128 by, unsigned bits)
{
    p4w_shift_right(to, a, by, bits, p4w_negative(a, bits));
}

/* A number as an amount to shift by: what is longer than any number shifts as far as possible. */
static inline uint32_t p4w_amount(const uint8_t *a, unsigned bits)
{
    unsigned n = p4w_bytes(bits);
    for (unsigned i = 0; i + 3 < n; i++)
        if (a[i])
            return UINT32_MAX;
    return (uint32_t)a[n - 3] << 16 | (uint32_t)a[n - 2] << 8 | a[n - 1];
}

/* random() of v1model, as p4_random. */
static inline void p4w_random(struct p4rt_device *dev, uint8_t *to, const uint8_t *low, const uint8_t *high,
                              unsigned bits, int is_signed)
{
    unsigned n = p4w_bytes(bits), first = 0;
    uint8_t range[P4W_MAX], drawn[P4W_MAX] = {0};
    p4w_sub(range, high, low, bits);
    while (first < n - 1 && !range[first])
        first++;
    do {
        for (unsigned i = first; i < n; i++)
            drawn[i] = (uint8_t)dev->ops->random(dev);
        drawn[first] &= 0xff >> (__builtin_clz(range[first] | 1) - 24);
    } while (p4w_compare(drawn, range, bits, 0) > 0);
    if (p4w_compare(high, low, bits, is_signed) <= 0)
        memset(drawn, 0, n);
    p4w_add(to, low, drawn, bits);
}

/* (a & mask) == value */
static inline int p4w_matches(const uint8_t *a, const uint8_t *value, const uint8_t *mask, unsigned bits)
{
    int same = 1;
    for (unsigned i = 0; i < p4w_bytes(bits); i++)
        same &= (a[i] & mask[i]) == value[i];
    return same;
}

#endif
