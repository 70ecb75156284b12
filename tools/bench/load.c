/* Load for a forwarder: send frames into one interface and take them out of another, so many in flight at a time.
 *
 *     load IF_IN IF_OUT WINDOW PACKETS HEX_FRAME LENGTH
 *
 * HEX_FRAME is repeated with zeros to LENGTH bytes. Closed loop: never more than WINDOW frames are under way, so nothing
 * overflows and a slow forwarder is not asked for more than it can. Frames missing for 200 ms count as lost. Prints one JSON line:
 * sent, received, lost, seconds, and with WINDOW 1 the median round in microseconds (the way through the forwarder).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BATCH 32
#define BLOCK (64 * 1024)
#define BLOCKS 64
#define SLOT 10240
#define SLOTS (BLOCKS * (BLOCK / SLOT))

static void die(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int open_socket(const char *name, int protocol)
{
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(protocol),
                             .sll_ifindex = (int)if_nametoindex(name)};
    int one = 1, fd = socket(AF_PACKET, SOCK_RAW, 0);

    if (fd < 0 || !at.sll_ifindex)
        die(name);
    setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one);
    if (protocol) {
        int version = TPACKET_V2;
        struct tpacket_req req = {BLOCK, BLOCKS, SLOT, SLOTS};
        if (setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version) ||
            setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &req, sizeof req))
            die("PACKET_RX_RING");
    }
    if (bind(fd, (struct sockaddr *)&at, sizeof at))
        die(name);
    return fd;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Frames waiting in the ring, given back at once. */
static unsigned take(uint8_t *ring, unsigned *next)
{
    unsigned n = 0;
    for (;; n++) {
        struct tpacket2_hdr *frame = (void *)(ring + *next / (BLOCK / SLOT) * BLOCK + *next % (BLOCK / SLOT) * SLOT);
        if (!(__atomic_load_n(&frame->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
            return n;
        __atomic_store_n(&frame->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        *next = (*next + 1) % SLOTS;
    }
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static uint8_t frame[16384];
    struct mmsghdr messages[BATCH];
    struct iovec part;
    unsigned next = 0, byte;
    uint64_t sent = 0, received = 0, lost = 0, begun, rounds_at;

    if (argc != 7) {
        fprintf(stderr, "usage: load IF_IN IF_OUT WINDOW PACKETS HEX_FRAME LENGTH\n");
        return 2;
    }
    uint64_t window = strtoull(argv[3], NULL, 10), packets = strtoull(argv[4], NULL, 10);
    for (size_t i = 0; sscanf(argv[5] + 2 * i, "%2x", &byte) == 1; i++)
        frame[i] = (uint8_t)byte;
    part = (struct iovec){frame, strtoull(argv[6], NULL, 10)};
    for (int i = 0; i < BATCH; i++)
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    uint64_t *rounds = window == 1 ? calloc(packets, sizeof *rounds) : NULL;
    int in = open_socket(argv[1], 0), out = open_socket(argv[2], ETH_P_ALL);
    uint8_t *ring = mmap(NULL, BLOCK * BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED, out, 0);
    if (ring == MAP_FAILED)
        die("mmap");
    begun = rounds_at = now_ns();
    while (received + lost < packets) {
        uint64_t room = window - (sent - received - lost);
        if (room > packets - sent)
            room = packets - sent;
        if (room) {
            if (rounds)
                rounds_at = now_ns();
            int n = sendmmsg(in, messages, room < BATCH ? room : BATCH, 0);
            if (n < 0)
                die("send");
            sent += (uint64_t)n;
        }
        if (sent - received - lost >= window || sent == packets) {
            struct pollfd wait = {out, POLLIN, 0};
            if (!poll(&wait, 1, 200))
                lost = sent - received;
        }
        uint64_t more = take(ring, &next);
        if (rounds && more && received < packets)
            rounds[received] = now_ns() - rounds_at;
        received += more;
    }
    double seconds = (double)(now_ns() - begun) / 1e9;
    if (rounds)
        qsort(rounds, received < packets ? received : packets, sizeof *rounds, by_value);
    printf("{\"sent\": %llu, \"received\": %llu, \"lost\": %llu, \"seconds\": %.6f, \"round_us\": %.2f}\n",
           (unsigned long long)sent, (unsigned long long)received, (unsigned long long)lost, seconds,
           rounds && received ? (double)rounds[received / 2 < packets ? received / 2 : 0] / 1000 : 0.0);
    return 0;
}
