"""Checking the fields of a request. Requests are hostile: nothing in them is taken on trust."""

from __future__ import annotations

from typing import Any

from hosts.engine.config import PATH_MTUS

Fields = dict[str, Any]


class RequestError(ValueError):
    """A field of a request is missing, of the wrong kind or out of range."""


def take(request: Fields, name: str, kind: type, default: Any = ..., low: float = 0, high: float = 1 << 64) -> Any:
    """A checked field of a request: `kind` is int, float, str, bool, list or dict; without default it must be there."""
    value = request.get(name)
    if value is None:
        if default is ...:
            raise RequestError(f"{request.get('op')} needs {name!r} ({kind.__name__})")
        return default
    wanted = (int, float) if kind is float else kind
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
        raise RequestError(f"{name} = {value!r}: must be of type {kind.__name__}")
    if kind in (int, float) and not low <= value <= high:
        raise RequestError(f"{name} = {value}: must be {low:g} to {high:g}")
    if kind is str and (not value or "\0" in value or not value.isprintable()):
        raise RequestError(f"{name} = {value!r}: must be a printable text that is not empty")
    return value


def pmtu_of(request: Fields, most: int) -> int:
    """The path MTU asked for, or `most`, the one configured. Raises RequestError."""
    pmtu = take(request, "pmtu", int, most)
    if pmtu not in PATH_MTUS or pmtu > most:
        allowed = [mtu for mtu in PATH_MTUS if mtu <= most]
        raise RequestError(f"pmtu = {pmtu}: must be one of {', '.join(map(str, allowed))}")
    return pmtu
