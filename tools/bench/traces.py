"""`mrc bench traces`: step times of traces here, in ASTRA-sim and in LogGOPSim, on the same links.

The user gives the programs: the analytical ASTRA-sim (of congestion-unaware and congestion-aware, one or both) and
LogGOPSim, with txt2bin beside it. This module writes their inputs and reads what they print. Without --trace the cases
are collectives alone, as Chakra traces that both read. A trace of another kind is given to ASTRA-sim as Chakra
(chakra_writer.py); LogGOPSim gets every trace as GOAL, its collectives as the messages that our ranks send.

One switch with a host a rank, all links alike. ASTRA-sim and LogGOPSim have no packets and get the full rate of a link,
and no overheads of their own: 1 ns at endpoints (ASTRA-sim takes no 0), no time to add up. Each all-reduce is what the
reader of traces chose, as NCCL chooses, rings or two trees.

    MRC          the packet simulator: 4096 bytes of payload a packet, headers, acknowledgments, congestion control
    MRC, fluid   what the fluid model has of it, for rings alone: the mean of many iterations

Schema `mrc-bench-traces/1` (`--json`):

    fabric     rate_bps, rtt_s, hop_s (delay of a link), pmtu
    cases      a list: name, ranks, algorithms; mrc_s, fluid_s (null where it has none); peers: by program `seconds`,
               `difference` (ours over theirs, less 1), or `refused`, why it has no figure
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mrc_testbed.console.progress import Progress
from mrc_testbed.console.units import show_size
from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.fluid.fluid_flows import RINGS
from mrc_testbed.experiments.fluid.fluid_run import FluidRunner
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.resolve.run_plan import RunPlan
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.experiments.traces.goal_text import goal_of
from mrc_testbed.experiments.traces.read import read_trace
from mrc_testbed.experiments.virtual.virtual_run import VirtualRunner
from mrc_testbed.hosts.traffic.collectives import bus_factor_of
from mrc_testbed.hosts.traffic.program import JoinCollective, Program, RankTasks
from mrc_testbed.simulator.profiles import ProfileError, scaled_profiles
from tools.bench.chakra_writer import groups_file, write_chakra
from tools.bench.peer_program import run_program

SCHEMA = "mrc-bench-traces/1"
PMTU = 4096
USUAL_RTT_S = 0.010
"""Round trip to which the engine's own times belong; they are shortened with it."""
SACK_FLUSH_LEAST_S = 1e-6
CLOCK_LEAST = 0.001
"""Least that a scenario takes of the engine's usual times."""
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
GIB = 1 << 30
"""Bytes that ASTRA-sim's networks count as a GB."""
ENDLESS_BYTES = (1 << 31) - 1
"""Size from which LogGOPSim would send by rendezvous: none here reaches it."""
RANKS_MAX = 64
"""Most hosts at one switch."""
LIMIT_S = 3600
FLUID_S = 0.1
FLUID_ITERATIONS = 100_000
"""More than fit into FLUID_S: a rate is measured."""
ASTRA_NAMES = {"ring": "ring", "tree": "doubleBinaryTree"}
RANK_END = re.compile(r"sys\[(\d+)\] finished, (\d+) cycles")
HOST_TIME = re.compile(r"^(?:Host \d+:|Maximum finishing time at host \d+:) (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class OneSwitch:
    """Hosts at one switch, with links of one rate and one delay."""

    rate_bps: float
    rtt_s: float
    """Unloaded round trip over a T1, as a scenario's `links: rtt` has it."""

    @property
    def config(self) -> dict[str, float]:
        """Settings of the engine where a SACK would wait less than it may: on short round trips."""
        return {} if self.rtt_s >= 10 * SACK_FLUSH_LEAST_S else {"sack_flush_s": SACK_FLUSH_LEAST_S}

    @property
    def hop_s(self) -> float:
        """Delay of a link. Raises UsageError where packets take the whole round trip to be sent."""
        try:
            profiles = scaled_profiles(
                1, rate_bps=self.rate_bps, rtt_s=self.rtt_s, pmtu_bytes=PMTU, config=dict(self.config)
            )
        except ProfileError as error:
            raise UsageError(f"--rate and --rtt: {error}") from None
        return profiles.links.nic.delay_s


@dataclass(frozen=True)
class TraceCase:
    """A trace, and the file of its process groups."""

    name: str
    trace: Path
    groups: Path | None = None
    ranks: int | None = None
    """Number of ranks, where a trace does not say it."""

    def program(self) -> Program:
        """Return what the trace holds. Raises TraceError."""
        return read_trace(self.trace, groups=self.groups, ranks=self.ranks)


def collective_cases(
    kinds: Sequence[str], ranks: Sequence[int], sizes: Sequence[int], folder: Path, *, chunks: int = 1
) -> Iterator[TraceCase]:
    """Write a trace of each collective into the folder; yield it.

    Sizes are those of nccl-tests. `chunks`: equal parts of it, one after the other.
    """
    for kind, count, size in product(kinds, ranks, sizes):
        name = f"{kind} {show_size(size)} x {count}"
        group = tuple(range(count))
        tasks = tuple(
            JoinCollective(kind=kind, size=size // chunks, group=group, after=(part - 1,) if part else ())
            for part in range(chunks)
        )
        program = Program(name, (RankTasks(tasks),) * count)
        yield TraceCase(name, write_chakra(program, folder, re.sub(r"\W+", "-", name)))


def rank_counts(text: str) -> list[int]:
    """Return the numbers of an option `--ranks 4,16`. Raises UsageError."""
    counts = [int(word) if word.strip().isdecimal() else 0 for word in text.split(",")]
    if not all(2 <= count <= RANKS_MAX for count in counts):
        raise UsageError(f"--ranks {text}: numbers from 2 to {RANKS_MAX} with commas between, such as 4,16")
    return counts


def algorithms_of(program: Program) -> dict[str, str]:
    """Return the algorithm of each collective of a program: ring, tree, or direct for an all-to-all."""
    kinds = {task.kind for rank in program.ranks for task in rank.tasks if isinstance(task, JoinCollective)}
    names = {"all_reduce_tree": "tree", "all_to_all": "direct"}
    return {kind: names.get(kind, "ring") for kind in sorted(kinds)}


# ---- here -------------------------------------------------------------------------------------------------------


def scenario_text(fabric: OneSwitch, ranks: int, work: dict[str, Any], end: dict[str, Any]) -> str:
    """Return a scenario of one workload in a rack of one plane; JSON is YAML."""
    data = {
        "title": "A trace beside other simulators",
        "fabric": {"planes": 1, "racks": 2, "spines": 1, "hosts_per_rack": ranks},
        "links": {"rate": fabric.rate_bps, "rtt": fabric.rtt_s},
        "transport": {"pmtu": PMTU, "clock": max(CLOCK_LEAST, fabric.rtt_s / USUAL_RTT_S), "config": fabric.config},
        "workload": [{"name": "job", "ranks": ranks, **work}],
        **end,
    }
    return json.dumps(data)


def _plan(text: str, backend: str, folder: Path) -> RunPlan:
    path = folder / "scenario.yaml"
    path.write_text(text)
    (plan,) = plan_runs(read(path), backend).runs
    return plan


def run_mrc(fabric: OneSwitch, case: TraceCase, folder: Path) -> float:
    """Return the seconds of a step in the packet simulator. Raises RuntimeError without one."""
    work: dict[str, Any] = {"trace": str(case.trace)}
    if case.groups is not None:
        work["groups"] = str(case.groups)
    text = scenario_text(fabric, len(case.program().ranks), work, {"limit": LIMIT_S})
    outcome = VirtualRunner().run(_plan(text, "virtual", folder))
    (collective,) = outcome.collectives
    if not outcome.finished or len(collective.iterations) != 1 or collective.iterations[0].wrong:
        raise RuntimeError(f"{case.name}: its step did not end in {LIMIT_S} s, or with wrong sums")
    return collective.iterations[0].finished_s - collective.iterations[0].started_s


def run_fluid(fabric: OneSwitch, program: Program, folder: Path) -> float | None:
    """Return the seconds of a step of one ring in the fluid model.

    None for other programs, and where the engine needs settings that the model does not follow.
    """
    tasks = [rank.tasks for rank in program.ranks]
    first = tasks[0][0] if tasks[0] else None
    is_ring = isinstance(first, JoinCollective) and first.kind in RINGS and all(rank == (first,) for rank in tasks)
    if not is_ring or fabric.config:
        return None
    assert isinstance(first, JoinCollective)
    work = {"collective": first.kind, "size": first.size, "iterations": FLUID_ITERATIONS}
    text = scenario_text(fabric, len(tasks), work, {"duration": FLUID_S})
    outcome = FluidRunner().run(_plan(text, "fluid", folder))
    rate_bps = 8 * sum(flow.received_bytes for flow in outcome.flows) / len(tasks) / outcome.duration_s
    return 8 * first.size * bus_factor_of(first.kind, len(tasks)) / rate_bps


# ---- ASTRA-sim --------------------------------------------------------------------------------------------------


def astra_inputs(fabric: OneSwitch, program: Program) -> dict[str, str]:
    """Return the texts of ASTRA-sim's configurations by file name.

    One switch, chunks are whole, adding up takes no time. A host takes 1 ns for a message: ASTRA-sim takes no 0.
    """
    algorithms = algorithms_of(program)
    ring = "tree" if "all_reduce_tree" in algorithms and "all_reduce" not in algorithms else "ring"
    system = {
        "scheduling-policy": "FIFO",
        "endpoint-delay": 1,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        "all-reduce-implementation": [ASTRA_NAMES[ring]],
        "all-gather-implementation": ["ring"],
        "reduce-scatter-implementation": ["ring"],
        "all-to-all-implementation": ["direct"],
        "collective-optimization": "baseline",
        "local-mem-bw": 1_000_000_000,
        "boost-mode": 0,
    }
    network = (
        f"topology: [ Switch ]\nnpus_count: [ {len(program.ranks)} ]\n"
        f"bandwidth: [ {fabric.rate_bps / 8 / GIB!r} ]\nlatency: [ {fabric.hop_s * 1e9!r} ]\n"
    )
    return {
        "system.json": json.dumps(system),
        "network.yml": network,
        "memory.json": json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}),
    }


def run_astra(binary: Path, fabric: OneSwitch, case: TraceCase, folder: Path) -> float:
    """Return the seconds of a step in ASTRA-sim. Raises UsageError when it fails or a rank does not end."""
    program = case.program()
    if case.trace.suffix == ".et":
        first, groups = case.trace, case.groups
    else:
        first = write_chakra(program, folder, "workload")
        groups = groups_file(folder, "workload")
    for name, text in astra_inputs(fabric, program).items():
        (folder / name).write_text(text)
    command: list[str | Path] = [binary, f"--workload-configuration={str(first).removesuffix('.0.et')}"]
    command += ["--system-configuration=system.json", "--network-configuration=network.yml"]
    command += ["--remote-memory-configuration=memory.json"]
    command += [f"--comm-group-configuration={groups}"] if groups is not None and groups.stat().st_size > 2 else []
    output = run_program("--astra-sim", command, folder).output
    ends = {int(rank): int(cycles) for rank, cycles in RANK_END.findall(output)}
    if len(ends) != len(program.ranks):
        text = f"{len(ends)} of {len(program.ranks)} ranks ended"
        raise UsageError(f"--astra-sim {binary}: {case.name}: {text}. Output: {output[-500:]}")
    return max(ends.values()) * 1e-9


def astra_title(binary: Path) -> str:
    """Return the name of a column: ASTRA-sim, and which of its networks the program's name says."""
    way = next((way for way in ("unaware", "aware") if way in binary.name.lower()), "")
    return f"ASTRA-sim, {way}" if way else f"ASTRA-sim, {binary.name}"


# ---- LogGOPSim --------------------------------------------------------------------------------------------------


def run_loggopsim(binary: Path, fabric: OneSwitch, case: TraceCase, folder: Path) -> float:
    """Return the seconds of a step in LogGOPSim. Raises UsageError when it fails."""
    text, schedule = folder / "step.goal", folder / "step.bin"
    text.write_text(goal_of(case.program()))
    run_program("--loggopsim", [binary.with_name("txt2bin"), "-i", text, "-o", schedule], folder)
    command: list[str | Path] = [binary, "-f", schedule, "-L", f"{2 * fabric.hop_s * 1e9:.0f}", "-o", "0", "-g", "0"]
    command += ["-G", repr(8e9 / fabric.rate_bps), "-O", "0", "-S", str(ENDLESS_BYTES)]
    output = run_program("--loggopsim", command, folder).output
    ends = [int(nanoseconds) for nanoseconds in HOST_TIME.findall(output)]
    if not ends:
        raise UsageError(f"--loggopsim {binary}: {case.name}: no time of a host. Output: {output[-500:]}")
    return max(ends) * 1e-9


# ---- all --------------------------------------------------------------------------------------------------------


def run(
    fabric: OneSwitch,
    cases: Sequence[TraceCase],
    *,
    astra: Sequence[Path],
    loggopsim: Path | None,
    console: Console,
) -> dict[str, Any]:
    """Run cases in all simulators; see the module's schema."""
    peers: dict[str, Callable[[TraceCase, Path], float]] = {}
    for binary in astra:
        peers[astra_title(binary)] = partial(run_astra, binary, fabric)
    if loggopsim is not None:
        peers["LogGOPSim"] = partial(run_loggopsim, loggopsim, fabric)
    rows = []
    with Progress(console, "bench traces", guess_s=10.0 * len(cases)) as progress:
        for case in cases:
            progress.step(f"{case.name} ...")
            rows.append(_row(fabric, case, peers))
    shape = asdict(fabric) | {"hop_s": fabric.hop_s, "pmtu": PMTU}
    return {"schema": SCHEMA, "fabric": shape, "cases": rows}


def _row(fabric: OneSwitch, case: TraceCase, peers: dict[str, Callable[[TraceCase, Path], float]]) -> dict[str, Any]:
    program = case.program()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mrc_s = run_mrc(fabric, case, folder)
        row: dict[str, Any] = {
            "name": case.name,
            "ranks": len(program.ranks),
            "algorithms": algorithms_of(program),
            "mrc_s": mrc_s,
            "fluid_s": run_fluid(fabric, program, folder),
            "peers": {},
        }
        for title, run_peer in peers.items():
            try:
                seconds = run_peer(case, folder)
            except UsageError as error:
                row["peers"][title] = {"refused": str(error)}
            else:
                row["peers"][title] = {"seconds": seconds, "difference": mrc_s / seconds - 1}
    return row


def show(result: dict[str, Any], console: Console) -> None:
    """Print the table of a result, and why a program has no figure."""
    fabric = result["fabric"]
    titles = list(dict.fromkeys(title for row in result["cases"] for title in row["peers"]))
    table = Table(
        title=f"{fabric['rate_bps'] / 1e9:g} Gb/s, {fabric['hop_s'] * 1e6:.3f} us a link, one switch; times in us, and "
        "ours against theirs",
        title_justify="left",
    )
    for title in ("case", "", "MRC", "MRC, fluid"):
        table.add_column(title, justify="left" if title in ("case", "") else "right")
    for title in titles:
        table.add_column(title, justify="right")
        table.add_column("", justify="right")
    for row in result["cases"]:
        cells = [row["name"], ", ".join(dict.fromkeys(row["algorithms"].values())), f"{row['mrc_s'] * 1e6:.1f}"]
        cells.append("" if row["fluid_s"] is None else f"{row['fluid_s'] * 1e6:.1f}")
        for title in titles:
            peer = row["peers"][title]
            has_figure = "seconds" in peer
            cells += [f"{peer['seconds'] * 1e6:.1f}", f"{peer['difference']:+.1%}"] if has_figure else ["-", ""]
        table.add_row(*cells)
    console.print(table)
    for row in result["cases"]:
        for title, peer in row["peers"].items():
            if "refused" in peer:
                console.print(f"{row['name']}, {title}: {peer['refused']}")
