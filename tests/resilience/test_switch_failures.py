"""Scripted resilience tests.

A switch dies with its ports up, loses its state, or keeps changing its mind.
"""

import pytest

from mrc_testbed.topologies.plan import LinkSpeed


@pytest.fixture(autouse=True)
def heal(fabric, transfer):
    """Heal after each test, before its transfer ends: nothing is left that holds a link or a switch."""
    yield
    fabric.inject.heal()


def ports_up(fabric) -> bool:
    return all(fabric.link_is_up(link) for link in fabric.plan.links)


@pytest.mark.parametrize(
    "switch, evs",
    [
        ("p1-t1-0", {0x100}),
        ("p3-t0-1", {0x300, 0x301}),
        pytest.param("p2-t0-0", {0x200, 0x201}, marks=pytest.mark.thorough),
    ],
    ids=["t1", "t0-responder", "t0-requestor"],
)
def test_blackhole__its_evs_leave_while_its_ports_stay_up_and_return(transfer, fabric, faults, switch, evs):
    """No port goes down, so nothing but silence tells.

    Losses without trims at hosts, and Clustermapper's probes.
    """
    running_transfer = transfer()
    running_transfer.reach(0.1)
    fabric.inject.blackhole(switch)
    assert running_transfer.wait_until(lambda: running_transfer.bad_evs() >= evs, 60.0), running_transfer.bad_evs()
    running_transfer.finish()  # with the black hole still there
    assert running_transfer.bad_evs() == evs
    assert ports_up(fabric)
    answer = fabric.controller.request("verify", timeout_s=30.0)["switches"][switch]
    assert answer["unchanged"] and not answer["error"]  # P4Runtime reads its tables as ever
    assert running_transfer.wait_until(lambda: any(switch in text for text in faults()), 30.0), faults()
    fabric.inject.heal()
    running_transfer.healed()
    assert running_transfer.wait_until(lambda: not faults(), 60.0), faults()


def test_reboot__state_is_lost_and_written_again(transfer, fabric, faults):
    running_transfer = transfer()
    running_transfer.reach(0.1)
    switch_before = fabric.controller.request("status")["switches"]["p1-t1-1"]
    outage = fabric.inject.reboot("p1-t1-1", off_s=0.5)
    assert outage.ended_at - outage.began_at >= 0.5

    def is_back() -> bool:
        now = fabric.controller.request("status")["switches"]["p1-t1-1"]
        return now["verified"] and now["restarts"] == switch_before["restarts"] + 1

    assert running_transfer.wait_until(is_back, 30.0)
    switch_after = fabric.controller.request("status")["switches"]["p1-t1-1"]
    assert (
        switch_after["pipeline_loads"] == switch_before["pipeline_loads"] + 1
        and switch_after["digest"] == switch_before["start_digest"]
    )
    running_transfer.finish()
    running_transfer.healed()
    assert ports_up(fabric) and running_transfer.wait_until(lambda: not faults(), 60.0), faults()


def test_flap__every_byte_arrives_and_the_link_is_up_at_the_end(transfer, fabric):
    running_transfer = transfer()
    running_transfer.reach(0.05)
    flap = fabric.inject.flap("h0", "p2-t0-0", 0.5, times=4)
    running_transfer.finish()
    flap.thread.join(timeout=30)
    assert flap.ended_at is not None and flap.error is None and ports_up(fabric)
    running_transfer.healed()


def test_black_hole_and_cut_together__heal_ends_both(transfer, fabric, faults):
    running_transfer = transfer()
    running_transfer.reach(0.1)
    fabric.inject.blackhole("p0-t1-1")
    fabric.inject.cut("h2", "p3-t0-1")
    assert running_transfer.wait_until(lambda: running_transfer.bad_evs() >= {0x001, 0x300, 0x301}, 60.0), (
        running_transfer.bad_evs()
    )
    running_transfer.finish()
    assert [fault.kind for fault in fabric.inject.active] == ["blackhole", "cut"]
    assert len(fabric.inject.heal()) == 2
    running_transfer.healed()
    assert running_transfer.wait_until(lambda: not faults(), 60.0), faults()


def test_slower_nic__sends_as_fast_as_it_is_told_and_as_before_when_undone(transfer, fabric):
    """h0's port of plane 0 at 2 Mb/s: it carries no more than that while three others carry the rest."""
    slow = fabric.inject.rate("h0", "p0-t0-0", 2e6, sender="h0")
    assert fabric.agent("h0").request("nic_rate")["rates"]["0"] == 2e6
    running_transfer = transfer(size=4 << 20, rate_bps=None)
    running_transfer.finish()
    sent = running_transfer.outcome["counters"]["plane_bytes"]
    assert sent[0] < min(sent[1:]) / 2
    fabric.inject.undo(slow)
    rate = fabric.agent("h0").request("nic_rate")["rates"]["0"]
    assert LinkSpeed(rate) == fabric.plan.host_link
