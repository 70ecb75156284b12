"""Completeness of the emitter's tables: a line for each kind of node, callee and extern, or a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mrc_testbed import switch
from mrc_testbed.switch.compiler.backend.emit_calls import CallEmitter
from mrc_testbed.switch.compiler.backend.emit_expr import ExpressionEmitter
from mrc_testbed.switch.compiler.backend.emit_externs import _WITHOUT_C, ExternEmitter
from mrc_testbed.switch.compiler.backend.emit_stmt import StatementEmitter
from mrc_testbed.switch.compiler.backend.emit_wide import WideEmitter
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema import check_calls
from mrc_testbed.switch.compiler.sema.elaborate import EXTERNS

UNSUPPORTED_NODES = {tree.Instance}
"""Statements that the checker refuses."""
V1MODEL = (Path(switch.__file__).parent / "include" / "v1model.p4").read_text()


def nodes_of(base: type) -> set[type]:
    """Return the kinds of node of the tree below `base`."""
    return {var for var in vars(tree).values() if isinstance(var, type) and issubclass(var, base)} - {base}


def statements() -> set[type]:
    return {tree.For, tree.ForIn, tree.Break, tree.Continue, *tree.Statement.__args__}


def test_expressions__every_node_is_written_or_never_a_value():
    assert nodes_of(tree.Expr) == set(ExpressionEmitter.KINDS) | ExpressionEmitter.NO_VALUES
    assert not set(ExpressionEmitter.KINDS) & ExpressionEmitter.NO_VALUES
    assert set(WideEmitter.KINDS) < set(ExpressionEmitter.KINDS)


def test_statements__every_node_is_written_or_refused():
    assert set(StatementEmitter.KINDS) == statements() - UNSUPPORTED_NODES


def test_calls__every_kind_of_callee_is_written():
    text = Path(check_calls.__file__).read_text()
    callee_kinds = set(re.findall(r'Callee\("(\w+)"', text))
    assert {"table", "action", "header", "method", "function", "user", "stack"} <= callee_kinds
    assert set(CallEmitter.KINDS) == callee_kinds | {"control", "parser"}  # these two by the kind of the object


@pytest.mark.parametrize("name", EXTERNS)
def test_methods__every_object_has_those_that_v1model_declares(name):
    body = re.search(rf"^extern {name}\b.*?^\}}", V1MODEL, re.S | re.M)
    assert body
    v1model_methods = set(re.findall(r"void (\w+)[(<]", body[0]))
    assert {method for extern, method in ExternEmitter.METHODS if extern == name} == v1model_methods


def test_functions__every_one_that_v1model_declares_is_written_or_silent():
    v1model_functions = set(re.findall(r"^extern void (\w+)", V1MODEL, re.M))
    assert v1model_functions | {"verify", "static_assert"} == set(ExternEmitter.FUNCTIONS) | _WITHOUT_C
