"""Benches of the compiler's tests.

Devices running a program, entries by name, frames written by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mrc_testbed.switch.compiler import CompiledProgram, compile_program
from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import (
    ActionCall,
    FieldMatch,
    Group,
    GroupMember,
    GroupRef,
    ProfileMember,
    TableEntry,
)
from tests.repository import ROOT

PROGRAMS = ROOT / "p4src"
P4_FOLDER = Path(__file__).with_name("p4")


class Bench:
    """A device in memory with one program; tables, actions and counters go by their alias."""

    def __init__(self, program: CompiledProgram) -> None:
        self.info = program.p4info
        self.device = P4Device(1, program.name)
        self.device.load(program)

    def _find(self, items: Any, alias: str) -> Any:
        return next(item for item in items if alias in (item.preamble.alias, item.preamble.name))

    def id(self, alias: str) -> int:
        groups = (self.info.counters, self.info.registers, self.info.action_profiles)
        return next(
            object_info.preamble.id for group in groups for object_info in group if object_info.preamble.alias == alias
        )

    def call(self, action: str, **params: int) -> ActionCall:
        action_info = self._find(self.info.actions, action)
        values = {param.id: (params[param.name], (param.bitwidth + 7) // 8 or 1) for param in action_info.params}
        return ActionCall(action_info.preamble.id, tuple((k, v.to_bytes(n, "big")) for k, (v, n) in values.items()))

    def add(self, table: str, match: tuple[Any, ...], action: Any, priority: int = 0, **params: int) -> None:
        """Insert an entry. A match is an int (exact), (value, prefix) for lpm, (value, mask) or (low, high)."""
        table_info = self._find(self.info.tables, table)
        fields = []
        for match_field, value in zip(table_info.match_fields, match, strict=False):
            size = (match_field.bitwidth + 7) // 8 or 1
            parts = [v.to_bytes(size, "big") for v in (value if isinstance(value, tuple) else (value,))]
            if match_field.match_type == match_field.EXACT:
                fields.append(FieldMatch.exact(match_field.id, parts[0]))
            elif match_field.match_type == match_field.LPM:
                fields.append(FieldMatch.lpm(match_field.id, parts[0], value[1]))
            elif match_field.match_type == match_field.TERNARY:
                fields.append(FieldMatch.ternary(match_field.id, *parts))
            elif match_field.match_type == match_field.RANGE:
                fields.append(FieldMatch.range(match_field.id, *parts))
            else:
                fields.append(FieldMatch.optional(match_field.id, parts[0]))
        run = self.call(action, **params) if isinstance(action, str) else action
        self.device.insert(TableEntry(table_info.preamble.id, tuple(fields), run, priority))

    def set_default(self, table: str, action: str, **params: int) -> None:
        table_info = self._find(self.info.tables, table)
        self.device.modify(TableEntry(table_info.preamble.id, (), self.call(action, **params), is_default=True))

    def group(self, profile: str, group: int, ports: list[int], action: str) -> GroupRef:
        """Insert a group whose member n sends to ports[n], each watching its port."""
        profile_id = self.id(profile)
        for n, port in enumerate(ports, 1):
            self.device.insert_member(ProfileMember(profile_id, n, self.call(action, port=port)))
        members = tuple(GroupMember(n, 1, port) for n, port in enumerate(ports, 1))
        self.device.insert_group(Group(profile_id, group, members))
        return GroupRef(group)

    def count(self, counter: str, index: int) -> int:
        """Return the packet count of one cell."""
        return self.device.read_counter(self.id(counter), index)[0][1].packets

    def send(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        return self.device.process(port, frame)


def compile_named(name: str) -> CompiledProgram:
    """Compile a program of p4src."""
    return compile_program(PROGRAMS / f"{name}.p4")


def bench_of(name: str) -> Bench:
    """Return a device with one of the small programs beside this file."""
    return Bench(compile_program(P4_FOLDER / f"{name}.p4"))
