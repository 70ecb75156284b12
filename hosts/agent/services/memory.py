"""Memory regions of the host, and room for files that it receives (hosts/agent/regions.py).

register        length, owned          -> region      register_file  path, length, create -> region
deregister      region                                sha256         region               -> sha256
receive_file    path, length           -> region      finish_file    region, sha256       -> sha256, path
"""

from __future__ import annotations

from pathlib import Path

from hosts.agent.regions import MAX_REGION_BYTES, Regions
from hosts.agent.requests import Fields, RequestError, take
from hosts.agent.rpc_server import Later, rpc
from hosts.agent.session import ClientSessions
from ipc.rpc import ServerConnection as Client


class MemoryService:
    """`data_dir`: where files go whose path is not absolute."""

    def __init__(self, regions: Regions, sessions: ClientSessions, data_dir: Path) -> None:
        self._regions, self._sessions, self._data_dir = regions, sessions, data_dir

    @rpc("register")
    def register(self, request: Fields, client: Client) -> Fields:
        """Zeroed memory; with `owned` it goes when this client does."""
        length = take(request, "length", int, low=1, high=MAX_REGION_BYTES)
        owned = take(request, "owned", bool, False)
        region = self._regions.add_memory(length)
        if owned:
            self._sessions.of(client).own_region(region)
        return region.to_json()

    @rpc("register_file")
    def register_file(self, request: Fields, client: Client) -> Fields:
        path = Path(take(request, "path", str))
        length = take(request, "length", int, None, low=1, high=MAX_REGION_BYTES)
        create = take(request, "create", bool, False)
        return self._regions.add_file(path, length, create).to_json()

    @rpc("deregister")
    def deregister(self, request: Fields, client: Client) -> Fields:
        self._regions.remove(self._regions.get(take(request, "region", int)))
        return {}

    @rpc("sha256")
    def sha256(self, request: Fields, client: Client) -> Later:
        region = self._regions.get(take(request, "region", int))

        async def hash_it() -> Fields:
            return {"region": region.number, "sha256": await self._regions.sha256(region)}

        return hash_it()

    @rpc("receive_file")
    def receive_file(self, request: Fields, client: Client) -> Fields:
        """Room for a file at an absolute `path`, or at one inside this host's data folder of the run folder."""
        asked = Path(take(request, "path", str))
        path = self._data_dir / asked
        if not asked.is_absolute() and not path.resolve().is_relative_to(self._data_dir.resolve()):
            raise RequestError(f"path = {str(asked)!r} leaves {self._data_dir}: give an absolute path for that")
        length = take(request, "length", int, high=MAX_REGION_BYTES)
        return self._regions.receive_file(path, length).to_json()

    @rpc("finish_file")
    def finish_file(self, request: Fields, client: Client) -> Later:
        """Hash a received file; it gets its name when `sha256` is right, else it is removed. Answers our hash."""
        regions = self._regions
        region = regions.get(take(request, "region", int))
        expected = take(request, "sha256", str)

        async def finish() -> Fields:
            found = await regions.sha256(region)
            if found != expected:
                regions.remove(region)
                return {"sha256": found, "path": None}
            return {"sha256": found, "path": str(regions.commit(region))}

        return finish()
