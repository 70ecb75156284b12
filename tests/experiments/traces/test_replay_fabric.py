"""`--fabric` of a replayed trace: its words, what is computed from them, and what is refused."""

from __future__ import annotations

import pytest

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.traces.replay_fabric import replay_fabric


def test_fabric__without_words_has_a_host_a_rank_at_rates_that_a_live_one_can_follow():
    fabric = replay_fabric(None, 10, live=False)
    assert (fabric.planes, fabric.racks, fabric.spines, fabric.hosts_per_rack) == (4, 3, 2, 4)
    assert fabric.parts(live=False)["links"] == {"rate": 10_000_000, "rtt": 0.01}
    assert "transport" not in fabric.parts(live=False)
    assert replay_fabric(None, 10, live=True).rate_bps == 32e6 / 4 / 10


def test_fabric__of_real_rates_has_long_packets_and_timers_of_its_round_trip():
    parts = replay_fabric("planes=8, spines=4, hosts_per_rack=16, rate=100G", 64, live=False).parts(live=False)
    assert parts["fabric"] == {"planes": 8, "racks": 4, "spines": 4, "hosts_per_rack": 16}
    assert parts["links"] == {"rate": 100_000_000_000, "rtt": 1e-5}
    assert parts["transport"] == {"pmtu": 4096, "clock": 0.001}
    assert replay_fabric("rtt=100ms", 4, live=False).parts(live=False)["transport"] == {"clock": 10}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plane=8", "--fabric: 'plane=8' is no KEY=VALUE (did you mean planes?), as in planes=8,"),
        ("8", "--fabric: '8' is no KEY=VALUE (has: planes, racks, spines, hosts_per_rack, rate, rtt), as in"),
        ("planes=many", "--fabric planes=many: must be a whole number"),
        ("rate=fast", "--fabric rate=fast: "),
        ("spines=0", "--fabric spines=0: must be above 0"),
        ("racks=2,hosts_per_rack=1", "--fabric: 2 racks of 1 hosts are too few for the 4 ranks of the trace"),
        ("planes=1000", "--trace: a fabric for its ranks: "),
    ],
)
def test_fabric__that_cannot_be_says_why(text, words):
    with pytest.raises(UsageError) as refusal:
        _ = replay_fabric(text, 4, live=False).plan
    assert str(refusal.value).startswith(words)
