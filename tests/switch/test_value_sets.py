"""value_sets over P4Runtime."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from daemon_kit import error_details, primary_of, running_daemon
from finsy.proto import p4r, rpc_code
from p4_kit import SMALL

from switch.p4 import compile_program


def entity(number: int, *values: bytes) -> p4r.Entity:
    out = p4r.Entity(value_set_entry=p4r.ValueSetEntry(value_set_id=number))
    for value in values:
        match = out.value_set_entry.members.add().match.add(field_id=1)
        match.exact.value = value
    return out


def test_p4info_and_entries():
    program = compile_program(SMALL / "subparsers.p4")
    ops, items = program.p4info.value_sets
    assert (ops.preamble.name, ops.size, ops.preamble.id >> 24) == ("P.ops", 4, 3)
    assert [(one.name, one.match_type) for one in items.match] == [("kind", 2), ("value", 4)]
    number = ops.preamble.id

    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            config = p4r.ForwardingPipelineConfig(p4info=program.p4info, p4_device_config=program.config)
            await client.set_pipeline(config)
            update = p4r.Update
            await client.write(update(type=update.MODIFY, entity=entity(number, b"\5", b"\7")))
            assert await client.read(entity(number)) == [entity(number, b"\5", b"\7")]
            assert len(await client.read(entity(0))) == 2
            await client.write(update(type=update.MODIFY, entity=entity(number, b"\7")))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.write(
                    update(type=update.INSERT, entity=entity(number, b"\5")),
                    update(type=update.MODIFY, entity=entity(number, *(bytes([n]) for n in range(5)))),
                    update(type=update.MODIFY, entity=entity(number, b"\5", b"\5")),
                    update(type=update.MODIFY, entity=entity(77, b"\5")),
                )
            assert [one.canonical_code for one in error_details(caught.value)] == [
                rpc_code.INVALID_ARGUMENT, rpc_code.RESOURCE_EXHAUSTED, rpc_code.ALREADY_EXISTS,
                rpc_code.INVALID_ARGUMENT,
            ]  # fmt: skip
            assert await client.read(entity(number)) == [entity(number, b"\7")]

    asyncio.run(check())
