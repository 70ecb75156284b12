"""C text that loads and stores values at a bit offset, most significant bit first."""

from __future__ import annotations

from mrc_testbed.switch.compiler.backend.code import bits_of, c_name, c_type, literal
from mrc_testbed.switch.compiler.errors import Location
from mrc_testbed.switch.compiler.sema.types import MAX_BITS, Record, Stack, Type, WideBits, form


def scalar_leaves(c: str, p4_type: Type, location: Location) -> list[tuple[str, int]]:
    """(C lvalue, bits) of a header's field: more than one when it is a struct or an array."""
    record = form(p4_type)
    if isinstance(record, WideBits):
        return [(c, record.width)]
    if isinstance(record, Stack):
        leaves = (scalar_leaves(f"{c}.h[{index}]", record.element, location) for index in range(record.size))
        return [leaf for group in leaves for leaf in group]
    if not isinstance(record, Record):
        return [(c, bits_of(p4_type, location))]
    return [
        leaf for name, field in record.fields.items() for leaf in scalar_leaves(f"{c}.{c_name(name)}", field, location)
    ]


def field_bits(p4_type: Type, location: Location) -> int:
    """Bits of a field for the control plane: of any number, a bool, an enum, an error."""
    base = form(p4_type)
    return base.width if isinstance(base, WideBits) else bits_of(p4_type, location)


def bytes_of(p4_type: Type, location: Location) -> int:
    """Bytes of a field in a key or among the parameters."""
    return (field_bits(p4_type, location) + 7) // 8


def load_field(c: str, base: str, offset: int, bits: int) -> str:
    """C statement: fill the field `c` from `bits` bits that begin `offset` bits after the pointer `base`."""
    if bits <= MAX_BITS:
        return f"{c} = {load_bits(base, offset, bits)};"
    if offset % 8 == bits % 8 == 0:
        return f"memcpy({c}.b, {base} + {offset // 8}, {bits // 8});"
    return f"p4w_get({c}.b, {bits}, {base}, {offset});"


def load_bits(base: str, offset: int, bits: int) -> str:
    """C expression: `bits` bits that begin `offset` bits after the pointer `base`."""
    start = f"{base} + {offset // 8}" if offset >= 8 else base
    if offset % 8 == 0 and bits in (16, 32, 64, 128):
        return f"p4_get{bits}({start})"
    if offset % 8 == 0 and bits == 8:
        return f"{base}[{offset // 8}]"
    if offset % 8 == 0 and bits % 8 == 0:
        return f"p4rt_get{'' if bits <= 64 else '128'}({start}, {bits // 8})"
    last = (offset + bits - 1) // 8
    if last == offset // 8:
        shift = 7 - (offset + bits - 1) % 8
        shifted_text = f"{base}[{last}] >> {shift}" if shift else f"{base}[{last}]"
        return f"({shifted_text} & {literal((1 << bits) - 1)})"
    return f"({c_type(bits)})p4_get_bits({base}, {offset}, {bits})"


def store_bits(base: str, offset: int, bits: int, value: str) -> str:
    """C statement: store a value of `bits` bits there, leaving the bits around it alone."""
    if bits > MAX_BITS:
        if offset % 8 == bits % 8 == 0:
            return f"memcpy({base} + {offset // 8}, {value}.b, {bits // 8});"
        return f"p4w_put({base}, {offset}, {bits}, {value}.b);"
    start = f"{base} + {offset // 8}" if offset >= 8 else base
    if offset % 8 == 0 and bits in (16, 32, 64, 128):
        return f"p4_put{bits}({start}, {value});"
    if offset % 8 == 0 and bits == 8:
        return f"{base}[{offset // 8}] = (uint8_t){value};"
    if offset % 8 == 0 and bits % 8 == 0:
        return f"p4rt_put{'' if bits <= 64 else '128'}({start}, {value}, {bits // 8});"
    return f"p4_put_bits({base}, {offset}, {bits}, {value});"
