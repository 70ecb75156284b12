/* State of the ports' interfaces, from rtnetlink: link cuts, returns, interfaces deleted and made again. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <unistd.h>

#include "event_loop.h"

#define OWN_LISTENERS 1         /* a port's own socket (port.c: rt_port_bind) */

/* A socket that hears every change of an interface in this namespace. -1 with errno. */
int rt_link_open(void)
{
    struct sockaddr_nl at = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
    int size = 1 << 20, fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
    if (bind(fd, (struct sockaddr *)&at, sizeof at)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void changed(struct rt_loop *loop, const struct nlmsghdr *message)
{
    const struct ifinfomsg *info = NLMSG_DATA(message);
    int left = (int)IFLA_PAYLOAD(message);
    const char *name = NULL;
    uint32_t listeners = 0;

    if (message->nlmsg_len < NLMSG_LENGTH(sizeof *info) || info->ifi_family != AF_UNSPEC)
        return;
    for (const struct rtattr *a = IFLA_RTA(info); RTA_OK(a, left); a = RTA_NEXT(a, left))
        if (a->rta_type == IFLA_IFNAME && memchr(RTA_DATA(a), 0, RTA_PAYLOAD(a)))
            name = RTA_DATA(a);
        else if (a->rta_type == IFLA_PROMISCUITY && RTA_PAYLOAD(a) == sizeof listeners)
            memcpy(&listeners, RTA_DATA(a), sizeof listeners);
    for (uint32_t i = 0; i < loop->n_ports; i++) {
        struct rt_port *port = loop->ports[i];
        if (!port || port->end)
            continue;
        if (port->ifindex == info->ifi_index) {
            port->is_captured = listeners > OWN_LISTENERS;
            rt_shared_look(port);
        }
        if (port->ifindex == info->ifi_index)
            rt_port_is(loop, port, message->nlmsg_type == RTM_DELLINK ? 0 : info->ifi_index, info->ifi_flags);
        else if (!port->ifindex && message->nlmsg_type == RTM_NEWLINK && name && !strcmp(name, port->name) &&
                 !rt_port_bind(port, info->ifi_index))
            rt_port_is(loop, port, info->ifi_index, info->ifi_flags);
    }
}

/* Ask the kernel for a message about an interface: only that tells who captures there. It comes as news do. */
static void ask_again(const struct rt_loop *loop, int ifindex)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg info;
    } request = {{sizeof request, RTM_GETLINK, NLM_F_REQUEST, 0, 0}, {.ifi_family = AF_UNSPEC, .ifi_index = ifindex}};

    (void)!send(loop->netlink, &request, sizeof request, MSG_DONTWAIT); /* ENOBUFS: a later message tells as well */
}

/* Ask for the state of a port: messages about it were lost, or came before it was among the loop's ports. */
void rt_link_ask(struct rt_loop *loop, struct rt_port *port)
{
    unsigned flags;
    int ifindex = rt_port_look(port, &flags);

    if (ifindex && ifindex != port->ifindex && rt_port_bind(port, ifindex))
        ifindex = 0;
    rt_port_is(loop, port, ifindex, flags);
    if (ifindex)
        ask_again(loop, ifindex);
}

/* Read all that waits; called with the loop locked. */
void rt_link_read(struct rt_loop *loop)
{
    char buffer[32768] __attribute__((aligned(8)));

    for (;;) {
        ssize_t n = recv(loop->netlink, buffer, sizeof buffer, 0);
        if (n < 0 && errno == ENOBUFS) {
            for (uint32_t i = 0; i < loop->n_ports; i++)
                if (loop->ports[i] && !loop->ports[i]->end)
                    rt_link_ask(loop, loop->ports[i]);
            continue;
        }
        if (n <= 0)
            return;
        int left = (int)n;
        for (const struct nlmsghdr *m = (void *)buffer; NLMSG_OK(m, (unsigned)left); m = NLMSG_NEXT(m, left))
            if (m->nlmsg_type == RTM_NEWLINK || m->nlmsg_type == RTM_DELLINK)
                changed(loop, m);
    }
}
