"""The controller API (`mrc_ctl.h`, reference §10.3, §10.4): profiles, EV operations and events, EV probes, ports.

    control = device.controller
    control.modify_ev_fmt_profile(1, state=OFFLINE, mode=EvFormat.STEV, fields=[8, 8])
    control.modify_ev_fmt_profile(1, state=ONLINE)
    control.modify_ev_profile(7, EvProfileAttr(state=OFFLINE, mode=EvMode.EXPLICIT, ev_fmt_profile_id=1, ev_count=4))
    control.ev_op(7, EvOp.REPLACE_EV, [...]);  control.modify_ev_profile(7, EvProfileAttr(state=ONLINE, ...))
    qp.modify(QpAttr(qp_state=QpState.INIT, ...), mrc_attr=MrcQpAttr(ev_profile_id=7))

Profiles are numbered by whoever writes them; one that was never written is in INIT. Number 0 is AUTO, always there, and
what a QP without a profile has. The C library asks for CAP_NET_ADMIN; here whoever has the device may do it.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum, IntEnum, IntFlag
from random import Random
from typing import TYPE_CHECKING, Any

from hosts.engine.ccprofile import ALGORITHMS, CcProfile, ProfileState
from hosts.engine.errors import LocalError
from hosts.engine.ev import EvState
from hosts.engine.events import EvChanged, Event, EvProbeResult, PacketLost

from .errors import VerbsError
from .ev_events import EvEventCq
from .fields import (
    MAX_WIDTH,
    EvField,
    EvFormat,
    check_fields,
    count_generated,
    expand,
    nth_generated,
    packed_width,
)

if TYPE_CHECKING:
    from .device import Device
    from .qp import QueuePair

AUTO_PROFILE = 0
MAX_PROFILES = 256
MAX_EVS = 1 << 16
MAX_EVS_PROFILE = 4096
MAX_OP_ENTRIES = 4096

_INIT, _OFFLINE, _ONLINE = ProfileState.INIT, ProfileState.OFFLINE, ProfileState.ONLINE
_MOVES = {_INIT: (_OFFLINE,), _OFFLINE: (_ONLINE, _INIT), _ONLINE: (_OFFLINE,)}


class EvMode(IntFlag):
    """Who makes a profile's EVs."""

    AUTO = 1 << 0
    """The device: every path to the peer."""
    EXPLICIT = 1 << 1
    """The controller writes each one (REPLACE_EV)."""
    GENERATED = 1 << 2
    """The device derives them from the fields' widths and ranges."""


class EvStateMask(IntFlag):
    """State of an EV as the API tells it. SKIP is GOOD here."""

    GOOD = 1 << 0
    ASSUMED_BAD = 1 << 1
    DENIED = 1 << 2
    UNKNOWN = 1 << 31
    """No such EV, or nobody uses it yet."""


class EvOp(Enum):
    """Operations on the EVs of a profile."""

    REPLACE_EV = "replace"
    MODIFY_STATE = "modify_state"
    QUERY_STATE = "query_state"
    QUERY_ARRAY = "query_array"


class EpOp(IntEnum):
    """Endpoint operations: node to node, no QP."""

    EV_PROBE = 1


class OptCap(IntFlag):
    """Optional features of the controller API."""

    EV_PROFILE_MODIFY_ONLINE = 1 << 0
    CC_PROFILE_MODIFY_ONLINE = 1 << 1
    EV_EVENT = 1 << 2
    EV_EXPLICIT_RANGE = 1 << 3
    EV_EVENT_PRECISE_DROP_CNT = 1 << 4
    EP_OP_EV_PROBE = 1 << 5


@dataclass(frozen=True, slots=True, order=True)
class EvEntry:
    """An EV of a profile: its packed value, and the port (from 1) it leaves by. Port 0: not filled in yet."""

    val: int = 0
    port: int = 0


EV_UNPOPULATED = EvEntry()


@dataclass(slots=True)
class EvOpEntry:
    """One entry of an EV operation. `success` and what was asked for are filled in."""

    ev: EvEntry = EV_UNPOPULATED
    ev_new: EvEntry = EV_UNPOPULATED
    """REPLACE_EV: what takes its place."""
    state: EvStateMask = EvStateMask.GOOD
    """MODIFY_STATE: GOOD or DENIED; REPLACE_EV: state of the new one; queries: the answer."""
    all_copies: bool = False
    """REPLACE_EV: all entries equal to `ev`, not only the first."""
    success: bool = False


@dataclass(slots=True)
class EvProfileAttr:
    """Attributes of an EV profile; None = not given (modify) or not set (query)."""

    state: ProfileState | None = None
    mode: EvMode | None = None
    ev_fmt_profile_id: int | None = None
    ev_count: int | None = None
    """Size of the EV array; fixed for the life of the profile once OFFLINE."""
    ev_min_active: int | None = None
    """Losses leave at least this many EVs in rotation; at most ev_count."""
    ev_event_mask: EvStateMask | None = None
    """GOOD, ASSUMED_BAD: which new states make an EV event."""
    fields: list[EvField] | None = None
    """How a packed EV expands; None: the EV as it is. GENERATED needs them."""
    ports: list[int] | None = None
    """GENERATED: ports (from 1) the EVs are spread over; None = all."""


@dataclass(slots=True)
class EvFmtProfile:
    """A format: kind, and widths of its fields in bits."""

    state: ProfileState = _INIT
    mode: EvFormat | None = None
    fields: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class CtlDeviceAttr:
    """`mrc_ctl_query_device`. Numbers of profiles and EVs; widths in bits; the port mask has bit N for port N."""

    api_version: int
    ev_max_fmt_profiles: int
    ev_max_profiles: int
    ev_max_count: int
    ev_free_count: int
    ev_max_count_profile: int
    ev_count_align: int
    ev_max_width: int
    ev_fmt_mode_mask: EvFormat
    ev_mode_mask: EvMode
    ev_op_max_entries: int
    cc_max_profiles: int
    cc_algorithms: tuple[str, ...]
    phy_port_mask: int
    opt_attr: OptCap


@dataclass(frozen=True, slots=True)
class EpRequest:
    """One endpoint operation. `ev` is the expanded EV; `timeout_ns` counts from the call."""

    req_id: int
    """16 bits, unique within a batch; comes back in the response."""
    dgid: str
    ev: int
    port: int
    op: EpOp = EpOp.EV_PROBE
    timeout_ns: int = 100_000_000


@dataclass(frozen=True, slots=True)
class EpResponse:
    """What became of it. No answer in time: `rtt_ns` None."""

    req_id: int
    port: int
    rtt_ns: int | None
    rtt_adjusted_ns: int | None
    """Without the responder's service time - which nobody reports yet (§12 row 34), so the same as `rtt_ns`."""

    @property
    def ok(self) -> bool:
        return self.rtt_ns is not None


class _EvProfile:
    """One EV profile. `entries` are packed EVs; `denied` those the controller took out."""

    def __init__(self, profile_id: int) -> None:
        self.id = profile_id
        self.attr = EvProfileAttr(state=_INIT)
        self.entries: list[EvEntry] = []
        self.denied: set[EvEntry] = set()
        self.users: set[QueuePair] = set()


class Controller:
    """`device.controller`. All calls raise VerbsError; see the module."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._formats: dict[int, EvFmtProfile] = {}
        auto = _EvProfile(AUTO_PROFILE)
        auto.attr = EvProfileAttr(_ONLINE, EvMode.AUTO, ev_event_mask=EvStateMask.GOOD | EvStateMask.ASSUMED_BAD)
        self._profiles: dict[int, _EvProfile] = {AUTO_PROFILE: auto}
        self._cc: dict[int, tuple[ProfileState, CcProfile, set[QueuePair]]] = {}
        self._event_cqs: list[EvEventCq] = []
        self._probes: dict[int, tuple[_Batch, EpRequest]] = {}
        """EV probes in flight, by the engine's request id."""

    # ---- device and ports -----------------------------------------------------------------------------------

    def query_device(self) -> CtlDeviceAttr:
        """Limits and capabilities."""
        used = sum(len(p.entries) for p in self._profiles.values())
        return CtlDeviceAttr(
            api_version=1, ev_max_fmt_profiles=MAX_PROFILES, ev_max_profiles=MAX_PROFILES, ev_max_count=MAX_EVS,
            ev_free_count=MAX_EVS - used, ev_max_count_profile=MAX_EVS_PROFILE, ev_count_align=1, ev_max_width=128,
            ev_fmt_mode_mask=EvFormat.STEV | EvFormat.SRV6 | EvFormat.UDP,
            ev_mode_mask=EvMode.AUTO | EvMode.EXPLICIT | EvMode.GENERATED, ev_op_max_entries=MAX_OP_ENTRIES,
            cc_max_profiles=MAX_PROFILES, cc_algorithms=ALGORITHMS,
            phy_port_mask=(1 << self._device.driver.planes) - 1 << 1,
            opt_attr=OptCap.EV_EVENT | OptCap.EV_EVENT_PRECISE_DROP_CNT | OptCap.EP_OP_EV_PROBE,
        )  # fmt: skip

    def query_port(self, port_num: int) -> bool:
        """Whether a port (from 1) is enabled and has a link."""
        return self._device.driver.port_up(self._device.plane_of(port_num))

    def modify_port(self, port_num: int, enabled: bool) -> None:
        """Enable or disable a port administratively: its plane is withdrawn at once, and our peers are told."""
        self._device.driver.set_port(self._device.plane_of(port_num), bool(enabled))
        self._device.driver.kick()

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
        with self._device.lock:
            old = self._formats.get(_number(profile_id, "EV format profile"), EvFmtProfile())
            what = f"EV format profile {profile_id}"
            new = replace(old, fields=list(old.fields))
            _may_change(old.state, state, what, mode=mode, fields=fields)
            if mode is not None:
                new.mode = EvFormat(mode)
            if fields is not None:
                new.fields = list(fields)
            if new.mode is not None:
                _check_format(new, what)
            new.state = _moved(old.state, state, what)
            if new.state is _OFFLINE and new.mode is None:
                raise VerbsError(f"{what}: to OFFLINE it needs mode")
            if new.state is _ONLINE and not new.fields:
                raise VerbsError(f"{what}: to ONLINE it needs fields")
            if old.state is _ONLINE and new.state is _OFFLINE:
                users = [p.id for p in self._profiles.values() if p.attr.ev_fmt_profile_id == profile_id]
                online = [i for i in users if self._profiles[i].attr.state is _ONLINE]
                if online:
                    raise VerbsError(f"{what} is used by EV profiles {online}: take these offline first", errno.EBUSY)
            if new.state is _INIT:
                self._formats.pop(profile_id, None)
            else:
                self._room(self._formats, profile_id, what)
                self._formats[profile_id] = new

    def query_ev_fmt_profile(self, profile_id: int) -> EvFmtProfile:
        """State, kind and widths."""
        found = self._formats.get(_number(profile_id, "EV format profile"), EvFmtProfile())
        return replace(found, fields=list(found.fields))

    # ---- EV profiles -----------------------------------------------------------------------------------------

    def modify_ev_profile(self, profile_id: int, attr: EvProfileAttr) -> None:
        """Write an EV profile, then move it to `attr.state`.

        INIT -> OFFLINE needs mode and, unless AUTO, ev_fmt_profile_id (ONLINE) and ev_count (GENERATED: fields too).
        OFFLINE -> ONLINE: entries of EXPLICIT profiles must all be filled in; ev_min_active defaults to a quarter.
        """
        with self._device.lock:
            what = f"EV profile {profile_id}"
            if _number(profile_id, "EV profile") == AUTO_PROFILE:
                raise VerbsError("EV profile 0 is AUTO, for QPs without a profile: it cannot be changed")
            profile = self._profiles.get(profile_id) or _EvProfile(profile_id)
            old = profile.attr
            changes = {
                f.name: v for f in fields(attr) if f.name != "state" and (v := getattr(attr, f.name)) is not None
            }
            _may_change(old.state or _INIT, attr.state, what, **changes)
            if old.ev_count is not None and attr.ev_count not in (None, old.ev_count):
                raise VerbsError(f"{what} has {old.ev_count} EVs for its life: take it to INIT to begin anew")
            new = replace(old, **changes, state=_moved(old.state or _INIT, attr.state, what))
            self._check_profile(new, what)
            if old.state is _ONLINE and new.state is _OFFLINE and profile.users:
                raise VerbsError(
                    f"{what} is used by {len(profile.users)} QPs: destroy or reset these first", errno.EBUSY
                )
            if new.state is _INIT:
                self._profiles.pop(profile_id, None)
                return
            self._room(self._profiles, profile_id, what)
            if old.state is _INIT and new.mode is not EvMode.AUTO:
                profile.entries = [EV_UNPOPULATED] * (new.ev_count or 0)
            if new.state is _ONLINE and old.state is not _ONLINE:
                self._go_online(profile, new, what)
            profile.attr = new
            self._profiles[profile_id] = profile

    def _check_profile(self, attr: EvProfileAttr, what: str) -> None:
        if attr.state is _INIT:
            return
        if attr.mode is None:
            raise VerbsError(f"{what}: to OFFLINE it needs mode (AUTO, EXPLICIT or GENERATED)")
        if attr.ev_event_mask is not None and attr.ev_event_mask & ~(EvStateMask.GOOD | EvStateMask.ASSUMED_BAD):
            raise VerbsError(f"{what}: ev_event_mask has GOOD and ASSUMED_BAD only")
        if attr.mode is EvMode.AUTO:
            return
        missing = [n for n in ("ev_fmt_profile_id", "ev_count") if getattr(attr, n) is None]
        if attr.mode is EvMode.GENERATED and not attr.fields:
            missing.append("fields")
        if missing:
            raise VerbsError(f"{what}: to OFFLINE a profile of mode {attr.mode.name} needs {', '.join(missing)} too")
        count = attr.ev_count or 0
        if not 1 <= count <= MAX_EVS_PROFILE:
            raise VerbsError(f"{what}: ev_count = {count}: must be 1 to {MAX_EVS_PROFILE}", errno.E2BIG)
        if attr.ev_min_active is not None and not 0 <= attr.ev_min_active <= count:
            raise VerbsError(f"{what}: ev_min_active = {attr.ev_min_active}: must be 0 to ev_count = {count}")
        form = self._formats.get(attr.ev_fmt_profile_id or 0)
        if form is None or form.state is not _ONLINE:
            online = ", ".join(str(i) for i, f in self._formats.items() if f.state is _ONLINE) or "none"
            raise VerbsError(f"{what}: EV format profile {attr.ev_fmt_profile_id} is not online (online: {online})")
        if attr.fields:
            check_fields(attr.fields, form.fields)
        for port in attr.ports or ():
            self._device.plane_of(port)

    def _go_online(self, profile: _EvProfile, attr: EvProfileAttr, what: str) -> None:
        if attr.mode is EvMode.GENERATED:
            profile.entries = self._generate(attr, what)
        empty = sum(1 for entry in profile.entries if entry == EV_UNPOPULATED)
        if empty:
            raise VerbsError(f"{what}: {empty} of {len(profile.entries)} EVs are not filled in (ev_op REPLACE_EV)")
        for entry in profile.entries:
            self.engine_ev(attr, entry)

    def _generate(self, attr: EvProfileAttr, what: str) -> list[EvEntry]:
        """As many EVs from each port, each a random subset of what the ranges allow (§5.5)."""
        wanted, rng = attr.ev_count or 0, Random(wanted_seed(self._device.name, what))
        ports = attr.ports or list(range(1, self._device.driver.planes + 1))
        total = count_generated(attr.fields or [])
        if total < wanted and self._format(attr).mode is not EvFormat.UDP:
            raise VerbsError(f"{what}: the ranges of its fields allow {total} EVs, ev_count is {wanted}", errno.E2BIG)
        if self._format(attr).mode is EvFormat.SRV6:
            return self._generate_by_plane(attr, ports, total, wanted, rng, what)
        if total < wanted:
            raise VerbsError(f"{what}: the ranges of its fields allow {total} EVs, ev_count is {wanted}", errno.E2BIG)
        picked = rng.sample(range(total), wanted)
        return [EvEntry(nth_generated(i, attr.fields or []), ports[n % len(ports)]) for n, i in enumerate(picked)]

    def _generate_by_plane(
        self, attr: EvProfileAttr, ports: list[int], total: int, wanted: int, rng: Random, what: str
    ) -> list[EvEntry]:
        """SRv6: the EV names its plane, so candidates are sorted by it and drawn in turn."""
        by_port: dict[int, list[EvEntry]] = {port: [] for port in ports}
        for index in rng.sample(range(total), min(total, 1 << 14)):
            packed = nth_generated(index, attr.fields or [])
            port = (self._expanded(attr, packed)[0] >> 8 & 0xFF) + 1
            if port in by_port:
                by_port[port].append(EvEntry(packed, port))
        out: list[EvEntry] = []
        while len(out) < wanted:
            left = [port for port in ports if by_port[port]]
            if not left:
                raise VerbsError(f"{what}: the ranges allow {len(out)} EVs on ports {ports}, ev_count is {wanted}")
            out += [by_port[port].pop() for port in left[: wanted - len(out)]]
        return out

    def query_ev_profile(self, profile_id: int) -> EvProfileAttr:
        """Attributes in force; state INIT when it was never written."""
        profile = self._profiles.get(_number(profile_id, "EV profile"))
        return replace(profile.attr) if profile is not None else EvProfileAttr(state=_INIT)

    def ev_op(self, profile_id: int, op: EvOp, entries: list[EvOpEntry] | None = None) -> list[EvOpEntry]:
        """A batch of one operation. Each entry's `success` tells; at the first error it stops and raises.

        The error's `done` is the number of entries carried out, which stay so. QUERY_ARRAY takes no entries and
        returns one per EV of the profile; the others return the entries given.
        """
        with self._device.lock:
            profile = self._profiles.get(_number(profile_id, "EV profile"))
            if profile is None:
                raise VerbsError(f"no EV profile {profile_id} (has: {_list(self._profiles)})", errno.ENOENT)
            if op is EvOp.QUERY_ARRAY:
                return [EvOpEntry(ev, state=self._state(profile, ev), success=True) for ev in profile.entries]
            batch = list(entries or ())
            if len(batch) > MAX_OP_ENTRIES:
                raise VerbsError(f"ev_op: {len(batch)} entries: at most {MAX_OP_ENTRIES} a call", errno.E2BIG)
            for entry in batch:
                entry.success = False
            for done, entry in enumerate(batch):
                try:
                    self._one_op(profile, op, entry)
                except LocalError as error:
                    number = getattr(error, "errno", errno.EINVAL)
                    raise VerbsError(f"ev_op {op.name}, entry {done}: {error}", number, done=done) from None
                entry.success = True
            return batch

    def _one_op(self, profile: _EvProfile, op: EvOp, entry: EvOpEntry) -> None:
        if op is EvOp.QUERY_STATE:
            entry.state = self._state(profile, self._member(profile, entry.ev))
            return
        if op is EvOp.MODIFY_STATE:
            self._set_state(profile, self._member(profile, entry.ev), entry.state)
            return
        if profile.attr.mode is not EvMode.EXPLICIT:
            raise VerbsError(f"EV profile {profile.id} is {profile.attr.mode.name}: only EXPLICIT ones are written")
        if profile.attr.state is not _OFFLINE:
            raise VerbsError(
                f"EV profile {profile.id} is {profile.attr.state.name}: EVs are replaced OFFLINE", errno.EBUSY
            )
        old, new = self._member(profile, entry.ev), entry.ev_new
        if new != EV_UNPOPULATED:
            self.engine_ev(profile.attr, new)
        places = [i for i, ev in enumerate(profile.entries) if ev == old]
        for i in places if entry.all_copies else places[:1]:
            profile.entries[i] = new
        self._set_state(profile, new, entry.state)

    def _member(self, profile: _EvProfile, ev: EvEntry) -> EvEntry:
        if ev not in profile.entries and profile.attr.mode is not EvMode.AUTO:
            raise VerbsError(f"EV {ev.val:#x} of port {ev.port} is not in EV profile {profile.id}", errno.ENOENT)
        return ev

    def _set_state(self, profile: _EvProfile, ev: EvEntry, state: EvStateMask) -> None:
        if state not in (EvStateMask.GOOD, EvStateMask.DENIED):
            raise VerbsError(f"state {state!r}: an EV can be made GOOD or DENIED")
        deny = state is EvStateMask.DENIED
        value = self.engine_ev(profile.attr, ev)[0] if ev != EV_UNPOPULATED else 0
        now, known = self._device.now(), False
        for qp in profile.users:
            if any(row["ev"] == value for row in qp.engine.ev_states()):
                qp.engine.deny_ev(value, deny, now)
                known = True
        if profile.attr.mode is EvMode.AUTO and not known:
            raise VerbsError(f"EV {value:#x} is in no QP of EV profile {profile.id}", errno.ENOENT)
        (profile.denied.add if deny else profile.denied.discard)(ev)
        self._device.after_call()

    def _state(self, profile: _EvProfile, ev: EvEntry) -> EvStateMask:
        """The worst a QP knows of it; DENIED when the controller said so."""
        if ev == EV_UNPOPULATED:
            return EvStateMask.UNKNOWN
        if ev in profile.denied:
            return EvStateMask.DENIED
        value = self.engine_ev(profile.attr, ev)[0]
        rows = [row["state"] for qp in profile.users for row in qp.engine.ev_states() if row["ev"] == value]
        if "assumed_bad" in rows:
            return EvStateMask.ASSUMED_BAD
        return EvStateMask.GOOD if rows or profile.attr.mode is not EvMode.AUTO else EvStateMask.UNKNOWN

    # ---- from profile to engine ------------------------------------------------------------------------------

    def _format(self, attr: EvProfileAttr) -> EvFmtProfile:
        return self._formats[attr.ev_fmt_profile_id or 0]

    def _expanded(self, attr: EvProfileAttr, packed: int) -> tuple[int, int]:
        """(32-bit EV of the engine, expanded EV). SRv6: plane << 8 | uplink, read from the T1 uSID of a full address."""
        if attr.mode is EvMode.AUTO:
            return packed, packed
        form = self._format(attr)
        value = expand(packed, attr.fields, form.fields) if attr.fields else packed
        width = sum(form.fields)
        if value >> width:
            raise VerbsError(f"EV {value:#x} does not fit the {width} bits of its format")
        if form.mode is EvFormat.SRV6 and width > 32:
            return value << 128 - width >> 64 & 0x0FFF, value  # T1 uSID: bits 79..64, role nibble away (§8.2, §8.3)
        return value, value

    def engine_ev(self, attr: EvProfileAttr, ev: EvEntry) -> tuple[int, int]:
        """(EV, plane) as the engine has it. Raises VerbsError for a port or value that cannot be."""
        plane = self._device.plane_of(ev.port)
        if ev.val < 0 or (attr.fields and ev.val >> packed_width(attr.fields)):
            raise VerbsError(f"EV {ev.val:#x} does not fit the {packed_width(attr.fields or [])} bits of its fields")
        value, _ = self._expanded(attr, ev.val)
        if attr.mode is not EvMode.AUTO and self._format(attr).mode is EvFormat.SRV6 and value >> 8 & 0xFF != plane:
            raise VerbsError(f"EV {ev.val:#x} names plane {value >> 8 & 0xFF}, but port {ev.port} is plane {plane}")
        return value, plane

    def check_profiles(self, ev_profile_id: int | None, cc_profile_id: int | None, what: str) -> None:
        """Whether a QP may use these now (called by QPs)."""
        profile = self._profiles.get(ev_profile_id or AUTO_PROFILE)
        if profile is None or profile.attr.state is not _ONLINE:
            state = "INIT" if profile is None else profile.attr.state.name
            online = _list([i for i, p in self._profiles.items() if p.attr.state is _ONLINE])
            raise VerbsError(
                f"{what}: EV profile {ev_profile_id} is {state}, needs ONLINE (online: {online})", errno.ENOENT
            )
        if cc_profile_id:
            state, _, _ = self._cc.get(cc_profile_id, (_INIT, None, None))
            if state is not _ONLINE:
                online = _list([i for i, entry in self._cc.items() if entry[0] is _ONLINE])
                raise VerbsError(
                    f"{what}: CC profile {cc_profile_id} is {state.name}, needs ONLINE (online: {online})", errno.ENOENT
                )

    def config_changes(self, ev_profile_id: int | None) -> dict[str, Any]:
        """Keys of the engine's Config that an EV profile sets (called by QPs)."""
        profile = self._profiles[ev_profile_id or AUTO_PROFILE]
        return {"ev_min_active": profile.attr.ev_min_active}

    def evs_for(self, ev_profile_id: int | None, peer: str, what: str) -> list[tuple[int, int]]:
        """(EV, plane) pairs of a QP to `peer`: those of its profile that lead there (called by QPs)."""
        self.check_profiles(ev_profile_id, None, what)
        driver = self._device.driver
        profile = self._profiles[ev_profile_id or AUTO_PROFILE]
        if profile.attr.mode is EvMode.AUTO:
            return list(driver.evs(peer))
        wrong, pairs = "", {}
        for entry in profile.entries:
            ev, plane = self.engine_ev(profile.attr, entry)
            problem = driver.check_ev(peer, ev, plane)
            if problem is None:
                pairs.setdefault(ev, plane)
            else:
                wrong = problem
        if not pairs:
            raise VerbsError(f"{what}: no EV of profile {profile.id} leads to {peer}: {wrong}")
        return list(pairs.items())

    def connect_options(self, mrc: Any, peer: str) -> dict[str, Any]:
        """Further arguments of the engine's connect(): the denylist, congestion control (called by QPs)."""
        profile = self._profiles[mrc.ev_profile_id or AUTO_PROFILE]
        options: dict[str, Any] = {}
        if profile.denied:
            options["denied"] = [self.engine_ev(profile.attr, ev)[0] for ev in profile.denied]
        return options

    def attach(self, qp: QueuePair, ev_profile_id: int | None, cc_profile_id: int | None) -> None:
        """A QP connected with these (called by QPs)."""
        self._profiles[ev_profile_id or AUTO_PROFILE].users.add(qp)
        if cc_profile_id:
            self._cc[cc_profile_id][2].add(qp)

    def detach(self, qp: QueuePair) -> None:
        """A QP is reset or destroyed (called by QPs)."""
        for profile in self._profiles.values():
            profile.users.discard(qp)
        for _, _, users in self._cc.values():
            users.discard(qp)

    # ---- CC profiles -----------------------------------------------------------------------------------------

    def modify_cc_profile(
        self, profile_id: int, *, state: ProfileState | None = None, algorithm: str | Any | None = ..., **config: Any
    ) -> None:
        """Write a CC profile, then move it. `algorithm`: one of `query_device().cc_algorithms`, None = no control.

        `config`: the parameters of §10.4 under their names and in their units (hosts.engine.ccprofile.CcProfile).
        """
        with self._device.lock:
            what = f"CC profile {profile_id}"
            if _number(profile_id, "CC profile") == AUTO_PROFILE:
                raise VerbsError("CC profile 0 is the endpoint's configuration: change that instead")
            old_state, profile, users = self._cc.get(profile_id, (_INIT, CcProfile(), set()))
            changes = dict(config) if algorithm is ... else {"algorithm": algorithm, **config}
            _may_change(old_state, state, what, **changes)
            try:
                profile = CcProfile.from_json({**profile.to_json(), **changes})
            except LocalError as error:
                raise VerbsError(f"{what}: {error}") from None
            new_state = _moved(old_state, state, what)
            if old_state is _ONLINE and new_state is _OFFLINE and users:
                raise VerbsError(f"{what} is used by {len(users)} QPs: destroy or reset these first", errno.EBUSY)
            if new_state is _INIT:
                self._cc.pop(profile_id, None)
                return
            self._room(self._cc, profile_id, what)
            self._cc[profile_id] = (new_state, profile, users)

    def query_cc_profile(self, profile_id: int) -> tuple[ProfileState, CcProfile]:
        """State and parameters; None in a field: derived from the measured pipe."""
        state, profile, _ = self._cc.get(_number(profile_id, "CC profile"), (_INIT, CcProfile(), set()))
        return state, profile

    # ---- EV events -------------------------------------------------------------------------------------------

    def create_ev_event_cq(self, cqe: int = 1024) -> EvEventCq:
        """A queue of EV events of all profiles, from now on. It coalesces and cannot overrun; `cqe` bounds its memory."""
        if not isinstance(cqe, int) or cqe < 1:
            raise VerbsError(f"create_ev_event_cq: cqe = {cqe!r}: must be 1 or more")
        with self._device.lock:
            cq = EvEventCq(self._device, cqe)
            self._event_cqs.append(cq)
            return cq

    def on_event(self, event: Event) -> None:
        """The engine's news of EVs and probes (called by the device, lock held)."""
        if isinstance(event, EvProbeResult):
            found = self._probes.pop(event.request_id, None)
            if found is not None:
                found[0].finish(found[1], event)
        elif isinstance(event, EvChanged) and self._event_cqs:
            self._ev_changed(event)
        elif isinstance(event, PacketLost):
            return

    def _ev_changed(self, event: EvChanged) -> None:
        states = {EvState.GOOD: EvStateMask.GOOD, EvState.SKIP: EvStateMask.GOOD}
        states[EvState.ASSUMED_BAD] = EvStateMask.ASSUMED_BAD
        state = states.get(event.new)
        for profile in self._profiles.values():
            if not any(qp.qp_num == event.qpn for qp in profile.users):
                continue
            mask = profile.attr.ev_event_mask or EvStateMask(0)
            if state is not None and state & mask:
                entry = self._entry_of(profile, event.ev, event.plane)
                for cq in self._event_cqs:
                    cq.push(profile.id, entry, state, event.at)

    def _entry_of(self, profile: _EvProfile, ev: int, plane: int) -> EvEntry:
        for entry in profile.entries:
            if entry.port == plane + 1 and self.engine_ev(profile.attr, entry)[0] == ev:
                return entry
        return EvEntry(ev, plane + 1)

    # ---- endpoint operations -----------------------------------------------------------------------------------

    def ep_op(self, requests: Sequence[EpRequest]) -> list[EpResponse]:
        """Carry out a batch and wait for all answers or timeouts; responses in the order of the requests."""
        batch = self.post_ep_op(requests)
        self._device.wait_for(lambda: batch.done)
        return [batch.responses[r.req_id] for r in requests if r.req_id in batch.responses]

    def post_ep_op(self, requests: Sequence[EpRequest]) -> _Batch:
        """As `ep_op`, without waiting: `batch.done` and `batch.responses` (by request id) tell."""
        device = self._device
        ids = [r.req_id for r in requests]
        if len(set(ids)) != len(ids) or any(not 0 <= i <= 0xFFFF for i in ids):
            raise VerbsError("ep_op: request ids are 16 bits, each once in a batch")
        targets = []
        for number, r in enumerate(requests):
            if r.op != EpOp.EV_PROBE:
                raise VerbsError(f"ep_op, entry {number}: op {r.op!r} (has: EV_PROBE)")
            if not 0 < r.timeout_ns <= 60 * 10**9:
                raise VerbsError(f"ep_op, entry {number}: timeout_ns = {r.timeout_ns}: must be 1 to 60000000000")
            if not 0 <= r.ev < 1 << 32:
                raise VerbsError(f"ep_op, entry {number}: EV {r.ev:#x} does not fit 32 bits")
            targets.append((device.driver.resolve(r.dgid), device.plane_of(r.port)))
        batch = _Batch(len(ids))
        with device.lock:
            for r, (peer, plane) in zip(requests, targets, strict=True):
                probe = device.driver.endpoint.probe_ev(
                    peer, r.ev, plane, now=device.now(), timeout_s=r.timeout_ns * 1e-9
                )
                self._probes[probe] = (batch, r)
            device.after_call()
        return batch

    @staticmethod
    def _room(table: dict[int, Any], profile_id: int, what: str) -> None:
        if profile_id not in table and len(table) >= MAX_PROFILES:
            raise VerbsError(f"{what}: {MAX_PROFILES} profiles exist, the limit: take one to INIT", errno.ENOMEM)


class _Batch:
    """Endpoint operations in flight."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.responses: dict[int, EpResponse] = {}

    @property
    def done(self) -> bool:
        """Every request has its response."""
        return len(self.responses) == self._count

    def finish(self, request: EpRequest, event: EvProbeResult) -> None:
        """Called by the controller."""
        rtt = None if event.rtt_s is None else round(event.rtt_s * 1e9)
        self.responses[request.req_id] = EpResponse(request.req_id, request.port, rtt, rtt)


def wanted_seed(*parts: str) -> str:
    """Seed of what a profile draws: the same host and profile give the same EVs."""
    return "/".join(parts)


def _number(profile_id: int, what: str) -> int:
    if not isinstance(profile_id, int) or not 0 <= profile_id < 1 << 64:
        raise VerbsError(f"{what} id {profile_id!r}: must be a number of 64 bits")
    return profile_id


def _list(items: Any) -> str:
    return ", ".join(map(str, items)) or "none"


def _moved(old: ProfileState, new: ProfileState | None, what: str) -> ProfileState:
    """The state after a move. Raises VerbsError naming those that exist."""
    if new is None or new is old:
        return old
    if new not in _MOVES[old]:
        there = " or ".join(s.name for s in _MOVES[old])
        raise VerbsError(f"{what}: {old.name}->{new.name} is no move (from {old.name}: {there})")
    return new


def _may_change(old: ProfileState, new: ProfileState | None, what: str, **changes: Any) -> None:
    given = [name for name, value in changes.items() if value is not None]
    if given and old is _ONLINE:
        raise VerbsError(f"{what} is ONLINE: take it OFFLINE to change {', '.join(given)}", errno.EBUSY)
    if given and new is _INIT:
        raise VerbsError(f"{what}: {', '.join(given)} given, but INIT forgets everything")


def _check_format(form: EvFmtProfile, what: str) -> None:
    if form.mode not in MAX_WIDTH:
        raise VerbsError(f"{what}: mode is one of STEV, SRV6, UDP")
    if any(not isinstance(w, int) or not 1 <= w <= 128 for w in form.fields):
        raise VerbsError(f"{what}: fields are widths of 1 to 128 bits, got {form.fields}")
    if sum(form.fields) > MAX_WIDTH[form.mode]:
        raise VerbsError(
            f"{what}: its fields have {sum(form.fields)} bits, {form.mode.name} carries {MAX_WIDTH[form.mode]}",
            errno.E2BIG,
        )
