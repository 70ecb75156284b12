"""Any bytes in a ring are records as they were written, or the ring is refused."""

from __future__ import annotations

from contextlib import closing
from random import Random

import pytest

from mrc_testbed.hosts.nicd.layout import (
    COMPLETION,
    HEAD_AT,
    KIND_ARM,
    KIND_RECV,
    KIND_SEND,
    RECORD,
    SLOT_BYTES,
    SLOTS_AT,
    SQ_BYTES,
    SQ_SLOTS,
    TAIL_AT,
)
from mrc_testbed.hosts.nicd.rings import CompletionRing, RingError, SubmissionRing

WORDS = (0, 1, 2, SQ_SLOTS - 1, SQ_SLOTS, SQ_SLOTS + 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 63, (1 << 64) - 1)


class Writer:
    """The program's side of a submission ring."""

    def __init__(self, ring: SubmissionRing) -> None:
        self.memory = ring.memfd.memory
        self.tail = 0

    def write(self, kind: int, serial: int, payload: bytes = b"") -> None:
        """Write a record and the slots behind it, and show nothing yet."""
        slots = 1 + -(-len(payload) // SLOT_BYTES)
        record = RECORD.pack(kind, slots, 7, 0, serial, 0, 0, 0, 0, 0, 0, 0, serial)
        data = (record + payload).ljust(slots * SLOT_BYTES, b"\0")
        for i in range(slots):
            start = SLOTS_AT + (self.tail + i) % SQ_SLOTS * SLOT_BYTES
            self.memory[start : start + SLOT_BYTES] = data[i * SLOT_BYTES : (i + 1) * SLOT_BYTES]
        self.tail += slots

    def show(self) -> None:
        self.memory[TAIL_AT : TAIL_AT + 8] = self.tail.to_bytes(8, "little")

    def head(self) -> int:
        return int.from_bytes(self.memory[HEAD_AT : HEAD_AT + 8], "little")


@pytest.fixture
def ring():
    with closing(SubmissionRing()) as ring:
        yield ring


@pytest.fixture
def writer(ring):
    return Writer(ring)


def test_receives__come_before_however_many_requests_were_written_earlier(ring, writer):
    for serial in range(600):
        writer.write(KIND_SEND, serial)
    writer.write(KIND_RECV, 0)
    writer.show()
    batches = [[(record.kind, record.serial) for record, _ in ring.take(256)] for _ in range(4)]
    assert batches[0] == [(KIND_RECV, 0), *((KIND_SEND, serial) for serial in range(256))]
    assert batches[1:] == [
        [(KIND_SEND, serial) for serial in range(256, 512)],
        [(KIND_SEND, serial) for serial in range(512, 600)],
        [],
    ]
    assert writer.head() == writer.tail and ring.sleep()


def test_slots__are_given_back_in_the_order_of_the_ring(ring, writer):
    writer.write(KIND_SEND, 0)
    writer.write(KIND_SEND, 1)
    writer.write(KIND_RECV, 0)
    writer.show()
    assert len(ring.take(1)) == 2
    assert writer.head() == 1 and not ring.sleep()
    assert len(ring.take(1)) == 1
    assert writer.head() == 2
    assert ring.take(1) == []
    assert writer.head() == 3 and ring.sleep()


def test_record_that_is_changed_after_it_was_read__is_given_as_it_was(ring, writer):
    writer.write(KIND_SEND, 0)
    writer.write(KIND_SEND, 1, b"payload")
    writer.show()
    ring.take(1)
    ring.memfd.memory[SLOTS_AT:] = bytes(SQ_BYTES - SLOTS_AT)
    ((record, payload),) = ring.take(1)
    assert (record.kind, record.serial, payload.rstrip(b"\0")) == (KIND_SEND, 1, b"payload")


@pytest.mark.parametrize("seed", range(20))
def test_random_records__are_all_taken_once_with_their_bytes(ring, writer, seed):
    rng = Random(seed)
    requests = {KIND_SEND: [], KIND_RECV: [], KIND_ARM: []}
    records_by_kind = {kind: [] for kind in requests}
    for _ in range(60):
        for _ in range(rng.randrange(400)):
            kind, payload = rng.choice(list(requests)), rng.randbytes(rng.choice((0, 0, 1, 64, 300)))
            if writer.tail + 6 - writer.head() > SQ_SLOTS:
                break
            requests[kind].append((len(requests[kind]), payload))
            writer.write(kind, *requests[kind][-1])
        writer.show()
        for record, payload in ring.take(rng.choice((1, 50, 256))):
            records_by_kind[record.kind].append((record.serial, payload))
        assert len(records_by_kind[KIND_RECV]) == len(requests[KIND_RECV])
    while records := ring.take(256):
        for record, payload in records:
            records_by_kind[record.kind].append((record.serial, payload))
    assert writer.head() == writer.tail
    for kind, rows in requests.items():
        assert [serial for serial, _ in records_by_kind[kind]] == [serial for serial, _ in rows]
        assert all(got[: len(sent)] == sent for (_, got), (_, sent) in zip(records_by_kind[kind], rows, strict=True))


@pytest.mark.parametrize("seed", range(200))
def test_random_bytes__in_a_submission_ring_are_given_or_refused(seed):
    rng = Random(seed)
    with closing(SubmissionRing()) as ring:
        writer, taken_slots = Writer(ring), 0
        for serial in range(rng.randrange(300)):
            writer.write(rng.choice((KIND_SEND, KIND_RECV, KIND_ARM)), serial, rng.randbytes(rng.randrange(200)))
        for _ in range(rng.randrange(1, 8)):
            start = rng.choice((HEAD_AT, TAIL_AT, SLOTS_AT + rng.randrange(600) * SLOT_BYTES))
            length = rng.choice((1, 4, 8, 64, 4000))
            ring.memfd.memory[start : start + length] = rng.randbytes(length)
        writer.tail = rng.choice((writer.tail, writer.tail, writer.tail, *WORDS))
        writer.show()
        try:
            while records := ring.take(256):
                taken_slots += sum(record.slots for record, _ in records)
                assert all(len(payload) == (record.slots - 1) * SLOT_BYTES for record, payload in records)
                assert taken_slots <= SQ_SLOTS
                ring.sleep()
        except RingError:
            assert taken_slots <= SQ_SLOTS
        else:
            assert taken_slots == writer.tail


@pytest.mark.parametrize("seed", range(100))
def test_random_bytes__in_a_completion_ring_leave_room_or_are_refused(seed):
    rng = Random(seed)
    entries = rng.choice((1, 2, 3, 64, 1000))
    with closing(CompletionRing(entries)) as ring:
        assert ring.slots >= entries and ring.room() == ring.slots
        for number in range(rng.randrange(ring.slots + 1)):
            ring.write(number, *[0] * 10)
        ring.publish()
        start = rng.choice((HEAD_AT, HEAD_AT, TAIL_AT, SLOTS_AT))
        ring.memfd.memory[start : start + 8] = rng.choice((rng.getrandbits(64), rng.choice(WORDS))).to_bytes(
            8, "little"
        )
        head = int.from_bytes(ring.memfd.memory[HEAD_AT : HEAD_AT + 8], "little")
        if head <= ring.tail and ring.tail - head <= ring.slots:
            assert ring.room() == ring.slots - (ring.tail - head)
        else:
            with pytest.raises(RingError, match="head of a completion ring"):
                ring.room()


def test_completion_ring__that_wraps_has_each_entry_in_its_slot():
    with closing(CompletionRing(4)) as ring:
        for number in range(10):
            ring.write(number, *[0] * 10)
            ring.publish()
            ring.memfd.memory[HEAD_AT : HEAD_AT + 8] = (number + 1).to_bytes(8, "little")
            entry = COMPLETION.unpack_from(ring.memfd.memory, SLOTS_AT + number % 4 * SLOT_BYTES)
            assert entry[0] == number and ring.room() == 4
