"""The fuzz of both switches as far as it goes without BMv2.

Its programs, its packets, and how it compares.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from mrc_testbed.cli.outputs.run_outputs import P4FuzzOutput
from mrc_testbed.switch.tools.stf import parse_script
from tools.campaigns import bmv2, p4_fuzz
from tools.campaigns.p4_fuzz import (
    FuzzCase,
    FuzzReport,
    FuzzVerdict,
    ObservedRun,
    Pair,
    campaign,
    difference,
    random_cases,
    sample_cases,
)
from tools.campaigns.p4_random import RandomProgram


def test_programs__are_the_same_for_the_same_seed():
    first, second = RandomProgram(7), RandomProgram(7)
    assert (first.program, first.script) == (second.program, second.script)
    assert first.program != RandomProgram(8).program


def test_programs__compile_here_and_their_entries_and_packets_fit(tmp_path):
    """Two programs through all of our side; p4c and BMv2 see them in the fuzz."""
    pair = Pair(tmp_path)
    for case in islice(random_cases(1, tmp_path), 2):
        commands = case.commands()
        run = pair._run_embedded(case, commands)
        assert len(run.frames) == sum(command.word == "packet" for command in commands) == p4_fuzz.PACKETS
        assert {port for ports in run.frames for port in ports} <= {1, 2, 3, 4, 5, 6, 7, 9, 10}
        assert any(run.frames)


def test_difference__says_the_first():
    our_run = ObservedRun([{1: [b"\1"]}, {}], {"c": [(0, 0)]})
    assert difference(our_run, ObservedRun([{1: [b"\1"]}, {}], {"c": [(0, 0)]})) == ""
    assert difference(our_run, ObservedRun([{1: [b"\1"]}, {2: [b"\3"]}])) == "packet 2, port 2: ours -; BMv2's 03"
    assert (
        difference(our_run, ObservedRun([{1: [b"\1"]}, {}], {"c": [(8, 1)]}))
        == "c(0): (bytes, packets) ours (0, 0), BMv2's (8, 1)"
    )


def test_campaign__counts_keeps_and_stops(tmp_path, monkeypatch):
    differs = FuzzVerdict("differs", "packet 1", 3, ObservedRun([{1: [b"\1"]}]), ObservedRun([{}]))
    verdicts = iter(
        [FuzzVerdict("same", packets=3), FuzzVerdict("theirs", "p4c refuses x"), differs, FuzzVerdict("ours", "no")]
    )
    monkeypatch.setattr(Pair, "judge", lambda self, case: next(verdicts))
    source = tmp_path / "x.p4"
    source.write_text("a program")
    cases = (FuzzCase(f"n{number}", source, "packet 1 00\n") for number in range(9))
    report = campaign(cases, 4, 60, tmp_path / "out")
    assert report.counts == {"same": 1, "theirs": 1, "differs": 1, "ours": 1}
    assert report.findings == {"n2": "packet 1", "n3": "no"}
    assert not report.passed
    assert "4 programs, 6 packets" in report.text()
    assert json.loads(json.dumps(report.to_json()))["programs"] == 4
    kept_texts = {path.name: path.read_text() for path in (tmp_path / "out" / "n2").iterdir()}
    assert kept_texts == {
        "program.p4": "a program",
        "script.stf": "packet 1 00\n",
        "why.txt": "packet 1\n",
        "ours.txt": "packet 1: port 1: 01\n",
        "bmv2.txt": "packet 1: nothing\n",
    }


def test_samples__their_own_entries_and_packets_of_all_kinds(tmp_path):
    (tmp_path / "a.p4").write_text("a program")
    (tmp_path / "a.stf").write_text("# words\nadd t k:1 f()\npacket 0 00 11 22 33\nexpect 1 00\n")
    (tmp_path / "b.p4").write_text("random(x, 1, 2);")
    (sample,) = sample_cases([tmp_path / "a.p4", tmp_path / "b.p4"], 1)
    rows = sample.script.splitlines()
    assert rows[0] == "add t k:1 f()"
    assert len(rows) == 1 + p4_fuzz.PACKETS
    assert len({len(row) for row in rows[1:]}) > 3
    assert parse_script(sample.script)
    assert [sample.script] == [sample_case.script for sample_case in sample_cases([tmp_path / "a.p4"], 1)]


def test_judge__each_side_may_refuse(tmp_path, monkeypatch):
    source = tmp_path / "x.p4"
    source.write_text("nonsense\n")
    pair = Pair(tmp_path)

    def refuse(self: Pair, *_: object) -> ObservedRun:
        raise bmv2.RefusedError("p4c refuses x.p4: nonsense")

    monkeypatch.setattr(Pair, "_run_bmv2", refuse)
    verdict = pair.judge(FuzzCase("x", source, "packet 1 00\n"))
    assert (verdict.kind, "x.p4:1" in verdict.reason, "nonsense" in verdict.reason) == ("both", True, True)
    monkeypatch.setattr(Pair, "_run_bmv2", lambda *_: ObservedRun())
    assert pair.judge(FuzzCase("x", source, "packet 1 00\n")).kind == "ours"
    monkeypatch.setattr(Pair, "_run_embedded", lambda *_: ObservedRun())
    assert pair.judge(FuzzCase("x", source, "")).kind == "same"
    monkeypatch.setattr(Pair, "_run_bmv2", refuse)
    assert pair.judge(FuzzCase("x", source, "")).kind == "theirs"


def test_fuzz__without_bmv2_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(bmv2.Bmv2Error, match="not on PATH: p4c-bm2-ss and simple_switch_grpc"):
        p4_fuzz.fuzz(1, 1, 1, tmp_path, [], False)


def test_theirs__a_program_refused_after_others_is_tried_again_by_a_fresh_bmv2(monkeypatch, tmp_path):
    """Remains of one program must not count against all that follow."""
    switches: list[object] = []

    class Stuck:
        """Takes a program or two, and then none."""

        is_alive = True

        def __init__(self, _folder):
            switches.append(self)
            self.loads = 0

        def start(self):
            pass

        def stop(self):
            self.is_alive = False

        def load(self, program):
            self.loads += 1
            if program == "bad" or self.loads > 2:
                raise bmv2.Bmv2Error("Error in first phase of device update")

    # Stuck stands for BMv2 and p4c is left out: the number of starts is all that counts here.
    monkeypatch.setattr(p4_fuzz, "Bmv2", Stuck)
    monkeypatch.setattr(p4_fuzz.P4cProgram, "compile", staticmethod(lambda source, _folder: source))
    monkeypatch.setattr(Pair, "_run", staticmethod(lambda *_: ObservedRun()))
    pair = Pair(tmp_path)
    for _ in range(3):
        pair._run_bmv2(FuzzCase("x", "good", ""), [])
    assert (len(switches), pair.restarts.total()) == (2, 1)
    with pytest.raises(bmv2.Bmv2Error, match="first phase"):
        pair._run_bmv2(FuzzCase("x", "bad", ""), [])
    assert len(switches) == 3 and pair.restarts == {"Error in first phase of device update": 2}


def test_report__of_a_bmv2_that_was_started_anew_fits_its_schema():
    report = FuzzReport(Counter(dict.fromkeys(("same", "differs", "ours", "theirs", "both"), 0)))
    report.restarts["it ended"] = 2
    output = msgspec.convert(report.to_json(), P4FuzzOutput)
    assert output.restarts == {"it ended": 2}
    assert report.text().splitlines()[1:] == ["simple_switch_grpc was started anew 2 times:", "  2 times: it ended"]
