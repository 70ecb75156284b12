"""Nodes of the AST.

Locations of names, annotations, bodies, and the depth to which a program may be nested.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from mrc_testbed.switch.compiler import P4Error
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.frontend.parse import parse_program


def only(text: str) -> Any:
    (node,) = parse_program(text)
    return node


def test_declaration__stands_at_its_name():
    node = only("\n  const  bit<8>  LIMIT = 3;")
    assert (node.location.line, node.location.column) == (2, 18)
    assert (node.name, node.value.value) == ("LIMIT", 3)


def test_name__is_its_text_in_every_use():
    name = only("const bit<8> LIMIT = 3;").name
    assert name == "LIMIT" and {name: 1}["LIMIT"] == 1 and repr(name) == "'LIMIT'"
    assert copy.deepcopy(name).location == name.location


def test_field__has_the_lists_of_its_annotations():
    node = only("struct s { @field_list(1, 2) bit<8> a; bit<8> b; }")
    assert [[list_.value for list_ in field.lists] for field in node.fields] == [[1, 2], []]


@pytest.mark.parametrize("body, has_body", [("", False), (" = { }", False), (" = { void f() { } }", True)])
def test_instance__has_a_body_when_something_is_in_it(body, has_body):
    assert parse_program(f"extern E {{ E(); }} E() e{body};")[1].has_body is has_body


def test_compound_assignment__names_its_target_twice():
    (statement,) = only("action a(inout bit<8> x) { x |+|= 1; }").body.body
    assert isinstance(statement.value, tree.Binary)
    assert (statement.target.name, statement.value.lhs.name, statement.value.op) == ("x", "x", "|+|")


def test_nesting__is_refused_where_it_gets_too_deep():
    assert only(f"const bit<8> X = {'-' * 190}1;").name == "X"
    with pytest.raises(P4Error, match=r":1:217: nested deeper than 200 levels$"):
        parse_program(f"const bit<8> X = {'-' * 210}1;")
