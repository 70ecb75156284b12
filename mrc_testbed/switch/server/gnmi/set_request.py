"""gNMI Set: a request as changes of traffic settings, checked as a whole before anything is done.

A path names a leaf, or a container above it (down from one interface) with a JSON object for its value; a delete may
also stand above the interfaces or use `*`. Deletes come first, then replaces, then updates; a replace puts what it does
not name back to its default, as a delete does.
"""

from __future__ import annotations

import json
from typing import Any, Final

import grpc
from finsy.proto import gnmi

from mrc_testbed.switch.device.traffic import TrafficSettingError, check_value
from mrc_testbed.switch.device.traffic_paths import CONFIG_LEAVES, IMPAIRMENT_LEAVES, QOS_LEAVES, Leaf
from mrc_testbed.switch.server.gnmi.traffic_tree import Value
from mrc_testbed.switch.server.gnmi.tree import (
    INTERFACES,
    QOS,
    GnmiError,
    full_elems,
    parse_path,
    path_text,
    settable_paths,
)

Changes = dict[str, dict[Leaf, Value]]
"""New values of leaves by interface."""

_SERVED_LEAVES: Final = (*IMPAIRMENT_LEAVES, *QOS_LEAVES)
_INVALID = grpc.StatusCode.INVALID_ARGUMENT


def read_set(request: gnmi.SetRequest, names: frozenset[str]) -> Changes:
    """Changes that a Set requests; `names` are the interfaces that it may change. Raises GnmiError."""
    changes: Changes = {}
    if request.union_replace:
        raise GnmiError(grpc.StatusCode.UNIMPLEMENTED, "union_replace is not supported (has: delete, replace, update)")
    for path in request.delete:
        name, leaves = _config_below(request.prefix, path)
        for interface in names if name is None else [_check_name(name, names)]:
            changes.setdefault(interface, {}).update(_defaults(leaves))
    for is_replace, updates in ((True, request.replace), (False, request.update)):
        for update in updates:
            location = path_text([*request.prefix.elem, *update.path.elem])
            name, leaves = _config_below(request.prefix, update.path)
            if name is None:
                raise GnmiError(_INVALID, f"{location}: name one interface (only a delete may mean all)")
            if any("*" in (elem.name, *elem.key.values()) for elem in [*request.prefix.elem, *update.path.elem]):
                raise GnmiError(_INVALID, f"{location}: no * in an update or replace")
            interface_changes = changes.setdefault(_check_name(name, names), {})
            if is_replace:
                interface_changes.update(_defaults(leaves))
            interface_changes.update(_values(request.prefix, update, location))
    return changes


def _check_name(name: str, names: frozenset[str]) -> str:
    if name not in names:
        name_list = ", ".join(sorted(names)[:20]) or "none"
        ellipsis = " ..." if len(names) > 20 else ""
        raise GnmiError(grpc.StatusCode.NOT_FOUND, f"no interface {name!r} with queues (has: {name_list}{ellipsis})")
    return name


def _defaults(leaves: frozenset[Leaf]) -> dict[Leaf, Value]:
    return {leaf: CONFIG_LEAVES[leaf].default for leaf in leaves}


def _config_below(prefix: gnmi.Path, path: gnmi.Path) -> tuple[str | None, frozenset[Leaf]]:
    """(interface or None for all, config leaves at or below a path)."""
    elems = full_elems(prefix, path)
    try:
        pattern = parse_path(prefix, path, _SERVED_LEAVES)
    except GnmiError:
        raise GnmiError(
            grpc.StatusCode.NOT_FOUND, f"{path_text(elems)}: no such path to set (has: {settable_paths()})"
        ) from None
    leaves = frozenset(leaf for leaf in pattern.leaves if leaf in CONFIG_LEAVES)
    if not leaves:
        raise GnmiError(_INVALID, f"{path_text(elems)}: is read-only (to set: {settable_paths()})")
    return pattern.name, leaves


def _values(prefix: gnmi.Path, update: gnmi.Update, location: str) -> dict[Leaf, Value]:
    """Leaves that an update names, with their values."""
    elems = full_elems(prefix, update.path)
    relative_elems = elems[len((QOS if elems[0].name == QOS[0][0] else INTERFACES)[0]) :]
    base = tuple(elem.name + "".join(f"[{key}={value}]" for key, value in elem.key.items()) for elem in relative_elems)
    kind = update.val.WhichOneof("value")
    if kind in ("json_val", "json_ietf_val"):
        value = _json(getattr(update.val, kind), location)
    elif kind in ("string_val", "uint_val", "int_val"):
        value = getattr(update.val, kind)
    elif kind is None:
        raise GnmiError(_INVALID, f"{location}: no value")
    else:
        raise GnmiError(
            _INVALID, f"{location}: a {kind} (want string_val, uint_val, int_val, json_val or json_ietf_val)"
        )
    out: dict[Leaf, Value] = {}
    _walk(base, value, location, out, is_json=kind.startswith("json"), qos=elems[0].name == QOS[0][0])
    return out


def _json(data: bytes, location: str) -> Any:
    def refuse(text: str) -> None:
        raise ValueError(f"{text} is no JSON")

    try:
        return json.loads(data, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise GnmiError(_INVALID, f"{location}: not JSON: {error or type(error).__name__}") from None


def _walk(base: Leaf, value: Any, location: str, out: dict[Leaf, Value], *, is_json: bool, qos: bool) -> None:
    """Put the leaves of `value`, which stands at `base`, into `out`."""
    leaf = CONFIG_LEAVES.get(base)
    if leaf is not None:
        if is_json and leaf.maximum is not None and isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value[:30])  # RFC 7951 writes 64-bit numbers as strings
        try:
            check_value(leaf, value)
        except TrafficSettingError as error:
            raise GnmiError(_INVALID, f"{location}: {error}") from None
        out[base] = value
        return
    if base[-1:] == ("queue",):
        _walk_list(base, value, location, out, is_json=is_json, qos=qos)
        return
    list_leaves = QOS_LEAVES if qos else IMPAIRMENT_LEAVES
    names = sorted({leaf[len(base)].partition("[")[0] for leaf in list_leaves if leaf[: len(base)] == base != leaf})
    if not names:
        raise GnmiError(_INVALID, f"{location}: is read-only (to set: {settable_paths()})")
    if not is_json or not isinstance(value, dict):
        raise GnmiError(_INVALID, f"{location}: a container takes a JSON object with any of {', '.join(names)}")
    for key, inner in value.items():
        name = key.rpartition(":")[2]  # RFC 7951 may write the module before it
        if (not base and name in ("name", "interface-id")) or (name == "name" and base[-1] == f"queue[name={inner}]"):
            continue  # a list entry may tell its key
        if name not in names:
            raise GnmiError(_INVALID, f"{location}: no {key[:60]!r} here (has: {', '.join(names)})")
        _walk((*base, name), inner, f"{location}/{name}", out, is_json=True, qos=qos)


def _walk_list(base: Leaf, value: Any, location: str, out: dict[Leaf, Value], *, is_json: bool, qos: bool) -> None:
    """The queues of a port, as a list of objects with a `name`."""
    if (
        not is_json
        or not isinstance(value, list)
        or not all(isinstance(entry_value, dict) and "name" in entry_value for entry_value in value)
    ):
        raise GnmiError(_INVALID, f'{location}: want a JSON list like [{{"name": "7", "config": {{...}}}}]')
    for entry_value in value:
        entry = (*base[:-1], f"queue[name={entry_value['name']}]")
        if not any(leaf[: len(entry)] == entry for leaf in CONFIG_LEAVES):
            raise GnmiError(_INVALID, f"{location}: no queue {str(entry_value['name'])[:20]!r} (has: 0 to 7)")
        inner = {key: entry_part for key, entry_part in entry_value.items() if key != "name"}
        _walk(entry, inner, f"{location}[name={entry_value['name']}]", out, is_json=True, qos=qos)
