"""Texts of files that a command is given, each put in the way of a path.

Nothing is written outside of what was named.

A scenario may name a file to read, with its user's rights, and a program to run live (docs/security.md); no file
names one to write.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import shutil
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML
from typer.testing import CliRunner

from mrc_testbed.cli.app import app, expected_errors
from mrc_testbed.experiments.language.model import Scenario
from mrc_testbed.experiments.language.yaml_loader import ScenarioError, read
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.experiments.study.model import Study
from mrc_testbed.hosts.agent.regions import Regions
from mrc_testbed.hosts.agent.services.memory import MemoryService, ReceiveFileRequest
from mrc_testbed.topologies.servers.file import Servers
from tests.repository import ROOT

READ = {"FabricPart.file", "TraceWork.trace", "TraceWork.groups", "Study.scenario", "Machine.identity"}
READ |= {"ProgramWork.folder"}
"""Keys that name a file to read, or the folder of a program: any that their user may read."""
ON_MACHINE = {"Machine.checkout", "Machine.python", "Machine.run_dir"}
"""Keys that name folders of a machine of `--servers`, to whose owner's account ssh logs in."""
WORDS = {
    "Scenario": "name title variants sweep live bmv2 virtual scale",
    "Reference": "id figure saw scaled cannot series",
    "Transport": "config",
    "Stream": "name stream pin", "Permutation": "name permutation", "Incast": "name incast sources pins",
    "Collective": "name ranks", "Training": "name ranks", "TraceWork": "name ranks",
    "ProgramWork": "name program ranks",
    "ScenarioFault": "cut one_way silent restore blackhole power_off power_on reboot",
    "Random": "host", "PacketPick": "link into pattern", "LineChange": "link", "FlapPart": "link",
    "Corrupting": "switch", "Measure": "queues", "ScalePart": "sweep variants",
    "Expect": "where why scale metric of compared_to",
    "ExpectFailure": "where why scale failed error", "ExpectIncomplete": "where why scale unfinished",
    "Figure": "x metric of where title",
    "Study": "title scale variants set parameters", "StudyMetric": "metric within", "StudyFigure": "metric x title",
    "Machine": "name address underlay user ssh_options",
}  # fmt: skip
"""Keys of words and names, by part: none is ever a path, whatever it looks like."""


def parts_of(kind: Any, parts: dict[type[BaseModel], None]) -> None:
    """Add a part of a file, and all that can be in it."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if kind not in parts:
            parts[kind] = None
            for field in kind.model_fields.values():
                parts_of(field.annotation, parts)
    elif not isinstance(kind, str):
        for argument in get_args(kind):
            parts_of(argument, parts)


def takes_text(kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return False
    return kind in (str, Any, Path) or any(takes_text(argument) for argument in get_args(kind))


def test_keys_of_files__each_is_known_as_a_path_or_as_words():
    """A new key that takes a text has to say here what it is; a path to write has no place in a file."""
    parts: dict[type[BaseModel], None] = {}
    for root in (Scenario, Study, Servers):
        parts_of(root, parts)
    texts = {
        f"{part.__name__}.{field.alias or name}"
        for part in parts
        for name, field in part.model_fields.items()
        if takes_text(field.annotation)
    }
    words = {f"{part}.{key}" for part, keys in WORDS.items() for key in keys.split()}
    assert texts == READ | ON_MACHINE | words
    assert not (READ | ON_MACHINE) & words


WAYS = [0, *(pytest.param(number, marks=pytest.mark.thorough) for number in (1, 2))]
"""Numbers of the ways out that a text may be."""


# ---- each text in turn ----------------------------------------------------------------------------------------


Keys = tuple[str | int, ...]


def texts_in(value: Any, keys: Keys = ()) -> Iterator[Keys]:
    """Return where the texts are in what JSON or YAML gave."""
    if isinstance(value, dict | list):
        for key, element in value.items() if isinstance(value, dict) else enumerate(value):
            yield from texts_in(element, (*keys, key))
    elif isinstance(value, str):
        yield keys


def names_in(value: Any, keys: Keys = ()) -> Iterator[Keys]:
    """Return where the keys of mappings are.

    Their names could become names of files, as those of variants do.
    """
    if isinstance(value, dict | list):
        for key, element in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(value, dict):
                yield (*keys, key)
            yield from names_in(element, (*keys, key))


def with_text(value: Any, keys: Keys, text: str, *, name: bool = False) -> Any:
    """Return a copy with another text, or another name of a key, in one place."""
    new_value = copy.deepcopy(value)
    container = new_value
    for key in keys[:-1]:
        container = container[key]
    if name:
        container[text] = container.pop(keys[-1])
    else:
        container[keys[-1]] = text
    return new_value


def state(folder: Path, out: Path) -> dict[str, bytes | None]:
    """Return the files and folders, but for those in `out`."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if out not in (path, *path.parents)
    }


def mrc(*words: object) -> int:
    """Return the exit code of a command; any error that is no line for the user is raised."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, (SystemExit, *expected_errors())):
        raise result.exception
    return result.exit_code


@pytest.fixture
def deep(tmp_path):
    """A folder some levels down, from which `../..` leads to where nothing may appear."""
    folder = tmp_path / "a" / "b" / "work"
    folder.mkdir(parents=True)
    (tmp_path / "precious").write_text("precious")
    (folder / "link").symlink_to(tmp_path)
    return folder


def ways_out(folder: Path) -> list[str]:
    """Return the texts that lead out of `folder`, were they paths: up, absolute, by a symbolic link."""
    return ["../../new", str(folder.parents[2] / "new"), "link/new"]


SCENARIO = """\
title: hostile names
fabric: {planes: 2, racks: 2, spines: 1, hosts_per_rack: 1}
links: {rate: 5M}
workload:
  - {stream: h0 h1, name: flow, bytes: 16K}
  - {collective: $kind, name: sum, size: 4K, ranks: [h0, h1], iterations: 1}
variants: {mrc: {}, roce: {transport: {kind: rocev2}}}
sweep: {kind: [all_reduce]}
faults: [{at: 10s, cut: p0-t0-0 p0-t1-0}]
measure: {queues: [p0-t0-0-eth1]}
paper: {id: "1", figure: "2", saw: much, scaled: less}
expect: [{metric: busbw.sum, at_least: 1, why: it is said, where: {variant: mrc}}]
figures: [{metric: busbw.sum, x: kind, title: a figure}]
"""


def dump_yaml(raw: Any, path: Path) -> Path:
    with path.open("w") as file:
        YAML(typ="safe").dump(raw, file)
    return path


@pytest.mark.parametrize("number", WAYS)
def test_scenario__whose_texts_are_paths_writes_in_its_results_alone(deep, number, monkeypatch):
    """All texts, and names of keys, that together may be anything are run and reported."""
    monkeypatch.chdir(deep)
    text, hostile = ways_out(deep)[number], YAML(typ="safe").load(SCENARIO)
    state_before, accepted_keys = state(deep.parents[2], deep), []
    file = deep / "hostile.yaml"
    for keys, name in [*((keys, False) for keys in texts_in(hostile)), *((keys, True) for keys in names_in(hostile))]:
        with contextlib.suppress(ScenarioError, KeyError):  # KeyError: what was above it has another name by now
            candidate = with_text(hostile, keys, text, name=name)
            plan_runs(read(dump_yaml(candidate, file)), "virtual")
            hostile = candidate
            accepted_keys.append(".".join(map(str, keys)))
    assert {"title", "paper.figure", "figures.0.title", "variants.roce"} <= set(accepted_keys)
    dump_yaml(hostile, file)
    mrc("run", file, "--virtual", "--jobs", "1", "--out", "out")
    assert (deep / "out" / "runs").is_dir()
    assert mrc("report", "out") == 0
    mrc("report", "out", "--nccl-tests", "out/nccl")
    mrc("dash", "out")
    assert state(deep.parents[2], deep) == state_before
    assert {path.name for path in deep.iterdir()} == {"hostile.yaml", "link", "out"}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    base = tmp_path_factory.mktemp("made")
    (base / "short.yaml").write_text(SCENARIO)
    mrc("run", base / "short.yaml", "--virtual", "--jobs", "1", "--out", base / "out")
    return base / "out"


def with_seal(text: bytes, old_seal: bytes) -> bytes:
    """Return a run's file with a content of somebody else, and a seal that fits."""
    seal = json.loads(old_seal[:-1])
    seal["sha256"]["json"] = hashlib.sha256(text).hexdigest()
    return text[:-1] + b', "seal": ' + json.dumps(seal).encode() + b"}"


def in_manifest(folder: Path, change: typing.Callable[[Any], Any]) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def in_run(folder: Path, change: typing.Callable[[Any], Any]) -> None:
    """Change a run, with a seal and a line of the manifest that fit."""
    path = min((folder / "runs").glob("*.json"))
    text, _, seal = path.read_bytes().rpartition(b', "seal": ')
    content = json.dumps(change(json.loads(text + b"}"))).encode()
    path.write_bytes(with_seal(content, seal))
    manifest = json.loads((folder / "manifest.json").read_text())
    for run in manifest["runs"]:
        if run["file"] == f"runs/{path.name}":
            run["sha256"]["json"] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("put", [in_manifest, in_run])
def test_results__whose_texts_are_paths_write_in_what_is_named_alone(results, deep, put, number, monkeypatch):
    """Each text of the manifest, or of a run that is sealed anew, alone.

    Then all that a summary takes, together.
    """
    monkeypatch.chdir(deep)
    text, folder = ways_out(deep)[number], deep / "in" / "one"
    shutil.copytree(results, folder)
    raw: list[Any] = []
    put(folder, lambda value: raw.append(value) or value)
    state_before, accepted_keys, kinds = state(deep.parents[2], deep), [], set()
    for keys in texts_in(raw[0]):
        if (kind := tuple(key for key in keys if not isinstance(key, int))) in kinds or "machine" in kind:
            continue  # one of each list
        kinds.add(kind)
        put(folder, lambda _, keys=keys: with_text(raw[0], keys, text))
        if mrc("report", "in", "--summary") == 0:
            accepted_keys.append(keys)
    assert len(accepted_keys) > 3

    def all_at_once(value: Any) -> Any:
        for keys in accepted_keys:
            value = with_text(value, keys, text)
        return value

    put(folder, lambda _: all_at_once(raw[0]))
    for words in (
        ("merge", "in", "--out", "out"),
        ("report", "in"),
        ("report", "in", "--nccl-tests", "out"),
        ("dash", "in/one"),
        ("compare", "in/one", "in/one"),
        ("run", results.parent / "short.yaml", "--virtual", "--resume", "in/one"),
    ):
        mrc(*words)
    assert state(deep.parents[2], deep) == state_before
    assert {path.name for path in deep.iterdir()} <= {"link", "in", "out"}


def test_report__of_a_folder_that_has_a_link_to_another_writes_nothing_there(results, deep, monkeypatch):
    monkeypatch.chdir(deep)
    elsewhere = shutil.copytree(results, deep.parents[2] / "mine")
    shutil.copytree(results, deep / "in" / "one")
    (deep / "in" / "two").symlink_to(elsewhere)
    state_before = state(elsewhere, deep)
    assert mrc("report", "in") == 0
    assert (deep / "in" / "one" / "report.html").exists() and state(elsewhere, deep) == state_before
    assert mrc("report", "in/two") == 0 and (elsewhere / "report.html").exists(), "its own name names it"


@pytest.mark.parametrize("number", WAYS)
def test_topology_file__whose_texts_are_paths_is_read_alone(deep, number, monkeypatch):
    monkeypatch.chdir(deep)
    text = ways_out(deep)[number]
    size = ("--planes", 2, "--racks", 2, "--spines", 1, "--hosts-per-rack", 1)
    assert mrc("plan", *size, "--infragraph", "fabric.json") == 0
    raw = json.loads((deep / "fabric.json").read_text())
    state_before, kinds = state(deep.parents[2], deep), {}
    for keys in texts_in(raw):
        kinds.setdefault(tuple(key for key in keys if not isinstance(key, int)), keys)  # one of each list
    for keys in kinds.values():
        (deep / "hostile.json").write_text(json.dumps(with_text(raw, keys, text)))
        mrc("plan", "--from", "hostile.json", "--json")
    assert len(kinds) > 5
    assert state(deep.parents[2], deep) == state_before
    assert {path.name for path in deep.iterdir()} == {"link", "fabric.json", "hostile.json"}


@pytest.mark.parametrize("number", WAYS)
def test_trace__may_be_anywhere_and_its_words_lead_nowhere(deep, number, monkeypatch):
    monkeypatch.chdir(deep)
    text = ways_out(deep)[number]
    goal = (ROOT / "examples/traces/ring-step.goal").read_text()
    (deep.parents[2] / "new").write_text(goal.replace("l1:", "l_1:"))
    (deep / "hostile.goal").write_text(goal.replace("l1:", f"{text}:"))
    (deep / "groups.json").write_text(json.dumps({text: [0, 1]}))
    raw = {
        "title": "a trace",
        "fabric": {"planes": 2, "racks": 2, "spines": 1, "hosts_per_rack": 2},
        "workload": [{"trace": text, "name": "job", "groups": "groups.json", "compute_scale": 0.001}],
    }
    state_before = state(deep.parents[2], deep)
    for trace in (text, "hostile.goal"):
        file = dump_yaml(with_text(raw, ("workload", 0, "trace"), trace), deep / "trace.yaml")
        mrc("run", file, "--virtual", "--jobs", "1", "--out", "out")
    assert state(deep.parents[2], deep) == state_before
    assert {path.name for path in deep.iterdir()} <= {"link", "hostile.goal", "groups.json", "trace.yaml", "out"}


@pytest.mark.parametrize("path", ["../new", "a/../../new", "link/new", "..", ".", ""])
def test_received_file__with_a_relative_path_stays_in_the_hosts_folder(deep, path):
    service = MemoryService(Regions(None), None, deep)
    state_before = state(deep.parents[2], deep)
    with pytest.raises(Exception, match=r"leaves|is a folder"):
        service.receive_file(ReceiveFileRequest(path=path, length=4096), None)
    assert state(deep.parents[2], deep) == state_before and {entry.name for entry in deep.iterdir()} == {"link"}
