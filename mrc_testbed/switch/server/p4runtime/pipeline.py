"""Forwarding pipelines: P4 source in, compiled once for all devices, and the comparison of P4Infos."""

from __future__ import annotations

import asyncio
import hashlib
import logging
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

    def same_program(self, other: Pipeline) -> bool:
        mine, theirs = self.config, other.config
        return mine.p4_device_config == theirs.p4_device_config and mine.p4info == theirs.p4info


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
            task.add_done_callback(lambda done: self._forget_failure(key, done))
            while len(self._tasks) > PROGRAMS_KEPT:
                self._tasks.popitem(last=False)
        self._tasks.move_to_end(key)
        return await asyncio.shield(task)  # a client that gives up must not take the others' work away

    def _forget_failure(self, key: str, done: asyncio.Task[CompiledProgram]) -> None:
        if (done.cancelled() or done.exception() is not None) and self._tasks.get(key) is done:
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
    if not config.p4_device_config:
        raise RpcError(rpc_code.INVALID_ARGUMENT, "p4_device_config is empty: this target takes preprocessed P4 source")
    if not config.HasField("p4info"):
        raise RpcError(rpc_code.INVALID_ARGUMENT, "the config has no p4info")
    program = await compiler.compile(config.p4_device_config)
    difference = first_difference(config.p4info, program.p4info)
    if difference is not None:
        raise RpcError(
            rpc_code.INVALID_ARGUMENT,
            f"the P4Info is not that of p4_device_config: {difference} (compile both from the same source)",
        )
    return Pipeline(config, program)


_ArrayKind = Literal["counters", "meters", "registers"]
_ARRAYS: tuple[_ArrayKind, ...] = ("counters", "meters", "registers")
"""Arrays that a P4Info may leave out: no table refers to it, and clients cannot read it then. p4c itself leaves
out some that the program does not use."""

_UNORDERED = ("table_ids", "direct_resource_ids", "action_refs")
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


def first_difference(sent: p4i.P4Info, compiled: p4i.P4Info) -> str | None:
    """First difference of two P4Infos that entries depend on, in words; None: no such difference."""
    if sent == compiled:
        return None
    return _difference(sent, _without_unsent_arrays(sent, compiled), "")


def _without_unsent_arrays(sent: p4i.P4Info, compiled: p4i.P4Info) -> p4i.P4Info:
    """`compiled` without the arrays that `sent` leaves out, and without the types that only these may need."""
    out = p4i.P4Info()
    out.CopyFrom(compiled)
    for kind in _ARRAYS:
        named = {one.preamble.id for one in getattr(sent, kind)}
        kept = [one for one in getattr(compiled, kind) if one.preamble.id in named]
        out.ClearField(kind)
        getattr(out, kind).extend(kept)
    if all(len(getattr(out, kind)) == len(getattr(compiled, kind)) for kind in _ARRAYS):
        return out
    for field in out.type_info.DESCRIPTOR.fields:
        if field.is_repeated:
            types, wanted = getattr(out.type_info, field.name), getattr(sent.type_info, field.name)
            for name in set(types) - set(wanted):
                del types[name]
        elif field.name == "error" and not sent.type_info.HasField("error"):
            out.type_info.ClearField("error")
    return out


def _difference(sent: Any, compiled: Any, where: str) -> str | None:
    for field in sent.DESCRIPTOR.fields:
        if field.name in _OF_NO_EFFECT:
            continue
        name = f"{where}.{field.name}".lstrip(".")
        ours, theirs = getattr(compiled, field.name), getattr(sent, field.name)
        if field.is_repeated:
            found = _list_difference(theirs, ours, name, field.message_type)
        elif field.message_type is not None:
            if field.name == "type_info" and not (theirs.ByteSize() or ours.ByteSize()):
                continue  # an empty one says no more than none
            if sent.HasField(field.name) != compiled.HasField(field.name):
                side = ("sent", "compiled") if sent.HasField(field.name) else ("compiled", "sent")
                return f"{name} is in the {side[0]} one only, not in the {side[1]}"
            found = _difference(theirs, ours, name)
        else:
            found = None if theirs == ours else f"{name} is {theirs!r} in the sent one, {ours!r} in the compiled"
        if found is not None:
            return found
    return None


def _list_difference(sent: Any, compiled: Any, name: str, message_type: Any) -> str | None:
    if message_type is not None and message_type.GetOptions().map_entry:
        if set(sent) != set(compiled):
            return f"{name}: {', '.join(sorted(set(sent) ^ set(compiled)))} in one of them only"
        for key in sorted(sent):
            found = _difference(sent[key], compiled[key], f"{name}[{key}]")
            if found is not None:
                return found
        return None
    if name.endswith(_UNORDERED) or (message_type is not None and "preamble" in message_type.fields_by_name):
        sent, compiled = sorted(sent, key=_identity), sorted(compiled, key=_identity)
        for mine, others, which in ((sent, compiled, "sent"), (compiled, sent, "compiled")):
            known = {_identity(one) for one in others}
            extra = next((one for one in mine if _identity(one) not in known), None)
            if extra is not None:
                what = f"{_label(extra)} ({_identity(extra):#x})".lstrip()
                return f"{name}: {what} is in the {which} one only"
    for at, (theirs, ours) in enumerate(zip(sent, compiled, strict=False)):
        here = f"{name}[{_label(theirs) or at}]"
        if message_type is None:
            if theirs != ours:
                return f"{here} is {theirs!r} in the sent one, {ours!r} in the compiled"
        elif (found := _difference(theirs, ours, here)) is not None:
            return found
    if len(sent) != len(compiled):
        return f"{name}: {len(sent)} in the sent one, {len(compiled)} in the compiled"
    return None


def _identity(one: Any) -> int:
    """The id of an object or of a reference to one, or the id itself."""
    return int(one.preamble.id if hasattr(one, "preamble") else getattr(one, "id", one))


def _label(message: Any) -> str:
    """The name of a P4Info object, for a path people can follow."""
    preamble = getattr(message, "preamble", None)
    return (preamble.name if preamble is not None else "") or str(getattr(message, "name", ""))
