/* Table entries as Python writes and reads them, and which of them have been idle for too long. */
#include <stdlib.h>

#include "runtime.h"

static int table_exists(struct rt_device *dev, uint32_t index)
{
    return dev->pub.program && index < dev->pub.program->n_tables;
}

static uint64_t program_us(const struct rt_device *dev)
{
    return rt_micros(dev, rt_device_now(dev));
}

struct p4rt_entry *rt_entry_find(struct rt_device *dev, uint32_t index, const uint8_t *key, const uint8_t *aux,
                                 int32_t priority)
{
    struct rt_entry *entry;
    uint32_t place;

    if (!table_exists(dev, index))
        return NULL;
    if (!key)
        return &dev->pub.tables[index].miss;
    entry = rt_entry_at(dev, index, key, aux, priority, &place);
    return entry ? &entry->pub : NULL;
}

/* ---- writing ------------------------------------------------------------------------------------------------------ */

enum { GIVEN_COUNT = 1, GIVEN_TIMEOUT = 2, GIVEN_HIT = 4 };

struct rt_given {               /* what else a write sets, as mrc_testbed/switch/device/native.py writes it */
    uint64_t what;              /* GIVEN_... */
    struct p4rt_cell count;
    uint64_t timeout_ns;
    uint64_t hit_us;            /* to restore what a transaction took away */
};

static void give(struct rt_entry *entry, const struct rt_given *given)
{
    if (!given)
        return;
    if (given->what & GIVEN_COUNT)
        entry->pub.count = given->count;
    if (given->what & GIVEN_TIMEOUT)
        entry->timeout_ns = given->timeout_ns;
    if (given->what & GIVEN_HIT)
        entry->pub.hit_us = given->hit_us;
}

/* Insert, modify or delete the entry with that match. A modify with RT_KIND_NONE keeps the action. Of a constant entry
 * only what `given` holds may change. */
RT_API int rt_entry_write(struct rt_device *dev, int op, uint32_t index, const uint8_t *key, const uint8_t *aux,
                          int32_t priority, int kind, uint32_t ref, const uint8_t *params,
                          const struct rt_given *given)
{
    struct rt_entry *entry = NULL;
    uint32_t place = 0;
    int error = RT_OK;

    rt_lock(&dev->lock);
    if (!table_exists(dev, index)) {
        error = RT_INVALID;
    } else if (op == RT_INSERT) {
        entry = rt_entry_insert(dev, index, key, aux, priority, (enum rt_kind)kind, ref, params, &error);
        if (entry)
            entry->pub.hit_us = entry->told_us = program_us(dev);
    } else if (!(entry = rt_entry_at(dev, index, key, aux, priority, &place))) {
        error = RT_NOT_FOUND;
    } else if (entry->constant && (op == RT_DELETE || kind != RT_KIND_NONE)) {
        error = RT_CONST;
    } else if (op == RT_DELETE) {
        rt_entry_delete(dev, index, entry, place);
        entry = NULL;
    } else if (kind != RT_KIND_NONE) {
        error = rt_entry_act(dev, index, entry, (enum rt_kind)kind, ref, params);
    }
    if (!error && entry)
        give(entry, given);
    rt_unlock(&dev->lock);
    return error;
}

/* Set the default entry; RT_KIND_NONE: back to the program's. `keep`: leave the action and set only the counter. */
RT_API int rt_default_write(struct rt_device *dev, uint32_t index, int keep, int kind, uint32_t ref,
                            const uint8_t *params, const struct rt_given *given)
{
    int error = RT_OK;

    rt_lock(&dev->lock);
    if (!table_exists(dev, index))
        error = RT_INVALID;
    else if (!keep)
        error = kind == RT_KIND_NONE
                    ? rt_default_reset(dev, index)
                    : rt_entry_act(dev, index, &dev->pipeline.tables[index].miss, (enum rt_kind)kind, ref, params);
    if (!error && given && given->what & GIVEN_COUNT)
        dev->pub.tables[index].miss.count = given->count;
    rt_unlock(&dev->lock);
    return error;
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

/* One entry as Python reads it: this head, then key, aux (key_bytes each) and the action's params_bytes. */
struct rt_entry_view {
    int32_t priority;
    uint32_t kind, ref, params_bytes;
    uint64_t packets, bytes;
    uint64_t timeout_ns, hit_us, idle_us; /* idle timeout, time of the last hit, and how long that is ago */
    uint32_t constant, table;
};

static size_t view_bytes(const struct p4_program *p, uint32_t key_bytes, const struct rt_entry *entry)
{
    size_t params = entry->kind == RT_KIND_ACTION ? p->actions[entry->pub.own.action].params_bytes
                    : entry->kind == RT_KIND_SET  ? rt_set_bytes(p, entry->group)
                                                  : 0;
    return sizeof(struct rt_entry_view) + 2 * (size_t)key_bytes + params;
}

/* `shown`: the counter and the time that programs see. */
static uint8_t *put_view(const struct p4_program *p, uint32_t table, const struct rt_entry *entry,
                         const struct p4rt_entry *shown, uint64_t now_us, uint8_t *out)
{
    uint32_t key_bytes = p->tables[table].key_bytes;
    struct rt_entry_view view = {.priority = entry->pub.priority, .kind = entry->kind, .table = table,
                                 .packets = shown->count.packets, .bytes = shown->count.bytes,
                                 .timeout_ns = entry->timeout_ns, .hit_us = shown->hit_us,
                                 .constant = entry->constant};

    view.idle_us = now_us > view.hit_us ? now_us - view.hit_us : 0;
    if (entry->kind == RT_KIND_ACTION) {
        view.ref = entry->pub.own.action;
        view.params_bytes = p->actions[view.ref].params_bytes;
    } else if (entry->kind == RT_KIND_MEMBER) {
        view.ref = entry->member->act.member;
    } else if (entry->kind == RT_KIND_GROUP) {
        view.ref = entry->group->live.id;
    } else if (entry->kind == RT_KIND_SET) {
        view.ref = entry->group->n_members;
        view.params_bytes = (uint32_t)rt_set_bytes(p, entry->group);
    }
    memcpy(out, &view, sizeof view);
    out += sizeof view;
    if (entry->pub.key) {
        memcpy(out, entry->pub.key, key_bytes);
        memcpy(out + key_bytes, entry->pub.aux, key_bytes);
    } else {
        memset(out, 0, 2 * (size_t)key_bytes);
    }
    out += 2 * (size_t)key_bytes;
    if (entry->kind == RT_KIND_SET)
        return rt_set_put(p, entry->group, out);
    if (view.params_bytes)
        memcpy(out, entry->pub.own.params, view.params_bytes);
    return out + view.params_bytes;
}

/* A snapshot of a table: its default entry first, then all entries, oldest first; or with `key` that one entry.
 * *out is to be freed with rt_free; returns the number of entries in it, or an error. */
RT_API int rt_table_read(struct rt_device *dev, uint32_t index, const uint8_t *key, const uint8_t *aux,
                         int32_t priority, uint8_t **out, size_t *out_bytes)
{
    struct rt_entry *only = NULL;
    uint32_t place = 0;
    int n = RT_INVALID;

    rt_lock(&dev->lock);
    if (table_exists(dev, index)) {
        const struct p4_program *p = dev->pub.program;
        struct rt_table *own = &dev->pipeline.tables[index];
        uint32_t key_bytes = p->tables[index].key_bytes;
        size_t bytes = key ? 0 : view_bytes(p, key_bytes, &own->miss);
        uint64_t now_us = program_us(dev);

        if (key)
            only = rt_entry_at(dev, index, key, aux, priority, &place);
        for (struct rt_entry *e = key ? only : own->first; e; e = key ? NULL : e->next)
            bytes += view_bytes(p, key_bytes, e);
        uint8_t *at = *out = malloc(bytes + 1);
        *out_bytes = bytes;
        n = at ? 0 : RT_NO_MEMORY;
        if (at && !key) {
            at = put_view(p, index, &own->miss, &dev->pub.tables[index].miss, now_us, at);
            n++;
        }
        for (struct rt_entry *e = key ? only : own->first; at && e; e = key ? NULL : e->next, n++)
            at = put_view(p, index, e, &e->pub, now_us, at);
    }
    rt_unlock(&dev->lock);
    return n;
}

RT_API void rt_free(void *block)
{
    free(block);
}

/* ---- idle timeouts -------------------------------------------------------------------------------------------------- */

/* When an entry will have been idle for its timeout, in the program's time; told or hit, its time begins anew. */
static uint64_t idle_at_us(const struct rt_entry *entry)
{
    uint64_t since = entry->pub.hit_us > entry->told_us ? entry->pub.hit_us : entry->told_us;
    uint64_t timeout_us = (entry->timeout_ns + 999) / 1000;
    return since > UINT64_MAX - timeout_us ? UINT64_MAX : since + timeout_us;
}

/* Entries of all tables that have been idle for their timeout, each once per timeout: a block of views as above, to be
 * freed with rt_free. *wait_us: until the next can be; UINT64_MAX: never. Returns their number, or an error. */
RT_API int rt_idle_take(struct rt_device *dev, uint64_t *wait_us, uint8_t **out, size_t *out_bytes)
{
    const struct p4_program *p;
    uint64_t now_us, next_us = UINT64_MAX;
    size_t bytes = 0;
    uint8_t *at;
    int n = 0;

    rt_lock(&dev->lock);
    p = dev->pub.program;
    now_us = program_us(dev);
    for (uint32_t i = 0; p && i < p->n_tables; i++)
        for (struct rt_entry *e = p->tables[i].idle_timeout ? dev->pipeline.tables[i].first : NULL; e; e = e->next)
            if (e->timeout_ns && idle_at_us(e) <= now_us)
                bytes += view_bytes(p, p->tables[i].key_bytes, e);
    at = *out = malloc(bytes + 1);
    *out_bytes = bytes;
    for (uint32_t i = 0; at && p && i < p->n_tables; i++)
        for (struct rt_entry *e = p->tables[i].idle_timeout ? dev->pipeline.tables[i].first : NULL; e; e = e->next) {
            if (!e->timeout_ns)
                continue;
            if (idle_at_us(e) <= now_us) {
                at = put_view(p, i, e, &e->pub, now_us, at);
                /* The timeout begins anew with this report, so that the entry is not reported at each call. */
                e->told_us = now_us;
                n++;
            }
            if (idle_at_us(e) < next_us)
                next_us = idle_at_us(e);
        }
    *wait_us = next_us == UINT64_MAX ? UINT64_MAX : next_us > now_us ? next_us - now_us : 0;
    rt_unlock(&dev->lock);
    return at ? n : RT_NO_MEMORY;
}
