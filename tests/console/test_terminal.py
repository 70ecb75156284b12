"""Output for people: tables as wide as what they are written to, at most; long lines folded.

Nothing is cut off.
"""

from __future__ import annotations

import io
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.console.terminal import PIPE_WIDTH, WIDTH_MIN, Style, console, table, width_of

WORDS = st.text("abcdefgh-:0123", min_size=1, max_size=30)
CELLS = st.lists(WORDS, max_size=6).map(" ".join)


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=6), st.integers(40, 140))
def test_table__fits_and_every_word_is_in_it(rows, width):
    lines = table(Style(width=width), ("one", "two", "three"), rows, right_columns=("two",)).splitlines()
    assert all(len(line) <= width and line == line.rstrip() for line in lines)
    letters = sorted("".join("".join(row) for row in [("one", "two", "three"), *rows]).replace(" ", ""))
    assert sorted("".join(lines).replace(" ", "")) == letters


def test_table__wraps_the_widest_cell_between_words_and_breaks_none():
    row = ("p15-t0-15-eth16", "fcbb:bb00:2000:1000:2001:3000::", "loses everything while its ports are up " * 2, "12 s")
    lines = table(Style(width=100), ("port", "address", "what", "since"), [row], right_columns=("since",)).splitlines()
    assert len(lines) == 3 and max(map(len, lines)) <= 100
    assert lines[1].startswith("p15-t0-15-eth16  fcbb:bb00:2000:1000:2001:3000::  loses everything while")
    assert lines[2].startswith(" " * 50 + "loses everything")
    wrapped_row = re.sub(r" +", " ", " ".join(lines[1:]))
    assert all(word in wrapped_row.split() for word in " ".join(row).split())


def test_table__puts_the_last_columns_below_before_it_breaks_a_word():
    rows = [("0x0f01", "fcbb:bb00:2f00:1f01:2f01:3b00::", "assumed_bad*", "12.345/12.345/12.345", "p15-t1-1")] * 2
    lines = table(
        Style(width=72), ("EV", "address", "state", "RTT ms", "through"), rows, right_columns=("RTT ms",)
    ).splitlines()
    assert lines[:4] == [
        "EV      address                          state",
        "                  RTT ms  through",
        "0x0f01  fcbb:bb00:2f00:1f01:2f01:3b00::  assumed_bad*",
        "    12.345/12.345/12.345  p15-t1-1",
    ]


def test_table__colours_do_not_count():
    plain_table = table(Style(), ("state",), [[("DOWN", "bad")]])
    coloured_table = table(Style(True), ("state",), [[("DOWN", "bad")]])
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured_table) == plain_table == "state\nDOWN"


@given(CELLS, st.integers(40, 100))
def test_fold__keeps_every_word_whole(text, width):
    lines = Style(width=width).fold(f"  {text}").splitlines()
    assert " ".join(lines).split() == text.split() and all(len(line) <= width for line in lines)


def test_fold__indents_what_follows():
    assert Style(width=40).fold("  note: " + "word " * 8 + "end") == (
        "  note: word word word word word word\n      word word end"
    )


@pytest.mark.parametrize(("columns", "width"), [(None, PIPE_WIDTH), ("72", 72), ("7", WIDTH_MIN), ("wide", PIPE_WIDTH)])
def test_width__of_a_pipe_is_always_the_same(monkeypatch, columns, width):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert width_of(io.StringIO()) == width == console().width


@pytest.mark.parametrize(("columns", "width"), [(80, 80), (160, 160), (0, PIPE_WIDTH)])
def test_width__of_a_terminal_is_its_own(monkeypatch, columns, width):
    import fcntl
    import struct
    import termios

    monkeypatch.delenv("COLUMNS", raising=False)
    master, slave = os.openpty()
    with open(slave, "w") as out:
        fcntl.ioctl(out, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        assert width_of(out) == width
    os.close(master)
