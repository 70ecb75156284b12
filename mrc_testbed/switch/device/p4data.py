"""Bytes of a program to P4Data by the type in P4Info, and cells of registers back.

The layout of the bytes: switch/compiler/p4info/typespec.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from finsy.proto import p4d, p4i, p4t

from mrc_testbed.switch.device.entities import TableError
from mrc_testbed.switch.device.schema import MatchField, canonical, number

TypeBits = Mapping[str, int]
"""Program's widths of translated types (Schema.type_bits), which P4Info does not tell."""
NONE_TRANSLATED: TypeBits = MappingProxyType({})


def p4_data(
    spec: p4t.P4DataTypeSpec, info: p4i.P4Info, data: bytes, type_bits: TypeBits = NONE_TRANSLATED
) -> p4d.P4Data:
    """A value of the type `spec`. The bytes are the runtime's, so their length fits."""
    return _Reader(info, data, type_bits).value(spec)


class _Reader:
    def __init__(self, info: p4i.P4Info, data: bytes, type_bits: TypeBits) -> None:
        self._types = info.type_info
        self._type_bits = type_bits
        self._data = data
        self._offset = 0

    def _take(self, bits: int) -> int:
        size = (bits + 7) // 8
        self._offset += size
        return int.from_bytes(self._data[self._offset - size : self._offset], "big")

    def value(self, spec: p4t.P4DataTypeSpec) -> p4d.P4Data:
        kind, out = spec.WhichOneof("type_spec"), p4d.P4Data()
        if kind == "bitstring":
            value = self._take(_width(spec.bitstring))
            out.bitstring = canonical_signed(value, _width(spec.bitstring)) if _signed(spec) else canonical(value)
        elif kind == "bool":
            out.bool = bool(self._take(1))
        elif kind == "new_type":
            self._new_type(spec.new_type.name, out)
        elif kind == "serializable_enum":
            width = self._types.serializable_enums[spec.serializable_enum.name].underlying_type.bitwidth
            out.enum_value = canonical(self._take(width))
        elif kind == "enum":
            out.enum = self._types.enums[spec.enum.name].members[self._take(32)].name
        elif kind == "error":
            out.error = self._types.error.members[self._take(32)]
        elif kind == "tuple":
            out.tuple.members.extend(self.value(member) for member in spec.tuple.members)
        elif kind == "struct":
            members = self._types.structs[spec.struct.name].members
            out.struct.members.extend(self.value(member.type_spec) for member in members)
        else:
            self._header(spec.header.name, out)
        return out

    def _new_type(self, name: str, out: p4d.P4Data) -> None:
        spec = self._types.new_types[name]
        if spec.WhichOneof("representation") == "translated_type":
            field = _translated_field(name, spec, self._type_bits)
            out.bitstring = field.client_bytes(self._take(field.bits))
        else:
            out.CopyFrom(self.value(spec.original_type))

    def _header(self, name: str, out: p4d.P4Data) -> None:
        """The fields of a header that is not valid stay away, as the specification demands."""
        out.header.is_valid = bool(self._take(1))
        values = [canonical(self._take(_width(member.type_spec))) for member in self._types.headers[name].members]
        if out.header.is_valid:
            out.header.bitstrings.extend(values)


def _translated_field(name: str, spec: p4t.P4NewTypeSpec, type_bits: TypeBits) -> MatchField:
    """Return the field of a translated type: the program's width, as a number or as text."""
    translation = spec.translated_type
    return MatchField(0, name, type_bits.get(name, translation.sdn_bitwidth), text=translation.HasField("sdn_string"))


def _width(spec: p4t.P4BitstringLikeTypeSpec) -> int:
    return spec.bit.bitwidth or spec.int.bitwidth


def _signed(spec: p4t.P4DataTypeSpec) -> bool:
    return spec.bitstring.HasField("int")


def canonical_signed(value: int, bits: int) -> bytes:
    """Return the `bits` bits of an int<W> (two's complement) in shortest form (P4Runtime §8.3)."""
    signed = value - (1 << bits) if value >> bits - 1 & 1 else value
    bit_count = (signed if signed >= 0 else ~signed).bit_length() + 1
    return signed.to_bytes((bit_count + 7) // 8, "big", signed=True)


def register_in(info: p4i.P4Info, type_bits: TypeBits, register_id: int, data: p4d.P4Data) -> int:
    """Return the bits of a register's cell.

    Raises TableError INVALID_ARGUMENT for data of another type, OUT_OF_RANGE.
    """
    for register in info.registers:
        if register.preamble.id == register_id:
            return _scalar(register.type_spec, info, type_bits, data, register.preamble.alias)
    known = ", ".join(f"{register.preamble.alias} {register.preamble.id:#x}" for register in info.registers) or "none"
    raise TableError("INVALID_ARGUMENT", f"no register with id {register_id} (has: {known})")


def register_out(info: p4i.P4Info, type_bits: TypeBits, register_id: int, value: int) -> p4d.P4Data:
    """Return P4Runtime's message of a cell's value."""
    spec = next(register.type_spec for register in info.registers if register.preamble.id == register_id)
    field = _field(spec, info, type_bits)
    bits = field.bits if field else _bits(spec, info)
    return p4_data(spec, info, value.to_bytes((bits + 7) // 8, "big"), type_bits)


_DATA_OF = {"bitstring": "bitstring", "bool": "bool", "serializable_enum": "enum_value"}


def _field(spec: p4t.P4DataTypeSpec, info: p4i.P4Info, type_bits: TypeBits) -> MatchField | None:
    """Return the field of a value whose type is translated; None for other types."""
    name = spec.new_type.name
    if name and info.type_info.new_types[name].HasField("translated_type"):
        return _translated_field(name, info.type_info.new_types[name], type_bits)
    return None


def _plain(spec: p4t.P4DataTypeSpec, info: p4i.P4Info) -> p4t.P4DataTypeSpec:
    """The built-in type under a `type` that is not translated."""
    while spec.WhichOneof("type_spec") == "new_type":
        spec = info.type_info.new_types[spec.new_type.name].original_type
    return spec


def _bits(spec: p4t.P4DataTypeSpec, info: p4i.P4Info) -> int:
    spec = _plain(spec, info)
    if spec.WhichOneof("type_spec") == "serializable_enum":
        return info.type_info.serializable_enums[spec.serializable_enum.name].underlying_type.bitwidth
    return _width(spec.bitstring) or 1


def _scalar(spec: p4t.P4DataTypeSpec, info: p4i.P4Info, type_bits: TypeBits, data: p4d.P4Data, name: str) -> int:
    field = _field(spec, info, type_bits)
    spec = _plain(spec, info) if field is None else spec
    wanted_kind = "bitstring" if field else _DATA_OF[spec.WhichOneof("type_spec") or ""]
    data_kind = data.WhichOneof("data")
    if data_kind != wanted_kind:
        raise TableError(
            "INVALID_ARGUMENT", f"register {name}: its cells are data.{wanted_kind}, got {data_kind or 'no data'}"
        )
    if field:
        return field.number(data.bitstring, f"register {name}")
    bits = _bits(spec, info)
    if wanted_kind == "bool":
        return int(data.bool)
    value = data.enum_value if wanted_kind == "enum_value" else data.bitstring
    if not _signed(spec):
        return number(value, bits, f"register {name}")
    signed = int.from_bytes(value, "big", signed=True)
    if not value or not -(1 << bits - 1) <= signed < 1 << bits - 1:
        code = "OUT_OF_RANGE" if value else "INVALID_ARGUMENT"
        raise TableError(code, f"register {name}: {value.hex() or 'an empty byte string'} is no int<{bits}>")
    return signed & (1 << bits) - 1


def flatten(spec: p4t.P4DataTypeSpec, info: p4i.P4Info, data: p4d.P4Data, name: str = "") -> dict[str, int]:
    """Return the numbers of a value by name: `mac`, `data.op` (struct, header), `0`, `1` (tuple)."""
    kind = spec.WhichOneof("type_spec")
    dot = name + "." if name else ""
    if kind == "struct":
        members = info.type_info.structs[spec.struct.name].members
        parts = zip(members, data.struct.members, strict=True)
        return {k: v for m, d in parts for k, v in flatten(m.type_spec, info, d, dot + m.name).items()}
    if kind == "tuple":
        pairs = zip(spec.tuple.members, data.tuple.members, strict=True)
        return {
            k: v for position, (s, d) in enumerate(pairs) for k, v in flatten(s, info, d, f"{dot}{position}").items()
        }
    if kind == "header":
        fields = info.type_info.headers[spec.header.name].members
        out = {dot + "$valid$": int(data.header.is_valid)}
        return out | {
            dot + m.name: int.from_bytes(b, "big") for m, b in zip(fields, data.header.bitstrings, strict=False)
        }
    if kind == "new_type":
        new_type = info.type_info.new_types[spec.new_type.name]
        if new_type.HasField("original_type"):
            return flatten(new_type.original_type, info, data, name)
        # Strings of a translated type are decimal digits here (switch/device/schema.py).
        if new_type.translated_type.HasField("sdn_string"):
            return {name or "value": int(data.bitstring)}
    data_kind = data.WhichOneof("data")
    if data_kind == "bool":
        value = int(data.bool)
    elif data_kind == "enum":
        value = [member.name for member in info.type_info.enums[spec.enum.name].members].index(data.enum)
    elif data_kind == "error":
        value = list(info.type_info.error.members).index(data.error)
    else:
        value = int.from_bytes(data.enum_value if data_kind == "enum_value" else data.bitstring, "big")
    return {name or "value": value}
