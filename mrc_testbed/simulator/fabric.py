"""Fabric of a plan in virtual time: switches, links and queues as events, with the real engines.

    fabric = VirtualFabric(Plan(4, 2, 2, 2), seed=7)
    qa, qb = fabric.connect("h0", "h2")
    region = fabric.host("h2").endpoint.register(bytearray(1 << 20))
    qa.post_write(data, region.va, region.rkey, now=fabric.now)
    fabric.schedule(0.010, CutFault.on("p0-t0-0 p0-t1-1"), until_s=0.030)
    fabric.run_until(lambda: not qa.outstanding())

Time is float seconds from 0. All randomness comes from `seed`: the same calls give the same run, bit for bit, in any
process. A run ends when asked to, or when nothing is left to happen.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mrc_testbed.faults import FaultError, FaultHolds, InjectedFault
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.paths.ev_formats import Srv6Format, StructuredFormat
from mrc_testbed.hosts.engine.qp import EngineQueuePair
from mrc_testbed.hosts.engine.rocev2.rc_packets import RcOpcode, RcWrite
from mrc_testbed.hosts.engine.wire.packets import Opcode, Write
from mrc_testbed.hosts.engine.wire.payload import TextPart
from mrc_testbed.simulator.border import Border, Judge
from mrc_testbed.simulator.events import EventQueue, Handler, NodeEvents, event_queue
from mrc_testbed.simulator.fault_target import VirtualFaultTarget
from mrc_testbed.simulator.frames import NO_PORT, Frame, PacketHook
from mrc_testbed.simulator.halves import Half, racks_of, reason_against
from mrc_testbed.simulator.host import VirtualHost
from mrc_testbed.simulator.message_slots import MessageSlots, Notify
from mrc_testbed.simulator.pfc import PfcNicPort, PfcPort, pair
from mrc_testbed.simulator.ports import EgressPort, NicPort
from mrc_testbed.simulator.profiles import ENDLESS_S, HostProfile, LinkProfile, PfcProfile, ProfileError, QueueProfile
from mrc_testbed.simulator.switches import Chooser, VirtualSwitch, VirtualT0, VirtualT1, find_mode
from mrc_testbed.simulator.trace import Tracer
from mrc_testbed.topologies.plan import Host, Plan, ev_plane
from mrc_testbed.topologies.plan.link_speeds import ETHERNET_BYTES, OUTER_BYTES
from mrc_testbed.topologies.plan.modes import ECMP_EVS_PER_UPLINK

if TYPE_CHECKING:
    from mrc_testbed.simulator.wire import Wires

Value = TypeVar("Value")

COLLECT_AFTER: Final = 1_000_000
"""Number of new objects after which Python looks for cycles while a fabric runs.

Packets make no cycles, and with the default of 700 Python goes through all of a large fabric again and again.
"""
TWO_DELAYS_FROM: Final = 128
"""Number of hosts from which on usual_lookahead() is 2.

Smaller fabrics gain little, and published series have the order of 1.
"""


def _ignore_delay(_delay_s: float) -> None:
    """Ignore the delay of a port without a cable: events need not wait for it."""


def usual_lookahead(plan: Plan) -> int:
    """Return the lookahead that is fastest for the size of a fabric."""
    return 2 if len(plan.hosts) >= TWO_DELAYS_FROM else 1


class VirtualFabric:
    """Fabric of a plan in virtual time; see the module.

    `links`, `queues`: profiles of all links and switch ports. `mode`: a name of switches.MODES or a function of that
    kind. `config`: of all engines, or by host name. `keep_events`: hosts collect the engine's events in `.events`.
    `trace`: a callable (what, time, where, frame) for every packet event, see trace.py; True records a digest only.

    `lookahead`: faster with many hosts. Each node has its events in order of time, but runs ahead of others by up to
    one or two times the shortest link's delay (events.py; usual_lookahead()). Functions given to `schedule` and
    `sample` still find all nodes at their time; a predicate is evaluated up to that time too late; an application's
    handler may touch its own host only, and asks to be called with `VirtualHost.schedule`.

    `half`: this process runs half of the hosts, another one the others (halves.py).
    """

    def __init__(
        self,
        plan: Plan,
        *,
        seed: int = 0,
        links: LinkProfile | None = None,
        queues: QueueProfile | None = None,
        mode: str | Chooser = "srv6",
        config: Config | Mapping[str, Config] | None = None,
        host: HostProfile | None = None,
        wire: bool = False,
        keep_events: bool = True,
        trace: bool | PacketHook = False,
        first_qpn: int | None = None,
        lookahead: int = 0,
        half: Half | None = None,
    ) -> None:
        self.plan = plan
        self.seed = seed
        self._first_qpn = first_qpn
        """First QPN of every host's first process; None: drawn at random."""
        self._config = config if config is not None else Config()
        self._configs: dict[str, Config] = {}
        """Configurations built so far, by node."""
        self._fifo_replacements: list[tuple[Config, Config]] = []
        self._rng: Random | None = None
        self.queue: EventQueue = event_queue(lookahead)
        """Virtual time and the events still to come."""
        self.links = links or LinkProfile()
        self.queues = queues or QueueProfile()
        self.host_profile = host or HostProfile()
        self.mode, self._choose = find_mode(mode)
        self.srv6 = self.mode == "srv6"
        # Field layouts of EVs belong to the whole fabric, so the first host speaks for all.
        first_config = self._first_config = self.config_of(plan.hosts[0].name)
        self.widths, self.structure = (
            Srv6Format(*first_config.wire.srv6_widths),
            StructuredFormat(first_config.wire.structured_widths),
        )
        if wire and self.srv6 and self.widths != Srv6Format():
            raise ProfileError(
                f"srv6_widths = {first_config.wire.srv6_widths}: NICs read plane and uplink in 8 bits each. "
                "Cure: leave wire off"
            )
        self.keep_events = keep_events
        self.tracer = Tracer(trace if callable(trace) else None) if trace else None
        self.wires = self._open_wires() if wire else None
        """The codecs, when packets travel as bytes."""
        self.overhead_bytes = ETHERNET_BYTES + (OUTER_BYTES if self.srv6 else 0)
        """Bytes in front of the inner IPv6 header."""
        self._links_down: set[tuple[str, str]] = set()
        self._stalls: dict[str, float] = {}
        """End of the stall of each stalled switch, seconds."""
        self.ports: dict[str, EgressPort] = {}
        """Every egress port by interface name."""
        self.port_list: list[EgressPort] = []
        """Every egress port by number."""
        self._towards: dict[tuple[str, str], EgressPort] = {}
        self._node_events: dict[str, NodeEvents] = {}
        """Events of each node, by name."""
        self._arrive_at: dict[str, Handler] = {}
        """Handler of the packets that arrive at each node, by name."""
        self.switches: dict[str, VirtualSwitch] = {}
        self.hosts: dict[str, VirtualHost] = {}
        self.faults = VirtualFaultTarget(self)
        """Fault target of at() and apply()."""
        self._build()
        self._half, self._border = half, None if half is None else self._split(half)

    @property
    def rng(self) -> Random:
        """Random source of draws that belong to no port or host; workloads may use it too."""
        if self._rng is None:
            self._rng = Random(f"{self.seed}/fabric")
        return self._rng

    # ---- set-up -----------------------------------------------------------------------------------------

    def _open_wires(self) -> Wires:
        from mrc_testbed.simulator.wire import Wires  # brings the NICs along, which nothing else here needs

        return Wires(self.plan, self.srv6, self.config_of(self.plan.hosts[0].name))

    def config_of(self, host: str) -> Config:
        """Return the engine configuration of a host, without `ev_fifo` where switches spray."""
        host_config = self._configs.get(host)
        if host_config is None:
            config = self._config
            host_config = config if isinstance(config, Config) else config.get(host) or Config()
            if self.mode == "switch-spray":
                host_config = self._without_fifo(host_config)
            self._configs[host] = host_config
        return host_config

    def _without_fifo(self, config: Config) -> Config:
        """Return a configuration without `ev_fifo`, the same object for all nodes that share `config`."""
        for original, replacement in self._fifo_replacements:
            if original is config:
                return replacement
        replacement = config.with_values(ev_fifo=False)
        self._fifo_replacements.append((config, replacement))
        return replacement

    def _build(self) -> None:
        plan = self.plan
        for node in plan.switches:
            if self.wires is not None and self.srv6:
                self.switches[node.name] = self.wires.switch(node)
            elif node.tier == 0:
                seed = f"{self.seed}/{node.name}"
                self.switches[node.name] = VirtualT0(
                    node.name, node.plane, node.number, self._choose, seed, self.widths, self.structure
                )
            else:
                self.switches[node.name] = VirtualT1(node.name, node.plane)
            self._node_events[node.name] = self.queue.add_node(node.tier == 0)
            self._arrive_at[node.name] = self.switches[node.name].receive
        for host in plan.hosts:
            virtual_host = self.hosts[host.name] = VirtualHost(self, host, self._endpoint(host.name, 0))
            self._node_events[host.name] = virtual_host.node_events
            take: Handler = virtual_host.take
            self._arrive_at[host.name] = take if self.tracer is None else self.tracer.delivery(host.name, take)
        self._note_parts()
        note_delay = self.queue.note_delay
        for link in plan.links:  # in order of downlinks and T1 numbers, racks
            lower_end, upper_end, plane = link.lower, link.upper, link.plane
            lower, upper = lower_end.node, upper_end.node
            up_port = self._add_port(lower_end.interface, lower, upper, plane, note_delay)
            down_port = self._add_port(upper_end.interface, upper, lower, plane, note_delay)
            if lower in self.hosts:
                self.switches[upper].downlinks.append(down_port)
                assert isinstance(up_port, NicPort)
                self.hosts[lower].ports.append(up_port)
            else:
                self.switches[lower].uplinks.append(up_port)
                self.switches[upper].racks.append(down_port)
        if plan.layout is not None:
            self._fill_holes()
        if self.queues.pfc is not None:
            self._pair_pauses(self.queues.pfc)
        for switch in self.switches.values():
            switch.observer = self.tracer
            switch.on_wired(plan)
            self._node_events[switch.name].keep_near([*switch.downlinks, *switch.uplinks, *switch.racks], False)
        for virtual_host in self.hosts.values():
            virtual_host.node_events.keep_near(virtual_host.ports, True)

    def _split(self, half: Half) -> Border:
        """Leave the hosts and T0s of the other half to it.

        Raises ProfileError for a fabric that has no halves.
        """
        plan = self.plan
        reason = reason_against(plan.racks, pauses=self.queues.pfc is not None, as_bytes=self.wires is not None)
        if reason:
            raise ProfileError(f"{reason}. Cure: run the fabric in one process")
        racks = racks_of(half.number, plan.racks)
        border = Border(half, plan.racks, [host.name for host in plan.hosts], self.port_list)
        for node in plan.switches:
            if node.tier == 0 and node.number not in racks:
                self._node_events[node.name].disown()
        for virtual_host in self.hosts.values():
            if virtual_host.rack not in racks:
                virtual_host.node_events.disown()
        for link in plan.links:
            if not link.is_nic:
                gate = border.gate(self._node_events[link.upper.node])
                self._towards[link.lower.node, link.upper.node].lead_to(self._arrive_at[link.upper.node], gate)
        self.queue.split(border.meet)
        return border

    def owns(self, host: str) -> bool:
        """Return whether this process runs a host."""
        return self._half is None or self.host(host).rack in racks_of(self._half.number, self.plan.racks)

    def gather(self, value: Value) -> tuple[Value, ...]:
        """Return a value of each half, the first half's first; without halves the value alone."""
        return (value,) if self._half is None else self._half.gather(value)

    def of_owners(self, hosts: Sequence[str], values: list[Value]) -> list[Value]:
        """Return a value for each host, each as the half that runs the host has it."""
        half_values = self.gather(values)
        if len(half_values) == 1:
            return values
        racks = racks_of(0, self.plan.racks)
        return [half_values[self.host(host).rack not in racks][i] for i, host in enumerate(hosts)]

    def notify_twin(self, a: str, b: str, memory: MessageSlots) -> Notify | None:
        """Return the function that notifies the twin of a memory; None where both ends are in one half."""
        return None if self._border is None or self.owns(a) == self.owns(b) else self._border.join(memory)

    def _fill_holes(self) -> None:
        """Put a port that never comes up where an uneven fabric has no cable.

        Nodes find their ports by number. Nothing is sent there: no EV leads over such a port. Hosts learn that theirs
        are down.
        """
        plan = self.plan
        for host in plan.hosts:
            virtual_host, planes = self.hosts[host.name], plan.host_planes(host)
            ports = dict(zip(planes, virtual_host.ports, strict=True))
            for plane in range(plan.planes):
                if plane not in ports:
                    ports[plane] = self._dead_nic_port(virtual_host, plane)
                    virtual_host.endpoint.on_port(plane, False, self.now)
            virtual_host.ports[:] = [ports[plane] for plane in range(plan.planes)]
        for node in plan.switches:
            switch, plane, number = self.switches[node.name], node.plane, node.number
            downlinks = [host.downlink for host in plan.hosts_of(plane, number)]
            rows = (
                ((switch.racks, plan.racks_of(plane, number), plan.racks),)
                if node.tier
                else (
                    (switch.downlinks, downlinks, plan.hosts_per_rack),
                    (switch.uplinks, plan.uplinks(plane, number), plan.spines),
                )
            )
            for ports_of_kind, numbers, count in rows:
                present = dict(zip(numbers, ports_of_kind, strict=True))
                ports_of_kind[:] = [present.get(k) or self._dead_port(node.name, plane) for k in range(count)]

    def _dead_port(self, node: str, plane: int) -> EgressPort:
        """Return a switch's port without a cable."""
        events, seed = self._node_events[node], f"{self.seed}/{node}-none"
        port = EgressPort(f"{node}-none", node, "", plane, self.links.fabric, _ignore_delay, events, seed, (0, 0))
        port.go_down(self.now)
        return port

    def _dead_nic_port(self, host: VirtualHost, plane: int) -> NicPort:
        """Return a host's port without a cable."""
        name, seed = f"{host.name}-none", f"{self.seed}/{host.name}-none"
        port = NicPort(
            name,
            host.name,
            "",
            plane,
            self.links.nic,
            _ignore_delay,
            self._node_events[host.name],
            seed,
            (0, 0),
            ring_packets=self.host_profile.ring_packets,
            on_room=host.on_room,
        )
        port.go_down(self.now)
        return port

    def _note_parts(self) -> bool:
        """Name to the event queue the frame parts that hosts read; return whether it can fetch all."""
        part = TextPart(b"", 0, 0)
        mrc = Write(0, 0, 0, 0, 0, Opcode.WRITE_MIDDLE, 0, 0, 0, 0, 0, part, 0, timestamp=1 << 15)
        rocev2 = RcWrite(0, 0, 0, 0, 0, RcOpcode.WRITE_MIDDLE, 0, part, 0)
        frame = Frame(mrc, 0, "", "", 0, 0, 0, False, False)
        parts = ((frame, "packet"), (mrc, "payload"), (mrc, "timestamp"), (rocev2, "payload"))
        return all([self.queue.note_part(example, name) for example, name in parts])

    def _add_port(
        self, interface: str, node: str, neighbour: str, plane: int, note_delay: Callable[[float], None]
    ) -> EgressPort:
        host, to_host, pfc = self.hosts.get(node), neighbour in self.hosts, self.queues.pfc is not None
        config = self.config_of(neighbour if host is None else node)
        line = self.links.line_of(node, neighbour, to_host or host is not None)
        node_events, tracer, seed = self._node_events[node], self.tracer, f"{self.seed}/{interface}"
        dscp: tuple[int, int] = config.dscp.trimmed, config.dscp.trimmed_lasthop
        port: EgressPort
        if host is not None:
            port_type = PfcNicPort if pfc else NicPort
            port = port_type(
                interface,
                node,
                neighbour,
                plane,
                line,
                note_delay,
                node_events,
                seed,
                dscp,
                ring_packets=self.host_profile.ring_packets,
                on_room=host.on_room,
                observer=tracer,
            )
        else:
            arguments = (interface, node, neighbour, plane, line, note_delay, node_events, seed, dscp)
            if pfc:
                port = PfcPort(*arguments, last_hop=to_host, observer=tracer)
            else:  # called by its name: most ports are made here
                port = EgressPort(
                    interface,
                    node,
                    neighbour,
                    plane,
                    line,
                    note_delay,
                    node_events,
                    seed,
                    dscp,
                    last_hop=to_host,
                    observer=tracer,
                )
            port.set_queues(self.queues, self.srv6, config)
        port.lead_to(self._arrive_at[neighbour], self._node_events[neighbour])
        if to_host and self.host_profile.receive_s:
            port.extra_delay_s = self.host_profile.receive_s
            port.set_line(line)
        port.number = len(self.port_list)
        self.port_list.append(port)
        self.ports[interface] = port
        self._towards[node, neighbour] = port
        return port

    def _pair_pauses(self, pfc: PfcProfile) -> None:
        """Connect the two directions of each link for pause frames."""
        for link in self.plan.links:
            a, b = link.lower.node, link.upper.node
            ends = {"switch_at_a": a in self.switches, "switch_at_b": b in self.switches}
            pair(self._towards[a, b], self._towards[b, a], pfc, self.port_list, **ends)

    # ---- application ----------------------------------------------------------------------------------

    def host(self, name: str) -> VirtualHost:
        """Return the host of a name. Raises PlanError listing the hosts."""
        host = self.hosts.get(name)
        return host if host is not None else self.hosts[self.plan.host(name).name]

    def connect(
        self,
        a: str,
        b: str,
        *,
        evs: Sequence[int] | None = None,
        transport: str = "mrc",
        settings: Any = None,
        **options: Any,
    ) -> tuple[EngineQueuePair, EngineQueuePair]:
        """Connect a QP at each of two hosts, over all EVs of the plan or over `evs` (both ways).

        `transport`, `settings`: as of Endpoint.create_qp ("rocev2" and an RcConfig make the baseline). `options` go to
        EngineQueuePair.connect of both ends. Raises PlanError or LocalError.
        """
        host_a, host_b = self.host(a), self.host(b)
        qp_settings = {} if transport == "mrc" else {"transport": transport, "settings": settings}
        qa, qb = host_a.endpoint.create_qp(**qp_settings), host_b.endpoint.create_qp(**qp_settings)
        for source, target, qp, peer_qp in ((host_a, host_b, qa, qb), (host_b, host_a, qb, qa)):
            pairs = self.evs(source, target) if evs is None else [(ev, self.plane_of(ev)) for ev in evs]
            qp.connect(target.name, peer_qp.attributes(), pairs, self.now, **options)
        return qa, qb

    def evs(self, source: VirtualHost, target: VirtualHost) -> list[tuple[int, int]]:
        """Return (EV, plane) pairs for a QP: all paths of the plan; in ECMP mode random 32-bit values to hash."""
        plan = self.plan
        if plan.layout is not None:
            return self._uneven_evs(source.plan_host, target.plan_host)
        is_same_rack = source.plan_host.rack == target.plan_host.rack
        uplinks = range(1 if is_same_rack else plan.spines)
        if self.mode == "structured":
            return self.structure.evs(range(plan.planes), [uplinks])
        if self.mode == "srv6" and self.widths != Srv6Format():
            return self.widths.evs(range(plan.planes), uplinks)
        if self.mode != "ecmp":
            return [(ev, ev_plane(ev)) for ev in plan.evs(source.plan_host, target.plan_host)]
        evs_per_plane = ECMP_EVS_PER_UPLINK * plan.spines
        plane_of_ev: dict[int, int] = {}
        while len(plane_of_ev) < evs_per_plane * plan.planes:
            plane_of_ev.setdefault(self.rng.getrandbits(32), len(plane_of_ev) % plan.planes)
        return list(plane_of_ev.items())

    def _uneven_evs(self, source: Host, target: Host) -> list[tuple[int, int]]:
        """Return the pairs of `evs` where planes differ: plane by plane, of the paths that exist."""
        plan = self.plan
        uplinks = {plane: plan.uplinks_between(source, target, plane) for plane in range(plan.planes)}
        if self.mode == "structured":
            return [pair for plane, numbers in uplinks.items() for pair in self.structure.evs([plane], [numbers])]
        if self.mode == "srv6" and self.widths != Srv6Format():
            return [pair for plane, numbers in uplinks.items() for pair in self.widths.evs([plane], numbers)]
        if self.mode != "ecmp":
            return [(ev, ev_plane(ev)) for ev in plan.evs(source, target)]
        plane_of_ev: dict[int, int] = {}
        for plane, numbers in uplinks.items():
            end = len(plane_of_ev) + ECMP_EVS_PER_UPLINK * len(numbers)
            while len(plane_of_ev) < end:
                plane_of_ev.setdefault(self.rng.getrandbits(32), plane)
        return list(plane_of_ev.items())

    def plane_of(self, ev: int) -> int:
        """Return the plane of an EV; in the hashing modes by the layout of SRv6."""
        return self.structure.plane(ev) if self.mode == "structured" else self.widths.plane(ev)

    # ---- time -------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual time, seconds."""
        return self.queue.now

    @property
    def events_done(self) -> int:
        """Events handled so far."""
        return self.queue.event_count

    def push(self, time: float, handler: Handler, argument: Any) -> None:
        """Call `handler(argument, time)` at a time, at once when the time has passed."""
        self.queue.push(time, handler, argument)

    def schedule(
        self, time: float, action: InjectedFault | Callable[[], object], *, until_s: float | None = None
    ) -> None:
        """Begin a fault, or call a function without arguments, at a time (now, when the time has passed).

        `until_s`: time when the fault ends; None: by another one (RestoreFault, PowerOnFault, HealFault), if at all.
        """
        if not isinstance(action, InjectedFault):
            self.push(time, self._call, action)
            return
        holds = FaultHolds()
        self.push(time, self._call, partial(action.begin, self.faults, holds, 0))
        if until_s is not None:
            self.push(until_s, self._call, partial(action.end, self.faults, holds))

    def _call(self, action: Callable[[], object], _now: float) -> None:
        action()
        self.kick()

    def apply(self, fault: InjectedFault) -> FaultHolds:
        """Begin a fault now; return its holds, for `fault.end(fabric.faults, holds)`."""
        holds = FaultHolds()
        fault.begin(self.faults, holds, 0)
        self.kick()
        return holds

    def kick(self) -> None:
        """Ask every engine for packets to send; `schedule` and run_until do so by themselves."""
        for host in self.hosts.values():
            host.kick()

    def run_until(self, stop: float | Callable[[], Any], *, limit_s: float = 3600.0, judge: Judge = all) -> bool:
        """Run to a time, or until a predicate holds; True when it was reached.

        A predicate is evaluated whenever an application got an event; False when no event is left or
        `limit_s` seconds of virtual time have passed. With a time, `now` is that time afterwards. `judge`: whether the
        values of the predicate in both halves end the run, by default if it holds in both.
        """
        self.kick()
        if callable(stop):
            return self._run(self.now + limit_s, stop, judge)
        self._run(stop, None, judge)
        self.queue.now = max(self.now, stop)
        return True

    def run_for(self, seconds: float) -> None:
        """Run for a while."""
        self.run_until(self.now + seconds)

    def _run(self, end: float, stop: Callable[[], Any] | None, judge: Judge) -> bool:
        queue, border = self.queue, self._border
        states: Sequence[Any] = () if stop is None else self.gather(stop())
        if stop is not None and judge(states):
            return True
        gc_threshold = gc.get_threshold()
        if gc_threshold[0]:
            gc.set_threshold(max(gc_threshold[0], COLLECT_AFTER), *gc_threshold[1:])
        try:
            if border is not None:
                border.watch(stop, judge, states)
                return queue.run(end)  # halted: the halves found, as they met, that the run is over
            while queue.run(end):  # halted: an application got an event
                if stop is not None and judge((stop(),)):
                    return True
        finally:
            gc.set_threshold(*gc_threshold)
        return False

    def sample(self, every_s: float, hook: Callable[[float], None], until_s: float = ENDLESS_S) -> None:
        """Call `hook(now)` at regular times from now to `until_s`, for instance to read `data_bytes` of ports."""

        def tick(_: None, now: float) -> None:
            hook(now)
            if now + every_s <= until_s:
                self.push(now + every_s, tick, None)

        self.push(self.now, tick, None)

    def close(self) -> None:
        """Break the fabric's reference cycles; the fabric is unusable afterwards.

        Its objects refer to each other in cycles, and a program that makes many fabrics would wait for the garbage
        collector to find each.
        """
        self.queue.take(lambda _handler, _argument: True)
        for port in self.ports.values():
            port.close()
        for switch in self.switches.values():
            switch.downlinks.clear()
            switch.uplinks.clear()
            switch.racks.clear()
        for host in self.hosts.values():
            host.close()
        for node_events in self._node_events.values():
            node_events.keep_near((), False)
        for table in (self.ports, self._towards, self._node_events, self._arrive_at, self.switches, self.hosts):
            table.clear()
        self.port_list.clear()

    # ---- faults -------------------------------------------------------------------------------------------

    def port_towards(self, a: str, b: str) -> EgressPort:
        """Return the egress of `a` towards its neighbour `b`. Raises FaultError naming the neighbours."""
        port = self._towards.get((a, b))
        if port is None:
            near = [y for x, y in self._towards if x == a]
            hint = f"{a} is linked to: {', '.join(near)}" if near else f"no node {a!r}"
            raise FaultError(f"no link from {a} to {b} ({hint})")
        return port

    def directions(self, a: str, b: str, both_ways: bool) -> list[EgressPort]:
        """Return one or both directions of a link. Raises FaultError."""
        return [self.port_towards(a, b), self.port_towards(b, a)] if both_ways else [self.port_towards(a, b)]

    def set_line(self, a: str, b: str, *, both_ways: bool = True, **changes: Any) -> None:
        """Change rate_bps, delay_s, jitter_s or fifo of a link. Raises FaultError, ProfileError."""
        for port in self.directions(a, b, both_ways):
            port.change_line(**changes)

    def set_queues(self, a: str, b: str, queues: QueueProfile) -> None:
        """Give the port of switch `a` towards `b` thresholds of its own."""
        self.port_towards(a, b).set_queues(queues, self.srv6, self._first_config)

    def set_link(self, a: str, b: str, *, enabled: bool) -> None:
        """Pull a cable or put it back. Raises FaultError."""
        ports = self.directions(a, b, True)
        key = (min(a, b), max(a, b))
        (self._links_down.discard if enabled else self._links_down.add)(key)
        self._settle(ports)

    def set_power(self, node: str, on: bool) -> None:
        """Stop or start a switch or a host; a host comes back as a process without memory. Raises FaultError."""
        virtual_node = self.hosts.get(node) or self.switch(node)
        if virtual_node.power == on:
            return
        virtual_node.power = on
        if not on and isinstance(virtual_node, VirtualHost):
            virtual_node.vanish()
        for (a, b), port in list(self._towards.items()):
            if a == node:
                self._settle([port, self._towards[b, a]])
        if on and isinstance(virtual_node, VirtualHost):
            self.start_process(node)

    def set_blackhole(self, switch: str, on: bool) -> None:
        """Make a switch drop every packet, or forward again. Raises FaultError."""
        self.switch(switch).set_blackhole(on)

    def stall_switch(self, switch: str, seconds: float) -> None:
        """Make packets that reach a switch wait for a while. Raises FaultError."""
        virtual_switch = self.switch(switch)
        end_s = self._stalls[switch] = max(self._stalls.get(switch, 0.0), self.now + seconds)
        virtual_switch.stall()
        self.push(end_s, self._resume_switch, virtual_switch)

    def _resume_switch(self, switch: VirtualSwitch, now: float) -> None:
        if now >= self._stalls[switch.name]:
            switch.resume(now)

    def start_process(self, host: str) -> Endpoint:
        """Start a process on a host in place of the former one: an engine without memory (VanishFault)."""
        virtual_host = self.host(host)
        virtual_host.lives += 1
        endpoint = self._endpoint(virtual_host.name, virtual_host.lives)
        virtual_host.begin(endpoint)
        return endpoint

    def _endpoint(self, host: str, life: int) -> Endpoint:
        seed = f"{self.seed}/{host}/{life}" if life else f"{self.seed}/{host}"
        first = None if life else self._first_qpn
        return Endpoint(host, self.config_of(host), planes=self.plan.planes, seed=Random(seed), first_qpn=first)

    def switch(self, name: str) -> VirtualSwitch:
        """Return the switch of a name. Raises FaultError."""
        try:
            return self.switches[name]
        except KeyError:
            raise FaultError(f"no switch {name!r} (known: {', '.join(self.switches)})") from None

    def heal(self) -> None:
        """Undo every fault."""
        self._links_down.clear()
        for switch in self.switches.values():
            switch.power = True
            switch.set_blackhole(False)
        for name in self.hosts:
            self.set_power(name, True)
        for (a, b), port in self._towards.items():
            port.clear_impairments()
            port.set_line(self.links.line_of(a, b, a in self.hosts or b in self.hosts))
        for (a, b), port in list(self._towards.items()):
            if a < b:
                self._settle([port, self._towards[b, a]])

    def _settle(self, ports: list[EgressPort]) -> None:
        """Bring both directions of one link to the state its cable and nodes make."""
        a, b = ports[0].node, ports[0].neighbour
        powered = all((self.hosts.get(name) or self.switches[name]).power for name in (a, b))
        is_up = powered and (min(a, b), max(a, b)) not in self._links_down
        if ports[0].is_up == is_up:
            return
        for port in ports:
            if is_up:
                port.go_up()
            else:
                port.go_down(self.now)
            self.push(self.now + self.host_profile.port_event_s, self._port_event, port)
        if not is_up:
            self._clear_wire(ports)

    def _clear_wire(self, ports: list[EgressPort]) -> None:
        """Lose the packets on the wire of a dead link."""

        def is_on_it(handler: Handler, frame: Any) -> bool:
            sender = frame.port if isinstance(frame, Frame) else NO_PORT
            return any(sender == port.number and handler == port.arrive for port in ports)

        for frame in self.queue.take(is_on_it):
            self.port_list[frame.port].lose(frame, "link_down", self.now)

    def _port_event(self, port: EgressPort, now: float) -> None:
        """Notify a node of its port's state."""
        if port.node in self.hosts:
            self.hosts[port.node].port_changed(port.plane, now)
        else:
            self.switches[port.node].port_changed()

    # ---- counters and digests ------------------------------------------------------------------------------

    def counters(self) -> dict[str, dict[str, Any]]:
        """Return the counters of every port that saw a packet, by interface name."""
        return {
            name: port.counters() for name, port in self.ports.items() if port.forwarded or port.dropped or port.trimmed
        }

    def totals(self) -> dict[str, int]:
        """Count packets over all ports: forwarded, marked, trimmed, and each reason of a drop or loss."""
        out: dict[str, int] = {"forwarded": 0, "marked": 0, "trimmed": 0}
        for port in self.ports.values():
            out["forwarded"] += port.forwarded
            out["marked"] += port.marked
            out["trimmed"] += port.trimmed
            for reasons in (port.dropped, port.lost):
                for reason, number in reasons.items():
                    out[reason] = out.get(reason, 0) + number
        nodes: list[VirtualSwitch | VirtualHost] = [*self.switches.values(), *self.hosts.values()]
        for node in nodes:
            for reason, number in node.dropped.items():
                out[reason] = out.get(reason, 0) + number
        return out

    def trace_digest(self) -> str:
        """Return the digest of all packet events so far. Raises ValueError for a fabric without `trace`."""
        if self.tracer is None:
            raise ValueError(
                "no packet event was recorded: fabric without trace. Cure: make the fabric with trace=True"
            )
        return self.tracer.digest()

    def state_digest(self) -> str:
        """Return a digest of time, events done and every counter.

        Two runs that differ at all almost surely differ in the digest.
        """
        digest = blake2b(digest_size=16)
        digest.update(repr((self.now, self.events_done, sorted(self.counters().items()))).encode())
        for name, host in self.hosts.items():
            qps = [(qp.qpn, qp.state.value, qp.counters.by_name()) for qp in host.endpoint._qps.values()]
            digest.update(repr((name, host.received, sorted(host.dropped.items()), qps)).encode())
        return digest.hexdigest()
