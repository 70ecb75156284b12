"""A program without the library, which says whatever a test wants at the socket and in the rings."""

from __future__ import annotations

import array
import contextlib
import fcntl
import mmap
import os
import socket
from pathlib import Path
from types import TracebackType

from mrc_testbed.hosts.nicd.layout import (
    COMPLETION,
    HEAD,
    HEAD_AT,
    KIND_SEND,
    MAGIC,
    NUMBERS,
    PAGES_BYTES,
    QP_VALUES,
    RECORD,
    SGE,
    SLOT_BYTES,
    SLOTS_AT,
    SQ_BYTES,
    SQ_SLOTS,
    TAIL_AT,
    VERSION,
)

Answer = tuple[int, tuple[int, ...], list[int]]
"""Errno, values and descriptors of a reply."""


def sealed_pages(size: int = PAGES_BYTES, seals: int = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW) -> int:
    """Return a memfd as the library makes it, unless told otherwise."""
    fd = os.memfd_create("pages", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


class EndedError(Exception):
    """The NIC process ended the connection."""


class RawProgram:
    """See the module. A context manager, which closes all of its descriptors."""

    def __init__(self, path: Path, *, hello: bool = True) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(str(path))
        self.socket.settimeout(20)
        self.fds: list[int] = []
        self.text = ""
        """Words of the last reply."""
        self.ring: mmap.mmap | None = None
        self.tail = 0
        self.shows_posts = True
        """Whether each post is shown to the NIC process; else the next one shown brings those before along."""
        self.serials: dict[int, int] = {}
        """Requests sent by queue pair."""
        if hello:
            self.pages = sealed_pages()
            self.fds.append(self.pages)
            _, _, fds = self.call("HELLO", VERSION, fds=[self.pages])
            self.ring = mmap.mmap(fds[0], SQ_BYTES)
            self.doorbell, self.events = fds[1], fds[2]

    # ---- requests -----------------------------------------------------------------------------------------

    def send(
        self, operation: int, values: tuple[int, ...], fds: list[int], *, magic: int = MAGIC, text: int = 0
    ) -> None:
        """Send a request. Raises EndedError."""
        head = HEAD.pack(magic, operation, len(values), text)
        self.send_bytes(head + b"".join(value.to_bytes(8, "little") for value in values), fds)

    def send_bytes(self, data: bytes, fds: list[int] | None = None) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            self.socket.sendmsg([data], rights)
        except (BrokenPipeError, ConnectionError):
            raise EndedError from None

    def receive(self) -> Answer:
        """Return a reply. Raises EndedError."""
        try:
            data, fds, _, _ = socket.recv_fds(self.socket, 1 << 16, 8)
        except ConnectionError:
            raise EndedError from None
        self.fds += fds
        if not data:
            raise EndedError
        _, error, count, _ = HEAD.unpack_from(data)
        self.text = data[HEAD.size + 8 * count :].decode()
        values = tuple(int.from_bytes(data[16 + 8 * i : 24 + 8 * i], "little") for i in range(count))
        return error, values, fds

    def call(self, name: str, *values: int, fds: list[int] | None = None) -> Answer:
        """Ask for an operation by its name in the header."""
        self.send(NUMBERS[f"OP_{name}"], values, fds or [])
        return self.receive()

    def number(self, name: str, *values: int) -> int:
        """Return the first value of a reply, which must be a success."""
        error, reply, _ = self.call(name, *values)
        assert error == 0, (name, error)
        return reply[0]

    def memory(self, pd: int, address: int = 1 << 32, length: int = 1 << 16) -> int:
        """Register addresses of the memfd, and return the key."""
        return self.number("REG_MR", pd, address, length, address, 3)

    def queue_pair(self, pd: int, cq: int, depth: int = 64) -> int:
        return self.number("CREATE_QP", pd, cq, cq, depth, depth, 16, 1, 512, 0, 0)

    def to_state(self, qpn: int, state: int, mask: int = 0, **values: int) -> int:
        """Move a QP, and return the errno. Values go by their names in the header."""
        attributes = [0] * QP_VALUES
        attributes[NUMBERS["QP_STATE"]] = state
        for name, value in values.items():
            attributes[NUMBERS[f"QP_{name.upper()}"]] = value
        return self.call("MODIFY_QP", qpn, 1 | mask, 0, *attributes)[0]

    def connect(self, qpn: int, dest_qpn: int, gid: tuple[int, int]) -> None:
        """Bring a QP up to RTS."""
        assert self.to_state(qpn, 1, 1 << 3 | 1 << 4, access=3) == 0
        mask = 1 << 7 | 1 << 8 | 1 << 12 | 1 << 20
        address = {"gid_high": gid[0], "gid_low": gid[1]}
        assert self.to_state(qpn, 2, mask, path_mtu=1024, dest_qpn=dest_qpn, rq_psn=5, **address) == 0
        assert self.to_state(qpn, 3, 1 << 16, sq_psn=5) == 0

    def gid(self) -> tuple[int, int]:
        _, values, _ = self.call("QUERY_PORT", 1)
        return values[2], values[3]

    # ---- rings --------------------------------------------------------------------------------------------

    def put_slots(self, data: bytes, slots: int) -> None:
        """Write slots at our tail, and show them."""
        data = data.ljust(slots * SLOT_BYTES, b"\0")
        for i in range(slots):
            start = SLOTS_AT + (self.tail + i) % SQ_SLOTS * SLOT_BYTES
            self.ring[start : start + SLOT_BYTES] = data[i * SLOT_BYTES : (i + 1) * SLOT_BYTES]
        self.tail += slots
        if self.shows_posts:
            self.set_tail(self.tail)

    def set_tail(self, tail: int) -> None:
        """Store an index, and ring."""
        self.ring[TAIL_AT : TAIL_AT + 8] = tail.to_bytes(8, "little")
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            socket.socket(fileno=os.dup(self.doorbell)).send(b"12345678", socket.MSG_DONTWAIT)

    def post(
        self,
        qpn: int,
        elements: list[tuple[int, int, int]],
        *,
        kind: int = KIND_SEND,
        remote: int = 0,
        rkey: int = 0,
        opcode: int = 0,
        flags: int = 2,
        serial: int | None = None,
    ) -> None:
        """Post a request; its wr_id is its serial."""
        number = self.serials.get((qpn, kind), 0) if serial is None else serial
        self.serials[qpn, kind] = number + 1
        payload = b"".join(SGE.pack(*element) for element in elements)
        slots = 1 + -(-len(payload) // SLOT_BYTES)
        record = RECORD.pack(kind, slots, qpn, flags, number, remote, rkey, 0, opcode, len(elements), 0, 0, number)
        self.put_slots(record + payload, slots)

    def completion(self, ring: mmap.mmap, index: int) -> tuple[int, ...] | None:
        """Return an entry of a CQ's ring, and give its slot back; None while it is not there."""
        if int.from_bytes(ring[TAIL_AT : TAIL_AT + 8], "little") <= index:
            return None
        slots = (len(ring) - SLOTS_AT) // SLOT_BYTES
        entry = COMPLETION.unpack_from(ring, SLOTS_AT + index % slots * SLOT_BYTES)
        ring[HEAD_AT : HEAD_AT + 8] = (index + 1).to_bytes(8, "little")
        return entry

    def close(self) -> None:
        self.socket.close()
        if self.ring is not None:
            self.ring.close()
        for fd in self.fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        self.fds.clear()

    def __enter__(self) -> RawProgram:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
