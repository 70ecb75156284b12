"""Live view for commands: started once per session; its address is printed and stored."""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrc_testbed.cli.prompt.commands import CliSession, CommandError
from mrc_testbed.cli.prompt.commands.base import ShowProgress
from mrc_testbed.errors import UsageError
from mrc_testbed.ipc.rundir import RunFiles

# aiohttp takes a third of a second to import: a fabric that nobody watches does not wait for it.
if TYPE_CHECKING:
    from mrc_testbed.dash.server import DashServer
    from mrc_testbed.topologies.lab.fabric import Fabric


class LivePage:
    """The live view of at most one session; `close` ends it."""

    def __init__(self) -> None:
        self._server: DashServer | None = None

    def open(self, session: CliSession) -> str:
        """Start the view unless it runs; return the text for the user. Raises FabricError."""
        from mrc_testbed.dash.server import DashServer

        if self._server is None:
            self._server = DashServer(session)
        url = self._server.start()
        return f"live view: {url}\nfor a browser on this machine; `mrc dash` prints the address again"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


class RunPages:
    """Live views of a command's runs, one after another: each has its own fabric, all share one address.

    `print_line` gets the address, once. The page only shows; the scenario alone injects faults.
    """

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self._print_line, self._key, self._printed_url = print_line, secrets.token_urlsafe(24), ""

    @contextmanager
    def __call__(self, fabric: Fabric, work_done: Callable[[], list[dict[str, Any]]]) -> Iterator[None]:
        """Show one run's fabric. Raises FabricError."""
        from mrc_testbed.dash.server import DashServer

        session = CliSession(fabric, io.StringIO(), transfers=_ScenarioWork(work_done))
        with closing(DashServer(session, key=self._key, acts=False)) as server:
            url = server.start()
            if url != self._printed_url:
                self._printed_url = url
                self._print_line(f"live view: {url}")
            yield


class _ScenarioWork:
    """Flows and collectives of a run, in the place of the prompt's transfers."""

    def __init__(self, work_done: Callable[[], list[dict[str, Any]]]) -> None:
        self.progress = work_done

    def start(self, args: Sequence[str]) -> None:
        raise CommandError(f"send {' '.join(args)}: refused while a scenario runs. Cure: add a flow to its file")

    def wait(self, show: ShowProgress | None = None, note: Callable[[str], None] | None = None) -> int:  # noqa: ARG002 - it waits for nothing
        if show is not None:
            show(self.progress())
        return 0


def address(folder: Path) -> str:
    """Return the address of the live view of a fabric by its run folder, with its key. Raises UsageError."""
    files = RunFiles(folder)
    path = files.dash_file
    try:
        return str(json.loads(path.read_text(encoding="ascii"))["url"])
    except FileNotFoundError:
        has_fabric = files.has_run
        cure = "type `dash` at its prompt" if has_fabric else "start one with `mrc up --dash`"
        problem = "the running fabric has no live view" if has_fabric else "no fabric is running"
        raise UsageError(f"{problem}. Cure: {cure}") from None
    except PermissionError:
        raise UsageError(f"{path}: only the user who started the fabric may read the address. Cure: use sudo") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} cannot be read: {error}. Cure: type `dash` at the prompt again") from error
