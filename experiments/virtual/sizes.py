"""Sizes of a scenario's workloads beside what fills the network: a small message says little about bandwidth.

for line in size_lines(scenario, plan, seed): ...   # "job: all_reduce of 256 KiB, writes of 32 KiB = 32 packets; ..."
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from experiments.flows import CollectivePlan, collective_plans, flow_plans
from experiments.language.model import Scenario
from hosts.traffic.collectives import CollectiveOptions, make
from hosts.traffic.program_script import ELEMENT_BYTES, SendTask
from simulator.profiles import frame_bytes
from topologies.plan import Plan

PROBE_BYTES = 1 << 16
"""Size of the collective in which shares are looked at."""


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
        yield _line(
            scenario, plan, f"{group.work}: {len(group.ranks)} ranks, {what}", "largest write", largest_write(group),
            group.transport.pmtu,
        )  # fmt: skip


def _sent(group: CollectivePlan) -> str:
    return f"{sized(group.size_bytes)} a rank and step"


def _line(scenario: Scenario, plan: Plan, name: str, what: str, size: int, pmtu: int) -> str:
    packets = -(-size // pmtu)
    return (
        f"{name}; {what} {sized(size)} = {packets} packet{'s' if packets != 1 else ''} of {pmtu} B, where "
        f"{pipe_packets(scenario, plan, pmtu):.0f} fill a host's pipe"
    )


def largest_write(group: CollectivePlan) -> int:
    """Bytes of the largest write that a rank posts in a step."""
    if not group.scripts:
        return round(group.size_bytes * _largest_share(group.kind, len(group.ranks), group.options))
    sizes = [0]
    for script in group.scripts:
        sizes += [task.elements * ELEMENT_BYTES for task in script.tasks if isinstance(task, SendTask)]
        sizes += [round(one.size * _largest_share(one.kind, len(one.group), one.options)) for one in script.collectives]
    return max(sizes)


@lru_cache(maxsize=256)
def _largest_share(kind: str, ranks: int, options: CollectiveOptions) -> float:
    """Largest write of a collective as a share of its size."""
    made = [make(kind, rank=rank, ranks=ranks, size_bytes=PROBE_BYTES, options=options) for rank in range(ranks)]
    return max(send.count for rank in made for send in rank.start(0)) / made[0].elements


def sized(size: int) -> str:
    """`512 B`, `32 KiB`, `1.5 MiB`."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} B"
