"""Local link state by rtnetlink, for a `selectors` loop: who is up, and an event within milliseconds of a change.

Design note. pyroute2 0.9 keeps its sockets inside an asyncio loop of its own, so its `fileno()` cannot be waited
on from another loop without losing messages it has already buffered. What is needed here is one kind of message,
RTM_NEWLINK, so a raw NETLINK_ROUTE socket is shorter than the bridge would be.

    nlmsghdr   u32 length, u16 type, u16 flags, u32 sequence, u32 port           (host byte order)
    ifinfomsg  u8 family, u8 pad, u16 device type, s32 ifindex, u32 flags, u32 change mask
    rtattr     u16 length (with this header), u16 type, then data padded to 4

A port is usable when it is administratively up and has carrier: IFF_UP and IFF_LOWER_UP.

A trap, measured on Linux 6.18: the kernel holds loss of carrier back for up to 1 s when an interface has the same
index as its veth peer in the other namespace (its link watch then takes the pair for one device). Whoever creates
the pairs has to see that the two indices differ; other changes arrive 0.1 to 0.3 ms after the command that made
them.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

NLMSG_ERROR, NLMSG_DONE = 2, 3
RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
RTMGRP_LINK = 1
IFLA_IFNAME = 3
IFF_UP, IFF_LOWER_UP = 0x1, 0x10000

NLMSGHDR = struct.Struct("=IHHII")
IFINFOMSG = struct.Struct("=BxHiII")
RTATTR = struct.Struct("=HH")
RECEIVE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class LinkState:
    """One interface as the kernel last told it. `index` 0: there is no such interface (any more)."""

    index: int = 0
    admin_up: bool = False
    carrier: bool = False

    @property
    def up(self) -> bool:
        return self.admin_up and self.carrier


class LinkWatcher:
    """Link state of named interfaces of this network namespace.

    `states` is current when the constructor returns; `poll()` gives the changes since, and is called when
    `fileno()` is readable. Raises OSError when the kernel gives no netlink socket.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.states = dict.fromkeys(names, LinkState())
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE
        )
        try:
            self._socket.bind((0, RTMGRP_LINK))
            self._ask_for_all()
            self._socket.setblocking(True)
            self._socket.settimeout(5.0)
            ended = False
            while not ended:
                ended = self._read_one(lambda _name, _state: None)
            self._socket.setblocking(False)
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def poll(self) -> list[tuple[str, LinkState]]:
        """Interfaces whose state changed, in order; several changes of one interface are all told."""
        changes: list[tuple[str, LinkState]] = []
        while True:
            try:
                self._read_one(lambda name, state: changes.append((name, state)))
            except BlockingIOError:
                return changes
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._ask_for_all()  # the kernel dropped events: the dump brings every state up to date

    def _ask_for_all(self) -> None:
        body = IFINFOMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        head = NLMSGHDR.pack(NLMSGHDR.size + len(body), RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0)
        self._socket.sendto(head + body, (0, 0))

    def _read_one(self, changed: Callable[[str, LinkState], None]) -> bool:
        """Read one datagram; True when it ended a dump."""
        data, (sender, _) = self._socket.recvfrom(RECEIVE_BYTES)
        if sender != 0:  # only the kernel is believed
            return False
        ended = False
        for kind, body in netlink_messages(data):
            if kind in (NLMSG_DONE, NLMSG_ERROR):
                ended = True
                code = struct.unpack_from("=i", body)[0] if kind == NLMSG_ERROR and len(body) >= 4 else 0
                if code:
                    raise OSError(-code, f"netlink refused to list links: {os.strerror(-code)}")
            elif kind in (RTM_NEWLINK, RTM_DELLINK):
                name, state = link_message(kind, body)
                if name in self.states and self.states[name] != state:
                    self.states[name] = state
                    changed(name, state)
        return ended


def netlink_messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(type, body) of each message in a datagram; stops at the first that does not fit."""
    at = 0
    while at + NLMSGHDR.size <= len(data):
        length, kind, *_ = NLMSGHDR.unpack_from(data, at)
        if length < NLMSGHDR.size or at + length > len(data):
            return
        yield kind, data[at + NLMSGHDR.size : at + length]
        at += length + 3 & ~3


def link_message(kind: int, body: bytes) -> tuple[str | None, LinkState]:
    """Interface name (None when absent) and state of an RTM_NEWLINK or RTM_DELLINK body."""
    if len(body) < IFINFOMSG.size:
        return None, LinkState()
    _, _, index, flags, _ = IFINFOMSG.unpack_from(body)
    name, at = None, IFINFOMSG.size
    while at + RTATTR.size <= len(body):
        length, attribute = RTATTR.unpack_from(body, at)
        if length < RTATTR.size:
            break
        if attribute == IFLA_IFNAME:
            name = body[at + RTATTR.size : at + length].rstrip(b"\0").decode(errors="replace")
        at += length + 3 & ~3
    if kind == RTM_DELLINK:
        return name, LinkState()
    return name, LinkState(index, bool(flags & IFF_UP), bool(flags & IFF_LOWER_UP))
