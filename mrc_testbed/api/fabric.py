"""A fabric from Python, live or in virtual time.

::

    with Fabric(planes=4, virtual=True) as f:
        t = f.transfer("h0", "h2", 4 << 20)
        t.reach(0.3)
        with f.cut("p1-t0-0", "p1-t1-1"):
            f.run_for(0.5)
        print(t.wait().rate_bps)
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

from mrc_testbed.api.backend import FabricBackend, TransferOrder
from mrc_testbed.api.records import (
    ApiError,
    EventKind,
    EvMove,
    FabricEvent,
    NamedFault,
    PacketWay,
    PathState,
    PortCount,
    RootNeededError,
    VirtualTimeError,
)
from mrc_testbed.api.transfer import FabricTransfer
from mrc_testbed.cli.link_options import LinkOptions
from mrc_testbed.console import units
from mrc_testbed.errors import UsageError
from mrc_testbed.faults import (
    BlackholeFault,
    CorruptFault,
    CutFault,
    Direction,
    FaultHolds,
    FlapFault,
    InjectedFault,
    LineFault,
    LossFault,
    OneWayFault,
    PowerOffFault,
    RebootFault,
)
from mrc_testbed.faults.places import denylist_entry
from mrc_testbed.faults.terms import chance
from mrc_testbed.hosts.engine.endpoint import TRANSPORTS
from mrc_testbed.hosts.traffic.file_transfer import chunk_for
from mrc_testbed.topologies.lab.options import LabOptions
from mrc_testbed.topologies.plan import Mode, Plan
from mrc_testbed.topologies.servers import read as read_servers

Quantity = str | float | None
"""A number, or a text with a unit as at the prompt (console/units.py)."""
HOLDS_DOWN = (CutFault, OneWayFault, FlapFault)
"""Faults that `restore` ends."""


class HeldFault:
    """A fault that holds until `undo`, which a `with` block calls at its end."""

    def __init__(self, fabric: AnyFabric, fault: InjectedFault) -> None:
        self._fabric, self.fault, self.held = fabric, fault, FaultHolds()
        self.begun_s = fabric.now
        self.ended_s: float | None = None

    def __str__(self) -> str:
        return str(self.fault)

    def __repr__(self) -> str:
        return f"<{self}, {'holds' if self.active else 'over'}>"

    @property
    def active(self) -> bool:
        """Whether it holds; a flap of so many times is over when they are."""
        fault = self.fault
        if isinstance(fault, FlapFault) and fault.times is not None:
            return self.ended_s is None and self._fabric.now < self.begun_s + fault.times * (fault.down + fault.up)
        return self.ended_s is None

    def undo(self) -> None:
        """End it. Idempotent."""
        if self.ended_s is None:
            self._fabric.end_fault(self)

    def __enter__(self) -> HeldFault:
        return self

    def __exit__(self, *exc: object) -> None:
        self.undo()


class AnyFabric:
    """Fabric, live or in virtual time.

    Live: real P4 switches, namespaces and packets; needs root. `virtual=True`: virtual time, no root.

    Up from `start` to `close`, or in a `with` block; whatever ends that block, Ctrl-C and SIGTERM included, removes
    all that was made. The same calls do the same in both forms. In virtual time nothing happens but inside `run_for`,
    `run_until` and the waiting calls of transfers, and the same program gives the same run, bit for bit.

    planes, racks, spines, hosts_per_rack   size, as of `mrc up`
    mode, rate, delay, host_rate, host_delay, fabric_rate, fabric_delay, pmtu   links, as of `mrc up`: "10M", "1.25ms"
    seed        of a virtual fabric
    target      live: "embedded" or "bmv2";  nic: "fast" or "scapy";  denylist: "off", "lossy" or "all"
    run_dir     live: run folder (default: MRC_RUN_DIR or /run/mrc-testbed)
    servers     live: file of machines that hold it together (docs/cluster.md)
    progress    live: is told each step of the start

    Raises PlanError for a size that cannot be, UnitError for a figure, UsageError for other options, FabricError for
    live ones (topologies/lab/options.py), and ServersError for a file of machines that cannot be used.
    """

    def __init__(
        self,
        planes: int = 4,
        racks: int = 2,
        spines: int = 2,
        hosts_per_rack: int = 2,
        *,
        virtual: bool = False,
        mode: str = "srv6",
        rate: Quantity = None,
        delay: Quantity = None,
        host_rate: Quantity = None,
        host_delay: Quantity = None,
        fabric_rate: Quantity = None,
        fabric_delay: Quantity = None,
        pmtu: int | None = None,
        seed: int = 0,
        target: str = "embedded",
        nic: str = "fast",
        denylist: str = "off",
        run_dir: Path | str | None = None,
        servers: Path | str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        links = LinkOptions(
            mode,
            _text(rate),
            _text(delay),
            _text(host_rate),
            _text(host_delay),
            _text(fabric_rate),
            _text(fabric_delay),
            pmtu,
        )
        self.plan: Plan = links.plan(planes, racks, spines, hosts_per_rack)
        """Names, links, EVs and paths (topologies/plan)."""
        self.virtual = virtual
        self.transfers: list[FabricTransfer] = []
        """All transfers, oldest first."""
        self._seed = seed
        self._lab = LabOptions(
            target=target, nic=nic, denylist=denylist, servers=None if servers is None else read_servers(Path(servers))
        )
        self._run_dir, self._progress = run_dir, progress
        self._backend: FabricBackend | None = None
        self._began_at = self._ended_at = 0.0
        self._events: list[FabricEvent] = []
        self._faults: list[HeldFault] = []
        self._numbers = count(1)

    # ---- life -------------------------------------------------------------------------------------------

    def start(self) -> AnyFabric:
        """Bring it up; for notebooks, where a `with` block would end with its cell. `close` removes it.

        Raises RootNeededError, VirtualTimeError, and FabricError with what the machine lacks.
        """
        if self._backend is not None:
            raise ApiError("the fabric is up already: close() it first")
        backend = self._make()
        atexit.register(self.close)
        self._backend = backend
        try:
            backend.open()
            self._began_at = backend.now()
            backend.listen(self._on)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Remove all that was created. Idempotent. Raises FabricError.

        Recorded data can still be read.
        """
        backend = self._backend
        if backend is None:
            return
        self._ended_at = self.now
        try:
            backend.close()
        finally:
            self._backend = None
            atexit.unregister(self.close)

    def __enter__(self) -> AnyFabric:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _make(self) -> FabricBackend:
        if self.virtual:
            if self._lab.servers is not None:
                raise UsageError("servers= is of live fabrics: virtual time has one process: leave one of them out")
            if not self.plan.limited:
                raise VirtualTimeError("links without a rate take no virtual time: give rate=, such as 10M")
            if self.plan.mode is Mode.STEV:
                raise VirtualTimeError(
                    "mode stev: in virtual time its EVs have another layout than the plan's, which names paths here: "
                    "take srv6, which goes the same ways"
                )
            from mrc_testbed.api.virtual import VirtualBackend

            return VirtualBackend(self.plan, self._seed)
        if os.geteuid() != 0 and self._lab.servers is None:
            raise RootNeededError(
                "a live fabric needs root (network namespaces, raw sockets): run this with sudo, or give virtual=True: "
                "virtual time needs none"
            )
        from mrc_testbed.api.live import LiveBackend
        from mrc_testbed.topologies.lab.fabric import Fabric

        return LiveBackend(Fabric(self.plan, self._lab, self._run_dir, progress=self._progress))

    @property
    def backend(self) -> FabricBackend:
        """The form that does it. Raises ApiError when the fabric is not up."""
        if self._backend is None:
            raise ApiError("the fabric is not up: `with Fabric(...) as f:`, or start() it")
        return self._backend

    # ---- time -------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since it was up, of virtual or real time."""
        return self._ended_at if self._backend is None else self._backend.now() - self._began_at

    def run_for(self, seconds: Quantity) -> None:
        """Let time pass: virtual time runs, real time is slept through.

        Raises ProcessError when a process has died.
        """
        self.backend.wait(lambda: False, units.seconds(seconds))

    def run_until(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Let time pass until `true()`; return False when `timeout` seconds pass first.

        `true` is called again after every event and each 0.1 s.

        Without `timeout` virtual time ends after an hour of it.
        """
        return self.backend.wait(condition, timeout)

    # ---- send -------------------------------------------------------------------------------------------

    def transfer(
        self,
        source: str,
        destination: str,
        data: bytes | int | str | Path = "64M",
        *,
        rate: Quantity = None,
        transport: str = "mrc",
    ) -> FabricTransfer:
        """Begin to send; it goes on by itself.

        `data`: bytes, a file (pathlib.Path), or how many random bytes (4 << 20, "4M"). `rate`: offered, bits/s
        ("40M"); None: as fast as it goes. `transport`: "mrc", or "rocev2" for the single-path baseline.

        Raises PlanError for no such host, UnitError, ApiError, and live the errors of the agents (AgentError).
        """
        sender, receiver = self.plan.host(source).name, self.plan.host(destination).name
        if sender == receiver:
            raise ApiError(f"{sender} cannot send to itself: the fabric carries nothing from a host to itself")
        if transport not in TRANSPORTS:
            raise ApiError(f"no transport {transport!r} (has: {', '.join(TRANSPORTS)})")
        rate_bps = None if rate is None else units.rate(rate)
        if rate_bps is not None and rate_bps < 1:
            raise ApiError(f"rate {rate!r}: give 1 bit/s or more, such as 500K, 40M or 1G")
        content, size = _content(data)
        chunk = chunk_for(rate_bps or self.plan.nic_rate_bps, self.plan.pmtu_bytes)
        order = TransferOrder(sender, receiver, content, size, rate_bps, chunk, transport)
        backend = self.backend
        for earlier in self.transfers:
            if earlier.ended and not earlier.closed and (earlier.source, earlier.destination) == (sender, receiver):
                backend.forget(sender, earlier.number, earlier.qpn)
                earlier.closed = True
        with backend.lock:
            number = backend.send(order)
            denied = [row["ev"] for row in backend.health(sender, receiver) if row["denied_by"]]
            transfer = FabricTransfer(self, order, number, denied)
            self.transfers.append(transfer)
        self._note(self.now, "transfer", sender, f"{sender} to {receiver}: {size:,} bytes begun")
        return transfer

    # ---- break and heal ---------------------------------------------------------------------------------

    def cut(self, a: str, b: str) -> HeldFault:
        """Cut a link: both ends lose their port. Raises PlanError listing the neighbours, as all of these."""
        return self.inject(CutFault((self._ends(a, b),)))

    def oneway(self, sender: str, receiver: str) -> HeldFault:
        """Lose what `sender` sends over a link; both ports stay up, the other direction works."""
        self.plan.link(sender, receiver)
        return self.inject(OneWayFault(((sender, receiver),)))

    def flap(self, a: str, b: str, period: Quantity = "2s", times: int | None = None) -> HeldFault:
        """Cut a link and restore it repeatedly: half of each period down.

        The fault ends when it is undone, or after `times` cuts.
        """
        half = units.seconds(period) / 2
        if not half > 0 or (times is not None and times < 1):
            raise ApiError(f"period = {period!r}, times = {times!r}: give more than 0 of both, such as 2s and 5")
        return self.inject(FlapFault((self._ends(a, b),), half, half, times))

    def restore(self, a: str, b: str) -> None:
        """End what holds a link down: cut, oneway, flap."""
        ends = set(self._ends(a, b))
        for held_fault in self.injected:
            fault = held_fault.fault
            if isinstance(fault, HOLDS_DOWN) and any(set(target) == ends for target in fault.targets):
                held_fault.undo()

    def loss(self, a: str, b: str, share: Quantity, *, sender: str | None = None) -> HeldFault:
        """Lose packets of a link: a share ("1%", 0.01), or a pattern ("0001": each fourth); ports stay up.

        `sender`: only what that end sends. A new loss there replaces the old one, as a new value of all such faults.
        """
        return self._replace(LossFault((self._ends(a, b),), direction=self._way(a, b, sender), **chance(share)))

    def corrupt(self, a: str, b: str, share: Quantity, *, sender: str | None = None) -> HeldFault:
        """Flip a bit of packets of a link, chosen as those of `loss`; the receiver finds out by the iCRC."""
        return self._replace(CorruptFault((self._ends(a, b),), direction=self._way(a, b, sender), **chance(share)))

    def degrade(
        self, a: str, b: str, *, rate: Quantity = None, delay: Quantity = None, sender: str | None = None
    ) -> HeldFault:
        """Give a link another rate (bits/s), another one-way delay (seconds), or both."""
        if rate is None and delay is None:
            raise ApiError(f"degrade {a} {b}: give rate=, delay=, or both, such as rate='1M'")
        fault = LineFault((self._ends(a, b),), direction=self._way(a, b, sender))
        if rate is not None:
            fault = replace(fault, rate=units.rate(rate))
            if not (fault.rate or 0) > 0:
                raise ApiError(f"rate {rate!r}: give more than 0 bits/s; `cut` takes a link down")
        return self._replace(fault if delay is None else replace(fault, delay=units.seconds(delay)))

    def blackhole(self, switch: str) -> HeldFault:
        """Let a switch lose every packet while its ports stay up."""
        return self.inject(BlackholeFault((self.plan.switch(switch).name,)))

    def power_off(self, node: str) -> HeldFault:
        """Take the power of a switch or a host: its state and QPs are lost, its ports go down."""
        return self.inject(PowerOffFault((self._node(node),)))

    def power_on(self, node: str) -> None:
        """Give a switch or a host its power again; it comes up empty, and live the controller fills a switch."""
        name = self._node(node)
        for held_fault in self.injected:
            if isinstance(held_fault.fault, PowerOffFault) and name in held_fault.fault.targets:
                held_fault.undo()

    def reboot(self, node: str, downtime: Quantity = None) -> None:
        """Take a node's power for `downtime` seconds (None: 1 s live, 2 s in virtual time) and give it back.

        Live it returns when the node is on again.
        """
        fault = RebootFault((self._node(node),), None if downtime is None else units.seconds(downtime))
        held_fault = HeldFault(self, fault)
        fault.begin(self.backend.faults, held_fault.held, next(self._numbers))
        self._note(held_fault.begun_s, "fault", fault.targets[0], str(fault))

    def _node(self, name: str) -> str:
        """`name` when it is a switch or a host. Raises PlanError."""
        self.plan.ports(name)
        return name

    def inject(self, fault: InjectedFault) -> HeldFault:
        """Inject any kind of fault (faults/kinds.py).

        Raises FaultError, FabricError for what this form cannot do.
        """
        held_fault, target = HeldFault(self, fault), self.backend.faults
        try:
            fault.begin(target, held_fault.held, next(self._numbers))
        except BaseException:
            target.undo(held_fault.held)  # what was done of it
            raise
        self._faults.append(held_fault)
        self._note(held_fault.begun_s, "fault", fault.places_text, str(fault))
        return held_fault

    def heal(self) -> None:
        """End every fault: links up, switches powered, rates, delays and losses as planned."""
        for held_fault in reversed(self.injected):
            held_fault.undo()
        self.backend.faults.heal()

    def deny(self, *location: str) -> None:
        """Take a switch, or the link between two nodes, off the paths of all hosts until `allow`.

        `heal` does not end it.
        """
        self._change_denylist("deny", denylist_entry(self.plan, *location))

    def allow(self, *location: str) -> None:
        """Take a place off the denylist again; without one, everything."""
        if location:
            self._change_denylist("allow", denylist_entry(self.plan, *location))
        else:
            self._change_denylist("clear", {"name": "everything"})

    def _change_denylist(self, op: Literal["deny", "allow", "clear"], entry: dict[str, str]) -> None:
        self.backend.change_denylist(op, entry)
        self._note(self.now, "fault", entry["name"], f"{'denied' if op == 'deny' else 'allowed'} {entry['name']}")

    @property
    def injected(self) -> list[HeldFault]:
        """Faults that hold now, oldest first."""
        return [fault for fault in self._faults if fault.active]

    def end_fault(self, held_fault: HeldFault) -> None:
        """End a fault of `injected`; HeldFault.undo is the same."""
        if self._backend is not None:
            held_fault.fault.end(self._backend.faults, held_fault.held)
        held_fault.ended_s = self.now
        self._note(held_fault.ended_s, "fault", held_fault.fault.places_text, f"over: {held_fault.fault}")

    def _replace(self, fault: LossFault | LineFault) -> HeldFault:
        """Begin a fault in place of one of its kind at its place."""
        for held_fault in self.injected:
            old_fault = held_fault.fault
            if type(old_fault) is type(fault) and old_fault.targets == fault.targets and _same_values(old_fault, fault):
                held_fault.undo()
        return self.inject(fault)

    def _ends(self, a: str, b: str) -> tuple[str, str]:
        link = self.plan.link(a, b)
        return link.lower.node, link.upper.node

    def _way(self, a: str, b: str, sender: str | None) -> Direction:
        lower, upper = self._ends(a, b)
        if sender not in (None, lower, upper):
            raise ApiError(f"sender = {sender!r}: give an end of the link, {lower} or {upper}, or none for both ways")
        return "both" if sender is None else "up" if sender == lower else "down"

    # ---- look -------------------------------------------------------------------------------------------

    def evs(self, source: str, destination: str) -> list[PathState]:
        """Every path between two hosts: uSID address, state, packets and losses. Raises PlanError."""
        sender, receiver = self.plan.host(source).name, self.plan.host(destination).name
        if sender == receiver:
            raise ApiError(f"{sender} to itself: give two hosts")
        return [PathState.of_health(row) for row in self.backend.health(sender, receiver)]

    def trace(self, source: str, destination: str, ev: int) -> PacketWay:
        """The way of one packet of an EV, with the switches and links as they are now; nothing is sent.

        Live each switch's own program and tables decide (`mrc trace`); in virtual time its model does. Raises PlanError
        for an EV that is none of this pair.
        """
        sender, receiver = self.plan.host(source), self.plan.host(destination)
        planes = dict(self.plan.ev_planes(sender, receiver))
        plane = planes.get(ev) if self.plan.mode.ev_is_path else None
        if plane is None:
            if not self.plan.mode.ev_is_path:
                raise ApiError(
                    f"in mode {self.plan.mode} an EV names no path: trace() needs one that does, such as srv6"
                )
            examples = ", ".join(f"{candidate:#06x}" for candidate in list(planes)[:16])
            raise ApiError(f"EV {ev:#06x} is none of {sender.name} to {receiver.name} (has: {examples})")
        return self.backend.trace(sender.name, receiver.name, ev, plane)

    def counters(self, switch: str | None = None) -> list[PortCount]:
        """Packets by switch port: forwarded, marked, trimmed, dropped and why; of all switches or one."""
        name = None if switch is None else self.plan.switch(switch).name
        return [counter for counter in self.backend.counters() if name in (None, counter.switch)]

    def findings(self) -> list[NamedFault]:
        """Faults as the controller names them, with who saw them and how soon (live).

        Raises VirtualTimeError in virtual time, where no controller runs.
        """
        return self.backend.findings(self._began_at)

    def events(self, *kinds: EventKind) -> list[FabricEvent]:
        """Return the events in order of time: all, or those of some kinds."""
        return sorted(
            (event for event in self._events if not kinds or event.kind in kinds), key=lambda event: event.at_s
        )

    # ---- told by the backend ----------------------------------------------------------------------------

    def _note(self, at_s: float, kind: EventKind, location: str, text: str) -> None:
        self._events.append(FabricEvent(at_s, kind, location, text))

    def _on(self, host: str, event: dict[str, Any]) -> None:
        """An event of a host's agent or engine, or of the controller (`host` empty)."""
        at_s = (event.get("ended_at") or event["t"]) - self._began_at  # a transfer is told of when it has been checked
        match event["event"]:
            case "progress":
                for transfer in self._transfers_of(host, event["transfer"]):
                    transfer.on_progress(event, at_s)
            case "transfer":
                for transfer in self._transfers_of(host, event["transfer"]):
                    transfer.on_transfer(event, at_s)
                    if transfer.ended:
                        outcome = event["error"] or f"arrived, {units.show_rate(event['goodput_bps'])}"
                        self._note(at_s, "transfer", host, f"{host} to {transfer.destination}: {outcome}")
            case "ev":
                move = EvMove(at_s, event["ev"], event["plane"], event["from"], event["to"], event["cause"])
                for transfer in self.transfers:
                    if transfer.source == host and transfer.has_qp(event["qpn"]):
                        transfer.ev_moves.append(move)
                text = f"{host} to {event['peer']}: EV {move.ev:#06x} {move.new_state}: {move.cause}"
                self._note(at_s, "ev", host, text)
            case "plane":
                for transfer in self.transfers:
                    if transfer.source == host:
                        transfer.on_plane(event["peer"], event["plane"], event["up"], at_s)
                port_owner = event["peer"] or host
                state = "up" if event["up"] else "down"
                self._note(at_s, "plane", host, f"{host}: plane {event['plane']} at {port_owner} is {state}")
            case "qp_error":
                self._note(at_s, "qp_error", host, f"{host} to {event['peer']}: {event['detail']}")
            case "fault" if event["change"] != "updated":
                fault = event["fault"]
                text = f"controller: {fault['text']} ({event['change']})"
                self._note(at_s, "finding", fault["location"], text)

    def _transfers_of(self, host: str, number: int) -> list[FabricTransfer]:
        return [transfer for transfer in self.transfers if transfer.source == host and transfer.number == number]


def _text(value: Quantity) -> str | None:
    return None if value is None else str(value)


def _content(data: bytes | int | str | Path) -> tuple[Path | bytes | int, int]:
    """(content of an order, its size in bytes). Raises ApiError, UnitError."""
    content: Path | bytes | int
    if isinstance(data, Path):
        content = data.expanduser().absolute()
        if not content.is_file():
            raise ApiError(f"{data} is no file: give one, bytes, or a size such as 16M")
        size = content.stat().st_size
    elif isinstance(data, str | int) and not isinstance(data, bool):
        content = size = units.size(data)
    elif isinstance(data, bytes | bytearray | memoryview):
        content = bytes(data)
        size = len(content)
    else:
        raise ApiError(f"data = {type(data).__name__}: give bytes, a pathlib.Path, or a size such as 16M")
    if not 0 < size < 2**40:
        raise ApiError(f"a transfer of {size:,} bytes: give at least one, and less than 1 TiB")
    return content, size


def _same_values(replaced_fault: InjectedFault, fault: LossFault | LineFault) -> bool:
    """Whether a new fault is of the same direction, and sets all that the old one did."""
    if replaced_fault.values["direction"] != fault.direction:
        return False
    if isinstance(fault, LossFault):
        return True
    return all(replaced_fault.values[key] is None or fault.values[key] is not None for key in ("rate", "delay"))
