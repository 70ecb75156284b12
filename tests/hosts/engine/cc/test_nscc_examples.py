"""The worked examples of nscc.md §3.1, by their numbers there.

Bytes and microseconds; set R is 100 Gb/s, 12 us in the text's own scaling, set E 100 Mb/s, 5 ms in ours.
"""

from __future__ import annotations

from typing import Any

import pytest

from mrc_testbed.hosts.engine.cc.nscc import INF, Nscc, NsccParameters, Reaction

US = 1e-6
R = NsccParameters.derive(4096, 12_500, 12.0, trimming=True, scaling="uet", unit_s=US)
E = NsccParameters.derive(1500, 12.5, 5000.0, trimming=False, scaling="shape", unit_s=US)


def controller(p: NsccParameters, **state: Any) -> Nscc:
    """Return a controller in the state of the sheet's rows, then changed by `state`.

    Nothing is due, and 100 000 bytes are in flight.
    """
    now = 100.0 if p is R else 200_000.0
    cc = Nscc(p, now)
    cc.t_cut = 0.0
    cc.qa_due = 1e9
    cc.inflight = 100_000
    for name, value in state.items():
        setattr(cc, name, value)
    return cc


def ack(cc: Nscc, rtt: float | None, marked: bool = False, size: int | None = None, **kwargs: Any) -> Reaction:
    """Give the controller one acknowledgment at the sheet's `now`; return its reaction."""
    now = 100.0 if cc.p is R else 200_000.0
    return cc.on_ack(now, size or int(cc.p.mtu), marked, rtt, **kwargs)


def test_derive__set_r_is_the_reference_network():
    assert (R.bdp, R.target, R.fi, R.eta) == (150_000, 9, 20_480, pytest.approx(614.4))
    assert R.alpha == pytest.approx(1365.3333)
    assert (R.fi_scale, R.max_cwnd, R.qa_threshold, R.adjust_bytes) == (0.25, 225_000, INF, 32_768)
    assert R.calm_delay == pytest.approx(1.0)


def test_derive__set_e_keeps_the_shape():
    assert (E.bdp, E.target, E.max_cwnd, E.qa_threshold, E.adjust_bytes) == (62_500, 5000, 93_750, 20_000, 12_000)
    assert E.alpha == pytest.approx(1.365333, rel=1e-6)
    assert E.fi == pytest.approx(8533.333)
    assert E.eta == pytest.approx(256)
    assert E.fi_scale == pytest.approx(0.284444, rel=1e-5)
    assert E.calm_delay == pytest.approx(416.667)


@pytest.mark.parametrize(
    ("mbps", "rtt_ms", "mtu", "trim", "drop", "fi", "eta"),
    [
        (10, 20, 512, 2048, 2731, 3413, 102),
        (10, 20, 1500, 2048, 2731, 3413, 102),
        (50, 10, 1500, 5120, 6827, 8533, 256),
        (100, 5, 1500, 5120, 6827, 8533, 256),
        (100, 10, 1500, 10240, 13653, 17067, 512),
        (1000, 2, 1500, 20480, 27307, 34133, 1024),
        (10, 5, 1500, 512, 683, 853, 26),
    ],
)
def test_derive__the_table_of_links(mbps, rtt_ms, mtu, trim, drop, fi, eta):
    """nscc.md §1.4: increases per round trip, in bytes."""
    for trimming, increase in ((True, trim), (False, drop)):
        p = NsccParameters.derive(mtu, mbps / 8, rtt_ms * 1000, trimming=trimming)
        assert p.alpha * p.target == pytest.approx(increase, abs=1)
        assert p.fi == pytest.approx(fi, abs=1)
        assert p.eta == pytest.approx(eta, abs=1)
        assert p.fi_scale <= 1.0


def test_derive__both_scalings_agree_at_the_reference():
    shape = NsccParameters.derive(4096, 12_500, 12.0, scaling="shape", unit_s=US)
    for name in ("alpha", "fi", "eta", "fi_scale", "calm_delay", "max_cwnd", "target"):
        assert getattr(shape, name) == pytest.approx(getattr(R, name)), name


def test_01__proportional_increase_is_earned_not_applied():
    cc = controller(R, cwnd=100_000)
    assert ack(cc, 15) is Reaction.PROPORTIONAL
    assert (cc.credit, cc.cwnd) == (pytest.approx(33_554_432), 100_000)


def test_02__nine_packets_settle():
    cc = controller(R, cwnd=100_000)
    for _ in range(8):
        ack(cc, 15)
    assert cc.cwnd == 100_000
    ack(cc, 15)
    assert (cc.cwnd, cc.credit) == (pytest.approx(103_019.9, abs=0.1), 0)


def test_03__a_period_settles_and_pays_eta():
    cc = controller(R, cwnd=100_000, t_settle=88.0)
    assert ack(cc, 15) is Reaction.PROPORTIONAL
    assert cc.cwnd == pytest.approx(100_949.94, abs=0.01)


def test_04__fair_increase():
    cc = controller(R, cwnd=50_000, t_settle=88.0)
    assert ack(cc, 22) is Reaction.FAIR
    assert cc.cwnd == pytest.approx(52_292.12, abs=0.01)


def test_05__delay_at_target_is_late():
    cc = controller(R, cwnd=50_000)
    assert ack(cc, 21) is Reaction.FAIR
    assert (cc.credit, cc.cwnd) == (pytest.approx(83_886_080), 50_000)


def test_06__a_mark_without_delay_is_left_to_path_selection():
    cc = controller(R, cwnd=100_000)
    assert ack(cc, 16, marked=True) is Reaction.NOTHING
    assert (cc.cwnd, cc.credit) == (100_000, 0)
    cc = controller(R, cwnd=100_000, t_settle=88.0)
    ack(cc, 16, marked=True)
    assert cc.cwnd == pytest.approx(100_614.4)  # eta is paid all the same


def test_07__decrease_by_the_average():
    cc = controller(R, cwnd=200_000, avg=18.0, t_cut=87.0)
    assert ack(cc, 30, marked=True) is Reaction.DECREASE
    assert cc.cwnd == pytest.approx(120_000)


def test_08__a_decrease_never_more_than_halves():
    cc = controller(R, cwnd=200_000, avg=45.0, t_cut=87.0)
    assert ack(cc, 57, marked=True) is Reaction.DECREASE
    assert cc.cwnd == 100_000


@pytest.mark.parametrize("state", [{"avg": 18.0, "t_cut": 88.0}, {"avg": 8.0, "t_cut": 87.0}])
def test_09__a_decrease_waits(state):
    """(a) exactly one round trip after the last one; (b) for the average to agree."""
    cc = controller(R, cwnd=200_000, **state)
    assert ack(cc, 30, marked=True) is Reaction.DECREASE_WAITS
    assert cc.cwnd == 200_000


def test_10__sprint_starts_after_a_calm_window_and_ends_with_delay():
    cc = controller(R, cwnd=50_000, calm_bytes=48_000)
    assert [ack(cc, rtt) for rtt in (12.5, 12.5, 14)] == [Reaction.FAST, Reaction.FAST, Reaction.PROPORTIONAL]
    assert (cc.cwnd, cc.sprint, cc.calm_bytes) == (52_048, False, 0)


def test_11__sprint_stops_at_the_ceiling():
    cc = controller(R, cwnd=224_500, sprint=True)
    assert ack(cc, 12) is Reaction.FAST
    assert cc.cwnd == 225_000


def test_12__a_trim_costs_one_packet():
    cc = controller(R, cwnd=100_000)
    cc.on_trim(100.0, 4096)
    assert (cc.cwnd, cc.inflight) == (95_904, 95_904)
    assert cc.qa_trim_at is not None


@pytest.mark.parametrize(("won", "cwnd", "mute"), [(20_000, 20_000, 95_904), (30_000, 95_904, 0)])
def test_13__quick_adapt_when_little_arrived(won, cwnd, mute):
    cc = controller(R, cwnd=100_000, qa_due=100.0, won=won)
    cc.on_trim(100.0, 4096)
    assert (cc.cwnd, cc.mute_bytes, cc.won, cc.qa_due) == (cwnd, mute, 0, 121.0)


def test_14__marks_of_the_old_flight_are_ignored():
    cc = controller(R, cwnd=100_000, qa_due=100.0, won=20_000)
    cc.on_trim(100.0, 4096)
    assert ack(cc, 40, marked=True) is Reaction.MUTED
    assert (cc.cwnd, cc.muted_bytes) == (20_000, 4096)


def test_15__quick_adapt_by_delay_alone_where_nothing_trims():
    cc = controller(E, cwnd=60_000, inflight=60_000, won=7500, qa_due=200_000.0)
    assert ack(cc, 26_000, marked=True) is Reaction.QUICK_ADAPT
    assert (cc.cwnd, cc.mute_bytes) == (9000, 58_500)


def test_16__a_loss_costs_one_packet_and_no_more():
    cc = controller(R, cwnd=5000)
    cc.on_loss(100.0, 4096)
    assert cc.cwnd == 4096


@pytest.mark.parametrize(("penalty", "cwnd"), [(64, 87_952), (127, 85_936)])
def test_17__the_receiver_throttles_and_gives_back(penalty, cwnd):
    cc = controller(R, cwnd=100_000, inflight=94_096)
    assert ack(cc, 15, penalty=penalty) is Reaction.HELD
    assert cc.cwnd == cwnd
    ack(cc, 15, restore=True)
    assert (cc.cwnd, cc.saved_window) == (100_000, 0)


def test_18__a_shorter_round_trip_lowers_the_ceiling():
    cc = controller(R, cwnd=200_000)
    ack(cc, 10)
    assert (cc.base, cc.wmax, cc.cwnd) == (10, 187_500, 200_000)
    for _ in range(9):
        ack(cc, 12)
    assert cc.cwnd == 187_500


def test_19__nine_packets_at_emulation_scale():
    cc = controller(E, cwnd=40_000)
    assert {ack(cc, 6000) for _ in range(9)} == {Reaction.PROPORTIONAL}
    assert cc.cwnd == pytest.approx(41_843.2, abs=0.1)


def test_20__the_average_forgets_in_one_round_trip():
    cc = controller(R, avg=6.0, t_avg=97.0)
    ack(cc, 30)
    assert cc.avg == pytest.approx(9.0)
