"""One schedule on the virtual-time fabric, under watch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from hosts.engine.config import Config
from hosts.engine.errors import LocalError
from hosts.engine.events import Completion
from hosts.engine.qp import QpState
from testbed.simtest.schedule import HEALED_S, SURE, Fault, Schedule
from testbed.simtest.watch import Lane, Side, Violation, Watch
from testbed.virtual import (
    Blackhole,
    Corrupt,
    Cut,
    Flap,
    Heal,
    HostProfile,
    Line,
    LinkDown,
    LinkProfile,
    LinkUp,
    Loss,
    Mend,
    PowerOff,
    PowerOn,
    QueueProfile,
    Repeat,
    SetLine,
    Stall,
    VirtualFabric,
)
from testbed.virtual.faults import Fault as FabricFault
from topologies.plan import ev_plane

ORDERS = ("deny", "shrink_mpr", "penalty")
"""Kinds of Fault that are no faults of the network."""
ENDS_S = 60.0
"""Virtual seconds after the last fault and the last post within which everything has to be over."""
AFTERMATH_S = 0.05
"""Watched after that, for what is still on its way."""


@dataclass
class Result:
    """How a run went."""

    seed: int
    violation: Violation | None = None
    stats: dict[str, int] = field(default_factory=dict)
    """Counts, to be added up over runs."""
    trace: list[str] = field(default_factory=list)
    """The last packets and events before a violation."""
    simulation: Simulation | None = None
    """What ran, when it was to be kept."""


class Simulation:
    """A schedule, made ready to run."""

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        network = schedule.network
        self.plan = schedule.plan_of()
        configs = schedule.configs()
        switches = dict.fromkeys((switch.name for switch in self.plan.switches), configs["h0"])
        line = Line(network["rate_bps"], network["delay_s"], network["jitter_s"], network["fifo"])
        slower = replace(line, rate_bps=line.rate_bps * network["spine_share"])
        self.fabric = VirtualFabric(
            self.plan, mode=network["mode"], seed=schedule.seed, links=LinkProfile(line, slower),
            queues=_queues(network),
            config={**switches, **configs},  # the fabric asks for those of switches too
            host=HostProfile(ring_packets=network["ring_packets"]), wire=network["wire"], keep_events=False,
        )  # fmt: skip
        self.watch = Watch(calm=is_calm(schedule, configs))
        named = sorted({name for pair in schedule.qps for name in pair})
        self.sides = {name: self.watch.side(name, self.fabric.host(name).endpoint) for name in named}
        self.lanes: dict[tuple[int, int], Lane] = {}
        self.due: dict[Lane, int] = {}
        """Writes that the schedule wants posted by now."""
        self._make_lanes()
        for post in schedule.posts:
            self.fabric.at(post.at, _Poster(self, self.lanes[post.qp, post.side]))
        for fault in schedule.faults:
            if fault.kind in ORDERS:
                self.fabric.at(fault.at, partial(self._order, fault, True))
                self.fabric.at(fault.until, partial(self._order, fault, False))
            else:
                for at, what in fabric_faults(fault, network["delay_s"]):
                    self.fabric.at(at, what)
        self.fabric.at(HEALED_S, Heal())
        for name, side in self.sides.items():
            self.fabric.host(name).listen(_Listener(self, side))

    def _make_lanes(self) -> None:
        schedule = self.schedule
        rng = Random(schedule.seed ^ 0x5EED)
        posts: dict[tuple[int, int], list[Any]] = {}
        for post in schedule.posts:
            posts.setdefault((post.qp, post.side), []).append(post)
        for number, names in enumerate(schedule.qps):
            pair = [self.sides[name] for name in names]
            qps = [side.endpoint.create_qp() for side in pair]
            for qp in qps:
                if schedule.psn is not None:
                    qp.first_psn = schedule.psn
            lanes = []
            for side in (0, 1):
                mine = posts.get((number, side), [])
                pieces = [rng.randbytes(post.size) for post in mine]
                lane = Lane(pair[side], pair[1 - side], pieces, [post.imm for post in mine])
                lanes.append(lane)
                self.lanes[number, side] = lane
                self.due[lane] = 0
            attributes = [qps[s].attributes(lanes[1 - s].region) for s in (0, 1)]
            for side in (0, 1):
                hosts = [self.plan.host(pair[s].name) for s in (side, 1 - side)]
                evs = [(ev, ev_plane(ev)) for ev in self.plan.evs(*hosts)]
                if self.fabric.mode == "structured":  # a layout of its own (§8.5)
                    evs = self.fabric.evs(*(self.fabric.host(host.name) for host in hosts))
                qps[side].connect(pair[1 - side].name, attributes[1 - side], evs, 0.0)
            pmtu = min(attributes[0].pmtu_bytes, attributes[1].pmtu_bytes)
            for side, lane in enumerate(lanes):
                lane.connect(qps[side], qps[1 - side], pmtu)
                self.watch.lane(lane)
                for imm in lane.imms:
                    if imm is not None:
                        lane.receiver_qp.post_recv()

    # ---- application ------------------------------------------------------------------------------------

    def post(self, lane: Lane) -> None:
        """Post what is due, but no more WriteIMM than the receiver takes at a time (§5.3: the application's duty)."""
        limit = lane.receiver_qp._config.max_wimm
        while len(lane.posted) < self.due[lane]:
            if lane.imms[len(lane.posted)] is not None and lane.imms_open() >= limit:
                return
            if lane.sender_qp.state is not QpState.RTS:
                return
            lane.post(self.fabric.now)

    def _order(self, fault: Fault, begin: bool) -> None:
        """An order of the controller or the application to one host, or its withdrawal."""
        for lane in self.lanes.values():
            if fault.kind == "deny":
                if lane.sender.name == fault.where:
                    evs = lane.sender_qp.ev_states()
                    lane.sender_qp.deny_ev(evs[lane.first_psn % len(evs)]["ev"], begin, self.fabric.now)
            elif lane.receiver.name == fault.where:
                qp = lane.receiver_qp
                if fault.kind == "penalty":
                    qp.set_penalty(100 if begin else 0)
                elif qp._config.dynamic_mpr and lane.sender_qp._config.dynamic_mpr:
                    qp.set_mpr(128 if begin else lane.mpr)

    def over(self, lane: Lane) -> bool:
        """Nothing more will come of this direction."""
        if lane.sender_qp.state is QpState.ERROR:
            return lane.ended == len(lane.posted)
        return lane.ended == len(lane.pieces)

    def finished(self) -> bool:
        return all(self.over(lane) for lane in self.lanes.values())

    # ---- running ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """To the end. Raises Violation."""
        fabric = self.fabric
        last = max([HEALED_S, *(post.at for post in self.schedule.posts)])
        try:
            done = fabric.run_until(self.finished, limit_s=last + ENDS_S)
            if not done and not self.finished():
                left = ", ".join(
                    f"{lane.name}: {len(lane.pieces) - lane.ended} of {len(lane.pieces)}"
                    for lane in self.lanes.values() if not self.over(lane)
                )  # fmt: skip
                raise Violation("ends", f"writes not over {ENDS_S} s after the last fault: {left}", fabric.now)
            fabric.run_for(AFTERMATH_S)
        except Violation:
            raise
        except Exception as error:
            which = "ends" if type(error).__name__ == "StuckError" else "crash"
            raise Violation(which, f"{type(error).__name__}: {error}", fabric.now) from error
        self.watch.at_the_end()

    def stats(self) -> dict[str, int]:
        watch, totals = self.watch, self.fabric.totals()
        lanes = self.lanes.values()
        return {
            "schedules": 1,
            "writes": sum(len(lane.posted) for lane in lanes),
            "completed": sum(lane.ended for lane in lanes if lane.failed is None),
            "packets": watch.sent,
            "sent again": watch.resent,
            "lost or dropped": sum(n for key, n in totals.items() if key not in ("forwarded", "marked", "trimmed")),
            "trimmed": totals["trimmed"],
            "marked": totals["marked"],
            "QPs failed": sum(lane.sender_qp.state is QpState.ERROR for lane in lanes),
            "calm": int(watch.calm),
            "events": self.fabric.events_done,
        }


class _Poster:
    def __init__(self, simulation: Simulation, lane: Lane):
        self.simulation, self.lane = simulation, lane

    def __call__(self) -> None:
        self.simulation.due[self.lane] += 1
        self.simulation.post(self.lane)


class _Listener:
    """Completions make room for WriteIMM that had to wait."""

    def __init__(self, simulation: Simulation, side: Side):
        self.simulation, self.side = simulation, side

    def __call__(self, event: Any) -> None:
        if type(event) is Completion:
            for lane in self.simulation.lanes.values():
                if lane.sender is self.side:
                    self.simulation.post(lane)


def simulate(schedule: Schedule, *, keep: bool = False) -> Result:
    """Run a schedule; what went wrong, if anything, is in the result. `keep`: so is the simulation."""
    result = Result(schedule.seed)
    try:
        simulation = Simulation(schedule)
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
    return result


def _line(entry: Sequence[Any]) -> str:
    at, host, what, record = entry
    text = repr(record)
    if len(text) > 240:
        text = text[:240] + "..."
    return f"{at:12.6f}  {host:<4} {what:<5} {text}"


# ---- meaning of the records -----------------------------------------------------------------------------


def _queues(network: dict[str, Any]) -> QueueProfile:
    return QueueProfile(
        data_bytes=network["queue_bytes"], control_bytes=max(network["queue_bytes"], 4096),
        ecn_min_bytes=network["mark_bytes"], trim_bytes=network["trim_bytes"],
    )  # fmt: skip


_REFUSING = ("bitmap_packets", "work_slots", "rx_buffer_bytes", "dynamic_mpr")
"""Keys with which a responder may refuse packets, or a requestor guess, without any fault."""


def is_calm(schedule: Schedule, configs: dict[str, Config]) -> bool:
    """No faults, queues that hold everything, and timers longer than all of it takes: nothing may ever be lost."""
    network = schedule.network
    if schedule.faults or network["jitter_s"]:
        return False
    if any(getattr(config, key, 0) for config in configs.values() for key in _REFUSING):
        return False
    if any(config.reorder_threshold < SURE for config in configs.values()):
        return False
    if network["trim_bytes"] is not None or network["mark_bytes"] is not None:
        return False
    wire_bytes = sum(post.size + 200 * (2 + post.size // 256) for post in schedule.posts)
    takes = wire_bytes * 8 / network["rate_bps"] / network["spine_share"] + 10 * network["delay_s"]
    flush = max(config.sack_flush_s for config in configs.values())
    return wire_bytes < network["queue_bytes"] and takes + flush < min(c.base_timeout_s for c in configs.values())


def fabric_faults(fault: Fault, delay_s: float) -> list[tuple[float, FabricFault]]:
    """What the fabric has to be told, and when."""
    at, until, value, kind = fault.at, fault.until, fault.value, fault.kind
    if kind == "blackhole":
        return [(at, Blackhole(fault.where)), (until, Blackhole(fault.where, False))]
    if kind == "switch_off":
        return [(at, PowerOff(fault.where)), (until, PowerOn(fault.where))]
    if kind == "stall":
        return [(at, Stall(fault.where, min(until - at, 0.2)))]
    a, b = fault.where.split(" ")
    if kind in ("link_down", "port_down"):
        return [(at, LinkDown(a, b)), (until, LinkUp(a, b))]
    if kind == "flap":
        return [(at, Flap(a, b, value, value, max(1, min(20, int((until - at) / (2 * value))))))]
    if kind == "delay":
        return [(at, SetLine(a, b, delay_s=delay_s + value)), (until, SetLine(a, b, delay_s=delay_s))]
    if kind == "reorder":
        return [
            (at, SetLine(a, b, jitter_s=value, fifo=False)),
            (until, SetLine(a, b, jitter_s=0.0, fifo=True)),
        ]
    if fault.reverse:
        a, b = b, a
    if kind == "one_way":
        begin: FabricFault = Cut(a, b)
    elif kind == "loss":
        begin = Loss(a, b, rate=value)
    elif kind == "corrupt":
        begin = Corrupt(a, b, rate=value)
    elif kind == "duplicate":
        begin = Repeat(a, b, rate=value)
    elif fault.pattern.startswith("0"):
        burst = len(fault.pattern) - len(fault.pattern.lstrip("0"))
        begin = Loss(a, b, burst=burst, period=len(fault.pattern))
    else:
        begin = Loss(a, b, every=len(fault.pattern))
    return [(at, begin), (until, Mend(a, b))]
