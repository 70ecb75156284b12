"""The variants of §12 that change bytes.

Each as it is on the wire, from both codecs, there and back, and mixed.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.wire.codec import Addressing, Codec, WireError, ev_to_fields, udp_checksum
from mrc_testbed.hosts.engine.wire.icrc import icrc_ipv4, icrc_ipv6
from mrc_testbed.hosts.engine.wire.packets import (
    ECN_CE,
    ECN_ECT0,
    ECN_NOT_ECT,
    EndpointRequest,
    EndpointResponse,
    NackReason,
    Opcode,
    Packet,
    ReliabilityProbe,
    Sack,
    Write,
)
from mrc_testbed.hosts.engine.wire.wire_variants import (
    WIRE_FIELDS,
    WireVariants,
    in_dialect,
    outer_words,
    speaks_dialect,
)
from mrc_testbed.hosts.nic.base import Nic, NicError, check_config
from mrc_testbed.hosts.nic.encapsulation import Decapsulation, Encapsulation
from mrc_testbed.hosts.nic.fast import FastNic
from mrc_testbed.hosts.nic.scapy_nic import ScapyNic
from mrc_testbed.hosts.scapy.codec import ScapyCodec
from mrc_testbed.simulator import Flow, VirtualFabric, run_all, scaled_profiles
from mrc_testbed.topologies.plan import Plan
from tests.hosts.engine.engine_pair import Pair

EV = 0x0001F305
V6 = Addressing(bytes(15) + b"\x0a", bytes(15) + b"\x0b")
V4 = Addressing(bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2)))
BTH = {V6: 48, V4: 28}
CODECS = (Codec, ScapyCodec)
VARIANTS: dict[str, Any] = {
    "flow_label": "outer", "flow_label_bits": 20, "se_bit": 6, "eeth_op_shift": 4, "ftype_bare": 0,
    "probe_psn": "probe_id", "udp_checksum": "computed", "decap_dscp": "inner", "decap_ecn": "outer",
}  # fmt: skip
WRITE = Write(
    3, EV, 0, 4, ECN_ECT0, Opcode.WRITE_ONLY_IMM, 0xABC, 7, 0x1000, 1, 5, b"hello", 0, 1, 9, 77, 1, solicited=True
)
PROBE = ReliabilityProbe(3, EV, 0, 4, ECN_ECT0, 0x1234, None)
REQUEST = EndpointRequest(2, EV, 0, 46, ECN_NOT_ECT, 9, 1, 0, None)
RESPONSE = EndpointResponse(2, EV, 0, 46, ECN_NOT_ECT, 9, 1, 55)
SACK = Sack(3, EV, 0, 46, ECN_NOT_ECT, 4, 1, 0x76, 7, None, EV, 1, 77, 0x51)
RECORDS: tuple[Packet, ...] = (WRITE, PROBE, REQUEST, RESPONSE, SACK)


def encode(record: Packet, addressing: Addressing = V6, codec: type = Codec, **keys: Any) -> bytes:
    config = Config.of(**keys)
    return in_dialect(codec(config), config).encode(record, addressing).join()


def read(packet: bytes, codec: type = Codec, outer: tuple[int, int] | None = None, **keys: Any) -> Any:
    """`outer`: traffic class and flow label of the outer header."""
    config = Config.of(**keys)
    return in_dialect(codec(config), config).decode(packet, 0, *(outer or ()))


def is_same(record: Any, sent: Any) -> bool:
    payload_fields = {"size": record.size, "payload": bytes(record.payload)} if type(sent) is Write else {}
    timestamp_fields = {"timestamp": 0} if getattr(sent, "timestamp", 0) is None else {}
    if payload_fields:
        record = replace(record, payload=bytes(record.payload))
    return record == replace(sent, **payload_fields, **timestamp_fields)


def test_defaults__are_no_dialect() -> None:
    codec = Codec()
    assert in_dialect(codec, Config()) is codec and not speaks_dialect(Config())
    assert outer_words(codec) is None
    assert set(VARIANTS) == set(WIRE_FIELDS)


@pytest.mark.parametrize("key", WIRE_FIELDS)
@pytest.mark.parametrize("addressing", [V6, V4], ids=["v6", "v4"])
@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_variants__one_by_one_come_back_and_both_codecs_make_the_same(
    key: str, addressing: Addressing, record: Packet
) -> None:
    keys = {key: VARIANTS[key]}
    wire = encode(record, addressing, **keys)
    assert wire == encode(record, addressing, ScapyCodec, **keys)
    expected_record = record if addressing is V6 else replace(record, ev=EV & 0xFFFF)
    outer = (
        record.dscp << 2 | record.ecn,
        int.from_bytes(WireVariants(Codec(), Config.of(**keys)).outer_word(wire, EV), "big") & 0xFFFFF,
    )
    for codec in CODECS:
        assert is_same(read(wire, codec, outer if addressing is V6 else None, **keys), expected_record)


@pytest.mark.parametrize("addressing", [V6, V4], ids=["v6", "v4"])
@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_variants__all_at_once_have_a_right_icrc(addressing: Addressing, record: Packet) -> None:
    wire = encode(record, addressing, **VARIANTS)
    icrc = (icrc_ipv6 if addressing is V6 else icrc_ipv4)(memoryview(wire)[:-4])
    assert icrc == int.from_bytes(wire[-4:], "little")


@pytest.mark.parametrize("codec", CODECS)
def test_flow_label__inner_outer_or_both(codec: type) -> None:
    high = ev_to_fields(EV)[1]
    for setting, inner_label, outer_label in (("copied", high, high), ("inner", high, 0), ("outer", 0, high)):
        config = Config.of(flow_label=setting)
        speaker = in_dialect(codec(config), config)
        wire = speaker.encode(SACK, V6).join()
        word = outer_words(speaker)
        first = wire[:4] if word is None else word(wire, EV)
        assert int.from_bytes(wire[:4], "big") & 0xFFFFF == inner_label
        assert int.from_bytes(first, "big") & 0xFFFFF == outer_label
        assert int.from_bytes(first, "big") >> 20 == 0x600 | 46 << 2
        assert speaker.decode(wire, 0, 46 << 2, outer_label).ev == EV
    config = Config.of(flow_label="outer")  # without an outer header the only label there is carries it
    plain = in_dialect(codec(config), config, outer_header=False)
    assert plain.decode(plain.encode(SACK, V6).join()).ev == EV


def test_flow_label_bits__the_other_four_are_ignored_by_everyone() -> None:
    labels = set()
    for n in range(64):
        wire = encode(replace(SACK, ev=EV ^ n), flow_label_bits=20)
        labels.add(int.from_bytes(wire[:4], "big") >> 16 & 0xF)
        assert read(wire).ev == read(wire, ScapyCodec).ev == EV ^ n
    assert len(labels) > 8, "they differ from EV to EV"


@pytest.mark.parametrize("bit, byte", [(7, 0x80), (6, 0x40)])
def test_se_bit__and_either_is_understood(bit: int, byte: int) -> None:
    wire = encode(WRITE, se_bit=bit)
    assert wire[BTH[V6] + 1] & 0xC0 == byte
    assert read(wire).solicited and read(wire, ScapyCodec).solicited
    assert encode(replace(WRITE, solicited=False), se_bit=bit)[BTH[V6] + 1] & 0xC0 == 0


@pytest.mark.parametrize("shift", [2, 4])
def test_eeth_op_shift__on_the_wire(shift: int) -> None:
    wire = encode(RESPONSE, eeth_op_shift=shift)
    assert wire[BTH[V6] + 13] == 1 << shift
    assert read(wire, eeth_op_shift=shift).op == 1
    assert read(wire, eeth_op_shift=6 - shift).op == 0, "the other reading: harmless, responses go by request id"


@pytest.mark.parametrize("config", [{"eeth_op_shift": 4}, {}])
def test_eeth_op_shift__responses_are_matched_by_request_id(config: dict) -> None:
    from mrc_testbed.hosts.engine.events import EvProbeResult

    pair = Pair(framed=True, config=config)
    request_id = pair.a.endpoint.probe_ev("b", pair.evs[0][0], pair.evs[0][1], now=0.0)
    pair.flush()
    pair.run(0.2)
    assert [e.request_id for e in pair.events_of(EvProbeResult) if e.rtt_s] == [request_id]


@pytest.mark.parametrize("bare", [0, 1])
def test_ftype_bare__of_packets_without_timestamp(bare: int) -> None:
    for record in (PROBE, REQUEST):
        assert encode(record, ftype_bare=bare)[BTH[V6] + 27] & 0x0F == bare
        assert encode(replace(record, timestamp=5), ftype_bare=bare)[BTH[V6] + 27] & 0x0F == 1


@pytest.mark.parametrize("kind, psn", [("zero", 0), ("probe_id", 0x1234)])
def test_probe_psn__on_the_wire(kind: str, psn: int) -> None:
    wire = encode(PROBE, probe_psn=kind)
    assert int.from_bytes(wire[BTH[V6] + 9 : BTH[V6] + 12], "big") == psn
    assert is_same(read(wire), PROBE), "ignored when received"


@pytest.mark.parametrize("addressing, version", [(V6, 6), (V4, 4)], ids=["v6", "v4"])
@pytest.mark.parametrize("kind", ["zero", "computed"])
def test_udp_checksum__right_or_zero(addressing: Addressing, version: int, kind: str) -> None:
    for record in RECORDS:
        wire = encode(record, addressing, udp_checksum=kind)
        udp = BTH[addressing] - 8
        assert (wire[udp + 6 : udp + 8] == b"\0\0") is (kind == "zero")
        if kind == "computed":
            assert udp_checksum(wire, udp, version) == 0
            assert read(wire).ev and read(wire, ScapyCodec).ev, "everyone accepts it"
            spoilt = bytearray(wire)
            spoilt[udp + 6] ^= 1
            with pytest.raises(WireError, match="checksum"):
                read(bytes(spoilt))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "rule, expected_marks", [("or", [0, 3, 3, 3]), ("outer", [0, 0, 3, 3]), ("inner", [2, 3, 2, 3])]
)
def test_decap_ecn__whose_mark_counts(codec: type, rule: str, expected_marks: list[int]) -> None:
    got = []
    for outer in (ECN_NOT_ECT, ECN_CE):
        for inner in (ECN_ECT0, ECN_CE):
            wire = encode(replace(WRITE, ecn=inner))
            got.append(read(wire, codec, (4 << 2 | outer, 1), decap_ecn=rule).ecn)
    assert got == expected_marks


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("rule, trimmed", [("outer", NackReason.TRIMMED), ("inner", None)])
def test_decap_dscp__whose_trim_is_seen(codec: type, rule: str, trimmed: NackReason | None) -> None:
    wire = encode(WRITE)[: 138 - 54]
    if trimmed is None:
        with pytest.raises(WireError):
            read(wire, codec, (12 << 2 | 2, 1), decap_dscp=rule)
        wire = bytearray(wire)
        wire[:2] = (0x6000 | (12 << 2 | 2) << 4).to_bytes(2, "big")
        trimmed = NackReason.TRIMMED
        assert read(bytes(wire), codec, (4 << 2 | 2, 1), decap_dscp=rule).trimmed is trimmed
    else:
        assert read(wire, codec, (12 << 2 | 2, 1), decap_dscp=rule).trimmed is trimmed


@pytest.mark.parametrize("codec", CODECS)
def test_hostile__a_dialect_refuses_what_its_codec_refuses_and_raises_nothing_else(codec: type) -> None:
    rng = Random(7)
    config = Config.of(**VARIANTS)
    speaker = in_dialect(codec(config), config)
    packets = [encode(record, addressing, **VARIANTS) for record in RECORDS for addressing in (V6, V4)]
    for _ in range(400 if codec is Codec else 60):
        packet = bytearray(rng.choice(packets))
        for _ in range(rng.choice((0, 1, 3))):
            packet[rng.randrange(len(packet))] = rng.getrandbits(8)
        cut = bytes(packet[: rng.choice((len(packet), rng.randrange(len(packet) + 1)))])
        with contextlib.suppress(WireError):
            speaker.decode(cut, 0, *rng.choice(((), (rng.getrandbits(8), rng.getrandbits(20)))))


def test_transfer__with_all_variants_over_real_bytes() -> None:
    """All variants but `decap_dscp` are on: switches mark trims in the outer header alone."""
    keys = {k: v for k, v in VARIANTS.items() if k != "decap_dscp"} | {"timestamps": False, "rtx_echo": True}
    scale = scaled_profiles(2, config=keys)
    for mode in ("srv6", "structured"):
        fabric = VirtualFabric(
            Plan(planes=2, racks=2, spines=2, hosts_per_rack=2),
            seed=5,
            links=scale.links,
            queues=scale.queues,
            config=scale.config,
            wire=True,
            mode=mode,
        )
        flows = [Flow(fabric, f"h{n}", "h3", message_bytes=1 << 16, messages=2) for n in range(2)]
        run_all(fabric, flows)
        assert all(not host.dropped for host in fabric.hosts.values()), "no frame was refused by its receiver"


@pytest.mark.parametrize("key", ["srv6_widths", "structured_widths"])
def test_nic__reads_evs_of_8_3_only(key: str) -> None:
    check_config(Config())
    with pytest.raises(NicError, match=key):
        check_config(Config.of(**{key: (4, 4)}))


def test_nics__both_make_the_same_frames_in_a_dialect_and_open_each_others() -> None:
    plan = Plan(planes=2, racks=2, spines=2, hosts_per_rack=1)
    local_host, peer_host = plan.hosts
    keys = {key: value for key, value in VARIANTS.items() if key != "decap_dscp"}
    config = Config.of(**keys)
    scapy_nic = ScapyNic.__new__(ScapyNic)  # without its sockets
    Nic.__init__(scapy_nic, plan, local_host)
    scapy_nic._codec = in_dialect(ScapyCodec(config), config)
    scapy_nic._outer_word = outer_words(scapy_nic._codec)
    codec = in_dialect(Codec(config), config)
    for record in RECORDS:
        sent = replace(record, plane=1, ev=0x105)
        capsule = Encapsulation(plan, local_host, peer_host, 1)
        inner = codec.encode(sent, capsule.addressing)
        frame = capsule.outer(sent.ev, codec.outer_word(inner.header, sent.ev), inner.size) + inner.join()
        assert bytes(scapy_nic.wrap(1, peer_host, sent)) == frame
        arrived_frame = bytearray(frame)
        arrived_frame[38:54] = plan.nic_address(peer_host, 1).to_bytes(16, "big")
        for frame_codec in (codec, in_dialect(ScapyCodec(config), config)):
            peer, got = Decapsulation(plan, peer_host, 1, frame_codec).open(bytes(arrived_frame))
            assert (
                peer == local_host.name and got.ev == 0x105 and is_same(replace(got, plane=0), replace(sent, plane=0))
            )


@pytest.mark.parametrize("nic", [FastNic, ScapyNic])
def test_nic__refuses_widths_before_it_opens_anything(nic: type) -> None:
    plan = Plan(planes=1, racks=2, spines=1, hosts_per_rack=1)
    with pytest.raises(NicError, match="srv6_widths"):
        nic(plan, plan.hosts[0], Config.of(srv6_widths=(4, 4)), *([[]] if nic is ScapyNic else []))
