"""Names in scope."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from mrc_testbed.switch.compiler.errors import Location, fail, known_names
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.frontend.preprocess import INCLUDE_DIR
from mrc_testbed.switch.compiler.sema.types import (
    Object,
    Record,
    Type,
)

MAX_BITS = 2048
"""Widest number that is taken (p4c's limit)."""
MAX_VARBIT_BITS = 8 * 16384
"""Widest varbit: the longest frame (p4rt.h: P4RT_MAX_FRAME)."""


class Scope:
    """Names of one block, and of those around it. A value is a Type, a declaration or a list of overloads."""

    def __init__(self, parent: Scope | None = None) -> None:
        self.parent = parent
        self.names: dict[str, Any] = {}
        self.locations: dict[str, Location] = {}
        self.later: dict[str, Location] = {}
        """Names that the block declares, also those that are still to come."""
        self.open: list[str] = []
        """Names of the declarations that are being checked now."""
        self.hidden_params: list[tree.Param] = []
        """Parameters of the parser or control, whose names its declarations may have."""

    def declare(self, name: str, declaration: Any, location: Location) -> None:
        """Add a name. Raises P4Error when this block has it; a type may hide functions of its name."""
        hides = isinstance(declaration, Object) and isinstance(self.names.get(name), list)
        if name in self.names and not hides:
            fail(location, f"{name} is already declared at {self.locations[name]}")
        outer = self.parent.find(name) if self.parent and not isinstance(declaration, tree.Param) else None
        if isinstance(outer, tree.Param) and all(outer is not param for param in self.hidden_params):
            fail(location, f"{name} hides the parameter {name} at {outer.location}: give it another name")
        self.names[name], self.locations[name] = declaration, location

    def find(self, name: str) -> Any:
        """Return the declaration or type of a name, innermost scope first; None for an unknown name."""
        scope: Scope | None = self
        while scope:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None

    def all_names(self) -> Iterator[str]:
        scope: Scope | None = self
        while scope:
            yield from scope.names
            scope = scope.parent

    def top(self) -> Scope:
        scope = self
        while scope.parent:
            scope = scope.parent
        return scope


def locations_of(nodes: list[Any]) -> dict[str, Location]:
    """Return the locations of the names that a block declares."""
    return {node.name: node.location for node in nodes if isinstance(node, tree.Decl)}


def fail_undeclared(location: Location, name: str, scope: Scope, kind: str = "") -> None:
    """Raise P4Error for a name that stands for nothing, with the nearest ones that do."""
    ancestor: Scope | None = scope
    while ancestor:
        if name in ancestor.open:
            fail(location, f"{name} cannot be used inside its own declaration: P4 has no recursion")
        if name in ancestor.later:
            fail(
                location,
                f"{name} is not declared yet: it is declared below, at {ancestor.later[name]}; move it above its use",
            )
        ancestor = ancestor.parent
    home = include_of(name)
    if home:
        fail(location, f"{kind + ' ' if kind else ''}{name} is not declared: it is in {home}, write #include <{home}>")
    near = difflib.get_close_matches(name, set(scope.all_names()), 3)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    fail(location, f"{kind + ' ' if kind else ''}{name} is not declared{hint}")


@cache
def _included_names() -> dict[str, str]:
    """The names that core.p4 and v1model.p4 declare, with the file."""
    pattern = r"\b(?:extern|struct|enum|action|control|parser|package|const \S+|extern \S+)\s+(\w+)\s*(?:[<({=]|INDEX)"
    return {
        name: file
        for file in ("core.p4", "v1model.p4")
        for name in re.findall(pattern, (INCLUDE_DIR / file).read_text())
        if not name.startswith("__")
    }


def include_of(name: str) -> str | None:
    """The file of the architecture that declares a name."""
    return _included_names().get(name)


def field_location(record: Record, name: str) -> Location:
    """Return the location of a field's declaration."""
    location: Location = next(field.location for field in record.decl.fields if field.name == name)
    return location


def member_type(record: Record, name: str, location: Location) -> Type:
    """Type of a field. Raises P4Error listing the fields."""
    if name not in record.fields:
        method_hint = f": {name} is a method, write {name}()" if name in ("isValid", "setValid", "setInvalid") else ""
        fail(location, f"{record.kind} {record} has no field {name} {known_names(record.fields)}{method_hint}")
    return record.fields[name]
