"""Link state and counters of the machine's interfaces: a snapshot, then each change.

The kernel reports changes as it makes them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from mrc_testbed.switch.system.rtnetlink import (
    RECEIVE_BYTES,
    InterfaceState,
    attributes,
    dump,
    link_news,
    link_socket,
    read_links,
)

log = logging.getLogger(__name__)

RTM_NEWSTATS, RTM_GETSTATS = 92, 94
IFLA_STATS_LINK_64 = 1

_STATS = struct.Struct("=BxHII")  # if_stats_msg: family, pad, ifindex, filter mask
_COUNTERS = struct.Struct("=8Q")  # the head of rtnl_link_stats64

RECEIVE_BUFFER_BYTES = 4 << 20
RETRY_S = 0.2
SO_RCVBUFFORCE = 33


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


def read_counters() -> dict[int, LinkCounters]:
    """Counters of every interface of this network namespace by ifindex, now. Raises NetlinkError."""
    out = {}
    for kind, body in dump(RTM_GETSTATS, _STATS.pack(0, 0, 0, 1 << (IFLA_STATS_LINK_64 - 1))):
        if kind != RTM_NEWSTATS or len(body) < _STATS.size:
            continue
        stats = attributes(body[_STATS.size :]).get(IFLA_STATS_LINK_64)
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
    """Watcher that keeps `links` equal to the kernel's.

    Listeners are called at once, on the event loop, with (name, new state).

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
        sock = link_socket()
        try:
            _grow_buffer(sock)
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
                data = self._socket.recv(RECEIVE_BYTES)
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
        for is_there, link in link_news(data):
            if is_there:
                self._update(link)
            else:
                self._remove(link.name, link.ifindex)

    def _replace(self, links: dict[str, InterfaceState]) -> None:
        for name in [name for name in self.links if name not in links]:
            self._remove(name, self.links[name].ifindex)
        for link in links.values():
            self._update(link)

    def _remove(self, name: str, ifindex: int) -> None:
        old_link = self.links.get(name)
        if old_link is None or old_link.ifindex != ifindex:
            return  # renamed away or made again under the same name in the meantime
        del self.links[name]
        self._names.pop(ifindex, None)
        self._notify(name, None)

    def _update(self, link: InterfaceState) -> None:
        former_name = self._names.get(link.ifindex)
        if former_name is not None and former_name != link.name:
            self._remove(former_name, link.ifindex)
        old_link = self.links.get(link.name)
        if old_link is not None and old_link.ifindex != link.ifindex:
            self._remove(link.name, old_link.ifindex)
            old_link = None
        is_same_state = old_link is not None and (old_link.admin_up, old_link.oper_status) == (
            link.admin_up,
            link.oper_status,
        )
        new_link = replace(
            link, last_change_ns=old_link.last_change_ns if is_same_state and old_link is not None else time.time_ns()
        )
        if new_link == old_link:
            return
        self.links[new_link.name] = new_link
        self._names[new_link.ifindex] = new_link.name
        self._notify(new_link.name, new_link)

    def _notify(self, name: str, state: InterfaceState | None) -> None:
        for listener in tuple(self._listeners):
            listener(name, state)
