"""Mutants of every key of every kind of rule.

A rule judged as if it had not the key must have another verdict.

A key that a kind of rule has and CASES has not fails.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from mrc_testbed.experiments.language.model import AnyRule, Expect, ExpectFailure, ExpectIncomplete
from mrc_testbed.experiments.metrics.assertions import judge
from mrc_testbed.experiments.metrics.metric_values import Measurement
from tests.experiments import exam

Keys = dict[str, Any]
RULES: TypeAdapter[Any] = TypeAdapter(AnyRule)
CASES: dict[tuple[type[Any], str], tuple[Keys, Keys]] = {
    (Expect, "metric"): ({"metric": "rate.a", "at_least": 1000}, {"metric": "rate.b", "at_least": 1000}),
    (Expect, "at_least"): ({"metric": "rate.a", "at_least": 1100}, {"metric": "rate.a", "at_least": 1200}),
    (Expect, "at_most"): ({"metric": "rate.a", "at_most": 1200}, {"metric": "rate.a", "at_most": 1100}),
    (Expect, "about"): ({"metric": "rate.a", "about": 1124}, {"metric": "rate.a", "about": 1500}),
    (Expect, "within"): (
        {"metric": "rate.a", "about": 1100, "within": "3%"},
        {"metric": "rate.a", "about": 1100, "within": "1%"},
    ),
    (Expect, "of"): (
        {"metric": "rate.a", "at_least": 0.5, "of": "rate.total"},
        {"metric": "rate.a", "at_least": 0.5, "of": "capacity"},
    ),
    (Expect, "from"): (
        {"metric": "rate.a", "from": "6s", "at_least": 1000},
        {"metric": "rate.a", "from": "4s", "at_least": 1000},
    ),
    (Expect, "to"): (
        {"metric": "rate.a", "to": "4s", "at_least": 1300},
        {"metric": "rate.a", "to": "6s", "at_least": 1300},
    ),
    (Expect, "each"): (
        {"metric": "rate.a", "from": "6s", "each": "2s", "at_least": 1000},
        {"metric": "rate.a", "each": "1s", "at_least": 1000},
    ),
    (Expect, "compared_to"): (
        {"metric": "rate.a", "at_most": 2, "of": "rate.a", "where": {"variant": "x"}, "compared_to": {"variant": "x"}},
        {"metric": "rate.a", "at_most": 2, "of": "rate.a", "where": {"variant": "x"}, "compared_to": {"variant": "y"}},
    ),
    (Expect, "where"): (
        {"metric": "rate.a", "at_least": 1000, "where": {"variant": "x"}},
        {"metric": "rate.a", "at_least": 1000, "where": {"variant": "y"}},
    ),
    (Expect, "only"): (
        {"metric": "rate.a", "at_least": 9999, "only": "live"},
        {"metric": "rate.a", "at_least": 9999, "only": ["bmv2", "virtual"]},
    ),
    (Expect, "scale"): (
        {"metric": "rate.a", "at_least": 9999, "scale": "big"},
        {"metric": "rate.a", "at_least": 9999, "scale": "own"},
    ),
    (ExpectFailure, "failed"): ({"failed": "a"}, {"failed": "b"}),
    (ExpectFailure, "at_least"): ({"failed": "a", "at_least": 2}, {"failed": "a", "at_least": 3}),
    (ExpectFailure, "at_most"): ({"failed": "a", "at_most": 2}, {"failed": "a", "at_most": 1}),
    (ExpectFailure, "from"): ({"failed": "a", "from": "1s"}, {"failed": "a", "from": "1.5s"}),
    (ExpectFailure, "to"): ({"failed": "a", "to": "3s"}, {"failed": "a", "to": "1.5s"}),
    (ExpectFailure, "error"): ({"failed": "a", "error": "retries"}, {"failed": "a", "error": "access"}),
    (ExpectFailure, "where"): (
        {"failed": "a", "where": {"variant": "x"}},
        {"failed": "a", "where": {"variant": "y"}},
    ),
    (ExpectFailure, "only"): ({"failed": "a", "only": "virtual"}, {"failed": "a", "only": "live"}),
    (ExpectFailure, "scale"): ({"failed": "a", "scale": "own"}, {"failed": "a", "scale": "big"}),
    (ExpectIncomplete, "unfinished"): ({"unfinished": "a"}, {"unfinished": "b"}),
    (ExpectIncomplete, "where"): (
        {"unfinished": "a", "where": {"variant": "x"}},
        {"unfinished": "a", "where": {"variant": "y"}},
    ),
    (ExpectIncomplete, "only"): ({"unfinished": "a", "only": "virtual"}, {"unfinished": "a", "only": "live"}),
    (ExpectIncomplete, "scale"): ({"unfinished": "a", "scale": "own"}, {"unfinished": "a", "scale": "big"}),
}
"""Kind of rule and key -> keys of a rule that holds, and of one that does not for this key's sake."""
SAYS_NOTHING = {"why", "paper"}
"""Keys that no verdict depends on."""
OTHER_NAME = {"metric": "rate.c", "failed": "c", "unfinished": "c"}
"""Values of keys that a rule must have, in the mutant that does not look at them."""


def passes(folder: Path, kind: type[Any], key: str, rule: Any) -> bool:
    """Return whether all verdicts on the exam's run are good.

    For the keys `where` and `compared_to` a second run stands beside it.
    """
    runs = [("x", {"variant": "x"}, exam.measurement(folder))]
    if kind is ExpectFailure:
        for at_s in (1.2, 2.0):
            runs[0][2].outcome.fail("qp", at_s, "died: nothing got through in 8 retries", "a")
    elif kind is ExpectIncomplete:
        runs[0][2].outcome.fail("unfinished", 10.0, "3 of 4 messages are complete", "a")
    if key in ("where", "compared_to"):
        still_outcome = exam.outcome()
        still_outcome.series.received_bps = {name: [0.0] * exam.SECONDS for name in exam.RATES}
        runs.append(("y", {"variant": "y"}, Measurement(still_outcome, runs[0][2].plan)))
    scenario = runs[0][2].plan.scenario.model_copy(update={"expect": [rule]})
    return all(verdict.passed for verdict in judge(scenario, runs, ("virtual",)))


def keys() -> list[tuple[type[Any], str]]:
    kinds = (Expect, ExpectFailure, ExpectIncomplete)
    return [(kind, key) for kind in kinds for key in sorted(kind.keys()) if key not in SAYS_NOTHING]


@pytest.mark.parametrize(("kind", "key"), keys(), ids=lambda part: part if isinstance(part, str) else part.__name__)
def test_a_rule_without_the_key_has_another_verdict(tmp_path, kind, key):
    rules = [RULES.validate_python(case) for case in CASES[kind, key]]
    assert all(type(rule) is kind for rule in rules)
    assert [passes(tmp_path, kind, key, rule) for rule in rules] == [True, False]
    field = next(name for name, info in kind.model_fields.items() if key in (name, info.alias))
    default = OTHER_NAME.get(key, kind.model_fields[field].default)
    mutants = [rule.model_copy(update={field: default}) for rule in rules]
    assert [passes(tmp_path, kind, key, mutant) for mutant in mutants] != [True, False]


@pytest.mark.parametrize("reference", ["baseline", "capacity", "lost"])
def test_a_share_is_of_what_it_says(tmp_path, reference):
    """The exam's rate of `a`, 1124 bit/s, by its baseline, the NICs' capacity, and packets lost."""
    before_fault = (0.6 * 1200 + 3 * 1500) / 3.6  # from 0.4 s, a tenth of the time before the fault, to 4 s
    divisor = {"baseline": before_fault, "capacity": 4000.0, "lost": 1028.0}[reference]
    rule = RULES.validate_python({"metric": "rate.a", "about": 1124 / divisor, "within": "0.1%", "of": reference})
    assert passes(tmp_path, Expect, "of", rule)
