/* The event loop: frames from the rings of all ports through their devices and out again, by one thread.
 *
 * Order of locks: loop, device, events. The thread holds the loop's lock for one round (what epoll reported at once),
 * a device's for one batch of frames; both are fair (lock.h), so control calls wait for a batch at most.
 * A frame is sent from the ring slot it came in, or from the traffic manager's buffer it waited in: slots and buffers
 * are given back only after the batch has been sent. What leaves by a wire (wires.c) waits there until no device is
 * locked, and is taken from there as from a ring.
 * Time: each device's traffic manager knows when it has something to do next; the thread waits until the first of them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/if_ether.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "event_loop.h"
#include "traffic.h"

#define SECOND 1000000000u
#define REST_NS 50000                       /* with rates or delays: the rings are looked at that often at most, */
#define REST_MAX_NS 400000                  /* less often where links are slow: */
#define REST_BITS 500                       /* this part of a frame is on the wire meanwhile */
#define REST_MIN_NS(rest_ns) ((rest_ns) * 5 / 8) /* this much of a rest passes before what is due is done */
#define NAP_NS 5000                         /* a shorter rest costs more than it saves */
#define ROUND 16                            /* ports served in a round */
#define SEND_AT 32                          /* frames that may wait for the next port's turn */
#define WIRE_FRAMES (4 * RT_BATCH)          /* taken from wires before others have their turn */
#define TAG_WAKE UINT64_MAX
#define TAG_NETLINK (UINT64_MAX - 1)

/* ---- sending -------------------------------------------------------------------------------------------------------- */

static void flush_all(struct rt_loop *loop)
{
    for (uint32_t i = 0; i < loop->n_dirty; i++) {
        rt_port_flush(loop->dirty[i]);
        loop->dirty[i]->dirty = 0;
    }
    for (uint32_t i = 0; i < loop->n_fed; i++)
        rt_port_release(loop->fed[i]);
    rt_frames_release(loop);
    rt_shared_wake_all(loop);
    loop->n_dirty = loop->n_fed = loop->n_waiting = 0;
}

static void queue(struct rt_loop *loop, struct rt_port *port, uint8_t *data, uint32_t len)
{
    if (port->waiting == RT_BATCH)
        rt_port_flush(port);
    if (!port->dirty) {
        port->dirty = 1;
        loop->dirty[loop->n_dirty++] = port;
    }
    port->parts[port->waiting++] = (struct iovec){data, len};
    loop->n_waiting++;
}

/* A frame leaves by a port, over what the port is on. */
static void leave_by(struct rt_loop *loop, struct rt_port *port, uint8_t *data, uint32_t len, uint64_t at_ns)
{
    if (port->end)
        rt_wire_send(loop, port, data, len, at_ns);
    else if (!port->shared || !rt_shared_send(loop, port, data, len, at_ns))
        queue(loop, port, data, len);
}

/* A frame leaves `dev` by its port, or to the CPU. It must stay where it is until flush_all. The device is locked. */
static void emit(struct rt_out *out, struct rt_device *dev, uint32_t to, uint8_t *data, uint32_t len, uint64_t at_ns)
{
    struct rt_loop *loop = (struct rt_loop *)out;

    if (to == loop->cpu_port) {
        rt_event_push(loop, (struct rt_event){.kind = RT_EVENT_FRAME, .device = dev->id, .port = to, .len = len,
                                           .at_ns = rt_now_ns()}, data);
        dev->observers.stats.sent++;
    } else if (to < RT_PORTS && dev->attached.ports[to]) {
        leave_by(loop, dev->attached.ports[to], data, len, at_ns);
        dev->observers.stats.sent++;
    } else {
        dev->observers.stats.dropped_no_port++;
    }
}

/* ---- time ----------------------------------------------------------------------------------------------------------- */

/* Send what came out of buffers and free them; note when the device has something to do next. The device is locked. */
static void settle(struct rt_loop *loop, struct rt_device *dev)
{
    struct rt_timers *due = &dev->traffic.timers;
    struct rt_timer *timer = &dev->attached.timer;

    if (dev->traffic.pool.spent) {
        flush_all(loop);
        rt_buffers_reap(&dev->traffic.pool);
    }
    if (!due->n && !timer->place)
        return;
    if (timer->place || !rt_timers_reserve(&loop->timers, loop->timers.n + 1))
        rt_timer_set(&loop->timers, timer, due->n ? due->at[0]->due_ns : RT_NEVER);
}

/* Do what is due on a device until then, and note how late that is. The device is locked. */
static void catch_up(struct rt_loop *loop, struct rt_device *dev, uint64_t until_ns, uint64_t now_ns)
{
    uint64_t late_us;
    int bucket;

    if (!rt_traffic_due(&dev->traffic, until_ns))
        return;
    late_us = (now_ns - dev->traffic.timers.at[0]->due_ns) / 1000;
    bucket = late_us ? 64 - __builtin_clzll(late_us) : 0;
    loop->late[bucket < RT_LATE ? bucket : RT_LATE - 1]++;
    rt_advance(dev, &loop->out, until_ns);
}

/* Pass up to a batch of the frames that wait at an end of a wire through the device there; return their number. */
static uint32_t deliver(struct rt_loop *loop, struct rt_end *end)
{
    struct rt_device *dev = end->port ? end->port->dev : NULL;
    uint64_t now_ns = rt_now_ns();
    struct rt_frame *frame;
    uint32_t n = 0;

    if (end->shared)
        rt_shared_fill(loop, end->shared, now_ns);
    if (dev)
        rt_lock(&dev->lock);
    for (; n < RT_BATCH && (frame = rt_end_take(end)); n++) {
        /* The device's clock never goes back: a frame that arrived before it counts as arriving now. */
        uint64_t at_ns = dev && frame->at_ns < dev->traffic.clock_ns ? dev->traffic.clock_ns : frame->at_ns;
        if (!rt_end_receive(loop, end, frame))
            continue;
        if (dev->pub.program) {
            catch_up(loop, dev, at_ns, now_ns);
            /* A frame that goes on by another wire is taken there without a copy; `moving` is NULL then. */
            loop->moving = frame;
            rt_receive(dev, &loop->out, end->port->number, frame->data, frame->len,
                       (uint32_t)(frame->data - frame->space), at_ns);
            frame = loop->moving;
            loop->moving = NULL;
        }
        if (frame)
            rt_frame_done(loop, frame);
    }
    if (dev) {
        settle(loop, dev);
        rt_unlock(&dev->lock);
    }
    if (loop->n_waiting >= SEND_AT)
        flush_all(loop);
    if (end->shared)
        rt_shared_rest(loop, end->shared);
    else if (end->first)
        rt_end_ready(loop, end);
    return n;
}

/* What waits at ends of wires, in turns; some of it stays when there is much. No device is locked. */
static void serve_wires(struct rt_loop *loop)
{
    struct rt_end *end;

    for (uint32_t n = 0; n < WIRE_FRAMES && (end = rt_end_next(loop));)
        n += deliver(loop, end);
}

/* All that is due now, on every device. */
static void serve_timers(struct rt_loop *loop)
{
    uint64_t now_ns = loop->timers.n ? rt_now_ns() : 0;

    while (loop->timers.n && loop->timers.at[0]->due_ns <= now_ns) {
        struct rt_timer *timer = loop->timers.at[0];
        struct rt_device *dev = (struct rt_device *)((char *)timer - offsetof(struct rt_device, attached.timer));
        rt_lock(&dev->lock);
        catch_up(loop, dev, now_ns, now_ns);
        settle(loop, dev);
        rt_unlock(&dev->lock);
        serve_wires(loop);
    }
}

/* Another thread has changed what is due, or sent by a wire: wake ours when it would sleep too long. The loop is locked. */
static void hurry(struct rt_loop *loop)
{
    uint64_t one = 1;

    if (((loop->timers.n && loop->timers.at[0]->due_ns < loop->sleeps_until_ns) || loop->first_ready) &&
        write(loop->wake, &one, sizeof one) < 0)
        return; /* EAGAIN: it is readable already */
}

/* With rates or delays the thread runs before all ordinary ones, if it may: on a machine with more to do than it can, it
 * would else come 2 to 10 ms late for one frame in a hundred (measured: 0.1 ms with this), and before agents, which ask
 * for the lowest real-time priority and may work for milliseconds. It has no more to do than the others give it, and
 * the kernel leaves them 5 % of the time whatever happens.
 *
 * At full speed it interrupts nobody (SCHED_BATCH): a sender goes on with its burst, and all of it is here when we wake up.
 * With every process busy that is a fifth of our CPU, one and a half of sixteen us a packet at the sender, and four of
 * five wake-ups, here and at the receiver (docs/design/agent-turns.md). */
static void choose_scheduler(struct rt_loop *loop, int timed)
{
    struct sched_param priority = {.sched_priority = timed ? sched_get_priority_min(SCHED_RR) + 1 : 0};

    loop->timed = timed;
    pthread_setschedparam(loop->thread, timed ? SCHED_RR : SCHED_BATCH, &priority); /* EPERM: then as ever */
}

/* The settings of a port have changed: the rest between two rounds, and the scheduler. */
void rt_loop_schedule(struct rt_loop *loop)
{
    uint64_t fastest = 1;
    int timed = 0;

    for (uint32_t i = 0; i < loop->n_ports; i++) {
        const struct rt_traffic *traffic =
            loop->ports[i] ? loop->ports[i]->dev->traffic.ports[loop->ports[i]->number] : NULL;
        if (!rt_traffic_timed(traffic))
            continue;
        timed = 1;
        if (!traffic->bits.rate || traffic->bits.rate > fastest)
            fastest = traffic->bits.rate ? traffic->bits.rate : UINT64_MAX;
    }
    loop->rest_ns = (uint64_t)REST_BITS * SECOND / fastest;
    if (loop->rest_ns < REST_NS)
        loop->rest_ns = REST_NS;
    if (loop->rest_ns > REST_MAX_NS)
        loop->rest_ns = REST_MAX_NS;
    if (loop->running && timed != loop->timed)
        choose_scheduler(loop, timed);
}

/* The settings of a device in this loop have changed. */
RT_API void rt_loop_look(struct rt_loop *loop, struct rt_device *dev)
{
    rt_lock(&loop->lock);
    rt_loop_schedule(loop);
    rt_lock(&dev->lock);
    settle(loop, dev);
    rt_unlock(&dev->lock);
    hurry(loop);
    rt_unlock(&loop->lock);
}

/* ---- receiving ------------------------------------------------------------------------------------------------------- */

/* The kernel took the VLAN tag out of the frame: put it back in front of the type. Returns the frame's new start. */
static uint8_t *put_tag_back(const struct tpacket2_hdr *slot, uint8_t *data)
{
    uint16_t type = slot->tp_status & TP_STATUS_VLAN_TPID_VALID ? slot->tp_vlan_tpid : ETH_P_8021Q;

    memmove(data - 4, data, 12);
    p4rt_put(data + 8, type, 2);
    p4rt_put(data + 10, slot->tp_vlan_tci, 2);
    return data - 4;
}

/* Run one frame of a slot through the device. Returns 1 when it must be sent before the next may be read. */
static int receive_slot(struct rt_loop *loop, struct rt_port *port, struct tpacket2_hdr *slot, uint64_t now_ns)
{
    struct rt_device *dev = port->dev;
    uint8_t *data = (uint8_t *)slot + slot->tp_mac;
    uint32_t len = slot->tp_snaplen, headroom = P4RT_HEADROOM + 4;
    int big = 0;

    if (slot->tp_status & TP_STATUS_COPY) {
        ssize_t n = recv(port->fd, loop->big + P4RT_HEADROOM + 8, P4RT_MAX_FRAME, MSG_DONTWAIT | MSG_TRUNC);
        data = loop->big + P4RT_HEADROOM + 8;
        len = n < 0 ? 0 : (uint32_t)n;
        big = 1;
    }
    port->rx_packets++;
    port->rx_bytes += slot->tp_len;
    if (!dev->pub.program)
        return 0;
    if (len < slot->tp_len || len > P4RT_MAX_FRAME - 4) {
        dev->observers.stats.received++;
        dev->observers.stats.dropped_size++;
        return 0;
    }
    if (slot->tp_status & TP_STATUS_VLAN_VALID && len >= 12) {
        data = put_tag_back(slot, data);
        len += 4;
        headroom -= 4;
    }
    rt_receive(dev, &loop->out, port->number, data, len, headroom, now_ns);
    return big;
}

/* How far CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, which says `now_ns`. */
static uint64_t clocks_apart(uint64_t now_ns)
{
    struct timespec real;
    clock_gettime(CLOCK_REALTIME, &real);
    return (uint64_t)real.tv_sec * SECOND + (uint64_t)real.tv_nsec - now_ns;
}

/* When a frame reached its ring, by the kernel's stamp on it: where time matters it counts from then, not from when the
 * thread has come to it. A stamp that cannot be true (somebody set the clock) is ignored. */
static uint64_t arrival(const struct rt_device *dev, const struct tpacket2_hdr *slot, uint64_t now_ns, uint64_t apart_ns)
{
    uint64_t at_ns = (uint64_t)slot->tp_sec * SECOND + slot->tp_nsec - apart_ns;

    if (at_ns > now_ns || now_ns - at_ns > SECOND)
        at_ns = now_ns;
    /* What was due before its frame may have happened already. */
    return at_ns > dev->traffic.clock_ns ? at_ns : dev->traffic.clock_ns;
}

static void receive(struct rt_loop *loop, struct rt_port *port)
{
    uint64_t now_ns = rt_now_ns(), at_ns = now_ns, apart_ns = loop->timed ? clocks_apart(now_ns) : 0;
    uint32_t n = 0;

    rt_lock(&port->dev->lock);
    while (n < RT_BATCH && port->held < port->slots) {
        struct tpacket2_hdr *slot = rt_slot(port, port->next);
        if (!(__atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
            break;
        if (loop->timed) {
            at_ns = arrival(port->dev, slot, now_ns, apart_ns);
            catch_up(loop, port->dev, at_ns, now_ns);
        }
        int send_now = receive_slot(loop, port, slot, at_ns);
        port->next = port->next + 1 == port->slots ? 0 : port->next + 1;
        if (!port->held++)
            loop->fed[loop->n_fed++] = port;
        n++;
        if (send_now)
            flush_all(loop);
    }
    settle(loop, port->dev);
    rt_unlock(&port->dev->lock);
    serve_wires(loop);
    if (loop->n_waiting >= SEND_AT)
        flush_all(loop);
}

/* ---- the thread ---------------------------------------------------------------------------------------------------------- */

static void serve_port(struct rt_loop *loop, uint64_t tag, uint32_t happened)
{
    struct rt_port *port = (uint32_t)tag < loop->n_ports ? loop->ports[(uint32_t)tag] : NULL;
    socklen_t size = sizeof(int);
    int error;

    if (!port || port->generation != (uint32_t)(tag >> 32))
        return;
    if (happened & EPOLLERR)
        getsockopt(port->fd, SOL_SOCKET, SO_ERROR, &error, &size); /* ENETDOWN; netlink tells the story */
    receive(loop, port);
}

static void drain(int eventfd)
{
    uint64_t count;
    while (read(eventfd, &count, sizeof count) < 0 && errno == EINTR)
        ;
}

/* Wait for something to happen, at most until then. */
static int wait_for(const struct rt_loop *loop, struct epoll_event *events, uint64_t until_ns)
{
    uint64_t now_ns = until_ns == RT_NEVER ? 0 : rt_now_ns(), left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    struct timespec left = {(time_t)(left_ns / SECOND), (long)(left_ns % SECOND)};
    long n;

    if (until_ns == RT_NEVER)
        return epoll_wait(loop->epoll, events, ROUND, -1);
    n = syscall(SYS_epoll_pwait2, loop->epoll, events, ROUND, &left, NULL, 0);
    if (n < 0 && errno == ENOSYS) /* before Linux 5.11: milliseconds */
        return epoll_wait(loop->epoll, events, ROUND, (int)(left_ns / 1000000 + 1));
    return (int)n;
}

/* Leave the rings alone for a moment after a round that began then. A real-time thread is woken for each single frame,
 * and a timer set for each, which costs more than the frame; but frames that wait are stamped, and those in queues are
 * reckoned with when they were due, so to come to them later changes little. */
static void rest(uint64_t rest_ns, uint64_t began_ns, uint64_t due_ns)
{
    uint64_t until_ns = began_ns + rest_ns, soon_ns = began_ns + REST_MIN_NS(rest_ns);
    struct timespec until;

    if (due_ns < until_ns)
        until_ns = due_ns > soon_ns ? due_ns : soon_ns;
    until = (struct timespec){(time_t)(until_ns / SECOND), (long)(until_ns % SECOND)};
    if (until_ns > rt_now_ns() + NAP_NS)
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static void *run(void *argument)
{
    struct rt_loop *loop = argument;
    struct epoll_event events[ROUND];
    uint64_t due_ns = RT_NEVER;

    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* else ordinary threads are woken 50 us late for good measure */
    while (!loop->stop) {
        int n = wait_for(loop, events, due_ns), timed = 0;
        uint64_t began_ns = loop->timed ? rt_now_ns() : 0;
        rt_lock(&loop->lock);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 == TAG_NETLINK)
                rt_link_read(loop);
            else if (events[i].data.u64 == TAG_WAKE)
                drain(loop->wake);
            else if (events[i].data.u64 & RT_TAG_SHARED)
                rt_shared_serve(loop, events[i].data.u64);
            else
                serve_port(loop, events[i].data.u64, events[i].events);
        }
        serve_wires(loop);
        flush_all(loop);
        serve_timers(loop);
        flush_all(loop);
        due_ns = loop->timers.n ? loop->timers.at[0]->due_ns : RT_NEVER;
        if (loop->first_ready)
            due_ns = 0;
        loop->sleeps_until_ns = due_ns;
        timed = loop->timed && began_ns;
        rt_unlock(&loop->lock);
        if (timed)
            rest(loop->rest_ns, began_ns, due_ns);
    }
    return NULL;
}

int rt_loop_watch(struct rt_loop *loop, int fd, uint64_t tag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = tag};
    return epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event);
}

RT_API void rt_loop_destroy(struct rt_loop *loop);

/* NULL with the reason in `why`. */
RT_API struct rt_loop *rt_loop_create(uint32_t cpu_port, uint32_t ring_bytes, char *why, size_t room)
{
    struct rt_loop *loop = calloc(1, sizeof *loop);

    if (!loop) {
        snprintf(why, room, "out of memory");
        return NULL;
    }
    loop->cpu_port = cpu_port;
    loop->blocks = ring_bytes / RT_BLOCK < 2 ? 2 : ring_bytes / RT_BLOCK;
    loop->last_event = &loop->first_event;
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    loop->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->notify = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->netlink = rt_link_open();
    loop->sleeps_until_ns = RT_NEVER;
    loop->out.frame = emit;
    loop->big = malloc(P4RT_HEADROOM + 8 + P4RT_MAX_FRAME);
    if (loop->epoll < 0 || loop->wake < 0 || loop->notify < 0 || loop->netlink < 0 || !loop->big ||
        rt_loop_watch(loop, loop->wake, TAG_WAKE) || rt_loop_watch(loop, loop->netlink, TAG_NETLINK)) {
        snprintf(why, room, "%s", strerror(errno));
        rt_loop_destroy(loop);
        return NULL;
    }
    return loop;
}

/* 0, or an errno. Signals stay with the other threads. */
RT_API int rt_loop_start(struct rt_loop *loop)
{
    sigset_t all, before;
    int error;

    if (loop->running)
        return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&loop->thread, NULL, run, loop);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return error;
    pthread_setname_np(loop->thread, "p4-forward");
    rt_lock(&loop->lock);
    loop->running = 1;
    choose_scheduler(loop, 0);
    rt_loop_schedule(loop);
    rt_unlock(&loop->lock);
    return 0;
}

RT_API void rt_loop_stop(struct rt_loop *loop)
{
    uint64_t one = 1;

    if (!loop->running)
        return;
    loop->stop = 1;
    while (write(loop->wake, &one, sizeof one) < 0 && errno == EINTR)
        ;
    pthread_join(loop->thread, NULL);
    loop->running = 0;
    loop->stop = 0;
}

RT_API int rt_loop_fd(struct rt_loop *loop)
{
    return loop->notify;
}

/* Copies RT_LATE counts: see rt_loop.late. */
RT_API void rt_loop_late(struct rt_loop *loop, uint64_t *counts)
{
    rt_lock(&loop->lock);
    memcpy(counts, loop->late, sizeof loop->late);
    rt_unlock(&loop->lock);
}

RT_API uint64_t rt_loop_frames_lost(struct rt_loop *loop)
{
    return loop->frames_lost;
}

/* ---- from any thread ---------------------------------------------------------------------------------------------------- */

/* Push a frame through the device as received on `port`. */
RT_API int rt_loop_inject(struct rt_loop *loop, struct rt_device *dev, uint32_t port, const uint8_t *frame, uint32_t len)
{
    uint64_t now_ns = rt_now_ns();
    int error = RT_OK;

    if (len > P4RT_MAX_FRAME)
        return RT_INVALID;
    rt_lock(&loop->lock);
    rt_lock(&dev->lock);
    uint8_t *data = loop->big + P4RT_HEADROOM + 8;
    memcpy(data, frame, len);
    if (!dev->pub.program)
        error = RT_NO_PROGRAM;
    else
        rt_enter(dev, &loop->out, port, data, len, P4RT_HEADROOM, now_ns);
    flush_all(loop);
    settle(loop, dev);
    rt_unlock(&dev->lock);
    hurry(loop);
    rt_unlock(&loop->lock);
    return error;
}

/* Send a frame out of a port, past the pipeline. */
RT_API int rt_port_send(struct rt_loop *loop, struct rt_device *dev, uint32_t number, const uint8_t *frame,
                        uint32_t len)
{
    int error = RT_NOT_FOUND;

    rt_lock(&loop->lock);
    if (number < RT_PORTS && dev->attached.ports[number]) {
        leave_by(loop, dev->attached.ports[number], (uint8_t *)frame, len, rt_now_ns());
        flush_all(loop);
        hurry(loop);
        error = RT_OK;
    }
    rt_unlock(&loop->lock);
    return error;
}

/* Stops the thread; all ports are closed, their devices live on. */
RT_API void rt_loop_destroy(struct rt_loop *loop)
{
    int fds[] = {loop->epoll, loop->wake, loop->notify, loop->netlink};

    rt_loop_stop(loop);
    rt_ports_close(loop);
    rt_wires_destroy(loop);
    rt_shared_destroy(loop);
    for (struct rt_queued_event *e = loop->first_event, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(loop->ports);
    free(loop->dirty);
    free(loop->fed);
    free(loop->big);
    while (loop->timers.n)
        rt_timer_set(&loop->timers, loop->timers.at[0], RT_NEVER);
    free(loop->timers.at);
    free(loop);
}
