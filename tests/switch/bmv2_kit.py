"""STF scripts on BMv2: entries over P4Runtime, packets by its files, to be compared with what our switch makes of them.

simple_switch_grpc runs with --use-files: some seconds after its start it reads the packets of port N, in the order of
their times, from `portN_in.pcap`, and writes what leaves to `portN_out.pcap`. So all that changes state comes first, as
in p4c's own runner, then the packets, then the checks; our switch runs the script in that order, too (`reordered`).
"""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import U128, p4i, p4r, p4r_grpc

from switch.daemon import translate
from switch.daemon.replication import replication_out
from switch.device import CPU_PORT, Device
from switch.entities import (
    CloneSession,
    CounterData,
    Group,
    Member,
    MeterConfig,
    MulticastGroup,
    TableEntry,
)
from switch.p4 import CompiledProgram
from switch.stf import Command
from switch.stf_run import StfReport, StfRun

TOOLS = ("simple_switch_grpc", "p4c-bm2-ss")
WAIT_S = 6
"""Between the start of simple_switch_grpc and the first packet: time for pipeline and entries."""
QUIET_S = 1.5
"""Nothing leaves for so long: it is done."""
SOON_S = 20.0
PORTS = 32
"""Ports 0 to 31 are there in any case; more when the script names them."""

CHECKS = ("check_counter", "expect", "no_packet", "check_register", "expect_digest")
STATE = (
    "add", "setdefault", "mirroring_add", "mc_mgrp_create", "mc_node_create", "mc_node_associate", "member", "group",
    "meter", "meter_entry",
)  # fmt: skip
"""What P4Runtime has on BMv2: no registers, no value sets, no queues and cables."""
NOTHING = ("wait", "advance")
_NOT_READ = ("check_register", "expect_digest", "no_packet")
"""Checks that BMv2 cannot answer, or that mean something else when the packets come last."""

_FILE = struct.Struct("<IHHiIII")  # pcap: magic, version, version, zone, accuracy, snap length, link type
_PACKET = struct.Struct("<IIII")  # seconds, microseconds, bytes here, bytes on the wire
_MAGIC, _ETHERNET = 0xA1B2C3D4, 1


def missing_tools() -> list[str]:
    return [tool for tool in TOOLS if shutil.which(tool) is None]


# ---- scripts


def reordered(script: list[Command]) -> list[Command]:
    """State, packets, checks. Raises ValueError naming the first line that BMv2 has nothing for."""
    for one in script:
        if one.word not in (*CHECKS, *STATE, *NOTHING, "packet"):
            raise ValueError(f"{one.where}: {one.word} is not on BMv2")
    order = {**dict.fromkeys(STATE, 0), "packet": 1, **dict.fromkeys(CHECKS, 2)}
    kept = [one for one in script if one.word not in (*NOTHING, *_NOT_READ)]
    return sorted(kept, key=lambda one: order[one.word])


def ports_of(script: list[Command]) -> list[int]:
    """Ports to give simple_switch: those the script names, and the first ones."""
    named = {one.fields["port"] for one in script if one.word in ("packet", "expect", "mirroring_add")}
    named |= {port for one in script if one.word == "mc_node_create" for port in one.fields["ports"]}
    return sorted({*range(PORTS), *named} - {CPU_PORT})  # type: ignore[arg-type,type-var]


@dataclass
class Outcome:
    """What a switch made of a script: frames by port, and what its checks said."""

    frames: dict[int, list[bytes]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def on_ours(program: CompiledProgram, script: list[Command]) -> Outcome:
    """The reordered script on the embedded switch, in memory. Packets to the CPU port are left out."""
    device = Device(1, program.name)
    try:
        device.load(program)
        run = StfRun(device, program)
        for command in script:
            if command.word != "expect":
                run.command(command)
        run.wait()
        return _outcome(run.out, run.report)
    finally:
        device.close()


def _outcome(frames: dict[int, list[bytes]], report: StfReport) -> Outcome:
    return Outcome({at: many for at, many in sorted(frames.items()) if many and at != CPU_PORT}, report.failures)


# ---- command lines and files


def compile_command(source: Path, folder: Path) -> list[str]:
    return [
        TOOLS[1], "--std", "p4-16", "--p4runtime-files", str(folder / "p4info.txtpb"), "-o", str(folder / "bmv2.json"),
        str(source),
    ]  # fmt: skip


def switch_command(ports: list[int], folder: Path, address: str, thrift_port: int, wait_s: int = WAIT_S) -> list[str]:
    """simple_switch_grpc on packet files. What is BMv2's own stands before `--`, the target's options after it."""
    interfaces = [word for port in ports for word in ("-i", f"{port}@{folder / f'port{port}'}")]
    return [
        TOOLS[0], "--no-p4", "--device-id", "1", "--use-files", str(wait_s), *interfaces,
        "--thrift-port", str(thrift_port), "--", "--grpc-server-addr", address, "--cpu-port", str(CPU_PORT),
        "--priority-queues", "8",
    ]  # fmt: skip


def write_inputs(script: list[Command], ports: list[int], folder: Path) -> None:
    """portN_in.pcap for each port; packets a millisecond apart, in the order of the script."""
    packets: dict[int, list[tuple[int, bytes]]] = {port: [] for port in ports}
    for at, one in enumerate(one for one in script if one.word == "packet"):
        packets[one.fields["port"]].append((at * 1000, one.fields["data"]))  # type: ignore[index,arg-type]
    for port, many in packets.items():
        (folder / f"port{port}_in.pcap").write_bytes(pcap(many))


def read_outputs(ports: list[int], folder: Path) -> dict[int, list[bytes]]:
    found = {port: folder / f"port{port}_out.pcap" for port in ports}
    return {port: frames(path.read_bytes()) for port, path in found.items() if path.exists()}


def pcap(packets: list[tuple[int, bytes]]) -> bytes:
    """A capture file of (time in microseconds, frame)."""
    out = [_FILE.pack(_MAGIC, 2, 4, 0, 0, 65535, _ETHERNET)]
    for at_us, data in packets:
        out.append(_PACKET.pack(at_us // 1_000_000, at_us % 1_000_000, len(data), len(data)) + data)
    return b"".join(out)


def frames(text: bytes) -> list[bytes]:
    """The frames of a capture file, of either byte order; a record that is not whole ends it."""
    if len(text) < _FILE.size:
        return []
    order = "<" if struct.unpack_from("<I", text)[0] in (_MAGIC, 0xA1B23C4D) else ">"
    out, at, head = [], _FILE.size, struct.Struct(order + "IIII")
    while at + head.size <= len(text):
        length = head.unpack_from(text, at)[2]
        at += head.size
        if at + length > len(text):
            break
        out.append(text[at : at + length])
        at += length
    return out


# ---- P4Runtime


class RemoteDevice:
    """What StfRun asks of a Device, by P4Runtime. Packets are only noted: they are in files."""

    next_ns = None

    def __init__(self, address: str, p4info: p4i.P4Info, config: bytes, device_id: int = 1) -> None:
        self.p4info, self.device_id = p4info, device_id
        self._groups: dict[int, MulticastGroup] = {}
        self._profile_groups: set[tuple[int, int]] = set()
        self._channel = grpc.insecure_channel(address)
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)
        self._election = U128.encode(1)
        self._asked = [p4r.StreamMessageRequest(arbitration=p4r.MasterArbitrationUpdate(
            device_id=device_id, election_id=self._election))]  # fmt: skip
        self._stream = self._stub.StreamChannel(self._requests(), timeout=600)
        answer = next(self._stream)
        assert answer.arbitration.status.code == 0, f"not the primary: {answer}"
        self._stub.SetForwardingPipelineConfig(
            p4r.SetForwardingPipelineConfigRequest(
                device_id=device_id, election_id=self._election,
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=p4r.ForwardingPipelineConfig(p4info=p4info, p4_device_config=config),
            ), timeout=SOON_S,
        )  # fmt: skip

    def _requests(self) -> Iterator[p4r.StreamMessageRequest]:
        """The stream stays open as long as the device is used."""
        yield from self._asked
        while not self._closed:
            time.sleep(0.05)

    _closed = False

    def close(self) -> None:
        self._closed = True
        self._channel.close()

    # packets

    def inject(self, port: int, frame: bytes, now_ns: int) -> None:
        pass

    def advance(self, now_ns: int) -> list[tuple[int, int, bytes]]:
        return []

    # entities

    def _write(self, kind: Any, **entity: Any) -> None:
        update = p4r.Update(type=kind, entity=p4r.Entity(**entity))
        request = p4r.WriteRequest(device_id=self.device_id, election_id=self._election, updates=[update])
        self._stub.Write(request, timeout=SOON_S)

    def insert(self, entry: TableEntry) -> None:
        self._write(p4r.Update.INSERT, table_entry=translate.table_entry_out(entry))

    def modify(self, entry: TableEntry) -> None:
        self._write(p4r.Update.MODIFY, table_entry=translate.table_entry_out(entry))

    def insert_member(self, member: Member) -> None:
        self._write(p4r.Update.INSERT, action_profile_member=translate.member_out(member))

    def read_groups(self, profile_id: int, group_id: int) -> Iterator[int]:
        return iter([group_id] if (profile_id, group_id) in self._profile_groups else [])

    def insert_group(self, group: Group) -> None:
        self._profile_groups.add((group.profile_id, group.group_id))
        self._write(p4r.Update.INSERT, action_profile_group=translate.group_out(group))

    def modify_group(self, group: Group) -> None:
        self._write(p4r.Update.MODIFY, action_profile_group=translate.group_out(group))

    def insert_replication(self, entry: MulticastGroup | CloneSession) -> None:
        if isinstance(entry, MulticastGroup):
            self._groups[entry.group_id] = entry
        self._write(p4r.Update.INSERT, packet_replication_engine_entry=replication_out(entry))

    def modify_replication(self, entry: MulticastGroup) -> None:
        self._groups[entry.group_id] = entry
        self._write(p4r.Update.MODIFY, packet_replication_engine_entry=replication_out(entry))

    def read_multicast(self) -> list[MulticastGroup]:
        return list(self._groups.values())

    def write_meter(self, meter_id: int, index: int, config: MeterConfig) -> None:
        self._write(p4r.Update.MODIFY, meter_entry=p4r.MeterEntry(
            meter_id=meter_id, index=p4r.Index(index=index), config=translate.meter_out(config)))  # fmt: skip

    def write_direct_meter(self, entry: TableEntry, config: MeterConfig) -> None:
        self._write(p4r.Update.MODIFY, direct_meter_entry=p4r.DirectMeterEntry(
            table_entry=translate.table_entry_out(entry), config=translate.meter_out(config)))  # fmt: skip

    def _read(self, **entity: Any) -> p4r.Entity:
        request = p4r.ReadRequest(device_id=self.device_id, entities=[p4r.Entity(**entity)])
        found = [one for answer in self._stub.Read(request, timeout=SOON_S) for one in answer.entities]
        assert len(found) == 1, f"{len(found)} entities where one was asked for"
        return found[0]

    def read_counter(self, counter_id: int, index: int) -> list[tuple[int, CounterData]]:
        wanted = p4r.CounterEntry(counter_id=counter_id, index=p4r.Index(index=index))
        return [(index, translate.counter_in(self._read(counter_entry=wanted).counter_entry.data))]

    def read_one(self, entry: TableEntry) -> TableEntry:
        wanted = p4r.DirectCounterEntry(table_entry=translate.table_entry_out(entry))
        data = self._read(direct_counter_entry=wanted).direct_counter_entry.data
        return TableEntry(entry.table_id, entry.match, entry.action, entry.priority, counter=translate.counter_in(data))


@dataclass
class P4cProgram:
    """What StfRun needs of a program: p4c's own P4Info."""

    name: str
    p4info: p4i.P4Info


# ---- a run


def on_bmv2(source: Path, script: list[Command], folder: Path) -> Outcome:
    """The reordered script on simple_switch_grpc. Raises ValueError with p4c's words when it refuses the program."""
    from google.protobuf import text_format

    done = subprocess.run(compile_command(source, folder), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"p4c refuses {source.name}: {done.stderr.strip().splitlines()[0]}")
    p4info = text_format.Parse((folder / "p4info.txtpb").read_text(), p4i.P4Info())
    ports = ports_of(script)
    write_inputs(script, ports, folder)
    grpc_port, thrift_port = free_ports(2)
    address = f"127.0.0.1:{grpc_port}"
    log = (folder / "switch.log").open("w")
    begun = time.monotonic()
    child = subprocess.Popen(switch_command(ports, folder, address, thrift_port), stdout=log, stderr=log, cwd=folder)
    device = None
    try:
        wait_for(lambda: listens(grpc_port) or child.poll() is not None, "simple_switch_grpc to listen")
        assert child.poll() is None, f"simple_switch_grpc ended:\n{(folder / 'switch.log').read_text()[-2000:]}"
        device = RemoteDevice(address, p4info, (folder / "bmv2.json").read_bytes())
        run = StfRun(device, P4cProgram(source.stem, p4info))  # type: ignore[arg-type]
        for command in script:
            if command.word in STATE:
                run.command(command)
        took = time.monotonic() - begun
        assert took < WAIT_S - 0.5, f"provisioning took {took:.1f} s, too long for packets after {WAIT_S} s"
        wait_until_quiet(folder, begun + WAIT_S)
        for command in script:
            if command.word in CHECKS and command.word != "expect":
                run.command(command)
        return _outcome(read_outputs(ports, folder), run.report)
    finally:
        if device is not None:
            device.close()
        child.terminate()
        child.wait(SOON_S)
        log.close()


def wait_until_quiet(folder: Path, from_s: float) -> None:
    """Until no output file has grown for QUIET_S, after time.monotonic() `from_s`."""
    time.sleep(max(0.0, from_s - time.monotonic()))
    sizes, since = None, time.monotonic()
    while time.monotonic() - since < QUIET_S:
        now = {path.name: path.stat().st_size for path in folder.glob("port*_out.pcap")}
        if now != sizes:
            sizes, since = now, time.monotonic()
        time.sleep(0.1)


def wait_for(true: Any, what: str) -> None:
    deadline = time.monotonic() + SOON_S
    while not true():
        assert time.monotonic() < deadline, f"waited {SOON_S} s in vain for {what}"
        time.sleep(0.05)


def listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def free_ports(count: int) -> list[int]:
    """TCP ports of loopback that nobody listens on at this moment."""
    socks = [socket.socket() for _ in range(count)]
    for sock in socks:
        sock.bind(("127.0.0.1", 0))
    out = [sock.getsockname()[1] for sock in socks]
    for sock in socks:
        sock.close()
    return out
