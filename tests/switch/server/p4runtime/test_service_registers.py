"""Registers of any width over P4Runtime: written, seen by packets, read back."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from finsy.proto import p4r

from mrc_testbed.switch.compiler import compile_program
from tests.switch.compiled_programs import P4_FOLDER, bench_of
from tests.switch.server.running_server import primary_of, running_daemon

PROGRAM = compile_program(P4_FOLDER / "cells.p4")
BIT_256, INT_192, BIT_300, _ = (register.preamble.id for register in PROGRAM.p4info.registers)


def cell(register: int, index: int, value: int | None = None) -> p4r.Entity:
    entry = p4r.RegisterEntry(register_id=register, index=p4r.Index(index=index))
    if value is not None:
        entry.data.bitstring = value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")
    return p4r.Entity(register_entry=entry)


def test_p4info__widths():
    bit_spec, int_spec = (register.type_spec.bitstring for register in PROGRAM.p4info.registers[:2])
    assert (bit_spec.bit.bitwidth, int_spec.int.bitwidth) == (256, 192)


def test_p4runtime__cells_of_more_than_128_bits():
    value = (0xAB << 248) + 0x1234

    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(
                p4r.ForwardingPipelineConfig(p4info=PROGRAM.p4info, p4_device_config=PROGRAM.config)
            )
            update = p4r.Update(type=p4r.Update.MODIFY, entity=cell(BIT_256, 2, value))
            await client.write(update, p4r.Update(type=p4r.Update.MODIFY, entity=cell(BIT_300, 1, 1 << 299)))
            read = await client.read(cell(BIT_256, 2), cell(BIT_300, 1), cell(BIT_256, 0))
            assert read[:2] == [cell(BIT_256, 2, value), cell(BIT_300, 1, 1 << 299)]
            assert int.from_bytes(read[2].register_entry.data.bitstring, "big") == 0
            with pytest.raises(grpc.RpcError):
                await client.write(p4r.Update(type=p4r.Update.MODIFY, entity=cell(BIT_256, 2, 1 << 256)))

    asyncio.run(check())


def test_device__packets_and_the_control_plane_see_the_same_cells():
    bench = bench_of("cells")
    bench.device.write_register(BIT_256, 1, 7)
    bench.send(1, bytes([1, 1, 5]))  # adds 2**250 and the value
    assert bench.device.read_register(BIT_256, 1) == [(1, 12 + (1 << 250))]
    bench.send(1, bytes([2, 0, 0]))  # one less than 0
    assert bench.device.read_register(INT_192, 0) == [(0, (1 << 192) - 1)]
    assert [index for index, _ in bench.device.read_register(BIT_256)] == [0, 1, 2, 3]
