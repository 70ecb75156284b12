"""Run an STF script against a device in memory, and report unexpected output readably.

    report = run_script(compile_program(Path("x.p4")), read_script(Path("x.stf")))
    assert report.passed, report.text()

Packets are compared as p4c's runner does it: per port, in order, at the end; a packet longer than what is expected
passes unless the expectation ends in `$`; a packet that was not expected is a failure on the ports that the script
names in `packet` and `expect`. The others lead nowhere: p4c's runner gives the switch no more ports than these.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from mrc_testbed.switch.device.device import LoadableProgram, P4Device
from mrc_testbed.switch.device.entities import (
    ActionCall,
    CloneSession,
    Group,
    GroupMember,
    GroupRef,
    MemberRef,
    MeterConfig,
    MulticastGroup,
    ProfileMember,
    Replica,
    TableEntry,
    TableError,
    ValueSetMembers,
)
from mrc_testbed.switch.device.p4data import flatten, p4_data
from mrc_testbed.switch.tools.stf import Command, StfCall, StfError
from mrc_testbed.switch.tools.stf_resolve import action_call, field_match, find, key_field, number

_OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_DUE_MAX = 1_000_000
"""Events of the traffic manager that a wait sees before it gives up."""
_ROW = 16
"""Bytes in a row of a difference."""


@dataclass
class StfReport:
    """Failures of a script in its order; without any it passed."""

    failures: list[str] = field(default_factory=list)
    packets_in: int = 0
    packets_out: int = 0
    checks: int = 0

    @property
    def passed(self) -> bool:
        return not self.failures

    def text(self) -> str:
        return "\n".join(self.failures)


def run_script(program: LoadableProgram, script: list[Command], *, seed: int = 0) -> StfReport:
    """Run a script on a fresh device.

    Raises StfError for a script that cannot be run, not for one that fails.
    """
    device = P4Device(1, program.name, seed=seed)
    try:
        device.load(program)
        run = StfRun(device, program)
        for command in script:
            run.command(command)
        return run.finish()
    finally:
        device.close()


class StfRun:
    """A script being run on a device; `finish` gives the report."""

    def __init__(self, device: P4Device, program: LoadableProgram) -> None:
        self.device = device
        self.info = program.p4info
        self.report = StfReport()
        self.out: dict[int, list[bytes]] = {}
        """Frames sent, by port."""
        self.expectations: dict[int, list[Command]] = {}
        self.handles: dict[str, TableEntry] = {}
        self.digests: deque[Any] = deque()
        self.now_ns = 0
        self.nodes: list[tuple[Replica, ...]] = []
        self.named_ports: set[int] = set()
        """Ports of `packet` and `expect`."""

    def command(self, command: Command) -> None:
        try:
            self.COMMANDS[command.word](self, command, **command.fields)
        except (TableError, ValueError) as error:
            raise StfError(command.location, str(error)) from None

    def fail(self, command: Command, message: str) -> None:
        self.report.failures.append(f"{command.location}: {message}")

    # ---- packets

    def _collect(self, packets: list[tuple[int, int, bytes]]) -> None:
        for _, port, frame in packets:
            self.report.packets_out += 1
            self.out.setdefault(port, []).append(frame)

    def _do_packet(self, _command: Command, port: int, data: bytes) -> None:
        self.packet(port, data)

    def packet(self, port: int, data: bytes) -> None:
        """A packet comes in now."""
        self.report.packets_in += 1
        self.named_ports.add(port)
        self.device.inject(port, data, self.now_ns)
        self._collect(self.device.advance(self.now_ns))

    def _do_expect(self, command: Command, port: int, **_fields: Any) -> None:
        self.report.checks += 1
        self.named_ports.add(port)
        self.expectations.setdefault(port, []).append(command)

    def _do_no_packet(self, command: Command) -> None:
        """Check that no frame beyond the expected ones was sent so far."""
        self.report.checks += 1
        for port, frames in sorted(self.out.items()):
            expectations = self.expectations.get(port, [])
            if any(expectation.fields["any"] for expectation in expectations):
                continue
            for frame in frames[len(expectations) :]:
                self.fail(command, f"no packet expected, but port {port} sent\n{rows(frame)}")

    def _do_wait(self, command: Command, seconds: float | None) -> None:
        self.wait(seconds, command.location)

    def wait(self, seconds: float | None = None, location: str = "wait") -> None:
        """Let time pass; without a time, until nothing waits in queues and on cables any more."""
        if seconds is not None:
            self.now_ns += round(seconds * 1e9)
            self._collect(self.device.advance(self.now_ns))
            return
        for _ in range(_DUE_MAX):
            due = self.device.next_ns
            if due is None:
                return
            self.now_ns = max(self.now_ns, due)
            self._collect(self.device.advance(self.now_ns))
        raise StfError(location, f"still not quiet after {_DUE_MAX} departures: is a packet going round?")

    def finish(self) -> StfReport:
        """Waits until nothing waits, then compares what came out."""
        self.wait(location="the end")
        stats = self.device.stats()
        if stats.dropped_assert:
            assert_location = (stats.false_assert or b"").decode()
            self.report.failures.append(
                f"{assert_location}: assert or assume was false ({stats.dropped_assert} packets)"
            )
        for port in sorted(self.named_ports):
            expectations, frames = self.expectations.get(port, []), self.out.get(port, [])
            if any(expectation.fields["any"] for expectation in expectations):
                continue
            for index, command in enumerate(expectations):
                if index >= len(frames):
                    self.fail(
                        command, f"port {port} sent {len(frames)} of the {len(expectations)} packets expected of it"
                    )
                    break
                mismatch = difference(command.fields["digits"], command.fields["exact"], frames[index])
                if mismatch:
                    self.fail(command, f"packet {index + 1} of port {port} {mismatch}")
            for position, frame in enumerate(frames[len(expectations) :], len(expectations) + 1):
                text = f"packet {position} of port {port} was not expected ({len(frame)} bytes)\n{rows(frame)}"
                self.report.failures.append(text)
        return self.report

    # ---- entries

    def _do_add(
        self,
        command: Command,
        table: str,
        priority: int | None,
        match: tuple[tuple[str, str], ...],
        action: StfCall,
        handle: str | None,
    ) -> None:
        entry = self.entry(command.location, table, match, action, (priority or 0) + 1)
        self.device.insert(entry)
        if handle:
            self.handles[handle] = entry

    def entry(
        self, location: str, table: str, match: Iterable[tuple[str, str]], action: StfCall, priority: int = 1
    ) -> TableEntry:
        """Return an entry by its names. Raises StfError.

        Exact keys left out are 0, others match anything; `priority` is P4Runtime's, for tables that have one.
        """
        table_object = find(location, self.info.tables, table, "table")
        key_texts = {key_field(location, table_object, name).id: text for name, text in match}
        fields = []
        for match_field in table_object.match_fields:
            text = key_texts.get(match_field.id, "0" if match_field.match_type == match_field.EXACT else None)
            field_condition = field_match(location, match_field, text) if text is not None else None
            if field_condition is not None:
                fields.append(field_condition)
        ordered = any(
            match_field.match_type in (match_field.TERNARY, match_field.RANGE, match_field.OPTIONAL)
            for match_field in table_object.match_fields
        )
        return TableEntry(
            table_object.preamble.id,
            tuple(fields),
            self._action(location, table_object, action),
            priority if ordered else 0,
        )

    def _action(self, location: str, table: Any, call: StfCall) -> ActionCall | MemberRef | GroupRef:
        if table.implementation_id and call.name in ("member", "group") and len(call.args) <= 1:
            text = call.args[0][1] if call.args else "1"
            return (MemberRef if call.name == "member" else GroupRef)(number(location, text, 32, call.name))
        return action_call(location, self.info, [action_ref.id for action_ref in table.action_refs], call)

    def _do_setdefault(self, command: Command, table: str, action: StfCall) -> None:
        object_ = find(command.location, self.info.tables, table, "table")
        run = action_call(command.location, self.info, [action_ref.id for action_ref in object_.action_refs], action)
        self.device.modify(TableEntry(object_.preamble.id, (), run, is_default=True))

    def _do_remove(self, _command: Command) -> None:
        """`remove all`: every entry of every table that may be changed."""
        const = {table.preamble.id for table in self.info.tables if table.is_const_table}
        for entry in self.device.read():
            if entry.table_id not in const:
                self.device.delete(entry)

    def _do_member(self, command: Command, profile: str, id: int, action: StfCall) -> None:
        object_ = find(command.location, self.info.action_profiles, profile, "action profile")
        ids = {ref.id for t in self.info.tables if t.preamble.id in object_.table_ids for ref in t.action_refs}
        self.device.insert_member(
            ProfileMember(object_.preamble.id, id, action_call(command.location, self.info, ids, action))
        )

    def _do_group(self, command: Command, profile: str, id: int, members: list[tuple[int, int, int | None]]) -> None:
        object_ = find(command.location, self.info.action_profiles, profile, "action profile")
        group = Group(object_.preamble.id, id, tuple(GroupMember(*member) for member in members))
        exists = any(True for _ in self.device.read_groups(object_.preamble.id, id))
        (self.device.modify_group if exists else self.device.insert_group)(group)

    def _do_port(self, _command: Command, port: int, is_up: bool) -> None:
        self.device.set_port_up(port, is_up)

    def _do_meter(self, command: Command, name: str, index: int, config: list[int]) -> None:
        object_ = find(command.location, self.info.meters, name, "meter")
        self.device.write_meter(object_.preamble.id, index, MeterConfig(*config))

    def _do_meter_entry(self, command: Command, handle: str, config: list[int]) -> None:
        self.device.write_direct_meter(self._handle(command, handle), MeterConfig(*config))

    def _handle(self, command: Command, handle: str) -> TableEntry:
        if handle not in self.handles:
            has = ", ".join(self.handles) or "none"
            raise StfError(command.location, f"no handle {handle}: write add ... = {handle} before (has: {has})")
        return self.handles[handle]

    def _do_value_set(self, command: Command, name: str, members: list[list[str]]) -> None:
        value_set = find(command.location, self.info.value_sets, name, "value_set")
        out = []
        for member in members:
            if len(member) != len(value_set.match):
                raise StfError(
                    command.location, f"{name}: {len(member)} values for the {len(value_set.match)} of a member"
                )
            pairs = zip(value_set.match, member, strict=True)
            fields = [field_match(command.location, field, text) for field, text in pairs]
            out.append(tuple(condition for condition in fields if condition is not None))
        self.device.write_value_set(ValueSetMembers(value_set.preamble.id, tuple(out)))

    # ---- multicast groups and clone sessions

    def _do_mirroring_add(self, _command: Command, session: int, port: int) -> None:
        self.device.insert_replication(CloneSession(session, (Replica(port),)))

    def _do_mirroring_add_mc(self, _command: Command, session: int, group: int) -> None:
        self.device.insert_replication(CloneSession(session, group_id=group))

    def _do_mc_mgrp_create(self, _command: Command, group: int) -> None:
        self.device.insert_replication(MulticastGroup(group))

    def _do_mc_node_create(self, _command: Command, rid: int, ports: list[int]) -> None:
        self.nodes.append(tuple(Replica(port, rid) for port in ports))

    def _do_mc_node_associate(self, command: Command, group: int, node: int) -> None:
        if node >= len(self.nodes):
            raise StfError(command.location, f"no node {node} (mc_node_create made {len(self.nodes)}, numbered from 0)")
        old_group = next(
            (multicast_group for multicast_group in self.device.read_multicast() if multicast_group.group_id == group),
            MulticastGroup(group),
        )
        self.device.modify_replication(MulticastGroup(group, old_group.replicas + self.nodes[node]))

    # ---- the traffic manager

    def _do_rate(self, _command: Command, port: int, priority: int | None, bps: int = 0, pps: int = 0) -> None:
        now = self.device.traffic.get(port)
        if priority is None:
            self.device.traffic.set(port, replace(now, rate_bps=bps, rate_pps=pps))
        else:
            self.device.traffic.set(port, now.with_queue(priority, rate_bps=bps, rate_pps=pps))

    def _do_depth(self, _command: Command, port: int, priority: int, packets: int) -> None:
        now = self.device.traffic.get(port)
        self.device.traffic.set(port, now.with_queue(priority, max_packets=packets))

    def _cable(self, port: int, direction: str, **changes: Any) -> None:
        now = self.device.traffic.get(port)
        impairment = replace(getattr(now, direction), **changes)
        self.device.traffic.set(port, replace(now, **{direction: impairment}))

    def _do_delay(self, _command: Command, port: int, direction: str, seconds: float) -> None:
        self._cable(port, direction, delay_us=round(seconds * 1e6))

    def _do_loss(self, _command: Command, port: int, direction: str, pattern: str) -> None:
        self._cable(port, direction, loss_pattern=pattern)

    def _do_check_queue(
        self, command: Command, port: int, priority: int, quantity: str, operator: str, value: int
    ) -> None:
        self.report.checks += 1
        queue = self.device.traffic.state(port).queues[priority]
        have = {"depth": queue.depth_packets, "sent": queue.transmit_pkts, "dropped": queue.dropped_pkts}[quantity]
        if not _OPERATORS[operator](have, value):
            self.fail(command, f"queue {priority} of port {port}: {quantity} is {have}, expected {operator} {value}")

    # ---- counters, registers, digests

    def _do_check_counter(
        self, command: Command, name: str, index: str | None, unit: str, operator: str, value: int | None
    ) -> None:
        self.report.checks += 1
        data = self._counter(command, name, index)
        unit = unit or ("bytes" if self._bytes_only(command, name) else "packets")
        have = data.bytes if unit == "bytes" else data.packets
        if value is not None and not _OPERATORS[operator](have, value):
            index_text = f"[{index}]" if index is not None else ""
            self.fail(command, f"counter {name}{index_text} has {have} {unit}, expected {operator} {value}")

    def _bytes_only(self, command: Command, name: str) -> bool:
        object_ = find(command.location, [*self.info.counters, *self.info.direct_counters], name, "counter")
        return bool(object_.spec.unit == object_.spec.BYTES)

    def _counter(self, command: Command, name: str, index: str | None) -> Any:
        location = command.location
        object_ = find(location, [*self.info.counters, *self.info.direct_counters], name, "counter")
        if object_ in list(self.info.counters):
            cell_index = number(location, index or "0", 32, "index")
            return self.device.read_counter(object_.preamble.id, cell_index)[0][1]
        handle = (index or "").lstrip("$")
        if handle not in self.handles:
            has = ", ".join(self.handles) or "none"
            raise StfError(
                location, f"{name} is a direct counter: give the entry's handle, add ... = handle (has: {has})"
            )
        return self.device.read_one(self.handles[handle]).counter

    def _do_check_register(
        self, command: Command, name: str, index: str | None, operator: str, value: int | None, **_unit: str
    ) -> None:
        self.report.checks += 1
        object_ = find(command.location, self.info.registers, name, "register")
        cell_index = number(command.location, index or "0", 32, "index")
        have = self.device.read_register(object_.preamble.id, cell_index)[0][1]
        if value is not None and not _OPERATORS[operator](have, value):
            self.fail(command, f"register {name}[{cell_index}] has {have} ({have:#x}), expected {operator} {value}")

    def _do_register_read(self, command: Command, name: str, index: int | None) -> None:
        """Check that the cell exists (p4c's runner prints it); `check_register` compares its value."""
        self.device.read_register(find(command.location, self.info.registers, name, "register").preamble.id, index)

    def _do_register_reset(self, command: Command, name: str) -> None:
        object_ = find(command.location, self.info.registers, name, "register")
        self.device.write_register(object_.preamble.id, None, 0)

    def _do_register_write(self, command: Command, name: str, index: int, value: int) -> None:
        object_ = find(command.location, self.info.registers, name, "register")
        self.device.write_register(object_.preamble.id, index, value)

    def _do_expect_digest(self, command: Command, name: str, fields: tuple[tuple[str, str], ...]) -> None:
        """The oldest digest not looked at yet is this one, with these values."""
        self.report.checks += 1
        digest_object = find(command.location, self.info.digests, name, "digest")
        self.digests.extend(self.device.digests())
        if not self.digests:
            self.fail(command, f"no digest {name} was sent")
            return
        sent = self.digests.popleft()
        if sent.digest_id != digest_object.preamble.id:
            sent_name = next(
                digest.preamble.name for digest in self.info.digests if digest.preamble.id == sent.digest_id
            )
            self.fail(command, f"digest {sent_name} was sent where {name} was expected")
            return
        have = flatten(
            digest_object.type_spec,
            self.info,
            p4_data(digest_object.type_spec, self.info, sent.data, self.device.schema.type_bits),
        )
        for key, text in fields:
            if key not in have:
                raise StfError(command.location, f"digest {name} has no field {key} (has: {', '.join(have)})")
            if number(command.location, text, 2048, key) != have[key]:
                self.fail(command, f"digest {name}: {key} is {have[key]:#x}, expected {text}")

    COMMANDS: ClassVar[Mapping[str, Callable[..., None]]] = {
        "packet": _do_packet,
        "expect": _do_expect,
        "no_packet": _do_no_packet,
        "wait": _do_wait,
        "advance": _do_wait,
        "add": _do_add,
        "setdefault": _do_setdefault,
        "remove": _do_remove,
        "member": _do_member,
        "group": _do_group,
        "port": _do_port,
        "meter": _do_meter,
        "meter_entry": _do_meter_entry,
        "value_set": _do_value_set,
        "mirroring_add": _do_mirroring_add,
        "mirroring_add_mc": _do_mirroring_add_mc,
        "mc_mgrp_create": _do_mc_mgrp_create,
        "mc_node_create": _do_mc_node_create,
        "mc_node_associate": _do_mc_node_associate,
        "rate": _do_rate,
        "depth": _do_depth,
        "delay": _do_delay,
        "loss": _do_loss,
        "check_queue": _do_check_queue,
        "check_counter": _do_check_counter,
        "check_register": _do_check_register,
        "register_read": _do_register_read,
        "register_reset": _do_register_reset,
        "register_write": _do_register_write,
        "expect_digest": _do_expect_digest,
    }
    """Handlers by the word of a Command (stf.py)."""


# ---- differences


def difference(digits: str, exact: bool, frame: bytes) -> str:
    """Return how a packet differs from the expected one, in several lines; empty: equal."""
    have = frame.hex()
    differing = [offset for offset, digit in enumerate(digits) if digit not in ("*", have[offset : offset + 1])]
    if not differing and not (exact and len(have) != len(digits)):
        return ""
    if differing:
        first = differing[0]
        problem = f"differs from byte {first // 2} on" if first < len(have) else "is too short"
    else:
        problem = "is too long" if len(have) > len(digits) else "is too short"
    lengths = f"{len(have) // 2} bytes, expected {len(digits) // 2}{'' if exact else ' or more'}"
    lines = [f"{problem} ({lengths})"]
    end = max(len(digits), len(have) if exact else min(len(have), len(digits)))
    for offset in range(0, end, 2 * _ROW):
        row = range(offset, min(offset + 2 * _ROW, end))
        marks = "".join("^" if i in differing or (exact and i >= min(len(digits), len(have))) else " " for i in row)
        if "^" not in marks and end > 8 * _ROW:
            continue
        lines.append(f"  {offset // 2:04x} expected  {_pairs(digits[offset : offset + 2 * _ROW])}")
        lines.append(f"       received  {_pairs(have[offset : offset + 2 * _ROW])}")
        if "^" in marks:
            lines.append(f"                 {_pairs(marks)}".rstrip())
    return "\n".join(lines)


def _pairs(text: str) -> str:
    return " ".join(text[i : i + 2] for i in range(0, len(text), 2))


def rows(frame: bytes) -> str:
    """A frame in hexadecimal, 16 bytes a line."""
    return "\n".join(
        f"  {offset:04x} {_pairs(frame[offset : offset + _ROW].hex())}" for offset in range(0, len(frame), _ROW)
    )
