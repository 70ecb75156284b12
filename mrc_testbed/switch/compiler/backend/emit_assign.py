"""Assignments -> C: scalars, slices, and structs, headers, stacks and unions as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mrc_testbed.switch.compiler.backend.code import bits_of, c_type, literal, work_type
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_expr import ExpressionEmitter
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, acts, parts_of
from mrc_testbed.switch.compiler.backend.emit_headers import forget_bytes, invalidate_siblings, set_valid
from mrc_testbed.switch.compiler.backend.emit_lvalues import LvalueEmitter
from mrc_testbed.switch.compiler.backend.emit_packet_in import PacketInEmitter
from mrc_testbed.switch.compiler.backend.emit_wide import WideEmitter
from mrc_testbed.switch.compiler.errors import raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.types import Record, Stack, Varbit, WideBits, form, is_scalar


@dataclass(eq=False, repr=False)
class AssignmentEmitter:
    """Writes assignments."""

    context: EmitContext
    lvalues: LvalueEmitter
    expressions: ExpressionEmitter
    wide_numbers: WideEmitter
    packet_in: PacketInEmitter

    def statement(self, s: tree.Assign, frame: FunctionFrame) -> None:
        if isinstance(s.value, tree.Binary) and s.value.lhs is s.target and acts(s.target):
            target = self.lvalues.freeze_indexes(s.target, frame)  # x[f()] += e: f is called once
            value = tree.Binary(s.value.location, target, s.value.op, s.value.rhs)
            value.type = s.value.type
            s = tree.Assign(s.location, target, value)
        if isinstance(s.target, tree.Slice):
            self._assign_slice(s.target, s.value, frame)
            return
        lvalue = self.lvalues.lvalue(s.target, frame)
        self.context.usage.note(lvalue, True)
        self.assign(lvalue, s.value, frame)

    def assign(self, lvalue: Lvalue, e: tree.Expr, frame: FunctionFrame) -> None:
        """place = e, for scalars, structs and headers."""
        record = form(lvalue.type)
        if not isinstance(record, (Record, Stack, Varbit, WideBits)):
            frame.code.add(f"{lvalue.c} = {self.expressions.condition(e, frame)};")
            return
        if isinstance(record, WideBits) and self.wide_numbers.assign(lvalue, record, e, frame):
            return
        if isinstance(e, (tree.ListExpr, tree.RecordExpr)) and isinstance(record, (Record, Stack)):
            self._assign_list(lvalue, record, e, frame)
            return
        if isinstance(e, tree.PathExpression) and isinstance(e.decl, tree.Const):
            self.assign(lvalue, e.decl.value, frame)
            return
        if isinstance(e, tree.Cast):
            self.assign(lvalue, e.operand, frame)
            return
        if isinstance(e, tree.Default):
            self.context.usage.note_whole(lvalue, True)
            frame.code.add(f"{lvalue.c} = ({self.context.types.declare_type(lvalue.type, e.location)}){{0}};")
            forget_bytes(lvalue, frame)
            return
        if isinstance(e, tree.Invalid):
            for part in parts_of(lvalue) if getattr(record, "kind", "") == "header_union" else [lvalue]:
                self.context.usage.note_valid(part)
                set_valid(part, False, frame)
            return
        if isinstance(e, tree.Ternary):
            frame.code.open(f"if ({self.expressions.condition(e.condition, frame)}) {{")
            self.assign(lvalue, e.if_true, frame)
            frame.code.close("} else {")
            frame.code.depth += 1
            self.assign(lvalue, e.if_false, frame)
            frame.code.close()
            return
        if isinstance(e, tree.Call):
            self._assign_call(lvalue, e, frame)
            return
        if not isinstance(e, (tree.PathExpression, tree.Member, tree.Index)):
            raise_unsupported(e.location, f"this as a value of {record}")
        # A struct or header elsewhere: one C assignment copies it, but its bytes in the frame stay with the source.
        source = self.lvalues.lvalue(e, frame)
        self.context.usage.note(source, False)
        self.context.usage.note(lvalue, True)
        frame.code.add(f"{lvalue.c} = {source.c};")
        forget_bytes(lvalue, frame)
        if lvalue.siblings:
            frame.code.open(f"if ({lvalue.c}.is_valid) {{")
            invalidate_siblings(lvalue, frame)
            frame.code.close()

    def _assign_call(self, lvalue: Lvalue, e: tree.Call, frame: FunctionFrame) -> None:
        """place = a call that gives a struct or header."""
        if e.callee.kind != "user":
            self.packet_in.record(lvalue, e, frame)
            return
        self.context.usage.note_whole(lvalue, True)
        frame.code.add(f"{lvalue.c} = {self.context.calls.value(e, frame)};")
        forget_bytes(lvalue, frame)

    def _assign_list(self, lvalue: Lvalue, record: Record | Stack, e: Any, frame: FunctionFrame) -> None:
        """Field by field; a value that reads what is being written is taken first, as the language demands."""
        self.context.usage.note_whole(lvalue, True)
        frame.code.add(*self._stage_list(lvalue, record, e, frame))
        if isinstance(record, Record) and record.kind == "header":
            set_valid(lvalue, True, frame)
            frame.code.add(f"{lvalue.c}.at = P4_AT_NONE;")
            invalidate_siblings(lvalue, frame)

    def _stage_list(self, lvalue: Lvalue, record: Record | Stack, e: Any, frame: FunctionFrame) -> list[str]:
        """Takes the values of a list, in its order; gives the lines that put them in place, for when all are."""
        parts = parts_of(lvalue)
        if isinstance(e, tree.RecordExpr) and isinstance(record, Record):
            lvalues_by_name = dict(zip(record.fields, parts, strict=True))
            pairs = [(lvalues_by_name[name], item) for name, item in e.items]
        else:
            pairs = list(zip(parts, e.items, strict=True))
        stores = []
        for target, item in pairs:
            p4_type, inner = target.type, form(target.type)
            if is_scalar(p4_type):
                temporary = frame.name("t")
                c_type = self.context.types.declare_type(p4_type, e.location)
                frame.code.add(f"{c_type} {temporary} = {self.expressions.condition(item, frame)};")
                stores.append(f"{target.c} = {temporary};")
            elif isinstance(item, (tree.ListExpr, tree.RecordExpr)) and getattr(inner, "kind", "") == "struct":
                stores += self._stage_list(target, inner, item, frame)
            else:
                copy = self.context.variable("taken", p4_type, e.location)
                self.assign(copy, item, frame)
                stores.append(f"{target.c} = {copy.c};")
        return stores

    def _assign_slice(self, target: tree.Slice, e: tree.Expr, frame: FunctionFrame) -> None:
        """x[h:l] = e: the other bits of x stay."""
        frozen_target = self.lvalues.freeze_indexes(target, frame)
        assert isinstance(frozen_target, tree.Slice)
        text = self.expressions.value(e, frame) if is_scalar(target.type) else self.lvalues.temporary_lvalue(e, frame).c
        self._store_slice(frozen_target, text, frame)

    def _store_slice(self, target: tree.Slice, text: str, frame: FunctionFrame) -> None:
        lvalue = self.lvalues.lvalue(target.base, frame)
        self.context.usage.note(lvalue, False)
        self.context.usage.note(lvalue, True)
        base_type = form(target.base.type)
        if isinstance(base_type, WideBits):
            self.wide_numbers.store_slice(lvalue, base_type, target, text, frame)
            return
        slice_bits = bits_of(target.type, target.location)
        bits = bits_of(target.base.type, target.location)
        if target.width is not None:
            put = f"p4_put_slice({lvalue.c}, {bits}, {self.expressions.value(target.low, frame)}, {slice_bits}, {text})"
            frame.code.add(f"{lvalue.c} = ({c_type(bits)}){put};")
            return
        low = target.low.const
        keep = literal(~(((1 << slice_bits) - 1) << low) & (1 << bits) - 1)
        frame.code.add(f"{lvalue.c} = ({c_type(bits)})(({lvalue.c} & {keep}) | ({work_type(bits)}){text} << {low});")

    def store(self, target: tree.Expr, text: str, frame: FunctionFrame) -> None:
        """Assign a C value of the right type to something writable."""
        if isinstance(target, tree.Slice):
            self._store_slice(target, text, frame)
            return
        lvalue = self.lvalues.lvalue(target, frame)
        self.context.usage.note(lvalue, True)
        frame.code.add(f"{lvalue.c} = {text};")
        if not is_scalar(lvalue.type):
            forget_bytes(lvalue, frame)

    def target_c(self, target: tree.Expr, frame: FunctionFrame) -> str:
        if isinstance(target, tree.Slice):
            return self.target_c(target.base, frame)
        return self.lvalues.lvalue(target, frame).c
