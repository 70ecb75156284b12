"""The run folder: one holder, state before deeds, and clean-up that touches nothing of anybody else."""

import ast
import contextlib
import json
import os
import subprocess
import sys

import pytest

from mrc_testbed.ipc import procfs, rundir
from mrc_testbed.ipc.rundir import TOKEN_VARIABLE, RunDir, RunDirError, RunState, kill_run
from tests.repository import ROOT
from tests.test_imports import CODE

SLEEP = (sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()")


def start_process(argv=SLEEP, **options):
    """Return a process that runs until its stdin closes, once it runs."""
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)
    assert process.stdout.readline() == "up\n"
    return process


def make_reachable(guests):
    """Make a folder for guests; folders of pytest, which others cannot enter, are no fault of it."""
    with contextlib.suppress(RunDirError):
        guests.make()


@pytest.fixture
def stranger():
    process = start_process()
    yield process
    process.kill()
    process.communicate()


def test_lock__second_holder_is_told_who_has_it(tmp_path):
    holder = start_process(
        (
            sys.executable,
            "-c",
            "import sys; from mrc_testbed.ipc.rundir import RunDir\n"
            f"with RunDir({str(tmp_path / 'run')!r}): print('up', flush=True); sys.stdin.read()",
        )
    )
    try:
        with pytest.raises(RunDirError) as caught:
            RunDir(tmp_path / "run").acquire()
        assert f"pid {holder.pid} (" in str(caught.value) and "python" in str(caught.value)
        assert "MRC_RUN_DIR" in str(caught.value)
    finally:
        holder.communicate()
    with RunDir(tmp_path / "run"):
        pass


def test_lock__freed_by_kill_9(tmp_path):
    script = "import sys; from mrc_testbed.ipc.rundir import RunDir; r = RunDir(sys.argv[1]); r.acquire(); "
    holder = start_process((sys.executable, "-c", script + "print('up', flush=True); sys.stdin.read()", str(tmp_path)))
    holder.kill()
    holder.communicate()
    with RunDir(tmp_path) as run_dir:
        assert run_dir.clean_leftovers() == []


def test_folder__with_strangers_files_is_refused_and_untouched(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "thesis.txt").write_text("precious")
    with pytest.raises(RunDirError, match="no run folder of ours"):
        RunDir(tmp_path).acquire()
    assert (tmp_path / "data" / "thesis.txt").read_text() == "precious"


def test_folder__errors_name_the_cure(tmp_path, monkeypatch):
    with pytest.raises(RunDirError, match="set MRC_RUN_DIR to a shorter one"):
        RunDir(tmp_path / ("x" * 100)).acquire()
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError, match=r"cannot use the run folder .*: Not a directory"):
        RunDir(tmp_path / "file" / "run").acquire()
    monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path / "elsewhere"))
    assert RunDir().path == tmp_path / "elsewhere"
    monkeypatch.delenv("MRC_RUN_DIR")
    assert str(RunDir().path) == "/run/mrc-testbed"


def test_state__on_disk_before_anything_is_made(tmp_path):
    with RunDir(tmp_path / "run") as run_dir:
        run_dir.begin()
        stored_state = json.loads((tmp_path / "run" / "state.json").read_text())
        assert stored_state["token"] == run_dir.state.token and stored_state["front_pid"] == os.getpid()
        assert 2**30 <= stored_state["group"] < 2**31
        run_dir.state.interfaces = ["p0-t0-0-eth1"]
        run_dir.save()
        assert RunState(**json.loads((tmp_path / "run" / "state.json").read_text())) == run_dir.state
        assert sorted(p.name for p in run_dir.path.iterdir()) == [
            "agents",
            "data",
            "lock",
            "log",
            "nics",
            "program",
            "state.json",
            "tls",
            "token",
        ]
        assert len(run_dir.read_token()) == 64 and run_dir.token_file.stat().st_mode & 0o777 == 0o600
        run_dir.remove_files()
        assert sorted(p.name for p in run_dir.path.iterdir()) == ["lock", "log"]


def test_state__unreadable_is_said_and_kept(tmp_path):
    with RunDir(tmp_path / "run") as run_dir:
        run_dir.begin()
        (run_dir.path / "state.json").write_text("{half")
        with pytest.raises(RunDirError, match=r"state.json cannot be read .* what an earlier run left is unknown"):
            run_dir.clean_leftovers()
        assert (run_dir.path / "state.json").exists()


def test_clean__ends_what_carries_the_token_and_only_that(tmp_path, stranger):
    with RunDir(tmp_path / "run") as run_dir:
        run_dir.begin()
        state = run_dir.state
        marked = {**os.environ, TOKEN_VARIABLE: state.token}
        own_process = start_process(env=marked)
        grandchild = start_process(("sh", "-c", "sleep 1000 & echo up; wait"), env=marked)
        other_run = start_process(env={**os.environ, TOKEN_VARIABLE: RunState().token})
        descriptions = run_dir.clean_leftovers()
        assert len([line for line in descriptions if line.startswith("pid ")]) == 3  # python, sh, sleep
        assert any("sleep 1000" in line for line in descriptions)
        assert own_process.wait(5) == -9 and grandchild.wait(5) == -9
        assert stranger.poll() is None and other_run.poll() is None
        other_run.communicate()
        for process in (own_process, grandchild):
            process.communicate()
        assert run_dir.clean_leftovers() == []


def test_clean__takes_the_part_of_a_fabric_on_several_machines_that_was_here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")  # short: a socket's name has to fit
    part = RunDir(folder / "machines" / "here")
    with RunDir(folder) as front:
        front.begin()
        with part:
            part.begin()
            part.save()
            process = start_process(env={**os.environ, TOKEN_VARIABLE: part.state.token})
    with RunDir(folder) as front:
        descriptions = front.clean_leftovers()
    process.communicate()
    assert any(f"pid {process.pid} (" in text for text in descriptions)
    assert not part.path.exists()


def test_clean__never_hits_a_reused_pid(stranger):
    state = RunState()
    began = procfs.start_time(stranger.pid)
    state.processes["switchd"] = {"pid": stranger.pid, "start": began - 1, "command": "long gone"}
    assert kill_run(state) == []
    assert stranger.poll() is None
    state.processes["switchd"]["start"] = began
    assert len(kill_run(state)) == 1
    assert stranger.wait(5) == -9


def test_clean__spares_itself_and_its_ancestors():
    state = RunState()
    for pid in (os.getpid(), os.getppid()):
        state.processes[str(pid)] = {"pid": pid, "start": procfs.start_time(pid), "command": "us"}
    assert kill_run(state) == []


def test_clean__zombie_is_gone_already():
    process = start_process()
    state = RunState()
    began = procfs.start_time(process.pid)
    state.processes["h0"] = {"pid": process.pid, "start": began, "command": "python"}
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # now a zombie
    assert procfs.start_time(process.pid) == began
    assert kill_run(state) == []
    process.communicate()
    assert procfs.start_time(process.pid) is None
    assert procfs.command(process.pid) == "?"


def test_procfs__listener_is_named():
    server = start_process(
        (
            sys.executable,
            "-c",
            "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print('up', flush=True)\n"
            "print(s.getsockname()[1], flush=True); sys.stdin.read()",
        )
    )
    port = int(server.stdout.readline())
    pid, command = procfs.listener_of(port)
    assert pid == server.pid and "create_server" in command
    server.communicate()
    assert procfs.listener_of(port) is None


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: creates interfaces")
def test_delete_group__takes_all_of_it_and_nothing_else():
    state = RunState()
    for letter, group in (("a", state.group), ("b", state.group), ("c", 0)):
        ends = f"zztopo{letter}0 group {group} type veth peer zztopo{letter}1 group {group}"
        subprocess.run(["ip", "link", "add", *ends.split()], check=True)
    try:
        own_interfaces = ["zztopoa0", "zztopoa1", "zztopob0", "zztopob1"]
        assert rundir.interfaces_of_group(state.group) == own_interfaces
        assert rundir.remove_run(state) == own_interfaces
        assert os.path.exists("/sys/class/net/zztopoc0")
        assert rundir.delete_group(state.group) == []
    finally:
        subprocess.run(["ip", "link", "del", "zztopoc0"], check=True)


def test_guests__have_a_folder_of_their_own_and_the_run_folder_stays_closed(tmp_path):
    tmp_path.chmod(0o755)
    with RunDir(tmp_path / "run") as run_dir:
        run_dir.begin()
        old_mask = os.umask(0o077)
        try:
            make_reachable(run_dir.guests)
        finally:
            os.umask(old_mask)
        assert run_dir.guests.path == tmp_path / "run-guests" / "mrc"
        modes = [
            path.stat().st_mode & 0o7777 for path in (run_dir.path, run_dir.guests.path.parent, run_dir.guests.path)
        ]
        assert modes == [0o700, 0o755, 0o755]
        (run_dir.guests.path / "h0.sock").touch()
        with RunDir(tmp_path / "run" / "fabrics" / "b") as second:
            make_reachable(second.guests)
            assert second.guests.path == tmp_path / "run-guests" / "b"
            run_dir.remove_files()
            assert [path.name for path in (tmp_path / "run-guests").iterdir()] == ["b"]
            second.remove_files()
        assert not (tmp_path / "run-guests").exists()


def test_guests__folder_that_another_user_prepared_is_refused_and_untouched(tmp_path):
    treasure = tmp_path / "treasure"
    (treasure / "mrc").mkdir(parents=True)
    (treasure / "mrc" / "file").touch()
    with RunDir(tmp_path / "run") as run_dir:
        run_dir.begin()
        run_dir.guests.path.parent.symlink_to(treasure)
        with pytest.raises(RunDirError, match="is a symbolic link"):
            run_dir.guests.make()
        run_dir.guests.path.parent.unlink()
        run_dir.guests.path.parent.mkdir()
        run_dir.guests.path.symlink_to(treasure / "mrc")
        with pytest.raises(RunDirError, match="is a symbolic link"):
            run_dir.guests.make()
        run_dir.remove_files()
        run_dir.guests.path.unlink()
        run_dir.guests.path.mkdir()
        run_dir.guests.path.parent.chmod(0o777)
        with pytest.raises(RunDirError, match="can be changed by other users"):
            run_dir.guests.make()
        run_dir.remove_files()
        assert run_dir.guests.path.exists() and (treasure / "mrc" / "file").exists()


def test_guests__who_could_not_reach_their_folder_are_told_at_the_start(tmp_path):
    tmp_path.chmod(0o700)
    with RunDir(tmp_path / "run") as run_dir:
        run_dir.begin()
        with pytest.raises(RunDirError, match=r"is closed to other users. Cure: `chmod o\+x"):
            run_dir.let_in([65534])
        assert json.loads(run_dir.state_file.read_text())["guests"] == [65534]


@pytest.mark.house
def test_files__are_named_here_alone():
    """Text for people may say `plan.json`; code asks RunFiles."""
    names = {"plan.json", "switches.json", "hosts.json", "controller.json", "switchd.sock", "mapper.sock"}
    names |= {rundir.DEFAULT_PATH, "faults.jsonl", "discipline.json"}
    findings = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for folder in CODE
        for path in (ROOT / folder).rglob("*.py")
        if path != ROOT / "mrc_testbed" / "ipc" / "rundir.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
    ]
    assert findings == []
