"""Calls of packet_out.emit -> C. Only fields that the program writes are stored; the rest is copied from the frame."""

from __future__ import annotations

from dataclasses import dataclass, field

from mrc_testbed.switch.compiler.backend.code import Code, c_name
from mrc_testbed.switch.compiler.backend.emit_bits import scalar_leaves, store_bits
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, parts_of
from mrc_testbed.switch.compiler.backend.emit_headers import HeaderShape, header_shape
from mrc_testbed.switch.compiler.backend.emit_places import PlaceEmitter
from mrc_testbed.switch.compiler.errors import fail
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.types import Record, Stack, Varbit, form


@dataclass(frozen=True)
class EmittedHeader:
    """A header that a deparser may send."""

    place: Lvalue
    record: Record
    shape: HeaderShape

    @property
    def size(self) -> str:
        """C expression for its bytes."""
        return self.shape.size_text(self.place.c)


@dataclass(eq=False, repr=False)
class PacketOutEmitter:
    """Finds the headers that an emit sends, and writes C that puts them in a block."""

    context: EmitContext
    places: PlaceEmitter
    sending: bool = field(default=False, init=False)
    """Is a deparser that does more than emit being written?"""
    sent_bytes: int = field(default=0, init=False)
    """Of all headers that it may send."""

    def call(self, e: tree.Call, frame: FunctionFrame) -> None:
        """emit, in a deparser that does more than emit."""
        headers: list[EmittedHeader] = []
        self.headers_of(e.callee.args[0][1], e, frame, headers)
        for header in headers:
            self.sent_bytes += header.shape.most
            frame.code.open(f"if (v->sent + {header.size} <= sizeof v->block) {{")
            self.append(header, "v->block", "v->sent", frame.code)
            frame.code.close()

    def headers_of(self, e: tree.Expr, call: tree.Call, frame: FunctionFrame, out: list[EmittedHeader]) -> None:
        """The headers in the argument of an emit."""
        if isinstance(e, (tree.ListExpr, tree.RecordExpr)):
            for one in e.items:
                self.headers_of(one[1] if isinstance(one, tuple) else one, call, frame, out)
            return
        self._headers_at(self.places.place(e, frame), call, out)

    def _headers_at(self, place: Lvalue, call: tree.Call, out: list[EmittedHeader]) -> None:
        record = form(place.type)
        if not isinstance(record, (Record, Stack)):
            fail(call.where, f"emit needs a header, a stack or a struct of headers, not a {place.type}")
        if isinstance(record, Record) and record.kind == "header":
            self.context.usage.note_valid(place)
            out.append(EmittedHeader(place, record, header_shape(record, call)))
            return
        for part in parts_of(place):
            self._headers_at(part, call, out)

    def append(self, one: EmittedHeader, block: str, at: str, code: Code) -> None:
        """Put a valid header behind those in `block`: its bytes in the frame, with what was written stored over."""
        place = one.place
        code.open(f"if ({place.c}.is_valid) {{")
        code.open(f"if ({place.c}.at == P4_AT_NONE)")
        code.add(f"memset({block} + {at}, 0, {one.size});")
        code.close("else")
        code.depth += 1
        code.add(f"memcpy({block} + {at}, pkt->data + {place.c}.at, {one.size});")
        code.depth -= 1
        code.late(lambda: self.stores(one, f"({block} + {at})"))
        code.add(f"{at} += {one.size};")
        code.close()

    def stores(self, one: EmittedHeader, base: str) -> list[str]:
        """Lines that store the written fields of a header at `base`."""
        lines, offset = [], 0
        for name, of in one.record.fields.items():
            c = f"{one.place.c}.{c_name(name)}"
            if isinstance(form(of), Varbit):
                lines.append(f"memcpy({base} + {offset // 8}, {c}.bytes, {c}.bits / 8);")
                base = f"({base} + {c}.bits / 8)"
                continue
            for leaf, bits in scalar_leaves(c, of, self.context.program.main.where):
                if (one.place.key, name) in self.context.usage.writes:
                    lines.append(store_bits(base, offset, bits, leaf))
                offset += bits
        return lines
