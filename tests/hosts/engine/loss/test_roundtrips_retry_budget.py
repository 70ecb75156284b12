"""The rule of the retry budget under every way to infer a loss.

Source: mrc-protocol §5.11, roundtrips.py notes 2 and 3.
Whatever finds that a packet has to go again charges the budget; progress alone makes it whole; trims never spend it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import pytest

from mrc_testbed.hosts.engine.cc.crowd import WINDOW_MIN
from mrc_testbed.hosts.engine.config import KEYS
from mrc_testbed.hosts.engine.events import QpError, Status
from mrc_testbed.hosts.engine.loss.roundtrips import RetryBudget, RoundTrips
from mrc_testbed.hosts.engine.qp import EngineQpState
from mrc_testbed.hosts.engine.wire.packets import Nack, NackReason, Packet, ReliabilityProbe, Sack, TransportAck, Write
from tests.hosts.engine.engine_pair import ACKS, MTU, Pair

BEGIN_S = 0.030
"""Time at which the fault begins: the write is under way."""
WAIT_S = 30.0
SLACK_S = 0.1
"""A few round trips: until the first loss is found, and the last charge comes."""
SIZE = 40_000
RETRIES = {"linear_cnt": 2, "exp_cnt": 2}

Filter = Callable[[str, Packet], Sequence[float] | None]
VALUES = [KEYS[name].limits[0].values for name in ("loss_rule", "clear_bits", "cc_algorithm")]
# Every two values of different keys meet in `make test`; a third of what three values make is for `make thorough`.
RULES = [
    pytest.param(
        rule,
        id="-".join(rule),
        marks=[pytest.mark.thorough]
        if sum(values.index(value) for values, value in zip(VALUES, rule, strict=True)) % 3 == 2
        else [],
    )
    for rule in product(*VALUES)
]


def lost(pair: Pair, *kinds: type, source: str = "") -> Filter:
    """Lose these kinds of packets for ever, of one side or of both."""
    return lambda s, p: [] if pair.now >= BEGIN_S and isinstance(p, kinds) and source in (s, "") else None


FAULTS: dict[str, Callable[[Pair], Filter]] = {
    "data": lambda pair: lost(pair, Write),
    "data but for every ninth packet of the first flight": lambda pair: (
        lambda s, p: [] if pair.now >= BEGIN_S and isinstance(p, Write) and (p.rtx or p.psn % 9) else None
    ),
    "all answers": lambda pair: lost(pair, *ACKS),
    "SACKs and Transport ACKs, not NACKs": lambda pair: lost(pair, Sack, TransportAck),
    "data and probes": lambda pair: lost(pair, Write, ReliabilityProbe),
    "one direction": lambda pair: lost(pair, object, source="a"),
    "the way back": lambda pair: lost(pair, object, source="b"),
    "everything": lambda pair: lost(pair, object),
    "long frames": lambda pair: (
        lambda s, p: [] if pair.now >= BEGIN_S and isinstance(p, Write) and len(p.payload) > MTU // 2 else None
    ),
}


def pair_with_write(rule: tuple[str, str, str]) -> Pair:
    """Return two ends with a write of many windows, posted at 0."""
    loss_rule, clear_bits, cc = rule
    settings = {"loss_rule": loss_rule, "clear_bits": clear_bits, "cc_algorithm": cc, "cwnd_bytes": 10_000}
    pair = Pair(planes=2, uplinks=2, psn=0, config={**settings, **RETRIES}, per_packet_s=0.0005)
    pair.write(pair.bytes(SIZE))
    return pair


def schedule_s(pair: Pair) -> float:
    """Return the time that a whole budget takes when each round is charged as soon as it may be."""
    config = pair.config
    limit = config.loss.retry_limit
    assert limit is not None
    return sum(config.loss.retry_interval_s(n) for n in range(limit))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("rule", RULES)
def test_fault_for_ever__ends_the_qp_within_the_budget(rule: tuple[str, str, str], fault: str) -> None:
    pair = pair_with_write(rule)
    pair.filter = FAULTS[fault](pair)
    progress = [0.0, 0.0]
    while pair.now < WAIT_S and pair.a.qp.state is EngineQpState.RTS and pair.step():
        cack = pair.a.qp.requestor.flight.cack
        if cack > progress[1]:
            progress = [pair.now, cack]
    [error] = pair.events_of(QpError)
    assert error.status is Status.RETRY_EXCEEDED
    config, wait_s = pair.config, error.at - progress[0]
    minimum_s = schedule_s(pair) - config.loss.retry_interval_s(0)
    # A timer may be longer than T by what round trips ask for; and a round that nothing charged at once waits for one.
    assert minimum_s <= wait_s <= 2 * schedule_s(pair) + SLACK_S, (error.at, progress)
    assert pair.a.qp.counters.retry_charges >= (config.loss.retry_limit or 0)


def trim(pair: Pair, reason: NackReason, is_answered: Callable[[int], bool]) -> Filter:
    """Trim all data from BEGIN_S on; `answered(n)`: whether the NACK for the nth of them comes."""
    count = 0

    def decide(source: str, packet: Packet) -> list[float] | None:
        nonlocal count
        if not isinstance(packet, Write) or pair.now < BEGIN_S:
            return None
        count += 1
        if is_answered(count):
            nack = Nack(
                pair.a.qp.qpn, packet.ev, packet.plane, 46, 0, packet.psn, reason, packet.ev, packet.timestamp or 0
            )
            pair.hand_over("a", nack, packet.plane, 2 * pair.delay_s)
        return []

    return decide


@pytest.mark.parametrize("reason", [NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP], ids=lambda reason: reason.name)
@pytest.mark.parametrize("rule", RULES)
def test_trims_alone__never_spend_the_budget(rule: tuple[str, str, str], reason: NackReason) -> None:
    pair = pair_with_write(rule)
    pair.filter = trim(pair, reason, lambda _: True)
    pair.run(5 * schedule_s(pair))
    assert pair.events_of(QpError) == [] and pair.a.qp.counters.trimmed > 0
    pair.filter = None
    pair.run_until_quiet()
    assert pair.completions() == [(1, "SUCCESS")]


@pytest.mark.parametrize("rule", RULES)
def test_trims_whose_nacks_are_lost_in_part__never_spend_it_either(rule: tuple[str, str, str]) -> None:
    """Headers that crowd a port out are lost there themselves, and with them what is answered."""
    pair = pair_with_write(rule)
    pair.filter = trim(pair, NackReason.TRIMMED_LASTHOP, lambda n: n % 2 == 0)
    pair.run(5 * schedule_s(pair))
    assert pair.events_of(QpError) == []
    pair.filter = None
    pair.run_until_quiet()
    assert pair.completions() == [(1, "SUCCESS")]


def test_trims_that_end__leave_the_budget_as_it_was() -> None:
    """Congestion that becomes a failure.

    The QP ends a budget after the last trim, at the pace that trims left.
    """
    pair = pair_with_write(("all", "unknown", "fixed"))
    end_s = 1.0
    trims, losses = trim(pair, NackReason.TRIMMED_LASTHOP, lambda _: True), lost(pair, Write)
    pair.filter = lambda s, p: trims(s, p) if pair.now < end_s else losses(s, p)
    pair.run(WAIT_S)
    [error] = pair.events_of(QpError)
    pace_s = 2 * pair.delay_s / WINDOW_MIN * (pair.config.loss.retry_limit or 0)
    silent_s = error.at - end_s + pair.config.loss.base_timeout_s
    assert schedule_s(pair) <= silent_s <= 2 * schedule_s(pair) + SLACK_S + pace_s


def test_budget__charges_one_round_once_and_not_one_with_a_trim() -> None:
    pair = pair_with_write(("all", "unknown", "fixed"))
    budget = RetryBudget(pair.config, RoundTrips(pair.config))
    assert budget.charge(1.0) and budget.charge(1.0) and budget.charges == 1, "one round"
    budget.trimmed()
    assert budget.charge(budget.again_at) and budget.charges == 1, "free"
    assert budget.charge(budget.again_at) and budget.charges == 2, "only that one"
    budget.trimmed()
    budget.restore()
    assert budget.charge(budget.again_at) and budget.charges == 1, "a trim before progress says nothing about later"
