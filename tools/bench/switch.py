"""CPU cost of one hop: the embedded switch running srv6.p4 beside the least that Linux allows.

`mrc bench switch`, or `python -m tools.bench.switch [--json]`; with it what traffic.py and target.py beside it
measure. In a network namespace of its own (which ends with the process, however that ends) three forwarders stand
side by side, each between two veth pairs:

    load -- veth -- forwarder -- veth -- load

    embedded   the event loop of switch/runtime with srv6.p4, the tables of a T0 of the default plan, real SRv6 frames
    spray      the same with spray.p4 in mode ecmp, and frames without the outer header, that go up
    bare       tools/bench/forwarder.c: AF_PACKET ring (TPACKET_V2), sendmmsg, qdisc bypass; touches no frame
    bare v3    the same with TPACKET_V3 blocks, the usual advice: a frame may wait a millisecond in its block
    bmv2       simple_switch_grpc with srv6.p4 and the same tables, where that and p4c-bm2-ss are on PATH

A hop is: take the frame from the ring, send it, and deliver it into the ring of the next socket (that softirq runs
inside the send, on the sender's account, for all forwarders alike). CPU is the forwarding thread's on-CPU time from
/proc/.../schedstat, nanoseconds; what the ksoftirqd threads took meanwhile is shown apart. The load is a closed loop:
`window` frames in flight, so nothing overflows. Forwarders take turns; figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import json as jsonlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mrc_testbed.errors import EXIT_INTERRUPTED
from mrc_testbed.files.package import P4_PROGRAMS
from mrc_testbed.switch.compiler.errors import P4Error
from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import TableError
from mrc_testbed.switch.device.loop import EventLoop, PortError
from mrc_testbed.switch.system.cache_folder import BuildError
from mrc_testbed.switch.system.gcc import build_program
from mrc_testbed.topologies.plan import Mode, Plan
from tools.bench import target, traffic
from tools.bench.plan_entries import load_plan, write_plan
from tools.bench.rig import (
    FRAME_BYTES,
    LOAD,
    Forwarder,
    drive,
    enter_namespace,
    frame_heads,
    ip,
    load_routes,
    make_cables,
    plain_heads,
    thread_ns,
)
from tools.campaigns import bmv2

BENCH_FOLDER = Path(__file__).parent

WINDOWS = {"loaded": 128, "light": 8}
"""Frames in flight."""
ROUNDS = 5
PACKETS = 20_000
"""Frames of one measurement; fewer where the forwarder is slow by design."""
BMV2_ROUNDS, BMV2_PACKETS, BMV2_WINDOW = 3, 4_000, 32
"""BMv2 has 64 places in its queues; more frames in flight would be lost there."""
GOAL = 1.5
"""Embedded / bare, CPU per packet and hop, must not exceed this."""


def run(report: Callable[[str], None]) -> dict[str, Any]:
    """Measure, and return the figures; `report` gets each step. Needs root. Raises RuntimeError."""
    command = [sys.executable, "-m", "tools.bench.switch", "--inside"]
    with tempfile.TemporaryFile("w+") as figures:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=figures, stderr=subprocess.PIPE, text=True)
        try:
            for line in child.stderr or ():
                report(line.rstrip())
            child.wait()
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait()
        if child.returncode:
            raise RuntimeError(f"the benchmark failed with exit code {child.returncode}; its message is above")
        figures.seek(0)
        result: dict[str, Any] = jsonlib.load(figures)
    return result


def table(result: dict[str, Any]) -> str:
    """The figures for people."""
    lines = [
        "CPU microseconds per packet and hop (median of "
        f"{result['rounds']} rounds; loaded: {WINDOWS['loaded']} frames in flight, light: {WINDOWS['light']})",
        f"{'':>22}{'embedded':>10}{'bare':>10}{'ratio':>8}{'bare v3':>10}{'ksoftirqd':>11}",
    ]
    for row in result["rows"]:
        # TPACKET_V3 is not measured under light load, where it waits for its block.
        v3 = f"{row['bare_v3_us']:.2f}" if row["bare_v3_us"] is not None else "-"
        lines.append(
            f"{row['bytes']:>6} bytes  {row['load']:<7} {row['embedded_us']:>9.2f} {row['bare_us']:>9.2f}"
            f" {row['ratio']:>7.2f} {v3:>9} {row['ksoftirqd_us']:>10.2f}"
        )
    for row in result["spray"]:
        lines.append(f"{row['bytes']:>6} bytes  loaded  {row['embedded_us']:>9.2f}   with spray.p4")
    if result["bmv2"]:
        lines.append("BMv2 beside it: simple_switch_grpc with srv6.p4 and the same tables, CPU of all its threads")
    for row in result["bmv2"]:
        lines.append(
            f"{row['bytes']:>6} bytes  loaded  {row['embedded_us']:>9.2f} {row['bmv2_us']:>9.2f} {row['ratio']:>7.1f}"
            f"   ({row['hop_us']:.0f} us through one hop)"
        )
    lines.append("Way through one hop with one frame in flight, microseconds (veth, forwarder, veth, wake-ups)")
    for row in result["hops"]:
        lines.append(
            f"{row['bytes']:>6} bytes          {row['embedded_us']:>9.1f} {row['bare_us']:>9.1f}"
            f" {row['embedded_us'] / row['bare_us']:>7.2f} {row['bare_v3_us']:>9.1f}"
        )
    memory = ", ".join(f"{size} bytes {ns:.0f}" for size, ns in result["memory_ns"].items())
    lines.append(f"The program alone, in memory, nanoseconds per frame: {memory}")
    verdict = "met" if result["ratio"] <= GOAL else "MISSED"
    lines.append(f"embedded / bare, worst of the rows: {result['ratio']:.2f} (goal {GOAL:.1f}: {verdict})")
    lines += result["remarks"] + traffic.table(result["traffic"]) + target.table(result["target"])
    return "\n".join(lines)


# ---- inside the namespace ---------------------------------------------------------------------------------------


def measure() -> dict[str, Any]:
    """The whole measurement; called in a fresh namespace."""
    loader = build_program([LOAD], tag="bench-load")
    plan = Plan()
    with contextlib.ExitStack() as stack:
        device = P4Device(1, "p0-t0-0")
        stack.callback(device.close)
        routes = load_routes(device, plan)
        # The device forwards in its own thread, whose CPU time is the result.
        loop = EventLoop()
        stack.callback(loop.close)
        loop.attach(device)
        loop.start()
        embedded_switch = Forwarder("embedded", "e", lambda: thread_ns(os.getpid(), "p4-forward"))
        bare, v3 = (
            stack.enter_context(bare_forwarder(*arguments)) for arguments in (("bare", "b", "v2"), ("v3", "v", "v3"))
        )
        make_cables(embedded_switch)
        loop.add_port(device, 1, embedded_switch.interfaces()[1])
        loop.add_port(device, routes.next_hops[0][1], embedded_switch.interfaces()[2])
        heads, port = frame_heads(plan, routes), routes.next_hops[0][1]
        spray, spray_heads = stack.enter_context(spray_forwarder(loop))
        result = campaign(loader, device, heads, embedded_switch, bare, v3)
        note("spray.p4")
        result["spray"] = [spray_row(loader, spray, spray_heads[size], size) for size in FRAME_BYTES]
        result["bmv2"] = bmv2_rows(loader, plan, heads, embedded_switch)
        note("traffic manager")
        result["traffic"] = traffic.campaign(loader, device, port, heads, embedded_switch)
    note("compile, start, entries, memory")
    result["target"] = target.measure()
    return result


def campaign(
    loader: Path, device: P4Device, heads: dict[int, bytes], embedded_switch: Forwarder, bare: Forwarder, v3: Forwarder
) -> dict[str, Any]:
    """All rounds, forwarders in turn, and the summary."""
    load_before = os.getloadavg()[0]
    for size in FRAME_BYTES:
        for forwarder in (embedded_switch, bare, v3):
            drive(loader, forwarder, heads[size], size, 64, 500)
    for number in range(ROUNDS):
        note(f"round {number + 1} of {ROUNDS}")
        for size in FRAME_BYTES:
            for load, window in WINDOWS.items():
                for forwarder in (embedded_switch, bare) if load == "light" else (embedded_switch, bare, v3):
                    sample(loader, forwarder, heads[size], size, load, window)
            for forwarder in (embedded_switch, bare, v3):
                result = drive(loader, forwarder, heads[size], size, 1, 100 if forwarder is v3 else 1000)
                forwarder.hop_us.setdefault(size, []).append(result["round_us"])
    return summary(device, heads, load_before, embedded_switch, bare, v3)


def sample(
    loader: Path, forwarder: Forwarder, head: bytes, size: int, load: str, window: int, packets: int = PACKETS
) -> None:
    """Measure one forwarder once; its figures join `samples`, `softirq` and `lost` of it."""
    cpu, softirq = forwarder.cpu_ns(), ksoftirqd_ns()
    result = drive(loader, forwarder, head, size, window, packets)
    cpu, softirq = forwarder.cpu_ns() - cpu, ksoftirqd_ns() - softirq
    received = max(1, result["received"])
    forwarder.samples.setdefault((load, size), []).append(cpu / 1000 / received)
    forwarder.softirq.setdefault((load, size), []).append(softirq / 1000 / received)
    forwarder.lost += result["lost"]


def summary(
    device: P4Device,
    heads: dict[int, bytes],
    load_before: float,
    embedded_switch: Forwarder,
    bare: Forwarder,
    v3: Forwarder,
) -> dict[str, Any]:
    """Medians of all rounds, their ratios, and remarks on how far to trust them."""

    def middle(samples: dict[Any, list[float]], key: Any) -> float | None:
        return round(statistics.median(samples[key]), 3) if key in samples else None

    rows, worst_ratio = [], 0.0
    for size in FRAME_BYTES:
        for load in WINDOWS:
            key = (load, size)
            # Ratios are taken round by round: both sides then had the same state of the machine.
            ratio = statistics.median(
                e / b for e, b in zip(embedded_switch.samples[key], bare.samples[key], strict=True)
            )
            worst_ratio = max(worst_ratio, round(ratio, 3))
            rows.append(
                {
                    "bytes": size,
                    "load": load,
                    "embedded_us": middle(embedded_switch.samples, key),
                    "bare_us": middle(bare.samples, key),
                    "bare_v3_us": middle(v3.samples, key),
                    "ratio": round(ratio, 3),
                    "ksoftirqd_us": middle(embedded_switch.softirq, key),
                }
            )
    hops = [
        {
            "bytes": size,
            "embedded_us": middle(embedded_switch.hop_us, size),
            "bare_us": middle(bare.hop_us, size),
            "bare_v3_us": middle(v3.hop_us, size),
        }
        for size in FRAME_BYTES
    ]
    remarks = []
    lost = embedded_switch.lost + bare.lost + v3.lost
    if lost:
        remarks.append(f"{lost} frames were lost: the machine is overloaded, trust these figures less")
    if load_before > (os.cpu_count() or 1):
        remarks.append(f"the machine was busy before it began (load {load_before:.1f}): trust these figures less")
    return {
        "program": device.program.name if device.program else "",
        "rounds": ROUNDS,
        "packets": PACKETS,
        "rows": rows,
        "hops": hops,
        "memory_ns": {str(size): round(spin_ns(device, heads[size], size), 1) for size in FRAME_BYTES},
        "ratio": worst_ratio,
        "goal": GOAL,
        "lost": lost,
        "remarks": remarks,
    }


# ---- what is measured -------------------------------------------------------------------------------------------


def spin_ns(device: P4Device, head: bytes, size: int, count: int = 200_000) -> float:
    """Nanoseconds of the program alone, per frame, copying the frame included."""
    data = head + bytes(size - len(head))
    return device.spin(1, data, count) / count


@contextlib.contextmanager
def spray_forwarder(loop: EventLoop) -> Iterator[tuple[Forwarder, dict[int, bytes]]]:
    """A second device in the same loop with spray.p4, between its own cables, and its frames."""
    plan = Plan(mode=Mode.ECMP)
    forwarder = Forwarder("spray", "s", lambda: thread_ns(os.getpid(), "p4-forward"))
    with contextlib.closing(P4Device(2, "spray")) as device:
        load_plan(device, plan, plan.switches[0])
        heads = plain_heads(plan)
        size = FRAME_BYTES[0]
        ((port, _),) = device.process(1, heads[size] + bytes(size - len(heads[size])))
        make_cables(forwarder)
        loop.attach(device)
        loop.add_ports(device, {1: forwarder.interfaces()[1], port: forwarder.interfaces()[2]})
        yield forwarder, heads


def spray_row(loader: Path, forwarder: Forwarder, head: bytes, size: int) -> dict[str, Any]:
    """Row of a forwarder with spray.p4."""
    for _ in range(ROUNDS):
        sample(loader, forwarder, head, size, "loaded", WINDOWS["loaded"])
    return {"bytes": size, "embedded_us": round(statistics.median(forwarder.samples["loaded", size]), 3)}


def bmv2_rows(loader: Path, plan: Plan, heads: dict[int, bytes], embedded_switch: Forwarder) -> list[dict[str, Any]]:
    """Return the rows of simple_switch_grpc, in turns with the embedded switch, a frame size a row.

    There are none without BMv2.
    """
    if bmv2.missing_tools():
        return []
    note("BMv2")
    first = plan.switches[0]
    port = load_ports(plan)[1]
    bmv2_switch = Forwarder("bmv2", "m", lambda: thread_ns(switch.pid))
    make_cables(bmv2_switch)
    names = bmv2_switch.interfaces()
    # BMv2's gRPC server listens on loopback, which is down in a new namespace.
    ip("link", "set", "lo", "up")
    with tempfile.TemporaryDirectory(prefix="mrc-bench-") as name:
        folder = Path(name)
        program = bmv2.P4cProgram.compile(P4_PROGRAMS / "srv6.p4", folder)
        with bmv2.Bmv2(folder, interfaces={1: names[1], port: names[2]}) as switch:
            write_plan(switch.load(program), program.p4info, plan, first)
            for _ in range(BMV2_ROUNDS):
                for size in FRAME_BYTES:
                    sample(loader, bmv2_switch, heads[size], size, "loaded", BMV2_WINDOW, BMV2_PACKETS)
                    result = drive(loader, bmv2_switch, heads[size], size, 1, 200)
                    bmv2_switch.hop_us.setdefault(size, []).append(result["round_us"])
    rows = []
    for size in FRAME_BYTES:
        embedded_ns, bmv2_ns = (
            statistics.median(forwarder.samples["loaded", size]) for forwarder in (embedded_switch, bmv2_switch)
        )
        rows.append(
            {
                "bytes": size,
                "bmv2_us": round(bmv2_ns, 2),
                "embedded_us": round(embedded_ns, 3),
                "ratio": round(bmv2_ns / embedded_ns, 1),
                "hop_us": round(statistics.median(bmv2_switch.hop_us[size]), 1),
                "lost": bmv2_switch.lost,
            }
        )
    return rows


def load_ports(plan: Plan) -> tuple[int, int]:
    """Interfaces of the load: in and out."""
    return 1, plan.srv6_routes(plan.switches[0]).next_hops[0][1]


@contextlib.contextmanager
def bare_forwarder(name: str, key: str, ring: str) -> Iterator[Forwarder]:
    """tools/bench/forwarder.c between its own cables."""
    forwarder = Forwarder(name, key, lambda: thread_ns(child.pid))
    make_cables(forwarder)
    binary = build_program([BENCH_FOLDER / "forwarder.c"], tag="bench-forwarder")
    _, inner, outer, _ = forwarder.interfaces()
    child = subprocess.Popen(
        [str(binary), ring, "1", inner, outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    try:
        if child.stdout.readline() != "ready\n":
            raise RuntimeError(f"tools/bench/forwarder.c did not start ({ring})")
        yield forwarder
    finally:
        child.kill()
        child.wait()


def ksoftirqd_ns() -> int:
    """Return the on-CPU nanoseconds of all ksoftirqd threads."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in _ksoftirqd())


def _ksoftirqd() -> list[Path]:
    names = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # a process that just ended
            if (folder / "comm").read_text().startswith("ksoftirqd/"):
                names.append(folder)
    return names


def note(text: str) -> None:
    """Print a line about the progress on standard error."""
    print(f"bench switch: {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Command line: `--inside` is the child in a namespace of its own."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.switch", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        if not options.inside:
            result = run(lambda line: print(line, file=sys.stderr, flush=True))
            print(jsonlib.dumps(result, indent=2) if options.json else table(result))
            return 0
        enter_namespace()
        print(jsonlib.dumps(measure()))
        return 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (RuntimeError, OSError, BuildError, P4Error, PortError, TableError, subprocess.TimeoutExpired) as error:
        note(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
