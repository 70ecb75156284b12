"""A pool of processes: a study that is killed twice is the same, and runs keep their numbers."""

from __future__ import annotations

from multiprocessing import get_context

import pytest

from mrc_testbed.experiments.executors.crew import RunLost
from mrc_testbed.experiments.executors.worker_pool import WorkerPool, _work
from tests.experiments.executors.killed_study import killed_twice, news, planned_runs


@pytest.mark.thorough
def test_local__killed_twice_and_resumed_is_the_same(tmp_path, study_digest):
    assert killed_twice(tmp_path, "local") == study_digest


def test_pool__numbers_are_those_that_were_given(tmp_path):
    run_set = planned_runs(tmp_path)
    with WorkerPool(2) as pool:
        news_queue = pool.hand_in(run_set.runs[:2], numbers=[7, 3])
        answers = dict(news(news_queue, 2))
        pool.hand_in(run_set.runs[2:3], news_queue=news_queue, numbers=[5])
        answers |= dict(news(news_queue, 1))
    names = {number: outcome.name for number, (outcome, _) in answers.items()}
    assert names == {7: run_set.runs[0].name, 3: run_set.runs[1].name, 5: run_set.runs[2].name}
    assert not any(isinstance(answer, RunLost) for answer in answers.values())


def test_worker__ends_silently_when_its_parent_closes_the_pipe(tmp_path, capfd):
    """Once a killed `mrc run` left a traceback: the kernel closes pipes before it wakes those who wait."""
    pipe, worker_pipe = get_context("spawn").Pipe()
    worker = get_context("spawn").Process(target=_work, args=(worker_pipe, str(tmp_path / "stack")), daemon=True)
    (tmp_path / "stack").touch()
    worker.start()
    worker_pipe.close()
    pipe.close()
    worker.join()
    assert (worker.exitcode, capfd.readouterr()) == (1, ("", ""))
