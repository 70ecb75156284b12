"""Random and mutated packets through programs built with AddressSanitizer and UBSan.

Run by test_gcc_sanitized.py.

    LD_PRELOAD=$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 \
        python tests/switch/sanitized_run.py PACKETS SEED PROGRAM.p4[=SCRIPT.stf]...

PACKETS go through each program: random bytes, and the packets of its script bent, cut, joined and grown. Entries,
groups and sessions are the script's. Prints the packets, and fails when bytes stay allocated that were not there a
round before.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import random
import sys
from pathlib import Path

import mrc_testbed.switch.system.gcc

mrc_testbed.switch.system.gcc.CFLAGS = (
    *(flag for flag in mrc_testbed.switch.system.gcc.CFLAGS if flag != "-O2"),
    "-O1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
)

from mrc_testbed.switch.compiler import CompiledProgram, compile_program  # noqa: E402
from mrc_testbed.switch.device.device import P4Device  # noqa: E402
from mrc_testbed.switch.device.entities import CloneSession, MulticastGroup, Replica, TableError  # noqa: E402
from mrc_testbed.switch.tools.stf import Command, StfError, read_script  # noqa: E402
from mrc_testbed.switch.tools.stf_run import StfRun  # noqa: E402

LEAK_BYTES = 64 << 10
"""Bytes that may be allocated more after a round than after the one before: Python's own caches."""
_NOT_STATE = ("packet", "expect", "no_packet", "wait", "advance", "rate", "delay", "remove")
LENGTHS = (0, 1, 2, 3, 5, 8, 13, 21, 40, 90, 300, 1600)


def allocated_bytes() -> int:
    """Return the bytes that malloc has given out, by the sanitizer's count."""
    gc.collect()
    count = ctypes.CDLL(None).__sanitizer_get_current_allocated_bytes
    count.restype = ctypes.c_size_t
    return count()


def bent(choose: random.Random, seeds: list[bytes]) -> bytes:
    """Return a packet: random, or one of the seeds with a few faults."""
    if not seeds or choose.random() < 0.3:
        frame = bytearray(choose.randbytes(choose.choice(LENGTHS)))
        for index in range(min(len(frame), 12)):
            frame[index] = choose.choice((choose.randrange(24), choose.randrange(24), frame[index]))
        return bytes(frame)
    frame = bytearray(choose.choice(seeds))
    for _ in range(choose.randrange(1, 5)):
        kind, index = choose.randrange(6), choose.randrange(len(frame) + 1)
        if kind == 0 and index < len(frame):
            frame[index] ^= 1 << choose.randrange(8)
        elif kind == 1 and index < len(frame):
            frame[index] = choose.choice((0, 1, 0x7F, 0x80, 0xFF, choose.randrange(256)))
        elif kind == 2:
            del frame[index:]
        elif kind == 3:
            frame += choose.randbytes(choose.choice(LENGTHS[:10]))
        elif kind == 4:
            frame[index:index] = choose.choice(seeds)
        else:
            del frame[index : index + choose.randrange(1, 8)]
    return bytes(frame[:16384])


def prepare(device: P4Device, program: CompiledProgram, script: list[Command]) -> None:
    """Insert the script's entries and sessions; one of each kind that it has not."""
    run = StfRun(device, program)
    for command in script:
        if command.word not in (
            "packet",
            "expect",
            "no_packet",
            "wait",
            "advance",
            "rate",
            "delay",
            "remove",
            "repeat",
        ):
            with contextlib.suppress(StfError):
                run.command(command)
    for replication in (MulticastGroup(1, (Replica(2), Replica(3))), CloneSession(7, (Replica(7),))):
        with contextlib.suppress(TableError):
            device.insert_replication(replication)


def one_round(program: CompiledProgram, script: list[Command], packets: int, choose: random.Random) -> None:
    device = P4Device(1, "s1", seed=1)
    device.load(program)
    prepare(device, program, script)
    seeds = [command.fields["data"] for command in script if command.word == "packet"]
    for number in range(packets):
        frame = bent(choose, seeds)
        with contextlib.suppress(ValueError):  # copies that fill the room of `process`
            device.process(choose.choice((choose.randrange(8), choose.randrange(511))), frame)
        if number % 500 == 0:
            with contextlib.suppress(ValueError):
                device.trace(1, frame)
        if number % 64 == 0:
            device.digests()
    device.close()


def main() -> None:
    packets, seed = int(sys.argv[1]), int(sys.argv[2])
    packet_count = 0
    for argument in sys.argv[3:]:
        source, _, script_path = argument.partition("=")
        program = compile_program(Path(source))
        script = read_script(Path(script_path)) if script_path else []
        choose = random.Random(f"{seed} {source}")
        one_round(program, script, packets // 10, choose)
        one_round(program, script, packets // 10, choose)
        growth = LEAK_BYTES
        for _ in range(2):  # Python may grow a table of its own once; a leak grows each time
            if growth >= LEAK_BYTES:
                bytes_before = allocated_bytes()
                one_round(program, script, packets - 2 * (packets // 10), choose)
                growth = allocated_bytes() - bytes_before
        packet_count += packets
        assert growth < LEAK_BYTES, f"{source}: {growth} bytes stay allocated after {packets} packets"
    print(f"{packet_count} packets through {len(sys.argv) - 3} programs")


if __name__ == "__main__":
    main()
