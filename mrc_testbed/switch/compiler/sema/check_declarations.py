"""Rules of declarations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mrc_testbed.switch.compiler.errors import fail, raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.check_calls import CallChecker, is_data
from mrc_testbed.switch.compiler.sema.check_constructors import ConstructorChecker
from mrc_testbed.switch.compiler.sema.check_context import CheckContext
from mrc_testbed.switch.compiler.sema.check_copies import CopyMaker
from mrc_testbed.switch.compiler.sema.check_expr import ExpressionChecker
from mrc_testbed.switch.compiler.sema.check_keysets import value_set_fields
from mrc_testbed.switch.compiler.sema.check_statements import StatementChecker
from mrc_testbed.switch.compiler.sema.check_states import StateChecker
from mrc_testbed.switch.compiler.sema.check_tables import TableChecker
from mrc_testbed.switch.compiler.sema.check_types import TypeResolver
from mrc_testbed.switch.compiler.sema.scope import Scope, locations_of
from mrc_testbed.switch.compiler.sema.types import (
    BOOL,
    INT,
    STRING,
    VOID,
    Bits,
    EnumType,
    NewType,
    Object,
    Record,
    Stack,
    Type,
    Varbit,
    Variable,
    is_scalar,
    is_value,
    plain,
)
from mrc_testbed.switch.compiler.sema.warn import reachable


@dataclass(eq=False, repr=False)
class DeclarationChecker:
    """Checks declarations and enters their names, each kind of node by a method of the table below."""

    context: CheckContext
    types: TypeResolver
    expressions: ExpressionChecker
    calls: CallChecker
    copies: CopyMaker
    constructors: ConstructorChecker
    statements: StatementChecker
    tables: TableChecker
    states: StateChecker

    def declaration(self, node: Any, scope: Scope) -> None:
        """Check one declaration and enter its name."""
        names = getattr(node, "type_params", [])
        duplicate = next((name for index, name in enumerate(names) if name in names[:index]), None)
        if duplicate:
            fail(node.location, f"{node.name} has two type parameters {duplicate}")
        scope.open.append(getattr(node, "name", ""))
        try:
            self.KINDS[type(node)](self, node, scope)
        finally:
            scope.open.pop()

    def _errors(self, node: tree.Errors, _scope: Scope) -> None:
        for name in node.names:
            if name in self.context.errors:
                fail(node.location, f"error {name} is declared twice")
            if name == "NoError":  # number 0, even when a program declares errors before it includes core.p4
                self.context.errors.insert(0, name)
            else:
                self.context.errors.append(name)

    def _match_kinds(self, node: tree.MatchKinds, _scope: Scope) -> None:
        for name in node.names:
            if name in self.context.match_kinds:
                fail(node.location, f"match_kind {name} is declared twice")
            self.context.match_kinds.append(name)

    def _typedef(self, node: tree.Typedef, scope: Scope) -> None:
        target_type = self.types.resolve(node.type_node, scope)
        if node.new and not is_value(target_type):
            fail(
                node.location, f"type {node.name}: {target_type} cannot be made a new type; bit<N>, int<N> and bool can"
            )
        if node.new:
            _translation(node)
        scope.declare(node.name, NewType(node.name, target_type, node) if node.new else target_type, node.location)

    def _aggregate(self, node: tree.Aggregate, scope: Scope) -> None:
        record = Record(node.name, node.kind, {}, node)
        inner = Scope(scope)
        for name in node.type_params:
            inner.names[name] = Variable(name)
        for field in node.fields:
            if field.name in record.fields:
                fail(field.location, f"{node.kind} {node.name} has two fields {field.name}")
            field_type = self.types.resolve(field.type_node, inner)
            self._field_fits(node, field, field_type)
            record.fields[field.name] = field_type
            for number in field.lists:
                self.expressions.expr(number, scope)
                if isinstance(number.type, EnumType) and number.type.underlying_type:
                    self.expressions.coerce(number, number.type.underlying_type)
                if not isinstance(number.const, int) or isinstance(number.const, bool):
                    fail(number.location, "@field_list: the number of a list must be an integer known at compile time")
        node.record = record
        scope.declare(node.name, record, node.location)

    @staticmethod
    def _field_fits(node: tree.Aggregate, field: tree.Field, field_type: Type) -> None:
        base = plain(field_type)
        if node.kind == "header_union" and not (isinstance(base, Record) and base.kind == "header"):
            fail(
                field.location, f"header_union {node.name}: a member of type {field_type}; only headers can be members"
            )
        if node.kind == "header" and not isinstance(base, (Bits, Varbit, Variable)) and base != BOOL:
            if (isinstance(base, Stack) or (isinstance(base, Record) and base.kind == "struct")) and is_data(base):
                return
            fail(
                field.location,
                f"header {node.name}: a field of type {field_type}; bit<N>, int<N>, bool and varbit<N> can be sent",
            )
        if isinstance(field_type, Object) or base in (VOID, INT, STRING):
            fail(field.location, f"field {field.name} cannot be a {field_type}")

    def _enum(self, node: tree.Enum, scope: Scope) -> None:
        underlying = self.types.resolve(node.underlying_type, scope) if node.underlying_type else None
        if underlying is not None and not isinstance(underlying, Bits):
            fail(node.location, f"enum {node.name}: the underlying type must be bit<N> or int<N>, not {underlying}")
        enum = EnumType(node.name, [], underlying)
        for name, value, location in node.members:
            if name in enum.members:
                fail(location, f"enum {node.name} has two members {name}")
            if (value is None) == (underlying is not None):
                rule = "needs a value" if value is None else "takes no value: the enum has no underlying type"
                fail(location, f"enum {node.name}: member {name} {rule}")
            enum.members.append(name)
            if value is not None and underlying is not None:
                number = self.expressions.constant(value, scope)
                if value.type == INT and underlying.wrap(number) != number:
                    fail(value.location, f"enum {node.name}: the value {number} of {name} does not fit {underlying}")
                self.expressions.coerce(value, underlying, f"value of {name}")
                enum.values[name] = value.const
        scope.declare(node.name, enum, node.location)

    def _extern(self, node: tree.ExternObject, scope: Scope) -> None:
        scope.declare(node.name, Object("extern", node), node.location)

    def _method(self, node: tree.Method, scope: Scope) -> None:
        overloads = scope.names.get(node.name)
        if isinstance(overloads, list):
            overloads.append(node)
        else:
            scope.declare(node.name, [node], node.location)

    @staticmethod
    def _check_type_variables(node: tree.Function | tree.Control, body: Any) -> None:
        """Raise P4Error for an operator on a parameter of any type: only == and != are defined."""
        type_variables = {
            param.name: param.type_node.name
            for param in node.params
            if isinstance(param.type_node, tree.NamedType) and param.type_node.name in node.type_params
        }
        for e in tree.walk(body):
            if isinstance(e, tree.Binary) and e.op not in ("==", "!="):
                for side in (e.lhs, e.rhs):
                    if isinstance(side, tree.PathExpression) and side.name in type_variables:
                        name = type_variables[side.name]
                        fail(e.location, f"{e.op} is not defined on {name}, which may be any type: only == and != are")

    def _function(self, node: tree.Function, scope: Scope) -> None:
        if node.type_params:
            self._check_type_variables(node, node.body)
            scope.declare(node.name, node, node.location)
            return
        if self.copies.needs_numbers(node, scope):
            self._overload(node, scope)
            return
        node.type = self.types.resolve(node.result, scope)
        inner = Scope(scope)
        for param in node.params:
            param.type = self.types.resolve(param.type_node, inner)
            if not param.direction and not is_scalar(param.type) and param.type != STRING:
                param.direction = "in"
            inner.declare(param.name, param, param.location)
        self.calls.defaults(node.params, inner)
        self.context.in_function = node
        self.statements.block(node.body, Scope(inner))
        self.context.in_function = None
        if node.type != VOID and not _returns(node.body):
            fail(node.location, f"function {node.name} may end without `return`: it returns a {node.type}")
        self._overload(node, scope)

    @staticmethod
    def _overload(node: tree.Function, scope: Scope) -> None:
        """Enter a function beside the others of its name."""
        overloads = scope.names.get(node.name)
        if isinstance(overloads, tree.Function):
            scope.names[node.name] = [overloads, node]
        elif isinstance(overloads, list) and isinstance(overloads[0], tree.Function):
            overloads.append(node)
        else:
            scope.declare(node.name, node, node.location)

    def _package(self, node: tree.Package, scope: Scope) -> None:
        scope.declare(node.name, Object("package", node), node.location)

    def _value_set(self, node: tree.ValueSet, scope: Scope) -> None:
        node.element = self.types.resolve(node.type_node, scope)
        self.expressions.constant(node.size, scope)
        for value_set_field in value_set_fields(node.element):
            if not is_value(value_set_field):
                raise_unsupported(node.location, f"a value_set of {node.element}")
        node.type = Object("value_set", node)
        scope.declare(node.name, node, node.location)

    def _instance(self, node: tree.Instance, scope: Scope) -> None:
        node.type = self.types.resolve(node.type_node, scope)
        if not isinstance(node.type, Object) or node.type.kind == "table":
            fail(node.location, f"{node.name}: {node.type} has no constructor")
        if node.has_body:
            raise_unsupported(node.location, "an extern with abstract methods")
        if node.type.kind in ("parser", "control") and scope is self.context.top:
            fail(
                node.location,
                f"{node.name}: a {node.type.kind} cannot be made at the top level: declare it in the {node.type.kind} "
                "that applies it, or give it to V1Switch as Name()",
            )
        if (
            node.type.kind == "parser"
            and isinstance(self.context.owner, tree.Control)
            and scope is not self.context.top
        ):
            fail(node.location, f"{node.name}: a parser can be made only in a parser")
        if (
            node.type.kind == "control"
            and isinstance(self.context.owner, tree.Parser)
            and scope is not self.context.top
        ):
            fail(node.location, f"{node.name}: a control can be made only in a control")
        if node.type.kind == "package" and scope is not self.context.top:
            fail(node.location, "a package can be instantiated only at the top level")
        # The type may become that of a copy made for the constructor's values.
        node.type = self.constructors.construct(node.type, node.args, node, scope)
        scope.declare(node.name, node, node.location)

    # ---- parsers and controls

    def _enter(self, node: Any, _kind: str, scope: Scope) -> Scope:
        """Scope for the declarations of a parser or control, inside that of its parameters.

        The parameters of the constructor are instances or constants.
        """
        inner = Scope(scope)
        for name in node.type_params:
            inner.names[name] = Variable(name)
        for param in (*node.params, *node.ctor):
            param.type = self.types.resolve(param.type_node, inner)
        for param in node.params:
            if isinstance(param.type, Object) and param.type.kind != "extern":
                fail(
                    param.location,
                    f"parameter {param.name}: a {param.type.kind} is given to the constructor, "
                    f"`{node.name}(...)({param.type} {param.name})`, not to apply()",
                )
        values = self.copies.constructor_values.get(id(node), {})
        for param in (*node.params, *node.ctor):
            known_as: Any = param
            if param.name in values:
                known_as = tree.Const(param.location, [], param.name, param.type_node, values[param.name], param.type)
            inner.declare(param.name, known_as, param.location)
        self.calls.defaults([*node.params, *node.ctor], inner)
        own_names = Scope(inner)
        own_names.hidden_params = node.params  # as in p4c; those of the constructor cannot be hidden
        return own_names

    def _control(self, node: tree.Control, scope: Scope) -> None:
        if node.body is not None and self.copies.is_copied(node, scope):
            self._check_type_variables(node, (node.locals, node.body))
            scope.declare(node.name, Object("control", node), node.location)
            return
        inner = self._enter(node, "control", scope)
        self.context.owner = node
        if node.body is not None:
            inner.later = locations_of(node.locals)
            for local in node.locals:
                self.context.attempt(self.declaration, local, inner)
            self.statements.block(node.body, Scope(inner))
            implicit = self.context.implicit.get(id(node), [])
            in_tables = [member for member in implicit if isinstance(member, tree.Instance) and member.table]
            node.locals = [
                decl
                for local in node.locals
                for decl in (*(x for x in in_tables if isinstance(local, tree.Table) and x.table == local.name), local)
            ] + [member for member in implicit if all(member is not x for x in in_tables)]
        scope.declare(node.name, Object("control", node), node.location)

    def _parser(self, node: tree.Parser, scope: Scope) -> None:
        if node.states is not None and self.copies.is_copied(node, scope):
            scope.declare(node.name, Object("parser", node), node.location)
            return
        inner = self._enter(node, "parser", scope)
        self.context.owner = node
        if node.states is not None:
            inner.later = locations_of(node.locals)
            for local in node.locals:
                self.context.attempt(self.declaration, local, inner)
            names = [state.name for state in node.states]
            for state in node.states:
                if state.name in ("accept", "reject") or names.count(state.name) > 1:
                    problem = "exists twice" if names.count(state.name) > 1 else "is built in"
                    fail(state.location, f"state {state.name} {problem}")
            if "start" not in names:
                fail(node.location, f"parser {node.name} has no state start")
            self.context.in_parser = True
            for state in node.states:
                self.states.state(state, [*names, "accept", "reject"], inner)
            self.context.in_parser = False
            if not {"accept", "reject"} & reachable(node.states):
                fail(node.location, f"parser {node.name} never ends: no way from start leads to accept or reject")
            node.locals += self.context.implicit.get(id(node), [])
        scope.declare(node.name, Object("parser", node), node.location)

    def _const(self, node: tree.Const, scope: Scope) -> None:
        self.statements.const(node, scope)

    def _var(self, node: tree.Var, scope: Scope) -> None:
        self.statements.var(node, scope)

    def _action(self, node: tree.Action, scope: Scope) -> None:
        self.tables.action(node, scope)

    def _table(self, node: tree.Table, scope: Scope) -> None:
        self.tables.table(node, scope)

    KINDS: ClassVar[Mapping[type[tree.Node], Callable[[DeclarationChecker, Any, Scope], None]]] = {
        tree.Errors: _errors,
        tree.MatchKinds: _match_kinds,
        tree.Const: _const,
        tree.Var: _var,
        tree.Typedef: _typedef,
        tree.Aggregate: _aggregate,
        tree.Enum: _enum,
        tree.ExternObject: _extern,
        tree.Method: _method,
        tree.Function: _function,
        tree.Package: _package,
        tree.ValueSet: _value_set,
        tree.Instance: _instance,
        tree.Action: _action,
        tree.Table: _table,
        tree.Control: _control,
        tree.Parser: _parser,
    }


def _translation(node: tree.Typedef) -> None:
    """Check @p4runtime_translation: a string, and a number of bits, bit<N> or string."""
    note = node.annotation("p4runtime_translation")
    if note is None:
        return
    uri, comma, *target = [token for token in note.body or []] + [None] * 2
    words = [token.text for token in target if token is not None]
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
            note.location,
            "malformed @p4runtime_translation: it has a string and the type for the control plane, bit<N>, N or "
            'string, such as @p4runtime_translation("example.org/port", bit<32>)',
        )


def _returns(node: Any) -> bool:
    """Return whether a statement always ends in `return`."""
    if isinstance(node, tree.Block):
        return any(map(_returns, node.body))
    if isinstance(node, tree.If):
        return node.if_false is not None and _returns(node.if_true) and _returns(node.if_false)
    if isinstance(node, tree.SwitchStatement):
        ends = any(isinstance(case.label, tree.DontCare) for case in node.cases)
        return ends and all(case.body is None or _returns(case.body) for case in node.cases)
    return isinstance(node, tree.Return)
