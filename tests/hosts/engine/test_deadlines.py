"""Deadlines against a plain minimum, over random changes (deadlines.py)."""

from __future__ import annotations

from random import Random

import pytest

from mrc_testbed.hosts.engine.deadlines import NEVER, Deadlines, TimedItem


def test_first__is_never_without_items_and_after_the_last_is_taken_out():
    deadlines, item = Deadlines(), TimedItem()
    assert deadlines.first() == NEVER
    deadlines.put(item, 3.0)
    assert deadlines.first() == 3.0
    deadlines.put(item, NEVER)
    assert deadlines.first() == NEVER and deadlines.take_due(5.0) == []


def test_take_due__takes_each_once_although_it_was_queued_twice():
    deadlines, item = Deadlines(), TimedItem()
    for due in (2.0, 1.0, 2.0):
        deadlines.put(item, due)
    assert deadlines.first() == 2.0
    assert deadlines.take_due(2.0) == [item]
    assert deadlines.take_due(2.0) == [] and deadlines.first() == NEVER


def test_put__does_not_lose_an_item_that_had_been_taken_out():
    deadlines, item = Deadlines(), TimedItem()
    deadlines.put(item, 1.0)
    deadlines.put(item, NEVER)
    for number in range(65):
        deadlines.put(TimedItem(), 10.0 + number)
    deadlines.put(item, 2.0)
    assert deadlines.first() == 2.0


def test_put__keeps_one_entry_of_an_item_whose_deadline_came_nearer_all_the_time():
    deadlines, item = Deadlines(), TimedItem()
    for number in range(65):
        deadlines.put(item, 100.0 - number)
    assert len(deadlines._heap) == 1 and deadlines.first() == 36.0


def test_postpone__to_a_nearer_time_or_of_an_item_taken_out_is_refused():
    deadlines, item = Deadlines(), TimedItem()
    assert not item.postpone(1.0) and item.postpone(NEVER)
    deadlines.put(item, 2.0)
    assert item.postpone(3.0) and item.postpone(2.5) and not item.postpone(1.0)
    assert deadlines.bound == 2.0 and deadlines.first() == 2.5
    assert not item.postpone(2.0), "first() put it in order"


@pytest.mark.parametrize("seed", range(20))
def test_random_changes__agree_with_a_plain_minimum(seed: int) -> None:
    rng, deadlines = Random(seed), Deadlines()
    items = [TimedItem() for _ in range(rng.choice((1, 2, 30)))]
    due = dict.fromkeys(items, NEVER)
    now = 0.0
    for _ in range(600):
        item = rng.choice(items)
        due[item] = NEVER if rng.random() < 0.1 else now + rng.randrange(20)
        if rng.random() < 0.5 or not item.postpone(due[item]):
            deadlines.put(item, due[item])
        first = min(due.values())
        assert deadlines.bound <= first, "read without a search, it may be early and is never late"
        bound = deadlines.bound_after(now)
        assert bound == first if first <= now else now < bound <= first
        if rng.random() < 0.5:
            assert deadlines.first() == deadlines.bound == first
        if rng.random() < 0.2:
            now += rng.randrange(5)
            due_items = deadlines.take_due(now)
            assert [due[due_item] for due_item in due_items] == sorted(time for time in due.values() if time <= now)
            due.update(dict.fromkeys(due_items, NEVER))
        assert len(deadlines._heap) <= len(items)
        assert all(deadlines._heap[item.heap_index] is item for item in items if item.heap_index >= 0)
