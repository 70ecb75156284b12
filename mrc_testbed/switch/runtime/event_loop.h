/* event_loop.h: ports and the event loop, shared by event_loop.c (the loop), ports.c (its ports), events.c (what it
 * tells Python), port.c (sockets and rings), link.c (netlink), wires.c (cables that the kernel does not know) and
 * shared_wires.c (memory shared with a NIC).
 *
 * Choice of the receive path, measured with tools/bench/forwarder.c (two veths, CPU microseconds per forwarded frame of 158
 * and 4214 bytes with 128 in flight, and the way through one hop with a single frame in flight):
 *     TPACKET_V3   2.3  2.6   1000 us     a block is handed over when full or after 1 ms: useless at light load
 *     TPACKET_V2   1.5  2.4     13 us     taken
 *     recvmmsg     2.2  3.4     13 us     one more copy and a longer way through the kernel
 * PACKET_QDISC_BYPASS saves 2 to 8%; nothing of ours queues in a qdisc.
 *
 * A V2 ring has slots of one size. Slots hold a full MRC data frame (4214 bytes) behind the headroom; a longer frame
 * (up to P4RT_MAX_FRAME) comes through the socket's ordinary queue instead (PACKET_COPY_THRESH), with one more copy.
 */
#ifndef RT_IO_H
#define RT_IO_H

#include <linux/if_packet.h>
#include <net/if.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/socket.h>

#include "pipeline.h"
#include "shared_wire.h"

#define RT_BLOCK (64 * 1024)
#define RT_SLOT 4608            /* 14 in a block; TPACKET2 header, headroom and 4286 bytes of frame */
#define RT_SLOTS_PER_BLOCK (RT_BLOCK / RT_SLOT)
#define RT_BATCH 64             /* frames taken from a port before the next has its turn; messages of a sendmmsg */
#define RT_LATE 24              /* the last one: all that was later */
#define RT_EVENT_FRAMES 1024    /* frames that wait for the CPU at most */
#define RT_EVENT_BYTES (4 << 20)
#define RT_RANGES 4             /* of a match */
#define RT_TAG_SHARED (1ull << 62)

struct rt_end;
struct rt_shared;

struct rt_port {
    struct rt_device *dev;
    uint32_t number;
    uint32_t index, generation; /* place in loop->ports; both are in the epoll event, so that a late one is harmless */
    struct rt_end *end;         /* of a wire; NULL: the port is on an interface, by `fd` and `ring` */
    int fd;
    int ifindex;                /* 0: no interface of that name now */
    int up, admin_up;
    int is_captured;            /* somebody beside us has the interface in promiscuous mode */
    char name[IFNAMSIZ];
    struct rt_shared *shared;   /* wires to processes at the interface's other end */
    uint8_t *ring;
    uint32_t slots, next, held; /* next slot to read; slots read and not yet given back, just before next */
    uint32_t waiting;           /* messages to send */
    int dirty;                  /* on loop->dirty */
    struct rt_port *next_closed;/* among ports that are out of the loop and wait to be closed */
    uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes, rx_dropped, tx_dropped, tx_down;
    struct mmsghdr messages[RT_BATCH];
    struct iovec parts[RT_BATCH];
};

/* A frame on a wire. */
struct rt_frame {
    struct rt_frame *next;
    uint64_t at_ns;             /* when it was sent */
    uint8_t *data;              /* in `space`, with P4RT_HEADROOM bytes before it at least */
    uint32_t len, bytes;        /* bytes: of space */
    uint8_t space[];
};

/* Somebody who captures what comes to an end of a wire. What his socket gets is this and the frame (mrc_testbed/capture/packet_files.py). */
struct rt_tap {
    struct rt_tap *next;
    int number, fd;
    uint32_t snap;              /* bytes of a frame that he wants */
    uint64_t lost;
};

struct rt_tap_head {
    uint64_t at_ns;             /* CLOCK_REALTIME */
    uint32_t len, padding;
};

struct rt_end {
    struct rt_end *far;
    struct rt_port *port;       /* NULL: nobody takes what comes here */
    char name[IFNAMSIZ];
    uint32_t index, mtu;
    int admin_up;
    struct rt_frame *first, *last; /* they have come, and wait for the loop; `last` counts only while `first` is set */
    uint32_t waiting;
    struct rt_shared *shared;   /* it is a process's, and its frames lie in a ring; it has no far end */
    int ready;                  /* on loop->first_ready */
    struct rt_end *next_ready;
    struct rt_tap *taps;
    uint64_t carrier_changes, rx_packets, tx_packets, rx_bytes, tx_bytes, rx_dropped, tx_dropped;
};

struct rt_wire {
    struct rt_wire *next;
    struct rt_end ends[2];
};

/* Frames with these numbers, network order: all ranges hold. As native.FrameMatch writes it. */
struct rt_range {
    uint32_t at, bytes, first, last;
    int32_t outside;            /* the number must lie outside instead */
};

struct rt_match {
    uint32_t n;
    struct rt_range ranges[RT_RANGES];
};

/* What the shared wires of an interface have carried since the loop began; the kernel counts what goes over the interface.
 * As native.WireCounts reads it. */
struct rt_shared_counts {
    uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes;
    char interface[IFNAMSIZ];
    uint32_t wires, open;       /* now; open ones carry frames */
};

struct rt_interface {
    struct rt_interface *next;
    struct rt_shared_counts counts;
};

/* A wire in shared memory between a port on an interface and a process. */
struct rt_shared {
    struct rt_shared *next, *next_to_wake; /* of the port; of those that were given frames */
    struct rt_end end;          /* where the process's frames wait */
    struct rt_interface *interface;
    struct rt_match match;      /* frames that are for the process */
    struct shared_wire *wire;
    size_t bytes;
    struct shared_side from_process, to_process;
    int fd, to_wake;
    uint32_t index;             /* in loop->shared */
    uint64_t tag;               /* in its epoll events */
};

struct rt_end_state {           /* as native.EndState reads it */
    uint32_t index, admin_up, up, mtu;
    uint64_t carrier_changes, rx_packets, tx_packets, rx_bytes, tx_bytes, rx_dropped, tx_dropped;
    char name[IFNAMSIZ], far[IFNAMSIZ];
};

/* What Python reads from the loop: this, and for a frame its bytes behind it (see native.Event). */
enum rt_event_kind { RT_EVENT_FRAME = 1, RT_EVENT_PORT = 2 };

struct rt_event {
    uint32_t kind, device, port, len;
    uint32_t up, admin_up, ifindex, padding;
    uint64_t at_ns;
    char interface[IFNAMSIZ];
};

struct rt_queued_event {
    struct rt_queued_event *next;
    struct rt_event event;
    uint8_t frame[];
};

struct rt_loop {
    struct rt_out out;          /* first: where the pipeline sends */
    struct rt_lock lock;        /* ports and devices; taken before a device's lock */
    int epoll, wake, notify, netlink;
    struct rt_timers timers;    /* of devices that have something due */
    uint64_t sleeps_until_ns;   /* the thread, unless something happens; RT_NEVER: for ever */
    uint64_t rest_ns;           /* between two rounds, by the rate of the fastest link */
    uint64_t late[RT_LATE];     /* how often it came to something due less than 2^n microseconds before (and not 2^(n-1)) */
    pthread_t thread;
    int running, timed;         /* timed: its scheduler is that of rates and delays */
    _Atomic int stop;
    uint32_t cpu_port, blocks;  /* ring size of a port */
    uint32_t n_ports, room_ports, generation;
    struct rt_port **ports;     /* by index; NULL where free */
    struct rt_port **dirty;     /* ports with messages to send */
    uint32_t n_dirty, n_waiting;
    struct rt_port **fed;       /* ports with slots to give back */
    uint32_t n_fed;
    struct rt_wire *wires;
    uint32_t n_ends, n_taps;    /* ever made: the last one's number */
    struct rt_end *first_ready, *last_ready; /* ends at which frames wait, in the order of their turns */
    struct rt_frame *moving;    /* from a wire, in a device now; taken away when it goes on by another wire */
    struct rt_frame *done_frames, *free_frames; /* to be free when all is sent; free */
    uint32_t n_free_frames;
    struct rt_shared **shared;  /* by index; NULL where free */
    uint32_t room_shared, shared_generation;
    struct rt_interface *interfaces; /* that ever had a shared wire */
    struct rt_shared *to_wake;  /* processes that were given frames since the last flush */
    struct rt_lock event_lock;
    struct rt_queued_event *first_event, **last_event;
    uint32_t n_frames;
    size_t frame_bytes;
    uint64_t frames_lost;
    uint8_t *big;               /* buffer for a frame longer than a slot, headroom included */
};

/* port.c: called with the loop locked */
struct rt_port *rt_port_open(struct rt_loop *loop, const char *name, char *why, size_t room);
void rt_port_close(struct rt_port *port);
int rt_port_look(const struct rt_port *port, unsigned *flags);
int rt_port_bind(struct rt_port *port, int ifindex);
void rt_port_flush(struct rt_port *port);
void rt_port_release(struct rt_port *port);
void rt_port_count_drops(struct rt_port *port);

static inline struct tpacket2_hdr *rt_slot(const struct rt_port *port, uint32_t index)
{
    return (struct tpacket2_hdr *)(port->ring + (size_t)(index / RT_SLOTS_PER_BLOCK) * RT_BLOCK +
                                   (size_t)(index % RT_SLOTS_PER_BLOCK) * RT_SLOT);
}

/* wires.c: called with the loop locked */
struct rt_port *rt_wire_port(struct rt_loop *loop, const char *name, char *why, size_t room);
void rt_wire_leave(struct rt_loop *loop, struct rt_port *port);
void rt_wire_send(struct rt_loop *loop, struct rt_port *port, uint8_t *data, uint32_t len, uint64_t at_ns);
void rt_wires_destroy(struct rt_loop *loop);
struct rt_end *rt_end_next(struct rt_loop *loop);
void rt_end_ready(struct rt_loop *loop, struct rt_end *end);
struct rt_frame *rt_end_take(struct rt_end *end);
int rt_end_receive(struct rt_loop *loop, struct rt_end *end, struct rt_frame *frame);
void rt_frame_done(struct rt_loop *loop, struct rt_frame *frame);
void rt_frames_release(struct rt_loop *loop);
int rt_end_put(struct rt_loop *loop, struct rt_end *end, const uint8_t *data, uint32_t len, uint64_t at_ns);
void rt_end_forget(struct rt_loop *loop, struct rt_end *end);

/* shared_wires.c: called with the loop locked */
void rt_shared_fill(struct rt_loop *loop, struct rt_shared *shared, uint64_t now_ns);
void rt_shared_rest(struct rt_loop *loop, struct rt_shared *shared);
int rt_shared_send(struct rt_loop *loop, struct rt_port *port, const uint8_t *data, uint32_t len, uint64_t at_ns);
void rt_shared_wake_all(struct rt_loop *loop);
void rt_shared_look(struct rt_port *port);
void rt_shared_serve(struct rt_loop *loop, uint64_t tag);
void rt_shared_end_all(struct rt_loop *loop, struct rt_port *port);
void rt_shared_destroy(struct rt_loop *loop);

/* link.c */
int rt_link_open(void);
void rt_link_read(struct rt_loop *loop);
void rt_link_ask(struct rt_loop *loop, struct rt_port *port);

/* events.c */
void rt_event_push(struct rt_loop *loop, struct rt_event event, const uint8_t *frame);
void rt_event_port(struct rt_loop *loop, const struct rt_port *port);
void rt_port_is(struct rt_loop *loop, struct rt_port *port, int ifindex, unsigned flags);

/* event_loop.c, ports.c: called with the loop locked */
int rt_loop_watch(struct rt_loop *loop, int fd, uint64_t tag);
void rt_loop_schedule(struct rt_loop *loop);
void rt_ports_close(struct rt_loop *loop);

#endif
