"""The kernel's filter by QPN: its program run by hand on frames, and on a real socket."""

from __future__ import annotations

import os
import socket
import struct
import subprocess

import pytest

from hosts.nic.qpns import keep, program


def run(code: bytes, frame: bytes) -> bool:
    """What the kernel does with a classic BPF program of these instructions."""
    at, a, x = 0, 0, 0
    while True:
        what, true, false, k = struct.unpack_from("=HBBI", code, at * 8)
        at += 1
        if what == 0x80:
            a = len(frame)
        elif what == 0x30:
            a = frame[k]
        elif what == 0x40:
            if x + k + 4 > len(frame):
                return False
            a = int.from_bytes(frame[x + k : x + k + 4], "big")
        elif what == 0x01:
            x = k
        elif what == 0x07:
            x = a
        elif what == 0x04:
            a += k
        elif what == 0x64:
            a <<= k
        elif what == 0x54:
            a &= k
        elif what == 0x06:
            return bool(k)
        else:
            holds = {0x15: a == k, 0x25: a > k, 0x35: a >= k}[what]
            at += true if holds else false


def frame(qpn: int, length: int = 158, next_header: int = 41) -> bytes:
    """Ethernet, outer and inner IPv6, UDP, BTH to that QPN."""
    out = bytearray(length)
    out[12:14], out[20] = b"\x86\xdd", next_header
    out[102:110] = b"\xca\x00\xff\xff\xa5" + qpn.to_bytes(3, "big")
    return bytes(out[:length])


def with_srh(qpn: int, segments: int) -> bytes:
    """The same with a segment routing header of that many segments."""
    plain = frame(qpn)
    srh = bytes((41, 2 * segments, 4, 0)) + bytes(4 + 16 * segments)
    return plain[:20] + b"\x2b" + plain[21:54] + srh + plain[54:]


def without_outer(qpn: int) -> bytes:
    """As it travels in the other modes."""
    out = frame(qpn, next_header=17)
    return out[:54] + out[94:]


@pytest.mark.parametrize("strays", [True, False])
def test_program__takes_its_qpns_endpoint_operations_and_strays_if_asked(strays):
    code = program(0x30000, 0x3FFFF, strays)
    for qpn in (2, 0x30000, 0x3ABCD, 0x3FFFF):
        assert run(code, frame(qpn))
    for qpn in (0, 1, 3, 0x2FFFF, 0x40000, 0xFFFFFF):
        assert not run(code, frame(qpn))
    for segments in (0, 1, 3):
        assert run(code, with_srh(0x3ABCD, segments)) and not run(code, with_srh(0x40000, segments))
    assert not run(code, with_srh(0x3ABCD, 100)[:200])  # a header longer than the frame
    for stray in (frame(7, next_header=17), frame(7, length=109), b"", bytes(20), bytes(14)):
        assert run(code, stray) is strays


@pytest.mark.parametrize("strays", [True, False])
def test_program__without_an_outer_header(strays):
    code = program(0x30000, 0x3FFFF, strays, outer=False)
    for qpn in (2, 0x30000, 0x3FFFF):
        assert run(code, without_outer(qpn))
    for qpn in (0, 3, 0x2FFFF, 0x40000):
        assert not run(code, without_outer(qpn))
    for stray in (frame(0x3ABCD), without_outer(0x3ABCD)[:69], b""):
        assert run(code, stray) is strays


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a veth pair and packet sockets")
def test_keep__the_kernel_agrees():
    names = [f"zzq{os.getpid() % 100000}{end}" for end in "ab"]
    subprocess.run(["ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1]], check=True)
    sockets = []
    try:
        for name in names:
            subprocess.run(["ip", "link", "set", name, "addrgenmode", "none", "up"], check=True)
            opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            sockets.append(opened)
            opened.settimeout(10.0)
        keep(sockets[1].fileno(), range(0x10000, 0x20000), outer=True)
        for opened, name in zip(sockets, names, strict=True):
            opened.bind((name, 0x86DD))
        for qpn in (5, 0x10001, 0x20000, 2, 0x1FFFF):
            sockets[0].send(frame(qpn))
        got = [int.from_bytes(sockets[1].recv(2000)[107:110], "big") for _ in range(3)]
        assert got == [0x10001, 2, 0x1FFFF]
    finally:
        for opened in sockets:
            opened.close()
        subprocess.run(["ip", "link", "del", names[0]], check=True)
