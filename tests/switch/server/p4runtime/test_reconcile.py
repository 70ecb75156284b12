"""VERIFY_AND_SAVE with COMMIT, and RECONCILE_AND_COMMIT with another program.

What becomes of the entries.
"""

from __future__ import annotations

import asyncio

import grpc
import pytest
from finsy.proto import p4r

from mrc_testbed.switch.compiler import CompiledProgram, compile_program
from tests.switch.server.p4runtime_entities import code_of
from tests.switch.server.running_server import Client, primary_of, running_daemon

ACTIONS = p4r.SetForwardingPipelineConfigRequest
TEXT = """
#include <core.p4>
#include <v1model.p4>
header h_t { bit<16> a; }
struct headers_t { h_t h; }
struct metadata_t { }
parser P(packet_in b, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { b.extract(h.h); transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    counter(8, CounterType.packets) seen;
    register<int<8>>(4) last;
    action forward(bit<9> port) { s.egress_spec = port; seen.count((bit<32>)port); last.write(0, -5); }
    action drop() { mark_to_drop(s); }
    table route { key = { h.h.a : KIND; } actions = { forward; drop; } default_action = drop(); ENTRIES }
    EXTRA
    apply { route.apply(); APPLY }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out b, in headers_t h) { apply { b.emit(h.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


def program(kind: str = "exact", entries: str = "", extra: str = "", apply: str = "") -> CompiledProgram:
    text = TEXT.replace("KIND", kind).replace("ENTRIES", entries).replace("EXTRA", extra).replace("APPLY", apply)
    return compile_program(text)


FIRST_PROGRAM = program(entries="entries = { 1 : forward(1); 2 : forward(2); }")
EXTENDED_PROGRAM = program(
    entries="entries = { 1 : forward(3); 9 : forward(4); }",
    extra="table more { key = { h.h.a : exact; } actions = { NoAction; } }",
    apply="more.apply();",
)
LPM = program("lpm")
ROUTE, FORWARD = FIRST_PROGRAM.p4info.tables[0].preamble.id, FIRST_PROGRAM.p4info.actions[0].preamble.id
PORT_COUNTER, PORT_REGISTER = (
    FIRST_PROGRAM.p4info.counters[0].preamble.id,
    FIRST_PROGRAM.p4info.registers[0].preamble.id,
)


def config(program: CompiledProgram, cookie: int = 0) -> p4r.ForwardingPipelineConfig:
    return p4r.ForwardingPipelineConfig(
        p4info=program.p4info,
        p4_device_config=program.config,
        cookie=p4r.ForwardingPipelineConfig.Cookie(cookie=cookie),
    )


def route(address: int, port: int | None) -> p4r.Entity:
    entry = p4r.TableEntry(table_id=ROUTE)
    entry.match.add(field_id=1).exact.value = bytes([address])
    if port is not None:
        entry.action.action.action_id = FORWARD
        entry.action.action.params.add(param_id=1, value=bytes([port]))
    return p4r.Entity(table_entry=entry)


def update(kind: int, address: int, port: int | None = None) -> p4r.Update:
    return p4r.Update(type=kind, entity=route(address, port))


async def routes(client: Client) -> dict[int, int]:
    entries = [
        entity.table_entry for entity in await client.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=ROUTE)))
    ]
    return {entry.match[0].exact.value[0]: entry.action.action.params[0].value[0] for entry in entries}


async def begin(client: Client, daemon) -> None:
    """Push FIRST_PROGRAM and change it: entry 2 deleted, 5 added, another default; count port 5 once."""
    await client.set_pipeline(config(FIRST_PROGRAM))
    default = p4r.TableEntry(table_id=ROUTE, is_default_action=True, action=route(0, 6).table_entry.action)
    modify = p4r.Update(type=2, entity=p4r.Entity(table_entry=default))
    await client.write(update(3, 2), update(1, 5, 5), modify)
    assert daemon.registry.with_id(1).device.process(1, b"\0\5") == [(5, b"\0\5")]


def test_reconcile__keeps_what_clients_wrote_and_what_was_counted():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await begin(client, daemon)
            await client.set_pipeline(config(EXTENDED_PROGRAM, 7), ACTIONS.RECONCILE_AND_COMMIT)
            assert await routes(client) == {1: 3, 5: 5, 9: 4}
            device = daemon.registry.with_id(1).device
            assert [device.process(1, bytes([0, a]))[0][0] for a in (1, 5, 9, 2)] == [3, 5, 4, 6]
            (cell,) = await client.read(p4r.Entity(counter_entry={"counter_id": PORT_COUNTER, "index": {"index": 5}}))
            assert cell.counter_entry.data.packet_count == 2
            (cell,) = await client.read(p4r.Entity(register_entry={"register_id": PORT_REGISTER, "index": {}}))
            assert cell.register_entry.data.bitstring == b"\xfb"
            got = await client.stub.GetForwardingPipelineConfig(p4r.GetForwardingPipelineConfigRequest(device_id=1))
            assert got.config == config(EXTENDED_PROGRAM, 7)

    asyncio.run(check())


def test_reconcile__an_entry_that_does_not_fit_is_named_and_nothing_changes():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await begin(client, daemon)
            routes_before = await routes(client)
            code, words = await code_of(client.set_pipeline(config(LPM), ACTIONS.RECONCILE_AND_COMMIT))
            assert code is grpc.StatusCode.INVALID_ARGUMENT and "route: " in words and "matched lpm" in words
            code, words = await code_of(client.set_pipeline(None, ACTIONS.RECONCILE_AND_COMMIT))
            assert code is grpc.StatusCode.INVALID_ARGUMENT and "empty" in words
            assert await routes(client) == routes_before
            assert daemon.registry.with_id(1).device.process(1, b"\0\5") == [(5, b"\0\5")]

    asyncio.run(check())


def test_reconcile__without_a_program_is_a_commit():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(config(FIRST_PROGRAM), ACTIONS.RECONCILE_AND_COMMIT)
            assert await routes(client) == {1: 1, 2: 2}

    asyncio.run(check())


def test_save__writes_go_to_the_saved_program_and_packets_to_the_old_one():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await begin(client, daemon)
            device = daemon.registry.with_id(1).device
            await client.set_pipeline(config(EXTENDED_PROGRAM), ACTIONS.VERIFY_AND_SAVE)
            assert await routes(client) == {1: 3, 9: 4}
            await client.write(update(1, 7, 7), update(3, 9))
            assert [device.process(1, bytes([0, a]))[0][0] for a in (1, 5, 7)] == [1, 5, 6]
            code, words = await code_of(client.set_pipeline(config(EXTENDED_PROGRAM), ACTIONS.COMMIT))
            assert code is grpc.StatusCode.INVALID_ARGUMENT and "takes no config" in words
            await client.set_pipeline(None, ACTIONS.COMMIT)
            assert await routes(client) == {1: 3, 7: 7}
            assert [device.process(1, bytes([0, a]))[:1] for a in (1, 7, 5)] == [
                [(3, b"\0\1")],
                [(7, b"\0\7")],
                [],
            ]
            code, _ = await code_of(client.set_pipeline(None, ACTIONS.COMMIT))
            assert code is grpc.StatusCode.NOT_FOUND

    asyncio.run(check())


@pytest.mark.parametrize("kind", [0, 9])
def test_unknown_actions__are_refused_with_the_known(kind):
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            code, words = await code_of(client.set_pipeline(config(FIRST_PROGRAM), kind))
            assert code is grpc.StatusCode.INVALID_ARGUMENT and "RECONCILE_AND_COMMIT" in words

    asyncio.run(check())
