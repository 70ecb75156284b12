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
    """Zeroed memory; with `owned` it goes when this client does."""

    length: Length
    owned: bool = False


class RegisterFileRequest(Request, tag="register_file"):
    """A file mapped shared: an existing one, or with `create` a new one of `length` bytes."""

    path: str
    length: Length | None = None
    create: bool = False


class DeregisterRequest(Request, tag="deregister"):
    """Let go of a region."""

    region: Number


class Sha256Request(Request, tag="sha256"):
    """Hash a region."""

    region: Number


class ReceiveFileRequest(Request, tag="receive_file"):
    """Room for a file."""

    path: str
    length: Annotated[int, Meta(ge=0, le=MAX_REGION_BYTES)]


class FinishFileRequest(Request, tag="finish_file"):
    """All of a received file is there, with that hash in hexadecimal; without one it is not hashed."""

    region: Number
    sha256: str | None = None


class MemoryService:
    """`data_dir`: where files go whose path is not absolute."""

    def __init__(self, regions: Regions, sessions: ClientSessions, data_dir: Path) -> None:
        self._regions, self._sessions, self._data_dir = regions, sessions, data_dir

    @rpc(RegisterRequest)
    def register(self, request: RegisterRequest, call: RpcCall) -> Message:
        """Zeroed memory; with `owned` it goes when this client does."""
        region = self._regions.add_memory(request.length)
        if request.owned:
            self._sessions.of(call.client).own_region(region)
        return region.to_json()

    @rpc(RegisterFileRequest)
    def register_file(self, request: RegisterFileRequest, _call: RpcCall) -> Message:
        """A file mapped shared."""
        return self._regions.add_file(Path(request.path), request.length, request.create).to_json()

    @rpc(DeregisterRequest)
    def deregister(self, request: DeregisterRequest, _call: RpcCall) -> Message:
        """Let go of a region."""
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
        """Room for a file at an absolute `path`, or at one inside this host's data folder of the run folder."""
        asked = Path(request.path)
        path = self._data_dir / asked
        if not asked.is_absolute() and not path.resolve().is_relative_to(self._data_dir.resolve()):
            raise RequestError(f"path = {str(asked)!r} leaves {self._data_dir}: give an absolute path for that")
        return self._regions.receive_file(path, request.length).to_json()

    @rpc(FinishFileRequest)
    def finish_file(self, request: FinishFileRequest, _call: RpcCall) -> Later:
        """Hash a received file; it gets its name when `sha256` is right, else it is removed. Answers our hash."""
        regions = self._regions
        region = regions.get(request.region)

        async def finish() -> Message:
            found = None if request.sha256 is None else await regions.sha256(region)
            if found != request.sha256:
                regions.remove(region)
                return {"sha256": found, "path": None}
            return {"sha256": found, "path": str(regions.commit(region))}

        return finish()
