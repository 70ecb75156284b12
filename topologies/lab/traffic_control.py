"""Rates, queue depths, delays, losses: one interface to what switches do to traffic, on both targets.

::

    fabric.traffic.set_rate("p0-t0-0-eth3", 10e6)
    fabric.traffic.set_loss("p0-t0-0-eth3", 0.01, direction="output")
    fabric.traffic.read("p0-t0-0-eth3").queues[0].depth_packets
    fabric.traffic.reset("p0-t0-0-eth3")             # back to what the plan says

An interface is a switch's, by name. `direction` is seen from the switch: `output` is what it sends, `input` what it
takes from the cable. Priority 7 is served first, data is 0. Rates count frames without FCS. Everything may be changed
while traffic flows. Embedded switches take it all (traffic_control_gnmi.py), BMv2 what its Thrift server offers
(traffic_control_thrift.py) and its cables do: there a rate becomes packets/s, which `rate_note` says, losses and
corruption are the cables', and the rest raises a TrafficError.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.plan import Link, Plan, Port
from mrc_testbed.topologies.plan.link_speeds import in_units

PRIORITIES = 8
DATA, CONTROL = 0, 7
"""Priorities of the two classes (docs/design/bmv2.md)."""
INPUT, OUTPUT = "input", "output"
DIRECTIONS = (INPUT, OUTPUT)
PPM = 1_000_000
PATTERN_MAX = 4096


class TrafficError(FabricError):
    """Setting that is invalid, unsupported by the target, or refused by a switch.

    The message lists what is possible.
    """


@dataclass(frozen=True, slots=True)
class Setting:
    """One figure of one interface, as data.

    `figure` is the name of a gNMI leaf (traffic_control_gnmi.py), a value of 0 or "" its default.

    `priority`: of one queue. `direction`: of one direction of the cable. Neither: of the port.
    """

    interface: str
    figure: str
    value: int | str
    priority: int | None = None
    direction: str | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """One priority of a port: settings (None: no limit), present depth, counts since the switch began."""

    priority: int
    rate_bps: int | None = None
    rate_pps: int | None = None
    max_packets: int | None = None
    max_bytes: int | None = None
    depth_packets: int = 0
    depth_bytes: int = 0
    transmit_pkts: int = 0
    transmit_octets: int = 0
    dropped_pkts: int = 0
    dropped_octets: int = 0
    peak_packets: int = 0
    """The greatest depth; 0 where the switch does not tell (BMv2)."""


@dataclass(frozen=True, slots=True)
class Cable:
    """One direction of a cable: what is set and what it did. Probabilities are 0 to 1."""

    delay_s: float = 0.0
    loss: float = 0.0
    loss_pattern: str = ""
    corruption: float = 0.0
    corrupt_pattern: str = ""
    seed: int = 0
    held_pkts: int = 0
    lost_pkts: int = 0
    lost_octets: int = 0
    corrupted_pkts: int = 0
    dropped_pkts: int = 0
    dropped_octets: int = 0


@dataclass(frozen=True, slots=True)
class PortTraffic:
    """Settings and counters of one interface. BMv2 has no counters of queues: those are 0 there."""

    interface: str
    rate_bps: int | None = None
    rate_pps: int | None = None
    queues: tuple[Queue, ...] = tuple(Queue(n) for n in range(PRIORITIES))
    input: Cable = field(default_factory=Cable)
    output: Cable = field(default_factory=Cable)


class TrafficControl(abc.ABC):
    """See the module. Calls block until the switch has answered, and may come from any thread."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.touched_interfaces: set[str] = set()
        """Interfaces whose settings may differ from the plan's."""
        self._ports = switch_ports(plan)
        self.death_reason: str | None = None
        """Reason why no process answers: the process behind the switches has died."""
        self.gets_on: Callable[[], bool] = lambda: False
        """Whether a late answer is worth more time, because the switches get on."""

    def lost(self, part: str, reason: str) -> None:  # noqa: ARG002 - one process is behind all switches
        """The process behind switches has died: calls end at once, also those under way, until `found`."""
        self.death_reason = reason
        self.close()

    def on_restarted_part(self, part: str) -> None:  # noqa: ARG002 - one process is behind all switches
        """Note that the process behind switches has been started again."""
        self.death_reason = None

    # ---- setting ----------------------------------------------------------------------------------------

    def apply(self, settings: Iterable[Setting]) -> None:
        """Do many settings together. Raises TrafficError before anything is done for those that cannot be."""
        checked = self._check(settings)
        self.touched_interfaces.update(setting.interface for setting in checked)
        self._apply(checked)

    @abc.abstractmethod
    def _apply(self, settings: list[Setting]) -> None:
        """Do settings that have been checked."""

    def apply_plan(self, switches: Collection[str] | None = None) -> list[str]:
        """Make all links as the plan says, or those of some switches; returns what this target does otherwise.

        For switches just started.
        """
        ports = [port for port in self._ports.values() if switches is None or port.node in switches]
        settings = plan_settings(self.plan, ports)
        lacking = list(dict.fromkeys(reason for setting in settings if (reason := self.cannot(setting)) is not None))
        for rate in sorted({int(setting.value) for setting in settings if setting.figure == "rate-bps"}):
            if note := self.rate_note(rate):
                lacking.append(f"{in_units(rate)}b/s {note}")
        if doable := [setting for setting in settings if self.cannot(setting) is None]:
            self._apply(self._check(doable))
        return lacking

    def set_rate(
        self, interface: str, rate_bps: float | None = None, *, priority: int | None = None, pps: float | None = None
    ) -> None:
        """Limit a port, or one priority of it, in bits/s or in packets/s; None: no limit."""
        self.apply(
            [
                Setting(interface, "rate-bps", whole_number("rate_bps", rate_bps), priority),
                Setting(interface, "rate-pps", whole_number("pps", pps), priority),
            ]
        )

    def set_depth(
        self, interface: str, packets: int | None = None, *, priority: int = DATA, size: int | None = None
    ) -> None:
        """Limit what may wait in a queue, in packets and in bytes (`size`); None: no limit."""
        self.apply(
            [
                Setting(interface, "max-packets", whole_number("packets", packets), priority),
                Setting(interface, "max-bytes", whole_number("size", size), priority),
            ]
        )

    def set_delay(self, interface: str, delay_s: float, direction: str = OUTPUT) -> None:
        """One-way delay of a direction of the cable, seconds."""
        self.apply([Setting(interface, "delay-us", delay_us(delay_s), direction=direction)])

    def set_loss(
        self, interface: str, probability: float = 0.0, *, pattern: str = "", direction: str = OUTPUT, seed: int = 0
    ) -> None:
        """Lose packets of a direction by probability or by a pattern.

        A pattern such as "0001" is repeated packet by packet (1: lost).
        """
        self.apply(impairment(interface, direction, "loss", probability, pattern, seed))

    def set_corruption(
        self, interface: str, probability: float = 0.0, *, pattern: str = "", direction: str = OUTPUT, seed: int = 0
    ) -> None:
        """Flip a bit of packets of a direction, chosen as those of set_loss are."""
        self.apply(impairment(interface, direction, "corrupt", probability, pattern, seed))

    def reset(self, interface: str | None = None) -> None:
        """Back to what the plan says, for one interface or for all that were changed."""
        names = [interface] if interface else sorted(self.touched_interfaces)
        settings = plan_settings(self.plan, [self.port(name) for name in names], complete=True)
        if doable := [setting for setting in settings if self.cannot(setting) is None]:
            self._apply(self._check(doable))
        self.touched_interfaces.difference_update(names)

    # ---- looking ----------------------------------------------------------------------------------------

    @abc.abstractmethod
    def read(self, interface: str) -> PortTraffic:
        """Settings and counters of a port. Raises TrafficError."""

    def queues(self, interface: str) -> tuple[Queue, ...]:
        """The queues of a port, priority 0 first."""
        return self.read(interface).queues

    def cannot(self, _setting: Setting) -> str | None:
        """Reason why this target cannot make a setting, or None when it can."""
        return None

    @abc.abstractmethod
    def on_switch_restart(self, switch: str) -> None:
        """A switch has been started anew: give it again what was set."""

    def black_hole(self, interfaces: Iterable[str]) -> list[Setting]:
        """Settings that make a switch with these ports lose everything that arrives, and answer as before."""
        return [Setting(interface, "loss-ppm", PPM, direction=INPUT) for interface in interfaces]

    def rate_note(self, _rate_bps: float) -> str:
        """Note on a rate that this target does not keep exactly in bits/s; else empty."""
        return ""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of connections. Idempotent."""

    def port(self, interface: str) -> Port:
        """The switch port of that interface. Raises TrafficError with the names that look like it."""
        try:
            return self._ports[interface]
        except KeyError:
            close = get_close_matches(interface, self._ports, n=3)
            hint = f"did you mean {', '.join(close)}?" if close else f"has {next(iter(self._ports))} ..."
            raise TrafficError(f"no switch port {interface!r} ({hint})") from None

    def _check(self, settings: Iterable[Setting]) -> list[Setting]:
        checked = list(settings)
        for setting in checked:
            self.port(setting.interface)
            if setting.priority is not None and setting.priority not in range(PRIORITIES):
                raise TrafficError(f"priority {setting.priority!r}: a port has queues 0 to {PRIORITIES - 1}")
            if setting.direction is not None and setting.direction not in DIRECTIONS:
                raise TrafficError(f"direction {setting.direction!r}: give {INPUT} or {OUTPUT}")
            if (reason := self.cannot(setting)) is not None:
                raise TrafficError(f"{setting.interface}: {reason}")
        return checked


class UnreachableTraffic(TrafficControl):
    """Traffic control of a fabric whose process alone can reach queues and cables: BMv2's."""

    _REASON = "queues and cables of BMv2 are known to the terminal that started the fabric: ask in its CLI"

    def _apply(self, _settings: list[Setting]) -> None:
        raise TrafficError(self._REASON)

    def cannot(self, _setting: Setting) -> str | None:
        return self._REASON

    def read(self, interface: str) -> PortTraffic:
        raise TrafficError(f"{interface}: {self._REASON}")

    def on_switch_restart(self, switch: str) -> None:
        """Set nothing: nothing was set from here."""

    def close(self) -> None:
        """Close nothing: nothing is open."""


# ---- settings as data -----------------------------------------------------------------------------------------


def impairment(
    interface: str, direction: str, kind: str, probability: float, pattern: str, seed: int = 0
) -> list[Setting]:
    """Return settings of `loss` or `corrupt`.

    Raises TrafficError for what is neither a probability nor a pattern.
    """
    if not isinstance(probability, (int, float)) or not 0 <= probability <= 1:
        raise TrafficError(f"probability {probability!r}: give a number from 0 to 1")
    if not isinstance(pattern, str) or pattern.strip("01") or len(pattern) > PATTERN_MAX:
        raise TrafficError(f"pattern {str(pattern)[:40]!r}: give 0s and 1s such as 0001, {PATTERN_MAX} at most")
    if not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        raise TrafficError(f"seed {seed!r}: give a whole number of 64 bits")
    return [
        Setting(interface, f"{kind}-ppm", round(probability * PPM), direction=direction),
        Setting(interface, f"{kind}-pattern", pattern, direction=direction),
        Setting(interface, "seed", seed, direction=direction),
    ]


def delay_us(seconds: float) -> int:
    """A delay as switches take it. Raises TrafficError."""
    if not isinstance(seconds, (int, float)) or not 0 <= seconds <= 60:
        raise TrafficError(f"delay_s = {seconds!r}: give 0 to 60 seconds")
    return round(seconds * 1e6)


def whole_number(name: str, value: float | None) -> int:
    """A limit as switches take it: 0 for None, else the nearest whole number. Raises TrafficError below 1."""
    if value is None:
        return 0
    if not isinstance(value, (int, float)) or not 0.5 < value < 1e13:
        raise TrafficError(f"{name} = {value!r}: give 1 or more, or None for no limit")
    return round(value)


def switch_ports(plan: Plan) -> dict[str, Port]:
    """Every switch port by interface name."""
    return {port.interface: port for switch in plan.switches for port in plan.ports(switch.name)}


def directions_of(plan: Plan, link: Link, sender: str) -> tuple[str, str]:
    """Return the (interface, direction) of a switch that affects what `sender` puts on a link.

    A switch's own output; what a NIC sends is met at the input of its T0.
    """
    end = link.end(sender)
    return (end.interface, OUTPUT) if end.interface in switch_ports_of(plan, link) else (link.upper.interface, INPUT)


def switch_ports_of(plan: Plan, link: Link) -> tuple[str, ...]:
    """Interfaces of a link that belong to switches, lower first."""
    hosts = {host.name for host in plan.hosts}
    return tuple(end.interface for end in (link.lower, link.upper) if end.node not in hosts)


def plan_settings(plan: Plan, ports: Sequence[Port] | None = None, *, complete: bool = False) -> list[Setting]:
    """Settings that give links the plan's rates, delays and queues, for all switch ports or for some.

    Rate and queue depths at each output, the delay of each direction once: at its sender's output, for what NICs send
    at the T0's input. NICs keep to the rate themselves. Without `complete`, figures that are at their default are left
    out: that is enough for switches that have just begun.
    """
    out: list[Setting] = []
    for port in switch_ports(plan).values() if ports is None else ports:
        port_settings = _port_settings(plan, port)
        if complete:
            figures = {(setting.figure, setting.priority, setting.direction) for setting in port_settings}
            port_settings += [
                default
                for default in defaults(port.interface)
                if (default.figure, default.priority, default.direction) not in figures
            ]
        out += port_settings
    return out


def _port_settings(plan: Plan, port: Port) -> list[Setting]:
    link = plan.link_of_interface(port.interface)
    speed, out = plan.speed(link), []
    limits = plan.thresholds(port.node, port.number)
    if speed.rate_bps is not None and limits is not None:
        out.append(Setting(port.interface, "rate-bps", round(speed.rate_bps)))
        out.append(Setting(port.interface, "max-packets", limits.data_limit, DATA))
        out.append(Setting(port.interface, "max-packets", limits.control_depth, CONTROL))
    if speed.delay_s:
        ways = (OUTPUT, INPUT) if len(switch_ports_of(plan, link)) == 1 else (OUTPUT,)
        out += [Setting(port.interface, "delay-us", delay_us(speed.delay_s), direction=way) for way in ways]
    return out


PORT_FIGURES = ("rate-bps", "rate-pps")
QUEUE_FIGURES = ("rate-bps", "rate-pps", "max-packets", "max-bytes")
CABLE_FIGURES = ("delay-us", "loss-ppm", "loss-pattern", "corrupt-ppm", "corrupt-pattern", "seed")


def defaults(interface: str) -> list[Setting]:
    """All figures of an interface at "no limit, no delay, no loss"."""
    return [
        *(Setting(interface, figure, 0) for figure in PORT_FIGURES),
        *(Setting(interface, figure, 0, priority) for priority in range(PRIORITIES) for figure in QUEUE_FIGURES),
        *(
            Setting(interface, figure, "" if figure.endswith("pattern") else 0, direction=direction)
            for direction in DIRECTIONS
            for figure in CABLE_FIGURES
        ),
    ]
