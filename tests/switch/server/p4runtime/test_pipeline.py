"""SetForwardingPipelineConfig with the real compiler.

What it refuses, and that a fabric compiles once. No root.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import grpc
import pytest
from finsy.proto import p4r

from mrc_testbed.switch.compiler import CompiledProgram, compile_program
from mrc_testbed.switch.server.p4runtime import pipeline
from tests.repository import P4SRC
from tests.switch.server.running_server import Client, primary_of, running_daemon


@pytest.fixture(scope="module")
def srv6() -> CompiledProgram:
    return compile_program(P4SRC / "srv6.p4")


def config_of(program: CompiledProgram) -> p4r.ForwardingPipelineConfig:
    return p4r.ForwardingPipelineConfig(p4info=program.p4info, p4_device_config=program.config)


async def refusal(client: Client, config: p4r.ForwardingPipelineConfig) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.set_pipeline(config)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    return caught.value.details()


def test_config__runs_and_is_read_back(srv6):
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(config_of(srv6))
            get = p4r.GetForwardingPipelineConfigRequest(device_id=1)
            assert (await client.stub.GetForwardingPipelineConfig(get)).config == config_of(srv6)
            assert daemon.registry.with_name("s1").stats()["program"] == "srv6"

    asyncio.run(check())


def test_config__errors_carry_file_line_and_column(srv6):
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(config_of(srv6))
            config = config_of(srv6)
            config.p4_device_config = srv6.config.replace(b"usid_next.apply();", b"usid_next.apply()")
            text = await refusal(client, config)
            assert "srv6.p4:" in text.split()[0] and text.split()[0].count(":") == 3
            assert daemon.registry.with_name("s1").pipeline is not None  # the old one goes on

    asyncio.run(check())


def test_config__what_is_no_program_is_refused_with_the_reason(srv6):
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            for program_text, words in {b'{"program": "x"}': "BMv2", b"": "empty", b"\xff\xfe": "UTF-8"}.items():
                bad_config = config_of(srv6)
                bad_config.p4_device_config = program_text
                assert words in await refusal(client, bad_config)
            for nested_text in (b"(" * 5000, b"control c() { apply { " + b"{" * 3000):
                bad_config.p4_device_config = nested_text
                assert await refusal(client, bad_config)
            no_info = config_of(srv6)
            no_info.ClearField("p4info")
            assert "no p4info" in await refusal(client, no_info)

    asyncio.run(check())


def test_config__of_another_program_is_refused_by_name(srv6):
    async def check():
        spray = compile_program(P4SRC / "spray.p4")
        async with running_daemon() as daemon, primary_of(daemon) as client:
            mismatched_config = p4r.ForwardingPipelineConfig(p4info=spray.p4info, p4_device_config=srv6.config)
            assert "in the sent one" in await refusal(client, mismatched_config)

    asyncio.run(check())


def test_sixteen_devices__compile_once(srv6, monkeypatch):
    calls = []
    compile_one = pipeline._compile

    def counting(config: bytes) -> CompiledProgram:
        calls.append(config)
        return compile_one(config)

    monkeypatch.setattr(pipeline, "_compile", counting)

    async def check():
        async with running_daemon(devices=16) as daemon, AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(primary_of(daemon, number)) for number in range(1, 17)]
            await asyncio.gather(*(client.set_pipeline(config_of(srv6)) for client in clients))
            assert len(calls) == 1

    asyncio.run(check())
