"""Capture files, and `mrc pcap` on ports of a stand-in fabric and of a live one."""

from __future__ import annotations

import io
import json
import os
import re
import select
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from mrc_testbed.capture import packet_files, pcap
from mrc_testbed.capture.packet_files import INBOUND, OUTBOUND, CapturedPacket, PacketReader, PcapFile, PcapngFile
from mrc_testbed.cli.prompt import commands as words
from mrc_testbed.errors import UsageError
from mrc_testbed.hosts.dissector import tshark
from mrc_testbed.topologies.plan import Plan
from tests.cables import wait_until_up
from tests.repository import ROOT

PLAN = Plan(2, 2, 2, 1)
FRAMES = [CapturedPacket(1_700_000_000_123_456_789 + n, bytes([n]) * (60 + n), 60 + n) for n in range(5)]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: packet sockets")
needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


def read_fields(path: Path, *options: str) -> list[list[str]]:
    process = tshark(path, "-T", "fields", *options)
    assert process.returncode == 0 and "Lua Error" not in process.stdout + process.stderr, process.stderr
    return [line.split("\t") for line in process.stdout.splitlines()]


def test_pcap_file__bytes(tmp_path):
    with (tmp_path / "a.pcap").open("wb") as out:
        PcapFile(out).write(CapturedPacket(1_000_000_002_000_000_003, b"frame", 9))
    assert (tmp_path / "a.pcap").read_bytes() == (
        bytes.fromhex("4d3cb2a1 0200 0400 00000000 00000000 00000400 01000000")
        + struct.pack("<IIII", 1_000_000_002, 3, 5, 9)
        + b"frame"
    )


@needs_tshark
def test_files__read_by_tshark_to_the_nanosecond(tmp_path):
    with (tmp_path / "a.pcap").open("wb") as pcap_stream, (tmp_path / "b.pcapng").open("wb") as pcapng_stream:
        pcap_file, pcapng_file = PcapFile(pcap_stream), PcapngFile(pcapng_stream, ["p0-t0-0-eth1", "x"])
        for n, packet in enumerate(FRAMES):
            pcap_file.write(packet)
            pcapng_file.write(packet, n % 2, (INBOUND, OUTBOUND)[n % 2])
    expected_rows = [[f"{p.at_ns // 10**9}.{p.at_ns % 10**9:09}", str(p.length)] for p in FRAMES]
    assert read_fields(tmp_path / "a.pcap", "-e", "frame.time_epoch", "-e", "frame.len") == expected_rows
    rows = read_fields(
        tmp_path / "b.pcapng",
        "-e",
        "frame.time_epoch",
        "-e",
        "frame.len",
        "-e",
        "frame.interface_name",
        "-e",
        "frame.packet_flags_direction",
    )
    assert [row[:2] for row in rows] == expected_rows
    assert [row[2] for row in rows] == ["p0-t0-0-eth1", "x"] * 2 + ["p0-t0-0-eth1"]
    assert [int(row[3], 0) for row in rows] == [1, 2, 1, 2, 1]


# ---- which ports ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "interfaces"),
    [
        ("p1-t0-0-eth3", ["p1-t0-0-eth3"]),
        ("h0-eth1", ["h0-eth1"]),
        ("h1", ["h1-eth0", "h1-eth1"]),
        ("p0-t1-1", ["p0-t1-1-eth1", "p0-t1-1-eth2"]),
    ],
)
def test_ports_of(name, interfaces):
    assert [port.interface for port in pcap.ports_of(PLAN, name)] == interfaces


@pytest.mark.parametrize(
    ("name", "words"),
    [("p1-t0-0-eth9", "did you mean"), ("h7", "did you mean h"), ("quux", "such as"), ("", "such as")],
)
def test_ports_of__unknown_name_lists_what_would_do(name, words):
    with pytest.raises(UsageError, match=words):
        pcap.ports_of(PLAN, name)


def test_far_end__of_each_port_of_a_cable():
    for link in PLAN.links:
        assert pcap.far_end(PLAN, link.lower) == link.upper and pcap.far_end(PLAN, link.upper) == link.lower


def test_running_plan__no_fabric_and_nonsense(tmp_path):
    with pytest.raises(UsageError, match="no fabric is running"):
        pcap.running_plan(tmp_path)
    (tmp_path / "plan.json").write_text("[]")
    with pytest.raises(UsageError, match=r"plan\.json"):
        pcap.running_plan(tmp_path)


@needs_root
def test_capture__a_fabric_that_is_gone(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(PLAN.to_json()))
    with pytest.raises(UsageError, match="its agent does not answer"):
        pcap.capture("h0-eth0", tmp_path, out=str(tmp_path / "x.pcap"))


@pytest.mark.parametrize(
    ("stamps", "times"), [([None, None, 5, 6, None], [5, 5, 5, 6, 9]), ([None], [9]), ([1, 2], [1, 2]), ([], [])]
)
def test_arrival_times__of_frames_that_came_before_the_kernel_stamped(stamps, times):
    """Such frames have the time of their reading: later than their successors'."""
    assert packet_files.arrival_times(stamps, 9) == times


# ---- live -------------------------------------------------------------------------------------------------------


@pytest.fixture
def cable():
    """The two ends of a veth pair of our own."""
    a, b = f"zzr{os.getpid()}a", f"zzr{os.getpid()}b"
    subprocess.run(["ip", "link", "add", a, "type", "veth", "peer", "name", b], check=True)
    try:
        for end in (a, b):
            Path(f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6").write_text("1")
            subprocess.run(["ip", "link", "set", end, "up"], check=True)
        wait_until_up(a, b)
        yield a, b
    finally:
        subprocess.run(["ip", "link", "del", a], check=False, capture_output=True)


def sender(interface: str, bypass: bool) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.setsockopt(263, 20, int(bypass))  # PACKET_QDISC_BYPASS
    sock.bind((interface, 0))
    return sock


def gather(reader: PacketReader, count: int) -> list[CapturedPacket]:
    """Return `count` packets; what the kernel has in its hands may come a little later."""
    got: list[CapturedPacket] = []
    while len(got) < count and select.select([reader], [], [], 10.0)[0]:
        got += reader.read()
    return got


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("bypass", [False, True])
def test_reader__sees_what_arrives_and_only_that(cable, bypass):
    a, b = cable
    near_reader, far_reader = PacketReader(a), PacketReader(b)
    frames = [bytes(12) + b"\x88\xb5" + bytes([n]) * 1000 for n in range(10)]
    with sender(a, bypass) as out:
        for frame in frames:
            out.send(frame)
    got = gather(far_reader, len(frames))
    assert [packet.frame for packet in got] == frames and near_reader.read() == []
    assert [packet.at_ns for packet in got] == sorted(packet.at_ns for packet in got)
    assert not far_reader.gone()
    subprocess.run(["ip", "link", "set", b, "down"], check=True)
    assert far_reader.read() == [] and not far_reader.gone()
    subprocess.run(["ip", "link", "del", a], check=True)
    assert far_reader.read() == [] and far_reader.gone()
    near_reader.close()
    far_reader.close()


@pytest.mark.root
@needs_root
def test_reader__keeps_only_what_it_is_asked_to(cable):
    a, b = cable
    reader = PacketReader(b, 64)
    with sender(a, False) as out:
        out.send(bytes(500))
    (packet,) = gather(reader, 1)
    assert (len(packet.frame), packet.length, reader.count_lost()) == (64, 500, 0)
    reader.close()


@pytest.mark.root
@needs_root
@needs_tshark
def test_mrc_pcap__packets_of_a_live_fabric(tmp_path):
    """A transfer crosses a small fabric.

    A switch port, a host port and a host are captured and read by tshark.
    """
    from mrc_testbed.topologies.lab.fabric import Fabric
    from mrc_testbed.topologies.lab.options import LabOptions, Ports

    ports = Ports(p4runtime=29657, gnmi=29437)
    run_dir = tmp_path / "run"
    env = {**os.environ, "MRC_RUN_DIR": str(run_dir), "PYTHONPATH": str(ROOT)}
    file = tmp_path / "random.bin"
    file.write_bytes(os.urandom(2_000_000))
    # h0's first port; the T0 uplink that its packets of plane 1 leave by; all ports of the host they go to
    captures = {"h0-eth0": "h0.pcap", "p1-t0-0-eth2": "t0.pcap", "h1": "h1.pcapng"}
    with Fabric(PLAN, LabOptions(ports=ports, mapper=False), run_dir) as fabric:
        running = []
        for interface, name in captures.items():
            argv = [
                sys.executable,
                "-m",
                "mrc_testbed",
                "pcap",
                interface,
                "--out",
                str(tmp_path / name),
                "--snaplen",
                "256",
            ]
            argv += ["--explain"] if name.endswith(".pcapng") else []
            running.append(subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True))
            assert running[-1].stderr.readline().startswith("capturing "), running[-1].stderr.read()
        agent = fabric.agent("h0")
        transfer = agent.request("send_file", path=str(file), peer="h1")["transfer"]
        assert agent.request("wait", transfer=transfer, timeout_s=60.0)["state"] == "done"
        for process in running[:2]:
            process.terminate()
        transfer = agent.request("send_file", path=str(file), peer="h1", rate_bps=2e6)[
            "transfer"
        ]  # 8 s, in which a capture begins on any machine
        output = io.StringIO()
        session = words.CliSession(fabric, output)
        capture = words.WORDS["capture"].run
        capture(session, ["p0-t1-0", "--count", "20", "--out", str(tmp_path / "word.pcapng")])
        assert "20 packets of 2 ports" in output.getvalue()
        with pytest.raises(words.CommandError, match="exit code"):
            capture(session, ["p0-t9-0", "--count", "20"])
        assert "no port or node 'p0-t9-0'" in output.getvalue() and "Traceback" not in output.getvalue()
        assert agent.request("wait", transfer=transfer, timeout_s=60.0)["state"] == "done"
        reports = [process.communicate(timeout=30)[1] for process in running[:2]]
        assert all(process.returncode == 0 for process in running[:2]), reports
    reports.append(running[2].communicate(timeout=30)[1])  # ended by itself, with the fabric
    assert all("packets of" in text for text in reports), reports

    fields = ("_ws.col.Protocol", "_ws.col.Info", "usid.path", "mrc.ev.plane", "frame.interface_name", "mrc.psn")
    rows = {
        interface: read_fields(tmp_path / name, *(word for field in fields for word in ("-e", field)))
        for interface, name in captures.items()
    }
    for interface, lines in rows.items():
        assert lines and {line[0] for line in lines} == {"MRC"}, interface
        info = [line[1] for line in lines]
        assert any(text.startswith("WRITE_") for text in info), interface
    opcodes = [line[1].split()[0] for line in rows["h0-eth0"]]
    assert "SACK" in opcodes, "packets of both directions"
    assert {line[3] for line in rows["h0-eth0"]} == {"0"} and {line[3] for line in rows["p1-t0-0-eth2"]} == {"1"}
    assert {line[4] for line in rows["h1"]} == {"h1-eth0", "h1-eth1"}
    comments = [line[0] for line in read_fields(tmp_path / "h1.pcapng", "-e", "frame.comment")]
    write = re.compile(r"MRC: h0 > h1 by EV 0x010[01]: p1-t0-0, p1-t1-[01], p1-t0-1; WRITE_")
    assert len(comments) == len(rows["h1"]) and all(text.startswith("MRC: h") for text in comments)
    assert any(map(write.match, comments))
    queue = re.compile(r"; queue of p[01]-t0-1-eth1: \d+ bytes, \d+\.\d ms before")
    queue_comments = [text for text in comments if queue.search(text)]
    assert queue_comments and not any("SACK" in text for text in queue_comments), "told of what waits in the data queue"
    assert any(re.search(r"SACK, .* triggered by frame \d+ \(PSN", text) for text in comments)
    sent_paths = [line[2] for line in rows["h0-eth0"] if line[1].startswith("WRITE_")]
    assert {path.split(", ")[0] for path in sent_paths} == {"T0 0"}, "as the host sends it: the whole path is left"
    at_t0 = {line[2].split(", ")[0] for line in rows["p1-t0-0-eth2"] if line[1].startswith("WRITE_")}
    assert at_t0 <= {"T1 0", "T1 1"}, "behind the T0: its uSID is spent"


def test_mrc_pcap__mistakes_cost_one_line(tmp_path):
    env = {**os.environ, "MRC_RUN_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "mrc_testbed", "pcap", "h0"]
    process = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode != 0 and "Traceback" not in process.stderr
    assert ("no fabric is running" if os.geteuid() == 0 else "needs root") in process.stderr
