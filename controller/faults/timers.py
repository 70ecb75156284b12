"""Hold-down, soak and suppression times of the fault correlation (docs/design/fault-correlation.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ROUNDING_S: Final = 1e-6
"""Tolerance of comparisons with a due time, seconds.

Sums of times round by 2 ** -23 = 1.2e-7 s after 30 years of CLOCK_MONOTONIC (1e9 s), and the shortest hold-down is
0.1 s.
"""


@dataclass(frozen=True, slots=True)
class FaultTimers:
    """All times, seconds."""

    together_s: float = 2.0
    """Links of one switch that went down within this time went down together."""
    hold_down_port_s: float = 0.1
    hold_down_path_s: float = 0.4
    hold_down_ev_s: float = 1.2
    """An EV that is bad by chance has its path proven by three probes, 0.2 s apart."""
    hold_down_lossy_s: float = 1.0
    unclear_s: float = 2.5
    """Hold-down of an ambiguous finding: the counters of switches are read three times in it."""
    ev_lossy_s: float = 3.0
    """Hold-down of losses that EVs alone report, where no prober confirms them."""
    lossy_unclear_s: float = 6.0
    lossy_again_s: float = 0.8
    """Hold-down of a lossy cause, in which it has to stay the same."""
    lossy_direction_s: float = 4.0
    """Age of a lossy link's fault before its direction is reported; a prober needs about that for a link."""
    settle_s: float = 1.0
    late_port_s: float = 3.0
    """Longest delay of a port's report behind the death of its paths.

    Paths bad before are another fault's."""
    suppress_s: float = 15.0
    recover_s: float = 2.0
    """Longest spread in the recovery of paths after a cleared fault whose ports stayed up."""
    flap_s: float = 5.0
    lossy_hold_s: float = 3.0
    dead_for_s: float = 3.0
    """Shortest total loss that shows a path was not lossy before; a shorter fault ends as a lossy one."""
    judge_s: float = 2.0
    """Longest wait of a dead path for counts that show whether all packets are lost."""
    dying_s: float = 0.25
    """Time from a prober's first loss to the loss by which it calls the path dead."""
    dying_lossy_s: float = 1.0
    """Time from the last probe that came through to the death of a path beside a lossy cause.

    One of ten packets in a row comes through there.
    """
    witness_s: float = 3.0
    """Longest wait of dead paths for the verdict of a prober that watches other paths over the suspect."""
    congested_s: float = 3.0
    """Suppression of EV symptoms of paths through a port whose queue was full."""
    trial_s: float = 8.0
    """Age up to which counted packets are weighed when a path loses some."""
