"""Types as written -> types."""

from __future__ import annotations

from dataclasses import dataclass, field

from mrc_testbed.switch.compiler.errors import count, fail, raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.check_context import CheckContext
from mrc_testbed.switch.compiler.sema.scope import MAX_BITS, MAX_VARBIT_BITS, Scope, fail_undeclared
from mrc_testbed.switch.compiler.sema.types import (
    BOOL,
    DONTCARE,
    ERROR,
    INT,
    STRING,
    VOID,
    Bits,
    EnumType,
    NewType,
    Object,
    Record,
    Simple,
    Stack,
    Tuple,
    Type,
    Varbit,
    Variable,
)

_SIMPLE: dict[str, Type] = {"bool": BOOL, "error": ERROR, "string": STRING, "int": INT, "void": VOID, "bit": Bits(1)}
_TYPES = (Bits, Simple, Varbit, Record, Stack, Tuple, EnumType, NewType, Object, Variable)


@dataclass(eq=False, repr=False)
class TypeResolver:
    """Turns types as written into types."""

    context: CheckContext
    records: dict[tuple[int, tuple[Type, ...]], Record] = field(default_factory=dict, init=False)
    """Generic structs with their arguments."""

    def resolve(self, node: tree.TypeNode, scope: Scope) -> Type:
        """The type a type expression names. Raises P4Error for unknown names and impossible sizes."""
        if isinstance(node, tree.SimpleType):
            return _SIMPLE[node.name]
        if isinstance(node, tree.SizedType):
            return self._sized_type(node, scope)
        if isinstance(node, tree.NamedType):
            return self._named_type(node, scope)
        if isinstance(node, tree.StackType):
            element = self.resolve(node.element, scope)
            if not isinstance(element, (Record, Bits, EnumType, NewType, Tuple, Stack)) and element not in (
                BOOL,
                ERROR,
            ):
                fail(
                    node.location,
                    f"an array of {element}: headers, structs, tuples, numbers, bool, enums and errors can be",
                )
            size = self.context.expressions.constant(node.size, scope)
            if size < 1:
                fail(node.location, f"an array of {size} elements: it has at least one")
            return Stack(element, size)
        if isinstance(node, tree.TupleType):
            return Tuple(tuple(self.resolve(arg, scope) for arg in node.args))
        return DONTCARE

    def _record(self, generic: Record, args: tuple[Type, ...], scope: Scope) -> Record:
        """A generic struct or header with its type arguments; equal arguments give the same type."""
        key = (id(generic), args)
        if key not in self.records:
            word = "_".join("".join(c if c.isalnum() else "_" for c in str(arg)) for arg in args)
            record = Record(f"{generic.name}_{word}", generic.kind, {}, generic.decl, args)
            self.records[key] = record
            inner = Scope(scope.top())
            inner.names.update(zip(generic.decl.type_params, args, strict=True))
            for field in generic.decl.fields:
                record.fields[field.name] = self.resolve(field.type_node, inner)
        return self.records[key]

    def _sized_type(self, node: tree.SizedType, scope: Scope) -> Type:
        width = self.context.expressions.constant(node.size, scope)
        low = 1 if node.name == "int" else 0
        high = MAX_VARBIT_BITS if node.name == "varbit" else MAX_BITS
        if not low <= width <= high:
            fail(node.location, f"{node.name}<{width}>: the width must be {low} to {high}")
        return Varbit(width) if node.name == "varbit" else Bits(width, node.name == "int")

    def _named_type(self, node: tree.NamedType, scope: Scope) -> Type:
        declaration = scope.find(node.name)
        if declaration is None and node.name == "list":
            raise_unsupported(node.location, "list<T> here", "`for (T x in (list<T>){ ... })` is")
        if declaration is None:
            fail_undeclared(node.location, node.name, scope, "type")
        if not isinstance(declaration, _TYPES):
            fail(node.location, f"{node.name} is not a type")
        args = tuple(self.resolve(arg, scope) for arg in node.args)
        if isinstance(declaration, Object):
            arg_count = len(declaration.decl.type_params)
            if args and len(args) != arg_count:
                fail(node.location, f"{node.name} takes {count(arg_count, 'type argument')}, not {len(args)}")
            return self.context.copies.specialise(declaration, args) if args else declaration
        if isinstance(declaration, Record) and declaration.decl.type_params:
            arg_count = len(declaration.decl.type_params)
            if len(args) != arg_count:
                fail(node.location, f"{node.name} takes {count(arg_count, 'type argument')}, not {len(args)}")
            return self._record(declaration, args, scope)
        if args:
            fail(node.location, f"{node.name} takes no type arguments")
        return declaration
