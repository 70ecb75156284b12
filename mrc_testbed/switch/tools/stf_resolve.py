"""Names and values of an STF script -> entries of a device, by the program's P4Info."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Any

from finsy.proto import p4i

from mrc_testbed.switch.device.entities import ActionCall, FieldMatch
from mrc_testbed.switch.tools.stf import StfCall, StfError

WORDS = {"true": 1, "false": 0}


def find(location: str, objects: Iterable[Any], name: str, subject: str) -> Any:
    """The P4Info object of a name: the full one, its alias, or a suffix that only it has. Raises StfError."""
    objects = list(objects)
    for matches in (
        [object_ for object_ in objects if name in (object_.preamble.name, object_.preamble.alias)],
        [object_ for object_ in objects if object_.preamble.name.endswith("." + name)],
        [object_ for object_ in objects if object_.preamble.name.endswith(name)],
    ):
        if len(matches) == 1:
            return matches[0]
        if matches:
            candidates = ", ".join(match.preamble.name for match in matches)
            raise StfError(location, f"{subject} {name}: which one of {candidates}?")
    has = ", ".join(sorted(object_.preamble.name for object_ in objects)) or "none"
    raise StfError(location, f"no {subject} {name} (has: {has})")


def number(location: str, text: str, bits: int, subject: str) -> int:
    """A value: 10, 0x0a, 0b1010, true, 10.0.0.1, fd00::1, 02:00:00:00:00:01. Raises StfError."""
    value = WORDS.get(text.lower())
    if value is None:
        value = _address(text)
    if value is None:
        try:
            value = int(text, 0) if text[:2].lower() in ("0x", "0b", "0o") else int(text, 10)
        except ValueError:
            raise StfError(location, f"{subject}: {text!r} is no value (want 10, 0x0a, 10.0.0.1, fd00::1)") from None
    if value < 0:
        value += 1 << bits
    if not 0 <= value < 1 << bits:
        raise StfError(location, f"{subject}: {text} does not fit {bits} bits")
    return value


def _address(text: str) -> int | None:
    if re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", text):
        return int(text.replace(":", ""), 16)
    if ":" in text or text.count(".") == 3:
        try:
            return int(ipaddress.ip_address(text))
        except ValueError:
            return None
    return None


def parse_stars(location: str, text: str, subject: str) -> tuple[int, int] | None:
    """(value, mask) of digits some of which are `*`: 0x12**, 0b1*0; None when there is no star."""
    return parse_masked(location, text, subject) if "*" in text else None


def parse_masked(location: str, text: str, subject: str) -> tuple[int, int]:
    """Parse hexadecimal, octal or binary digits into (value, mask).

    The mask covers the digits that are written and no star.
    """
    base = {"0x": 4, "0b": 1, "0o": 3}.get(text[:2].lower())
    if text == "*":
        return 0, 0
    if base is None:
        raise StfError(location, f"{subject}: {text}: stars stand for hexadecimal or binary digits (0x12**, 0b1*)")
    radix = 1 << base
    value = mask = 0
    for digit in text[2:]:
        value, mask = value * radix, mask * radix
        if digit != "*":
            try:
                value += int(digit, radix)
            except ValueError:
                raise StfError(location, f"{subject}: {digit!r} is no digit of {text}") from None
            mask += radix - 1
    return value, mask


def size(bits: int) -> int:
    """Bytes that hold so many bits."""
    return (bits + 7) // 8


def field_match(location: str, field: p4i.MatchField, text: str) -> FieldMatch | None:
    """Return the match of a key field; None: anything. Raises StfError."""
    bits, subject, kinds = field.bitwidth, field.name, p4i.MatchField
    n = size(bits)
    if field.match_type == kinds.RANGE:
        low, arrow, high = text.partition("->") if "->" in text else text.partition("..")
        ends = [number(location, end_text, bits, subject) for end_text in ((low, high) if arrow else (low, low))]
        return FieldMatch.range(field.id, *(end.to_bytes(n, "big") for end in ends))
    stars = parse_stars(location, text, subject)
    if field.match_type == kinds.LPM:
        if stars is None:
            value, prefix = _prefix(location, text, bits, subject)
        else:
            value, mask = stars
            digits = (len(text) - 2) * {"0x": 4, "0b": 1, "0o": 3}.get(text[:2].lower(), 0)
            prefix = bin(mask).count("1") + max(bits - digits, 0) if mask else 0
            value &= (1 << bits) - 1
        return FieldMatch.lpm(field.id, value.to_bytes(n, "big"), prefix) if prefix else None
    if field.match_type == kinds.TERNARY:
        return _ternary(location, field, text, stars)
    if stars is not None and not stars[1] and field.match_type == kinds.OPTIONAL:
        return None
    if stars is not None:
        raise StfError(location, f"{subject}: {text}: an exact key has no stars")
    value = number(location, text, bits, subject)
    make = FieldMatch.optional if field.match_type == kinds.OPTIONAL else FieldMatch.exact
    return make(field.id, value.to_bytes(n, "big"))


def _prefix(location: str, text: str, bits: int, subject: str) -> tuple[int, int]:
    head, slash, tail = text.partition("/")
    prefix = number(location, tail, 16, subject) if slash else bits
    if prefix > bits:
        raise StfError(location, f"{subject}: a prefix of {prefix} bits, but the key has {bits}")
    value = number(location, head, bits, subject)
    return value & (((1 << prefix) - 1) << (bits - prefix)), prefix


def _ternary(location: str, field: p4i.MatchField, text: str, stars: tuple[int, int] | None) -> FieldMatch | None:
    bits, subject = field.bitwidth, field.name
    all_ones = (1 << bits) - 1
    if stars is None:
        head, sign, tail = text.partition("&&&")
        if not sign and "/" in text:
            value, prefix = _prefix(location, text, bits, subject)
            mask = ((1 << prefix) - 1) << (bits - prefix)
        else:
            value = number(location, head, bits, subject)
            mask = number(location, tail, bits, subject) if sign else all_ones
            if not sign and text[:2].lower() in ("0x", "0b", "0o"):
                mask = parse_masked(location, text.replace("_", ""), subject)[
                    1
                ]  # as p4c's runner: digits left out match anything
    else:
        value, mask = stars
    mask &= all_ones
    if value & ~all_ones:
        raise StfError(location, f"{subject}: {text} does not fit {bits} bits")
    n = size(bits)
    return FieldMatch.ternary(field.id, (value & mask).to_bytes(n, "big"), mask.to_bytes(n, "big")) if mask else None


def key_field(location: str, table: p4i.Table, name: str) -> p4i.MatchField:
    """The key field that STF calls `name`: the name in P4Info, or its end (`data.f1` for `hdr.data.f1`)."""
    name = re.sub(r"\$(\d+)", r"[\1]", name)
    names = {name, f"{name}.$valid$"}  # of a header: whether it is valid
    if name.split(".")[-1] in ("valid", "$valid"):
        names.add(name[: name.rindex("valid")].rstrip("$") + "$valid$")
    fields = [
        (match_field, match_field.name.split(" & ")[0]) for match_field in table.match_fields
    ]  # a key may have a mask: h.f & 0xff
    for matches in (
        [match_field for match_field, field in fields if match_field.name in names or field in names],
        [match_field for match_field, field in fields if any(field.endswith("." + w) for w in names)],
        [match_field for match_field, field in fields if any(w.endswith("." + field) for w in names)],
    ):
        if len(matches) == 1:
            return matches[0]
    has = ", ".join(match_field.name for match_field, _ in fields) or "none"
    raise StfError(location, f"table {table.preamble.name}: no key {name} (has: {has})")


def action_call(location: str, info: p4i.P4Info, ids: Iterable[int], call: StfCall) -> ActionCall:
    """An action with its arguments; `ids`: which actions are allowed here. Raises StfError."""
    allowed_ids = set(ids)
    action = find(
        location,
        [action_object for action_object in info.actions if action_object.preamble.id in allowed_ids],
        call.name,
        "action",
    )
    arguments = dict(call.args)
    params = {param.name: param for param in action.params}
    if set(arguments) != set(params):
        has = ", ".join(params) or "none"
        raise StfError(location, f"{action.preamble.name} takes {has}; given: {', '.join(arguments) or 'none'}")
    values = tuple(
        (param.id, number(location, arguments[name], param.bitwidth, name).to_bytes(size(param.bitwidth), "big"))
        for name, param in params.items()
    )
    return ActionCall(action.preamble.id, values)
