"""Longest silence of a queue pair, from its configuration alone: the bound of the invariant *ends*."""

from __future__ import annotations

from hosts.engine.config import Config


def silence_bound_s(config: Config, trip_s: float) -> float | None:
    """Seconds after which a QP that has work must have made progress or failed, whatever is broken; None = no bound.

    Progress (cack advances, a write completes) makes the retry budget whole again (§5.11), so the bound is one of each
    silence, not of a transfer. `trip_s`: the longest round trip of the network that still works, queues included.

    1. No timer is longer than `longest`: the interval of its phase doubles up to timeout_ceiling_s, and what round
       trips ask for on top is cut there too (roundtrips.py: timer_s).
    2. As long as work is left, something charges the budget (requestor.py: _charge): a packet in flight expires, a
       refusal by NACK charges at once and is sent again one round trip later, a Transport ACK that is owed is waited
       for as long as a timer, and so is a port or an EV while none can be used. Nothing else may be waited for: not
       probes of EVs, not port status updates. They can end a silence, never prolong it.
    3. After a charge the next one is possible when a packet that expired then could have expired again, `longest` at
       most (RetryBudget.again_at). A packet whose timer ran out just before that charges nothing; it leaves again and
       expires once more, another `longest` later. A round trip comes on top, for what waits for a place in a queue or
       for the end of a refusal.
    4. The budget has `retry_limit` charges; the first one waits for a timer, too.

    All of this counts from when things last changed: a fault that begins or ends, and work posted to an idle QP.
    """
    if config.retry_limit is None:
        return None
    longest = max(config.base_timeout_s, config.timeout_ceiling_s)
    return config.retry_limit * (2 * longest + trip_s)
