"""Instances that a program is made of (controls, tables, actions, externs), and their names.

A declaration may be instantiated many times; every instance has its own tables and state, and its own name for the
control plane: the names from the top control down, joined by dots, each as its @name says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from mrc_testbed.switch.compiler.backend.code import c_word
from mrc_testbed.switch.compiler.errors import Location, P4Error, P4Warning, fail, raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.frontend.tree import walk
from mrc_testbed.switch.compiler.sema.check_calls import check_whole_bytes, pair
from mrc_testbed.switch.compiler.sema.check_copies import numbers_of
from mrc_testbed.switch.compiler.sema.scope import Scope
from mrc_testbed.switch.compiler.sema.types import Bits, Object, Record, Stack, Type, is_value, plain
from mrc_testbed.switch.compiler.sema.warn import is_built_in

EXTERNS = ("action_profile", "action_selector", "counter", "direct_counter", "direct_meter", "meter", "register")
"""Extern objects the backend has; others are refused by name."""
_PACKAGE = ("p", "vr", "ig", "eg", "ck", "dep")
_ORDER = "; the order is V1Switch(parser, verify checksum, ingress, egress, compute checksum, deparser)"
_MAX_SIZE = 1 << 26
"""Most cells of a counter or register array, and entries of a table."""


@dataclass(eq=False, repr=False)
class ActionInstance:
    """An action of one instance of a control, or of the program."""

    name: str
    decl: tree.Action
    word: str = ""
    """Name as a C word, unique among actions."""
    used: bool = False
    """Whether a table that is applied lists the action."""


@dataclass(eq=False, repr=False)
class ExternInstance:
    """A counter, register, action profile or selector; `index` counts those of its kind."""

    name: str
    kind: str
    decl: tree.Instance
    args: dict[str, Any]
    index: int = -1
    tables: list[TableInstance] = field(default_factory=list)
    """Applied tables that it belongs to."""
    has_table: bool = False
    """Whether a table names it, applied or not."""

    @property
    def cell(self) -> Type:
        """Return the type of a register's cells."""
        cell_type: Type = self.decl.type.args[0]
        return cell_type


@dataclass(eq=False, repr=False)
class TableInstance:
    """A table of one instance of a control."""

    name: str
    decl: tree.Table
    control: ControlInstance
    actions: list[ActionInstance] = field(default_factory=list)
    profile: ExternInstance | None = None
    direct_counter: ExternInstance | None = None
    direct_meter: ExternInstance | None = None
    applied: bool = False
    word: str = ""
    """Name as a C word, unique among tables."""

    @property
    def size(self) -> int:
        """Most entries; 1024 when the program does not say, as p4c does it."""
        size = self.decl.properties.get("size")
        return (size.expr.const if size else 0) or 1024

    def priorities(self) -> list[int]:
        """Return the priorities of the initial entries; the largest wins (P4_16 §14.2.1.4)."""
        properties, entries = self.decl.properties, self.decl.entries or []
        largest = properties["largest_priority_wins"].expr.const if "largest_priority_wins" in properties else True
        step = properties["priority_delta"].expr.const if "priority_delta" in properties else 1
        priority_notes = [
            next((a for a in entry.action.annotations if a.name == "priority"), None) for entry in entries
        ]
        if any(priority_notes):
            return self._noted_priorities(priority_notes)
        out: list[int] = []
        for entry in entries:
            if entry.priority is not None:
                out.append(entry.priority.const)
            elif not out:
                out.append((len(entries) - 1) * step + 1 if largest else 1)
            else:
                out.append(out[-1] - step if largest else out[-1] + step)
            if out[-1] < 0:
                fail(entry.action.location, f"table {self.name}: the priority of this entry would be {out[-1]}")
        out = out if largest else [max(out) + 1 - priority for priority in out]
        return [priority + 1 for priority in out] if 0 in out else out  # 0 is no priority for P4Runtime

    @staticmethod
    def _noted_priorities(notes: list[tree.Annotation | None]) -> list[int]:
        """Return the priorities by @priority(n), which p4c had before the language did; the smallest n wins.

        Without the annotation, n is the position of the entry.
        """
        out = []
        for position, note in enumerate(notes, 1):
            number = position
            if note is not None:
                value = note.number()
                if value is None or value < 1:
                    fail(note.location, "@priority needs one number, 1 or more")
                number = value
            out.append(number)
        return [max(out) + 1 - priority for priority in out]

    @property
    def keys(self) -> list[tree.KeyElement]:
        """Return the key without fields of kind `selector`, also in tables without a selector, as BMv2 does."""
        return [key_element for key_element in self.decl.key if key_element.match != "selector"]


@dataclass(eq=False, repr=False)
class ValueSetInstance:
    """A value_set of a parser: `index` counts them."""

    name: str
    decl: tree.ValueSet
    size: int
    index: int = -1


@dataclass(eq=False, repr=False)
class ControlInstance:
    """A control, or a parser."""

    name: str
    decl: Any
    members: dict[int, Any] = field(default_factory=dict)
    """id() of each local declaration -> its instance here."""


@dataclass(eq=False, repr=False)
class DigestInstance:
    """Digest: data of one type that calls of digest() send."""

    name: str
    type: Type
    location: Location


@dataclass(eq=False, repr=False)
class ElaboratedProgram:
    """A v1model program, put together. Lists are in the order in which p4c numbers them in P4Info."""

    name: str
    nodes: list[tree.Node]
    errors: list[str]
    main: tree.Instance
    parser: tree.Parser
    parsing: ControlInstance
    """The parser's instance."""
    verify: ControlInstance
    ingress: ControlInstance
    egress: ControlInstance
    compute: ControlInstance
    deparser: ControlInstance
    actions: list[ActionInstance]
    tables: list[TableInstance]
    externs: list[ExternInstance]
    digests: list[DigestInstance]
    value_sets: list[ValueSetInstance]
    warnings: list[P4Warning] = field(default_factory=list)

    def of_kind(self, *kinds: str) -> list[ExternInstance]:
        return [extern for extern in self.externs if extern.kind in kinds]


def plane_name(decl: tree.Decl, prefix: str) -> str:
    """Return the control plane's name: @name or the declared one, under `prefix`.

    A leading dot makes it absolute.
    """
    note = decl.annotation("name")
    name = decl.name
    if note:
        note_name = note.string()
        if not note_name:
            fail(note.location, "@name needs one string")
        name = note_name
    if name.startswith("."):
        return name[1:]
    return f"{prefix}.{name}" if prefix else name


def elaborate(
    name: str, nodes: list[tree.Node], checked: list[tree.Node], top: Scope, errors: list[str]
) -> ElaboratedProgram:
    """Put the program around its `main` package; `checked` has copies in place of nodes (Checker.checked).

    Raises P4Error.
    """
    return _Elaborator(top).program(name, nodes, checked, errors)


class _Elaborator:
    def __init__(self, top: Scope) -> None:
        self.top = top
        self.shared_instances: dict[int, Any] = {}
        self.externs: list[ExternInstance] = []
        self.tables: list[TableInstance] = []
        self.actions: list[ActionInstance] = []
        self.global_actions: dict[int, ActionInstance] = {}
        self.value_sets: list[ValueSetInstance] = []
        self.used_names: set[str] = set()
        """Names that numbered ones must not have."""

    def program(
        self, name: str, nodes: list[tree.Node], checked: list[tree.Node], errors: list[str]
    ) -> ElaboratedProgram:
        main = self.top.names.get("main")
        if not isinstance(main, tree.Instance):
            own_locations = [node.location for node in nodes if not is_built_in(node.location)]
            end = own_locations[-1] if own_locations else Location(f"{name}.p4", 1, 1)
            raise P4Error(end, "the program has no `main`: end it with V1Switch(...) main;")
        if main.type.decl.name != "V1Switch":
            raise_unsupported(main.location, f"the package {main.type.decl.name}", "only v1model's V1Switch is")
        parts = self._parts(main)
        for node in nodes:
            if isinstance(node, tree.Instance) and node is not main:
                self.shared_instances[id(node)] = self._instance(node, "", None)
        pairs = zip(_PACKAGE, main.args, strict=True)
        part_args = {a.name or p: a.value.args for p, a in pairs if isinstance(a.value, tree.Construct)}
        part_names = self._part_names(main, parts)
        parser = parts["p"]
        parsing = self._parser(parser, part_names["p"], part_args["p"], None)
        controls = [self._control(parts[part], part_names[part], part_args[part], None) for part in _PACKAGE[1:]]
        verify, ingress, egress, compute, deparser = controls
        # p4c drops tables that nothing applies; P4Info must agree with p4c's.
        for control in controls:
            self._mark(control)
        self.tables = [table for table in self.tables if table.applied]
        for table in self.tables:
            _check_direct_meter(table)
        for extern in self.externs:
            extern.tables = [table for table in extern.tables if table.applied]
        self._number()
        digests = _digests(checked)
        return ElaboratedProgram(
            name,
            nodes,
            errors,
            main,
            parser,
            parsing,
            verify,
            ingress,
            egress,
            compute,
            deparser,
            self.actions,
            self.tables,
            self.externs,
            digests,
            self.value_sets,
        )

    def _mark(self, control: ControlInstance) -> None:
        """Note which tables are applied, and by them which actions are used; p4c drops the others."""
        pending = [control.decl.body, *(local for local in control.decl.locals if isinstance(local, tree.Var))]
        while pending:
            self._mark_calls(pending.pop(), control, pending)

    def _mark_calls(self, body: Any, control: ControlInstance, pending: list[Any]) -> None:
        """Mark the tables and controls that `body` calls; keys of the tables found go to `pending`.

        A key may apply other tables.
        """
        for node in walk(body):
            if not isinstance(node, tree.Call) or node.callee is None:
                continue
            if node.callee.kind == "table":
                table: TableInstance = control.members[id(node.callee.decl)]
                if not table.applied:
                    pending.append(table.decl.key)
                table.applied = True
                for action in table.actions:
                    action.used = True
            elif node.callee.kind == "control":
                self._mark(control.members[id(node.callee.base.decl)])

    def _parts(self, main: tree.Instance) -> dict[str, Any]:
        """Return the parser and controls given to V1Switch, by parameter, with matching types."""
        args = main.args
        args_by_name = {a.name or p: a for p, a in zip(_PACKAGE, args, strict=False)}
        if set(args_by_name) != set(_PACKAGE) or len(args) != len(_PACKAGE):
            fail(main.location, f"V1Switch takes {len(_PACKAGE)} arguments ({', '.join(_PACKAGE)}), not {len(args)}")
        out = {}
        for name, arg in args_by_name.items():
            kind = "parser" if name == "p" else "control"
            value = arg.value
            part_type = self.top.find(value.target_type.name) if isinstance(value, tree.Construct) else None
            if not isinstance(part_type, Object) or part_type.kind != kind or not isinstance(value, tree.Construct):
                fail(arg.location, f"argument {name} of V1Switch must be a {kind}, made in place: Name(){_ORDER}")
            decl = value.type.decl if isinstance(value.type, Object) else part_type.decl
            body = decl.states if kind == "parser" else decl.body
            if body is None:
                fail(arg.location, f"{decl.name} is only declared, it has no body")
            out[name] = decl
        self._signatures(out, {name: arg.location for name, arg in args_by_name.items()})
        return out

    def _part_names(self, main: tree.Instance, parts: dict[str, Any]) -> dict[str, str]:
        """Return the control plane's name of each part: p4c numbers those that have a constructor's arguments."""
        self.used_names = {name for name, declaration in self.top.names.items() if isinstance(declaration, Object)}
        out = {}
        for position, arg in zip(_PACKAGE, main.args, strict=True):
            part = arg.name or position
            out[part] = self._free_name(parts[part].name) if parts[part].ctor else parts[part].name
        return out

    def _free_name(self, name: str) -> str:
        """Return the name with the first number behind it, from 0 on, that makes it a free one."""
        numbered_name = next(f"{name}_{n}" for n in count() if f"{name}_{n}" not in self.used_names)
        self.used_names.add(numbered_name)
        return numbered_name

    @staticmethod
    def _signatures(parts: dict[str, Any], locations: dict[str, Location]) -> None:
        """Every part must take what v1model gives it, headers and metadata of one type throughout."""
        shapes = {
            "p": ("packet_in", "out H", "inout M", "inout S"),
            "vr": ("inout H", "inout M"),
            "ig": ("inout H", "inout M", "inout S"),
            "eg": ("inout H", "inout M", "inout S"),
            "ck": ("inout H", "inout M"),
            "dep": ("packet_out", "in H"),
        }
        first: dict[str, Type] = {}
        for name, shape in shapes.items():
            decl = parts[name]
            if len(decl.params) != len(shape):
                has = f"{decl.name} has {len(decl.params)} parameters; v1model gives {len(shape)} here"
                fail(locations[name], f"{has} ({', '.join(shape)}){_ORDER}")
            for param, expected_param in zip(decl.params, shape, strict=False):
                direction, _, kind = expected_param.rpartition(" ")
                # Longer than one letter: a fixed type of core.p4. H, M and S stand for the program's own types.
                if len(kind) > 1:
                    if str(param.type) != kind:
                        problem = f"{decl.name}: parameter {param.name} must be a {kind}, not a {param.type}"
                        fail(locations[name], f"{problem}{_ORDER}")
                    continue
                if isinstance(param.type, Object):
                    contents = "the headers" if kind == "H" else "the metadata"
                    fail(
                        locations[name], f"{decl.name}: {param.name} is a {param.type} where {contents} belong{_ORDER}"
                    )
                if kind == "S" and str(param.type) != "standard_metadata_t":
                    fail(param.location, f"{decl.name}: parameter {param.name} must be a standard_metadata_t")
                base = plain(param.type)
                if kind != "S" and not (isinstance(base, Record) and base.kind == "struct"):
                    fail(param.location, f"{decl.name}: parameter {param.name} must be a struct, not a {param.type}")
                if param.direction != direction:
                    fail(param.location, f"{decl.name}: parameter {param.name} must be `{direction}`")
                if first.setdefault(kind, param.type) != param.type:
                    fail(
                        param.location, f"{decl.name}: {param.name} is a {param.type}, but the parser has {first[kind]}"
                    )
        for kind in ("H", "M"):
            _check_headers(first[kind])

    # ---- instances

    def _parser(
        self, decl: tree.Parser, name: str, args: list[tree.Arg], outer: ControlInstance | None
    ) -> ControlInstance:
        out = ControlInstance(name, decl)
        if numbers_of(decl.params):
            return out
        self._construct(out, args, outer)
        for local in decl.locals:
            if isinstance(local, tree.Instance):
                out.members[id(local)] = self._instance(local, name, out)
            elif isinstance(local, tree.ValueSet):
                value_set = ValueSetInstance(plane_name(local, name), local, local.size.const, len(self.value_sets))
                if not 0 < value_set.size <= _MAX_SIZE:
                    fail(local.location, f"{value_set.name}: size {value_set.size}: must be 1 to {_MAX_SIZE}")
                self.value_sets.append(value_set)
                out.members[id(local)] = value_set
        return out

    def _construct(self, out: ControlInstance, args: list[tree.Arg], outer: ControlInstance | None) -> None:
        """Give `out` the instances that its constructor is called with: they exist around it or are made here.

        An argument may be a parameter of the constructor of `outer`, the instance around it. Values are in the
        declaration itself (check.py: Template).
        """
        for param, value in pair(out.decl.name, out.decl.ctor, args, out.decl.location):
            if isinstance(value, tree.Construct) and isinstance(value.type, Object):
                # p4c numbers what is made among the arguments of V1Switch, as the parts themselves
                name = param.name if outer else self._free_name(param.name)
                instance = tree.Instance(value.location, [], name, value.target_type, value.args)
                instance.type = value.type
                out.members[id(param)] = self._instance(instance, out.name, outer)
            elif isinstance(param.type, Object):
                assert isinstance(value, tree.PathExpression)
                decl = value.decl
                outer_instance = outer.members.get(id(decl)) if outer else None
                out.members[id(param)] = outer_instance or self.shared_instances.get(id(decl))

    def _control(
        self, decl: tree.Control, name: str, args: list[tree.Arg], outer: ControlInstance | None
    ) -> ControlInstance:
        out = ControlInstance(name, decl)
        if numbers_of(decl.params):  # never applied, or it would be a copy with constants
            return out
        self._construct(out, args, outer)
        local_tables: list[tree.Table] = []
        for local in decl.locals:
            if isinstance(local, tree.Action) and not numbers_of(local.params):
                action = ActionInstance(plane_name(local, name), local)
                out.members[id(local)] = action
                self.actions.append(action)
            elif isinstance(local, tree.Instance):
                out.members[id(local)] = self._instance(local, name, out)
            elif isinstance(local, tree.Table):
                out.members[id(local)] = TableInstance(plane_name(local, name), local, out)
                self.tables.append(out.members[id(local)])
                local_tables.append(local)
        for table in local_tables:
            self._table(out.members[id(table)])
        return out

    def _instance(self, node: tree.Instance, prefix: str, outer: ControlInstance | None) -> Any:
        absolute = node.table and node.annotation("name")  # p4c takes @name of a property as it stands
        name = plane_name(node, "" if absolute else prefix)
        object_type = node.type
        if object_type.kind == "control":
            return self._control(object_type.decl, name, node.args, outer)
        if object_type.kind == "parser":
            return self._parser(object_type.decl, name, node.args, outer)
        if object_type.kind == "package":
            raise_unsupported(node.location, "a second package")
        if object_type.decl.name not in EXTERNS:
            raise_unsupported(node.location, f"the extern {object_type.decl.name}")
        params = next(
            constructor for constructor in object_type.decl.constructors if len(constructor) == len(node.args)
        )
        args = {}
        for param, value in pair(object_type.decl.name, params, node.args, node.location):
            args[param.name] = value.const
            # p4c takes a size of 0 too, but for registers: no index of such an array is in range.
            min_size = int(object_type.decl.name == "register")
            if param.name == "size" and not min_size <= args["size"] <= _MAX_SIZE:
                fail(value.location, f"{name}: size {args['size']}: must be {min_size} to {_MAX_SIZE}")
        instance = ExternInstance(name, object_type.decl.name, node, args)
        self._check_register(instance)
        self.externs.append(instance)
        return instance

    @staticmethod
    def _check_register(instance: ExternInstance) -> None:
        location = instance.decl.location
        if instance.kind == "register":
            cell = plain(instance.cell)
            if not is_value(cell) or (isinstance(cell, Bits) and not cell.width):
                raise_unsupported(location, f"a register of {instance.cell}", "numbers, bool, enums and errors are")

    def _table(self, table: TableInstance) -> None:
        decl = table.decl
        for ref in decl.actions:
            table.actions.append(self._action_of(ref.decl, table.control))
        if (
            not any(action.decl.name == "NoAction" for action in table.actions)
            and "default_action" not in decl.properties
        ):
            # p4c adds NoAction, for defaults only, to a table without it and without a default action.
            no_action = self.top.find("NoAction")
            if isinstance(no_action, tree.Action):
                note = tree.Annotation(decl.location, "defaultonly", None, "")
                decl.actions.append(tree.ActionRef(decl.location, [note], "NoAction", None, False, no_action))
                table.actions.append(self._action_of(no_action, table.control))
        for name in ("implementation", "counters", "meters"):
            if name in decl.properties:
                path = decl.properties[name].value
                if not isinstance(path, tree.PathExpression):
                    fail(decl.location, f"table {decl.name}: `{name}` must name an instance")
                extern = table.control.members.get(id(path.decl)) or self.shared_instances.get(id(path.decl))
                assert isinstance(extern, ExternInstance)
                extern.tables.append(table)
                extern.has_table = True
                if name != "implementation" and len(extern.tables) > 1:
                    fail(decl.location, f"{extern.kind} {extern.name} belongs to one table, not to two")
                if name == "counters":
                    table.direct_counter = extern
                elif name == "meters":
                    table.direct_meter = extern
                else:
                    table.profile = extern

    def _action_of(self, decl: tree.Action | None, control: ControlInstance) -> ActionInstance:
        assert decl is not None
        action = control.members.get(id(decl)) or self.global_actions.get(id(decl))
        if action is None:
            action = ActionInstance(plane_name(decl, ""), decl)
            self.global_actions[id(decl)] = action
        return action

    def _share_names(self, actions: list[ActionInstance]) -> dict[ActionInstance, ActionInstance]:
        """Return the actions that share a name with an earlier one, by which the control plane means both.

        Programs translated from P4_14 have `@name(".nop")` in several controls. Each table still runs its own, so the
        parameters must be the same, and no table may have two of them.
        """
        twins: dict[ActionInstance, ActionInstance] = {}
        first_actions: dict[str, ActionInstance] = {}
        for action in actions:
            first_action = first_actions.setdefault(action.name, action)
            if first_action is not action and _data_of(first_action) == _data_of(action):
                twins[action] = first_action
        for table in self.tables:
            firsts = [twins.get(action, action) for action in table.actions]
            for action in table.actions:
                if firsts.count(twins.get(action, action)) > 1:
                    twins.pop(action, None)  # refused with the other double names
        return twins

    def _number(self) -> None:
        """Drop what p4c drops (actions in no table), put global actions first, and give externs their indexes."""
        used_actions = [action for action in (*self.global_actions.values(), *self.actions) if action.used]
        twins = self._share_names(used_actions)
        self.actions = [action for action in used_actions if action not in twins]
        counts: dict[str, int] = {}
        for extern in self.externs:
            kind = "profile" if extern.kind in ("action_profile", "action_selector") else extern.kind
            extern.index = counts.get(kind, 0)
            counts[kind] = extern.index + 1
        groups: tuple[Sequence[TableInstance | ActionInstance], ...] = (self.tables, self.actions)
        for group in groups:
            words: set[str] = set()
            for member in group:
                member.word = c_word(member.name)
                # Two dotted names may give one C word.
                while member.word in words:
                    member.word += "_"
                words.add(member.word)
        for action, first_action in twins.items():
            action.word = first_action.word
        names: dict[str, Any] = {}
        instances: list[TableInstance | ActionInstance | ExternInstance | ValueSetInstance]
        instances = [*self.tables, *self.actions, *self.externs, *self.value_sets]
        for instance in instances:
            first = names.setdefault(f"{type(instance).__name__} {instance.name}", instance)
            if first is not instance:
                fail(
                    instance.decl.location,
                    f"the control plane has two things called {instance.name}: give one another @name (the other is at "
                    f"{first.decl.location})",
                )


def _check_headers(p4_type: Type) -> None:
    """Raise P4Error for a header of no whole bytes in the type, sent or not, as p4c does."""
    base = plain(p4_type)
    if isinstance(base, Record):
        if base.kind == "header":
            check_whole_bytes(base, base.decl.location)
        for part in base.fields.values():
            _check_headers(part)
    elif isinstance(base, Stack):
        _check_headers(base.element)


def _check_direct_meter(table: TableInstance) -> None:
    """Raise P4Error when no code reads a table's direct meter: nothing is metered then."""
    meter = table.direct_meter
    pending: list[Any] = [table.control.decl, *(action.decl for action in table.actions)] if meter else []
    visited_ids: set[int] = set()
    while pending:
        caller = pending.pop()
        visited_ids.add(id(caller))
        for call in walk(caller.body):
            if isinstance(call, tree.Call) and call.callee is not None:
                if call.callee.name == "read" and str(call.callee.base.type).startswith("direct_meter"):
                    return
                if call.callee.kind == "action" and id(call.callee.decl) not in visited_ids:
                    pending.append(call.callee.decl)
    if meter:
        description = (
            f"table {table.decl.name}: no action reads its direct meter {meter.decl.name}, so nothing is metered"
        )
        fail(table.decl.location, f"{description}: write {meter.decl.name}.read(...) in an action of it")


def _data_of(action: ActionInstance) -> list[tuple[str, str]]:
    """The parameters that the control plane gives: (name, type)."""
    return [(plane_name(param, ""), str(param.type)) for param in action.decl.params if not param.direction]


def _digests(nodes: list[tree.Node]) -> list[DigestInstance]:
    """Return a program's digests, named after their data's type; unnamed ones numbered, as in p4c."""
    out: list[DigestInstance] = []
    for call in walk(nodes):
        if not isinstance(call, tree.Call) or call.callee is None or call.callee.kind != "function":
            continue
        data_type = call.callee.bound.get("T")
        if call.callee.name != "digest" or any(digest.type == data_type for digest in out):
            continue
        assert data_type is not None
        unnamed_count = sum(not isinstance(digest.type, Record) for digest in out)
        name = plane_name(data_type.decl, "") if isinstance(data_type, Record) else f"digest_{unnamed_count}"
        out.append(DigestInstance(name, data_type, call.location))
    return out
