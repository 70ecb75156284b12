"""AF_PACKET socket on one interface, with the kernel's receive ring. Frames only, no MRC.

Frame of a TPACKET_V2 ring slot (linux/if_packet.h, host byte order)::

    0 u32 status   4 u32 len   8 u32 snaplen   12 u16 mac (offset of the frame in the slot)   14 u16 net   16 time

Design note. Measured here on a veth pair, 4238-byte frames, CPU per frame: recv_into 1.3 us, reading a V2 ring
0.5 us (V3 hands over whole blocks, up to a timer tick late: no). A transmit ring was left out: its slots count
as free again when the frame is queued at the far socket, which still reads from them; so a slow reader would see
the next packet's bytes. sendmsg gathers header, payload and trailer and copies once, 3.5 us; sendmmsg saved 0.7
us of it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import socket
import struct
from collections.abc import Iterator

from mrc_testbed.hosts.nic.base import NicError

ETH_P_IPV6 = 0x86DD
SOL_PACKET = 263
PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION, PACKET_IGNORE_OUTGOING = 5, 6, 10, 23
TPACKET_V2 = 1
STATUS_KERNEL, STATUS_USER = 0, 1
SIOCGIFMTU = 0x8921
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
BUFFER_BYTES = 8 << 20

SLOT_HEADER = 128
"""Room in a slot before the frame: 32 bytes of header, the address, and alignment; bytes."""
BLOCK_BYTES = 1 << 16
RING_FRAMES = 512
"""Frames a port holds between turns of the loop: two windows of a default transfer over four planes."""


def open_socket(interface: str, needed_mtu: int) -> socket.socket:
    """Return a non-blocking packet socket for IPv6 frames from the wire, with large buffers.

    Raises NicError when there is no such interface, no permission, or its MTU is below `needed_mtu` bytes.
    """
    try:
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, 0)
    except PermissionError:
        raise NicError(f"{interface}: no permission for a packet socket: run as root (CAP_NET_RAW)") from None
    try:
        mtu = _mtu(sock, interface)
        if mtu < needed_mtu:
            raise NicError(
                f"{interface}: its MTU is {mtu} and packets of this path MTU need {needed_mtu}: "
                f"`ip link set {interface} mtu 9216`, or a smaller pmtu_bytes"
            )
        sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        for option in (SO_SNDBUFFORCE, SO_RCVBUFFORCE):
            with contextlib.suppress(PermissionError):  # rootless: then what the machine gives everybody
                sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        return sock
    except OSError as error:
        sock.close()
        if error.errno == errno.ENODEV:
            raise NicError(f"{interface}: no such interface in this network namespace") from None
        raise NicError(f"{interface}: cannot open it: {error.strerror or error}") from error
    except NicError:
        sock.close()
        raise


def bind(sock: socket.socket, interface: str) -> int:
    """Start to receive; return the interface's index. Raises NicError when the interface has gone."""
    try:
        sock.bind((interface, ETH_P_IPV6))
        return socket.if_nametoindex(interface)
    except OSError as error:
        raise NicError(f"{interface}: cannot bind to it: {error.strerror or error}") from error


def clear_error(sock: socket.socket) -> int:
    """Clear a socket's pending error (ENETDOWN after a link cut), which would keep the socket readable."""
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _mtu(sock: socket.socket, interface: str) -> int:
    request = struct.pack("16sI12x", interface.encode(), 0)
    return int(struct.unpack("16sI12x", fcntl.ioctl(sock, SIOCGIFMTU, request))[1])


class RxRing:
    """Receive ring of a socket that is not bound yet. `frame_bytes`: longest frame taken whole.

    Raises OSError when the kernel has no memory for it.
    """

    def __init__(self, sock: socket.socket, frame_bytes: int) -> None:
        slot = SLOT_HEADER + frame_bytes + 15 & ~15
        per_block = BLOCK_BYTES // slot
        blocks = -(-RING_FRAMES // per_block)
        sock.setsockopt(SOL_PACKET, PACKET_VERSION, struct.pack("i", TPACKET_V2))
        request = struct.pack("IIII", BLOCK_BYTES, blocks, slot, blocks * per_block)
        sock.setsockopt(SOL_PACKET, PACKET_RX_RING, request)
        self._socket = sock
        self.shape = (BLOCK_BYTES, slot, per_block, blocks * per_block)
        """Bytes of a block and of a slot, slots in a block, slots in all."""
        self._map = mmap.mmap(sock.fileno(), BLOCK_BYTES * blocks, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        memory = memoryview(self._map)
        starts = [b * BLOCK_BYTES + i * slot for b in range(blocks) for i in range(per_block)]
        self._slots = [memory[start : start + slot] for start in starts]
        self._status = [memory[start : start + 4].cast("I") for start in starts]
        self.memory = memory
        self._next_slot = 0

    def frames(self, limit: int) -> Iterator[memoryview | None]:
        """Yield up to `limit` waiting frames, each a view valid until the next.

        None stands for a frame longer than a slot.
        """
        slots, statuses, index = self._slots, self._status, self._next_slot
        last = len(slots) - 1
        for _ in range(limit):
            status = statuses[index]
            if not status[0] & STATUS_USER:
                return
            length, captured_length, start = _SLOT.unpack_from(slots[index], 4)
            yield slots[index][start : start + captured_length] if length == captured_length else None
            status[0] = STATUS_KERNEL
            index = index + 1 if index != last else 0
            self._next_slot = index

    def dropped(self) -> int:
        """Return how many frames the kernel dropped on a full ring since the last call."""
        return int(struct.unpack("II", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1])

    def close(self) -> None:
        """Unmap the ring. A frame still in use keeps the mapping, and with it the socket, until released."""
        for view in (*self._slots, *self._status, self.memory):
            view.release()
        with contextlib.suppress(BufferError):
            self._map.close()


_SLOT = struct.Struct("=IIH")


def explain(code: int | None) -> str:
    """Return why a frame could not be sent, as the counters' key."""
    return _REASONS.get(code or 0) or os.strerror(code or 0)


_REASONS = {
    errno.ENETDOWN: "port down",
    errno.ENXIO: "port gone",
    errno.ENODEV: "port gone",
    errno.EMSGSIZE: "longer than the interface's MTU",
}
RETRY = frozenset((errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM))
"""Errors of a send that is worth trying again later."""
