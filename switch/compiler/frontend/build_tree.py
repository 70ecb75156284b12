"""lark's parse tree -> the AST of tree.py: one method per rule of p4.lark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lark import Token, Tree

from switch.compiler.errors import NOWHERE, Location, fail
from switch.compiler.frontend import tree
from switch.compiler.frontend.lexer import Source

_MAX_DEPTH = 200
"""Deepest nesting taken: beyond it Python's own stack would end first."""


@dataclass(frozen=True)
class _Dimension:
    """`[size]` behind the name of an array."""

    size: tree.Expr


class TreeBuilder:
    """Builds the AST of one parsed program; `source` gives the places."""

    def __init__(self, source: Source, parse_arguments: Callable[[Source], list[tree.Arg]]) -> None:
        self.source = source
        self.parse_arguments = parse_arguments
        self.depth = 0

    def program(self, parsed: Tree[Token]) -> list[tree.Node]:
        made = [self.node(child) for child in parsed.children]
        return [one for each in made for one in (each if isinstance(each, list) else [each])]

    # ---- helpers

    def node(self, item: Tree[Token] | Token) -> Any:
        """AST of a subtree; tokens stay tokens."""
        if isinstance(item, Token):
            return self.annotation(item) if item.type == "ANNOTATION" else item
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            fail(self.where(item), f"nested deeper than {_MAX_DEPTH} levels")
        try:
            return getattr(self, str(item.data))(item, [self.node(child) for child in item.children])
        finally:
            self.depth -= 1

    def where(self, item: Any) -> Location:
        """Place of the first token of an item (Token, Tree or a finished node), or of a list of items."""
        if isinstance(item, Token):
            return self.source.location(item.line or 1, item.column or 1)
        if isinstance(item, tree.Node):
            return item.where
        children = item.children if isinstance(item, Tree) else item if isinstance(item, (list, tuple)) else ()
        for child in children:
            where = self.where(child)
            if where is not NOWHERE:
                return where
        return NOWHERE

    def annotation(self, token: Token) -> tree.Annotation:
        one = self.source.tokens[token.start_pos]
        return tree.Annotation(self.where(token), one.text, one.body, one.bracket)

    @staticmethod
    def annotations(items: list[Any]) -> tuple[list[tree.Annotation], list[Any]]:
        """Split the annotations off the front of a rule's children."""
        i = 0
        while i < len(items) and isinstance(items[i], tree.Annotation):
            i += 1
        return items[:i], items[i:]

    # ---- names: tokens carry the place

    def nontype_name(self, item: Any, items: list[Any]) -> Token:
        return items[0]

    type_id = property_name = nontype_name

    # ---- types

    def simple_type(self, item: Any, items: list[Any]) -> tree.SimpleType:
        return tree.SimpleType(self.where(items[0]), str(items[0]))

    def sized_type(self, item: Any, items: list[Any]) -> tree.SizedType:
        return tree.SizedType(self.where(items[0]), str(items[0]), items[1])

    def type_name(self, item: Any, items: list[Any]) -> tree.NamedType:
        return tree.NamedType(self.where(items[0]), str(items[0]))

    def special_type(self, item: Any, items: list[Any]) -> tree.NamedType:
        return tree.NamedType(self.where(items[0]), str(items[0]), items[1])

    def stack_type(self, item: Any, items: list[Any]) -> tree.StackType:
        return tree.StackType(items[0].where, *items)

    def tuple_type(self, item: Any, items: list[Any]) -> tree.TupleType:
        return tree.TupleType(self.where(items), items[0] if items else [])

    def type_args(self, item: Any, items: list[Any]) -> list[Any]:
        return items

    def dontcare_type(self, item: Any, items: list[Any]) -> tree.DontCareType:
        return tree.DontCareType(self.where(items))

    def type_params(self, item: Any, items: list[Any]) -> tuple[str, ...]:
        return tuple(str(one) for one in items)

    @staticmethod
    def generics(items: list[Any]) -> tuple[list[str], list[Any]]:
        """Take an optional type_params off the front."""
        if items and isinstance(items[0], tuple):
            return list(items[0]), items[1:]
        return [], items

    # ---- declarations

    def const_decl(self, item: Any, items: list[Any]) -> tree.Const:
        notes, (_, kind, name, value) = self.annotations(items)
        return tree.Const(self.where(name), notes, str(name), kind, value)

    def aggregate_decl(self, item: Any, items: list[Any]) -> tree.Aggregate:
        notes, (kind, name, *rest) = self.annotations(items)
        params, fields = self.generics(rest)
        return tree.Aggregate(self.where(name), notes, str(name), str(kind), params, fields)

    def field(self, item: Any, items: list[Any]) -> tree.Field:
        notes, (kind, name, *sizes) = self.annotations(items)
        kind = self._arrays(kind, sizes)
        lists = []
        for one in notes:
            if one.name == "field_list":
                body = Source(one.body or [], self.source.lines, part=True)
                lists += [arg.value for arg in self.parse_arguments(body)] if body.tokens else []
        return tree.Field(self.where(name), notes, str(name), kind, lists)

    def dimension(self, item: Any, items: list[Any]) -> _Dimension:
        return _Dimension(items[0])

    @staticmethod
    def _arrays(kind: Any, sizes: list[_Dimension]) -> Any:
        """The type of `kind name[a][b]`: that of `kind[a][b] name`."""
        for one in sizes:
            kind = tree.StackType(kind.where, kind, one.size)
        return kind

    def enum_decl(self, item: Any, items: list[Any]) -> tree.Enum:
        notes, rest = self.annotations(items)
        under = None if isinstance(rest[0], Token) else rest.pop(0)
        return tree.Enum(self.where(rest[0]), notes, str(rest[0]), under, rest[1:])

    def enum_member(self, item: Any, items: list[Any]) -> tuple[str, Any, Location]:
        _, (name, *value) = self.annotations(items)
        return str(name), value[0] if value else None, self.where(name)

    def error_decl(self, item: Any, items: list[Any]) -> tree.Errors:
        return tree.Errors(self.where(items[0]), [str(one) for one in items[1:]])

    def match_kind_decl(self, item: Any, items: list[Any]) -> tree.MatchKinds:
        return tree.MatchKinds(self.where(items[0]), [str(one) for one in items])

    def typedef_decl(self, item: Any, items: list[Any]) -> list[tree.Node]:
        """One declaration, or two: `typedef struct s { ... } t;` declares s as well."""
        notes, (kind, name) = self.annotations(items)
        before = [kind] if isinstance(kind, tree.Aggregate) else []
        if before:
            kind = tree.NamedType(kind.where, kind.name, [])
        return [*before, tree.Typedef(self.where(name), notes, str(name), kind, False)]

    def newtype_decl(self, item: Any, items: list[Any]) -> tree.Typedef:
        notes, (_, kind, name) = self.annotations(items)
        return tree.Typedef(self.where(name), notes, str(name), kind, True)

    def extern_object(self, item: Any, items: list[Any]) -> tree.ExternObject:
        notes, (name, *rest) = self.annotations(items)
        params, members = self.generics(rest)
        methods = [one for one in members if isinstance(one, tree.Method)]
        constructors = [one for one in members if isinstance(one, list)]
        for one in methods:
            one.extern = str(name)
        return tree.ExternObject(self.where(name), notes, str(name), params, methods, constructors)

    def method(self, item: Any, items: list[Any]) -> tree.Method:
        notes, rest = self.annotations(items)
        if isinstance(rest[0], Token) and rest[0].type == "ABSTRACT":
            rest.pop(0)
        result, name, *rest = rest
        generics, (params,) = self.generics(rest)
        return tree.Method(self.where(name), notes, str(name), result, generics, params)

    extern_function = method

    def constructor(self, item: Any, items: list[Any]) -> list[tree.Param]:
        return items[-1]

    def function_decl(self, item: Any, items: list[Any]) -> tree.Function:
        notes, (result, name, *rest) = self.annotations(items)
        generics, (params, body) = self.generics(rest)
        return tree.Function(self.where(name), notes, str(name), result, generics, params, body)

    def package_decl(self, item: Any, items: list[Any]) -> tree.Package:
        notes, (name, *rest) = self.annotations(items)
        generics, (params,) = self.generics(rest)
        return tree.Package(self.where(name), notes, str(name), generics, params)

    def params(self, item: Any, items: list[Any]) -> list[tree.Param]:
        return items

    def param(self, item: Any, items: list[Any]) -> tree.Param:
        notes, rest = self.annotations(items)
        direction = str(rest.pop(0)) if isinstance(rest[0], Token) and rest[0].type in ("IN", "OUT", "INOUT") else ""
        kind, name, *default = rest
        return tree.Param(self.where(name), notes, str(name), direction, kind, default[0] if default else None)

    def instance(self, item: Any, items: list[Any]) -> tree.Instance:
        notes, (kind, args, name, *body) = self.annotations(items)
        return tree.Instance(self.where(name), notes, str(name), kind, args, bool(body))

    # ---- parsers

    def parser_decl(self, item: Any, items: list[Any]) -> tree.Parser:
        notes, (name, *rest) = self.annotations(items)
        generics, (params, *rest) = self.generics(rest)
        ctor, body = self._ctor(rest)
        local, states = body if body else ([], None)
        return tree.Parser(self.where(name), notes, str(name), generics, params, ctor, local, states)

    @staticmethod
    def _ctor(rest: list[Any]) -> tuple[list[tree.Param], Any]:
        """Constructor parameters (a list) and the body (a tuple), each of which may be absent."""
        ctor = rest.pop(0) if rest and isinstance(rest[0], list) else []
        return ctor, rest[0] if rest else None

    def ctor_params(self, item: Any, items: list[Any]) -> list[tree.Param]:
        return items[0]

    def parser_body(self, item: Any, items: list[Any]) -> tuple[list[Any], list[tree.State]]:
        states = [one for one in items if isinstance(one, tree.State)]
        return [one for one in items if not isinstance(one, tree.State)], states

    def value_set(self, item: Any, items: list[Any]) -> tree.ValueSet:
        notes, (kind, size, name) = self.annotations(items)
        return tree.ValueSet(self.where(name), notes, str(name), kind, size)

    def state(self, item: Any, items: list[Any]) -> tree.State:
        notes, (_, name, *body) = self.annotations(items)
        last = body.pop() if body and isinstance(body[-1], tree.Transition) else None
        return tree.State(self.where(name), notes, str(name), body, last)

    def transition(self, item: Any, items: list[Any]) -> tree.Transition:
        if isinstance(items[0], tree.Transition):
            return items[0]
        return tree.Transition(self.where(items[0]), str(items[0]), [], [])

    def select(self, item: Any, items: list[Any]) -> tree.Transition:
        keys = items.pop(0) if isinstance(items[0], list) else []
        return tree.Transition(self.where([keys, items]), None, keys, items)

    def select_case(self, item: Any, items: list[Any]) -> tree.SelectCase:
        keys = items[0] if isinstance(items[0], list) else [items[0]]
        return tree.SelectCase(self.where(items[1]), keys, str(items[1]))

    def tuple_keyset(self, item: Any, items: list[Any]) -> list[tree.Expr]:
        return items

    def mask(self, item: Any, items: list[Any]) -> tree.Mask:
        return tree.Mask(items[0].where, items[0], items[2])

    def range(self, item: Any, items: list[Any]) -> tree.Range:
        return tree.Range(items[0].where, items[0], items[2])

    def dontcare(self, item: Any, items: list[Any]) -> tree.DontCare:
        return tree.DontCare(self.where(items))

    default = dontcare

    # ---- controls

    def control_decl(self, item: Any, items: list[Any]) -> tree.Control:
        notes, (name, *rest) = self.annotations(items)
        generics, (params, *rest) = self.generics(rest)
        ctor, body = self._ctor(rest)
        local, block = body if body else ([], None)
        return tree.Control(self.where(name), notes, str(name), generics, params, ctor, local, block)

    def control_body(self, item: Any, items: list[Any]) -> tuple[list[Any], tree.Block]:
        return items[:-2], items[-1]

    def action_decl(self, item: Any, items: list[Any]) -> tree.Action:
        notes, (name, params, body) = self.annotations(items)
        return tree.Action(self.where(name), notes, str(name), params, body)

    def table_decl(self, item: Any, items: list[Any]) -> tree.Table:
        notes, (name, *parts) = self.annotations(items)
        table = tree.Table(self.where(name), notes, str(name), [], [], None, False, {})
        seen: set[str] = set()
        for part in parts:
            kind = part.name if isinstance(part, tree.Property) else part[0]
            if kind in seen:
                fail(table.where, f"table {table.name}: the property `{kind}` is given twice")
            seen.add(kind)
            if isinstance(part, tree.Property):
                table.properties[kind] = part
            elif kind == "key":
                if table.entries is not None:
                    where = part[1][0].where if part[1] else table.where
                    fail(where, f"table {table.name}: the key stands below the entries: write it above them")
                table.key = part[1]
            elif kind == "actions":
                table.actions = part[1]
            else:
                table.const_entries, table.entries = part[1], part[2]
        if "actions" not in seen:
            fail(table.where, f"table {table.name} has no property `actions`")
        return table

    def key_property(self, item: Any, items: list[Any]) -> tuple[str, list[tree.KeyElement]]:
        return "key", [one for one in items if isinstance(one, tree.KeyElement)]

    def key_element(self, item: Any, items: list[Any]) -> tree.KeyElement:
        return tree.KeyElement(items[0].where, items[0], str(items[1]), items[2:])

    def actions_property(self, item: Any, items: list[Any]) -> tuple[str, list[tree.ActionRef]]:
        return "actions", [one for one in items if isinstance(one, tree.ActionRef)]

    def action_entry(self, item: Any, items: list[Any]) -> tree.ActionRef:
        notes, (ref,) = self.annotations(items)
        ref.annotations = notes
        return ref

    def action_ref(self, item: Any, items: list[Any]) -> tree.ActionRef:
        return tree.ActionRef(self.where(items[0]), [], str(items[0]), items[1] if len(items) > 1 else None)

    def top_action_ref(self, item: Any, items: list[Any]) -> tree.ActionRef:
        ref = self.action_ref(item, items)
        ref.top = True
        return ref

    def entries_property(self, item: Any, items: list[Any]) -> tuple[str, bool, list[tree.Entry]]:
        const = any(isinstance(one, Token) and one.type == "CONST" for one in items)
        return "entries", const, [one for one in items if isinstance(one, tree.Entry)]

    def entry(self, item: Any, items: list[Any]) -> tree.Entry:
        const = isinstance(items[0], Token) and items[0].type == "CONST"
        rest = items[1:] if const else items
        priority = None
        if isinstance(rest[0], Token) and rest[0].type == "PRIORITY":
            priority, rest = rest[1], rest[2:]
        keys = rest[0] if isinstance(rest[0], list) else [rest[0]]
        action = rest[1]
        action.annotations = rest[2:]
        return tree.Entry(action.where, const, priority, keys, action)

    def entry_priority(self, item: Any, items: list[Any]) -> tree.Expr:
        return self.integer(item, items) if isinstance(items[0], Token) else items[0]

    def other_property(self, item: Any, items: list[Any]) -> tree.Property:
        notes, rest = self.annotations(items)
        const = rest[0].type == "CONST"
        name, value = rest[1:] if const else rest
        return tree.Property(self.where(name), str(name), const, value, notes)

    # ---- statements

    def block(self, item: Any, items: list[Any]) -> tree.Block:
        _notes, body = self.annotations(items)
        return tree.Block(self.where(items), body)

    def update_assign(self, item: Any, items: list[Any]) -> tree.Assign:
        """`x = e`, and `x += e` for `x = x + e`."""
        if len(items) == 2:
            return tree.Assign(items[0].where, items[0], items[1])
        target, operator, value = items
        return tree.Assign(target.where, target, tree.Binary(target.where, str(operator)[:-1], target, value))

    def for_loop(self, item: Any, items: list[Any]) -> tree.For:
        _, (word, start, condition, updates, body) = self.annotations(items)
        return tree.For(self.where(word), start, condition, updates, body)

    def for_inits(self, item: Any, items: list[Any]) -> list[Any]:
        return items

    for_updates = for_inits

    def for_var(self, item: Any, items: list[Any]) -> tree.Var:
        kind, name, value = items
        return tree.Var(self.where(name), [], str(name), kind, value)

    def for_in(self, item: Any, items: list[Any]) -> tree.ForIn:
        _, (word, kind, name, _, (low, high)) = self.annotations(items[:-1])
        return tree.ForIn(self.where(word), tree.Var(self.where(name), [], str(name), kind, None), low, high, items[-1])

    def for_range(self, item: Any, items: list[Any]) -> tuple[tree.Expr, tree.Expr | None]:
        return items[0], items[2] if len(items) > 1 else None

    def break_(self, item: Any, items: list[Any]) -> tree.Break:
        return tree.Break(self.where(items[0]))

    def continue_(self, item: Any, items: list[Any]) -> tree.Continue:
        return tree.Continue(self.where(items[0]))

    def call_statement(self, item: Any, items: list[Any]) -> tree.CallStatement:
        call = self.call(item, items)
        return tree.CallStatement(call.where, call)

    def direct_apply(self, item: Any, items: list[Any]) -> tree.DirectApply:
        return tree.DirectApply(items[0].where, items[0], items[2])

    def conditional(self, item: Any, items: list[Any]) -> tree.If:
        return tree.If(items[0].where, items[0], items[1], items[2] if len(items) > 2 else None)

    def empty(self, item: Any, items: list[Any]) -> tree.Empty:
        return tree.Empty(NOWHERE)

    def return_(self, item: Any, items: list[Any]) -> tree.Return:
        return tree.Return(self.where(items[0]), items[1] if len(items) > 1 else None)

    def exit(self, item: Any, items: list[Any]) -> tree.Exit:
        return tree.Exit(self.where(items[0]))

    def switch(self, item: Any, items: list[Any]) -> tree.SwitchStatement:
        return tree.SwitchStatement(items[0].where, items[0], items[1:])

    def switch_case(self, item: Any, items: list[Any]) -> tree.Case:
        return tree.Case(self.where(items[0]), items[0], items[1] if len(items) > 1 else None)

    def var_decl(self, item: Any, items: list[Any]) -> tree.Var:
        notes, (kind, name, *rest) = self.annotations(items)
        kind = self._arrays(kind, [one for one in rest if isinstance(one, _Dimension)])
        value = rest[-1] if rest and not isinstance(rest[-1], _Dimension) else None
        return tree.Var(self.where(name), notes, str(name), kind, value)

    # ---- expressions

    def args(self, item: Any, items: list[Any]) -> list[tree.Arg]:
        return [one if isinstance(one, tree.Arg) else tree.Arg(one.where, None, one) for one in items]

    def named_arg(self, item: Any, items: list[Any]) -> tree.Arg:
        value = tree.DontCare(self.where(items[1])) if isinstance(items[1], Token) else items[1]
        return tree.Arg(self.where(items[0]), str(items[0]), value)

    def expr_list(self, item: Any, items: list[Any]) -> list[tree.Expr]:
        return items

    def integer(self, item: Any, items: list[Any]) -> tree.Integer:
        value, width, signed = tree.parse_integer(str(items[0]))
        return tree.Integer(self.where(items[0]), value, width, signed, tree.base_of(str(items[0])))

    def string(self, item: Any, items: list[Any]) -> tree.String:
        return tree.String(self.where(items[0]), tree.unquote(str(items[0])))

    def true(self, item: Any, items: list[Any]) -> tree.Boolean:
        return tree.Boolean(self.where(items[0]), True)

    def false(self, item: Any, items: list[Any]) -> tree.Boolean:
        return tree.Boolean(self.where(items[0]), False)

    def this(self, item: Any, items: list[Any]) -> tree.Refused:
        return tree.Refused(self.where(items[0]), "`this`")

    def dots(self, item: Any, items: list[Any]) -> tree.Dots:
        return tree.Dots(self.where(items[0]))

    def invalid_expr(self, item: Any, items: list[Any]) -> tree.Expr:
        return tree.Invalid(self.where(items))

    def path(self, item: Any, items: list[Any]) -> tree.PathExpression:
        return tree.PathExpression(self.where(items[0]), str(items[0]))

    def top_path(self, item: Any, items: list[Any]) -> tree.PathExpression:
        return tree.PathExpression(self.where(items[0]), str(items[0]), True)

    def list_expr(self, item: Any, items: list[Any]) -> tree.ListExpr:
        values = items[0] if items else []
        return tree.ListExpr(self.where(values), values)

    def empty_list(self, item: Any, items: list[Any]) -> tree.ListExpr:
        return tree.ListExpr(self.where(items), [])

    def record_expr(self, item: Any, items: list[Any]) -> tree.RecordExpr:
        dots = tree.Dots(self.where(items.pop())) if isinstance(items[-1], Token) else None
        return tree.RecordExpr(items[0][1].where, items, dots)

    def record_field(self, item: Any, items: list[Any]) -> tuple[str, tree.Expr]:
        return str(items[0]), items[1]

    def type_member(self, item: Any, items: list[Any]) -> tree.TypeMember:
        return tree.TypeMember(items[0].where, items[0], str(items[1]))

    def error_member(self, item: Any, items: list[Any]) -> tree.TypeMember:
        return tree.TypeMember(self.where(items[0]), None, str(items[1]))

    def member(self, item: Any, items: list[Any]) -> tree.Member:
        return tree.Member(self.where(items[1]), items[0], str(items[1]))

    def index(self, item: Any, items: list[Any]) -> tree.Index:
        return tree.Index(items[0].where, *items)

    def slice(self, item: Any, items: list[Any]) -> tree.Slice:
        return tree.Slice(items[0].where, *items)

    def plus_slice(self, item: Any, items: list[Any]) -> tree.Slice:
        base, low, width = items
        return tree.Slice(base.where, base, low, low, width)

    def call(self, item: Any, items: list[Any]) -> tree.Call:
        target, *types, args = items
        return tree.Call(target.where, target, types[0] if types else [], args)

    def construct(self, item: Any, items: list[Any]) -> tree.Construct:
        return tree.Construct(items[0].where, *items)

    def cast(self, item: Any, items: list[Any]) -> tree.Cast:
        return tree.Cast(items[0].where, *items)

    def unary(self, item: Any, items: list[Any]) -> tree.Unary:
        return tree.Unary(self.where(items[0]), str(items[0]), items[1])

    def binary(self, item: Any, items: list[Any]) -> tree.Binary:
        return tree.Binary(items[0].where, str(items[1]), items[0], items[2])

    def ternary(self, item: Any, items: list[Any]) -> tree.Ternary:
        return tree.Ternary(items[0].where, *items)
