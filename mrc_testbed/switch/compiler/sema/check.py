"""Names, types and rules of a whole program."""

from __future__ import annotations

from typing import Any

from mrc_testbed.switch.compiler.errors import P4Warning
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.check_calls import CallChecker
from mrc_testbed.switch.compiler.sema.check_constructors import ConstructorChecker
from mrc_testbed.switch.compiler.sema.check_context import MOST_PROBLEMS, CheckContext
from mrc_testbed.switch.compiler.sema.check_copies import CopyMaker
from mrc_testbed.switch.compiler.sema.check_declarations import DeclarationChecker
from mrc_testbed.switch.compiler.sema.check_expr import ExpressionChecker
from mrc_testbed.switch.compiler.sema.check_keysets import KeysetChecker
from mrc_testbed.switch.compiler.sema.check_statements import StatementChecker
from mrc_testbed.switch.compiler.sema.check_states import StateChecker
from mrc_testbed.switch.compiler.sema.check_tables import TableChecker
from mrc_testbed.switch.compiler.sema.check_types import TypeResolver
from mrc_testbed.switch.compiler.sema.scope import Scope, locations_of


class Checker:
    """Checks a program once, declaration by declaration; annotates the tree in place."""

    def __init__(self) -> None:
        self.context = context = CheckContext()
        types = TypeResolver(context)
        expressions = ExpressionChecker(context, types)
        self.copies = CopyMaker(context, types, expressions)
        calls = CallChecker(context, types, expressions, self.copies)
        constructors = ConstructorChecker(context, types, expressions, calls, self.copies)
        statements = StatementChecker(context, types, expressions, calls)
        keysets = KeysetChecker(context, expressions)
        tables = TableChecker(context, types, expressions, calls, self.copies, constructors, statements, keysets)
        states = StateChecker(context, expressions, statements, keysets)
        self.declarations = DeclarationChecker(
            context, types, expressions, calls, self.copies, constructors, statements, tables, states
        )
        context.expressions, context.calls, context.copies = expressions, calls, self.copies
        context.declarations = self.declarations

    @property
    def top(self) -> Scope:
        """The names of the program."""
        return self.context.top

    @property
    def errors(self) -> list[str]:
        """The members of `error`."""
        return self.context.errors

    @property
    def warnings(self) -> list[P4Warning]:
        """Warnings about valid P4 that its author hardly means."""
        return self.context.warnings

    def checked(self, node: Any) -> list[Any]:
        """A declaration, or the copies that were made of it and have what it lacks: types, values, numbers."""
        return self.copies.checked(node)

    def program(self, nodes: list[tree.Node]) -> None:
        """Check all; raises the first P4Error, with the others that were found behind it."""
        context = self.context
        context.top.later = locations_of(nodes)
        for node in nodes:
            context.attempt(self.declarations.declaration, node, context.top)
        for template in self.copies.templates.values():
            if not template.copies:
                context.problems += template.problems
                context.warnings += template.warnings
        del context.problems[MOST_PROBLEMS:]
        if context.problems:
            first, *first.further_errors = context.problems
            raise first
