"""Assignments -> C: scalars, slices, and structs, headers, stacks and unions as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mrc_testbed.switch.compiler.backend.code import bits_of, c_type, literal, work_type
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_expr import ExpressionEmitter
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, acts, parts_of
from mrc_testbed.switch.compiler.backend.emit_headers import alone, forget_bytes, set_valid
from mrc_testbed.switch.compiler.backend.emit_packet_in import PacketInEmitter
from mrc_testbed.switch.compiler.backend.emit_places import PlaceEmitter
from mrc_testbed.switch.compiler.backend.emit_wide import WideEmitter
from mrc_testbed.switch.compiler.errors import unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.types import Record, Stack, Varbit, Wide, form, is_scalar


@dataclass(eq=False, repr=False)
class AssignmentEmitter:
    """Writes assignments."""

    context: EmitContext
    places: PlaceEmitter
    expressions: ExpressionEmitter
    wide: WideEmitter
    packet_in: PacketInEmitter

    def statement(self, s: tree.Assign, frame: FunctionFrame) -> None:
        if isinstance(s.value, tree.Binary) and s.value.left is s.target and acts(s.target):
            target = self.places.fixed(s.target, frame)  # x[f()] += e: f is called once
            value = tree.Binary(s.value.where, target, s.value.op, s.value.right)
            value.type = s.value.type
            s = tree.Assign(s.where, target, value)
        if isinstance(s.target, tree.Slice):
            self._assign_slice(s.target, s.value, frame)
            return
        place = self.places.place(s.target, frame)
        self.context.usage.note(place, True)
        self.assign(place, s.value, frame)

    def assign(self, place: Lvalue, e: tree.Expr, frame: FunctionFrame) -> None:
        """place = e, for scalars, structs and headers."""
        record = form(place.type)
        if not isinstance(record, (Record, Stack, Varbit, Wide)):
            frame.code.add(f"{place.c} = {self.expressions.condition(e, frame)};")
            return
        if isinstance(record, Wide) and self.wide.assign(place, record, e, frame):
            return
        if isinstance(e, (tree.ListExpr, tree.RecordExpr)) and isinstance(record, (Record, Stack)):
            self._assign_list(place, record, e, frame)
            return
        if isinstance(e, tree.PathExpression) and isinstance(e.decl, tree.Const):
            self.assign(place, e.decl.value, frame)
            return
        if isinstance(e, tree.Cast):
            self.assign(place, e.operand, frame)
            return
        if isinstance(e, tree.Default):
            self.context.usage.note_whole(place, True)
            frame.code.add(f"{place.c} = ({self.context.types.declare_type(place.type, e.where)}){{0}};")
            forget_bytes(place, frame)
            return
        if isinstance(e, tree.Invalid):
            for part in parts_of(place) if getattr(record, "kind", "") == "header_union" else [place]:
                self.context.usage.note_valid(part)
                set_valid(part, False, frame)
            return
        if isinstance(e, tree.Ternary):
            frame.code.open(f"if ({self.expressions.condition(e.condition, frame)}) {{")
            self.assign(place, e.then, frame)
            frame.code.close("} else {")
            frame.code.depth += 1
            self.assign(place, e.other, frame)
            frame.code.close()
            return
        if isinstance(e, tree.Call):
            self._assign_call(place, e, frame)
            return
        if not isinstance(e, (tree.PathExpression, tree.Member, tree.Index)):
            unsupported(e.where, f"this as a value of {record}")
        source = self.places.place(e, frame)
        self.context.usage.note(source, False)
        self.context.usage.note(place, True)
        frame.code.add(f"{place.c} = {source.c};")
        forget_bytes(place, frame)
        if place.siblings:
            frame.code.open(f"if ({place.c}.is_valid) {{")
            alone(place, frame)
            frame.code.close()

    def _assign_call(self, place: Lvalue, e: tree.Call, frame: FunctionFrame) -> None:
        """place = a call that gives a struct or header."""
        if e.callee.kind != "user":
            self.packet_in.record(place, e, frame)
            return
        self.context.usage.note_whole(place, True)
        frame.code.add(f"{place.c} = {self.context.calls.value(e, frame)};")
        forget_bytes(place, frame)

    def _assign_list(self, place: Lvalue, record: Record | Stack, e: Any, frame: FunctionFrame) -> None:
        """Field by field; a value that reads what is being written is taken first, as the language demands."""
        self.context.usage.note_whole(place, True)
        frame.code.add(*self._staged(place, record, e, frame))
        if isinstance(record, Record) and record.kind == "header":
            set_valid(place, True, frame)
            frame.code.add(f"{place.c}.at = P4_AT_NONE;")
            alone(place, frame)

    def _staged(self, place: Lvalue, record: Record | Stack, e: Any, frame: FunctionFrame) -> list[str]:
        """Takes the values of a list, in its order; gives the lines that put them in place, for when all are."""
        parts = parts_of(place)
        if isinstance(e, tree.RecordExpr) and isinstance(record, Record):
            named = dict(zip(record.fields, parts, strict=True))
            pairs = [(named[name], item) for name, item in e.items]
        else:
            pairs = list(zip(parts, e.items, strict=True))
        staged = []
        for target, item in pairs:
            of, inner = target.type, form(target.type)
            if is_scalar(of):
                temporary = frame.name("t")
                declared = self.context.types.declare_type(of, e.where)
                frame.code.add(f"{declared} {temporary} = {self.expressions.condition(item, frame)};")
                staged.append(f"{target.c} = {temporary};")
            elif isinstance(item, (tree.ListExpr, tree.RecordExpr)) and getattr(inner, "kind", "") == "struct":
                staged += self._staged(target, inner, item, frame)
            else:
                copy = self.context.variable("taken", of, e.where)
                self.assign(copy, item, frame)
                staged.append(f"{target.c} = {copy.c};")
        return staged

    def _assign_slice(self, target: tree.Slice, e: tree.Expr, frame: FunctionFrame) -> None:
        """x[h:l] = e: the other bits of x stay."""
        fixed = self.places.fixed(target, frame)
        assert isinstance(fixed, tree.Slice)
        text = self.expressions.value(e, frame) if is_scalar(target.type) else self.places.temporary_place(e, frame).c
        self._store_slice(fixed, text, frame)

    def _store_slice(self, target: tree.Slice, text: str, frame: FunctionFrame) -> None:
        place = self.places.place(target.base, frame)
        self.context.usage.note(place, False)
        self.context.usage.note(place, True)
        whole = form(target.base.type)
        if isinstance(whole, Wide):
            self.wide.store_slice(place, whole, target, text, frame)
            return
        taken = bits_of(target.type, target.where)
        bits = bits_of(target.base.type, target.where)
        if target.width is not None:
            put = f"p4_put_slice({place.c}, {bits}, {self.expressions.value(target.low, frame)}, {taken}, {text})"
            frame.code.add(f"{place.c} = ({c_type(bits)}){put};")
            return
        low = target.low.const
        keep = literal(~(((1 << taken) - 1) << low) & (1 << bits) - 1)
        frame.code.add(f"{place.c} = ({c_type(bits)})(({place.c} & {keep}) | ({work_type(bits)}){text} << {low});")

    def store(self, target: tree.Expr, text: str, frame: FunctionFrame) -> None:
        """Assign a C value of the right type to something writable."""
        if isinstance(target, tree.Slice):
            self._store_slice(target, text, frame)
            return
        place = self.places.place(target, frame)
        self.context.usage.note(place, True)
        frame.code.add(f"{place.c} = {text};")
        if not is_scalar(place.type):
            forget_bytes(place, frame)

    def loaded(self, target: tree.Expr, frame: FunctionFrame) -> str:
        if isinstance(target, tree.Slice):
            return self.loaded(target.base, frame)
        return self.places.place(target, frame).c
