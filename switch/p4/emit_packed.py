"""Values laid out as bits: what hashes, checksums and digests take."""

from __future__ import annotations

from switch.p4 import tree
from switch.p4.check_calls import data_fields, is_data
from switch.p4.code import bits_of, c_name
from switch.p4.emit_bits import store_bits
from switch.p4.emit_expr import ExprEmitter
from switch.p4.emit_frame import Frame, Place, parts_of
from switch.p4.errors import Location, unsupported
from switch.p4.types import INT, MAX_BITS, Record, Stack, Tuple, Type, Varbit, Wide, form


class PackedEmitter(ExprEmitter):
    """Lays values out in buffers."""

    def packed(self, data: list[tree.Expr], frame: Frame, buffer: str) -> int | str:
        """Write statements that lay out values, most significant bit first, in `buffer`; returns its bytes (C)."""
        leaves: list[tuple[str, int | Varbit]] = []
        for e in data:
            for leaf, of in data_fields(e):
                assert leaf is not None
                if of == INT:
                    unsupported(leaf.where, "a number without a width here", "write 8w1, say")
                if not is_data(of):
                    unsupported(leaf.where, f"a {of} as data of a hash")
                self._leaves(leaf, of, frame, leaves)
        fixed = [bits for _, bits in leaves if isinstance(bits, int)]
        if len(fixed) < len(leaves):
            return self._packed_varbits(leaves, frame, buffer)
        total = sum(fixed)
        size = (total + 7) // 8
        clear = "" if total == 0 or all(bits % 8 == 0 for bits in fixed) else " = {0}"
        frame.code.add(f"uint8_t {buffer}[{max(size, 1)}]{clear};")
        at = 0
        for (text, _), bits in zip(leaves, fixed, strict=True):
            frame.code.add(store_bits(buffer, at, bits, text))
            at += bits
        return size

    @staticmethod
    def _packed_varbits(leaves: list[tuple[str, int | Varbit]], frame: Frame, buffer: str) -> str:
        """The same where a varbit field makes the places of what follows it known at run time only."""
        most = sum(bits if isinstance(bits, int) else bits.width for _, bits in leaves)
        at = frame.name("bits")
        frame.code.add(f"uint8_t {buffer}[{(most + 7) // 8}] = {{0}};", f"uint32_t {at} = 0;")
        for text, bits in leaves:
            if isinstance(bits, int):
                put = f"p4w_put({buffer}, {at}, {bits}, {text}.b);" if bits > MAX_BITS else ""
                frame.code.add(put or f"p4_put_bits({buffer}, {at}, {bits}, {text});", f"{at} += {bits};")
                continue
            byte = frame.name("i")
            frame.code.open(f"for (uint32_t {byte} = 0; {byte} < {text}.bits / 8u; {byte}++, {at} += 8)")
            frame.code.add(f"p4_put_bits({buffer}, {at}, 8, {text}.bytes[{byte}]);")
            frame.code.depth -= 1
        return f"({at} + 7) / 8"

    def padded(self, e: tree.Expr, of: Type, frame: Frame, buffer: str) -> int:
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

    def _padded(self, e: tree.Expr, of: Type, frame: Frame, out: list[tuple[str, int]]) -> None:
        base = form(of)
        if isinstance(e, tree.Path) and isinstance(e.decl, tree.Const):
            self._padded(e.decl.value, of, frame, out)
        elif isinstance(base, (Record, Tuple)) and isinstance(e, (tree.ListExpr, tree.RecordExpr)):
            parts = list(base.fields.values()) if isinstance(base, Record) else list(base.items)
            named = dict(e.items) if isinstance(e, tree.RecordExpr) else {}
            items = [named[one] for one in base.fields] if named and isinstance(base, Record) else list(e.items)
            if isinstance(base, Record) and base.kind == "header":
                out.append(("1", 8))
            for item, part in zip(items, parts, strict=True):
                self._padded(item, part, frame, out)
        elif isinstance(base, (Record, Wide)):
            place = self.place(e, frame)
            self.note(place, False)
            self._padded_place(place, e.where, out)
        elif of == INT:
            unsupported(e.where, "a number without a width here", "write 8w1, say")
        else:
            out.append((self.value(e, frame), bits_of(of, e.where)))

    def _padded_place(self, place: Place, where: Location, out: list[tuple[str, int]]) -> None:
        record = form(place.type)
        if not isinstance(record, Record):
            out.append((place.c, record.width if isinstance(record, Wide) else bits_of(place.type, where)))
            return
        if record.kind == "header":
            out.append((f"{place.c}.is_valid", 8))
        for name, of in record.fields.items():
            self._padded_place(Place(f"{place.c}.{c_name(name)}", of, ""), where, out)

    def _leaves(self, e: tree.Expr, of: Type, frame: Frame, out: list[tuple[str, int | Varbit]]) -> None:
        if not isinstance(form(of), (Record, Stack, Varbit, Wide)):
            out.append((self.value(e, frame), bits_of(of, e.where)))
            return
        place = self.place(e, frame)
        self.note(place, False)
        self._spread(place, e.where, out)

    def _spread(self, place: Place, where: Location, out: list[tuple[str, int | Varbit]]) -> None:
        record = form(place.type)
        if isinstance(record, Varbit):
            out.append((place.c, record))
        elif isinstance(record, Wide):
            out.append((place.c, record.width))
        elif isinstance(record, (Record, Stack)):
            for one in parts_of(place):
                self._spread(one, where, out)
        else:
            out.append((place.c, bits_of(place.type, where)))
