"""Signals that end a process: the first one ends it, and no other one disturbs its clean-up."""

import signal

import pytest

from mrc_testbed.ipc.signals import ENDING, SignalExit, terminating


@pytest.mark.parametrize("number", ENDING)
def test_terminating__raises_once_and_lets_the_clean_up_end(number):
    steps = []

    def end_by_signal():
        with terminating():
            try:
                signal.raise_signal(number)
            finally:
                for later_number in ENDING:
                    signal.raise_signal(later_number)
                steps.append("clean")

    for count in (1, 2):  # the next block of the process has a first signal of its own
        with pytest.raises(SignalExit) as end:
            end_by_signal()
        assert end.value.code == 128 + number and steps == ["clean"] * count


def test_terminating__leaves_an_ignored_signal_ignored():
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminating():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, handler)
