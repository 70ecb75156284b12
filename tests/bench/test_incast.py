"""What `mrc bench incast` makes of its figures; the measurement itself needs a live fabric."""

import pytest

from bench.incast import VARIANTS, _meaning, judge, table
from controller.discipline import DEFAULT

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


@pytest.mark.parametrize(
    ("counter", "index", "name"),
    [
        ("marked", 3, "marked"),
        ("trimmed", 3, "trimmed"),
        ("trimmed", 515, "trimmed_last_hop"),
        ("drops", 8 * 512 + 1, "NOT_TRIMMABLE"),
        ("drops", 9 * 512, "QUEUE"),
        ("drops", 5 * 512 + 2, "other"),
    ],
)
def test_counters__go_by_the_index_of_p4src(counter, index, name):
    assert _meaning(counter, index) == name


def test_table__has_a_column_for_each_variant():
    shown = table({"variants": {"as designed": GOOD, "neither": GOOD}})
    assert [column.header for column in shown.columns] == ["", "as designed", "neither"]
    assert VARIANTS["as designed"] is DEFAULT
