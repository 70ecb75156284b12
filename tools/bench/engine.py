"""CPU per data packet of the MRC engine and its codec without a network.

Run it by `python -m tools.bench.engine [--json]`.

Two endpoints hand each other records in memory, 64 packets at a time; each side's calls are timed by themselves. One
line per part, in microseconds per data packet of one PMTU; the control packets (a SACK for four of them) are in. The
line `crc32` is the limit of any codec: what zlib takes for the payload alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from time import process_time
from typing import Any
from zlib import crc32

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.wire.codec import Addressing, Codec
from mrc_testbed.hosts.engine.wire.packets import Write

PLANES, UPLINKS = 4, 4
BATCH = 64
STEP_S = 0.0005
"""Engine time that passes per batch."""


def measure(packets: int, pmtu: int, message: int, with_codec: bool) -> dict[str, float]:
    """Microseconds per data packet by part, over `packets` packets in messages of `message` bytes."""
    config = Config.of(pmtu_bytes=pmtu)
    a, b = (Endpoint(name, config, planes=PLANES, seed=seed) for seed, name in enumerate("ab"))
    qa, qb = a.create_qp(), b.create_qp()
    region = b.register(bytearray(message))
    evs = [(plane << 8 | uplink, plane) for plane in range(PLANES) for uplink in range(UPLINKS)]
    qa.connect("b", qb.attributes(region), evs, 0.0)
    qb.connect("a", qa.attributes(), evs, 0.0)
    data = bytes(message)
    codec = Codec(config)
    to_b, to_a = Addressing(bytes(15) + b"\1", bytes(15) + b"\2"), Addressing(bytes(15) + b"\2", bytes(15) + b"\1")
    spent = dict.fromkeys(("requestor", "responder", "encode", "decode"), 0.0)
    now, packet_count = 0.0, 0
    while packet_count < packets:
        while qa.outstanding() < 4:
            qa.post_write(data, region.va, region.rkey, now=now)
        now += STEP_S
        start = process_time()
        sent = a.transmit(now, BATCH)
        # Timers belong to the cost of the requestor, as in an agent's turn.
        a.next_timer()
        a.on_timer(now)
        spent["requestor"] += process_time() - start
        delivered_packets = (
            _pass_through(codec, [(packet, to_b) for _, _, packet in sent], spent)
            if with_codec
            else [packet for _, _, packet in sent]
        )
        start = process_time()
        for packet in delivered_packets:
            b.receive(packet, packet.plane, "a", now)
        answers = b.transmit(now, BATCH)
        b.next_timer()
        b.on_timer(now)
        spent["responder"] += process_time() - start
        returned_packets = (
            _pass_through(codec, [(packet, to_a) for _, _, packet in answers], spent)
            if with_codec
            else [packet for _, _, packet in answers]
        )
        start = process_time()
        for packet in returned_packets:
            a.receive(packet, packet.plane, "b", now)
        a.events()
        spent["requestor"] += process_time() - start
        packet_count += sum(type(packet) is Write for packet in delivered_packets)
    return {part: seconds / packet_count * 1e6 for part, seconds in spent.items()}


def _pass_through(codec: Codec, packets: list[tuple[Any, Any]], spent: dict[str, float]) -> list[Any]:
    """The packets as they come out of the codec."""
    start = process_time()
    frames = [codec.encode(packet, addressing) for packet, addressing in packets]
    spent["encode"] += process_time() - start
    wires = [frame.join() for frame in frames]
    start = process_time()
    records = [codec.decode(wire, packet.plane) for wire, (packet, _) in zip(wires, packets, strict=True)]
    spent["decode"] += process_time() - start
    return records


def main() -> int:
    """Command line: CPU per packet of the engine."""
    parser = argparse.ArgumentParser(description="CPU per packet of the MRC engine, no network")
    parser.add_argument("--packets", type=int, default=60_000)
    parser.add_argument("--pmtu", type=int, default=4096)
    parser.add_argument("--message", type=int, default=1 << 20, help="bytes per write")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = measure(arguments.packets, arguments.pmtu, arguments.message, True)
    payload = bytes(arguments.pmtu)
    start = process_time()
    for _ in range(2000):
        crc32(payload)
    result["crc32"] = (process_time() - start) / 2000 * 1e6
    if arguments.json:
        json.dump(result, sys.stdout)
        print()
    else:
        print(f"microseconds per {arguments.pmtu}-byte data packet, its share of control packets included")
        for part, value in result.items():
            print(f"  {part:10} {value:6.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
