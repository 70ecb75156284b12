"""`mrc bench mrc`: cost of an MRC data packet at both ends, beside that of AF_PACKET from Python.

Three measurements in one run, one after the other, on this machine, or four with `--rate`:

    paced      with --rate: the same as `fabric`, over links of that rate, as scenarios have them
    fabric     one file across the whole fabric: two host agents, every switch in one daemon, three hops each way
    endpoint   two agents and no file: back to back over veth pairs, and over shared wires (tools/bench/endpoint.py)
    raw        Python that only sends, or only takes, frames of the same lengths (tools/bench/af_packet.py)

CPU is that of the processes themselves (user + system: /proc/PID/stat in the fabric, getrusage elsewhere), divided by
the data packets sent; SACKs, one for about four of them, are included, at either end. Packets/s are what one processor
would carry at this cost.

In the fabric the file is sent 1 + TRANSFERS times. The first transfer warms up, and is as users have it: both agents
hash the file. The others are without SHA-256, for no NIC hashes files; each packet's iCRC is made and checked, and this
process compares the files byte by byte when the agent has said that it is done. Of these the one with the median cost
is the result. Reading the file at the requestor and writing it at the responder is in all of them: the responder writes
a new file through a mapping, whose pages the kernel has to find. What that costs by itself is measured with the agent's
own regions, in the same folder, which is in memory with huge pages where that can be had (files/memory.py).

At a rate a host cannot work packets off by the dozen: it waits for each. How often a process woke up is counted by the
kernel (voluntary context switches), and its limit is a Python process that waits for one frame and takes it, and one
that waits for its time and sends it.

With `--wires both` the fabric is brought up over veth pairs and over wires inside the daemon, ROUNDS times each in
turns; what a packet costs the switches over wires is printed as a share of what it costs over veth pairs: the goal is
WIRES_SHARE at most. The other figures are those of the last fabric, over wires.

Schema `mrc-bench-mrc/5` (`--json`); us = microseconds of CPU by data packet:

    fabric, pmtu, bytes, seconds, wall_seconds, goodput_bps
    bytes_equal         whether all files that were sent without SHA-256 arrived whole
    packets             sent, retransmitted, lost; sacks_per_packet
    cpu_us_per_packet   requestor, responder, switches; cpu_us_per_packet_total
    transfers           cpu_us_per_packet of each transfer without SHA-256, in their order
    with_sha256         of the first transfer: cpu_us_per_packet, goodput_bps, sha256_equal; null in `paced`, which is
                        one transfer without
    wakeups_per_packet  requestor, responder, switches: how often the process had gone to sleep
    packets_per_s_and_core {requestor, responder}
    engine_compiled     whether the agents' engine is machine code (`mrc compile`)
    sha256_us_per_packet  for one side, by itself
    data_in_memory      whether files are in memory with huge pages
    file_us_per_packet  at the responder: writing packets into a new mapped file, and nothing else
    floor_us            null with --nic scapy; {requestor, responder}: raw and file together, what a packet of a file
                        costs Python that does none of MRC
    wires               virtual or veth: the links between switches
    compared            null without --wires both; {switches_us {veth, virtual}: of each round, goodput_bps {...},
                        share: median virtual / median veth, target, met}
    switch_cpu_us_per_packet_and_hop, processors, limit_bps: all of these processors at the total cost
    endpoint            null with --nic scapy, as raw; {veth, virtual}, the second where frames are built in C:
                        {requestor, responder}: user_us, system_us, packets_per_s_and_core; sacks_per_packet, compiled
                        (whether frames are built and checked in C)
    raw                 {data, sack}: send_us, receive_us by frame; requestor_us, responder_us: one data frame and the
                        share of a SACK as over veth pairs; ratio {veth, virtual} {requestor, responder}: the endpoint's
                        CPU / raw
    late_frames         {requestor, responder}: frames that left a paced port late (hosts/nic/paced.py); 0 without rates
    paced               null without --rate; the keys above `endpoint` but for limit_bps, and: rate_bps; one_by_one_us
                        {requestor, responder}: the limit (af_packet.py); ratio {requestor, responder}: CPU a
                        packet beside that of `fabric`
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from mrc_testbed.console.units import bits
from mrc_testbed.files.whole_files import write_random
from mrc_testbed.hosts.agent.regions import Regions
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.nic.native import native
from mrc_testbed.ipc.agent_client import AgentClient
from mrc_testbed.ipc.procfs import cpu_seconds
from mrc_testbed.native_build import state
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.open_fabric import open_fabric
from mrc_testbed.topologies.lab.options import VETH, VIRTUAL, LabOptions
from mrc_testbed.topologies.plan import Plan
from tools.bench import af_packet, endpoint

SCHEMA = "mrc-bench-mrc/5"
TRANSFER_LIMIT_S = 300.0
"""A bound for a transfer that takes seconds: beyond it there is no figure."""
TRANSFERS = 3
ROUNDS = 5
WIRES_SHARE = 0.5
ENDPOINT_PACKETS = 60_000
RAW_FRAMES = 40_000
PACED_S = 8.0
"""Seconds of a transfer at a rate with filled links; a plane gets PACED_LEAST packets at least."""
PACED_LEAST = 8
ONE_BY_ONE_FRAMES, ONE_BY_ONE_MAX_S = 8192, 0.001
"""A wake-up costs no more after a longer sleep."""
SIDES = ("requestor", "responder")


def wakeups(pid: int) -> int:
    """Times that the threads of a process went to sleep by themselves (voluntary context switches)."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                total += int(line.split()[1])
    return total


def run(
    plan: Plan,
    size: int,
    lab: LabOptions,
    console: Console,
    *,
    both_wires: bool = False,
    pmtu: int = 4096,
    paced_plan: Plan | None = None,
) -> dict[str, Any]:
    """Send `size` random bytes from h0 to another rack at full speed; then run endpoint and raw alone.

    `both_wires`: over both kinds of wires in turn.
    `paced_plan`: the same fabric with rates, which is measured before, for PACED_S or until `size` is sent.

    Raises the errors of the fabric and of the agents.
    """

    def transfer(kind: str | None) -> dict[str, Any]:
        with open_fabric(plan, replace(lab, wires=kind), console) as fabric:
            return _measure_all(fabric, plan, size, pmtu)

    at_rate = None
    if paced_plan is not None:
        at_rate = _measure_paced(paced_plan, size, lab, console)
    rounds = [transfer(kind) for kind in ((VETH, VIRTUAL) * ROUNDS if both_wires else (lab.wires,))]
    result = rounds[-1]
    result["compared"] = _compare(rounds) if both_wires else None
    result["endpoint"] = result["raw"] = result["floor_us"] = None
    # Endpoint and raw frames use the fast NIC; beside another one they compare nothing.
    if lab.nic == "fast":
        console.print("measuring two endpoints by themselves, and AF_PACKET by itself")
        kinds = endpoint.WIRES if native() is not None else endpoint.WIRES[:1]
        result["endpoint"] = {kind: _endpoint(pmtu, kind) for kind in kinds}
        result["raw"] = _raw(pmtu, result["endpoint"])
        result["floor_us"] = floor_us(result)
    _print_fabric(result, console)
    if lab.nic == "fast":
        _print_alone(result["endpoint"], result["raw"], console)
        floor = result["floor_us"]
        console.print(
            f"a packet of a file without MRC (raw, new file): requestor {floor['requestor']:.1f} us, "
            f"responder {floor['responder']:.1f} us"
        )
    result["paced"] = at_rate
    if at_rate is not None:
        cpu, full_speed_cpu = at_rate["cpu_us_per_packet"], result["cpu_us_per_packet"]
        at_rate["ratio"] = {
            side: round(cpu[side] / full_speed_cpu[side], 2) if full_speed_cpu[side] else None for side in SIDES
        }
        _print_paced(at_rate, result, console)
    if result["compared"] is not None:
        _print_compared(result["compared"], console)
    return result


def _measure_paced(plan: Plan, max_bytes: int, lab: LabOptions, console: Console) -> dict[str, Any]:
    """A transfer of `max_bytes` bytes at most over links with a rate, and the limit beside it."""
    rate = plan.host_link.rate_bps
    assert rate is not None
    pmtu = plan.pmtu_bytes
    frame_s = plan.frame_bytes(pmtu) * 8 / rate
    size = min(max_bytes, max(PACED_LEAST, int(PACED_S / frame_s)) * plan.planes * pmtu)
    with open_fabric(plan, lab, console) as fabric:
        result = measure(random_file(fabric, size), fabric, plan, pmtu, sha256=False)
        result["file_us_per_packet"] = _file_alone(fabric, size, pmtu)
    del result["limit_bps"], result["sha256_equal"]
    result["with_sha256"] = None
    console.print("measuring AF_PACKET by itself, a frame at a time")
    interval_s = min(frame_s / plan.planes, ONE_BY_ONE_MAX_S)
    raw_cost = af_packet.measure(af_packet.data_frame_bytes(pmtu), ONE_BY_ONE_FRAMES, interval_s)
    result["rate_bps"] = rate
    result["one_by_one_us"] = {"requestor": raw_cost["send_us"], "responder": raw_cost["receive_us"]}
    return result


def _compare(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Cost of the switches, by kind of link."""

    def values_of(kind: str, value: Callable[[dict[str, Any]], float]) -> list[float]:
        return [value(round_) for round_ in rounds if round_["wires"] == kind]

    switches = {
        kind: values_of(kind, lambda round_: round_["cpu_us_per_packet"]["switches"]) for kind in (VETH, VIRTUAL)
    }
    goodput = {kind: values_of(kind, lambda round_: round_["goodput_bps"]) for kind in (VETH, VIRTUAL)}
    share = round(median(switches[VIRTUAL]) / median(switches[VETH]), 3)
    met = share <= WIRES_SHARE
    return {"switches_us": switches, "goodput_bps": goodput, "share": share, "target": WIRES_SHARE, "met": met}


def random_file(fabric: Fabric, size: int) -> Path:
    """A file of `size` random bytes where hosts keep theirs."""
    path = fabric.run_dir.data / "bench-random"
    write_random(path, size)
    return path


def _measure_all(fabric: Fabric, plan: Plan, size: int, pmtu: int) -> dict[str, Any]:
    """One transfer with SHA-256, and the median of those without."""
    path = random_file(fabric, size)
    hashed_transfer = measure(path, fabric, plan, pmtu, sha256=True)
    result = middle(hashed_transfer, [measure(path, fabric, plan, pmtu, sha256=False) for _ in range(TRANSFERS)])
    result["file_us_per_packet"] = _file_alone(fabric, size, pmtu)
    return result


def middle(hashed_transfer: dict[str, Any], transfers: list[dict[str, Any]]) -> dict[str, Any]:
    """The transfer with the median cost, and what has to be said of all."""
    result = sorted(transfers, key=lambda transfer: transfer["cpu_us_per_packet_total"])[len(transfers) // 2]
    return {
        **{key: value for key, value in result.items() if key != "sha256_equal"},
        "bytes_equal": all(transfer["bytes_equal"] for transfer in transfers),
        "transfers": [transfer["cpu_us_per_packet"] for transfer in transfers],
        "with_sha256": {key: hashed_transfer[key] for key in ("cpu_us_per_packet", "goodput_bps", "sha256_equal")},
    }


def equal(a: Path, b: Path) -> bool:
    """Whether two files have the same bytes."""
    with a.open("rb") as file_a, b.open("rb") as file_b:
        while (block := file_a.read(1 << 20)) == file_b.read(1 << 20):
            if not block:
                return True
    return False


def _received(fabric: Fabric) -> Path:
    """Return the path where the responder puts the file."""
    return fabric.run_dir.data / "bench-received"


def _file_alone(fabric: Fabric, size: int, pmtu: int) -> float:
    """Return the CPU microseconds a packet of the file alone, written in place of the last received one."""
    _received(fabric).unlink()
    return round(new_file_us(fabric.run_dir.data / "bench-alone", size, pmtu), 2)


def measure(path: Path, fabric: Fabric, plan: Plan, pmtu: int, *, sha256: bool) -> dict[str, Any]:
    """One transfer of the file at `path`; what arrives is compared.

    The file of the transfer before goes only now, so that its memory, which this one gets, has not been given back to
    the host of a virtual machine meanwhile (docs/design/agent-turns.md).
    """
    source, destination = plan.hosts[0], plan.first_remote_host("h0")
    size, received = path.stat().st_size, _received(fabric)
    received.unlink(missing_ok=True)
    pids = {child.name: child.pid for child in fabric.processes}
    with AgentClient(fabric.run_dir.agent_socket(source.name)) as agent:
        cpu_before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        woken = {name: wakeups(pid) for name, pid in pids.items()}
        began = time.monotonic()
        answer = agent.send_file(path, destination.name, dest_path=str(received), pmtu=pmtu, sha256=sha256)
        result = agent.wait(answer["transfer"], timeout_s=TRANSFER_LIMIT_S)
        # The CPU is read before files are compared, which would count too.
        cpu = {name: cpu_seconds(pid) - cpu_before[name] for name, pid in pids.items()}
        woken = {name: wakeups(pid) - woken[name] for name, pid in pids.items()}
    wall_s, is_equal = time.monotonic() - began, equal(path, received)
    late_frames = {label: _late_frames(fabric, name) for name, label in _agents(plan).items()}
    counters, seconds = result["counters"], result["duration_s"]
    packets = counters["sent"]
    hops = 3 if source.rack != destination.rack else 1
    labels = {**_agents(plan), "switchd": "switches"}
    shares = {label: cpu.get(name, 0.0) / packets * 1e6 for name, label in labels.items()}
    total = sum(shares.values())
    cores = len(os.sched_getaffinity(0))
    return {
        "schema": SCHEMA,
        "fabric": plan.to_json(),
        "wires": fabric.wires,
        "pmtu": pmtu,
        "bytes": size,
        "seconds": round(seconds, 3),
        "wall_seconds": round(wall_s, 3),
        "goodput_bps": round(size * 8 / seconds),
        "packets": {key: counters[key] for key in ("sent", "retransmitted", "lost")},
        "sacks_per_packet": round(counters["sacks_received"] / packets, 3),
        "cpu_us_per_packet": {label: round(value, 2) for label, value in shares.items()},
        "cpu_us_per_packet_total": round(total, 2),
        "wakeups_per_packet": {label: round(woken.get(name, 0) / packets, 3) for name, label in labels.items()},
        "late_frames": late_frames,
        "sha256_us_per_packet": round(sha256_us(pmtu), 2),
        "engine_compiled": state().active,
        "data_in_memory": fabric.data_in_memory,
        "packets_per_s_and_core": {side: packets_per_s(shares[side]) for side in SIDES},
        "switch_cpu_us_per_packet_and_hop": round(shares["switches"] / hops, 2),
        "processors": cores,
        "limit_bps": round(size / packets * 8 * cores * 1e6 / total) if total else None,
        "bytes_equal": is_equal,
        "sha256_equal": result["sha256"] == result["remote_sha256"] if sha256 else None,
    }


def _agents(plan: Plan) -> dict[str, str]:
    """Return the role of each of the transfer's two hosts, by name."""
    return {plan.hosts[0].name: "requestor", plan.first_remote_host("h0").name: "responder"}


def _late_frames(fabric: Fabric, host: str) -> int:
    """Frames of a host that left a paced port late (hosts/nic/paced.py)."""
    with AgentClient(fabric.run_dir.agent_socket(host)) as agent:
        ports = agent.status()["ports"].values()
    return sum(int(port["pacing"]["late"]) for port in ports if "pacing" in port)


def packets_per_s(cpu_us: float) -> int | None:
    """Rate that one processor carries at that cost, packets/s; None when there was too little to measure."""
    return round(1e6 / cpu_us) if cpu_us > 0 else None


def sha256_us(size: int) -> float:
    """CPU microseconds for the SHA-256 of `size` bytes in a long stream."""
    block, blocks = bytes(1 << 20), 64
    digest, began = hashlib.sha256(), time.process_time()
    for _ in range(blocks):
        digest.update(block)
    return (time.process_time() - began) * 1e6 * size / (blocks * len(block))


def new_file_us(path: Path, size: int, pmtu: int) -> float:
    """Return the CPU microseconds a packet to write `size` bytes into a new file, as an agent does.

    The file is removed.
    """
    regions, block = Regions(Endpoint("bench", planes=1, seed=0)), os.urandom(pmtu)
    began = time.process_time()
    region = regions.receive_file(path, size)
    view = region.memory.view
    for start in range(0, size - pmtu + 1, pmtu):
        view[start : start + pmtu] = block
    regions.remove(region)
    return (time.process_time() - began) * 1e6 * pmtu / size


def floor_us(result: dict[str, Any]) -> dict[str, float]:
    """CPU microseconds of a data packet of a file without MRC, by side."""
    raw = result["raw"]
    file = {"requestor": 0.0, "responder": result["file_us_per_packet"]}
    return {side: round(raw[f"{side}_us"] + file[side], 2) for side in SIDES}


def _endpoint(pmtu: int, wires: str) -> dict[str, Any]:
    """The endpoint alone, by side."""
    measurement = endpoint.measure(ENDPOINT_PACKETS, pmtu, wires)
    sides = {
        side: {
            "user_us": round(measurement[side]["user_us"], 2),
            "system_us": round(measurement[side]["system_us"], 2),
            "packets_per_s_and_core": packets_per_s(cost(measurement[side])),
        }
        for side in SIDES
    }
    sacks = round(measurement["requestor"]["sacks_per_packet"], 3)
    return {**sides, "sacks_per_packet": sacks, "compiled": measurement["requestor"]["compiled"]}


def cost(side: dict[str, Any]) -> float:
    """CPU microseconds of one side by data packet."""
    return float(side["user_us"] + side["system_us"])


def _raw(pmtu: int, endpoint_costs: dict[str, Any]) -> dict[str, Any]:
    """AF_PACKET alone, and the endpoint's cost in units of it."""
    frames = af_packet.limits(pmtu, RAW_FRAMES)
    data, sack, share = frames["data"], frames["sack"], endpoint_costs[VETH]["sacks_per_packet"]
    limits = {
        "requestor": data["send_us"] + share * sack["receive_us"],
        "responder": data["receive_us"] + share * sack["send_us"],
    }
    ratio = {
        kind: {side: round(cost(costs[side]) / limits[side], 2) if limits[side] > 0 else None for side in SIDES}
        for kind, costs in endpoint_costs.items()
    }
    return {**frames, **{f"{side}_us": round(us, 2) for side, us in limits.items()}, "ratio": ratio}


def _print_fabric(result: dict[str, Any], console: Console) -> None:
    packets = result["packets"]
    console.print(
        f"goodput {bits(result['goodput_bps'])}: {result['bytes']:,} bytes in {result['seconds']:.2f} s, "
        f"{packets['sent']:,} packets of {result['pmtu']} bytes ({packets['retransmitted']:,} retransmitted), "
        f"{result['sacks_per_packet']:.2f} SACKs a packet"
    )
    hashed_cost = result["with_sha256"]["cpu_us_per_packet"]
    table = Table(
        "CPU us per data packet",
        "in the fabric",
        "packets/s and core",
        "each transfer",
        "first, with SHA-256",
        box=None,
        padding=(0, 2),
    )
    # Rates per core exist for hosts alone.
    for label, value in result["cpu_us_per_packet"].items():
        rate = result["packets_per_s_and_core"].get(label)
        transfer_costs = " ".join(f"{transfer[label]:.1f}" for transfer in result["transfers"])
        table.add_row(label, f"{value:8.1f}", f"{rate:,}" if rate else "", transfer_costs, f"{hashed_cost[label]:8.1f}")
    table.add_row("all", f"{result['cpu_us_per_packet_total']:8.1f}", "", "", f"{sum(hashed_cost.values()):8.1f}")
    console.print(table)
    storage = "in memory with huge pages" if result["data_in_memory"] else "in the run folder's file system"
    console.print(
        f"engine {'compiled' if result['engine_compiled'] else 'in Python: `mrc compile` makes it faster'}; "
        f"without SHA-256 of the file, which no NIC computes ({result['sha256_us_per_packet']:.1f} us by itself, at "
        f"either host); files compared here, byte by byte: {'equal' if result['bytes_equal'] else 'NOT EQUAL'}. At the "
        f"responder {result['file_us_per_packet']:.1f} us are for pages of a new file, {storage}. "
        f"Switches {result['switch_cpu_us_per_packet_and_hop']:.1f} us per data packet and hop, SACKs on the way back "
        f"included; limit of {result['processors']} processors at this cost: {bits(result['limit_bps'] or 0)}"
    )


def _print_paced(at_rate: dict[str, Any], full_speed_result: dict[str, Any], console: Console) -> None:
    cost_us, wakes = at_rate["cpu_us_per_packet"], at_rate["wakeups_per_packet"]
    one_by_one = at_rate["one_by_one_us"]
    table = Table(
        "CPU us per data packet",
        f"at {bits(at_rate['rate_bps'])} a link",
        "wake-ups a packet",
        "at full speed",
        "ratio",
        "raw, one by one",
        box=None,
        padding=(0, 2),
    )
    for label, value in cost_us.items():
        # Switches have no raw counterpart.
        limit, ratio = one_by_one.get(label), at_rate["ratio"].get(label)
        table.add_row(
            label,
            f"{value:8.1f}",
            f"{wakes[label]:8.2f}",
            f"{full_speed_result['cpu_us_per_packet'][label]:8.1f}",
            f"{ratio}" if ratio else "",
            f"{limit:6.1f}" if limit else "",
        )
    console.print(table)
    late_frames = at_rate["late_frames"]
    console.print(
        f"paced: {at_rate['bytes']:,} bytes at {bits(at_rate['goodput_bps'])}, {at_rate['packets']['sent']:,} packets "
        f"of {at_rate['pmtu']} bytes ({at_rate['packets']['retransmitted']:,} retransmitted), "
        f"{at_rate['sacks_per_packet']:.2f} SACKs a packet; late frames: requestor {late_frames['requestor']}, "
        f"responder {late_frames['responder']}. "
        "Raw, one by one: Python that sleeps before each frame it sends, or is woken up by each it takes"
    )


def _print_compared(comparison: dict[str, Any], console: Console) -> None:
    for kind, costs in comparison["switches_us"].items():
        cost_list = ", ".join(f"{cost:.2f}" for cost in costs)
        rates = ", ".join(bits(rate) for rate in comparison["goodput_bps"][kind])
        console.print(f"switches over {kind:<7} {cost_list} us per data packet; goodput {rates}")
    console.print(
        f"a packet over virtual wires costs the switches {comparison['share']:.2f} x of what it costs over veth: "
        f"{'met' if comparison['met'] else 'NOT MET'}, at most {comparison['target']:g}"
    )


def _print_alone(endpoint_costs: dict[str, Any], limit: dict[str, Any], console: Console) -> None:
    columns = ("CPU us per data packet", "endpoint", "user", "system", "packets/s and core", "raw AF_PACKET", "ratio")
    table = Table(*columns, box=None, padding=(0, 2))
    for kind, costs in endpoint_costs.items():
        for side in SIDES:
            side_cost = costs[side]
            table.add_row(
                f"{side}, {kind}",
                f"{cost(side_cost):6.1f}",
                f"{side_cost['user_us']:6.1f}",
                f"{side_cost['system_us']:6.1f}",
                f"{side_cost['packets_per_s_and_core'] or 0:,}",
                f"{limit[f'{side}_us']:6.1f}",
                f"{limit['ratio'][kind][side]}",
            )
    console.print(table)
    over_veth = endpoint_costs[VETH]
    console.print(
        f"endpoint: two agents, no file; veth: back to back, no switch; virtual: memory shared with a switch between "
        f"them. Frames built and checked {'in C' if over_veth['compiled'] else 'in Python'}; "
        f"{over_veth['sacks_per_packet']:.2f} SACKs a packet. "
        f"Raw: Python that only sends or only takes the same frames"
    )
