"""Programs written for RDMA, between two hosts of the running fabric, under each fault.

`python -m tools.campaigns.programs` with the options of `--help`, beside `mrc up -d`.

A pair of programs runs by `mrc exec`. The fault comes a second after the client's start and is mended when both have
ended. A pair passes when both end with 0 within the limit and no line of theirs tells of a wrong byte. The programs
are Debian's perftest, and, where they were built outside the tree and are named: OCP's mrc_example and a harness of an
NCCL plugin.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mrc_testbed.console.terminal import console
from mrc_testbed.ipc.rundir import FabricError, RunFiles
from mrc_testbed.topologies.plan import Plan

LIMIT_S = 90.0
"""Longest time of a pair: above all timeouts of the programs themselves."""
FAULT_AFTER_S = 1.0
LISTEN_S = 1.5
"""Time that a server has to listen."""
FAILURE_LINE = re.compile(r"MRC ERROR|mismatch|[1-9]\d* bad bytes|Completion with error|Failed status", re.IGNORECASE)
"""Lines of programs that tell of a wrong byte or a failed request."""


@dataclass(frozen=True)
class ProgramPair:
    """Words of a program at two hosts; the server's address is added to the client's."""

    name: str
    server: tuple[str, ...]
    client: tuple[str, ...]
    address_at: int | None = None
    """Place of the address among the client's words; None: at their end."""

    def client_words(self, address: str) -> list[str]:
        """Return the client's words with the server's address among them."""
        position = len(self.client) if self.address_at is None else self.address_at
        return [*self.client[:position], address, *self.client[position:]]


@dataclass(frozen=True)
class FabricFault:
    """A fault as words of `mrc`, and the words that mend it."""

    name: str
    begin: str = ""
    end: str = ""


FAULTS = (
    FabricFault("none"),
    FabricFault("link cut", "link p0-t0-0 p0-t1-0 down", "link p0-t0-0 p0-t1-0 up"),
    FabricFault("black hole", "blackhole p1-t1-0", "blackhole p1-t1-0 off"),
    FabricFault("1 % loss", "loss p2-t0-0 p2-t1-0 1%", "loss p2-t0-0 p2-t1-0 off"),
    FabricFault("NIC port dead", "link h0 p3-t0-0 down", "link h0 p3-t0-0 up"),
    FabricFault("T1 off", "power p1-t1-1 off", "power p1-t1-1 on"),
)


def perftest(name: str, *options: str) -> ProgramPair:
    """Return a pair of perftest, at the device `mrc0`."""
    words = (name, "-d", "mrc0", "-x", "0", "-F", *options)
    return ProgramPair(" ".join((name, *options)), words, words)


def pairs(mrc_example: Path | None, nccl_harness: Path | None) -> list[ProgramPair]:
    """Return the programs to run: perftest's, and those whose files are named."""
    # perftest: one QP, several, both directions, small messages, and memory that is polled.
    chosen_pairs = [
        perftest("ib_write_bw", "-s", "65536", "-D", "5"),
        perftest("ib_write_bw", "-s", "65536", "-D", "5", "-q", "8"),
        perftest("ib_write_bw", "-s", "65536", "-n", "5000", "-b"),
        perftest("ib_write_bw", "-s", "100", "-n", "20000"),
        perftest("ib_write_lat", "-s", "8", "-n", "5000"),
    ]
    # The next two are built outside the tree, so a user has them or not.
    if mrc_example is not None:
        words: tuple[str, ...] = (
            str(mrc_example),
            "-d",
            "mrc0",
            "-g",
            "0",
            "-n",
            "200",
            "-s",
            "262144",
            "--step-factor=4",
        )
        chosen_pairs.append(ProgramPair("mrc_example, 1 B to 256 KiB", words, words))
    if nccl_harness is not None:
        words = ("env", "NCCL_SOCKET_IFNAME=fabric0", "NCCL_IB_GID_INDEX=0", str(nccl_harness))
        count = ("--count", "1500")
        chosen_pairs.append(
            ProgramPair("NCCL plugin", (*words, "receive", *count), (*words, "send", *count), len(words) + 1)
        )
    return chosen_pairs


class Campaign:
    """Runs pairs between two hosts of the fabric in a run folder."""

    def __init__(self, folder: Path, server: str, client: str) -> None:
        plan = Plan.from_json(RunFiles(folder).read_plan())
        self._server, self._client = plan.host(server), plan.host(client)
        self._address = str(plan.ip_interfaces(self._server)[0].ip)

    def run(self, pair: ProgramPair, fault: FabricFault) -> dict[str, object]:
        """Run a pair under a fault and return its row."""
        began_at = time.monotonic()
        with _running(self._server.name, pair.server) as server:
            time.sleep(LISTEN_S)
            with _running(self._client.name, pair.client_words(self._address)) as client:
                time.sleep(FAULT_AFTER_S)
                try:
                    _run_words(fault.begin)
                    reasons = [_end(part, began_at) for part in (client, server)]
                finally:
                    _run_words(fault.end)
        outputs = [part.stdout.read() if part.stdout else "" for part in (client, server)]
        failure_lines = [line for output in outputs for line in output.splitlines() if FAILURE_LINE.search(line)]
        failure_lines = [line for line in failure_lines if not line.rstrip().endswith(" 0 bad bytes")]
        failures = [reason for reason in reasons if reason] + failure_lines[:1]
        numbers = [line for line in outputs[0].splitlines() if re.match(r" ?\d|sent:", line)]
        return {
            "program": pair.name,
            "fault": fault.name,
            "passed": not failures,
            "seconds": round(time.monotonic() - began_at, 1),
            "reason": "; ".join(failures),
            "last_line": numbers[-1].strip() if numbers else "",
        }


def _running(host: str, words: Sequence[str]) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run a program on a host, as _process does."""
    return _process([sys.executable, "-m", "mrc_testbed", "exec", host, "--", *words])


@contextmanager
def _process(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a command until the block ends."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()


def _end(process: subprocess.Popen[str], began_at: float) -> str:
    """Wait for a program; return why it did not end well, or nothing."""
    try:
        status = process.wait(max(1.0, began_at + LIMIT_S - time.monotonic()))
    except subprocess.TimeoutExpired:
        return f"still running after {LIMIT_S:.0f} s"
    return f"ended with {status}" if status else ""


def _run_words(words: str) -> None:
    if words:
        subprocess.run([sys.executable, "-m", "mrc_testbed", *words.split()], check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    """Run all pairs under all faults; return 1 when one failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.campaigns.programs", description="RDMA programs under faults"
    )
    parser.add_argument("--mrc-example", type=Path, help="OCP's mrc_example, built against libmrc")
    parser.add_argument("--nccl-harness", type=Path, help="program that drives an NCCL NET plugin: receive, send HOST")
    parser.add_argument("--only", default="", help="part of the names of programs or faults to run")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    try:
        campaign = Campaign(RunFiles().path, "h2", "h0")
    except (FabricError, OSError, ValueError) as error:
        console().print(f"no fabric to run on: {error}. Cure: mrc up -d --rate none")
        return 2
    rows = []
    for pair in pairs(arguments.mrc_example, arguments.nccl_harness):
        for fault in FAULTS:
            if arguments.only in f"{pair.name} {fault.name}":
                rows.append(row := campaign.run(pair, fault))
                verdict = "passed" if row["passed"] else f"FAILED: {row['reason']}"
                console().print(f"{pair.name}, {fault.name}: {verdict}, {row['seconds']} s  {row['last_line']}")
    if arguments.json:
        print(json.dumps(rows, indent=1))
    return 0 if all(row["passed"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
