"""Which hosts the ranks of a workload are on."""

from __future__ import annotations

import random

from experiments.language.model import RankWork
from topologies.plan import Plan


def placed(work: RankWork, plan: Plan, dice: random.Random) -> tuple[str, ...]:
    """Hosts of a workload's ranks, in order; `random` places are drawn with the dice."""
    if isinstance(work.ranks, list):
        return tuple(work.ranks)
    hosts = [host.name for host in plan.hosts]
    if work.placement == "random":
        dice.shuffle(hosts)
    elif work.placement == "spread":
        hosts.sort(key=lambda name: (plan.host(name).number % plan.hosts_per_rack, plan.host(name).rack))
    return tuple(hosts if work.ranks == "all" else hosts[: work.ranks])
