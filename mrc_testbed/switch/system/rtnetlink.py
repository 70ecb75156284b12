"""Interfaces by rtnetlink: parsed messages, complete dumps, and setting an interface up or down.

Taken apart by struct rather than by pyroute2: a link message costs some 20 microseconds instead of a millisecond, so
that a link cut is known before the first lost packet times out; ENOBUFS (the kernel dropped messages because we were
slow) stays visible; and a socket can be waited on in any loop, where pyroute2 0.9 keeps its own inside a loop of its
own and has messages there that nobody who waits can see.

Layouts: linux/netlink.h, linux/rtnetlink.h, linux/if_link.h. All numbers are in host byte order.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK = 16, 17, 18, 19
RTMGRP_LINK = 1
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR = 0x001, 0x004, 0x300, 0x010

IFF_UP, IFF_LOWER_UP = 0x1, 0x10000
IFLA_IFNAME, IFLA_MTU, IFLA_OPERSTATE, IFLA_AF_SPEC, IFLA_EXT_MASK, IFLA_CARRIER_CHANGES = 3, 4, 16, 26, 29, 35
IFLA_PROMISCUITY = 30
IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE = 8, 1
RTEXT_FILTER_SKIP_STATS = 1 << 3

SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914
IFREQ = struct.Struct("16sH22x")

OPER_STATUS = ("UNKNOWN", "NOT_PRESENT", "DOWN", "LOWER_LAYER_DOWN", "TESTING", "DORMANT", "UP")
"""openconfig-interfaces oper-status by the kernel's IF_OPER_* number (RFC 2863)."""

HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port id
LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, device type, ifindex, flags, change mask
ATTRIBUTE = struct.Struct("=HH")  # rtattr: length with this header, type; data padded to 4

RECEIVE_BYTES = 1 << 18
DUMP_TIMEOUT_S = 5.0
"""A bound for an answer of the kernel, seconds: it takes no other part's work."""


class NetlinkError(OSError):
    """The kernel refused a netlink request, or kept changing under every dump."""


@dataclass(frozen=True, slots=True)
class InterfaceState:
    """One interface as the kernel last described it."""

    name: str
    ifindex: int
    admin_up: bool
    oper_status: str
    """One of OPER_STATUS. A driver that does not report (UNKNOWN) but has carrier counts as UP."""
    mtu: int
    carrier_changes: int
    last_change_ns: int = 0
    """CLOCK_REALTIME of the last change of admin or oper state, ns.

    Before the first change it is the time of the first reading.
    """
    carrier: bool = field(default=False, compare=False)
    """IFF_LOWER_UP. Oper status says the same to whoever compares two states."""
    captures: int = field(default=0, compare=False)
    """Sockets and others that have the interface in promiscuous mode."""


def messages(data: bytes) -> Iterator[tuple[int, int, memoryview]]:
    """(type, flags, body) of each netlink message in one datagram; stops at a length that cannot be."""
    view, offset = memoryview(data), 0
    while offset + HEADER.size <= len(view):
        length, kind, flags, _, _ = HEADER.unpack_from(view, offset)
        if length < HEADER.size or offset + length > len(view):
            return
        yield kind, flags, view[offset + HEADER.size : offset + length]
        offset += (length + 3) & ~3


def attributes(body: memoryview) -> dict[int, memoryview]:
    """Top-level attributes by type; the last wins; stops at a length that cannot be."""
    values, offset = {}, 0
    while offset + ATTRIBUTE.size <= len(body):
        length, kind = ATTRIBUTE.unpack_from(body, offset)
        if length < ATTRIBUTE.size or offset + length > len(body):
            break
        values[kind & 0x3FFF] = body[offset + ATTRIBUTE.size : offset + length]
        offset += (length + 3) & ~3
    return values


def parse_link(body: memoryview) -> InterfaceState | None:
    """Parse the body of an RTM_NEWLINK or RTM_DELLINK.

    Returns None for a message that is not about an interface as such.
    """
    if len(body) < LINK.size:
        return None
    family, _, ifindex, flags, _ = LINK.unpack_from(body)
    values = attributes(body[LINK.size :])
    name = values.get(IFLA_IFNAME)
    if family != socket.AF_UNSPEC or name is None:
        return None  # AF_BRIDGE messages tell of bridge ports, under the same message type
    number = (values.get(IFLA_OPERSTATE) or b"\0")[0]
    oper = OPER_STATUS[number] if number < len(OPER_STATUS) else "UNKNOWN"
    if oper == "UNKNOWN" and flags & IFF_UP and flags & IFF_LOWER_UP:
        oper = "UP"
    return InterfaceState(
        name=bytes(name).rstrip(b"\0").decode(errors="replace"),
        ifindex=ifindex,
        admin_up=bool(flags & IFF_UP),
        oper_status=oper,
        mtu=_u32(values, IFLA_MTU),
        carrier_changes=_u32(values, IFLA_CARRIER_CHANGES),
        carrier=bool(flags & IFF_LOWER_UP),
        captures=_u32(values, IFLA_PROMISCUITY),
    )


def _u32(values: dict[int, memoryview], kind: int) -> int:
    value = values.get(kind)
    return struct.unpack("=I", value)[0] if value is not None and len(value) == 4 else 0


def link_news(data: bytes) -> Iterator[tuple[bool, InterfaceState]]:
    """Yield (whether it still exists, its state) of each interface in a datagram of the link group."""
    for kind, _, body in messages(data):
        if kind in (RTM_NEWLINK, RTM_DELLINK):
            link = parse_link(body)
            if link is not None:
                yield kind == RTM_NEWLINK, link


def link_socket() -> socket.socket:
    """Return a socket that hears of every change of a link and does not block. Raises OSError.

    Take a dump after it is open: what changes meanwhile is heard. Dumps have sockets of their own, so that an answer is
    never mistaken for news. After ENOBUFS read to the end first and dump then, so that no old news overwrites the dump.
    """
    sock = socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
    )
    try:
        sock.bind((0, RTMGRP_LINK))
    except OSError:
        sock.close()
        raise
    return sock


def dump(kind: int, body: bytes) -> list[tuple[int, memoryview]]:
    """(type, body) of every message the kernel answers to one dump request, all of one moment.

    Blocks for the time of the dump: some microseconds an interface; while interfaces come and go all the time, as when
    others set up networks beside us, up to DUMP_TIMEOUT_S. Raises NetlinkError.
    """
    deadline, pause = time.monotonic() + DUMP_TIMEOUT_S, 0.0005
    while True:
        answers, consistent = _dump_once(kind, body)
        if consistent:
            return answers
        if time.monotonic() > deadline:
            raise NetlinkError(errno.EAGAIN, f"netlink: interfaces kept changing for {DUMP_TIMEOUT_S:g} s")
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def _dump_once(kind: int, body: bytes) -> tuple[list[tuple[int, memoryview]], bool]:
    """One dump, and whether nothing changed under it. Raises NetlinkError."""
    answers: list[tuple[int, memoryview]] = []
    is_interrupted = False
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as sock:
        sock.settimeout(DUMP_TIMEOUT_S)
        sock.send(HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + body)
        while True:
            for reply, flags, reply_body in messages(sock.recv(RECEIVE_BYTES)):
                is_interrupted |= bool(flags & NLM_F_DUMP_INTR)
                if reply == NLMSG_ERROR:
                    code = -struct.unpack_from("=i", reply_body)[0]
                    raise NetlinkError(code, f"netlink dump {kind}: {os.strerror(code)}")
                if reply == NLMSG_DONE:
                    return answers, not is_interrupted
                answers.append((reply, reply_body))


def read_links() -> dict[str, InterfaceState]:
    """Every interface of this network namespace by name, now. Raises NetlinkError."""
    mask = ATTRIBUTE.pack(8, IFLA_EXT_MASK) + struct.pack("=I", RTEXT_FILTER_SKIP_STATS)
    answers = dump(RTM_GETLINK, LINK.pack(0, 0, 0, 0, 0) + mask)
    links = (parse_link(body) for kind, body in answers if kind == RTM_NEWLINK)
    return {link.name: link for link in links if link is not None}


def set_admin_state(interface: str, is_up: bool) -> bool:
    """Set an interface administratively up or down, as `ip link set`; return whether it changed.

    Raises OSError (ENODEV: no such interface; EPERM: not root).
    """
    name = os.fsencode(interface)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        flags: int = IFREQ.unpack(fcntl.ioctl(sock, SIOCGIFFLAGS, IFREQ.pack(name, 0)))[1]
        new_flags = flags | IFF_UP if is_up else flags & ~IFF_UP
        if new_flags != flags:
            fcntl.ioctl(sock, SIOCSIFFLAGS, IFREQ.pack(name, new_flags))
    return new_flags != flags


def no_own_addresses(interface: str, sock: socket.socket) -> None:
    """Keep the kernel from giving an interface an IPv6 address, as `ip link set ... addrgenmode none`.

    Without an address it asks for no router and no neighbour. `sock`: of NETLINK_ROUTE, in the interface's namespace.
    Raises NetlinkError.
    """
    mode = ATTRIBUTE.pack(ATTRIBUTE.size + 1, IFLA_INET6_ADDR_GEN_MODE) + bytes([IN6_ADDR_GEN_MODE_NONE, 0, 0, 0])
    inet6 = ATTRIBUTE.pack(ATTRIBUTE.size + len(mode), socket.AF_INET6) + mode
    name = os.fsencode(interface).ljust(16, b"\0")
    body = LINK.pack(0, 0, 0, 0, 0) + ATTRIBUTE.pack(ATTRIBUTE.size + len(name), IFLA_IFNAME) + name
    body += ATTRIBUTE.pack(ATTRIBUTE.size + len(inet6), IFLA_AF_SPEC) + inet6
    sock.settimeout(DUMP_TIMEOUT_S)
    sock.send(HEADER.pack(HEADER.size + len(body), RTM_SETLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0) + body)
    for kind, _, reply in messages(sock.recv(RECEIVE_BYTES)):
        code = -struct.unpack_from("=i", reply)[0] if kind == NLMSG_ERROR else 0
        # No IPv6 in this kernel, or on this interface: there is nothing to forbid.
        if code not in (0, errno.EAFNOSUPPORT):
            raise NetlinkError(code, os.strerror(code))
