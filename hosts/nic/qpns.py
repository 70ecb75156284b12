"""A filter in the kernel by QPN, so that the processes of a host which share its ports get their own packets only.

Classic BPF on a packet socket, before the frame is copied to its ring::

    Ethernet 14, outer IPv6 40, inner IPv6 40, UDP 8 = 102     BTH: opcode, flags, P_Key 2, reserved, dest QP 24 bits
    next header of the outer header at 20                      32-bit word at 106 = reserved byte and dest QP

Packets to QPN 2 (endpoint operations) pass always: each process has its own EV probes and peers. Frames that are no MRC
over SRv6, and short ones, pass only where `strays` says so: one process counts them.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct

from hosts.engine.packets import ENDPOINT_QPN, FIRST_QPN

VERBS_SLOT_BITS = 16
"""Each verbs program of a host has the 65536 QPNs of its slot, 1 and up (hosts/verbs/live.py)."""
AGENT_QPNS = range(FIRST_QPN, 1 << VERBS_SLOT_BITS)
SO_ATTACH_FILTER = 26
_LOAD_LENGTH, _LOAD_BYTE, _LOAD_WORD, _AND = 0x80, 0x30, 0x20, 0x54
_EQUAL, _GREATER, _AT_LEAST, _RETURN = 0x15, 0x25, 0x35, 0x06
_INSTRUCTION = struct.Struct("=HBBI")  # code, jump if true, jump if false, constant
WHOLE = 0xFFFFFFFF
IPV6_IN_IPV6 = 41


def program(first: int, last: int, strays: bool) -> bytes:
    """The filter for QPNs `first` to `last`. Jumps count instructions to pass over."""
    steps = (
        (_LOAD_LENGTH, 0, 0, 0),
        (_AT_LEAST, 0, 9, 110),  # else to the strays, at 11
        (_LOAD_BYTE, 0, 0, 20),
        (_EQUAL, 0, 7, IPV6_IN_IPV6),  # else to the strays
        (_LOAD_WORD, 0, 0, 106),
        (_AND, 0, 0, 0xFFFFFF),
        (_EQUAL, 3, 0, ENDPOINT_QPN),
        (_AT_LEAST, 0, 1, first),
        (_GREATER, 0, 1, last),
        (_RETURN, 0, 0, 0),
        (_RETURN, 0, 0, WHOLE),
        (_RETURN, 0, 0, WHOLE if strays else 0),
    )
    return b"".join(_INSTRUCTION.pack(*step) for step in steps)


def keep(descriptor: int, qpns: range, *, strays: bool = False) -> None:
    """Put the filter on a packet socket; what it holds back costs this process nothing. Raises OSError."""
    code = program(qpns[0], qpns[-1], strays)
    buffer = ctypes.create_string_buffer(code, len(code))
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        sock.setsockopt(
            socket.SOL_SOCKET,
            SO_ATTACH_FILTER,
            struct.pack("@HP", len(code) // _INSTRUCTION.size, ctypes.addressof(buffer)),
        )
