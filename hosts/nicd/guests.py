"""Guests: users beside the fabric's owner who may run programs on its RDMA devices (`mrc up --allow`).

A guest counts by his user number, which the kernel tells at each connection. The controller of a device is root's, as
CAP_NET_ADMIN is on a real NIC; what the limits of a guest's process are on a real NIC, they are here.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import count
from pathlib import Path

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
    """Return a process's RLIMIT_MEMLOCK, None for no limit; 0 for a process that is not to be seen.

    prlimit() would need CAP_SYS_RESOURCE, which root in a container may lack.
    """
    try:
        lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    except OSError:
        return 0
    soft_limits = [line.split()[3] for line in lines if line.startswith("Max locked memory ")]
    return None if soft_limits == ["unlimited"] else int(soft_limits[0])


def first_records(limit: int) -> Callable[[logging.LogRecord], bool]:
    """Return a filter that ends a log after so many records: each mistake of a guest's program makes one."""
    numbers = count(1)

    def is_kept(record: logging.LogRecord) -> bool:
        number = next(numbers)
        if number == limit:
            record.msg, record.args = "this log has its last line: %d are enough", (limit,)
        return number <= limit

    return is_kept


def refusal(user: int, guests: Collection[int]) -> str | None:
    """Return why a user may not use the fabric's devices, with the cure; None for one who may."""
    if user in (0, os.geteuid(), *guests):
        return None
    return f"user {user} may not use the devices of this fabric. Cure: its owner starts it with `mrc up --allow USER`"
