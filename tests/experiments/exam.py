"""An outcome by hand in which no two metrics have the same value.

No value is 0 or that of its last part alone either. So a metric that is taken wrongly, or from another workload, has
another value than EXPECTED_VALUES says.
"""

from __future__ import annotations

from pathlib import Path

from mrc_testbed.experiments.backend.outcome import (
    PROGRAM,
    CollectiveOutcome,
    FlowOutcome,
    Iteration,
    Outcome,
    ProgramOutcome,
    Series,
)
from mrc_testbed.experiments.language.expand import expand
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.resolve.run_plan import resolve

SCENARIO = """\
title: an exam
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 2}
workload:
  - {incast: h2, name: a, sources: [h0, h1]}
  - {stream: h3 h0, name: b, pin: [p0-t1-0]}
  - {stream: h1 h3, name: c, pin: [p1-t1-1]}
  - {collective: all_reduce, name: job, ranks: [h0, h1, h2], iterations: 200}
  - {collective: all_reduce, name: task, ranks: [h1, h2, h3], iterations: 150}
  - {program: "true", name: prog, ranks: [h0, h1, h2]}
  - {program: "true", name: tool, ranks: [h1, h2, h3]}
duration: 10s
faults: [{at: 4s, cut: p0-t0-0 p0-t1-0, for: 2s}]
measure: {every: 1s, latency: true, queues: [p0-t0-0-eth1, p0-t0-1-eth1]}
"""
SECONDS = 10
RATES = {
    "a:h0-h2": [800, 1000, 1000, 1000, 100, 100, 500, 600, 1000, 1000],
    "a:h1-h2": [400, 500, 500, 500, 200, 50, 500, 500, 500, 490],
    "b:h3-h0": [300, 400, 400, 400, 20, 900, 30, 400, 400, 390],
    "c:h1-h3": [90, 100, 100, 100, 70, 100, 100, 100, 100, 110],
}
"""Bits/s in each second."""
QUEUES = {"p0-t0-0-eth1": [0, 10, 20, 90, 40, 50, 0, 0, 0, 7], "p0-t0-1-eth1": [5, 15, 25, 35, 77, 0, 0, 0, 0, 2]}
A_EV, B_EV, C_EV = "0x0000", "0x0000", "0x0101"
"""EVs over p0-t1-0 (pinned by b) and p1-t1-1 (pinned by c)."""


def _flow(work: str, source: str, target: str, number: int) -> FlowOutcome:
    """Return a flow whose counters come from its number, so that no two are alike."""
    flow = FlowOutcome(work, source, target, 1, 1000, started_s=0.25 * number, finished_s=9.0 + 0.07 * number**2)
    flow.sent, flow.lost, flow.lost_worst_qp = 1000 * number + 3, 100 * number + 1, 40 - 3 * number
    flow.retransmitted, flow.timeouts, flow.failed = 110 * number + 2, 7 * number + 1, 2 * number + 1
    flow.damaged, flow.reorder_max, flow.completed = 3 * number + 1, 60 - 7 * number, 10
    flow.received_bytes = 1000
    flow.latencies_s = [0.001 * number * step for step in range(200, 0, -1)]
    return flow


def _collective(work: str, ranks: list[str], size: int, times: list[float], slowest: int) -> CollectiveOutcome:
    """Return the iterations end to end; the rank of that number is the slowest of all but the last two."""
    collective = CollectiveOutcome(work, "all_reduce", ranks, size, 4 / 3)
    start_s = 0.0
    for number, seconds in enumerate(times):
        rank = ranks[slowest] if number < len(times) - 2 else ranks[0]
        collective.iterations.append(
            Iteration(number, start_s, start_s + seconds, rank, number % 3, 0.1 + number / 1000 + size / 1e6)
        )
        start_s += seconds
    return collective


def _steps(work: str, ranks: list[str], count: int) -> CollectiveOutcome:
    """Return steps of a program, one every 50 ms, with times of their own."""
    steps = CollectiveOutcome(work, PROGRAM, ranks, 1, 1.0)
    for number in range(count):
        end_s = 0.05 * (number + 1)
        steps.iterations.append(Iteration(number, end_s - 0.03 - 0.0001 * (53 * number % 121), end_s, ranks[0], 0))
    return steps


def _slower(times: list[float], since_s: float) -> list[float]:
    """Return the times of iterations that take a third longer from some moment on."""
    out: list[float] = []
    for seconds in times:
        out.append(seconds if sum(out) < since_s else seconds * 4 / 3)
    return out


def outcome() -> Outcome:
    """Make the exam's run."""
    exam_outcome = Outcome("exam", "run", {}, "virtual", 1, 0, "srv6", 4000.0, duration_s=10.0, series=Series(1.0))
    ends = [("a", "h0", "h2"), ("a", "h1", "h2"), ("b", "h3", "h0"), ("c", "h1", "h3")]
    exam_outcome.flows = [_flow(*flow, number + 1) for number, flow in enumerate(ends)]
    spread = [0.02 + 0.0002 * (37 * number % 200) for number in range(200)]
    exam_outcome.collectives = [
        _collective("job", ["h0", "h1", "h2"], 3000, _slower(spread, 4.0), 1),  # slowed
        _collective("task", ["h3", "h2", "h1"], 5000, [*[0.04] * 120, 0.09, *[0.04] * 60], 2),  # slowed once
        _collective("task", ["h3", "h2", "h1"], 7000, [0.05] * 150, 2),  # never
    ]
    hosts = ["h0", "h1", "h2", "h3"]
    exam_outcome.programs = [
        ProgramOutcome("prog", "true", hosts[:3], None, 0.5, 7.0, [3, 41, 5], ["x", "y", "x"], 5, 7, 11),
        ProgramOutcome("tool", "true", hosts[1:], None, 0.5, 7.5, [37, None, 2], ["z", "x", "z"], 13, 17, 19),
    ]
    exam_outcome.collectives += [_steps("prog", hosts[:3], 120), _steps("tool", hosts[1:], 7)]
    series = exam_outcome.series
    series.times_s = [float(second + 1) for second in range(SECONDS)]
    series.received_bps = {name: [float(rate) for rate in rates] for name, rates in RATES.items()}
    series.lost = [0, 1, 0, 2, 30, 20, 5, 0, 0, 3]
    series.queues = {name: list(depths) for name, depths in QUEUES.items()}
    series.ev_packets = {
        "a:h0-h2": [{A_EV: 3, C_EV: 1, "0x0001": 4}] * 9 + [{"0x0001": 9, A_EV: 1}],
        "b:h3-h0": [{B_EV: 5, C_EV: 5}] * 9 + [{B_EV: 10}],
        "c:h1-h3": [{C_EV: 9, A_EV: 6}] * 9 + [{A_EV: 8}],
    }
    exam_outcome.event(4.0, "fault", number=0, action="cut", undo=None, text="cut")
    for t, ev in ((4.25, 1), (4.5, 2), (5.5, 1)):
        exam_outcome.event(
            t, "ev", host="h0", qpn=1, peer="h2", ev=ev, plane=0, old="good", new="assumed_bad", cause="lost"
        )
    for t in (4.15, 4.6):
        exam_outcome.event(t, "lost", host="h0", qpn=1, ev=1, cause="its timer expired")
    exam_outcome.event(4.75, "replaced", host="h0", qpn=1, ev=1, by=3, plane=0)
    exam_outcome.event(4.8, "control", text="tables changed")
    exam_outcome.event(4.9, "control", text="tables changed")
    exam_outcome.event(6.0, "fault", number=1, action="cut", undo=0, text="end of cut")
    for t, ev in ((6.3, 1), (6.85, 2)):
        exam_outcome.event(
            t, "ev", host="h0", qpn=1, peer="h2", ev=ev, plane=0, old="assumed_bad", new="good", cause="probes"
        )
    exam_outcome.event(6.9, "ev", host="h0", qpn=1, peer="h2", ev=3, plane=0, old="good", new="skip", cause="mark")
    for number in range(6):
        exam_outcome.event(7.0 + number / 10, "qp_error", host="h0", qpn=number, peer="h2", text="died", work="a")
    exam_outcome.evs_bad, exam_outcome.evs_denied = 0, 8
    exam_outcome.counters = {
        "marked": 211,
        "trimmed": 223,
        "trimmed_last_hop": 227,
        "dropped_queue": 229,
        "pauses": 233,
        "longest_pause_s": 0.239,
        "storms": 241,
        "corrupted": 251,
        "table_writes": 257,
        "peak_queue_bytes": {"p0-t0-0-eth1": 119, "p0-t0-1-eth1": 101},
    }
    return exam_outcome


def measurement(folder: Path) -> Measurement:
    """Return the exam as metrics see it."""
    (folder / "exam.yaml").write_text(SCENARIO)
    (run,) = expand(read(folder / "exam.yaml"), "virtual")
    return Measurement(outcome(), resolve(run))


EXPECTED_VALUES = {
    "rate.total": 1585.0, "rate.a": 1124.0, "rate.a.min": 414.0, "rate.a.max": 710.0, "jain.a": 0.935146914,
    "loss.total": 6.1, "outage.total": 1.0, "outage.a": 2.0, "dip.total": 0.798101812, "dip.a": 0.896551724,
    "recover.total": 2.0, "time": 10.0, "time.a": 9.03, "algbw.job": 516314.091072, "busbw.job": 688418.788096,
    "slowest.job": 1.0, "wrong.job": 199.0, "iteration.job.mean": 0.046483333, "iteration.job.p50": 0.045333333,
    "iteration.job.p95": 0.0744, "iteration.job.p99": 0.078666667, "iteration.job.max": 0.078933333,
    "iteration.task.back": 0.89,
    "slowed.job": 1.0, "slowed.task.once": 0.5, "exposed.job": 0.2025,
    "step.p50": 0.0359, "step.p99": 0.0419, "step.max": 0.042, "step.before": 0.0357,
    "steps": 127.0, "exit_code": 41.0, "exit_code.tool": 37.0, "digests": 3.0,
    "latency.a.p50": 0.134, "latency.a.p99": 0.394, "latency.a.max": 0.4,
    "sent": 10030.0, "lost": 1028.0, "lost.per_qp.max": 37.0, "retransmitted": 1138.0,
    "retransmitted.bytes": 1165312.0, "retransmitted.first": 0.15,
    "timeouts": 74.0, "marked": 211.0, "trimmed": 223.0, "trimmed.last_hop": 227.0, "dropped.queue": 229.0,
    "pauses": 233.0, "pauses.longest": 0.239, "storms": 241.0, "corrupted": 251.0, "qp_errors": 6.0, "failed": 24.0,
    "damaged": 34.0, "reorder.max": 53.0, "evs.denied": 8.0, "evs.bad": 9.0, "evs.first_bad": 0.25,
    "evs.last_bad": 0.5, "evs.restored": 0.85, "evs.swapped_in_plane": 1.0, "off_pinned.a": 0.548780488,
    "queue.p0-t0-0-eth1": 21.7, "queue.p0-t0-0-eth1.max": 90.0, "queue.last-hop.max": 119.0, "control.reacted": 0.8,
    "table_writes": 257.0,
}  # fmt: skip
"""Every metric of METRICS for one workload or port, from the numbers above."""
TWO_SWAPS = [{"t": t, "what": "replaced", "ev": 1, "by": spare, "plane": 0} for t, spare in ((4.7, None), (4.8, 3))]
LAST_PARTS = {"evs.swapped_in_plane": (0.0, {"events": TWO_SWAPS})}
"""Metrics whose last part is the whole in the exam.

The value, and fields of an outcome in which it is not.
"""
CHANGES = {"evs.bad": {"evs_bad": 9}}
"""Fields of the outcome that are different for one metric: EVs that stay bad are never restored."""
