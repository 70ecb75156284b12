"""Contents of a P4 device as plain data: table entries, members, groups, counter and register cells.

Ids are P4Info's. Values are canonical byte strings (P4Runtime §8.3): big-endian, shortest form, at least one byte;
users may pass longer ones with leading zeros as long as the value fits the width, and always get canonical ones
back. Nothing here knows a program; `mrc_testbed.switch.device.device.P4Device` checks entries against one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class TableError(Exception):
    """An operation which the device refuses. Its state is as before the operation.

    `code` is the name of a gRPC status: INVALID_ARGUMENT (malformed, wrong width, unknown id in the program),
    NOT_FOUND, ALREADY_EXISTS, RESOURCE_EXHAUSTED (table, profile or group full), FAILED_PRECONDITION (no program
    loaded, member still in use), PERMISSION_DENIED (const entry, action of another scope), OUT_OF_RANGE (value too
    wide, counter or register index), UNIMPLEMENTED. The message names the object and lists what would have worked.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Match(IntEnum):
    """Match kinds, numbered as `enum p4rt_match` of p4rt.h."""

    EXACT = 0
    LPM = 1
    TERNARY = 2
    RANGE = 3
    OPTIONAL = 4


@dataclass(frozen=True, slots=True)
class FieldMatch:
    """Condition of an entry on one key field; a field left out of an entry matches anything.

    exact, optional: `value`. lpm: `value` and `prefix_len` (1..width). ternary: `value` and `mask` (not 0).
    range: `value` is the low and `high` the high end, both included. Use the constructors below.
    """

    field_id: int
    value: bytes
    mask: bytes | None = None
    prefix_len: int | None = None
    high: bytes | None = None
    kind: Match = Match.EXACT

    @classmethod
    def exact(cls, field_id: int, value: bytes) -> FieldMatch:
        return cls(field_id, value)

    @classmethod
    def lpm(cls, field_id: int, value: bytes, prefix_len: int) -> FieldMatch:
        return cls(field_id, value, prefix_len=prefix_len, kind=Match.LPM)

    @classmethod
    def ternary(cls, field_id: int, value: bytes, mask: bytes) -> FieldMatch:
        return cls(field_id, value, mask=mask, kind=Match.TERNARY)

    @classmethod
    def range(cls, field_id: int, low: bytes, high: bytes) -> FieldMatch:
        return cls(field_id, low, high=high, kind=Match.RANGE)

    @classmethod
    def optional(cls, field_id: int, value: bytes) -> FieldMatch:
        return cls(field_id, value, kind=Match.OPTIONAL)


@dataclass(frozen=True, slots=True)
class ActionCall:
    """An action with its parameters: parameter id -> value. All parameters must be there."""

    action_id: int
    params: tuple[tuple[int, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class MemberRef:
    """The action of an entry in a table with an action profile: one member."""

    member_id: int


@dataclass(frozen=True, slots=True)
class GroupRef:
    """The action of an entry in a table with an action selector: one group."""

    group_id: int


@dataclass(frozen=True, slots=True)
class SetMember:
    """One action of a one-shot set. `watch_port`: while that port is down it is not chosen; None: always."""

    action: ActionCall
    weight: int = 1
    watch_port: int | None = None


@dataclass(frozen=True, slots=True)
class ActionSet:
    """One-shot action set: actions given with an entry of a table with an action selector, its own."""

    members: tuple[SetMember, ...] = ()


@dataclass(frozen=True, slots=True)
class CounterData:
    """A counter cell. Of a counter that counts only packets (bytes) the other value stays 0."""

    packets: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class MeterConfig:
    """Rates per second and bursts of a meter, in packets or bytes: yellow beyond cir, red beyond pir."""

    cir: int
    cburst: int
    pir: int
    pburst: int


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One entry of a table. `match` in any order on the way in, in key order on the way out.

    `priority`: larger wins; demanded (> 0) exactly in tables with a ternary, range or optional field.
    `is_default`: the default entry (no match, no priority).
    `counter`: on the way out the direct counter, None when the table has none; on the way in, set it if not None.
    `action` None in a modify: the action stays; but the default entry goes back to the program's, unless a counter is
    given. `idle_timeout_ns`: time without a hit after which the entry is reported; 0: never. `metadata`,
    `cookie` (P4Runtime's controller_metadata): kept for the client, nothing to the device.
    """

    table_id: int
    match: tuple[FieldMatch, ...] = ()
    action: ActionCall | MemberRef | GroupRef | ActionSet | None = None
    priority: int = 0
    is_default: bool = False
    counter: CounterData | None = None
    idle_timeout_ns: int = 0
    metadata: bytes = b""
    cookie: int = 0
    idle_ns: int | None = field(default=None, compare=False)
    """Time since the last hit or the insertion, read only; None when the table has no idle timeouts."""
    is_const: bool = False
    """Whether the entry is const in the program, read only."""


@dataclass(frozen=True, slots=True)
class ProfileMember:
    """A member of an action profile: an action bound to parameters, shared by entries and groups."""

    profile_id: int
    member_id: int
    action: ActionCall | None = None


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member in a group. `watch_port`: while that port is down the member is not chosen; None: always."""

    member_id: int
    weight: int = 1
    watch_port: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A group of an action selector. `max_size`: largest sum of weights; 0: the selector's bound."""

    profile_id: int
    group_id: int
    members: tuple[GroupMember, ...] = field(default=())
    max_size: int = 0


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy: where it goes, and the egress_rid it gets."""

    port: int
    rid: int = 0
    as_bytes: bool = field(default=False, compare=False)
    """The client gave the port as a byte string (P4Runtime 1.4), and gets it back so."""


@dataclass(frozen=True, slots=True)
class MulticastGroup:
    """Destinations of the packets of mcast_grp `group_id`."""

    group_id: int
    replicas: tuple[Replica, ...] = ()
    metadata: bytes = b""
    """Metadata stored for the client, not interpreted."""


@dataclass(frozen=True, slots=True)
class CloneSession:
    """Targets of clones.

    `group_id`: a multicast group as well; 0: none. `length`: longest clone, bytes; 0: any.
    """

    session_id: int
    replicas: tuple[Replica, ...] = ()
    class_of_service: int = 0
    length: int = 0
    group_id: int = 0


@dataclass(frozen=True, slots=True)
class ValueSetMembers:
    """The members of a parser's value_set: each what a packet's keys must match."""

    value_set_id: int
    members: tuple[tuple[FieldMatch, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Digest:
    """A value sent by digest().

    Layout of `data`: switch/compiler/p4info/typespec.py. `at_us`: microseconds since load.
    """

    digest_id: int
    data: bytes
    at_us: int


@dataclass(frozen=True, slots=True)
class DeviceStats:
    """Frames of one device since load. What came in left on a port, or is in one of the drops."""

    received: int
    sent: int
    dropped_ingress: int
    """egress_spec was the drop port after ingress."""
    dropped_egress: int
    """Frames whose egress_spec was the drop port after egress."""
    dropped_no_port: int
    """Frames sent to a port that does not exist."""
    dropped_size: int
    """Longer than the runtime takes (P4RT_MAX_FRAME), or grown beyond it."""
    dropped_queue: int = 0
    """Frames that found the queue full, or no buffer left."""
    dropped_no_buffer: int = 0
    """No buffer was left, for a queue (then in dropped_queue too) or for a cable's delay."""
    dropped_assert: int = 0
    """An assert or assume of the program was false."""
    false_assert: bytes | None = None
    """Source position of the last false assert, file:line:column."""
