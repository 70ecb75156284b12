"""Denylist of one agent: links and switches, translated to EVs of its QPs (mrc-protocol §5.13, §9).

An entry is a JSON object. Either numbers or the plan's `name`; `cause` is free text and comes back as it was:

    {"scope": "link",      "plane": 1, "t0": 0, "uplink": 1}      or "name": "p1-t0-0 p1-t1-1"
    {"scope": "t1",        "plane": 1, "t1": 1}                   or "name": "p1-t1-1"
    {"scope": "t0",        "plane": 1, "t0": 0}                   or "name": "p1-t0-0"
    {"scope": "nic-plane", "plane": 1, "host": "h3"}              or "name": "h3 p1-t0-1" (or "h3-eth1")

An entry denies each EV whose path crosses its target: a link (plane p, T0 t, uplink u) the EV p << 8 | u of QPs whose
source or destination T0 is t, but not of QPs inside a rack, which take no uplink. Where EVs do not name their path
(ecmp, switch-spray, flow-ecmp) only t0 and nic-plane entries mean anything, by the plane beside the EV; the others are
kept and deny nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from mrc_testbed.ipc.framing import Message
from mrc_testbed.ipc.requests import Number, RequestError, check_range, parse_part
from mrc_testbed.topologies.plan import Host, Link, Plan, PlanError

MAX_ENTRIES = 4096


class EntryFields(msgspec.Struct, kw_only=True):
    """Fields of an entry as received; which are required depends on the scope, unknown ones are ignored."""

    scope: str
    cause: str = ""
    name: str | None = None
    plane: Number | None = None
    t0: Number | None = None
    t1: Number | None = None
    uplink: Number | None = None
    host: str | None = None


class DenylistEntry:
    """One denied link or switch. Raises RequestError when the data name none of this fabric."""

    __slots__ = ("cause", "host", "plane", "scope", "target")

    def __init__(self, plan: Plan, data: Any) -> None:
        if not isinstance(data, dict):
            raise RequestError(f"a denylist entry is an object with a scope; got {data!r}")
        fields = parse_part(EntryFields, data, "a denylist entry")
        self.scope = fields.scope
        find = _SCOPES.get(self.scope)
        if find is None:
            raise RequestError(f"no scope {self.scope!r} (has: {', '.join(_SCOPES)})")
        self.cause = fields.cause
        try:
            self.target: Link | str = find(plan, fields)
            """Link, or name of a switch."""
        except PlanError as error:
            raise RequestError(f"denylist entry {data!r}: {error}") from error

    @property
    def name(self) -> str:
        """Name of the target in the plan."""
        return self.target.name if isinstance(self.target, Link) else self.target

    @property
    def key(self) -> tuple[str, str]:
        """Identity of the entry: entries with equal keys are the same."""
        return self.scope, self.name

    def to_json(self) -> Message:
        """Return scope, name and cause, from which an equal entry can be parsed."""
        return {"scope": self.scope, "name": self.name, "cause": self.cause}

    def crosses(self, nodes: Sequence[str], links: Sequence[Link]) -> bool:
        """Whether a path of these nodes and links crosses the target."""
        return self.target in links if isinstance(self.target, Link) else self.target in nodes


def _number(value: int | None, key: str, count: int) -> int:
    """Return `value`, checked to be below `count`. Raises RequestError."""
    if value is None:
        raise RequestError(f"a denylist entry needs {key!r} (int)")
    check_range(key, value, 0, count - 1)
    return value


def _link(plan: Plan, fields: EntryFields) -> Link:
    if name := fields.name:
        link = _named_link(plan, name)
        if link.is_nic:
            raise RequestError(f"{name!r} is a NIC's link: its scope is nic-plane")
        return link
    plane = _number(fields.plane, "plane", plan.planes)
    t0 = plan.t0_name(plane, _number(fields.t0, "t0", plan.racks))
    return plan.link(t0, plan.t1_name(plane, _number(fields.uplink, "uplink", plan.spines)))


def _named_link(plan: Plan, name: str) -> Link:
    ends = name.split()
    if len(ends) == 1:
        return plan.link_of_interface(ends[0])
    if len(ends) != 2:
        raise RequestError(f"name = {name!r}: a link is two nodes, such as 'p1-t0-0 p1-t1-1', or one interface")
    return plan.link(ends[0], ends[1])


def _t1(plan: Plan, fields: EntryFields) -> str:
    return _switch(plan, fields, 1, fields.t1, plan.spines)


def _t0(plan: Plan, fields: EntryFields) -> str:
    return _switch(plan, fields, 0, fields.t0, plan.racks)


def _switch(plan: Plan, fields: EntryFields, tier: int, number: int | None, count: int) -> str:
    if name := fields.name:
        if plan.switch(name).tier != tier:
            raise RequestError(f"{name!r} is no T{tier}: its scope is {'t0' if tier else 't1'}")
        return name
    plane = _number(fields.plane, "plane", plan.planes)
    number = _number(number, f"t{tier}", count)
    return plan.switch(plan.t1_name(plane, number) if tier else plan.t0_name(plane, number)).name


def _nic(plan: Plan, fields: EntryFields) -> Link:
    if name := fields.name:
        link = _named_link(plan, name)
        plan.host(link.lower.node)
        return link
    plane = _number(fields.plane, "plane", plan.planes)
    if fields.host is None:
        raise RequestError("a denylist entry needs 'host' (str)")
    return plan.link_of_interface(plan.host_port(plan.host(fields.host), plane).interface)


_SCOPES: dict[str, Callable[[Plan, EntryFields], Link | str]] = {"link": _link, "t1": _t1, "t0": _t0, "nic-plane": _nic}


class Denylist:
    """Denylist of one agent. Idempotent: only the set of entries counts."""

    def __init__(self, plan: Plan, host: Host) -> None:
        self._plan, self._host = plan, host
        self._entries: dict[tuple[str, str], DenylistEntry] = {}

    def __iter__(self) -> Iterator[DenylistEntry]:
        return iter(self._entries.values())

    def parse(self, entries: Iterable[Any]) -> list[DenylistEntry]:
        """Return the entries, checked. Raises RequestError, and changes nothing, for a bad one or too many."""
        parsed_entries = [DenylistEntry(self._plan, entry) for entry in entries]
        if len(parsed_entries) > MAX_ENTRIES:
            raise RequestError(f"{len(parsed_entries)} denylist entries: at most {MAX_ENTRIES}")
        return parsed_entries

    def set(self, entries: Iterable[DenylistEntry]) -> None:
        """Replace the whole list."""
        self._entries = {entry.key: entry for entry in entries}

    def add(self, entries: Iterable[DenylistEntry]) -> None:
        self._entries |= {entry.key: entry for entry in entries}

    def remove(self, entries: Iterable[DenylistEntry]) -> None:
        """Remove entries; missing ones are ignored."""
        for entry in entries:
            self._entries.pop(entry.key, None)

    def denied(self, peer: Host, evs: Iterable[tuple[int, int]]) -> dict[int, list[str]]:
        """Return the denied EVs of (EV, plane) pairs towards `peer`, each with the entries that deny it."""
        out: dict[int, list[str]] = {}
        if self._entries:
            for ev, plane in evs:
                path = self._plan.path(self._host, peer, ev, plane)
                if entry_names := [
                    entry.name for entry in self._entries.values() if entry.crosses(path.nodes, path.links)
                ]:
                    out[ev] = entry_names
        return out
