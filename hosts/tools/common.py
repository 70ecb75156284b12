"""Scaffold of the tools: command line, fabric and source host, RPC, Ctrl-C, exit codes, numbers.

A tool is one function for typer: it takes the options and returns the work as a function without arguments, which `run`
calls once the command line is parsed. Work so runs outside of typer, and Ctrl-C stays the tool's own.

exit code   0 done   1 the test failed, or a path is dead   2 wrong usage, or no agent reachable   130 Ctrl-C
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from mrc_testbed.console.terminal import encode_all
from mrc_testbed.errors import EXIT_INTERRUPTED
from mrc_testbed.ipc.agent_client import PEER_S
from mrc_testbed.ipc.fabrics import Fabrics
from mrc_testbed.ipc.rpc import JsonlClient, JsonlError, JsonlPeerError, Watch
from mrc_testbed.ipc.rundir import DEFAULT_PATH, FabricError, HostOffError, RunFiles
from mrc_testbed.topologies.plan import Host, Plan, PlanError

OK, FAILED, USAGE_ERROR = 0, 1, 2
STOP_TIMEOUT_S = 10.0
"""Time after Ctrl-C for the agents to stop posting and to report, seconds: a user waits."""
SIZE_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}

Event = dict[str, Any]


class ToolError(Exception):
    """A measurement that cannot begin or go on: one line with cause and cure. `code`: exit code."""

    def __init__(self, message: str, code: int = USAGE_ERROR) -> None:
        super().__init__(message)
        self.code = code


# ---- where ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeasuringHost:
    """A running fabric and the source host of a measurement."""

    run_dir: Path
    plan: Plan
    host: Host

    @property
    def socket(self) -> Path:
        return RunFiles(self.run_dir).agent_socket(self.host.name)

    def peer(self, name: str) -> Host:
        """Return the host of that name, other than the source; raises ToolError."""
        try:
            peer = self.plan.host(name)
        except PlanError as error:
            raise ToolError(str(error)) from error
        if peer == self.host:
            other_names = ", ".join(h.name for h in self.plan.hosts if h != self.host) or "none"
            raise ToolError(f"{name} is this host: give another one as peer (has: {other_names})")
        return peer


def load_plan(run_dir: Path) -> Plan:
    """Return the plan of the fabric in a run folder; raises ToolError when there is none."""
    files = RunFiles(run_dir)
    path = files.plan_file
    try:
        return Plan.from_json(files.read_plan())
    except FileNotFoundError:
        raise ToolError(
            f"no fabric is running in {run_dir} (no {path.name} there): start one with `mrc up`, "
            "or name its run folder with MRC_RUN_DIR or --run-dir"
        ) from None
    except PermissionError:
        raise ToolError(f"{path}: no permission: the fabric belongs to root, use sudo") from None
    except (OSError, ValueError) as error:
        raise ToolError(f"{path}: {error}") from error


def this_host(plan: Plan) -> str | None:
    """Return the host we run in: MRC_HOST, or the one with our namespace's port; None outside.

    The port is the host's first.
    """
    if name := os.environ.get("MRC_HOST"):
        return name
    interface_names = {name for _, name in socket.if_nameindex()}
    matching_hosts = [host.name for host in plan.hosts if plan.host_port(host, 0).interface in interface_names]
    return matching_hosts[0] if len(matching_hosts) == 1 else None


def find_measuring_host(tool: str, run_dir: str | None, source: str | None) -> MeasuringHost:
    """Return the source host by --run-dir and --from, or by the environment; raises ToolError."""
    folder = run_dir_of(run_dir)
    plan = load_plan(folder)
    name = source or this_host(plan)
    if name is None:
        raise ToolError(
            f"no host given: inside one it is known (`h0 {tool} ...` at the prompt of `mrc up`); "
            f"here say --from HOST (has: {plan.hosts[0].name} ... {plan.hosts[-1].name})"
        )
    try:
        host = plan.host(name)
        RunFiles(folder).check_host_on(name)
        return MeasuringHost(folder, plan, host)
    except (PlanError, HostOffError) as error:
        raise ToolError(str(error)) from error


def run_dir_of(option: str | None) -> Path:
    """Return the run folder: --run-dir, else that of the only running fabric; absolute. Raises ToolError."""
    if option is not None:
        return Path(option).absolute()
    try:
        return Fabrics().asked_folder(None).absolute()
    except FabricError as error:
        reason = str(error).partition(" Cure:")[0]
        raise ToolError(f"{reason} Cure: --run-dir with the folder of one (`mrc ls --json`)") from error


# ---- options ------------------------------------------------------------------------------------------------


def option(*names: str, help: str, **settings: Any) -> Any:
    """Return a typer option whose default, where it has one, is in its help text."""
    return typer.Option(*names, help=help, show_default=False, **settings)


def size_type(text: str | int) -> int:
    """Return bytes, with K, M or G as powers of 1024: `64K` is 65,536. Raises typer.BadParameter."""
    text = str(text)
    unit = SIZE_UNITS.get(text[-1:].upper(), 1)
    digits = text[:-1] if unit > 1 else text
    if not digits.isascii() or not digits.isdigit() or len(digits) > 15 or not 0 < int(digits) * unit <= 1 << 40:
        raise typer.BadParameter(f"{text!r}: give bytes, such as 2, 4096, 64K or 1M")
    return int(digits) * unit


def int_type(low: int) -> Callable[[str | int], int]:
    """Parser of whole numbers from `low` on."""

    def number(text: str | int) -> int:
        text = str(text)
        if not text.isascii() or not text.isdigit() or len(text) > 15 or int(text) < low:
            raise typer.BadParameter(f"{text!r}: give a whole number, {low} or more")
        return int(text)

    return number


count_type = int_type(1)


def seconds_type(text: str | float) -> float:
    """Return a positive number of seconds; raises typer.BadParameter."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise typer.BadParameter(f"{text!r}: give a positive number of seconds, such as 0.5 or 10")
    return value


RunDir = Annotated[
    str | None, option("--run-dir", metavar="DIR", help=f"Run folder (default: MRC_RUN_DIR, or {DEFAULT_PATH}).")
]
Json = Annotated[bool, option("--json", help="Print one JSON document instead of a table.")]
Source = Annotated[
    str | None, option("--from", "--host", metavar="HOST", help="Source host (default: the host we are in).")
]

# Options of write_bw and write_lat.
Peer = Annotated[str, typer.Argument(metavar="PEER", help="Host to write to, such as h2.", show_default=False)]
AllSizes = Annotated[bool, option("-a", "--all", help="All sizes from 2 B to 8 MiB.")]
Iterations = Annotated[
    int | None, option("-n", "--iters", parser=count_type, metavar="N", help="Measured writes of each QP (1000).")
]
Duration = Annotated[
    float | None,
    option("-D", "--duration", parser=seconds_type, metavar="S", help="Duration in seconds, in place of -n."),
]
Mtu = Annotated[
    int | None,
    option(
        "-m", "--mtu", parser=count_type, metavar="N", help="Path MTU, payload bytes of a full packet (the fabric's)."
    ),
]
Transport = Annotated[
    str, option("--transport", metavar="NAME", help="mrc (default), or rocev2: one path and Go-Back-N.")
]
OutJson = Annotated[
    bool, option("--out_json", help="Write the result to a file as well, in the JSON of perftest's option.")
]
OutJsonFile = Annotated[Path | None, option("--out_json_file", metavar="FILE", help="That file (perftest_out.json).")]
RoCEv2 = Annotated[bool, option("--rocev2", help="The same as --transport rocev2.")]


ALL_SIZES = tuple(2**n for n in range(1, 24))
"""2 B to 8 MiB."""
ITERATIONS = 1000
ALL_BYTES = 32 << 20
"""Bytes written of each size with -a and no -n, so that large writes do not take minutes."""
FEWEST = 8


@dataclass(frozen=True)
class TestOptions:
    """Common options of write_bw and write_lat. None: not given."""

    __test__ = False  # not a pytest test class

    peer: str
    size: int
    all_sizes: bool
    iterations: int | None
    duration_s: float | None
    warm_up: int
    pmtu: int | None
    transport: str

    def fields(self) -> dict[str, Any]:
        """Request fields. Raises ToolError for options that exclude each other."""
        if self.iterations is not None and self.duration_s is not None:
            raise ToolError("-n and -D exclude each other: give a number of writes or a duration")
        sizes = list(ALL_SIZES) if self.all_sizes else [self.size]
        fields: dict[str, Any] = {
            "peer": self.peer,
            "sizes": sizes,
            "warm_up": self.warm_up,
            "transport": self.transport,
        }
        if self.duration_s is not None:
            fields["duration_s"] = self.duration_s
        elif self.iterations is not None or not self.all_sizes:
            fields["iterations"] = [self.iterations or ITERATIONS] * len(sizes)
        else:
            fields["iterations"] = [max(FEWEST, min(ITERATIONS, ALL_BYTES // size)) for size in sizes]
        if self.pmtu is not None:
            fields["pmtu"] = self.pmtu
        return fields


# ---- RPC ----------------------------------------------------------------------------------------------------


def conduct(
    measuring_host: MeasuringHost,
    op: str,
    fields: dict[str, Any],
    on_begin: Callable[[Event], None],
    on_event: Callable[[Event], None],
) -> Event:
    """Run an op of hosts/agent/services/measurement.py to completion; its `end` event. Raises ToolError.

    Ctrl-C sends `stop_work` and reads on, so that the partial result is still reported; a second one, and any other end
    of this process, closes the connection, which stops the op too.
    """
    client = JsonlClient(measuring_host.socket, name=measuring_host.host.name)
    try:
        start = client.request(op, timeout_s=PEER_S, patient=True, **fields)
        on_begin(start)
        with interruptible(lambda: stop_work(measuring_host, start["work"])) as has_interrupt:
            watch = Watch(client)
            while True:
                event = watch.get(STOP_TIMEOUT_S if has_interrupt() else 0.5)
                if event is None:
                    if has_interrupt():
                        raise ToolError(f"{measuring_host.host.name}: {op}: its agent did not stop in time", FAILED)
                elif event.get("event") == "end":
                    return event
                else:
                    on_event(event)
    except JsonlPeerError as error:
        raise ToolError(str(error)) from error
    except JsonlError as error:
        raise ToolError(f"{error} (log: {measuring_host.run_dir}/log/{measuring_host.host.name}.log)") from error
    finally:
        client.close()


def stop_work(measuring_host: MeasuringHost, work: int) -> None:
    """Stop a test over a connection of its own; the result arrives on the connection that began it."""
    with JsonlClient(measuring_host.socket, name=measuring_host.host.name, timeout_s=2.0) as client:
        try:
            client.request("stop_work", work=work)
        except JsonlError as error:
            print(f"{measuring_host.host.name}: cannot stop the test: {error}", file=sys.stderr)


@contextmanager
def interruptible(on_interrupt: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Call `on_interrupt` on the first Ctrl-C, raise KeyboardInterrupt on the second.

    Yields a function that returns whether Ctrl-C was pressed.
    A handler that raises could lose half of a line just received. In the background (SIGINT ignored) nothing changes.
    """
    seen = False
    old_handler = signal.getsignal(signal.SIGINT)

    def handle(*_: Any) -> None:
        nonlocal seen
        if seen:
            raise KeyboardInterrupt
        seen = True
        on_interrupt()

    ignored = old_handler is signal.SIG_IGN
    if not ignored:
        signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: seen
    finally:
        if not ignored:
            signal.signal(signal.SIGINT, old_handler)


def finish(end: Event, tool: str) -> int:
    """Exit code of an `end` event; prints a failure on stderr."""
    if end["state"] == "failed":
        print(f"{tool}: failed: {end['error']}", file=sys.stderr)
        return FAILED
    return EXIT_INTERRUPTED if end["state"] == "stopped" else OK


Work = Callable[[], int]
"""The work of a tool, options bound; returns the exit code."""


def parse(tool: str, command: Callable[..., Work], examples: Sequence[str], argv: Sequence[str] | None) -> Work | None:
    """Return the work that a command line selects; None after --help.

    Raises ToolError for a wrong command line.

    `examples`: one `command: explanation` each, Markdown.
    """
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command(epilog="\n\n".join(["Examples:", "", *(f"- {example}" for example in examples)]))(command)
    try:
        result = typer.main.get_command(app).main(argv, prog_name=tool, standalone_mode=False)
    except _CommandLineError as error:
        raise ToolError(f"{error.format_message()} (`{tool} --help` shows all options)") from None
    return cast(Work, result) if callable(result) else None


_CommandLineError = cast(type[typer.BadParameter], typer.BadParameter.__mro__[2])
"""ClickException, which typer has under another name in each release."""


def run(tool: str, command: Callable[..., Work], examples: Sequence[str], argv: Sequence[str] | None) -> int:
    """Run a tool; an error becomes one line on stderr and an exit code."""
    encode_all()
    try:
        work = parse(tool, command, examples, argv)
        code = OK if work is None else work()
        sys.stdout.flush()
        return code
    except ToolError as error:
        print(f"{tool}: error: {error}", file=sys.stderr)
        return error.code
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader has gone, as in `mrc-stat | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


# ---- numbers ------------------------------------------------------------------------------------------------


def megabits(bps: float | None, digits: int = 2) -> str:
    """Return a rate as `398.11`, in Mb/s; `-` when there was nothing to measure."""
    return "-" if bps is None else f"{bps / 1e6:.{digits}f}"


def planes_text(plane_bps: Sequence[float]) -> str:
    """Rates of the planes in order, Mb/s."""
    return " ".join(megabits(bps, 1) for bps in plane_bps) or "-"
