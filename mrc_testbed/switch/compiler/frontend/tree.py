"""The abstract syntax tree of a P4 program.

Plain data; check.py fills in `type` and `const` of expressions.

`location` is that of the token that stands for the node: the name of a declaration, the operator's left operand.
A node with a rule of its name in p4.lark is made of what the rule holds, in the order of its fields here; of one that
is WithMeta, the first word in the rule only gives the place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from lark import Token
from lark.ast_utils import AsList, Ast, WithMeta

from mrc_testbed.switch.compiler.errors import Location
from mrc_testbed.switch.compiler.frontend.lexer import Lexeme, Source


class Word(Token):
    """A token, which knows its place; compares and prints as its text."""

    __slots__ = ("source",)
    source: Source

    @property
    def location(self) -> Location:
        return self.source.location(self.line or 1, self.column or 1)

    __eq__ = str.__eq__
    __hash__ = str.__hash__
    __repr__ = str.__repr__

    def __deepcopy__(self, _memo: object) -> Word:
        return self


@dataclass(slots=True)
class Node(Ast):
    """Anything in the tree."""

    location: Location


@dataclass(slots=True)
class Annotation(Node):
    """`@name(body)`, or `@name[body]`."""

    name: str
    body: list[Lexeme] | None
    """Tokens between the parentheses or brackets; None: there are none."""
    bracket: str
    source: Source | None = field(default=None, compare=False, repr=False)
    """Source that the annotation comes from."""

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
    """A type that is one word."""

    name: str  # bool, error, string, int, void, bit


@dataclass(slots=True)
class SizedType(Node):
    """`bit<size>`, `int<size>`, `varbit<size>`."""

    name: str  # bit, int, varbit
    size: Expr


@dataclass(slots=True)
class NamedType(Node):
    """The name of a declared type, with what specializes it: `name<args>`."""

    name: str
    args: list[TypeNode] = field(default_factory=list)


@dataclass(slots=True)
class StackType(Node):
    """`element[size]`."""

    element: TypeNode
    size: Expr


@dataclass(slots=True)
class TupleType(AsList, Node):
    """`tuple<args>`."""

    args: list[TypeNode]


@dataclass(slots=True)
class DontCareType(WithMeta, Node):
    """`_` among type arguments."""


TypeNode = SimpleType | SizedType | NamedType | StackType | TupleType | DontCareType


# ---- expressions


@dataclass(slots=True)
class Expr(Node):
    """An expression; what the checker finds out about it stands in it."""

    type: Any = field(default=None, init=False, compare=False)
    """Type (types.py), set by the checker."""
    const: Any = field(default=None, init=False, compare=False)
    """Value when known at compile time: int, bool, str or a member name of an enum; else None."""


@dataclass(slots=True)
class Integer(Expr):
    """`16w0xff`: width 16, not signed, base 16."""

    value: int
    width: int | None
    signed: bool
    base: int = 10
    """Base of the literal: 2, 8, 10 or 16."""


@dataclass(slots=True)
class Boolean(Expr):
    """`true` or `false`."""

    value: bool


@dataclass(slots=True)
class String(Expr):
    """A string literal, without its quotes and escapes."""

    value: str


@dataclass(slots=True)
class PathExpression(Expr):
    """A name; `top`: with a dot before it, which looks it up among the declarations of the program."""

    name: str
    top: bool = False
    decl: Any = field(default=None, compare=False)
    """Declaration or Param that the name refers to, set by the checker."""


@dataclass(slots=True)
class TypeMember(Expr):
    """`T.x` of an enum, `T.minSizeInBits` of any type, and `error.x` (`enum_type` is None)."""

    enum_type: TypeNode | None
    name: str


@dataclass(slots=True)
class Member(Expr):
    """`base.name`."""

    base: Expr
    name: str


@dataclass(slots=True)
class Index(Expr):
    """`base[index]`."""

    base: Expr
    index: Expr


@dataclass(slots=True)
class Slice(Expr):
    """`base[high:low]`, or `base[low +: width]`: the checker turns that into the former if `low` is known."""

    base: Expr
    high: Expr
    low: Expr
    width: Expr | None = None


@dataclass(slots=True)
class Unary(Expr):
    """`-operand`; also `!`, `~` and `+`."""

    op: str
    operand: Expr


@dataclass(slots=True)
class Binary(Expr):
    """`lhs + rhs`, with any operator of two operands."""

    lhs: Expr
    op: str
    rhs: Expr


@dataclass(slots=True)
class Ternary(Expr):
    """`condition ? if_true : if_false`."""

    condition: Expr
    if_true: Expr
    if_false: Expr


@dataclass(slots=True)
class Cast(Expr):
    """`(target_type) operand`."""

    target_type: TypeNode
    operand: Expr


@dataclass(slots=True)
class Arg(Node):
    """An argument; `name = value` when it is given by name."""

    name: str | None
    value: Expr


@dataclass(slots=True)
class Call(Expr):
    """`target<type_args>(args)`."""

    target: Expr
    type_args: list[TypeNode]
    args: list[Arg]
    callee: Any = field(default=None, compare=False)
    """Callee (check_calls.py), set by the checker."""


@dataclass(slots=True)
class Construct(Expr):
    """`target_type(args)`: an object without a name."""

    target_type: NamedType
    args: list[Arg]


@dataclass(slots=True)
class ListExpr(Expr):
    """`{ a, b }`."""

    items: list[Expr]


@dataclass(slots=True)
class RecordExpr(Expr):
    """`{ a = 1, b = 2 }`."""

    items: list[tuple[str, Expr]]
    dots: Dots | None = None
    """`...` at its end: default values for the fields that it does not name."""


@dataclass(slots=True)
class Invalid(WithMeta, Expr):
    """`{#}`: a header that is not valid."""


@dataclass(slots=True)
class Dots(WithMeta, Expr):
    """`...`: default values for the rest of a list."""


@dataclass(slots=True)
class Default(Expr):
    """Default value of its type, made by the checker.

    Zero, false, the first member of an enum, nothing valid.
    """


@dataclass(slots=True)
class Mask(Expr):
    """`value &&& mask`."""

    value: Expr
    mask: Expr


@dataclass(slots=True)
class Range(Expr):
    """`low .. high`."""

    low: Expr
    high: Expr


@dataclass(slots=True)
class DontCare(WithMeta, Expr):
    """`_` and `default` in key sets and arguments."""


@dataclass(slots=True)
class UnsupportedExpr(Expr):
    """An expression the grammar knows and the backend does not: `construct` names it."""

    construct: str


# ---- statements


@dataclass(slots=True)
class Assign(Node):
    """`target = value;`."""

    target: Expr
    value: Expr


@dataclass(slots=True)
class CallStatement(Node):
    """A call that stands alone."""

    call: Call


@dataclass(slots=True)
class DirectApply(Node):
    """`object_type.apply(args);` of a parser or control that has no instance."""

    object_type: TypeNode
    args: list[Arg]
    call: Any = None
    """The Call that it amounts to, made by the checker."""


@dataclass(slots=True)
class If(Node):
    """`if (condition) if_true else if_false`."""

    condition: Expr
    if_true: Statement
    if_false: Statement | None = None


@dataclass(slots=True)
class Block(Node):
    """Statements between braces."""

    body: list[Statement]


@dataclass(slots=True)
class Empty(Node):
    """`;`."""


@dataclass(slots=True)
class Return(WithMeta, Node):
    """`return value;`."""

    value: Expr | None = None


@dataclass(slots=True)
class Exit(WithMeta, Node):
    """`exit;`."""


@dataclass(slots=True)
class For(Node):
    """`for (start; condition; updates) body`."""

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
class Break(WithMeta, Node):
    """`break;`."""


@dataclass(slots=True)
class Continue(WithMeta, Node):
    """`continue;`."""


@dataclass(slots=True)
class Case(Node):
    """`label: body` of a switch statement."""

    label: Expr
    body: Block | None = None
    """None: falls through to the next case."""


@dataclass(slots=True)
class SwitchStatement(Node):
    """`switch (value) { cases }`."""

    value: Expr
    cases: list[Case]


# ---- declarations


@dataclass(slots=True)
class Decl(Node):
    """A declaration: introduces a name."""

    annotations: list[Annotation]
    name: str

    def annotation(self, name: str) -> Annotation | None:
        return next((a for a in self.annotations if a.name == name), None)


@dataclass(slots=True)
class Param(Decl):
    """A parameter of a function, action, method, parser, control or package."""

    direction: str  # "", in, out, inout
    type_node: TypeNode
    default: Expr | None
    type: Any = None


@dataclass(slots=True)
class Const(Decl):
    """`const type name = value;`."""

    type_node: TypeNode
    value: Expr
    type: Any = None


@dataclass(slots=True)
class Var(Decl):
    """`type name = value;`."""

    type_node: TypeNode
    value: Expr | None
    type: Any = None


@dataclass(slots=True)
class Field(Decl):
    """A field of a header, header union or struct."""

    type_node: TypeNode
    lists: list[Expr]
    """Numbers of the lists that the field is in, from @field_list."""


@dataclass(slots=True)
class Aggregate(Decl):
    """`header name { fields }`, or a header union or a struct."""

    kind: str  # header, header_union, struct
    type_params: list[str]
    fields: list[Field]
    record: Any = None
    """Type (types.Record), set by the checker."""


@dataclass(slots=True)
class Enum(Decl):
    """`enum underlying_type name { members }`; a member: (name, value or None, place)."""

    underlying_type: TypeNode | None
    members: list[tuple[str, Expr | None, Location]]


@dataclass(slots=True)
class Errors(AsList, WithMeta, Node):
    """`error { names }`."""

    names: list[str]


@dataclass(slots=True)
class MatchKinds(AsList, Node):
    """`match_kind { names }`."""

    names: list[str]


@dataclass(slots=True)
class Typedef(Decl):
    """`typedef type name;` or `type type name;`."""

    type_node: TypeNode
    new: bool
    """True: `type`, a type of its own; False: `typedef`, another name."""


@dataclass(slots=True)
class Method(Decl):
    """The head of an extern's method or of an extern function."""

    result: TypeNode
    type_params: list[str]
    params: list[Param]
    extern: str | None = None
    """Name of the extern object it belongs to; None: a function."""


@dataclass(slots=True)
class ExternObject(Decl):
    """`extern name { ... }`; of a constructor there are only the parameters."""

    type_params: list[str]
    methods: list[Method]
    constructors: list[list[Param]]


@dataclass(slots=True)
class Function(Decl):
    """`result name(params) { ... }`."""

    result: TypeNode
    type_params: list[str]
    params: list[Param]
    body: Block
    type: Any = None
    """Result type, set by the checker."""


@dataclass(slots=True)
class Package(Decl):
    """`package name(params);`."""

    type_params: list[str]
    params: list[Param]


@dataclass(slots=True)
class Instance(Decl):
    """`type(args) name;`; `has_body`: with methods of its own between braces."""

    type_node: TypeNode
    args: list[Arg]
    has_body: bool = False
    type: Any = None
    table: str = ""
    """Name of the table that makes it as the value of a property."""


@dataclass(slots=True)
class Action(Decl):
    """`action name(params) { ... }`."""

    params: list[Param]
    body: Block


@dataclass(slots=True)
class KeyElement(Node):
    """`value: match;` in the key of a table."""

    value: Expr
    match: str
    annotations: list[Annotation]


@dataclass(slots=True)
class ActionRef(Node):
    """A table's action, or the one that an entry has, with its arguments; None: no parentheses."""

    annotations: list[Annotation]
    name: str
    args: list[Arg] | None
    top: bool = False
    decl: Action | None = None


@dataclass(slots=True)
class Entry(Node):
    """`priority=p: keys: action;`."""

    const: bool
    priority: Expr | None
    keys: list[Expr]
    action: ActionRef


@dataclass(slots=True)
class Property(Node):
    """A property of a table that has no syntax of its own: `name = value;`."""

    name: str
    const: bool
    value: Expr | ActionRef
    """An ActionRef, made by the checker: of `default_action`."""
    annotations: list[Annotation] = field(default_factory=list)

    @property
    def expr(self) -> Expr:
        """Value of any property but `default_action`."""
        assert isinstance(self.value, Expr)
        return self.value

    @property
    def action(self) -> ActionRef:
        """The value of `default_action`, once checked."""
        assert isinstance(self.value, ActionRef)
        return self.value


@dataclass(slots=True)
class Table(Decl):
    """`table name { ... }`."""

    key: list[KeyElement]
    actions: list[ActionRef]
    entries: list[Entry] | None
    const_entries: bool
    properties: dict[str, Property]


@dataclass(slots=True)
class SelectCase(Node):
    """`keys: state;`."""

    keys: list[Expr]
    state: str


@dataclass(slots=True)
class Transition(Node):
    """`transition state;` or `transition select(keys) { cases }`."""

    state: str | None
    """Name of the next state; None: chosen by `keys` and `cases`."""
    keys: list[Expr] = field(default_factory=list)
    cases: list[SelectCase] = field(default_factory=list)


@dataclass(slots=True)
class State(Decl):
    """`state name { ... }`."""

    body: list[Statement]
    transition: Transition | None


@dataclass(slots=True)
class ValueSet(Decl):
    """`value_set<type>(size) name;`."""

    type_node: TypeNode
    size: Expr
    element: Any = None
    """Type of its members, set by the checker."""
    type: Any = None


@dataclass(slots=True)
class Parser(Decl):
    """A parser, or the type of one."""

    type_params: list[str]
    params: list[Param]
    ctor: list[Param]
    locals: list[Node]
    states: list[State] | None
    """None: only the type is declared."""


@dataclass(slots=True)
class Control(Decl):
    """A control, or the type of one."""

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
    r"""Value of a string literal: \" and \\ and \n are its only escapes."""
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
        head, separator, tail = text.partition(mark)
        if separator and head.isdigit():
            width, signed, text = int(head), mark == "s", tail
            break
    digits = text.replace("_", "")
    base = _BASES.get(digits[:2].lower())
    return (int(digits[2:], base) if base else int(digits)), width, signed


def walk(node: Any) -> Iterator[Any]:
    """A node and all nodes below it; not what its names stand for."""
    if isinstance(node, (list, tuple)):
        for item in node:
            yield from walk(item)
    elif isinstance(node, Node):
        yield node
        for item in fields(node):
            if item.name not in ("decl", "callee", "type", "const", "annotations"):
                yield from walk(getattr(node, item.name))
    elif isinstance(node, dict):
        yield from walk(list(node.values()))
