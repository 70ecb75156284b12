"""Wires: links between two switches of one daemon that are no interfaces (switch/runtime/wires.c).

The daemon makes them, sets their ends up and down and tells of them over its control socket. `WiredDevices` are the
interfaces of the switches' namespace together with the ends of wires, so that whoever sets a port down or looks at one
need not know which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from mrc_testbed.ipc.rpc import JsonlClient, JsonlError
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.netdev import IFF_NOARP, IFF_UP, NetDevices
from mrc_testbed.topologies.plan import DEVICE_MTU, Link, Plan


def links_between_switches(plan: Plan) -> list[Link]:
    """The links that can be wires: a host's port is an interface in a namespace of its own."""
    return [*plan.links_of("fabric")]


class PortLook(NamedTuple):
    """A switch's port at a glance: with carrier, and the bytes that came and went since the port began."""

    is_up: bool
    rx_bytes: int
    tx_bytes: int


class WireStates(NamedTuple):
    """State of a daemon's wires, with the names of switch/device/loop.py: WireEnd, SharedCounts."""

    ends: Mapping[str, Mapping[str, Any]]
    """Wires between switches, by interface."""
    shared_wires: Mapping[str, Mapping[str, Any]]
    """Wires to processes of hosts, by the interface of the switch's port."""


def link_states(links: Iterable[Link], states_of_wires: WireStates) -> dict[str, PortLook]:
    """Return the state of links by the interface of their upper end.

    That is a switch's: a wire's end, or an interface of our namespace. What is neither is left out.
    """
    states = {}
    wires, shared_wires = states_of_wires
    for link in links:
        name = link.upper.interface
        if name in wires:
            is_up = bool(wires[name]["up"] and wires[link.lower.interface]["up"])
            states[name] = PortLook(is_up, wires[name]["rx_bytes"], wires[name]["tx_bytes"])
            continue
        with suppress(OSError, ValueError):
            kernel = Path("/sys/class/net", name)
            rx, tx = (int((kernel / "statistics" / f"{way}_bytes").read_text()) for way in ("rx", "tx"))
            is_up = (kernel / "operstate").read_text().strip() in ("up", "unknown")  # a tunnel's end does not know
            by_memory = shared_wires.get(name, {"rx_bytes": 0, "tx_bytes": 0})
            states[name] = PortLook(is_up, rx + by_memory["rx_bytes"], tx + by_memory["tx_bytes"])
    return states


class WireClient:
    """Client of the wires of a running daemon. Calls may come from any thread.

    Raises FabricError when the daemon does not answer.

    `works`: whether the daemon gets on.
    """

    def __init__(self, control: Path, works: Callable[[], bool] | None = None) -> None:
        self._client = JsonlClient(control, name="switchd", works=works)

    def close(self) -> None:
        self._client.close()

    def add(self, links: Iterable[Link]) -> None:
        """Make a wire of each, both ends up."""
        pairs = [[link.lower.interface, link.upper.interface] for link in links]
        self._request("add_wires", wires=pairs, mtu=DEVICE_MTU)

    def set_up(self, interface: str, is_up: bool) -> None:
        """Set an end up or down."""
        self._request("set_wires", interfaces=[interface], up=is_up)

    def states(self, interfaces: Collection[str] | None = None) -> WireStates:
        """State and counters of these ends, of all by default, and of all shared wires."""
        fields = {} if interfaces is None else {"interfaces": list(interfaces)}
        answer = self._request("wires", **fields)
        return WireStates(answer["wires"], answer["shared"])

    def tap(self, interface: str, socket_name: str, snap_bytes: int) -> int:
        """Send the frames that come to an end to an abstract socket too; return the number of the tap."""
        return int(self._request("tap", interface=interface, to=socket_name, snap=snap_bytes)["tap"])

    def untap(self, tap: int) -> int:
        """End a tap; frames for which there was no room."""
        return int(self._request("untap", tap=tap)["lost"])

    def _request(self, op: str, **fields: Any) -> dict[str, Any]:
        try:
            return self._client.request(op, **fields)
        except JsonlError as error:
            raise FabricError(f"wires: {error}") from error


class WiredDevices(NetDevices):
    """Interfaces of the namespace it is created in, and the ends of wires between the switches of a plan."""

    def __init__(self, wires: WireClient, links: Iterable[Link]) -> None:
        super().__init__()
        self._wires = wires
        self._ends = {end.interface for link in links for end in (link.lower, link.upper)}

    def has_wire(self, name: str) -> bool:
        """The interface is the end of a wire."""
        return name in self._ends

    def flags(self, name: str) -> int:
        if name not in self._ends:
            return super().flags(name)
        return IFF_NOARP | (IFF_UP if self._wires.states([name]).ends[name]["admin_up"] else 0)

    def set_flags(self, name: str, on: int = 0, clear: int = 0) -> None:
        if name not in self._ends:
            super().set_flags(name, on, clear)
        elif (on | clear) & IFF_UP:
            self._wires.set_up(name, bool(on & IFF_UP))

    def is_up(self, name: str) -> bool:
        return bool(self._wires.states([name]).ends[name]["up"]) if name in self._ends else super().is_up(name)

    def offloads_off(self, name: str, *, in_pieces: bool = False) -> None:
        if name not in self._ends:
            super().offloads_off(name, in_pieces=in_pieces)


def states_of(control: Path) -> WireStates:
    """Return the state of all wires of the daemon at a control socket.

    Empty where there is no daemon, as with BMv2.
    """
    if not control.exists():
        return WireStates({}, {})
    wires = WireClient(control)
    try:
        return wires.states()
    finally:
        wires.close()
