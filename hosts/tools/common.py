"""What all tools share: which host of which fabric is asked, options, Ctrl-C, exit codes, how numbers look.

exit code   0 done   1 the test failed, or a path is dead   2 wrong use, or nobody to ask   130 Ctrl-C
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipc.rpc import JsonlClient, JsonlError, JsonlPeerError, Watch
from ipc.rundir import DEFAULT_PATH, RunFiles
from topologies.plan import Host, Plan, PlanError

OK, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130
BEGIN_TIMEOUT_S = 60.0
"""For QPs and memory at both ends to be set up."""
STOP_TIMEOUT_S = 10.0
"""After Ctrl-C: for the agents to stop posting and to tell what was measured."""
SIZE_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}

Event = dict[str, Any]


class ToolError(Exception):
    """Nothing can be asked or measured; one line with cause and cure. `code` is the exit code."""

    def __init__(self, message: str, code: int = WRONG) -> None:
        super().__init__(message)
        self.code = code


# ---- whom to ask --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeasuringHost:
    """A running fabric and the host from which is measured."""

    run_dir: Path
    plan: Plan
    host: Host

    @property
    def socket(self) -> Path:
        return RunFiles(self.run_dir).agent_socket(self.host.name)

    def peer(self, name: str) -> Host:
        """The host of that name, not our own. Raises ToolError."""
        try:
            peer = self.plan.host(name)
        except PlanError as error:
            raise ToolError(str(error)) from error
        if peer == self.host:
            others = ", ".join(h.name for h in self.plan.hosts if h != self.host) or "none"
            raise ToolError(f"{name} is this host: give another one as peer (has: {others})")
        return peer


def load_plan(run_dir: Path) -> Plan:
    """The plan of the fabric in a run folder. Raises ToolError when there is none."""
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
    """The host we run in: MRC_HOST, or the one whose first port is in our network namespace; None outside."""
    if name := os.environ.get("MRC_HOST"):
        return name
    here = {name for _, name in socket.if_nameindex()}
    inside = [host.name for host in plan.hosts if plan.host_port(host, 0).interface in here]
    return inside[0] if len(inside) == 1 else None


def find_place(arguments: argparse.Namespace) -> MeasuringHost:
    """From --run-dir and --from, or the environment. Raises ToolError."""
    run_dir = run_dir_of(arguments)
    plan = load_plan(run_dir)
    name = arguments.source or this_host(plan)
    if name is None:
        raise ToolError(
            f"from which host? Inside one it is known (`h0 {arguments.tool} ...` at the prompt of `mrc up`); "
            f"here say --from HOST (has: {plan.hosts[0].name} ... {plan.hosts[-1].name})"
        )
    try:
        return MeasuringHost(run_dir, plan, plan.host(name))
    except PlanError as error:
        raise ToolError(str(error)) from error


def run_dir_of(arguments: argparse.Namespace) -> Path:
    return RunFiles(arguments.run_dir).path.absolute()


# ---- options ------------------------------------------------------------------------------------------------


def parser(tool: str, description: str, examples: str) -> argparse.ArgumentParser:
    """A parser with the options that all tools have."""
    made = argparse.ArgumentParser(
        prog=tool, description=description, epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.set_defaults(tool=tool)
    place = made.add_argument_group("where")
    place.add_argument("--run-dir", metavar="DIR", help=f"run folder (default: MRC_RUN_DIR, or {DEFAULT_PATH})")
    made.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    return made


def add_source(made: argparse.ArgumentParser) -> None:
    """--from, for tools that measure from one host."""
    made.add_argument(
        "--from", "--host", dest="source", metavar="HOST", help="measure from this host (default: the one we are in)"
    )


def add_test_options(made: argparse.ArgumentParser, *, size: int, warm_up: int) -> None:
    """What write_bw and write_lat have in common."""
    made.add_argument("peer", metavar="PEER", help="host to write to, such as h2")
    add_source(made)
    made.add_argument("-s", "--size", type=size_type, default=size, metavar="N", help=f"bytes of a write ({size})")
    made.add_argument("-a", "--all", action="store_true", help="all sizes from 2 B to 8 MiB")
    made.add_argument("-n", "--iters", type=count_type, metavar="N", help="writes to measure of each QP (1000)")
    made.add_argument("-D", "--duration", type=seconds_type, metavar="S", help="measure for that many seconds instead")
    made.add_argument(
        "--warm-up",
        type=int_type(0),
        default=warm_up,
        metavar="N",
        help=f"writes before the first one counts ({warm_up})",
    )
    made.add_argument(
        "-m", "--mtu", type=count_type, metavar="N", help="path MTU, payload bytes of a full packet (the fabric's)"
    )
    made.add_argument(
        "--transport", default="mrc", metavar="NAME", help="mrc (default) or rocev2, one path and Go-Back-N"
    )
    made.add_argument(
        "--rocev2", dest="transport", action="store_const", const="rocev2", help="the same as --transport rocev2"
    )


ALL_SIZES = tuple(2**n for n in range(1, 24))
"""2 B to 8 MiB."""
ITERATIONS = 1000
ALL_BYTES = 32 << 20
"""With -a and no -n: writes of a size are as many as fit into this, so that large ones do not take minutes."""
FEWEST = 8


def test_fields(arguments: argparse.Namespace) -> dict[str, Any]:
    """Request fields of the common options. Raises ToolError for a combination that makes no sense."""
    if arguments.iters is not None and arguments.duration is not None:
        raise ToolError("-n and -D exclude each other: give a number of writes or a duration")
    sizes = list(ALL_SIZES) if arguments.all else [arguments.size]
    fields: dict[str, Any] = {
        "peer": arguments.peer, "sizes": sizes, "warm_up": arguments.warm_up, "transport": arguments.transport,
    }  # fmt: skip
    if arguments.duration is not None:
        fields["duration_s"] = arguments.duration
    elif arguments.iters is not None or not arguments.all:
        fields["iterations"] = [arguments.iters or ITERATIONS] * len(sizes)
    else:
        fields["iterations"] = [max(FEWEST, min(ITERATIONS, ALL_BYTES // size)) for size in sizes]
    if arguments.mtu is not None:
        fields["pmtu"] = arguments.mtu
    return fields


def size_type(text: str) -> int:
    """`64K` -> 65,536: bytes with K, M or G as powers of 1024."""
    unit = SIZE_UNITS.get(text[-1:].upper(), 1)
    digits = text[:-1] if unit > 1 else text
    if not digits.isascii() or not digits.isdigit() or not 0 < int(digits) * unit <= 1 << 40:
        raise argparse.ArgumentTypeError(f"{text!r}: give bytes, such as 2, 4096, 64K or 1M")
    return int(digits) * unit


def int_type(low: int) -> Callable[[str], int]:
    """Whole numbers from `low` on."""

    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 15 or int(text) < low:
            raise argparse.ArgumentTypeError(f"{text!r}: give a whole number, {low} or more")
        return int(text)

    return parse


count_type = int_type(1)


def seconds_type(text: str) -> float:
    """A positive number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r}: give a positive number of seconds, such as 0.5 or 10")
    return value


# ---- asking -------------------------------------------------------------------------------------------------


def conduct(
    place: MeasuringHost,
    op: str,
    fields: dict[str, Any],
    on_begin: Callable[[Event], None],
    on_event: Callable[[Event], None],
) -> Event:
    """Run an op of hosts/agent/services/measurement.py to its end; its `end` event. Raises ToolError.

    Ctrl-C asks the agent to stop and goes on reading, so that what was measured is still told; a second one, and any
    other end of this process, closes the connection, which stops it as well.
    """
    client = JsonlClient(place.socket, name=place.host.name)
    try:
        begun = client.request(op, timeout_s=BEGIN_TIMEOUT_S, **fields)
        on_begin(begun)
        with interruptible(lambda: stop_work(place, begun["work"])) as interrupted:
            watch = Watch(client)
            while True:
                event = watch.get(STOP_TIMEOUT_S if interrupted() else 0.5)
                if event is None:
                    if interrupted():
                        raise ToolError(f"{place.host.name}: {op}: its agent did not stop in time", FAILED)
                elif event.get("event") == "end":
                    return event
                else:
                    on_event(event)
    except JsonlPeerError as error:
        raise ToolError(str(error)) from error
    except JsonlError as error:
        raise ToolError(f"{error} (log: {place.run_dir}/log/{place.host.name}.log)") from error
    finally:
        client.close()


def stop_work(place: MeasuringHost, work: int) -> None:
    """Ask the agent, on a connection of its own, to end a test; what comes of it is told where the test was begun."""
    with JsonlClient(place.socket, name=place.host.name, timeout_s=2.0) as client:
        try:
            client.request("stop_work", work=work)
        except JsonlError as error:
            print(f"{place.host.name}: cannot stop the test: {error}", file=sys.stderr)


@contextmanager
def interruptible(on_interrupt: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C calls `on_interrupt`, the second raises KeyboardInterrupt; gives `was there one?`.

    A handler that raises could lose half a line that was just received. In the background (SIGINT ignored) nothing
    changes.
    """
    seen = False
    before = signal.getsignal(signal.SIGINT)

    def handle(*_: Any) -> None:
        nonlocal seen
        if seen:
            raise KeyboardInterrupt
        seen = True
        on_interrupt()

    ignored = before is signal.SIG_IGN
    if not ignored:
        signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: seen
    finally:
        if not ignored:
            signal.signal(signal.SIGINT, before)


def finish(end: Event, tool: str) -> int:
    """Exit code of an `end` event; a failure is told on stderr."""
    if end["state"] == "failed":
        print(f"{tool}: failed: {end['error']}", file=sys.stderr)
        return FAILED
    return INTERRUPTED if end["state"] == "stopped" else OK


def run(tool: str, body: Callable[[], int]) -> int:
    """Run a tool's body: errors become one line on stderr and an exit code."""
    try:
        code = body()
        sys.stdout.flush()
        return code
    except ToolError as error:
        print(f"{tool}: error: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `mrc-stat | head`: nobody reads any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


# ---- numbers ------------------------------------------------------------------------------------------------


def megabits(bps: float | None, digits: int = 2) -> str:
    """`398.11`, in Mb/s; `-` when there was nothing to measure."""
    return "-" if bps is None else f"{bps / 1e6:.{digits}f}"


def planes_text(plane_bps: Sequence[float]) -> str:
    """Rates of the planes in order, Mb/s."""
    return " ".join(megabits(bps, 1) for bps in plane_bps) or "-"
