"""Any schedule of loss, reordering and duplication.

The exact bytes, each write completed once and in order.
"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_testbed.hosts.engine.wire.packets import Packet, Write
from tests.hosts.engine.engine_pair import Pair

SCHEDULES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 1 << 30),
        "planes": st.integers(1, 4),
        "uplinks": st.integers(1, 4),
        "loss": st.sampled_from([0.0, 0.01, 0.1, 0.3]),
        "reorder": st.sampled_from([0.0, 0.1, 0.5]),
        "duplicate": st.sampled_from([0.0, 0.1, 0.5]),
        "sizes": st.lists(st.integers(0, 6000), min_size=1, max_size=8),
        "cwnd_bytes": st.sampled_from([256, 3000, 20_000, 1 << 20]),
        "mpr_packets": st.sampled_from([128, 1024]),
        "ev_fifo": st.booleans(),
        "timestamps": st.booleans(),
        "psn": st.sampled_from([0, 0xFFFFF0, 0x7FFFF8]),
        "framed": st.booleans(),
    }
)


@settings(max_examples=150, deadline=None)
@given(SCHEDULES)
def test_any_schedule__exact_bytes_and_each_write_once_in_order(schedule: dict) -> None:
    keys = {key: schedule[key] for key in ("cwnd_bytes", "mpr_packets", "ev_fifo", "timestamps")}
    pair = Pair(
        planes=schedule["planes"],
        uplinks=schedule["uplinks"],
        seed=schedule["seed"],
        psn=schedule["psn"],
        framed=schedule["framed"],
        config={**keys, "exp_cnt": 25, "timeout_ceiling_s": 0.3},
    )
    rng = Random(schedule["seed"])
    in_flight_limit_broken = []

    def wire(source: str, packet: Packet) -> list[float]:
        if isinstance(packet, Write) and source == "a":
            flight = pair.a.qp.requestor.flight
            if flight.next_psn - 1 > flight.cack + schedule["mpr_packets"]:
                in_flight_limit_broken.append(packet)
        if rng.random() < schedule["loss"]:
            return []
        copies = 2 if rng.random() < schedule["duplicate"] else 1
        return [rng.random() * 0.02 if rng.random() < schedule["reorder"] else 0.0 for _ in range(copies)]

    pair.filter = wire
    expected_memory = bytearray(len(pair.memory))
    offset, ids = 7, []
    for size in schedule["sizes"]:
        data = pair.bytes(size)
        expected_memory[offset : offset + size] = data
        ids.append(pair.write(data, offset))
        offset += size
    pair.run_until_quiet(limit_s=120.0)
    pair.filter = None
    pair.run(0.1)  # copies still on the wire
    assert pair.memory == expected_memory
    assert pair.completions() == [(wr_id, "SUCCESS") for wr_id in ids]
    assert pair.b.qp.counters.bytes_received == sum(schedule["sizes"])
    assert not in_flight_limit_broken
    flight = pair.a.qp.requestor.flight
    assert flight.bytes == 0 and not flight.outstanding
    active = [row for row in pair.a.qp.ev_states() if row["active"]]
    assert len(active) >= pair.a.qp.paths.profile.floor >= 1
