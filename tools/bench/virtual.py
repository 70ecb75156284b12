"""`mrc bench virtual`: cost of a data packet and an event in the virtual fabric, by number of hosts.

Every host sends to one other and receives from one other, writes of 64 KiB over all paths with SRv6, the engine's
default configuration, and the same number of data packets in all for each size, so that the cost of one can be
compared. Four columns in one run:

    compiled    engine and simulator as machine code (`mrc compile`), when this tree has that build
    halves      the same in two processes (simulator/halves.py), by its wall time; not with --wire
    python      the same files, interpreted (MRC_COMPILED=0)
    c           tools/bench/events.c: a bare event loop with as many events at the mean depth of the queue in that run

Each run is a process of its own. CPU is its user + system time from the first packet to the last completion; the making
of fabric and flows is timed apart. The compiled form runs five times, the sizes by turns, and while others use the
caches up to twenty times, until four rounds had them for themselves. The cheapest run of each size counts, as of the C
loop: what other machines do to a shared cache only adds, up to as much again with 512 hosts. Both forms must end in the
same state (VirtualFabric.state_digest): the exit code is 1 when they do not.
`python -m tools.bench.virtual --hosts 8 --packets 4096` is one such process; it prints its JSON.

Schema `mrc-bench-virtual/1` (`--json`):

    packets_wanted, wire, compiled {active, why}, c_missing (null, or why there is no such column), met
    sizes      a list, by hosts: hosts, planes, racks, spines, digests_equal (null: one form only), c_cpu_s (or null),
               faster (python's CPU / compiled's, or null), rounds_cpu_s (of all compiled runs), python and compiled
               (null without it): one run each: active, why, packets, events, queue_depth (mean), cpu_s, make_s (CPU),
               make_mb (resident, fabric and flows), peak_mb (of the process), virtual_s, state_digest;
               halves_wall_s (the quickest, or null)
    flatness   {compiled, python}: highest CPU a packet of all sizes / lowest; null with one size
    chase_mb   three quarters of the last level of the caches; null when the system does not tell, or without gcc
    chase_ns   nanoseconds of a step through so much memory in random order (chase.c), in each compiled round but
               the first before the largest size; [] without chase_mb
    profile    with --profile: by hosts, {cpu_s (under the profiler), parts {part: share}, functions [...]}
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from rich.console import Console
from rich.table import Table

from mrc_testbed import native_build
from mrc_testbed.console.progress import Progress
from mrc_testbed.errors import UsageError
from mrc_testbed.files.package import PACKAGE
from mrc_testbed.simulator import Flow, VirtualFabric, permutation
from mrc_testbed.simulator.fabric import usual_lookahead
from mrc_testbed.simulator.halves import Half, run_in_halves
from mrc_testbed.switch.system.cache_folder import BuildError
from mrc_testbed.switch.system.gcc import build_program
from mrc_testbed.topologies.plan import Plan

SCHEMA = "mrc-bench-virtual/1"
BENCH_FOLDER = Path(__file__).parent
SIZES = (8, 64, 512)
HOSTS_MAX = 1024
PACKETS = 65_536
"""Some seconds of CPU for each size, interpreted; 8 writes for each of 512 hosts."""
PLANES = 4
RACK_HOSTS_MAX = 16
MESSAGE_BYTES = 1 << 16
PACKETS_A_MESSAGE = 16
"""Packets of a message at the default path MTU of 4096 bytes."""
FLATNESS_GOAL = 1.5
FASTER_GOAL = 5.0
SEED = 1
LOOP_ROUNDS = 3
"""Runs of the C loop; the cheapest counts, for it is a limit."""
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
CHASE_SHARE = 0.75
"""Share of the last level of the caches that a fabric of hundreds of hosts wants.

Other processes leave so much only while they rest.
"""
CHASE_STEPS = 1_000_000
QUIET_NS = 40.0
"""A step that takes no longer has found its memory in a cache; from main memory it takes 100 and more."""
COMPILED_ROUNDS = 5
COMPILED_ROUNDS_MAX = 20
QUIET_ROUNDS = 4
"""Compiled rounds that are wanted with the caches ours, before the most there are."""
DEPTH_EVERY = 16
"""Completions between two looks at the depth of the queue, which goes through all nodes."""
TOP = 30
"""Functions that --profile prints."""
PARTS = (
    ("hosts/engine/wire", "wire codec"),
    ("hosts/nic", "wire codec"),
    ("simulator/wire.py", "wire codec"),
    ("hosts/engine", "engine"),
    ("simulator/ports.py", "ports"),
    ("simulator/impairment.py", "ports"),
    ("simulator/switches.py", "switches"),
    ("simulator/host.py", "hosts"),
    ("simulator/frames.py", "hosts"),
    ("simulator/workloads.py", "workload"),
    ("tools/bench/virtual.py", "workload"),
    ("simulator/events.py", "event queue"),
)
"""Beginnings of paths and the part that a profile counts them to; the first that fits."""
FABRIC_PARTS = {"_run": "event queue", "run_until": "event queue", "frame": "hosts", "kick": "hosts"}
"""Parts to which a profile counts the functions of simulator/fabric.py."""

Function = tuple[str, int, str]
"""File (`~`: built-in), line, name."""
Stats = dict[Function, tuple[int, int, float, float, dict[Function, tuple[int, int, float, float]]]]
"""Statistics as in pstats, by function.

They are primitive calls, calls, own seconds, seconds including called functions, and these by caller.
"""


# ---- one run ------------------------------------------------------------------------------------------------


def plan_of(hosts: int) -> Plan:
    """Return a plan with that many hosts: racks of at most 16, and at least as many racks as hosts a rack.

    Each plane has as many T1s as hosts a rack.

    Raises UsageError and PlanError.
    """
    if not 4 <= hosts <= HOSTS_MAX:
        raise UsageError(f"--hosts: {hosts} hosts: give 4 to {HOSTS_MAX}")
    hosts_per_rack = max(n for n in range(1, RACK_HOSTS_MAX + 1) if hosts % n == 0 and n * n <= hosts)
    return Plan(
        planes=PLANES, racks=hosts // hosts_per_rack, spines=max(hosts_per_rack, 2), hosts_per_rack=hosts_per_rack
    )


def messages_of(hosts: int, packets: int) -> int:
    """Writes of each host, so that all of them make about `packets` data packets; at least one."""
    return max(1, round(packets / (hosts * PACKETS_A_MESSAGE)))


def engine_form() -> tuple[bool, str]:
    """(whether this process runs the compiled form, why)."""
    form = native_build.state()
    return form.active, form.reason


def _resident_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as memory:
        return int(memory.read().split()[1]) * resource.getpagesize() / 1e6


class PermutationRun:
    """The fabric and its permutation of writes."""

    def __init__(self, hosts: int, packets: int, wire: bool, half: Half | None = None) -> None:
        plan = plan_of(hosts)
        ahead = usual_lookahead(plan)
        self.fabric = VirtualFabric(plan, seed=SEED, wire=wire, keep_events=False, lookahead=ahead, half=half)
        self.cpu_s = 0.0
        """CPU from the first packet to the last completion, without the check of what arrived.

        During that check Python's collection visits all objects that the making left.
        """
        self.hosts_left = sum(self.fabric.owns(host.name) for host in plan.hosts)
        """Flows that are not done, of the hosts that this process runs."""
        self.depths: list[int] = []
        """Depths of the event queue where it was looked at, at a completion."""
        self.looks = 0
        """Completions so far, those of one moment as one."""
        self.flows = permutation(self.fabric, message_bytes=MESSAGE_BYTES, messages=messages_of(hosts, packets))
        for flow in self.flows:
            flow.on_done = self._on_done

    def _on_done(self, _flow: Flow) -> None:
        self.hosts_left -= 1

    def _is_over(self) -> bool:
        if self.looks % DEPTH_EVERY == 0:
            self.depths.append(len(self.fabric.queue))
        self.looks += 1
        return not self.hosts_left

    def run(self) -> None:
        """Run to the last completion. Raises RuntimeError when a write failed or arrived damaged."""
        began = process_time()
        is_over = self.fabric.run_until(self._is_over)
        self.cpu_s = process_time() - began
        is_intact = not any(flow.failures or not flow.intact for flow in self.flows)
        if not is_over or not all(self.fabric.gather(is_intact)):
            raise RuntimeError("a write of the permutation did not arrive as it was sent")

    @property
    def packets(self) -> int:
        """Data packets sent."""
        return sum(flow.qp.counters.packets_sent for flow in self.flows)


def measure(hosts: int, packets: int, *, wire: bool = False) -> dict[str, Any]:
    """One run in this process, in the form it has; see `sizes` of the module's schema."""
    resident, began = _resident_mb(), process_time()
    load = PermutationRun(hosts, packets, wire)
    build_end, build_mb = process_time(), _resident_mb()
    load.run()
    active, reason = engine_form()
    return {
        "active": active,
        "why": reason,
        "packets": load.packets,
        "events": load.fabric.events_done,
        "queue_depth": sum(load.depths) / len(load.depths),
        "cpu_s": load.cpu_s,
        "make_s": build_end - began,
        "make_mb": build_mb - resident,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "virtual_s": load.fabric.now,
        "state_digest": load.fabric.state_digest(),
    }


def halves_wall_s(hosts: int, packets: int) -> float:
    """Return the wall time of one run in two processes."""
    return run_in_halves(_half_wall_s, hosts, packets)


def _half_wall_s(half: Half, hosts: int, packets: int) -> float:
    load = PermutationRun(hosts, packets, False, half)
    half.gather(None)  # both begin together
    began = perf_counter()
    load.run()
    return perf_counter() - began


# ---- profile ------------------------------------------------------------------------------------------------


def part_of(function: Function) -> str | None:
    """The part a function of a profile belongs to; None for built-ins, which belong to their callers."""
    file, _, name = function
    if "_heapq" in name:
        return "event queue"
    if file == "~":
        return None
    path = file.removeprefix(f"{PACKAGE}/")
    if path == "simulator/fabric.py":
        return FABRIC_PARTS.get(name, "other")
    return next((part for begin, part in PARTS if path.startswith(begin)), "other")


def shares(stats: Stats) -> dict[str, float]:
    """Share of each part in the time of a profile's functions themselves, largest first."""
    spent: dict[str, float] = {}
    for function, (_, _, own_s, _, callers) in stats.items():
        part = part_of(function)
        if part is not None:
            spent[part] = spent.get(part, 0.0) + own_s
            continue
        for caller, (_, _, caller_s, _) in callers.items():
            part = part_of(caller) or "other"
            spent[part] = spent.get(part, 0.0) + caller_s
    total = sum(spent.values())
    return {part: seconds / total for part, seconds in sorted(spent.items(), key=lambda item: -item[1])}


def profile(hosts: int, packets: int, *, wire: bool = False) -> dict[str, Any]:
    """Run under cProfile; see `profile` of the module's schema.

    cProfile charges functions too much: compare shares.
    """
    load = PermutationRun(hosts, packets, wire)
    watch = cProfile.Profile()
    began = process_time()
    watch.runcall(load.run)
    cpu_s = process_time() - began
    stats: Any = pstats.Stats(watch).stats  # type: ignore[attr-defined]
    total = sum(entry[2] for entry in stats.values())
    top = sorted(stats.items(), key=lambda item: -item[1][2])[:TOP]
    return {
        "cpu_s": cpu_s,
        "parts": shares(stats),
        "functions": [
            {
                "where": _location(function),
                "calls": calls,
                "calls_per_packet": calls / load.packets,
                "share": own_s / total,
            }
            for function, (_, calls, own_s, _, _) in top
        ],
    }


def _location(function: Function) -> str:
    file, line, name = function
    return name if file == "~" else f"{file.removeprefix(f'{PACKAGE}/')}:{line} {name}"


# ---- all runs -----------------------------------------------------------------------------------------------


def _child(machine_code: bool, *arguments: str) -> Any:
    """The JSON that a process of the given form prints. Raises RuntimeError when it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "MRC_COMPILED"}
    if not machine_code:
        environment["MRC_COMPILED"] = "0"
    process = subprocess.run(
        [sys.executable, "-m", "tools.bench.virtual", *arguments],
        cwd=PACKAGE.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise RuntimeError(f"tools.bench.virtual {' '.join(arguments)} failed: {process.stderr.strip()[-2000:]}")
    return json.loads(process.stdout)


def loop_cpu_s(events: int, depth: float) -> float:
    """Return the CPU seconds of the bare loop in C.

    Raises BuildError without gcc, RuntimeError when the loop is broken.
    """
    binary = build_program([BENCH_FOLDER / "events.c"], tag="bench-events")
    spent = []
    for _ in range(LOOP_ROUNDS):
        command = [str(binary), str(events), str(max(1, round(depth)))]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode:
            raise RuntimeError(f"tools/bench/events.c failed: {process.stderr.strip()}")
        spent.append(float(process.stdout))
    return min(spent)


def chase_mb(caches: Path = CACHES) -> int | None:
    """MB to step through, at least one; None when the system does not tell how wide its caches are."""
    sizes: dict[int, int] = {}
    try:
        for cache in caches.glob("index*"):
            level, size = ((cache / name).read_text().strip() for name in ("level", "size"))
            sizes[int(level)] = int(size.removesuffix("K"))
    except (OSError, ValueError):
        return None
    return max(1, int(CHASE_SHARE * sizes[max(sizes)] / 1024)) if sizes else None


def chase_ns(megabytes: int) -> float:
    """Nanoseconds of a step. Raises BuildError without gcc, RuntimeError when the program fails."""
    binary = build_program([BENCH_FOLDER / "chase.c"], tag="bench-chase")
    process = subprocess.run(
        [str(binary), str(megabytes), str(CHASE_STEPS)], capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise RuntimeError(f"tools/bench/chase.c failed: {process.stderr.strip()}")
    return float(process.stdout)


def parse_hosts(text: str) -> list[int]:
    """`8,64,512` -> the numbers, each once. Raises UsageError and PlanError."""
    try:
        sizes = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise UsageError(f"--hosts {text!r}: give numbers with commas between, e.g. 8,64,512") from None
    for hosts in sizes:
        plan_of(hosts)
    return sizes


def run(
    sizes: Sequence[int], packets: int, *, console: Console, with_profile: bool = False, wire: bool = False
) -> dict[str, Any]:
    """Measure all sizes in all forms and print the table; see the module's schema.

    Raises RuntimeError when a run fails.
    """
    size = packets * len(sizes) / PACKETS
    with Progress(console, "bench virtual", guess_s=20.0 * size, size=size) as progress:
        result = _measure_all(sizes, packets, progress, with_profile, wire)
    show(result, console)
    return result


def _measure_all(
    sizes: Sequence[int], packets: int, progress: Progress, with_profile: bool, wire: bool
) -> dict[str, Any]:
    """All that `run` prints."""
    form = _child(True, "--form")
    options = ("--wire",) if wire else ()
    result: dict[str, Any] = {
        "schema": SCHEMA,
        "packets_wanted": packets,
        "wire": wire,
        "compiled": form,
        "c_missing": None,
        "sizes": [],
        "chase_mb": chase_mb(),
        "chase_ns": [],
    }
    for hosts in sizes:
        plan = plan_of(hosts)
        size_row: dict[str, Any] = {
            "hosts": hosts,
            "planes": plan.planes,
            "racks": plan.racks,
            "spines": plan.spines,
            "c_cpu_s": None,
            "halves_wall_s": None,
            "rounds_cpu_s": [],
        }
        words = ("--hosts", str(hosts), "--packets", str(packets), *options)
        for name, machine_code in (("compiled", True), ("python", False)):
            if machine_code and not form["active"]:
                size_row[name] = None
                continue
            progress.step(f"{hosts} hosts, {name} ...")
            size_row[name] = _child(machine_code, *words)
        try:
            size_row["c_cpu_s"] = loop_cpu_s(size_row["python"]["events"], size_row["python"]["queue_depth"])
        except BuildError as error:
            # The chase is a C program too: without gcc there is neither.
            result["c_missing"], result["chase_mb"] = str(error), None
        result["sizes"].append(size_row)
    if form["active"]:
        _repeat_compiled(result, packets, options, progress)
    result["sizes"] = [compare(size_row) for size_row in result["sizes"]]
    result["flatness"] = {name: flatness(result["sizes"], name) for name in ("compiled", "python")}
    result["met"] = all(size_row["digests_equal"] is not False for size_row in result["sizes"])
    if with_profile:
        result["profile"] = {}
        for hosts in sizes:
            progress.step(f"{hosts} hosts, python under cProfile ...")
            words = ("--hosts", str(hosts), "--packets", str(packets), "--profile", *options)
            result["profile"][str(hosts)] = _child(False, *words)
    return result


def _repeat_compiled(result: dict[str, Any], packets: int, options: Sequence[str], progress: Progress) -> None:
    """Run the compiled form again, the sizes by turns; the cheapest run of each size stays.

    The module's docstring gives the number of rounds.

    Raises RuntimeError when two runs of one size end in different states.
    """
    sizes = result["sizes"]
    for size in sizes:
        size["rounds_cpu_s"].append(size["compiled"]["cpu_s"])
    step_times: list[float] = result["chase_ns"]
    for number in range(2, COMPILED_ROUNDS_MAX + 1):
        contended = step_times and sum(step <= QUIET_NS for step in step_times) < QUIET_ROUNDS
        if number > COMPILED_ROUNDS and not contended:
            return
        total = f"{COMPILED_ROUNDS_MAX}: others use the caches" if number > COMPILED_ROUNDS else str(COMPILED_ROUNDS)
        progress.step(f"compiled, round {number} of {total} ...")
        for size in sizes:
            if size is sizes[-1] and result["chase_mb"]:
                step_times.append(chase_ns(result["chase_mb"]))
            run = _child(True, "--hosts", str(size["hosts"]), "--packets", str(packets), *options)
            size["rounds_cpu_s"].append(run["cpu_s"])
            if run["state_digest"] != size["compiled"]["state_digest"]:
                raise RuntimeError(f"two runs with {size['hosts']} hosts end in different states")
            if run["cpu_s"] < size["compiled"]["cpu_s"]:
                size["compiled"] = run
            if "--wire" not in options:
                wall_s = _child(True, "--halves", "--hosts", str(size["hosts"]), "--packets", str(packets))
                size["halves_wall_s"] = min(wall_s, size["halves_wall_s"] or wall_s)


def compare(size_row: dict[str, Any]) -> dict[str, Any]:
    """Return one size with `digests_equal` and `faster`; None where one form is missing."""
    fast, python = size_row["compiled"], size_row["python"]
    has_both = fast is not None
    return size_row | {
        "digests_equal": fast["state_digest"] == python["state_digest"] if has_both else None,
        "faster": python["cpu_s"] / fast["cpu_s"] if has_both else None,
    }


def flatness(sizes: Sequence[dict[str, Any]], name: str) -> float | None:
    """Highest CPU a packet of all sizes / lowest, in one form; None without that form or with one size."""
    costs = [size[name]["cpu_s"] / size[name]["packets"] for size in sizes if size[name] is not None]
    return max(costs) / min(costs) if len(costs) > 1 else None


# ---- printing -----------------------------------------------------------------------------------------------


def show(result: dict[str, Any], console: Console) -> None:
    """Print the tables of a result."""
    table = Table(title="Virtual fabric: CPU of one process", title_justify="left")
    for title in ("hosts", "", "compiled", "two processes, wall", "Python", "bare loop in C"):
        table.add_column(title, justify="left" if not title else "right")
    for size_row in result["sizes"]:
        runs = [size_row["compiled"], size_row["python"]]
        base = size_row["python"]
        compiled_s, python_s = (None if run is None else run["cpu_s"] for run in runs)
        cpu = (compiled_s, size_row["halves_wall_s"], python_s, size_row["c_cpu_s"])
        # Four rows a size, the first with the number of hosts.
        for row, (row_title, count, is_per_unit) in enumerate(
            (
                ("data packets/s", base["packets"], False),
                ("events/s", base["events"], False),
                ("us a data packet", base["packets"], True),
                ("us an event", base["events"], True),
            )
        ):
            cells = [_cell(seconds, count, is_per_unit) for seconds in cpu]
            table.add_row("" if row else str(size_row["hosts"]), row_title, *cells, end_section=row == 3)
    console.print(table)
    for size_row in result["sizes"]:
        base = size_row["python"]
        console.print(
            f"{size_row['hosts']} hosts ({size_row['planes']} planes, {size_row['racks']} racks, "
            f"{size_row['spines']} T1s a plane): {base['packets']} data packets, "
            f"{base['events'] / base['packets']:.1f} events each, "
            f"queue {base['queue_depth']:.0f} deep; made in {base['make_s']:.2f} s and {base['make_mb']:.0f} MB, "
            f"peak {base['peak_mb']:.0f} MB; {_verdict(size_row)}"
        )
    for name, ratio in result["flatness"].items():
        if ratio is not None:
            console.print(f"{name}: dearest size / cheapest, by data packet: {ratio:.2f} (goal {FLATNESS_GOAL:g})")
    if step_times := result["chase_ns"]:
        took = f"{min(step_times):.0f} to {max(step_times):.0f} ns"
        console.print(f"a step through {result['chase_mb']} MB of memory: {took}; {_caches(step_times)}")
    if not result["compiled"]["active"]:
        console.print(f"no compiled column: {result['compiled']['why']}", markup=False)
    if result["c_missing"]:
        console.print(f"no bare loop in C: {result['c_missing']}", markup=False)
    for hosts, size_profile in result.get("profile", {}).items():
        _show_profile(hosts, size_profile, console)


def _caches(step_times: Sequence[float]) -> str:
    """Return what the steps through memory imply for the figures."""
    quiet = sum(step <= QUIET_NS for step in step_times)
    if quiet == len(step_times):
        return "the last level of the caches is ours"
    return (
        f"others use the last level of the caches, which makes fabrics of hundreds of hosts dearer, "
        f"but for {quiet} of {len(step_times)} rounds"
    )


def _cell(seconds: float | None, count: int, is_per_unit: bool) -> str:
    if seconds is None:
        return "-"
    return f"{seconds / count * 1e6:.2f}" if is_per_unit else f"{count / seconds:,.0f}"


def _verdict(size_row: dict[str, Any]) -> str:
    if size_row["digests_equal"] is None:
        return "one form, nothing to compare its state with"
    if not size_row["digests_equal"]:
        return "[red]THE FORMS END IN DIFFERENT STATES[/red]"
    dearest = max(size_row["rounds_cpu_s"]) / size_row["compiled"]["packets"] * 1e6
    return (
        f"same state in both forms, compiled {size_row['faster']:.1f} times as fast (goal {FASTER_GOAL:g}); "
        f"its dearest run of {len(size_row['rounds_cpu_s'])}: {dearest:.2f} us"
    )


def _show_profile(hosts: str, size_profile: dict[str, Any], console: Console) -> None:
    parts = ", ".join(f"{part} {share:.0%}" for part, share in size_profile["parts"].items())
    table = Table(title=f"Python, {hosts} hosts, under cProfile: {parts}", title_justify="left")
    table.add_column("function itself")
    table.add_column("calls a packet", justify="right")
    table.add_column("share", justify="right")
    for entry in size_profile["functions"]:
        table.add_row(entry["where"].replace("[", r"\["), f"{entry['calls_per_packet']:.2f}", f"{entry['share']:.1%}")
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """One process of the bench: a run, a profile, or its form, as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.virtual", description="one run of `mrc bench virtual`")
    parser.add_argument("--hosts", type=int, default=SIZES[0])
    parser.add_argument("--packets", type=int, default=PACKETS)
    parser.add_argument("--wire", action="store_true", help="packets travel as bytes")
    parser.add_argument("--profile", action="store_true", help="run under cProfile")
    parser.add_argument("--halves", action="store_true", help="in two processes; print the wall time alone")
    parser.add_argument("--form", action="store_true", help="only say which form this process has")
    options = parser.parse_args(arguments)
    if options.form:
        active, reason = engine_form()
        result: Any = {"active": active, "why": reason}
    elif options.halves:
        result = halves_wall_s(options.hosts, options.packets)
    else:
        result = (profile if options.profile else measure)(options.hosts, options.packets, wire=options.wire)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
