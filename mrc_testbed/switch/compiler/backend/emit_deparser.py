"""The deparser -> C.

It stores only fields that the program writes. When the headers sent are those parsed, in that order and place, it
patches the frame; otherwise it builds the new headers aside and puts them in front of the payload. A deparser that does
more than emit (conditions, variables) always builds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from mrc_testbed.switch.compiler.backend.code import Code, c_comment
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue
from mrc_testbed.switch.compiler.backend.emit_functions import CALL, SIGNATURE, FunctionEmitter
from mrc_testbed.switch.compiler.backend.emit_packet_out import EmittedHeader, PacketOutEmitter
from mrc_testbed.switch.compiler.frontend import tree


@dataclass(eq=False, repr=False)
class DeparserEmitter:
    """Writes deparse(), and what it needs."""

    context: EmitContext
    packet_out: PacketOutEmitter
    functions: FunctionEmitter

    def deparse(self, bindings: dict[int, Lvalue]) -> None:
        """Write the deparser's C function."""
        decl = self.context.program.deparser.decl
        assert decl.body is not None
        simple = not decl.locals and all(_only_emits(statement) for statement in decl.body.body)
        if simple:
            self._write_patching_deparser(self._emitted_headers(bindings))
        else:
            self._write_building_deparser(bindings)

    def _emitted_headers(self, bindings: dict[int, Lvalue]) -> list[EmittedHeader]:
        """The headers that may be sent, in order."""
        decl = self.context.program.deparser.decl
        assert decl.body is not None
        frame = FunctionFrame(Code(), dict(bindings), self.context.program.deparser, "deparser")
        out: list[EmittedHeader] = []
        for statement in decl.body.body:
            if isinstance(statement, tree.CallStatement):
                self.packet_out.headers_of(statement.call.callee.args[0][1], statement.call, frame, out)
        return out

    # ---- only emits: in place if possible

    def _write_patching_deparser(self, headers: list[EmittedHeader]) -> None:
        decl = self.context.program.deparser.decl
        code = Code()
        code.add(f"/* {c_comment(decl.location.short_text)}: control {decl.name} */")
        code.add(f"static void deparse({SIGNATURE})")
        code.open("{")
        code.add("uint8_t *frame = pkt->data;", "uint32_t at = 0;", "int same = 1;", "(void)dev, (void)v;")
        for header in headers:
            code.open(f"if ({header.lvalue.c}.is_valid) {{")
            code.add(f"same &= {header.lvalue.c}.at == at;", f"at += {header.size};")
            code.close()
        code.open("if (same && at == p->parsed) {")
        for header in headers:
            code.add_deferred(partial(self._patch_lines, header))
        code.add("return;")
        code.close()
        total = sum(header.shape.max_bytes for header in headers)
        code.add(f"uint8_t block[{max(total, 1)}];", "", "at = 0;")
        for header in headers:
            self.packet_out.append(header, "block", "at", code)
        code.add("replace_headers(pkt, p, block, at);")
        code.close()
        self.context.functions += [_replace_headers(), code]

    def _patch_lines(self, header: EmittedHeader) -> list[str]:
        lines = self.packet_out.stores(header, f"(frame + {header.lvalue.c}.at)")
        return [f"if ({header.lvalue.c}.is_valid) {{", *("    " + line for line in lines), "}"] if lines else []

    # ---- any deparser: a control that builds the headers

    def _write_building_deparser(self, bindings: dict[int, Lvalue]) -> None:
        self.packet_out.sending, self.packet_out.sent_bytes = True, 0
        function = self.functions.control(self.context.program.deparser, bindings, "deparser")
        self.packet_out.sending = False
        self.context.variables += [("uint8_t", f"block[{max(self.packet_out.sent_bytes, 1)}]"), ("uint32_t", "sent")]
        code = Code()
        code.add(f"static void deparse({SIGNATURE})")
        code.open("{")
        code.add("v->sent = 0;", f"{function}({CALL});", "replace_headers(pkt, p, v->block, v->sent);")
        code.close()
        self.context.functions += [_replace_headers(), code]


def _only_emits(s: Any) -> bool:
    if isinstance(s, tree.Empty):
        return True
    if not isinstance(s, tree.CallStatement) or s.call.callee.name != "emit":
        return False
    pending = [s.call.callee.args[0][1]]
    while pending:
        e = pending.pop()
        if isinstance(e, tree.ListExpr):
            pending += e.items
        elif isinstance(e, tree.Index) and e.index.const is None:
            return False
        elif isinstance(e, (tree.Member, tree.Index)):
            pending.append(e.base)
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
