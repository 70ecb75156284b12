"""A first scenario file, commented, of five answers: `mrc scenario new`.

text = scenario_text(Answers(work="all_reduce", hosts=8))      # passes `mrc run FILE --virtual`
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from mrc_testbed.errors import UsageError
from mrc_testbed.faults.terms import suggestion

PLANES, SPINES = 4, 2
HOSTS_RANGE = (2, 64)
CUT = "p1-t0-0 p1-t1-1"
WORKS = {
    # name: (line of `workload`, words for the title)
    "stream": ("{stream: h0 h%(last)d, name: work, message: 64K, depth: 4}", "a stream"),
    "incast": ("{incast: h0, sources: [%(sources)s], name: work, message: 64K}", "an incast"),
    "permutation": ("{permutation: all, name: work, message: 64K}", "a permutation"),
    "all_reduce": (
        "{collective: all_reduce, name: work, ranks: %(hosts)d, size: 256K, iterations: 100000}",
        "an all-reduce",
    ),
    "training": (
        "{training: {layers: 4, forward: %(forward)dms, backward: %(backward)dms, gradients: 128K}, name: work, "
        "ranks: %(hosts)d, iterations: 100}",
        "training",
    ),
}
"""Kind of work -> its line of a file, and its words in a title."""
FAULTS = {
    "cut": f"cut: {CUT}",
    "loss": f"loss: {{link: {CUT}, rate: 1%}}",
    "blackhole": "blackhole: p1-t1-1",
    "power_off": "power_off: p1-t1-1",
    "none": "",
}
"""Kind of fault -> its key in a file."""
BASELINES = {
    "none": "",
    "flow-ecmp": "{mode: flow-ecmp}",
    "rocev2": "{mode: flow-ecmp, queues: {trim: false, last_hop_ecn: true}, "
    "transport: {kind: rocev2, config: {control: dcqcn, timeout: 18, ev_choice: random}}}",
}
"""Baseline -> its changes of the file."""
TITLES = {"cut": "a cut link", "loss": "a lossy link", "blackhole": "a black hole", "power_off": "a dead T1"}


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers to the five questions."""

    work: str = "stream"
    hosts: int = 4
    fault: str = "cut"
    seconds: float = 3.0
    against: str = "none"

    def __post_init__(self) -> None:
        for option, value, choices in (
            ("--work", self.work, WORKS),
            ("--fault", self.fault, FAULTS),
            ("--against", self.against, BASELINES),
        ):
            if value not in choices:
                raise UsageError(f"{option} {value}: no such answer ({suggestion(value, choices)})")
        low, high = HOSTS_RANGE
        if not low <= self.hosts <= high or self.hosts % 2:
            raise UsageError(f"--hosts {self.hosts}: give an even number, {low} to {high}: half of them in each rack")
        if not 1 <= self.seconds <= 60:
            raise UsageError(f"--seconds {self.seconds:g}: give 1 to 60")


def scenario_text(answers: Answers) -> str:
    """Return the file; answers are checked when they are made."""
    last = answers.hosts - 1
    sources = ", ".join(f"h{number}" for number in range(1, answers.hosts))
    line, work_words = WORKS[answers.work]
    # A hundred training steps, the most of a run, have to last longer than it.
    forward_ms = max(10, ceil(answers.seconds))
    work = line % {
        "last": last,
        "hosts": answers.hosts,
        "sources": sources,
        "forward": forward_ms,
        "backward": 2 * forward_ms,
    }
    title = (
        work_words[0].upper()
        + work_words[1:]
        + (f" through {TITLES[answers.fault]}" if answers.fault != "none" else "")
    )
    start, length = answers.seconds / 3, answers.seconds / 3
    ranks = answers.work in ("all_reduce", "training")
    parts = [
        f"# {title}. Run it: mrc run FILE --virtual; then mrc report on the folder it names.",
        "# Every key: docs/scenarios.md. Every mistake: mrc scenario validate FILE",
        f"title: {title}",
        f"fabric: {{planes: {PLANES}, racks: 2, spines: {SPINES}, hosts_per_rack: {answers.hosts // 2}}}",
        "links: {rate: 10M, rtt: 10ms}           # the paper's rates / 10**4, times x 10**3",
        "workload:",
        f"  - {work}",
        f"duration: {answers.seconds:g}s",
    ]
    if answers.fault != "none":
        parts += [
            "faults:                                 # a third into the run, for a third of it",
            f"  - {{at: {start:.3g}s, {FAULTS[answers.fault]}, for: {length:.3g}s}}",
        ]
    if answers.against != "none":
        parts += [
            "variants:                               # each is run; its keys replace those above",
            "  mrc: {}",
            f"  {answers.against}: {BASELINES[answers.against]}",
        ]
    selection = ", where: {variant: mrc}" if answers.against != "none" else ""
    parts += [
        "expect:                                 # a run that breaks one has failed",
        f"  - {{metric: wrong.work, at_most: 0{selection}}}"
        if ranks
        else f"  - {{metric: damaged, at_most: 0{selection}}}",
        f"  - {{metric: qp_errors, at_most: 0{selection}}}",
    ]
    if ranks:
        parts.append("  - {unfinished: work}                  # more iterations than time allows")
    if answers.against != "none":
        parts.append(
            f"  - {{failed: work, at_least: 0, where: {{variant: {answers.against}}}}}   # it may, and need not"
        )
    parts += ["figures:", "  - {kind: rate_over_time, metric: rate.work}", ""]
    return "\n".join(parts)
