"""Captures of every kind: what is read of them, and what is counted as left out."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mrc_testbed.capture.explain.capture_reader import PACKET_MAX, CapturedFrame, CaptureFileError, CaptureReader
from tests.capture.explain.capture_files import PcapngBytes, pcap_bytes

FRAME = bytes(range(61))
S = 10**9


def read(path: Path, content: bytes) -> tuple[list[CapturedFrame], dict[str, int]]:
    path.write_bytes(content)
    with closing(CaptureReader(path)) as reader:
        return list(reader), dict(reader.skipped)


def test_sections__have_their_own_order_clock_offset_and_names(tmp_path):
    file = PcapngBytes().section().interface("a\0").packet(FRAME, 17 * 10**6)
    file.section(">")
    file.interface("b", options=file.option(9, b"\x09") + file.option(14, struct.pack(">q", 3)))
    file.interface(options=file.option(9, b"\x8a"))
    file.packet(FRAME, 17 * S + 1, options=file.option(2, b"\0\0\0\2")).packet(FRAME, 17 * 1024 + 512, 1)
    frames, skipped = read(tmp_path / "a", file.content)
    assert [(frame.interface, frame.interface_index, frame.packet.at_ns, frame.direction) for frame in frames] == [
        ("a", 0, 17 * S, 0),
        ("b", 1, 20 * S + 1, 2),
        ("", 2, 17 * S + S // 2, 0),
    ]
    assert all(frame.packet.frame == FRAME for frame in frames) and not skipped


def test_simple_and_old_packet_blocks(tmp_path):
    file = PcapngBytes().section().interface("a", snap=32)
    file.simple_packet(FRAME[:32], 1000).simple_packet(FRAME[:9], 9).old_packet(FRAME, 2 * 10**6)
    frames, skipped = read(tmp_path / "a", file.content)
    assert [(frame.packet.frame, frame.packet.length, frame.has_time) for frame in frames] == [
        (FRAME[:32], 1000, False),
        (FRAME[:9], 9, False),
        (FRAME, 61, True),
    ]
    assert frames[2].packet.at_ns == 2 * S
    assert skipped == {"packet times (missing, or outside 1970 to 2554)": 2}
    far = PcapngBytes().section().interface(options=file.option(14, struct.pack("<q", 1 << 40))).packet(FRAME)
    (frame,), skipped = read(tmp_path / "a", far.content)
    assert not frame.has_time and sum(skipped.values()) == 1


def test_what_cannot_be_read__is_counted_and_ends_nothing(tmp_path):
    file = PcapngBytes().section().interface("a")
    file.packet(FRAME, number=7)
    file.block(6, struct.pack("<5I", 0, 0, 0, 5000, 5000) + FRAME).block(6, b"short")
    file.packet(bytes(PACKET_MAX + 1))
    file.block(5, bytes(12)).block(4, bytes(4)).block(0x1234, b"").packet(FRAME, 5)
    frames, skipped = read(tmp_path / "a", file.content)
    assert [frame.packet.at_ns for frame in frames] == [5000]
    assert skipped == {
        "packets of interfaces that the file does not describe": 1,
        "packets in damaged blocks": 2,
        f"packets of more than {PACKET_MAX} bytes": 1,
        "blocks of interface statistics": 1,
        "blocks of name resolution": 1,
        "blocks of type 0x1234": 1,
    }


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("magic", "at_ns"), [(0xA1B2C3D4, S + 5000), (0xA1B23C4D, S + 5), (0xA1B2CD34, S + 5000)])
def test_pcap__of_each_variant(tmp_path, magic, at_ns, order):
    (frame,), _ = read(tmp_path / "a", pcap_bytes([FRAME], 0x10000071, magic, order))
    assert (frame.packet.at_ns, frame.packet.frame, frame.link_type) == (at_ns, FRAME, 113)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed__is_read_and_a_cut_noticed(tmp_path, pack):
    packed = pack(pcap_bytes([FRAME] * 3))
    assert len(read(tmp_path / "a", packed)[0]) == 3
    with pytest.raises(CaptureFileError, match=r"cut off or damaged after packet|no capture file"):
        read(tmp_path / "a", packed[:-9])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.data())
def test_any_bytes__are_read_or_refused(tmp_path, data):
    file = PcapngBytes().section(data.draw(st.sampled_from("<>"))).interface("a")
    file.packet(FRAME, options=file.option(1, b"note")).simple_packet(FRAME, 61).old_packet(FRAME)
    content = bytearray(data.draw(st.sampled_from([file.content, pcap_bytes([FRAME] * 3)])))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CaptureFileError):
        read(tmp_path / "a", bytes(content))
