"""The plan of a demonstration: everything that is known before there is a fabric."""

import pytest

from mrc_testbed.demo.plan import CUTS, DEFAULT_BYTES, MIN_BYTES, DemoError, plan_demo
from mrc_testbed.topologies.lab.options import LabOptions
from mrc_testbed.topologies.plan import Plan


def test_plan_demo__every_default_is_filled_in():
    plan = plan_demo(Plan())
    assert (plan.source, plan.destination, str(plan)) == ("h0", "h2", f"h0 -> h2 over {Plan()}")
    assert (plan.file, plan.size, plan.rate_bps) == (None, DEFAULT_BYTES["fast"], DEFAULT_BYTES["fast"] * 8 / 10)
    assert [cut.link.name for cut in plan.cuts] == ["p1-t0-0 p1-t1-1", "h2 p2-t0-1"]
    assert tuple((cut.down_at, cut.up_at) for cut in plan.cuts) == CUTS


def test_plan_demo__scapy_sends_less_and_slower():
    plan = plan_demo(Plan(), lab=LabOptions(nic="scapy"))
    assert plan.size == DEFAULT_BYTES["scapy"]
    assert plan.rate_bps == pytest.approx(5e6, rel=0.01)


def test_plan_demo__a_slow_machine_is_offered_less_for_as_long():
    plan = plan_demo(Plan(), lab=LabOptions(slowdown=10))
    assert plan.size == DEFAULT_BYTES["fast"] // 10 and plan.size * 8 / plan.rate_bps == pytest.approx(10)
    plan = plan_demo(Plan(), lab=LabOptions(slowdown=100))
    assert plan.size == MIN_BYTES and plan.rate_bps == DEFAULT_BYTES["fast"] * 8 / 10 / 100
    plan = plan_demo(Plan(), rate_bps=40e6, lab=LabOptions(slowdown=100))
    assert (plan.size, plan.rate_bps) == (DEFAULT_BYTES["fast"], 40e6)


def test_plan_demo__a_file_of_the_user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").write_bytes(bytes(MIN_BYTES))
    plan = plan_demo(Plan(), file=(tmp_path / "model").relative_to(tmp_path), rate_bps=7e6)
    assert (plan.file, plan.size, plan.rate_bps) == (tmp_path / "model", MIN_BYTES, 7e6)


@pytest.mark.parametrize(
    ("fabric", "cure"), [(Plan(racks=1), "--racks 2 or more"), (Plan(planes=1), "--planes 2 or more")]
)
def test_plan_demo__a_fabric_too_small_is_refused(fabric, cure):
    with pytest.raises(DemoError, match=cure):
        plan_demo(fabric)


def test_plan_demo__a_file_too_small_is_refused(tmp_path):
    (tmp_path / "small").write_bytes(bytes(MIN_BYTES - 1))
    with pytest.raises(DemoError, match="needs 4 MiB or more"):
        plan_demo(Plan(), file=tmp_path / "small")
