"""Scripted resilience tests: a file crosses while links are cut.

Each asserts delivery and the states of EVs.
"""

import pytest


def test_transfer__spreads_over_every_path(transfer, fabric):
    one = transfer()
    one.finish()
    table = one.ev_table()
    assert set(table) == set(one.recorder.evs)
    assert all(ev["sent"] > 0 for ev in table.values() if ev["active"])
    assert {ev["plane"] for ev in table.values() if ev["sent"]} == set(range(fabric.plan.planes))


def test_t0_t1_cut__one_ev_leaves_and_returns(transfer, fabric, faults):
    one = transfer()
    one.reach(0.1)
    link = fabric.plan.link("p1-t0-0", "p1-t1-1")
    cut = one.cut(link)
    assert cut.evs == (0x101,)
    one.withdrawn(cut)
    assert one.wait_until(lambda: link.name in faults(), 30.0)
    one.finish()  # with the link still down
    assert 0x101 in one.bad_evs()
    one.restore(cut)
    one.healed()
    assert cut.all_back and one.ev_table()[0x101]["state"] == "good"
    assert one.wait_until(lambda: not faults(), 30.0)


@pytest.mark.parametrize("host", ["h0", "h2"], ids=["requestor", "responder"])
def test_nic_port_cut__its_plane_leaves_and_returns(transfer, fabric, host):
    one = transfer()
    one.reach(0.1)
    t0 = fabric.plan.t0_name(2, fabric.plan.host(host).rack)
    cut = one.cut(fabric.plan.link(host, t0))
    assert cut.evs == (0x200, 0x201)
    one.withdrawn(cut)
    one.finish()
    one.restore(cut)
    one.healed()
    assert cut.all_back


def test_t0_t1_and_nic_cut_together__the_rest_carries_on(transfer, fabric):
    one = transfer()
    one.reach(0.1)
    fabric_cut = one.cut(fabric.plan.link("p1-t0-1", "p1-t1-0"))
    nic_cut = one.cut(fabric.plan.link("h2", "p3-t0-1"))
    one.withdrawn(fabric_cut, nic_cut)
    assert one.bad_evs() >= {0x100, 0x300, 0x301}
    one.finish()
    one.restore(fabric_cut)
    one.restore(nic_cut)
    one.healed()
    assert fabric_cut.all_back and nic_cut.all_back


def test_restored_in_the_middle__the_path_carries_again(transfer, fabric):
    one = transfer()
    one.reach(0.1)
    cut = one.cut(fabric.plan.link("p0-t0-0", "p0-t1-0"))
    one.withdrawn(cut)
    sent_while_down = one.ev_table()[0x000]["sent"]
    one.restore(cut)
    one.healed()
    one.finish()
    assert one.ev_table()[0x000]["sent"] > sent_while_down


def test_fixture_cut__a_link_goes_and_comes_back(fabric, cut):
    link = fabric.plan.link("p0-t0-0", "p0-t1-1")
    one = cut("p0-t0-0", "p0-t1-1")
    assert not fabric.link_is_up(link)
    one.restore()
    one.restore()
    assert fabric.link_is_up(link) and one.restored_at > one.cut_at
