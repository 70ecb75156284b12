"""Random and mutated frames through both programs, built with AddressSanitizer and UBSan.

Run by test_p4src_hostile.py:

    LD_PRELOAD=libasan.so ASAN_OPTIONS=detect_leaks=0 python hostile_frames.py srv6|stev|ecmp|switch-spray FRAMES SEED

Prints how many frames came in, came out, and were dropped. A sanitizer's finding ends the process with its report.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

from mrc_testbed.switch.system import gcc

gcc.CFLAGS += ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")

from mrc_testbed.controller.p4runtime.qos import dead_port_entry  # noqa: E402
from mrc_testbed.topologies.plan import Plan, carrier  # noqa: E402
from tests.p4src.plan_switch import (  # noqa: E402
    CONTROL,
    MS,
    TRIMMABLE,
    TRIMMABLE_RETX,
    Conversation,
    PlannedSwitch,
)

PORTS = (1, 2, 3, 4, 5, 6, 7, 300, 509, 510)


def seeds(plan: Plan) -> list[bytes]:
    """Return the frames that are right, of every shape the programs parse."""
    out = []
    for ev in (0, 1):
        talk = Conversation(plan, "h0", "h2", ev=ev)
        out += [
            talk.data(1, dscp=dscp, payload=size) for dscp in (TRIMMABLE, TRIMMABLE_RETX, CONTROL) for size in (0, 900)
        ]
        out.append(talk.sack())
        if not plan.mode.outer_header:
            continue
        out.append(talk.ipv4_inside())
        for count in range(1, 6):
            for address in (carrier(0x2000), carrier(0x2000, 0x1000), carrier(0xF001), carrier(0xE000)):
                frame = out[0][:38] + address.to_bytes(16, "big") + out[0][54:]
                srh = bytes((41, 2 * count, 4, count, count - 1, 0, 0, 0)) + carrier(0x1001).to_bytes(16, "big") * count
                out.append(frame[:20] + b"\x2b" + frame[21:54] + srh + frame[54:])
    out += [(3 << 7).to_bytes(2, "big") + out[0], bytes(12) + b"\x88\xcc" + bytes(40)]
    return out


def mutate(rng: random.Random, frame: bytes) -> bytes:
    match rng.randrange(8):
        case 0:
            return rng.randbytes(rng.randrange(0, 200))
        case 1:
            return frame[: rng.randrange(len(frame) + 1)]
        case 2:
            return frame + rng.randbytes(rng.choice((1, 40, 8000)))
        case 3:
            return frame
        case _:
            data = bytearray(frame)
            for _ in range(rng.randrange(1, 5)):
                index = rng.randrange(min(len(data), 180))
                data[index] = rng.choice(
                    (0, 1, 2, 4, 8, 41, 43, 17, 255, rng.randrange(256), data[index] ^ 1 << rng.randrange(8))
                )
            return bytes(data)


def main(mode: str, frames: int, seed: int) -> None:
    rng = random.Random(seed)
    plan = Plan.scaled(1, 2, 2, 2, mode=mode)
    switch = PlannedSwitch(plan, "p0-t0-0", seed=seed)
    shapes = seeds(plan)
    now = came = went = 0
    for number in range(frames):
        if number % 500 == 0:
            port = rng.choice(PORTS[:4])
            traffic = switch.device.traffic.get(port)
            settings = replace(traffic, rate_bps=rng.choice((0, 10**5, 10**7, 10**9)), rate_pps=rng.choice((0, 0, 100)))
            switch.device.traffic.set(port, settings.with_queue(0, max_packets=rng.choice((0, 1, 30))))
            switch.device.set_port_up(rng.choice((3, 4)), rng.random() < 0.7)
            switch.set_depth(port, rng.choice((0, 11, 40, (1 << 19) - 1)))
        if number == frames // 2:
            switch.write(dead_port_entry(switch.catalog, 4))
        switch.device.inject(rng.choice(PORTS), mutate(rng, rng.choice(shapes)), now)
        came += 1
        now += rng.choice((0, 0, 1000, MS // 10, MS))
        if rng.random() < 0.1:
            went += len(switch.device.advance(now))
            switch.device.digests()
    went += len(switch.device.advance(now + 10**15))
    stats = switch.device.stats()
    print(f"{came} in, {went} out, {stats.dropped_ingress} dropped in the pipeline")
    assert stats.received == came


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
