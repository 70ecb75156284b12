"""Hostile requests: random bytes and mutated messages on every RPC. The daemon answers the next client as before."""

from __future__ import annotations

import asyncio
import random

import grpc
import pytest
from daemon_kit import mini_config, primary_of, running_daemon, soon, use_mini_program
from finsy.proto import U128, gnmi, p4r
from mini_program import BY_ACL, BY_HASH, BY_MAC, FORWARD, SPRAY

ROUNDS = 150
P4RUNTIME, GNMI = "/p4.v1.P4Runtime/", "/gnmi.gNMI/"
UNARY = [P4RUNTIME + name for name in ("Write", "SetForwardingPipelineConfig", "GetForwardingPipelineConfig")]
UNARY += [GNMI + name for name in ("Get", "Set", "Capabilities")]


@pytest.fixture(autouse=True)
def _mini(monkeypatch):
    use_mini_program(monkeypatch)


def seeds() -> dict[str, bytes]:
    """A well-formed message for each RPC."""
    write = p4r.WriteRequest(device_id=1, election_id=U128.encode(1))
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


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, cut, doubled or made up."""
    out = bytearray(data or rng.randbytes(8))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(4):
            case 0:
                out[at:at] = rng.randbytes(rng.randint(1, 6))
            case 1:
                del out[at : at + rng.randint(1, 6)]
            case 2:
                out[at : at + 1] = bytes([rng.randrange(256)])
            case _:
                out[at:at] = out[at : at + rng.randint(1, 20)]
    return bytes(out)


async def call(channel: grpc.aio.Channel, method: str, data: bytes) -> None:
    """One call with raw bytes; whatever it answers, it must answer."""
    try:
        if method in UNARY:
            await soon(channel.unary_unary(method)(data))
        elif method.endswith("Read"):
            async for _ in channel.unary_stream(method)(data):
                pass
        else:
            stream = channel.stream_stream(method)()
            await stream.write(data)
            await stream.done_writing()
            if method.endswith("StreamChannel"):
                while await soon(stream.read()) is not grpc.aio.EOF:
                    pass
            stream.cancel()
    except grpc.aio.AioRpcError as error:
        assert "internal error" not in (error.details() or ""), (method, data, error)
        unexpected = "Unexpected" in (error.details() or "")
        assert not unexpected, (method, data, error)


def test_mutated_requests__never_break_the_server():
    async def check():
        rng = random.Random(2)
        messages = seeds()
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            async with grpc.aio.insecure_channel(f"127.0.0.1:{daemon.p4runtime_port}") as channel:
                for _ in range(ROUNDS):
                    for method, data in messages.items():
                        bad = mutated(data, rng)
                        if method.endswith("Set") and b"other" in bad:
                            continue
                        await call(channel, method, bad)
            assert daemon.registry.named("s1").on
            async with primary_of(daemon, election_id=1 << 127) as late:
                await late.set_pipeline(mini_config())
                assert len(await late.read(p4r.Entity(table_entry=p4r.TableEntry()))) == 1

    asyncio.run(check())
