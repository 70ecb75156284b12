"""Findings of simulation testing and fuzzing, each as its smallest conversation."""

from __future__ import annotations

from mrc_testbed.hosts.engine.paths.ev_state import EvSignal
from mrc_testbed.hosts.engine.wire.codec import nominal_size
from mrc_testbed.hosts.engine.wire.packets import RCVD_UNIT, Opcode, Packet, Sack, Write
from tests.hosts.engine.engine_pair import Pair


def test_uet_send_rule__a_window_below_a_packet_still_sends() -> None:
    pair = Pair(config={"cc_algorithm": "uet-1.0-nscc", "cc_send_rule": "uet", "cwnd_bytes": 256})
    content = pair.bytes(1000)
    pair.write(content)
    pair.run_until_quiet()
    assert pair.memory[:1000] == content and pair.completions() == [(1, "SUCCESS")]


def withdraw_all(pair: Pair) -> None:
    """Take every EV of a out of use, as losses do."""
    for ev in pair.a.qp.paths.profile:
        pair.a.qp.paths.signal(ev, EvSignal.LOST, pair.now)


def test_error__a_peer_without_any_path_learns_of_it_from_its_probes() -> None:
    keys = {"ev_min_active": 0, "probe_fail_count": 1, "probe_interval_s": 0.05}
    pair = Pair(planes=1, uplinks=1, config={**keys, "exp_cnt": 25}, config_b={"exp_cnt": 1, "linear_cnt": 1})
    reverse_region = pair.a.endpoint.register(bytearray(100))
    evs = [ev for ev, _ in pair.evs]
    pair.cut(*evs)
    pair.write(b"x")
    pair.b.qp.post_write(b"y", reverse_region.va, reverse_region.rkey, now=0.0)
    pair.run(0.5)
    withdraw_all(pair)
    pair.run(0.5)
    assert pair.b.qp.state.value == "error" and not any(row["active"] for row in pair.a.qp.ev_states())
    pair.cut(*evs, cut=False)
    pair.run(1.0)
    assert pair.completions() == [(1, "REMOTE_ACCESS")]


def test_error__a_probe_is_answered_also_when_everything_sent_had_arrived() -> None:
    keys = {"ev_min_active": 0, "probe_fail_count": 1, "probe_interval_s": 0.05, "exp_cnt": 25}
    pair = Pair(planes=1, uplinks=1, config=keys, config_b={"exp_cnt": 1, "linear_cnt": 1})
    reverse_region = pair.a.endpoint.register(bytearray(100))
    pair.path("b", 0).cut = True
    pair.write(b"arrives, but its SACK does not")
    pair.write(b"neither does this one's")
    pair.b.qp.post_write(b"y", reverse_region.va, reverse_region.rkey, now=0.0)
    pair.flush()
    withdraw_all(pair)
    pair.run(1.0)
    assert pair.b.qp.state.value == "error" and not any(row["active"] for row in pair.a.qp.ev_states())
    assert pair.b.qp.counters.packets_received == pair.a.qp.counters.packets_sent == 2
    pair.path("b", 0).cut = False
    pair.run(1.0)
    assert pair.a.qp.state.value == "error" and pair.completions() == [(1, "SUCCESS"), (2, "SUCCESS")]


def test_window__bytes_that_only_a_transport_ack_reported_do_not_fill_a_shrunk_one_for_ever() -> None:
    """SACKs count bytes, and none arrives. The second write is lost, the window shrinks, silence."""
    pair = Pair(planes=1, uplinks=1, config={"sack_threshold_bytes": 1})
    second = pair.a.qp.first_psn + 1 & 0xFFFFFF

    def wire(source: str, packet: Packet) -> list[float] | None:
        first = isinstance(packet, Write) and packet.psn == second and not packet.rtx
        answer = source == "b" and (isinstance(packet, Sack) or 0.02 < pair.now < 0.5)
        return [] if first or answer else None

    pair.filter = wire
    for number in range(2):
        pair.write(bytes(200), 300 * number)
    pair.run(0.02)
    assert len(pair.completions()) == 1
    pair.a.qp.requestor._window.cwnd = 100
    pair.run_until_quiet(limit_s=10.0)
    assert pair.completions() == [(1, "SUCCESS"), (2, "SUCCESS")]


def test_window__rounding_of_the_byte_counter_stays_and_never_adds_up() -> None:
    """The counter is absolute: bytes that it ran ahead, it lags behind later.

    A window that forgot this at rest would hold the next packets back.
    """
    pair = Pair(planes=2, uplinks=2)
    window, sent = pair.a.qp.connected.window, 0
    for _ in range(40):
        pair.write(bytes(200))
        sent += nominal_size(pair.config)(Opcode.WRITE_ONLY, 200, True)
        pair.run_until_quiet()
        pair.run(0.02)
        assert window.inflight == sent - -(-sent // RCVD_UNIT) * RCVD_UNIT
        assert window.report()["inflight_bytes"] == 0, "no tool shows less than nothing"


def test_window__a_transport_ack_before_its_sack_counts_no_byte_twice() -> None:
    """The ACK empties the flight; the SACK's bytes must not open the window again (found by simulation)."""
    pair = Pair(planes=1, uplinks=1, config={"sack_threshold_bytes": 1})
    pair.filter = lambda s, p: [0.02] if s == "b" and isinstance(p, Sack) else None
    pair.write(bytes(1000))
    pair.run(0.026)
    assert pair.completions() == [(1, "SUCCESS")] and not pair.a.qp.requestor.flight.bytes
    pair.write(bytes(200))
    pair.flush()
    window, size = pair.a.qp.connected.window, pair.a.qp.requestor.flight.bytes
    pair.run(0.008)  # the SACKs of the first write come, the second is under way
    assert size - RCVD_UNIT < window.inflight <= size


def test_timestamps__copies_over_one_ev_differ_though_16_bits_wrap() -> None:
    """Eight default timers are one turn of the timestamp.

    Copies that far apart over one EV would look alike.
    """
    config = {"timeout": 16, "linear_cnt": 7, "exp_cnt": 7, "timeout_phases": "linear-exponential"}
    pair = Pair(planes=1, uplinks=1, config=config)
    pair.filter = lambda s, p: [] if isinstance(p, Write) and pair.now < 1.5 else None
    pair.write(b"x")
    pair.run_until_quiet()
    stamps = [line.packet.timestamp for line in pair.sent(Write)]
    assert len(stamps) > 8 and len(set(stamps)) == len(stamps)
