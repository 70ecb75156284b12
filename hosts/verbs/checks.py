"""Checks of what callers hand in: each says what it got and what would have done.

>>> number("timeout", 25, 1, 24)
Traceback (most recent call last):
mrc_testbed.hosts.verbs.errors.VerbsError: timeout = 25: must be 1 to 24
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntFlag
from functools import cache
from typing import Any, TypeVar

from mrc_testbed.hosts.verbs.errors import VerbsError

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
F = TypeVar("F", bound=IntFlag)


def short_repr(value: Any) -> str:
    """Return a value for a message, not too long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def require(value: T | None, name: str, subject: str) -> T:
    """An attribute that `what` cannot do without. Raises VerbsError when it is None."""
    if value is None:
        raise VerbsError(f"{subject}: {name} is not set")
    return value


def number(subject: str, value: Any, low: int, high: int) -> int:
    """Return a whole number in a range."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise VerbsError(f"{subject} = {short_repr(value)}: must be {low} to {high}")
    return value


def choice(subject: str, value: Any, enum: type[E]) -> E:
    """Return a member of an enumeration, given as member or value."""
    try:
        member = enum(value)
    except (ValueError, TypeError):
        member = None
    if member is None or isinstance(value, bool) or member not in tuple(enum):
        raise VerbsError(f"{subject} = {short_repr(value)}: must be one of {', '.join(enum.__members__)}")
    return member


def flags(subject: str, value: Any, enum: type[F]) -> F:
    """Return a combination of flags."""
    # As numbers: an operator of IntFlag takes longer than all the rest.
    if not isinstance(value, int) or isinstance(value, bool) or int(value) & ~_all_bits(enum) or int(value) < 0:
        raise VerbsError(f"{subject} = {short_repr(value)}: must be made of {', '.join(enum.__members__)}")
    return value if type(value) is enum else enum(value)


@cache
def _all_bits(enum: type[IntFlag]) -> int:
    return sum({int(member) for member in enum.__members__.values()})


def record(subject: str, value: Any, kind: type[T]) -> T:
    """Return an object of one class."""
    if not isinstance(value, kind):
        raise VerbsError(f"{subject} = {short_repr(value)}: must be of type {kind.__name__}")
    return value


def records(subject: str, value: Any, kind: type[T]) -> list[T]:
    """Several objects of one class."""
    if not isinstance(value, Iterable):
        raise VerbsError(f"{subject} = {short_repr(value)}: must be a list of {kind.__name__}")
    return [record(f"{subject}[{i}]", element, kind) for i, element in enumerate(value)]


def iterable(subject: str, value: Any) -> Iterable[Any]:
    """Return an iterable of requests; a single request is none."""
    if not isinstance(value, Iterable):
        raise VerbsError(f"{subject}: got {short_repr(value)}: must be a request, or several")
    return value
