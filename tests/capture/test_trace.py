"""`mrc trace` without a fabric: how an EV is given, what the cable does, how the way is told.

Needs no root.

The whole of it, on live switches: tests/cli/prompt/test_shell_live.py.
"""

import grpc
import pytest

from mrc_testbed.capture import live_tables, trace
from mrc_testbed.errors import UsageError
from mrc_testbed.hosts.clustermapper.targets import targets_of
from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import ActionCall, FieldMatch, TableEntry
from mrc_testbed.topologies.lab.traffic_control import Cable
from mrc_testbed.topologies.plan import LOCATOR, Plan
from tests.repository import P4SRC

PLAN = Plan(2, 2, 2, 2)
H0, H2, H1 = PLAN.host("h0"), PLAN.host("h2"), PLAN.host("h1")


@pytest.mark.parametrize("text, ev, plane", [("0x0101", 0x101, 1), ("257", 0x101, 1), ("1/0", 0x100, 1), ("0", 0, 0)])
def test_ev__as_people_give_it(text, ev, plane):
    assert trace.parse_ev(text, PLAN, H0, H2) == (ev, plane)


@pytest.mark.parametrize(
    "text, says",
    [
        ("fast", "give a number such as 0x0101, or PLANE/UPLINK"),
        ("", "give a number such as"),
        ("1/", "give a number such as"),
        ("0x0777", "EV 0x0777 is none of h0 to h2 (has: 0x0000, 0x0001, 0x0100, 0x0101)"),
        ("9/9", "is none of h0 to h2"),
        ("-1", "is none of h0 to h2"),
        ("1/999999", "is none of h0 to h2"),
    ],
)
def test_ev__mistakes(text, says):
    with pytest.raises(UsageError) as caught:
        trace.parse_ev(text, PLAN, H0, H2)
    assert says in str(caught.value)


def test_ev__in_modes_of_random_evs():
    plan = Plan(2, 2, 2, 2, mode="ecmp")
    ends = plan.host("h0"), plan.host("h2")
    ev, plane = next(iter(plan.ev_planes(*ends)))
    assert trace.parse_ev(hex(ev), plan, *ends) == (ev, plane)
    assert trace.parse_ev("1/0xdeadbeef", plan, *ends) == (0xDEADBEEF, 1)
    with pytest.raises(UsageError, match="in mode ecmp give PLANE/EV"):
        trace.parse_ev("0xdeadbeef", plan, *ends)


def test_drop_reasons__are_those_of_the_program():
    reasons = trace.drop_reasons()
    assert reasons[0] == "NONE" and reasons[4] == "WRONG_USID" and "DEAD_NEXT_HOP" in reasons


class Fabric:
    """A live fabric as trace sees one: all ports up but those in `down`, cables as in `cables`."""

    def __init__(self):
        self.plan = PLAN
        self.switches = {switch.name: {} for switch in PLAN.switches}
        self.ports_down, self.cables = set(), {}

    def switches_work(self):
        return False

    def is_up(self, port):
        return port.interface not in self.ports_down

    def cable(self, interface, direction):
        return self.cables.get((interface, direction), Cable())


@pytest.fixture
def fabric(monkeypatch):
    """Switches with the plan's routes, and nothing else, in memory."""
    program = compile_program(P4SRC / "srv6.p4")
    tables = {table.preamble.name.rpartition(".")[2]: table for table in program.p4info.tables}
    actions = {action.preamble.name.rpartition(".")[2]: action.preamble.id for action in program.p4info.actions}

    def entry(table, usid, action, *params):
        key = (LOCATOR << 16 | usid).to_bytes(6, "big")
        match = (FieldMatch.exact(1, key.lstrip(b"\0")),)
        return TableEntry(tables[table].preamble.id, match, ActionCall(actions[action], params))

    def device_like(name, switch_entry, fallback, works):
        device = P4Device(1, name)
        device.load(program)
        routes = PLAN.srv6_routes(PLAN.switch(name))
        device.insert(entry("my_usid", routes.own_usid, "shift"))
        for usid, port in routes.next_hops:
            device.insert(entry("usid_next", usid, "forward", (1, bytes([port]))))
        return device

    monkeypatch.setattr(trace, "device_like", device_like)
    return Fabric()


def test_way__to_another_rack(fabric):
    way = trace.follow(fabric, "h0", "h2", "1/1")
    assert way.arrived and [hop.switch for hop in way.hops] == ["p1-t0-0", "p1-t1-1", "p1-t0-1"]
    lines = way.text(full=False).splitlines()
    assert "     usid_next [locator_usid=0xfcbbbb001101] hit: forward(port=4)" in lines
    assert "     destination fcbb:bb00:2100:1101:2101:3100:: -> fcbb:bb00:1101:2101:3100::" in lines
    assert lines[-1] == "arrives at h2-eth1 of h2 from h0, EV 0x0101"
    assert "hdr.outer.hop_limit 0x40 -> 0x3f" in way.text(full=True)
    assert way.to_json()["hops"][2]["out"] == "p1-t0-1-eth1"


def test_way__inside_a_rack(fabric):
    way = trace.follow(fabric, "h0", "h1", "0x0100")
    assert way.arrived and len(way.hops) == 1


def test_way__ends_where_something_is_broken(fabric):
    fabric.ports_down = {"p1-t0-0-eth4"}
    assert trace.follow(fabric, "h0", "h2", "1/1").end == "ends on the cable p1-t0-0 p1-t1-1: p1-t0-0 p1-t1-1 is down"
    fabric.ports_down = {"p1-t0-0-eth1"}
    assert trace.follow(fabric, "h0", "h2", "1/1").end == "ends at h0: its port h0-eth1 is down, nothing is sent"
    fabric.ports_down, fabric.cables = set(), {("p1-t1-1-eth1", "input"): Cable(loss=1.0)}
    way = trace.follow(fabric, "h0", "h2", "1/1")
    assert "loses everything (injected)" in way.end and not way.arrived
    fabric.cables = {("p1-t0-0-eth1", "input"): Cable(loss_pattern="1")}
    assert trace.follow(fabric, "h0", "h2", "1/1").end == "ends on the cable h0 p1-t0-0: loses everything (injected)"
    fabric.cables = {("p1-t1-1-eth2", "output"): Cable(loss=0.05)}
    way = trace.follow(fabric, "h0", "h2", "1/1")
    assert way.arrived and "and the cable loses some of it (injected: 5 %)" in way.hops[1].note


def test_way__a_switch_without_a_route_says_why(fabric, monkeypatch):
    original = trace.device_like

    def without(name, switch_entry, fallback, works):
        if name != "p1-t1-1":
            return original(name, switch_entry, fallback, works)
        device = P4Device(1, name)
        device.load(compile_program(P4SRC / "srv6.p4"))
        return device

    monkeypatch.setattr(trace, "device_like", without)
    way = trace.follow(fabric, "h0", "h2", "1/1")
    assert way.end.startswith(
        "ends at p1-t1-1, whose program drops it: WRONG_USID (table my_usid: wrong_usid), srv6.p4:"
    )


def test_probes__go_where_the_mapper_thinks(fabric):
    """The switches' real program takes every self-probe to its switch and back to its port."""
    for target in targets_of(PLAN):
        host = PLAN.host(target.host)
        ingress = PLAN.link_of_interface(PLAN.host_port(host, target.plane).interface).upper
        frame = bytes(12) + b"\x86\xdd\x60" + bytes(3) + (84).to_bytes(2, "big") + bytes([41, 64]) + bytes(16)
        frame += target.outer.to_bytes(16, "big") + b"\x60" + bytes(3) + (44).to_bytes(2, "big") + bytes([17, 64])
        frame += bytes(32 + 44)
        switches = []
        while ingress.node != target.host:
            switches.append(ingress.node)
            ((number, frame),) = trace._trace_switch(fabric, ingress, frame).sent
            egress = next(port for port in PLAN.ports(ingress.node) if port.number == number)
            link = PLAN.link_of_interface(egress.interface)
            ingress = link.upper if link.lower == egress else link.lower
        assert ingress.number == target.plane + 1 and target.switch in switches and len(switches) in (1, 3)


class TooLateError(grpc.RpcError):
    def code(self):
        return grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("looks", [[True, True], [True, False]])
def test_tables__of_a_switch_that_works_are_asked_for_again(looks):
    answers = iter([TooLateError(), TooLateError(), 42])

    def call():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    works = iter(looks)
    if all(looks):
        assert live_tables._patiently(call, lambda: next(works)) == 42
    else:
        with pytest.raises(TooLateError):
            live_tables._patiently(call, lambda: next(works))
    assert list(works) == []
