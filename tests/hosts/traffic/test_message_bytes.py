"""Bytes of messages: distinct, the same at both ends, and compared whole."""

from __future__ import annotations

from mrc_testbed.hosts.traffic.message_bytes import MessageBytes

SIZE = 1500


def test_part__both_ends_agree_and_messages_and_flows_differ() -> None:
    sender, receiver, other_flow = MessageBytes("1/f0", SIZE), MessageBytes("1/f0", SIZE), MessageBytes("1/f1", SIZE)
    parts = [bytes(sender.part(number)) for number in range(200)]
    assert len(set(parts)) == len(parts) and {len(part) for part in parts} == {SIZE}
    assert all(receiver.matches(number, memoryview(parts[number])) for number in range(200))
    assert not any(other_flow.matches(number, memoryview(parts[number])) for number in range(200))


def test_matches__one_wrong_byte_or_a_missing_one_is_seen() -> None:
    pattern = MessageBytes("1/f0", SIZE)
    for offset in (0, SIZE // 2, SIZE - 1):
        message = bytearray(pattern.part(7))
        assert pattern.matches(7, memoryview(message))
        message[offset] ^= 1
        assert not pattern.matches(7, memoryview(message))
    assert not pattern.matches(7, pattern.part(7)[:-1]) and not pattern.matches(7, memoryview(b""))
