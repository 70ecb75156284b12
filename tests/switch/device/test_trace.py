"""P4Device.trace: the way of one packet, and that tracing changes nothing of it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.p4 import app
from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import TableError
from tests.switch.compiled_programs import P4_FOLDER, Bench, bench_of, compile_named


@pytest.fixture
def digests() -> Bench:
    return bench_of("digests")


def frame(op: int, mac: int = 7) -> bytes:
    return bytes([op]) + b"\x12\x34" + mac.to_bytes(6, "big")


def test_way__states_extracts_tables_changes(digests):
    trace = digests.device.trace(3, frame(1))
    # Times differ between runs; all other lines are the program's
    assert [line for line in trace.text().split("\n") if "timestamp" not in line] == [
        "digests (digests): 9 bytes in at port 3",
        "  ingress",
        "  state start  (digests.p4:33:11)",
        "  extract hdr.data (9 bytes at 0)  (digests.p4:33:21)",
        "      hdr.data valid",
        "      hdr.data.op 0 -> 1",
        "      hdr.data.a 0 -> 0x123",
        "      hdr.data.b 0 -> 4",
        "      hdr.data.mac 0 -> 7",
        "  parser accepts  (digests.p4:32:8)",
        "  control V  (digests.p4:35:9)",
        "  control I  (digests.p4:36:9)",
        "      std.egress_spec 0 -> 1",
        "    table I.seen [hdr.data.mac=7] miss: learn()  (digests.p4:44:11)",
        "        meta.learn.mac 0 -> 7",
        "        meta.learn.port 0 -> 3",
        "        meta.learn.kind 0 -> 7",
        "        meta.learn.odd 0 -> 1",
        "      digest learn_t  (digests.p4:42:9)",
        "  egress of port 1, from its queue 0",
        "      std.egress_spec 1 -> 0",
        "      std.egress_port 0 -> 1",
        "  control E  (digests.p4:63:9)",
        "  control C  (digests.p4:64:9)",
        "  sent: 9 bytes out of port 1",
    ]
    assert trace.sent == [(1, frame(1))] and trace.dropped == ""
    assert trace.states == ["start"] and trace.table("seen") is trace.tables[0]
    assert json.loads(json.dumps(trace.to_json()))["sent"] == [{"port": 1, "frame": frame(1).hex()}]


def test_drop__says_where_and_why(digests):
    trace = digests.device.trace(3, frame(4))
    assert trace.sent == []
    assert trace.dropped == "egress_spec was the drop port after ingress (mark_to_drop, digests.p4:59:13)"


def test_parser_error__by_name(digests):
    assert "parser ends with PacketTooShort" in digests.device.trace(3, b"\4").text()


def test_trace__is_a_packet_like_any_other(digests):
    plain_bench, traced_bench = bench_of("digests"), digests
    frames = [frame(op, mac) for op in range(6) for mac in (7, 9)] + [b"", b"\1"]
    for bench in (plain_bench, traced_bench):
        bench.add("seen", (9,), "NoAction")
    for data in frames:
        assert traced_bench.device.trace(3, data).sent == plain_bench.device.process(3, data)
    assert [d.data for d in traced_bench.device.digests()] == [d.data for d in plain_bench.device.digests()]
    assert traced_bench.device.process(3, frame(1)) == [(1, frame(1))]  # the ordinary build runs again


@pytest.mark.parametrize("name", ["state", "tunnel", "controlplane", "flow"])
def test_small_programs__trace_and_process_agree(name):
    plain_bench, traced_bench = bench_of(name), bench_of(name)
    for op in range(24):
        data = bytes([op, 5, 3, 0, 0, 1]) * 12
        assert traced_bench.device.trace(1, data).sent == plain_bench.device.process(1, data)


def test_values__registers_and_counters(digests):
    trace = bench_of("state").device.trace(1, bytes([1, 5, 3, 0, 0, 1]) * 12)
    assert trace.steps


def test_refused__without_a_program_or_with_another_build(digests):
    with pytest.raises(TableError, match="no program is loaded"):
        P4Device(1, "s1").trace(1, b"")
    program = compile_named("srv6")

    class MismatchedProgram:
        name, library, p4info = "digests", digests.device.program.library, digests.device.program.p4info

        def build_traced(self):
            return program.build_traced()

    device = P4Device(1, "s1")
    device.load(MismatchedProgram())
    with pytest.raises(TableError, match="not a traced build"):
        device.trace(1, b"")
    assert device.process(3, frame(2)) == [(1, frame(2))]


def test_command(tmp_path):
    entries = tmp_path / "entries.stf"
    entries.write_text("add seen mac:9 NoAction()")
    program = str(P4_FOLDER / "digests.p4")
    result = CliRunner().invoke(app, ["trace", program, "3", frame(1, 9).hex(), "--stf", str(entries)])
    assert result.exit_code == 0 and "table I.seen [hdr.data.mac=9] hit: NoAction()" in result.output
    result = CliRunner().invoke(app, ["trace", program, "3", frame(1, 8).hex(), "--json"])
    tables = [step for step in json.loads(result.output)["steps"] if step["kind"] == "table"]
    assert tables[0]["key"] == {"hdr.data.mac": "0x8"} and tables[0]["hit"] is False
    assert CliRunner().invoke(app, ["trace", program, "3", "0"]).exit_code == 1


def test_hidden__tables_and_actions_that_the_control_plane_does_not_see():
    trace = bench_of("cells").device.trace(1, bytes([7, 0, 0x41]))
    (step,) = trace.tables
    assert (step.name, step.key, step.hit, step.action) == ("I.unseen", {"h.x.op": 7}, True, "I.quiet")
    assert trace.sent == [(2, bytes([7, 0, 0x42]))]


def test_registers__cells_of_more_than_128_bits():
    trace = bench_of("cells").device.trace(1, bytes([1, 2, 5]))
    reads, writes = (step.numbers for step in trace.steps if step.kind.startswith("register"))
    assert reads == (2, 0) and writes == (2, (1 << 250) + 5)
