"""The `mrc` command: each sub-command parses, calls one function, prints, and sets the exit code."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mrc_testbed.cli import completion as offer
from mrc_testbed.cli.fabrics import add_to as add_fabric_commands
from mrc_testbed.cli.link_options import LinkOptions
from mrc_testbed.cli.options import (
    CLUSTER_PMTU,
    FabricName,
    Json,
    LabChoice,
    Nic,
    ServersFile,
    SizeOptions,
    asked_folder,
    expand_options,
    parse_rate,
    read_servers,
    require_root,
)
from mrc_testbed.cli.p4 import app as p4_app
from mrc_testbed.cli.p4_programs import is_foreign, read_programs, refuse_fabric_options, run_on_plan
from mrc_testbed.cli.plan import add_commands as add_plan_command
from mrc_testbed.cli.scenarios import add_commands as add_scenario_commands
from mrc_testbed.cli.show import add_to as add_asking_commands
from mrc_testbed.cli.topology import topology_app, topology_plan
from mrc_testbed.cli.words import add_to as add_words
from mrc_testbed.console.progress import Progress
from mrc_testbed.console.terminal import console, encode_all
from mrc_testbed.console.units import show_rate, show_seconds, show_size
from mrc_testbed.errors import (
    BARRED_PATH_ERRNOS,
    DISK_FULL_ERRNOS,
    EXIT_CODES,
    EXIT_INTERRUPTED,
    EXIT_UNWRITTEN,
    EXTRAS,
    INTERRUPTION,
    FullDiskError,
    UsageError,
    package_cure,
)
from mrc_testbed.files.package import has_tools

if TYPE_CHECKING:
    pass

app = typer.Typer(
    name="mrc",
    help="MRC (Multipath Reliable Connection) on P4 switches on this machine: spray, cut links, watch it heal.",
    no_args_is_help=True,
    epilog="Exit codes: " + " · ".join(f"**{code}** {meaning}" for code, meaning in EXIT_CODES.items()),
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(p4_app, name="p4")
app.add_typer(topology_app, name="topology")
add_scenario_commands(app)
add_plan_command(app)
add_asking_commands(app)
add_fabric_commands(app)
add_words(app)

IN_CHECKOUT = "its programs are in no package: run it from a checkout of mrc-testbed (git clone, make setup)"
if has_tools():
    from tools.commands import bench_app

    app.add_typer(bench_app, name="bench")

COMPILE_S = 120.0
"""Duration of `mrc compile` on two cores, an estimate for the first time, seconds."""
ADRIFT = "the folder in which it was begun was deleted: cd to one that exists, or give absolute paths and --out"


def _tell_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from mrc_testbed.native_build import state

        engine = "compiled" if state().active else "in Python"
        print(f"mrc-testbed {version('mrc-testbed')} (Python {sys.version.split()[0]}, engine {engine})")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[  # its callback does it
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of `mrc` itself."""


EXPECTED_ERRORS = {
    "mrc_testbed.errors": "UsageError",
    "mrc_testbed.experiments.language.yaml_loader": "ScenarioError",
    "mrc_testbed.experiments.results": "ResultsError",
    "mrc_testbed.hosts.engine.errors": "LocalError",
    "mrc_testbed.ipc.agent_client": "AgentError",
    "mrc_testbed.ipc.framing": "JsonlError",
    "mrc_testbed.ipc.rundir": "FabricError",
    "mrc_testbed.simulator.simtest.schedule": "ScheduleError",
    "mrc_testbed.topologies.plan.addressing": "PlanError",
}
"""Errors of the user or the machine by their modules, shown as one message.

Any other exception is a bug and shows its traceback.
"""


def expected_errors() -> tuple[type[Exception], ...]:
    """Return the classes of EXPECTED_ERRORS whose modules were imported: no other was raised."""
    return tuple(
        getattr(sys.modules[module], name) for module, name in EXPECTED_ERRORS.items() if module in sys.modules
    )


@app.command(
    epilog="Examples: `mrc demo` · `mrc demo --file model.bin --json` · "
    "`mrc demo --planes 2 --racks 3 --spines 2 --hosts-per-rack 1` · `mrc demo --wires veth` · `mrc demo --rootless` · "
    "`mrc demo --servers servers.yaml`"
)
@expand_options
def demo(
    *,
    size: SizeOptions,
    file: Annotated[Path | None, typer.Option("--file", help="File to send (default: 64 MiB of random bytes).")] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", help="Offered load, e.g. 40M (bits/s). Default: the file lasts ~10 s.")
    ] = None,
    lab: LabChoice,
    nic: Nic = "fast",
    as_json: Json = False,
) -> None:
    """Send a file across the fabric, cut links under it, restore them, and report how the paths healed."""
    from mrc_testbed.demo.demo import show
    from mrc_testbed.demo.plan import plan_demo
    from mrc_testbed.topologies.plan import Plan

    speed = lab.machine_speed()
    options = lab.lab_options(nic=nic, slowdown=speed.slowdown)
    fabric = Plan(*astuple(size))
    if options.servers is not None:
        fabric = replace(fabric, pmtu_bytes=CLUSTER_PMTU)
    plan = plan_demo(fabric, file=file, rate_bps=parse_rate(rate), lab=options)
    lab.take_root("demo")
    lines = console(stderr=as_json)
    if speed.slowdown > 1 and rate is None:
        lines.print(speed.note(f"{show_size(plan.size)} at {show_rate(plan.rate_bps)}", "--rate"), soft_wrap=True)
    report = show(plan, lines)
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    raise typer.Exit(0 if report.passed else 1)


@app.command(
    "up",
    epilog="Examples: `mrc up` · `mrc up --mode ecmp` · `mrc up --rate 100M --delay 250us` · `mrc up --rate none` · "
    "`mrc up --fabric-rate 20M --planes 8 --spines 4` · `mrc up --wires veth` · `mrc up --dash` · "
    "`mrc up --servers servers.yaml` · `mrc up -d --name b` · `mrc up fabric.yaml` · "
    "then, at the prompt: `link p1-t0-0 p1-t1-1 down` · `send h0 h2 64M` · `help`",
)
@expand_options
def bring_up(
    context: typer.Context,
    *,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Topology file of the fabric, in place of its size and rates."),
    ] = None,
    size: SizeOptions,
    links: LinkOptions,
    denylist: Annotated[
        str,
        typer.Option(
            "--denylist",
            autocompletion=offer.one_of(*offer.POLICIES),
            help="Faults that withdraw EVs on the hosts: off, lossy or all.",
        ),
    ] = "off",
    react_after: Annotated[
        str,
        typer.Option(
            "--react-after",
            autocompletion=offer.one_of(*offer.REACTIONS),
            help="Seconds until switches avoid a failed link (ecmp, flow-ecmp, switch-spray); `now` or `never`.",
        ),
    ] = "now",
    lab: LabChoice,
    nic: Nic = "fast",
    program: Annotated[
        list[str] | None,
        typer.Option(
            "--program",
            metavar="[NODE,...=]FILE",
            help="P4 program of each switch, or of chosen ones (repeatable): with the tables of ours or others.",
        ),
    ] = None,
    dash: Annotated[
        bool, typer.Option("--dash", help="Open the live view, as the command `dash` does at the prompt.")
    ] = False,
    open_: Annotated[
        bool, typer.Option("--open", help="Open the TCP ports to every user of this machine, without the run's token.")
    ] = False,
    tls: Annotated[
        bool, typer.Option("--tls", help="Serve the TCP ports over TLS, with a certificate in the run folder.")
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="USER", help="Let a user run RDMA programs (`mrc exec --here`; repeatable)."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of the fabric (`mrc ls`); default: mrc, or mrc2 where that is up."),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once the fabric is up; `mrc attach` opens its prompt.")
    ] = False,
) -> None:
    """Bring the fabric up and open the Mininet CLI with MRC's commands; the exit removes everything."""
    from contextlib import closing

    from mrc_testbed.cli.detached import fork_front
    from mrc_testbed.cli.fabrics import folder_for, print_where
    from mrc_testbed.cli.guest import guest_numbers
    from mrc_testbed.cli.prompt.shell import run_cli
    from mrc_testbed.cli.prompt.word_server import serve_words
    from mrc_testbed.controller.reconvergence import seconds_of
    from mrc_testbed.dash.live_page import LivePage
    from mrc_testbed.hosts.nicd.door import open_door
    from mrc_testbed.topologies.lab.open_fabric import open_fabric
    from mrc_testbed.topologies.lab.options import Ports

    speed = lab.machine_speed()
    plan = topology_plan(context, file, links) if file else links.plan(*astuple(size), slowdown=speed.slowdown)
    try:
        react_after_s = seconds_of(react_after)
    except ValueError as error:
        raise UsageError(f"--react-after {error}") from None
    ports = Ports(open_to_all=open_, tls=tls)
    programs = read_programs(program or [], plan)
    # A program without the tables of ours has neither controller nor MRC hosts: a lab of its own, up to its end.
    if programs.base is not None and is_foreign(programs.base):
        refuse_fabric_options(context, programs.base)
        run_on_plan(programs, plan, lab, open_to_all=open_)
    options = lab.lab_options(
        program=None if programs.base is None else str(programs.base.absolute()),
        own_programs={name: str(path.absolute()) for name, path in programs.by_switch.items()},
        nic=nic,
        denylist=denylist,
        react_after_s=react_after_s,
        ports=ports,
        slowdown=speed.slowdown,
        guests=guest_numbers(allow or []),
    )
    if lab.rootless and allow:
        raise UsageError("--rootless with --allow: other users are unknown there. Cure: leave --rootless out, use sudo")
    lab.take_root("up", page=True)
    if speed.slowdown > 1 and file is None and links.are_usual:
        choice = f"links of {show_rate(plan.host_link.rate_bps or 0.0)}, base RTT {show_seconds(plan.base_rtt_s())}"
        console().print(speed.note(choice, "--rate, --delay"), soft_wrap=True)
    folder = folder_for(name)
    # Only the child goes on from here, in the background at once or after the word `detach`.
    let_go = fork_front(prompt=not detach) if detach or sys.stdin.isatty() else None
    with open_fabric(plan, options, console(), folder) as fabric:
        print(fabric.plan.describe_links())
        print_where(fabric, detached=detach)
        with closing(LivePage()) as page, open_door(fabric.run_dir, options.guests):
            commands = ("dash",) if dash else ()
            run_cli(fabric, open_page=page.open, commands=commands, prompt=not detach, let_go=let_go, serve=serve_words)


@app.command("dash", epilog="Examples: `mrc dash` · `firefox $(mrc dash)` · `mrc dash results/e10` · `mrc dash --json`")
def dash(
    results: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Folder of results: write the page of each of its runs.")
    ] = None,
    fabric: FabricName = None,
    as_json: Json = False,
) -> None:
    """Print the address of the live view that `dash` at the prompt or `mrc up --dash` has started.

    With a folder of results, write the same page for each finished run, with a slider for the time: one file that
    needs no server.
    """
    if results is not None:
        from mrc_testbed.dash.recording import write_pages

        paths = [str(path) for path in write_pages(results)]
        print(json.dumps({"pages": paths}) if as_json else "\n".join(paths))
        return
    from mrc_testbed.dash.live_page import address

    url = address(asked_folder(fabric))
    print(json.dumps({"url": url}) if as_json else url)


@app.command(
    "compile", epilog="Examples: `mrc compile` · `mrc compile --force` · then `mrc --version` says `engine compiled`"
)
def compile_(
    force: Annotated[bool, typer.Option("--force", help="Compile even when a build of these files exists.")] = False,
    as_json: Json = False,
) -> None:
    """Compile the engine and the virtual fabric once (two minutes of CPU): runs are several times faster.

    Everything works without a build. The cache keeps a build and uses it until its source files change;
    MRC_COMPILED=0 runs the Python files.
    """
    import time

    from mrc_testbed.ipc.fabrics import Fabrics
    from mrc_testbed.native_build.build import build
    from mrc_testbed.switch.system.cache_folder import BuildError, FullCacheError

    if names := [record.name for record in Fabrics().records() if record.is_alive]:
        raise UsageError(
            f"a fabric is up ({', '.join(names)}): compiling would spoil its times. Cure: `mrc down {names[0]}`"
        )
    start = time.monotonic()
    lines = console(stderr=as_json)
    try:
        with Progress(lines, "compile", guess_s=COMPILE_S) as progress:
            folder = build(lambda text: progress.step(f"compile: {text}"), force=force)
    except FullCacheError as error:
        raise FullDiskError(f"compile: {error}") from None
    except BuildError as error:
        raise UsageError(f"compile: {error}") from None
    seconds = round(time.monotonic() - start, 1)
    lines.print(f"compile: {folder} ({seconds} s)", soft_wrap=True)
    if as_json:
        print(json.dumps({"folder": str(folder), "seconds": seconds}))


@app.command(epilog="Examples: `mrc doctor` · `mrc doctor --json` · `mrc doctor --servers servers.yaml`")
def doctor(servers: ServersFile = None, as_json: Json = False) -> None:
    """Check this machine for the testbed's needs, and print the cure of each missing one.

    With --servers, check each of those machines and the network between them.
    """
    from mrc_testbed.doctor import doctor as checks

    machines = read_servers(servers)
    if machines is None:
        check_results = checks.checks()
    else:
        from mrc_testbed.doctor import servers as doctor_servers

        check_results = doctor_servers.checks(machines)
    results = []
    for check in check_results:
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
    fabric: FabricName = None,
) -> None:
    """Open p4runtime-shell (in its own Python environment) on a switch of the running fabric, read-only."""
    from mrc_testbed.cli.p4runtime_shell import open_shell

    raise typer.Exit(open_shell(switch, asked_folder(fabric)))


@app.command(
    epilog="Examples: `mrc pcap p1-t0-0-eth3` · `mrc pcap h0 --duration 5` · `mrc pcap h0 --out - | tshark -r -` · "
    "`mrc pcap h0 --explain` · `mrc pcap h0.pcapng --explain --plan plan.json` · `mrc pcap --install-dissector`"
)
def pcap(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="PORT|NODE|FILE",
            autocompletion=offer.nodes_and_ports,
            help="Interface, switch or host of the running fabric; a finished capture with --explain.",
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="Number of packets after which the capture ends.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--duration", min=0.01, help="Seconds after which the capture ends.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", help="File; `-` is standard output. Default: NAME.pcap, NODE.pcapng, FILE.explained.pcapng."
        ),
    ] = None,
    snap: Annotated[
        int | None, typer.Option("--snaplen", min=64, max=1 << 18, help="Bytes stored of each packet (default: all).")
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Comment each packet (pcapng): EV, path, mark, trim, reason of a retransmission, queue."
        ),
    ] = False,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", help="plan.json of the fabric where FILE was captured (default: the running fabric's)."),
    ] = None,
    install_dissector: Annotated[
        bool, typer.Option("--install-dissector", help="Copy the dissector to your Wireshark's plugin folder.")
    ] = False,
    uninstall_dissector: Annotated[
        bool, typer.Option("--uninstall-dissector", help="Remove the dissector from Wireshark's plugin folder.")
    ] = False,
    fabric: FabricName = None,
    as_json: Json = False,
) -> None:
    """Capture the packets of a port of the running fabric into a file, until Ctrl-C.

    With --explain each packet gets a comment, which Wireshark shows above its headers and tshark as `frame.comment`. A
    finished capture is read without root and written again with comments.
    """
    if as_json and out == "-":
        raise UsageError("--json and --out - both want standard output: give --out a file")
    options = {"--count": count, "--duration": seconds, "--snaplen": snap, "--out": out, "--plan": plan}
    if install_dissector or uninstall_dissector:
        _refuse(
            "--install-dissector and --uninstall-dissector stand alone",
            {
                **options,
                "PORT|NODE|FILE": target,
                "--explain": explain,
                "--json": as_json,
                "--uninstall-dissector": install_dissector and uninstall_dissector,
            },
        )
        from mrc_testbed.hosts.dissector.install import install, uninstall

        print(install() if install_dissector else uninstall())
        return
    result = _capture(target, options, explain, fabric)
    print(result, file=sys.stderr)
    if as_json:
        print(json.dumps(result.to_json(), indent=2))


def _capture(target: str | None, options: dict[str, Any], explain: bool, fabric: str | None) -> Any:
    """The result of a capture, or of explaining a finished one."""
    from mrc_testbed.capture import pcap as capturing
    from mrc_testbed.capture.packet_files import SNAP_BYTES
    from mrc_testbed.topologies.plan import Port

    if target is None:
        raise UsageError("give a port, switch or host of the running fabric, or a capture and --explain")
    out, plan = options["--out"], options["--plan"]
    folder = asked_folder(fabric)
    # A file is read as it is; only a capture off a port needs root and a running fabric.
    if capturing.is_finished_capture(target, folder):
        if not explain:
            raise UsageError(f"{target} is a finished capture: --explain comments its packets, tshark -r shows them")
        _refuse(
            "a finished capture takes --out and --plan",
            {key: value for key, value in options.items() if key not in ("--out", "--plan")},
        )
        from mrc_testbed.capture.explain.explained_file import explain_file

        return explain_file(Path(target), folder, out=out, plan=plan)
    _refuse("a running fabric has its own plan", {"--plan": plan})
    require_root("pcap")

    def report_start(ports: list[Port], path: str) -> None:
        print(f"capturing {', '.join(port.interface for port in ports)} to {path}", file=sys.stderr, flush=True)

    return capturing.capture(
        target,
        folder,
        out=out,
        count=options["--count"],
        seconds=options["--duration"],
        snap=options["--snaplen"] or SNAP_BYTES,
        explain=explain,
        on_ready=report_start,
    )


def _refuse(rule: str, options: dict[str, Any]) -> None:
    """Raises UsageError for options that were given."""
    if excess := [name for name, value in options.items() if value not in (None, False)]:
        raise UsageError(f"{rule}: leave out {', '.join(excess)}")


@app.command(
    epilog="Examples: `mrc simtest --seeds 20000` · `mrc simtest --seed 93` · `mrc simtest --replay small.json`"
)
def simtest(
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Number of schedules.")] = 2000,
    first: Annotated[int, typer.Option("--first-seed", min=0, help="First seed.")] = 0,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Run one schedule, in detail, and shrink it when it fails.")
    ] = None,
    replay: Annotated[Path | None, typer.Option("--replay", help="Run a schedule from a file, in detail.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=64, help="Processes.")] = 2,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Do not stop after 20 failures.")] = False,
    as_json: Json = False,
) -> None:
    """Run random schedules on the engines in virtual time and check every invariant (no root)."""
    from mrc_testbed.simulator.simtest import command

    raise typer.Exit(command.simtest(seeds, first, seed, replay, jobs, keep_going, as_json))


@app.command(
    epilog="Examples: `mrc fuzz wire --runs 1000000` · `mrc fuzz endpoints --duration 60` · `mrc fuzz p4 --runs 100`"
)
def fuzz(
    target: Annotated[
        str,
        typer.Argument(
            autocompletion=offer.one_of(*offer.FUZZ_TARGETS),
            help="`wire`, `scapy`, `frame`, `jsonl`, `endpoints`, or `p4`.",
        ),
    ],
    programs: Annotated[list[Path] | None, typer.Argument(help="Programs of `p4` in place of random ones.")] = None,
    runs: Annotated[
        int, typer.Option("--runs", min=1, help="Greatest number of inputs; of `p4`, of programs.")
    ] = 1_000_000,
    seconds: Annotated[int, typer.Option("--duration", min=1, help="Greatest duration in seconds.")] = 60,
    seed: Annotated[int, typer.Option("--seed", min=1, help="Seed of the fuzzer; of `p4`, the first program's.")] = 1,
    out: Annotated[Path, typer.Option("--out", help="Folder for the programs of `p4` that show a difference.")] = Path(
        "fuzz-p4"
    ),
    as_json: Json = False,
) -> None:
    """Fuzz decoders and endpoints with bytes, or the embedded switch and BMv2 with P4 programs (no root)."""
    from mrc_testbed.simulator.simtest import command

    if target == "p4":
        if not has_tools():
            raise UsageError(f"fuzz p4: {IN_CHECKOUT}")
        from tools.commands import fuzz_p4

        raise typer.Exit(fuzz_p4(runs, seed, seconds, out, programs or [], as_json))
    if programs or as_json:
        raise UsageError(f"{'programs' if programs else '--json'} belong to `mrc fuzz p4`, not to {target}")
    raise typer.Exit(command.fuzz(target, runs, seconds, seed))


@app.command("schema", epilog="Examples: `mrc schema` lists the names · `mrc schema evs` · `mrc schema p4 check`")
def print_schema(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]", help="Command whose `--json` is described.")
    ] = None,
) -> None:
    """Print the JSON schema of the --json of a command, or of state files; without a name, list them."""
    from mrc_testbed.cli.json_schemas import FILES, SCHEMAS, schema

    print(json.dumps(schema(" ".join(names)), indent=2) if names else "\n".join((*SCHEMAS, *FILES)))


@app.command(
    "controller",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def run_controller(context: typer.Context) -> None:
    """Run the fabric controller alone, on the fabric of a run folder (`mrc controller --help`)."""
    from mrc_testbed.controller.__main__ import main as controller_main

    if os.geteuid() != 0:  # a rootless fabric is joined
        asked_folder(None)

    raise typer.Exit(controller_main(context.args))


def _is_adrift() -> bool:
    """Tell whether the working folder was deleted, so that no relative path leads anywhere."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def main() -> None:
    """Run the console script: expected errors become one line and exit code 1; Ctrl-C becomes 130."""
    encode_all()
    try:
        app(prog_name="mrc")
    except SystemExit as end:
        if end.code == EXIT_INTERRUPTED:  # typer's word for Ctrl-C
            print(INTERRUPTION, file=sys.stderr)
        raise
    except expected_errors() as error:
        print(f"mrc: error: {error}", file=sys.stderr)
        sys.exit(EXIT_UNWRITTEN if isinstance(error, FullDiskError) else 1)
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        message = f"this needs the package {module}, which is not installed: {package_cure(module)}"
        print(f"mrc: error: {message}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and _is_adrift():
            print(f"mrc: error: {ADRIFT}", file=sys.stderr)
            sys.exit(1)
        if error.errno in BARRED_PATH_ERRNOS and error.filename is not None:
            print(f"mrc: error: {error.filename}: {error.strerror}: give another place", file=sys.stderr)
            sys.exit(1)
        # An error without a file's name is of an output stream: the outermost frame answers it, once.
        if error.errno not in DISK_FULL_ERRNOS or error.filename is None:
            raise
        print(f"mrc: error: {error.filename}: {error.strerror}: make room there, or write elsewhere", file=sys.stderr)
        sys.exit(EXIT_UNWRITTEN)
