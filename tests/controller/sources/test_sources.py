"""Agents and Clustermapper as sources, and the denylist: against servers that speak as they do."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from mrc_testbed.controller.api.rpc_client import ask, pause_s
from mrc_testbed.controller.denylist import DenylistPolicy, entries_for
from mrc_testbed.controller.errors import SwitchError
from mrc_testbed.controller.faults.correlator import FaultCorrelator
from mrc_testbed.controller.p4runtime.provisioner import SwitchState
from mrc_testbed.controller.sources.clustermapper import ClustermapperSource
from mrc_testbed.controller.sources.host_agents import HostAgentSource
from mrc_testbed.controller.sources.queue_drops import QueueDropSource
from mrc_testbed.ipc.rpc import JsonlError, RpcServer
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(planes=1, racks=3, spines=2, hosts_per_rack=2)


class Peer:
    """A server whose answers are given; `asked` is what it was asked."""

    def __init__(self, path, answers, snapshot=()):
        self.path, self.answers, self.asked = path, answers, []
        self._snapshot = list(snapshot)
        self.server = None

    async def __aenter__(self):
        self.path.parent.mkdir(exist_ok=True)
        self.server = await RpcServer.start(self.path, self._answer, on_watch=lambda _: self._snapshot)
        return self

    async def __aexit__(self, *exc):
        await self.server.close()

    def _answer(self, request, connection):
        self.asked.append(request)
        answer = self.answers.get(request["op"])
        if answer is None:
            raise JsonlError(f"no op {request['op']!r}")
        return answer(request) if callable(answer) else answer


@contextlib.asynccontextmanager
async def running(*sources):
    tasks = [asyncio.create_task(source.run()) for source in sources]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(true, what="it did not come about"):
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(what)


def probe(host, target, state, *, sent=40, lost=0):
    kind = "t0" if "-t0-" in target else "t1"
    return {
        "event": "probe", "t": 1.0, "host": host, "plane": 0, "target": target, "kind": kind, "state": state,
        "old": "ok", "loss": lost / sent, "rtt_s": 0.001, "since": 1.0, "sent": sent, "lost": lost, "link": "",
        "back_at": 1.0,
    }  # fmt: skip


def fields_of(event):
    return {key: value for key, value in event.items() if key not in ("event", "t")}


def mapper_of(tmp_path, faults):
    told = []
    return ClustermapperSource(tmp_path, faults, told.append, lambda: faults.changes()), told


# ---- the mapper ---------------------------------------------------------------------------------------------


def test_mapper__snapshot_events_and_counts_reach_the_list(tmp_path):
    async def story():
        faults = FaultCorrelator(PLAN)
        source, told = mapper_of(tmp_path, faults)
        rows = [probe("h0", "p0-t0-0", "down", sent=60, lost=20), probe("h1", "p0-t0-0", "ok", sent=60)]
        snapshot = [probe("h0", "p0-t0-0", "ok"), probe("h0", "p0-t1-0", "ok"), probe("h1", "p0-t0-0", "ok")]
        answers = {"targets": {"targets": rows, "loops": []}}
        async with Peer(tmp_path / "mapper.sock", answers, snapshot) as peer, running(source):
            await until(lambda: len(told) == 3)
            assert source.states == dict.fromkeys(("h0 p0-t0-0", "h0 p0-t1-0", "h1 p0-t0-0"), "ok")
            assert not faults.has_path_symptoms
            peer.server.publish("probe", **fields_of(probe("h0", "p0-t0-0", "down")))
            await until(lambda: faults.has_path_symptoms)
            await until(lambda: any(one["op"] == "targets" for one in peer.asked), "it did not look at the others")
            assert source.to_json() == {"connected": True, "reason": "following", "paths": 3, "bad": 1}

    asyncio.run(story())


@pytest.mark.parametrize(
    "nonsense",
    [
        {"host": "h9"}, {"plane": 7}, {"plane": "x"}, {"target": "p0-t1-9"}, {"kind": None, "target": ""},
        {"state": "odd"},
        {"since": "soon"}, {"loss": None, "state": "lossy"}, {"sent": "many"},
    ],
)  # fmt: skip
def test_mapper__events_of_another_world_are_passed_over(tmp_path, nonsense):
    async def story():
        faults = FaultCorrelator(PLAN)
        source, _ = mapper_of(tmp_path, faults)
        first = {**probe("h0", "p0-t0-0", "ok"), **nonsense}
        async with Peer(tmp_path / "mapper.sock", {}, [first, probe("h1", "p0-t0-0", "ok")]), running(source):
            await until(lambda: "h1 p0-t0-0" in source.states)

    asyncio.run(story())


def test_mapper__a_loop_that_is_sent_for_two_links_is_two_paths(tmp_path):
    """It crosses one T1's link upwards and another's downwards; each has counts of its own, and ends for itself."""
    faults = FaultCorrelator(PLAN)
    source, _ = mapper_of(tmp_path, faults)
    walk = ["h0", "p0-t0-0", "p0-t1-0", "p0-t0-1", "p0-t1-1", "p0-t0-0", "h0"]
    loops = [{**probe("h0", t1, "ok"), "kind": "loop", "walk": walk} for t1 in ("p0-t1-0", "p0-t1-1")]
    for second in range(4):
        rows = [
            {**loop, "sent": before + 10 * second, "lost": (before + 10 * second) // 5}
            for loop, before in zip(loops, (10, 300), strict=True)
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
        source, told = mapper_of(tmp_path, FaultCorrelator(PLAN))
        async with running(source):
            for _ in range(2):
                async with Peer(tmp_path / "mapper.sock", {}, [probe("h0", "p0-t0-0", "ok")]):
                    await until(lambda: source.connected)
                await until(lambda: not source.connected)
        assert (len(told) == 2 and "ended" in source.to_json()["reason"]) or source.to_json()["reason"]

    asyncio.run(story())


# ---- agents -------------------------------------------------------------------------------------------------


def ev_row(ev, state, acked=10, lost=0):
    return {"ev": ev, "plane": 0, "state": state, "sent": acked + lost, "acked": acked, "lost": lost}


def agents_of(tmp_path, faults):
    told = []
    return HostAgentSource(tmp_path, PLAN, faults, told.append, lambda: None), told


def test_agents__a_bad_ev_is_a_dead_path_until_its_last_accuser_is_content(tmp_path):
    async def story():
        faults = FaultCorrelator(PLAN)
        source, told = agents_of(tmp_path, faults)
        health = {"peers": [{"peer": "h2", "evs": [ev_row(0, "assumed_bad"), ev_row(1, "good")]}]}
        async with Peer(tmp_path / "agents" / "h0.sock", {"health": lambda _: health}) as peer, running(source):
            await until(lambda: source._following["h0"].connected)
            event = {"peer": "h2", "ev": 0, "plane": 0, "cause": "a packet was lost without trace"}
            for qpn in (1, 2):
                peer.server.publish("ev", qpn=qpn, old="good", new="assumed_bad", **event)
            await until(lambda: faults.has_path_symptoms)
            peer.server.publish("ev", qpn=1, old="assumed_bad", new="good", **event)
            await until(lambda: len(told) == 3)
            assert faults.has_path_symptoms and source.to_json()["bad"] == 1
            health["peers"][0]["evs"][0] = ev_row(0, "good", acked=12)
            peer.server.publish("ev", qpn=2, old="assumed_bad", new="good", **event)
            await until(lambda: not faults.has_path_symptoms)
            assert told[0] == {
                "host": "h0", "peer": "h2", "ev": 0, "old": "good", "new": "assumed_bad", "plane": 0,
                "cause": event["cause"], "t": told[0]["t"],
            }  # fmt: skip

    asyncio.run(story())


def test_agents__what_was_bad_before_we_came_is_asked_for(tmp_path):
    async def story():
        faults = FaultCorrelator(PLAN)
        source, _ = agents_of(tmp_path, faults)
        health = {"peers": [{"peer": "h4", "evs": [ev_row(1, "assumed_bad")]}]}
        async with Peer(tmp_path / "agents" / "h3.sock", {"health": lambda _: health}), running(source):
            await until(lambda: faults.has_path_symptoms)
            health["peers"][0]["evs"][0] = ev_row(1, "unknown")  # its QP was closed: nobody knows
            await until(lambda: not faults.has_path_symptoms)

    asyncio.run(story())


@pytest.mark.parametrize("rows", [7, [7], [{"peer": "h9", "evs": []}], [{"peer": "h2", "evs": [{"ev": "x"}]}], None])
def test_agents__nonsense_in_health_is_passed_over(tmp_path, rows):
    async def story():
        source, _ = agents_of(tmp_path, FaultCorrelator(PLAN))
        async with Peer(tmp_path / "agents" / "h0.sock", {"health": {"peers": rows}}) as peer, running(source):
            await until(lambda: len(peer.asked) > 0)
            await asyncio.sleep(0.05)
            assert source._following["h0"].connected

    asyncio.run(story())


# ---- the denylist -------------------------------------------------------------------------------------------


def active(*interfaces, silent=()):
    faults = FaultCorrelator(PLAN)
    for interface in interfaces:
        faults.port(interface, "DOWN", source="gnmi x", now=1.0)
    for host, t1 in silent:
        trace = faults.segmenter.t1_probe(host, 0, t1)
        faults.path(f"{host} {t1}", trace, "down", source="mapper", now=1.0)
        for t0_host in ("h0", "h1", "h2", "h4"):
            faults.path(t0_host, faults.segmenter.t0_probe(t0_host, 0), "ok", source="mapper", now=1.5)
        faults.path("other", faults.segmenter.t1_probe("h2", 0, t1), "ok", source="mapper", now=1.5)
    while (due := faults.next_timer()) is not None and due < 10:
        faults.on_timer(due)
    return faults.active()


def test_policy__what_is_denied_by_which():
    faults = active("p0-t0-1-eth3", silent=[("h0", "p0-t1-1")])
    plan = Plan(planes=2, racks=3, spines=2, hosts_per_rack=2)
    assert entries_for(plan, "off", faults) == []
    assert [(e["scope"], e["name"]) for e in entries_for(plan, "lossy", faults)] == [("link", "p0-t0-0 p0-t1-1")]
    assert {(e["scope"], e["name"]) for e in entries_for(plan, "all", faults)} == {
        ("link", "p0-t0-0 p0-t1-1"), ("link", "p0-t0-1 p0-t1-0"),
    }  # fmt: skip
    nic = entries_for(plan, "all", active("p0-t0-1-eth2"))
    assert [(e["scope"], e["name"], e["cause"]) for e in nic] == [
        ("nic-plane", "h3 p0-t0-1", "fault 1: NIC-T0 link h3 p0-t0-1 down")
    ]


def test_policy__never_takes_a_hosts_last_plane():
    faults = active("p0-t0-1-eth2")
    assert entries_for(Plan(planes=1, racks=3, spines=2, hosts_per_rack=2), "all", faults) == []


def test_denylist__told_to_all_agents_and_lifted(tmp_path):
    async def story():
        plan = Plan(planes=2, racks=1, spines=1, hosts_per_rack=2)
        faults = FaultCorrelator(plan)
        source = HostAgentSource(tmp_path, plan, faults, lambda _: None, lambda: None)
        changes = []
        denylist = DenylistPolicy(plan, source, lambda: changes.append(list(denylist.entries)))
        denylist.policy = "all"
        async with Peer(tmp_path / "agents" / "h0.sock", {"denylist": {}}) as one, running(denylist):
            faults.port("p0-t0-0-eth2", "DOWN", source="gnmi x", now=1.0)
            faults.on_timer(2.0)
            denylist.follow(faults.active())
            await denylist.settled()
            assert denylist.to_json()["agents"]["h0"] == "ok"
            assert "No such file" in denylist.to_json()["agents"]["h1"]
            assert one.asked[-1]["entries"][0]["name"] == "h1 p0-t0-0"
            faults.port("p0-t0-0-eth2", "UP", source="gnmi x", now=3.0)
            denylist.follow(faults.active())
            await denylist.settled()
            assert one.asked[-1]["entries"] == [] and len(changes) == 2

    asyncio.run(story())


# ---- lines --------------------------------------------------------------------------------------------------


def test_ask__every_way_to_fail_is_a_jsonl_error(tmp_path):
    async def story():
        with pytest.raises(JsonlError, match="No such file"):
            await ask(tmp_path / "none.sock", "x")
        async with Peer(tmp_path / "a.sock", {"x": {"y": 1}}):
            assert await ask(tmp_path / "a.sock", "x") == {"y": 1}
            with pytest.raises(JsonlError, match="no op 'z'"):
                await ask(tmp_path / "a.sock", "z")

        async def mute(reader, writer):
            await reader.read()

        async def babble(reader, writer):
            writer.write(b"[1, 2\n")
            await writer.drain()
            writer.close()

        for serve, match in ((mute, "no answer in 0.05 s"), (babble, "JSON")):
            server = await asyncio.start_unix_server(serve, str(tmp_path / f"{serve.__name__}.sock"))
            with pytest.raises(JsonlError, match=match):
                await ask(tmp_path / f"{serve.__name__}.sock", "x", timeout_s=0.05)
            server.close()

    asyncio.run(story())


def test_pauses__grow_and_are_not_the_same_for_all():
    pauses = [pause_s(attempt) for attempt in range(50)]
    assert max(pauses[:1]) < 0.13 and all(0.7 < pause < 1.3 for pause in pauses[4:])
    assert len(set(pauses)) == len(pauses)


# ---- switch counters ----------------------------------------------------------------------------------------


class FakeKeeper:
    """A switch whose cells of `drops` are given; an exception among them is raised."""

    def __init__(self, plan, name, cells):
        self.target = SimpleNamespace(switch=plan.switch(name), name=name, gnmi=None)
        self.status = SimpleNamespace(state=SwitchState.VERIFIED, connected=True)
        self.cells_now = cells
        self.asked = []

    async def cells(self, counter, cells):
        self.asked.append((counter, cells))
        if isinstance(self.cells_now, Exception):
            raise self.cells_now
        return dict(self.cells_now)


def test_counters__a_queue_that_drops_is_told_and_old_drops_are_not(tmp_path):
    async def story():
        faults = FaultCorrelator(PLAN)
        provisioner = FakeKeeper(PLAN, "p0-t0-1", {9 << 9 | 1: 500, 8 << 9 | 2: 7})
        source = QueueDropSource([provisioner], faults, lambda: None)
        async with running(source):
            source.look()
            await until(lambda: len(provisioner.asked) == 1)
            assert provisioner.asked[0] == ("drops", [reason << 9 | port for reason in (8, 9) for port in (1, 2, 3, 4)])
            provisioner.cells_now[9 << 9 | 1] += 3
            provisioner.cells_now[9 << 9 | 77] = 3  # a port that nobody has
            source.look()
            await until(lambda: source.ports)
            assert source.to_json()["full_queues"] == ["p0-t0-1-eth1"]
            provisioner.cells_now = SwitchError("it went", retry=True)
            source.look()
            await until(lambda: source.errors == 1)

    asyncio.run(story())
