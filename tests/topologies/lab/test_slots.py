"""Slots of a machine: names of interfaces and ports that two fabrics never share."""

import json
import os

import pytest

from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab import slots
from mrc_testbed.topologies.lab.options import LabOptions
from mrc_testbed.topologies.lab.slots import take_slot
from mrc_testbed.topologies.plan import Plan, PlanError

PLAN = Plan(2, 2, 2, 1)


@pytest.fixture(autouse=True)
def own_slots(monkeypatch):
    """Slots and ports of this test alone, whatever else runs on this machine."""
    monkeypatch.setattr(slots, "HOLDER", f"\0mrc-test-{os.getpid()}-{{}}")
    monkeypatch.setattr(slots.preflight, "check_tcp_ports", lambda ports: None)


def names_of(plan):
    """Return every interface that a plan may put into the namespace that all fabrics share, plugs too."""
    ports = [port for switch in plan.switches for port in plan.ports(switch.name)]
    return {name for port in ports for name in (port.interface, port.plug)}


@pytest.mark.parametrize("target", ["embedded", "bmv2"])
def test_slots__beside_each_other_share_neither_names_nor_ports(tmp_path, target):
    lab = LabOptions(target=target)
    with take_slot(PLAN, lab, tmp_path / "a") as (a, lab_a), take_slot(PLAN, lab, tmp_path / "b") as (b, lab_b):
        assert a == PLAN and lab_a == lab
        assert not names_of(a) & names_of(b)
        assert all(len(name) <= 15 for name in names_of(b))
        assert b.interface_prefix == "2" and b.switch_port(b.switches[0], 1).interface == "2p0-t0-0-eth1"
        assert [link.name for link in b.links] == [link.name for link in a.links]  # names of nodes stay
        assert (lab_b.ports.p4runtime, lab_b.ports.gnmi, lab_b.ports.thrift) == (10559, 10339, 10090)
    with take_slot(PLAN, lab, tmp_path / "b") as (third_plan, _):
        assert third_plan == PLAN  # free again


def test_slots__no_prefix_makes_a_name_of_another():
    every_name = [name for prefix in slots.PREFIXES for name in names_of(Plan(3, 3, 3, 2, interface_prefix=prefix))]
    assert len(every_name) == len(set(every_name))


def test_slot__whose_interface_or_port_is_taken_is_passed_over(tmp_path, monkeypatch):
    taken_names = {"p0-t0-0-eth1", "2p0-t0-0-mid1"}
    monkeypatch.setattr(os, "listdir", lambda folder: sorted(taken_names))
    with take_slot(PLAN, LabOptions(), tmp_path) as (plan, _):
        assert plan.interface_prefix == "3"
    (tmp_path / "state.json").write_text(json.dumps({"interfaces": ["p0-t0-0-eth1"]}))
    with take_slot(PLAN, LabOptions(), tmp_path) as (plan, _):
        assert plan.interface_prefix == ""  # a leftover of its own, which goes first


def test_slot__of_a_fabric_whose_names_have_no_room_for_a_prefix(tmp_path):
    large = Plan(16, 11, 9, 1)  # p15-t0-10-eth10 has 15 characters
    second = take_slot(large, LabOptions(), tmp_path / "b")
    refusal = r"beside another fabric, interface '2p15-t0-10-eth10' .*`mrc down`"
    with take_slot(large, LabOptions(), tmp_path / "a"), pytest.raises(FabricError, match=refusal):
        second.__enter__()


def test_slot__on_several_machines_keeps_the_plain_names(tmp_path):
    lab = LabOptions(servers=object())
    with take_slot(PLAN, lab, tmp_path) as first, take_slot(PLAN, lab, tmp_path) as second:
        assert first == second == (PLAN, lab)


def test_plan__prefix_is_a_character_and_comes_back_from_json():
    plan = Plan(interface_prefix="2")
    assert Plan.from_json(plan.to_json()) == plan and "interface_prefix" not in Plan().to_json()
    for prefix in ("22", "-", "P", None, 2):
        with pytest.raises(PlanError, match="interface_prefix = "):
            Plan(interface_prefix=prefix)
