"""Clients of a fabric's doors, as their makers have them.

`door_clients.py FOLDER CLIENT...` prints who got in.

finsy and pygnmi describe gNMI under one name, so that a process can have one of them.

The owner of the run folder runs it for docs/security.md's recipes; another user for what must be refused.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import urllib.request
from pathlib import Path

import grpc

from mrc_testbed.ipc.controller_client import Northbound

if all("pygnmi" in word for word in sys.argv[2:]) and sys.argv[2:]:
    from pygnmi.client import gNMIclient
else:
    from finsy import GNMIClient, GNMIPath, GRPCCredentialsTLS, P4Client
    from finsy.proto import gnmi, p4r

    from mrc_testbed.controller.p4runtime.grpc_streams import StatusKeepingP4Client

R = Path(sys.argv[1])
P4RUNTIME, GNMI, API = "127.0.0.1:9559", "127.0.0.1:9339", "127.0.0.1:9340"


def token() -> str:
    return (R / "token").read_text().strip()


class ShowToken(grpc.AuthMetadataPlugin):
    """The token in the metadata of every call."""

    def __call__(self, _context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        callback((("authorization", f"Bearer {token()}"),), None)


async def finsy_p4runtime(address: str, credentials: GRPCCredentialsTLS | None = None) -> None:
    async with P4Client(address, credentials) as client:
        await client.request(p4r.CapabilitiesRequest())


async def finsy_gnmi(address: str) -> None:
    async with GNMIClient(address) as client:
        await client.capabilities()


async def become_primary() -> None:
    async with StatusKeepingP4Client(P4RUNTIME, wait_for_ready=False) as client:
        bid = p4r.MasterArbitrationUpdate(device_id=1)
        bid.election_id.high = 1 << 40
        await client.send(p4r.StreamMessageRequest(arbitration=bid))
        await client.receive()


async def set_port() -> None:
    async with GNMIClient(GNMI) as client:
        path = GNMIPath("interfaces/interface[name=p0-t0-0-eth2]/config/enabled")
        await client.set(update=[(path, gnmi.TypedValue(bool_val=False))])


def with_tls(shown: bool) -> GRPCCredentialsTLS:
    return GRPCCredentialsTLS(
        cacert=R / "tls" / "cert.pem", cert=None, private_key=None, call_credentials=ShowToken() if shown else None
    )


def call_api(path: str, *, shown: bool = False, body: bytes | None = None, tls: bool = False) -> None:
    headers = {"Authorization": f"Bearer {token()}"} if shown else {}
    address = f"{'https' if tls else 'http'}://{API}{path}"
    request = urllib.request.Request(address, body, {**headers, "Content-Type": "application/json"})
    trusting = ssl.create_default_context(cafile=str(R / "tls" / "cert.pem")) if tls else None
    urllib.request.urlopen(request, timeout=10, context=trusting).close()


def pygnmi(target: tuple[str, int], **options: object) -> None:
    with gNMIclient(target=target, **options) as client:
        client.capabilities()


CLIENTS = {
    "P4Runtime by TCP": lambda: asyncio.run(finsy_p4runtime(P4RUNTIME)),
    "P4Runtime primary by TCP": lambda: asyncio.run(become_primary()),
    "P4Runtime by its socket": lambda: asyncio.run(finsy_p4runtime(f"unix:{R}/p4runtime.sock")),
    "P4Runtime by TLS": lambda: asyncio.run(finsy_p4runtime(P4RUNTIME, with_tls(False))),
    "P4Runtime by TLS with token": lambda: asyncio.run(finsy_p4runtime(P4RUNTIME, with_tls(True))),
    "gNMI by TCP": lambda: asyncio.run(finsy_gnmi(GNMI)),
    "gNMI Set by TCP": lambda: asyncio.run(set_port()),
    "gNMI by its socket": lambda: asyncio.run(finsy_gnmi(f"unix:{R}/gnmi.sock")),
    "pygnmi by its socket": lambda: pygnmi((f"unix:{R}/gnmi.sock", 0), insecure=True),
    "pygnmi by TLS with token": lambda: pygnmi(
        ("127.0.0.1", 9339), path_cert=str(R / "tls" / "cert.pem"), token=token()
    ),
    "API by its socket": lambda: Northbound(R).request("status"),
    "API by TCP": lambda: call_api("/v1/status"),
    "API by TCP with token": lambda: call_api("/v1/status", shown=True),
    "API by TLS": lambda: call_api("/v1/status", tls=True),
    "API by TLS with token": lambda: call_api("/v1/status", shown=True, tls=True),
    "metrics": lambda: call_api("/metrics"),
    "API shutdown": lambda: call_api("/v1/shutdown", body=b"{}"),
    "run folder": lambda: (R / "state.json").read_text(),
}
"""Ways in. `API shutdown` comes last of those that ask the controller."""

if __name__ == "__main__":
    chosen = sys.argv[2:] or list(CLIENTS)
    answers = {}
    for name in chosen:
        try:
            CLIENTS[name]()
            answers[name] = "in"
        except Exception as error:  # each client raises its own; what it says is compared
            answers[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(answers))
