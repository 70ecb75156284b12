"""Hold-down, soak and suppression times of the fault correlation (docs/design/fault-correlation.md)."""

from __future__ import annotations

from dataclasses import dataclass


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
    """How long a choice waits for somebody to decide it: counters of switches are read three times for that."""
    ev_lossy_s: float = 3.0
    """How long an EV has to complain of losses before it is believed without a prober."""
    lossy_unclear_s: float = 6.0
    lossy_again_s: float = 0.8
    """How long losses have to have the same cause."""
    lossy_direction_s: float = 4.0
    """How long a losing link has to be known before its direction is told; a prober needs about that for a link."""
    settle_s: float = 1.0
    suppress_s: float = 15.0
    recover_s: float = 2.0
    """Paths of a fault without ports that is over come back within so long of each other."""
    flap_s: float = 5.0
    lossy_hold_s: float = 3.0
    dead_for_s: float = 3.0
    """What was dead for less may have been lossy all the time, and is held as such."""
    judge_s: float = 2.0
    """How long a dead path waits for counts that say whether all is lost."""
    dying_s: float = 0.25
    """From a prober's first loss to the one that made it call a path dead."""
    dying_lossy_s: float = 1.0
    """From the last probe that came through to the death of a path over something that loses some: of ten packets in a
    row one comes through."""
    witness_s: float = 3.0
    """How long dead paths wait for the word of those who watch other paths over what would be accused."""
    congested_s: float = 3.0
    """What EVs say of paths through a port whose queue was full is disregarded for so long."""
    trial_s: float = 8.0
    """Packets of the last so many seconds are weighed when a path loses some."""
