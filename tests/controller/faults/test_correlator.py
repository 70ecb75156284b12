"""The fault list: what is reported, and what it is taken for."""

import pytest

from mrc_testbed.controller.faults import fault_list
from mrc_testbed.controller.faults.correlator import PORT_IS_BAD, FaultCorrelator, FaultState
from mrc_testbed.topologies.plan import Plan, PlanError

GNMI = "gnmi 127.0.0.1:9339"
pytestmark = pytest.mark.filterwarnings("error")


class Story:
    """A fault list with a clock we own; `log` has one line per change."""

    def __init__(self, **dimensions):
        self.faults = FaultCorrelator(Plan(**dimensions))
        self.now = 0.0
        self.log = []

    def report_down(self, *interfaces, says="DOWN"):
        for interface in interfaces:
            self.faults.port(interface, says, source=GNMI, now=self.now)
            self._note()

    def report_up(self, *interfaces):
        self.report_down(*interfaces, says="UP")

    def lose_stream(self, switch):
        self.faults.stream(switch, False, now=self.now)
        self._note()

    def restore_stream(self, switch):
        self.faults.stream(switch, True, now=self.now)
        self._note()

    def wait(self):
        """Wait until the messages of ports and streams have arrived."""
        self.advance_to(self.now + 0.2)

    def advance_to(self, now):
        """Jump to a time, ringing the timers on the way."""
        while (due := self.faults.next_timer()) is not None and due <= now:
            self.now = due
            self.faults.on_timer(due)
            self._note()
        self.now = now

    def _note(self):
        for change, fault in self.faults.changes():
            merge_note = f" into {fault.merged_into}" if fault.merged_into else ""
            self.log.append(f"{self.now:g} {change} {fault.number}{merge_note}: {fault.text}")

    @property
    def active(self):
        self.wait()
        return [fault.text for fault in self.faults.active()]

    def all_links_of(self, switch):
        """Return the interfaces of all links of a switch that switches see, both ends."""
        plan = self.faults.plan
        links = [k for k in plan.links if switch in k.ends]
        names = [p.interface for k in links for p in (k.lower, k.upper)]
        return [n for n in names if not n.startswith("h")]


def test_link__both_ends_are_one_fault_until_both_are_up():
    story = Story()
    story.advance_to(1.0)
    story.report_down("p1-t0-0-eth4")
    story.advance_to(1.5)
    story.report_down("p1-t1-1-eth1", says="LOWER_LAYER_DOWN")
    story.advance_to(3.0)
    story.report_up("p1-t0-0-eth4")
    assert story.active == ["T0-T1 link p1-t0-0 p1-t1-1 down"]
    story.advance_to(4.0)
    story.report_up("p1-t1-1-eth1")
    # Faults are raised 0.1 s after the report, for more news of the same cause may follow.
    assert story.log == [
        "1.1 raised 1: T0-T1 link p1-t0-0 p1-t1-1 down",
        "1.6 updated 1: T0-T1 link p1-t0-0 p1-t1-1 down",
        "4 cleared 1: T0-T1 link p1-t0-0 p1-t1-1 down",
    ]
    (fault,) = story.faults.all_faults()
    assert fault.to_json() == {
        "number": 1,
        "kind": "link",
        "location": "p1-t0-0 p1-t1-1",
        "certain": True,
        "alternatives": [],
        "plane": 1,
        "text": "T0-T1 link p1-t0-0 p1-t1-1 down",
        "how": "down",
        "loss": None,
        "direction": None,
        "flaps": 0,
        "state": "cleared",
        "first_seen": 1.0,
        "last_seen": 1.5,
        "raised": 1.1,
        "cleared": 4.0,
        "into": [],
        "evidence": [
            {
                "source": GNMI,
                "says": "DOWN",
                "about": ["p1-t0-0-eth4", "p1-t1-1-eth1"],
                "count": 2,
                "first_seen": 1.0,
                "last_seen": 1.5,
                "heard": 1.0,
                "after_s": 0.0,
                "cleared": 4.0,
            },
        ],
    }


def test_link__nic_port_is_seen_from_the_t0_alone():
    story = Story()
    story.report_down("p2-t0-1-eth2")
    story.wait()
    (fault,) = story.faults.active()
    assert (fault.kind, fault.location, fault.plane) == ("NIC port", "h3 p2-t0-1", 2)


def test_link__a_second_cut_is_a_second_fault():
    story = Story()
    for time in (0.0, 10.0):
        story.advance_to(time)
        story.report_down("p0-t0-0-eth3")
        story.report_up("p0-t0-0-eth3")
    assert [f.number for f in story.faults.all_faults()] == [1, 2]
    assert story.active == []


def test_link__a_repeated_report_is_seen_later_and_no_news():
    story = Story()
    story.report_down("p0-t0-0-eth3")
    story.advance_to(9.0)
    story.report_down("p0-t0-0-eth3")
    (fault,) = story.faults.active()
    assert (fault.first_seen, fault.last_seen, len(story.log)) == (0.0, 9.0, 1)


@pytest.mark.parametrize(("status", "is_bad"), [*PORT_IS_BAD.items(), ("nonsense", True), ("", True)])
def test_port__every_status_is_good_or_bad(status, is_bad):
    story = Story()
    story.report_down("p0-t0-0-eth3", says=status)
    assert bool(story.active) is is_bad


def test_switch__all_links_down_together_name_the_switch():
    story = Story()
    story.report_down(*story.all_links_of("p1-t1-0"))
    assert story.active == ["T1 p1-t1-0 (all 2 links down)"]
    assert story.log == ["0.1 raised 1: T1 p1-t1-0 (all 2 links down)"]
    (fault,) = story.faults.all_faults()
    assert (fault.kind, fault.location) == ("T1", "p1-t1-0")
    assert [s.subject_name for s in fault.symptoms] == [
        "p1-t0-0-eth3",
        "p1-t1-0-eth1",
        "p1-t0-1-eth3",
        "p1-t1-0-eth2",
    ]


def test_switch__a_link_told_before_becomes_part_of_it():
    story = Story()
    story.report_down("p1-t0-0-eth3")
    story.advance_to(0.5)
    story.report_down("p1-t0-1-eth3")
    assert story.active == ["T1 p1-t1-0 (all 2 links down)"]
    assert story.log == [
        "0.1 raised 1: T0-T1 link p1-t0-0 p1-t1-0 down",
        "0.6 raised 2: T1 p1-t1-0 (all 2 links down)",
        "0.6 merged 1 into [2]: T0-T1 link p1-t0-0 p1-t1-0 down",
    ]


def test_switch__that_answers_with_both_links_down_cannot_be_told_from_its_links():
    """Two explanations fit; when one link is back, the other was it."""
    story = Story()
    story.restore_stream("p1-t1-0")
    story.report_down(*story.all_links_of("p1-t1-0"))
    unclear = "cannot tell: T1 p1-t1-0 or T0-T1 link p1-t0-0 p1-t1-0 and T0-T1 link p1-t0-1 p1-t1-0"
    assert story.active == [f"{unclear} (all their links went down together)"]
    (fault,) = story.faults.active()
    assert fault.kind == "unclear" and fault.location == "p1-t1-0 or p1-t0-0 p1-t1-0 and p1-t0-1 p1-t1-0"
    assert fault.to_json()["alternatives"] == [
        [{"kind": "T1", "location": "p1-t1-0"}],
        [{"kind": "link", "location": "p1-t0-0 p1-t1-0"}, {"kind": "link", "location": "p1-t0-1 p1-t1-0"}],
    ]
    story.report_up("p1-t0-0-eth3", "p1-t1-0-eth1")
    assert story.active == ["T0-T1 link p1-t0-1 p1-t1-0 down"]
    assert [f.number for f in story.faults.all_faults()] == [1]


def test_switch__that_answered_and_is_lost_now_is_the_switch():
    story = Story()
    story.restore_stream("p1-t1-0")
    story.report_down(*story.all_links_of("p1-t1-0"))
    story.advance_to(0.3)
    story.lose_stream("p1-t1-0")
    assert story.active == ["T1 p1-t1-0 (P4Runtime stream lost, all 2 links down)"]
    assert [f.number for f in story.faults.all_faults()] == [1]


def test_switch__lost_stream_alone():
    story = Story()
    story.lose_stream("p3-t0-1")
    assert story.active == ["T0 p3-t0-1 (P4Runtime stream lost)"]
    story.restore_stream("p3-t0-1")
    assert story.active == []


def test_switch__lost_stream_and_links_are_one_fault():
    story = Story()
    story.lose_stream("p1-t1-0")
    story.report_down("p1-t0-0-eth3")
    assert story.active == ["T1 p1-t1-0 (P4Runtime stream lost, 1 of 2 links down)"]
    story.report_down("p1-t0-1-eth3")
    assert story.active == ["T1 p1-t1-0 (P4Runtime stream lost, all 2 links down)"]
    assert [f.number for f in story.faults.all_faults()] == [1]


def test_switch__t0_with_four_links_is_not_the_t1_above():
    story = Story()
    story.report_down(*story.all_links_of("p0-t0-0"))
    assert story.active == ["T0 p0-t0-0 (all 4 links down)"]


def test_switch__both_t0_dead_are_not_four_dead_switches():
    story = Story()
    story.report_down(*story.all_links_of("p0-t0-0"), *story.all_links_of("p0-t0-1"))
    assert story.active == ["T0 p0-t0-0 (all 4 links down)", "T0 p0-t0-1 (all 4 links down)"]


def test_switch__links_cut_at_different_times_stay_links():
    story = Story()
    story.report_down("p1-t1-0-eth1")
    story.advance_to(30.0)
    story.report_down("p1-t1-0-eth2")
    assert story.active == ["T0-T1 link p1-t0-0 p1-t1-0 down", "T0-T1 link p1-t0-1 p1-t1-0 down"]


def test_switch__one_link_is_never_a_switch():
    story = Story(planes=1, racks=1, spines=1, hosts_per_rack=2)
    story.report_down("p0-t1-0-eth1")
    assert story.active == ["T0-T1 link p0-t0-0 p0-t1-0 down"]


def test_reboot__links_coming_up_one_by_one_are_no_faults():
    story = Story()
    story.lose_stream("p1-t1-0")
    story.report_down(*story.all_links_of("p1-t1-0"))
    story.advance_to(5.0)
    story.restore_stream("p1-t1-0")
    story.advance_to(5.2)
    story.report_up("p1-t0-0-eth3", "p1-t1-0-eth1")
    assert story.active == ["T1 p1-t1-0 (P4Runtime stream lost, all 2 links down)"]
    story.advance_to(5.4)
    story.report_up("p1-t0-1-eth3", "p1-t1-0-eth2")
    assert story.active == []
    assert [f.number for f in story.faults.all_faults()] == [1]
    assert story.faults.next_timer() is None


def test_reboot__a_link_that_stays_down_is_named_after_the_settling_time():
    story = Story()
    story.lose_stream("p1-t1-0")
    story.report_down(*story.all_links_of("p1-t1-0"))
    story.advance_to(5.0)
    story.restore_stream("p1-t1-0")
    story.report_up("p1-t0-0-eth3", "p1-t1-0-eth1")
    assert story.faults.next_timer() == 6.0
    story.advance_to(7.0)
    assert story.log[-2:] == [
        "6 raised 2: T0-T1 link p1-t0-1 p1-t1-0 down",
        "6 cleared 1: T1 p1-t1-0 (P4Runtime stream lost, all 2 links down)",
    ]
    story.report_up("p1-t0-1-eth3", "p1-t1-0-eth2")
    assert story.active == []


def test_planes__do_not_touch_each_other():
    story = Story()
    story.report_down("p0-t1-0-eth1", "p1-t1-0-eth2")
    assert story.active == ["T0-T1 link p0-t0-0 p0-t1-0 down", "T0-T1 link p1-t0-1 p1-t1-0 down"]


def test_history__forgets_the_oldest(monkeypatch):
    monkeypatch.setattr(fault_list, "KEEP_CLOSED", 3)
    story = Story()
    for _ in range(5):
        story.report_down("p0-t0-0-eth3")
        story.report_up("p0-t0-0-eth3")
        story.advance_to(story.now + 10)
    assert [(f.number, f.state) for f in story.faults.all_faults()] == [(n, FaultState.CLEARED) for n in (3, 4, 5)]


@pytest.mark.parametrize("interface", ["lo", "", "p9-t0-0-eth1", "p0-t0-0-eth99"])
def test_port__unknown_interface_is_refused_by_name(interface):
    with pytest.raises(PlanError, match=f"no interface '{interface}'"):
        Story().report_down(interface)


def test_stream__unknown_switch_is_refused_by_name():
    with pytest.raises(PlanError, match="no switch 'p9-t9-9'"):
        Story().lose_stream("p9-t9-9")
