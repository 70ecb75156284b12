"""Kernel filter by QPN: each process on a host's shared ports gets only its own packets.

Classic BPF on a packet socket, before the frame is copied to its ring. BTH: opcode, flags, P_Key 2, reserved, dest QP
of 24 bits::

    srv6     Ethernet 14, outer IPv6 40, [SRH], inner IPv6 40, UDP 8 = 102 and the SRH; outer next header at 20
    others   Ethernet 14, IPv6 40, UDP 8 = 62; next header at 20
    4 bytes further: a 32-bit word, reserved byte and dest QP

IP packets of ordinary programs (ip_packet.py) have no QPN and count as strays, which the agent takes.
Packets to QPN 2 (endpoint operations) pass always: each process has its own EV probes and peers. Frames that are no MRC
of the fabric's mode, and short ones, pass only where `strays` says so: one process counts them.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct

from mrc_testbed.hosts.engine.wire.packets import ENDPOINT_QPN, FIRST_QPN
from mrc_testbed.hosts.nic.ip_packet import GUE_PORT

VERBS_SLOT_BITS = 16
"""Each verbs program of a host has the 65536 QPNs of its slot, 1 and up (hosts/verbs/live.py)."""
AGENT_QPNS = range(FIRST_QPN, 1 << VERBS_SLOT_BITS)
SO_ATTACH_FILTER = 26
_LOAD_LENGTH, _LOAD_BYTE, _LOAD_WORD_AT_X, _LOAD_HALF_AT_X, _LOAD_X = 0x80, 0x30, 0x40, 0x48, 0x01
_AND, _SHIFT_LEFT, _ADD, _TO_X = 0x54, 0x64, 0x04, 0x07
_EQUAL, _GREATER, _AT_LEAST, _RETURN = 0x15, 0x25, 0x35, 0x06
_INSTRUCTION = struct.Struct("=HBBI")  # code, jump if true, jump if false, constant
WHOLE_FRAME = 0xFFFFFFFF
NEXT_HEADER, SRH_LENGTH = 20, 55
"""Offsets of the first IPv6 header's next-header field, and of an SRH's length (8 bytes, less one)."""
UDP, IPV6_IN_IPV6, ROUTING_HEADER = 17, 41, 43
UDP_PORT_BEFORE_QPN = 10
"""Bytes from the UDP destination port to the word with the QPN."""
QPN_OUTER, QPN_PLAIN = 106, 66
"""Offsets of reserved byte and QPN with an outer header, without an SRH, and without one."""


def program(first: int, last: int, strays: bool, outer: bool = True) -> bytes:
    """Return the filter for QPNs `first` to `last`; `outer`: packets have an outer header.

    Jumps count instructions to pass over; those below name their target: `find` looks the QPN up with X = bytes of an
    SRH.
    """
    qpn_offset = QPN_OUTER if outer else QPN_PLAIN
    head: list[tuple[int, int | str, int | str, int]]
    if outer:
        head = [
            (_LOAD_BYTE, 0, 0, NEXT_HEADER),
            (_EQUAL, "find", 0, IPV6_IN_IPV6),
            (_EQUAL, 0, "stray", ROUTING_HEADER),
            (_LOAD_BYTE, 0, 0, SRH_LENGTH),
            (_SHIFT_LEFT, 0, 0, 3),
            (_ADD, 0, 0, 8),
            (_TO_X, 0, 0, 0),
        ]
    else:
        head = [(_LOAD_BYTE, 0, 0, NEXT_HEADER), (_EQUAL, "find", "stray", UDP)]
    steps: list[tuple[int, int | str, int | str, int]] = [
        (_LOAD_LENGTH, 0, 0, 0),
        (_AT_LEAST, 0, "stray", qpn_offset + 4),
        (_LOAD_X, 0, 0, 0),
        *head,
        (_LOAD_HALF_AT_X, 0, 0, qpn_offset - UDP_PORT_BEFORE_QPN),
        (_EQUAL, "stray", 0, GUE_PORT),
        (_LOAD_WORD_AT_X, 0, 0, qpn_offset),  # beyond the end of the frame: the kernel drops it, whoever it was for
        (_AND, 0, 0, 0xFFFFFF),
        (_EQUAL, "take", 0, ENDPOINT_QPN),
        (_AT_LEAST, 0, "leave", first),
        (_GREATER, "leave", "take", last),
        (_RETURN, 0, 0, 0),
        (_RETURN, 0, 0, WHOLE_FRAME),
        (_RETURN, 0, 0, WHOLE_FRAME if strays else 0),
    ]
    ends = len(steps)
    labels = {"find": ends - 10, "leave": ends - 3, "take": ends - 2, "stray": ends - 1}

    def jump(position: int, target: int | str) -> int:
        return labels[target] - position - 1 if isinstance(target, str) else target

    return b"".join(
        _INSTRUCTION.pack(code, jump(n, if_true), jump(n, if_false), k)
        for n, (code, if_true, if_false, k) in enumerate(steps)
    )


def keep(descriptor: int, qpns: range, *, outer: bool, strays: bool = False) -> None:
    """Put the filter on a packet socket; dropped frames cost this process nothing. Raises OSError.

    `outer`: the fabric's packets have an outer header.
    """
    code = program(qpns[0], qpns[-1], strays, outer)
    buffer = ctypes.create_string_buffer(code, len(code))
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        sock.setsockopt(
            socket.SOL_SOCKET,
            SO_ATTACH_FILTER,
            struct.pack("@HP", len(code) // _INSTRUCTION.size, ctypes.addressof(buffer)),
        )
