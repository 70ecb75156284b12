"""The metrics of a run (metrics.py lists them), computed from its Outcome and nothing else.

    measurement = Measurement(outcome, plan)
    measurement.value("rate.flow")                                # the whole run
    measurement.values("rate.flow", start, stop, interval_s=1.0)        # one a second of a part of it
    measurement.baseline("rate.total")                            # mean before the first fault

A value is None when the run has nothing to compute it from (no fault, no collective, nothing completed).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import inf
from statistics import fmean, median
from typing import Any

from mrc_testbed.experiments.backend.job_times import before_faults, job_times
from mrc_testbed.experiments.backend.outcome import (
    PROGRAM,
    CollectiveOutcome,
    FlowOutcome,
    Iteration,
    Outcome,
    ProgramOutcome,
)
from mrc_testbed.experiments.language.metric_names import METRICS, find
from mrc_testbed.experiments.language.model import Instant
from mrc_testbed.experiments.resolve.flows import pinned_evs
from mrc_testbed.experiments.resolve.run_plan import RunPlan

OUTAGE_SHARE = 0.25
"""Share of the baseline below which a rate counts as an outage."""
RECOVERED_SHARE = 0.95
BACK_MEAN, BACK_MAX = 1.01, 1.05
"""Times of iterations over the median before the first fault with which a job is back: mean, each."""
START_UP_SHARE = 0.1
"""Share of the time before the first fault that the baseline omits: windows open there."""
START_UP_MAX_S = 1.0


class Measurement:
    """Metrics of one run, by name; see the module."""

    def __init__(self, outcome: Outcome, plan: RunPlan) -> None:
        self.outcome, self.plan = outcome, plan
        faults = [event for event in outcome.events if event["what"] == "fault" and event["t"] > 0]
        self.first_fault_s: float | None = min((event["t"] for event in faults), default=None)
        self.last_fault_s: float | None = max((event["t"] for event in faults), default=None)
        """Time of the last start or end of a fault; None without faults."""
        self._flows: dict[str, list[FlowOutcome]] = {}
        for flow in outcome.flows:
            self._flows.setdefault(flow.work, []).append(flow)

    # ---- by name ----------------------------------------------------------------------------------------

    def value(self, name: str) -> float | None:
        """Return a metric over the whole run. Raises KeyError for a name that does not exist."""
        metric = find(name, self._works(), self._queues())
        if metric is None:
            raise KeyError(name)
        if metric.series:
            return self.value_between(name, 0.0, self.outcome.duration_s)
        prefix, _, suffix = metric.pattern.partition("NAME" if "NAME" in metric.pattern else "PORT")
        return _RUN_METRICS[metric.pattern](self, name.removeprefix(prefix).removesuffix(suffix))

    def values(self, name: str, start: Instant | None, stop: Instant | None, interval_s: float | None) -> list[float]:
        """Return a metric over a part of the run: one mean, or one for each `interval_s` seconds."""
        if start is None and stop is None and interval_s is None:
            value = self.value(name)
            return [] if value is None else [value]
        low, high = self.moment(start, 0.0), self.moment(stop, self.outcome.duration_s)
        if interval_s is None:
            means = [self.value_between(name, low, high)]
        else:
            count = max(1, round((high - low) / interval_s))
            means = [self.value_between(name, low + i * interval_s, low + (i + 1) * interval_s) for i in range(count)]
        return [value for value in means if value is not None]

    def moment(self, instant: Instant | None, default: float) -> float:
        """Return the seconds of an Instant; a share refers to the run's length."""
        if instant is None:
            return default
        return instant.seconds if instant.seconds is not None else (instant.share or 0.0) * self.outcome.duration_s

    def baseline(self, name: str) -> float | None:
        """Return the mean of a series metric before the first fault, without the start.

        Without faults, the mean is over the whole run; a `baseline` of the scenario replaces both spans.
        """
        span = self.plan.baseline
        if span is not None:
            return self.value_between(name, span.start, span.stop)
        end = self.first_fault_s if self.first_fault_s is not None else self.outcome.duration_s
        return self.value_between(name, min(end * START_UP_SHARE, START_UP_MAX_S), end)

    def all_values(self) -> dict[str, float | None]:
        """Return every metric by name."""
        out: dict[str, float | None] = {}
        for metric in METRICS:
            if "NAME" in metric.pattern:
                names = [metric.pattern.replace("NAME", work) for work in self._works()]
            elif "PORT" in metric.pattern:
                names = [metric.pattern.replace("PORT", port) for port in self._queues()]
            else:
                names = [metric.pattern]
            for name in names:
                out[name] = self.value(name)
        return out

    def _works(self) -> list[str]:
        return self.outcome.works()

    def _queues(self) -> list[str]:
        return list(self.plan.measure.queues)

    # ---- series -----------------------------------------------------------------------------------------

    def value_between(self, name: str, low: float, high: float) -> float | None:
        """Return a series metric over (low, high] seconds."""
        kind, _, target = name.partition(".")
        if kind == "loss":
            return self._mean([float(n) / self.outcome.series.every_s for n in self.outcome.series.lost], low, high)
        if kind == "queue":
            return self._mean(self.outcome.series.queues.get(target, []), low, high)
        if kind == "off_pinned":
            return self._off_pinned(target, low, high)
        spread = self.outcome.series.spread.get(target.removesuffix(".min").removesuffix(".max"))
        if spread is not None and target not in self._flows:
            return self._mean(spread.least_bps if target.endswith(".min") else spread.most_bps, low, high)
        if spread is not None and kind == "jain":
            return self._mean(spread.jain, low, high)
        rates = self._flow_rates(target.removesuffix(".min").removesuffix(".max"), low, high)
        if not rates:
            return None
        if kind == "jain":
            squares = len(rates) * sum(rate * rate for rate in rates)
            return sum(rates) ** 2 / squares if squares else 1.0
        if target.endswith(".min") and target not in self._flows:
            return min(rates)
        if target.endswith(".max") and target not in self._flows:
            return max(rates)
        return sum(rates)

    def _flow_rates(self, work: str, low: float, high: float) -> list[float]:
        """Return the mean rate of each flow of a workload (`total`: of all) over a part of the run."""
        names = {flow.name for flow in self.outcome.flows if work in ("total", flow.work)}
        received = self.outcome.series.received_bps
        means = [self._mean(values, low, high) for name, values in received.items() if name in names]
        return [mean for mean in means if mean is not None]

    def _mean(self, values: Sequence[float | None], low: float, high: float) -> float | None:
        """Return the mean over intervals in (low, high], weighted by their part; unread intervals are omitted."""
        times = self.outcome.series.times_s
        total = weight = 0.0
        index = bisect_right(times, low)
        while index < min(len(times), len(values)):
            start_s = times[index - 1] if index else 0.0
            if start_s >= high:
                break
            part, value = min(times[index], high) - max(start_s, low), values[index]
            if part > 0 and value is not None:
                total, weight = total + value * part, weight + part
            index += 1
        return total / weight if weight > 0 else None

    def _off_pinned(self, work: str, low: float, high: float) -> float | None:
        evs = self._pinned_evs(work)
        on = off_count = 0
        for flow in self._flows.get(work, []):
            for end, packets in zip(
                self.outcome.series.times_s, self.outcome.series.ev_packets.get(flow.name, []), strict=False
            ):
                if low < end <= high + 1e-9:
                    on += sum(count for ev, count in packets.items() if ev in evs)
                    off_count += sum(count for ev, count in packets.items() if ev not in evs)
        return off_count / (on + off_count) if on + off_count else None

    def _pinned_evs(self, work: str) -> set[str]:
        """Return the EVs that other workloads are pinned to."""
        other_pins = [pin for pin in self.plan.pins if pin.work != work]
        return {f"{ev:#06x}" for pin in other_pins for ev in pinned_evs(self.plan.fabric, *pin[1:])}

    def _rates(self, work: str) -> list[tuple[float, float, float]]:
        """Return (from, to, rate) of every interval after the first fault and before the work's end."""
        if self.first_fault_s is None:
            return []
        ends = [flow.finished_s for flow in self.outcome.flows if work in ("total", flow.work)]
        endless = self.plan.duration_s is not None or None in ends
        last = self.outcome.duration_s if endless else max((end for end in ends if end is not None), default=0.0)
        series = self.outcome.series
        names = {flow.name for flow in self.outcome.flows if work in ("total", flow.work)}
        series_values = [values for name, values in series.received_bps.items() if name in names]
        out, start_s = [], 0.0
        for index, end in enumerate(series.times_s):
            if start_s >= self.first_fault_s - 1e-9 and end <= last + 1e-9:
                out.append((start_s, end, sum(values[index] for values in series_values if index < len(values))))
            start_s = end
        return out

    # ---- one number a run -------------------------------------------------------------------------------

    def outage(self, work: str) -> float | None:
        """Return the longest time below OUTAGE_SHARE of the baseline."""
        base = self.baseline(f"rate.{work}")
        if base is None or self.first_fault_s is None:
            return None
        longest_s = current = 0.0
        for low, high, rate in self._rates(work):
            current = current + high - low if rate < OUTAGE_SHARE * base else 0.0
            longest_s = max(longest_s, current)
        return longest_s

    def dip(self, work: str) -> float | None:
        """Return the deepest fall below the baseline, as a share of the baseline."""
        base = self.baseline(f"rate.{work}")
        rates = [rate for _, _, rate in self._rates(work)]
        return max(0.0, 1 - min(rates) / base) if base and rates else None

    def recover(self, work: str) -> float | None:
        """Return the seconds from the last fault's end until within 5 % of the baseline for good; None: never."""
        base = self.baseline(f"rate.{work}")
        rates = self._rates(work)
        if base is None or self.last_fault_s is None or not rates:
            return None
        low = [end for _, end, rate in rates if rate < RECOVERED_SHARE * base]
        if low and low[-1] == rates[-1][1]:
            return None
        return max(0.0, low[-1] - self.last_fault_s) if low else 0.0

    @property
    def _is_cut_short(self) -> bool:
        """Whether late events were dropped, so that the last of any kind is unknown."""
        return self.outcome.events_dropped > 0 and self.outcome.where != "fluid"  # fluid runs drop events in the middle

    def _ev_events(self, state: str) -> list[dict[str, Any]]:
        return [e for e in self.outcome.events if e["what"] == "ev" and e["new"] == state]

    def first_bad(self, _: str) -> float | None:
        """Return the seconds from the first fault to the first EV ASSUMED_BAD."""
        first_fault_s = self.first_fault_s
        times = [
            e["t"] for e in self._ev_events("assumed_bad") if first_fault_s is not None and e["t"] >= first_fault_s
        ]
        return min(times) - first_fault_s if times and first_fault_s is not None else None

    def last_bad(self, _: str) -> float | None:
        """Return the seconds from the first fault until the last EV went bad for the first time."""
        if self.outcome.events_dropped:
            return None
        first_fault_s = self.first_fault_s
        firsts: dict[tuple[str, int, int], float] = {}
        for event in self._ev_events("assumed_bad"):
            if first_fault_s is not None and event["t"] >= first_fault_s:
                firsts.setdefault((event["host"], event["qpn"], event["ev"]), event["t"])
        return max(firsts.values()) - first_fault_s if firsts and first_fault_s is not None else None

    def first_retransmission(self, _: str) -> float | None:
        """Return the seconds from the first fault until a packet was found lost, and sent again.

        Without the event, as in live runs: to the end of the interval of the first retransmission.
        """
        series, first_fault_s = self.outcome.series, self.first_fault_s
        if first_fault_s is None:
            return None
        losses: list[float] = [e["t"] for e in self.outcome.events if e["what"] == "lost" and e["t"] >= first_fault_s]
        if losses:
            return min(losses) - first_fault_s
        intervals = zip(series.times_s, series.retransmitted, strict=False)
        return next((end_s - first_fault_s for end_s, count in intervals if end_s > first_fault_s and count), None)

    def restore_time(self, _: str) -> float | None:
        """Return the seconds from the last fault's end until no EV was ASSUMED_BAD."""
        if self.outcome.evs_bad or self.last_fault_s is None or self._is_cut_short:
            return None
        restore_times = [e["t"] for e in self.outcome.events if e["what"] == "ev" and e["old"] == "assumed_bad"]
        return max(0.0, max(restore_times) - self.last_fault_s) if restore_times else None

    def swapped_in_plane(self, _: str) -> float | None:
        """Return 1 when every replaced EV was replaced by one of its plane, else 0."""
        swaps = [e for e in self.outcome.events if e["what"] == "replaced"]
        good = all(e["by"] is not None for e in swaps)
        return float(good) if swaps and not (good and self.outcome.events_dropped) else None

    def reaction_time(self, _: str) -> float | None:
        """Return the seconds from the first fault until the control plane had changed its tables."""
        times = [e["t"] for e in self.outcome.events if e["what"] == "control" and e["text"] == "tables changed"]
        return min(times) - self.first_fault_s if times and self.first_fault_s is not None else None

    def latency(self, work: str, share: float) -> float | None:
        """Return a quantile of the message times of a workload."""
        times = sorted(t for flow in self._flows.get(work, []) for t in flow.latencies_s)
        return _quantile(times, share) if times else None

    def collective(self, work: str, compute: Callable[[Any], float]) -> float | None:
        """Return a number of a collective with measured iterations; of several jobs the mean."""
        return mean([compute(collective) for collective in self._own_collectives(work) if collective.mean_s > 0])

    def wrong_elements(self, work: str) -> float | None:
        """Return the elements of a collective, all jobs, with a wrong value."""
        collectives = self._own_collectives(work)
        return float(sum(i.wrong for collective in collectives for i in collective.iterations)) if collectives else None

    def slowest(self, work: str) -> float | None:
        """Return the rank that ended last most often; None for several jobs, as each has its own ranks."""
        collectives = self._own_collectives(work)
        return _slowest(collectives[0]) if len(collectives) == 1 else None

    def _with_iterations(self, work: str) -> list[CollectiveOutcome]:
        return [
            collective for collective in self.outcome.collectives if collective.work == work and collective.iterations
        ]

    def _own_collectives(self, work: str) -> list[CollectiveOutcome]:
        """Return those with iterations but for steps of programs, of which only the times are known."""
        return [collective for collective in self._with_iterations(work) if collective.kind != PROGRAM]

    def iteration(self, work: str, compute: Callable[[list[float]], float]) -> float | None:
        """Return a statistic of the times of measured iterations of a collective or training, all jobs."""
        times = [
            i.finished_s - i.started_s for collective in self._with_iterations(work) for i in collective.iterations
        ]
        return compute(sorted(times)) if times else None

    def step(self, compute: Callable[[list[float]], float], *, is_early: bool = False) -> float | None:
        """Return a statistic of the step times of all programs; `is_early`: of those before the first fault."""
        until_s = self.first_fault_s if is_early else inf
        times = [i.finished_s - i.started_s for i in self._steps() if until_s is not None and i.finished_s <= until_s]
        return compute(sorted(times)) if times else None

    def _steps(self) -> list[Iteration]:
        return [
            i for collective in self.outcome.collectives if collective.kind == PROGRAM for i in collective.iterations
        ]

    def exit_code(self, work: str) -> float | None:
        """Return the worst exit code of a program's ranks (empty: of all); None: none ended by itself."""
        programs = [program for program in self.outcome.programs if work in ("", program.work)]
        codes = [code for program in programs for code in program.exit_codes if code is not None]
        return float(max(codes)) if codes else None

    def digest_count(self) -> float | None:
        """Return how many different digests of parameters ranks printed; None: none did."""
        digests = {digest for program in self.outcome.programs for digest in program.digests if digest is not None}
        return float(len(digests)) or None

    def iterations_back(self, work: str) -> float | None:
        """Return the seconds from the first fault until all iterations are as short as before, for good.

        None: not in this run, or no iteration ended before the fault.
        """
        first_fault_s, collectives = self.first_fault_s, self._with_iterations(work)
        if first_fault_s is None or not collectives:
            return None
        latest_s = 0.0
        for collective in collectives:
            iterations = collective.iterations
            before_s = [i.finished_s - i.started_s for i in iterations if i.finished_s <= first_fault_s]
            if not before_s:
                return None
            usual_s, back_s = median(before_s), None
            later_s: list[float] = []
            for iteration in reversed([i for i in iterations if i.finished_s > first_fault_s]):
                later_s.append(iteration.finished_s - iteration.started_s)
                if later_s[-1] > BACK_MAX * usual_s:
                    break
                # One iteration may be a little longer; all from here on together are as fast as before.
                if fmean(later_s) <= BACK_MEAN * usual_s:
                    back_s = max(0.0, iteration.started_s - first_fault_s)
            if back_s is None:
                return None
            latest_s = max(latest_s, back_s)
        return latest_s

    def slowed_share(self, work: str, *, once: bool) -> float | None:
        """Return the share of jobs slower after the first fault, in the median or (`once`) in any iteration.

        None without a fault or `baseline`, and when no job had an iteration before.
        """
        outcome = self.outcome
        times = [
            (*job_spans,)
            for job in outcome.jobs
            if job.work == work
            for job_spans in zip(job.before_s, job.after_s, job.longest_s, strict=True)
        ]
        span = before_faults(self.plan.baseline, self.first_fault_s)
        if span is not None:
            for collective in self._with_iterations(work):
                spans = [(i.started_s, i.finished_s) for i in collective.iterations]
                job_record = job_times(spans, span, outcome.duration_s, self.plan.iterations[work])
                times += [] if job_record is None else [job_record]
        slowed_factor = 1 + self.plan.measure.slowed
        return mean(
            [
                float((longest_s if once else after_s) > slowed_factor * before_s)
                for before_s, after_s, longest_s in times
            ]
        )

    def time_of(self, work: str) -> float | None:
        """Return the seconds from a workload's start to its last completion."""
        flows = self._flows.get(work, [])
        ends = [flow.finished_s for flow in flows if flow.finished_s is not None]
        return max(ends) - min(flow.started_s for flow in flows) if ends else None

    def deepest(self, port: str) -> float | None:
        """Return the greatest recorded depth of a queue."""
        depths = [depth for depth in self.outcome.series.queues.get(port, []) if depth is not None]
        return float(max(depths)) if depths else None

    def deepest_last_hop(self, _: str) -> float | None:
        """Return the deepest queue of all T0 downlinks; None where not recorded."""
        peaks = self.outcome.counters.get("peak_queue_bytes")
        return None if peaks is None else float(max(peaks.values(), default=0))

    def flow_sum(self, count: Callable[[FlowOutcome], int]) -> float | None:
        return self.of_flows(sum(count(flow) for flow in self.outcome.flows))

    def of_flows(self, value: int) -> float | None:
        """Return a value that is known of flows alone; None where all work is programs of users."""
        return None if self.outcome.programs and not self.outcome.flows else float(value)

    def packet_sum(self, count: Callable[[FlowOutcome | ProgramOutcome], int]) -> float:
        """Return a count of packets of all flows and programs."""
        return float(sum(map(count, self.outcome.flows)) + sum(map(count, self.outcome.programs)))

    def counter(self, name: str) -> float | None:
        value = self.outcome.counters.get(name)
        return None if value is None else float(value)


def _quantile(sorted_values: list[float], share: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def _slowest(collective: Any) -> float:
    names = [iteration.slowest for iteration in collective.iterations]
    return float(collective.ranks.index(max(set(names), key=lambda name: (names.count(name), name))))


_RUN_METRICS: dict[str, Callable[[Measurement, str], float | None]] = {
    "outage.total": lambda m, _: m.outage("total"),
    "outage.NAME": Measurement.outage,
    "dip.total": lambda m, _: m.dip("total"),
    "dip.NAME": Measurement.dip,
    "recover.total": lambda m, _: m.recover("total"),
    "time": lambda m, _: m.outcome.duration_s,
    "time.NAME": Measurement.time_of,
    "algbw.NAME": lambda m, w: m.collective(w, lambda c: c.size_bytes * 8 / c.mean_s),
    "busbw.NAME": lambda m, w: m.collective(w, lambda c: c.size_bytes * 8 / c.mean_s * c.bus_factor),
    "slowest.NAME": Measurement.slowest,
    "wrong.NAME": Measurement.wrong_elements,
    "iteration.NAME.mean": lambda m, w: m.iteration(w, fmean),
    "iteration.NAME.p50": lambda m, w: m.iteration(w, lambda times: _quantile(times, 0.5)),
    "iteration.NAME.p95": lambda m, w: m.iteration(w, lambda times: _quantile(times, 0.95)),
    "iteration.NAME.p99": lambda m, w: m.iteration(w, lambda times: _quantile(times, 0.99)),
    "iteration.NAME.max": lambda m, w: m.iteration(w, lambda times: times[-1]),
    "iteration.NAME.back": Measurement.iterations_back,
    "slowed.NAME": lambda m, w: m.slowed_share(w, once=False),
    "slowed.NAME.once": lambda m, w: m.slowed_share(w, once=True),
    "exposed.NAME": lambda m, w: m.collective(w, lambda c: fmean(i.exposed for i in c.iterations)),
    "step.p50": lambda m, _: m.step(lambda times: _quantile(times, 0.5)),
    "step.p99": lambda m, _: m.step(lambda times: _quantile(times, 0.99)),
    "step.max": lambda m, _: m.step(lambda times: times[-1]),
    "step.before": lambda m, _: m.step(median, is_early=True),
    "steps": lambda m, _: float(len(m._steps())) if m.outcome.programs else None,
    "exit_code": lambda m, _: m.exit_code(""),
    "exit_code.NAME": Measurement.exit_code,
    "digests": lambda m, _: m.digest_count(),
    "latency.NAME.p50": lambda m, w: m.latency(w, 0.5),
    "latency.NAME.p99": lambda m, w: m.latency(w, 0.99),
    "latency.NAME.max": lambda m, w: m.latency(w, 1.0),
    "sent": lambda m, _: m.packet_sum(lambda f: f.sent),
    "lost": lambda m, _: m.packet_sum(lambda f: f.lost),
    "lost.per_qp.max": lambda m, _: m.of_flows(max((f.lost_worst_qp for f in m.outcome.flows), default=0)),
    "retransmitted": lambda m, _: m.packet_sum(lambda f: f.retransmitted),
    "retransmitted.bytes": lambda m, _: m.plan.transport.pmtu * m.packet_sum(lambda f: f.retransmitted),
    "retransmitted.first": Measurement.first_retransmission,
    "timeouts": lambda m, _: m.flow_sum(lambda f: f.timeouts),
    "marked": lambda m, _: m.counter("marked"),
    "trimmed": lambda m, _: m.counter("trimmed"),
    "trimmed.last_hop": lambda m, _: m.counter("trimmed_last_hop"),
    "dropped.queue": lambda m, _: m.counter("dropped_queue"),
    "pauses": lambda m, _: m.counter("pauses"),
    "pauses.longest": lambda m, _: m.counter("longest_pause_s"),
    "storms": lambda m, _: m.counter("storms"),
    "corrupted": lambda m, _: m.counter("corrupted"),
    "qp_errors": lambda m, _: m.of_flows(sum(e["what"] == "qp_error" for e in m.outcome.events)),
    "failed": lambda m, _: m.flow_sum(lambda f: f.failed),
    "damaged": lambda m, _: m.flow_sum(lambda f: f.damaged),
    "reorder.max": lambda m, _: m.of_flows(max((f.reorder_max for f in m.outcome.flows), default=0)),
    "evs.denied": lambda m, _: m.of_flows(m.outcome.evs_denied),
    "evs.bad": lambda m, _: m.of_flows(m.outcome.evs_bad),
    "evs.first_bad": Measurement.first_bad,
    "evs.last_bad": Measurement.last_bad,
    "evs.restored": Measurement.restore_time,
    "evs.swapped_in_plane": Measurement.swapped_in_plane,
    "queue.PORT.max": Measurement.deepest,
    "queue.last-hop.max": Measurement.deepest_last_hop,
    "control.reacted": Measurement.reaction_time,
    "table_writes": lambda m, _: m.counter("table_writes"),
}
"""Function of each metric that is one number for the run; a test compares the names with METRICS."""


def mean(values: list[float]) -> float | None:
    """Return the mean; None of no values."""
    return fmean(values) if values else None
