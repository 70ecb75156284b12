"""Fifty kinds of mistakes in scenario files.

Each is refused with its line, its cause, and what would have worked.
"""

from __future__ import annotations

import pytest

from mrc_testbed.experiments.language.yaml_loader import ScenarioError, read
from mrc_testbed.experiments.runner import plan_runs
from tests.refusals import may_raise

VALID_TEXT = """\
title: one link
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 2}
workload:
  - {stream: h0 h2, name: flow}
duration: 5s
faults:
  - {at: 2s, cut: p0-t0-0 p0-t1-0, for: 1s}
expect:
  - {metric: rate.flow, at_least: 0.9, of: baseline}
"""
LINES = {"title": 1, "fabric": 2, "workload": 4, "duration": 5, "faults": 7, "expect": 9}

MISTAKES = {
    # name: (text replaced, by what, line of the error, what it has to say)
    "a key that is misspelt": ("title: one", "titel: one", 1, "no key 'titel' here (did you mean title?)"),
    "a dimension that is misspelt": ("spines: 2", "spine: 2", 2, "did you mean spines?"),
    "a title that is missing": ("title: one link\n", "", 1, "title: is needed and missing"),
    "a workload that is missing": ("workload:\n  - {stream: h0 h2, name: flow}\n", "", 1, "workload: is needed"),
    "an empty workload": ("\n  - {stream: h0 h2, name: flow}", " []", 3, "at least 1 item"),
    "a workload of no kind": ("stream: h0 h2", "streem: h0 h2", 4, "one of the keys stream, permutation, incast"),
    "a workload of two kinds": ("stream: h0 h2", "stream: h0 h2, incast: h1", 4, "got stream, incast"),
    "a host that does not exist": ("h0 h2", "h0 h9", 4, "no host 'h9' (has: h0, h1, h2, h3)"),
    "a host sending to itself": ("h0 h2", "h0 h0", 4, "h0 cannot send to itself"),
    "one end only": ("stream: h0 h2", "stream: h0", 4, "workload.0.stream"),
    "a size that is no number": ("name: flow", "message: lots", 4, "size 'lots': give bytes, such as 4096, 64K or 1M"),
    "a size with a wrong unit": ("name: flow", "message: 4Q", 4, "no unit 'Q'"),
    "half a byte": ("name: flow", "message: 0.3K", 4, "not a whole number of bytes"),
    "a time that is no time": ("duration: 5s", "duration: soon", 5, "time 'soon': give seconds"),
    "jobs on hosts that are named": (
        "stream: h0 h2",
        "collective: all_reduce, ranks: [h0, h2], jobs: 2",
        4,
        "give how many `ranks` each has",
    ),
    "jobs on all hosts": ("stream: h0 h2", "collective: all_reduce, jobs: 2", 4, "give how many `ranks` each has"),
    "more jobs than hosts": (
        "stream: h0 h2",
        "collective: all_reduce, ranks: 2, jobs: 3",
        4,
        "3 jobs of 2 ranks, and 4 hosts are free",
    ),
    "an endless workload": ("duration: 5s\n", "", 3, "never ends: give the scenario a duration"),
    "two workloads of one name": (
        "name: flow}",
        "name: flow}\n  - {stream: h1 h3, name: flow}",
        5,
        "'flow' is the name of workload 1 already",
    ),
    "a name with a dot": ("name: flow", "name: a.b", 4, "has no dots"),
    "a fault without an action": ("cut: p0-t0-0 p0-t1-0, for: 1s", "for: 1s", 7, "one action a line, out of cut"),
    "a fault with two actions": ("cut: p0", "drain: 1, cut: p0", 7, "got cut, drain"),
    "a fault without a time": ("at: 2s, ", "", 7, "give one of at and poisson"),
    "a fault after the end": ("at: 2s", "at: 9s", 7, "9s is not before the end of the run (5s)"),
    "a link that does not exist": ("p0-t1-0", "p1-t1-0", 7, "no link between p0-t0-0 and p1-t1-0"),
    "a node that does not exist": ("p0-t1-0", "p0-t1-7", 7, "no node 'p0-t1-7'"),
    "a switch that does not exist": (
        "cut: p0-t0-0 p0-t1-0",
        "power_off: p0-t2-0",
        7,
        "no switch or host 'p0-t2-0' (did you mean p0-t1-0",
    ),
    "a plane that does not exist": ("cut: p0-t0-0 p0-t1-0", "drain: 4", 7, "no plane 4 (has: 0 to 1)"),
    "a share above one": (
        "cut: p0-t0-0 p0-t1-0",
        "loss: {link: p0-t0-0 p0-t1-0, rate: 120%}",
        7,
        "must be 0 to 1, or 0% to 100%",
    ),
    "a loss without a rate": (
        "cut: p0-t0-0 p0-t1-0",
        "loss: {link: p0-t0-0 p0-t1-0}",
        7,
        "give one of rate and pattern",
    ),
    "a pattern that is none": ("cut: p0-t0-0 p0-t1-0", "loss: {link: p0-t0-0 p0-t1-0, pattern: '012'}", 7, "0s and 1s"),
    "a random target without a number": ("p0-t0-0 p0-t1-0", "{random: links}", 7, "give one of count and share"),
    "an end to what has none": ("cut: p0-t0-0 p0-t1-0, for", "reboot: p0-t1-0, for", 7, "makes no sense with reboot"),
    "a metric that does not exist": ("rate.flow", "rate.flaw", 9, "no metric 'rate.flaw' (did you mean rate.flow"),
    "a rule without a bound": ("at_least: 0.9, ", "", 9, "give at_least, at_most or about"),
    "a part of what has no parts": (
        "rate.flow, at_least",
        "lost, from: 1s, at_least",
        9,
        "one number for the whole run",
    ),
    "a variant that does not exist": ("of: baseline", "of: baseline, where: {variant: x}", 9, "no variant 'x'"),
    "a figure of runs that are not there": (
        "duration: 5s",
        "duration: 5s\nfigures: [{metric: rate.flow, where: {variant: x}}]",
        6,
        "no variant 'x'",
    ),
    "a sweep that does not exist": ("h0 h2", "h0 $peer", 4, "$peer: no sweep of that name"),
    "a sweep of nothing": ("duration: 5s", "duration: 5s\nsweep: {x: []}", 6, "a list of values, or {from, to, step}"),
    "a range that goes down": ("duration: 5s", "duration: 5s\nsweep: {x: {from: 4, to: 1, step: 1}}", 6, "goes up"),
    "far too many runs": (
        "duration: 5s",
        "duration: 5s\nrepeat: 50\nsweep: {x: {from: 1, to: 100, step: 1}}",
        7,
        "5000 runs: at most 2000",
    ),
    "a variant that breaks the file": (
        "duration: 5s",
        "duration: 5s\nvariants: {a: {fabric: {planes: 99}}}",
        2,
        "planes = 99: must be 1 to 16",
    ),
    "a variant that changes the seed": (
        "duration: 5s",
        "duration: 5s\nvariants: {a: {seed: 2}}",
        6,
        "seed cannot differ",
    ),
    "a mode that does not exist": ("duration: 5s", "duration: 5s\nmode: srv7", 6, "must be one of 'srv6', 'stev'"),
    "a configuration key that does not exist": (
        "duration: 5s",
        "duration: 5s\ntransport: {config: {cwnd: 3}}",
        6,
        "no key cwnd",
    ),
    "a configuration value out of range": (
        "duration: 5s",
        "duration: 5s\ntransport: {config: {linear_cnt: 99}}",
        6,
        "linear_cnt = 99",
    ),
    "a baseline key that does not exist": (
        "duration: 5s",
        "duration: 5s\ntransport: {kind: rocev2, config: {windw: 3}}",
        6,
        "no key",
    ),
    "no interface": (
        "duration: 5s",
        "duration: 5s\nmeasure: {queues: [p9-t0-0-eth1]}",
        6,
        "no interface 'p9-t0-0-eth1'",
    ),
    "a round trip that cannot be": (
        "duration: 5s",
        "duration: 5s\nlinks: {rtt: 1ms}",
        6,
        "a longer rtt or a smaller pmtu",
    ),
    "other values for a sweep that is none": (
        "duration: 5s",
        "duration: 5s\nlive: {sweep: {x: [1]}}",
        6,
        "no sweep 'x' in the file",
    ),
    "a variant's own live part that breaks the file": (
        "duration: 5s",
        "duration: 5s\nvariants: {a: {live: {fabric: {planes: 99}}}}",
        2,
        "planes = 99: must be 1 to 16",
    ),
    "a key twice": ("duration: 5s", "duration: 5s\nduration: 6s", 6, "duplicate key"),
    "a bracket that stays open": ("{stream: h0 h2, name: flow}", "{stream: h0 h2", 5, "expected ',' or '}'"),
    "a tab": ("duration: 5s", "duration: 5s\n\tmode: srv6", 6, "cannot start any token"),
}


def problems_of(tmp_path, text: str) -> ScenarioError:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    for backend, target in (("virtual", "embedded"), ("live", "embedded"), ("live", "bmv2")):
        with may_raise(ScenarioError) as caught:
            plan_runs(read(path), backend, target=target)
        if caught:
            return caught[0]
    pytest.fail("no mistake was found")


def test_the_file_without_a_mistake_is_good(tmp_path):
    (tmp_path / "mine.yaml").write_text(VALID_TEXT)
    (run,) = plan_runs(read(tmp_path / "mine.yaml"), "virtual").runs
    assert run.scenario.name == "mine"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_told_with_line_cause_and_cure(tmp_path, mistake):
    old_text, new_text, line, says = MISTAKES[mistake]
    assert VALID_TEXT.count(old_text) >= 1
    error = problems_of(tmp_path, VALID_TEXT.replace(old_text, new_text, 1))
    problem_lines = [(problem.line, problem.text) for problem in error.problems]
    assert any(says in str(problem) for problem in error.problems), problem_lines
    assert line in [number for number, _ in problem_lines], problem_lines
    assert str(tmp_path / "mine.yaml") in str(error)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a scenario is a mapping"),
        ("- 1\n- 2\n", "a scenario is a mapping"),
        ('title: "\\xZZ"\n', "mine.yaml:1:11: "),
        ("title: x\nworkload: &a [*a]\n", "mine.yaml:2:11: "),
        ("title: x\nworkload: " + "[" * 60 + "]" * 60, "nested deeper"),
    ],
)
def test_what_is_hardly_yaml_is_refused(tmp_path, text, says):
    assert says in str(problems_of(tmp_path, text))


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "mine.yaml").write_bytes(b"title: \xff\xfe")
    with pytest.raises(ScenarioError, match="not UTF-8 text"):
        read(tmp_path / "mine.yaml")


def test_a_file_that_is_not_there_is_told():
    from pathlib import Path

    with pytest.raises(ScenarioError, match="cannot be read: No such file"):
        read(Path("/nonexistent/x.yaml"))
