"""Clients that compete, and clients that die: SIGKILL in the middle of a Write of 10,000 entries."""

from __future__ import annotations

import asyncio
import signal
import sys

import grpc
import pytest
from finsy.proto import rpc_code

from tests.switch.mini_program import BY_ADDR, BY_MAC, FORWARD
from tests.switch.server.p4runtime_entities import code_of, entries_of, insert, mac_entry
from tests.switch.server.running_server import (
    client_of,
    mini_config,
    primary_of,
    running_daemon,
    soon,
    use_mini_program,
)

DOOMED = f"""
import sys
import grpc
from finsy.proto import U128, p4r, p4r_grpc

stub = p4r_grpc.P4RuntimeStub(grpc.insecure_channel("127.0.0.1:" + sys.argv[1]))

def asks():
    update = p4r.MasterArbitrationUpdate(device_id=1, election_id=U128.encode(5))
    yield p4r.StreamMessageRequest(arbitration=update)
    while True:
        sys.stdin.readline()

answers = stub.StreamChannel(asks())
assert next(answers).arbitration.status.code == 0
request = p4r.WriteRequest(device_id=1, election_id=U128.encode(5))
for number in range(1, 10_001):
    entry = request.updates.add(type=p4r.Update.INSERT).entity.table_entry
    entry.table_id = {BY_ADDR}
    match = entry.match.add(field_id=1).lpm
    match.value, match.prefix_len = number.to_bytes(2, "big") + bytes(2), 16
    entry.action.action.action_id = {FORWARD}
    entry.action.action.params.add(param_id=1, value=bytes([1]))
print("primary", flush=True)
while True:
    stub.Write(request)
    request.updates[0].type = p4r.Update.MODIFY
    for one in request.updates:
        one.type = p4r.Update.MODIFY
"""


@pytest.fixture(autouse=True)
def _mini(monkeypatch):
    use_mini_program(monkeypatch)


def test_killed_client__the_backup_hears_takes_over_and_finds_whole_entries():
    async def check():
        async with running_daemon() as daemon, client_of(daemon, election_id=4) as backup:
            async with primary_of(daemon, election_id=3) as first:
                await first.set_pipeline(mini_config())
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                DOOMED,
                str(daemon.p4runtime_port),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            assert await soon(child.stdout.readline()) == b"primary\n"
            await backup.ask()
            assert await backup.hear_status() == rpc_code.ALREADY_EXISTS
            while not await backup.read(entries_of(BY_ADDR)):
                await asyncio.sleep(0.01)
            child.send_signal(signal.SIGKILL)
            await child.wait()
            assert await backup.hear_status() == rpc_code.NOT_FOUND
            await backup.ask(6)
            assert await backup.hear_status() == rpc_code.OK
            found = await backup.read(entries_of(BY_ADDR))
            assert len(found) == 10_000  # a Write that has begun is carried out
            assert all(one.table_entry.action.action.params[0].value == b"\1" for one in found)
            await backup.write(insert(mac_entry(b"\1")))

    asyncio.run(check())


def test_two_controllers__writes_of_the_old_primary_end_before_the_new_one_begins():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon, election_id=1) as old:
            await old.set_pipeline(mini_config())
            entries = [insert(mac_entry(number.to_bytes(2, "big"))) for number in range(256, 1256)]
            writing = [asyncio.ensure_future(old.write(*entries[at : at + 500])) for at in (0, 500)]
            await asyncio.sleep(0)
            async with primary_of(daemon, election_id=2) as new:
                assert (await old.hear()).arbitration.status.code == rpc_code.ALREADY_EXISTS
                done = await asyncio.gather(*writing, return_exceptions=True)
                left = len(await new.read(entries_of(BY_MAC)))
                assert left == 500 * done.count(None)
                refused = [one for one in done if one is not None]
                assert all(one.code() is grpc.StatusCode.PERMISSION_DENIED for one in refused)
                code, words = await code_of(old.write(insert(mac_entry(b"\1"))))
                assert code is grpc.StatusCode.PERMISSION_DENIED and "the primary has 2" in words
                assert len(await old.read(entries_of(BY_MAC))) == left  # who cannot write may read

    asyncio.run(check())
