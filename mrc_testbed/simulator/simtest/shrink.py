"""A failing schedule made small: greedy delta debugging over the record.

Each step proposes a smaller schedule; it is kept when the same invariant still fails. Order: faults, writes (halves,
then single ones), connections, configuration keys, the network, sizes, the topology. Round and round until nothing
helps any more or `limit` runs are spent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from mrc_testbed.faults import ALL_SWITCHES
from mrc_testbed.simulator.simtest.run import SimResult, simulate
from mrc_testbed.simulator.simtest.schedule import Post, Schedule, ScheduleError

PLAIN_NETWORK = {
    "mode": "srv6",
    "rate_bps": 100e6, "spine_share": 1.0, "delay_s": 200e-6, "jitter_s": 0.0, "queue_bytes": 1 << 20,
    "mark_bytes": None, "trim_bytes": None, "ring_packets": 64, "fifo": True, "wire": False,
}  # fmt: skip


def shrink(
    schedule: Schedule, limit: int = 400, run: Callable[[Schedule], SimResult] = simulate
) -> tuple[Schedule, SimResult, int]:
    """Return (smallest failing schedule found, its result, runs made).

    Raises ValueError when `schedule` does not fail.
    """
    failure = run(schedule)
    if failure.violation is None:
        raise ValueError(f"seed {schedule.seed} does not fail: nothing to shrink")
    invariant, runs, is_smaller = failure.violation.invariant, 1, True
    while is_smaller and runs < limit:
        is_smaller = False
        for propose in (_faults, _posts, _connections, _config, _network, _sizes, _plan):
            candidates = propose(schedule)
            while runs < limit and (candidate := next(candidates, None)) is not None:
                if not _sound(candidate):
                    continue
                result = run(candidate)
                runs += 1
                if result.violation is not None and result.violation.invariant == invariant:
                    schedule, failure, is_smaller = candidate, result, True
                    candidates = propose(schedule)
    return schedule, failure, runs


def _sound(schedule: Schedule) -> bool:
    """Whether all names in a schedule exist."""
    try:
        Schedule.from_json(schedule.to_json())
        plan = schedule.plan_of()
        nodes = {host.name for host in plan.hosts} | {switch.name for switch in plan.switches}
    except ScheduleError:
        return False
    return all(name in nodes or name == ALL_SWITCHES for fault in schedule.faults for name in fault.where.split(" "))


def _without(items: list[Any], first: int, count: int) -> list[Any]:
    return items[:first] + items[first + count :]


def _pieces(items: list[Any]) -> Iterator[list[Any]]:
    """Yield the list without a half, a quarter, ... one item."""
    count = len(items)
    while count > 1:
        count = (count + 1) // 2
        for first in range(0, len(items), count):
            if len(items) > count:
                yield _without(items, first, count)
    if len(items) == 1:
        yield []


def _faults(schedule: Schedule) -> Iterator[Schedule]:
    for faults in _pieces(schedule.faults):
        yield replace(schedule, faults=faults)


def _posts(schedule: Schedule) -> Iterator[Schedule]:
    for posts in _pieces(schedule.posts):
        yield replace(schedule, posts=posts)


def _connections(schedule: Schedule) -> Iterator[Schedule]:
    used_qps = {post.qp for post in schedule.posts}
    for number in range(len(schedule.qps)):
        if number not in used_qps and len(schedule.qps) > 1:
            posts = [replace(post, qp=post.qp - (post.qp > number)) for post in schedule.posts]
            yield replace(schedule, qps=_without(schedule.qps, number, 1), posts=posts)


def _config(schedule: Schedule) -> Iterator[Schedule]:
    for host in schedule.config_of:
        yield replace(schedule, config_of={k: v for k, v in schedule.config_of.items() if k != host})
    for key in schedule.config:
        yield replace(schedule, config={k: v for k, v in schedule.config.items() if k != key})
    for host, keys in schedule.config_of.items():
        for key in keys:
            other_keys = {k: v for k, v in keys.items() if k != key}
            yield replace(schedule, config_of={**schedule.config_of, host: other_keys})


def _network(schedule: Schedule) -> Iterator[Schedule]:
    if schedule.buggify:
        yield replace(schedule, buggify=0.0)
    for key, value in PLAIN_NETWORK.items():
        if schedule.network[key] != value:
            yield replace(schedule, network={**schedule.network, key: value})


def _sizes(schedule: Schedule) -> Iterator[Schedule]:
    for number, post in enumerate(schedule.posts):
        smaller: list[Post] = []
        if post.size > 1:
            smaller += [replace(post, size=1), replace(post, size=post.size // 2)]
        if post.times > 1:
            smaller += [replace(post, times=1), replace(post, times=post.times // 2)]
        if post.imm is not None:
            smaller.append(replace(post, imm=None))
        if post.at:
            smaller.append(replace(post, at=0.0))
        for smaller_post in smaller:
            yield replace(schedule, posts=[*schedule.posts[:number], smaller_post, *schedule.posts[number + 1 :]])


def _plan(schedule: Schedule) -> Iterator[Schedule]:
    for key, value in schedule.plan.items():
        if value > 1:
            yield replace(schedule, plan={**schedule.plan, key: value - 1})
