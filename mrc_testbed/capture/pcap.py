"""`mrc pcap PORT|NODE`: packets of a port, or of all ports of a node, as a capture file.

The fabric must be running.

PORT is an interface name (p1-t0-0-eth3, h0-eth2), NODE a switch or a host; both of the plan in the run folder. What the
port receives is read there, what it sends at the other end of its cable (packet_files.py), so frames that a cut
cable loses on the way out are not seen. Reads only: packet sockets on interfaces that exist, and what the daemon tells
of its wires; nothing else is touched.

With `explain` each packet gets a comment (capture/explain/), also with how full the queue was that it left.
"""

from __future__ import annotations

import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO

from mrc_testbed.capture.explain.explainer import Explainer
from mrc_testbed.capture.explain.queue_depths import EVERY_S, QueueDepths
from mrc_testbed.capture.packet_files import (
    INBOUND,
    OUTBOUND,
    SNAP_BYTES,
    CapturedPacket,
    PacketReader,
    PcapFile,
    PcapngFile,
    WireReader,
    is_capture_file,
)
from mrc_testbed.capture.several_machines import refuse_several_machines
from mrc_testbed.errors import DISK_FULL_ERRNOS, FullDiskError, UsageError
from mrc_testbed.files.whole_files import GrowingFile
from mrc_testbed.ipc.agent_client import AgentClient, AgentError
from mrc_testbed.ipc.rundir import FabricError, RunFiles
from mrc_testbed.topologies.lab.netdev import in_namespace
from mrc_testbed.topologies.lab.wires import WireClient, states_of
from mrc_testbed.topologies.plan import Plan, Port

POLL_S = 0.2
"""Seconds between checks that the interfaces of a quiet capture still exist."""
BATCH = 256


@dataclass
class CaptureResult:
    """Result of a capture. `lost`: frames the kernel had no room for."""

    ports: list[str]
    path: str
    packets: int = 0
    received: int = 0
    sent: int = 0
    lost: int = 0
    ended: str = ""
    """count, seconds, interrupted, or gone (the fabric ended)."""

    def __str__(self) -> str:
        ports = self.ports[0] if len(self.ports) == 1 else f"{len(self.ports)} ports"
        text = f"{self.packets} packets of {ports} ({self.received} received, {self.sent} sent) in {self.path}"
        return text + (
            f"; {self.lost} more were lost: the reader was too slow (try --snaplen 128)" if self.lost else ""
        )

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass
class _Tap:
    """A reader and what its frames are: those of port number `index`, in one direction."""

    reader: PacketReader | WireReader
    index: int
    direction: int


@dataclass
class _Capture:
    """Frames read and not written yet wait until everything older must have been read too."""

    taps: list[_Tap]
    waiting: list[tuple[CapturedPacket, _Tap]] = field(default_factory=list)

    def poll(self) -> list[tuple[CapturedPacket, _Tap]]:
        """Read what waits; returns, in order of time, what can be written."""
        started_ns = time.time_ns()
        for tap in self.taps:
            self.waiting += [(packet, tap) for packet in tap.reader.read(BATCH)]
        self.waiting.sort(key=lambda entry: entry[0].at_ns)
        due_frames = [entry for entry in self.waiting if entry[0].at_ns < started_ns]
        self.waiting = self.waiting[len(due_frames) :]
        return due_frames


# ---- where ------------------------------------------------------------------------------------------------------


def running_plan(run_dir: Path) -> Plan:
    """The plan of the fabric of a run folder. Raises UsageError when none is there."""
    files = RunFiles(run_dir)
    path = files.plan_file
    try:
        return Plan.from_json(files.read_plan())
    except FileNotFoundError:
        raise UsageError(
            f"no fabric is running ({path} is not there): start one with `mrc up` in another terminal"
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error


def ports_of(plan: Plan, name: str) -> list[Port]:
    """The port with that interface name, or all of a node. Raises UsageError with names that look like it."""
    every = [end for link in plan.links for end in (link.lower, link.upper)]
    matches = [port for port in every if name in (port.interface, port.node)]
    if not matches:
        names = list(dict.fromkeys(n for port in every for n in (port.node, port.interface)))
        close = get_close_matches(name, names, n=4, cutoff=0.5)
        example = f"such as {every[0].interface}, {every[-1].interface} or {every[-1].node}"
        hint = f"did you mean {', '.join(close)}?" if close else example
        raise UsageError(f"no port or node {name!r} in the running fabric ({hint})")
    return sorted(matches, key=lambda port: port.number)


def is_finished_capture(name: str, run_dir: Path) -> bool:
    """Whether a name is that of a file, by its form or because the file is there; ports come first."""
    if is_capture_file(name) or not Path(name).is_file():
        return is_capture_file(name)
    try:
        ports_of(running_plan(run_dir), name)
    except UsageError:
        return True
    return False


def far_end(plan: Plan, port: Port) -> Port:
    """The port at the other end of the cable."""
    link = plan.link_of_interface(port.interface)
    return link.lower if port == link.upper else link.upper


def _namespace(plan: Plan, run_dir: Path, node: str) -> int | None:
    """Return the pid whose network namespace holds the node's ports: a host's agent.

    None for switches, whose ports are in this namespace.
    """
    if node not in {host.name for host in plan.hosts}:
        return None
    try:
        with AgentClient(RunFiles(run_dir).agent_socket(node)) as agent:
            return int(agent.hello()["pid"])
    except AgentError as error:
        raise UsageError(f"cannot find the namespace of {node}, its agent does not answer: {error}") from error


def _open(port: Port, pid: int | None, snap: int, wires: WireClient | None) -> PacketReader | WireReader:
    """Return a reader on a port. Raises UsageError naming the cure.

    `wires`: those of its daemon, when the port is on one.
    """
    try:
        if wires is not None:
            return WireReader(wires, port.interface, snap)
        if pid is None:
            return PacketReader(port.interface, snap)
        return in_namespace(pid, lambda: PacketReader(port.interface, snap))
    except PermissionError:
        raise UsageError("a capture needs root (packet sockets): run it with sudo") from None
    except (OSError, FabricError) as error:
        raise UsageError(f"{port.interface}: {error}; is the fabric still up?") from error


# ---- the capture ------------------------------------------------------------------------------------------------


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """Yield a list that gets an item when SIGINT or SIGTERM arrives.

    It replaces an exception in the middle of a packet.
    """
    stop: list[int] = []
    old_handlers = {
        number: signal.signal(number, lambda n, _: stop.append(n)) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)


class _Writer:
    """Writer of pcap for one port, of pcapng otherwise.

    pcapng is for several ports (it names them), for comments, and where the file's name says so.
    """

    def __init__(self, out: BinaryIO, ports: list[Port], path: str, comments: _Comments | None) -> None:
        suffix = Path(path).suffix.lower()
        self.packets_whole = 0
        """Packets up to the last flush, which no failure takes away."""
        self._packets = 0
        self._out, self._comments = out, comments
        self._file: PcapFile | PcapngFile
        if comments or suffix == ".pcapng" or (suffix != ".pcap" and len(ports) > 1):
            self._file = PcapngFile(out, [port.interface for port in ports])
        else:
            self._file = PcapFile(out)

    def write(self, packet: CapturedPacket, tap: _Tap) -> None:
        if self._comments is not None and isinstance(self._file, PcapngFile):
            self._file.write(packet, tap.index, tap.direction, [self._comments.comment(packet, tap)])
        else:
            self._file.write(packet, tap.index, tap.direction)
        self._packets += 1

    def flush(self) -> None:
        """Bring the packets to the file. Raises OSError."""
        self._out.flush()
        self.packets_whole = self._packets


class _Comments:
    """Comments of packets, with the depth of the switch queue that each packet came out of."""

    def __init__(self, plan: Plan, ports: list[Port], control: Path) -> None:
        self._ports = ports
        self._explainer = Explainer(plan)
        switches = {switch.name for switch in plan.switches}
        ends = {
            (index, way): end
            for index, port in enumerate(ports)
            for way, end in ((OUTBOUND, port), (INBOUND, far_end(plan, port)))
        }
        self._queues = {tap: end.interface for tap, end in ends.items() if end.node in switches}
        self.depths = QueueDepths(control, set(self._queues.values()))

    def comment(self, packet: CapturedPacket, tap: _Tap) -> bytes:
        queue = self._queues.get((tap.index, tap.direction))
        return self._explainer.comment(
            packet.frame,
            at_ns=packet.at_ns,
            interface=self._ports[tap.index].interface,
            direction=tap.direction,
            size=packet.length,
            queue=self.depths.text(queue, packet.at_ns) if queue else "",
        ).encode()


def capture(
    name: str,
    run_dir: Path,
    *,
    out: str | None = None,
    count: int | None = None,
    seconds: float | None = None,
    snap: int = SNAP_BYTES,
    explain: bool = False,
    on_ready: Callable[[list[Port], str], None] | None = None,
) -> CaptureResult:
    """Capture until `count` packets or `seconds` have passed, the fabric ends, or the user interrupts.

    `out`: file, `-` for standard output; by default NAME.pcap, NAME.pcapng for a node or with `explain`, which adds a
    comment to each packet. `snap`: bytes kept of a frame.
    `ready(ports, path)` is called when nothing more is missed. Raises UsageError.
    """
    plan = running_plan(run_dir)
    refuse_several_machines(RunFiles(run_dir))
    ports = ports_of(plan, name)
    path = out or f"{name}.{'pcap' if len(ports) == 1 and not explain else 'pcapng'}"
    if explain and Path(path).suffix.lower() == ".pcap":
        raise UsageError(f"{path}: a pcap has no place for comments: name it .pcapng")
    result = CaptureResult([port.interface for port in ports], "standard output" if path == "-" else path)
    with ExitStack() as stack:
        pids = {node: _namespace(plan, run_dir, node) for node in _nodes(plan, ports)}
        wires = WireClient(RunFiles(run_dir).switchd_socket)
        stack.callback(wires.close)
        wires_by_end = states_of(RunFiles(run_dir).switchd_socket).ends
        taps = []
        for index, port in enumerate(ports):
            for end, direction in ((port, INBOUND), (far_end(plan, port), OUTBOUND)):
                reader = _open(end, pids[end.node], snap, wires if end.interface in wires_by_end else None)
                stack.callback(reader.close)
                taps.append(_Tap(reader, index, direction))
        try:
            stream = sys.stdout.buffer if path == "-" else stack.enter_context(GrowingFile(Path(path)))
        except OSError as error:
            if error.errno in DISK_FULL_ERRNOS:  # with an exit code of its own
                raise
            raise UsageError(f"{path}: {error.strerror}") from error
        stop = stack.enter_context(_interruptible())
        comments = _Comments(plan, ports, RunFiles(run_dir).switchd_socket) if explain else None
        if comments is not None:
            stack.callback(comments.depths.close)
        file = _Writer(stream, ports, path, comments)
        file.flush()
        if on_ready is not None:
            on_ready(ports, result.path)
        try:
            depths = comments.depths if comments is not None else None
            result.ended = _run(_Capture(taps), file, result, stop, count, seconds, depths)
        except BrokenPipeError:
            result.ended = "the reader of standard output went away"
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            raise FullDiskError(
                f"{result.path}: {error.strerror}: make room there, or write elsewhere; "
                f"the first {file.packets_whole} packets are whole"
            ) from None
        result.lost = sum(tap.reader.count_lost() for tap in taps)
    return result


def _nodes(plan: Plan, ports: list[Port]) -> set[str]:
    return {end.node for port in ports for end in (port, far_end(plan, port))}


def _run(
    taps: _Capture,
    file: _Writer,
    result: CaptureResult,
    stop: list[int],
    count: int | None,
    seconds: float | None,
    depths: QueueDepths | None,
) -> str:
    """Write packets until the capture ends; returns the cause."""
    deadline = None if seconds is None else time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for tap in taps.taps:
            selector.register(tap.reader, selectors.EVENT_READ)
        while True:
            late = deadline is not None and time.monotonic() >= deadline
            if depths is not None:
                depths.request()
            for packet, tap in taps.poll():
                file.write(packet, tap)
                result.packets += 1
                result.received += tap.direction == INBOUND
                result.sent += tap.direction == OUTBOUND
                if result.packets == count:
                    file.flush()
                    return "count"
            file.flush()
            if stop or late:
                return "interrupted" if stop else "seconds"
            if not taps.waiting:
                if any(tap.reader.gone() for tap in taps.taps):
                    return "gone"
                period_s = EVERY_S if depths is not None and depths.open else POLL_S
                timeout_s = period_s if deadline is None else min(period_s, max(0.0, deadline - time.monotonic()))
                selector.select(timeout_s)
