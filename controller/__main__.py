"""`python -m mrc_testbed.controller --run-dir DIR`: the fabric controller (docs/architecture.md).

Prints `ready` when every switch holds what the plan says; then runs until `shutdown`, SIGTERM or SIGINT.
Exit codes: 0 ended on request, 1 the fabric did not come into line, 2 wrong input.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import signal
import ssl
import sys
from pathlib import Path

from mrc_testbed.controller.api.handlers import ApiHandlers
from mrc_testbed.controller.api.server import ApiServer
from mrc_testbed.controller.app import FabricController, NotReady
from mrc_testbed.controller.config import read_inputs
from mrc_testbed.controller.denylist import POLICIES
from mrc_testbed.controller.errors import InputError
from mrc_testbed.controller.p4runtime.routes import PROGRAMS
from mrc_testbed.controller.reconvergence import seconds_of
from mrc_testbed.errors import EXIT_INTERRUPTED
from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.ipc.rundir import DEFAULT_PATH, RunFiles, default_run_dir

DEADLINE_S = 60.0
"""Time without progress of any switch after which the start is given up, seconds (ipc/patience.py)."""


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    options = _parser().parse_args(arguments)
    options.run_dir = options.run_dir or default_run_dir()
    logging.basicConfig(
        level=logging.DEBUG if options.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("finsy").setLevel(logging.DEBUG if options.verbose else logging.ERROR)
    try:
        return asyncio.run(_run(options))
    except InputError as error:
        return _fail(str(error), 2)
    except (NotReady, JsonlError) as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


async def _run(options: argparse.Namespace) -> int:
    inputs = read_inputs(options.run_dir, options.program)
    controller = FabricController(inputs, options.denylist, options.react_after)
    token = None if options.open else RunFiles(inputs.run_dir).read_token()
    tls = _read_tls(*options.tls) if options.tls else None
    server = ApiServer(ApiHandlers(controller).routes(), controller.snapshot, token)
    controller.on_event = server.publish
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, controller.stop)
    with controller.open_run_folder():
        try:
            await server.start(inputs.run_dir, options.http, tls)
            await controller.run(options.deadline)
        finally:
            await server.close()
    return 0


def _read_tls(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS context of a server, from PEM files. Raises InputError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:  # ssl.SSLError is one
        raise InputError(f"--tls {certificate} {key}: {error.strerror or error}") from None
    return context


def _fail(text: str, code: int) -> int:
    print(f"controller: {text}", file=sys.stderr, flush=True)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mrc controller", description="Fabric controller of mrc-testbed.")
    parser.add_argument(
        "--run-dir",
        type=Path,
        default=None,
        help=f"run folder (default: MRC_RUN_DIR, or {DEFAULT_PATH})",
    )
    parser.add_argument("--program", choices=sorted(PROGRAMS), help="P4 program (default: told by its P4Info)")
    parser.add_argument(
        "--deadline",
        type=_seconds,
        default=DEADLINE_S,
        metavar="S",
        help="give up when no switch got on for so long",
    )
    parser.add_argument(
        "--http",
        type=int,
        metavar="PORT",
        help="TCP port of the API on loopback (default: 9340 or a free one)",
    )
    parser.add_argument("--open", action="store_true", help="answer the API's requests by TCP without the run's token")
    parser.add_argument(
        "--tls", nargs=2, type=Path, metavar=("CERT", "KEY"), help="the API speaks TLS by TCP; PEM files"
    )
    parser.add_argument("--denylist", choices=POLICIES, help="which faults take EVs out on the hosts (default: off)")
    parser.add_argument(
        "--react-after",
        type=_reaction,
        default=0.0,
        metavar="S",
        # The plan's mode is not known yet here: other modes ignore the option.
        help="ecmp, flow-ecmp, switch-spray: seconds from a failure until switches avoid what it cut off; now; "
        "never (default: now)",
    )
    parser.add_argument("--verbose", action="store_true", help="log every P4Runtime and gNMI message")
    return parser


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 86_400.0 and value != math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: wants seconds, more than 0 and less than a day, or inf")
    return value


def _reaction(text: str) -> float:
    try:
        return seconds_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
