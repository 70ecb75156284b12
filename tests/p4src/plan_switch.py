"""A switch of a plan in memory.

With the entries that the controller would write, and the frames that its hosts would send.
"""

from __future__ import annotations

from functools import cache

from finsy import P4Schema
from finsy.proto import p4r

from mrc_testbed.controller.p4runtime.entries import Catalog, NamedEntry, compare, updates_for
from mrc_testbed.controller.p4runtime.qos import DEFAULT, Discipline, discipline_entries
from mrc_testbed.controller.p4runtime.routes import PROGRAMS
from mrc_testbed.hosts.engine.wire.codec import Addressing, Codec
from mrc_testbed.hosts.engine.wire.packets import Opcode, Sack, Write
from mrc_testbed.hosts.nic.encapsulation import Decapsulation, Encapsulation
from mrc_testbed.switch.compiler import CompiledProgram, compile_program
from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.server.p4runtime.translate import group_in, member_in, table_entry_in
from mrc_testbed.topologies.plan import Plan
from tests.repository import P4SRC

NO_TRIM, TRIMMABLE, TRIMMABLE_RETX, TRIMMED, TRIMMED_LASTHOP, CONTROL = 0, 4, 8, 12, 16, 46
ECT0, CE = 2, 3
NOT_TRIMMABLE, QUEUE, DEAD_NEXT_HOP, BAD_SRH = 8, 9, 10, 12
MS = 1_000_000
"""Nanoseconds of the virtual clock."""
SECOND = 1000 * MS


@cache
def compiled_program(program: str) -> CompiledProgram:
    return compile_program(P4SRC / f"{program}.p4")


@cache
def catalog(program: str) -> Catalog:
    return Catalog(P4Schema(compiled_program(program).p4info, b"config"))


class PlannedSwitch:
    """Use its `device` for packets; counters and registers go by their names here."""

    def __init__(self, plan: Plan, name: str, want: Discipline | None = DEFAULT, *, seed: int = 1) -> None:
        program = compiled_program(plan.mode.program)
        self.info = program.p4info
        self.catalog = catalog(plan.mode.program)
        self.device = P4Device(1, name, seed=seed)
        self.device.load(program)
        entries = PROGRAMS[plan.mode.program].entries(plan, plan.switch(name), self.catalog)
        if want is not None:
            entries += discipline_entries(plan, plan.switch(name), self.catalog, want)
        for update in updates_for(compare(entries, [])):
            self._apply(update)

    def write(self, entry: NamedEntry, *, replace: bool = False) -> None:
        kind = p4r.Update.MODIFY if replace or entry.is_default else p4r.Update.INSERT
        self._apply(p4r.Update(type=kind, entity=entry.entity))

    def _apply(self, update: p4r.Update) -> None:
        device, is_new = self.device, update.type == p4r.Update.INSERT
        match update.entity.WhichOneof("entity"):
            case "table_entry":
                (device.insert if is_new else device.modify)(table_entry_in(update.entity.table_entry))
            case "action_profile_member":
                device.insert_member(member_in(update.entity.action_profile_member))
            case "action_profile_group":
                device.insert_group(group_in(update.entity.action_profile_group))

    def _id(self, name: str) -> int:
        arrays = (*self.info.counters, *self.info.registers)
        return next(array.preamble.id for array in arrays if array.preamble.alias == name)

    def counts(self, counter: str) -> dict[int, int]:
        """Return the packets of the cells that are not 0, by index."""
        cells = self.device.read_counter(self._id(counter))
        return {index: data.packets for index, data in cells if data.packets}

    def drops(self) -> dict[tuple[int, int], int]:
        """Return the dropped packets by (reason, port)."""
        return {divmod(index, 512): packets for index, packets in self.counts("drops").items()}

    def depth(self, port: int) -> int:
        return self.device.read_register(self._id("queue_depth"), port)[0][1]

    def set_depth(self, port: int, packets: int) -> None:
        self.device.write_register(self._id("queue_depth"), port, packets)

    def slow_down(self, port: int, pps: int) -> None:
        """Let one frame leave the port each 1/pps seconds, of whatever priority and size."""
        traffic = self.device.traffic.get(port)
        self.device.traffic.set(port, type(traffic)(rate_pps=pps))

    def offer(self, port: int, frames: list[bytes], *, start_ns: int, gap_ns: int) -> int:
        """Inject frames at equal intervals; return the time of the next one."""
        for number, frame in enumerate(frames):
            self.device.inject(port, frame, start_ns + number * gap_ns)
        return start_ns + len(frames) * gap_ns


class Conversation:
    """Packets that host `a` sends to host `b` with one EV, and how `b` reads it."""

    def __init__(self, plan: Plan, a: str, b: str, ev: int = 0, plane: int = 0) -> None:
        self.plan, self.ev, self.plane = plan, ev, plane
        self.source, self.destination = plan.host(a), plan.host(b)
        self.codec = Codec()
        self._envelope = Encapsulation(plan, self.source, self.destination, plane)

    def data(
        self,
        psn: int = 0,
        *,
        dscp: int = TRIMMABLE,
        ecn: int = ECT0,
        payload: int = 1024,
        stamp: bool = True,
        rtx: bool = False,
    ) -> bytes:
        """Return a full write packet. `stamp`: with a TSETH."""
        record = Write(
            7,
            self.ev,
            self.plane,
            dscp,
            ecn,
            Opcode.WRITE_ONLY,
            psn,
            1,
            0x1000,
            0x77,
            payload,
            bytes(payload),
            0,
            timestamp=psn & 0xFFFF if stamp else None,
            rtx=rtx,
        )
        return self._frame(record)

    def sack(self, psn: int = 0) -> bytes:
        return self._frame(Sack(7, self.ev, self.plane, CONTROL, 0, psn, 1, 0, 0, None, self.ev, 0, 0, 0))

    def _frame(self, record: Write | Sack) -> bytes:
        inner = self.codec.encode(record, self._envelope.addressing).join()
        return self._envelope.outer(self.ev, inner[:4], len(inner)) + inner

    def ipv4_inside(self, payload: int = 1024) -> bytes:
        """Return a write whose inner header is IPv4, in an outer one."""
        record = Write(
            7,
            self.ev,
            self.plane,
            TRIMMABLE,
            ECT0,
            Opcode.WRITE_ONLY,
            5,
            1,
            0x1000,
            0x77,
            payload,
            bytes(payload),
            0,
            timestamp=5,
        )
        inner = self.codec.encode(record, Addressing(bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2)))).join()
        word = (6 << 28 | (TRIMMABLE << 2 | ECT0) << 20).to_bytes(4, "big")
        outer = bytearray(self._envelope.outer(self.ev, word, len(inner)))
        outer[20] = 4
        return bytes(outer) + inner

    def received(self, frame: bytes) -> Write | Sack:
        """Return the packet that the destination's NIC reads from a frame. Raises WireError."""
        host, record = Decapsulation(self.plan, self.destination, self.plane, self.codec).open(frame)
        assert host == self.source.name
        return record


def dscp_of(frame: bytes) -> int:
    """Return the DSCP of the first IPv6 header."""
    return traffic_class(frame) >> 2


def ecn_of(frame: bytes) -> int:
    return traffic_class(frame) & 3


def traffic_class(frame: bytes) -> int:
    return (frame[14] << 8 | frame[15]) >> 4 & 0xFF
