"""Door for guests: who is let in, what is answered, and what a hostile guest cannot hold up."""

from __future__ import annotations

import socket
import time

import pytest

from mrc_testbed.hosts.nicd import door
from mrc_testbed.ipc.framing import decode, encode
from mrc_testbed.ipc.peers import SocketPeer
from mrc_testbed.ipc.rundir import FabricError, RunDir
from mrc_testbed.topologies.plan import Plan

GUEST, STRANGER = 4_000_001, 4_000_002


@pytest.fixture
def run_dir(tmp_path, monkeypatch):
    """Run folder with a guest, its door open; whoever asks is the guest.

    Starts are noted, and start nothing.
    """
    started_hosts = []
    monkeypatch.setattr(door, "ensure_nic_process", lambda _files, host: started_hosts.append(host))
    monkeypatch.setattr(door, "peer_of", lambda _connection: SocketPeer(7, GUEST, GUEST))
    tmp_path.chmod(0o755)
    with RunDir(tmp_path / "run") as run_dir:
        run_dir.started_hosts = started_hosts
        run_dir.begin()
        run_dir.guests.path.mkdir(parents=True)
        run_dir.write_json(run_dir.plan_file, Plan(2, 2, 1, 1).to_json())
        with door.open_door(run_dir, (GUEST,)):
            yield run_dir
        assert not run_dir.guests.door.exists()


def answer_to(run_dir: RunDir, data: bytes) -> dict:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(run_dir.guests.door))
        connection.sendall(data)
        return decode(connection.makefile("rb").readline())


def test_plan__is_the_fabrics(run_dir):
    assert door.plan_for_guest(run_dir.guests) == Plan(2, 2, 1, 1)


def test_start__is_of_hosts_of_the_fabric_alone(run_dir):
    door.start_for_guest(run_dir.guests, "h1")
    assert run_dir.started_hosts == ["h1"]
    with pytest.raises(FabricError, match=r"no host '../h1' here"):
        door.start_for_guest(run_dir.guests, "../h1")
    assert door.main([str(run_dir.guests.path), "h0"]) == 0
    assert run_dir.started_hosts == ["h1", "h0"]


def test_start__that_fails_tells_a_guest_nothing_of_the_log(run_dir, monkeypatch, capsys):
    def fail(_files, host):
        raise FabricError(f"the NIC process of {host} ended with 1: secret")

    monkeypatch.setattr(door, "ensure_nic_process", fail)
    assert door.main([str(run_dir.guests.path), "h0"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("libmrc: the NIC process of h0 does not start. Cure:") and "secret" not in error


@pytest.mark.parametrize(
    "data",
    [
        b"[1]\n",
        b"no JSON\n",
        b"{}\n",
        b'{"op": "plan"}',
        b'{"op": "plan"}\n{"op": "plan"}\n',
        b'{"op": "start", "host": [1]}\n',
        b'{"op": "line", "line": "link p0-t0-0 p0-t1-0 down"}\n',
        b"[" * 4000 + b"\n",
        b"\xff\x00\n",
    ],
)
def test_request__that_is_none_is_refused_and_the_next_is_answered(run_dir, data):
    assert answer_to(run_dir, data)["ok"] is False
    assert answer_to(run_dir, encode({"op": "plan"}))["ok"] is True
    assert run_dir.started_hosts == []


def test_stranger__is_refused_with_the_cure(run_dir, monkeypatch):
    monkeypatch.setattr(door, "peer_of", lambda _connection: SocketPeer(7, STRANGER, STRANGER))
    with pytest.raises(FabricError, match=rf"user {STRANGER} may not .* Cure: .*--allow USER"):
        door.plan_for_guest(run_dir.guests)


def test_guest__who_never_asks_holds_up_himself_alone(run_dir, monkeypatch):
    monkeypatch.setattr(door, "REQUEST_S", 20.0)
    quiet_connections = [socket.socket(socket.AF_UNIX) for _ in range(door.MAX_CONNECTIONS)]
    for connection in quiet_connections:
        connection.connect(str(run_dir.guests.door))
    # The connections are taken one after the other, so the next is surely one too many.
    with pytest.raises(FabricError, match="at once, the limit"):
        door.plan_for_guest(run_dir.guests)
    monkeypatch.setattr(door, "peer_of", lambda _connection: SocketPeer(7, 0, 0))
    assert door.plan_for_guest(run_dir.guests)
    monkeypatch.setattr(door, "peer_of", lambda _connection: SocketPeer(7, GUEST, GUEST))
    for connection in quiet_connections:
        connection.close()
    while True:  # until the threads have noticed
        try:
            assert door.plan_for_guest(run_dir.guests)
            break
        except FabricError:
            time.sleep(0.01)


def test_fabric_that_has_ended__is_said(run_dir):
    run_dir.guests.door.unlink()
    with pytest.raises(FabricError, match="no fabric answers"):
        door.plan_for_guest(run_dir.guests)


def test_fabric_without_guests__has_no_door(tmp_path):
    with door.open_door(RunDir(tmp_path / "run"), ()):
        assert not (tmp_path / "run-guests").exists()
