"""Each allocation of the switch's runtime fails once, watched by AddressSanitizer; run by test_sanitized.py.

    LD_PRELOAD=$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 \
        python tests/switch/allocation_run.py EVERY PROGRAM.p4=SCRIPT.stf

A round makes a device, loads the program, writes the script's entries and sessions and sends packets. Round n has its
n-th allocation fail: what is refused has to be refused in words, and the device goes on. EVERY: which n are tried.
Prints the number of failures, and ends in an error when bytes stay allocated that were not there before.
"""

from __future__ import annotations

import ctypes
import random
import sys
import zlib
from pathlib import Path

import switch.build
from tests.switch import sanitized_run
from tests.switch.sanitized_run import LEAK_BYTES, allocated, one_round

HEADER = Path(__file__).with_name("failing_allocations.h")
# The cache knows a build by its flags, so they carry what the header says.
VERSION = f"-DALLOCATIONS_FAIL={zlib.crc32(HEADER.read_bytes())}"
switch.build.CFLAGS = (*switch.build.CFLAGS, "-include", str(HEADER), VERSION)

from switch.compiler import compile_program  # noqa: E402
from switch.device import native  # noqa: E402
from switch.device.entities import TableError  # noqa: E402
from switch.tools.stf import read_script  # noqa: E402

PACKETS = 40
REFUSALS = (MemoryError, TableError)
"""Errors in which a request may end for want of memory."""
assert sanitized_run.LENGTHS, "its import sets the flags of the sanitizer"


def main() -> None:
    every = int(sys.argv[1])
    source, script_path = sys.argv[2].split("=")
    program, script = compile_program(Path(source)), read_script(Path(script_path))
    library = native.runtime()
    count = ctypes.c_long.in_dll(library, "p4rt_allocations")
    failing = ctypes.c_long.in_dll(library, "p4rt_failing_allocation")

    def round_of(number: int) -> bool:
        """Run a round whose allocation of that number fails; tell whether it came so far."""
        count.value, failing.value = 0, number
        try:
            one_round(program, script, PACKETS, random.Random(source))
        except REFUSALS:
            return True
        finally:
            failing.value = 0
        return count.value >= number

    for _ in range(2):
        round_of(0)
    before, total = allocated(), count.value
    failures = sum(round_of(number) for number in range(1, total + 1, every))
    grown = allocated() - before
    assert grown < LEAK_BYTES, f"{grown} bytes stay allocated after {failures} failures"
    print(f"{failures} of {total} allocations failed")


if __name__ == "__main__":
    main()
