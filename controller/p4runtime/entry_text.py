"""Table entries from their canonical lines (entries.py), which a user may have saved and edited."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address

from mrc_testbed.controller.errors import InputError
from mrc_testbed.controller.p4runtime.entries import Catalog, NamedEntry

FORM = "a line of `save --tables`, such as: usid_next locator_usid=0xfcbbbb001301 forward(port=3)"
_PROFILE = re.compile(r"(?P<profile>\S+) (?P<kind>member|group) (?P<number>\d+): (?P<value>.+)")
_TABLE = re.compile(r"(?P<table>\S+) (?P<key>.+) (?P<action>[\w.]+)\((?P<params>[^()]*)\)")
_ACTION = re.compile(r"(?P<action>[\w.]+)\((?P<params>[^()]*)\)")
_MEMBER = re.compile(r"member (\d+) weight 1 watch (\d+)")


def parse_entry(catalog: Catalog, line: str) -> NamedEntry:
    """Return the entry of a line. Raises InputError with what would have worked."""
    text = " ".join(line.split())
    try:
        entry = _profile_entry(catalog, text) or _table_entry(catalog, text)
    except InputError as error:
        raise InputError(f"{text!r}: {error}") from None
    except ValueError as error:
        raise InputError(f"{text!r}: {error}. Cure: {FORM}") from None
    # A field that was read but not understood would be lost in silence.
    if str(entry) != text:
        raise InputError(f"{text!r} would be written as {str(entry)!r}. Cure: write it so")
    return entry


def _profile_entry(catalog: Catalog, text: str) -> NamedEntry | None:
    match = _PROFILE.fullmatch(text)
    if match is None:
        return None
    profile, number, value = match["profile"], int(match["number"]), match["value"]
    if match["kind"] == "member":
        call = _ACTION.fullmatch(value)
        if call is None:
            raise ValueError("a member has an action")
        return catalog.member(profile, number, call["action"], _params(call["params"]))
    members = [] if value == "empty" else [_MEMBER.fullmatch(part) for part in value.split(", ")]
    if None in members:
        raise ValueError("members of a group are written `member 3 weight 1 watch 3`")
    return catalog.group(profile, number, {int(part[1]): int(part[2]) for part in members if part is not None})


def _table_entry(catalog: Catalog, text: str) -> NamedEntry:
    match = _TABLE.fullmatch(text)
    if match is None:
        raise ValueError("no table, match and action")
    table, key, action = match["table"], match["key"], match["action"]
    fields = {} if key in ("default", "*") else dict(_field(part) for part in key.split())
    if action == "group":
        return catalog.group_entry(table, fields, int(match["params"]))
    return catalog.table_entry(table, None if key == "default" else fields, action, _params(match["params"]))


def _field(text: str) -> tuple[str, int | tuple[int, int]]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not FIELD=VALUE")
    number, slash, length = value.partition("/")
    return name, (_number(number), int(length)) if slash else _number(number)


def _params(text: str) -> dict[str, int]:
    parts = [part.partition("=") for part in text.split(", ")] if text else []
    return {name: _number(value) for name, _, value in parts}


def _number(text: str) -> int:
    """Return the number of `3`, `0xfcbbbb001301` or `fd00:1::`."""
    try:
        return int(IPv6Address(text)) if ":" in text else int(text, 0)
    except (AddressValueError, ValueError):
        raise ValueError(f"{text!r} is no number") from None
