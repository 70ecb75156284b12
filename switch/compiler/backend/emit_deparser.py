"""The deparser -> C.

It stores only fields that the program writes. When the headers sent are those parsed, in that order and place, it
patches the frame; otherwise it builds the new headers aside and puts them in front of the payload. A deparser that does
more than emit (conditions, variables) always builds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from switch.compiler.backend.code import Code, c_comment, c_name
from switch.compiler.backend.emit_bits import scalar_leaves, store_bits
from switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, parts_of
from switch.compiler.backend.emit_parser import HeaderShape, Parsers, header_shape
from switch.compiler.backend.emit_stmt import CALL, SIGNATURE
from switch.compiler.errors import fail
from switch.compiler.frontend import tree
from switch.compiler.sema.types import Record, Stack, Varbit, form


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


class Deparsers(Parsers):
    """Writes deparse(), and what follows it."""

    sending: bool = False
    """Is a deparser that does more than emit being written?"""

    def deparser(self, bindings: dict[int, Lvalue]) -> None:
        """Write deparse()."""
        decl = self.program.deparser.decl
        assert decl.body is not None
        simple = not decl.locals and all(_only_emits(one) for one in decl.body.body)
        if simple:
            self._patching(self._emitted(bindings))
        else:
            self._building(bindings)

    def _emitted(self, bindings: dict[int, Lvalue]) -> list[EmittedHeader]:
        """The headers that may be sent, in order."""
        decl = self.program.deparser.decl
        assert decl.body is not None
        frame = FunctionFrame(Code(), dict(bindings), self.program.deparser, "deparser")
        out: list[EmittedHeader] = []
        for one in decl.body.body:
            if isinstance(one, tree.CallStatement):
                self._headers_of(one.call.callee.args[0][1], one.call, frame, out)
        return out

    def _headers_of(self, e: tree.Expr, call: tree.Call, frame: FunctionFrame, out: list[EmittedHeader]) -> None:
        """The headers in the argument of an emit."""
        if isinstance(e, (tree.ListExpr, tree.RecordExpr)):
            for one in e.items:
                self._headers_of(one[1] if isinstance(one, tuple) else one, call, frame, out)
            return
        self._headers_at(self.place(e, frame), call, out)

    def _headers_at(self, place: Lvalue, call: tree.Call, out: list[EmittedHeader]) -> None:
        record = form(place.type)
        if not isinstance(record, (Record, Stack)):
            fail(call.where, f"emit needs a header, a stack or a struct of headers, not a {place.type}")
        if isinstance(record, Record) and record.kind == "header":
            self.note_valid(place)
            out.append(EmittedHeader(place, record, header_shape(record, call)))
            return
        for one in parts_of(place):
            self._headers_at(one, call, out)

    # ---- only emits: in place if possible

    def _patching(self, headers: list[EmittedHeader]) -> None:
        decl = self.program.deparser.decl
        code = Code()
        code.add(f"/* {c_comment(decl.where.short)}: control {decl.name} */")
        code.add(f"static void deparse({SIGNATURE})")
        code.open("{")
        code.add("uint8_t *frame = pkt->data;", "uint32_t at = 0;", "int same = 1;", "(void)dev, (void)v;")
        for one in headers:
            code.open(f"if ({one.place.c}.is_valid) {{")
            code.add(f"same &= {one.place.c}.at == at;", f"at += {one.size};")
            code.close()
        code.open("if (same && at == p->parsed) {")
        for one in headers:
            code.late(lambda one=one: self._patched(one))
        code.add("return;")
        code.close()
        total = sum(one.shape.most for one in headers)
        code.add(f"uint8_t block[{max(total, 1)}];", "", "at = 0;")
        for one in headers:
            self._append(one, "block", "at", code)
        code.add("replace_headers(pkt, p, block, at);")
        code.close()
        self.functions += [_replace_headers(), code]

    def _patched(self, one: EmittedHeader) -> list[str]:
        lines = self._stores(one, f"(frame + {one.place.c}.at)")
        return [f"if ({one.place.c}.is_valid) {{", *("    " + line for line in lines), "}"] if lines else []

    def _append(self, one: EmittedHeader, block: str, at: str, code: Code) -> None:
        """Put a valid header behind those in `block`: its bytes in the frame, with what was written stored over."""
        place = one.place
        code.open(f"if ({place.c}.is_valid) {{")
        code.open(f"if ({place.c}.at == P4_AT_NONE)")
        code.add(f"memset({block} + {at}, 0, {one.size});")
        code.close("else")
        code.depth += 1
        code.add(f"memcpy({block} + {at}, pkt->data + {place.c}.at, {one.size});")
        code.depth -= 1
        code.late(lambda: self._stores(one, f"({block} + {at})"))
        code.add(f"{at} += {one.size};")
        code.close()

    def _stores(self, one: EmittedHeader, base: str) -> list[str]:
        """Lines that store the written fields of a header at `base`."""
        lines, offset = [], 0
        for name, of in one.record.fields.items():
            c = f"{one.place.c}.{c_name(name)}"
            if isinstance(form(of), Varbit):
                lines.append(f"memcpy({base} + {offset // 8}, {c}.bytes, {c}.bits / 8);")
                base = f"({base} + {c}.bits / 8)"
                continue
            for leaf, bits in scalar_leaves(c, of, self.program.main.where):
                if (one.place.key, name) in self.usage.writes:
                    lines.append(store_bits(base, offset, bits, leaf))
                offset += bits
        return lines

    # ---- any deparser: a control that builds the headers

    def _building(self, bindings: dict[int, Lvalue]) -> None:
        self.sending, self.sent_bytes = True, 0
        function = self.control_function(self.program.deparser, bindings, "deparser")
        self.sending = False
        self.variables += [("uint8_t", f"block[{max(self.sent_bytes, 1)}]"), ("uint32_t", "sent")]
        code = Code()
        code.add(f"static void deparse({SIGNATURE})")
        code.open("{")
        code.add("v->sent = 0;", f"{function}({CALL});", "replace_headers(pkt, p, v->block, v->sent);")
        code.close()
        self.functions += [_replace_headers(), code]

    def packet_call(self, e: tree.Call, frame: FunctionFrame) -> None:
        if not self.sending or e.callee.name != "emit":
            super().packet_call(e, frame)
            return
        headers: list[EmittedHeader] = []
        self._headers_of(e.callee.args[0][1], e, frame, headers)
        for one in headers:
            self.sent_bytes += one.shape.most
            frame.code.open(f"if (v->sent + {one.size} <= sizeof v->block) {{")
            self._append(one, "v->block", "v->sent", frame.code)
            frame.code.close()


def _only_emits(s: Any) -> bool:
    if isinstance(s, tree.Empty):
        return True
    if not isinstance(s, tree.CallStatement) or s.call.callee.name != "emit":
        return False
    todo = [s.call.callee.args[0][1]]
    while todo:
        e = todo.pop()
        if isinstance(e, tree.ListExpr):
            todo += e.items
        elif isinstance(e, tree.Index) and e.index.const is None:
            return False
        elif isinstance(e, (tree.Member, tree.Index)):
            todo.append(e.base)
        elif not isinstance(e, tree.PathExpression):
            return False
    return True


def _replace_headers() -> Code:
    code = Code()
    code.add("/* `at` bytes of headers in `block` take the place of those that were parsed. */")
    code.add(
        "static void replace_headers(struct p4rt_packet *pkt, const struct phv *p, const uint8_t *block, uint32_t at)"
    )
    code.open("{")
    code.add("uint32_t old = p->parsed;", "")
    code.open("if (at > old && (at - old > pkt->headroom || pkt->len + (at - old) > P4RT_MAX_FRAME)) {")
    code.add("pkt->std.egress_spec = P4RT_DROP_PORT;", "return;")
    code.close()
    code.add(
        "pkt->data = pkt->data + old - at;",
        "pkt->len = pkt->len + at - old;",
        "pkt->headroom = pkt->headroom + old - at;",
        "memcpy(pkt->data, block, at);",
    )
    code.close()
    return code
