"""lark's parse tree -> the AST of tree.py.

Most nodes are made by the rule of their name; the others are written here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lark import Token, Transformer, Tree, v_args
from lark.ast_utils import create_transformer
from lark.exceptions import VisitError

from mrc_testbed.switch.compiler.errors import NOWHERE, Location, fail
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.frontend.lexer import Source
from mrc_testbed.switch.compiler.frontend.tree import Annotation, Arg, Block, Expr, Param, TypeNode, Word

_MAX_DEPTH = 200
"""Deepest nesting taken: beyond it Python's own stack would end first."""
Notes = list[Annotation]
Body = tuple[list[Any], Any]
"""Local declarations, then the states of a parser or the block of a control."""


def _location(item: Any) -> Location:
    """Place of a node or a word; of a list: of the first in it that has one."""
    if isinstance(item, list):
        return next((location for location in map(_location, item) if location is not NOWHERE), NOWHERE)
    location: Location = item.location
    return location


def _node(inline: bool, meta: bool) -> Callable[[type[Any]], Callable[..., Any]]:
    """Return the decorator of create_transformer: a node of a rule's children, located at the first."""

    def decorate(node: type[Any]) -> Callable[..., Any]:
        def make(_: TreeBuilder, children: list[Any]) -> Any:
            return node(_location(children[0]) if children else NOWHERE, *children[meta:])

        def make_of_list(_: TreeBuilder, children: list[Any]) -> Any:
            return node(_location(children), children[meta:])

        return make if inline else make_of_list

    return decorate


def _after_notes(method: Callable[..., Any], _rule: str, children: list[Any], _meta: Any) -> Any:
    """Call a method with the annotations at the front of a rule as one list."""
    count = 0
    while _is_note(children[count]):
        count += 1
    return method(_notes(children[:count]), *children[count:])


def _is_note(item: Any) -> bool:
    return type(item) is Word and item.type == "ANNOTATION"


def _notes(words: Sequence[Word]) -> Notes:
    lexemes = ((word, word.source.tokens[word.start_pos or 0]) for word in words)
    return [
        Annotation(word.location, lexeme.text, lexeme.body, lexeme.bracket, word.source) for word, lexeme in lexemes
    ]


_with_annotations = v_args(wrapper=_after_notes)


@v_args(inline=True)
class TreeBuilder(Transformer[Token, Any]):
    """Builds the AST of parsed programs: one method per rule of p4.lark that names no node."""

    def __init__(self, parse_arguments: Callable[[Source], list[Arg]]) -> None:
        super().__init__(visit_tokens=False)
        self._parse_arguments = parse_arguments
        vars(self).update({rule: getattr(self, rule) for rule in vars(type(self)) if not rule.startswith("_")})
        create_transformer(tree, self, _node)

    def _build(self, parse_tree: Tree[Token], depth: int) -> Any:
        """Return the AST of a parse tree at this depth of a program. Raises P4Error."""
        level: list[Tree[Token]] = [parse_tree]
        for _ in range(depth, _MAX_DEPTH + 1):
            level = [child for parent in level for child in parent.children if type(child) is Tree]
        for deep_child in level:
            first = next(deep_child.scan_values(lambda _: True), None)
            fail(first.location if isinstance(first, Word) else NOWHERE, f"nested deeper than {_MAX_DEPTH} levels")
        try:
            return self.transform(parse_tree)
        except VisitError as error:
            raise error.orig_exc from None

    def program(self, parse_tree: Tree[Token]) -> list[tree.Node]:
        """Declarations of a program. Raises P4Error."""
        nodes: list[tree.Node] = self._build(parse_tree, 0)
        return nodes

    def arguments(self, parse_tree: Tree[Token]) -> list[Arg]:
        """Arguments between parentheses. Raises P4Error."""
        args: list[Arg] = self._build(parse_tree, 1)
        return args

    def start(self, *nodes: tree.Node | list[tree.Node]) -> list[tree.Node]:
        return [node for item in nodes for node in (item if isinstance(item, list) else [item])]

    def items(self, *items: Any) -> list[Any]:
        return list(items)

    type_args = type_params = params = dimensions = keyset = for_inits = for_updates = switch_cases = expr_list = items

    # ---- declarations

    @_with_annotations
    def const_decl(self, notes: Notes, _: Word, kind: TypeNode, name: Word, value: Expr) -> tree.Const:
        return tree.Const(name.location, notes, name, kind, value)

    @_with_annotations
    def aggregate_decl(
        self, notes: Notes, kind: Word, name: Word, generics: list[str], *fields: tree.Field
    ) -> tree.Aggregate:
        return tree.Aggregate(name.location, notes, name, kind, generics, list(fields))

    @_with_annotations
    def field_decl(self, notes: Notes, kind: TypeNode, name: Word, sizes: list[Expr]) -> tree.Field:
        lists: list[Expr] = []
        for note in notes:
            if note.name == "field_list" and note.body and note.source:
                body = Source(note.body, note.source.lines, part=True)
                lists += [arg.value for arg in self._parse_arguments(body)]
        return tree.Field(name.location, notes, name, _array(kind, sizes), lists)

    @_with_annotations
    def enum_decl(
        self, notes: Notes, underlying_type: TypeNode | None, name: Word, *members: tuple[str, Expr | None, Location]
    ) -> tree.Enum:
        return tree.Enum(name.location, notes, name, underlying_type, list(members))

    @_with_annotations
    def enum_member(self, _: Notes, name: Word, value: Expr | None) -> tuple[str, Expr | None, Location]:
        return name, value, name.location

    @_with_annotations
    def typedef_decl(self, notes: Notes, kind: TypeNode | tree.Aggregate, name: Word) -> list[tree.Node]:
        """One declaration, or two: `typedef struct s { ... } t;` declares s as well."""
        if not isinstance(kind, tree.Aggregate):
            return [tree.Typedef(name.location, notes, name, kind, False)]
        return [kind, tree.Typedef(name.location, notes, name, tree.NamedType(kind.location, kind.name), False)]

    @_with_annotations
    def newtype_decl(self, notes: Notes, _: Word, kind: TypeNode, name: Word) -> tree.Typedef:
        return tree.Typedef(name.location, notes, name, kind, True)

    @_with_annotations
    def extern_decl(
        self, notes: Notes, name: Word, generics: list[str], *members: tree.Method | list[Param]
    ) -> tree.ExternObject:
        methods = [member for member in members if isinstance(member, tree.Method)]
        for method in methods:
            method.extern = name
        constructors = [member for member in members if isinstance(member, list)]
        return tree.ExternObject(name.location, notes, name, generics, methods, constructors)

    @_with_annotations
    def extern_function(
        self, notes: Notes, result: TypeNode, name: Word, generics: list[str], params: list[Param]
    ) -> tree.Method:
        return tree.Method(name.location, notes, name, result, generics, params)

    @_with_annotations
    def prototype(self, notes: Notes, _abstract: Word | None, *head: Any) -> tree.Method:
        result, name, generics, params = head
        return tree.Method(name.location, notes, name, result, generics, params)

    @_with_annotations
    def constructor(self, _: Notes, _name: Word, params: list[Param]) -> list[Param]:
        return params

    @_with_annotations
    def function_decl(
        self, notes: Notes, result: TypeNode, name: Word, generics: list[str], params: list[Param], body: Block
    ) -> tree.Function:
        return tree.Function(name.location, notes, name, result, generics, params, body)

    @_with_annotations
    def package_decl(self, notes: Notes, name: Word, generics: list[str], params: list[Param]) -> tree.Package:
        return tree.Package(name.location, notes, name, generics, params)

    @_with_annotations
    def parameter(
        self, notes: Notes, direction: Word | None, kind: TypeNode, name: Word, default: Expr | None
    ) -> Param:
        return Param(name.location, notes, name, direction or "", kind, default)

    @_with_annotations
    def instantiation(
        self, notes: Notes, kind: TypeNode, args: list[Arg], name: Word, *body: tree.Node
    ) -> tree.Instance:
        return tree.Instance(name.location, notes, name, kind, args, bool(body))

    @_with_annotations
    def var_decl(self, notes: Notes, kind: TypeNode, name: Word, sizes: list[Expr], value: Expr | None) -> tree.Var:
        return tree.Var(name.location, notes, name, _array(kind, sizes), value)

    # ---- parsers

    @_with_annotations
    def parser_decl(
        self, notes: Notes, name: Word, generics: list[str], params: list[Param], ctor: list[Param], *body: Body
    ) -> tree.Parser:
        local, states = body[0] if body else ([], None)
        return tree.Parser(name.location, notes, name, generics, params, ctor, local, states)

    def ctor_params(self, *params: list[Param]) -> list[Param]:
        return params[0] if params else []

    def parser_body(self, *items: tree.Node) -> Body:
        states = [item for item in items if isinstance(item, tree.State)]
        return [item for item in items if not isinstance(item, tree.State)], states

    @_with_annotations
    def value_set_decl(self, notes: Notes, kind: TypeNode, size: Expr, name: Word) -> tree.ValueSet:
        return tree.ValueSet(name.location, notes, name, kind, size)

    @_with_annotations
    def state_decl(self, notes: Notes, _: Word, name: Word, *items: Any) -> tree.State:
        body = list(items)
        last = body.pop() if body and isinstance(body[-1], tree.Transition) else None
        return tree.State(name.location, notes, name, body, last)

    def select(self, *items: Any) -> tree.Transition:
        keys, cases = (items[0], items[1:]) if items and isinstance(items[0], list) else ([], items)
        return tree.Transition(_location([*keys, *cases]), None, keys, list(cases))

    def case_of_select(self, keys: list[Expr], state: Word) -> tree.SelectCase:
        return tree.SelectCase(state.location, keys, state)

    def masked(self, value: Expr, _: Word, mask: Expr) -> tree.Mask:
        return tree.Mask(value.location, value, mask)

    def ranged(self, low: Expr, _: Word, high: Expr) -> tree.Range:
        return tree.Range(low.location, low, high)

    # ---- controls

    @_with_annotations
    def control_decl(
        self, notes: Notes, name: Word, generics: list[str], params: list[Param], ctor: list[Param], *body: Body
    ) -> tree.Control:
        local, block = body[0] if body else ([], None)
        return tree.Control(name.location, notes, name, generics, params, ctor, local, block)

    def control_body(self, *items: Any) -> Body:
        return list(items[:-2]), items[-1]

    @_with_annotations
    def action_decl(self, notes: Notes, name: Word, params: list[Param], body: Block) -> tree.Action:
        return tree.Action(name.location, notes, name, params, body)

    @_with_annotations
    def table_decl(self, notes: Notes, name: Word, *parts: Any) -> tree.Table:
        table = tree.Table(name.location, notes, name, [], [], None, False, {})
        names: set[str] = set()
        for part in parts:
            kind = part.name if isinstance(part, tree.Property) else part[0]
            if kind in names:
                fail(table.location, f"table {table.name}: the property `{kind}` is given twice")
            names.add(kind)
            if isinstance(part, tree.Property):
                table.properties[kind] = part
            elif kind == "key":
                if table.entries is not None:
                    location = part[1][0].location if part[1] else table.location
                    fail(location, f"table {table.name}: the key stands below the entries: write it above them")
                table.key = part[1]
            elif kind == "actions":
                table.actions = part[1]
            else:
                table.const_entries, table.entries = part[1:]
        if "actions" not in names:
            fail(table.location, f"table {table.name} has no property `actions`")
        return table

    @_with_annotations
    def key_property(self, _: Notes, _word: Word, *elements: tree.KeyElement) -> tuple[str, list[tree.KeyElement]]:
        return "key", list(elements)

    def key_field(self, value: Expr, match: Word, *notes: Word) -> tree.KeyElement:
        return tree.KeyElement(value.location, value, match, _notes(notes))

    @_with_annotations
    def actions_property(self, _: Notes, _word: Word, *actions: tree.ActionRef) -> tuple[str, list[tree.ActionRef]]:
        return "actions", list(actions)

    @_with_annotations
    def action_entry(self, notes: Notes, ref: tree.ActionRef) -> tree.ActionRef:
        ref.annotations = notes
        return ref

    def action_call(self, name: Word, args: list[Arg] | None) -> tree.ActionRef:
        return tree.ActionRef(name.location, [], name, args)

    def top_action_call(self, name: Word, args: list[Arg] | None) -> tree.ActionRef:
        return tree.ActionRef(name.location, [], name, args, top=True)

    @_with_annotations
    def entries_property(
        self, _: Notes, const: Word | None, _word: Word, *entries: tree.Entry
    ) -> tuple[str, bool, list[tree.Entry]]:
        return "entries", const is not None, list(entries)

    def table_entry(
        self,
        const: Word | None,
        _word: Word | None,
        priority: Expr | None,
        keys: list[Expr],
        action: tree.ActionRef,
        *notes: Word,
    ) -> tree.Entry:
        action.annotations = _notes(notes)
        return tree.Entry(action.location, const is not None, priority, keys, action)

    @_with_annotations
    def other_property(self, notes: Notes, const: Word | None, name: Word, value: Expr) -> tree.Property:
        return tree.Property(name.location, name, const is not None, value, notes)

    # ---- statements

    def block_statement(self, *items: Any) -> Block:
        return Block(_location(list(items)), [item for item in items if not _is_note(item)])

    def assign_operation(self, target: Expr, operator: Word, value: Expr) -> tree.Assign:
        """`x += e`, for `x = x + e`."""
        return tree.Assign(target.location, target, tree.Binary(target.location, target, operator[:-1], value))

    @_with_annotations
    def for_loop(
        self, _: Notes, word: Word, start: list[Any], condition: Expr, updates: list[Any], body: tree.Statement
    ) -> tree.For:
        return tree.For(word.location, start, condition, updates, body)

    @_with_annotations
    def for_in_variable(self, notes: Notes, kind: TypeNode, name: Word) -> tree.Var:
        return tree.Var(name.location, notes, name, kind, None)

    @_with_annotations
    def for_in_loop(
        self,
        _: Notes,
        word: Word,
        variable: tree.Var,
        _in_word: Word,
        bounds: tuple[Expr, Expr | None],
        body: tree.Statement,
    ) -> tree.ForIn:
        return tree.ForIn(word.location, variable, *bounds, body)

    def for_range(self, low: Expr, _: Word | None = None, high: Expr | None = None) -> tuple[Expr, Expr | None]:
        return low, high

    def direct_call(self, type_node: TypeNode, _: Word, args: list[Arg]) -> tree.DirectApply:
        return tree.DirectApply(type_node.location, type_node, args)

    # ---- expressions

    def args(self, *args: Arg | Expr) -> list[Arg]:
        return [arg if isinstance(arg, Arg) else Arg(arg.location, None, arg) for arg in args]

    def named_arg(self, name: Word, value: Expr | Word) -> Arg:
        return Arg(name.location, name, tree.DontCare(value.location) if isinstance(value, Word) else value)

    def number(self, text: Word) -> tree.Integer:
        value, width, signed = tree.parse_integer(text)
        return tree.Integer(text.location, value, width, signed, tree.base_of(text))

    def text(self, text: Word) -> tree.String:
        return tree.String(text.location, tree.unquote(text))

    def true(self, word: Word) -> tree.Boolean:
        return tree.Boolean(word.location, True)

    def false(self, word: Word) -> tree.Boolean:
        return tree.Boolean(word.location, False)

    def this(self, word: Word) -> tree.UnsupportedExpr:
        return tree.UnsupportedExpr(word.location, "`this`")

    def top_path(self, name: Word) -> tree.PathExpression:
        return tree.PathExpression(name.location, name, True)

    def empty_list(self, opening: Word, _: Word) -> tree.ListExpr:
        return tree.ListExpr(opening.location, [])

    def record(self, *items: Any) -> tree.RecordExpr:
        *fields, dots = items
        return tree.RecordExpr(fields[0][1].location, fields, tree.Dots(dots.location) if dots else None)

    def record_field(self, name: Word, value: Expr) -> tuple[str, Expr]:
        return name, value

    def error_member(self, word: Word, name: Word) -> tree.TypeMember:
        return tree.TypeMember(word.location, None, name)

    def member_of(self, base: Expr, name: Word) -> tree.Member:
        return tree.Member(name.location, base, name)

    def plus_slice(self, base: Expr, low: Expr, width: Expr) -> tree.Slice:
        return tree.Slice(base.location, base, low, low, width)

    def call_expr(self, target: Expr, *parts: Any) -> tree.Call:
        *types, args = parts
        return tree.Call(target.location, target, types[0] if types else [], args)


def _array(kind: TypeNode, sizes: list[Expr]) -> TypeNode:
    """The type of `kind name[a][b]`: that of `kind[a][b] name`."""
    for size in sizes:
        kind = tree.StackType(kind.location, kind, size)
    return kind
