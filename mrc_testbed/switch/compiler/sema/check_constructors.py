"""Arguments of constructors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mrc_testbed.switch.compiler.errors import count, fail
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.check_calls import CallChecker, pair
from mrc_testbed.switch.compiler.sema.check_context import CheckContext
from mrc_testbed.switch.compiler.sema.check_copies import CopyMaker
from mrc_testbed.switch.compiler.sema.check_expr import ExpressionChecker, value_key
from mrc_testbed.switch.compiler.sema.check_types import TypeResolver
from mrc_testbed.switch.compiler.sema.scope import Scope
from mrc_testbed.switch.compiler.sema.types import Object, Variable


@dataclass(eq=False, repr=False)
class ConstructorChecker:
    """Checks what externs, parsers, controls and packages are made with."""

    context: CheckContext
    types: TypeResolver
    expressions: ExpressionChecker
    calls: CallChecker
    copies: CopyMaker

    def construct(self, object_type: Object, args: list[tree.Arg], node: Any, scope: Scope) -> Object:
        """Check constructor arguments; return the object's type.

        That is a copy of the parser or control for the values given, which are known at compile time in it.

        What else is given to a package is checked when the program is put together.
        """
        if object_type.kind == "package":
            for part in args:
                if isinstance(part.value, tree.Construct):
                    self._construct_part(part.value, scope)
            return object_type
        values: dict[str, tree.Expr] = {}
        if object_type.kind == "extern":
            choices = [constructor for constructor in object_type.decl.constructors if len(constructor) == len(args)]
            if not choices:
                counts = (
                    " or ".join(count(len(constructor), "argument") for constructor in object_type.decl.constructors)
                    or "nothing"
                )
                fail(node.location, f"the constructor of {object_type.decl.name} takes {counts}, not {len(args)}")
            params = choices[0]
            inner = Scope(self.context.top)
            for name in object_type.decl.type_params:
                inner.names[name] = Variable(name)
            self.calls.parameters(params, inner)
            if len(object_type.args) != len(object_type.decl.type_params):
                fail(
                    node.location,
                    f"{object_type.decl.name} needs its type arguments, such as {object_type.decl.name}<bit<32>>(...)",
                )
        else:
            params = object_type.decl.ctor
        for param, arg in pair(object_type.decl.name, params, args, node.location):
            if isinstance(arg, tree.Construct):
                arg.type = self.types.resolve(arg.target_type, scope)
                if not isinstance(arg.type, Object):
                    fail(arg.location, f"{arg.type} has no constructor")
                arg.type = self.construct(arg.type, arg.args, arg, scope)
            elif arg is not param.default:
                self.expressions.expr(arg, scope)
            self.expressions.coerce(arg, param.type, f"argument {param.name} of {object_type.decl.name}")
            if isinstance(arg.type, Object):
                continue
            if value_key(arg) is None:
                fail(arg.location, f"argument {param.name} of {object_type.decl.name} must be known at compile time")
            values[param.name] = arg
        # The values are constants in the body: each set of values has a checked copy.
        template = self.copies.templates.get(id(object_type.decl))
        return Object(object_type.kind, self.copies.with_values(template, values)) if template else object_type

    def _construct_part(self, value: tree.Construct, scope: Scope) -> None:
        """A parser or control made for a package."""
        part_type = scope.find(value.target_type.name) if isinstance(value.target_type, tree.NamedType) else None
        if isinstance(part_type, Object) and part_type.kind in ("parser", "control"):
            resolved_type = self.types.resolve(value.target_type, scope)
            assert isinstance(resolved_type, Object)
            value.type = self.construct(resolved_type, value.args, value, scope)
