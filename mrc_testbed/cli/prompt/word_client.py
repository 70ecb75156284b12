"""Words given to the front process of a fabric from another process (cli/prompt/word_server.py)."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from mrc_testbed.ipc.fabrics import Fabrics
from mrc_testbed.ipc.framing import LineBuffer, Message, answer_fields, check_socket_path, decode, encode
from mrc_testbed.ipc.rundir import FabricError, RunFiles

RECEIVE_BYTES = 1 << 16
FILE_POSITIONS = {"send": (3,), "reload": range(1, 1000), "load": (1, 2), "save": (1, 2)}
"""Positions at which words take a file of this machine: `send h0 h2 FILE`; `reload` takes it anywhere."""


class WordClient:
    """Client of the front process in a run folder; `prompt`: number of the prompt that it works for."""

    def __init__(self, folder: Path, prompt: int = 0) -> None:
        self._files = RunFiles(folder)
        self._prompt = prompt

    def run_line(
        self,
        line: str,
        on_text: Callable[[str], None],
        on_failure: Callable[[str], None],
        *,
        columns: int,
        colour: bool = False,
        as_json: bool = False,
    ) -> int:
        """Give a command line to the front process; the number of failures. Raises FabricError, JsonlError."""
        request = {"op": "line", "line": _with_whole_path(line), "json": as_json, "columns": columns, "colour": colour}
        with self._messages(request) as messages:
            for message in messages:
                if message.get("event") == "text":
                    on_text(str(message["text"]))
                elif message.get("event") == "failure":
                    on_failure(str(message["text"]))
                else:
                    return int(answer_fields(message, line)["failures"])
        raise self._end_error()

    def host_pid(self, host: str) -> int:
        """Return the pid of a process in the namespaces of a host. Raises FabricError, JsonlError."""
        with self._messages({"op": "host", "name": host}) as messages:
            for message in messages:
                return int(answer_fields(message, host)["pid"])
        raise self._end_error()

    @contextmanager
    def notices(self) -> Iterator[Iterator[str]]:
        """Texts of what happens by itself from now on, until the fabric ends or cuts off who does not read.

        Raises FabricError, JsonlError.
        """
        with self._messages({"op": "notices"}) as messages:
            first_texts: list[str] = []
            for message in messages:
                if message.get("event") == "text":
                    first_texts.append(str(message["text"]))
                elif message.get("event") == "listening":
                    break
                else:
                    answer_fields(message, "notices")
            else:
                raise self._end_error()
            texts = (str(message["text"]) for message in messages if message.get("event") == "text")
            yield chain(first_texts, texts)

    @contextmanager
    def _messages(self, request: dict[str, Any]) -> Iterator[Iterator[Message]]:
        """Send a request; what comes back, until the connection ends."""
        path = self._files.prompt_socket
        check_socket_path(path)
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(path))
                connection.sendall(encode({**request, "prompt": self._prompt}))
            except (FileNotFoundError, ConnectionError) as error:
                raise self._absence_error() from error
            except PermissionError as error:
                raise FabricError(f"{path}: the fabric belongs to another user. Cure: use sudo") from error
            yield _received(connection)

    def _absence_error(self) -> FabricError:
        name = Fabrics.name_of(self._files.path)
        if not self._files.has_run:
            return FabricError(f"no fabric is running in {self._files.path}. Cure: start one with `mrc up`")
        return FabricError(
            f"the fabric {name} takes no words of other shells: it is starting, dead, or of another command than "
            f"`mrc up`. Cure: `mrc ls` says which"
        )

    def _end_error(self) -> FabricError:
        return FabricError(f"the fabric {Fabrics.name_of(self._files.path)} has ended. Cure: `mrc ls` lists what is up")


def _with_whole_path(line: str) -> str:
    """Return a line with whole paths of its files: the front process is in another folder."""
    try:
        words = shlex.split(line)
    except ValueError:  # open quotes, which the front process refuses
        return line
    positions = [index for index in FILE_POSITIONS.get(words[0], ()) if index < len(words)] if words else []
    if not positions:
        return line
    # What is no file may be a host, a size or an option; the file of `save` is yet to come.
    is_new = words[0] == "save"
    for index in positions:
        path = Path(words[index]).expanduser()
        if path.is_file() or (is_new and not words[index].startswith("-")):
            words[index] = str(path.absolute())
    return shlex.join(words)


def _received(connection: socket.socket) -> Iterator[Message]:
    lines = LineBuffer()
    while True:
        try:
            data = connection.recv(RECEIVE_BYTES)
        except ConnectionError:
            return
        if not data:
            return
        for line in lines.feed(data):
            yield decode(line)
