/* Wires: cables between two ports of one event loop, of which the kernel knows nothing.
 *
 * A wire has two ends. An end is an interface as a port sees one: it has a name and an MTU, is set up or down, counts,
 * and outlives the port on it. Both ends have carrier while both are up, as those of a veth pair.
 *
 * A frame that leaves by an end waits at the other one, for its sender's device is locked and the next device may send
 * it straight back: the event loop takes it from there (event_loop.c: serve_wires), some frames of an end at a time, so
 * the stack stays flat and a frame that goes round for ever keeps nobody else waiting. It is copied once, when it comes
 * from a ring or a buffer; from wire to wire its memory goes with it.
 *
 * All functions but the RT_API ones are called with the loop locked.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/if_ether.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "event_loop.h"

#define SECOND 1000000000u
#define FIRST_INDEX (1u << 30)      /* of an end: above those of the kernel's interfaces */
#define FRAME_BYTES (2 * P4RT_HEADROOM + RT_SLOT) /* of most frames: a longer one has memory of its own size */
#define FRAMES_KEPT 512             /* free ones that are kept for the next */
#define TAP_BUFFER (16 << 20)

/* ---- frames --------------------------------------------------------------------------------------------------- */

static struct rt_frame *make_frame(struct rt_loop *loop, const uint8_t *data, uint32_t len)
{
    uint32_t bytes = 2 * P4RT_HEADROOM + len;
    struct rt_frame *frame = bytes <= FRAME_BYTES ? loop->free_frames : NULL;

    if (frame) {
        loop->free_frames = frame->next;
        loop->n_free_frames--;
    } else {
        if (bytes < FRAME_BYTES)
            bytes = FRAME_BYTES;
        frame = malloc(sizeof *frame + bytes);
        if (!frame)
            return NULL;
        frame->bytes = bytes;
    }
    frame->data = frame->space + 2 * P4RT_HEADROOM;
    memcpy(frame->data, data, len);
    return frame;
}

static void free_frame(struct rt_loop *loop, struct rt_frame *frame)
{
    if (frame->bytes != FRAME_BYTES || loop->n_free_frames >= FRAMES_KEPT) {
        free(frame);
        return;
    }
    frame->next = loop->free_frames;
    loop->free_frames = frame;
    loop->n_free_frames++;
}

/* A device has had the frame, and may have sent it from where it lies. */
void rt_frame_done(struct rt_loop *loop, struct rt_frame *frame)
{
    frame->next = loop->done_frames;
    loop->done_frames = frame;
}

/* What was sent from frames has been sent. */
void rt_frames_release(struct rt_loop *loop)
{
    for (struct rt_frame *frame; (frame = loop->done_frames);) {
        loop->done_frames = frame->next;
        free_frame(loop, frame);
    }
}

/* ---- ends ------------------------------------------------------------------------------------------------------ */

static int is_up(const struct rt_end *end)
{
    return end->admin_up && end->far->admin_up;
}

static unsigned flags_of(const struct rt_end *end)
{
    return (end->admin_up ? IFF_UP : 0) | (is_up(end) ? IFF_RUNNING : 0);
}

static struct rt_end *find(const struct rt_loop *loop, const char *name)
{
    for (struct rt_wire *wire = loop->wires; wire; wire = wire->next)
        for (int i = 0; i < 2; i++)
            if (!strcmp(wire->ends[i].name, name))
                return &wire->ends[i];
    return NULL;
}

static void close_tap(struct rt_tap **place)
{
    struct rt_tap *tap = *place;

    *place = tap->next;
    close(tap->fd);
    free(tap);
}

/* The next frame that waits at an end, or NULL. */
struct rt_frame *rt_end_take(struct rt_end *end)
{
    struct rt_frame *frame = end->first;

    if (frame) {
        end->first = frame->next;
        end->waiting--;
    }
    return frame;
}

/* An end whose turn it is, or NULL: frames wait nowhere. */
struct rt_end *rt_end_next(struct rt_loop *loop)
{
    struct rt_end *end = loop->first_ready;

    if (end) {
        loop->first_ready = end->next_ready;
        end->ready = 0;
    }
    return end;
}

/* Frames wait at the end: it gets its turn, behind those that wait already. */
void rt_end_ready(struct rt_loop *loop, struct rt_end *end)
{
    if (end->ready)
        return;
    end->ready = 1;
    end->next_ready = NULL;
    if (loop->first_ready)
        loop->last_ready->next_ready = end;
    else
        loop->first_ready = end;
    loop->last_ready = end;
}

/* A copy of a frame that came to the end, for whoever listens there. */
static void tell_taps(struct rt_end *end, struct rt_frame *frame)
{
    struct timespec now;
    struct rt_tap_head head;

    clock_gettime(CLOCK_REALTIME, &now);
    head = (struct rt_tap_head){(uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec, frame->len, 0};
    for (struct rt_tap **place = &end->taps, *tap; (tap = *place);) {
        struct iovec parts[] = {{&head, sizeof head}, {frame->data, frame->len < tap->snap ? frame->len : tap->snap}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        if (sendmsg(tap->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
            if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS && errno != ENOMEM) {
                close_tap(place); /* the listener has gone */
                continue;
            }
            tap->lost++;
        }
        place = &tap->next;
    }
}

/* A frame has come to an end: count it. Without a port there nobody takes it, and it is gone: returns 0. */
int rt_end_receive(struct rt_loop *loop, struct rt_end *end, struct rt_frame *frame)
{
    end->rx_packets++;
    end->rx_bytes += frame->len;
    if (end->taps)
        tell_taps(end, frame);
    if (!end->port) {
        free_frame(loop, frame);
        return 0;
    }
    end->port->rx_packets++;
    end->port->rx_bytes += frame->len;
    return 1;
}

static void append(struct rt_end *end, struct rt_frame *frame, uint32_t len, uint64_t at_ns)
{
    frame->len = len;
    frame->at_ns = at_ns;
    frame->next = NULL;
    if (end->first)
        end->last->next = frame;
    else
        end->first = frame;
    end->last = frame;
    end->waiting++;
}

/* A copy of a frame waits at an end from now on. Without memory for it the frame is lost: returns 0. */
int rt_end_put(struct rt_loop *loop, struct rt_end *end, const uint8_t *data, uint32_t len, uint64_t at_ns)
{
    struct rt_frame *frame = make_frame(loop, data, len);

    if (frame)
        append(end, frame, len, at_ns);
    return frame != NULL;
}

static int fits(const struct rt_end *end, const uint8_t *data, uint32_t len)
{
    int tagged = len >= ETH_HLEN + 4 && data[12] == ETH_P_8021Q >> 8 && data[13] == (ETH_P_8021Q & 0xff);
    return len >= ETH_HLEN && len <= end->mtu + ETH_HLEN + (tagged ? 4 : 0);
}

/* A frame leaves by a port that is on a wire, at at_ns. */
void rt_wire_send(struct rt_loop *loop, struct rt_port *port, uint8_t *data, uint32_t len, uint64_t at_ns)
{
    struct rt_end *end = port->end, *far = end->far;
    struct rt_frame *frame = loop->moving;

    if (!port->up) {
        port->tx_down++;
        return;
    }
    if (!fits(end, data, len)) {
        port->tx_dropped++;
        end->tx_dropped++;
        return;
    }
    if (frame && data >= frame->space + P4RT_HEADROOM && data + len <= frame->space + frame->bytes) {
        frame->data = data; /* it came by a wire: its memory goes on with it */
    } else {
        frame = NULL;
        if (far->waiting < loop->blocks * RT_SLOTS_PER_BLOCK)
            frame = make_frame(loop, data, len);
    }
    port->tx_packets++;
    port->tx_bytes += len;
    end->tx_packets++;
    end->tx_bytes += len;
    if (!frame || far->waiting >= loop->blocks * RT_SLOTS_PER_BLOCK) { /* as many wait as a ring holds */
        far->rx_packets++; /* it has come over the wire: both ends count alike, as those of a veth pair */
        far->rx_bytes += len;
        far->rx_dropped++;
        if (far->port)
            far->port->rx_dropped++;
        return;
    }
    if (frame == loop->moving)
        loop->moving = NULL;
    append(far, frame, len, at_ns);
    rt_end_ready(loop, far);
}

/* ---- ports ------------------------------------------------------------------------------------------------------ */

/* A port on the end of that name, as rt_port_open makes one on an interface. NULL with the reason in `why`; `why` empty:
 * no wire has an end of that name. */
struct rt_port *rt_wire_port(struct rt_loop *loop, const char *name, char *why, size_t room)
{
    struct rt_end *end = find(loop, name);
    struct rt_port *port;

    *why = 0;
    if (!end)
        return NULL;
    if (end->port) {
        snprintf(why, room, "%s: is port %u of device %u", name, end->port->number, end->port->dev->id);
        return NULL;
    }
    port = calloc(1, sizeof *port);
    if (!port) {
        snprintf(why, room, "%s: out of memory", name);
        return NULL;
    }
    memcpy(port->name, end->name, sizeof port->name);
    port->fd = -1;
    port->end = end;
    port->ifindex = (int)end->index;
    port->admin_up = end->admin_up;
    port->up = is_up(end);
    return port;
}

/* The port leaves its end; what waits there is lost. */
void rt_wire_leave(struct rt_loop *loop, struct rt_port *port)
{
    struct rt_frame *frame;

    port->end->port = NULL;
    while ((frame = rt_end_take(port->end)))
        free_frame(loop, frame);
}

/* ---- wires, made and changed by any thread ---------------------------------------------------------------------- */

/* An end is about to go: it has no turn any more, and what waits there is lost. */
void rt_end_forget(struct rt_loop *loop, struct rt_end *end)
{
    struct rt_end *ready = loop->first_ready, *next;
    struct rt_frame *frame;

    loop->first_ready = NULL;
    for (; ready; ready = next) { /* the others keep their turns */
        next = ready->next_ready;
        ready->ready = 0;
        if (ready != end)
            rt_end_ready(loop, ready);
    }
    while ((frame = rt_end_take(end)))
        free_frame(loop, frame);
}

/* Nobody listens, and no port is there. */
static void unmake(struct rt_loop *loop, struct rt_wire *wire)
{
    for (int i = 0; i < 2; i++) {
        rt_end_forget(loop, &wire->ends[i]);
        while (wire->ends[i].taps)
            close_tap(&wire->ends[i].taps);
    }
    free(wire);
}

/* A wire between two new ends, both up. RT_EXISTS: there is an end of that name. */
RT_API int rt_wire_add(struct rt_loop *loop, const char *name, const char *far, uint32_t mtu)
{
    const char *names[] = {name, far};
    struct rt_wire *wire;
    int error = RT_EXISTS;

    if (strlen(name) >= IFNAMSIZ || strlen(far) >= IFNAMSIZ || mtu > P4RT_MAX_FRAME - ETH_HLEN - 4)
        return RT_INVALID;
    rt_lock(&loop->lock);
    if (strcmp(name, far) && !find(loop, name) && !find(loop, far)) {
        error = RT_NO_MEMORY;
        wire = calloc(1, sizeof *wire);
        if (wire) {
            for (int i = 0; i < 2; i++) {
                struct rt_end *end = &wire->ends[i];
                snprintf(end->name, sizeof end->name, "%s", names[i]);
                end->far = &wire->ends[!i];
                end->index = FIRST_INDEX + ++loop->n_ends;
                end->mtu = mtu;
                end->admin_up = 1;
            }
            wire->next = loop->wires;
            loop->wires = wire;
            error = RT_OK;
        }
    }
    rt_unlock(&loop->lock);
    return error;
}

/* The wire with an end of that name. RT_IN_USE: there is a port at one of its ends. */
RT_API int rt_wire_remove(struct rt_loop *loop, const char *name)
{
    int error = RT_NOT_FOUND;

    rt_lock(&loop->lock);
    for (struct rt_wire **place = &loop->wires, *wire; (wire = *place); place = &wire->next) {
        if (strcmp(wire->ends[0].name, name) && strcmp(wire->ends[1].name, name))
            continue;
        error = RT_IN_USE;
        if (!wire->ends[0].port && !wire->ends[1].port) {
            *place = wire->next;
            unmake(loop, wire);
            error = RT_OK;
        }
        break;
    }
    rt_unlock(&loop->lock);
    return error;
}

/* Set an end up or down. Returns whether that changed it, or RT_NOT_FOUND. */
RT_API int rt_wire_set(struct rt_loop *loop, const char *name, int up)
{
    struct rt_end *end;
    int changed = RT_NOT_FOUND;

    rt_lock(&loop->lock);
    end = find(loop, name);
    if (end) {
        int was_up = is_up(end);
        changed = end->admin_up != !!up;
        end->admin_up = !!up;
        for (int i = 0; i < 2; i++) {
            struct rt_end *one = i ? end->far : end;
            one->carrier_changes += is_up(one) != was_up;
            if (one->port)
                rt_port_is(loop, one->port, (int)one->index, flags_of(one));
        }
    }
    rt_unlock(&loop->lock);
    return changed;
}

/* All ends, in a block to be freed with rt_free; returns their number. */
RT_API int rt_wires_read(struct rt_loop *loop, uint8_t **out, size_t *out_bytes)
{
    struct rt_end_state *state;
    int n = 0;

    rt_lock(&loop->lock);
    for (struct rt_wire *wire = loop->wires; wire; wire = wire->next)
        n += 2;
    state = calloc((size_t)n + 1, sizeof *state);
    *out = (uint8_t *)state;
    *out_bytes = (size_t)n * sizeof *state;
    for (struct rt_wire *wire = loop->wires; state && wire; wire = wire->next)
        for (int i = 0; i < 2; i++) {
            const struct rt_end *end = &wire->ends[i];
            *state = (struct rt_end_state){end->index, (uint32_t)end->admin_up, (uint32_t)is_up(end), end->mtu,
                                           end->carrier_changes, end->rx_packets, end->tx_packets, end->rx_bytes,
                                           end->tx_bytes, end->rx_dropped, end->tx_dropped, {0}, {0}};
            memcpy(state->name, end->name, sizeof end->name);
            memcpy(state++->far, end->far->name, sizeof end->name);
        }
    rt_unlock(&loop->lock);
    return *out ? n : RT_NO_MEMORY;
}

/* Send a copy of each frame that comes to the end to the socket `fd`, which is the tap's from now on: struct rt_tap_head,
 * and `snap` bytes of the frame at most. Returns the tap's number; RT_NOT_FOUND, RT_NO_MEMORY. */
RT_API int rt_wire_tap(struct rt_loop *loop, const char *name, int fd, uint32_t snap)
{
    struct rt_tap *tap = calloc(1, sizeof *tap);
    int room = TAP_BUFFER, number = RT_NOT_FOUND;
    struct rt_end *end;

    if (!tap)
        return RT_NO_MEMORY;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    rt_lock(&loop->lock);
    end = find(loop, name);
    if (end) {
        number = tap->number = (int)(++loop->n_taps & 0x7fffffff);
        tap->fd = fd;
        tap->snap = snap;
        tap->next = end->taps;
        end->taps = tap;
    }
    rt_unlock(&loop->lock);
    if (!end)
        free(tap);
    return number;
}

/* End a tap; `lost`: frames that its socket had no room for. RT_NOT_FOUND: it has ended. */
RT_API int rt_wire_untap(struct rt_loop *loop, int number, uint64_t *lost)
{
    int error = RT_NOT_FOUND;

    rt_lock(&loop->lock);
    for (struct rt_wire *wire = loop->wires; wire; wire = wire->next)
        for (int i = 0; i < 2; i++)
            for (struct rt_tap **place = &wire->ends[i].taps; error && *place;) {
                if ((*place)->number != number) {
                    place = &(*place)->next;
                    continue;
                }
                *lost = (*place)->lost;
                close_tap(place);
                error = RT_OK;
            }
    rt_unlock(&loop->lock);
    return error;
}

/* Free all that wires have; no port is left. */
void rt_wires_destroy(struct rt_loop *loop)
{
    for (struct rt_wire *wire; (wire = loop->wires);) {
        loop->wires = wire->next;
        unmake(loop, wire);
    }
    rt_frames_release(loop);
    for (struct rt_frame *frame; (frame = loop->free_frames);) {
        loop->free_frames = frame->next;
        free(frame);
    }
}
