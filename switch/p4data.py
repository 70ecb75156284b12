"""Bytes of a program -> P4Data, by the type in P4Info (the layout: switch/p4/typespec.py); cells of registers back."""

from __future__ import annotations

from finsy.proto import p4d, p4i, p4t

from switch.entities import TableError
from switch.schema import canonical, number


def p4_data(spec: p4t.P4DataTypeSpec, info: p4i.P4Info, data: bytes) -> p4d.P4Data:
    """A value of the type `spec`. The bytes are the runtime's, so their length fits."""
    return _Reader(info, data).value(spec)


class _Reader:
    def __init__(self, info: p4i.P4Info, data: bytes) -> None:
        self._types = info.type_info
        self._data = data
        self._at = 0

    def _take(self, bits: int) -> int:
        size = (bits + 7) // 8
        self._at += size
        return int.from_bytes(self._data[self._at - size : self._at], "big")

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
            members = self._types.enums[spec.enum.name].members
            out.enum = members[self._take(32)].name
        elif kind == "error":
            out.error = self._types.error.members[self._take(32)]
        elif kind == "tuple":
            out.tuple.members.extend(self.value(one) for one in spec.tuple.members)
        elif kind == "struct":
            members = self._types.structs[spec.struct.name].members
            out.struct.members.extend(self.value(one.type_spec) for one in members)
        else:
            self._header(spec.header.name, out)
        return out

    def _new_type(self, name: str, out: p4d.P4Data) -> None:
        spec = self._types.new_types[name]
        if spec.WhichOneof("representation") == "translated_type":
            out.bitstring = canonical(self._take(spec.translated_type.sdn_bitwidth))
        else:
            out.CopyFrom(self.value(spec.original_type))

    def _header(self, name: str, out: p4d.P4Data) -> None:
        """The fields of a header that is not valid stay away, as the specification demands."""
        out.header.is_valid = bool(self._take(1))
        values = [canonical(self._take(_width(one.type_spec))) for one in self._types.headers[name].members]
        if out.header.is_valid:
            out.header.bitstrings.extend(values)


def _width(spec: p4t.P4BitstringLikeTypeSpec) -> int:
    return spec.bit.bitwidth or spec.int.bitwidth


def _signed(spec: p4t.P4DataTypeSpec) -> bool:
    return spec.bitstring.HasField("int")


def canonical_signed(value: int, bits: int) -> bytes:
    """The `bits` bits of an int<W> (two's complement) as the shortest byte string of that number (P4Runtime §8.3)."""
    signed = value - (1 << bits) if value >> bits - 1 & 1 else value
    needed = (signed if signed >= 0 else ~signed).bit_length() + 1
    return signed.to_bytes((needed + 7) // 8, "big", signed=True)


def register_in(info: p4i.P4Info, register_id: int, data: p4d.P4Data) -> int:
    """The bits of a register's cell. Raises TableError INVALID_ARGUMENT for data of another type, OUT_OF_RANGE."""
    for one in info.registers:
        if one.preamble.id == register_id:
            return _scalar(one.type_spec, info, data, one.preamble.alias)
    known = ", ".join(f"{one.preamble.alias} {one.preamble.id:#x}" for one in info.registers) or "none"
    raise TableError("INVALID_ARGUMENT", f"no register with id {register_id} (has: {known})")


def register_out(info: p4i.P4Info, register_id: int, value: int) -> p4d.P4Data:
    spec = next(one.type_spec for one in info.registers if one.preamble.id == register_id)
    bits = _bits(spec, info)
    return p4_data(spec, info, value.to_bytes((bits + 7) // 8, "big"))


_DATA_OF = {"bitstring": "bitstring", "bool": "bool", "serializable_enum": "enum_value"}


def _plain(spec: p4t.P4DataTypeSpec, info: p4i.P4Info) -> p4t.P4DataTypeSpec:
    """The built-in type under a `type`."""
    while spec.WhichOneof("type_spec") == "new_type":
        new = info.type_info.new_types[spec.new_type.name]
        if new.WhichOneof("representation") == "translated_type":
            spec = p4t.P4DataTypeSpec()
            spec.bitstring.bit.bitwidth = new.translated_type.sdn_bitwidth
        else:
            spec = new.original_type
    return spec


def _bits(spec: p4t.P4DataTypeSpec, info: p4i.P4Info) -> int:
    spec = _plain(spec, info)
    if spec.WhichOneof("type_spec") == "serializable_enum":
        return info.type_info.serializable_enums[spec.serializable_enum.name].underlying_type.bitwidth
    return _width(spec.bitstring) or 1


def _scalar(spec: p4t.P4DataTypeSpec, info: p4i.P4Info, data: p4d.P4Data, name: str) -> int:
    spec, bits = _plain(spec, info), _bits(spec, info)
    wanted, given = _DATA_OF[spec.WhichOneof("type_spec")], data.WhichOneof("data")
    if given != wanted:
        raise TableError("INVALID_ARGUMENT", f"register {name}: its cells are data.{wanted}, got {given or 'no data'}")
    if wanted == "bool":
        return int(data.bool)
    value = data.enum_value if wanted == "enum_value" else data.bitstring
    if not _signed(spec):
        return number(value, bits, f"register {name}")
    signed = int.from_bytes(value, "big", signed=True)
    if not value or not -(1 << bits - 1) <= signed < 1 << bits - 1:
        code = "OUT_OF_RANGE" if value else "INVALID_ARGUMENT"
        raise TableError(code, f"register {name}: {value.hex() or 'an empty byte string'} is no int<{bits}>")
    return signed & (1 << bits) - 1


def flatten(spec: p4t.P4DataTypeSpec, info: p4i.P4Info, data: p4d.P4Data, name: str = "") -> dict[str, int]:
    """The numbers of a value by name: `mac`, `data.op` (fields of structs and headers), `0`, `1` (of tuples)."""
    kind = spec.WhichOneof("type_spec")
    dot = name + "." if name else ""
    if kind == "struct":
        members = info.type_info.structs[spec.struct.name].members
        parts = zip(members, data.struct.members, strict=True)
        return {k: v for m, d in parts for k, v in flatten(m.type_spec, info, d, dot + m.name).items()}
    if kind == "tuple":
        pairs = zip(spec.tuple.members, data.tuple.members, strict=True)
        return {k: v for at, (s, d) in enumerate(pairs) for k, v in flatten(s, info, d, f"{dot}{at}").items()}
    if kind == "header":
        members = info.type_info.headers[spec.header.name].members
        out = {dot + "$valid$": int(data.header.is_valid)}
        return out | {
            dot + m.name: int.from_bytes(b, "big") for m, b in zip(members, data.header.bitstrings, strict=False)
        }
    if kind == "new_type" and info.type_info.new_types[spec.new_type.name].HasField("original_type"):
        return flatten(info.type_info.new_types[spec.new_type.name].original_type, info, data, name)
    what = data.WhichOneof("data")
    if what == "bool":
        value = int(data.bool)
    elif what == "enum":
        value = [one.name for one in info.type_info.enums[spec.enum.name].members].index(data.enum)
    elif what == "error":
        value = list(info.type_info.error.members).index(data.error)
    else:
        value = int.from_bytes(data.enum_value if what == "enum_value" else data.bitstring, "big")
    return {name or "value": value}
