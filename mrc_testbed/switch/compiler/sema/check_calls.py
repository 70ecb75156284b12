"""Resolves the callee of a call, and checks its arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mrc_testbed.switch.compiler.errors import Location, count, fail, known_names, raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.check_context import CheckContext
from mrc_testbed.switch.compiler.sema.check_copies import CopyMaker, numbers_of
from mrc_testbed.switch.compiler.sema.check_expr import ExpressionChecker, all_known
from mrc_testbed.switch.compiler.sema.check_types import TypeResolver
from mrc_testbed.switch.compiler.sema.scope import Scope, fail_undeclared
from mrc_testbed.switch.compiler.sema.types import (
    BOOL,
    DONTCARE,
    INT,
    VOID,
    ApplyResult,
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

SIZE_METHODS = ("minSizeInBits", "minSizeInBytes", "maxSizeInBits", "maxSizeInBytes")
"""Methods of all types and values that have a width."""
HEADER_METHODS = ("isValid", "setValid", "setInvalid", *SIZE_METHODS)


@dataclass(slots=True)
class Callee:
    """Callee of a Call.

    `kind`: table, control, action, header, size, method (of an extern instance), function (extern).
    """

    kind: str
    decl: Any
    name: str
    base: tree.Expr | None = None
    """Instance or header before the dot of a method call; None for functions."""
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
    types_before_numbers: dict[int, Object] = field(default_factory=dict, init=False)
    """Types as declared of the instances, by id(), whose parameters of type int have got their constants."""

    def check(self, e: tree.Call, scope: Scope) -> Type:
        """Type of what a call gives; sets what it calls."""
        if isinstance(e.target, tree.Member):
            return self._method_call(e, e.target, scope)
        if isinstance(e.target, tree.TypeMember) and e.target.enum_type and e.target.name in SIZE_METHODS:
            return self._size_call(e, e.target, self.types.resolve(e.target.enum_type, scope))
        if not isinstance(e.target, tree.PathExpression):
            fail(e.location, "this cannot be called")
        declaration = (scope.top() if e.target.top else scope).find(e.target.name)
        if declaration is None:
            fail_undeclared(e.location, e.target.name, scope)
        if isinstance(declaration, list) and isinstance(declaration[0], tree.Function):
            matching = [function for function in declaration if len(function.params) == len(e.args)]
            declaration = matching[0] if matching else declaration[0]
        # An int parameter is a constant in the body, so each set of constants needs a checked copy.
        if isinstance(declaration, (tree.Action, tree.Function)) and numbers_of(declaration.params):
            declaration = self.with_numbers(declaration, e, scope)
        if isinstance(declaration, tree.Action) and (self.context.in_parser or self.context.in_function):
            caller = "a parser" if self.context.in_parser else "a function"
            fail(e.location, f"{caller} cannot call an action, {declaration.name}: make it a function")
        if isinstance(declaration, tree.Action):
            return self.finish(e, Callee("action", declaration, declaration.name), declaration.params, VOID, scope)
        if isinstance(declaration, tree.Function) and declaration.type_params:
            declaration = self._infer_types(e, declaration, scope)
        if isinstance(declaration, tree.Function):
            result = self.finish(
                e, Callee("user", declaration, declaration.name), declaration.params, declaration.type, scope
            )
            for param, arg in e.callee.args:
                if not param.direction and is_data(param.type) and not all_known(arg):
                    description = f"argument {param.name} of {declaration.name}"
                    fail(
                        arg.location,
                        f"{description} must be known at compile time, for {param.name} has no direction: write `in`",
                    )
            return result
        if isinstance(declaration, list):
            return self._resolve_overload(e, Callee("function", None, e.target.name), declaration, scope)
        fail(e.location, f"{e.target.name} cannot be called: it is no action and no function")

    def with_numbers(self, declaration: Any, e: tree.Call, scope: Scope) -> Any:
        """Return a copy of the declaration for this call's constants for int parameters.

        These arguments leave the call.
        """
        values, other_args = [], []
        numbers = list(map(id, numbers_of(declaration.params)))
        for param, arg in pair(declaration.name, declaration.params, e.args, e.location):
            if id(param) in numbers:
                self.expressions.expr(arg, scope)
                self.expressions.coerce(arg, INT, f"argument {param.name} of {declaration.name}")
                if arg.const is None:
                    fail(
                        arg.location,
                        f"argument {param.name} of {declaration.name} is an int: it must be known at compile time",
                    )
                values.append(arg.const)
            elif arg is not param.default:
                other_args.append(tree.Arg(arg.location, param.name, arg))
        e.args = other_args
        return self.copies.with_numbers(declaration, tuple(values))

    def _infer_types(self, e: tree.Call, function: tree.Function, scope: Scope) -> tree.Function:
        """A generic function for the type arguments given, or those that the arguments show."""
        bound: dict[str, Type] = {}
        if e.type_args:
            if len(e.type_args) != len(function.type_params):
                type_count = count(len(function.type_params), "type argument")
                fail(e.location, f"{function.name} takes {type_count}, not {len(e.type_args)}")
            bound = dict(
                zip(
                    function.type_params, (self.types.resolve(type_arg, scope) for type_arg in e.type_args), strict=True
                )
            )
        else:
            inner = Scope(self.context.top)
            for name in function.type_params:
                inner.names[name] = Variable(name)
            for param, arg in pair(function.name, function.params, e.args, e.location):
                self._bind(self.types.resolve(param.type_node, inner), self.expressions.expr(arg, scope), bound)
        for name in function.type_params:
            if bound.get(name) in (None, INT):
                fail(
                    e.location,
                    f"{function.name}: cannot tell type {name}: write {function.name}<...>(...), or give a width",
                )
        copy: tree.Function = self.copies.with_types(function, tuple(bound[name] for name in function.type_params))
        return copy

    def _method_call(self, e: tree.Call, target: tree.Member, scope: Scope) -> Type:
        if target.name == "apply" and isinstance(target.base, tree.Call):
            fail(e.location, "apply() of a result: only tables and controls can be applied")
        base_type = self.expressions.expr(target.base, scope)
        if target.name in SIZE_METHODS and not isinstance(base_type, Object):
            return self._size_call(e, target, base_type)
        if isinstance(base_type, Record) and base_type.kind != "struct":
            return self._header_call(e, target, base_type, scope)
        if isinstance(base_type, Stack):
            return self._stack_call(e, target, scope)
        if isinstance(base_type, Object):
            return self._object_call(e, target, base_type, scope)
        fail(e.location, f"{base_type} has no method {target.name}")

    def _stack_call(self, e: tree.Call, target: tree.Member, scope: Scope) -> Type:
        stack_type = target.base.type
        if not stack_type.of_headers:
            fail(
                target.location,
                f"an array of {stack_type.element} has no methods: header stacks have push_front and pop_front",
            )
        if target.name not in ("push_front", "pop_front"):
            fail(target.location, f"a header stack has no method {target.name} (has: pop_front, push_front)")
        if len(e.args) != 1:
            fail(e.location, f"{target.name} takes 1 argument, not {len(e.args)}")
        if self.expressions.constant(e.args[0].value, scope) < 0:
            fail(e.args[0].location, f"{target.name} needs a count of at least 0")
        self.expressions.writable(target.base, target.name)
        e.callee = Callee("stack", None, target.name, target.base)
        return VOID

    def _header_call(self, e: tree.Call, target: tree.Member, record: Record, scope: Scope) -> Type:
        if target.name not in HEADER_METHODS:
            fail(target.location, f"{record.kind} {record} has no method {target.name} {known_names(HEADER_METHODS)}")
        if record.kind == "header_union" and target.name != "isValid":
            fail(e.location, f"{target.name} of a header_union: set a member of it")
        if target.name != "isValid":
            self.expressions.writable(target.base, target.name)
        result = BOOL if target.name == "isValid" else VOID
        return self.finish(e, Callee("header", None, target.name, target.base), [], result, scope)

    def _size_call(self, e: tree.Call, target: tree.Member | tree.TypeMember, p4_type: Type) -> Type:
        """minSizeInBits and its like, of a type or of a value: known at compile time."""
        if e.args or e.type_args:
            fail(e.location, f"{target.name} takes no arguments")
        bits = size_in_bits(p4_type, target.name.startswith("max"))
        if bits is None:
            fail(e.location, f"{target.name} of {p4_type}: it has no width of its own (numbers, headers, structs have)")
        e.callee = Callee("size", None, target.name)
        e.const = (bits + 7) // 8 if target.name.endswith("Bytes") else bits
        return INT

    def _object_call(self, e: tree.Call, target: tree.Member, object_type: Object, scope: Scope) -> Type:
        is_applied = object_type.kind in ("table", "control") and target.name == "apply"
        if is_applied and (self.context.in_action or self.context.in_function):
            caller = "an action" if self.context.in_action else "a function"
            fail(e.location, f"{caller} cannot apply a {object_type.kind}")
        if object_type.kind == "table":
            if target.name != "apply":
                fail(target.location, f"a table has no method {target.name} (has: apply)")
            self.finish(e, Callee("table", object_type.decl, "apply", target.base), [], VOID, scope)
            return ApplyResult(object_type.decl)
        if object_type.kind in ("control", "parser"):
            if target.name != "apply":
                fail(target.location, f"a {object_type.kind} has no method {target.name} (has: apply)")
            if object_type.kind == "parser" and not self.context.in_parser:
                fail(e.location, "a parser can be applied only in a parser")
            if object_type.kind == "control" and self.context.in_parser:
                fail(e.location, "a control cannot be applied in a parser")
            # apply() may give constants to int parameters: the instance then has the type of that copy.
            object_type = self._with_numbers_inside(e, target.base, object_type, scope)
            return self.finish(
                e,
                Callee(object_type.kind, object_type.decl, "apply", target.base),
                object_type.decl.params,
                VOID,
                scope,
            )
        if object_type.kind != "extern":
            fail(e.location, f"a {object_type.kind} has no methods")
        methods = [method for method in object_type.decl.methods if method.name == target.name]
        if not methods:
            valid_names = known_names(method.name for method in object_type.decl.methods)
            fail(target.location, f"extern {object_type} has no method {target.name} {valid_names}")
        callee = Callee("method", None, target.name, target.base)
        callee.bound = dict(zip(object_type.decl.type_params, object_type.args, strict=False))
        return self._resolve_overload(e, callee, methods, scope)

    def _with_numbers_inside(self, e: tree.Call, base: tree.Expr, object_type: Object, scope: Scope) -> Object:
        """The type of the instance `base` for the constants that this call gives its parameters of type int."""
        instance = base.decl if isinstance(base, tree.PathExpression) else None
        declared_type = self.types_before_numbers.get(id(instance), object_type)
        if not numbers_of(declared_type.decl.params):
            return object_type
        if not isinstance(instance, tree.Instance):
            raise_unsupported(e.location, f"{object_type} as a constructor parameter, with its parameters of type int,")
        numbered_type = Object(object_type.kind, self.with_numbers(declared_type.decl, e, scope))
        if id(instance) in self.types_before_numbers and object_type != numbered_type:
            fail(
                e.location,
                f"{instance.name} is applied with other constants for its int parameters: declare a second one",
            )
        self.types_before_numbers[id(instance)] = declared_type
        instance.type = base.type = numbered_type
        return numbered_type

    def _resolve_overload(self, e: tree.Call, callee: Callee, methods: list[tree.Method], scope: Scope) -> Type:
        """Choose among functions of one name by the number of arguments, as the language does."""
        matching = [candidate for candidate in methods if len(candidate.params) == len(e.args)]
        if not matching:
            counts = " or ".join(count(len(candidate.params), "argument") for candidate in methods)
            fail(e.location, f"{callee.name} takes {counts}, not {len(e.args)}")
        if callee.kind == "function" and callee.name == "verify" and not self.context.in_parser:
            fail(e.location, "verify stands only in parsers: elsewhere, write if (...) { ... }")
        method = matching[0]
        # P4 distinguishes overloads by their number of arguments: the first match is the only one.
        callee.decl = method
        if e.type_args:
            if len(e.type_args) != len(method.type_params):
                type_count = count(len(method.type_params), "type argument")
                fail(e.location, f"{callee.name} takes {type_count}, not {len(e.type_args)}")
            type_args = [self.types.resolve(type_arg, scope) for type_arg in e.type_args]
            callee.bound.update(
                (name, type_arg)
                for name, type_arg in zip(method.type_params, type_args, strict=False)
                if type_arg != DONTCARE
            )
        inner = Scope(self.context.top)
        for name in (*method.type_params, *callee.bound):
            inner.names[name] = Variable(name)
        self.parameters(method.params, inner)
        result = self.types.resolve(method.result, inner)
        self.finish(e, callee, method.params, VOID, scope)
        for param, arg in callee.args:
            if param.direction and substitute(param.type, callee.bound) == INT:
                fail(arg.location, f"argument {param.name} of {callee.name} has no width: write 8w1, say")
        if callee.name == "static_assert" and callee.kind == "function":
            self._static_assert(e)
        return substitute(result, callee.bound)

    @staticmethod
    def _static_assert(e: tree.Call) -> None:
        check, *message = (arg.const for _, arg in e.callee.args)
        if check is None:
            fail(e.location, "static_assert: the condition is not known at compile time")
        if not check:
            fail(e.location, f"static_assert failed{f': {message[0]}' if message else ''}")
        e.const = True

    def parameters(self, params: list[tree.Param], scope: Scope) -> None:
        """Resolve the types of parameters."""
        for param in params:
            param.type = self.types.resolve(param.type_node, scope)

    def defaults(self, params: list[tree.Param], scope: Scope) -> None:
        """Check the default values of parameters where these are declared."""
        for param in params:
            if param.default is not None and param.direction in ("out", "inout"):
                fail(param.location, f"parameter {param.name} is `{param.direction}` and cannot have a default value")
            if param.default is not None:
                param.default = self.expressions.value_for(
                    param.default, param.type, scope, f"default value of {param.name}"
                )

    def finish(self, e: tree.Call, callee: Callee, params: list[tree.Param], result: Type, scope: Scope) -> Type:
        """Check the arguments; sets what is called, and returns `result`."""
        self.arguments(callee, params, e.args, e.location, scope)
        e.callee = callee
        return result

    def arguments(
        self, callee: Callee, params: list[tree.Param], args: list[tree.Arg], location: Location, scope: Scope
    ) -> None:
        """Match arguments with parameters, by position or by name, and check each. Fills callee.args."""
        pairs = pair(callee.name, params, args, location)
        for param, arg in pairs:
            if isinstance(arg, tree.DontCare):
                if param.direction != "out":
                    fail(arg.location, f"argument {param.name} of {callee.name}: `_` stands only for an `out` argument")
                continue
            if arg is not param.default:
                self.expressions.expr(arg, scope)
            self._bind(param.type, arg.type, callee.bound)
        for param, arg in pairs:
            param_type = substitute(param.type, callee.bound)
            description = f"argument {param.name} of {callee.name}"
            if isinstance(arg, tree.DontCare):
                if isinstance(param_type, Variable):
                    fail(arg.location, f"{description}: `_` needs the type in <...>")
                arg.type = param_type
            elif param.direction in ("out", "inout"):
                if arg.type != param_type and not isinstance(param_type, Variable):
                    fail(arg.location, f"{description} of type {arg.type} where {param_type} is needed")
                self.expressions.writable(arg, description)
            elif not isinstance(param_type, Variable) and param_type != DONTCARE:
                self.expressions.coerce(arg, param_type, description)
        callee.args = pairs

    def _bind(self, param: Type, arg: Type, bound: dict[str, Type]) -> None:
        """Learn the type parameters in `param` from an argument's type."""
        if isinstance(param, Variable):
            if bound.get(param.name) in (None, INT):
                bound[param.name] = arg
        elif (isinstance(param, Record) and isinstance(arg, Record) and param.decl is arg.decl) or (
            isinstance(param, Object) and isinstance(arg, Object)
        ):
            for param_arg, arg_arg in zip(param.args, arg.args, strict=False):
                self._bind(param_arg, arg_arg, bound)


def pair(
    name: str, params: list[tree.Param], args: list[tree.Arg], location: Location
) -> list[tuple[tree.Param, tree.Expr]]:
    """(parameter, argument) in the order of the parameters. Raises P4Error for too many, too few, unknown."""
    named_args = [arg for arg in args if arg.name is not None]
    if named_args and len(named_args) != len(args):
        fail(location, f"{name}: name all arguments or none")
    if named_args:
        values = {arg.name: arg.value for arg in named_args}
        for index, arg in enumerate(named_args):
            if arg.name in {earlier.name for earlier in named_args[:index]}:
                fail(arg.location, f"{name}: the argument {arg.name} is given twice")
            if arg.name not in {p.name for p in params}:
                fail(arg.location, f"{name} has no parameter {arg.name} {known_names(p.name for p in params)}")
    else:
        values = {p.name: a.value for p, a in zip(params, args, strict=False)}
    missing_names = [p.name for p in params if p.name not in values and p.default is None]
    if len(args) > len(params) or missing_names:
        listed = ", ".join(p.name for p in params) or "none"
        fail(location, f"{name} takes {count(len(params), 'argument')} ({listed}), not {len(args)}")
    bindings = ((p, values.get(p.name, p.default)) for p in params)
    return [(param, value) for param, value in bindings if value is not None]


def data_fields(e: tree.Expr) -> list[tuple[tree.Expr | None, Type]]:
    """The leaves of the `data` of a hash or checksum, in order: (expression or None for a part, type)."""
    if isinstance(e, tree.ListExpr):
        return [leaf for item in e.items for leaf in data_fields(item)]
    if isinstance(e, tree.RecordExpr):
        return [leaf for _, item in e.items for leaf in data_fields(item)]
    return [(e, e.type)]


def size_in_bits(p4_type: Type, largest: bool) -> int | None:
    """Smallest or largest number of bits that a value takes in a packet; None for types without a width."""
    base = plain(p4_type)
    if isinstance(base, Varbit):
        return base.width if largest else 0
    if isinstance(base, Stack):
        size = size_in_bits(base.element, largest)
        return None if size is None else base.size * size
    if isinstance(base, (Record, Tuple)):
        parts = base.fields.values() if isinstance(base, Record) else base.items
        sizes = [size_in_bits(part, largest) for part in parts]
        known_sizes = [size for size in sizes if size is not None]
        if len(known_sizes) < len(sizes):
            return None
        if isinstance(base, Record) and base.kind == "header_union":
            return (max if largest else min)(known_sizes, default=0)
        return sum(known_sizes)
    return width_of(p4_type)


def check_whole_bytes(header: Record, location: Location) -> None:
    """Raise P4Error for a header of no whole bytes."""
    bits = size_in_bits(header, largest=True) or 0
    if bits % 8:
        spare_bits = 8 - bits % 8
        fail(
            location, f"header {header} has {bits} bits: only whole bytes can be sent: add a field of bit<{spare_bits}>"
        )


def is_data(p4_type: Type) -> bool:
    """Return whether a value can be laid out as bits."""
    base = plain(p4_type)
    if isinstance(base, Record):
        return base.kind != "header_union" and all(is_data(part) for part in base.fields.values())
    if isinstance(base, Tuple):
        return all(is_data(part) for part in base.items)
    if isinstance(base, Stack):
        return not base.of_headers and is_data(base.element)
    return (
        isinstance(base, (Bits, Varbit))
        or base == BOOL
        or (isinstance(base, EnumType) and base.underlying_type is not None)
    )
