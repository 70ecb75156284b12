"""The abstract syntax tree of a P4 program. Plain data; check.py fills in `type` and `const` of expressions.

`where` is the Location of the token that stands for the node: the name of a declaration, the operator's left operand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from switch.compiler.errors import Location
from switch.compiler.frontend.lexer import Lexeme


@dataclass(slots=True)
class Node:
    where: Location


@dataclass(slots=True)
class Annotation(Node):
    name: str
    body: list[Lexeme] | None
    """Tokens between the parentheses or brackets; None: there are none."""
    bracket: str

    def string(self) -> str | None:
        """The one string literal it holds, else None."""
        if self.body and len(self.body) == 1 and self.body[0].kind == "STRING_LITERAL":
            return unquote(self.body[0].text)
        return None

    def number(self) -> int | None:
        """The one integer literal it holds, else None."""
        if self.body and len(self.body) == 1 and self.body[0].kind == "INTEGER":
            return parse_integer(self.body[0].text)[0]
        return None


# ---- types as written


@dataclass(slots=True)
class SimpleType(Node):
    name: str  # bool, error, string, int, void, bit


@dataclass(slots=True)
class SizedType(Node):
    name: str  # bit, int, varbit
    size: Expr


@dataclass(slots=True)
class NamedType(Node):
    name: str
    args: list[TypeNode] = field(default_factory=list)


@dataclass(slots=True)
class StackType(Node):
    element: TypeNode
    size: Expr


@dataclass(slots=True)
class TupleType(Node):
    args: list[TypeNode]


@dataclass(slots=True)
class DontCareType(Node):
    pass


TypeNode = SimpleType | SizedType | NamedType | StackType | TupleType | DontCareType


# ---- expressions


@dataclass(slots=True)
class Expr(Node):
    type: Any = field(default=None, init=False, compare=False)
    """Type (types.py), set by the checker."""
    const: Any = field(default=None, init=False, compare=False)
    """Value when known at compile time: int, bool, str or a member name of an enum; else None."""


@dataclass(slots=True)
class Integer(Expr):
    value: int
    width: int | None
    signed: bool
    base: int = 10
    """In which it is written: 2, 8, 10 or 16."""


@dataclass(slots=True)
class Boolean(Expr):
    value: bool


@dataclass(slots=True)
class String(Expr):
    value: str


@dataclass(slots=True)
class PathExpression(Expr):
    name: str
    top: bool = False
    decl: Any = field(default=None, compare=False)
    """What the name stands for, set by the checker: a declaration or a Param."""


@dataclass(slots=True)
class TypeMember(Expr):
    """`T.x` of an enum, and `error.x` (of is None)."""

    of: TypeNode | None
    name: str


@dataclass(slots=True)
class Member(Expr):
    base: Expr
    name: str


@dataclass(slots=True)
class Index(Expr):
    base: Expr
    index: Expr


@dataclass(slots=True)
class Slice(Expr):
    """`base[high:low]`; and `base[low +: width]`, which the checker turns into the former when `low` is known."""

    base: Expr
    high: Expr
    low: Expr
    width: Expr | None = None


@dataclass(slots=True)
class Unary(Expr):
    op: str
    operand: Expr


@dataclass(slots=True)
class Binary(Expr):
    op: str
    left: Expr
    right: Expr


@dataclass(slots=True)
class Ternary(Expr):
    condition: Expr
    then: Expr
    other: Expr


@dataclass(slots=True)
class Cast(Expr):
    to: TypeNode
    operand: Expr


@dataclass(slots=True)
class Arg(Node):
    name: str | None
    value: Expr


@dataclass(slots=True)
class Call(Expr):
    target: Expr
    type_args: list[TypeNode]
    args: list[Arg]
    callee: Any = field(default=None, compare=False)
    """What is called, set by the checker (check_calls.py: Callee)."""


@dataclass(slots=True)
class Construct(Expr):
    to: TypeNode
    args: list[Arg]


@dataclass(slots=True)
class ListExpr(Expr):
    items: list[Expr]


@dataclass(slots=True)
class RecordExpr(Expr):
    items: list[tuple[str, Expr]]
    dots: Dots | None = None
    """`...` at its end: default values for the fields that it does not name."""


@dataclass(slots=True)
class Invalid(Expr):
    """`{#}`: a header that is not valid."""


@dataclass(slots=True)
class Dots(Expr):
    """`...`: default values for the rest of a list."""


@dataclass(slots=True)
class Default(Expr):
    """The default value of its type (zero, false, the first member of an enum, nothing valid), made by the checker."""


@dataclass(slots=True)
class Mask(Expr):
    value: Expr
    mask: Expr


@dataclass(slots=True)
class Range(Expr):
    low: Expr
    high: Expr


@dataclass(slots=True)
class DontCare(Expr):
    """`_` and `default` in key sets and arguments."""


@dataclass(slots=True)
class Refused(Expr):
    """An expression the grammar knows and the backend does not: `what` names it."""

    what: str


# ---- statements


@dataclass(slots=True)
class Assign(Node):
    target: Expr
    value: Expr


@dataclass(slots=True)
class CallStatement(Node):
    call: Call


@dataclass(slots=True)
class DirectApply(Node):
    of: TypeNode
    args: list[Arg]
    call: Any = None
    """The Call that it amounts to, made by the checker."""


@dataclass(slots=True)
class If(Node):
    condition: Expr
    then: Statement
    other: Statement | None


@dataclass(slots=True)
class Block(Node):
    body: list[Statement]


@dataclass(slots=True)
class Empty(Node):
    pass


@dataclass(slots=True)
class Return(Node):
    value: Expr | None


@dataclass(slots=True)
class Exit(Node):
    pass


@dataclass(slots=True)
class For(Node):
    start: list[Statement]
    condition: Expr
    updates: list[Statement]
    body: Statement


@dataclass(slots=True)
class ForIn(Node):
    """`for (T x in low .. high)`; high None: over the elements of a header stack or the items of a list."""

    variable: Var
    low: Expr
    high: Expr | None
    body: Statement


@dataclass(slots=True)
class Break(Node):
    pass


@dataclass(slots=True)
class Continue(Node):
    pass


@dataclass(slots=True)
class Case(Node):
    label: Expr
    body: Block | None
    """None: falls through to the next case."""


@dataclass(slots=True)
class SwitchStatement(Node):
    value: Expr
    cases: list[Case]


# ---- declarations


@dataclass(slots=True)
class Decl(Node):
    annotations: list[Annotation]
    name: str

    def annotation(self, name: str) -> Annotation | None:
        return next((a for a in self.annotations if a.name == name), None)


@dataclass(slots=True)
class Param(Decl):
    direction: str  # "", in, out, inout
    type_node: TypeNode
    default: Expr | None
    type: Any = None


@dataclass(slots=True)
class Const(Decl):
    type_node: TypeNode
    value: Expr
    type: Any = None


@dataclass(slots=True)
class Var(Decl):
    type_node: TypeNode
    value: Expr | None
    type: Any = None


@dataclass(slots=True)
class Field(Decl):
    type_node: TypeNode
    lists: list[Expr]
    """Of @field_list: the numbers of the lists that the field is in."""


@dataclass(slots=True)
class Aggregate(Decl):
    kind: str  # header, header_union, struct
    type_params: list[str]
    fields: list[Field]
    record: Any = None
    """Its type (types.Record), set by the checker."""


@dataclass(slots=True)
class Enum(Decl):
    under: TypeNode | None
    members: list[tuple[str, Expr | None, Location]]


@dataclass(slots=True)
class Errors(Node):
    names: list[str]


@dataclass(slots=True)
class MatchKinds(Node):
    names: list[str]


@dataclass(slots=True)
class Typedef(Decl):
    type_node: TypeNode
    new: bool
    """True: `type`, a type of its own; False: `typedef`, another name."""


@dataclass(slots=True)
class Method(Decl):
    result: TypeNode
    type_params: list[str]
    params: list[Param]
    extern: str | None = None
    """Name of the extern object it belongs to; None: a function."""


@dataclass(slots=True)
class ExternObject(Decl):
    type_params: list[str]
    methods: list[Method]
    constructors: list[list[Param]]


@dataclass(slots=True)
class Function(Decl):
    result: TypeNode
    type_params: list[str]
    params: list[Param]
    body: Block
    type: Any = None
    """Of the result, set by the checker."""


@dataclass(slots=True)
class Package(Decl):
    type_params: list[str]
    params: list[Param]


@dataclass(slots=True)
class Instance(Decl):
    type_node: TypeNode
    args: list[Arg]
    has_body: bool = False
    type: Any = None
    table: str = ""
    """Name of the table that makes it as the value of a property."""


@dataclass(slots=True)
class Action(Decl):
    params: list[Param]
    body: Block


@dataclass(slots=True)
class KeyElement(Node):
    value: Expr
    match: str
    annotations: list[Annotation]


@dataclass(slots=True)
class ActionRef(Node):
    annotations: list[Annotation]
    name: str
    args: list[Arg] | None
    top: bool = False
    decl: Action | None = None


@dataclass(slots=True)
class Entry(Node):
    const: bool
    priority: Expr | None
    keys: list[Expr]
    action: ActionRef


@dataclass(slots=True)
class Property(Node):
    name: str
    const: bool
    value: Expr
    annotations: list[Annotation] = field(default_factory=list)


@dataclass(slots=True)
class Table(Decl):
    key: list[KeyElement]
    actions: list[ActionRef]
    entries: list[Entry] | None
    const_entries: bool
    properties: dict[str, Property]


@dataclass(slots=True)
class SelectCase(Node):
    keys: list[Expr]
    state: str


@dataclass(slots=True)
class Transition(Node):
    state: str | None
    """Name of the next state; None: chosen by `keys` and `cases`."""
    keys: list[Expr]
    cases: list[SelectCase]


@dataclass(slots=True)
class State(Decl):
    body: list[Statement]
    transition: Transition | None


@dataclass(slots=True)
class ValueSet(Decl):
    type_node: TypeNode
    size: Expr
    element: Any = None
    """Type of its members, set by the checker."""
    type: Any = None


@dataclass(slots=True)
class Parser(Decl):
    type_params: list[str]
    params: list[Param]
    ctor: list[Param]
    locals: list[Node]
    states: list[State] | None
    """None: only the type is declared."""


@dataclass(slots=True)
class Control(Decl):
    type_params: list[str]
    params: list[Param]
    ctor: list[Param]
    locals: list[Node]
    body: Block | None
    """None: only the type is declared."""


Statement = (
    Assign | CallStatement | DirectApply | If | Block | Empty | Return | Exit | SwitchStatement | Const | Var | Instance
)


def unquote(text: str) -> str:
    """Value of a string literal: \\" and \\\\ and \\n are its only escapes."""
    return text[1:-1].replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")


_BASES = {"0x": 16, "0b": 2, "0o": 8, "0d": 10}


def base_of(text: str) -> int:
    """The base that an integer literal is written in."""
    digits = text.replace("w", "s").rpartition("s")[2]  # no digit of any base is a w or an s
    return _BASES.get(digits[:2].lower(), 10)


def parse_integer(text: str) -> tuple[int, int | None, bool]:
    """(value, width or None, signed) of an integer literal such as 16w0xFF_FF, 4s7 or 12."""
    width, signed = None, False
    for mark in "ws":
        head, found, tail = text.partition(mark)
        if found and head.isdigit():
            width, signed, text = int(head), mark == "s", tail
            break
    digits = text.replace("_", "")
    base = _BASES.get(digits[:2].lower())
    return (int(digits[2:], base) if base else int(digits)), width, signed


def walk(node: Any) -> Iterator[Any]:
    """A node and all nodes below it; not what its names stand for."""
    if isinstance(node, (list, tuple)):
        for one in node:
            yield from walk(one)
    elif isinstance(node, Node):
        yield node
        for one in fields(node):
            if one.name not in ("decl", "callee", "type", "const", "annotations"):
                yield from walk(getattr(node, one.name))
    elif isinstance(node, dict):
        yield from walk(list(node.values()))
