"""The messages read from Chakra execution traces, as protobuf descriptors: field numbers and types.

Source: MLCommons Chakra's schema (schema/protobuf/et_def.proto, package ChakraProtoMsg). Fields that are left out, such
as tensors and storage details, are skipped by protobuf. Enumerations are numbers here, so that a newer value arrives as
an unknown number instead of a missing field.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_VALUES = {
    "double_val": (3, _Field.TYPE_DOUBLE), "float_val": (5, _Field.TYPE_FLOAT), "int32_val": (7, _Field.TYPE_INT32),
    "int64_val": (9, _Field.TYPE_INT64), "uint32_val": (11, _Field.TYPE_UINT32), "uint64_val": (13, _Field.TYPE_UINT64),
    "sint32_val": (15, _Field.TYPE_SINT32), "sint64_val": (17, _Field.TYPE_SINT64),
    "fixed32_val": (19, _Field.TYPE_FIXED32), "fixed64_val": (21, _Field.TYPE_FIXED64),
    "sfixed32_val": (23, _Field.TYPE_SFIXED32), "sfixed64_val": (25, _Field.TYPE_SFIXED64),
    "bool_val": (27, _Field.TYPE_BOOL), "string_val": (29, _Field.TYPE_STRING),
    "bytes_val": (31, _Field.TYPE_BYTES),
}  # fmt: skip
"""Values of an attribute: field number and type. The list of each kind has the number behind it."""
_LISTS = {
    name.replace("_val", "_list"): (number + 1, f"{name.replace('_val', '').title()}List", kind)
    for name, (number, kind) in _VALUES.items()
}
"""Lists of an attribute: field number, message and type of its items."""
_MESSAGES: dict[str, dict[str, tuple[int, Any, bool]]] = {
    "AttributeProto": {
        "name": (1, _Field.TYPE_STRING, False),
        **{k: (n, t, False) for k, (n, t) in _VALUES.items()},
        **{k: (n, message, False) for k, (n, message, _) in _LISTS.items()},
    },
    **{message: {"values": (1, kind, True)} for _, message, kind in _LISTS.values()},
    "IOInfo": {"values": (1, _Field.TYPE_STRING, False)},
    "GlobalMetadata": {"version": (1, _Field.TYPE_STRING, False), "attr": (2, "AttributeProto", True)},
    "Node": {
        "id": (1, _Field.TYPE_UINT64, False),
        "name": (2, _Field.TYPE_STRING, False),
        "type": (3, _Field.TYPE_INT32, False),
        "ctrl_deps": (4, _Field.TYPE_UINT64, True),
        "data_deps": (5, _Field.TYPE_UINT64, True),
        "duration_micros": (7, _Field.TYPE_UINT64, False),
        "inputs": (8, "IOInfo", False),
        "attr": (10, "AttributeProto", True),
    },
    "OldAttribute": {
        "name": (1, _Field.TYPE_STRING, False),
        "b": (4, _Field.TYPE_BOOL, False),
        "f": (5, _Field.TYPE_FLOAT, False),
        "i": (6, _Field.TYPE_INT64, False),
        "s": (7, _Field.TYPE_STRING, False),
        "bools": (8, _Field.TYPE_BOOL, True),
        "floats": (9, _Field.TYPE_FLOAT, True),
        "ints": (10, _Field.TYPE_INT64, True),
        "strings": (11, _Field.TYPE_STRING, True),
    },
    "OldNode": {
        "id": (1, _Field.TYPE_UINT64, False),
        "name": (2, _Field.TYPE_STRING, False),
        "type": (3, _Field.TYPE_INT32, False),
        "parent": (4, _Field.TYPE_UINT64, True),
        "inputs": (5, _Field.TYPE_STRING, False),
        "attribute": (11, "OldAttribute", True),
    },
}
"""Message -> field -> (number, type or message, repeated)."""
PACKAGE = "ChakraProtoMsg"

NODE_TYPES = {
    1: "METADATA_NODE", 2: "MEM_LOAD_NODE", 3: "MEM_STORE_NODE", 4: "COMP_NODE", 5: "COMM_SEND_NODE",
    6: "COMM_RECV_NODE", 7: "COMM_COLL_NODE", 8: "STORAGE_NODE", 9: "BATCH_NODE", 10: "CHECKPOINT_NODE",
}  # fmt: skip
COLLECTIVES = (
    "ALL_REDUCE",
    "REDUCE",
    "ALL_GATHER",
    "GATHER",
    "SCATTER",
    "BROADCAST",
    "ALL_TO_ALL",
    "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK",
    "BARRIER",
)
"""Names of collectives by number of `comm_type`."""
OLD_COLLECTIVES = ("ALL_REDUCE", "ALL_TO_ALL", "ALL_GATHER", "REDUCE_SCATTER", "BROADCAST")
"""Names of collectives by number of `comm_type` in messages with OldAttribute, until 2023."""


def _build_messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="mrc_testbed/chakra.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, is_repeated) in fields.items():
            label = _Field.LABEL_REPEATED if is_repeated else _Field.LABEL_OPTIONAL
            descriptor = message.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                descriptor.type, descriptor.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
            else:
                descriptor.type = kind
            if field in _VALUES or field in _LISTS:
                descriptor.oneof_index = 0
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in _MESSAGES
    }


MESSAGES = _build_messages()
"""Name -> class of the message."""
