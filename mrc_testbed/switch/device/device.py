r"""One P4 device: a loaded program with its tables, and an in-memory door to push packets through it.

    device = P4Device(1, "p0-t0-0")
    device.load(compile_program("p4src/srv6.p4"))
    match = FieldMatch.exact(1, b"\x23\x01")
    device.insert(TableEntry(table_id, (match,), ActionCall(action_id, ((1, b"\x07"),))))
    assert device.process(1, frame) == [(7, other_frame)]

All state lives in the C runtime (switch/runtime); this class checks what callers ask against the program's P4Info
and translates. Tables, action profiles, arrays and replication are objects of their own over one DeviceState; the
device has their operations as its own. Every method may be called from any thread while the event loop
(switch.device.loop) forwards packets: each takes the device's lock, which the loop gives up at the latest after one
batch of frames. An operation is done whole or not at all.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mrc_testbed.switch.device import native
from mrc_testbed.switch.device.action_profiles import ActionProfiles
from mrc_testbed.switch.device.arrays import Arrays
from mrc_testbed.switch.device.entities import DeviceStats, Digest, TableError
from mrc_testbed.switch.device.native_device import NativeDevice
from mrc_testbed.switch.device.port_numbers import DROP_PORT
from mrc_testbed.switch.device.replication import Replication
from mrc_testbed.switch.device.schema import Schema
from mrc_testbed.switch.device.state import DeviceState
from mrc_testbed.switch.device.tables import DeviceTables
from mrc_testbed.switch.device.trace import PacketTrace, take_trace
from mrc_testbed.switch.device.traffic import DeviceTraffic

if TYPE_CHECKING:
    from finsy.proto import p4i

PROCESS_ROOM = 1 << 20
"""Bytes that `process` may give back for one packet, with its copies."""

_COLLECTED_HEAD = struct.Struct("=QII")  # struct rt_collected_head
_DIGEST_HEAD = struct.Struct("=IIQ")  # struct rt_digest_head


class LoadableProgram(Protocol):
    """Compiled program as `load` uses it; mrc_testbed.switch.compiler.CompiledProgram is one."""

    @property
    def name(self) -> str: ...

    @property
    def library(self) -> Path: ...

    @property
    def p4info(self) -> p4i.P4Info: ...


class DeviceLoop(Protocol):
    """Event loop as an attached device uses it; mrc_testbed.switch.device.loop.EventLoop is one."""

    def detach(self, device: P4Device) -> None: ...

    def notice_settings(self, device: P4Device) -> None: ...


class P4Device:
    """A device without a program drops everything; `load` gives it one, with empty tables.

    `device_id` is P4Runtime's, `name` appears in messages. `seed` makes the program's random() repeatable.
    """

    def __init__(self, device_id: int, name: str = "", *, seed: int = 0) -> None:
        self.device_id = device_id
        self._native = NativeDevice(device_id, name or f"device {device_id}", seed)
        self._state = DeviceState(self._native)
        self._lib, self._lock = self._native.lib, self._native.lock
        self._program: LoadableProgram | None = None
        self._offer_operations()
        self._out = threading.local()
        self.ports_lock = threading.Lock()
        """The event loop takes this lock while it opens or closes ports of this device."""
        self.loop: DeviceLoop | None = None
        """The event loop that the device is attached to, which sets this; None: not attached."""
        self.virtual = False
        """The clock is virtual; the device can no longer be attached to an event loop."""
        self.traffic = DeviceTraffic(self._native, self._notify_loop)
        """Rates, queues and cables of its ports."""

    def _offer_operations(self) -> None:
        """Make the parts, and their operations ours."""
        state = self._state
        self.packets_paused, self.transaction, self.on_undo = state.packets_paused, state.transaction, state.on_undo
        self._profiles = profiles = ActionProfiles(state)
        self.insert_member, self.modify_member = profiles.insert_member, profiles.modify_member
        self.delete_member, self.read_members = profiles.delete_member, profiles.read_members
        self.insert_group, self.modify_group = profiles.insert_group, profiles.modify_group
        self.delete_group, self.read_groups = profiles.delete_group, profiles.read_groups
        self._arrays = arrays = Arrays(state)
        self.read_counter, self.write_counter = arrays.read_counter, arrays.write_counter
        self.count_packets = arrays.count_packets
        self.read_meter, self.write_meter = arrays.read_meter, arrays.write_meter
        self.read_direct_meter, self.write_direct_meter = arrays.read_direct_meter, arrays.write_direct_meter
        self.read_register, self.write_register = arrays.read_register, arrays.write_register
        self._replication = replication = Replication(state)
        self.insert_replication = replication.insert_replication
        self.modify_replication = replication.modify_replication
        self.delete_replication = replication.delete_replication
        self.read_multicast, self.read_sessions = replication.read_multicast, replication.read_sessions
        # Tables come last: their entries refer to members of profiles and to counters and meters of arrays.
        self._tables = tables = DeviceTables(state, profiles, arrays)
        self.insert, self.modify, self.delete = tables.insert, tables.modify, tables.delete
        self.prepare, self.read, self.read_one, self.take_idle = (
            tables.prepare,
            tables.read,
            tables.read_one,
            tables.take_idle,
        )
        self.write_value_set, self.read_value_set = tables.write_value_set, tables.read_value_set

    @property
    def name(self) -> str:
        """Name of the device, for messages."""
        return self._native.name

    @property
    def schema(self) -> Schema:
        """Tables, actions, profiles of the loaded program by id. Raises TableError FAILED_PRECONDITION."""
        return self._state.schema

    @property
    def handle(self) -> int:
        """struct rt_device *, for the event loop. Raises ValueError once it is closed."""
        return self._native.handle

    def _notify_loop(self) -> None:
        """Notify the event loop of changed settings: its next work may be due sooner."""
        if self.loop is not None:
            self.loop.notice_settings(self)

    # ---- program ----------------------------------------------------------------------------------------------

    def load(self, program: LoadableProgram) -> None:
        """Run `program` (anything with .name, .library and .p4info) from now on, all state as it begins.

        Raises TableError INVALID_ARGUMENT when library and P4Info disagree or the library cannot be opened; the
        previous program stays in place then.
        """
        with self._lock:
            trial = NativeDevice(0, self.name, 0)
            try:
                self._load_into(trial.handle, program)
                schema = Schema(program.p4info, self._lib.rt_device_program(trial.handle).contents)
            finally:
                trial.close()
            self._load_into(self.handle, program)
            self._now_runs(program, schema)

    def adopt(self, source: P4Device) -> None:
        """Take the program of `source` with all its state over, between two packets; `source` is empty then.

        Raises TableError FAILED_PRECONDITION when it has no program.
        """
        with self._lock, source._lock:
            schema = source.schema
            self._lib.rt_device_adopt(self.handle, source.handle)
            self._program, self._state.program_schema = source._program, schema
            self._replication.take_over(source._replication)
            self._tables.take_over(source._tables)
            source._now_runs(None, None)

    def _now_runs(self, program: LoadableProgram | None, schema: Schema | None) -> None:
        """Another program, or none: nothing is known of entries."""
        self._program, self._state.program_schema = program, schema
        self._replication.forget()
        self._tables.forget()

    def _load_into(self, handle: int, program: LoadableProgram) -> None:
        reason_buffer = ctypes.create_string_buffer(512)
        if self._lib.rt_device_load(handle, str(program.library).encode(), reason_buffer, len(reason_buffer)):
            reason = reason_buffer.value.decode(errors="replace")
            raise TableError("INVALID_ARGUMENT", f"{self.name}: cannot load {program.name}: {reason}")

    def unload(self) -> None:
        """Forget program and state: what a switch without power remembers."""
        with self._lock:
            self._now_runs(None, None)
            self._lib.rt_device_unload(self.handle)

    def close(self) -> None:
        """Detach from the event loop and free everything; the object is dead after it. May be called twice."""
        if self.loop is not None:
            self.loop.detach(self)
        with self._lock:
            self._now_runs(None, None)
            self._native.close()

    @property
    def program(self) -> LoadableProgram | None:
        """The loaded program, or None."""
        return self._program

    # ---- packets ----------------------------------------------------------------------------------------------

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Push one frame in at `port`; the (port, frame) pairs that come out, in order.

        At once and past the traffic manager: no queue, no cable, whatever is set (`inject` has those). Frames to the
        CPU port come out as port 510 like any other. Raises ValueError for a port beyond 0..510.
        """
        _check_port(port)
        out = getattr(self._out, "buffer", None)
        if out is None:
            out = self._out.buffer = ctypes.create_string_buffer(PROCESS_ROOM)
        written_bytes = self._lib.rt_device_process(self.handle, port, bytes(frame), len(frame), out, PROCESS_ROOM)
        if written_bytes == native.NO_ROOM:
            raise ValueError(f"{self.name}: the copies of a packet take more than {PROCESS_ROOM} bytes: use inject")
        frames, offset, base = [], 0, ctypes.addressof(out)
        while offset < written_bytes:
            out_port, length = struct.unpack_from("=II", out, offset)
            frames.append((out_port, ctypes.string_at(base + offset + 8, length)))
            offset += 8 + length
        return frames

    def inject(self, port: int, frame: bytes, now_ns: int) -> None:
        """Deliver a frame to `port` at `now_ns` of the virtual clock; `advance` returns the output.

        The first call of either begins the device's virtual time at 0; all its timestamps are of that clock then.
        Raises ValueError when the clock is past `now_ns`, or an event loop moves the device.
        """
        _check_port(port)
        self._check_clock(now_ns)
        error = self._lib.rt_device_inject(self.handle, port, bytes(frame), len(frame), now_ns)
        self._check_time(error, now_ns)

    def advance(self, now_ns: int) -> list[tuple[int, int, bytes]]:
        """Let virtual time pass until `now_ns`; return (time in ns, port, frame) of each frame sent since."""
        self._check_clock(now_ns)
        count, block = native.take_block(self._lib.rt_device_advance, self.handle, now_ns)
        self._check_time(min(count, 0), now_ns)
        out: list[tuple[int, int, bytes]] = []
        offset = 0
        for _ in range(count):
            at_ns, port, length = _COLLECTED_HEAD.unpack_from(block, offset)
            offset += _COLLECTED_HEAD.size
            out.append((at_ns, port, block[offset : offset + length]))
            offset += length
        return out

    @property
    def next_ns(self) -> int | None:
        """Time of the next work of `advance`; None: nothing waits."""
        due: int = self._lib.rt_device_due(self.handle)
        return None if due == native.NEVER_DUE else due

    def _check_clock(self, now_ns: int) -> None:
        if self.loop is not None:
            raise ValueError(f"{self.name}: an event loop moves it; a virtual clock is for a device in memory")
        if not 0 <= now_ns < native.NEVER_DUE:
            raise ValueError(f"{self.name}: {now_ns} ns is no time (want 0 to 2**64 - 2)")
        self.virtual = True

    def _check_time(self, error: int, now_ns: int) -> None:
        if error == native.INVALID:
            raise ValueError(f"{self.name}: {now_ns} ns is before what has happened already")
        if error == native.NO_MEMORY:
            raise MemoryError(f"{self.name}: out of memory")

    def trace(self, port: int, frame: bytes) -> PacketTrace:
        """Run `process` and return each step of the packet's way; not for a device of an event loop.

        Raises TableError FAILED_PRECONDITION, ValueError as `process`.
        """
        if self._program is None:
            raise TableError("FAILED_PRECONDITION", f"{self.name}: no program is loaded")
        if self.loop is not None:
            raise TableError("FAILED_PRECONDITION", f"{self.name}: trace a device in memory, not one of an event loop")
        return take_trace(self._native, self._program, self.schema, port, frame, self.process, self.stats)

    def spin(self, port: int, frame: bytes, count: int) -> int:
        """Push a frame through the program `count` times, drop the output; return nanoseconds of CPU."""
        return int(self._lib.rt_device_spin(self.handle, port, bytes(frame), len(frame), count))

    def set_port_up(self, port: int, is_up: bool) -> None:
        """Set a port's state; selector members that watch the port are left out at once while it is down.

        All ports count as up at first. The event loop calls this by itself for the ports it owns.
        """
        _check_port(port)
        self._lib.rt_device_port_state(self.handle, port, bool(is_up))

    def stats(self) -> DeviceStats:
        """Frame counts since load."""
        raw = native.Stats()
        self._lib.rt_device_stats(self.handle, ctypes.byref(raw))
        return DeviceStats(*(getattr(raw, field[0]) for field in native.Stats._fields_))

    # ---- digests ----------------------------------------------------------------------------------------------

    def digests(self) -> list[Digest]:
        """Return digests sent since the last call, oldest first; at most 256 KiB wait, later ones are lost.

        An attached event loop's descriptor becomes readable when there are any.
        """
        with self._lock:
            if not self.digests_waiting or self._state.program_schema is None:
                return []
            count, block = native.take_block(self._lib.rt_digests_take, self.handle)
            ids = self._state.program_schema.digest_ids
        digests: list[Digest] = []
        offset = 0
        for _ in range(count):
            index, size, at_us = _DIGEST_HEAD.unpack_from(block, offset)
            offset += _DIGEST_HEAD.size
            digests.append(Digest(ids[index], block[offset : offset + size], at_us))
            offset += size
        return digests

    @property
    def digests_waiting(self) -> int:
        """Number of digests that digests() would return."""
        return int(self._lib.rt_digests_waiting(self.handle))

    @property
    def digests_lost(self) -> int:
        """Digests that found the buffer full, since load."""
        return int(self._lib.rt_digests_lost(self.handle))

    def __repr__(self) -> str:
        program = self._program.name if self._program else "no program"
        return f"<Device {self.device_id} {self.name}: {program}>"


def _check_port(port: int) -> None:
    if not 0 <= port < DROP_PORT:
        raise ValueError(f"port {port} is not in 0..{DROP_PORT - 1}")
