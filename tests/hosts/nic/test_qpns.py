"""QPNs: the kernel's filter, run by hand on frames and on a real socket; the QPNs of an endpoint."""

from __future__ import annotations

import os
import socket
import struct
import subprocess

import pytest

from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.nic.qpns import AGENT_QPNS, keep, program
from tests.cables import wait_until_up
from tests.hosts.engine.engine_pair import MTU, Pair


def run(code: bytes, frame: bytes) -> bool:
    """Return whether a classic BPF program accepts a frame, run as the kernel does."""
    index, a, x = 0, 0, 0
    while True:
        opcode, jump_true, jump_false, k = struct.unpack_from("=HBBI", code, index * 8)
        index += 1
        if opcode == 0x80:
            a = len(frame)
        elif opcode == 0x30:
            a = frame[k]
        elif opcode == 0x40:
            if x + k + 4 > len(frame):
                return False
            a = int.from_bytes(frame[x + k : x + k + 4], "big")
        elif opcode == 0x48:
            if x + k + 2 > len(frame):
                return False
            a = int.from_bytes(frame[x + k : x + k + 2], "big")
        elif opcode == 0x01:
            x = k
        elif opcode == 0x07:
            x = a
        elif opcode == 0x04:
            a += k
        elif opcode == 0x64:
            a <<= k
        elif opcode == 0x54:
            a &= k
        elif opcode == 0x06:
            return bool(k)
        else:
            # A jump: JEQ, JGT or JGE of the accumulator and a constant
            holds = {0x15: a == k, 0x25: a > k, 0x35: a >= k}[opcode]
            index += jump_true if holds else jump_false


def frame(qpn: int, length: int = 158, next_header: int = 41) -> bytes:
    """Return a frame to that QPN: Ethernet, outer and inner IPv6, UDP, BTH."""
    out = bytearray(length)
    out[12:14], out[20] = b"\x86\xdd", next_header
    out[102:110] = b"\xca\x00\xff\xff\xa5" + qpn.to_bytes(3, "big")
    return bytes(out[:length])


def with_srh(qpn: int, segments: int) -> bytes:
    """Return the frame with a segment routing header of that many segments."""
    plain = frame(qpn)
    srh = bytes((41, 2 * segments, 4, 0)) + bytes(4 + 16 * segments)
    return plain[:20] + b"\x2b" + plain[21:54] + srh + plain[54:]


def without_outer(qpn: int) -> bytes:
    """Return the frame as it travels in the other modes."""
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
            packet_socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            sockets.append(packet_socket)
            packet_socket.settimeout(10.0)
        wait_until_up(*names)
        keep(sockets[1].fileno(), range(0x10000, 0x20000), outer=True)
        for packet_socket, name in zip(sockets, names, strict=True):
            packet_socket.bind((name, 0x86DD))
        for qpn in (5, 0x10001, 0x20000, 2, 0x1FFFF):
            sockets[0].send(frame(qpn))
        got = [int.from_bytes(sockets[1].recv(2000)[107:110], "big") for _ in range(3)]
        assert got == [0x10001, 2, 0x1FFFF]
    finally:
        for packet_socket in sockets:
            packet_socket.close()
        subprocess.run(["ip", "link", "del", names[0]], check=True)


# ---- which QPNs an endpoint gives -------------------------------------------------------------------------------


def first_qpns(seed: int, count: int = 3) -> list[int]:
    end = Endpoint("h0", planes=1, seed=seed, qpns=AGENT_QPNS)
    return [end.create_qp().qpn for _ in range(count)]


def test_qpns__an_endpoint_made_anew_begins_elsewhere_and_a_seed_repeats():
    lives = [first_qpns(seed) for seed in range(200)]
    assert lives == [first_qpns(seed) for seed in range(200)], "virtual time: the same seed, the same run"
    assert len({qpns[0] for qpns in lives}) > 190
    assert max(qpns[0] for qpns in lives) - min(qpns[0] for qpns in lives) > len(AGENT_QPNS) / 2
    assert all(qpn in AGENT_QPNS for qpns in lives for qpn in qpns)


def test_qpns__count_from_the_one_named():
    end = Endpoint("h0", planes=1, seed=1, qpns=range(3, 13), first_qpn=11)
    assert [end.create_qp().qpn for _ in range(4)] == [11, 12, 3, 4]
    with pytest.raises(LocalError, match="first_qpn = 13: not in 3 to 12"):
        Endpoint("h0", planes=1, seed=1, qpns=range(3, 13), first_qpn=13)


def test_qpns__come_back_as_late_as_they_can():
    end = Endpoint("h0", planes=1, seed=1, qpns=range(3, 13))
    live_qp, qpns = end.create_qp(), []
    for _ in range(9):
        qp = end.create_qp()
        qpns.append(qp.qpn)
        end.destroy_qp(qp.qpn)
    assert sorted((*qpns, live_qp.qpn)) == list(range(3, 13))
    assert end.create_qp().qpn == qpns[0]
    while len(end._qps) < 10:
        end.create_qp()
    with pytest.raises(LocalError, match="all 10 QPNs are in use"):
        end.create_qp()


def test_packets__of_an_earlier_life_are_dropped_and_counted():
    """b is killed in mid-transfer and starts anew: what a still sends to the old QP finds none."""
    pair = Pair(psn=0)
    pair.write(pair.bytes(4 * MTU))
    pair.flush()
    late_packets = [line.packet for line in pair.sent()]
    restarted_endpoint = Endpoint("b", planes=2, seed=77)
    memory = bytearray(1 << 16)
    restarted_endpoint.register(memory, va=pair.region.va)
    qp = restarted_endpoint.create_qp()
    qp.connect("a", pair.a.qp.attributes(), pair.evs, 1.0)
    for packet in late_packets:
        restarted_endpoint.receive(packet, 0, "a", 1.0)
    assert qp.qpn != pair.b.qp.qpn and restarted_endpoint.unclaimed_packets == len(late_packets) > 0
    assert qp.counters.packets_received == qp.counters.nacks_sent == 0 and not any(memory)
