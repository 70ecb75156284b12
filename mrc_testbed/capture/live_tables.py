"""A running switch's program and tables, read over P4Runtime and loaded into a device in memory.

Reading needs no mastership and changes nothing. What is read: the pipeline config, table entries with their defaults,
action profile members and groups, registers. On BMv2 the config is its own JSON, so the same program is compiled from
p4src/ instead; its ids are the same, since both compilers take them from the P4Info rules of one source.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import grpc
from finsy.proto import p4r, p4r_grpc

from mrc_testbed.errors import UsageError
from mrc_testbed.switch.compiler import CompiledProgram, P4Error, compile_program
from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import TableError
from mrc_testbed.switch.server.p4runtime.errors import RpcError
from mrc_testbed.switch.server.p4runtime.translate import group_in, integer, member_in, table_entry_in
from mrc_testbed.topologies.lab.p4_program import source_of

TIMEOUT_S = 10.0
"""An answer of a switch is asked for again after so long, seconds, when the switch works."""
OPTIONS = [("grpc.max_receive_message_length", 64 << 20), ("grpc.enable_http_proxy", 0)]

_programs: dict[bytes, CompiledProgram] = {}


Answer = TypeVar("Answer")


def device_like(name: str, switch_entry: dict[str, Any], fallback_program: str, works: Callable[[], bool]) -> P4Device:
    """A device in memory with the program and the tables that switch `name` has now; the caller closes it.

    `where`: its entry of switches.json. `works`: whether the switch gets on.

    Raises UsageError when the switch does not answer or has no pipeline.
    """
    with grpc.insecure_channel(switch_entry["address"], OPTIONS) as channel:
        stub = p4r_grpc.P4RuntimeStub(channel)
        try:
            request = p4r.GetForwardingPipelineConfigRequest(
                device_id=switch_entry["device_id"], response_type=p4r.GetForwardingPipelineConfigRequest.ALL
            )
            config = _patiently(lambda: stub.GetForwardingPipelineConfig(request, timeout=TIMEOUT_S), works).config
            program = _program(bytes(config.p4_device_config), fallback_program)
            device = P4Device(switch_entry["device_id"], name)
            device.load(program)
            entities = _read(stub, switch_entry["device_id"], program, works)
        except grpc.RpcError as error:
            raise UsageError(f"{name}: cannot read its tables: {_reason(error)}") from error
    try:
        _fill(device, entities)
    except (RpcError, TableError) as error:
        device.close()
        raise UsageError(f"{name}: the stored entries do not fit the program: {error}") from error
    return device


def _reason(error: grpc.RpcError) -> str:
    code, details = error.code(), error.details()
    cure = " (is it switched off? `power SWITCH on`)" if code is grpc.StatusCode.UNAVAILABLE else ""
    return f"{code.name}: {details}{cure}"


def _program(config: bytes, fallback_program: str) -> CompiledProgram:
    program = _programs.get(config)
    if program is None:
        is_source = config and config[:1] not in b"{["
        source: str | Path = config.decode(errors="replace") if is_source else source_of(fallback_program)
        try:
            program = _programs[config] = compile_program(source)
        except P4Error as error:
            raise UsageError(f"the switch's program does not compile here: {error}") from error
    return program


def _patiently(call: Callable[[], Answer], works: Callable[[], bool]) -> Answer:
    """Ask again while whoever did not answer in time works on it. Raises grpc.RpcError."""
    while True:
        try:
            return call()
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED or not works():
                raise


def _answers(stub: p4r_grpc.P4RuntimeStub, request: p4r.ReadRequest) -> list[p4r.ReadResponse]:
    return list(stub.Read(request, timeout=TIMEOUT_S))


def _read(
    stub: p4r_grpc.P4RuntimeStub, device_id: int, program: CompiledProgram, works: Callable[[], bool]
) -> list[p4r.Entity]:
    info = program.p4info
    entities = [p4r.Entity(action_profile_member=p4r.ActionProfileMember())] if info.action_profiles else []
    entities += [p4r.Entity(action_profile_group=p4r.ActionProfileGroup())] if info.action_profiles else []
    entities.append(p4r.Entity(table_entry=p4r.TableEntry()))
    for table in info.tables:
        default = p4r.TableEntry(table_id=table.preamble.id, is_default_action=True)
        entities.append(p4r.Entity(table_entry=default))
    out: list[p4r.Entity] = []
    cells = [
        p4r.Entity(register_entry=p4r.RegisterEntry(register_id=register.preamble.id)) for register in info.registers
    ]
    for request in (entities, cells):
        try:
            read = partial(_answers, stub, p4r.ReadRequest(device_id=device_id, entities=request))
            for answer in _patiently(read, works):
                out += answer.entities
        except grpc.RpcError as error:
            if request is entities or error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
    return out


def _fill(device: P4Device, entities: list[p4r.Entity]) -> None:
    """Members before groups before entries: each refers to those before."""
    for entity in entities:
        if entity.WhichOneof("entity") == "action_profile_member":
            device.insert_member(member_in(entity.action_profile_member))
    for entity in entities:
        if entity.WhichOneof("entity") == "action_profile_group":
            device.insert_group(group_in(entity.action_profile_group))
    for entity in entities:
        kind = entity.WhichOneof("entity")
        if kind == "table_entry":
            entry = table_entry_in(entity.table_entry)
            if not entry.is_default:
                device.insert(entry)
            elif entry.action is not None and device.read_one(entry).action != entry.action:
                device.modify(entry)
        elif kind == "register_entry":
            sent = entity.register_entry
            if sent.HasField("index") and sent.data.WhichOneof("data") == "bitstring":
                value = integer(sent.data.bitstring, "register")
                if value:
                    device.write_register(sent.register_id, sent.index.index, value)
