"""Expressions -> C expressions.

Values are unsigned C integers with the unused high bits zero (p4ops.h).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mrc_testbed.switch.compiler.backend.code import bits_of, c_type, literal, masked, narrowed, work_type
from mrc_testbed.switch.compiler.backend.emit_bits import load_bits
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, acts, parts_of
from mrc_testbed.switch.compiler.backend.emit_places import PlaceEmitter
from mrc_testbed.switch.compiler.backend.emit_wide import WideEmitter
from mrc_testbed.switch.compiler.errors import unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.types import (
    BOOL,
    ERROR,
    INT,
    STRING,
    Applied,
    Bits,
    EnumType,
    Record,
    Stack,
    Varbit,
    Wide,
    form,
)


@dataclass(eq=False, repr=False)
class ExpressionEmitter:
    """Writes expressions, each kind of node by the method that the table below names."""

    context: EmitContext
    places: PlaceEmitter
    wide: WideEmitter

    def value(self, e: tree.Expr, frame: FunctionFrame) -> str:
        """C expression for the value of a scalar."""
        if e.const is not None:
            return self.constant(e)
        write = self.KINDS.get(type(e))
        if write is None:
            unsupported(e.where, "this as a value")
        return write(self, e, frame)

    def values(self, exprs: list[tree.Expr], frame: FunctionFrame) -> list[str]:
        """C values of expressions evaluated from left to right: what a later one may change is taken before it."""
        out = []
        for at, e in enumerate(exprs):
            text = self.value(e, frame)
            if e.const is None and any(acts(expr) for expr in exprs[at + 1 :]):
                name = frame.name("t")
                frame.code.add(f"{self.context.types.declare_type(e.type, e.where)} {name} = {text};")
                text = name
            out.append(text)
        return out

    def condition(self, e: tree.Expr, frame: FunctionFrame) -> str:
        text = self.value(e, frame)
        return text[1:-1] if text[0] == "(" and _closes_at_end(text) else text

    def constant(self, e: tree.Expr) -> str:
        of = form(e.type)
        if isinstance(e.const, str):
            if e.type == ERROR:
                return f"P4_ERROR_{e.const}"
            if isinstance(e.type, EnumType):
                bits = e.type.under.width if e.type.under else 32
                return literal(e.type.number(e.const) & (1 << bits) - 1)
            unsupported(e.where, "a string here")
        if of == BOOL:
            return "1" if e.const else "0"
        bits = bits_of(of, e.where) if isinstance(of, Bits) else 128
        if of == INT and not 0 <= e.const < 1 << 128:
            unsupported(e.where, f"the number {e.const}", "give it a width")
        return literal(e.const & (1 << bits) - 1)

    def _path(self, e: tree.PathExpression, frame: FunctionFrame) -> str:
        if isinstance(e.decl, tree.Const):
            return self.value(e.decl.value, frame)
        return self._read(e, frame)

    def _read(self, e: tree.Expr, frame: FunctionFrame) -> str:
        place = self.places.place(e, frame)
        self.context.usage.note(place, False)
        if not isinstance(form(place.type), Record):
            bits_of(place.type, e.where)
        return place.c

    def _member(self, e: tree.Member, frame: FunctionFrame) -> str:
        if isinstance(e.base.type, Applied):
            assert isinstance(e.base, tree.Call)
            if e.name == "action_run":
                return f"{self.context.calls.value(e.base, frame)}.action"
            call = self.context.calls.value(e.base, frame)
            return f"{call}.hit" if e.name == "hit" else f"!{call}.hit"
        if isinstance(e.base.type, Stack) and e.name == "lastIndex":
            return f"({self.places.place(e.base, frame).c}.next - 1)"
        return self._read(e, frame)

    def _index(self, e: tree.Index, frame: FunctionFrame) -> str:
        return self._read(e, frame)

    def _call(self, e: tree.Call, frame: FunctionFrame) -> str:
        if e.callee.kind == "header":
            return self._is_valid(self.places.place(e.callee.base, frame))
        return self.context.calls.value(e, frame)

    def _is_valid(self, place: Lvalue) -> str:
        record = form(place.type)
        if isinstance(record, Record) and record.kind == "header_union":
            return "(" + " | ".join(self._is_valid(part) for part in parts_of(place)) + ")"
        self.context.usage.note_valid(place)
        return f"{place.c}.is_valid"

    def _slice(self, e: tree.Slice, frame: FunctionFrame) -> str:
        whole = form(e.base.type)
        if isinstance(whole, Wide):
            return self.wide.part(e, frame)
        if e.width is not None:
            return self._plus_slice(e, frame)
        high, low = e.high.const, e.low.const
        text, bits = self.value(e.base, frame), bits_of(e.base.type, e.where)
        if low:
            text = f"({text} >> {low})"
        if high < bits - 1:
            text = f"({text} & {literal((1 << high - low + 1) - 1)})"
        return narrowed(text, bits, high - low + 1)

    def _plus_slice(self, e: tree.Slice, frame: FunctionFrame) -> str:
        """x[low +: width] with a low end known only at run time; bits beyond the end of x are zeros."""
        taken = bits_of(e.type, e.where)
        base, low = self.values([e.base, e.low], frame)
        return f"(({c_type(taken)})p4_shr({base}, {low}) & {literal((1 << taken) - 1)})"

    def _unary(self, e: tree.Unary, frame: FunctionFrame) -> str:
        text = self.value(e.operand, frame)
        if e.op == "!":
            return f"!{text}" if text[0] != "!" else f"!({text})"
        if e.op == "+":
            return text
        bits = bits_of(e.type, e.where)
        return masked(f"({e.op}({work_type(bits)}){text})", bits)

    def _ternary(self, e: tree.Ternary, frame: FunctionFrame) -> str:
        if acts(e.then) or acts(e.other):
            name = frame.name("t")
            frame.code.add(f"{self.context.types.declare_type(e.type, e.where)} {name};")
            frame.code.open(f"if ({self.value(e.condition, frame)}) {{")
            frame.code.add(f"{name} = {self.value(e.then, frame)};")
            frame.code.close("} else {")
            frame.code.depth += 1
            frame.code.add(f"{name} = {self.value(e.other, frame)};")
            frame.code.close()
            return name
        parts = [self.value(one, frame) for one in (e.condition, e.then, e.other)]
        return f"({parts[0]} ? {parts[1]} : {parts[2]})"

    def _cast(self, e: tree.Cast, frame: FunctionFrame) -> str:
        of, to = form(e.operand.type), form(e.type)
        if isinstance(of, Wide) and isinstance(to, Bits):
            place = self.places.place(e.operand, frame)
            self.context.usage.note(place, False)
            return f"({c_type(to.width)}){load_bits(f'{place.c}.b', 8 * of.bytes - to.width, to.width)}"
        text = self.value(e.operand, frame)
        if of in (to, BOOL):
            return text
        if to == BOOL:
            return f"({text} != 0)"
        assert isinstance(of, Bits) and isinstance(to, Bits)
        bits_of(to, e.where)
        if to.width > of.width:
            if of.signed:
                text = f"((u128)p4_signed({text}, {of.width}) & {literal((1 << to.width) - 1)})"
            return f"({c_type(to.width)}){text}"
        if to.width == of.width:
            return text
        text = f"({text} & {literal((1 << to.width) - 1)})"
        return narrowed(text, of.width, to.width)

    # ---- binary operators

    def _binary(self, e: tree.Binary, frame: FunctionFrame) -> str:
        if e.op in ("==", "!="):
            return self._equality(e, frame)
        if e.op in ("&&", "||"):
            return self._logical(e, frame)
        of = form(e.left.type)
        if isinstance(of, Wide):
            return self.wide.order(e, of, frame)
        assert isinstance(of, Bits)
        if isinstance(form(e.right.type), Wide) and e.op in ("<<", ">>") and e.right.const is None:
            left = self.value(e.left, frame)
            return self._shift(e, left, self.wide.amount(e.right, frame), of)
        left, right = self.values([e.left, e.right], frame)
        bits = bits_of(of, e.where)
        if e.op in ("<", ">", "<=", ">="):
            if of.signed:
                left, right = f"p4_signed({left}, {bits})", f"p4_signed({right}, {bits})"
            return f"({left} {e.op} {right})"
        if e.op in ("&", "|", "^"):
            return f"({left} {e.op} {right})"
        if e.op in ("/", "%"):
            return f"({c_type(bits)})p4_{'div' if e.op == '/' else 'mod'}({left}, {right})"
        if e.op in ("+", "-", "*"):
            return masked(f"(({work_type(bits)}){left} {e.op} {right})", bits)
        if e.op == "++":
            low = bits_of(e.right.type, e.where)
            return f"(({work_type(bits_of(e.type, e.where))}){left} << {low} | {right})"
        if e.op in ("|+|", "|-|"):
            return self._saturating(e.op, left, right, of)
        return self._shift(e, left, right, of)

    def _logical(self, e: tree.Binary, frame: FunctionFrame) -> str:
        """&& and ||: the right side is evaluated only when it matters."""
        if not acts(e.right):
            return f"({self.value(e.left, frame)} {e.op} {self.value(e.right, frame)})"
        name = frame.name("t")
        frame.code.add(f"uint8_t {name} = {self.value(e.left, frame)};")
        frame.code.open(f"if ({'' if e.op == '&&' else '!'}{name}) {{")
        frame.code.add(f"{name} = {self.value(e.right, frame)};")
        frame.code.close()
        return name

    @staticmethod
    def _saturating(op: str, left: str, right: str, of: Bits) -> str:
        word = "add" if op == "|+|" else "sub"
        if of.signed:
            return f"({c_type(of.width)})p4_{word}_sat_signed({left}, {right}, {of.width})"
        tail = f", {of.width}" if word == "add" else ""
        return f"({c_type(of.width)})p4_{word}_sat({left}, {right}{tail})"

    def _shift(self, e: tree.Binary, left: str, right: str, of: Bits) -> str:
        bits, by = of.width, e.right.const
        if e.op == "<<":
            if by is None:
                return f"({c_type(bits)})p4_shl({left}, {right}, {bits})"
            return masked(f"(({work_type(bits)}){left} << {by})", bits) if by < bits else "0"
        if of.signed:
            return f"({c_type(bits)})p4_sar({left}, {right if by is None else min(by, bits)}, {bits})"
        if by is None:
            return f"({c_type(bits)})p4_shr({left}, {right})"
        return f"({left} >> {by})" if by < bits else "0"

    def _equality(self, e: tree.Binary, frame: FunctionFrame) -> str:
        record = form(e.left.type)
        if not isinstance(record, (Record, Stack, Varbit, Wide)):
            if e.left.type == STRING or (not isinstance(record, (Bits, EnumType)) and record not in (BOOL, ERROR, INT)):
                unsupported(e.where, f"comparing values of type {e.left.type}")
            left_text, right_text = self.values([e.left, e.right], frame)
            return f"({left_text} {e.op} {right_text})"
        taken = acts(e.right) and not isinstance(record, Varbit)
        left = self.places.temporary_place(e.left, frame) if taken else self.places.place(e.left, frame)
        right = self.places.place(e.right, frame)
        self.context.usage.note_whole(left, False)
        self.context.usage.note_whole(right, False)
        text = self._same(left, right)
        return text if e.op == "==" else f"!{text}"

    def _same(self, left: Lvalue, right: Lvalue) -> str:
        record = form(left.type)
        if isinstance(record, Wide):
            return f"(!memcmp({left.c}.b, {right.c}.b, {record.bytes}))"
        if isinstance(record, Varbit):
            return f"(p4_same_varbit({left.c}.bits, {left.c}.bytes, {right.c}.bits, {right.c}.bytes))"
        if not isinstance(record, (Record, Stack)):
            return f"({left.c} == {right.c})"
        pairs = zip(parts_of(left), parts_of(right), strict=True)
        body = " && ".join(self._same(*pair) for pair in pairs) or "1"
        if isinstance(record, Record) and record.kind == "header":
            both = f"{left.c}.is_valid == {right.c}.is_valid"
            return f"({both} && (!{left.c}.is_valid || ({body})))"
        return f"({body})"

    KINDS: ClassVar[Mapping[type[tree.Expr], Callable[[ExpressionEmitter, Any, FunctionFrame], str]]] = {
        tree.PathExpression: _path,
        tree.Member: _member,
        tree.Index: _index,
        tree.Slice: _slice,
        tree.Unary: _unary,
        tree.Binary: _binary,
        tree.Ternary: _ternary,
        tree.Cast: _cast,
        tree.Call: _call,
    }
    """How the value of a node is written that the compiler does not know."""

    NO_VALUES: ClassVar[frozenset[type[tree.Expr]]] = frozenset(
        {
            tree.Integer,
            tree.Boolean,
            tree.String,
            tree.TypeMember,  # constants
            tree.ListExpr,
            tree.RecordExpr,
            tree.Invalid,
            tree.Dots,
            tree.Default,
            tree.Construct,  # no scalars
            tree.Mask,
            tree.Range,
            tree.DontCare,  # in key sets and arguments
            tree.Refused,
        }
    )
    """Nodes that never come to KINDS."""


def _closes_at_end(text: str) -> bool:
    """Does the parenthesis that opens `text` close at its very end?"""
    depth = 0
    for i, char in enumerate(text):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if depth == 0:
            return i == len(text) - 1
    return False
