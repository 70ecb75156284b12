"""What simulation testing found in the virtual fabric itself."""

from __future__ import annotations

import pytest

from testbed.virtual import Corrupt, Flow, HostProfile, VirtualFabric, run_all
from testbed.virtual.wire import DESTINATION_AT, WireFrame
from topologies.plan import Plan


def test_host__engine_is_asked_again_when_an_idle_port_took_the_first_packet() -> None:
    fabric = VirtualFabric(Plan(1, 1, 1, 2), host=HostProfile(ring_packets=2))
    qa, _ = fabric.connect("h0", "h1")
    region = fabric.host("h1").endpoint.register(bytearray(100))
    for _ in range(5):
        qa.post_write(b"x", region.va, region.rkey, now=0.0)
    assert fabric.run_until(lambda: not qa.outstanding(), limit_s=1.0)
    assert qa.counters.packets_sent == 5 and not qa.counters.retransmitted


def test_switch__a_frame_whose_destination_was_damaged_ends_at_the_t1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an outer header it was sent to the last rack there is, whose T0 sent it up again, for ever."""

    def spoil(self: WireFrame, random: float) -> None:
        self.data[DESTINATION_AT + 15] ^= 0xFF
        self.wires.look(self)

    monkeypatch.setattr(WireFrame, "spoil", spoil)
    fabric = VirtualFabric(Plan(1, 3, 1, 1), wire=True, mode="structured")
    fabric.apply(Corrupt("h1", "p0-t0-1", packets=(1,)))
    flow = Flow(fabric, "h1", "h2", message_bytes=10_000, messages=1)
    run_all(fabric, [flow])
    assert flow.qp.counters.retransmitted == 1
    assert fabric.switches["p0-t1-0"].dropped == {"no_route": 1}
    done = fabric.events_done
    fabric.run_for(1.0)
    assert fabric.events_done - done < 100, "nothing goes round in circles"
