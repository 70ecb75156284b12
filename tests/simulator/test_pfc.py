"""PFC in the virtual fabric.

Lossless where it is on, its frames on the wire, storms, no cost elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mrc_testbed.faults import CutFault, LossFault
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from mrc_testbed.simulator import Flow, VirtualFabric, run_all, scaled_profiles
from mrc_testbed.simulator.pfc import PAUSE_BYTES, QUANTA_MAX, PauseFrame, PfcNicPort, PfcPort, pause_for, pause_of
from mrc_testbed.simulator.ports import EgressPort, NicPort
from mrc_testbed.simulator.profiles import PfcProfile, ProfileError, QueueProfile
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(1, 4, 2, 2)
"""Three racks can send to the fourth."""
SCALE = scaled_profiles(1, rate_bps=40e6, ecn=False, trim=False, config={"no_receive": "deliver"})
BDP = SCALE.bdp_bytes
LOSSLESS = PfcProfile(xoff_bytes=BDP, xon_bytes=3 * BDP // 4, headroom_bytes=BDP // 2, storm_after_s=0.2)


def incast(pfc: PfcProfile | None, *, messages: int = 8, senders: int = 3, trace=False):
    """Send RoCE at full speed from other racks to h0.

    There are no marks: only pauses or drops can hold it back.
    """
    queues = replace(SCALE.queues, pfc=pfc)
    fabric = VirtualFabric(
        PLAN, seed=3, links=SCALE.links, queues=queues, config=SCALE.config, mode="flow-ecmp", trace=trace
    )
    settings = RcConfig(timeout=18, window_packets=400)
    flows = [
        Flow(
            fabric,
            f"h{2 * n + 2}",
            "h0",
            message_bytes=1 << 17,
            messages=messages,
            transport="rocev2",
            settings=settings,
        )
        for n in range(senders)
    ]
    return fabric, flows


def gates(fabric):
    return [pause_of(port) for port in fabric.ports.values()]


def test_incast__drops_without_and_not_one_packet_with_it():
    fabric, flows = incast(None)
    assert run_all(fabric, flows, limit_s=60) and all(flow.intact for flow in flows)
    assert fabric.totals()["queue_full"] > 50
    assert [pause_of(port) for port in fabric.ports.values()] == [None] * len(fabric.ports)
    fabric, flows = incast(LOSSLESS)
    assert run_all(fabric, flows, limit_s=60) and all(flow.intact for flow in flows)
    assert not {"queue_full", "headroom_full"} & set(fabric.totals())
    assert sum(flow.qp.counters.retransmitted for flow in flows) == 0
    pauses = gates(fabric)
    assert sum(gate.pauses for gate in pauses) > 10
    assert BDP < max(gate.held_peak for gate in pauses) <= BDP + BDP // 2
    assert all(gate.held_bytes == 0 for gate in pauses), "what was counted in was counted out"


def test_pause__reaches_back_to_the_hosts_and_ends():
    fabric, flows = incast(LOSSLESS)
    assert run_all(fabric, flows, limit_s=60)
    by_kind = {"t1": 0, "t0": 0, "host": 0}
    for port in fabric.ports.values():
        kind = "host" if port.node in fabric.hosts else port.node.split("-")[1]
        by_kind[kind] += pause_of(port).pauses
    assert min(by_kind.values()) > 0, by_kind
    fabric.run_for(5.0)
    assert all(gate._paused_since is None for gate in gates(fabric))


def test_headroom__none_of_it_is_a_drop_and_is_counted():
    fabric, flows = incast(replace(LOSSLESS, headroom_bytes=0))
    assert run_all(fabric, flows, limit_s=120) and all(flow.intact for flow in flows)
    assert fabric.totals()["headroom_full"] > 0


def test_control__is_never_paused():
    """A port that holds data back sends acknowledgments at once."""
    fabric, _ = incast(LOSSLESS)
    sent = []
    port = fabric.ports["p0-t1-0-eth1"]
    port.observer = lambda event, now, location, frame: sent.append((event, frame.control))
    gate = pause_of(port)
    gate.on_pause_frame(_pause(QUANTA_MAX), fabric.now)
    for control in (False, True):
        frame = _pause(0)
        frame.control = control
        port.send(frame, fabric.now)
    assert sent == [("send", True)]
    assert port.waiting == 1
    gate.on_pause_frame(_pause(0), fabric.now)
    fabric.run_for(0.0005)  # none has arrived by then
    assert sent == [("send", True), ("send", False)]


def test_pause__runs_out_by_itself():
    fabric, _ = incast(LOSSLESS)
    port = fabric.ports["p0-t1-0-eth1"]
    gate = pause_of(port)
    gate.on_pause_frame(_pause(1000), fabric.now)  # 512,000 bit times at 40 Mb/s: 12.8 ms
    fabric.run_until(0.0127)
    assert gate._paused_since == 0
    fabric.run_until(0.0129)
    assert gate._paused_since is None and gate.longest_s == pytest.approx(0.0128)


def test_storm__is_a_pause_that_lasts():
    fabric, _ = incast(LOSSLESS)
    gate = pause_of(fabric.ports["p0-t1-0-eth1"])
    gate.on_pause_frame(_pause(QUANTA_MAX), fabric.now)
    fabric.run_until(0.199)
    assert gate.storms == 0
    fabric.run_until(0.3)
    assert gate.storms == 1 and gate.counters()["storms"] == 1
    gate.on_pause_frame(_pause(0), fabric.now)
    gate.on_pause_frame(_pause(100), fabric.now)  # 1.3 ms
    fabric.run_until(2.0)
    assert gate.storms == 1 and gate.pauses == 2


def test_pause_frames__are_on_the_wire_and_in_the_trace():
    entries = []
    fabric, flows = incast(LOSSLESS, trace=lambda event, now, location, frame: entries.append((event, location, frame)))
    assert run_all(fabric, flows, limit_s=60)
    sent = [
        (location, frame) for event, location, frame in entries if event == "send" and type(frame.packet) is PauseFrame
    ]
    assert len(sent) == sum(gate.frames for gate in gates(fabric)) > 0
    assert {frame.size for _, frame in sent} == {PAUSE_BYTES}
    assert {location[0] for location, _ in sent} == {"p"}, "hosts pause nobody"
    delivered = [frame for event, _, frame in entries if event == "deliver"]
    assert not [frame for frame in delivered if type(frame.packet) is PauseFrame], "the port takes it, not the host"


def test_pause_frame__bytes():
    wire = pause_for(0xFFFF).encode(bytes.fromhex("020000000001"))
    assert wire.hex() == "0180c2000001" + "020000000001" + "8808" + "0101" + "0008" + "000000000000ffff" + "00" * 34
    assert len(wire) == PAUSE_BYTES


@pytest.mark.thorough
def test_lost_pause_frames__cost_headroom_or_time_but_no_deadlock():
    fabric, flows = incast(LOSSLESS)
    fabric.apply(LossFault.on("p0-t0-0 p0-t1-0", rate=0.3))
    fabric.apply(LossFault.on("p0-t0-0 p0-t1-1", rate=0.3))
    assert run_all(fabric, flows, limit_s=900) and all(flow.intact for flow in flows)
    assert all(gate.held_bytes == 0 for gate in gates(fabric))


def test_a_cut_link__forgets_its_pauses_and_what_it_held():
    fabric, flows = incast(LOSSLESS)
    fabric.schedule(0.05, CutFault.on("p0-t0-0 p0-t1-0"), until_s=0.4)
    assert run_all(fabric, flows, limit_s=900) and all(flow.intact for flow in flows)
    fabric.run_for(2.0)
    assert all(gate.held_bytes == 0 and gate._paused_since is None for gate in gates(fabric))


def test_same_seed_same_run():
    digests = set()
    for _ in range(2):
        fabric, flows = incast(LOSSLESS, trace=True)
        assert run_all(fabric, flows, limit_s=60)
        digests.add((fabric.trace_digest(), fabric.state_digest()))
    assert len(digests) == 1


def test_ports_without_it_are_the_plain_ones():
    fabric, _ = incast(None)
    assert {type(port) for port in fabric.ports.values()} == {EgressPort, NicPort}
    fabric, _ = incast(LOSSLESS)
    assert {type(port) for port in fabric.ports.values()} == {PfcPort, PfcNicPort}


def test_profiles__what_makes_no_sense_is_refused():
    with pytest.raises(ProfileError, match="xon_bytes = 2: must not be above xoff_bytes = 1"):
        PfcProfile(1, 2, 0, 1.0)
    with pytest.raises(ProfileError, match="never trims; leave one away"):
        QueueProfile(pfc=LOSSLESS)


def _pause(quanta: int):
    from mrc_testbed.simulator.frames import Frame

    return Frame(pause_for(quanta), PAUSE_BYTES, "p0-t0-0", "p0-t1-0", 0, 0, 0, True, False)
