"""Parser and deparser -> C.

The parser loads from the frame only the header fields that the program uses; the rest of a header stays where it is.
The deparser stores only fields that the program writes. When the headers sent are those parsed, in that order and
place, it patches the frame; otherwise it builds the new headers aside and puts them in front of the payload.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from switch.p4 import tree
from switch.p4.code import Code, bits_of, c_comment, c_name, c_string, c_type, c_word, where_string
from switch.p4.emit_expr import Frame, Place, element_of, load_bits, parts_of, store_bits
from switch.p4.emit_stmt import SIGNATURE
from switch.p4.emit_tables import Tables
from switch.p4.errors import fail, unsupported
from switch.p4.p4info import source_text
from switch.p4.scope import field_place
from switch.p4.types import BOOL, Bits, Record, Stack, Type, is_scalar, plain, width_of

MAX_STEPS = 256
"""States a parser with a cycle may enter before it fails with ParserTimeout."""


class Parsers(Tables):
    """Writes parse() and deparse()."""

    def parse_function(self, bindings: dict[int, Place]) -> None:
        parser = self.program.parser
        code = Code()
        frame = Frame(code, dict(bindings), None, "parser", at_exit="goto done;", in_parser=True)
        code.add(f"/* {c_comment(parser.where.short)}: parser {parser.name} */")
        code.add(f"static void parse({SIGNATURE})")
        code.open("{")
        code.add("(void)dev, (void)v;")
        code.add("const uint8_t *frame = pkt->data;", "uint32_t at = 0, len = pkt->len;", "uint32_t error = 0;")
        cyclic = _has_cycle(parser)
        if cyclic:
            code.add("unsigned steps = 0;")
        for one in parser.locals:
            if isinstance(one, tree.Var):
                self._st_var(one, frame)
        states = {one.name: one for one in parser.states or []}
        code.add("goto state_start;")
        for name in _reachable(states):
            self._state_body(states[name], frame, cyclic)
        code.depth -= 1
        code.add("done:")
        code.depth += 1
        code.add("p->parsed = (uint16_t)at;", "pkt->std.parser_error = error;")
        code.add(f"P4_PARSED({where_string(parser.where)}, error);")
        code.close()
        self.functions.append(code)

    def _state_body(self, state: tree.State, frame: Frame, cyclic: bool) -> None:
        code = frame.code
        code.depth -= 1
        code.add(f"state_{c_word(state.name)}: /* {c_comment(state.where.short)} */")
        code.depth += 1
        code.open("{")
        if cyclic:
            code.open(f"if (++steps > {MAX_STEPS}) {{")
            code.add("error = P4_ERROR_ParserTimeout;", "goto done;")
            code.close()
        code.add(f"P4_STATE({c_string(state.name)}, {where_string(state.where)});")
        for one in state.body:
            self.statement(one, frame)
        self._transition(state, frame)
        code.close()

    def _transition(self, state: tree.State, frame: Frame) -> None:
        code, after = frame.code, state.transition
        if after is None:
            self._goto("reject", frame)
            return
        if after.state is not None:
            self._goto(after.state, frame)
            return
        names = []
        for one in after.keys:
            name = frame.name("key")
            of = c_type(bits_of(one.type, one.where))
            code.add(f"{of} {name} = {self.condition(one, frame)};")
            names.append((name, one.type))
        for case in after.cases:
            test = self._matches(case, names)
            if test is None:
                self._goto(case.state, frame)
                return
            code.open(f"if ({test}) {{")
            self._goto(case.state, frame)
            code.close()
        code.add("error = P4_ERROR_NoMatch;", "goto done;")

    def _matches(self, case: tree.SelectCase, names: list[tuple[str, Type]]) -> str | None:
        """C test for a row of a select; None when it always matches."""
        if len(case.keys) == 1 and isinstance(case.keys[0], tree.DontCare):
            return None
        tests = []
        for e, (name, of) in zip(case.keys, names, strict=False):
            if isinstance(e, tree.DontCare):
                continue
            if isinstance(e, tree.Mask):
                mask = e.mask.const & e.value.type.wrap(-1) if isinstance(e.value.type, Bits) else e.mask.const
                e.value.const &= mask
                tests.append(f"({name} & {self.constant(e.mask)}) == {self.constant(e.value)}")
            elif isinstance(e, tree.Range):
                if isinstance(plain(of), Bits) and plain(of).signed:  # type: ignore[union-attr]
                    unsupported(e.where, "a range of int<N>")
                tests.append(f"{name} >= {self.constant(e.low)} && {name} <= {self.constant(e.high)}")
            else:
                tests.append(f"{name} == {self.constant(e)}")
        return " && ".join(tests) or None

    @staticmethod
    def _goto(name: str, frame: Frame) -> None:
        """reject without an error set: v1model goes on to the ingress either way."""
        frame.code.add("goto done;" if name in ("accept", "reject") else f"goto state_{c_word(name)};")

    # ---- packet_in

    def packet_call(self, e: tree.Call, frame: Frame) -> None:
        if not frame.in_parser or str(e.callee.base.type) != "packet_in":
            unsupported(e.where, f"{e.callee.name} here")
        args = [arg for _, arg in e.callee.args]
        if e.callee.name == "extract":
            if len(args) != 1:
                unsupported(e.where, "extract into a varbit field")
            self._extract(e, args[0], frame)
        elif e.callee.name == "advance":
            self._advance(e, args[0], frame)
        elif e.callee.name == "lookahead":
            frame.code.add(f"(void){self.function_value(e, frame)};")

    def last_or_next(self, stack: Place, e: tree.Member, frame: Frame) -> Place:
        """In a parser, `next` beyond the last element and `last` of an empty stack end it with an error."""
        of = plain(stack.type)
        assert isinstance(of, Stack)
        if not frame.in_parser:
            unsupported(e.where, f"`{e.name}` of a header stack outside a parser", "use an index")
        last = e.name == "last"
        frame.code.open(f"if ({stack.c}.next == 0) {{" if last else f"if ({stack.c}.next >= {of.size}) {{")
        frame.code.add("error = P4_ERROR_StackOutOfBounds;", "goto done;")
        frame.code.close()
        index = f"{stack.c}.next - 1" if last else f"{stack.c}.next"
        return replace(element_of(stack, 0), c=f"{stack.c}.h[{index}]", shared=False)

    def _extract(self, e: tree.Call, target: tree.Expr, frame: Frame) -> None:
        record = plain(target.type)
        if not isinstance(record, Record) or record.kind != "header":
            fail(e.where, f"extract needs a header, not a {target.type}")
        size = header_bytes(record, e)
        if isinstance(target, tree.DontCare):
            self._need(size, frame)
            frame.code.add(f"at += {size};")
            return
        place = self.place(target, frame)
        self.note_valid(place)
        code = frame.code
        self._need(size, frame)
        code.add(f"P4_EXTRACT({c_string(source_text(target))}, {where_string(e.where)}, at, {size});")
        code.add(f"{place.c}.is_valid = 1;", f"{place.c}.at = (uint16_t)at;")

        def loads() -> list[str]:
            used, lines, offset = set(self.usage.touched(place.key)), [], 0
            for name, of in record.fields.items():
                bits = bits_of(of, e.where)
                if name in used:
                    lines.append(f"{place.c}.{c_name(name)} = {load_bits('(frame + at)', offset, bits)};")
                offset += bits
            return lines

        code.late(loads)
        code.add(f"at += {size};")
        if isinstance(target, tree.Member) and isinstance(target.base.type, Stack) and target.name == "next":
            code.add(f"{self.place(target.base, frame).c}.next++;")

    @staticmethod
    def _need(size: int, frame: Frame) -> None:
        frame.code.open(f"if (len - at < {size}) {{")
        frame.code.add("error = P4_ERROR_PacketTooShort;", "goto done;")
        frame.code.close()

    def _advance(self, e: tree.Call, bits: tree.Expr, frame: Frame) -> None:
        code = frame.code
        if bits.const is not None and bits.const % 8:
            unsupported(e.where, f"advance by {bits.const} bits", "whole bytes are")
        code.open("{")
        code.add(f"uint32_t skip = {self.value(bits, frame)};")
        code.open("if (skip % 8) {")
        code.add("error = P4_ERROR_ParserInvalidArgument;", "goto done;")
        code.close()
        code.open("if (len - at < skip / 8) {")
        code.add("error = P4_ERROR_PacketTooShort;", "goto done;")
        code.close()
        code.add("at += skip / 8;")
        code.close()

    def _fn_verify(self, e: tree.Call, args: list[tree.Expr], frame: Frame) -> None:
        if not frame.in_parser:
            fail(e.where, "verify can be called only in a parser")
        frame.code.open(f"if (!{self.value(args[0], frame)}) {{")
        frame.code.add(f"error = {self.value(args[1], frame)};", "goto done;")
        frame.code.close()

    def function_value(self, e: tree.Call, frame: Frame) -> str:
        if not frame.in_parser or e.callee.kind != "method":
            return super().function_value(e, frame)
        if e.callee.name == "length":
            return "len"
        if e.callee.name != "lookahead" or not is_scalar(e.type):
            unsupported(e.where, f"{e.callee.name} of {e.type}")
        bits = bits_of(e.type, e.where)
        self._need((bits + 7) // 8, frame)
        result = frame.name("ahead")
        frame.code.add(f"{c_type(bits)} {result} = {load_bits('(frame + at)', 0, bits)};")
        return result

    def record_call(self, place: Place, e: tree.Call, frame: Frame) -> None:
        """place = lookahead of a header or struct."""
        if not frame.in_parser or e.callee.kind != "method" or e.callee.name != "lookahead":
            unsupported(e.where, f"{e.callee.name} here")
        leaves: list[tuple[Place, int]] = []
        self._fixed_leaves(place, e, leaves)
        self._need((sum(bits for _, bits in leaves) + 7) // 8, frame)
        self.note_whole(place, True)
        offset = 0
        for one, bits in leaves:
            if not bits:
                frame.code.add(f"{one.c}.is_valid = 1;", f"{one.c}.at = P4_AT_NONE;")
                continue
            frame.code.add(f"{one.c} = {load_bits('(frame + at)', offset, bits)};")
            offset += bits

    def _fixed_leaves(self, place: Place, e: tree.Call, out: list[tuple[Place, int]]) -> None:
        """The fields of a place with their bits, in order; a header stands before its fields, with 0 bits."""
        record = plain(place.type)
        if isinstance(record, (Record, Stack)):
            if isinstance(record, Record) and record.kind == "header":
                out.append((place, 0))
            for one in parts_of(place):
                self._fixed_leaves(one, e, out)
            return
        out.append((place, bits_of(place.type, e.where)))

    # ---- deparser

    def emitted(self, bindings: dict[int, Place]) -> list[tuple[Place, Record, int]]:
        """The headers a deparser may send, in order: (place, type, bytes)."""
        decl = self.program.deparser.decl
        assert decl.body is not None
        frame = Frame(Code(), dict(bindings), self.program.deparser, "deparser")
        out: list[tuple[Place, Record, int]] = []
        for one in decl.body.body:
            if isinstance(one, tree.Empty):
                continue
            call = one.call if isinstance(one, tree.CallStatement) else None
            if call is None or call.callee.name != "emit":
                where = one.where if not isinstance(one, tree.Block) else decl.where
                unsupported(where, "a statement other than emit in a deparser")
            self._emit(call.callee.args[0][1], call, frame, out)
        for one in decl.locals:
            unsupported(one.where, "a declaration in a deparser")
        return out

    def _emit(self, e: tree.Expr, call: tree.Call, frame: Frame, out: list[Any]) -> None:
        if not isinstance(e, (tree.Path, tree.Member, tree.Index)):
            unsupported(e.where, "emit of a list")
        self._emit_place(self.place(e, frame), call, out)

    def _emit_place(self, place: Place, call: tree.Call, out: list[Any]) -> None:
        record = plain(place.type)
        if not isinstance(record, (Record, Stack)):
            fail(call.where, f"emit needs a header, a stack or a struct of headers, not a {place.type}")
        if isinstance(record, Record) and record.kind == "header":
            self.note_valid(place)
            out.append((place, record, header_bytes(record, call)))
            return
        for one in parts_of(place):
            self._emit_place(one, call, out)

    def deparse_function(self, headers: list[tuple[Place, Record, int]]) -> None:
        """deparse(): patches the frame in place, or rebuilds its headers."""
        decl = self.program.deparser.decl
        code = Code()
        total = sum(size for _, _, size in headers)
        code.add(f"/* {c_comment(decl.where.short)}: control {decl.name} */")
        code.add("static void deparse(struct p4rt_packet *pkt, struct phv *p)")
        code.open("{")
        code.add("uint8_t *frame = pkt->data;", "uint32_t at = 0;", "int same = 1;")
        for place, _, size in headers:
            code.open(f"if ({place.c}.is_valid) {{")
            code.add(f"same &= {place.c}.at == at;", f"at += {size};")
            code.close()
        code.open("if (same && at == p->parsed) {")
        for place, record, _ in headers:
            code.late(lambda place=place, record=record: self._patch(place, record, f"(frame + {place.c}.at)", True))
        code.add("return;")
        code.close()
        code.add(f"uint8_t block[{max(total, 1)}];", "uint32_t old = p->parsed;", "at = 0;")
        for place, record, size in headers:
            code.open(f"if ({place.c}.is_valid) {{")
            code.open(f"if ({place.c}.at == P4_AT_NONE)")
            code.add(f"memset(block + at, 0, {size});")
            code.close("else")
            code.depth += 1
            code.add(f"memcpy(block + at, frame + {place.c}.at, {size});")
            code.depth -= 1
            code.late(lambda place=place, record=record: self._patch(place, record, "(block + at)", False))
            code.add(f"at += {size};")
            code.close()
        code.open("if (at > old && (at - old > pkt->headroom || pkt->len + (at - old) > P4RT_MAX_FRAME)) {")
        code.add("pkt->std.egress_spec = P4RT_DROP_PORT;", "return;")
        code.close()
        code.add(
            "pkt->data = frame + old - at;",
            "pkt->len = pkt->len + at - old;",
            "pkt->headroom = pkt->headroom + old - at;",
            "memcpy(pkt->data, block, at);",
        )
        code.close()
        self.functions.append(code)

    def _patch(self, place: Place, record: Record, base: str, check: bool) -> list[str]:
        """Lines that store the written fields of a header at `base`."""
        lines, offset = [], 0
        for name, of in record.fields.items():
            bits = bits_of(of, self.program.main.where)
            if (place.key, name) in self.usage.writes:
                lines.append(store_bits(base, offset, bits, f"{place.c}.{c_name(name)}"))
            offset += bits
        if not check or not lines:
            return lines
        return [f"if ({place.c}.is_valid) {{", *("    " + one for one in lines), "}"]


def header_bytes(record: Record, e: tree.Expr) -> int:
    """Bytes of a header. Raises P4Error for headers that are not whole bytes, and for varbit."""
    for name, of in record.fields.items():
        if not isinstance(plain(of), Bits) and plain(of) != BOOL:
            unsupported(field_place(record, name), "varbit")
    bits = width_of(record) or 0
    if bits % 8:
        fail(e.where, f"header {record} has {bits} bits: only whole bytes can be sent and received")
    return bits // 8


def _targets(state: tree.State) -> list[str]:
    after = state.transition
    if after is None:
        return []
    return [after.state] if after.state is not None else [one.state for one in after.cases]


def _reachable(states: dict[str, tree.State]) -> list[str]:
    """States that can be entered, start first, in the order of the source."""
    seen, todo = set(), ["start"]
    while todo:
        name = todo.pop()
        if name in states and name not in seen:
            seen.add(name)
            todo += _targets(states[name])
    return ["start", *(name for name in states if name in seen and name != "start")]


def _has_cycle(parser: tree.Parser) -> bool:
    states = {one.name: one for one in parser.states or []}
    done: set[str] = set()
    path: list[str] = []

    def visit(name: str) -> bool:
        if name in path:
            return True
        if name in done or name not in states:
            return False
        path.append(name)
        found = any(visit(one) for one in _targets(states[name]))
        path.pop()
        done.add(name)
        return found

    return visit("start")
