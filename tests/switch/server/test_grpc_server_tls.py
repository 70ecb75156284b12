"""TLS of the P4Runtime and gNMI servers, one-sided and mutual, with certificates made for the test."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from finsy.proto import gnmi, gnmi_grpc, p4r, p4r_grpc

from mrc_testbed.switch.server.app import Daemon, ServerSettings
from mrc_testbed.switch.server.grpc_server import AddressError, read_credentials
from tests.refusals import may_raise
from tests.switch.server.running_server import TIMEOUT_S

if shutil.which("openssl") is None:
    pytest.skip("needs openssl (apt-get install openssl)", allow_module_level=True)


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def pki(tmp_path_factory) -> Path:
    """Make ca.pem and other.pem, two authorities, server and client signed by ca, stranger by other.

    Each has its NAME.key.
    """
    folder = tmp_path_factory.mktemp("pki")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    for name in ("ca", "other"):
        openssl(folder, "req", "-x509", *curve, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for name, authority in (("server", "ca"), ("client", "ca"), ("stranger", "other")):
        openssl(folder, "req", *curve[:-2], "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl(
            folder,
            "x509",
            "-req",
            "-in",
            f"{name}.csr",
            "-CA",
            f"{authority}.pem",
            "-CAkey",
            f"{authority}.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "names",
            "-out",
            f"{name}.pem",
        )
    # A key with a passphrase, which a server cannot ask for
    openssl(folder, "ec", "-in", "server.key", "-aes128", "-passout", "pass:x", "-out", "locked.key")
    return folder


def settings(pki: Path, **changes) -> ServerSettings:
    plain = ServerSettings("127.0.0.1:0", "127.0.0.1:0", tls_cert=pki / "server.pem", tls_key=pki / "server.key")
    return replace(plain, **changes)


def channel(port: int, pki: Path, client: str | None = None, root: str = "ca") -> grpc.aio.Channel:
    pair = [(pki / f"{client}.{kind}").read_bytes() for kind in ("key", "pem")] if client else [None, None]
    return grpc.aio.secure_channel(
        f"127.0.0.1:{port}", grpc.ssl_channel_credentials((pki / f"{root}.pem").read_bytes(), *pair)
    )


async def answers(port: int, open_channel) -> bool:
    """Return whether a client gets through to the P4Runtime service."""
    async with open_channel(port) as connection:
        with may_raise(grpc.aio.AioRpcError) as errors:
            await p4r_grpc.P4RuntimeStub(connection).Capabilities(p4r.CapabilitiesRequest(), timeout=TIMEOUT_S)
    assert all(error.code() is grpc.StatusCode.UNAVAILABLE for error in errors), errors
    return not errors


def test_tls__both_servers_and_no_plain_text(pki):
    async def check():
        async with Daemon(settings(pki)) as daemon:
            port = daemon.p4runtime_port
            assert await answers(port, lambda number: channel(number, pki))
            assert not await answers(port, lambda number: channel(number, pki, root="other"))
            assert not await answers(port, lambda number: grpc.aio.insecure_channel(f"127.0.0.1:{number}"))
            async with channel(daemon.gnmi_port, pki) as connection:
                assert (await gnmi_grpc.gNMIStub(connection).Capabilities(gnmi.CapabilityRequest())).gNMI_version

    asyncio.run(check())


def test_mutual__only_clients_that_the_ca_has_signed(pki):
    async def check():
        async with Daemon(settings(pki, tls_ca=pki / "ca.pem")) as daemon:
            port = daemon.p4runtime_port
            assert await answers(port, lambda number: channel(number, pki, "client"))
            assert not await answers(port, lambda number: channel(number, pki, "stranger"))
            assert not await answers(port, lambda number: channel(number, pki))

    asyncio.run(check())


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (("server.pem", None, None), "--tls-key is missing"),
        ((None, None, "ca.pem"), "--tls-cert is missing"),
        (("server.pem", "nothing.key", None), "No such file"),
        (("server.pem", "client.key", None), "belong together"),
        (("server.key", "server.key", None), "not PEM files"),
        (("server.pem", "locked.key", None), "encrypted"),
        (("server.pem", "server.key", "names"), "not PEM files"),
    ],
)
def test_bad_files__are_refused_before_anything_listens(pki, files, words):
    paths = [None if file is None else pki / file for file in files]
    with pytest.raises(AddressError, match=words):
        read_credentials(*paths)
    assert read_credentials(None, None, None) is None
