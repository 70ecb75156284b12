"""The scapy layers against bytes written by hand.

Annex A of the mrc-protocol §8.2's carrier, trimmed frames.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from mrc_testbed.hosts.scapy import layers as mrc
from mrc_testbed.hosts.scapy.layers import (
    AETH,
    BTH,
    EETH,
    ERTH,
    ICRC,
    METH,
    NETH,
    PETH,
    RETH,
    SETH,
    TSETH,
    CCState,
    ImmDt,
    USidCarrier,
)

REQUESTOR, RESPONDER = "fd00:1::a", "fd00:2::b"


def request(tc: int, bth: Packet) -> Packet:
    return IPv6(src=REQUESTOR, dst=RESPONDER, tc=tc, fl=1) / UDP(sport=0x305, chksum=0) / bth / ICRC()


def control(bth: Packet) -> Packet:
    return IPv6(src=RESPONDER, dst=REQUESTOR, tc=46 << 2, fl=1) / UDP(sport=0x305, chksum=0) / bth / ICRC()


VECTORS = {
    "A": request(
        0x12,
        BTH(opcode="WRITE_ONLY", dqpn=0x123, a=1, ts=1, psn=0xABC)
        / METH(msn=7)
        / TSETH(tx_timestamp=0x1234)
        / RETH(va=0x100000002000, rkey=0xAABBCCDD, dma_length=16)
        / Raw(bytes(range(16))),
    ),
    "B": request(
        0x22,
        BTH(opcode="WRITE_ONLY_IMM", se=1, dqpn=0x123, a=1, rtx=1, psn=0xABD)
        / METH(rqmsn=3, msn=8)
        / RETH(va=0x100000002010, rkey=0xAABBCCDD, dma_length=4)
        / ImmDt(immediate=0xDEADBEEF)
        / Raw(b"\x11\x22\x33\x44"),
    ),
    "C": control(
        BTH(opcode="SACK", dqpn=0x456, psn=4)
        / SETH(
            m="SKIP_ONCE",
            ack_psn_offset=7,
            entropy=0x10305,
            spdcid=0x123,
            dpdcid=0x456,
            cack_psn=4,
            mpr=8,
            sack_offset=1,
            sack_bitmap=0x76,
        )
        / CCState(tx_timestamp=0x1234, ooo_count=5, rcvd_bytes=0x51)
    ),
    "D": control(
        BTH(opcode="SACK", dqpn=0x456, psn=0xB)
        / SETH(pr=1, probe_id=0x77, entropy=0x10305, spdcid=0x123, dpdcid=0x456, cack_psn=0xB, mpr=8)
        / CCState(tx_timestamp=0x1234, rcvd_bytes=0x60)
    ),
    "E": control(
        BTH(opcode="NACK", dqpn=0x456, psn=0xABC)
        / NETH(reason="TRIMMED", entropy=0x10305, spdcid=0x123, dpdcid=0x456, nack_psn=0xABC, tx_timestamp=0x1234)
    ),
    "F": request(
        0x12,
        BTH(opcode="RELIABILITY_PROBE", dqpn=0x123)
        / PETH(probe_id=0x77, spdcid=0x456, dpdcid=0x123, tx_timestamp=0x1234),
    ),
    "G": request(
        46 << 2,
        BTH(opcode="ENDPOINT_REQUEST", dqpn=2, psn=0x42)
        / ERTH(op="PORT_STATUS_UPDATE", port_status_mask=0xFD, tx_timestamp=0x1234),
    ),
    "H": request(0x12, BTH(opcode="ENDPOINT_REQUEST", dqpn=2, psn=0x43) / ERTH(op="EV_PROBE", tx_timestamp=0x1234)),
    "I": control(BTH(opcode="ENDPOINT_RESPONSE", dqpn=2, psn=0x43) / EETH(op="EV_PROBE", tx_timestamp=0x1234)),
    "J": control(BTH(opcode="ACKNOWLEDGE", dqpn=0x456, psn=0xABC) / AETH(syndrome="ACK", msn=8)),
    "L": request(
        0x12,
        BTH(opcode="WRITE_MIDDLE", dqpn=0x123, psn=0xFFFFFF)
        / METH(msn=7)
        / RETH(va=0x100000002400, rkey=0xAABBCCDD, dma_length=0xC00)
        / Raw(bytes(8)),
    ),
}


WIRE = {
    key: bytes.fromhex(text)
    for key, text in json.loads((Path(__file__).parents[1] / "engine" / "wire" / "annex_a.json").read_text()).items()
}
"""Annex A, frame by frame: IP header, UDP, body, iCRC."""


@pytest.mark.parametrize("vector", VECTORS)
def test_annex_a__fields_to_bytes(vector):
    assert bytes(VECTORS[vector][0]).hex() == WIRE[vector].hex()


@pytest.mark.parametrize("vector", VECTORS)
def test_annex_a__bytes_to_fields_and_back(vector):
    packet = IPv6(WIRE[vector])
    assert [layer.__name__ for layer in packet.layers()] == [layer.__name__ for layer in VECTORS[vector][0].layers()]
    assert packet[ICRC].icrc is not None
    packet[ICRC].icrc = None  # compute it again from what was understood
    assert bytes(packet).hex() == WIRE[vector].hex()


def test_annex_a__k_over_ipv4():
    wire = WIRE["K"]
    packet = IP(wire)
    assert packet[METH].msn == 7
    packet[ICRC].icrc = packet.len = packet.chksum = packet[UDP].len = None
    assert bytes(packet).hex() == wire.hex()


def test_carrier__outer_header_of_a():
    wire = bytes.fromhex("6120000100682940") + bytes(IPv6(src=REQUESTOR, dst="fcbb:bb00:2301:1305:2302:330b::"))[8:40]
    outer = USidCarrier(src=REQUESTOR, dst="fcbb:bb00:2301:1305:2302:330b::", tc=0x12, fl=1)
    assert bytes(outer / VECTORS["A"][0]) == wire + WIRE["A"]
    frame = Ether(bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / outer / VECTORS["A"][0]))
    assert len(frame) == 158
    assert [layer.__name__ for layer in frame.layers()][:4] == ["Ether", "USidCarrier", "IPv6", "UDP"]
    text = frame.show(dump=True)
    for words in ("T0 1, T1 5, T0 2, NIC 11; plane 3", "TRIMMABLE, ECT(0)", "WRITE_ONLY"):
        assert words in text


def test_show__names_reasons_verdicts_and_ports():
    assert "TRIMMED" in VECTORS["E"][0].show(dump=True)
    assert "SKIP_ONCE" in VECTORS["C"][0].show(dump=True)
    assert "received: 6, 7, 9, 10, 11" in VECTORS["C"][0].show(dump=True)  # cack 4, offset 1: 5 and 8 are missing
    assert "up: 0, 2, 3, 4, 5, 6, 7" in VECTORS["G"][0].show(dump=True)


def test_ethernet__other_ipv6_stays_scapys():
    plain = Ether(bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / VECTORS["A"][0]))
    assert plain.getlayer(1).__class__ is IPv6
    tunnel = Ether() / IPv6(src=REQUESTOR, dst="2001:db8::1", nh=41) / VECTORS["A"][0]
    tunnel.src, tunnel.dst = "02:00:00:00:00:01", "02:00:00:00:00:02"
    assert Ether(bytes(tunnel)).getlayer(1).__class__ is IPv6


@pytest.mark.parametrize("port", [4791, 4971])
def test_udp__our_bth_wins_over_scapys_own(port):
    import scapy.contrib.roce  # noqa: F401 - binds its own BTH to 4791

    wire = bytearray(WIRE["A"])
    wire[42:44] = port.to_bytes(2, "big")
    assert IPv6(bytes(wire)).haslayer(BTH)


def test_udp__an_ev_that_looks_like_a_well_known_port():
    wire = bytearray(WIRE["A"])
    wire[40:42] = (53).to_bytes(2, "big")  # EV 0x0035: scapy would read DNS
    assert IPv6(bytes(wire)).haslayer(BTH)


def test_trimmed__has_no_trailer():
    packet = IPv6(WIRE["A"][:-20])  # RETH is there, payload and iCRC are gone
    assert packet.haslayer(RETH) and not packet.haslayer(ICRC)
    packet = IPv6(WIRE["A"][: 40 + 8 + 12 + 8])
    assert packet.haslayer(TSETH) and not packet.haslayer(RETH)


def test_padding__belongs_to_the_trailer():
    body = BTH(pad=3) / METH() / RETH(dma_length=5) / Raw(b"hello") / ICRC(pad=bytes(3))
    packet = IPv6(bytes(IPv6(src=REQUESTOR, dst=RESPONDER) / UDP(sport=1, chksum=0) / body))
    assert packet[Raw].load == b"hello"
    assert packet[ICRC].pad == bytes(3)


def test_icrc__ignores_what_switches_change():
    packet = VECTORS["A"][0].copy()
    packet.tc, packet.hlim, packet.fl = 12 << 2 | 3, 61, 0xFFFFF
    assert bytes(packet)[-4:] == WIRE["A"][-4:]


def test_icrc__not_computable_without_ip():
    assert mrc.icrc_of(BTH(), bytes(12)) is None
    assert bytes(BTH() / METH() / RETH() / ICRC())[-4:] == bytes(4)
