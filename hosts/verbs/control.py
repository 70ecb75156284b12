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

import errno
from collections.abc import Callable, Sequence
from typing import Any

from mrc_testbed.hosts.engine.cc.ccprofile import ALGORITHMS
from mrc_testbed.hosts.engine.events import EvProbeResult
from mrc_testbed.hosts.verbs.checks import choice, number, record, records, short_repr
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
from mrc_testbed.hosts.verbs.cq import MAX_CQE, CompletionChannel
from mrc_testbed.hosts.verbs.errors import VerbsError
from mrc_testbed.hosts.verbs.ev_events import EvEventCq
from mrc_testbed.hosts.verbs.fields import MAX_WIDTH, EvFormat, t1_usid_ev
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

    def close(self) -> None:
        """Give the controller back, so that another context may have it; profiles stay. Idempotent."""
        with self.context.lock:
            if self.closed:
                return
            self.closed = True
            for cq in list(self._ev_profiles.event_cqs):
                cq.close()
            # Nobody waits for the rest any more; a batch in flight ends unanswered.
            for batch, request in self._probes.values():
                batch.abandon(request)
            self._on_close()

    # ---- device and ports -----------------------------------------------------------------------------------

    def query_device(self) -> CtlDeviceAttr:
        """Limits and capabilities."""
        return CtlDeviceAttr(
            mrc_ctl_protocol_version=1,
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
        """Whether a port (from 1) is enabled; whether it has a link too, Device.query_port says."""
        return self.context.driver.port_enabled(self.context.plane_of(port_num))

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

    def create_ev_event_cq(
        self, cqe: int = 1024, cq_context: Any = None, channel: CompletionChannel | None = None
    ) -> EvEventCq:
        """Create a queue of EV events of all profiles, from now on; armed, it announces itself at `channel`.

        It coalesces and cannot overrun; at most `cqe` entries.
        """
        number("create_ev_event_cq: cqe", cqe, 1, MAX_CQE)
        with self.context.lock:
            return EvEventCq(self.context, cqe, cq_context, channel, self._ev_profiles.event_cqs)

    # ---- endpoint operations -----------------------------------------------------------------------------------

    def ep_op(
        self,
        requests: Sequence[EpRequest],
        *,
        op: EpOp = EpOp.EV_PROBE,
        dscp: int | None = None,
        timeout_ns: int = 100_000_000,
    ) -> list[EpResponse]:
        """Carry out a batch and wait until all are answered or `timeout_ns` is over.

        Returns the responses in the order in which they arrived; those that did not come stand last, with ETIMEDOUT.
        `dscp`: traffic class of the requests; None: that of data.
        """
        batch = self.post_ep_op(requests, op=op, dscp=dscp, timeout_ns=timeout_ns)
        self.context.wait_for(lambda: batch.done)
        return sorted(batch.responses.values(), key=lambda response: not response.ok)

    def post_ep_op(
        self,
        requests: Sequence[EpRequest],
        *,
        op: EpOp = EpOp.EV_PROBE,
        dscp: int | None = None,
        timeout_ns: int = 100_000_000,
    ) -> EpBatch:
        """Start the requests as `ep_op` does, without waiting.

        The outcome is in `batch.done` and `batch.responses` (by request id, in the order of their arrival).
        """
        context = self.context
        self._check_batch(op, dscp, timeout_ns)
        requests = records("ep_op", requests, EpRequest)
        ids = [number(f"ep_op, entry {i}: req_id", r.req_id, 0, 0xFFFF) for i, r in enumerate(requests)]
        if len(set(ids)) != len(ids):
            raise VerbsError("ep_op: request ids must be there once each in a batch")
        targets = [self._target(f"ep_op, entry {index}", request) for index, request in enumerate(requests)]
        batch = EpBatch(len(ids))
        with context.lock:
            if self.closed:
                raise VerbsError("ep_op: this controller was closed", errno.EBADF)
            for request, (peer, ev, plane) in zip(requests, targets, strict=True):
                probe = context.driver.endpoint.probe_ev(
                    peer, ev, plane, now=context.now(), timeout_s=timeout_ns * 1e-9, dscp=dscp
                )
                self._probes[probe] = (batch, request)
            context.after_call()
        return batch

    def _check_batch(self, op: EpOp, dscp: int | None, timeout_ns: int) -> None:
        """Check what all requests of a batch have in common. Raises VerbsError."""
        if choice("ep_op: op", op, EpOp) is not EpOp.EV_PROBE:
            raise VerbsError("ep_op: op PORT_STATUS_UPDATE: the device sends these by itself", errno.ENOTSUP)
        number("ep_op: timeout_ns", timeout_ns, 1, 60 * 10**9)
        if dscp is None:
            return
        classes = self.context.config.dscp
        if number("ep_op: dscp", dscp, 0, 63) in (classes.trimmed, classes.trimmed_lasthop):
            raise VerbsError(f"ep_op: dscp = {dscp} marks packets that a switch has trimmed")

    def _target(self, subject: str, request: EpRequest) -> tuple[str, int, int]:
        """Return (peer, EV of the engine, plane) of a request. Raises VerbsError."""
        driver = self.context.driver
        if request.sgid is not None and request.sgid not in driver.gids():
            raise VerbsError(f"{subject}: sgid {short_repr(request.sgid)} is none of ours ({', '.join(driver.gids())})")
        form = request.ev_fmt_mode
        width = 32 if form is None else MAX_WIDTH[choice(f"{subject}: ev_fmt_mode", form, EvFormat)]
        ev = number(f"{subject}: ev", request.ev, 0, (1 << width) - 1)
        peer = driver.resolve(record(f"{subject}: dgid", request.dgid, str))
        # A whole SRv6 address names its EV in the T1 uSID.
        return peer, t1_usid_ev(ev) if ev >> 32 else ev, self.context.plane_of(request.port)


class EpBatch:
    """Endpoint operations in flight."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.responses: dict[int, EpResponse] = {}

    @property
    def done(self) -> bool:
        """Whether every request has its response."""
        return len(self.responses) == self._count

    def abandon(self, request: EpRequest) -> None:
        """End a request whose controller was closed (called by the controller)."""
        self.responses[request.req_id] = EpResponse(request.req_id, request.port, None, errno=errno.EBADF)

    def finish(self, request: EpRequest, event: EvProbeResult) -> None:
        """Store the response to a request (called by the controller)."""
        if event.rtt_s is None:
            response = EpResponse(request.req_id, request.port, None, errno=errno.ETIMEDOUT)
        else:
            response = EpResponse(request.req_id, request.port, round(event.rtt_s * 1e9))
        self.responses[request.req_id] = response
