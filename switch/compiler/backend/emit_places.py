"""Expressions -> places: C lvalues. Fields that are read or written are noted per header, so that the parser loads only
these and the deparser stores only those written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from switch.compiler.backend.code import bits_of, c_name, c_type
from switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, Usage, element_of, parts_of
from switch.compiler.errors import NOWHERE, Location, unsupported
from switch.compiler.frontend import tree
from switch.compiler.frontend.tree import walk
from switch.compiler.sema.elaborate import ElaboratedProgram
from switch.compiler.sema.types import Record, Stack, Tuple, Type, Varbit, Wide, form

_STD = "standard_metadata_t"


class PlaceEmitter:
    """Finds places. `frame` is the function being written."""

    def __init__(self, program: ElaboratedProgram) -> None:
        self.program = program
        self.usage = Usage()
        self.structs: list[Record | Stack | Varbit] = []
        self.arrays: set[str] = set()
        """C types of the stacks and arrays in `structs`."""
        self.temporaries = 0
        self.implied_lists: list[list[str]] = []
        """Field lists given in place: C paths below the metadata."""

    def value(self, e: tree.Expr, frame: FunctionFrame) -> str:
        """C expression for the value of a scalar; emit_expr.py."""
        raise NotImplementedError

    def struct(self, record: Record | Stack | Varbit) -> str:
        """C type of a struct, header, stack or varbit; remembers that it is needed, parts before the whole."""
        if isinstance(record, Wide):
            record = Wide(record.width)  # with and without sign they are the same bytes
        if isinstance(record, (Varbit, Wide)):
            if record not in self.structs:
                self.structs.append(record)
            return f"struct {'wide' if isinstance(record, Wide) else 'varbit'}_{record.width}"
        if isinstance(record, Stack):
            element = self.declare_type(record.element, NOWHERE)
            word = "stack" if record.of_headers else "array"
            name = f"struct {word}_{element.removeprefix('struct ')}_{record.size}"
            if name not in self.arrays:  # those of bit<7> and of bit<8> are one
                self.arrays.add(name)
                self.structs.append(record)
            return name
        if record.name == _STD:
            return "struct p4rt_std"
        if record not in self.structs:
            for of in record.fields.values():
                base = form(of)
                if isinstance(base, (Record, Stack, Varbit, Wide)):
                    self.struct(base)
            self.structs.append(record)
        return f"struct {c_name(record.name)}"

    def declare_type(self, of: Type, where: Location) -> str:
        base = form(of)
        if isinstance(base, (Record, Stack, Varbit, Wide)):
            return self.struct(base)
        return c_type(bits_of(of, where))

    def place(self, e: tree.Expr, frame: FunctionFrame) -> Lvalue:
        """The place an expression names. Raises P4Error for what the backend cannot address."""
        if isinstance(e, tree.PathExpression):
            found = frame.bindings.get(id(e.decl))
            if found is None and isinstance(e.decl, tree.Const) and isinstance(form(e.type), (Record, Wide)):
                return self.temporary_place(e.decl.value, frame)
            if found is None:
                unsupported(e.where, f"{e.name} here")
            return found
        if isinstance(e, tree.Index) and isinstance(e.base.type, Stack):
            return self._element(self.place(e.base, frame), e.index, frame)
        if isinstance(e, tree.Index):
            assert isinstance(e.base.type, Tuple)
            tuple_place = self.place(e.base, frame)
            return parts_of(tuple_place)[e.index.const]
        if isinstance(e, tree.Member) and isinstance(e.base.type, Stack):
            return self.last_or_next(self.place(e.base, frame), e, frame)
        if isinstance(e, tree.Member):
            base = self.place(e.base, frame)
            record = form(base.type)
            assert isinstance(record, Record)
            name = e.name if record.name == _STD else c_name(e.name)
            part = (base.key, record, e.name) if record.kind == "header" else base.field
            others: tuple[str, ...] = ()
            if record.kind == "header_union":
                others = tuple(f"{base.c}.{c_name(one)}" for one in record.fields if one != e.name)
            valid = f"{base.c}.is_valid" if record.kind == "header" else base.valid
            key = f"{base.key}.{e.name}"
            return Lvalue(f"{base.c}.{name}", record.fields[e.name], key, base.shared, part, others, valid)
        if isinstance(form(e.type), (Record, Stack, Wide)):
            return self.temporary_place(e, frame)
        unsupported(e.where, "this as something to write to")

    def temporary_place(self, e: tree.Expr, frame: FunctionFrame) -> Lvalue:
        """A new local that holds the value of an expression that is no place: a list, a call, a choice."""
        self.temporaries += 1
        name = frame.name("t")
        place = Lvalue(name, e.type, f"temporary {self.temporaries}")
        frame.code.add(f"{self.declare_type(e.type, e.where)} {name} = {{0}};")
        self.assign(place, e, frame)
        return place

    def assign(self, place: Lvalue, e: tree.Expr, frame: FunctionFrame) -> None:
        """place = e; written by emit_stmt.py."""
        raise NotImplementedError

    def acts(self, e: Any) -> bool:
        """Does evaluating an expression do anything but give a value, or need statements before it?"""
        return any(
            isinstance(one, tree.Call)
            and one.callee is not None
            and (one.callee.kind in ("user", "table", "method") or one.callee.kind == "function")
            for one in walk(e)
        )

    def values(self, exprs: list[tree.Expr], frame: FunctionFrame) -> list[str]:
        """C values of expressions evaluated from left to right: what a later one may change is taken before it."""
        out = []
        for at, e in enumerate(exprs):
            text = self.value(e, frame)
            if e.const is None and any(self.acts(one) for one in exprs[at + 1 :]):
                name = frame.name("t")
                frame.code.add(f"{self.declare_type(e.type, e.where)} {name} = {text};")
                text = name
            out.append(text)
        return out

    def _element(self, stack: Lvalue, index: tree.Expr, frame: FunctionFrame) -> Lvalue:
        """stack[index]. An index beyond the end, known only at run time, means an element that nobody sees.

        In a parser it ends the parser with error.StackOutOfBounds, as `next` does.
        """
        of = form(stack.type)
        assert isinstance(of, Stack)
        if index.const is not None:
            return element_of(stack, index.const)
        name = frame.name("i")
        frame.code.add(f"uint32_t {name} = p4_index({self.value(index, frame)}, {of.size});")
        if frame.in_parser:
            self.out_of_bounds(f"{name} == {of.size}", frame)
        return replace(element_of(stack, 0), c=f"{stack.c}.h[{name}]", shared=False)

    def out_of_bounds(self, when: str, frame: FunctionFrame) -> None:
        """Ends the parser when a C condition holds (emit_parser.py)."""
        raise NotImplementedError

    def last_or_next(self, stack: Lvalue, e: tree.Member, frame: FunctionFrame) -> Lvalue:
        """stack.next and stack.last, which only a parser has (emit_parser.py)."""
        unsupported(e.where, f"`{e.name}` of a header stack here")

    def alone(self, place: Lvalue, frame: FunctionFrame) -> None:
        """A member of a header union has become valid: the others are not."""
        frame.code.add(*(f"{one}.is_valid = 0;" for one in place.siblings))

    def note(self, place: Lvalue, write: bool) -> None:
        """A place is read or written: remember which fields of which headers that touches."""
        if place.field:
            key, record, name = place.field
            self.usage.note(key, record, [name], write)
        self.note_whole(place, write)

    def note_whole(self, place: Lvalue, write: bool) -> None:
        """A struct or header is read or written as a whole: all fields of all headers in it."""
        record = form(place.type)
        if isinstance(record, Stack):
            self.note_whole(element_of(place, 0), write)
        elif isinstance(record, Record) and record.kind == "header":
            self.usage.note(place.key, record, record.fields, write)
        elif isinstance(record, Record):
            for one in parts_of(place):
                self.note_whole(one, write)
