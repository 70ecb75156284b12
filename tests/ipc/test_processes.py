"""Children: started, awaited with errors that help, ended, and dead with their parent.

Stand-ins play the children.
"""

import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from mrc_testbed.ipc import procfs
from mrc_testbed.ipc.processes import ProcessError, Processes, pause_s
from mrc_testbed.ipc.rundir import RunDir

FOREVER = (sys.executable, "-c", "import sys, time; print('up', flush=True); time.sleep(1000)")


@pytest.fixture
def run_dir(tmp_path):
    with RunDir(tmp_path / "run") as folder:
        folder.begin()
        yield folder


@pytest.fixture
def processes(run_dir):
    children = Processes(run_dir)
    yield children
    children.stop(grace_s=0.1)


def has_printed(child, text):
    return lambda: text in child.log.read_text()


def test_spawn__recorded_with_start_time_and_logged(processes, run_dir):
    child = processes.spawn("switchd", FOREVER)
    processes.wait_ready({"switchd": has_printed(child, "up")})
    assert child.ready and child.alive
    record = run_dir.state.processes["switchd"]
    assert record["pid"] == child.pid and record["start"] == procfs.start_time(child.pid)
    assert procfs.has_environment(child.pid, run_dir.state.variable)
    processes.stop("switchd")
    assert not child.alive and "switchd" not in processes and run_dir.state.processes == {}


def test_wait_ready__dead_child_tells_its_last_words(processes):
    script = "print('loading'); raise SystemExit('mrc_testbed.switch.server: no device p0-t0-0')"
    processes.spawn("switchd", (sys.executable, "-c", script))
    with pytest.raises(ProcessError) as caught:
        processes.wait_ready({"switchd": lambda: False})
    assert re.search(r"switchd \(pid \d+\) exited with code 1; end of its log", str(caught.value))
    assert "mrc_testbed.switch.server: no device p0-t0-0" in str(caught.value)


def test_wait_ready__another_childs_death_ends_the_waiting(processes):
    processes.spawn("h0", FOREVER)
    child = processes.spawn("h1", FOREVER)
    processes.wait_ready({"h1": has_printed(child, "up")})
    os.kill(child.pid, signal.SIGSEGV)
    with pytest.raises(ProcessError, match=r"h1 \(pid \d+\) was killed by SIGSEGV"):
        processes.wait_ready({"h0": lambda: False})


def test_wait_ready__what_it_needs_may_have_gone_elsewhere(processes):
    def raise_lost():
        raise ProcessError("machine b is lost")

    processes.spawn("h0", FOREVER)
    with pytest.raises(ProcessError, match="machine b is lost"):
        processes.wait_ready({"h0": lambda: False}, check=raise_lost)


def test_wait_ready__too_slow_is_named_with_its_log(processes):
    processes.spawn("h0", FOREVER)
    with pytest.raises(ProcessError, match=r"h0 \(pid \d+\) is not ready, and has done nothing for 0.5 s"):
        processes.wait_ready({"h0": lambda: False}, quiet_s=0.5)


def test_spawn__program_that_does_not_exist(processes):
    processes.spawn("h0", ("/no/such/program",))
    with pytest.raises(ProcessError, match=r"h0 \(pid \d+\) exited with code 127(.|\n)*/no/such/program"):
        processes.wait_ready({"h0": lambda: False})


def test_stop__one_that_ignores_sigterm_is_killed(processes):
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(1000)"
    child = processes.spawn("h0", (sys.executable, "-c", stubborn))
    processes.wait_ready({"h0": has_printed(child, "up")})
    processes.stop(grace_s=0.05)
    assert child.popen.returncode == -signal.SIGKILL


def test_child__outlives_the_thread_that_asked_for_it(processes):
    """PR_SET_PDEATHSIG is tied to the forking thread; ours lives as long as the process."""
    children = []
    thread = threading.Thread(target=lambda: children.append(processes.spawn("h0", FOREVER)))
    thread.start()
    thread.join()
    processes.wait_ready({"h0": has_printed(children[0], "up")})
    assert children[0].alive


def test_child__dies_with_its_parent_at_kill_9(tmp_path):
    parent = subprocess.Popen(
        (
            sys.executable,
            "-c",
            "import sys\nfrom mrc_testbed.ipc.rundir import RunDir\nfrom mrc_testbed.ipc.processes import Processes\n"
            "r = RunDir(sys.argv[1]); r.acquire(); r.begin(); p = Processes(r)\n"
            "c = p.spawn('h0', (sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(1000)'))\n"
            "p.wait_ready({'h0': lambda: c.log.read_text() == '1\\n'})\n"
            "print(c.pid, flush=True); sys.stdin.read()",
            str(tmp_path / "run"),
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    child = int(parent.stdout.readline())
    pidfd = os.pidfd_open(child)
    parent.kill()
    parent.communicate()
    procfs._wait_gone({pidfd: child}, 10.0)  # raises when it stays
    os.close(pidfd)


def test_pause__grows_with_the_time_that_asking_took():
    assert [pause_s(took) for took in (0.0, 0.001, 0.01, 5.0)] == [0.02, 0.02, 0.1, 0.2]
