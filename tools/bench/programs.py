"""`mrc bench exec`: cost of a packet for a program over libmrc, beside the hosts' own agents.

On one fabric, in turns (ROUNDS times each, so that both meet the same machine): the agents send a file
(tools/bench/mrc.py, without SHA-256), and the example examples/rdma/write.c writes from host to host, in writes of the
same CHUNK_BYTES. Medians count.
CPU is that of the NIC processes and of the agents (user + system, /proc/PID/stat), divided by data packets of the path
MTU. The program's own is not in it: a program that polls takes what is left.

Where Debian's perftest is installed, ib_write_lat and ib_write_bw of 8 bytes run too, with a ping-pong of 8 bytes over
a TCP connection in this machine beside them; and ib_write_bw of 64 KiB with BANDWIDTH_QPS queue pairs, between hosts
of one rack and of two, ROUNDS times in turns. One queue pair alone waits for its window of 64 packets.

Schema `mrc-bench-exec/1` (`--json`); us = microseconds of CPU by data packet:

    fabric, pmtu, seconds
    agent, program      {requestor, responder}: us; goodput_bps
    program_bytes_right whether the example's responder found every byte right
    ratio               {requestor, responder}: program / agent; goal RATIO
    met                 ratios, bytes and bandwidth are as they should
    latency_us          {ib_write_lat, tcp}: half round trips, typical; ib_write_lat null without perftest
    messages_per_s      of ib_write_bw, 8 bytes; null without perftest
    bandwidth_bps       of ib_write_bw, 64 KiB: {rack, fabric}; goal BANDWIDTH_BPS for either; null without perftest
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from mrc_testbed.console.units import bits
from mrc_testbed.files.package import PACKAGE
from mrc_testbed.hosts.libmrc import compile_flags
from mrc_testbed.hosts.nicd.status import nic_pid
from mrc_testbed.hosts.traffic.file_transfer import CHUNK_BYTES
from mrc_testbed.ipc.fabrics import OWN_FABRIC
from mrc_testbed.ipc.procfs import cpu_seconds
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.open_fabric import open_fabric
from mrc_testbed.topologies.lab.options import LabOptions
from mrc_testbed.topologies.plan import Plan
from tools.bench import mrc

SCHEMA = "mrc-bench-exec/1"
RATIO = 1.3
ROUNDS = 3
PMTU = 4096
BANDWIDTH_BYTES = 65536
EXAMPLE = PACKAGE.parent / "examples" / "rdma" / "write.c"
BANDWIDTH_QPS = 4
BANDWIDTH_BPS = 3e9
LISTEN_S = 1.0
PINGS = 2000
SIDES = ("requestor", "responder")


def run(plan: Plan, size: int, seconds: float, lab: LabOptions, console: Console) -> dict[str, Any]:
    """Measure agents with a file of `size` bytes, and programs for some seconds.

    Raises the fabric's errors.
    """
    source, destination = plan.hosts[0], plan.first_remote_host("h0")
    with open_fabric(plan, lab, console) as fabric, tempfile.TemporaryDirectory() as folder:
        path = mrc.random_file(fabric, size)
        programs = _Programs(fabric, plan, source.name, destination.name)
        example = _build(Path(folder))
        programs.start_nic_processes(example)
        transfers, writes = [], []
        for _ in range(ROUNDS):
            transfers.append(mrc.measure(path, fabric, plan, PMTU, sha256=False))
            writes.append(programs.write(example, seconds / ROUNDS))
        has_perftest = shutil.which("ib_write_lat") is not None
        latency_us, messages_per_s = programs.perftest() if has_perftest else (None, None)
        bandwidth_bps = _bandwidth(fabric, plan, programs, example, seconds / ROUNDS) if has_perftest else None
    agent = {
        **{side: median(transfer["cpu_us_per_packet"][side] for transfer in transfers) for side in SIDES},
        "goodput_bps": median(transfer["goodput_bps"] for transfer in transfers),
    }
    program = {key: median(write[key] for write in writes) for key in (*SIDES, "goodput_bps")}
    # Both sides must be within the goal, and no byte may be wrong.
    is_right = all(write["is_right"] for write in writes)
    is_fast = bandwidth_bps is None or max(bandwidth_bps.values()) >= BANDWIDTH_BPS
    ratio = {side: round(program[side] / agent[side], 2) for side in SIDES}
    result = {
        "schema": SCHEMA,
        "fabric": plan.to_json(),
        "pmtu": PMTU,
        "seconds": seconds,
        "agent": agent,
        "program": program,
        "program_bytes_right": is_right,
        "ratio": ratio,
        "goal": RATIO,
        "met": is_right and is_fast and all(value <= RATIO for value in ratio.values()),
        "latency_us": {"ib_write_lat": latency_us, "tcp": round(_tcp_latency_us(), 1)},
        "messages_per_s": messages_per_s,
        "bandwidth_bps": bandwidth_bps,
    }
    _print(result, console)
    return result


def _bandwidth(fabric: Fabric, plan: Plan, programs: _Programs, example: Path, seconds: float) -> dict[str, int]:
    """Return the bandwidth from h0 to a host of its rack, and to one of another rack, medians of turns."""
    source = plan.hosts[0]
    neighbor = next(host for host in plan.hosts[1:] if host.rack == source.rack)
    pairs = {"rack": _Programs(fabric, plan, source.name, neighbor.name), "fabric": programs}
    pairs["rack"].start_nic_processes(example)
    rates: dict[str, list[float]] = {name: [] for name in pairs}
    for _ in range(ROUNDS):
        for name, pair in pairs.items():
            rates[name].append(pair.bandwidth(seconds))
    return {name: round(median(values)) for name, values in rates.items()}


def _build(folder: Path) -> Path:
    program = folder / "write"
    command = ["gcc", "-O2", f"-DSIZE={CHUNK_BYTES}", "-o", str(program), str(EXAMPLE), *compile_flags()]
    compiler = subprocess.run(command, capture_output=True, text=True)
    if compiler.returncode:
        raise FabricError(f"cannot compile {EXAMPLE.name}: {compiler.stderr.strip()}")
    return program


class _Programs:
    """Pairs of programs on two hosts of a fabric, by `mrc exec`."""

    def __init__(self, fabric: Fabric, plan: Plan, requestor: str, responder: str) -> None:
        self._fabric, self._plan = fabric, plan
        self._hosts = {"requestor": requestor, "responder": responder}

    def _start(self, side: str, words: list[str]) -> subprocess.Popen[str]:
        environment = {"MRC_RUN_DIR": str(self._fabric.run_dir.path), OWN_FABRIC: "1"}
        return subprocess.Popen(
            [sys.executable, "-m", "mrc_testbed", "exec", self._hosts[side], "--", *words],
            cwd=PACKAGE.parent,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _pair(self, responder: list[str], requestor: list[str]) -> tuple[str, str]:
        """Run a pair; return the output of the requestor and of the responder.

        Raises FabricError when one fails.
        """
        responding = self._start("responder", responder)
        time.sleep(LISTEN_S)
        requesting = self._start("requestor", requestor)
        output, _ = requesting.communicate()
        if requesting.returncode:
            responding.terminate()  # it would wait for a requestor for ever
            responding.communicate()
            raise FabricError(f"{requestor[0]} ended with {requesting.returncode}: {output.strip()[-200:]}")
        return output, responding.communicate()[0]

    def _write(self, program: Path, seconds: float) -> tuple[str, str]:
        """Run the example; return the output of the requestor and of the responder."""
        address = str(self._plan.ip_interfaces(self._plan.host(self._hosts["responder"]))[0].ip)
        return self._pair([str(program)], [str(program), address, str(seconds)])

    def start_nic_processes(self, program: Path) -> None:
        """Run the example for a moment, which starts the NIC processes."""
        self._write(program, 0.1)

    def write(self, program: Path, seconds: float) -> dict[str, float]:
        """Run the example; return its cost by side, its goodput, and `is_right`: whether every byte was right."""
        cpu_before_s = {side: self._nic_cpu_s(name) for side, name in self._hosts.items()}
        requestor_output, responder_output = self._write(program, seconds)
        cpu_s = {side: self._nic_cpu_s(name) - cpu_before_s[side] for side, name in self._hosts.items()}
        count, unit_s = re.findall(r"^(\d+) writes in ([\d.]+) s$", requestor_output, re.MULTILINE)[-1]
        sent_bytes = int(count) * CHUNK_BYTES
        cost = {side: round(cpu_s[side] / (sent_bytes / PMTU) * 1e6, 2) for side in SIDES}
        is_right = "every byte is right" in responder_output
        return {**cost, "goodput_bps": round(sent_bytes * 8 / float(unit_s)), "is_right": is_right}

    def _nic_cpu_s(self, host: str) -> float:
        pid = nic_pid(self._fabric.run_dir.nic_socket(host))
        if pid is None:
            raise FabricError(f"the NIC process of {host} has ended: {self._fabric.run_dir.path}/log has its log")
        return cpu_seconds(pid)

    def perftest(self) -> tuple[float, float]:
        """Return the latency of ib_write_lat, us, and the messages a second of ib_write_bw, of 8 bytes."""
        words = ["-d", "mrc0", "-x", "0", "-F", "-s", "8"]
        name = self._hosts["responder"]
        latency, _ = self._pair(["ib_write_lat", *words], ["ib_write_lat", *words, name])
        rate, _ = self._pair(["ib_write_bw", *words, "-n", "20000"], ["ib_write_bw", *words, "-n", "20000", name])
        return _row(latency)[4], round(_row(rate)[4] * 1e6)

    def bandwidth(self, seconds: float) -> float:
        """Return the bits a second of ib_write_bw with several queue pairs."""
        words = ["ib_write_bw", "-d", "mrc0", "-x", "0", "-F", "-s", str(BANDWIDTH_BYTES), "-q", str(BANDWIDTH_QPS)]
        words += ["-D", str(max(2, round(seconds))), "--report_gbits"]
        output, _ = self._pair(words, [*words, self._hosts["responder"]])
        return _row(output)[3] * 1e9


def _row(output: str) -> list[float]:
    """Return the numbers of perftest's last row."""
    rows = [line.split() for line in output.splitlines() if re.match(r"^ ?\d+\s+\d+\s+[\d.]+ ", line)]
    return [float(number) for number in rows[-1]]


def _tcp_latency_us() -> float:
    """Return half a round trip of 8 bytes over a TCP connection in this machine, median."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        server_end, _ = server.accept()
        for end in (client, server_end):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def answer() -> None:
            while data := server_end.recv(8):
                server_end.sendall(data)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        times = []
        for _ in range(PINGS):
            began = time.perf_counter()
            client.sendall(b"8 bytes.")
            client.recv(8)
            times.append(time.perf_counter() - began)
        client.shutdown(socket.SHUT_WR)
        thread.join()
        server_end.close()
    return median(times) / 2 * 1e6


def _print(result: dict[str, Any], console: Console) -> None:
    table = Table("", "agents, a file", "program, libmrc", "ratio", title=f"CPU of a {PMTU}-byte packet, us")
    for side in SIDES:
        table.add_row(
            side,
            f"{result['agent'][side]:.1f}",
            f"{result['program'][side]:.1f}",
            f"{result['ratio'][side]:.2f} (goal {RATIO})",
        )
    table.add_row("goodput", bits(result["agent"]["goodput_bps"]), bits(result["program"]["goodput_bps"]), "")
    console.print(table)
    latency = result["latency_us"]
    if latency["ib_write_lat"] is not None:
        console.print(
            f"ib_write_lat, 8 bytes: {latency['ib_write_lat']:.0f} us; TCP in this machine: {latency['tcp']:.0f} us; "
            f"ib_write_bw, 8 bytes: {result['messages_per_s']:,} messages/s"
        )
    if result["bandwidth_bps"] is not None:
        goal = bits(BANDWIDTH_BPS)
        console.print(
            f"ib_write_bw, 64 KiB, {BANDWIDTH_QPS} queue pairs: {bits(result['bandwidth_bps']['rack'])} in a rack, "
            f"{bits(result['bandwidth_bps']['fabric'])} across the fabric (goal {goal} between two hosts)"
        )
