"""CPU cost of AF_PACKET from Python with nothing done to the frames: the limit under `mrc bench mrc`.

One process sends the same frame with `socket.send`, the other takes frames from the receive ring and looks at none,
over a veth pair of their own, with the socket options and the ring of the fast NIC (hosts/nic/port.py). Every 256
frames the receiver answers with one, so that no frame is dropped by a full ring. With an interval the sender sleeps
before each frame, and the receiver is woken up by each. CPU is user + system time by frame (getrusage).
"""

from __future__ import annotations

import argparse
import json
import resource
import select
import sys
import time
from typing import Any

from mrc_testbed.hosts.nic.base import ENCAPSULATION_BYTES, INNER_OVERHEAD
from mrc_testbed.hosts.nic.port import RxRing, bind, open_socket
from tools.bench.cabled_namespaces import join, send_json, serve

SACK_FRAME_BYTES = ENCAPSULATION_BYTES + 40 + 8 + 12 + 36 + 4
WINDOW = 256
NAMES = ("zzraw0", "zzraw1")


def data_frame_bytes(pmtu: int) -> int:
    """Return the length of a full data frame, Ethernet to iCRC; a middle packet has no immediate value."""
    return ENCAPSULATION_BYTES + INNER_OVERHEAD - 4 + pmtu


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _child(number: int, size: int, frames: int, interval_s: float) -> None:
    serve()
    sender = open_socket(NAMES[number], size - 14)
    ring = RxRing(sender, size)
    bind(sender, NAMES[number])
    send_json("open")
    sys.stdin.readline()
    frame = bytes(12) + b"\x86\xdd" + bytes(size - 14)
    answer = frame[:60]
    began = _cpu()
    if number == 0:
        send = sender.send
        for _ in range(frames // WINDOW):
            for _ in range(WINDOW):
                if interval_s:
                    time.sleep(interval_s)
                send(frame)
            _take(sender, ring, 1)
    else:
        for _ in range(frames // WINDOW):
            _take(sender, ring, WINDOW)
            sender.send(answer)
    cpu_s = _cpu() - began
    send_json(cpu_s / (frames // WINDOW * WINDOW) * 1e6)
    ring.close()


def _take(sender: Any, ring: RxRing, frame_count: int) -> None:
    """Take `frame_count` frames from the ring."""
    while frame_count:
        batch = 0
        for _ in ring.frames(frame_count):
            batch += 1
        frame_count -= batch
        if frame_count and not batch:
            select.select([sender], [], [])


def measure(size: int, frames: int, interval_s: float = 0.0) -> dict[str, float]:
    """Return the CPU microseconds to send and to receive a frame of `size` bytes, one each `interval_s`.

    Needs root.
    """
    common_options = ("--size", str(size), "--frames", str(frames), "--interval", str(interval_s))
    ends = [("--child", str(number), *common_options) for number in (0, 1)]
    with join("tools.bench.af_packet", ends, [((0, NAMES[0]), (1, NAMES[1]))]) as children:
        for message in ("joined", "go"):
            for child in children:
                child.send(message)
            if message == "joined":
                for child in children:
                    child.answer()
        send, receive = (child.answer() for child in children)
    return {"send_us": round(send, 2), "receive_us": round(receive, 2)}


def limits(pmtu: int, frames: int = 60_000) -> dict[str, Any]:
    """CPU microseconds for data frames and for SACKs, each way."""
    return {"data": measure(data_frame_bytes(pmtu), frames), "sack": measure(SACK_FRAME_BYTES, frames)}


def main() -> int:
    """Command line: CPU per frame, as JSON."""
    parser = argparse.ArgumentParser(description="CPU per frame of AF_PACKET from Python")
    parser.add_argument("--size", type=int, default=data_frame_bytes(4096), help="bytes of a frame")
    parser.add_argument("--frames", type=int, default=60_000)
    parser.add_argument("--interval", type=float, default=0.0, help="seconds of sleep before each frame")
    parser.add_argument("--child", type=int, choices=(0, 1), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        _child(arguments.child, arguments.size, arguments.frames, arguments.interval)
    else:
        print(json.dumps(measure(arguments.size, arguments.frames, arguments.interval)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
