"""The Python API in virtual time alone.

The same run by seed, time that passes only where it is waited, all faults.
"""

from dataclasses import asdict

import pytest

from mrc_testbed.api import (
    ApiError,
    Fabric,
    FaultError,
    NotInTimeError,
    TransferFailedError,
)
from mrc_testbed.faults import DrainFault, StallFault

T0_T1 = "p1-t0-0", "p1-t1-1"
EV = 0x0101
"""The one from h0 to h2 that crosses T0_T1."""


def a_run(seed):
    with Fabric(planes=2, hosts_per_rack=1, virtual=True, seed=seed) as f:
        transfer = f.transfer("h0", "h1", 400_000)
        f.loss("p0-t0-0", "p0-t1-0", "5%")
        transfer.wait()
        return transfer.samples, [asdict(event) for event in f.events()], transfer.read()


def test_virtual__the_same_seed_is_the_same_run():
    assert a_run(3) == a_run(3)
    assert a_run(3) != a_run(4)


def test_virtual__time_passes_only_where_it_is_waited():
    with Fabric(virtual=True) as f:
        transfer = f.transfer("h0", "h2", "1M")
        assert (f.now, transfer.share) == (0.0, 0.0)
        with pytest.raises(ApiError, match="wait\\(\\) first"):
            assert transfer.result
        with pytest.raises(NotInTimeError, match="not over after"):
            transfer.wait(0.05)
        assert f.now == pytest.approx(0.05)
        f.run_for("50ms")
        assert f.now == pytest.approx(0.1) and 0 < transfer.share < 1
        assert not f.run_until(lambda: False, 0.2) and f.now == pytest.approx(0.3)
        transfer.wait()
    assert transfer.result.size_bytes == 1 << 20 and f.now > 0.3  # what was recorded stays
    with pytest.raises(ApiError, match="not up"):
        f.evs("h0", "h2")
    f.close()


def test_virtual__a_transfer_that_cannot_arrive_fails():
    with Fabric(virtual=True) as f:
        f.blackhole("p0-t0-1"), f.blackhole("p1-t0-1"), f.blackhole("p2-t0-1"), f.blackhole("p3-t0-1")
        transfer = f.transfer("h0", "h2", 10_000)
        with pytest.raises(TransferFailedError, match="Retry Counter Exceeded"):
            transfer.wait()
        assert transfer.ended and f.events("qp_error") and f.events("transfer")[-1].text.startswith("h0 to h2: QP")
        assert any("blackhole" in counter.drops_by_reason for counter in f.counters("p0-t0-1"))


def test_virtual__the_baseline_takes_one_path():
    with Fabric(virtual=True) as f:
        result = f.transfer("h0", "h2", 100_000, transport="rocev2").wait()
        assert sum(share > 0 for share in result.plane_bytes) == 1


def test_virtual__a_way_ends_where_a_cable_loses_everything():
    with Fabric(virtual=True) as f:
        with f.oneway(*T0_T1) as fault:
            assert f.trace("h0", "h2", EV).end == "ends on the cable p1-t0-0 p1-t1-1: loses everything (injected)"
            assert f.trace("h2", "h0", EV).arrived and repr(fault) == "<one way p1-t0-0 p1-t1-1, holds>"
        assert repr(fault) == "<one way p1-t0-0 p1-t1-1, over>"
        for share, arrives in (("50%", True), ("10", True), ("11", False), (1, False)):
            with f.loss(*T0_T1, share):
                assert f.trace("h0", "h2", EV).arrived == arrives, share
        with f.corrupt(*T0_T1, "100%", sender="p1-t0-0"):
            result = f.transfer("h0", "h2", 50_000).wait()
        assert result.lost and result.ev_moves
        (row,) = [counter for counter in f.counters("p1-t0-0") if counter.neighbour == "p1-t1-1"]
        assert row.drops_by_reason.keys() == {"corrupt"} and row.drops_by_reason["corrupt"] == row.dropped


def test_virtual__flaps_end_and_a_switch_reboots():
    with Fabric(virtual=True) as f:
        flap = f.flap(*T0_T1, period="100ms", times=2)
        f.run_for(0.02)
        assert not f.trace("h0", "h2", EV).arrived and flap.active
        f.run_for(0.2)
        assert f.trace("h0", "h2", EV).arrived and not flap.active
        for_ever = f.flap(*T0_T1, period=0.1)
        f.run_for(0.02)
        f.heal()
        f.run_for(0.3)
        assert f.trace("h0", "h2", EV).arrived and not for_ever.active
        f.reboot("p1-t1-1", "200ms")
        assert not f.trace("h0", "h2", EV).arrived
        f.run_for(0.3)
        assert f.trace("h0", "h2", EV).arrived


def test_virtual__any_kind_of_fault():
    with Fabric(virtual=True) as f:
        f.inject(StallFault.on("h2", seconds=0.1))
        assert f.transfer("h0", "h2", 1000).wait().duration_s > 0.09
        with pytest.raises(FaultError, match="without control plane"):
            f.inject(DrainFault(plane=0))
        assert len(f.injected) == 1
