"""The egress discipline's entries: classes, thresholds by role and rate, what an operator may change."""

import pytest

from mrc_testbed.controller.errors import InputError
from mrc_testbed.controller.p4runtime.qos import (
    Discipline,
    dead_port_entry,
    depths_of,
    discipline_entries,
    ecn_slope,
    threshold_entry,
    trimming_entry,
)
from mrc_testbed.topologies.plan import Plan, Thresholds

FABRIC = Thresholds(ecn_min=2, ecn_max=9, trim_at=12, drop_at=36, last_hop=False, control_depth=90)
CLASSES = [
    "traffic_class dscp=0 data_class(trimmable=0, retransmission=0)",
    "traffic_class dscp=4 data_class(trimmable=1, retransmission=0)",
    "traffic_class dscp=8 data_class(trimmable=1, retransmission=1)",
    "traffic_class dscp=12 control_class(priority=7)",
    "traffic_class dscp=16 control_class(priority=7)",
    "traffic_class dscp=46 control_class(priority=7)",
    "trimming default set_trimming(trim_len=98, priority=7, trimmed_dscp=12, trimmed_lasthop_dscp=16)",
]


def lines(entries):
    return [str(entry) for entry in entries]


def test_no_rate__classes_but_no_thresholds(srv6, spray):
    for catalog in (srv6, spray):
        assert lines(discipline_entries(Plan(), Plan().switch("p0-t0-0"), catalog)) == CLASSES


def test_scaled__each_port_by_its_role(srv6):
    plan = Plan.scaled()
    text_lines = lines(discipline_entries(plan, plan.switch("p0-t0-0"), srv6))[len(CLASSES) :]
    assert [line.split()[1] for line in text_lines] == [f"egress_port={n}" for n in (1, 2, 3, 4)]
    assert ["last_hop=1" in line for line in text_lines] == [True, True, False, False]
    assert all("last_hop_ecn=0" in line for line in text_lines)


def test_thresholds__the_slope_reaches_one_at_the_end_of_the_ramp(srv6):
    assert str(threshold_entry(srv6, 3, FABRIC)) == (
        "queue_thresholds egress_port=3 set_thresholds(ecn_min=0x00002, ecn_max=0x00009, ecn_slope=0x00002492, "
        "trim_at=0x0000c, retx_trim_at=0x0000c, drop_at=0x00024, last_hop=0, last_hop_ecn=0)"
    )
    assert ecn_slope(2, 9) * 7 == pytest.approx(1 << 16, abs=7)
    assert ecn_slope(5, 5) == 0


def test_operator__signals_off_and_more_room_for_retransmissions(srv6):
    entry_text = str(threshold_entry(srv6, 3, FABRIC, Discipline(ecn=False, trimming=False, last_hop_ecn=True)))
    assert "ecn_max=0x00000" in entry_text and " trim_at=0x00000, retx_trim_at=0x00000" in entry_text
    assert "drop_at=0x00024" in entry_text and "last_hop_ecn=1" in entry_text
    assert "retx_trim_at=0x00012" in str(threshold_entry(srv6, 3, FABRIC, Discipline(retransmission_share=1.5)))
    assert "retx_trim_at=0x00024" in str(threshold_entry(srv6, 3, FABRIC, Discipline(retransmission_share=9)))


def test_trimmed__own_class_and_codepoints(spray):
    want = Discipline(trimmed_priority=3, trimmed=20, trimmed_lasthop=21)
    plan = Plan(mode="ecmp")
    assert str(trimming_entry(plan, spray, want)) == (
        "trimming default set_trimming(trim_len=98, priority=3, trimmed_dscp=20, trimmed_lasthop_dscp=21)"
    )
    assert "traffic_class dscp=20 control_class(priority=3)" in lines(
        discipline_entries(plan, plan.switch("p0-t0-0"), spray, want)
    )


@pytest.mark.parametrize(
    ("bad_data", "message"),
    [
        ({"trimmed": 4}, "distinct"),
        ({"control": 64}, "6 bits"),
        ({"trimmed_priority": 8}, "1 to 7"),
        ({"retransmission_share": 0.5}, "1 or more"),
        ({"ecn": 1}, "ecn = 1: wants a bool"),
        ({"trimmable": None}, "trimmable = None: wants a int"),
        ({"trim_at": "1"}, "trim_at = '1': wants a float"),
        ({"drop_at": 6}, "drops by itself"),
        ({"ecn_min": float("nan")}, "ecn_min = nan"),
        ({"ecm": True}, "any of ecn, trimming"),
        ([], "wants an object"),
    ],
)
def test_operator__what_makes_no_sense_is_refused(bad_data, message):
    with pytest.raises(InputError, match=message):
        Discipline.from_json(bad_data)


def test_operator__other_depths_by_role():
    plan = Plan.scaled()
    t0 = plan.switch("p0-t0-0")
    uplink, downlink = (plan.thresholds(t0, port) for port in (3, 1))
    defaults = [depths_of(plan, t0, port, Discipline(ecn=False)) for port in (3, 1)]
    assert defaults == [uplink, downlink]
    want = Discipline.from_json({"trim_at": 2.0, "trim_last_hop": 2.5, "drop_at": 5})
    depths = [depths_of(plan, t0, port, want) for port in (3, 1)]
    assert [(depth.ecn_min, depth.trim_at, depth.drop_at) for depth in depths] == [(2, 21, 54), (2, 27, 54)]
    assert depths_of(plan, t0, 1, Discipline(trim_at=2.0)) == downlink
    assert depths_of(Plan(), t0, 1, want) is None
    assert Discipline.from_json(want.to_json()) == want


def test_dead_port(srv6):
    assert str(dead_port_entry(srv6, 7)) == "dead_ports egress_port=7 dead()"
