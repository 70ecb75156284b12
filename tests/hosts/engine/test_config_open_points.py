"""Every variant of the open points of §12 that an endpoint or a switch acts on.

Bytes: test_wire_variants.py.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random
from typing import Any

import pytest

from mrc_testbed.hosts.engine.config import Config, ConfigError
from mrc_testbed.hosts.engine.connection import Context
from mrc_testbed.hosts.engine.events import PacketLost, QpError, Status, WriteImmReceived
from mrc_testbed.hosts.engine.paths.ev import Ev, EvProfile
from mrc_testbed.hosts.engine.paths.ev_formats import Srv6Format, StructuredFormat
from mrc_testbed.hosts.engine.paths.ev_state import EvSignal, EvState
from mrc_testbed.hosts.engine.wire.packets import (
    EndpointRequest,
    Nack,
    NackReason,
    Opcode,
    ReliabilityProbe,
    Sack,
    Syndrome,
    TransportAck,
    Write,
)
from mrc_testbed.hosts.verbs.attributes import check_modify
from mrc_testbed.hosts.verbs.enums import MrcQpAttrMask, QpAttrMask, QpState
from mrc_testbed.hosts.verbs.errors import VerbsError
from mrc_testbed.simulator import Flow, QueueProfile, VirtualFabric, run_all, scaled_profiles
from mrc_testbed.simulator.events import PythonEventQueue
from mrc_testbed.simulator.frames import Frame
from mrc_testbed.simulator.ports import EgressPort
from mrc_testbed.simulator.profiles import Line, ProfileError
from mrc_testbed.topologies.plan import Plan
from tests.hosts.engine.engine_pair import MTU, Pair, finish_write, lose_first

PLAN = Plan(planes=2, racks=2, spines=4, hosts_per_rack=1)


def fields(pair: Pair, kind: type, name: str, source: str = "a") -> set[Any]:
    return {getattr(line.packet, name) for line in pair.sent(kind, source)}


def spread(pair: Pair, step_s: float = 0.0005) -> None:
    """Give paths different lengths, so that packets overtake each other."""
    for n, (ev, _) in enumerate(pair.evs):
        pair.path("a", ev).delay_s = 0.004 + step_s * n


# ---- the record -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key, value, reason",
    [
        ("port_status", "sack", "SETH and CC_STATE have no field"),
        ("service_time", "on", "no source tells how it is encoded"),
        ("icrc_scope", "outer", "switches shift uSIDs"),
    ],
)
def test_only__one_value_and_the_reason(key: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} = '{value}': only .* can work: {reason}"):
        Config.of(**{key: value})


@pytest.mark.parametrize("widths", [(8,), (0, 8), (20, 20), (8.0, 8), "88", (8, 8, 8), None])
def test_widths__that_fit_no_ev_are_refused(widths: Any) -> None:
    with pytest.raises(ConfigError, match="srv6_widths"):
        Config.of(srv6_widths=widths)


def test_widths__come_back_from_json_as_they_were() -> None:
    config = Config.from_json({"structured_widths": [4, 4], "srv6_widths": [4, 12]})
    assert config.wire.structured_widths == (4, 4) and Config.from_json(config.to_json()) == config


def test_bool__is_no_number() -> None:
    with pytest.raises(ConfigError, match="first_msn"):
        Config.of(first_msn=True)


# ---- rows 7, 8, 9, 11, 12: header fields ------------------------------------------------------------------


@pytest.mark.parametrize(
    "dcids, a_asks, b_answers", [("packet", (7, 9), (9, 7)), ("roles", (7, 9), (7, 9)), ("connection", (7, 7), (7, 7))]
)
def test_dcids__three_readings(dcids: str, a_asks: tuple, b_answers: tuple) -> None:
    def ids_of(qpn_a: int, qpn_b: int) -> tuple[Any, Any]:
        """Return the ids (of requests of the first, of answers of the second)."""
        a, b = (
            Context(*pair, "x", Config.of(dcids=dcids), [], 1024, 128, True)
            for pair in ((qpn_a, qpn_b), (qpn_b, qpn_a))
        )
        return a.request_ids, b.answer_ids

    assert ids_of(7, 9) == (a_asks, b_answers)
    pair = Pair(config={"dcids": dcids, "bitmap_packets": 4}, planes=1, uplinks=4, framed=True)
    spread(pair)
    pair.a.qp.paths.refresh(None)
    finish_write(pair, 12_000)
    ids = [
        {(line.packet.spdcid, line.packet.dpdcid) for line in pair.sent(kind, side)}
        for kind, side in ((ReliabilityProbe, "a"), (Sack, "b"), (Nack, "b"))
    ]
    asks, answers = ids_of(pair.a.qp.qpn, pair.b.qp.qpn)
    assert ids == [{asks}, {answers}, {answers}]


def test_nack_cc_type__is_sent_and_ignored() -> None:
    pair = Pair(planes=2, uplinks=4, config={"nack_cc_type": 9, "bitmap_packets": 4, "cwnd_bytes": 10_000}, framed=True)
    spread(pair)
    finish_write(pair, 12_000)
    assert fields(pair, Nack, "cc_type", "b") == {9}


@pytest.mark.parametrize("timestamps", [True, False])
def test_timestamps__off_means_none_in_probes_and_requests_too(timestamps: bool) -> None:
    pair = Pair(config={"timestamps": timestamps}, planes=2, uplinks=2, framed=True)
    pair.cut(0x000)
    finish_write(pair)
    pair.port("a", 1, is_up=False)
    pair.run(0.5)
    for kind in (Write, ReliabilityProbe, EndpointRequest):
        assert {stamp is not None for stamp in fields(pair, kind, "timestamp")} == {timestamps}, kind
        assert fields(pair, kind, "tsr") == {int(timestamps)}


@pytest.mark.parametrize("first_msn, first_rqmsn", [(None, None), (0, 1), (1, 0), (1, 1), (0, 0)])
def test_meth__counters_start_where_they_should(first_msn: int | None, first_rqmsn: int | None) -> None:
    """None: as they are by default, both at 0 (§2.3)."""
    config = {} if first_msn is None else {"first_msn": first_msn, "first_rqmsn": first_rqmsn}
    pair = Pair(config=config, framed=True, psn=0)
    first_msn, first_rqmsn = first_msn or 0, first_rqmsn or 0
    for _ in range(3):
        pair.b.qp.post_recv()
    for n in range(3):
        pair.write(pair.bytes(2 * MTU), 2 * MTU * n, imm=n)
    pair.run_until_quiet()
    assert sorted(fields(pair, Write, "msn")) == [first_msn + n for n in range(3)]
    assert sorted(fields(pair, Write, "rqmsn")) == [first_rqmsn + n for n in range(3)]
    assert [e.imm for e in pair.events_of(WriteImmReceived, "b")] == [0, 1, 2]


@pytest.mark.parametrize("kind", ["message", "remainder"])
def test_dma_length__of_the_message_or_of_what_is_left(kind: str) -> None:
    size = 3 * MTU + 100
    pair = Pair(config={"dma_length": kind}, framed=True, psn=0)
    pair.filter = lambda s, p: [pair.rng.random() * 0.02]
    for _ in range(8):
        pair.b.qp.post_recv()
    for n in range(8):
        data = pair.bytes(size)
        pair.write(data, size * n, imm=n)
    pair.run_until_quiet()
    assert pair.memory[size * 7 : size * 8] == data
    lengths = {line.packet.psn % 4: line.packet.dma_length for line in pair.sent()}
    remainders = {n: size - n * MTU for n in range(4)}
    assert lengths == ({n: size for n in range(4)} if kind == "message" else remainders)
    assert [e.length for e in pair.events_of(WriteImmReceived, "b")] == [size] * 8, (
        "the length delivered is the message's"
    )
    assert pair.b.qp.held_packets() == 0 and not pair.b.qp.responder._assembly.ended_lengths


def test_dma_length__remainder_still_lets_nobody_out_of_the_region() -> None:
    pair = Pair(config={"dma_length": "remainder"}, region=4096)
    pair.write(pair.bytes(4000), 200)
    pair.run_until_quiet()
    assert pair.events_of(QpError)[0].status is Status.REMOTE_ACCESS and not any(pair.memory)


# ---- rows 14, 15, 17, 18, 19: windows and SACKs -------------------------------------------------------------


@pytest.mark.parametrize(
    "local_rule, peer_rule",
    [("inclusive",) * 2, ("exclusive",) * 2, ("inclusive", "exclusive"), ("exclusive", "inclusive")],
)
def test_window_end__with_or_without_the_last_psn(local_rule: str, peer_rule: str) -> None:
    base = {"mpr_packets": 128, "cwnd_bytes": 1 << 20, "sack_threshold_bytes": 1}
    pair = Pair(psn=0, config={**base, "window_end": local_rule}, config_b={"window_end": peer_rule})
    data = pair.bytes(60_000)
    lose_first(pair, lambda s, p: isinstance(p, Write) and p.psn == 0)
    pair.write(data)
    pair.flush()
    top = 127 if local_rule == "inclusive" else 126
    assert max(line.packet.psn for line in pair.sent()) == top, "before any SACK: cack is -1"
    pair.run_until_quiet()
    assert pair.memory[: len(data)] == data
    nack_reasons = {line.packet.reason for line in pair.sent(Nack, "b")}
    assert nack_reasons == (
        {NackReason.PSN_OOR_WINDOW} if (local_rule, peer_rule) == ("inclusive", "exclusive") else set()
    )


@pytest.mark.parametrize("counts, extra", [("udp+40", None), ("payload+40", 40), ("payload", 0)])
def test_rcvd_counts__both_ends_agree(counts: str, extra: int | None) -> None:
    pair = Pair(config={"rcvd_counts": counts, "cwnd_bytes": 5000}, framed=True)
    size = 30 * MTU + 17
    finish_write(pair, size)
    pair.run(1.0)
    sizes = [line.packet.size if extra is None else len(line.packet.payload) + extra for line in pair.sent()]
    assert pair.sent(Sack, "b")[-1].packet.rcvd_units == -(-sum(sizes) // 256)
    assert -256 <= pair.a.qp.requestor._window.inflight <= 0
    finish_write(pair, 0)


@pytest.mark.parametrize("local_rule, peer_rule", [("payload", "udp+40"), ("udp+40", "payload")])
def test_rcvd_counts__that_differ_are_corrected_by_what_is_outstanding(local_rule: str, peer_rule: str) -> None:
    pair = Pair(config={"rcvd_counts": local_rule, "cwnd_bytes": 5000}, config_b={"rcvd_counts": peer_rule})
    finish_write(pair)


@pytest.mark.parametrize("base", ["turns", "cack"])
def test_bitmap_base__turns_or_stays(base: str) -> None:
    pair = Pair(psn=0, config={"bitmap_base": base, "cwnd_bytes": 1 << 20, "sack_threshold_bytes": 1}, framed=True)
    lose_first(pair, lambda s, p: isinstance(p, Write) and p.psn == 3)
    finish_write(pair, 200 * MTU)
    offsets = {s.packet.sack_offset for s in pair.sent(Sack, "b") if s.packet.cack_psn == 2}
    assert offsets == {1} if base == "cack" else max(offsets) > 64
    assert len(pair.retransmissions()) == 1


def test_clear_bits__lost_gives_up_what_is_on_its_way() -> None:
    loss_counts = {}
    for meaning in ("unknown", "lost"):
        pair = Pair(
            psn=0,
            config={"clear_bits": meaning, "sack_threshold_bytes": 1, "cwnd_bytes": 1 << 20},
            planes=2,
            uplinks=4,
            per_packet_s=0.0002,
        )
        slow = next(ev.value for ev in pair.a.qp.paths.profile if ev.active)
        finish_write(pair, 60_000)
        pair.path("a", slow).delay_s = 0.012
        finish_write(pair, 60_000)
        loss_counts[meaning] = len(pair.events_of(PacketLost))
    assert loss_counts["unknown"] == 0 < loss_counts["lost"]


@pytest.mark.parametrize("echo", [True, False])
@pytest.mark.parametrize("timestamps", [True, False])
def test_rtx_echo__is_in_sacks_or_not(echo: bool, timestamps: bool) -> None:
    pair = Pair(psn=0, config={"rtx_echo": echo, "timestamps": timestamps}, framed=True)
    lose_first(pair, lambda s, p: isinstance(p, Write) and p.psn == 3)
    finish_write(pair)
    assert len(pair.retransmissions()) == 1
    assert fields(pair, Sack, "rtx", "b") == ({True, False} if echo else {False})


# ---- rows 20, 21, 22, 44: the states of an EV ---------------------------------------------------------------


def profile(**keys: Any) -> EvProfile:
    return EvProfile([(n, 0) for n in range(8)], Config.of(backup_per_plane=4, ev_min_active=1, **keys), Random(1))


def some_active(paths: EvProfile) -> Ev:
    return next(ev for ev in paths if ev.active)


@pytest.mark.parametrize("setting, state", [("skip", EvState.SKIP), ("good", EvState.GOOD)])
def test_probe_marked__brings_an_ev_back_to_skip_or_to_good(setting: str, state: EvState) -> None:
    paths = profile(probe_marked=setting)
    ev = some_active(paths)
    paths.signal(ev, EvSignal.LOST, 0.0)
    paths.signal(ev, EvSignal.PROBE_SKIP_ONCE, 1.0)
    assert ev.state is state


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("signal", [EvSignal.LOST, EvSignal.SACK_ALWAYS_SKIP])
def test_skip_to_bad__at_once_or_not(direct: bool, signal: EvSignal) -> None:
    paths = profile(skip_to_bad=direct)
    ev = some_active(paths)
    paths.signal(ev, EvSignal.TRIMMED, 0.0)
    paths.signal(ev, signal, 0.0)
    assert ev.state is (EvState.ASSUMED_BAD if direct else EvState.SKIP)
    other_ev = next(e for e in paths if e.active and e is not ev)
    paths.signal(other_ev, signal, 0.0)
    assert other_ev.state is EvState.ASSUMED_BAD, "from GOOD it always does"


def test_skip_timer__lasts_as_long_as_it_says() -> None:
    paths = profile(skip_mode="timer", skip_timer_s=0.01)
    ev = some_active(paths)
    paths.signal(ev, EvSignal.SACK_SKIP_ONCE, 1.0)
    paths.tick(1.005)
    assert ev not in {paths.choose(1) for _ in range(40)} and ev.state is EvState.SKIP
    paths.signal(ev, EvSignal.SACK_SKIP_ONCE, 1.008)  # does not begin again
    paths.tick(1.01)
    assert ev.state is EvState.GOOD and ev in {paths.choose(1) for _ in range(40)}


def test_skip_timer__all_skipped_are_used_all_the_same() -> None:
    paths = profile(skip_mode="timer", skip_timer_s=1.0)
    for ev in paths:
        paths.signal(ev, EvSignal.SACK_SKIP_ONCE, 0.0)
    assert paths.choose(1) is not None


def test_skip_timer__in_a_transfer() -> None:
    pair = Pair(planes=2, uplinks=2, config={"skip_mode": "timer", "skip_timer_s": 0.05})
    ev = pair.a.qp.paths.profile.choose(~0)
    pair.a.qp.paths.signal(ev, EvSignal.SACK_SKIP_ONCE, pair.now)
    finish_write(pair)
    assert ev.value not in fields(pair, Write, "ev") and ev.state is EvState.SKIP
    pair.run(0.05)
    finish_write(pair)
    assert ev.state is EvState.GOOD and ev.value in fields(pair, Write, "ev")


@pytest.mark.parametrize("slot", ["empty", "own"])
def test_revival_slot__a_backup_or_the_old_place(slot: str) -> None:
    paths = profile(revival_slot=slot)
    ev = some_active(paths)
    move = paths.signal(ev, EvSignal.LOST, 0.0)
    stand_in = move.substitute
    paths.signal(ev, EvSignal.PROBE_CLEAN, 1.0)
    assert (ev.active, stand_in.active) == ((True, False) if slot == "own" else (False, True))
    assert paths.active_count == 4
    choices = {paths.choose(1) for _ in range(40)}
    assert choices == {e for e in paths if e.active}


def test_revival_slot__own_when_the_stand_in_failed_too() -> None:
    paths = profile(revival_slot="own")
    ev = some_active(paths)
    stand_in = paths.signal(ev, EvSignal.LOST, 0.0).substitute
    paths.signal(stand_in, EvSignal.LOST, 0.0)
    paths.signal(ev, EvSignal.PROBE_CLEAN, 1.0)
    assert not ev.active and paths.active_count == 4, "its slot has another owner: a backup"
    paths.signal(stand_in, EvSignal.PROBE_CLEAN, 1.0)
    assert stand_in.active and paths.active_count == 4


# ---- rows 23, 24: loss and time ---------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["all", "distance", "time", "ooo"])
def test_loss_rule__each_finds_a_loss_without_the_timer(rule: str) -> None:
    pair = Pair(
        psn=0, config={"loss_rule": rule, "cwnd_bytes": 4000, "timeout": 18}, planes=2, uplinks=2, per_packet_s=0.0005
    )
    finish_write(pair, 20 * MTU)
    start = pair.a.qp.requestor.flight.next_psn
    lose_first(pair, lambda s, p: isinstance(p, Write) and p.psn == start + 5)
    finish_write(pair, 100 * MTU)
    causes = {e.cause.name for e in pair.events_of(PacketLost)}
    assert causes == {"all": {"OVERTAKEN"}, "time": {"OVERTAKEN"}}.get(rule, {"DISTANCE"})
    assert {line.packet.psn for line in pair.retransmissions()} >= {start + 5}


@pytest.mark.parametrize("rule", ["all", "distance", "time", "ooo"])
@pytest.mark.parametrize("seed", range(4))
def test_loss_rule__any_of_them_delivers_everything(rule: str, seed: int) -> None:
    pair = Pair(
        config={"loss_rule": rule, "ev_fifo": seed % 2 == 0, "exp_cnt": 25}, planes=2, uplinks=4, seed=seed, framed=True
    )
    pair.filter = lambda s, p: [] if pair.rng.random() < 0.1 else [pair.rng.random() * 0.003]
    finish_write(pair)


def test_ooo__leaves_a_little_reordering_alone() -> None:
    pair = Pair(config={"loss_rule": "ooo"}, planes=2, uplinks=4)
    spread(pair)
    finish_write(pair)
    assert pair.events_of(PacketLost) == []


@pytest.mark.parametrize(
    "phases, intervals, limit",
    [
        ("linear-exponential", [1, 1, 2, 4, 8], 5),
        ("linear", [1, 1, 1, 1, 1], 2),
        ("exponential", [1, 2, 4, 8, 16], 3),
    ],
)
def test_timeout_phases__both_or_one_alone(phases: str, intervals: list[int], limit: int) -> None:
    config = Config.of(timeout=10, linear_cnt=2, exp_cnt=3, timeout_phases=phases, timeout_ceiling_s=10)
    unit = config.loss.base_timeout_s
    assert [round(config.loss.retry_interval_s(n) / unit) for n in range(5)] == intervals
    assert config.loss.retry_limit == limit
    pair = Pair(config={"timeout": 15, "linear_cnt": 2, "exp_cnt": 3, "timeout_phases": phases})
    pair.filter = lambda s, p: []
    pair.write(pair.bytes(100))
    pair.run(20.0)
    assert pair.events_of(QpError)[0].status is Status.RETRY_EXCEEDED
    assert pair.a.qp.counters.retry_charges == limit


def test_timeout_phases__for_ever_needs_an_exponential_phase() -> None:
    assert Config.of(exp_cnt=25, timeout_phases="exponential").loss.retry_limit is None
    assert Config.of(exp_cnt=25, timeout_phases="linear").loss.retry_limit == 3


# ---- rows 27, 28, 30, 31, 38 ------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [0, 1])
def test_port_bit_base__on_the_wire(base: int) -> None:
    pair = Pair(planes=3, uplinks=1, config={"port_bit_base": base}, framed=True)
    pair.port("b", 2, is_up=False)
    pair.run(0.02)
    assert {line.packet.port_mask for line in pair.sent(EndpointRequest, "b")} == {0b011 << base}
    assert pair.a.qp.paths.profile.usable_planes == 0b011
    pair.port("b", 2, is_up=True)
    pair.run(0.02)
    assert pair.a.qp.paths.profile.usable_planes == 0b111


@pytest.mark.parametrize(
    "names, open_window_state, closed_window_state", [("primer", "ready", "active"), ("tool", "active", "ready")]
)
def test_scheduler_names__by_the_table(names: str, open_window_state: str, closed_window_state: str) -> None:
    pair = Pair(config={"scheduler_names": names, "cwnd_bytes": 3 * MTU}, planes=1, uplinks=1)
    qp = pair.a.qp
    assert qp.scheduler_state() == "idle"
    pair.write(pair.bytes(20 * MTU))
    assert qp.scheduler_state() == open_window_state, "data, and the window is open"
    pair.flush()
    assert qp.scheduler_state() == closed_window_state, "data, and the window is closed"
    pair.run_until_quiet()
    pair.write(pair.bytes(MTU))
    pair.flush()
    assert qp.scheduler_state() == "pending", "no data, something in flight"
    pair.run_until_quiet()
    assert qp.scheduler_state() == "idle"


@pytest.mark.parametrize("code", [Syndrome.NAK_INVALID_REQUEST, 0x33])
def test_wimm_overflow__says_so_in_the_way_that_was_chosen(code: int) -> None:
    pair = Pair(config={"wimm_overflow": int(code), "max_wimm": 2}, framed=True, psn=0)
    for _ in range(8):
        pair.b.qp.post_recv()
    connected = pair.a.qp.connected
    pair.a.qp.connected = replace(connected, remote=replace(connected.remote, max_wimm=8))  # a liar's peer
    lose_first(pair, lambda s, p: isinstance(p, Write) and p.psn == 0, times=3)
    for n in range(5):
        pair.write(pair.bytes(10), imm=n)
    pair.run_until_quiet()
    assert {e.status for side in "ab" for e in pair.events_of(QpError, side)} == {Status.REMOTE_INVALID_REQUEST}
    naks = fields(pair, TransportAck, "syndrome", "b") - {Syndrome.ACK}
    nacks = fields(pair, Nack, "reason", "b")
    assert (naks, nacks) == (({0x61}, set()) if code == 0x61 else (set(), {0x33}))


def test_wimm_overflow__may_not_be_a_reason_that_means_something_else() -> None:
    with pytest.raises(ConfigError, match="wimm_overflow"):
        Config.of(wimm_overflow=int(NackReason.NO_RESOURCE))


@pytest.mark.parametrize("reaction", ["no_resource", "ignore", "fail"])
def test_unknown_nack__three_reactions(reaction: str) -> None:
    pair = Pair(psn=0, config={"unknown_nack": reaction}, planes=1, uplinks=2)
    data = pair.bytes(20 * MTU)
    lose_first(pair, lambda s, p: isinstance(p, Write) and p.psn == 19)
    pair.write(data)
    pair.run(0.011)
    sent = pair.a.qp.requestor.flight.latest(19)
    assert sent is not None
    pair.a.endpoint.receive(
        Nack(pair.a.qp.qpn, 0, 0, 46, 0, 19, 0x42, sent.ev.value, sent.timestamp or 0), 0, "b", pair.now
    )
    assert pair.a.qp.counters.unknown_nacks == 1
    assert pair.a.qp.counters.refused == (reaction == "no_resource")
    pair.run_until_quiet()
    if reaction == "fail":
        assert pair.events_of(QpError)[0].status is Status.REMOTE_OPERATION
    else:
        assert pair.memory[: len(data)] == data and pair.events_of(QpError) == []
        assert pair.a.qp.counters.timeouts == (reaction == "ignore")


@pytest.mark.parametrize("name", ["MPR_DEST", "MAX_MPR_DEST"])
def test_mpr_name__in_messages(name: str) -> None:
    assert MrcQpAttrMask.MRC_QP_MAX_MPR_DEST is MrcQpAttrMask.MRC_QP_MPR_DEST
    with pytest.raises(VerbsError) as caught:
        check_modify(QpState.RTR, QpState.RTS, QpAttrMask.IBV_QP_STATE, MrcQpAttrMask.MRC_QP_MPR_DEST, name)
    assert f"MRC_QP_{name}" in str(caught.value)


# ---- rows 33, 35, 36, 42: the virtual fabric --------------------------------------------------------------


@pytest.mark.parametrize(
    "mode, key, widths",
    [
        ("srv6", "srv6_widths", (4, 3)),
        ("structured", "structured_widths", (5, 2)),
        ("structured", "structured_widths", (10, 8, 4)),
    ],
)
def test_widths__are_what_switches_read(mode: str, key: str, widths: tuple[int, ...]) -> None:
    fabric = VirtualFabric(PLAN, mode=mode, config=Config.of(**{key: widths, "backup_per_plane": 0}))
    flow = Flow(fabric, "h0", "h1", message_bytes=1 << 17, messages=1)
    run_all(fabric, [flow])
    ev_format = Srv6Format(*widths) if mode == "srv6" else StructuredFormat(widths)
    choices = [range(4)] if mode == "structured" else range(4)
    assert {row["ev"] for row in flow.qp.ev_states()} == {ev for ev, _ in ev_format.evs(range(2), choices)}
    uplinks = [fabric.port_towards(f"p{p}-t0-0", f"p{p}-t1-{k}").forwarded for p in (0, 1) for k in range(4)]
    assert min(uplinks) > 0
    assert all(not switch.dropped for switch in fabric.switches.values())


def test_widths__of_its_own_cannot_go_with_real_addresses() -> None:
    with pytest.raises(ProfileError, match="srv6_widths"):
        VirtualFabric(PLAN, wire=True, config=Config.of(srv6_widths=(4, 4)))


@pytest.mark.parametrize("queue", ["control", "medium"])
@pytest.mark.parametrize("wire", [False, True])
def test_trimmed_queue_and_trim_len__both_deliver(queue: str, wire: bool) -> None:
    scale = scaled_profiles(2, config={"trimmed_queue": queue, "trim_len": 122 if queue == "medium" else 0})
    plan = Plan(planes=2, racks=2, spines=2, hosts_per_rack=3)
    queues = QueueProfile(data_bytes=20_000, trim_bytes=3000, ecn_min_bytes=None)
    fabric = VirtualFabric(plan, seed=3, links=scale.links, queues=queues, config=scale.config, wire=wire)
    flows = [Flow(fabric, f"h{n}", "h5", message_bytes=1 << 16, messages=2) for n in range(3)]
    port = fabric.port_towards("p0-t0-1", "h5")
    run_all(fabric, flows)
    assert fabric.totals()["trimmed"] > 0
    assert port._trim_len == (122 if queue == "medium" else 138)
    assert (port._medium is not None) is (queue == "medium")


def test_medium_queue__gives_data_its_turn() -> None:
    """A flood of trimmed headers takes a quarter of the port, never all of it."""
    shares = {}
    for queue in ("control", "medium"):
        events = PythonEventQueue()
        sent: list[Frame] = []
        port = EgressPort("x", "s", "h", 0, Line(8e6, 0.0), events.note_delay, events, "seed", (12, 16))
        queues = QueueProfile(data_bytes=1 << 20, control_bytes=1 << 20, trim_bytes=None, ecn_min_bytes=None)
        port.set_queues(queues, True, Config.of(trimmed_queue=queue))
        port.arrive = lambda frame, now, sent=sent: sent.append(frame)
        for n in range(200):
            packet = Write(3, 0, 0, 4, 2, Opcode.WRITE_ONLY, n, 0, 0, 0, 1000, b"", 1000)
            data = Frame(packet, 1100, "a", "b", 0, 0, 0, False, True)
            header = Frame(packet, 138, "a", "b", 0, 0, 0, True, False)
            header.trimmed = True
            port.send(data, 0.0)
            port.send(header, 0.0)
        events.run(inf)
        assert len(sent) == 400
        first = sent[:120]
        shares[queue] = sum(f.size for f in first if f.trimmed) / sum(f.size for f in first)
    assert shares["control"] > 0.8 and 0.2 < shares["medium"] < 0.3
