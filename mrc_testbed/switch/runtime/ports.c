/* Ports of the event loop, added, removed and counted by any thread. Order of locks: see event_loop.c. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "event_loop.h"
#include "traffic.h"

static int make_room(struct rt_loop *loop)
{
    uint32_t room = loop->room_ports ? loop->room_ports * 2 : 64;

    if (loop->n_ports < loop->room_ports)
        return RT_OK;
    struct rt_port **ports = realloc(loop->ports, room * sizeof *ports);
    if (ports)
        loop->ports = ports;
    struct rt_port **dirty = realloc(loop->dirty, room * sizeof *dirty);
    if (dirty)
        loop->dirty = dirty;
    struct rt_port **fed = realloc(loop->fed, room * sizeof *fed);
    if (fed)
        loop->fed = fed;
    if (!ports || !dirty || !fed)
        return RT_NO_MEMORY;
    loop->room_ports = room;
    return RT_OK;
}

static int add_port(struct rt_loop *loop, struct rt_device *dev, uint32_t number, struct rt_port *port, char *why,
                    size_t room)
{
    uint32_t index = 0;

    if (number >= P4RT_DROP_PORT || number == loop->cpu_port || dev->attached.ports[number])
        return RT_EXISTS;
    while (index < loop->n_ports && loop->ports[index])
        index++;
    if (index == loop->n_ports && make_room(loop)) {
        snprintf(why, room, "%s: out of memory", port->name);
        return RT_NO_MEMORY;
    }
    rt_lock(&dev->lock);
    int room_there = rt_traffic_of(dev, number) != NULL;
    rt_unlock(&dev->lock);
    if (!room_there) {
        snprintf(why, room, "%s: out of memory", port->name);
        return RT_NO_MEMORY;
    }
    port->dev = dev;
    port->number = number;
    port->index = index;
    port->generation = ++loop->generation;
    if (!port->end && rt_loop_watch(loop, port->fd, (uint64_t)port->generation << 32 | index)) {
        snprintf(why, room, "%s: %s", port->name, strerror(errno));
        return RT_SYSTEM;
    }
    loop->ports[index] = port;
    if (index == loop->n_ports)
        loop->n_ports++;
    rt_lock(&dev->lock);
    dev->attached.ports[number] = port;
    rt_unlock(&dev->lock);
    if (port->end)
        port->end->port = port;
    rt_port_state(dev, number, port->up);
    rt_event_port(loop, port);
    rt_loop_schedule(loop);
    return RT_OK;
}

/* RT_SYSTEM: `why` tells. RT_EXISTS: the number is taken or no port's number. */
RT_API int rt_port_add(struct rt_loop *loop, struct rt_device *dev, uint32_t number, const char *name, char *why,
                       size_t room)
{
    if (number < RT_PORTS && dev->attached.ports[number])
        return RT_EXISTS;
    rt_lock(&loop->lock);
    struct rt_port *port = rt_wire_port(loop, name, why, room);
    int error = port ? add_port(loop, dev, number, port, why, room) : RT_SYSTEM;
    rt_unlock(&loop->lock);
    if (!port && !*why) {
        port = rt_port_open(loop, name, why, room); /* some 10 ms: not under the lock */
        if (!port)
            return RT_SYSTEM;
        rt_lock(&loop->lock);
        error = add_port(loop, dev, number, port, why, room);
        if (!error)
            rt_link_ask(loop, port);
        rt_unlock(&loop->lock);
    }
    if (error && port)
        rt_port_close(port);
    return error;
}

/* Takes a port out of the loop and puts it on `closed`. To close it costs the kernel some 25 ms, in which the other
 * devices shall forward: the caller does it with close_ports after it has given up the lock. */
static void remove_port(struct rt_loop *loop, struct rt_port *port, struct rt_port **closed)
{
    struct rt_device *dev = port->dev;

    rt_shared_end_all(loop, port);
    if (port->end)
        rt_wire_leave(loop, port);
    else
        epoll_ctl(loop->epoll, EPOLL_CTL_DEL, port->fd, NULL);
    rt_lock(&dev->lock);
    dev->attached.ports[port->number] = NULL;
    rt_unlock(&dev->lock);
    rt_port_state(dev, port->number, 1);
    loop->ports[port->index] = NULL;
    port->next_closed = *closed;
    *closed = port;
}

static void *close_port(void *port)
{
    rt_port_close(port);
    return NULL;
}

/* All at once, a thread for each: the kernel waits for RCU at every socket, and these waits can be one. */
static void close_ports(struct rt_port *closed)
{
    pthread_t threads[64];

    while (closed) {
        unsigned n = 0;
        while (closed && n < 64) {
            struct rt_port *port = closed;
            closed = port->next_closed;
            if (port->end) {
                rt_port_close(port);
                continue;
            }
            if (pthread_create(&threads[n], NULL, close_port, port)) {
                rt_port_close(port);
                break;
            }
            n++;
        }
        while (n)
            pthread_join(threads[--n], NULL);
    }
}

RT_API int rt_port_remove(struct rt_loop *loop, struct rt_device *dev, uint32_t number)
{
    struct rt_port *closed = NULL;

    rt_lock(&loop->lock);
    if (number < RT_PORTS && dev->attached.ports[number])
        remove_port(loop, dev->attached.ports[number], &closed);
    rt_unlock(&loop->lock);
    if (!closed)
        return RT_NOT_FOUND;
    close_ports(closed);
    return RT_OK;
}

/* Close all ports of a device; the loop does not touch it any more. */
RT_API void rt_loop_detach(struct rt_loop *loop, struct rt_device *dev)
{
    struct rt_port *closed = NULL;

    rt_lock(&loop->lock);
    for (uint32_t i = 0; i < loop->n_ports; i++)
        if (loop->ports[i] && loop->ports[i]->dev == dev)
            remove_port(loop, loop->ports[i], &closed);
    rt_timer_set(&loop->timers, &dev->attached.timer, RT_NEVER);
    rt_unlock(&loop->lock);
    close_ports(closed);
}

/* As native.PortCounts reads it. */
struct rt_port_counts {
    uint32_t number, up;
    uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes, rx_dropped, tx_dropped, tx_down;
    char interface[IFNAMSIZ];
};

/* Counts of all ports of a device by rising number, in a block to be freed with rt_free; returns their number. */
RT_API int rt_ports_read(struct rt_loop *loop, struct rt_device *dev, uint8_t **out, size_t *out_bytes)
{
    struct rt_port_counts *counts;
    int n = 0;

    rt_lock(&loop->lock);
    for (uint32_t i = 0; i < RT_PORTS; i++)
        n += dev->attached.ports[i] != NULL;
    counts = calloc((size_t)n + 1, sizeof *counts);
    *out = (uint8_t *)counts;
    *out_bytes = (size_t)n * sizeof *counts;
    for (uint32_t i = 0; counts && i < RT_PORTS; i++) {
        struct rt_port *port = dev->attached.ports[i];
        if (!port)
            continue;
        if (!port->end)
            rt_port_count_drops(port);
        *counts = (struct rt_port_counts){port->number, (uint32_t)port->up, port->rx_packets, port->rx_bytes,
                                          port->tx_packets, port->tx_bytes, port->rx_dropped, port->tx_dropped,
                                          port->tx_down, {0}};
        memcpy(counts++->interface, port->name, sizeof port->name);
    }
    rt_unlock(&loop->lock);
    return *out ? n : RT_NO_MEMORY;
}

/* Close all; their devices live on, and the thread has been stopped. */
void rt_ports_close(struct rt_loop *loop)
{
    struct rt_port *closed = NULL;

    for (uint32_t i = 0; i < loop->n_ports; i++)
        if (loop->ports[i])
            remove_port(loop, loop->ports[i], &closed);
    close_ports(closed);
}
