"""Problems of the controller: reported once, counted, listed until they are over.

A problem ends nothing else.
"""

import asyncio
import logging

import pytest

from mrc_testbed.controller.problems import AGAIN_S, KEEP_OVER, ProblemKind, Problems


@pytest.fixture
def changes():
    return []


@pytest.fixture
def problems(changes):
    return Problems("/run/x/log/controller.log", lambda change, problem: changes.append((change, problem.subject)))


def fail(text="no"):
    raise LookupError(text)


def test_guarded__an_exception_is_told_with_its_place_and_log_and_goes_no_further(problems, changes, caplog):
    with caplog.at_level(logging.ERROR):
        problems.guard("timer", fail)("p0-t0-0")
        problems.guard("timer", fail)("p0-t0-1")
    (problem,) = problems.active()
    assert changes == [("begun", "timer")] and problem.times == problems.count == 2
    assert problem.kind is ProblemKind.INTERNAL
    assert problem.cause.startswith("LookupError at test_problems.py:") and problem.cause.endswith(": p0-t0-1")
    assert "/run/x/log/controller.log" in problem.text and problem.end_time is None
    assert sum(record.exc_info is not None for record in caplog.records) == 1
    assert problem.to_json()["times"] == 2


def test_guarded__what_works_is_not_touched(problems):
    out = []
    problems.guard("timer", out.append)(3)
    assert (out, problems.all_problems()) == ([3], [])


def test_guarded__two_errors_of_one_reaction_are_two_problems(problems):
    problems.guard("timer", fail)()
    problems.guard("timer", lambda: 1 // 0)()
    assert [problem.number for problem in problems.active()] == [1, 2]


def test_keep__a_task_begins_again_after_an_exception_and_not_after_its_end(problems, monkeypatch):
    runs = []

    async def sleep(seconds):
        assert seconds == AGAIN_S

    async def run():
        runs.append(len(runs))
        if len(runs) < 3:
            fail()

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(problems.keep("counters", run))
    assert (runs, [p.times for p in problems.active()]) == ([0, 1, 2], [2])


def test_keep__a_cancelled_task_stays_so(problems):
    async def end():
        task = asyncio.create_task(problems.keep("counters", asyncio.Event().wait))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(end())
    assert problems.all_problems() == []


def test_a_problem_of_a_switch_lasts_until_it_is_over(problems, changes):
    problems.begin(ProblemKind.UNREAD, "p0-t1-0", "no answer", "counters are not read")
    problems.begin(ProblemKind.UNREAD, "p0-t1-0", "still no answer", "counters are not read")
    problems.begin(ProblemKind.UNREAD, "p0-t1-1", "no answer", "counters are not read")
    problems.end(ProblemKind.NOT_PRIMARY, "p0-t1-0")
    problems.end(ProblemKind.UNREAD, "p0-t1-0")
    problems.end(ProblemKind.UNREAD, "p0-t1-0")
    assert changes == [("begun", "p0-t1-0"), ("begun", "p0-t1-1"), ("over", "p0-t1-0")]
    assert [p.subject for p in problems.active()] == ["p0-t1-1"]
    first, second = problems.all_problems()
    assert first.cause == "still no answer" and first.end_time >= first.last_seen and second.end_time is None


def test_those_that_are_over_are_kept_up_to_a_number(problems):
    for number in range(KEEP_OVER + 3):
        problems.begin(ProblemKind.UNREAD, str(number), "no answer", "")
        problems.end(ProblemKind.UNREAD, str(number))
    assert [p.subject for p in problems.all_problems()] == [str(number) for number in range(3, KEEP_OVER + 3)]
