"""A device under a virtual clock with tests/switch/p4/traffic.p4, and its frames."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

from mrc_testbed.switch.compiler import CompiledProgram, compile_program
from mrc_testbed.switch.device.device import P4Device
from tests.switch.compiled_programs import P4_FOLDER

INPUT_PORT, OUTPUT_PORT = 1, 2
US, MS, S = 1_000, 1_000_000, 1_000_000_000
_ORDER = struct.Struct(">HBBHH")
_EGRESS_FIELDS = struct.Struct(">QIIIIQ")
HEAD = _ORDER.size + _EGRESS_FIELDS.size


@dataclass(frozen=True)
class Sighting:
    """A frame that came out: when, and what egress wrote into it."""

    at_ns: int
    port: int
    number: int
    priority: int
    size: int
    ingress_us: int
    enq_us: int
    enq_depth: int
    waited_us: int
    deq_depth: int
    egress_us: int


@lru_cache(maxsize=1)
def program() -> CompiledProgram:
    return compile_program(P4_FOLDER / "traffic.p4")


def device(number: int = 1) -> P4Device:
    switch = P4Device(number, "tm")
    switch.load(program())
    return switch


def frame(
    number: int = 0, *, size: int = 1250, port: int = OUTPUT_PORT, priority: int = 0, drops: int = 0, cut: int = 0
) -> bytes:
    """Return a frame of `size` bytes; 1250 bytes are 10,000 bits."""
    return _ORDER.pack(port, priority, drops, cut, number).ljust(size, b"\0")


def parse_frame(at_ns: int, port: int, data: bytes) -> Sighting:
    _, priority, _, _, number = _ORDER.unpack_from(data)
    return Sighting(at_ns, port, number, priority, len(data), *_EGRESS_FIELDS.unpack_from(data, _ORDER.size))


def advance(switch: P4Device, now_ns: int) -> list[Sighting]:
    return [parse_frame(*departure) for departure in switch.advance(now_ns)]


def send(switch: P4Device, *numbers: int, now_ns: int = 0, **fields: int) -> None:
    """Inject frames that arrive together."""
    for number in numbers:
        switch.inject(INPUT_PORT, frame(number, **fields), now_ns)
