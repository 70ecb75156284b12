"""Measurement of this machine for `mrc doctor`: packets of an endpoint, Python's start, the rates that it carries."""

from __future__ import annotations

import subprocess
import sys
import time

from mrc_testbed.console.units import show_rate, show_seconds
from mrc_testbed.doctor.doctor import Check
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.verbs import QpInitAttr, SendWR, connect_pair
from mrc_testbed.hosts.verbs.virtual import VirtualWire
from mrc_testbed.topologies.lab import machine_speed
from mrc_testbed.topologies.lab.machine_speed import MachineSpeed
from mrc_testbed.topologies.plan.link_speeds import SCALED_PMTU, SCALED_RATE_BPS, SCALED_RTT_S

PROBE_S = 0.3
"""CPU time of each measurement, seconds."""
PACKETS = 64
"""Packets of a write."""


def check_speed() -> Check:
    """Measure this machine for about a second of CPU."""
    return check_of(machine_speed.measure(PROBE_S), endpoint_packets_per_s(), python_start_s())


def check_of(speed: MachineSpeed, packets_per_s: float, start_s: float) -> Check:
    """Return the check of a measured machine: it is a note where the usual rates do not fit."""
    rate_bps, rtt_s = SCALED_RATE_BPS / speed.slowdown, SCALED_RTT_S * speed.slowdown
    measured = f"an endpoint handles {packets_per_s:,.0f} packets/s, Python starts in {show_seconds(start_s)}"
    return Check(
        "speed",
        speed.slowdown == 1,
        f"{speed}; {measured}: carries links of {show_rate(rate_bps)} with a base RTT of {show_seconds(rtt_s)}",
        "nothing has to be done: `mrc up` and `mrc demo` take such rates by themselves; more CPUs, or a VM with "
        "hardware help (KVM), are faster",
        needed=False,
        figures={
            "cpus": round(speed.cpus, 3),
            "reference_cpus": round(speed.reference_cpus, 4),
            "slowdown": speed.slowdown,
            "endpoint_packets_per_s": round(packets_per_s),
            "python_start_s": round(start_s, 4),
            "link_rate_bps": rate_bps,
            "base_rtt_s": rtt_s,
        },
    )


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
