"""The live view as commands have it: begun once for a session, and its address told to others."""

from __future__ import annotations

import json

from ipc.errors import UsageError
from ipc.rundir import RunFiles
from mrc.dash.server import DashServer
from topologies.cli.commands import CliSession


class LivePage:
    """The live view of at most one session; `close` ends it."""

    def __init__(self) -> None:
        self._server: DashServer | None = None

    def open(self, session: CliSession) -> str:
        """Begin it, or find that it runs; what to tell the user. Raises FabricError."""
        if self._server is None:
            self._server = DashServer(session)
        url = self._server.start()
        return f"live view: {url}\nfor a browser on this machine; `mrc dash` tells the address again"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


def address() -> str:
    """Address of the running fabric's live view, with its key. Raises UsageError."""
    path = RunFiles().dash_file
    try:
        return str(json.loads(path.read_text(encoding="ascii"))["url"])
    except FileNotFoundError:
        up = RunFiles().state_file.exists()
        cure = "type `dash` at its prompt" if up else "begin with `mrc up --dash`"
        raise UsageError(f"{'the fabric has' if up else 'there is no fabric and'} no live view: {cure}") from None
    except PermissionError:
        raise UsageError(f"{path}: the address belongs to who began the fabric: try with sudo") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} cannot be read: {error}: type `dash` at the prompt of `mrc up` again") from error
