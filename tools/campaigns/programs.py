"""Programs written for RDMA, between two hosts of the running fabric, under each fault.

`python -m tools.campaigns.programs` with the options of `--help`, beside `mrc up -d`.

A pair of programs runs by `mrc exec`. The fault comes once the client's packets are on their way, and is mended when
both have ended. A pair passes when both end with 0 within the limit, no line of theirs tells of a wrong byte, and the
client has sent packets under the fault. The programs are Debian's perftest, and, where they were built outside the
tree and are named: OCP's mrc_example, a harness of an NCCL plugin, and perftest under a shim of libibverbs.

Programs of operations that MRC has not run without a fault, and pass when both ends are refused by name.
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
from dataclasses import dataclass, replace
from pathlib import Path

from mrc_testbed.console.terminal import console
from mrc_testbed.hosts.libmrc import library
from mrc_testbed.hosts.nicd.status import programs_of
from mrc_testbed.ipc.rundir import FabricError, RunFiles
from mrc_testbed.topologies.plan import Plan

LIMIT_S = 90.0
"""Longest time of a pair: above all timeouts of the programs themselves."""
LOOK_S = 0.05
"""Time between two looks at the client's packets."""
REFUSAL_LIMIT_S = 20.0
"""Longest time of a pair that is refused: perftest's ends meet by TCP before they post."""
LISTEN_S = 1.5
"""Time that a server has to listen."""
FAILURE_LINE = re.compile(r"MRC ERROR|mismatch|[1-9]\d* bad bytes|Completion with error|Failed status", re.IGNORECASE)
"""Lines of programs that tell of a wrong byte or a failed request."""
NET_VERSIONS = range(6, 12)
"""Interfaces of NCCL's NET plugins that the harness drives."""


@dataclass(frozen=True)
class ProgramPair:
    """Words of a program at two hosts; the server's address is added to the client's."""

    name: str
    server: tuple[str, ...]
    client: tuple[str, ...]
    address_at: int | None = None
    """Place of the address among the client's words; None: at their end."""
    refusal: str = ""
    """Operation that MRC has not, as the library names it; empty: the programs are to succeed."""

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


def refused_pairs() -> list[ProgramPair]:
    """Return programs of Debian whose operations MRC has not."""
    pingpong = ("ibv_rc_pingpong", "-d", "mrc0", "-g", "0")
    return [
        replace(perftest("ib_send_bw"), refusal="IBV_WR_SEND"),
        replace(perftest("ib_read_bw"), refusal="IBV_WR_RDMA_READ"),
        replace(perftest("ib_atomic_bw"), refusal="IBV_WR_ATOMIC_FETCH_AND_ADD"),
        ProgramPair("ibv_rc_pingpong", pingpong, pingpong, refusal="IBV_WR_SEND"),
    ]


def under_shim(shim: Path, pair: ProgramPair) -> ProgramPair:
    """Return a pair that reaches libmrc through a shim of libibverbs, Microsoft's mrc-verbs-shim-lib."""
    names = ("VMRC_LIBIBVERBS_SO", "VMRC_LIBMRC_SO")
    words = ("env", f"LD_PRELOAD={shim}:{library()}", *(f"{name}={library()}" for name in names))
    return ProgramPair(f"verbs shim: {pair.name}", (*words, *pair.server), (*words, *pair.client))


def nccl_pair(harness: Path, version: int) -> ProgramPair:
    """Return both ends of a harness of an NCCL plugin, of a version of NCCL's interface."""
    words = ("env", "NCCL_SOCKET_IFNAME=fabric0", "NCCL_IB_GID_INDEX=0", str(harness))
    options = ("--net", f"v{version}", "--count", "1500")
    name = f"NCCL plugin, NET v{version}"
    return ProgramPair(name, (*words, "receive", *options), (*words, "send", *options), len(words) + 1)


def pairs(mrc_example: Path | None, nccl_harness: Path | None, shim: Path | None = None) -> list[ProgramPair]:
    """Return the programs to run: Debian's, and those whose files are named."""
    # perftest: one QP, several, both directions, small messages, and memory that is polled.
    chosen_pairs = [
        perftest("ib_write_bw", "-s", "65536", "-D", "5"),
        perftest("ib_write_bw", "-s", "65536", "-D", "5", "-q", "8"),
        perftest("ib_write_bw", "-s", "65536", "-n", "5000", "-b"),
        perftest("ib_write_bw", "-s", "100", "-n", "100000"),
        perftest("ib_write_lat", "-s", "8", "-n", "5000"),
    ]
    if shim is not None:
        bandwidth, latency = chosen_pairs[0], chosen_pairs[-1]
        chosen_pairs += [under_shim(shim, bandwidth), under_shim(shim, latency)]
    if mrc_example is not None:
        options = ("-d", "mrc0", "-g", "0", "-n", "600", "-s", "262144", "--step-factor=4")
        words = (str(mrc_example), *options)
        chosen_pairs.append(ProgramPair("mrc_example, 1 B to 256 KiB", words, words))
    if nccl_harness is not None:
        chosen_pairs += [nccl_pair(nccl_harness, version) for version in NET_VERSIONS]
    return [*chosen_pairs, *refused_pairs()]


@dataclass
class ClientPackets:
    """Packets of a client, as last seen while it ran."""

    sent: int = 0
    sent_at_fault: int | None = None
    sent_again: int = 0

    def read_status(self, socket_path: Path) -> None:
        """Read the packets of the program at a NIC process; keep what was read before once it is gone."""
        with suppress(TimeoutError):
            for program in programs_of(socket_path) or []:
                self.sent, self.sent_again = program.packets_sent, program.retransmitted

    def has_met_fault(self) -> bool:
        """Tell whether packets were sent after the fault had come."""
        return self.sent_at_fault is not None and self.sent > self.sent_at_fault


class Campaign:
    """Runs pairs between two hosts of the fabric in a run folder."""

    def __init__(self, folder: Path, server: str, client: str) -> None:
        run_dir = RunFiles(folder)
        plan = Plan.from_json(run_dir.read_plan())
        self._server, self._client = plan.host(server), plan.host(client)
        self._client_socket = run_dir.nic_socket(client)
        self._address = str(plan.ip_interfaces(self._server)[0].ip)

    def run(self, pair: ProgramPair, fault: FabricFault) -> dict[str, object]:
        """Run a pair under a fault and return its row."""
        began_at = time.monotonic()
        deadline = began_at + (REFUSAL_LIMIT_S if pair.refusal else LIMIT_S)
        with _running(self._server.name, pair.server) as server:
            time.sleep(LISTEN_S)
            with _running(self._client.name, pair.client_words(self._address)) as client:
                try:
                    packets = self._watch(client, fault, deadline)
                    statuses = [_status(part, deadline) for part in (client, server)]
                finally:
                    _run_words(fault.end)
        outputs = [part.stdout.read() if part.stdout else "" for part in (client, server)]
        failures = refusal_failures(pair, statuses, outputs) if pair.refusal else _failures(statuses, outputs)
        if fault.begin and not packets.has_met_fault():
            failures.append("no packet was sent under the fault")
        numbers = [line for line in outputs[0].splitlines() if re.match(r" ?\d|sent:", line)]
        return {
            "program": pair.name,
            "fault": fault.name,
            "passed": not failures,
            "seconds": round(time.monotonic() - began_at, 1),
            "reason": "; ".join(failures),
            "sent_again": packets.sent_again,
            "last_line": " ".join(numbers[-1].split()) if numbers else "",
        }

    def _watch(self, client: subprocess.Popen[str], fault: FabricFault, deadline: float) -> ClientPackets:
        """Let a fault come when the client sends; return its packets at its end, or at the deadline."""
        packets = ClientPackets()
        while client.poll() is None and time.monotonic() < deadline:
            packets.read_status(self._client_socket)
            if fault.begin and packets.sent and packets.sent_at_fault is None:
                _run_words(fault.begin)
                packets.read_status(self._client_socket)
                packets.sent_at_fault = packets.sent
            time.sleep(LOOK_S)
        return packets


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


def _status(process: subprocess.Popen[str], deadline: float) -> int | None:
    """Wait for a program; return its status, or None when it still runs at the deadline."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(max(1.0, deadline - time.monotonic()))
    return None


def _failures(statuses: Sequence[int | None], outputs: Sequence[str]) -> list[str]:
    """Return why a pair did not end well: its statuses, and its first line of a wrong byte."""
    reasons = ["still running" if status is None else f"ended with {status}" for status in statuses if status != 0]
    lines = [line for output in outputs for line in output.splitlines() if FAILURE_LINE.search(line)]
    return reasons + lines[:1]


def refusal_failures(pair: ProgramPair, statuses: Sequence[int | None], outputs: Sequence[str]) -> list[str]:
    """Return why a pair was not refused as it should be: at both ends, and by name at one of them."""
    reasons = ["still running" if status is None else "ended with 0" for status in statuses if not status]
    is_named = any(line.startswith("libmrc: ") and pair.refusal in line for line in "\n".join(outputs).splitlines())
    return reasons + ([] if is_named else [f"no end names {pair.refusal}"])


def _run_words(words: str) -> None:
    if words:
        subprocess.run([sys.executable, "-m", "mrc_testbed", *words.split()], check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    """Run all pairs under all faults; return 1 when one failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.campaigns.programs", description="RDMA programs under faults"
    )
    parser.add_argument("--mrc-example", type=Path, help="OCP's mrc_example, built against libmrc")
    parser.add_argument(
        "--nccl-harness", type=Path, help="program that drives an NCCL NET plugin: receive, send HOST, --net vN"
    )
    parser.add_argument("--shim", type=Path, help="Microsoft's libibverbs shim, under which perftest runs too")
    parser.add_argument("--only", default="", help="part of the names of programs or faults to run")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    try:
        campaign = Campaign(RunFiles().path, "h2", "h0")
    except (FabricError, OSError, ValueError) as error:
        console().print(f"no fabric to run on: {error}. Cure: mrc up -d --rate none")
        return 2
    rows = []
    # A program that is refused sends nothing, so a fault would not meet it.
    for pair in pairs(arguments.mrc_example, arguments.nccl_harness, arguments.shim):
        for fault in FAULTS[:1] if pair.refusal else FAULTS:
            if arguments.only in f"{pair.name} {fault.name}":
                rows.append(row := campaign.run(pair, fault))
                verdict = "passed" if row["passed"] else f"FAILED: {row['reason']}"
                times = f"{row['seconds']} s, {row['sent_again']} packets sent again"
                console().print(f"{pair.name}, {fault.name}: {verdict}, {times}  {row['last_line']}")
    if not rows:
        console().print(
            f"no program and fault is named '{arguments.only}'. Cure: a part of `ib_write_bw -s 100 link cut`"
        )
        return 2
    if arguments.json:
        print(json.dumps(rows, indent=1))
    return 0 if all(row["passed"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
