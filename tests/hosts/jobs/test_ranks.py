"""Ranks of a job: their lines, their ends, and what is ended with them."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from mrc_testbed.hosts.jobs.ranks import LINE_BYTES, Ranks

PRINTS_BYTES = "import sys; sys.stdout.buffer.write(b'\\xff\\xfe broken\\n' + b'x' * 200000 + b'\\nlast'); sys.exit(3)"
"""Program with bytes that are no text, a line that is too long, and a last line without an end."""


@pytest.fixture
def ranks():
    lines = []
    job = Ranks(lambda rank, text: lines.append((rank.number, text)))
    job.lines = lines
    yield job
    job.end()


def test_lines__that_are_no_text_or_too_long_come_all_the_same(ranks):
    ranks.start("h0", [sys.executable, "-c", PRINTS_BYTES])
    failed = ranks.wait(None)
    ranks.end()
    texts = [text for _, text in ranks.lines]
    assert texts[0] == "\ufffd\ufffd broken" and texts[-1] == "last"
    assert max(map(len, texts)) == LINE_BYTES and "".join(texts).count("x") == 200000
    assert failed is ranks.members[0] and failed.exit_code == 3 and failed.how_it_ended() == "exited with code 3"


def test_exit_code__of_a_killed_rank_is_that_of_a_shell(ranks):
    ranks.start("h0", ["sh", "-c", "kill -9 $$"])
    ranks.wait(None)
    assert ranks.members[0].exit_code == 128 + signal.SIGKILL
    assert ranks.members[0].how_it_ended() == "was killed by SIGKILL" and ranks.members[0].ended_at is not None


def test_wait__gives_the_others_no_longer_than_its_patience(ranks):
    ranks.start("h0", ["sleep", "1000"])
    ranks.start("h1", ["false"])
    failed = ranks.wait(0.0)
    ranks.end()
    assert failed is ranks.members[1]
    assert ranks.members[0].is_stopped and ranks.members[0].exit_code is None


def test_end__lets_a_rank_say_goodbye_and_ends_its_children(ranks):
    stubborn = "trap '' TERM; echo $$; while :; do sleep 1; done"
    ranks.start("h0", ["sh", "-c", 'trap "echo goodbye; exit 0" TERM; sh -c "$0" & wait', stubborn])
    ranks.wait(None, lambda: bool(ranks.lines))
    child = int(ranks.lines[0][1])
    ranks.end(grace_s=30.0)
    assert ranks.lines[-1] == (0, "goodbye") and ranks.members[0].process.returncode == 0
    while Path(f"/proc/{child}/cmdline").exists() and Path(f"/proc/{child}/cmdline").read_bytes():
        time.sleep(0.01)  # without end where it lives on, until the test is timed out


def test_end__does_not_wait_for_output_that_a_child_keeps_open(ranks):
    ranks.start("h0", ["sh", "-c", "setsid sleep 1000 & echo $!"])
    ranks.wait(None)
    ranks.end()
    os.kill(int(ranks.lines[0][1]), signal.SIGKILL)
    assert ranks.members[0].exit_code == 0
