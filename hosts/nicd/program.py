"""One program that loaded libmrc: its objects, its requests, its rings.

A program reaches nothing but its own objects: it names them by numbers, which are looked up in tables of its own. What
the library would never write (RingError, MessageError) ends the program's connection, and with it its objects.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import logging
import mmap
import os
import resource
import socket
import zlib
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import count, islice
from struct import Struct
from typing import Any, Final, TypeAlias

from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.nicd import messages
from mrc_testbed.hosts.nicd.control import ProgramControl
from mrc_testbed.hosts.nicd.guests import Caller
from mrc_testbed.hosts.nicd.layout import (
    COMPLETION,
    DEVICE_VALUES,
    EV_EVENT,
    EVENT,
    KIND_ARM,
    KIND_RECV,
    KIND_SEND,
    MAX_INLINE,
    MAX_SGE,
    MAX_VALUES,
    PAGES_BYTES,
    QP_VALUES,
    SGE,
    SQ_BYTES,
    SQ_SLOTS,
    STATUS_VALUES,
    VERSION,
    RingRecord,
    gid_halves,
    gid_text,
    numbers_of,
)
from mrc_testbed.hosts.nicd.messages import ForeignFileError, MessageError, ProgramRequest, Reply
from mrc_testbed.hosts.nicd.rings import CompletionRing, RingError, SubmissionRing
from mrc_testbed.hosts.verbs.attributes import AddressVector, MrcQpAttr, QpAttr, QpCap, QpInitAttr
from mrc_testbed.hosts.verbs.context import AsyncEvent, DeviceContext
from mrc_testbed.hosts.verbs.cq import CompletionChannel, CompletionQueue, WorkCompletion
from mrc_testbed.hosts.verbs.device import Device
from mrc_testbed.hosts.verbs.enums import (
    EventType,
    MrcQpAttrMask,
    QpAttrMask,
    QpState,
    QpType,
    SendFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from mrc_testbed.hosts.verbs.errors import VerbsError
from mrc_testbed.hosts.verbs.ev_events import EvEventCq
from mrc_testbed.hosts.verbs.memory import MemoryRegion, ProtectionDomain
from mrc_testbed.hosts.verbs.qp import QueuePair, RecvWR

MAX_QPS: Final = 1024
"""QPs of one process of the host, however often it opened the device; so for the other limits."""
MAX_OBJECTS: Final = 4096
"""Regions, CQs and channels of a process: each holds a descriptor of this one, a channel two.

Protection domains too have this limit."""
MAX_CONTEXTS: Final = 64
"""Times that a process may have the device open at once."""
SHARES: Final = 16
"""Processes for which the descriptors of this one suffice in any case."""
MAX_REQUESTS: Final = 1 << 20
"""Requests for which the QPs of a process may ask; each that waits takes some hundred bytes here."""
MAX_ENTRIES: Final = 1 << 20
"""Entries of all CQs of a process: each takes a slot of a ring, and more while it waits."""
MAX_MAPPED_BYTES: Final = 1 << 40
"""Addresses of this process that regions of a program, or of a guest, may take: it has 2**47 for all."""
MAX_COPIED_BYTES: Final = 1 << 30
"""Bytes of unfinished requests with several elements, of a program or guest: these are copied."""
MAX_CQ_ENTRIES: Final = 1 << 16
TURN_RECORDS: Final = 256
"""Requests taken from one program's ring in a turn, so that no program keeps the others waiting.

All of its receives come on top: a peer may use them in the same turn."""
TURN_REQUESTS: Final = 16
"""Requests answered on one program's socket in a turn, for the same reason."""
GUID_BASE: Final = 0x4D52_4300_0000_0000
"""Upper half of a device's GUID; its host's name gives the lower one."""
_OPERATIONS: Final = {number: name.lower() for name, number in numbers_of("OP_").items()}
_QP: Final = numbers_of("QP_")
_STATUS: Final = [name for name in numbers_of("STATUS_") if name != "VALUES"]
"""Names of the values of a program in a reply to STATUS, in their order."""
_PAGE: Final = mmap.PAGESIZE
log = logging.getLogger("mrc_testbed.hosts.nicd")


@dataclass
class _Queue:
    """Requests of one direction of a QP that are not over: the program's numbers, oldest first."""

    limit: int
    """Requests that the queue holds; the library refuses more."""
    retired_count: int = 0
    """Number of requests that are over; the serial of the oldest in `numbers`."""
    numbers: deque[int] = field(default_factory=deque)
    copies: deque[tuple[int, int]] = field(default_factory=deque)
    """Serial and bytes of each request that was copied."""
    copied_bytes: int = 0

    def add(self, serial: int, wr_id: int) -> None:
        """Add a request. Raises RingError where the program's count of requests is not ours."""
        if serial != self.retired_count + len(self.numbers):
            raise RingError(f"request {serial} of a queue, after {self.retired_count + len(self.numbers)}")
        if len(self.numbers) >= self.limit:
            raise RingError(f"more than {self.limit} requests in a queue")
        self.numbers.append(wr_id)

    def finish(self, serial: int) -> int:
        """Take out the requests up to one, and return its number.

        Those before gave no completion of their own.
        """
        for _ in range(self.retired_count, serial):
            self.numbers.popleft()
        self.retired_count = serial + 1
        while self.copies and self.copies[0][0] <= serial:
            self.copied_bytes -= self.copies.popleft()[1]
        return self.numbers.popleft()

    def note_copy(self, serial: int, length: int) -> None:
        """Count the bytes of a request that is copied."""
        self.copies.append((serial, length))
        self.copied_bytes += length

    def reset(self) -> None:
        self.retired_count = self.copied_bytes = 0
        self.numbers.clear()
        self.copies.clear()


@dataclass
class _ProgramQp:
    qp: QueuePair
    send: _Queue
    recv: _Queue


_AnyCq: TypeAlias = CompletionQueue | EvEventCq


@dataclass
class _ProgramCq:
    cq: _AnyCq
    ring: CompletionRing
    number: int
    channel: _Channel | None


@dataclass
class _Channel:
    channel: CompletionChannel
    events: socket.socket
    """Our end of the socket from which the program reads events."""


class VerbsProgram:
    """See the module. `on_end` is called once, when the program has ended or was ended."""

    def __init__(
        self,
        device: Device,
        connection: socket.socket,
        caller: Caller,
        number: int,
        programs: Mapping[int, VerbsProgram],
        on_end: Callable[[VerbsProgram], None],
    ) -> None:
        self._device, self.socket, self.caller, self.number = device, connection, caller, number
        self._on_end = on_end
        self._programs = programs
        """All programs of the host, this one included."""
        self._old_packets: Counter[str] = Counter()
        """Packets of QPs that are destroyed, by the names of STATUS."""
        self.ring: SubmissionRing | None = None
        self.doorbell: socket.socket | None = None
        """Our end of a socket: an eventfd would be one file for both, and the program could let us wait at it."""
        self._pages = -1
        self._async: socket.socket | None = None
        self.has_sent_files = False
        """Whether it was ended for files that are no memory."""
        self._numbers = count(1)
        self._pds: dict[int, ProtectionDomain] = {}
        self._regions: dict[int, MemoryRegion] = {}
        self._mapped_bytes: dict[int, int] = {}
        """Bytes of the pages of each region."""
        self._channels: dict[int, _Channel] = {}
        self._cqs: dict[int, _ProgramCq] = {}
        self._qps: dict[int, _ProgramQp] = {}
        self._control = ProgramControl(device)

    # ---- requests -------------------------------------------------------------------------------------------

    def on_readable(self) -> None:
        """Answer the requests that have come; end the program when it has ended, or is none of ours."""
        try:
            for _ in range(TURN_REQUESTS):
                try:
                    request = messages.receive(self.socket)
                except BlockingIOError:
                    return
                if request is None:
                    self.end("")
                    return
                self._reply_to(request)
        except BlockingIOError:
            self.end("it does not read its replies")
        except (MessageError, RingError, OSError) as error:
            self.has_sent_files = isinstance(error, ForeignFileError)
            self.end(str(error))

    def on_doorbell(self) -> None:
        """Take what the program wrote to wake us; end it when it has closed its end."""
        if self.doorbell is None:
            return
        try:
            is_open = bool(self.doorbell.recv(4096))
        except BlockingIOError:
            return
        except ConnectionError:
            is_open = False
        if not is_open:
            self.on_readable()  # as a rule it has ended
            self.end("it closed its doorbell")

    def _reply_to(self, request: ProgramRequest) -> None:
        """Answer a request, after what the program had posted before.

        A move to RESET ends these, not later ones.
        """
        try:
            for _ in range(-(-SQ_SLOTS // TURN_RECORDS)):
                if not self._take_records():
                    break
            reply = self._answer(request)
        finally:
            messages.close_all(request.fds)
        try:
            messages.send(self.socket, reply)
        finally:
            messages.close_all(reply.sent_fds)

    def _answer(self, request: ProgramRequest) -> Reply:
        name = _OPERATIONS.get(request.operation)
        if name is None or (name != "status" and (self.ring is None) != (name == "hello")):
            raise MessageError(f"operation {request.operation} out of turn")
        owner = self._control if name.startswith("ctl_") else self
        handler: Callable[..., Reply] = getattr(owner, name.removeprefix("ctl_") if owner is not self else f"_{name}")
        try:
            return handler(*request.values, **({"fds": request.fds} if name == "hello" else {}))
        except VerbsError as error:
            return Reply(errno=error.errno, text=str(error))
        except LocalError as error:
            return Reply(errno=errno.EINVAL, text=str(error))
        except OSError as error:  # this process has no descriptors or memory left
            if name == "hello":
                raise
            log.warning("program %d: %s: %s", self.number, name, error)
            return Reply(errno=error.errno or errno.ENOMEM, text=f"{name}: the NIC process: {error.strerror}")
        except TypeError as error:  # the number of values is not the operation's
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:  # it was raised inside it
                raise
            raise MessageError(f"{name}: {error}") from None

    def _hello(self, version: int, *, fds: list[int]) -> Reply:
        if version != VERSION:
            raise VerbsError(
                f"libmrc of version {version}, this NIC process has {VERSION}: run `mrc exec` anew", errno.EPROTO
            )
        if len(fds) != 1:
            raise MessageError(f"hello with {len(fds)} descriptors")
        self._require_share("open devices", lambda program: program.ring is not None, MAX_CONTEXTS)
        _check_pages(fds[0])
        self._pages = os.dup(fds[0])
        self.ring = SubmissionRing()
        self.doorbell, doorbell_fd = messages.event_socket(socket.SOCK_STREAM)
        self._async, events_fd = messages.event_socket()
        fds = [self.ring.memfd.fd, doorbell_fd, events_fd]
        return Reply([SQ_BYTES, SQ_SLOTS, self._device.driver.planes], fds, [doorbell_fd, events_fd])

    def _sharers(self) -> list[VerbsProgram]:
        """Return the programs that have one share of this process: all of a guest, or all of a process.

        The kernel has no pid for a process outside our pid namespace: each such program counts as a process.
        """
        caller = self.caller
        programs = [program for program in self._programs.values() if program.caller.user == caller.user]
        if caller.is_guest:
            return programs
        return [program for program in programs if program.caller.pid == caller.pid] if caller.pid else [self]

    def _sharer_text(self) -> str:
        return f"user {self.caller.user}" if self.caller.is_guest else "a process"

    def _require_share(self, noun: str, count: Callable[[VerbsProgram], int], limit: int, increase: int = 1) -> None:
        """Check that a process or guest leaves others their share. Raises VerbsError (ENOMEM).

        `count`: what one program has of it.
        """
        if sum(map(count, self._sharers())) + increase > limit:
            raise VerbsError(f"{self._sharer_text()} may have {limit} {noun}", errno.ENOMEM)

    def _require_descriptor(self) -> None:
        """Check the process's share of descriptors. Raises VerbsError (ENOMEM)."""
        self._require_share(
            "regions, CQs and (counted twice) channels",
            lambda program: len(program._regions) + len(program._cqs) + 2 * len(program._channels),
            descriptor_limit(),
        )

    def _require_memory(self, length: int) -> None:
        """Check that the program may register so many bytes of pages more. Raises VerbsError (ENOMEM)."""
        sharers, limit = self._sharers(), self.caller.locked_limit
        if length + sum(sum(program._mapped_bytes.values()) for program in sharers) > MAX_MAPPED_BYTES:
            raise VerbsError(f"reg_mr: {self._sharer_text()} may register {MAX_MAPPED_BYTES >> 30} GiB", errno.ENOMEM)
        if limit is None:
            return
        # A process may have opened the device several times; the limit is the process's.
        programs = [program for program in sharers if program.caller.pid == self.caller.pid]
        locked_bytes = sum(sum(program._mapped_bytes.values()) for program in programs)
        if length + locked_bytes > limit:
            raise VerbsError(
                f"reg_mr: {length >> 10} KiB beside {locked_bytes >> 10} KiB are more than the {limit >> 10} KiB that "
                "this process may lock (RLIMIT_MEMLOCK). Cure: a larger `ulimit -l`",
                errno.ENOMEM,
            )

    def _query_device(self) -> Reply:
        attr = self._device.query_device()
        values = {
            "MAX_QP": min(attr.max_qp, MAX_QPS),
            "MAX_QP_WR": attr.max_qp_wr,
            "MAX_SGE": min(attr.max_sge, MAX_SGE),
            "MAX_CQE": min(attr.max_cqe, MAX_CQ_ENTRIES),
            "PORTS": attr.phys_port_cnt,
            "MAX_WIMM": attr.max_wimm,
            "MAX_WIMM_DEST": attr.max_wimm_dest,
            "MAX_MPR": attr.max_mpr,
            "MPR_RESOLUTION": attr.mpr_resolution,
            "MAX_QP_HINT": attr.max_qp_hint,
            "CAP": int(attr.cap),
            "PROTOCOLS": int(attr.mrc_protocol_version),
            "GUID": GUID_BASE | zlib.crc32(self._device.name.encode()),
            "MAX_INLINE": MAX_INLINE,
            "MAX_CQ": descriptor_limit(),
            "MAX_MR": descriptor_limit(),
            "MAX_PD": MAX_OBJECTS,
        }
        numbers = numbers_of("DEVICE_")
        device_values = [0] * DEVICE_VALUES
        for name, value in values.items():
            device_values[numbers[name]] = value
        return Reply(device_values)

    def _status(self) -> Reply:
        programs = [program for program in self._programs.values() if program.ring is not None]
        return Reply([value for program in programs[: MAX_VALUES // STATUS_VALUES] for value in program._state()])

    def _state(self) -> list[int]:
        """Return the values of STATUS."""
        packets = self._old_packets.copy()
        for program_qp in self._qps.values():
            packets.update(_packets(program_qp.qp))
        values = {
            "PID": self.caller.pid,
            "QPS": len(self._qps),
            "CQS": len(self._cqs),
            "REGIONS": len(self._regions),
            "REGISTERED": sum(region.length for region in self._regions.values()),
            "EVS_OUT": sum(
                not ev["active"] for program_qp in self._qps.values() for ev in program_qp.qp.engine.ev_states()
            ),
            **packets,
        }
        return [values.get(name, 0) for name in _STATUS]

    def _query_port(self, port: int) -> Reply:
        attr = self._device.query_port(port)
        return Reply([attr.state, attr.active_mtu, *gid_halves(attr.gid)])

    def _alloc_pd(self) -> Reply:
        self._require_share("protection domains", lambda program: len(program._pds), MAX_OBJECTS)
        number = next(self._numbers)
        self._pds[number] = self._device.alloc_pd()
        return Reply([number])

    def _dealloc_pd(self, number: int) -> Reply:
        _object_of(self._pds, number, "protection domain").dealloc()
        del self._pds[number]
        return Reply()

    def _reg_mr(self, pd: int, address: int, length: int, iova: int, access: int) -> Reply:
        self._require_descriptor()
        start = address - address % _PAGE
        end = -(-(address + length) // _PAGE) * _PAGE
        if not length or end > PAGES_BYTES:
            raise VerbsError(f"reg_mr: {length} bytes at {address:#x} are no memory of a program")
        owner = _object_of(self._pds, pd, "protection domain")
        self._require_memory(end - start)
        try:
            memory = mmap.mmap(self._pages, end - start, offset=start)
        except OSError as error:
            raise VerbsError(f"reg_mr: {error.strerror}", error.errno or errno.ENOMEM) from None
        view = memoryview(memory)[address - start : address - start + length]
        region = owner.reg_mr(view, access, addr=iova)
        self._regions[region.lkey] = region
        self._mapped_bytes[region.lkey] = end - start
        return Reply([region.lkey])

    def _dereg_mr(self, key: int) -> Reply:
        _object_of(self._regions, key, "region").dereg()
        del self._regions[key], self._mapped_bytes[key]
        return Reply()

    def _create_channel(self) -> Reply:
        self._require_descriptor()
        number, channel = next(self._numbers), self._device.create_comp_channel()
        try:
            own_end, events_fd = messages.event_socket()
        except OSError:
            channel.destroy()
            raise
        self._channels[number] = _Channel(channel, own_end)
        return Reply([number], [events_fd], [events_fd])

    def _destroy_channel(self, number: int) -> Reply:
        channel = _object_of(self._channels, number, "completion channel")
        channel.channel.destroy()
        channel.events.close()
        del self._channels[number]
        return Reply()

    def _create_cq(self, entries: int, channel_number: int) -> Reply:
        return self._add_cq(entries, channel_number, self._device.create_cq, COMPLETION)

    def _create_ev_event_cq(self, entries: int, channel_number: int) -> Reply:
        return self._add_cq(entries, channel_number, self._control.create_ev_event_cq, EV_EVENT)

    def _add_cq(self, entries: int, channel_number: int, create: Callable[..., _AnyCq], layout: Struct) -> Reply:
        self._require_descriptor()
        if not 1 <= entries <= MAX_CQ_ENTRIES:
            raise VerbsError(f"create_cq: {entries} entries, must be 1 to {MAX_CQ_ENTRIES}")
        self._require_share(
            "entries in its CQs",
            lambda program: sum(cq.ring.slots for cq in program._cqs.values()),
            MAX_ENTRIES,
            entries,
        )
        channel = _object_of(self._channels, channel_number, "completion channel") if channel_number else None
        number, ring = next(self._numbers), CompletionRing(entries, layout)
        cq = create(entries, channel=channel.channel if channel else None)
        self._cqs[number] = _ProgramCq(cq, ring, number, channel)
        return Reply([number, ring.slots], [ring.memfd.fd])

    def _destroy_cq(self, number: int) -> Reply:
        cq = _object_of(self._cqs, number, "completion queue")
        cq.cq.destroy()
        cq.ring.close()
        del self._cqs[number]
        return Reply()

    def _create_qp(self, pd: int, send_cq: int, recv_cq: int, *values: int) -> Reply:
        if len(values) != 7:
            raise MessageError(f"create_qp with {len(values)} values behind its queues")
        *capacities, sq_sig_all, transport = values
        cap = QpCap(*capacities)
        if cap.max_send_sge > MAX_SGE or cap.max_inline_data > MAX_INLINE:
            raise VerbsError(f"create_qp: at most {MAX_SGE} elements and {MAX_INLINE} bytes inline")
        # Guests leave most QPs of the device to others.
        guests_limit = self._device.query_device().max_qp // SHARES
        limit = min(MAX_QPS, guests_limit) if self.caller.is_guest else MAX_QPS
        self._require_share("QPs", lambda program: len(program._qps), limit)
        self._require_share(
            "requests in its QPs",
            lambda program: sum(qp.send.limit + qp.recv.limit for qp in program._qps.values()),
            MAX_REQUESTS,
            cap.max_send_wr + cap.max_recv_wr,
        )
        init = QpInitAttr(
            _object_of(self._cqs, send_cq, "completion queue").cq,
            _object_of(self._cqs, recv_cq, "completion queue").cq,
            cap,
            sq_sig_all=bool(sq_sig_all),
            qp_type=QpType.RC if transport else QpType.MRC,
            pd=_object_of(self._pds, pd, "protection domain"),
        )
        qp = self._device.create_qp(init)
        self._qps[qp.qp_num] = _ProgramQp(qp, _Queue(cap.max_send_wr), _Queue(cap.max_recv_wr))
        return Reply([qp.qp_num])

    def _modify_qp(self, qpn: int, mask: int, mrc_mask: int, *values: int) -> Reply:
        if len(values) != QP_VALUES:
            raise MessageError(f"modify_qp with {len(values)} attributes")
        program_qp = _object_of(self._qps, qpn, "QP")
        qp = program_qp.qp
        attr, mrc_attr = _attributes(values, mask, mrc_mask)
        qp.modify(attr, None, mrc_attr, None)
        if mask & QpAttrMask.IBV_QP_STATE and qp.state is QpState.RESET:
            # What waits for the program belongs to the QP's earlier life; the library passes over what it has.
            program_qp.send.reset()
            program_qp.recv.reset()
        max_wimm = qp.query()[1].max_wimm
        return Reply([qp.state, 0 if max_wimm is None else max_wimm])

    def _query_qp(self, qpn: int) -> Reply:
        attr, mrc_attr, _ = _object_of(self._qps, qpn, "QP").qp.query()
        return Reply(_values_of(attr, mrc_attr))

    def _destroy_qp(self, qpn: int) -> Reply:
        qp = _object_of(self._qps, qpn, "QP").qp
        self._old_packets.update(_packets(qp))
        qp.destroy()
        del self._qps[qpn]
        with self._device.lock:  # a later QP may have the number
            for cq in (qp.send_cq, qp.recv_cq):
                cq.forget(qpn)
        return Reply()

    # ---- rings ----------------------------------------------------------------------------------------------

    def serve_ring(self) -> bool:
        """Post what the program has written; return whether there was anything."""
        try:
            return self._take_records()
        except RingError as error:
            self.end(str(error))
            return False

    def _take_records(self) -> bool:
        """Post receives and up to TURN_RECORDS other requests; return whether there was any.

        Raises RingError.
        """
        records = [] if self.ring is None else self.ring.take(TURN_RECORDS)
        if not records:
            return False
        with self._device.lock:
            try:
                for record, payload in records:
                    self._serve(record, payload)
            finally:  # what was posted before a bad record is the engine's already
                self._device.context.after_call()
        return True

    def _serve(self, record: RingRecord, payload: bytes) -> None:
        if record.kind == KIND_ARM:
            self._arm(record)
            return
        program_qp = self._qps.get(record.number)
        if program_qp is None:  # destroyed since
            return
        if record.kind == KIND_SEND:
            program_qp.send.add(record.serial, record.wr_id)
            self._post_send(program_qp, record, payload)
        elif record.kind == KIND_RECV:
            program_qp.recv.add(record.serial, record.wr_id)
            self._post_recv(program_qp, record.serial)
        else:
            raise RingError(f"record of kind {record.kind}")

    def _post_send(self, program_qp: _ProgramQp, record: RingRecord, payload: bytes) -> None:
        """Post a write. One that is refused completes with an error, as on a NIC."""
        qp = program_qp.qp
        # What the library checks before it writes a record is a program's fault here, and ends it.
        if record.sge_count * SGE.size + record.inline_bytes > len(payload):
            raise RingError(f"{record.sge_count} elements and {record.inline_bytes} bytes in {len(payload)}")
        opcode = _OPCODES.get(record.opcode)
        if opcode is None:
            raise RingError(f"operation {record.opcode}")
        status = WcStatus.IBV_WC_LOC_PROT_ERR
        try:
            if record.flags & _INLINE:
                data: bytes | memoryview = qp.inline(payload[: record.inline_bytes])
            else:
                elements = list(islice(SGE.iter_unpack(payload[: record.sge_count * SGE.size]), record.sge_count))
                if len(elements) > 1:
                    status = WcStatus.IBV_WC_LOC_LEN_ERR
                    self._count_copy(program_qp.send, record.serial, sum(length for _, length, _ in elements))
                    status = WcStatus.IBV_WC_LOC_PROT_ERR
                data = qp.gather(elements)
            imm = record.imm if opcode is WrOpcode.IBV_WR_RDMA_WRITE_WITH_IMM else None
            send_flags = record.flags & _KNOWN_SEND_FLAGS
            qp.post_write(record.serial, opcode, data, record.remote_addr, record.rkey, imm, send_flags)
        except LocalError as error:
            completion = WorkCompletion(record.serial, status, _WC_OPCODES[opcode], qp.qp_num)
            self._fail(qp, error, completion, qp.send_cq)

    def _count_copy(self, queue: _Queue, serial: int, length: int) -> None:
        """Count a request of several elements.

        Raises VerbsError for one that takes too much memory of this process.
        """
        queues = [program_qp.send for program in self._sharers() for program_qp in program._qps.values()]
        if length + sum(queue.copied_bytes for queue in queues) > MAX_COPIED_BYTES:
            raise VerbsError(f"requests of several elements have more than {MAX_COPIED_BYTES >> 20} MiB", errno.ENOMEM)
        queue.note_copy(serial, length)

    def _post_recv(self, program_qp: _ProgramQp, serial: int) -> None:
        qp = program_qp.qp
        try:
            qp.post_recv(RecvWR(serial))
        except LocalError as error:
            completion = WorkCompletion(
                serial, WcStatus.IBV_WC_LOC_QP_OP_ERR, WcOpcode.IBV_WC_RECV_RDMA_WITH_IMM, qp.qp_num
            )
            self._fail(qp, error, completion, qp.recv_cq)

    def _fail(self, qp: QueuePair, error: LocalError, completion: WorkCompletion, cq: CompletionQueue) -> None:
        """Complete a request that could not be posted: the QP goes to ERROR, as a NIC's does.

        In ERROR already, it is flushed like those before.
        """
        completion.detail = str(error)
        if qp.state is QpState.ERROR:
            completion.status = WcStatus.IBV_WC_WR_FLUSH_ERR
        elif qp.state is not QpState.RESET:
            # Its text: an exception that a log keeps would keep the program's memory with its frames.
            log.info("program %d: %s", self.number, completion.detail)
            qp.modify(QpAttr(qp_state=QpState.ERROR))
        with self._device.lock:
            cq.push([completion])

    def _arm(self, record: RingRecord) -> None:
        cq = self._cqs.get(record.number)
        if cq is None:  # destroyed since
            return
        if cq.channel is None:
            raise RingError("a CQ without a completion channel was armed")
        cq.cq.req_notify(bool(record.flags))
        if cq.ring.tail != record.wr_id or len(cq.cq):
            # Entries came after the program's last look: they count. One event too many is harmless.
            cq.channel.channel.announce(cq.cq)

    def deliver(self) -> None:
        """Write completions to the program's rings, then the events about them, then asynchronous events."""
        try:
            for cq in self._cqs.values():
                if len(cq.cq):
                    self._write_completions(cq)
            for channel in self._channels.values():
                while (queue_with_event := channel.channel.poll_event()) is not None:
                    queue_with_event.ack_events()  # the library waits for the program's acknowledgments
                    if number := self._number_of(queue_with_event):
                        channel.events.send(EVENT.pack(0, number))
            while (event := self._device.context.poll_async()) is not None:
                self._device.ack_async_event(event)
                self._send_event(event)
            self._control.deliver()
        except BlockingIOError:
            self.end("it does not read its completion events")
        except (RingError, OSError) as error:
            self.end(str(error))

    def _write_completions(self, cq: _ProgramCq) -> None:
        if isinstance(cq.cq, EvEventCq):
            self._control.write_events(cq.cq, cq.ring)
            return
        for entry in cq.cq.poll(cq.ring.room()):
            program_qp = self._qps.get(entry.qp_num)
            if program_qp is None:
                continue
            is_recv = entry.opcode is WcOpcode.IBV_WC_RECV_RDMA_WITH_IMM
            queue = program_qp.recv if is_recv else program_qp.send
            wr_id = queue.finish(entry.wr_id)
            cq.ring.write(
                wr_id,
                queue.retired_count,
                entry.status,
                entry.opcode,
                entry.vendor_err,
                entry.byte_len & 0xFFFF_FFFF,
                entry.imm_data or 0,
                entry.qp_num,
                entry.src_qp,
                entry.wc_flags,
                is_recv,
            )
        cq.ring.publish()

    def _number_of(self, cq: object) -> int:
        """Return the program's number of a CQ; 0 for one that was destroyed since."""
        return next((program_cq.number for program_cq in self._cqs.values() if program_cq.cq is cq), 0)

    def _send_event(self, event: AsyncEvent) -> None:
        """Send an asynchronous event to a program that said hello."""
        match event.event_type:
            case EventType.IBV_EVENT_QP_FATAL:
                number = int(event.element.qp_num)
            case EventType.IBV_EVENT_CQ_ERR:
                number = self._number_of(event.element)
            case _:
                number = int(event.element)
        if self._async is not None:
            with suppress(BlockingIOError):  # a program that never reads events does not mind to lose them
                self._async.send(EVENT.pack(event.event_type, number))

    # ---- the end --------------------------------------------------------------------------------------------

    def end(self, reason: str) -> None:
        """Destroy all objects of the program and close its connection. Idempotent."""
        if self.socket.fileno() < 0:
            return
        if reason:
            log.warning("program %d is ended: %s", self.number, reason)
        with ExitStack() as steps:  # the last step first; each is done whatever another raises
            if self._qps or self._old_packets:
                steps.callback(gc.collect)  # a circle of the engine's objects holds the program's memory until then
            messages.close_all([self._pages] if self._pages >= 0 else [])
            for table in (self._qps, self._regions, self._mapped_bytes, self._cqs, self._channels, self._pds):
                steps.callback(table.clear)
            for part in (self.ring, self.doorbell, self._async):
                if part is not None:
                    steps.callback(part.close)
            self.ring = None
            for channel in self._channels.values():
                steps.callback(channel.events.close)
            for cq in self._cqs.values():
                steps.callback(cq.ring.close)
            steps.callback(self._control.close)
            steps.callback(self._device.close)
            steps.callback(self.socket.close)
            steps.callback(self._on_end, self)

    def has_context(self, context: DeviceContext) -> bool:
        """Whether the program's objects are of this context of the device."""
        return self._device.context is context


_OPCODES: Final = {int(opcode): opcode for opcode in WrOpcode}
_WC_OPCODES: Final = {opcode: WcOpcode.IBV_WC_RDMA_WRITE for opcode in WrOpcode}
_INLINE: Final = int(SendFlags.IBV_SEND_INLINE)
_KNOWN_SEND_FLAGS: Final = int(SendFlags.IBV_SEND_SIGNALED | SendFlags.IBV_SEND_SOLICITED) | _INLINE


def descriptor_limit() -> int:
    """Return the descriptors of this process that one process's regions, CQs and channels may hold."""
    return min(MAX_OBJECTS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // SHARES)


def _object_of(table: dict[int, Any], number: int, noun: str) -> Any:
    """Return the program's own object of a number. Raises VerbsError (ENOENT)."""
    try:
        return table[number]
    except KeyError:
        raise VerbsError(f"this program has no {noun} {number:#x}", errno.ENOENT) from None


def _packets(qp: QueuePair) -> dict[str, int]:
    """Return the packet counters of a QP by the names of STATUS."""
    counters = qp.counters
    return {
        "SENT": counters.packets_sent,
        "RETRANSMITTED": counters.retransmitted,
        "LOST": counters.lost,
        "BYTES_SENT": counters.bytes_sent,
        "BYTES_RECEIVED": counters.bytes_received,
    }


def _check_pages(fd: int) -> None:
    """Check that the memory of a program can never shrink.

    A page that is gone would end this process (SIGBUS).
    """
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        status = os.fstat(fd)
    except OSError as error:
        raise MessageError(f"hello without a memfd: {error.strerror}") from None
    size, block_bytes = status.st_size, status.st_blksize
    # Huge pages are limited: one that is not there would end this process.
    if not seals & fcntl.F_SEAL_SHRINK or size != PAGES_BYTES or block_bytes != _PAGE:
        raise MessageError(f"hello with a memfd of {size} bytes in pages of {block_bytes}, and seals {seals:#x}")


def _attributes(values: tuple[int, ...], mask: int, mrc_mask: int) -> tuple[QpAttr, MrcQpAttr]:
    """Return the attributes that the masks name."""
    attr, mrc_attr = QpAttr(), MrcQpAttr()
    for flag, name, number in _IBV_FIELDS:
        if mask & flag:
            setattr(attr, name, values[number])
    if mask & QpAttrMask.IBV_QP_AV:
        attr.ah_attr = AddressVector(gid_text(values[_QP["GID_HIGH"]], values[_QP["GID_LOW"]]))
    for mrc_flag, name, number in _MRC_FIELDS:
        if mrc_mask & mrc_flag:
            setattr(mrc_attr, name, values[number])
    return attr, mrc_attr


_IBV_FIELDS: Final = [
    (QpAttrMask.IBV_QP_STATE, "qp_state", _QP["STATE"]),
    (QpAttrMask.IBV_QP_CUR_STATE, "cur_qp_state", _QP["CUR_STATE"]),
    (QpAttrMask.IBV_QP_PKEY_INDEX, "pkey_index", _QP["PKEY_INDEX"]),
    (QpAttrMask.IBV_QP_ACCESS_FLAGS, "qp_access_flags", _QP["ACCESS"]),
    (QpAttrMask.IBV_QP_PATH_MTU, "path_mtu", _QP["PATH_MTU"]),
    (QpAttrMask.IBV_QP_DEST_QPN, "dest_qp_num", _QP["DEST_QPN"]),
    (QpAttrMask.IBV_QP_RQ_PSN, "rq_psn", _QP["RQ_PSN"]),
    (QpAttrMask.IBV_QP_SQ_PSN, "sq_psn", _QP["SQ_PSN"]),
]
"""Bit of the mask, attribute, and number of its value."""
_MRC_FIELDS: Final = [
    (MrcQpAttrMask.MRC_QP_MAX_WIMM, "max_wimm", _QP["MAX_WIMM"]),
    (MrcQpAttrMask.MRC_QP_MAX_WIMM_DEST, "max_wimm_dest", _QP["MAX_WIMM_DEST"]),
    (MrcQpAttrMask.MRC_QP_MPR, "mpr", _QP["MPR"]),
    (MrcQpAttrMask.MRC_QP_MPR_DEST, "mpr_dest", _QP["MPR_DEST"]),
    (MrcQpAttrMask.MRC_QP_TIMEOUT, "timeout", _QP["TIMEOUT"]),
    (MrcQpAttrMask.MRC_QP_RETRY_CNT, "linear_cnt", _QP["LINEAR_CNT"]),
    (MrcQpAttrMask.MRC_QP_RETRY_CNT, "exp_cnt", _QP["EXP_CNT"]),
    (MrcQpAttrMask.MRC_QP_EV_PROFILE_ID, "ev_profile_id", _QP["EV_PROFILE"]),
    (MrcQpAttrMask.MRC_QP_CC_PROFILE_ID, "cc_profile_id", _QP["CC_PROFILE"]),
    (MrcQpAttrMask.MRC_QP_CAP, "cap", _QP["CAP"]),
]


def _values_of(attr: QpAttr, mrc_attr: MrcQpAttr) -> list[int]:
    """Return the values of a reply to query_qp; 0 for what was never set."""
    values = [0] * QP_VALUES
    for record, table in ((attr, _IBV_FIELDS), (mrc_attr, _MRC_FIELDS)):
        for _, name, number in table:
            values[number] = int(getattr(record, name) or 0)
    if attr.ah_attr is not None:
        values[_QP["GID_HIGH"]], values[_QP["GID_LOW"]] = gid_halves(attr.ah_attr.dgid)
    return values
