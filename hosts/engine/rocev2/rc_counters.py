"""Counters of a baseline QP, both halves."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_testbed.hosts.engine.connection import Counters


@dataclass(slots=True)
class RcCounters(Counters):
    """Counters of a baseline QP.

    `lost` and `losses` count returns (OVERTAKEN: for a sequence NAK), `nacks_sent` NAKs.
    """

    cnps_sent: int = 0
    cnps_received: int = 0
    rnr_naks: int = 0
    """RNR NAKs received: a WriteIMM found no posted receive at the peer."""
