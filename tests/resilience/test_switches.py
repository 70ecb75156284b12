"""Scripted resilience tests: a whole switch goes off and on under a transfer."""


def test_t1_off_and_on__comes_back_with_its_routes(transfer, fabric, faults):
    running_transfer = transfer()
    running_transfer.reach(0.1)
    fabric.power("p1-t1-0", False)
    assert running_transfer.wait_until(lambda: not running_transfer.recorder.usable(0x100), 60.0)
    assert running_transfer.wait_until(lambda: faults() == ["p1-t1-0"], 30.0), faults()
    running_transfer.finish()  # with the switch still off
    fabric.power("p1-t1-0", True)
    running_transfer.healed()
    assert running_transfer.wait_until(lambda: not faults(), 30.0), faults()
    switch = fabric.controller.request("status")["switches"]["p1-t1-0"]
    assert switch["verified"] and switch["restarts"] == 1
    assert set(switch["writes_after_start_by_reason"]) == {"restart"}


def test_t0_off_and_on__its_plane_leaves_and_returns(transfer, fabric, faults):
    running_transfer = transfer()
    running_transfer.reach(0.1)
    fabric.power("p3-t0-1", False)
    assert running_transfer.wait_until(lambda: running_transfer.bad_evs() >= {0x300, 0x301}, 60.0)
    running_transfer.finish()
    fabric.power("p3-t0-1", True)
    running_transfer.healed()
    assert running_transfer.wait_until(lambda: not faults(), 30.0), faults()
