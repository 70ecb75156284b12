"""A program as a picture in DOT: the parser's states, and the way through each control, with its tables and conditions.

Boxes stand where control flow has a node: a parser state, a table with its key and actions, a condition, an action that
is called, a run of plain statements. Sub-controls are drawn where they are applied, sub-parsers beside their parser.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
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
_LEFT = '<br align="left"/>'
_STYLE = {
    "state": 'shape=box style="rounded,filled" fillcolor="#e7f0dc"',
    "table": "shape=plain",
    "condition": 'shape=box style="rounded,filled" fillcolor="#fff3c8"',
    "action": 'shape=box style=filled fillcolor="#e3ecf8"',
    "code": 'shape=box style=filled fillcolor="#f7f7f7" color="#999999"',
    "end": 'shape=ellipse style=filled fillcolor="#dddddd"',
}
PARTS = ("parser", "verify", "ingress", "egress", "compute", "deparser")
"""What a program is drawn as, in the order in which packets see it."""

Loose = list[tuple[int, str]]
"""Ends of the way drawn so far, waiting for the next box: (box, label of the edge)."""


class GraphError(Exception):
    """There is no such control; the message lists those there are."""


@dataclass
class Box:
    """A box of the drawing."""

    number: int
    kind: str
    label: str
    where: Location | None
    lines: list[str] = field(default_factory=list)
    """Of a run of statements, which may still grow."""


@dataclass
class GraphGroup:
    """A frame around boxes, with a title."""

    title: str
    boxes: list[Box] = field(default_factory=list)
    groups: list[GraphGroup] = field(default_factory=list)


def graph(program: ElaboratedProgram, only: str | None = None) -> str:
    """The DOT text of a program, or of one part: `parser`, `ingress`, ..., or a control's or sub-parser's name.

    Controls that do nothing are left out. Raises GraphError.
    """
    drawing = _Drawing()
    if only is None:
        for part in PARTS:
            if part == "parser" or program_part(program, part).decl.body.body:
                drawing.part(program, part)
    elif only in PARTS:
        drawing.part(program, only)
    else:
        drawing.instance(_find(program, only))
    return drawing.text(program.name)


def program_part(program: ElaboratedProgram, part: str) -> ControlInstance:
    """The instance that is one of PARTS."""
    found: ControlInstance = program.parsing if part == "parser" else getattr(program, part)
    return found


def _find(program: ElaboratedProgram, name: str) -> ControlInstance:
    """An instance by its name for the control plane, or the name of what it is an instance of."""
    found: dict[str, ControlInstance] = {}
    todo = [program_part(program, part) for part in PARTS]
    while todo:
        one = todo.pop(0)
        found.setdefault(one.name, one)
        found.setdefault(one.decl.name, one)
        todo += [inner for inner in one.members.values() if isinstance(inner, ControlInstance)]
    if name not in found:
        raise GraphError(f"{program.name} has no control {name} (has: {', '.join((*PARTS, *sorted(found)))})")
    return found[name]


class _Drawing:
    """Boxes and edges, collected."""

    def __init__(self) -> None:
        self.groups: list[GraphGroup] = []
        self.edges: list[tuple[int, int, str]] = []
        self.boxes: list[Box] = []
        self.inside: list[GraphGroup] = []
        """Groups that are open, the innermost last."""
        self.leaves: list[Loose] = []
        """Where `return` goes, by open control."""
        self.exits: Loose = []
        self.loops: list[tuple[Loose, int]] = []
        """Of open loops: ways out by `break`, and the box that `continue` leads to."""

    # ---- boxes

    def open(self, title: str) -> None:
        group = GraphGroup(title)
        (self.inside[-1].groups if self.inside else self.groups).append(group)
        self.inside.append(group)

    def box(self, kind: str, label: str, loose: Loose, where: Location | None = None) -> int:
        """A new box behind the loose ends; its number."""
        made = Box(len(self.boxes), kind, label, where)
        self.boxes.append(made)
        self.inside[-1].boxes.append(made)
        self.join(loose, made.number)
        return made.number

    def join(self, loose: Loose, to: int) -> None:
        self.edges += [(at, to, label) for at, label in loose if (at, to, label) not in self.edges]

    def code(self, text: str, loose: Loose, where: Location) -> Loose:
        """Plain statements: one box for those that follow each other."""
        last = self.boxes[-1] if self.boxes else None
        if last and last.kind == "code" and loose == [(last.number, "")] and last in self.inside[-1].boxes:
            last.lines += _wrapped(text)
        else:
            loose = [(self.box("code", "", loose, where), "")]
            self.boxes[-1].lines += _wrapped(text)
        return loose

    # ---- parts

    def part(self, program: ElaboratedProgram, part: str) -> None:
        one = program_part(program, part)
        self.instance(one, part if one.decl.name.lower() != part else "")

    def instance(self, one: ControlInstance, part: str = "") -> None:
        if isinstance(one.decl, tree.Parser):
            self.parser(one, part)
            return
        title = f"{part}: {one.decl.name}" if part else f"control {one.name}"
        self.open(title)
        self.exits = []
        loose: Loose = [(self.box("end", _quoted("start"), []), "")]
        loose = self.control_body(one, loose)
        self.box("end", _quoted("end"), [*loose, *self.exits])
        self.inside.pop()

    # ---- parsers

    def parser(self, one: ControlInstance, part: str = "") -> None:
        """States and transitions; then the parsers that it applies."""
        self.open(f"{part}: {one.decl.name}" if part else f"parser {one.name}")
        states: dict[str, int] = {}
        for state in one.decl.states:
            lines = [piece for node in state.body for piece in _lines(node)]
            asked = state.transition.keys if state.transition else []
            if asked:
                lines.append(f"select ({', '.join(map(expression, asked))})")
            states[state.name] = self.box("state", _titled(state.name, lines), [], state.where)
        for state in one.decl.states:
            self.transition(state, states)
        self.inside.pop()
        for inner in one.members.values():
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
                everything = all(isinstance(key, tree.DontCare) for key in case.keys)
                label = "default" if everything else f"({keys})" if len(case.keys) > 1 else keys
                targets.setdefault(case.state, []).append(label)
            if not any("default" in labels for labels in targets.values()):
                targets.setdefault("reject", []).append("no match")
        for name, labels in targets.items():
            if name not in states:
                states[name] = self.box("end", _quoted(name), [])
            self.edges.append((states[state.name], states[name], "\n".join(_few(labels))))

    # ---- controls

    def control_body(self, one: ControlInstance, loose: Loose) -> Loose:
        self.leaves.append([])
        for node in one.decl.locals:
            if isinstance(node, tree.Var) and node.value is not None:
                loose = self.code(statement(node), loose, node.where)
        loose = self.flow(one.decl.body, loose, one)
        return loose + self.leaves.pop()

    def flow(self, node: Any, loose: Loose, one: ControlInstance) -> Loose:
        """Draw a statement behind the loose ends; the loose ends behind it. Nothing follows where there is no way."""
        if not loose or node is None:
            return loose
        if isinstance(node, tree.Block):
            for inner in node.body:
                loose = self.flow(inner, loose, one)
            return loose
        if isinstance(node, (tree.CallStatement, tree.DirectApply)):
            return self.call(node, loose, one)
        draw = self.DRAWN.get(type(node))
        if draw is not None:
            return draw(self, node, loose, one)
        loose = self.tables_in(node, loose, one)
        text = statement(node)
        return self.code(text, loose, node.where) if text else loose

    def call(self, node: tree.CallStatement | tree.DirectApply, loose: Loose, one: ControlInstance) -> Loose:
        call = node.call
        callee = call.callee
        if callee.kind == "table":
            return [(self.table(call, loose, one), "")]
        if callee.kind == "control":
            inner = one.members.get(id(callee.base.decl))
            if isinstance(inner, ControlInstance):
                self.open(f"{inner.name.rpartition('.')[2]}: {inner.decl.name}")
                loose = self.control_body(inner, loose)
                self.inside.pop()
                return loose
        loose = self.tables_in(call.args, loose, one)
        if callee.kind == "action":
            where = node.where
            return [(self.box("action", _titled(f"{callee.name}({arguments(call.args)})", []), loose, where), "")]
        return self.code(statement(node), loose, node.where)

    def table(self, call: tree.Call, loose: Loose, one: ControlInstance) -> int:
        found: TableInstance = one.members[id(call.callee.decl)]
        return self.box("table", _table(found), loose, found.decl.where)

    def tables_in(self, node: Any, loose: Loose, one: ControlInstance) -> Loose:
        """Tables that an expression applies come before what it stands in."""
        for call in walk(node):
            if isinstance(call, tree.Call) and call.callee is not None and call.callee.kind == "table":
                loose = [(self.table(call, loose, one), "")]
        return loose

    def _draw_if(self, node: tree.If, loose: Loose, one: ControlInstance) -> Loose:
        condition, yes, no = node.condition, "true", "false"
        while isinstance(condition, tree.Unary) and condition.op == "!":
            condition, yes, no = condition.operand, no, yes
        asked = condition if isinstance(condition, tree.Member) and condition.name in ("hit", "miss") else None
        call = asked.base if asked else None
        if asked and isinstance(call, tree.Call) and call.callee and call.callee.kind == "table":
            at = self.table(call, loose, one)
            if (asked.name == "hit") == (yes == "true"):
                yes, no = "hit", "miss"
            else:
                yes, no = "miss", "hit"
        else:
            loose = self.tables_in(node.condition, loose, one)
            at, yes, no = self.condition(expression(node.condition), loose, node.where), "true", "false"
        then = self.flow(node.then, [(at, yes)], one)
        return then + self.flow(node.other, [(at, no)], one)

    def condition(self, text: str, loose: Loose, where: Location) -> int:
        return self.box("condition", _titled("", _wrapped(text)), loose, where)

    def _draw_switch(self, node: tree.SwitchStatement, loose: Loose, one: ControlInstance) -> Loose:
        call = node.value.base if isinstance(node.value, tree.Member) and node.value.name == "action_run" else None
        if isinstance(call, tree.Call) and call.callee and call.callee.kind == "table":
            at = self.table(call, loose, one)
        else:
            loose = self.tables_in(node.value, loose, one)
            at = self.condition(f"switch ({expression(node.value)})", loose, node.where)
        out: Loose = []
        labels: list[str] = []
        other = True
        for case in node.cases:
            default = isinstance(case.label, tree.DontCare)
            other = other and not default
            labels.append("default" if default else expression(case.label))
            if case.body is not None:
                out += self.flow(case.body, [(at, "\n".join(_few(labels)))], one)
                labels = []
        return [*out, (at, "default")] if other else out

    def _draw_for(self, node: tree.For, loose: Loose, one: ControlInstance) -> Loose:
        for start in node.start:
            loose = self.flow(start, loose, one)
        at = self.condition(f"for ({expression(node.condition)})", loose, node.where)
        return self.loop(node.body, at, one, node.updates)

    def _draw_for_in(self, node: tree.ForIn, loose: Loose, one: ControlInstance) -> Loose:
        over = expression(node.low) + (f" .. {expression(node.high)}" if node.high is not None else "")
        name = f"{type_text(node.variable.type_node)} {node.variable.name}"
        return self.loop(node.body, self.condition(f"for ({name} in {over})", loose, node.where), one, [])

    def loop(self, body: Any, at: int, one: ControlInstance, updates: Sequence[Any]) -> Loose:
        self.loops.append(([], at))
        loose = self.flow(body, [(at, "next")], one)
        for node in updates:
            loose = self.flow(node, loose, one)
        self.join(loose, at)
        breaks, _ = self.loops.pop()
        return [(at, "done"), *breaks]

    def _draw_break(self, _node: tree.Break, loose: Loose, _one: ControlInstance) -> Loose:
        self.loops[-1][0].extend(loose)
        return []

    def _draw_continue(self, _node: tree.Continue, loose: Loose, _one: ControlInstance) -> Loose:
        self.join(loose, self.loops[-1][1])
        return []

    def _draw_return(self, _node: tree.Return, loose: Loose, _one: ControlInstance) -> Loose:
        self.leaves[-1].extend((at, label or "return") for at, label in loose)
        return []

    def _draw_exit(self, _node: tree.Exit, loose: Loose, _one: ControlInstance) -> Loose:
        self.exits += [(at, f"{label}, exit" if label else "exit") for at, label in loose]
        return []

    DRAWN: ClassVar[Mapping[type[tree.Node], Callable[[_Drawing, Any, Loose, ControlInstance], Loose]]] = {
        tree.If: _draw_if,
        tree.SwitchStatement: _draw_switch,
        tree.For: _draw_for,
        tree.ForIn: _draw_for_in,
        tree.Break: _draw_break,
        tree.Continue: _draw_continue,
        tree.Return: _draw_return,
        tree.Exit: _draw_exit,
    }
    """Statements that turn the way. Blocks and calls have ways of their own in flow(); all others are told as text."""

    # ---- text

    def text(self, name: str) -> str:
        out = [
            f"digraph {_quoted(name)} {{",
            '    node [fontname="Helvetica" fontsize=11 margin="0.12,0.06"];',
            '    edge [fontname="Helvetica" fontsize=10 arrowsize=0.7];',
            '    graph [fontname="Helvetica" fontsize=13 ranksep=0.35 nodesep=0.3];',
        ]
        self._groups(self.groups, out, "    ", [0])
        for at, to, label in self.edges:
            note = f" [label={_quoted(' ' + label)}]" if label else ""
            out.append(f"    n{at} -> n{to}{note};")
        return "\n".join([*out, "}", ""])

    def _groups(self, groups: Iterable[GraphGroup], out: list[str], indent: str, numbers: list[int]) -> None:
        for group in groups:
            out.append(f"{indent}subgraph cluster_{numbers[0]} {{")
            numbers[0] += 1
            inside = indent + "    "
            out.append(f'{inside}label={_quoted(group.title)}; labeljust=l; color="#888888"; style=rounded;')
            for box in group.boxes:
                label = _titled("", _few(box.lines)) if box.kind == "code" else box.label
                tip = f" tooltip={_quoted(str(box.where))}" if box.where else ""
                out.append(f"{inside}n{box.number} [label={label} {_STYLE[box.kind]}{tip}];")
            self._groups(group.groups, out, inside, numbers)
            out.append(f"{indent}}}")


# ---- labels


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _titled(title: str, lines: Iterable[str]) -> str:
    """A box's label: a bold title, and lines below it, to the left."""
    rows = [f"{_html(line)}{_LEFT}" for line in lines]
    head = f"<b>{_html(title)}</b>" if title else ""
    return f"<{head}{_LEFT if rows and head else ''}{''.join(rows)}>"


def _table(table: TableInstance) -> str:
    """A table's label: name, key with match kinds, actions."""
    keys = [f"{expression(one.value)}: {one.match}" for one in table.decl.key]
    default = table.decl.properties.get("default_action")
    name = getattr(default.value, "name", "") if default else "NoAction"
    actions = [f"{action.name}{' (default)' if action.name == name else ''}" for action in table.decl.actions]
    rows = [f'<tr><td bgcolor="#b9d3ee"><b>{_html(table.decl.name)}</b></td></tr>']
    for lines in (keys, actions):
        if lines:
            text = "".join(f"{_html(piece)}{_LEFT}" for line in lines for piece in _wrapped(line))
            rows.append(f'<tr><td align="left" balign="left">{text}</td></tr>')
    return f'<<table border="0" cellborder="1" cellspacing="0" bgcolor="#eaf2fb">{"".join(rows)}</table>>'


def _lines(node: Any) -> list[str]:
    """A statement of a parser state, a block's in order."""
    if isinstance(node, tree.Block):
        return [piece for inner in node.body for piece in _lines(inner)]
    if isinstance(node, tree.If):
        other = ["else:", *(f"    {line}" for line in _lines(node.other))] if node.other is not None else []
        return [f"if ({expression(node.condition)})", *(f"    {line}" for line in _lines(node.then)), *other]
    text = statement(node)
    return _wrapped(text) if text else []


def _wrapped(text: str) -> list[str]:
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


def _few(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _LINES else [*lines[: _LINES - 1], f"... ({len(lines) - _LINES + 1} more)"]
