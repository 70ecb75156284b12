"""Actions and tables: their properties and entries."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from typing import Any

from mrc_testbed.switch.compiler.errors import count, fail, known_names
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.check_calls import CallChecker, pair
from mrc_testbed.switch.compiler.sema.check_constructors import ConstructorChecker
from mrc_testbed.switch.compiler.sema.check_context import CheckContext
from mrc_testbed.switch.compiler.sema.check_copies import CopyMaker, numbers_of
from mrc_testbed.switch.compiler.sema.check_expr import ExpressionChecker
from mrc_testbed.switch.compiler.sema.check_keysets import KeysetChecker
from mrc_testbed.switch.compiler.sema.check_statements import StatementChecker
from mrc_testbed.switch.compiler.sema.check_types import TypeResolver
from mrc_testbed.switch.compiler.sema.scope import Scope, fail_undeclared
from mrc_testbed.switch.compiler.sema.types import BOOL, Object, is_value

TABLE_PROPERTIES = (
    "actions",
    "counters",
    "default_action",
    "entries",
    "implementation",
    "key",
    "largest_priority_wins",
    "meters",
    "priority_delta",
    "size",
    "support_timeout",
)


@dataclass(eq=False, repr=False)
class TableChecker:
    """Checks actions and tables."""

    context: CheckContext
    types: TypeResolver
    expressions: ExpressionChecker
    calls: CallChecker
    copies: CopyMaker
    constructors: ConstructorChecker
    statements: StatementChecker
    keysets: KeysetChecker

    def action(self, node: tree.Action, scope: Scope) -> None:
        """Check an action and enter its name."""
        if self.copies.needs_numbers(node, scope):
            scope.declare(node.name, node, node.location)
            return
        inner = Scope(scope)
        data = False
        for param in node.params:
            param.type = self.types.resolve(param.type_node, inner)
            if data and param.direction:
                fail(param.location, f"action {node.name}: parameters without direction come last")
            data = data or not param.direction
            if not param.direction and not is_value(param.type):
                fail(param.location, f"action {node.name}: the control plane cannot give a {param.type}")
            inner.declare(param.name, param, param.location)
        self.calls.defaults(node.params, inner)
        self.context.in_action = True
        self.statements.block(node.body, Scope(inner))
        self.context.in_action = False
        scope.declare(node.name, node, node.location)

    def table(self, node: tree.Table, scope: Scope) -> None:
        """Check a table and enter its name."""
        for name, property_ in node.properties.items():
            if name not in TABLE_PROPERTIES:  # of another target: without a meaning here
                if difflib.get_close_matches(name, TABLE_PROPERTIES, 1, 0.7):
                    fail(
                        property_.location,
                        f"table {node.name}: unknown property {name} {known_names(TABLE_PROPERTIES)}",
                    )
                self.expressions.expr(property_.expr, scope)
                self.context.warn(
                    "ignore-prop", property_.location, f"table {node.name}: property {name} means nothing here"
                )
        if node.entries is not None and not node.key:
            fail(
                node.location,
                f"table {node.name} has entries and no key: entries have a value for each field of the key",
            )
        self._key(node, scope)
        for index, ref in enumerate(node.actions):
            self._action_ref(ref, scope, node)
            if any(ref.decl is earlier.decl for earlier in node.actions[:index]):
                fail(ref.location, f"table {node.name}: action {ref.name} stands twice in `actions`")
        self._priorities(node)
        default = node.properties.get("default_action")
        if default:
            self._default(default, node, scope)
        if "largest_priority_wins" in node.properties:
            value_type = self.expressions.expr(node.properties["largest_priority_wins"].expr, scope)
            if value_type != BOOL or node.properties["largest_priority_wins"].expr.const is None:
                fail(node.properties["largest_priority_wins"].location, "largest_priority_wins is true or false")
        if (
            "priority_delta" in node.properties
            and self.expressions.constant(node.properties["priority_delta"].expr, scope) < 1
        ):
            fail(node.properties["priority_delta"].location, "priority_delta must be at least 1")
        if "size" in node.properties:
            self.expressions.constant(node.properties["size"].expr, scope)
        for name in ("implementation", "counters", "meters", "support_timeout"):
            if name in node.properties:
                self._special(node.properties[name], node, scope)
        for entry in node.entries or []:
            self._entry(entry, node, scope)
        self._order(node)
        scope.declare(node.name, node, node.location)

    def _key(self, node: tree.Table, scope: Scope) -> None:
        for key in node.key:
            key_type = self.expressions.expr(key.value, scope)
            if not is_value(key_type):
                fail(
                    key.location,
                    f"table {node.name}: a {key_type} cannot be a key; numbers, bool, enums and errors can",
                )
            if key.match not in self.context.match_kinds:
                homes = {
                    **dict.fromkeys(("exact", "lpm", "ternary"), "core.p4"),
                    **dict.fromkeys(("range", "optional", "selector"), "v1model.p4"),
                }
                home = homes.get(key.match)
                hint = f"(it is in {home}: write #include <{home}>)" if home else known_names(self.context.match_kinds)
                fail(key.location, f"table {node.name}: no match kind {key.match} {hint}")
        for key in [key_element for key_element in node.key if key_element.match == "lpm"][1:]:
            fail(key.location, f"table {node.name}: a second lpm key; BMv2 takes one (make this one ternary)")

    @staticmethod
    def _priorities(node: tree.Table) -> None:
        """Check where priorities stand: in `entries` not const, from the first on, if several can match."""
        entries = node.entries or []
        priorities = [entry.priority for entry in entries if entry.priority is not None]
        if not priorities:
            return
        location, prefix = priorities[0].location, f"table {node.name}: "
        if node.const_entries:
            fail(
                location, f"{prefix}const entries have the priorities of their order: leave out `priority`, or `const`"
            )
        if not any(key.match not in ("exact", "lpm", "selector") for key in node.key):
            fail(location, f"{prefix}entries of a table with exact and lpm keys only have no priority")
        if entries[0].priority is None:
            first = entries[0].keys[0].location
            fail(
                first,
                f"{prefix}the first entry needs a priority, for a later one has one: write priority = N: before it",
            )

    def _order(self, node: tree.Table) -> None:
        """Warn of entries that stand in another order than their priorities, or share one."""
        settings = {
            name: property_.value.const
            for name, property_ in node.properties.items()
            if hasattr(property_.value, "const")
        }
        largest, step = settings.get("largest_priority_wins", True), settings.get("priority_delta", 1)
        entries = node.entries or []
        previous: int | None = None
        priorities: set[int] = set()
        for entry in entries if entries and entries[0].priority is not None else []:
            location, now = entry.keys[0].location, previous
            if entry.priority is not None:
                location, now = entry.priority.location, entry.priority.const
            elif now is not None:
                now += -step if largest else step
            assert now is not None
            # Equal priorities leave open which entry wins.
            if now in priorities:
                self.context.warn(
                    "duplicate-priorities", location, f"table {node.name}: another entry has priority {now}, too"
                )
            elif previous is not None and (now > previous if largest else now < previous):
                wins = "it wins over those above it"
                self.context.warn(
                    "entries-out-of-priority-order",
                    location,
                    f"table {node.name}: priority {now} below {previous}: {wins}",
                )
            priorities.add(now)
            previous = now

    def _special(self, property_: tree.Property, node: tree.Table, scope: Scope) -> None:
        if isinstance(property_.value, tree.Construct):
            self._made_in_place(property_, property_.value, node, scope)
        value_type = self.expressions.expr(property_.expr, scope)
        if property_.name == "support_timeout":
            if property_.expr.const not in (True, False):
                fail(property_.location, f"table {node.name}: support_timeout is true or false")
            return
        kinds = {
            "implementation": ("action_profile", "action_selector"),
            "counters": ("direct_counter",),
            "meters": ("direct_meter",),
        }[property_.name]
        if not isinstance(value_type, Object) or value_type.decl.name not in kinds:
            fail(
                property_.location, f"table {node.name}: `{property_.name}` must be an instance of {' or '.join(kinds)}"
            )

    def _made_in_place(self, property_: tree.Property, value: tree.Construct, node: tree.Table, scope: Scope) -> None:
        """Make the instance of `counters = direct_counter(...)`, named after the table or by @name."""
        instance = tree.Instance(
            value.location, list(property_.annotations), node.name, value.target_type, value.args, table=node.name
        )
        instance.type = self.types.resolve(value.target_type, scope)
        if not isinstance(instance.type, Object) or instance.type.kind != "extern":
            fail(value.location, f"table {node.name}: `{property_.name}` needs an extern object")
        self.constructors.construct(instance.type, instance.args, instance, scope)
        self.context.implicit.setdefault(id(self.context.owner), []).append(instance)
        path = tree.PathExpression(value.location, node.name)
        inner = Scope(scope)
        inner.names[node.name] = instance
        self.expressions.expr(path, inner)
        property_.value = path
        scope.names.setdefault(f" {id(instance)}", instance)
        path.name = f" {id(instance)}"

    def _action_ref(self, ref: tree.ActionRef, scope: Scope, table: tree.Table) -> None:
        action = (scope.top() if ref.top else scope).find(ref.name)
        if action is None:
            fail_undeclared(ref.location, ref.name, scope, "action")
        if not isinstance(action, tree.Action):
            fail(ref.location, f"table {table.name}: {ref.name} is not an action")
        for number in numbers_of(action.params):
            fail(
                ref.location,
                f"table {table.name}: the control plane cannot give {number.name} of action {ref.name}, an int: "
                "give it a width, such as bit<32>",
            )
        ref.decl = action
        directed_params = [param for param in action.params if param.direction]
        given = ref.args or []
        if len(given) > len(directed_params) or (
            len(given) < len(directed_params) and any(p.default is None for p in directed_params)
        ):
            arg_count = count(len(directed_params), "argument")
            fail(ref.location, f"table {table.name}: action {ref.name} needs {arg_count} here: those with a direction")
        # A table binds only directed arguments; the control plane gives the others per entry.
        ref.args = []
        for param, value in pair(ref.name, directed_params, given, ref.location):
            if value is not param.default:
                self.expressions.expr(value, scope)
            self.expressions.coerce(value, param.type, f"argument {param.name} of {ref.name}")
            _no_table_in(value, param, ref.name)
            if param.direction != "in":
                self.expressions.writable(value, f"argument {param.name} of {ref.name}")
            ref.args.append(tree.Arg(value.location, None, value))

    def _default(self, property_: tree.Property, table: tree.Table, scope: Scope) -> None:
        """`default_action = a;` or `= a(1, 2);`: turned into an ActionRef kept as the property's value."""
        e = property_.value
        target = e.target if isinstance(e, tree.Call) else e
        if not isinstance(target, tree.PathExpression):
            fail(property_.location, f"table {table.name}: default_action must name an action")
        ref = tree.ActionRef(target.location, [], target.name, e.args if isinstance(e, tree.Call) else [], target.top)
        self._check_listed_action(ref, table, scope, "tableonly", "the default action")
        property_.value = ref

    def _check_listed_action(
        self, ref: tree.ActionRef, table: tree.Table, scope: Scope, excluded_by: str, use: str
    ) -> None:
        """Check an action of a default or entry with its arguments; refuse one with @`excluded_by`."""
        match = [candidate for candidate in table.actions if candidate.name == ref.name]
        if not match:
            fail(ref.location, f"table {table.name}: no action {ref.name} {known_names(a.name for a in table.actions)}")
        if any(note.name == excluded_by for note in match[0].annotations):
            fail(ref.location, f"table {table.name}: {ref.name} is @{excluded_by} and cannot be {use}")
        action = (scope.top() if ref.top else scope).find(ref.name)
        ref.decl = match[0].decl
        assert ref.decl is not None
        if action is not ref.decl and isinstance(action, tree.Action):
            listed_at = f"the one in `actions` is at {ref.decl.location}"
            fail(
                ref.location,
                f"table {table.name}: this {ref.name} is another action, at {action.location}; {listed_at}",
            )
        # Directed arguments may be repeated here, but only as `actions` has them.
        params = [candidate for candidate in ref.decl.params if not candidate.direction]
        given = ref.args or []
        names = {candidate.name for candidate in given}
        has_all_args = len(given) == len(ref.decl.params) or any(
            p.direction and p.name in names for p in ref.decl.params
        )
        pairs = pair(f"action {ref.name}", ref.decl.params if has_all_args else params, given, ref.location)
        ref.args = []
        listed_args = iter(match[0].args or [])
        for param, value in pairs:
            if value is not param.default:
                self.expressions.expr(value, scope)
            if param.direction:
                if not _same_source(value, next(listed_args).value):
                    description = f"table {table.name}: the argument of {ref.name}"
                    fail(value.location, f"{description} must be as it stands in `actions`")
                continue
            self.expressions.coerce(value, param.type, f"argument {param.name} of {ref.name}")
            if value.const is None:
                fail(value.location, f"argument {param.name} of {ref.name} must be known at compile time")
            ref.args.append(tree.Arg(value.location, None, value))

    def _entry(self, entry: tree.Entry, table: tree.Table, scope: Scope) -> None:
        if entry.priority is not None:
            self.expressions.constant(entry.priority, scope)
        kinds = [(key_element.value.type, True) for key_element in table.key]
        self.keysets.row(entry.keys, kinds, scope, f"entry of table {table.name}")
        self._check_listed_action(entry.action, table, scope, "defaultonly", "the action of an entry")


def _same_source(expr: Any, other_expr: Any) -> bool:
    """Return whether two expressions are written alike; locations, types and declarations are ignored."""
    if not isinstance(expr, tree.Node):
        return isinstance(expr, list) == isinstance(other_expr, list) and (
            all(map(_same_source, expr, other_expr)) and len(expr) == len(other_expr)
            if isinstance(expr, list)
            else expr == other_expr
        )
    names = [field.name for field in fields(expr) if field.name not in ("location", "type", "const", "decl", "callee")]
    return type(expr) is type(other_expr) and all(_same_source(getattr(expr, n), getattr(other_expr, n)) for n in names)


def _no_table_in(arg: tree.Expr, param: tree.Param, action: str) -> None:
    """Raise P4Error when an argument in a list of actions applies a table; a call may (p4c has both so)."""
    for node in tree.walk(arg):
        if isinstance(node, tree.Call) and node.callee is not None and node.callee.kind == "table":
            description = f"argument {param.name} of action {action} applies table {node.callee.decl.name}"
            fail(node.location, f"{description}: apply it before, and keep what it gives in a variable")
