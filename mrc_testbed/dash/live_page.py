"""The live view as commands have it: begun once for a session, and its address told to others."""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from mrc_testbed.cli.prompt.commands import CliSession, CommandError
from mrc_testbed.dash.server import DashServer
from mrc_testbed.errors import UsageError
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.topologies.lab.fabric import Fabric


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


class RunPages:
    """Live views of the runs of a command, one after another: each has a fabric of its own, all have one address.

    `say` is told the address, once. The page looks on; the scenario alone breaks things.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._key, self._said = say, secrets.token_urlsafe(24), ""

    @contextmanager
    def __call__(self, fabric: Fabric, work_done: Callable[[], list[dict[str, Any]]]) -> Iterator[None]:
        """The view of one run's fabric. Raises FabricError."""
        session = CliSession(fabric, io.StringIO(), transfers=_ScenarioWork(work_done))
        with closing(DashServer(session, key=self._key, acts=False)) as server:
            url = server.start()
            if url != self._said:
                self._said = url
                self._say(f"live view: {url}")
            yield


class _ScenarioWork:
    """The flows and collectives of a run, in the place of the prompt's transfers."""

    def __init__(self, work_done: Callable[[], list[dict[str, Any]]]) -> None:
        self.progress = work_done

    def begin(self, given: Sequence[str]) -> None:
        raise CommandError(f"send {' '.join(given)}: a scenario runs here, with flows of its own")

    def wait(self) -> int:
        return 0


def address() -> str:
    """Address of the running fabric's live view, with its key. Raises UsageError."""
    path = RunFiles().dash_file
    try:
        return str(json.loads(path.read_text(encoding="ascii"))["url"])
    except FileNotFoundError:
        up = RunFiles().has_run
        cure = "type `dash` at its prompt" if up else "begin with `mrc up --dash`"
        raise UsageError(f"{'the fabric has' if up else 'there is no fabric and'} no live view: {cure}") from None
    except PermissionError:
        raise UsageError(f"{path}: the address belongs to who began the fabric: try with sudo") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} cannot be read: {error}: type `dash` at the prompt of `mrc up` again") from error
