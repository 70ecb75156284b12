"""The campaign of RDMA programs under faults: its words, and how it judges programs that fail."""

from __future__ import annotations

import sys
import time

import pytest

from tools.campaigns import programs


def test_client_words__have_the_address_where_the_program_wants_it():
    pair = programs.ProgramPair("x", ("a",), ("env", "program", "send", "--count", "3"), 3)
    assert pair.client_words("10.0.0.1") == ["env", "program", "send", "10.0.0.1", "--count", "3"]
    assert programs.perftest("ib_write_bw").client_words("h2")[-1] == "h2"


def test_pairs__need_files_for_what_is_built_outside_the_tree(tmp_path):
    names = [pair.name for pair in programs.pairs(None, None)]
    more_names = [pair.name for pair in programs.pairs(tmp_path / "mrc_example", tmp_path / "harness")]
    assert len(more_names) == len(names) + 2 and all(name.startswith("ib_write") for name in names)


@pytest.mark.parametrize(
    ("line", "is_failure"),
    [
        ("[MRC ERROR] Data mismatch at 3", True),
        ("sent: 300 messages of 262144 bytes, 2 bad bytes", True),
        ("Completion with error at client", True),
        (" 65536      1000             203.43", False),
    ],
)
def test_failure_lines__are_told_from_others(line, is_failure):
    assert bool(programs.FAILURE_LINE.search(line)) == is_failure


def test_program_that_does_not_end__is_told(monkeypatch):
    monkeypatch.setattr(programs, "LIMIT_S", 0.0)
    words = [sys.executable, "-c", "import time; time.sleep(60)"]
    with programs._process(words) as process:
        assert "still running" in programs._end(process, time.monotonic())
    assert process.returncode is not None
