"""Types as P4Info describes them: P4DataTypeSpec, and the named types they refer to in type_info.

The control plane gets values of such a type as P4Data (digests, registers). On the way from the C program they are
bytes: the leaves in order, each padded to whole bytes, big-endian; a header has a byte for its validity in front;
enums and errors take 4 bytes. switch/device/p4data.py reads them by the P4DataTypeSpec, and the program's widths of
translated types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from finsy.proto import p4i, p4t

from mrc_testbed.switch.compiler.errors import Location, raise_unsupported
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.p4info.annotations import fill_notes
from mrc_testbed.switch.compiler.sema.types import (
    BOOL,
    ERROR,
    Bits,
    EnumType,
    NewType,
    Record,
    Stack,
    Tuple,
    Type,
    plain,
    width_of,
)


def bits_spec(bits_type: Bits, out: p4t.P4BitstringLikeTypeSpec) -> None:
    """Fill in a bit<N> or int<N>."""
    if bits_type.signed:
        out.int.bitwidth = bits_type.width
    else:
        out.bit.bitwidth = bits_type.width


def translated_in(p4_type: Type) -> dict[str, int]:
    """Bits of the types with @p4runtime_translation that a type is made of: P4Info has others."""
    if isinstance(p4_type, NewType):
        return {p4_type.name: width_of(p4_type) or 0} if p4_type.decl.annotation("p4runtime_translation") else {}
    parts = (
        p4_type.items if isinstance(p4_type, Tuple) else p4_type.fields.values() if isinstance(p4_type, Record) else ()
    )
    return {name: bits for part in parts for name, bits in translated_in(part).items()}


def note_new_type(new_type: NewType, info: p4i.P4Info) -> int:
    """Enter a `type` in type_info; the bits its values have for the control plane."""
    spec = info.type_info.new_types[new_type.name]
    width = width_of(new_type) or 0
    translation = new_type.decl.annotation("p4runtime_translation")
    if translation and translation.body:
        values = [token for token in translation.body if token.kind != "COMMA"]
        spec.translated_type.uri = tree.unquote(values[0].text)
        sdn_bitwidth = next((tree.parse_integer(value.text)[0] for value in values if value.kind == "INTEGER"), None)
        if sdn_bitwidth is None:
            spec.translated_type.sdn_string.SetInParent()
        else:
            spec.translated_type.sdn_bitwidth = sdn_bitwidth
        width = sdn_bitwidth or 0
    elif plain(new_type) == BOOL:
        spec.original_type.bool.SetInParent()
    else:
        base = plain(new_type)
        bits_spec(base if isinstance(base, Bits) else Bits(width), spec.original_type.bitstring)
    if not spec.annotations:
        fill_notes(spec, new_type.decl.annotations, ("p4runtime_translation",))
    return width


def note_serializable(enum: EnumType, info: p4i.P4Info) -> None:
    """Enter an enum with values in type_info."""
    assert enum.underlying_type is not None
    spec = info.type_info.serializable_enums[enum.name]
    if not spec.members:
        spec.underlying_type.bitwidth = enum.underlying_type.width
        size = (enum.underlying_type.width + 7) // 8
        for name in enum.members:
            value = enum.values[name] & (1 << enum.underlying_type.width) - 1
            spec.members.add(name=name, value=value.to_bytes(size, "big"))


def data_spec(p4_type: Type, info: p4i.P4Info, errors: list[str], location: Location | None) -> p4t.P4DataTypeSpec:
    """Return a type for the control plane; types that it names are entered in type_info. Raises P4Error."""
    spec = p4t.P4DataTypeSpec()
    if isinstance(p4_type, NewType):
        note_new_type(p4_type, info)
        spec.new_type.name = p4_type.name
    elif isinstance(p4_type, EnumType):
        if p4_type.underlying_type:
            note_serializable(p4_type, info)
            spec.serializable_enum.name = p4_type.name
        else:
            # Two values of one type share the entry in type_info.
            spec.enum.name = p4_type.name
            if not info.type_info.enums[p4_type.name].members:
                for name in p4_type.members:
                    info.type_info.enums[p4_type.name].members.add(name=name)
    elif isinstance(p4_type, Bits):
        bits_spec(p4_type, spec.bitstring)
    elif p4_type == BOOL:
        spec.bool.SetInParent()
    elif p4_type == ERROR:
        spec.error.SetInParent()
        if not info.type_info.error.members:
            info.type_info.error.members.extend(errors)
    elif isinstance(p4_type, Tuple):
        spec.tuple.members.extend(data_spec(item_type, info, errors, location) for item_type in p4_type.items)
    elif isinstance(p4_type, Record) and p4_type.kind in ("struct", "header"):
        _record(p4_type, spec, info, errors, location)
    else:
        type_name = "header stack" if isinstance(p4_type, Stack) else str(p4_type)
        raise_unsupported(location, f"a {type_name} sent to the control plane")
    return spec


@dataclass(slots=True)
class HeaderField:
    """A field of a header; one of a struct in the header is called `struct.field`."""

    name: str
    type: Type
    annotations: list[tree.Annotation]
    """Annotations of the field, then those of the structs around it that the field lacks."""


def header_fields(header: Record) -> list[HeaderField]:
    """The fields of a header in their order, structs taken apart."""
    out = []
    for decl, inner in zip(header.decl.fields, header.fields.values(), strict=True):
        name, base = plane_field(decl), plain(inner)
        if not isinstance(base, Record):
            out.append(HeaderField(name, inner, decl.annotations))
            continue
        for header_field in header_fields(base):
            field_note_names = {note.name for note in header_field.annotations}
            notes = [
                *header_field.annotations,
                *(note for note in decl.annotations if note.name not in field_note_names),
            ]
            out.append(HeaderField(f"{decl.name}.{header_field.name}", header_field.type, notes))
    return out


def plane_field(decl: tree.Field) -> str:
    """A field's name for the control plane: its @name, without a leading dot, or the declared one."""
    note = decl.annotation("name")
    return ((note.string() if note else None) or decl.name).removeprefix(".")


def _record(record: Record, spec: Any, info: p4i.P4Info, errors: list[str], location: Location | None) -> None:
    if record.kind == "struct":
        spec.struct.name = record.name
        if record.name not in info.type_info.structs:
            names = [plane_field(field) for field in record.decl.fields]
            specs = [data_spec(field, info, errors, location) for field in record.fields.values()]
            info.type_info.structs[record.name].SetInParent()
            for name, field_spec in zip(names, specs, strict=True):
                info.type_info.structs[record.name].members.add(name=name, type_spec=field_spec)
        return
    spec.header.name = record.name
    if record.name not in info.type_info.headers:
        info.type_info.headers[record.name].SetInParent()
        for part in header_fields(record):
            base = plain(part.type)
            member = info.type_info.headers[record.name].members.add(name=part.name)
            if isinstance(base, Bits):
                bits_spec(base, member.type_spec)
            elif base == BOOL:
                member.type_spec.bit.bitwidth = 1
            else:
                raise_unsupported(location, f"a {base} sent to the control plane")
