"""Child processes of a fabric: started, awaited, ended, and never outliving the front process.

Design note. A child must die with the front process even at `kill -9`. PR_SET_PDEATHSIG does that, with two traps:

1. It fires when the *thread* that forked ends, not the process. So one daemon thread, which lives as long as the
   process, starts every child (`_spawner`).
2. Python code between fork and exec (`preexec_fn`) can deadlock in a process with threads. So `setpriv`
   (util-linux) sets the signal and executes the program. `mnexec -a`, which enters a host's namespace, does not
   fork, so the signal stays set through it.

The instant between fork and `setpriv` is covered by the run's token (rundir.py), as is whatever a child starts.
"""

from __future__ import annotations

import abc
import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from mrc_testbed.files.package import PACKAGE
from mrc_testbed.ipc import procfs
from mrc_testbed.ipc.patience import QUIET_S, LocalWork, PartWork, Patience
from mrc_testbed.ipc.rundir import TOKEN_VARIABLE, FabricError, RunDir
from mrc_testbed.switch.system import ownership
from mrc_testbed.switch.system.cache_folder import cache_dir

BYTECODE = cache_dir() / "pyc"
"""Folder for the compiled modules of child processes.

It is used even where the environment or the checkout forbids bytecode: a fabric starts dozens of interpreters, and
compiling their imports costs more than all other work.
"""
DEATH_SIGNAL = ("setpriv", "--pdeathsig", "KILL")
ASKING_SHARE = 10
"""Pause after a request for readiness, in multiples of the time that the request took."""
POLL_MAX_S = 0.2
"""Longest pause between two requests for readiness, seconds."""
POLL_S = 0.02
GRACES = 5
"""A part that is asked to end and works on may use so many times its grace of CPU time."""
TAIL_LINES = 15
TELL_S = 10.0
"""Between two lines about a wait that takes long, seconds."""

Probe = Callable[[], bool]
Result = TypeVar("Result")


class ProcessError(FabricError):
    """A child did not start, died, or did not become ready; the message ends with the tail of its log."""


class FabricProcess(abc.ABC):
    """A process of the fabric, on this machine or on another one."""

    name: str
    machine_note: str
    """` on machine b`; empty: this one."""
    log: Path
    """Path of its log, on its machine."""
    ready: bool
    """Whether its probe has answered."""
    ending: bool
    """We have asked it to end."""

    @property
    @abc.abstractmethod
    def pid(self) -> int:
        """Pid of the process on its machine."""

    @property
    @abc.abstractmethod
    def alive(self) -> bool:
        """Whether the process has not ended."""

    @property
    @abc.abstractmethod
    def work(self) -> PartWork:
        """Whether it gets on."""

    @abc.abstractmethod
    def how_it_ended(self) -> str:
        """`exited with code 1` or `was killed by SIGKILL`."""

    @abc.abstractmethod
    def tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines of its log, indented."""

    @property
    def has_died(self) -> bool:
        """Return whether the process has ended without a request to end."""
        return not self.ending and not self.alive

    @property
    def cause(self) -> str:
        """`h2 (pid 12 on machine b) was killed by SIGKILL`."""
        return f"{self.name} (pid {self.pid}{self.machine_note}) {self.how_it_ended()}"

    def last_words(self) -> str:
        """`switchd (pid 12) was killed by SIGKILL; end of its log PATH:` and that end."""
        return f"{self.cause}; end of its log {self.log}:\n{self.tail()}"


@dataclass
class Child(FabricProcess):
    """A process we started."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    ready: bool = field(default=False)
    ending: bool = field(default=False)
    machine_note: str = ""
    log_begins: int = 0
    """Bytes in its log that an earlier process of that name wrote."""

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    @property
    def work(self) -> PartWork:
        return LocalWork(self.pid, self.log)

    def how_it_ended(self) -> str:
        code = self.popen.poll()
        if code is None:
            return "is running"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def tail(self, lines: int = TAIL_LINES) -> str:
        try:
            with self.log.open("rb") as log:
                log.seek(self.log_begins)
                text = log.read().decode(errors="replace").splitlines()
            disk = os.statvfs(self.log)
        except OSError as error:
            return f"  (no log: {error.strerror})"
        has_room = disk.f_bavail or not disk.f_blocks
        full_disk_note = "" if has_room else f", for the disk of {self.log} is full: make room there"
        return "\n".join(f"  {line}" for line in text[-lines:]) or f"  (its log is empty{full_disk_note})"


def _bytecode_prefix() -> dict[str, str]:
    """Return the environment that puts compiled modules into BYTECODE.

    It is empty where another user could put other code there.
    """
    try:
        BYTECODE.mkdir(mode=0o700, parents=True, exist_ok=True)
        safe = not (ownership.refusal(BYTECODE.parent) or ownership.refusal(BYTECODE))
    except OSError:
        safe = False
    return {"PYTHONPYCACHEPREFIX": str(BYTECODE)} if safe else {}


def popen(argv: Sequence[str], token: str | None, **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that dies with this one and carries the run's token, if any. Options are Popen's."""
    environment = {**(options.pop("env", None) or os.environ), **({} if token is None else {TOKEN_VARIABLE: token})}
    return _spawner.call(lambda: subprocess.Popen([*DEATH_SIGNAL, *argv], env=environment, **options))


class Processes:
    """The child processes of one run, each recorded in the run's state and with a log of its own.

    Iteration and `stop` are about those of this machine; the rest also about parts on other machines, which those keep.
    """

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._children: dict[str, Child] = {}
        self.elsewhere: dict[str, FabricProcess] = {}
        """Parts on other machines by name."""
        self.report: Callable[[str], None] = lambda _text: None
        """Callback that gets the reason of each long wait."""

    def __iter__(self) -> Iterator[Child]:
        return iter(list(self._children.values()))

    def __getitem__(self, name: str) -> FabricProcess:
        return self._children[name] if name in self._children else self.elsewhere[name]

    def __contains__(self, name: str) -> bool:
        return name in self._children or name in self.elsewhere

    @property
    def parts(self) -> list[FabricProcess]:
        """All processes of the run, of this machine and of others."""
        return [*self, *self.elsewhere.copy().values()]

    def spawn(self, name: str, argv: Sequence[str], *, in_namespace_of: int | None = None) -> Child:
        """Start `argv` under a name, in the network namespace of a pid or in ours. Raises ProcessError."""
        if in_namespace_of is not None:
            argv = ("mnexec", "-a", str(in_namespace_of), *argv)
        return _spawner.call(lambda: self._spawn(name, argv))

    def spawn_module(self, name: str, module: str, *args: str, in_namespace_of: int | None = None) -> Child:
        """Start `python -m module args` with this interpreter."""
        return self.spawn(name, (sys.executable, "-m", module, *args), in_namespace_of=in_namespace_of)

    def _spawn(self, name: str, argv: Sequence[str]) -> Child:
        """Start a child and record it, in the spawner's thread.

        An interrupt of the front process cannot fall between start and record.
        """
        log = self._run_dir.log(name)
        state = self._run_dir.state
        environment = {
            **{key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"},
            **_bytecode_prefix(),
            TOKEN_VARIABLE: state.token,
            "MRC_RUN_DIR": str(self._run_dir.path),
            "PYTHONUNBUFFERED": "1",
        }
        try:
            with log.open("ab") as output:
                log_begins = output.tell()
                popen = subprocess.Popen(
                    [*DEATH_SIGNAL, *argv],
                    env=environment,
                    cwd=PACKAGE.parent,  # so that `python -m mrc_testbed.switch.server` and the others are found
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # a Ctrl-C at the terminal is for the front process alone
                )
        except OSError as error:
            raise ProcessError(f"cannot start {name} ({argv[0]}): {error.strerror}") from error
        child = Child(name, popen, log, log_begins=log_begins)
        self._children[name] = child
        state.processes[name] = {
            "pid": child.pid,
            "start": procfs.start_time(child.pid),
            "command": " ".join(argv),
        }
        self._run_dir.save()
        return child

    def wait_ready(
        self,
        probes: dict[str, Probe],
        check: Callable[[], None] = lambda: None,
        *,
        only_these: bool = False,
        prerequisites: Iterable[str] = (),
        quiet_s: float = QUIET_S,
    ) -> None:
        """Wait until the probe of every named part has returned True.

        It is polled every 20 ms, less often when a poll takes long: polling must not slow down the start.
        `only_these`: the death of other parts ends nothing. `prerequisites`: parts that those may wait for: while
        these work, no part is given up. `quiet_s`: of ipc/patience.py.
        Raises ProcessError when one dies (how, and the tail of its log), or none of those that are not ready gets on
        any more, and what `check` raises when something else has gone that they need.
        """
        patience, told_at = Patience(quiet_s), time.monotonic()
        waiting = dict(probes)
        prerequisite_names = [name for name in prerequisites if name in self and name not in waiting]
        for name in (*waiting, *prerequisite_names):
            patience.follow(name, self[name].work)
        while waiting:
            polled_at = time.monotonic()
            for name in list(waiting):
                if waiting[name]():
                    self[name].ready = True
                    del waiting[name]
            self.check(*(probes if only_these else ()))
            check()
            if not waiting:
                return
            patience.update()
            if patience.is_over([*waiting, *prerequisite_names]):
                raise ProcessError(self._gave_up(next(iter(waiting)), patience))
            if time.monotonic() - told_at >= TELL_S:
                told_at = time.monotonic()
                doing = [patience.doing(next(iter(waiting)))]
                doing += [f"{name}: {patience.doing(name)}" for name in prerequisite_names]
                self.report(f"waiting for {_names(waiting)}: {'; '.join(doing)}")
            time.sleep(pause_s(time.monotonic() - polled_at))

    def _gave_up(self, name: str, patience: Patience) -> str:
        child = self[name]
        return (
            f"{name} (pid {child.pid}{child.machine_note}) is not ready, and has done nothing for "
            f"{patience.quiet_s:g} s ({patience.doing(name)}): it waits for something that does not come, or was "
            f"stopped (kill -CONT {child.pid}); begin again, and if it comes again "
            f"send its log {child.log}, which ends:\n{child.tail()}"
        )

    def check(self, *names: str) -> None:
        """Raises ProcessError when one of the named parts, or of all, has died: how, and the tail of its log."""
        for child in self.parts:
            if child.has_died and (not names or child.name in names):
                raise ProcessError(child.last_words())

    def stop(self, *names: str, grace_s: float = 2.0) -> None:
        """End the named children, all by default: SIGTERM together, SIGKILL for those that stay.

        They have `grace_s`; those that work on their end longer, up to GRACES times that of CPU time.
        Raises ProcessError when one survives even that.
        """
        ending = [self._children[n] for n in (names or tuple(self._children)) if n in self._children]
        patience = Patience(max(grace_s, 0.01))
        for child in ending:
            child.ending = True
            child.popen.terminate()
            patience.follow(child.name, LocalWork(child.pid))
        for child in ending:
            while child.alive and not patience.is_over(child.name) and patience.used_s(child.name) < GRACES * grace_s:
                patience.update()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.popen.wait(POLL_S)
            self._kill(child)
            self._children.pop(child.name, None)
            self._run_dir.state.processes.pop(child.name, None)

    def kill(self, name: str) -> None:
        """End a child by SIGKILL, as its host lost its power; nothing when there is none. Raises ProcessError."""
        child = self._children.get(name)
        if child is not None:
            child.ending = True
            self._kill(child)
            del self._children[name]
            self._run_dir.state.processes.pop(name, None)

    @staticmethod
    def _kill(child: Child) -> None:
        if not child.alive:
            return
        child.popen.kill()
        try:
            child.popen.wait(procfs.KILLED_S)
        except subprocess.TimeoutExpired:
            raise ProcessError(f"{child.name} (pid {child.pid}) does not end, not even after SIGKILL") from None


def _names(names: Iterable[str]) -> str:
    first, *other_names = names
    return first + (f" and {len(other_names)} more" if other_names else "")


def pause_s(asking_s: float) -> float:
    """Seconds until the next probe of a process that took `asking_s` to answer "not ready"."""
    return max(POLL_S, min(POLL_MAX_S, ASKING_SHARE * asking_s))


class _Spawner:
    """One daemon thread that starts every child; see the design note."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def call(self, job: Callable[[], Result]) -> Result:
        """The result of `job`, run in the spawner's thread. An interrupt ends the waiting, not the job."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="spawner", daemon=True)
                self._thread.start()
        future: Future[Result] = Future()
        self._jobs.put((job, future))
        return future.result()

    def drain(self) -> None:
        """Return when every job given so far is done: what was being started is then known."""
        if self._thread is not None:
            self.call(lambda: None)

    def _run(self) -> None:
        while True:
            job, future = self._jobs.get()
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)


_spawner = _Spawner()


def drain() -> None:
    """Return when no child is in the middle of being started (after an interrupt)."""
    _spawner.drain()
