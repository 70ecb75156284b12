"""The wires of a daemon: cables between its own switches that the kernel knows nothing of.

To the rest of the daemon an end of a wire is an interface: it has the state, the counters and the name of one. All is
read and changed on the asyncio loop only.

    {"op": "add_wires", "wires": [["p0-t0-0-eth3", "p0-t1-0-eth1"]], "mtu": 9216}   before the devices that use them
    {"op": "remove_wires", "interfaces": ["p0-t0-0-eth3"]}                       wires that have such an end
    {"op": "set_wires", "interfaces": ["p0-t0-0-eth3"], "up": false}             as `ip link set ... down` does
    {"op": "wires", "interfaces": [...]}                    state and counters of those ends, of all by default
                                                            and counts of shared wires by their port's interface
    {"op": "tap", "interface": "p0-t0-0-eth3", "to": "mrc-tap-1234", "snap": 262144}   -> {"tap": 1}
    {"op": "untap", "tap": 1}                               -> {"lost": 0}

A tap connects to the abstract Unix socket `to` (SOCK_SEQPACKET) and sends each frame that comes to the end
(switch/device/loop.py: tap_wire). Its end is `untap`, or that the other side closes the socket.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace

from mrc_testbed.switch.device.loop import EventLoop, PortError, WireEnd
from mrc_testbed.switch.server.control import ControlError, Fields, Operation, field
from mrc_testbed.switch.server.netlink import LinkCounters, Listener
from mrc_testbed.switch.system.rtnetlink import InterfaceState

DEFAULT_MTU = 9216
SNAP_MAX = 1 << 18


class DaemonWires:
    """All wires of one event loop, and who wants to hear of their states."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self.links: dict[str, InterfaceState] = {}
        """State of all ends by name."""
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Adds a listener of (name, new state; None: it is gone); call what is returned to remove it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def add(self, name: str, far: str, mtu: int = DEFAULT_MTU) -> None:
        """Raises PortError."""
        self._loop.add_wire(name, far, mtu)

    def remove(self, name: str) -> None:
        """Raises PortError when there is none, or a port at one of its ends."""
        self._loop.remove_wire(name)

    def set_up(self, name: str, is_up: bool) -> bool:
        """Sets an end up or down, tells of the states that changed; whether that one did. Raises PortError."""
        is_changed = self._loop.set_wire(name, is_up)
        if is_changed:
            self.refresh()
        return is_changed

    def refresh(self) -> None:
        """Notify listeners of the changes since the last call."""
        ends = self._loop.wires()
        for name in [name for name in self.links if name not in ends]:
            del self.links[name]
            self._notify(name, None)
        for name, end in ends.items():
            old_state = self.links.get(name)
            new_state = _state(end, old_state)
            if new_state != old_state:
                self.links[name] = new_state
                self._notify(name, new_state)

    def counters(self) -> dict[str, LinkCounters]:
        """Return the current counters of all ends by name."""
        return {
            name: LinkCounters(
                end.rx_packets, end.tx_packets, end.rx_bytes, end.tx_bytes, 0, 0, end.rx_dropped, end.tx_dropped
            )
            for name, end in (self._loop.wires() if self.links else {}).items()
        }

    def with_shared(self, kernel: Mapping[str, LinkCounters]) -> dict[str, LinkCounters]:
        """Return the counters of interfaces with what their shared wires have carried past the kernel."""
        counters = dict(kernel)
        for name, shared_counts in self._loop.shared_counts().items():
            if name in counters:
                kernel_counts = counters[name]
                counters[name] = replace(
                    kernel_counts,
                    rx_packets=kernel_counts.rx_packets + shared_counts.rx_packets,
                    tx_packets=kernel_counts.tx_packets + shared_counts.tx_packets,
                    rx_bytes=kernel_counts.rx_bytes + shared_counts.rx_bytes,
                    tx_bytes=kernel_counts.tx_bytes + shared_counts.tx_bytes,
                )
        return counters

    def _notify(self, name: str, state: InterfaceState | None) -> None:
        for listener in tuple(self._listeners):
            listener(name, state)

    # ---- the control socket ---------------------------------------------------------------------------------

    def operations(self) -> dict[str, Operation]:
        """Return the operations of the control socket by `op` (listed at the module's top)."""
        return {
            "add_wires": self._op_add,
            "remove_wires": self._op_remove,
            "set_wires": self._op_set,
            "wires": self._op_wires,
            "tap": self._op_tap,
            "untap": self._op_untap,
        }

    async def _op_add(self, request: Fields) -> Fields:
        pairs = field(request, "wires", list, "a list of pairs of interface names")
        mtu = field({"mtu": DEFAULT_MTU, **request}, "mtu", int, "bytes")
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
                raise ControlError(f'add_wires: {pair!r} is no pair of interface names (want ["s1-eth1", "s2-eth1"])')
        added_names: list[str] = []
        try:
            for name, far in pairs:
                self.add(name, far, mtu)
                added_names.append(name)
        except PortError as error:
            for name in added_names:
                self.remove(name)
            raise ControlError(f"add_wires: {error}") from None
        self.refresh()
        return {}

    async def _op_remove(self, request: Fields) -> Fields:
        try:
            for name in _names(request):
                self.remove(name)
        except PortError as error:
            raise ControlError(f"remove_wires: {error}") from None
        finally:
            self.refresh()
        return {}

    async def _op_set(self, request: Fields) -> Fields:
        is_up = field(request, "up", bool, "true or false")
        names = self._check_names(_names(request))
        if any([self._loop.set_wire(name, is_up) for name in names]):
            self.refresh()
        return {}

    async def _op_wires(self, request: Fields) -> Fields:
        ends = self._loop.wires()
        names = self._check_names(_names(request)) if "interfaces" in request else ends
        counts = {name: asdict(entry) for name, entry in self._loop.shared_counts().items()}
        return {"wires": {name: asdict(ends[name]) for name in names}, "shared": counts}

    async def _op_tap(self, request: Fields) -> Fields:
        name = field(request, "interface", str, "an end of a wire")
        socket_name = field(request, "to", str, "the name of an abstract Unix socket")
        snap = field({"snap": SNAP_MAX, **request}, "snap", int, "bytes")
        if not 1 <= snap <= SNAP_MAX:
            raise ControlError(f"tap: snap = {snap} (want 1 to {SNAP_MAX} bytes)")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as sock:
            try:
                sock.connect(f"\0{socket_name}")
                return {"tap": self._loop.tap_wire(name, sock, snap)}
            except (OSError, ValueError) as error:
                raise ControlError(f"tap: no listener at the abstract socket {socket_name!r}: {error}") from None
            except PortError as error:
                raise ControlError(f"tap: {error}") from None

    async def _op_untap(self, request: Fields) -> Fields:
        try:
            return {"lost": self._loop.untap_wire(field(request, "tap", int, "the number of a tap"))}
        except (PortError, OverflowError) as error:
            raise ControlError(f"untap: {error}") from None

    def _check_names(self, names: Collection[str]) -> Collection[str]:
        if unknown_names := [name for name in names if name not in self.links]:
            sample = ", ".join(list(self.links)[:4])
            raise ControlError(
                f"no wire has an end {unknown_names[0]!r} (has: {sample + ' ...' if sample else 'none'})"
            )
        return names


def _state(end: WireEnd, old_state: InterfaceState | None) -> InterfaceState:
    oper = "UP" if end.up else "LOWER_LAYER_DOWN" if end.admin_up else "DOWN"
    is_same_state = old_state is not None and (old_state.admin_up, old_state.oper_status) == (end.admin_up, oper)
    last_change_ns = old_state.last_change_ns if is_same_state and old_state is not None else time.time_ns()
    return InterfaceState(end.name, end.ifindex, end.admin_up, oper, end.mtu, end.carrier_changes, last_change_ns)


def _names(request: Fields) -> list[str]:
    names: list[str] = field(request, "interfaces", list, "a list of interface names")
    if not all(isinstance(name, str) for name in names):
        raise ControlError(f"{request['op']}: interfaces = {names!r} (want a list of interface names)")
    return names
