"""NSCC beyond its worked examples.

What each rule does over time, the receiver, quick adapt after idle, and bounds.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_testbed.hosts.engine.cc.crowd import BDPS, CUT, DRAIN_MAX, LOSS_WINDOW_MIN, PACKETS, POWER, WINDOW_MIN
from mrc_testbed.hosts.engine.cc.nscc import QUADRANTS, Nscc, NsccParameters, Reaction

MTU, RTT = 1500, 0.005
PIPE = NsccParameters.derive(MTU, 12.5e6, RTT, trimming=True)
"""100 Mb/s, 5 ms: 41.7 packets of 1500 bytes."""


def controller(**state: float) -> Nscc:
    """Return a controller in the middle of a transfer: 10 s, a quick-adapt window just begun."""
    cc = Nscc(PIPE, 10.0)
    cc.qa_due, cc.inflight = 10.0 + RTT, 60_000
    for name, value in state.items():
        setattr(cc, name, value)
    return cc


def one_rtt(cc: Nscc, now: float, delay: float, *, marked: bool = False) -> float:
    """Give a window's worth of acknowledgments, evenly over one base RTT; return the time after it.

    Acknowledged bytes are sent again.
    """
    packets = max(1, round(cc.cwnd / MTU))
    for i in range(packets):
        cc.on_send(MTU)
        cc.on_ack(now + RTT * (i + 1) / packets, MTU, marked, RTT + delay)
    return now + RTT


# ---- the quadrants over a round trip -----------------------------------------------------------------------


def test_quadrants__all_four_are_there():
    assert set(QUADRANTS) == {(is_marked, is_late) for is_marked in (False, True) for is_late in (False, True)}


@pytest.mark.parametrize("start", [15_000, 30_000, 60_000])
def test_proportional__gain_per_rtt_does_not_depend_on_the_window(start):
    cc = controller(cwnd=start)
    one_rtt(cc, 10.0, PIPE.target / 2)
    expected_gain = PIPE.alpha * PIPE.target / 2 + PIPE.eta
    assert cc.cwnd - start == pytest.approx(expected_gain, rel=0.25)  # applied late, and the window grows meanwhile
    assert cc.counts[Reaction.PROPORTIONAL] > 0


@pytest.mark.parametrize("start", [15_000, 60_000])
def test_fair__the_same_bytes_for_small_and_large_windows(start):
    cc = controller(cwnd=start, wmax=1e9)
    now = 10.0
    for _ in range(3):
        now = one_rtt(cc, now, PIPE.target * 1.1)
    assert cc.cwnd - start == pytest.approx(3 * (PIPE.fi + PIPE.eta), rel=0.25)


def test_decrease__keeps_the_ratio_and_fair_increase_closes_it():
    """Two flows meet: increases add the same to both, decreases take the same share."""
    small_window, large_window = controller(cwnd=15_000), controller(cwnd=60_000)
    now = 10.0
    for _ in range(40):
        for cc in (small_window, large_window):
            one_rtt(cc, now, PIPE.target * 1.2)
            one_rtt(cc, now + RTT, PIPE.target * 1.2, marked=True)
        now += 2 * RTT
    assert small_window.cwnd / large_window.cwnd > 0.8


def test_nothing__a_mark_alone_moves_the_window_by_eta_only():
    cc = controller(cwnd=60_000)
    one_rtt(cc, 10.0, PIPE.target / 2, marked=True)
    assert cc.cwnd == pytest.approx(60_000 + PIPE.eta)


def test_fast__exponential_while_there_is_no_queue():
    cc = controller(cwnd=10_000)
    now = one_rtt(cc, 10.0, 0.0)  # the window that has to be calm
    now = one_rtt(cc, now, 0.0)
    first_cwnd = cc.cwnd
    one_rtt(cc, now, 0.0)
    assert cc.cwnd / first_cwnd == pytest.approx(1 + PIPE.fi_scale, rel=0.1)
    assert cc.counts[Reaction.FAST] > 0


def test_fast__a_mark_without_delay_does_not_end_it():
    cc = controller(cwnd=10_000, calm_bytes=20_000, sprint=True)
    cc.on_ack(10.0, MTU, True, RTT)
    assert cc.sprint
    cc.on_ack(10.0, MTU, False, RTT + PIPE.calm_delay)
    assert (cc.sprint, cc.calm_bytes) == (False, 0)


def test_settle__by_bytes_does_not_restart_the_clock_of_eta():
    cc = controller(cwnd=60_000)
    for i in range(30):  # three settlements by bytes within one period
        cc.on_ack(10.0 + i * 1e-5, MTU, False, RTT + PIPE.target / 2)
    assert cc.t_settle == 10.0
    first_cwnd = cc.cwnd
    cc.on_ack(10.0 + RTT, 0, True, RTT)
    assert cc.cwnd - first_cwnd >= PIPE.eta
    assert cc.t_settle == 10.0 + RTT


def test_no_sample__counts_the_bytes_and_nothing_else():
    cc = controller(cwnd=50_000)
    assert cc.on_ack(10.0, 3000, False, None) is Reaction.NO_SAMPLE
    assert (cc.inflight, cc.cwnd, cc.credit, cc.settled_bytes) == (57_000, 50_000, 0, 3000)


def test_other_nack__costs_no_window():
    cc = controller(cwnd=50_000)
    cc.on_other_nack(MTU)
    assert (cc.cwnd, cc.inflight) == (50_000, 58_500)


# ---- the receiver ------------------------------------------------------------------------------------------


def test_penalty__64_in_every_sack_halves_the_window_in_a_round_trip():
    cc = controller(cwnd=60_000)
    for _ in range(40):
        cc.on_send(MTU)
        cc.on_ack(10.0, MTU, False, RTT, penalty=64)
    assert cc.cwnd == pytest.approx(30_000, rel=0.05)


def test_penalty__127_leaves_about_one_packet():
    cc = controller(cwnd=60_000)
    for _ in range(40):
        cc.on_send(MTU)
        cc.on_ack(10.0, MTU, False, RTT, penalty=127)
    assert cc.cwnd < 2 * MTU


def test_penalty__without_restore_the_old_window_is_forgotten():
    cc = controller(cwnd=60_000)
    cc.on_ack(10.0, MTU, True, RTT, penalty=64)
    low = cc.cwnd
    cc.on_ack(10.0, MTU, True, RTT)
    cc.on_ack(10.0, MTU, True, RTT, restore=True)  # nothing to restore any more
    assert (cc.cwnd, cc.saved_window) == (low, 0)


def test_penalty__goes_on_while_another_qp_of_the_destination_is_throttled():
    cc = controller(cwnd=60_000)
    cc.on_ack(10.0, MTU, True, RTT, penalty=64)
    cc.on_ack(10.0, MTU, True, RTT, restore=None)
    assert cc.saved_window == 60_000


# ---- quick adapt -------------------------------------------------------------------------------------------


def starved_controller(**state: float) -> Nscc:
    """Return a controller at the end of a quick-adapt window with a trim.

    3000 bytes of a full window arrived in it.
    """
    return controller(cwnd=60_000, qa_due=10.0, won=3000, qa_trim_at=9.999, **state)


def test_quick_adapt__one_window_limited_and_starved():
    cc = starved_controller()
    assert cc.on_ack(10.0, MTU, False, RTT) is Reaction.QUICK_ADAPT
    assert (cc.cwnd, cc.mute_bytes, cc.qa_trim_at) == (4500, 58_500, None)


def test_quick_adapt__not_when_the_application_was_the_limit():
    """nscc.md §6.5: an old trim and an idle application must not cost the window."""
    cc = starved_controller(inflight=6000)
    assert cc.on_ack(10.0, MTU, False, RTT) is not Reaction.QUICK_ADAPT
    assert cc.cwnd >= 60_000


def test_quick_adapt__forgets_a_trim_after_two_windows():
    cc = controller(cwnd=60_000, qa_due=10.0, won=3000, qa_trim_at=10.0 - 2.1 * (RTT + PIPE.target))
    assert cc.on_ack(10.0, MTU, False, RTT) is not Reaction.QUICK_ADAPT
    assert cc.qa_trim_at is None


def test_quick_adapt__a_pause_starts_a_new_window():
    cc = controller(cwnd=60_000, inflight=MTU, qa_due=10.0 + RTT, qa_limited=True)
    cc.on_trim(10.0, MTU)  # nothing in flight any more
    cc.on_send(60_000)
    cc.on_ack(15.0, MTU, False, RTT)  # back after five seconds: little arrived in "the window", which means nothing
    assert cc.counts[Reaction.QUICK_ADAPT] == 0
    assert cc.cwnd > 55_000
    assert cc.qa_due == pytest.approx(15.0 + RTT + PIPE.target)


def test_quick_adapt__can_be_switched_off():
    cc = Nscc(replace(PIPE, quick_adapt=False), 10.0)
    cc.inflight, cc.qa_due, cc.won = 60_000, 10.0, 10
    cc.on_trim(10.0, MTU)
    assert cc.counts[Reaction.QUICK_ADAPT] == 0


def test_quick_adapt__unmarked_acks_count_while_muted():
    cc = starved_controller()
    cc.on_ack(10.0, MTU, False, RTT)
    assert cc.on_ack(10.0, MTU, True, 4 * RTT) is Reaction.MUTED
    assert cc.on_ack(10.0, MTU, False, 4 * RTT) is Reaction.FAIR


# ---- base RTT ----------------------------------------------------------------------------------------------


def test_base__only_falls_and_takes_the_ceiling_along():
    cc = controller()
    for rtt in (RTT * 0.8, RTT * 0.9, RTT * 2):
        cc.on_ack(10.0, 0, False, rtt)
    assert cc.base == RTT * 0.8
    assert cc.wmax == pytest.approx(1.5 * 12.5e6 * RTT * 0.8)


def test_base__nonsense_samples_are_no_base():
    cc = controller()
    cc.on_ack(10.0, 0, False, 0.0)
    assert cc.base == RTT


def test_base__a_tiny_one_leaves_room_for_a_packet():
    cc = controller()
    for i in range(100):
        cc.on_ack(10.0 + i * RTT, MTU, False, 1e-6)
    assert cc.cwnd >= MTU


# ---- bounds, whatever happens -------------------------------------------------------------------------------

SIGNALS = st.lists(
    st.tuples(
        st.sampled_from(["ack", "mark", "trim", "loss", "refused", "penalty", "restore", "blind", "late_arrival"]),
        st.floats(0, 0.01),
        st.floats(0, 0.1),
        st.integers(0, 127),
    ),
    max_size=300,
)


@settings(max_examples=150, deadline=None)
@given(SIGNALS, st.booleans(), st.sampled_from(["shape", "uet"]), st.integers(0, 1 << 30))
def test_any_signals__window_within_bounds_and_nothing_stays_in_flight(signals, trimming, scaling, seed):
    """cwnd is in [MTU, ceiling] (a lower one binds from the next settlement on); inflight returns to 0."""
    p = NsccParameters.derive(MTU, 12.5e6, RTT, trimming=trimming, scaling=scaling)
    cc, rng, now, out = Nscc(p), Random(seed), 0.0, 0
    for kind, pause, delay, penalty in signals:
        now += pause
        while cc.inflight + MTU <= cc.cwnd and rng.random() < 0.9:
            cc.on_send(MTU)
            out += MTU
        size = min(out, MTU * rng.randrange(4))
        out -= size
        rtt = None if kind == "blind" else RTT / 2 + delay
        if kind == "trim":
            cc.on_trim(now, size)
        elif kind == "loss":
            cc.on_loss(now, size)
        elif kind == "refused":
            cc.on_other_nack(size)
        elif kind == "late_arrival":
            # Given up, then arrived: on_unlost puts the bytes back, because the ACK drains them again
            cc.on_loss(now, size)
            cc.on_unlost(size)
            cc.on_ack(now, size, False, None)
        else:
            cc.on_ack(now, size, kind == "mark", rtt, penalty if kind == "penalty" else 0, kind == "restore")
        assert (MTU * WINDOW_MIN if cc.crowd.is_joined else MTU) <= cc.cwnd <= p.max_cwnd
        assert cc.inflight == out
        assert cc.avg >= 0
        assert cc.base <= RTT
    cc.on_ack(now, out, False, RTT)
    assert cc.inflight == 0


# ---- a crowd (note 6) --------------------------------------------------------------------------------------


def crowd(share: float) -> Nscc:
    """Return a controller in a crowd, with a window of so many packets."""
    cc = controller(cwnd=60_000)
    cc.on_trim(10.0, MTU, last_hop=True)
    assert cc.crowd.is_joined
    cc.cwnd = share * MTU
    return cc


def test_crowd__begins_with_a_trim_at_the_last_hop_and_not_in_the_core():
    cc = controller(cwnd=60_000)
    cc.on_trim(10.0, MTU)
    assert not cc.crowd.is_joined and cc.cwnd == 60_000 - MTU
    cc.on_trim(10.0, MTU, last_hop=True)
    assert cc.crowd.is_joined and cc.cwnd == 60_000 - 2 * MTU


def test_crowd__begins_at_the_floor_or_with_a_loss_at_a_delay_where_nothing_trims():
    cc = controller(cwnd=1.5 * MTU)
    cc.on_loss(10.0, MTU)
    assert cc.crowd.is_joined and cc.cwnd == MTU
    pipe = NsccParameters.derive(MTU, 12.5e6, RTT, trimming=False)
    for avg, joins_crowd in ((0.0, False), (pipe.target, True)):
        cc = Nscc(pipe)
        cc.avg = avg
        cc.on_loss(10.0, MTU)
        assert cc.crowd.is_joined is joins_crowd, "a loss without delay is no congestion"


@pytest.mark.parametrize("delay", [0.8, 1.0, 1.25, 1.4])
def test_crowd__all_windows_meet_at_that_of_the_delay(delay):
    """Increase and decrease cancel at 0.8 pipes x (target / delay) ** 10, whatever the speed.

    `delay`: in base RTTs.
    """
    expected_packets = BDPS * PIPE.bdp / MTU * (PIPE.target / (delay * RTT)) ** (2 * POWER)
    ends = []
    for share in (0.01, 0.3, 4.0, 60.0):
        cc, now = crowd(share), 20.0
        for _ in range(4000):
            now += RTT
            cc.on_ack(now, MTU, False, RTT * (1 + delay))
        ends.append(cc.cwnd / MTU)
    assert ends == [pytest.approx(expected_packets, rel=0.05)] * 4


def test_crowd__marks_say_nothing_more():
    shares = []
    for marked in (False, True):
        cc = crowd(2.0)
        cc.on_ack(20.0, MTU, marked, 2.2 * RTT)
        shares.append(cc.cwnd)
    assert shares[0] == shares[1] < 2 * MTU


def test_crowd__cuts_once_a_flight_and_parts_those_who_collided():
    cc = crowd(0.5)
    cc.on_trim(20.0, MTU, True, 19.99)
    assert cc.cwnd == pytest.approx(0.5 * CUT * MTU)
    first = cc.opens_at()
    assert 20.0 <= first <= 20.0 + RTT / (0.5 * CUT)
    cc.on_trim(20.0, MTU, True, 19.995)
    cc.on_loss(20.0 + 5 * RTT, MTU, 19.999)
    assert cc.cwnd == pytest.approx(0.5 * CUT * MTU) and cc.opens_at() == first, "they left before the cut"
    cc.on_loss(20.0 + 5 * RTT, MTU, 20.0 + RTT)
    assert cc.cwnd == pytest.approx(0.5 * CUT**2 * MTU)
    cc = crowd(4.0)
    cc.on_trim(20.0, MTU, True, 19.99)
    assert cc.cwnd == pytest.approx(4 * CUT * MTU) and cc.crowd.turn_at == 10.0, "a window of packets has no pace"


def test_crowd__losses_alone_leave_more_than_trims():
    cc = crowd(4.0)
    for n in range(100):
        cc.avg = PIPE.target
        cc.on_loss(21.0 + n, MTU)
    assert cc.cwnd == LOSS_WINDOW_MIN * MTU
    for n in range(100):
        cc.on_trim(121.0 + n, MTU, True)
    assert cc.cwnd == WINDOW_MIN * MTU
    cc.on_loss(300.0, MTU)
    assert cc.cwnd == WINDOW_MIN * MTU, "a loss gives nothing back"


@pytest.mark.parametrize("share", [0.5, 4.0])
def test_crowd__bytes_beyond_the_window_say_nothing_of_it(share):
    """A SACK for a flight from before the crowd once took windows to their least at one go."""
    ends = []
    for packets in (max(1, int(share)), 40):
        cc = crowd(share)
        cc.on_ack(20.0, packets * MTU, False, 2.5 * RTT)
        ends.append(cc.cwnd)
    assert ends[0] == ends[1] >= share * MTU / 2


@pytest.mark.parametrize("share", [1.0, 6.0])
def test_crowd__delays_of_one_flight_take_half_of_the_window_at_most(share):
    """Six packets that left before the crowd began once took a window of one to 0.09 in two round trips."""
    cc = crowd(share)
    for number in range(20):
        cc.on_ack(20.0 + number * RTT / 20, MTU, False, 4 * RTT)
    assert cc.cwnd == share * MTU * (1 - DRAIN_MAX)
    cc.on_ack(20.0 + 5 * RTT, MTU, False, 4 * RTT)  # left after the first answer
    assert cc.cwnd < share * MTU * (1 - DRAIN_MAX)


def test_crowd__losses_that_took_more_than_half_of_a_flight_are_not_given_back_by_its_delays():
    cc = crowd(6.0)
    cc.on_ack(20.0, MTU, False, 2.5 * RTT)
    cc.avg = 0.0
    for _ in range(4):
        cc.on_loss(20.0, MTU)
    lossy_cwnd = cc.cwnd
    assert lossy_cwnd < 6 * MTU * (1 - DRAIN_MAX)
    cc.on_ack(20.01, MTU, False, 2.5 * RTT)
    assert cc.cwnd == lossy_cwnd


def test_crowd__a_loss_without_delay_is_one_packet_of_several():
    for share, packets_after in ((4.0, 3.0), (1.5, 1.0), (0.25, 0.25)):
        cc = crowd(share)
        cc.avg = PIPE.target * 0.99
        cc.on_loss(20.0, MTU)
        assert cc.cwnd == packets_after * MTU


def test_crowd__a_pipe_that_is_measured_anew_gives_no_packet_away():
    cc = crowd(0.25)
    cc.retune(replace(PIPE, base_rtt=RTT / 2))
    assert cc.cwnd == MTU / 4


def test_crowd__a_receiver_that_throttles_forbids_increases_and_no_more_than_a_packet_is_left():
    cc = crowd(0.5)
    assert cc.on_ack(20.0, MTU, False, RTT, penalty=127) is Reaction.HELD
    assert cc.cwnd == 0.5 * MTU
    cc = crowd(1.5)
    cc.on_ack(20.0, MTU, False, RTT, penalty=127)
    assert cc.cwnd == MTU


def test_crowd__is_over_when_a_window_of_packets_met_no_queue():
    cc, now = crowd(0.01), 20.0
    while cc.crowd.is_joined:
        now += RTT
        cc.on_ack(now, MTU, False, RTT)
        assert now < 21.0, "hundreds of round trips"
    assert cc.cwnd >= PACKETS * MTU
    cc = crowd(8.0)
    for _ in range(40):  # a queue now and then
        assert cc.on_ack(20.0, MTU, False, RTT) is Reaction.FAST
        assert cc.on_ack(20.0, MTU, False, 1.3 * RTT) is Reaction.PROPORTIONAL
    assert cc.crowd.is_joined
