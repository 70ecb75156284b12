"""Trace of one packet through a device: parser states, tables, changed fields, the end.

    trace = device.trace(1, frame)
    trace.sent                      # [(port, frame)]
    trace.dropped                   # why nothing was sent, in words; "" when something was
    for step in trace.tables: step.name, step.key, step.hit, step.action, step.params
    print(trace.text())

The packet is a real one: counters count it, registers change. The program runs in its traced build, on the state of
the device (switch/runtime/trace.c).
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from mrc_testbed.switch.device import native
from mrc_testbed.switch.device.entities import DeviceStats, TableError
from mrc_testbed.switch.device.native_device import NativeDevice
from mrc_testbed.switch.device.port_numbers import DROP_PORT
from mrc_testbed.switch.device.schema import MatchField, Schema
from mrc_testbed.switch.device.state import check

_HEAD = struct.Struct("=6I")  # struct rt_trace_head
_TABLE = struct.Struct("=7Ii")  # struct p4rt_trace_table


class TraceEvent(IntEnum):
    """enum p4rt_event."""

    START = 1
    STATE = 2
    EXTRACT = 3
    PARSED = 4
    CONTROL = 5
    TABLE = 6
    ACTION = 7
    END = 8
    REGISTER_READ = 9
    REGISTER_WRITE = 10
    COUNT = 11
    VALUE = 12
    NOTE = 13


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that has another value after the step. A header's validity goes by the header's own name."""

    name: str
    old_value: int
    new_value: int
    bits: int
    """0: a header, 1 valid and 0 not."""

    def __str__(self) -> str:
        if not self.bits:
            return f"{self.name} {'valid' if self.new_value else 'invalid'}"
        return f"{self.name} {format_value(self.old_value, self.bits)} -> {format_value(self.new_value, self.bits)}"


@dataclass(slots=True)
class TraceStep:
    """One event. `depth`: how many controls, tables and actions are around it."""

    kind: str
    """Kind of the step.

    start, state, extract, parsed, control, table, action, register_read, register_write, count, value, note;
    statements: what follows a step that cannot have made the changes, without a name or place.
    """
    name: str
    location: str
    """file:line:column in the P4 source."""
    depth: int
    changes: list[FieldChange] = field(default_factory=list)
    """Changes from here to the next step of the same depth."""
    key: dict[str, int] = field(default_factory=dict)
    """Values that a table looked up, by the field's name in P4Info."""
    key_bits: dict[str, int] = field(default_factory=dict)
    hit: bool | None = None
    action: str | None = None
    """Action of the table that ran; None: no action ran."""
    params: dict[str, int] = field(default_factory=dict)
    priority: int = 0
    member: int = 0
    group: int = 0
    numbers: tuple[int, ...] = ()
    """Numbers of the step, by kind.

    start of the egress: port, priority; extract: offset, bytes; parsed: the error's number; register: index, value;
    count: index; value, note: number.
    """

    @property
    def headline(self) -> str:
        """The step in a line, without its changes."""
        if self.kind == "table":
            return self._table_line()
        n = self.numbers
        if self.kind == "extract":
            return f"extract {self.name} ({n[1]} bytes at {n[0]})"
        if self.kind == "start":
            return f"{self.name} of port {n[0]}, from its queue {n[1]}" if n else self.name
        if self.kind == "statements":
            return "then"
        if self.kind == "parsed":
            return "parser accepts" if not n[0] else f"parser ends with {self.name}"
        if self.kind in ("register_read", "register_write"):
            verb = "reads" if self.kind == "register_read" else "="
            return f"{self.name}[{n[0]}] {verb} {n[1]}" + (f" ({n[1]:#x})" if n[1] > 9 else "")
        if self.kind == "count":
            return f"count {self.name}[{n[0]}]"
        if self.kind in ("value", "note"):
            return self.name + (f" {n[0]}" if n else "")
        return f"{self.kind} {self.name}"

    def _table_line(self) -> str:
        key = ", ".join(f"{name}={format_value(value, self.key_bits[name])}" for name, value in self.key.items())
        params = ", ".join(
            f"{name}={value:#x}" if value > 9 else f"{name}={value}" for name, value in self.params.items()
        )
        member_text = f" by member {self.member}" if self.member else ""
        member_text = f" by group {self.group}, member {self.member}" if self.group else member_text
        run = f"{self.action}({params}){member_text}" if self.action else "no action"
        way = "hit" if self.hit else "miss" if self.key else "default"
        return f"table {self.name} [{key}] {way}: {run}" if key else f"table {self.name} {way}: {run}"

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"kind": self.kind, "name": self.name, "where": self.location, "depth": self.depth}
        if self.kind == "table":
            out |= {"key": {k: hex(v) for k, v in self.key.items()}, "hit": self.hit, "action": self.action}
            out |= {"params": {k: hex(v) for k, v in self.params.items()}, "priority": self.priority}
            out |= {"member": self.member, "group": self.group}
        if self.numbers:
            out["numbers"] = list(self.numbers)
        if self.changes:
            out["changes"] = [
                {
                    "field": change.name,
                    "before": hex(change.old_value),
                    "after": hex(change.new_value),
                    "bits": change.bits,
                }
                for change in self.changes
            ]
        return out


@dataclass(slots=True)
class PacketTrace:
    """One packet's way."""

    device: str
    program: str
    port: int
    frame: bytes
    steps: list[TraceStep]
    sent: list[tuple[int, bytes]]
    dropped: str
    """Reason for sending nothing; empty when a frame was sent."""

    @property
    def tables(self) -> list[TraceStep]:
        """The tables applied, in order."""
        return [step for step in self.steps if step.kind == "table"]

    @property
    def states(self) -> list[str]:
        """The parser states entered, in order."""
        return [step.name for step in self.steps if step.kind == "state"]

    def table(self, name: str) -> TraceStep | None:
        """The last application of a table, by its name or the end of it; None: it was not applied."""
        return next((step for step in reversed(self.tables) if f".{step.name}".endswith("." + name)), None)

    def text(self) -> str:
        """The way in words, a line a step."""
        lines = [f"{self.device} ({self.program}): {len(self.frame)} bytes in at port {self.port}"]
        for step in self.steps:
            indent = "  " * (step.depth + 1)
            location = f"  ({step.location})" if step.location else ""
            lines.append(f"{indent}{step.headline}{location}")
            lines += [f"{indent}    {change}" for change in step.changes]
        for port, frame in self.sent:
            lines.append(f"  sent: {len(frame)} bytes out of port {port}")
        if self.dropped:
            lines.append(f"  dropped: {self.dropped}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "program": self.program,
            "port": self.port,
            "frame": self.frame.hex(),
            "steps": [step.to_json() for step in self.steps],
            "sent": [{"port": port, "frame": frame.hex()} for port, frame in self.sent],
            "dropped": self.dropped,
        }


def format_value(value: int, bits: int) -> str:
    """Format a value: 128 bits as IPv6 address, below 10 in decimal, others in hexadecimal."""
    if bits == 128:
        import ipaddress

        return str(ipaddress.IPv6Address(value))
    return str(value) if value < 10 else f"{value:#x}"


@dataclass(frozen=True, slots=True)
class _TraceField:
    name: str
    standard: bool
    offset: int
    size: int
    bits: int


@dataclass(frozen=True, slots=True)
class _Raw:
    event: TraceEvent
    name: str
    location: str
    data: bytes
    std: bytes
    phv: bytes


def take_trace(
    device: NativeDevice,
    program: Any,
    schema: Schema,
    port: int,
    frame: bytes,
    process: Callable[[int, bytes], list[tuple[int, bytes]]],
    stats: Callable[[], DeviceStats],
) -> PacketTrace:
    """Run `frame` through `device` as received on `port`; `process` and `stats` are the device's own.

    Raises TableError, ValueError.
    """
    build = getattr(program, "build_traced", None)
    if build is None:
        raise TableError("FAILED_PRECONDITION", f"{device.name}: {program.name} has no traced build")
    library: Path = build()
    reason_buffer = ctypes.create_string_buffer(512)
    lib = device.lib
    if lib.rt_trace_start(device.handle, str(library).encode(), reason_buffer, len(reason_buffer)):
        raise TableError("FAILED_PRECONDITION", f"{device.name}: {reason_buffer.value.decode(errors='replace')}")
    try:
        descriptor = lib.rt_device_program(device.handle).contents
        fields, parts = _trace_fields(descriptor), _TracedParts(descriptor, schema)
        counts_before = stats()
        sent = process(port, frame)
        counts_after = stats()
    finally:
        # Until the trace ends the device runs its traced build, so it ends also when `process` raises.
        count, block = native.take_block(lib.rt_trace_end, device.handle)
    check(min(count, 0), device.name, "trace", "")
    steps = _steps(_records(block), fields, parts)
    return PacketTrace(
        device.name,
        program.name,
        port,
        bytes(frame),
        steps,
        sent,
        "" if sent else _drop_reason(counts_before, counts_after, steps),
    )


class _TracedParts:
    """Tables and actions of the program, also those that the control plane does not see.

    Such are `@hidden` and generated ones. Made before the trace ends, for the descriptor goes with the traced build.
    """

    def __init__(self, descriptor: native.ProgramDesc, schema: Schema) -> None:
        tables = {table.index: table.fields for table in schema.tables.values()}
        self._key_fields = [
            tables[index] if index in tables else _match_fields(desc.fields, desc.n_fields)
            for index, desc in enumerate(descriptor.tables[: descriptor.n_tables])
        ]
        self._actions = []
        for index, desc in enumerate(descriptor.actions[: descriptor.n_actions]):
            action_schema = schema.action_by_index.get(index)
            own_name, own_params = desc.name.decode(), _match_fields(desc.params, desc.n_params)
            self._actions.append(
                (action_schema.name, action_schema.params) if action_schema else (own_name, own_params)
            )

    def key_fields(self, index: int) -> tuple[MatchField, ...]:
        """Fields of a table's key."""
        return self._key_fields[index]

    def action(self, index: int) -> tuple[str, tuple[MatchField, ...]]:
        """Name and parameters of an action."""
        return self._actions[index]


def _match_fields(fields: Any, count: int) -> tuple[MatchField, ...]:
    return tuple(MatchField(fields[i].id, fields[i].name.decode(), fields[i].bits) for i in range(count))


def _trace_fields(descriptor: native.ProgramDesc) -> list[_TraceField]:
    out, index = [], 0
    while descriptor.trace and descriptor.trace[index].name:
        entry = descriptor.trace[index]
        out.append(_TraceField(entry.name.decode(), bool(entry.standard), entry.offset, entry.bytes, entry.bits))
        index += 1
    return out


def _records(block: bytes) -> list[_Raw]:
    out, offset = [], 0
    while offset < len(block):
        event, *sizes = _HEAD.unpack_from(block, offset)
        offset += _HEAD.size
        parts = []
        for size in sizes:
            parts.append(block[offset : offset + size])
            offset += size
        out.append(
            _Raw(TraceEvent(event), parts[0].decode(errors="replace"), parts[1].decode(errors="replace"), *parts[2:])
        )
    return out


def _standard(fields: list[_TraceField], raw: _Raw, field: str) -> int:
    """A field of the standard metadata, whatever the program calls that."""
    trace_field = next(
        trace_field for trace_field in fields if trace_field.standard and trace_field.name.endswith("." + field)
    )
    return int.from_bytes(raw.std[trace_field.offset : trace_field.offset + trace_field.size], "little")


def _changes(fields: list[_TraceField], earlier: _Raw, later: _Raw) -> list[FieldChange]:
    if earlier.phv == later.phv and earlier.std == later.std:
        return []
    out = []
    for trace_field in fields:
        old_bytes, new_bytes = (
            (raw.std if trace_field.standard else raw.phv)[trace_field.offset : trace_field.offset + trace_field.size]
            for raw in (earlier, later)
        )
        if old_bytes != new_bytes:
            out.append(
                FieldChange(
                    trace_field.name,
                    int.from_bytes(old_bytes, "little"),
                    int.from_bytes(new_bytes, "little"),
                    trace_field.bits,
                )
            )
    return out


def _steps(records: list[_Raw], fields: list[_TraceField], parts: _TracedParts) -> list[TraceStep]:
    out: list[TraceStep] = []
    open_steps: list[TraceStep] = []
    for index, raw in enumerate(records):
        if raw.event is TraceEvent.END:
            if open_steps:
                open_steps.pop()
            step = open_steps[-1] if open_steps else None
        else:
            step = _step(raw, len(open_steps), parts)
            out.append(step)
            if raw.event is TraceEvent.START and raw.name == "egress":
                step.numbers = tuple(_standard(fields, raw, name) for name in ("egress_port", "priority"))
            if raw.event is TraceEvent.START and index:
                step.changes = _changes(fields, records[index - 1], raw)  # what the traffic manager filled in
            if raw.event in (TraceEvent.CONTROL, TraceEvent.TABLE, TraceEvent.ACTION):
                open_steps.append(step)
        following = records[index + 1] if index + 1 < len(records) else None
        if step is None or following is None or following.event is TraceEvent.START:
            continue
        changes = _changes(fields, raw, following)
        if changes and raw.event in _POINTS:
            step = TraceStep("statements", "", "", len(open_steps))
            out.append(step)
        step.changes += changes
    return out


_POINTS = (TraceEvent.END, TraceEvent.REGISTER_READ, TraceEvent.REGISTER_WRITE, TraceEvent.COUNT, TraceEvent.VALUE)
"""Events followed by statements of another step. (A note's are its own: mark_to_drop, truncate.)"""


def _step(raw: _Raw, depth: int, parts: _TracedParts) -> TraceStep:
    step = TraceStep(raw.event.name.lower(), raw.name, raw.location, depth)
    if raw.event is TraceEvent.TABLE:
        _fill_table(step, raw.data, parts)
    elif raw.event in (TraceEvent.EXTRACT, TraceEvent.PARSED):
        step.numbers = struct.unpack(f"={len(raw.data) // 4}I", raw.data)
    elif raw.event in (TraceEvent.REGISTER_READ, TraceEvent.REGISTER_WRITE):
        # an index, then a cell of up to 128 bits in the machine's order, or a longer one as p4wide.h has it
        (index,), cell = struct.unpack_from("=Q", raw.data), raw.data[8:]
        step.numbers = (index, int.from_bytes(cell, "little" if len(cell) == 16 else "big"))
    elif raw.data:
        n = struct.unpack(f"={len(raw.data) // 8}Q", raw.data)
        if raw.event is TraceEvent.VALUE:
            n = (n[0] | n[1] << 64,)
        step.numbers = n
    return step


def _fill_table(step: TraceStep, data: bytes, parts: _TracedParts) -> None:
    index, hit, action, member, group, key_bytes, params_bytes, priority = _TABLE.unpack_from(data)
    fields = parts.key_fields(index)
    offset = _TABLE.size
    step.hit, step.member, step.group, step.priority = bool(hit), member, group, priority
    step.key = _values(fields, data[offset : offset + key_bytes])
    step.key_bits = {match_field.name: match_field.bits for match_field in fields}
    if action != native.NO_INDEX:
        step.action, params = parts.action(action)
        step.params = _values(params, data[offset + key_bytes : offset + key_bytes + params_bytes])


def _values(fields: tuple[MatchField, ...], data: bytes) -> dict[str, int]:
    out, offset = {}, 0
    for match_field in fields:
        out[match_field.name] = int.from_bytes(data[offset : offset + match_field.size], "big")
        offset += match_field.size
    return out


def _drop_reason(counts_before: Any, counts_after: Any, steps: list[TraceStep]) -> str:
    """Return why no frame was sent, by the count that grew and the step that set the drop port."""
    last = next((step for step in reversed(steps) if any(_drops(change) for change in step.changes)), None)
    step_text = ""
    if last is not None:
        location = f", {last.location}" if last.location else ""
        step_text = (
            f" (table {last.name}: {last.action}{location})"
            if last.kind == "table"
            else f" ({last.headline}{location})"
        )
    if counts_after.dropped_assert > counts_before.dropped_assert:
        return f"an assert or assume was false, {(counts_after.false_assert or b'').decode()}"
    if counts_after.dropped_ingress > counts_before.dropped_ingress:
        return f"egress_spec was the drop port after ingress{step_text}"
    if counts_after.dropped_egress > counts_before.dropped_egress:
        return f"egress_spec was the drop port after egress{step_text}"
    if counts_after.dropped_size > counts_before.dropped_size:
        return "longer than a frame may be"
    return "nothing was sent"


def _drops(change: FieldChange) -> bool:
    return change.name.endswith(".egress_spec") and change.new_value == DROP_PORT


__all__ = ["FieldChange", "PacketTrace", "TraceStep", "take_trace"]
