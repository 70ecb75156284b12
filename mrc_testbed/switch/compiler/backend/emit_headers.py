"""Headers: their bytes, and C statements that change whether they are valid."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_testbed.switch.compiler.backend.code import c_name
from mrc_testbed.switch.compiler.backend.emit_bits import scalar_leaves
from mrc_testbed.switch.compiler.backend.emit_frame import FunctionFrame, Lvalue, parts_of
from mrc_testbed.switch.compiler.errors import fail, raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.sema.check_calls import check_whole_bytes
from mrc_testbed.switch.compiler.sema.scope import field_location
from mrc_testbed.switch.compiler.sema.types import Record, Stack, Varbit, form, width_of


@dataclass(frozen=True)
class HeaderShape:
    """Bytes of a header type."""

    fixed_bytes: int
    """Bytes without the varbit field."""
    varbit: str | None = None
    """Name of the varbit field."""
    varbit_bits: int = 0
    """Maximum bits of the varbit field; 0 without such a field."""

    @property
    def max_bytes(self) -> int:
        return self.fixed_bytes + self.varbit_bits // 8

    def size_text(self, c: str) -> str:
        """C expression for the bytes of the header at the place `c`."""
        return f"({self.fixed_bytes} + {c}.{c_name(self.varbit)}.bits / 8)" if self.varbit else str(self.fixed_bytes)


def header_shape(record: Record, e: tree.Expr) -> HeaderShape:
    """Raises P4Error for headers that are not whole bytes."""
    bits, varbit, varbit_bits = 0, None, 0
    for name, field in record.fields.items():
        base = form(field)
        if isinstance(base, Varbit):
            if varbit is not None:
                fail(field_location(record, name), f"header {record}: a second varbit field")
            if bits % 8 or base.width % 8:
                raise_unsupported(field_location(record, name), "varbit that does not begin and end at whole bytes")
            varbit, varbit_bits = name, base.width
        else:
            bits += sum(leaf_bits for _, leaf_bits in scalar_leaves("", field, field_location(record, name)))
    check_whole_bytes(record, e.location)
    return HeaderShape(bits // 8, varbit, varbit_bits)


def forget_bytes(lvalue: Lvalue, frame: FunctionFrame) -> None:
    """Detach a copied header from its bytes in the frame: its fields are now its only source."""
    record = form(lvalue.type)
    if isinstance(record, Record) and record.kind == "header":
        frame.code.add(f"{lvalue.c}.at = P4_AT_NONE;")
    elif isinstance(record, (Record, Stack)):
        for part in parts_of(lvalue):
            forget_bytes(part, frame)


def invalidate_siblings(lvalue: Lvalue, frame: FunctionFrame) -> None:
    """A member of a header union has become valid: the others are not."""
    frame.code.add(*(f"{sibling}.is_valid = 0;" for sibling in lvalue.siblings))


def set_valid(lvalue: Lvalue, valid: bool, frame: FunctionFrame) -> None:
    """Set or clear validity, and adjust simple_switch's packet_length with it."""
    if frame.phase in ("ingress", "egress"):
        fields = form(lvalue.type).fields.values()
        size = sum(width_of(field) or 0 for field in fields) // 8
        change = f"+= {lvalue.c}.is_valid ? 0 : {size}" if valid else f"-= {lvalue.c}.is_valid ? {size} : 0"
        frame.code.add(f"pkt->grown {change};")
    frame.code.add(f"{lvalue.c}.is_valid = {int(valid)};")


def out_of_bounds(condition: str, frame: FunctionFrame) -> None:
    """End the parser when a C condition holds."""
    frame.code.open(f"if ({condition}) {{")
    frame.code.add("error = P4_ERROR_StackOutOfBounds;", frame.at_exit)
    frame.code.close()
