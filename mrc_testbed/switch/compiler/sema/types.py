"""Types of P4 as the checker and the backend see them. Equal types compare equal."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

from mrc_testbed.switch.compiler.errors import NOWHERE


@dataclass(frozen=True, slots=True)
class Bits:
    """bit<width>, or int<width> when signed."""

    width: int
    signed: bool = False

    def __str__(self) -> str:
        return f"{'int' if self.signed else 'bit'}<{self.width}>"

    def wrap(self, value: int) -> int:
        """`value` modulo 2**width, as this type reads it."""
        value &= (1 << self.width) - 1
        return value - (1 << self.width) if self.signed and value >> (self.width - 1) else value


@dataclass(frozen=True, slots=True)
class Simple:
    """A type with a name and no parts: bool, int (any size), error, string, void, match_kind."""

    name: str

    def __str__(self) -> str:
        return self.name


BOOL = Simple("bool")
INT = Simple("int")
ERROR = Simple("error")
STRING = Simple("string")
VOID = Simple("void")
DONTCARE = Simple("_")


@dataclass(frozen=True, slots=True)
class Varbit:
    """varbit<width>: from none to `width` bits."""

    width: int

    def __str__(self) -> str:
        return f"varbit<{self.width}>"


MAX_BITS = 128
"""Widest number that fits one C integer; longer ones are structs of bytes (WideBits)."""


@dataclass(frozen=True, slots=True)
class WideBits:
    """A number of more than MAX_BITS bits."""

    width: int
    signed: bool = False

    @property
    def bytes(self) -> int:
        return (self.width + 7) // 8

    def __str__(self) -> str:
        return f"{'int' if self.signed else 'bit'}<{self.width}>"


@dataclass(eq=False, slots=True)
class Record:
    """A struct, header or header_union: equal only to itself. `fields` keeps the order of the declaration."""

    name: str
    kind: str
    fields: dict[str, Type] = field(default_factory=dict)
    decl: Any = None
    args: tuple[Type, ...] = ()
    """Type arguments, of a generic one."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Stack:
    """An array: of headers (a header stack) or unions, or of any other values."""

    element: Type
    size: int

    @property
    def of_headers(self) -> bool:
        return isinstance(self.element, Record) and self.element.kind != "struct"

    def __str__(self) -> str:
        return f"{self.element}[{self.size}]"


@dataclass(frozen=True, slots=True)
class Tuple:
    """tuple<items>."""

    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.items))}>"


@dataclass(eq=False, slots=True)
class EnumType:
    """`underlying_type` is the type of a serializable enum, whose members then have `values`; else None."""

    name: str
    members: list[str]
    underlying_type: Bits | None = None
    values: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def number(self, member: str) -> int:
        """Return the number that the backend stores for a member."""
        return self.values[member] if self.underlying_type else self.members.index(member)


@dataclass(eq=False, slots=True)
class NewType:
    """`type bit<9> port_t`: a type of its own with the values of another."""

    name: str
    underlying_type: Type
    decl: Any = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Variable:
    """A type parameter."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Object:
    """Type of an extern, parser, control, package or table, with its declaration and type arguments."""

    kind: str
    decl: Any
    args: tuple[Type, ...] = ()

    def __str__(self) -> str:
        args = f"<{', '.join(map(str, self.args))}>" if self.args else ""
        return f"{self.decl.name}{args}"

    def __hash__(self) -> int:
        return hash((self.kind, id(self.decl), self.args))

    def __eq__(self, value: object) -> bool:
        return isinstance(value, Object) and self.decl is value.decl and self.args == value.args


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """Type of `table.apply()`, with the members hit, miss and action_run."""

    table: Any

    def __str__(self) -> str:
        return "the result of apply()"

    def __hash__(self) -> int:
        return id(self.table)


@dataclass(frozen=True, slots=True)
class ActionRun:
    """Type of `table.apply().action_run`."""

    table: Any

    def __str__(self) -> str:
        return "action_run"

    def __hash__(self) -> int:
        return id(self.table)


Type = (
    Bits | Simple | Varbit | Record | Stack | Tuple | EnumType | NewType | Variable | Object | ApplyResult | ActionRun
)


def plain(p4_type: Type) -> Type:
    """Return the type whose values `p4_type` has: looks through `type` and serializable enums."""
    while True:
        if isinstance(p4_type, NewType):
            p4_type = p4_type.underlying_type
        elif isinstance(p4_type, EnumType) and p4_type.underlying_type:
            return p4_type.underlying_type
        else:
            return p4_type


def underlying(p4_type: Type) -> Type | None:
    """Return the type that a `type` or a serializable enum is made of; None for any other type."""
    return p4_type.underlying_type if isinstance(p4_type, (NewType, EnumType)) else None


def number(p4_type: Type) -> Bits:
    """Return the bit<N> or int<N> whose values `p4_type` has; it must have one."""
    base = plain(p4_type)
    assert isinstance(base, Bits)
    return base


def form(p4_type: Type) -> Any:
    """Return the plain type of the backend: a tuple is a struct f0, f1, ..., a long number WideBits."""
    base = plain(p4_type)
    if isinstance(base, Bits) and base.width > MAX_BITS:
        return WideBits(base.width, base.signed)
    return _tuple_record(base) if isinstance(base, Tuple) else base


@cache
def _tuple_record(tuple_type: Tuple) -> Record:
    # The name depends on the type alone: the emitted C, which is a key of the cache, is the same in each process.
    name = f"tuple_{hashlib.sha256(str(tuple_type).encode()).hexdigest()[:12]}"
    decl = SimpleNamespace(location=NOWHERE, fields=[], annotation=lambda _: None)
    return Record(name, "struct", {f"f{index}": item_type for index, item_type in enumerate(tuple_type.items)}, decl)


def is_scalar(p4_type: Type) -> bool:
    """Return whether a value fits one C integer."""
    base = plain(p4_type)
    if isinstance(base, Bits):
        return base.width <= MAX_BITS
    return isinstance(base, EnumType) or base in (BOOL, ERROR)


def is_value(p4_type: Type) -> bool:
    """Return whether the control plane can give a value: a number, a bool, an enum or an error."""
    return is_scalar(p4_type) or isinstance(plain(p4_type), Bits)


def width_of(p4_type: Type) -> int | None:
    """Bits of a value on the wire; None for types that have no fixed width."""
    base = plain(p4_type)
    if isinstance(base, Bits):
        return base.width
    if base == BOOL:
        return 1
    if isinstance(base, Record) and base.kind != "header_union":
        return _sum(map(width_of, base.fields.values()))
    if isinstance(base, Tuple):
        return _sum(map(width_of, base.items))
    if isinstance(base, Stack) and not base.of_headers:
        width = width_of(base.element)
        return None if width is None else base.size * width
    return None


def _sum(widths: Iterable[int | None]) -> int | None:
    total = 0
    for width in widths:
        if width is None:
            return None
        total += width
    return total


def same_signature(instance_type: Object, named_type: Object) -> bool:
    """Return whether one parser or control can stand for another: both take the same parameters."""
    if (
        instance_type.kind != named_type.kind
        or instance_type.kind not in ("control", "parser")
        or instance_type.args
        or named_type.args
    ):
        return False
    params = [
        [(param.direction, param.type) for param in object_type.decl.params]
        for object_type in (instance_type, named_type)
    ]
    return params[0] == params[1] and not named_type.decl.ctor


def substitute(p4_type: Type, bound: dict[str, Type]) -> Type:
    """Return `p4_type` with type parameters replaced by the types they are bound to."""
    if isinstance(p4_type, Variable):
        return bound.get(p4_type.name, p4_type)
    if isinstance(p4_type, Object):
        return Object(p4_type.kind, p4_type.decl, tuple(substitute(arg, bound) for arg in p4_type.args))
    if isinstance(p4_type, Tuple):
        return Tuple(tuple(substitute(item_type, bound) for item_type in p4_type.items))
    if isinstance(p4_type, Stack):
        return Stack(substitute(p4_type.element, bound), p4_type.size)
    return p4_type
