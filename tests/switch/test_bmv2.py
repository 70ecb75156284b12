"""The same STF scripts on the embedded switch and on BMv2, where that is; what it needs is tested everywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bmv2_kit import (
    RemoteDevice,
    compile_command,
    frames,
    missing_tools,
    on_bmv2,
    on_ours,
    pcap,
    ports_of,
    read_outputs,
    reordered,
    switch_command,
    write_inputs,
)
from p4_kit import PROGRAMS, ROOT, SMALL
from scapy.utils import RawPcapReader, wrpcap

from switch.p4 import compile_program
from switch.stf import parse_script, read_script
from switch.stf_run import StfRun, difference

SCRIPTS = [(SMALL / f"{path.stem.partition('-')[0]}.p4", path) for path in sorted((SMALL.parent / "stf").glob("*.stf"))]
SCRIPTS += [
    (PROGRAMS / f"{path.stem.partition('_')[0]}.p4", path) for path in sorted((ROOT / "tests/p4src").glob("*.stf"))
]
CHANCE = {"state": "reads random()"}
"""Programs whose output is not the same twice."""
P4C_WRONG = {"integers": "p4c masks `(int)x` to 0 bits"}
"""Programs that p4c translates into others."""


@pytest.mark.skipif(bool(missing_tools()), reason=f"not on PATH: {' and '.join(missing_tools())}")
@pytest.mark.parametrize(("source", "path"), SCRIPTS, ids=lambda one: one.stem)
def test_both_switches_send_the_same(source, path, tmp_path):
    if source.stem in CHANCE | P4C_WRONG:
        pytest.skip((CHANCE | P4C_WRONG)[source.stem])
    try:
        script = reordered(read_script(path))
        theirs = on_bmv2(source, script, tmp_path)
    except ValueError as refused:
        pytest.skip(str(refused))
    ours = on_ours(compile_program(source), script)
    assert set(ours.frames) == set(theirs.frames), "other ports send"
    for port, want in theirs.frames.items():
        have = ours.frames[port]
        assert len(have) == len(want), f"port {port}: {len(have)} frames of ours, {len(want)} of BMv2"
        for number, (mine, other) in enumerate(zip(have, want, strict=True), 1):
            found = difference(other.hex(), True, mine)
            assert not found, f"frame {number} of port {port}, expected is BMv2's: {found}"
    assert ours.failures == theirs.failures


# ---- what can be tested without BMv2


SCRIPT = """
packet 1 00 01
expect 2 00 01
mc_mgrp_create 1
mc_node_create 7 40 3
packet 2 aabb
wait
check_counter c(1) packets == 1
add t k:1 a()
"""


def test_scripts__state_then_packets_then_checks():
    script = parse_script(SCRIPT)
    assert [one.word for one in reordered(script)] == [
        "mc_mgrp_create", "mc_node_create", "add", "packet", "packet", "expect", "check_counter",
    ]  # fmt: skip
    assert ports_of(script) == [*range(32), 40]
    with pytest.raises(ValueError, match=r"x\.stf:2: rate is not on BMv2"):
        reordered(parse_script("packet 1 00\nrate 1 10M", "x.stf"))
    with pytest.raises(ValueError, match="mirroring_add_mc is not on BMv2"):
        reordered(parse_script("mirroring_add_mc 1 2"))


def test_scripts__our_side_of_the_comparison():
    """In the order for BMv2, too, our switch sends what the script expects."""
    script = reordered(read_script(SMALL.parent / "stf" / "semantics.stf"))
    done = on_ours(compile_program(SMALL / "semantics.p4"), script)
    assert not done.failures
    for port, many in done.frames.items():
        expected = [one for one in script if one.word == "expect" and one.fields["port"] == port]
        assert len(many) == len(expected)
        assert not any(difference(e.fields["digits"], True, f) for e, f in zip(expected, many, strict=True))


def test_commands():
    folder = Path("/f")
    assert switch_command([0, 7], folder, "127.0.0.1:9559", 9090, 5) == [
        "simple_switch_grpc", "--no-p4", "--device-id", "1", "--use-files", "5", "-i", "0@/f/port0", "-i", "7@/f/port7",
        "--thrift-port", "9090", "--", "--grpc-server-addr", "127.0.0.1:9559", "--cpu-port", "510",
        "--priority-queues", "8",
    ]  # fmt: skip
    assert compile_command(Path("x.p4"), folder) == [
        "p4c-bm2-ss", "--std", "p4-16", "--p4runtime-files", "/f/p4info.txtpb", "-o", "/f/bmv2.json", "x.p4",
    ]  # fmt: skip


def test_files__as_scapy_reads_and_writes_them(tmp_path):
    script = parse_script(SCRIPT)
    write_inputs(script, [0, 1, 2], tmp_path)
    assert [one.name for one in sorted(tmp_path.iterdir())] == ["port0_in.pcap", "port1_in.pcap", "port2_in.pcap"]
    with RawPcapReader(str(tmp_path / "port2_in.pcap")) as reader:
        assert [(data, meta.sec, meta.usec) for data, meta in reader] == [(b"\xaa\xbb", 0, 1000)]
        assert reader.linktype == 1
    assert frames((tmp_path / "port0_in.pcap").read_bytes()) == []
    wrpcap(str(tmp_path / "port9_out.pcap"), [b"\1\2", b"\3"], linktype=1)
    (tmp_path / "port3_out.pcap").write_bytes(pcap([(0, b"\5"), (2_000_001, b"")])[:-1])
    (tmp_path / "port4_out.pcap").write_bytes(b"")
    assert read_outputs([3, 4, 5, 9], tmp_path) == {3: [b"\5"], 4: [], 9: [b"\1\2", b"\3"]}
    big_endian = bytes.fromhex(
        "a1b2c3d4 0002 0004 00000000 00000000 0000ffff 00000001 00000000 00000001 00000002 00000002 abcd"
    )
    assert frames(big_endian) == [b"\xab\xcd"]


@pytest.fixture
def daemon():
    """A P4Runtime server: ours, in place of BMv2's."""
    servers = ("--p4runtime", "127.0.0.1:0", "--gnmi", "127.0.0.1:0")
    child = subprocess.Popen(
        [sys.executable, "-m", "switch.daemon", *servers, "--config", "/dev/stdin"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    child.stdin.write('[{"name": "s1", "device_id": 1, "ports": {}}]')
    child.stdin.close()
    yield dict(word.split("=") for word in child.stdout.readline().split()[1:])["p4runtime"]
    child.terminate()
    child.wait(20)


def test_entries__over_p4runtime(daemon):
    """Every state command of these scripts goes through, and counters are read."""
    for name in ("tables", "copies", "meters", "semantics"):
        program = compile_program(SMALL / f"{name}.p4")
        device = RemoteDevice(daemon if ":" in daemon else f"127.0.0.1:{daemon}", program.p4info, program.config)
        direct = {one.direct_table_id for one in program.p4info.direct_counters}
        try:
            run = StfRun(device, program)
            for command in reordered(read_script(SMALL.parent / "stf" / f"{name}.stf")):
                if command.word not in ("expect", "check_counter"):
                    run.command(command)
            for counter in program.p4info.counters:
                assert device.read_counter(counter.preamble.id, 0)[0][1].packets == 0
            for entry in run.handles.values():
                if entry.table_id in direct:
                    assert device.read_one(entry).counter.packets == 0
        finally:
            device.close()
