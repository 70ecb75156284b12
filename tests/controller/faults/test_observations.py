"""Observations of a fault list are kept, and replayed in virtual time.

Files that are none are refused with a reason.
"""

import json

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.controller.errors import InputError
from mrc_testbed.controller.faults.correlator import OBSERVATIONS, FaultCorrelator
from mrc_testbed.controller.faults.observations import (
    EARLIER,
    FILE,
    VERSION,
    ObservationRecorder,
    Observations,
    header_of,
    replay,
    replay_file,
)
from mrc_testbed.errors import UsageError
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(planes=1, racks=2, spines=2, hosts_per_rack=2)
GNMI = "gnmi 127.0.0.1:9339"


def cut_and_healed(faults, changes):
    """Cut and restore a link, let a host complain of an EV, and ring the timers."""

    def note(now):
        changes.extend((now, change, fault.text) for change, fault in faults.changes())

    def ring(end_time):
        while (due := faults.next_timer()) is not None and due <= end_time:
            faults.on_timer(due)
            note(due)

    # Every method that is recorded is called, but for `restore` and `confirm_by`.
    plan, segmenter = faults.plan, faults.segmenter
    ev = segmenter.data(plan.host("h0"), plan.host("h2"), 0x0001)
    probe = segmenter.t1_probe("h0", 0, "p0-t1-1")
    faults.attend("counters", now=0.2)
    faults.stream("p0-t0-0", True, now=0.5)
    faults.path("h0 p0-t1-1", probe, "ok", source="mapper", now=1.0)
    faults.counts("h0 p0-t1-1", probe, 10, 0, source="mapper", now=1.5, through_at=1.4)
    faults.port("p0-t0-0-eth4", "DOWN", source=GNMI, now=2.0)
    faults.path("h0 h2 0x0001", ev, "down", source="ev", now=2.05, t=2.01, says="a packet was lost without trace")
    ring(2.9)
    faults.digest("p0-t0-0-eth4", "dead next hop", now=2.95)
    note(2.95)
    faults.full_queue("p0-t0-0-eth3", now=3.0)
    faults.port("p0-t0-0-eth4", "UP", source=GNMI, now=4.0)
    note(4.0)
    faults.path("h0 h2 0x0001", ev, "ok", source="ev", now=4.5)
    faults.withdraw("h0 h2 0x0001", 0, source="ev", now=5.0)
    faults.forget("ev", now=6.0)
    ring(60.0)


def record_story(tmp_path, **options):
    recorder = ObservationRecorder(tmp_path / "log", PLAN, **options)
    changes = []
    cut_and_healed(FaultCorrelator(PLAN, tap=recorder), changes)
    recorder.close()
    return tmp_path / "log" / FILE, changes


def test_replay__the_same_changes_at_the_same_times(tmp_path):
    path, changes = record_story(tmp_path)
    changes_seen = []
    replay_file(path, lambda now, change, fault: changes_seen.append((now, change, fault.text)))
    assert changes_seen == changes
    assert [change for _, change, _ in changes if change != "updated"] == ["raised", "cleared"]


def test_replay__a_list_with_waits_of_its_own_is_rung_although_the_file_rings_no_timer(tmp_path):
    path, changes = record_story(tmp_path)
    observations = Observations(path)
    calls = [call for call in observations.calls if call[0] != "on_timer"]
    assert len(calls) < len(observations.calls)
    changes_seen = []
    replay(PLAN, calls, lambda now, change, fault: changes_seen.append((now, change, fault.text)), late_s=0.0)
    assert [change[1:] for change in changes_seen] == [change[1:] for change in changes]


def test_recorder__every_method_that_tells_something_is_heard():
    calls = []
    faults = FaultCorrelator(PLAN, tap=lambda name, arguments: calls.append((name, arguments["now"])))
    cut_and_healed(faults, [])
    faults.restore([], now=7.0, confirm_s=1.0)
    faults.confirm_by(9.0, now=8.0)
    assert {name for name, _ in calls} == set(OBSERVATIONS)


def test_recorder__a_file_grown_too_long_begins_anew_with_what_holds(tmp_path):
    recorder = ObservationRecorder(tmp_path, PLAN, keep_bytes=2000)
    faults = FaultCorrelator(PLAN, tap=recorder)
    faults.port("p0-t0-0-eth4", "DOWN", source=GNMI, now=1.0)
    probe = faults.segmenter.t0_probe("h0", 0)
    for number in range(100):
        faults.counts("h0 p0-t0-0", probe, number, 0, source="mapper", now=2.0 + number, through_at=2.0 + number)
    recorder.close()
    assert (tmp_path / EARLIER).exists()
    assert (tmp_path / FILE).stat().st_size < 4000
    replay = replay_file(tmp_path / FILE)
    assert [fault.text for fault in replay.active()] == ["T0-T1 link p0-t0-0 p0-t1-1 down"]


def test_recorder__what_was_withdrawn_is_not_told_again(tmp_path):
    recorder = ObservationRecorder(tmp_path, PLAN, keep_bytes=1)
    faults = FaultCorrelator(PLAN, tap=recorder)
    probe = faults.segmenter.t0_probe("h0", 0)
    faults.path("h0 p0-t0-0", probe, "down", source="mapper", now=1.0)
    faults.withdraw("h0 p0-t0-0", 0, source="mapper", now=2.0)
    for number in range(20):
        faults.stream("p0-t1-0", True, now=3.0 + number)
    recorder.close()
    assert "h0" not in (tmp_path / FILE).read_text()


def test_recorder__half_of_a_surrogate_pair_in_a_name_stops_nobody(tmp_path):
    """A JSON line can carry one, UTF-8 cannot: the fault list hears of the path all the same."""
    recorder = ObservationRecorder(tmp_path, PLAN)
    faults = FaultCorrelator(PLAN, tap=recorder)
    faults.path("h0 \ud800", faults.segmenter.t0_probe("h0", 0), "down", source="mapper", now=1.0)
    recorder.close()
    assert faults.has_path_symptoms
    assert replay_file(tmp_path / FILE).has_path_symptoms


def test_recorder__a_folder_that_cannot_be_written_stops_nobody(tmp_path, caplog):
    (tmp_path / "log").write_text("a file where the folder should be")
    recorder = ObservationRecorder(tmp_path / "log", PLAN)
    cut_and_healed(FaultCorrelator(PLAN, tap=recorder), [])
    assert "no longer recorded" in caplog.text


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (b"", "no file of observations"),
        (b'{"kind": "boot", "id": "8c1f"}\n', "no file of observations"),
        (b"\x7fELF\n", "line 1 is no JSON object"),
        (b'{"kind": "observations", "version": 99}\n', f"unknown version 99 of observations (known: {VERSION})"),
        (b'{"kind": "observations", "version": 1, "plan": {"planes": 0}}\n', "line 1: plan: planes = 0"),
        (header_of(PLAN) + b'{"of": "port", "now": 1.0, "inter', "line 2 is cut short (33 bytes"),
        (header_of(PLAN) + b'{"of": "noise", "now": 1.0}\n', "line 2: no observation 'noise'"),
        (header_of(PLAN) + b'{"of": "on_timer"}\n', "line 2: on_timer: `now` is no time"),
        (header_of(PLAN) + b'{"of": "port", "now": 1.0}\n', "line 2: port: missing a required argument"),
        (header_of(PLAN) + b'{"of": "stream", "now": 1.0, "switch": "p9-t0-0", "up": false}\n', "line 2: no switch"),
        (
            header_of(PLAN)
            + b'{"of": "path", "now": 1, "about": "x", "trace": ["h0", "h1"], "state": "ok", "source": "ev"}\n',
            "line 2: path: no walk of this fabric: h0 h1",
        ),
    ],
)
def test_replay__a_file_that_is_none_is_refused_with_its_line(tmp_path, lines, reason):
    path = tmp_path / "observations.jsonl"
    path.write_bytes(lines)
    with pytest.raises(InputError) as caught:
        replay_file(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert reason in str(caught.value)


def test_command__tells_the_changes_and_the_end(tmp_path):
    path, _ = record_story(tmp_path)
    result = CliRunner().invoke(app, ["faults", "--replay", str(path)])
    assert result.exit_code == 0, result.output
    assert "0.000 s  raised     1: T0-T1 link p0-t0-0 p0-t1-1 down" in result.output
    assert result.output.endswith("0 active in the end, 3 changes\n")
    data = json.loads(CliRunner().invoke(app, ["faults", "--replay", str(path), "--json"]).output)
    assert [change["change"] for change in data["changes"]] == ["raised", "updated", "cleared"]
    assert data["active"] == []


@pytest.mark.parametrize("arguments", [["--replay", "/nowhere/observations.jsonl"], ["all", "--replay", "x"]])
def test_command__says_what_is_wrong(arguments):
    assert isinstance(CliRunner().invoke(app, ["faults", *arguments]).exception, UsageError)
