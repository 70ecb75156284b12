"""Scripts of STF that run: what came and what did not, and how they differ."""

from __future__ import annotations

import pytest

from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.switch.tools.stf import _READERS, parse_script
from mrc_testbed.switch.tools.stf_run import StfRun, difference, run_script
from tests.switch.compiled_programs import P4_FOLDER


def test_commands__what_is_read_is_run():
    assert set(StfRun.COMMANDS) == set(_READERS)


def run(program, text: str):
    return run_script(program, parse_script(text, "t.stf"))


@pytest.mark.parametrize(
    ("pattern", "exact", "packet", "message"),
    [
        ("0102", False, "0102", ""),
        ("0102", False, "010203", ""),
        ("0102", True, "010203", "is too long (3 bytes, expected 2)"),
        ("01020304", False, "0102", "is too short (2 bytes, expected 4 or more)"),
        ("0*02", True, "0102", ""),
        ("0*02", True, "0103", "differs from byte 1 on (2 bytes, expected 2)"),
        ("", True, "", ""),
    ],
)
def test_difference(pattern, exact, packet, message):
    assert difference(pattern, exact, bytes.fromhex(packet)).split("\n")[0] == message


def test_difference__points_at_the_digits():
    text = difference("010203", True, bytes.fromhex("012204"))
    assert text.split("\n")[1:] == [
        "  0000 expected  01 02 03",
        "       received  01 22 04",
        "                    ^   ^",
    ]


def test_report__what_came_and_what_did_not():
    program = compile_program(P4_FOLDER / "digests.p4")
    packet = "packet 3 02 1234 000000000003\n"
    report = run(program, packet + "expect 1\nexpect 2 00")
    assert report.failures == ["t.stf:3: port 2 sent 0 of the 1 packets expected of it"]
    report = run(program, packet + packet + "expect 1 02")
    assert report.failures == ["packet 2 of port 1 was not expected (9 bytes)\n  0000 02 12 34 00 00 00 00 00 03"]
    report = run(program, packet + "no_packet\nexpect 1")
    assert report.failures == ["t.stf:2: no packet expected, but port 1 sent\n  0000 02 12 34 00 00 00 00 00 03"]
    assert run(program, packet + "expect 1").passed
    assert run(program, "expect 1").passed  # any packets: none too


def test_report__ports_that_the_script_does_not_name_lead_nowhere():
    """The rule is that of p4c's runner, which gives the switch those of the script only.

    `no_packet` looks at all of them.
    """
    program = compile_program(P4_FOLDER / "digests.p4")
    packet = "packet 3 02 1234 000000000003\n"
    assert run(program, packet).passed
    assert not run(program, packet + "no_packet").passed
    assert not run(program, packet + "packet 1 02").passed


@pytest.mark.parametrize(
    ("packet", "location"), [("ee000000", "P4:18:9"), ("04000006", "P4:49:13"), ("ef000000", "P4:56:13")]
)
def test_assert__drops_the_packet_and_fails_the_script(packet, location):
    """The assertion fails in the parser, the ingress (whose clone is dropped too) and the egress."""
    program = compile_program(P4_FOLDER / "indexed.p4")
    report = run(program, f"mirroring_add 1 2\npacket 3 {packet}\npacket 3 05\nexpect 1\nexpect 2\nno_packet")
    location = f"{P4_FOLDER / 'indexed.p4'}{location.removeprefix('P4')}"
    assert [failure.partition(":")[2] for failure in report.failures] == [
        location.partition(":")[2] + ": assert or assume was false (1 packets)"
    ]
