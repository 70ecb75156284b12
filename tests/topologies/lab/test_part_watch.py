"""The watch over a fabric's processes: each death is told once, cured where it can be.

Stand-ins play the processes.
"""

import os
import queue
import signal
import sys
from pathlib import Path

import pytest

from mrc_testbed.ipc.processes import ProcessError, Processes
from mrc_testbed.ipc.rundir import RunDir
from mrc_testbed.topologies.lab import part_watch
from mrc_testbed.topologies.lab.cluster.remote_part import RemotePart, RemoteWork
from mrc_testbed.topologies.lab.part_watch import BEING_STARTED, STAYS_DEAD, PartWatch

FOREVER = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(1000)")
LIMIT_S = 60.0


class WatchRig:
    """Stand-ins under a PartWatch; `news` gets what is told."""

    def __init__(self, processes):
        self.processes, self.news, self.reported_deaths = processes, queue.SimpleQueue(), []
        self.restart = self.spawn
        self.watch = PartWatch(
            processes,
            lambda name: f"no {name} any more",
            lambda name: self.restart(name),
            self.news.put,
            self.reported_deaths.append,
        )

    def spawn(self, name):
        child = self.processes.spawn(name, FOREVER)
        self.processes.wait_ready({name: lambda: "up" in child.tail()}, only_these=True)

    def kill(self, name, number=signal.SIGKILL):
        pid = self.processes[name].pid
        os.kill(pid, number)
        return pid

    def next_notice(self):
        return self.news.get(timeout=LIMIT_S)


@pytest.fixture
def rig(tmp_path):
    with RunDir(tmp_path / "run") as run_dir:
        run_dir.begin()
        processes = Processes(run_dir)
        new_rig = WatchRig(processes)
        for name in ("switchd", "h0", "h1"):
            new_rig.spawn(name)
        yield new_rig
        new_rig.watch.close()
        processes.stop(grace_s=0.1)


def test_death__is_told_with_its_cause_log_and_loss_and_stays(rig):
    rig.watch.start()
    pid = rig.kill("h0", signal.SIGSEGV)
    text = rig.next_notice()
    assert text.startswith(f"h0 (pid {pid}) was killed by SIGSEGV: no h0 any more; {STAYS_DEAD}; end of its log ")
    assert text.endswith("log/h0.log:\n  up")
    (part,) = rig.watch.dead_parts
    assert rig.watch.deaths == rig.reported_deaths == [part] and part.to_json()["is_back"] is False
    assert rig.watch.poll_deaths() == []  # told once


def test_death__is_cured_and_told_so(rig):
    rig.watch.cures = True
    rig.watch.start()
    for _ in range(2):
        pid = rig.kill("switchd")
        assert f"switchd (pid {pid}) was killed by SIGKILL" in (text := rig.next_notice()) and BEING_STARTED in text
        text = rig.next_notice()
        assert f"switchd runs again (pid {rig.processes['switchd'].pid}), " in text
        assert rig.watch.dead_parts == [] and rig.processes["switchd"].alive
        rig.watch._back_at.clear()  # a while passes
    assert [part.is_back for part in rig.watch.deaths] == [True, True]


def test_log__of_an_earlier_life_is_not_told_again(rig):
    rig.watch.cures = True
    rig.watch.start()
    rig.kill("h0")
    rig.next_notice(), rig.next_notice()
    assert rig.processes["h0"].tail() == "  up"


def test_all_at_once__each_is_told_and_each_comes_back(rig):
    rig.watch.cures = True
    rig.watch.start()
    for name in ("switchd", "h0", "h1"):
        rig.kill(name)
    notices = [rig.next_notice() for _ in range(6)]
    assert {text.split()[0] for text in notices if "was killed" in text} == {"switchd", "h0", "h1"}
    assert {text.split()[0] for text in notices if "runs again" in text} == {"switchd", "h0", "h1"}
    assert not rig.watch.dead_parts


def test_death_while_it_starts__is_told_and_not_tried_for_ever(rig):
    starts = []

    def dies(name):
        starts.append(name)
        rig.processes.spawn(name, (sys.executable, "-c", "raise SystemExit('no such device')"))
        rig.processes.wait_ready({name: lambda: False}, only_these=True)

    rig.restart, rig.watch.cures = dies, True
    rig.watch.start()
    rig.kill("h0")
    notices = [rig.next_notice() for _ in range(3)]
    assert starts == ["h0"] and sum("no such device" in text for text in notices) == 2
    assert "h0 could not be started again" in "".join(notices)
    assert rig.watch.dead_parts[0].end_text == "exited with code 1"


def test_relapses__are_given_up(rig, monkeypatch):
    monkeypatch.setattr(part_watch, "RELAPSE_S", 1e9)
    rig.watch.cures = True
    rig.watch.start()
    for _ in range(part_watch.RELAPSES_MAX):
        rig.kill("h0")
        assert BEING_STARTED in rig.next_notice() and "runs again" in rig.next_notice()
    rig.kill("h0")
    assert "is not started again" in rig.next_notice()
    assert rig.watch.dead_parts and not rig.processes["h0"].alive


def test_what_is_asked_to_end__has_not_died(rig):
    rig.watch.start()
    rig.processes.stop("h1", grace_s=0.1)
    rig.kill("h0")
    assert rig.next_notice().startswith("h0 ") and rig.news.empty()
    with pytest.raises(ProcessError, match=r"h0 \(pid \d+\) was killed by SIGKILL"):
        rig.processes.check()
    rig.processes.check("switchd")


def test_first_cause__is_seen_a_little_after_the_error_it_explains(rig):
    rig.kill("switchd")
    assert rig.watch.first_cause().name == "switchd"  # no thread looks on
    assert rig.watch.first_cause(0.0).name == "switchd"


def test_first_cause__is_none_while_all_live(rig):
    assert rig.watch.first_cause(0.05) is None


def test_closed__nothing_is_told_or_started_any_more(rig):
    rig.watch.cures = True
    rig.watch.start()
    rig.watch.close()
    rig.kill("h0")
    rig.processes["h0"].popen.wait(LIMIT_S)
    assert rig.watch.closing and rig.watch.poll_deaths() == [] and rig.news.empty()


def test_death_on_another_machine__is_told_with_its_machine_and_cured(rig):
    """The machine's report of its part is all that there is: no pidfd, no log."""

    def part(pid):
        return RemotePart("h7", " on machine b", pid, Path("/run/there/h7.log"), RemoteWork("h7", dict))

    rig.processes.elsewhere["h7"] = part(12)
    rig.restart = lambda name: rig.processes.elsewhere.update({name: part(13)})
    rig.watch.cures = True
    rig.watch.start()
    rig.processes.elsewhere["h7"].record_end("was killed by SIGKILL", "  one\n  two\n  three\n  four")
    text = rig.next_notice()
    assert text.startswith("h7 (pid 12 on machine b) was killed by SIGKILL: no h7 any more; ") and BEING_STARTED in text
    assert text.endswith("end of its log /run/there/h7.log:\n  two\n  three\n  four")
    assert rig.next_notice().startswith("h7 runs again (pid 13 on machine b), ")
    assert rig.watch.dead_parts == []
