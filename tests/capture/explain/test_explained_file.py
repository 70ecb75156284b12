"""Finished captures explained: what tshark shows of them, and what becomes of files that are none."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import struct
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from mrc_testbed.capture.explain import capture_reader, explained_file
from mrc_testbed.capture.explain.explained_file import explain_file
from mrc_testbed.capture.packet_files import INBOUND, OUTBOUND, CapturedPacket, PcapFile, PcapngFile, is_capture_file
from mrc_testbed.capture.pcap import is_finished_capture
from mrc_testbed.cli.app import app
from mrc_testbed.errors import UsageError
from mrc_testbed.hosts.dissector import tshark
from mrc_testbed.topologies.plan import Plan
from tests.capture.explain.made_frames import PLAN, a_write, made_frame
from tests.repository import ROOT

AT_NS = 1_700_000_000_123_456_789
FRAMES = [made_frame(a_write(7)), bytes(60), made_frame(a_write(7, 0x0000, rtx=True))]
needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
NO_RUN = Path("/nowhere")


def pcap(path: Path, frames: list[bytes] = FRAMES, snap: int = 1 << 18) -> Path:
    with path.open("wb") as out:
        file = PcapFile(out)
        for number, frame in enumerate(frames):
            file.write(CapturedPacket(AT_NS + number, frame[:snap], len(frame)))
    return path


def pcapng(path: Path, snap: int = 1 << 18) -> Path:
    with path.open("wb") as out:
        file = PcapngFile(out, ["h0-eth0", "h0-eth1"])
        for number, frame in enumerate(FRAMES):
            packet, way = CapturedPacket(AT_NS + number, frame[:snap], len(frame)), (INBOUND, OUTBOUND)[number % 2]
            file.write(packet, number % 2, way, [b"seen by hand"])
    return path


def tshark_rows(path: Path, *names: str) -> list[list[str]]:
    process = tshark(path, "-T", "fields", "-E", "separator=/t", *(word for name in names for word in ("-e", name)))
    assert process.returncode == 0, process.stderr
    return [line.split("\t") for line in process.stdout.splitlines()]


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("a.pcap", "a"),
        ("./a", "a"),
        ("a.pcapng", "a"),
        ("A.PCAP", "A"),
        ("a.pcap12", "a12"),
        ("a.PcapNG.gz", "a"),
        ("h0", ""),
        ("p1-t0-0-eth3", ""),
    ],
)
def test_names_of_files(name, stem):
    """Such a name is that of a file, whether it is there or not."""
    assert is_capture_file(name) is bool(stem)
    if stem:
        assert explained_file._stem(Path(name)) == stem


def test_finished_capture__is_a_file_of_any_name_unless_the_fabric_has_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_text(json.dumps(PLAN.to_json()))
    for name in ("h0", "dump"):
        pcap(Path(name))
    assert is_finished_capture("dump", tmp_path) and not is_finished_capture("h0", tmp_path)
    assert is_finished_capture("h0", NO_RUN) and not is_finished_capture("h1", NO_RUN)


@needs_tshark
def test_pcap__gets_a_comment_on_each_packet(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(PLAN.to_json()))
    result = explain_file(pcap(tmp_path / "a.pcap"), tmp_path)
    assert result.to_json() == {
        "capture": str(tmp_path / "a.pcap"),
        "path": str(tmp_path / "a.explained.pcapng"),
        "packets": 3,
        "explained": 2,
        "plan": str(tmp_path / "plan.json"),
        "skipped": {},
    }
    rows = tshark_rows(Path(result.path), "frame.comment", "frame.time_epoch", "frame.len")
    assert [row[0] for row in rows] == [
        "MRC: h0 > h2 by EV 0x0101: p1-t0-0, p1-t1-1, p1-t0-1; WRITE_ONLY, QP 0x123, PSN 7",
        "MRC: no packet of MRC",
        "MRC: h0 > h2 by EV 0x0000: p0-t0-0, p0-t1-0, p0-t0-1; WRITE_ONLY, QP 0x123, PSN 7; "
        "retransmission of frame 1, 0.000 ms before by EV 0x0101",
    ]
    assert [row[1:] for row in rows] == [
        [f"1700000000.{123_456_789 + n}", str(len(frame))] for n, frame in enumerate(FRAMES)
    ]


@needs_tshark
def test_pcapng__keeps_interfaces_directions_and_comments_of_others(tmp_path):
    first_run = explain_file(pcapng(tmp_path / "a.pcapng"), NO_RUN)
    second_run = explain_file(Path(first_run.path), NO_RUN, out=str(tmp_path / "b.pcapng"))
    assert "hosts by rack" in str(first_run) and first_run.explained == second_run.explained == 2
    names = ("frame.comment", "frame.interface_name", "frame.packet_flags_direction", "frame.time_epoch")
    rows = tshark_rows(Path(first_run.path), *names)
    assert rows == tshark_rows(Path(second_run.path), *names), "explained again: ours are replaced"
    assert [row[1] for row in rows] == ["h0-eth0", "h0-eth1", "h0-eth0"]
    assert [int(row[2], 0) for row in rows] == [1, 2, 1]
    assert all(row[0].startswith("MRC: ") and row[0].endswith(",seen by hand") for row in rows)


def test_microseconds_big_endian__keep_their_times(tmp_path):
    frame = FRAMES[0]
    head = struct.pack(">IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    (tmp_path / "a.pcap").write_bytes(head + struct.pack(">IIII", 17, 5, len(frame), len(frame)) + frame)
    (got,) = capture_reader.CaptureReader(tmp_path / "a.pcap")
    assert (got.packet.at_ns, got.packet.frame) == (17_000_005_000, frame)


# ---- what is no capture -------------------------------------------------------------------------------------------


def refusal_of(path: Path, tmp_path: Path) -> str:
    out = tmp_path / "out.pcapng"
    with pytest.raises(UsageError) as caught:
        explain_file(path, NO_RUN, out=str(out))
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    assert not list(tmp_path.glob("*.part"))
    return str(caught.value)


def packets_of(path: Path) -> int | str:
    """Return the number of packets in a file, or the error that stops the reader."""
    try:
        with closing(capture_reader.CaptureReader(path)) as reader:
            return len(list(reader))
    except capture_reader.CaptureFileError as error:
        return str(error)


@pytest.mark.parametrize("make", [pcap, pcapng])
def test_cut_off_anywhere__is_noticed(tmp_path, make):
    """A cut leaves a good file at the end of a packet alone, one of fewer packets."""
    whole_bytes, cut = make(tmp_path / "whole", snap=20).read_bytes(), tmp_path / "cut"
    results = []
    for size in range(len(whole_bytes)):
        cut.write_bytes(whole_bytes[:size])
        results.append(packets_of(cut))
    packet_counts = [result for result in results if isinstance(result, int)]
    assert set(packet_counts) == {0, 1, 2} and (make is pcapng or len(packet_counts) == 3)
    error_texts = [result for result in results if isinstance(result, str)]
    assert all("cut off or damaged after packet" in text or "no capture file" in text for text in error_texts)
    assert not any("\n" in text for text in error_texts)


def test_cut_off__keeps_the_packets_before(tmp_path):
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(pcap(tmp_path / "whole.pcap").read_bytes()[:-5])
    refusal = refusal_of(cut, tmp_path)
    assert "cut off or damaged after packet 2" in refusal and refusal.endswith(
        f"those before are in {tmp_path}/out.pcapng"
    )
    assert len(list(capture_reader.CaptureReader(tmp_path / "out.pcapng"))) == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no capture file"),
        (b"\x0a", "no capture file"),
        (b"# a text, and long enough for a header of any kind\n", "no capture file"),
        (gzip.compress(b"x" * 100, mtime=0), "no capture file"),
        (b"\x28\xb5\x2f\xfd" + bytes(20), "unpack it with unzstd first"),
        (struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1), "no packet of MRC among its first 0"),
        (
            struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 105) + struct.pack("<IIII", 1, 1, 4, 4) + b"abcd",
            "not read: 1 packets of link type 105 (802.11) (readable: Ethernet, Linux cooked",
        ),
        (struct.pack("<IIIHHq", 0x0A0D0D0A, 0xFFFFFFF0, 0x1A2B3C4D, 1, 0, -1), "no capture file"),
        (
            struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28) + struct.pack("<II", 6, 0xFFFFFFF0),
            "after packet 0 (a block of 4294967280 bytes)",
        ),
    ],
)
def test_no_capture__one_line(tmp_path, content, words):
    (tmp_path / "a.pcap").write_bytes(content)
    assert words in refusal_of(tmp_path / "a.pcap", tmp_path)
    assert not (tmp_path / "out.pcapng").exists()


def test_foreign_capture__says_so_and_leaves_nothing(tmp_path):
    assert "no packet of MRC among its first 2" in refusal_of(pcap(tmp_path / "a.pcap", [bytes(60)] * 2), tmp_path)
    assert not (tmp_path / "out.pcapng").exists()


def test_junk__of_a_gigabyte_is_given_up_early(tmp_path, monkeypatch):
    """Behind the header of a pcap zeros are packets without bytes; the file is sparse."""
    monkeypatch.setattr(explained_file, "FOREIGN_MAX", 1000)
    junk = tmp_path / "junk.pcap"
    junk.write_bytes(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1))
    os.truncate(junk, 1 << 30)
    assert "no packet of MRC among its first 1001" in refusal_of(junk, tmp_path)
    assert not (tmp_path / "out.pcapng").exists()


def test_names__that_cannot_be(tmp_path):
    capture = pcap(tmp_path / "a.pcap")
    for words, keys in (
        ("the capture itself", {"out": str(tmp_path / "." / "a.pcap")}),
        ("No such file", {"out": str(tmp_path / "none" / "b.pcapng")}),
        ("--plan", {"plan": capture}),
        ("--plan", {"plan": tmp_path / "none.json"}),
    ):
        with pytest.raises(UsageError, match=words):
            explain_file(capture, NO_RUN, **keys)
    with pytest.raises(UsageError, match="No such file"):
        explain_file(tmp_path / "none.pcap", NO_RUN)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(st.sampled_from([pcap, pcapng]), st.data())
def test_any_damage__is_explained_or_refused(tmp_path, make, data):
    content = bytearray(make(tmp_path / "good.pcap").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "bad.pcap").write_bytes(content)
    with suppress(UsageError):
        explain_file(tmp_path / "bad.pcap", NO_RUN, out=str(tmp_path / "out.pcapng"))


def test_command__to_standard_output_and_a_mistake(tmp_path):
    capture = pcap(tmp_path / "a.pcap")
    (tmp_path / "plan.json").write_text(json.dumps(Plan(2, 2, 2, 1).to_json()))
    env = {**os.environ, "MRC_RUN_DIR": str(tmp_path / "run"), "PYTHONPATH": str(ROOT)}

    argv = [
        sys.executable,
        "-m",
        "mrc_testbed",
        "pcap",
        str(capture),
        "--explain",
        "--plan",
        str(tmp_path / "plan.json"),
    ]
    success = subprocess.run([*argv, "--out", "-"], env=env, capture_output=True, timeout=60, check=False)
    assert (
        success.returncode == 0
        and success.stdout.startswith(b"\x0a\x0d\x0d\x0a")
        and b"MRC: h0 > h1 by EV" in success.stdout
    )
    assert b"2 of 3 packets" in success.stderr
    failure = subprocess.run([*argv, "--count", "3"], env=env, capture_output=True, timeout=60, check=False)
    assert failure.returncode == 1 and b"leave out --count" in failure.stderr and failure.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (["a.pcap"], "--explain comments its packets"),
        (["--install-dissector", "h0"], r"stand alone: leave out PORT\|NODE\|FILE"),
        (["--install-dissector", "--uninstall-dissector"], "stand alone: leave out --uninstall-dissector"),
        ([], "give a port, switch or host"),
        (["h0", "--plan", "x.json"], "has its own plan: leave out --plan"),
        (["a.pcap", "--explain", "--out", "-", "--json"], "both want standard output"),
    ],
)
def test_options__that_do_not_go_together(words, cure):
    with pytest.raises(UsageError, match=cure):
        CliRunner().invoke(app, ["pcap", *words], catch_exceptions=False)
