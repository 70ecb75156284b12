"""Words for other shells: the front process of a fabric does them, at its socket `prompt.sock`.

Who changes something has to be able to undo it, so faults, transfers and power are words of the process that holds the
fabric. Its socket takes one request a connection, in the lines of ipc/framing.py, from root and the fabric's user:

    {"op": "line", "line": "link p1-t0-0 p1-t1-1 down", "json": false, "columns": 100, "colour": false, "prompt": 0}
        {"event": "text", "text": "..."} as it comes, {"event": "failure", "text": "..."}, then the answer
    {"op": "notices"}              {"event": "listening"}, from which nothing is missed, then {"event": "text", "text":
                                   "..."} without end: what a prompt tells by itself
    {"op": "host", "name": "h0"}   the answer has {"pid": a process in the host's namespaces}

`prompt` is the number of an attached prompt, which is not told what its own words did. Each connection has a thread,
and a prompt of its own over the same fabric, transfers and live view. Who does not read is cut off after a while, for
whoever tells something would wait for it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

from mrc_testbed.cli.prompt.commands import WORDS
from mrc_testbed.cli.prompt.commands.base import BREAK
from mrc_testbed.cli.prompt.shell import FabricCLI
from mrc_testbed.console.terminal import PIPE_WIDTH, Style
from mrc_testbed.ipc.framing import (
    JsonlError,
    LineBuffer,
    Message,
    answer_to,
    decode_request,
    encode,
    listen,
    refusal_for,
)
from mrc_testbed.ipc.peers import peer_of
from mrc_testbed.ipc.rundir import FabricError

RECEIVE_BYTES = 1 << 16
TRANSFER_WORDS = ("send", "wait")
COLUMNS_MAX = 1000
NOTICE_S = 1.0
"""Time, seconds, that a notice waits for a reader whose buffer is full.

Whoever tells it waits as long, once.
"""
LINE_S = 60.0
"""Time, seconds, that output of a word waits for its reader, which may be a pager."""
TIMEVAL = struct.Struct("@ll")
"""Seconds and microseconds, as SO_SNDTIMEO has them."""


@contextlib.contextmanager
def serve_words(cli: FabricCLI) -> Iterator[None]:
    """Serve words of other shells within, beside a prompt. Raises JsonlError where the socket cannot be."""
    path = cli.fabric.run_dir.prompt_socket
    with listen(path) as listening:
        listening.setblocking(True)
        threading.Thread(target=_accept, args=(listening, cli), name="words", daemon=True).start()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # wakes the thread, which then ends
            path.unlink(missing_ok=True)  # nobody else has it: this process holds the folder


def _accept(listening: socket.socket, cli: FabricCLI) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(connection, cli), name="word", daemon=True).start()


def _serve(connection: socket.socket, cli: FabricCLI) -> None:
    """Serve one connection; whoever goes meanwhile is not missed."""
    with connection, contextlib.suppress(OSError):
        request: Message = {}
        try:
            request = _read_request(connection)
            _check_peer(connection)
            answer = answer_to(request, _answer(request, connection, cli))
        except OSError:
            raise
        except Exception as error:
            answer = refusal_for(request, error)
        connection.sendall(encode(answer))


def _check_peer(connection: socket.socket) -> None:
    """Raises JsonlError for a peer that is neither root nor the user of the fabric."""
    user = peer_of(connection).user
    if user not in (0, os.geteuid()):
        raise JsonlError(f"user {user}: the fabric belongs to user {os.geteuid()}. Cure: use sudo")


def _read_request(connection: socket.socket) -> Message:
    """Return the one request of a connection. Raises JsonlError."""
    lines = LineBuffer()
    while data := connection.recv(RECEIVE_BYTES):
        if received := lines.feed(data):
            return decode_request(received[0])
    raise JsonlError("the connection ended before its request")


def _answer(request: Message, connection: socket.socket, cli: FabricCLI) -> Message:
    """Carry a request out; the fields of its answer. Raises JsonlError; OSError once the peer has gone."""
    match request["op"]:
        case "line":
            return _run_line(request, connection, cli)
        case "notices":
            stream = WordStream(connection, patience_s=NOTICE_S)
            with cli.outputs.listening(lambda text: stream.send({"event": "text", "text": text}), _prompt_of(request)):
                stream.send({"event": "listening"})
                connection.recv(1)  # until the peer goes, or is cut off
            return {}
        case "host":
            host = cli.fabric.hosts.get(str(request.get("name")))
            if host is None:
                raise JsonlError(f"no host {request.get('name')!r} here (has: {', '.join(cli.fabric.hosts)})")
            try:
                return {"pid": host.namespace_pid}
            except FabricError as error:  # it is off
                raise JsonlError(str(error)) from error
    raise JsonlError(f"no op {request['op']!r} (has: line, notices, host)")


def _run_line(request: Message, connection: socket.socket, cli: FabricCLI) -> Message:
    """Run one command line with its output to the peer."""
    line = request.get("line")
    columns, colour = request.get("columns", PIPE_WIDTH), request.get("colour") is True
    if not isinstance(line, str) or "\n" in line:
        raise JsonlError('"line" must be one command line, as in {"op": "line", "line": "heal"}')
    if not isinstance(columns, int) or not 0 < columns <= COLUMNS_MAX:
        raise JsonlError(f'"columns" = {columns!r}: give 1 to {COLUMNS_MAX}')
    stream = WordStream(connection, columns)
    prompt = RemoteCLI(cli, stream, Style(colour, columns), _prompt_of(request))
    if (word := WORDS.get(line.split(" ")[0])) is not None and word.group == BREAK and not word.reads:
        cli.outputs.notify(f"another shell: {line}", prompt.number)
    with prompt, cli.outputs.caller(prompt.stdout):
        if request.get("json") is True:
            prompt.run_for_program(line)
        else:
            prompt.onecmd(prompt.precmd(line))
    return {"failures": prompt.failures}


def _prompt_of(request: Message) -> int:
    """Number of the prompt that a request comes from; 0: from none."""
    number = request.get("prompt", 0)
    return number if isinstance(number, int) else 0


class WordStream(io.TextIOBase):
    """A connection as a stream: what is written goes to the peer. Raises OSError once that has gone."""

    def __init__(self, connection: socket.socket, columns: int = PIPE_WIDTH, *, patience_s: float = LINE_S) -> None:
        """`patience_s`: time after which a peer that does not read is cut off, seconds."""
        self.columns = columns
        self._connection = connection
        limit = TIMEVAL.pack(int(patience_s), int(patience_s % 1 * 1e6))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._lock = threading.Lock()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        """Send a text."""
        if text:
            self.send({"event": "text", "text": text})
        return len(text)

    def send(self, message: Message) -> None:
        """Send one line."""
        with self._lock:
            try:
                self._connection.sendall(encode(message))
            except BlockingIOError:  # a part of the line has gone: no other may follow
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)
                raise


class RemoteCLI(FabricCLI):
    """The prompt of a connection, beside that of the process."""

    def __init__(self, cli: FabricCLI, stream: WordStream, style: Style, number: int) -> None:
        """`number`: of the prompt elsewhere that this one works for; 0: of none."""
        self.number = number
        self._stream = stream
        self._input = open(os.devnull, encoding="utf-8")  # noqa: SIM115 # closed by __exit__
        super().__init__(cli.fabric, self._input, stream, cli.session.open_page, colleague=cli)  # type: ignore[arg-type]
        self.session.style = style

    def __enter__(self) -> RemoteCLI:
        return self

    def __exit__(self, *exc: object) -> None:
        self._input.close()

    def fail(self, text: str) -> None:
        """Send a failure as such: its reader shows it, and ends with another exit code."""
        self.failures += 1
        self._stream.send({"event": "failure", "text": text})

    def run_for_program(self, line: str) -> None:
        """Run a line and send JSON: a word's own, or what the word printed."""
        name, _, arguments = line.strip().partition(" ")
        if name in WORDS and WORDS[name].reads:
            self.onecmd(f"{line} --json")
            return
        text = self._text_of(line)
        data: dict[str, Any] = {"word": name, "arguments": shlex.split(arguments), "text": text}
        if name in TRANSFER_WORDS:
            data["transfers"] = self.transfers.progress()
        if not self.failures:
            self._stream.write(json.dumps(data, indent=2) + "\n")

    def _text_of(self, line: str) -> str:
        """Run a line and return its output."""
        out = io.StringIO()
        self.stdout = self.session.out = out
        with self.outputs.caller(out):
            self.onecmd(self.precmd(line))
        return out.getvalue().strip()

    def do_wait(self, line: str) -> None:
        """Wait for transfers and show how each ends; in a shell also how those ended that no `wait` has told."""
        for transfer in self.transfers.progress():
            if transfer["outcome"] and transfer["name"] not in self.outputs.known_transfers and not self.number:
                self.print_text(transfer["outcome"])
        with self.outputs.waiting(self.stdout, self.number):
            super().do_wait(line)
        self.outputs.known_transfers.update(
            transfer["name"] for transfer in self.transfers.progress() if transfer["outcome"]
        )
