"""The parser -> C: its states and transitions. What its calls do: emit_packet_in.py."""

from __future__ import annotations

from dataclasses import dataclass, field

from mrc_testbed.switch.compiler.backend.code import Code, bits_of, c_comment, c_string, c_type, c_word, where_string
from mrc_testbed.switch.compiler.backend.emit_arguments import ArgumentEmitter, as_written
from mrc_testbed.switch.compiler.backend.emit_assign import AssignmentEmitter
from mrc_testbed.switch.compiler.backend.emit_bits import field_bits
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_expr import ExpressionEmitter
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue
from mrc_testbed.switch.compiler.backend.emit_functions import SIGNATURE
from mrc_testbed.switch.compiler.backend.emit_places import PlaceEmitter
from mrc_testbed.switch.compiler.backend.emit_tables import key_words
from mrc_testbed.switch.compiler.backend.emit_wide import wide_constant
from mrc_testbed.switch.compiler.errors import unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.elaborate import ControlInstance, ValueSetInstance
from mrc_testbed.switch.compiler.sema.types import Bits, Type, Wide, form

MAX_STEPS = 256
"""States a parser with a cycle may enter before it fails with ParserTimeout."""


@dataclass(eq=False, repr=False)
class ParserEmitter:
    """Writes parse(), and sub-parsers where they are applied."""

    context: EmitContext
    places: PlaceEmitter
    expressions: ExpressionEmitter
    assignments: AssignmentEmitter
    arguments: ArgumentEmitter
    applied: int = field(default=0, init=False)
    """Sub-parsers so far."""

    def parse(self, bindings: dict[int, Lvalue]) -> None:
        """Write the parser's C function."""
        parser = self.context.program.parser
        code = Code()
        frame = FunctionFrame(
            code, dict(bindings), self.context.program.parsing, "parser", at_exit="goto done;", in_parser=True
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
        self.context.functions.append(code)

    def _states(self, parser: tree.Parser, frame: FunctionFrame) -> None:
        """The local variables and states of a parser; it ends at frame.accept or by frame.at_exit."""
        for local in parser.locals:
            if isinstance(local, tree.Var):
                self.context.statements.declare(local, frame)
        states = {state.name: state for state in parser.states or []}
        cyclic = _has_cycle(parser)
        frame.code.add(f"goto state_{frame.labels}start;")
        for name in _reachable(states):
            self._state_body(states[name], frame, cyclic)

    def call(self, e: tree.Call, frame: FunctionFrame) -> None:
        """Apply a sub-parser: its states stand here once more, with labels of their own."""
        assert frame.control is not None and isinstance(e.callee.base, tree.PathExpression)
        inner: ControlInstance = frame.control.members[id(e.callee.base.decl)]
        given = zip(inner.decl.params, (arg for _, arg in e.callee.args), strict=True)
        pairs = [(param, arg) for param, arg in given if str(param.type) != "packet_in"]
        bindings, after = self.arguments.bound(inner, as_written(e, pairs), frame)
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
            self.context.usage.note_whole(copy, False)
            self.assignments.store(arg, copy.c, frame)
        if after:
            code.add(f"if (is_{rejected})", f"    {frame.at_exit}")
        code.close()

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
            self.context.statements.statement(one, frame)
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
                names.append((self.places.temporary_place(one, frame).c, one.type))
                continue
            name = frame.name("key")
            of = c_type(bits_of(one.type, one.where))
            code.add(f"{of} {name} = {self.expressions.condition(one, frame)};")
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
                tests.append(f"({name} & {self.expressions.constant(e.mask)}) == {self.expressions.constant(e.value)}")
            elif isinstance(e, tree.Range):
                if isinstance(form(of), Bits) and form(of).signed:
                    unsupported(e.where, "a range of int<N>")
                tests.append(
                    f"{name} >= {self.expressions.constant(e.low)} && {name} <= {self.expressions.constant(e.high)}"
                )
            else:
                tests.append(f"{name} == {self.expressions.constant(e)}")
        return " && ".join(tests) or None

    def _wide_match(self, e: tree.Expr, name: str, of: Wide) -> str:
        """C test: does a key of more than 128 bits match?"""

        def constant(one: tree.Expr) -> str:
            return f"({self.context.types.struct(of)}){wide_constant(one, of)}.b"

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
        size = key_words([(name, field_bits(of, e.where)) for name, of in names], key, frame)
        index = len(self.context.program.tables) + found.index
        return f"p4rt_apply(dev, {index} /* {c_comment(found.name)} */, {key}, {size}, pkt)->hit"

    @staticmethod
    def _goto(name: str, frame: FunctionFrame) -> None:
        """reject without an error set: v1model goes on to the ingress either way."""
        if name == "reject":
            frame.code.add(frame.at_exit)
            return
        label = frame.accept if name == "accept" else f"state_{frame.labels}{c_word(name)}"
        frame.code.add(f"goto {label};")


def _targets(state: tree.State) -> list[str]:
    after = state.transition
    if after is None:
        return []
    return [after.state] if after.state is not None else [case.state for case in after.cases]


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
    states = {state.name: state for state in parser.states or []}
    done: set[str] = set()
    path: list[str] = []

    def visit(name: str) -> bool:
        if name in path:
            return True
        if name in done or name not in states:
            return False
        path.append(name)
        found = any(visit(target) for target in _targets(states[name]))
        path.pop()
        done.add(name)
        return found

    return visit("start")
