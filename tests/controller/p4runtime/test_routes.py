"""The plan's routes as entries of each program."""

import pytest

from mrc_testbed.controller.errors import InputError
from mrc_testbed.controller.p4runtime.routes import entries_of, hash_seed, recognise
from mrc_testbed.topologies.plan import Plan

SHARED_PREFIXES = ("traffic_class ", "trimming ", "queue_thresholds ")


def lines(program, plan, switch, catalog):
    """Return the entries that only this program has; test_qos.py tests the shared ones."""
    entries = [str(entry) for entry in entries_of(program, plan, plan.switch(switch), catalog)]
    return [line for line in entries if not line.startswith(SHARED_PREFIXES)]


def test_srv6__t0(srv6):
    assert lines("srv6", Plan(), "p3-t0-1", srv6) == [
        "my_usid locator_usid=0xfcbbbb002301 shift()",
        "my_usid locator_usid=0xfcbbbb00e300 shift_and_forward(port=1)",
        "my_usid locator_usid=0xfcbbbb00e301 shift_and_forward(port=2)",
        "my_usid locator_usid=0xfcbbbb00f300 shift_and_forward(port=3)",
        "my_usid locator_usid=0xfcbbbb00f301 shift_and_forward(port=4)",
        "usid_next locator_usid=0xfcbbbb001300 forward(port=3)",
        "usid_next locator_usid=0xfcbbbb001301 forward(port=4)",
        "usid_next locator_usid=0xfcbbbb003300 forward(port=1)",
        "usid_next locator_usid=0xfcbbbb003301 forward(port=2)",
    ]


def test_srv6__t1(srv6):
    assert lines("srv6", Plan(), "p3-t1-1", srv6) == [
        "my_usid locator_usid=0xfcbbbb001301 shift()",
        "my_usid locator_usid=0xfcbbbb00e300 shift_and_forward(port=1)",
        "my_usid locator_usid=0xfcbbbb00e301 shift_and_forward(port=2)",
        "usid_next locator_usid=0xfcbbbb002300 forward(port=1)",
        "usid_next locator_usid=0xfcbbbb002301 forward(port=2)",
    ]


def test_spray__t0(spray):
    plan = Plan()
    assert lines("spray", plan, "p1-t0-1", spray) == [
        "route dst_addr=fd00:1:1::1/128 forward(port=1)",
        "route dst_addr=fd00:1:1:1::1/128 forward(port=2)",
        "route dst_addr=fd00:1::/32 spray(uplink_group=1)",
        "uplink_choice default by_hash()",
        "ev_uplinks uplink=0x00000000 use_uplink(port=3)",
        "ev_uplinks uplink=0x00000001 use_uplink(port=4)",
        f"hash_seed default set_hash_seed(seed=0x{hash_seed(plan.switch('p1-t0-1')):08x})",
        "uplink_selector member 3: use_uplink(port=3)",
        "uplink_selector member 4: use_uplink(port=4)",
        "uplink_selector group 1: member 3 weight 1 watch 3, member 4 weight 1 watch 4",
        "uplinks uplink_group=1 group(1)",
    ]


@pytest.mark.parametrize(
    ("mode", "choice"),
    [
        ("stev", "by_ev(shift=0, mask=0x000000ff)"),
        ("switch-spray", "at_random()"),
        ("ecmp", "by_hash()"),
        ("flow-ecmp", "by_hash()"),
    ],
)
def test_spray__the_mode_sets_how_a_t0_chooses(spray, mode, choice):
    assert f"uplink_choice default {choice}" in lines("spray", Plan(mode=mode), "p1-t0-1", spray)


def test_spray__t1_has_no_way_up(spray):
    assert lines("spray", Plan(), "p1-t1-0", spray) == [
        "route dst_addr=fd00:1::/48 forward(port=1)",
        "route dst_addr=fd00:1:1::/48 forward(port=2)",
    ]


def test_spray__no_two_t0_share_a_hash_seed():
    seeds = [hash_seed(s) for s in Plan(planes=16, racks=8).switches]
    assert len(set(seeds)) == len(seeds)


def test_recognise__by_a_table_only_one_program_has(srv6, spray):
    assert (recognise(srv6), recognise(spray)) == ("srv6", "spray")


def test_entries__of_the_wrong_program_say_so(spray):
    plan = Plan()
    with pytest.raises(InputError, match=r"p0-t0-0: no table 'my_usid' .*is this the P4Info of program 'srv6'"):
        entries_of("srv6", plan, plan.switch("p0-t0-0"), spray)
