"""Assignments -> C: scalars, slices, and structs, headers, stacks and unions as a whole."""

from __future__ import annotations

from typing import Any

from switch.compiler.backend.code import bits_of, c_type, literal, work_type
from switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, parts_of
from switch.compiler.backend.emit_wide import WideEmitter
from switch.compiler.errors import unsupported
from switch.compiler.frontend import tree
from switch.compiler.sema.types import Record, Stack, Varbit, Wide, form, is_scalar


class Assignments(WideEmitter):
    """Writes assignments."""

    def _st_assign(self, s: tree.Assign, frame: FunctionFrame) -> None:
        if isinstance(s.value, tree.Binary) and s.value.left is s.target and self.acts(s.target):
            target = self.fixed(s.target, frame)  # x[f()] += e: f is called once
            value = tree.Binary(s.value.where, s.value.op, target, s.value.right)
            value.type = s.value.type
            s = tree.Assign(s.where, target, value)
        if isinstance(s.target, tree.Slice):
            self._assign_slice(s.target, s.value, frame)
            return
        place = self.place(s.target, frame)
        self.note(place, True)
        self.assign(place, s.value, frame)

    def assign(self, place: Lvalue, e: tree.Expr, frame: FunctionFrame) -> None:
        """place = e, for scalars, structs and headers."""
        record = form(place.type)
        if not isinstance(record, (Record, Stack, Varbit, Wide)):
            frame.code.add(f"{place.c} = {self.condition(e, frame)};")
            return
        if isinstance(record, Wide) and self.assign_wide(place, record, e, frame):
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
            self.note_whole(place, True)
            frame.code.add(f"{place.c} = ({self.declare_type(place.type, e.where)}){{0}};")
            self._forget_bytes(place, frame)
            return
        if isinstance(e, tree.Invalid):
            for one in parts_of(place) if record.kind == "header_union" else [place]:  # type: ignore[union-attr]
                self.note_valid(one)
                self.set_valid(one, False, frame)
            return
        if isinstance(e, tree.Ternary):
            frame.code.open(f"if ({self.condition(e.condition, frame)}) {{")
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
        source = self.place(e, frame)
        self.note(source, False)
        self.note(place, True)
        frame.code.add(f"{place.c} = {source.c};")
        self._forget_bytes(place, frame)
        if place.siblings:
            frame.code.open(f"if ({place.c}.is_valid) {{")
            self.alone(place, frame)
            frame.code.close()

    def _assign_call(self, place: Lvalue, e: tree.Call, frame: FunctionFrame) -> None:
        """place = a call that gives a struct or header."""
        if e.callee.kind != "user":
            self.record_call(place, e, frame)
            return
        self.note_whole(place, True)
        frame.code.add(f"{place.c} = {self.call_value(e, frame)};")
        self._forget_bytes(place, frame)

    def record_call(self, place: Lvalue, e: tree.Call, frame: FunctionFrame) -> None:
        """The same of externs: lookahead, which a parser has (emit_parser.py)."""
        unsupported(e.where, f"{e.callee.name} here")

    def _forget_bytes(self, place: Lvalue, frame: FunctionFrame) -> None:
        """After a copy the bytes of a header are those of its fields, not those in the frame."""
        record = form(place.type)
        if isinstance(record, Record) and record.kind == "header":
            frame.code.add(f"{place.c}.at = P4_AT_NONE;")
        elif isinstance(record, (Record, Stack)):
            for one in parts_of(place):
                self._forget_bytes(one, frame)

    def _assign_list(self, place: Lvalue, record: Record | Stack, e: Any, frame: FunctionFrame) -> None:
        """Field by field; a value that reads what is being written is taken first, as the language demands."""
        self.note_whole(place, True)
        frame.code.add(*self._staged(place, record, e, frame))
        if isinstance(record, Record) and record.kind == "header":
            self.set_valid(place, True, frame)
            frame.code.add(f"{place.c}.at = P4_AT_NONE;")
            self.alone(place, frame)

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
                temporary = self._temporary(frame)
                frame.code.add(f"{self.declare_type(of, e.where)} {temporary} = {self.condition(item, frame)};")
                staged.append(f"{target.c} = {temporary};")
            elif isinstance(item, (tree.ListExpr, tree.RecordExpr)) and getattr(inner, "kind", "") == "struct":
                staged += self._staged(target, inner, item, frame)  # type: ignore[arg-type]
            else:
                copy = self.variable("taken", of, e.where)
                self.assign(copy, item, frame)
                staged.append(f"{target.c} = {copy.c};")
        return staged

    def _temporary(self, frame: FunctionFrame) -> str:
        return frame.name("t")

    def _assign_slice(self, target: tree.Slice, e: tree.Expr, frame: FunctionFrame) -> None:
        """x[h:l] = e: the other bits of x stay."""
        fixed = self.fixed(target, frame)
        assert isinstance(fixed, tree.Slice)
        text = self.value(e, frame) if is_scalar(target.type) else self.temporary_place(e, frame).c
        self._store_slice(fixed, text, frame)

    def fixed(self, e: tree.Expr, frame: FunctionFrame) -> tree.Expr:
        """An lvalue whose run-time indexes are evaluated now; emit_calls.py."""
        raise NotImplementedError

    def _store_slice(self, target: tree.Slice, text: str, frame: FunctionFrame) -> None:
        place = self.place(target.base, frame)
        self.note(place, False)
        self.note(place, True)
        whole = form(target.base.type)
        if isinstance(whole, Wide):
            self.store_wide_slice(place, whole, target, text, frame)
            return
        taken = bits_of(target.type, target.where)
        bits = bits_of(target.base.type, target.where)
        if target.width is not None:
            put = f"p4_put_slice({place.c}, {bits}, {self.value(target.low, frame)}, {taken}, {text})"
            frame.code.add(f"{place.c} = ({c_type(bits)}){put};")
            return
        low = target.low.const
        keep = literal(~(((1 << taken) - 1) << low) & (1 << bits) - 1, bits)
        frame.code.add(f"{place.c} = ({c_type(bits)})(({place.c} & {keep}) | ({work_type(bits)}){text} << {low});")

    def store(self, target: tree.Expr, text: str, frame: FunctionFrame) -> None:
        """Assign a C value of the right type to something writable."""
        if isinstance(target, tree.Slice):
            self._store_slice(target, text, frame)
            return
        place = self.place(target, frame)
        self.note(place, True)
        frame.code.add(f"{place.c} = {text};")
        if not is_scalar(place.type):
            self._forget_bytes(place, frame)

    def loaded(self, target: tree.Expr, frame: FunctionFrame) -> str:
        if isinstance(target, tree.Slice):
            return self.loaded(target.base, frame)
        return self.place(target, frame).c
