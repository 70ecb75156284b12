"""Counts of switches, sample by sample: sums of a live run's series."""

from mrc_testbed.experiments.live.counts import CELLS, SwitchTotals, numbers_of
from mrc_testbed.topologies.lab.switch_counters import Counts, SwitchCounts


def counts_of(marked=0, trims=(0, 0), drops=(0, 0, 0), queue=(0, 0), lost=0):
    cells = {"marked": [marked], "trimmed": list(trims), "drops": list(drops)}
    return SwitchCounts(True, cells, [queue[0], 0, 0, 0, 0, 0, 0, queue[1]], lost)


def add_counts(totals, **switches):
    return totals.update(Counts(switches, {}))


OFF_SWITCH = SwitchCounts(False)


def test_cells__as_p4src_numbers_them():
    assert CELLS == {"marked": [0], "trimmed": [0, 512], "drops": [8 * 512, 9 * 512, 10 * 512]}


def test_numbers__queues_dead_ports_and_cables_apart():
    assert numbers_of(counts_of(5, (3, 2), (1, 10, 100), (1000, 7), 4)) == {
        "marked": 5,
        "trimmed": 5,
        "trimmed_last_hop": 2,
        "dropped_queue": 1011,
        "dropped_control": 7,
        "dropped": 1118,
        "link_lost": 4,
    }


def test_look__what_came_since_the_last_one():
    totals = SwitchTotals()
    assert (
        add_counts(totals, a=counts_of(5, lost=2), b=counts_of(1))["marked"] == 0
    )  # what was before the run does not count
    assert add_counts(totals, a=counts_of(7, lost=2), b=counts_of(4))["marked"] == 5
    assert add_counts(totals, a=counts_of(7, lost=3), b=counts_of(5)) | {} == {
        "marked": 1,
        "trimmed": 0,
        "trimmed_last_hop": 0,
        "dropped_queue": 0,
        "dropped_control": 0,
        "dropped": 0,
        "link_lost": 1,
    }
    assert (totals.totals["marked"], totals.totals["link_lost"]) == (6, 1)


def test_look__a_switch_without_power_is_unknown_once_then_counts_nothing_then_from_zero():
    totals = SwitchTotals()
    add_counts(totals, a=counts_of(10), b=counts_of(1))
    add_counts(totals, a=counts_of(14), b=counts_of(1))
    assert add_counts(totals, a=OFF_SWITCH, b=counts_of(2))["marked"] is None
    assert add_counts(totals, a=OFF_SWITCH, b=counts_of(3))["marked"] == 1
    assert add_counts(totals, a=counts_of(2), b=counts_of(3))["marked"] == 2
    assert totals.totals["marked"] == 8


def test_look__rebooted_between_two_looks():
    totals = SwitchTotals()
    add_counts(totals, a=counts_of(10))
    assert add_counts(totals, a=counts_of(3))["marked"] == 3


def test_look__what_a_target_does_not_tell_stays_unknown():
    totals = SwitchTotals()
    bare = SwitchCounts(True, {"marked": [3], "trimmed": None, "drops": None})
    for _ in range(2):
        news = add_counts(totals, a=bare)
    assert (news["marked"], news["trimmed"], news["dropped"], news["link_lost"]) == (0, None, None, None)
    assert (totals.totals["marked"], totals.totals["dropped"]) == (0, None)


def test_look__a_target_that_tells_no_queue_drops_counts_what_its_program_dropped():
    assert numbers_of(SwitchCounts(True, {"marked": [0], "trimmed": [0, 0], "drops": [1, 2, 4]}))["dropped"] == 7


def test_look__after_one_that_failed_belongs_to_no_interval():
    totals = SwitchTotals()
    add_counts(totals, a=counts_of(1))
    totals.note_gap()
    assert add_counts(totals, a=counts_of(5))["marked"] is None
    assert add_counts(totals, a=counts_of(6))["marked"] == 1
    assert totals.totals["marked"] == 5
