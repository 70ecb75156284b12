"""The control plane of a virtual run: writes to switch tables, and EVs that hosts must not use.

Both follow the live controller, modelled by their delay:

    hashing modes    `react_after` seconds after ports changed, T0s stop sending to a T1 what it can no longer carry to
                     a rack (the local half, a T0's own dead uplink, is the selector's and needs no control plane)
    denylist         by policy `lossy` or `all`, entries for faults that Clustermapper finds become DENIED EVs (§9)

Clustermapper is not simulated probe by probe: faults enter the denylist after the time that its rules need.
"""

from __future__ import annotations

from typing import Any

from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.language.model import ControlPlane
from mrc_testbed.experiments.resolve.fault_schedule import FaultStep
from mrc_testbed.simulator.fabric import VirtualFabric
from mrc_testbed.simulator.switches import VirtualT0
from mrc_testbed.topologies.plan import Link, Plan, ev_plane

MAPPER_DOWN_S = 0.3
"""Seconds until a dead link is found: three probes lost in a row, one every 100 ms (§9)."""
MAPPER_LOSSY_S = 4.0
"""Seconds until a lossy link is found: two windows of 20 probes (§9)."""
MAPPER_CLEAR_S = 10.0
"""Seconds until a fault is cleared: five windows without loss (§9)."""
FOUND_BY_POLICY = {"off": (), "lossy": ("lossy",), "all": ("lossy", "down")}
"""Symptoms (InjectedFault.symptom) that a policy denies."""


class VirtualControl:
    """Controller of one virtual run; see the module."""

    def __init__(self, control: ControlPlane, plan: Plan) -> None:
        self.plan, self.policy, self.react_after = plan, control.denylist, control.react_after
        self.is_alive = True
        self.table_writes = 0
        self.fabric: VirtualFabric | None = None
        self._outcome: Outcome | None = None
        self._start_time = 0.0
        self._pruned_paths: set[tuple[int, int, int]] = set()
        """Paths (plane, T1 number, rack) that T0s do not use."""
        self._waiting = False
        self._entries: dict[int, list[Link | str | int]] = {}
        """Step number -> denied links, switches (by name), planes (by number)."""
        self._qps: list[tuple[str, str, Any]] = []

    # ---- switches ---------------------------------------------------------------------------------------

    def attach(self, fabric: VirtualFabric) -> None:
        """Take the fabric of the run."""
        self.fabric = fabric

    def set_alive(self, alive: bool) -> None:
        """Kill the controller, or restart it: it then checks all links."""
        self.is_alive = alive
        if alive:
            self.links_changed()

    def links_changed(self) -> None:
        """React to changed ports in `react_after` seconds."""
        if self.react_after is None or self.fabric is None or self._waiting:
            return
        self._waiting = True
        self.fabric.schedule(self.fabric.now + self.react_after, self._react)

    def _react(self) -> None:
        self._waiting = False
        fabric = self.fabric
        if not self.is_alive or fabric is None:
            return
        pruned_paths = set()
        for switch in self.plan.switches:
            if switch.tier == 1:
                racks = fabric.switches[switch.name].racks
                pruned_paths |= {(switch.plane, switch.number, r) for r, port in enumerate(racks) if not port.is_up}
        if pruned_paths != self._pruned_paths:
            self.table_writes += len(pruned_paths ^ self._pruned_paths)
            self._pruned_paths = pruned_paths
            for t0 in fabric.switches.values():
                if isinstance(t0, VirtualT0):
                    t0.pruned_links = frozenset(
                        (number, rack) for plane, number, rack in pruned_paths if plane == t0.plane
                    )
            self._record_event("tables changed")

    def _record_event(self, text: str) -> None:
        if self._outcome is not None and self.fabric is not None:
            self._outcome.event(self.fabric.now - self._start_time, "control", text=text)

    # ---- faults and the denylist -------------------------------------------------------------------------

    def fault(self, step: FaultStep, now: float, start_time: float, outcome: Outcome) -> None:
        """React to a fault step that was carried out at `now`."""
        self._outcome, self._start_time = outcome, start_time
        self.links_changed()
        symptom = step.fault.symptom
        if self.fabric is None or symptom not in FOUND_BY_POLICY[self.policy]:
            return
        before_the_job = now <= start_time and step.undo is None
        if step.undo is not None:
            delay = MAPPER_CLEAR_S
        else:
            delay = 0.0 if before_the_job else MAPPER_LOSSY_S if symptom == "lossy" else MAPPER_DOWN_S
        if delay:
            self.fabric.schedule(now + delay, lambda: self._enter(step))
        else:
            self._enter(step)

    def _enter(self, step: FaultStep) -> None:
        if not self.is_alive:
            return
        if step.undo is not None:
            self._entries.pop(step.undo, None)
        else:
            # A host without power has no path that could be denied.
            hosts = {host.name for host in self.plan.hosts}
            self._entries[step.number] = [
                target if isinstance(target, str) else self.plan.link(*target)
                for target in step.targets
                if target not in hosts
            ]
        self._record_event(f"denylist: {sum(map(len, self._entries.values()))} entries")
        self._apply_denylist()

    def drain(self, plane: int, on: bool) -> None:
        """Deny a whole plane, or allow it again."""
        if on:
            self._entries[-1 - plane] = [plane]
        else:
            self._entries.pop(-1 - plane, None)
        self._apply_denylist()

    def denied_evs(self, source: str, target: str) -> set[int]:
        """Return the EVs that a pair of hosts must not use (§9: any path over a denied link or switch)."""
        if not self._entries:
            return set()
        a, b = self.plan.host(source), self.plan.host(target)
        out: set[int] = set()
        for entry in (entry for entries in self._entries.values() for entry in entries):
            if isinstance(entry, int):
                out |= {ev for ev in self.plan.evs(a, b) if ev_plane(ev) == entry}
            else:
                out |= set(self.plan.evs_through(a, b, entry))
        return out

    def connected(self, source: str, target: str, pair: tuple[Any, Any]) -> None:
        """Apply the denylist to a pair of QPs from now on."""
        self._qps += [(source, target, pair[0]), (target, source, pair[1])]

    def _apply_denylist(self) -> None:
        assert self.fabric is not None
        for source, target, qp in self._qps:
            states = {ev_state["ev"]: ev_state["state"] for ev_state in qp.ev_states()} if qp.transport == "mrc" else {}
            denied_set = self.denied_evs(source, target)
            for ev, state in states.items():
                if (ev in denied_set) != (state == "denied"):
                    qp.deny_ev(ev, ev in denied_set, self.fabric.now)
        self.fabric.kick()
