"""Values laid out as bits: what hashes, checksums and digests take."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from mrc_testbed.switch.compiler.backend.code import bits_of, c_name
from mrc_testbed.switch.compiler.backend.emit_bits import store_bits
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_expr import ExpressionEmitter
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, parts_of
from mrc_testbed.switch.compiler.backend.emit_places import PlaceEmitter
from mrc_testbed.switch.compiler.errors import Location, unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.check_calls import data_fields, is_data
from mrc_testbed.switch.compiler.sema.types import INT, MAX_BITS, Record, Stack, Tuple, Type, Varbit, Wide, form


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
    places: PlaceEmitter
    expressions: ExpressionEmitter

    def packed(self, data: list[tree.Expr], frame: FunctionFrame, buffer: str, *, copied: bool = False) -> int | str:
        """Write statements that lay out values, most significant bit first, in `buffer`; returns its bytes (C).

        Fields of headers that are not valid are left out, as BMv2 does it; what is computed from such a field is not.
        `copied`: nor is a field given by itself, for p4c gives BMv2 copies of the arguments; whole headers are.
        """
        leaves: list[_Leaf] = []
        for e in data:
            for leaf, of in data_fields(e):
                assert leaf is not None
                if of == INT:
                    unsupported(leaf.where, "a number without a width here", "write 8w1, say")
                if not is_data(of):
                    unsupported(leaf.where, f"a {of} as data of a hash")
                self._leaves(leaf, of, frame, leaves, copied)
        most = (sum(one.bits if one.varbit is None else one.varbit.width for one in leaves) + 7) // 8
        headers = list(dict.fromkeys(one.valid for one in leaves if one.valid))
        if any(one.varbit for one in leaves):
            frame.code.add(f"uint8_t {buffer}[{most}] = {{0}};")
            return self._packed_some(leaves, frame, buffer)
        clear = "" if most == 0 or all(one.bits % 8 == 0 for one in leaves) else " = {0}"
        frame.code.add(f"uint8_t {buffer}[{max(most, 1)}]{clear};")
        if not headers:
            self._packed_all(leaves, frame, buffer)
            return most
        size = frame.name("size")
        frame.code.add(f"uint32_t {size} = {most};")
        frame.code.open(f"if ({' && '.join(headers)}) {{")
        self._packed_all(leaves, frame, buffer)
        frame.code.close("} else {")
        frame.code.depth += 1
        frame.code.add(f"{size} = {self._packed_some(leaves, frame, buffer)};")
        frame.code.close()
        return size

    @staticmethod
    def _packed_all(leaves: list[_Leaf], frame: FunctionFrame, buffer: str) -> None:
        """Every value has its place."""
        at = 0
        for leaf in leaves:
            frame.code.add(store_bits(buffer, at, leaf.bits, leaf.c))
            at += leaf.bits

    @staticmethod
    def _packed_some(leaves: list[_Leaf], frame: FunctionFrame, buffer: str) -> str:
        """Places known at run time only, behind varbit fields and fields left out; returns the bytes (C)."""
        code, at = frame.code, frame.name("bits")
        whole = all(one.bits % 8 == 0 for one in leaves)
        code.add(f"uint32_t {at} = 0;")
        for valid, group in groupby(leaves, key=lambda one: one.valid):
            if valid:
                code.open(f"if ({valid}) {{")
            for one in group:
                if one.varbit is not None:
                    byte = frame.name("i")
                    code.open(f"for (uint32_t {byte} = 0; {byte} < {one.c}.bits / 8u; {byte}++, {at} += 8)")
                    code.add(f"p4_put_bits({buffer}, {at}, 8, {one.c}.bytes[{byte}]);")
                    code.depth -= 1
                    continue
                if whole:
                    code.add(store_bits(f"({buffer} + {at} / 8)", 0, one.bits, one.c))
                elif one.bits > MAX_BITS:
                    code.add(f"p4w_put({buffer}, {at}, {one.bits}, {one.c}.b);")
                else:
                    code.add(f"p4_put_bits({buffer}, {at}, {one.bits}, {one.c});")
                code.add(f"{at} += {one.bits};")
            if valid:
                code.close()
        return f"({at} + 7) / 8"

    def padded(self, e: tree.Expr, of: Type, frame: FunctionFrame, buffer: str) -> int:
        """Write statements that lay out a value for the control plane (typespec.py) in `buffer`; returns its bytes."""
        leaves: list[tuple[str, int]] = []
        self._padded(e, of, frame, leaves)
        size = sum((bits + 7) // 8 for _, bits in leaves)
        frame.code.add(f"uint8_t {buffer}[{max(size, 1)}];")
        at = 0
        for text, bits in leaves:
            width = (bits + 7) // 8 * 8
            frame.code.add(store_bits(buffer, at, width, text))
            at += width
        return size

    def _padded(self, e: tree.Expr, of: Type, frame: FunctionFrame, out: list[tuple[str, int]]) -> None:
        base = form(of)
        if isinstance(e, tree.PathExpression) and isinstance(e.decl, tree.Const):
            self._padded(e.decl.value, of, frame, out)
        elif isinstance(base, (Record, Tuple)) and isinstance(e, (tree.ListExpr, tree.RecordExpr)):
            parts = list(base.fields.values()) if isinstance(base, Record) else list(base.items)
            items = list(e.items if isinstance(e, tree.ListExpr) else dict(e.items).values())
            if isinstance(e, tree.RecordExpr) and isinstance(base, Record) and e.items:
                named = dict(e.items)
                items = [named[field] for field in base.fields]
            if isinstance(base, Record) and base.kind == "header":
                out.append(("1", 8))
            for item, part in zip(items, parts, strict=True):
                self._padded(item, part, frame, out)
        elif isinstance(base, (Record, Wide)):
            place = self.places.place(e, frame)
            self.context.usage.note(place, False)
            self._padded_place(place, e.where, out)
        elif of == INT:
            unsupported(e.where, "a number without a width here", "write 8w1, say")
        else:
            out.append((self.expressions.value(e, frame), bits_of(of, e.where)))

    def _padded_place(self, place: Lvalue, where: Location, out: list[tuple[str, int]]) -> None:
        record = form(place.type)
        if not isinstance(record, Record):
            out.append((place.c, record.width if isinstance(record, Wide) else bits_of(place.type, where)))
            return
        if record.kind == "header":
            out.append((f"{place.c}.is_valid", 8))
        for name, field in record.fields.items():
            self._padded_place(Lvalue(f"{place.c}.{c_name(name)}", field, ""), where, out)

    def _leaves(self, e: tree.Expr, of: Type, frame: FunctionFrame, out: list[_Leaf], copied: bool) -> None:
        in_place = isinstance(e, (tree.PathExpression, tree.Member, tree.Index)) and e.const is None
        by_itself = in_place and _is_part(e) and not copied
        if not isinstance(form(of), (Record, Stack, Varbit, Wide)) and not by_itself:
            out.append(_Leaf(self.expressions.value(e, frame), bits_of(of, e.where)))
            return
        place = self.places.place(e, frame)
        self.context.usage.note(place, False)
        self._spread(place, e.where, out)

    def _spread(self, place: Lvalue, where: Location, out: list[_Leaf]) -> None:
        record = form(place.type)
        if isinstance(record, Varbit):
            out.append(_Leaf(place.c, 0, place.valid, record))
        elif isinstance(record, Wide):
            out.append(_Leaf(place.c, record.width, place.valid))
        elif isinstance(record, (Record, Stack)):
            for part in parts_of(place):
                self._spread(part, where, out)
        else:
            out.append(_Leaf(place.c, bits_of(place.type, where), place.valid))


def _is_part(e: tree.Expr) -> bool:
    """Is it a part of a header?"""
    while isinstance(e, (tree.Member, tree.Index)):
        base = form(e.base.type)
        if isinstance(e, tree.Member) and isinstance(base, Stack):
            return False  # lastIndex, size
        if isinstance(base, Record) and base.kind == "header":
            return True
        e = e.base
    return False
