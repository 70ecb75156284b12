"""Copies of declarations: for type arguments, int constants and constructor values."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from mrc_testbed.switch.compiler.errors import P4Error, P4Warning, fail
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.check_context import CheckContext
from mrc_testbed.switch.compiler.sema.check_expr import ExpressionChecker, example_of, value_key
from mrc_testbed.switch.compiler.sema.check_types import TypeResolver
from mrc_testbed.switch.compiler.sema.scope import Scope
from mrc_testbed.switch.compiler.sema.types import Object, Type, Variable


@dataclass(eq=False, repr=False)
class Template:
    """A parser or control whose constructor takes values."""

    decl: Any
    """The declaration, checked with example values."""
    source_decl: Any
    """Declaration as written, before any check."""
    scope: Scope
    """Scope of the declaration."""
    copies: dict[tuple[Any, ...], tuple[Any, list[P4Error]]] = field(default_factory=dict)
    """Checked declaration and its problems, by the values of the constructor's parameters."""
    problems: list[P4Error] = field(default_factory=list)
    """Problems found with the example values; reported only when no copy exists."""
    warnings: list[P4Warning] = field(default_factory=list)
    """Warnings found with the example values; reported only when no copy exists."""


@dataclass(eq=False, repr=False)
class CopyMaker:
    """Makes copies of declarations, checked with what each is for; one for equal arguments."""

    context: CheckContext
    types: TypeResolver
    expressions: ExpressionChecker
    copies: dict[tuple[int, tuple[Any, ...]], Any] = field(default_factory=dict, init=False)
    """Declarations with type arguments or int constants, by id() and these."""
    homes: dict[int, tuple[Any, Scope]] = field(default_factory=dict, init=False)
    """Declarations with parameters of type int, by id(), with the scope they are in."""
    templates: dict[int, Template] = field(default_factory=dict, init=False)
    """Parsers and controls whose constructors take values, by id()."""
    constructor_values: dict[int, dict[str, tree.Expr]] = field(default_factory=dict, init=False)
    """Values of the constructor parameters of a parser or control being checked, by its id()."""

    def checked(self, node: Any) -> list[Any]:
        """A declaration, or the copies that were made of it and have what it lacks: types, values, numbers."""
        out = [copy for (origin, _), copy in self.copies.items() if origin == id(node)]
        if id(node) in self.templates:
            out += [copy for copy, _ in self.templates[id(node)].copies.values()]
        return [checked_copy for copy in out for checked_copy in self.checked(copy)] or [node]

    def with_numbers(self, decl: Any, values: tuple[int, ...]) -> Any:
        """Return a checked copy with constants for parameters of type int; one for equal constants."""
        key = (id(decl), values)
        if key not in self.copies:
            copy, inner, numbers = deepcopy(decl), Scope(self.homes[id(decl)][1]), numbers_of(decl.params)
            copy.params = [
                param for param, old_param in zip(copy.params, decl.params, strict=True) if old_param not in numbers
            ]
            for param, value in zip(numbers, values, strict=True):
                literal = tree.Integer(param.location, value, None, False)
                constant = tree.Const(param.location, [], param.name, param.type_node, literal)
                constant.type = self.expressions.expr(literal, inner)
                inner.names[param.name], inner.locations[param.name] = constant, param.location
            if id(decl) in self.constructor_values:
                self.constructor_values[id(copy)] = self.constructor_values[id(decl)]
            self.copies[key] = copy
            self._check_copy(copy, inner)
            if isinstance(decl, tree.Action) and self.homes[id(decl)][1] is not self.context.top:
                self.context.implicit.setdefault(id(self.context.owner), []).append(copy)
        return self.copies[key]

    def needs_numbers(self, node: Any, scope: Scope) -> bool:
        """Return whether each call checks a copy of the body, with constants for parameters of type int."""
        for number in numbers_of(node.params):
            if number.direction:
                fail(
                    number.location,
                    f"parameter {number.name} of type int is `{number.direction}`: an int is known at compile time "
                    "and has no direction; give it a width, such as bit<32>",
                )
            self.homes[id(node)] = node, scope
            for param in getattr(node, "ctor", ()):
                param.type = self.types.resolve(param.type_node, scope)
        return id(node) in self.homes

    def specialise(self, object_type: Object, args: tuple[Type, ...]) -> Type:
        """A generic parser, control, extern or package with its type arguments."""
        decl = object_type.decl
        body = getattr(decl, "body", None) or getattr(decl, "states", None)
        if object_type.kind not in ("control", "parser") or not body or any(isinstance(arg, Variable) for arg in args):
            return Object(object_type.kind, object_type.decl, args)
        return Object(object_type.kind, self.with_types(decl, args))

    def with_types(self, decl: Any, args: tuple[Type, ...]) -> Any:
        """A copy of a generic declaration with the type arguments in place, checked; one for equal arguments."""
        key = (id(decl), args)
        if key not in self.copies:
            copy = deepcopy(decl)
            copy.type_params = []
            inner = Scope(self.context.top)
            inner.names.update(zip(decl.type_params, args, strict=True))
            self.copies[key] = copy
            self._check_copy(copy, inner)
        return self.copies[key]

    def is_copied(self, node: Any, scope: Scope) -> bool:
        """Return whether a parser or control is checked as copies: for type arguments, values or numbers."""
        return bool(node.type_params) or self._is_template(node, scope) or self.needs_numbers(node, scope)

    def _is_template(self, node: Any, scope: Scope) -> bool:
        """Return whether the constructor takes values.

        Each instance then gets a copy (`with_values`); the declaration itself is checked with example values.
        """
        if id(node) in self.constructor_values:
            return False
        types = {param.name: self.types.resolve(param.type_node, scope) for param in node.ctor}
        values = {name: type_ for name, type_ in types.items() if not isinstance(type_, Object)}
        if not values:
            return False
        template = self.templates[id(node)] = Template(node, deepcopy(node), scope)
        self.constructor_values[id(node)] = {name: example_of(value, node) for name, value in values.items()}
        warnings_before, self.context.warnings = self.context.warnings, template.warnings
        template.problems = self._problems_of(node, scope)
        self.context.warnings = warnings_before
        return True

    def with_values(self, template: Template, values: dict[str, tree.Expr]) -> Any:
        """Return a checked copy with the values of the constructor; one for equal values."""
        key = tuple((name, value_key(value)) for name, value in values.items())
        if key not in template.copies:
            copy = deepcopy(template.source_decl)
            self.constructor_values[id(copy)] = values
            problems = self._problems_of(copy, template.scope)
            always = set(map(str, template.problems))
            value_list = ", ".join(
                f"{name} = {value.const}" for name, value in values.items() if value.const is not None
            )
            for index, problem in enumerate(problems):
                if value_list and str(problem) not in always:
                    problems[index] = P4Error(problem.location, f"{problem.message} (in {copy.name} with {value_list})")
            template.copies[key] = copy, problems
        copy, problems = template.copies[key]
        reported_texts = set(map(str, self.context.problems))
        self.context.problems += [problem for problem in problems if str(problem) not in reported_texts]
        return copy

    def _problems_of(self, node: Any, scope: Scope) -> list[P4Error]:
        """Check a declaration aside from the one being checked; what is wrong with it."""
        problems_before, failed = self.context.problems, set(self.context.failed)
        out: list[P4Error] = []
        self.context.problems = out
        self.context.attempt(self._check_copy, node, scope)
        self.context.problems, self.context.failed = problems_before, failed
        return out

    def _check_copy(self, copy: Any, scope: Scope) -> None:
        """Check a declaration made in the middle of another, in a scope inside `scope`."""
        position = self.context.save_position()
        self.context.in_parser = self.context.in_action = False
        self.context.in_function, self.context.loops = None, 0
        self.context.declarations.declaration(copy, Scope(scope))
        self.context.restore_position(position)


def numbers_of(params: list[tree.Param]) -> list[tree.Param]:
    """Parameters of type int: known at compile time in each call."""
    return [param for param in params if isinstance(param.type_node, tree.SimpleType) and param.type_node.name == "int"]
