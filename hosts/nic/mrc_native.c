/* The fast NIC's hot path in C: a record becomes a frame and is sent; a frame in the ring is checked and becomes a record.
 *
 * Does the work of hosts/nic/encapsulation.py and hosts/engine/wire/codec.py for the frequent packets: writes, SACKs and
 * Transport ACKs over IPv6. Its only results are "good" and "not for me": a frame that fails a check, or is of another
 * kind, goes unchanged to the Python code, which alone reports the fault. So a check that is wrong here can only be too
 * strict. tests/hosts/nic/test_native.py holds both against each other, byte by byte and bit by bit.
 *
 * Frame: Ethernet 14, outer IPv6 40, then IPv6 40, UDP 8, BTH 12, extension headers, payload, padding, iCRC (§1.1); without
 * the outer header in modes other than srv6. Numbers are network order except the iCRC. A ring slot (TPACKET_V2): u32
 * status, u32 len, u32 snaplen, u16 offset of the frame.
 *
 * Fields of records are read and set where they lie in the object. Records in Python are dataclasses with slots, whose
 * offsets are looked up once; where those of a compiled engine lie, mypyc's header tells, and this file is compiled with
 * the engine. Both are checked by name. Built at first use by hosts/nic/native.py; nothing here is needed to run.
 */

#define _GNU_SOURCE  /* sendmmsg */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#ifdef COMPILED_HEADER
#include COMPILED_HEADER
#endif

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "shared_wire.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum {
    ETHERNET = 14, IPV6 = 40, UDP = 8, BTH = 12, ICRC = 4,
    INNER = ETHERNET + IPV6,            /* where the inner packet begins */
    AT_UDP = IPV6, AT_BTH = AT_UDP + UDP, AT_BODY = AT_BTH + BTH, /* in the inner packet; extension headers at the last */
    BODY = INNER + AT_BODY,
    SACK_BODY = 36,                     /* SETH 20, CC_STATE 16 (§2.8) */
    ACK_BODY = 4,                       /* AETH (§2.7) */
    LONGEST_HEADER = BODY + SACK_BODY,  /* longer than METH + TSETH + RETH + ImmDt = 28 */
    ADDRESSES = 4096,                   /* EVs of a route whose address is remembered */
    BATCH = 16,                         /* frames handed to the kernel in one system call, at most */
};
enum { SACK = 0xDC, ACKNOWLEDGE = 0xD1, WRITE_FIRST = 0xC6, WRITE_ONLY_IMM = 0xCB, WRITE_LAST_IMM = 0xC9 };
enum { FLAG_A = 0x80, FLAG_RTX = 0x20, FLAG_TS = 0x10, ECN_CE = 3, NOMINAL_OVERHEAD = 40 };
enum { OK = 0, NOT_MINE = -1 };

/* ---- CRC-32 (IEEE, reflected), continued from `crc` as zlib's does ---------------------------------------------------- */

static uint32_t crc_table[8][256];

static void make_crc_table(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;
        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
        crc_table[0][n] = c;
    }
    for (int n = 0; n < 256; n++)
        for (int k = 1; k < 8; k++)
            crc_table[k][n] = crc_table[k - 1][n] >> 8 ^ crc_table[0][crc_table[k - 1][n] & 0xFF];
}

static uint32_t crc_by_table(uint32_t c, const uint8_t *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        uint32_t low, high;
        memcpy(&low, data, 4);
        memcpy(&high, data + 4, 4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        low = __builtin_bswap32(low), high = __builtin_bswap32(high);
#endif
        low ^= c;
        c = crc_table[7][low & 0xFF] ^ crc_table[6][low >> 8 & 0xFF] ^ crc_table[5][low >> 16 & 0xFF] ^
            crc_table[4][low >> 24] ^ crc_table[3][high & 0xFF] ^ crc_table[2][high >> 8 & 0xFF] ^
            crc_table[1][high >> 16 & 0xFF] ^ crc_table[0][high >> 24];
    }
    while (size--)
        c = c >> 8 ^ crc_table[0][(c ^ *data++) & 0xFF];
    return c;
}

#if defined(__x86_64__)
/* One step: the remainder in `x` moves on by the distance whose two powers of x are in `by`, and `next` is added. */
__attribute__((target("pclmul,sse4.1"))) static inline __m128i fold(__m128i x, __m128i by, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* CRC register after `size` bytes, a multiple of 16; `x` is the state of the bytes before them. 64 bytes at a time (Gopal
 * et al., Intel, 2009). The table takes the last 16 bytes, which have the same remainder as all bytes before them. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t fold_rest(const __m128i x[4], const __m128i *at, size_t size)
{
    const __m128i by64 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4), by16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m128i x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
    for (; size >= 64; at += 4, size -= 64) {
        x0 = fold(x0, by64, _mm_loadu_si128(at));
        x1 = fold(x1, by64, _mm_loadu_si128(at + 1));
        x2 = fold(x2, by64, _mm_loadu_si128(at + 2));
        x3 = fold(x3, by64, _mm_loadu_si128(at + 3));
    }
    x0 = fold(fold(fold(x0, by16, x1), by16, x2), by16, x3);
    for (; size >= 16; at++, size -= 16)
        x0 = fold(x0, by16, _mm_loadu_si128(at));
    uint8_t rest[16];
    _mm_storeu_si128((__m128i *)rest, x0);
    return crc_by_table(0, rest, sizeof rest);
}

/* `size` is >= 64 and a multiple of 16. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t crc_by_folding(uint32_t c, const uint8_t *data, size_t size)
{
    const __m128i *at = (const __m128i *)data;
    __m128i x[4] = {_mm_xor_si128(_mm_loadu_si128(at), _mm_cvtsi32_si128((int)c)), _mm_loadu_si128(at + 1),
                    _mm_loadu_si128(at + 2), _mm_loadu_si128(at + 3)};
    return fold_rest(x, at + 4, size - 64);
}

__attribute__((target("vpclmulqdq,avx2"))) static inline __m256i fold_pair(__m256i x, __m256i by, const __m128i *next)
{
    __m256i low = _mm256_clmulepi64_epi128(x, by, 0x00), high = _mm256_clmulepi64_epi128(x, by, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(low, high), _mm256_loadu_si256((const __m256i *)next));
}

enum { WIDE = 256 };  /* bytes from which on wide folding is faster */

/* crc_by_folding with 128 bytes at a time, for processors that multiply in pairs; `size` is >= WIDE and a multiple of 16. */
__attribute__((target("vpclmulqdq,avx2,pclmul,sse4.1")))
static uint32_t crc_by_wide_folding(uint32_t c, const uint8_t *data, size_t size)
{
    const __m256i by128 = _mm256_set_epi64x(0x14a7fe880, 0x1e88ef372, 0x14a7fe880, 0x1e88ef372);
    const __m128i by64 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i *at = (const __m128i *)data;
    __m256i y[4];
    for (int i = 0; i < 4; i++)
        y[i] = _mm256_loadu_si256((const __m256i *)(at + 2 * i));
    y[0] = _mm256_xor_si256(y[0], _mm256_set_epi32(0, 0, 0, 0, 0, 0, 0, (int)c));
    for (at += 8, size -= 128; size >= 128; at += 8, size -= 128)
        for (int i = 0; i < 4; i++)
            y[i] = fold_pair(y[i], by128, at + 2 * i);
    __m128i x[4];
    for (int i = 0; i < 4; i++) {
        __m256i before = y[i / 2], after = y[2 + i / 2];
        x[i] = i & 1 ? fold(_mm256_extracti128_si256(before, 1), by64, _mm256_extracti128_si256(after, 1))
                     : fold(_mm256_castsi256_si128(before), by64, _mm256_castsi256_si128(after));
    }
    return fold_rest(x, at, size);
}
#endif

enum { BY_TABLE, FOLDING, FOLDING_WIDE };
static int best_way = BY_TABLE;  /* fastest of them that this processor supports */

static uint32_t crc32_by(int way, uint32_t crc, const uint8_t *data, size_t size)
{
    uint32_t c = ~crc;
#if defined(__x86_64__)
    /* folding takes multiples of 16 bytes; the table takes what is left */
    if (way != BY_TABLE && size >= 64) {
        size_t whole = size & ~(size_t)15;
        c = way == FOLDING_WIDE && whole >= WIDE ? crc_by_wide_folding(c, data, whole) : crc_by_folding(c, data, whole);
        data += whole, size -= whole;
    }
#else
    (void)way;
#endif
    return ~crc_by_table(c, data, size);
}

static uint32_t crc32_of(uint32_t crc, const uint8_t *data, size_t size)
{
    return crc32_by(best_way, crc, data, size);
}

/* ---- network order ---------------------------------------------------------------------------------------------------- */

static inline uint8_t *put16(uint8_t *at, uint16_t v) { at[0] = v >> 8, at[1] = (uint8_t)v; return at + 2; }
static inline uint8_t *put32(uint8_t *at, uint32_t v) { return put16(put16(at, v >> 16), (uint16_t)v); }
static inline uint8_t *put64(uint8_t *at, uint64_t v) { return put32(put32(at, v >> 32), (uint32_t)v); }
static inline uint16_t get16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }
static inline uint32_t get32(const uint8_t *at) { return (uint32_t)get16(at) << 16 | get16(at + 2); }
static inline uint64_t get64(const uint8_t *at) { return (uint64_t)get32(at) << 32 | get32(at + 4); }

/* The CRC register after LRH and the inner headers with what changes in flight masked (§3): traffic class, flow label, hop
 * limit; UDP checksum; BTH byte 4. `inner` begins with its IPv6 header and has 60 bytes at least. */
static uint32_t masked_crc(const uint8_t *inner)
{
    uint8_t masked[8 + IPV6 + UDP + BTH];
    memset(masked, 0xFF, 8);
    memcpy(masked + 8, inner, IPV6 + UDP + BTH);
    masked[8] |= 0x0F;
    memset(masked + 9, 0xFF, 3);
    masked[8 + 7] = 0xFF;
    memset(masked + 8 + IPV6 + 6, 0xFF, 2);
    masked[8 + IPV6 + UDP + 4] = 0xFF;
    return crc32_of(0, masked, sizeof masked);
}

/* ---- records ---------------------------------------------------------------------------------------------------------- */

/* Fields of hosts/engine/wire/packets.py in their order; `setup` refuses to work when they are others. */
#define WRITE_FIELDS(FIELD) \
    FIELD(dest_qp) FIELD(ev) FIELD(plane) FIELD(dscp) FIELD(ecn) FIELD(opcode) FIELD(psn) FIELD(msn) FIELD(va) FIELD(rkey) \
    FIELD(dma_length) FIELD(payload) FIELD(size) FIELD(rqmsn) FIELD(imm) FIELD(timestamp) FIELD(tsr) FIELD(ack_request) \
    FIELD(rtx) FIELD(solicited) FIELD(trimmed)
enum { DEST_QP, EV, PLANE, DSCP, ECN,
       W_OPCODE, W_PSN, W_MSN, W_VA, W_RKEY, W_DMA_LENGTH, W_PAYLOAD, W_SIZE,
       W_RQMSN, W_IMM, W_TIMESTAMP, W_TSR, W_ACK_REQUEST, W_RTX, W_SOLICITED, W_TRIMMED };
#define SACK_FIELDS(FIELD) \
    FIELD(dest_qp) FIELD(ev) FIELD(plane) FIELD(dscp) FIELD(ecn) FIELD(cack_psn) FIELD(sack_offset) FIELD(bitmap) \
    FIELD(ack_psn_offset) FIELD(probe_id) FIELD(entropy) FIELD(verdict) FIELD(timestamp) FIELD(rcvd_units) \
    FIELD(ooo_count) FIELD(mpr) FIELD(penalty) FIELD(restore_cwnd) FIELD(rtx) FIELD(spdcid) FIELD(dpdcid) FIELD(cc_type)
enum { S_CACK_PSN = ECN + 1, S_SACK_OFFSET, S_BITMAP, S_ACK_PSN_OFFSET, S_PROBE_ID, S_ENTROPY, S_VERDICT, S_TIMESTAMP,
       S_RCVD_UNITS, S_OOO_COUNT, S_MPR, S_PENALTY, S_RESTORE_CWND, S_RTX, S_SPDCID, S_DPDCID, S_CC_TYPE };
#define ACK_FIELDS(FIELD) \
    FIELD(dest_qp) FIELD(ev) FIELD(plane) FIELD(dscp) FIELD(ecn) FIELD(psn) FIELD(syndrome) FIELD(msn)
enum { A_PSN = ECN + 1, A_SYNDROME, A_MSN };
enum { MOST_FIELDS = 24 };

/* What lies in a field's place. mypyc keeps a number doubled; with the lowest bit set it is a reference to an object. */
typedef enum { OBJECT, NUMBER, TRUTH } Storage;
typedef struct {
    Py_ssize_t at;                      /* its offset in an object */
    Storage storage;
} Place;

#ifdef COMPILED_HEADER
#define STORAGE(field) _Generic((field), PyObject *: OBJECT, CPyTagged: NUMBER, char: TRUTH)
#define PLACE_IN(type, name) {offsetof(type, _##name), STORAGE(((type *)0)->_##name)},
#define WRITE_PLACE(name) PLACE_IN(mrc_testbed___hosts___engine___wire___packets___WriteObject, name)
#define SACK_PLACE(name) PLACE_IN(mrc_testbed___hosts___engine___wire___packets___SackObject, name)
#define ACK_PLACE(name) PLACE_IN(mrc_testbed___hosts___engine___wire___packets___TransportAckObject, name)
#define PLACES(name) static const Place name##_places[] =
PLACES(write) { WRITE_FIELDS(WRITE_PLACE) };
PLACES(sack) { SACK_FIELDS(SACK_PLACE) };
PLACES(ack) { ACK_FIELDS(ACK_PLACE) };
#else
static const Place *const write_places = NULL, *const sack_places = NULL, *const ack_places = NULL;
#endif

/* A class of records. */
typedef struct {
    PyTypeObject *type;
    int count;
    Place places[MOST_FIELDS];
    char *blank;                        /* a record without fields, from its head on; NULL: zeros */
} Kind;

static Kind write_kind, sack_kind, ack_kind;
static PyObject *opcodes[WRITE_ONLY_IMM - WRITE_FIRST + 1];  /* the Opcode members */

/* A record and what was found wrong with it. */
typedef struct {
    const Kind *kind;
    PyObject *object;
    int good;
} Record;

static inline char *place_of(const Record *record, int field)
{
    return (char *)record->object + record->kind->places[field].at;
}

/* A new record whose fields are set next: `good` is false when there is no memory, from the first failure on. */
static Record new_record(const Kind *kind)
{
    Record record = {kind, kind->type->tp_alloc(kind->type, 0), 0};
    if (record.object != NULL && kind->blank != NULL)
        memcpy((char *)record.object + sizeof(PyObject), kind->blank, (size_t)kind->type->tp_basicsize - sizeof(PyObject));
    record.good = record.object != NULL;
    return record;
}

/* The record when all its fields could be set, else NULL with an exception. */
static PyObject *finished(Record *record)
{
    if (!record->good)
        Py_CLEAR(record->object);
    return record->object;
}

/* Set a field that holds an object, taking over the reference `value`; NULL: there is no memory. */
static inline void set(Record *record, int field, PyObject *value)
{
    if (!record->good || value == NULL) {
        Py_XDECREF(value);
        record->good = 0;
    } else {
        *(PyObject **)place_of(record, field) = value;
    }
}

static inline void set_number(Record *record, int field, uint64_t value)
{
    if (record->kind->places[field].storage == NUMBER && record->good) {
        size_t tagged = (size_t)value << 1;
        if (value > SIZE_MAX >> 2) {
            PyObject *object = PyLong_FromUnsignedLongLong(value);
            record->good = object != NULL;
            tagged = record->good ? (size_t)object | 1 : 0;
        }
        *(size_t *)place_of(record, field) = tagged;
    } else {
        set(record, field, PyLong_FromUnsignedLongLong(value));
    }
}

static inline void set_signed(Record *record, int field, int value)
{
    if (record->kind->places[field].storage == NUMBER && record->good)
        *(size_t *)place_of(record, field) = (size_t)((Py_ssize_t)value * 2);
    else
        set(record, field, PyLong_FromLong(value));
}

static inline void set_truth(Record *record, int field, int value)
{
    if (record->kind->places[field].storage == TRUTH && record->good)
        *place_of(record, field) = value != 0;
    else
        set(record, field, Py_NewRef(value ? Py_True : Py_False));
}

/* The object in a field, borrowed; for fields that hold one in each form. NULL: the field was never set. */
static inline PyObject *object_in(const Record *record, int field)
{
    return *(PyObject **)place_of(record, field);
}

/* A number that is an object, up to `most`; clears `good` when it is anything else. */
static uint64_t number_in(Record *record, PyObject *object, uint64_t most)
{
    unsigned long long value = (unsigned long long)-1;
    if (object != NULL && PyLong_Check(object))
        value = PyLong_AsUnsignedLongLong(object);
    else
        record->good = 0;
    if (value == (unsigned long long)-1 && PyErr_Occurred()) {
        PyErr_Clear();
        record->good = 0;
    }
    if (value > most)
        record->good = 0;
    return value;
}

/* A field as an unsigned number up to `most`; clears `good` when it is anything else. */
static inline uint64_t number(Record *record, int field, uint64_t most)
{
    if (record->kind->places[field].storage != NUMBER)
        return number_in(record, object_in(record, field), most);
    size_t tagged = *(size_t *)place_of(record, field);
    if (tagged & 1) /* 1 itself is a field that was never set */
        return number_in(record, (PyObject *)(tagged & ~(size_t)1), most);
    if ((Py_ssize_t)tagged < 0 || tagged >> 1 > most)
        record->good = 0;
    return tagged >> 1;
}

static uint16_t signed_number(Record *record, int field)
{
    long value = 0x10000;
    if (record->kind->places[field].storage == NUMBER) {
        Py_ssize_t tagged = *(Py_ssize_t *)place_of(record, field);
        if (!(tagged & 1)) /* an object would be a larger number */
            value = (long)(tagged / 2);
    } else {
        PyObject *object = object_in(record, field);
        if (object != NULL && PyLong_Check(object))
            value = PyLong_AsLong(object);
        if (PyErr_Occurred())
            PyErr_Clear(), value = 0x10000;
    }
    if (value < -0x8000 || value > 0x7FFF)
        record->good = 0;
    return (uint16_t)value;
}

static int truth(Record *record, int field)
{
    if (record->kind->places[field].storage == TRUTH) {
        char value = *place_of(record, field);
        if (value != 0 && value != 1) /* it was never set */
            record->good = 0;
        return value == 1;
    }
    PyObject *value = object_in(record, field);
    if (value != Py_True && value != Py_False)
        record->good = 0;
    return value == Py_True;
}

/* ---- a route: one direction between two ports ------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    uint8_t ethernet[ETHERNET];
    uint8_t source[16];
    uint8_t pair[32];      /* inner source and destination */
    PyObject *address;     /* EV -> outer destination, 16 bytes */
    PyObject *addresses;   /* results of `address`, by EV */
} Route;

static int route_init(Route *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"ethernet", "source", "pair", "address", NULL};
    Py_buffer ethernet, source, pair;
    PyObject *address;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*y*y*O", names, &ethernet, &source, &pair, &address))
        return -1;
    int good = ethernet.len == ETHERNET && source.len == 16 && pair.len == 32;
    if (good) {
        memcpy(self->ethernet, ethernet.buf, ETHERNET);
        memcpy(self->source, source.buf, 16);
        memcpy(self->pair, pair.buf, 32);
        Py_XSETREF(self->address, Py_NewRef(address));
        Py_XSETREF(self->addresses, PyDict_New());
    } else {
        PyErr_SetString(PyExc_ValueError, "a route needs 14, 16 and 32 bytes of addresses");
    }
    PyBuffer_Release(&ethernet), PyBuffer_Release(&source), PyBuffer_Release(&pair);
    return good && self->addresses != NULL ? 0 : -1;
}

static void route_dealloc(Route *self)
{
    Py_XDECREF(self->address);
    Py_XDECREF(self->addresses);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject RouteType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mrc_native.Route",
    .tp_doc = "Route(ethernet, source, pair, address): headers towards one peer; address(ev) -> 16 bytes.",
    .tp_basicsize = sizeof(Route),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)route_init,
    .tp_dealloc = (destructor)route_dealloc,
};

/* Outer destination for an EV, or NULL, for some errors with an exception set. The bytes live as long as the route. */
static const uint8_t *outer_destination(Route *route, uint32_t ev)
{
    PyObject *key = PyLong_FromUnsignedLong(ev);
    PyObject *known = key == NULL ? NULL : PyDict_GetItemWithError(route->addresses, key);
    if (known == NULL && key != NULL && !PyErr_Occurred()) {
        PyObject *made = PyObject_CallOneArg(route->address, key);
        /* an application may try any number of EVs: the cache starts anew rather than grow for ever */
        if (made != NULL && PyDict_GET_SIZE(route->addresses) >= ADDRESSES)
            PyDict_Clear(route->addresses);
        if (made != NULL && PyBytes_Check(made) && PyBytes_GET_SIZE(made) == 16 &&
            PyDict_SetItem(route->addresses, key, made) == 0)
            known = made;
        Py_XDECREF(made);
    }
    Py_XDECREF(key);
    return known == NULL ? NULL : (const uint8_t *)PyBytes_AS_STRING(known);
}

/* ---- a port ----------------------------------------------------------------------------------------------------------- */

static PyTypeObject PortType;

typedef struct {
    PyObject_HEAD
    PyObject *plane;       /* its number, and the same for C */
    unsigned plane_number;
    PyObject *peers;       /* inner source address -> name; it does not change */
    PyObject *newest_peer; /* name of who sent the newest packet, mostly also the next; NULL: none has come */
    uint8_t newest_source[16];
    PyObject *routes;      /* peer's name -> Route */
    int outer;             /* frames have an outer header */
    uint8_t own_usid[16], own_address[16];
    uint8_t trimmed[64];   /* by DSCP: 1 = a switch has cut the packet */
    uint16_t ports[4];     /* UDP destination ports taken; unused ones are 0, which is no port */
    uint16_t dport, pkey;
    int low;               /* layout L: the EV's low half is the UDP source port (§1.4) */
    int fd;
    Py_buffer ring;        /* buf == NULL: no ring */
    Py_ssize_t block, slot;
    unsigned per_block, slots, at;
    Py_buffer wire_memory;
    struct shared_wire *wire; /* in wire_memory; NULL: no wire in shared memory */
    struct shared_side to_switch, from_switch;
    int wire_fd;           /* wakes the switch, and us; its end is the wire's */
    uint32_t wakes;        /* bytes read from wire_fd */
    unsigned looks;        /* at the wire while nothing waited there */
    unsigned long long tx_packets, tx_bytes, rx_packets, rx_bytes;
} Port;

static int port_init(Port *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"plane", "own_usid", "own_address", "peers", "ports", "dport", "pkey", "low", "trimmed", NULL};
    PyObject *plane, *peers, *ports, *trimmed;
    Py_buffer usid, address;
    unsigned short dport, pkey;
    int low;
    self->fd = self->wire_fd = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!y*y*O!O!HHpO!", names, &PyLong_Type, &plane, &usid, &address,
                                     &PyDict_Type, &peers, &PyTuple_Type, &ports, &dport, &pkey, &low,
                                     &PyTuple_Type, &trimmed))
        return -1;
    int good = (usid.len == 16 || usid.len == 0) && address.len == 16 && PyTuple_GET_SIZE(ports) <= 4;
    if (good) {
        self->outer = usid.len != 0;
        memcpy(self->own_usid, usid.buf, (size_t)usid.len);
        memcpy(self->own_address, address.buf, 16);
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(ports); i++)
            self->ports[i] = (uint16_t)PyLong_AsLong(PyTuple_GET_ITEM(ports, i));
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(trimmed); i++)
            self->trimmed[PyLong_AsLong(PyTuple_GET_ITEM(trimmed, i)) & 63] = 1;
        self->dport = dport, self->pkey = pkey, self->low = low;
        Py_XSETREF(self->plane, Py_NewRef(plane));
        self->plane_number = (unsigned)PyLong_AsUnsignedLong(plane);
        Py_XSETREF(self->peers, Py_NewRef(peers));
        Py_CLEAR(self->newest_peer);
        Py_XSETREF(self->routes, PyDict_New());
    } else {
        PyErr_SetString(PyExc_ValueError, "a port needs addresses of 16 bytes (no uSID: of 0) and up to 4 UDP ports");
    }
    PyBuffer_Release(&usid), PyBuffer_Release(&address);
    return good && !PyErr_Occurred() ? 0 : -1;
}

static PyObject *port_detach(Port *self, PyObject *nothing)
{
    (void)nothing;
    if (self->ring.buf != NULL)
        PyBuffer_Release(&self->ring);
    self->ring.buf = NULL;
    self->fd = -1;
    Py_RETURN_NONE;
}

static PyObject *port_unshare(Port *self, PyObject *nothing)
{
    (void)nothing;
    if (self->wire != NULL)
        PyBuffer_Release(&self->wire_memory);
    self->wire = NULL;
    self->wire_fd = -1;
    Py_RETURN_NONE;
}

static void port_dealloc(Port *self)
{
    Py_XDECREF(port_detach(self, NULL));
    Py_XDECREF(port_unshare(self, NULL));
    Py_XDECREF(self->plane);
    Py_XDECREF(self->peers);
    Py_XDECREF(self->newest_peer);
    Py_XDECREF(self->routes);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *port_attach(Port *self, PyObject *args)
{
    int fd;
    PyObject *ring;
    Py_ssize_t block, slot;
    unsigned per_block, slots;
    if (!PyArg_ParseTuple(args, "iOnnII", &fd, &ring, &block, &slot, &per_block, &slots))
        return NULL;
    Py_XDECREF(port_detach(self, NULL));
    if (PyObject_GetBuffer(ring, &self->ring, PyBUF_WRITABLE))
        return NULL;
    if (per_block == 0 || slots == 0 || slot * per_block > block || slots / per_block * block > self->ring.len) {
        PyErr_SetString(PyExc_ValueError, "a ring of that shape does not fit its memory");
        return port_detach(self, NULL), NULL;
    }
    self->fd = fd, self->block = block, self->slot = slot, self->per_block = per_block, self->slots = slots, self->at = 0;
    Py_RETURN_NONE;
}

/* ---- a wire in shared memory (shared_wire.h) --------------------------------------------------------------------------- */

/* share(fd, memory): use the wire in `memory`, and the socket `fd` to wake and be woken. */
static PyObject *port_share(Port *self, PyObject *args)
{
    int fd;
    PyObject *memory;
    if (!PyArg_ParseTuple(args, "iO", &fd, &memory))
        return NULL;
    Py_XDECREF(port_unshare(self, NULL));
    if (PyObject_GetBuffer(memory, &self->wire_memory, PyBUF_WRITABLE))
        return NULL;
    struct shared_wire *wire = self->wire_memory.buf;
    size_t size = (size_t)self->wire_memory.len;
    uint32_t slot_bytes = 0, slots[2] = {0, 0};
    if (size >= sizeof *wire)
        slot_bytes = wire->slot_bytes, memcpy(slots, wire->slots, sizeof slots);
    int good = slot_bytes > sizeof(struct shared_slot) && slot_bytes < 1 << 20;
    for (int i = 0; i < 2; i++)
        good = good && slots[i] && slots[i] <= 1 << 16 && (slots[i] & (slots[i] - 1)) == 0;
    if (!good || shared_bytes(slot_bytes, slots[0], slots[1]) > size) {
        PyBuffer_Release(&self->wire_memory);
        return PyErr_SetString(PyExc_ValueError, "a shared wire of that shape does not fit its memory"), NULL;
    }
    self->to_switch = shared_side(wire, SHARED_TO_SWITCH, slots, slot_bytes);
    self->from_switch = shared_side(wire, SHARED_TO_PROCESS, slots, slot_bytes);
    self->wire = wire, self->wire_fd = fd, self->wakes = 0, self->looks = 0;
    Py_RETURN_NONE;
}

/* close_wire(closed): whether frames go over the interface for now, in both directions. */
static PyObject *port_close_wire(Port *self, PyObject *closed)
{
    int value = PyObject_IsTrue(closed);
    if (value < 0)
        return NULL;
    if (self->wire != NULL)
        shared_store(&self->wire->process_closed, (uint32_t)value);
    Py_RETURN_NONE;
}

static PyObject *port_wire_lost(Port *self, PyObject *nothing)
{
    (void)nothing;
    return PyLong_FromUnsignedLongLong(self->wire ? __atomic_load_n(&self->from_switch.ring->lost, __ATOMIC_RELAXED) : 0);
}

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Put a frame of `count` pieces on the wire; the caller wakes the switch. 0; EAGAIN: no slot is free now; NOT_MINE: it goes
 * over the interface. */
static int put_on_wire(Port *port, const struct iovec *pieces, size_t count)
{
    if (port->wire == NULL || !shared_is_open(port->wire))
        return NOT_MINE;
    size_t len = 0;
    for (size_t i = 0; i < count; i++)
        len += pieces[i].iov_len;
    struct shared_slot *slot = shared_room(&port->to_switch, len);
    if (slot == NULL)
        return len > port->to_switch.slot_bytes - sizeof *slot ? NOT_MINE : EAGAIN;
    uint8_t *at = slot->frame;
    for (size_t i = 0; i < count; at += pieces[i].iov_len, i++)
        memcpy(at, pieces[i].iov_base, pieces[i].iov_len);
    slot->at_ns = monotonic_ns();
    slot->len = (uint32_t)len;
    shared_put(&port->to_switch);
    port->tx_packets++, port->tx_bytes += len;
    return OK;
}

static void wake_switch(Port *port)
{
    if (port->wire != NULL)
        shared_wake(&port->to_switch, port->wire_fd);
}

enum { LOOKS = 8 };  /* at an empty wire, before its socket is looked at although nobody has said so */

/* Whether the switch has ended the wire. Reads the bytes with which it has woken us. */
static int wire_ended(Port *port)
{
    if (shared_load(&port->from_switch.ring->wakes) == port->wakes && ++port->looks % LOOKS)
        return 0;
    char bytes[64];
    ssize_t n = recv(port->wire_fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n > 0)
        port->wakes += (uint32_t)n;
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* Whether a frame waits on the wire. If not, the switch has been asked to wake us for the next: also after it has woken us
 * for a frame that was taken before the byte came. */
static int wire_has_frame(Port *port)
{
    if (shared_waiting(&port->from_switch))
        return 1;
    return !shared_load(&port->from_switch.ring->asleep) && shared_sleep(&port->from_switch);
}

/* ---- out -------------------------------------------------------------------------------------------------------------- */

typedef struct {
    uint8_t header[LONGEST_HEADER];  /* laid out with an outer header; without one, used from `start` on */
    size_t start, header_size;       /* of the part of `header` that is sent */
    Py_buffer payload;      /* obj == NULL: none */
    uint8_t trailer[3 + ICRC];
    size_t trailer_size;
} Frame;

/* Put Ethernet to BTH, for a packet whose IPv6 payload has `length` bytes; BTH ends at BODY of `out`, with or without an
 * outer header. OK, NOT_MINE, or NOT_MINE with an exception. */
static int put_start(Port *port, Route *route, Record *record, unsigned opcode, unsigned flags1,
                     uint32_t word, size_t length, uint8_t *out)
{
    uint32_t qpn = (uint32_t)number(record, DEST_QP, 0xFFFFFF);
    uint32_t ev = (uint32_t)number(record, EV, 0xFFFFFFFF);
    uint32_t dscp = (uint32_t)number(record, DSCP, 63), ecn = (uint32_t)number(record, ECN, 3);
    if (!record->good || length > 0xFFFF - IPV6)
        return NOT_MINE;
    uint16_t low = (uint16_t)ev, high = (uint16_t)(ev >> 16);
    /* the label carries the half of the EV that the UDP source port does not (§1.4) */
    uint32_t first = 0x60000000 | (dscp << 2 | ecn) << 20 | (port->low ? high : low);
    if (port->outer) {
        const uint8_t *destination = outer_destination(route, ev);
        if (destination == NULL)
            return NOT_MINE;
        memcpy(out, route->ethernet, ETHERNET);
        uint8_t *at = put16(put32(out + ETHERNET, first), (uint16_t)(IPV6 + length));
        *at++ = 41, *at++ = 64;
        memcpy(at, route->source, 16);
        memcpy(at + 16, destination, 16);
    } else {
        memcpy(out + IPV6, route->ethernet, ETHERNET);
    }
    out = put32(out + INNER, first);
    out = put16(out, (uint16_t)length);
    *out++ = 17, *out++ = 64;
    memcpy(out, route->pair, 32);
    out = put16(out + 32, port->low ? low : high);
    out = put16(out, port->dport);
    /* UDP checksum 0, that is none: the iCRC covers the packet */
    out = put16(put16(out, (uint16_t)length), 0);
    *out++ = (uint8_t)opcode, *out++ = (uint8_t)flags1;
    put32(put32(put16(out, port->pkey), qpn), word);
    return OK;
}

static void put_icrc(uint8_t *at, uint32_t crc)
{
    for (int i = 0; i < ICRC; i++)
        at[i] = (uint8_t)(crc >> 8 * i);
}

static int build_write(Port *port, Route *route, Record *record, Frame *frame)
{
    unsigned opcode = (unsigned)number(record, W_OPCODE, WRITE_ONLY_IMM);
    uint32_t psn = (uint32_t)number(record, W_PSN, 0xFFFFFF);
    uint32_t msn = (uint32_t)number(record, W_MSN, 0xFFFF);
    uint32_t rqmsn = (uint32_t)number(record, W_RQMSN, 0xFFFF);
    uint64_t va = number(record, W_VA, UINT64_MAX);
    uint32_t rkey = (uint32_t)number(record, W_RKEY, 0xFFFFFFFF);
    uint32_t dma_length = (uint32_t)number(record, W_DMA_LENGTH, 0xFFFFFFFF);
    uint32_t flags = (truth(record, W_ACK_REQUEST) ? FLAG_A : 0) | (truth(record, W_RTX) ? FLAG_RTX : 0);
    unsigned flags1 = truth(record, W_SOLICITED) ? 0x80 : 0;
    PyObject *timestamp = object_in(record, W_TIMESTAMP), *payload = object_in(record, W_PAYLOAD);
    uint8_t *at = frame->header + BODY;
    at = put16(put16(at, (uint16_t)rqmsn), (uint16_t)msn);
    if (timestamp != Py_None) {
        uint32_t ticks = (uint32_t)number(record, W_TIMESTAMP, 0xFFFF);
        uint32_t tsr = (uint32_t)number(record, W_TSR, 1);
        at = put16(put16(at, (uint16_t)ticks), (uint16_t)(tsr << 15 | 1));
        flags |= FLAG_TS;
    }
    at = put32(put32(put64(at, va), rkey), dma_length);
    if (opcode == WRITE_LAST_IMM || opcode == WRITE_ONLY_IMM)
        at = put32(at, (uint32_t)number(record, W_IMM, 0xFFFFFFFF));
    if (!record->good || opcode < WRITE_FIRST || payload == NULL)
        return NOT_MINE;
    /* the payload is no contiguous buffer: Python encodes it */
    if (PyObject_GetBuffer(payload, &frame->payload, PyBUF_SIMPLE)) {
        PyErr_Clear();
        frame->payload.obj = NULL;
        return NOT_MINE;
    }
    size_t pad = -(size_t)frame->payload.len & 3;
    size_t body = (size_t)(at - frame->header - BODY);
    frame->header_size = BODY + body - frame->start;
    frame->trailer_size = pad + ICRC;
    size_t length = UDP + BTH + body + (size_t)frame->payload.len + pad + ICRC;
    if (put_start(port, route, record, opcode, flags1 | (unsigned)pad << 4, flags << 24 | psn, length, frame->header))
        return NOT_MINE;
    uint32_t crc = crc32_of(masked_crc(frame->header + INNER), frame->header + BODY, body);
    crc = crc32_of(crc, frame->payload.buf, (size_t)frame->payload.len);
    memset(frame->trailer, 0, pad);
    put_icrc(frame->trailer + pad, crc32_of(crc, frame->trailer, pad));
    return OK;
}

/* Add all but the `body` bytes after BTH to a packet without payload; these are there. `word`: BTH flags and PSN. */
static int finish_control(Port *port, Route *route, Record *record, Frame *frame, unsigned opcode, uint32_t word, size_t body)
{
    frame->header_size = BODY + body - frame->start;
    frame->trailer_size = ICRC;
    frame->payload.obj = NULL;
    frame->payload.len = 0;
    if (put_start(port, route, record, opcode, 0, word, UDP + BTH + body + ICRC, frame->header))
        return NOT_MINE;
    put_icrc(frame->trailer, crc32_of(masked_crc(frame->header + INNER), frame->header + BODY, body));
    return OK;
}

static int build_sack(Port *port, Route *route, Record *record, Frame *frame)
{
    int probe = object_in(record, S_PROBE_ID) != Py_None;
    uint32_t psn = (uint32_t)number(record, S_CACK_PSN, 0xFFFFFF);
    uint32_t flags = truth(record, S_RTX) ? FLAG_RTX : 0;
    uint8_t *at = frame->header + BODY;
    at = put16(at, (uint16_t)(number(record, S_VERDICT, 3) << 5 | (unsigned)probe << 1));
    at = put16(at, probe ? (uint16_t)number(record, S_PROBE_ID, 0xFFFF)
                         : signed_number(record, S_ACK_PSN_OFFSET));
    at = put32(at, (uint32_t)number(record, S_ENTROPY, 0xFFFFFFFF));
    at = put16(at, (uint16_t)number(record, S_SPDCID, 0xFFFF));
    at = put16(at, (uint16_t)number(record, S_DPDCID, 0xFFFF));
    at = put32(at, psn);
    *at++ = (uint8_t)(number(record, S_CC_TYPE, 15) << 4);
    *at++ = (uint8_t)number(record, S_MPR, 0xFF);
    at = put16(at, signed_number(record, S_SACK_OFFSET));
    at = put64(at, number(record, S_BITMAP, UINT64_MAX));
    at = put16(at, (uint16_t)number(record, S_TIMESTAMP, 0xFFFF));
    at = put16(at, (uint16_t)number(record, S_OOO_COUNT, 0x7FFF));
    uint32_t penalty = (uint32_t)number(record, S_PENALTY, 127);
    uint32_t received = (uint32_t)number(record, S_RCVD_UNITS, 0xFFFFFF);
    at = put32(at, (uint32_t)truth(record, S_RESTORE_CWND) << 31 | penalty << 24 | received);
    if (!record->good)
        return NOT_MINE;
    return finish_control(port, route, record, frame, SACK, flags << 24 | psn, SACK_BODY);
}

static int build_ack(Port *port, Route *route, Record *record, Frame *frame)
{
    uint32_t psn = (uint32_t)number(record, A_PSN, 0xFFFFFF);
    uint32_t syndrome = (uint32_t)number(record, A_SYNDROME, 0xFF);
    put32(frame->header + BODY, syndrome << 24 | (uint32_t)number(record, A_MSN, 0xFFFFFF));
    if (!record->good)
        return NOT_MINE;
    return finish_control(port, route, record, frame, ACKNOWLEDGE, psn, ACK_BODY);
}

/* Build the frame of a record. The caller releases its payload, whatever the result, when `obj` is set. */
static int build(Port *port, PyObject *route, PyObject *record, Frame *frame)
{
    frame->payload.obj = NULL;
    frame->start = port->outer ? 0 : IPV6;
    if (!PyObject_TypeCheck(route, &RouteType) || port->plane == NULL || ((Route *)route)->address == NULL)
        return NOT_MINE;
    const Kind *kind = Py_TYPE(record) == write_kind.type ? &write_kind
                       : Py_TYPE(record) == sack_kind.type ? &sack_kind : &ack_kind;
    if (Py_TYPE(record) != kind->type)
        return NOT_MINE;
    Record read = {kind, record, 1};
    return kind == &write_kind ? build_write(port, (Route *)route, &read, frame)
           : kind == &sack_kind ? build_sack(port, (Route *)route, &read, frame)
                                : build_ack(port, (Route *)route, &read, frame);
}

static void release(Frame *frame)
{
    if (frame->payload.obj != NULL)
        PyBuffer_Release(&frame->payload);
}

static PyObject *port_build(Port *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2)
        return PyErr_SetString(PyExc_TypeError, "build(route, record)"), NULL;
    Frame frame;
    PyObject *whole = NULL;
    if (build(self, args[0], args[1], &frame) == OK) {
        size_t payload = (size_t)frame.payload.len;
        whole = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(frame.header_size + payload + frame.trailer_size));
        if (whole != NULL) {
            char *at = PyBytes_AS_STRING(whole);
            memcpy(at, frame.header + frame.start, frame.header_size);
            if (payload)
                memcpy(at + frame.header_size, frame.payload.buf, payload);
            memcpy(at + frame.header_size + payload, frame.trailer, frame.trailer_size);
        }
    } else if (!PyErr_Occurred()) {
        whole = Py_NewRef(Py_None);
    }
    release(&frame);
    return whole;
}

/* 0, or the errno of the kernel's refusal. */
static int send_by_interface(Port *port, const struct msghdr *message)
{
    ssize_t sent;
    do
        sent = sendmsg(port->fd, message, MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return errno;
    port->tx_packets++, port->tx_bytes += (unsigned long long)sent;
    return 0;
}

/* put(frame): put a whole frame on the wire. 0, an errno, or NOT_MINE: there is no wire for it. */
static PyObject *port_put(Port *self, PyObject *frame)
{
    Py_buffer bytes;
    if (PyObject_GetBuffer(frame, &bytes, PyBUF_SIMPLE))
        return NULL;
    struct iovec piece = {bytes.buf, (size_t)bytes.len};
    int result = put_on_wire(self, &piece, 1);
    wake_switch(self);
    PyBuffer_Release(&bytes);
    return PyLong_FromLong(result);
}

/* Send one record. 0: sent. > 0: the errno of the kernel's refusal. NOT_MINE: Python has to encode it. */
static PyObject *port_send(Port *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || self->fd < 0)
        return PyErr_SetString(PyExc_TypeError, "send(route, record) on an attached port"), NULL;
    Frame frame;
    long result = build(self, args[0], args[1], &frame);
    if (result == OK) {
        struct iovec pieces[3] = {
            {frame.header + frame.start, frame.header_size},
            {frame.payload.buf, (size_t)frame.payload.len},
            {frame.trailer, frame.trailer_size},
        };
        /* no empty piece: the trailer follows the header */
        if (frame.payload.len == 0)
            pieces[1] = pieces[2];
        struct msghdr message = {.msg_iov = pieces, .msg_iovlen = frame.payload.len ? 3 : 2};
        result = put_on_wire(self, pieces, message.msg_iovlen);
        wake_switch(self);
        if (result == NOT_MINE)
            result = send_by_interface(self, &message);
    }
    release(&frame);
    return PyErr_Occurred() ? NULL : PyLong_FromLong(result);
}

/* ---- out, many at a time ---------------------------------------------------------------------------------------------- */

typedef struct {
    Frame frame;
    struct iovec pieces[3];
    Py_ssize_t item;  /* its number in the list */
} Queued;

/* Frames that one call has built and not sent. Static: the interpreter's lock is held throughout. */
static Queued queued[BATCH];
static struct mmsghdr messages[BATCH];

static void address_pieces(Queued *one, struct mmsghdr *message)
{
    Frame *frame = &one->frame;
    size_t count = 0;
    one->pieces[count++] = (struct iovec){frame->header + frame->start, frame->header_size};
    if (frame->payload.len)
        one->pieces[count++] = (struct iovec){frame->payload.buf, (size_t)frame->payload.len};
    one->pieces[count++] = (struct iovec){frame->trailer, frame->trailer_size};
    *message = (struct mmsghdr){.msg_hdr = {.msg_iov = one->pieces, .msg_iovlen = count}};
}

static int note_refusal(PyObject *refused, Py_ssize_t item, int code)
{
    PyObject *pair = Py_BuildValue("ni", item, code);
    int failed = pair == NULL || PyList_Append(refused, pair);
    Py_XDECREF(pair);
    return failed ? -1 : 0;
}

/* Send `count` messages from `messages` on; appends (item, errno) of those that the kernel refused. After an errno that
 * means "later" the rest is refused without a call: no packet may overtake another. -1 with an exception. */
static int send_queued(Port *port, Queued *const *of, unsigned count, PyObject *refused)
{
    unsigned at = 0;
    int result = OK;
    while (at < count && (result = put_on_wire(port, messages[at].msg_hdr.msg_iov, messages[at].msg_hdr.msg_iovlen)) == OK)
        at++;
    wake_switch(port);
    while (at < count && result == EAGAIN)
        if (note_refusal(refused, of[at++]->item, EAGAIN))
            return -1;
    while (at < count) {
        int sent = sendmmsg(port->fd, messages + at, count - at, MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) {
            int code = errno, later = code == EAGAIN || code == ENOBUFS || code == ENOMEM;
            do {
                if (note_refusal(refused, of[at]->item, code))
                    return -1;
            } while (++at < count && later);
            continue;
        }
        for (; sent > 0; sent--, at++)
            port->tx_packets++, port->tx_bytes += messages[at].msg_len;
    }
    return 0;
}

/* The port and the route of an item (plane, peer, record), or NOT_MINE. `blocked` has the planes of ports that may not be
 * used now, a bit each. */
static int addressee(PyObject *ports, PyObject *item, unsigned long long blocked, Port **port, PyObject **route)
{
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 3)
        return NOT_MINE;
    Py_ssize_t plane = PyLong_AsSsize_t(PyTuple_GET_ITEM(item, 0));
    if (plane < 0 || plane >= PyTuple_GET_SIZE(ports) || plane >= 64 || blocked >> plane & 1)
        return NOT_MINE;
    PyObject *found = PyTuple_GET_ITEM(ports, plane);
    if (!PyObject_TypeCheck(found, &PortType))
        return NOT_MINE;
    *port = (Port *)found;
    if ((*port)->fd < 0 || (*port)->routes == NULL)
        return NOT_MINE;
    *route = PyDict_GetItemWithError((*port)->routes, PyTuple_GET_ITEM(item, 1));
    return *route == NULL ? NOT_MINE : OK;
}

/* Build at most BATCH items from `at` on and send them port by port. Returns the index to go on with: the next item, or
 * one that is for Python; -1 with an exception. */
static Py_ssize_t send_run(PyObject *ports, PyObject *items, Py_ssize_t at, unsigned long long blocked, PyObject *refused)
{
    Port *of[BATCH];
    unsigned built = 0;
    Py_ssize_t size = PyList_GET_SIZE(items);
    for (; at < size && built < BATCH; at++) {
        PyObject *item = PyList_GET_ITEM(items, at), *route;
        if (addressee(ports, item, blocked, &of[built], &route))
            break;
        Queued *one = &queued[built];
        if (build(of[built], route, PyTuple_GET_ITEM(item, 2), &one->frame)) {
            release(&one->frame);
            break;
        }
        one->item = at;
        built++;
    }
    /* one system call per port; within a port the order of the items stays */
    int failed = PyErr_Occurred() != NULL;
    for (unsigned first = 0; !failed && first < built; first++) {
        Port *port = of[first];
        if (port == NULL)
            continue;  /* sent with an earlier one */
        Queued *together[BATCH];
        unsigned count = 0;
        for (unsigned i = first; i < built; i++)
            if (of[i] == port) {
                address_pieces(&queued[i], &messages[count]);
                together[count++] = &queued[i];
                of[i] = NULL;
            }
        failed = send_queued(port, together, count, refused);
    }
    for (unsigned i = 0; i < built; i++)
        release(&queued[i].frame);
    return failed ? -1 : at;
}

/* ---- in --------------------------------------------------------------------------------------------------------------- */

/* Set the five fields that every record begins with. `outer`: traffic class of the first IPv6 header, `packet`: the inner
 * packet, which without an outer header begins with that one. */
static void set_envelope(Port *port, Record *record, const uint8_t *packet, uint32_t outer)
{
    uint16_t sport = get16(packet + AT_UDP), label = get16(packet + 2);
    uint32_t ev = port->low ? (uint32_t)label << 16 | sport : (uint32_t)sport << 16 | label;
    uint32_t inner = get32(packet) >> 20 & 0xFF;
    int marked = (outer & 3) == ECN_CE || (inner & 3) == ECN_CE;
    set_number(record, DEST_QP, get32(packet + AT_BTH + 4) & 0xFFFFFF);
    set_number(record, EV, ev);
    set_number(record, PLANE, port->plane_number);
    set_number(record, DSCP, outer >> 2);
    set_number(record, ECN, marked ? ECN_CE : outer & 3);
}

/* A record of a checked write whose extension headers and payload end at `end`; NULL without an exception: not for us. */
static PyObject *take_write(Port *port, const uint8_t *packet, uint32_t outer, const uint8_t *end)
{
    unsigned opcode = packet[AT_BTH], flags1 = packet[AT_BTH + 1], flags = packet[AT_BTH + 8];
    int timestamp = flags & FLAG_TS, immediate = opcode == WRITE_LAST_IMM || opcode == WRITE_ONLY_IMM;
    const uint8_t *at = packet + AT_BODY;
    Py_ssize_t pad = flags1 >> 4 & 3, headers = 4 + (timestamp ? 4 : 0) + 16 + (immediate ? 4 : 0);
    Py_ssize_t payload = end - at - headers - pad;
    /* the tail up to the iCRC is payload and pad, in words of 4 bytes */
    if (payload < 0 || (payload + pad) & 3)
        return NULL;
    const uint8_t *reth = at + (timestamp ? 8 : 4);
    Record record = new_record(&write_kind);
    set_envelope(port, &record, packet, outer);
    set(&record, W_OPCODE, Py_NewRef(opcodes[opcode - WRITE_FIRST]));
    set_number(&record, W_PSN, get32(packet + AT_BTH + 8) & 0xFFFFFF);
    set_number(&record, W_RQMSN, get16(at));
    set_number(&record, W_MSN, get16(at + 2));
    set(&record, W_TIMESTAMP, timestamp ? PyLong_FromLong(get16(at + 4)) : Py_NewRef(Py_None));
    set_number(&record, W_TSR, timestamp ? get16(at + 6) >> 15 : 0);
    set_number(&record, W_VA, get64(reth));
    set_number(&record, W_RKEY, get32(reth + 8));
    set_number(&record, W_DMA_LENGTH, get32(reth + 12));
    set_number(&record, W_IMM, immediate ? get32(reth + 16) : 0);
    set(&record, W_PAYLOAD, PyBytes_FromStringAndSize((const char *)at + headers, payload));
    set_number(&record, W_SIZE, get16(packet + 4) + NOMINAL_OVERHEAD);
    set_truth(&record, W_ACK_REQUEST, flags & FLAG_A);
    set_truth(&record, W_RTX, flags & FLAG_RTX);
    set_truth(&record, W_SOLICITED, flags1 & 0xC0);
    set(&record, W_TRIMMED, Py_NewRef(Py_None));
    return finished(&record);
}

static PyObject *take_sack(Port *port, const uint8_t *packet, uint32_t outer, const uint8_t *end)
{
    const uint8_t *at = packet + AT_BODY;
    if (end - at != SACK_BODY || packet[AT_BTH + 1] & 0x30)
        return NULL;
    uint32_t first = get16(at), tail = get32(at + 32);
    int probe = first & 0x02;
    Record record = new_record(&sack_kind);
    set_envelope(port, &record, packet, outer);
    set_signed(&record, S_ACK_PSN_OFFSET, probe ? 0 : (int16_t)get16(at + 2));
    set(&record, S_PROBE_ID, probe ? PyLong_FromLong(get16(at + 2)) : Py_NewRef(Py_None));
    set_number(&record, S_ENTROPY, get32(at + 4));
    set_number(&record, S_VERDICT, first >> 5 & 3);
    set_number(&record, S_SPDCID, get16(at + 8));
    set_number(&record, S_DPDCID, get16(at + 10));
    set_number(&record, S_CACK_PSN, get32(at + 12) & 0xFFFFFF);
    set_number(&record, S_CC_TYPE, at[16] >> 4);
    set_number(&record, S_MPR, at[17]);
    set_signed(&record, S_SACK_OFFSET, (int16_t)get16(at + 18));
    set_number(&record, S_BITMAP, get64(at + 20));
    set_number(&record, S_TIMESTAMP, get16(at + 28));
    set_number(&record, S_OOO_COUNT, get16(at + 30) & 0x7FFF);
    set_number(&record, S_RCVD_UNITS, tail & 0xFFFFFF);
    set_number(&record, S_PENALTY, tail >> 24 & 0x7F);
    set_truth(&record, S_RESTORE_CWND, tail >> 31 != 0);
    set_truth(&record, S_RTX, packet[AT_BTH + 8] & FLAG_RTX);
    return finished(&record);
}

static PyObject *take_ack(Port *port, const uint8_t *packet, uint32_t outer, const uint8_t *end)
{
    const uint8_t *at = packet + AT_BODY;
    if (end - at != ACK_BODY || packet[AT_BTH + 1] & 0x30)
        return NULL;
    Record record = new_record(&ack_kind);
    set_envelope(port, &record, packet, outer);
    set_number(&record, A_PSN, get32(packet + AT_BTH + 8) & 0xFFFFFF);
    set_number(&record, A_SYNDROME, at[0]);
    set_number(&record, A_MSN, get32(at) & 0xFFFFFF);
    return finished(&record);
}

/* The inner packet of a frame that is addressed to this port, its announced length in `*length`; NULL: not for us. A frame
 * with a segment routing header is left to Python. */
static const uint8_t *inner_packet(Port *port, const uint8_t *frame, size_t size, size_t *length)
{
    size_t lead = port->outer ? INNER : ETHERNET;
    if (size < lead + AT_BODY + ICRC || get16(frame + 12) != 0x86DD || frame[ETHERNET] >> 4 != 6)
        return NULL;
    const uint8_t *inner = frame + lead;
    size_t announced = get16(frame + ETHERNET + 4);
    /* IPv6 lengths do not count their own header; the outer one's counts the inner packet whole */
    if (!port->outer)
        announced += IPV6;
    else if (frame[ETHERNET + 6] != 41 || memcmp(frame + 38, port->own_usid, 16) || inner[0] >> 4 != 6)
        return NULL;
    if (announced < AT_BODY + ICRC || announced > size - lead || memcmp(inner + 24, port->own_address, 16))
        return NULL;
    *length = announced;
    return inner;
}

/* Name of the host with an inner source address, borrowed; NULL: there is none, or no memory, with an exception. */
static PyObject *peer_of(Port *port, const uint8_t *source)
{
    if (port->newest_peer != NULL && memcmp(port->newest_source, source, 16) == 0)
        return port->newest_peer;
    PyObject *key = PyBytes_FromStringAndSize((const char *)source, 16);
    PyObject *peer = key == NULL ? NULL : PyDict_GetItemWithError(port->peers, key);
    Py_XDECREF(key);
    if (peer != NULL) {
        Py_XSETREF(port->newest_peer, Py_NewRef(peer));
        memcpy(port->newest_source, source, 16);
    }
    return peer;
}

/* The record of a frame that is ours, whole, valid and of a kind we know (`*peer`: who sent it, borrowed); else NULL. */
static PyObject *take(Port *port, const uint8_t *frame, size_t size, PyObject **peer)
{
    size_t announced;
    const uint8_t *inner = inner_packet(port, frame, size, &announced);
    if (inner == NULL)
        return NULL;
    const uint8_t *udp = inner + AT_UDP, *bth = inner + AT_BTH;
    uint32_t outer = get32(frame + ETHERNET) >> 20 & 0xFF;
    size_t length = announced - IPV6;
    /* a UDP checksum other than 0 is left to Python, which checks it */
    if (inner[6] != 17 || get16(inner + 4) != length || get16(udp + 4) != length || get16(udp + 6))
        return NULL;
    uint16_t dport = get16(udp + 2);
    if (dport != port->ports[0] && dport != port->ports[1] && dport != port->ports[2] && dport != port->ports[3])
        return NULL;
    int write = bth[0] >= WRITE_FIRST && bth[0] <= WRITE_ONLY_IMM;
    /* trimmed packets have no iCRC: Python reads them */
    if ((!write && bth[0] != SACK && bth[0] != ACKNOWLEDGE) || bth[1] & 0x0F || dport == 0 || port->trimmed[outer >> 2])
        return NULL;
    *peer = peer_of(port, inner + 8);
    if (*peer == NULL)
        return NULL;
    const uint8_t *end = inner + announced - ICRC;
    uint32_t crc = crc32_of(masked_crc(inner), inner + AT_BODY, (size_t)(end - inner - AT_BODY));
    uint32_t wanted = end[0] | (uint32_t)end[1] << 8 | (uint32_t)end[2] << 16 | (uint32_t)end[3] << 24;
    if (crc != wanted)
        return NULL;
    if (write)
        return take_write(port, inner, outer, end);
    return bth[0] == SACK ? take_sack(port, inner, outer, end) : take_ack(port, inner, outer, end);
}

/* (plane, peer, record), taking over the record. */
static PyObject *received(Port *port, PyObject *peer, PyObject *record)
{
    PyObject *whole = PyTuple_Pack(3, port->plane, peer, record);
    Py_DECREF(record);
    return whole;
}

static PyObject *port_open(Port *self, PyObject *frame)
{
    Py_buffer bytes;
    PyObject *peer, *whole = NULL;
    if (self->plane == NULL || PyObject_GetBuffer(frame, &bytes, PyBUF_SIMPLE))
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    PyObject *record = take(self, bytes.buf, (size_t)bytes.len, &peer);
    if (record != NULL)
        whole = received(self, peer, record);
    else if (!PyErr_Occurred())
        whole = Py_NewRef(Py_None);
    PyBuffer_Release(&bytes);
    return whole;
}

/* Append the record of a frame to the list `records`, or what `other` makes of it, unless that is None. `frame` NULL: it
 * was longer than a slot. -1 with an exception. */
static int receive_frame(Port *port, const uint8_t *frame, size_t size, PyObject *records, PyObject *other)
{
    PyObject *peer, *item = NULL, *record = frame ? take(port, frame, size, &peer) : NULL;
    if (record != NULL) {
        item = received(port, peer, record);
        port->rx_packets++, port->rx_bytes += size;
    } else if (!PyErr_Occurred()) {
        PyObject *copy = frame ? PyBytes_FromStringAndSize((const char *)frame, (Py_ssize_t)size) : Py_NewRef(Py_None);
        item = copy == NULL ? NULL : PyObject_CallOneArg(other, copy);
        Py_XDECREF(copy);
    }
    int failed = item == NULL || (item != Py_None && PyList_Append(records, item));
    Py_XDECREF(item);
    return failed ? -1 : 0;
}

/* Up to `limit` frames of the wire, if there is one. Returns whether the switch has ended it; -1 with an exception. */
static int receive_by_wire(Port *port, long limit, PyObject *records, PyObject *other)
{
    if (port->wire == NULL)
        return 0;
    int ended = wire_ended(port);
    for (long taken = 0; taken < limit && wire_has_frame(port); taken++) {
        uint32_t size;
        const struct shared_slot *slot = shared_next(&port->from_switch, &size);
        int failed = receive_frame(port, slot ? slot->frame : NULL, size, records, other);
        shared_took(&port->from_switch);
        if (failed)
            return -1;
    }
    return ended;
}

/* receive(limit, found, other): up to `limit` frames of the wire and as many of the ring; what is taken is appended to the
 * list `found`. For each frame that is not for us `other(frame)` is called with its bytes, or None when it was longer than
 * a slot; its answer is appended unless it is None. Returns whether the switch has ended the wire. */
static PyObject *port_receive(Port *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyList_Check(args[1]) || self->ring.buf == NULL)
        return PyErr_SetString(PyExc_TypeError, "receive(limit, found, other) on an attached port"), NULL;
    long limit = PyLong_AsLong(args[0]);
    int ended = receive_by_wire(self, limit, args[1], args[2]);
    if (ended < 0)
        return NULL;
    for (long taken = 0; taken < limit; taken++) {
        uint8_t *slot = (uint8_t *)self->ring.buf + (Py_ssize_t)(self->at / self->per_block) * self->block +
                        (Py_ssize_t)(self->at % self->per_block) * self->slot;
        uint32_t *status = (uint32_t *)(void *)slot, length, there;
        uint16_t start;
        /* bit TP_STATUS_USER: the kernel has handed the slot over */
        if (!(__atomic_load_n(status, __ATOMIC_ACQUIRE) & 1))
            break;
        memcpy(&length, slot + 4, 4), memcpy(&there, slot + 8, 4), memcpy(&start, slot + 12, 2);
        int whole = length == there && start + (size_t)there <= (size_t)self->slot;
        int failed = receive_frame(self, whole ? slot + start : NULL, there, args[1], args[2]);
        /* the record has copied the frame: the kernel may fill the slot again */
        __atomic_store_n(status, 0, __ATOMIC_RELEASE);
        self->at = self->at + 1 == self->slots ? 0 : self->at + 1;
        if (failed)
            return NULL;
    }
    if (PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(ended);
}

static PyObject *port_add_route(Port *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyObject_TypeCheck(args[1], &RouteType) || self->routes == NULL)
        return PyErr_SetString(PyExc_TypeError, "add_route(peer, route)"), NULL;
    if (PyDict_SetItem(self->routes, args[0], args[1]))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *port_take_counts(Port *self, PyObject *nothing)
{
    (void)nothing;
    PyObject *counts = Py_BuildValue("KKKK", self->tx_packets, self->tx_bytes, self->rx_packets, self->rx_bytes);
    if (counts != NULL)
        self->tx_packets = self->tx_bytes = self->rx_packets = self->rx_bytes = 0;
    return counts;
}

static PyMethodDef port_methods[] = {
    {"attach", (PyCFunction)port_attach, METH_VARARGS, "attach(fd, ring, block, slot, per_block, slots)"},
    {"detach", (PyCFunction)port_detach, METH_NOARGS, "Let go of socket and ring."},
    {"build", (PyCFunction)(void (*)(void))port_build, METH_FASTCALL, "build(route, record) -> frame, or None"},
    {"open", (PyCFunction)port_open, METH_O, "open(frame) -> (plane, peer, record), or None"},
    {"add_route", (PyCFunction)(void (*)(void))port_add_route, METH_FASTCALL, "add_route(peer, route), for send_many"},
    {"send", (PyCFunction)(void (*)(void))port_send, METH_FASTCALL, "send(route, record) -> 0, errno, or -1"},
    {"receive", (PyCFunction)(void (*)(void))port_receive, METH_FASTCALL, "receive(limit, found, other) -> whether the wire ended"},
    {"share", (PyCFunction)port_share, METH_VARARGS, "share(fd, memory): use a wire in shared memory"},
    {"unshare", (PyCFunction)port_unshare, METH_NOARGS, "Let go of the wire in shared memory."},
    {"close_wire", (PyCFunction)port_close_wire, METH_O, "close_wire(closed): frames go over the interface for now"},
    {"put", (PyCFunction)port_put, METH_O, "put(frame) -> 0, errno, or -1: no wire takes it"},
    {"wire_lost", (PyCFunction)port_wire_lost, METH_NOARGS, "frames that found the wire full since it was made"},
    {"take_counts", (PyCFunction)port_take_counts, METH_NOARGS,
     "(tx_packets, tx_bytes, rx_packets, rx_bytes) since the last call"},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject PortType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "mrc_native.Port",
    .tp_doc = "Port(plane, own_usid, own_address, peers, ports, dport, pkey, low, trimmed)",
    .tp_basicsize = sizeof(Port),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)port_init,
    .tp_dealloc = (destructor)port_dealloc,
    .tp_methods = port_methods,
};

/* ---- the module ------------------------------------------------------------------------------------------------------- */

#define NAME(name) #name,
static const char *const write_names[] = { WRITE_FIELDS(NAME) NULL };
static const char *const sack_names[] = { SACK_FIELDS(NAME) NULL };
static const char *const ack_names[] = { ACK_FIELDS(NAME) NULL };

/* The place of a field in objects of `type` that have slots; false when it has no slot. */
static int slot_place(PyObject *type, PyObject *name, Place *place)
{
    PyObject *member = PyObject_GetAttr(type, name);
    int good = member != NULL && Py_TYPE(member) == &PyMemberDescr_Type;
    if (good)
        *place = (Place){((PyMemberDescrObject *)member)->d_member->offset, OBJECT};
    Py_XDECREF(member);
    return good;
}

/* Copy a record of compiled code without the values of its fields. NULL: no memory. */
static char *blank_of(const Kind *kind, PyObject *record)
{
    size_t size = (size_t)kind->type->tp_basicsize - sizeof(PyObject);
    char *blank = PyMem_Malloc(size);
    if (blank == NULL)
        return NULL;
    memcpy(blank, (char *)record + sizeof(PyObject), size);
    for (int i = 0; i < kind->count; i++)
        memset(blank + kind->places[i].at - sizeof(PyObject), 0, kind->places[i].storage == TRUTH ? 1 : sizeof(PyObject *));
    return blank;
}

/* Learn the class of `record`. ValueError when its fields are not `names` in that order, or lie elsewhere. */
static int setup_kind(Kind *kind, PyObject *record, const char *const *names, const Place *places)
{
    PyTypeObject *type = Py_TYPE(record);
    PyObject *fields = PyObject_GetAttrString((PyObject *)type, "__match_args__"); /* those of its base first */
    if (fields == NULL && !PyErr_ExceptionMatches(PyExc_AttributeError))
        return -1;
    PyErr_Clear();
    Kind learned = {.type = type};
    while (names[learned.count] != NULL)
        learned.count++;
    int good = fields != NULL && PyTuple_Check(fields) && PyTuple_GET_SIZE(fields) == learned.count && type->tp_dictoffset == 0;
    for (int i = 0; good && i < learned.count; i++) {
        PyObject *name = PyTuple_GET_ITEM(fields, i);
        good = PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, names[i]) == 0;
        if (good && places != NULL)
            learned.places[i] = places[i];
        else if (good)
            good = slot_place((PyObject *)type, name, &learned.places[i]);
    }
    Py_XDECREF(fields);
    if (!good) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a record has other fields than hosts/nic/mrc_native.c knows");
        return -1;
    }
    if (places != NULL && (learned.blank = blank_of(&learned, record)) == NULL)
        return PyErr_NoMemory(), -1;
    Py_INCREF(type); /* it stays for as long as the process */
    PyMem_Free(kind->blank);
    *kind = learned;
    return 0;
}

static PyObject *setup(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *write, *sack, *ack, *opcode;
    if (!PyArg_ParseTuple(args, "OOOO", &write, &sack, &ack, &opcode))
        return NULL;
    if (setup_kind(&write_kind, write, write_names, write_places) ||
        setup_kind(&sack_kind, sack, sack_names, sack_places) || setup_kind(&ack_kind, ack, ack_names, ack_places))
        return NULL;
    for (long code = WRITE_FIRST; code <= WRITE_ONLY_IMM; code++) {
        PyObject *member = PyObject_CallFunction(opcode, "l", code);
        if (member == NULL)
            return NULL;
        Py_XSETREF(opcodes[code - WRITE_FIRST], member);
    }
    Py_RETURN_NONE;
}

/* send_many(ports, items, start, blocked, refused): see functions. `ports` by plane; `items` are (plane, peer, record). */
static PyObject *send_many(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 5 || !PyTuple_Check(args[0]) || !PyList_Check(args[1]) || !PyList_Check(args[4]))
        return PyErr_SetString(PyExc_TypeError, "send_many(ports, items, start, blocked, refused)"), NULL;
    Py_ssize_t at = PyLong_AsSsize_t(args[2]);
    unsigned long long blocked = PyLong_AsUnsignedLongLong(args[3]);
    if (PyErr_Occurred())
        return NULL;
    if (at < 0)
        return PyErr_SetString(PyExc_ValueError, "send_many: start < 0"), NULL;
    while (at < PyList_GET_SIZE(args[1])) {
        Py_ssize_t next = send_run(args[0], args[1], at, blocked, args[4]);
        if (next < 0)
            return NULL;
        if (next == at || PyList_GET_SIZE(args[4]))
            return PyLong_FromSsize_t(next);
        at = next;
    }
    return PyLong_FromSsize_t(at);
}

/* crc32(data, crc = 0, way = 2): as zlib's; 0 takes the table for everything, 1 folds 64 bytes at a time, 2 128 bytes; each
 * where the processor can, else the one before. */
static PyObject *py_crc32(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer data;
    unsigned crc = 0;
    int way = FOLDING_WIDE;
    if (!PyArg_ParseTuple(args, "y*|Ii", &data, &crc, &way))
        return NULL;
    uint32_t result = crc32_by(way < best_way ? way : best_way, crc, data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(result);
}

static PyMethodDef functions[] = {
    {"setup", setup, METH_VARARGS, "setup(write, sack, ack, Opcode): learn the classes of these records; ValueError when they changed"},
    {"send_many", (PyCFunction)(void (*)(void))send_many, METH_FASTCALL,
     "send_many(ports, items, start, blocked, refused) -> the item to go on with: one for Python, or the one after a\n"
     "refusal, appended to `refused` as (item, errno); len(items) at the end. `blocked`: bits of planes left to Python."},
    {"crc32", py_crc32, METH_VARARGS, "crc32(data, crc=0, way=2)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "mrc_native", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_mrc_native(void)
{
    make_crc_table();
#if defined(__x86_64__)
    if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
        best_way = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq") ? FOLDING_WIDE : FOLDING;
#endif
    if (PyType_Ready(&RouteType) || PyType_Ready(&PortType))
        return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made == NULL || PyModule_AddObjectRef(made, "Route", (PyObject *)&RouteType) ||
        PyModule_AddObjectRef(made, "Port", (PyObject *)&PortType))
        return Py_XDECREF(made), NULL;
    return made;
}
