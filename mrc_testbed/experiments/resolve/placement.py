"""Hosts of the ranks of workloads: those that a workload names, or as many free hosts as needed."""

from __future__ import annotations

import random

from mrc_testbed.experiments.language.model import ProgramWork, RankWork, Scenario
from mrc_testbed.topologies.plan import Plan


def placements(scenario: Scenario, plan: Plan, seed: int) -> dict[int, tuple[str, ...]]:
    """Return the hosts of each workload that has ranks, by its index in the file.

    Workloads that give a number get, in file order, hosts that no other workload has or names: tenants do not share
    hosts. `random` placement is drawn by the seed. The hosts may be fewer than the number; validate.py reports it. The
    hosts of several `jobs` stand one job after the other (jobs_of).
    """
    works = {index: work for index, work in enumerate(scenario.workload) if isinstance(work, RankWork | ProgramWork)}
    used_hosts = {host for work in works.values() if isinstance(work.ranks, list) for host in work.ranks}
    out: dict[int, tuple[str, ...]] = {}
    for index, work in works.items():
        if isinstance(work.ranks, list):
            out[index] = tuple(work.ranks)
            continue
        hosts = [host.name for host in plan.hosts]
        if work.placement == "random":
            random.Random(f"{seed}/{index}").shuffle(hosts)
        elif work.placement == "spread":
            hosts.sort(key=lambda name: (plan.host(name).number % plan.hosts_per_rack, plan.host(name).rack))
        if work.ranks != "all":
            needed_count = work.ranks * (work.jobs if isinstance(work, RankWork) else 1)
            hosts = [host for host in hosts if host not in used_hosts][:needed_count]
            used_hosts |= set(hosts)
        out[index] = tuple(hosts)
    return out


def jobs_of(work: RankWork, hosts: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the hosts of each job of a workload, out of the hosts that placements() gave it."""
    if not isinstance(work.ranks, int):
        return [hosts]
    return [hosts[first : first + work.ranks] for first in range(0, work.ranks * work.jobs, work.ranks)]
