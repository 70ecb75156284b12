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
from mrc_testbed.switch.compiler.sema.types import Stack, is_value

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
    """Return the parts of a node, in the order of the source."""
    return [getattr(node, field.name) for field in fields(node) if field.name not in _UNSEEN]


def _silent(decl: Any, kind: str) -> bool:
    """Return whether `@noWarn("kind")` stands at a declaration."""
    return any(note.name == "noWarn" and note.string() == kind for note in getattr(decl, "annotations", ()))


@dataclass(slots=True)
class _Name:
    node: Any
    description: str
    """Noun for the message that the name is never used; empty: no message."""
    used: bool = False


class Names:
    """Warnings about names, of a program as parsed."""

    def __init__(self) -> None:
        self.warnings: list[P4Warning] = []
        self.scopes: list[dict[str, _Name]] = [{}]

    def program(self, nodes: list[tree.Node]) -> list[P4Warning]:
        for node in nodes:
            if not is_built_in(node.location):
                self.visit(node)
        self._leave()
        return self.warnings

    def warn(self, kind: str, decl: Any, message: str) -> None:
        if not _silent(decl, kind):
            self.warnings.append(P4Warning(decl.location, kind, message))

    # ---- scopes

    def _enter(self) -> None:
        self.scopes.append({})

    def _leave(self) -> None:
        for name, name_use in self.scopes.pop().items():
            if name_use.description and not name_use.used and name != "main" and not name.startswith("_"):
                verb = "applied" if name_use.description == "table" else "used"
                self.warn("unused", name_use.node, f"{name_use.description} {name} is never {verb}")

    def _find(self, name: str) -> _Name | None:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def _declare(self, node: Any, description: str) -> None:
        outer = self._find(node.name)
        if outer and node.name not in self.scopes[-1]:
            self.warn("shadow", node, f"{node.name} hides the {node.name} at {outer.node.location}")
        if outer and description == "function":  # another one of its name
            return
        self.scopes[-1][node.name] = _Name(node, description)

    def _use(self, name: str) -> None:
        name_use = self._find(name)
        if name_use:
            name_use.used = True

    # ---- nodes

    def visit(self, node: Any) -> None:
        """Look at a node, or at the nodes in a list, tuple or dict."""
        if isinstance(node, (list, tuple)):
            for child in node:
                self.visit(child)
        elif isinstance(node, dict):
            self.visit(list(node.values()))
        elif isinstance(node, tree.Node):
            visit_node = self.NODES.get(type(node))
            if visit_node is not None:
                visit_node(self, node)
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

    def _local(self, node: Any, description: str) -> None:
        self.visit(_parts(node))
        self._declare(node, description)

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
        self._routine(node, "action")

    def _function(self, node: tree.Function) -> None:
        self._routine(node, "function")

    def _routine(self, node: Any, description: str) -> None:
        self._enter()
        for param in node.params:
            self._local(param, "parameter" if param.direction in ("", "in") else "")
        self.visit(node.body)
        self._leave()
        self._declare(node, description)

    def _control(self, node: tree.Control) -> None:
        self._object(node, node.body, "control")

    def _parser(self, node: tree.Parser) -> None:
        if node.states is not None:
            reachable_names = reachable(node.states)
            for state in node.states:
                if state.name not in reachable_names:
                    self.warn("unreachable", state, f"no way from start leads to state {state.name}")
        self._object(node, node.states, "parser")

    def _object(self, node: Any, body: Any, description: str) -> None:
        if body is None:
            return
        self._enter()
        for param in (*node.params, *node.ctor):
            self._local(param, "")
        self.visit(node.locals)
        self.visit(body)
        self._leave()
        self._declare(node, description)

    def _state(self, node: tree.State) -> None:
        self._enter()
        self.visit(node.body)
        transition = node.transition
        if transition is None:
            self.warn("parser-transition", node, f"state {node.name} has no transition: it goes to reject")
        else:
            self.visit(transition)
            ends = next(
                (index for index, case in enumerate(transition.cases) if takes_all(case)), len(transition.cases)
            )
            for case in transition.cases[ends + 1 :]:
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


def is_built_in(location: Location) -> bool:
    """Return whether a location is in core.p4 or v1model.p4."""
    return INCLUDE_DIR in FilePath(location.file).parents


def takes_all(case: tree.SelectCase) -> bool:
    """Return whether a row of a select takes every value."""
    return all(isinstance(key, tree.DontCare) for key in case.keys)


def reachable(states: list[tree.State]) -> set[str]:
    """Return the names of reachable states; a state without a matching row goes to reject."""
    states_by_name = {state.name: state for state in states}
    out: set[str] = set()
    pending = ["start"]
    while pending:
        name = pending.pop()
        if name in out:
            continue
        out.add(name)
        if name in states_by_name:
            transition = states_by_name[name].transition
            if transition is None or not (transition.state or any(map(takes_all, transition.cases))):
                pending.append("reject")
            if transition is not None:
                pending += [transition.state] if transition.state else [case.state for case in transition.cases]
    return out


class Values:
    """Warnings about values that may not be there, of a checked program.

    A set of id() goes along the statements: the variables and parameters that surely have a value; None behind `return`
    and `exit`.
    """

    def __init__(self) -> None:
        self.warnings: list[P4Warning] = []
        self.tracked_decls: dict[int, Any] = {}
        """Variables and `out` parameters declared without a value."""
        self.outs: list[tree.Param] = []

    def program(self, nodes: list[tree.Node]) -> list[P4Warning]:
        for node in nodes:
            if isinstance(node, (tree.Action, tree.Function)):
                self._routine(node)
            elif isinstance(node, tree.Control) and node.body is not None:
                for local in node.locals:
                    if isinstance(local, tree.Action):
                        self._routine(local)
                self.outs = []
                self._statement(node.body, set())
                self._unwritten(node)
            elif isinstance(node, tree.Parser) and node.states is not None:
                self.outs = []
                for state in node.states:
                    have = self._statements(state.body, set())
                    if have is not None:
                        self._read(state.transition, have)
                self._unwritten(node)
        return self.warnings

    def _routine(self, node: Any) -> None:
        self.outs = [param for param in node.params if param.direction == "out" and param.type and is_value(param.type)]
        self.tracked_decls.update((id(out), out) for out in self.outs)
        self._ends(self._statement(node.body, set()))

    def _ends(self, have: set[int] | None) -> None:
        for out in self.outs:
            if have is not None and id(out) not in have and not _silent(out, "uninitialized-out-param"):
                message = f"out parameter {out.name} may end without a value: it is 0 then here, anything elsewhere"
                self.warnings.append(P4Warning(out.location, "uninitialized-out-param", message))

    def _unwritten(self, node: Any) -> None:
        """Variables of a control or parser, which actions and states share: nothing at all gives them a value."""
        bare = {
            id(local): local
            for local in node.locals
            if isinstance(local, tree.Var) and local.value is None and local.type
        }
        assigned_ids = set()
        for element in tree.walk([node.locals, getattr(node, "body", None) or getattr(node, "states", None)]):
            if isinstance(element, tree.Assign):
                assigned_ids.add(_root(element.target))
            elif isinstance(element, tree.Call) and element.callee is not None:
                assigned_ids.update(
                    _root(arg) for param, arg in element.callee.args if param.direction in ("out", "inout")
                )
            elif isinstance(element, tree.ActionRef) and element.args:
                assigned_ids.update(_root(arg.value) for arg in element.args)
        for element in tree.walk([node.locals, getattr(node, "body", None) or getattr(node, "states", None)]):
            decl = bare.get(id(element.decl)) if isinstance(element, tree.PathExpression) else None
            if decl is not None and is_value(decl.type) and id(decl) not in assigned_ids:
                self._warn_unset(element, decl)
                del bare[id(decl)]

    def _warn_unset(self, e: tree.PathExpression, decl: Any) -> None:
        if not _silent(decl, "uninitialized-use"):
            message = f"{e.name} may have no value: it is 0 then here, anything elsewhere"
            self.warnings.append(P4Warning(e.location, "uninitialized-use", message))

    # ---- statements

    def _statements(self, body: list[Any], have: set[int] | None) -> set[int] | None:
        for statement in body:
            have = self._statement(statement, have)
        return have

    def _statement(self, s: Any, have: set[int] | None) -> set[int] | None:
        """Return the variables with a value after a statement, given those before it."""
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
                self.tracked_decls[id(s)] = s
        elif isinstance(s, tree.If):
            self._read(s.condition, have)
            after_else = self._statement(s.if_false, set(have)) if s.if_false is not None else have
            return _intersection(self._statement(s.if_true, set(have)), after_else)
        elif isinstance(s, tree.SwitchStatement):
            return self._switch(s, have)
        elif isinstance(s, tree.For):
            after_start = self._statements(s.start, have)
            assert after_start is not None
            self._read(s.condition, after_start)
            self._statements([s.body, *s.updates], set(after_start))
        elif isinstance(s, tree.ForIn):
            self._read(s.low, have)
            self._read(s.high, have)
            self._statement(s.body, set(have))
        elif isinstance(s, tree.Return):
            self._read(s.value, have)
            self._ends(have)
            return None
        # Nothing behind these runs: no variable is unset there.
        elif isinstance(s, (tree.Exit, tree.Break, tree.Continue)):
            return None
        return have

    def _switch(self, s: tree.SwitchStatement, have: set[int]) -> set[int] | None:
        self._read(s.value, have)
        out = None if any(isinstance(case.label, tree.DontCare) for case in s.cases) else have
        for case in s.cases:
            if case.body is not None:
                out = _intersection(out, self._statement(case.body, set(have)))
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
            if id(e.decl) in self.tracked_decls and id(e.decl) not in have:
                self._warn_unset(e, e.decl)
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
            for item in e:
                self._read(item, have)
        elif isinstance(e, tree.Node):
            if isinstance(e, tree.Member) and _is_next(e.base):
                message = f"{e.name} of `next` has no value yet: the header extracted before it is `last`"
                self.warnings.append(P4Warning(e.location, "uninitialized-use", message))
            self._read(_parts(e), have)


def _intersection(first: set[int] | None, second: set[int] | None) -> set[int] | None:
    """Return the variables with a value on both of two joining paths; None: a path that ends."""
    return second if first is None else first if second is None else first & second


def _is_next(e: Any) -> bool:
    """Return whether an expression is the next element of a header stack."""
    return isinstance(e, tree.Member) and e.name == "next" and isinstance(e.base.type, Stack)


def _root(e: Any) -> int:
    """id() of what an expression that is written to belongs to."""
    while isinstance(e, (tree.Member, tree.Index, tree.Slice)):
        e = e.base
    return id(e.decl) if isinstance(e, tree.PathExpression) else 0
