"""EV profiles: formats, the three modes, EV operations, and their expansion for a QP (§10.3)."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import fields, replace
from random import Random
from typing import Any

from mrc_testbed.hosts.engine.cc.ccprofile import ProfileState
from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.events import EvChanged
from mrc_testbed.hosts.engine.paths.ev_state import EvState
from mrc_testbed.hosts.engine.qp import EngineQueuePair
from mrc_testbed.hosts.verbs.checks import choice, flags, number, record, records, short_repr
from mrc_testbed.hosts.verbs.context import DeviceContext
from mrc_testbed.hosts.verbs.control_types import (
    AUTO_PROFILE,
    EV_UNPOPULATED,
    INIT,
    MAX_EVS_PROFILE,
    MAX_OP_ENTRIES,
    MAX_PROFILES,
    OFFLINE,
    ONLINE,
    EvEntry,
    EvFmtProfile,
    EvMode,
    EvOp,
    EvOpEntry,
    EvProfileAttr,
    EvStateMask,
    check_capacity,
    check_changes,
    comma_list,
    name_of,
    number_of,
    state_after,
)
from mrc_testbed.hosts.verbs.errors import VerbsError
from mrc_testbed.hosts.verbs.ev_events import EvEventCq
from mrc_testbed.hosts.verbs.fields import (
    MAX_WIDTH,
    EvField,
    EvFormat,
    check_fields,
    count_generated,
    expand,
    nth_generated,
    packed_width,
    t1_usid_ev,
)

_EVENT_STATES = {
    EvState.GOOD: EvStateMask.GOOD,
    EvState.SKIP: EvStateMask.GOOD,
    EvState.ASSUMED_BAD: EvStateMask.ASSUMED_BAD,
}
"""States of the engine that make EV events. DENIED is the controller's own doing."""


class _EvProfile:
    """One EV profile. `entries` are packed EVs; `denied` those the controller took out."""

    def __init__(self, profile_id: int) -> None:
        self.id = profile_id
        self.attr = EvProfileAttr(state=INIT)
        self.entries: list[EvEntry] = []
        self.denied: set[EvEntry] = set()
        self.users: set[EngineQueuePair] = set()


class EvProfileTable:
    """The EV profiles of one device, with their formats."""

    def __init__(self, context: DeviceContext) -> None:
        self._context = context
        self._formats: dict[int, EvFmtProfile] = {}
        auto = _EvProfile(AUTO_PROFILE)
        auto.attr = EvProfileAttr(ONLINE, EvMode.AUTO, ev_event_mask=EvStateMask.GOOD | EvStateMask.ASSUMED_BAD)
        self._profiles: dict[int, _EvProfile] = {AUTO_PROFILE: auto}
        self.event_cqs: list[EvEventCq] = []
        """Queues of EV events of all profiles (the controller makes them)."""

    # ---- format profiles -------------------------------------------------------------------------------------

    def modify_ev_fmt_profile(
        self,
        profile_id: int,
        *,
        state: ProfileState | None = None,
        mode: EvFormat | None = None,
        fields: Sequence[int] | None = None,
    ) -> None:
        """Write a format profile, then move it. `fields`: widths in bits, first field most significant.

        To OFFLINE it needs `mode`, to ONLINE `fields`; it is changed OFFLINE only.
        """
        with self._context.lock:
            old_format = self._formats.get(number_of(profile_id, "EV format profile"), EvFmtProfile())
            subject = f"EV format profile {profile_id}"
            new_format = replace(old_format, fields=list(old_format.fields))
            check_changes(old_format.state, state, subject, mode=mode, fields=fields)
            if mode is not None:
                new_format.mode = choice(f"{subject}: mode", mode, EvFormat)
            if fields is not None:
                new_format.fields = records(f"{subject}: fields", fields, int)
            if new_format.mode is not None:
                _check_format(new_format, subject)
            new_format.state = state_after(old_format.state, state, subject)
            if new_format.state is OFFLINE and new_format.mode is None:
                raise VerbsError(f"{subject}: to OFFLINE it needs mode")
            if new_format.state is ONLINE and not new_format.fields:
                raise VerbsError(f"{subject}: to ONLINE it needs fields")
            # A format may not change below an EV profile that QPs use.
            if old_format.state is ONLINE and new_format.state is OFFLINE:
                users = [p.id for p in self._profiles.values() if p.attr.ev_fmt_profile_id == profile_id]
                online = [i for i in users if self._profiles[i].attr.state is ONLINE]
                if online:
                    raise VerbsError(
                        f"{subject} is used by EV profiles {online}: take these offline first", errno.EBUSY
                    )
            # A profile in INIT is as one never written.
            if new_format.state is INIT:
                self._formats.pop(profile_id, None)
            else:
                check_capacity(self._formats, profile_id, MAX_PROFILES, subject)
                self._formats[profile_id] = new_format

    def query_ev_fmt_profile(self, profile_id: int) -> EvFmtProfile:
        """Return state, kind and widths."""
        fmt_profile = self._formats.get(number_of(profile_id, "EV format profile"), EvFmtProfile())
        return replace(fmt_profile, fields=list(fmt_profile.fields))

    @property
    def ev_count(self) -> int:
        """EVs in all profiles."""
        return sum(len(profile.entries) for profile in self._profiles.values())

    # ---- EV profiles -----------------------------------------------------------------------------------------

    def modify_ev_profile(self, profile_id: int, attr: EvProfileAttr) -> None:
        """Write an EV profile, then move it to `attr.state`.

        INIT -> OFFLINE needs mode and, unless AUTO, ev_fmt_profile_id (ONLINE) and ev_count (GENERATED: fields too).
        OFFLINE -> ONLINE: entries of EXPLICIT profiles must all be filled in; ev_min_active defaults to a quarter.
        """
        with self._context.lock:
            subject = f"EV profile {profile_id}"
            _check_attr(record(subject, attr, EvProfileAttr), subject)
            if number_of(profile_id, "EV profile") == AUTO_PROFILE:
                raise VerbsError("EV profile 0 is AUTO, for QPs without a profile: it cannot be changed")
            profile = self._profiles.get(profile_id) or _EvProfile(profile_id)
            old_attr = profile.attr
            changes = {
                f.name: v for f in fields(attr) if f.name != "state" and (v := getattr(attr, f.name)) is not None
            }
            check_changes(old_attr.state or INIT, attr.state, subject, **changes)
            if old_attr.ev_count is not None and attr.ev_count not in (None, old_attr.ev_count):
                raise VerbsError(f"{subject} has {old_attr.ev_count} EVs for its life: take it to INIT to begin anew")
            new_attr = replace(old_attr, **changes, state=state_after(old_attr.state or INIT, attr.state, subject))
            self._check_profile(new_attr, subject)
            if old_attr.state is ONLINE and new_attr.state is OFFLINE and profile.users:
                raise VerbsError(
                    f"{subject} is used by {len(profile.users)} QPs: destroy or reset these first", errno.EBUSY
                )
            if new_attr.state is INIT:
                self._profiles.pop(profile_id, None)
                return
            check_capacity(self._profiles, profile_id, MAX_PROFILES, subject)
            # The controller fills EXPLICIT entries later (REPLACE_EV); GENERATED ones are made on the way to ONLINE.
            if old_attr.state is INIT and new_attr.mode is not EvMode.AUTO:
                profile.entries = [EV_UNPOPULATED] * (new_attr.ev_count or 0)
            if new_attr.state is ONLINE and old_attr.state is not ONLINE:
                self._go_online(profile, new_attr, subject)
            profile.attr = new_attr
            self._profiles[profile_id] = profile

    def _check_profile(self, attr: EvProfileAttr, subject: str) -> None:
        # Back to INIT: the profile is forgotten, whatever it holds.
        if attr.state is INIT:
            return
        if attr.mode is None:
            raise VerbsError(f"{subject}: to OFFLINE it needs mode (AUTO, EXPLICIT or GENERATED)")
        if attr.ev_event_mask is not None and attr.ev_event_mask & ~(EvStateMask.GOOD | EvStateMask.ASSUMED_BAD):
            raise VerbsError(f"{subject}: ev_event_mask has GOOD and ASSUMED_BAD only")
        # The driver gives the EVs of AUTO: no format and no count are needed.
        if attr.mode is EvMode.AUTO:
            return
        missing_names = [n for n in ("ev_fmt_profile_id", "ev_count") if getattr(attr, n) is None]
        if attr.mode is EvMode.GENERATED and not attr.fields:
            missing_names.append("fields")
        if missing_names:
            raise VerbsError(
                f"{subject}: to OFFLINE a profile of mode {attr.mode.name} needs {', '.join(missing_names)} too"
            )
        count = attr.ev_count or 0
        if not 1 <= count <= MAX_EVS_PROFILE:
            raise VerbsError(f"{subject}: ev_count = {count}: must be 1 to {MAX_EVS_PROFILE}", errno.E2BIG)
        if attr.ev_min_active is not None and not 0 <= attr.ev_min_active <= count:
            raise VerbsError(f"{subject}: ev_min_active = {attr.ev_min_active}: must be 0 to ev_count = {count}")
        # EVs are made for the widths of the format, which are fixed only while it is online.
        form = self._formats.get(attr.ev_fmt_profile_id or 0)
        if form is None or form.state is not ONLINE:
            online = ", ".join(str(i) for i, f in self._formats.items() if f.state is ONLINE) or "none"
            raise VerbsError(f"{subject}: EV format profile {attr.ev_fmt_profile_id} is not online (online: {online})")
        if attr.fields:
            check_fields(attr.fields, form.fields)
        for port in attr.ports or ():
            self._context.plane_of(port)

    def _go_online(self, profile: _EvProfile, attr: EvProfileAttr, subject: str) -> None:
        if attr.mode is EvMode.GENERATED:
            profile.entries = self._generate(attr, subject)
        empty = sum(1 for entry in profile.entries if entry == EV_UNPOPULATED)
        if empty:
            raise VerbsError(f"{subject}: {empty} of {len(profile.entries)} EVs are not filled in (ev_op REPLACE_EV)")
        for entry in profile.entries:
            self.engine_ev(attr, entry)

    def _generate(self, attr: EvProfileAttr, subject: str) -> list[EvEntry]:
        """Return equally many EVs from each port, each a random subset of those that the ranges allow (§5.5)."""
        ev_count, rng = attr.ev_count or 0, Random(f"{self._context.name}/{subject}")
        ports = list(range(1, self._context.driver.planes + 1)) if attr.ports is None else attr.ports
        total = count_generated(attr.fields or [])
        if total < ev_count:
            raise VerbsError(
                f"{subject}: the ranges of its fields allow {total} EVs, ev_count is {ev_count}", errno.E2BIG
            )
        if self._format(attr).mode is EvFormat.SRV6:
            return self._generate_by_plane(attr, ports, total, ev_count, rng, subject)
        indexes = rng.sample(range(total), ev_count)
        return [EvEntry(nth_generated(i, attr.fields or []), ports[n % len(ports)]) for n, i in enumerate(indexes)]

    def _generate_by_plane(
        self, attr: EvProfileAttr, ports: list[int], total: int, ev_count: int, rng: Random, subject: str
    ) -> list[EvEntry]:
        """SRv6: the EV names its plane, so candidates are sorted by it and drawn in turn."""
        by_port: dict[int, list[EvEntry]] = {port: [] for port in ports}
        for index in rng.sample(range(total), min(total, 1 << 14)):
            packed = nth_generated(index, attr.fields or [])
            port = (self._expand_ev(attr, packed)[0] >> 8 & 0xFF) + 1
            if port in by_port:
                by_port[port].append(EvEntry(packed, port))
        out: list[EvEntry] = []
        while len(out) < ev_count:
            nonempty_ports = [port for port in ports if by_port[port]]
            if not nonempty_ports:
                raise VerbsError(f"{subject}: the ranges allow {len(out)} EVs on ports {ports}, ev_count is {ev_count}")
            out += [by_port[port].pop() for port in nonempty_ports[: ev_count - len(out)]]
        return out

    def query_ev_profile(self, profile_id: int) -> EvProfileAttr:
        """Return the attributes in force; state INIT when the profile was never written."""
        profile = self._profiles.get(number_of(profile_id, "EV profile"))
        return replace(profile.attr) if profile is not None else EvProfileAttr(state=INIT)

    def ev_op(self, profile_id: int, op: EvOp, entries: list[EvOpEntry] | None = None) -> list[EvOpEntry]:
        """Carry out a batch of one operation; at the first error it stops and raises.

        Each entry's `success` has its result.

        The error's `done_count` is the number of entries carried out, which stay so. QUERY_ARRAY takes no entries and
        returns one per EV of the profile; the others return the entries given.
        """
        with self._context.lock:
            profile = self._profiles.get(number_of(profile_id, "EV profile"))
            if profile is None:
                raise VerbsError(f"no EV profile {profile_id} (has: {comma_list(self._profiles)})", errno.ENOENT)
            if choice("ev_op: op", op, EvOp) is EvOp.QUERY_ARRAY:
                return [EvOpEntry(ev, state=self._state(profile, ev), success=True) for ev in profile.entries]
            batch = records("ev_op: entries", () if entries is None else entries, EvOpEntry)
            if len(batch) > MAX_OP_ENTRIES:
                raise VerbsError(f"ev_op: {len(batch)} entries: at most {MAX_OP_ENTRIES} a call", errno.E2BIG)
            for entry in batch:
                entry.success = False
            for done_count, entry in enumerate(batch):
                try:
                    self._one_op(profile, op, entry)
                except LocalError as error:
                    number = getattr(error, "errno", errno.EINVAL)
                    raise VerbsError(
                        f"ev_op {op.name}, entry {done_count}: {error}", number, done_count=done_count
                    ) from None
                entry.success = True
            return batch

    def _one_op(self, profile: _EvProfile, op: EvOp, entry: EvOpEntry) -> None:
        for name in ("ev", "ev_new"):
            ev = record(name, getattr(entry, name), EvEntry)
            number(f"{name}.val", ev.val, 0, (1 << 128) - 1)
            number(f"{name}.port", ev.port, 0, self._context.driver.planes)
        if op is EvOp.QUERY_STATE:
            entry.state = self._state(profile, self._member(profile, entry.ev))
            return
        if op is EvOp.MODIFY_STATE:
            self._set_state(profile, self._member(profile, entry.ev), entry.state)
            return
        if profile.attr.mode is not EvMode.EXPLICIT:
            raise VerbsError(f"EV profile {profile.id} is {name_of(profile.attr.mode)}: only EXPLICIT ones are written")
        if profile.attr.state is not OFFLINE:
            raise VerbsError(
                f"EV profile {profile.id} is {name_of(profile.attr.state)}: EVs are replaced OFFLINE", errno.EBUSY
            )
        old_ev, new_ev = self._member(profile, entry.ev), entry.ev_new
        if new_ev != EV_UNPOPULATED:
            self.engine_ev(profile.attr, new_ev)
        indexes = [i for i, ev in enumerate(profile.entries) if ev == old_ev]
        for i in indexes if entry.all_copies else indexes[:1]:
            profile.entries[i] = new_ev
        self._set_state(profile, new_ev, entry.state)

    def _member(self, profile: _EvProfile, ev: EvEntry) -> EvEntry:
        if ev not in profile.entries and profile.attr.mode is not EvMode.AUTO:
            raise VerbsError(f"EV {ev.val:#x} of port {ev.port} is not in EV profile {profile.id}", errno.ENOENT)
        return ev

    def _set_state(self, profile: _EvProfile, ev: EvEntry, state: EvStateMask) -> None:
        if state not in (EvStateMask.GOOD, EvStateMask.DENIED):
            raise VerbsError(f"state {short_repr(state)}: an EV can be made GOOD or DENIED")
        deny = state is EvStateMask.DENIED
        value = self.engine_ev(profile.attr, ev)[0] if ev != EV_UNPOPULATED else 0
        now, is_known = self._context.now(), False
        for qp in profile.users:
            if any(row["ev"] == value for row in qp.ev_states()):
                qp.deny_ev(value, deny, now)
                is_known = True
        if profile.attr.mode is EvMode.AUTO and not is_known:
            raise VerbsError(f"EV {value:#x} is in no QP of EV profile {profile.id}", errno.ENOENT)
        (profile.denied.add if deny else profile.denied.discard)(ev)
        self._context.after_call()

    def _state(self, profile: _EvProfile, ev: EvEntry) -> EvStateMask:
        """Return the worst state that a QP has for the EV; DENIED when the controller denied it."""
        if ev == EV_UNPOPULATED:
            return EvStateMask.UNKNOWN
        if ev in profile.denied:
            return EvStateMask.DENIED
        value = self.engine_ev(profile.attr, ev)[0]
        rows = [row["state"] for qp in profile.users for row in qp.ev_states() if row["ev"] == value]
        if "assumed_bad" in rows:
            return EvStateMask.ASSUMED_BAD
        return EvStateMask.GOOD if rows or profile.attr.mode is not EvMode.AUTO else EvStateMask.UNKNOWN

    # ---- from profile to engine ------------------------------------------------------------------------------

    def _format(self, attr: EvProfileAttr) -> EvFmtProfile:
        return self._formats[attr.ev_fmt_profile_id or 0]

    def _expand_ev(self, attr: EvProfileAttr, packed: int) -> tuple[int, int]:
        """Return (EV of the engine, expanded EV).

        A whole SRv6 address is read at its T1 uSID: plane << 8 | uplink.
        """
        if attr.mode is EvMode.AUTO:
            return packed, packed
        form = self._format(attr)
        value = expand(packed, attr.fields, form.fields) if attr.fields else packed
        width = sum(form.fields)
        if value >> width:
            raise VerbsError(f"EV {value:#x} does not fit the {width} bits of its format")
        if form.mode is EvFormat.SRV6 and width > 32:
            return t1_usid_ev(value << 128 - width), value
        return value, value

    def engine_ev(self, attr: EvProfileAttr, ev: EvEntry) -> tuple[int, int]:
        """Return (EV, plane) as the engine has it; raises VerbsError for an impossible port or value."""
        plane = self._context.plane_of(ev.port)
        if ev.val < 0 or (attr.fields and ev.val >> packed_width(attr.fields)):
            raise VerbsError(f"EV {ev.val:#x} does not fit the {packed_width(attr.fields or [])} bits of its fields")
        value, _ = self._expand_ev(attr, ev.val)
        if attr.mode is not EvMode.AUTO and self._format(attr).mode is EvFormat.SRV6 and value >> 8 & 0xFF != plane:
            raise VerbsError(f"EV {ev.val:#x} names plane {value >> 8 & 0xFF}, but port {ev.port} is plane {plane}")
        return value, plane

    def check(self, profile_id: int | None, subject: str) -> None:
        """Whether a QP may use it now (called by QPs)."""
        profile = self._profiles.get(profile_id or AUTO_PROFILE)
        if profile is None or profile.attr.state is not ONLINE:
            state = (INIT if profile is None else profile.attr.state or INIT).name
            online = comma_list([i for i, p in self._profiles.items() if p.attr.state is ONLINE])
            text = f"{subject}: EV profile {profile_id} is {state}, needs ONLINE (online: {online})"
            raise VerbsError(text, errno.ENOENT)

    def config_changes(self, ev_profile_id: int | None) -> dict[str, Any]:
        """Keys of the engine's Config that an EV profile sets (called by QPs)."""
        profile = self._profiles[ev_profile_id or AUTO_PROFILE]
        return {"ev_min_active": profile.attr.ev_min_active}

    def evs_for(self, ev_profile_id: int | None, peer: str, subject: str) -> list[tuple[int, int]]:
        """Return (EV, plane) pairs of a QP to `peer`: those of its profile that lead there (called by QPs)."""
        self.check(ev_profile_id, subject)
        driver = self._context.driver
        profile = self._profiles[ev_profile_id or AUTO_PROFILE]
        if profile.attr.mode is EvMode.AUTO:
            return list(driver.evs(peer))
        reason = ""
        pairs: dict[int, int] = {}
        for entry in profile.entries:
            ev, plane = self.engine_ev(profile.attr, entry)
            problem = driver.check_ev(peer, ev, plane)
            if problem is None:
                pairs.setdefault(ev, plane)
            else:
                reason = problem
        if not pairs:
            raise VerbsError(f"{subject}: no EV of profile {profile.id} leads to {peer}: {reason}")
        return list(pairs.items())

    def denied_evs(self, profile_id: int | None) -> list[int]:
        """Return the denylist of a QP, as the engine's EVs (called by QPs)."""
        profile = self._profiles[profile_id or AUTO_PROFILE]
        return [self.engine_ev(profile.attr, ev)[0] for ev in profile.denied]

    def attach(self, qp: EngineQueuePair, profile_id: int | None) -> None:
        """Count a QP that connected with a profile."""
        self._profiles[profile_id or AUTO_PROFILE].users.add(qp)

    def detach(self, qp: EngineQueuePair) -> None:
        """Count off a QP that is reset or destroyed."""
        for profile in self._profiles.values():
            profile.users.discard(qp)

    # ---- EV events -------------------------------------------------------------------------------------------

    def ev_changed(self, event: EvChanged) -> None:
        """Notify the event CQs that an EV of a QP came to another state (called by the device, lock held)."""
        state = _EVENT_STATES.get(event.new_state)
        if state is None or not self.event_cqs:
            return
        for profile in self._profiles.values():
            if state & (profile.attr.ev_event_mask or 0) and any(qp.qpn == event.qpn for qp in profile.users):
                entry = self._entry_of(profile, event.ev, event.plane)
                for cq in self.event_cqs:
                    cq.push(profile.id, entry, state, event.at)

    def _entry_of(self, profile: _EvProfile, ev: int, plane: int) -> EvEntry:
        for entry in profile.entries:
            if entry.port == plane + 1 and self.engine_ev(profile.attr, entry)[0] == ev:
                return entry
        return EvEntry(ev, plane + 1)


def _check_attr(attr: EvProfileAttr, subject: str) -> None:
    """Kinds of the fields that are given."""
    if attr.mode is not None:
        choice(f"{subject}: mode", attr.mode, EvMode)
    if attr.ev_event_mask is not None:
        flags(f"{subject}: ev_event_mask", attr.ev_event_mask, EvStateMask)
    for name in ("ev_fmt_profile_id", "ev_count", "ev_min_active"):
        value = getattr(attr, name)
        if value is not None:
            number(f"{subject}: {name}", value, 0, (1 << 64) - 1)
    if attr.fields is not None:
        records(f"{subject}: fields", attr.fields, EvField)
    if attr.ports is not None and not records(f"{subject}: ports", attr.ports, int):
        raise VerbsError(f"{subject}: ports is empty: name at least one, or leave it out for all")


def _check_format(form: EvFmtProfile, subject: str) -> None:
    if form.mode not in MAX_WIDTH:
        raise VerbsError(f"{subject}: mode is one of STEV, SRV6, UDP")
    if any(not isinstance(w, int) or not 1 <= w <= 128 for w in form.fields):
        raise VerbsError(f"{subject}: fields are widths of 1 to 128 bits, got {form.fields}")
    if sum(form.fields) > MAX_WIDTH[form.mode]:
        raise VerbsError(
            f"{subject}: its fields have {sum(form.fields)} bits, {form.mode.name} carries {MAX_WIDTH[form.mode]}",
            errno.E2BIG,
        )
