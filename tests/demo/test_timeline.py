"""The story of a cut is read off events; here the events are written by hand."""

import pytest

from mrc_testbed.demo.timeline import TimelineRecorder, TransferProgress
from mrc_testbed.topologies.plan import Plan

PLAN = Plan()
LINK = PLAN.link("p1-t0-0", "p1-t1-1")
NIC = PLAN.link("h2", "p2-t0-1")
EVS = (0x000, 0x001, 0x100, 0x101, 0x200, 0x201, 0x300, 0x301)


def steady(recorder, rate_bps, start, end, step=0.02):
    t = start
    while t <= end + 1e-9:
        recorder.progress.add(t, int((t - start) * rate_bps / 8))
        t += step


def test_recorder__link_cut_and_healed():
    recorder = TimelineRecorder(EVS)
    steady(recorder, 80e6, 0.0, 5.0)
    cut = recorder.cut(LINK, (0x101,), time_s=1.0)
    recorder.link_seen(LINK.name, False, time_s=1.004)
    recorder.loss(0x101, time_s=1.03)
    recorder.loss(0x101, time_s=1.04)
    recorder.loss(0x200, time_s=1.05)  # another path: none of this cut's business
    recorder.ev_state(0x101, good=False, time_s=1.03)
    assert not recorder.all_usable
    cut.restored_at = 2.0
    recorder.link_seen(LINK.name, True, time_s=2.01)
    recorder.ev_state(0x101, good=True, time_s=2.7)
    story = recorder.story(cut)
    assert story["lost_packets"] == 2
    assert story["first_loss_after_s"] == 0.03
    assert story["evs_withdrawn_after_s"] == 0.03
    assert story["evs_back_after_s"] == 0.7
    assert (story["controller_saw_down_after_s"], story["controller_saw_up_after_s"]) == (0.004, 0.01)
    assert story["rate_back_after_s"] == 0.0  # it never dipped
    assert recorder.all_usable


def test_recorder__plane_down_at_the_peer_withdraws_its_evs():
    recorder = TimelineRecorder(EVS)
    cut = recorder.cut(NIC, (0x200, 0x201), time_s=1.0)
    recorder.ev_state(0x200, good=False, time_s=1.01)
    assert not cut.all_withdrawn
    recorder.plane_state("h2", 2, is_up=False, time_s=1.02)
    assert cut.withdrawn_at == {0x200: 1.01, 0x201: 1.02}
    cut.restored_at = 2.0
    recorder.plane_state("h2", 2, is_up=True, time_s=2.1)
    assert cut.back_at == {0x201: 2.1}  # 0x200 is still assumed bad
    recorder.ev_state(0x200, good=True, time_s=2.9)
    assert cut.all_back


def test_recorder__withdrawn_again_after_the_restoration_is_not_back():
    recorder = TimelineRecorder(EVS)
    cut = recorder.cut(LINK, (0x101,), time_s=1.0)
    recorder.ev_state(0x101, good=False, time_s=1.1)
    cut.restored_at = 2.0
    recorder.ev_state(0x101, good=True, time_s=2.5)
    recorder.ev_state(0x101, good=False, time_s=2.6)
    assert cut.all_withdrawn and not cut.all_back


def test_recorder__back_before_the_link_was_restored_does_not_count():
    recorder = TimelineRecorder(EVS)
    cut = recorder.cut(LINK, (0x101,), time_s=1.0)
    recorder.ev_state(0x101, good=False, time_s=1.1)
    recorder.ev_state(0x101, good=True, time_s=1.2)
    assert not cut.all_back


def test_recorder__an_ev_that_is_out_when_the_command_begins_is_out_during_the_cut():
    """No packet is on its path, whatever took it out.

    Back in use before the restoration, the cut has to take it out.
    """
    recorder = TimelineRecorder(EVS)
    recorder.ev_state(0x200, good=False, time_s=0.9)
    recorder.ev_state(0x201, good=False, time_s=0.95)
    cut = recorder.cut(NIC, (0x200, 0x201), time_s=1.0)
    assert cut.all_withdrawn and cut.out_before == {0x200, 0x201}
    recorder.ev_state(0x201, good=True, time_s=1.1)
    assert not cut.all_withdrawn and cut.out_before == {0x200}
    recorder.plane_state("h2", 2, is_up=False, time_s=1.2)
    assert cut.withdrawn_at == {0x200: 1.0, 0x201: 1.2}
    assert recorder.story(cut)["evs_withdrawn_after_s"] == 0.2 and recorder.story(cut)["evs_out_before"] == ["0x0200"]
    recorder.restore(cut, time_s=2.0)
    recorder.ev_state(0x200, good=True, time_s=2.1)
    recorder.plane_state("h2", 2, is_up=True, time_s=2.2)
    assert cut.all_back and cut.back_at == {0x200: 2.2, 0x201: 2.2}


def test_recorder__told_late_of_what_was_before_the_command():
    """A host that was held up tells with the time its turn began.

    The event is older than the cut it comes after.
    """
    recorder = TimelineRecorder(EVS)
    cut = recorder.cut(LINK, (0x101,), time_s=1.0)
    recorder.ev_state(0x101, good=False, time_s=0.94)
    assert cut.all_withdrawn and cut.withdrawn_at == {0x101: 1.0}


def test_recorder__a_slow_command_is_an_interval():
    """The link went down somewhere between the beginning of the command and the first who saw it down."""
    recorder = TimelineRecorder(EVS)
    cut = recorder.cut(LINK, (0x101,), time_s=1.0)
    recorder.ev_state(0x101, good=False, time_s=1.03)
    recorder.is_down(cut, time_s=1.09)
    assert cut.all_withdrawn and recorder.story(cut)["down_within_s"] == 0.09
    recorder.link_seen(LINK.name, False, time_s=1.02)
    assert recorder.story(cut)["down_within_s"] == 0.02


def test_progress__dip_and_return():
    progress = TransferProgress()
    byte_count, t = 0, 0.0
    while t < 6.0:
        rate = 20e6 if 2.0 <= t < 3.0 else 80e6
        progress.add(t, byte_count)
        byte_count += int(rate / 8 * 0.01)
        t += 0.01
    rate_before, lowest, recovery_time = progress.dip(2.0, 6.0)
    assert rate_before == pytest.approx(80e6, rel=0.02)
    assert lowest == pytest.approx(20e6, rel=0.02)
    assert 2.8 <= recovery_time <= 3.1


def test_progress__rate_that_never_returns_has_no_time():
    progress = TransferProgress()
    for i in range(400):
        progress.add(i * 0.01, min(i, 200) * 1000)
    assert progress.dip(2.0, 4.0)[2] is None
    assert progress.longest_gap() < 0.02  # a gap counts once more bytes ended it


def test_progress__nothing_recorded():
    assert TransferProgress().dip(1.0, 2.0) == (0.0, 0.0, 1.0)
    assert TransferProgress().longest_gap() == 0.0
