"""Denylist policy: which faults take EVs out on the hosts (mrc-protocol §9, policy).

    off     none; MRC finds its way around by itself. The default, as in production
    lossy   faults that MRC recognises badly: lossy links, blackholes and other losses while the ports are up
    all     every located fault, also those that MRC sees by itself

No switch is touched. An entry names a link or switch, never EVs; each agent works out which of its EVs cross it
(hosts/agent/denylist.py). A NIC's link takes the whole plane of that host out, because its bad end is unknown. A fault
that is not located is not denied, and neither is a link or switch when its entry would leave a host no plane at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from mrc_testbed.controller.faults.diagnosis import FailureMode
from mrc_testbed.controller.faults.fault_model import Fault, is_nic_link
from mrc_testbed.controller.faults.path_segments import Cause, HostLinks
from mrc_testbed.controller.sources.host_agents import HostAgentSource
from mrc_testbed.topologies.plan import Plan, Switch

POLICIES = ("off", "lossy", "all")
AGAIN_S = 2.0
"""Pause before the list is sent again to agents that did not take it, seconds."""

log = logging.getLogger(__name__)


def entries_for(plan: Plan, policy: str, faults: Iterable[Fault]) -> list[dict[str, Any]]:
    """Return the list that the active faults call for, in the order of the faults."""
    out: list[dict[str, Any]] = []
    for fault in faults:
        cause = fault.certain_cause
        # A host without any port has no path that could be denied.
        if policy == "off" or cause is None or isinstance(cause, HostLinks):
            continue
        if policy == "lossy" and fault.mode is FailureMode.REPORTED_DOWN:
            continue
        entry = {"scope": _scope(cause), "name": cause.name, "cause": f"fault {fault.number}: {fault.text}"}
        if not _leaves_a_plane(plan, [*out, entry]):
            log.warning("fault %d is not denied: it would leave some host no plane", fault.number)
        elif all(present["name"] != entry["name"] for present in out):
            out.append(entry)
    return out


def _scope(cause: Cause) -> str:
    if isinstance(cause, Switch):
        return f"t{cause.tier}"
    return "nic-plane" if is_nic_link(cause) else "link"


def _leaves_a_plane(plan: Plan, entries: list[dict[str, Any]]) -> bool:
    """Return whether every host keeps a plane in which its NIC, its T0 and some T1 are not denied."""
    denied = {entry["name"] for entry in entries}

    def is_usable(host: Any, plane: int) -> bool:
        t0 = plan.t0_name(plane, host.rack)
        if t0 in denied or f"{host.name} {t0}" in denied:
            return False
        t1s = [plan.t1_name(plane, k) for k in plan.uplinks(plane, host.rack)]
        return any(t1 not in denied and f"{t0} {t1}" not in denied for t1 in t1s)

    return all(any(is_usable(host, plane) for plane in plan.host_planes(host)) for host in plan.hosts)


class DenylistPolicy:
    """Sender of the agents' denylists, by the policy.

    `run()` is its task; `on_change()` is called after each change of the list.
    """

    def __init__(self, plan: Plan, agents: HostAgentSource, on_change: Callable[[], None]) -> None:
        self.plan = plan
        self.policy = "off"
        self.entries: list[dict[str, Any]] = []
        """The list that every agent should have."""
        self.agents: dict[str, str] = {}
        """`ok` or the reason of a refusal, by host, from the last time the list was sent."""
        self._source = agents
        self._on_change = on_change
        self._wake = asyncio.Event()
        self._refusals: dict[str, str] = {}
        """Reasons of the agents that did not take the list, by host."""
        self.is_owed = False
        """Whether some agent may hold a list, also an earlier controller's: even an empty one is sent then."""
        self.on_owed: Callable[[bool], None] = lambda _is_owed: None
        """Callback with the new value of `is_owed`, when it changes."""
        self._all_updated = asyncio.Event()
        self._all_updated.set()

    def to_json(self) -> dict[str, Any]:
        return {"policy": self.policy, "entries": self.entries, "agents": self.agents}

    def follow(self, faults: Iterable[Fault]) -> None:
        """Update the list after a change of the active faults or the policy."""
        entries = entries_for(self.plan, self.policy, faults)
        if [entry["name"] for entry in entries] != [entry["name"] for entry in self.entries]:
            self.entries = entries
            self._owe(True)
            self._all_updated.clear()
            self._wake.set()
            self._on_change()

    def _owe(self, is_owed: bool) -> None:
        if is_owed is not self.is_owed:
            self.is_owed = is_owed
            self.on_owed(is_owed)

    async def wait_settled(self) -> None:
        """Wait until the list has been sent to all agents."""
        await self._all_updated.wait()

    def agent_is_back(self) -> None:
        """Send the list again: an agent reconnected, with an empty list or with an old one."""
        if self.is_owed:
            self._wake.set()

    async def run(self) -> None:
        """Send the list to the agents when it changes, and again after refusals; until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            self.agents = await self._source.set_denylist(self.entries)
            self._all_updated.set()
            previous_refusals = self._refusals
            self._refusals = {host: answer for host, answer in self.agents.items() if answer != "ok"}
            if self._wake.is_set():
                continue  # the list has changed meanwhile
            if not self._refusals and not self.entries:
                self._owe(False)
            if self._refusals:  # also with an empty list: theirs may not be
                if self._refusals != previous_refusals:
                    reason = next(iter(self._refusals.values()))
                    log.warning("denylist: %d agents did not take it: %s", len(self._refusals), reason)
                asyncio.get_running_loop().call_later(AGAIN_S, self._wake.set)
