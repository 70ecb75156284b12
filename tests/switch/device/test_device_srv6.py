"""srv6.p4 in a device, with the routes and frames of the benchmark: what it measures is a real hop."""

from __future__ import annotations

import pytest

from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import TableEntry
from mrc_testbed.topologies.plan import Plan, carrier
from tools.bench.rig import FRAME_BYTES, frame_heads, load_routes


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan()


@pytest.mark.parametrize("size", FRAME_BYTES)
def test_t0__spends_its_usid_and_sends_to_the_next(plan: Plan, size: int) -> None:
    device = P4Device(1, "p0-t0-0")
    routes = load_routes(device, plan)
    head = frame_heads(plan, routes)[size]
    sent = head + bytes(range(256)) * 17
    sent = sent[:size]
    next_usid, port = routes.next_hops[0]
    forwarded_frame = bytearray(sent)
    forwarded_frame[21] -= 1  # hop limit
    forwarded_frame[38:54] = carrier(next_usid, 0x2001, 0x3000).to_bytes(16, "big")
    assert device.process(1, sent) == [(port, bytes(forwarded_frame))]


def test_t0__a_usid_of_nobody_is_dropped_and_tables_stay(plan: Plan) -> None:
    device = P4Device(1, "p0-t0-0")
    routes = load_routes(device, plan)
    entries_before: list[TableEntry] = list(device.read(defaults=True))
    head = bytearray(frame_heads(plan, routes)[158])
    head[42:44] = b"\x27\x27"
    assert device.process(1, bytes(head) + bytes(50)) == []
    head[14:20] = b"\xff" * 6
    for length in range(0, len(head), 7):
        device.process(1, bytes(head[:length]))
    assert list(device.read(defaults=True)) == entries_before
    assert len(entries_before) > 1 + len(routes.next_hops) + len(device.schema.tables)  # adjacencies and classes too
