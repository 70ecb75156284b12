"""Rows of table entries and of a select."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_testbed.switch.compiler.errors import count, fail
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.check_context import CheckContext
from mrc_testbed.switch.compiler.sema.check_expr import ExpressionChecker
from mrc_testbed.switch.compiler.sema.scope import Scope
from mrc_testbed.switch.compiler.sema.types import Bits, Record, Tuple, Type, plain


@dataclass(eq=False, repr=False)
class KeysetChecker:
    """Checks the values of a row against the types of its keys."""

    context: CheckContext
    expressions: ExpressionChecker

    def row(self, keys: list[tree.Expr], kinds: list[tuple[Type, bool]], scope: Scope, description: str) -> None:
        """Check one row of a select or of table entries against the types of its keys."""
        if len(keys) == 1 and isinstance(keys[0], tree.DontCare):
            return
        if description == "select" and len(keys) == 1 and self._is_value_set(keys[0], kinds, scope):
            return
        aggregates = [key_type for key_type, _ in kinds if isinstance(plain(key_type), (Record, Tuple))]
        if len(keys) == 1 and isinstance(keys[0], tree.ListExpr) and not aggregates:  # { a, b } for (a, b)
            keys[:] = keys[0].items
        if len(keys) != len(kinds):
            fail(keys[0].location, f"{description}: {count(len(keys), 'value')} for {count(len(kinds), 'key')}")
        for key, (key_type, _) in zip(keys, kinds, strict=False):
            # A `_` fits a key of any type.
            if isinstance(key, tree.DontCare):
                continue
            parts = (
                [key.value, key.mask]
                if isinstance(key, tree.Mask)
                else ([key.low, key.high] if isinstance(key, tree.Range) else [key])
            )
            # Two parts: a mask or a range, both defined on numbers only.
            if len(parts) == 2 and not isinstance(plain(key_type), Bits):
                fail(key.location, f"{description}: masks and ranges need numbers, not {key_type}")
            for part in parts:
                self.expressions.expr(part, scope)
                self.expressions.coerce(part, plain(key_type) if len(parts) == 2 else key_type, description)
                if part.const is None:
                    fail(part.location, f"{description}: the value is not known at compile time")
            if isinstance(key, tree.Range) and key.low.const > key.high.const:
                fail(key.location, f"{description}: the range {key.low.const}..{key.high.const} is empty")

    def _is_value_set(self, e: tree.Expr, kinds: list[tuple[Type, bool]], scope: Scope) -> bool:
        """A row of a select that is the name of a value_set: for all keys together."""
        value_set = scope.find(e.name) if isinstance(e, tree.PathExpression) else None
        if not isinstance(value_set, tree.ValueSet):
            return False
        self.expressions.expr(e, scope)
        fields = value_set_fields(value_set.element)
        if [plain(field) for field in fields] != [plain(key_type) for key_type, _ in kinds]:
            key_types = ", ".join(str(key_type) for key_type, _ in kinds)
            fail(e.location, f"select: value_set {value_set.name} holds {value_set.element}, the keys are {key_types}")
        return True


def value_set_fields(p4_type: Type) -> list[Type]:
    """Return the types of a member of a value_set whose elements have the type `p4_type`."""
    if isinstance(p4_type, (Record, Tuple)):
        parts = p4_type.fields.values() if isinstance(p4_type, Record) else p4_type.items
        return [field for part in parts for field in value_set_fields(part)]
    return [p4_type]
