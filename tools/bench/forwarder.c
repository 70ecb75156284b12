/* The limit: a bare forwarder between two interfaces, with nothing but AF_PACKET.
 *
 *     forwarder RING BYPASS IF_A IF_B      RING: v3, v2, mmsg     BYPASS: 0, 1 (PACKET_QDISC_BYPASS)
 *
 * Frames that come in on one interface leave by the other, untouched, with as few system calls as Linux allows: received
 * from a memory-mapped ring (v3: blocks of frames; v2: a slot per frame; mmsg: no ring, recvmmsg), sent in batches by
 * sendmmsg straight from where they lie. Prints "ready" and runs until its standard input ends, so that it dies with
 * whoever started it. `mrc bench switch` compares the embedded switch with v2 and bypass, the cheapest of them.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define BATCH 64
#define BLOCK (64 * 1024)
#define BLOCKS 16
#define SLOT 4608           /* v2: holds a frame of 4214 bytes */
#define BUFFER 9728         /* mmsg */

struct port {
    int fd;
    uint8_t *ring;
    unsigned next;          /* v3: block; v2: slot */
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];
    unsigned waiting;
};

static void die(const char *what)
{
    fprintf(stderr, "forwarder: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void set(int fd, int option, int value)
{
    if (setsockopt(fd, SOL_PACKET, option, &value, sizeof value))
        die("setsockopt");
}

static unsigned slots(void)
{
    return BLOCKS * (BLOCK / SLOT);
}

static void open_port(struct port *port, const char *name, const char *ring, int bypass)
{
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL),
                             .sll_ifindex = (int)if_nametoindex(name)};

    port->fd = socket(AF_PACKET, SOCK_RAW, 0);
    if (port->fd < 0)
        die("socket");
    set(port->fd, PACKET_IGNORE_OUTGOING, 1);
    if (bypass)
        set(port->fd, PACKET_QDISC_BYPASS, 1);
    if (strcmp(ring, "mmsg")) {
        int v3 = !strcmp(ring, "v3");
        struct tpacket_req3 req = {.tp_block_size = BLOCK, .tp_block_nr = BLOCKS, .tp_frame_size = v3 ? BLOCK / 8 : SLOT,
                                   .tp_frame_nr = v3 ? BLOCKS * 8 : slots(), .tp_retire_blk_tov = 1};
        set(port->fd, PACKET_VERSION, v3 ? TPACKET_V3 : TPACKET_V2);
        if (setsockopt(port->fd, SOL_PACKET, PACKET_RX_RING, &req, v3 ? sizeof req : sizeof(struct tpacket_req)))
            die("PACKET_RX_RING");
        port->ring = mmap(NULL, BLOCK * BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED, port->fd, 0);
        if (port->ring == MAP_FAILED)
            die("mmap");
    } else {
        int size = 2 << 20;
        setsockopt(port->fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
    }
    if (bind(port->fd, (struct sockaddr *)&at, sizeof at))
        die(name);
    for (int i = 0; i < BATCH; i++) {
        port->messages[i].msg_hdr.msg_iov = &port->parts[i];
        port->messages[i].msg_hdr.msg_iovlen = 1;
    }
}

static void flush(struct port *port)
{
    for (unsigned done = 0; done < port->waiting;) {
        int sent = sendmmsg(port->fd, port->messages + done, port->waiting - done, MSG_DONTWAIT);
        done += sent > 0 ? (unsigned)sent : 1;
    }
    port->waiting = 0;
}

static void queue(struct port *port, void *data, unsigned len)
{
    port->parts[port->waiting] = (struct iovec){data, len};
    if (++port->waiting == BATCH)
        flush(port);
}

static void forward_v3(struct port *from, struct port *to)
{
    for (;;) {
        struct tpacket_block_desc *block = (void *)(from->ring + from->next * BLOCK);
        if (!(__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
            return;
        struct tpacket3_hdr *frame = (void *)((uint8_t *)block + block->hdr.bh1.offset_to_first_pkt);
        for (unsigned i = 0; i < block->hdr.bh1.num_pkts; i++) {
            queue(to, (uint8_t *)frame + frame->tp_mac, frame->tp_snaplen);
            frame = (void *)((uint8_t *)frame + frame->tp_next_offset);
        }
        flush(to);
        __atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        from->next = (from->next + 1) % BLOCKS;
    }
}

static struct tpacket2_hdr *slot(struct port *port, unsigned index)
{
    unsigned per_block = BLOCK / SLOT;
    return (void *)(port->ring + index / per_block * BLOCK + index % per_block * SLOT);
}

static void forward_v2(struct port *from, struct port *to)
{
    unsigned first = from->next, n = 0;
    for (; n < BATCH; n++) {
        struct tpacket2_hdr *frame = slot(from, from->next);
        if (!(__atomic_load_n(&frame->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
            break;
        queue(to, (uint8_t *)frame + frame->tp_mac, frame->tp_snaplen);
        from->next = (from->next + 1) % slots();
    }
    flush(to);
    for (unsigned i = 0; i < n; i++)
        __atomic_store_n(&slot(from, (first + i) % slots())->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
}

static void forward_mmsg(struct port *from, struct port *to)
{
    static uint8_t buffers[BATCH][BUFFER];
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];

    for (int i = 0; i < BATCH; i++) {
        parts[i] = (struct iovec){buffers[i], BUFFER};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &parts[i], .msg_iovlen = 1}};
    }
    int n = recvmmsg(from->fd, messages, BATCH, MSG_DONTWAIT, NULL);
    for (int i = 0; i < n; i++)
        queue(to, buffers[i], messages[i].msg_len);
    flush(to);
}

int main(int argc, char **argv)
{
    struct port ports[2] = {0};
    void (*forward)(struct port *, struct port *);

    if (argc != 5) {
        fprintf(stderr, "usage: forwarder v3|v2|mmsg 0|1 IF_A IF_B\n");
        return 2;
    }
    forward = !strcmp(argv[1], "v3") ? forward_v3 : !strcmp(argv[1], "v2") ? forward_v2 : forward_mmsg;
    for (int i = 0; i < 2; i++)
        open_port(&ports[i], argv[3 + i], argv[1], atoi(argv[2]));
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct pollfd polls[3] = {{ports[0].fd, POLLIN, 0}, {ports[1].fd, POLLIN, 0}, {0, POLLIN, 0}};
        if (poll(polls, 3, -1) < 0 && errno != EINTR)
            die("poll");
        if (polls[2].revents)
            return 0;
        for (int i = 0; i < 2; i++)
            if (polls[i].revents)
                forward(&ports[i], &ports[!i]);
    }
}
