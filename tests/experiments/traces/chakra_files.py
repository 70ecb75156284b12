"""Writes Chakra traces as mlc-chakra does: messages behind their lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mrc_testbed.experiments.traces.chakra_schema import COLLECTIVES, MESSAGES, NODE_TYPES

NUMBERS = {name: number for number, name in NODE_TYPES.items()}


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def frame_messages(*messages: Any) -> bytes:
    return b"".join(varint(len(data)) + data for data in (message.SerializeToString() for message in messages))


def node(number: int, kind: str, *, data=(), control=(), micros=0, name="", inputs="", **attributes: Any) -> Any:
    """Return a node; attributes that are texts, booleans or numbers. `comm_type` may be a name."""
    message = MESSAGES["Node"](id=number, name=name or kind, type=NUMBERS[kind], duration_micros=micros)
    message.data_deps.extend(data)
    message.ctrl_deps.extend(control)
    message.inputs.values = inputs
    for key, value in attributes.items():
        value = COLLECTIVES.index(value) if key == "comm_type" and isinstance(value, str) else value
        field = {str: "string_val", bool: "bool_val", int: "int64_val"}[type(value)]
        setattr(message.attr.add(name=key), field, value)
    return message


def write(folder: Path, ranks: list[list[Any]], name: str = "job") -> Path:
    """Write one file a rank; return the first of them."""
    for rank, nodes in enumerate(ranks):
        data = frame_messages(MESSAGES["GlobalMetadata"](version="0.0.4"), *nodes)
        (folder / f"{name}.{rank}.et").write_bytes(data)
    return folder / f"{name}.0.et"


def old_node(number: int, kind: str, *, parents=(), name="", **attributes: Any) -> Any:
    """Return a node of the schema until 2023; attributes that are texts, numbers or lists of booleans."""
    message = MESSAGES["OldNode"](id=number, name=name or kind, type=NUMBERS[kind], parent=parents)
    for key, value in attributes.items():
        attribute = message.attribute.add(name=key)
        if isinstance(value, list):
            attribute.bools.extend(value)
        else:
            setattr(attribute, {str: "s", int: "i"}[type(value)], value)
    return message


def write_without_metadata(folder: Path, ranks: list[list[Any]], name: str = "job") -> Path:
    """Write one file a rank as before GlobalMetadata; return the first of them."""
    for rank, nodes in enumerate(ranks):
        (folder / f"{name}.{rank}.et").write_bytes(frame_messages(*nodes))
    return folder / f"{name}.0.et"
