"""Syntax tree -> P4 text on one line, for people to read: what `mrc p4 graph` writes into its boxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mrc_testbed.switch.compiler.frontend import tree

_TIGHTNESS = {
    "||": 1, "&&": 2, "==": 3, "!=": 3, "<": 4, ">": 4, "<=": 4, ">=": 4, "|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8,
    "+": 9, "-": 9, "|+|": 9, "|-|": 9, "++": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip
"""Operators, the loosest first: p4.lark."""
_UNARY = 11


def expression(e: Any, outer_tightness: int = 0) -> str:
    """An expression, in parentheses where `around`, the tightness of what it stands in, asks for them."""
    write = _EXPRESSIONS.get(type(e))
    if write is not None:
        return write(e)
    if isinstance(e, tree.Binary):
        tightness = _TIGHTNESS.get(e.op, 0)
        text = f"{expression(e.lhs, tightness)} {e.op} {expression(e.rhs, tightness + 1)}"
    elif isinstance(e, tree.Unary):
        tightness, text = _UNARY, e.op + expression(e.operand, _UNARY)
    elif isinstance(e, tree.Cast):
        tightness, text = _UNARY, f"({type_text(e.target_type)}) {expression(e.operand, _UNARY)}"
    elif isinstance(e, tree.Ternary):
        tightness, text = 0, f"{expression(e.condition, 1)} ? {expression(e.if_true, 1)} : {expression(e.if_false)}"
        return f"({text})" if outer_tightness else text
    else:
        return "..."
    return f"({text})" if tightness < outer_tightness else text


def _integer(e: tree.Integer) -> str:
    digits = str(e.value) if e.value < 256 else f"{e.value:#x}"
    return digits if e.width is None else f"{e.width}{'s' if e.signed else 'w'}{digits}"


def _call(e: tree.Call) -> str:
    types = f"<{', '.join(map(type_text, e.type_args))}>" if e.type_args else ""
    return f"{expression(e.target)}{types}({arguments(e.args)})"


def arguments(args: list[tree.Arg]) -> str:
    """Return the text between the parentheses of a call."""
    return ", ".join(f"{arg.name} = {expression(arg.value)}" if arg.name else expression(arg.value) for arg in args)


_EXPRESSIONS: dict[type, Callable[[Any], str]] = {
    tree.Integer: _integer,
    tree.Boolean: lambda e: "true" if e.value else "false",
    tree.String: lambda e: f'"{e.value}"',
    tree.PathExpression: lambda e: ("." if e.top else "") + e.name,
    tree.TypeMember: lambda e: f"{type_text(e.enum_type) if e.enum_type else 'error'}.{e.name}",
    tree.Member: lambda e: f"{expression(e.base, _UNARY + 1)}.{e.name}",
    tree.Index: lambda e: f"{expression(e.base, _UNARY + 1)}[{expression(e.index)}]",
    tree.Slice: lambda e: f"{expression(e.base, _UNARY + 1)}[{expression(e.high)}:{expression(e.low)}]",
    tree.Call: _call,
    tree.Construct: lambda e: f"{type_text(e.target_type)}({arguments(e.args)})",
    tree.ListExpr: lambda e: "{" + ", ".join(map(expression, e.items)) + "}",
    tree.RecordExpr: lambda e: "{" + ", ".join(f"{name} = {expression(value)}" for name, value in e.items) + "}",
    tree.Invalid: lambda _e: "{#}",
    tree.Dots: lambda _e: "...",
    tree.Mask: lambda e: f"{expression(e.value, 1)} &&& {expression(e.mask, 1)}",
    tree.Range: lambda e: f"{expression(e.low, 1)} .. {expression(e.high, 1)}",
    tree.DontCare: lambda _e: "_",
}


def type_text(node: Any) -> str:
    """A type as written."""
    if isinstance(node, tree.SizedType):
        return f"{node.name}<{expression(node.size)}>"
    if isinstance(node, tree.NamedType) and node.args:
        return f"{node.name}<{', '.join(map(type_text, node.args))}>"
    if isinstance(node, (tree.NamedType, tree.SimpleType)):
        return node.name
    if isinstance(node, tree.StackType):
        return f"{type_text(node.element)}[{expression(node.size)}]"
    if isinstance(node, tree.TupleType):
        return f"tuple<{', '.join(map(type_text, node.args))}>"
    return "_"


def statement(node: Any) -> str:
    """A statement that holds no other; empty for a declaration without a value, which does nothing."""
    if isinstance(node, tree.Assign):
        return f"{expression(node.target)} = {expression(node.value)}"
    if isinstance(node, tree.CallStatement):
        return expression(node.call)
    if isinstance(node, tree.DirectApply):
        return f"{type_text(node.object_type)}.apply({arguments(node.args)})"
    if isinstance(node, (tree.Var, tree.Const)):
        return f"{type_text(node.type_node)} {node.name} = {expression(node.value)}" if node.value else ""
    if isinstance(node, tree.Return):
        return f"return {expression(node.value)}" if node.value else "return"
    return {tree.Exit: "exit", tree.Break: "break", tree.Continue: "continue"}.get(type(node), "")
