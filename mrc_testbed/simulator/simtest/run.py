"""One schedule on the virtual-time fabric, under watch."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, Final, Literal

from mrc_testbed.faults import (
    BlackholeFault,
    CorruptFault,
    CutFault,
    DuplicateFault,
    FaultHolds,
    FlapFault,
    HealFault,
    InjectedFault,
    LateFault,
    LineFault,
    LossFault,
    OneWayFault,
    PowerOffFault,
    StallFault,
    VanishFault,
)
from mrc_testbed.hosts.engine.config import KEYS, Config
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.events import Completion
from mrc_testbed.hosts.engine.paths.ev_state import EvState
from mrc_testbed.hosts.engine.paths.peer_table import LEASE_REFRESHES
from mrc_testbed.hosts.engine.qp import EngineQpState, EngineQueuePair
from mrc_testbed.simulator import HostProfile, Line, LinkProfile, QueueProfile, VirtualFabric
from mrc_testbed.simulator.fault_target import LastWordFaultTarget
from mrc_testbed.simulator.simtest.bounds import incast_bound_s, jain, silence_bound_s
from mrc_testbed.simulator.simtest.buggify import RARE_S, Chance, RareEngine
from mrc_testbed.simulator.simtest.invariants import InvariantChecker, Lane, QpSide, Violation
from mrc_testbed.simulator.simtest.schedule import HEALED_S, LATE_ONE_IN, SURE, Schedule, SimFault
from mrc_testbed.topologies.plan import ev_plane

ORDERS = ("deny", "shrink_mpr", "penalty")
"""Kinds of SimFault that are orders of the controller or application, not faults of the network."""
ENDS_S = 60.0
"""Virtual seconds after the last fault and the last post within which everything has to be over."""
LASTING_S = 120.0
"""Virtual seconds in place of ENDS_S with faults that never end; a slow transfer is then left alone."""
WIRE_EXTRA = 200
"""Bytes of headers of a packet, at most."""
LONG_TRIPS, LEAST_EVEN = 20, 0.5
"""Least Jain's index of an incast's shares, and base round trips from which on it is checked.

Checked with trims and NSCC, when the first sender is done after LONG_TRIPS base round trips or later. The goal is 0.95
once each has sent a hundred packets, and here they send no more; below a packet a round trip a share takes as many
round trips to be found.
"""
FOREVER_S = 1e9
CENSUS_S = 60.0
"""Seconds between two counts of a long run's state."""
AFTERMATH_S = 0.05
"""Seconds watched after the end, for packets still on their way."""
_BYTES: Final = Random("mrc-simtest").randbytes(1 << 18)
"""Bytes of which writes are cut; bytes drawn for each cost as much as the engine's work on a packet."""


@dataclass
class SimResult:
    """Result of a run."""

    seed: int
    violation: Violation | None = None
    stats: dict[str, int] = field(default_factory=dict)
    """Counts, to be added up over runs."""
    trace: list[str] = field(default_factory=list)
    """The last packets and events before a violation."""
    simulation: Simulation | None = None
    """Simulation that ran; None unless asked to keep it."""


class Simulation:
    """Schedule ready to run. `chance`: decides rare behaviour; default: by the schedule's seed and share."""

    def __init__(self, schedule: Schedule, chance: Chance | None = None) -> None:
        self.schedule = schedule
        self._chance = Chance(schedule.seed, schedule.buggify) if chance is None and schedule.buggify else chance
        network = schedule.network
        self.plan = schedule.plan_of()
        configs = schedule.configs()
        switches = dict.fromkeys((switch.name for switch in self.plan.switches), configs["h0"])
        line = Line(network["rate_bps"], network["delay_s"], network["jitter_s"], network["fifo"])
        slower = replace(line, rate_bps=line.rate_bps * network["spine_share"])
        self.fabric = VirtualFabric(
            self.plan,
            mode=network["mode"],
            seed=schedule.seed,
            links=LinkProfile(line, slower),
            queues=_queues(network),
            config={**switches, **configs},  # the fabric asks for those of switches too
            host=HostProfile(ring_packets=network["ring_packets"]),
            wire=network["wire"],
            keep_events=False,
        )
        self._faults = LastWordFaultTarget(self.fabric)
        self.trip_s = longest_trip_s(schedule) + (RARE_S if self._chance is not None else 0.0)
        busy_s = sum((f.until or FOREVER_S) - f.at + self.plan.planes * f.value for f in schedule.faults)
        patient = busy_s + self.trip_s + max(config.acks.sack_flush_s for config in configs.values())
        in_time = patient < min(config.loss.base_timeout_s for config in configs.values())
        self._rng = Random(schedule.seed ^ 0x5EED)
        self.watch = InvariantChecker(
            calm=is_calm(schedule, configs),
            stalled=bool(schedule.faults),
            in_time=in_time,
            dubious=self._stalled_planes(),
        )
        if schedule.kind == "slow" and not schedule.faults:
            self.watch.trip_s = self.trip_s
        self.watch.crowded = schedule.kind == "incast" and not schedule.faults
        self.shares: list[int] = []
        """Bytes of each sender that had arrived when the first sender was done."""
        self.shared_s = 0.0
        """Time from the first write until the shares were noted."""
        self.edges = sorted({0.0, *(edge for fault in schedule.faults for edge in _edges(fault))})
        """Times at which a fault begins or ends."""
        host_names = sorted({name for pair in schedule.qps for name in pair})
        self.sides = {name: self._side(name, self.fabric.host(name).endpoint) for name in host_names}
        self.lanes: dict[tuple[int, int], Lane] = {}
        """Lane of each connection's newest life, by (connection, side)."""
        self.old_lanes: list[Lane] = []
        """Lanes of former lives; the writes of kept ones still have to end."""
        self.due: dict[Lane, int] = {}
        """Number of writes per lane that the schedule wants posted by now."""
        for number in range(len(schedule.qps)):
            self._connect(number, 0.0, self._renewal_s(number))
        for fault in schedule.faults:
            if fault.kind == "restart":
                self.fabric.schedule(fault.at, partial(self._die, fault))
                self.fabric.schedule(fault.at + fault.value, partial(self._begin_anew, fault))
                if fault.until is not None:
                    self.fabric.schedule(fault.until, partial(self._reconnect, fault))
            elif fault.kind == "destroy":
                self.fabric.schedule(fault.at, partial(self._destroy, fault))
            elif fault.kind in ORDERS:
                self.fabric.schedule(fault.at, partial(self._order, fault, True))
                if fault.until is not None:
                    self.fabric.schedule(fault.until, partial(self._order, fault, False))
            else:
                self._inject(fault, injected_fault(fault, network["delay_s"]))
        if not schedule.lasting:
            self.fabric.schedule(HEALED_S, HealFault())
        for name in self.sides:
            self.fabric.host(name).listen(_Listener(self, name))
        if schedule.kind == "long":
            self.fabric.sample(CENSUS_S, lambda _: self.watch.check_memory(), schedule.watched_s or 0.0)

    def _inject(self, fault: SimFault, effect: InjectedFault) -> None:
        holds = FaultHolds()
        self.fabric.schedule(fault.at, partial(effect.begin, self._faults, holds, 0))
        if effect.lasts:
            end_s = fault.until if fault.until is not None else fault.at + FOREVER_S
            self.fabric.schedule(end_s, partial(effect.end, self._faults, holds))

    def _side(self, name: str, endpoint: Endpoint, ports: int | None = None) -> QpSide:
        side = self.watch.side(name, endpoint, ports)
        host = self.fabric.host(name)
        host.engine = side.engine
        side.is_stalled = lambda: host.stalled
        chance = self._chance
        if chance is not None:
            rare = RareEngine(side.engine, endpoint, chance)
            host.engine = rare
            side.is_stalled = lambda: host.stalled or rare.is_late
        return side

    def _stalled_planes(self) -> frozenset[int]:
        """Return the planes with a switch that stalls.

        Where all stall at once, a packet that left towards the end of the stall may be answered before one that waited
        through it on another path.
        """
        planes = {switch.name: switch.plane for switch in self.plan.switches}
        stalls = [fault.where for fault in self.schedule.faults if fault.kind == "stall"]
        if "switches" in stalls:
            return frozenset(range(self.plan.planes))
        return frozenset(planes[name] for name in stalls if name in planes)

    def _renewal_s(self, number: int) -> float:
        """Return the time when a connection is made anew; posts from then on belong to its next life."""
        times = [f.until for f in self.schedule.faults if f.kind == "restart" and f.where in self.schedule.qps[number]]
        return min((time for time in times if time is not None), default=FOREVER_S)

    def _connect(self, number: int, start_s: float, end_s: float, restart: SimFault | None = None) -> None:
        """Make QPs and lanes of a connection, for posts from `start_s` on and before `end_s`.

        `restart`: the fault after which the connection is made anew; it may ask for the former QPN and PSN.
        """
        schedule, rng, now = self.schedule, self._rng, self.fabric.now
        pair = [self.sides[name] for name in schedule.qps[number]]
        qps = [self._make_qp(number, side, restart) for side in (0, 1)]
        lanes = []
        for side in (0, 1):
            side_posts = [p for p in schedule.posts if (p.qp, p.side) == (number, side) and start_s <= p.at < end_s]
            times = sorted((p.at + n * p.every, index, p) for index, p in enumerate(side_posts) for n in range(p.times))
            posts = [post for _, _, post in times]
            lane = Lane(pair[side], pair[1 - side], [_bytes(rng, p.size) for p in posts], [p.imm for p in posts])
            lanes.append(lane)
            self.lanes[number, side] = lane
            self.due[lane] = 0
            host = self.fabric.host(pair[side].name)
            for time, _, _ in times:
                host.schedule(time, _Poster(self, lane))
        attributes = [qps[s].attributes(lanes[1 - s].region) for s in (0, 1)]
        for side in (0, 1):
            hosts = [self.plan.host(pair[s].name) for s in (side, 1 - side)]
            evs = [(ev, ev_plane(ev)) for ev in self.plan.evs(*hosts)]
            if self.fabric.mode == "structured":  # a layout of its own (§8.5)
                evs = self.fabric.evs(*(self.fabric.host(host.name) for host in hosts))
            qps[side].connect(pair[1 - side].name, attributes[1 - side], evs, now)
        pmtu = min(attributes[0].pmtu_bytes, attributes[1].pmtu_bytes)
        for side, lane in enumerate(lanes):
            lane.connect(qps[side], qps[1 - side], pmtu)
            lane.progress_at = lane.answer_at = lane.busy_at = now
            self.watch.lane(lane)
            for imm in lane.imms:
                if imm is not None:
                    lane.receiver_qp.post_recv()
            bound = self._bound(lane, number)
            if bound is not None:
                self.fabric.push(now + bound, partial(self._check_silence, bound), lane)

    def _make_qp(self, number: int, side: int, restart: SimFault | None) -> EngineQueuePair:
        name = self.schedule.qps[number][side]
        endpoint = self.sides[name].endpoint
        former_qp = self.lanes[number, side].sender_qp if restart is not None else None
        if former_qp is None or restart is None or name != restart.where:
            qp = endpoint.create_qp()
            if restart is None and self.schedule.psn is not None:
                qp.first_psn = self.schedule.psn
            return qp
        qp = endpoint.create_qp(former_qp.qpn if "qpn" in restart.pattern.split() else None)
        if "psn" in restart.pattern.split():
            qp.first_psn = former_qp.first_psn
        return qp

    # ---- processes and QPs that come and go -------------------------------------------------------------

    def _die(self, fault: SimFault) -> None:
        """End the process of a host; its unsent data is lost."""
        self.fabric.host(fault.where).vanish()
        for lane in self.lanes.values():
            if lane.sender.name == fault.where:
                lane.closed = True

    def _begin_anew(self, fault: SimFault) -> None:
        endpoint = self.fabric.start_process(fault.where)
        ports = sum(port.is_up << plane for plane, port in enumerate(self.fabric.host(fault.where).ports))
        self.sides[fault.where] = self._side(fault.where, endpoint, ports)
        for side in self.sides.values():
            side.reborn.add(fault.where)

    def _reconnect(self, fault: SimFault) -> None:
        """Make the connections of a host anew, as if both ends had agreed out of band."""
        for number, names in enumerate(self.schedule.qps):
            if fault.where not in names:
                continue
            side = names.index(fault.where)
            reverse_lane = self.lanes[number, 1 - side]
            if "keep" not in fault.pattern.split():
                reverse_lane.closed = True
                reverse_lane.sender.endpoint.destroy_qp(reverse_lane.sender_qp.qpn)
            self.old_lanes.append(reverse_lane)
            self._connect(number, fault.until or 0.0, FOREVER_S, fault)

    def _destroy(self, fault: SimFault) -> None:
        """Destroy one QP of a host; its peer is not informed."""
        for side in (0, 1):
            lane = self.lanes[int(fault.value), side]
            if lane.receiver.name == fault.where:
                lane.doomed = True
            elif not lane.closed:
                lane.closed = True
                lane.sender.endpoint.destroy_qp(lane.sender_qp.qpn)

    # ---- application ------------------------------------------------------------------------------------

    def post(self, lane: Lane) -> None:
        """Post the writes that are due, with at most the WriteIMM that the receiver takes at a time.

        The limit is the application's duty (§5.3).
        """
        limit = lane.receiver_qp.config.qp.max_wimm
        while len(lane.posted) < self.due[lane]:
            if lane.imms[len(lane.posted)] is not None and lane.imms_open() >= limit:
                return
            if lane.sender_qp.state is not EngineQpState.RTS or lane.closed:
                return
            lane.post(self.fabric.now)

    def _order(self, fault: SimFault, begin: bool) -> None:
        """Give an order of the controller or the application to one host, or withdraw it."""
        for lane in self.lanes.values():
            if fault.kind == "deny":
                if lane.sender.name == fault.where:
                    evs = lane.sender_qp.ev_states()
                    lane.sender_qp.deny_ev(evs[lane.first_psn % len(evs)]["ev"], begin, self.fabric.now)
            elif lane.receiver.name == fault.where:
                qp = lane.receiver_qp
                if fault.kind == "penalty":
                    qp.set_penalty(100 if begin else 0)
                elif qp.config.qp.dynamic_mpr and lane.sender_qp.config.qp.dynamic_mpr:
                    qp.set_mpr(128 if begin else lane.mpr)

    def is_over(self, lane: Lane) -> bool:
        """Whether all writes of a lane are over."""
        if lane.closed or self._mute(lane.sender.name):
            return True
        if lane.doomed and lane.sender_qp.config.loss.retry_limit is None:
            return True
        if lane.sender_qp.state is EngineQpState.ERROR:
            return lane.ended_count == len(lane.posted)
        return lane.ended_count == len(lane.pieces)

    def finished(self) -> bool:
        return all(self.is_over(lane) for lane in (*self.lanes.values(), *self.old_lanes)) and not self._reborn_later()

    def _reborn_later(self) -> bool:
        """Whether a connection will be made anew, with work of its own."""
        now = self.fabric.now
        return any(f.kind == "restart" and f.until is not None and now < f.until for f in self.schedule.faults)

    def _mute(self, host: str) -> bool:
        """Whether a host's process is gone, or has no CPU for ever."""
        virtual_host = self.fabric.host(host)
        return not virtual_host.alive or virtual_host.stalled_for_ever

    def _bound(self, lane: Lane, number: int) -> float | None:
        """Return the longest silence of a direction, seconds; None: no bound.

        A QP whose neighbour's peer is gone, and nothing else is wrong, gives up its place to what expires once: it
        waits for two timers at most.
        """
        config = lane.sender_qp.config
        bound = silence_bound_s(config, self.trip_s)
        faults = self.schedule.faults
        if self.schedule.kind == "neighbours" and all(f.kind == "destroy" and f.value != number for f in faults):
            bound = min(bound or FOREVER_S, 2 * (config.loss.base_timeout_s + self.trip_s))
        return bound

    # ---- silence ----------------------------------------------------------------------------------------

    def _check_silence(self, bound: float, lane: Lane, now: float) -> None:
        """Check *ends*: raise Violation when a QP with work was silent too long, else check again later."""
        self.fabric.queue.halt()  # a dead host delivers no event
        if self.is_over(lane):
            return
        silent_from = max(
            lane.progress_at, lane.busy_at, lane.excused_at, self.edges[bisect_right(self.edges, now) - 1]
        )
        if lane.ended_count == len(lane.posted) or self._may_wait(lane):
            lane.excused_at = silent_from = now
        elif now - silent_from > bound:
            invariant = "ends" if bound == silence_bound_s(lane.sender_qp.config, self.trip_s) else "neighbours"
            detail = f"silent since {silent_from:.6f} s, at most {bound:.6f} s are due"
            raise Violation(invariant, f"{lane.name}: {detail}: {self._state(lane)}", now)
        self.fabric.push(silent_from + bound + 1e-6, partial(self._check_silence, bound), lane)

    def _may_wait(self, lane: Lane) -> bool:
        """Return whether the QP has a good reason to wait.

        With all EVs denied a QP waits for the controller; with `all_ports_down` "wait", for a port; and any QP for the
        CPU of its host. A port of the peer is one that the QP knows to be up: an update may be lost, and the next one
        comes with the refresh (*ports* checks that).
        """
        qp = lane.sender_qp
        if self.fabric.host(lane.sender.name).stalled:
            return True
        if all(ev.state is EvState.DENIED for ev in qp.paths.profile):
            return True
        ends = (self.fabric.host(lane.sender.name).ports, self.fabric.host(lane.receiver.name).ports)
        known_ports = lane.sender.endpoint.peer_ports(lane.receiver.name)
        return qp.config.loss.all_ports_down == "wait" and not any(
            a.is_up and b.is_up and known_ports >> plane & 1 for plane, (a, b) in enumerate(zip(*ends, strict=True))
        )

    @staticmethod
    def _state(lane: Lane) -> str:
        """Return the state of a stuck lane in one line."""
        qp = lane.sender_qp
        states = Counter(ev.state.name for ev in qp.paths.profile)
        flight = qp.requestor.flight
        return (
            f"{len(lane.posted) - lane.ended_count} writes left, {flight.bytes} bytes in flight, EVs {dict(states)}, "
            f"next_deadline {qp.next_deadline()}"
        )

    # ---- running ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end. Raises Violation."""
        try:
            if self.watch.crowded:
                self._run_incast()
            else:
                self._run_faults()
        except Violation:
            raise
        except Exception as error:
            invariant = "ends" if type(error).__name__ == "StuckError" else "crash"
            raise Violation(invariant, f"{type(error).__name__}: {error}", self.fabric.now) from error
        self.watch.at_the_end()

    def _run_faults(self) -> None:
        fabric = self.fabric
        last = max([HEALED_S, *(post.at for post in self.schedule.posts)])
        lasting = self.schedule.lasting
        limit = self.schedule.watched_s or (LASTING_S if lasting else ENDS_S)
        is_finished = fabric.run_until(self.finished, limit_s=last + limit)
        if not is_finished and not self.finished() and not (lasting and len(fabric.queue)):
            open_writes = ", ".join(
                f"{lane.name}: {len(lane.pieces) - lane.ended_count} of {len(lane.pieces)}"
                for lane in self.lanes.values()
                if not self.is_over(lane)
            )
            raise Violation("ends", f"writes not over {ENDS_S} s after the last fault: {open_writes}", fabric.now)
        fabric.run_for(AFTERMATH_S)
        if any(fault.kind == "restart" for fault in self.schedule.faults):
            self._check_ports(max(last, self.edges[-1]))

    def _run_incast(self) -> None:
        """Check *congestion*: raise Violation unless all is written in time and long flows had even shares."""
        schedule, fabric = self.schedule, self.fabric
        config = Config.from_json(schedule.config)
        sizes = Counter[int]()
        for post in schedule.posts:
            sizes[post.qp] += post.times * (post.size + WIRE_EXTRA * max(1, -(-post.size // config.qp.pmtu_bytes)))
        rate = schedule.network["rate_bps"] * self.plan.planes
        bound = incast_bound_s(config, sizes.total(), max(sizes.values()), rate, config.congestion.base_rtt_s)
        last = max(post.at for post in schedule.posts)
        if not fabric.run_until(self.finished, limit_s=last + bound) and not self.finished():
            open_senders = sum(not self.is_over(lane) for lane in self.lanes.values())
            detail = f"{open_senders} of {len(schedule.qps)} senders are not done {bound:.6f} s after the last write"
            raise Violation("congestion", detail, fabric.now)
        fairness = jain(self.shares)
        congestion = config.congestion
        is_long = 0.0 < LONG_TRIPS * congestion.base_rtt_s <= self.shared_s
        if congestion.fabric_trims and congestion.cc_algorithm != "fixed" and is_long and fairness < LEAST_EVEN:
            raise Violation("congestion", f"Jain's index of {self.shares} bytes is {fairness:.3f}", fabric.now)
        fabric.run_for(AFTERMATH_S)

    def on_completion(self, lane: Lane) -> None:
        """Note the senders' shares when the first of them is done."""
        if self.watch.crowded and not self.shares and lane.pieces and lane.ended_count == len(lane.pieces):
            self.shares = [sender_lane.rcvd for (_, side), sender_lane in self.lanes.items() if side == 0]
            self.shared_s = self.fabric.now - min(post.at for post in self.schedule.posts)

    def _check_ports(self, last: float) -> None:
        """Check *ports*: raise Violation unless, with all leases over, each end knows the other's ports."""
        fabric = self.fabric
        refresh = max(side.endpoint.config.ports.status_refresh_s for side in self.sides.values())
        fabric.run_until(max(fabric.now, last) + (LEASE_REFRESHES + 1) * refresh + 2 * self.trip_s + 0.5)
        for lane in self.lanes.values():
            ends = (lane.sender_qp, lane.receiver_qp)
            if lane.closed or any(qp.state is not EngineQpState.RTS for qp in ends):
                continue
            port_mask = sum(port.is_up << plane for plane, port in enumerate(fabric.host(lane.receiver.name).ports))
            known_mask = lane.sender.endpoint._peers.get(lane.receiver.name).ports & (1 << self.plan.planes) - 1
            if known_mask != port_mask:
                detail = f"{lane.sender.name} takes {known_mask:#b} for the ports of {lane.receiver.name} that are up"
                raise Violation("ports", f"{detail}, they are {port_mask:#b}", fabric.now)

    def stats(self) -> dict[str, int]:
        watch, totals = self.watch, self.fabric.totals()
        lanes = self.lanes.values()
        return {
            "schedules": 1,
            "writes": sum(len(lane.posted) for lane in lanes),
            "completed": sum(lane.ended_count for lane in lanes if lane.failed is None),
            "packets": watch.sent,
            "sent again": watch.resent,
            "lost or dropped": sum(n for key, n in totals.items() if key not in ("forwarded", "marked", "trimmed")),
            "trimmed": totals["trimmed"],
            "marked": totals["marked"],
            "QPs failed": sum(lane.sender_qp.state is EngineQpState.ERROR for lane in lanes),
            "calm": int(watch.is_calm),
            "events": self.fabric.events_done,
        }

    def close(self) -> None:
        """Break reference cycles, see VirtualFabric.close."""
        self.fabric.close()
        self.watch.sides.clear()
        self.watch.lanes.clear()


class _Poster:
    def __init__(self, simulation: Simulation, lane: Lane) -> None:
        self.simulation, self.lane = simulation, lane

    def __call__(self) -> None:
        self.simulation.due[self.lane] += 1
        self.simulation.post(self.lane)


class _Listener:
    """Listener of a host: completions make room for WriteIMM that had to wait."""

    def __init__(self, simulation: Simulation, host: str) -> None:
        self.simulation, self.host = simulation, host

    def __call__(self, event: Any) -> None:
        if type(event) is Completion:
            for lane in self.simulation.lanes.values():
                if lane.sender.name == self.host:
                    self.simulation.post(lane)
                    self.simulation.on_completion(lane)


def simulate(schedule: Schedule, *, keep: bool = False, chance: Chance | None = None) -> SimResult:
    """Run a schedule; the result holds the violation, if any, and with `keep` the simulation."""
    result = SimResult(schedule.seed)
    try:
        simulation = Simulation(schedule, chance)
    except LocalError as error:
        result.violation = Violation("crash", f"set-up: {error}")
        return result
    try:
        simulation.run()
    except Violation as violation:
        result.violation = violation
        result.trace = [_line(entry) for entry in simulation.watch.trace]
    result.stats = simulation.stats()
    if keep:
        result.simulation = simulation
    else:
        simulation.close()
    return result


def _bytes(rng: Random, size: int) -> bytes:
    """Return the content of a write, from a random offset so that writes differ."""
    if 2 * size > len(_BYTES):
        return rng.randbytes(size)
    start = int(rng.random() * (len(_BYTES) - size))
    return _BYTES[start : start + size]


def _line(entry: Sequence[Any]) -> str:
    time, host, kind, record = entry
    text = repr(record)
    if len(text) > 240:
        text = text[:240] + "..."
    return f"{time:12.6f}  {host:<4} {kind:<5} {text}"


# ---- meaning of the records -----------------------------------------------------------------------------


def _queues(network: dict[str, Any]) -> QueueProfile:
    return QueueProfile(
        data_bytes=network["queue_bytes"],
        control_bytes=max(network["queue_bytes"], 4096),
        ecn_min_bytes=network["mark_bytes"],
        trim_bytes=network["trim_bytes"],
    )


_REFUSING = ("bitmap_packets", "work_slots", "rx_buffer_bytes", "dynamic_mpr")
"""Keys with which a responder may refuse packets, or a requestor guess, without any fault."""


def is_calm(schedule: Schedule, configs: dict[str, Config]) -> bool:
    """Return whether no packet can ever be lost.

    Then there are no faults but stalls that end, queues hold everything, and timers are longer than the whole run.
    """
    network = schedule.network
    if network["jitter_s"] or any(fault.kind != "stall" or fault.until is None for fault in schedule.faults):
        return False
    if _stops_between_ports(schedule):
        return False
    if any(KEYS[key].value(config) for config in configs.values() for key in _REFUSING):
        return False
    if any(config.loss.reorder_threshold < SURE for config in configs.values()):
        return False
    if network["trim_bytes"] is not None or network["mark_bytes"] is not None:
        return False
    wire_bytes = sum(post.size + WIRE_EXTRA * (2 + post.size // 256) for post in schedule.posts)
    takes = longest_trip_s(schedule)
    flush = max(config.acks.sack_flush_s for config in configs.values())
    return wire_bytes < network["queue_bytes"] and takes + flush < min(c.loss.base_timeout_s for c in configs.values())


def _stops_between_ports(schedule: Schedule) -> bool:
    """Return whether a host stalls again before it has read all its ports.

    One port is then left unread for longer than an engine allows for (RoundTrips.rest_s), while what was read before is
    answered.
    """
    stalls = [fault for fault in schedule.faults if fault.kind == "stall" and fault.until is not None]
    return any(
        stall.where == earlier.where
        and earlier.until <= stall.at <= earlier.until + schedule.plan["planes"] * earlier.value
        for stall in stalls
        for earlier in stalls
        if stall is not earlier and earlier.value and earlier.until is not None
    )


def longest_trip_s(schedule: Schedule) -> float:
    """Return the longest round trip of a schedule's network: behind a queue of all posted bytes."""
    network = schedule.network
    wire_bytes = sum(post.size + WIRE_EXTRA * (2 + post.size // 256) for post in schedule.posts)
    extra = sum(2 * fault.value for fault in schedule.faults if fault.kind in ("delay", "reorder"))
    takes = wire_bytes * 8 / network["rate_bps"] / network["spine_share"]
    trip_s: float = takes + 10 * (network["delay_s"] + network["jitter_s"]) + extra
    return trip_s


def _edges(fault: SimFault) -> list[float]:
    """Return the times of a fault's begin, end and last effect (late frames, ports read with gaps)."""
    if fault.until is None:
        return [fault.at]
    longer = {"flap": 2 * fault.value, "late": fault.value, "stall": 32 * fault.value}
    return [fault.at, fault.until, fault.until + longer.get(fault.kind, 0.0)]


def injected_fault(fault: SimFault, delay_s: float) -> InjectedFault:
    """Return the fault object of a record, on links of `delay_s`."""
    return MEANINGS[fault.kind](fault, delay_s)


def _pattern(fault: SimFault, _: float) -> InjectedFault:
    return LossFault((fault.way,), pattern=fault.pattern.translate(_LOST), direction="one_way")


def _lost(fault: SimFault, share: float) -> InjectedFault:
    only: Literal["data", "control"] | None = None
    if fault.pattern:
        only = "data" if fault.pattern == "data" else "control"
    return LossFault((fault.way,), share, direction="one_way", only=only)


def _late_fault(fault: SimFault, _: float) -> InjectedFault:
    return LateFault(
        (fault.way,), 1 / LATE_ONE_IN, direction="one_way", seconds=fault.value, twin=fault.pattern == "twin"
    )


def _stall(fault: SimFault, _: float) -> InjectedFault:
    end_s = fault.until if fault.until is not None else fault.at + FOREVER_S
    order = tuple(map(int, fault.pattern.split())) if fault.pattern else None
    return StallFault((fault.where,), end_s - fault.at, order, fault.value)


def _flap(fault: SimFault, _: float) -> InjectedFault:
    end_s = fault.until if fault.until is not None else fault.at + FOREVER_S
    times = max(1, min(20, int((end_s - fault.at) / (2 * fault.value))))
    return FlapFault((fault.ends,), fault.value, fault.value, times)


_LOST = str.maketrans("01", "10")
"""Translation from patterns of what passes to patterns of what is hit."""
MEANINGS: dict[str, Callable[[SimFault, float], InjectedFault]] = {
    "link_down": lambda fault, _: CutFault((fault.ends,)),
    "port_down": lambda fault, _: CutFault((fault.ends,)),
    "one_way": lambda fault, _: _lost(fault, 1.0) if fault.pattern else OneWayFault((fault.way,)),
    "loss": lambda fault, _: _lost(fault, fault.value),
    "corrupt": lambda fault, _: CorruptFault((fault.way,), fault.value, direction="one_way"),
    "duplicate": lambda fault, _: DuplicateFault((fault.way,), fault.value, direction="one_way"),
    "pattern": _pattern,
    "late": _late_fault,
    "delay": lambda fault, delay_s: LineFault((fault.ends,), delay=delay_s + fault.value),
    "reorder": lambda fault, _: LineFault((fault.ends,), jitter=fault.value, in_order=False),
    "flap": _flap,
    "blackhole": lambda fault, _: BlackholeFault((fault.where,)),
    "switch_off": lambda fault, _: PowerOffFault((fault.where,)),
    "stall": _stall,
    "vanish": lambda fault, _: VanishFault((fault.where,)),
}
"""Fault class of each record kind that is a fault of the network, its switches or hosts."""
