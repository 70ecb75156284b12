"""Calls -> C statements and expressions.

The functions called: emit_functions.py, emit_tables.py, emit_externs.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from mrc_testbed.switch.compiler.backend.code import c_string, location_string
from mrc_testbed.switch.compiler.backend.emit_arguments import ArgumentEmitter, as_written
from mrc_testbed.switch.compiler.backend.emit_assign import AssignmentEmitter
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_exits import Exits
from mrc_testbed.switch.compiler.backend.emit_externs import ExternEmitter
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, element_of
from mrc_testbed.switch.compiler.backend.emit_functions import CALL, FunctionEmitter
from mrc_testbed.switch.compiler.backend.emit_headers import forget_bytes, invalidate_siblings, set_valid
from mrc_testbed.switch.compiler.backend.emit_lvalues import LvalueEmitter
from mrc_testbed.switch.compiler.backend.emit_parser import ParserEmitter
from mrc_testbed.switch.compiler.backend.emit_tables import TableEmitter
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.elaborate import ControlInstance
from mrc_testbed.switch.compiler.sema.types import VOID, Stack, form


@dataclass(eq=False, repr=False)
class CallEmitter:
    """Writes calls, each kind of callee by the method that the table below names."""

    context: EmitContext
    lvalues: LvalueEmitter
    assignments: AssignmentEmitter
    externs: ExternEmitter
    arguments: ArgumentEmitter
    functions: FunctionEmitter
    tables: TableEmitter
    parsers: ParserEmitter
    exits: Exits

    def statement(self, e: tree.Call, frame: FunctionFrame) -> None:
        """A call whose result nobody takes."""
        self.KINDS[e.callee.kind](self, e, frame)

    def value(self, e: tree.Call, frame: FunctionFrame) -> str:
        """C expression for what a call gives."""
        if e.callee.kind == "user":
            return self._user_value(e, frame)
        if e.callee.kind != "table":
            return self.externs.value(e, frame)
        table = frame.table(e.callee.decl)
        call = f"{self.tables.function(table, frame)}({CALL})"
        if not self.exits.table(table):
            return call
        result = frame.name("t")
        frame.code.add(f"struct p4_applied {result} = {call};")
        frame.code.open(f"if ({result}.exited)")
        frame.code.add(frame.at_exit)
        frame.code.depth -= 1
        return result

    def _header(self, e: tree.Call, frame: FunctionFrame) -> None:
        lvalue = self.lvalues.lvalue(e.callee.base, frame)
        self.context.usage.note_valid(lvalue)
        name = e.callee.name
        if name not in ("setValid", "setInvalid"):
            return
        set_valid(lvalue, name == "setValid", frame)
        if name == "setValid":
            invalidate_siblings(lvalue, frame)

    def _size(self, e: tree.Call, frame: FunctionFrame) -> None:
        """Write nothing: minSizeInBits and its like only tell."""

    def _stack(self, e: tree.Call, frame: FunctionFrame) -> None:
        """Write push_front or pop_front.

        Elements move with their bytes in the frame; new elements are not valid.
        """
        lvalue = self.lvalues.lvalue(e.callee.base, frame)
        stack_type, shift = form(lvalue.type), e.args[0].value.const
        assert isinstance(stack_type, Stack)
        shift = min(shift, stack_type.size)
        keep, c = stack_type.size - shift, lvalue.c
        push = e.callee.name == "push_front"
        if keep and shift:
            target, start = (shift, 0) if push else (0, shift)
            frame.code.add(f"memmove(&{c}.h[{target}], &{c}.h[{start}], {keep} * sizeof {c}.h[0]);")
        first = 0 if push else keep
        if shift:
            frame.code.add(f"memset(&{c}.h[{first}], 0, {shift} * sizeof {c}.h[0]);")
        for index in range(first, first + shift):
            forget_bytes(element_of(lvalue, index), frame)
        if push:
            frame.code.add(
                f"{c}.next = {c}.next + {shift} < {stack_type.size} ? {c}.next + {shift} : {stack_type.size};"
            )
        else:
            frame.code.add(f"{c}.next = {c}.next > {shift} ? {c}.next - {shift} : 0;")

    def _table(self, e: tree.Call, frame: FunctionFrame) -> None:
        table = frame.table(e.callee.decl)
        call = f"{self.tables.function(table, frame)}({CALL})"
        if self.exits.table(table):
            frame.code.open(f"if ({call}.exited)")
            frame.code.add(frame.at_exit)
            frame.code.depth -= 1
        else:
            frame.code.add(f"{call};")

    def _action(self, e: tree.Call, frame: FunctionFrame) -> None:
        """A direct call: arguments by value; `out` and `inout` ones are copied in and out."""
        decl = e.callee.decl
        name = self.functions.action(decl, frame)
        args, copies = self.arguments.pass_all(e, frame)
        call = f"{name}({', '.join([CALL, *args])})"
        frame.code.add(f"P4_ACTION({c_string(decl.name)}, {location_string(e.location)});")
        if self.exits.runs(decl, frame.control):
            result = frame.name("t")
            frame.code.add(f"int {result} = {call};")
            self.arguments.copy_out(copies, frame)
            frame.code.add("P4_DONE();")
            frame.code.open(f"if ({result})")
            frame.code.add(frame.at_exit)
            frame.code.depth -= 1
        else:
            frame.code.add(f"{call};")
            self.arguments.copy_out(copies, frame)
            frame.code.add("P4_DONE();")

    def _user(self, e: tree.Call, frame: FunctionFrame) -> None:
        self._user_value(e, frame)

    def _user_value(self, e: tree.Call, frame: FunctionFrame) -> str:
        """Call a function of the program; the C variable that holds its result."""
        decl = e.callee.decl
        name = self.functions.user(decl, frame, self.arguments.instances(e.callee.args, frame))
        args, copies = self.arguments.pass_all(e, frame)
        call = f"{name}({', '.join([CALL, *args])})"
        if decl.type == VOID:
            frame.code.add(f"{call};")
            result = ""
        else:
            result = frame.name("t")
            frame.code.add(f"{self.context.types.declare_type(decl.type, e.location)} {result} = {call};")
        self.arguments.copy_out(copies, frame)
        return result

    def _control(self, e: tree.Call, frame: FunctionFrame) -> None:
        """Apply a sub-control. What lives in the packet is passed by name, unless two arguments overlap."""
        assert frame.control is not None and isinstance(e.callee.base, tree.PathExpression)
        inner: ControlInstance = frame.control.members[id(e.callee.base.decl)]
        pairs = [(param, arg) for param, (_, arg) in zip(inner.decl.params, e.callee.args, strict=True)]
        bindings, copies = self.arguments.bound(inner, as_written(e, pairs), frame)
        call = f"{self.functions.control(inner, bindings, frame.phase)}({CALL})"
        frame.code.add(f"P4_CONTROL({c_string(inner.name)}, {location_string(e.location)});")
        may_exit = self.exits.runs(inner.decl, inner)
        if may_exit:
            result = frame.name("t")
            frame.code.add(f"int {result} = {call};")
        else:
            frame.code.add(f"{call};")
        for arg, copy in copies:
            self.context.usage.note_whole(copy, False)
            self.assignments.store(arg, copy.c, frame)
        frame.code.add("P4_DONE();")
        if may_exit:
            frame.code.open(f"if ({result})")
            frame.code.add(frame.at_exit)
            frame.code.depth -= 1

    def _method(self, e: tree.Call, frame: FunctionFrame) -> None:
        self.externs.method(e, frame)

    def _function(self, e: tree.Call, frame: FunctionFrame) -> None:
        self.externs.function(e, frame)

    def _parser(self, e: tree.Call, frame: FunctionFrame) -> None:
        self.parsers.call(e, frame)

    KINDS: ClassVar[Mapping[str, Callable[[CallEmitter, tree.Call, FunctionFrame], None]]] = {
        "header": _header,
        "size": _size,
        "stack": _stack,
        "table": _table,
        "action": _action,
        "user": _user,
        "control": _control,
        "parser": _parser,
        "method": _method,
        "function": _function,
    }
    """Methods by `kind` of the callee (check_calls.Callee)."""
