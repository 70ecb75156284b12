"""Processes of the fabric are held up while a file crosses: nothing is broken, so no path is blamed.

A process that gets no CPU keeps what came for it in the rings of its ports, and afterwards reads one port after the
other. SIGSTOP does to it what an overloaded machine does, for as long as the test wants.
"""

import os
import signal
import time

import pytest

STALLS_S = (0.05, 0.1, 0.2, 0.4, 1.0)
BETWEEN_S = 0.3
"""Enough for what was held up to be settled, and for traffic of all paths in between."""
QUIET_S = 0.5
"""No event for so long: all have been told."""


@pytest.fixture
def hold_up(fabric):
    """Return `hold_up(name, seconds)`, which takes the CPU from a process or from all switches."""

    def stop(name: str, seconds: float) -> None:
        names = [name]
        if name == "switches":  # one process on the embedded target, one for each of them on BMv2
            names = ["switchd"] if "switchd" in fabric.processes else list(fabric.switches)
        pids = [fabric.processes[name].pid for name in names]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    return stop


@pytest.mark.parametrize(
    "name",
    ["h0", "switches", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("h2", "controller"))],
)
def test_process_held_up__blames_no_path(transfer, fabric, faults, hold_up, name):
    running_transfer = transfer(size=32 << 20)
    with running_transfer.agent.watch("ev", "lost") as watch:
        running_transfer.reach(0.05)
        for seconds in STALLS_S:
            hold_up(name, seconds)
            time.sleep(BETWEEN_S)
        assert not running_transfer.is_over, "the stalls came too late to be seen"
        running_transfer.finish()
        events = []
        while (event := watch.get(QUIET_S)) is not None:
            events.append(event)
    moves = [event for event in events if event["event"] == "ev"]
    losses = [event for event in events if event["event"] == "lost"]
    assert moves == [], f"blamed, and lost: {losses}"
    heuristic_losses = [event for event in events if event["event"] == "lost" and "timer" not in event["cause"]]
    assert heuristic_losses == [], "taken for lost though nothing is"
    assert faults() == []
