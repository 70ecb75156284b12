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


def fold_binary(op: str, lhs: Any, rhs: Any, types: tuple[Type, Type, Type], location: Location) -> Any:
    """Value of `left op right`; `types` are those of left, right and the result."""
    if op in _COMPARE:
        return _COMPARE[op](lhs, rhs)
    result_type = types[2]
    if op in _INTEGER:
        value = _INTEGER[op](lhs, rhs)
    elif op in ("/", "%"):
        if rhs == 0 or lhs < 0 or rhs < 0:
            fail(location, f"{lhs} {op} {rhs}: division needs a dividend of at least 0 and a divisor above 0")
        value = lhs // rhs if op == "/" else lhs % rhs
    elif op in ("<<", ">>"):
        if rhs < 0 or (op == "<<" and rhs > _LONGEST_SHIFT and not isinstance(result_type, Bits)):
            fail(location, f"a shift by {rhs}: 0 to {_LONGEST_SHIFT} bits can be shifted")
        shift = min(rhs, _LONGEST_SHIFT)
        value = lhs << shift if op == "<<" else lhs >> shift
    elif op == "++":
        if result_type == STRING:
            return lhs + rhs
        low = types[1]
        assert isinstance(low, Bits)
        value = lhs << low.width | (rhs & ((1 << low.width) - 1))
    else:
        return saturate(lhs + rhs if op == "|+|" else lhs - rhs, result_type)
    return result_type.wrap(value) if isinstance(result_type, Bits) else value


def saturate(value: int, bits_type: Type) -> int:
    """`value` brought to the nearest that the type can hold."""
    assert isinstance(bits_type, Bits)
    low = -(1 << bits_type.width - 1) if bits_type.signed else 0
    high = (1 << bits_type.width - bits_type.signed) - 1
    return min(max(value, low), high)


def fold_unary(op: str, value: Any, p4_type: Type) -> Any:
    """Return the result of a unary operator on a constant of the plain type `p4_type`."""
    if op == "!":
        return not value
    result = {"-": lambda: -value, "~": lambda: ~value, "+": lambda: value}[op]()
    return p4_type.wrap(result) if isinstance(p4_type, Bits) else result


def fold_cast(value: Any, target_type: Type) -> Any:
    """Return `value` (int or bool) as the plain type `target_type`."""
    if isinstance(target_type, Bits):
        return target_type.wrap(int(value))
    if target_type == INT:
        return int(value)
    return bool(value)
