"""BMv2 as something to measure against: p4c-bm2-ss, and simple_switch_grpc with packets in memory.

    with Bmv2(folder) as switch:
        device = switch.load(P4cProgram.compile(source, folder))
        device.insert(entry)                          # over P4Runtime, as on a switch.device.device.P4Device
        device.inject(1, frame, 0)
        device.advance(0)                             # (0, port, frame) of all that came out

Packets go in and come out over BMv2's own gRPC service for that, p4.bm.DataplaneInterface. A stream of packets that
its client has ended is answered until nothing of them is left in the switch, and then ends: so one stream a packet
says exactly what the packet became, copies and rounds included, without waiting.

There is no CPU port: 510 is a port like any other, as it is for a mrc_testbed.switch.device.device.P4Device in memory.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import U128, p4d, p4i, p4r, p4r_grpc, p4t, rpc_status
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from mrc_testbed.switch.device.entities import (
    CloneSession,
    CounterData,
    Group,
    MeterConfig,
    MulticastGroup,
    ProfileMember,
    Replica,
    TableEntry,
)
from mrc_testbed.switch.server.p4runtime import translate
from mrc_testbed.switch.server.p4runtime.replication import replication_out

COMPILER, SWITCH = TOOLS = "p4c-bm2-ss", "simple_switch_grpc"
START_S = 20.0
RPC_S = 20.0
PACKET_S = 5.0
"""A packet that is still in the switch after that goes round for ever."""
DIGEST_S = 0.3
"""Seconds to wait for a digest, which comes on another stream than packets."""
COMPILE_S = 120.0
ERROR_LINE = re.compile(r"\b(?:error|Bug):|syntax error")
FOLLOWING_ERROR = re.compile(r"error: (?:Are you using an up-to-date|\d+ errors encountered)|Actual error")
"""Hints and counts that p4c prints behind an error."""
QUEUES = 8
PORT_DOWN, PORT_UP = 1, 2
SERVICE = "/p4.bm.DataplaneInterface/"
NOT_READY = "not ready"
"""Answer to a stream of packets until the ports have started."""


class Bmv2Error(Exception):
    """BMv2 or its compiler refused or failed; the message says which and why."""


class RefusedError(Bmv2Error):
    """p4c refuses a program; `messages` are all its errors."""

    def __init__(self, message: str, messages: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.messages = tuple(messages)


class GoneError(Bmv2Error):
    """simple_switch_grpc ended, or answers no more."""


def missing_tools() -> list[str]:
    """Tools of BMv2 and p4c that are not on PATH."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


# ---- the compiler


def compile_command(source: Path, folder: Path, include: Sequence[Path] = (), defines: Sequence[str] = ()) -> list[str]:
    """Command that has p4c write P4Info and the program's JSON to `folder`."""
    return [
        COMPILER,
        "--std",
        "p4-16",
        "--p4runtime-files",
        str(folder / "p4info.txtpb"),
        "-o",
        str(folder / "bmv2.json"),
        *(word for path in include for word in ("-I", str(path))),
        *(f"-D{define}" for define in defines),
        str(source),
    ]


@dataclass
class P4cProgram:
    """A program compiled by p4c: the attributes that StfRun uses, and the configuration for the switch."""

    name: str
    p4info: p4i.P4Info
    config: bytes

    @classmethod
    def compile(
        cls, source: Path, folder: Path, include: Sequence[Path] = (), defines: Sequence[str] = ()
    ) -> P4cProgram:
        """Raises RefusedError with p4c's message."""
        try:
            process = subprocess.run(
                compile_command(source, folder, include, defines),
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=COMPILE_S,
            )
        except subprocess.TimeoutExpired:
            raise RefusedError(f"p4c takes more than {COMPILE_S:.0f} s for {source.name}") from None
        if process.returncode:
            messages = error_lines(process.stderr, process.returncode)
            raise RefusedError(f"p4c refuses {source.name}: {messages[0]}", messages)
        p4info = text_format.Parse((folder / "p4info.txtpb").read_text(), p4i.P4Info())
        return cls(source.stem, p4info, (folder / "bmv2.json").read_bytes())


def error_lines(text: str, code: int) -> list[str]:
    """The lines of p4c's output that are errors; without any the first line, or the exit code."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if ERROR_LINE.search(line) and not FOLLOWING_ERROR.search(line)]
    return errors or lines[:1] or [f"exit code {code}"]


# ---- the messages of p4.bm.DataplaneInterface


@cache
def dataplane_messages() -> tuple[Any, Any]:
    """(packet, port status): message classes. A packet looks alike both ways; the other response is empty."""
    file = descriptor_pb2.FileDescriptorProto(name="mrc/bmv2_dataplane.proto", package="p4.bm", syntax="proto3")
    kinds = {"uint64": 4, "bytes": 12, "uint32": 13}  # FieldDescriptorProto.Type
    shapes = {
        "Packet": {"id": "uint64", "device_id": "uint64", "port": "uint32", "packet": "bytes"},
        "PortStatus": {"device_id": "uint64", "port": "uint32", "oper_status": "uint32"},
    }
    for name, fields in shapes.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            message.field.add(name=field, number=number, type=kinds[kind], label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    message_classes = (message_factory.GetMessageClass(pool.FindMessageTypeByName(f"p4.bm.{name}")) for name in shapes)
    packet, status = message_classes
    return packet, status


# ---- the switch


class Bmv2:
    """A simple_switch_grpc process. Pipelines may be loaded one after the other.

    With `interfaces` (by port) packets come and go there; without, by RemoteDevice.inject and advance.
    """

    def __init__(self, folder: Path, device_id: int = 1, interfaces: dict[int, str] | None = None) -> None:
        self.folder, self.device_id, self.interfaces = folder, device_id, interfaces or {}
        self._child: subprocess.Popen[bytes] | None = None
        self._device: RemoteDevice | None = None
        self._channels: list[grpc.Channel] = []

    def __enter__(self) -> Bmv2:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def command(self, control: str, packets: str, thrift_port: int) -> list[str]:
        """BMv2's own options stand before `--`, the target's after it."""
        ports = [word for port, name in self.interfaces.items() for word in ("-i", f"{port}@{name}")]
        in_memory = [] if ports else ["--dp-grpc-server-addr", packets]
        return [
            SWITCH,
            "--no-p4",
            "--log-level",
            "off",
            "--device-id",
            str(self.device_id),
            "--thrift-port",
            str(thrift_port),
            *ports,
            "--",
            "--grpc-server-addr",
            control,
            *in_memory,
            "--priority-queues",
            str(QUEUES),
        ]

    def start(self) -> None:
        """Raises GoneError when it does not come up."""
        control, packets, thrift = free_ports(3)
        log = self.log.open("w")
        with log:
            self._child = subprocess.Popen(
                self.command(f"127.0.0.1:{control}", f"127.0.0.1:{packets}", thrift),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        deadline = time.monotonic() + START_S
        while not (listens(control) and (self.interfaces or listens(packets))):
            if not self.is_alive or time.monotonic() > deadline:
                raise GoneError(f"{SWITCH} did not start: {self.last_words()}")
            time.sleep(0.02)
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._channels = [grpc.insecure_channel(f"127.0.0.1:{port}", options) for port in (control, packets)]

    @property
    def log(self) -> Path:
        return self.folder / "simple_switch_grpc.log"

    @property
    def is_alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def load(self, program: P4cProgram) -> RemoteDevice:
        """The device with this program and empty tables. Raises Bmv2Error when BMv2 does not take it."""
        if self._device is None:
            channels = self._channels[:1] if self.interfaces else self._channels
            self._device = RemoteDevice(*channels, device_id=self.device_id)
        with self._errors(f"{program.name} is not taken by BMv2"):
            self._device.load(program)
        return self._device

    @contextlib.contextmanager
    def _errors(self, operation: str) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            if not self.is_alive:
                raise GoneError(f"{operation}: {SWITCH} ended: {self.last_words()}") from None
            raise Bmv2Error(f"{operation}: {describe(error)}") from None

    def stop(self) -> None:
        if self._device is not None:
            self._device.close()
            self._device = None
        for channel in self._channels:
            channel.close()
        self._channels = []
        if self._child is not None:
            self._child.terminate()
            try:
                self._child.wait(2)
            except subprocess.TimeoutExpired:  # it waits for a packet that goes round for ever
                self._child.kill()
                self._child.wait()
            self._child = None


def known_to_pi(p4info: p4i.P4Info) -> p4i.P4Info:
    """Return a P4Info without the digests that would make PI refuse all of it.

    PI knows bit<N>, and structs and tuples of bit<N>.
    """

    def is_bits(spec: p4t.P4DataTypeSpec) -> bool:
        return spec.HasField("bitstring") and spec.bitstring.HasField("bit")

    def parts(spec: p4t.P4DataTypeSpec) -> list[p4t.P4DataTypeSpec]:
        if spec.HasField("struct"):
            return [member.type_spec for member in p4info.type_info.structs[spec.struct.name].members]
        return list(spec.tuple.members) if spec.HasField("tuple") else [spec]

    out = p4i.P4Info()
    out.CopyFrom(p4info)
    del out.digests[:]
    out.digests.extend(digest for digest in p4info.digests if all(map(is_bits, parts(digest.type_spec))))
    return out


def describe(error: grpc.RpcError) -> str:
    """Code and text of an error; of a failed Write those of its updates, too."""
    out = [f"{error.code().name}: {error.details()}"]
    for metadatum in error.trailing_metadata() or ():
        if metadatum.key == "grpc-status-details-bin":
            for any_one in rpc_status.Status.FromString(metadatum.value).details:
                detail = p4r.Error()
                if any_one.Unpack(detail) and detail.canonical_code and detail.message:
                    out.append(detail.message)
    return "; ".join(out)


def _packed(message: Any) -> bytes:
    return bytes(message.SerializeToString())


class RemoteDevice:
    """A StfRun's device behind a P4Runtime server; without `packets`, of that alone."""

    next_ns = None
    """Time of the next frame: none ever waits, for `inject` returns when the packet has left."""

    def __init__(self, control: grpc.Channel, packets: grpc.Channel | None = None, *, device_id: int = 1) -> None:
        self.device_id = device_id
        self.p4info = p4i.P4Info()
        self._out: list[tuple[int, bytes]] = []
        self._groups: dict[int, MulticastGroup] = {}
        self._sessions: dict[int, CloneSession] = {}
        self._profile_groups: set[tuple[int, int]] = set()
        self._ports_down: set[int] = set()
        self.digests_asked: set[str] = set()
        """Names of the digests that it reports."""
        self._stub = p4r_grpc.P4RuntimeStub(control)
        self._election = U128.encode(1)
        self._requests: queue.SimpleQueue[p4r.StreamMessageRequest | None] = queue.SimpleQueue()
        self._responses: queue.SimpleQueue[p4r.StreamMessageResponse] = queue.SimpleQueue()
        self._packet, self._status = dataplane_messages()
        # Without a dataplane channel the object only controls.
        self._has_packets = packets is not None
        if packets is not None:
            packet_stream = packets.stream_stream(
                SERVICE + "PacketStream", request_serializer=_packed, response_deserializer=self._packet.FromString
            )
            # A stream refused a connection can wait for ever: grpc ends its status then, not always its messages.
            self._exchange = functools.partial(packet_stream, timeout=PACKET_S, wait_for_ready=True)
            self._set_status = packets.unary_unary(
                SERVICE + "SetPortOperStatus", request_serializer=_packed, response_deserializer=bytes
            )
        # P4Runtime takes writes from the primary alone.
        arbitration = p4r.MasterArbitrationUpdate(device_id=device_id, election_id=self._election)
        self._requests.put(p4r.StreamMessageRequest(arbitration=arbitration))
        self._stream = self._stub.StreamChannel(iter(self._requests.get, None))
        self._listener = threading.Thread(target=self._listen, daemon=True, name="bmv2-stream")
        self._listener.start()
        answer = self._responses.get(timeout=RPC_S)
        if answer.arbitration.status.code:
            raise Bmv2Error(f"not the primary: {answer.arbitration.status.message}")

    def _listen(self) -> None:
        with contextlib.suppress(grpc.RpcError):  # the channel is closed, or the switch is gone
            for message in self._stream:
                self._responses.put(message)

    def close(self) -> None:
        self._requests.put(None)
        self._stream.cancel()
        self._listener.join(RPC_S)

    def load(self, program: P4cProgram) -> None:
        """Load this program alone: delete clone sessions and groups of the last one, which BMv2 keeps."""
        replicas: list[MulticastGroup | CloneSession] = [*self._sessions.values(), *self._groups.values()]
        for entry in replicas:
            self._write(p4r.Update.DELETE, packet_replication_engine_entry=replication_out(entry))
        for port in list(self._ports_down):
            self.set_port_up(port, True)
        self._groups, self._sessions, self._profile_groups = {}, {}, set()
        self.p4info = known_to_pi(program.p4info)
        self._stub.SetForwardingPipelineConfig(
            p4r.SetForwardingPipelineConfigRequest(
                device_id=self.device_id,
                election_id=self._election,
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=p4r.ForwardingPipelineConfig(p4info=self.p4info, p4_device_config=program.config),
            ),
            timeout=RPC_S,
        )
        self._wait_for_data_plane()

    def _wait_for_data_plane(self) -> None:
        """Wait until packets are taken: BMv2 starts its ports some time after it has taken the first pipeline."""
        deadline = time.monotonic() + START_S
        while self._has_packets:
            try:
                for _ in self._exchange(iter(())):
                    pass
                return
            except grpc.RpcError as error:
                if error.details() != NOT_READY or time.monotonic() > deadline:
                    raise GoneError(f"{SWITCH} takes no packets: {describe(error)}") from None
            time.sleep(0.02)

    # ---- packets

    def inject(self, port: int, frame: bytes, _now_ns: int) -> None:
        """The packet goes in, and all that becomes of it comes out, before this returns. Raises GoneError."""
        if not frame:
            return  # BMv2 ignores them, too
        request = self._packet(device_id=self.device_id, port=port, packet=frame)
        try:
            for response in self._exchange(iter([request])):
                self._out.append((response.port, response.packet))
        except grpc.RpcError as error:
            raise GoneError(f"{SWITCH}: {describe(error)}, of packet {frame.hex()} at port {port}") from None

    def advance(self, now_ns: int) -> list[tuple[int, int, bytes]]:
        out, self._out = self._out, []
        return [(now_ns, port, frame) for port, frame in out]

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        self.inject(port, frame, 0)
        return [(port, data) for _, port, data in self.advance(0)]

    def set_port_up(self, port: int, is_up: bool) -> None:
        (self._ports_down.discard if is_up else self._ports_down.add)(port)
        status = PORT_UP if is_up else PORT_DOWN
        self._set_status(self._status(device_id=self.device_id, port=port, oper_status=status), timeout=RPC_S)

    # ---- digests

    def ask_for_digests(self) -> None:
        """Each at once and by itself. Those of no name of their own (digest_0) BMv2 does not give."""
        for digest in self.p4info.digests:
            config = p4r.DigestEntry.Config(max_timeout_ns=0, max_list_size=1, ack_timeout_ns=0)
            entry = p4r.DigestEntry(digest_id=digest.preamble.id, config=config)
            with contextlib.suppress(Bmv2Error):
                self._write(p4r.Update.INSERT, digest_entry=entry)
                self.digests_asked.add(digest.preamble.name)

    def digest_data(self) -> list[tuple[int, p4d.P4Data]]:
        """(digest, value) of all that were sent since the last call."""
        out: list[tuple[int, p4d.P4Data]] = []
        with contextlib.suppress(queue.Empty):
            while True:
                response = self._responses.get(timeout=DIGEST_S)
                out += [(response.digest.digest_id, data) for data in response.digest.data]
        return out

    # ---- entities

    def _write(self, kind: Any, **entity: Any) -> None:
        update = p4r.Update(type=kind, entity=p4r.Entity(**entity))
        request = p4r.WriteRequest(device_id=self.device_id, election_id=self._election, updates=[update])
        try:
            self._stub.Write(request, timeout=RPC_S)
        except grpc.RpcError as error:
            raise Bmv2Error(f"{describe(error)}, of {text_format.MessageToString(update, as_one_line=True)}") from None

    def insert(self, entry: TableEntry) -> None:
        self._write(p4r.Update.INSERT, table_entry=translate.table_entry_out(entry))

    def modify(self, entry: TableEntry) -> None:
        self._write(p4r.Update.MODIFY, table_entry=translate.table_entry_out(entry))

    def delete(self, entry: TableEntry) -> None:
        self._write(p4r.Update.DELETE, table_entry=translate.table_entry_out(entry))

    def read(self) -> list[TableEntry]:
        request = p4r.ReadRequest(device_id=self.device_id, entities=[p4r.Entity(table_entry=p4r.TableEntry())])
        entities = [entity for answer in self._stub.Read(request, timeout=RPC_S) for entity in answer.entities]
        return [translate.table_entry_in(entity.table_entry) for entity in entities]

    def insert_member(self, member: ProfileMember) -> None:
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
        else:
            if entry.group_id:  # P4Runtime has no sessions with a group: the group's replicas, then
                entry = CloneSession(entry.session_id, self._replicas(entry.group_id))
            self._sessions[entry.session_id] = entry
        self._write(p4r.Update.INSERT, packet_replication_engine_entry=replication_out(entry))

    def _replicas(self, group_id: int) -> tuple[Replica, ...]:
        return self._groups[group_id].replicas if group_id in self._groups else ()

    def modify_replication(self, entry: MulticastGroup) -> None:
        self._groups[entry.group_id] = entry
        self._write(p4r.Update.MODIFY, packet_replication_engine_entry=replication_out(entry))

    def read_multicast(self) -> list[MulticastGroup]:
        return list(self._groups.values())

    def write_meter(self, meter_id: int, index: int, config: MeterConfig) -> None:
        self._write(
            p4r.Update.MODIFY,
            meter_entry=p4r.MeterEntry(
                meter_id=meter_id, index=p4r.Index(index=index), config=translate.meter_out(config)
            ),
        )

    def write_direct_meter(self, entry: TableEntry, config: MeterConfig) -> None:
        self._write(
            p4r.Update.MODIFY,
            direct_meter_entry=p4r.DirectMeterEntry(
                table_entry=translate.table_entry_out(entry), config=translate.meter_out(config)
            ),
        )

    def _read(self, **entity: Any) -> p4r.Entity:
        request = p4r.ReadRequest(device_id=self.device_id, entities=[p4r.Entity(**entity)])
        entities = [entity for answer in self._stub.Read(request, timeout=RPC_S) for entity in answer.entities]
        if len(entities) != 1:
            raise Bmv2Error(f"{len(entities)} entities where one was asked for: {entity}")
        entity_found: p4r.Entity = entities[0]
        return entity_found

    def read_counter(self, counter_id: int, index: int) -> list[tuple[int, CounterData]]:
        query = p4r.CounterEntry(counter_id=counter_id, index=p4r.Index(index=index))
        return [(index, translate.counter_in(self._read(counter_entry=query).counter_entry.data))]

    def read_one(self, entry: TableEntry) -> TableEntry:
        query = p4r.DirectCounterEntry(table_entry=translate.table_entry_out(entry))
        data = self._read(direct_counter_entry=query).direct_counter_entry.data
        return TableEntry(entry.table_id, entry.match, entry.action, entry.priority, counter=translate.counter_in(data))


# ---- sockets


def listens(port: int) -> bool:
    """Whether a process listens on a TCP port of this machine."""
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def free_ports(count: int) -> list[int]:
    """TCP ports of loopback without a listener at this moment."""
    socks = [socket.socket() for _ in range(count)]
    for sock in socks:
        sock.bind(("127.0.0.1", 0))
    out = [sock.getsockname()[1] for sock in socks]
    for sock in socks:
        sock.close()
    return out
