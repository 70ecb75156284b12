"""Flows and collectives of a scenario on the virtual fabric; receivers check each message's bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from mrc_testbed.experiments.backend.outcome import CollectiveOutcome, FlowOutcome, iterations_of
from mrc_testbed.experiments.language.model import Transport
from mrc_testbed.experiments.resolve.engine_clock import rc_times
from mrc_testbed.experiments.resolve.flows import CollectivePlan, FlowPlan, pinned_evs
from mrc_testbed.hosts.agent.engine_defaults import dcqcn_rates
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.events import WriteImmReceived
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from mrc_testbed.hosts.traffic.collective_rank import RankDriver
from mrc_testbed.hosts.traffic.message_stream import FlowSender, StreamShape
from mrc_testbed.simulator.fabric import VirtualFabric
from mrc_testbed.simulator.message_slots import MessageSlots


def connect(
    fabric: VirtualFabric,
    source: str,
    target: str,
    transport: Transport,
    config: Config | None,
    control: Any,
    pin: tuple[str, ...] = (),
) -> tuple[Any, Any]:
    """Connect a pair of QPs, with the controller's denylist; return (source QP, target QP)."""
    options: dict[str, Any] = {"transport": transport.kind}
    if transport.kind == "rocev2":
        options["settings"] = rc_settings(fabric, transport)
    if config is not None:
        options["config"] = config
    if pin:
        options["evs"] = pinned_evs(fabric.plan, source, target, pin)
    denied = control.denied_evs(source, target)
    if denied and transport.kind == "mrc":
        options["denied"] = denied
    pair = fabric.connect(source, target, **options)
    control.connected(source, target, pair)
    return pair


def rc_settings(fabric: VirtualFabric, transport: Transport) -> RcConfig:
    """Return the parameters of RoCEv2 QPs; DCQCN's rates go by the NIC's unless the scenario sets others."""
    defaults = {**dcqcn_rates(fabric.links.nic.rate_bps), **rc_times(transport.clock)}
    return RcConfig.from_json({**defaults, **transport.config})


class VirtualFlow:
    """Messages of one flow; see hosts/traffic/message_stream.py."""

    def __init__(
        self,
        fabric: VirtualFabric,
        flow: FlowPlan,
        start_time: float,
        config: Config | None,
        control: Any,
        *,
        latencies: bool,
    ) -> None:
        self.fabric, self.plan, self.start_time = fabric, flow, start_time
        self.name, self.source = f"{flow.work}:{flow.source}-{flow.target}", flow.source
        depth = max(flow.depth, flow.transport.qps)
        shape = StreamShape(self.name, flow.message_bytes, flow.messages, depth, flow.rate_bps, fabric.seed)
        # No bytes are stored: the receiver knows what each payload has to be.
        configs = [config or fabric.config_of(host) for host in (flow.source, flow.target)]
        memory = MessageSlots(shape.content, depth, min(config.qp.pmtu_bytes for config in configs))
        memory.notify_twin(fabric.notify_twin(flow.source, flow.target, memory))
        region = fabric.host(flow.target).endpoint.register(memory)
        self.pairs = [
            connect(fabric, flow.source, flow.target, flow.transport, config, control, flow.pin)
            for _ in range(flow.transport.qps)
        ]
        self.reorder_max = 0
        host = fabric.host(flow.source)
        self.sender = FlowSender(
            [sender for sender, _ in self.pairs],
            shape,
            (region.va, region.rkey),
            lambda: fabric.now,
            host.schedule,
            latencies=latencies,
            receiver=memory,
        )
        for qp, _ in self.pairs:
            host.on_completion(qp.qpn, self.sender.completed)
        host.on_death(self.sender.abandon)
        host.schedule(start_time + flow.start_s, self.sender.start)
        if flow.stop_s is not None:
            host.schedule(start_time + flow.stop_s, self.sender.stop)

    @property
    def is_over(self) -> bool:
        """Whether the flow has started and its sender is over."""
        return self.fabric.now >= self.start_time + self.plan.start_s and self.sender.is_over

    @property
    def received_bytes(self) -> int:
        """Payload placed at the receiver, each byte once."""
        return sum(peer.counters.bytes_received for _, peer in self.pairs)

    def outcome(self) -> FlowOutcome:
        """Return the outcome of the sender, with the counters of its QPs."""
        flow, sender = self.plan, self.sender
        result = FlowOutcome(
            flow.work,
            flow.source,
            flow.target,
            flow.transport.qps,
            flow.message_bytes,
            completed=sender.completed_count,
            failed=sender.failed,
            damaged=sender.damaged_count,
            started_s=flow.start_s,
            finished_s=None if sender.finished_at is None else sender.finished_at - self.start_time,
            latencies_s=sender.latencies_s or [],
        )
        add_counters(result, self.pairs)
        return result


def held_packets(pairs: list[tuple[Any, Any]]) -> int:
    """Return the most packets that a receiving QP holds above a hole; 0 for RoCEv2, which keeps none."""
    return max((receiver.held_packets() for _, receiver in pairs), default=0)


def add_counters(result: FlowOutcome, pairs: list[tuple[Any, Any]]) -> None:
    """Add the counters of the senders' QPs."""
    for sender, _ in pairs:
        counters = sender.counters
        result.lost += counters.lost
        result.lost_worst_qp = max(result.lost_worst_qp, counters.lost)
        result.sent += counters.packets_sent
        result.retransmitted += counters.retransmitted
        result.timeouts += counters.timeouts


class RankFlow:
    """The writes of one rank to one peer, a flow in the time series."""

    def __init__(self, name: str, source: str, target: str, pairs: list[tuple[Any, Any]]) -> None:
        self.name, self.source, self.target, self.pairs = name, source, target, pairs
        self.reorder_max = 0

    @property
    def received_bytes(self) -> int:
        return sum(peer.counters.bytes_received for _, peer in self.pairs)


class VirtualCollective:
    """All ranks of a collective on their hosts."""

    def __init__(
        self,
        fabric: VirtualFabric,
        plan: CollectivePlan,
        start_time: float,
        config: Config | None,
        control: Any,
        seed: int,
    ) -> None:
        self.fabric, self.plan, self.start_time = fabric, plan, start_time
        iterations = plan.warm_up + plan.iterations
        self.drivers = [
            RankDriver(plan.rank(r, seed), iterations, lambda: fabric.now, fabric.host(host).schedule)
            for r, host in enumerate(plan.ranks)
        ]
        regions = [
            {
                name: fabric.host(host).endpoint.register(memoryview(array.data).cast("B"))
                for name, array in driver.rank.regions.items()
            }
            for host, driver in zip(plan.ranks, self.drivers, strict=True)
        ]
        self._own_drivers = [driver for host, driver in zip(plan.ranks, self.drivers, strict=True) if fabric.owns(host)]
        self.flows: list[RankFlow] = []
        # Regions of all ranks come first: a connection needs the peer's.
        for r, host in enumerate(plan.ranks):
            for peer in plan.peers(r):
                peer_host = plan.ranks[peer]
                qps = plan.transport.qps
                pairs = [connect(fabric, host, peer_host, plan.transport, config, control) for _ in range(qps)]
                self.flows.append(RankFlow(f"{plan.work}:{host}-{peer_host}", host, peer_host, pairs))
                remote = {name: (region.va, region.rkey) for name, region in regions[peer].items()}
                self.drivers[r].connect(peer, [sender for sender, _ in pairs], remote)
                for sender, receiver in pairs:
                    fabric.host(host).on_completion(sender.qpn, self.drivers[r].completed)
                    self.drivers[peer].receives_from(receiver.qpn, r, qps)
        for host, driver in zip(plan.ranks, self.drivers, strict=True):
            fabric.host(host).listen(partial(self._event, driver))
            fabric.host(host).on_death(driver.abandon)
            fabric.host(host).schedule(start_time + plan.start_s, driver.start)

    @staticmethod
    def _event(driver: RankDriver, event: Any) -> None:
        if type(event) is WriteImmReceived:
            driver.on_immediate(event.qpn, event.imm)

    @property
    def has_failed(self) -> bool:
        """Whether a rank of this half has failed."""
        return any(driver.failed for driver in self._own_drivers)

    @property
    def is_over(self) -> bool:
        """Whether all iterations have ended at all ranks of this half, or one of them has failed."""
        return self.has_failed or all(driver.done for driver in self._own_drivers)

    @property
    def total_bytes(self) -> int:
        """Payload of all iterations, as the bus factor counts it."""
        driver = self.drivers[0]
        return int(driver.rank.size_bytes * driver.rank.bus_factor * len(self.drivers) * driver.iterations)

    @property
    def received_bytes(self) -> int:
        return sum(flow.received_bytes for flow in self.flows)

    def outcomes(self) -> tuple[CollectiveOutcome, list[FlowOutcome]]:
        """Return the measured iterations (those after the warm-up), and the outcome of each pair of ranks."""
        plan, rank = self.plan, self.drivers[0].rank
        result = CollectiveOutcome(plan.work, plan.kind, list(plan.ranks), rank.size_bytes, rank.bus_factor)
        result.largest_write_bytes = plan.largest_write_bytes()
        states = self.fabric.of_owners(
            plan.ranks,
            [
                (
                    driver.done,
                    driver.failed,
                    [
                        (iteration.time - self.start_time, iteration.wrong_elements, iteration.computing_s)
                        for iteration in driver.results
                    ],
                )
                for driver in self.drivers
            ],
        )
        result.iterations = iterations_of(
            plan.start_s, list(plan.ranks), [records for _, _, records in states], plan.warm_up
        )
        ends = [records[-1][0] for is_done, _, records in states if is_done and records]
        outcomes = flow_outcomes(self.fabric, self.flows, [self._flow_outcome(flow) for flow in self.flows])
        for outcome in outcomes:
            outcome.finished_s = max(ends) if len(ends) == len(self.drivers) else None
        for host, (_, failed, _) in zip(plan.ranks, states, strict=True):
            if failed:  # a rank's writes wait in one queue: failed ones count at the first of its flows
                next(outcome for outcome in outcomes if outcome.source == host).failed = failed
        return result, outcomes

    def _flow_outcome(self, flow: RankFlow) -> FlowOutcome:
        result = FlowOutcome(self.plan.work, flow.source, flow.target, len(flow.pairs), 0)
        result.started_s = self.plan.start_s
        add_counters(result, flow.pairs)
        return result


def flow_outcomes(
    fabric: VirtualFabric, flows: Sequence[VirtualFlow | RankFlow], outcomes: list[FlowOutcome]
) -> list[FlowOutcome]:
    """Return the outcomes as the halves of the senders have them, completed by what the receivers counted."""
    outcomes = fabric.of_owners([outcome.source for outcome in outcomes], outcomes)
    received = fabric.of_owners(
        [outcome.target for outcome in outcomes], [(flow.received_bytes, flow.reorder_max) for flow in flows]
    )
    for outcome, (received_bytes, reorder_max) in zip(outcomes, received, strict=True):
        outcome.received_bytes, outcome.reorder_max = received_bytes, reorder_max
    return outcomes
