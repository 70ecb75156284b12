"""Every kind of node has its line in a table of the checker, or is no node of that table."""

from __future__ import annotations

from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.check_declarations import DeclarationChecker
from mrc_testbed.switch.compiler.sema.check_expr import ExpressionChecker
from mrc_testbed.switch.compiler.sema.check_statements import StatementChecker
from mrc_testbed.switch.compiler.sema.warn import Names

IN_KEY_SETS = {tree.Mask, tree.Range}
"""Expressions that check_keysets.py takes apart."""
PARTS = {tree.Param, tree.Field, tree.State}
"""Declarations that are checked with what they are parts of."""
WITHOUT_NAME = {tree.Errors, tree.MatchKinds}
"""Declarations that add to a list."""


def nodes_of(base: type) -> set[type]:
    """Return the kinds of node of the tree below `base`."""
    return {var for var in vars(tree).values() if isinstance(var, type) and issubclass(var, base)} - {base}


def test_expressions__every_node_is_checked():
    assert set(ExpressionChecker.KINDS) == nodes_of(tree.Expr) - IN_KEY_SETS


def test_statements__every_node_is_checked():
    loops = {tree.For, tree.ForIn, tree.Break, tree.Continue}
    assert set(StatementChecker.KINDS) == loops | set(tree.Statement.__args__)


def test_names__every_declaration_is_entered_or_has_no_use():
    """Every declaration has its line, but parameters, fields and types.

    An unused parameter is reported by its owner, a type or a field never.
    """
    without_warning = {tree.Param, tree.Field, tree.Typedef, tree.Aggregate, tree.Enum}
    assert nodes_of(tree.Decl) - without_warning == nodes_of(tree.Decl) & set(Names.NODES)


def test_declarations__every_node_is_checked():
    assert set(DeclarationChecker.KINDS) == (nodes_of(tree.Decl) - PARTS) | WITHOUT_NAME
