"""Fuzz targets: each takes arbitrary bytes and must come through without an exception of its own.

    wire        the struct codec: a record or WireError; what is accepted survives encoding and decoding again
    scapy       the scapy codec, held against the struct codec: same verdict, same record
    frame       a NIC's decapsulation: Ethernet, outer header, codec
    jsonl       the JSON-lines protocol: an object or JsonlError, and an answer that can be sent
    endpoints   decoded but hostile packets into live endpoints: nothing outside regions is written, state is bounded

`mutations` makes inputs from a seed (the quick runs in the tests); `run_atheris` hands a target to a coverage-guided
fuzzer when atheris is installed (extra `fuzz`). A target that finds something raises; the fuzzer keeps the input.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from struct import pack_into
from typing import Any

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.errors import WireError
from mrc_testbed.hosts.engine.paths.peer_table import CONTROL_MOST
from mrc_testbed.hosts.engine.rocev2.rc_packets import Cnp, RcAck, RcOpcode, RcWrite
from mrc_testbed.hosts.engine.wire.codec import Addressing, Codec
from mrc_testbed.hosts.engine.wire.icrc import icrc_ipv4, icrc_ipv6
from mrc_testbed.hosts.engine.wire.packets import (
    ECN_CE,
    EndpointRequest,
    EndpointResponse,
    Nack,
    NackReason,
    Opcode,
    PacketRecord,
    ReliabilityProbe,
    Sack,
    TransportAck,
    Write,
)
from mrc_testbed.hosts.engine.wire.wire_variants import in_dialect
from mrc_testbed.hosts.nic.encapsulation import Decapsulation, Encapsulation
from mrc_testbed.ipc.framing import JsonlError, LineBuffer, answer_to, decode_request, encode_answer
from mrc_testbed.switch.system.cache_folder import safe_cache_dir
from mrc_testbed.topologies.plan import Plan

_DIALECT = Config.of(
    flow_label_bits=20,
    se_bit=6,
    eeth_op_shift=4,
    ftype_bare=0,
    probe_psn="probe_id",
    udp_checksum="computed",
    decap_dscp="inner",
    decap_ecn="outer",
)
_CONFIGS = {"L": Config(), "H": Config.of(ev_layout="H"), "dialect": _DIALECT}
_CODECS = {name: in_dialect(Codec(config), config) for name, config in _CONFIGS.items()}
_TO6 = Addressing(bytes(15) + b"\x0a", bytes(15) + b"\x0b")
_TO4 = Addressing(b"\x0a\0\0\1", b"\x0a\0\0\2")
_RANGES = {
    "dest_qp": 24, "ev": 32, "dscp": 6, "ecn": 2, "psn": 24, "msn": 24, "va": 64, "rkey": 32, "dma_length": 32,
    "rqmsn": 16, "imm": 32, "cack_psn": 24, "bitmap": 64, "entropy": 32, "rcvd_units": 24, "ooo_count": 15, "mpr": 8,
    "penalty": 7, "spdcid": 16, "dpdcid": 16, "request_id": 16, "port_mask": 32, "syndrome": 8, "reason": 8,
}  # fmt: skip
"""Bits of the fields of records."""


# ---- codecs -------------------------------------------------------------------------------------------------


def _prepare_input(data: bytes) -> tuple[str, bytes, int | None]:
    """Return (name of the codec, packet, outer traffic class) that an input asks for.

    The first two bytes of an input are switches.

    Bits of byte 0: 0 layout H, 1 an outer header with byte 1 as traffic class, 2 lengths and ports made right, 3 iCRC
    made right: without these no fuzzer gets past the first checks; 4 the variants of §12 that change bytes.
    """
    if len(data) < 2:
        return "L", data, None
    flags, traffic_class = data[0], data[1]
    packet = bytearray(data[2:])
    version = 6 if not packet or packet[0] >> 4 != 4 else 4
    header = 40 if version == 6 else 20
    if len(packet) >= header + 24:
        length = len(packet) - header
        if flags & 4:
            packet[0] = 0x60 | packet[0] & 0x0F if version == 6 else 0x45
            if version == 6:
                pack_into(">HB", packet, 4, length, 17)
            else:
                packet[9] = 17
                pack_into(">H", packet, 2, len(packet))
                packet[6:8] = packet[10:12] = b"\0\0"
                pack_into(">H", packet, 10, ~_sum16(packet[:20]) & 0xFFFF)
            pack_into(">HHH", packet, header + 2, 4791, length, 0)
        if flags & 8:
            body = bytes(packet[:-4])
            pack_into("<I", packet, len(packet) - 4, (icrc_ipv6 if version == 6 else icrc_ipv4)(body))
    name = "dialect" if flags & 16 else "H" if flags & 1 else "L"
    return name, bytes(packet), traffic_class if flags & 2 else None


def _sum16(header: bytes | bytearray) -> int:
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, len(header), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def _check_record(record: PacketRecord, packet: bytes) -> None:
    """Check that every field fits its header and that the payload is a part of the packet."""
    for name, bits in _RANGES.items():
        value = getattr(record, name, 0)
        assert 0 <= value < 1 << bits, f"{type(record).__name__}.{name} = {value:#x}"
    payload = getattr(record, "payload", b"")
    assert len(payload) <= len(packet), "payload longer than its packet"
    assert not payload or isinstance(payload, memoryview), "payload was copied"


def wire(data: bytes) -> None:
    """Fuzz decoding and encoding of packets; see the module."""
    name, packet, traffic_class = _prepare_input(data)
    codec = _CODECS[name]
    try:
        record = codec.decode(packet, 0, traffic_class)
    except WireError:
        return
    _check_record(record, packet)
    if getattr(record, "trimmed", None) is None:
        addressing = _TO4 if packet[0] >> 4 == 4 else _TO6
        decoded_again = codec.decode(codec.encode(record, addressing).join(), 0, record.dscp << 2 | record.ecn)
        assert decoded_again == record, f"{record} became {decoded_again}"


def scapy(data: bytes) -> None:
    """Compare the codec with the one in Scapy; see the module."""
    from mrc_testbed.hosts.scapy.codec import ScapyCodec

    if not _SCAPY:
        _SCAPY.update({name: in_dialect(ScapyCodec(config), config) for name, config in _CONFIGS.items()})
    name, packet, traffic_class = _prepare_input(data)
    codec, scapy_decoder = _CODECS[name], _SCAPY[name]
    records: list[Any] = []
    for decoder in (codec, scapy_decoder):
        try:
            records.append(decoder.decode(packet, 0, traffic_class))
        except WireError:
            records.append(None)
    assert records[0] == records[1], f"struct: {records[0]}, scapy: {records[1]}"


_SCAPY: dict[str, Any] = {}

_PLAN = Plan(2, 2, 2, 1)
_ENCAPSULATION = Encapsulation(_PLAN, _PLAN.hosts[0], _PLAN.hosts[1], 0)
_NIC = _PLAN.nic_address(_PLAN.hosts[1], 0).to_bytes(16, "big")
"""Outer destination address of the packet on arrival."""
_DECAPSULATION = Decapsulation(_PLAN, _PLAN.hosts[1], 0, _CODECS["L"])


def frame(data: bytes) -> None:
    """Fuzz frames; see the module.

    Bit 7 of byte 0: Ethernet and outer header are valid, byte 1 is the traffic class.
    """
    if data and data[0] & 0x80:
        _, packet, traffic_class = _prepare_input(data[:10] + _ENCAPSULATION.addressing.pair + data[42:])
        word = (0x60000000 | (traffic_class or 0) << 20).to_bytes(4, "big")
        data = _ENCAPSULATION.outer(1, word, len(packet))[:-16] + _NIC + packet
    with suppress(WireError):
        _, record = _DECAPSULATION.open(data)
        _check_record(record, data)


def jsonl(data: bytes) -> None:
    """Fuzz JSON lines; see the module."""
    buffer = LineBuffer()
    cut = data[0] if data else 0
    for chunk in (data[:cut], data[cut:], b"\n"):
        for line in buffer.feed(chunk):
            assert b"\n" not in line
            with suppress(JsonlError):
                request = decode_request(line)
                answer = encode_answer(request, answer_to(request, {"echo": request}))
                assert answer.endswith(b"\n") and answer.count(b"\n") == 1


# ---- live endpoints -----------------------------------------------------------------------------------------


class Feed:
    """Reader of numbers from the fuzzer's bytes; zeros after the last byte."""

    def __init__(self, data: bytes) -> None:
        self._data, self._offset = data, 0

    def __bool__(self) -> bool:
        return self._offset < len(self._data)

    def number(self, size: int = 1) -> int:
        """Return the number in the next `size` bytes, big-endian."""
        chunk = self._data[self._offset : self._offset + size]
        self._offset += size
        return int.from_bytes(chunk, "big")

    def near(self, value: int, bits: int) -> int:
        """Return a number that is mostly close to `value`, sometimes any."""
        selector = self.number()
        if selector < 200:
            return (value + (selector & 0x0F) - 4) & (1 << bits) - 1
        return self.number(4) & (1 << bits) - 1


GUARD = 64
REGION = 2048
_FENCE = b"\xee" * GUARD


class Victims:
    """Two endpoints with a QP and a fenced region each, a wire that loses nothing, and a clock."""

    def __init__(self) -> None:
        self.config = Config.of(pmtu_bytes=256, timeout=14, mpr_packets=128, max_wimm=4, exp_cnt=3)
        self.now = 0.0
        evs = [(plane << 8 | uplink, plane) for plane in range(2) for uplink in range(2)]
        self.ends = {name: Endpoint(name, self.config, planes=2, seed=seed) for seed, name in enumerate("ab")}
        self.qps = {name: end.create_qp() for name, end in self.ends.items()}
        self.memory = {name: bytearray(_FENCE + bytes(REGION) + _FENCE) for name in "ab"}
        self.regions = {name: self.ends[name].register(memoryview(self.memory[name])[GUARD:-GUARD]) for name in "ab"}
        for name, peer in ("ab", "ba"):
            self.qps[name].connect(peer, self.qps[peer].attributes(self.regions[peer]), evs, 0.0)

    def honest(self, seconds: float, limit: int = 40) -> None:
        """Let the two endpoints exchange packets for a while."""
        end = self.now + seconds
        for _ in range(limit):
            moved = False
            for name, peer in ("ab", "ba"):
                for plane, _, packet in self.ends[name].transmit(self.now):
                    self.ends[peer].receive(packet, plane, name, self.now)
                    moved = True
                self.ends[name].events()
            if moved:
                continue
            times = [t for t in (end_.next_timer() for end_ in self.ends.values()) if t is not None and t <= end]
            if not times:
                break
            self.now = max(self.now, min(times))
            for end_ in self.ends.values():
                end_.on_timer(self.now)
        self.now = max(self.now, end)

    def check(self) -> None:
        """Check that fences stand and that nothing grows with the claims of packets."""
        for name in "ab":
            memory, qp, endpoint = self.memory[name], self.qps[name], self.ends[name]
            assert memory.startswith(_FENCE) and memory.endswith(_FENCE), "written outside the region"
            responder, flight = qp.responder, qp.requestor.flight
            window = self.config.qp.mpr_packets
            assert responder._arrived_bits.bit_length() <= window
            assert len(responder._awaited_work) <= window + 1
            assert flight.bytes >= 0 and flight.cack < flight.next_psn
            peers = endpoint._peers
            assert all(len(queue) <= CONTROL_MOST for queue in (peers._control, *peers._held_packets.values()))


def _hostile(feed: Feed, victims: Victims, name: str) -> PacketRecord:
    """Return a record with fields around the right ones, or far from them."""
    qp, region = victims.qps[name], victims.regions[name]
    flight, responder = qp.requestor.flight, qp.responder
    # Bits of `kind` and `flags` choose type and fields, so that a mutated byte changes few of them.
    kind = feed.number()
    dest_qp = qp.qpn if kind < 240 else feed.number(3)
    evs = (0x000, 0x001, 0x100, 0x101)
    ev = evs[kind & 3] if kind & 0x40 else feed.number(4)
    envelope = (dest_qp, ev, kind & 1, feed.number() & 63, ECN_CE if kind & 8 else 2)
    cack = flight.cack & 0xFFFFFF
    record_type = kind % 7
    if record_type <= 1:
        flags = feed.number()
        opcode = list(Opcode)[flags % 6]
        payload = bytes(feed.number() * 4 + (flags & 3)) if flags & 0x40 else b"\x55" * feed.number()
        # Around start, end and middle of the region, so that many ranges cross its edges.
        va = feed.near(region.va + (0, REGION, REGION // 2, -4)[flags >> 4 & 3], 64)
        rkey = region.rkey if flags & 0x80 else feed.near(region.rkey, 32)
        total = len(payload) if flags & 8 else feed.near(len(payload), 32)
        trimmed = (NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP)[flags & 1] if feed.number() < 20 else None
        psn = feed.near(responder.cack + 1, 24)
        return Write(
            *envelope,
            opcode,
            psn,
            feed.number(2),
            va,
            rkey,
            total,
            payload,
            len(payload) + 104,
            feed.number(2),
            feed.number(4),
            feed.number(2) if flags & 4 else None,
            1,
            bool(flags & 2),
            bool(flags & 16),
            trimmed=trimmed,
        )
    if record_type == 2:
        return Sack(
            *envelope,
            feed.near(cack, 24),
            feed.near(4, 16) - (0x10000 if feed.number() < 16 else 4),
            feed.number(8),
            feed.near(0, 15),
            feed.number(2) if feed.number() < 60 else None,
            evs[feed.number() & 3] if feed.number() < 200 else feed.number(4),
            feed.number() & 3,
            feed.number(2),
            feed.near(qp.requestor._rcvd_units, 24),
            feed.number(2) & 0x7FFF,
            feed.number(),
            feed.number() & 127,
            bool(feed.number() & 1),
            bool(feed.number() & 1),
        )
    if record_type == 3:
        reason = (1, 2, 6, 7, 10, 11, 0x19, feed.number())[feed.number() & 7]
        return Nack(*envelope, feed.near(cack + 1, 24), reason, evs[feed.number() & 3], feed.number(2))
    if record_type == 4:
        syndrome = (0x1F, 0x1F, 0x1F, 0x61, 0x62, 0x63, 0x20, feed.number())[feed.number() & 7]
        return TransportAck(*envelope, feed.near(cack, 24), syndrome, feed.number(3))
    if record_type == 5:
        return ReliabilityProbe(*envelope, feed.number(2), feed.number(2), rtx=bool(feed.number() & 1))
    # Messages between endpoints have the reserved QPN 2.
    envelope = (2, *envelope[1:])
    if feed.number() & 1:
        return EndpointResponse(*envelope, feed.number(2), feed.number() & 3, feed.number(2))
    request_id, op, mask, timestamp = feed.number(2), feed.number() & 3, feed.near(3, 32), feed.number(2)
    return EndpointRequest(*envelope, request_id, op, mask, timestamp, rtx=bool(feed.number() & 1))


def endpoints(data: bytes) -> None:
    """Fuzz two endpoints; see the module."""
    feed = Feed(data)
    victims = Victims()
    for _ in range(64):
        if not feed:
            break
        step = feed.number()
        name = "ab"[step & 1]
        if step < 30:
            peer = "ba"[step & 1]
            with suppress(ValueError):  # a QP in ERROR takes no writes
                imm = feed.number(4) if step & 2 else None
                size = feed.number(2) % REGION
                victims.qps[name].post_write(
                    bytes(size), victims.regions[peer].va, victims.regions[peer].rkey, now=victims.now, imm=imm
                )
        elif step < 60:
            victims.honest(step / 1000)
        elif step < 66:
            victims.ends[name].on_port(step >> 1 & 1, bool(step & 4), victims.now)
        else:
            plane = step >> 1 & 1
            packet = _hostile(feed, victims, name)
            victims.ends[name].receive(packet, plane, "ba"["ab".index(name)], victims.now)
        victims.check()
    victims.honest(2.0, 400)
    victims.check()


TARGETS: dict[str, Callable[[bytes], None]] = {
    "wire": wire,
    "scapy": scapy,
    "frame": frame,
    "jsonl": jsonl,
    "endpoints": endpoints,
}


# ---- inputs -------------------------------------------------------------------------------------------------


def corpus(target: str) -> list[bytes]:
    """Return valid inputs to start from."""
    if target == "jsonl":
        request = b'\x05{"op": "status", "id": 1}\n{"op": "watch"}'
        return [request, b'\0{"op": "x", "id": null, "a": [1e9, "\\u0000"]}\n']
    if target == "endpoints":
        rng = Random(1)
        return [rng.randbytes(size) for size in (40, 200, 600)]
    packets = [_CODECS["L"].encode(record, addressing).join() for addressing in (_TO6, _TO4) for record in _records()]
    return [bytes((flags, 0x12)) + packet for packet in packets for flags in (0x0C, 0x8C, 0x1C)]


def _records() -> list[PacketRecord]:
    head = (5, 0x00010203, 0, 4, 2)
    return [
        Write(*head, Opcode.WRITE_FIRST, 7, 1, 0x1000, 9, 500, b"x" * 256, 360, timestamp=5, ack_request=True),
        Write(*head, Opcode.WRITE_ONLY, 8, 1, 0x1000, 9, 0, b"", 104),
        Write(*head, Opcode.WRITE_ONLY_IMM, 9, 2, 0x1000, 9, 3, b"abc", 112, 1, 77, 6, rtx=True),
        Write(*head[:3], 12, 0, Opcode.WRITE_MIDDLE, 9, 2, 0x1000, 9, 3, b"abcd", 112, timestamp=6),
        Sack(*head, 7, 1, 0x76, -1, None, 3, 1, 5, 100),
        Sack(*head, 7, -5, 1 << 63, 0, 77, 3, 0, 5, 100),
        Nack(*head, 7, 1, 3, 5),
        TransportAck(*head, 7, 0x1F, 3),
        ReliabilityProbe(*head, 77, 5),
        EndpointRequest(2, *head[1:], 9, 0, 3, 5),
        EndpointRequest(2, *head[1:], 9, 1, 0, 5, rtx=True),
        EndpointResponse(2, *head[1:], 9, 1, 5),
        RcWrite(*head, RcOpcode.WRITE_FIRST, 7, b"x" * 256, 360, 0x1000, 9, 500),
        RcWrite(*head, RcOpcode.WRITE_LAST_IMM, 8, b"abc", 88, imm=5, ack_request=True),
        RcAck(*head, 8, 0x60, 3),
        Cnp(*head),
    ]


def mutations(target: str, seed: int, count: int) -> Iterator[bytes]:
    """Yield `count` inputs: valid ones with bytes changed, inserted, removed, repeated, cut; and noise."""
    rng = Random(f"{target} {seed}")
    inputs = corpus(target)
    for _ in range(count):
        data = bytearray(rng.choice(inputs) if rng.random() < 0.95 else rng.randbytes(rng.randrange(200)))
        for _ in range(rng.choice((0, 1, 1, 2, 4, 16))):
            offset = rng.randrange(len(data) + 1)
            operation = rng.randrange(6)
            if operation <= 1 and offset < len(data):
                data[offset] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            elif operation == 2 and offset < len(data):
                data[offset] ^= 1 << rng.randrange(8)
            elif operation == 3:
                data[offset:offset] = rng.randbytes(rng.choice((1, 2, 4, 30)))
            elif operation == 4:
                del data[offset : offset + rng.choice((1, 2, 4, 30))]
            elif rng.random() < 0.2:
                del data[offset:]
            else:
                data[offset:offset] = data[offset : offset + 8]
        if rng.random() < 0.5 and len(data) > 1 and target not in ("jsonl", "endpoints"):
            data[0] = rng.randrange(256)
        yield bytes(data)


def run_mutations(target: str, seed: int, count: int) -> int:
    """Run a target on `count` mutations. Raises AssertionError with the input when the target fails."""
    test = TARGETS[target]
    for number, data in enumerate(mutations(target, seed, count)):
        try:
            test(data)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            raise AssertionError(f"{target}, seed {seed}, input {number}: {message}\ninput: {data.hex()}") from error
    return count


def run_atheris(target: str, arguments: list[str]) -> None:
    """Fuzz with coverage guidance until libFuzzer's `arguments` end it; the process ends too.

    Needs atheris.

    Inputs that reach something new are kept in a folder and are the start of the next run; so are those that fail.
    """
    import atheris

    if target == "scapy":
        from mrc_testbed.hosts.scapy import codec as scapy_codec  # noqa: F401 - before instrumentation: all of scapy is too much to instrument

    for name in ("mrc_testbed.hosts.engine", "mrc_testbed.hosts.nic.encapsulation", "mrc_testbed.ipc.framing"):
        for module in [m for key, m in list(sys.modules.items()) if key.startswith(name)]:
            for value in list(vars(module).values()):
                _instrument(atheris, module, value)
    folder = safe_cache_dir() / "fuzz" / target
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(corpus(target)):
        (folder / f"good-{number}").write_bytes(data)
    folder_options = [f"-artifact_prefix={folder.parent}/{target}-", str(folder)]
    atheris.Setup([f"mrc-fuzz-{target}", "-max_len=2048", *arguments, *folder_options], TARGETS[target])
    atheris.Fuzz()


def _instrument(atheris: Any, module: Any, value: Any) -> None:
    """Instrument a function, or the methods of a class, of a module that is loaded already."""
    if getattr(value, "__module__", None) != module.__name__:
        return
    if isinstance(value, type):
        for attribute in vars(value).values():
            function = getattr(attribute, "__func__", attribute)
            if type(function) is type(_instrument):
                function.__code__ = atheris.patch_code(function.__code__, True, True)
    elif type(value) is type(_instrument):
        value.__code__ = atheris.patch_code(value.__code__, True, True)


if __name__ == "__main__":
    run_atheris(sys.argv[1], sys.argv[2:])
