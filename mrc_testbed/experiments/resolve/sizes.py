"""Sizes of workloads next to the size that fills the network: small messages do not show bandwidth.

for line in size_lines(plan): ...   # "job: all_reduce of 256 KiB, writes of 32 KiB = 32 packets; ..."
"""

from __future__ import annotations

from collections.abc import Iterator

from mrc_testbed.console.units import show_size
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.simulator.profiles import frame_bytes


def pipe_packets(plan: RunPlan, pmtu: int) -> float:
    """Return how many full data packets a host's planes hold in one unloaded round trip."""
    return plan.nic_bps * plan.rtt_s / 8 / frame_bytes(pmtu)


def size_lines(plan: RunPlan) -> Iterator[str]:
    """Yield a line for each workload. Raises what RunPlan.work raises."""
    works: set[str] = set()
    work = plan.work()
    for flow in work.flows:
        if flow.work not in works:
            works.add(flow.work)
            yield _line(plan, flow.work, "messages", flow.message_bytes, flow.transport.pmtu)
    for group in work.groups:
        size = show_size(group.size_bytes)
        description = f"{group.kind}, {size} a rank and step" if group.scripts else f"{group.kind} of {size}"
        name = f"{group.work}: {len(group.ranks)} ranks, {description}"
        yield _line(plan, name, "largest write", group.largest_write_bytes(), group.transport.pmtu)
    for program in work.programs:
        yield f"{program.work}: program {program}"


def _line(plan: RunPlan, name: str, subject: str, size: int, pmtu: int) -> str:
    return f"{name}; {subject} {show_size(size)} = {in_packets(plan, size, pmtu)}"


def in_packets(plan: RunPlan, size: int, pmtu: int) -> str:
    """Return a text such as `14 packets of 1024 B, where 43 fill a host's pipe`."""
    packets = -(-size // pmtu)
    pipe = pipe_packets(plan, pmtu)
    return f"{packets} packet{'s' if packets != 1 else ''} of {pmtu} B, where {pipe:.0f} fill a host's pipe"
