"""Outcome of one run of any back end: flows, series, events, counters; the only source of metrics.

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
HOST_DIED = "its host lost its power"
"""Text of the end of a QP whose host went off."""

KEPT_ALWAYS = ("fault", "qp_error")
"""Events that are kept however many there are: verdicts count them."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure that no run may have unless its scenario expects it; failures.py finds them."""

    kind: str
    """A key of failures.UNWRITTEN."""
    work: str
    """Workload that it happened to; empty: the run as a whole."""
    at_s: float
    """Seconds of the run when it was detected; the end of the run for what shows only there."""
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
    """Messages (of collectives: writes) that completed."""
    failed: int = 0
    damaged: int = 0
    """Messages whose bytes at the receiver were not those sent."""
    received_bytes: int = 0
    started_s: float = 0.0
    finished_s: float | None = None
    """Last completion."""
    lost: int = 0
    """Packets that requestors found lost."""
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
    """Share of the time in which a rank computed nothing, mean over the ranks; programs only."""


@dataclass(slots=True)
class CollectiveOutcome:
    """Measured iterations of a collective or program; `size_bytes`, `bus_factor` as in nccl-tests."""

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


PROGRAM = "program"
"""Kind of the CollectiveOutcome that has the steps of a user's program, as it printed them."""


@dataclass(slots=True)
class ProgramOutcome:
    """A user's program on hosts; entry i of a list is of rank i."""

    work: str
    command: str
    ranks: list[str]
    backend: str | None
    """Backend of a training job; None: a plain command."""
    started_s: float | None = None
    finished_s: float | None = None
    """Time at which its last rank had ended; None: it ran at the end of the run."""
    exit_codes: list[int | None] = field(default_factory=list)
    """Exit codes as a shell gives them.

    None: the rank was ended by `stop`, after another's failure, or with the run.
    """
    digests: list[str | None] = field(default_factory=list)
    """SHA-256 of the parameters; None: the rank printed none."""
    sent: int = 0
    """Packets of its RDMA, as the hosts' NICs counted at the last look; also below."""
    lost: int = 0
    retransmitted: int = 0


@dataclass(slots=True)
class JobsOutcome:
    """Iteration times of jobs that are not recorded one by one, seconds; entry i is a job."""

    work: str
    before_s: list[float]
    """Median before the first fault."""
    after_s: list[float]
    """Median of the iterations that ended after the first fault."""
    longest_s: list[float]
    """Longest iteration that ended after the first fault."""


def iterations_of(
    started_s: float, ranks: list[str], rank_records: list[list[tuple[float, int, float]]], warm_up: int
) -> list[Iteration]:
    """Return the iterations after the warm-up that all ranks ended.

    `rank_records`: by rank, (end time, wrong elements, busy seconds) of each iteration.
    """
    out, began = [], started_s
    for number in range(min(map(len, rank_records), default=0)):
        ends = [records[number][0] for records in rank_records]
        last = max(ends)
        if number >= warm_up:
            wrong_elements = sum(records[number][1] for records in rank_records)
            exposed_shares = [_exposed_share(records, number, started_s) for records in rank_records]
            mean = sum(exposed_shares) / len(exposed_shares)
            out.append(Iteration(number - warm_up, began, last, ranks[ends.index(last)], wrong_elements, mean))
        began = last
    return out


def _exposed_share(records: list[tuple[float, int, float]], number: int, started_s: float) -> float:
    """Return the share of a rank's time for an iteration in which it computed nothing."""
    took = records[number][0] - (records[number - 1][0] if number else started_s)
    return max(0.0, 1 - records[number][2] / took) if took > 0 else 0.0


def down_planes(events: Sequence[dict[str, Any]], host: str, peer: str) -> set[int]:
    """Return the planes that a host cannot use towards a peer after these events, at either end."""
    port_states: dict[tuple[int, str | None], bool] = {}
    for event in events:
        if event["what"] == "plane" and event["host"] == host and event["peer"] in (None, peer):
            port_states[event["plane"], event["peer"]] = event["up"]
    return {plane for (plane, _), is_up in port_states.items() if not is_up}


def dead_evs(evs: Sequence[tuple[int, str]], planes_down: set[int]) -> int:
    """Return how many EVs, (plane, state) each, can carry nothing."""
    return sum(state in ("assumed_bad", "denied") or plane in planes_down for plane, state in evs)


PACKET_SERIES = ("lost", "retransmitted", "marked", "trimmed", "dropped", "link_lost")
"""Names of the series that count packets in each interval."""


class SeriesColumn(NamedTuple):
    """One series under its name in CSV and Parquet files. `values`: one an interval, as in Series."""

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
    """Packets that switches marked; None here and in the next three: the switches could not be read."""
    trimmed: list[int | None] = field(default_factory=list)
    dropped: list[int | None] = field(default_factory=list)
    """Packets dropped in switches: a full queue, a dead port."""
    link_lost: list[int | None] = field(default_factory=list)
    """Packets sent that links lost: injected loss, silence."""
    ev_packets: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    """Flow name -> packets sent over each EV (as `0x0305`) in the interval; kept for a few flows only."""
    link_bps: dict[str, list[list[int] | None]] = field(default_factory=dict)
    """Link -> bits/s of all packets over it, away from the hosts and towards them.

    None: could not be read. Recorded for fabrics of up to LINKS_MAX links.
    """
    queues: dict[str, list[int | None]] = field(default_factory=dict)
    """Interface -> bytes waiting in its data queue at the end of the interval; None: could not be read."""
    spread: dict[str, SeriesSpread] = field(default_factory=dict)
    """Workload -> its flows, where `received_bps` has one entry for all: fluid runs of many flows."""

    def columns(self) -> list[SeriesColumn]:
        """Return rates of flows, packets counted, rates of planes, depths of queues.

        A column may be shorter than `times_s`.
        """
        columns = [SeriesColumn(f"rate_bps {name}", "bit/s", values) for name, values in self.received_bps.items()]
        columns += [SeriesColumn(key, "packets", getattr(self, key)) for key in PACKET_SERIES]
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
    """Failures in order of time, the first cause first; absent from `to_json` when empty."""
    flows: list[FlowOutcome] = field(default_factory=list)
    collectives: list[CollectiveOutcome] = field(default_factory=list)
    programs: list[ProgramOutcome] = field(default_factory=list)
    """Programs of users, in live runs; absent from `to_json` when empty."""
    jobs: list[JobsOutcome] = field(default_factory=list)
    """Jobs of fluid runs, which have rates and no iterations; absent from `to_json` when empty."""
    cause: str = ""
    """First cause of a failed run, whose figures belong in no mean; absent from `to_json` when empty."""
    series: Series = field(default_factory=lambda: Series(0.1))
    events: list[dict[str, Any]] = field(default_factory=list)
    """{t, what, ...} in order of time: `fault`, `ev`, `plane`, `qp_error`, `control`, `detected`."""
    events_dropped: int = 0
    counters: dict[str, Any] = field(default_factory=dict)
    """marked, trimmed, trimmed_last_hop, dropped_queue, corrupted, table_writes, peak queues by interface."""
    paths: list[dict[str, Any]] = field(default_factory=list)
    """EVs of every MRC QP when the work began: {flow, host, peer, qpn, evs: [[ev, plane, state], ...]}."""
    dead_parts: list[dict[str, Any]] = field(default_factory=list)
    """Processes of a live fabric that died and ended the run, in order of time.

    {t, name, pid, how, loses, log} each, `t` as in events; absent from `to_json` when empty.
    """
    evs_bad: int = 0
    evs_denied: int = 0
    metrics: dict[str, float | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Notes for the reader: overload, a fault that could not be injected."""
    observations: bytes = field(default=b"", repr=False)
    """Observations of the controller in a live run (controller/faults/observations.py).

    A file of its own, absent from `to_json`.
    """
    output: bytes = field(default=b"", repr=False)
    """Lines that programs of users printed, with their times; a file of its own, as the observations."""

    @classmethod
    def begin(cls, plan: RunPlan, backend: str, capacity_bps: float) -> Outcome:
        """Return the outcome of a run that begins; `backend` is `virtual`, `fluid` or `live`."""
        return cls(
            scenario=plan.scenario.name,
            name=plan.name,
            label=dict(plan.label),
            where=backend,
            seed=plan.seed,
            repeat=plan.repeat,
            mode=plan.fabric.mode.value,
            capacity_bps=capacity_bps,
            series=Series(plan.measure.every),
        )

    def event(self, t: float, event_kind: str, **fields: Any) -> None:
        """Record an event."""
        if len(self.events) >= EVENTS_MAX and event_kind not in KEPT_ALWAYS:
            self.events_dropped += 1
        else:
            self.events.append({"t": round(t, 9), "what": event_kind, **fields})

    def fail(self, kind: str, at_s: float, text: str, work: str = "", count: int = 1) -> None:
        """Record a failure: `process` for a process of ours that died, with its name and last words in `text`."""
        self.failures.append(Failure(kind, work, round(at_s, 9), text, count))

    def note_evs(self, flow: str, qpn: int, evs: list[list[Any]]) -> None:
        """Record the EVs, [ev, plane, state] each, of one QP of the flow `work:host-peer`."""
        if len(self.paths) < PATHS_MAX:
            host, _, peer = flow.rpartition(":")[2].partition("-")
            self.paths.append({"flow": flow, "host": host, "peer": peer, "qpn": qpn, "evs": evs})

    def works(self) -> list[str]:
        """Return the names of the workloads, in order."""
        works = (work.work for part in (self.flows, self.collectives, self.programs) for work in part)
        return list(dict.fromkeys(works))

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        del values["observations"], values["output"]
        for key in ("programs", "jobs", "failures", "dead_parts", "cause"):
            if not values[key]:
                del values[key]
        return {"schema": SCHEMA, **values}

    @classmethod
    def from_json(cls, data: Any) -> Outcome:
        """Return the outcome that to_json() wrote. Raises ValueError for other data."""
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError(
                f"not a run of this version: schema {data.get('schema') if isinstance(data, dict) else data!r}"
            )
        values = {key: value for key, value in data.items() if key != "schema"}
        try:
            values["flows"] = [FlowOutcome(**flow) for flow in values["flows"]]
            values["collectives"] = [
                CollectiveOutcome(**{**collective, "iterations": [Iteration(**i) for i in collective["iterations"]]})
                for collective in values["collectives"]
            ]
            values["programs"] = [ProgramOutcome(**program) for program in values.get("programs", ())]
            values["jobs"] = [JobsOutcome(**job) for job in values.get("jobs", ())]
            values["failures"] = [Failure(**failure) for failure in values.get("failures", ())]
            series = dict(values["series"])
            spread = {work: SeriesSpread(**spread_values) for work, spread_values in series.pop("spread", {}).items()}
            values["series"] = Series(**series, spread=spread)
            return cls(**values)
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a run of this version: {error}") from None
