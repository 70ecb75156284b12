"""Sizes of a scenario's workloads beside what fills the network: a small message says little about bandwidth.

for line in size_lines(scenario, plan, seed): ...   # "job: all_reduce of 256 KiB, writes of 32 KiB = 32 packets; ..."
"""

from __future__ import annotations

from collections.abc import Iterator

from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.language.model import Scenario
from mrc_testbed.experiments.resolve.flows import CollectivePlan, collective_plans, flow_plans
from mrc_testbed.simulator.profiles import frame_bytes
from mrc_testbed.topologies.plan import Plan


def pipe_packets(scenario: Scenario, plan: Plan, pmtu: int) -> float:
    """Full data packets that a host's planes hold in one unloaded round trip."""
    rate = scenario.links.host.rate or scenario.links.rate
    return plan.planes * rate * scenario.links.rtt / 8 / frame_bytes(pmtu)


def size_lines(scenario: Scenario, plan: Plan, seed: int) -> Iterator[str]:
    """A line for each workload. Raises what collective_plans raises."""
    seen: set[str] = set()
    for flow in flow_plans(scenario, plan, seed):
        if flow.work not in seen:
            seen.add(flow.work)
            yield _line(scenario, plan, flow.work, "messages", flow.message_bytes, flow.transport.pmtu)
    for group in collective_plans(scenario, plan, seed):
        what = f"{group.kind} of {sized(group.size_bytes)}" if not group.scripts else f"{group.kind}, {_sent(group)}"
        name = f"{group.work}: {len(group.ranks)} ranks, {what}"
        yield _line(scenario, plan, name, "largest write", group.largest_write_bytes(), group.transport.pmtu)


def _sent(group: CollectivePlan) -> str:
    return f"{sized(group.size_bytes)} a rank and step"


def _line(scenario: Scenario, plan: Plan, name: str, what: str, size: int, pmtu: int) -> str:
    return f"{name}; {what} {sized(size)} = {in_packets(scenario, plan, size, pmtu)}"


def in_packets(scenario: Scenario, plan: Plan, size: int, pmtu: int) -> str:
    """`14 packets of 1024 B, where 43 fill a host's pipe`."""
    packets = -(-size // pmtu)
    pipe = pipe_packets(scenario, plan, pmtu)
    return f"{packets} packet{'s' if packets != 1 else ''} of {pmtu} B, where {pipe:.0f} fill a host's pipe"


def recorded_lines(scenario: Scenario, plan: Plan, outcome: Outcome) -> Iterator[str]:
    """The same for a run that is over, from what it recorded."""
    for one in outcome.collectives:
        if one.largest_write_bytes:
            told = in_packets(scenario, plan, one.largest_write_bytes, scenario.transport.pmtu)
            yield f"{one.work}: {one.kind}, largest write {sized(one.largest_write_bytes)} = {told}"
    for work in dict.fromkeys(flow.work for flow in outcome.flows if flow.message_bytes):
        size = next(flow.message_bytes for flow in outcome.flows if flow.work == work)
        yield f"{work}: messages {sized(size)} = {in_packets(scenario, plan, size, scenario.transport.pmtu)}"


def sized(size: int) -> str:
    """`512 B`, `32 KiB`, `1.5 MiB`."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} B"
