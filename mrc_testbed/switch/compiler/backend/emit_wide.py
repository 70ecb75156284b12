"""Numbers of more than 128 bits -> calls of p4wide.h. They live in structs of bytes, which expressions fill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mrc_testbed.switch.compiler.backend.code import bits_of, c_type
from mrc_testbed.switch.compiler.backend.emit_bits import load_bits, store_bits
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, acts
from mrc_testbed.switch.compiler.backend.emit_places import PlaceEmitter
from mrc_testbed.switch.compiler.errors import unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.types import Bits, EnumType, Wide, form, is_scalar, number, plain

_BINARY = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod", "&": "and", "|": "or", "^": "xor",
    "|+|": "add_sat", "|-|": "sub_sat",
}  # fmt: skip
_UNARY = {"-": "neg", "~": "not"}


def parts_joined(e: tree.Expr) -> list[tree.Expr]:
    """a, b, c of a ++ b ++ c."""
    if isinstance(e, tree.Binary) and e.op == "++" and e.const is None:
        return [*parts_joined(e.left), *parts_joined(e.right)]
    return [e]


@dataclass(eq=False, repr=False)
class WideEmitter:
    """Writes expressions of long numbers."""

    context: EmitContext
    places: PlaceEmitter

    def operand(self, e: tree.Expr, frame: FunctionFrame, *later: tree.Expr) -> Lvalue:
        """Where the value of an operand is; a copy when the evaluation of a later one may change it."""
        if any(acts(one) for one in later):
            return self.places.temporary_place(e, frame)
        place = self.places.place(e, frame)
        self.context.usage.note(place, False)
        return place

    def assign(self, place: Lvalue, of: Wide, e: tree.Expr, frame: FunctionFrame) -> bool:
        """place = e; False: e is a number somewhere else, to be copied, or chooses between such."""
        if e.const is not None:
            frame.code.add(f"{place.c} = ({self.context.types.struct(of)}){wide_constant(e, of)};")
            return True
        write = self.KINDS.get(type(e))
        return write is not None and write(self, place, of, e, frame)

    def _cast(self, place: Lvalue, of: Wide, e: tree.Cast, frame: FunctionFrame) -> bool:
        source = plain(e.operand.type)
        if source == plain(e.type):
            return False
        if is_scalar(e.operand.type):
            bits, text = bits_of(source, e.where), self.context.expressions.value(e.operand, frame)
            if isinstance(source, Bits) and source.signed:
                value = frame.name("t")
                frame.code.add(f"i128 {value} = p4_signed({text}, {bits});")
                frame.code.add(f"p4w_set({place.c}.b, {of.width}, (u128){value}, {value} < 0);")
            else:
                frame.code.add(f"p4w_set({place.c}.b, {of.width}, {text}, 0);")
            return True
        assert isinstance(source, Bits)
        operand = self.operand(e.operand, frame)
        if source.width == of.width:
            frame.code.add(f"{place.c} = {operand.c};")
        else:
            sizes = f"{of.width}, {operand.c}.b, {source.width}, {int(source.signed)}"
            frame.code.add(f"p4w_resize({place.c}.b, {sizes});")
        return True

    def _unary(self, place: Lvalue, of: Wide, e: tree.Unary, frame: FunctionFrame) -> bool:
        if e.op == "+":
            return self.assign(place, of, e.operand, frame) or self._copy(place, e.operand, frame)
        operand = self.operand(e.operand, frame)
        frame.code.add(f"p4w_{_UNARY[e.op]}({place.c}.b, {operand.c}.b, {of.width});")
        return True

    def _copy(self, place: Lvalue, e: tree.Expr, frame: FunctionFrame) -> bool:
        frame.code.add(f"{place.c} = {self.operand(e, frame).c};")
        return True

    def _slice(self, place: Lvalue, of: Wide, e: tree.Slice, frame: FunctionFrame) -> bool:
        base = form(e.base.type)
        assert isinstance(base, Wide)
        operand = self.operand(e.base, frame, e.low)
        if e.width is None:
            parts = f"{of.width}, {operand.c}.b, {base.width}, {e.low.const}"
        else:
            moved = self._moved(operand, base, e.low, frame)
            parts = f"{of.width}, {moved}.b, {base.width}, 0"
        frame.code.add(f"p4w_slice({place.c}.b, {parts});")
        return True

    def _moved(self, operand: Lvalue, of: Wide, by: tree.Expr, frame: FunctionFrame) -> str:
        """A new variable with a number shifted right."""
        moved = frame.name("t")
        frame.code.add(f"{self.context.types.struct(of)} {moved};")
        frame.code.add(f"p4w_shr({moved}.b, {operand.c}.b, {self.amount(by, frame)}, {of.width});")
        return moved

    def part(self, e: tree.Slice, frame: FunctionFrame) -> str:
        """C expression for a slice of up to 128 bits of a long number."""
        whole = form(e.base.type)
        assert isinstance(whole, Wide)
        operand = self.operand(e.base, frame, e.low)
        bits, low, c = bits_of(e.type, e.where), e.low.const, operand.c
        if e.width is not None:
            low, c = 0, self._moved(operand, whole, e.low, frame)
        return f"({c_type(bits)}){load_bits(f'{c}.b', 8 * whole.bytes - low - bits, bits)}"

    def amount(self, e: tree.Expr, frame: FunctionFrame) -> str:
        """C expression for what a shift moves by."""
        of = form(e.type)
        if e.const is not None:
            return str(min(e.const, 0xFFFF))
        if isinstance(of, Wide):
            return f"p4w_amount({self.operand(e, frame).c}.b, {of.width})"
        return self.context.expressions.value(e, frame)

    def _binary(self, place: Lvalue, of: Wide, e: tree.Binary, frame: FunctionFrame) -> bool:
        code = frame.code
        if e.op == "++":
            self._joined(place, of, e, frame)
            return True
        left = self.operand(e.left, frame, e.right)
        if e.op in ("<<", ">>"):
            word = "shl" if e.op == "<<" else "sar" if of.signed else "shr"
            by = self.amount(e.right, frame)
            code.add(f"p4w_{word}({place.c}.b, {left.c}.b, {by}, {of.width});")
            return True
        right = self.operand(e.right, frame)
        word = _BINARY[e.op] + ("_signed" if of.signed and e.op in ("|+|", "|-|") else "")
        code.add(f"p4w_{word}({place.c}.b, {left.c}.b, {right.c}.b, {of.width});")
        return True

    def _joined(self, place: Lvalue, of: Wide, e: tree.Binary, frame: FunctionFrame) -> None:
        result = frame.name("t")  # a part may be what is being written
        frame.code.add(f"{self.context.types.struct(of)} {result} = {{0}};")
        at = 8 * of.bytes - of.width
        for part in parts_joined(e):
            width = number(part.type).width
            text = (
                self.operand(part, frame).c
                if isinstance(form(part.type), Wide)
                else self.context.expressions.value(part, frame)
            )
            frame.code.add(store_bits(f"{result}.b", at, width, text))
            at += width
        frame.code.add(f"{place.c} = {result};")

    def order(self, e: tree.Binary, of: Wide, frame: FunctionFrame) -> str:
        """C expression for <, >, <=, >= of long numbers."""
        left = self.operand(e.left, frame, e.right)
        right = self.operand(e.right, frame)
        return f"(p4w_compare({left.c}.b, {right.c}.b, {of.width}, {int(of.signed)}) {e.op} 0)"

    def store_slice(self, place: Lvalue, whole: Wide, target: tree.Slice, text: str, frame: FunctionFrame) -> None:
        """Put a C value, or the variable of a long one, in the place of some bits of a long number."""
        if target.width is not None:
            unsupported(target.where, f"writing [... +: ...] of {target.base.type}", "known ends are")
        at = 8 * whole.bytes - 1 - target.high.const
        frame.code.add(store_bits(f"{place.c}.b", at, number(target.type).width, text))

    KINDS: ClassVar[Mapping[type[tree.Expr], Callable[[WideEmitter, Lvalue, Wide, Any, FunctionFrame], bool]]] = {
        tree.Cast: _cast,
        tree.Unary: _unary,
        tree.Binary: _binary,
        tree.Slice: _slice,
    }
    """Nodes that compute a number; all others choose one or name one."""


def wide_constant(e: tree.Expr, of: Wide) -> str:
    """The initializer of a long number known at compile time."""
    value = e.type.number(e.const) if isinstance(e.type, EnumType) and isinstance(e.const, str) else int(e.const)
    data = (value & (1 << of.width) - 1).to_bytes(of.bytes, "big")
    return f"{{{{{', '.join(hex(one) for one in data)}}}}}"
