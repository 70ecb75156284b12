"""A pool of processes: a study that is killed twice is the same, and runs keep their numbers."""

from __future__ import annotations

from mrc_testbed.experiments.executors.crew import RunLost
from mrc_testbed.experiments.executors.worker_pool import WorkerPool
from tests.experiments.executors.killed_study import killed_twice, news, planned


def test_local__killed_twice_and_resumed_is_the_same(tmp_path, expected):
    assert killed_twice(tmp_path, "local") == expected


def test_pool__numbers_are_those_that_were_given(tmp_path):
    one = planned(tmp_path)
    with WorkerPool(2) as pool:
        begun = pool.hand_in(one.runs[:2], numbers=[7, 3])
        found = dict(news(begun, 2))
        pool.hand_in(one.runs[2:3], news_queue=begun, numbers=[5])
        found |= dict(news(begun, 1))
    names = {number: outcome.name for number, (outcome, _) in found.items()}
    assert names == {7: one.runs[0].name, 3: one.runs[1].name, 5: one.runs[2].name}
    assert not any(isinstance(one, RunLost) for one in found.values())
