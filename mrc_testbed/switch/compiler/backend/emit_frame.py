"""Lvalues, the usage of header fields, and the C function being written.

Shared by all writers of C.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mrc_testbed.switch.compiler.backend.code import Code, c_name
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.elaborate import ControlInstance, TableInstance
from mrc_testbed.switch.compiler.sema.types import Record, Stack, Type, Varbit, form


@dataclass(frozen=True)
class Lvalue:
    """Something that can be read, and perhaps written: a C lvalue and what it stands for in P4.

    `key` names it in the bookkeeping of header fields: `p.hdr.outer`; equal keys are one thing.
    """

    c: str
    type: Type
    key: str
    shared: bool = False
    """Outlives the function (the packet's headers and metadata): may be passed by name instead of by copy."""
    field: tuple[str, Record, str] | None = None
    """Key of the header, its type and the name of the field; None outside a header."""
    siblings: tuple[str, ...] = ()
    """C lvalues of the other members of a header union; none is valid when this member is."""
    valid: str = ""
    """C condition for the validity of the header around the lvalue; empty outside a header."""
    instance: Any = None
    """Extern instance bound to a parameter; None for other lvalues.

    `c` then only distinguishes instances and is no C.
    """


@dataclass
class Usage:
    """Header fields that the program reads and writes, as (key of the header, field).

    The parser loads only these, and the deparser stores only those written.
    """

    reads: set[tuple[str, str]] = field(default_factory=set)
    writes: set[tuple[str, str]] = field(default_factory=set)
    types: dict[str, Record] = field(default_factory=dict)

    def note(self, lvalue: Lvalue, write: bool) -> None:
        """A place is read or written: remember which fields of which headers that touches."""
        if lvalue.field:
            key, record, name = lvalue.field
            self._add(key, record, [name], write)
        self.note_whole(lvalue, write)

    def note_whole(self, lvalue: Lvalue, write: bool) -> None:
        """A struct or header is read or written as a whole: all fields of all headers in it."""
        record = form(lvalue.type)
        if isinstance(record, Stack):
            self.note_whole(element_of(lvalue, 0), write)
        elif isinstance(record, Record) and record.kind == "header":
            self._add(lvalue.key, record, record.fields, write)
        elif isinstance(record, Record):
            for part in parts_of(lvalue):
                self.note_whole(part, write)

    def note_valid(self, lvalue: Lvalue) -> None:
        """Whether a header is valid is asked or said, of its fields nothing."""
        self._add(lvalue.key, form(lvalue.type), [], False)

    def _add(self, key: str, record: Record, names: Iterable[str], write: bool) -> None:
        self.types[key] = record
        (self.writes if write else self.reads).update((key, name) for name in names)

    def used_fields(self, key: str) -> list[str]:
        """Fields of the header `key` that are read or written, in the order of the header."""
        uses = self.reads | self.writes
        return [name for name in self.types[key].fields if (key, name) in uses] if key in self.types else []

    def of_type(self, record: Record) -> list[str]:
        """Fields of any header of this type that are read or written."""
        keys = [key for key, type_ in self.types.items() if type_ is record]
        names = {name for key in keys for name in self.used_fields(key)}
        # the size of a header is read from its varbit field, also where nothing else is
        return [name for name, part in record.fields.items() if name in names or isinstance(form(part), Varbit)]


@dataclass
class FunctionFrame:
    """C function being written."""

    code: Code
    bindings: dict[int, Lvalue]
    """id() of a Param or Var -> its place."""
    control: ControlInstance | None
    phase: str
    used_names: set[str] = field(default_factory=set)
    at_exit: str = "return 1;"
    in_parser: bool = False
    labels: str = ""
    """Prefix that keeps the labels of one application of a parser apart from the others."""
    accept: str = "done"
    """Label that `accept` goes to."""
    loops: list[tuple[str, str]] = field(default_factory=list)
    """Labels that break and continue of the loops around go to, the innermost last."""
    returns: Type | None = None
    """Result type of a P4 function; None in other C functions."""

    def name(self, stem: str) -> str:
        """A C name for a local, not used before in this function."""
        base, n = c_name(stem), 2
        out = base
        while out in self.used_names:
            out, n = f"{base}_{n}", n + 1
        self.used_names.add(out)
        return out

    def table(self, decl: tree.Table) -> TableInstance:
        """The instance of a table of this control."""
        assert self.control is not None
        table: TableInstance = self.control.members[id(decl)]
        return table


def acts(e: Any) -> bool:
    """Return whether an expression has effects or needs statements before it."""
    return any(
        isinstance(node, tree.Call)
        and node.callee is not None
        and node.callee.kind in ("user", "table", "method", "function")
        for node in tree.walk(e)
    )


def element_of(stack: Lvalue, index: int) -> Lvalue:
    """Return an element of a header stack or an array.

    All elements share one key: what is read of one is loaded for all.
    """
    stack_type = form(stack.type)
    assert isinstance(stack_type, Stack)
    part, valid = (None, "") if stack_type.of_headers else (stack.field, stack.valid)
    return Lvalue(f"{stack.c}.h[{index}]", stack_type.element, f"{stack.key}[]", stack.shared, part, valid=valid)


def parts_of(lvalue: Lvalue) -> list[Lvalue]:
    """The fields of a struct or header, or the elements of a stack."""
    aggregate = form(lvalue.type)
    if isinstance(aggregate, Stack):
        return [element_of(lvalue, index) for index in range(aggregate.size)]
    assert isinstance(aggregate, Record)
    valid = f"{lvalue.c}.is_valid" if aggregate.kind == "header" else lvalue.valid
    return [
        Lvalue(f"{lvalue.c}.{c_name(name)}", field_type, f"{lvalue.key}.{name}", lvalue.shared, valid=valid)
        for name, field_type in aggregate.fields.items()
    ]
