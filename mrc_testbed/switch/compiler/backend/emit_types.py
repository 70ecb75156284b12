"""C types of what a program declares: structs, headers, stacks, varbits and long numbers."""

from __future__ import annotations

from mrc_testbed.switch.compiler.backend.code import bits_of, c_name, c_type
from mrc_testbed.switch.compiler.errors import NOWHERE, Location
from mrc_testbed.switch.compiler.sema.types import Record, Stack, Type, Varbit, WideBits, form

STANDARD_METADATA = "standard_metadata_t"
"""The one struct that the runtime declares: struct p4rt_std."""


class CTypes:
    """Names the C type of a P4 type, and remembers which structs the file needs."""

    def __init__(self) -> None:
        self.structs: list[Record | Stack | Varbit | WideBits] = []
        """Types that the file needs, parts before the aggregates that hold them."""
        self.arrays: set[str] = set()
        """C types of the stacks and arrays in `structs`."""

    def struct(self, record: Record | Stack | Varbit | WideBits) -> str:
        """C type of a struct, header, stack or varbit; remembers that it is needed, parts before the whole."""
        if isinstance(record, WideBits):
            record = WideBits(record.width)  # with and without sign they are the same bytes
        if isinstance(record, (Varbit, WideBits)):
            if record not in self.structs:
                self.structs.append(record)
            return f"struct {'wide' if isinstance(record, WideBits) else 'varbit'}_{record.width}"
        if isinstance(record, Stack):
            element = self.declare_type(record.element, NOWHERE)
            word = "stack" if record.of_headers else "array"
            name = f"struct {word}_{element.removeprefix('struct ')}_{record.size}"
            if name not in self.arrays:  # those of bit<7> and of bit<8> are one
                self.arrays.add(name)
                self.structs.append(record)
            return name
        if record.name == STANDARD_METADATA:
            return "struct p4rt_std"
        if record not in self.structs:
            for field in record.fields.values():
                base = form(field)
                if isinstance(base, (Record, Stack, Varbit, WideBits)):
                    self.struct(base)
            self.structs.append(record)
        return f"struct {c_name(record.name)}"

    def declare_type(self, p4_type: Type, location: Location) -> str:
        """C type of a variable or field."""
        base = form(p4_type)
        if isinstance(base, (Record, Stack, Varbit, WideBits)):
            return self.struct(base)
        return c_type(bits_of(p4_type, location))
