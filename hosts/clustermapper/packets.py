"""Probe on the wire: a UDP packet from a NIC port to itself, led round by an outer header (§9).

::

    Ethernet 14 | outer IPv6 40 (SRv6 only), next header 41 | inner IPv6 40, from and to own address | UDP 8 | payload
    payload   0 magic "MRCM"    4 0xFFFFFFFF    8 target u16   10 class u8   11 stream u8   12 sequence u32
             16 send time, ns of CLOCK_MONOTONIC, u64          24 keyed digest of bytes 0 to 23, 8 bytes
             32 CRC-32 of the padding behind                   36 padding (data class only)

* UDP port 3785 is that of BFD Echo (RFC 5881), which is the same idea: sent to oneself, payload one's own matter.
* Bytes 4 to 7 lie where a BTH has its destination QP: 0xFFFFFF is nobody's, so the kernel filters of the agents and
  verbs programs on the same port hold probes back (hosts/nic/qpns.py).
* The 36 bytes end at 138, where switches cut packets (§4.3): a trimmed probe still says who it is.
* The digest has a random key of this process: nothing else makes a probe that counts, and a corrupted one is lost.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from mrc_testbed.hosts.clustermapper.targets import ProbeTarget
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.topologies.plan import Plan

UDP_PORT = 3785
MAGIC = b"MRCM"
NO_QP = 0xFFFFFFFF
PAYLOAD = struct.Struct(">4sIHBBIQ8sI")
SIGNED_BYTES = 24
DIGEST_AT = 24
DATA_PADDING = 220
"""Bytes behind the payload of a data-class probe: longer than any trim length, so that switches trim."""
HOP_LIMIT = 64
MAX_TARGETS = 1 << 16

ETHERNET = 14
IPV6 = struct.Struct(">IHBB16s16s")
UDP = struct.Struct(">HHHH")
_MAC_BYTE = re.compile(r"[0-9a-f]{2}")
_CONFIG = Config()
TRIMMED = frozenset((_CONFIG.dscp.trimmed, _CONFIG.dscp.trimmed_lasthop))
ECT0, CE = 2, 3


class ServiceClass(IntEnum):
    """Queue in which a probe waits.

    Congestion loses no control packet; a data probe comes back trimmed instead.
    """

    CONTROL = 0
    DATA = 1

    @property
    def label(self) -> str:
        return self.name.lower()


TRAFFIC_CLASS = {
    ServiceClass.CONTROL: _CONFIG.dscp.control << 2,
    ServiceClass.DATA: _CONFIG.dscp.trimmable << 2 | ECT0,
}


class ReturnedProbe(NamedTuple):
    """A probe that came back. `sent_ns`: CLOCK_MONOTONIC, as it was written into it."""

    target: int
    service_class: int
    stream: int
    sequence: int
    sent_ns: int
    trimmed: bool
    marked: bool


class NotOursError(Exception):
    """Frame that is no whole probe of this process.

    The text is a counter's key and has no numbers in it.
    """


@dataclass(frozen=True, slots=True)
class PortIdentity:
    """Templates of a port: frames of probes as they leave, and as they return."""

    ethernet: bytes
    address: bytes
    """Inner IPv6 address of the port, 16 bytes."""
    own_usid: bytes | None
    """Outer DA of what reaches it, 16 bytes; None without SRv6."""

    @classmethod
    def from_plan(cls, plan: Plan, host: str, plane: int, srv6: bool) -> PortIdentity:
        source_host = plan.host(host)
        port = plan.host_port(source_host, plane)
        uplink_port = plan.link_of_interface(port.interface).upper
        macs = "".join(_MAC_BYTE.findall(plan.mac(uplink_port) + plan.mac(port)))
        usid = plan.nic_address(source_host, plane).to_bytes(16, "big") if srv6 else None
        return cls(bytes.fromhex(macs) + b"\x86\xdd", plan.address(source_host, plane).packed, usid)


class ProbeTemplate:
    """The frame of one target and class, patched for each probe."""

    __slots__ = ("_frame", "_key", "_payload_offset")

    def __init__(
        self, target: ProbeTarget, service_class: ServiceClass, stream: int, port: PortIdentity, key: bytes
    ) -> None:
        padding = bytes(range(DATA_PADDING)) if service_class is ServiceClass.DATA else b""
        inner_length = UDP.size + PAYLOAD.size + len(padding)
        word = 6 << 28 | TRAFFIC_CLASS[service_class] << 20
        headers = port.ethernet
        if target.outer is not None:
            outer = target.outer.to_bytes(16, "big")
            headers += IPV6.pack(word, IPV6.size + inner_length, 41, HOP_LIMIT, port.address, outer)
        headers += IPV6.pack(word, inner_length, 17, HOP_LIMIT, port.address, port.address)
        headers += UDP.pack(target.ev & 0xFFFF, UDP_PORT, inner_length, 0)
        payload = PAYLOAD.pack(MAGIC, NO_QP, target.number, service_class, stream, 0, 0, b"", zlib.crc32(padding))
        self._frame = bytearray(headers + payload + padding)
        self._payload_offset = len(headers)
        self._key = key

    def frame(self, sequence: int, sent_ns: int) -> bytearray:
        """Return the frame of one probe, valid until the next call."""
        frame, payload_offset = self._frame, self._payload_offset
        struct.pack_into(">IQ", frame, payload_offset + 12, sequence & 0xFFFFFFFF, sent_ns)
        frame[payload_offset + DIGEST_AT : payload_offset + DIGEST_AT + 8] = _digest(
            bytes(frame[payload_offset : payload_offset + SIGNED_BYTES]), self._key
        )
        return frame


def _digest(signed: bytes, key: bytes) -> bytes:
    return hashlib.blake2s(signed, digest_size=8, key=key).digest()


def read(frame: bytes, port: PortIdentity, key: bytes) -> ReturnedProbe:
    """Return the probe in a frame that came in by `port`; raises NotOursError for every other frame."""
    offset = ETHERNET
    if len(frame) < offset + IPV6.size or frame[12:14] != b"\x86\xdd":
        raise NotOursError("no IPv6")
    word, length, next_header, _, _, destination = IPV6.unpack_from(frame, offset)
    traffic_class = word >> 20 & 0xFF
    marked = traffic_class & 3 == CE
    # SRv6: the probe is inside; a mark in either header counts (§1.2).
    if port.own_usid is not None:
        offset += IPV6.size
        if next_header != 41 or destination != port.own_usid:
            raise NotOursError("outer address")
        if len(frame) < offset + IPV6.size:
            raise NotOursError("short")
        word, length, next_header, _, _, destination = IPV6.unpack_from(frame, offset)
        marked |= word >> 20 & 3 == CE
    source = frame[offset + 8 : offset + 24]
    offset += IPV6.size
    if next_header != 17 or source != port.address or destination != port.address:
        raise NotOursError("inner address")
    payload_at = offset + UDP.size
    if len(frame) < payload_at + PAYLOAD.size:
        raise NotOursError("short")
    if UDP.unpack_from(frame, offset)[1] != UDP_PORT:
        raise NotOursError("UDP port")
    magic, no_qp, target, service_class, stream, sequence, sent_ns, digest, crc = PAYLOAD.unpack_from(frame, payload_at)
    if magic != MAGIC or no_qp != NO_QP:
        raise NotOursError("payload")
    # Only this process knows the key: other packets of that shape are not its probes.
    if digest != _digest(frame[payload_at : payload_at + SIGNED_BYTES], key):
        raise NotOursError("digest")
    trimmed = traffic_class >> 2 in TRIMMED
    # A trimmed probe has lost its padding, which cannot be checked then.
    if not trimmed and zlib.crc32(frame[payload_at + PAYLOAD.size : offset + length]) != crc:
        raise NotOursError("padding")
    return ReturnedProbe(target, service_class, stream, sequence, sent_ns, trimmed, marked)


# ---- the kernel's filter ------------------------------------------------------------------------------------

_LOAD_HALF, _LOAD_BYTE, _EQUAL, _RETURN = 0x28, 0x30, 0x15, 0x06
_INSTRUCTION = struct.Struct("=HBBI")  # code, jump if true, jump if false, constant
SO_ATTACH_FILTER = 26


def kernel_filter(srv6: bool) -> bytes:
    """Return the classic BPF that passes UDP to the probes' port alone.

    So other traffic costs nothing.
    """
    inner = ETHERNET + (IPV6.size if srv6 else 0)
    checks = [(_LOAD_BYTE, ETHERNET + 6, 41)] if srv6 else []
    checks += [(_LOAD_BYTE, inner + 6, 17), (_LOAD_HALF, inner + IPV6.size + 2, UDP_PORT)]
    steps: list[tuple[int, int, int, int]] = []
    for checks_left, (load, field_offset, field_value) in zip(range(len(checks) - 1, -1, -1), checks, strict=True):
        steps += [(load, 0, 0, field_offset), (_EQUAL, 0, 2 * checks_left + 1, field_value)]
    steps += [(_RETURN, 0, 0, 0xFFFF), (_RETURN, 0, 0, 0)]
    return b"".join(_INSTRUCTION.pack(*step) for step in steps)


def filter_option(code: bytes) -> tuple[bytes, object]:
    """Return (value of SO_ATTACH_FILTER, object that has to stay alive until it is set)."""
    buffer = ctypes.create_string_buffer(code, len(code))
    return struct.pack("@HP", len(code) // _INSTRUCTION.size, ctypes.addressof(buffer)), buffer
