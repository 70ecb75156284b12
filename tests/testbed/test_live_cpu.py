"""Processes of a live fabric that have no time to spare."""

import os
import subprocess
import sys
import time

from testbed.scenario.live_cpu import CpuWatch, thread_seconds


def test_a_process_without_time_to_spare_is_named():
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    idle = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        watch = CpuWatch({"h0": busy.pid, "h1": idle.pid, "gone": 2**22 + 1})
        time.sleep(0.3)  # what was before does not count
        watch.begin()
        before = thread_seconds(busy.pid)[str(busy.pid)]
        while thread_seconds(busy.pid)[str(busy.pid)] < before + 0.3:  # however little of the machine it gets
            time.sleep(0.02)
        shares = watch.shares()
    finally:
        for process in (busy, idle):
            process.kill()
            process.wait()
    assert shares["gone"] == 0 <= shares["h1"] < shares["h0"]


def test_notes_name_only_those(monkeypatch):
    watch = CpuWatch({"h0": os.getpid()})
    monkeypatch.setattr(CpuWatch, "shares", lambda self: {"h0": 0.93, "h1": 0.4, "switches": 0.86})
    (note,) = watch.notes()
    assert note.startswith("busy nearly all of the time: h0 93 %, switches 86 %: ")
    monkeypatch.setattr(CpuWatch, "shares", lambda self: {"h0": 0.6})
    assert list(watch.notes()) == []
