"""Figures of `mrc bench incast`; the measurement itself needs a live fabric."""

from types import SimpleNamespace

from mrc_testbed.controller.p4runtime.qos import DEFAULT
from mrc_testbed.topologies.lab.switch_counters import Counts, SwitchCounts
from tools.bench.incast import VARIANTS, judge, switch_counts, table

GOOD = {
    "victim_alone_bps": 4e6,
    "victim_bps": 3.9e6,
    "victim_lowest_bps": 3.5e6,
    "incast_bps": 4e6,
    "incast_jain": 0.99,
    "switches": {"marked": 0, "trimmed": 0, "trimmed_last_hop": 9, "NOT_TRIMMABLE": 0, "QUEUE": 0, "other": 0},
    "traffic_manager_dropped": 0,
    "hosts": {"retransmitted": 9, "lost": 0, "timeouts": 0, "trimmed": 0, "trimmed_lasthop": 9, "marked": 0},
}


def test_judge__wants_trims_no_loss_and_a_victim_that_keeps_its_rate():
    assert judge(GOOD)
    assert judge(GOOD | {"victim_bps": 3.8e6})
    for worse in (
        {"victim_bps": 3.79e6},
        {"traffic_manager_dropped": 1},
        {"hosts": GOOD["hosts"] | {"lost": 1}},
        {"switches": GOOD["switches"] | {"QUEUE": 1}},
        {"switches": GOOD["switches"] | {"trimmed_last_hop": 0}},
    ):
        assert not judge(GOOD | worse)


def test_switch_counts__go_by_the_index_of_p4src():
    drops = [0] * 16
    drops[5], drops[8], drops[9] = 3, 4, 5
    one = SwitchCounts(True, {"marked": [1], "trimmed": [7, 2], "drops": drops})
    asked = []

    def counts(cells):
        asked.append(cells)
        return Counts({"a": one, "b": one, "off": SwitchCounts(False, {})}, {})

    found = switch_counts(SimpleNamespace(target=SimpleNamespace(counts=counts)))
    assert +found == {"marked": 2, "trimmed": 14, "trimmed_last_hop": 4, "NOT_TRIMMABLE": 8, "QUEUE": 10, "other": 6}
    assert asked[0]["trimmed"] == [0, 512] and asked[0]["drops"][8:10] == [8 * 512, 9 * 512]


def test_table__has_a_column_for_each_variant():
    shown = table({"variants": {"as designed": GOOD, "neither": GOOD}})
    assert [column.header for column in shown.columns] == ["", "as designed", "neither"]
    assert VARIANTS["as designed"] is DEFAULT
