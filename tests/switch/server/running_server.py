"""A daemon on ephemeral loopback ports and bare P4Runtime clients, for the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import grpc
from finsy.proto import U128, p4r, p4r_grpc, rpc_code, rpc_status

from mrc_testbed.controller.p4runtime.grpc_streams import StatusKeepingStream
from mrc_testbed.switch.server.app import Daemon, ServerSettings
from mrc_testbed.switch.server.p4runtime.errors import RpcError
from mrc_testbed.switch.server.p4runtime.pipeline import Compiler
from tests.switch.mini_program import mini

TIMEOUT_S = 20.0
"""Patience for an answer; passing tests take milliseconds."""
MINI_CONFIG = b"mini"


async def with_timeout(awaitable):
    return await asyncio.wait_for(awaitable, TIMEOUT_S)


@asynccontextmanager
async def running_daemon(control: Path | None = None, devices: int = 1) -> AsyncIterator[Daemon]:
    """Run a daemon with devices s1 .. sN (ids 1 .. N) without ports."""
    settings = ServerSettings(p4runtime="127.0.0.1:0", gnmi="127.0.0.1:0", control=control)
    async with Daemon(settings) as daemon:
        for number in range(1, devices + 1):
            await daemon.add_device(f"s{number}", number, {})
        yield daemon


def use_mini_program(monkeypatch) -> None:
    """Let the daemon take MINI_CONFIG for the hand-written program of mini_program.c."""

    async def compile_mini(self: Compiler, config: bytes) -> SimpleNamespace:
        if config != MINI_CONFIG:
            raise RpcError(rpc_code.INVALID_ARGUMENT, "only the hand-written program compiles here")
        return mini()

    monkeypatch.setattr(Compiler, "compile", compile_mini)


class Client:
    """A controller with bare stubs: one stream, and requests with its election id."""

    def __init__(self, channel: grpc.aio.Channel, device_id: int, election_id: int) -> None:
        self.stub = p4r_grpc.P4RuntimeStub(channel)
        self.device_id = device_id
        self.election_id = election_id
        self.stream = StatusKeepingStream(self.stub.StreamChannel())

    async def send_bid(self, election_id: int | None = None) -> None:
        """Send an arbitration message; `election_id` replaces the client's own."""
        if election_id is not None:
            self.election_id = election_id
        update = p4r.MasterArbitrationUpdate(device_id=self.device_id, election_id=U128.encode(self.election_id))
        await self.stream.write(p4r.StreamMessageRequest(arbitration=update))

    async def next_message(self) -> p4r.StreamMessageResponse:
        """Return the next message of the stream; raises AioRpcError when the server closed it with an error."""
        message = await with_timeout(self.stream.read())
        assert message is not grpc.aio.EOF, "the stream was closed"
        return message

    async def next_status(self) -> int:
        """Return the google.rpc code of the next arbitration message."""
        return (await self.next_message()).arbitration.status.code

    async def set_pipeline(self, config: p4r.ForwardingPipelineConfig, action: int = 3) -> None:
        """Set the pipeline; the default `action` is VERIFY_AND_COMMIT."""
        await with_timeout(
            self.stub.SetForwardingPipelineConfig(
                p4r.SetForwardingPipelineConfigRequest(
                    device_id=self.device_id, election_id=U128.encode(self.election_id), action=action, config=config
                )
            )
        )

    async def write(self, *updates: p4r.Update, **fields) -> None:
        request = p4r.WriteRequest(
            device_id=self.device_id, election_id=U128.encode(self.election_id), updates=updates, **fields
        )
        await with_timeout(self.stub.Write(request))

    async def read(self, *entities: p4r.Entity) -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=self.device_id, entities=entities)
        return [entity async for response in self.stub.Read(request) for entity in response.entities]


@asynccontextmanager
async def client_of(daemon: Daemon, device_id: int = 1, election_id: int = 1) -> AsyncIterator[Client]:
    """Open a client on a connection of its own, before its first request."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_metadata_size", 1 << 16)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{daemon.p4runtime_port}", options=options) as channel:
        yield Client(channel, device_id, election_id)


@asynccontextmanager
async def primary_of(daemon: Daemon, device_id: int = 1, election_id: int = 1) -> AsyncIterator[Client]:
    """Open a client that has become primary."""
    async with client_of(daemon, device_id, election_id) as client:
        await client.send_bid()
        assert await client.next_status() == 0
        yield client


def mini_config(cookie: int = 7) -> p4r.ForwardingPipelineConfig:
    return p4r.ForwardingPipelineConfig(
        p4info=mini().p4info,
        p4_device_config=MINI_CONFIG,
        cookie=p4r.ForwardingPipelineConfig.Cookie(cookie=cookie),
    )


def error_details(error: grpc.aio.AioRpcError) -> list[p4r.Error]:
    """Return the p4.v1.Error of each update of a failed Write."""
    status = rpc_status.Status()
    for key, value in error.trailing_metadata():
        if key == "grpc-status-details-bin":
            status.ParseFromString(value)
    out = []
    for detail in status.details:
        out.append(p4r.Error())
        detail.Unpack(out[-1])
    return out
