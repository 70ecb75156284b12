"""The C runtime through ctypes: builds it once, declares its functions, mirrors its structures.

Nothing here decides anything; `switch.device.device` and `switch.device.loop` are the interfaces to use.
"""

from __future__ import annotations

import contextlib
import ctypes as c
import threading
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from mrc_testbed.switch.system.cache_folder import BuildError
from mrc_testbed.switch.system.gcc import SYSTEM_DIR, build_shared

RUNTIME_DIR = Path(str(files("mrc_testbed.switch"))) / "runtime"
"""Folder of p4rt.h: the include folder of generated programs."""
SOURCES = (
    "device.c",
    "tables.c",
    "entries.c",
    "profiles.c",
    "hashes.c",
    "digests.c",
    "meters.c",
    "trace.c",
    "pipeline.c",
    "replication.c",
    "buffers.c",
    "impairment.c",
    "traffic.c",
    "settings.c",
    "virtual_clock.c",
    "event_loop.c",
    "ports.c",
    "events.c",
    "port.c",
    "link.c",
    "wires.c",
    "shared_wires.c",
)

MAX_FRAME = 16384
"""P4RT_MAX_FRAME: longest frame, bytes."""
PORTS = 512
"""RT_PORTS: port numbers are below this."""
LATENESS_BUCKETS = 24
"""RT_LATE."""
NEVER_DUE = (1 << 64) - 1
"""RT_NEVER."""
NO_INDEX = 0xFFFF_FFFF
"""P4RT_NONE."""

INSERT, MODIFY, DELETE = 0, 1, 2
INVERSE = (DELETE, MODIFY, INSERT)
KIND_NONE, KIND_ACTION, KIND_MEMBER, KIND_GROUP, KIND_SET = 0, 1, 2, 3, 4

EVENT_FRAME, EVENT_PORT = 1, 2

NOT_FOUND, EXISTS, NO_ROOM, IN_USE, NO_MEMORY, INVALID, NO_PROGRAM, SYSTEM, MIXED_KINDS, CONST = range(-1, -11, -1)
"""enum rt_error."""


class FieldDesc(c.Structure):
    """A match field of a table, or a parameter of an action, as p4rt.h describes it."""

    _fields_ = [("name", c.c_char_p), ("id", c.c_uint32), ("bits", c.c_uint32), ("match", c.c_int)]


class ActionDesc(c.Structure):
    """An action of a program, as p4rt.h describes it."""

    _fields_ = [
        ("name", c.c_char_p), ("id", c.c_uint32), ("n_params", c.c_uint32), ("params", c.POINTER(FieldDesc)),
        ("params_bytes", c.c_uint32), ("metered", c.c_uint32),
    ]  # fmt: skip


class TableDesc(c.Structure):
    """A table of a program, as p4rt.h describes it."""

    _fields_ = [
        ("name", c.c_char_p), ("id", c.c_uint32), ("n_fields", c.c_uint32), ("fields", c.POINTER(FieldDesc)),
        ("key_bytes", c.c_uint32), ("size", c.c_uint32), ("n_actions", c.c_uint32),
        ("actions", c.POINTER(c.c_uint32)), ("profile", c.c_uint32), ("default_action", c.c_uint32),
        ("default_params", c.c_void_p), ("direct_counter", c.c_int), ("n_entries", c.c_uint32),
        ("entries", c.c_void_p), ("idle_timeout", c.c_uint32),
    ]  # fmt: skip


class ProfileDesc(c.Structure):
    """An action profile of a program, as p4rt.h describes it."""

    _fields_ = [
        ("name", c.c_char_p), ("id", c.c_uint32), ("size", c.c_uint32), ("max_group_size", c.c_uint32),
        ("selector", c.c_uint32),
    ]  # fmt: skip


class CounterDesc(c.Structure):
    """A counter of a program, as p4rt.h describes it."""

    _fields_ = [("name", c.c_char_p), ("id", c.c_uint32), ("size", c.c_uint32), ("kind", c.c_int)]


class RegisterDesc(c.Structure):
    """A register of a program, as p4rt.h describes it."""

    _fields_ = [("name", c.c_char_p), ("id", c.c_uint32), ("size", c.c_uint32), ("bits", c.c_uint32)]


class DigestDesc(c.Structure):
    """A digest of a program, as p4rt.h describes it."""

    _fields_ = [("name", c.c_char_p), ("id", c.c_uint32)]


class TypeDesc(c.Structure):
    """A translated type of a program, as p4rt.h describes it."""

    _fields_ = [("name", c.c_char_p), ("bits", c.c_uint32)]


class MeterDesc(c.Structure):
    """A meter of a program, as p4rt.h describes it."""

    _fields_ = [("name", c.c_char_p), ("id", c.c_uint32), ("size", c.c_uint32), ("bytes", c.c_uint32)]


class MeterCell(c.Structure):
    """struct p4rt_meter_cell."""

    _fields_ = [
        (name, c.c_uint64)
        for name in ("configured", "cir", "cburst", "pir", "pburst", "c_tokens", "p_tokens", "last_us")
    ]


class TraceField(c.Structure):
    """struct p4rt_trace_field."""

    _fields_ = [
        ("name", c.c_char_p), ("standard", c.c_uint32), ("offset", c.c_uint32), ("bytes", c.c_uint32),
        ("bits", c.c_uint32),
    ]  # fmt: skip


class ProgramDesc(c.Structure):
    """struct p4_program."""

    _fields_ = [
        ("abi", c.c_uint32), ("phv_bytes", c.c_uint32), ("name", c.c_char_p),
        ("parse", c.c_void_p), ("ingress", c.c_void_p), ("egress", c.c_void_p), ("deparse", c.c_void_p),
        ("forget", c.c_void_p),
        ("n_actions", c.c_uint32), ("n_tables", c.c_uint32), ("n_profiles", c.c_uint32),
        ("n_counters", c.c_uint32), ("n_registers", c.c_uint32), ("n_digests", c.c_uint32),
        ("n_meters", c.c_uint32),
        ("actions", c.POINTER(ActionDesc)), ("tables", c.POINTER(TableDesc)), ("profiles", c.POINTER(ProfileDesc)),
        ("counters", c.POINTER(CounterDesc)), ("registers", c.POINTER(RegisterDesc)),
        ("digests", c.POINTER(DigestDesc)), ("meters", c.POINTER(MeterDesc)),
        ("n_types", c.c_uint32), ("types", c.POINTER(TypeDesc)), ("trace", c.POINTER(TraceField)),
    ]  # fmt: skip


class Cell(c.Structure):
    """struct p4rt_cell: a counter."""

    _fields_ = [("packets", c.c_uint64), ("bytes", c.c_uint64)]


GIVEN_COUNT, GIVEN_TIMEOUT, GIVEN_HIT = 1, 2, 4


class WriteExtras(c.Structure):
    """struct rt_given: what a write sets beside the action."""

    _fields_ = [("flags", c.c_uint64), ("count", Cell), ("timeout_ns", c.c_uint64), ("hit_us", c.c_uint64)]


class NativeReplica(c.Structure):
    """struct rt_replica."""

    _fields_ = [("port", c.c_uint32), ("rid", c.c_uint32)]


class MemberPlace(c.Structure):
    """struct rt_place: a member in a group."""

    _fields_ = [("member", c.c_uint32), ("weight", c.c_uint32), ("watch_port", c.c_int32)]


class Stats(c.Structure):
    """struct rt_stats."""

    _fields_ = [
        (name, c.c_uint64)
        for name in (
            "received",
            "sent",
            "dropped_ingress",
            "dropped_egress",
            "dropped_no_port",
            "dropped_size",
            "dropped_queue",
            "dropped_no_buffer",
            "dropped_assert",
        )
    ] + [("false_assert", c.c_char_p)]


class DeviceEvent(c.Structure):
    """struct rt_event; `kind` 1: a frame of `len` bytes for the CPU, 2: a port's state."""

    _fields_ = [
        ("kind", c.c_uint32), ("device", c.c_uint32), ("port", c.c_uint32), ("len", c.c_uint32),
        ("up", c.c_uint32), ("admin_up", c.c_uint32), ("ifindex", c.c_uint32), ("padding", c.c_uint32),
        ("at_ns", c.c_uint64), ("interface", c.c_char * 16),
    ]  # fmt: skip


class PortCounts(c.Structure):
    """struct rt_port_counts."""

    _fields_ = [
        ("number", c.c_uint32), ("up", c.c_uint32), ("rx_packets", c.c_uint64), ("rx_bytes", c.c_uint64),
        ("tx_packets", c.c_uint64), ("tx_bytes", c.c_uint64), ("rx_dropped", c.c_uint64),
        ("tx_dropped", c.c_uint64), ("tx_down", c.c_uint64), ("interface", c.c_char * 16),
    ]  # fmt: skip


class WireCounts(c.Structure):
    """struct rt_shared_counts: what an interface's shared wires have carried."""

    _fields_ = [
        *((name, c.c_uint64) for name in ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes")),
        ("interface", c.c_char * 16),
        ("wires", c.c_uint32),
        ("open", c.c_uint32),
    ]


MOST_RANGES = 4
"""RT_RANGES."""


class FrameNumber(c.Structure):
    """struct rt_range: a number in a frame, network order, from `first` to `last`, or `outside` of them."""

    _fields_ = [
        *((name, c.c_uint32) for name in ("at", "bytes", "first", "last")),
        ("outside", c.c_int32),
    ]


class FrameMatch(c.Structure):
    """struct rt_match: frames for which all ranges hold."""

    _fields_ = [("n", c.c_uint32), ("ranges", FrameNumber * MOST_RANGES)]


class EndState(c.Structure):
    """struct rt_end_state: an end of a wire."""

    _fields_ = [
        *((name, c.c_uint32) for name in ("index", "admin_up", "up", "mtu")),
        *(
            (name, c.c_uint64)
            for name in (
                "carrier_changes",
                "rx_packets",
                "tx_packets",
                "rx_bytes",
                "tx_bytes",
                "rx_dropped",
                "tx_dropped",
            )
        ),
        ("name", c.c_char * 16),
        ("far", c.c_char * 16),
    ]


def _words(*names: str) -> list[tuple[str, type]]:
    return [(name, c.c_uint64) for name in names]


PRIORITIES = 8


class NativeQueueSettings(c.Structure):
    """struct rt_queue_settings."""

    _fields_ = _words("rate_bps", "rate_pps", "max_packets", "max_bytes")


class LineSettings(c.Structure):
    """struct rt_line_settings."""

    _fields_ = [
        *_words("delay_ns", "seed"), ("loss_ppm", c.c_uint32), ("corrupt_ppm", c.c_uint32),
        ("loss_pattern", c.c_char_p), ("corrupt_pattern", c.c_char_p), ("restart", c.c_uint32),
        ("padding", c.c_uint32),
    ]  # fmt: skip


class TrafficSettings(c.Structure):
    """struct rt_traffic_settings; lines: in, out."""

    _fields_ = [
        *_words("rate_bps", "rate_pps"),
        ("queues", NativeQueueSettings * PRIORITIES),
        ("lines", LineSettings * 2),
    ]


class QueueCounts(c.Structure):
    """struct rt_queue_state."""

    _fields_ = _words("packets", "bytes", "sent_packets", "sent_bytes", "dropped_packets", "dropped_bytes", "peak")


class LineCounts(c.Structure):
    """struct rt_line_state."""

    _fields_ = _words("held", "lost_packets", "lost_bytes", "corrupted", "dropped_packets", "dropped_bytes")


class TrafficCounts(c.Structure):
    """struct rt_traffic_state."""

    _fields_ = [("queues", QueueCounts * PRIORITIES), ("lines", LineCounts * 2)]


_VIEW = [c.POINTER(c.c_void_p), c.POINTER(c.c_size_t)]
_SIGNATURES = {
    "rt_device_create": (c.c_void_p, c.c_uint32, c.c_uint64),
    "rt_device_load": (c.c_int, c.c_void_p, c.c_char_p, c.c_char_p, c.c_size_t),
    "rt_device_adopt": (None, c.c_void_p, c.c_void_p),
    "rt_device_hold": (None, c.c_void_p),
    "rt_device_release": (None, c.c_void_p),
    "rt_device_unload": (None, c.c_void_p),
    "rt_device_destroy": (None, c.c_void_p),
    "rt_device_program": (c.POINTER(ProgramDesc), c.c_void_p),
    "rt_device_process": (c.c_int, c.c_void_p, c.c_uint32, c.c_char_p, c.c_uint32, c.c_char_p, c.c_size_t),
    "rt_device_spin": (c.c_uint64, c.c_void_p, c.c_uint32, c.c_char_p, c.c_uint32, c.c_uint64),
    "rt_device_inject": (c.c_int, c.c_void_p, c.c_uint32, c.c_char_p, c.c_uint32, c.c_uint64),
    "rt_device_advance": (c.c_int, c.c_void_p, c.c_uint64, *_VIEW),
    "rt_device_due": (c.c_uint64, c.c_void_p),
    "rt_traffic_set": (c.c_int, c.c_void_p, c.c_uint32, c.POINTER(TrafficSettings)),
    "rt_traffic_read": (c.c_int, c.c_void_p, c.c_uint32, c.POINTER(TrafficCounts)),
    "rt_traffic_pool": (None, c.c_void_p, c.c_uint64, c.POINTER(c.c_uint64), c.POINTER(c.c_uint64)),
    "rt_device_port_state": (c.c_int, c.c_void_p, c.c_uint32, c.c_int),
    "rt_device_stats": (None, c.c_void_p, c.POINTER(Stats)),
    "rt_counter_cells": (c.c_int, c.c_void_p, c.c_uint32, c.c_uint32, c.c_uint32, c.POINTER(Cell), c.c_int),
    "rt_register_cells": (c.c_int, c.c_void_p, c.c_uint32, c.c_uint32, c.c_uint32, c.c_char_p, c.c_int),
    "rt_entry_write": (
        c.c_int,
        c.c_void_p,
        c.c_int,
        c.c_uint32,
        c.c_char_p,
        c.c_char_p,
        c.c_int32,
        c.c_int,
        c.c_uint32,
        c.c_char_p,
        c.POINTER(WriteExtras),
    ),
    "rt_default_write": (
        c.c_int,
        c.c_void_p,
        c.c_uint32,
        c.c_int,
        c.c_int,
        c.c_uint32,
        c.c_char_p,
        c.POINTER(WriteExtras),
    ),
    "rt_idle_take": (c.c_int, c.c_void_p, c.POINTER(c.c_uint64), *_VIEW),
    "rt_table_read": (c.c_int, c.c_void_p, c.c_uint32, c.c_char_p, c.c_char_p, c.c_int32, *_VIEW),
    "rt_member_write": (c.c_int, c.c_void_p, c.c_int, c.c_uint32, c.c_uint32, c.c_uint32, c.c_char_p),
    "rt_members_read": (c.c_int, c.c_void_p, c.c_uint32, *_VIEW),
    "rt_group_write": (
        c.c_int,
        c.c_void_p,
        c.c_int,
        c.c_uint32,
        c.c_uint32,
        c.c_uint32,
        c.c_uint32,
        c.POINTER(MemberPlace),
    ),
    "rt_groups_read": (c.c_int, c.c_void_p, c.c_uint32, *_VIEW),
    "rt_device_wake": (None, c.c_void_p, c.c_int),
    "rt_digests_waiting": (c.c_uint32, c.c_void_p),
    "rt_digests_lost": (c.c_uint64, c.c_void_p),
    "rt_digests_take": (c.c_int, c.c_void_p, *_VIEW),
    "rt_trace_start": (c.c_int, c.c_void_p, c.c_char_p, c.c_char_p, c.c_size_t),
    "rt_trace_end": (c.c_int, c.c_void_p, *_VIEW),
    "rt_meter_cells": (c.c_int, c.c_void_p, c.c_uint32, c.c_uint32, c.c_uint32, c.POINTER(MeterCell), c.c_int),
    "rt_entry_meter": (
        c.c_int,
        c.c_void_p,
        c.c_uint32,
        c.c_char_p,
        c.c_char_p,
        c.c_int32,
        c.POINTER(MeterCell),
        c.c_int,
    ),
    "rt_replication_write": (
        c.c_int,
        c.c_void_p,
        c.c_int,
        c.c_uint32,
        c.c_uint32,
        c.c_uint32,
        c.c_uint32,
        c.c_int,
        c.c_uint32,
        c.POINTER(NativeReplica),
    ),
    "rt_free": (None, c.c_void_p),
    "rt_loop_create": (c.c_void_p, c.c_uint32, c.c_uint32, c.c_char_p, c.c_size_t),
    "rt_loop_start": (c.c_int, c.c_void_p),
    "rt_loop_stop": (None, c.c_void_p),
    "rt_loop_destroy": (None, c.c_void_p),
    "rt_loop_fd": (c.c_int, c.c_void_p),
    "rt_loop_frames_lost": (c.c_uint64, c.c_void_p),
    "rt_loop_events": (c.c_int, c.c_void_p, *_VIEW),
    "rt_loop_late": (None, c.c_void_p, c.POINTER(c.c_uint64)),
    "rt_loop_look": (None, c.c_void_p, c.c_void_p),
    "rt_loop_inject": (c.c_int, c.c_void_p, c.c_void_p, c.c_uint32, c.c_char_p, c.c_uint32),
    "rt_loop_detach": (None, c.c_void_p, c.c_void_p),
    "rt_port_add": (c.c_int, c.c_void_p, c.c_void_p, c.c_uint32, c.c_char_p, c.c_char_p, c.c_size_t),
    "rt_port_remove": (c.c_int, c.c_void_p, c.c_void_p, c.c_uint32),
    "rt_port_send": (c.c_int, c.c_void_p, c.c_void_p, c.c_uint32, c.c_char_p, c.c_uint32),
    "rt_ports_read": (c.c_int, c.c_void_p, c.c_void_p, *_VIEW),
    "rt_wire_add": (c.c_int, c.c_void_p, c.c_char_p, c.c_char_p, c.c_uint32),
    "rt_wire_remove": (c.c_int, c.c_void_p, c.c_char_p),
    "rt_wire_set": (c.c_int, c.c_void_p, c.c_char_p, c.c_int),
    "rt_wires_read": (c.c_int, c.c_void_p, *_VIEW),
    "rt_wire_tap": (c.c_int, c.c_void_p, c.c_char_p, c.c_int, c.c_uint32),
    "rt_wire_untap": (c.c_int, c.c_void_p, c.c_int, c.POINTER(c.c_uint64)),
    "rt_shared_read": (c.c_int, c.c_void_p, *_VIEW),
    "rt_shared_add": (c.c_int, c.c_void_p, c.c_char_p, c.c_int, c.c_uint32, c.POINTER(FrameMatch)),
}


def build_runtime(flags: tuple[str, ...] = ()) -> Path:
    """The runtime as a shared object, from the cache or compiled now. Raises BuildError."""
    sources = [RUNTIME_DIR / name for name in SOURCES]
    with _building:
        return build_shared(sources, [RUNTIME_DIR, SYSTEM_DIR], ("-pthread", *flags, "-ldl"), tag="p4runtime")


_building = threading.Lock()
"""Lock held while the runtime is compiled.

A caller that needs the runtime waits here for a build of `build_ahead`.
"""


def build_ahead() -> None:
    """Compile the runtime in a thread, if the cache lacks it, while the caller compiles a program.

    An error is reported when the runtime is loaded.
    """

    def build() -> None:
        with contextlib.suppress(BuildError):
            build_runtime()

    threading.Thread(target=build, name="build runtime").start()


@lru_cache(maxsize=1)
def runtime() -> c.CDLL:
    """The runtime, loaded into this process with its functions declared. Raises BuildError."""
    library = c.CDLL(str(build_runtime()))
    for name, (result, *arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


def take_block(read: Callable[..., int], *arguments: object) -> tuple[int, bytes]:
    """Call a `..._read` function: (its result, the block it made), the block freed."""
    block, size = c.c_void_p(), c.c_size_t()
    count = read(*arguments, c.byref(block), c.byref(size))
    if count < 0:
        return count, b""
    try:
        return count, c.string_at(block, size.value)
    finally:
        runtime().rt_free(block)
