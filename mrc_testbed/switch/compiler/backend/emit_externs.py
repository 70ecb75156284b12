"""Calls of v1model's externs -> C.

log_msg shows in traces only: a switch that writes a log per packet helps nobody here. A false assert or assume, at
which the process of BMv2 ends, drops the packet and is counted. Externs that are missing are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from mrc_testbed.switch.compiler.backend.code import (
    bits_of,
    c_comment,
    c_name,
    c_string,
    c_type,
    location_string,
    mask_text,
    work_type,
)
from mrc_testbed.switch.compiler.backend.emit_assign import AssignmentEmitter
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_expr import ExpressionEmitter
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame
from mrc_testbed.switch.compiler.backend.emit_lvalues import LvalueEmitter
from mrc_testbed.switch.compiler.backend.emit_packed import PackedEmitter
from mrc_testbed.switch.compiler.backend.emit_packet_in import PacketInEmitter
from mrc_testbed.switch.compiler.backend.emit_packet_out import PacketOutEmitter
from mrc_testbed.switch.compiler.errors import NOWHERE, fail, raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.elaborate import ExternInstance
from mrc_testbed.switch.compiler.sema.types import ERROR, Bits, Type, WideBits, form, is_scalar, is_value, number, plain

_WITHOUT_C = {"log_msg", "static_assert"}

IMPLIED_LIST = 1 << 16
"""Number of the first field list that a program gives in place, by clone3, resubmit and recirculate."""


@dataclass(eq=False, repr=False)
class ExternEmitter:
    """Writes calls of extern functions and methods, each by the method that its table names."""

    context: EmitContext
    lvalues: LvalueEmitter
    expressions: ExpressionEmitter
    packed: PackedEmitter
    assignments: AssignmentEmitter
    packet_in: PacketInEmitter
    packet_out: PacketOutEmitter
    implied_lists: list[list[str]] = field(default_factory=list, init=False)
    """Field lists given in place: C paths below the metadata."""

    def __post_init__(self) -> None:
        self.top_instances = {id(instance.decl): instance for instance in self.context.program.externs}
        """Instances at top level by id() of their declaration."""

    def extern(self, e: tree.Call, frame: FunctionFrame) -> ExternInstance:
        """The instance a method is called on."""
        instance = self.instance_of(e.callee.base, frame)
        if instance is None:
            raise_unsupported(e.location, f"{e.callee.name} here")
        return instance

    def instance_of(self, e: tree.Expr, frame: FunctionFrame) -> ExternInstance | None:
        """Return the instance of a name: made here, given to the constructor or apply(), or at top level."""
        if not isinstance(e, tree.PathExpression) or not isinstance(e.decl, (tree.Instance, tree.Param)):
            raise_unsupported(e.location, "something that is not an instance here")
        if id(e.decl) in frame.bindings:
            bound: ExternInstance | None = frame.bindings[id(e.decl)].instance
            return bound
        members = frame.control.members if frame.control else {}
        return members.get(id(e.decl)) or self.top_instances.get(id(e.decl))

    def method(self, e: tree.Call, frame: FunctionFrame) -> None:
        """A method of an extern object as a statement."""
        if str(e.callee.base.type) in ("packet_in", "packet_out"):
            if self.packet_out.sending and e.callee.name == "emit":
                self.packet_out.call(e, frame)
            else:
                self.packet_in.call(e, frame)
            return
        instance = self.extern(e, frame)
        write = self.METHODS.get((instance.kind, e.callee.name))
        if write is None:
            raise_unsupported(e.location, f"{instance.kind}.{e.callee.name}")
        write(self, e, instance, frame)

    def function(self, e: tree.Call, frame: FunctionFrame) -> None:
        """An extern function as a statement."""
        name = e.callee.name
        if name in _WITHOUT_C:
            if name == "log_msg":
                text = e.callee.args[0][1].const
                frame.code.add(f"P4_NOTE({c_string(f'log_msg {text}')}, {location_string(e.location)});")
            return
        write = self.FUNCTIONS.get(name)
        if write is None:
            raise_unsupported(e.location, name)
        write(self, e, [arg for _, arg in e.callee.args], frame)

    def value(self, e: tree.Call, frame: FunctionFrame) -> str:
        """Externs that give a value: lookahead and length, which only a parser has, and static_assert."""
        if frame.in_parser and e.callee.kind == "method":
            return self.packet_in.value(e, frame)
        if e.callee.name == "static_assert":
            return "1"
        raise_unsupported(e.location, f"{e.callee.name} here")

    # ---- objects

    def _counter_count(self, e: tree.Call, instance: ExternInstance, frame: FunctionFrame) -> None:
        index = self._index(e.callee.args[0][1], frame)
        frame.code.add(f"p4rt_count(dev, {instance.index} /* {c_comment(instance.name)} */, {index}, pkt);")
        frame.code.add(f"P4_COUNT({c_string(instance.name)}, {location_string(e.location)}, {index});")

    def _index(self, e: tree.Expr, frame: FunctionFrame) -> str:
        """C expression for the index of a cell: beyond 64 bits there are no cells."""
        if is_scalar(e.type) and bits_of(e.type, e.location) <= 64:
            return self.expressions.value(e, frame)
        if is_scalar(e.type):
            variable = frame.name("i")
            frame.code.add(f"u128 {variable} = {self.expressions.value(e, frame)};")
            return f"({variable} >> 64 ? UINT64_MAX : (uint64_t){variable})"
        return f"p4w_amount({self.lvalues.temporary_lvalue(e, frame).c}.b, {number(e.type).width})"

    def _direct_counter_count(self, e: tree.Call, instance: ExternInstance, frame: FunctionFrame) -> None:
        """Write nothing: as in v1model, the table counts on every apply()."""

    def _register_read(self, e: tree.Call, instance: ExternInstance, frame: FunctionFrame) -> None:
        target, index = (arg for _, arg in e.callee.args)
        if isinstance(form(instance.cell), WideBits):
            self._register_read_wide(e, instance, frame)
            return
        bits = bits_of(instance.cell, e.location)
        number = f"{instance.index} /* {c_comment(instance.name)} */"
        previous = self._previous_value(target, frame)
        index_c = self._index(index, frame)
        cell = f"p4rt_register_read(dev, {number}, {index_c}, {previous})"
        self.assignments.store(target, f"({c_type(bits)}){cell}", frame)
        event = f"P4RT_EV_REGISTER_READ, {c_string(instance.name)}, {location_string(e.location)}"
        frame.code.add(f"P4_REGISTER({event}, {index_c}, {self.assignments.target_c(target, frame)});")

    def _register_read_wide(self, e: tree.Call, instance: ExternInstance, frame: FunctionFrame) -> None:
        target, index = (arg for _, arg in e.callee.args)
        cell = self._wide_variable(instance.cell, target, frame)
        number_c, index_c = f"{instance.index} /* {c_comment(instance.name)} */", self._index(index, frame)
        frame.code.add(f"p4rt_register_read_wide(dev, {number_c}, {index_c}, {cell}.b);")
        event = f"P4RT_EV_REGISTER_READ, {c_string(instance.name)}, {location_string(e.location)}"
        frame.code.add(f"P4_REGISTER_WIDE({event}, {index_c}, {cell});")
        self._store_wide(target, cell, frame)

    def _wide_variable(self, p4_type: Type, target: tree.Expr, frame: FunctionFrame) -> str:
        """A new variable of a long number, with what `target` holds before the call."""
        if not isinstance(target, tree.DontCare):
            return self.lvalues.temporary_lvalue(target, frame).c
        variable = frame.name("t")
        frame.code.add(f"{self.context.types.declare_type(p4_type, target.location)} {variable} = {{0}};")
        return variable

    def _store_wide(self, target: tree.Expr, variable: str, frame: FunctionFrame) -> None:
        if not isinstance(target, tree.DontCare):
            self.assignments.store(target, variable, frame)

    def _previous_value(self, target: tree.Expr, frame: FunctionFrame) -> str:
        """Return the value of an `out` argument before the call: an index out of range leaves it unchanged."""
        return "0" if isinstance(target, tree.DontCare) else self.expressions.value(target, frame)

    def _register_write(self, e: tree.Call, instance: ExternInstance, frame: FunctionFrame) -> None:
        (_, index_arg), (_, value_arg) = e.callee.args
        index = self._index(index_arg, frame)
        number_c = f"{instance.index} /* {c_comment(instance.name)} */"
        event = f"P4RT_EV_REGISTER_WRITE, {c_string(instance.name)}, {location_string(e.location)}"
        if isinstance(form(instance.cell), WideBits):
            cell = self.lvalues.temporary_lvalue(value_arg, frame).c
            frame.code.add(f"p4rt_register_write_wide(dev, {number_c}, {index}, {cell}.b);")
            frame.code.add(f"P4_REGISTER_WIDE({event}, {index}, {cell});")
            return
        value = self.expressions.value(value_arg, frame)
        frame.code.add(f"p4rt_register_write(dev, {number_c}, {index}, {value});")
        frame.code.add(f"P4_REGISTER({event}, {index}, {value});")

    def _meter_execute_meter(self, e: tree.Call, instance: ExternInstance, frame: FunctionFrame) -> None:
        index, target = (arg for _, arg in e.callee.args)
        number = f"{instance.index} /* {c_comment(instance.name)} */"
        previous = self._previous_colour(target, frame)
        text = f"p4rt_meter(dev, {number}, {self._index(index, frame)}, {previous}, pkt)"
        self._colour(e, target, text, instance, frame)

    def _direct_meter_read(self, e: tree.Call, instance: ExternInstance, frame: FunctionFrame) -> None:
        if not instance.has_table:
            name = instance.decl.name
            fail(e.location, f"direct meter {name} belongs to no table: write `meters = {name};` in one")
        unit = int(instance.args["type"] == "bytes")
        text = f"p4rt_entry_meter(dev, v->metered_{instance.index}, {unit}, pkt)"
        self._colour(e, e.callee.args[0][1], text, instance, frame)

    def _colour(
        self, e: tree.Call, target: tree.Expr, text: str, instance: ExternInstance, frame: FunctionFrame
    ) -> None:
        if not is_value(target.type) or plain(target.type) == ERROR:
            raise_unsupported(e.location, f"the colour of a meter as a {target.type}", "numbers, enums and bool are")
        colour = frame.name("t")
        frame.code.add(f"uint64_t {colour} = {text};")
        frame.code.add(f"P4_VALUE({c_string(instance.name)}, {location_string(e.location)}, {colour});")
        # of an index out of range the colour is not known: what is longer than 64 bits then stays as it was
        if _is_long(target.type):
            frame.code.open(f"if ({colour} != UINT64_MAX) {{")
        self._store_number(e, target, colour, frame)
        if _is_long(target.type):
            frame.code.close()

    def _previous_colour(self, target: tree.Expr, frame: FunctionFrame) -> str:
        """Return what a meter with an index out of range gives: the value before, or a mark for a long one."""
        return "UINT64_MAX" if _is_long(target.type) else self._previous_value(target, frame)

    def _store_number(self, e: tree.Call, target: tree.Expr, text: str, frame: FunctionFrame) -> None:
        """Assign a C number to a writable number, enum or bool, cut to its width."""
        if isinstance(form(target.type), WideBits):
            variable, width = frame.name("t"), number(target.type).width
            frame.code.add(f"{self.context.types.declare_type(target.type, e.location)} {variable};")
            frame.code.add(f"p4w_set({variable}.b, {width}, {text}, 0);")
            self._store_wide(target, variable, frame)
            return
        bits = bits_of(target.type, e.location)
        if not isinstance(target, tree.DontCare):
            self.assignments.store(target, mask_text(f"({work_type(bits)}){text}", bits), frame)

    # ---- functions

    def _fn_mark_to_drop(self, e: tree.Call, _args: list[tree.Expr], frame: FunctionFrame) -> None:
        frame.code.add(f'P4_NOTE("mark_to_drop", {location_string(e.location)});')
        frame.code.add("pkt->std.egress_spec = P4RT_DROP_PORT;", "pkt->std.mcast_grp = 0;")

    def _fn_assert(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        """The packet goes on to the end of its pipeline, which drops it."""
        frame.code.open(f"if (!{self.expressions.value(args[0], frame)}) {{")
        frame.code.add(f"P4_NOTE({c_string(f'{e.callee.name} is false')}, {location_string(e.location)});")
        frame.code.add("pkt->asked |= P4RT_ASK_STOP;", f"dev->false_assert = {location_string(e.location)};")
        frame.code.close()

    def _fn_truncate(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        frame.code.add(f"pkt->truncate = {self.expressions.value(args[0], frame)};")
        frame.code.add(f'P4_NOTE_NUMBER("truncate", {location_string(e.location)}, pkt->truncate);')

    def _fn_random(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        target, low, high = args
        p4_type = e.callee.bound["T"]
        base = plain(p4_type)
        is_signed = isinstance(base, Bits) and base.signed
        result = frame.name("t")
        if isinstance(base, Bits) and not is_scalar(base):
            bounds = ", ".join(f"{self.lvalues.temporary_lvalue(bound, frame).c}.b" for bound in (low, high))
            frame.code.add(f"{self.context.types.declare_type(p4_type, e.location)} {result};")
            frame.code.add(f"p4w_random(dev, {result}.b, {bounds}, {base.width}, {int(is_signed)});")
            frame.code.add(f'P4_NOTE("random", {location_string(e.location)});')
            self._store_wide(target, result, frame)
            return
        bits = bits_of(p4_type, e.location)
        bounds = ", ".join(self.expressions.value(bound, frame) for bound in (low, high))
        if is_signed:
            text = f"p4_random_signed(dev, {bounds}, {bits})"
        else:
            text = f"p4{'rt' if bits <= 64 else ''}_random(dev, {bounds})"
        frame.code.add(f"{c_type(bits)} {result} = ({c_type(bits)}){text};")
        frame.code.add(f'P4_VALUE("random", {location_string(e.location)}, {result});')
        if not isinstance(target, tree.DontCare):
            self.assignments.store(target, result, frame)

    def _fn_clone(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        self._clone(e, args, "P4RT_NONE", frame)

    def _fn_clone_preserving_field_list(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        self._clone(e, args[:2], self._list_number(args[2]), frame)

    def _clone(self, e: tree.Call, args: list[tree.Expr], fields: str, frame: FunctionFrame) -> None:
        """The last call of a pipeline counts, as in simple_switch; the copy is made when the pipeline ends."""
        phase = {"I2E": "ingress", "E2E": "egress"}.get(str(args[0].const))
        if phase is None:
            raise_unsupported(e.location, "a CloneType not known at compile time")
        if frame.phase != phase:
            raise_unsupported(e.location, f"CloneType.{args[0].const} outside the {phase}")
        frame.code.add(f'P4_NOTE("clone", {location_string(e.location)});')
        frame.code.add(
            "pkt->asked |= P4RT_ASK_CLONE;", f"pkt->clone_session = {self.expressions.value(args[1], frame)};"
        )
        frame.code.add(f"pkt->clone_list = {fields};")

    def _fn_resubmit_preserving_field_list(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        self._repeat_packet(e, self._list_number(args[0]), "resubmit", "ingress", frame)

    def _fn_recirculate_preserving_field_list(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        self._repeat_packet(e, self._list_number(args[0]), "recirculate", "egress", frame)

    def _repeat_packet(self, e: tree.Call, fields: str, action: str, phase: str, frame: FunctionFrame) -> None:
        if frame.phase != phase:
            raise_unsupported(e.location, f"{action} outside the {phase}")
        frame.code.add(f'P4_NOTE("{action}", {location_string(e.location)});')
        frame.code.add("pkt->asked |= P4RT_ASK_AGAIN;", f"pkt->again_list = {fields};")

    def _fn_clone3(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        self._clone(e, args[:2], self._implied_list(args[2], frame), frame)

    def _fn_resubmit(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        self._repeat_packet(e, self._implied_list(args[0], frame), "resubmit", "ingress", frame)

    def _fn_recirculate(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        self._repeat_packet(e, self._implied_list(args[0], frame), "recirculate", "egress", frame)

    def _implied_list(self, data: tree.Expr, frame: FunctionFrame) -> str:
        """Number of a field list with the metadata that `data` names; headers and standard metadata make none."""
        pending, fields = [data], []
        while pending:
            e = pending.pop(0)
            if isinstance(e, tree.ListExpr):
                pending = [*e.items, *pending]
                continue
            if e.const is not None:
                continue
            path = self.lvalues.lvalue(e, frame).c
            if path == "p->meta":
                fields += [c_name(name) for name in e.type.fields]
            elif path.startswith("p->meta."):
                fields.append(path.removeprefix("p->meta."))
        if not fields:
            return "P4RT_NONE"
        if fields not in self.implied_lists:
            self.implied_lists.append(fields)
        return str(IMPLIED_LIST + self.implied_lists.index(fields))

    @staticmethod
    def _list_number(e: tree.Expr) -> str:
        if e.const is None:
            raise_unsupported(e.location, "a field list not known at compile time")
        return str(e.const)

    def _fn_digest(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        data_type = e.callee.bound["T"]
        index = next(i for i, digest in enumerate(self.context.program.digests) if digest.type == data_type)
        frame.code.open("{")
        buffer = frame.name("data")
        size = self.packed.pack_padded(args[1], data_type, frame, buffer)
        name = self.context.program.digests[index].name
        frame.code.add(f"p4rt_digest(dev, {index} /* {c_comment(name)} */, {buffer}, {size});")
        frame.code.add(f"P4_NOTE({c_string('digest ' + name)}, {location_string(e.location)});")
        frame.code.close()

    def _fn_hash(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        target, algorithm, base, data, limit = args
        frame.code.open("{")
        buffer = frame.name("data")
        size = self.packed.pack([data], frame, buffer, copied=True)
        text = self.hash_of(algorithm, buffer, size)
        bounds = f"{self.expressions.value(base, frame)}, {self.expressions.value(limit, frame)}"
        result = frame.name("t")
        frame.code.add(f"u128 {result} = p4_in_range({text}, {bounds});")
        self._store_number(e, target, result, frame)
        frame.code.add(f'P4_VALUE("hash", {location_string(e.location)}, {result});')
        frame.code.close()

    def hash_of(self, algorithm: tree.Expr, buffer: str, size: int | str) -> str:
        """C expression for the hash of `size` bytes."""
        if algorithm.const is None:
            raise_unsupported(algorithm.location, "a hash algorithm not known at compile time")
        calls = {
            "crc16": f"p4rt_crc16(dev, {buffer}, {size})",
            "crc32": f"p4rt_crc32(dev, {buffer}, {size})",
            # the parameters that the custom ones have in BMv2 until someone sets others
            "crc16_custom": f"p4rt_crc16(dev, {buffer}, {size})",
            "crc32_custom": f"p4rt_crc32(dev, {buffer}, {size})",
            "csum16": f"p4rt_csum16({buffer}, {size})",
            "xor16": f"p4rt_xor16({buffer}, {size})",
            "identity": f"p4_identity({buffer}, {size})",
            "random": "dev->ops->random(dev)",
        }
        if algorithm.const not in calls:
            raise_unsupported(algorithm.location, f"HashAlgorithm.{algorithm.const}")
        return calls[algorithm.const]

    def _checksum(
        self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame, payload: bool
    ) -> tuple[str, tree.Expr]:
        """Open `if (condition) {`, compute; returns the C value and the checksum field."""
        condition, data, field, algorithm = args
        frame.code.open(f"if ({self.expressions.value(condition, frame)}) {{")
        buffer = frame.name("data")
        size = self.packed.pack([data], frame, buffer)
        if payload:
            checked_bytes = frame.name("whole")
            frame.code.add(
                f"uint8_t {checked_bytes}[sizeof {buffer} + P4RT_MAX_FRAME];",
                f"memcpy({checked_bytes}, {buffer}, {size});",
                f"memcpy({checked_bytes} + {size}, pkt->data + p->parsed, pkt->len - p->parsed);",
            )
            buffer, size = checked_bytes, f"{size} + (pkt->len - p->parsed)"
        bits = bits_of(field.type, e.location)
        return mask_text(f"({work_type(bits)}){self.hash_of(algorithm, buffer, size)}", bits), field

    def _fn_update_checksum(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        self._update(e, args, frame, False)

    def _fn_update_checksum_with_payload(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        self._update(e, args, frame, True)

    def _update(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame, payload: bool) -> None:
        text, field = self._checksum(e, args, frame, payload)
        self.assignments.store(field, text, frame)
        frame.code.close()

    def _fn_verify_checksum(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        self._verify(e, args, frame, False)

    def _fn_verify_checksum_with_payload(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        self._verify(e, args, frame, True)

    def _verify(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame, payload: bool) -> None:
        text, field = self._checksum(e, args, frame, payload)
        valid = ""
        if isinstance(field, (tree.Member, tree.Index)):
            valid = self.lvalues.lvalue(field, frame).valid  # a checksum in a header that is not there is not wrong
        presence_test = f"{valid} && " if valid else ""
        frame.code.add(
            f"if ({presence_test}{self.expressions.value(field, frame)} != {text})", "    pkt->std.checksum_error = 1;"
        )
        frame.code.close()

    def _fn_verify(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        self.packet_in.verify(e, args, frame)

    METHODS: ClassVar[
        Mapping[tuple[str, str], Callable[[ExternEmitter, tree.Call, ExternInstance, FunctionFrame], None]]
    ] = {
        ("counter", "count"): _counter_count,
        ("direct_counter", "count"): _direct_counter_count,
        ("register", "read"): _register_read,
        ("register", "write"): _register_write,
        ("meter", "execute_meter"): _meter_execute_meter,
        ("direct_meter", "read"): _direct_meter_read,
    }
    """Methods by (kind of the extern object, name of its method)."""

    FUNCTIONS: ClassVar[Mapping[str, Callable[[ExternEmitter, tree.Call, list[tree.Expr], FunctionFrame], None]]] = {
        "mark_to_drop": _fn_mark_to_drop,
        "assert": _fn_assert,
        "assume": _fn_assert,
        "truncate": _fn_truncate,
        "random": _fn_random,
        "clone": _fn_clone,
        "clone_preserving_field_list": _fn_clone_preserving_field_list,
        "resubmit_preserving_field_list": _fn_resubmit_preserving_field_list,
        "recirculate_preserving_field_list": _fn_recirculate_preserving_field_list,
        "clone3": _fn_clone3,
        "resubmit": _fn_resubmit,
        "recirculate": _fn_recirculate,
        "digest": _fn_digest,
        "hash": _fn_hash,
        "update_checksum": _fn_update_checksum,
        "update_checksum_with_payload": _fn_update_checksum_with_payload,
        "verify_checksum": _fn_verify_checksum,
        "verify_checksum_with_payload": _fn_verify_checksum_with_payload,
        "verify": _fn_verify,
    }
    """Extern functions by name; functions without an entry are refused."""


def _is_long(p4_type: Type) -> bool:
    """Return whether a value has more bits than a colour comes in."""
    return not is_scalar(p4_type) or bits_of(p4_type, NOWHERE) > 64
