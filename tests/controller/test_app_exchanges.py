"""Every exchange of the controller with one message lost, doubled or late.

It ends as it ought to, in bounded time.

Messages are those of one story, in which each exchange happens: start, a link that is cut, a black hole, a denylist
that is pushed and lifted, a controller that is started again. JSON lines (agents, Clustermapper) and gRPC messages
(P4Runtime requests and streams, with digests and their acknowledgements; gNMI subscriptions and Gets) each have a
number in it; one of each kind meets its fate.

    python -m tests.controller.test_app_exchanges                    forty of each kind
    python -m tests.controller.test_app_exchanges --first 300        go on with story 300
"""

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from mrc_testbed.controller.problems import ProblemKind
from mrc_testbed.topologies.plan import Plan
from tests.controller.fabric_in_memory import FabricInMemory, in_memory
from tests.controller.sequences import catalog
from tests.jumping_loop import JumpingLoop
from tests.lines_in_memory import Fate

PLAN = Plan(1, 2, 2, 1)
LATE_S = 7.0
"""Delay longer than every pause before a repeated question, and shorter than a request of gRPC."""
SETTLED_S = 60.0
REPORTS = 3
FATES = {"lost": Fate(copies=0), "doubled": Fate(copies=2), "late": Fate(late_s=LATE_S)}


def line_kind(line):
    message = line.message
    server = line.server if line.server == "mapper" else "agent"
    if line.to_server:
        return f"{server} {message['op']}"
    return f"{server} {message['event']} event" if "event" in message else f"{server} answer"


async def story(fabric):
    """Let each exchange happen, and end without a fault; the internal errors that were told on the way."""
    await fabric.start(denylist="all")
    await asyncio.sleep(15.0)
    link = next(link for link in PLAN.links if link.lower.node in fabric.switches)
    fabric.set_link(link, False)
    for _ in range(REPORTS):  # equal ones, of packets that come until the hosts have left the path
        await asyncio.sleep(12.0 / REPORTS)
        fabric.switches[link.lower.node].report(link.lower.number)
    fabric.set_link(link, True)
    await asyncio.sleep(12.0)
    hole = fabric.switches["p0-t1-0"]
    hole.is_black_hole = True
    fabric.apply_changes()
    await asyncio.sleep(12.0)
    hole.is_black_hole = False
    fabric.apply_changes()
    await asyncio.sleep(12.0)
    hole.power(False)
    fabric.apply_changes()
    await asyncio.sleep(3.0)
    hole.power(True)
    fabric.apply_changes()
    await asyncio.sleep(5.0)
    await fabric.stop()
    problems = fabric.controller.problems.all_problems()
    await fabric.start(denylist="all")
    await asyncio.sleep(SETTLED_S)
    problems += fabric.controller.problems.all_problems()
    digest_count = sum(event == "digest" for event, _t, _fields in fabric.events)
    unread = sum(len(switch.unacknowledged_ids) for switch in fabric.switches.values())
    if digest_count < REPORTS - 1 or unread > 1:  # the one that has a fate
        return [f"{digest_count} of {REPORTS} reports of a dead next hop were heard, {unread} never acknowledged"]
    return [problem.text for problem in problems if problem.kind is ProblemKind.INTERNAL]


def play(line_number=None, message_number=None, fate=None):
    """Play a story in which one message has a fate.

    Return (errors left in the end, kinds of all lines, kinds of all gRPC messages).
    """
    folder, loop = Path(tempfile.mkdtemp(prefix="mrc-exchange-")), JumpingLoop()

    async def run(holder):
        fabric = holder.fabric = FabricInMemory(PLAN, catalog("srv6"), "srv6", folder, keeps_lines=True)
        fabric.lines.fate = lambda line: fate if line.number == line_number else Fate()
        fabric.fate = lambda number, _kind: fate if number == message_number else Fate()
        (folder / "log").mkdir()
        errors = await story(fabric) + fabric.differences()
        await fabric.stop()
        return errors, [line_kind(line) for line in fabric.lines.lines], fabric.messages

    state = random.getstate()
    random.seed(1)  # of the pauses between attempts: the same messages in every story
    try:
        with in_memory(loop) as holder:
            return loop.run_until_complete(run(holder))
    finally:
        random.setstate(state)
        loop.close()
        shutil.rmtree(folder)


@cache
def kinds():
    """Numbers of the messages of each kind; `line` or `grpc` and the kind is the key."""
    errors, lines, messages = play()
    assert errors == []
    out = defaultdict(list)
    for medium, names in (("line", lines), ("grpc", messages)):
        for number, name in enumerate(names):
            out[medium, name].append(number)
    return dict(out)


EXCHANGES = [
    ("line", "agent watch"), ("line", "agent answer"), ("line", "agent ev event"), ("line", "agent health"),
    ("line", "agent denylist"), ("line", "mapper watch"), ("line", "mapper answer"), ("line", "mapper probe event"),
    ("line", "mapper targets"),
    ("grpc", "p4runtime stream request arbitration"), ("grpc", "p4runtime stream arbitration"),
    ("grpc", "p4runtime stream digest"), ("grpc", "p4runtime stream request digest_ack"),
    ("grpc", "gnmi subscription request subscribe"), ("grpc", "p4runtime GetForwardingPipelineConfigRequest"),
    ("grpc", "p4runtime GetForwardingPipelineConfigRequest answer"),
    ("grpc", "p4runtime SetForwardingPipelineConfigRequest"),
    ("grpc", "p4runtime SetForwardingPipelineConfigRequest answer"), ("grpc", "p4runtime WriteRequest"),
    ("grpc", "p4runtime WriteRequest answer"), ("grpc", "p4runtime ReadRequest"),
    ("grpc", "p4runtime ReadRequest answer"), ("grpc", "gnmi subscription update"),
    ("grpc", "gnmi subscription sync_response"), ("grpc", "gnmi Get"), ("grpc", "gnmi Get answer"),
]  # fmt: skip
"""Every kind of message that the story has."""


def test_the_story_has_all_exchanges():
    assert set(kinds()) == set(EXCHANGES)


def wrong_with(exchange, number, fate):
    if exchange[0] == "line":
        return play(line_number=number, fate=FATES[fate])[0]
    return play(message_number=number, fate=FATES[fate])[0]


# `make test` loses every second kind: lines, requests, answers and streams are all among them.
@pytest.mark.parametrize(
    "exchange, fate",
    [
        pytest.param(
            exchange,
            fate,
            id=f"{' '.join(exchange)}-{fate}",
            marks=[] if fate == "lost" and number % 2 else [pytest.mark.thorough],
        )
        for number, exchange in enumerate(EXCHANGES)
        for fate in FATES
    ],
)
def test_the_last_message_of_a_kind(exchange, fate):
    """The last one in the first life of the controller.

    Nothing of that kind comes after it to repair what it did.
    """
    numbers = kinds()[exchange]
    assert wrong_with(exchange, numbers[len(numbers) * 3 // 4], fate) == []


def campaign(arguments=None):
    """Play stories of the campaign in their order, and tell of each that ends wrong; 1 if any did."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first story, from 0 (0)")
    parser.add_argument("--count", type=int, default=None, metavar="N", help="how many stories (all that follow)")
    options = parser.parse_args(arguments)
    stories = [
        (exchange, number, fate)
        for exchange, numbers in kinds().items()
        for number in numbers[:: max(1, len(numbers) // 40)]
        for fate in FATES
    ]
    end = len(stories) if options.count is None else min(len(stories), options.first + options.count)
    logging.disable(logging.CRITICAL)
    failed, began = 0, time.monotonic()
    for index in range(options.first, end):
        exchange, number, fate = stories[index]
        if errors := wrong_with(exchange, number, fate):
            failed += 1
            print(f"story {index}: {' '.join(exchange)}, number {number}, {fate}: {'; '.join(errors[:3])}", flush=True)
        if (index + 1) % 10 == 0:
            seconds = time.monotonic() - began
            print(f"{index + 1} of {len(stories)} stories, {failed} wrong, {seconds:.0f} s", flush=True)
    played_count = max(0, end - options.first)
    print(f"{played_count} stories with one message lost, doubled or late, from {options.first}: {failed} ended wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(campaign())
