"""Tables, actions and digests that the control plane sees: those that code reaches, in p4c's order.

p4c makes P4Info of a program that its front end has simplified: branches that constants rule out are gone, with the
tables applied there only; an action that controls call by name stays, without parameters; controls are inlined into
the one that applies them. The C program keeps more than that. What P4Info does not name has no entries and no readers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.elaborate import (
    ActionInstance,
    ControlInstance,
    DigestInstance,
    ElaboratedProgram,
    ExternInstance,
    TableInstance,
    plane_name,
)


class Plane:
    """The tables, actions, externs and digests of P4Info."""

    def __init__(self, program: ElaboratedProgram) -> None:
        self.program = program
        self.actions: list[ActionInstance] = []
        self.calls_externs = False
        """Whether controls call functions of the architecture; p4c has a type_info then, be it empty."""
        self._reached_controls: list[ControlInstance] = []
        self._tables: set[int] = set()
        """id() of the reached tables; the same for _actions and _with_data."""
        self._actions: set[int] = set()
        self._with_data: set[int] = set()
        self._seen_bodies: set[int] = set()
        """id() of the functions and actions whose calls have been noted."""
        self.digests: list[DigestInstance] = []
        self._global = {id(action.decl): action for table in program.tables for action in table.actions}
        for top in (program.verify, program.ingress, program.egress, program.compute, program.deparser):
            self._control(top)
        self.tables = [table for table in program.tables if id(table) in self._tables]
        self.externs = self._externs()

    def gets_data(self, action: ActionInstance) -> bool:
        """Whether a table that is reached has the action: only then the control plane gives its parameters."""
        return id(action) in self._with_data

    # ---- one top-level control with all that is inlined into it

    def _control(self, top: ControlInstance) -> None:
        calls: list[ActionInstance] = []
        other_calls: list[tree.Call] = []
        self._body(top, calls, other_calls)
        tables: list[TableInstance] = []
        local_actions: list[ActionInstance] = []
        self._locals(top, tables, local_actions, set())
        for table in tables:
            for action in table.actions:
                self._actions.add(id(action))
                self._with_data.add(id(action))
        self._actions.update(map(id, calls))
        local_ids = {id(action) for action in local_actions}
        shared_actions = [action for table in tables for action in _in_source_order(table)] + calls
        shared_actions = list(dict.fromkeys(action for action in shared_actions if id(action) not in local_ids))
        ordered_actions = [*shared_actions, *(action for action in local_actions if id(action) in self._actions)]
        # p4c numbers digests in the order of the actions, then of the control's own code.
        for action in ordered_actions:
            for call in _calls(action.decl.body):
                self._extern_call(call)
        for call in other_calls:
            self._extern_call(call)
        names = {action.name for action in self.actions}
        for action in ordered_actions:
            if action.name not in names:
                names.add(action.name)
                self.actions.append(action)
            elif id(action) in self._with_data:
                first = next(known_action for known_action in self.actions if known_action.name == action.name)
                self._with_data.add(id(first))

    def _body(self, control: ControlInstance, calls: list[ActionInstance], other_calls: list[tree.Call]) -> None:
        """Collect the tables, actions and functions that a control's code reaches.

        The code of the controls that it applies belongs to it.
        """
        self._reached_controls.append(control)
        pending: list[Any] = [
            *(local for local in control.decl.locals if isinstance(local, tree.Var)),
            control.decl.body,
        ]
        while pending:
            for call in _calls(pending.pop(0)):
                kind = call.callee.kind
                if kind == "table":
                    table = control.members[id(call.callee.decl)]
                    if id(table) not in self._tables:
                        self._tables.add(id(table))
                        pending.append(table.decl.key)
                elif kind == "control":
                    inner_control = control.members[id(call.callee.base.decl)]
                    if inner_control not in self._reached_controls:
                        self._body(inner_control, calls, other_calls)
                elif kind == "action":
                    calls.append(self._action(call.callee.decl, control))
                else:
                    other_calls.append(call)

    def _action(self, decl: tree.Action, control: ControlInstance) -> ActionInstance:
        local_action = control.members.get(id(decl))
        return local_action or self._global.setdefault(id(decl), ActionInstance(plane_name(decl, ""), decl))

    def _locals(
        self,
        control: ControlInstance,
        tables: list[TableInstance],
        actions: list[ActionInstance],
        visited_ids: set[int],
    ) -> None:
        """Reached tables and own actions of a control, those of the controls in it where these are made."""
        visited_ids.add(id(control))
        for decl in (*control.decl.ctor, *control.decl.locals):
            instance = control.members.get(id(decl))
            if isinstance(instance, ActionInstance):
                actions.append(instance)
            elif isinstance(instance, TableInstance) and id(instance) in self._tables:
                tables.append(instance)
            elif (
                isinstance(instance, ControlInstance)
                and instance in self._reached_controls
                and id(instance) not in visited_ids
            ):
                self._locals(instance, tables, actions, visited_ids)

    def _extern_call(self, call: tree.Call) -> None:
        """Notes what a call of a function of the architecture means, and those in a function of the program."""
        if call.callee.kind in ("user", "action"):
            if id(call.callee.decl) not in self._seen_bodies:
                self._seen_bodies.add(id(call.callee.decl))
                for inner in _calls(call.callee.decl.body):
                    self._extern_call(inner)
        elif call.callee.kind == "function" and call.callee.name != "static_assert":
            self.calls_externs = True
            if call.callee.name == "digest":
                sent = call.callee.bound.get("T")
                self.digests += [
                    digest for digest in self.program.digests if digest.type == sent and digest not in self.digests
                ]

    def _externs(self) -> list[ExternInstance]:
        """All but those of controls that nothing applies."""
        kept_ids = {id(member) for control in self._reached_controls for member in control.members.values()}
        dropped: set[int] = set()
        pending = list(self._reached_controls)
        visited_ids: set[int] = set()
        while pending:
            control = pending.pop()
            if id(control) in visited_ids:
                continue
            visited_ids.add(id(control))
            members = list(control.members.values())
            pending += [member for member in members if isinstance(member, ControlInstance)]
            if control not in self._reached_controls:
                dropped.update(id(member) for member in members if isinstance(member, ExternInstance))
        return [extern for extern in self.program.externs if id(extern) in kept_ids or id(extern) not in dropped]


def _in_source_order(table: TableInstance) -> list[ActionInstance]:
    """The actions of a table as its source names them: the default action may stand before `actions`."""
    default = table.decl.properties.get("default_action")
    refs = table.decl.actions
    if default is not None and refs:
        actions_position, default_position = refs[0].location, default.value.location
        if (default_position.line, default_position.column) < (actions_position.line, actions_position.column):
            index = [ref.name for ref in refs].index(default.action.name)
            return [table.actions[index], *table.actions]
    return table.actions


# ---- code that can run


def _calls(body: Any) -> Iterator[tree.Call]:
    """The calls in a body that can run, inner ones first.

    p4c drops what stands behind `exit` or `return` only in a body that has a `return` to get rid of.
    """
    return _reachable_calls(body, any(isinstance(descendant, tree.Return) for descendant in tree.walk(body)))


def _reachable_calls(node: Any, returns: bool) -> Iterator[tree.Call]:
    if isinstance(node, (list, tuple)):
        for child in node:
            yield from _reachable_calls(child, returns)
    elif isinstance(node, tree.Block):
        for child in node.body:
            yield from _reachable_calls(child, returns)
            if returns and _leaves(child):
                break
    elif isinstance(node, (tree.If, tree.Ternary)) and node.condition.const is not None:
        yield from _reachable_calls(node.if_true if node.condition.const else node.if_false, returns)
    elif isinstance(node, tree.Binary) and node.op in ("&&", "||") and node.lhs.const is not None:
        if bool(node.lhs.const) == (node.op == "&&"):
            yield from _reachable_calls(node.rhs, returns)
    elif isinstance(node, tree.Node):
        for field in fields(node):
            if field.name not in ("decl", "callee", "type", "const", "annotations"):
                yield from _reachable_calls(getattr(node, field.name), returns)
        if isinstance(node, tree.Call) and node.callee is not None:
            yield node


def _leaves(node: Any) -> bool:
    """Whether nothing behind a statement runs."""
    if isinstance(node, tree.Block):
        return any(map(_leaves, node.body))
    if isinstance(node, tree.If):
        return node.if_false is not None and _leaves(node.if_true) and _leaves(node.if_false)
    return isinstance(node, (tree.Return, tree.Exit))
