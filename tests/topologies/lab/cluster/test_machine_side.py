"""The process that serves a machine: its answers to invalid requests, and its end."""

import json
import os
import queue
import shutil
import subprocess
import sys
import threading

import pytest

from mrc_testbed.ipc.rundir import RunDir
from mrc_testbed.topologies.lab.cluster import machine_side
from mrc_testbed.topologies.lab.cluster.connection import ConnectionLostError
from mrc_testbed.topologies.lab.cluster.machine_side import MachineSide, serve
from mrc_testbed.topologies.lab.cluster.remote_machine import RemoteMachine
from mrc_testbed.topologies.lab.cluster.sources import sources_digest
from mrc_testbed.topologies.servers import Machine


def send_request(side, **request):
    return side.answer(json.dumps({"id": 7, **request}).encode())


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"\xff{", "not "),
        (b"[]", "object"),
        (b'{"id": 1}', "op"),
        (b'{"op": "fly", "id": 1}', "no op 'fly' (has: agents, attach, beat, begin,"),
        (b'{"op": "attach", "id": 1, "switches": []}', "no fabric here yet"),
        (b'{"op": "begin", "id": 1}', "begin needs"),
        (b'{"op": "begin", "id": 1, "run_dir": 5}', "run_dir"),
        (b'{"op": "tunnels", "id": 1, "tunnels": [{"vni": 99999999}]}', "tunnels"),
        (b'{"op": "probe", "id": 1, "local": "nowhere", "remote": "x", "frame_bytes": 100}', "is no IP address"),
        (b'{"op": "echo", "id": 1, "address": "nowhere"}', "is no IP address"),
        (b'{"op": "echo", "id": 1, "address": "192.0.2.1"}', "UDP port 4789 of 192.0.2.1 cannot be used"),
        (b'{"op": "look", "id": 1, "more": 2}', "no field 'more'"),
    ],
)
def test_answer__refuses_what_is_no_request(line, error):
    answer = MachineSide().answer(line)
    assert answer["ok"] is False and error in answer["error"]


def test_answer__who_it_is():
    side = MachineSide()
    answer = send_request(side, op="hello")
    assert answer["ok"] and answer["id"] == 7 and answer["digest"] == sources_digest()
    assert send_request(side, op="clock")["t"] > 0 and send_request(side, op="beat")["dead"] == {}
    assert send_request(side, op="close")["ok"] and side.done


def test_serve__answers_in_order_and_ends_with_its_input():
    source, our_source = os.pipe()
    our_sink, sink = os.pipe()
    thread = threading.Thread(target=serve, args=(MachineSide(), source, sink))
    thread.start()
    os.write(our_source, b'{"op": "clock", "id": 1}\n{"op": "clo')
    os.write(our_source, b'ck", "id": 2}\n')
    lines = b""
    while lines.count(b"\n") < 2:
        lines += os.read(our_sink, 4096)
    assert [json.loads(line)["id"] for line in lines.splitlines()] == [1, 2]
    os.close(our_source)
    thread.join(5)
    assert not thread.is_alive()
    for end in (source, our_sink, sink):
        os.close(end)


def test_module__says_why_it_ends():
    result = subprocess.run(
        [sys.executable, "-m", "mrc_testbed.topologies.lab.cluster.machine_side"],
        input=b"",
        capture_output=True,
        timeout=60,
    )
    assert (result.returncode, result.stdout) == (0, b"") and b"front process is gone" in result.stderr


def test_machine__no_way_there_is_told_with_a_cure(tmp_path):
    front = RunDir(tmp_path)
    front.logs.mkdir()
    machine = Machine(name="a", address="127.0.0.1", port=1)
    remote = RemoteMachine(machine, front, lambda _machine, _reason: None)
    with pytest.raises(
        ConnectionLostError, match=r"a: no connection to 127.0.0.1: .*Connection refused: no sshd listens there"
    ):
        remote.open()
    remote.close()


def test_machine__no_ssh_here_is_told_with_a_cure(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "setpriv").symlink_to(shutil.which("setpriv"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    front = RunDir(tmp_path)
    front.logs.mkdir()
    remote = RemoteMachine(Machine(name="a", address="127.0.0.1"), front, lambda _machine, _reason: None)
    with pytest.raises(ConnectionLostError, match=r"install ssh here \(`apt-get install openssh-client`\)"):
        remote.open()
    remote.close()


SIDE = """
import sys, time
for line in sys.stdin:
    for _ in range(int(sys.argv[1])):
        time.sleep(0.1)
        print('{"id": 1, "works": true}', flush=True)
    if not int(sys.argv[1]): time.sleep(1000)
    print('{"id": 1, "ok": true, "answer": 42}', flush=True)
"""


@pytest.mark.parametrize("lines", [20, 0])
def test_request__a_machine_that_says_that_it_works_is_waited_for(tmp_path, lines):
    front = RunDir(tmp_path)
    front.logs.mkdir()
    machine = RemoteMachine(Machine(name="a", address="local"), front, lambda _machine, _reason: None)
    command = [sys.executable, "-c", SIDE, str(lines)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as machine._side:
        try:
            if lines:  # they take far longer than the limit
                assert machine.request("begin", limit_s=1.0) == {"answer": 42}
            else:
                with pytest.raises(ConnectionLostError, match="machine a is lost: no answer"):
                    machine.request("begin", limit_s=1.0)
        finally:
            machine._side.kill()


def test_module__says_that_it_works_on_an_answer_that_takes_long(monkeypatch):
    monkeypatch.setattr(machine_side, "WORK_S", 0.02)
    side, sent = MachineSide(), queue.SimpleQueue()
    side.send = sent.put
    side._answering = 7
    threading.Thread(target=side._report_work, daemon=True).start()
    for _ in range(1000):  # the main thread, which answers
        sum(range(100_000))
        if not sent.empty():
            break
    assert sent.get(timeout=5) == {"id": 7, "works": True}
    side._answering = None
