/* Meters: two rates, three colours (RFC 2698, colour-blind), as BMv2's. A meter without a configuration is green. */
#include <stdlib.h>

#include "runtime.h"

enum { GREEN = 0, YELLOW = 1, RED = 2 };
#define MICRO 1000000u

static uint64_t refill(uint64_t tokens, uint64_t rate, uint64_t burst, uint64_t elapsed_us)
{
    unsigned __int128 sum = tokens + (unsigned __int128)rate * elapsed_us, most = (unsigned __int128)burst * MICRO;

    return (uint64_t)(sum < most ? sum : most);
}

/* Called by programs: the device is locked. Tokens are counted in millionths of a packet or byte. */
uint32_t rt_meter(struct p4rt_device *dev, struct p4rt_meter_cell *cell, uint32_t bytes, const struct p4rt_packet *pkt)
{
    uint64_t now_us = pkt->std.egress_global_timestamp > pkt->std.ingress_global_timestamp
                          ? pkt->std.egress_global_timestamp : pkt->std.ingress_global_timestamp;
    uint64_t elapsed_us, cost;

    (void)dev;
    if (!cell || !cell->configured)
        return GREEN;
    elapsed_us = now_us > cell->last_us ? now_us - cell->last_us : 0;
    cell->last_us = now_us;
    cell->c_tokens = refill(cell->c_tokens, cell->cir, cell->cburst, elapsed_us);
    cell->p_tokens = refill(cell->p_tokens, cell->pir, cell->pburst, elapsed_us);
    cost = (uint64_t)(bytes ? pkt->received : 1) * MICRO;
    if (cell->p_tokens < cost)
        return RED;
    cell->p_tokens -= cost;
    if (cell->c_tokens < cost)
        return YELLOW;
    cell->c_tokens -= cost;
    return GREEN;
}

static void configure(struct p4rt_meter_cell *cell, const struct p4rt_meter_cell *wanted)
{
    *cell = (struct p4rt_meter_cell){.configured = wanted->configured, .cir = wanted->cir, .cburst = wanted->cburst,
                                     .pir = wanted->pir, .pburst = wanted->pburst};
    cell->c_tokens = cell->cburst * MICRO;
    cell->p_tokens = cell->pburst * MICRO;
}

/* Copy cells first..first+n-1 out (write = 0), their configurations in (1: full buckets then), or as they are in (2). */
RT_API int rt_meter_cells(struct rt_device *dev, uint32_t index, uint32_t first, uint32_t n,
                          struct p4rt_meter_cell *cells, int write)
{
    int error = RT_OK;

    rt_lock(&dev->lock);
    if (!dev->pub.program || index >= dev->pub.program->n_meters) {
        error = RT_INVALID;
    } else if (first > dev->pub.meters[index].size || n > dev->pub.meters[index].size - first) {
        error = RT_NOT_FOUND;
    } else {
        for (uint32_t i = 0; i < n; i++) {
            struct p4rt_meter_cell *cell = &dev->pub.meters[index].cells[first + i];
            if (write == 1)
                configure(cell, &cells[i]);
            else if (write)
                *cell = cells[i];
            else
                cells[i] = *cell;
        }
    }
    rt_unlock(&dev->lock);
    return error;
}

/* The same for the direct meter of one entry; key NULL: the default entry. */
RT_API int rt_entry_meter(struct rt_device *dev, uint32_t index, const uint8_t *key, const uint8_t *aux,
                          int32_t priority, struct p4rt_meter_cell *wanted, int write)
{
    struct p4rt_entry *entry;
    int error = RT_OK;

    rt_lock(&dev->lock);
    entry = rt_entry_find(dev, index, key, aux, priority);
    if (!entry) {
        error = RT_NOT_FOUND;
    } else if (!write) {
        *wanted = entry->meter ? *entry->meter : (struct p4rt_meter_cell){0};
    } else if (!wanted->configured) {
        free(entry->meter);
        entry->meter = NULL;
    } else {
        if (!entry->meter)
            entry->meter = malloc(sizeof *entry->meter);
        if (entry->meter && write == 1)
            configure(entry->meter, wanted);
        else if (entry->meter)
            *entry->meter = *wanted;
        else
            error = RT_NO_MEMORY;
    }
    rt_unlock(&dev->lock);
    return error;
}
