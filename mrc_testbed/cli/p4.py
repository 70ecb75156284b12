"""`mrc p4`: compile, check, test and run P4 programs on the embedded switch; `run` alone needs root."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from mrc_testbed.cli import completion as offer
from mrc_testbed.cli.options import Json, require_root
from mrc_testbed.console.progress import Progress
from mrc_testbed.console.terminal import console
from mrc_testbed.errors import DISK_FULL_ERRNOS, EXIT_UNWRITTEN, UsageError
from mrc_testbed.files.whole_files import write_output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mrc_testbed.switch.compiler import CompiledProgram
    from mrc_testbed.switch.compiler.errors import Location, P4Warning
    from mrc_testbed.topologies.p4lab.lab import LabPrograms, P4Lab
    from mrc_testbed.topologies.p4lab.topology import LabTopology

app = typer.Typer(
    help="Develop P4 in memory, without root: check, compile, test, trace, draw (docs/p4-development.md).",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _source(text: str) -> Path:
    """A program as it is typed: a path, or the name of one that comes with mrc-testbed (`srv6`)."""
    from mrc_testbed.files.package import P4_PROGRAMS

    packaged_program = P4_PROGRAMS / f"{text}.p4"
    return (
        packaged_program if not Path(text).exists() and "/" not in text and packaged_program.is_file() else Path(text)
    )


Program = Annotated[
    Path,
    typer.Argument(
        parser=_source,
        autocompletion=offer.programs,
        metavar="PROGRAM",
        help="The P4 program: a path, or the name of one of ours.",
    ),
]
Programs = Annotated[
    list[Path],
    typer.Argument(
        parser=_source,
        autocompletion=offer.programs,
        metavar="PROGRAM...",
        help="P4 programs: paths, or names of ours.",
    ),
]
Include = Annotated[list[Path] | None, typer.Option("-I", "--include", help="Folder for #include; repeatable.")]
Define = Annotated[list[str] | None, typer.Option("-D", "--define", help="Macro NAME or NAME=VALUE; repeatable.")]

Errors = Annotated[bool, typer.Option("--Werror", "--werror", help="Treat warnings as errors.")]
NoWarn = Annotated[
    list[str] | None, typer.Option("--Wdisable", metavar="KIND", help="Suppress warnings of a kind; repeatable.")
]

FAILED = 1
FIRST_PORT = 50051
PORT_MAX = 65000


@app.command(epilog="Examples: `mrc p4 check mine.p4` · `mrc p4 check srv6 spray`, the two that come with mrc-testbed")
def check(
    programs: Programs,
    include: Include = None,
    define: Define = None,
    werror: Errors = False,
    wdisable: NoWarn = None,
    as_json: Json = False,
) -> None:
    """Check programs: a line `file:line:column: error: message` for each mistake; then exit code 1.

    Warnings, `file:line:column: warning: message [kind]`, go to stderr, and with --Werror to stdout as errors.
    """
    from mrc_testbed.switch.compiler import P4Error
    from mrc_testbed.switch.compiler.compiler import check_program

    _known_kinds(wdisable)
    failed = False
    results: list[dict[str, Any]] = []
    for program in programs:
        # Lines for people are printed as they come, data at the end as a whole.
        warnings: Sequence[P4Warning] = ()
        errors: list[P4Error] = []
        try:
            warnings = check_program(program, include=include or (), defines=define or ())
        except P4Error as error:
            failed = True
            errors = [error, *error.further_errors]
            if not as_json:
                print("\n".join(error.lines()))
        if as_json:
            warnings = [warning for warning in warnings if warning.kind not in (wdisable or ())]
            failed = failed or (werror and bool(warnings))
        else:
            failed = _warn(warnings, werror, wdisable) or failed
        results.append(
            {
                "program": str(program),
                "ok": not errors and not (werror and warnings),
                "errors": [{**_position(error.location), "message": error.message} for error in errors],
                "warnings": [
                    {**_position(warning.location), "message": warning.message, "kind": warning.kind}
                    for warning in warnings
                ],
            }
        )
    if as_json:
        print(json.dumps({"ok": not failed, "programs": results}, indent=2))
    raise typer.Exit(FAILED if failed else 0)


def _position(location: Location | None) -> dict[str, Any]:
    """Return file, line and column of a mistake, all null where it is not in the program."""
    if location is None:
        return {"file": None, "line": None, "column": None}
    return {"file": location.file, "line": location.line, "column": location.column}


@app.command(epilog="Example: `mrc p4 compile p4src/srv6.p4 -o build` writes srv6.p4info.txtpb, srv6.c, srv6.config.p4")
def compile(
    program: Program,
    output: Annotated[
        Path, typer.Option("-o", "--out", help="Folder for the results (created when missing).")
    ] = Path(),
    include: Include = None,
    define: Define = None,
    werror: Errors = False,
    wdisable: NoWarn = None,
) -> None:
    """Compile a program: P4Info (text), the generated C, and the device config that P4Runtime takes.

    Warnings are printed as by `mrc p4 check`; with --Werror a warning stops the command before it writes.
    """
    from google.protobuf import text_format

    _known_kinds(wdisable)
    built = _compile_program(program, include, define, ahead=False)
    if _warn(built.warnings, werror, wdisable):
        raise typer.Exit(FAILED)
    try:
        output.mkdir(parents=True, exist_ok=True)
        paths = [output / f"{built.name}{suffix}" for suffix in (".p4info.txtpb", ".c", ".config.p4")]
        write_output(paths[0], text_format.MessageToString(built.p4info).encode())
        write_output(paths[1], built.c_path.read_bytes())
        write_output(paths[2], built.config)
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:  # with an exit code of its own
            raise
        _stop(f"{error.filename or output}: {error.strerror}")
    for path in paths:
        print(path)


@app.command("test", epilog="Example: `mrc p4 test p4src/srv6.p4 tests/p4src/srv6_forward.stf`")
def run_stf(
    program: Program,
    cases: Annotated[list[Path], typer.Argument(help="STF scripts.", metavar="CASE.stf...")],
    include: Include = None,
    define: Define = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the program's random().")] = 0,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print failures only.")] = False,
    as_json: Json = False,
) -> None:
    """Run STF scripts against a program in memory, each on a fresh switch; exit code 1 when one fails."""
    from mrc_testbed.switch.tools.stf import StfError, read_script
    from mrc_testbed.switch.tools.stf_run import run_script

    built = _compile_program(program, include, define)
    results: list[dict[str, Any]] = []
    # Each script is reported as it ends; data comes at the end as a whole.
    for case in cases:
        report, error_text = None, None
        try:
            report = run_script(built, read_script(case), seed=seed)
        except StfError as error:
            error_text = str(error)
        results.append(
            {
                "script": str(case),
                "passed": report is not None and report.passed,
                "failures": [] if report is None else report.failures,
                "error": error_text,
                "packets_in": 0 if report is None else report.packets_in,
                "packets_out": 0 if report is None else report.packets_out,
                "checks": 0 if report is None else report.checks,
            }
        )
        if as_json:
            continue
        if report is None:
            print(f"ERROR {case}\n{error_text}")
        elif not report.passed:
            print(f"FAIL {case}\n{report.text()}")
        elif not quiet:
            print(f"ok   {case} ({report.packets_in} packets in, {report.packets_out} out, {report.checks} checks)")
    failed = sum(not result["passed"] for result in results)
    if as_json:
        print(json.dumps({"program": str(program), "passed": not failed, "scripts": results}, indent=2))
    elif failed:
        print(f"{failed} of {len(cases)} failed")
    raise typer.Exit(FAILED if failed else 0)


@app.command(epilog="Example: `mrc p4 trace basic.p4 1 ffffffffffff0200000000010800 --stf entries.stf`")
def trace(
    program: Program,
    port: Annotated[int, typer.Argument(help="Ingress port.")],
    data: Annotated[str, typer.Argument(help="The packet in hexadecimal.", metavar="HEX")],
    stf: Annotated[Path | None, typer.Option("--stf", help="STF script to run first: entries, registers.")] = None,
    include: Include = None,
    define: Define = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Trace a packet: parser states, tables with key, hit and action, changed fields, reason of a drop."""
    from mrc_testbed.switch.device.device import P4Device
    from mrc_testbed.switch.device.entities import TableError
    from mrc_testbed.switch.tools.stf import StfError, read_script
    from mrc_testbed.switch.tools.stf_run import StfRun

    built = _compile_program(program, include, define)
    device = P4Device(1, built.name)
    try:
        device.load(built)
        run = StfRun(device, built)
        for command in read_script(stf) if stf else ():
            run.command(command)
        with _building():  # of a form of the program that tells its steps
            packet_trace = device.trace(port, bytes.fromhex(data))
    except (StfError, TableError) as error:
        _stop(str(error))
    except ValueError as error:
        _stop(f"trace: {error} (want a port and whole bytes in hexadecimal)")
    finally:
        device.close()
    print(json.dumps(packet_trace.to_json(), indent=2) if as_json else packet_trace.text())


@app.command(epilog="Examples: `mrc p4 graph p4src/srv6.p4 -o srv6.svg`; `mrc p4 graph x.p4 --control MyIngress`")
def graph(
    program: Program,
    parser: Annotated[bool, typer.Option("--parser", help="Draw only the parser, with its sub-parsers.")] = False,
    control: Annotated[
        str | None, typer.Option("--control", help="Draw only this control: ingress, or its name.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="Format: svg or dot (default: by the suffix of --out, else svg).", metavar="svg|dot"
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--out", help="File to write (default: standard output).")
    ] = None,
    include: Include = None,
    define: Define = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the boxes and edges in place of a drawing.")] = False,
) -> None:
    """Draw a program: parser states and transitions; each control with its tables, conditions and actions."""
    from mrc_testbed.switch.compiler import P4Error
    from mrc_testbed.switch.compiler.compiler import front
    from mrc_testbed.switch.tools.graph import GraphError, graph_json
    from mrc_testbed.switch.tools.graph import graph as draw

    form = form or ("dot" if output is not None and output.suffix in (".dot", ".gv") else "svg")
    if form not in ("svg", "dot"):
        _stop(f"--format {form}: there is svg and dot")
    if parser and control:
        _stop("--parser and --control: give one of them")
    if as_json and (output is not None or form == "dot"):
        _stop("--json prints boxes and edges: leave out --format and --out")
    only = "parser" if parser else control
    try:
        elaborated_program = front(program, include=include or (), defines=define or ())
        if as_json:
            print(json.dumps(graph_json(elaborated_program, only), indent=2))
            return
        text = draw(elaborated_program, only)
    except P4Error as error:
        _stop("\n".join(error.lines()))
    except GraphError as error:
        _stop(str(error))
    text = _svg(text) if form == "svg" else text
    if output is None:
        print(text, end="")
        return
    try:
        write_output(output, text.encode())
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:  # with an exit code of its own
            raise
        _stop(f"{output}: {error.strerror}")
    print(output)


@app.command(
    "run",
    epilog="Examples: `mrc p4 run my.p4 --entries s1-runtime.json` · `mrc p4 run basic.p4 --topology topology.json` · "
    "`mrc p4 run my.p4 --open`, for controllers of others",
)
def run_program(
    program: Annotated[
        Path | None, typer.Argument(metavar="[PROGRAM]", help="P4 program of the switches that name no other.")
    ] = None,
    topology: Annotated[
        Path | None,
        typer.Option("--topology", "-t", help="topology.json of the P4 tutorials (default: h1 - s1 - h2)."),
    ] = None,
    entries: Annotated[
        list[str] | None,
        typer.Option(
            "--entries",
            metavar="[SWITCH=]FILE",
            help="Entries of a switch (s1), sX-runtime.json of the P4 tutorials; repeatable.",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option("--port", min=1, max=PORT_MAX, help="TCP port of P4Runtime of the first switch; the next follow."),
    ] = FIRST_PORT,
    open_: Annotated[
        bool, typer.Option("--open", help="Let controllers connect without the run's token, as p4runtime_lib does.")
    ] = False,
) -> None:
    """Bring up switches with a P4 program and hosts with Linux's own stacks, and open the Mininet prompt.

    At the prompt `reload` compiles the program again and swaps it under traffic; entries that fit stay.
    """
    require_root("p4 run")
    from mrc_testbed.topologies.p4lab.lab import LabPrograms
    from mrc_testbed.topologies.p4lab.topology import pair_topology, read_topology

    lab_topology = read_topology(topology) if topology is not None else pair_topology()
    if program is None and any(switch.program is None for switch in lab_topology.switches):
        raise UsageError("no program: the topology names none for each switch. Cure: `mrc p4 run my.p4`")
    names = [switch.name for switch in lab_topology.switches]
    programs = LabPrograms(program, _entry_files(entries or [], names), port, open_)
    run_lab(lab_topology, programs)


def run_lab(topology: LabTopology, programs: LabPrograms) -> NoReturn:
    """Run a lab with its prompt until its user leaves."""
    from mrc_testbed.cli.prompt.lab_shell import LabCLI
    from mrc_testbed.topologies.p4lab.lab import P4Lab

    with ExitStack() as stack:
        with Progress(console(), "p4 run", guess_s=2.0, size=len(topology.switches)) as progress:
            lab = stack.enter_context(P4Lab(topology, programs, progress=progress.step))
        _print_start(lab)
        failures = LabCLI(lab).run_session()
    raise typer.Exit(1 if failures and not sys.stdin.isatty() else 0)


def _entry_files(words: list[str], switches: list[str]) -> dict[str, Path]:
    """Return the files of entries by switch. Raises UsageError."""
    files: dict[str, Path] = {}
    for word in words:
        name, mark, path = word.rpartition("=")
        name = name if mark else switches[0]
        if name not in switches:
            raise UsageError(f"--entries {word}: no switch {name!r} (has: {', '.join(switches)})")
        files[name] = Path(path)
    return files


def _print_start(lab: P4Lab) -> None:
    """Print what there is, and how others connect."""
    print(f"{lab.topology}. `help` lists the commands, `exit` ends and removes everything.")
    for switch in lab.topology.switches:
        address = f"127.0.0.1:{lab.tcp_ports[switch.name]}, device {switch.device_id}"
        print(f"  {switch.name}  {lab.running.sources[switch.name]}  P4Runtime {address}")
    if not lab.programs.open_to_all:
        print(f"  Controllers show the token in {lab.run_dir.token_file}; with --open none is wanted.")
    for notice in lab.notices:
        print(f"note: {notice}")
    sys.stdout.flush()


def _svg(dot: str) -> str:
    """The picture that graphviz draws."""
    command = shutil.which("dot")
    if command is None:
        _stop("a picture needs graphviz's `dot`: install it (apt install graphviz), or use --format dot")
    process = subprocess.run(
        [command, "-Tsvg"], input=dot, capture_output=True, text=True, check=False, encoding="utf-8"
    )
    if process.returncode:
        _stop(f"dot failed: {process.stderr.strip()}")
    return process.stdout


def _compile_program(
    program: Path, include: list[Path] | None, define: list[str] | None, *, ahead: bool = True
) -> CompiledProgram:
    """The program, or the command ends with what is wrong; `ahead`: the runtime is wanted next."""
    from mrc_testbed.switch.compiler import compile_program
    from mrc_testbed.switch.device.native import build_ahead, runtime

    if ahead:
        build_ahead()
    with _building(), Progress(console(stderr=True), "p4 compile", guess_s=3.0, text=f"compiling {program}"):
        built = compile_program(program, include=include or (), defines=define or ())
        if ahead:
            runtime()
        return built


@contextmanager
def _building() -> Iterator[None]:
    """End the command with what is wrong when a program or the runtime cannot be made."""
    from mrc_testbed.switch.compiler import P4Error, UnwrittenP4Error
    from mrc_testbed.switch.system.cache_folder import BuildError, FullCacheError

    try:
        yield
    except P4Error as error:
        _stop("\n".join(error.lines()), EXIT_UNWRITTEN if isinstance(error, UnwrittenP4Error) else FAILED)
    except BuildError as error:
        _stop(str(error), EXIT_UNWRITTEN if isinstance(error, FullCacheError) else FAILED)


def _warn(warnings: Iterable[P4Warning], werror: bool, wdisable: list[str] | None) -> bool:
    """Print warnings, but for those of some kinds. Returns whether they are errors."""
    shown_warnings = [warning for warning in warnings if warning.kind not in (wdisable or ())]
    for warning in shown_warnings:
        print(warning.line("error") if werror else warning.line(), file=sys.stdout if werror else sys.stderr)
    return werror and bool(shown_warnings)


def _known_kinds(kinds: list[str] | None) -> None:
    """Stop when --Wdisable names no kind of warning."""
    from mrc_testbed.switch.compiler.errors import known_names
    from mrc_testbed.switch.compiler.sema.warn import KINDS

    for kind in kinds or ():
        if kind not in KINDS:
            _stop(f"--Wdisable {kind}: no kind of warning {known_names(KINDS)}")


def _stop(message: str, code: int = FAILED) -> NoReturn:
    print(message, file=sys.stderr)
    raise typer.Exit(code)
