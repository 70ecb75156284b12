"""Numbers of more than 128 bits -> calls of p4wide.h.

Such numbers live in structs of bytes, which expressions fill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mrc_testbed.switch.compiler.backend.code import bits_of, c_type
from mrc_testbed.switch.compiler.backend.emit_bits import load_bits, store_bits
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, acts
from mrc_testbed.switch.compiler.backend.emit_lvalues import LvalueEmitter
from mrc_testbed.switch.compiler.errors import raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.types import Bits, EnumType, WideBits, form, is_scalar, number, plain

_BINARY = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod", "&": "and", "|": "or", "^": "xor",
    "|+|": "add_sat", "|-|": "sub_sat",
}  # fmt: skip
_UNARY = {"-": "neg", "~": "not"}


def parts_joined(e: tree.Expr) -> list[tree.Expr]:
    """a, b, c of a ++ b ++ c."""
    if isinstance(e, tree.Binary) and e.op == "++" and e.const is None:
        return [*parts_joined(e.lhs), *parts_joined(e.rhs)]
    return [e]


@dataclass(eq=False, repr=False)
class WideEmitter:
    """Writes expressions of long numbers."""

    context: EmitContext
    lvalues: LvalueEmitter

    def operand(self, e: tree.Expr, frame: FunctionFrame, *later: tree.Expr) -> Lvalue:
        """Return the lvalue of an operand; a copy when a later operand may change it."""
        if any(acts(later_operand) for later_operand in later):
            return self.lvalues.temporary_lvalue(e, frame)
        lvalue = self.lvalues.lvalue(e, frame)
        self.context.usage.note(lvalue, False)
        return lvalue

    def assign(self, lvalue: Lvalue, wide_type: WideBits, e: tree.Expr, frame: FunctionFrame) -> bool:
        """place = e; False: e is a number somewhere else, to be copied, or chooses between such."""
        if e.const is not None:
            frame.code.add(f"{lvalue.c} = ({self.context.types.struct(wide_type)}){wide_constant(e, wide_type)};")
            return True
        write = self.KINDS.get(type(e))
        return write is not None and write(self, lvalue, wide_type, e, frame)

    def _cast(self, lvalue: Lvalue, wide_type: WideBits, e: tree.Cast, frame: FunctionFrame) -> bool:
        source = plain(e.operand.type)
        if source == plain(e.type):
            return False
        if is_scalar(e.operand.type):
            bits, text = bits_of(source, e.location), self.context.expressions.value(e.operand, frame)
            if isinstance(source, Bits) and source.signed:
                value = frame.name("t")
                frame.code.add(f"i128 {value} = p4_signed({text}, {bits});")
                frame.code.add(f"p4w_set({lvalue.c}.b, {wide_type.width}, (u128){value}, {value} < 0);")
            else:
                frame.code.add(f"p4w_set({lvalue.c}.b, {wide_type.width}, {text}, 0);")
            return True
        assert isinstance(source, Bits)
        operand = self.operand(e.operand, frame)
        if source.width == wide_type.width:
            frame.code.add(f"{lvalue.c} = {operand.c};")
        else:
            sizes = f"{wide_type.width}, {operand.c}.b, {source.width}, {int(source.signed)}"
            frame.code.add(f"p4w_resize({lvalue.c}.b, {sizes});")
        return True

    def _unary(self, lvalue: Lvalue, wide_type: WideBits, e: tree.Unary, frame: FunctionFrame) -> bool:
        if e.op == "+":
            return self.assign(lvalue, wide_type, e.operand, frame) or self._copy(lvalue, e.operand, frame)
        operand = self.operand(e.operand, frame)
        frame.code.add(f"p4w_{_UNARY[e.op]}({lvalue.c}.b, {operand.c}.b, {wide_type.width});")
        return True

    def _copy(self, lvalue: Lvalue, e: tree.Expr, frame: FunctionFrame) -> bool:
        frame.code.add(f"{lvalue.c} = {self.operand(e, frame).c};")
        return True

    def _slice(self, lvalue: Lvalue, wide_type: WideBits, e: tree.Slice, frame: FunctionFrame) -> bool:
        base = form(e.base.type)
        assert isinstance(base, WideBits)
        operand = self.operand(e.base, frame, e.low)
        if e.width is None:
            parts = f"{wide_type.width}, {operand.c}.b, {base.width}, {e.low.const}"
        else:
            variable = self._shift_right(operand, base, e.low, frame)
            parts = f"{wide_type.width}, {variable}.b, {base.width}, 0"
        frame.code.add(f"p4w_slice({lvalue.c}.b, {parts});")
        return True

    def _shift_right(self, operand: Lvalue, wide_type: WideBits, amount: tree.Expr, frame: FunctionFrame) -> str:
        """A new variable with a number shifted right."""
        variable = frame.name("t")
        frame.code.add(f"{self.context.types.struct(wide_type)} {variable};")
        frame.code.add(f"p4w_shr({variable}.b, {operand.c}.b, {self.amount(amount, frame)}, {wide_type.width});")
        return variable

    def part(self, e: tree.Slice, frame: FunctionFrame) -> str:
        """C expression for a slice of up to 128 bits of a long number."""
        wide_type = form(e.base.type)
        assert isinstance(wide_type, WideBits)
        operand = self.operand(e.base, frame, e.low)
        bits, low, c = bits_of(e.type, e.location), e.low.const, operand.c
        if e.width is not None:
            low, c = 0, self._shift_right(operand, wide_type, e.low, frame)
        return f"({c_type(bits)}){load_bits(f'{c}.b', 8 * wide_type.bytes - low - bits, bits)}"

    def amount(self, e: tree.Expr, frame: FunctionFrame) -> str:
        """C expression for what a shift moves by."""
        p4_type = form(e.type)
        if e.const is not None:
            return str(min(e.const, 0xFFFF))
        if isinstance(p4_type, WideBits):
            return f"p4w_amount({self.operand(e, frame).c}.b, {p4_type.width})"
        return self.context.expressions.value(e, frame)

    def _binary(self, lvalue: Lvalue, wide_type: WideBits, e: tree.Binary, frame: FunctionFrame) -> bool:
        code = frame.code
        if e.op == "++":
            self._concatenate(lvalue, wide_type, e, frame)
            return True
        lhs = self.operand(e.lhs, frame, e.rhs)
        if e.op in ("<<", ">>"):
            word = "shl" if e.op == "<<" else "sar" if wide_type.signed else "shr"
            amount = self.amount(e.rhs, frame)
            code.add(f"p4w_{word}({lvalue.c}.b, {lhs.c}.b, {amount}, {wide_type.width});")
            return True
        rhs = self.operand(e.rhs, frame)
        word = _BINARY[e.op] + ("_signed" if wide_type.signed and e.op in ("|+|", "|-|") else "")
        code.add(f"p4w_{word}({lvalue.c}.b, {lhs.c}.b, {rhs.c}.b, {wide_type.width});")
        return True

    def _concatenate(self, lvalue: Lvalue, wide_type: WideBits, e: tree.Binary, frame: FunctionFrame) -> None:
        result = frame.name("t")  # a part may be what is being written
        frame.code.add(f"{self.context.types.struct(wide_type)} {result} = {{0}};")
        offset = 8 * wide_type.bytes - wide_type.width
        for part in parts_joined(e):
            width = number(part.type).width
            text = (
                self.operand(part, frame).c
                if isinstance(form(part.type), WideBits)
                else self.context.expressions.value(part, frame)
            )
            frame.code.add(store_bits(f"{result}.b", offset, width, text))
            offset += width
        frame.code.add(f"{lvalue.c} = {result};")

    def order(self, e: tree.Binary, wide_type: WideBits, frame: FunctionFrame) -> str:
        """C expression for <, >, <=, >= of long numbers."""
        lhs = self.operand(e.lhs, frame, e.rhs)
        rhs = self.operand(e.rhs, frame)
        return f"(p4w_compare({lhs.c}.b, {rhs.c}.b, {wide_type.width}, {int(wide_type.signed)}) {e.op} 0)"

    def store_slice(
        self, lvalue: Lvalue, wide_type: WideBits, target: tree.Slice, text: str, frame: FunctionFrame
    ) -> None:
        """Put a C value, or the variable of a long one, in the place of some bits of a long number."""
        if target.width is not None:
            raise_unsupported(target.location, f"writing [... +: ...] of {target.base.type}", "known ends are")
        offset = 8 * wide_type.bytes - 1 - target.high.const
        frame.code.add(store_bits(f"{lvalue.c}.b", offset, number(target.type).width, text))

    KINDS: ClassVar[Mapping[type[tree.Expr], Callable[[WideEmitter, Lvalue, WideBits, Any, FunctionFrame], bool]]] = {
        tree.Cast: _cast,
        tree.Unary: _unary,
        tree.Binary: _binary,
        tree.Slice: _slice,
    }
    """Nodes that compute a number; all others choose one or name one."""


def wide_constant(e: tree.Expr, wide_type: WideBits) -> str:
    """The initializer of a long number known at compile time."""
    value = e.type.number(e.const) if isinstance(e.type, EnumType) and isinstance(e.const, str) else int(e.const)
    data = (value & (1 << wide_type.width) - 1).to_bytes(wide_type.bytes, "big")
    return f"{{{{{', '.join(hex(byte) for byte in data)}}}}}"
