"""The bound of work ends what goes on for ever, through every `except Exception`."""

import contextlib

import pytest

from tools.campaigns.work_limit import OutOfTimeError, work_limit


def work_for_ever():
    while True:
        with contextlib.suppress(Exception):
            int("x")


def test_work__without_end_is_ended_whatever_it_catches():
    with pytest.raises(OutOfTimeError), work_limit(0.05):
        work_for_ever()


def test_work__that_ends_is_left_alone():
    with work_limit(0.05):
        pass
    for _ in range(1_000_000):  # more than the bound, behind it
        pass
