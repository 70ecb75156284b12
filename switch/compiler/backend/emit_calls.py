"""Calls -> C; controls, actions, tables and functions of the program -> C functions.

Every control, action and table becomes one function `int f(dev, pkt, p, v)`: p points to the headers and metadata of
the packet, v to the variables of the controls. A function returns 1 when the program said `exit`. A control whose
instance is applied with different arguments becomes one function for each.
"""

from __future__ import annotations

from typing import Any

from switch.compiler.backend.code import Code, c_comment, c_string, c_word, where_string
from switch.compiler.backend.emit_assign import Assignments
from switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, element_of
from switch.compiler.errors import Location, unsupported
from switch.compiler.frontend import tree
from switch.compiler.frontend.tree import walk
from switch.compiler.sema.elaborate import ActionInstance, ControlInstance, ElaboratedProgram, TableInstance
from switch.compiler.sema.types import VOID, Applied, Object, Stack, Type, form, is_scalar, width_of

SIGNATURE = "struct p4rt_device *dev, struct p4rt_packet *pkt, struct phv *p, struct variables *v"
CALL = "dev, pkt, p, v"
_UNUSED = "(void)dev, (void)pkt, (void)p, (void)v;"


class CallEmitter(Assignments):
    """Writes calls, and the functions they call. `functions` collects these, callees before callers."""

    def __init__(self, program: ElaboratedProgram) -> None:
        super().__init__(program)
        self.functions: list[Code] = []
        self.variables: list[tuple[str, str]] = []
        self.done: dict[tuple[Any, ...], str] = {}
        self.names: set[str] = set()
        self.exits: dict[tuple[int, int], bool] = {}
        self.copies = 0
        self.kept: list[Any] = []
        """Declarations made here, so that no other gets their id()."""

    def block(self, s: tree.Block, frame: FunctionFrame) -> None:
        """Write the statements of a block; emit_stmt.py has them."""
        raise NotImplementedError

    # ---- calls

    def _st_callstatement(self, s: tree.CallStatement, frame: FunctionFrame) -> None:
        callee = s.call.callee
        getattr(self, "_call_" + callee.kind)(s.call, frame)

    def _st_directapply(self, s: tree.DirectApply, frame: FunctionFrame) -> None:
        getattr(self, "_call_" + s.call.callee.kind)(s.call, frame)

    def _call_header(self, e: tree.Call, frame: FunctionFrame) -> None:
        place = self.place(e.callee.base, frame)
        self.note_valid(place)
        name = e.callee.name
        if name not in ("setValid", "setInvalid"):
            return
        self.set_valid(place, name == "setValid", frame)
        if name == "setValid":
            self.alone(place, frame)

    def set_valid(self, place: Lvalue, valid: bool, frame: FunctionFrame) -> None:
        """As the program says by setValid, setInvalid, a list or {#}: simple_switch's packet_length goes with it."""
        if frame.phase in ("ingress", "egress"):
            fields = form(place.type).fields.values()  # type: ignore[union-attr]
            size = sum(width_of(one) or 0 for one in fields) // 8
            change = f"+= {place.c}.is_valid ? 0 : {size}" if valid else f"-= {place.c}.is_valid ? {size} : 0"
            frame.code.add(f"pkt->grown {change};")
        frame.code.add(f"{place.c}.is_valid = {int(valid)};")

    def _call_stack(self, e: tree.Call, frame: FunctionFrame) -> None:
        """push_front and pop_front: elements move with their bytes in the frame, those that are new are not valid."""
        place = self.place(e.callee.base, frame)
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
            self._forget_bytes(element_of(place, index), frame)
        if push:
            frame.code.add(f"{c}.next = {c}.next + {by} < {of.size} ? {c}.next + {by} : {of.size};")
        else:
            frame.code.add(f"{c}.next = {c}.next > {by} ? {c}.next - {by} : 0;")

    def _call_table(self, e: tree.Call, frame: FunctionFrame) -> None:
        table = self.table_of(e.callee.decl, frame)
        call = f"{self.table_function(table, frame)}({CALL})"
        if self.may_exit_table(table):
            frame.code.open(f"if ({call}.exited)")
            frame.code.add(frame.at_exit)
            frame.code.depth -= 1
        else:
            frame.code.add(f"{call};")

    def call_value(self, e: tree.Call, frame: FunctionFrame) -> str:
        if e.callee.kind == "user":
            return self._user_value(e, frame)
        if e.callee.kind != "table":
            return self.function_value(e, frame)
        table = self.table_of(e.callee.decl, frame)
        call = f"{self.table_function(table, frame)}({CALL})"
        if not self.may_exit_table(table):
            return call
        result = self._temporary(frame)
        frame.code.add(f"struct p4_applied {result} = {call};")
        frame.code.open(f"if ({result}.exited)")
        frame.code.add(frame.at_exit)
        frame.code.depth -= 1
        return result

    def _member(self, e: tree.Member, frame: FunctionFrame) -> str:
        if isinstance(e.base, tree.Call) and e.name == "action_run" and isinstance(e.base.type, Applied):
            return f"{self.call_value(e.base, frame)}.action"
        return super()._member(e, frame)

    def table_of(self, decl: tree.Table, frame: FunctionFrame) -> TableInstance:
        assert frame.control is not None
        table: TableInstance = frame.control.members[id(decl)]
        return table

    def _call_action(self, e: tree.Call, frame: FunctionFrame) -> None:
        """A direct call: arguments by value; `out` and `inout` ones are copied in and out."""
        decl = e.callee.decl
        name = self.action_function(decl, frame)
        args, after = self._arguments(e, frame)
        call = f"{name}({', '.join([CALL, *args])})"
        frame.code.add(f"P4_ACTION({c_string(decl.name)}, {where_string(e.where)});")
        if self.may_exit(decl, frame.control):
            result = self._temporary(frame)
            frame.code.add(f"int {result} = {call};")
            self._copy_out(after, frame)
            frame.code.add("P4_DONE();")
            frame.code.open(f"if ({result})")
            frame.code.add(frame.at_exit)
            frame.code.depth -= 1
        else:
            frame.code.add(f"{call};")
            self._copy_out(after, frame)
            frame.code.add("P4_DONE();")

    def _arguments(self, e: tree.Call, frame: FunctionFrame) -> tuple[list[str], list[tuple[tree.Expr, str]]]:
        """C arguments of an action or function, and what is to be copied out after the call: (target, variable)."""
        texts: dict[int, str] = {}
        outs: dict[int, list[tuple[tree.Expr, str]]] = {}
        pairs = as_written(e, e.callee.args)
        for at, (param, arg) in enumerate(pairs):
            text, outs[id(param)] = self.argument(param, arg, frame)
            later = any(self.acts(one) for _, one in pairs[at + 1 :])
            if later and text and param.direction not in ("out", "inout") and arg.const is None:
                temporary = self._temporary(frame)
                frame.code.add(f"{self.declare_type(param.type, arg.where)} {temporary} = {text};")
                text = temporary
            texts[id(param)] = text
        params = [param for param, _ in e.callee.args]
        return [texts[id(p)] for p in params if texts[id(p)]], [out for p in params for out in outs[id(p)]]

    def argument(
        self, param: tree.Param, arg: tree.Expr, frame: FunctionFrame
    ) -> tuple[str, list[tuple[tree.Expr, str]]]:
        """C argument for one parameter ("" for none), and what is to be copied out after the call."""
        if isinstance(param.type, Object):
            return "", []
        if str(param.type) == "standard_metadata_t":
            if self.place(arg, frame).key != "std":
                unsupported(arg.where, "a standard_metadata_t other than the packet's")
            return "", []
        if param.direction not in ("out", "inout"):
            if is_scalar(param.type):
                return self.value(arg, frame), []
            place = self.place(arg, frame)
            self.note_whole(place, False)
            return place.c, []
        temporary = self._temporary(frame)
        of = self.declare_type(param.type, arg.where)
        start = ("0" if is_scalar(param.type) else "{0}") if param.direction == "out" else self._copy_in(arg, frame)
        frame.code.add(f"{of} {temporary} = {start};")
        after = [] if isinstance(arg, tree.DontCare) else [(self.fixed(arg, frame), temporary)]
        return f"&{temporary}", after

    def fixed(self, e: tree.Expr, frame: FunctionFrame) -> tree.Expr:
        """An lvalue whose index of a header stack is evaluated now, as the language demands, not at the copying out."""
        if isinstance(e, tree.Slice) and e.width is not None:
            base = self.fixed(e.base, frame)
            fixed = tree.Slice(e.where, base, e.high, self._taken(e.low, frame), e.width)
            fixed.type = e.type
            return fixed
        if isinstance(e, (tree.Member, tree.Slice)):
            base = self.fixed(e.base, frame)
            return e if base is e.base else _with_base(e, base)
        if isinstance(e, tree.Index) and e.index.const is None:
            return _with_base(e, self.fixed(e.base, frame), self._taken(e.index, frame))
        return e

    def _taken(self, e: tree.Expr, frame: FunctionFrame) -> tree.Expr:
        """The value that an index has now, as an expression."""
        name = frame.name("i")
        frame.code.add(f"{self.declare_type(e.type, e.where)} {name} = {self.value(e, frame)};")
        taken = tree.PathExpression(e.where, name)
        taken.type, taken.decl = e.type, tree.Var(e.where, [], name, None, None)  # type: ignore[arg-type]
        frame.bindings[id(taken.decl)] = Lvalue(name, e.type, f"local {id(taken)}")
        self.kept.append(taken.decl)
        return taken

    def _call_user(self, e: tree.Call, frame: FunctionFrame) -> None:
        self._user_value(e, frame)

    def _user_value(self, e: tree.Call, frame: FunctionFrame) -> str:
        """Call a function of the program; the C variable that holds its result."""
        decl = e.callee.decl
        name = self.user_function(decl, frame, self.given_instances(e.callee.args, frame))
        args, after = self._arguments(e, frame)
        call = f"{name}({', '.join([CALL, *args])})"
        if decl.type == VOID:
            frame.code.add(f"{call};")
            result = ""
        else:
            result = self._temporary(frame)
            frame.code.add(f"{self.declare_type(decl.type, e.where)} {result} = {call};")
        self._copy_out(after, frame)
        return result

    def user_function(self, decl: tree.Function, frame: FunctionFrame, given: dict[int, Lvalue]) -> str:
        """Name of the C function of a function of the program, for the externs given to it; written on first use."""
        key = (id(decl), "function", *sorted((at, one.c) for at, one in given.items()))
        if key in self.done:
            return self.done[key]
        name = self.function_name(f"function_{c_word(decl.name)}")
        self.done[key] = name
        code = Code()
        of = "void" if decl.type == VOID else self.declare_type(decl.type, decl.where)
        inner = FunctionFrame(code, given, None, frame.phase, at_exit="return;", returns=decl.type)
        params = [SIGNATURE, *self._parameters(decl.params, inner)]
        code.add(f"/* {c_comment(decl.where.short)}: function {decl.name} */")
        code.add(f"static {of} {name}({', '.join(params)})")
        code.open("{")
        code.add(_UNUSED)
        self.block(decl.body, inner)
        if decl.type != VOID:
            code.add("return 0;" if is_scalar(decl.type) else f"return ({of}){{0}};")
        code.close()
        self.functions.append(code)
        return name

    def _parameters(self, params: list[tree.Param], inner: FunctionFrame) -> list[str]:
        """C parameters of an action or function: `out` and `inout` ones are pointers to the caller's copies."""
        out = []
        for one in params:
            if isinstance(one.type, Object):
                continue
            if str(one.type) == "standard_metadata_t":  # there is only one: it is passed by name
                inner.bindings[id(one)] = Lvalue("pkt->std", one.type, "std", True)
                continue
            c = inner.name(one.name)
            of = self.declare_type(one.type, one.where)
            pointer = one.direction in ("out", "inout")
            out.append(f"{of} {'*' if pointer else ''}{c}")
            inner.bindings[id(one)] = Lvalue(f"(*{c})" if pointer else c, one.type, f"param {id(one)}")
            self.note_whole(inner.bindings[id(one)], pointer)
        return out

    def _copy_in(self, arg: tree.Expr, frame: FunctionFrame) -> str:
        if is_scalar(arg.type):
            return self.value(arg, frame)
        place = self.place(arg, frame)
        self.note_whole(place, False)
        return place.c

    def _copy_out(self, pairs: list[tuple[tree.Expr, str]], frame: FunctionFrame) -> None:
        for arg, temporary in pairs:
            self.store(arg, temporary, frame)

    def bound_arguments(
        self, inner: ControlInstance, pairs: list[tuple[tree.Param, tree.Expr]], frame: FunctionFrame
    ) -> tuple[dict[int, Lvalue], list[tuple[tree.Expr, Lvalue]]]:
        """Places of the parameters of a control or parser applied with these arguments, and what to copy out after.

        What lives in the packet is passed by name, unless two arguments overlap or the evaluation of one may change
        another; there is but one standard_metadata, which always goes by name.
        """
        bindings = self.given_instances(pairs, frame)
        pairs = [(param, arg) for param, arg in pairs if not isinstance(param.type, Object)]
        after = []
        calls = (one for _, arg in pairs for one in walk(arg) if isinstance(one, tree.Call) and one.callee is not None)
        acting = any(one.callee.kind in ("user", "table") for one in calls)
        places = [
            self.place(arg, frame)
            if isinstance(arg, (tree.PathExpression, tree.Member))
            and arg.const is None
            and not isinstance(getattr(arg, "decl", None), tree.Const)
            and not _has_call(arg)
            else None
            for _, arg in pairs
        ]
        for (param, arg), place in zip(pairs, places, strict=False):
            others = [one for one in places if one is not None and one is not place]
            fresh = param.direction == "out" and not is_scalar(param.type)  # headers begin invalid
            apart = place is not None and not any(_overlap(place.key, one.key) for one in others)
            apart = apart and not (acting and place is not None and place.key != "std")
            if place is not None and place.shared and apart and not fresh:
                bindings[id(param)] = place
                continue
            copy = self.variable(f"{c_word(inner.name)}_{param.name}", param.type, param.where)
            bindings[id(param)] = copy
            if param.direction == "out":
                frame.code.add(f"{copy.c} = ({self.declare_type(param.type, arg.where)}){{0}};")
                self._forget_bytes(copy, frame)
            elif is_scalar(param.type):
                frame.code.add(f"{copy.c} = {self.value(arg, frame)};")
            else:
                self.assign(copy, arg, frame)
            if param.direction in ("out", "inout") and not isinstance(arg, tree.DontCare):
                after.append((self.fixed(arg, frame), copy))
        return bindings, after

    def given_instances(self, pairs: list[tuple[tree.Param, tree.Expr]], frame: FunctionFrame) -> dict[int, Lvalue]:
        """Places of the parameters that are externs. packet_in and packet_out need none: there is one of each."""
        out: dict[int, Lvalue] = {}
        for param, arg in pairs:
            if isinstance(param.type, Object) and str(param.type) not in ("packet_in", "packet_out"):
                instance = self.instance_of(arg, frame)
                if instance is None:
                    unsupported(arg.where, "this instance as an argument")
                name = f"{instance.kind} {instance.index}"
                out[id(param)] = Lvalue(name, param.type, name, True, instance=instance)
        return out

    def _call_control(self, e: tree.Call, frame: FunctionFrame) -> None:
        """Apply a sub-control. What lives in the packet is passed by name, unless two arguments overlap."""
        assert frame.control is not None and isinstance(e.callee.base, tree.PathExpression)
        inner: ControlInstance = frame.control.members[id(e.callee.base.decl)]
        pairs = [(param, arg) for param, (_, arg) in zip(inner.decl.params, e.callee.args, strict=True)]
        bindings, after = self.bound_arguments(inner, as_written(e, pairs), frame)
        call = f"{self.control_function(inner, bindings, frame.phase)}({CALL})"
        frame.code.add(f"P4_CONTROL({c_string(inner.name)}, {where_string(e.where)});")
        leaves = self.may_exit(inner.decl, inner)
        if leaves:
            result = self._temporary(frame)
            frame.code.add(f"int {result} = {call};")
        else:
            frame.code.add(f"{call};")
        for arg, copy in after:
            self.note_whole(copy, False)
            self.store(arg, copy.c, frame)
        frame.code.add("P4_DONE();")
        if leaves:
            frame.code.open(f"if ({result})")
            frame.code.add(frame.at_exit)
            frame.code.depth -= 1

    def variable(self, wanted: str, of: Type, where: Location) -> Lvalue:
        """A new member of `struct variables`."""
        self.copies += 1
        name = f"{c_word(wanted)}_{self.copies}"
        self.variables.append((self.declare_type(of, where), name))
        return Lvalue(f"v->{name}", of, f"v.{name}")

    # ---- may it exit?

    def may_exit(self, decl: Any, control: ControlInstance | None) -> bool:
        """Does anything that a control or action runs say `exit`?"""
        key = id(decl), id(control)
        if key not in self.exits:
            self.exits[key] = False  # recursion is impossible in P4
            self.exits[key] = any(self._exit_node(one, control) for one in walk(decl))
        return self.exits[key]

    def _exit_node(self, node: Any, control: ControlInstance | None) -> bool:
        if isinstance(node, tree.Exit):
            return True
        if isinstance(node, tree.Call) and node.callee is not None and node.callee.kind == "control":
            assert control is not None
            inner: ControlInstance = control.members[id(node.callee.base.decl)]
            return self.may_exit(inner.decl, inner)
        if isinstance(node, tree.Call) and node.callee is not None and node.callee.kind == "action":
            return self.may_exit(node.callee.decl, control)
        if isinstance(node, tree.ActionRef) and node.decl is not None:
            return self.may_exit(node.decl, control)
        return False

    def may_exit_table(self, table: TableInstance) -> bool:
        return any(self.may_exit(one.decl, table.control) for one in table.actions) or any(
            self.may_exit_table(table.control.members[id(call.callee.decl)])
            for call in walk(table.decl.key)
            if isinstance(call, tree.Call) and call.callee is not None and call.callee.kind == "table"
        )

    # ---- functions

    def function_name(self, wanted: str) -> str:
        name, n = wanted, 2
        while name in self.names:
            name, n = f"{wanted}_{n}", n + 1
        self.names.add(name)
        return name

    def control_function(self, control: ControlInstance, bindings: dict[int, Lvalue], phase: str) -> str:
        """Name of the C function of a control with these arguments; written on first use."""
        key = (id(control), phase, *sorted((k, p.c) for k, p in bindings.items()))
        if key in self.done:
            return self.done[key]
        name = self.function_name(f"control_{c_word(control.name)}")
        self.done[key] = name
        code = Code()
        frame = FunctionFrame(code, dict(bindings), control, phase)
        decl = control.decl
        code.add(f"/* {c_comment(decl.where.short)}: control {decl.name}, as {c_comment(control.name)} */")
        code.add(f"static int {name}({SIGNATURE})")
        code.open("{")
        code.add(_UNUSED)
        for one in decl.locals:
            if isinstance(one, tree.Var):
                self._local(one, control, frame)
        assert decl.body is not None
        self.block(decl.body, frame)
        code.add("return 0;")
        code.close()
        self.functions.append(code)
        return name

    def _local(self, one: tree.Var, control: ControlInstance, frame: FunctionFrame) -> None:
        """A variable of a control, which its actions see too."""
        place = self.variable(f"{c_word(control.name)}_{one.name}", one.type, one.where)
        frame.bindings[id(one)] = place
        if is_scalar(one.type):
            frame.code.add(f"{place.c} = {self.value(one.value, frame) if one.value is not None else '0'};")
            return
        frame.code.add(f"{place.c} = ({self.declare_type(one.type, one.where)}){{0}};")
        self._forget_bytes(place, frame)
        if one.value is not None:
            self.assign(place, one.value, frame)

    def action_function(self, decl: tree.Action, frame: FunctionFrame) -> str:
        """Name of the C function of an action as seen from `frame`'s control."""
        control = frame.control
        inside = control is not None and id(decl) in control.members
        outer = {k: p for k, p in frame.bindings.items() if p.shared or p.c.startswith("v->")} if inside else {}
        key = (id(decl), frame.phase, *sorted((k, p.c) for k, p in outer.items()))
        if key in self.done:
            return self.done[key]
        wanted = f"{control.name}.{decl.name}" if inside and control else decl.name
        name = self.function_name(f"action_{c_word(wanted)}")
        self.done[key] = name
        code = Code()
        inner = FunctionFrame(code, dict(outer), control if inside else None, frame.phase)
        params = [SIGNATURE, *self._parameters(decl.params, inner)]
        code.add(f"/* {c_comment(decl.where.short)}: action {decl.name} */")
        code.add(f"static inline int {name}({', '.join(params)})")
        code.open("{")
        code.add(_UNUSED)
        self.block(decl.body, inner)
        code.add("return 0;")
        code.close()
        self.functions.append(code)
        return name

    def table_function(self, table: TableInstance, frame: FunctionFrame) -> str:
        """Name of the C function that applies a table; written by emit_tables.py."""
        raise NotImplementedError


def action_constant(action: ActionInstance) -> str:
    """Name of an action's index in the C file."""
    return f"ACTION_{action.word}"


def _with_base(e: Any, base: tree.Expr, index: tree.Expr | None = None) -> tree.Expr:
    """A copy of a Member, Slice or Index around another base (or with another index)."""
    if isinstance(e, tree.Member):
        out: tree.Expr = tree.Member(e.where, base, e.name)
    elif isinstance(e, tree.Slice):
        out = tree.Slice(e.where, base, e.high, e.low)
    else:
        out = tree.Index(e.where, base, index or e.index)
    out.type = e.type
    return out


def as_written(e: tree.Call, pairs: list[tuple[tree.Param, tree.Expr]]) -> list[tuple[tree.Param, tree.Expr]]:
    """Parameters with their arguments in the order in which a call has these; defaults last."""
    places = {id(one.value): at for at, one in enumerate(e.args)}
    return sorted(pairs, key=lambda pair: places.get(id(pair[1]), len(places)))


def _has_call(e: tree.Expr) -> bool:
    return any(isinstance(one, tree.Call) for one in walk(e))


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(other + ".") or other.startswith(one + ".")
