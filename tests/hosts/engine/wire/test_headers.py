"""The layout tables add up to the sizes of mrc-protocol §2.

The codec's fast struct formats agree with them.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.wire import headers
from mrc_testbed.hosts.engine.wire.codec import Addressing, Codec, ev_to_fields, fields_to_ev, write_size
from mrc_testbed.hosts.engine.wire.headers import BTH, CC_STATE, IMMDT, IPV4, IPV6, METH, RETH, SETH, TSETH, UDP, Layout
from mrc_testbed.hosts.engine.wire.packets import IMM_OPCODES, WRITE_OPCODES, Opcode, Sack, Write

SIZES = {
    "ETHERNET": 14, "IPV6": 40, "IPV4": 20, "UDP": 8, "BTH": 12, "METH": 4, "TSETH": 4, "RETH": 16, "IMMDT": 4,
    "AETH": 4, "SETH": 28, "CC_STATE": 8, "NETH": 20, "PETH": 16, "ERTH": 16, "EETH": 36,
}  # fmt: skip
ADDRESSES = Addressing(bytes(range(16)), bytes(range(16, 32)))
ADDRESSES_V4 = Addressing(bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2)))


@pytest.mark.parametrize("name", SIZES)
def test_layout__size(name: str) -> None:
    assert getattr(headers, name).size == SIZES[name]


def test_layout__refuses_odd_bits_doubles_and_values_too_wide() -> None:
    with pytest.raises(ValueError, match="whole bytes"):
        Layout("x", [("a", 7)])
    with pytest.raises(ValueError, match="twice"):
        Layout("x", [("a", 4), ("a", 4)])
    with pytest.raises(ValueError, match=r"x\.a = 0x10 does not fit 4 bits"):
        Layout("x", [("a", 4), ("b", 4)]).pack({"a": 16})
    with pytest.raises(ValueError, match="needs 1 bytes, 0 are left"):
        Layout("x", [("a", 8)]).unpack(b"", 0)


def uint(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << bits) - 1)


HEAD = {
    "dest_qp": uint(24), "ev": uint(32), "plane": st.just(2), "dscp": st.sampled_from([0, 4, 8, 46]), "ecn": uint(2),
}  # fmt: skip
WRITES = st.fixed_dictionaries({
    **HEAD, "opcode": st.sampled_from(sorted(WRITE_OPCODES)), "psn": uint(24), "msn": uint(16), "va": uint(64),
    "rkey": uint(32), "dma_length": uint(32), "payload": st.binary(max_size=40), "rqmsn": uint(16), "imm": uint(32),
    "timestamp": st.none() | uint(16), "tsr": uint(1), "ack_request": st.booleans(), "rtx": st.booleans(),
    "solicited": st.booleans(),
})  # fmt: skip
SACKS = st.fixed_dictionaries({
    **HEAD, "cack_psn": uint(24), "sack_offset": st.integers(-0x8000, 0x7FFF), "bitmap": uint(64),
    "ack_psn_offset": st.integers(-0x8000, 0x7FFF), "probe_id": st.none() | uint(16), "entropy": uint(32),
    "verdict": uint(2), "timestamp": uint(16), "rcvd_units": uint(24), "ooo_count": uint(15), "mpr": uint(8),
    "penalty": uint(7), "restore_cwnd": st.booleans(), "rtx": st.booleans(), "spdcid": uint(16), "dpdcid": uint(16),
    "cc_type": uint(4),
})  # fmt: skip


def write_of(fields: dict) -> Write:
    size = write_size(fields["opcode"], len(fields["payload"]), fields["timestamp"] is not None)
    imm = fields["imm"] if fields["opcode"] in IMM_OPCODES else 0
    tsr = fields["tsr"] if fields["timestamp"] is not None else 0
    return Write(**{**fields, "imm": imm, "tsr": tsr}, size=size)


@given(WRITES)
def test_write__fast_format_agrees_with_the_tables_and_comes_back(fields: dict) -> None:
    record = write_of(fields)
    frame = Codec().encode(record, ADDRESSES)
    wire = frame.join()
    assert frame.size == len(wire) == record.size
    ip, udp, bth = IPV6.unpack(wire), UDP.unpack(wire, 40), BTH.unpack(wire, 48)
    assert (ip["version"], ip["dscp"], ip["ecn"], ip["next_header"]) == (6, record.dscp, record.ecn, 17)
    assert (udp["sport"], ip["flow_label"]) == (record.ev & 0xFFFF, record.ev >> 16)
    assert ip["payload_length"] == udp["length"] == len(wire) - 40
    assert (bth["opcode"], bth["psn"], bth["dest_qp"]) == (record.opcode, record.psn, record.dest_qp)
    assert (bth["a"], bth["rtx"], bth["se"]) == (record.ack_request, record.rtx, record.solicited)
    assert bth["pad"] == -len(record.payload) & 3 and bth["ts"] == (record.timestamp is not None)
    meth = METH.unpack(wire, 60)
    assert (meth["msn"], meth["rqmsn"]) == (record.msn, record.rqmsn)
    # TSETH stands only in packets with a timestamp, IMMDT only in those with an immediate
    offset = 64
    if record.timestamp is not None:
        tseth = TSETH.unpack(wire, offset)
        assert tseth == {"tx_timestamp": record.timestamp, "tsr": record.tsr, "res": 0, "ftype": 1}
        offset += TSETH.size
    reth = RETH.unpack(wire, offset)
    assert reth == {"va": record.va, "rkey": record.rkey, "dma_length": record.dma_length}
    offset += RETH.size
    if record.opcode in IMM_OPCODES:
        assert IMMDT.unpack(wire, offset) == {"imm": record.imm}
        offset += IMMDT.size
    assert wire[offset : offset + len(record.payload)] == record.payload
    assert Codec().decode(wire, 2) == record


@given(SACKS)
def test_sack__fast_format_agrees_with_the_tables_and_comes_back(fields: dict) -> None:
    if fields["probe_id"] is not None:
        fields["ack_psn_offset"] = 0
    record = Sack(**fields)
    wire = Codec().encode(record, ADDRESSES).join()
    seth, cc = SETH.unpack(wire, 60), CC_STATE.unpack(wire, 88)
    answer = record.probe_id is not None
    assert (seth["m"], seth["pr"], seth["entropy"], seth["cack_psn"]) == (
        record.verdict,
        answer,
        record.entropy,
        record.cack_psn,
    )
    assert seth["ack_psn_offset"] == (record.probe_id if answer else record.ack_psn_offset & 0xFFFF)
    assert (seth["spdcid"], seth["dpdcid"], seth["mpr"]) == (record.spdcid, record.dpdcid, record.mpr)
    assert (seth["cc_type"], seth["cc_fl"]) == (record.cc_type, 0)
    assert (seth["sack_offset"], seth["sack_bitmap"]) == (record.sack_offset & 0xFFFF, record.bitmap)
    assert (cc["tx_timestamp"], cc["ooo_count"], cc["rcvd_bytes"]) == (
        record.timestamp,
        record.ooo_count,
        record.rcvd_units,
    )
    assert (cc["restore_cwnd"], cc["rcv_cwnd_pen"]) == (record.restore_cwnd, record.penalty)
    assert Codec().decode(wire, 2) == record


@given(WRITES)
def test_ipv4__comes_back_with_half_the_ev(fields: dict) -> None:
    record = write_of({**fields, "ev": fields["ev"] & 0xFFFF})
    wire = Codec().encode(record, ADDRESSES_V4).join()
    ip = IPV4.unpack(wire)
    assert (ip["total_length"], ip["protocol"], ip["ttl"]) == (len(wire), 17, 64)
    assert Codec().decode(wire, 2) == record


@pytest.mark.parametrize("layout", ["L", "H"])
@given(ev=uint(32))
def test_ev_layout__both_ways(layout: str, ev: int) -> None:
    assert fields_to_ev(*ev_to_fields(ev, layout), layout) == ev
    codec = Codec(Config.of(ev_layout=layout))
    # Only the EV matters here
    record = write_of(
        {
            "dest_qp": 3,
            "ev": ev,
            "plane": 2,
            "dscp": 4,
            "ecn": 2,
            "opcode": Opcode.WRITE_ONLY,
            "psn": 0,
            "msn": 0,
            "va": 0,
            "rkey": 0,
            "dma_length": 0,
            "payload": b"",
            "rqmsn": 0,
            "imm": 0,
            "timestamp": None,
            "tsr": 0,
            "ack_request": False,
            "rtx": False,
            "solicited": False,
        }
    )
    wire = codec.encode(record, ADDRESSES).join()
    assert codec.decode(wire, 2).ev == ev


def test_ev_layout__worked_example_of_1_4() -> None:
    assert ev_to_fields(0x00010305, "L") == (0x0305, 0x00001)
    assert ev_to_fields(0x00010305, "H") == (0x0001, 0x00305)
