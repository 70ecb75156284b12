"""The queue pair of the verbs: state machine, posting, completions, over an engine QP.

Two steps of the engine carry four states: `connect` at INIT -> RTR (the responder works from then on, and nothing can
be posted yet), `begin_sending` at RTR -> RTS. The engine QP exists from `create_qp` on, because the QPN does; a move to
RESET replaces it by a new one of the same number.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import starmap
from typing import Any, Final

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.events import Completion, Status, WriteImmReceived
from mrc_testbed.hosts.engine.memory import QpAccess
from mrc_testbed.hosts.engine.qp import EngineQueuePair, QpAttributes
from mrc_testbed.hosts.verbs.attributes import (
    FIELDS,
    MRC_FIELDS,
    MrcQpAttr,
    QpAttr,
    QpInitAttr,
    check_modify,
    check_values,
    mask_of,
    mrc_mask_of,
    without_ignored,
)
from mrc_testbed.hosts.verbs.checks import choice, flags, iterable, number, record, records, require, short_repr
from mrc_testbed.hosts.verbs.context import DeviceContext
from mrc_testbed.hosts.verbs.cq import CompletionQueue, WorkCompletion
from mrc_testbed.hosts.verbs.enums import (
    UNIT_MPR,
    AccessFlags,
    EventType,
    MrcQpAttrMask,
    MrcQpCap,
    QpAttrMask,
    QpState,
    SendFlags,
    WcFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
    names,
)
from mrc_testbed.hosts.verbs.errors import VerbsError
from mrc_testbed.hosts.verbs.hints import QpHint
from mrc_testbed.hosts.verbs.memory import ProtectionDomain, Sge
from mrc_testbed.hosts.verbs.profiles import ProfileStore

STATUS = {
    Status.SUCCESS: WcStatus.IBV_WC_SUCCESS,
    Status.RETRY_EXCEEDED: WcStatus.IBV_WC_RETRY_EXC_ERR,
    Status.REMOTE_ACCESS: WcStatus.IBV_WC_REM_ACCESS_ERR,
    Status.REMOTE_INVALID_REQUEST: WcStatus.IBV_WC_REM_INV_REQ_ERR,
    Status.REMOTE_OPERATION: WcStatus.IBV_WC_REM_OP_ERR,
    Status.FLUSHED: WcStatus.IBV_WC_WR_FLUSH_ERR,
}
"""Status of the engine -> status of ibverbs."""

VENDOR_ERRORS = {
    WcStatus.IBV_WC_REM_INV_REQ_ERR: 0x61,
    WcStatus.IBV_WC_REM_ACCESS_ERR: 0x62,
    WcStatus.IBV_WC_REM_OP_ERR: 0x63,
    WcStatus.IBV_WC_RETRY_EXC_ERR: 0x100,
    WcStatus.IBV_WC_WR_FLUSH_ERR: 0x101,
}
"""Status -> `vendor_err`: syndrome of the peer's NAK (§2.7); from 0x100 on, a cause at this end."""


@dataclass
class SendWR:
    """A send work request. `sg_list` of one element, or none for a write of zero bytes.

    `remote_addr` and `rkey`: as the peer told them out of band. `imm_data`: 32 bits, with WRITE_WITH_IMM only.
    """

    wr_id: int = 0
    opcode: WrOpcode = WrOpcode.IBV_WR_RDMA_WRITE
    sg_list: list[Sge] = field(default_factory=list)
    remote_addr: int = 0
    rkey: int = 0
    imm_data: int | None = None
    send_flags: SendFlags = SendFlags.IBV_SEND_SIGNALED
    inline: Any = None
    """Bytes to send with IBV_SEND_INLINE, instead of `sg_list`."""


@dataclass
class RecvWR:
    """Receive work request: one WriteIMM of the peer uses it up.

    It needs no memory, for writes name their own.
    """

    wr_id: int = 0


@dataclass(slots=True)
class _Posted:
    """A send request in the engine."""

    wr_id: int
    signaled: bool
    opcode: WrOpcode


class QueuePair:
    """Queue pair, made by `Device.create_qp`, in RESET.

    All calls raise VerbsError, or LocalError from the engine below.
    """

    def __init__(
        self,
        context: DeviceContext,
        profiles: ProfileStore,
        default_pd: ProtectionDomain,
        init: QpInitAttr,
        on_destroy: Callable[[QueuePair], None],
    ) -> None:
        self.context = context
        self._profiles = profiles
        self._on_destroy = on_destroy
        self.init = init
        self.send_cq: CompletionQueue = init.send_cq
        # An empty CQ is false, so `or` would take the send CQ for it.
        self.recv_cq: CompletionQueue = init.send_cq if init.recv_cq is None else init.recv_cq
        self.pd = init.pd or default_pd
        self.state = QpState.RESET
        self.peer: str | None = None
        """Name of the other host in the engine, from RTR on."""
        self.error: str | None = None
        """Reason of ERROR; None in other states."""
        self.destroyed = False
        self.events_to_ack = 0
        """Asynchronous events that were taken and nobody has acknowledged."""
        self._access = QpAccess(self.pd.rkeys, remote_write=False)
        """Regions that the peer may write to, and whether it may at all (qp_access_flags)."""
        self._attr = QpAttr(cap=init.cap)
        self._mrc_attr = MrcQpAttr()
        self._sends: deque[_Posted] = deque()
        self._receives: dict[int, int] = {}
        """Posted receives not used up: number in the engine -> wr_id, oldest first."""
        self._wimm_in_flight = 0
        self.engine = self._make_engine_qp()
        self.qp_num: int = self.engine.qpn
        # A CQ or PD in use cannot be destroyed.
        self.send_cq.users += 1
        self.recv_cq.users += 1
        self.pd.users += 1

    def _make_engine_qp(self, qpn: int | None = None) -> EngineQueuePair:
        return self.context.driver.endpoint.create_qp(qpn, transport=self.init.qp_type.value)

    def __repr__(self) -> str:
        return f"QueuePair({self.qp_num:#x}, {self.state.name}{f', to {self.peer}' if self.peer else ''})"

    # ---- state machine ------------------------------------------------------------------------------------

    def modify(
        self,
        attr: QpAttr | None = None,
        attr_mask: QpAttrMask | None = None,
        mrc_attr: MrcQpAttr | None = None,
        mrc_attr_mask: MrcQpAttrMask | None = None,
    ) -> None:
        """Move to another state, or change attributes in this one (`mrc_modify_qp`).

        Without masks every field that is not None counts as given. Nothing has changed when it raises.
        """
        attr = record("attr", QpAttr() if attr is None else attr, QpAttr)
        mrc_attr = record("mrc_attr", MrcQpAttr() if mrc_attr is None else mrc_attr, MrcQpAttr)
        attr = _select_fields(attr, attr_mask, FIELDS)
        mrc_attr = _select_fields(mrc_attr, mrc_attr_mask, MRC_FIELDS)
        with self.context.lock:
            self._require_alive()
            if attr.cur_qp_state is not None and attr.cur_qp_state != self.state:
                expected_state = choice("cur_qp_state", attr.cur_qp_state, QpState).name
                raise VerbsError(f"modify_qp: cur_qp_state is {expected_state}, but the QP is in {self.state.name}")
            new_state = self.state if attr.qp_state is None else choice("qp_state", attr.qp_state, QpState)
            subject = f"modify_qp {self.state.name}->{new_state.name}"
            check_modify(self.state, new_state, mask_of(attr), mrc_mask_of(mrc_attr), self.context.config.qp.mpr_name)
            check_values(attr, mrc_attr, subject)
            self._check_objects(attr, mrc_attr, subject)
            attr = _merge(self._attr, without_ignored(attr))
            self._move(new_state, attr, _merge(self._mrc_attr, mrc_attr), subject)

    def _check_objects(self, attr: QpAttr, mrc_attr: MrcQpAttr, subject: str) -> None:
        """Check that the port exists and the hint is one of this context."""
        if attr.port_num is not None:
            try:
                self.context.plane_of(attr.port_num)
            except VerbsError as error:
                raise VerbsError(f"{subject}: port_num: {error}") from None
        if mrc_attr.qp_hint is not None and not mrc_attr.qp_hint.belongs_to(self.context):
            raise VerbsError(f"{subject}: qp_hint is none of this context of the device, or was destroyed")

    def _with_defaults(self, new_state: QpState, mrc: MrcQpAttr) -> MrcQpAttr:
        """Return the attributes that RTR or RTS needs: those never given are the device's."""
        config = self.context.config
        window = max(1, config.qp.mpr_packets // UNIT_MPR)
        defaults: dict[str, Any] = {"mpr_dest": window, "max_wimm_dest": config.qp.max_wimm}
        if new_state is QpState.RTS:
            # The peer's window and WriteIMM are taken to be as ours, where nobody said.
            defaults |= {"mpr": window, "max_wimm": config.qp.max_wimm, "timeout": config.loss.timeout}
            defaults |= {"linear_cnt": config.loss.linear_cnt, "exp_cnt": config.loss.exp_cnt}
        return replace(mrc, **{name: value for name, value in defaults.items() if getattr(mrc, name) is None})

    def _move(self, new_state: QpState, attr: QpAttr, mrc: MrcQpAttr, subject: str) -> None:
        """Carry a checked move out; `attr` and `mrc` are old and new attributes together."""
        old_state, now = self.state, self.context.now()
        if new_state is QpState.RESET:
            self._reset()
            return
        if new_state is QpState.ERROR:
            if old_state is not QpState.ERROR:
                self._abort("modify_qp to ERROR")
            return
        if new_state in (QpState.RTR, QpState.RTS):
            mrc = self._with_defaults(new_state, mrc)
        if new_state is QpState.INIT:
            self._profiles.check(mrc.ev_profile_id, mrc.cc_profile_id, subject)
        elif old_state is QpState.INIT:
            self._connect(attr, mrc, now, subject)
        elif old_state is QpState.RTR:
            psn, mpr = require(attr.sq_psn, "sq_psn", subject), require(mrc.mpr, "mpr", subject)
            self.engine.begin_sending(psn, mpr * UNIT_MPR, self._config(attr, mrc, subject))
        elif mrc.mpr_dest != self._mrc_attr.mpr_dest:
            self.engine.set_mpr(require(mrc.mpr_dest, "mpr_dest", subject) * UNIT_MPR)
        self._access.remote_write = bool((attr.qp_access_flags or 0) & AccessFlags.IBV_ACCESS_REMOTE_WRITE)
        self._take_hint(mrc.qp_hint)
        self.state, self._attr, self._mrc_attr = new_state, attr, mrc
        self.context.after_call()

    def _take_hint(self, hint: QpHint | None) -> None:
        """Count this QP at its hint, and off the one it had."""
        old_hint = self._mrc_attr.qp_hint
        if old_hint is not None:
            old_hint.users -= 1
        if hint is not None:
            hint.users += 1

    def _config(self, attr: QpAttr, mrc: MrcQpAttr, subject: str) -> Config:
        """Return the device's configuration with this QP's attributes in it."""
        base = self.context.config
        changes: dict[str, Any] = {
            "pmtu_bytes": attr.path_mtu,
            "mpr_packets": require(mrc.mpr_dest, "mpr_dest", subject) * UNIT_MPR,
            "max_wimm": mrc.max_wimm_dest,
            "dynamic_mpr": bool((mrc.cap or 0) & MrcQpCap.MRC_QP_CAP_DYNAMIC_MPR),
            "timeout": mrc.timeout,
            "linear_cnt": mrc.linear_cnt,
            "exp_cnt": mrc.exp_cnt,
        }
        changes.update(self._profiles.ev.config_changes(mrc.ev_profile_id))
        return base.with_values(**{key: value for key, value in changes.items() if value is not None})

    def _connect(self, attr: QpAttr, mrc: MrcQpAttr, now: float, subject: str) -> None:
        context, profiles = self.context, self._profiles
        path_mtu = require(attr.path_mtu, "path_mtu", subject)
        if path_mtu > context.config.qp.pmtu_bytes:
            raise VerbsError(
                f"{subject}: path_mtu = {path_mtu}: this device has at most {context.config.qp.pmtu_bytes}"
            )
        peer = context.driver.resolve(require(attr.ah_attr, "ah_attr", subject).dgid)
        cap = mrc.cap or MrcQpCap(0)
        remote = QpAttributes(
            qpn=require(attr.dest_qp_num, "dest_qp_num", subject),
            psn=require(attr.rq_psn, "rq_psn", subject),
            pmtu_bytes=path_mtu,
            mpr_packets=require(mrc.mpr_dest, "mpr_dest", subject) * UNIT_MPR,  # until RTS says what the peer's is
            max_wimm=0xFFFF,  # MRC_QP_MAX_WIMM is checked here
            trim_nack=not cap & MrcQpCap.MRC_QP_CAP_TRIM_NACK_DEST_UNSUPPORTED,
            dynamic_mpr=bool(cap & MrcQpCap.MRC_QP_CAP_DYNAMIC_MPR),
        )
        evs = profiles.ev.evs_for(mrc.ev_profile_id, peer, subject)
        config = self._config(attr, mrc, subject)
        if mrc.cc_profile_id:
            profiles.cc.check(mrc.cc_profile_id, subject)
            self.engine.set_cc_profile(profiles.cc.engine_id(mrc.cc_profile_id))
        denied = profiles.ev.denied_evs(mrc.ev_profile_id)
        self.engine.limit_access(self._access)
        self.engine.connect(peer, remote, evs, now, config=config, **({"denied": denied} if denied else {}))
        profiles.attach(self.engine, mrc.ev_profile_id, mrc.cc_profile_id)
        self.peer = peer

    def _reset(self) -> None:
        """Forget everything but number and queues; what was outstanding never completes."""
        driver = self.context.driver
        driver.collect()  # what the old one has told belongs to it
        self._profiles.detach(self.engine)
        qpn = self.qp_num
        driver.endpoint.destroy_qp(qpn)
        self.engine = self._make_engine_qp(qpn)
        self._sends.clear()
        self._receives.clear()
        self._wimm_in_flight = 0
        for cq in {id(q): q for q in (self.send_cq, self.recv_cq)}.values():
            cq.forget(qpn)
        self._take_hint(None)
        self._attr, self._mrc_attr = QpAttr(cap=self.init.cap), MrcQpAttr()
        self.peer = self.error = None
        self.state = QpState.RESET

    def _abort(self, detail: str) -> None:
        if self.state in (QpState.RTR, QpState.RTS):
            self.engine.abort(detail, self.context.now())
        self.state, self.error = QpState.ERROR, self.error or detail
        self.context.after_call()
        self._flush_receives()

    def query(self) -> tuple[QpAttr, MrcQpAttr, QpInitAttr]:
        """Return the attributes in force (`mrc_query_qp`); None where none was set yet."""
        with self.context.lock:
            self._require_alive()
            attr = replace(self._attr, qp_state=self.state, cur_qp_state=self.state)
            return attr, replace(self._mrc_attr), self.init

    def destroy(self) -> None:
        """Destroy the QP: its packets are dropped from now on, and pending requests never complete.

        Raises VerbsError (EBUSY) while an asynchronous event of it is not acknowledged. Idempotent.
        """
        with self.context.lock:
            if self.events_to_ack:
                raise VerbsError(
                    f"QP {self.qp_num:#x}: {self.events_to_ack} events are not acknowledged (ack_async_event)",
                    errno.EBUSY,
                )
            self.close()

    def close(self) -> None:
        """Destroy the QP whatever is not acknowledged (called by the context when it ends)."""
        with self.context.lock:
            if self.destroyed:
                return
            self.context.forget(self)
            self._profiles.detach(self.engine)
            self.context.driver.endpoint.destroy_qp(self.qp_num)
            self.destroyed = True
            self._take_hint(None)
            self.send_cq.users -= 1
            self.recv_cq.users -= 1
            self.pd.users -= 1
            self._on_destroy(self)

    def _require_alive(self) -> None:
        if self.destroyed:
            raise VerbsError(f"QP {self.qp_num:#x} was destroyed", errno.ENOENT)

    # ---- posting ------------------------------------------------------------------------------------------

    def post_send(self, wr: SendWR | Iterable[SendWR]) -> None:
        """Post one request, or several in order.

        When one is refused, `done_count` of the error is the number of requests posted before it.

        The bytes must stay unchanged until the completion (at once free with IBV_SEND_INLINE).
        """
        with self.context.lock:
            for done_count, request in enumerate([wr] if isinstance(wr, SendWR) else iterable("post_send", wr)):
                try:
                    self._post_request(request)
                except LocalError as error:
                    error_number = getattr(error, "errno", errno.EINVAL)
                    raise VerbsError(f"post_send: {error}", error_number, done_count=done_count) from None
            self.context.after_call()

    def _post_request(self, wr: SendWR) -> None:
        """Check what a Python program handed in, each value of it, and post it."""
        self._require_room()  # before the request is looked at: a QP that cannot send says so first
        record("request", wr, SendWR)
        send_flags = int(flags("send_flags", wr.send_flags, SendFlags))
        if wr.opcode not in _OPCODES:
            raise VerbsError(f"opcode {short_repr(wr.opcode)}: MRC has {' and '.join(WrOpcode.__members__)}")
        if (wr.opcode == WrOpcode.IBV_WR_RDMA_WRITE_WITH_IMM) != (wr.imm_data is not None):
            raise VerbsError("imm_data goes with IBV_WR_RDMA_WRITE_WITH_IMM, and only with it")
        number("imm_data", wr.imm_data or 0, 0, (1 << 32) - 1)
        number("remote_addr", wr.remote_addr, 0, (1 << 64) - 1)
        number("rkey", wr.rkey, 0, (1 << 32) - 1)
        if send_flags & _FENCE_FLAG:
            raise VerbsError("IBV_SEND_FENCE orders reads and atomics, which MRC does not have")
        data = self._data_of(wr, is_inline=bool(send_flags & _INLINE_FLAG))
        self.post_write(wr.wr_id, wr.opcode, data, wr.remote_addr, wr.rkey, wr.imm_data, send_flags)

    def _data_of(self, wr: SendWR, *, is_inline: bool) -> bytes | memoryview:
        """Return the bytes of a request that a Python program handed in."""
        if wr.inline is not None:
            if not is_inline:
                raise VerbsError("`inline` needs IBV_SEND_INLINE in send_flags")
            try:
                return self.inline(bytes(memoryview(wr.inline)))
            except TypeError:
                raise VerbsError(f"inline = {short_repr(wr.inline)}: must be bytes, or anything like bytes") from None
        elements = [
            (
                number("addr", element.addr, 0, (1 << 64) - 1),
                number("length", element.length, 0, (1 << 64) - 1),
                number("lkey", element.lkey, 0, (1 << 32) - 1),
            )
            for element in records("sg_list", wr.sg_list, Sge)
        ]
        return self.inline(b"".join(starmap(self._local, elements))) if is_inline else self.gather(elements)

    def post_write(
        self,
        wr_id: int,
        opcode: WrOpcode,
        data: bytes | memoryview,
        remote_addr: int,
        rkey: int,
        imm: int | None,
        send_flags: int,
    ) -> None:
        """Post a request of numbers that have their range, as a ring's records do (lock held).

        `data`: from `gather` or `inline`; it must stay unchanged until the completion. `send_flags`: SendFlags, no
        fence. `imm`: with WRITE_WITH_IMM alone. The caller calls `after_call` of the context behind the last request.
        """
        self._require_room()
        solicited = bool(send_flags & _SOLICITED_FLAG)
        if solicited and imm is None:
            raise VerbsError("IBV_SEND_SOLICITED wakes a receiver: only with IBV_WR_RDMA_WRITE_WITH_IMM")
        # The peer allows max_wimm at a time (§5.3); a completion frees one.
        if imm is not None and self._wimm_in_flight >= (self._mrc_attr.max_wimm or 0):
            raise VerbsError(
                f"max_wimm = {self._mrc_attr.max_wimm} WriteIMM are in flight: wait for a completion", errno.ENOMEM
            )
        self.engine.post_write(data, remote_addr, rkey, now=self.context.now(), imm=imm, solicited=solicited)
        signaled = self.init.sq_sig_all or bool(send_flags & _SIGNALED_FLAG)
        self._sends.append(_Posted(wr_id, signaled, opcode))
        self._wimm_in_flight += imm is not None

    def _require_room(self) -> None:
        """Check that a request may be posted now. Raises VerbsError."""
        self._require_alive()
        if self.state is not QpState.RTS:
            reason = f": {self.error}" if self.error else ""
            raise VerbsError(f"QP {self.qp_num:#x} is in {self.state.name}, needs RTS{reason}")
        if len(self._sends) >= self.init.cap.max_send_wr:
            raise VerbsError(
                f"the send queue is full: max_send_wr = {self.init.cap.max_send_wr} requests have not completed",
                errno.ENOMEM,
            )

    def inline(self, data: bytes) -> bytes:
        """Return bytes to be sent inline. Raises VerbsError for more than the QP takes."""
        if len(data) > self.init.cap.max_inline_data:
            raise VerbsError(f"{len(data)} bytes inline: max_inline_data = {self.init.cap.max_inline_data}")
        return data

    def gather(self, elements: Sequence[tuple[int, int, int]]) -> bytes | memoryview:
        """Return the bytes of elements, each an address, a length and an lkey; a copy where there are several.

        Raises VerbsError.
        """
        if len(elements) > self.init.cap.max_send_sge:
            raise VerbsError(f"{len(elements)} elements: max_send_sge = {self.init.cap.max_send_sge}")
        return self._local(*elements[0]) if len(elements) == 1 else b"".join(starmap(self._local, elements))

    def _local(self, addr: int, length: int, lkey: int) -> memoryview:
        region = self.pd.regions.find(lkey)
        if region is None or region.pd is not self.pd:
            raise VerbsError(f"lkey {lkey:#010x} is no region of this QP's protection domain")
        start = addr - region.addr
        if start < 0 or start + length > region.length:
            raise VerbsError(
                f"{length} bytes at {addr:#x} leave region {lkey:#010x} ({region.length} bytes at {region.addr:#x})"
            )
        return region.view[start : start + length]

    def post_recv(self, wr: RecvWR | Iterable[RecvWR]) -> None:
        """Post receives, from INIT on.

        A WriteIMM of the peer that finds none ends the QP (§6.3: there is no RNR).
        """
        with self.context.lock:
            for done_count, request in enumerate([wr] if isinstance(wr, RecvWR) else iterable("post_recv", wr)):
                self._require_alive()
                record(f"post_recv: request {done_count}", request, RecvWR)
                if self.state in (QpState.RESET, QpState.ERROR):
                    raise VerbsError(
                        f"post_recv: QP {self.qp_num:#x} is in {self.state.name}, needs INIT, RTR or RTS",
                        done_count=done_count,
                    )
                if len(self._receives) >= self.init.cap.max_recv_wr:
                    raise VerbsError(
                        f"post_recv: the receive queue is full: max_recv_wr = {self.init.cap.max_recv_wr}",
                        errno.ENOMEM,
                        done_count=done_count,
                    )
                self._receives[self.engine.post_recv()] = request.wr_id

    @property
    def outstanding(self) -> int:
        """Send requests that have not completed."""
        return len(self._sends)

    # ---- from the engine (called by the device, lock held) --------------------------------------------------

    def on_completion(self, event: Completion) -> None:
        """Complete a send request; the engine reports them in posting order."""
        posted = self._sends.popleft()
        if posted.opcode == WrOpcode.IBV_WR_RDMA_WRITE_WITH_IMM:
            self._wimm_in_flight -= 1
        status = STATUS[event.status]
        good = status is WcStatus.IBV_WC_SUCCESS
        if good and not posted.signaled:
            return
        detail = "" if good else (self.error or event.status.value)
        length = event.length if good else 0
        opcode = WcOpcode.IBV_WC_RDMA_WRITE
        vendor_err = VENDOR_ERRORS.get(status, 0)
        entry = WorkCompletion(
            posted.wr_id, status, opcode, self.qp_num, length, vendor_err=vendor_err, detail=detail, at=event.at
        )
        self.send_cq.push([entry])

    def on_write_imm(self, event: WriteImmReceived) -> None:
        """Complete the receive that a WriteIMM used up."""
        wr_id = self._receives.pop(event.recv_id, 0)
        entry = WorkCompletion(
            wr_id,
            WcStatus.IBV_WC_SUCCESS,
            WcOpcode.IBV_WC_RECV_RDMA_WITH_IMM,
            self.qp_num,
            event.length,
            event.imm,
            WcFlags.IBV_WC_WITH_IMM,
            src_qp=self._attr.dest_qp_num or 0,
            at=event.at,
        )
        self.recv_cq.push([entry], solicited=event.solicited)

    def on_error(self, detail: str) -> None:
        """Go to ERROR, as the engine's QP did."""
        if self.state is QpState.ERROR:
            return
        self.state, self.error = QpState.ERROR, detail
        self.context.report_async(EventType.IBV_EVENT_QP_FATAL, self, detail)
        self._flush_receives()

    def _flush_receives(self) -> None:
        status, opcode, now = WcStatus.IBV_WC_WR_FLUSH_ERR, WcOpcode.IBV_WC_RECV_RDMA_WITH_IMM, self.context.now()
        completions = [
            WorkCompletion(
                wr_id, status, opcode, self.qp_num, vendor_err=VENDOR_ERRORS[status], detail=self.error or "", at=now
            )
            for wr_id in self._receives.values()
        ]
        self._receives.clear()
        self.recv_cq.push(completions)

    # ---- what tools look at --------------------------------------------------------------------------------

    def ev_states(self) -> list[dict[str, Any]]:
        """Return one row per EV: ev, plane, state, active, sent, lost, rtt_s ...

        As `mrc_testbed.hosts.engine.qp.EngineQueuePair.ev_states`.
        """
        with self.context.lock:
            return self.engine.ev_states()

    @property
    def counters(self) -> Any:
        """Counters of the engine (`mrc_testbed.hosts.engine.connection.Counters`); live, do not change them."""
        return self.engine.counters


# Numbers of the flags, and the operations: a flag of an enumeration takes a microsecond to look at.
_SIGNALED_FLAG: Final = int(SendFlags.IBV_SEND_SIGNALED)
_SOLICITED_FLAG: Final = int(SendFlags.IBV_SEND_SOLICITED)
_INLINE_FLAG: Final = int(SendFlags.IBV_SEND_INLINE)
_FENCE_FLAG: Final = int(SendFlags.IBV_SEND_FENCE)
_OPCODES: Final = tuple(WrOpcode)


def _select_fields(record: Any, mask: Any, table: dict[str, Any]) -> Any:
    """Return the record with only the fields the mask names; raises when one of them has no value."""
    if mask is None:
        return record
    mask = flags("mask", mask, type(next(iter(table.values()))))
    values = {}
    for attribute in fields(record):
        is_selected = mask & table[attribute.name]
        values[attribute.name] = getattr(record, attribute.name) if is_selected else None
        # A hint may be none: the C walkthroughs pass NULL.
        if is_selected and values[attribute.name] is None and attribute.name != "qp_hint":
            raise VerbsError(f"{names(table[attribute.name])} is in the mask, but {attribute.name} is not set")
    return type(record)(**values)


def _merge(base: Any, changes: Any) -> Any:
    """Return `base` with the fields that `changes` has."""
    return replace(base, **{f.name: v for f in fields(changes) if (v := getattr(changes, f.name)) is not None})
