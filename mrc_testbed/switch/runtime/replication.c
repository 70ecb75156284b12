/* Multicast groups and clone sessions, as the control plane writes them; pipeline.c copies packets by them. */
#include <stdlib.h>

#include "replication.h"

static void empty(struct rt_map *map)
{
    for (uint32_t i = 0; i < map->n; i++)
        free(map->at[i].thing);
    free(map->at);
    memset(map, 0, sizeof *map);
}

void rt_replication_forget(struct rt_replication_maps *maps)
{
    empty(&maps->groups);
    empty(&maps->sessions);
}

/* Set a multicast group (session 0) or a clone session (1), replacing the one of that id; `keep` 0: remove it. */
RT_API int rt_replication_write(struct rt_device *dev, int session, uint32_t id, uint32_t group, uint32_t priority,
                                uint32_t truncate, int keep, uint32_t n, const struct rt_replica *replicas)
{
    struct rt_replication *made = NULL, *old;
    struct rt_map *map = session ? &dev->replication.sessions : &dev->replication.groups;
    int error = RT_OK;

    if (n > RT_PORTS * 128)
        return RT_FULL;
    if (keep) {
        made = malloc(sizeof *made + n * sizeof *replicas);
        if (!made)
            return RT_NO_MEMORY;
        *made = (struct rt_replication){group, priority, truncate, n};
        if (n)
            memcpy(made->replicas, replicas, n * sizeof *replicas);
    }
    rt_lock(&dev->lock);
    old = rt_map_find(map, id);
    if (old) {
        rt_map_take(map, id);
        free(old);
    }
    if (made && rt_map_put(map, id, made)) {
        free(made);
        error = RT_NO_MEMORY;
    }
    rt_unlock(&dev->lock);
    return error;
}
