/* What the event loop tells Python: frames for the CPU port, and states of ports. Order of locks: see event_loop.c. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "event_loop.h"

void rt_event_push(struct rt_loop *loop, struct rt_event event, const uint8_t *frame)
{
    struct rt_queued_event *queued = NULL;
    uint64_t one = 1;

    rt_lock(&loop->event_lock);
    if (!frame || (loop->n_frames < RT_EVENT_FRAMES && loop->frame_bytes + event.len <= RT_EVENT_BYTES))
        queued = malloc(sizeof *queued + event.len);
    if (queued) {
        queued->event = event;
        queued->next = NULL;
        if (frame) {
            memcpy(queued->frame, frame, event.len);
            loop->n_frames++;
            loop->frame_bytes += event.len;
        }
        *loop->last_event = queued;
        loop->last_event = &queued->next;
    } else {
        loop->frames_lost++;
    }
    rt_unlock(&loop->event_lock);
    if (queued && write(loop->notify, &one, sizeof one) < 0)
        return; /* EAGAIN: it is readable already */
}

void rt_event_port(struct rt_loop *loop, const struct rt_port *port)
{
    struct rt_event event = {.kind = RT_EVENT_PORT, .device = port->dev->id, .port = port->number,
                             .up = (uint32_t)port->up, .admin_up = (uint32_t)port->admin_up,
                             .ifindex = (uint32_t)port->ifindex, .at_ns = rt_now_ns()};
    memcpy(event.interface, port->name, sizeof event.interface);
    rt_event_push(loop, event, NULL);
}

/* The interface of a port is as told now: tell the device (watch ports) and Python what changed. */
void rt_port_is(struct rt_loop *loop, struct rt_port *port, int ifindex, unsigned flags)
{
    int admin_up = ifindex && (flags & IFF_UP), up = admin_up && (flags & IFF_RUNNING);
    int was_down = rt_port_is_down(port->dev, (int32_t)port->number);

    if (ifindex == port->ifindex && up == port->up && admin_up == port->admin_up && was_down == !up)
        return;
    port->ifindex = ifindex;
    port->up = up;
    port->admin_up = admin_up;
    rt_port_state(port->dev, port->number, up);
    rt_shared_look(port);
    rt_event_port(loop, port);
}

/* All waiting events, oldest first, in one block to be freed with rt_free; returns their number. Without memory for
 * them they go on waiting, and the descriptor stays readable.
 */
RT_API int rt_loop_events(struct rt_loop *loop, uint8_t **out, size_t *out_bytes)
{
    struct rt_queued_event *first, *next;
    uint64_t count, one = 1;
    size_t bytes = 0;
    int n = 0;

    if (read(loop->notify, &count, sizeof count) < 0 && errno != EAGAIN)
        return RT_SYSTEM;
    rt_lock(&loop->event_lock);
    first = loop->first_event;
    for (struct rt_queued_event *e = first; e; e = e->next)
        bytes += sizeof e->event + e->event.len;
    uint8_t *at = *out = malloc(bytes + 1);
    *out_bytes = bytes;
    if (at) {
        loop->first_event = NULL;
        loop->last_event = &loop->first_event;
        loop->n_frames = 0;
        loop->frame_bytes = 0;
    }
    rt_unlock(&loop->event_lock);
    if (!at)
        return write(loop->notify, &one, sizeof one) < 0 && errno != EAGAIN ? RT_SYSTEM : RT_NO_MEMORY;
    for (struct rt_queued_event *e = first; e; e = next, n++) {
        next = e->next;
        memcpy(at, &e->event, sizeof e->event);
        memcpy(at + sizeof e->event, e->frame, e->event.len);
        at += sizeof e->event + e->event.len;
        free(e);
    }
    return n;
}
