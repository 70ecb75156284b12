"""Calls -> C statements and expressions. What is called: emit_functions.py, emit_tables.py, emit_externs.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from mrc_testbed.switch.compiler.backend.code import c_string, where_string
from mrc_testbed.switch.compiler.backend.emit_arguments import ArgumentEmitter, as_written
from mrc_testbed.switch.compiler.backend.emit_assign import AssignmentEmitter
from mrc_testbed.switch.compiler.backend.emit_context import EmitContext
from mrc_testbed.switch.compiler.backend.emit_exits import Exits
from mrc_testbed.switch.compiler.backend.emit_externs import ExternEmitter
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, element_of
from mrc_testbed.switch.compiler.backend.emit_functions import CALL, FunctionEmitter
from mrc_testbed.switch.compiler.backend.emit_headers import alone, forget_bytes, set_valid
from mrc_testbed.switch.compiler.backend.emit_parser import ParserEmitter
from mrc_testbed.switch.compiler.backend.emit_places import PlaceEmitter
from mrc_testbed.switch.compiler.backend.emit_tables import TableEmitter
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.elaborate import ControlInstance
from mrc_testbed.switch.compiler.sema.types import VOID, Stack, form


@dataclass(eq=False, repr=False)
class CallEmitter:
    """Writes calls, each kind of callee by the method that the table below names."""

    context: EmitContext
    places: PlaceEmitter
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
        place = self.places.place(e.callee.base, frame)
        self.context.usage.note_valid(place)
        name = e.callee.name
        if name not in ("setValid", "setInvalid"):
            return
        set_valid(place, name == "setValid", frame)
        if name == "setValid":
            alone(place, frame)

    def _stack(self, e: tree.Call, frame: FunctionFrame) -> None:
        """push_front and pop_front: elements move with their bytes in the frame, those that are new are not valid."""
        place = self.places.place(e.callee.base, frame)
        of, by = form(place.type), e.args[0].value.const
        assert isinstance(of, Stack)
        by = min(by, of.size)
        keep, c = of.size - by, place.c
        push = e.callee.name == "push_front"
        if keep and by:
            to, start = (by, 0) if push else (0, by)
            frame.code.add(f"memmove(&{c}.h[{to}], &{c}.h[{start}], {keep} * sizeof {c}.h[0]);")
        first = 0 if push else keep
        if by:
            frame.code.add(f"memset(&{c}.h[{first}], 0, {by} * sizeof {c}.h[0]);")
        for index in range(first, first + by):
            forget_bytes(element_of(place, index), frame)
        if push:
            frame.code.add(f"{c}.next = {c}.next + {by} < {of.size} ? {c}.next + {by} : {of.size};")
        else:
            frame.code.add(f"{c}.next = {c}.next > {by} ? {c}.next - {by} : 0;")

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
        args, after = self.arguments.passed(e, frame)
        call = f"{name}({', '.join([CALL, *args])})"
        frame.code.add(f"P4_ACTION({c_string(decl.name)}, {where_string(e.where)});")
        if self.exits.runs(decl, frame.control):
            result = frame.name("t")
            frame.code.add(f"int {result} = {call};")
            self.arguments.copy_out(after, frame)
            frame.code.add("P4_DONE();")
            frame.code.open(f"if ({result})")
            frame.code.add(frame.at_exit)
            frame.code.depth -= 1
        else:
            frame.code.add(f"{call};")
            self.arguments.copy_out(after, frame)
            frame.code.add("P4_DONE();")

    def _user(self, e: tree.Call, frame: FunctionFrame) -> None:
        self._user_value(e, frame)

    def _user_value(self, e: tree.Call, frame: FunctionFrame) -> str:
        """Call a function of the program; the C variable that holds its result."""
        decl = e.callee.decl
        name = self.functions.user(decl, frame, self.arguments.instances(e.callee.args, frame))
        args, after = self.arguments.passed(e, frame)
        call = f"{name}({', '.join([CALL, *args])})"
        if decl.type == VOID:
            frame.code.add(f"{call};")
            result = ""
        else:
            result = frame.name("t")
            frame.code.add(f"{self.context.types.declare_type(decl.type, e.where)} {result} = {call};")
        self.arguments.copy_out(after, frame)
        return result

    def _control(self, e: tree.Call, frame: FunctionFrame) -> None:
        """Apply a sub-control. What lives in the packet is passed by name, unless two arguments overlap."""
        assert frame.control is not None and isinstance(e.callee.base, tree.PathExpression)
        inner: ControlInstance = frame.control.members[id(e.callee.base.decl)]
        pairs = [(param, arg) for param, (_, arg) in zip(inner.decl.params, e.callee.args, strict=True)]
        bindings, after = self.arguments.bound(inner, as_written(e, pairs), frame)
        call = f"{self.functions.control(inner, bindings, frame.phase)}({CALL})"
        frame.code.add(f"P4_CONTROL({c_string(inner.name)}, {where_string(e.where)});")
        leaves = self.exits.runs(inner.decl, inner)
        if leaves:
            result = frame.name("t")
            frame.code.add(f"int {result} = {call};")
        else:
            frame.code.add(f"{call};")
        for arg, copy in after:
            self.context.usage.note_whole(copy, False)
            self.assignments.store(arg, copy.c, frame)
        frame.code.add("P4_DONE();")
        if leaves:
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
        "stack": _stack,
        "table": _table,
        "action": _action,
        "user": _user,
        "control": _control,
        "parser": _parser,
        "method": _method,
        "function": _function,
    }
    """By `kind` of the callee (check_calls.Callee)."""
