"""The interfaces a server shows, with their state: what gNMI serves and what events are made of.

`Interfaces` joins which interfaces belong to which device (told by the daemon, or a name prefix) with what the
kernel says about them (`switch.server.netlink`), or the daemon itself about its wires (`switch.server.wires`). A port
whose interface is missing exists all the same: NOT_PRESENT.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from mrc_testbed.switch.server.netlink import InterfaceWatcher, LinkCounters, read_counters
from mrc_testbed.switch.server.wires import DaemonWires
from mrc_testbed.switch.system.rtnetlink import InterfaceState

Leaf = tuple[str, ...]
"""Path of a value below /interfaces/interface[name=...]."""
Value = str | int

COUNTER_FIELDS = {
    "in-pkts": "rx_packets",
    "in-octets": "rx_bytes",
    "in-errors": "rx_errors",
    "in-discards": "rx_dropped",
    "out-pkts": "tx_packets",
    "out-octets": "tx_bytes",
    "out-errors": "tx_errors",
    "out-discards": "tx_dropped",
}
"""openconfig-interfaces counter: field of LinkCounters."""

STATE_LEAVES: tuple[Leaf, ...] = (
    ("name",),
    ("state", "name"),
    ("state", "ifindex"),
    ("state", "admin-status"),
    ("state", "oper-status"),
    ("state", "last-change"),
    ("state", "mtu"),
    ("state", "counters", "carrier-transitions"),
)
COUNTER_LEAVES: tuple[Leaf, ...] = tuple(("state", "counters", name) for name in COUNTER_FIELDS)
LEAVES = STATE_LEAVES + COUNTER_LEAVES


@dataclass(frozen=True, slots=True)
class InterfaceChange:
    """`leaves` of interface `name` have new values; `removed`: it is no longer shown at all."""

    name: str
    device: str
    leaves: dict[Leaf, Value]
    removed: bool = False


def state_leaves(name: str, link: InterfaceState | None) -> dict[Leaf, Value]:
    """Values of STATE_LEAVES; `link` None: the interface does not exist."""
    return {
        ("name",): name,
        ("state", "name"): name,
        ("state", "ifindex"): link.ifindex if link else 0,
        ("state", "admin-status"): "UP" if link and link.admin_up else "DOWN",
        ("state", "oper-status"): link.oper_status if link else "NOT_PRESENT",
        ("state", "last-change"): link.last_change_ns if link else time.time_ns(),
        ("state", "mtu"): link.mtu if link else 0,
        ("state", "counters", "carrier-transitions"): link.carrier_changes if link else 0,
    }


class Interfaces:
    """Shown interfaces by name, each belonging to a device (`""` for none)."""

    def __init__(
        self, watcher: InterfaceWatcher, prefixes: tuple[str, ...] = (), wires: DaemonWires | None = None
    ) -> None:
        self._watcher = watcher
        self._wires = wires
        self._prefixes = prefixes
        self._owners: dict[str, str] = {}
        self._values: dict[str, dict[Leaf, Value]] = {}
        self._listeners: list[Callable[[InterfaceChange], None]] = []
        self._devices: set[str] = set()
        watcher.listen(self._link_changed)
        if wires is not None:
            wires.listen(self._link_changed)
        for name, link in watcher.links.items():
            if self._by_prefix(name):
                self._publish(name, link)

    def add_device(self, device: str, names: list[str]) -> None:
        """Shows `names` as ports of `device`. Raises ValueError when another device has one of them."""
        for name in names:
            if name in self._owners:
                raise ValueError(f"interface {name!r} is already a port of device {self._owners[name]!r}")
        self._devices.add(device)
        for name in names:
            self._owners[name] = device
            self._publish(name, self._link(name))

    def remove_device(self, device: str) -> None:
        self._devices.discard(device)
        for name in [name for name, owner in self._owners.items() if owner == device]:
            self._withdraw(name)
            del self._owners[name]

    @property
    def devices(self) -> list[str]:
        return sorted(self._devices)

    def names(self, device: str | None = None) -> list[str]:
        """Interfaces shown, or those of one device."""
        return [name for name in self._values if device is None or self.device_of(name) == device]

    def device_of(self, name: str) -> str:
        return self._owners.get(name, "")

    def values(self, name: str) -> dict[Leaf, Value]:
        """STATE_LEAVES of an interface that is shown."""
        return self._values[name]

    def counters(self) -> dict[str, dict[Leaf, Value]]:
        """COUNTER_LEAVES of every shown interface, read now. Raises NetlinkError."""
        kernel_counters = read_counters()
        counters = {
            name: kernel_counters.get(link.ifindex, LinkCounters())
            for name, link in self._watcher.links.items()
            if name in self._values
        }
        if self._wires is not None:
            counters = self._wires.with_shared(counters) | self._wires.counters()
        return {
            name: {
                ("state", "counters", leaf): getattr(counters.get(name, LinkCounters()), field)
                for leaf, field in COUNTER_FIELDS.items()
            }
            for name in self._values
        }

    def _link(self, name: str) -> InterfaceState | None:
        return (self._wires.links.get(name) if self._wires is not None else None) or self._watcher.links.get(name)

    def publish_values(self, name: str, leaves: dict[Leaf, Value]) -> None:
        """Leaves which others keep (settings) have new values: pass it on to all listeners."""
        self._notify(InterfaceChange(name, self.device_of(name), leaves))

    def listen(self, listener: Callable[[InterfaceChange], None]) -> Callable[[], None]:
        """Adds a listener; call what is returned to remove it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _by_prefix(self, name: str) -> bool:
        return bool(self._prefixes) and name.startswith(self._prefixes)

    def _link_changed(self, name: str, link: InterfaceState | None) -> None:
        if name in self._owners:
            self._publish(name, link)
        elif self._by_prefix(name):
            if link is None:
                self._withdraw(name)
            else:
                self._publish(name, link)

    def _publish(self, name: str, link: InterfaceState | None) -> None:
        old_values = self._values.get(name, {})
        new_values = state_leaves(name, link)
        self._values[name] = new_values
        changed_values = {leaf: value for leaf, value in new_values.items() if old_values.get(leaf) != value}
        if changed_values:
            self._notify(InterfaceChange(name, self.device_of(name), changed_values))

    def _withdraw(self, name: str) -> None:
        if self._values.pop(name, None) is not None:
            self._notify(InterfaceChange(name, self.device_of(name), {}, removed=True))

    def _notify(self, change: InterfaceChange) -> None:
        for listener in tuple(self._listeners):
            listener(change)
