"""Forwarding pipelines: P4 source in, compiled once for all devices, and the comparison of P4Infos."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from finsy.proto import p4i, p4r, rpc_code

from mrc_testbed.switch.server.p4runtime.errors import RpcError

if TYPE_CHECKING:
    from mrc_testbed.switch.compiler import CompiledProgram

PROGRAMS_KEPT = 16

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A config as the client gave it, and what it compiled to."""

    config: p4r.ForwardingPipelineConfig
    program: CompiledProgram

    def same_program(self, peer: Pipeline) -> bool:
        config, peer_config = self.config, peer.config
        return config.p4_device_config == peer_config.p4_device_config and config.p4info == peer_config.p4info


class Compiler:
    """Compiles device configs in a thread, each text once: the switches of a fabric all send the same."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[str, asyncio.Task[CompiledProgram]] = OrderedDict()

    async def compile(self, config: bytes) -> CompiledProgram:
        """Raises RpcError INVALID_ARGUMENT with the compiler's file:line:column text."""
        if config[:1] in (b"{", b"["):
            raise RpcError(
                rpc_code.INVALID_ARGUMENT,
                "p4_device_config is JSON, which is for BMv2: this target takes preprocessed P4 source",
            )
        key = hashlib.sha256(config).hexdigest()
        task = self._tasks.get(key)
        if task is None:
            task = asyncio.ensure_future(asyncio.to_thread(_compile, config))
            self._tasks[key] = task
            task.add_done_callback(lambda finished_task: self._forget_failure(key, finished_task))
            while len(self._tasks) > PROGRAMS_KEPT:
                self._tasks.popitem(last=False)
        self._tasks.move_to_end(key)
        return await asyncio.shield(task)  # a client that gives up must not take the others' work away

    def _forget_failure(self, key: str, finished_task: asyncio.Task[CompiledProgram]) -> None:
        if (finished_task.cancelled() or finished_task.exception() is not None) and self._tasks.get(
            key
        ) is finished_task:
            del self._tasks[key]


def _compile(config: bytes) -> CompiledProgram:
    from mrc_testbed.switch.compiler import P4Error, compile_program
    from mrc_testbed.switch.system.cache_folder import BuildError

    try:
        return compile_program(config.decode())
    except UnicodeDecodeError as error:
        raise RpcError(rpc_code.INVALID_ARGUMENT, f"p4_device_config is not UTF-8 text: {error}") from None
    except P4Error as error:
        raise RpcError(rpc_code.INVALID_ARGUMENT, str(error)) from None
    except BuildError as error:
        raise RpcError(rpc_code.INTERNAL, str(error)) from None
    except RecursionError:
        raise RpcError(rpc_code.INVALID_ARGUMENT, "the program is nested too deeply to be compiled") from None
    except Exception as error:
        log.exception("the compiler failed")
        raise RpcError(rpc_code.INTERNAL, f"internal error in the compiler: {type(error).__name__}: {error}") from None


async def build_pipeline(compiler: Compiler, config: p4r.ForwardingPipelineConfig) -> Pipeline:
    """Compiles a config and holds its P4Info against ours. Raises RpcError INVALID_ARGUMENT."""
    source = device_data(config.p4_device_config)
    if not source:
        raise RpcError(rpc_code.INVALID_ARGUMENT, "p4_device_config is empty: this target takes preprocessed P4 source")
    if not config.HasField("p4info"):
        raise RpcError(rpc_code.INVALID_ARGUMENT, "the config has no p4info")
    program = await compiler.compile(source)
    difference = first_difference(config.p4info, program.p4info)
    if difference is not None:
        raise RpcError(
            rpc_code.INVALID_ARGUMENT,
            f"the P4Info is not that of p4_device_config: {difference} (compile both from the same source)",
        )
    return Pipeline(config, program)


WRAPPER = re.compile(rb"(?:\x08[\x00\x01])?\x1a([\x80-\xff]{0,4}[\x00-\x7f])")
"""Beginning of a P4DeviceConfig message (p4.tmp): `reassign`, then the length of `device_data`."""


def device_data(config: bytes) -> bytes:
    """Return the program of a device config, which clients made for BMv2 wrap in a P4DeviceConfig message."""
    match = WRAPPER.match(config)
    if match is None:
        return config
    length = sum((digit & 0x7F) << (7 * index) for index, digit in enumerate(match[1]))
    return config[match.end() :] if len(config) - match.end() == length else config


_ArrayKind = Literal["counters", "meters", "registers"]
_ARRAYS: tuple[_ArrayKind, ...] = ("counters", "meters", "registers")
"""Arrays that a P4Info may leave out: no table refers to them.

Clients cannot read an array that is left out. p4c itself leaves out some that the program does not use.
"""

_UNORDERED_LISTS = ("table_ids", "direct_resource_ids", "action_refs")
"""Lists in which the order says nothing; in those of tables, actions and the like it does not, either."""

_OF_NO_EFFECT = (
    "pkg_info",
    "annotations",
    "annotation_locations",
    "structured_annotations",
    "doc",
    "alias",
    "initial_default_action",
)
"""Fields that versions of p4c write differently, and no entry depends on."""


def first_difference(sent: p4i.P4Info, compiled_info: p4i.P4Info) -> str | None:
    """First difference of two P4Infos that entries depend on, in words; None: no such difference."""
    if sent == compiled_info:
        return None
    return _difference(sent, _without_unsent_arrays(sent, compiled_info), "")


def _without_unsent_arrays(sent: p4i.P4Info, compiled_info: p4i.P4Info) -> p4i.P4Info:
    """Return `compiled_info` without the arrays that `sent` leaves out.

    Types that only these arrays may need are left out too.
    """
    out = p4i.P4Info()
    out.CopyFrom(compiled_info)
    for kind in _ARRAYS:
        sent_ids = {object_.preamble.id for object_ in getattr(sent, kind)}
        kept_objects = [object_ for object_ in getattr(compiled_info, kind) if object_.preamble.id in sent_ids]
        out.ClearField(kind)
        getattr(out, kind).extend(kept_objects)
    if all(len(getattr(out, kind)) == len(getattr(compiled_info, kind)) for kind in _ARRAYS):
        return out
    for field in out.type_info.DESCRIPTOR.fields:
        if field.is_repeated:
            types, sent_types = getattr(out.type_info, field.name), getattr(sent.type_info, field.name)
            for name in set(types) - set(sent_types):
                del types[name]
        elif field.name == "error" and not sent.type_info.HasField("error"):
            out.type_info.ClearField("error")
    return out


def _difference(sent: Any, compiled_message: Any, path: str) -> str | None:
    for field in sent.DESCRIPTOR.fields:
        if field.name in _OF_NO_EFFECT:
            continue
        name = f"{path}.{field.name}".lstrip(".")
        compiled_value, sent_value = getattr(compiled_message, field.name), getattr(sent, field.name)
        if field.is_repeated:
            difference = _list_difference(sent_value, compiled_value, name, field.message_type)
        elif field.message_type is not None:
            if field.name == "type_info" and not (sent_value.ByteSize() or compiled_value.ByteSize()):
                continue  # an empty one says no more than none
            if sent.HasField(field.name) != compiled_message.HasField(field.name):
                side = ("sent", "compiled") if sent.HasField(field.name) else ("compiled", "sent")
                return f"{name} is in the {side[0]} one only, not in the {side[1]}"
            difference = _difference(sent_value, compiled_value, name)
        else:
            difference = (
                None
                if sent_value == compiled_value
                else f"{name} is {sent_value!r} in the sent one, {compiled_value!r} in the compiled"
            )
        if difference is not None:
            return difference
    return None


def _list_difference(sent: Any, compiled_list: Any, name: str, message_type: Any) -> str | None:
    if message_type is not None and message_type.GetOptions().map_entry:
        if set(sent) != set(compiled_list):
            return f"{name}: {', '.join(sorted(set(sent) ^ set(compiled_list)))} in one of them only"
        for key in sorted(sent):
            difference = _difference(sent[key], compiled_list[key], f"{name}[{key}]")
            if difference is not None:
                return difference
        return None
    if name.endswith(_UNORDERED_LISTS) or (message_type is not None and "preamble" in message_type.fields_by_name):
        # Order has no meaning here: sort both lists, and name an object that one of them lacks before comparing pairs.
        sent, compiled_list = sorted(sent, key=_identity), sorted(compiled_list, key=_identity)
        for own_list, peer_list, side in ((sent, compiled_list, "sent"), (compiled_list, sent, "compiled")):
            peer_ids = {_identity(object_) for object_ in peer_list}
            extra = next((object_ for object_ in own_list if _identity(object_) not in peer_ids), None)
            if extra is not None:
                object_text = f"{_label(extra)} ({_identity(extra):#x})".lstrip()
                return f"{name}: {object_text} is in the {side} one only"
    for index, (sent_value, compiled_value) in enumerate(zip(sent, compiled_list, strict=False)):
        item_path = f"{name}[{_label(sent_value) or index}]"
        if message_type is None:
            if sent_value != compiled_value:
                return f"{item_path} is {sent_value!r} in the sent one, {compiled_value!r} in the compiled"
        elif (difference := _difference(sent_value, compiled_value, item_path)) is not None:
            return difference
    if len(sent) != len(compiled_list):
        return f"{name}: {len(sent)} in the sent one, {len(compiled_list)} in the compiled"
    return None


def _identity(message: Any) -> int:
    """The id of an object or of a reference to one, or the id itself."""
    return int(message.preamble.id if hasattr(message, "preamble") else getattr(message, "id", message))


def _label(message: Any) -> str:
    """The name of a P4Info object, for a path people can follow."""
    preamble = getattr(message, "preamble", None)
    return (preamble.name if preamble is not None else "") or str(getattr(message, "name", ""))
