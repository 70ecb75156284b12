"""Every Python that `requires-python` admits, where its interpreter is at hand.

Sources parse, the endpoint works.

The endpoint and its verbs need the standard library alone, so bare interpreters run them.
"""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.repository import ROOT
from tests.test_imports import CODE

MINORS = (10, 11, 12, 13, 14)
PARSE = """
import pathlib, sys
for name in sys.stdin.read().split("\\n"):
    compile(pathlib.Path(name).read_text(encoding="utf-8"), name, "exec", dont_inherit=True)
"""


@cache
def interpreter(minor: int) -> str | None:
    """Return a Python 3.`minor` on PATH or of pyenv that runs; None without one.

    A shim of pyenv may stand for an interpreter that is not installed.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [shutil.which(f"python3.{minor}"), *sorted(map(str, pyenv.glob(f"versions/3.{minor}.*/bin/python")))]
    for candidate in filter(None, candidates):
        process = subprocess.run(
            [candidate, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, text=True
        )
        if process.returncode == 0 and process.stdout.strip() == str(minor):
            return candidate
    return None


@pytest.fixture(params=MINORS, ids=lambda minor: f"3.{minor}")
def python(request):
    return interpreter(request.param) or pytest.skip(f"no python3.{request.param} here")


@pytest.mark.thorough
def test_sources__parse_without_a_warning(python):
    files = [str(path) for folder in (*CODE, "examples", "tests") for path in sorted((ROOT / folder).rglob("*.py"))]
    process = subprocess.run(
        [python, "-W", "error", "-c", PARSE], input="\n".join(files), capture_output=True, text=True, timeout=120
    )
    assert (process.returncode, process.stderr) == (0, "")


@pytest.fixture(scope="module")
def bytecode(tmp_path_factory):
    """Folder of what the interpreters compile, so that the examples of one compile the same modules once."""
    return tmp_path_factory.mktemp("bytecode")


@pytest.mark.parametrize("name", ["write", "write_imm_events", "ev_profiles"])
def test_examples__run_on_the_standard_library(python, name, bytecode):
    env = {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(bytecode), "PATH": os.environ["PATH"]}
    process = subprocess.run(
        [python, str(ROOT / f"examples/{name}.py")], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0 and process.stdout.endswith("ok\n"), process.stderr
