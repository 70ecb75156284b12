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
    use_mini_program,
    with_timeout,
)

KILLED_CLIENT = f"""
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
            async with primary_of(daemon, election_id=3) as previous_primary:
                await previous_primary.set_pipeline(mini_config())
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                KILLED_CLIENT,
                str(daemon.p4runtime_port),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            assert await with_timeout(child.stdout.readline()) == b"primary\n"
            await backup.send_bid()
            assert await backup.next_status() == rpc_code.ALREADY_EXISTS
            while not await backup.read(entries_of(BY_ADDR)):
                await asyncio.sleep(0.01)
            child.send_signal(signal.SIGKILL)
            await child.wait()
            assert await backup.next_status() == rpc_code.NOT_FOUND
            await backup.send_bid(6)
            assert await backup.next_status() == rpc_code.OK
            entries = await backup.read(entries_of(BY_ADDR))
            assert len(entries) == 10_000  # a Write that has begun is carried out
            assert all(entity.table_entry.action.action.params[0].value == b"\1" for entity in entries)
            await backup.write(insert(mac_entry(b"\1")))

    asyncio.run(check())


def test_two_controllers__writes_of_the_old_primary_end_before_the_new_one_begins():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon, election_id=1) as previous_primary:
            await previous_primary.set_pipeline(mini_config())
            entries = [insert(mac_entry(number.to_bytes(2, "big"))) for number in range(256, 1256)]
            writing = [
                asyncio.ensure_future(previous_primary.write(*entries[start : start + 500])) for start in (0, 500)
            ]
            await asyncio.sleep(0)
            async with primary_of(daemon, election_id=2) as new_primary:
                assert (await previous_primary.next_message()).arbitration.status.code == rpc_code.ALREADY_EXISTS
                results = await asyncio.gather(*writing, return_exceptions=True)
                entry_count = len(await new_primary.read(entries_of(BY_MAC)))
                assert entry_count == 500 * results.count(None)
                errors = [result for result in results if result is not None]
                assert all(error.code() is grpc.StatusCode.PERMISSION_DENIED for error in errors)
                code, words = await code_of(previous_primary.write(insert(mac_entry(b"\1"))))
                assert code is grpc.StatusCode.PERMISSION_DENIED and "the primary has 2" in words
                assert len(await previous_primary.read(entries_of(BY_MAC))) == entry_count  # who cannot write may read

    asyncio.run(check())
