"""A part is waited for while it gets on.

Slowed down by SIGSTOP, by a limit of its CPU, silent or not; else given up.

Nothing here looks at a clock: a part that gets on in bursts is ready in the end, one that does not is given up.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from mrc_testbed.ipc import patience as module
from mrc_testbed.ipc import processes as processes_module
from mrc_testbed.ipc import procfs
from mrc_testbed.ipc.controller_client import Northbound
from mrc_testbed.ipc.patience import LOOK_S, AnswerLimit, LocalWork, Patience, Standstill, gets_on, peer_gets_on, serves
from mrc_testbed.ipc.processes import ProcessError, Processes
from mrc_testbed.ipc.rpc import JsonlClient, JsonlTimeoutError, RpcClient
from mrc_testbed.ipc.rundir import RunDir

LOADS = "import time\nwhile time.process_time() < 0.5: pass\nprint('up', flush=True)\ntime.sleep(1000)"
"""A part that needs 0.5 s of CPU to be ready."""
WAITS = "import time; time.sleep(1000)"
QUIET_S = 1.0
"""Far less than a slowed part takes, far more than one of its pauses."""


@pytest.fixture
def processes(tmp_path):
    with RunDir(tmp_path / "run") as run_dir:
        run_dir.begin()
        children = Processes(run_dir)
        yield children
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGCONT)
        children.stop(grace_s=0.05)


def spawn(processes, script, name="switchd"):
    return processes.spawn(name, (sys.executable, "-c", script))


def says_up(child):
    return {child.name: lambda: "up" in child.tail()}


@contextlib.contextmanager
def throttle(pid, run_s=0.02, stop_s=0.1):
    """Give a process a CPU for a part of the time, as on a machine that is several times slower."""
    stop_event = threading.Event()

    def slow_down():
        while not stop_event.is_set():
            os.kill(pid, signal.SIGSTOP)
            stop_event.wait(stop_s)
            os.kill(pid, signal.SIGCONT)
            stop_event.wait(run_s)

    thread = threading.Thread(target=slow_down, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop_event.set()
        thread.join()


def test_part_that_is_slowed_down__is_waited_for_beyond_any_limit(processes):
    child = spawn(processes, LOADS)
    with throttle(child.pid):
        processes.wait_ready(says_up(child), quiet_s=QUIET_S)  # takes several times QUIET_S
    assert child.ready


V2, V1 = Path("/sys/fs/cgroup/mrc-test-patience"), Path("/sys/fs/cgroup/cpu/mrc-test-patience")
LIMITS = {V2: {"cpu.max": "8000 100000"}, V1: {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "8000"}}
"""A group with 8 % of a CPU, by version of cgroups."""


@pytest.fixture
def slow_group():
    """A group of processes with 8 % of a CPU."""
    group = V1 if V1.parent.is_dir() else V2
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"needs a cgroup: {error}")
    try:
        for name, value in LIMITS[group].items():
            (group / name).write_text(value)
        yield group
    except OSError as error:
        pytest.skip(f"needs the cpu controller of cgroups: {error}")
    finally:
        group.rmdir()


def test_part_with_a_limit_of_its_cpu__is_waited_for(processes, slow_group):
    """Held back by the kernel it is ready to run, and uses hardly any CPU."""
    child = spawn(processes, LOADS)
    (slow_group / "cgroup.procs").write_text(str(child.pid))
    processes.wait_ready(says_up(child), quiet_s=QUIET_S)
    processes.stop("switchd", grace_s=0.05)


def test_work_of_what_it_started__is_its_own(processes):
    """The case is a compiler under the daemon: the part itself only waits."""
    child = spawn(processes, f"import subprocess, sys; subprocess.run((sys.executable, '-c', {LOADS!r}))")
    processes.wait_ready(says_up(child), quiet_s=QUIET_S)


def test_log_that_grows__is_progress(processes):
    child = spawn(
        processes,
        "import time\nfor step in range(8):\n    print('step', step, flush=True)\n    time.sleep(0.4)\n"
        "print('up', flush=True)\ntime.sleep(1000)",
    )
    processes.wait_ready(says_up(child), quiet_s=QUIET_S)


def test_part_that_waits_for_ever__is_given_up_with_cause_and_cure(processes):
    child = spawn(processes, f"print('opening the device', flush=True)\n{WAITS}")
    with pytest.raises(ProcessError) as caught:
        processes.wait_ready(says_up(child), quiet_s=QUIET_S)
    text = str(caught.value)
    assert f"switchd (pid {child.pid}) is not ready, and has done nothing for 1 s (" in text
    assert "s of CPU in" in text and "last in its log: opening the device" in text and "send its log" in text


def test_part_that_wakes_up_for_nothing__is_given_up(processes):
    child = spawn(processes, "import time\nwhile True: time.sleep(0.02)")
    with pytest.raises(ProcessError, match="has done nothing"):
        processes.wait_ready(says_up(child), quiet_s=QUIET_S)


def test_part_that_was_stopped__is_given_up_with_the_way_to_go_on(processes):
    child = spawn(processes, LOADS)
    os.kill(child.pid, signal.SIGSTOP)
    with pytest.raises(ProcessError, match=f"kill -CONT {child.pid}"):
        processes.wait_ready(says_up(child), quiet_s=QUIET_S)


def test_one_that_works__has_the_others_waited_for(processes):
    """A part may wait for another: the agents' answers may need what the daemon does first."""
    loads, waits = spawn(processes, LOADS), spawn(processes, WAITS, "h0")
    probe = says_up(loads)["switchd"]
    with throttle(loads.pid):
        processes.wait_ready({"switchd": probe, "h0": probe}, quiet_s=QUIET_S)
    assert waits.ready


def test_one_that_waits_for_another_part__is_not_given_up_while_that_works(processes):
    """The case is a controller behind the switches' daemon, which compiles."""
    loads, waits = spawn(processes, LOADS), spawn(processes, WAITS, "controller")
    probe = says_up(loads)["switchd"]
    with throttle(loads.pid):
        processes.wait_ready({"controller": probe}, prerequisites=["switchd"], quiet_s=QUIET_S)
    assert waits.ready and not loads.ready


def test_long_wait__is_told_with_what_the_part_does(processes, monkeypatch):
    monkeypatch.setattr(processes_module, "TELL_S", 0.2)
    reports = []
    processes.report = reports.append
    child = spawn(processes, f"print('loading the libraries', flush=True)\n{LOADS}")
    processes.wait_ready(says_up(child), quiet_s=QUIET_S)
    assert reports and all(text.startswith("waiting for switchd: ") for text in reports)
    assert "last in its log: loading the libraries" in reports[-1]


def test_step_that_is_reported__is_progress(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    patience = Patience(2.0)
    patience.follow("controller", LocalWork(0))
    for _ in range(20):
        now[0] += 0.25
        patience.update()
        patience.step("controller")
        assert not patience.is_over("controller")
    for _ in range(8):
        now[0] += 0.25
        patience.update()
    assert patience.is_over("controller")


def test_time_in_which_we_had_no_cpu_ourselves__is_nobodys_rest(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    patience = Patience(2.0)
    patience.follow("switchd", LocalWork(0))
    now[0] += 3600.0  # the machine was asleep
    patience.update()
    assert not patience.is_over("switchd")


def test_stop__one_that_works_on_its_end_may_end_it(processes, tmp_path):
    """A part with a second for each 0.1 s of grace would be killed in the middle."""
    done_file = tmp_path / "done"
    child = spawn(
        processes,
        "import pathlib, signal, sys, time\n"
        "def end(*_):\n"
        "    until = time.process_time() + 0.5\n"
        "    while time.process_time() < until: pass\n"
        f"    pathlib.Path({str(done_file)!r}).touch()\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\nprint('up', flush=True)\nsignal.pause()",
    )
    processes.wait_ready(says_up(child))
    processes.stop("switchd", grace_s=0.4)
    assert done_file.exists() and child.popen.returncode == 0


def test_gets_on():
    with subprocess.Popen((sys.executable, "-c", "while True: pass")) as spinning:
        assert gets_on(LocalWork(spinning.pid))
        spinning.kill()
    with subprocess.Popen((sys.executable, "-c", WAITS)) as waiting:
        while procfs.is_ready_to_run(waiting.pid):  # until the interpreter has loaded
            pass
        assert not gets_on(LocalWork(waiting.pid), quiet_s=0.5)
        waiting.kill()
    assert not gets_on(LocalWork(waiting.pid), quiet_s=0.1)


SERVER = """
import os, socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1] + ".new")
listener.listen()
os.rename(sys.argv[1] + ".new", sys.argv[1])  # who sees it may connect
peer, _ = listener.accept()
while True:
    peer.recv(4096)
    until = time.process_time() + float(sys.argv[2])
    while time.process_time() < until: pass
    if not float(sys.argv[2]): time.sleep(1000)
    peer.sendall(b'{"id": 1, "ok": true, "answer": 42}\\n')
"""


HTTP_SERVER = """
import socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("up", flush=True)
peer, _ = listener.accept()
peer.recv(4096)
until = time.process_time() + float(sys.argv[2])
while time.process_time() < until: pass
if not float(sys.argv[2]): time.sleep(1000)
peer.sendall(b"HTTP/1.0 200 OK\\r\\nContent-Length: 14\\r\\n\\r\\n{\\"answer\\": 42}")
peer.close()
"""


@pytest.mark.parametrize("works", [True, False])
def test_patient_request_to_a_controller__waits_for_one_that_works_alone(tmp_path, works):
    controller = Northbound(tmp_path)
    command = (sys.executable, "-c", HTTP_SERVER, str(controller.socket), "0.5" if works else "0")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server, contextlib.ExitStack() as stack:
        stack.callback(server.kill)
        server.stdout.readline()
        if works:
            assert controller.request("verify", timeout_s=0.05, patient=True) == {"answer": 42}
        else:
            with pytest.raises(JsonlTimeoutError):
                controller.request("verify", timeout_s=0.05, patient=True)


def test_patient_request_to_a_controller__takes_an_answer_that_came_while_it_was_looked_at(tmp_path):
    """The controller answers and rests: it does not work any more, and nothing is wrong with it."""
    look_event, answer_event = threading.Event(), threading.Event()

    def works():
        look_event.set()
        answer_event.wait(timeout=60.0)
        return False

    def answer():
        peer, _ = listener.accept()
        peer.recv(4096)
        look_event.wait(timeout=60.0)
        peer.sendall(b'HTTP/1.0 200 OK\r\nContent-Length: 14\r\n\r\n{"answer": 42}')
        peer.close()
        answer_event.set()

    controller = Northbound(tmp_path, works=works)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(controller.socket))
        listener.listen()
        thread = threading.Thread(target=answer)
        thread.start()
        assert controller.request("verify", timeout_s=0.02, patient=True) == {"answer": 42}
        thread.join()


def test_client_told_who_works__is_patient_unless_it_has_a_limit(tmp_path):
    """Behind ssh the process at the other end says nothing of the agent."""
    path, answers = tmp_path / "s.sock", iter([True, True, False])
    with subprocess.Popen((sys.executable, "-c", SERVER, str(path), "0")) as server:
        while not path.exists():
            assert server.poll() is None
        client = JsonlClient(path, timeout_s=0.02, works=lambda: next(answers))
        with contextlib.ExitStack() as stack:
            stack.callback(server.kill)
            with pytest.raises(JsonlTimeoutError):
                client.request("devices", timeout_s=0.02)
            with pytest.raises(JsonlTimeoutError):
                client.request("devices")
        assert list(answers) == []
        client.close()


@pytest.mark.parametrize("works", [True, False])
def test_patient_request__waits_for_a_server_that_works_alone(tmp_path, works):
    path = tmp_path / "s.sock"
    with subprocess.Popen((sys.executable, "-c", SERVER, str(path), "0.5" if works else "0")) as server:
        while not path.exists():
            assert server.poll() is None
        client = JsonlClient(path, timeout_s=0.05)
        with contextlib.ExitStack() as stack:
            stack.callback(server.kill)
            if works:
                assert client.request("devices", patient=True) == {"answer": 42}
            else:
                with pytest.raises(JsonlTimeoutError):
                    client.request("devices", patient=True)
        client.close()


class ScriptedWork:
    """Work of a part that follows a script: CPU seconds and readiness, as a test sets them."""

    cpu_s, is_ready, has_sigstop = 0.0, False, False

    def cpu_seconds(self):
        return self.cpu_s

    def is_ready_to_run(self):
        return self.is_ready

    def is_stopped(self):
        return self.has_sigstop

    def log_bytes(self):
        return 0

    def last_line(self):
        return None


def test_serves__a_server_that_is_stopped_is_not_waited_for_whoever_works_beside_it():
    idle_server, busy_peer = ScriptedWork(), ScriptedWork()
    busy_peer.is_ready = True
    assert serves(idle_server, busy_peer), "it waits for its peer's answer"
    idle_server.has_sigstop = True
    assert not serves(idle_server, busy_peer)


def test_is_stopped__from_sigstop_to_sigcont():
    with subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE) as process:
        for number, state in ((signal.SIGSTOP, True), (signal.SIGCONT, False)):
            assert procfs.is_stopped(process.pid) is not state
            process.send_signal(number)
            while procfs.is_stopped(process.pid) is not state:
                assert process.poll() is None
        process.kill()
    assert not procfs.is_stopped(process.pid)


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves: `clock.now`."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now)
    return clock


def time_until_over(clock, standstill, work, cpu_share, progress=lambda: 0, limit_s=1000.0):
    """Return the seconds until the standstill is over at a share of a CPU; None: not within the limit."""
    began = clock.now
    while clock.now - began < limit_s:
        if standstill.is_over(progress()):
            return clock.now - began
        clock.now += LOOK_S
        work.cpu_s += cpu_share * LOOK_S
    return None


def test_standstill__parts_at_rest_are_given_their_limit(clock):
    work = ScriptedWork()
    assert time_until_over(clock, Standstill(30.0, {"h0": work}), work, 0.0) == pytest.approx(30.0, abs=2 * LOOK_S)


def test_standstill__work_without_result_ends_by_its_cpu_time(clock):
    work = ScriptedWork()
    assert time_until_over(clock, Standstill(30.0, {"h0": work}), work, 0.02) == pytest.approx(150.0, abs=1.0)
    work = ScriptedWork()  # never before the limit, however much it works
    assert time_until_over(clock, Standstill(30.0, {"h0": work}), work, 1.0) == pytest.approx(30.0, abs=2 * LOOK_S)


def test_standstill__a_part_that_waits_for_a_cpu_has_time(clock):
    work = ScriptedWork()
    work.is_ready = True
    assert time_until_over(clock, Standstill(30.0, {"h0": work}), work, 0.0) is None


def test_standstill__begins_anew_with_each_progress(clock):
    work, began = ScriptedWork(), clock.now
    progress = lambda: int((clock.now - began) // 29) if clock.now - began < 290 else 10  # noqa: E731
    assert time_until_over(clock, Standstill(30.0, {"h0": work}), work, 0.05, progress) > 290


def test_answer_limit__doubles_with_each_miss_up_to_its_end():
    limit = AnswerLimit(5.0)
    limits = []
    for _ in range(6):
        limits.append(limit.limit_s)
        limit.miss()
    assert limits == [5.0, 10.0, 20.0, 40.0, 80.0, 80.0]


@pytest.mark.parametrize("works", [True, False])
def test_request_of_asyncio__waits_for_a_server_that_works_alone(tmp_path, works):
    path = tmp_path / "s.sock"

    async def story():
        client = await RpcClient.connect(path, peer="its agent")
        with contextlib.closing(client):
            return await client.request("devices", timeout_s=0.05)

    with subprocess.Popen((sys.executable, "-c", SERVER, str(path), "0.5" if works else "0")) as server:
        while not path.exists():
            assert server.poll() is None
        with contextlib.ExitStack() as stack:
            stack.callback(server.kill)
            if works:
                assert asyncio.run(story()) == {"answer": 42}
            else:
                with pytest.raises(JsonlTimeoutError, match=r"no answer in 0\.05 s: is its agent stopped"):
                    asyncio.run(story())


def test_own_process__is_no_peer_that_works():
    near, far = socket.socketpair()
    with near, far:
        assert not peer_gets_on(near)
