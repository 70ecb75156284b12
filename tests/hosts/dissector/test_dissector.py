"""mrc.lua in a real tshark: Annex A, every kind of record, trimmed packets, carrier, hostile bytes."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mrc_testbed.capture.packet_files import CapturedPacket, PcapFile
from mrc_testbed.hosts.clustermapper.packets import UDP_PORT
from mrc_testbed.hosts.dissector import SCRIPT, generate, tshark
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.rocev2.rc_packets import RcOpcode, RcWrite
from mrc_testbed.hosts.engine.wire.codec import Addressing, Codec
from mrc_testbed.hosts.engine.wire.packets import (
    EndpointOp,
    EndpointRequest,
    EndpointResponse,
    Nack,
    NackReason,
    Opcode,
    ReliabilityProbe,
    Sack,
    Syndrome,
    TransportAck,
    Verdict,
    Write,
)
from mrc_testbed.hosts.nic.encapsulation import Encapsulation
from mrc_testbed.hosts.nic.ip_packet import IpPacket
from mrc_testbed.topologies.plan import Plan
from tests.hosts.ip.test_flows import ip4
from tests.hosts.nic.test_ip_packet import wire_frame
from tests.repository import ROOT

needs_tshark = pytest.mark.skipif(
    shutil.which("tshark") is None, reason="tshark is not installed: apt-get install --no-install-recommends tshark"
)
WIRE = {
    k: bytes.fromhex(v)
    for k, v in json.loads((Path(__file__).parents[1] / "engine" / "wire" / "annex_a.json").read_text()).items()
}
ADDRESSING = Addressing(ip_address("fd00:1::a").packed, ip_address("fd00:2::b").packed)
EV = 0x00010305
HEAD = (0x123, EV, 3, 4, 2)
CODEC = Codec()
ETHERNET = bytes.fromhex("0200000000020200000000 01".replace(" ", ""))


def ethernet(inner: bytes) -> bytes:
    return ETHERNET + (b"\x86\xdd" if inner[0] >> 4 == 6 else b"\x08\x00") + inner


def encode_inner(record: Any, codec: Codec = CODEC) -> bytes:
    return codec.encode(record, ADDRESSING).join()


def run_tshark(path: Path, frames: list[bytes], *options: str, snap: int = 1 << 18) -> str:
    """Return tshark's output over a capture of `frames`; fails on any Lua error."""
    with path.open("wb") as capture_file:
        file = PcapFile(capture_file)
        for number, frame in enumerate(frames):
            file.write(CapturedPacket(10**18 + number, frame[:snap], len(frame)))
    process = tshark(path, *options)
    assert process.returncode == 0, process.stderr
    assert "Lua Error" not in process.stdout + process.stderr and "lua:" not in process.stderr, (
        process.stdout + process.stderr
    )
    return process.stdout


@pytest.fixture
def rows(tmp_path):
    """Call with frames and field names: a list per frame of {field: list of values}."""

    def run(frames: list[bytes], *fields: str) -> list[dict[str, list[str]]]:
        options = [word for field in fields for word in ("-e", field)]
        text = run_tshark(tmp_path / "made.pcap", frames, "-T", "fields", "-E", "separator=/t", *options)
        lines = text.split("\n")[: len(frames)]
        values = [line.split("\t") for line in lines]
        return [{f: v.split(",") if v else [] for f, v in zip(fields, line, strict=True)} for line in values]

    return run


def texts(tmp_path: Path, frames: list[bytes], *options: str, snap: int = 1 << 18) -> list[str]:
    """Return the one-line text of each frame: protocol and Info."""
    text = run_tshark(
        tmp_path / "made.pcap",
        frames,
        "-T",
        "fields",
        "-e",
        "_ws.col.Protocol",
        "-e",
        "_ws.col.Info",
        *options,
        snap=snap,
    )
    return text.splitlines()


# ---- tables -----------------------------------------------------------------------------------------------------


def test_tables__are_those_of_the_engine():
    script = SCRIPT.read_text()
    assert generate.with_tables(script) == script, "run `python -m mrc_testbed.hosts.dissector.generate`"


def test_with_tables__names_what_is_missing():
    with pytest.raises(ValueError, match="BEGIN generated"):
        generate.with_tables("-- nothing")


@needs_tshark
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
@pytest.mark.parametrize("sudo_uid", [None, 4711])
def test_tshark__never_runs_as_root(tmp_path, monkeypatch, sudo_uid):
    """tshark 4.4 loads no Lua script as root.

    The user behind sudo, else nobody, need not be able to read our files.
    """
    for name in ("SUDO_UID", "SUDO_GID"):
        monkeypatch.delenv(name, raising=False)
        if sudo_uid is not None:
            monkeypatch.setenv(name, str(sudo_uid))
    started_options, popen = [], subprocess.Popen

    def record_popen(*words, **keys):
        started_options.append(keys)
        return popen(*words, **keys)

    monkeypatch.setattr(subprocess, "Popen", record_popen)
    private_folder = tmp_path / "hidden"
    private_folder.mkdir(mode=0o700)
    assert texts(private_folder, [ethernet(WIRE["C"])])[0].startswith("MRC\tSACK")
    (keys,) = started_options
    assert keys["user"] == (sudo_uid or pwd.getpwnam("nobody").pw_uid) and keys["group"] and keys["extra_groups"] == ()


# ---- values -----------------------------------------------------------------------------------------------------


def fields_of(opcode: Opcode, inner: bytes) -> dict[str, int]:
    """Return {mrc.header.field: value} of all unreserved fields that headers.py reads in a packet."""
    from mrc_testbed.hosts.engine.wire.headers import BTH, CONTROL_HEADERS, write_headers

    offset = (40 if inner[0] >> 4 == 6 else 20) + 8
    bth = BTH.unpack(inner, offset)
    layouts = write_headers(opcode, bool(bth["ts"])) if opcode.name.startswith("WRITE") else CONTROL_HEADERS[opcode]
    fields = {}
    for layout in (BTH, *layouts):
        for name, value in layout.unpack(inner, offset).items():
            if not name.startswith("res") or name == "restore_cwnd":
                if name in ("ack_psn_offset", "sack_offset") and value >= 1 << 15:
                    value -= 1 << 16
                fields[f"mrc.{layout.name.lower()}.{name}"] = value
        offset += layout.size
    return fields


def number(text: str) -> int:
    words = {"True": 1, "False": 0}
    return words[text] if text in words else int(text, 0)


@needs_tshark
def test_annex_a__every_field_as_layouts_reads_it(rows):
    expected_fields = {}
    for name, inner in WIRE.items():
        opcode = Opcode(inner[28 if inner[0] >> 4 == 4 else 48])
        expected_fields[name] = fields_of(opcode, inner)
    names = sorted(set().union(*expected_fields.values()))
    got = rows([ethernet(inner) for inner in WIRE.values()], *names, "mrc.icrc.good", "mrc.ev", "mrc.icrc")
    for (name, inner), row in zip(WIRE.items(), got, strict=True):
        dissected_fields = {f: number(v[0]) for f, v in row.items() if v and f in expected_fields[name]}
        assert dissected_fields == expected_fields[name], name
        assert not [f for f, v in row.items() if v and f in names and f not in expected_fields[name]], name
        assert row["mrc.icrc.good"][0] in ("1", "True"), name
        assert number(row["mrc.icrc"][0]) == int.from_bytes(inner[-4:], "little")
        assert number(row["mrc.ev"][0]) == (EV & 0xFFFF if name == "K" else EV)


RECORDS = [
    *(
        Write(*HEAD, opcode, 5, 7, 0x1000, 9, 64, b"x" * size, 200 + size, 1, 2, timestamp, 1, True, True)
        for opcode in Opcode
        if opcode.name.startswith("WRITE")
        for size, timestamp in ((8, None), (5, 77))
    ),
    *(Sack(*HEAD, 10, 1, 0b1011, 4, None, EV, verdict, 3, 4, 5, 6, 7, True) for verdict in Verdict),
    Sack(*HEAD, 0xFFFFFE, 1, 1 << 63 | 1, -3, None, EV, 3, 3, 4),
    Sack(*HEAD, 10, -100, 0, 0, 0x77, EV, 0, 3, 4),
    *(Nack(*HEAD, 5, reason, EV, 3) for reason in (*NackReason, 0x55)),
    *(TransportAck(*HEAD, 5, syndrome, 6) for syndrome in (*Syndrome, 0x00)),
    ReliabilityProbe(*HEAD, 0x77, 3, 1),
    ReliabilityProbe(*HEAD, 0x77, 3, 1, rtx=True),
    EndpointRequest(2, *HEAD[1:], 0x42, 1, 0, 3, 1, True),
    *(EndpointRequest(2, *HEAD[1:], 0x42, op, mask, 3, 1) for op, mask in ((0, 0xFD), (0, 0), (1, 0), (3, 0))),
    *(EndpointResponse(2, *HEAD[1:], 0x42, op, 3) for op in EndpointOp),
]


@needs_tshark
def test_records__named_in_words(tmp_path):
    lines = texts(tmp_path, [ethernet(encode_inner(record)) for record in RECORDS])
    assert len(lines) == len(RECORDS)
    for record, line in zip(RECORDS, lines, strict=True):
        protocol, info = line.split("\t")
        assert protocol == "MRC", line
        match record:
            case Write():
                assert info.startswith(f"{record.opcode.name} QP 0x123 PSN 5 EV 0x10305 A rtx of 64 bytes")
            case Sack(probe_id=0x77):
                assert "answers probe 0x77" in info
            case Sack(verdict=verdict):
                words = {0: " about", 1: "SKIP_ONCE", 2: "ALWAYS_SKIP", 3: "verdict 3"}
                assert words[verdict] in info
            case Nack(reason=reason):
                assert (reason.name if isinstance(reason, NackReason) else "reason 0x55") in info
            case TransportAck(syndrome=syndrome):
                assert (syndrome.name if isinstance(syndrome, Syndrome) else "syndrome 0x0") in info
            case ReliabilityProbe(rtx=True) | EndpointRequest(rtx=True):
                assert " EV 0x10305 rtx" in info
            case EndpointRequest(op=0, port_mask=0xFD):
                assert info.endswith("request 0x42 EV 0x10305 PORT_STATUS_UPDATE ports up: 0,2,3,4,5,6,7")
            case EndpointRequest(op=0):
                assert info.endswith("ports up: none")
            case EndpointRequest(op=op) | EndpointResponse(op=op):
                assert (EndpointOp(op).name if op < 2 else "op 3") in info


@needs_tshark
def test_sack__bitmap_as_psns_that_wrap(rows):
    sack = Sack(*HEAD, 0xFFFFFE, 1, 1 << 63 | 0b101, -3, None, EV, 1, 3, 4)
    (row,) = rows([ethernet(encode_inner(sack))], "mrc.sack.received_psn", "mrc.sack.trigger_psn", "mrc.sack.received")
    assert [int(v) for v in row["mrc.sack.received_psn"]] == [0xFFFFFF, 1, 62]
    assert row["mrc.sack.trigger_psn"] == [str(0xFFFFFB)] and row["mrc.sack.received"] == ["3"]


@needs_tshark
def test_sack__congestion_state_of_another_type_is_not_read_as_nsccs(rows):
    sack = Sack(*HEAD, 7, 1, 0, 0, None, EV, 0, 3, 4, penalty=5)
    frames = [ethernet(encode_inner(replace(sack, cc_type=cc_type))) for cc_type in (0, 1)]
    nscc, untyped_row = rows(
        frames, "mrc.cc_state.rcv_cwnd_pen", "mrc.cc_other", "mrc.seth.cc_type", "mrc.seth.cack_psn"
    )
    assert nscc["mrc.cc_state.rcv_cwnd_pen"] == ["5"] and not nscc["mrc.cc_other"]
    assert untyped_row["mrc.cc_other"] == ["0003000005000004"] and not untyped_row["mrc.cc_state.rcv_cwnd_pen"]
    assert number(untyped_row["mrc.seth.cc_type"][0]) == 1 and untyped_row["mrc.seth.cack_psn"] == ["7"]


@needs_tshark
def test_ev__any_source_port_is_mrc(rows):
    """514 would be syslog, 53 DNS, 513 who, 67 DHCP: the lower port is asked first."""
    evs = (0x0202, 0x0035, 0x0201, 0x0043, 4791, 0xF00D, 0x12340202, 0)
    frames = [ethernet(encode_inner(replace(RECORDS[0], ev=ev))) for ev in evs]
    packets = rows(frames, "mrc.ev", "mrc.ev.plane", "mrc.ev.uplink")
    assert [[number(row[name][0]) for name in row] for row in packets] == [
        [ev, ev >> 8 & 0xFF, ev & 0xFF] for ev in evs
    ]


@needs_tshark
def test_probe_of_clustermapper__is_bfd_echo_whatever_port_its_ev_looks_like(tmp_path):
    """Test EVs that are ports of other protocols: 513 is who, 514 syslog."""
    frames = []
    for ev in (0, 513, 514):
        udp = ev.to_bytes(2, "big") + UDP_PORT.to_bytes(2, "big") + (8 + 44).to_bytes(2, "big") + bytes(2 + 44)
        frames.append(
            ethernet(bytes.fromhex("60000000") + len(udp).to_bytes(2, "big") + b"\x11\x40" + ADDRESSING.pair + udp)
        )
    assert {line.split("\t")[0] for line in texts(tmp_path, frames)} == {"BFD Echo"}


@needs_tshark
def test_ev_layout_h_and_port_4971(tmp_path):
    codec = Codec(Config.of(ev_layout="H", udp_dport=4971))
    frames = [ethernet(encode_inner(RECORDS[0], codec))]
    assert "EV 0x10305 " in texts(tmp_path, frames, "-o", "mrc.ev_layout:H: high half in the port")[0]


@needs_tshark
@needs_tshark
def test_carried_ip_packet__inner_headers_and_ev_whatever_port_the_ev_looks_like(rows):
    """Test EVs that are ports of other protocols (514: syslog, 5060: SIP): the lower port is asked first."""
    plan = Plan()
    frames = [wire_frame(plan, IpPacket(ev, ip4(), dscp=0)) for ev in (0x0101, 514, 5060, 40000)]
    for row, ev in zip(rows(frames, "mrc.ev", "ip.dst", "tcp.dstport"), (0x0101, 514, 5060, 40000), strict=True):
        assert [int(value, 0) for value in row["mrc.ev"]] == [ev]
        assert row["ip.dst"] == ["10.64.0.3"] and row["tcp.dstport"] == ["80"]


def test_icrc__wrong_is_told(rows):
    damaged_frame = bytearray(ethernet(WIRE["A"]))
    damaged_frame[-1] ^= 1
    (row,) = rows([bytes(damaged_frame)], "mrc.icrc.good", "_ws.expert.message")
    assert row["mrc.icrc.good"][0] in ("0", "False")
    assert any("should be 0x8524cc9e" in text for text in row["_ws.expert.message"])


@needs_tshark
def test_others__go_where_they_went_before(tmp_path):
    """RoCEv2 RC on 4791 is Wireshark's own; a DNS query is DNS."""
    rc = RcWrite(*HEAD, RcOpcode.WRITE_MIDDLE, 5, b"abcd", 100)
    query = bytes.fromhex("000101000001000000000000 03777777 076578616d706c65 00 0001 0001".replace(" ", ""))
    udp = bytes.fromhex("c0000035") + (8 + len(query)).to_bytes(2, "big") + b"\0\0" + query
    ip = bytes.fromhex("60000000") + len(udp).to_bytes(2, "big") + b"\x11\x40" + ADDRESSING.pair
    lines = texts(tmp_path, [ethernet(encode_inner(rc)), ethernet(ip + udp)])
    assert [line.split("\t")[0] for line in lines] == ["RRoCE", "DNS"]
    assert "RDMA Write Middle" in lines[0] and "www.example" in lines[1]


@needs_tshark
@pytest.mark.parametrize("snap", [60, 66, 100, 130])
def test_captures_cut_short__others_do_not_break_us(tmp_path, snap):
    """Hundreds of packets that other dissectors cannot finish, then ours.

    Still ours, inside a carrier and without.
    """
    rc = RcWrite(0x123, 0x0201, 2, 0, 2, RcOpcode.WRITE_MIDDLE, 5, bytes(200), 300)
    query = bytes.fromhex("000101000001000000000000") + b"\x3f" + bytes(300)
    udp = bytes.fromhex("c0000035") + (8 + len(query)).to_bytes(2, "big") + b"\0\0" + query
    dns = ethernet(bytes.fromhex("60000000") + len(udp).to_bytes(2, "big") + b"\x11\x40" + ADDRESSING.pair + udp)
    mrc = Write(0x123, 0x0201, 2, 4, 2, Opcode.WRITE_ONLY, 5, 7, 0x1000, 9, 4, bytes(200), 300)
    frames = [encapsulate(rc), dns, ethernet(encode_inner(rc))] * 250 + [ethernet(encode_inner(mrc)), encapsulate(mrc)]
    lines = texts(tmp_path, frames, snap=snap)
    assert len(lines) == len(frames)
    plain, in_carrier = (line.split("\t")[0] for line in lines[-2:])
    assert (plain == "MRC") == (snap > 62) and (in_carrier == "MRC") == (snap > 102)


# ---- the carrier ------------------------------------------------------------------------------------------------

PLAN = Plan(planes=4, racks=3, spines=6, hosts_per_rack=12)


def encapsulate(record: Any) -> bytes:
    """Return a frame as h1's NIC sends it to h35, rack 2, downlink 11."""
    capsule = Encapsulation(PLAN, PLAN.hosts[1], PLAN.hosts[35], record.plane)
    frame = CODEC.encode(record, capsule.addressing)
    return capsule.outer(record.ev, frame.header[:4], frame.size) + frame.join()


@needs_tshark
def test_carrier__path_in_words(rows, tmp_path):
    frame = encapsulate(Write(0x123, 0x0305, 3, 4, 2, Opcode.WRITE_ONLY, 5, 7, 0x1000, 9, 4, b"abcd", 100))
    (row,) = rows([frame], "usid.path", "usid.plane", "usid.usid", "mrc.ev", "mrc.icrc.good", "mrc.dscp")
    assert ",".join(row["usid.path"]) == "T0 0, T1 5, T0 2, NIC 11"
    assert row["usid.plane"] == ["3"]
    assert [int(v, 0) for v in row["usid.usid"]] == [0x2300, 0x1305, 0x2302, 0x330B]
    assert row["mrc.icrc.good"][0] in ("1", "True") and row["mrc.dscp"] == ["TRIMMABLE"]
    text = run_tshark(tmp_path / "made.pcap", [frame], "-V")
    assert "SRv6 uSID carrier: T0 0, T1 5, T0 2, NIC 11; plane 3" in text


@needs_tshark
def test_carrier__any_list(tmp_path):
    frames = []
    for usids in ("", "2301 1205", "9123 ffff", "2301 1305 2302 330b 2301 1305"):
        frame = bytearray(encapsulate(RECORDS[0]))
        frame[14 + 28 : 14 + 40] = bytes.fromhex(usids).ljust(12, b"\0")
        frames.append(bytes(frame))
    assert [line.split("\t")[0] for line in texts(tmp_path, frames)] == ["MRC"] * len(frames)


# ---- trimmed packets --------------------------------------------------------------------------------------------


@needs_tshark
@pytest.mark.parametrize(("outer", "dscp", "name"), [(True, 12, "TRIMMED"), (False, 16, "TRIMMED_LASTHOP")])
def test_trimmed__read_as_far_as_they_go(tmp_path, outer, dscp, name):
    write = Write(0x123, 0x0305, 3, 4, 2, Opcode.WRITE_FIRST, 5, 7, 0x1000, 9, 8192, bytes(4096), 4200, 0, 0, 77, 1)
    full_frame = bytearray(encapsulate(write) if outer else ethernet(encode_inner(write)))
    full_frame[14] = 0x60 | dscp >> 2
    full_frame[15] = (dscp & 3) << 6 | full_frame[15] & 0x3F
    extra = 40 if outer else 0
    cuts = (98 + extra, 82 + extra, 90 + extra, 138 + extra, 78 + extra)
    lines = texts(tmp_path, [bytes(full_frame[:cut]) for cut in cuts])
    assert all("WRITE_FIRST QP 0x123 PSN 5 EV 0x305" in line and line.endswith(f"[{name}]") for line in lines)
    assert "of 8192 bytes" in lines[0] and "bytes" not in lines[1]


# ---- hostile bytes ----------------------------------------------------------------------------------------------


@needs_tshark
def test_malformed__never_a_lua_error(tmp_path):
    """Cuts at every byte, damage anywhere, random opcodes and lengths: one line each, whatever it says."""
    rng = Random(7)
    frames = []
    for inner in WIRE.values():
        full_frame = ethernet(inner)
        frames += [full_frame[:cut] for cut in range(54, len(full_frame), 3)]
        frames.append(with_random_opcode(inner, 0))
    for record in RECORDS:
        full_frame = encapsulate(replace(record, ev=0x0305, plane=3))
        frames += [full_frame[:cut] for cut in range(90, len(full_frame), 7)]
        for _ in range(8):
            damaged_frame = bytearray(full_frame)
            for _ in range(rng.randrange(1, 6)):
                damaged_frame[rng.randrange(12, len(damaged_frame))] = rng.getrandbits(8)
            frames.append(bytes(damaged_frame))
    for _ in range(300):
        frames.append(with_random_opcode(WIRE["A"], rng.randrange(64), rng))
    assert len(texts(tmp_path, frames)) == len(frames)
    run_tshark(tmp_path / "made.pcap", frames, "-V")


def with_random_opcode(inner: bytes, size: int, rng: Random | None = None) -> bytes:
    """Return an MRC opcode and `size` random bytes after it, with IP and UDP lengths that fit."""
    start = 40 if inner[0] >> 4 == 6 else 20
    rng = rng or Random(1)
    opcode = rng.choice(list(Opcode))
    body = bytes([opcode]) + rng.randbytes(size)
    udp = inner[start : start + 4] + (8 + len(body)).to_bytes(2, "big") + b"\0\0" + body
    if start == 40:
        return ethernet(inner[:4] + len(udp).to_bytes(2, "big") + inner[6:40] + udp)
    return ethernet(inner[:2] + (20 + len(udp)).to_bytes(2, "big") + inner[4:20] + udp)


# ---- documentation ----------------------------------------------------------------------------------------------


@needs_tshark
def test_docs__name_fields_that_exist():
    text = (ROOT / "docs" / "packets.md").read_text()
    document_fields = set(re.findall(r"\b(?:mrc|usid)\.[a-z_]+(?:\.[a-z_]+)?\b", text)) - {"mrc.lua"}
    process = tshark(None, "-G", "fields")
    assert process.returncode == 0, process.stderr
    known_fields = {line.split("\t")[2] for line in process.stdout.splitlines() if line.startswith("F\t")}
    preferences = {"mrc.trimmed_lasthop", "mrc.ev_layout", "mrc.check_icrc"}
    assert len(document_fields) > 20 and document_fields - known_fields - preferences == set()
    assert all(f"prefs.{preference.partition('.')[2]}" in SCRIPT.read_text() for preference in preferences)
