"""Access to the switches' servers.

The Unix socket is for its owner, TCP for clients with the token.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket

import grpc
import pytest
from finsy import GNMIClient, P4Client
from finsy.proto import gnmi, gnmi_grpc, p4r, p4r_grpc

from mrc_testbed.controller.p4runtime.grpc_streams import StatusKeepingStream
from mrc_testbed.switch.server.app import Daemon, ServerSettings
from mrc_testbed.switch.server.grpc_server import AddressError, ListenAddress, parse_address, read_token

LIMIT_S = 20.0


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text(secrets.token_hex(32) + "\n")
    return path


@pytest.fixture
def settings(tmp_path, token_file):
    return ServerSettings(
        f"127.0.0.1:0,unix:{tmp_path}/p4 runtime.sock", f"127.0.0.1:0,unix:{tmp_path}/gnmi.sock", token_file=token_file
    )


async def ask_all(address, metadata=None):
    """Call every RPC; return the status code of each."""
    codes = {}
    async with grpc.aio.insecure_channel(address) as channel:
        switch, ports = p4r_grpc.P4RuntimeStub(channel), gnmi_grpc.gNMIStub(channel)

        async def stream(call, request):
            requests = StatusKeepingStream(call(timeout=LIMIT_S, metadata=metadata))
            await requests.write(request)
            await requests.read()

        async def read():
            async for _ in switch.Read(p4r.ReadRequest(device_id=1), timeout=LIMIT_S, metadata=metadata):
                pass

        bid = p4r.StreamMessageRequest(arbitration=p4r.MasterArbitrationUpdate(device_id=1))
        calls = {
            "Write": lambda: switch.Write(p4r.WriteRequest(device_id=1), timeout=LIMIT_S, metadata=metadata),
            "Capabilities": lambda: switch.Capabilities(p4r.CapabilitiesRequest(), timeout=LIMIT_S, metadata=metadata),
            "Read": read,
            "StreamChannel": lambda: stream(switch.StreamChannel, bid),
            "gNMI Set": lambda: ports.Set(gnmi.SetRequest(), timeout=LIMIT_S, metadata=metadata),
            "gNMI Get": lambda: ports.Get(gnmi.GetRequest(), timeout=LIMIT_S, metadata=metadata),
            "gNMI Subscribe": lambda: stream(ports.Subscribe, gnmi.SubscribeRequest()),
        }
        # Which error a request gets is not the subject here: only whether it passed authentication
        for name, call in calls.items():
            try:
                await call()
                codes[name] = grpc.StatusCode.OK
            except grpc.aio.AioRpcError as error:
                codes[name] = error.code()
    return codes


def test_tcp__without_the_token_nothing_is_answered_and_with_it_all_is(settings, token_file):
    token = token_file.read_text().strip()
    wrong_metadata = [
        None,
        [("authorization", "Bearer ")],
        [("authorization", f"Bearer {token[:-1]}")],
        [("authorization", token)],
        [("authorization", f"bearer {token}")],
        [("x-authorization", f"Bearer {token}")],
        [("authorization", f"Bearer {token}x")],
        [("username", token), ("password", token[1:])],
    ]

    async def check():
        async with Daemon(settings) as daemon:
            await daemon.add_device("s1", 1, {})
            address = f"127.0.0.1:{daemon.p4runtime_port}"
            for metadata in wrong_metadata:
                assert set((await ask_all(address, metadata)).values()) == {grpc.StatusCode.UNAUTHENTICATED}
            for metadata in ([("authorization", f"Bearer {token}")], [("username", "any"), ("password", token)]):
                codes = await ask_all(address, metadata)
                assert grpc.StatusCode.UNAUTHENTICATED not in codes.values()
                assert codes["Capabilities"] is grpc.StatusCode.OK

    asyncio.run(check())


def test_unix__needs_no_token_is_for_its_owner_and_takes_finsy(settings, tmp_path):
    async def check():
        async with Daemon(settings) as daemon:
            await daemon.add_device("s1", 1, {})
            address = f"unix:{tmp_path}/p4 runtime.sock"
            assert grpc.StatusCode.UNAUTHENTICATED not in (await ask_all(address)).values()
            for name in ("p4 runtime.sock", "gnmi.sock"):
                assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
            async with P4Client(address) as client:
                assert (await client.request(p4r.CapabilitiesRequest())).p4runtime_api_version
            async with GNMIClient(f"unix:{tmp_path}/gnmi.sock") as ports:
                assert await ports.capabilities()

    asyncio.run(check())


def test_unix__alone_listens_on_no_port(tmp_path):
    async def check():
        async with Daemon(ServerSettings(f"unix:{tmp_path}/a", f"unix:{tmp_path}/b")) as daemon:
            assert (daemon.p4runtime_port, daemon.gnmi_port) == (0, 0)
            assert grpc.StatusCode.UNAVAILABLE not in (await ask_all(f"unix:{tmp_path}/a")).values()

    asyncio.run(check())


def test_unix__file_of_a_dead_server_is_replaced_and_a_living_one_kept(tmp_path):
    settings = ServerSettings(f"unix:{tmp_path}/a", f"unix:{tmp_path}/b")
    with socket.socket(socket.AF_UNIX) as stale_socket:
        stale_socket.bind(str(tmp_path / "a"))

    async def check():
        async with Daemon(settings) as daemon:
            assert daemon.registry is not None
            with pytest.raises(AddressError, match="another process answers there"):
                async with Daemon(settings):
                    pass

    asyncio.run(check())


@pytest.mark.parametrize(
    ("text", "address"),
    {
        "[::1]:9559": ("::1", 9559, None),
        ":1": ("127.0.0.1", 1, None),
        "unix:/a": ("", 0, "/a"),
        "h:1,unix:/a,b:c d": ("h", 1, "/a,b:c d"),
    }.items(),
)
def test_parse_address__takes(text, address):
    parsed_address = parse_address(text, "--gnmi")
    assert parsed_address == ListenAddress(*address[:2], parsed_address.socket) and str(
        parsed_address.socket or ""
    ) == (address[2] or "")


@pytest.mark.parametrize("text", ["", "9559", "h:1unix:/a", "unix:", "unix:a", "h:1,", ",unix:/a", "h:99999", "h:1,x"])
def test_parse_address__refuses(text):
    with pytest.raises(AddressError, match=r"--gnmi: .*want"):
        parse_address(text, "--gnmi")


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [("short", 0o600, "32 letters"), ("", 0o600, "32"), ("a" * 64, 0o644, "other users"), ("ä" * 64, 0o600, "ASCII")],
)
def test_read_token__refuses_what_guards_nothing(tmp_path, text, mode, says):
    path = tmp_path / "token"
    path.write_text(text)
    os.chmod(path, mode)
    with pytest.raises(AddressError, match=says):
        read_token(path)
    with pytest.raises(AddressError, match="No such file"):
        read_token(tmp_path / "missing")
