"""Counters of a QP: the names that users see, and where losses and refusals are counted."""

from __future__ import annotations

from mrc_testbed.hosts.engine.connection import LOSSES, REFUSALS, Counters, PlaneCounters
from mrc_testbed.hosts.engine.events import LossCause
from mrc_testbed.hosts.engine.rocev2.rc_counters import RcCounters
from mrc_testbed.hosts.engine.wire.packets import NackReason

NAMES = """\
packets_sent bytes_sent retransmitted lost overtaken distant timeouts not_lost spurious marked trimmed trimmed_lasthop
refused refused_bitmap refused_buffer refused_resource refused_window unknown_nacks retry_charges probes_sent
probes_answered sacks_received stale_sacks foreign_cc bad_feedback packets_received bytes_received duplicates
out_of_order out_of_window trims_received marks_received sacks_sent acks_sent nacks_sent plane_packets plane_bytes
"""


def test_by_name__is_flat_and_has_a_name_for_each_cause():
    names = list(Counters().by_name())
    assert " ".join(names) == NAMES.replace("\n", " ").strip()
    assert list(RcCounters().by_name())[: len(names)] == names


def test_by_name__counts_by_cause_and_copies_lists():
    counters = Counters(planes=[PlaneCounters()])
    counters.planes[0].count(4096)
    counters.losses[LossCause.TIMEOUT] += 2
    counters.refusals[NackReason.PSN_OOR_WINDOW] += 1
    counts = counters.by_name()
    assert counts["timeouts"] == counters.timeouts == 2
    assert (counts["overtaken"], counts["refused_window"], counts["refused_resource"]) == (0, 1, 0)
    assert (counts["plane_packets"], counts["plane_bytes"]) == ([1], [4096])
    counts["plane_packets"].append(4)
    assert counters.plane_packets == [1]


def test_causes__each_has_counts_of_its_own_in_each_qp():
    assert Counters().losses.keys() == LOSSES.keys() and Counters().refusals.keys() == REFUSALS.keys()
    first, second = Counters(), Counters()
    assert first.losses is not second.losses
