"""Payloads by their place in a text: the same bytes as a view of them, wherever bytes are asked for."""

from __future__ import annotations

from random import Random

import pytest

from mrc_testbed.hosts.engine.memory import Memory
from mrc_testbed.hosts.engine.wire.codec import Addressing, Codec
from mrc_testbed.hosts.engine.wire.packets import Opcode, Write
from mrc_testbed.hosts.engine.wire.payload import Payload, TextPart, buffer_of, cut
from tests.hosts.engine.engine_pair import Pair

TEXT = bytes(range(200))


@pytest.mark.parametrize("start, length", [(0, 40), (40, 40), (80, 10), (90, 0)])
def test_cut__as_a_view_is_cut(start: int, length: int) -> None:
    text_part, view = TextPart(TEXT, 17, 90), memoryview(TEXT)[17:107]
    part = cut(text_part, start, length)
    assert bytes(part) == bytes(buffer_of(part)) == bytes(cut(view, start, length))
    assert len(part) == len(bytes(part))


def test_buffer_of__leaves_bytes_alone() -> None:
    view = memoryview(TEXT)
    assert buffer_of(TEXT) is TEXT and buffer_of(view) is view


def test_codec__puts_its_bytes_on_the_wire() -> None:
    def wire(payload: Payload) -> bytes:
        record = Write(9, 1, 0, 1, 2, Opcode.WRITE_ONLY, 5, 0, 0, 0, 33, payload, 200)
        return Codec().encode(record, Addressing(bytes(16), bytes(16))).join()

    assert wire(TextPart(TEXT, 50, 33)) == wire(TEXT[50:83])


@pytest.mark.parametrize("framed", [False, True])
def test_post_write__takes_one_and_registered_memory_gets_its_bytes(framed: bool) -> None:
    text = bytes(range(256)) * 40
    pair = Pair(framed=framed)
    pair.write(TextPart(text, 100, 9000))
    pair.run_until_quiet()
    assert pair.memory[:9000] == text[100:9100]


def test_place__copies_its_bytes() -> None:
    memory, buffer = Memory(Random(1)), bytearray(8)
    region = memory.register(buffer)
    memory.write(region, region.va + 2, TextPart(TEXT, 7, 3))
    assert buffer == b"\0\0\7\x08\x09\0\0\0"
