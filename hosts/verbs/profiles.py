"""Profiles of one device: EV formats, EVs and congestion control, common to all its open contexts.

They outlive the context that wrote them, and its controller; they end with the device.
"""

from __future__ import annotations

from mrc_testbed.hosts.engine.qp import EngineQueuePair
from mrc_testbed.hosts.verbs.cc_profiles import CcProfileTable
from mrc_testbed.hosts.verbs.context import DeviceContext
from mrc_testbed.hosts.verbs.ev_profiles import EvProfileTable


class ProfileStore:
    """The two tables, and what a QP asks of both. `context` is the device's own, which stays open."""

    def __init__(self, context: DeviceContext) -> None:
        self.ev = EvProfileTable(context)
        self.cc = CcProfileTable(context)

    def check(self, ev_profile_id: int | None, cc_profile_id: int | None, subject: str) -> None:
        """Whether a QP may use these now. Raises VerbsError."""
        self.ev.check(ev_profile_id, subject)
        self.cc.check(cc_profile_id, subject)

    def attach(self, qp: EngineQueuePair, ev_profile_id: int | None, cc_profile_id: int | None) -> None:
        """Count a QP that connected with these profiles."""
        self.ev.attach(qp, ev_profile_id)
        self.cc.attach(qp, cc_profile_id)

    def detach(self, qp: EngineQueuePair) -> None:
        """Count off a QP that is reset or destroyed."""
        self.ev.detach(qp)
        self.cc.detach(qp)
