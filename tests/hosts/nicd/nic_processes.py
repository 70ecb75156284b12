"""NIC processes of several hosts in a thread, on a virtual wire: for C programs, without root."""

from __future__ import annotations

import gc
import logging
import os
import selectors
import threading
import time
from collections.abc import Callable, Collection, Sequence
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType

from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.nicd.daemon import NicDaemon
from mrc_testbed.hosts.verbs import VirtualDriver, VirtualWire

HOSTS = ("a", "b")
log = logging.getLogger(__name__)


class LoopDriver(VirtualDriver):
    """End of the wire for a NIC process that shares a loop with others."""

    def __init__(self, loop: NicProcesses, name: str, number: int) -> None:
        wire = loop.wire
        super().__init__(wire, Endpoint(name, planes=wire.planes, seed=number), number)
        wire.drivers[name] = self
        self._loop = loop
        self.is_busy = False
        self.before_packets: Callable[[], object] = bool

    def call_before_packets(self, callback: Callable[[], object]) -> None:
        self.before_packets = callback

    def gids(self) -> tuple[str, ...]:
        return tuple(str(ip_address(gid)) for gid in super().gids())  # as text of binary addresses, which programs have

    def watch(self, fd: int, on_readable: Callable[[], object]) -> None:
        self._loop.callbacks[fd] = on_readable
        self._loop.selector.register(fd, selectors.EVENT_READ)

    def unwatch(self, fd: int) -> None:
        del self._loop.callbacks[fd]
        self._loop.selector.unregister(fd)

    def step(self, deadline: float | None) -> bool:
        self.is_busy = self._loop.step(self, may_wait=deadline is None)
        return self.is_busy


class NicProcesses:
    """See the module. `sockets`: path of each host's socket.

    A context manager, whose end raises what ended the thread.

    The thread waits, without limit, when all of its NIC processes would: a wake-up that is lost hangs the test.
    """

    def __init__(self, folder: Path, guests: Collection[int] = (), hosts: Sequence[str] = HOSTS) -> None:
        self.wire = VirtualWire(planes=2, uplinks=2)
        self.selector = selectors.DefaultSelector()
        self.callbacks: dict[int, Callable[[], object]] = {}
        self.sockets = {host: folder / f"{host}.sock" for host in hosts}
        # The second socket of each host, where it has guests.
        self.guest_sockets = {host: folder / f"{host}-guests.sock" for host in hosts}
        self._waiting: set[LoopDriver] = set()
        self._is_ending = False
        self._failure: BaseException | None = None
        self._alarm = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.selector.register(self._alarm, selectors.EVENT_READ)
        self.drivers = [LoopDriver(self, host, number) for number, host in enumerate(hosts, 1)]
        self.daemons = [
            NicDaemon(driver, self.sockets[host], self.guest_sockets[host] if guests else None, guests)
            for driver, host in zip(self.drivers, hosts, strict=True)
        ]
        # A program's end collects garbage: the objects of all tests before need not be looked at each time.
        gc.collect()
        gc.freeze()
        self._thread = threading.Thread(target=self._run, name="NIC processes")
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_ending:
                for daemon in self.daemons:
                    daemon.turn()
        except BaseException as error:
            self._failure = error
            log.exception("the thread of the NIC processes ended")
        for daemon in self.daemons:
            daemon.close()

    def step(self, driver: LoopDriver, *, may_wait: bool) -> bool:
        """Move the wire and look at the descriptors of all; return whether the wire moved."""
        if may_wait:
            self._waiting.add(driver)
        else:
            self._waiting.clear()
        is_waiting = len(self._waiting) == len(self.drivers) and not self._is_ending
        for key, _ in self.selector.select(None if is_waiting else 0):
            self._waiting.clear()
            if on_readable := self.callbacks.get(key.fd):
                on_readable()
        has_posted = any([end.before_packets() for end in self.drivers])
        has_moved = self.wire.step(None)
        if has_posted or has_moved:
            self._waiting.clear()
        return has_moved

    def qp_counts(self) -> list[int]:
        """Return the number of QPs of each host."""
        with self.wire.lock:
            return [len(daemon._device.hardware.qps) for daemon in self.daemons]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for the thread; without end where the condition never holds, until the test is timed out."""
        while not condition():
            if self._failure is not None:
                raise self._failure
            time.sleep(0.001)

    def end(self) -> None:
        """End all NIC processes. Raises what had ended them already."""
        self._is_ending = True
        os.eventfd_write(self._alarm, 1)
        self._thread.join()
        gc.unfreeze()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> NicProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all, and give back what they shared. Raises what had ended them already."""
        try:
            self.end()
        finally:
            self.selector.close()
            os.close(self._alarm)
