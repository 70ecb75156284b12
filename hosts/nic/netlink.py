"""Link state of a host's ports for a `selectors` loop, with an event within milliseconds of a change.

A port is usable when it is administratively up and has carrier: IFF_UP and IFF_LOWER_UP.

A trap, measured on Linux 6.18: the kernel holds loss of carrier back for up to 1 s when an interface has the same
index as its veth peer in the other namespace (its link watch then takes the pair for one device). Whoever creates
the pairs has to see that the two indices differ; other changes arrive 0.1 to 0.3 ms after the command that made
them.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass

from mrc_testbed.switch.system.rtnetlink import RECEIVE_BYTES, InterfaceState, link_news, link_socket, read_links


@dataclass(frozen=True, slots=True)
class LinkState:
    """Last state of one interface in the kernel. `index` 0: no such interface (any more)."""

    index: int = 0
    admin_up: bool = False
    carrier: bool = False

    @property
    def up(self) -> bool:
        return self.admin_up and self.carrier


class LinkWatcher:
    """Link state of named interfaces of this network namespace.

    `states` is current when the constructor returns; `poll()` gives the changes since, and is called when
    `fileno()` is readable. Raises OSError when the kernel gives no netlink socket.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.states = dict.fromkeys(names, LinkState())
        self._captured_names: set[str] = set()
        self._capture_changes: dict[str, bool] = {}
        self._socket = link_socket()
        try:
            self._read_all()
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def poll(self) -> list[tuple[str, LinkState]]:
        """Return every change of an interface's state since the last call, in order. Raises OSError."""
        changes: list[tuple[str, LinkState]] = []
        overrun = False
        while True:
            try:
                data, (sender, _) = self._socket.recvfrom(RECEIVE_BYTES)
            except BlockingIOError:
                return changes + self._read_all() if overrun else changes
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                overrun = True  # the kernel dropped events
                continue
            if sender == 0:  # only the kernel is believed
                for is_there, link in link_news(data):
                    changes += self._take(link.name, link if is_there else None)

    def captures(self) -> dict[str, bool]:
        """Return the interfaces with another state of capture since the last call, True for captured.

        `poll` hears of them. To capture is to have an interface in promiscuous mode, as tcpdump does.
        """
        changes, self._capture_changes = self._capture_changes, {}
        return changes

    def _read_all(self) -> list[tuple[str, LinkState]]:
        """Bring every state up to date, and return the changes. Raises OSError."""
        links = read_links()
        return [change for name in self.states for change in self._take(name, links.get(name))]

    def _take(self, name: str, link: InterfaceState | None) -> list[tuple[str, LinkState]]:
        """Keep the state of an interface, None when gone, and return the change if the interface is watched."""
        state = LinkState() if link is None else LinkState(link.ifindex, link.admin_up, link.carrier)
        is_captured = link is not None and link.captures > 0
        if name in self.states and is_captured != (name in self._captured_names):
            self._captured_names ^= {name}
            self._capture_changes[name] = is_captured
        if self.states.get(name, state) == state:
            return []
        self.states[name] = state
        return [(name, state)]
