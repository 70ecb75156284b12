"""Statements -> C statements. Assignments: emit_assign.py; calls: emit_calls.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mrc_testbed.switch.compiler.backend.code import c_comment
from mrc_testbed.switch.compiler.backend.emit_assign import AssignmentEmitter
from mrc_testbed.switch.compiler.backend.emit_calls import CallEmitter
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_expr import ExpressionEmitter
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue
from mrc_testbed.switch.compiler.backend.emit_functions import action_constant
from mrc_testbed.switch.compiler.backend.emit_headers import forget_bytes
from mrc_testbed.switch.compiler.backend.emit_lvalues import LvalueEmitter
from mrc_testbed.switch.compiler.backend.emit_wide import wide_constant
from mrc_testbed.switch.compiler.errors import NOWHERE, raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.types import ActionRun, Bits, Type, WideBits, form, is_scalar, plain

MAX_ROUNDS = 65536
"""Rounds after which a `for` ends by itself."""


@dataclass(eq=False, repr=False)
class StatementEmitter:
    """Writes statements, each kind of node by the method that the table below names."""

    context: EmitContext
    lvalues: LvalueEmitter
    expressions: ExpressionEmitter
    assignments: AssignmentEmitter
    calls: CallEmitter

    def statement(self, s: Any, frame: FunctionFrame) -> None:
        lines, first = frame.code.lines, len(frame.code.lines)
        self.KINDS[type(s)](self, s, frame)
        if len(lines) > first and s.location != NOWHERE:
            depth, line = lines[first]
            if isinstance(line, str) and "/*" not in line:
                lines[first] = depth, f"{line} /* {c_comment(s.location.short_text)} */"

    def block(self, s: tree.Block, frame: FunctionFrame) -> None:
        for child in s.body:
            self.statement(child, frame)

    def _block(self, s: tree.Block, frame: FunctionFrame) -> None:
        frame.code.open("{")
        self.block(s, frame)
        frame.code.close()

    def _no_code(self, s: tree.Empty | tree.Const, frame: FunctionFrame) -> None:
        pass

    def _exit(self, _s: tree.Exit, frame: FunctionFrame) -> None:
        frame.code.add(frame.at_exit)

    def _return(self, s: tree.Return, frame: FunctionFrame) -> None:
        if frame.in_parser:
            raise_unsupported(s.location, "return in a parser")
        if s.value is None:
            frame.code.add("return;" if frame.returns is not None else "return 0;")
        elif is_scalar(s.value.type):
            frame.code.add(f"return {self.expressions.condition(s.value, frame)};")
        else:
            lvalue = self.lvalues.lvalue(s.value, frame)
            self.context.usage.note_whole(lvalue, False)
            frame.code.add(f"return {lvalue.c};")

    def declare(self, s: tree.Var, frame: FunctionFrame) -> None:
        name = frame.name(s.name)
        lvalue = Lvalue(name, s.type, f"local {id(s)}")
        c_type = self.context.types.declare_type(s.type, s.location)
        if is_scalar(s.type):
            start = self.expressions.value(s.value, frame) if s.value is not None else "0"
            frame.code.add(f"{c_type} {name} = {start};")
        else:
            frame.code.add(f"{c_type} {name} = {{0}};")
            forget_bytes(lvalue, frame)
            if s.value is not None:
                self.assignments.assign(lvalue, s.value, frame)
        frame.bindings[id(s)] = lvalue

    def _if(self, s: tree.If, frame: FunctionFrame) -> None:
        frame.code.open(f"if ({self.expressions.condition(s.condition, frame)}) {{")
        self._branch(s.if_true, frame)
        if s.if_false is not None:
            frame.code.close("} else {")
            frame.code.depth += 1
            self._branch(s.if_false, frame)
        frame.code.close()

    def _branch(self, s: Any, frame: FunctionFrame) -> None:
        """A statement inside braces that are already there."""
        if isinstance(s, tree.Block):
            self.block(s, frame)
        else:
            self.statement(s, frame)

    def _for(self, s: tree.For, frame: FunctionFrame) -> None:
        """Write a `for` of at most MAX_ROUNDS rounds: an endless loop would block the switch."""
        code = frame.code
        code.open("{")
        for child in s.start:
            self.statement(child, frame)
        labels = self._loop(frame)
        code.open(f"if (!({self.expressions.value(s.condition, frame)}))")
        code.add(f"goto {labels[0]};")
        code.depth -= 1
        self._body(s.body, frame, labels)
        for update in s.updates:
            self.statement(update, frame)
        self._loop_end(labels, frame)

    def _for_in(self, s: tree.ForIn, frame: FunctionFrame) -> None:
        code, element_type = frame.code, s.variable.type
        code.open("{")
        lvalue = Lvalue(frame.name(s.variable.name), element_type, f"local {id(s.variable)}")
        frame.bindings[id(s.variable)] = lvalue
        c_type = self.context.types.declare_type(element_type, s.location)
        if s.high is None:
            base = s.low.type
            items = s.low.items if isinstance(s.low, tree.ListExpr) else range(base.size)
            ends = self._loop_labels()
            for item in items:
                code.open("{")
                code.add(f"{c_type} {lvalue.c} = {{0}};")
                if not isinstance(item, int):
                    value = item
                else:
                    value = tree.Index(s.low.location, s.low, tree.Integer(s.low.location, item, None, False))
                    value.index.const, value.type = item, element_type
                self.assignments.assign(lvalue, value, frame)
                item_labels = (ends[0], f"{ends[1]}_{len(code.lines)}")
                self._body(s.body, frame, item_labels)
                code.add("}")
                code.depth -= 1
            code.add(f"{ends[0]}: ;")
            code.close()
            return
        # Count in 64 bits: a range up to the largest value of its type would never end in that type.
        low, high, counter = frame.name("low"), frame.name("high"), frame.name("at")
        bounds = (
            f"(uint64_t){self.expressions.value(s.low, frame)}",
            f"(uint64_t){self.expressions.value(s.high, frame)}",
        )
        code.add(f"uint64_t {low} = {bounds[0]}, {high} = {bounds[1]}, {counter} = {low};")
        labels = self._loop(frame)
        code.open(f"if ({counter} > {high})")
        code.add(f"goto {labels[0]};")
        code.depth -= 1
        code.add(f"{c_type} {lvalue.c} = ({c_type}){counter};")
        self._body(s.body, frame, labels)
        code.add(f"{counter}++;")
        self._loop_end(labels, frame)

    def _loop_labels(self) -> tuple[str, str]:
        self.context.copies += 1
        return f"break_{self.context.copies}", f"continue_{self.context.copies}"

    def _loop(self, frame: FunctionFrame) -> tuple[str, str]:
        labels = self._loop_labels()
        count = frame.name("rounds")
        frame.code.open(f"for (uint32_t {count} = 0; {count} < {MAX_ROUNDS}; {count}++) {{")
        return labels

    def _body(self, body: Any, frame: FunctionFrame, labels: tuple[str, str]) -> None:
        frame.loops.append(labels)
        frame.code.open("{")
        self._branch(body, frame)
        frame.code.close()
        frame.loops.pop()
        frame.code.add(f"{labels[1]}: ;")

    @staticmethod
    def _loop_end(labels: tuple[str, str], frame: FunctionFrame) -> None:
        frame.code.close()
        frame.code.add(f"{labels[0]}: ;")
        frame.code.close()

    def _break(self, _s: tree.Break, frame: FunctionFrame) -> None:
        frame.code.add(f"goto {frame.loops[-1][0]};")

    def _continue(self, _s: tree.Continue, frame: FunctionFrame) -> None:
        frame.code.add(f"goto {frame.loops[-1][1]};")

    def _switch(self, s: tree.SwitchStatement, frame: FunctionFrame) -> None:
        """`break` never appears in P4: a body ends its case; labels without a body share the next one."""
        value_type = s.value.type
        base = plain(value_type)
        is_long = isinstance(base, Bits) and base.width > 64
        value = self._case_number(s, frame) if is_long else self.expressions.value(s.value, frame)
        frame.code.open(f"switch ({value}) {{")
        for number, case in enumerate(s.cases):
            constant = str(number) if is_long else self._label(case, value_type, frame)
            label = "default:" if isinstance(case.label, tree.DontCare) else f"case {constant}:"
            if case.body is None:
                frame.code.add(label)
                continue
            frame.code.open(f"{label} {{")
            self.block(case.body, frame)
            frame.code.add("break;")
            frame.code.close()
        if s.cases and s.cases[-1].body is None:
            frame.code.add("break;")
        frame.code.close()

    def _case_number(self, s: tree.SwitchStatement, frame: FunctionFrame) -> str:
        """The number of the case that a value of more than 64 bits, which C cannot switch on, goes to."""
        value = self.lvalues.temporary_lvalue(s.value, frame)
        wide_type = form(s.value.type)
        text = f"{len(s.cases)}u"
        for number, case in reversed(list(enumerate(s.cases))):
            if isinstance(case.label, tree.DontCare):
                continue
            equality = (
                f"{value.c} == {self.expressions.constant(case.label)}" if not isinstance(wide_type, WideBits) else ""
            )
            if isinstance(wide_type, WideBits):
                constant = f"({self.context.types.struct(wide_type)}){wide_constant(case.label, wide_type)}"
                equality = f"!memcmp({value.c}.b, {constant}.b, {wide_type.bytes})"
            text = f"{equality} ? {number}u : {text}"
        return text

    def _label(self, case: tree.Case, value_type: Type, frame: FunctionFrame) -> str:
        if isinstance(case.label, tree.DontCare):
            return ""
        if not isinstance(value_type, ActionRun):
            return self.expressions.constant(case.label)
        table = frame.table(value_type.table)
        assert isinstance(case.label, tree.PathExpression)
        index = [action.name for action in value_type.table.actions].index(case.label.name)
        return action_constant(table.actions[index])

    def _assign(self, s: tree.Assign, frame: FunctionFrame) -> None:
        self.assignments.statement(s, frame)

    def _call(self, s: tree.CallStatement | tree.DirectApply, frame: FunctionFrame) -> None:
        self.calls.statement(s.call, frame)

    KINDS: ClassVar[Mapping[type[tree.Node], Callable[[StatementEmitter, Any, FunctionFrame], None]]] = {
        tree.Assign: _assign,
        tree.CallStatement: _call,
        tree.DirectApply: _call,
        tree.If: _if,
        tree.Block: _block,
        tree.Empty: _no_code,
        tree.Const: _no_code,
        tree.Var: declare,
        tree.Return: _return,
        tree.Exit: _exit,
        tree.For: _for,
        tree.ForIn: _for_in,
        tree.Break: _break,
        tree.Continue: _continue,
        tree.SwitchStatement: _switch,
    }
