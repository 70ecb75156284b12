/* Devices: create, load a program, the in-memory door, counters and registers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "pipeline.h"
#include "replication.h"
#include "traffic.h"

uint64_t rt_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

RT_API struct rt_device *rt_device_create(uint32_t id, uint64_t seed)
{
    struct rt_device *dev = calloc(1, sizeof *dev);
    if (dev) {
        dev->id = id;
        dev->random.seed = seed;
        dev->observers.digests.wake = -1;
        dev->attached.timer.order = id;
        dev->traffic.pool.limit = RT_POOL_BYTES;
    }
    return dev;
}

/* ---- loading ------------------------------------------------------------------------------------------------ */

static int fail(char *why, size_t room, const char *text, const char *name)
{
    snprintf(why, room, "%s%s%s", text, *name ? ": " : "", name);
    return RT_INVALID;
}

static uint32_t sum_bytes(const struct p4rt_field_desc *fields, uint32_t n)
{
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += (fields[i].bits + 7) / 8;
    return bytes;
}

/* The descriptor is our compiler's; this check catches a stale or foreign file, not malice. */
static int check_program(const struct p4_program *p, char *why, size_t room)
{
    if (p->abi != P4RT_ABI)
        return fail(why, room, "compiled for another runtime: compile it again", "");
    if (!p->parse || !p->ingress || !p->egress || !p->deparse || !p->forget)
        return fail(why, room, "a function of the pipeline is missing", p->name);
    for (uint32_t i = 0; i < p->n_actions; i++)
        if (p->actions[i].params_bytes != sum_bytes(p->actions[i].params, p->actions[i].n_params))
            return fail(why, room, "action with a wrong parameter length", p->actions[i].name);
    for (uint32_t i = 0; i < p->n_tables; i++) {
        const struct p4rt_table_desc *t = &p->tables[i];
        if (t->key_bytes != sum_bytes(t->fields, t->n_fields) || P4RT_WORDS(t->key_bytes) > P4RT_MAX_KEY_WORDS)
            return fail(why, room, "table with a wrong key length", t->name);
        if (t->profile != P4RT_NONE && t->profile >= p->n_profiles)
            return fail(why, room, "table with an unknown action profile", t->name);
        if (t->default_action != P4RT_NONE && t->default_action >= p->n_actions)
            return fail(why, room, "table with an unknown default action", t->name);
        for (uint32_t e = 0; e < t->n_entries; e++)
            if (t->entries[e].action >= p->n_actions)
                return fail(why, room, "table with an entry of an unknown action", t->name);
    }
    for (uint32_t i = 0; i < p->n_registers; i++)
        if (p->registers[i].bits < 1)
            return fail(why, room, "register without bits", p->registers[i].name);
    return RT_OK;
}

static void free_state(struct rt_device *dev)
{
    const struct p4_program *p = dev->pub.program;
    if (!p)
        return;
    rt_tables_destroy(dev);
    rt_profiles_destroy(dev);
    rt_digests_forget(&dev->observers.digests);
    rt_replication_forget(&dev->replication);
    for (uint32_t i = 0; dev->pub.counters && i < p->n_counters; i++)
        free(dev->pub.counters[i].cells);
    for (uint32_t i = 0; dev->pub.registers && i < p->n_registers; i++)
        free(dev->pub.registers[i].cells);
    for (uint32_t i = 0; dev->pub.meters && i < p->n_meters; i++)
        free(dev->pub.meters[i].cells);
    free(dev->pub.counters);
    free(dev->pub.registers);
    free(dev->pub.meters);
    free(dev->pipeline.phv);
    if (dev->pipeline.library)
        dlclose(dev->pipeline.library);
    memset(&dev->pub, 0, sizeof dev->pub);
    dev->pipeline.library = NULL;
    dev->pipeline.phv = NULL;
    memset(&dev->observers.stats, 0, sizeof dev->observers.stats);
    dev->pub.false_assert = NULL;
}

/* A device of its own with the state the program asks for; NULL: out of memory, or its entries do not fit. */
static int make_state(struct rt_device *dev, const struct p4_program *p)
{
    size_t phv = ((size_t)p->phv_bytes + 63) / 64 * 64;

    dev->pub.program = p;
    dev->pub.ops = &rt_ops;
    dev->pipeline.phv = aligned_alloc(64, phv ? phv : 64);
    dev->pub.counters = calloc(p->n_counters + 1, sizeof *dev->pub.counters);
    dev->pub.registers = calloc(p->n_registers + 1, sizeof *dev->pub.registers);
    dev->pub.meters = calloc(p->n_meters + 1, sizeof *dev->pub.meters);
    dev->pipeline.profiles = calloc(p->n_profiles + 1, sizeof *dev->pipeline.profiles);
    if (!dev->pub.meters || !dev->pipeline.phv || !dev->pub.counters || !dev->pub.registers || !dev->pipeline.profiles)
        return RT_NO_MEMORY;
    for (uint32_t i = 0; i < p->n_counters; i++) {
        struct p4rt_counter *c = &dev->pub.counters[i];
        *c = (struct p4rt_counter){calloc(p->counters[i].size + 1, sizeof *c->cells), p->counters[i].size,
                                   p->counters[i].kind};
        if (!c->cells)
            return RT_NO_MEMORY;
    }
    for (uint32_t i = 0; i < p->n_meters; i++) {
        struct p4rt_meter *m = &dev->pub.meters[i];
        *m = (struct p4rt_meter){calloc(p->meters[i].size + 1, sizeof *m->cells), p->meters[i].size,
                                 p->meters[i].bytes};
        if (!m->cells)
            return RT_NO_MEMORY;
    }
    for (uint32_t i = 0; i < p->n_registers; i++) {
        struct p4rt_register *r = &dev->pub.registers[i];
        uint32_t bits = p->registers[i].bits, bytes = bits > 128 ? (bits + 7) / 8 : sizeof(unsigned __int128);
        *r = (struct p4rt_register){calloc(p->registers[i].size + 1, bytes), p->registers[i].size, bits, bytes};
        if (!r->cells)
            return RT_NO_MEMORY;
    }
    return rt_tables_create(dev);
}

/* Forget program and state and go on with those of `from`, whose owner forgets them without freeing. */
static void take_state(struct rt_device *dev, const struct rt_device *from)
{
    rt_traffic_restart(&dev->traffic);
    free_state(dev);
    dev->pub = from->pub;
    dev->pipeline = from->pipeline;
    rt_random_seed(&dev->random);
}

/* Run the program in the shared object `path` with fresh state. On failure `why` says it in words and the old program
 * goes on. */
RT_API int rt_device_load(struct rt_device *dev, const char *path, char *why, size_t room)
{
    struct rt_device fresh = {.id = dev->id, .random.seed = dev->random.seed};
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct p4_program *program;
    int error;

    if (!library)
        return fail(why, room, dlerror(), "");
    program = dlsym(library, P4RT_SYMBOL);
    error = program ? check_program(program, why, room) : fail(why, room, "exports no " P4RT_SYMBOL, path);
    if (error) {
        dlclose(library);
        return error;
    }
    fresh.pipeline.library = library;
    error = make_state(&fresh, program);
    if (error) {
        fail(why, room, error == RT_NO_MEMORY ? "out of memory" : "initial entries collide or do not fit", program->name);
        free_state(&fresh);
        return error;
    }
    rt_lock(&dev->lock);
    take_state(dev, &fresh);
    dev->started_ns = dev->collected ? 0 : rt_now_ns();
    rt_unlock(&dev->lock);
    return RT_OK;
}

/* Run what `from` holds, program and state, from one packet to the next; `from` is empty then. */
RT_API void rt_device_adopt(struct rt_device *dev, struct rt_device *from)
{
    rt_lock(&dev->lock);
    rt_lock(&from->lock);
    take_state(dev, from);
    dev->replication = from->replication;
    dev->started_ns = from->started_ns;
    memset(&from->pub, 0, sizeof from->pub);
    memset(&from->pipeline, 0, sizeof from->pipeline);
    memset(&from->replication, 0, sizeof from->replication);
    rt_groups_refresh(dev, -1);
    rt_unlock(&from->lock);
    rt_unlock(&dev->lock);
}

/* Keep packets out until rt_device_release: what the caller changes meanwhile, they see all of it or nothing. */
RT_API void rt_device_hold(struct rt_device *dev)
{
    rt_lock_keep(&dev->lock);
}

RT_API void rt_device_release(struct rt_device *dev)
{
    rt_lock_release(&dev->lock);
}

RT_API void rt_device_unload(struct rt_device *dev)
{
    rt_lock(&dev->lock);
    rt_traffic_restart(&dev->traffic);
    free_state(dev);
    rt_unlock(&dev->lock);
}

/* The caller has detached it from its event loop, and nobody else uses it any more. */
RT_API void rt_device_destroy(struct rt_device *dev)
{
    rt_virtual_destroy(dev);
    rt_traffic_destroy(&dev->traffic);
    free_state(dev);
    free(dev);
}

RT_API const struct p4_program *rt_device_program(struct rt_device *dev)
{
    return dev->pub.program;
}

/* ---- packets -------------------------------------------------------------------------------------------------- */

/* Where the in-memory door puts what comes out: port, length (uint32_t each) and frame, one after the other. */
struct rt_written {
    struct rt_out out;          /* first */
    uint8_t *at;
    size_t used, room;
    int full;
};

static void write_out(struct rt_out *out, struct rt_device *dev, uint32_t port, uint8_t *data, uint32_t len,
                      uint64_t at_ns)
{
    struct rt_written *all = (struct rt_written *)out;
    uint32_t head[2] = {port, len};

    (void)at_ns;
    if (all->room - all->used < sizeof head + len) {
        all->full = 1;
        return;
    }
    memcpy(all->at + all->used, head, sizeof head);
    memcpy(all->at + all->used + sizeof head, data, len);
    all->used += sizeof head + len;
    dev->observers.stats.sent++;
}

/* One frame in, past the traffic manager; what comes out is written to `out`. Returns the bytes written, or
 * RT_NO_PROGRAM, or RT_FULL when `room` was too little for the copies: the packet has been processed all the same. */
RT_API int rt_device_process(struct rt_device *dev, uint32_t port, const uint8_t *frame, uint32_t len, uint8_t *out,
                             size_t room)
{
    struct rt_written all = {{write_out}, out, 0, room, 0};
    static __thread uint8_t buffer[P4RT_HEADROOM + P4RT_MAX_FRAME] __attribute__((aligned(64)));
    uint64_t now_ns = rt_device_now(dev);
    int written = 0;

    rt_lock(&dev->lock);
    if (!dev->pub.program) {
        written = RT_NO_PROGRAM;
    } else if (len > P4RT_MAX_FRAME) {
        dev->observers.stats.received++;
        dev->observers.stats.dropped_size++;
    } else {
        memcpy(buffer + P4RT_HEADROOM, frame, len);
        rt_pass(dev, &all.out, port, buffer + P4RT_HEADROOM, len, P4RT_HEADROOM, now_ns);
        written = all.full ? RT_FULL : (int)all.used;
    }
    rt_unlock(&dev->lock);
    return written;
}

static void drop_out(struct rt_out *out, struct rt_device *dev, uint32_t port, uint8_t *data, uint32_t len,
                     uint64_t at_ns)
{
    (void)out, (void)port, (void)data, (void)len, (void)at_ns;
    dev->observers.stats.sent++;
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Push the same frame `count` times through the pipeline and drop what comes out; returns nanoseconds of this thread's
 * CPU time. For the benchmark: what the program itself costs. */
RT_API uint64_t rt_device_spin(struct rt_device *dev, uint32_t port, const uint8_t *frame, uint32_t len, uint64_t count)
{
    uint8_t buffer[P4RT_HEADROOM + P4RT_MAX_FRAME] __attribute__((aligned(64)));
    uint64_t now_ns = rt_device_now(dev), start_ns;
    struct rt_out none = {drop_out};

    rt_lock(&dev->lock);
    start_ns = cpu_ns();
    for (uint64_t i = 0; dev->pub.program && len <= P4RT_MAX_FRAME && i < count; i++) {
        memcpy(buffer + P4RT_HEADROOM, frame, len);
        rt_pass(dev, &none, port, buffer + P4RT_HEADROOM, len, P4RT_HEADROOM, now_ns);
    }
    start_ns = cpu_ns() - start_ns;
    rt_unlock(&dev->lock);
    return start_ns;
}

void rt_port_state(struct rt_device *dev, uint32_t port, int up)
{
    uint64_t bit = (uint64_t)1 << (port % 64);
    rt_lock(&dev->lock);
    if (up)
        dev->down[port / 64] &= ~bit;
    else
        dev->down[port / 64] |= bit;
    rt_groups_refresh(dev, (int32_t)port);
    rt_unlock(&dev->lock);
}

RT_API int rt_device_port_state(struct rt_device *dev, uint32_t port, int up)
{
    if (port >= RT_PORTS)
        return RT_INVALID;
    rt_port_state(dev, port, up);
    return RT_OK;
}

RT_API void rt_device_stats(struct rt_device *dev, struct rt_stats *out)
{
    rt_lock(&dev->lock);
    *out = dev->observers.stats;
    out->false_assert = dev->pub.false_assert;
    rt_unlock(&dev->lock);
}

/* ---- counters and registers ------------------------------------------------------------------------------------- */

/* Copy cells first..first+n-1 of a counter out (write = 0) or in (write = 1). */
RT_API int rt_counter_cells(struct rt_device *dev, uint32_t index, uint32_t first, uint32_t n, struct p4rt_cell *cells,
                            int write)
{
    int error = RT_OK;
    rt_lock(&dev->lock);
    if (!dev->pub.program || index >= dev->pub.program->n_counters)
        error = RT_INVALID;
    else if (first > dev->pub.counters[index].size || n > dev->pub.counters[index].size - first)
        error = RT_NOT_FOUND;
    else if (write)
        memcpy(dev->pub.counters[index].cells + first, cells, n * sizeof *cells);
    else
        memcpy(cells, dev->pub.counters[index].cells + first, n * sizeof *cells);
    rt_unlock(&dev->lock);
    return error;
}

/* The same for a register; a cell is 16 bytes, little-endian on the machines we run on, or as p4wide.h has it. */
RT_API int rt_register_cells(struct rt_device *dev, uint32_t index, uint32_t first, uint32_t n, void *cells, int write)
{
    int error = RT_OK;
    rt_lock(&dev->lock);
    if (!dev->pub.program || index >= dev->pub.program->n_registers) {
        error = RT_INVALID;
    } else if (first > dev->pub.registers[index].size || n > dev->pub.registers[index].size - first) {
        error = RT_NOT_FOUND;
    } else {
        size_t cell_bytes = dev->pub.registers[index].cell_bytes;
        uint8_t *kept = (uint8_t *)dev->pub.registers[index].cells + first * cell_bytes;
        memcpy(write ? kept : cells, write ? cells : kept, n * cell_bytes);
    }
    rt_unlock(&dev->lock);
    return error;
}
