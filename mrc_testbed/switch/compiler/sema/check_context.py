"""State that the checkers of a program share: names, position, problems."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol

from mrc_testbed.switch.compiler.errors import Location, P4Error, P4Warning
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.scope import Scope
from mrc_testbed.switch.compiler.sema.types import Object, Type

MOST_PROBLEMS = 20
"""Mistakes told of one program."""


class ExpressionValues(Protocol):
    """Checks expressions: a type has some."""

    def constant(self, expr: tree.Expr, scope: Scope) -> int:
        """Value of an integer that must be known at compile time."""
        ...


class CallTypes(Protocol):
    """Checks calls: an expression may be one."""

    def check(self, e: tree.Call, scope: Scope) -> Type:
        """Type of what a call gives."""
        ...


class SpecialTypes(Protocol):
    """Makes copies of declarations: a type may name one with type arguments."""

    def specialise(self, object_type: Object, args: tuple[Type, ...]) -> Type:
        """A generic parser, control, extern or package with its type arguments."""
        ...


class Declarations(Protocol):
    """Checks declarations: a copy of one is."""

    def declaration(self, node: Any, scope: Scope) -> None:
        """Check one declaration and enter its name."""
        ...


class CheckContext:
    """One program being checked.

    A checker has those that it uses as its fields. P4 is recursive, though (a type has expressions, an
    expression calls, a call may need a declaration checked anew), so four of them stand here, for those made before
    them; the Checker sets these.
    """

    expressions: ExpressionValues
    calls: CallTypes
    copies: SpecialTypes
    declarations: Declarations

    def __init__(self) -> None:
        self.top = Scope()
        self.errors: list[str] = []
        self.match_kinds: list[str] = []
        self.in_parser = False
        """Whether the code of a parser is being checked."""
        self.in_action = False
        self.in_function: tree.Function | None = None
        self.owner: Any = None
        """The parser or control being checked."""
        self.loops = 0
        """Loops around the statement being checked."""
        self.implicit: dict[int, list[tree.Instance | tree.Action]] = {}
        """Instances that `Type.apply()` makes, and copies of actions, by id() of the parser or control."""
        self.problems: list[P4Error] = []
        """Mistakes found so far."""
        self.warnings: list[P4Warning] = []
        self.failed: set[str] = set()
        """Names of declarations that were wrong."""

    def warn(self, kind: str, location: Location, message: str) -> None:
        """Note what a program may say and hardly means; `kind` as p4c names it."""
        self.warnings.append(P4Warning(location, kind, message))

    def save_position(self) -> tuple[Any, bool, bool, tree.Function | None, int]:
        """Return the position of the checker, for restore_position()."""
        return self.owner, self.in_parser, self.in_action, self.in_function, self.loops

    def restore_position(self, position: tuple[Any, bool, bool, tree.Function | None, int]) -> None:
        """Restore a position that save_position() returned."""
        self.owner, self.in_parser, self.in_action, self.in_function, self.loops = position

    def attempt(self, check: Callable[[Any, Scope], None], node: Any, scope: Scope) -> None:
        """Check a declaration or statement, and go on with the next when it is wrong.

        What only follows from a declaration that failed is not told: its name is unknown then.
        """
        position = self.save_position()
        try:
            check(node, scope)
        except P4Error as error:
            self.restore_position(position)
            unknown = re.match(r"(?:\w+ )?(\w+) is not declared", error.message)
            is_reported = str(error) in map(str, self.problems) or (unknown and unknown[1] in self.failed)
            if not is_reported and len(self.problems) < MOST_PROBLEMS:
                self.problems.append(error)
            self.failed.add(getattr(node, "name", ""))
