"""NIC process of one host: it lets the programs of the host's device use one engine, in one thread.

A program's library connects to a Unix socket of packets. Between two turns of the network this process takes what the
programs posted, and gives them what completed. It sleeps when no ring has a request and no packet is due; a program
that posts meanwhile rings the doorbell.

An exception that nobody foresaw, raised while one program is served, ends that program alone; its traceback is in the
log. One of the engine that all share ends this process: programs hear DEVICE_FATAL, and their calls return EIO.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from pathlib import Path

from mrc_testbed.hosts.nicd.program import VerbsProgram
from mrc_testbed.hosts.verbs.context import DeviceContext
from mrc_testbed.hosts.verbs.device import Device
from mrc_testbed.hosts.verbs.live import LiveDriver

BACKLOG = 64
MAX_PROGRAMS = 1024
"""Programs served at once, those that have not said hello included."""
log = logging.getLogger("mrc_testbed.hosts.nicd")


class NicDaemon:
    """See the module. A context manager: leaving it ends all programs and removes the socket."""

    def __init__(self, driver: LiveDriver, path: Path, mode: int = 0o600, owner: int | None = None) -> None:
        self._driver, self._device, self._path = driver, Device(driver), path
        self._programs: dict[int, VerbsProgram] = {}
        self._failed: list[VerbsProgram] = []
        """Programs that are about to be ended."""
        self._device.hardware.on_failure = self._on_failure
        self._numbers = count(1)
        self._spare = socket.socket(socket.AF_UNIX)
        raise_file_limit()
        with ExitStack() as stack:  # undone in reverse order, by close() or where a step fails
            stack.callback(self._device.close)
            stack.callback(lambda: self._spare.close())
            self._listener = stack.enter_context(
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            )
            path.unlink(missing_ok=True)
            old_mask = os.umask(0o777 & ~mode)
            try:
                self._listener.bind(str(path))
            finally:
                os.umask(old_mask)
            stack.callback(path.unlink, missing_ok=True)
            if owner is not None:
                os.chown(path, owner, -1)
            self._listener.listen(BACKLOG)
            driver.watch(self._listener.fileno(), self._accept)
            driver.call_before_packets(self._serve_rings)
            stack.callback(self._end_programs)
            self._parts = stack.pop_all()

    def run(self) -> None:
        """Serve programs until an exception (KeyboardInterrupt of a signal) ends it."""
        while True:
            self.turn()

    def turn(self) -> None:
        """Take what programs posted, let the network go on, and give them what completed.

        Wait where nothing is due.
        """
        driver = self._driver
        # A turn that waits must be woken by posts; one that does not wait looks at the rings soon anyway.
        may_wait = not driver.is_busy and self._all_asleep()
        driver.step(None if may_wait else driver.now())
        self._deliver()
        for program in self._failed:
            self._end(program)
        self._failed.clear()

    def _serve_rings(self) -> bool:
        """Take what programs posted; return whether there was anything.

        Done before packets are looked at: the peer may have sent them after it heard of a receive posted here.
        """
        return any([self._serve(program, program.serve_ring) for program in list(self._programs.values())])

    def _all_asleep(self) -> bool:
        """Ask all programs to ring at their next post; False when one has posted already."""
        return all([program.ring.sleep() for program in self._programs.values() if program.ring is not None])

    def _deliver(self) -> None:
        for program in list(self._programs.values()):
            self._serve(program, program.deliver)

    def _serve(self, program: VerbsProgram, action: Callable[[], object]) -> bool:
        """Do something for a program, and return whether there was anything; end it where that fails."""
        try:
            return bool(action())
        except Exception:
            log.exception("program %d is ended, as serving it failed; the others go on", program.number)
            self._end(program)
            return False

    def _end(self, program: VerbsProgram) -> None:
        try:
            program.end("")
        except Exception:
            log.exception("program %d: not all of its objects could be destroyed", program.number)

    def _on_failure(self, context: DeviceContext) -> None:
        """End soon the program of a context whose QP raised an exception, while events are given to all."""
        for program in self._programs.values():
            if program.has_context(context):
                log.exception("program %d is ended, as a QP of it failed; the others go on", program.number)
                self._failed.append(program)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:  # its program has gone
            return
        except OSError as error:
            log.error("cannot accept a program: %s", error.strerror)
            self._refuse()
            return
        if len(self._programs) >= MAX_PROGRAMS:
            log.error("a program is refused: %d are served, the limit", MAX_PROGRAMS)
            connection.close()
            return
        connection.setblocking(False)
        device = self._device.open_context(privileged=_is_privileged(connection))
        program = VerbsProgram(device, connection, next(self._numbers), self._programs, self._forget)
        self._programs[program.number] = program
        self._driver.watch(connection.fileno(), lambda: self._on_readable(program))

    def _refuse(self) -> None:
        """Let the program that waits hear an end, by the descriptor that is kept for that."""
        self._spare.close()
        with suppress(OSError):
            self._listener.accept()[0].close()
        self._spare = socket.socket(socket.AF_UNIX)

    def _on_readable(self, program: VerbsProgram) -> None:
        had_ring = program.ring is not None
        self._serve(program, program.on_readable)
        if not had_ring and program.doorbell is not None and program.number in self._programs:
            self._driver.watch(program.doorbell.fileno(), partial(self._serve, program, program.on_doorbell))

    def _forget(self, program: VerbsProgram) -> None:
        del self._programs[program.number]
        self._driver.unwatch(program.socket.fileno())
        if program.doorbell is not None:
            with suppress(KeyError):  # it has ended in the turn of its hello
                self._driver.unwatch(program.doorbell.fileno())

    def _end_programs(self) -> None:
        for program in list(self._programs.values()):
            self._end(program)

    def close(self) -> None:
        self._parts.close()

    def __enter__(self) -> NicDaemon:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_privileged(connection: socket.socket) -> bool:
    """Whether the program at the other end may use the device's controller: root's may."""
    _, user_id, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(user_id == 0)


def raise_file_limit() -> None:
    """Let this process have as many descriptors as the kernel allows: regions and queues take one each."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
