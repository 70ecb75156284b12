"""The denylist policy: which faults take EVs out on the hosts (mrc-protocol §9, policy). Touches no switch.

    off     none; MRC finds its way around by itself. The default, as in production
    lossy   what MRC cannot tell well: lossy links, blackholes and whatever loses packets while its ports are up
    all     every fault that could be told, also those that MRC sees by itself

An entry is about a place, never about EVs; each agent works out which of its EVs cross it (hosts/agent/denylist.py). A
NIC's link takes the whole plane of that host out, for nobody can tell which end of it is bad. What cannot be told is
not denied, and neither is a place when its entry would leave the hosts of a rack no plane at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from mrc_testbed.controller.faults.diagnosis import FailureMode
from mrc_testbed.controller.faults.fault_model import Fault, is_nic_link
from mrc_testbed.controller.faults.path_segments import Cause
from mrc_testbed.controller.sources.host_agents import HostAgentSource
from mrc_testbed.topologies.plan import Plan, Switch

POLICIES = ("off", "lossy", "all")
AGAIN_S = 2.0
"""An agent that did not take the list is told again after so long."""

log = logging.getLogger(__name__)


def entries_for(plan: Plan, policy: str, faults: Iterable[Fault]) -> list[dict[str, Any]]:
    """The list that the active faults call for, in the order of the faults."""
    out: list[dict[str, Any]] = []
    for fault in faults:
        cause = fault.certain_cause
        if policy == "off" or cause is None or (policy == "lossy" and fault.mode is FailureMode.REPORTED_DOWN):
            continue
        entry = {"scope": _scope(cause), "name": cause.name, "cause": f"fault {fault.number}: {fault.text}"}
        if not _leaves_a_plane(plan, [*out, entry]):
            log.warning("fault %d is not denied: it would leave some host no plane", fault.number)
        elif all(one["name"] != entry["name"] for one in out):
            out.append(entry)
    return out


def _scope(cause: Cause) -> str:
    if isinstance(cause, Switch):
        return f"t{cause.tier}"
    return "nic-plane" if is_nic_link(cause) else "link"


def _leaves_a_plane(plan: Plan, entries: list[dict[str, Any]]) -> bool:
    """Every host keeps a plane in which its NIC and its T0 are not denied, and some T1."""
    denied = {entry["name"] for entry in entries}

    def is_usable(host: Any, plane: int) -> bool:
        t0 = plan.t0_name(plane, host.rack)
        if t0 in denied or f"{host.name} {t0}" in denied:
            return False
        t1s = [plan.t1_name(plane, k) for k in range(plan.spines)]
        return any(t1 not in denied and f"{t0} {t1}" not in denied for t1 in t1s)

    return all(any(is_usable(host, plane) for plane in range(plan.planes)) for host in plan.hosts)


class DenylistPolicy:
    """Keeps the agents' lists as the policy wants them. `run()` is its task; `on_change()` follows each change."""

    def __init__(self, plan: Plan, agents: HostAgentSource, on_change: Callable[[], None]) -> None:
        self.plan = plan
        self.policy = "off"
        self.entries: list[dict[str, Any]] = []
        """The list that every agent should have."""
        self.agents: dict[str, str] = {}
        """`ok` or the reason, by host, from the last time they were told."""
        self._source = agents
        self._on_change = on_change
        self._wake = asyncio.Event()
        self._bad: dict[str, str] = {}
        """Reasons of the agents that did not take the list, by host."""
        self.is_owed = False
        """Some agent may hold a list of ours, also one of an earlier controller: it is told even an empty one."""
        self.on_owed: Callable[[bool], None] = lambda _is_owed: None
        """Called when `is_owed` changes."""
        self._done = asyncio.Event()
        self._done.set()

    def to_json(self) -> dict[str, Any]:
        return {"policy": self.policy, "entries": self.entries, "agents": self.agents}

    def follow(self, faults: Iterable[Fault]) -> None:
        """The active faults or the policy have changed."""
        entries = entries_for(self.plan, self.policy, faults)
        if [entry["name"] for entry in entries] != [entry["name"] for entry in self.entries]:
            self.entries = entries
            self._owe(True)
            self._done.clear()
            self._wake.set()
            self._on_change()

    def _owe(self, is_owed: bool) -> None:
        if is_owed is not self.is_owed:
            self.is_owed = is_owed
            self.on_owed(is_owed)

    async def settled(self) -> None:
        """All agents have been told."""
        await self._done.wait()

    def agent_is_back(self) -> None:
        """An agent has begun anew, with an empty list; or it kept its own while it, or we, were away."""
        if self.is_owed:
            self._wake.set()

    async def run(self) -> None:
        """Tell the agents whenever the list changes, and again those that did not take it; until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            self.agents = await self._source.set_denylist(self.entries)
            self._done.set()
            before, self._bad = self._bad, {host: agent for host, agent in self.agents.items() if agent != "ok"}
            if self._wake.is_set():
                continue  # the list has changed meanwhile
            if not self._bad and not self.entries:
                self._owe(False)
            if self._bad:  # also with an empty list: theirs may not be
                if self._bad != before:
                    why = next(iter(self._bad.values()))
                    log.warning("denylist: %d agents did not take it: %s", len(self._bad), why)
                asyncio.get_running_loop().call_later(AGAIN_S, self._wake.set)
