"""The parser -> C. It loads from the frame only the header fields that the program uses; the rest stays where it is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from switch.compiler.backend.code import (
    Code,
    bits_of,
    c_comment,
    c_name,
    c_string,
    c_type,
    c_word,
    where_string,
)
from switch.compiler.backend.emit_bits import field_bits, load_bits, load_field, scalar_leaves
from switch.compiler.backend.emit_calls import as_written
from switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, element_of, parts_of
from switch.compiler.backend.emit_stmt import SIGNATURE
from switch.compiler.backend.emit_tables import TableEmitter
from switch.compiler.backend.emit_wide import wide_constant
from switch.compiler.errors import fail, unsupported
from switch.compiler.frontend import tree
from switch.compiler.p4info.p4info import source_text
from switch.compiler.sema.elaborate import ControlInstance, ValueSetInstance
from switch.compiler.sema.scope import field_place
from switch.compiler.sema.types import Bits, Record, Stack, Type, Varbit, Wide, form, is_scalar, width_of

MAX_STEPS = 256
"""States a parser with a cycle may enter before it fails with ParserTimeout."""


class Parsers(TableEmitter):
    """Writes parse()."""

    def parse_function(self, bindings: dict[int, Lvalue]) -> None:
        parser = self.program.parser
        code = Code()
        frame = FunctionFrame(
            code, dict(bindings), self.program.parsing, "parser", at_exit="goto done;", in_parser=True
        )
        code.add(f"/* {c_comment(parser.where.short)}: parser {parser.name} */")
        code.add(f"static void parse({SIGNATURE})")
        code.open("{")
        code.add("(void)dev, (void)v;")
        code.add("const uint8_t *frame = pkt->data;", "uint32_t at = 0, len = pkt->len;", "uint32_t error = 0;")
        code.add("unsigned steps = 0;", "(void)steps, (void)frame, (void)len;")
        self._states(parser, frame)
        code.depth -= 1
        code.add("done:")
        code.depth += 1
        code.add("p->parsed = (uint16_t)at;", "pkt->std.parser_error = error;")
        code.add(f"P4_PARSED({where_string(parser.where)}, error);")
        code.close()
        self.functions.append(code)

    def _states(self, parser: tree.Parser, frame: FunctionFrame) -> None:
        """The local variables and states of a parser; it ends at frame.accept or by frame.at_exit."""
        for one in parser.locals:
            if isinstance(one, tree.Var):
                self._st_var(one, frame)
        states = {one.name: one for one in parser.states or []}
        cyclic = _has_cycle(parser)
        frame.code.add(f"goto state_{frame.labels}start;")
        for name in _reachable(states):
            self._state_body(states[name], frame, cyclic)

    def _call_parser(self, e: tree.Call, frame: FunctionFrame) -> None:
        """Apply a sub-parser: its states stand here once more, with labels of their own."""
        assert frame.control is not None and isinstance(e.callee.base, tree.PathExpression)
        inner: ControlInstance = frame.control.members[id(e.callee.base.decl)]
        given = zip(inner.decl.params, (arg for _, arg in e.callee.args), strict=True)
        pairs = [(param, arg) for param, arg in given if str(param.type) != "packet_in"]
        bindings, after = self.bound_arguments(inner, as_written(e, pairs), frame)
        self.applied += 1
        labels = f"{self.applied}_"
        code = frame.code
        code.add(f"{{ /* {c_comment(inner.decl.where.short)}: parser {inner.decl.name}, as {c_comment(inner.name)} */")
        code.depth += 1
        inside = FunctionFrame(code, bindings, inner, "parser", at_exit=frame.at_exit, in_parser=True, labels=labels)
        inside.accept = f"accept_{self.applied}"
        rejected = f"rejected_{self.applied}"
        if after:
            inside.at_exit = f"goto {rejected};"
            code.add(f"int is_{rejected} = 0;")
        self._states(inner.decl, inside)
        code.depth -= 1
        if after:  # what was parsed before a reject is copied out, too: BMv2 deparses it
            code.add(f"{rejected}: is_{rejected} = 1;")
        code.add(f"{inside.accept}: ;")
        code.depth += 1
        for arg, copy in after:
            self.note_whole(copy, False)
            self.store(arg, copy.c, frame)
        if after:
            code.add(f"if (is_{rejected})", f"    {frame.at_exit}")
        code.close()

    applied = 0

    def _state_body(self, state: tree.State, frame: FunctionFrame, cyclic: bool) -> None:
        code = frame.code
        code.depth -= 1
        code.add(f"state_{frame.labels}{c_word(state.name)}: /* {c_comment(state.where.short)} */")
        code.depth += 1
        code.open("{")
        if cyclic:
            code.open(f"if (++steps > {MAX_STEPS}) {{")
            code.add("error = P4_ERROR_ParserTimeout;", frame.at_exit)
            code.close()
        code.add(f"P4_STATE({c_string(state.name)}, {where_string(state.where)});")
        for one in state.body:
            self.statement(one, frame)
        self._transition(state, frame)
        code.close()

    def _transition(self, state: tree.State, frame: FunctionFrame) -> None:
        code, after = frame.code, state.transition
        if after is None:
            self._goto("reject", frame)
            return
        if after.state is not None:
            self._goto(after.state, frame)
            return
        names = []
        for one in after.keys:
            if isinstance(form(one.type), Wide):
                names.append((self.temporary_place(one, frame).c, one.type))
                continue
            name = frame.name("key")
            of = c_type(bits_of(one.type, one.where))
            code.add(f"{of} {name} = {self.condition(one, frame)};")
            names.append((name, one.type))
        for case in after.cases:
            first = case.keys[0]
            if isinstance(first, tree.PathExpression) and isinstance(first.decl, tree.ValueSet):
                test: str | None = self._in_value_set(first, names, frame)
            else:
                test = self._matches(case, names)
            if test is None:
                self._goto(case.state, frame)
                return
            code.open(f"if ({test}) {{")
            self._goto(case.state, frame)
            code.close()
        code.add("error = P4_ERROR_NoMatch;", frame.at_exit)

    def _matches(self, case: tree.SelectCase, names: list[tuple[str, Type]]) -> str | None:
        """C test for a row of a select; None when it always matches."""
        if len(case.keys) == 1 and isinstance(case.keys[0], tree.DontCare):
            return None
        tests = []
        for e, (name, of) in zip(case.keys, names, strict=False):
            if isinstance(e, tree.DontCare):
                continue
            wide = form(of)
            if isinstance(wide, Wide):
                tests.append(self._wide_match(e, name, wide))
                continue
            if isinstance(e, tree.Mask):
                mask = e.mask.const & e.value.type.wrap(-1) if isinstance(e.value.type, Bits) else e.mask.const
                e.value.const &= mask
                tests.append(f"({name} & {self.constant(e.mask)}) == {self.constant(e.value)}")
            elif isinstance(e, tree.Range):
                if isinstance(form(of), Bits) and form(of).signed:  # type: ignore[union-attr]
                    unsupported(e.where, "a range of int<N>")
                tests.append(f"{name} >= {self.constant(e.low)} && {name} <= {self.constant(e.high)}")
            else:
                tests.append(f"{name} == {self.constant(e)}")
        return " && ".join(tests) or None

    def _wide_match(self, e: tree.Expr, name: str, of: Wide) -> str:
        """C test: does a key of more than 128 bits match?"""

        def constant(one: tree.Expr) -> str:
            return f"({self.struct(of)}){wide_constant(one, of)}.b"

        if isinstance(e, tree.Mask):
            e.value.const &= e.mask.const
            return f"p4w_matches({name}.b, {constant(e.value)}, {constant(e.mask)}, {of.width})"
        if isinstance(e, tree.Range):
            sizes = f"{of.width}, {int(of.signed)}"
            low, high = (f"p4w_compare({name}.b, {constant(one)}, {sizes})" for one in (e.low, e.high))
            return f"{low} >= 0 && {high} <= 0"
        return f"!memcmp({name}.b, {constant(e)}, {of.bytes})"

    def _in_value_set(self, e: tree.PathExpression, names: list[tuple[str, Type]], frame: FunctionFrame) -> str:
        """C test: do the keys, together, match a member? A value_set is a table without actions."""
        assert frame.control is not None
        found: ValueSetInstance = frame.control.members[id(e.decl)]
        key = frame.name("words")
        size = self.key_words([(name, field_bits(of, e.where)) for name, of in names], key, frame)
        index = len(self.program.tables) + found.index
        return f"p4rt_apply(dev, {index} /* {c_comment(found.name)} */, {key}, {size}, pkt)->hit"

    @staticmethod
    def _goto(name: str, frame: FunctionFrame) -> None:
        """reject without an error set: v1model goes on to the ingress either way."""
        if name == "reject":
            frame.code.add(frame.at_exit)
            return
        label = frame.accept if name == "accept" else f"state_{frame.labels}{c_word(name)}"
        frame.code.add(f"goto {label};")

    # ---- packet_in

    def packet_call(self, e: tree.Call, frame: FunctionFrame) -> None:
        if not frame.in_parser or str(e.callee.base.type) != "packet_in":
            unsupported(e.where, f"{e.callee.name} here")
        args = [arg for _, arg in e.callee.args]
        if e.callee.name == "extract":
            self._extract(e, args[0], args[1] if len(args) > 1 else None, frame)
        elif e.callee.name == "advance":
            self._advance(e, args[0], frame)
        elif e.callee.name == "lookahead":
            bits = width_of(e.type)
            if bits is None:
                unsupported(e.where, f"lookahead of {e.type}")
            self._need((bits + 7) // 8, frame)  # nothing is taken; a packet too short ends the parser all the same

    def out_of_bounds(self, when: str, frame: FunctionFrame) -> None:
        frame.code.open(f"if ({when}) {{")
        frame.code.add("error = P4_ERROR_StackOutOfBounds;", frame.at_exit)
        frame.code.close()

    def last_or_next(self, stack: Lvalue, e: tree.Member, frame: FunctionFrame) -> Lvalue:
        """In a parser, `next` beyond the last element and `last` of an empty stack end it with an error."""
        of = form(stack.type)
        assert isinstance(of, Stack)
        if not frame.in_parser:
            unsupported(e.where, f"`{e.name}` of a header stack outside a parser", "use an index")
        last = e.name == "last"
        self.out_of_bounds(f"{stack.c}.next == 0" if last else f"{stack.c}.next >= {of.size}", frame)
        index = f"{stack.c}.next - 1" if last else f"{stack.c}.next"
        return replace(element_of(stack, 0), c=f"{stack.c}.h[{index}]", shared=False)

    def _extract(self, e: tree.Call, target: tree.Expr, length: tree.Expr | None, frame: FunctionFrame) -> None:
        """extract(header), and extract(header, bits of its varbit field)."""
        record = form(target.type)
        if not isinstance(record, Record) or record.kind != "header":
            fail(e.where, f"extract needs a header, not a {target.type}")
        shape = header_shape(record, e)
        if (length is not None) != (shape.varbit is not None):
            have = "has no varbit field" if length is not None else f"has a varbit field, {shape.varbit}"
            fail(
                e.where,
                f"header {record} {have}: extract takes {'1 argument' if length is not None else '2 arguments'}",
            )
        code = frame.code
        if length is not None:
            code.open("{")
            self._varbit_length(length, frame)
        size = f"{shape.fixed} + varbits / 8" if length is not None else str(shape.fixed)
        place = None if isinstance(target, tree.DontCare) else self.place(target, frame)  # a full stack comes first
        self._need(size, frame)
        if length is not None:
            self._varbit_fits(shape, frame)
        if place is not None:
            self._extract_into(place, record, shape, e, size, frame)
        code.add(f"at += {size};")
        stack = _next_of(target)
        if stack is not None:
            code.add(f"{self.place(stack, frame).c}.next++;")
        if length is not None:
            code.close()

    def _extract_into(
        self, place: Lvalue, record: Record, shape: HeaderShape, e: tree.Call, size: str, frame: FunctionFrame
    ) -> None:
        code = frame.code
        self.note_valid(place)
        name = c_string(source_text(e.callee.args[0][1]))
        code.add(f"P4_EXTRACT({name}, {where_string(e.where)}, at, {size});")
        code.add(f"{place.c}.is_valid = 1;")
        self.alone(place, frame)
        if shape.varbit:
            # its length may change before it is sent: it is sent from its fields, not from the frame
            self.note_whole(place, True)
            code.add(f"{place.c}.at = P4_AT_NONE;")
        else:
            code.add(f"{place.c}.at = (uint16_t)at;")

        def loads() -> list[str]:
            used, lines, offset, base = set(self.usage.touched(place.key)), [], 0, "(frame + at)"
            for field, of in record.fields.items():
                c = f"{place.c}.{c_name(field)}"
                if isinstance(form(of), Varbit):
                    lines.append(f"{c}.bits = (uint16_t)varbits;")
                    lines.append(f"memcpy({c}.bytes, {base} + {offset // 8}, varbits / 8);")
                    base = "(frame + at + varbits / 8)"
                    continue
                for leaf, bits in scalar_leaves(c, of, e.where):
                    if field in used:
                        lines.append(load_field(leaf, base, offset, bits))
                    offset += bits
            return lines

        code.late(loads)

    def _varbit_length(self, length: tree.Expr, frame: FunctionFrame) -> None:
        """Take the length of an extract: whole bytes. Errors in the order of P4_16 §12.8.2."""
        code = frame.code
        code.add(f"uint32_t varbits = {self.condition(length, frame)};")
        code.open("if (varbits % 8) {")
        code.add("error = P4_ERROR_ParserInvalidArgument;", frame.at_exit)
        code.close()

    @staticmethod
    def _varbit_fits(shape: HeaderShape, frame: FunctionFrame) -> None:
        frame.code.open(f"if (varbits > {shape.longest}) {{")
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
            unsupported(e.where, f"advance by {bits.const} bits", "whole bytes are")
        code.open("{")
        code.add(f"uint32_t skip = {self.value(bits, frame)};")
        code.open("if (skip % 8) {")
        code.add("error = P4_ERROR_ParserInvalidArgument;", frame.at_exit)
        code.close()
        code.open("if (len - at < skip / 8) {")
        code.add("error = P4_ERROR_PacketTooShort;", frame.at_exit)
        code.close()
        code.add("at += skip / 8;")
        code.close()

    def _fn_verify(self, e: tree.Call, args: list[tree.Expr], frame: FunctionFrame) -> None:
        if not frame.in_parser:
            fail(e.where, "verify can be called only in a parser")
        frame.code.open(f"if (!{self.value(args[0], frame)}) {{")
        frame.code.add(f"error = {self.value(args[1], frame)};", frame.at_exit)
        frame.code.close()

    def function_value(self, e: tree.Call, frame: FunctionFrame) -> str:
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

    def record_call(self, place: Lvalue, e: tree.Call, frame: FunctionFrame) -> None:
        """place = lookahead of a header or struct."""
        if not frame.in_parser or e.callee.kind != "method" or e.callee.name != "lookahead":
            unsupported(e.where, f"{e.callee.name} here")
        leaves: list[tuple[Lvalue, int]] = []
        self._fixed_leaves(place, e, leaves)
        self._need((sum(bits for _, bits in leaves) + 7) // 8, frame)
        self.note_whole(place, True)
        offset = 0
        for one, bits in leaves:
            if not bits:
                frame.code.add(f"{one.c}.is_valid = 1;", f"{one.c}.at = P4_AT_NONE;")
                continue
            frame.code.add(load_field(one.c, "(frame + at)", offset, bits))
            offset += bits

    def _fixed_leaves(self, place: Lvalue, e: tree.Call, out: list[tuple[Lvalue, int]]) -> None:
        """The fields of a place with their bits, in order; a header stands before its fields, with 0 bits."""
        record = form(place.type)
        if isinstance(record, (Record, Stack)):
            if isinstance(record, Record) and record.kind == "header":
                out.append((place, 0))
            for one in parts_of(place):
                self._fixed_leaves(one, e, out)
            return
        out.append((place, record.width if isinstance(record, Wide) else bits_of(place.type, e.where)))


@dataclass(frozen=True)
class HeaderShape:
    """Bytes of a header type."""

    fixed: int
    """Without the varbit field."""
    varbit: str | None = None
    """Name of the varbit field."""
    longest: int = 0
    """Of the varbit field, bits."""

    @property
    def most(self) -> int:
        return self.fixed + self.longest // 8

    def size_text(self, c: str) -> str:
        """C expression for the bytes of the header at the place `c`."""
        return f"({self.fixed} + {c}.{c_name(self.varbit)}.bits / 8)" if self.varbit else str(self.fixed)


def header_shape(record: Record, e: tree.Expr) -> HeaderShape:
    """Raises P4Error for headers that are not whole bytes."""
    bits, varbit, longest = 0, None, 0
    for name, of in record.fields.items():
        base = form(of)
        if isinstance(base, Varbit):
            if varbit is not None:
                fail(field_place(record, name), f"header {record}: a second varbit field")
            if bits % 8 or base.width % 8:
                unsupported(field_place(record, name), "varbit that does not begin and end at whole bytes")
            varbit, longest = name, base.width
        else:
            bits += sum(one for _, one in scalar_leaves("", of, field_place(record, name)))
    if bits % 8:
        fail(e.where, f"header {record} has {bits} bits: only whole bytes can be sent and received")
    return HeaderShape(bits // 8, varbit, longest)


def _next_of(e: tree.Expr) -> tree.Expr | None:
    """The stack in `stack.next` and `stack.next.member`; None for other expressions."""
    while isinstance(e, tree.Member):
        if isinstance(e.base.type, Stack) and e.name == "next":
            return e.base
        e = e.base
    return None


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
