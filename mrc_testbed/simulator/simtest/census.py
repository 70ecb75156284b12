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
"""The application's."""
_LEAVES = {Config, Memory, Random, type(None), str, bytes, bytearray, memoryview, bool, int, float}


_OTHER, _CONTAINER, _OBJECT = range(3)


class _Kinds(dict[type, int]):
    """Kind of each type met so far."""

    def __missing__(self, kind: type) -> int:
        found = self[kind] = _kind_of(kind)
        return found


def is_small(endpoint: Endpoint, limit: int) -> bool:
    """Return whether all containers together have at most `limit` entries.

    Then no census of any kind has more.

    It also counts what census() leaves out, and every object for one that may be in a chain; and it asks Python's
    garbage collector what an object refers to.
    """
    entries, seen, todo = 0, {id(endpoint)}, [endpoint]
    while todo:
        found: list[Any] = gc.get_referents(*todo)
        todo = []
        for what in compress(found, map(_KIND_OF, map(type, found))):  # without the leaves, which are nearly all
            if id(what) in seen:
                continue
            seen.add(id(what))
            todo.append(what)
            if _KIND_OF(type(what)) == _CONTAINER:
                entries += len(what)
        entries += len(todo)
        if entries > limit:
            return False
    return True


def _kind_of(kind: type) -> int:
    if kind in _LEAVES or issubclass(kind, (Enum, type)):
        return _OTHER
    if issubclass(kind, _CONTAINERS):
        return _CONTAINER
    return _OBJECT if kind.__module__.startswith(_ENGINE) else _OTHER


_KIND_OF: Final = _Kinds().__getitem__


def census(endpoint: Endpoint) -> Counter[str]:
    """Entries by `Class.attribute`, over all objects of an endpoint."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    todo: list[Any] = [endpoint]
    while todo:
        what = todo.pop()
        kind = type(what)
        if kind in _LEAVES or id(what) in seen:
            continue
        seen.add(id(what))
        # Containers are counted under the attribute that holds them, below; here only their items are followed.
        if kind is dict:
            todo.extend(what.values())
            todo.extend(what)
        elif isinstance(what, _CONTAINERS):
            todo.extend(what)
        elif kind.__module__.startswith(_ENGINE) and not isinstance(what, (Enum, type)):
            for name in (*_attributes(kind), *getattr(what, "__dict__", ())):
                value = getattr(what, name, None)
                if type(value) in _LEAVES:
                    continue
                label = f"{kind.__name__}.{name}"
                if label in _LEFT_OUT:
                    continue
                if isinstance(value, _CONTAINERS) and id(value) not in seen:
                    found[label] += len(value)
                # The next item of a linked list, which has no container to count.
                elif type(value) is kind and id(value) not in seen:
                    found[label] += 1
                todo.append(value)
    return found


_KNOWN: dict[type, list[str]] = {}


def _attributes(kind: type) -> list[str]:
    """Slots of a class and its bases, or attributes of a compiled one; what is in a __dict__ comes on top."""
    names = _KNOWN.get(kind)
    if names is None:
        slots = [one.__dict__.get("__mypyc_attrs__", one.__dict__.get("__slots__", ())) for one in kind.__mro__]
        names = [name for slot in slots for name in ((slot,) if isinstance(slot, str) else slot)]
        _KNOWN[kind] = names
    return names
