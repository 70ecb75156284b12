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

    def construct(self, of: Object, args: list[tree.Arg], node: Any, scope: Scope) -> Object:
        """Check constructor arguments. Returns the type of what is made: a copy of the parser or control for the values
        given, which are known at compile time in it.

        What else is given to a package is checked when the program is put together.
        """
        if of.kind == "package":
            for one in args:
                if isinstance(one.value, tree.Construct):
                    self._construct_part(one.value, scope)
            return of
        values: dict[str, tree.Expr] = {}
        if of.kind == "extern":
            choices = [constructor for constructor in of.decl.constructors if len(constructor) == len(args)]
            if not choices:
                counts = (
                    " or ".join(count(len(constructor), "argument") for constructor in of.decl.constructors)
                    or "nothing"
                )
                fail(node.where, f"the constructor of {of.decl.name} takes {counts}, not {len(args)}")
            params = choices[0]
            inner = Scope(self.context.top)
            for name in of.decl.type_params:
                inner.names[name] = Variable(name)
            self.calls.parameters(params, inner)
            if len(of.args) != len(of.decl.type_params):
                fail(node.where, f"{of.decl.name} needs its type arguments, such as {of.decl.name}<bit<32>>(...)")
        else:
            params = of.decl.ctor
        for param, arg in pair(of.decl.name, params, args, node.where):
            if isinstance(arg, tree.Construct):
                arg.type = self.types.resolve(arg.to, scope)
                if not isinstance(arg.type, Object):
                    fail(arg.where, f"{arg.type} has no constructor")
                arg.type = self.construct(arg.type, arg.args, arg, scope)
            elif arg is not param.default:
                self.expressions.expr(arg, scope)
            self.expressions.coerce(arg, param.type, f"argument {param.name} of {of.decl.name}")
            if isinstance(arg.type, Object):
                continue
            if value_key(arg) is None:
                fail(arg.where, f"argument {param.name} of {of.decl.name} must be known at compile time")
            values[param.name] = arg
        template = self.copies.templates.get(id(of.decl))
        return Object(of.kind, self.copies.with_values(template, values)) if template else of

    def _construct_part(self, value: tree.Construct, scope: Scope) -> None:
        """A parser or control made for a package."""
        found = scope.find(value.to.name) if isinstance(value.to, tree.NamedType) else None
        if isinstance(found, Object) and found.kind in ("parser", "control"):
            of = self.types.resolve(value.to, scope)
            assert isinstance(of, Object)
            value.type = self.construct(of, value.args, value, scope)
