"""Quick, deterministic fuzzing of every target, and that the targets can fail."""

from __future__ import annotations

import tracemalloc

import pytest

from mrc_testbed.errors import UsageError
from mrc_testbed.hosts.engine.memory import Memory
from mrc_testbed.hosts.engine.wire.codec import Codec, WireError
from mrc_testbed.simulator.simtest import command, fuzz

INPUTS = {"wire": 30_000, "scapy": 800, "frame": 20_000, "jsonl": 10_000, "endpoints": 600}


@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_target__survives_mutations(target: str) -> None:
    assert fuzz.run_mutations(target, 1, INPUTS[target]) == INPUTS[target]


@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_corpus__is_good(target: str) -> None:
    for data in fuzz.corpus(target):
        fuzz.TARGETS[target](data)


def test_frame__a_good_frame_gets_all_the_way_to_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    record_types: list[object] = []
    monkeypatch.setattr(fuzz, "_check_record", lambda record, data: record_types.append(type(record).__name__))
    for data in fuzz.corpus("frame"):
        fuzz.frame(data)
    assert {"Write", "Sack", "Nack", "TransportAck", "ReliabilityProbe", "EndpointRequest"} <= set(record_types)


def test_scapy__more_ip_options_than_scapy_takes_is_a_wire_error() -> None:
    """The fuzzer found this: MaximumItemsCount left the codec."""
    fuzz.scapy(b"\x01\x00\x40" + bytes(170))


def test_mutations__are_the_same_for_the_same_seed() -> None:
    assert list(fuzz.mutations("wire", 3, 50)) == list(fuzz.mutations("wire", 3, 50))


def test_decode__allocates_no_more_than_the_packet() -> None:
    """A length in a packet must not become memory.

    The largest allocation of a decode is a small multiple of it.
    """
    codec = Codec()
    inputs = [data[2:] for data in fuzz.mutations("wire", 2, 2000)]
    tracemalloc.start()
    try:
        for packet in inputs:
            start_bytes = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            try:
                record = codec.decode(packet)
                del record
            except WireError:
                pass
            assert tracemalloc.get_traced_memory()[1] - start_bytes <= 2 * len(packet) + 8192
    finally:
        tracemalloc.stop()


def test_target__a_responder_without_bounds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def unbounded_memory(self: Memory, rkey: int, va: int, length: int) -> object:
        region = next(iter(self._regions.values()))
        monkeypatch.setattr(Memory, "write", staticmethod(lambda region, va, data: region.view.obj.__setitem__(0, 1)))
        return region

    monkeypatch.setattr(Memory, "check", unbounded_memory)
    with pytest.raises(AssertionError, match="outside the region"):
        fuzz.run_mutations("endpoints", 1, 600)


def test_target__a_codec_that_crashes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = Codec.decode

    def fragile(self: Codec, packet: bytes, *arguments: object) -> object:
        if len(packet) > 60 and packet[48] == 0xDC:
            raise IndexError("sack")
        return decode(self, packet, *arguments)

    monkeypatch.setattr(Codec, "decode", fragile)
    with pytest.raises(AssertionError, match=r"input: [0-9a-f]+"):
        fuzz.run_mutations("wire", 1, 2000)


def test_command__names_the_targets() -> None:
    with pytest.raises(UsageError, match="wire, scapy, frame, jsonl, endpoints"):
        command.fuzz("nothing", 1, 1, 1)


def test_command__without_atheris_mutates(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert command.fuzz("jsonl", 500, 60, 1) == 0
    assert "500 inputs, nothing found" in capsys.readouterr().out
