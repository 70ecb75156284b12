"""Calls of packet_out.emit -> C.

Only fields that the program writes are stored; the rest is copied from the frame.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mrc_testbed.switch.compiler.backend.code import Code, c_name
from mrc_testbed.switch.compiler.backend.emit_bits import scalar_leaves, store_bits
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, parts_of
from mrc_testbed.switch.compiler.backend.emit_headers import HeaderShape, header_shape
from mrc_testbed.switch.compiler.backend.emit_lvalues import LvalueEmitter
from mrc_testbed.switch.compiler.errors import fail
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.types import Record, Stack, Varbit, form


@dataclass(frozen=True)
class EmittedHeader:
    """A header that a deparser may send."""

    lvalue: Lvalue
    record: Record
    shape: HeaderShape

    @property
    def size(self) -> str:
        """C expression for its bytes."""
        return self.shape.size_text(self.lvalue.c)


@dataclass(eq=False, repr=False)
class PacketOutEmitter:
    """Finds the headers that an emit sends, and writes C that puts them in a block."""

    context: EmitContext
    lvalues: LvalueEmitter
    sending: bool = field(default=False, init=False)
    """Whether the deparser being written does more than emit."""
    sent_bytes: int = field(default=0, init=False)
    """Maximum bytes of all headers that the deparser may send."""

    def call(self, e: tree.Call, frame: FunctionFrame) -> None:
        """emit, in a deparser that does more than emit."""
        headers: list[EmittedHeader] = []
        self.headers_of(e.callee.args[0][1], e, frame, headers)
        for header in headers:
            self.sent_bytes += header.shape.max_bytes
            frame.code.open(f"if (v->sent + {header.size} <= sizeof v->block) {{")
            self.append(header, "v->block", "v->sent", frame.code)
            frame.code.close()

    def headers_of(self, e: tree.Expr, call: tree.Call, frame: FunctionFrame, out: list[EmittedHeader]) -> None:
        """The headers in the argument of an emit."""
        if isinstance(e, (tree.ListExpr, tree.RecordExpr)):
            for item in e.items:
                self.headers_of(item[1] if isinstance(item, tuple) else item, call, frame, out)
            return
        self._headers_at(self.lvalues.lvalue(e, frame), call, out)

    def _headers_at(self, lvalue: Lvalue, call: tree.Call, out: list[EmittedHeader]) -> None:
        record = form(lvalue.type)
        if not isinstance(record, (Record, Stack)):
            fail(call.location, f"emit needs a header, a stack or a struct of headers, not a {lvalue.type}")
        if isinstance(record, Record) and record.kind == "header":
            self.context.usage.note_valid(lvalue)
            out.append(EmittedHeader(lvalue, record, header_shape(record, call)))
            return
        for part in parts_of(lvalue):
            self._headers_at(part, call, out)

    def append(self, header: EmittedHeader, block: str, offset: str, code: Code) -> None:
        """Append a valid header to `block`: its bytes in the frame, with the written fields stored over."""
        lvalue = header.lvalue
        code.open(f"if ({lvalue.c}.is_valid) {{")
        code.open(f"if ({lvalue.c}.at == P4_AT_NONE)")
        code.add(f"memset({block} + {offset}, 0, {header.size});")
        code.close("else")
        code.depth += 1
        code.add(f"memcpy({block} + {offset}, pkt->data + {lvalue.c}.at, {header.size});")
        code.depth -= 1
        code.add_deferred(lambda: self.stores(header, f"({block} + {offset})"))
        code.add(f"{offset} += {header.size};")
        code.close()

    def stores(self, header: EmittedHeader, base: str) -> list[str]:
        """Lines that store the written fields of a header at `base`."""
        lines, offset = [], 0
        for name, field_type in header.record.fields.items():
            c = f"{header.lvalue.c}.{c_name(name)}"
            if isinstance(form(field_type), Varbit):
                lines.append(f"memcpy({base} + {offset // 8}, {c}.bytes, {c}.bits / 8);")
                base = f"({base} + {c}.bits / 8)"
                continue
            for leaf, bits in scalar_leaves(c, field_type, self.context.program.main.location):
                if (header.lvalue.key, name) in self.context.usage.writes:
                    lines.append(store_bits(base, offset, bits, leaf))
                offset += bits
        return lines
