"""The commands of docs/tutorial.md do what the page says, in the order in which it gives them."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from mrc.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "p4src/README.md"]
PAGE = (ROOT / "docs/tutorial.md").read_text()
COMMANDS = re.findall(r"^    \$ (.+)$", PAGE, re.MULTILINE)
WORDS = re.findall(r"^    mininet> (.+)$", PAGE, re.MULTILINE)
SCENARIO = re.search(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]
MRC = [sys.executable, "-m", "mrc"]


def argv(command):
    """A command of the page for this checkout's interpreter, whatever environment it lives in."""
    first, *rest = shlex.split(command)
    assert first == ".venv/bin/mrc", command
    return [*MRC, *rest]


def test_page__has_both_kinds_of_commands():
    assert len(COMMANDS) >= 4 and COMMANDS[0].startswith("sudo ") and len(WORDS) >= 8
    assert 10 <= len(SCENARIO.splitlines()) <= 14


@pytest.mark.parametrize("page", [str(path.relative_to(ROOT)) for path in PAGES])
def test_commands__of_every_page_exist_with_their_options(page):
    """`mrc WORD --option` as README and its pages give them: the word is there, and so is each option."""
    known = get_command(app).commands
    lines = re.findall(r"^    .*?\bmrc (\w.*)$|`mrc (\w[^`]*)`", (ROOT / page).read_text(), re.MULTILINE)
    for line in (indented or quoted for indented, quoted in lines):
        words = line.split("   ")[0].split(" && ")[0].split()
        found = re.sub(r"[^\w-].*", "", words[0])
        assert found in known, line
        command = known[found]
        for word in words[1:]:
            if word in getattr(command, "commands", {}):
                command = command.commands[word]
        options = {option for param in command.params for option in param.opts} | {"--help"}
        assert {word for word in words if word.startswith("--")} <= options, line


def test_commands__without_root(tmp_path):
    (tmp_path / "mine.yaml").write_text(SCENARIO)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "NO_COLOR": "1"}
    said = ""
    for command in COMMANDS:
        if not command.startswith("sudo "):
            done = subprocess.run(argv(command), cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            said += done.stdout
    assert (tmp_path / "results/mine/report.html").stat().st_size > 10_000
    shown = re.search(r"^    passed  mine.*\n.*$", PAGE, re.MULTILINE)[0]
    assert " ".join(shown.split()) in " ".join(said.split())


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and raw sockets")
def test_words__at_the_prompt_of_mrc_up(tmp_path):
    """All words in one go through a pipe, with pauses where a reader would read."""
    script = []
    for word in WORDS:
        script.append(word)
        if word.startswith(("send ", "link ", "heal")):
            script.append("sh sleep 2")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MRC_RUN_DIR": str(tmp_path / "run"), "NO_COLOR": "1"}
    done = subprocess.run(
        [*MRC, *shlex.split(COMMANDS[0])[2:]], cwd=ROOT, env=env, input="\n".join(script) + "\n", capture_output=True,
        text=True, timeout=300,
    )  # fmt: skip
    out = done.stdout + done.stderr
    assert "0x0101" in out and "assumed_bad" in out, out
    assert re.search(r"active .*T0-T1 link p1-t0-0 p1-t1-1 down", out), out
    assert "arrived bit for bit" in out and "1 undone" in out, out
    assert "no command or node" not in out and "Traceback" not in out, out
