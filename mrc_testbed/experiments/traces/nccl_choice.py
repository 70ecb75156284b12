"""NCCL's choice between ring and tree for an all-reduce, by its size and its ranks.

    chosen = choose(1 << 20, ranks=16)       # chosen.algorithm "tree", chosen.protocol "LL128"

The model is that of NCCL 2.28 (src/graph/tuning.cc): for each algorithm and protocol a latency, made of hops, and a
bandwidth; the least time wins. Its numbers here are those of one Hopper GPU and one 400 Gb/s NIC a rank, on Intel CPUs,
with nothing set in the environment. Reduce-scatter and all-gather are rings; where NCCL would take PAT for small ones,
with one GPU a node, the testbed has none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import log2

from mrc_testbed.hosts.traffic.program import AnyTask, JoinCollective, Program, RankTasks

NIC_GB_S = 48.0
"""Bandwidth of the rings together: a 400 Gb/s NIC as NCCL counts it."""
CHANNELS = 2
LL_MAX_GB_S = {2: 39.0}
LL_MAX_MANY_GB_S = 20.4
"""Most of the protocol LL with two nodes, and with more."""
RING_LL128_GB_S = 36.7
TREE_GB_S, TREE_LL128_GB_S = (41.4, 36.0), (36.7, 29.0)
"""Most of a channel; of trees with two nodes, and with more."""
HOP_US = {"LL": 5.0, "LL128": 8.5, "Simple": 14.0}
BASE_US = {"tree": {"LL": 6.8, "LL128": 14.0, "Simple": 8.4}, "ring": {"LL": 6.6, "LL128": 14.0, "Simple": 8.4}}
PLATEAU = 1.4
"""Factor on the latency of a ring of the protocol Simple, from 64 bytes a channel and rank."""
TREE_FACTORS = {
    "LL": "1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1 1 1",
    "LL128": "1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1 1 1",
    "Simple": ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9 .9",
}
"""Protocol -> factors on the bandwidth of trees, by powers of two from 64 bytes."""
PROTOCOLS = tuple(HOP_US)
RING, TREE = "all_reduce", "all_reduce_tree"
MODEL = "NCCL 2.28's model for one H100 and one 400 Gb/s NIC a rank"


@dataclass(frozen=True, slots=True)
class NcclChoice:
    """Algorithm and protocol, and the time that NCCL expects."""

    algorithm: str
    protocol: str
    time_us: float


@lru_cache(maxsize=4096)
def choose(size: int, ranks: int) -> NcclChoice:
    """Return NCCL's choice for an all-reduce of `size` bytes a rank."""
    choices = [
        NcclChoice(algorithm, protocol, _time_us(algorithm, protocol, size, ranks))
        for algorithm in ("tree", "ring")
        for protocol in PROTOCOLS
    ]
    return min(choices, key=lambda choice: choice.time_us)


def _time_us(algorithm: str, protocol: str, size: int, ranks: int) -> float:
    hops = 2 * (ranks - 1) if algorithm == "ring" else 2 * int(log2(ranks))
    latency = hops * HOP_US[protocol]
    bandwidth = _ring_gb_s(protocol, ranks) if algorithm == "ring" else _tree_gb_s(protocol, ranks)
    power = (size >> 6).bit_length() - 1
    factors = TREE_FACTORS[protocol].split()
    if algorithm == "tree" and 0 <= power < len(factors) - 1:
        bandwidth *= float(factors[power])
    base = BASE_US[algorithm][protocol] + latency
    if (algorithm, protocol) == ("ring", "Simple") and size // (CHANNELS * ranks) >= 64:
        base *= PLATEAU
    return base + size / (1000 * bandwidth)


def _ring_gb_s(protocol: str, ranks: int) -> float:
    """Return bytes of the buffer by time: the bus bandwidth, over what each byte crosses of it."""
    limits = {
        "LL": min(LL_MAX_GB_S.get(ranks, LL_MAX_MANY_GB_S), NIC_GB_S / 2),
        "LL128": min(NIC_GB_S * 0.92, CHANNELS * RING_LL128_GB_S),
    }
    return limits.get(protocol, NIC_GB_S) * ranks / (2 * (ranks - 1))


def _tree_gb_s(protocol: str, ranks: int) -> float:
    index = int(ranks > 2)
    tree = min(NIC_GB_S * 0.92, CHANNELS * TREE_GB_S[index])
    limits = {
        "LL": min(tree / 3.8, LL_MAX_GB_S.get(ranks, LL_MAX_MANY_GB_S)),
        "LL128": min(tree * 120 / 128, CHANNELS * TREE_LL128_GB_S[index]),
    }
    return limits.get(protocol, tree) / 2


def choose_for(program: Program) -> Program:
    """Return the program with its all-reduces as rings or trees, as NCCL would carry them out."""
    counts = dict.fromkeys((RING, TREE), 0.0)

    def with_choice(task: AnyTask) -> AnyTask:
        if not isinstance(task, JoinCollective) or task.kind != RING:
            return task
        kind = TREE if choose(task.size, len(task.group)).algorithm == "tree" else RING
        counts[kind] += 1 / len(task.group)
        return replace(task, kind=kind)

    ranks = tuple(RankTasks(tuple(map(with_choice, rank.tasks))) for rank in program.ranks)
    if not any(counts.values()):
        return program
    note = f"all-reduces: {round(counts[RING])} as rings, {round(counts[TREE])} as trees, by {MODEL}"
    return replace(program, ranks=ranks, notes=(*program.notes, note))
