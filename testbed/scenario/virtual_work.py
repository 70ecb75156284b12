"""Flows and collectives of a scenario on the virtual fabric. Bytes are checked at the receiver, message by message."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

from hosts.collectives import ELEMENT, Rank, Send, make, peers_of
from hosts.engine.config import Config
from hosts.engine.errors import LocalError
from hosts.engine.events import Completion, Status, WriteImmReceived
from hosts.engine.rocev2_rate import RcConfig
from testbed.scenario.flows import CollectivePlan, FlowPlan
from testbed.scenario.model import Scenario, Transport
from testbed.scenario.outcome import CollectiveOutcome, FlowOutcome, Iteration
from testbed.virtual.fabric import VirtualFabric
from topologies.plan import Plan

PATTERN_STEP = 257
"""Message i is the pattern from byte i x this on (modulo): consecutive messages differ in nearly every byte."""
PATTERN_EXTRA = 1 << 16
PARTS_MAX = 256
STEPS_MAX = 1 << 12
"""An immediate is iteration (12 bits), step (12 bits), part (8 bits)."""


def connect(
    fabric: VirtualFabric, source: str, target: str, transport: Transport, config: Config | None, control: Any,
    pin: tuple[str, ...] = (), number: int = 0,
) -> tuple[Any, Any]:  # fmt: skip
    """One connected pair of QPs, with the controller's denylist. `number`: of the QP in its flow."""
    options: dict[str, Any] = {"transport": transport.kind}
    if transport.kind == "rocev2":
        options["settings"] = rc_settings(fabric, transport)
    if config is not None:
        options["config"] = config
    if pin:
        options["evs"] = pinned(fabric.plan, source, target, pin)
    denied = control.denied_evs(source, target)
    if denied and transport.kind == "mrc":
        options["denied"] = denied
    pair = fabric.connect(source, target, **options)
    control.connected(source, target, pair)
    return pair


def rc_settings(fabric: VirtualFabric, transport: Transport) -> RcConfig:
    """The baseline's parameters; its line rate is that of the NIC unless the scenario says another."""
    defaults = {"line_rate_bps": fabric.links.nic.rate_bps}
    return RcConfig.from_json({**defaults, **transport.config})


def pinned(plan: Plan, source: str, target: str, nodes: tuple[str, ...]) -> list[int]:
    """EVs whose path crosses all `nodes`. Raises LocalError when there is none."""
    a, b = plan.host(source), plan.host(target)
    evs = [ev for ev in plan.evs(a, b) if set(nodes) <= set(plan.path(a, b, ev).nodes)]
    if not evs:
        raise LocalError(f"no path from {source} to {target} crosses {', '.join(nodes)}")
    return evs


class VirtualFlow:
    """Messages of one flow, round robin over its QPs, `depth` outstanding in all (at least one a QP)."""

    def __init__(
        self, fabric: VirtualFabric, plan: Plan, flow: FlowPlan, begins: float, config: Config | None, control: Any,
        scenario: Scenario,
    ):  # fmt: skip
        self.fabric, self.plan, self.begins = fabric, flow, begins
        self.name = f"{flow.work}:{flow.source}-{flow.target}"
        qps = flow.transport.qps
        self.depth = max(flow.depth, qps)
        self._latency = scenario.measure.latency
        self._pattern = memoryview(Random(f"{fabric.seed}/{self.name}").randbytes(flow.message_bytes + PATTERN_EXTRA))
        self.memory = bytearray(self.depth * flow.message_bytes)
        self.region = fabric.host(flow.target).endpoint.register(memoryview(self.memory))
        self.pairs = [
            connect(fabric, flow.source, flow.target, flow.transport, config, control, flow.pin, number)
            for number in range(qps)
        ]
        self._waiting: dict[int, deque[tuple[int, float]]] = {qp.qpn: deque() for qp, _ in self.pairs}
        """By QP: (message number, posted at), oldest first."""
        self._free = deque(range(self.depth))
        self._slot: dict[int, int] = {}
        self.posted = 0
        self.result = FlowOutcome(flow.work, flow.source, flow.target, qps, flow.message_bytes)
        self._stopped = False
        self._alive = {qp.qpn for qp, _ in self.pairs}
        for qp, _ in self.pairs:
            fabric.host(flow.source).on_completion(qp.qpn, self._completed)
        fabric.at(begins + flow.start_s, self._start)
        if flow.stop_s is not None:
            fabric.at(begins + flow.stop_s, self._stop)

    def _start(self) -> None:
        self.result.started_s = self.fabric.now - self.begins
        self._post()

    def _stop(self) -> None:
        self._stopped = True

    @property
    def done(self) -> bool:
        """Nothing more will happen."""
        if self.fabric.now < self.begins + self.plan.start_s:
            return False
        over = self._stopped or self.posted == self.plan.messages or not self._alive
        return over and not any(self._waiting.values())

    @property
    def received_bytes(self) -> int:
        """Payload placed at the receiver, each byte once."""
        return sum(peer.counters.bytes_received for _, peer in self.pairs)

    def _data(self, number: int) -> memoryview:
        start = number * PATTERN_STEP % PATTERN_EXTRA
        return self._pattern[start : start + self.plan.message_bytes]

    def _post(self) -> None:
        """Post what the depth and the offered rate allow, on the QP with the fewest messages waiting."""
        now = self.fabric.now
        size, rate = self.plan.message_bytes, self.plan.rate_bps
        while self._free and self._alive and not self._stopped and self.posted != self.plan.messages:
            if rate is not None:
                due = self.begins + self.plan.start_s + self.posted * size * 8 / rate
                if due > now + 1e-12:
                    self.fabric.at(due, self._post)
                    return
            qp = min(
                (q for q, _ in self.pairs if q.qpn in self._alive), key=lambda q: (len(self._waiting[q.qpn]), q.qpn)
            )
            slot = self._free.popleft()
            self._slot[self.posted] = slot
            self._waiting[qp.qpn].append((self.posted, now))
            qp.post_write(self._data(self.posted), self.region.va + slot * size, self.region.rkey, now=now)
            self.posted += 1

    def _completed(self, completion: Completion) -> None:
        number, posted_at = self._waiting[completion.qpn].popleft()
        slot, size = self._slot.pop(number), self.plan.message_bytes
        if completion.status is not Status.SUCCESS:
            self.result.failed += 1
            self._alive.discard(completion.qpn)
        else:
            if memoryview(self.memory)[slot * size : (slot + 1) * size] != self._data(number):
                self.result.damaged += 1
            self.result.completed += 1
            self.result.finished_s = completion.at - self.begins
            if self._latency:
                self.result.latencies_s.append(completion.at - posted_at)
        self._free.append(slot)
        self._post()

    def outcome(self) -> FlowOutcome:
        """What came of it, with the counters of its QPs."""
        self.result.received_bytes = self.received_bytes
        add_counters(self.result, self.pairs)
        return self.result


def add_counters(result: FlowOutcome, pairs: list[tuple[Any, Any]]) -> None:
    """Counters of the senders' QPs, and how far their responders saw packets out of order."""
    for sender, receiver in pairs:
        counters = sender.counters
        result.lost += counters.lost
        result.lost_worst_qp = max(result.lost_worst_qp, counters.lost)
        result.sent += counters.packets_sent
        result.retransmitted += counters.retransmitted
        result.timeouts += counters.timeouts
        result.reorder_max = max(result.reorder_max, getattr(receiver.counters, "out_of_order_max", 0))


class _RankFlow:
    """The writes of one rank to one peer: what looks like a flow in the series."""

    def __init__(self, name: str, source: str, target: str, pairs: list[tuple[Any, Any]]):
        self.name, self.source, self.target, self.pairs = name, source, target, pairs

    @property
    def received_bytes(self) -> int:
        return sum(peer.counters.bytes_received for _, peer in self.pairs)


class VirtualCollective:
    """Ranks on hosts, a write with immediate (in `qps` parts) for every Send."""

    def __init__(
        self, fabric: VirtualFabric, plan: CollectivePlan, begins: float, config: Config | None, control: Any,
        scenario: Scenario, seed: int,
    ):  # fmt: skip
        self.fabric, self.plan, self.begins = fabric, plan, begins
        count, qps = len(plan.ranks), plan.transport.qps
        if qps > PARTS_MAX:
            raise LocalError(f"{qps} QPs: a collective splits a write into at most {PARTS_MAX} parts")
        self.ranks: list[Rank] = [
            make(plan.kind, rank=r, ranks=count, size_bytes=plan.size_bytes, seed=seed) for r in range(count)
        ]
        self.iterations = plan.warm_up + plan.iterations
        self._regions = [
            {
                name: fabric.host(host).endpoint.register(memoryview(array).cast("B"))
                for name, array in rank.regions.items()
            }
            for host, rank in zip(plan.ranks, self.ranks, strict=True)
        ]
        self.flows: list[_RankFlow] = []
        self._links: dict[tuple[int, int], list[Any]] = {}
        self._source: dict[tuple[str, int], int] = {}
        """(host, QPN of its receiving QP) -> the rank that sends to it."""
        self._queue: dict[int, deque[tuple[bytes | memoryview, int, int, int]]] = {}
        """By sending QP (its id): writes that the peer's WriteIMM limit held back."""
        self._parts: dict[tuple[int, int, int], int] = {}
        self._pending = [0] * count
        """Writes of each rank that have not completed."""
        self._began = [0.0] * (self.iterations + 1)
        self._ended: list[list[float]] = [[-1.0] * count for _ in range(self.iterations)]
        self._wrong = [0] * self.iterations
        self.failed = 0
        self._rank_of = {host: r for r, host in enumerate(plan.ranks)}
        self._connect(config, control)
        for r, host in enumerate(plan.ranks):
            fabric.host(host).listen(lambda event, r=r: self._event(r, event))
        fabric.at(begins + plan.start_s, self._start)

    def _connect(self, config: Config | None, control: Any) -> None:
        plan = self.plan
        for r, host in enumerate(plan.ranks):
            for peer in peers_of(plan.kind, r, len(plan.ranks)):
                other = plan.ranks[peer]
                pairs = [
                    connect(self.fabric, host, other, plan.transport, config, control, number=n)
                    for n in range(plan.transport.qps)
                ]
                self.flows.append(_RankFlow(f"{plan.work}:{host}-{other}", host, other, pairs))
                self._links[r, peer] = [sender for sender, _ in pairs]
                for sender, receiver in pairs:
                    self._source[other, receiver.qpn] = r
                    self._queue[id(sender)] = deque()
                    self.fabric.host(host).on_completion(
                        sender.qpn, lambda done, r=r, sender=sender: self._completed(r, sender, done)
                    )

    # ---- running ----------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """All iterations are over at all ranks, or a QP failed."""
        return bool(self.failed) or (self._over() and not any(self._pending))

    def _over(self) -> bool:
        return all(rank.done and rank.iteration == self.iterations - 1 for rank in self.ranks)

    @property
    def total_bytes(self) -> int:
        """Payload of all iterations, as the bus factor counts it."""
        rank = self.ranks[0]
        return int(rank.size_bytes * rank.bus_factor * len(self.ranks) * self.iterations)

    @property
    def received_bytes(self) -> int:
        return sum(flow.received_bytes for flow in self.flows)

    def _start(self) -> None:
        self._began[0] = self.fabric.now - self.begins
        for r in range(len(self.ranks)):
            self._begin(r)

    def _begin(self, r: int) -> None:
        rank = self.ranks[r]
        iteration = rank.iteration + 1
        if iteration < self.iterations:
            self._post(r, rank.start(iteration))
            self._maybe_next(r)

    def _maybe_next(self, r: int) -> None:
        """The next iteration, once this one is over here and nothing of ours may have to be sent again."""
        rank = self.ranks[r]
        if not rank.done:
            return
        iteration = rank.iteration
        if self._ended[iteration][r] < 0:
            self._ended[iteration][r] = self.fabric.now - self.begins
            self._wrong[iteration] += rank.wrong()
        if not self._pending[r] and iteration + 1 < self.iterations:
            self._begin(r)

    def _post(self, r: int, sends: list[Send]) -> None:
        rank = self.ranks[r]
        for send in sends:
            links = self._links[r, send.peer]
            whole = memoryview(rank.regions[send.region]).cast("B")
            remote = self._regions[send.peer][send.to_region]
            size = send.count * ELEMENT.itemsize
            each = -(-size // len(links) // ELEMENT.itemsize) * ELEMENT.itemsize
            for part, qp in enumerate(links):
                low, high = min(part * each, size), min((part + 1) * each, size)
                start = send.start * ELEMENT.itemsize
                imm = (rank.iteration % STEPS_MAX) << 20 | send.step << 8 | part
                data = whole[start + low : start + high]
                va = remote.va + send.at * ELEMENT.itemsize + low
                self._pending[r] += 1
                self._queue[id(qp)].append((data, va, remote.rkey, imm))
                self._flush(qp)

    def _flush(self, qp: Any) -> None:
        queue = self._queue[id(qp)]
        while queue:
            data, va, rkey, imm = queue[0]
            try:
                qp.post_write(data, va, rkey, now=self.fabric.now, imm=imm)
            except LocalError:  # the peer takes no more WriteIMM now, or the QP failed: the next completion goes on
                return
            queue.popleft()

    def _completed(self, r: int, qp: Any, completion: Completion) -> None:
        self._pending[r] -= 1
        if completion.status is not Status.SUCCESS:
            self.failed += 1
            return
        self._flush(qp)
        self._maybe_next(r)

    def _event(self, r: int, event: Any) -> None:
        if type(event) is not WriteImmReceived:
            return
        source = self._source.get((self.plan.ranks[r], event.qpn))
        if source is None:
            return
        rank = self.ranks[r]
        low = event.imm >> 20
        iteration = low + (rank.iteration - low + STEPS_MAX // 2) // STEPS_MAX * STEPS_MAX
        step = event.imm >> 8 & 0xFFF
        key = (r, source, event.imm >> 8)
        parts = self._parts[key] = self._parts.get(key, 0) + 1
        if parts < len(self._links[source, r]):
            return
        del self._parts[key]
        self._post(r, rank.arrived(source, step, iteration))
        self._maybe_next(r)

    # ---- what came of it --------------------------------------------------------------------------------

    def outcome(self) -> CollectiveOutcome:
        """The measured iterations (those after the warm-up)."""
        plan, rank = self.plan, self.ranks[0]
        made = CollectiveOutcome(plan.work, plan.kind, list(plan.ranks), rank.size_bytes, rank.bus_factor)
        began = self._began[0]
        for number, ended in enumerate(self._ended):
            if min(ended) < 0:
                break
            last = max(ended)
            if number >= plan.warm_up:
                slowest = plan.ranks[ended.index(last)]
                made.iterations.append(Iteration(number - plan.warm_up, began, last, slowest, self._wrong[number]))
            began = last
        return made

    def flow_outcomes(self) -> list[FlowOutcome]:
        """One a pair of ranks."""
        out = []
        for flow in self.flows:
            result = FlowOutcome(self.plan.work, flow.source, flow.target, len(flow.pairs), 0)
            result.received_bytes = flow.received_bytes
            add_counters(result, flow.pairs)
            finished = [ended for ended in self._ended[-1] if ended >= 0]
            result.finished_s = max(finished) if len(finished) == len(self.ranks) else None
            out.append(result)
        if self.failed and out:
            out[0].failed += self.failed
        return out
