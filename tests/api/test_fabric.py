"""Python API: one set of tests for both forms, run in virtual time and (root) on live P4 switches."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mrc_testbed.api import (
    ApiError,
    Fabric,
    PlanError,
    UnitError,
    VirtualTimeError,
)
from mrc_testbed.errors import UsageError
from mrc_testbed.ipc.rundir import RunFiles
from tests.repository import ROOT

LIMIT_S = 60
"""Longest wait for anything: far beyond what a slow machine needs, never asserted on."""
T0_T1 = "p1-t0-0", "p1-t1-1"
EV = 0x0101
"""The one from h0 to h2 that crosses T0_T1."""


@pytest.fixture(scope="module", params=["virtual", pytest.param("live", marks=pytest.mark.root)])
def fabric(request, tmp_path_factory):
    """One for all tests below, which leave it healed.

    Its `with` block ends as by Ctrl-C, and nothing stays.
    """
    if request.param == "virtual":
        with Fabric(virtual=True) as opened_fabric:
            yield opened_fabric
        return
    if os.geteuid() != 0:
        pytest.skip("needs root: network namespaces and raw sockets")
    run_dir = tmp_path_factory.mktemp("run")
    try:
        with Fabric(run_dir=run_dir) as opened_fabric:
            pids = [process.pid for process in opened_fabric.backend.lab.processes]
            yield opened_fabric
            opened_fabric.cut("h0", "p0-t0-0")
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert opened_fabric.now > 0
    assert pids and not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not RunFiles(run_dir).state_file.exists() and not RunFiles(run_dir).data.exists()
    assert "p0-t0-0-eth1" not in os.listdir("/sys/class/net")


@pytest.fixture
def healed_fabric(fabric):
    """The fabric, healed afterwards, with every EV usable again."""
    yield fabric
    fabric.heal()
    assert fabric.injected == []
    pairs = {(transfer.source, transfer.destination) for transfer in fabric.transfers if not transfer.closed}
    assert fabric.run_until(lambda: all(not unusable_evs(fabric, *pair) for pair in pairs), LIMIT_S)


def unusable_evs(fabric, source="h0", destination="h2"):
    return [ev.ev for ev in fabric.evs(source, destination) if ev.state not in ("good", "skip", "unknown")]


def test_transfer__bytes_arrive_and_are_told_by_plane(fabric):
    data = os.urandom(300_001)
    transfer = fabric.transfer("h1", "h3", data)
    result = transfer.wait(LIMIT_S)
    assert transfer.read() == data
    assert (result.size_bytes, transfer.share) == (len(data), 1.0)
    assert len(result.plane_bytes) == 4 and min(result.plane_bytes) > 0
    sent_again = sum(result.plane_bytes) - len(data)
    assert (sent_again > 0) == (result.retransmitted > 0)  # a busy machine may lose packets
    assert result.rate_bps == pytest.approx(len(data) * 8 / result.duration_s)


def test_transfer__of_a_file(fabric, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(os.urandom(70_000))
    transfer = fabric.transfer("h3", "h0", file, rate="20M")
    transfer.wait(LIMIT_S)
    assert transfer.read() == file.read_bytes()
    second = fabric.transfer("h3", "h0", 1000)
    second.wait(LIMIT_S)
    with pytest.raises(ApiError, match="read\\(\\) before"):
        transfer.read()


def test_cut__its_ev_goes_and_comes_back_and_every_byte_arrives(healed_fabric):
    transfer = healed_fabric.transfer("h0", "h2", 3 << 20)
    transfer.reach(0.2, LIMIT_S)
    assert not transfer.ended and 0.2 <= transfer.share < 1
    cut = healed_fabric.cut(*T0_T1)
    assert healed_fabric.injected == [cut]
    assert healed_fabric.run_until(lambda: unusable_evs(healed_fabric) == [EV], LIMIT_S)
    way = healed_fabric.trace("h0", "h2", EV)
    assert not way.arrived and way.nodes == ("h0", "p1-t0-0")
    healed_fabric.restore(*T0_T1[::-1])
    assert not cut.active and healed_fabric.injected == []
    result = transfer.wait(LIMIT_S)
    assert healed_fabric.run_until(lambda: not unusable_evs(healed_fabric), LIMIT_S)
    assert 0 < result.lost <= result.retransmitted

    # The EV leaves while the link is cut, and comes back only after the cut has ended.
    loss_move, return_move = [move for move in transfer.ev_moves if move.ev == EV][:2]
    assert (loss_move.old_state, loss_move.new_state, return_move.new_state) == ("good", "assumed_bad", "good")
    assert cut.begun_s <= loss_move.at_s < return_move.at_s and cut.ended_s <= return_move.at_s
    texts = [event.text for event in healed_fabric.events("fault", "ev") if event.at_s >= cut.begun_s]
    expected_parts = ["cut p1-t0-0 p1-t1-1", "EV 0x0101 assumed_bad", "over: cut p1-t0-0 p1-t1-1", "EV 0x0101 good"]
    indexes = [min(index for index, text in enumerate(texts) if part in text) for part in expected_parts]
    assert indexes == sorted(indexes)

    columns = transfer.series(every=0.05)
    assert list(columns) == ["at_s", "goodput_bps", "lost", "retransmitted", *(f"plane{p}_bps" for p in range(4))]
    assert len({len(column) for column in columns.values()}) == 1
    assert sum(columns["lost"]) == pytest.approx(result.lost)
    ends = [*columns["at_s"][1:], transfer.samples[-1].at_s]
    spans = [end - begin for begin, end in zip(columns["at_s"], ends, strict=True)]
    sent = sum(rate * span / 8 for rate, span in zip(columns["goodput_bps"], spans, strict=True))
    assert sent == pytest.approx(transfer.size_bytes)

    lines = transfer.ev_timeline()
    rows = list(zip(*lines.values(), strict=True))
    assert {row[0] for row in rows} == {ev_state.ev for ev_state in healed_fabric.evs("h0", "h2")}
    ev_spans = [(state, begin, end) for ev, _, state, begin, end in rows if ev == EV]
    assert [state for state, *_ in ev_spans][:2] == ["good", "assumed_bad"]
    assert ev_spans[1][1:] == (loss_move.at_s, return_move.at_s)


def test_nic_cut__the_plane_is_out_at_both_ends(healed_fabric):
    transfer = healed_fabric.transfer("h0", "h2", 2 << 20)
    transfer.reach(0.2, LIMIT_S)
    with healed_fabric.cut("h2", "p2-t0-1"):
        assert healed_fabric.run_until(
            lambda: [event for event in healed_fabric.events("plane") if "plane 2 at h2 is down" in event.text]
        )
        transfer.reach(0.6, LIMIT_S)
    transfer.wait(LIMIT_S)
    assert healed_fabric.run_until(lambda: "plane 2 at h2 is up" in healed_fabric.events("plane")[-1].text, LIMIT_S)
    lines = transfer.ev_timeline()
    out = {plane for plane, state in zip(lines["plane"], lines["state"], strict=True) if state == "port_down"}
    assert out == {2}


def test_loss__holds_in_its_block_and_a_new_one_replaces_it(healed_fabric):
    with healed_fabric.loss(*T0_T1, "1%") as first, healed_fabric.loss(*T0_T1, "0001", sender="p1-t0-0") as one_way:
        second = healed_fabric.loss(*T0_T1, 0.3)
        assert healed_fabric.injected == [one_way, second] and not first.active
        result = healed_fabric.transfer("h0", "h2", 1 << 20).wait(LIMIT_S)
        assert result.lost > 0
        lost = {ev.ev: ev.lost for ev in healed_fabric.evs("h0", "h2")}
        assert lost[EV] > 0 and sum(lost.values()) >= result.lost
    assert healed_fabric.injected == [second]
    second.undo()
    second.undo()
    assert healed_fabric.injected == []


def test_switch__black_hole_and_power(healed_fabric):
    def way():
        return healed_fabric.trace("h0", "h2", EV)

    with healed_fabric.blackhole("p1-t1-1"):
        assert not way().arrived
    healed_fabric.power_off("p1-t1-1")
    assert not way().arrived
    healed_fabric.power_on("p1-t1-1")
    assert healed_fabric.run_until(lambda: way().arrived, LIMIT_S)
    assert way().nodes == ("h0", "p1-t0-0", "p1-t1-1", "p1-t0-1", "h2")


def test_deny__its_evs_carry_nothing_until_it_is_allowed(healed_fabric):
    def of_ev():
        return next(ev for ev in healed_fabric.evs("h0", "h2") if ev.ev == EV)

    healed_fabric.deny("p1-t1-1")
    sent = of_ev().sent
    transfer = healed_fabric.transfer("h0", "h2", 300_000)
    transfer.wait(LIMIT_S)
    assert (of_ev().state, of_ev().sent) == ("denied", sent)
    lines = transfer.ev_timeline()
    assert {ev for ev, state in zip(lines["ev"], lines["state"], strict=True) if state == "denied"} == {EV}
    healed_fabric.allow("p1-t1-1")
    assert of_ev().state == "good"
    healed_fabric.deny(*T0_T1)
    assert of_ev().state == "denied"
    healed_fabric.allow()
    assert of_ev().state == "good"
    assert healed_fabric.run_until(lambda: len(transfer.ev_moves) == 3, LIMIT_S)
    assert [move.new_state for move in transfer.ev_moves] == ["good", "denied", "good"]


def test_degrade__takes_rate_and_delay_back(healed_fabric):
    with healed_fabric.degrade("h0", "p0-t0-0", rate="2M", delay="3ms"):
        slow = healed_fabric.transfer("h0", "h2", 200_000).wait(LIMIT_S)
    fast = healed_fabric.transfer("h0", "h2", 200_000).wait(LIMIT_S)
    assert slow.plane_bytes[0] < fast.plane_bytes[0]


def test_counters__of_all_switches_or_one(fabric):
    fabric.transfer("h0", "h2", 1 << 20).wait()  # over all switches, whatever ran here before
    healthy = {counter.switch for counter in fabric.counters() if counter.forwarded}
    assert healthy == {switch.name for switch in fabric.plan.switches}
    rows = fabric.counters("p1-t1-1")
    assert [row.neighbour for row in rows if row.neighbour] == ["p1-t0-0", "p1-t0-1"]
    assert all(row.dropped == sum(row.drops_by_reason.values()) for row in rows)


def test_findings__are_the_controllers(healed_fabric):
    if healed_fabric.virtual:
        with pytest.raises(VirtualTimeError, match=r"no controller.*live"):
            healed_fabric.findings()
        return
    with healed_fabric.cut("p3-t0-0", "p3-t1-0") as cut:
        assert healed_fabric.run_until(
            lambda: any(finding.state == "active" for finding in healed_fabric.findings()), LIMIT_S
        )
        (active_finding,) = [finding for finding in healed_fabric.findings() if finding.state == "active"]
        assert active_finding.location == "p3-t0-0 p3-t1-0"
        assert active_finding.raised_s >= cut.begun_s and active_finding.found_after_s >= 0 and active_finding.sources
        assert healed_fabric.run_until(
            lambda: healed_fabric.events("finding")[-1].location == active_finding.location, LIMIT_S
        )
    assert healed_fabric.run_until(
        lambda: all(finding.state != "active" for finding in healed_fabric.findings()), LIMIT_S
    )


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda f: f.transfer("h0", "h9"), PlanError, "h0, h1, h2, h3"),
        (lambda f: f.transfer("h0", "h0"), ApiError, "to itself"),
        (lambda f: f.transfer("h0", "h2", "lots"), UnitError, "4096"),
        (lambda f: f.transfer("h0", "h2", 0), ApiError, "at least one"),
        (lambda f: f.transfer("h0", "h2", True), ApiError, "bytes"),
        (lambda f: f.transfer("h0", "h2", Path("/no/such")), ApiError, "no file"),
        (lambda f: f.transfer("h0", "h2", 1, transport="tcp"), ApiError, "mrc, rocev2"),
        (lambda f: f.transfer("h0", "h2", 1, rate="0"), ApiError, "500K"),
        (lambda f: f.cut("p0-t0-0", "p1-t1-0"), PlanError, "p0-t1-0, p0-t1-1"),
        (lambda f: f.oneway("p0-t0-0", "h3"), PlanError, "linked to"),
        (lambda f: f.loss("p0-t0-0", "p0-t1-0", 1.5), UnitError, "0 to 1"),
        (lambda f: f.loss("p0-t0-0", "p0-t1-0", "1%", sender="h0"), ApiError, "p0-t0-0 or p0-t1-0"),
        (lambda f: f.degrade("p0-t0-0", "p0-t1-0"), ApiError, "rate="),
        (lambda f: f.degrade("p0-t0-0", "p0-t1-0", rate=0), ApiError, "more than 0"),
        (lambda f: f.flap("p0-t0-0", "p0-t1-0", times=0), ApiError, "2s and 5"),
        (lambda f: f.blackhole("h0"), PlanError, "p0-t0-0"),
        (lambda f: f.deny("h0"), PlanError, "p0-t0-0"),
        (lambda f: f.deny(), PlanError, "two nodes"),
        (lambda f: f.trace("h0", "h2", 0x0909), ApiError, "0x0000, 0x0001"),
        (lambda f: f.evs("h0", "h0"), ApiError, "two hosts"),
        (lambda f: f.run_for("soon"), UnitError, "1.25ms"),
        (lambda f: f.start(), ApiError, "close"),
    ],
)
def test_mistake__is_told_with_the_cure_and_changes_nothing(fabric, call, error, message):
    counts = len(fabric.transfers), len(fabric.events("fault"))
    with pytest.raises(error, match=".*".join(message.split())):
        call(fabric)
    assert (len(fabric.transfers), len(fabric.events("fault"))) == counts and fabric.injected == []


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"planes": 17}, PlanError, "1 to 16"),
        ({"rate": "fast"}, UsageError, "10M"),
        ({"mode": "other"}, PlanError, "srv6"),
        ({"rate": "none", "virtual": True}, VirtualTimeError, "rate="),
        ({"mode": "stev", "virtual": True}, VirtualTimeError, "srv6"),
        ({"servers": "/no/such.yaml"}, UsageError, "give a file of machines"),
    ],
)
def test_fabric__that_cannot_be(options, error, message):
    with pytest.raises(error, match=message):
        Fabric(**options).start()


def test_fabric__on_several_machines_is_live(tmp_path):
    (tmp_path / "servers.yaml").write_text("machines: [{name: a, address: 192.0.2.11}]\n")
    with pytest.raises(UsageError, match="servers= is of live fabrics"):
        Fabric(virtual=True, servers=tmp_path / "servers.yaml").start()


def test_modes_of_random_evs__have_no_way_by_ev():
    with Fabric(virtual=True, mode="ecmp") as f:
        transfer = f.transfer("h0", "h2", 50_000)
        transfer.wait()
        assert len(f.evs("h0", "h2")) > 8 and transfer.ev_timeline()["ev"] == []
        with pytest.raises(ApiError, match="srv6"):
            f.trace("h0", "h2", f.evs("h0", "h2")[0].ev)


def test_import__brings_the_api_when_it_is_asked_for__and_live_without_root_says_what_works():
    program = """if True:
        import os, sys, mrc_testbed
        print("mrc_testbed.api" in sys.modules, hasattr(mrc_testbed, "Nothing"))
        from mrc_testbed import Fabric, RootNeededError
        if os.geteuid() == 0:
            os.setuid(65534)
        try:
            Fabric().start()
        except RootNeededError as error:
            print(error)
    """
    process = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    import_line, error_line = process.stdout.splitlines()
    assert import_line == "False False" and "sudo" in error_line and "virtual=True" in error_line, process.stderr
