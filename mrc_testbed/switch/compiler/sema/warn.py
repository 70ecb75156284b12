"""Warnings: what a program may say, and its author hardly means.

Names (unused, shadow, unreachable, parser-transition) are looked at in the tree as parsed, where every declaration is
there once; values (uninitialized-use, uninitialized-out-param) in the checked one, where calls know what they write.
The checker itself warns of constants that do not fit (overflow, mismatch) and of priorities. The kinds are p4c's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path as FilePath
from typing import Any, ClassVar

from mrc_testbed.switch.compiler.errors import Location, P4Warning
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.frontend.preprocess import INCLUDE_DIR
from mrc_testbed.switch.compiler.sema.types import is_value

KINDS = (
    "duplicate-priorities",
    "entries-out-of-priority-order",
    "ignore-prop",
    "mismatch",
    "overflow",
    "parser-transition",
    "shadow",
    "uninitialized-out-param",
    "uninitialized-use",
    "unreachable",
    "unused",
)
_UNSEEN = ("type", "const", "decl", "callee", "annotations")


def _parts(node: tree.Node) -> list[Any]:
    """What a node is made of, in the order of the source."""
    return [getattr(node, field.name) for field in fields(node) if field.name not in _UNSEEN]


def _silent(decl: Any, kind: str) -> bool:
    """Does `@noWarn("kind")` stand at a declaration?"""
    return any(note.name == "noWarn" and note.string() == kind for note in getattr(decl, "annotations", ()))


@dataclass(slots=True)
class _Name:
    node: Any
    what: str
    """What it is called when it is never used; empty: it need not be used."""
    used: bool = False


class Names:
    """Warnings about names, of a program as parsed."""

    def __init__(self) -> None:
        self.found: list[P4Warning] = []
        self.scopes: list[dict[str, _Name]] = [{}]

    def program(self, nodes: list[tree.Node]) -> list[P4Warning]:
        for node in nodes:
            if not _given(node.where):
                self.visit(node)
        self._leave()
        return self.found

    def warn(self, kind: str, decl: Any, message: str) -> None:
        if not _silent(decl, kind):
            self.found.append(P4Warning(decl.where, kind, message))

    # ---- scopes

    def _enter(self) -> None:
        self.scopes.append({})

    def _leave(self) -> None:
        for name, one in self.scopes.pop().items():
            if one.what and not one.used and name != "main" and not name.startswith("_"):
                self.warn(
                    "unused", one.node, f"{one.what} {name} is never {'applied' if one.what == 'table' else 'used'}"
                )

    def _find(self, name: str) -> _Name | None:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def _declare(self, node: Any, what: str) -> None:
        outer = self._find(node.name)
        if outer and node.name not in self.scopes[-1]:
            self.warn("shadow", node, f"{node.name} hides the {node.name} at {outer.node.where}")
        if outer and what == "function":  # another one of its name
            return
        self.scopes[-1][node.name] = _Name(node, what)

    def _use(self, name: str) -> None:
        found = self._find(name)
        if found:
            found.used = True

    # ---- nodes

    def visit(self, node: Any) -> None:
        """Look at a node, or at the nodes in a list, tuple or dict."""
        if isinstance(node, (list, tuple)):
            for one in node:
                self.visit(one)
        elif isinstance(node, dict):
            self.visit(list(node.values()))
        elif isinstance(node, tree.Node):
            look = self.NODES.get(type(node))
            if look is not None:
                look(self, node)
            else:
                self.visit(_parts(node))

    def _path(self, node: tree.PathExpression) -> None:
        self._use(node.name)

    def _named_type(self, node: tree.NamedType) -> None:
        self._use(node.name)
        self.visit(node.args)

    def _action_ref(self, node: tree.ActionRef) -> None:
        self._use(node.name)
        self.visit(node.args)

    def _local(self, node: Any, what: str) -> None:
        self.visit(_parts(node))
        self._declare(node, what)

    def _var(self, node: tree.Var) -> None:
        self._local(node, "variable")

    def _const(self, node: tree.Const) -> None:
        self._local(node, "constant" if len(self.scopes) > 1 else "")  # files of constants are meant for more than one

    def _instance(self, node: tree.Instance) -> None:
        self._local(node, "instance")

    def _table(self, node: tree.Table) -> None:
        self._local(node, "table")

    def _value_set(self, node: tree.ValueSet) -> None:
        self._local(node, "value_set")

    def _action(self, node: tree.Action) -> None:
        self._called(node, "action")

    def _function(self, node: tree.Function) -> None:
        self._called(node, "function")

    def _called(self, node: Any, what: str) -> None:
        self._enter()
        for param in node.params:
            self._local(param, "parameter" if param.direction in ("", "in") else "")
        self.visit(node.body)
        self._leave()
        self._declare(node, what)

    def _control(self, node: tree.Control) -> None:
        self._object(node, node.body, "control")

    def _parser(self, node: tree.Parser) -> None:
        if node.states is not None:
            reached = reachable(node.states)
            for state in node.states:
                if state.name not in reached:
                    self.warn("unreachable", state, f"no way from start leads to state {state.name}")
        self._object(node, node.states, "parser")

    def _object(self, node: Any, body: Any, what: str) -> None:
        if body is None:
            return
        self._enter()
        for param in (*node.params, *node.ctor):
            self._local(param, "")
        self.visit(node.locals)
        self.visit(body)
        self._leave()
        self._declare(node, what)

    def _state(self, node: tree.State) -> None:
        self._enter()
        self.visit(node.body)
        after = node.transition
        if after is None:
            self.warn("parser-transition", node, f"state {node.name} has no transition: it goes to reject")
        else:
            self.visit(after)
            ends = next((at for at, case in enumerate(after.cases) if takes_all(case)), len(after.cases))
            for case in after.cases[ends + 1 :]:
                self.warn("unreachable", case, "this case stands below one that takes every value")
        self._leave()

    def _block(self, node: tree.Block) -> None:
        self._enter()
        self.visit(node.body)
        self._leave()

    def _for(self, node: tree.For) -> None:
        self._enter()
        self.visit(_parts(node))
        self._leave()

    def _for_in(self, node: tree.ForIn) -> None:
        self._enter()
        self.visit((node.low, node.high))
        self._local(node.variable, "")
        self.visit(node.body)
        self._leave()

    def _bodiless(self, node: tree.Node) -> None:
        """A declaration without a body has no names of its own to use."""

    NODES: ClassVar[Mapping[type[tree.Node], Callable[[Names, Any], None]]] = {
        tree.PathExpression: _path,
        tree.NamedType: _named_type,
        tree.ActionRef: _action_ref,
        tree.Var: _var,
        tree.Const: _const,
        tree.Instance: _instance,
        tree.Table: _table,
        tree.ValueSet: _value_set,
        tree.Action: _action,
        tree.Function: _function,
        tree.Control: _control,
        tree.Parser: _parser,
        tree.State: _state,
        tree.Block: _block,
        tree.For: _for,
        tree.ForIn: _for_in,
        tree.Method: _bodiless,
        tree.ExternObject: _bodiless,
        tree.Package: _bodiless,
    }
    """Nodes that use names, declare them or have a scope; of all others the parts are looked at."""


def _given(where: Location) -> bool:
    """Is it in core.p4 or v1model.p4?"""
    return INCLUDE_DIR in FilePath(where.file).parents


def takes_all(case: tree.SelectCase) -> bool:
    """Does a row of a select take every value?"""
    return all(isinstance(one, tree.DontCare) for one in case.keys)


def reachable(states: list[tree.State]) -> set[str]:
    """Names of the states that a parser may come to; without a transition, or a row that fits, it goes to reject."""
    found = {state.name: state for state in states}
    out: set[str] = set()
    todo = ["start"]
    while todo:
        name = todo.pop()
        if name in out:
            continue
        out.add(name)
        if name in found:
            after = found[name].transition
            if after is None or not (after.state or any(map(takes_all, after.cases))):
                todo.append("reject")
            if after is not None:
                todo += [after.state] if after.state else [case.state for case in after.cases]
    return out


class Values:
    """Warnings about values that may not be there, of a checked program.

    A set of id() goes along the statements: the variables and parameters that surely have a value; None behind `return`
    and `exit`.
    """

    def __init__(self) -> None:
        self.found: list[P4Warning] = []
        self.tracked: dict[int, Any] = {}
        """Variables and `out` parameters declared without a value."""
        self.outs: list[tree.Param] = []

    def program(self, nodes: list[tree.Node]) -> list[P4Warning]:
        for node in nodes:
            if isinstance(node, (tree.Action, tree.Function)):
                self._called(node)
            elif isinstance(node, tree.Control) and node.body is not None:
                for local in node.locals:
                    if isinstance(local, tree.Action):
                        self._called(local)
                self.outs = []
                self._statement(node.body, set())
                self._unwritten(node)
            elif isinstance(node, tree.Parser) and node.states is not None:
                self.outs = []
                for state in node.states:
                    self._statements(state.body, set())
                self._unwritten(node)
        return self.found

    def _called(self, node: Any) -> None:
        self.outs = [param for param in node.params if param.direction == "out" and param.type and is_value(param.type)]
        self.tracked.update((id(out), out) for out in self.outs)
        self._ends(self._statement(node.body, set()))

    def _ends(self, have: set[int] | None) -> None:
        for out in self.outs:
            if have is not None and id(out) not in have and not _silent(out, "uninitialized-out-param"):
                message = f"out parameter {out.name} may end without a value: it is 0 then here, anything elsewhere"
                self.found.append(P4Warning(out.where, "uninitialized-out-param", message))

    def _unwritten(self, node: Any) -> None:
        """Variables of a control or parser, which actions and states share: nothing at all gives them a value."""
        bare = {
            id(local): local
            for local in node.locals
            if isinstance(local, tree.Var) and local.value is None and local.type
        }
        written = set()
        for one in tree.walk([node.locals, getattr(node, "body", None) or getattr(node, "states", None)]):
            if isinstance(one, tree.Assign):
                written.add(_root(one.target))
            elif isinstance(one, tree.Call) and one.callee is not None:
                written.update(_root(arg) for param, arg in one.callee.args if param.direction in ("out", "inout"))
            elif isinstance(one, tree.ActionRef) and one.args:
                written.update(_root(arg.value) for arg in one.args)
        for one in tree.walk([node.locals, getattr(node, "body", None) or getattr(node, "states", None)]):
            decl = bare.get(id(one.decl)) if isinstance(one, tree.PathExpression) else None
            if decl is not None and is_value(decl.type) and id(decl) not in written:
                self._missing(one, decl)
                del bare[id(decl)]

    def _missing(self, e: tree.PathExpression, decl: Any) -> None:
        if not _silent(decl, "uninitialized-use"):
            message = f"{e.name} may have no value: it is 0 then here, anything elsewhere"
            self.found.append(P4Warning(e.where, "uninitialized-use", message))

    # ---- statements

    def _statements(self, body: list[Any], have: set[int] | None) -> set[int] | None:
        for one in body:
            have = self._statement(one, have)
        return have

    def _statement(self, s: Any, have: set[int] | None) -> set[int] | None:
        """What has a value behind a statement, when `have` has one before it."""
        if have is None:
            return None
        if isinstance(s, tree.Block):
            return self._statements(s.body, have)
        if isinstance(s, tree.Assign):
            self._read(s.value, have)
            self._write(s.target, have)
        elif isinstance(s, (tree.CallStatement, tree.DirectApply)):
            self._read(s.call, have)
        elif isinstance(s, tree.Var):
            if s.value is not None:
                self._read(s.value, have)
            elif s.type is not None and is_value(s.type):
                self.tracked[id(s)] = s
        elif isinstance(s, tree.If):
            self._read(s.condition, have)
            other = self._statement(s.other, set(have)) if s.other is not None else have
            return _both(self._statement(s.then, set(have)), other)
        elif isinstance(s, tree.SwitchStatement):
            return self._switch(s, have)
        elif isinstance(s, tree.For):
            inside = self._statements(s.start, have)
            assert inside is not None
            self._read(s.condition, inside)
            self._statements([s.body, *s.updates], set(inside))
        elif isinstance(s, tree.ForIn):
            self._read(s.low, have)
            self._read(s.high, have)
            self._statement(s.body, set(have))
        elif isinstance(s, tree.Return):
            self._read(s.value, have)
            self._ends(have)
            return None
        elif isinstance(s, (tree.Exit, tree.Break, tree.Continue)):
            return None
        return have

    def _switch(self, s: tree.SwitchStatement, have: set[int]) -> set[int] | None:
        self._read(s.value, have)
        out = None if any(isinstance(case.label, tree.DontCare) for case in s.cases) else have
        for case in s.cases:
            if case.body is not None:
                out = _both(out, self._statement(case.body, set(have)))
        return out

    # ---- expressions

    def _write(self, e: Any, have: set[int]) -> None:
        while isinstance(e, (tree.Member, tree.Index, tree.Slice)):
            if isinstance(e, tree.Index):
                self._read(e.index, have)
            e = e.base
        if isinstance(e, tree.PathExpression):
            have.add(id(e.decl))

    def _read(self, e: Any, have: set[int]) -> None:
        if isinstance(e, tree.PathExpression):
            if id(e.decl) in self.tracked and id(e.decl) not in have:
                self._missing(e, e.decl)
                have.add(id(e.decl))  # told once
        elif isinstance(e, tree.Call):
            pairs = e.callee.args if e.callee is not None else []
            for param, arg in pairs:
                if param.direction != "out":
                    self._read(arg, have)
            for param, arg in pairs:
                if param.direction in ("out", "inout"):
                    self._write(arg, have)
            if not pairs:
                self._read(e.args, have)
            if isinstance(e.target, tree.Member):
                self._read(e.target.base, have)
        elif isinstance(e, (list, tuple)):
            for one in e:
                self._read(one, have)
        elif isinstance(e, tree.Node):
            self._read(_parts(e), have)


def _both(one: set[int] | None, other: set[int] | None) -> set[int] | None:
    """What has a value where two ways meet."""
    return other if one is None else one if other is None else one & other


def _root(e: Any) -> int:
    """id() of what an expression that is written to belongs to."""
    while isinstance(e, (tree.Member, tree.Index, tree.Slice)):
        e = e.base
    return id(e.decl) if isinstance(e, tree.PathExpression) else 0
