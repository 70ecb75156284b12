"""Which hosts the ranks of workloads are on: those that a workload names, or as many free ones as it wants."""

from __future__ import annotations

import random

from mrc_testbed.experiments.language.model import RankWork, Scenario
from mrc_testbed.topologies.plan import Plan


def placements(scenario: Scenario, plan: Plan, seed: int) -> dict[int, tuple[str, ...]]:
    """Hosts of each workload that has ranks, by its place in the file.

    Workloads that want a number of hosts get, in file order, those that no other one has or names: tenants do not
    share hosts. `random` places are drawn by the seed. There may be fewer than wanted: validate.py says so. The hosts
    of several `jobs` stand one job after the other (jobs_of).
    """
    works = {at: work for at, work in enumerate(scenario.workload) if isinstance(work, RankWork)}
    taken = {host for work in works.values() if isinstance(work.ranks, list) for host in work.ranks}
    out: dict[int, tuple[str, ...]] = {}
    for at, work in works.items():
        if isinstance(work.ranks, list):
            out[at] = tuple(work.ranks)
            continue
        hosts = [host.name for host in plan.hosts]
        if work.placement == "random":
            random.Random(f"{seed}/{at}").shuffle(hosts)
        elif work.placement == "spread":
            hosts.sort(key=lambda name: (plan.host(name).number % plan.hosts_per_rack, plan.host(name).rack))
        if work.ranks != "all":
            hosts = [host for host in hosts if host not in taken][: work.ranks * work.jobs]
            taken |= set(hosts)
        out[at] = tuple(hosts)
    return out


def jobs_of(work: RankWork, hosts: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Hosts of each job of a workload, of those that placements() found for it."""
    if not isinstance(work.ranks, int):
        return [hosts]
    return [hosts[first : first + work.ranks] for first in range(0, work.ranks * work.jobs, work.ranks)]
