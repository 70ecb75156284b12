"""The hosts' agents as a source: bad and good EVs of their QPs (hosts/agent/path_health.py).

An `ev` event reports a bad EV at once. Good EVs are not reported by events, so while an EV is bad the agents are asked
for the health of all their paths: an EV that delivered packets without losing one clears the links it crosses.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mrc_testbed.controller.api.rpc_client import Subscription, request
from mrc_testbed.controller.faults.correlator import EV, FaultCorrelator
from mrc_testbed.controller.problems import Problems
from mrc_testbed.ipc.rpc import JsonlError, Message
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.topologies.plan import Host, Plan

ASK_EVERY_S = 0.5
"""Interval between requests to the agents while an EV is bad."""
IN_FLIGHT_S = 0.15
"""Greatest age of a packet that is acknowledged now, seconds; or two round trips, where that is more."""
BAD_STATE = "assumed_bad"
USABLE_STATES = ("good", "skip")

log = logging.getLogger(__name__)


class HostAgentSource:
    """Source of all agents' EVs.

    `on_ev(event)` is called for each EV event, `on_change()` after each that matters.
    """

    name = EV

    def __init__(
        self,
        run_dir: Path,
        plan: Plan,
        faults: FaultCorrelator,
        on_ev: Callable[[Message], None],
        on_change: Callable[[], None],
        on_back: Callable[[], None] = lambda: None,
        problems: Problems | None = None,
    ) -> None:
        self._problems = problems or Problems()
        self.plan = plan
        self._faults = faults
        self._on_ev = on_ev
        self._on_change = on_change
        self.on_back = on_back
        """Callback when an agent's stream was opened: the agent may have restarted."""
        self._paths = {host.name: RunFiles(run_dir).agent_socket(host.name) for host in plan.hosts}
        self._acked: dict[str, tuple[int, float]] = {}
        """Packets acknowledged, and the time of that count, by path name."""
        self._accusers: dict[str, set[int]] = {}
        """QPs that report an EV bad (0: the agent's summary), by path name."""
        self._planes: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._subscriptions = {
            name: Subscription(path, functools.partial(self._on_event, name), self._link, self._problems, events=["ev"])
            for name, path in self._paths.items()
        }

    @property
    def has_bad(self) -> bool:
        """Whether some EV is reported bad: the agents are asked then."""
        return bool(self._accusers)

    @property
    def connected(self) -> bool:
        """Whether all agents are connected."""
        return all(subscription.connected for subscription in self._subscriptions.values())

    def to_json(self) -> dict[str, Any]:
        connected_agents = sum(subscription.connected for subscription in self._subscriptions.values())
        reasons = sorted(
            {subscription.reason for subscription in self._subscriptions.values() if not subscription.connected}
        )
        reason = "; ".join(reasons[:3]) or "following"
        return {"connected": self.connected, "agents": connected_agents, "reason": reason, "bad": len(self._accusers)}

    async def run(self) -> None:
        """Follow all agents; until cancelled."""
        keep = self._problems.keep
        following = (keep(f"events of {host}", following.run) for host, following in self._subscriptions.items())
        await asyncio.gather(*following, keep("health of EVs", self._ask_while_bad))

    async def health(self, host: str, peer: str | None = None) -> list[Message]:
        """Return the agent's `health` of its paths, by peer. Raises JsonlError."""
        path = self._paths[host]
        answer = await (request(path, "health") if peer is None else request(path, "health", peer=peer))
        peers: list[Message] = answer["peers"]
        return peers

    async def set_denylist(self, entries: list[Message]) -> dict[str, str]:
        """Send every agent this list; return "ok" or the reason of a refusal, by host."""

        async def send_list(host: str) -> tuple[str, str]:
            try:
                await request(self._paths[host], "denylist", entries=entries)
            except JsonlError as error:
                return host, str(error)
            return host, "ok"

        return dict(await asyncio.gather(*(send_list(host) for host in self._paths)))

    def _link(self, connected: bool) -> None:
        if connected:
            self.on_back()
            self._wake.set()  # EVs that were bad before the connection are in the agent's health

    def _on_event(self, name: str, event: Message) -> None:
        if event.get("event") == "ev":
            self.take(name, event, time.monotonic())
            self._on_change()

    def take(self, name: str, event: Message, now: float) -> None:
        """Take a QP's new state of an EV. Raises KeyError, PlanError for names the fabric does not have."""
        host, peer, ev = self.plan.host(name), self.plan.host(str(event["peer"])), int(event["ev"])
        new_state, old_state = str(event.get("new", event.get("to"))), str(event.get("old", event.get("from")))
        t = min(float(event["t"]), now)
        fields = {"host": name, "peer": peer.name, "ev": ev, "old": old_state, "new": new_state}
        self._on_ev({"t": t, **fields, "plane": event.get("plane"), "cause": event.get("cause")})
        self._state(host, peer, ev, new_state, str(event.get("cause", "")), int(event.get("qpn", 0)), t, now)

    def _state(self, host: Host, peer: Host, ev: int, state: str, cause: str, qpn: int, t: float, now: float) -> None:
        """Take a QP's state of an EV: good, bad, or neither; `qpn` 0: of all QPs of the agent."""
        if not self.plan.mode.ev_is_path:
            return  # such an EV names no path: nothing can be located by it (§8.4)
        path_name = f"{host.name} {peer.name} {ev:#06x}"
        trace = self._faults.segmenter.data(host, peer, ev)
        if state == BAD_STATE:
            self._accusers.setdefault(path_name, set()).add(qpn)
            self._planes[path_name] = trace.plane
            self._wake.set()
            self._faults.path(path_name, trace, "down", source=EV, now=now, t=t, says=cause or BAD_STATE)
            return
        accusers = self._accusers.get(path_name, set())
        accusers.discard(qpn)
        if qpn == 0:
            accusers.clear()
        if accusers:
            return
        self._accusers.pop(path_name, None)
        if state in USABLE_STATES:
            self._faults.path(path_name, trace, "ok", source=EV, now=now, t=t, says=cause)
        else:
            self._faults.withdraw(path_name, trace.plane, source=EV, now=now)

    # ---- asking -----------------------------------------------------------------------------------------

    async def _ask_while_bad(self) -> None:
        while True:
            if not self.has_bad:
                await self._wake.wait()
            self._wake.clear()
            await asyncio.gather(*(self._read_health(name) for name in self._paths))
            self._on_change()
            if self.has_bad:
                await asyncio.sleep(ASK_EVERY_S)

    async def _read_health(self, name: str) -> None:
        if not self._subscriptions[name].connected:
            return
        host, asked_at = self.plan.host(name), time.monotonic()
        try:
            for of_peer in await self.health(name):
                peer = self.plan.host(str(of_peer["peer"]))
                for row in of_peer["evs"]:
                    self.take_health(host, peer, row, asked_at)
        except (JsonlError, KeyError, TypeError, ValueError) as error:
            log.debug("%s: health: %r", name, error)

    def take_health(self, host: Host, peer: Host, row: Message, asked_at: float) -> None:
        """Take the agent's summary of one EV."""
        ev, state = int(row["ev"]), str(row["state"])
        if not self.plan.mode.ev_is_path:
            return
        path_name = f"{host.name} {peer.name} {ev:#06x}"
        trace = self._faults.segmenter.data(host, peer, ev)
        sent, acked, lost = int(row["sent"]), int(row["acked"]), int(row["lost"])
        self._faults.counts(path_name, trace, sent, lost, source=EV, now=asked_at)
        previously_acked, before_at = self._acked.get(path_name, (acked, asked_at))
        self._acked[path_name] = (acked, asked_at)
        if state == BAD_STATE:
            if path_name not in self._accusers:
                self._state(host, peer, ev, state, "bad by its agent's summary", 0, asked_at, asked_at)
        elif path_name in self._accusers:
            self._state(host, peer, ev, state, "", 0, asked_at, asked_at)
        elif (
            state in USABLE_STATES and acked > previously_acked
        ):  # they came through after we had asked before, or shortly earlier
            in_flight_s = max(IN_FLIGHT_S, 2 * float(row["rtt_s"] or 0.0))
            self._faults.path(path_name, trace, "ok", source=EV, now=asked_at, t=before_at - in_flight_s)
