"""Meters over P4Runtime: cells, entries, what is refused."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from finsy.proto import p4r, rpc_code

from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.switch.device.entities import MeterConfig, TableError
from tests.switch.compiled_programs import P4_FOLDER, bench_of
from tests.switch.server.running_server import error_details, primary_of, running_daemon

PROGRAM = compile_program(P4_FOLDER / "meters.p4")
BY_PACKET, BY_BYTE = (meter.preamble.id for meter in PROGRAM.p4info.meters)
TABLE = PROGRAM.p4info.tables[0]
CONFIG = p4r.MeterConfig(cir=10, cburst=1, pir=20, pburst=2)


def cell(meter: int, index: int, config: p4r.MeterConfig | None) -> p4r.Entity:
    return p4r.Entity(meter_entry=p4r.MeterEntry(meter_id=meter, index=p4r.Index(index=index), config=config))


def row(value: bytes, **fields) -> p4r.TableEntry:
    entry = p4r.TableEntry(table_id=TABLE.preamble.id, **fields)
    entry.match.add(field_id=1).exact.value = value
    return entry


def test_p4info():
    info = PROGRAM.p4info
    assert [(meter.preamble.name, meter.spec.unit, meter.size) for meter in info.meters] == [
        ("I.by_packet", 2, 8),
        ("I.by_byte", 1, 8),
    ]
    assert info.meters[0].preamble.id >> 24 == 0x14 and info.direct_meters[0].preamble.id >> 24 == 0x15
    assert list(TABLE.direct_resource_ids) == [info.direct_meters[0].preamble.id]


def test_p4runtime__cells_and_entries():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            config = p4r.ForwardingPipelineConfig(p4info=PROGRAM.p4info, p4_device_config=PROGRAM.config)
            await client.set_pipeline(config)
            update = p4r.Update
            action = p4r.TableAction(action=p4r.Action(action_id=TABLE.action_refs[0].id))
            metered_entry = row(b"\5", action=action, meter_config=CONFIG)
            await client.write(
                update(type=update.MODIFY, entity=cell(BY_PACKET, 3, CONFIG)),
                update(type=update.INSERT, entity=p4r.Entity(table_entry=metered_entry)),
                update(type=update.INSERT, entity=p4r.Entity(table_entry=row(b"\6", action=action))),
            )
            assert await client.read(cell(BY_PACKET, 3, None)) == [cell(BY_PACKET, 3, CONFIG)]
            assert len(await client.read(p4r.Entity(meter_entry=p4r.MeterEntry()))) == 16
            # A meter set with its table entry is also readable and writable as a direct meter entry
            query = p4r.Entity(direct_meter_entry=p4r.DirectMeterEntry(table_entry=row(b"\5")))
            (answer,) = await client.read(query)
            assert answer.direct_meter_entry.config == CONFIG
            new_meter = p4r.Entity(direct_meter_entry=p4r.DirectMeterEntry(table_entry=row(b"\6"), config=CONFIG))
            await client.write(update(type=update.MODIFY, entity=new_meter))
            every = p4r.TableEntry(table_id=TABLE.preamble.id, meter_config=p4r.MeterConfig())
            entries = [e.table_entry for e in await client.read(p4r.Entity(table_entry=every))]
            assert [e.meter_config for e in entries] == [CONFIG, CONFIG]
            await client.write(
                update(type=update.MODIFY, entity=p4r.Entity(table_entry=row(b"\5", action=action))),
                update(type=update.MODIFY, entity=cell(BY_PACKET, 3, None)),
            )
            (answer,) = await client.read(query)
            assert not answer.direct_meter_entry.HasField("config")
            assert await client.read(cell(BY_PACKET, 3, None)) == [cell(BY_PACKET, 3, None)]
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.write(
                    update(type=update.INSERT, entity=cell(BY_PACKET, 3, CONFIG)),
                    update(type=update.MODIFY, entity=cell(BY_PACKET, 8, CONFIG)),
                    update(type=update.MODIFY, entity=cell(77, 0, CONFIG)),
                    update(type=update.MODIFY, entity=cell(BY_BYTE, 0, p4r.MeterConfig(cir=5, pir=4))),
                    update(type=update.MODIFY, entity=cell(BY_BYTE, 0, p4r.MeterConfig(cir=-1))),
                    update(type=update.MODIFY, entity=cell(BY_BYTE, 0, p4r.MeterConfig(eburst=1))),
                )
            assert [e.canonical_code for e in error_details(caught.value)] == [
                rpc_code.INVALID_ARGUMENT,
                rpc_code.OUT_OF_RANGE,
                rpc_code.INVALID_ARGUMENT,
                rpc_code.INVALID_ARGUMENT,
                rpc_code.INVALID_ARGUMENT,
                rpc_code.INVALID_ARGUMENT,
            ]

    asyncio.run(check())


def test_meter_config__of_an_action_without_meter_is_refused():
    """The action of the entry must read the meter (P4Runtime §9.1.6); a refused update changes nothing."""
    # The program's two actions: one reads the meter, one does not.
    with_meter, plain = (p4r.TableAction(action=p4r.Action(action_id=ref.id)) for ref in TABLE.action_refs)

    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            config = p4r.ForwardingPipelineConfig(p4info=PROGRAM.p4info, p4_device_config=PROGRAM.config)
            await client.set_pipeline(config)
            update = p4r.Update

            def changes(kind, *entries):
                return [update(type=kind, entity=p4r.Entity(table_entry=entry)) for entry in entries]

            await client.write(*changes(update.INSERT, row(b"\5", action=plain), row(b"\6", action=with_meter)))
            # Refused: a new entry, a kept action, a new action, the default entry. Taken: a meter for a kept action.
            default = p4r.TableEntry(
                table_id=TABLE.preamble.id, is_default_action=True, action=plain, meter_config=CONFIG
            )
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.write(
                    *changes(update.INSERT, row(b"\7", action=plain, meter_config=CONFIG)),
                    *changes(
                        update.MODIFY,
                        row(b"\5", meter_config=CONFIG),
                        row(b"\6", action=plain, meter_config=CONFIG),
                        default,
                        row(b"\6", meter_config=CONFIG),
                    ),
                )
            codes = [error.canonical_code for error in error_details(caught.value)]
            assert codes == [rpc_code.INVALID_ARGUMENT] * 4 + [rpc_code.OK]
            entries = [e.table_entry for e in await client.read(p4r.Entity(table_entry=row_filter()))]
            assert [(entry.match[0].exact.value, entry.action) for entry in entries] == [
                (b"\5", plain),
                (b"\6", with_meter),
            ]

    asyncio.run(check())


def row_filter() -> p4r.TableEntry:
    return p4r.TableEntry(table_id=TABLE.preamble.id)


def test_device__the_default_entry_has_a_meter_too():
    bench = bench_of("meters")
    from mrc_testbed.switch.device.entities import TableEntry

    default = TableEntry(TABLE.preamble.id, is_default=True)
    bench.device.write_direct_meter(default, MeterConfig(1, 1, 1, 1))
    bench.set_default("entries_of", "metered")
    assert bench.device.read_direct_meter(default) == MeterConfig(1, 1, 1, 1)
    assert [bench.send(1, b"\3\1\0")[0][1][2] for _ in range(2)] == [0, 2]
    with pytest.raises(TableError, match="no direct meter"):
        bench_of("flow").device.write_direct_meter(TableEntry(bench_of("flow").info.tables[0].preamble.id), None)
