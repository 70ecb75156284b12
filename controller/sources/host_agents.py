"""The hosts' agents as a source: EVs that their QPs found bad, and what they know of the good ones
(hosts/agent/path_health.py).

An `ev` event says at once that an EV is bad. What is good is not told by events, so while an EV is bad the agents are
asked for the health of all their paths: an EV that got packets through without losing one clears what it crosses.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mrc_testbed.controller.api.rpc_client import Subscription, ask
from mrc_testbed.controller.faults.correlator import EV, FaultCorrelator
from mrc_testbed.controller.problems import Problems
from mrc_testbed.ipc.rpc import JsonlError, Message
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.topologies.plan import Host, Plan

ASK_EVERY_S = 0.5
"""Interval between requests to the agents while an EV is bad."""
IN_FLIGHT_S = 0.15
"""A packet that is acknowledged now may have crossed the fabric so long ago; or two round trips, where that is more."""
BAD = "assumed_bad"
USABLE = ("good", "skip")

log = logging.getLogger(__name__)


class HostAgentSource:
    """All agents. `on_ev(event)` is called for each EV event, `on_change()` after each that matters."""

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
        """Called when an agent's stream was opened: it may have begun anew."""
        self._paths = {host.name: RunFiles(run_dir).agent_socket(host.name) for host in plan.hosts}
        self._acked: dict[str, tuple[int, float]] = {}
        """Packets acknowledged, and when the agent said so, by path name."""
        self._bad: dict[str, set[int]] = {}
        """EVs that are bad, by path name, and the QPs that say so (0: the agent's summary)."""
        self._planes: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._following = {
            name: Subscription(path, functools.partial(self._heard, name), self._link, self._problems, events=["ev"])
            for name, path in self._paths.items()
        }

    @property
    def has_bad(self) -> bool:
        """Some EV is bad as far as told: the agents are asked."""
        return bool(self._bad)

    @property
    def connected(self) -> bool:
        """All of them."""
        return all(one.connected for one in self._following.values())

    def to_json(self) -> dict[str, Any]:
        there = sum(one.connected for one in self._following.values())
        reasons = sorted({one.reason for one in self._following.values() if not one.connected})
        reason = "; ".join(reasons[:3]) or "following"
        return {"connected": self.connected, "agents": there, "reason": reason, "bad": len(self._bad)}

    async def run(self) -> None:
        """Follow all agents; until cancelled."""
        keep = self._problems.keep
        following = (keep(f"events of {host}", following.run) for host, following in self._following.items())
        await asyncio.gather(*following, keep("health of EVs", self._ask_while_bad))

    async def health(self, host: str, peer: str | None = None) -> list[Message]:
        """The agent's `health` of its paths, by peer. Raises JsonlError."""
        path = self._paths[host]
        answer = await (ask(path, "health") if peer is None else ask(path, "health", peer=peer))
        peers: list[Message] = answer["peers"]
        return peers

    async def set_denylist(self, entries: list[Message]) -> dict[str, str]:
        """Give every agent this list; "ok" or the reason by host."""

        async def tell(host: str) -> tuple[str, str]:
            try:
                await ask(self._paths[host], "denylist", entries=entries)
            except JsonlError as error:
                return host, str(error)
            return host, "ok"

        return dict(await asyncio.gather(*(tell(host) for host in self._paths)))

    def _link(self, connected: bool) -> None:
        if connected:
            self.on_back()
            self._wake.set()  # what it found bad before we came is in its health

    def _heard(self, name: str, event: Message) -> None:
        if event.get("event") == "ev":
            self.take(name, event, time.monotonic())
            self._on_change()

    def take(self, name: str, event: Message, now: float) -> None:
        """A QP of host `name` holds an EV for something else. Raises KeyError, PlanError for what the fabric lacks."""
        host, peer, ev = self.plan.host(name), self.plan.host(str(event["peer"])), int(event["ev"])
        new, old = str(event.get("new", event.get("to"))), str(event.get("old", event.get("from")))
        t = min(float(event["t"]), now)
        told = {"host": name, "peer": peer.name, "ev": ev, "old": old, "new": new}
        self._on_ev({"t": t, **told, "plane": event.get("plane"), "cause": event.get("cause")})
        self._state(host, peer, ev, new, str(event.get("cause", "")), int(event.get("qpn", 0)), t, now)

    def _state(self, host: Host, peer: Host, ev: int, state: str, cause: str, qpn: int, t: float, now: float) -> None:
        """One QP (0: all that the agent has) holds an EV for good, bad, or neither."""
        if not self.plan.mode.ev_is_path:
            return  # such an EV names no path: nothing can be located by it (§8.4)
        about = f"{host.name} {peer.name} {ev:#06x}"
        trace = self._faults.segmenter.data(host, peer, ev)
        if state == BAD:
            self._bad.setdefault(about, set()).add(qpn)
            self._planes[about] = trace.plane
            self._wake.set()
            self._faults.path(about, trace, "down", source=EV, now=now, t=t, says=cause or BAD)
            return
        accusers = self._bad.get(about, set())
        accusers.discard(qpn)
        if qpn == 0:
            accusers.clear()
        if accusers:
            return
        self._bad.pop(about, None)
        if state in USABLE:
            self._faults.path(about, trace, "ok", source=EV, now=now, t=t, says=cause)
        else:
            self._faults.withdraw(about, trace.plane, source=EV, now=now)

    # ---- asking -----------------------------------------------------------------------------------------

    async def _ask_while_bad(self) -> None:
        while True:
            if not self.has_bad:
                await self._wake.wait()
            self._wake.clear()
            await asyncio.gather(*(self._ask(name) for name in self._paths))
            self._on_change()
            if self.has_bad:
                await asyncio.sleep(ASK_EVERY_S)

    async def _ask(self, name: str) -> None:
        if not self._following[name].connected:
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
        """One EV as its agent sums it up."""
        ev, state = int(row["ev"]), str(row["state"])
        if not self.plan.mode.ev_is_path:
            return
        about = f"{host.name} {peer.name} {ev:#06x}"
        trace = self._faults.segmenter.data(host, peer, ev)
        sent, acked, lost = int(row["sent"]), int(row["acked"]), int(row["lost"])
        self._faults.counts(about, trace, sent, lost, source=EV, now=asked_at)
        before, before_at = self._acked.get(about, (acked, asked_at))
        self._acked[about] = (acked, asked_at)
        if state == BAD:
            if about not in self._bad:
                self._state(host, peer, ev, state, "bad by its agent's summary", 0, asked_at, asked_at)
        elif about in self._bad:
            self._state(host, peer, ev, state, "", 0, asked_at, asked_at)
        elif state in USABLE and acked > before:  # they came through after we had asked before, or shortly earlier
            in_flight_s = max(IN_FLIGHT_S, 2 * float(row["rtt_s"] or 0.0))
            self._faults.path(about, trace, "ok", source=EV, now=asked_at, t=before_at - in_flight_s)
