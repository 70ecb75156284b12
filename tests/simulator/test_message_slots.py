"""The memory of a flow whose messages are known: what it takes for whole, and what for damaged."""

import pytest

from mrc_testbed.hosts.engine.wire.payload import TextPart
from mrc_testbed.hosts.traffic.message_bytes import MessageBytes
from mrc_testbed.simulator.message_slots import MessageSlots

SIZE, UNIT, SLOTS = 1000, 256, 2


@pytest.fixture
def content():
    return MessageBytes("7/h0/h2", SIZE)


@pytest.fixture
def slots(content):
    slots = MessageSlots(content, SLOTS, UNIT)
    for number in range(SLOTS):
        slots.expect(number, number)
    return slots


def write_payloads(slots, content, number, order=(0, 1, 2, 3)):
    """Place payloads of a message, by their numbers in it."""
    for part in order:
        offset = part * UNIT
        slots.write(number % SLOTS * SIZE + offset, content.part(number)[offset : offset + UNIT])


def test_place__parts_of_the_text_by_their_place(slots, content):
    message = content.text_part(0)
    for offset in (2 * UNIT, 0, 3 * UNIT, UNIT):
        slots.write(offset, message.part(offset, min(UNIT, SIZE - offset)))
    assert slots.finish(0)


@pytest.mark.parametrize("mistake", ["beside", "another message", "another text"])
def test_place__a_part_of_the_text_that_is_not_the_payload(slots, content, mistake):
    part = content.text_part(int(mistake == "another message")).part(UNIT, UNIT)
    if mistake == "beside":
        part = TextPart(part.text, part.begin + 1, UNIT)
    elif mistake == "another text":
        part = TextPart(part.text[:-1], part.begin, UNIT)
    slots.write(UNIT, part)
    assert slots.damaged_messages == {0}


def test_finish__a_message_in_any_order(slots, content):
    assert slots.length == SLOTS * SIZE
    write_payloads(slots, content, 1, (2, 0))
    write_payloads(slots, content, 0, (3, 1, 0, 2))
    assert slots.placed_bytes == SIZE + 2 * UNIT
    write_payloads(slots, content, 1, (3, 1))
    assert slots.finish(0) and slots.finish(1) and slots.placed_bytes == 0


def test_finish__the_slot_takes_the_message_after_it(slots, content):
    for number in range(5):
        slots.expect(number % SLOTS, number)
        write_payloads(slots, content, number)
        assert slots.finish(number % SLOTS)


def test_finish__a_hole(slots, content):
    write_payloads(slots, content, 0, (0, 1, 3))
    assert not slots.finish(0)


def test_finish__one_payload_twice_and_another_not_at_all(slots, content):
    write_payloads(slots, content, 0, (0, 1, 1, 3))
    assert not slots.finish(0) and slots.damaged_messages == {0}


@pytest.mark.parametrize(
    "offset, length, wrong_bytes",
    [
        pytest.param(0, UNIT, b"x", id="other bytes"),
        pytest.param(1, UNIT, b"", id="beside where one begins"),
        pytest.param(3 * UNIT, UNIT, b"", id="beyond the end"),
        pytest.param(0, 2 * UNIT, b"", id="two in one"),
    ],
)
def test_place__what_is_no_payload_of_the_message(slots, content, offset, length, wrong_bytes):
    slots.write(offset, wrong_bytes + content.text[content.start(0) + offset :][: length - len(wrong_bytes)])
    assert slots.damaged_messages == {0}


@pytest.mark.parametrize("length", [0, UNIT])
def test_place__more_than_the_message(slots, content, length):
    slots.write(0, content.part(0)[:length])
    write_payloads(slots, content, 0)
    assert not slots.finish(0)


def test_finish__bytes_of_another_message(slots, content):
    write_payloads(slots, content, 0, (0, 1, 2))
    slots.write(3 * UNIT, content.part(2)[3 * UNIT :])
    assert not slots.finish(0)


def test_finish__a_slot_that_expects_no_message(slots, content):
    write_payloads(slots, content, 0)
    assert slots.finish(0) and not slots.finish(0) and not slots.has_stray
    write_payloads(slots, content, 0)
    assert slots.has_stray and not slots.finish(0)
    slots.expect(0, 2)
    write_payloads(slots, content, 2)
    assert slots.finish(0) and slots.has_stray
