"""Values of expressions at compile time, by the rules of the language (P4_16 §8)."""

from __future__ import annotations

from typing import Any

from mrc_testbed.switch.compiler.errors import Location, fail
from mrc_testbed.switch.compiler.sema.types import INT, STRING, Bits, Type

_COMPARE = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "&&": lambda a, b: a and b,
    "||": lambda a, b: a or b,
}
_INTEGER = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}
_LONGEST_SHIFT = 4096


def fold_binary(op: str, left: Any, right: Any, types: tuple[Type, Type, Type], where: Location) -> Any:
    """Value of `left op right`; `types` are those of left, right and the result."""
    if op in _COMPARE:
        return _COMPARE[op](left, right)
    of = types[2]
    if op in _INTEGER:
        value = _INTEGER[op](left, right)
    elif op in ("/", "%"):
        if right == 0 or left < 0 or right < 0:
            fail(where, f"{left} {op} {right}: division needs a dividend of at least 0 and a divisor above 0")
        value = left // right if op == "/" else left % right
    elif op in ("<<", ">>"):
        if right < 0 or (op == "<<" and right > _LONGEST_SHIFT and not isinstance(of, Bits)):
            fail(where, f"a shift by {right}: 0 to {_LONGEST_SHIFT} bits can be shifted")
        by = min(right, _LONGEST_SHIFT)
        value = left << by if op == "<<" else left >> by
    elif op == "++":
        if of == STRING:
            return left + right
        low = types[1]
        assert isinstance(low, Bits)
        value = left << low.width | (right & ((1 << low.width) - 1))
    else:
        return saturate(left + right if op == "|+|" else left - right, of)
    return of.wrap(value) if isinstance(of, Bits) else value


def saturate(value: int, of: Type) -> int:
    """`value` brought to the nearest that the type can hold."""
    assert isinstance(of, Bits)
    low = -(1 << of.width - 1) if of.signed else 0
    high = (1 << of.width - of.signed) - 1
    return min(max(value, low), high)


def fold_unary(op: str, value: Any, of: Type) -> Any:
    """What an operator makes of a constant of the plain type `of`."""
    if op == "!":
        return not value
    result = {"-": lambda: -value, "~": lambda: ~value, "+": lambda: value}[op]()
    return of.wrap(result) if isinstance(of, Bits) else result


def fold_cast(value: Any, to: Type) -> Any:
    """`value` (int or bool) as the plain type `to`."""
    if isinstance(to, Bits):
        return to.wrap(int(value))
    if to == INT:
        return int(value)
    return bool(value)
