"""The daemons `switch.server` and `switch.server.portstate` as processes.

Ready line, errors, signals. No root.

What is wrong with arguments and files is asked of the daemon's `main` in this process.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from finsy.proto import gnmi, gnmi_grpc

from mrc_testbed.switch.server.__main__ import main

PATIENCE_S = 60
LOOPBACK = "127.0.0.1:0"


@contextmanager
def process(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", module, *arguments]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a process that is to end by itself."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def ready_fields(child: subprocess.Popen[str]) -> dict[str, str]:
    """Return the fields of the ready line."""
    line = child.stdout.readline()
    assert line.startswith("ready "), line + child.stderr.read()
    return dict(re.findall(r"(\w+)=(\S+)", line))


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock.getsockname()[1]


def test_daemon__is_ready_serves_its_devices_and_ends_on_sigterm(tmp_path):
    control = tmp_path / "c.sock"
    config = tmp_path / "devices.json"
    config.write_text(json.dumps([{"name": "s1", "device_id": 1, "ports": {}}]))
    arguments = ["--p4runtime", LOOPBACK, "--gnmi", LOOPBACK, "--control", str(control), "--config", str(config)]
    with process("mrc_testbed.switch.server", *arguments) as child:
        fields = ready_fields(child)
        assert fields["devices"] == "1" and int(fields["pid"]) == child.pid
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(control))
            sock.sendall(b'{"op": "devices", "id": 1}\n')
            assert json.loads(sock.makefile().readline())["devices"][0]["name"] == "s1"
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE_S) == 0
        assert "Traceback" not in child.stderr.read()
    assert not control.exists()


def test_daemon__ends_on_shutdown_over_the_socket(tmp_path):
    control = tmp_path / "c.sock"
    with process(
        "mrc_testbed.switch.server", "--grpc", LOOPBACK, "--gnmi", LOOPBACK, "--control", str(control)
    ) as child:
        ready_fields(child)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(control))
            sock.sendall(b'{"op": "shutdown"}\n')
            assert json.loads(sock.makefile().readline())["ok"]
        assert child.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("option", ["--p4runtime", "--gnmi"])
def test_daemon__port_in_use_is_named_with_its_holder(option):
    with taken_port() as port:
        other_option = "--gnmi" if option == "--p4runtime" else "--p4runtime"
        result = run("mrc_testbed.switch.server", option, f"127.0.0.1:{port}", other_option, LOOPBACK)
        assert result.returncode == 1
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use (held by pid" in result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--p4runtime", "9559"], "is no address"),
        (["--gnmi", "127.0.0.1:99999"], "is no address"),
        (["--cpu-port", "511"], "want 1 to 510"),
        (["--config", "/nonexistent/devices.json"], "/nonexistent/devices.json: No such file"),
        (["--control", "/nonexistent/c.sock"], "cannot listen on /nonexistent/c.sock"),
        (["--p4runtime", "192.0.2.1:1"], "Cannot assign requested address"),
    ],
)
def test_daemon__bad_arguments_are_errors_without_traceback(arguments, words, capfd):
    other_arguments = [x for option in ("--p4runtime", "--gnmi") if option not in arguments for x in (option, LOOPBACK)]
    assert main([*arguments, *other_arguments]) != 0
    errors = capfd.readouterr().err
    assert words in errors and "Traceback" not in errors


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "not JSON"),
        ("{}", "want a list"),
        ("[3]", "a device is an object"),
        ('[{"name": "a", "device_id": 1, "ports": {"x": "eth0"}}]', "port 'x'"),
        ('[{"name": "a", "device_id": 1}, {"name": "b", "device_id": 1}]', "device_id 1 is that of a"),
        ('[{"name": "a", "device_id": 1, "ports": {"1": "zznothere"}}]', "zznothere"),
    ],
)
def test_daemon__bad_device_files_are_errors(tmp_path, text, words, capfd):
    config = tmp_path / "devices.json"
    config.write_text(text)
    assert main(["--p4runtime", LOOPBACK, "--gnmi", LOOPBACK, "--config", str(config)]) == 1
    errors = capfd.readouterr().err
    assert words in errors and "Traceback" not in errors


def oper_status(port: str, target: str = "") -> dict[str, str]:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        names = ("interfaces", "interface", "state", "oper-status")
        path = gnmi.Path(elem=[gnmi.PathElem(name=name) for name in names])
        request = gnmi.GetRequest(prefix=gnmi.Path(target=target), path=[path], encoding=gnmi.PROTO)
        response = gnmi_grpc.gNMIStub(channel).Get(request, timeout=PATIENCE_S)
    updates = [update for notification in response.notification for update in notification.update]
    return {update.path.elem[1].key["name"]: update.val.string_val for update in updates}


def test_portstate__all_interfaces_or_those_with_a_prefix():
    with process("mrc_testbed.switch.server.portstate", "--gnmi", LOOPBACK) as child:
        assert "lo" in oper_status(ready_fields(child)["gnmi"])
        child.send_signal(signal.SIGINT)
        assert child.wait(PATIENCE_S) == 0
    with process("mrc_testbed.switch.server.portstate", "--gnmi", LOOPBACK, "--prefix", "lo") as child:
        assert oper_status(ready_fields(child)["gnmi"]) == {"lo": "UP"}


def test_portstate__interfaces_of_devices_from_a_file(tmp_path):
    devices = tmp_path / "devices.json"
    ports = [{"name": "s1", "device_id": 1, "ports": {"1": "lo"}}, {"name": "s2", "ports": {"1": "zzs2-eth1"}}]
    devices.write_text(json.dumps(ports))
    with process("mrc_testbed.switch.server.portstate", "--gnmi", LOOPBACK, "--interfaces-from", str(devices)) as child:
        port = ready_fields(child)["gnmi"]
        assert oper_status(port) == {"lo": "UP", "zzs2-eth1": "NOT_PRESENT"}
        assert oper_status(port, "s1") == {"lo": "UP"}


@pytest.mark.parametrize(("text", "names"), [('["lo", "zza"]', {"lo", "zza"}), ("lo\n\nzza\n", {"lo", "zza"})])
def test_portstate__names_from_a_file(tmp_path, text, names):
    listing = tmp_path / "interfaces"
    listing.write_text(text)
    with process("mrc_testbed.switch.server.portstate", "--gnmi", LOOPBACK, "--interfaces-from", str(listing)) as child:
        assert set(oper_status(ready_fields(child)["gnmi"])) == names


@pytest.mark.parametrize("text", ['[{"name": "s1"}]', "[1]", "["])
def test_portstate__bad_files_and_taken_ports_are_errors(tmp_path: Path, text):
    listing = tmp_path / "interfaces"
    listing.write_text(text)
    result = run("mrc_testbed.switch.server.portstate", "--gnmi", LOOPBACK, "--interfaces-from", str(listing))
    assert result.returncode == 1 and str(listing) in result.stderr and "Traceback" not in result.stderr
    with taken_port() as port:
        result = run("mrc_testbed.switch.server.portstate", "--gnmi", f"127.0.0.1:{port}")
        assert result.returncode == 1 and "held by pid" in result.stderr
