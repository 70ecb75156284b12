"""Machine's speed for `mrc doctor`: packets of an endpoint, start of Python, rates and delays."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass

from mrc_testbed.console.units import show_rate, show_seconds
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.verbs import QpInitAttr, SendWR, connect_pair
from mrc_testbed.hosts.verbs.virtual import VirtualWire
from mrc_testbed.topologies.lab import machine_speed
from mrc_testbed.topologies.lab.machine_speed import MachineCapacity
from mrc_testbed.topologies.plan.link_speeds import SCALED_PMTU, SCALED_RATE_BPS, SCALED_RTT_S

PROBE_S = 0.3
"""CPU time of each measurement, seconds."""
PACKETS = 64
"""Packets of a write."""


@dataclass(frozen=True, slots=True)
class SpeedReport:
    """Measured speed of a machine, and what it carries."""

    speed: MachineCapacity
    packets_per_s: float
    """Packets that two endpoints in memory exchange in a second of CPU."""
    start_s: float
    """Time in which an interpreter starts and ends, seconds."""

    @property
    def link_rate_bps(self) -> float:
        """Rate of links that `mrc up` takes."""
        return SCALED_RATE_BPS / self.speed.slowdown

    @property
    def base_rtt_s(self) -> float:
        """Base RTT that `mrc up` takes, seconds."""
        return SCALED_RTT_S * self.speed.slowdown

    def __str__(self) -> str:
        figures = (
            f"an endpoint handles {self.packets_per_s:,.0f} packets/s, Python starts in {show_seconds(self.start_s)}"
        )
        scale = f"links of {show_rate(self.link_rate_bps)} with a base RTT of {show_seconds(self.base_rtt_s)}"
        return f"{self.speed}; {figures}: carries {scale}"

    def to_json(self) -> dict[str, float]:
        return {
            "cpus": round(self.speed.cpus, 3),
            "reference_cpus": round(self.speed.reference_cpus, 4),
            "slowdown": self.speed.slowdown,
            "endpoint_packets_per_s": round(self.packets_per_s),
            "python_start_s": round(self.start_s, 4),
            "link_rate_bps": self.link_rate_bps,
            "base_rtt_s": self.base_rtt_s,
        }


def measure_machine() -> SpeedReport:
    """Measure this machine for about a second of CPU."""
    return SpeedReport(machine_speed.measure(PROBE_S), endpoint_packets_per_s(), python_start_s())


def endpoint_packets_per_s(probe_s: float = PROBE_S) -> float:
    """Return the packets that two endpoints in memory, with their codec, exchange in a second of CPU."""
    wire = VirtualWire(planes=4, uplinks=2, framed=True)
    config = Config.of(pmtu_bytes=SCALED_PMTU)
    near, far = wire.open("near", config), wire.open("far", config)
    source, target = (device.reg_mr(bytearray(PACKETS * SCALED_PMTU)) for device in (near, far))
    queue = near.create_cq(16)
    requestor, responder = near.create_qp(QpInitAttr(queue)), far.create_qp(QpInitAttr(far.create_cq(16)))
    connect_pair(requestor, responder)
    count, start_s = 0, time.process_time()
    while (elapsed_s := time.process_time() - start_s) < probe_s:
        requestor.post_send(SendWR(sg_list=[source.sge()], remote_addr=target.addr, rkey=target.rkey))
        queue.wait(timeout_s=None)
        count += PACKETS
    return count / elapsed_s


def python_start_s() -> float:
    """Return the time in which an interpreter starts and ends, seconds."""
    start_s = time.monotonic()
    subprocess.run([sys.executable, "-c", ""], check=False, stdin=subprocess.DEVNULL)
    return time.monotonic() - start_s
