"""Locations in a P4 program, and the one error that the compiler raises."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn


@dataclass(frozen=True, slots=True)
class Location:
    """Position in the source as its author sees it.

    Line and column count from 1; column 0: only the line is known.
    """

    file: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        position = f"{self.file}:{self.line}"
        return f"{position}:{self.column}" if self.column else position

    @property
    def short_text(self) -> str:
        """Format like `str`, with the file's base name only, for comments in the generated C."""
        return str(Location(Path(self.file).name, self.line, self.column))


NOWHERE = Location("<program>", 1)


class P4Error(Exception):
    """A program that does not compile: `file:line:column: message`.

    `location` is None when the fault is not in the program (no gcc, an unreadable file). `others` are further mistakes
    that were found in the same program, in its order.
    """

    def __init__(self, location: Location | None, message: str) -> None:
        super().__init__(f"{location}: {message}" if location else message)
        self.location = location
        self.message = message
        self.further_errors: list[P4Error] = []

    def lines(self) -> list[str]:
        """`file:line:column: error: message` of this one and the others: what editors and CI read."""
        return [
            f"{error.location}: error: {error.message}" if error.location else str(error)
            for error in (self, *self.further_errors)
        ]


class UnwrittenP4Error(P4Error):
    """A program that may be right: the disk of the cache did not take what is made of it."""


@dataclass(frozen=True, slots=True)
class P4Warning:
    """Warning about valid P4 that its author hardly means.

    `kind` is p4c's name of the warning: `unused`, `overflow` ...
    """

    location: Location
    kind: str
    message: str

    def line(self, severity: str = "warning") -> str:
        """`file:line:column: warning: message [kind]`."""
        return f"{self.location}: {severity}: {self.message} [{self.kind}]"


def fail(location: Location, message: str) -> NoReturn:
    """Raise P4Error at a place."""
    raise P4Error(location, message)


def raise_unsupported(location: Location | None, construct: str, instead: str = "") -> NoReturn:
    """Refuse a construct by name: `construct` reads as a noun (`varbit`, `header stacks`)."""
    plural = (
        construct.endswith("s") and not construct.endswith("ss") and not construct.startswith(("a ", "an ", "the "))
    )
    hint = f" ({instead})" if instead else ""
    raise P4Error(location, f"{construct} {'are' if plural else 'is'} not supported by the C backend{hint}")


def known_names(names: Iterable[str]) -> str:
    """`(has: a, b)`: what would have worked, for the end of a message."""
    unique_names = sorted(set(names))
    if not unique_names:
        return "(has none)"
    if len(unique_names) > 12:
        return f"(has {len(unique_names)}, among them: {', '.join(unique_names[:12])})"
    return f"(has: {', '.join(unique_names)})"


def count(number: int, noun: str) -> str:
    """`1 argument`, `2 arguments`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
