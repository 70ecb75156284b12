"""Batches over P4Runtime that are done whole or not at all, and what roles may write."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from finsy.proto import U128, p4r, rpc_code, stratum

from tests.switch.mini_program import BY_ADDR, BY_HASH, BY_MAC, BY_PORT, SEEN_REGISTER, SPRAY
from tests.switch.server.p4runtime_entities import (
    code_of,
    delete,
    entries_of,
    forward,
    group,
    insert,
    mac_entry,
    member,
    modify,
)
from tests.switch.server.running_server import (
    Client,
    client_of,
    error_details,
    mini_config,
    primary_of,
    running_daemon,
    use_mini_program,
    with_timeout,
)

CONTINUE, ROLLBACK, ATOMIC = (
    p4r.WriteRequest.CONTINUE_ON_ERROR,
    p4r.WriteRequest.ROLLBACK_ON_ERROR,
    p4r.WriteRequest.DATAPLANE_ATOMIC,
)
ALL_ENTITIES = [
    entries_of(),
    entries_of(is_default_action=True),
    *(
        p4r.Entity(**{kind: {}})
        for kind in (
            "action_profile_member",
            "action_profile_group",
            "counter_entry",
            "register_entry",
            "packet_replication_engine_entry",
            "digest_entry",
            "meter_entry",
            "value_set_entry",
        )
    ),
]


@pytest.fixture(autouse=True)
def _mini(monkeypatch):
    use_mini_program(monkeypatch)


def session(number: int) -> p4r.Entity:
    entry = p4r.CloneSessionEntry(session_id=number, replicas=[p4r.Replica(port=b"\5", instance=1)])
    return p4r.Entity(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(clone_session_entry=entry))


def cell(packets: int) -> p4r.Entity:
    data = p4r.CounterData(packet_count=packets)
    return p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=BY_PORT, index=p4r.Index(index=3), data=data))


def register(value: bytes) -> p4r.Entity:
    entry = p4r.RegisterEntry(register_id=SEEN_REGISTER, index=p4r.Index(index=1))
    entry.data.bitstring = value
    return p4r.Entity(register_entry=entry)


def changes() -> list[p4r.Update]:
    """Return one update of each kind, all valid after `prepare`."""
    group_member = p4r.ActionProfileGroup.Member(member_id=2, weight=1)
    by_group = p4r.TableEntry(table_id=BY_HASH, action=p4r.TableAction(action_profile_group_id=2))
    by_group.match.add(field_id=1).exact.value = b"\2"
    return [
        insert(member(2)),
        insert(group(2, group_member)),
        insert(p4r.Entity(table_entry=by_group)),
        insert(mac_entry(b"\2")),
        modify(mac_entry(b"\1", b"\x08", metadata=b"x")),
        delete(mac_entry(b"\3")),
        modify(entries_of(BY_MAC, is_default_action=True, action=p4r.TableAction(action=forward(b"\7")))),
        modify(member(1, b"\x09")),
        modify(cell(5)),
        modify(register(b"\5")),
        insert(session(2)),
        delete(session(1)),
    ]


async def prepare(client: Client) -> list[p4r.Entity]:
    await client.set_pipeline(mini_config())
    await client.write(insert(mac_entry(b"\1", metadata=b"m")), insert(mac_entry(b"\3")), insert(member(1)))
    await client.write(insert(session(1)), modify(register(b"\3")))
    return await client.read(*ALL_ENTITIES)


def text(entities: list[p4r.Entity]) -> list[str]:
    return sorted(map(str, entities))


@pytest.mark.parametrize("atomicity", [ROLLBACK, ATOMIC])
@pytest.mark.parametrize(
    ("bad_update", "code"),
    [
        (insert(mac_entry(b"\1")), rpc_code.ALREADY_EXISTS),  # fails when it is done
        (delete(mac_entry(b"\x63")), rpc_code.NOT_FOUND),
        (insert(mac_entry(b"\1" * 9)), rpc_code.OUT_OF_RANGE),  # fails before anything is done
        (p4r.Update(type=1), rpc_code.INVALID_ARGUMENT),
    ],
)
def test_whole_batch__one_failure_takes_everything_back(atomicity, bad_update, code):
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            entities_before = await prepare(client)
            batch = changes()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.write(*batch, bad_update, delete(mac_entry(b"\4")), atomicity=atomicity)
            assert caught.value.code() is grpc.StatusCode.UNKNOWN
            codes = [error_detail.canonical_code for error_detail in error_details(caught.value)]
            assert codes == [rpc_code.ABORTED] * len(batch) + [code, rpc_code.ABORTED]
            assert text(await client.read(*ALL_ENTITIES)) == text(entities_before)
            await client.write(*batch, atomicity=atomicity)
            text_after = text(await client.read(*ALL_ENTITIES))
            assert text_after != text(entities_before)
            await prepare(client)
            await client.write(*batch)
            assert text(await client.read(*ALL_ENTITIES)) == text_after

    asyncio.run(check())


def test_continue__does_what_it_can():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await prepare(client)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.write(insert(mac_entry(b"\1")), insert(mac_entry(b"\5")), atomicity=CONTINUE)
            codes = [error_detail.canonical_code for error_detail in error_details(caught.value)]
            assert codes == [rpc_code.ALREADY_EXISTS, rpc_code.OK]
            assert len(await client.read(entries_of(BY_MAC))) == 3

    asyncio.run(check())


def test_atomic__ten_thousand_entries_and_none_of_them():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            updates = []
            for number in range(1, 10_001):
                entry = p4r.TableEntry(table_id=BY_ADDR, action=p4r.TableAction(action=forward(b"\1")))
                match = p4r.FieldMatch.LPM(value=number.to_bytes(2, "big") + b"\0\0", prefix_len=16)
                entry.match.add(field_id=1, lpm=match)
                updates.append(insert(p4r.Entity(table_entry=entry)))
            code, words = await code_of(client.write(*updates, updates[0], atomicity=ATOMIC))
            assert code is grpc.StatusCode.UNKNOWN and "update 10000: by_addr: entry is there already" in words
            assert await client.read(entries_of(BY_ADDR)) == []
            await client.write(*updates, atomicity=ATOMIC)
            assert len(await client.read(entries_of(BY_ADDR))) == 10_000

    asyncio.run(check())


# ---- roles ----------------------------------------------------------------------------------------------------------


async def join(client: Client, name: str, **config) -> None:
    role = p4r.Role(name=name)
    role.config.Pack(stratum.P4RoleConfig(**config))
    update = p4r.MasterArbitrationUpdate(
        device_id=client.device_id, election_id=U128.encode(client.election_id), role=role
    )
    await client.stream.write(p4r.StreamMessageRequest(arbitration=update))
    assert await client.next_status() == rpc_code.OK


def test_role__writes_and_reads_its_objects_only():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as full_client, client_of(daemon) as role_client:
            await full_client.set_pipeline(mini_config())
            await full_client.write(insert(mac_entry(b"\1")))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await role_client.write(insert(mac_entry(b"\2")), role="lag")
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND and "'lag'" in caught.value.details()
            await join(role_client, "lag", exclusive_p4_ids=[SPRAY], shared_p4_ids=[BY_HASH])
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await role_client.write(insert(mac_entry(b"\2")), insert(member(1)), insert(session(1)), role="lag")
            codes = [error_detail.canonical_code for error_detail in error_details(caught.value)]
            assert codes == [rpc_code.PERMISSION_DENIED, rpc_code.OK, rpc_code.PERMISSION_DENIED]
            request = p4r.ReadRequest(device_id=1, role="lag", entities=[member(0), entries_of()])
            entities = [entity async for answer in role_client.stub.Read(request) for entity in answer.entities]
            assert [member_entity.WhichOneof("entity") for member_entity in entities] == ["action_profile_member"]
            push = p4r.SetForwardingPipelineConfigRequest(
                device_id=1, election_id=U128.encode(1), role="lag", action=3, config=mini_config()
            )
            code, words = await code_of(with_timeout(role_client.stub.SetForwardingPipelineConfig(push)))
            assert code is grpc.StatusCode.PERMISSION_DENIED and "may not push" in words
            assert len(await full_client.read(entries_of(BY_MAC))) == 1

    asyncio.run(check())
