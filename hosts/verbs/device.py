"""The device: what `open_device` gives, and the maker of everything else.

    device = Device(driver)                                  # or VirtualWire().open("a"), live.open_device(...)
    mr = device.reg_mr(bytearray(1 << 20))
    cq = device.create_cq(256)
    qp = device.create_qp(QpInitAttr(send_cq=cq))
    ...                                                      # modify to INIT, RTR, RTS (hosts.verbs.exchange helps)
    qp.post_send(SendWR(wr_id=1, sg_list=[mr.sge()], remote_addr=..., rkey=...))
    [wc] = cq.wait(timeout_s=1.0)

Calls are safe from any thread (one lock per device). Nothing happens behind the caller's back unless the driver has a
thread of its own: the waiting calls (`cq.wait`, `channel.get_event`, `wait_for`, `process`) do the work.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.events import Event
from mrc_testbed.hosts.verbs.attributes import QpCap, QpInitAttr, check_init
from mrc_testbed.hosts.verbs.checks import choice, number, record
from mrc_testbed.hosts.verbs.context import AsyncEvent
from mrc_testbed.hosts.verbs.control import Controller
from mrc_testbed.hosts.verbs.cq import MAX_CQE, CompletionChannel, CompletionQueue
from mrc_testbed.hosts.verbs.driver import Driver
from mrc_testbed.hosts.verbs.enums import UNIT_MPR, AccessFlags, DeviceCap, MrcProtocolVersion, PortState, QpType
from mrc_testbed.hosts.verbs.errors import VerbsError
from mrc_testbed.hosts.verbs.hardware import Hardware
from mrc_testbed.hosts.verbs.hints import MAX_HINTS, QpHint, QpHintAttr
from mrc_testbed.hosts.verbs.memory import MemoryRegion, ProtectionDomain, RegionTable
from mrc_testbed.hosts.verbs.qp import QueuePair


@dataclass(frozen=True)
class DeviceAttr:
    """`mrc_query_device`. MPR in units of 128 packets; sizes in entries and bytes."""

    name: str
    supported: bool
    """Whether the device speaks MRC; the second result of the call in C."""
    mrc_protocol_version: MrcProtocolVersion
    """Versions of the wire protocol; those of the API are told by `query_version`."""
    max_wimm: int
    max_wimm_dest: int
    max_mpr: int
    mpr_resolution: int
    max_qp_hint: int
    cap: DeviceCap
    phys_port_cnt: int
    max_mtu: int
    """Payload of a full packet, bytes."""
    max_qp: int
    max_qp_wr: int
    max_sge: int
    max_cqe: int
    qp_types: tuple[QpType, ...]


@dataclass(frozen=True)
class PortAttr:
    """`ibv_query_port`. `port_num` counts from 1; its plane is port_num - 1."""

    port_num: int
    state: PortState
    gid: str
    active_mtu: int


class Device:
    """One open context of a device, on top of one driver.

    Also a context manager: leaving it closes the context.

    The first one of a driver owns the driver: closing it closes all others too, and the driver.
    """

    def __init__(self, driver: Driver, hardware: Hardware | None = None, *, privileged: bool = True) -> None:
        self._owns_driver = hardware is None
        self.hardware = Hardware(driver) if hardware is None else hardware
        """Part of the device that `open_context` shares."""
        self.is_privileged = privileged
        """Whether this context may open the controller (CAP_NET_ADMIN in C)."""
        context = self.context = self.hardware.open_context(self.close)
        self.driver, self.config, self.lock = driver, context.config, context.lock
        self._regions = RegionTable(context)
        self.default_pd = ProtectionDomain(self._regions)
        self._controller: Controller | None = None

    def open_context(self, *, privileged: bool = True) -> Device:
        """Open the device once more, for another program: with QPs, CQs, regions and events of its own.

        Profiles are the device's, so common. Closing it destroys what was made in it, and nothing else.
        """
        return Device(self.driver, self.hardware, privileged=privileged)

    @property
    def controller(self) -> Controller:
        """The device's controller, opened at first use; it stays with this context until `close` of either.

        Raises VerbsError: EBUSY while another context has it, EPERM in a context without the privilege.
        """
        if not self.is_privileged:
            raise VerbsError(f"{self.name}: the controller needs a privileged context (CAP_NET_ADMIN)", errno.EPERM)
        with self.lock:
            if self._controller is None or self._controller.closed:
                self.context.require_open()
                self._controller = self.hardware.open_controller(self.context)
            return self._controller

    @property
    def observers(self) -> list[Callable[[Event], None]]:
        """Observers of the engine's events in all contexts (Hardware.observers)."""
        return self.hardware.observers

    @property
    def name(self) -> str:
        """Name of the host."""
        return self.context.name

    # ---- queries ------------------------------------------------------------------------------------------

    def query_device(self) -> DeviceAttr:
        """Limits and capabilities.

        One call for `mrc_query_device` and its `_ex`, whose attributes are the same.
        """
        cap = DeviceCap.MRC_DEVICE_CAP_DYNAMIC_MPR
        if self.config.acks.trim_nack:
            cap |= DeviceCap.MRC_DEVICE_CAP_TRIM_NACK
        return DeviceAttr(
            name=self.name,
            supported=True,
            mrc_protocol_version=MrcProtocolVersion.MRC_PROTOCOL_VERSION_1,
            max_wimm=32767,
            max_wimm_dest=32767,
            max_mpr=255,
            mpr_resolution=1,
            max_qp_hint=MAX_HINTS,
            cap=cap,
            phys_port_cnt=self.driver.planes,
            max_mtu=self.config.qp.pmtu_bytes,
            max_qp=self.driver.max_qps,
            max_qp_wr=1 << 16,
            max_sge=16,
            max_cqe=MAX_CQE,
            qp_types=tuple(QpType),
        )

    def query_port(self, port_num: int) -> PortAttr:
        """Return the state of a port, 1 to phys_port_cnt."""
        plane = self.plane_of(port_num)
        state = PortState.IBV_PORT_ACTIVE if self.driver.port_up(plane) else PortState.IBV_PORT_DOWN
        return PortAttr(port_num, state, self.driver.gids()[plane], self.config.qp.pmtu_bytes)

    def query_gid(self, port_num: int = 1) -> str:
        """Return the address of a port, for a peer's address vector."""
        return self.driver.gids()[self.plane_of(port_num)]

    def plane_of(self, port_num: int) -> int:
        """Plane of a port number. Raises VerbsError for one that does not exist."""
        return self.context.plane_of(port_num)

    # ---- making things ------------------------------------------------------------------------------------

    def alloc_pd(self) -> ProtectionDomain:
        """Allocate a protection domain; most programs do with `default_pd`."""
        return ProtectionDomain(self._regions)

    def reg_mr(
        self,
        buffer: Any,
        access: int = AccessFlags.IBV_ACCESS_REMOTE_WRITE,
        *,
        pd: ProtectionDomain | None = None,
        addr: int | None = None,
    ) -> MemoryRegion:
        """Register a buffer (bytearray, mmap, array; bytes without REMOTE_WRITE), at address `addr` if given.

        `addr` is a virtual address.

        The buffer stays the caller's: writes of peers appear in it. Raises LocalError when it cannot be registered.
        """
        return self._regions.register(pd or self.default_pd, buffer, access, addr)

    def dereg_mr(self, mr: MemoryRegion) -> None:
        """See MemoryRegion.dereg."""
        self._regions.deregister(mr)

    def region(self, lkey: int) -> MemoryRegion | None:
        """Return the region of that key, or None."""
        return self._regions.find(lkey)

    def create_comp_channel(self) -> CompletionChannel:
        """Create a completion channel, for programs that wait with select or epoll."""
        return CompletionChannel(self.context)

    def create_cq(self, cqe: int, cq_context: Any = None, channel: CompletionChannel | None = None) -> CompletionQueue:
        """Create a completion queue with room for `cqe` entries (1 to 2**20)."""
        number("create_cq: cqe", cqe, 1, MAX_CQE)
        with self.lock:
            self.context.require_open()
            return CompletionQueue(self.context, cqe, cq_context, channel)

    def create_qp(self, init: QpInitAttr) -> QueuePair:
        """Create a queue pair in RESET, with `init.cap` as given, within the device's limits."""
        limits = self.query_device()
        cap = record("create_qp: cap", record("create_qp", init, QpInitAttr).cap, QpCap)
        choice("create_qp: qp_type", init.qp_type, QpType)
        check_init(init, limits.mrc_protocol_version)
        for name, high in (
            ("max_send_wr", limits.max_qp_wr),
            ("max_recv_wr", limits.max_qp_wr),
            ("max_send_sge", limits.max_sge),
            ("max_recv_sge", limits.max_sge),
            ("max_inline_data", 1 << 20),
        ):
            number(f"create_qp: {name}", getattr(cap, name), 0, high)
        with self.lock:
            self.context.require_open()
            if len(self.hardware.qps) >= limits.max_qp:
                raise VerbsError(f"create_qp: the device has {limits.max_qp} QPs, its limit", errno.ENOMEM)
            for cq in (init.send_cq, init.send_cq if init.recv_cq is None else init.recv_cq):
                if not isinstance(cq, CompletionQueue) or not cq.belongs_to(self.context):
                    raise VerbsError("create_qp: the CQ is not one of this context of the device")
            if init.pd is not None and record("create_qp: pd", init.pd, ProtectionDomain).regions is not self._regions:
                raise VerbsError("create_qp: the protection domain is not one of this context of the device")
            qp = QueuePair(self.context, self.hardware.profiles, self.default_pd, init, self._forget_qp)
            self.hardware.qps[qp.qp_num] = qp
            return qp

    def _forget_qp(self, qp: QueuePair) -> None:
        del self.hardware.qps[qp.qp_num]

    def create_qp_hint(self, attr: QpHintAttr) -> QpHint:
        """Create a hint of expected traffic; what is not given in it is 1, or empty."""
        return QpHint(self.context, attr)

    def qp(self, qp_num: int) -> QueuePair:
        """Return the QP of that number in this context; raises VerbsError (ENOENT) for an unknown one."""
        qp = self.hardware.qps.get(qp_num)
        if qp is None or qp.context is not self.context:
            known = ", ".join(f"{own_qp.qp_num:#x}" for own_qp in self.qps) or "none"
            raise VerbsError(f"no QP {qp_num:#x} (has: {known})", errno.ENOENT)
        return qp

    @property
    def qps(self) -> list[QueuePair]:
        """QPs of this context that are not destroyed."""
        return [qp for qp in list(self.hardware.qps.values()) if qp.context is self.context]

    # ---- working and waiting --------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the time of the driver's clock, seconds."""
        return self.driver.now()

    def process(self, timeout_s: float = 0.0) -> None:
        """Do what there is to do: receive, timers, send; wait up to `timeout_s` for something to come up."""
        self.driver.step(self.driver.now() + timeout_s)

    def run(self, seconds: float) -> None:
        """Work on the device for so long."""
        deadline = self.driver.now() + seconds
        while self.driver.step(deadline):
            pass

    def wait_for(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Work until `condition()`; False when `timeout_s` is over first (None: no limit)."""
        return self.context.wait_for(condition, timeout_s)

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when `process` is due, if the driver has one.

        `next_timer` has to be watched too.
        """
        return self.driver.fileno()

    def next_timer(self) -> float | None:
        """Return the latest time at which `process` has to be called; time of `now()`."""
        with self.lock:
            return self.driver.endpoint.next_timer()

    # ---- events -------------------------------------------------------------------------------------------

    def get_async_event(self, timeout_s: float | None = 0.0) -> AsyncEvent | None:
        """Return the next asynchronous event of this context; None when `timeout_s` is over.

        `timeout_s` None: wait without limit. The caller acknowledges it before its QP or CQ can be destroyed.
        """
        return self.context.next_async(timeout_s)

    def ack_async_event(self, event: AsyncEvent) -> None:
        """Acknowledge an event that `get_async_event` gave (`mrc_ack_async_event`)."""
        self.context.ack_async(record("ack_async_event", event, AsyncEvent))

    # ---- the end ------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Destroy what was made in this context. Idempotent.

        The first context of a driver closes all others too, then the driver. One object whose end raises an exception
        keeps no other from its end.
        """
        with self.lock, ExitStack() as steps:  # the last step first
            steps.callback(self.hardware.close_context, self.context)
            for mr in self._regions:
                steps.callback(mr.dereg)
            steps.callback(self.context.close)
            for qp in self.qps:
                steps.callback(qp.close)
        if self._owns_driver:
            self.hardware.close()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["UNIT_MPR", "AsyncEvent", "Device", "DeviceAttr", "LocalError", "PortAttr"]
