"""The commands `mrc bench`, and `mrc fuzz p4`: they run from a checkout alone."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from mrc_testbed.cli import completion as offer
from mrc_testbed.cli.options import (
    CLUSTER_PMTU,
    Json,
    Nic,
    SizeOptions,
    expand_options,
    parse_rate,
    parse_size,
    require_root,
)
from mrc_testbed.console.progress import Progress
from mrc_testbed.console.terminal import console
from mrc_testbed.errors import UsageError

bench_app = typer.Typer(
    help="Measure ratios side by side in one run.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ONE_HOST = SizeOptions(hosts_per_rack=1)
SWITCHES_64 = SizeOptions(planes=8, racks=4, spines=4, hosts_per_rack=1)
BenchWires = Annotated[
    str | None,
    typer.Option(
        "--wires",
        autocompletion=offer.one_of(*offer.BENCH_WIRES),
        help="Links between switches: `virtual` (default), `veth`, or `both`, one after the other.",
    ),
]


def _names(noun: str, text: str | None, known_names: Collection[str]) -> list[str]:
    """Return the names of an option `--WHATs`; all of `known_names` by default. Raises UsageError."""
    names = [name.strip() for name in text.split(",")] if text else list(known_names)
    if unknown := [name for name in names if name not in known_names]:
        raise UsageError(f"--{noun}s: no {noun} {unknown[0]!r} (has: {', '.join(known_names)})")
    return names


def _end(result: dict[str, Any], as_json: bool, *, met: bool = True) -> NoReturn:
    """End of a benchmark: its figures as JSON with --json; exit code 1 when a target was missed."""
    if as_json:
        print(json.dumps(result, indent=2))
    raise typer.Exit(0 if met else 1)


@bench_app.command("switch")
def bench_switch(as_json: Json = False) -> None:
    """Measure CPU microseconds per packet and hop: the embedded switch beside an AF_PACKET forwarder in C."""
    from tools.bench import switch

    require_root("bench")
    with Progress(console(stderr=True), "bench switch", guess_s=180.0) as progress:
        result = switch.run(progress.step)
    if not as_json:
        print(switch.table(result))
    _end(result, as_json)


@bench_app.command(
    "mrc",
    epilog="Examples: `mrc bench mrc` · `mrc bench mrc --rate 10M --size 64M` · `mrc bench mrc --wires both`",
)
@expand_options
def bench_mrc(
    *,
    shape: SizeOptions = ONE_HOST,
    size: Annotated[str, typer.Option("--size", help="Bytes of a transfer, at most 8 s of them at a rate.")] = "256M",
    pmtu: Annotated[
        int | None,
        typer.Option("--pmtu", help="Path MTU: payload bytes of a packet. Default: 4096, or 1024 at a rate."),
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", help="Rate of links to measure beside unlimited ones, e.g. 10M (bits/s).")
    ] = None,
    nic: Nic = "fast",
    wires: BenchWires = None,
    as_json: Json = False,
) -> None:
    """Measure the cost of an MRC packet: across the fabric, at the endpoint alone, and beside AF_PACKET."""
    from mrc_testbed.cli.link_options import LinkOptions
    from mrc_testbed.topologies.lab.options import LabOptions
    from mrc_testbed.topologies.plan import Plan
    from tools.bench import mrc

    bytes_total, rate_bps = parse_size(size), parse_rate(rate)
    if pmtu is None:
        pmtu = 4096 if rate_bps is None else 1024
    if pmtu not in (256, 512, 1024, 2048, 4096):
        raise UsageError(f"--pmtu {pmtu}: give 256, 512, 1024, 2048 or 4096 bytes")
    paced_plan = None if rate_bps is None else LinkOptions(rate=f"{rate_bps:.0f}", pmtu=pmtu).plan(*astuple(shape))
    _check_bench_wires(wires)
    has_both = wires == "both"
    lab = LabOptions(nic=nic, wires=None if has_both else wires)
    require_root("bench")
    lines = console(stderr=as_json)
    with Progress(lines, f"bench mrc {wires or ''} {'paced' if paced_plan else ''}".strip(), guess_s=60.0):
        result = mrc.run(
            Plan(*astuple(shape)), bytes_total, lab, lines, both_wires=has_both, pmtu=pmtu, paced_plan=paced_plan
        )
    met = result["compared"] is None or result["compared"]["met"]
    _end(result, as_json, met=met and result["bytes_equal"])


@bench_app.command("exec", epilog="Examples: `mrc bench exec` · `mrc bench exec --seconds 10 --json`")
def bench_exec(
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Time that the program writes.")] = 5.0,
    size: Annotated[str, typer.Option("--size", help="Bytes of the agents' transfer.")] = "128M",
    as_json: Json = False,
) -> None:
    """Measure what a packet of a program over libmrc costs, beside agents; latency and bandwidth."""
    from mrc_testbed.topologies.lab.options import LabOptions
    from mrc_testbed.topologies.plan import Plan
    from tools.bench import programs

    require_root("bench")
    lines = console(stderr=as_json)
    with Progress(lines, "bench exec", guess_s=60.0 + 3 * seconds):
        result = programs.run(Plan(), parse_size(size), seconds, LabOptions(), lines)
    _end(result, as_json, met=result["met"])


@bench_app.command("collectives", epilog="Examples: `mrc bench collectives` · `mrc bench collectives --json`")
def bench_collectives(as_json: Json = False) -> None:
    """Measure all_reduce by MRC beside gloo and Open MPI over the fabric's IP."""
    from mrc_testbed.topologies.lab.options import LabOptions
    from mrc_testbed.topologies.plan import Plan
    from tools.bench import collectives

    require_root("bench")
    lines = console(stderr=as_json)
    with Progress(lines, "bench collectives", guess_s=120.0):
        result = collectives.run(Plan(), LabOptions(), lines)
    _end(result, as_json)


@bench_app.command("cluster", epilog="Example: `mrc bench cluster --servers servers.yaml --size 64M --rounds 3`")
@expand_options
def bench_cluster(
    *,
    servers: Annotated[Path, typer.Option("--servers", help="YAML file of the machines (docs/cluster.md).")],
    shape: SizeOptions,
    size: Annotated[str, typer.Option("--size", help="Bytes of a transfer.")] = "64M",
    pmtu: Annotated[int, typer.Option("--pmtu", help="Path MTU: payload bytes of a packet.")] = CLUSTER_PMTU,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, max=20, help="Number of transfers on one machine, and on all.")
    ] = 3,
    as_json: Json = False,
) -> None:
    """Measure packets/s and CPU of a transfer on several machines beside the same on this one."""
    from mrc_testbed.topologies.plan import Plan
    from mrc_testbed.topologies.servers import read
    from tools.bench import cluster

    machines = read(servers)
    plan = Plan(*astuple(shape), pmtu_bytes=pmtu)
    require_root("bench")
    lines = console(stderr=as_json)
    with Progress(lines, "bench cluster", guess_s=20.0 * rounds):
        result = cluster.run(plan, machines, parse_size(size), rounds, lines)
    if not as_json:
        print(cluster.table(result))
    _end(result, as_json)


def _check_bench_wires(wires: str | None) -> None:
    """Raises UsageError."""
    from mrc_testbed.topologies.lab.options import WIRES

    if wires is not None and wires not in (*WIRES, "both"):
        raise UsageError(f"--wires {wires}: give {', '.join(WIRES)} or both")


@bench_app.command("spray")
def bench_spray(
    mode: Annotated[
        str,
        typer.Option("--mode", autocompletion=offer.one_of(*offer.MODES[2:]), help="switch-spray, ecmp or flow-ecmp."),
    ] = "switch-spray",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Number of cuts with the controller.")] = 10,
    as_json: Json = False,
) -> None:
    """Measure the loss of packets after the cut of a T1-T0 downlink, with the controller and without it."""
    from tools.bench import spray

    require_root("bench")
    result = spray.run(mode, rounds, console(stderr=as_json))
    _end(result, as_json, met=result["met"])


@bench_app.command(
    "faults",
    epilog="Examples: `mrc bench faults --singles 100` · `mrc bench faults --kinds blackhole` · "
    "`mrc bench faults --virtual --sets 10000 --out wrong`",
)
@expand_options
def bench_faults(
    *,
    shape: SizeOptions,
    loop: Annotated[int, typer.Option("--singles", min=0, help="Number of single faults.")] = 100,
    pairs: Annotated[int, typer.Option("--pairs", min=0, help="Number of pairs of simultaneous faults.")] = 10,
    kinds: Annotated[
        str | None,
        typer.Option(
            "--kinds",
            autocompletion=offer.several_of(*offer.FAULT_KINDS),
            help="Kinds, separated by commas (default: all).",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the links and nodes.")] = 1,
    scaled: Annotated[bool, typer.Option("--scaled", help="Use links of 10 Mb/s and a base RTT of 10 ms.")] = False,
    virtual: Annotated[
        bool,
        typer.Option("--virtual", help="Inject random sets of faults in virtual time, on fabrics of several sizes."),
    ] = False,
    sets: Annotated[int, typer.Option("--sets", min=1, help="Number of sets with --virtual.")] = 1000,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=64, help="Processes with --virtual.")] = 1,
    keep: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the observations of sets that --virtual finds misnamed."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Inject faults of every kind on random links and nodes; report when and by whom each is found.

    With --virtual no fabric is needed: one to four causes at a time, with observations late, reordered or lost. The
    report counts the sets named exactly, left open with the true cause among the candidates, missed, or wrong.
    """
    if virtual:
        from tools.campaigns import virtual_faults

        result = virtual_faults.run(seed, sets, jobs=jobs, folder=keep, console=console(stderr=as_json))
        _end(result, as_json, met=result["passed"])
    from mrc_testbed.topologies.plan import Plan
    from tools.campaigns import faults

    plan = (Plan.scaled if scaled else Plan)(*astuple(shape))
    chosen_kinds = _names("kind", kinds, faults.KINDS)
    require_root("bench")
    lines, size = console(stderr=as_json), (loop + pairs) / shape.planes
    with Progress(lines, "bench faults", guess_s=15.0 + 10.0 * size, size=1.5 + size):
        result = faults.run(plan, loop=loop, pair_count=pairs, kinds=chosen_kinds, seed=seed, console=lines)
    _end(result, as_json, met=result["passed"])


@bench_app.command(
    "fluid",
    epilog="Examples: `mrc bench fluid --seeds 3` · `mrc bench fluid --fabric 4x16x16x16` · "
    "`mrc bench fluid --calibrate --json` · `mrc bench fluid --detect --figure detect.png`",
)
def bench_fluid(
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Number of seeds of each fabric.")] = 3,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure the constants that the model takes from the packet simulator.")
    ] = False,
    fabric: Annotated[
        list[str] | None,
        typer.Option("--fabric", help="Planes, racks, spines, hosts of a rack, such as 4x8x8x8; repeatable."),
    ] = None,
    detect: Annotated[
        bool, typer.Option("--detect", help="Measure how soon probes detect a dead link, and its return.")
    ] = False,
    figure: Annotated[Path | None, typer.Option("--figure", help="File for the picture of --detect.")] = None,
    as_json: Json = False,
) -> None:
    """Measure the fluid model beside the packet simulator, and its start with 131,072 NICs."""
    from tools.campaigns import fluid

    if figure is not None and not detect:
        raise UsageError("--figure draws what --detect finds: give --detect too")
    if detect:
        from tools.campaigns import fluid_detection

        _end(fluid_detection.run(console(stderr=as_json), figure), as_json)
        return
    fabrics = [fluid.fabric_of(text) for text in fabric or ()]
    _end(fluid.run(seeds, calibrate, console(stderr=as_json), fabrics), as_json)


@bench_app.command("transport")
def bench_transport(as_json: Json = False) -> None:
    """Measure the transport (loss, incast, dead paths) beside its targets in virtual time; needs no root."""
    from tools.bench import transport

    result = transport.run(console(stderr=as_json))
    _end(result, as_json, met=result["met"])


@bench_app.command(
    "virtual",
    epilog="Examples: `mrc bench virtual` · `mrc bench virtual --hosts 8 --packets 20000 --profile` · "
    "`mrc bench virtual --hosts 64,512 --json`",
)
def bench_virtual(
    hosts: Annotated[
        str, typer.Option("--hosts", help="Numbers of hosts, separated by commas; 4 to 1024.")
    ] = "8,64,512",
    packets: Annotated[
        int, typer.Option("--packets", min=1, max=100_000_000, help="Data packets of each run, of all hosts together.")
    ] = 65_536,
    wire: Annotated[bool, typer.Option("--wire", help="Send packets as bytes, through the codec.")] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Print a profile of the Python form afterwards (cProfile).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure the cost of a packet in the virtual fabric: compiled, interpreted, and a bare loop in C.

    Needs no root.

    Exit code 1 when the compiled and the interpreted form end in different states.
    """
    from tools.bench import virtual

    sizes = virtual.parse_hosts(hosts)
    result = virtual.run(sizes, packets, console=console(stderr=as_json), with_profile=profile, wire=wire)
    _end(result, as_json, met=result["met"])


@bench_app.command(
    "peers",
    epilog="Examples: `mrc bench peers --htsim ~/htsim/datacenter/htsim_uec` · "
    "`mrc bench peers --htsim ./htsim_uec --racks 32 --hosts-per-rack 16 --cases permutation --seeds 1 --json`",
)
def bench_peers(
    *,
    htsim: Annotated[
        Path, typer.Option("--htsim", exists=True, dir_okay=False, resolve_path=True, help="Program htsim_uec.")
    ],
    racks: Annotated[int, typer.Option("--racks", min=2, max=64, help="Number of racks.")] = 8,
    hosts_per_rack: Annotated[
        int, typer.Option("--hosts-per-rack", min=1, max=64, help="Hosts of a rack, and spines.")
    ] = 8,
    rate: Annotated[str, typer.Option("--rate", help="Rate of every link.")] = "100G",
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=100, help="Runs of a case; their median counts.")] = 3,
    cases: Annotated[str | None, typer.Option("--cases", help="Names with commas between; all by default.")] = None,
    as_json: Json = False,
) -> None:
    """Compare flows and cost of the virtual fabric with those of htsim_uec on the same fabric.

    htsim_uec is the simulator of NSCC's authors (ultraethernet/uet-htsim). CPU is that of the run without set-up, for
    each data packet sent, those sent again included. Needs no root.
    """
    from tools.bench import peers

    rate_bps = parse_rate(rate)
    assert rate_bps is not None
    fabric = peers.LeafSpine(racks, hosts_per_rack, rate_bps)
    known_cases = {case.name: case for case in peers.cases_of(fabric)}
    wanted_cases = [known_cases[name] for name in _names("case", cases, known_cases)]
    result = peers.run(htsim, fabric, seeds, wanted_cases, console=console(stderr=as_json))
    if not as_json:
        peers.show(result, console())
    _end(result, as_json)


@dataclass(frozen=True)
class ComparedTraces:
    """Traces to compare."""

    trace: Annotated[
        list[Path] | None,
        typer.Option("--trace", exists=True, help="Trace to compare, instead of collectives; may be given again."),
    ] = None
    groups: Annotated[
        Path | None, typer.Option("--groups", exists=True, help="JSON file with the ranks of each process group.")
    ] = None
    trace_ranks: Annotated[
        int | None, typer.Option("--trace-ranks", min=2, max=64, help="Ranks, where a workload does not say it.")
    ] = None


@dataclass(frozen=True)
class ComparedCollectives:
    """Collectives to compare where no trace is given."""

    kinds: Annotated[str | None, typer.Option("--kinds", help="Collectives with commas between; 4 by default.")] = None
    ranks: Annotated[str, typer.Option("--ranks", help="Numbers of ranks, 2 to 64, with commas between.")] = "4,16,64"
    sizes: Annotated[str, typer.Option("--sizes", help="Sizes as nccl-tests count them.")] = "1M,16M,64M"
    chunks: Annotated[
        int, typer.Option("--chunks", min=1, max=64, help="Equal parts of a collective, one after the other.")
    ] = 1


ANY_TRACE, ALL_COLLECTIVES = ComparedTraces(), ComparedCollectives()


@bench_app.command(
    "traces",
    epilog="Examples: `mrc bench traces --astra-sim bin/AstraSim_Analytical_Congestion_Unaware --loggopsim "
    "LogGOPSim/LogGOPSim` · `mrc bench traces --loggopsim LogGOPSim/LogGOPSim --trace sweep3d.goal --json`",
)
@expand_options
def bench_traces(
    *,
    astra_sim: Annotated[
        list[Path] | None,
        typer.Option(
            "--astra-sim",
            exists=True,
            dir_okay=False,
            resolve_path=True,
            help="Program of ASTRA-sim's analytical network, of congestion-unaware or -aware; may be given twice.",
        ),
    ] = None,
    loggopsim: Annotated[
        Path | None,
        typer.Option(
            "--loggopsim",
            exists=True,
            dir_okay=False,
            resolve_path=True,
            help="Program LogGOPSim, with txt2bin beside it.",
        ),
    ] = None,
    compared_traces: ComparedTraces = ANY_TRACE,
    collectives: ComparedCollectives = ALL_COLLECTIVES,
    rate: Annotated[str, typer.Option("--rate", help="Rate of every link.")] = "400G",
    rtt: Annotated[
        float, typer.Option("--rtt", min=1e-6, max=1, help="Unloaded round trip over a T1, seconds.")
    ] = 1e-5,
    as_json: Json = False,
) -> None:
    """Compare step times of traces with those of ASTRA-sim and LogGOPSim (ATLAHS) on the same links.

    The programs are yours: this writes their inputs and reads their outputs. Needs no root.
    """
    from tools.bench import traces

    if not astra_sim and loggopsim is None:
        raise UsageError("bench traces: nothing to compare with: give --astra-sim FILE, --loggopsim FILE, or both")
    rate_bps = parse_rate(rate)
    assert rate_bps is not None
    fabric = traces.OneSwitch(rate_bps, rtt)
    with tempfile.TemporaryDirectory() as folder:
        if compared_traces.trace:
            cases = [
                traces.TraceCase(path.name, path.resolve(), compared_traces.groups, compared_traces.trace_ranks)
                for path in compared_traces.trace
            ]
        else:
            counts = traces.rank_counts(collectives.ranks)
            wanted_sizes = [parse_size(text) for text in collectives.sizes.split(",")]
            wanted_kinds = _names("kind", collectives.kinds, traces.KINDS)
            folder_path = Path(folder)
            cases = list(
                traces.collective_cases(wanted_kinds, counts, wanted_sizes, folder_path, chunks=collectives.chunks)
            )
        result = traces.run(fabric, cases, astra=astra_sim or [], loggopsim=loggopsim, console=console(stderr=as_json))
    if not as_json:
        traces.show(result, console())
    _end(result, as_json)


@bench_app.command("provision", epilog="Examples: `mrc bench provision` · `mrc bench provision --wires both`")
@expand_options
def bench_provision(
    *,
    shape: SizeOptions = SWITCHES_64,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Number of rounds.")] = 3,
    wires: BenchWires = None,
    as_json: Json = False,
) -> None:
    """Measure the time from nothing to provisioned switches (64 by default), step by step."""
    from mrc_testbed.topologies.plan import Plan
    from tools.bench import provision

    plan = Plan.scaled(*astuple(shape))
    _check_bench_wires(wires)
    require_root("bench")
    result = provision.run(plan, rounds, console(stderr=as_json), wires)
    _end(result, as_json, met=result["met"])


@bench_app.command("incast", epilog="Examples: `mrc bench incast` · `mrc bench incast --rate 10M --rtt 0.01`")
def bench_incast(
    rate: Annotated[str, typer.Option("--rate", help="Rate of every link, bits/s.")] = "5M",
    rtt: Annotated[float, typer.Option("--rtt", min=0.001, max=10, help="Base round trip, seconds.")] = 0.02,
    seconds: Annotated[float, typer.Option("--duration", min=1, max=600, help="Seconds of each measurement.")] = 4.0,
    senders: Annotated[int, typer.Option("--senders", min=2, max=30, help="Number of sending hosts.")] = 7,
    variants: Annotated[
        str | None,
        typer.Option(
            "--variants",
            autocompletion=offer.several_of(*offer.INCAST_VARIANTS),
            help="Variants, separated by commas (default: all).",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure an incast of seven hosts and its victim on live switches; again without ECN, trimming, both."""
    from tools.bench import incast

    chosen_variants = _names("variant", variants, incast.VARIANTS)
    rate_bps = parse_rate(rate)
    assert rate_bps is not None
    require_root("bench")
    result = incast.run(
        rate_bps=rate_bps,
        rtt_s=rtt,
        seconds=seconds,
        variants=chosen_variants,
        senders=senders,
        console=console(stderr=as_json),
    )
    _end(result, as_json, met=result["met"])


def fuzz_p4(runs: int, seed: int, seconds: int, out: Path, programs: list[Path], as_json: bool) -> int:
    """Compare both switches and return the exit code. Raises UsageError without BMv2."""
    from tools.campaigns import p4_fuzz
    from tools.campaigns.bmv2 import Bmv2Error

    try:
        return p4_fuzz.fuzz(runs, seed, seconds, out, programs, as_json)
    except (Bmv2Error, OSError) as error:
        raise UsageError(f"fuzz p4: {error}") from None
