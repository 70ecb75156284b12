"""Types and compile-time values of expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from mrc_testbed.switch.compiler.errors import Location, fail, known_names, raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.check_context import CheckContext
from mrc_testbed.switch.compiler.sema.check_types import TypeResolver
from mrc_testbed.switch.compiler.sema.fold import fold_binary, fold_cast, fold_unary
from mrc_testbed.switch.compiler.sema.scope import Scope, fail_undeclared, member_type
from mrc_testbed.switch.compiler.sema.types import (
    BOOL,
    ERROR,
    INT,
    STRING,
    ActionRun,
    ApplyResult,
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
    form,
    number,
    plain,
    same_signature,
    underlying,
)

_ORDER = ("<", ">", "<=", ">=")


@dataclass(eq=False, repr=False)
class ExpressionChecker:
    """Checks expressions: sets `type` and, when known, `const` of each node."""

    context: CheckContext
    types: TypeResolver

    def _fits(self, value: int, p4_type: Type, location: Location) -> None:
        """Warn of a constant that does not fit its type."""
        base = plain(p4_type)
        assert isinstance(base, Bits)
        if value < 0 and not base.signed:
            self.context.warn("mismatch", location, f"{value} is negative and becomes {base.wrap(value)} as {p4_type}")
        elif base.wrap(value) != value:
            self.context.warn("overflow", location, f"{value} does not fit {p4_type} and becomes {base.wrap(value)}")

    def constant(self, expr: tree.Expr, scope: Scope) -> int:
        """Value of an integer that must be known at compile time."""
        self.expr(expr, scope)
        if expr.const is None or isinstance(expr.const, (bool, str)):
            fail(expr.location, "this must be an integer known at compile time")
        value: int = expr.const
        return value

    def expr(self, e: tree.Expr, scope: Scope) -> Type:
        """Type of an expression. Raises P4Error for what the language forbids."""
        p4_type: Type = self.KINDS[type(e)](self, e, scope)
        e.type = p4_type
        return p4_type

    def coerce(self, e: tree.Expr, target_type: Type, description: str = "value") -> None:
        """Coerce a checked expression to `target_type`, implicitly (P4_16 §8.11.2). Raises P4Error."""
        base = plain(target_type)
        if e.type == target_type:
            return
        if e.type == INT and isinstance(base, Bits) and not isinstance(target_type, EnumType):
            if e.const is None:
                fail(
                    e.location,
                    f"{description} of type int: it must be known at compile time, or have a width, such as bit<32>",
                )
            self._fits(e.const, target_type, e.location)
            e.const, e.type = base.wrap(e.const), target_type
        elif isinstance(e.type, EnumType) and e.type.underlying_type == target_type:
            e.const = e.type.values[e.const] if isinstance(e.const, str) else e.const
            e.type = target_type
        elif isinstance(e, tree.ListExpr) and isinstance(base, (Record, Tuple, Stack)):
            self._fill(e, target_type, description)
        elif isinstance(e, tree.RecordExpr) and isinstance(base, Record):
            self._fill_named(e, base, description)
        elif isinstance(e, tree.Dots):
            self._fail_dots(e)
        elif isinstance(e, tree.Invalid) and isinstance(base, Record) and base.kind != "struct":
            e.type = target_type
        elif isinstance(e.type, Object) and isinstance(target_type, Object) and same_signature(e.type, target_type):
            pass  # an instance for a constructor: it keeps its own type
        else:
            fail(
                e.location,
                f"{description} of type {e.type} where {target_type} is needed{self._cast_hint(e.type, target_type)}",
            )

    def coerce_or_default(self, e: tree.Expr, target_type: Type, description: str = "value") -> tree.Expr:
        """Return a checked expression as one of type `target_type`; `...` becomes the default value.

        Raises P4Error.
        """
        if isinstance(e, tree.Dots):
            return default_of(target_type, e)
        self.coerce(e, target_type, description)
        return e

    def value_for(self, e: tree.Expr, target_type: Type, scope: Scope, description: str) -> tree.Expr:
        """Check an expression and coerce it, with the default value in place of `...`. Raises P4Error."""
        if not isinstance(e, tree.Dots):
            self.expr(e, scope)
        return self.coerce_or_default(e, target_type, description)

    @staticmethod
    def _fail_dots(e: tree.Dots) -> NoReturn:
        fail(e.location, "`...` stands only for a whole value, or at the end of a list of values")

    @staticmethod
    def _cast_hint(have: Type, target_type: Type) -> str:
        if isinstance(have, ApplyResult) and target_type == BOOL:
            return f": write {have.table.name}.apply().hit, or .miss"
        both_numbers = isinstance(plain(have), Bits) and isinstance(plain(target_type), Bits)
        return f": a cast would do, ({target_type})" if both_numbers or isinstance(target_type, NewType) else ""

    def _fill(self, e: tree.ListExpr, target_type: Type, description: str) -> None:
        base = plain(target_type)
        if isinstance(base, Stack):
            parts: list[Type] = [base.element] * base.size
        else:
            assert isinstance(base, (Record, Tuple))
            parts = list(base.fields.values() if isinstance(base, Record) else base.items)
        if e.items and isinstance(e.items[-1], tree.Dots):
            e.items.pop()
            e.items += [default_of(part, e) for part in parts[len(e.items) :]]
        if len(parts) != len(e.items):
            kind = "elements" if isinstance(base, Stack) else "fields"
            fail(e.location, f"{description}: {len(e.items)} values for the {len(parts)} {kind} of {target_type}")
        for item, part in zip(e.items, parts, strict=False):
            self.coerce(item, part, description)
        e.type = target_type

    def _fill_named(self, e: tree.RecordExpr, record: Record, description: str) -> None:
        values_by_name = dict(e.items)
        if e.dots and set(values_by_name) <= set(record.fields):
            e.items += [
                (name, default_of(field, e.dots)) for name, field in record.fields.items() if name not in values_by_name
            ]
            values_by_name = dict(e.items)
        if len(values_by_name) != len(e.items):
            duplicate = next(name for name, item in e.items if values_by_name[name] is not item)
            fail(e.location, f"{description}: the field {duplicate} is given twice")
        if set(values_by_name) != set(record.fields):
            names = ", ".join(record.fields)
            fail(e.location, f"{description}: the fields of {record} are {names}; given {', '.join(values_by_name)}")
        for name, item in e.items:
            self.coerce(item, record.fields[name], description)
        e.type = record

    # ---- leaves

    def _integer(self, e: tree.Integer, _scope: Scope) -> Type:
        if e.width is None:
            e.const = e.value
            return INT
        bits_type = Bits(e.width, e.signed)
        if e.signed and not e.width:
            fail(e.location, "a number of type int<0>: int<N> has at least 1 bit")
        self._fits(e.value, bits_type, e.location)
        e.const = bits_type.wrap(e.value)
        return bits_type

    def _boolean(self, e: tree.Boolean, _scope: Scope) -> Type:
        e.const = e.value
        return BOOL

    def _string(self, e: tree.String, _scope: Scope) -> Type:
        e.const = e.value
        return STRING

    def _invalid(self, _e: tree.Invalid, _scope: Scope) -> Type:
        return Simple("{#}")

    def _dots(self, e: tree.Dots, _scope: Scope) -> Type:
        self._fail_dots(e)

    def _default(self, e: tree.Default, _scope: Scope) -> Type:
        p4_type: Type = e.type
        return p4_type

    def _refuse(self, e: tree.UnsupportedExpr, _scope: Scope) -> Type:
        raise_unsupported(e.location, e.construct)

    def _dontcare(self, e: tree.DontCare, _scope: Scope) -> Type:
        fail(e.location, "`_` and `default` stand for a value only in key sets")

    def _pathexpression(self, e: tree.PathExpression, scope: Scope) -> Type:
        declaration = (scope.top() if e.top else scope).find(e.name)
        if declaration is None:
            fail_undeclared(e.location, e.name, scope)
        e.decl = declaration
        if isinstance(declaration, tree.Const):
            e.const = declaration.value.const
        if isinstance(declaration, tree.Table):
            return Object("table", declaration)
        if isinstance(declaration, tree.Action):
            return Object("action", declaration)
        p4_type: Type | None = getattr(declaration, "type", None)
        if p4_type is None:
            kind = "a function" if isinstance(declaration, (list, tree.Function)) else "a type"
            fail(e.location, f"{e.name} is {kind}, not a value")
        return p4_type

    def _typemember(self, e: tree.TypeMember, scope: Scope) -> Type:
        if e.enum_type is None:
            if e.name not in self.context.errors:
                fail(e.location, f"error has no member {e.name} {known_names(self.context.errors)}")
            e.const = e.name
            return ERROR
        enum = self.types.resolve(e.enum_type, scope)
        if not isinstance(enum, EnumType):
            fail(e.location, f"{enum}.{e.name}: only enums have members, and {enum} is none")
        if e.name not in enum.members:
            fail(e.location, f"enum {enum} has no member {e.name} {known_names(enum.members)}")
        e.const = e.name
        return enum

    # ---- parts

    def _member(self, e: tree.Member, scope: Scope) -> Type:
        base_type = self.expr(e.base, scope)
        if isinstance(base_type, Record):
            field_type = member_type(base_type, e.name, e.location)
            self._fold_part(e)
            return field_type
        if isinstance(base_type, ApplyResult):
            if e.name in ("hit", "miss"):
                return BOOL
            if e.name == "action_run":
                return ActionRun(base_type.table)
            fail(e.location, f"apply() has no member {e.name} (has: action_run, hit, miss)")
        if isinstance(base_type, Stack):
            return self._stack_member(e, base_type)
        if isinstance(base_type, Object):
            fail(e.location, f"{e.name} of a {base_type.kind} is a method: call it")
        fail(e.location, f"{base_type} has no member {e.name}")

    @staticmethod
    def _fold_part(e: tree.Member | tree.Index) -> None:
        """The value of a part of a constant."""
        part = known_part(e)
        if part is not None:
            e.const = part.const

    def _stack_member(self, e: tree.Member, stack_type: Stack) -> Type:
        if e.name != "size" and not stack_type.of_headers:
            fail(e.location, f"an array of {stack_type.element} has no member {e.name} (has: size)")
        if e.name in ("next", "last"):
            if not self.context.in_parser:
                fail(e.location, f"`{e.name}` of a header stack exists only in parsers: use an index")
            return stack_type.element
        if e.name == "size":
            e.const = stack_type.size
            return Bits(32)
        if e.name == "lastIndex":
            if not self.context.in_parser:
                fail(e.location, "`lastIndex` of a header stack exists only in parsers: keep it in the metadata there")
            return Bits(32)
        fail(e.location, f"{stack_type} has no member {e.name} (has: last, lastIndex, next, size)")

    def _index(self, e: tree.Index, scope: Scope) -> Type:
        base_type, index = self.expr(e.base, scope), self.expr(e.index, scope)
        if isinstance(base_type, (Stack, Tuple)):
            size = base_type.size if isinstance(base_type, Stack) else len(base_type.items)
            if index != INT and not isinstance(plain(index), Bits):
                fail(e.index.location, f"an index is a number, not a {index}")
            position = e.index.const
            if position is None and index == INT:
                fail(e.index.location, "an index of type int must be known at compile time, or have a width")
            if position is not None and not 0 <= position < size:
                fail(e.index.location, f"index {position} of {base_type}: 0 to {size - 1} exist")
            if isinstance(base_type, Tuple) and position is None:
                fail(e.index.location, "the index of a tuple must be known at compile time")
            self._fold_part(e)
            return base_type.element if isinstance(base_type, Stack) else base_type.items[position]
        fail(e.location, f"{base_type} cannot be indexed: only header stacks, arrays and tuples can")

    def _slice(self, e: tree.Slice, scope: Scope) -> Type:
        base_type = self.expr(e.base, scope)
        base = plain(base_type)
        if not isinstance(base, Bits):
            fail(e.location, f"{base_type} has no bits to slice: only bit<N> and int<N> have")
        width = base.width
        if e.width is not None:
            slice_bits = self.constant(e.width, scope)
            start = self.expr(e.low, scope)
            bits = plain(start)
            if start != INT and not (isinstance(bits, Bits) and not bits.signed):
                fail(e.low.location, f"a slice begins at a bit<N> or a number, not at a {start}")
            if not 0 < slice_bits <= width:
                fail(e.width.location, f"a slice of {slice_bits} bits of {base_type}: 1 to {width} can be taken")
            if e.low.const is None:
                return Bits(slice_bits)
            e.low = _number(e.low, e.low.const)
            e.high, e.width = _number(e.low, e.low.const + slice_bits - 1), None
        high, low = self.constant(e.high, scope), self.constant(e.low, scope)
        if not 0 <= low <= high < width:
            fail(e.location, f"slice [{high}:{low}] of {base_type}: needs {width - 1} >= high >= low >= 0")
        if isinstance(e.base, tree.Slice) and e.base.const is None and e.base.width is None:  # x[a:b][c:d]: x[b+c:b+d]
            shift = e.base.low.const
            e.base, e.high, e.low = e.base.base, _number(e.high, high + shift), _number(e.low, low + shift)
        if isinstance(e.base.const, int):
            e.const = e.base.const >> low & (1 << high - low + 1) - 1
        return Bits(high - low + 1)

    # ---- operators

    def _unary(self, e: tree.Unary, scope: Scope) -> Type:
        operand_type = self.expr(e.operand, scope)
        if e.op == "!":
            self._need(e.operand, BOOL, e.op)
        elif not isinstance(plain(operand_type), Bits) and operand_type != INT:
            fail(e.location, f"{e.op} needs a number, not {operand_type}")
        elif e.op == "~" and operand_type == INT:
            fail(e.location, "~ needs a number with a width, such as 8w1")
        if e.operand.const is not None:
            e.const = fold_unary(e.op, e.operand.const, operand_type)
        return operand_type

    def _need(self, e: tree.Expr, needed_type: Type, op: str) -> None:
        if e.type != needed_type:
            hint = f": write {e.type.table.name}.apply().hit, or .miss" if isinstance(e.type, ApplyResult) else ""
            fail(e.location, f"{op} needs {needed_type}, not {e.type}{hint}")

    def _binary(self, e: tree.Binary, scope: Scope) -> Type:
        lhs, rhs = self.expr(e.lhs, scope), self.expr(e.rhs, scope)
        if e.op not in ("==", "!="):  # members of serializable enums are computed with as the numbers they are
            for operand in (e.lhs, e.rhs):
                if isinstance(operand.type, EnumType) and operand.type.underlying_type:
                    self.coerce(operand, operand.type.underlying_type)
            lhs, rhs = e.lhs.type, e.rhs.type
        if e.op in ("&&", "||"):
            self._need(e.lhs, BOOL, e.op)
            self._need(e.rhs, BOOL, e.op)
            result: Type = BOOL
        elif e.op in ("<<", ">>"):
            result = self._shift(e)
        elif e.op == "++":
            result = self._concat(e)
        else:
            self._unify(e, lhs, rhs)
            lhs = e.lhs.type
            if e.op in ("==", "!="):
                result = self._equality(e)
            elif e.op in _ORDER:
                self._numeric(e, lhs)
                result = BOOL
            else:
                self._numeric(e, lhs)
                result = lhs
        if e.lhs.const is not None and e.rhs.const is not None:
            kinds = (plain(e.lhs.type), plain(e.rhs.type), plain(result))
            e.const = fold_binary(e.op, _plain_const(e.lhs), _plain_const(e.rhs), kinds, e.location)
        elif e.op in ("==", "!=") and all_known(e.lhs) and all_known(e.rhs):
            e.const = (value_key(e.lhs) == value_key(e.rhs)) == (e.op == "==")
        elif e.op in ("/", "%") and e.rhs.const == 0:
            fail(e.rhs.location, f"{e.op} by 0 has no result")
        elif e.op in ("/", "%") and (not isinstance(plain(result), Bits) or number(result).signed):
            fail(e.location, f"{e.op} needs bit<N>, or numbers known at compile time, not {result}")
        return result

    def _unify(self, e: tree.Binary, lhs: Type, rhs: Type) -> None:
        """Bring the operands of a symmetric operator to one type."""
        for operand in (e.lhs, e.rhs):
            if (
                isinstance(operand.type, EnumType)
                and operand.type.underlying_type
                and (lhs != rhs or e.op not in ("==", "!="))
            ):
                self.coerce(operand, operand.type.underlying_type, f"operand of {e.op}")
        lhs, rhs = e.lhs.type, e.rhs.type
        if lhs == rhs:
            return
        for operand, target_type in ((e.lhs, rhs), (e.rhs, lhs)):
            has_no_type = isinstance(operand, (tree.ListExpr, tree.RecordExpr, tree.Invalid))
            is_enum = isinstance(operand.type, EnumType) and operand.type.underlying_type == target_type
            if (operand.type == INT and isinstance(target_type, Bits)) or is_enum or has_no_type:
                self.coerce(operand, target_type, f"operand of {e.op}")
                return
        fail(e.location, f"{lhs} {e.op} {rhs}: both sides must have one type{self._cast_hint(lhs, rhs)}")

    def _equality(self, e: tree.Binary) -> Type:
        if isinstance(e.lhs.type, (Object, ApplyResult, ActionRun)):
            fail(e.location, f"{e.lhs.type} cannot be compared")
        return BOOL

    def _numeric(self, e: tree.Binary, operand_type: Type) -> None:
        if not isinstance(operand_type, Bits) and operand_type != INT:
            fail(e.location, f"{e.op} needs numbers, not {operand_type}")
        if operand_type == INT and e.op in ("|+|", "|-|"):
            fail(e.location, f"{e.op} needs numbers with a width, such as 8w1")

    def _shift(self, e: tree.Binary) -> Type:
        lhs: Type = e.lhs.type
        rhs: Type = e.rhs.type
        if not isinstance(lhs, Bits) and lhs != INT:
            fail(e.location, f"{e.op} needs a number on the left, not {lhs}")
        if rhs == INT:
            if e.rhs.const < 0:
                fail(e.rhs.location, f"a shift by {e.rhs.const}: must not be negative")
        elif not isinstance(rhs, Bits) or rhs.signed:
            cast = f": a cast would do, ({plain(rhs)})" if isinstance(rhs, NewType) else ""
            fail(e.rhs.location, f"{e.op} needs bit<N> or a constant on the right, not {rhs}{cast}")
        if lhs == INT and e.rhs.const is None:
            fail(e.lhs.location, f"{e.op} by a variable needs a width on the left, such as 8w1")
        return lhs

    def _concat(self, e: tree.Binary) -> Type:
        if e.lhs.type == e.rhs.type == STRING:
            return STRING
        for operand in (e.lhs, e.rhs):
            if not isinstance(plain(operand.type), Bits):
                fail(
                    operand.location, f"++ needs numbers with a width, such as 8w1, or two strings, not {operand.type}"
                )
        lhs, rhs = number(e.lhs.type), number(e.rhs.type)
        return Bits(lhs.width + rhs.width, lhs.signed)

    def _ternary(self, e: tree.Ternary, scope: Scope) -> Type:
        self.expr(e.condition, scope)
        self._need(e.condition, BOOL, "? :")
        lhs, rhs = self.expr(e.if_true, scope), self.expr(e.if_false, scope)
        if lhs == rhs == INT and e.condition.const is None:
            fail(e.location, "? : needs a width for one of its values, such as 8w1, when the condition is not constant")
        if lhs != rhs:
            if lhs == INT:
                self.coerce(e.if_true, rhs, "value")
            else:
                self.coerce(e.if_false, lhs, "value")
        if e.condition.const is not None:
            e.const = (e.if_true if e.condition.const else e.if_false).const
        result_type: Type = e.if_true.type
        return result_type

    def _cast(self, e: tree.Cast, scope: Scope) -> Type:
        target_type = self.types.resolve(e.target_type, scope)
        base = plain(target_type)
        # p4c takes a run-time int only below a cast to a width: compute with that width.
        if isinstance(base, Bits) and self._is_run_time_int(e.operand, scope):
            e.operand = self._modular(e.operand, base, scope)
            return target_type
        source_type = self.expr(e.operand, scope)
        if isinstance(e.operand, (tree.ListExpr, tree.RecordExpr, tree.Invalid)):
            self.coerce(e.operand, target_type, "cast")
            return target_type
        if not self._can_cast(source_type, target_type):
            fail(e.location, f"{source_type} cannot be cast to {target_type}{self._detour(source_type, target_type)}")
        value = e.operand.const
        if isinstance(source_type, EnumType) and source_type.underlying_type and isinstance(value, str):
            value = source_type.values[value]
        if target_type == INT and value is None:
            fail(
                e.location,
                f"{source_type} as int: the value must be known at compile time, but in sums, differences and products "
                "that are cast to a width at once",
            )
        if source_type == INT and plain(target_type) == BOOL and value not in (0, 1):
            fail(e.location, f"{value} as bool: 0 and 1 are, as false and true")
        if value is not None:
            e.const = fold_cast(value, plain(target_type)) if isinstance(value, (int, bool)) else value
            if isinstance(target_type, EnumType) and not isinstance(e.const, str):
                e.const = next((name for name, number in target_type.values.items() if number == e.const), e.const)
        return target_type

    def _is_run_time_int(self, e: tree.Expr, scope: Scope) -> bool:
        """Return whether a run-time value is taken as an int, in sums, differences and products at most."""
        if isinstance(e, tree.Binary) and e.op in ("+", "-", "*"):
            return self._is_run_time_int(e.lhs, scope) or self._is_run_time_int(e.rhs, scope)
        if isinstance(e, tree.Unary) and e.op in ("+", "-"):
            return self._is_run_time_int(e.operand, scope)
        if not isinstance(e, tree.Cast) or self.types.resolve(e.target_type, scope) != INT:
            return False
        return isinstance(plain(self.expr(e.operand, scope)), Bits) and e.operand.const is None

    def _modular(self, e: tree.Expr, target_type: Bits, scope: Scope) -> tree.Expr:
        """Return an int computed with the width of its cast: its lower bits are those of the int."""
        out: tree.Expr
        if isinstance(e, tree.Binary) and e.op in ("+", "-", "*"):
            out = tree.Binary(
                e.location, self._modular(e.lhs, target_type, scope), e.op, self._modular(e.rhs, target_type, scope)
            )
        elif isinstance(e, tree.Unary) and e.op in ("+", "-"):
            out = tree.Unary(e.location, e.op, self._modular(e.operand, target_type, scope))
        elif isinstance(e, tree.Cast) and self.types.resolve(e.target_type, scope) == INT:
            if e.operand.type is None:
                self.expr(e.operand, scope)
            if not isinstance(plain(e.operand.type), Bits) and e.operand.type != INT:
                fail(e.location, f"{e.operand.type} cannot be cast to int")
            out = tree.Cast(e.location, e.target_type, e.operand)
            out.const = None if e.operand.const is None else target_type.wrap(e.operand.const)
        else:
            if self.expr(e, scope) != INT:
                fail(e.location, f"an int is needed here, not a {e.type}: cast it to int, too")
            out = _number(e, target_type.wrap(e.const))
        out.type = target_type
        return out

    @staticmethod
    def _can_cast(source_type: Type, target_type: Type) -> bool:
        source_base, target_base = underlying(source_type), underlying(target_type)
        # A named type is cast to and from the type it is made of, in one step, and from a constant (P4_16 §8.11).
        if source_base is not None or target_base is not None:
            is_one_step = source_type in (target_type, target_base) or source_base == target_type
            return is_one_step or (source_type == INT and isinstance(target_base, Bits))
        if source_type == target_type:
            return not isinstance(source_type, EnumType)
        if isinstance(source_type, Bits) and isinstance(target_type, Bits):
            return source_type.signed == target_type.signed or source_type.width == target_type.width
        if isinstance(source_type, Bits) and target_type == INT:
            return True
        if source_type == INT:
            return isinstance(target_type, Bits) or target_type == BOOL
        one_bit = Bits(1)
        return (source_type == BOOL and target_type == one_bit) or (source_type == one_bit and target_type == BOOL)

    @staticmethod
    def _detour(source_type: Type, target_type: Type) -> str:
        for named_type in (source_type, target_type):
            if (base := underlying(named_type)) is not None:
                return f": {named_type} is made of {base}, cast to that first"
        if isinstance(source_type, Bits) and isinstance(target_type, Bits):
            return f": change the width first, ({target_type})({Bits(target_type.width, source_type.signed)})"
        if target_type == BOOL:
            return ": compare with 0 instead"
        return ""

    def _listexpr(self, e: tree.ListExpr, scope: Scope) -> Type:
        if e.items and isinstance(e.items[-1], tree.Dots):
            e.items[-1].type = Simple("...")
            return Tuple((*(self.expr(item, scope) for item in e.items[:-1]), Simple("...")))
        return Tuple(tuple(self.expr(item, scope) for item in e.items))

    def _recordexpr(self, e: tree.RecordExpr, scope: Scope) -> Type:
        return Tuple(tuple(self.expr(item, scope) for _, item in e.items))

    def _construct(self, e: tree.Construct, _scope: Scope) -> Type:
        fail(e.location, "an object can be made only by a declaration or as an argument of a package")

    # ---- writing

    def writable(self, e: tree.Expr, description: str) -> None:
        """Raise P4Error unless a checked expression can be written to."""
        while isinstance(e, (tree.Member, tree.Slice, tree.Index)):
            e = e.base
        if not isinstance(e, tree.PathExpression):
            fail(e.location, f"{description}: this is not something that can be written to")
        decl: Any = e.decl
        if isinstance(decl, tree.Var):
            return
        if isinstance(decl, tree.Param):
            if decl.direction in ("out", "inout"):
                return
            way = f"has direction `{decl.direction}`" if decl.direction else "has no direction"
            fail(e.location, f"{description}: parameter {e.name} {way}; only `out` and `inout` can be written")
        fail(e.location, f"{description}: {e.name} is {_describe_decl(decl)}, which cannot be written to")

    def _call(self, e: tree.Call, scope: Scope) -> Type:
        return self.context.calls.check(e, scope)

    KINDS: ClassVar[Mapping[type[tree.Expr], Callable[[ExpressionChecker, Any, Scope], Type]]] = {
        tree.Integer: _integer,
        tree.Boolean: _boolean,
        tree.String: _string,
        tree.PathExpression: _pathexpression,
        tree.TypeMember: _typemember,
        tree.Member: _member,
        tree.Index: _index,
        tree.Slice: _slice,
        tree.Unary: _unary,
        tree.Binary: _binary,
        tree.Ternary: _ternary,
        tree.Cast: _cast,
        tree.Call: _call,
        tree.Construct: _construct,
        tree.ListExpr: _listexpr,
        tree.RecordExpr: _recordexpr,
        tree.Invalid: _invalid,
        tree.Dots: _dots,
        tree.Default: _default,
        tree.DontCare: _dontcare,
        tree.UnsupportedExpr: _refuse,
    }
    """All but masks and ranges: the grammar has these in key sets only, whose checker takes them apart."""


def _plain_const(e: tree.Expr) -> Any:
    """Return the constant of an expression; of a serializable enum's member, its value (may be shared)."""
    named = isinstance(e.type, EnumType) and e.type.underlying_type and isinstance(e.const, str)
    return e.type.values[e.const] if named else e.const


def all_known(e: tree.Expr) -> bool:
    """Return whether an expression is a constant, or a list of which every leaf is one."""
    constant_list = known_list(e)
    if constant_list is None:
        return e.const is not None
    items = (
        constant_list.items if isinstance(constant_list, tree.ListExpr) else [item for _, item in constant_list.items]
    )
    return all(map(all_known, items))


def _number(e: tree.Expr, value: int) -> tree.Integer:
    """A number known at compile time, in the place of an expression."""
    out = tree.Integer(e.location, value, None, False)
    out.const, out.type = value, INT
    return out


def default_of(p4_type: Type, e: tree.Expr) -> tree.Expr:
    """An expression for the default value of a type."""
    base = plain(p4_type)
    out: tree.Expr = tree.Default(e.location)
    if isinstance(base, Record) and base.kind != "struct":
        out = tree.Invalid(e.location)
    elif isinstance(base, (Record, Tuple)):
        parts = base.fields.values() if isinstance(base, Record) else base.items
        out = tree.ListExpr(e.location, [default_of(part, e) for part in parts])
    elif base == BOOL:
        out.const = False
    elif base == ERROR:
        out.const = "NoError"
    elif isinstance(p4_type, EnumType):
        zero = 0 if p4_type.underlying_type else p4_type.members[0]
        out.const = next(
            (name for name in p4_type.members if p4_type.underlying_type and p4_type.values[name] == 0), zero
        )
    elif isinstance(base, Bits):
        out.const = 0
    elif not isinstance(base, (Stack, Varbit)):
        fail(e.location, f"{p4_type} has no default value")
    out.type = p4_type
    return out


def example_of(p4_type: Type, node: tree.Node) -> tree.Expr:
    """Some value of a type, for a constructor that has not been called: 1 where that is a value."""
    if p4_type == STRING:
        out: tree.Expr = tree.String(node.location, "")
        out.const, out.type = "", p4_type
    elif p4_type == INT:
        out = _number(tree.Dots(node.location), 1)
    else:
        out = default_of(p4_type, tree.Dots(node.location))
        if isinstance(plain(p4_type), Bits) and isinstance(out.const, int):
            out.const = number(p4_type).wrap(1)
    return out


def known_list(e: tree.Expr) -> tree.ListExpr | tree.RecordExpr | None:
    """Return the list with the compile-time value of a struct, header, tuple or array, or None."""
    if isinstance(e, (tree.ListExpr, tree.RecordExpr)):
        return e
    if isinstance(e, tree.PathExpression) and isinstance(e.decl, tree.Const):
        return known_list(e.decl.value)
    if isinstance(e, tree.Cast):
        return known_list(e.operand)
    if isinstance(e, tree.Ternary) and e.condition.const is not None:
        return known_list(e.if_true if e.condition.const else e.if_false)
    part = known_part(e)
    return known_list(part) if part is not None else None


def known_part(e: tree.Expr) -> tree.Expr | None:
    """The expression that gives `c.field` or `c[1]` its value at compile time; None when there is none."""
    constant_list = known_list(e.base) if isinstance(e, (tree.Member, tree.Index)) else None
    if isinstance(constant_list, tree.RecordExpr):
        return dict(constant_list.items).get(e.name) if isinstance(e, tree.Member) else None
    if (
        isinstance(constant_list, tree.ListExpr)
        and isinstance(e, tree.Member)
        and isinstance(form(constant_list.type), Record)
    ):
        names = list(form(constant_list.type).fields)
        return (
            constant_list.items[names.index(e.name)]
            if e.name in names and len(names) == len(constant_list.items)
            else None
        )
    if isinstance(constant_list, tree.ListExpr) and isinstance(e, tree.Index) and isinstance(e.index.const, int):
        return constant_list.items[e.index.const] if e.index.const < len(constant_list.items) else None
    return None


def value_key(e: tree.Expr) -> Any:
    """Return a key of a checked value known at compile time; None for a value not known.

    Equal keys mean equal values, among values of one type.
    """
    if e.const is not None:
        return _plain_const(e), isinstance(e.const, bool)
    if isinstance(e, (tree.Invalid, tree.Default)):
        return (type(e).__name__,)
    constant_list = known_list(e)
    if constant_list is None:
        return None
    if isinstance(constant_list, tree.RecordExpr):
        values_by_name = dict(constant_list.items)
        names = (
            form(constant_list.type).fields if isinstance(form(constant_list.type), Record) else sorted(values_by_name)
        )
        parts = tuple(value_key(values_by_name[name]) for name in names)
    else:
        parts = tuple(value_key(item) for item in constant_list.items)
    return None if None in parts else parts


_DECL_NAMES = {
    tree.Const: "a constant",
    tree.Instance: "an instance",
    tree.Table: "a table",
    tree.Action: "an action",
}


def _describe_decl(decl: Any) -> str:
    """Return the kind of a declaration, for the message that it cannot be written to."""
    return _DECL_NAMES.get(type(decl), "no variable")
