"""Picture of a program in DOT: the parser's states, and the control flow of each control.

Boxes stand where control flow has a node: a parser state, a table with its key and actions, a condition, an action that
is called, a run of plain statements. Sub-controls are drawn where they are applied, sub-parsers beside their parser.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mrc_testbed.switch.compiler.errors import Location
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.frontend.tree import walk
from mrc_testbed.switch.compiler.frontend.tree_text import arguments, expression, statement, type_text
from mrc_testbed.switch.compiler.sema.elaborate import ControlInstance, ElaboratedProgram, TableInstance

WRAP = 46
"""Characters in a line of a box."""
_LINES = 12
"""Most lines of one run of statements or of one edge's label; the rest becomes "..."."""
_LEFT_BREAK = '<br align="left"/>'
_STYLE = {
    "state": 'shape=box style="rounded,filled" fillcolor="#e7f0dc"',
    "table": "shape=plain",
    "condition": 'shape=box style="rounded,filled" fillcolor="#fff3c8"',
    "action": 'shape=box style=filled fillcolor="#e3ecf8"',
    "code": 'shape=box style=filled fillcolor="#f7f7f7" color="#999999"',
    "end": 'shape=ellipse style=filled fillcolor="#dddddd"',
}
PARTS = ("parser", "verify", "ingress", "egress", "compute", "deparser")
"""Parts of a drawing, in the order in which packets see them."""

LooseEnds = list[tuple[int, str]]
"""Ends of the way drawn so far, waiting for the next box: (box, label of the edge)."""


class GraphError(Exception):
    """Unknown control; the message lists the known ones."""


@dataclass
class Box:
    """A box of the drawing."""

    number: int
    kind: str
    label: str
    location: Location | None
    lines: list[str] = field(default_factory=list)
    """Lines of a run of statements, which may still grow."""


@dataclass
class GraphGroup:
    """A frame around boxes, with a title."""

    title: str
    boxes: list[Box] = field(default_factory=list)
    groups: list[GraphGroup] = field(default_factory=list)


def graph(program: ElaboratedProgram, only: str | None = None) -> str:
    """Return the DOT text of a program, or of one part.

    A part is `parser`, `ingress`, ..., or a control's or sub-parser's name.

    Controls that do nothing are left out. Raises GraphError.
    """
    return _drawing_of(program, only).text(program.name)


def graph_json(program: ElaboratedProgram, only: str | None = None) -> dict[str, Any]:
    """Return the boxes and edges of the drawing that `graph` makes. Raises GraphError."""
    drawing = _drawing_of(program, only)
    return {
        "program": program.name,
        "boxes": [box for group in drawing.groups for box in _boxes_json(group, [])],
        "edges": [{"from": source, "to": target, "label": label} for source, target, label in drawing.edges],
    }


def _boxes_json(group: GraphGroup, titles: list[str]) -> Iterator[dict[str, Any]]:
    """Boxes of a group and of the groups in it; `titles`: those of the groups around it."""
    group_titles = [*titles, group.title]
    for box in group.boxes:
        text = "\n".join(box.lines) if box.kind == "code" else _plain(box.label)
        location = str(box.location) if box.location else None
        yield {"number": box.number, "kind": box.kind, "in": group_titles, "text": text, "where": location}
    for inner_group in group.groups:
        yield from _boxes_json(inner_group, group_titles)


def _plain(label: str) -> str:
    """Text of a label in DOT: quoted, or in its HTML."""
    if not label.startswith("<"):
        return label.removeprefix('"').removesuffix('"').replace("\\n", "\n").replace('\\"', '"')
    text = re.sub(r"<br[^>]*/>|</tr>", "\n", label[1:-1])
    return html.unescape(re.sub(r"<[^>]*>", "", text)).strip()


def _drawing_of(program: ElaboratedProgram, only: str | None) -> _Drawing:
    drawing = _Drawing()
    if only is None:
        for part in PARTS:
            if part == "parser" or program_part(program, part).decl.body.body:
                drawing.part(program, part)
    elif only in PARTS:
        drawing.part(program, only)
    else:
        drawing.instance(_find(program, only))
    return drawing


def program_part(program: ElaboratedProgram, part: str) -> ControlInstance:
    """The instance that is one of PARTS."""
    instance: ControlInstance = program.parsing if part == "parser" else getattr(program, part)
    return instance


def _find(program: ElaboratedProgram, name: str) -> ControlInstance:
    """An instance by its name for the control plane, or the name of what it is an instance of."""
    instances: dict[str, ControlInstance] = {}
    waiting = [program_part(program, part) for part in PARTS]
    while waiting:
        instance = waiting.pop(0)
        instances.setdefault(instance.name, instance)
        instances.setdefault(instance.decl.name, instance)
        waiting += [inner for inner in instance.members.values() if isinstance(inner, ControlInstance)]
    if name not in instances:
        raise GraphError(f"{program.name} has no control {name} (has: {', '.join((*PARTS, *sorted(instances)))})")
    return instances[name]


class _Drawing:
    """Boxes and edges, collected."""

    def __init__(self) -> None:
        self.groups: list[GraphGroup] = []
        self.edges: list[tuple[int, int, str]] = []
        self.boxes: list[Box] = []
        self.open_groups: list[GraphGroup] = []
        """Groups that are open, the innermost last."""
        self.leaves: list[LooseEnds] = []
        """Ends that `return` leaves, by open control."""
        self.exits: LooseEnds = []
        self.loops: list[tuple[LooseEnds, int]] = []
        """Open loops: ends left by `break`, and the box that `continue` leads to."""

    # ---- boxes

    def open(self, title: str) -> None:
        group = GraphGroup(title)
        (self.open_groups[-1].groups if self.open_groups else self.groups).append(group)
        self.open_groups.append(group)

    def box(self, kind: str, label: str, ends: LooseEnds, location: Location | None = None) -> int:
        """A new box behind the loose ends; its number."""
        new_box = Box(len(self.boxes), kind, label, location)
        self.boxes.append(new_box)
        self.open_groups[-1].boxes.append(new_box)
        self.join(ends, new_box.number)
        return new_box.number

    def join(self, ends: LooseEnds, target: int) -> None:
        self.edges += [(source, target, label) for source, label in ends if (source, target, label) not in self.edges]

    def code(self, text: str, ends: LooseEnds, location: Location) -> LooseEnds:
        """Plain statements: one box for those that follow each other."""
        last = self.boxes[-1] if self.boxes else None
        if last and last.kind == "code" and ends == [(last.number, "")] and last in self.open_groups[-1].boxes:
            last.lines += _wrap(text)
        else:
            ends = [(self.box("code", "", ends, location), "")]
            self.boxes[-1].lines += _wrap(text)
        return ends

    # ---- parts

    def part(self, program: ElaboratedProgram, part: str) -> None:
        instance = program_part(program, part)
        self.instance(instance, part if instance.decl.name.lower() != part else "")

    def instance(self, instance: ControlInstance, part: str = "") -> None:
        if isinstance(instance.decl, tree.Parser):
            self.parser(instance, part)
            return
        title = f"{part}: {instance.decl.name}" if part else f"control {instance.name}"
        self.open(title)
        self.exits = []
        ends: LooseEnds = [(self.box("end", _quote("start"), []), "")]
        ends = self.control_body(instance, ends)
        self.box("end", _quote("end"), [*ends, *self.exits])
        self.open_groups.pop()

    # ---- parsers

    def parser(self, instance: ControlInstance, part: str = "") -> None:
        """States and transitions; then the parsers that it applies."""
        self.open(f"{part}: {instance.decl.name}" if part else f"parser {instance.name}")
        states: dict[str, int] = {}
        for state in instance.decl.states:
            lines = [piece for node in state.body for piece in _lines(node)]
            select_keys = state.transition.keys if state.transition else []
            if select_keys:
                lines.append(f"select ({', '.join(map(expression, select_keys))})")
            states[state.name] = self.box("state", _title_label(state.name, lines), [], state.location)
        for state in instance.decl.states:
            self.transition(state, states)
        self.open_groups.pop()
        for inner in instance.members.values():
            if isinstance(inner, ControlInstance):
                self.parser(inner)

    def transition(self, state: tree.State, states: dict[str, int]) -> None:
        """The edges of a state: one for each target, however many cases lead there."""
        way = state.transition
        targets: dict[str, list[str]] = {}
        if way is None:
            targets["reject"] = []
        elif way.state is not None:
            targets[way.state] = []
        else:
            for case in way.cases:
                keys = ", ".join(map(expression, case.keys))
                matches_any = all(isinstance(key, tree.DontCare) for key in case.keys)
                label = "default" if matches_any else f"({keys})" if len(case.keys) > 1 else keys
                targets.setdefault(case.state, []).append(label)
            if not any("default" in labels for labels in targets.values()):
                targets.setdefault("reject", []).append("no match")
        for name, labels in targets.items():
            if name not in states:
                states[name] = self.box("end", _quote(name), [])
            self.edges.append((states[state.name], states[name], "\n".join(_shorten(labels))))

    # ---- controls

    def control_body(self, instance: ControlInstance, ends: LooseEnds) -> LooseEnds:
        self.leaves.append([])
        for node in instance.decl.locals:
            if isinstance(node, tree.Var) and node.value is not None:
                ends = self.code(statement(node), ends, node.location)
        ends = self.flow(instance.decl.body, ends, instance)
        return ends + self.leaves.pop()

    def flow(self, node: Any, ends: LooseEnds, instance: ControlInstance) -> LooseEnds:
        """Draw a statement after the loose ends; return the loose ends after it.

        Without loose ends there is no path, and the statement is not drawn.
        """
        if not ends or node is None:
            return ends
        if isinstance(node, tree.Block):
            for inner in node.body:
                ends = self.flow(inner, ends, instance)
            return ends
        if isinstance(node, (tree.CallStatement, tree.DirectApply)):
            return self.call(node, ends, instance)
        draw = self.DRAW_METHODS.get(type(node))
        if draw is not None:
            return draw(self, node, ends, instance)
        ends = self.tables_in(node, ends, instance)
        text = statement(node)
        return self.code(text, ends, node.location) if text else ends

    def call(
        self, node: tree.CallStatement | tree.DirectApply, ends: LooseEnds, instance: ControlInstance
    ) -> LooseEnds:
        call = node.call
        callee = call.callee
        if callee.kind == "table":
            return [(self.table(call, ends, instance), "")]
        if callee.kind == "control":
            inner = instance.members.get(id(callee.base.decl))
            if isinstance(inner, ControlInstance):
                self.open(f"{inner.name.rpartition('.')[2]}: {inner.decl.name}")
                ends = self.control_body(inner, ends)
                self.open_groups.pop()
                return ends
        ends = self.tables_in(call.args, ends, instance)
        if callee.kind == "action":
            location = node.location
            return [
                (self.box("action", _title_label(f"{callee.name}({arguments(call.args)})", []), ends, location), "")
            ]
        return self.code(statement(node), ends, node.location)

    def table(self, call: tree.Call, ends: LooseEnds, instance: ControlInstance) -> int:
        table: TableInstance = instance.members[id(call.callee.decl)]
        return self.box("table", _table(table), ends, table.decl.location)

    def tables_in(self, node: Any, ends: LooseEnds, instance: ControlInstance) -> LooseEnds:
        """Tables that an expression applies come before what it stands in."""
        for call in walk(node):
            if isinstance(call, tree.Call) and call.callee is not None and call.callee.kind == "table":
                ends = [(self.table(call, ends, instance), "")]
        return ends

    def _draw_if(self, node: tree.If, ends: LooseEnds, instance: ControlInstance) -> LooseEnds:
        condition, yes, no = node.condition, "true", "false"
        while isinstance(condition, tree.Unary) and condition.op == "!":
            condition, yes, no = condition.operand, no, yes
        result_member = condition if isinstance(condition, tree.Member) and condition.name in ("hit", "miss") else None
        call = result_member.base if result_member else None
        if result_member and isinstance(call, tree.Call) and call.callee and call.callee.kind == "table":
            box_number = self.table(call, ends, instance)
            if (result_member.name == "hit") == (yes == "true"):
                yes, no = "hit", "miss"
            else:
                yes, no = "miss", "hit"
        else:
            ends = self.tables_in(node.condition, ends, instance)
            box_number, yes, no = self.condition(expression(node.condition), ends, node.location), "true", "false"
        then_ends = self.flow(node.if_true, [(box_number, yes)], instance)
        return then_ends + self.flow(node.if_false, [(box_number, no)], instance)

    def condition(self, text: str, ends: LooseEnds, location: Location) -> int:
        return self.box("condition", _title_label("", _wrap(text)), ends, location)

    def _draw_switch(self, node: tree.SwitchStatement, ends: LooseEnds, instance: ControlInstance) -> LooseEnds:
        call = node.value.base if isinstance(node.value, tree.Member) and node.value.name == "action_run" else None
        if isinstance(call, tree.Call) and call.callee and call.callee.kind == "table":
            box_number = self.table(call, ends, instance)
        else:
            ends = self.tables_in(node.value, ends, instance)
            box_number = self.condition(f"switch ({expression(node.value)})", ends, node.location)
        out: LooseEnds = []
        labels: list[str] = []
        has_fall_through = True
        for case in node.cases:
            default = isinstance(case.label, tree.DontCare)
            has_fall_through = has_fall_through and not default
            labels.append("default" if default else expression(case.label))
            if case.body is not None:
                out += self.flow(case.body, [(box_number, "\n".join(_shorten(labels)))], instance)
                labels = []
        return [*out, (box_number, "default")] if has_fall_through else out

    def _draw_for(self, node: tree.For, ends: LooseEnds, instance: ControlInstance) -> LooseEnds:
        for start in node.start:
            ends = self.flow(start, ends, instance)
        box_number = self.condition(f"for ({expression(node.condition)})", ends, node.location)
        return self.loop(node.body, box_number, instance, node.updates)

    def _draw_for_in(self, node: tree.ForIn, ends: LooseEnds, instance: ControlInstance) -> LooseEnds:
        value_range = expression(node.low) + (f" .. {expression(node.high)}" if node.high is not None else "")
        name = f"{type_text(node.variable.type_node)} {node.variable.name}"
        return self.loop(node.body, self.condition(f"for ({name} in {value_range})", ends, node.location), instance, [])

    def loop(self, body: Any, box_number: int, instance: ControlInstance, updates: Sequence[Any]) -> LooseEnds:
        self.loops.append(([], box_number))
        ends = self.flow(body, [(box_number, "next")], instance)
        for node in updates:
            ends = self.flow(node, ends, instance)
        self.join(ends, box_number)
        breaks, _ = self.loops.pop()
        return [(box_number, "done"), *breaks]

    def _draw_break(self, _node: tree.Break, ends: LooseEnds, _instance: ControlInstance) -> LooseEnds:
        self.loops[-1][0].extend(ends)
        return []

    def _draw_continue(self, _node: tree.Continue, ends: LooseEnds, _instance: ControlInstance) -> LooseEnds:
        self.join(ends, self.loops[-1][1])
        return []

    def _draw_return(self, _node: tree.Return, ends: LooseEnds, _instance: ControlInstance) -> LooseEnds:
        self.leaves[-1].extend((source, label or "return") for source, label in ends)
        return []

    def _draw_exit(self, _node: tree.Exit, ends: LooseEnds, _instance: ControlInstance) -> LooseEnds:
        self.exits += [(source, f"{label}, exit" if label else "exit") for source, label in ends]
        return []

    DRAW_METHODS: ClassVar[
        Mapping[type[tree.Node], Callable[[_Drawing, Any, LooseEnds, ControlInstance], LooseEnds]]
    ] = {
        tree.If: _draw_if,
        tree.SwitchStatement: _draw_switch,
        tree.For: _draw_for,
        tree.ForIn: _draw_for_in,
        tree.Break: _draw_break,
        tree.Continue: _draw_continue,
        tree.Return: _draw_return,
        tree.Exit: _draw_exit,
    }
    """Methods for statements that branch or end a path.

    flow() handles blocks and calls; all other statements are drawn as text.
    """

    # ---- text

    def text(self, name: str) -> str:
        out = [
            f"digraph {_quote(name)} {{",
            '    node [fontname="Helvetica" fontsize=11 margin="0.12,0.06"];',
            '    edge [fontname="Helvetica" fontsize=10 arrowsize=0.7];',
            '    graph [fontname="Helvetica" fontsize=13 ranksep=0.35 nodesep=0.3];',
        ]
        self._groups(self.groups, out, "    ", [0])
        for source, target, label in self.edges:
            note = f" [label={_quote(' ' + label)}]" if label else ""
            out.append(f"    n{source} -> n{target}{note};")
        return "\n".join([*out, "}", ""])

    def _groups(self, groups: Iterable[GraphGroup], out: list[str], indent: str, numbers: list[int]) -> None:
        for group in groups:
            out.append(f"{indent}subgraph cluster_{numbers[0]} {{")
            numbers[0] += 1
            inner_indent = indent + "    "
            out.append(f'{inner_indent}label={_quote(group.title)}; labeljust=l; color="#888888"; style=rounded;')
            for box in group.boxes:
                label = _title_label("", _shorten(box.lines)) if box.kind == "code" else box.label
                tip = f" tooltip={_quote(str(box.location))}" if box.location else ""
                out.append(f"{inner_indent}n{box.number} [label={label} {_STYLE[box.kind]}{tip}];")
            self._groups(group.groups, out, inner_indent, numbers)
            out.append(f"{indent}}}")


# ---- labels


def _quote(text: str) -> str:
    escaped_text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped_text}"'


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _title_label(title: str, lines: Iterable[str]) -> str:
    """A box's label: a bold title, and lines below it, to the left."""
    rows = [f"{_html(line)}{_LEFT_BREAK}" for line in lines]
    head = f"<b>{_html(title)}</b>" if title else ""
    return f"<{head}{_LEFT_BREAK if rows and head else ''}{''.join(rows)}>"


def _table(table: TableInstance) -> str:
    """A table's label: name, key with match kinds, actions."""
    keys = [f"{expression(key_element.value)}: {key_element.match}" for key_element in table.decl.key]
    default = table.decl.properties.get("default_action")
    name = getattr(default.value, "name", "") if default else "NoAction"
    actions = [f"{action.name}{' (default)' if action.name == name else ''}" for action in table.decl.actions]
    rows = [f'<tr><td bgcolor="#b9d3ee"><b>{_html(table.decl.name)}</b></td></tr>']
    for lines in (keys, actions):
        if lines:
            text = "".join(f"{_html(piece)}{_LEFT_BREAK}" for line in lines for piece in _wrap(line))
            rows.append(f'<tr><td align="left" balign="left">{text}</td></tr>')
    return f'<<table border="0" cellborder="1" cellspacing="0" bgcolor="#eaf2fb">{"".join(rows)}</table>>'


def _lines(node: Any) -> list[str]:
    """A statement of a parser state, a block's in order."""
    if isinstance(node, tree.Block):
        return [piece for inner in node.body for piece in _lines(inner)]
    if isinstance(node, tree.If):
        else_lines = ["else:", *(f"    {line}" for line in _lines(node.if_false))] if node.if_false is not None else []
        return [f"if ({expression(node.condition)})", *(f"    {line}" for line in _lines(node.if_true)), *else_lines]
    text = statement(node)
    return _wrap(text) if text else []


def _wrap(text: str) -> list[str]:
    """Lines of at most WRAP characters where that can be, broken before `&&` and `||` if there are any."""
    out: list[str] = []
    for piece in re.split(r" (?=&& |\|\| )", text):
        if out and len(out[-1]) + 1 + len(piece) <= WRAP:
            out[-1] += " " + piece
        else:
            indent = "    " if out else ""
            out += textwrap.wrap(
                piece,
                WRAP,
                initial_indent=indent,
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
    return out or [text]


def _shorten(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _LINES else [*lines[: _LINES - 1], f"... ({len(lines) - _LINES + 1} more)"]
