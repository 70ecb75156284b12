"""Figures of `mrc bench incast`; the measurement itself needs a live fabric."""

from types import SimpleNamespace

from mrc_testbed.controller.p4runtime.qos import DEFAULT
from mrc_testbed.topologies.lab.switch_counters import Counts, SwitchCounts
from tools.bench.incast import VARIANTS, judge, switch_counts, table

GOOD_RESULT = {
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
    assert judge(GOOD_RESULT)
    assert judge(GOOD_RESULT | {"victim_bps": 3.8e6})
    for worse in (
        {"victim_bps": 3.79e6},
        {"traffic_manager_dropped": 1},
        {"hosts": GOOD_RESULT["hosts"] | {"lost": 1}},
        {"switches": GOOD_RESULT["switches"] | {"QUEUE": 1}},
        {"switches": GOOD_RESULT["switches"] | {"trimmed_last_hop": 0}},
    ):
        assert not judge(GOOD_RESULT | worse)


def test_switch_counts__go_by_the_index_of_p4src():
    drops = [0] * 16
    drops[5], drops[8], drops[9] = 3, 4, 5
    switch_counters = SwitchCounts(True, {"marked": [1], "trimmed": [7, 2], "drops": drops})
    requested_cells = []

    def counts(cells):
        requested_cells.append(cells)
        return Counts({"a": switch_counters, "b": switch_counters, "off": SwitchCounts(False, {})}, {})

    totals = switch_counts(SimpleNamespace(target=SimpleNamespace(counts=counts)))
    assert +totals == {"marked": 2, "trimmed": 14, "trimmed_last_hop": 4, "NOT_TRIMMABLE": 8, "QUEUE": 10, "other": 6}
    assert requested_cells[0]["trimmed"] == [0, 512] and requested_cells[0]["drops"][8:10] == [8 * 512, 9 * 512]


def test_table__has_a_column_for_each_variant():
    rich_table = table({"variants": {"as designed": GOOD_RESULT, "neither": GOOD_RESULT}})
    assert [column.header for column in rich_table.columns] == ["", "as designed", "neither"]
    assert VARIANTS["as designed"] is DEFAULT
