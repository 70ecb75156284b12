"""Findings of simulation testing in the virtual fabric, and findings that it must make in an engine.

The schedules of the second part are those on which the engine once failed: queue pairs that waited for ever, state that
grew, paths blamed for a stall. Each invariant of *invariants.py* that was made for them has one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mrc_testbed.faults import CorruptFault
from mrc_testbed.hosts.engine.events import Status
from mrc_testbed.simulator import Flow, HostProfile, VirtualFabric, run_all
from mrc_testbed.simulator.simtest.campaign import load
from mrc_testbed.simulator.simtest.run import Simulation, simulate
from mrc_testbed.simulator.simtest.schedule import SURE, Post, Schedule, SimFault
from mrc_testbed.simulator.wire import DESTINATION_AT, WireFrame
from mrc_testbed.topologies.plan import Plan

SCHEDULES = Path(__file__).parent / "schedules"


def test_host__engine_is_asked_again_when_an_idle_port_took_the_first_packet() -> None:
    fabric = VirtualFabric(Plan(1, 1, 1, 2), host=HostProfile(ring_packets=2))
    qa, _ = fabric.connect("h0", "h1")
    region = fabric.host("h1").endpoint.register(bytearray(100))
    for _ in range(5):
        qa.post_write(b"x", region.va, region.rkey, now=0.0)
    assert fabric.run_until(lambda: not qa.outstanding(), limit_s=1.0)
    assert qa.counters.packets_sent == 5 and not qa.counters.retransmitted


def test_switch__a_frame_whose_destination_was_damaged_ends_at_the_t1(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame without an outer header went to the last rack, whose T0 sent it up again, for ever."""

    def spoil(self: WireFrame, random: float) -> None:
        self.data[DESTINATION_AT + 15] ^= 0xFF
        self.wires.read_fields(self)

    monkeypatch.setattr(WireFrame, "spoil", spoil)
    fabric = VirtualFabric(Plan(1, 3, 1, 1), wire=True, mode="structured")
    fabric.apply(CorruptFault.on("h1 p0-t0-1", packets=(1,), direction="one_way"))
    flow = Flow(fabric, "h1", "h2", message_bytes=10_000, messages=1)
    run_all(fabric, [flow])
    assert flow.qp.counters.retransmitted == 1
    assert fabric.switches["p0-t1-0"].dropped == {"no_route": 1}
    event_count = fabric.events_done
    fabric.run_for(1.0)
    assert fabric.events_done - event_count < 100, "nothing goes round in circles"


# ---- what every fault must end in: a schedule for each thing that once went wrong in the engine ------------------

NETWORK = {
    "mode": "srv6", "rate_bps": 100e6, "spine_share": 1.0, "delay_s": 200e-6, "jitter_s": 0.0, "queue_bytes": 1 << 20,
    "mark_bytes": None, "trim_bytes": None, "ring_packets": 64, "fifo": True, "wire": False,
}  # fmt: skip


def schedule(posts: list[Post], faults: list[SimFault], **changes: Any) -> Schedule:
    """Return a schedule in which h0 writes to h1 over two planes with two spines each.

    Its configuration is the default one; `changes` replaces parts of the schedule.
    """
    plan = {"planes": 2, "racks": 2, "spines": 2, "hosts_per_rack": 1, **changes.pop("plan", {})}
    network = {**NETWORK, **changes.pop("network", {})}
    config = {"pmtu_bytes": 1024, **changes.pop("config", {})}
    settings = {"seed": 1, "config_of": {}, "qps": [["h0", "h1"]], **changes}
    result = Schedule(plan=plan, network=network, config=config, posts=posts, faults=faults, **settings)
    return Schedule.from_json(result.to_json())  # what it says exists


def holds(schedule: Schedule) -> Simulation:
    """Run a schedule, check that every invariant holds, and return the run."""
    result = simulate(schedule, keep=True)
    assert result.violation is None, result.violation
    assert result.simulation is not None
    return result.simulation


def steady(count: int, every: float, size: int = 1000) -> list[Post]:
    return [Post(0.0, 0, 0, size, None, count, every)]


def port_down(plane: int, time: float, end_s: float | None = None, host: str = "h1") -> SimFault:
    return SimFault("port_down", f"{host} p{plane}-t0-{host[1:]}", time, end_s)


def cut_off(plane: int, time: float) -> list[SimFault]:
    """Let packets of h1 vanish on a plane, both ways, for ever; nobody is notified."""
    return [SimFault("one_way", f"h1 p{plane}-t0-1", time, None, reverse=reverse) for reverse in (False, True)]


STALLS = {
    "the receiver reads its ports one after the other": [SimFault("stall", "h1", 0.020, 0.050, 0.005, "1 0")],
    "the sender does": [SimFault("stall", "h0", 0.020, 0.050, 0.005, "0 1")],
    "both, again and again": [
        SimFault("stall", host, 0.010 + 0.030 * n, 0.022 + 0.030 * n, 0.002, order)
        for n in range(6)
        for host, order in (("h0", "1 0"), ("h1", "0 1"))
    ],
    "a second of the receiver": [SimFault("stall", "h1", 0.020, 1.020, 0.0, "1 0")],
    "a second of the sender": [SimFault("stall", "h0", 0.020, 1.020, 0.030, "1 0")],
}


@pytest.mark.parametrize("spines", [1, 2])
@pytest.mark.parametrize("node", STALLS)
def test_blame__a_stall_convicts_no_path(node: str, spines: int) -> None:
    posts = [Post(0.0, 0, side, 1000, None, 200, 0.001) for side in (0, 1)]
    simulation = holds(schedule(posts, STALLS[node], plan={"spines": spines}, config={"reorder_threshold": SURE}))
    assert simulation.watch.is_calm and all(lane.ended_count == 200 for lane in simulation.lanes.values())


def test_blame__of_a_stall_before_the_first_answer() -> None:
    """No answer was heard yet, no round trip is known, and one port is read.

    That says nothing of the other.
    """
    finding = schedule(
        [Post(0.047155, 0, 0, 5632), Post(0.048931, 1, 0, 1), Post(0.098369, 1, 0, 1767)],
        [
            SimFault("stall", "h0", 0.046458, 0.292832, 0.0, "1 0"),
            SimFault("stall", "h0", 0.121674, 0.429363, 0.005, "1 0"),
        ],
        qps=[["h1", "h0"], ["h1", "h0"]],
        plan={"spines": 4},
        network={"ring_packets": 2},
        kind="stalled",
        config={"pmtu_bytes": 512, "sack_threshold_bytes": 1, "reorder_threshold": SURE},
        seed=40023480,
    )
    assert all(lane.ended_count == len(lane.posted) for lane in holds(finding).lanes.values())


def test_blame__of_a_second_loss_while_nothing_is_heard() -> None:
    """An EV was in doubt after one stall; its next packet expires in one of all switches."""
    times = (0.0, 0.016539, 0.107782, 0.208238, 0.414349, 0.463413, 0.522128, 0.54594)
    stalls = [
        SimFault("stall", "switches", 0.262615, 1.241029, 0.0, "0 1 2 3"),
        SimFault("stall", "h0", 0.00479, 0.168181, 0.002),
    ]
    finding = schedule(
        [Post(time, 0, 1, 1) for time in times],
        stalls,
        plan={"planes": 4, "spines": 4},
        network={"rate_bps": 100e6},
        config={"reorder_threshold": SURE, "pmtu_bytes": 4096},
        kind="stalled",
        seed=60005937,
    )
    assert holds(finding).lanes[0, 1].ended_count == len(times)


def test_blame__is_not_asked_for_when_a_host_is_held_up_again_between_two_of_its_ports() -> None:
    """37 ms between two ports, and what was read of the one is answered.

    More than a quarter of the timer (T/4).
    """
    first = SimFault("stall", "h1", 0.00613, 0.046291, 0.002, "1 0")
    for time, is_calm in ((0.047733, False), (0.0504, True), (0.0200, True)):
        stalls = [first, SimFault("stall", "h1", time, 0.084887, 0.0, "1 0")]
        finding = schedule(steady(20, 0.002), stalls, config={"reorder_threshold": SURE}, kind="stalled")
        assert Simulation(finding).watch.is_calm is is_calm, time


ENDS = {
    "a port down, then a peer without CPU": [port_down(0, 0.005), SimFault("stall", "h1", 0.02, None)],
    "a port down, then a peer that vanishes": [port_down(0, 0.005), SimFault("vanish", "h1", 0.02, None)],
    "a port down, then the rest dies": [port_down(0, 0.005), *cut_off(1, 0.02)],
    "a plane that died silently, then the other port": [*cut_off(1, 0.005), port_down(0, 0.03)],
    "our own port down, then the rest dies": [port_down(0, 0.005, host="h0"), *cut_off(1, 0.02)],
}


@pytest.mark.parametrize("planes", [2, 4])
@pytest.mark.parametrize("ending", ENDS)
def test_ends__with_ports_down_and_a_dead_rest(ending: str, planes: int) -> None:
    down_ports = [port_down(plane, 0.01) for plane in range(2, planes)]
    finding = schedule(steady(30, 0.002, 20_000), ENDS[ending] + down_ports, plan={"planes": planes})
    lane = holds(finding).lanes[0, 0]
    assert lane.failed is Status.RETRY_EXCEEDED and lane.ended_count == len(lane.posted)


@pytest.mark.parametrize("rate", [0.15, 0.3])
def test_ends__a_lossy_plane_beside_a_port_that_is_down_carries_all(rate: float) -> None:
    lossy = [SimFault("loss", "h1 p1-t0-1", 0.0, None, rate, reverse=reverse) for reverse in (False, True)]
    lane = holds(schedule([Post(0.0, 0, 0, 200_000)], [port_down(0, 0.0), *lossy])).lanes[0, 0]
    assert lane.failed is None and lane.ended_count == 1 and lane.progress_at < 20.0


def test_ends__a_stall_that_reads_its_ports_with_gaps_excuses_a_qp_until_it_is_over() -> None:
    """The bound is short, and the gaps of other ports may go on for longer: both ends of the stall count."""
    finding = schedule(
        steady(1, 0.0, 0),
        [SimFault("stall", "h0", 0.0, 0.769849, 0.0005)],
        plan={"planes": 1, "spines": 1},
        network={"delay_s": 0.001},
        config={"timeout_ceiling_s": 0.05},
        config_of={"h0": {"timeout": 15, "linear_cnt": 1, "timeout_phases": "linear"}},
    )
    assert holds(finding).lanes[0, 0].ended_count == 1


@pytest.mark.thorough
def test_memory__one_packet_at_a_time_leaves_nothing_behind() -> None:
    pings = [Post(0.05 * side, 0, side, 7, 5, 3000, 0.1) for side in (0, 1)]
    simulation = holds(schedule(pings, [], kind="long", watched_s=600.0))
    assert all(lane.ended_count == 3000 for lane in simulation.lanes.values())


@pytest.mark.thorough
def test_memory__endless_retries_keep_no_account_of_all_attempts() -> None:
    config = {"exp_cnt": 25, "timeout_ceiling_s": 0.1, "cwnd_bytes": 20_000}
    faults = [SimFault("vanish", "h1", 0.0, None)]
    simulation = holds(schedule([Post(0.0, 0, 0, 20_000)], faults, config=config, kind="long", watched_s=300.0))
    assert simulation.watch.resent > 10_000 and not simulation.finished()


def test_memory__what_cannot_be_told_while_all_ports_are_down_does_not_pile_up() -> None:
    config = {"exp_cnt": 25, "all_ports_down": "wait", "port_status_refresh_s": 0.05}
    faults = [port_down(plane, 0.01, None, "h0") for plane in (0, 1)]
    simulation = holds(schedule(steady(10, 0.01), faults, config=config, kind="long", watched_s=200.0))
    assert not simulation.finished()


@pytest.mark.parametrize("words", ["", "keep", "qpn", "psn", "qpn psn"])
@pytest.mark.parametrize("host", ["h0", "h1"])
def test_ports__a_restarted_process_is_known_to_have_its_port_up(host: str, words: str) -> None:
    faults = [SimFault("restart", host, 0.05, 0.7, 0.1, words), port_down(0, 0.02, 0.5, host)]
    posts = [Post(time, 0, side, 3000, None, 20, 0.005) for time in (0.0, 0.75) for side in (0, 1)]
    simulation = holds(schedule(posts, faults))
    assert all(lane.ended_count == 20 for lane in simulation.lanes.values()), "the second life works"


def test_restart__what_comes_seconds_late_from_the_old_life_changes_nothing() -> None:
    late_faults = [
        SimFault("late", f"h0 p{p}-t0-0", 0.0, 2.0, 1.5, twin, r) for p, twin in ((0, ""), (1, "twin")) for r in (0, 1)
    ]
    posts = [Post(time, 0, side, 3000, 7, 30, 0.005) for time in (0.0, 0.3, 1.5) for side in (0, 1)]
    simulation = holds(
        schedule(posts, [SimFault("restart", "h1", 0.05, 0.25, 0.1, "qpn"), *late_faults], config={"max_wimm": 8})
    )
    assert all(lane.ended_count == 60 for lane in simulation.lanes.values())


def test_account__what_arrived_beyond_the_bitmap_and_expired_is_not_counted_twice() -> None:
    """The byte counter has told of it, the bitmap, which begins at cack, has not.

    Its timer runs out all the same.
    """
    finding = schedule(
        [Post(0.0, 0, 0, 1100, None, 150, 0.0001)],
        [SimFault("one_way", "h0 p1-t0-0", 0.0001, 0.01)],
        kind="window",
        plan={"planes": 3},
        network={"rate_bps": 20e6, "delay_s": 5e-5},
        config={"timeout": 13, "bitmap_base": "cack"},
    )
    assert holds(finding).lanes[0, 0].ended_count == 150


@pytest.mark.parametrize("file", sorted(SCHEDULES.glob("*.json")), ids=lambda file: file.stem)
def test_drawn__schedules_that_once_failed_and_need_all_their_parts(file: Path) -> None:
    """A parked QP beside one that is heard (30010558).

    Refusals of copies of what had arrived, under two black holes (70020728); a packet that left at the end of a stall
    of all switches and was answered before one that waited through it (136606); senders that one answer for an old
    flight left next to no window, and those cut once a round trip for one flight (90021407, 90051651, 90056342); a wait
    for a port of the peer that is up, where its update was lost (41000295, which the invariant took for a stuck QP).
    Files: a seed draws another schedule when a kind is added.
    """
    holds(load(file))


@pytest.mark.parametrize("exp_cnt", [5, 25])
def test_neighbours__a_dead_qp_does_not_stop_the_other(exp_cnt: int) -> None:
    config = {"cc_algorithm": "uet-1.0-nscc", "link_rate_bps": 20e6, "base_rtt_s": 0.003, "exp_cnt": exp_cnt}
    finding = schedule(
        [Post(0.0, number, 0, 5_000_000) for number in (0, 1)],
        [SimFault("destroy", "h1", 0.3, 0.3, 1.0)],
        qps=[["h0", "h1"], ["h0", "h1"]],
        config=config,
        network={"rate_bps": 20e6},
        kind="neighbours",
        watched_s=8.0,
    )
    simulation = Simulation(finding)
    counters = simulation.lanes[0, 0].receiver_qp.counters
    simulation.fabric.run_until(0.3)
    rate = counters.bytes_received / 0.3
    simulation.fabric.run_until(1.3)
    bytes_received = counters.bytes_received
    simulation.fabric.run_until(2.3)
    assert counters.bytes_received - bytes_received > 0.9 * rate, "it keeps its rate, at least"


@pytest.mark.parametrize("clear_bits", ["unknown", "lost"])
@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize("trip_s", [0.15, 0.3])
def test_learns__a_round_trip_above_the_timer(trip_s: float, planes: int, clear_bits: str) -> None:
    finding = schedule(
        [Post(0.0, 0, 0, 400 * 1024)],
        [],
        plan={"planes": planes, "spines": 1},
        kind="slow",
        network={"delay_s": trip_s / 8},
        config={"clear_bits": clear_bits},
    )
    simulation = holds(finding)
    lane = simulation.lanes[0, 0]
    assert lane.ended_count == 1 and simulation.watch.sent >= 400
    assert simulation.watch.resent <= 5 * lane.peak, "the packets of the first round trip, some times"


def test_timers__a_fast_path_does_not_wait_for_a_slow_one() -> None:
    """Plane 1 takes 150 ms; the only packet in flight on plane 0 is lost, with no younger one behind it."""
    slow = [SimFault("delay", link, 0.0, 2.0, 0.0375) for link in ("h0 p1-t0-0", "h1 p1-t0-1")]
    lossy = [SimFault("loss", "h0 p0-t0-0", 0.5, 0.9, 0.5)]
    finding = schedule(steady(150, 0.01), [*slow, *lossy], plan={"spines": 1}, config={"timeout_rtts": 0})
    simulation = holds(finding)
    assert simulation.watch.resent > 3 and simulation.lanes[0, 0].ended_count == 150
