"""Records and constants of the controller API, and the life of a profile (mrc-protocol §10.3)."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, IntEnum, IntFlag
from typing import Any

from mrc_testbed.hosts.engine.cc.ccprofile import ProfileState
from mrc_testbed.hosts.verbs.checks import choice, number
from mrc_testbed.hosts.verbs.errors import VerbsError
from mrc_testbed.hosts.verbs.fields import EvField, EvFormat

AUTO_PROFILE = 0
"""The EV profile of QPs without one, and the CC profile that the configuration is."""
MAX_PROFILES = 256
MAX_CC_PROFILES = 63
MAX_EVS = 1 << 16
MAX_EVS_PROFILE = 4096
MAX_OP_ENTRIES = 4096

INIT, OFFLINE, ONLINE = ProfileState.INIT, ProfileState.OFFLINE, ProfileState.ONLINE
MOVES = {INIT: (OFFLINE,), OFFLINE: (ONLINE, INIT), ONLINE: (OFFLINE,)}
"""Life of every profile; any other move is refused."""


class EvMode(IntFlag):
    """Source of a profile's EVs."""

    AUTO = 1 << 0
    """EVs of the device: every path to the peer."""
    EXPLICIT = 1 << 1
    """EVs that the controller writes, one by one (REPLACE_EV)."""
    GENERATED = 1 << 2
    """EVs that the device derives from the fields' widths and ranges."""


class EvStateMask(IntFlag):
    """State of an EV as the API tells it. SKIP is GOOD here."""

    GOOD = 1 << 0
    ASSUMED_BAD = 1 << 1
    DENIED = 1 << 2
    UNKNOWN = 1 << 31
    """State of an EV that does not exist, or that no QP uses yet."""


class EvOp(Enum):
    """Operations on the EVs of a profile."""

    REPLACE_EV = "replace"
    MODIFY_STATE = "modify_state"
    QUERY_STATE = "query_state"
    QUERY_ARRAY = "query_array"


class EpOp(IntEnum):
    """Endpoint operations: node to node, no QP."""

    EV_PROBE = 0
    """The wire numbers the two the other way round (§2.12)."""
    PORT_STATUS_UPDATE = 1
    """Operation that callers may not start: the device tells its peers of its ports by itself."""


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
    """EV fields: expansion of a packed EV; None: the EV as it is.

    GENERATED needs them."""
    ports: list[int] | None = None
    """GENERATED: ports (from 1) the EVs are spread over; None = all."""


@dataclass(slots=True)
class EvFmtProfile:
    """A format: kind, and widths of its fields in bits."""

    state: ProfileState = INIT
    mode: EvFormat | None = None
    fields: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class CtlDeviceAttr:
    """Result of `mrc_ctl_query_device`.

    Numbers of profiles and EVs; widths in bits; the port mask has bit N for port N.
    """

    mrc_ctl_protocol_version: int
    """Bitmap: bit 0 = version 1."""
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
    """One endpoint operation of a batch."""

    req_id: int
    """16 bits, unique within a batch; comes back in the response."""
    dgid: str
    ev: int
    """Expanded EV, right-aligned.

    Of an SRv6 format: a whole address (above 32 bits), or the EV of its T1 uSID."""
    port: int
    sgid: str | None = None
    """Address of one of our ports; None: that of `port`."""
    ev_fmt_mode: EvFormat | None = None
    """Format of `ev`, which limits its bits; None: any of at most 32."""


@dataclass(frozen=True, slots=True)
class EpResponse:
    """Outcome of one endpoint operation; `rtt_ns` None and `errno` ETIMEDOUT: no answer in time."""

    req_id: int
    port: int
    rtt_ns: int | None
    adj_svc_time: bool = False
    """Whether the responder's service time was taken off: none reports it yet (§12 row 34)."""
    errno: int = 0

    @property
    def ok(self) -> bool:
        return self.rtt_ns is not None


def number_of(profile_id: Any, subject: str) -> int:
    """Return a profile's number, 64 bits."""
    return number(f"{subject} id", profile_id, 0, (1 << 64) - 1)


def name_of(value: Enum | None) -> str:
    """Return the name of an attribute's value for a message; `not set` without one."""
    return "not set" if value is None else value.name


def comma_list(items: Iterable[object]) -> str:
    """Items for a message, separated by commas; `none` when there are none."""
    return ", ".join(map(str, items)) or "none"


def state_after(old_state: ProfileState, new_state: ProfileState | None, subject: str) -> ProfileState:
    """Return the state after a move; raises VerbsError that names the existing moves."""
    if new_state is not None:
        choice(f"{subject}: state", new_state, ProfileState)
    if new_state is None or new_state is old_state:
        return old_state
    if new_state not in MOVES[old_state]:
        targets = " or ".join(s.name for s in MOVES[old_state])
        raise VerbsError(f"{subject}: {old_state.name}->{new_state.name} is no move (from {old_state.name}: {targets})")
    return new_state


def check_changes(old_state: ProfileState, new_state: ProfileState | None, subject: str, **changes: Any) -> None:
    """Check that the attributes in `changes` may be set on the way from `old` to `new`. Raises VerbsError."""
    change_names = [name for name, value in changes.items() if value is not None]
    if change_names and old_state is ONLINE:
        raise VerbsError(f"{subject} is ONLINE: take it OFFLINE to change {', '.join(change_names)}", errno.EBUSY)
    if change_names and new_state is INIT:
        raise VerbsError(f"{subject}: {', '.join(change_names)} given, but INIT forgets everything")


def check_capacity(table: dict[int, Any], profile_id: int, limit: int, subject: str) -> None:
    """Whether one more profile fits. Raises VerbsError (ENOMEM)."""
    if profile_id not in table and len(table) >= limit:
        raise VerbsError(f"{subject}: {limit} profiles exist, the limit: take one to INIT", errno.ENOMEM)
