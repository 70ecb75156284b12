"""Machine of a cluster as the front process sees it: connection, processes there, liveness."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from mrc_testbed.ipc.framing import LineBuffer, answer_fields, decode, encode
from mrc_testbed.ipc.patience import LOOK_S
from mrc_testbed.ipc.rpc import JsonlError, JsonlPeerError, Message
from mrc_testbed.ipc.rundir import SWITCHD, FabricError, RunDir
from mrc_testbed.topologies.lab.cluster import clock
from mrc_testbed.topologies.lab.cluster.connection import CONNECT_S, ConnectionLostError, MachineConnection, connect
from mrc_testbed.topologies.lab.cluster.remote_part import RemotePart, RemoteWork
from mrc_testbed.topologies.lab.cluster.switches import daemon_of
from mrc_testbed.topologies.servers import Machine

BEAT_S: Final = 0.5
"""Between two beats, seconds: a death there is known here after so long at most."""
LIMIT_S: Final = 30.0
"""Seconds after which a machine is lost that neither answers nor reports work on an answer.

A limit, because the machine's progress cannot be seen from here; while it works on an answer it reports that
(machine_side.WORK_S).
"""
HELLO_S: Final = 600.0
"""Limit for the first answer, seconds.

Until its interpreter runs, nothing there can report a start; ssh reports a broken path.
"""
CLEAN_S: Final = 20.0
"""Seconds within which a part without a front process removes itself.

The sum of machine_side.SILENCE_S and the removal itself.
"""
_TAIL_LINES: Final = 5


class RemoteMachine:
    """One machine; `open`, `request` from any thread, `close`.

    on_lost   is called once, from any thread, with the reason, when the machine does not answer any more
    """

    def __init__(self, machine: Machine, front: RunDir, on_lost: Callable[[RemoteMachine, str], None]) -> None:
        self.machine = machine
        self.name = machine.name
        self.folder = front.machine_folder(machine.name)
        """Folder of the machine's sockets on the front machine; for a local machine, its run folder."""
        self.run_dir = self.folder if machine.is_local else Path(machine.run_dir)
        """Run folder of the part, a path on the remote machine."""
        self.clock_offset_s = 0.0
        """Seconds from the machine's clock to ours, given to its processes; `clock_exact_s`: uncertainty."""
        self.clock_exact_s = 0.0
        self.hello: Message = {}
        self.lost: str | None = None
        """Reason why the machine is lost; None: it is not."""
        self.parts: dict[str, RemotePart] = {}
        """The processes there, by the names that they have there."""
        self._work: Mapping[str, Mapping[str, Any]] = {}
        self._work_at = -math.inf
        self._front, self._on_lost = front, on_lost
        self._connection: MachineConnection | None = None
        self._side: subprocess.Popen[bytes] | None = None
        self._answers = LineBuffer()
        self._waiting: list[bytes] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._beats = threading.Thread(target=self._beat, name=f"machine-{self.name}", daemon=True)

    # ---- life -------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect, start what runs there, compare clocks. Raises FabricError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        token = self._front.state.token
        self._connection = connect(self.machine, self.folder, token)
        if self._closing.is_set():
            raise ConnectionLostError(f"machine {self.name}: given up")
        machine = self.machine
        command = ["env", f"PYTHONPATH={machine.checkout}", "PYTHONUNBUFFERED=1", machine.python, "-m"]
        with self.log.open("wb") as log:
            self._side = self._connection.popen(
                [*command, "mrc_testbed.topologies.lab.cluster.machine_side"],
                token,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        try:
            self.hello = self.request("hello", limit_s=HELLO_S)
        except ConnectionLostError:
            raise ConnectionLostError(
                f"machine {self.name}: mrc-testbed does not run there ({self.lost}): run `make setup` there, and give "
                f"its `checkout` ({machine.checkout} now) and `python` ({machine.python} now) in the file of machines"
            ) from None
        self.clock_offset_s, self.clock_exact_s = clock.measure(lambda: float(self.request("clock")["t"]))
        self._beats.start()

    def clock_error_s(self) -> float:
        """Return the largest present clock difference to the processes there, seconds.

        Raises ConnectionLostError.
        """
        offset, exact = clock.measure(lambda: float(self.request("clock")["t"]))
        return abs(offset) + exact

    @property
    def connection(self) -> MachineConnection:
        """Raises FabricError before `open`."""
        if self._connection is None:
            raise FabricError(f"machine {self.name}: not connected yet")
        return self._connection

    @property
    def log(self) -> Path:
        """Path of the log of the machine side's stderr."""
        return self._front.log(f"machine-{self.name}")

    def close(self) -> None:
        """Make the machine remove its part, and disconnect. Idempotent.

        Raises FabricError when a piece cannot be removed.
        """
        self._closing.set()
        try:
            if self._side is not None and self.lost is None:
                self.request("close")
        finally:
            self._hang_up()

    def abort(self) -> None:
        """Stop waiting for answers: the machine side reads the end of its input and removes its part."""
        self._closing.set()
        side = self._side
        if side is not None:
            side.kill()

    def clean(self, wait_s: int = CONNECT_S) -> str:
        """Make the machine remove the part of a run that does not answer; return the text of `mrc clean`.

        `wait_s`: how long it may take to be reached. Raises FabricError.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with connect(self.machine, self.folder, self._front.state.token, wait_s) as connection:
            environment = (f"MRC_RUN_DIR={self.run_dir}", f"PYTHONPATH={self.machine.checkout}")
            deadline = time.monotonic() + CLEAN_S
            while True:
                result = connection.run(["env", *environment, self.machine.python, "-m", "mrc_testbed", "clean"])
                if result.returncode == 0 or time.monotonic() > deadline:  # it may be removing its part itself just now
                    break
                time.sleep(0.5)
        text = (result.stdout if result.returncode == 0 else result.stderr).decode(errors="replace").strip()
        if result.returncode != 0:
            raise FabricError(text or f"mrc clean ended with code {result.returncode}")
        return text

    def _hang_up(self) -> None:
        side, self._side = self._side, None
        if side is not None:
            for stream in (side.stdin, side.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):  # the pipe broke before
                        stream.close()
            try:
                side.wait(5)
            except subprocess.TimeoutExpired:
                side.kill()
                side.wait()
        if self._connection is not None:
            self._connection.close()

    # ---- asking -----------------------------------------------------------------------------------------

    def request(self, op: str, *, limit_s: float = LIMIT_S, **fields: Any) -> Message:
        """The fields of the answer. Raises JsonlPeerError for a refusal, ConnectionLostError when it is gone."""
        with self._lock:
            if self.lost is not None:
                raise ConnectionLostError(f"machine {self.name} is lost: {self.lost}")
            if self._closing.is_set() and op != "close":
                raise ConnectionLostError(f"machine {self.name}: connection is closing")
            try:
                answer = self._exchange({"op": op, "id": next(self._numbers), **fields}, limit_s)
            except (OSError, JsonlError, ValueError) as error:
                if isinstance(error, JsonlPeerError):
                    raise FabricError(f"machine {self.name}: {error.reason}") from error
                self.lost = self._loss_reason(error)
        if self.lost is not None:
            if self.hello and not self._closing.is_set():
                self._on_lost(self, self.lost)
            raise ConnectionLostError(f"machine {self.name} is lost: {self.lost}")
        return answer

    def _exchange(self, request: Message, limit_s: float) -> Message:
        deadline = time.monotonic() + limit_s
        side = self._side
        if side is None or side.stdin is None or side.stdout is None:
            raise JsonlError("connection is closed")
        side.stdin.write(encode(request))
        side.stdin.flush()
        while True:
            while not self._waiting:
                self._waiting += self._answers.feed(self._read(side, deadline))
            answer = decode(self._waiting.pop(0))
            if answer.get("id") != request["id"]:
                continue  # to a request that Ctrl-C ended
            if not answer.get("works"):
                return answer_fields(answer, self.name)
            deadline = time.monotonic() + limit_s

    @staticmethod
    def _read(side: subprocess.Popen[bytes], deadline: float) -> bytes:
        assert side.stdout is not None
        readable, _, _ = select.select([side.stdout], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            raise JsonlError("no answer")
        data = os.read(side.stdout.fileno(), 1 << 16)
        if not data:
            raise JsonlError("what ran there has ended")
        return data

    def _loss_reason(self, error: Exception) -> str:
        """The reason with the last words of its side, where it had any."""
        connection = self._connection
        reason = str(error) or type(error).__name__
        if connection is not None and not connection.alive():
            reason = "its ssh connection has ended"
        try:
            log_lines = self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        except OSError:
            log_lines = []
        return "; ".join([reason, *(line.strip() for line in log_lines if line.strip())])

    def _beat(self) -> None:
        """Tell it that we live, and hear which of its processes do not."""
        while not self._closing.wait(BEAT_S):
            try:
                ends = self.request("beat")["dead"]
            except FabricError:
                return
            for name, end in ends.items():
                part = self.parts.get(name)
                if part is not None and part.pid == end["pid"]:  # else it has been started again since
                    part.record_end(end["how"], end["tail"])

    # ---- its processes ----------------------------------------------------------------------------------

    def begin_parts(self, processes: Mapping[str, Mapping[str, Any]]) -> dict[str, RemotePart]:
        """Note processes that it has started; returns them by the names that they have here."""
        for name, process in processes.items():
            front_name, location = daemon_of(self.name) if name == SWITCHD else name, f" on machine {self.name}"
            work = RemoteWork(name, self.work)
            self.parts[name] = RemotePart(front_name, location, process["pid"], Path(process["log"]), work)
        return {self.parts[name].name: self.parts[name] for name in processes}

    def work(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the work of the machine's processes (machine_side.PartsWork), cached for LOOK_S.

        Raises FabricError.
        """
        if time.monotonic() - self._work_at >= LOOK_S:
            self._work = self.request("work")["work"]
            self._work_at = time.monotonic()
        return self._work
