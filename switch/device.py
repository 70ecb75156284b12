"""One P4 device: a loaded program with its tables, and an in-memory door to push packets through it.

    device = Device(1, "p0-t0-0")
    device.load(compile_program("p4src/srv6.p4"))
    device.insert(TableEntry(table_id, (FieldMatch.exact(1, b"\\x23\\x01"),), ActionCall(action_id, ((1, b"\\x07"),))))
    assert device.process(1, frame) == [(7, other_frame)]

All state lives in the C runtime (switch/runtime); this class checks what callers ask against the program's P4Info and
translates. Every method may be called from any thread while the event loop (switch.loop) forwards packets: each takes
the device's lock, which the loop gives up at the latest after one batch of frames. An operation is done whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from switch.entities import CounterData, DeviceStats, Group, Member, TableEntry

if TYPE_CHECKING:
    from switch.p4 import CompiledProgram

CPU_PORT = 510
"""Port of packet-in and packet-out; the event loop can be told another."""
DROP_PORT = 511


class Device:
    """A device without a program drops everything; `load` gives it one, with empty tables.

    `device_id` is P4Runtime's, `name` appears in messages. `seed` makes the program's random() repeatable.
    """

    def __init__(self, device_id: int, name: str = "", *, seed: int = 0):
        raise NotImplementedError

    # ---- program ----------------------------------------------------------------------------------------------

    def load(self, program: CompiledProgram) -> None:
        """Run `program` (anything with .name, .library and .p4info) from now on, all state as it begins.

        Raises TableError INVALID_ARGUMENT when library and P4Info disagree or the library cannot be opened; the
        previous program stays in place then.
        """

    def unload(self) -> None:
        """Forget program and state: what a switch without power remembers."""

    def close(self) -> None:
        """Free everything; the object is dead after it. Called by the garbage collector as well."""

    @property
    def program(self) -> CompiledProgram | None:
        """The loaded program, or None."""

    # ---- packets ----------------------------------------------------------------------------------------------

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Push one frame in at `port`; the (port, frame) pairs that come out, in order.

        Frames to the CPU port come out as port 510 like any other. Raises ValueError for a port beyond 0..510.
        """

    def set_port_up(self, port: int, up: bool) -> None:
        """Tell the device a port's state; selector members that watch it are left out at once while it is down.

        All ports count as up at load. The event loop calls this by itself for the ports it owns.
        """

    def stats(self) -> DeviceStats:
        """Frame counts since load."""

    # ---- table entries (all raise TableError) -------------------------------------------------------------------

    def insert(self, entry: TableEntry) -> None:
        """Add an entry. ALREADY_EXISTS when one with the same match and priority is there."""

    def modify(self, entry: TableEntry) -> None:
        """Replace the action (and counter, if given) of an entry, or of the default entry. NOT_FOUND."""

    def delete(self, entry: TableEntry) -> None:
        """Remove the entry with that match and priority; its action is ignored. NOT_FOUND."""

    def read(self, table_id: int = 0, *, defaults: bool = False) -> Iterator[TableEntry]:
        """All entries of a table, of all tables when 0; with `defaults` also the default entries (first).

        A snapshot taken at the call. Order: as inserted.
        """

    def read_one(self, entry: TableEntry) -> TableEntry:
        """The entry with the match and priority (or the default entry) of `entry`. NOT_FOUND."""

    # ---- action profiles ------------------------------------------------------------------------------------------

    def insert_member(self, member: Member) -> None: ...

    def modify_member(self, member: Member) -> None:
        """Change a member's action; entries and groups that use it follow at once."""

    def delete_member(self, member: Member) -> None:
        """FAILED_PRECONDITION while an entry or a group uses it."""

    def read_members(self, profile_id: int = 0, member_id: int = 0) -> Iterator[Member]:
        """Members of a profile (0: of all), one of them when `member_id` is given (none if it does not exist)."""

    def insert_group(self, group: Group) -> None: ...

    def modify_group(self, group: Group) -> None:
        """Replace the members of a group."""

    def delete_group(self, group: Group) -> None:
        """FAILED_PRECONDITION while an entry uses it."""

    def read_groups(self, profile_id: int = 0, group_id: int = 0) -> Iterator[Group]: ...

    # ---- counters and registers -----------------------------------------------------------------------------------

    def read_counter(self, counter_id: int, index: int | None = None) -> list[tuple[int, CounterData]]:
        """(index, value) of one cell or of all. INVALID_ARGUMENT, OUT_OF_RANGE."""

    def write_counter(self, counter_id: int, index: int | None, value: CounterData) -> None:
        """Set one cell, or all when `index` is None."""

    def read_register(self, register_id: int, index: int | None = None) -> list[tuple[int, int]]: ...

    def write_register(self, register_id: int, index: int | None, value: int) -> None: ...
