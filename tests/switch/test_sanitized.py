"""Generated C and runtime under AddressSanitizer and UBSan, fed random packets: no access out of bounds or overflow."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = ("stacks", "varbits", "copies")
PACKETS = 4000
FUZZ = """
import random, sys
from pathlib import Path
import switch.build
switch.build.CFLAGS = (*switch.build.CFLAGS, "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
from switch.device import Device
from switch.entities import CloneSession, MulticastGroup, Replica
from switch.p4 import compile_program

for name in sys.argv[2:]:
    program = compile_program(Path(name))
    device = Device(1, "s1", seed=1)
    device.load(program)
    device.insert_replication(MulticastGroup(1, (Replica(2), Replica(3))))
    device.insert_replication(CloneSession(7, (Replica(7),)))
    choose = random.Random(1)
    for number in range(int(sys.argv[1])):
        frame = bytearray(choose.randbytes(choose.choice((0, 1, 2, 3, 5, 8, 13, 21, 40, 90, 300))))
        for at in range(min(len(frame), 12)):
            frame[at] = choose.choice((choose.randrange(24), choose.randrange(24), frame[at]))
        device.process(choose.randrange(500), bytes(frame))
        if number % 200 == 0:
            device.trace(1, bytes(frame))
    device.close()
"""


def sanitizer() -> str | None:
    """libasan of gcc, which must be there before Python is."""
    if shutil.which("gcc") is None:
        return None
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=False)
    path = found.stdout.strip()
    return path if os.path.isabs(path) else None


@pytest.mark.skipif(sanitizer() is None, reason="gcc has no libasan here")
def test_random_packets(tmp_path):
    small = Path(__file__).with_name("p4")
    done = subprocess.run(
        [sys.executable, "-c", FUZZ, str(PACKETS), *(str(small / f"{name}.p4") for name in PROGRAMS)],
        env={**os.environ, "LD_PRELOAD": str(sanitizer()), "ASAN_OPTIONS": "detect_leaks=0"},
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
