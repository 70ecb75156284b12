"""Outcome of one run of either back end: flows, time series, events, counters. metrics come from it alone.

Times are seconds from the start of the workload; rates are payload bits/s; `to_json` has schema `mrc-run/1`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from mrc_testbed.experiments.resolve.run_plan import RunPlan

SCHEMA = "mrc-run/1"
PATHS_MAX = 128
"""QPs whose EVs are noted when the work begins."""
EVENTS_MAX = 20_000
"""Events kept of one run; the rest are counted."""
LINKS_MAX = 128
"""Links of a fabric whose rates are kept, each by itself."""


KEPT_ALWAYS = ("fault", "qp_error")
"""Events that are kept however many there are: verdicts count them."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that no run may have unless its scenario wants it; failures.py finds them."""

    kind: str
    """A key of failures.UNWRITTEN."""
    work: str
    """Workload that it happened to; empty: the run as a whole."""
    at_s: float
    """When it was known; the end of the run for what shows only there."""
    text: str
    count: int = 1
    """Messages or elements that one line is about."""


@dataclass(slots=True)
class FlowOutcome:
    """One flow: messages from one host to another, over one QP or several."""

    work: str
    source: str
    target: str
    qps: int
    message_bytes: int
    completed: int = 0
    """Messages (of collectives: writes) that ended well."""
    failed: int = 0
    damaged: int = 0
    """Messages whose bytes at the receiver were not those sent."""
    received_bytes: int = 0
    started_s: float = 0.0
    finished_s: float | None = None
    """Last completion."""
    lost: int = 0
    """Packets, as are the next three."""
    lost_worst_qp: int = 0
    sent: int = 0
    retransmitted: int = 0
    timeouts: int = 0
    reorder_max: int = 0
    """Most packets its responders held above a hole."""
    latencies_s: list[float] = field(default_factory=list)
    """Seconds from posting to completion of each message, where `measure` has `latency`."""

    @property
    def name(self) -> str:
        return f"{self.work}:{self.source}-{self.target}"


@dataclass(slots=True)
class Iteration:
    """One iteration of a collective, over all ranks."""

    number: int
    started_s: float
    finished_s: float
    slowest: str
    """Host that ended last."""
    wrong: int
    """Elements with a wrong value."""
    exposed: float = 0.0
    """Of programs: share of the time in which a rank computed nothing, the mean over the ranks."""


@dataclass(slots=True)
class CollectiveOutcome:
    """A collective's or program's measured iterations. `size_bytes` and `bus_factor` as nccl-tests have them."""

    work: str
    kind: str
    ranks: list[str]
    size_bytes: int
    bus_factor: float
    largest_write_bytes: int = 0
    """0: not recorded."""
    iterations: list[Iteration] = field(default_factory=list)

    @property
    def mean_s(self) -> float:
        """Time of one iteration, back to back."""
        if not self.iterations:
            return 0.0
        return (self.iterations[-1].finished_s - self.iterations[0].started_s) / len(self.iterations)


@dataclass(slots=True)
class JobsOutcome:
    """Times of an iteration of the jobs of a workload that are not kept one by one, seconds; entry i is a job."""

    work: str
    before_s: list[float]
    """Median before the first fault."""
    after_s: list[float]
    """Median of those that ended after it."""
    longest_s: list[float]
    """The longest of these."""


def iterations_of(
    started_s: float, ranks: list[str], ended: list[list[tuple[float, int, float]]], warm_up: int
) -> list[Iteration]:
    """Iterations after the warm-up that all ranks ended. `ended`: by rank, (when, wrong elements, busy seconds)."""
    out, began = [], started_s
    for number in range(min(map(len, ended), default=0)):
        ends = [mine[number][0] for mine in ended]
        last = max(ends)
        if number >= warm_up:
            wrong = sum(mine[number][1] for mine in ended)
            exposed = [_exposed(mine, number, started_s) for mine in ended]
            mean = sum(exposed) / len(exposed)
            out.append(Iteration(number - warm_up, began, last, ranks[ends.index(last)], wrong, mean))
        began = last
    return out


def _exposed(mine: list[tuple[float, int, float]], number: int, started_s: float) -> float:
    """Share of a rank's own time for an iteration in which it computed nothing."""
    took = mine[number][0] - (mine[number - 1][0] if number else started_s)
    return max(0.0, 1 - mine[number][2] / took) if took > 0 else 0.0


def down_planes(events: Sequence[dict[str, Any]], host: str, peer: str) -> set[int]:
    """Planes that a host could not use towards a peer when these events had happened, whosever port was down."""
    up: dict[tuple[int, str | None], bool] = {}
    for event in events:
        if event["what"] == "plane" and event["host"] == host and event["peer"] in (None, peer):
            up[event["plane"], event["peer"]] = event["up"]
    return {plane for (plane, _), is_up in up.items() if not is_up}


def dead_evs(evs: Sequence[tuple[int, str]], down: set[int]) -> int:
    """EVs, (plane, state) each, that can carry nothing."""
    return sum(state in ("assumed_bad", "denied") or plane in down for plane, state in evs)


COUNTED = ("lost", "retransmitted", "marked", "trimmed", "dropped", "link_lost")
"""Series of packets in each interval."""


class SeriesColumn(NamedTuple):
    """One series by the name that it has in CSV and Parquet files. `values`: one an interval, as in Series."""

    name: str
    unit: str
    values: Sequence[float | None]


@dataclass(slots=True)
class SeriesSpread:
    """Rates of many flows that are not kept one by one, in each interval; bits/s."""

    flows: int
    least_bps: list[float]
    most_bps: list[float]
    jain: list[float]
    """Jain's index over them."""


@dataclass(slots=True)
class Series:
    """Values at equal intervals; entry i is the interval that ends at `times_s[i]`."""

    every_s: float
    times_s: list[float] = field(default_factory=list)
    received_bps: dict[str, list[float]] = field(default_factory=dict)
    """Flow name -> payload received in the interval, bits/s."""
    lost: list[int] = field(default_factory=list)
    """Packets found lost in the interval."""
    retransmitted: list[int] = field(default_factory=list)
    """Data packets sent again in the interval."""
    plane_bps: list[list[float]] = field(default_factory=list)
    """Per plane: bits/s of data that hosts sent over it, headers included."""
    marked: list[int | None] = field(default_factory=list)
    """Packets that switches marked; as the next three None: could not be read."""
    trimmed: list[int | None] = field(default_factory=list)
    dropped: list[int | None] = field(default_factory=list)
    """Packets dropped in switches: a full queue, a dead port."""
    link_lost: list[int | None] = field(default_factory=list)
    """Packets sent that links lost: injected loss, silence."""
    ev_packets: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    """Flow name -> packets sent over each EV (as `0x0305`) in the interval; kept for a few flows only."""
    link_bps: dict[str, list[list[int] | None]] = field(default_factory=dict)
    """Link -> bits/s of all packets over it, away from the hosts and towards them; None: could not be read. Kept for
    fabrics of up to LINKS_MAX links."""
    queues: dict[str, list[int | None]] = field(default_factory=dict)
    """Interface -> bytes waiting in its data queue at the end of the interval; None: could not be read."""
    spread: dict[str, SeriesSpread] = field(default_factory=dict)
    """Work -> its flows, where `received_bps` has one entry for all of them: fluid runs of thousands of flows."""

    def columns(self) -> list[SeriesColumn]:
        """Rates of flows, packets counted, rates of planes, depths of queues; one may end before `times_s` does."""
        columns = [SeriesColumn(f"rate_bps {name}", "bit/s", values) for name, values in self.received_bps.items()]
        columns += [SeriesColumn(key, "packets", getattr(self, key)) for key in COUNTED]
        planes = len(self.plane_bps[0]) if self.plane_bps else 0
        for plane in range(planes):
            columns.append(SeriesColumn(f"plane{plane}_bps", "bit/s", [values[plane] for values in self.plane_bps]))
        columns += [SeriesColumn(f"queue_bytes {name}", "bytes", values) for name, values in self.queues.items()]
        return columns


@dataclass(slots=True)
class Outcome:
    """One run."""

    scenario: str
    name: str
    label: dict[str, Any]
    where: str
    """`virtual`, `fluid` or `live`."""
    seed: int
    repeat: int
    mode: str
    capacity_bps: float
    """Payload that the senders' NICs could carry together, full packets."""
    duration_s: float = 0.0
    finished: bool = True
    """All that had an end reached it, and the run did within the limit."""
    failures: list[Failure] = field(default_factory=list)
    """In order of time, the first cause first; not in `to_json` where there are none."""
    flows: list[FlowOutcome] = field(default_factory=list)
    collectives: list[CollectiveOutcome] = field(default_factory=list)
    jobs: list[JobsOutcome] = field(default_factory=list)
    """Of fluid runs, which have rates and no iterations; not in `to_json` where there are none."""
    cause: str = ""
    """First cause of a run that failed, whose figures belong in no mean; not in `to_json` where there is none."""
    series: Series = field(default_factory=lambda: Series(0.1))
    events: list[dict[str, Any]] = field(default_factory=list)
    """{t, what, ...} in order of time: `fault`, `ev`, `plane`, `qp_error`, `control`, `detected`."""
    events_dropped: int = 0
    counters: dict[str, Any] = field(default_factory=dict)
    """marked, trimmed, trimmed_last_hop, dropped_queue, corrupted, table_writes, peak queues by interface."""
    paths: list[dict[str, Any]] = field(default_factory=list)
    """{flow, host, peer, qpn, evs: [[ev, plane, state], ...]}: every MRC QP's EVs as they were when the work began."""
    dead_parts: list[dict[str, Any]] = field(default_factory=list)
    """Processes of a live fabric that died during the run, the first one first: {t, name, pid, how, loses, log}; `t` as
    in events. The run ended with it. Not in `to_json` where there are none."""
    evs_bad: int = 0
    evs_denied: int = 0
    metrics: dict[str, float | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Notes for the reader: overload, a fault that could not be injected."""
    observations: bytes = field(default=b"", repr=False)
    """Observations of the controller in a live run (controller/faults/observations.py): a file of its own, not in
    `to_json`."""

    @classmethod
    def begin(cls, plan: RunPlan, where: str, capacity_bps: float) -> Outcome:
        """The outcome of a run that begins."""
        return cls(
            scenario=plan.scenario.name,
            name=plan.name,
            label=dict(plan.label),
            where=where,
            seed=plan.seed,
            repeat=plan.repeat,
            mode=plan.fabric.mode.value,
            capacity_bps=capacity_bps,
            series=Series(plan.measure.every),
        )

    def event(self, t: float, what: str, **fields: Any) -> None:
        """Note something that happened."""
        if len(self.events) >= EVENTS_MAX and what not in KEPT_ALWAYS:
            self.events_dropped += 1
        else:
            self.events.append({"t": round(t, 6), "what": what, **fields})

    def fail(self, kind: str, at_s: float, text: str, work: str = "", count: int = 1) -> None:
        """Note a failure: `process` for a process of ours that died, with its name and last words in `text`."""
        self.failures.append(Failure(kind, work, round(at_s, 6), text, count))

    def note_evs(self, flow: str, qpn: int, evs: list[list[Any]]) -> None:
        """The EVs, [ev, plane, state] each, of one QP of the flow `work:host-peer`."""
        if len(self.paths) < PATHS_MAX:
            host, _, peer = flow.rpartition(":")[2].partition("-")
            self.paths.append({"flow": flow, "host": host, "peer": peer, "qpn": qpn, "evs": evs})

    def works(self) -> list[str]:
        """Names of the workloads, in order."""
        return list(dict.fromkeys([*(f.work for f in self.flows), *(c.work for c in self.collectives)]))

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        del values["observations"]
        for key in ("jobs", "failures", "dead_parts", "cause"):
            if not values[key]:
                del values[key]
        return {"schema": SCHEMA, **values}

    @classmethod
    def from_json(cls, data: Any) -> Outcome:
        """Inverse of to_json. Raises ValueError for other data."""
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError(
                f"not a run of this version: schema {data.get('schema') if isinstance(data, dict) else data!r}"
            )
        values = {key: value for key, value in data.items() if key != "schema"}
        try:
            values["flows"] = [FlowOutcome(**flow) for flow in values["flows"]]
            values["collectives"] = [
                CollectiveOutcome(**{**one, "iterations": [Iteration(**i) for i in one["iterations"]]})
                for one in values["collectives"]
            ]
            values["jobs"] = [JobsOutcome(**one) for one in values.get("jobs", ())]
            values["failures"] = [Failure(**one) for one in values.get("failures", ())]
            series = dict(values["series"])
            spread = {work: SeriesSpread(**one) for work, one in series.pop("spread", {}).items()}
            values["series"] = Series(**series, spread=spread)
            return cls(**values)
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a run of this version: {error}") from None
