"""Names, types and rules of a whole program: declarations, statements, parsers, controls, tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from switch.compiler.errors import Location, P4Error, P4Warning, count, fail, known, unsupported
from switch.compiler.frontend import tree
from switch.compiler.sema.check_calls import Callee, is_data, numbers_of
from switch.compiler.sema.check_expr import example_of, value_key
from switch.compiler.sema.check_tables import TableChecker, value_set_fields
from switch.compiler.sema.scope import Scope
from switch.compiler.sema.types import (
    BOOL,
    INT,
    STRING,
    VOID,
    ActionRun,
    Applied,
    Bits,
    EnumType,
    NewType,
    Object,
    Record,
    Stack,
    Tuple,
    Type,
    Varbit,
    Variable,
    is_scalar,
    is_value,
    plain,
)  # fmt: skip
from switch.compiler.sema.warn import reachable

MOST_PROBLEMS = 20
"""Mistakes told of one program."""
_V1MODEL_VERSIONS = 20180101, 20200408
"""The first and the last version of v1model, as V1MODEL_VERSION has them."""


@dataclass(eq=False)
class Template:
    """A parser or control whose constructor takes values."""

    decl: Any
    """The declaration, checked with example values."""
    written: Any
    """The same as it was written."""
    scope: Scope
    """Where it was declared."""
    copies: dict[tuple[Any, ...], tuple[Any, list[P4Error]]] = field(default_factory=dict)
    """By the values of the constructor's parameters: the declaration checked with these, and what is wrong then."""
    problems: list[P4Error] = field(default_factory=list)
    """What was wrong with the example values: told when there are no others."""
    warnings: list[P4Warning] = field(default_factory=list)
    """The same of warnings."""


class Checker(TableChecker):
    """Checks a program once, declaration by declaration; annotates the tree in place."""

    def __init__(self) -> None:
        self.top = Scope()
        self.errors: list[str] = []
        self.match_kinds: list[str] = []
        self.in_action = False
        self.in_function: tree.Function | None = None
        self.owner: Any = None
        """The parser or control being checked."""
        self.implicit: dict[int, list[tree.Instance | tree.Action]] = {}
        """Instances that `Type.apply()` makes, and copies of actions, by id() of the parser or control."""
        self.records = {}
        self.copies: dict[tuple[int, tuple[Any, ...]], Any] = {}
        """Declarations with their type arguments, or with constants for parameters of type int, by id() and these."""
        self.numbered = {}
        self.homes: dict[int, tuple[Any, Scope]] = {}
        """Declarations with parameters of type int, by id(), with the scope they are in."""
        self.loops = 0
        """Loops around the statement being checked."""
        self.templates: dict[int, Template] = {}
        """Parsers and controls whose constructors take values, by id()."""
        self.fixed: dict[int, dict[str, tree.Expr]] = {}
        """Values of the constructor parameters of a parser or control being checked, by its id()."""
        self.problems: list[P4Error] = []
        """Mistakes found so far."""
        self.warnings = []
        self.failed: set[str] = set()
        """Names of declarations that were wrong."""

    def program(self, nodes: list[tree.Node]) -> None:
        """Check all; raises the first P4Error, with the others that were found behind it."""
        self.top.later = _places(nodes)
        for node in nodes:
            self.attempt(self.declaration, node, self.top)
        for one in self.templates.values():
            if not one.copies:
                self.problems += one.problems
                self.warnings += one.warnings
        del self.problems[MOST_PROBLEMS:]
        if self.problems:
            first, *first.others = self.problems
            raise first

    def attempt(self, check: Callable[[Any, Scope], None], node: Any, scope: Scope) -> None:
        """Check a declaration or statement, and go on with the next when it is wrong.

        What only follows from a declaration that failed is not told: its name is unknown then.
        """
        before = (self.owner, self.in_parser, self.in_action, self.in_function, self.loops)
        try:
            check(node, scope)
        except P4Error as error:
            self.owner, self.in_parser, self.in_action, self.in_function, self.loops = before
            unknown = re.match(r"(?:\w+ )?(\w+) is not declared", error.message)
            told = str(error) in map(str, self.problems) or (unknown and unknown[1] in self.failed)
            if not told and len(self.problems) < MOST_PROBLEMS:
                self.problems.append(error)
            self.failed.add(getattr(node, "name", ""))

    def checked(self, node: Any) -> list[Any]:
        """A declaration, or the copies that were made of it and have what it lacks: types, values, numbers."""
        out = [copy for (origin, _), copy in self.copies.items() if origin == id(node)]
        if id(node) in self.templates:
            out += [copy for copy, _ in self.templates[id(node)].copies.values()]
        return [one for copy in out for one in self.checked(copy)] or [node]

    def fixed_copy(self, decl: Any, values: tuple[int, ...]) -> Any:
        """A copy of a declaration with constants for its parameters of type int, checked; one for equal constants."""
        key = (id(decl), values)
        if key not in self.copies:
            copy, inner, numbers = deepcopy(decl), Scope(self.homes[id(decl)][1]), numbers_of(decl.params)
            copy.params = [one for one, old in zip(copy.params, decl.params, strict=True) if old not in numbers]
            for param, value in zip(numbers, values, strict=True):
                literal = tree.Integer(param.where, value, None, False)
                constant = tree.Const(param.where, [], param.name, param.type_node, literal)
                constant.type = self.expr(literal, inner)
                inner.names[param.name], inner.places[param.name] = constant, param.where
            if id(decl) in self.fixed:
                self.fixed[id(copy)] = self.fixed[id(decl)]
            self.copies[key] = copy
            self._check_copy(copy, inner)
            if isinstance(decl, tree.Action) and self.homes[id(decl)][1] is not self.top:
                self.implicit.setdefault(id(self.owner), []).append(copy)
        return self.copies[key]

    def _needs_numbers(self, node: Any, scope: Scope) -> bool:
        """Is its body checked for each call, with the constants that this gives its parameters of type int?"""
        for one in numbers_of(node.params):
            if one.direction:
                fail(
                    one.where,
                    f"parameter {one.name} of type int is `{one.direction}`: an int is known at compile time and has "
                    "no direction; give it a width, such as bit<32>",
                )
            self.homes[id(node)] = node, scope
            for param in getattr(node, "ctor", ()):
                param.type = self.resolve(param.type_node, scope)
        return id(node) in self.homes

    def home_of(self, method: tree.Method) -> Scope:
        return self.top

    # ---- declarations

    def declaration(self, node: Any, scope: Scope) -> None:
        """Check one declaration and enter its name."""
        names = getattr(node, "type_params", [])
        twice = next((one for at, one in enumerate(names) if one in names[:at]), None)
        if twice:
            fail(node.where, f"{node.name} has two type parameters {twice}")
        scope.open.append(getattr(node, "name", ""))
        try:
            getattr(self, "_declare_" + type(node).__name__.lower())(node, scope)
        finally:
            scope.open.pop()

    def _declare_errors(self, node: tree.Errors, scope: Scope) -> None:
        for name in node.names:
            if name in self.errors:
                fail(node.where, f"error {name} is declared twice")
            if name == "NoError":  # number 0, even when a program declares errors before it includes core.p4
                self.errors.insert(0, name)
            else:
                self.errors.append(name)

    def _declare_matchkinds(self, node: tree.MatchKinds, scope: Scope) -> None:
        for name in node.names:
            if name in self.match_kinds:
                fail(node.where, f"match_kind {name} is declared twice")
            self.match_kinds.append(name)

    def _declare_const(self, node: tree.Const, scope: Scope) -> None:
        node.type = self.resolve(node.type_node, scope)
        node.value = self.value_for(node.value, node.type, scope, f"constant {node.name}")
        if value_key(node.value) is None:
            fail(node.value.where, f"constant {node.name}: the value is not known at compile time")
        if node.name == "__v1model_version" and not _V1MODEL_VERSIONS[0] <= node.value.const <= _V1MODEL_VERSIONS[1]:
            fail(node.where, "V1MODEL_VERSION must be {} to {}: v1model had no others".format(*_V1MODEL_VERSIONS))
        scope.declare(node.name, node, node.where)

    def _declare_typedef(self, node: tree.Typedef, scope: Scope) -> None:
        of = self.resolve(node.type_node, scope)
        if node.new and not is_value(of):
            fail(node.where, f"type {node.name}: {of} cannot be made a new type; bit<N>, int<N> and bool can")
        if node.new:
            _translation(node)
        scope.declare(node.name, NewType(node.name, of, node) if node.new else of, node.where)

    def _declare_aggregate(self, node: tree.Aggregate, scope: Scope) -> None:
        record = Record(node.name, node.kind, {}, node)
        inner = Scope(scope)
        for name in node.type_params:
            inner.names[name] = Variable(name)
        for one in node.fields:
            if one.name in record.fields:
                fail(one.where, f"{node.kind} {node.name} has two fields {one.name}")
            of = self.resolve(one.type_node, inner)
            self._field_fits(node, one, of)
            record.fields[one.name] = of
            for number in one.lists:
                self.expr(number, scope)
                if isinstance(number.type, EnumType) and number.type.under:
                    self.coerce(number, number.type.under)
                if not isinstance(number.const, int) or isinstance(number.const, bool):
                    fail(number.where, "@field_list: the number of a list must be an integer known at compile time")
        node.record = record
        scope.declare(node.name, record, node.where)

    @staticmethod
    def _field_fits(node: tree.Aggregate, one: tree.Field, of: Type) -> None:
        base = plain(of)
        if node.kind == "header_union" and not (isinstance(base, Record) and base.kind == "header"):
            fail(one.where, f"header_union {node.name}: a member of type {of}; only headers can be members")
        if node.kind == "header" and not isinstance(base, (Bits, Varbit, Variable)) and base != BOOL:
            if (isinstance(base, Stack) or (isinstance(base, Record) and base.kind == "struct")) and is_data(base):
                return
            fail(one.where, f"header {node.name}: a field of type {of}; bit<N>, int<N>, bool and varbit<N> can be sent")
        if isinstance(of, Object) or base in (VOID, INT, STRING):
            fail(one.where, f"field {one.name} cannot be a {of}")

    def _declare_enum(self, node: tree.Enum, scope: Scope) -> None:
        under = self.resolve(node.under, scope) if node.under else None
        if under is not None and not isinstance(under, Bits):
            fail(node.where, f"enum {node.name}: the underlying type must be bit<N> or int<N>, not {under}")
        enum = EnumType(node.name, [], under)
        for name, value, where in node.members:
            if name in enum.members:
                fail(where, f"enum {node.name} has two members {name}")
            if (value is None) == (under is not None):
                rule = "needs a value" if value is None else "takes no value: the enum has no underlying type"
                fail(where, f"enum {node.name}: member {name} {rule}")
            enum.members.append(name)
            if value is not None and under is not None:
                given = self.constant(value, scope)
                if value.type == INT and under.wrap(given) != given:
                    fail(value.where, f"enum {node.name}: the value {given} of {name} does not fit {under}")
                self.coerce(value, under, f"value of {name}")
                enum.values[name] = value.const
        scope.declare(node.name, enum, node.where)

    def _declare_externobject(self, node: tree.ExternObject, scope: Scope) -> None:
        scope.declare(node.name, Object("extern", node), node.where)

    def _declare_method(self, node: tree.Method, scope: Scope) -> None:
        found = scope.names.get(node.name)
        if isinstance(found, list):
            found.append(node)
        else:
            scope.declare(node.name, [node], node.where)

    @staticmethod
    def _opaque(node: tree.Function | tree.Control, body: Any) -> None:
        """Raise P4Error for an operator on a parameter of a type variable: only == and != are defined on any type."""
        of = {
            one.name: one.type_node.name
            for one in node.params
            if isinstance(one.type_node, tree.NamedType) and one.type_node.name in node.type_params
        }
        for e in tree.walk(body):
            if isinstance(e, tree.Binary) and e.op not in ("==", "!="):
                for side in (e.left, e.right):
                    if isinstance(side, tree.PathExpression) and side.name in of:
                        name = of[side.name]
                        fail(e.where, f"{e.op} is not defined on {name}, which may be any type: only == and != are")

    def _declare_function(self, node: tree.Function, scope: Scope) -> None:
        if node.type_params:
            self._opaque(node, node.body)
            scope.declare(node.name, node, node.where)
            return
        if self._needs_numbers(node, scope):
            self._overload(node, scope)
            return
        node.type = self.resolve(node.result, scope)
        inner = Scope(scope)
        for one in node.params:
            one.type = self.resolve(one.type_node, inner)
            if not one.direction and not is_scalar(one.type) and one.type != STRING:
                one.direction = "in"
            inner.declare(one.name, one, one.where)
        self.defaults(node.params, inner)
        self.in_function = node
        self.block(node.body, Scope(inner))
        self.in_function = None
        if node.type != VOID and not _returns(node.body):
            fail(node.where, f"function {node.name} may end without `return`: it returns a {node.type}")
        self._overload(node, scope)

    @staticmethod
    def _overload(node: tree.Function, scope: Scope) -> None:
        """Enter a function beside the others of its name."""
        found = scope.names.get(node.name)
        if isinstance(found, tree.Function):
            scope.names[node.name] = [found, node]
        elif isinstance(found, list) and isinstance(found[0], tree.Function):
            found.append(node)
        else:
            scope.declare(node.name, node, node.where)

    def _declare_package(self, node: tree.Package, scope: Scope) -> None:
        scope.declare(node.name, Object("package", node), node.where)

    def _declare_valueset(self, node: tree.ValueSet, scope: Scope) -> None:
        node.element = self.resolve(node.type_node, scope)
        self.constant(node.size, scope)
        for one in value_set_fields(node.element):
            if not is_value(one):
                unsupported(node.where, f"a value_set of {node.element}")
        node.type = Object("value_set", node)
        scope.declare(node.name, node, node.where)

    def _declare_var(self, node: tree.Var, scope: Scope) -> None:
        node.type = self.resolve(node.type_node, scope)
        if isinstance(node.type, Object):
            fail(node.where, f"{node.name} cannot be a variable of type {node.type}")
        if node.type == INT:
            fail(node.where, f"{node.name} cannot be a variable of type int: make it a `const`, or give it a width")
        if node.value is not None:
            node.value = self.value_for(node.value, node.type, scope, f"initial value of {node.name}")
        scope.declare(node.name, node, node.where)

    def _declare_instance(self, node: tree.Instance, scope: Scope) -> None:
        node.type = self.resolve(node.type_node, scope)
        if not isinstance(node.type, Object) or node.type.kind == "table":
            fail(node.where, f"{node.name}: {node.type} has no constructor")
        if node.has_body:
            unsupported(node.where, "an extern with abstract methods")
        if node.type.kind in ("parser", "control") and scope is self.top:
            fail(
                node.where,
                f"{node.name}: a {node.type.kind} cannot be made at the top level: declare it in the {node.type.kind} "
                "that applies it, or give it to V1Switch as Name()",
            )
        if node.type.kind == "parser" and isinstance(self.owner, tree.Control) and scope is not self.top:
            fail(node.where, f"{node.name}: a parser can be made only in a parser")
        if node.type.kind == "control" and isinstance(self.owner, tree.Parser) and scope is not self.top:
            fail(node.where, f"{node.name}: a control can be made only in a control")
        if node.type.kind == "package" and scope is not self.top:
            fail(node.where, "a package can be instantiated only at the top level")
        node.type = self.construct(node.type, node.args, node, scope)
        scope.declare(node.name, node, node.where)

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
            choices = [one for one in of.decl.constructors if len(one) == len(args)]
            if not choices:
                counts = " or ".join(count(len(one), "argument") for one in of.decl.constructors) or "nothing"
                fail(node.where, f"the constructor of {of.decl.name} takes {counts}, not {len(args)}")
            params = choices[0]
            inner = Scope(self.top)
            for name in of.decl.type_params:
                inner.names[name] = Variable(name)
            self.parameters(params, inner)
            if len(of.args) != len(of.decl.type_params):
                fail(node.where, f"{of.decl.name} needs its type arguments, such as {of.decl.name}<bit<32>>(...)")
        else:
            params = of.decl.ctor
        for param, arg in self.pair(of.decl.name, params, args, node.where):
            if isinstance(arg, tree.Construct):
                arg.type = self.resolve(arg.to, scope)
                if not isinstance(arg.type, Object):
                    fail(arg.where, f"{arg.type} has no constructor")
                arg.type = self.construct(arg.type, arg.args, arg, scope)
            elif arg is not param.default:
                self.expr(arg, scope)
            self.coerce(arg, param.type, f"argument {param.name} of {of.decl.name}")
            if isinstance(arg.type, Object):
                continue
            if value_key(arg) is None:
                fail(arg.where, f"argument {param.name} of {of.decl.name} must be known at compile time")
            values[param.name] = arg
        template = self.templates.get(id(of.decl))
        return Object(of.kind, self._with_values(template, values)) if template else of

    def _construct_part(self, value: tree.Construct, scope: Scope) -> None:
        """A parser or control made for a package."""
        found = scope.find(value.to.name) if isinstance(value.to, tree.NamedType) else None
        if isinstance(found, Object) and found.kind in ("parser", "control"):
            of = self.resolve(value.to, scope)
            assert isinstance(of, Object)
            value.type = self.construct(of, value.args, value, scope)

    def _with_values(self, template: Template, values: dict[str, tree.Expr]) -> Any:
        """A copy of a parser or control with the values of its constructor in place, checked; one for equal values."""
        key = tuple((name, value_key(one)) for name, one in values.items())
        if key not in template.copies:
            copy = deepcopy(template.written)
            self.fixed[id(copy)] = values
            problems = self._problems_of(copy, template.scope)
            always = set(map(str, template.problems))
            given = ", ".join(f"{name} = {one.const}" for name, one in values.items() if one.const is not None)
            for at, one in enumerate(problems):
                if given and str(one) not in always:
                    problems[at] = P4Error(one.location, f"{one.message} (in {copy.name} with {given})")
            template.copies[key] = copy, problems
        copy, problems = template.copies[key]
        told = set(map(str, self.problems))
        self.problems += [one for one in problems if str(one) not in told]
        return copy

    def _problems_of(self, node: Any, scope: Scope) -> list[P4Error]:
        """Check a declaration aside from the one being checked; what is wrong with it."""
        told, failed = self.problems, set(self.failed)
        self.problems = out = []  # type: list[P4Error]
        self.attempt(self._check_copy, node, scope)
        self.problems, self.failed = told, failed
        return out

    # ---- parsers and controls

    def _enter(self, node: Any, kind: str, scope: Scope) -> Scope:
        """Scope inside a parser or control, with its parameters: the constructor's are instances or constants."""
        inner = Scope(scope)
        for name in node.type_params:
            inner.names[name] = Variable(name)
        for one in (*node.params, *node.ctor):
            one.type = self.resolve(one.type_node, inner)
        for one in node.params:
            if isinstance(one.type, Object) and one.type.kind != "extern":
                fail(
                    one.where,
                    f"parameter {one.name}: a {one.type.kind} is given to the constructor, "
                    f"`{node.name}(...)({one.type} {one.name})`, not to apply()",
                )
        values = self.fixed.get(id(node), {})
        for one in (*node.params, *node.ctor):
            known_as: Any = one
            if one.name in values:
                known_as = tree.Const(one.where, [], one.name, one.type_node, values[one.name], one.type)
            inner.declare(one.name, known_as, one.where)
        self.defaults([*node.params, *node.ctor], inner)
        return inner

    def _is_copied(self, node: Any, scope: Scope) -> bool:
        """Is a parser or control checked as copies: for type arguments, values of its constructor, or numbers?"""
        return bool(node.type_params) or self._is_template(node, scope) or self._needs_numbers(node, scope)

    def _is_template(self, node: Any, scope: Scope) -> bool:
        """Does the constructor take values? Then each instance gets a copy (`_with_values`); the declaration itself is
        checked with the default values of the types.
        """
        if id(node) in self.fixed:
            return False
        types = {one.name: self.resolve(one.type_node, scope) for one in node.ctor}
        values = {name: of for name, of in types.items() if not isinstance(of, Object)}
        if not values:
            return False
        template = self.templates[id(node)] = Template(node, deepcopy(node), scope)
        self.fixed[id(node)] = {name: example_of(of, node) for name, of in values.items()}
        told, self.warnings = self.warnings, template.warnings
        template.problems = self._problems_of(node, scope)
        self.warnings = told
        return True

    def specialised(self, found: Object, args: tuple[Type, ...]) -> Type:
        decl = found.decl
        body = getattr(decl, "body", None) or getattr(decl, "states", None)
        if found.kind not in ("control", "parser") or not body or any(isinstance(one, Variable) for one in args):
            return super().specialised(found, args)
        return Object(found.kind, self.copy_of(decl, args))

    def copy_of(self, decl: Any, args: tuple[Type, ...]) -> Any:
        """A copy of a generic declaration with the type arguments in place, checked; one for equal arguments."""
        key = (id(decl), args)
        if key not in self.copies:
            copy = deepcopy(decl)
            copy.type_params = []
            inner = Scope(self.top)
            inner.names.update(zip(decl.type_params, args, strict=True))
            self.copies[key] = copy
            self._check_copy(copy, inner)
        return self.copies[key]

    def _check_copy(self, copy: Any, scope: Scope) -> None:
        """Check a declaration made in the middle of another, in a scope inside `scope`."""
        before = self.owner, self.in_parser, self.in_action, self.in_function, self.loops
        self.in_parser = self.in_action = False
        self.in_function, self.loops = None, 0
        self.declaration(copy, Scope(scope))
        self.owner, self.in_parser, self.in_action, self.in_function, self.loops = before

    def _declare_control(self, node: tree.Control, scope: Scope) -> None:
        if node.body is not None and self._is_copied(node, scope):
            self._opaque(node, (node.locals, node.body))
            scope.declare(node.name, Object("control", node), node.where)
            return
        inner = self._enter(node, "control", scope)
        self.owner = node
        if node.body is not None:
            inner.later = _places(node.locals)
            for one in node.locals:
                self.attempt(self.declaration, one, inner)
            self.block(node.body, Scope(inner))
            made = self.implicit.get(id(node), [])
            in_tables = [one for one in made if isinstance(one, tree.Instance) and one.table]
            node.locals = [
                each
                for one in node.locals
                for each in (*(x for x in in_tables if isinstance(one, tree.Table) and x.table == one.name), one)
            ] + [one for one in made if all(one is not x for x in in_tables)]
        scope.declare(node.name, Object("control", node), node.where)

    def _declare_parser(self, node: tree.Parser, scope: Scope) -> None:
        if node.states is not None and self._is_copied(node, scope):
            scope.declare(node.name, Object("parser", node), node.where)
            return
        inner = self._enter(node, "parser", scope)
        self.owner = node
        if node.states is not None:
            inner.later = _places(node.locals)
            for one in node.locals:
                self.attempt(self.declaration, one, inner)
            names = [one.name for one in node.states]
            for one in node.states:
                if one.name in ("accept", "reject") or names.count(one.name) > 1:
                    why = "exists twice" if names.count(one.name) > 1 else "is built in"
                    fail(one.where, f"state {one.name} {why}")
            if "start" not in names:
                fail(node.where, f"parser {node.name} has no state start")
            self.in_parser = True
            for one in node.states:
                self._state(one, [*names, "accept", "reject"], inner)
            self.in_parser = False
            if not {"accept", "reject"} & reachable(node.states):
                fail(node.where, f"parser {node.name} never ends: no way from start leads to accept or reject")
            node.locals += self.implicit.get(id(node), [])
        scope.declare(node.name, Object("parser", node), node.where)

    def _state(self, node: tree.State, names: list[str], scope: Scope) -> None:
        inner = Scope(scope)
        for one in node.body:
            self.attempt(self.statement, one, inner)
        after = node.transition
        if after is None:
            return
        for target in [after] if after.state else after.cases:
            if target.state not in names:
                fail(target.where, f"no state {target.state} {known(names)}")
        for one in after.keys:
            self.expr(one, inner)
        self._spread_select(after, inner)
        for case in after.cases:
            self.keyset(case.keys, [(one.type, False) for one in after.keys], inner, "select")

    def _spread_select(self, node: tree.Transition, scope: Scope) -> None:
        """Selecting on a tuple, struct or list is selecting on its parts: put these in its place, in the labels too."""
        counts = []
        keys: list[tree.Expr] = []
        for one in node.keys:
            parts = self._select_parts(one, scope)
            counts.append(len(parts) if isinstance(plain(one.type), (Tuple, Record)) else 0)
            keys += parts
        for one in keys:
            if not is_value(one.type):
                fail(one.where, f"select on a {one.type}: only numbers, bool, enums and errors can be selected on")
        for case in node.cases:
            if len(case.keys) == len(counts):
                case.keys = _spread_label(case.keys, counts)
        node.keys = keys

    def _select_parts(self, e: tree.Expr, scope: Scope) -> list[tree.Expr]:
        base = plain(e.type)
        if isinstance(e, tree.ListExpr):
            parts = list(e.items)
        elif (
            isinstance(base, Record)
            and base.kind == "struct"
            and isinstance(e, (tree.PathExpression, tree.Member, tree.Index))
        ):
            parts = [tree.Member(e.where, e, name) for name in base.fields]
        elif isinstance(base, Tuple) and isinstance(e, (tree.PathExpression, tree.Member, tree.Index)):
            numbers = (tree.Integer(e.where, at, None, False) for at in range(len(base.items)))
            parts = [tree.Index(e.where, e, at) for at in numbers]
        else:
            return [e]
        for one in parts:
            self.expr(one, scope)
        return [part for one in parts for part in self._select_parts(one, scope)]

    # ---- statements

    def block(self, node: tree.Block, scope: Scope) -> None:
        scope.later = _places(node.body)
        for one in node.body:
            self.attempt(self.statement, one, scope)

    def statement(self, node: Any, scope: Scope) -> None:
        getattr(self, "_do_" + type(node).__name__.lower())(node, scope)

    def _do_block(self, node: tree.Block, scope: Scope) -> None:
        self.block(node, Scope(scope))

    def _do_var(self, node: tree.Var, scope: Scope) -> None:
        self._declare_var(node, scope)

    def _do_const(self, node: tree.Const, scope: Scope) -> None:
        self._declare_const(node, scope)

    def _do_instance(self, node: tree.Instance, scope: Scope) -> None:
        fail(node.where, f"{node.name}: declare instances before `apply`, not among the statements")

    def _do_empty(self, node: tree.Empty, scope: Scope) -> None:
        pass

    def _do_exit(self, node: tree.Exit, scope: Scope) -> None:
        if self.in_parser or self.in_function:
            fail(
                node.where,
                f"{'a parser' if self.in_parser else 'a function'} cannot exit: only controls and actions can",
            )

    def _do_return(self, node: tree.Return, scope: Scope) -> None:
        function = self.in_function
        if self.in_parser:
            fail(node.where, "return in a parser: a transition ends a state")
        if node.value is not None and (function is None or function.type == VOID):
            fail(node.where, "return with a value: only a function with a result returns one")
        if function is not None and function.type != VOID:
            if node.value is None:
                fail(node.where, f"function {function.name} returns a {function.type}: return needs a value")
            node.value = self.value_for(node.value, function.type, scope, f"result of {function.name}")

    def _do_assign(self, node: tree.Assign, scope: Scope) -> None:
        of = self.expr(node.target, scope)
        self.writable(node.target, "assignment")
        node.value = self.value_for(node.value, of, scope, "assignment")

    def _do_callstatement(self, node: tree.CallStatement, scope: Scope) -> None:
        self.expr(node.call, scope)
        if node.call.callee.kind in ("table", "control") and (self.in_action or self.in_function):
            what = "an action" if self.in_action else "a function"
            fail(node.where, f"{what} cannot apply a {node.call.callee.kind}")

    def _do_directapply(self, node: tree.DirectApply, scope: Scope) -> None:
        """`C.apply(x)`: an instance of its own, made here; the call is kept in the node."""
        of = self.resolve(node.of, scope)
        if not isinstance(of, Object) or of.kind not in ("control", "parser"):
            fail(node.where, f"{of} cannot be applied: only parsers and controls can")
        if of.decl.ctor:
            fail(node.where, f"{of} needs constructor arguments: declare an instance of it and apply that")
        call = tree.Call(node.where, tree.PathExpression(node.where, of.decl.name), [], node.args)
        if numbers_of(of.decl.params):
            of = Object(of.kind, self.with_numbers(of.decl, call, scope))
        mine = self.implicit.get(id(self.owner), [])
        same = sum(isinstance(one, tree.Instance) and one.type.decl.name == of.decl.name for one in mine)
        name = of.decl.name + (f"_{same + 1}" if same else "")
        made = tree.Instance(node.where, [], name, node.of, [])
        made.type = of
        self.implicit.setdefault(id(self.owner), []).append(made)
        target = tree.PathExpression(node.where, of.decl.name)
        target.decl, target.type = made, of
        call.target, node.call = tree.Member(node.where, target, "apply"), call
        if (of.kind == "parser") != self.in_parser:
            fail(node.where, f"a {of.kind} cannot be applied in a {'parser' if self.in_parser else 'control'}")
        self._finish(node.call, Callee(of.kind, of.decl, "apply", target), of.decl.params, VOID, scope)
        node.call.type = VOID

    def _do_if(self, node: tree.If, scope: Scope) -> None:
        self.expr(node.condition, scope)
        if node.condition.type != BOOL:
            of = plain(node.condition.type)
            header = isinstance(of, Record) and of.kind == "header"
            hint = "isValid() tells whether it is there" if header else "compare with 0, say"
            if isinstance(of, Applied):
                hint = f"write {of.table.name}.apply().hit, or .miss"
            fail(node.condition.where, f"if needs bool, not {node.condition.type}: {hint}")
        self.statement(node.then, Scope(scope))
        if node.other is not None:
            self.statement(node.other, Scope(scope))

    def _do_for(self, node: tree.For, scope: Scope) -> None:
        inner = Scope(scope)
        for one in node.start:
            self.statement(one, inner)
        self.expr(node.condition, inner)
        if node.condition.type != BOOL:
            fail(node.condition.where, f"for needs bool, not {node.condition.type}: compare with 0, say")
        self.loops += 1
        for one in (*node.updates, node.body):
            self.statement(one, Scope(inner))
        self.loops -= 1

    def _do_forin(self, node: tree.ForIn, scope: Scope) -> None:
        inner = Scope(scope)
        of = self.resolve(node.variable.type_node, scope)
        low = node.low
        if isinstance(low, tree.Cast) and isinstance(low.to, tree.NamedType) and low.to.name == "list":
            if [self.resolve(one, scope) for one in low.to.args] != [of]:
                fail(low.where, f"for over a list of {of} needs list<{of}>")
            node.low = low.operand
        first = self.expr(node.low, scope)
        if node.high is not None:
            self.expr(node.high, scope)
            for one in (node.low, node.high):
                self.coerce(one, of, "end of the range")
            if not isinstance(plain(of), Bits):
                fail(node.where, f"for over a range needs numbers, not {of}")
        elif isinstance(node.low, tree.ListExpr):
            for one in node.low.items:
                self.coerce(one, of, "item of the list")
        elif not isinstance(first, Stack) or first.element != of:
            fail(node.low.where, f"for goes over a range, a list or an array of {of}, not over {first}")
        node.variable.type = of
        inner.declare(node.variable.name, node.variable, node.variable.where)
        self.loops += 1
        self.statement(node.body, Scope(inner))
        self.loops -= 1

    def _do_break(self, node: tree.Break, scope: Scope) -> None:
        if not self.loops:
            fail(node.where, "break outside a loop")

    def _do_continue(self, node: tree.Continue, scope: Scope) -> None:
        if not self.loops:
            fail(node.where, "continue outside a loop")

    def _do_switchstatement(self, node: tree.SwitchStatement, scope: Scope) -> None:
        if self.in_action:
            unsupported(node.where, "a switch in an action", "nor by p4c for BMv2: write if ... else")
        of = self.expr(node.value, scope)
        seen: set[Any] = set()
        if not isinstance(of, ActionRun) and not is_value(of):
            fail(node.value.where, f"switch on a {of}: action_run, numbers, bool, enums and errors have labels")
        for case in node.cases:
            key = self._label(case, of, scope)
            if isinstance(case.label, tree.DontCare) and case is not node.cases[-1]:
                fail(case.where, "switch: default stands last")
            if key in seen:
                fail(case.where, "switch: this label stands twice")
            seen.add(key)
            if case.body is not None:
                self.block(case.body, Scope(scope))

    def _label(self, case: tree.Case, of: Type, scope: Scope) -> Any:
        """Check a label; returns what tells it from others."""
        if isinstance(case.label, tree.DontCare):
            return "default", None
        if isinstance(of, ActionRun):
            names = [one.name for one in of.table.actions]
            if not isinstance(case.label, tree.PathExpression) or case.label.name not in names:
                what = case.label.name if isinstance(case.label, tree.PathExpression) else "this"
                fail(case.where, f"switch: {what} is no action of table {of.table.name} {known(names)}")
            return case.label.name
        self.expr(case.label, scope)
        self.coerce(case.label, of, "label of switch")
        if case.label.const is None:
            fail(case.where, "switch: a label must be known at compile time")
        return of.values[case.label.const] if isinstance(of, EnumType) and of.under else case.label.const


def _spread_label(keys: list[tree.Expr], counts: list[int]) -> list[tree.Expr]:
    """The values of a label for keys of which some are tuples or structs, of so many parts: `{1, 2}` or `_`."""
    out: list[tree.Expr] = []
    for one, parts in zip(keys, counts, strict=True):
        if parts and isinstance(one, tree.DontCare):
            out += [one] * parts
        else:
            out += _items_of(one) if parts else [one]
    return out


def _items_of(e: tree.Expr) -> list[tree.Expr]:
    if isinstance(e, tree.ListExpr):
        return [item for one in e.items for item in _items_of(one)]
    return [e]


def _places(nodes: list[Any]) -> dict[str, Location]:
    """Where the names that a block declares stand."""
    return {one.name: one.where for one in nodes if isinstance(one, tree.Decl)}


def _translation(node: tree.Typedef) -> None:
    """Check @p4runtime_translation: a string, and a number of bits, bit<N> or string."""
    note = node.annotation("p4runtime_translation")
    if note is None:
        return
    uri, comma, *to = [one for one in note.body or []] + [None] * 2
    words = [one.text for one in to if one is not None]
    sized = len(words) == 4 and words[0] == "bit" and words[1] == "<" and words[2].isdigit() and words[3] == ">"
    number = len(words) == 1 and words[0].isdigit()
    if (
        uri is None
        or uri.kind != "STRING_LITERAL"
        or comma is None
        or comma.kind != "COMMA"
        or not (sized or number or words == ["string"])
    ):
        fail(
            note.where,
            "malformed @p4runtime_translation: it has a string and the type for the control plane, bit<N>, N or "
            'string, such as @p4runtime_translation("example.org/port", bit<32>)',
        )


def _returns(node: Any) -> bool:
    """Does a statement always end in `return`?"""
    if isinstance(node, tree.Block):
        return any(map(_returns, node.body))
    if isinstance(node, tree.If):
        return node.other is not None and _returns(node.then) and _returns(node.other)
    if isinstance(node, tree.SwitchStatement):
        ends = any(isinstance(case.label, tree.DontCare) for case in node.cases)
        return ends and all(case.body is None or _returns(case.body) for case in node.cases)
    return isinstance(node, tree.Return)
