"""Parts of a message against the whole.

What its packets say together must make up DMALen, in any order of arrival.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from mrc_testbed.hosts.engine.events import QpError, Status, WriteImmReceived
from mrc_testbed.hosts.engine.wire.packets import NackReason, Opcode, Packet, Syndrome, TransportAck, Write
from tests.hosts.engine.engine_pair import MTU, Pair

FIRST, MIDDLE, LAST, ONLY = Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST, Opcode.WRITE_ONLY
LAST_IMM, ONLY_IMM = Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM
PSN = 100
INVALID = Syndrome.NAK_INVALID_REQUEST


class Peer(Pair):
    """b, and packets of our own making in the name of a."""

    def __init__(self, **keys: Any) -> None:
        super().__init__(psn=PSN, region=64 * MTU, **keys)
        self.b.qp.post_recv()
        self.answers: list[Packet] = []

    def message(self, psn: int, offset: int, size: int, msn: int = 0, imm: bool = False) -> list[Write]:
        """The packets of a right message of `size` bytes to offset `offset` of the region."""
        count = max(1, -(-size // MTU))
        whole = self.b.endpoint.config.wire.dma_length == "message"
        packets = []
        for n in range(count):
            # Every packet but the last is full
            part_size = min(MTU, size - n * MTU)
            if n + 1 < count:
                opcode = MIDDLE if n else FIRST
            else:
                opcode = (LAST_IMM if imm else LAST) if n else (ONLY_IMM if imm else ONLY)
            packets.append(
                Write(
                    self.b.qp.qpn,
                    0x001,
                    0,
                    4,
                    2,
                    opcode,
                    psn + n,
                    msn,
                    self.region.va + offset + n * MTU,
                    self.region.rkey,
                    size if whole else size - n * MTU,
                    b"\x55" * part_size,
                    part_size + 88,
                    rqmsn=int(imm),
                    timestamp=7,
                )
            )
        return packets

    def take(self, *packets: Write) -> None:
        for packet in packets:
            self.b.endpoint.receive(replace(packet), 0, "a", self.now)
            self.answers += [answer for _, _, answer in self.b.endpoint.transmit(self.now)]
        self.b.events += self.b.endpoint.events()

    def naks(self) -> list[tuple[int, int, int]]:
        """Return (syndrome, PSN, messages completed) of the Transport NAKs."""
        acks = [a for a in self.answers if isinstance(a, TransportAck) and a.syndrome != Syndrome.ACK]
        return [(a.syndrome, a.psn, a.msn) for a in acks]

    def completed(self) -> int:
        """Return the messages that Transport ACKs and NAKs say are complete."""
        return max((a.msn for a in self.answers if isinstance(a, TransportAck)), default=0)


def test_dma_length__ten_bytes_of_a_thousand_do_not_complete() -> None:
    pair = Peer()
    (packet,) = pair.message(PSN, 0, 10, imm=True)
    pair.take(replace(packet, dma_length=1000))
    assert pair.naks() == [(INVALID, PSN, 0)] and not pair.events_of(WriteImmReceived, "b")
    assert (
        pair.events_of(QpError, "b")[0].detail == "refused PSN 0x64 of the peer: the message ends with 10 of 1000 bytes"
    )


@pytest.mark.parametrize("kind", ["message", "remainder"])
@pytest.mark.parametrize("order", ["forwards", "backwards", "shuffled"])
def test_right_messages__complete_in_any_order_and_leave_nothing_behind(kind: str, order: str) -> None:
    pair = Peer(config={"dma_length": kind})
    packets, offset = [], 0
    for msn, size in enumerate((4 * MTU, 0, 3 * MTU + 1, 50 * MTU, MTU, 2 * MTU)):
        packets += pair.message(PSN + len(packets), offset, size, msn, imm=msn == 5)
        offset += size
    if order == "backwards":
        packets.reverse()
    elif order == "shuffled":
        Random(1).shuffle(packets)
    pair.take(*packets)
    assert pair.naks() == [] and pair.completed() == 6
    assert [event.length for event in pair.events_of(WriteImmReceived, "b")] == [2 * MTU]
    assert pair.b.qp.held_packets() == 0 and not pair.b.qp.responder._assembly.ended_lengths


WRONG_PARTS: dict[str, tuple[int, dict[str, Any], int]] = {
    "another DMALen": (1, {"dma_length": 3 * MTU + 9}, 1),
    "an address left out": (2, {"va": 0x40}, 2),
    "a place written twice": (2, {"va": -MTU}, 2),
    "a MIDDLE that is short": (1, {"payload": b"\x55" * (MTU - 4)}, 2),
    "an end that is short": (3, {"payload": b"\x55" * 7}, 3),
    "an end too early": (2, {"opcode": LAST}, 2),
    "no end": (3, {"opcode": MIDDLE}, 3),
    "a second FIRST": (1, {"opcode": FIRST, "dma_length": 3 * MTU + 8}, 1),
    "the MSN of another message": (2, {"msn": 9}, 2),
    "the RQMSN of a WriteIMM": (1, {"rqmsn": 1}, 1),
    "no FIRST": (0, {"opcode": MIDDLE}, 0),
}
"""Case > (index of the changed packet of a message of four, the change, index of the refused packet).

`va` is the difference of the address, not the address.
"""


@pytest.mark.parametrize("case", WRONG_PARTS)
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("kind", ["message", "remainder"])
def test_a_wrong_part__is_refused_before_the_message_completes(case: str, backwards: bool, kind: str) -> None:
    changed_index, changes, refused_index = WRONG_PARTS[case]
    pair = Peer(config={"dma_length": kind})
    packets = pair.message(PSN, 0, 8) + pair.message(PSN + 1, MTU, 3 * MTU + 8, 1)
    packets += pair.message(PSN + 5, 8 * MTU, 8, 2)
    packet = packets[1 + changed_index]
    va = packet.va + changes.get("va", 0)
    packets[1 + changed_index] = replace(packet, **{**changes, "va": va})
    pair.take(*(reversed(packets) if backwards else packets))
    assert pair.naks()[0] == (INVALID, PSN + 1 + refused_index, 1), "the message before it is complete"
    assert pair.completed() == 1 and pair.b.qp.state.value == "error"


def test_our_requestor__learns_which_write_was_refused() -> None:
    """The second of three writes loses bytes on the way, behind a right checksum.

    It fails, the first one completes.
    """
    pair = Pair(psn=PSN)

    def shorten(_: Any, packet: Packet) -> list[float]:
        if type(packet) is Write and packet.psn == PSN + 3:
            packet.payload = packet.payload[:-4]
        return [0.005]

    pair.filter = shorten
    for n in range(3):
        pair.write(pair.bytes(2 * MTU), 2 * MTU * n)
    pair.run_until_quiet()
    assert pair.completions() == [(1, "SUCCESS"), (2, "REMOTE_INVALID_REQUEST"), (3, "FLUSHED")]
    assert pair.events_of(QpError)[0].status is Status.REMOTE_INVALID_REQUEST


def test_state__is_bounded_by_the_window_whatever_the_peer_begins() -> None:
    """MIDDLEs of ever new messages above a hole.

    Those inside the window are remembered, the others NACKed.
    """
    pair = Peer(config={"mpr_packets": 128})
    (packet,) = pair.message(PSN, 0, MTU)
    for n in range(1, 1000):
        pair.take(replace(packet, opcode=MIDDLE, psn=PSN + n, msn=n))
    held_parts = pair.b.qp.responder._assembly._held_parts
    assert len(held_parts) == 128 and sum(part is not None for part in held_parts) == 127
    assert {a.reason for a in pair.answers if hasattr(a, "reason")} == {NackReason.PSN_OOR_WINDOW}
    pair.take(packet)
    assert pair.naks()[0] == (INVALID, PSN + 1, 1)
