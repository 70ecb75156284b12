"""value_sets over P4Runtime."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from finsy.proto import p4r, rpc_code

from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.switch.tools.stf import parse_script
from mrc_testbed.switch.tools.stf_run import run_script
from tests.switch.compiled_programs import P4_FOLDER
from tests.switch.server.running_server import error_details, primary_of, running_daemon


def entity(number: int, *values: bytes) -> p4r.Entity:
    out = p4r.Entity(value_set_entry=p4r.ValueSetEntry(value_set_id=number))
    for value in values:
        match = out.value_set_entry.members.add().match.add(field_id=1)
        match.exact.value = value
    return out


def test_p4info_and_entries():
    program = compile_program(P4_FOLDER / "subparsers.p4")
    ops, items = program.p4info.value_sets
    assert (ops.preamble.name, ops.size, ops.preamble.id >> 24) == ("P_0.ops", 4, 3)
    assert [(field.name, field.match_type) for field in items.match] == [("kind", 2), ("value", 4)]
    number = ops.preamble.id

    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            config = p4r.ForwardingPipelineConfig(p4info=program.p4info, p4_device_config=program.config)
            await client.set_pipeline(config)
            update = p4r.Update
            await client.write(update(type=update.MODIFY, entity=entity(number, b"\5", b"\7")))
            assert await client.read(entity(number)) == [entity(number, b"\5", b"\7")]
            assert len(await client.read(entity(0))) == 2
            # A value set is replaced as a whole by MODIFY; INSERT and DELETE do not exist for it
            await client.write(update(type=update.MODIFY, entity=entity(number, b"\7")))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.write(
                    update(type=update.INSERT, entity=entity(number, b"\5")),
                    update(type=update.MODIFY, entity=entity(number, *(bytes([n]) for n in range(5)))),
                    update(type=update.MODIFY, entity=entity(number, b"\5", b"\5")),
                    update(type=update.MODIFY, entity=entity(77, b"\5")),
                )
            assert [error_detail.canonical_code for error_detail in error_details(caught.value)] == [
                rpc_code.INVALID_ARGUMENT,
                rpc_code.RESOURCE_EXHAUSTED,
                rpc_code.ALREADY_EXISTS,
                rpc_code.INVALID_ARGUMENT,
            ]
            assert await client.read(entity(number)) == [entity(number, b"\7")]

    asyncio.run(check())


NESTED_STRUCTS = """#include <core.p4>
#include <v1model.p4>
struct inner_t { @match(ternary) bit<8> low; bit<8> high; }
struct member_t { bit<8> op; inner_t inner; }
header data_t { bit<8> op; bit<8> low; bit<8> high; bit<8> found; }
struct headers_t { data_t data; }
struct metadata_t { bit<8> found; }
parser P(packet_in b, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    value_set<member_t>(4) members;
    state start {
        b.extract(hdr.data);
        transition select(hdr.data.op, hdr.data.low, hdr.data.high) {
            members : in_it;
            default : accept;
        }
    }
    state in_it { meta.found = 1; transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { std.egress_spec = 1; hdr.data.found = meta.found; }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


def test_nested_structs__their_fields_are_the_members():
    program = compile_program(NESTED_STRUCTS)
    (members,) = program.p4info.value_sets
    fields = [(field.id, field.name, field.bitwidth, field.match_type) for field in members.match]
    assert fields == [(1, "op", 8, 2), (2, "inner.low", 8, 4), (3, "inner.high", 8, 2)]
    script = """
    value_set members 1,0x2*,3
    packet 0 01 25 03 00
    expect 1 01 25 03 01
    packet 0 01 35 03 00
    expect 1 01 35 03 00
    """
    assert run_script(program, parse_script(script)).passed
