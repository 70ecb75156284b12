"""Ranks of the tests that fail, crash or run on: their job says so, and the next one runs."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'mrc-testbed[torch]'")


def run(server, folder, line, **options):
    """Run two ranks that print a word, and a line of Python in the second; return how each ended."""
    program = folder / "ranks.py"
    program.write_text(
        f"import os, signal, sys, time\nprint(sys.argv[1], flush=True)\nif os.environ['RANK'] == '1':\n    {line}\n"
    )
    return server.run(program, ["a word"], [{}] * 2, folder, **options)


@pytest.mark.parametrize(
    "line, words",
    [
        ("raise OSError('no such rank')", "rank 1 ended with 1:\na word\nTraceback (.|\n)*no such rank"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "rank 1 was ended by SIGSEGV:\na word\nFatal (.|\n)*ranks.py.*line 4"),
    ],
)
def test_check__names_the_rank_and_where_it_was(tmp_path, rank_server, line, words):
    first, second = run(rank_server, tmp_path, line)
    assert first.check(0) == "a word\n"
    with pytest.raises(AssertionError, match=words):
        second.check(1)


def test_run__ends_a_rank_that_runs_on(tmp_path, rank_server):
    with pytest.raises(AssertionError, match="rank 1 ran on and was ended by SIGABRT"):
        run(rank_server, tmp_path, "time.sleep(100)", patience_s=0.5)[1].check(1)
    assert [end.check(rank) for rank, end in enumerate(run(rank_server, tmp_path, "pass"))] == ["a word\n"] * 2
