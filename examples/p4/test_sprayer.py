"""Exercise "Write your own sprayer": each test says what is missing. SOLUTION=1 tries the solution."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from leaf_spine import LeafSpine

PROGRAM = "sprayer_solution.p4" if os.environ.get("SOLUTION") else "sprayer.p4"
FLOW_ECMP = "sprayer_flow_ecmp.p4"
PACKETS = 400


@pytest.fixture
def fabric(p4_switch):
    return LeafSpine(p4_switch, PROGRAM)


def test_step_1__packets_of_one_flow_take_all_uplinks_in_turn(fabric):
    arrivals = fabric.transfer(PACKETS)
    assert arrivals == PACKETS, f"{arrivals} of {PACKETS} packets arrived: keep what worked before"
    busiest = max(fabric.loads.values())
    assert busiest <= PACKETS // 4 + 1, (
        f"step 1: the busiest of 4 uplinks carried {busiest} of {PACKETS} packets of a flow; in turn it is "
        f"{PACKETS // 4}. Ports: {dict(sorted(fabric.loads.items()))}. Keep the turn in a register, in choose()"
    )


def test_step_2__an_uplink_without_carrier_is_left_out(fabric):
    fabric.cut("s1", 3)
    arrivals = fabric.transfer(PACKETS, flows=16)
    assert arrivals == PACKETS, (
        f"step 2: {PACKETS - arrivals} of {PACKETS} packets were lost at s1, whose port 3 has no carrier. Where "
        "live_ports sends nothing, note the uplink as bad until a second from now, and resubmit the packet"
    )


def test_step_3__a_cut_behind_the_spine_costs_no_packet(fabric):
    fabric.cut("s4", 2)
    arrivals = fabric.transfer(PACKETS, flows=16)
    assert arrivals == PACKETS, (
        f"step 3: {PACKETS - arrivals} of {PACKETS} packets were lost at s4, which has no link to s2. A spine returns "
        "such a packet to the port where it came in; the leaf sees by uplink_of that it came back"
    )
    assert fabric.loads[3] <= 5, f"step 3: port 3 of s1 sent {fabric.loads[3]} packets to the dead end; one is enough"


def test_step_4__an_uplink_that_works_again_is_used_again(fabric):
    fabric.cut("s1", 3)
    fabric.transfer(40)
    fabric.dead_ports.clear()
    for name, port in (("s1", 3), ("s4", 1)):
        fabric.switches[name].script(f"port {port} up")
    fabric.switches["s1"].wait(2.0)
    fabric.loads.clear()
    fabric.transfer(40)
    sent = fabric.loads[3]
    assert sent >= 8, f"step 4: port 3 works again, and sent {sent} of 40 packets two seconds later; want 8 or more"


def test_the_sprayer_beats_flow_ecmp_under_a_cut(p4_switch, fabric):
    """Sixteen flows, a link cut behind a spine: packets that arrive, and uplinks' worth of goodput."""
    flow_ecmp = LeafSpine(p4_switch, FLOW_ECMP)
    figures = []
    for leaf_spine in (flow_ecmp, fabric):
        leaf_spine.cut("s4", 2)
        arrivals = leaf_spine.transfer(PACKETS, flows=16)
        figures += [arrivals, round(arrivals / max(leaf_spine.loads.values()), 1)]  # the busiest uplink sets the time
    text = "flow ECMP: {} of 400 packets arrive, at {} times an uplink's rate; yours: {}, at {}".format(*figures)
    print(text)
    assert figures[2:] > figures[:2] and figures[3] > figures[1], text
