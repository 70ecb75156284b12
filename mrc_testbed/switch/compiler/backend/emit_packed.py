"""Values laid out as bits: what hashes, checksums and digests take."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from mrc_testbed.switch.compiler.backend.code import bits_of, c_name
from mrc_testbed.switch.compiler.backend.emit_bits import store_bits
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_expr import ExpressionEmitter
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, parts_of
from mrc_testbed.switch.compiler.backend.emit_lvalues import LvalueEmitter
from mrc_testbed.switch.compiler.errors import Location, raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.check_calls import data_fields, is_data
from mrc_testbed.switch.compiler.sema.types import INT, MAX_BITS, Record, Stack, Tuple, Type, Varbit, WideBits, form


@dataclass(frozen=True)
class _Leaf:
    """A value to be laid out: a C expression of so many bits, or of a varbit field."""

    c: str
    bits: int
    valid: str = ""
    """C condition: the header that it is a field of is valid."""
    varbit: Varbit | None = None


@dataclass(eq=False, repr=False)
class PackedEmitter:
    """Lays values out in buffers."""

    context: EmitContext
    lvalues: LvalueEmitter
    expressions: ExpressionEmitter

    def pack(self, data: list[tree.Expr], frame: FunctionFrame, buffer: str, *, copied: bool = False) -> int | str:
        """Write statements that lay out values in `buffer`, most significant bit first; return its bytes (C).

        Fields of headers that are not valid are left out, as BMv2 does it; what is computed from such a field is not.
        `copied`: nor is a field given by itself, for p4c gives BMv2 copies of the arguments; whole headers are.
        """
        leaves: list[_Leaf] = []
        for e in data:
            for leaf, p4_type in data_fields(e):
                assert leaf is not None
                if p4_type == INT:
                    raise_unsupported(leaf.location, "a number without a width here", "write 8w1, say")
                if not is_data(p4_type):
                    raise_unsupported(leaf.location, f"a {p4_type} as data of a hash")
                self._leaves(leaf, p4_type, frame, leaves, copied)
        max_bytes = (
            sum(packed_leaf.bits if packed_leaf.varbit is None else packed_leaf.varbit.width for packed_leaf in leaves)
            + 7
        ) // 8
        headers = list(dict.fromkeys(packed_leaf.valid for packed_leaf in leaves if packed_leaf.valid))
        if any(packed_leaf.varbit for packed_leaf in leaves):
            frame.code.add(f"uint8_t {buffer}[{max_bytes}] = {{0}};")
            return self._pack_present(leaves, frame, buffer)
        clear = "" if max_bytes == 0 or all(packed_leaf.bits % 8 == 0 for packed_leaf in leaves) else " = {0}"
        frame.code.add(f"uint8_t {buffer}[{max(max_bytes, 1)}]{clear};")
        # Without headers every leaf has a fixed offset; with them, invalid ones are left out at run time.
        if not headers:
            self._pack_all(leaves, frame, buffer)
            return max_bytes
        size = frame.name("size")
        frame.code.add(f"uint32_t {size} = {max_bytes};")
        frame.code.open(f"if ({' && '.join(headers)}) {{")
        self._pack_all(leaves, frame, buffer)
        frame.code.close("} else {")
        frame.code.depth += 1
        frame.code.add(f"{size} = {self._pack_present(leaves, frame, buffer)};")
        frame.code.close()
        return size

    @staticmethod
    def _pack_all(leaves: list[_Leaf], frame: FunctionFrame, buffer: str) -> None:
        """Every value has its place."""
        offset = 0
        for leaf in leaves:
            frame.code.add(store_bits(buffer, offset, leaf.bits, leaf.c))
            offset += leaf.bits

    @staticmethod
    def _pack_present(leaves: list[_Leaf], frame: FunctionFrame, buffer: str) -> str:
        """Places known at run time only, behind varbit fields and fields left out; returns the bytes (C)."""
        code, offset = frame.code, frame.name("bits")
        byte_aligned = all(leaf.bits % 8 == 0 for leaf in leaves)
        code.add(f"uint32_t {offset} = 0;")
        for valid, group in groupby(leaves, key=lambda leaf: leaf.valid):
            if valid:
                code.open(f"if ({valid}) {{")
            for leaf in group:
                if leaf.varbit is not None:
                    byte = frame.name("i")
                    code.open(f"for (uint32_t {byte} = 0; {byte} < {leaf.c}.bits / 8u; {byte}++, {offset} += 8)")
                    code.add(f"p4_put_bits({buffer}, {offset}, 8, {leaf.c}.bytes[{byte}]);")
                    code.depth -= 1
                    continue
                if byte_aligned:
                    code.add(store_bits(f"({buffer} + {offset} / 8)", 0, leaf.bits, leaf.c))
                elif leaf.bits > MAX_BITS:
                    code.add(f"p4w_put({buffer}, {offset}, {leaf.bits}, {leaf.c}.b);")
                else:
                    code.add(f"p4_put_bits({buffer}, {offset}, {leaf.bits}, {leaf.c});")
                code.add(f"{offset} += {leaf.bits};")
            if valid:
                code.close()
        return f"({offset} + 7) / 8"

    def pack_padded(self, e: tree.Expr, p4_type: Type, frame: FunctionFrame, buffer: str) -> int:
        """Write statements that lay out a value for the control plane (typespec.py); return its bytes."""
        leaves: list[tuple[str, int]] = []
        self._padded_leaves(e, p4_type, frame, leaves)
        size = sum((bits + 7) // 8 for _, bits in leaves)
        frame.code.add(f"uint8_t {buffer}[{max(size, 1)}];")
        offset = 0
        for text, bits in leaves:
            width = (bits + 7) // 8 * 8
            frame.code.add(store_bits(buffer, offset, width, text))
            offset += width
        return size

    def _padded_leaves(self, e: tree.Expr, p4_type: Type, frame: FunctionFrame, out: list[tuple[str, int]]) -> None:
        base = form(p4_type)
        if isinstance(e, tree.PathExpression) and isinstance(e.decl, tree.Const):
            self._padded_leaves(e.decl.value, p4_type, frame, out)
        elif isinstance(base, (Record, Tuple)) and isinstance(e, (tree.ListExpr, tree.RecordExpr)):
            parts = list(base.fields.values()) if isinstance(base, Record) else list(base.items)
            items = list(e.items if isinstance(e, tree.ListExpr) else dict(e.items).values())
            if isinstance(e, tree.RecordExpr) and isinstance(base, Record) and e.items:
                values_by_name = dict(e.items)
                items = [values_by_name[field] for field in base.fields]
            if isinstance(base, Record) and base.kind == "header":
                out.append(("1", 8))
            for item, part in zip(items, parts, strict=True):
                self._padded_leaves(item, part, frame, out)
        elif isinstance(base, (Record, WideBits)):
            lvalue = self.lvalues.lvalue(e, frame)
            self.context.usage.note(lvalue, False)
            self._padded_lvalue(lvalue, e.location, out)
        elif p4_type == INT:
            raise_unsupported(e.location, "a number without a width here", "write 8w1, say")
        else:
            out.append((self.expressions.value(e, frame), bits_of(p4_type, e.location)))

    def _padded_lvalue(self, lvalue: Lvalue, location: Location, out: list[tuple[str, int]]) -> None:
        record = form(lvalue.type)
        if not isinstance(record, Record):
            out.append((lvalue.c, record.width if isinstance(record, WideBits) else bits_of(lvalue.type, location)))
            return
        if record.kind == "header":
            out.append((f"{lvalue.c}.is_valid", 8))
        for name, field in record.fields.items():
            self._padded_lvalue(Lvalue(f"{lvalue.c}.{c_name(name)}", field, ""), location, out)

    def _leaves(self, e: tree.Expr, p4_type: Type, frame: FunctionFrame, out: list[_Leaf], copied: bool) -> None:
        in_place = isinstance(e, (tree.PathExpression, tree.Member, tree.Index)) and e.const is None
        by_itself = in_place and _is_part(e) and not copied
        if not isinstance(form(p4_type), (Record, Stack, Varbit, WideBits)) and not by_itself:
            out.append(_Leaf(self.expressions.value(e, frame), bits_of(p4_type, e.location)))
            return
        lvalue = self.lvalues.lvalue(e, frame)
        self.context.usage.note(lvalue, False)
        self._spread(lvalue, e.location, out)

    def _spread(self, lvalue: Lvalue, location: Location, out: list[_Leaf]) -> None:
        record = form(lvalue.type)
        if isinstance(record, Varbit):
            out.append(_Leaf(lvalue.c, 0, lvalue.valid, record))
        elif isinstance(record, WideBits):
            out.append(_Leaf(lvalue.c, record.width, lvalue.valid))
        elif isinstance(record, (Record, Stack)):
            for part in parts_of(lvalue):
                self._spread(part, location, out)
        else:
            out.append(_Leaf(lvalue.c, bits_of(lvalue.type, location), lvalue.valid))


def _is_part(e: tree.Expr) -> bool:
    """Return whether an expression names a part of a header."""
    while isinstance(e, (tree.Member, tree.Index)):
        base = form(e.base.type)
        if isinstance(e, tree.Member) and isinstance(base, Stack):
            return False  # lastIndex, size
        if isinstance(base, Record) and base.kind == "header":
            return True
        e = e.base
    return False
