"""Limits of the fields of a configuration record, written in the field's type.

They are checked when the record is made.

A `Literal` or a `bool` says all values there are; `Annotated[type, limit, ...]` has one of the classes below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints


class ConfigError(ValueError):
    """A key does not exist or its value is out of range; the message says what would do."""


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Lowest and highest value of a number."""

    low: float
    high: float

    def allows(self, value: Any) -> bool:
        return not isinstance(value, bool) and isinstance(value, (int, float)) and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"must be {self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class Choice:
    """All values there are, the default first where §12 lists variants."""

    values: tuple[Any, ...]

    def allows(self, value: Any) -> bool:
        first = self.values[0]  # 7.0 == 7 and True == 1, and machine code takes neither for the other
        alike = isinstance(value, type(first)) and isinstance(value, bool) is isinstance(first, bool)
        return alike and value in self.values

    def __str__(self) -> str:
        return f"must be one of {', '.join(map(str, self.values))}"


@dataclass(frozen=True, slots=True)
class Only:
    """The single value that works, and why no other does: a variant of an open point that cannot exist."""

    works: Any
    reason: str

    def allows(self, value: Any) -> bool:
        return bool(value == self.works)

    def __str__(self) -> str:
        return f"only {self.works!r} can work: {self.reason}"


@dataclass(frozen=True, slots=True)
class Widths:
    """A list of bit widths: fewest, most, and how many bits in all."""

    min_count: int
    max_count: int
    bits: int

    def allows(self, value: Any) -> bool:
        if not isinstance(value, (tuple, list)) or not self.min_count <= len(value) <= self.max_count:
            return False
        return all(type(width) is int and width >= 1 for width in value) and sum(value) <= self.bits

    def __str__(self) -> str:
        return f"must be {self.min_count} to {self.max_count} widths of 1 bit or more, {self.bits} bits in all"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a single field, and its words."""

    allows: Callable[[Any], bool]
    words: str

    def __str__(self) -> str:
        return self.words


WHOLE_NUMBER = Condition(lambda value: isinstance(value, int) and not isinstance(value, bool), "must be a whole number")
"""Limit of every `int`: Python would go on with 14.5, and machine code ends in a TypeError."""
Limit: TypeAlias = NumberRange | Choice | Only | Widths | Condition


@cache
def limits_of(kind: Any) -> dict[str, tuple[Any, tuple[Limit, ...]]]:
    """Default and limits of each field of a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: (field.default, _limits(hints[field.name])) for field in fields(kind)}


def _limits(hint: Any) -> tuple[Limit, ...]:
    if hint is bool:
        return (Choice((True, False)),)
    if get_origin(hint) is Literal:
        return (Choice(get_args(hint)),)
    limits: tuple[Limit, ...] = getattr(hint, "__metadata__", ())
    return (*limits, WHOLE_NUMBER) if getattr(hint, "__origin__", hint) is int else limits


def check_value(key: str, value: Any, limits: Sequence[Limit]) -> None:
    """Raise ConfigError, which names the key and what would do, for a value beyond a limit."""
    for limit in limits:
        if not limit.allows(value):
            raise ConfigError(f"{key} = {value!r}: {limit}")


def check_fields(record: Any, prefix: str = "") -> None:
    """Check the fields of a dataclass that are not at their default.

    Raises ConfigError; a key is prefix and name.
    """
    for name, (default, limits) in limits_of(record.__class__).items():
        value = getattr(record, name)
        if value is not default:
            check_value(prefix + name, value, limits)
