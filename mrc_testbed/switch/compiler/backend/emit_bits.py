"""C text that loads and stores values of so many bits at so many bits from a pointer, most significant bit first."""

from __future__ import annotations

from mrc_testbed.switch.compiler.backend.code import bits_of, c_name, c_type, literal
from mrc_testbed.switch.compiler.errors import Location
from mrc_testbed.switch.compiler.sema.types import MAX_BITS, Record, Stack, Type, Wide, form


def scalar_leaves(c: str, of: Type, where: Location) -> list[tuple[str, int]]:
    """(C lvalue, bits) of a header's field: more than one when it is a struct or an array."""
    record = form(of)
    if isinstance(record, Wide):
        return [(c, record.width)]
    if isinstance(record, Stack):
        leaves = (scalar_leaves(f"{c}.h[{at}]", record.element, where) for at in range(record.size))
        return [leaf for one in leaves for leaf in one]
    if not isinstance(record, Record):
        return [(c, bits_of(of, where))]
    return [
        leaf for name, field in record.fields.items() for leaf in scalar_leaves(f"{c}.{c_name(name)}", field, where)
    ]


def field_bits(of: Type, where: Location) -> int:
    """Bits of a field for the control plane: of any number, a bool, an enum, an error."""
    base = form(of)
    return base.width if isinstance(base, Wide) else bits_of(of, where)


def bytes_of(of: Type, where: Location) -> int:
    """Bytes of a field in a key or among the parameters."""
    return (field_bits(of, where) + 7) // 8


def load_field(c: str, base: str, offset: int, bits: int) -> str:
    """C statement: fill the field `c` from `bits` bits that begin `offset` bits after the pointer `base`."""
    if bits <= MAX_BITS:
        return f"{c} = {load_bits(base, offset, bits)};"
    if offset % 8 == bits % 8 == 0:
        return f"memcpy({c}.b, {base} + {offset // 8}, {bits // 8});"
    return f"p4w_get({c}.b, {bits}, {base}, {offset});"


def load_bits(base: str, offset: int, bits: int) -> str:
    """C expression: `bits` bits that begin `offset` bits after the pointer `base`."""
    at = f"{base} + {offset // 8}" if offset >= 8 else base
    if offset % 8 == 0 and bits in (16, 32, 64, 128):
        return f"p4_get{bits}({at})"
    if offset % 8 == 0 and bits == 8:
        return f"{base}[{offset // 8}]"
    if offset % 8 == 0 and bits % 8 == 0:
        return f"p4rt_get{'' if bits <= 64 else '128'}({at}, {bits // 8})"
    last = (offset + bits - 1) // 8
    if last == offset // 8:
        shift = 7 - (offset + bits - 1) % 8
        moved = f"{base}[{last}] >> {shift}" if shift else f"{base}[{last}]"
        return f"({moved} & {literal((1 << bits) - 1)})"
    return f"({c_type(bits)})p4_get_bits({base}, {offset}, {bits})"


def store_bits(base: str, offset: int, bits: int, value: str) -> str:
    """C statement: store a value of `bits` bits there, leaving the bits around it alone."""
    if bits > MAX_BITS:
        if offset % 8 == bits % 8 == 0:
            return f"memcpy({base} + {offset // 8}, {value}.b, {bits // 8});"
        return f"p4w_put({base}, {offset}, {bits}, {value}.b);"
    at = f"{base} + {offset // 8}" if offset >= 8 else base
    if offset % 8 == 0 and bits in (16, 32, 64, 128):
        return f"p4_put{bits}({at}, {value});"
    if offset % 8 == 0 and bits == 8:
        return f"{base}[{offset // 8}] = (uint8_t){value};"
    if offset % 8 == 0 and bits % 8 == 0:
        return f"p4rt_put{'' if bits <= 64 else '128'}({at}, {value}, {bits // 8});"
    return f"p4_put_bits({base}, {offset}, {bits}, {value});"
