"""Random small scenarios whose verdict is compared with what the engines themselves say.

    python -m tests.experiments.dead_ranks 1000 [FIRST]      prints each seed whose verdict is wrong; exit code 1 then

A scenario has a collective, a stream and perhaps an incast, faults for ever or for a while, and rules about other
work or none. The engines' QpError and failed Completion events tell of deaths, on their way to whoever takes them; the
outcome tells of work that did not end. A run in which a QP died must fail; one in which none did, and whose work ended,
must pass.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from mrc_testbed.experiments.language.expand import expand
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.metrics.assertions import judge
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.resolve.run_plan import resolve
from mrc_testbed.experiments.virtual.virtual_run import VirtualRunner
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.hosts.engine.events import Completion, Event, QpError, Status

MESSAGES, ITERATIONS = 16, 30
"""Messages of each flow, and iterations of the collective."""


@dataclass
class Judgement:
    """A scenario's text, whether its verdict is `passed`, and what the engines told of failures."""

    text: str
    passed: bool
    failures: int
    unfinished: bool

    @property
    def right(self) -> bool:
        """Whether the verdict agrees with the engines' own events."""
        return self.passed == (not self.failures and not self.unfinished)


def scenario(seed: int) -> str:
    """Return the text of a random scenario."""
    rng = Random(f"dead ranks {seed}")
    planes, kind = rng.choice((1, 2, 4)), rng.choice(("all_reduce", "all_gather"))
    lines = [
        f"title: Dead ranks {seed}",
        f"fabric: {{planes: {planes}, racks: 2, spines: 2, hosts_per_rack: 2}}",
        "workload:",
        f"  - {{collective: {kind}, name: job, size: 16K, iterations: {ITERATIONS}}}",
    ]
    if rng.random() < 0.7:
        lines.append("  - {stream: h0 h1, name: other, message: 4K, bytes: 64K}")
    if rng.random() < 0.3:
        lines.append("  - {incast: h2, name: many, sources: [h0, h1, h3], message: 4K, bytes: 64K}")
    lines += ["limit: 30s", "measure: {every: 500ms}"]
    victim, ends = rng.randrange(4), rng.choice(("", "", ", for: 300ms"))
    cut = [f"[h{victim}, p{plane}-t0-{victim // 2}]" for plane in range(planes)]
    if rng.random() < 0.4:  # some paths are left
        cut = cut[: rng.randrange(planes)]
    if cut and rng.random() < 0.85:
        kind = rng.choice(("cut", "silent", "one_way"))
        lines += ["faults:", f"  - {{at: 50ms, {kind}: [{', '.join(cut)}]{ends}}}"]
    if "name: other" in "\n".join(lines) and rng.random() < 0.5:
        lines += ["expect:", "  - {metric: rate.other, at_least: 0}"]
    return "\n".join(lines) + "\n"


@contextmanager
def engine_failures(patch: pytest.MonkeyPatch) -> Iterator[list[Event]]:
    """The QpError and failed Completion events of all engines, as they are taken."""
    failures: list[Event] = []
    events = Endpoint.events

    def watch_events(self: Endpoint) -> list[Event]:
        new_events = events(self)
        for event in new_events:
            failed = isinstance(event, Completion) and event.status is not Status.SUCCESS
            if failed or isinstance(event, QpError):
                failures.append(event)
        return new_events

    with patch.context() as context:
        context.setattr(Endpoint, "events", watch_events)
        yield failures


def judge_seed(seed: int, folder: Path) -> Judgement:
    """Run the scenario of a seed in virtual time."""
    path = folder / "scenario.yaml"
    path.write_text(scenario(seed))
    run = resolve(expand(read(path), "virtual")[0])
    with engine_failures(pytest.MonkeyPatch()) as failures:
        outcome = VirtualRunner().run(run)
    verdicts = judge(run.scenario, [("run", {}, Measurement(outcome, run))], ("virtual",))
    iterations = sum(len(collective.iterations) for collective in outcome.collectives)
    short = any(flow.completed < MESSAGES for flow in outcome.flows if flow.work != "job")
    return Judgement(
        path.read_text(), all(verdict.passed for verdict in verdicts), len(failures), iterations < ITERATIONS or short
    )


def wrong_verdicts(first: int, count: int) -> tuple[list[tuple[int, Judgement]], int]:
    """Return (seed and result of each wrong verdict, runs in which something died)."""
    mistakes, deadly_runs = [], 0
    with TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            result = judge_seed(seed, Path(folder))
            deadly_runs += bool(result.failures)
            if not result.right:
                mistakes.append((seed, result))
    return mistakes, deadly_runs


def main() -> int:
    """Run the seeds that the command line names, and print what is wrong."""
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    mistakes, deadly_runs = wrong_verdicts(first, count)
    for seed, result in mistakes:
        print(
            f"seed {seed}: passed {result.passed}, {result.failures} died, unfinished {result.unfinished}",
            result.text,
            sep="\n",
        )
    print(f"{count} runs, something died in {deadly_runs}, {len(mistakes)} verdicts are wrong")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
