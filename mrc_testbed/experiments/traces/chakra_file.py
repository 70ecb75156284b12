"""Files of Chakra traces as nodes: .et of today and of before GlobalMetadata, JSON of two forms.

    trace = read_file(Path("job.0.et"), rank=0)

An .et file is messages behind their lengths, first the GlobalMetadata. Files of 2023 and before begin with a node, and
have attributes and types of collectives of their own; a file tells by the fields of its messages. JSON is what
protobuf's MessageToJson writes, one object behind the other, or the feeder's `{"workload_graph": [...]}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError

from mrc_testbed.experiments.traces.chakra_schema import COLLECTIVES, MESSAGES, NODE_TYPES, OLD_COLLECTIVES
from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.hosts.traffic.program_script import TASKS_MAX

MESSAGE_MAX = 16 << 20
"""Most bytes of a node."""
CONTENT_MAX, JSON_GAP_MAX = 256 << 20, 1024
"""Most bytes of a file of JSON, and of blanks between two of its objects."""
MICROSECOND = 1e-6
METADATA_FIELDS = {(1, 2), (2, 2)}
"""Fields of GlobalMetadata, and the wire type of each: a version, and attributes."""
OLD_ATTRIBUTES = (11, 2)
"""Field of a node with its attributes, until 2023."""
GRAPH = "workload_graph"
_GRAPH_KEYS = {
    "Id": "id",
    "Name": "name",
    "NodeType": "type",
    "runtime": "duration_micros",
    "ctrlDeps": "ctrl_deps",
    "ctrl_deps": "ctrl_deps",
    "data_deps": "data_deps",
}
"""Key of a node of the feeder's JSON -> field of a node; others are attributes."""
_Data = bytes | dict[str, Any]
"""A message as it stands in a file."""


@dataclass(slots=True)
class ChakraNode:
    """One node. An attribute without a value that is known has None."""

    id: int
    name: str
    kind: str
    dependencies: list[int]
    seconds: float
    attributes: dict[str, Any]
    inputs: str


@dataclass(slots=True)
class ChakraTrace:
    """The nodes of one rank."""

    path: Path
    rank: int
    nodes: list[ChakraNode] = field(default_factory=list)


def read_file(path: Path, rank: int, *, as_json: bool = False) -> ChakraTrace:
    """Return the nodes of a file. Raises TraceError."""
    trace = ChakraTrace(path, rank)
    ids: set[int] = set()
    try:
        with path.open("rb") as file:
            messages: Iterator[_Data] = _json_messages(path, file) if as_json else _messages(path, file)
            for number, data in enumerate(messages):
                # The first message is the file's metadata, unless it is a node.
                try:
                    if number == 0 and _is_metadata(data):
                        _message_of("GlobalMetadata", data)
                        continue
                    node = _node_of(path, data)
                except (DecodeError, ParseError) as error:
                    subject = "GlobalMetadata" if number == 0 else f"node {number}"
                    reason = " ".join(str(error).split())
                    raise TraceError(path, f"{subject} is no message of a Chakra trace: {reason:.200}") from None
                if len(trace.nodes) >= TASKS_MAX:
                    raise TraceError(path, f"more than {TASKS_MAX} nodes")
                if node.id in ids:
                    raise TraceError(path, f"two nodes have the id {node.id}")
                ids.add(node.id)
                trace.nodes.append(node)
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror}") from None
    for waiting_node in trace.nodes:
        if unknown := [dependency for dependency in waiting_node.dependencies if dependency not in ids]:
            raise TraceError(
                path, f"node {waiting_node.id} ({waiting_node.name}) waits for node {unknown[0]}, which is not there"
            )
    return trace


# ---- messages of a file -------------------------------------------------------------------------------------


def _messages(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """Yield messages that are prefixed with their length (a varint), one in memory at a time."""
    count = 0
    while True:
        length = shift = 0
        while True:
            byte = file.read(1)
            if not byte:
                if shift:
                    raise TraceError(path, f"cut off after {count} messages")
                if not count:
                    raise TraceError(path, "empty: a Chakra trace begins with its GlobalMetadata")
                return
            length |= (byte[0] & 0x7F) << shift
            shift += 7
            if byte[0] < 0x80:
                break
            if shift > 28:
                raise TraceError(path, f"message {count + 1} has no sensible length: not a Chakra trace")
        if length > MESSAGE_MAX:
            subject = f"message {count + 1} would have {length} bytes, at most {MESSAGE_MAX}"
            raise TraceError(path, f"{subject}: not a Chakra trace")
        data = file.read(length)
        if len(data) < length:
            raise TraceError(path, f"cut off after {count} messages: the next lacks {length - len(data)} bytes")
        count += 1
        yield data


def _json_messages(path: Path, file: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON: one behind the other, or the nodes of a workload_graph."""
    decoder, start = json.JSONDecoder(), 0
    try:
        text = file.read(CONTENT_MAX + 1).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise TraceError(path, "not UTF-8 text: not a Chakra trace as JSON") from None
    if len(text) > CONTENT_MAX:
        raise TraceError(path, f"more than {CONTENT_MAX} bytes: give the .et file that it was made of")
    while start < len(text):
        try:
            data, start = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            line = text.count("\n", 0, start) + 1
            raise TraceError(path, "no JSON object, or cut off: not a Chakra trace as JSON", line) from None
        if not isinstance(data, dict):
            raise TraceError(path, f"{data!r:.40} is no node", text.count("\n", 0, start) + 1)
        yield from _graph_nodes(path, data[GRAPH]) if GRAPH in data else [data]
        start += len(text[start : start + JSON_GAP_MAX]) - len(text[start : start + JSON_GAP_MAX].lstrip())


def _graph_nodes(path: Path, nodes: Any) -> Iterator[dict[str, Any]]:
    """Yield the nodes of the feeder's JSON in the form of MessageToJson."""
    if not isinstance(nodes, list):
        raise TraceError(path, f"{GRAPH} is no list of nodes")
    value_names = {bool: "bool_val", int: "int64_val", float: "double_val", str: "string_val"}
    for node in nodes:
        if not isinstance(node, dict):
            raise TraceError(path, f"{node!r:.40} is no node")
        fields = {_GRAPH_KEYS[key]: value for key, value in node.items() if key in _GRAPH_KEYS}
        attributes = [
            {"name": key} | ({value_names[type(value)]: value} if type(value) in value_names else {})
            for key, value in node.items()
            if key not in _GRAPH_KEYS
        ]
        yield fields | {"attr": attributes}


def _is_metadata(data: _Data) -> bool:
    """Whether the first message is the GlobalMetadata, and no node."""
    return not {"id", "type", "name"} & data.keys() if isinstance(data, dict) else _fields(data) <= METADATA_FIELDS


def _fields(data: bytes) -> set[tuple[int, int]]:
    """Return number and wire type of the fields of a message. Raises DecodeError."""
    out: set[tuple[int, int]] = set()
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        out.add((key >> 3, key & 7))
        match key & 7:
            case 0:
                _, position = _varint(data, position)
            case 1:
                position += 8
            case 2:
                length, position = _varint(data, position)
                position += length
            case 5:
                position += 4
            case kind:
                raise DecodeError(f"a field of wire type {kind}")
    if position > len(data):
        raise DecodeError("a field is cut off")
    return out


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise DecodeError("a number is cut off")


def _message_of(name: str, data: _Data) -> Any:
    """Return a message of its bytes, or of its JSON. Raises DecodeError, ParseError."""
    if isinstance(data, bytes):
        return MESSAGES[name].FromString(data)
    return ParseDict(data, MESSAGES[name](), ignore_unknown_fields=True)


# ---- nodes --------------------------------------------------------------------------------------------------


def _node_of(path: Path, data: _Data) -> ChakraNode:
    """Return the node of a message. Raises TraceError, DecodeError, ParseError."""
    if isinstance(data, bytes) and OLD_ATTRIBUTES in _fields(data):
        return _old_node(path, _message_of("OldNode", data))
    if isinstance(data, dict) and isinstance(kind := data.get("type"), str):
        numbers = {name: number for number, name in NODE_TYPES.items()}
        if kind not in numbers:
            raise _unknown_type(path, f"node {data.get('id')} ({data.get('name')})", kind)
        data = data | {"type": numbers[kind]}
    node = _message_of("Node", data)
    attributes = {attribute.name: _value(attribute, attribute.WhichOneof("value")) for attribute in node.attr}
    dependencies = list(dict.fromkeys([*node.ctrl_deps, *node.data_deps]))
    seconds = node.duration_micros * MICROSECOND
    return ChakraNode(
        node.id, node.name[:80], _type_name(path, node), dependencies, seconds, attributes, node.inputs.values
    )


def _old_node(path: Path, node: Any) -> ChakraNode:
    """Return a node of the schema until 2023, with numbers and time as they are today."""
    kind = _type_name(path, node)
    attributes = {}
    for attribute in node.attribute:
        name = next((descriptor.name for descriptor, _ in attribute.ListFields() if descriptor.number >= 4), None)
        # A number that is 0 is not told apart from one that is absent unless the file writes it: both are 0.
        attributes[attribute.name] = _value(attribute, name) if name else 0
    number = attributes.get("comm_type")
    if isinstance(number, int) and 0 <= number < len(OLD_COLLECTIVES):
        attributes["comm_type"] = COLLECTIVES.index(OLD_COLLECTIVES[number])
    runtime = attributes.get("runtime", 0)
    if isinstance(runtime, bool) or not isinstance(runtime, int) or runtime < 0:
        raise TraceError(path, f"node {node.id} ({node.name}) has runtime {runtime!r}: microseconds")
    dependencies = list(dict.fromkeys(node.parent))
    return ChakraNode(node.id, node.name[:80], kind, dependencies, runtime * MICROSECOND, attributes, node.inputs)


def _value(attribute: Any, name: str | None) -> Any:
    """Return the value of an attribute, of a list its items; None for one without a value."""
    if name is None:
        return None
    value = getattr(attribute, name)
    if name.endswith("_list"):
        return list(value.values)
    return value if isinstance(value, bool | int | float | str | bytes) else list(value)


def _type_name(path: Path, node: Any) -> str:
    if node.type not in NODE_TYPES:
        raise _unknown_type(path, f"node {node.id} ({node.name:.80})", node.type)
    return NODE_TYPES[node.type]


def _unknown_type(path: Path, subject: str, kind: object) -> TraceError:
    return TraceError(path, f"{subject} is of type {kind} (known: {', '.join(NODE_TYPES.values())})")
