"""A program that does what a seed says: requests, records, indices and bytes that no library writes."""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
from collections.abc import Callable
from pathlib import Path
from random import Random

from mrc_testbed.hosts.nicd.layout import (
    HEAD_AT,
    KIND_ARM,
    KIND_RECV,
    KIND_SEND,
    MAX_VALUES,
    NUMBERS,
    QP_VALUES,
    RECORD,
    SGE,
    SLOT_BYTES,
    SLOTS_AT,
    SQ_SLOTS,
    VERSION,
)
from tests.hosts.nicd.raw_program import EndedError, RawProgram, sealed_pages

STEPS = 60
_OPERATIONS = [number for name, number in NUMBERS.items() if name.startswith("OP_")]
_EDGES = (0, 1, 2, 3, 7, 63, 64, 255, 4095, 4096, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 47)
_WIDE_EDGES = (*_EDGES, (1 << 47) - 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 4096, (1 << 64) - 1)


class HostileProgram:
    """See the module. `victims`: numbers of another program's QPs and keys, which it tries too."""

    def __init__(self, path: Path, peer_gid: tuple[int, int], seed: int, victims: list[int]) -> None:
        self._path, self._peer_gid, self._rng, self._victims = path, peer_gid, Random(seed), victims
        self._program: RawProgram
        self._numbers: list[int] = []
        """Numbers of objects that it was given, and of those that it was not."""
        self._qpns: list[int] = []
        self._keys: list[int] = []
        self._cqs: list[int] = []
        self._rings: list[mmap.mmap] = []
        self.ended_count = 0

    def run(self) -> None:
        """Take all steps, as a new program whenever the NIC process has ended the one before."""
        steps: list[Callable[[], None]] = [
            *[self._request] * 6,
            *[self._record] * 8,
            *[self._modify] * 4,
            self._wild_tail,
            self._wild_head,
            self._random_slots,
            self._bytes,
            self._descriptors,
            self._flood,
            self._wild_copies,
            self._no_reading,
        ]
        self._begin()
        for _ in range(STEPS):
            try:
                self._rng.choice(steps)()
                if self._rng.random() < 0.3:
                    self._program.call("STATUS")
            except EndedError:
                self.ended_count += 1
                self._program.close()
                self._begin()
        self._program.close()

    def _begin(self) -> None:
        """Say hello, now and then wrongly, and make some of each object, one QP connected."""
        while self._rng.random() < 0.1:
            self._wrong_hello()
        program = self._program = RawProgram(self._path)
        self._rings = []
        channel = program.number("CREATE_CHANNEL")
        pd = program.number("ALLOC_PD")
        self._cqs, self._keys, self._qpns = [], [program.memory(pd)], []
        for entries in (4, 64):
            error, (cq, _), fds = program.call("CREATE_CQ", entries, channel)
            assert error == 0
            self._cqs.append(cq)
            self._rings.append(mmap.mmap(fds[0], 0))
        for cq in self._cqs:
            self._qpns.append(program.queue_pair(pd, cq))
        program.connect(self._qpns[1], self._rng.choice([3, *self._victims]), self._peer_gid)
        self._numbers = [channel, pd, *self._cqs, *self._keys, *self._qpns, *self._victims]

    def _wrong_hello(self) -> None:
        rng = self._rng
        hellos: list[Callable[[], tuple[int, list[int]]]] = [
            lambda: (VERSION, []),
            lambda: (VERSION + 1, [sealed_pages()]),
            lambda: (VERSION, [sealed_pages(), sealed_pages()]),
            lambda: (VERSION, [sealed_pages(1 << 20)]),
            lambda: (VERSION, [sealed_pages(seals=0)]),
            lambda: (VERSION, [os.open("/dev/null", os.O_RDONLY)]),
            lambda: (VERSION, list(os.pipe())),
        ]
        program = RawProgram(self._path, hello=False)
        version, fds = rng.choice(hellos)()
        with contextlib.suppress(EndedError):
            program.call("HELLO", version, fds=fds)
            program.call("ALLOC_PD")
        program.fds += fds
        program.close()

    def _value(self) -> int:
        rng = self._rng
        kind = rng.random()
        if kind < 0.45:
            return rng.choice(self._numbers)
        if kind < 0.9:
            return rng.choice(_WIDE_EDGES)
        return rng.getrandbits(64)

    def _word(self) -> int:
        return self._value() & 0xFFFF_FFFF

    def _request(self) -> None:
        """Ask for anything, mostly with the right number of values."""
        rng, operation = self._rng, self._rng.choice(_OPERATIONS)
        counts = {NUMBERS["OP_REG_MR"]: 5, NUMBERS["OP_CREATE_CQ"]: 2, NUMBERS["OP_CREATE_QP"]: 10}
        count = counts.get(operation, rng.choice((0, 1, 1)))
        if rng.random() < 0.05:
            count, operation = rng.randrange(MAX_VALUES), rng.choice((operation, 0, 99, (1 << 32) - 1))
        self._program.send(operation, tuple(self._value() for _ in range(count)), [])
        error, values, fds = self._program.receive()
        if not error and values:
            self._numbers.append(values[0])
        if not error and fds and operation == NUMBERS["OP_CREATE_CQ"] and len(self._rings) < 16:
            self._rings.append(mmap.mmap(fds[0], 0))

    def _modify(self) -> None:
        rng = self._rng
        values = [self._value() for _ in range(QP_VALUES)]
        values[NUMBERS["QP_STATE"]] = rng.choice((0, 1, 1, 2, 3, 6, self._value()))
        mask, mrc_mask = (sum(1 << rng.randrange(bits) for _ in range(rng.randrange(5))) for bits in (26, 32))
        if rng.random() < 0.3:
            mask, mrc_mask = self._value(), self._value()
        self._program.call(
            "MODIFY_QP", rng.choice(self._qpns + self._victims), mask | rng.getrandbits(1), mrc_mask, *values
        )

    def _record(self) -> None:
        """Post a record that is right but for a field or two."""
        rng, program = self._rng, self._program
        kind = rng.choice((KIND_SEND, KIND_SEND, KIND_SEND, KIND_RECV, KIND_ARM))
        number = rng.choice((*self._qpns, *self._qpns, *self._victims)) if kind != KIND_ARM else rng.choice(self._cqs)
        elements = [self._element() for _ in range(rng.choice((1, 1, 2, 16, 17)))] if kind == KIND_SEND else []
        serial = program.serials.get((number, kind), 0)
        payload = b"".join(SGE.pack(*element) for element in elements)
        slots = 1 + -(-len(payload) // SLOT_BYTES)
        fields = [kind, slots, number, rng.choice((0, 2, 2, 6)), serial, 1 << 32, self._word(), self._word()]
        fields += [rng.choice((0, 0, 1)), len(elements), 0, 0, serial]
        if rng.random() < 0.15:
            index = rng.randrange(len(fields))
            fields[index] = self._value() if index in (4, 5, 12) else self._word()
        program.serials[number, kind] = serial + 1
        program.put_slots(RECORD.pack(*fields) + payload, slots)

    def _element(self) -> tuple[int, int, int]:
        rng = self._rng
        if rng.random() < 0.8:
            return (1 << 32) + rng.randrange(100), rng.choice((0, 1, 4096, 60000)), rng.choice(self._keys)
        return self._value(), self._word(), self._word()

    def _wild_tail(self) -> None:
        if self._rng.random() < 0.3:
            program = self._program
            program.set_tail(
                self._rng.choice((program.tail + 1, program.tail + SQ_SLOTS + 1, program.tail - 1, 1 << 63)) % (1 << 64)
            )

    def _wild_head(self) -> None:
        if self._rng.random() < 0.3:
            ring = self._rng.choice(self._rings)
            ring[HEAD_AT : HEAD_AT + 8] = self._value().to_bytes(8, "little")

    def _random_slots(self) -> None:
        rng, program = self._rng, self._program
        if rng.random() < 0.3:
            index = SLOTS_AT + rng.randrange(SQ_SLOTS - 256) * SLOT_BYTES
            program.ring[index : index + 4096] = rng.randbytes(4096)
            program.tail += rng.randrange(64)
            program.set_tail(program.tail)

    def _bytes(self) -> None:
        if self._rng.random() < 0.2:
            self._program.send_bytes(self._rng.randbytes(self._rng.choice((1, 15, 16, 17, 24, 4000))))

    def _descriptors(self) -> None:
        """Pass descriptors that nobody asked for, and then too many."""
        with open(os.devnull, "rb") as file:
            self._program.call("ALLOC_PD", fds=[file.fileno()] * 3)
            if self._rng.random() < 0.2:
                self._program.call("ALLOC_PD", fds=[file.fileno()] * 40)

    def _flood(self) -> None:
        """Arm a CQ again and again, without a look at the events."""
        rng, program = self._rng, self._program
        for _ in range(300):
            record = RECORD.pack(KIND_ARM, 1, rng.choice(self._cqs), 0, rng.getrandbits(8), 0, 0, 0, 0, 0, 0, 0, 0)
            program.put_slots(record, 1)

    def _wild_copies(self) -> None:
        """Ask for a copy of more than there is memory."""
        program, pd = self._program, self._numbers[1]
        error, values, _ = program.call("REG_MR", pd, 1 << 40, (1 << 32) - 1, 1 << 40, 3)
        if not error:
            for _ in range(3):
                program.post(self._qpns[1], [(1 << 40, (1 << 32) - 1, values[0])] * 16)

    def _no_reading(self) -> None:
        """Send requests without reading a reply, until the socket is full or the connection ended."""
        if self._rng.random() > 0.2:
            return
        try:
            for _ in range(2000):
                self._program.socket.send(b"1CRM" + (2).to_bytes(4, "little") + bytes(8), socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        except OSError:
            raise EndedError from None
        self._program.socket.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while True:
                self._program.receive()
        self._program.socket.settimeout(20)
