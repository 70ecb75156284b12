"""Hostile requests: random bytes and mutated messages on every RPC.

The daemon answers the next client as before.
"""

from __future__ import annotations

import asyncio
import os
import random

import grpc
import pytest
from finsy.proto import U128, gnmi, p4r
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.refusals import may_raise
from tests.switch.mini_program import BY_ACL, BY_HASH, BY_MAC, FORWARD, SPRAY
from tests.switch.server.p4runtime.test_service_invalid import BAD_UPDATES, config, ids, prepare, update
from tests.switch.server.running_server import (
    error_details,
    mini_config,
    primary_of,
    running_daemon,
    use_mini_program,
    with_timeout,
)

ROUNDS = 100
P4RUNTIME, GNMI = "/p4.v1.P4Runtime/", "/gnmi.gNMI/"
UNARY = [P4RUNTIME + name for name in ("Write", "SetForwardingPipelineConfig", "GetForwardingPipelineConfig")]
UNARY += [GNMI + name for name in ("Get", "Set", "Capabilities")]


@pytest.fixture
def _mini(monkeypatch):
    use_mini_program(monkeypatch)


def seeds() -> dict[str, bytes]:
    """Return a well-formed message for each RPC."""
    write = p4r.WriteRequest(device_id=1, election_id=U128.encode(1))
    # One update per kind of table, so that mutations reach each decoder
    for table_id in (BY_MAC, BY_ACL, BY_HASH):
        entry = p4r.TableEntry(table_id=table_id, priority=3)
        entry.match.add(field_id=1).ternary.value = b"\1\2"
        entry.action.action.action_id = FORWARD
        write.updates.add(type=p4r.Update.INSERT, entity=p4r.Entity(table_entry=entry))
    group = p4r.ActionProfileGroup(action_profile_id=SPRAY, group_id=1)
    group.members.add(member_id=1, weight=1, watch_port=b"\1")
    write.updates.add(type=p4r.Update.INSERT, entity=p4r.Entity(action_profile_group=group))
    read = p4r.ReadRequest(device_id=1, entities=[update.entity for update in write.updates])
    packet = p4r.PacketOut(payload=bytes(60))
    packet.metadata.add(metadata_id=1, value=b"\1")
    subscribe = gnmi.SubscribeRequest()
    elems = [gnmi.PathElem(name="interfaces"), gnmi.PathElem(name="interface", key={"name": "*"})]
    subscribe.subscribe.subscription.add(path=gnmi.Path(elem=elems), mode=gnmi.ON_CHANGE)
    arbitration = p4r.MasterArbitrationUpdate(device_id=1, election_id=U128.encode(9))
    return {
        P4RUNTIME + "Write": write.SerializeToString(),
        P4RUNTIME + "Read": read.SerializeToString(),
        P4RUNTIME + "StreamChannel": p4r.StreamMessageRequest(arbitration=arbitration).SerializeToString(),
        P4RUNTIME + "SetForwardingPipelineConfig": p4r.SetForwardingPipelineConfigRequest(
            device_id=1,
            election_id=U128.encode(1),
            action=3,
            config=p4r.ForwardingPipelineConfig(p4info=mini_config().p4info, p4_device_config=b"mini"),
        ).SerializeToString(),
        P4RUNTIME + "GetForwardingPipelineConfig": b"\x08\x01",
        GNMI + "Get": gnmi.GetRequest(path=[gnmi.Path(elem=elems)]).SerializeToString(),
        GNMI + "Set": b"",
        GNMI + "Capabilities": b"",
        GNMI + "Subscribe": subscribe.SerializeToString(),
    }


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return data with a few bytes changed, cut, doubled or made up."""
    out = bytearray(data or rng.randbytes(8))
    for _ in range(rng.randint(1, 4)):
        index = rng.randrange(len(out) + 1)
        match rng.randrange(4):
            case 0:
                out[index:index] = rng.randbytes(rng.randint(1, 6))
            case 1:
                del out[index : index + rng.randint(1, 6)]
            case 2:
                out[index : index + 1] = bytes([rng.randrange(256)])
            case _:
                out[index:index] = out[index : index + rng.randint(1, 20)]
    return bytes(out)


async def call(channel: grpc.aio.Channel, method: str, data: bytes) -> None:
    """Call an RPC with raw bytes; any answer will do, but there must be one."""
    with may_raise(grpc.aio.AioRpcError) as errors:
        if method in UNARY:
            await with_timeout(channel.unary_unary(method)(data))
        elif method.endswith("Read"):
            async for _ in channel.unary_stream(method)(data):
                pass
        else:
            stream = channel.stream_stream(method)()
            await stream.write(data)
            await stream.done_writing()
            if method.endswith("StreamChannel"):
                while await with_timeout(stream.read()) is not grpc.aio.EOF:
                    pass
            stream.cancel()
    for error in errors:
        assert "internal error" not in (error.details() or ""), (method, data, error)
        unexpected = "Unexpected" in (error.details() or "")
        assert not unexpected, (method, data, error)


@pytest.mark.usefixtures("_mini")
def test_mutated_requests__never_break_the_server():
    async def check():
        rng = random.Random(2)
        messages = seeds()
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            async with grpc.aio.insecure_channel(f"127.0.0.1:{daemon.p4runtime_port}") as channel:
                for _ in range(ROUNDS):
                    for method, data in messages.items():
                        mutated_data = mutate(data, rng)
                        if method.endswith("Set") and b"other" in mutated_data:
                            continue
                        await call(channel, method, mutated_data)
            assert daemon.registry.with_name("s1").on
            async with primary_of(daemon, election_id=1 << 127) as other_primary:
                await other_primary.set_pipeline(mini_config())
                assert len(await other_primary.read(p4r.Entity(table_entry=p4r.TableEntry()))) == 1

    asyncio.run(check())


# ---- well-formed messages with other values ------------------------------------------------------------------------

FIELD_ROUNDS = int(os.environ.get("MRC_FUZZ_ROUNDS", "100"))
"""Rounds of the test below; 10,000 take some minutes."""
NUMBERS = (0, 1, 2, 3, 5, 77, 510, 511, 1 << 16, (1 << 31) - 1, -1, -(1 << 31))
BYTES = (b"", b"\0", b"\1", b"\0\0\0\1", b"\xff", b"\x01\xff", bytes(5), b"\xff" * 17, bytes(3000), b"5", b"eth0")


def random_value(field: FieldDescriptor, rng: random.Random) -> object:
    """Return a random value for a scalar field."""
    match field.cpp_type:
        case field.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case field.CPPTYPE_STRING:
            return rng.choice(BYTES) if field.type == field.TYPE_BYTES else rng.choice(["", "x", "lag"])
        case field.CPPTYPE_ENUM:
            return rng.choice((0, 1, 2, 3, 4, 5, 9))
        case _:
            value = rng.choice(NUMBERS) if rng.random() < 0.7 else rng.getrandbits(31)
            unsigned = field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64)
            return abs(value) if unsigned else value


def change(message: Message, rng: random.Random, ids: list[int]) -> None:
    """Change one field of a message: another value, cleared, set, doubled, or an id of the program."""
    while True:
        field = rng.choice(message.DESCRIPTOR.fields)
        part = getattr(message, field.name)
        if field.is_repeated and field.message_type is not None:
            # The walk goes one level down per turn and ends at a scalar, a cleared field or an empty message
            if not len(part) or rng.random() < 0.2:
                part.add()
            elif rng.random() < 0.3:
                part.add().CopyFrom(part[0])
            elif rng.random() < 0.1:
                del part[rng.randrange(len(part))]
            message = part[rng.randrange(len(part))] if len(part) else message
        elif field.message_type is not None:
            if rng.random() < 0.1:
                message.ClearField(field.name)
                return
            part.SetInParent()
            message = part
        elif field.is_repeated:
            part.append(random_value(field, rng))
            return
        else:
            is_id = field.name.endswith("_id") and field.cpp_type != field.CPPTYPE_STRING
            setattr(message, field.name, rng.choice(ids) if is_id and rng.random() < 0.7 else random_value(field, rng))
            return
        if not message.DESCRIPTOR.fields:
            return


def test_changed_messages__are_done_or_refused_by_name(caplog):
    """Writes, reads and stream messages of a program with everything, each with some fields changed."""
    rng, known_ids = random.Random(3), [*ids().values(), *range(4)]

    async def send(client, request: Message) -> None:
        with may_raise(grpc.aio.AioRpcError) as errors:
            if isinstance(request, p4r.ReadRequest):
                async for _ in client.stub.Read(request):
                    pass
            else:
                await with_timeout(client.stub.Write(request))
        for error in errors:
            details = [*map(str, error_details(error)), error.details() or ""]
            assert error.code() is not grpc.StatusCode.INTERNAL, (request, error)
            assert not any("internal" in detail.lower() or "Traceback" in detail for detail in details), (
                request,
                error,
            )

    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await prepare(client)
            # BAD_UPDATES are well-formed messages with one fault each: near enough to valid ones to reach deep checks
            entities = [update(kind, entity) for kind, entity, _, _ in BAD_UPDATES.values()]
            for _ in range(FIELD_ROUNDS):
                request = p4r.WriteRequest(device_id=1, election_id=U128.encode(1), atomicity=rng.randrange(3))
                for seed_update in rng.sample(entities, rng.randint(1, 4)):
                    request.updates.add().CopyFrom(seed_update)
                    for _ in range(rng.randint(1, 3)):
                        change(request.updates[-1], rng, known_ids)
                await send(client, request)
                read_request = p4r.ReadRequest(
                    device_id=1, entities=[write_update.entity for write_update in request.updates]
                )
                change(read_request.entities[0], rng, known_ids)
                await send(client, read_request)
                message = p4r.StreamMessageRequest()
                getattr(message, rng.choice(["packet", "digest_ack", "other"])).SetInParent()
                change(message, rng, known_ids)
                message.ClearField("arbitration")
                await client.stream.write(message)
            await client.set_pipeline(config())
            assert len(await client.read(p4r.Entity(table_entry=p4r.TableEntry()))) == 4

    asyncio.run(check())
    assert not [record for record in caplog.records if record.exc_info or record.levelname in ("ERROR", "CRITICAL")]
