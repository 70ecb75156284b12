"""Number of entries in the containers of an engine, found by walking through all its objects.

Counted is every list, deque, dict, set and tuple that is reached from an Endpoint through attributes of the engine's
own classes, whatever their names; and every object in a chain, which refers to another of its own class. What the
application gave and will take back is not the engine's state: events not read yet, work requests, posted receives,
registered memory.
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from enum import Enum
from itertools import compress
from random import Random
from typing import Any, Final

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.memory import Memory

_ENGINE = "mrc_testbed.hosts.engine."
_CONTAINERS = (list, deque, dict, set, frozenset, tuple)
_LEFT_OUT = {
    "Endpoint._events",
    "PeerTable._events",
    "EngineQueuePair._events",
    "Context.events",
    "EngineQueuePair._receives",
    "Responder._receives",
    "Requestor._messages",
    "Requestor._unsent",
}
"""Attributes that belong to the application and do not count."""
_LEAVES = {Config, Memory, Random, type(None), str, bytes, bytearray, memoryview, bool, int, float}


_LEAF, _CONTAINER, _OBJECT = range(3)


class _Kinds(dict[type, int]):
    """Kind of each type met so far."""

    def __missing__(self, kind: type) -> int:
        code = self[kind] = _kind_of(kind)
        return code


def is_small(endpoint: Endpoint, limit: int) -> bool:
    """Return whether all containers together have at most `limit` entries.

    Then no census of any kind has more.

    It also counts what census() leaves out, and every object for one that may be in a chain; and it asks Python's
    garbage collector what an object refers to.
    """
    entries, seen_ids, pending = 0, {id(endpoint)}, [endpoint]
    while pending:
        referents: list[Any] = gc.get_referents(*pending)
        pending = []
        for referent in compress(
            referents, map(_KIND_OF, map(type, referents))
        ):  # without the leaves, which are nearly all
            if id(referent) in seen_ids:
                continue
            seen_ids.add(id(referent))
            pending.append(referent)
            if _KIND_OF(type(referent)) == _CONTAINER:
                entries += len(referent)
        entries += len(pending)
        if entries > limit:
            return False
    return True


def _kind_of(kind: type) -> int:
    if kind in _LEAVES or issubclass(kind, (Enum, type)):
        return _LEAF
    if issubclass(kind, _CONTAINERS):
        return _CONTAINER
    return _OBJECT if kind.__module__.startswith(_ENGINE) else _LEAF


_KIND_OF: Final = _Kinds().__getitem__


def census(endpoint: Endpoint) -> Counter[str]:
    """Count the entries by `Class.attribute`, over all objects of an endpoint."""
    counts: Counter[str] = Counter()
    seen_ids: set[int] = set()
    pending: list[Any] = [endpoint]
    while pending:
        obj = pending.pop()
        kind = type(obj)
        if kind in _LEAVES or id(obj) in seen_ids:
            continue
        seen_ids.add(id(obj))
        # Containers are counted under the attribute that holds them, below; here only their items are followed.
        if kind is dict:
            pending.extend(obj.values())
            pending.extend(obj)
        elif isinstance(obj, _CONTAINERS):
            pending.extend(obj)
        elif kind.__module__.startswith(_ENGINE) and not isinstance(obj, (Enum, type)):
            for name in (*_attributes(kind), *getattr(obj, "__dict__", ())):
                value = getattr(obj, name, None)
                if type(value) in _LEAVES:
                    continue
                label = f"{kind.__name__}.{name}"
                if label in _LEFT_OUT:
                    continue
                if isinstance(value, _CONTAINERS) and id(value) not in seen_ids:
                    counts[label] += len(value)
                # The next item of a linked list, which has no container to count.
                elif type(value) is kind and id(value) not in seen_ids:
                    counts[label] += 1
                pending.append(value)
    return counts


_ATTRIBUTE_NAMES: dict[type, list[str]] = {}


def _attributes(kind: type) -> list[str]:
    """Return slots of a class and its bases, or attributes of a compiled class, without those in __dict__."""
    names = _ATTRIBUTE_NAMES.get(kind)
    if names is None:
        slots = [base.__dict__.get("__mypyc_attrs__", base.__dict__.get("__slots__", ())) for base in kind.__mro__]
        names = [name for slot in slots for name in ((slot,) if isinstance(slot, str) else slot)]
        _ATTRIBUTE_NAMES[kind] = names
    return names
