"""Controller API (`mrc_ctl.h`, §10.3, §10.4): profiles, EV operations and events, EV probes, ports.

    control = device.controller
    control.modify_ev_fmt_profile(1, state=OFFLINE, mode=EvFormat.STEV, fields=[8, 8])
    control.modify_ev_fmt_profile(1, state=ONLINE)
    control.modify_ev_profile(7, EvProfileAttr(state=OFFLINE, mode=EvMode.EXPLICIT, ev_fmt_profile_id=1, ev_count=4))
    control.ev_op(7, EvOp.REPLACE_EV, [...]);  control.modify_ev_profile(7, EvProfileAttr(state=ONLINE, ...))
    qp.modify(QpAttr(qp_state=QpState.INIT, ...), mrc_attr=MrcQpAttr(ev_profile_id=7))

Profiles are numbered by whoever writes them; one that was never written is in INIT. Number 0 is AUTO, always there, and
what a QP without a profile has. A device has one controller at a time, and only
a privileged context opens it (CAP_NET_ADMIN in C).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mrc_testbed.hosts.engine.cc.ccprofile import ALGORITHMS
from mrc_testbed.hosts.engine.events import EvProbeResult
from mrc_testbed.hosts.verbs.checks import number, record, records, short_repr
from mrc_testbed.hosts.verbs.context import DeviceContext
from mrc_testbed.hosts.verbs.control_types import (
    MAX_CC_PROFILES,
    MAX_EVS,
    MAX_EVS_PROFILE,
    MAX_OP_ENTRIES,
    MAX_PROFILES,
    CtlDeviceAttr,
    EpOp,
    EpRequest,
    EpResponse,
    EvMode,
    OptCap,
)
from mrc_testbed.hosts.verbs.cq import MAX_CQE
from mrc_testbed.hosts.verbs.errors import VerbsError
from mrc_testbed.hosts.verbs.ev_events import EvEventCq
from mrc_testbed.hosts.verbs.fields import EvFormat
from mrc_testbed.hosts.verbs.profiles import ProfileStore


class Controller:
    """`device.controller`, at most one of a device at a time. All calls raise VerbsError; see the module."""

    def __init__(self, context: DeviceContext, profiles: ProfileStore, on_close: Callable[[], None]) -> None:
        self.context = context
        self._on_close = on_close
        self.closed = False
        ev, cc = profiles.ev, profiles.cc
        self._ev_profiles = ev
        # Calls of mrc_ctl.h that one of the two carries out.
        self.modify_ev_fmt_profile, self.query_ev_fmt_profile = ev.modify_ev_fmt_profile, ev.query_ev_fmt_profile
        self.modify_ev_profile, self.query_ev_profile = ev.modify_ev_profile, ev.query_ev_profile
        self.ev_op = ev.ev_op
        self.modify_cc_profile, self.query_cc_profile = cc.modify_cc_profile, cc.query_cc_profile
        self._probes: dict[int, tuple[EpBatch, EpRequest]] = {}
        """EV probes in flight, by the engine's request id."""
        self._event_cqs: list[EvEventCq] = []

    def close(self) -> None:
        """Give the controller back, so that another context may have it; profiles stay. Idempotent."""
        with self.context.lock:
            if self.closed:
                return
            self.closed = True
            for cq in self._event_cqs:
                self._ev_profiles.event_cqs.remove(cq)
            self._on_close()

    # ---- device and ports -----------------------------------------------------------------------------------

    def query_device(self) -> CtlDeviceAttr:
        """Limits and capabilities."""
        return CtlDeviceAttr(
            api_version=1,
            ev_max_fmt_profiles=MAX_PROFILES,
            ev_max_profiles=MAX_PROFILES,
            ev_max_count=MAX_EVS,
            ev_free_count=MAX_EVS - self._ev_profiles.ev_count,
            ev_max_count_profile=MAX_EVS_PROFILE,
            ev_count_align=1,
            ev_max_width=128,
            ev_fmt_mode_mask=EvFormat.STEV | EvFormat.SRV6 | EvFormat.UDP,
            ev_mode_mask=EvMode.AUTO | EvMode.EXPLICIT | EvMode.GENERATED,
            ev_op_max_entries=MAX_OP_ENTRIES,
            cc_max_profiles=MAX_CC_PROFILES,
            cc_algorithms=ALGORITHMS,
            phy_port_mask=(1 << self.context.driver.planes) - 1 << 1,
            opt_attr=OptCap.EV_EVENT | OptCap.EV_EVENT_PRECISE_DROP_CNT | OptCap.EP_OP_EV_PROBE,
        )

    def query_port(self, port_num: int) -> bool:
        """Whether a port (from 1) is enabled and has a link."""
        return self.context.driver.port_up(self.context.plane_of(port_num))

    def modify_port(self, port_num: int, enabled: bool) -> None:
        """Enable or disable a port administratively: its plane is withdrawn at once, and our peers are told."""
        self.context.driver.set_port(self.context.plane_of(port_num), bool(enabled))
        self.context.driver.kick()

    def on_probe_result(self, event: EvProbeResult) -> None:
        """Take the outcome of an EV probe (called by the device, lock held)."""
        probe = self._probes.pop(event.request_id, None)
        if probe is not None:
            probe[0].finish(probe[1], event)

    # ---- EV events -------------------------------------------------------------------------------------------

    def create_ev_event_cq(self, cqe: int = 1024) -> EvEventCq:
        """Create a queue of EV events of all profiles, from now on.

        It coalesces and cannot overrun; at most `cqe` entries.
        """
        number("create_ev_event_cq: cqe", cqe, 1, MAX_CQE)
        with self.context.lock:
            cq = EvEventCq(self.context, cqe)
            self._event_cqs.append(cq)
            self._ev_profiles.event_cqs.append(cq)
            return cq

    # ---- endpoint operations -----------------------------------------------------------------------------------

    def ep_op(self, requests: Sequence[EpRequest]) -> list[EpResponse]:
        """Carry out a batch and wait for all answers or timeouts; responses in the order of the requests."""
        batch = self.post_ep_op(requests)
        self.context.wait_for(lambda: batch.done)
        return [batch.responses[r.req_id] for r in requests if r.req_id in batch.responses]

    def post_ep_op(self, requests: Sequence[EpRequest]) -> EpBatch:
        """Start the requests as `ep_op` does, without waiting.

        The outcome is in `batch.done` and `batch.responses` (by request id).
        """
        context = self.context
        requests = records("ep_op", requests, EpRequest)
        ids = [number(f"ep_op, entry {i}: req_id", r.req_id, 0, 0xFFFF) for i, r in enumerate(requests)]
        if len(set(ids)) != len(ids):
            raise VerbsError("ep_op: request ids must be there once each in a batch")
        targets = []
        for index, r in enumerate(requests):
            if r.op != EpOp.EV_PROBE:
                raise VerbsError(f"ep_op, entry {index}: op {short_repr(r.op)} (has: EV_PROBE)")
            number(f"ep_op, entry {index}: timeout_ns", r.timeout_ns, 1, 60 * 10**9)
            number(f"ep_op, entry {index}: ev", r.ev, 0, (1 << 32) - 1)
            record(f"ep_op, entry {index}: dgid", r.dgid, str)
            targets.append((context.driver.resolve(r.dgid), context.plane_of(r.port)))
        batch = EpBatch(len(ids))
        with context.lock:
            for r, (peer, plane) in zip(requests, targets, strict=True):
                probe = context.driver.endpoint.probe_ev(
                    peer, r.ev, plane, now=context.now(), timeout_s=r.timeout_ns * 1e-9
                )
                self._probes[probe] = (batch, r)
            context.after_call()
        return batch


class EpBatch:
    """Endpoint operations in flight."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.responses: dict[int, EpResponse] = {}

    @property
    def done(self) -> bool:
        """Whether every request has its response."""
        return len(self.responses) == self._count

    def finish(self, request: EpRequest, event: EvProbeResult) -> None:
        """Store the response to a request (called by the controller)."""
        rtt = None if event.rtt_s is None else round(event.rtt_s * 1e9)
        self.responses[request.req_id] = EpResponse(request.req_id, request.port, rtt, rtt)
