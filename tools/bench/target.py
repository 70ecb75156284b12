"""Cost of the embedded switch apart from packets; alone: `python -m tools.bench.target`.

    compile   srv6.p4 compiled and loaded into a device, new and from the cache, each in a process of its own, after
              `mrc_testbed.switch.compiler.prepare()`: runtime and grammar tables are made once a machine
    start     a daemon with 16 switches of 2 to 4 ports (the default plan) until all have pipeline and routes
    entries   10,000 lpm entries in one Write over P4Runtime, read back
    memory    what an idle switch with ports, pipeline and routes adds to the daemon: private memory with its rings

Goals stand beside each figure. Clients are bare gRPC stubs on loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import json as jsonlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import U128, p4r, p4r_grpc

from mrc_testbed.files.package import P4_PROGRAMS
from mrc_testbed.switch.compiler import CompiledProgram, compile_program
from mrc_testbed.topologies.plan import LOCATOR, Plan, Switch
from tools.bench.rig import enter_namespace

ENTRIES = 10_000
GOALS = {
    "compile_cold_s": 2.0,
    "compile_cached_s": 0.1,
    "start_s": 3.0,
    "entries_s": 1.0,
    "device_mb": 5.0,
}
"""Most that each figure may be."""
LPM_PROGRAM = """
#include <core.p4>
#include <v1model.p4>
header ip_t { bit<32> dst; }
struct headers_t { ip_t ip; }
struct metadata_t { }
parser P(packet_in b, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { b.extract(h.ip); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action forward(bit<9> port) { s.egress_spec = port; }
    @name("route") table route {
        key = { h.ip.dst : lpm @name("dst"); }
        actions = { forward; }
        size = 16384;
    }
    apply { route.apply(); }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out b, in headers_t h) { apply { b.emit(h.ip); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""
_PREPARE = "from mrc_testbed.switch.compiler import prepare; prepare()"
_COMPILE = """
import os, sys, time
from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.switch.device import native
from mrc_testbed.switch.device.device import P4Device
native.runtime()
device = P4Device(1)
begun, used = time.monotonic(), sum(os.times()[:4])
device.load(compile_program(sys.argv[1]))
print(time.monotonic() - begun, sum(os.times()[:4]) - used)
"""


def compile_times(source: Path) -> dict[str, float]:
    """Return the seconds to compile and load a program that is not in the cache, and one that is.

    The first excludes what all programs share.
    """
    with tempfile.TemporaryDirectory(prefix="mrc-bench-") as folder:
        environment = {**os.environ, "MRC_CACHE_DIR": folder}
        took = []
        subprocess.run([sys.executable, "-c", _PREPARE], env=environment, check=True)
        for _ in range(3):
            process = subprocess.run(
                [sys.executable, "-c", _COMPILE, str(source)],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            took.append([float(word) for word in process.stdout.split()])
    (cold_s, cold_cpu_s), (cached_s, cached_cpu_s) = took[0], min(took[1:])
    return {
        "compile_cold_s": round(cold_s, 3),
        "compile_cold_cpu_s": round(cold_cpu_s, 3),
        "compile_cached_s": round(cached_s, 3),
        "compile_cached_cpu_s": round(cached_cpu_s, 3),
    }


class Client:
    """The primary of one device."""

    def __init__(self, channel: grpc.aio.Channel, device_id: int) -> None:
        self.stub = p4r_grpc.P4RuntimeStub(channel)
        self.device_id = device_id
        self.election = U128.encode(1)
        self.stream = self.stub.StreamChannel()

    async def begin(self, program: CompiledProgram) -> None:
        update = p4r.MasterArbitrationUpdate(device_id=self.device_id, election_id=self.election)
        await self.stream.write(p4r.StreamMessageRequest(arbitration=update))
        await self.stream.read()
        config = p4r.ForwardingPipelineConfig(p4info=program.p4info, p4_device_config=program.config)
        await self.stub.SetForwardingPipelineConfig(
            p4r.SetForwardingPipelineConfigRequest(
                device_id=self.device_id,
                election_id=self.election,
                config=config,
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            )
        )

    async def insert(self, entries: list[p4r.TableEntry]) -> None:
        updates = [p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(table_entry=entry)) for entry in entries]
        await self.stub.Write(p4r.WriteRequest(device_id=self.device_id, election_id=self.election, updates=updates))

    async def count(self) -> int:
        request = p4r.ReadRequest(device_id=self.device_id, entities=[p4r.Entity(table_entry=p4r.TableEntry())])
        return sum([len(answer.entities) async for answer in self.stub.Read(request)])


def _entry(info: Any, table: str, value: int, size: int, action: str, *params: bytes, prefix: int = 0) -> Any:
    """A table entry with one field."""
    table_info = next(table_entry for table_entry in info.tables if table_entry.preamble.alias == table)
    run = next(action_entry for action_entry in info.actions if action_entry.preamble.alias == action)
    out = p4r.TableEntry(table_id=table_info.preamble.id)
    match = out.match.add(field_id=1)
    data = value.to_bytes(size, "big").lstrip(b"\0") or b"\0"
    if prefix:
        match.lpm.value, match.lpm.prefix_len = data, prefix
    else:
        match.exact.value = data
    out.action.action.action_id = run.preamble.id
    for number, param in enumerate(params, 1):
        out.action.action.params.add(param_id=number, value=param)
    return out


def routes_of(plan: Plan, switch: Switch, info: Any) -> list[p4r.TableEntry]:
    """The static SRv6 table of a switch."""
    routes = plan.srv6_routes(switch)
    out = [_entry(info, "my_usid", LOCATOR << 16 | routes.own_usid, 6, "shift")]
    for usid, port in routes.next_hops:
        out.append(_entry(info, "usid_next", LOCATOR << 16 | usid, 6, "forward", bytes([port])))
    return out


def make_interfaces(plan: Plan) -> dict[str, dict[str, str]]:
    """A veth pair for each port of each switch; {switch: {port: interface}}."""
    out: dict[str, dict[str, str]] = {}
    lines = []
    for n, switch in enumerate(plan.switches):
        ports = out[switch.name] = {}
        for _, port in plan.adjacencies(switch):
            ports[str(port)] = f"bt{n}p{port}"
            lines.append(f"link add {ports[str(port)]} type veth peer name bt{n}w{port}")
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)
    return out


def private_kib(pid: int) -> tuple[int, int]:
    """(memory that is this process's alone, of it packet rings), KiB."""
    own_kib = rings = 0
    is_ring = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, _, value = line.partition(":")
        if "-" in name.split(" ")[0]:
            is_ring = "socket:[" in line
        elif name in ("Private_Dirty", "Private_Clean"):
            own_kib += int(value.split()[0])
            rings += int(value.split()[0]) if is_ring else 0
    return own_kib, rings


async def daemon_figures(plan: Plan, program: CompiledProgram, lpm: CompiledProgram) -> dict[str, Any]:
    """Start a daemon with the plan's switches, time it, fill a table, weigh it."""
    interfaces = make_interfaces(plan)
    with tempfile.TemporaryDirectory(prefix="mrc-bench-") as folder:
        config = Path(folder, "devices.json")
        devices = [
            {"name": name, "device_id": n, "ports": ports} for n, (name, ports) in enumerate(interfaces.items(), 1)
        ]
        sizes: list[tuple[float, float]] = []
        # The daemon without switches is the base that is subtracted.
        for count in (0, len(devices)):
            config.write_text(jsonlib.dumps([*devices[:count], {"name": "spare", "device_id": 99, "ports": {}}]))
            began = time.monotonic()
            child = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "mrc_testbed.switch.server",
                    "--p4runtime",
                    "127.0.0.1:0",
                    "--gnmi",
                    "127.0.0.1:0",
                    "--config",
                    str(config),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            try:
                assert child.stdout is not None
                port = dict(word.split("=") for word in child.stdout.readline().split()[1:])["p4runtime"]
                async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                    clients = [Client(channel, n) for n in range(1, count + 1)]

                    async def provision(client: Client, switch: Switch) -> None:
                        await client.begin(program)
                        await client.insert(routes_of(plan, switch, program.p4info))

                    await asyncio.gather(*map(provision, clients, plan.switches[:count]))
                    start_s, start_cpu_s = time.monotonic() - began, _cpu_s(child.pid)
                    spare = Client(channel, 99)
                    await spare.begin(program)
                    sizes.append(private_kib(child.pid))
                    if count:
                        entries = await _entries(spare, lpm, child.pid)
            finally:
                child.terminate()
                child.wait()
    all_kib, ring_kib = (
        (size_after - size_before) / len(devices) for size_before, size_after in zip(*sizes, strict=True)
    )
    ports = [len(names) for names in interfaces.values()]
    return {
        "devices": len(devices),
        "ports": sum(ports) / len(ports),
        "start_s": round(start_s, 2),
        "start_cpu_s": round(start_cpu_s, 2),
        **entries,
        "device_mb": round(all_kib / 1024, 3),
        "device_rings_mb": round(ring_kib / 1024, 3),
    }


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _entries(client: Client, program: CompiledProgram, pid: int) -> dict[str, Any]:
    await client.begin(program)
    entries = [
        _entry(program.p4info, "route", n << 12, 4, "forward", bytes([1 + n % 200]), prefix=20 + n % 5)
        for n in range(ENTRIES)
    ]
    began, cpu_before = time.monotonic(), _cpu_s(pid)
    await client.insert(entries)
    write_s, cpu_s = time.monotonic() - began, _cpu_s(pid) - cpu_before
    began = time.monotonic()
    count = await client.count()
    if count != ENTRIES:
        raise RuntimeError(f"{ENTRIES} entries were written and {count} read back")
    return {
        "entries_s": round(write_s, 3),
        "entries_cpu_s": round(cpu_s, 3),
        "entries_read_s": round(time.monotonic() - began, 3),
    }


def measure() -> dict[str, Any]:
    """All figures; called in a fresh network namespace."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    source = P4_PROGRAMS / "srv6.p4"
    out: dict[str, Any] = dict(compile_times(source))
    out.update(asyncio.run(daemon_figures(Plan(), compile_program(source), compile_program(LPM_PROGRAM))))
    out["goals"] = GOALS
    return out


def table(result: dict[str, Any]) -> list[str]:
    """The figures for people."""

    def verdict(name: str) -> str:
        return f"(goal {GOALS[name]:g}: {'met' if result[name] <= GOALS[name] else 'MISSED'})"

    return [
        "The switch apart from packets",
        f"  compile and load srv6.p4: {result['compile_cold_s']:.2f} s {verdict('compile_cold_s')}, "
        f"CPU {result['compile_cold_cpu_s']:.2f}; cached {result['compile_cached_s']:.3f} s "
        f"{verdict('compile_cached_s')}, CPU {result['compile_cached_cpu_s']:.3f}",
        f"  {result['devices']} switches from nothing to pipeline and routes: {result['start_s']:.2f} s "
        f"{verdict('start_s')}, CPU of the daemon {result['start_cpu_s']:.2f}",
        f"  {ENTRIES} lpm entries in one Write: {result['entries_s']:.2f} s {verdict('entries_s')}, "
        f"CPU of the daemon {result['entries_cpu_s']:.2f}; read back in {result['entries_read_s']:.2f} s",
        f"  memory of an idle switch with {result['ports']:g} ports: {result['device_mb']:.2f} MB, "
        f"{result['device_rings_mb']:.2f} of it receive rings {verdict('device_mb')}",
    ]


def main() -> int:
    """Command line: the figures, in a namespace of their own."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.target", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    enter_namespace()
    result = measure()
    print(jsonlib.dumps(result, indent=2) if options.json else "\n".join(table(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
