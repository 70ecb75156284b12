"""Expressions -> C expressions.

Values are unsigned C integers with the unused high bits zero (p4ops.h).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mrc_testbed.switch.compiler.backend.code import bits_of, c_type, literal, mask_text, narrow_text, work_type
from mrc_testbed.switch.compiler.backend.emit_bits import load_bits
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, acts, parts_of
from mrc_testbed.switch.compiler.backend.emit_lvalues import LvalueEmitter
from mrc_testbed.switch.compiler.backend.emit_wide import WideEmitter
from mrc_testbed.switch.compiler.errors import raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.types import (
    BOOL,
    ERROR,
    INT,
    STRING,
    ApplyResult,
    Bits,
    EnumType,
    Record,
    Stack,
    Varbit,
    WideBits,
    form,
)


@dataclass(eq=False, repr=False)
class ExpressionEmitter:
    """Writes expressions, each kind of node by the method that the table below names."""

    context: EmitContext
    lvalues: LvalueEmitter
    wide_numbers: WideEmitter

    def value(self, e: tree.Expr, frame: FunctionFrame) -> str:
        """C expression for the value of a scalar."""
        if e.const is not None:
            return self.constant(e)
        write = self.KINDS.get(type(e))
        if write is None:
            raise_unsupported(e.location, "this as a value")
        return write(self, e, frame)

    def values(self, exprs: list[tree.Expr], frame: FunctionFrame) -> list[str]:
        """Return C values of expressions, left to right; a value that a later one may change is copied."""
        out = []
        for index, expr in enumerate(exprs):
            text = self.value(expr, frame)
            if expr.const is None and any(acts(expr) for expr in exprs[index + 1 :]):
                name = frame.name("t")
                frame.code.add(f"{self.context.types.declare_type(expr.type, expr.location)} {name} = {text};")
                text = name
            out.append(text)
        return out

    def condition(self, e: tree.Expr, frame: FunctionFrame) -> str:
        text = self.value(e, frame)
        return text[1:-1] if text[0] == "(" and _closes_at_end(text) else text

    def constant(self, e: tree.Expr) -> str:
        p4_type = form(e.type)
        if isinstance(e.const, str):
            if e.type == ERROR:
                return f"P4_ERROR_{e.const}"
            if isinstance(e.type, EnumType):
                bits = e.type.underlying_type.width if e.type.underlying_type else 32
                return literal(e.type.number(e.const) & (1 << bits) - 1)
            raise_unsupported(e.location, "a string here")
        if p4_type == BOOL:
            return "1" if e.const else "0"
        bits = bits_of(p4_type, e.location) if isinstance(p4_type, Bits) else 128
        if p4_type == INT and not 0 <= e.const < 1 << 128:
            raise_unsupported(e.location, f"the number {e.const}", "give it a width")
        return literal(e.const & (1 << bits) - 1)

    def _path(self, e: tree.PathExpression, frame: FunctionFrame) -> str:
        if isinstance(e.decl, tree.Const):
            return self.value(e.decl.value, frame)
        return self._read(e, frame)

    def _read(self, e: tree.Expr, frame: FunctionFrame) -> str:
        lvalue = self.lvalues.lvalue(e, frame)
        self.context.usage.note(lvalue, False)
        if not isinstance(form(lvalue.type), Record):
            bits_of(lvalue.type, e.location)
        return lvalue.c

    def _member(self, e: tree.Member, frame: FunctionFrame) -> str:
        if isinstance(e.base.type, ApplyResult):
            assert isinstance(e.base, tree.Call)
            if e.name == "action_run":
                return f"{self.context.calls.value(e.base, frame)}.action"
            call = self.context.calls.value(e.base, frame)
            return f"{call}.hit" if e.name == "hit" else f"!{call}.hit"
        if isinstance(e.base.type, Stack) and e.name == "lastIndex":
            return f"({self.lvalues.lvalue(e.base, frame).c}.next - 1)"
        return self._read(e, frame)

    def _index(self, e: tree.Index, frame: FunctionFrame) -> str:
        return self._read(e, frame)

    def _call(self, e: tree.Call, frame: FunctionFrame) -> str:
        if e.callee.kind == "header":
            return self._is_valid(self.lvalues.lvalue(e.callee.base, frame))
        return self.context.calls.value(e, frame)

    def _is_valid(self, lvalue: Lvalue) -> str:
        record = form(lvalue.type)
        if isinstance(record, Record) and record.kind == "header_union":
            return "(" + " | ".join(self._is_valid(part) for part in parts_of(lvalue)) + ")"
        self.context.usage.note_valid(lvalue)
        return f"{lvalue.c}.is_valid"

    def _slice(self, e: tree.Slice, frame: FunctionFrame) -> str:
        base_type = form(e.base.type)
        if isinstance(base_type, WideBits):
            return self.wide_numbers.part(e, frame)
        if e.width is not None:
            return self._plus_slice(e, frame)
        high, low = e.high.const, e.low.const
        text, bits = self.value(e.base, frame), bits_of(e.base.type, e.location)
        if low:
            text = f"({text} >> {low})"
        if high < bits - 1:
            text = f"({text} & {literal((1 << high - low + 1) - 1)})"
        return narrow_text(text, bits, high - low + 1)

    def _plus_slice(self, e: tree.Slice, frame: FunctionFrame) -> str:
        """x[low +: width] with a low end known only at run time; bits beyond the end of x are zeros."""
        slice_bits = bits_of(e.type, e.location)
        base, low = self.values([e.base, e.low], frame)
        return f"(({c_type(slice_bits)})p4_shr({base}, {low}) & {literal((1 << slice_bits) - 1)})"

    def _unary(self, e: tree.Unary, frame: FunctionFrame) -> str:
        text = self.value(e.operand, frame)
        if e.op == "!":
            return f"!{text}" if text[0] != "!" else f"!({text})"
        if e.op == "+":
            return text
        bits = bits_of(e.type, e.location)
        return mask_text(f"({e.op}({work_type(bits)}){text})", bits)

    def _ternary(self, e: tree.Ternary, frame: FunctionFrame) -> str:
        if acts(e.if_true) or acts(e.if_false):
            name = frame.name("t")
            frame.code.add(f"{self.context.types.declare_type(e.type, e.location)} {name};")
            frame.code.open(f"if ({self.value(e.condition, frame)}) {{")
            frame.code.add(f"{name} = {self.value(e.if_true, frame)};")
            frame.code.close("} else {")
            frame.code.depth += 1
            frame.code.add(f"{name} = {self.value(e.if_false, frame)};")
            frame.code.close()
            return name
        parts = [self.value(part, frame) for part in (e.condition, e.if_true, e.if_false)]
        return f"({parts[0]} ? {parts[1]} : {parts[2]})"

    def _cast(self, e: tree.Cast, frame: FunctionFrame) -> str:
        source, target = form(e.operand.type), form(e.type)
        if isinstance(source, WideBits) and isinstance(target, Bits):
            operand = self.lvalues.lvalue(e.operand, frame)
            self.context.usage.note(operand, False)
            return (
                f"({c_type(target.width)}){load_bits(f'{operand.c}.b', 8 * source.bytes - target.width, target.width)}"
            )
        text = self.value(e.operand, frame)
        if source in (target, BOOL):
            return text
        if target == BOOL:
            return f"({text} != 0)"
        assert isinstance(source, Bits) and isinstance(target, Bits)
        bits_of(target, e.location)
        if target.width > source.width:
            if source.signed:
                text = f"((u128)p4_signed({text}, {source.width}) & {literal((1 << target.width) - 1)})"
            return f"({c_type(target.width)}){text}"
        if target.width == source.width:
            return text
        text = f"({text} & {literal((1 << target.width) - 1)})"
        return narrow_text(text, source.width, target.width)

    # ---- binary operators

    def _binary(self, e: tree.Binary, frame: FunctionFrame) -> str:
        if e.op in ("==", "!="):
            return self._equality(e, frame)
        if e.op in ("&&", "||"):
            return self._logical(e, frame)
        left_type = form(e.lhs.type)
        if isinstance(left_type, WideBits):
            return self.wide_numbers.order(e, left_type, frame)
        assert isinstance(left_type, Bits)
        # A shift amount of more than 128 bits is no C value: p4wide.h clips it.
        if isinstance(form(e.rhs.type), WideBits) and e.op in ("<<", ">>") and e.rhs.const is None:
            lhs = self.value(e.lhs, frame)
            return self._shift(e, lhs, self.wide_numbers.amount(e.rhs, frame), left_type)
        lhs, rhs = self.values([e.lhs, e.rhs], frame)
        bits = bits_of(left_type, e.location)
        if e.op in ("<", ">", "<=", ">="):
            if left_type.signed:
                lhs, rhs = f"p4_signed({lhs}, {bits})", f"p4_signed({rhs}, {bits})"
            return f"({lhs} {e.op} {rhs})"
        if e.op in ("&", "|", "^"):
            return f"({lhs} {e.op} {rhs})"
        if e.op in ("/", "%"):
            return f"({c_type(bits)})p4_{'div' if e.op == '/' else 'mod'}({lhs}, {rhs})"
        if e.op in ("+", "-", "*"):
            return mask_text(f"(({work_type(bits)}){lhs} {e.op} {rhs})", bits)
        if e.op == "++":
            low = bits_of(e.rhs.type, e.location)
            return f"(({work_type(bits_of(e.type, e.location))}){lhs} << {low} | {rhs})"
        if e.op in ("|+|", "|-|"):
            return self._saturating(e.op, lhs, rhs, left_type)
        return self._shift(e, lhs, rhs, left_type)

    def _logical(self, e: tree.Binary, frame: FunctionFrame) -> str:
        """Return C for && or ||; the right operand is evaluated only when the left does not decide."""
        if not acts(e.rhs):
            return f"({self.value(e.lhs, frame)} {e.op} {self.value(e.rhs, frame)})"
        name = frame.name("t")
        frame.code.add(f"uint8_t {name} = {self.value(e.lhs, frame)};")
        frame.code.open(f"if ({'' if e.op == '&&' else '!'}{name}) {{")
        frame.code.add(f"{name} = {self.value(e.rhs, frame)};")
        frame.code.close()
        return name

    @staticmethod
    def _saturating(op: str, lhs: str, rhs: str, bits_type: Bits) -> str:
        word = "add" if op == "|+|" else "sub"
        if bits_type.signed:
            return f"({c_type(bits_type.width)})p4_{word}_sat_signed({lhs}, {rhs}, {bits_type.width})"
        tail = f", {bits_type.width}" if word == "add" else ""
        return f"({c_type(bits_type.width)})p4_{word}_sat({lhs}, {rhs}{tail})"

    def _shift(self, e: tree.Binary, lhs: str, rhs: str, bits_type: Bits) -> str:
        bits, shift = bits_type.width, e.rhs.const
        if e.op == "<<":
            if shift is None:
                return f"({c_type(bits)})p4_shl({lhs}, {rhs}, {bits})"
            return mask_text(f"(({work_type(bits)}){lhs} << {shift})", bits) if shift < bits else "0"
        if bits_type.signed:
            return f"({c_type(bits)})p4_sar({lhs}, {rhs if shift is None else min(shift, bits)}, {bits})"
        if shift is None:
            return f"({c_type(bits)})p4_shr({lhs}, {rhs})"
        return f"({lhs} >> {shift})" if shift < bits else "0"

    def _equality(self, e: tree.Binary, frame: FunctionFrame) -> str:
        record = form(e.lhs.type)
        if not isinstance(record, (Record, Stack, Varbit, WideBits)):
            if e.lhs.type == STRING or (not isinstance(record, (Bits, EnumType)) and record not in (BOOL, ERROR, INT)):
                raise_unsupported(e.location, f"comparing values of type {e.lhs.type}")
            lhs_text, rhs_text = self.values([e.lhs, e.rhs], frame)
            return f"({lhs_text} {e.op} {rhs_text})"
        needs_copy = acts(e.rhs) and not isinstance(record, Varbit)
        lhs = self.lvalues.temporary_lvalue(e.lhs, frame) if needs_copy else self.lvalues.lvalue(e.lhs, frame)
        rhs = self.lvalues.lvalue(e.rhs, frame)
        self.context.usage.note_whole(lhs, False)
        self.context.usage.note_whole(rhs, False)
        text = self._equal_text(lhs, rhs)
        return text if e.op == "==" else f"!{text}"

    def _equal_text(self, lhs: Lvalue, rhs: Lvalue) -> str:
        record = form(lhs.type)
        if isinstance(record, WideBits):
            return f"(!memcmp({lhs.c}.b, {rhs.c}.b, {record.bytes}))"
        if isinstance(record, Varbit):
            return f"(p4_same_varbit({lhs.c}.bits, {lhs.c}.bytes, {rhs.c}.bits, {rhs.c}.bytes))"
        if not isinstance(record, (Record, Stack)):
            return f"({lhs.c} == {rhs.c})"
        pairs = zip(parts_of(lhs), parts_of(rhs), strict=True)
        body = " && ".join(self._equal_text(*pair) for pair in pairs) or "1"
        if isinstance(record, Record) and record.kind == "header":
            same_validity = f"{lhs.c}.is_valid == {rhs.c}.is_valid"
            return f"({same_validity} && (!{lhs.c}.is_valid || ({body})))"
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
    """Writers of values unknown at compile time, by kind of node."""

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
            tree.UnsupportedExpr,
        }
    )
    """Nodes that never come to KINDS."""


def _closes_at_end(text: str) -> bool:
    """Return whether the parenthesis that opens `text` closes at its very end."""
    depth = 0
    for i, char in enumerate(text):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if depth == 0:
            return i == len(text) - 1
    return False
