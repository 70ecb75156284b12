"""Guests: users beside the fabric's owner who may run programs on its RDMA devices (`mrc up --allow`).

A guest counts by his user number, which the kernel tells at each connection. The controller of a device is root's, as
CAP_NET_ADMIN is on a real NIC; what the limits of a guest's process are on a real NIC, they are here.
"""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from mrc_testbed.ipc.peers import peer_of


@dataclass(frozen=True)
class Caller:
    """Process that connected to the NIC process."""

    pid: int
    user: int
    locked_limit: int | None = None
    """Bytes of memory that it may register (RLIMIT_MEMLOCK); None: as many as there are."""

    @property
    def is_root(self) -> bool:
        """Whether it may use the device's controller."""
        return self.user == 0

    @property
    def is_guest(self) -> bool:
        """Whether it is neither root's nor of the user who runs the fabric."""
        return self.user not in (0, os.geteuid())


def caller_of(connection: socket.socket) -> Caller:
    """Return the process at the other end of a connection. Raises OSError."""
    pid, user, _ = peer_of(connection)
    caller = Caller(pid, user)
    return Caller(pid, user, _locked_limit(pid)) if caller.is_guest else caller


def _locked_limit(pid: int) -> int | None:
    """Return a process's RLIMIT_MEMLOCK; 0 for a process that this one does not see."""
    limit = 0
    if pid > 0:  # of a process outside our pid namespace the number is 0, which would mean ourselves
        with suppress(OSError):
            limit = resource.prlimit(pid, resource.RLIMIT_MEMLOCK)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def refusal(user: int, guests: Collection[int]) -> str | None:
    """Return why a user may not use the fabric's devices, with the cure; None for one who may."""
    if user in (0, os.geteuid(), *guests):
        return None
    return f"user {user} may not use the devices of this fabric. Cure: its owner starts it with `mrc up --allow USER`"
