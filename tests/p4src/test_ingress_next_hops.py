"""Digests about next hops that nobody knows or that are dead, and the table of dead ports."""

from __future__ import annotations

import pytest

from mrc_testbed.controller.p4runtime.qos import dead_port_entry
from mrc_testbed.switch.device.p4data import flatten, p4_data
from mrc_testbed.topologies.plan import Plan, carrier
from tests.p4src.plan_switch import DEAD_NEXT_HOP, MS, SECOND, Conversation, PlannedSwitch

UNKNOWN_USID, NO_ROUTE, NO_UPLINK = 5, 6, 7
PLAN = Plan()


def reports(switch: PlannedSwitch) -> list[dict[str, int]]:
    report_digest = next(digest for digest in switch.info.digests if digest.preamble.name == "next_hop_report")
    return [
        flatten(report_digest.type_spec, switch.info, p4_data(report_digest.type_spec, switch.info, digest.data))
        for digest in switch.device.digests()
    ]


def toward(plan: Plan, address: int) -> bytes:
    frame = Conversation(plan, "h0", "h2").data()
    return frame[:38] + address.to_bytes(16, "big") + frame[54:]


def test_unknown_usid__is_reported_with_the_address_that_has_it_first():
    switch = PlannedSwitch(PLAN, "p0-t0-0")
    assert switch.device.process(2, toward(PLAN, carrier(0x2000, 0x1055, 0x2001))) == []
    assert reports(switch) == [
        {"reason": UNKNOWN_USID, "ingress_port": 2, "egress_port": 0, "dst_addr": carrier(0x1055, 0x2001)}
    ]


@pytest.mark.parametrize(("destination", "reason"), [(0xFE << 120, NO_ROUTE), (0xFD << 120 | 1 << 80, NO_UPLINK)])
def test_spray__no_route_and_no_uplink_are_reported(destination, reason):
    plan = Plan(mode="ecmp")
    switch = PlannedSwitch(plan, "p0-t0-0")
    for port in (3, 4):
        switch.device.set_port_up(port, False)
    assert switch.device.process(1, toward(plan, destination)) == []
    assert reports(switch) == [{"reason": reason, "ingress_port": 1, "egress_port": 0, "dst_addr": destination}]


@pytest.mark.parametrize("mode", ["srv6", "stev"])
def test_dead_port__drops_counts_and_reports_until_it_is_taken_back(mode):
    plan = Plan(mode=mode)
    switch = PlannedSwitch(plan, "p0-t0-0")
    talk = Conversation(plan, "h0", "h2")
    switch.write(dead_port_entry(switch.catalog, 3))
    assert switch.device.process(1, talk.data()) == []
    assert switch.drops() == {(DEAD_NEXT_HOP, 3): 1}
    (report,) = reports(switch)
    assert (report["reason"], report["ingress_port"], report["egress_port"]) == (DEAD_NEXT_HOP, 1, 3)
    assert [port for port, _ in switch.device.process(1, Conversation(plan, "h0", "h2", ev=1).data())] == [4]
    for entry in list(switch.device.read()):
        if switch.device.schema.tables[entry.table_id].name.endswith("dead_ports"):
            switch.device.delete(entry)
    assert [port for port, _ in switch.device.process(1, talk.data())] == [3]


def test_first__is_reported_at_once_and_a_flood_ten_times_a_second():
    switch = PlannedSwitch(PLAN, "p0-t0-0")
    lost = [toward(PLAN, carrier(0x2000, 0x1100 | n % 256)) for n in range(3000)]
    switch.offer(1, lost, start_ns=0, gap_ns=MS)
    switch.device.advance(3 * SECOND)
    assert len(reports(switch)) == 30
    assert switch.drops() == {(UNKNOWN_USID, 1): 3000}


def test_each_reason_and_port__has_a_clock_of_its_own():
    switch = PlannedSwitch(PLAN, "p0-t0-0")
    switch.write(dead_port_entry(switch.catalog, 3))
    switch.write(dead_port_entry(switch.catalog, 4))
    for ingress in (1, 2):
        switch.device.process(ingress, toward(PLAN, carrier(0x2000, 0x1055)))
        for ev in (0, 1):
            switch.device.process(ingress, Conversation(PLAN, "h0", "h2", ev=ev).data())
    reasons_and_ports = [
        (report["reason"], report["ingress_port"], report["egress_port"]) for report in reports(switch)
    ]
    assert reasons_and_ports == [
        (UNKNOWN_USID, 1, 0),
        (DEAD_NEXT_HOP, 1, 3),
        (DEAD_NEXT_HOP, 1, 4),
        (UNKNOWN_USID, 2, 0),
    ]


def test_other_reasons__are_not_reported():
    switch = PlannedSwitch(PLAN, "p0-t0-0")
    frame = Conversation(PLAN, "h0", "h2").data()
    for bad_frame in (frame[:53], frame[:21] + b"\1" + frame[22:], toward(PLAN, carrier(0x2001, 0x1000)), b""):
        assert switch.device.process(1, bad_frame) == []
    assert reports(switch) == []
