"""Checks of what callers hand in: each says what it got and what would have done.

>>> number("timeout", 25, 1, 24)
Traceback (most recent call last):
mrc_testbed.hosts.verbs.errors.VerbsError: timeout = 25: must be 1 to 24
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntFlag
from typing import Any, TypeVar

from mrc_testbed.hosts.verbs.errors import VerbsError

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
F = TypeVar("F", bound=IntFlag)


def shown(value: Any) -> str:
    """A value in a message, not too long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def required(value: T | None, name: str, what: str) -> T:
    """An attribute that `what` cannot do without. Raises VerbsError when it is None."""
    if value is None:
        raise VerbsError(f"{what}: {name} is not set")
    return value


def number(what: str, value: Any, low: int, high: int) -> int:
    """A whole number in a range."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise VerbsError(f"{what} = {shown(value)}: must be {low} to {high}")
    return value


def choice(what: str, value: Any, enum: type[E]) -> E:
    """A member of an enumeration, or its value."""
    try:
        member = enum(value)
    except (ValueError, TypeError):
        member = None
    if member is None or isinstance(value, bool) or member not in tuple(enum):
        raise VerbsError(f"{what} = {shown(value)}: must be one of {', '.join(enum.__members__)}")
    return member


def flags(what: str, value: Any, enum: type[F]) -> F:
    """A combination of flags."""
    every = sum({int(member) for member in enum.__members__.values()})
    if not isinstance(value, int) or isinstance(value, bool) or value & ~every or value < 0:
        raise VerbsError(f"{what} = {shown(value)}: must be made of {', '.join(enum.__members__)}")
    return enum(value)


def record(what: str, value: Any, kind: type[T]) -> T:
    """An object of one class."""
    if not isinstance(value, kind):
        raise VerbsError(f"{what} = {shown(value)}: must be of type {kind.__name__}")
    return value


def records(what: str, value: Any, kind: type[T]) -> list[T]:
    """Several objects of one class."""
    if not isinstance(value, Iterable):
        raise VerbsError(f"{what} = {shown(value)}: must be a list of {kind.__name__}")
    return [record(f"{what}[{i}]", one, kind) for i, one in enumerate(value)]


def iterable(what: str, value: Any) -> Iterable[Any]:
    """One request is not this; several are."""
    if not isinstance(value, Iterable):
        raise VerbsError(f"{what}: got {shown(value)}: must be a request, or several")
    return value
