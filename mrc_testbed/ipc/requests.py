"""Typed requests: one msgspec Struct for each op, and refusals that say what would have worked.

    class Register(Request, tag="register"):
        length: Annotated[int, Meta(ge=1, le=MAX_REGION_BYTES)]
        owned: bool = False

    request = parse(Register, {"op": "register", "id": 1, "length": 4096})

Requests are hostile: nothing in them is taken on trust. A field that is null counts as left out. Numbers are 0 to
2**64 - 1 unless their Meta says otherwise, texts printable and not empty. `Meta(description=...)` says what a list
has to look like.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from mrc_testbed.ipc.framing import Message

UNFIT = (msgspec.ValidationError, UnicodeEncodeError)
"""Exceptions of msgspec for a value that does not fit.

The second is for half of a surrogate pair, which JSON can carry and UTF-8 cannot.
"""
U64_MAX = (1 << 64) - 1
"""msgspec's own bounds end at 2**63 - 1."""

Number = Annotated[int, Meta(ge=0)]
Rkey = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
Seconds = Annotated[float, Meta(ge=0)]


class RequestError(ValueError):
    """Field of a request that is missing, unknown, of the wrong kind or out of range.

    The message describes a valid value.
    """


class Request(msgspec.Struct, forbid_unknown_fields=True, tag_field="op"):
    """One request; its `tag` is the op."""


class RequestPart(msgspec.Struct, forbid_unknown_fields=True):
    """An object inside a request."""


AnyRequest = TypeVar("AnyRequest", bound=Request)
AnyPart = TypeVar("AnyPart", bound=msgspec.Struct)


def op_of(kind: type[Request]) -> str:
    """The op that a kind of request asks for."""
    return str(kind.__struct_config__.tag)


def parse(kind: type[AnyRequest], request: Message) -> AnyRequest:
    """The fields of a request, checked. Raises RequestError."""
    fields = {name: value for name, value in request.items() if name not in ("op", "id")}
    return parse_part(kind, fields, op_of(kind))


def parse_part(kind: type[AnyPart], fields: Message, object_name: str) -> AnyPart:
    """An object of a request, checked; `where` names it in errors. Raises RequestError."""
    fields = {name: value for name, value in fields.items() if value is not None}
    try:
        part = msgspec.convert(fields, kind)
    except UNFIT as error:
        raise RequestError(_refusal(kind, fields, object_name) or f"{object_name}: {error}") from None
    for name, value in fields.items():
        if isinstance(value, str):
            check_text(name, value)
        elif isinstance(value, int) and value > U64_MAX:
            raise RequestError(_range_text(name, value, 0, None))
    return part


def check_text(name: str, value: str) -> None:
    """Raises RequestError for a text that is empty or cannot be printed."""
    if not value or not value.isprintable():
        raise RequestError(_text_refusal(name, value))


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Raises RequestError for a number outside of bounds that only the running process knows."""
    if not low <= value <= high:
        raise RequestError(_range_text(name, value, low, high))


def _text_refusal(name: str, value: str) -> str:
    return f"{name} = {value!r}: must be a printable text that is not empty"


def _range_text(name: str, value: float, low: float | None, high: float | None) -> str:
    return f"{name} = {value}: must be {low or 0:g} to {float(1 << 64) if high is None else high:g}"


# ---- refusals -----------------------------------------------------------------------------------------------


def _refusal(kind: type[msgspec.Struct], values: Message, object_name: str) -> str | None:
    """Reason why `given` is not a `kind`, in our words; None: no reason found."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name in values:
        if name not in fields:
            return f"{object_name} has no field {name!r} (has: {', '.join(fields) or 'none'})"
    for name, field in fields.items():
        value = values.get(name)
        if value is None:
            if field.required:
                return f"{object_name} needs {name!r} ({_python_type(field.type)[0].__name__})"
            continue
        try:
            msgspec.convert(value, field.type)
        except UNFIT:
            return _wrong_value(name, value, field.type, object_name)
    return None


def _python_type(annotation: object) -> tuple[type, Any, str]:
    """The type of a field as JSON has it, msgspec's description of it, and what its Meta says in words."""
    from msgspec import inspect  # a refusal has time for it, the start of a process has not

    info: Any = inspect.type_info(annotation)
    words = ""
    while isinstance(info, (inspect.Metadata, inspect.UnionType)):
        if isinstance(info, inspect.UnionType):
            info = next(type_ for type_ in info.types if not isinstance(type_, inspect.NoneType))
        else:
            words = (info.extra_json_schema or {}).get("description", "")
            info = info.type
    kinds: dict[type, type] = {
        inspect.IntType: int,
        inspect.FloatType: float,
        inspect.StrType: str,
        inspect.BoolType: bool,
        inspect.ListType: list,
    }
    return kinds.get(type(info), dict), info, words


def _wrong_value(name: str, value: Any, annotation: object, object_name: str) -> str:
    kind, info, words = _python_type(annotation)
    if words and (kind is not list or isinstance(value, list)):
        return f"{name} = {value!r}: {words}"
    valid_types = (int, float) if kind is float else kind
    if not isinstance(value, valid_types) or (isinstance(value, bool) and kind is not bool):
        return f"{name} = {value!r}: must be of type {kind.__name__}"
    if isinstance(value, dict) and hasattr(info, "cls"):
        part = {key: member for key, member in value.items() if member is not None}
        return _refusal(info.cls, part, object_name) or f"{name} = {value!r}: cannot be"
    if isinstance(value, str):
        return _text_refusal(name, value)
    if isinstance(value, (int, float)):
        return _range_text(name, value, getattr(info, "ge", None), getattr(info, "le", None))
    return f"{name} = {value!r}: cannot be"
