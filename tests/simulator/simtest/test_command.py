"""`mrc simtest` of one seed or file."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mrc_testbed.simulator.simtest import command
from mrc_testbed.simulator.simtest.invariants import INVARIANTS
from mrc_testbed.simulator.simtest.run import simulate
from mrc_testbed.simulator.simtest.schedule import ScheduleError, draw
from tests.simulator.simtest.test_campaign import break_responder


def test_command__a_failing_seed_is_told_shrunk_and_replayed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    break_responder(monkeypatch)
    seed = next(seed for seed in range(100) if simulate(draw(seed)).violation)
    assert command.simtest(1, seed, None, None, 1, False, False) == 1
    assert f"mrc simtest --seed {seed}" in capsys.readouterr().out
    assert command.simtest(1, 0, seed, None, 1, False, False) == 1
    output = capsys.readouterr().out
    assert INVARIANTS["claims"] in output and "--replay" in output and "TransportAck" in output
    [file] = tmp_path.glob("*.json")
    assert command.simtest(1, 0, None, file, 1, False, True) == 1
    assert json.loads(capsys.readouterr().out)["failure"]["invariant"] == "claims"
    monkeypatch.undo()
    assert command.simtest(1, 0, None, file, 1, False, False) == 0


def test_command__a_bad_file_is_an_error_not_a_traceback(tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text("{")
    with pytest.raises(ScheduleError, match=r"bad\.json"):
        command.simtest(1, 0, None, file, 1, False, False)


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_command__ends_with_its_processes_and_without_a_traceback(signal_number: signal.Signals) -> None:
    """Once the processes of a killed campaign went on to the end of their seeds, and left tracebacks."""
    words = ["simtest", "--seeds", "1000000", "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "mrc_testbed", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    children_file = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None and len(children_file.read_text().split()) < 2:
        time.sleep(0.05)
    time.sleep(0.5)  # into their schedules
    process.send_signal(signal_number)
    output = process.communicate()[0]  # all that have its stdout are gone
    assert (process.wait(), output) == (-signal_number, "")
