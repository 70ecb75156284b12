"""Hostile frames through both programs under AddressSanitizer and UBSan, in a process of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("hostile_frames.py")
FRAMES = int(os.environ.get("MRC_HOSTILE_FRAMES", "3000"))
"""A million takes ten minutes."""


def sanitizer() -> str | None:
    """Return the path of gcc's libasan.so; None where it is not installed."""
    if shutil.which("gcc") is None:
        return None
    answer = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    path = answer.stdout.strip()
    return path if os.path.isabs(path) and os.path.exists(path) else None


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["srv6", "stev", "ecmp", "switch-spray"])
def test_sanitizers__find_nothing(mode, tmp_path):
    library = sanitizer()
    if library is None:
        pytest.skip("needs gcc's libasan")
    process = subprocess.run(
        [sys.executable, str(SCRIPT), mode, str(FRAMES), "1"],
        env={**os.environ, "LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0"},
        capture_output=True,
        text=True,
        timeout=280 + FRAMES / 200,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    assert process.stdout.startswith(f"{FRAMES} in, ")
