"""Processes of a live fabric that have no time to spare."""

import os
import subprocess
import sys
import time

from mrc_testbed.experiments.live.cpu import WAIT_SHARE, CpuWatch
from mrc_testbed.ipc.procfs import thread_seconds


def watch_of(pids):
    return CpuWatch(lambda: {name: thread_seconds(pid) for name, pid in pids.items()}, cpus=2)


def test_a_process_without_time_to_spare_is_named():
    busy_process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    idle_process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        watch = watch_of({"h0": busy_process.pid, "h1": idle_process.pid, "gone": 2**22 + 1})
        time.sleep(0.3)  # what was before does not count
        watch.start()
        start_s, _ = thread_seconds(busy_process.pid)[str(busy_process.pid)]
        while (
            thread_seconds(busy_process.pid)[str(busy_process.pid)][0] < start_s + 0.3
        ):  # however little of the machine it gets
            time.sleep(0.02)
        shares = watch.shares()
    finally:
        for process in (busy_process, idle_process):
            process.kill()
            process.wait()
    assert shares["gone"] == 0 <= shares["h1"] < shares["h0"]


def test_notes_name_only_those(monkeypatch):
    watch = watch_of({"h0": os.getpid()})
    monkeypatch.setattr(CpuWatch, "waits", lambda self: {"h0": 0.0})
    monkeypatch.setattr(CpuWatch, "shares", lambda self: {"h0": 0.93, "h1": 0.4, "switches": 0.86})
    (note,) = watch.notes()
    assert note.startswith("busy nearly all of the time: h0 93 %, switches 86 %: ")
    monkeypatch.setattr(CpuWatch, "shares", lambda self: {"h0": 0.6})
    assert watch.notes() == []


def test_a_process_that_waits_for_a_cpu_is_named():
    """Two that want the same CPU all the time: each waits about half of it, however busy the machine is."""
    one_cpu = {min(os.sched_getaffinity(0))}
    loop = [sys.executable, "-c", "while True: pass"]
    rivals = [subprocess.Popen(loop, preexec_fn=lambda: os.sched_setaffinity(0, one_cpu)) for _ in range(2)]
    try:
        watch = watch_of({"h0": rivals[0].pid})
        watch.start()
        start_s = thread_seconds(rivals[0].pid)[str(rivals[0].pid)][1]
        while thread_seconds(rivals[0].pid)[str(rivals[0].pid)][1] < start_s + 0.5:
            time.sleep(0.02)
        report = watch.report()
    finally:
        for process in rivals:
            process.kill()
            process.wait()
    assert report["waited"]["h0"] > WAIT_SHARE and any("without a CPU: h0" in note for note in report["notes"])
    assert "of 2 CPUs; h0 waited for one" in report["needed"] and 0 < report["used"] < 1
