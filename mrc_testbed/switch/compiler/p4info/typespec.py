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

from mrc_testbed.switch.compiler.errors import Location, unsupported
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


def bits_spec(of: Bits, out: p4t.P4BitstringLikeTypeSpec) -> None:
    """Fill in a bit<N> or int<N>."""
    if of.signed:
        out.int.bitwidth = of.width
    else:
        out.bit.bitwidth = of.width


def translated_in(of: Type) -> dict[str, int]:
    """Bits of the types with @p4runtime_translation that a type is made of: P4Info has others."""
    if isinstance(of, NewType):
        return {of.name: width_of(of) or 0} if of.decl.annotation("p4runtime_translation") else {}
    parts = of.items if isinstance(of, Tuple) else of.fields.values() if isinstance(of, Record) else ()
    return {name: bits for part in parts for name, bits in translated_in(part).items()}


def note_new_type(of: NewType, info: p4i.P4Info) -> int:
    """Enter a `type` in type_info; the bits its values have for the control plane."""
    spec = info.type_info.new_types[of.name]
    width = width_of(of) or 0
    translation = of.decl.annotation("p4runtime_translation")
    if translation and translation.body:
        values = [one for one in translation.body if one.kind != "COMMA"]
        spec.translated_type.uri = tree.unquote(values[0].text)
        given = next((tree.parse_integer(value.text)[0] for value in values if value.kind == "INTEGER"), None)
        if given is None:
            spec.translated_type.sdn_string.SetInParent()
        else:
            spec.translated_type.sdn_bitwidth = given
        width = given or 0
    elif plain(of) == BOOL:
        spec.original_type.bool.SetInParent()
    else:
        base = plain(of)
        bits_spec(base if isinstance(base, Bits) else Bits(width), spec.original_type.bitstring)
    if not spec.annotations:
        fill_notes(spec, of.decl.annotations, ("p4runtime_translation",))
    return width


def note_serializable(of: EnumType, info: p4i.P4Info) -> None:
    """Enter an enum with values in type_info."""
    assert of.under is not None
    spec = info.type_info.serializable_enums[of.name]
    if not spec.members:
        spec.underlying_type.bitwidth = of.under.width
        size = (of.under.width + 7) // 8
        for name in of.members:
            value = of.values[name] & (1 << of.under.width) - 1
            spec.members.add(name=name, value=value.to_bytes(size, "big"))


def data_spec(of: Type, info: p4i.P4Info, errors: list[str], where: Location | None) -> p4t.P4DataTypeSpec:
    """The type `of` for the control plane; the types it names are entered in type_info. Raises P4Error."""
    spec = p4t.P4DataTypeSpec()
    if isinstance(of, NewType):
        note_new_type(of, info)
        spec.new_type.name = of.name
    elif isinstance(of, EnumType):
        if of.under:
            note_serializable(of, info)
            spec.serializable_enum.name = of.name
        else:
            spec.enum.name = of.name
            if not info.type_info.enums[of.name].members:
                for name in of.members:
                    info.type_info.enums[of.name].members.add(name=name)
    elif isinstance(of, Bits):
        bits_spec(of, spec.bitstring)
    elif of == BOOL:
        spec.bool.SetInParent()
    elif of == ERROR:
        spec.error.SetInParent()
        if not info.type_info.error.members:
            info.type_info.error.members.extend(errors)
    elif isinstance(of, Tuple):
        spec.tuple.members.extend(data_spec(one, info, errors, where) for one in of.items)
    elif isinstance(of, Record) and of.kind in ("struct", "header"):
        _record(of, spec, info, errors, where)
    else:
        what = "header stack" if isinstance(of, Stack) else str(of)
        unsupported(where, f"a {what} sent to the control plane")
    return spec


@dataclass(slots=True)
class HeaderField:
    """A field of a header; one of a struct in the header is called `struct.field`."""

    name: str
    type: Type
    annotations: list[tree.Annotation]
    """Its own, then those of the structs around it that it has not itself."""


def header_fields(of: Record) -> list[HeaderField]:
    """The fields of a header in their order, structs taken apart."""
    out = []
    for decl, inner in zip(of.decl.fields, of.fields.values(), strict=True):
        name, base = plane_field(decl), plain(inner)
        if not isinstance(base, Record):
            out.append(HeaderField(name, inner, decl.annotations))
            continue
        for header_field in header_fields(base):
            own = {note.name for note in header_field.annotations}
            notes = [*header_field.annotations, *(note for note in decl.annotations if note.name not in own)]
            out.append(HeaderField(f"{decl.name}.{header_field.name}", header_field.type, notes))
    return out


def plane_field(decl: tree.Field) -> str:
    """A field's name for the control plane: its @name, without a leading dot, or the declared one."""
    note = decl.annotation("name")
    return ((note.string() if note else None) or decl.name).removeprefix(".")


def _record(of: Record, spec: Any, info: p4i.P4Info, errors: list[str], where: Location | None) -> None:
    if of.kind == "struct":
        spec.struct.name = of.name
        if of.name not in info.type_info.structs:
            names = [plane_field(field) for field in of.decl.fields]
            specs = [data_spec(field, info, errors, where) for field in of.fields.values()]
            info.type_info.structs[of.name].SetInParent()
            for name, one in zip(names, specs, strict=True):
                info.type_info.structs[of.name].members.add(name=name, type_spec=one)
        return
    spec.header.name = of.name
    if of.name not in info.type_info.headers:
        info.type_info.headers[of.name].SetInParent()
        for part in header_fields(of):
            base = plain(part.type)
            member = info.type_info.headers[of.name].members.add(name=part.name)
            if isinstance(base, Bits):
                bits_spec(base, member.type_spec)
            elif base == BOOL:
                member.type_spec.bit.bitwidth = 1
            else:
                unsupported(where, f"a {base} sent to the control plane")
