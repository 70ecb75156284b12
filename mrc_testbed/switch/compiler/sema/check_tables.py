"""Actions and tables: their properties and entries."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from typing import Any

from mrc_testbed.switch.compiler.errors import count, fail, known
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.check_calls import CallChecker, no_table_in, pair
from mrc_testbed.switch.compiler.sema.check_constructors import ConstructorChecker
from mrc_testbed.switch.compiler.sema.check_context import CheckContext
from mrc_testbed.switch.compiler.sema.check_copies import CopyMaker, numbers_of
from mrc_testbed.switch.compiler.sema.check_expr import ExpressionChecker
from mrc_testbed.switch.compiler.sema.check_keysets import KeysetChecker
from mrc_testbed.switch.compiler.sema.check_statements import StatementChecker
from mrc_testbed.switch.compiler.sema.check_types import TypeResolver
from mrc_testbed.switch.compiler.sema.scope import Scope, undeclared
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
            scope.declare(node.name, node, node.where)
            return
        inner = Scope(scope)
        data = False
        for param in node.params:
            param.type = self.types.resolve(param.type_node, inner)
            if data and param.direction:
                fail(param.where, f"action {node.name}: parameters without direction come last")
            data = data or not param.direction
            if not param.direction and not is_value(param.type):
                fail(param.where, f"action {node.name}: the control plane cannot give a {param.type}")
            inner.declare(param.name, param, param.where)
        self.calls.defaults(node.params, inner)
        self.context.in_action = True
        self.statements.block(node.body, Scope(inner))
        self.context.in_action = False
        scope.declare(node.name, node, node.where)

    def table(self, node: tree.Table, scope: Scope) -> None:
        """Check a table and enter its name."""
        for name, property_ in node.properties.items():
            if name not in TABLE_PROPERTIES:  # of another target: without a meaning here
                if difflib.get_close_matches(name, TABLE_PROPERTIES, 1, 0.7):
                    fail(property_.where, f"table {node.name}: unknown property {name} {known(TABLE_PROPERTIES)}")
                self.expressions.expr(property_.expr, scope)
                self.context.warn(
                    "ignore-prop", property_.where, f"table {node.name}: property {name} means nothing here"
                )
        if node.entries is not None and not node.key:
            fail(
                node.where, f"table {node.name} has entries and no key: entries have a value for each field of the key"
            )
        self._key(node, scope)
        for at, ref in enumerate(node.actions):
            self._action_ref(ref, scope, node)
            if any(ref.decl is one.decl for one in node.actions[:at]):
                fail(ref.where, f"table {node.name}: action {ref.name} stands twice in `actions`")
        self._priorities(node)
        default = node.properties.get("default_action")
        if default:
            self._default(default, node, scope)
        if "largest_priority_wins" in node.properties:
            of = self.expressions.expr(node.properties["largest_priority_wins"].expr, scope)
            if of != BOOL or node.properties["largest_priority_wins"].expr.const is None:
                fail(node.properties["largest_priority_wins"].where, "largest_priority_wins is true or false")
        if (
            "priority_delta" in node.properties
            and self.expressions.constant(node.properties["priority_delta"].expr, scope) < 1
        ):
            fail(node.properties["priority_delta"].where, "priority_delta must be at least 1")
        if "size" in node.properties:
            self.expressions.constant(node.properties["size"].expr, scope)
        for name in ("implementation", "counters", "meters", "support_timeout"):
            if name in node.properties:
                self._special(node.properties[name], node, scope)
        for entry in node.entries or []:
            self._entry(entry, node, scope)
        self._order(node)
        scope.declare(node.name, node, node.where)

    def _key(self, node: tree.Table, scope: Scope) -> None:
        for key in node.key:
            of = self.expressions.expr(key.value, scope)
            if not is_value(of):
                fail(key.where, f"table {node.name}: a {of} cannot be a key; numbers, bool, enums and errors can")
            if key.match not in self.context.match_kinds:
                homes = {
                    **dict.fromkeys(("exact", "lpm", "ternary"), "core.p4"),
                    **dict.fromkeys(("range", "optional", "selector"), "v1model.p4"),
                }
                home = homes.get(key.match)
                hint = f"(it is in {home}: write #include <{home}>)" if home else known(self.context.match_kinds)
                fail(key.where, f"table {node.name}: no match kind {key.match} {hint}")
        for key in [one for one in node.key if one.match == "lpm"][1:]:
            fail(key.where, f"table {node.name}: a second lpm key; BMv2 takes one (make this one ternary)")

    @staticmethod
    def _priorities(node: tree.Table) -> None:
        """Priorities stand in `entries` that are not const, from the first on, where more than one entry can match."""
        entries = node.entries or []
        given = [entry.priority for entry in entries if entry.priority is not None]
        if not given:
            return
        where, what = given[0].where, f"table {node.name}: "
        if node.const_entries:
            fail(where, f"{what}const entries have the priorities of their order: leave out `priority`, or `const`")
        if not any(key.match not in ("exact", "lpm", "selector") for key in node.key):
            fail(where, f"{what}entries of a table with exact and lpm keys only have no priority")
        if entries[0].priority is None:
            first = entries[0].keys[0].where
            fail(
                first, f"{what}the first entry needs a priority, for a later one has one: write priority = N: before it"
            )

    def _order(self, node: tree.Table) -> None:
        """Warn of entries that stand in another order than their priorities, or share one."""
        given = {
            name: property_.value.const
            for name, property_ in node.properties.items()
            if hasattr(property_.value, "const")
        }
        largest, step = given.get("largest_priority_wins", True), given.get("priority_delta", 1)
        entries = node.entries or []
        before: int | None = None
        seen: set[int] = set()
        for entry in entries if entries and entries[0].priority is not None else []:
            where, now = entry.keys[0].where, before
            if entry.priority is not None:
                where, now = entry.priority.where, entry.priority.const
            elif now is not None:
                now += -step if largest else step
            assert now is not None
            if now in seen:
                self.context.warn(
                    "duplicate-priorities", where, f"table {node.name}: another entry has priority {now}, too"
                )
            elif before is not None and (now > before if largest else now < before):
                wins = "it wins over those above it"
                self.context.warn(
                    "entries-out-of-priority-order", where, f"table {node.name}: priority {now} below {before}: {wins}"
                )
            seen.add(now)
            before = now

    def _special(self, one: tree.Property, node: tree.Table, scope: Scope) -> None:
        if isinstance(one.value, tree.Construct):
            self._made_in_place(one, one.value, node, scope)
        of = self.expressions.expr(one.expr, scope)
        if one.name == "support_timeout":
            if one.expr.const not in (True, False):
                fail(one.where, f"table {node.name}: support_timeout is true or false")
            return
        kinds = {
            "implementation": ("action_profile", "action_selector"),
            "counters": ("direct_counter",),
            "meters": ("direct_meter",),
        }[one.name]
        if not isinstance(of, Object) or of.decl.name not in kinds:
            fail(one.where, f"table {node.name}: `{one.name}` must be an instance of {' or '.join(kinds)}")

    def _made_in_place(self, one: tree.Property, value: tree.Construct, node: tree.Table, scope: Scope) -> None:
        """`counters = direct_counter(...)`: an instance with the name of the table, or of @name on the property."""
        made = tree.Instance(value.where, list(one.annotations), node.name, value.to, value.args, table=node.name)
        made.type = self.types.resolve(value.to, scope)
        if not isinstance(made.type, Object) or made.type.kind != "extern":
            fail(value.where, f"table {node.name}: `{one.name}` needs an extern object")
        self.constructors.construct(made.type, made.args, made, scope)
        self.context.implicit.setdefault(id(self.context.owner), []).append(made)
        path = tree.PathExpression(value.where, node.name)
        inner = Scope(scope)
        inner.names[node.name] = made
        self.expressions.expr(path, inner)
        one.value = path
        scope.names.setdefault(f" {id(made)}", made)
        path.name = f" {id(made)}"

    def _action_ref(self, ref: tree.ActionRef, scope: Scope, table: tree.Table) -> None:
        found = (scope.top() if ref.top else scope).find(ref.name)
        if found is None:
            undeclared(ref.where, ref.name, scope, "action")
        if not isinstance(found, tree.Action):
            fail(ref.where, f"table {table.name}: {ref.name} is not an action")
        for number in numbers_of(found.params):
            fail(
                ref.where,
                f"table {table.name}: the control plane cannot give {number.name} of action {ref.name}, an int: "
                "give it a width, such as bit<32>",
            )
        ref.decl = found
        directed = [one for one in found.params if one.direction]
        given = ref.args or []
        if len(given) > len(directed) or (len(given) < len(directed) and any(p.default is None for p in directed)):
            wanted = count(len(directed), "argument")
            fail(ref.where, f"table {table.name}: action {ref.name} needs {wanted} here: those with a direction")
        ref.args = []
        for param, value in pair(ref.name, directed, given, ref.where):
            if value is not param.default:
                self.expressions.expr(value, scope)
            self.expressions.coerce(value, param.type, f"argument {param.name} of {ref.name}")
            no_table_in(value, param, ref.name)
            if param.direction != "in":
                self.expressions.writable(value, f"argument {param.name} of {ref.name}")
            ref.args.append(tree.Arg(value.where, None, value))

    def _default(self, one: tree.Property, table: tree.Table, scope: Scope) -> None:
        """`default_action = a;` or `= a(1, 2);`: turned into an ActionRef kept as the property's value."""
        e = one.value
        target = e.target if isinstance(e, tree.Call) else e
        if not isinstance(target, tree.PathExpression):
            fail(one.where, f"table {table.name}: default_action must name an action")
        ref = tree.ActionRef(target.where, [], target.name, e.args if isinstance(e, tree.Call) else [], target.top)
        self._listed(ref, table, scope, "tableonly", "the default action")
        one.value = ref

    def _listed(self, ref: tree.ActionRef, table: tree.Table, scope: Scope, barred: str, use: str) -> None:
        """Check an action of the table with the control plane's arguments given; one with @`barred` is not for this."""
        match = [one for one in table.actions if one.name == ref.name]
        if not match:
            fail(ref.where, f"table {table.name}: no action {ref.name} {known(a.name for a in table.actions)}")
        if any(note.name == barred for note in match[0].annotations):
            fail(ref.where, f"table {table.name}: {ref.name} is @{barred} and cannot be {use}")
        found = (scope.top() if ref.top else scope).find(ref.name)
        ref.decl = match[0].decl
        assert ref.decl is not None
        if found is not ref.decl and isinstance(found, tree.Action):
            where = f"the one in `actions` is at {ref.decl.where}"
            fail(ref.where, f"table {table.name}: this {ref.name} is another action, at {found.where}; {where}")
        params = [one for one in ref.decl.params if not one.direction]
        given = ref.args or []
        names = {one.name for one in given}
        whole = len(given) == len(ref.decl.params) or any(p.direction and p.name in names for p in ref.decl.params)
        pairs = pair(f"action {ref.name}", ref.decl.params if whole else params, given, ref.where)
        ref.args = []
        listed = iter(match[0].args or [])
        for param, value in pairs:
            if value is not param.default:
                self.expressions.expr(value, scope)
            if param.direction:
                if not _same_source(value, next(listed).value):
                    what = f"table {table.name}: the argument of {ref.name}"
                    fail(value.where, f"{what} must be as it stands in `actions`")
                continue
            self.expressions.coerce(value, param.type, f"argument {param.name} of {ref.name}")
            if value.const is None:
                fail(value.where, f"argument {param.name} of {ref.name} must be known at compile time")
            ref.args.append(tree.Arg(value.where, None, value))

    def _entry(self, entry: tree.Entry, table: tree.Table, scope: Scope) -> None:
        if entry.priority is not None:
            self.expressions.constant(entry.priority, scope)
        kinds = [(one.value.type, True) for one in table.key]
        self.keysets.row(entry.keys, kinds, scope, f"entry of table {table.name}")
        self._listed(entry.action, table, scope, "defaultonly", "the action of an entry")


def _same_source(one: Any, other: Any) -> bool:
    """Are two expressions written alike? Places, types and what names stand for are no part of that."""
    if not isinstance(one, tree.Node):
        return isinstance(one, list) == isinstance(other, list) and (
            all(map(_same_source, one, other)) and len(one) == len(other) if isinstance(one, list) else one == other
        )
    names = [field.name for field in fields(one) if field.name not in ("where", "type", "const", "decl", "callee")]
    return type(one) is type(other) and all(_same_source(getattr(one, n), getattr(other, n)) for n in names)
