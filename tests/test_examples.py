"""Every example runs as a user would run it.

examples/live_write.py needs hosts: tests/hosts/verbs/test_live.py.
"""

import doctest
import os
import re
import subprocess
import sys

import pytest

from tests.repository import ROOT

LIVE_EXAMPLES = {"live_write.py"}
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


def test_notebook__shows_the_failure_when_it_runs_and_is_kept_without_output(tmp_path, monkeypatch):
    for key in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(key, str(tmp_path))
    nbformat = pytest.importorskip("nbformat", reason="`make test` installs what runs notebooks")
    nbclient = pytest.importorskip("nbclient", reason="`make test` installs what runs notebooks")
    book = nbformat.read(ROOT / "examples" / "cut-a-link.ipynb", as_version=4)
    nbformat.validate(book)
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells)
    nbclient.NotebookClient(book, timeout=120, resources={"metadata": {"path": str(ROOT)}}).execute()
    outputs = [output for cell in cells for output in cell.outputs if output.output_type != "stream"]
    text = "".join(output.text for cell in cells for output in cell.outputs if output.get("name") == "stdout")
    assert "EV 0x0101 assumed_bad" in text and "plane 2 at h2 is up" in text
    assert [output.data.get("text/plain", "")[:15] for output in outputs][1] == "TransferResult("
    assert sum("image/png" in output.data for output in outputs) == 2


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
