"""Finds the controls, actions and tables that may run `exit`."""

from __future__ import annotations

from typing import Any

from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.frontend.tree import walk
from mrc_testbed.switch.compiler.sema.elaborate import ControlInstance, TableInstance


class Exits:
    """Answers are kept: every call asks."""

    def __init__(self) -> None:
        self.results: dict[tuple[int, int], bool] = {}

    def runs(self, decl: Any, control: ControlInstance | None) -> bool:
        """Return whether any code that a control or action runs is an `exit`."""
        key = id(decl), id(control)
        if key not in self.results:
            self.results[key] = False  # recursion is impossible in P4
            self.results[key] = any(self._node(node, control) for node in walk(decl))
        return self.results[key]

    def _node(self, node: Any, control: ControlInstance | None) -> bool:
        if isinstance(node, tree.Exit):
            return True
        if isinstance(node, tree.Call) and node.callee is not None and node.callee.kind == "control":
            assert control is not None
            inner: ControlInstance = control.members[id(node.callee.base.decl)]
            return self.runs(inner.decl, inner)
        if isinstance(node, tree.Call) and node.callee is not None and node.callee.kind == "action":
            return self.runs(node.callee.decl, control)
        if isinstance(node, tree.ActionRef) and node.decl is not None:
            return self.runs(node.decl, control)
        return False

    def table(self, table: TableInstance) -> bool:
        """Return whether a table, or a table applied in its key, runs an action that may exit."""
        return any(self.runs(action.decl, table.control) for action in table.actions) or any(
            self.table(table.control.members[id(call.callee.decl)])
            for call in walk(table.decl.key)
            if isinstance(call, tree.Call) and call.callee is not None and call.callee.kind == "table"
        )
