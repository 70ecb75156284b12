"""Faults put into a running fabric by name, each with its undo.

Cuts, losses, delays, black holes, flaps, reboots.

::

    hole = fabric.inject.blackhole("p1-t1-0")      # its ports stay up, it answers P4Runtime, and forwards nothing
    fabric.inject.loss("p0-t0-0", "p0-t1-1", 0.01)
    fabric.inject.flap("h0", "p2-t0-0", period_s=2, times=5)
    print(*map(str, fabric.inject.active))
    fabric.inject.undo(hole)
    fabric.inject.heal()                           # everything, also what was cut by hand

Faults may overlap: an interface comes up when nothing holds it down any more, and a rate, delay or loss goes back to
that of the latest fault which still sets it, or to the plan's. A fault that fails half-way is undone and not listed.
Calls may come from any thread. Times are CLOCK_MONOTONIC seconds, taken just before the fault.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from itertools import count
from typing import Any, Protocol

from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab import traffic_control
from mrc_testbed.topologies.lab.traffic_control import Setting, TrafficControl, TrafficError
from mrc_testbed.topologies.plan import Link, Plan, PlanError
from mrc_testbed.topologies.plan.link_speeds import in_units

LOG_MAX = 10_000
FLAP_TIMES_MAX = 100_000
NicRate = tuple[str, int, float]
"""(host, plane, bits/s) of what a NIC sends."""
Key = tuple[str, str, "int | None", "str | None"]


class FabricControl(Protocol):
    """Operations of a fabric that faults are made with; mrc_testbed.topologies.lab.fabric.Fabric is one."""

    @property
    def plan(self) -> Plan: ...

    @property
    def traffic(self) -> TrafficControl: ...

    @property
    def nodes_off(self) -> Collection[str]:
        """Switches and hosts without power."""
        ...

    @property
    def cut(self) -> Set[str]:
        """Interfaces that have been set down."""
        ...

    def power(self, node: str, on: bool) -> Any:
        """Take the power of a switch or a host, or give it back."""

    def set_interfaces(self, interfaces: tuple[str, ...], is_up: bool) -> float:
        """Set interfaces up or down; when that was, seconds."""
        ...

    def set_nic_rate(self, host: str, plane: int, rate_bps: float | None) -> None:
        """Pace what a host sends on a plane; None: no limit."""


class InjectError(FabricError):
    """A fault that makes no sense here; the message says what would."""


@dataclass(eq=False)
class Injection:
    """One fault. `kind` is the name of the method that made it."""

    number: int
    kind: str
    location: str
    """A link as `link` names it, a switch or a host."""
    detail: str
    sender: str | None = None
    """Sender of a fault that takes one direction of a link."""
    began_at: float = 0.0
    ended_at: float | None = None
    error: str | None = None
    """Cause why a fault in the background ended too soon."""
    settings: tuple[Setting, ...] = ()
    interfaces: tuple[str, ...] = ()
    """Interfaces that the fault holds down."""
    nics: tuple[NicRate, ...] = ()
    node: str | None = None
    """Switch or host that the fault holds without power."""
    line: Mapping[str, Any] | None = None
    """The fault as a state file says it (experiments/language/saved_state.py); None: it ends by itself."""
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    def __str__(self) -> str:
        return f"{self.number:>3}  {self.kind:<12} {self.location:<22} {self.detail}".rstrip()

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "kind": self.kind,
            "where": self.location,
            "detail": self.detail,
            "sender": self.sender,
            "at": self.began_at,
            "ended_at": self.ended_at,
            "error": self.error,
        }


class Injector:
    """The faults of one fabric."""

    def __init__(self, fabric: FabricControl) -> None:
        self._fabric = fabric
        self._lock = threading.RLock()
        self._active: dict[int, Injection] = {}
        self._numbers = count(1)
        self.log: deque[tuple[float, str, Injection]] = deque(maxlen=LOG_MAX)
        """(time, "begin" or "end", fault), oldest first."""

    @property
    def active(self) -> list[Injection]:
        """Active faults, oldest first; cuts restored manually are excluded."""
        with self._lock:
            for injection in list(self._active.values()):
                by_hand = injection.kind in ("cut", "cut_port") and self._fabric.cut.isdisjoint(injection.interfaces)
                if by_hand or (injection.kind == "power" and injection.location not in self._fabric.nodes_off):
                    self._end(injection, time.monotonic())
            return list(self._active.values())

    # ---- links ------------------------------------------------------------------------------------------

    def cut(self, a: str, b: str) -> Injection:
        """Both ends of a link go down."""
        link = self._link(a, b)
        ports = (link.lower.interface, link.upper.interface)
        return self._begin(Injection(0, "cut", link.name, "", interfaces=ports, line={"cut": link.name}))

    def cut_port(self, node: str, neighbour: str) -> Injection:
        """The end at `node` is set down; the other one loses its carrier."""
        link = self._link(node, neighbour)
        return self._begin(Injection(0, "cut_port", link.name, f"at {node}", interfaces=(link.end(node).interface,)))

    def one_way_cut(self, sender: str, receiver: str) -> Injection:
        """Lose everything that `sender` sends to `receiver`; ports stay up, the other direction works."""
        link = self._link(sender, receiver)
        settings = self._impairment(link, sender, "loss", 1.0, "", 0)
        line = {"one_way": f"{sender} {receiver}"}
        return self._begin(
            Injection(0, "one_way_cut", link.name, f"from {sender}", sender, settings=settings, line=line)
        )

    def restore(self, a: str, b: str) -> list[Injection]:
        """End what holds a link down and bring both ends up; return what ended.

        Held down by: cut, cut_port, one_way_cut, flap.
        """
        link = self._link(a, b)
        kinds = ("cut", "cut_port", "one_way_cut", "flap")
        with self._lock:
            ended_injections = [
                injection
                for injection in self._active.values()
                if injection.location == link.name and injection.kind in kinds
            ]
            for injection in ended_injections:
                self.undo(injection)
            self._raise((link.lower.interface, link.upper.interface))
        return ended_injections

    def loss(
        self, a: str, b: str, probability: float = 0.0, *, pattern: str = "", sender: str | None = None, seed: int = 0
    ) -> Injection:
        """Lose packets of both directions or one, by chance (0 to 1) or by a pattern ("0001": each fourth)."""
        return self._impair("loss", a, b, probability, pattern, sender, seed)

    def corrupt(
        self, a: str, b: str, probability: float = 0.0, *, pattern: str = "", sender: str | None = None, seed: int = 0
    ) -> Injection:
        """Flip a bit of packets, chosen as those of `loss` are."""
        return self._impair("corrupt", a, b, probability, pattern, sender, seed)

    def delay(self, a: str, b: str, delay_s: float, *, sender: str | None = None) -> Injection:
        """One-way delay, seconds, in place of the plan's; of both directions or one."""
        link = self._link(a, b)
        directions = [
            traffic_control.directions_of(self._fabric.plan, link, end) for end in self._senders(link, sender)
        ]
        settings = tuple(
            Setting(interface, "delay-us", traffic_control.delay_us(delay_s), direction=way)
            for interface, way in directions
        )
        detail = f"{delay_s * 1e3:.4g} ms{_from_sender(sender)}"
        line = {"line": {"link": link.name, "delay": delay_s, **_direction(link, sender)}}
        return self._begin(Injection(0, "delay", link.name, detail, sender, settings=settings, line=line))

    def rate(self, a: str, b: str, rate_bps: float, *, sender: str | None = None) -> Injection:
        """Rate in place of the plan's, of both directions or one; what a host sends is paced by its agent.

        Where the plan has no rate the queues get the depths that it would have had with this one.
        """
        link, plan = self._link(a, b), self._fabric.plan
        bits, hosts = traffic_control.whole_number("rate_bps", rate_bps), {host.name for host in plan.hosts}
        settings: list[Setting] = []
        nics: list[NicRate] = []
        for end in (link.end(name) for name in self._senders(link, sender)):
            if end.node in hosts:
                nics.append((end.node, link.plane, float(bits)))
                continue
            settings.append(Setting(end.interface, "rate-bps", bits))
            if plan.thresholds(end.node, end.number) is None:
                limits = plan.thresholds_at(rate_bps, last_hop=link.is_nic)
                settings.append(Setting(end.interface, "max-packets", limits.data_limit, traffic_control.DATA))
                settings.append(Setting(end.interface, "max-packets", limits.control_depth, traffic_control.CONTROL))
        note = self._fabric.traffic.rate_note(rate_bps) if settings else ""
        detail = f"{in_units(rate_bps)}b/s{_from_sender(sender)}" + (f" ({note})" if note else "")
        line = {"line": {"link": link.name, "rate": bits, **_direction(link, sender)}}
        injection = Injection(
            0, "rate", link.name, detail, sender, settings=tuple(settings), nics=tuple(nics), line=line
        )
        return self._begin(injection)

    def queue(
        self, interface: str, *, priority: int | None = None, rate_bps: float | None = None, packets: int | None = None
    ) -> Injection:
        """Rate and depth of a queue of a switch port in place of the plan's; no `priority`: rate of the port."""
        name = self._fabric.traffic.port(interface).interface
        settings: list[Setting] = []
        line: dict[str, Any] = {"port": name} | ({} if priority is None else {"priority": priority})
        if rate_bps is not None:
            bits = traffic_control.whole_number("rate_bps", rate_bps)
            settings.append(Setting(name, "rate-bps", bits, priority))
            line["rate"] = bits
        if packets is not None:
            settings.append(Setting(name, "max-packets", packets, priority))
            line["packets"] = packets
        figures = [] if rate_bps is None else [f"{in_units(rate_bps)}b/s"]
        figures += [] if packets is None else [f"{packets} packets"]
        detail = ("port" if priority is None else f"priority {priority}") + f": {', '.join(figures)}"
        return self._begin(Injection(0, "queue", name, detail, settings=tuple(settings), line=line))

    def flap(self, a: str, b: str, period_s: float = 2.0, times: int | None = None) -> Injection:
        """Cut a link and restore it, again and again in the background: half of each period down, half up.

        `times` periods, or until undone.
        """
        link = self._link(a, b)
        if not isinstance(period_s, (int, float)) or not 0.01 <= period_s <= 3600:
            raise InjectError(f"period_s = {period_s!r}: give 0.01 to 3600 seconds")
        if times is not None and (not isinstance(times, int) or not 1 <= times <= FLAP_TIMES_MAX):
            raise InjectError(f"times = {times!r}: give 1 to {FLAP_TIMES_MAX}, or None for until undone")
        detail = f"every {period_s:g} s" + (f", {times} times" if times else "")
        half_s = period_s / 2
        line = {"flap": {"link": link.name, "down": half_s, "up": half_s, "times": times}}
        injection = Injection(0, "flap", link.name, detail, line=line)
        ends = (link.lower.interface, link.upper.interface)
        injection.thread = threading.Thread(target=self._flap, args=(injection, ends, period_s / 2, times), daemon=True)
        self._begin(injection)
        injection.thread.start()
        return injection

    # ---- switches ---------------------------------------------------------------------------------------

    def blackhole(self, switch: str) -> Injection:
        """Everything that reaches a switch is lost while its ports stay up and P4Runtime and gNMI answer."""
        ports = self._fabric.plan.ports(self._switch(switch))
        settings = self._fabric.traffic.black_hole(port.interface for port in ports)
        line = {"blackhole": switch}
        return self._begin(Injection(0, "blackhole", switch, "ports stay up", settings=tuple(settings), line=line))

    # ---- power ------------------------------------------------------------------------------------------

    def power(self, node: str, on: bool = False) -> Injection | None:
        """Take a node's power (state lost, ports down), or give it back, which ends the fault; then None."""
        _check_name(node, self._fabric.plan.node_names, "node")
        if not on:
            return self._begin(Injection(0, "power", node, "off", node=node, line={"power_off": node}))
        with self._lock:
            for injection in [injection for injection in self._active.values() if injection.node == node]:
                self.undo(injection)
            self._power(node, True)
        return None

    def reboot(self, node: str, off_s: float = 0.0) -> Injection:
        """Off and on again, empty, when it returns; `began_at` is when it went, `ended_at` when it was back."""
        if not isinstance(off_s, (int, float)) or not 0 <= off_s <= 3600:
            raise InjectError(f"off_s = {off_s!r}: give 0 to 3600 seconds")
        _check_name(node, self._fabric.plan.node_names, "node")
        injection = self._begin(Injection(0, "reboot", node, f"{off_s:g} s off", node=node))
        try:
            injection.stop.wait(off_s)
        finally:
            self.undo(injection)
        return injection

    # ---- undo -------------------------------------------------------------------------------------------

    def undo(self, fault: Injection | int) -> None:
        """End one fault; nothing when it has ended already. Raises InjectError for a number that never was."""
        number = fault.number if isinstance(fault, Injection) else fault
        with self._lock:
            injection = self._active.get(number)
            if injection is None:
                if not any(past.number == number for _, _, past in self.log):
                    known = ", ".join(str(n) for n in self._active) or "none is active"
                    raise InjectError(f"no fault {number!r} (active: {known})")
                return
            injection.stop.set()
            del self._active[number]
            try:
                self._withdraw(injection)
            except BaseException:
                self._active[number] = injection  # it still holds, at least in part: heal can try again
                raise
            self._end(injection, time.monotonic())
        if injection.thread is not None and injection.thread is not threading.current_thread():
            injection.thread.join(timeout=5.0)

    def heal(self) -> list[Injection]:
        """Undo every fault, give all nodes power, bring all links up, reset traffic settings to the plan's.

        Returns the faults that ended. What fails does not keep the rest from being done; raises FabricError then.
        """
        errors, fabric = [], self._fabric
        with self._lock:
            ended_injections = self.active
            steps: list[Callable[[], Any]] = [partial(self.undo, injection) for injection in reversed(ended_injections)]
            steps += [partial(self._power, name, True) for name in fabric.nodes_off]
            steps += [lambda: self._raise(tuple(fabric.cut)), fabric.traffic.reset]
            for step in steps:
                try:
                    step()
                except (FabricError, PlanError) as error:
                    errors.append(str(error))
        if errors:
            raise FabricError("not all is healed: " + "; ".join(dict.fromkeys(errors)))
        return ended_injections

    def stop(self) -> None:
        """End what runs in the background and leave everything as it is: the fabric is going."""
        with self._lock:
            running = list(self._active.values())
            for injection in running:
                injection.stop.set()
        for injection in running:
            if injection.thread is not None:
                injection.thread.join(timeout=5.0)

    def set_again(self, switches: Collection[str]) -> None:
        """Give switches that were started again the settings of all active faults. Raises FabricError."""
        traffic = self._fabric.traffic
        with self._lock:
            for fault in self._active.values():
                if settings := [s for s in fault.settings if traffic.port(s.interface).node in switches]:
                    traffic.apply(settings)

    def pace_again(self, host: str) -> None:
        """Give an agent that was started again the rates of its NIC. Raises FabricError."""
        with self._lock:
            for injection in self._active.values():
                for name, plane, rate_bps in injection.nics:
                    if name == host:
                        self._fabric.set_nic_rate(name, plane, rate_bps)

    # ---- inside -----------------------------------------------------------------------------------------

    def _begin(self, injection: Injection) -> Injection:
        """Give it a number, list it, do it; when it fails, undo what was done and list it no more."""
        with self._lock:
            injection.number, injection.began_at = next(self._numbers), time.monotonic()
            self._active[injection.number] = injection
            try:
                if injection.node is not None:
                    self._power(injection.node, False)
                if injection.interfaces:
                    injection.began_at = self._fabric.set_interfaces(injection.interfaces, False)
                if injection.settings:
                    self._fabric.traffic.apply(injection.settings)
                for host, plane, rate_bps in injection.nics:
                    self._fabric.set_nic_rate(host, plane, rate_bps)
            except BaseException:
                del self._active[injection.number]
                with contextlib.suppress(FabricError):
                    self._withdraw(injection)
                raise
            self.log.append((injection.began_at, "begin", injection))
        return injection

    def _end(self, injection: Injection, time_s: float) -> None:
        self._active.pop(injection.number, None)
        injection.ended_at = time_s
        self.log.append((time_s, "end", injection))

    def _withdraw(self, injection: Injection) -> None:
        """Undo what a fault did that is listed no more."""
        if injection.settings:
            self._fabric.traffic.apply(self._without(injection))
        for host, plane, _ in injection.nics:
            rates = [nic[2] for active in self._active.values() for nic in active.nics if nic[:2] == (host, plane)]
            plan = self._fabric.plan
            link = plan.link_of_interface(plan.host_port(plan.host(host), plane).interface)
            self._fabric.set_nic_rate(host, plane, rates[-1] if rates else plan.speed(link).rate_bps)
        if injection.node is not None and not any(active.node == injection.node for active in self._active.values()):
            self._power(injection.node, True)
        self._raise(injection.interfaces)

    def _without(self, injection: Injection) -> list[Setting]:
        """Value to restore where a fault has set something: the latest of the other faults, else the plan's."""
        keys = {_key(setting): setting for setting in injection.settings}
        ports = [self._fabric.traffic.port(name) for name in {setting.interface for setting in injection.settings}]
        plan = {_key(s): s for s in traffic_control.plan_settings(self._fabric.plan, ports, complete=True)}
        for active_fault in self._active.values():
            plan.update({_key(s): s for s in active_fault.settings if _key(s) in keys})
        return [plan.get(key, replace(setting, value=0)) for key, setting in keys.items()]

    def _raise(self, interfaces: Sequence[str]) -> None:
        held_interfaces = {name for injection in self._active.values() for name in injection.interfaces}
        if free_interfaces := tuple(name for name in interfaces if name not in held_interfaces):
            self._fabric.set_interfaces(free_interfaces, True)

    def _power(self, node: str, on: bool) -> None:
        if (node not in self._fabric.nodes_off) != on:
            self._fabric.power(node, on)

    def _flap(self, injection: Injection, ends: tuple[str, ...], half_s: float, times: int | None) -> None:
        turns = count() if times is None else range(times)
        try:
            for _ in turns:
                for is_down in (True, False):
                    with self._lock:
                        if injection.stop.is_set():
                            return
                        injection.interfaces = ends if is_down else ()
                        if is_down:
                            self._fabric.set_interfaces(ends, False)
                        else:
                            self._raise(ends)
                    if injection.stop.wait(half_s):
                        return
        except FabricError as error:
            injection.error = str(error)
        with self._lock:
            if injection.number in self._active:
                self._end(injection, time.monotonic())

    def _impair(
        self, kind: str, a: str, b: str, probability: float, pattern: str, sender: str | None, seed: int
    ) -> Injection:
        link = self._link(a, b)
        if bool(probability) == bool(pattern):
            raise InjectError(f"{kind} on {link.name}: give a probability above 0, or a pattern such as 0001")
        settings = [
            s
            for end in self._senders(link, sender)
            for s in self._impairment(link, end, kind, probability, pattern, seed)
        ]
        detail = (
            f"pattern {pattern}" if pattern else f"{probability:.4%}".rstrip("0%").rstrip(".") + " %"
        ) + _from_sender(sender)
        choice = {"pattern": pattern} if pattern else {"rate": probability}
        line = {kind: {"link": link.name, **choice, **_direction(link, sender)}}
        return self._begin(Injection(0, kind, link.name, detail, sender, settings=tuple(settings), line=line))

    def _impairment(
        self, link: Link, sender: str, kind: str, probability: float, pattern: str, seed: int
    ) -> tuple[Setting, ...]:
        interface, way = traffic_control.directions_of(self._fabric.plan, link, sender)
        return tuple(traffic_control.impairment(interface, way, kind, probability, pattern, seed))

    # ---- names ------------------------------------------------------------------------------------------

    def _link(self, a: str, b: str) -> Link:
        for name in (a, b):
            _check_name(name, self._fabric.plan.node_names, "node")
        return self._fabric.plan.link(a, b)

    def _switch(self, name: str) -> str:
        return _check_name(name, [switch.name for switch in self._fabric.plan.switches], "switch")

    @staticmethod
    def _senders(link: Link, sender: str | None) -> tuple[str, ...]:
        ends = (link.lower.node, link.upper.node)
        if sender is None:
            return ends
        if sender not in ends:
            raise InjectError(f"sender {sender!r}: the ends of this link are {ends[0]} and {ends[1]}")
        return (sender,)


def _check_name(name: str, names: Iterable[str], kind: str) -> str:
    names = list(names)
    if name not in names:
        close = get_close_matches(str(name), names, n=3)
        hint = f"did you mean {', '.join(close)}?" if close else f"has {names[0]} ... {names[-1]}"
        raise InjectError(f"no {kind} {name!r} ({hint})")
    return name


def _key(setting: Setting) -> Key:
    return setting.interface, setting.figure, setting.priority, setting.direction


def _direction(link: Link, sender: str | None) -> dict[str, str]:
    """Return the direction of a fault as a file says it, when it has one."""
    return {} if sender is None else {"direction": "up" if sender == link.lower.node else "down"}


def _from_sender(sender: str | None) -> str:
    return "" if sender is None else f" from {sender}"


__all__ = ["InjectError", "Injection", "Injector", "TrafficError"]
