"""The tree that gNMI serves: its leaves, the selection of a path, the encoding of values.

Two lists with the names of OpenConfig, a leaf of either named by its path below the list entry::

    /interfaces/interface[name=IF]/...              state of interfaces (switch/server/interfaces.py), impairments
    /qos/interfaces/interface[interface-id=IF]/...  rates and queues

Impairments, rates and queues are there when the server has a traffic manager (switch/device/traffic_paths.py tells
them).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import grpc
from finsy.proto import gnmi

from mrc_testbed.switch.device.traffic_paths import (
    CONFIG_LEAVES,
    IMPAIRMENT_LEAVES,
    IMPAIRMENT_STATE_LEAVES,
    QOS_LEAVES,
    QOS_STATE_LEAVES,
)
from mrc_testbed.switch.server.interfaces import COUNTER_LEAVES, LEAVES, Leaf, Value

ENCODINGS = ("JSON", "PROTO", "JSON_IETF")

INTERFACES: tuple[tuple[str, ...], str] = (("interfaces", "interface"), "name")
QOS: tuple[tuple[str, ...], str] = (("qos", "interfaces", "interface"), "interface-id")
"""Containers down to a list, and the list's key."""

IMPAIRMENTS_MODULE = "mrc-testbed-impairments"
MODULES = {
    "interfaces": ("openconfig-interfaces", IMPAIRMENTS_MODULE),
    "qos": ("openconfig-qos",),
}
"""YANG modules with nodes below a container of the root; a path may name them, as RFC 7951 does."""

ALL_LEAVES: tuple[Leaf, ...] = (*LEAVES, *IMPAIRMENT_LEAVES, *QOS_LEAVES)
"""Leaves of a server with a traffic manager; LEAVES are those of a server without."""
SAMPLED_LEAVES = frozenset((*COUNTER_LEAVES, *QOS_STATE_LEAVES, *IMPAIRMENT_STATE_LEAVES))
"""Counts and depths: they change with every packet and are not sent on change."""
TRAFFIC_SAMPLED_LEAVES = SAMPLED_LEAVES - frozenset(COUNTER_LEAVES)
_QOS = frozenset(QOS_LEAVES)
WIDE_LEAF_NAMES = frozenset(
    (
        "last-change",
        "transmit-pkts",
        "transmit-octets",
        "dropped-pkts",
        "dropped-octets",
        "rate-bps",
        "lost-pkts",
        "lost-octets",
        "corrupted-pkts",
        "seed",
    )
)
"""Last parts of leaves of 64 bits, beside the counters of interfaces."""

_ELEM = re.compile(r"([^\[]+)(?:\[([^=]+)=([^\]]*)\])?")


class GnmiError(Exception):
    """A request that cannot be answered: gRPC status and a text that says what would have worked."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def known_paths(leaves: Sequence[Leaf] = LEAVES) -> str:
    """The served tree in one line, for error messages."""
    state_names = [leaf[1] for leaf in LEAVES if len(leaf) == 2]
    counters = [leaf[2] for leaf in LEAVES if len(leaf) == 3]
    text = (
        f"/interfaces/interface[name=*]/state/{{{','.join(state_names)}}}, "
        f"/interfaces/interface[name=*]/state/counters/{{{','.join(counters)}}}"
    )
    return text if len(leaves) == len(LEAVES) else f"{text}, {settable_paths()}"


def settable_paths() -> str:
    """Paths of the settings, as text for errors."""

    def names(container: Leaf) -> str:
        return ",".join(leaf[-1] for leaf in CONFIG_LEAVES if leaf[:-1] == container)

    return (
        f"/interfaces/interface[name=*]/impairments/{{input,output}}/config/"
        f"{{{names(('impairments', 'input', 'config'))}}}, "
        f"/qos/interfaces/interface[interface-id=*]/output/config/{{{names(('output', 'config'))}}}, "
        f"/qos/interfaces/interface[interface-id=*]/output/queues/queue[name=0..7]/config/"
        f"{{{names(('output', 'queues', 'queue[name=0]', 'config'))}}}"
    )


def path_text(elems: Iterable[Any]) -> str:
    """A path as people write it: /interfaces/interface[name=eth0]/state."""
    return "/" + "/".join(
        elem.name + "".join(f"[{key}={value}]" for key, value in sorted(elem.key.items())) for elem in elems
    )


@dataclass(frozen=True, slots=True)
class PathPattern:
    """Selection of one path of a request: leaves of one interface, or of all (`name` None)."""

    name: str | None
    leaves: frozenset[Leaf]

    @property
    def counters_only(self) -> bool:
        return self.leaves <= SAMPLED_LEAVES


class Selection:
    """Union of the leaves that the paths of a request select, found by interface name.

    A fabric's finsy switches each subscribe to every port by name: with a search through all patterns for each
    interface, the first answer of 64 switches would take seconds.
    """

    def __init__(self, patterns: Iterable[PathPattern] = ()) -> None:
        self._everywhere: frozenset[Leaf] = frozenset()
        self._of_name: dict[str, frozenset[Leaf]] = {}
        for pattern in patterns:
            self.add(pattern)

    def add(self, pattern: PathPattern) -> None:
        if pattern.name is None:
            self._everywhere |= pattern.leaves
        else:
            self._of_name[pattern.name] = self._of_name.get(pattern.name, frozenset()) | pattern.leaves

    def leaves(self, name: str) -> frozenset[Leaf]:
        """Selected leaves of one interface."""
        name_leaves = self._of_name.get(name)
        return self._everywhere if name_leaves is None else self._everywhere | name_leaves

    def touches(self, leaves: Iterable[Leaf]) -> bool:
        """Whether any of these is selected anywhere."""
        query = frozenset(leaves)
        return any(not selection.isdisjoint(query) for selection in (self._everywhere, *self._of_name.values()))


@lru_cache(maxsize=4096)
def _split(part: str) -> tuple[str, str, str]:
    """(name, key, value) of a part of a leaf."""
    match = _ELEM.fullmatch(part)
    if match is None:
        raise ValueError(f"{part!r} is no part of a leaf")
    name, key, value = match.groups("")
    return name, key, value


_Want = tuple[str, tuple[tuple[str, str], ...]]


def _fits(want: _Want, part: str) -> bool:
    name, key, value = _split(part)
    required_keys = dict(want[1])
    return want[0] in ("*", name) and set(required_keys) <= {key} - {""} and required_keys.get(key, "*") in ("*", value)


@lru_cache(maxsize=1024)
def _leaves_below(path_elems: tuple[_Want, ...], leaves: tuple[Leaf, ...]) -> frozenset[Leaf]:
    """Leaves at or below a path that begins at the list entry."""
    return frozenset(
        leaf
        for leaf in leaves
        if len(path_elems) <= len(leaf) and all(_fits(w, part) for w, part in zip(path_elems, leaf, strict=False))
    )


@lru_cache(maxsize=8)
def _of_list(leaves: tuple[Leaf, ...], qos: bool) -> tuple[Leaf, ...]:
    return tuple(leaf for leaf in leaves if (leaf in _QOS) is qos)


def full_elems(prefix: gnmi.Path, path: gnmi.Path) -> list[gnmi.PathElem]:
    """Elements of prefix and path together. Raises GnmiError for forms that are not served."""
    if path.element or prefix.element:
        raise GnmiError(
            grpc.StatusCode.INVALID_ARGUMENT, "Path.element was replaced by Path.elem in gNMI 0.4: use elem"
        )
    elems = [*prefix.elem, *path.elem]
    container = elems[0].name.rpartition(":")[2] if elems else ""
    # pygnmi gives the module's name of the first element as the origin.
    for origin in (prefix.origin, path.origin):
        if origin not in ("", "openconfig", *MODULES.get(container, ())):
            known_names = ", ".join(name for names in MODULES.values() for name in names)
            text = f"origin {origin!r}: only openconfig is served, a module's name ({known_names}), or no origin at all"
            raise GnmiError(grpc.StatusCode.NOT_FOUND, text)
    return [_without_module(elem, container) for elem in elems]


def _without_module(elem: gnmi.PathElem, container: str) -> gnmi.PathElem:
    """An element by its own name. Raises GnmiError for a module that has nothing below the container."""
    module, colon, name = elem.name.rpartition(":")
    if not colon:
        return elem
    if module not in MODULES.get(container, ()):
        has = ", ".join(MODULES.get(container, ())) or ", ".join(name for names in MODULES.values() for name in names)
        raise GnmiError(grpc.StatusCode.NOT_FOUND, f"{elem.name}: no module {module!r} here (has: {has})")
    return gnmi.PathElem(name=name, key=elem.key)


def parse_path(prefix: gnmi.Path, path: gnmi.Path, leaves: tuple[Leaf, ...] = LEAVES) -> PathPattern:
    """Return the leaves that a path selects from the served ones.

    Raises GnmiError (NOT_FOUND, INVALID_ARGUMENT) for a path outside the served tree.
    """
    elems = full_elems(prefix, path)
    selection: frozenset[Leaf] = frozenset()
    name: str | None = None
    for (containers, key), qos in ((INTERFACES, False), (QOS, True)):
        list_leaves = _of_list(leaves, qos)
        if any(elem.name not in (container, "*") for elem, container in zip(elems, containers, strict=False)):
            continue
        list_index = len(containers) - 1
        if any(elem.key for elem in elems[:list_index]):
            continue
        if len(elems) > list_index:
            if set(elems[list_index].key) - {key}:
                continue
            interface_name = elems[list_index].key.get(key, "*")
            name = None if interface_name == "*" else interface_name
        path_elems = tuple((elem.name, tuple(sorted(elem.key.items()))) for elem in elems[list_index + 1 :])
        selection |= _leaves_below(path_elems, list_leaves)
    if not selection:
        raise GnmiError(grpc.StatusCode.NOT_FOUND, f"no path {path_text(elems)} here (served: {known_paths(leaves)})")
    return PathPattern(name, selection)


def leaf_path(name: str, leaf: Leaf, *, qos: bool | None = None) -> gnmi.Path:
    """The whole path of a leaf, or with `leaf` () of an entry of the list that `qos` tells."""
    containers, key = QOS if (leaf in _QOS if qos is None else qos) else INTERFACES
    elem = [gnmi.PathElem(name=container) for container in containers[:-1]]
    elem.append(gnmi.PathElem(name=containers[-1], key={key: name}))
    for part in leaf:
        elem_name, its_key, value = _split(part)
        elem.append(gnmi.PathElem(name=elem_name, key={its_key: value} if its_key else {}))
    return gnmi.Path(elem=elem)


def is_wide(leaf: Leaf) -> bool:
    """Return whether OpenConfig gives the leaf 64 bits.

    These are counters, times, and numbers of octets or per second.
    """
    return leaf in COUNTER_LEAVES or leaf[-1] in WIDE_LEAF_NAMES


def typed_value(value: Value, encoding: int, wide: bool = False) -> gnmi.TypedValue:
    """Return a value in the requested encoding.

    JSON_IETF writes numbers of 64-bit leaves as strings (RFC 7951 §6.1).

    JSON is the number 0, what a client sends that does not care: it gets plain scalars, as from Stratum. finsy's
    subscriptions are such a client and understand nothing else.
    """
    if encoding != gnmi.JSON_IETF:
        return gnmi.TypedValue(string_val=value) if isinstance(value, str) else gnmi.TypedValue(uint_val=value)
    return gnmi.TypedValue(json_ietf_val=json.dumps(str(value) if wide else value).encode())


def check_encoding(encoding: gnmi.Encoding.ValueType) -> None:
    """Raises GnmiError UNIMPLEMENTED for an encoding that is not served."""
    if encoding not in (gnmi.JSON, gnmi.PROTO, gnmi.JSON_IETF):
        name = gnmi.Encoding.Name(encoding) if encoding in gnmi.Encoding.values() else str(encoding)
        raise GnmiError(
            grpc.StatusCode.UNIMPLEMENTED, f"encoding {name} is not supported (has: {', '.join(ENCODINGS)})"
        )
