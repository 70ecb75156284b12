"""Switch targets: what BMv2 is started with, and what is made of its output.

BMv2 may not be on this machine: a fake simple_switch_grpc stands in. It shows that our arguments are those of the real
one's documentation and that its known failures are noticed, and nothing about BMv2 itself.
"""

import sys
import types

import pytest

from mrc_testbed.ipc.processes import ProcessError, Processes
from mrc_testbed.ipc.rundir import FabricError, RunDir
from mrc_testbed.topologies.lab.options import Ports
from mrc_testbed.topologies.lab.targets import Bmv2Target, EmbeddedTarget
from mrc_testbed.topologies.plan import Plan

FAKE = f"""#!{sys.executable}
import argparse, socket, sys, time
before, after = sys.argv[1:sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1:]
main = argparse.ArgumentParser()
main.add_argument("--no-p4", action="store_true", required=True)
main.add_argument("--log-level", required=True)
main.add_argument("-i", action="append", required=True)
main.add_argument("--device-id", type=int, required=True)
main.add_argument("--thrift-port", type=int, required=True)
main.parse_args(before)
target = argparse.ArgumentParser()
target.add_argument("--grpc-server-addr", required=True)
target.add_argument("--cpu-port", type=int, required=True, choices=range(1, 511))
target.add_argument("--priority-queues", type=int, required=True)
print("Calling target program-options parser", flush=True)
if MODE == "old":
    print("Target parser returned an error", flush=True)
if MODE == "dead":
    sys.exit("bind: Address already in use")
host, _, port = target.parse_args(after).grpc_server_addr.rpartition(":")
server = socket.create_server((host, int(port)))
print("Server listening on", host, port, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def bmv2(tmp_path, monkeypatch):
    """A Bmv2Target and one of its switches; `bmv2.fake(mode)` puts the fake on PATH."""
    with RunDir(tmp_path / "run") as run_dir:
        run_dir.begin()
        processes = Processes(run_dir)
        target = Bmv2Target(run_dir, processes, Ports(p4runtime=29559, thrift=29090), Plan(2, 2, 2, 1))
        switch = types.SimpleNamespace(
            name="p0-t0-0", device_id=1, address=target.address(1), interfaces={1: "p0-t0-0-eth1", 2: "p0-t0-0-eth2"}
        )

        def fake(mode):
            for name in ("simple_switch_grpc", "p4c-bm2-ss"):
                (tmp_path / name).write_text(FAKE.replace("MODE", repr(mode)))
                (tmp_path / name).chmod(0o755)
            monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

        yield types.SimpleNamespace(target=target, switch=switch, processes=processes, fake=fake)
        processes.stop(grace_s=0.1)


def test_bmv2__missing_programs_are_named_with_the_cure(bmv2, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(FabricError) as caught:
        bmv2.target.check()
    assert str(caught.value).startswith("--target bmv2 needs simple_switch_grpc and p4c-bm2-ss on PATH: install")
    assert "--target embedded" in str(caught.value)


def test_bmv2__command_line(bmv2):
    assert " ".join(bmv2.target.command(bmv2.switch)) == (
        "simple_switch_grpc --no-p4 --log-level off -i 1@p0-t0-0-eth1 -i 2@p0-t0-0-eth2 "
        "--device-id 1 --thrift-port 29090 -- "
        "--grpc-server-addr 127.0.0.1:29559 --cpu-port 510 --priority-queues 8"
    )


def test_bmv2__each_switch_has_its_own_ports(bmv2):
    ports = bmv2.target.tcp_ports()
    assert len(ports) == 8 + 8 + 1
    assert ports[29559] == ports[29566] == "P4Runtime" and ports[29097] == "Thrift" and ports[9339] == "gNMI"
    assert bmv2.target.address(8) == "127.0.0.1:29566"


def test_bmv2__started_and_ready_when_it_listens(bmv2):
    bmv2.fake("good")
    bmv2.target.check()
    bmv2.target.start(bmv2.switch)
    bmv2.processes.wait_ready(bmv2.target.probes())
    bmv2.target.power(bmv2.switch, False)
    assert "p0-t0-0" not in bmv2.processes
    bmv2.target.power(bmv2.switch, True)
    assert bmv2.processes["p0-t0-0"].ready


def test_bmv2__option_it_does_not_know_is_not_overlooked(bmv2):
    """The real one prints this and runs on, without priority queues."""
    bmv2.fake("old")
    bmv2.target.start(bmv2.switch)
    with pytest.raises(ProcessError, match=r"does not know an option we give it(.|\n)*we ran: simple_switch_grpc"):
        bmv2.processes.wait_ready(bmv2.target.probes())


def test_bmv2__death_shows_its_output(bmv2):
    bmv2.fake("dead")
    bmv2.target.start(bmv2.switch)
    with pytest.raises(ProcessError, match=r"p0-t0-0 \(pid \d+\) exited with code 1(.|\n)*bind: Address already"):
        bmv2.processes.wait_ready(bmv2.target.probes())


def test_embedded__two_ports_for_all_switches(tmp_path):
    target = EmbeddedTarget(RunDir(tmp_path), None, Ports(p4runtime=1111, gnmi=2222), Plan())
    assert target.tcp_ports() == {1111: "P4Runtime", 2222: "gNMI"}
    assert target.address(1) == target.address(16) == f"unix:{tmp_path}/p4runtime.sock"
    assert target.gnmi == f"unix:{tmp_path}/gnmi.sock"
    open_ = EmbeddedTarget(RunDir(tmp_path), None, Ports(p4runtime=1111, gnmi=2222, open_to_all=True), Plan())
    assert (open_.address(1), open_.gnmi) == ("127.0.0.1:1111", "127.0.0.1:2222")
    assert "--token-file" in target.serve_gnmi() and "--token-file" not in open_.serve_gnmi()


def test_certificate__is_made_once_a_run(tmp_path):
    (tmp_path / "tls").mkdir()
    target = EmbeddedTarget(RunDir(tmp_path), None, Ports(tls=True), Plan())
    certificate, key = target.certificate()
    text = certificate.read_text()
    assert target.certificate() == (certificate, key) and certificate.read_text() == text, "a restarted part has it too"
    assert key.stat().st_mode & 0o777 == 0o600


def test_bmv2__speaks_no_tls_and_says_so(bmv2):
    target = Bmv2Target(bmv2.target.run_dir, bmv2.processes, Ports(tls=True), Plan())
    with pytest.raises(FabricError, match=r"--tls with --target bmv2: .*: leave out --tls"):
        target.check()
