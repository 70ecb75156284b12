"""The parser -> C: its states and transitions. What its calls do: emit_packet_in.py."""

from __future__ import annotations

from dataclasses import dataclass, field

from mrc_testbed.switch.compiler.backend.code import Code, bits_of, c_comment, c_string, c_type, c_word, location_string
from mrc_testbed.switch.compiler.backend.emit_arguments import ArgumentEmitter, as_written
from mrc_testbed.switch.compiler.backend.emit_assign import AssignmentEmitter
from mrc_testbed.switch.compiler.backend.emit_bits import field_bits
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_expr import ExpressionEmitter
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue
from mrc_testbed.switch.compiler.backend.emit_functions import SIGNATURE
from mrc_testbed.switch.compiler.backend.emit_lvalues import LvalueEmitter
from mrc_testbed.switch.compiler.backend.emit_tables import key_words
from mrc_testbed.switch.compiler.backend.emit_wide import wide_constant
from mrc_testbed.switch.compiler.errors import raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.elaborate import ControlInstance, ValueSetInstance
from mrc_testbed.switch.compiler.sema.types import Bits, Type, WideBits, form

MAX_STEPS = 256
"""States a parser with a cycle may enter before it fails with ParserTimeout."""


@dataclass(eq=False, repr=False)
class ParserEmitter:
    """Writes parse(), and sub-parsers where they are applied."""

    context: EmitContext
    lvalues: LvalueEmitter
    expressions: ExpressionEmitter
    assignments: AssignmentEmitter
    arguments: ArgumentEmitter
    applications: int = field(default=0, init=False)
    """Sub-parsers so far."""

    def parse(self, bindings: dict[int, Lvalue]) -> None:
        """Write the parser's C function."""
        parser = self.context.program.parser
        code = Code()
        frame = FunctionFrame(
            code, dict(bindings), self.context.program.parsing, "parser", at_exit="goto done;", in_parser=True
        )
        code.add(f"/* {c_comment(parser.location.short_text)}: parser {parser.name} */")
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
        code.add(f"P4_PARSED({location_string(parser.location)}, error);")
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
        param_args = zip(inner.decl.params, (arg for _, arg in e.callee.args), strict=True)
        pairs = [(param, arg) for param, arg in param_args if str(param.type) != "packet_in"]
        bindings, copies = self.arguments.bound(inner, as_written(e, pairs), frame)
        self.applications += 1
        labels = f"{self.applications}_"
        code = frame.code
        location = c_comment(inner.decl.location.short_text)
        code.add(f"{{ /* {location}: parser {inner.decl.name}, as {c_comment(inner.name)} */")
        code.depth += 1
        inner_frame = FunctionFrame(
            code, bindings, inner, "parser", at_exit=frame.at_exit, in_parser=True, labels=labels
        )
        inner_frame.accept = f"accept_{self.applications}"
        reject_label = f"rejected_{self.applications}"
        if copies:
            inner_frame.at_exit = f"goto {reject_label};"
            code.add(f"int is_{reject_label} = 0;")
        self._states(inner.decl, inner_frame)
        code.depth -= 1
        if copies:  # what was parsed before a reject is copied out, too: BMv2 deparses it
            code.add(f"{reject_label}: is_{reject_label} = 1;")
        code.add(f"{inner_frame.accept}: ;")
        code.depth += 1
        for arg, copy in copies:
            self.context.usage.note_whole(copy, False)
            self.assignments.store(arg, copy.c, frame)
        if copies:
            code.add(f"if (is_{reject_label})", f"    {frame.at_exit}")
        code.close()

    def _state_body(self, state: tree.State, frame: FunctionFrame, cyclic: bool) -> None:
        code = frame.code
        code.depth -= 1
        code.add(f"state_{frame.labels}{c_word(state.name)}: /* {c_comment(state.location.short_text)} */")
        code.depth += 1
        code.open("{")
        if cyclic:
            code.open(f"if (++steps > {MAX_STEPS}) {{")
            code.add("error = P4_ERROR_ParserTimeout;", frame.at_exit)
            code.close()
        code.add(f"P4_STATE({c_string(state.name)}, {location_string(state.location)});")
        for statement in state.body:
            self.context.statements.statement(statement, frame)
        self._transition(state, frame)
        code.close()

    def _transition(self, state: tree.State, frame: FunctionFrame) -> None:
        code, transition = frame.code, state.transition
        if transition is None:
            self._goto("reject", frame)
            return
        if transition.state is not None:
            self._goto(transition.state, frame)
            return
        names = []
        for key in transition.keys:
            if isinstance(form(key.type), WideBits):
                names.append((self.lvalues.temporary_lvalue(key, frame).c, key.type))
                continue
            name = frame.name("key")
            key_type = c_type(bits_of(key.type, key.location))
            code.add(f"{key_type} {name} = {self.expressions.condition(key, frame)};")
            names.append((name, key.type))
        for case in transition.cases:
            first = case.keys[0]
            if isinstance(first, tree.PathExpression) and isinstance(first.decl, tree.ValueSet):
                test: str | None = self._in_value_set(first, names, frame)
            else:
                test = self._matches(case, names)
            # This row always matches: the rows below are unreachable.
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
        for e, (name, p4_type) in zip(case.keys, names, strict=False):
            if isinstance(e, tree.DontCare):
                continue
            wide_type = form(p4_type)
            if isinstance(wide_type, WideBits):
                tests.append(self._wide_match(e, name, wide_type))
                continue
            if isinstance(e, tree.Mask):
                mask = e.mask.const & e.value.type.wrap(-1) if isinstance(e.value.type, Bits) else e.mask.const
                e.value.const &= mask
                tests.append(f"({name} & {self.expressions.constant(e.mask)}) == {self.expressions.constant(e.value)}")
            elif isinstance(e, tree.Range):
                if isinstance(form(p4_type), Bits) and form(p4_type).signed:
                    raise_unsupported(e.location, "a range of int<N>")
                tests.append(
                    f"{name} >= {self.expressions.constant(e.low)} && {name} <= {self.expressions.constant(e.high)}"
                )
            else:
                tests.append(f"{name} == {self.expressions.constant(e)}")
        return " && ".join(tests) or None

    def _wide_match(self, e: tree.Expr, name: str, wide_type: WideBits) -> str:
        """C test: does a key of more than 128 bits match?"""

        def constant(operand: tree.Expr) -> str:
            return f"({self.context.types.struct(wide_type)}){wide_constant(operand, wide_type)}.b"

        if isinstance(e, tree.Mask):
            e.value.const &= e.mask.const
            return f"p4w_matches({name}.b, {constant(e.value)}, {constant(e.mask)}, {wide_type.width})"
        if isinstance(e, tree.Range):
            sizes = f"{wide_type.width}, {int(wide_type.signed)}"
            low, high = (f"p4w_compare({name}.b, {constant(operand)}, {sizes})" for operand in (e.low, e.high))
            return f"{low} >= 0 && {high} <= 0"
        return f"!memcmp({name}.b, {constant(e)}, {wide_type.bytes})"

    def _in_value_set(self, e: tree.PathExpression, names: list[tuple[str, Type]], frame: FunctionFrame) -> str:
        """C test: do the keys, together, match a member? A value_set is a table without actions."""
        assert frame.control is not None
        value_set: ValueSetInstance = frame.control.members[id(e.decl)]
        key = frame.name("words")
        size = key_words([(name, field_bits(p4_type, e.location)) for name, p4_type in names], key, frame)
        index = len(self.context.program.tables) + value_set.index
        return f"p4rt_apply(dev, {index} /* {c_comment(value_set.name)} */, {key}, {size}, pkt)->hit"

    @staticmethod
    def _goto(name: str, frame: FunctionFrame) -> None:
        """reject without an error set: v1model goes on to the ingress either way."""
        if name == "reject":
            frame.code.add(frame.at_exit)
            return
        label = frame.accept if name == "accept" else f"state_{frame.labels}{c_word(name)}"
        frame.code.add(f"goto {label};")


def _targets(state: tree.State) -> list[str]:
    transition = state.transition
    if transition is None:
        return []
    return [transition.state] if transition.state is not None else [case.state for case in transition.cases]


def _reachable(states: dict[str, tree.State]) -> list[str]:
    """States that can be entered, start first, in the order of the source."""
    reached_names, pending = set(), ["start"]
    while pending:
        name = pending.pop()
        if name in states and name not in reached_names:
            reached_names.add(name)
            pending += _targets(states[name])
    return ["start", *(name for name in states if name in reached_names and name != "start")]


def _has_cycle(parser: tree.Parser) -> bool:
    states = {state.name: state for state in parser.states or []}
    finished_states: set[str] = set()
    path: list[str] = []

    def visit(name: str) -> bool:
        if name in path:
            return True
        if name in finished_states or name not in states:
            return False
        path.append(name)
        has_cycle = any(visit(target) for target in _targets(states[name]))
        path.pop()
        finished_states.add(name)
        return has_cycle

    return visit("start")
