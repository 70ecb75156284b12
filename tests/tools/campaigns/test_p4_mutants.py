"""The P4 compiler on mutants: accepted, or refused with a line, a column and words.

Two dozen mutants each time; `python -m tools.campaigns.p4_mutants --runs 20000` makes more.
"""

from __future__ import annotations

import pytest

from mrc_testbed.switch.compiler.errors import Location, P4Error
from tools.campaigns import p4_mutants
from tools.campaigns.p4_mutants import SAMPLES, campaign, fault_of, fuzz, judge, mutant

LOCATION = Location("a.p4", 3, 5)


def test_mutants__are_accepted_or_refused_with_a_place(tmp_path, capsys):
    counts = campaign(1, 24, tmp_path)
    assert counts["accepted"] + counts["refused"] == 24, capsys.readouterr().out
    assert counts["accepted"] < 12, "the mutations are too mild"


def test_mutant__is_the_same_for_the_same_seed_and_differs_from_its_sample():
    sample = next(path for path in SAMPLES if path.stem == "words")
    texts = [mutant(seed, [sample]) for seed in range(8)]
    assert texts == [mutant(seed, [sample]) for seed in range(8)]
    assert len({*texts, "".join(p4_mutants.tokens(sample))}) == 9


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (P4Error(LOCATION, "x is not declared"), ""),
        (P4Error(LOCATION, "internal error in the compiler (KeyError: 3): please report it"), "internal"),
        (P4Error(None, "the program is nested too deeply"), "no place"),
        (P4Error(Location("a.p4", 3), "x is not declared"), "strange place"),
        (P4Error(Location("<program>", 1, 1), "x is not declared"), "strange place"),
        (P4Error(LOCATION, "?!"), "no words"),
    ],
)
def test_fault__kind_of_a_bad_answer(error, fault):
    assert fault_of(error).partition(":")[0] == fault


def test_findings__are_counted_and_kept(tmp_path, monkeypatch, capsys):
    def break_compiler(_text):
        raise KeyError("nobody thought of this")

    monkeypatch.setattr(p4_mutants, "translate", break_compiler)
    assert judge("x").startswith("traceback: ")
    assert fuzz(7, 2, tmp_path, SAMPLES[:1]) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["seed-7.p4", "seed-7.txt", "seed-8.p4", "seed-8.txt"]
    assert "2 mutants from seed 7" in capsys.readouterr().out
