"""Each allocation of the switch's runtime fails once, watched by AddressSanitizer.

Run by test_gcc_sanitized.py.

    LD_PRELOAD=$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 \
        python tests/switch/allocation_run.py EVERY PROGRAM.p4=SCRIPT.stf | wires

A round makes a device, loads the program, writes the script's entries and sessions and sends packets. Round n has its
n-th allocation fail: what is refused has to be refused in words, and the device goes on. EVERY: which n are tried.
A round of `wires` makes an event loop with two devices, wires, traffic settings and a tap instead, and forwards.
Prints the number of failures, and ends in an error when bytes stay allocated that were not there before.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
import select
import socket
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import mrc_testbed.switch.system.gcc
from tests.switch import sanitized_run
from tests.switch.sanitized_run import LEAK_BYTES, allocated_bytes, one_round

HEADER = Path(__file__).with_name("failing_allocations.h")
# The cache knows a build by its flags, so they carry what the header says.
VERSION = f"-DALLOCATIONS_FAIL={zlib.crc32(HEADER.read_bytes())}"
mrc_testbed.switch.system.gcc.CFLAGS = (*mrc_testbed.switch.system.gcc.CFLAGS, "-include", str(HEADER), VERSION)

from mrc_testbed.switch.compiler import compile_program  # noqa: E402
from mrc_testbed.switch.device import native  # noqa: E402
from mrc_testbed.switch.device.device import P4Device  # noqa: E402
from mrc_testbed.switch.device.entities import ActionCall, FieldMatch, TableEntry, TableError  # noqa: E402
from mrc_testbed.switch.device.loop import EventLoop, PacketIn, PortError, PortEvent  # noqa: E402
from mrc_testbed.switch.device.port_numbers import CPU_PORT  # noqa: E402
from mrc_testbed.switch.device.traffic import Impairment, PortSettings  # noqa: E402
from mrc_testbed.switch.tools.stf import read_script  # noqa: E402
from tests.switch.mini_program import BY_MAC, FORWARD, frame, mini  # noqa: E402

PACKETS = 40
FRAMES = 8
PATIENCE_S = 0.1
"""Time without another event after which no more is waited for: a frame without memory is lost."""
REFUSALS = (MemoryError, TableError, PortError)
"""Errors in which a request may end for want of memory."""
assert sanitized_run.LENGTHS, "its import sets the flags of the sanitizer"


def wires_round() -> int:
    """Forward frames from one device to the CPU of another over a wire with a delay; count them."""
    with contextlib.ExitStack() as stack:
        devices = [stack.enter_context(contextlib.closing(P4Device(number, f"d{number}"))) for number in (1, 2)]
        loop = stack.enter_context(contextlib.closing(EventLoop(ring_kib=256)))
        loop.start()
        loop.add_wire("a", "b")
        for device, end, port in zip(devices, ("a", "b"), (2, CPU_PORT), strict=True):
            device.load(mini())
            loop.attach(device)
            loop.add_port(device, 2, end)
            call = ActionCall(FORWARD, ((1, port.to_bytes(2, "big")),))
            device.insert(TableEntry(BY_MAC, (FieldMatch.exact(1, (1).to_bytes(6, "big")),), call))
        devices[0].traffic.set(
            2, PortSettings(rate_bps=100_000_000, output=Impairment(delay_us=200, loss_pattern="00"))
        )
        tap_end, reader_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.callback(reader_end.close)
        stack.callback(tap_end.close)
        tap = loop.tap_wire("b", tap_end, 64)
        for number in range(FRAMES):
            loop.inject(devices[0], frame(0, payload=bytes([number]) * (100 << number % 4)))
        events, last = [], time.monotonic()
        # A failed allocation may drop a frame: the wait ends after silence, not only at the full count
        while time.monotonic() < last + PATIENCE_S and count_of(events) < FRAMES:
            select.select([loop], [], [], PATIENCE_S)
            if new_events := loop.events():
                events, last = events + new_events, time.monotonic()
        assert {name for name in loop.wires()} == {"a", "b"}
        assert all(set(loop.ports(device)) == {2} for device in devices)
        loop.untap_wire(tap)
        loop.remove_port(devices[0], 2)
        return count_of(events)


def count_of(events: list[PacketIn | PortEvent]) -> int:
    return sum(isinstance(event, PacketIn) for event in events)


def read_events_without_memory(count: ctypes.c_long, failing: ctypes.c_long) -> None:
    """Check that events without memory wait, readable at the descriptor.

    Counts are refused, and not reported as none.
    """
    with contextlib.closing(P4Device(1, "d1")) as device, contextlib.closing(EventLoop(ring_kib=256)) as loop:
        loop.add_wire("a", "b")
        device.load(mini())
        loop.attach(device)
        loop.add_port(device, 2, "a")
        count.value, failing.value = 0, 1
        assert loop.events() == [] and select.select([loop], [], [], 0)[0]
        assert [event.interface for event in loop.events() if isinstance(event, PortEvent)] == ["a"]
        for read in (loop.wires, lambda: loop.ports(device)):
            count.value = 0
            with pytest.raises(PortError, match="out of memory"):
                read()
        failing.value = 0


def main() -> None:
    every = int(sys.argv[1])
    subject = sys.argv[2]
    library = native.runtime()
    count = ctypes.c_long.in_dll(library, "p4rt_allocations")
    failing = ctypes.c_long.in_dll(library, "p4rt_failing_allocation")

    if subject == "wires":
        read_events_without_memory(count, failing)
        assert wires_round() == FRAMES
        play: Callable[[], object] = wires_round
    else:
        source, script_path = subject.split("=")
        program, script = compile_program(Path(source)), read_script(Path(script_path))

        def play() -> None:
            one_round(program, script, PACKETS, random.Random(source))

    def round_of(number: int) -> bool:
        """Run a round whose allocation of that number fails; tell whether it came so far."""
        count.value, failing.value = 0, number
        try:
            play()
        except REFUSALS as refusal:
            reasonless = str(refusal).endswith(": ")
        else:
            return count.value >= number
        finally:
            failing.value = 0
        assert not reasonless, f"a refusal without its reason at allocation {number}"
        return True

    # The first rounds fill caches (Python's, the allocator's): the count below is that of a settled round
    for _ in range(2):
        round_of(0)
    bytes_before, total = allocated_bytes(), count.value
    failures = sum(round_of(number) for number in range(1, total + 1, every))
    assert subject != "wires" or wires_round() == FRAMES, "the runtime does not go on"
    grown = allocated_bytes() - bytes_before
    assert grown < LEAK_BYTES, f"{grown} bytes stay allocated after {failures} failures"
    print(f"{failures} of {total} allocations failed")


if __name__ == "__main__":
    main()
