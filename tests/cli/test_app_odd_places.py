"""Commands where something usual is missing or broken: no traceback, and an exit code that says so.

A place is one process, which imports once and forks for each command, so that all places together take seconds. Those
that another start makes no odder share an interpreter, which forks for each of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mrc_testbed.cli import app
from mrc_testbed.errors import EXIT_UNWRITTEN
from tests.repository import ROOT
from tests.unprivileged import as_nobody

SCENARIO = """\
title: a transfer
fabric: {planes: 2, racks: 1, spines: 1, hosts_per_rack: 2}
workload: [{stream: h0 h1, name: flow, bytes: 64K}]
"""
IN_TURN = """
import json, os, sys, traceback
import mrc_testbed.experiments.command, mrc_testbed.cli.app
from mrc_testbed.console.command_line import begin

def in_turn(commands):
    codes = {}
    for name, words in commands.items():
        child = os.fork()
        if not child:
            sys.argv = ["mrc", *words]
            try:
                begin("mrc_testbed.cli.app", "")
            except SystemExit:
                raise
            except BaseException:
                open(os.environ["TRACEBACKS"], "a").write(traceback.format_exc())
                os._exit(99)
            sys.exit(0)
        codes[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(os.environ["CODES"], "w") as file:
        json.dump(codes, file)
"""
ONE_PLACE = f"{IN_TURN}\nin_turn(json.loads(sys.argv[1]))"
MANY_PLACES = f"""{IN_TURN}
import resource

def use_streams(streams, open_files):
    for number, file in enumerate(streams):
        if file is None:
            os.close(number)
        else:
            opened = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            os.dup2(opened, number)
            os.close(opened)
    if open_files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        errors = "backslashreplace" if name == "stderr" else "strict"
        stream = None if streams[number] is None else open(number, mode, errors=errors, closefd=False)
        setattr(sys, name, stream)  # as the start of Python does
        setattr(sys, f"__{{name}}__", stream)

for place in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        os.environ.update(place["env"])
        os.chdir(place["folder"])
        use_streams(place["streams"], place["open_files"])
        in_turn(place["commands"])
        os._exit(0)
    os.waitpid(child, 0)
"""


@dataclass
class Surroundings:
    """Unusual place of a command, and the exit codes by command that differ from 0."""

    code: int = 0
    """Exit code of every command, where it is the same one."""
    codes: dict[str, int] = field(default_factory=dict)
    draws: tuple[str, ...] = ()
    """`report` and `p4 check`, which load the most; where another start, cache or output matters to them."""
    env: dict[str, str] = field(default_factory=dict)


@dataclass
class OwnStart(Surroundings):
    """A place that Python has to start in."""

    shell: str = 'exec "$@"'
    without: tuple[str, ...] = ()
    reader_gone: bool = False
    """Standard output is a pipe that nobody reads, as after `| head -1` had its line."""


@dataclass
class SharedStart(Surroundings):
    """A place that another start of Python makes no odder.

    An environment, or standard streams that are missing.
    """

    streams: tuple[str | None, str | None, str | None] = ("/dev/null", "SAID", "SAID")
    """Input, output and error; None where closed. What is SAID is kept."""
    open_files: int = 0
    """Limit of files that are open, which has a listing of all scenarios; 0: none."""


CACHE_VARIABLES = ("MRC_CACHE_DIR", "XDG_CACHE_HOME")
DRAWS = ("report", "p4")
STARTS = {
    "no HOME, no TERM, no standard input, spaces in paths": OwnStart(
        shell='mkdir -p "a b/c d" && cd "a b/c d" && exec "$@" <&-',
        without=("HOME", "TERM", *CACHE_VARIABLES),
        draws=DRAWS,
    ),
    "HOME that is a file, C locale, no temporary folder, odd time zone, no docstrings, deleted folder": OwnStart(
        shell='mkdir gone && cd gone && rmdir ../gone && exec "$@"',
        codes={"run here": 1},
        env={
            "HOME": "/etc/passwd",
            "LC_ALL": "C",
            "LANG": "C",
            "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0",
            "TMPDIR": "/nonexistent",
            "TZ": "Nowhere/Odd:99",
            "PYTHONOPTIMIZE": "2",
        },
        without=CACHE_VARIABLES,
        draws=DRAWS,
    ),
    "reader of the output gone": OwnStart(reader_gone=True, draws=("report",)),
    "full standard output": OwnStart(shell='exec "$@" >/dev/full', code=EXIT_UNWRITTEN, draws=("report",)),
}
"""Several oddities that do not hide each other are one place.

Each costs a start of Python and all commands.
"""
SHARED_STARTS = {
    "no standard output, 40 open files": SharedStart(streams=("/dev/null", None, "SAID"), open_files=40),
    "none of the three": SharedStart(streams=(None, None, None)),
    "no standard error": SharedStart(streams=("/dev/null", "SAID", None)),
    "HOME that is not there, dumb terminal of no width": SharedStart(
        env={"HOME": "/proc/nobody", "TERM": "dumb", "COLUMNS": "0", "MRC_CACHE_DIR": ""}
    ),
}
TOO_LONG = "y" * 256
"""Longer than a name of a file may be."""


def commands(surroundings: Surroundings, folder: Path, results: str) -> dict[str, list[str]]:
    """Return the words of each command, by its name; `results` are results that are there."""
    run = ["run", str(folder / "a.yaml"), "--virtual"]
    listing = (
        {"list": ["scenario", "list"]} if isinstance(surroundings, SharedStart) and surroundings.open_files else {}
    )
    run_here = {"run here": run} if "run here" in surroundings.codes else {}
    drawing = {"report": ["report", results], "p4": ["p4", "check", str(ROOT / "p4src" / "srv6.p4")]}
    return (
        listing
        | run_here
        | {name: words for name, words in drawing.items() if name in surroundings.draws}
        | {
            # e15's text has letters that a C locale lacks
            "version": ["--version"],
            "help": ["--help"],
            "show": ["scenario", "show", "e15" if surroundings.env.get("LC_ALL") == "C" else "e7"],
            "run": [*run, "--out", str(folder / "with space" / "results")],
            "compare": ["compare", results, results],
        }
    )


def check(surroundings: Surroundings, folder: Path, words: dict[str, list[str]]) -> None:
    """Hold what a place wrote into its folder against what it should."""
    log = folder / "log"
    assert not log.exists(), log.read_text()
    output = (folder / "said").read_text(errors="replace")
    assert "Traceback" not in output and "Exception ignored" not in output, output
    codes = json.loads((folder / "codes").read_text())
    assert codes == dict.fromkeys(words, surroundings.code) | surroundings.codes, output


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of a finished run."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "a.yaml").write_text(SCENARIO)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["mrc", "run", "a.yaml", "--virtual", "--out", "made"])
        with pytest.raises(SystemExit) as end:
            app.main()
    assert not end.value.code
    return folder / "made"


@pytest.fixture(scope="module")
def shared_start(results, tmp_path_factory):
    """Folder of each place of a shared start, and its commands: one interpreter has gone through all."""
    starts, order = {}, []
    for number, (name, surroundings) in enumerate(SHARED_STARTS.items()):
        folder = tmp_path_factory.mktemp(f"place{number}")
        (folder / "a.yaml").write_text(SCENARIO)
        (folder / "said").touch()
        starts[name] = folder, commands(surroundings, folder, str(results))
        streams = [str(folder / "said") if file == "SAID" else file for file in surroundings.streams]
        env = surroundings.env | {"CODES": str(folder / "codes"), "TRACEBACKS": str(folder / "log")}
        order.append(
            {
                "folder": str(folder),
                "env": env,
                "streams": streams,
                "open_files": surroundings.open_files,
                "commands": starts[name][1],
            }
        )
    command = [sys.executable, "-c", MANY_PLACES, json.dumps(order)]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    return starts


@pytest.mark.thorough
@pytest.mark.parametrize("name", SHARED_STARTS)
def test_commands__with_odd_streams_or_environment_end_without_a_traceback(name, shared_start):
    check(SHARED_STARTS[name], *shared_start[name])


@pytest.mark.thorough
@pytest.mark.parametrize("name", STARTS)
def test_commands__in_an_odd_place_end_without_a_traceback(name, results, tmp_path):
    surroundings = STARTS[name]
    (tmp_path / "a.yaml").write_text(SCENARIO)
    env = os.environ | {"PYTHONPATH": str(ROOT), "CODES": str(tmp_path / "codes"), "TRACEBACKS": str(tmp_path / "log")}
    env = {key: value for key, value in (env | surroundings.env).items() if key not in surroundings.without}
    words = commands(surroundings, tmp_path, str(results))
    reader, unread = os.pipe()
    os.close(reader)
    with os.fdopen(unread, "wb") as pipe, open(tmp_path / "said", "wb") as file:
        subprocess.run(
            ["sh", "-c", surroundings.shell, "sh", sys.executable, "-c", ONE_PLACE, json.dumps(words)],
            cwd=tmp_path,
            env=env,
            stdout=pipe if surroundings.reader_gone else file,
            stderr=file,
            check=True,
        )
    check(surroundings, tmp_path, words)


@pytest.mark.parametrize("words", ["run a.yaml --virtual --out LONG", "report LONG", "merge LONG --out new"])
def test_a_path_that_cannot_be__is_told_in_a_line(results, tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(results.parent)
    monkeypatch.setattr(sys, "argv", ["mrc", *words.replace("LONG", TOO_LONG).split()])
    with pytest.raises(SystemExit) as end:
        app.main()
    output = capsys.readouterr().err.strip()
    assert end.value.code == 1 and output.startswith("mrc: error: ") and output.count("\n") == 0


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="another user's HOME is root's to make")
def test_commands__of_a_user_whose_home_is_somebody_elses_end_in_a_line(tmp_path):
    home = tmp_path / "closed"
    home.mkdir(mode=0o700)
    script = f"""
        import os, sys
        os.environ["HOME"] = {str(home)!r}
        del os.environ["MRC_CACHE_DIR"], os.environ["XDG_RUNTIME_DIR"]
        sys.argv = ["-c", {json.dumps(commands(Surroundings(draws=DRAWS), Path("/nonexistent"), "/nonexistent"))!r}]
    """
    with tempfile.TemporaryDirectory(prefix="mrc-odd-", dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        setting = f'os.environ.update(CODES="{folder}/codes", TRACEBACKS="{folder}/log")'
        process = as_nobody(
            [sys.executable, "-c", f"{textwrap.dedent(script)}\n{setting}\n{ONE_PLACE}"], Path(folder) / "home"
        )
        out, err = process.communicate(timeout=120)
        assert not (Path(folder) / "log").exists(), (Path(folder) / "log").read_text()
        assert "Traceback" not in out + err and "Exception ignored" not in out + err, out + err
        codes = json.loads((Path(folder) / "codes").read_text())
    assert codes == {"report": 1, "p4": 0, "version": 0, "help": 0, "show": 0, "run": 1, "compare": 1}, out + err
