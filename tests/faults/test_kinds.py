"""Each kind of fault: its text in a file, meaning in a plan, words, and effect on a target."""

import json
import random
from inspect import signature

import pytest
from pydantic import TypeAdapter

from mrc_testbed.faults import (
    KINDS,
    VIRTUAL_KINDS,
    CutFault,
    Delayed,
    DrainFault,
    DuplicateFault,
    FaultError,
    FaultHolds,
    FaultTarget,
    InjectedFault,
    LateFault,
    LineFault,
    LossFault,
    PacketChoice,
    PowerOffFault,
    StallFault,
    VanishFault,
    fault_from_json,
)
from mrc_testbed.faults.kinds import DRAIN_S, PLACES_NAMED
from mrc_testbed.simulator.fault_target import VirtualFaultTarget
from mrc_testbed.topologies.lab.fault_target import LiveFaultTarget
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(2, 2, 2, 1)
LINK, LINK_BACK = ("p0-t0-0", "p0-t1-0"), ("p0-t1-0", "p0-t0-0")
VERBS = [name for name in vars(FaultTarget) if not name.startswith("_")]


class Listener:
    """A FaultTarget that notes what it is told; a hold is the note."""

    def __init__(self, waits=False):
        self.notes, self.waits = [], waits

    def __getattr__(self, verb):
        assert verb in VERBS

        def note(*arguments, **options):
            signature(getattr(FaultTarget, verb)).bind(self, *arguments, **options)
            if verb == "later":
                self.notes.append(f"after {arguments[0]:g} s")
                delayed = Delayed(arguments[1])
                if not self.waits:
                    delayed()
                return delayed
            if verb == "undo":
                self.notes += [f"undo {hold}" for hold in arguments[0]]
                return None
            words = [
                verb,
                *map(words_of, arguments),
                *(f"{key}={value}" for key, value in options.items() if value is not None),
            ]
            self.notes.append(" ".join(words))
            return [self.notes[-1]]

        return note


def words_of(argument) -> str:
    if not isinstance(argument, PacketChoice):
        return str(argument)
    figures = {name: getattr(argument, name) for name in argument.__slots__}
    return " ".join(f"{name}={value}" for name, value in figures.items() if value is not None)


LOSS = {"link": "p0-t0-0 p0-t1-0", "rate": "5%", "direction": "up"}
CASES = {
    # kind: (what a file says, words for people, what is done, what its end does)
    "cut": ("p0-t0-0 p0-t1-0", "cut p0-t0-0 p0-t1-0", ["cut p0-t0-0 p0-t1-0"], ["undo cut p0-t0-0 p0-t1-0"]),
    "one_way": (
        "p0-t1-0 p0-t0-0",
        "one way p0-t1-0 p0-t0-0",
        ["swallow p0-t1-0 p0-t0-0 both_ways=False"],
        ["undo swallow p0-t1-0 p0-t0-0 both_ways=False"],
    ),
    "silent": (
        ["p0-t0-0 p0-t1-0"],
        "silent p0-t0-0 p0-t1-0",
        ["swallow p0-t0-0 p0-t1-0 both_ways=True"],
        ["undo swallow p0-t0-0 p0-t1-0 both_ways=True"],
    ),
    "restore": ("p0-t0-0 p0-t1-0", "restore p0-t0-0 p0-t1-0", ["restore p0-t0-0 p0-t1-0"], None),
    "loss": (
        LOSS,
        "loss p0-t0-0 p0-t1-0 rate=0.05 direction=up",
        ["impair loss p0-t0-0 p0-t1-0 rate=0.05 seed=8 direction=up"],
        ["undo impair loss p0-t0-0 p0-t1-0 rate=0.05 seed=8 direction=up"],
    ),
    "corrupt": (
        {"into": "h1", "pattern": "01"},
        "corrupt p0-t0-1 h1, p1-t0-1 h1 pattern=01 direction=one_way",
        [
            "impair corrupt p0-t0-1 h1 pattern=01 seed=8 direction=one_way",
            "impair corrupt p1-t0-1 h1 pattern=01 seed=8 direction=one_way",
        ],
        [
            "undo impair corrupt p0-t0-1 h1 pattern=01 seed=8 direction=one_way",
            "undo impair corrupt p1-t0-1 h1 pattern=01 seed=8 direction=one_way",
        ],
    ),
    "line": (
        {"link": "p0-t0-0 p0-t1-0", "delay": "5ms"},
        "line p0-t0-0 p0-t1-0 delay=0.005 direction=both",
        ["set_line p0-t0-0 p0-t1-0 delay_s=0.005 direction=both"],
        ["undo set_line p0-t0-0 p0-t1-0 delay_s=0.005 direction=both"],
    ),
    "flap": (
        {"link": "p0-t0-0 p0-t1-0", "times": 2},
        "flap p0-t0-0 p0-t1-0 down=1.0 up=1.0 times=2",
        ["flap (('p0-t0-0', 'p0-t1-0'),) down_s=1.0 up_s=1.0 times=2"],
        None,
    ),
    "blackhole": ("p0-t1-0", "blackhole p0-t1-0", ["blackhole p0-t1-0"], ["undo blackhole p0-t1-0"]),
    "corrupts": (
        {"switch": "p0-t1-0", "rate": "1%"},
        "corrupts p0-t1-0 rate=0.01",
        ["corrupt_switch p0-t1-0 0.01"],
        ["undo corrupt_switch p0-t1-0 0.01"],
    ),
    "power_off": (
        ["p0-t1-0", "h0"],
        "power off p0-t1-0, h0",
        ["power_off p0-t1-0", "power_off h0"],
        ["undo power_off p0-t1-0", "undo power_off h0"],
    ),
    "power_on": ("p0-t1-0", "power on p0-t1-0", ["power_on p0-t1-0"], None),
    "reboot": ("p0-t1-0", "reboot p0-t1-0", ["reboot p0-t1-0 None"], None),
    "drain": (
        1,
        "drain plane=1",
        ["deny_plane 1 True", f"after {DRAIN_S:g} s", "cut_plane 1"],
        ["undo cut_plane 1", f"after {DRAIN_S:g} s", "deny_plane 1 False"],
    ),
    "controller": ("kill", "controller what=kill", ["set_controller False"], ["set_controller True"]),
    "heal": (True, "heal", ["heal"], None),
}


def resolve_fault(kind: str, text, seed=1) -> InjectedFault:
    value = TypeAdapter(KINDS[kind].value_type).validate_python(text)
    assert list(KINDS[kind].check(value, PLAN)) == []
    return KINDS[kind].resolve(value, PLAN, random.Random(seed))


def test_every_kind_has_its_case():
    assert list(CASES) == list(KINDS)


def test_loss__into_many_hosts__is_told_in_a_few_words():
    plan = Plan(planes=4, racks=8, spines=8, hosts_per_rack=8)
    fault = LossFault.resolve(LossFault.value_type(into="hosts", rate="1%"), plan, random.Random(1))
    assert len(fault.targets) == 256
    assert str(fault) == "loss p0-t0-0 h0, p0-t0-0 h1 and 254 more links rate=0.01 direction=one_way"
    assert PowerOffFault.on(*(f"h{k}" for k in range(9))).places_text == "h0, h1 and 7 more nodes"
    short_list = PowerOffFault.on(*(f"h{k}" for k in range(PLACES_NAMED))).places_text
    assert short_list == "h0, h1, h2, h3, h4, h5, h6, h7"


@pytest.mark.parametrize("kind", KINDS)
def test_kind__says_and_does_what_its_file_asks(kind):
    text, words, begin_notes, end_notes = CASES[kind]
    fault, target, holds = resolve_fault(kind, text), Listener(), FaultHolds()
    assert type(fault) is KINDS[kind] and str(fault) == words
    fault.begin(target, holds, 7)
    assert target.notes == begin_notes
    assert KINDS[kind].lasts is (end_notes is not None)
    if end_notes is not None:
        target.notes.clear()
        fault.end(target, holds)
        assert target.notes == end_notes


@pytest.mark.parametrize(
    ("kind", "text", "keys", "message"),
    [
        ("cut", "p0-t0-0 p1-t1-0", (), "no link between p0-t0-0 and p1-t1-0"),
        ("flap", {"link": "p0-t0-0 p0-t1-9"}, ("link",), "no node 'p0-t1-9'"),
        ("loss", {"link": "h0 p9-t0-0", "rate": 0.1}, ("link",), "no node 'p9-t0-0'"),
        ("corrupt", {"into": "h9", "rate": 0.1}, ("into",), "no host 'h9' (has: h0, h1)"),
        ("blackhole", ["p0-t1-0", "p0-t2-0"], (), "no switch 'p0-t2-0' (did you mean p0-t1-0"),
        ("blackhole", "h0", (), "no switch 'h0' (has: p0-t0-0"),
        ("power_off", ["h0", "h9"], (), "no switch or host 'h9' (has: h0"),
        ("reboot", "p0-t1-7", (), "no switch or host 'p0-t1-7' (did you mean p0-t1-"),
        ("blackhole", {"random": "hosts", "count": 1}, (), "hosts are no switches. Cure: {random: switches}"),
        ("cut", {"random": "hosts", "count": 1}, (), "hosts are no links. Cure: {random: nic-links}"),
        ("corrupts", {"switch": "x", "rate": 0.1}, ("switch",), "no switch 'x' (has: p0-t0-0,"),
        ("drain", 2, (), "no plane 2 (has: 0 to 1)"),
    ],
)
def test_check__names_what_does_not_exist(kind, text, keys, message):
    value = TypeAdapter(KINDS[kind].value_type).validate_python(text)
    (problem,) = KINDS[kind].check(value, PLAN)
    assert problem[0] == keys and problem[1].startswith(message)


def test_draws__follow_the_dice_and_stay_inside_what_was_asked():
    draw = {"random": "fabric-links", "count": 3, "plane": 1}
    fault, redrawn_fault = (resolve_fault("cut", draw, seed=4) for _ in range(2))
    assert fault == redrawn_fault and len(fault.targets) == 3
    assert all(a.startswith("p1-t0") and b.startswith("p1-t1") for a, b in fault.targets)
    ways = {resolve_fault("one_way", {"random": "links", "count": 1}, seed).targets[0][0][:2] for seed in range(20)}
    assert {"h0", "p0"} <= ways  # also from the upper end
    assert len(resolve_fault("reboot", {"random": "t1", "share": "50%"}).targets) == 2
    assert resolve_fault("cut", {"random": "nic-links", "count": 9, "host": "h0"}).targets != ()
    assert resolve_fault("blackhole", {"random": "switches", "count": 0}).targets == ()
    assert set(resolve_fault("power_off", {"random": "hosts", "count": 2}).targets) == {"h0", "h1"}


@pytest.mark.parametrize("target", [VirtualFaultTarget, LiveFaultTarget])
@pytest.mark.parametrize("verb", VERBS)
def test_targets__have_every_verb(target, verb):
    parameters = signature(getattr(FaultTarget, verb)).parameters
    assert list(signature(getattr(target, verb)).parameters) == list(parameters)


VIRTUAL = {
    "duplicate": (
        DuplicateFault.on("p0-t0-0 h0", rate=0.1),
        "duplicate p0-t0-0 h0 rate=0.1 direction=both",
        ["impair duplicate p0-t0-0 h0 rate=0.1 seed=8 direction=both"],
    ),
    "late": (
        LateFault.on("p0-t0-0 h0", packets=(1,), seconds=2.0, twin=True),
        "late p0-t0-0 h0 direction=both packets=(1,) seconds=2.0 twin=True",
        ["hold_up p0-t0-0 h0 packets=(1,) seed=8 seconds=2.0 twin=True direction=both"],
    ),
    "stall": (
        StallFault.on("h0", "p0-t0-0", seconds=0.1),
        "stall h0, p0-t0-0 seconds=0.1 gap_s=0.0",
        ["stall h0 0.1 gap_s=0.0", "stall p0-t0-0 0.1 gap_s=0.0"],
    ),
    "vanish": (VanishFault.on("h1"), "vanish h1", ["vanish h1"]),
}


@pytest.mark.parametrize("kind", VIRTUAL_KINDS)
def test_virtual_kind__says_and_does_what_is_asked(kind):
    fault, words, notes = VIRTUAL[kind]
    target = Listener()
    fault.begin(target, FaultHolds(), 7)
    assert (type(fault), str(fault), target.notes) == (VIRTUAL_KINDS[kind], words, notes)


def test_drain__that_ends_before_its_links_were_cut_cuts_none():
    target, holds, fault = Listener(waits=True), FaultHolds(), DrainFault(plane=1)
    fault.begin(target, holds, 0)
    fault.end(target, holds)
    assert target.notes == ["deny_plane 1 True", f"after {DRAIN_S:g} s", "deny_plane 1 False"]
    holds.delayed()
    assert target.notes[-1] == "deny_plane 1 False"


def test_delayed__happens_once_or_never():
    calls = []
    delayed = Delayed(lambda: calls.append(1))
    delayed()
    delayed()
    assert calls == [1] and not delayed.call_off()
    cancelled_call = Delayed(lambda: calls.append(2))
    assert cancelled_call.call_off() and cancelled_call.call_off()
    cancelled_call()
    assert calls == [1]


FIGURES = [
    *(resolve_fault(kind, text) for kind, (text, *_) in CASES.items()), *(fault for fault, *_ in VIRTUAL.values()),
    LineFault.on("a b", jitter=0.1, in_order=False), StallFault.on("h0", order=(1, 0)),
    LossFault.on("a b", packets=(1, 5)),
]  # fmt: skip


@pytest.mark.parametrize("fault", FIGURES, ids=str)
def test_fault__goes_through_json(fault):
    assert fault_from_json(json.loads(json.dumps(fault.to_json()))) == fault


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"fault": "meteor"}, "one of blackhole"),
        ([], "a key `fault`"),
        ({"fault": "cut", "targets": [], "c": 1}, r"cut has no c \(has: targets\)"),
        ({"fault": "loss", "targets": [["x", "y"]]}, "give one"),
    ],
)
def test_fault_from_json__says_what_is_wrong(data, says):
    with pytest.raises(FaultError, match=says):
        fault_from_json(data)


@pytest.mark.parametrize(
    "figures",
    [
        {},
        {"rate": 0.1, "pattern": "01"},
        {"rate": 1.5},
        {"pattern": "012"},
        {"pattern": ""},
        {"rate": 0.1, "only": "acks"},
        {"rate": 0.1, "often": True},
    ],
)
def test_figures__that_choose_nothing_are_refused(figures):
    with pytest.raises(FaultError):
        LossFault.on("a b", **figures)


def test_on__names_links_and_nodes():
    assert CutFault.on("a b", "c d").targets == (("a", "b"), ("c", "d")) and VanishFault.on("h1").targets == ("h1",)
