"""The `mrc` command. Each sub-command is thin: it parses, calls one function, prints, and sets the exit code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from mrc_testbed.console import units
from mrc_testbed.errors import BARRED, EXIT_CODES, FULL, INTERRUPTED, INTERRUPTION, UNWRITTEN, FullDiskError, UsageError
from mrc_testbed.console.progress import Progress
from mrc_testbed.console.terminal import console, encode_all
from mrc_testbed.cli import completion as offer
from mrc_testbed.cli.p4 import app as p4_app
from mrc_testbed.cli.plan import add_commands as add_plan_command
from mrc_testbed.cli.scenarios import add_commands as add_scenario_commands
from mrc_testbed.cli.show import add_to as add_asking_commands

if TYPE_CHECKING:
    from mrc_testbed.topologies.servers import Servers

app = typer.Typer(
    name="mrc",
    help="MRC (Multipath Reliable Connection) on P4 switches, on this machine: spray, cut links, watch it heal.",
    no_args_is_help=True,
    epilog="Exit codes: " + " · ".join(f"**{code}** {meaning}" for code, meaning in EXIT_CODES.items()),
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench_app = typer.Typer(
    help="Benchmarks: ratios measured side by side in one run.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(bench_app, name="bench")
app.add_typer(p4_app, name="p4")
add_scenario_commands(app)
add_plan_command(app)
add_asking_commands(app)

NUMBER_MAX = 2**50
COMPILE_S = 120.0
"""What `mrc compile` takes on two cores, a guess for the first time, seconds."""
STAYS_OUTSIDE = ("demo", "up", "run", "compile", "doctor")
"""Commands that do not ask a running fabric: an ordinary user's others join that user's rootless one."""
ADRIFT = "the folder in which it was begun was deleted: cd to one that exists, or give absolute paths and --out"

Planes = Annotated[
    int,
    typer.Option("--planes", autocompletion=offer.one_of(*offer.SIZES), help="Planes (NIC ports of a host), 1 to 16."),
]
Racks = Annotated[int, typer.Option("--racks", help="Racks: T0 switches in each plane.")]
Spines = Annotated[int, typer.Option("--spines", help="T1 switches in each plane (uplinks of a T0).")]
HostsPerRack = Annotated[int, typer.Option("--hosts-per-rack", help="Hosts in each rack.")]
Target = Annotated[
    str,
    typer.Option(
        "--target",
        autocompletion=offer.one_of(*offer.TARGETS),
        help="Switch: `embedded` (ours) or `bmv2` (simple_switch_grpc on PATH).",
    ),
]
Nic = Annotated[
    str,
    typer.Option(
        "--nic",
        autocompletion=offer.one_of(*offer.NICS),
        help="Host NIC: `fast` (AF_PACKET) or `scapy` (readable, slow).",
    ),
]
WiresOption = Annotated[
    str | None,
    typer.Option(
        "--wires",
        autocompletion=offer.one_of(*offer.WIRES),
        help="Links between switches: `virtual` (inside the daemon, no interfaces; default) or `veth` (interfaces, for "
        "tcpdump and ip; all that bmv2 has).",
    ),
]
BenchWires = Annotated[
    str | None,
    typer.Option(
        "--wires",
        autocompletion=offer.one_of(*offer.BENCH_WIRES),
        help="Links between switches: `virtual` (default), `veth`, or `both`, one after the other.",
    ),
]
ServersFile = Annotated[
    Path | None,
    typer.Option("--servers", help="YAML file of machines that hold the fabric together (docs/cluster.md)."),
]
Rootless = Annotated[
    bool, typer.Option("--rootless", help="Without root, in a user namespace, where the kernel allows it.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout; progress on stderr.")]


def _tell_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from mrc_testbed.native_build import state

        engine = "compiled" if state().active else "in Python"
        print(f"mrc-testbed {version('mrc-testbed')} (Python {sys.version.split()[0]}, engine {engine})")
        raise typer.Exit()


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 # its callback does it
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of `mrc` itself."""
    if os.geteuid() != 0 and context.invoked_subcommand not in STAYS_OUTSIDE:
        from mrc_testbed.doctor.rootless import join

        join()


def expected_errors() -> tuple[type[Exception], ...]:
    """Errors that are the user's or the machine's: shown as one message. Anything else is our bug and shows fully."""
    from mrc_testbed.experiments.language.yaml_loader import ScenarioError
    from mrc_testbed.experiments.results import ResultsError
    from mrc_testbed.hosts.engine.errors import LocalError
    from mrc_testbed.ipc.agent_client import AgentError
    from mrc_testbed.ipc.rpc import JsonlError
    from mrc_testbed.ipc.rundir import FabricError
    from mrc_testbed.simulator.simtest.schedule import ScheduleError
    from mrc_testbed.topologies.plan import PlanError

    return (
        UsageError, PlanError, JsonlError, FabricError, AgentError, ScheduleError, ScenarioError, ResultsError,
        LocalError,
    )  # fmt: skip


CLUSTER_PMTU = 1024
"""Path MTU of what has no option for it: its frames pass the 1,500 bytes of ordinary networks within a tunnel."""


def read_servers(file: Path | None, rootless: bool) -> Servers | None:
    """The machines of --servers, or None. Raises UsageError."""
    from mrc_testbed.topologies.servers import read

    if file is None:
        return None
    if rootless:
        raise UsageError(
            "--servers with --rootless: machines are set up by root (or sudo) on each: leave --rootless out"
        )
    return read(file)


def require_root(what: str, *, or_rootless: bool = False) -> None:
    """Raises UsageError without root: namespaces, veth pairs and raw sockets need it."""
    if os.geteuid() != 0:
        other = f", or `mrc {what} --rootless`" if or_rootless else ""
        raise UsageError(f"{what} needs root (network namespaces, raw sockets): run it with sudo{other}")


@app.command(
    epilog="Examples: `mrc demo` · `mrc demo --file model.bin --json` · "
    "`mrc demo --planes 2 --racks 3 --spines 2 --hosts-per-rack 1` · `mrc demo --wires veth` · `mrc demo --rootless` · "
    "`mrc demo --servers servers.yaml`"
)
def demo(
    planes: Planes = 4,
    racks: Racks = 2,
    spines: Spines = 2,
    hosts_per_rack: HostsPerRack = 2,
    file: Annotated[Path | None, typer.Option("--file", help="File to send (default: 64 MiB of random bytes).")] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", help="Offered load, e.g. 40M (bits/s). Default: the file lasts ~10 s.")
    ] = None,
    target: Target = "embedded",
    nic: Nic = "fast",
    wires: WiresOption = None,
    servers: ServersFile = None,
    rootless: Rootless = False,
    as_json: Json = False,
) -> None:
    """Send a file across the fabric, cut links under it, restore them, and report how the paths healed."""
    from mrc_testbed.demo import demo as demonstration
    from mrc_testbed.doctor.rootless import enter
    from mrc_testbed.topologies.plan import Plan

    machines = read_servers(servers, rootless)
    plan = Plan(planes, racks, spines, hosts_per_rack)
    if machines is not None:
        plan = replace(plan, pmtu_bytes=CLUSTER_PMTU)
    options = demonstration.Options(plan, file, parse_rate(rate), target=target, nic=nic, wires=wires, servers=machines)
    demonstration.check(options)
    if rootless:
        enter("demo")
    if machines is None:
        require_root("demo", or_rootless=True)
    report = demonstration.run(options, console=console(stderr=as_json))
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    raise typer.Exit(0 if report.passed else 1)


@app.command(
    epilog="Examples: `mrc up` · `mrc up --mode ecmp` · `mrc up --rate 100M --delay 250us` · `mrc up --rate none` · "
    "`mrc up --fabric-rate 20M --planes 8 --spines 4` · `mrc up --wires veth` · `mrc up --dash` · "
    "`mrc up --servers servers.yaml` · then, at the prompt: `link p1-t0-0 p1-t1-1 down` · `send h0 h2 64M` · `help`"
)
def up(
    planes: Planes = 4,
    racks: Racks = 2,
    spines: Spines = 2,
    hosts_per_rack: HostsPerRack = 2,
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            autocompletion=offer.one_of(*offer.MODES),
            help="Forwarding: `srv6`, `stev`, `ecmp`, `switch-spray` or `flow-ecmp`.",
        ),
    ] = "srv6",
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            autocompletion=offer.one_of(*offer.RATES),
            help="Rate of every link, e.g. 10M (bits/s), or `none`. Default: 10M.",
        ),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(
            "--delay", help="One-way delay of every link, e.g. 1.25ms. Default: base RTT of 10 ms; 0 without rate."
        ),
    ] = None,
    host_rate: Annotated[str | None, typer.Option("--host-rate", help="Rate of NIC-T0 links alone.")] = None,
    host_delay: Annotated[str | None, typer.Option("--host-delay", help="Delay of NIC-T0 links alone.")] = None,
    fabric_rate: Annotated[str | None, typer.Option("--fabric-rate", help="Rate of T0-T1 links alone.")] = None,
    fabric_delay: Annotated[str | None, typer.Option("--fabric-delay", help="Delay of T0-T1 links alone.")] = None,
    pmtu: Annotated[
        int | None,
        typer.Option("--pmtu", help="Path MTU, payload bytes of a packet. Default: 1024; 4096 without rate."),
    ] = None,
    denylist: Annotated[
        str,
        typer.Option(
            "--denylist",
            autocompletion=offer.one_of(*offer.POLICIES),
            help="Faults that take EVs out on the hosts: off, lossy or all.",
        ),
    ] = "off",
    react_after: Annotated[
        str,
        typer.Option(
            "--react-after",
            autocompletion=offer.one_of(*offer.REACTIONS),
            help="ecmp, flow-ecmp, switch-spray: seconds until switches avoid what a failure cut off; now, or never.",
        ),
    ] = "now",
    target: Target = "embedded",
    nic: Nic = "fast",
    wires: WiresOption = None,
    servers: ServersFile = None,
    dash: Annotated[bool, typer.Option("--dash", help="Open the live view, as the word `dash` does.")] = False,
    open_: Annotated[
        bool, typer.Option("--open", help="Let every user of this machine use the TCP ports, without the run's token.")
    ] = False,
    tls: Annotated[
        bool, typer.Option("--tls", help="TCP ports speak TLS, with a certificate in the run folder.")
    ] = False,
    rootless: Rootless = False,
) -> None:
    """Bring the fabric up and open the Mininet CLI with MRC words; everything is removed on exit."""
    from contextlib import closing

    from mrc_testbed.controller.denylist import POLICIES
    from mrc_testbed.controller.reconvergence import seconds_of
    from mrc_testbed.cli.link_options import LinkOptions
    from mrc_testbed.dash.live_page import LivePage
    from mrc_testbed.dash.server import PREFERRED_PORT
    from mrc_testbed.doctor.rootless import enter
    from mrc_testbed.cli.prompt.shell import run_cli
    from mrc_testbed.topologies.lab.open_fabric import open_fabric
    from mrc_testbed.topologies.lab.targets import Ports, check_wires

    links = LinkOptions(mode, rate, delay, host_rate, host_delay, fabric_rate, fabric_delay, pmtu)
    plan = links.plan(planes, racks, spines, hosts_per_rack)
    if denylist not in POLICIES:
        raise UsageError(f"--denylist {denylist}: give one of {', '.join(POLICIES)}")
    try:
        react_after_s = seconds_of(react_after)
    except ValueError as error:
        raise UsageError(f"--react-after {error}") from None
    check_wires(target, wires)
    machines = read_servers(servers, rootless)
    if rootless:
        enter("up", port=PREFERRED_PORT)
    if machines is None:
        require_root("up", or_rootless=True)
    with open_fabric(
        plan, target=target, wires=wires, servers=machines, nic=nic, console=console(), denylist=denylist,
        react_after_s=react_after_s, ports=Ports(open_to_all=open_, tls=tls),
    ) as fabric:  # fmt: skip
        print(fabric.plan.describe_links())
        with closing(LivePage()) as page:
            run_cli(fabric, open_page=page.open, begin=("dash",) if dash else ())


@app.command("dash", epilog="Examples: `mrc dash` · `firefox $(mrc dash)` · `mrc dash results/e10` · `mrc dash --json`")
def dash(
    results: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Folder of results: make the page of each of its runs instead.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Tell the address of the running fabric's live view, begun by `dash` at its prompt or by `mrc up --dash`.

    With a folder of results, write the same page for each finished run, with a slider for the time: one file, which
    needs no server.
    """
    if results is not None:
        from mrc_testbed.dash.recording import write_pages

        paths = [str(path) for path in write_pages(results)]
        print(json.dumps({"pages": paths}) if as_json else "\n".join(paths))
        return
    from mrc_testbed.dash.live_page import address

    url = address()
    print(json.dumps({"url": url}) if as_json else url)


@app.command(epilog="Examples: `mrc clean` · `mrc clean --servers servers.yaml`")
def clean(servers: ServersFile = None) -> None:
    """Remove what a killed run left behind: only what its run folder recorded as made by us.

    With --servers, on each of those machines too.
    """
    from mrc_testbed.ipc.rundir import RunDir, default_run_dir

    machines = read_servers(servers, rootless=False)
    if machines is None:
        require_root("clean")
    folder = default_run_dir()
    if folder.exists():
        with RunDir(folder) as run_dir:
            removed = run_dir.clean_leftovers()
        print(f"clean: removed {', '.join(removed)}" if removed else "clean: nothing was left behind")
    else:
        print(f"clean: nothing to do ({folder} does not exist)")
    if machines is not None:
        _clean_machines(machines)


def _clean_machines(machines: Servers) -> None:
    """On each of them; what was on this one is gone already. Exit code 1 when one could not be cleaned."""
    import tempfile

    from mrc_testbed.ipc.rundir import FabricError, RunDir
    from mrc_testbed.topologies.lab.cluster.remote_machine import RemoteMachine

    failed = False
    with tempfile.TemporaryDirectory(prefix="mrc-clean-") as sockets:
        for one in machines.machines:
            if one.is_local:
                continue
            try:
                told = RemoteMachine(one, RunDir(sockets), lambda _one, _why: None).clean()
                print(f"{one.name}: {told}", flush=True)
            except FabricError as error:
                failed = True
                print(f"{one.name}: {error}", file=sys.stderr, flush=True)
    if failed:
        raise typer.Exit(1)


@app.command(
    "compile", epilog="Examples: `mrc compile` · `mrc compile --again` · then `mrc --version` says `engine compiled`"
)
def compile_(
    again: Annotated[bool, typer.Option("--again", help="Also when there is a build of these files.")] = False,
    as_json: Json = False,
) -> None:
    """Compile the engine and the virtual fabric, once (about two minutes of CPU): runs are several times faster then.

    Everything works without. The build is kept in the cache and used as long as the files are those it was made from;
    MRC_COMPILED=0 runs the Python files whatever was built.
    """
    import time

    from mrc_testbed.native_build.build import build
    from mrc_testbed.native_build.cache import CompileError, FullCompileCacheError
    from mrc_testbed.ipc.rundir import RunFiles

    if (fabric := RunFiles()).has_run:
        raise UsageError(
            f"a fabric is up ({fabric.state_file}): its times would suffer; compile when it is down (or `mrc clean`)"
        )
    begun = time.monotonic()
    lines = console(stderr=as_json)
    try:
        with Progress(lines, "compile", guess_s=COMPILE_S) as progress:
            folder = build(lambda said: progress.step(f"compile: {said}"), again=again)
    except FullCompileCacheError as error:
        raise FullDiskError(f"compile: {error}") from None
    except CompileError as error:
        raise UsageError(f"compile: {error}") from None
    seconds = round(time.monotonic() - begun, 1)
    lines.print(f"compile: {folder} ({seconds} s)", soft_wrap=True)
    if as_json:
        print(json.dumps({"folder": str(folder), "seconds": seconds}))


@app.command(epilog="Examples: `mrc doctor` · `mrc doctor --json` · `mrc doctor --servers servers.yaml`")
def doctor(servers: ServersFile = None, as_json: Json = False) -> None:
    """Check what this machine has for the testbed, and print the cure for what it lacks.

    With --servers, what each of those machines has, and the network between them.
    """
    from mrc_testbed.doctor import doctor as checks

    machines = read_servers(servers, rootless=False)
    if machines is None:
        found = checks.checks()
    else:
        from mrc_testbed.doctor import servers as doctor_servers

        found = doctor_servers.checks(machines)
    results = []
    for check in found:
        results.append(check)
        if not as_json:
            mark = "ok  " if check.ok else ("FAIL" if check.needed else "note")
            cure = "" if check.ok else f"\n      cure: {check.cure}"
            print(f"{mark}  {check.name:<20} {check.found}{cure}", flush=True)
    if as_json:
        print(json.dumps([vars(check) for check in results], indent=2))
    raise typer.Exit(0 if checks.healthy(results) else 1)


@app.command(epilog="Example: `mrc shell p1-t0-0`, while `mrc up` runs in another terminal")
def shell(
    switch: Annotated[
        str, typer.Argument(autocompletion=offer.switches, help="Switch of the running fabric, e.g. p1-t0-0.")
    ],
) -> None:
    """Open p4runtime-shell (in its own Python environment) on a switch of the running fabric, read-only."""
    from mrc_testbed.cli.p4runtime_shell import open_shell

    raise typer.Exit(open_shell(switch))


@app.command(
    epilog="Examples: `mrc pcap p1-t0-0-eth3` · `mrc pcap h0 --seconds 5` · `mrc pcap h0 --out - | tshark -r -` · "
    "`mrc pcap h0 --explain` · `mrc pcap h0.pcapng --explain --plan plan.json` · `mrc pcap --install-dissector`"
)
def pcap(
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="PORT|NODE|FILE",
            autocompletion=offer.nodes_and_ports,
            help="Interface, switch or host of the running fabric; a finished capture with --explain.",
        ),
    ] = None,
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after this many packets.")] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.01, help="End after this long.")] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", help="File; `-` is standard output. Default: NAME.pcap, NODE.pcapng, FILE.explained.pcapng."
        ),
    ] = None,
    snap: Annotated[
        int | None, typer.Option("--snap", min=64, max=1 << 18, help="Bytes to keep of each packet (default: all).")
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Comment each packet (pcapng): EV, path, mark, trim, what it is sent again for, queue."
        ),
    ] = False,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", help="plan.json of the fabric that FILE is of. Default: that of the running one."),
    ] = None,
    install_dissector: Annotated[
        bool, typer.Option("--install-dissector", help="Copy the dissector to your Wireshark's plugin folder.")
    ] = False,
    uninstall_dissector: Annotated[
        bool, typer.Option("--uninstall-dissector", help="Remove it from there again.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write the packets of any port to a capture file, until Ctrl-C, while `mrc up` runs in another terminal.

    With --explain each packet gets a comment, which Wireshark shows above its headers and tshark as `frame.comment`; a
    file that was captured before is read, without root, and written once more with comments.
    """
    if as_json and out == "-":
        raise UsageError("--json and --out - both want standard output: give --out a file")
    given = {"--count": count, "--seconds": seconds, "--snap": snap, "--out": out, "--plan": plan}
    if install_dissector or uninstall_dissector:
        _refuse("--install-dissector and --uninstall-dissector stand alone", {
            **given, "PORT|NODE|FILE": where, "--explain": explain, "--json": as_json,
            "--uninstall-dissector": install_dissector and uninstall_dissector,
        })  # fmt: skip
        from mrc_testbed.hosts.dissector.install import install, uninstall

        print(install() if install_dissector else uninstall())
        return
    result = _captured(where, given, explain)
    print(result, file=sys.stderr)
    if as_json:
        print(json.dumps(result.to_json(), indent=2))


def _captured(where: str | None, given: dict[str, Any], explain: bool) -> Any:
    """The result of a capture, or of explaining a finished one."""
    from mrc_testbed.ipc.rundir import default_run_dir
    from mrc_testbed.capture import pcap as capturing
    from mrc_testbed.capture.packet_files import SNAP_BYTES, is_capture_file
    from mrc_testbed.topologies.plan import Port

    if where is None:
        raise UsageError("give a port, switch or host of the running fabric, or a capture and --explain")
    out, plan = given["--out"], given["--plan"]
    if is_capture_file(where):
        if not explain:
            raise UsageError(f"{where} is a finished capture: --explain comments its packets, tshark -r shows them")
        _refuse("a finished capture takes --out and --plan", {
            key: value for key, value in given.items() if key not in ("--out", "--plan")
        })  # fmt: skip
        from mrc_testbed.capture.explain.explained_file import explain_file  # scapy comes with it, and takes its time

        return explain_file(Path(where), default_run_dir(), out=out, plan=plan)
    _refuse("a running fabric has its own plan", {"--plan": plan})
    require_root("pcap")

    def ready(ports: list[Port], path: str) -> None:
        print(f"capturing {', '.join(port.interface for port in ports)} to {path}", file=sys.stderr, flush=True)

    return capturing.capture(
        where, default_run_dir(), out=out, count=given["--count"], seconds=given["--seconds"],
        snap=given["--snap"] or SNAP_BYTES, explain=explain, ready=ready,
    )  # fmt: skip


def _refuse(why: str, given: dict[str, Any]) -> None:
    """Raises UsageError for options that were given."""
    if wrong := [name for name, value in given.items() if value not in (None, False)]:
        raise UsageError(f"{why}: leave out {', '.join(wrong)}")


@app.command(
    epilog="Examples: `mrc simtest --seeds 20000` · `mrc simtest --seed 93` · `mrc simtest --replay small.json`"
)
def simtest(
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many schedules.")] = 2000,
    first: Annotated[int, typer.Option("--first", min=0, help="First seed.")] = 0,
    seed: Annotated[int | None, typer.Option("--seed", help="One schedule, told in detail and shrunk.")] = None,
    replay: Annotated[Path | None, typer.Option("--replay", help="A schedule from a file, told in detail.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=64, help="Processes.")] = 2,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Do not stop after 20 failures.")] = False,
    as_json: Json = False,
) -> None:
    """Run random schedules on the engines in virtual time and check every invariant all the time (no root)."""
    from mrc_testbed.simulator.simtest import command

    raise typer.Exit(command.simtest(seeds, first, seed, replay, jobs, keep_going, as_json))


@app.command(
    epilog="Examples: `mrc fuzz wire --runs 1000000` · `mrc fuzz endpoints --seconds 60` · `mrc fuzz p4 --runs 100`"
)
def fuzz(
    target: Annotated[
        str,
        typer.Argument(
            autocompletion=offer.one_of(*offer.FUZZED), help="`wire`, `scapy`, `frame`, `jsonl`, `endpoints`, or `p4`."
        ),
    ],
    programs: Annotated[list[Path] | None, typer.Argument(help="`p4`: these programs, not random ones.")] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Inputs at most; of `p4`, programs.")] = 1_000_000,
    seconds: Annotated[int, typer.Option("--seconds", min=1, help="Seconds at most.")] = 60,
    seed: Annotated[int, typer.Option("--seed", min=1, help="Seed of the fuzzer; of `p4`, the first program's.")] = 1,
    out: Annotated[Path, typer.Option("--out", help="`p4`: where programs with a difference are kept.")] = Path(
        "fuzz-p4"
    ),
    as_json: Json = False,
) -> None:
    """Throw bytes at decoders and live endpoints, or random P4 programs at the embedded switch and BMv2 (no root)."""
    from mrc_testbed.simulator.simtest import command

    if target == "p4":
        from tools.campaigns import p4_fuzz
        from tools.campaigns.bmv2 import Bmv2Error

        try:
            raise typer.Exit(p4_fuzz.fuzz(runs, seed, seconds, out, programs or [], as_json))
        except (Bmv2Error, OSError) as error:
            raise UsageError(f"fuzz p4: {error}") from None
    if programs or as_json:
        raise UsageError(f"{'programs' if programs else '--json'} belong to `mrc fuzz p4`, not to {target}")
    raise typer.Exit(command.fuzz(target, runs, seconds, seed))


def _names(what: str, given: str | None, known: Collection[str]) -> list[str]:
    """Names of an option `--WHATs` with commas between; all of `known` by default. Raises UsageError."""
    names = [name.strip() for name in given.split(",")] if given else list(known)
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"--{what}s: no {what} {unknown[0]!r} (has: {', '.join(known)})")
    return names


def _end(result: dict[str, Any], as_json: bool, *, met: bool = True) -> NoReturn:
    """End of a benchmark: its figures as JSON with --json; exit code 1 when a target was missed."""
    if as_json:
        print(json.dumps(result, indent=2))
    raise typer.Exit(0 if met else 1)


@bench_app.command("switch")
def bench_switch(as_json: Json = False) -> None:
    """CPU microseconds per packet and hop: the embedded switch beside a bare AF_PACKET forwarder in C."""
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
def bench_mrc(
    planes: Planes = 4,
    racks: Racks = 2,
    spines: Spines = 2,
    hosts_per_rack: HostsPerRack = 1,
    size: Annotated[str, typer.Option("--size", help="Bytes of a transfer, at most 8 s of them at a rate.")] = "256M",
    pmtu: Annotated[
        int | None,
        typer.Option("--pmtu", help="Path MTU: payload bytes of a packet. Default: 4096, or 1024 at a rate."),
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", help="Measure it over links of that rate too, e.g. 10M bits/s.")
    ] = None,
    nic: Nic = "fast",
    wires: BenchWires = None,
    as_json: Json = False,
) -> None:
    """What an MRC packet costs: transfers across the fabric, the endpoint alone, and AF_PACKET beside it."""
    from tools.bench import mrc
    from mrc_testbed.cli.link_options import LinkOptions
    from mrc_testbed.topologies.plan import Plan

    shape = (planes, racks, spines, hosts_per_rack)
    bytes_total, rate_bps = parse_size(size), parse_rate(rate)
    if pmtu is None:
        pmtu = 4096 if rate_bps is None else 1024
    if pmtu not in (256, 512, 1024, 2048, 4096):
        raise UsageError(f"--pmtu {pmtu}: give 256, 512, 1024, 2048 or 4096 bytes")
    paced = None if rate_bps is None else LinkOptions(rate=f"{rate_bps:.0f}", pmtu=pmtu).plan(*shape)
    _check_bench_wires(wires)
    require_root("bench")
    lines = console(stderr=as_json)
    with Progress(lines, f"bench mrc {wires or ''} {'paced' if paced else ''}".strip(), guess_s=60.0):
        result = mrc.run(Plan(*shape), bytes_total, nic=nic, console=lines, wires=wires, pmtu=pmtu, paced=paced)
    met = result["compared"] is None or result["compared"]["met"]
    _end(result, as_json, met=met and result["bytes_equal"])


@bench_app.command("cluster", epilog="Example: `mrc bench cluster --servers servers.yaml --size 64M --rounds 3`")
def bench_cluster(
    servers: Annotated[Path, typer.Option("--servers", help="YAML file of the machines (docs/cluster.md).")],
    planes: Planes = 4,
    racks: Racks = 2,
    spines: Spines = 2,
    hosts_per_rack: HostsPerRack = 2,
    size: Annotated[str, typer.Option("--size", help="Bytes of a transfer.")] = "64M",
    pmtu: Annotated[int, typer.Option("--pmtu", help="Path MTU: payload bytes of a packet.")] = CLUSTER_PMTU,
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=20, help="Transfers on one machine, and on all.")] = 3,
    as_json: Json = False,
) -> None:
    """Packets/s and CPU of a transfer on several machines beside the same on this one."""
    from tools.bench import cluster
    from mrc_testbed.topologies.plan import Plan
    from mrc_testbed.topologies.servers import read

    machines = read(servers)
    plan = Plan(planes, racks, spines, hosts_per_rack, pmtu_bytes=pmtu)
    require_root("bench")
    lines = console(stderr=as_json)
    with Progress(lines, "bench cluster", guess_s=20.0 * rounds):
        result = cluster.run(plan, machines, parse_size(size), rounds, lines)
    if not as_json:
        print(cluster.table(result))
    _end(result, as_json)


def _check_bench_wires(wires: str | None) -> None:
    """Raises UsageError."""
    from mrc_testbed.topologies.lab.wires import WIRES

    if wires is not None and wires not in (*WIRES, "both"):
        raise UsageError(f"--wires {wires}: give {', '.join(WIRES)} or both")


@app.command(
    "controller",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def run_controller(context: typer.Context) -> None:
    """Run the fabric controller by itself, on the fabric of a run folder (`mrc controller --help`)."""
    from mrc_testbed.controller.__main__ import main as controller_main

    raise typer.Exit(controller_main(context.args))


@bench_app.command("spray")
def bench_spray(
    mode: Annotated[
        str,
        typer.Option("--mode", autocompletion=offer.one_of(*offer.MODES[2:]), help="switch-spray, ecmp or flow-ecmp."),
    ] = "switch-spray",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Cuts with the controller.")] = 10,
    as_json: Json = False,
) -> None:
    """A T1-T0 downlink is cut: how long are packets lost, with the controller and without it?"""
    from tools.bench import spray

    require_root("bench")
    result = spray.run(mode, rounds, console(stderr=as_json))
    _end(result, as_json, met=result["met"])


@bench_app.command(
    "faults",
    epilog="Examples: `mrc bench faults --loop 100` · `mrc bench faults --kinds blackhole` · "
    "`mrc bench faults --virtual --sets 10000 --keep wrong`",
)
def bench_faults(
    planes: Planes = 4,
    racks: Racks = 2,
    spines: Spines = 2,
    hosts_per_rack: HostsPerRack = 2,
    loop: Annotated[int, typer.Option("--loop", min=0, help="Single faults.")] = 100,
    pairs: Annotated[int, typer.Option("--pairs", min=0, help="Pairs of simultaneous faults.")] = 10,
    kinds: Annotated[
        str | None,
        typer.Option(
            "--kinds",
            autocompletion=offer.several_of(*offer.FAULT_KINDS),
            help="Kinds, with commas between. Default: all.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the places.")] = 1,
    scaled: Annotated[bool, typer.Option("--scaled", help="Links of 10 Mb/s and a base RTT of 10 ms.")] = False,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Random sets of faults in virtual time, on fabrics of several sizes.")
    ] = False,
    sets: Annotated[int, typer.Option("--sets", min=1, help="With --virtual: how many.")] = 1000,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=64, help="With --virtual: processes.")] = 1,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", help="With --virtual: folder for the observations of sets that are not named rightly."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Faults of every kind at random places: does the controller name them, how soon, by which source?

    With --virtual no fabric is needed: one to four causes at a time, the observations late, reordered, some of them
    lost; told is how many sets are named exactly, left open with the truth among the candidates, missed, or wrong.
    """
    if virtual:
        from tools.campaigns import virtual_faults

        result = virtual_faults.run(seed, sets, jobs=jobs, folder=keep, console=console(stderr=as_json))
        _end(result, as_json, met=result["passed"])
    from tools.campaigns import faults
    from mrc_testbed.topologies.plan import Plan

    plan = (Plan.scaled if scaled else Plan)(planes, racks, spines, hosts_per_rack)
    wanted = _names("kind", kinds, faults.KINDS)
    require_root("bench")
    lines, size = console(stderr=as_json), (loop + pairs) / planes
    with Progress(lines, "bench faults", guess_s=15.0 + 10.0 * size, size=1.5 + size):
        result = faults.run(plan, loop=loop, pair_count=pairs, kinds=wanted, seed=seed, console=lines)
    _end(result, as_json, met=result["passed"])


@bench_app.command(
    "fluid",
    epilog="Examples: `mrc bench fluid --seeds 3` · `mrc bench fluid --fabric 4x16x16x16` · "
    "`mrc bench fluid --calibrate --json` · `mrc bench fluid --detect --figure detect.png`",
)
def bench_fluid(
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs of each fabric.")] = 3,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure what the model takes from the packet simulator instead.")
    ] = False,
    fabric: Annotated[
        list[str] | None,
        typer.Option("--fabric", help="Planes, racks, spines, hosts a rack, such as 4x8x8x8; several times for more."),
    ] = None,
    detect: Annotated[
        bool, typer.Option("--detect", help="How soon a dead link is known, and used again, by probes, instead.")
    ] = False,
    figure: Annotated[Path | None, typer.Option("--figure", help="With --detect: draw it into this file.")] = None,
    as_json: Json = False,
) -> None:
    """The fluid model beside the packet simulator, metric by metric, and a start of 131,072 NICs in it."""
    from tools.campaigns import fluid

    if figure is not None and not detect:
        raise UsageError("--figure draws what --detect finds: give --detect too")
    if detect:
        from tools.campaigns import fluid_detection

        _end(fluid_detection.run(console(stderr=as_json), figure), as_json)
        return
    fabrics = [fluid.fabric_of(one) for one in fabric or ()]
    _end(fluid.run(seeds, calibrate, console(stderr=as_json), fabrics), as_json)


@bench_app.command("transport")
def bench_transport(as_json: Json = False) -> None:
    """What the transport does (loss, incast, dead paths) beside its targets, in virtual time; needs no root."""
    from tools.bench import transport

    result = transport.run(console(stderr=as_json))
    _end(result, as_json, met=result["met"])


@bench_app.command(
    "virtual",
    epilog="Examples: `mrc bench virtual` · `mrc bench virtual --hosts 8 --packets 20000 --profile` · "
    "`mrc bench virtual --hosts 64,512 --json`",
)
def bench_virtual(
    hosts: Annotated[str, typer.Option("--hosts", help="Sizes, with commas between; 4 to 1024.")] = "8,64,512",
    packets: Annotated[
        int, typer.Option("--packets", min=1, max=100_000_000, help="Data packets of each run, of all hosts together.")
    ] = 65_536,
    wire: Annotated[bool, typer.Option("--wire", help="Packets travel as bytes, through the codec.")] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Afterwards, where the Python form spends its time (cProfile).")
    ] = False,
    as_json: Json = False,
) -> None:
    """What a packet costs in the virtual fabric: compiled, interpreted, and a bare event loop in C; needs no root.

    Exit code 1 when the compiled and the interpreted form do not end in the same state.
    """
    from tools.bench import virtual

    sizes = virtual.parse_hosts(hosts)
    result = virtual.run(sizes, packets, console=console(stderr=as_json), with_profile=profile, wire=wire)
    _end(result, as_json, met=result["met"])


@bench_app.command("provision", epilog="Examples: `mrc bench provision` · `mrc bench provision --wires both`")
def bench_provision(
    planes: Planes = 8,
    racks: Racks = 4,
    spines: Spines = 4,
    hosts_per_rack: HostsPerRack = 1,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often.")] = 3,
    wires: BenchWires = None,
    as_json: Json = False,
) -> None:
    """Time from nothing to provisioned switches, 64 of them unless told otherwise, step by step."""
    from tools.bench import provision
    from mrc_testbed.topologies.plan import Plan

    plan = Plan.scaled(planes, racks, spines, hosts_per_rack)
    _check_bench_wires(wires)
    require_root("bench")
    result = provision.run(plan, rounds, console(stderr=as_json), wires)
    _end(result, as_json, met=result["met"])


@bench_app.command("incast", epilog="Examples: `mrc bench incast` · `mrc bench incast --rate 10M --rtt 0.01`")
def bench_incast(
    rate: Annotated[str, typer.Option("--rate", help="Of every link, bits/s.")] = "5M",
    rtt: Annotated[float, typer.Option("--rtt", min=0.001, max=10, help="Base round trip, seconds.")] = 0.02,
    seconds: Annotated[float, typer.Option("--seconds", min=1, max=600, help="Of each measurement.")] = 4.0,
    senders: Annotated[int, typer.Option("--senders", min=2, max=30, help="Hosts that send to one.")] = 7,
    variants: Annotated[
        str | None,
        typer.Option(
            "--variants",
            autocompletion=offer.several_of(*offer.INCAST_VARIANTS),
            help="With commas between. Default: all.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Seven to one on live P4 switches, and a victim beside it; again without ECN, trimming, both."""
    from tools.bench import incast

    wanted = _names("variant", variants, incast.VARIANTS)
    rate_bps = parse_rate(rate)
    assert rate_bps is not None
    require_root("bench")
    result = incast.run(
        rate_bps=rate_bps, rtt_s=rtt, seconds=seconds, variants=wanted, senders=senders,
        console=console(stderr=as_json),
    )  # fmt: skip
    _end(result, as_json, met=result["met"])


def parse_rate(text: str | None) -> float | None:
    """`40M` -> 40e6 bits/s (decimal units); None stays None. Raises UsageError."""
    return None if text is None else _positive(units.rate, text, "rate")


def parse_size(text: str) -> int:
    """`64M` -> 67,108,864 bytes (binary units). Raises UsageError."""
    return int(_positive(units.size, text, "size"))


def _positive(read: Callable[[object], float], text: str, what: str) -> float:
    try:
        value = read(text)
    except units.UnitError as error:
        raise UsageError(str(error)) from None
    if not 0 < value < NUMBER_MAX:
        raise UsageError(f"{what} {text!r}: give a positive number below 2**50")
    return value


def _is_adrift() -> bool:
    """Tell whether the working folder was deleted, so that no relative path leads anywhere."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def main() -> None:
    """Entry point of the console script: expected errors become one line and exit code 1; Ctrl-C becomes 130."""
    encode_all()
    try:
        app(prog_name="mrc")
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer's word for Ctrl-C
            print(INTERRUPTION, file=sys.stderr)
        raise
    except expected_errors() as error:
        print(f"mrc: error: {error}", file=sys.stderr)
        sys.exit(UNWRITTEN if isinstance(error, FullDiskError) else 1)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and _is_adrift():
            print(f"mrc: error: {ADRIFT}", file=sys.stderr)
            sys.exit(1)
        if error.errno in BARRED and error.filename is not None:
            print(f"mrc: error: {error.filename}: {error.strerror}: give another place", file=sys.stderr)
            sys.exit(1)
        if error.errno not in FULL:
            raise
        file = error.filename or "the disk of its output"
        print(f"mrc: error: {file}: {error.strerror}: make room there, or write elsewhere", file=sys.stderr)
        sys.exit(UNWRITTEN)
