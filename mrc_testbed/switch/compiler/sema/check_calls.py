"""What a call calls, and whether its arguments fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mrc_testbed.switch.compiler.errors import Location, count, fail, known, unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.check_context import CheckContext
from mrc_testbed.switch.compiler.sema.check_copies import CopyMaker, numbers_of
from mrc_testbed.switch.compiler.sema.check_expr import ExpressionChecker, all_known
from mrc_testbed.switch.compiler.sema.check_types import TypeResolver
from mrc_testbed.switch.compiler.sema.scope import Scope, undeclared
from mrc_testbed.switch.compiler.sema.types import (
    BOOL,
    DONTCARE,
    INT,
    VOID,
    Applied,
    Bits,
    EnumType,
    Object,
    Record,
    Stack,
    Tuple,
    Type,
    Varbit,
    Variable,
    plain,
    substitute,
    width_of,
)

HEADER_METHODS = (
    "isValid",
    "setValid",
    "setInvalid",
    "minSizeInBits",
    "minSizeInBytes",
    "maxSizeInBits",
    "maxSizeInBytes",
)


@dataclass(slots=True)
class Callee:
    """What a Call runs. `kind`: table, control, action, header, method (of an extern instance), function (extern)."""

    kind: str
    decl: Any
    name: str
    base: tree.Expr | None = None
    """Of methods: the instance or header before the dot."""
    args: list[tuple[tree.Param, tree.Expr]] = field(default_factory=list)
    bound: dict[str, Type] = field(default_factory=dict)
    """Types of the type parameters."""


@dataclass(eq=False, repr=False)
class CallChecker:
    """Checks calls: sets `callee` of each Call."""

    context: CheckContext
    types: TypeResolver
    expressions: ExpressionChecker
    copies: CopyMaker
    numbered: dict[int, Object] = field(default_factory=dict, init=False)
    """Types as declared of the instances, by id(), whose parameters of type int have got their constants."""

    def check(self, e: tree.Call, scope: Scope) -> Type:
        """Type of what a call gives; sets what it calls."""
        if isinstance(e.target, tree.Member):
            return self._method_call(e, e.target, scope)
        if not isinstance(e.target, tree.PathExpression):
            fail(e.where, "this cannot be called")
        found = (scope.top() if e.target.top else scope).find(e.target.name)
        if found is None:
            undeclared(e.where, e.target.name, scope)
        if isinstance(found, list) and isinstance(found[0], tree.Function):
            fits = [one for one in found if len(one.params) == len(e.args)]
            found = fits[0] if fits else found[0]
        if isinstance(found, (tree.Action, tree.Function)) and numbers_of(found.params):
            found = self.with_numbers(found, e, scope)
        if isinstance(found, tree.Action) and (self.context.in_parser or self.context.in_function):
            where = "a parser" if self.context.in_parser else "a function"
            fail(e.where, f"{where} cannot call an action, {found.name}: make it a function")
        if isinstance(found, tree.Action):
            return self.finish(e, Callee("action", found, found.name), found.params, VOID, scope)
        if isinstance(found, tree.Function) and found.type_params:
            found = self._inferred(e, found, scope)
        if isinstance(found, tree.Function):
            result = self.finish(e, Callee("user", found, found.name), found.params, found.type, scope)
            for param, arg in e.callee.args:
                if not param.direction and is_data(param.type) and not all_known(arg):
                    what = f"argument {param.name} of {found.name}"
                    fail(
                        arg.where,
                        f"{what} must be known at compile time, for {param.name} has no direction: write `in`",
                    )
            return result
        if isinstance(found, list):
            return self._overloaded(e, Callee("function", None, e.target.name), found, scope)
        fail(e.where, f"{e.target.name} cannot be called: it is no action and no function")

    def with_numbers(self, found: Any, e: tree.Call, scope: Scope) -> Any:
        """`found` for the constants that this call gives its parameters of type int, which leave the call with that."""
        values, rest = [], []
        numbers = list(map(id, numbers_of(found.params)))
        for param, arg in pair(found.name, found.params, e.args, e.where):
            if id(param) in numbers:
                self.expressions.expr(arg, scope)
                self.expressions.coerce(arg, INT, f"argument {param.name} of {found.name}")
                if arg.const is None:
                    fail(
                        arg.where, f"argument {param.name} of {found.name} is an int: it must be known at compile time"
                    )
                values.append(arg.const)
            elif arg is not param.default:
                rest.append(tree.Arg(arg.where, param.name, arg))
        e.args = rest
        return self.copies.with_numbers(found, tuple(values))

    def _inferred(self, e: tree.Call, found: tree.Function, scope: Scope) -> tree.Function:
        """A generic function for the type arguments given, or those that the arguments show."""
        bound: dict[str, Type] = {}
        if e.type_args:
            if len(e.type_args) != len(found.type_params):
                wanted = count(len(found.type_params), "type argument")
                fail(e.where, f"{found.name} takes {wanted}, not {len(e.type_args)}")
            bound = dict(
                zip(found.type_params, (self.types.resolve(type_arg, scope) for type_arg in e.type_args), strict=True)
            )
        else:
            inner = Scope(self.context.top)
            for name in found.type_params:
                inner.names[name] = Variable(name)
            for param, arg in pair(found.name, found.params, e.args, e.where):
                self._bind(self.types.resolve(param.type_node, inner), self.expressions.expr(arg, scope), bound)
        for name in found.type_params:
            if bound.get(name) in (None, INT):
                fail(e.where, f"{found.name}: cannot tell type {name}: write {found.name}<...>(...), or give a width")
        copy: tree.Function = self.copies.with_types(found, tuple(bound[name] for name in found.type_params))
        return copy

    def _method_call(self, e: tree.Call, target: tree.Member, scope: Scope) -> Type:
        if target.name == "apply" and isinstance(target.base, tree.Call):
            fail(e.where, "apply() of a result: only tables and controls can be applied")
        of = self.expressions.expr(target.base, scope)
        if isinstance(of, Record) and of.kind != "struct":
            return self._header_call(e, target, of, scope)
        if isinstance(of, Stack):
            return self._stack_call(e, target, scope)
        if isinstance(of, Object):
            return self._object_call(e, target, of, scope)
        fail(e.where, f"{of} has no method {target.name}")

    def _stack_call(self, e: tree.Call, target: tree.Member, scope: Scope) -> Type:
        of = target.base.type
        if not of.of_headers:
            fail(target.where, f"an array of {of.element} has no methods: header stacks have push_front and pop_front")
        if target.name not in ("push_front", "pop_front"):
            fail(target.where, f"a header stack has no method {target.name} (has: pop_front, push_front)")
        if len(e.args) != 1:
            fail(e.where, f"{target.name} takes 1 argument, not {len(e.args)}")
        if self.expressions.constant(e.args[0].value, scope) < 0:
            fail(e.args[0].where, f"{target.name} needs a count of at least 0")
        self.expressions.writable(target.base, target.name)
        e.callee = Callee("stack", None, target.name, target.base)
        return VOID

    def _header_call(self, e: tree.Call, target: tree.Member, of: Record, scope: Scope) -> Type:
        if target.name not in HEADER_METHODS:
            fail(target.where, f"{of.kind} {of} has no method {target.name} {known(HEADER_METHODS)}")
        if target.name.startswith(("min", "max")):
            return self._size_call(e, target, of, scope)
        if of.kind == "header_union" and target.name != "isValid":
            fail(e.where, f"{target.name} of a header_union: set a member of it")
        if target.name != "isValid":
            self.expressions.writable(target.base, target.name)
        result = BOOL if target.name == "isValid" else VOID
        return self.finish(e, Callee("header", None, target.name, target.base), [], result, scope)

    def _size_call(self, e: tree.Call, target: tree.Member, of: Record, scope: Scope) -> Type:
        """minSizeInBits and its like: known at compile time."""
        self.finish(e, Callee("header", None, target.name, target.base), [], VOID, scope)
        bits = size_in_bits(of, target.name.startswith("max"))
        e.const = (bits + 7) // 8 if target.name.endswith("Bytes") else bits
        return INT

    def _object_call(self, e: tree.Call, target: tree.Member, of: Object, scope: Scope) -> Type:
        if of.kind == "table":
            if target.name != "apply":
                fail(target.where, f"a table has no method {target.name} (has: apply)")
            self.finish(e, Callee("table", of.decl, "apply", target.base), [], VOID, scope)
            return Applied(of.decl)
        if of.kind in ("control", "parser"):
            if target.name != "apply":
                fail(target.where, f"a {of.kind} has no method {target.name} (has: apply)")
            if of.kind == "parser" and not self.context.in_parser:
                fail(e.where, "a parser can be applied only in a parser")
            if of.kind == "control" and self.context.in_parser:
                fail(e.where, "a control cannot be applied in a parser")
            of = self._with_numbers_inside(e, target.base, of, scope)
            return self.finish(e, Callee(of.kind, of.decl, "apply", target.base), of.decl.params, VOID, scope)
        if of.kind != "extern":
            fail(e.where, f"a {of.kind} has no methods")
        methods = [method for method in of.decl.methods if method.name == target.name]
        if not methods:
            fail(target.where, f"extern {of} has no method {target.name} {known(m.name for m in of.decl.methods)}")
        callee = Callee("method", None, target.name, target.base)
        callee.bound = dict(zip(of.decl.type_params, of.args, strict=False))
        return self._overloaded(e, callee, methods, scope)

    def _with_numbers_inside(self, e: tree.Call, base: tree.Expr, of: Object, scope: Scope) -> Object:
        """The type of the instance `base` for the constants that this call gives its parameters of type int."""
        made = base.decl if isinstance(base, tree.PathExpression) else None
        declared = self.numbered.get(id(made), of)
        if not numbers_of(declared.decl.params):
            return of
        if not isinstance(made, tree.Instance):
            unsupported(e.where, f"{of} as a constructor parameter, with its parameters of type int,")
        fixed = Object(of.kind, self.with_numbers(declared.decl, e, scope))
        if id(made) in self.numbered and of != fixed:
            fail(e.where, f"{made.name} is applied with other constants for its int parameters: declare a second one")
        self.numbered[id(made)] = declared
        made.type = base.type = fixed
        return fixed

    def _overloaded(self, e: tree.Call, callee: Callee, methods: list[tree.Method], scope: Scope) -> Type:
        """Choose among functions of one name by the number of arguments, as the language does."""
        fits = [one for one in methods if len(one.params) == len(e.args)]
        if not fits:
            counts = " or ".join(count(len(one.params), "argument") for one in methods)
            fail(e.where, f"{callee.name} takes {counts}, not {len(e.args)}")
        if callee.kind == "function" and callee.name == "verify" and not self.context.in_parser:
            fail(e.where, "verify stands only in parsers: elsewhere, write if (...) { ... }")
        method = fits[0]
        callee.decl = method
        if e.type_args:
            if len(e.type_args) != len(method.type_params):
                wanted = count(len(method.type_params), "type argument")
                fail(e.where, f"{callee.name} takes {wanted}, not {len(e.type_args)}")
            given = [self.types.resolve(type_arg, scope) for type_arg in e.type_args]
            callee.bound.update(
                (name, of) for name, of in zip(method.type_params, given, strict=False) if of != DONTCARE
            )
        inner = Scope(self.context.top)
        for name in (*method.type_params, *callee.bound):
            inner.names[name] = Variable(name)
        self.parameters(method.params, inner)
        result = self.types.resolve(method.result, inner)
        self.finish(e, callee, method.params, VOID, scope)
        if callee.name == "static_assert" and callee.kind == "function":
            self._static_assert(e)
        return substitute(result, callee.bound)

    @staticmethod
    def _static_assert(e: tree.Call) -> None:
        check, *message = (arg.const for _, arg in e.callee.args)
        if check is None:
            fail(e.where, "static_assert: the condition is not known at compile time")
        if not check:
            fail(e.where, f"static_assert failed{f': {message[0]}' if message else ''}")
        e.const = True

    def parameters(self, params: list[tree.Param], scope: Scope) -> None:
        """Resolve the types of parameters."""
        for param in params:
            param.type = self.types.resolve(param.type_node, scope)

    def defaults(self, params: list[tree.Param], scope: Scope) -> None:
        """Check the default values of parameters where these are declared."""
        for param in params:
            if param.default is not None and param.direction in ("out", "inout"):
                fail(param.where, f"parameter {param.name} is `{param.direction}` and cannot have a default value")
            if param.default is not None:
                param.default = self.expressions.value_for(
                    param.default, param.type, scope, f"default value of {param.name}"
                )

    def finish(self, e: tree.Call, callee: Callee, params: list[tree.Param], result: Type, scope: Scope) -> Type:
        """Check the arguments; sets what is called, and returns `result`."""
        self.arguments(callee, params, e.args, e.where, scope)
        e.callee = callee
        return result

    def arguments(
        self, callee: Callee, params: list[tree.Param], args: list[tree.Arg], where: Location, scope: Scope
    ) -> None:
        """Match arguments with parameters, by position or by name, and check each. Fills callee.args."""
        pairs = pair(callee.name, params, args, where)
        for param, arg in pairs:
            if isinstance(arg, tree.DontCare):
                if param.direction != "out":
                    fail(arg.where, f"argument {param.name} of {callee.name}: `_` stands only for an `out` argument")
                continue
            if arg is not param.default:
                self.expressions.expr(arg, scope)
            self._bind(param.type, arg.type, callee.bound)
        for param, arg in pairs:
            wanted = substitute(param.type, callee.bound)
            what = f"argument {param.name} of {callee.name}"
            if isinstance(arg, tree.DontCare):
                if isinstance(wanted, Variable):
                    fail(arg.where, f"{what}: `_` needs the type in <...>")
                arg.type = wanted
            elif param.direction in ("out", "inout"):
                if arg.type != wanted and not isinstance(wanted, Variable):
                    fail(arg.where, f"{what} of type {arg.type} where {wanted} is needed")
                self.expressions.writable(arg, what)
            elif not isinstance(wanted, Variable) and wanted != DONTCARE:
                self.expressions.coerce(arg, wanted, what)
            if callee.kind == "action":
                no_table_in(arg, param, callee.name)
        callee.args = pairs

    def _bind(self, param: Type, arg: Type, bound: dict[str, Type]) -> None:
        """Learn the type parameters in `param` from an argument's type."""
        if isinstance(param, Variable):
            if bound.get(param.name) in (None, INT):
                bound[param.name] = arg
        elif (isinstance(param, Record) and isinstance(arg, Record) and param.decl is arg.decl) or (
            isinstance(param, Object) and isinstance(arg, Object)
        ):
            for one, other in zip(param.args, arg.args, strict=False):
                self._bind(one, other, bound)


def no_table_in(arg: tree.Expr, param: tree.Param, action: str) -> None:
    """Raise P4Error when an argument of an action applies a table."""
    for one in tree.walk(arg):
        if isinstance(one, tree.Call) and one.callee is not None and one.callee.kind == "table":
            what = f"argument {param.name} of action {action} applies table {one.callee.decl.name}"
            fail(one.where, f"{what}: apply it before, and keep what it gives in a variable")


def pair(
    name: str, params: list[tree.Param], args: list[tree.Arg], where: Location
) -> list[tuple[tree.Param, tree.Expr]]:
    """(parameter, argument) in the order of the parameters. Raises P4Error for too many, too few, unknown."""
    named = [arg for arg in args if arg.name is not None]
    if named and len(named) != len(args):
        fail(where, f"{name}: name all arguments or none")
    if named:
        values = {one.name: one.value for one in named}
        for at, one in enumerate(named):
            if one.name in {other.name for other in named[:at]}:
                fail(one.where, f"{name}: the argument {one.name} is given twice")
            if one.name not in {p.name for p in params}:
                fail(one.where, f"{name} has no parameter {one.name} {known(p.name for p in params)}")
    else:
        values = {p.name: a.value for p, a in zip(params, args, strict=False)}
    missing = [p.name for p in params if p.name not in values and p.default is None]
    if len(args) > len(params) or missing:
        listed = ", ".join(p.name for p in params) or "none"
        fail(where, f"{name} takes {count(len(params), 'argument')} ({listed}), not {len(args)}")
    given = ((p, values.get(p.name, p.default)) for p in params)
    return [(param, value) for param, value in given if value is not None]


def data_fields(e: tree.Expr) -> list[tuple[tree.Expr | None, Type]]:
    """The leaves of the `data` of a hash or checksum, in order: (expression or None for a part, type)."""
    if isinstance(e, tree.ListExpr):
        return [leaf for item in e.items for leaf in data_fields(item)]
    if isinstance(e, tree.RecordExpr):
        return [leaf for _, item in e.items for leaf in data_fields(item)]
    return [(e, e.type)]


def size_in_bits(of: Type, most: bool) -> int:
    """Smallest or largest number of bits that a header, union, stack or field takes in a packet."""
    base = plain(of)
    if isinstance(base, Varbit):
        return base.width if most else 0
    if isinstance(base, Stack):
        return base.size * size_in_bits(base.element, most)
    if isinstance(base, Record):
        sizes = [size_in_bits(one, most) for one in base.fields.values()]
        if base.kind == "header_union":
            return (max if most else min)(sizes, default=0)
        return sum(sizes)
    return width_of(of) or 0


def is_data(of: Type) -> bool:
    """Can a value be laid out as bits?"""
    base = plain(of)
    if isinstance(base, Record):
        return base.kind != "header_union" and all(is_data(one) for one in base.fields.values())
    if isinstance(base, Tuple):
        return all(is_data(one) for one in base.items)
    if isinstance(base, Stack):
        return not base.of_headers and is_data(base.element)
    return isinstance(base, (Bits, Varbit)) or base == BOOL or (isinstance(base, EnumType) and base.under is not None)
