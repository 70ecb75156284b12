"""Multicast groups and clone sessions over P4Runtime, and what a device says of impossible ones."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from finsy.proto import p4r, rpc_code

from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.switch.device.entities import CloneSession, MulticastGroup, Replica, TableError
from tests.switch.compiled_programs import P4_FOLDER, bench_of
from tests.switch.server.running_server import error_details, primary_of, running_daemon


def group_entity(number: int, *ports: int) -> p4r.Entity:
    entity = p4r.Entity()
    group = entity.packet_replication_engine_entry.multicast_group_entry
    group.multicast_group_id = number
    for instance, port in enumerate(ports):
        group.replicas.add(egress_port=port, instance=instance)
    return entity


def session_entity(number: int, port: int, **fields: int) -> p4r.Entity:
    entity = p4r.Entity()
    session = entity.packet_replication_engine_entry.clone_session_entry
    session.session_id = number
    for name, value in fields.items():
        setattr(session, name, value)
    session.replicas.add(egress_port=port)
    return entity


def test_p4runtime__written_read_back_and_in_force():
    program = compile_program(P4_FOLDER / "copies.p4")

    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            config = p4r.ForwardingPipelineConfig(p4info=program.p4info, p4_device_config=program.config)
            await client.set_pipeline(config)
            update = p4r.Update
            await client.write(
                update(type=update.INSERT, entity=group_entity(3, 1, 2)),
                update(type=update.INSERT, entity=session_entity(7, 9, packet_length_bytes=64, class_of_service=2)),
            )
            all_entries = p4r.Entity(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry())
            assert await client.read(all_entries) == [
                group_entity(3, 1, 2),
                session_entity(7, 9, packet_length_bytes=64, class_of_service=2),
            ]
            assert await client.read(group_entity(4)) == []
            await client.write(update(type=update.MODIFY, entity=group_entity(3, 5)))
            assert daemon.registry.with_name("s1").device.read_multicast() == [MulticastGroup(3, (Replica(5, 0),))]
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.write(
                    update(type=update.INSERT, entity=group_entity(3, 5)),
                    update(type=update.DELETE, entity=group_entity(4)),
                    update(type=update.INSERT, entity=group_entity(0, 5)),
                    update(type=update.INSERT, entity=group_entity(9, 600)),
                    update(type=update.DELETE, entity=group_entity(3)),
                )
            assert [error_detail.canonical_code for error_detail in error_details(caught.value)] == [
                rpc_code.ALREADY_EXISTS,
                rpc_code.NOT_FOUND,
                rpc_code.INVALID_ARGUMENT,
                rpc_code.INVALID_ARGUMENT,
                rpc_code.OK,
            ]
            await client.set_pipeline(config)
            assert await client.read(all_entries) == []  # a new pipeline forgets them

    asyncio.run(check())


@pytest.mark.parametrize(
    "entry",
    [
        MulticastGroup(0),
        MulticastGroup(1 << 16),
        MulticastGroup(1, (Replica(2), Replica(2))),
        MulticastGroup(1, (Replica(511),)),
        MulticastGroup(1, (Replica(1, 1 << 16),)),
        CloneSession(1, class_of_service=8),
        CloneSession(1, length=-1),
    ],
)
def test_device__impossible_ones_are_refused(entry):
    device = bench_of("copies").device
    with pytest.raises(TableError) as caught:
        device.insert_replication(entry)
    assert caught.value.code == "INVALID_ARGUMENT"


def test_session__cuts_its_clones():
    bench = bench_of("copies")
    bench.device.insert_replication(CloneSession(7, (Replica(7),), length=8))
    out = dict(bench.send(1, bytes.fromhex("03 07 00 00 00 00") + bytes(20)))
    assert {port: len(frame) for port, frame in out.items()} == {7: 8}


def test_process__more_copies_than_room():
    bench = bench_of("copies")
    bench.device.insert_replication(MulticastGroup(1, tuple(Replica(p, r) for p in range(500) for r in range(3))))
    with pytest.raises(ValueError, match="use inject"):
        bench.send(1, bytes.fromhex("01 01 00 00 00 00") + bytes(1000))
    assert bench.send(1, bytes.fromhex("00 01 00 00 00 00"))[0][0] == 1
