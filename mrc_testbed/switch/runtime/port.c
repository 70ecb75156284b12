/* One port: an AF_PACKET socket with a receive ring, bound to an interface. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "event_loop.h"

static int set(int fd, int option, int value)
{
    return setsockopt(fd, SOL_PACKET, option, &value, sizeof value);
}

/* Index and flags of the interface that has the port's name now; 0 with errno when there is none. */
int rt_port_look(const struct rt_port *port, unsigned *flags)
{
    struct ifreq request = {0};
    int ifindex;

    *flags = 0;
    memcpy(request.ifr_name, port->name, sizeof request.ifr_name);
    if (ioctl(port->fd, SIOCGIFINDEX, &request))
        return 0;
    ifindex = request.ifr_ifindex;
    if (ioctl(port->fd, SIOCGIFFLAGS, &request))
        return 0;
    *flags = (unsigned short)request.ifr_flags;
    return ifindex;
}

/* Hear the interface of that index from now on. -1 with errno when there is none. */
int rt_port_bind(struct rt_port *port, int ifindex)
{
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = ifindex};
    struct packet_mreq all = {.mr_type = PACKET_MR_PROMISC, .mr_ifindex = ifindex};
    int error;
    socklen_t size = sizeof error;

    getsockopt(port->fd, SOL_SOCKET, SO_ERROR, &error, &size); /* ENETDOWN of the interface before */
    if (bind(port->fd, (struct sockaddr *)&at, sizeof at))
        return -1;
    /* Real NICs drop frames for other MACs otherwise; where it is refused (some virtual ones) it is not needed. */
    setsockopt(port->fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all);
    return 0;
}

static int open_ring(struct rt_port *port, uint32_t blocks)
{
    struct tpacket_req request = {RT_BLOCK, blocks, RT_SLOT, blocks * RT_SLOTS_PER_BLOCK};
    int big = 4 << 20;

    if (set(port->fd, PACKET_VERSION, TPACKET_V2) || set(port->fd, PACKET_IGNORE_OUTGOING, 1) ||
        set(port->fd, PACKET_RESERVE, P4RT_HEADROOM) || set(port->fd, PACKET_COPY_THRESH, 1) ||
        set(port->fd, PACKET_QDISC_BYPASS, 1))
        return -1;
    setsockopt(port->fd, SOL_SOCKET, SO_RCVBUFFORCE, &big, sizeof big); /* more room where we may have it */
    setsockopt(port->fd, SOL_SOCKET, SO_SNDBUFFORCE, &big, sizeof big);
    if (setsockopt(port->fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request))
        return -1;
    port->slots = request.tp_frame_nr;
    port->ring = mmap(NULL, (size_t)RT_BLOCK * blocks, PROT_READ | PROT_WRITE, MAP_SHARED, port->fd, 0);
    return port->ring == MAP_FAILED ? -1 : 0;
}

/* A port on the interface `name`, bound. NULL with the reason in `why`. */
struct rt_port *rt_port_open(struct rt_loop *loop, const char *name, char *why, size_t room)
{
    struct rt_port *port = calloc(1, sizeof *port);
    const char *cure = "";
    unsigned flags;

    if (!port) {
        snprintf(why, room, "%s: out of memory", name);
        return NULL;
    }
    snprintf(port->name, sizeof port->name, "%s", name);
    /* Protocol 0: it hears nothing until it is bound to its interface. */
    port->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (port->fd >= 0 && !open_ring(port, loop->blocks) && (port->ifindex = rt_port_look(port, &flags)) &&
        !rt_port_bind(port, port->ifindex)) {
        port->admin_up = !!(flags & IFF_UP);
        port->up = port->admin_up && (flags & IFF_RUNNING);
        for (int i = 0; i < RT_BATCH; i++) {
            port->messages[i].msg_hdr.msg_iov = &port->parts[i];
            port->messages[i].msg_hdr.msg_iovlen = 1;
        }
        return port;
    }
    if (errno == EPERM)
        cure = ": run as root (needs CAP_NET_RAW)";
    else if (errno == ENOMEM)
        cure = ": use smaller rings";
    snprintf(why, room, "%s: %s%s", name, errno == ENODEV ? "no such interface" : strerror(errno), cure);
    rt_port_close(port);
    return NULL;
}

void rt_port_close(struct rt_port *port)
{
    if (port->ring && port->ring != MAP_FAILED)
        munmap(port->ring, (size_t)port->slots / RT_SLOTS_PER_BLOCK * RT_BLOCK);
    if (port->fd >= 0)
        close(port->fd);
    free(port);
}

/* Send what waits. Frames the kernel refuses are dropped and counted: a switch does not wait. */
void rt_port_flush(struct rt_port *port)
{
    uint32_t done = 0;

    while (done < port->waiting) {
        int sent = sendmmsg(port->fd, port->messages + done, port->waiting - done, MSG_DONTWAIT);
        if (sent > 0) {
            port->tx_packets += (uint32_t)sent;
            for (int i = 0; i < sent; i++)
                port->tx_bytes += port->parts[done + (uint32_t)i].iov_len;
            done += (uint32_t)sent;
        } else if (errno == ENETDOWN || errno == ENXIO || errno == ENODEV) {
            port->tx_down += port->waiting - done;
            break;
        } else if (errno != EINTR) {
            if (port->up)
                port->tx_dropped++;
            else
                port->tx_down++;
            done++;
        }
    }
    port->waiting = 0;
}

/* Give the slots read so far back to the kernel; what lay in them has been sent. */
void rt_port_release(struct rt_port *port)
{
    for (uint32_t at = (port->next + port->slots - port->held) % port->slots; port->held; port->held--) {
        __atomic_store_n(&rt_slot(port, at)->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        at = at + 1 == port->slots ? 0 : at + 1;
    }
}

/* Add what the kernel dropped since the last call because the ring was full. */
void rt_port_count_drops(struct rt_port *port)
{
    struct tpacket_stats stats;
    socklen_t size = sizeof stats;
    if (!getsockopt(port->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &size))
        port->rx_dropped += stats.tp_drops;
}
