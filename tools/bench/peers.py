"""`mrc bench peers`: the same flows here and in htsim_uec, the simulator of NSCC's authors.

The user gives the binary of htsim_uec; this module writes its topology and connection matrix and reads what it prints.
One plane of leaves and spines, all links alike. Four columns in one run:

    MRC        the virtual fabric as MRC wants it: the last hop trims at 1.5 BDP, marks nothing, and receivers answer
               its trims with a penalty
    MRC, two processes
               the same in halves (simulator/halves.py), for machines with two CPUs
    MRC, htsim's queues
               every queue marks from 0.2 to 0.8 BDP and trims at 1 BDP, last hops included; no penalty
    htsim_uec  sender-based NSCC, trimming, 64 hashed entropies, and "bitmap", which passes over bad ones

MRC has an EV for each spine, all of them active. Both simulators send as many packets of the same length, start all
flows at 0, and know a flow's end at its sender. A cell is the median of the seeds.

CPU, of all processes, and wall time are those of the run alone, without the making of fabric and flows, divided by the
data packets sent, those sent again included. Acknowledgments, NACKs and probes are not counted among them, but their
work is in both figures.

Schema `mrc-bench-peers/1` (`--json`):

    fabric     hosts, racks, hosts_per_rack, rate_bps, rtt_s
    cases      a list: name, flows, bytes (of a flow), spines, slow_spine; by column (`mrc`, `mrc_halves`,
               `mrc_as_htsim`, `htsim`) mean_s, p99_s, last_s (completion of flows), jain (of their rates), packets,
               retransmitted, nacks, cpu_us and wall_us (of a data packet sent), each a median of the seeds; ratio:
               last_s of each MRC column / htsim's
    seeds      how many runs a cell has
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from time import perf_counter, process_time
from typing import Any

from rich.console import Console
from rich.table import Table

from mrc_testbed.console.progress import Progress
from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.resolve.engine_clock import config_times
from mrc_testbed.simulator import Flow, VirtualFabric
from mrc_testbed.simulator.halves import Half, run_in_halves
from mrc_testbed.simulator.profiles import Line, LinkProfile, frame_bytes, scaled_profiles
from mrc_testbed.simulator.workloads import jain, run_all
from mrc_testbed.topologies.plan import Plan
from mrc_testbed.topologies.plan.link_speeds import SACK_BYTES
from tools.bench.peer_program import ProgramRun, run_program

SCHEMA = "mrc-bench-peers/1"
PAYLOAD = 4096
HOP_S = 1e-6
"""Delay of each link, which htsim's topologies have too."""
FRAME_BYTES = frame_bytes(PAYLOAD)
HTSIM_HEADER = 64
"""Bytes of a packet that htsim_uec counts as headers; what else MRC has is data there."""
HTSIM_PATHS = 64
SLOW_SHARE = 0.25
"""Share of its rate that `-failed 1` leaves to the links of a spine."""
USUAL_RTT_S = 0.010
"""Round trip to which the engine's own times belong; they are shortened with it."""
SACK_FLUSH_LEAST_S = 1e-6
LIMIT_S = 1.0
MOMENT_S = 1e-6
"""Time in which three packets of a host leave; the shortest that htsim_uec takes for an end."""
COLUMNS = {
    "mrc": "MRC",
    "mrc_halves": "MRC, two processes",
    "mrc_as_htsim": "MRC, htsim's queues",
    "htsim": "htsim_uec",
}
FLOW_END = re.compile(r"^Flow Uec_(\d+)_(\d+) .*finished at ([\d.]+) ", re.MULTILINE)
TOTALS = re.compile(r"^New: (\d+) Rtx: (\d+) .*NACKs: (\d+) ", re.MULTILINE)


@dataclass(frozen=True)
class LeafSpine:
    """Leaves and spines with links of one rate."""

    racks: int
    hosts_per_rack: int
    rate_bps: float

    @property
    def hosts(self) -> int:
        return self.racks * self.hosts_per_rack

    @property
    def rtt_s(self) -> float:
        """Round trip of a full packet and its SACK over a spine, with nothing in its way."""
        return 8 * HOP_S + 4 * (FRAME_BYTES + SACK_BYTES) * 8 / self.rate_bps


@dataclass(frozen=True)
class FlowPattern:
    """Flows of one length that begin together."""

    name: str
    pairs: Sequence[tuple[int, int]]
    """Numbers of the hosts at both ends of each flow."""
    flow_bytes: int
    spines: int
    slow_spine: bool = False


@dataclass(frozen=True)
class PatternOutcome:
    """Result of one run."""

    times_s: Sequence[float]
    """Completion times of the flows."""
    packets: int
    """Data packets sent for the first time."""
    retransmitted: int
    nacks: int
    cpu_s: float
    """CPU from the first event to the last, of all processes."""
    wall_s: float

    def figures(self, flow_bytes: int) -> dict[str, float]:
        """Return the figures of a cell; see the module's schema."""
        times, sent = sorted(self.times_s), self.packets + self.retransmitted
        return {
            "mean_s": mean(times),
            "p99_s": times[min(len(times) - 1, int(0.99 * len(times)))],
            "last_s": times[-1],
            "jain": jain([flow_bytes * 8 / seconds for seconds in times]),
            "packets": self.packets,
            "retransmitted": self.retransmitted,
            "nacks": self.nacks,
            "cpu_us": self.cpu_s / sent * 1e6,
            "wall_us": self.wall_s / sent * 1e6,
        }


def cases_of(fabric: LeafSpine) -> list[FlowPattern]:
    """Return the cases that both simulators run, all of them within the fabric of that shape."""
    hosts, width = fabric.hosts, fabric.hosts_per_rack
    # Each host sends into another rack: none of the traffic stays below a leaf.
    next_rack_pairs = [(host, (host + width) % hosts) for host in range(hosts)]
    # Each host begins with its neighbour, so that no target is the first of all.
    all_pairs = [(source, (source + step) % hosts) for source in range(hosts) for step in range(1, hosts)]
    incasts = [
        FlowPattern(f"incast of {senders}", [(hosts - 1 - k, 0) for k in range(senders)], 1 << 20, width)
        for senders in sorted({min(8, hosts - 1), min(32, hosts - 1), hosts - 1})
    ]
    return [
        FlowPattern("permutation", next_rack_pairs, 2 << 20, width),
        *incasts,
        FlowPattern("all-to-all", all_pairs, 1 << 16, width),
        FlowPattern("one slow spine", next_rack_pairs, 2 << 20, width, slow_spine=True),
        *(
            FlowPattern(f"oversubscribed {share} to 1", next_rack_pairs, 2 << 20, width // share)
            for share in (2, 4)
            if width % share == 0
        ),
    ]


# ---- here -------------------------------------------------------------------------------------------------------


def _virtual_fabric(
    fabric: LeafSpine, case: FlowPattern, seed: int, as_htsim: bool, half: Half | None
) -> VirtualFabric:
    plan = Plan(planes=1, racks=fabric.racks, spines=case.spines, hosts_per_rack=fabric.hosts_per_rack)
    queues = {"last_hop_ecn": True, "trim_lasthop_bytes": None} if as_htsim else {}
    scale = scaled_profiles(
        1,
        rate_bps=fabric.rate_bps,
        rtt_s=fabric.rtt_s,
        pmtu_bytes=PAYLOAD,
        queues=queues,
        config={
            **config_times(fabric.rtt_s / USUAL_RTT_S),
            "sack_flush_s": max(SACK_FLUSH_LEAST_S, fabric.rtt_s / 10),
            "backup_per_plane": 0,
        },
    )
    single = {}
    # htsim's `-failed 1` does not cut links: all those of the first spine keep a quarter of their rate.
    if case.slow_spine:
        slow = Line(SLOW_SHARE * fabric.rate_bps, HOP_S)
        spine = plan.t1_name(0, 0)
        single = {link.name: slow for link in plan.links if link.upper.node == spine}
    line = Line(fabric.rate_bps, HOP_S)
    return VirtualFabric(
        plan,
        seed=seed,
        links=LinkProfile(line, line, single),
        queues=scale.queues,
        config=scale.config,
        keep_events=False,
        lookahead=1,
        half=half,
    )


def run_mrc(
    fabric: LeafSpine, case: FlowPattern, seed: int, *, as_htsim: bool = False, halves: bool = False
) -> PatternOutcome:
    """Run a case in the virtual fabric, with `halves` in two processes.

    Raises RuntimeError when a flow does not end.
    """
    arguments = (fabric, case, seed, as_htsim)
    return run_in_halves(_run_half, *arguments) if halves else _run_half(None, *arguments)


def _run_half(half: Half | None, fabric: LeafSpine, case: FlowPattern, seed: int, as_htsim: bool) -> PatternOutcome:
    virtual = _virtual_fabric(fabric, case, seed, as_htsim, half)
    names = [host.name for host in virtual.plan.hosts]
    flows = [
        Flow(virtual, names[source], names[target], message_bytes=case.flow_bytes, messages=1, depth=1)
        for source, target in case.pairs
    ]
    virtual.gather(None)  # both halves begin together
    began, wall_began = process_time(), perf_counter()
    is_over = run_all(virtual, flows, LIMIT_S)
    cpu_s, wall_s = process_time() - began, perf_counter() - wall_began
    are_whole = virtual.gather(all(flow.intact and not flow.failures for flow in flows))
    if not is_over or not all(are_whole):
        raise RuntimeError(f"{case.name}: a flow of the virtual fabric did not end in {LIMIT_S:g} s")
    counters = [flow.qp.counters for flow in flows]
    counts = [
        sum(counter.packets_sent for counter in counters),
        sum(counter.retransmitted for counter in counters),
        sum(counter.trimmed for counter in counters),
    ]
    times_s = virtual.of_owners([flow.a for flow in flows], [flow.duration_s for flow in flows])
    packets, retransmitted, nacks = map(sum, zip(*virtual.gather(counts), strict=True))
    return PatternOutcome(times_s, packets, retransmitted, nacks, sum(virtual.gather(cpu_s)), wall_s)


# ---- htsim_uec --------------------------------------------------------------------------------------------------


def topology_text(fabric: LeafSpine, spines: int) -> str:
    """Return the topology file of htsim for leaves and spines."""
    tiers = (
        (fabric.hosts_per_rack, f"Radix_Up {spines}\n", f"Oversubscribed {fabric.hosts_per_rack // spines}\n"),
        (fabric.racks, "", ""),
    )
    text = f"Nodes {fabric.hosts}\nTiers 2\nPodsize {fabric.hosts}\n"
    for number, (radix, uplinks, oversubscription) in enumerate(tiers):
        text += (
            f"\nTier {number}\nDownlink_speed_Gbps {fabric.rate_bps / 1e9:g}\nRadix_Down {radix}\n{uplinks}"
            f"Downlink_Latency_ns {HOP_S * 1e9:g}\n{oversubscription}Switch_Latency_ns 0\n"
        )
    return text


def matrix_text(hosts: int, pairs: Sequence[tuple[int, int]], flow_bytes: int) -> str:
    """Return the connection matrix of htsim for flows that all begin at 0."""
    lines = [f"{source}->{target} id {k} start 0 size {flow_bytes}" for k, (source, target) in enumerate(pairs, 1)]
    return "\n".join([f"Nodes {hosts}", f"Connections {len(pairs)}", *lines, ""])


def run_htsim(binary: Path, fabric: LeafSpine, case: FlowPattern, seed: int) -> PatternOutcome:
    """Run a case in htsim_uec. Raises UsageError when it fails or a flow does not end."""
    full_run = _call_htsim(binary, fabric, case, seed, LIMIT_S)
    # The same flows for a moment take what making the topology and the flows takes.
    short_run = _call_htsim(binary, fabric, case, seed, MOMENT_S)
    output, cpu_s = full_run.output, max(full_run.cpu_s - short_run.cpu_s, 0.0)
    wall_s = max(full_run.wall_s - short_run.wall_s, 0.0)
    ends = {(int(source), int(target)): float(us) * 1e-6 for source, target, us in FLOW_END.findall(output)}
    totals = TOTALS.search(output)
    if totals is None or set(ends) != set(case.pairs):
        count = f"{len(ends)} of {len(case.pairs)} flows ended"
        raise UsageError(f"--htsim {binary}: {case.name}: {count}. Cure: give htsim_uec. Output: {output[-500:]}")
    packets, retransmitted, nacks = map(int, totals.groups())
    return PatternOutcome(list(ends.values()), packets, retransmitted, nacks, cpu_s, wall_s)


def _call_htsim(binary: Path, fabric: LeafSpine, case: FlowPattern, seed: int, limit_s: float) -> ProgramRun:
    """Let htsim_uec run a case for at most that long."""
    with tempfile.TemporaryDirectory() as folder:
        packets = case.flow_bytes // PAYLOAD
        topology, matrix = Path(folder, "fabric.topo"), Path(folder, "flows.cm")
        topology.write_text(topology_text(fabric, case.spines))
        matrix.write_text(matrix_text(fabric.hosts, case.pairs, packets * (FRAME_BYTES - HTSIM_HEADER)))
        # What the user's htsim_uec does by default, NSCC with trimming, stays; the rest is that of the virtual fabric.
        command: list[str | Path] = [binary, "-sender_cc_only", "-topo", topology, "-tm", matrix]
        command += ["-linkspeed", f"{fabric.rate_bps / 1e6:.0f}", "-mtu", str(FRAME_BYTES)]
        command += ["-load_balancing_algo", "bitmap", "-paths", str(HTSIM_PATHS), "-seed", str(seed)]
        command += ["-end", f"{limit_s * 1e6:.0f}", "-o", Path(folder, "log")]
        command += ["-failed", "1"] if case.slow_spine else []
        return run_program("--htsim", command, Path(folder))


# ---- both -------------------------------------------------------------------------------------------------------


def run(
    binary: Path, fabric: LeafSpine, seeds: int, cases: Sequence[FlowPattern], *, console: Console
) -> dict[str, Any]:
    """Run cases in both simulators; see the module's schema."""
    columns: dict[str, Callable[[FlowPattern, int], PatternOutcome]] = {
        "mrc": lambda case, seed: run_mrc(fabric, case, seed),
        "mrc_halves": lambda case, seed: run_mrc(fabric, case, seed, halves=True),
        "mrc_as_htsim": lambda case, seed: run_mrc(fabric, case, seed, as_htsim=True),
        "htsim": lambda case, seed: run_htsim(binary, fabric, case, seed),
    }
    rows = []
    with Progress(console, "bench peers", guess_s=4.0 * seeds * len(cases)) as progress:
        for case in cases:
            row: dict[str, Any] = {
                "name": case.name,
                "flows": len(case.pairs),
                "bytes": case.flow_bytes,
                "spines": case.spines,
                "slow_spine": case.slow_spine,
            }
            for column, run_case in columns.items():
                progress.step(f"{case.name}: {COLUMNS[column]} ...")
                figures = [run_case(case, seed).figures(case.flow_bytes) for seed in range(1, seeds + 1)]
                row[column] = {name: median(cell[name] for cell in figures) for name in figures[0]}
            row["ratio"] = {name: row[name]["last_s"] / row["htsim"]["last_s"] for name in COLUMNS if name != "htsim"}
            rows.append(row)
    shape = asdict(fabric) | {"hosts": fabric.hosts, "rtt_s": fabric.rtt_s}
    return {"schema": SCHEMA, "fabric": shape, "cases": rows, "seeds": seeds}


def show(result: dict[str, Any], console: Console) -> None:
    """Print the table of a result."""
    shape = result["fabric"]
    table = Table(
        title=f"{shape['hosts']} hosts, {shape['racks']} racks, {shape['rate_bps'] / 1e9:g} Gb/s, "
        f"round trip {shape['rtt_s'] * 1e6:.1f} us; medians of {result['seeds']} seeds",
        title_justify="left",
    )
    names = "case", "", "mean", "99 %", "last", "of htsim's", "Jain", "NACKs", "sent again", "CPU a packet", "wall"
    for title in names:
        table.add_column(title, justify="right" if title and title != "case" else "left")
    for row in result["cases"]:
        # The name of a case stands in its first row alone.
        for column, title in COLUMNS.items():
            cell = row[column]
            times = [f"{cell[name] * 1e6:.0f} us" for name in ("mean_s", "p99_s", "last_s")]
            ratio = "" if column == "htsim" else f"{row['ratio'][column]:.3f}"
            counts = [f"{cell['nacks']:.0f}", f"{cell['retransmitted']:.0f}", f"{cell['cpu_us']:.2f} us"]
            counts.append(f"{cell['wall_us']:.2f} us")
            name = row["name"] if column == "mrc" else ""
            table.add_row(name, title, *times, ratio, f"{cell['jain']:.4f}", *counts, end_section=column == "htsim")
    console.print(table)
