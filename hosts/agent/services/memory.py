"""Memory regions of the host, and room for files that it receives (hosts/agent/regions.py).

register        length, owned          -> region      register_file  path, length, create -> region
deregister      region                                sha256         region               -> sha256
receive_file    path, length           -> region      finish_file    region, sha256       -> sha256, path
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from mrc_testbed.hosts.agent.regions import MAX_REGION_BYTES, Regions
from mrc_testbed.hosts.agent.session import ClientSessions
from mrc_testbed.ipc.requests import Number, Request, RequestError
from mrc_testbed.ipc.rpc import Message, RpcCall
from mrc_testbed.ipc.rpc_table import Later, rpc

Length = Annotated[int, Meta(ge=1, le=MAX_REGION_BYTES)]


class RegisterRequest(Request, tag="register"):
    """Register zeroed memory; with `owned`, until the client disconnects."""

    length: Length
    owned: bool = False


class RegisterFileRequest(Request, tag="register_file"):
    """Map a file shared: an existing one, or with `create` a new one of `length` bytes."""

    path: str
    length: Length | None = None
    create: bool = False


class DeregisterRequest(Request, tag="deregister"):
    """Deregister a region."""

    region: Number


class Sha256Request(Request, tag="sha256"):
    """Hash a region."""

    region: Number


class ReceiveFileRequest(Request, tag="receive_file"):
    """Allocate room for a file."""

    path: str
    length: Annotated[int, Meta(ge=0, le=MAX_REGION_BYTES)]


class FinishFileRequest(Request, tag="finish_file"):
    """Complete a received file; `sha256`: its hash in hexadecimal, None: not checked."""

    region: Number
    sha256: str | None = None


class MemoryService:
    """RPC service for memory regions. `data_dir`: folder of files whose path is not absolute."""

    def __init__(self, regions: Regions, sessions: ClientSessions, data_dir: Path) -> None:
        self._regions, self._sessions, self._data_dir = regions, sessions, data_dir

    @rpc(RegisterRequest)
    def register(self, request: RegisterRequest, call: RpcCall) -> Message:
        """Register zeroed memory; with `owned`, until the client disconnects."""
        region = self._regions.add_memory(request.length)
        if request.owned:
            self._sessions.session_of(call.client).own_region(region)
        return region.to_json()

    @rpc(RegisterFileRequest)
    def register_file(self, request: RegisterFileRequest, _call: RpcCall) -> Message:
        """Map a file shared."""
        return self._regions.add_file(Path(request.path), request.length, request.create).to_json()

    @rpc(DeregisterRequest)
    def deregister(self, request: DeregisterRequest, _call: RpcCall) -> Message:
        """Deregister a region."""
        self._regions.remove(self._regions.get(request.region))
        return {}

    @rpc(Sha256Request)
    def sha256(self, request: Sha256Request, _call: RpcCall) -> Later:
        """Hash a region step by step."""
        region = self._regions.get(request.region)

        async def hash_it() -> Message:
            return {"region": region.number, "sha256": await self._regions.sha256(region)}

        return hash_it()

    @rpc(ReceiveFileRequest)
    def receive_file(self, request: ReceiveFileRequest, _call: RpcCall) -> Message:
        """Allocate room for a file at an absolute `path`, or at one inside this host's data folder."""
        requested_path = Path(request.path)
        path = self._data_dir / requested_path
        if not requested_path.is_absolute() and not path.resolve().is_relative_to(self._data_dir.resolve()):
            raise RequestError(
                f"path = {str(requested_path)!r} leaves {self._data_dir}: give an absolute path for that"
            )
        return self._regions.receive_file(path, request.length).to_json()

    @rpc(FinishFileRequest)
    def finish_file(self, request: FinishFileRequest, _call: RpcCall) -> Later:
        """Hash a received file, name it when `sha256` is right, else remove it; answer the local hash."""
        regions = self._regions
        region = regions.get(request.region)

        async def finish() -> Message:
            digest = None if request.sha256 is None else await regions.sha256(region)
            if digest != request.sha256:
                regions.remove(region)
                return {"sha256": digest, "path": None}
            return {"sha256": digest, "path": str(regions.commit(region))}

        return finish()
