"""Every example runs as a user would run it.

examples/live_write.py needs hosts: tests/hosts/verbs/test_live.py.
"""

import doctest
import json
import os
import re
import subprocess
import sys

import pytest

from tests.repository import ROOT
from tools.manual import notebook

pytestmark = pytest.mark.documents

LIVE_EXAMPLES = {"all_reduce.py", "ddp.py", "fsdp.py", "live_write.py"}
EXPECTED_OUTPUTS = {
    "write.py": "wr_id 1: IBV_WC_SUCCESS, 100000 bytes",
    "write_imm_events.py": "EV 0x102 of port 2: ASSUMED_BAD",
    "ev_profiles.py": "EV 0x203: no answer",
    "loss.py": "rocev2",
}


def test_examples__are_all_tested():
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(EXPECTED_OUTPUTS) | LIVE_EXAMPLES


@pytest.mark.parametrize("name", EXPECTED_OUTPUTS)
def test_example__runs_and_says_what_it_should(name):
    process = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.returncode == 0, process.stderr
    assert EXPECTED_OUTPUTS[name] in process.stdout and process.stdout.endswith("ok\n")


NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook__has_the_outputs_of_its_cells(path):
    """Test without a kernel that the outputs are there, small, and of the cells as they stand."""
    book = json.loads(path.read_text())
    assert book["metadata"].get(notebook.OUTPUTS_OF) == notebook.digest_of(book), "run python -m tools.manual.notebook"
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum("image/png" in output.get("data", {}) for cell in cells for output in cell["outputs"]) == 2
    assert path.stat().st_size < 150_000


def test_notebook__digest_changes_with_a_cell_of_code_alone():
    book = json.loads(NOTEBOOKS[0].read_text())
    digest = notebook.digest_of(book)
    text, code = (next(cell for cell in book["cells"] if cell["cell_type"] == kind) for kind in ("markdown", "code"))
    text["source"] = ["another text"]
    assert notebook.digest_of(book) == digest
    code["source"] = [*code["source"], "\n1"]
    assert notebook.digest_of(book) != digest


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook__shows_when_it_runs_what_is_kept_in_it(path, tmp_path, monkeypatch):
    for key in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(key, str(tmp_path))
    nbformat = pytest.importorskip("nbformat", reason="`make test` installs what runs notebooks")
    pytest.importorskip("nbclient", reason="`make test` installs what runs notebooks")
    kept_book, book = nbformat.read(path, as_version=4), notebook.execute(path)
    nbformat.validate(book)
    kept_text, text = (
        [
            output.text
            for cell in read_book.cells
            for output in cell.get("outputs", [])
            if output.get("name") == "stdout"
        ]
        for read_book in (kept_book, book)
    )
    # Virtual time: the same on any machine.
    assert kept_text == text and "EV 0x0101 assumed_bad" in text[0] and "plane 2 at h2 is up" in text[0]


def test_example__repeats_bit_for_bit():
    command = [sys.executable, str(ROOT / "examples" / "write_imm_events.py")]
    runs = {
        subprocess.run(command, cwd=ROOT, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}).stdout
        for _ in range(2)
    }
    assert len(runs) == 1


PAGES = {"docs/verbs.md": 20, "docs/how-mrc-works.md": 20, "docs/python-api.md": 4, "mrc_testbed/switch/README.md": 10}


@pytest.mark.parametrize("page", PAGES)
def test_documentation__examples_do_what_they_say(page):
    result = doctest.testfile(str(ROOT / page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted >= PAGES[page] and result.failed == 0


BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUN = ("virtual.md",)
"""Pages whose Python runs as it stands.

Doctests are above, docs/p4-development.md has a test of its own, and what stands in docs/scenarios.md is as
tests/resilience/test_links.py, with a fabric and root.
"""


@pytest.mark.parametrize("page", RUN)
def test_documentation__python_runs_as_it_stands(page, capsys):
    for block in BLOCK.findall((ROOT / "docs" / page).read_text()):
        exec(compile(block, page, "exec"), {})
    assert "forwarded" in capsys.readouterr().out


def test_documentation__all_python_is_python():
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    blocks = [(page.name, block) for page in pages for block in BLOCK.findall(page.read_text())]
    assert len(blocks) > 10
    for name, block in blocks:
        if ">>> " not in block:
            compile(block, name, "exec")
