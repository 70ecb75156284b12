"""Link state of the machine's interfaces from rtnetlink: one snapshot, then each change as the kernel makes it.

Design notes:

1. The messages are taken apart here, with struct, rather than with pyroute2: one link message costs some 20
   microseconds instead of a millisecond, so that a link cut is on the wire to the controller before the first lost
   packet times out, and ENOBUFS (the kernel dropped messages because we were slow) stays visible to us.
2. Two sockets: one that only listens to the group, one that only asks. An answer to a dump can therefore never be
   mistaken for news; after ENOBUFS the listening socket is drained first and the dump taken second, so that no old
   news overwrites what the dump said.

Layouts: linux/netlink.h, linux/rtnetlink.h, linux/if_link.h. All numbers are in host byte order.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

log = logging.getLogger(__name__)

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTM_NEWSTATS, RTM_GETSTATS = 92, 94
RTMGRP_LINK = 1
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_DUMP, NLM_F_DUMP_INTR = 0x001, 0x300, 0x010

IFF_UP, IFF_LOWER_UP = 0x1, 0x10000
IFLA_IFNAME, IFLA_MTU, IFLA_OPERSTATE, IFLA_EXT_MASK, IFLA_CARRIER_CHANGES = 3, 4, 16, 29, 35
IFLA_STATS_LINK_64 = 1
RTEXT_FILTER_SKIP_STATS = 1 << 3

OPER_STATUS = ("UNKNOWN", "NOT_PRESENT", "DOWN", "LOWER_LAYER_DOWN", "TESTING", "DORMANT", "UP")
"""openconfig-interfaces oper-status by the kernel's IF_OPER_* number (RFC 2863)."""

SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914

_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port id
_LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, change mask
_STATS = struct.Struct("=BxHII")  # if_stats_msg: family, pad, ifindex, filter mask
_ATTRIBUTE = struct.Struct("=HH")  # rtattr: length with this header, type
_COUNTERS = struct.Struct("=8Q")  # the head of rtnl_link_stats64

RECEIVE_BUFFER_BYTES = 4 << 20
DUMP_TIMEOUT_S = 5.0
"""A bound for an answer of the kernel, seconds: it takes no other part's work."""
RETRY_S = 0.2
SO_RCVBUFFORCE = 33


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
    """CLOCK_REALTIME, ns, when admin or oper state last changed; before the first change, when we first looked."""


@dataclass(frozen=True, slots=True)
class LinkCounters:
    """The head of rtnl_link_stats64, in its order; packets and bytes since the interface was made."""

    rx_packets: int = 0
    tx_packets: int = 0
    rx_bytes: int = 0
    tx_bytes: int = 0
    rx_errors: int = 0
    tx_errors: int = 0
    rx_dropped: int = 0
    tx_dropped: int = 0


def set_admin_state(interface: str, up: bool) -> bool:
    """Sets an interface administratively up or down; returns whether that changed anything.

    Raises OSError (ENODEV: no such interface; EPERM: not root).
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14x", os.fsencode(interface), 0)
        flags = struct.unpack_from("H", fcntl.ioctl(sock, SIOCGIFFLAGS, request), 16)[0]
        wanted = flags | IFF_UP if up else flags & ~IFF_UP
        if wanted == flags:
            return False
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH14x", os.fsencode(interface), wanted))
        return True


def _messages(data: bytes) -> Iterator[tuple[int, int, memoryview]]:
    """(type, flags, body) of each netlink message in one datagram; stops at a length that cannot be."""
    view, at = memoryview(data), 0
    while at + _HEADER.size <= len(view):
        length, kind, flags, _, _ = _HEADER.unpack_from(view, at)
        if length < _HEADER.size or at + length > len(view):
            return
        yield kind, flags, view[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def _attributes(body: memoryview) -> dict[int, memoryview]:
    """Top-level attributes by type; the last wins; stops at a length that cannot be."""
    out, at = {}, 0
    while at + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        if length < _ATTRIBUTE.size or at + length > len(body):
            break
        out[kind & 0x3FFF] = body[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
    return out


def _u32(attributes: dict[int, memoryview], kind: int) -> int:
    value = attributes.get(kind)
    return struct.unpack("=I", value)[0] if value is not None and len(value) == 4 else 0


def parse_link(body: memoryview) -> InterfaceState | None:
    """The body of an RTM_NEWLINK or RTM_DELLINK; None for a message that is not about an interface as such."""
    if len(body) < _LINK.size:
        return None
    family, _, ifindex, flags, _ = _LINK.unpack_from(body)
    attributes = _attributes(body[_LINK.size :])
    name = attributes.get(IFLA_IFNAME)
    if family != socket.AF_UNSPEC or name is None:
        return None  # AF_BRIDGE messages tell of bridge ports, under the same message type
    number = attributes.get(IFLA_OPERSTATE, b"\0")[0]
    oper = OPER_STATUS[number] if number < len(OPER_STATUS) else "UNKNOWN"
    if oper == "UNKNOWN" and flags & IFF_UP and flags & IFF_LOWER_UP:
        oper = "UP"
    return InterfaceState(
        name=bytes(name).rstrip(b"\0").decode(errors="replace"),
        ifindex=ifindex,
        admin_up=bool(flags & IFF_UP),
        oper_status=oper,
        mtu=_u32(attributes, IFLA_MTU),
        carrier_changes=_u32(attributes, IFLA_CARRIER_CHANGES),
    )


def _dump(kind: int, body: bytes) -> list[tuple[int, memoryview]]:
    """(type, body) of every message the kernel answers to one dump request, all of one moment.

    Blocks for the time of the dump: some microseconds an interface; while interfaces come and go all the time, as when
    others set up networks beside us, up to DUMP_TIMEOUT_S. Raises NetlinkError.
    """
    deadline, pause = time.monotonic() + DUMP_TIMEOUT_S, 0.0005
    while True:
        out, consistent = _dump_once(kind, body)
        if consistent:
            return out
        if time.monotonic() > deadline:
            raise NetlinkError(errno.EAGAIN, f"netlink: interfaces kept changing for {DUMP_TIMEOUT_S:g} s")
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def _dump_once(kind: int, body: bytes) -> tuple[list[tuple[int, memoryview]], bool]:
    """One dump, and whether nothing changed under it. Raises NetlinkError."""
    out: list[tuple[int, memoryview]] = []
    interrupted = False
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as sock:
        sock.settimeout(DUMP_TIMEOUT_S)
        sock.send(_HEADER.pack(_HEADER.size + len(body), kind, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + body)
        while True:
            for reply, flags, reply_body in _messages(sock.recv(1 << 18)):
                interrupted |= bool(flags & NLM_F_DUMP_INTR)
                if reply == NLMSG_ERROR:
                    code = -struct.unpack_from("=i", reply_body)[0]
                    raise NetlinkError(code, f"netlink dump {kind}: {os.strerror(code)}")
                if reply == NLMSG_DONE:
                    return out, not interrupted
                out.append((reply, reply_body))


def read_links() -> dict[str, InterfaceState]:
    """Every interface of this network namespace by name, now. Raises NetlinkError."""
    mask = struct.pack("=HHI", 8, IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS)
    found = (
        parse_link(body) for kind, body in _dump(RTM_GETLINK, _LINK.pack(0, 0, 0, 0, 0) + mask) if kind == RTM_NEWLINK
    )
    return {link.name: link for link in found if link is not None}


def read_counters() -> dict[int, LinkCounters]:
    """Counters of every interface of this network namespace by ifindex, now. Raises NetlinkError."""
    out = {}
    for kind, body in _dump(RTM_GETSTATS, _STATS.pack(0, 0, 0, 1 << (IFLA_STATS_LINK_64 - 1))):
        if kind != RTM_NEWSTATS or len(body) < _STATS.size:
            continue
        stats = _attributes(body[_STATS.size :]).get(IFLA_STATS_LINK_64)
        if stats is not None and len(stats) >= _COUNTERS.size:
            out[_STATS.unpack_from(body)[2]] = LinkCounters(*_COUNTERS.unpack_from(stats))
    return out


def _grow_buffer(sock: socket.socket) -> None:
    """A larger receive buffer makes overruns rare; beyond net.core.rmem_max it takes root."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)


Listener = Callable[[str, "InterfaceState | None"], None]


class InterfaceWatcher:
    """Keeps `links` equal to the kernel's and calls listeners at once, on the event loop, with (name, new state).

    The new state is None for an interface that is gone. Needs no root.
    """

    def __init__(self) -> None:
        self.links: dict[str, InterfaceState] = {}
        self._names: dict[int, str] = {}
        self._listeners: list[Listener] = []
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.overruns = 0
        """Times the kernel dropped messages and everything was read again."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Adds a listener; call what is returned to remove it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def start(self) -> None:
        """Subscribes, then takes the first snapshot. Needs a running event loop. Raises OSError."""
        sock = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
        )
        try:
            _grow_buffer(sock)
            sock.bind((0, RTMGRP_LINK))
            self._replace(read_links())
        except OSError:
            sock.close()
            raise
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._readable)

    def close(self) -> None:
        if self._socket is not None:
            assert self._loop is not None
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _readable(self) -> None:
        assert self._socket is not None
        overrun = False
        while True:
            try:
                data = self._socket.recv(1 << 18)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                overrun = True
                continue
            if not overrun:
                self.feed(data)
        if overrun:
            self.overruns += 1
            log.warning("netlink dropped link messages (ENOBUFS): reading all interfaces again")
            self._read_again()

    def _read_again(self) -> None:
        if self._socket is None:
            return
        try:
            links = read_links()
        except OSError as error:
            assert self._loop is not None
            log.error("reading the interfaces again failed, next try in %g s: %s", RETRY_S, error)
            self._loop.call_later(RETRY_S, self._read_again)
        else:
            self._replace(links)

    def feed(self, data: bytes) -> None:
        """Takes one datagram of the link group."""
        for kind, _, body in _messages(data):
            if kind not in (RTM_NEWLINK, RTM_DELLINK):
                continue
            link = parse_link(body)
            if link is None:
                continue
            if kind == RTM_DELLINK:
                self._remove(link.name, link.ifindex)
            else:
                self._update(link)

    def _replace(self, links: dict[str, InterfaceState]) -> None:
        for name in [name for name in self.links if name not in links]:
            self._remove(name, self.links[name].ifindex)
        for link in links.values():
            self._update(link)

    def _remove(self, name: str, ifindex: int) -> None:
        known = self.links.get(name)
        if known is None or known.ifindex != ifindex:
            return  # renamed away or made again under the same name in the meantime
        del self.links[name]
        self._names.pop(ifindex, None)
        self._tell(name, None)

    def _update(self, link: InterfaceState) -> None:
        former_name = self._names.get(link.ifindex)
        if former_name is not None and former_name != link.name:
            self._remove(former_name, link.ifindex)
        old = self.links.get(link.name)
        if old is not None and old.ifindex != link.ifindex:
            self._remove(link.name, old.ifindex)
            old = None
        same = old is not None and (old.admin_up, old.oper_status) == (link.admin_up, link.oper_status)
        new = InterfaceState(
            link.name,
            link.ifindex,
            link.admin_up,
            link.oper_status,
            link.mtu,
            link.carrier_changes,
            old.last_change_ns if same and old is not None else time.time_ns(),
        )
        if new == old:
            return
        self.links[new.name] = new
        self._names[new.ifindex] = new.name
        self._tell(new.name, new)

    def _tell(self, name: str, state: InterfaceState | None) -> None:
        for listener in tuple(self._listeners):
            listener(name, state)
