"""The Clustermapper as a source.

Snapshots, events and counts, against a server that speaks as it does.
"""

import asyncio

import pytest

from mrc_testbed.controller.faults.correlator import FaultCorrelator
from mrc_testbed.controller.sources.clustermapper import ClustermapperSource
from mrc_testbed.topologies.plan import Plan
from tests.controller.sources.peers import Peer, running, wait_until

PLAN = Plan(planes=1, racks=3, spines=2, hosts_per_rack=2)


def probe(host, target, state, *, sent=40, lost=0):
    kind = "t0" if "-t0-" in target else "t1"
    return {
        "event": "probe",
        "t": 1.0,
        "host": host,
        "plane": 0,
        "target": target,
        "kind": kind,
        "state": state,
        "old": "ok",
        "loss": lost / sent,
        "rtt_s": 0.001,
        "since": 1.0,
        "sent": sent,
        "lost": lost,
        "link": "",
        "back_at": 1.0,
    }


def fields_of(event):
    return {key: value for key, value in event.items() if key not in ("event", "t")}


def mapper_of(tmp_path, faults):
    events = []
    return ClustermapperSource(tmp_path, faults, events.append, lambda: faults.changes()), events


def test_mapper__snapshot_events_and_counts_reach_the_list(tmp_path):
    async def story():
        faults = FaultCorrelator(PLAN)
        source, events = mapper_of(tmp_path, faults)
        rows = [probe("h0", "p0-t0-0", "down", sent=60, lost=20), probe("h1", "p0-t0-0", "ok", sent=60)]
        snapshot = [probe("h0", "p0-t0-0", "ok"), probe("h0", "p0-t1-0", "ok"), probe("h1", "p0-t0-0", "ok")]
        answers = {"targets": {"targets": rows, "loops": []}}
        async with Peer(tmp_path / "mapper.sock", answers, snapshot) as peer, running(source):
            await wait_until(lambda: len(events) == 3)
            assert source.states == dict.fromkeys(("h0 p0-t0-0", "h0 p0-t1-0", "h1 p0-t0-0"), "ok")
            assert not faults.has_path_symptoms
            peer.server.publish("probe", **fields_of(probe("h0", "p0-t0-0", "down")))
            await wait_until(lambda: faults.has_path_symptoms)
            await wait_until(
                lambda: any(message["op"] == "targets" for message in peer.requests), "it did not look at the others"
            )
            assert source.to_json() == {"connected": True, "reason": "following", "paths": 3, "bad": 1}

    asyncio.run(story())


@pytest.mark.parametrize(
    "nonsense",
    [
        {"host": "h9"},
        {"plane": 7},
        {"plane": "x"},
        {"target": "p0-t1-9"},
        {"kind": None, "target": ""},
        {"state": "odd"},
        {"since": "soon"},
        {"loss": None, "state": "lossy"},
        {"sent": "many"},
    ],
)
def test_mapper__events_of_another_world_are_passed_over(tmp_path, nonsense):
    async def story():
        faults = FaultCorrelator(PLAN)
        source, _ = mapper_of(tmp_path, faults)
        first = {**probe("h0", "p0-t0-0", "ok"), **nonsense}
        async with Peer(tmp_path / "mapper.sock", {}, [first, probe("h1", "p0-t0-0", "ok")]), running(source):
            await wait_until(lambda: "h1 p0-t0-0" in source.states)

    asyncio.run(story())


def test_mapper__a_loop_that_is_sent_for_two_links_is_two_paths(tmp_path):
    """The loop crosses one T1's link upwards and another's downwards.

    Each has counts of its own, and ends for itself.
    """
    faults = FaultCorrelator(PLAN)
    source, _ = mapper_of(tmp_path, faults)
    walk = ["h0", "p0-t0-0", "p0-t1-0", "p0-t0-1", "p0-t1-1", "p0-t0-0", "h0"]
    loops = [{**probe("h0", t1, "ok"), "kind": "loop", "walk": walk} for t1 in ("p0-t1-0", "p0-t1-1")]
    for second in range(4):
        rows = [
            {**loop, "sent": sent + 10 * second, "lost": (sent + 10 * second) // 5}
            for loop, sent in zip(loops, (10, 300), strict=True)
        ]
        for row in rows if second == 0 else ():
            source.take(row, 2.0)
        source.take_counts(rows, 2.0 + second)
    trials = faults._paths.trials(0, 6.5)
    assert [(trial.sent, trial.lost) for trial in trials.values()] == [(30, 6), (30, 6)]
    source.take({**loops[0], "state": "unknown"}, 7.0)
    assert len(source.states) == 1 and len(faults._paths.trials(0, 7.0)) == 1


def test_mapper__comes_back_after_it_went(tmp_path):
    async def story():
        source, events = mapper_of(tmp_path, FaultCorrelator(PLAN))
        async with running(source):
            for _ in range(2):
                async with Peer(tmp_path / "mapper.sock", {}, [probe("h0", "p0-t0-0", "ok")]):
                    await wait_until(lambda: source.connected)
                await wait_until(lambda: not source.connected)
        assert (len(events) == 2 and "ended" in source.to_json()["reason"]) or source.to_json()["reason"]

    asyncio.run(story())
