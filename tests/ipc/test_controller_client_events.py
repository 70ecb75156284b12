"""The controller's event stream with one message lost, doubled or late.

Each change of each fault is told once.

TCP loses nothing but its end, so a lost event is a stream that breaks: at once, or with more that happens until there
is another one. Followed by those who keep what they heard: the prompt's notices and a live run.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from mrc_testbed.cli.prompt.commands import notices
from mrc_testbed.cli.prompt.commands.notices import FaultFollower
from mrc_testbed.experiments.backend.outcome import Outcome, Series
from mrc_testbed.experiments.live.live_run import LiveRun
from mrc_testbed.ipc.controller_client import KnownFaults, sources_of
from mrc_testbed.ipc.rpc import JsonlError

FATES = ("doubled", "late", "behind the next", "lost", "lost with the next", "lost with the next two")
STORY_START = 100.0
STORY = (
    ("raised", 1), ("begun", 1), ("raised", 2), ("updated", 1), ("cleared", 2), ("raised", 2), ("over", 1),
    ("raised", 3), ("cleared", 1), ("merged", 3), ("begun", 2), ("cleared", 2), ("over", 2), ("raised", 4),
)  # fmt: skip
"""Changes of faults and of problems, by number; one each second. Fault 2 comes back."""
NOTICES = (
    "fault 1: link 1 down",
    "controller: problem 1",
    "fault 2: link 2 down",
    "fault 1 is now: T1 1 down",
    "fault 2 is over after 2.0 s: link 2 down",
    "fault 2: link 2 down",
    "controller: over after 5.0 s: not primary: s1",
    "fault 3: link 3 down",
    "fault 1 is over after 8.0 s: T1 1 down",
    "fault 3 is part of fault 2: link 3 down",
    "controller: problem 2",
    "fault 2 is over after 9.0 s: link 2 down",
    "controller: over after 2.0 s: not primary: s2",
    "fault 4: link 4 down",
)


DETECTIONS = {
    0: "raised: link 1 down", 2: "raised: link 2 down", 3: "updated: T1 1 down", 4: "cleared: link 2 down",
    5: "raised: link 2 down", 7: "raised: link 3 down", 8: "cleared: T1 1 down", 9: "merged: link 3 down",
    11: "cleared: link 2 down", 13: "raised: link 4 down",
}  # fmt: skip
"""Faults as a live run notes them, by second."""
BEGIN, END = ("raised", "begun"), ("cleared", "merged", "over")


class ToldStory:
    """A controller whose story goes on as its stream is read; the event of one number meets a fate."""

    def __init__(self, number=None, fate=None):
        self.faults, self.problems = {}, {}
        self.read = threading.Event()
        """Set when the whole story has been told."""
        self._number, self._fate = number, fate
        self._index, self._next = 0, []

    # ---- as Northbound

    def watch(self, **_fields):
        active = [{"change": "raised", "fault": f} for f in self.faults.values() if f["state"] == "active"]
        open_problems = [{"change": "begun", "problem": p} for p in self.problems.values() if p["over"] is None]
        self._next = [{"event": "fault", "t": self._now, **fields} for fields in active]
        self._next += [{"event": "problem", "t": self._now, **fields} for fields in open_problems]
        return self

    def request(self, _op):
        return {"faults": list(self.faults.values()), "problems": list(self.problems.values())}

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        pass

    def close(self):
        pass

    def get(self, *_args, **_fields):
        if not self._next:
            self._go_on()
        return self._next.pop(0)

    # ---- the story

    @property
    def _now(self):
        return STORY_START + self._index

    def _go_on(self):
        if self._index >= len(STORY):
            self.read.set()
            raise JsonlError("the story is over")
        is_fated, event = self._index == self._number, self._step()
        if not is_fated:
            self._next = [event]
        elif self._fate == "doubled":
            self._next = [event, event]
        elif self._fate == "late":
            self._next = [None, None, event]
        elif self._fate == "behind the next":
            self._next = [self._step(), event] if self._index < len(STORY) else [event]
        else:
            for _ in range(("lost", "lost with the next", "lost with the next two").index(self._fate)):
                if self._index < len(STORY):
                    self._step()
            raise JsonlError("the stream broke")

    def _step(self):
        (change, number), t = STORY[self._index], self._now
        self._index += 1
        # A problem lasts from "begun" to "over"; every other change is of a fault.
        if change in ("begun", "over"):
            old_record = self.problems.get(
                number,
                {
                    "number": number,
                    "began": t,
                    "kind": "not primary",
                    "about": f"s{number}",
                    "text": f"problem {number}",
                },
            )
            self.problems[number] = {**old_record, "over": t if change == "over" else None}
            return {"event": "problem", "t": t, "change": change, "problem": self.problems[number]}
        old_record = self.faults.get(
            number, {"first_seen": t, "kind": "link", "text": f"link {number} down", "raised": t}
        )
        self.faults[number] = {
            **old_record,
            "number": number,
            "location": "x",
            "last_seen": t,
            "into": [2],
            "evidence": [],
            "state": change if change in ("cleared", "merged") else "active",
            "cleared": t if change in ("cleared", "merged") else None,
            **({"raised": t} if change == "raised" else {}),
            **({"kind": "T1", "text": f"T1 {number} down"} if change == "updated" else {}),
        }
        return {"event": "fault", "t": t, "change": change, "fault": self.faults[number]}


def told_by_notices(story):
    lines = []
    follower = FaultFollower(SimpleNamespace(controller=story), lines.append)
    assert story.read.wait(30)
    follower.close()
    return lines


def told_by_a_live_run(story):
    """Return the detected changes, by time and text."""
    run = object.__new__(LiveRun)
    run.fabric, run.work = SimpleNamespace(controller=story), SimpleNamespace(start_time=STORY_START)
    run.outcome = Outcome("s", "r", {}, "live", 1, 0, "srv6", 1.0, series=Series(1.0))
    run._known_faults, run._events_lock = KnownFaults("text"), threading.Lock()
    run._stop = SimpleNamespace(is_set=story.read.is_set, wait=lambda _seconds: None)
    run._watch_controller()
    return [(event["t"], event["text"]) for event in run.outcome.events]


def hidden_numbers(number, fate):
    """Return the numbers of the changes that nobody can know of.

    Another of the same fault followed before there was a stream.

    A fault that came and went unseen is not told at its end either.
    """
    last = number + {"behind the next": 1, "lost with the next": 1, "lost with the next two": 2}.get(fate, 0)
    last = min(last, len(STORY) - 1)
    out = set()
    for index in [number] if fate == "behind the next" else range(number, last + 1):
        followed = any(subject(later) == subject(index) for later in range(index + 1, last + 1))
        began = max(e for e in range(index + 1) if subject(e) == subject(index) and STORY[e][0] in BEGIN)
        if followed or (STORY[index][0] in END and began in out):
            out.add(index)
    return out


def subject(index):
    """Return the fault or problem of a change of the story."""
    return STORY[index][0] in ("begun", "over"), STORY[index][1]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(notices, "RETRY_S", 0.001)


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("number", range(len(STORY)))
def test_one_event__to_the_notices(number, fate):
    visible_texts = [line for index, line in enumerate(NOTICES) if index not in hidden_numbers(number, fate)]
    assert sorted(told_by_notices(ToldStory(number, fate))) == sorted(visible_texts)


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("number", range(len(STORY)))
def test_one_event__to_a_live_run(number, fate):
    visible_texts = [DETECTIONS[index] for index in sorted(set(DETECTIONS) - hidden_numbers(number, fate))]
    detections = told_by_a_live_run(ToldStory(number, fate))
    assert sorted(text for _, text in detections) == sorted(visible_texts)
    for t, text in detections:  # an update has no time of its own
        assert text.startswith("updated") or DETECTIONS[int(t)] == text


def test_the_story__is_told_as_it_is():
    assert tuple(told_by_notices(ToldStory())) == NOTICES
    assert told_by_a_live_run(ToldStory()) == [(float(index), text) for index, text in DETECTIONS.items()]


def test_sources_of__are_kinds_without_addresses():
    sources = ["gnmi unix:/run/gnmi.sock", "ev", "gnmi 127.0.0.1:9339"]
    assert sources_of({"evidence": [{"source": source} for source in sources]}) == ["gnmi", "ev"]
