"""All mistakes of scenario and topology files in one pass, and mutants of real files."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.experiments.language.all_mistakes import SCENARIO_FILLERS, with_all_mistakes
from mrc_testbed.experiments.language.topology import read_topology
from mrc_testbed.experiments.language.yaml_loader import Document, Problem, ScenarioError, read
from mrc_testbed.experiments.runner import plan_runs
from tests.repository import ROOT

FULL_OF_MISTAKES = """\
titel: one link
title: 5
fabric: {planes: 99, racks: 2, spines: 2, hosts_per_rack: 2, spine: 3}
links: {rate: fast}
workload:
  - {stream: h0 h9, name: flow, message: lots, foo: 1, bar: 2}
  - {stream: h1 h1, name: b}
duration: 5s
duration: 6s
variants: {a: {mode: srv7}, b: {seed: 2}}
sweep: {x: []}
faults:
  - {at: 2s, cut: p0-t0-0 p0-t1-7, for: 1s}
  - {at: 2s, cutt: p0-t0-0 p0-t1-0, for: 1s}
  - {cut: p0-t0-0 p0-t1-0, for: 1s}
expect:
  - {metric: rate.flaw, at_least: 0.9, of: baseline}
  - {metric: rate.flow, of: baseline}
  - {metric: rate.$x, at_least: 1}
"""
MISTAKES = [
    (1, 1, "titel", "did you mean title"),
    (2, 8, "title", "valid string"),
    (3, 18, "fabric.planes", "planes = 99: must be 1 to 16"),
    (3, 62, "fabric.spine", "did you mean spines"),
    (4, 15, "links.rate", "rate 'fast'"),
    (6, 14, "workload.0.stream", "no host 'h9'"),
    (6, 42, "workload.0.message", "size 'lots'"),
    (6, 48, "workload.0.foo", "no key 'foo'"),
    (6, 56, "workload.0.bar", "no key 'bar'"),
    (7, 14, "workload.1.stream", "cannot send to itself"),
    (9, 1, "", "duplicate key 'duration'"),
    (10, 22, "variants.a", "makes mode wrong"),
    (10, 39, "variants.b.seed", "cannot differ"),
    (11, 9, "sweep.x", "a list of values"),
    (13, 19, "faults.0.cut", "no node 'p0-t1-7'"),
    (14, 14, "faults.1.cutt", "did you mean cut"),
    (15, 5, "faults.2", "one of at and poisson"),
    (17, 14, "expect.0.metric", "did you mean rate.flow"),
    (18, 5, "expect.1", "give at_least, at_most or about"),
]
FULL_TOPOLOGY = """\
fabric: {planes: 2, rack: 2, hosts_per_rack: 0}
links: {rate: 10X}
planes:
  4: {spines: 1}
  1: {spins: 1, racks: many}
holes: [h99, p0-t0-0 p1-t1-0, 5]
names: {p0-t0-0: p0-t0-1, p7: y}
own_links: [{link: p0-t0-0 p0-t1-0, delay: soon}, {rate: 1M}]
"""
MUTANTS_EACH = 4
SOURCES = sorted((ROOT / "scenarios").glob("*.yaml")) + sorted((ROOT / "examples" / "topologies").glob("*.yaml"))


def problems_of(path: Path) -> list[Problem]:
    with pytest.raises(ScenarioError) as caught:
        plan_runs(read(path), "virtual")
    return caught.value.problems


def test_scenario__all_mistakes_have_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(FULL_OF_MISTAKES)
    problems = problems_of(path)
    assert [(*problem.position, problem.key) for problem in problems] == [mistake[:3] for mistake in MISTAKES]
    assert all(text in problem.text for problem, (*_, text) in zip(problems, MISTAKES, strict=True))


@pytest.mark.parametrize("words", [["run", "--virtual"], ["scenario", "validate"], ["scenario", "check"]])
def test_commands__print_each_mistake_at_its_position(tmp_path: Path, words: list[str]) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(FULL_OF_MISTAKES)
    result = CliRunner().invoke(app, [*words, str(path)])
    assert result.exit_code == 2
    for line, column, key, _ in MISTAKES:
        assert f"{path}:{line}:{column}: {key}" in result.output


def test_topology__all_mistakes_have_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "fabric.yaml"
    path.write_text(FULL_TOPOLOGY)
    result = CliRunner().invoke(app, ["topology", "check", str(path)])
    assert result.exit_code == 1
    positions = [line.removeprefix(f"{path}:").split(": ")[:2] for line in result.output.splitlines()]
    assert positions == [
        ["1:21", "fabric.rack"],
        ["1:46", "fabric.hosts_per_rack"],
        ["2:15", "links.rate"],
        ["4:3", "planes.4"],
        ["5:7", "planes.1.spins"],
        ["5:24", "planes.1.racks"],
        ["6:9", "holes.0"],
        ["6:14", "holes.1"],
        ["6:31", "holes.2"],
        ["7:18", "names.p0-t0-0"],
        ["7:31", "names.p7"],
        ["8:44", "own_links.0.delay"],
        ["8:51", "own_links.1.link"],
    ]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        # A rule about a workload without a name that can be known says nothing.
        ("title: x\nworkload: [{streem: h0 h2}]\nexpect: [{metric: rate.h0-h2, at_least: 1}]\n", ["workload.0"]),
        # A fault with a mistaken link has no action left: that is no second mistake.
        (
            "title: x\nduration: 1s\nworkload: [{stream: h0 h2}]\nfaults: [{at: 0s, cut: {random: linx}}]\n",
            ["faults.0.cut.random"],
        ),
        # Hosts of a fabric whose size is mistaken may exist.
        ("title: x\nduration: 1s\nfabric: {racks: lots}\nworkload: [{stream: h0 h20}]\n", ["fabric.racks"]),
        # A workload whose end is mistaken is not endless.
        ("title: x\nduration: soon\nworkload: [{stream: h0 h2}]\n", ["duration"]),
        # Behind a part that is not there at all, the rest is read.
        ("workload: [{stream: h0 h2, byte: 1}]\n", ["title", "workload.0.byte"]),
        ("title: x\nlink: {}\n", ["link", "workload"]),
    ],
)
def test_consequences__are_no_mistakes(tmp_path: Path, text: str, keys: list[str]) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    assert sorted(problem.key for problem in problems_of(path)) == sorted(keys)


def test_with_all_mistakes__good_document_is_read_once(tmp_path: Path) -> None:
    readings: list[Document] = []
    document = Document(tmp_path / "good.yaml", {"title": "x"})
    assert with_all_mistakes(document, lambda part: readings.append(part) or len(readings), SCENARIO_FILLERS) == 1


def mutant(text: str, dice: random.Random) -> str:
    """A file with up to three of its words, signs or lines changed."""
    for _ in range(dice.randint(1, 3)):
        lines = text.splitlines(keepends=True)
        row = dice.randrange(len(lines))
        words = [*dict.fromkeys(lines[row].replace(",", " ").replace("{", " ").replace("}", " ").split())]
        match dice.randrange(6):
            case 0:
                lines.pop(row)
            case 1:
                lines.insert(dice.randrange(len(lines)), lines[row])
            case 2 if words:
                lines[row] = lines[row].replace(dice.choice(words), dice.choice(STRANGE_WORDS), 1)
            case 3 if words:
                word = dice.choice(words)
                lines[row] = lines[row].replace(word, word[:-1] + dice.choice("xZ0"), 1)
            case 4:
                column = dice.randrange(len(lines[row]))
                lines[row] = lines[row][:column] + dice.choice("{}[]:,-&*#'\"%@\t 9é") + lines[row][column:]
            case _:
                lines[row] = lines[row][dice.randrange(len(lines[row])) :] or "\n"
        text = "".join(lines) or "\n"
    return text


STRANGE_WORDS = (
    "null",
    "-1",
    "1e309",
    "[]",
    "{}",
    "true",
    "h99",
    "p9-t9-9",
    "''",
    "$none",
    "{a: 1}",
    "[1, 2]",
    "99999999",
)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_mutants__end_with_positions_inside_the_file(tmp_path: Path, source: Path) -> None:
    dice, ends = random.Random(source.stem), Counter[str]()
    path = tmp_path / source.name
    for _ in range(MUTANTS_EACH):
        text = mutant(source.read_text(), dice)
        path.write_text(text)
        try:
            if source.parent.name == "topologies":
                read_topology(path)
            else:
                plan_runs(read(path), "virtual")
            ends["good"] += 1
        except ScenarioError as error:
            lines = text.splitlines() or [""]
            for problem in error.problems:
                # The end of a file, where a bracket is missed, is behind its last line.
                assert 1 <= problem.line <= len(lines) + 1, (text, problem)
                width = len(lines[problem.line - 1]) if problem.line <= len(lines) else 0
                assert 1 <= problem.position.column <= width + 1, (text, problem)
            ends["refused"] += 1
    assert ends.total() == MUTANTS_EACH
