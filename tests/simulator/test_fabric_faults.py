"""Faults of the virtual fabric: what each kind does to packets and ports."""

import pytest

from mrc_testbed.faults import (
    BlackholeFault,
    CorruptFault,
    CutFault,
    DuplicateFault,
    FaultError,
    FlapFault,
    HealFault,
    LateFault,
    LineFault,
    LossFault,
    OneWayFault,
    PowerOffFault,
    PowerOnFault,
    RebootFault,
    RestoreFault,
    StallFault,
    VanishFault,
)
from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.events import EvChanged, PlaneChanged
from mrc_testbed.hosts.engine.wire.packets import Sack
from mrc_testbed.simulator import Flow, HostProfile, VirtualFabric, run_all, scaled_profiles
from mrc_testbed.topologies.plan import Plan


def fabric_with_flow(fault=None, time=0.020, plan=None, seed=1, **options):
    """Return a fabric with one flow of 400 KB across racks, about 0.2 s."""
    plan = plan or Plan(2, 2, 2, 1)
    scale = scaled_profiles(plan.planes)
    fabric = VirtualFabric(plan, seed=seed, links=scale.links, queues=scale.queues, config=scale.config, **options)
    flow = Flow(fabric, "h0", "h1", message_bytes=100_000, messages=4)
    if fault is not None:
        fabric.schedule(time, fault)
    return fabric, flow


def finish(fabric, flow):
    assert run_all(fabric, [flow], 20.0)
    assert flow.intact and not flow.failures and flow.completed == 4
    return fabric.totals()


def test_names__are_checked():
    fabric, _ = fabric_with_flow()
    with pytest.raises(FaultError, match="h0 is linked to: p0-t0-0, p1-t0-0"):
        fabric.apply(CutFault.on("h0 p0-t0-1"))
    with pytest.raises(FaultError, match="no switch 'p9-t0-0'"):
        fabric.apply(PowerOffFault.on("p9-t0-0"))


# ---- links and switches -----------------------------------------------------------------------------------


def test_link_down_at_a_host__both_ends_know_at_once():
    fabric, flow = fabric_with_flow(CutFault.on("h0 p0-t0-0"))
    totals = finish(fabric, flow)
    changes = [e for e in fabric.host("h0").events if isinstance(e, PlaneChanged)]
    assert [(e.peer, e.plane, e.up, e.at) for e in changes] == [(None, 0, False, 0.02)]
    peer_changes = [e for e in fabric.host("h1").events if isinstance(e, PlaneChanged)]
    assert [(e.peer, e.plane, e.up) for e in peer_changes] == [("h0", 0, False)]
    assert totals["link_down"] > 0


def test_link_down__hosts_may_take_a_while_to_see_it():
    fabric, flow = fabric_with_flow(CutFault.on("h0 p0-t0-0"), host=HostProfile(port_event_s=0.050))
    finish(fabric, flow)
    assert next(e.at for e in fabric.host("h0").events if isinstance(e, PlaneChanged)) == pytest.approx(0.070)


def test_link_down_in_the_fabric__the_evs_over_it_go_and_come_back():
    fabric, flow = fabric_with_flow(CutFault.on("p0-t0-0 p0-t1-0"))
    finish(fabric, flow)
    changes = [e for e in fabric.host("h0").events if isinstance(e, EvChanged)]
    assert [(e.ev, e.new_state.name) for e in changes] == [(0x0000, "ASSUMED_BAD")]
    fabric.apply(RestoreFault.on("p0-t0-0 p0-t1-0"))
    assert fabric.run_until(lambda: flow.qp.ev_states()[0]["state"] == "good", limit_s=5.0)


def test_power_off__takes_all_its_links_and_needs_the_cable_too():
    fabric, flow = fabric_with_flow(PowerOffFault.on("p0-t0-0"))
    finish(fabric, flow)
    port = fabric.port_towards("h0", "p0-t0-0")
    assert not port.is_up
    fabric.apply(CutFault.on("h0 p0-t0-0"))
    fabric.apply(PowerOnFault.on("p0-t0-0"))
    assert not port.is_up and fabric.port_towards("p0-t0-0", "p0-t1-0").is_up
    fabric.apply(RestoreFault.on("h0 p0-t0-0"))
    assert port.is_up


def test_power_off_of_a_host__its_peer_finds_out_by_its_retry_budget():
    fabric, flow = fabric_with_flow(PowerOffFault.on("h1"))
    assert not run_all(fabric, [flow], 0.5)
    assert not any(fabric.port_towards(a, b).is_up for a, b in (("h1", "p0-t0-1"), ("p1-t0-1", "h1")))
    assert not fabric.host("h1").alive and not flow.failures
    assert run_all(fabric, [flow], 60.0)
    assert flow.failures and "nothing got through" in str(flow.qp.error)


def test_power_on_of_a_host__comes_back_with_an_engine_that_knows_no_qp():
    fabric, flow = fabric_with_flow()
    fabric.schedule(0.020, PowerOffFault.on("h1"), until_s=0.120)
    former_qpn = flow.peer_qp.qpn
    assert run_all(fabric, [flow], 60.0) and flow.failures
    host = fabric.host("h1")
    assert host.alive and host.lives == 1 and all(port.is_up for port in fabric.ports.values())
    with pytest.raises(LocalError, match=f"no QP {former_qpn}"):
        host.endpoint.qp(former_qpn)
    successor = Flow(fabric, "h0", "h1", message_bytes=100_000, messages=4)
    finish(fabric, successor)


def test_power_off_of_a_host__twice_is_on_again_when_both_are_over():
    fabric, _ = fabric_with_flow()
    holds = [fabric.apply(PowerOffFault.on("h1")) for _ in range(2)]
    PowerOffFault.on("h1").end(fabric.faults, holds[0])
    assert not fabric.host("h1").alive
    PowerOffFault.on("h1").end(fabric.faults, holds[1])
    assert fabric.host("h1").alive and fabric.host("h1").lives == 1


def test_reboot_and_heal__of_a_host():
    fabric, _ = fabric_with_flow(RebootFault.on("h0", off=0.1))
    fabric.run_until(0.1)
    assert not fabric.host("h0").alive
    fabric.run_until(0.2)
    assert fabric.host("h0").alive
    fabric.apply(PowerOffFault.on("h0"))
    fabric.apply(HealFault())
    assert fabric.host("h0").alive and all(port.is_up for port in fabric.ports.values())


def test_power_off__ends_the_applications_of_a_host_once():
    fabric, _ = fabric_with_flow()
    deaths = []
    fabric.host("h0").on_death(lambda: deaths.append(fabric.now))
    fabric.schedule(0.020, PowerOffFault.on("h0"), until_s=0.030)
    fabric.schedule(0.040, PowerOffFault.on("h0"))
    fabric.run_until(0.1)
    assert deaths == [0.020]


def test_blackhole__links_stay_up():
    fabric, flow = fabric_with_flow(BlackholeFault.on("p0-t1-0"))
    totals = finish(fabric, flow)
    assert totals["blackhole"] > 0 and all(port.is_up for port in fabric.ports.values())
    assert not [e for e in fabric.host("h0").events if isinstance(e, PlaneChanged)]


def test_cut__one_way_only():
    fabric, flow = fabric_with_flow(OneWayFault.on("p0-t0-0 p0-t1-0"))
    finish(fabric, flow)
    assert fabric.port_towards("p0-t0-0", "p0-t1-0").lost["cut"] > 0
    assert not fabric.port_towards("p0-t1-0", "p0-t0-0").lost


def test_flap__goes_down_as_often_as_told():
    fabric, flow = fabric_with_flow(FlapFault.on("h0 p0-t0-0", down=0.03, up=0.02, times=3), time=0.0)
    finish(fabric, flow)
    own_changes = [
        (round(e.at, 3), e.up) for e in fabric.host("h0").events if isinstance(e, PlaneChanged) and e.peer is None
    ]
    assert own_changes == [(0.0, False), (0.03, True), (0.05, False), (0.08, True), (0.1, False), (0.13, True)]


def test_set_line__changes_rate_and_delay_at_run_time():
    fabric, flow = fabric_with_flow(LineFault.on("h0 p0-t0-0", rate=1e6, delay=0.003))
    finish(fabric, flow)
    assert (
        fabric.port_towards("h0", "p0-t0-0").line.rate_bps == fabric.port_towards("p0-t0-0", "h0").line.rate_bps == 1e6
    )
    fabric.apply(HealFault())
    assert fabric.port_towards("h0", "p0-t0-0").line == fabric.links.nic


def test_heal__undoes_everything():
    fabric, flow = fabric_with_flow()
    for fault in (
        CutFault.on("h0 p0-t0-0"),
        PowerOffFault.on("p1-t1-1"),
        BlackholeFault.on("p1-t0-0"),
        LossFault.on("p0-t0-1 h1", rate=0.5, direction="one_way"),
    ):
        fabric.apply(fault)
    fabric.apply(HealFault())
    assert all(port.is_up for port in fabric.ports.values()) and all(s.power for s in fabric.switches.values())
    assert set(finish(fabric, flow)) == {"forwarded", "marked", "trimmed"}


def test_stall__a_host_that_sleeps_answers_later():
    fabric, flow = fabric_with_flow(StallFault.on("h1", seconds=0.030))
    slept = fabric_with_flow()[0:2]
    finish(fabric, flow)
    finish(*slept)
    assert 0.01 < flow.finished_at - slept[1].finished_at < 0.2


def arrivals(*faults):
    """Return (time, plane) of the data reaching h1's engine and of its SACKs, from 20 ms to 60 ms."""
    fabric, flow = fabric_with_flow()
    for fault in faults:
        fabric.schedule(0.020, fault)
    endpoint, got, sent = fabric.host("h1").endpoint, [], []
    receive, transmit = endpoint.receive, endpoint.transmit_ready

    def watched_receive(packet, plane, peer, now):
        got.append((now, plane))
        receive(packet, plane, peer, now)

    def watched_transmit(now, *arguments):
        out = transmit(now, *arguments)
        sent.extend((now, plane, type(packet)) for plane, _, packet in out)
        return out

    endpoint.receive, endpoint.transmit_ready = watched_receive, watched_transmit
    finish(fabric, flow)
    return [pair for pair in got if 0.020 < pair[0] < 0.060], [entry for entry in sent if 0.020 < entry[0] < 0.060]


@pytest.mark.parametrize("gap_s", [0.0, 0.004])
def test_stall__ports_are_read_one_after_the_other_and_acknowledged_between(gap_s):
    got, sent = arrivals(StallFault.on("h1", seconds=0.020, order=(1, 0), gap_s=gap_s))
    batch = [(now, plane) for now, plane in got if now <= 0.040 + gap_s]
    assert batch[0][0] == pytest.approx(0.040)
    first = [plane for now, plane in batch]
    assert set(first) == {0, 1}
    first_of_plane_0 = next(i for i, (now, plane) in enumerate(got) if plane == 0)
    assert first_of_plane_0 > 3 and all(plane == 1 for _, plane in got[:first_of_plane_0]), "all of plane 1 comes first"
    assert got[first_of_plane_0][0] == pytest.approx(0.040 + gap_s), "and plane 0 when it is looked at"
    acks = [(now, plane) for now, plane, kind in sent if kind is Sack]
    assert acks[0] == (pytest.approx(0.040), 1), "what plane 1 brought is acknowledged first"


def test_stall__of_a_switch_delays_what_it_forwards_and_loses_nothing():
    fabric, flow = fabric_with_flow(StallFault.on("p0-t1-0", seconds=0.030))
    totals = finish(fabric, flow)
    assert not {"blackhole", "queue_full"} & set(totals) and not fabric.switches["p0-t1-0"].is_idle
    got = fabric.host("h1").received
    plain, plain_flow = fabric_with_flow()
    finish(plain, plain_flow)
    assert flow.finished_at > plain_flow.finished_at and got >= plain.host("h1").received


def test_vanish__nobody_answers_until_another_process_begins():
    fabric, flow = fabric_with_flow(VanishFault.on("h1"))
    fabric.run_until(0.5)
    host = fabric.host("h1")
    former_endpoint, received = host.endpoint, host.received
    assert not host.alive and host.dropped["no process"] > 3 and not flow.done
    fabric.set_link("h1", "p1-t0-1", enabled=False)
    endpoint = fabric.start_process("h1")
    fabric.run_until(0.6)
    assert host.alive and endpoint is host.endpoint is not former_endpoint and endpoint.unclaimed_packets > 0
    assert received and endpoint._peers.local_ports == 0b01, "it looked at its ports"
    with pytest.raises(LocalError, match="no QP"):
        endpoint.qp(flow.peer_qp.qpn)


def test_qpns__of_a_first_life_count_from_the_one_named_and_those_of_a_second_are_drawn():
    fabric = VirtualFabric(Plan(2, 2, 2, 2), first_qpn=3)
    assert [fabric.host(host).endpoint.create_qp().qpn for host in ("h0", "h0", "h1")] == [3, 4, 3]
    assert fabric.start_process("h1").create_qp().qpn != 3, "what was sent to the QP of the first life finds none"


@pytest.mark.parametrize("twin", [False, True])
def test_late__packets_come_seconds_later_than_others(twin):
    fifth = {"pattern": "00001", "only": "data", "direction": "one_way"}
    fabric, flow = fabric_with_flow(LateFault.on("p0-t0-0 p0-t1-0", seconds=1.5, twin=twin, **fifth))
    finish(fabric, flow)
    duplicates = flow.peer_qp.counters.duplicates
    assert (flow.qp.counters.retransmitted > 0) is not twin
    fabric.run_for(3.0)
    assert flow.peer_qp.counters.duplicates > duplicates and flow.intact


# ---- single packets ---------------------------------------------------------------------------------------


def numbers(count=20, **choice):
    """Return which of `count` data packets a Loss picked in that way hits."""
    fabric, _ = fabric_with_flow()
    fabric.apply(LossFault.on("p0-t0-0 p0-t1-0", **choice))
    port = fabric.port_towards("p0-t0-0", "p0-t1-0")
    return [i for i in range(count) if port._loss.hits(True)]


def test_patterns__hit_the_packets_they_name():
    assert numbers(pattern="00001") == [4, 9, 14, 19]
    assert numbers(packets=(0, 7)) == [0, 7]
    assert numbers(pattern="11000000") == [0, 1, 8, 9, 16, 17]
    assert numbers(pattern="1", only="control") == []
    assert 150 < len(numbers(1000, rate=0.2)) < 250


def test_loss__of_control_packets_only():
    fabric, flow = fabric_with_flow(LossFault.on("p0-t0-0 h0", rate=0.3, only="control", direction="one_way"), time=0.0)
    finish(fabric, flow)
    assert fabric.port_towards("p0-t0-0", "h0").lost["loss"] > 3


def test_corrupt__is_dropped_by_the_receiver_and_sent_again():
    fabric, flow = fabric_with_flow(CorruptFault.on("p0-t0-1 h1", packets=(10, 20), direction="one_way"), time=0.0)
    totals = finish(fabric, flow)
    assert totals["iCRC"] == totals["corrupt"] == 2 and flow.qp.counters.retransmitted >= 2


def test_repeat__arrives_twice_and_is_placed_once():
    fabric, flow = fabric_with_flow(DuplicateFault.on("p0-t0-1 h1", pattern="0001", direction="one_way"), time=0.0)
    finish(fabric, flow)
    assert flow.peer_qp.counters.duplicates > 10
    assert flow.received_bytes == 400_000


def test_mend__ends_what_hits_packets():
    fabric, flow = fabric_with_flow(LossFault.on("p0-t0-1 h1", pattern="01", direction="one_way"), time=0.0)
    fabric.schedule(0.0, RestoreFault.on("p0-t0-1 h1"))
    assert "loss" not in finish(fabric, flow)
