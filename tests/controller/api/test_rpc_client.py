"""Requests to other parts: every way to fail, and pauses between attempts."""

import asyncio

import pytest

from mrc_testbed.controller.api.rpc_client import pause_s, request
from mrc_testbed.ipc.rpc import JsonlError
from tests.controller.sources.peers import Peer


def test_ask__every_way_to_fail_is_a_jsonl_error(tmp_path):
    async def story():
        with pytest.raises(JsonlError, match="No such file"):
            await request(tmp_path / "none.sock", "x")
        async with Peer(tmp_path / "a.sock", {"x": {"y": 1}}):
            assert await request(tmp_path / "a.sock", "x") == {"y": 1}
            with pytest.raises(JsonlError, match="no op 'z'"):
                await request(tmp_path / "a.sock", "z")

        # What a server of asyncio has open at its end is told of by another test.
        end_of_mute = asyncio.Event()

        async def mute(reader, writer):
            await reader.read()
            writer.close()
            await writer.wait_closed()
            end_of_mute.set()

        async def babble(reader, writer):
            writer.write(b"[1, 2\n")
            await writer.drain()
            writer.close()

        for serve, match in ((mute, "no answer in 0.05 s"), (babble, "JSON")):
            server = await asyncio.start_unix_server(serve, str(tmp_path / f"{serve.__name__}.sock"))
            with pytest.raises(JsonlError, match=match):
                await request(tmp_path / f"{serve.__name__}.sock", "x", timeout_s=0.05)
            server.close()
        await end_of_mute.wait()

    asyncio.run(story())


def test_pauses__grow_and_are_not_the_same_for_all():
    pauses = [pause_s(attempt) for attempt in range(50)]
    assert max(pauses[:1]) < 0.13 and all(0.7 < pause < 1.3 for pause in pauses[4:])
    assert len(set(pauses)) == len(pauses)
