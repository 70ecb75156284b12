"""States of parsers and what they select on."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_testbed.switch.compiler.errors import fail, known_names
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.check_context import CheckContext
from mrc_testbed.switch.compiler.sema.check_expr import ExpressionChecker
from mrc_testbed.switch.compiler.sema.check_keysets import KeysetChecker
from mrc_testbed.switch.compiler.sema.check_statements import StatementChecker
from mrc_testbed.switch.compiler.sema.scope import Scope
from mrc_testbed.switch.compiler.sema.types import Record, Tuple, is_value, plain


@dataclass(eq=False, repr=False)
class StateChecker:
    """Checks the states of a parser."""

    context: CheckContext
    expressions: ExpressionChecker
    statements: StatementChecker
    keysets: KeysetChecker

    def state(self, node: tree.State, names: list[str], scope: Scope) -> None:
        """Check the statements and the transition of a state; `names` are those it may go to."""
        inner = Scope(scope)
        for statement in node.body:
            self.context.attempt(self.statements.statement, statement, inner)
        transition = node.transition
        if transition is None:
            return
        for target in [transition] if transition.state else transition.cases:
            if target.state not in names:
                fail(target.location, f"no state {target.state} {known_names(names)}")
        for key in transition.keys:
            self.expressions.expr(key, inner)
        self._spread_select(transition, inner)
        for case in transition.cases:
            self.keysets.row(case.keys, [(statement.type, False) for statement in transition.keys], inner, "select")

    def _spread_select(self, node: tree.Transition, scope: Scope) -> None:
        """Replace tuples, structs and lists in a select by their parts, in the labels too."""
        counts = []
        keys: list[tree.Expr] = []
        for key in node.keys:
            parts = self._select_parts(key, scope)
            counts.append(len(parts) if isinstance(plain(key.type), (Tuple, Record)) else 0)
            keys += parts
        for key in keys:
            if not is_value(key.type):
                fail(key.location, f"select on a {key.type}: only numbers, bool, enums and errors can be selected on")
        for case in node.cases:
            if len(case.keys) == len(counts):
                case.keys = _spread_label(case.keys, counts)
        node.keys = keys

    def _select_parts(self, e: tree.Expr, scope: Scope) -> list[tree.Expr]:
        base = plain(e.type)
        if isinstance(e, tree.ListExpr):
            parts = list(e.items)
        elif (
            isinstance(base, Record)
            and base.kind == "struct"
            and isinstance(e, (tree.PathExpression, tree.Member, tree.Index))
        ):
            parts = [tree.Member(e.location, e, name) for name in base.fields]
        elif isinstance(base, Tuple) and isinstance(e, (tree.PathExpression, tree.Member, tree.Index)):
            numbers = (tree.Integer(e.location, index, None, False) for index in range(len(base.items)))
            parts = [tree.Index(e.location, e, number) for number in numbers]
        else:
            return [e]
        for part in parts:
            self.expressions.expr(part, scope)
        return [part for group in parts for part in self._select_parts(group, scope)]


def _spread_label(keys: list[tree.Expr], counts: list[int]) -> list[tree.Expr]:
    """Return a label's values, with those for tuples and structs spread: `{1, 2}` or `_`."""
    out: list[tree.Expr] = []
    for key, parts in zip(keys, counts, strict=True):
        if parts and isinstance(key, tree.DontCare):
            out += [key] * parts
        else:
            out += _items_of(key) if parts else [key]
    return out


def _items_of(e: tree.Expr) -> list[tree.Expr]:
    if isinstance(e, tree.ListExpr):
        return [item for inner in e.items for item in _items_of(inner)]
    return [e]
