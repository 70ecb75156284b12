"""Rules of statements, and of the constants and variables among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mrc_testbed.switch.compiler.errors import fail, known_names, raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.check_calls import CallChecker, Callee
from mrc_testbed.switch.compiler.sema.check_context import CheckContext
from mrc_testbed.switch.compiler.sema.check_copies import numbers_of
from mrc_testbed.switch.compiler.sema.check_expr import ExpressionChecker, value_key
from mrc_testbed.switch.compiler.sema.check_types import TypeResolver
from mrc_testbed.switch.compiler.sema.scope import Scope, locations_of
from mrc_testbed.switch.compiler.sema.types import (
    BOOL,
    INT,
    VOID,
    ActionRun,
    ApplyResult,
    Bits,
    EnumType,
    Object,
    Record,
    Stack,
    Type,
    is_value,
    plain,
)

_V1MODEL_VERSIONS = 20180101, 20200408
"""The first and the last version of v1model, as V1MODEL_VERSION has them."""


@dataclass(eq=False, repr=False)
class StatementChecker:
    """Checks statements, each kind of node by the method that the table below names."""

    context: CheckContext
    types: TypeResolver
    expressions: ExpressionChecker
    calls: CallChecker

    def block(self, node: tree.Block, scope: Scope) -> None:
        """Check the statements of a block, each for itself."""
        scope.later = locations_of(node.body)
        for statement in node.body:
            self.context.attempt(self.statement, statement, scope)

    def statement(self, node: Any, scope: Scope) -> None:
        """Check one statement."""
        self.KINDS[type(node)](self, node, scope)

    def const(self, node: tree.Const, scope: Scope) -> None:
        """Check a constant, of a block or of the program, and enter its name."""
        node.type = self.types.resolve(node.type_node, scope)
        node.value = self.expressions.value_for(node.value, node.type, scope, f"constant {node.name}")
        if value_key(node.value) is None:
            fail(node.value.location, f"constant {node.name}: the value is not known at compile time")
        if node.name == "__v1model_version" and not _V1MODEL_VERSIONS[0] <= node.value.const <= _V1MODEL_VERSIONS[1]:
            versions = "{} to {}".format(*_V1MODEL_VERSIONS)
            self.context.warn("mismatch", node.location, f"V1MODEL_VERSION {node.value.const}: v1model had {versions}")
        scope.declare(node.name, node, node.location)

    def var(self, node: tree.Var, scope: Scope) -> None:
        """Check a variable, of a block or of a parser or control, and enter its name."""
        node.type = self.types.resolve(node.type_node, scope)
        if isinstance(node.type, Object):
            fail(node.location, f"{node.name} cannot be a variable of type {node.type}")
        if node.type == INT:
            fail(node.location, f"{node.name} cannot be a variable of type int: make it a `const`, or give it a width")
        if node.value is not None:
            node.value = self.expressions.value_for(node.value, node.type, scope, f"initial value of {node.name}")
        scope.declare(node.name, node, node.location)

    def _block(self, node: tree.Block, scope: Scope) -> None:
        self.block(node, Scope(scope))

    def _instance(self, node: tree.Instance, _scope: Scope) -> None:
        fail(node.location, f"{node.name}: declare instances before `apply`, not among the statements")

    def _empty(self, node: tree.Empty, scope: Scope) -> None:
        pass

    def _exit(self, node: tree.Exit, _scope: Scope) -> None:
        if self.context.in_parser or self.context.in_function:
            fail(
                node.location,
                f"{'a parser' if self.context.in_parser else 'a function'} cannot exit: only controls and actions can",
            )

    def _return(self, node: tree.Return, scope: Scope) -> None:
        function = self.context.in_function
        if self.context.in_parser:
            fail(node.location, "return in a parser: a transition ends a state")
        if node.value is not None and (function is None or function.type == VOID):
            fail(node.location, "return with a value: only a function with a result returns one")
        if function is not None and function.type != VOID:
            if node.value is None:
                fail(node.location, f"function {function.name} returns a {function.type}: return needs a value")
            node.value = self.expressions.value_for(node.value, function.type, scope, f"result of {function.name}")

    def _assign(self, node: tree.Assign, scope: Scope) -> None:
        target_type = self.expressions.expr(node.target, scope)
        self.expressions.writable(node.target, "assignment")
        node.value = self.expressions.value_for(node.value, target_type, scope, "assignment")

    def _call(self, node: tree.CallStatement, scope: Scope) -> None:
        self.expressions.expr(node.call, scope)

    def _direct_apply(self, node: tree.DirectApply, scope: Scope) -> None:
        """`C.apply(x)`: an instance of its own, made here; the call is kept in the node."""
        object_type = self.types.resolve(node.object_type, scope)
        if not isinstance(object_type, Object) or object_type.kind not in ("control", "parser"):
            fail(node.location, f"{object_type} cannot be applied: only parsers and controls can")
        if object_type.decl.ctor:
            fail(node.location, f"{object_type} needs constructor arguments: declare an instance of it and apply that")
        call = tree.Call(node.location, tree.PathExpression(node.location, object_type.decl.name), [], node.args)
        if numbers_of(object_type.decl.params):
            object_type = Object(object_type.kind, self.calls.with_numbers(object_type.decl, call, scope))
        # Equal types get numbered instances: the control plane needs different names.
        implicit = self.context.implicit.get(id(self.context.owner), [])
        earlier = sum(
            isinstance(decl, tree.Instance) and decl.type.decl.name == object_type.decl.name for decl in implicit
        )
        name = object_type.decl.name + (f"_{earlier + 1}" if earlier else "")
        instance = tree.Instance(node.location, [], name, node.object_type, [])
        instance.type = object_type
        self.context.implicit.setdefault(id(self.context.owner), []).append(instance)
        target = tree.PathExpression(node.location, object_type.decl.name)
        target.decl, target.type = instance, object_type
        call.target, node.call = tree.Member(node.location, target, "apply"), call
        if (object_type.kind == "parser") != self.context.in_parser:
            fail(
                node.location,
                f"a {object_type.kind} cannot be applied in a {'parser' if self.context.in_parser else 'control'}",
            )
        self.calls.finish(
            node.call, Callee(object_type.kind, object_type.decl, "apply", target), object_type.decl.params, VOID, scope
        )
        node.call.type = VOID

    def _if(self, node: tree.If, scope: Scope) -> None:
        self.expressions.expr(node.condition, scope)
        if node.condition.type != BOOL:
            condition_type = plain(node.condition.type)
            header = isinstance(condition_type, Record) and condition_type.kind == "header"
            hint = "isValid() tells whether it is there" if header else "compare with 0, say"
            if isinstance(condition_type, ApplyResult):
                hint = f"write {condition_type.table.name}.apply().hit, or .miss"
            fail(node.condition.location, f"if needs bool, not {node.condition.type}: {hint}")
        self.statement(node.if_true, Scope(scope))
        if node.if_false is not None:
            self.statement(node.if_false, Scope(scope))

    def _for(self, node: tree.For, scope: Scope) -> None:
        inner = Scope(scope)
        for statement in node.start:
            self.statement(statement, inner)
        self.expressions.expr(node.condition, inner)
        if node.condition.type != BOOL:
            fail(node.condition.location, f"for needs bool, not {node.condition.type}: compare with 0, say")
        self.context.loops += 1
        for update in (*node.updates, node.body):
            self.statement(update, Scope(inner))
        self.context.loops -= 1

    def _for_in(self, node: tree.ForIn, scope: Scope) -> None:
        inner = Scope(scope)
        element_type = self.types.resolve(node.variable.type_node, scope)
        low = node.low
        # A cast to list<T> only names the element type: the list itself is what is gone over.
        if (
            isinstance(low, tree.Cast)
            and isinstance(low.target_type, tree.NamedType)
            and low.target_type.name == "list"
        ):
            if [self.types.resolve(arg, scope) for arg in low.target_type.args] != [element_type]:
                fail(low.location, f"for over a list of {element_type} needs list<{element_type}>")
            node.low = low.operand
        first = self.expressions.expr(node.low, scope)
        if node.high is not None:
            self.expressions.expr(node.high, scope)
            for expr in (node.low, node.high):
                self.expressions.coerce(expr, element_type, "end of the range")
            if not isinstance(plain(element_type), Bits):
                fail(node.location, f"for over a range needs numbers, not {element_type}")
        elif isinstance(node.low, tree.ListExpr):
            for expr in node.low.items:
                self.expressions.coerce(expr, element_type, "item of the list")
        elif not isinstance(first, Stack) or first.element != element_type:
            fail(node.low.location, f"for goes over a range, a list or an array of {element_type}, not over {first}")
        node.variable.type = element_type
        inner.declare(node.variable.name, node.variable, node.variable.location)
        self.context.loops += 1
        self.statement(node.body, Scope(inner))
        self.context.loops -= 1

    def _break(self, node: tree.Break, _scope: Scope) -> None:
        if not self.context.loops:
            fail(node.location, "break outside a loop")

    def _continue(self, node: tree.Continue, _scope: Scope) -> None:
        if not self.context.loops:
            fail(node.location, "continue outside a loop")

    def _switch(self, node: tree.SwitchStatement, scope: Scope) -> None:
        if self.context.in_action:
            raise_unsupported(node.location, "a switch in an action", "nor by p4c for BMv2: write if ... else")
        value_type = self.expressions.expr(node.value, scope)
        labels: set[Any] = set()
        if not isinstance(value_type, ActionRun) and not is_value(value_type):
            fail(
                node.value.location,
                f"switch on a {value_type}: action_run, numbers, bool, enums and errors have labels",
            )
        for case in node.cases:
            key = self._label(case, value_type, scope)
            if isinstance(case.label, tree.DontCare) and case is not node.cases[-1]:
                fail(case.location, "switch: default stands last")
            if key in labels:
                fail(case.location, "switch: this label stands twice")
            labels.add(key)
            if case.body is not None:
                self.block(case.body, Scope(scope))

    def _label(self, case: tree.Case, value_type: Type, scope: Scope) -> Any:
        """Check a label; returns what tells it from others."""
        if isinstance(case.label, tree.DontCare):
            return "default", None
        if isinstance(value_type, ActionRun):
            names = [action.name for action in value_type.table.actions]
            if not isinstance(case.label, tree.PathExpression) or case.label.name not in names:
                label_name = case.label.name if isinstance(case.label, tree.PathExpression) else "this"
                fail(
                    case.location,
                    f"switch: {label_name} is no action of table {value_type.table.name} {known_names(names)}",
                )
            return case.label.name
        self.expressions.expr(case.label, scope)
        self.expressions.coerce(case.label, value_type, "label of switch")
        if case.label.const is None:
            fail(case.location, "switch: a label must be known at compile time")
        return (
            value_type.values[case.label.const]
            if isinstance(value_type, EnumType) and value_type.underlying_type
            else case.label.const
        )

    KINDS: ClassVar[Mapping[type[tree.Node], Callable[[StatementChecker, Any, Scope], None]]] = {
        tree.Assign: _assign,
        tree.CallStatement: _call,
        tree.DirectApply: _direct_apply,
        tree.If: _if,
        tree.Block: _block,
        tree.Empty: _empty,
        tree.Const: const,
        tree.Var: var,
        tree.Instance: _instance,
        tree.Return: _return,
        tree.Exit: _exit,
        tree.For: _for,
        tree.ForIn: _for_in,
        tree.Break: _break,
        tree.Continue: _continue,
        tree.SwitchStatement: _switch,
    }
