"""Commands where something usual is missing or broken: no traceback, and an exit code that says so.

A place is one process, which imports once and forks for each command, so that all places together take seconds.
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

from ipc.errors import UNWRITTEN
from mrc.cli import app
from tests.unprivileged import as_nobody

ROOT = Path(__file__).resolve().parents[3]
SCENARIO = """\
title: a transfer
fabric: {planes: 2, racks: 1, spines: 1, hosts_per_rack: 2}
workload: [{stream: h0 h1, name: flow, bytes: 64K}]
"""
IN_TURN = """
import json, os, sys, traceback
import experiments.command, mrc.cli.app
codes = {}
for name, words in json.loads(sys.argv[1]).items():
    child = os.fork()
    if not child:
        sys.argv = ["mrc", *words]
        try:
            mrc.cli.app.main()
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


@dataclass
class Place:
    """What is unusual, and the exit codes by command that differ from 0."""

    shell: str = 'exec "$@"'
    env: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    code: int = 0
    """Exit code of every command, where it is the same one."""
    codes: dict[str, int] = field(default_factory=dict)
    reader_gone: bool = False
    """Standard output is a pipe that nobody reads, as after `| head -1` had its line."""
    lists: bool = False
    """`scenario list`, too, which takes as long as all others together."""
    draws: bool = True
    """`report` and `p4 check`, too, which load the most."""


OWN = ("MRC_CACHE_DIR", "XDG_CACHE_HOME")
PLACES = {
    "no HOME, no TERM, no standard input, spaces in paths": Place(
        shell='mkdir -p "a b/c d" && cd "a b/c d" && exec "$@" <&-', without=("HOME", "TERM", *OWN)
    ),
    "HOME that is not there, dumb terminal of no width, docstrings and asserts left out": Place(
        env={"HOME": "/proc/nobody", "TERM": "dumb", "COLUMNS": "0", "PYTHONOPTIMIZE": "2"}, without=OWN, draws=False
    ),
    "HOME that is a file, C locale, no folder for temporary files, a time zone that is none": Place(
        env={
            "HOME": "/etc/passwd", "LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0",
            "TMPDIR": "/nonexistent", "TZ": "Nowhere/Odd:99",
        },
        without=OWN, lists=True,
    ),
    "reader of the output gone": Place(reader_gone=True, code=1, codes={"p4": 0}),
    "no standard output, 40 open files": Place(shell='ulimit -n 40 && exec "$@" >&-', lists=True, draws=False),
    "none of the three": Place(shell='exec "$@" <&- >&- 2>&-', draws=False),
    "full standard output": Place(shell='exec "$@" >/dev/full', code=UNWRITTEN, codes={"p4": 0}),
    "deleted folder, no standard error": Place(
        shell='mkdir gone && cd gone && rmdir ../gone && exec "$@" 2>&-', codes={"run here": 1}, draws=False
    ),
}  # fmt: skip
"""Several oddities that do not hide each other are one place: each costs a start of Python and all commands."""
TOO_LONG = "y" * 256
"""Longer than a name of a file may be."""


def commands(place: Place, folder: Path, made: str) -> dict[str, list[str]]:
    """Words of each command, by its name; `made` are results that are there."""
    run = ["run", str(folder / "a.yaml"), "--virtual"]
    listing = {"list": ["scenario", "list"]} if place.lists else {}
    here = {"run here": run} if "run here" in place.codes else {}
    drawing = (
        {"report": ["report", made], "p4": ["p4", "check", str(ROOT / "p4src" / "srv6.p4")]} if place.draws else {}
    )
    return listing | here | drawing | {
        "version": ["--version"],
        "help": ["--help"],
        "show": ["scenario", "show", "e7"],
        "run": [*run, "--out", str(folder / "with space" / "results")],
        "compare": ["compare", made, made],
    }  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of a finished run."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "a.yaml").write_text(SCENARIO)
    words = ["run", "a.yaml", "--virtual", "--out", "made"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "mrc", *words], cwd=folder, check=True, env=env)
    return folder / "made"


@pytest.mark.parametrize("name", PLACES)
def test_commands__in_an_odd_place_end_without_a_traceback(name, results, tmp_path):
    place = PLACES[name]
    (tmp_path / "a.yaml").write_text(SCENARIO)
    env = os.environ | {"PYTHONPATH": str(ROOT), "CODES": str(tmp_path / "codes"), "TRACEBACKS": str(tmp_path / "log")}
    env = {key: value for key, value in (env | place.env).items() if key not in place.without}
    words = commands(place, tmp_path, str(results))
    reader, unread = os.pipe()
    os.close(reader)
    with os.fdopen(unread, "wb") as pipe, open(tmp_path / "said", "wb") as file:
        subprocess.run(
            ["sh", "-c", place.shell, "sh", sys.executable, "-c", IN_TURN, json.dumps(words)],
            cwd=tmp_path, env=env, stdout=pipe if place.reader_gone else file, stderr=file, check=True,
        )  # fmt: skip
    log = tmp_path / "log"
    assert not log.exists(), log.read_text()
    said = (tmp_path / "said").read_text(errors="replace")
    assert "Traceback" not in said and "Exception ignored" not in said, said
    codes = json.loads((tmp_path / "codes").read_text())
    assert codes == dict.fromkeys(words, place.code) | place.codes, said


@pytest.mark.parametrize("words", ["run a.yaml --virtual --out LONG", "report LONG", "merge LONG --out new"])
def test_a_path_that_cannot_be__is_told_in_a_line(results, tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(results.parent)
    monkeypatch.setattr(sys, "argv", ["mrc", *words.replace("LONG", TOO_LONG).split()])
    with pytest.raises(SystemExit) as end:
        app.main()
    said = capsys.readouterr().err.strip()
    assert end.value.code == 1 and said.startswith("mrc: error: ") and said.count("\n") == 0


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="another user's HOME is root's to make")
def test_commands__of_a_user_whose_home_is_somebody_elses_end_in_a_line(tmp_path):
    home = tmp_path / "closed"
    home.mkdir(mode=0o700)
    script = f"""
        import os, sys
        os.environ["HOME"] = {str(home)!r}
        del os.environ["MRC_CACHE_DIR"], os.environ["XDG_RUNTIME_DIR"]
        sys.argv = ["-c", {json.dumps(commands(Place(), Path("/nonexistent"), "/nonexistent"))!r}]
    """
    with tempfile.TemporaryDirectory(prefix="mrc-odd-", dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        told = f'os.environ.update(CODES="{folder}/codes", TRACEBACKS="{folder}/log")'
        asked = as_nobody(
            [sys.executable, "-c", f"{textwrap.dedent(script)}\n{told}\n{IN_TURN}"], Path(folder) / "home"
        )
        out, err = asked.communicate(timeout=120)
        assert not (Path(folder) / "log").exists(), (Path(folder) / "log").read_text()
        assert "Traceback" not in out + err and "Exception ignored" not in out + err, out + err
        codes = json.loads((Path(folder) / "codes").read_text())
    assert codes == {"report": 1, "p4": 0, "version": 0, "help": 0, "show": 0, "run": 1, "compare": 1}, out + err
