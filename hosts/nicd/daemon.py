"""NIC process of one host: it lets the programs of the host's device use one engine, in one thread.

A program's library connects to a Unix socket of packets. Between two turns of the network this process takes what the
programs posted, and gives them what completed. It sleeps when no ring has a request and no packet is due; a program
that posts meanwhile rings the doorbell.

An exception that nobody foresaw, raised while one program is served, ends that program alone; its traceback is in the
log. One of the engine that all share ends this process: programs hear DEVICE_FATAL, and their calls return EIO.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from pathlib import Path

from mrc_testbed.hosts.nicd import messages
from mrc_testbed.hosts.nicd.guests import Caller, caller_of, refusal
from mrc_testbed.hosts.nicd.messages import Reply
from mrc_testbed.hosts.nicd.program import SHARES, VerbsProgram
from mrc_testbed.hosts.verbs.context import DeviceContext
from mrc_testbed.hosts.verbs.device import Device
from mrc_testbed.hosts.verbs.live import LiveDriver

BACKLOG = 64
MAX_PROGRAMS = 1024
"""Programs served at once, those that have not said hello included."""
MAX_STRIKES = 8
"""Programs of a guest that may send files that are no memory: each may hold a thread for ever."""
log = logging.getLogger("mrc_testbed.hosts.nicd")


class NicDaemon:
    """See the module. A context manager: leaving it ends all programs and removes the socket."""

    def __init__(
        self, driver: LiveDriver, path: Path, guest_path: Path | None = None, guests: Collection[int] = ()
    ) -> None:
        """`guest_path`: second socket, for the users `guests`. Its folder lets nobody else change it."""
        self._driver, self._device, self._guests = driver, Device(driver), guests
        self._programs: dict[int, VerbsProgram] = {}
        self._failed: list[VerbsProgram] = []
        """Programs that are about to be ended."""
        self._device.hardware.on_failure = self._on_failure
        self._strikes: Counter[int] = Counter()
        """Programs of each user that were ended for files that are no memory."""
        self._numbers = count(1)
        self._spare = socket.socket(socket.AF_UNIX)
        raise_file_limit()
        with ExitStack() as stack:  # undone in reverse order, by close() or where a step fails
            stack.callback(self._device.close)
            stack.callback(lambda: self._spare.close())
            if guest_path is not None:
                self._listen(guest_path, 0o666, stack)
            self._listen(path, 0o600, stack)  # the last: whoever starts this process waits for it
            driver.call_before_packets(self._serve_rings)
            stack.callback(self._end_programs)
            self._parts = stack.pop_all()

    def _listen(self, path: Path, mode: int, stack: ExitStack) -> None:
        """Accept programs at a socket until the stack is closed."""
        listener = stack.enter_context(
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        )
        path.unlink(missing_ok=True)
        old_mask = os.umask(0o777 & ~mode)
        try:
            listener.bind(str(path))
        finally:
            os.umask(old_mask)
        stack.callback(path.unlink, missing_ok=True)
        listener.listen(BACKLOG)
        self._driver.watch(listener.fileno(), lambda: self._accept(listener))

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

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:  # its program has gone
            return
        except OSError as error:
            log.error("cannot accept a program: %s", error.strerror)
            self._refuse(listener)
            return
        if len(self._programs) >= MAX_PROGRAMS:
            log.error("a program is refused: %d are served, the limit", MAX_PROGRAMS)
            connection.close()
            return
        caller = caller_of(connection)
        if reason := self._refusal(caller):
            # The caller hears it as the reply to whatever it asks first.
            with connection, suppress(OSError):
                messages.send(connection, Reply(errno=errno.EPERM, text=reason))
            return
        connection.setblocking(False)
        device = self._device.open_context(privileged=caller.is_root)
        program = VerbsProgram(device, connection, caller, next(self._numbers), self._programs, self._forget)
        self._programs[program.number] = program
        self._driver.watch(connection.fileno(), lambda: self._on_readable(program))

    def _refusal(self, caller: Caller) -> str | None:
        """Return why a caller is turned away; None for one who may use the device."""
        if not caller.is_guest:
            return None
        if self._strikes[caller.user] >= MAX_STRIKES:
            return f"user {caller.user} sent files that are no memory {MAX_STRIKES} times: no more is heard of him"
        count = sum(program.caller.user == caller.user for program in self._programs.values())
        if count >= MAX_PROGRAMS // SHARES:
            return f"user {caller.user} has {count} programs on this device, the limit"
        return refusal(caller.user, self._guests)

    def _refuse(self, listener: socket.socket) -> None:
        """Let the program that waits hear an end, by the descriptor that is kept for that."""
        self._spare.close()
        with suppress(OSError):
            listener.accept()[0].close()
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
        self._strikes[program.caller.user] += program.has_sent_files

    def _end_programs(self) -> None:
        for program in list(self._programs.values()):
            self._end(program)

    def close(self) -> None:
        self._parts.close()

    def __enter__(self) -> NicDaemon:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def raise_file_limit() -> None:
    """Let this process have as many descriptors as the kernel allows: regions and queues take one each."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
