"""Longest silence of a queue pair (*ends*) and longest incast (*congestion*), by configuration.

Computed from configuration and bytes alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from mrc_testbed.hosts.engine.config import Config

INCAST_GOODPUT = 0.6
"""Least share of the receiver's links that an incast fills.

The goal is 0.95 of long incasts without their start: in these short ones the first round trips, in which each sender
fills the pipe alone, cost the rest.
"""
INCAST_TRIPS = 12
"""Round trips on top of an incast's bound.

Windows shrink from all senders' line rate to a share, and the last packet's SACK travels.
"""
INCAST_TIMERS = 2
"""Timers on top where a NACK reports every drop."""
INCAST_BUDGETS = 2
"""Whole retry budgets on top where headers are lost too, or no NACK reports a drop.

A packet may expire so often.
"""


def silence_bound_s(config: Config, trip_s: float) -> float | None:
    """Return the seconds within which a QP with work makes progress or fails; None: no bound.

    The bound holds whatever is broken.

    Progress (cack advances, a write completes) makes the retry budget whole again (§5.11), so the bound is one of each
    silence, not of a transfer. `trip_s`: the longest round trip of the network that still works, queues included.

    1. No timer is longer than `longest_s`: the interval of its phase doubles up to timeout_ceiling_s, and what round
       trips ask for on top is cut there too (roundtrips.py: timer_s).
    2. As long as work is left, something charges the budget (requestor.py: _charge): a packet in flight expires, a
       refusal by NACK charges at once and is sent again one round trip later, a Transport ACK that is owed is waited
       for as long as a timer, and so is a port or an EV while none can be used. Nothing else may be waited for: not
       probes of EVs, not port status updates. They can end a silence, never prolong it.
    3. After a charge the next one is possible when a packet that expired then could have expired again, `longest_s` at
       most (RetryBudget.again_at). A packet whose timer ran out just before that charges nothing; it leaves again and
       expires once more, another `longest_s` later. A round trip comes on top, for what waits for a place in a queue or
       for the end of a refusal.
    4. The budget has `retry_limit` charges; the first one waits for a timer, too.

    All of this counts from when things last changed: a fault that begins or ends, and work posted to an idle QP.
    """
    loss = config.loss
    if loss.retry_limit is None:
        return None
    longest_s = max(loss.base_timeout_s, loss.timeout_ceiling_s)
    return loss.retry_limit * (2 * longest_s + trip_s)


def incast_bound_s(config: Config, wire_bytes: float, each_bytes: float, rate_bps: float, trip_s: float) -> float:
    """Seconds within which many senders have written everything to one host on a fabric without faults.

    `wire_bytes`: of all packets once, headers included; `each_bytes`: of one sender; `rate_bps`: of the receiver's
    links together; `trip_s`: the round trip of an empty fabric. A fixed window may be smaller than the pipe, and then
    each of its fills takes a round trip.
    """
    takes = wire_bytes * 8 / rate_bps
    congestion, loss = config.congestion, config.loss
    if congestion.cc_algorithm == "fixed":
        takes = max(takes, each_bytes / congestion.cwnd_bytes * trip_s)
    waits = INCAST_TIMERS * loss.base_timeout_s
    medium = config.switches.trimmed_queue == "medium"
    if not congestion.fabric_trims or congestion.cc_algorithm == "fixed" or medium:
        charges = range(1, (loss.retry_limit or 1) + 1)
        # From 0.0 on: as machine code a sum that begins with 0 is an int, and floats end in a TypeError.
        waits = INCAST_BUDGETS * sum((loss.retry_interval_s(number) for number in charges), 0.0)
    return takes / INCAST_GOODPUT + INCAST_TRIPS * trip_s + waits


def jain(shares: Sequence[float]) -> float:
    """Jain's fairness index of some flows: 1 when all have the same, 1/n when one has everything."""
    squares = sum((share * share for share in shares), 0.0)
    return sum(shares, 0.0) ** 2 / (len(shares) * squares) if squares else 1.0
