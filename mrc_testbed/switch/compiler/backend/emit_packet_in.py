"""Calls of packet_in, and the other externs that only a parser has -> C.

Only the header fields that the program uses are loaded from the frame.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrc_testbed.switch.compiler.backend.code import bits_of, c_name, c_string, c_type, location_string
from mrc_testbed.switch.compiler.backend.emit_bits import load_bits, load_field, scalar_leaves
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_expr import ExpressionEmitter
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, parts_of
from mrc_testbed.switch.compiler.backend.emit_headers import HeaderShape, header_shape, invalidate_siblings
from mrc_testbed.switch.compiler.backend.emit_lvalues import LvalueEmitter
from mrc_testbed.switch.compiler.errors import fail, raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.p4info.p4info import source_text
from mrc_testbed.switch.compiler.sema.types import Record, Stack, Varbit, WideBits, form, is_scalar, width_of


@dataclass(eq=False, repr=False)
class PacketInEmitter:
    """Writes extract, advance, lookahead, length and verify."""

    context: EmitContext
    lvalues: LvalueEmitter
    expressions: ExpressionEmitter

    def call(self, e: tree.Call, frame: FunctionFrame) -> None:
        """A call of packet_in as a statement; packet_out has its own writer, for deparsers."""
        if not frame.in_parser or str(e.callee.base.type) != "packet_in":
            raise_unsupported(e.location, f"{e.callee.name} here")
        args = [arg for _, arg in e.callee.args]
        if e.callee.name == "extract":
            self._extract(e, args[0], args[1] if len(args) > 1 else None, frame)
        elif e.callee.name == "advance":
            self._advance(e, args[0], frame)
        elif e.callee.name == "lookahead":
            bits = width_of(e.type)
            if bits is None:
                raise_unsupported(e.location, f"lookahead of {e.type}")
            self._need((bits + 7) // 8, frame)  # nothing is taken; a packet too short ends the parser all the same

    def _extract(self, e: tree.Call, target: tree.Expr, length: tree.Expr | None, frame: FunctionFrame) -> None:
        """extract(header), and extract(header, bits of its varbit field)."""
        record = form(target.type)
        if not isinstance(record, Record) or record.kind != "header":
            fail(e.location, f"extract needs a header, not a {target.type}")
        shape = header_shape(record, e)
        if (length is not None) != (shape.varbit is not None):
            have = "has no varbit field" if length is not None else f"has a varbit field, {shape.varbit}"
            fail(
                e.location,
                f"header {record} {have}: extract takes {'1 argument' if length is not None else '2 arguments'}",
            )
        code = frame.code
        if length is not None:
            code.open("{")
            self._varbit_length(length, frame)
        size = f"{shape.fixed_bytes} + varbits / 8" if length is not None else str(shape.fixed_bytes)
        lvalue = (
            None if isinstance(target, tree.DontCare) else self.lvalues.lvalue(target, frame)
        )  # a full stack comes first
        self._need(size, frame)
        if length is not None:
            self._varbit_fits(shape, frame)
        if lvalue is not None:
            self._extract_into(lvalue, record, shape, e, size, frame)
        code.add(f"at += {size};")
        stack = _next_of(target)
        if stack is not None:
            code.add(f"{self.lvalues.lvalue(stack, frame).c}.next++;")
        if length is not None:
            code.close()

    def _extract_into(
        self, lvalue: Lvalue, record: Record, shape: HeaderShape, e: tree.Call, size: str, frame: FunctionFrame
    ) -> None:
        code = frame.code
        self.context.usage.note_valid(lvalue)
        name = c_string(source_text(e.callee.args[0][1]))
        code.add(f"P4_EXTRACT({name}, {location_string(e.location)}, at, {size});")
        code.add(f"{lvalue.c}.is_valid = 1;")
        invalidate_siblings(lvalue, frame)
        if shape.varbit:
            # its length may change before it is sent: it is sent from its fields, not from the frame
            self.context.usage.note_whole(lvalue, True)
            code.add(f"{lvalue.c}.at = P4_AT_NONE;")
        else:
            code.add(f"{lvalue.c}.at = (uint16_t)at;")

        def loads() -> list[str]:
            used_fields, lines, offset, base = set(self.context.usage.used_fields(lvalue.key)), [], 0, "(frame + at)"
            for field, field_type in record.fields.items():
                c = f"{lvalue.c}.{c_name(field)}"
                if isinstance(form(field_type), Varbit):
                    lines.append(f"{c}.bits = varbits;")
                    lines.append(f"memcpy({c}.bytes, {base} + {offset // 8}, varbits / 8);")
                    base = "(frame + at + varbits / 8)"
                    continue
                for leaf, bits in scalar_leaves(c, field_type, e.location):
                    if field in used_fields:
                        lines.append(load_field(leaf, base, offset, bits))
                    offset += bits
            return lines

        code.add_deferred(loads)

    def _varbit_length(self, length: tree.Expr, frame: FunctionFrame) -> None:
        """Take the length of an extract: whole bytes. Errors in the order of P4_16 §12.8.2."""
        code = frame.code
        code.add(f"uint32_t varbits = {self.expressions.condition(length, frame)};")
        code.open("if (varbits % 8) {")
        code.add("error = P4_ERROR_ParserInvalidArgument;", frame.at_exit)
        code.close()

    @staticmethod
    def _varbit_fits(shape: HeaderShape, frame: FunctionFrame) -> None:
        frame.code.open(f"if (varbits > {shape.varbit_bits}) {{")
        frame.code.add("error = P4_ERROR_HeaderTooShort;", frame.at_exit)
        frame.code.close()

    @staticmethod
    def _need(size: int | str, frame: FunctionFrame) -> None:
        frame.code.open(f"if (len - at < {size}) {{")
        frame.code.add("error = P4_ERROR_PacketTooShort;", frame.at_exit)
        frame.code.close()

    def _advance(self, e: tree.Call, bits: tree.Expr, frame: FunctionFrame) -> None:
        code = frame.code
        if bits.const is not None and bits.const % 8:
            raise_unsupported(e.location, f"advance by {bits.const} bits", "whole bytes are")
        code.open("{")
        code.add(f"uint32_t skip = {self.expressions.value(bits, frame)};")
        code.open("if (skip % 8) {")
        code.add("error = P4_ERROR_ParserInvalidArgument;", frame.at_exit)
        code.close()
        code.open("if (len - at < skip / 8) {")
        code.add("error = P4_ERROR_PacketTooShort;", frame.at_exit)
        code.close()
        code.add("at += skip / 8;")
        code.close()

    def verify(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        """Write what P4's verify does: its arguments are a condition and an error."""
        if not frame.in_parser:
            fail(e.location, "verify can be called only in a parser")
        frame.code.open(f"if (!{self.expressions.value(args[0], frame)}) {{")
        frame.code.add(f"error = {self.expressions.value(args[1], frame)};", frame.at_exit)
        frame.code.close()

    def value(self, e: tree.Call, frame: FunctionFrame) -> str:
        """C expression for lookahead of a scalar, and for length."""
        if e.callee.name == "length":
            return "len"
        if e.callee.name != "lookahead" or not is_scalar(e.type):
            raise_unsupported(e.location, f"{e.callee.name} of {e.type}")
        bits = bits_of(e.type, e.location)
        self._need((bits + 7) // 8, frame)
        result = frame.name("ahead")
        frame.code.add(f"{c_type(bits)} {result} = {load_bits('(frame + at)', 0, bits)};")
        return result

    def record(self, lvalue: Lvalue, e: tree.Call, frame: FunctionFrame) -> None:
        """place = lookahead of a header or struct."""
        if not frame.in_parser or e.callee.kind != "method" or e.callee.name != "lookahead":
            raise_unsupported(e.location, f"{e.callee.name} here")
        leaves: list[tuple[Lvalue, int]] = []
        self._fixed_leaves(lvalue, e, leaves)
        self._need((sum(bits for _, bits in leaves) + 7) // 8, frame)
        self.context.usage.note_whole(lvalue, True)
        offset = 0
        for leaf, bits in leaves:
            if not bits:
                frame.code.add(f"{leaf.c}.is_valid = 1;", f"{leaf.c}.at = P4_AT_NONE;")
                continue
            frame.code.add(load_field(leaf.c, "(frame + at)", offset, bits))
            offset += bits

    def _fixed_leaves(self, lvalue: Lvalue, e: tree.Call, out: list[tuple[Lvalue, int]]) -> None:
        """The fields of a place with their bits, in order; a header stands before its fields, with 0 bits."""
        record = form(lvalue.type)
        if isinstance(record, (Record, Stack)):
            if isinstance(record, Record) and record.kind == "header":
                out.append((lvalue, 0))
            for part in parts_of(lvalue):
                self._fixed_leaves(part, e, out)
            return
        out.append((lvalue, record.width if isinstance(record, WideBits) else bits_of(lvalue.type, e.location)))


def _next_of(e: tree.Expr) -> tree.Expr | None:
    """The stack in `stack.next` and `stack.next.member`; None for other expressions."""
    while isinstance(e, tree.Member):
        if isinstance(e.base.type, Stack) and e.name == "next":
            return e.base
        e = e.base
    return None
