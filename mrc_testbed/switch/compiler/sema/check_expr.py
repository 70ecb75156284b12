"""Types and compile-time values of expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from mrc_testbed.switch.compiler.errors import Location, fail, known, unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.check_context import CheckContext
from mrc_testbed.switch.compiler.sema.check_types import TypeResolver
from mrc_testbed.switch.compiler.sema.fold import fold_binary, fold_cast, fold_unary
from mrc_testbed.switch.compiler.sema.scope import Scope, member_type, undeclared
from mrc_testbed.switch.compiler.sema.types import (
    BOOL,
    ERROR,
    INT,
    STRING,
    ActionRun,
    Applied,
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
)

_ORDER = ("<", ">", "<=", ">=")


@dataclass(eq=False, repr=False)
class ExpressionChecker:
    """Checks expressions: sets `type` and, when known, `const` of each node."""

    context: CheckContext
    types: TypeResolver

    def _fits(self, value: int, of: Type, where: Location) -> None:
        """Warn of a constant that does not fit its type."""
        base = plain(of)
        assert isinstance(base, Bits)
        if value < 0 and not base.signed:
            self.context.warn("mismatch", where, f"{value} is negative and becomes {base.wrap(value)} as {of}")
        elif base.wrap(value) != value:
            self.context.warn("overflow", where, f"{value} does not fit {of} and becomes {base.wrap(value)}")

    def constant(self, expr: tree.Expr, scope: Scope) -> int:
        """Value of an integer that must be known at compile time."""
        self.expr(expr, scope)
        if expr.const is None or isinstance(expr.const, (bool, str)):
            fail(expr.where, "this must be an integer known at compile time")
        value: int = expr.const
        return value

    def expr(self, e: tree.Expr, scope: Scope) -> Type:
        """Type of an expression. Raises P4Error for what the language forbids."""
        of: Type = self.KINDS[type(e)](self, e, scope)
        e.type = of
        return of

    def coerce(self, e: tree.Expr, to: Type, what: str = "value") -> None:
        """Make a checked expression one of type `to`, by the implicit conversions of P4_16 §8.11.2. Raises P4Error."""
        base = plain(to)
        if e.type == to:
            return
        if e.type == INT and isinstance(base, Bits) and not isinstance(to, EnumType):
            if e.const is None:
                fail(e.where, f"{what} of type int: it must be known at compile time, or have a width, such as bit<32>")
            self._fits(e.const, to, e.where)
            e.const, e.type = base.wrap(e.const), to
        elif isinstance(e.type, EnumType) and e.type.under == to:
            e.const = e.type.values[e.const] if isinstance(e.const, str) else e.const
            e.type = to
        elif isinstance(e, tree.ListExpr) and isinstance(base, (Record, Tuple, Stack)):
            self._fill(e, to, what)
        elif isinstance(e, tree.RecordExpr) and isinstance(base, Record):
            self._fill_named(e, base, what)
        elif isinstance(e, tree.Dots):
            self._fail_dots(e)
        elif isinstance(e, tree.Invalid) and isinstance(base, Record) and base.kind != "struct":
            e.type = to
        elif isinstance(e.type, Object) and isinstance(to, Object) and same_signature(e.type, to):
            pass  # an instance for a constructor: it keeps its own type
        else:
            fail(e.where, f"{what} of type {e.type} where {to} is needed{self._cast_hint(e.type, to)}")

    def filled(self, e: tree.Expr, to: Type, what: str = "value") -> tree.Expr:
        """A checked expression made one of type `to`: the default value in place of `...`. Raises P4Error."""
        if isinstance(e, tree.Dots):
            return default_of(to, e)
        self.coerce(e, to, what)
        return e

    def value_for(self, e: tree.Expr, to: Type, scope: Scope, what: str) -> tree.Expr:
        """The same of an expression not checked yet."""
        if not isinstance(e, tree.Dots):
            self.expr(e, scope)
        return self.filled(e, to, what)

    @staticmethod
    def _fail_dots(e: tree.Dots) -> NoReturn:
        fail(e.where, "`...` stands only for a whole value, or at the end of a list of values")

    @staticmethod
    def _cast_hint(have: Type, to: Type) -> str:
        if isinstance(have, Applied) and to == BOOL:
            return f": write {have.table.name}.apply().hit, or .miss"
        both = isinstance(plain(have), Bits) and isinstance(plain(to), Bits)
        return f": a cast would do, ({to})" if both or isinstance(to, NewType) else ""

    def _fill(self, e: tree.ListExpr, to: Type, what: str) -> None:
        base = plain(to)
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
            fail(e.where, f"{what}: {len(e.items)} values for the {len(parts)} {kind} of {to}")
        for item, part in zip(e.items, parts, strict=False):
            self.coerce(item, part, what)
        e.type = to

    def _fill_named(self, e: tree.RecordExpr, record: Record, what: str) -> None:
        given = dict(e.items)
        if e.dots and set(given) <= set(record.fields):
            e.items += [(name, default_of(field, e.dots)) for name, field in record.fields.items() if name not in given]
            given = dict(e.items)
        if len(given) != len(e.items):
            twice = next(name for name, item in e.items if given[name] is not item)
            fail(e.where, f"{what}: the field {twice} is given twice")
        if set(given) != set(record.fields):
            fail(e.where, f"{what}: the fields of {record} are {', '.join(record.fields)}; given {', '.join(given)}")
        for name, item in e.items:
            self.coerce(item, record.fields[name], what)
        e.type = record

    # ---- leaves

    def _integer(self, e: tree.Integer, _scope: Scope) -> Type:
        if e.width is None:
            e.const = e.value
            return INT
        of = Bits(e.width, e.signed)
        if e.signed and not e.width:
            fail(e.where, "a number of type int<0>: int<N> has at least 1 bit")
        self._fits(e.value, of, e.where)
        e.const = of.wrap(e.value)
        return of

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
        of: Type = e.type
        return of

    def _refused(self, e: tree.Refused, _scope: Scope) -> Type:
        unsupported(e.where, e.what)

    def _dontcare(self, e: tree.DontCare, _scope: Scope) -> Type:
        fail(e.where, "`_` and `default` stand for a value only in key sets")

    def _pathexpression(self, e: tree.PathExpression, scope: Scope) -> Type:
        found = (scope.top() if e.top else scope).find(e.name)
        if found is None:
            undeclared(e.where, e.name, scope)
        e.decl = found
        if isinstance(found, tree.Const):
            e.const = found.value.const
        if isinstance(found, tree.Table):
            return Object("table", found)
        if isinstance(found, tree.Action):
            return Object("action", found)
        of: Type | None = getattr(found, "type", None)
        if of is None:
            kind = "a function" if isinstance(found, (list, tree.Function)) else "a type"
            fail(e.where, f"{e.name} is {kind}, not a value")
        return of

    def _typemember(self, e: tree.TypeMember, scope: Scope) -> Type:
        if e.of is None:
            if e.name not in self.context.errors:
                fail(e.where, f"error has no member {e.name} {known(self.context.errors)}")
            e.const = e.name
            return ERROR
        of = self.types.resolve(e.of, scope)
        if not isinstance(of, EnumType):
            fail(e.where, f"{of}.{e.name}: only enums have members, and {of} is none")
        if e.name not in of.members:
            fail(e.where, f"enum {of} has no member {e.name} {known(of.members)}")
        e.const = e.name
        return of

    # ---- parts

    def _member(self, e: tree.Member, scope: Scope) -> Type:
        of = self.expr(e.base, scope)
        if isinstance(of, Record):
            found = member_type(of, e.name, e.where)
            self._fold_part(e)
            return found
        if isinstance(of, Applied):
            if e.name in ("hit", "miss"):
                return BOOL
            if e.name == "action_run":
                return ActionRun(of.table)
            fail(e.where, f"apply() has no member {e.name} (has: action_run, hit, miss)")
        if isinstance(of, Stack):
            return self._stack_member(e, of)
        if isinstance(of, Object):
            fail(e.where, f"{e.name} of a {of.kind} is a method: call it")
        fail(e.where, f"{of} has no member {e.name}")

    @staticmethod
    def _fold_part(e: tree.Member | tree.Index) -> None:
        """The value of a part of a constant."""
        part = known_part(e)
        if part is not None:
            e.const = part.const

    def _stack_member(self, e: tree.Member, of: Stack) -> Type:
        if e.name != "size" and not of.of_headers:
            fail(e.where, f"an array of {of.element} has no member {e.name} (has: size)")
        if e.name in ("next", "last"):
            if not self.context.in_parser:
                fail(e.where, f"`{e.name}` of a header stack exists only in parsers: use an index")
            return of.element
        if e.name == "size":
            e.const = of.size
            return Bits(32)
        if e.name == "lastIndex":
            if not self.context.in_parser:
                fail(e.where, "`lastIndex` of a header stack exists only in parsers: keep it in the metadata there")
            return Bits(32)
        fail(e.where, f"{of} has no member {e.name} (has: last, lastIndex, next, size)")

    def _index(self, e: tree.Index, scope: Scope) -> Type:
        of, index = self.expr(e.base, scope), self.expr(e.index, scope)
        if isinstance(of, (Stack, Tuple)):
            size = of.size if isinstance(of, Stack) else len(of.items)
            if index != INT and not isinstance(plain(index), Bits):
                fail(e.index.where, f"an index is a number, not a {index}")
            at = e.index.const
            if at is None and index == INT:
                fail(e.index.where, "an index of type int must be known at compile time, or have a width")
            if at is not None and not 0 <= at < size:
                fail(e.index.where, f"index {at} of {of}: 0 to {size - 1} exist")
            if isinstance(of, Tuple) and at is None:
                fail(e.index.where, "the index of a tuple must be known at compile time")
            self._fold_part(e)
            return of.element if isinstance(of, Stack) else of.items[at]
        fail(e.where, f"{of} cannot be indexed: only header stacks, arrays and tuples can")

    def _slice(self, e: tree.Slice, scope: Scope) -> Type:
        of = self.expr(e.base, scope)
        base = plain(of)
        if not isinstance(base, Bits):
            fail(e.where, f"{of} has no bits to slice: only bit<N> and int<N> have")
        width = base.width
        if e.width is not None:
            taken = self.constant(e.width, scope)
            start = self.expr(e.low, scope)
            bits = plain(start)
            if start != INT and not (isinstance(bits, Bits) and not bits.signed):
                fail(e.low.where, f"a slice begins at a bit<N> or a number, not at a {start}")
            if not 0 < taken <= width:
                fail(e.width.where, f"a slice of {taken} bits of {of}: 1 to {width} can be taken")
            if e.low.const is None:
                return Bits(taken)
            e.low = _number(e.low, e.low.const)
            e.high, e.width = _number(e.low, e.low.const + taken - 1), None
        high, low = self.constant(e.high, scope), self.constant(e.low, scope)
        if not 0 <= low <= high < width:
            fail(e.where, f"slice [{high}:{low}] of {of}: needs {width - 1} >= high >= low >= 0")
        if isinstance(e.base, tree.Slice) and e.base.const is None and e.base.width is None:  # x[a:b][c:d]: x[b+c:b+d]
            shift = e.base.low.const
            e.base, e.high, e.low = e.base.base, _number(e.high, high + shift), _number(e.low, low + shift)
        if isinstance(e.base.const, int):
            e.const = e.base.const >> low & (1 << high - low + 1) - 1
        return Bits(high - low + 1)

    # ---- operators

    def _unary(self, e: tree.Unary, scope: Scope) -> Type:
        of = self.expr(e.operand, scope)
        if e.op == "!":
            self._need(e.operand, BOOL, e.op)
        elif not isinstance(plain(of), Bits) and of != INT:
            fail(e.where, f"{e.op} needs a number, not {of}")
        elif e.op == "~" and of == INT:
            fail(e.where, "~ needs a number with a width, such as 8w1")
        if e.operand.const is not None:
            e.const = fold_unary(e.op, e.operand.const, of)
        return of

    def _need(self, e: tree.Expr, of: Type, op: str) -> None:
        if e.type != of:
            hint = f": write {e.type.table.name}.apply().hit, or .miss" if isinstance(e.type, Applied) else ""
            fail(e.where, f"{op} needs {of}, not {e.type}{hint}")

    def _binary(self, e: tree.Binary, scope: Scope) -> Type:
        left, right = self.expr(e.left, scope), self.expr(e.right, scope)
        if e.op not in ("==", "!="):  # members of serializable enums are computed with as the numbers they are
            for one in (e.left, e.right):
                if isinstance(one.type, EnumType) and one.type.under:
                    self.coerce(one, one.type.under)
            left, right = e.left.type, e.right.type
        if e.op in ("&&", "||"):
            self._need(e.left, BOOL, e.op)
            self._need(e.right, BOOL, e.op)
            result: Type = BOOL
        elif e.op in ("<<", ">>"):
            result = self._shift(e)
        elif e.op == "++":
            result = self._concat(e)
        else:
            self._unify(e, left, right)
            left = e.left.type
            if e.op in ("==", "!="):
                result = self._equality(e)
            elif e.op in _ORDER:
                self._numeric(e, left)
                result = BOOL
            else:
                self._numeric(e, left)
                result = left
        if e.left.const is not None and e.right.const is not None:
            kinds = (plain(e.left.type), plain(e.right.type), plain(result))
            e.const = fold_binary(e.op, _plain_const(e.left), _plain_const(e.right), kinds, e.where)
        elif e.op in ("==", "!=") and all_known(e.left) and all_known(e.right):
            e.const = (value_key(e.left) == value_key(e.right)) == (e.op == "==")
        elif e.op in ("/", "%") and e.right.const == 0:
            fail(e.right.where, f"{e.op} by 0 has no result")
        elif e.op in ("/", "%") and (not isinstance(plain(result), Bits) or number(result).signed):
            fail(e.where, f"{e.op} needs bit<N>, or numbers known at compile time, not {result}")
        return result

    def _unify(self, e: tree.Binary, left: Type, right: Type) -> None:
        """Bring the operands of a symmetric operator to one type."""
        for one in (e.left, e.right):
            if isinstance(one.type, EnumType) and one.type.under and (left != right or e.op not in ("==", "!=")):
                self.coerce(one, one.type.under, f"operand of {e.op}")
        left, right = e.left.type, e.right.type
        if left == right:
            return
        for one, to in ((e.left, right), (e.right, left)):
            listed = isinstance(one, (tree.ListExpr, tree.RecordExpr, tree.Invalid))
            enum = isinstance(one.type, EnumType) and one.type.under == to
            if (one.type == INT and isinstance(to, Bits)) or enum or listed:
                self.coerce(one, to, f"operand of {e.op}")
                return
        fail(e.where, f"{left} {e.op} {right}: both sides must have one type{self._cast_hint(left, right)}")

    def _equality(self, e: tree.Binary) -> Type:
        if isinstance(e.left.type, (Object, Applied, ActionRun)):
            fail(e.where, f"{e.left.type} cannot be compared")
        return BOOL

    def _numeric(self, e: tree.Binary, of: Type) -> None:
        if not isinstance(of, Bits) and of != INT:
            fail(e.where, f"{e.op} needs numbers, not {of}")
        if of == INT and e.op in ("|+|", "|-|"):
            fail(e.where, f"{e.op} needs numbers with a width, such as 8w1")

    def _shift(self, e: tree.Binary) -> Type:
        left: Type = e.left.type
        right: Type = e.right.type
        if not isinstance(left, Bits) and left != INT:
            fail(e.where, f"{e.op} needs a number on the left, not {left}")
        if right == INT:
            if e.right.const < 0:
                fail(e.right.where, f"a shift by {e.right.const}: must not be negative")
        elif not isinstance(right, Bits) or right.signed:
            cast = f": a cast would do, ({plain(right)})" if isinstance(right, NewType) else ""
            fail(e.right.where, f"{e.op} needs bit<N> or a constant on the right, not {right}{cast}")
        if left == INT and e.right.const is None:
            fail(e.left.where, f"{e.op} by a variable needs a width on the left, such as 8w1")
        return left

    def _concat(self, e: tree.Binary) -> Type:
        if e.left.type == e.right.type == STRING:
            return STRING
        for one in (e.left, e.right):
            if not isinstance(plain(one.type), Bits):
                fail(one.where, f"++ needs numbers with a width, such as 8w1, or two strings, not {one.type}")
        left, right = number(e.left.type), number(e.right.type)
        return Bits(left.width + right.width, left.signed)

    def _ternary(self, e: tree.Ternary, scope: Scope) -> Type:
        self.expr(e.condition, scope)
        self._need(e.condition, BOOL, "? :")
        left, right = self.expr(e.then, scope), self.expr(e.other, scope)
        if left == right == INT and e.condition.const is None:
            fail(e.where, "? : needs a width for one of its values, such as 8w1, when the condition is not constant")
        if left != right:
            if left == INT:
                self.coerce(e.then, right, "value")
            else:
                self.coerce(e.other, left, "value")
        if e.condition.const is not None:
            e.const = (e.then if e.condition.const else e.other).const
        of: Type = e.then.type
        return of

    def _cast(self, e: tree.Cast, scope: Scope) -> Type:
        to = self.types.resolve(e.to, scope)
        base = plain(to)
        if isinstance(base, Bits) and self._is_run_time_int(e.operand, scope):
            e.operand = self._modular(e.operand, base, scope)
            return to
        of = self.expr(e.operand, scope)
        if isinstance(e.operand, (tree.ListExpr, tree.RecordExpr, tree.Invalid)):
            self.coerce(e.operand, to, "cast")
            return to
        if not self._can_cast(plain(of), plain(to)):
            fail(e.where, f"{of} cannot be cast to {to}{self._detour(plain(of), plain(to))}")
        value = e.operand.const
        if isinstance(of, EnumType) and of.under and isinstance(value, str):
            value = of.values[value]
        if to == INT and value is None:
            fail(
                e.where,
                f"{of} as int: the value must be known at compile time, but in sums, differences and products that are "
                "cast to a width at once",
            )
        if of == INT and plain(to) == BOOL and value not in (0, 1):
            fail(e.where, f"{value} as bool: 0 and 1 are, as false and true")
        if value is not None:
            e.const = fold_cast(value, plain(to)) if isinstance(value, (int, bool)) else value
            if isinstance(to, EnumType) and not isinstance(e.const, str):
                e.const = next((name for name, number in to.values.items() if number == e.const), e.const)
        return to

    def _is_run_time_int(self, e: tree.Expr, scope: Scope) -> bool:
        """Is a value known only at run time taken as an int, in sums, differences and products at most?"""
        if isinstance(e, tree.Binary) and e.op in ("+", "-", "*"):
            return self._is_run_time_int(e.left, scope) or self._is_run_time_int(e.right, scope)
        if isinstance(e, tree.Unary) and e.op in ("+", "-"):
            return self._is_run_time_int(e.operand, scope)
        if not isinstance(e, tree.Cast) or self.types.resolve(e.to, scope) != INT:
            return False
        return isinstance(plain(self.expr(e.operand, scope)), Bits) and e.operand.const is None

    def _modular(self, e: tree.Expr, to: Bits, scope: Scope) -> tree.Expr:
        """An int for a cast to `to`, checked and computed with that many bits: the lower bits are those of the int."""
        out: tree.Expr
        if isinstance(e, tree.Binary) and e.op in ("+", "-", "*"):
            out = tree.Binary(e.where, self._modular(e.left, to, scope), e.op, self._modular(e.right, to, scope))
        elif isinstance(e, tree.Unary) and e.op in ("+", "-"):
            out = tree.Unary(e.where, e.op, self._modular(e.operand, to, scope))
        elif isinstance(e, tree.Cast) and self.types.resolve(e.to, scope) == INT:
            if e.operand.type is None:
                self.expr(e.operand, scope)
            if not isinstance(plain(e.operand.type), Bits) and e.operand.type != INT:
                fail(e.where, f"{e.operand.type} cannot be cast to int")
            out = tree.Cast(e.where, e.to, e.operand)
            out.const = None if e.operand.const is None else to.wrap(e.operand.const)
        else:
            if self.expr(e, scope) != INT:
                fail(e.where, f"an int is needed here, not a {e.type}: cast it to int, too")
            out = _number(e, to.wrap(e.const))
        out.type = to
        return out

    @staticmethod
    def _can_cast(of: Type, to: Type) -> bool:
        if of == to:
            return True
        if isinstance(of, Bits) and isinstance(to, Bits):
            return of.signed == to.signed or of.width == to.width
        if isinstance(of, Bits) and to == INT:
            return True
        if of == INT:
            return isinstance(to, Bits) or to == BOOL
        one_bit = Bits(1)
        return (of == BOOL and to == one_bit) or (of == one_bit and to == BOOL)

    @staticmethod
    def _detour(of: Type, to: Type) -> str:
        if isinstance(of, Bits) and isinstance(to, Bits):
            return f": change the width first, ({to})({Bits(to.width, of.signed)})"
        if to == BOOL:
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
        fail(e.where, "an object can be made only by a declaration or as an argument of a package")

    # ---- writing

    def writable(self, e: tree.Expr, what: str) -> None:
        """Raise P4Error unless a checked expression can be written to."""
        while isinstance(e, (tree.Member, tree.Slice, tree.Index)):
            e = e.base
        if not isinstance(e, tree.PathExpression):
            fail(e.where, f"{what}: this is not something that can be written to")
        decl: Any = e.decl
        if isinstance(decl, tree.Var):
            return
        if isinstance(decl, tree.Param):
            if decl.direction in ("out", "inout"):
                return
            way = f"has direction `{decl.direction}`" if decl.direction else "has no direction"
            fail(e.where, f"{what}: parameter {e.name} {way}; only `out` and `inout` can be written")
        fail(e.where, f"{what}: {e.name} is {_called(decl)}, which cannot be written to")

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
        tree.Refused: _refused,
    }
    """All but masks and ranges: the grammar has these in key sets only, whose checker takes them apart."""


def _plain_const(e: tree.Expr) -> Any:
    """The constant of an expression; of a member of a serializable enum its value, which two members may share."""
    named = isinstance(e.type, EnumType) and e.type.under and isinstance(e.const, str)
    return e.type.values[e.const] if named else e.const


def all_known(e: tree.Expr) -> bool:
    """Is it a list of which every leaf is a constant?"""
    whole = known_list(e)
    if whole is None:
        return e.const is not None
    items = whole.items if isinstance(whole, tree.ListExpr) else [item for _, item in whole.items]
    return all(map(all_known, items))


def _number(e: tree.Expr, value: int) -> tree.Integer:
    """A number known at compile time, in the place of an expression."""
    out = tree.Integer(e.where, value, None, False)
    out.const, out.type = value, INT
    return out


def default_of(of: Type, e: tree.Expr) -> tree.Expr:
    """An expression for the default value of a type."""
    base = plain(of)
    out: tree.Expr = tree.Default(e.where)
    if isinstance(base, Record) and base.kind != "struct":
        out = tree.Invalid(e.where)
    elif isinstance(base, (Record, Tuple)):
        parts = base.fields.values() if isinstance(base, Record) else base.items
        out = tree.ListExpr(e.where, [default_of(part, e) for part in parts])
    elif base == BOOL:
        out.const = False
    elif base == ERROR:
        out.const = "NoError"
    elif isinstance(of, EnumType):
        zero = 0 if of.under else of.members[0]
        out.const = next((name for name in of.members if of.under and of.values[name] == 0), zero)
    elif isinstance(base, Bits):
        out.const = 0
    elif not isinstance(base, (Stack, Varbit)):
        fail(e.where, f"{of} has no default value")
    out.type = of
    return out


def example_of(of: Type, node: tree.Node) -> tree.Expr:
    """Some value of a type, for a constructor that has not been called: 1 where that is a value."""
    if of == STRING:
        out: tree.Expr = tree.String(node.where, "")
        out.const, out.type = "", of
    elif of == INT:
        out = _number(tree.Dots(node.where), 1)
    else:
        out = default_of(of, tree.Dots(node.where))
        if isinstance(plain(of), Bits) and isinstance(out.const, int):
            out.const = number(of).wrap(1)
    return out


def known_list(e: tree.Expr) -> tree.ListExpr | tree.RecordExpr | None:
    """The list that gives a struct, header, tuple or array its value at compile time; None when there is none."""
    if isinstance(e, (tree.ListExpr, tree.RecordExpr)):
        return e
    if isinstance(e, tree.PathExpression) and isinstance(e.decl, tree.Const):
        return known_list(e.decl.value)
    if isinstance(e, tree.Cast):
        return known_list(e.operand)
    if isinstance(e, tree.Ternary) and e.condition.const is not None:
        return known_list(e.then if e.condition.const else e.other)
    part = known_part(e)
    return known_list(part) if part is not None else None


def known_part(e: tree.Expr) -> tree.Expr | None:
    """The expression that gives `c.field` or `c[1]` its value at compile time; None when there is none."""
    whole = known_list(e.base) if isinstance(e, (tree.Member, tree.Index)) else None
    if isinstance(whole, tree.RecordExpr):
        return dict(whole.items).get(e.name) if isinstance(e, tree.Member) else None
    if isinstance(whole, tree.ListExpr) and isinstance(e, tree.Member) and isinstance(form(whole.type), Record):
        names = list(form(whole.type).fields)
        return whole.items[names.index(e.name)] if e.name in names and len(names) == len(whole.items) else None
    if isinstance(whole, tree.ListExpr) and isinstance(e, tree.Index) and isinstance(e.index.const, int):
        return whole.items[e.index.const] if e.index.const < len(whole.items) else None
    return None


def value_key(e: tree.Expr) -> Any:
    """What tells a checked value known at compile time from others of its type; None: it is not known."""
    if e.const is not None:
        return _plain_const(e), isinstance(e.const, bool)
    if isinstance(e, (tree.Invalid, tree.Default)):
        return (type(e).__name__,)
    whole = known_list(e)
    if whole is None:
        return None
    if isinstance(whole, tree.RecordExpr):
        given = dict(whole.items)
        names = form(whole.type).fields if isinstance(form(whole.type), Record) else sorted(given)
        parts = tuple(value_key(given[name]) for name in names)
    else:
        parts = tuple(value_key(one) for one in whole.items)
    return None if None in parts else parts


_CALLED = {
    tree.Const: "a constant",
    tree.Instance: "an instance",
    tree.Table: "a table",
    tree.Action: "an action",
}


def _called(decl: Any) -> str:
    """What a declaration is, for a message that it cannot be written to."""
    return _CALLED.get(type(decl), "no variable")
