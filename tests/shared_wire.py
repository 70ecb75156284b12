"""One side of a shared wire in Python, for tests of the other (switch/system/shared_wire.h)."""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import time
from pathlib import Path

SLOT_BYTES_AT, SLOTS_AT, SWITCH_CLOSED_AT, PROCESS_CLOSED_AT, RINGS_AT = 0, 4, 64, 128, 192
RING_BYTES, HEAD, WAKES, TAIL, ASLEEP, LOST = 192, 0, 4, 64, 68, 128
WIRE_BYTES = RINGS_AT + 2 * RING_BYTES
TO_SWITCH, TO_PROCESS = 0, 1
SLOT = struct.Struct("=QII")
U32 = struct.Struct("=I")


class WireMemory:
    """The block of a wire. `direction`: the one in which this side produces; the other is read."""

    def __init__(self, memfd: int, direction: int) -> None:
        self.block = mmap.mmap(memfd, 0)
        self.direction = direction
        self.slot_bytes = self.word(SLOT_BYTES_AT)
        self.slots = [self.word(SLOTS_AT + 4 * direction) for direction in (0, 1)]

    def word(self, offset: int) -> int:
        return int(U32.unpack_from(self.block, offset)[0])

    def set_word(self, offset: int, value: int) -> None:
        U32.pack_into(self.block, offset, value)

    def ring(self, direction: int, field: int) -> int:
        """Return the offset of a ring's field."""
        return RINGS_AT + direction * RING_BYTES + field

    def slot(self, direction: int, position: int) -> int:
        first = WIRE_BYTES + (self.slots[0] * self.slot_bytes if direction else 0)
        return first + position % self.slots[direction] * self.slot_bytes

    def put(self, frame: bytes, at_ns: int | None = None, length: int | None = None) -> bool:
        """Put a frame; False when the ring is full. `length`: a wrong one."""
        head, tail = (self.word(self.ring(self.direction, field)) for field in (HEAD, TAIL))
        if (head - tail) % (1 << 32) >= self.slots[self.direction]:
            return False
        start = self.slot(self.direction, head)
        time_ns = time.monotonic_ns() if at_ns is None else at_ns
        SLOT.pack_into(self.block, start, time_ns, len(frame) if length is None else length, 0)
        self.block[start + SLOT.size : start + SLOT.size + len(frame)] = frame
        self.set_word(self.ring(self.direction, HEAD), (head + 1) % (1 << 32))
        return True

    def take(self) -> bytes | None:
        """Take the next frame; None when none waits."""
        direction = 1 - self.direction
        head, tail = (self.word(self.ring(direction, field)) for field in (HEAD, TAIL))
        if head == tail:
            return None
        start = self.slot(direction, tail)
        length = SLOT.unpack_from(self.block, start)[1]
        frame = bytes(self.block[start + SLOT.size : start + SLOT.size + length])
        self.set_word(self.ring(direction, TAIL), (tail + 1) % (1 << 32))
        return frame

    @property
    def lost(self) -> int:
        """Frames that the other side had no slot for."""
        return int(struct.unpack_from("=Q", self.block, self.ring(1 - self.direction, LOST))[0])

    def close(self) -> None:
        self.block.close()


class WiredProcess:
    """A process's side of a wire that a daemon has made over `sock`."""

    def __init__(self, sock: socket.socket, memfd: int) -> None:
        self.sock = sock
        self.memory = WireMemory(memfd, TO_SWITCH)
        os.close(memfd)

    @classmethod
    def connect(cls, path: Path, interface: str, match: list[list[int]], frame_bytes: int = 4352) -> WiredProcess:
        """Ask a daemon for a wire; AssertionError with its words when it refuses."""
        sock, line, files = send_request(
            path, json.dumps({"interface": interface, "frame_bytes": frame_bytes, "match": match}).encode() + b"\n"
        )
        assert files, line
        return cls(sock, files[0])

    def send(self, *frames: bytes) -> int:
        """Put frames and wake the switch; return how many found room."""
        count = sum([self.memory.put(frame) for frame in frames])
        self.sock.send(b"\0")
        return count

    def receive(self, count: int, wait_s: float = 10.0) -> list[bytes]:
        """Return the next `count` frames."""
        frames: list[bytes] = []
        self.sock.settimeout(wait_s)
        while len(frames) < count:
            if (frame := self.memory.take()) is not None:
                frames.append(frame)
                continue
            self.memory.set_word(self.memory.ring(TO_PROCESS, ASLEEP), 1)
            if self.memory.word(self.memory.ring(TO_PROCESS, HEAD)) == self.memory.word(
                self.memory.ring(TO_PROCESS, TAIL)
            ):
                assert self.sock.recv(64), "the switch has ended the wire"
        return frames

    def has_ended(self, wait_s: float = 10.0) -> bool:
        """Return whether the switch ends the wire; wakes before that are passed over."""
        self.sock.settimeout(wait_s)
        try:
            while self.sock.recv(64):
                pass
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self.sock.close()
        self.memory.close()


def send_request(path: Path, text: bytes) -> tuple[socket.socket, bytes, list[int]]:
    """Send a request to a daemon; return the socket, the answer and its descriptors."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(10.0)
    sock.connect(str(path))
    sock.sendall(text)
    line, files, _, _ = socket.recv_fds(sock, 4096, 1)
    return sock, line, files
