"""What simulation testing found in the virtual fabric itself."""

from __future__ import annotations

from testbed.virtual import HostProfile, VirtualFabric
from topologies.plan import Plan


def test_host__engine_is_asked_again_when_an_idle_port_took_the_first_packet() -> None:
    fabric = VirtualFabric(Plan(1, 1, 1, 2), host=HostProfile(ring_packets=2))
    qa, _ = fabric.connect("h0", "h1")
    region = fabric.host("h1").endpoint.register(bytearray(100))
    for _ in range(5):
        qa.post_write(b"x", region.va, region.rkey, now=0.0)
    assert fabric.run_until(lambda: not qa.outstanding(), limit_s=1.0)
    assert qa.counters.packets_sent == 5 and not qa.counters.retransmitted
