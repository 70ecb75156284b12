"""Names in scope, and types as written turned into types."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from switch.compiler.errors import Location, count, fail, known, unsupported
from switch.compiler.frontend import tree
from switch.compiler.frontend.preprocess import INCLUDE_DIR
from switch.compiler.sema.types import (
    BOOL,
    DONTCARE,
    ERROR,
    INT,
    STRING,
    VOID,
    Bits,
    EnumType,
    NewType,
    Object,
    Record,
    Simple,
    Stack,
    Tuple,
    Type,
    Varbit,
    Variable,
)  # fmt: skip

MAX_BITS = 2048
"""Widest number the front end takes (p4c's limit); the backend's own is lower."""

_SIMPLE = {"bool": BOOL, "error": ERROR, "string": STRING, "int": INT, "void": VOID, "bit": Bits(1)}
_TYPES = (Bits, Simple, Varbit, Record, Stack, Tuple, EnumType, NewType, Object, Variable)


class Scope:
    """Names of one block, and of those around it. A value is a Type, a declaration or a list of overloads."""

    def __init__(self, parent: Scope | None = None) -> None:
        self.parent = parent
        self.names: dict[str, Any] = {}
        self.places: dict[str, Location] = {}
        self.later: dict[str, Location] = {}
        """Names that the block declares, also those that are still to come."""
        self.open: list[str] = []
        """Names of the declarations that are being checked now."""

    def declare(self, name: str, what: Any, where: Location) -> None:
        """Add a name. Raises P4Error when this very block has it already; a type may hide functions of its name."""
        hides = isinstance(what, Object) and isinstance(self.names.get(name), list)
        if name in self.names and not hides:
            fail(where, f"{name} is already declared at {self.places[name]}")
        outer = self.parent.find(name) if self.parent and not isinstance(what, tree.Param) else None
        if isinstance(outer, tree.Param):
            fail(where, f"{name} hides the parameter {name} at {outer.where}: give it another name")
        self.names[name], self.places[name] = what, where

    def find(self, name: str) -> Any:
        """What a name stands for, innermost first; None when it stands for nothing."""
        scope: Scope | None = self
        while scope:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None

    def all(self) -> Iterator[str]:
        scope: Scope | None = self
        while scope:
            yield from scope.names
            scope = scope.parent

    def top(self) -> Scope:
        scope = self
        while scope.parent:
            scope = scope.parent
        return scope


def undeclared(where: Location, name: str, scope: Scope, what: str = "") -> None:
    """Raise P4Error for a name that stands for nothing, with the nearest ones that do."""
    one: Scope | None = scope
    while one:
        if name in one.open:
            fail(where, f"{name} cannot be used inside its own declaration: P4 has no recursion")
        if name in one.later:
            fail(
                where, f"{name} is not declared yet: it is declared below, at {one.later[name]}; move it above its use"
            )
        one = one.parent
    home = include_of(name)
    if home:
        fail(where, f"{what + ' ' if what else ''}{name} is not declared: it is in {home}, write #include <{home}>")
    near = difflib.get_close_matches(name, set(scope.all()), 3)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    fail(where, f"{what + ' ' if what else ''}{name} is not declared{hint}")


@cache
def _included() -> dict[str, str]:
    """The names that core.p4 and v1model.p4 declare, with the file."""
    declared = r"\b(?:extern|struct|enum|action|control|parser|package|const \S+|extern \S+)\s+(\w+)\s*(?:[<({=]|INDEX)"
    return {
        name: file
        for file in ("core.p4", "v1model.p4")
        for name in re.findall(declared, (INCLUDE_DIR / file).read_text())
        if not name.startswith("__")
    }


def include_of(name: str) -> str | None:
    """The file of the architecture that declares a name."""
    return _included().get(name)


class TypeResolver:
    """Turns types as written into types. `constant` (check_expr.py) evaluates the sizes."""

    records: dict[tuple[int, tuple[Type, ...]], Record]
    """Generic structs with their arguments."""

    def constant(self, expr: tree.Expr, scope: Scope) -> int:
        raise NotImplementedError

    def resolve(self, node: tree.TypeNode, scope: Scope) -> Type:
        """The type a type expression names. Raises P4Error for unknown names and impossible sizes."""
        if isinstance(node, tree.SimpleType):
            return _SIMPLE[node.name]
        if isinstance(node, tree.SizedType):
            return self._sized(node, scope)
        if isinstance(node, tree.NamedType):
            return self._named(node, scope)
        if isinstance(node, tree.StackType):
            element = self.resolve(node.element, scope)
            if not isinstance(element, (Record, Bits, EnumType, NewType, Tuple, Stack)) and element not in (
                BOOL,
                ERROR,
            ):
                fail(
                    node.where,
                    f"an array of {element}: headers, structs, tuples, numbers, bool, enums and errors can be",
                )
            size = self.constant(node.size, scope)
            if size < 1:
                fail(node.where, f"an array of {size} elements: it has at least one")
            return Stack(element, size)
        if isinstance(node, tree.TupleType):
            return Tuple(tuple(self.resolve(one, scope) for one in node.args))
        return DONTCARE

    def specialised(self, found: Object, args: tuple[Type, ...]) -> Type:
        """A generic parser, control, extern or package with its type arguments."""
        return Object(found.kind, found.decl, args)

    def _record(self, found: Record, args: tuple[Type, ...], scope: Scope) -> Record:
        """A generic struct or header with its type arguments; equal arguments give the same type."""
        key = (id(found), args)
        if key not in self.records:
            word = "_".join("".join(c if c.isalnum() else "_" for c in str(one)) for one in args)
            record = Record(f"{found.name}_{word}", found.kind, {}, found.decl, args)
            self.records[key] = record
            inner = Scope(scope.top())
            inner.names.update(zip(found.decl.type_params, args, strict=True))
            for one in found.decl.fields:
                record.fields[one.name] = self.resolve(one.type_node, inner)
        return self.records[key]

    def _sized(self, node: tree.SizedType, scope: Scope) -> Type:
        width = self.constant(node.size, scope)
        low = 1 if node.name == "int" else 0
        if not low <= width <= MAX_BITS:
            fail(node.where, f"{node.name}<{width}>: the width must be {low} to {MAX_BITS}")
        return Varbit(width) if node.name == "varbit" else Bits(width, node.name == "int")

    def _named(self, node: tree.NamedType, scope: Scope) -> Type:
        found = scope.find(node.name)
        if found is None and node.name == "list":
            unsupported(node.where, "list<T> here", "`for (T x in (list<T>){ ... })` is")
        if found is None:
            undeclared(node.where, node.name, scope, "type")
        if not isinstance(found, _TYPES):
            fail(node.where, f"{node.name} is not a type")
        args = tuple(self.resolve(one, scope) for one in node.args)
        if isinstance(found, Object):
            wanted = len(found.decl.type_params)
            if args and len(args) != wanted:
                fail(node.where, f"{node.name} takes {count(wanted, 'type argument')}, not {len(args)}")
            return self.specialised(found, args) if args else found
        if isinstance(found, Record) and found.decl.type_params:
            wanted = len(found.decl.type_params)
            if len(args) != wanted:
                fail(node.where, f"{node.name} takes {count(wanted, 'type argument')}, not {len(args)}")
            return self._record(found, args, scope)
        if args:
            fail(node.where, f"{node.name} takes no type arguments")
        return found


def field_place(record: Record, name: str) -> Location:
    """Where a field is declared."""
    return next(one.where for one in record.decl.fields if one.name == name)


def member_type(record: Record, name: str, where: Location) -> Type:
    """Type of a field. Raises P4Error listing the fields."""
    if name not in record.fields:
        called = f": {name} is a method, write {name}()" if name in ("isValid", "setValid", "setInvalid") else ""
        fail(where, f"{record.kind} {record} has no field {name} {known(record.fields)}{called}")
    return record.fields[name]
