"""STF: the small programs of this folder against their scripts, and the language itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.p4 import app
from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.switch.tools.stf import StfError, parse_script
from mrc_testbed.switch.tools.stf_run import run_script
from tests.switch.compiled_programs import P4_FOLDER, compile_named

SCRIPTS = sorted((Path(__file__).parents[1] / "stf").glob("*.stf"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(script):
    """tests/switch/stf/NAME.stf and NAME-*.stf run against tests/switch/p4/NAME.p4."""
    program = compile_program(P4_FOLDER / f"{script.stem.partition('-')[0]}.p4")
    report = run_script(program, parse_script(script.read_text(), script.name))
    assert report.passed, report.text()
    assert report.checks


def run(program, text: str):
    return run_script(program, parse_script(text, "t.stf"))


BAD_LINES = {
    "pocket 1 00": "t.stf:1: no command 'pocket' (has: add,",
    "packet 1 0x": "t.stf:1: packet data must be hexadecimal, not '0x'",
    "packet one 00": "t.stf:1: port: 'one' is no number",
    "packet -1 00": "t.stf:1: port: -1 is negative",
    "expect 1 0x12": "t.stf:1: expected data is hexadecimal with * for any digit",
    "repeat 1000000000 packet 1 00": "t.stf:1: repeat 1000000000: at most",
    "packet 1 {eth}": "t.stf:1: {eth} is not defined: write `let eth DATA`",
    "let 1-2 00": "t.stf:1: let takes a name and data",
    "\n\nwait 3 days": "t.stf:3: '3 days' is no time",
    "add t": "t.stf:1: add takes TABLE",
    "add t a b()": "t.stf:1: 'a': keys are written name:value",
    "add t a:1 b(c)": "t.stf:1: 'c': arguments are written parameter:value",
    "group p 1 x": "t.stf:1: 'x' is no member",
    "port 1 sideways": "t.stf:1: port 1: 'sideways' (want up or down)",
    "rate 1": "t.stf:1: rate takes PORT BITS_PER_SECOND",
    "rate 1 fast": "t.stf:1: 'fast' is no rate",
    "check_queue 1 0 length == 1": "t.stf:1: check_queue takes PORT PRIORITY depth|sent|dropped",
    "check_queue 1 8 depth == 1": "t.stf:1: check_queue: priority 8 is not in 0..7",
    "delay 1 5ms sideways": "t.stf:1: want PORT VALUE [input|output]",
    "register_reset a b": "t.stf:1: register_reset takes NAME",
    "register_read": "t.stf:1: register_read takes NAME [INDEX]",
    "loss 1 50%": "t.stf:1: loss: '50%' is no pattern",
    "mc_node_associate 1": "t.stf:1: takes GROUP NODE",
    "check_counter c(1) ==": "t.stf:1: want NAME(INDEX)",
    "expect_digest d x": "t.stf:1: expect_digest takes NAME FIELD:VALUE",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_language__a_line_that_cannot_be_read_is_named(line):
    with pytest.raises(StfError) as caught:
        parse_script(line, "t.stf")
    assert str(caught.value).startswith(BAD_LINES[line])


DIGESTS_BAD = {
    "add seem hdr.data.mac:1 learn()": "no table seem (has: I.seen)",
    "add seen hdr.data.make:1 learn()": "table I.seen: no key hdr.data.make (has: hdr.data.mac)",
    "add seen mac:0x1000000000000 learn()": "hdr.data.mac: 0x1000000000000 does not fit 48 bits",
    "add seen mac:zz learn()": "hdr.data.mac: 'zz' is no value",
    "add seen mac:0x1* learn()": "hdr.data.mac: 0x1*: an exact key has no stars",
    "add seen mac:1 lern()": "no action lern (has: I.learn, NoAction)",
    "add seen mac:1 learn(port:1)": "I.learn takes none; given: port",
    "check_counter c(1) == 1": "no counter c (has: none)",
    "expect_digest learned mac:1": "no digest learned (has: digest_0, learn_t, whole_t)",
    "add seen mac:1 learn()\nadd seen mac:1 learn()": "seen: entry is there already",
    "packet 600 00": "port 600 is not in 0..510",
}


@pytest.mark.parametrize("text", DIGESTS_BAD)
def test_names__what_the_program_lacks_is_named_with_what_it_has(text):
    program = compile_program(P4_FOLDER / "digests.p4")
    with pytest.raises(StfError) as caught:
        run(program, text)
    line = text.count("\n") + 1
    assert str(caught.value).startswith(f"t.stf:{line}: {DIGESTS_BAD[text]}")


def test_macros_and_repeat():
    lines = parse_script("let a 0102\nlet b {a} 03\nrepeat 3 packet 1 {b}  # comment\n")
    assert [line.fields["data"] for line in lines] == [b"\1\2\3"] * 3


def test_packet__a_last_digit_alone_is_a_byte():
    assert [line.fields["data"] for line in parse_script("packet 1 12 3\npacket 1")] == [b"\x12\x03", b""]


def test_command__exit_codes_and_a_readable_diff(tmp_path):
    passing_script, failing_script, broken_script = tmp_path / "good.stf", tmp_path / "bad.stf", tmp_path / "broken.stf"
    passing_script.write_text("packet 3 02 1234 000000000003\nexpect 1 02 1234")
    failing_script.write_text("packet 3 02 1234 000000000003\nexpect 1 02 1235")
    broken_script.write_text("packet")
    program = str(P4_FOLDER / "digests.p4")
    result = CliRunner().invoke(app, ["test", program, str(passing_script)])
    assert (result.exit_code, result.output) == (0, f"ok   {passing_script} (1 packets in, 1 out, 1 checks)\n")
    result = CliRunner().invoke(
        app, ["test", program, str(passing_script), str(failing_script), str(broken_script), "-q"]
    )
    assert result.exit_code == 1
    assert f"FAIL {failing_script}\n{failing_script}:2: packet 1 of port 1 differs from byte 2 on" in result.output
    assert f"ERROR {broken_script}\n{broken_script}:1: port: '' is no number" in result.output
    assert result.output.endswith("2 of 3 failed\n")


def test_command__check_and_compile(tmp_path):
    valid_source, invalid_source = tmp_path / "good.p4", tmp_path / "bad.p4"
    valid_source.write_bytes((P4_FOLDER / "digests.p4").read_bytes())
    invalid_source.write_text("#include <v1model.p4>\nheader h { }}\n")
    result = CliRunner().invoke(app, ["check", str(valid_source), str(invalid_source)])
    assert result.exit_code == 1
    assert result.output.startswith(f"{invalid_source}:2:13: error: syntax error") and result.output.count("\n") == 1
    assert CliRunner().invoke(app, ["check", str(valid_source)]).exit_code == 0
    result = CliRunner().invoke(app, ["compile", str(valid_source), "-o", str(tmp_path / "out")])
    assert result.exit_code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"good.p4info.txtpb", "good.c", "good.config.p4"}
    config = (tmp_path / "out" / "good.config.p4").read_text()
    assert compile_program(config).p4info == compile_program(valid_source).p4info


def test_program_of_the_repository__runs():
    assert run(compile_named("srv6"), "packet 1 00\nno_packet").passed
