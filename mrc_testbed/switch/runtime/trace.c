/* Tracing: the way of one packet through a program, event by event, with the fields before each.
 *
 * The same C text of a program is compiled a second time with -DP4_TRACE; its tables and structures are those of the
 * ordinary build, so it runs on the state of a device that was loaded with that one. Between rt_trace_start and
 * rt_trace_end the device runs the traced build, and what it reports is gathered in a block:
 *
 *     struct rt_trace_head, name, where, data, struct p4rt_std, the program's phv; one after the other
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime.h"

#define RT_TRACE_BYTES (16u << 20)  /* a trace stops growing here */

struct rt_trace_head {              /* as mrc_testbed/switch/device/trace.py reads it */
    uint32_t event, name, where, data, std, phv; /* all but the event: bytes that follow */
};

static int grow(struct rt_trace *trace, size_t more)
{
    size_t room = trace->room ? trace->room : 64 * 1024;
    uint8_t *bytes;

    if (trace->used + more > RT_TRACE_BYTES)
        return 0;
    while (room < trace->used + more)
        room *= 2;
    bytes = room == trace->room ? trace->bytes : realloc(trace->bytes, room);
    if (!bytes)
        return 0;
    trace->bytes = bytes;
    trace->room = room;
    return 1;
}

/* Called by programs built with -DP4_TRACE: the device is locked. */
void rt_trace(struct p4rt_device *pub, const struct p4rt_packet *pkt, enum p4rt_event event, const char *name,
              const char *where, const void *data, uint32_t len)
{
    struct rt_device *dev = (struct rt_device *)pub;
    struct rt_trace *trace = &dev->observers.trace;
    uint32_t phv = pub->program->phv_bytes;
    struct rt_trace_head head = {event, (uint32_t)strlen(name), (uint32_t)strlen(where), len,
                                 (uint32_t)sizeof pkt->std, phv};
    size_t size = sizeof head + head.name + head.where + len + sizeof pkt->std + phv;
    uint8_t *at;

    if (!trace->ordinary || !grow(trace, size))
        return;
    at = trace->bytes + trace->used;
    trace->used += size;
    memcpy(at, &head, sizeof head);
    memcpy(at += sizeof head, name, head.name);
    memcpy(at += head.name, where, head.where);
    if (len)
        memcpy(at + head.where, data, len);
    memcpy(at += head.where + len, &pkt->std, sizeof pkt->std);
    memcpy(at + sizeof pkt->std, pkt->phv, phv);
}

/* Run the traced build in the shared object `path` from now on. RT_INVALID with the reason in `why`: it cannot be
 * opened or is not the loaded program. */
RT_API int rt_trace_start(struct rt_device *dev, const char *path, char *why, size_t room)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct p4_program *traced = library ? dlsym(library, P4RT_SYMBOL) : NULL;
    const struct p4_program *running;

    if (!traced) {
        snprintf(why, room, "%s", library ? "exports no " P4RT_SYMBOL : dlerror());
        if (library)
            dlclose(library);
        return RT_INVALID;
    }
    rt_lock(&dev->lock);
    running = dev->pub.program;
    if (!running || dev->observers.trace.ordinary || traced->abi != P4RT_ABI || !traced->trace ||
        traced->phv_bytes != running->phv_bytes || traced->n_tables != running->n_tables ||
        traced->n_actions != running->n_actions || traced->n_registers != running->n_registers) {
        rt_unlock(&dev->lock);
        snprintf(why, room, "it is not a traced build of the loaded program");
        dlclose(library);
        return RT_INVALID;
    }
    dev->observers.trace = (struct rt_trace){.ordinary = running, .library = library};
    dev->pub.program = traced;
    rt_unlock(&dev->lock);
    return RT_OK;
}

/* The ordinary build again; what was gathered, in a block to be freed with rt_free. RT_INVALID: no trace runs. */
RT_API int rt_trace_end(struct rt_device *dev, uint8_t **out, size_t *out_bytes)
{
    void *library;

    rt_lock(&dev->lock);
    if (!dev->observers.trace.ordinary) {
        rt_unlock(&dev->lock);
        return RT_INVALID;
    }
    dev->pub.program = dev->observers.trace.ordinary;
    *out = dev->observers.trace.bytes ? dev->observers.trace.bytes : malloc(1);
    *out_bytes = dev->observers.trace.used;
    library = dev->observers.trace.library;
    memset(&dev->observers.trace, 0, sizeof dev->observers.trace);
    rt_unlock(&dev->lock);
    dlclose(library);
    return RT_OK;
}
