"""Devices on the NIC ports of a host, in real time.

    with open_device(run_dir="/run/mrc-testbed") as device:       # inside a host, as root: which one is found out
        ...

The agent of the host may run at the same time; both are at the same ports. What keeps them apart: each process has QPNs
of its own (slot << 16, a slot being an abstract Unix socket name of the namespace, so the kernel gives it back whatever
happens), and a filter in the kernel gives each its own packets; endpoint operations reach all, and EV probes and port
status updates are answered by the agent when there is one; both watch the links and tell their own peers.

With `thread=True` the device works in the background. Without, it works while a call waits (`cq.wait`, `process`, ...):
a program that computes for longer than a retry timeout without calling looks dead to its peers.
"""

from __future__ import annotations

import json
import logging
import random
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from mrc_testbed.hosts.agent.engine_defaults import host_config
from mrc_testbed.hosts.agent.timerfd import TimerFd
from mrc_testbed.hosts.agent.turns import Turns
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.events import Event
from mrc_testbed.hosts.nic import open_nic
from mrc_testbed.hosts.nic.base import NicError
from mrc_testbed.hosts.nic.netlink import LinkState, LinkWatcher
from mrc_testbed.hosts.nic.qpns import VERBS_SLOT_BITS, keep
from mrc_testbed.hosts.verbs.device import Device
from mrc_testbed.hosts.verbs.errors import VerbsError
from mrc_testbed.hosts.verbs.plan_driver import PlanDriver
from mrc_testbed.ipc.rundir import DEFAULT_PATH, RunFiles
from mrc_testbed.switch.system.rtnetlink import set_admin_state
from mrc_testbed.topologies.plan import Host, Plan, PlanError

SLOTS = range(1, 256)
AGENT_CHECK_S = 1.0
log = logging.getLogger("mrc_testbed.hosts.verbs")


def open_device(
    host: str | None = None,
    *,
    run_dir: Path | str = DEFAULT_PATH,
    config: Config | None = None,
    nic: str = "fast",
    thread: bool = False,
    seed: int | None = None,
) -> Device:
    """Open the device of the host in whose network namespace we are.

    `host`: its name, if several could be meant. `nic`: "fast" or "scapy". `thread`: work in the background.
    Raises VerbsError naming the cause: no fabric, not in a host, no permission, no free slot.
    """
    path = RunFiles(run_dir).plan_file
    try:
        plan = Plan.from_json(json.loads(path.read_text()))
    except FileNotFoundError:
        raise VerbsError(f"{path}: no such file: bring the fabric up first (`mrc up`)") from None
    except (OSError, ValueError) as error:
        raise VerbsError(f"{path}: {error}") from None
    try:
        plan_host = plan.host(host) if host is not None else find_host(plan)
        return Device(
            LiveDriver(plan, plan_host, Path(run_dir), config or host_config(plan), nic=nic, thread=thread, seed=seed)
        )
    except (NicError, PlanError, OSError) as error:
        raise VerbsError(f"cannot open the device: {error}") from None


def find_host(plan: Plan) -> Host:
    """Return the host whose ports are in this network namespace.

    Raises VerbsError when none or several are.
    """
    names = {name for _, name in socket.if_nameindex()}
    hosts = [h for h in plan.hosts if all(plan.host_port(h, p).interface in names for p in plan.host_planes(h))]
    if len(hosts) != 1:
        host_names = ", ".join(h.name for h in hosts) or "no host"
        raise VerbsError(
            f"this network namespace has the ports of {host_names}. Cure: run inside a host "
            "(`h0 python ...` at the Mininet prompt)"
        )
    return hosts[0]


class LiveDriver(PlanDriver):
    """See the module. Made by `open_device`."""

    def __init__(
        self, plan: Plan, host: Host, run_dir: Path, config: Config, *, nic: str, thread: bool, seed: int | None
    ) -> None:
        self._agent_path = RunFiles(run_dir).agent_socket(host.name)
        self._agent_seen: tuple[float, bool] = (float("-inf"), False)
        self._closed = self._kicked = self._in_turn = self._has_events = False
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        """Error that ended the thread; None while the thread runs."""
        with ExitStack() as stack:
            self._slot, self.slot = claim_slot()
            stack.callback(self._slot.close)
            first = self.slot << VERBS_SLOT_BITS
            self.qpns = range(first, first + (1 << VERBS_SLOT_BITS))
            rng = random.SystemRandom().getrandbits(64) if seed is None else seed
            super().__init__(plan, host, Endpoint(host.name, config, planes=plan.planes, seed=rng, qpns=self.qpns))
            self.nic = open_nic(nic, plan, host, config)
            stack.callback(self.nic.close)
            self._interfaces = {port.interface: plane for plane, port in self.nic.ports.items()}
            self._links = LinkWatcher(self._interfaces)
            stack.callback(self._links.close)
            # kick() writes one byte here to wake the thread from select().
            self._wake_writer, self._wake_reader = socket.socketpair()
            for end in (self._wake_writer, self._wake_reader):
                end.setblocking(False)
                stack.callback(end.close)
            self._epoll = stack.enter_context(select.epoll())
            self._alarm = TimerFd()
            stack.callback(self._alarm.close)
            self._epoll.register(self._alarm, select.EPOLLIN)
            self._callbacks: dict[int, Callable[[], object]] = {}
            self.watch(self._links.fileno(), self._on_links)
            self.watch(self._wake_reader.fileno(), self._on_kick)
            self._turns = Turns(self.endpoint, self._on_events)
            self._due: float | None = 0.0
            """Next turn that the last one asked for; 0 = at once."""
            self.endpoint.answer_probes_if(self._is_alone)
            self._nic_files: list[int] = []
            self.nic.share(RunFiles(run_dir).shared_wires_socket, self.qpns)
            self._watch_nic()
            self._parts = stack.pop_all()
        for interface, state in self._links.states.items():
            if not state.up:
                self._on_link(interface, state)
        self._on_captures()
        self._progress = threading.Condition(self.lock)
        if thread:
            self._thread = threading.Thread(target=self._run, name=f"mrc {host.name}", daemon=True)
            self._thread.start()

    # ---- what a device asks -----------------------------------------------------------------------------------

    def now(self) -> float:
        return time.monotonic()

    def port_up(self, plane: int) -> bool:
        return self._links.states[self.nic.ports[plane].interface].up

    def port_enabled(self, plane: int) -> bool:
        return self._links.states[self.nic.ports[plane].interface].admin_up

    def set_port(self, plane: int, enabled: bool) -> None:
        """Sets the interface up or down, as `ip link set`: the agent of the host sees it too."""
        interface = self.nic.ports[plane].interface
        try:
            set_admin_state(interface, enabled)
        except OSError as error:
            raise VerbsError(f"{interface}: cannot set it {'up' if enabled else 'down'}: {error.strerror}") from None

    def fileno(self) -> int:
        return self._epoll.fileno()

    def kick(self) -> None:
        if not self._kicked and not self._in_turn:  # a turn sends what was posted in it
            self._kicked = True
            self._wake_writer.send(b"k")

    def watch(self, fd: int, on_readable: Callable[[], object]) -> None:
        """Call a function in the loop whenever a descriptor is readable."""
        self._callbacks[fd] = on_readable
        self._epoll.register(fd, select.EPOLLIN)

    def unwatch(self, fd: int) -> None:
        """Forget a watched descriptor, before it is closed."""
        del self._callbacks[fd]
        self._epoll.unregister(fd)

    def call_before_packets(self, callback: Callable[[], object]) -> None:
        """Call a function when frames have been read, before the engine has them or sends."""
        self._turns = Turns(self.endpoint, self._on_events, callback)

    @property
    def is_busy(self) -> bool:
        """Whether the last turn has left work, so that the next one does not wait."""
        return self._due == 0.0

    # ---- the loop ---------------------------------------------------------------------------------------------

    def step(self, deadline: float | None) -> bool:
        if self._failure is not None:
            raise VerbsError(f"the device's thread ended: {self._failure!r}") from self._failure
        if self._closed:
            raise VerbsError("the device is closed")
        if self._thread is not None and threading.current_thread() is not self._thread:
            with self._progress:
                remaining_s = None if deadline is None else deadline - self.now()
                if remaining_s is not None and remaining_s <= 0:
                    return False
                self._progress.wait(remaining_s)
            return True
        self._turn(deadline)
        return deadline is None or self.now() < deadline

    def _turn(self, deadline: float | None) -> None:
        """Wait for something to do, no longer than `deadline`, and do it."""
        readable_fds = self._epoll.poll(self._timeout(deadline))
        with self.lock:
            self._in_turn = True
            try:
                for fd, _ in readable_fds:
                    if on_readable := self._callbacks.get(fd):
                        on_readable()
                self._due = self._turns.turn(self.nic)
            finally:
                self._in_turn = False
            if self._has_events:
                self._has_events = False
                self._notify()

    def _timeout(self, deadline: float | None) -> float | None:
        if self.is_busy:
            return 0.0
        with self.lock:
            # Calls between turns may have set timers of the engine.
            times = (self._due, self.endpoint.next_timer(), deadline)
            return self._alarm.wait(min((t for t in times if t is not None), default=None), self.now())

    def _on_kick(self) -> None:
        if self._kicked:
            self._wake_reader.recv(16)
            self._kicked = False

    def _on_links(self) -> None:
        for interface, state in self._links.poll():
            self._on_link(interface, state)
        self._on_captures()

    def _on_events(self, events: list[Event]) -> None:
        self._has_events = True
        self.deliver(events)

    def _notify(self) -> None:
        if self._thread is not None:
            self._progress.notify_all()

    def _run(self) -> None:
        try:
            while not self._closed:
                self._turn(None)
        except BaseException as error:  # whoever waits must hear of it
            self._failure = error
            log.exception("%s: the device's thread ended", self.host.name)
            with self.lock:
                self._notify()

    def _is_alone(self) -> bool:
        """Return whether no agent of this host answers probes; checked once a second at most."""
        checked_at, is_alive = self._agent_seen
        now = self.now()
        if now - checked_at > AGENT_CHECK_S:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.settimeout(0.1)
                is_alive = sock.connect_ex(str(self._agent_path)) == 0
            self._agent_seen = now, is_alive
        return not is_alive

    def _watch_nic(self) -> None:
        for number in self._nic_files:
            with suppress(OSError):  # a port that has gone has closed its own
                self._epoll.unregister(number)
        sockets = list(self.nic.filenos().values())
        for number in sockets:
            keep(number, self.qpns, outer=self.plan.mode.outer_header)
        self._nic_files = [*sockets, *self.nic.wire_filenos()]
        for number in self._nic_files:
            self._epoll.register(number, select.EPOLLIN)

    def _on_link(self, interface: str, state: LinkState) -> None:
        plane = self._interfaces[interface]
        try:
            if self.nic.link_changed(plane, state):
                self._watch_nic()
        except NicError as error:
            log.error("%s", error)
        self.endpoint.on_port(plane, state.up, self.now())

    def _on_captures(self) -> None:
        for interface, is_captured in self._links.captures().items():
            self.nic.capture_changed(self._interfaces[interface], is_captured)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._thread is not None:
            with self.lock:
                self.kick()
            self._thread.join(5.0)
        with self.lock:
            self._notify()
            self._parts.close()


def claim_slot() -> tuple[socket.socket, int]:
    """Return the socket that holds a slot of this network namespace, and the slot's number.

    Raises VerbsError when all are taken.
    """
    for slot in SLOTS:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            sock.bind(f"\0mrc-verbs/{slot}")
            return sock, slot
        except OSError:
            sock.close()
    raise VerbsError(f"{len(SLOTS)} processes of this host have devices open, the limit")
