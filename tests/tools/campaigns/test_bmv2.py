"""STF scripts, the same on the embedded switch and on BMv2, where that is.

What it needs is tested everywhere.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.switch.tools.stf import parse_script, read_script
from mrc_testbed.switch.tools.stf_run import StfRun, difference
from tests.switch.bmv2_switch import LEFT_OUT, NOT_ON_BMV2, limit, on_bmv2, on_ours
from tests.switch.compiled_programs import P4_FOLDER, PROGRAMS, ROOT
from tools.campaigns import bmv2
from tools.campaigns.bmv2 import Bmv2, Bmv2Error, P4cProgram, RefusedError, RemoteDevice, compile_command, missing_tools

SCRIPTS = [
    (P4_FOLDER / f"{path.stem.partition('-')[0]}.p4", path) for path in sorted((P4_FOLDER.parent / "stf").glob("*.stf"))
]
SCRIPTS += [
    (PROGRAMS / f"{path.stem.partition('_')[0]}.p4", path) for path in sorted((ROOT / "tests/p4src").glob("*.stf"))
]
CHANCE = {"state": "reads random()"}
"""Programs whose output is not the same twice."""
LIMITS = {
    "integers": "p4c masks `(int)x` to 0 bits",
    "spray_modes": "simple_switch ends at a packet for a group whose members' ports are all down",
}
"""Scripts of programs that BMv2 runs otherwise."""
NOT_FOR_BMV2 = "// Not for BMv2: "
"""Starts of the first line of programs that p4c refuses, or BMv2 what p4c made of it.

The reason is behind it.
"""


def first_line(source: Path) -> str:
    with source.open() as file:
        return file.readline().strip()


@pytest.mark.skipif(bool(missing_tools()), reason=f"not on PATH: {' and '.join(missing_tools())}")
@pytest.mark.parametrize(("source", "path"), SCRIPTS, ids=lambda path: path.stem)
def test_both_switches_send_the_same(source, path, tmp_path):
    script = read_script(path)
    line = first_line(source)
    if line.startswith(NOT_FOR_BMV2):
        with pytest.raises(Bmv2Error):  # or the line has to go
            on_bmv2(P4cProgram.compile(source, tmp_path), script, tmp_path)
        pytest.skip(line.removeprefix(NOT_FOR_BMV2))
    if reason := CHANCE.get(source.stem) or LIMITS.get(path.stem) or limit(script):
        pytest.skip(reason)
    bmv2_run = on_bmv2(P4cProgram.compile(source, tmp_path), script, tmp_path)
    embedded_run = on_ours(compile_program(source), script)
    for port in sorted({*embedded_run.frames, *bmv2_run.frames}):
        have, want = (switch_run.frames.get(port, []) for switch_run in (embedded_run, bmv2_run))
        for number, (frame, bmv2_frame) in enumerate(zip(have, want, strict=False), 1):
            mismatch = difference(bmv2_frame.hex(), True, frame)
            assert not mismatch, f"frame {number} of port {port}, expected is BMv2's: {mismatch}"
        assert len(have) == len(want), f"port {port}: {len(have)} frames of ours, {len(want)} of BMv2"
    assert [digest for digest in embedded_run.digests if digest[0] in bmv2_run.digest_names] == bmv2_run.digests
    assert embedded_run.failures == bmv2_run.failures


# ---- what can be tested without BMv2


def test_scripts__what_bmv2_cannot_do_is_said_by_name():
    assert limit(parse_script("packet 1 00 01\nexpect 2 00 01\nwait\ncheck_register r(1) == 2\nport 3 down")) == ""
    for line, word in (
        ("rate 1 10M", "rate"),
        ("value_set s 1", "value_set"),
        ("register_read r", "register"),
    ):
        assert limit(parse_script(f"packet 1 00\n{line}", "x.stf")).startswith(f"x.stf:2: no {word}")
    assert "wall" in limit(parse_script("wait 2s"))
    assert not set(LEFT_OUT) & set(NOT_ON_BMV2)


def test_scripts__our_side_of_the_comparison():
    script = read_script(P4_FOLDER.parent / "stf" / "digests.stf")
    run = on_ours(compile_program(P4_FOLDER / "digests.p4"), script)
    assert not run.failures
    assert [name for name, _ in run.digests] == ["learn_t", "whole_t"]
    assert run.digests[1][1] == {"data.$valid$": 1, "data.op": 3, "data.a": 0x123, "at": 77} | run.digests[1][1]
    expects = [command for command in script if command.word == "expect"]
    assert len(run.frames[1]) == len(expects)
    assert not any(difference(e.fields["digits"], True, f) for e, f in zip(expects, run.frames[1], strict=True))


def test_digests__pi_knows_those_of_bits():
    p4_program = compile_program(P4_FOLDER / "digests.p4")
    pi_info = bmv2.known_to_pi(p4_program.p4info)
    assert (len(p4_program.p4info.digests), [digest.preamble.name for digest in pi_info.digests]) == (
        3,
        ["digest_0"],
    )  # not: bool, header
    assert pi_info.tables == p4_program.p4info.tables
    bits = bmv2.known_to_pi(compile_program(P4_FOLDER / "long.p4").p4info)
    assert [digest.preamble.name for digest in bits.digests] == ["seen_t"]


def test_commands():
    folder = Path("/f")
    # Word by word: whoever starts BMv2 by hand copies these lines.
    assert Bmv2(folder, 3).command("127.0.0.1:9559", "127.0.0.1:9560", 9090) == [
        "simple_switch_grpc",
        "--no-p4",
        "--log-level",
        "off",
        "--device-id",
        "3",
        "--thrift-port",
        "9090",
        "--",
        "--grpc-server-addr",
        "127.0.0.1:9559",
        "--dp-grpc-server-addr",
        "127.0.0.1:9560",
        "--priority-queues",
        "8",
    ]
    assert compile_command(Path("x.p4"), folder) == [
        "p4c-bm2-ss",
        "--std",
        "p4-16",
        "--p4runtime-files",
        "/f/p4info.txtpb",
        "-o",
        "/f/bmv2.json",
        "x.p4",
    ]


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """Put a shell command of that name on PATH."""
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_compile__says_what_p4c_says(tmp_path, monkeypatch):
    words = "x.p4(3): [--Wwarn=unused] warning: k: unused\nx.p4(7): [--Werror=type-error] error: f: no such field"
    program(tmp_path, monkeypatch, "p4c-bm2-ss", f"printf '{words}\\n  f\\n' >&2; exit 1")
    with pytest.raises(RefusedError, match=r"p4c refuses x\.p4: x\.p4\(7\): .* error: f: no such field"):
        P4cProgram.compile(tmp_path / "x.p4", tmp_path)
    program(tmp_path, monkeypatch, "p4c-bm2-ss", "exit 139")
    with pytest.raises(RefusedError, match="exit code 139"):
        P4cProgram.compile(tmp_path / "x.p4", tmp_path)


def test_start__a_switch_that_ends_at_once_says_why(tmp_path, monkeypatch):
    program(tmp_path, monkeypatch, "simple_switch_grpc", "echo 'Cannot bind'; exit 1")
    with pytest.raises(bmv2.GoneError, match="did not start: Cannot bind"), Bmv2(tmp_path):
        raise AssertionError("the switch did start")


@pytest.fixture
def daemon():
    """A P4Runtime server: ours, in place of BMv2's."""
    servers = ("--p4runtime", "127.0.0.1:0", "--gnmi", "127.0.0.1:0")
    child = subprocess.Popen(
        [sys.executable, "-m", "mrc_testbed.switch.server", *servers, "--config", "/dev/stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    child.stdin.write('[{"name": "s1", "device_id": 1, "ports": {}}]')
    child.stdin.close()
    yield dict(word.split("=") for word in child.stdout.readline().split()[1:])["p4runtime"]
    child.terminate()
    child.wait(20)


def test_entries__over_p4runtime(daemon):
    """Every state command of these scripts goes through, and counters are read."""
    with grpc.insecure_channel(daemon if ":" in daemon else f"127.0.0.1:{daemon}") as channel:
        device = RemoteDevice(channel)
        for name in ("tables", "copies", "meters", "semantics"):
            p4_program = compile_program(P4_FOLDER / f"{name}.p4")
            device.load(P4cProgram(name, p4_program.p4info, p4_program.config))
            direct = {direct_counter.direct_table_id for direct_counter in p4_program.p4info.direct_counters}
            run = StfRun(device, p4_program)
            for command in read_script(P4_FOLDER.parent / "stf" / f"{name}.stf"):
                if command.word not in ("packet", "expect", "no_packet", "check_counter", *LEFT_OUT, *NOT_ON_BMV2):
                    run.command(command)
            for counter in p4_program.p4info.counters:
                assert device.read_counter(counter.preamble.id, 0)[0][1].packets == 0
            for entry in run.handles.values():
                if entry.table_id in direct:
                    assert device.read_one(entry).counter.packets == 0
        device.close()


class Echo(grpc.GenericRpcHandler):
    """A p4.bm.DataplaneInterface of a switch that sends each packet twice.

    Both leave by the next port, if that is up.
    """

    def __init__(self):
        self.packet, self.status = bmv2.dataplane_messages()
        self.down_ports = set()
        self.refusals: list[str] = []
        """Details of the errors by which it refuses the next streams."""

    def service(self, handler):
        if handler.method == bmv2.SERVICE + "PacketStream":
            return grpc.stream_stream_rpc_method_handler(
                self.stream, self.packet.FromString, lambda message: message.SerializeToString()
            )
        if handler.method == bmv2.SERVICE + "SetPortOperStatus":
            return grpc.unary_unary_rpc_method_handler(self.set_status, self.status.FromString, lambda message: message)
        return None

    def stream(self, requests, context):
        if self.refusals:
            context.abort(grpc.StatusCode.UNAVAILABLE, self.refusals.pop(0))
        for request in requests:
            if request.device_id == 1 and request.port + 1 not in self.down_ports:
                yield from [self.packet(device_id=1, port=request.port + 1, packet=request.packet)] * 2

    def set_status(self, request, context):
        (self.down_ports.add if request.oper_status == bmv2.PORT_DOWN else self.down_ports.discard)(request.port)
        return b""


def test_packets__in_and_out_of_a_switch(daemon, monkeypatch):
    monkeypatch.setattr(bmv2, "PACKET_S", 0.5)
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Echo()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    address = daemon if ":" in daemon else f"127.0.0.1:{daemon}"
    with grpc.insecure_channel(address) as control, grpc.insecure_channel(f"127.0.0.1:{port}") as packets:
        device = RemoteDevice(control, packets)
        assert device.process(4, b"\1\2") == [(5, b"\1\2")] * 2
        device.set_port_up(5, False)
        assert device.process(4, b"\1\2") == []
        device.set_port_up(5, True)
        device.inject(510, b"\3", 7)
        assert device.advance(7) == [(7, 511, b"\3")] * 2
        assert device.process(1, b"") == []
        server.stop(0).wait()
        with pytest.raises(bmv2.GoneError, match="of packet 0102 at port 4"):
            device.process(4, b"\1\2")
        device.close()


def test_load__waits_until_packets_are_taken(daemon):
    """BMv2 answers for the pipeline before its ports have started, and refuses packets until then."""
    echo = Echo()
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[echo])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    address = daemon if ":" in daemon else f"127.0.0.1:{daemon}"
    p4_program = compile_program(P4_FOLDER / "tables.p4")
    loadable = P4cProgram("tables", p4_program.p4info, p4_program.config)
    with grpc.insecure_channel(address) as control, grpc.insecure_channel(f"127.0.0.1:{port}") as packets:
        device = RemoteDevice(control, packets)
        echo.refusals = [bmv2.NOT_READY] * 2
        device.load(loadable)
        assert not echo.refusals and device.process(4, b"\1\2") == [(5, b"\1\2")] * 2
        echo.refusals = ["gone away"]
        with pytest.raises(bmv2.GoneError, match="takes no packets: UNAVAILABLE: gone away"):
            device.load(loadable)
        device.close()
    server.stop(0).wait()


def test_entries__an_error_says_which(daemon):
    with grpc.insecure_channel(daemon if ":" in daemon else f"127.0.0.1:{daemon}") as control:
        device = RemoteDevice(control)
        p4_program = compile_program(P4_FOLDER / "tables.p4")
        device.load(P4cProgram("tables", p4_program.p4info, p4_program.config))
        with pytest.raises(Bmv2Error, match=r"no meter with id 77.* MODIFY"):
            device.write_meter(77, 0, bmv2.MeterConfig(1, 1, 1, 1))
        device.close()
