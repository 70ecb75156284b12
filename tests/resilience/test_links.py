"""Scripted resilience tests: a file crosses while links are cut.

Each asserts delivery and the states of EVs.
"""

import pytest


def test_transfer__spreads_over_every_path(transfer, fabric):
    running_transfer = transfer()
    running_transfer.finish()
    table = running_transfer.ev_table()
    assert set(table) == set(running_transfer.recorder.evs)
    assert all(ev["sent"] > 0 for ev in table.values() if ev["active"])
    assert {ev["plane"] for ev in table.values() if ev["sent"]} == set(range(fabric.plan.planes))


def test_t0_t1_cut__one_ev_leaves_and_returns(transfer, fabric, faults):
    running_transfer = transfer()
    running_transfer.reach(0.1)
    link = fabric.plan.link("p1-t0-0", "p1-t1-1")
    cut = running_transfer.cut(link)
    assert cut.evs == (0x101,)
    running_transfer.withdrawn(cut)
    assert running_transfer.wait_until(lambda: link.name in faults(), 30.0)
    running_transfer.finish()  # with the link still down
    assert 0x101 in running_transfer.bad_evs()
    running_transfer.restore(cut)
    running_transfer.healed()
    assert cut.all_back and running_transfer.ev_table()[0x101]["state"] == "good"
    assert running_transfer.wait_until(lambda: not faults(), 30.0)


@pytest.mark.parametrize("host", ["h0", pytest.param("h2", marks=pytest.mark.thorough)], ids=["requestor", "responder"])
def test_nic_port_cut__its_plane_leaves_and_returns(transfer, fabric, host):
    running_transfer = transfer()
    running_transfer.reach(0.1)
    t0 = fabric.plan.t0_name(2, fabric.plan.host(host).rack)
    cut = running_transfer.cut(fabric.plan.link(host, t0))
    assert cut.evs == (0x200, 0x201)
    running_transfer.withdrawn(cut)
    running_transfer.finish()
    running_transfer.restore(cut)
    running_transfer.healed()
    assert cut.all_back


def test_t0_t1_and_nic_cut_together__the_rest_carries_on(transfer, fabric):
    running_transfer = transfer()
    running_transfer.reach(0.1)
    fabric_cut = running_transfer.cut(fabric.plan.link("p1-t0-1", "p1-t1-0"))
    nic_cut = running_transfer.cut(fabric.plan.link("h2", "p3-t0-1"))
    running_transfer.withdrawn(fabric_cut, nic_cut)
    assert running_transfer.bad_evs() >= {0x100, 0x300, 0x301}
    running_transfer.finish()
    running_transfer.restore(fabric_cut)
    running_transfer.restore(nic_cut)
    running_transfer.healed()
    assert fabric_cut.all_back and nic_cut.all_back


def test_restored_in_the_middle__the_path_carries_again(transfer, fabric):
    running_transfer = transfer()
    running_transfer.reach(0.1)
    cut = running_transfer.cut(fabric.plan.link("p0-t0-0", "p0-t1-0"))
    running_transfer.withdrawn(cut)
    sent_while_down = running_transfer.ev_table()[0x000]["sent"]
    running_transfer.restore(cut)
    running_transfer.healed()
    running_transfer.finish()
    assert running_transfer.ev_table()[0x000]["sent"] > sent_while_down


def test_fixture_cut__a_link_goes_and_comes_back(fabric, cut):
    link = fabric.plan.link("p0-t0-0", "p0-t1-1")
    running_transfer = cut("p0-t0-0", "p0-t1-1")
    assert not fabric.link_is_up(link)
    running_transfer.restore()
    running_transfer.restore()
    assert fabric.link_is_up(link) and running_transfer.restored_at > running_transfer.cut_at
