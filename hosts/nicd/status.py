"""State of the programs that use a host's device, asked from outside."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from mrc_testbed.hosts.nicd.layout import HEAD, MAGIC, MAX_VALUES, NUMBERS, STATUS_VALUES
from mrc_testbed.ipc.peers import peer_of

ANSWER_S = 5.0


@dataclass(frozen=True)
class ProgramStatus:
    """A program that uses the device: pid, objects, and packets of all its QPs, as in STATUS."""

    pid: int
    qps: int
    cqs: int
    regions: int
    registered_bytes: int
    packets_sent: int
    retransmitted: int
    lost: int
    bytes_sent: int
    bytes_received: int
    evs_out: int
    """EVs of its QPs that carry nothing."""


def programs_of(path: Path) -> list[ProgramStatus] | None:
    """Return the programs of the NIC process at a socket; None where no such process answers.

    Raises TimeoutError when it does not answer.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(ANSWER_S)
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        connection.send(HEAD.pack(MAGIC, NUMBERS["OP_STATUS"], 0, 0))
        data = connection.recv(HEAD.size + 8 * MAX_VALUES)
    count = HEAD.unpack_from(data)[2]
    values = Struct(f"<{count}Q").unpack_from(data, HEAD.size)
    return [ProgramStatus(*values[first : first + STATUS_VALUES]) for first in range(0, count, STATUS_VALUES)]


def nic_pid(path: Path) -> int | None:
    """Return the pid of the NIC process that listens at a socket; None where there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        return peer_of(connection).pid
