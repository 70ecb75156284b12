"""Models of the JSON of commands about scenarios, results and plans: one struct for each object.

json_schemas.py has the table of all commands. Objects whose keys are names of metrics, kinds or hosts stay mappings.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

Label = dict[str, Any]
"""Variant and swept values of a run."""
Number = int | float


class ProblemOutput(Struct, forbid_unknown_fields=True):
    """Mistake in a file; `key`: path of the mistaken key, empty for the file."""

    line: int
    column: int
    key: str
    text: str


class FileMistakesOutput(Struct, forbid_unknown_fields=True):
    """Mistakes of one file."""

    file: str
    problems: list[ProblemOutput]


class MistakesOutput(Struct, forbid_unknown_fields=True):
    """Files that cannot be run, in the place of results."""

    files: list[FileMistakesOutput]


class CheckedScenarioOutput(Struct, forbid_unknown_fields=True):
    """Scenario file of `mrc scenario validate`: runs by back end, and its mistakes."""

    file: str
    runs: dict[str, int]
    problems: list[ProblemOutput]


class RunOutput(Struct, forbid_unknown_fields=True):
    """Run of a scenario; `cause`: why it failed."""

    name: str
    label: Label
    seed: int
    duration_s: Number
    finished: bool
    cause: str | None
    metrics: dict[str, Number | None]
    notes: list[str]


class VerdictOutput(Struct, forbid_unknown_fields=True):
    """Rule on a run: what was expected and seen, and the events around a failure."""

    rule: str
    run: str
    passed: bool
    bound_text: str = field(name="expected")
    value_text: str = field(name="seen")
    reason: str = field(name="why")
    value: Number | None
    unit: str
    paper: Number | None
    events: list[str]
    event_span: str = field(name="around")
    timed: bool
    cause: str


class RepeatsOutput(Struct, forbid_unknown_fields=True):
    """Values of a metric or a rule over the repeats of a run; `held` and `of` are of rules."""

    subject: str = field(name="what")
    run: str
    unit: str
    values: list[Number]
    median: Number | None
    low: Number | None = field(name="min")
    high: Number | None = field(name="max")
    iqr: Number | None
    seeds: list[int]
    paper: Number | None
    failed: int
    repeats_held: int | UnsetType = field(name="held", default=UNSET)
    repeats: int | UnsetType = field(name="of", default=UNSET)


class RunReportOutput(Struct, forbid_unknown_fields=True):
    """Scenario of `mrc run`, with its runs and verdicts; series are in its folder."""

    scenario: str
    title: str
    passed: bool
    folder: str | None
    digest: str | None
    wall_s: Number
    unwritten: str | None
    runs: list[RunOutput]
    verdicts: list[VerdictOutput]
    repeats: list[RepeatsOutput]


class IntervalOutput(Struct, forbid_unknown_fields=True):
    """Confidence interval of a metric at a point of a study; null: not enough values."""

    unit: str
    statistic: str = field(name="of")
    method: str
    confidence: Number
    narrow: bool | None
    values: int
    estimate: Number | None
    low: Number | None
    high: Number | None
    half_width: Number | None


class PointOutput(Struct, forbid_unknown_fields=True):
    """Point of a study; `failed`: cause by seed."""

    name: str
    label: Label
    seeds: int
    failed: Any
    decided: bool
    metrics: dict[str, IntervalOutput]


class StudyOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc study`."""

    folder: str
    digest: str | None
    schema: str
    study: str
    title: str
    scenario: str
    runs: int
    complete: bool
    points: list[PointOutput]


class StudyEstimateOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc study --estimate`: number of runs, and seconds of one CPU."""

    study: str
    points: int
    runs_min: int
    runs_max: int
    cpu_s_min: Number
    cpu_s_max: Number


class MeanOutput(Struct, forbid_unknown_fields=True):
    """Mean and ends of its 95 % interval; null: of a single value."""

    mean: Number
    low: Number | None
    high: Number | None


class FailureRowOutput(Struct, forbid_unknown_fields=True):
    """Drawn months of a job with one transport, at a size and a level of rates; `hours`: lost, by cause."""

    size: str
    transport: str
    level: str
    months: int
    parts: dict[str, int]
    goodput: MeanOutput
    steps_lost: MeanOutput
    restarts: MeanOutput
    swaps: MeanOutput
    failures: MeanOutput
    lost_hours: MeanOutput
    hours: dict[str, Number]


class FailureSampleOutput(Struct, forbid_unknown_fields=True):
    """Cost of one failure under a transport; `dies`: share of the seeds in which the job died."""

    transport: str
    failure: str
    seeds: int
    dies: Number
    stall_s: MeanOutput | None
    pace: MeanOutput | None


class FailurePaceOutput(Struct, forbid_unknown_fields=True):
    """Time of a collective after a failure over that before, in the fluid model."""

    size: str
    failure: str
    seeds: int
    pace: MeanOutput


class FailureStudyOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc study` of failure rates; `digests`: of the runs, by folder."""

    schema: str
    study: str
    title: str
    folder: str
    digests: dict[str, str | None]
    days: Number
    rows: list[FailureRowOutput]
    samples: list[FailureSampleOutput]
    paces: list[FailurePaceOutput]


class MergedOutput(Struct, forbid_unknown_fields=True):
    """Folder of `mrc merge`; `command`: what makes the missing runs."""

    folder: str
    runs: int
    parts: list[str]
    duplicate_count: int = field(name="twice")
    damages: list[str] = field(name="damaged")
    missing_runs: list[str] = field(name="missing")
    command: str | None
    digest: str | None
    passed: bool | None


class DifferenceOutput(Struct, forbid_unknown_fields=True):
    """Key with its two values."""

    key: str
    a: Any
    b: Any


class VerdictDifferenceOutput(Struct, forbid_unknown_fields=True):
    """Rule that did not end alike on both sides."""

    rule: str
    run: str
    a: str
    b: str
    seen_a: str
    seen_b: str


class MetricDifferenceOutput(Struct, forbid_unknown_fields=True):
    """Metric of both sides, and b over a."""

    run: str
    metric: str
    a: Number | None
    b: Number | None
    ratio: Number | None


class ComparisonOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc compare`; `trust` and `failed` by side."""

    a: str
    b: str
    manifest: list[DifferenceOutput]
    scenario: list[DifferenceOutput]
    trust: dict[str, list[str]]
    verdicts: list[VerdictDifferenceOutput]
    failed: dict[str, dict[str, str]]
    only_a: list[str]
    only_b: list[str]
    rows: list[MetricDifferenceOutput]


class PageOutput(Struct, forbid_unknown_fields=True):
    """Page of `mrc report`."""

    page: str
    title: str
    backend: str = field(name="where")
    passed: bool | None
    state: str


class TracedCollectiveOutput(Struct, forbid_unknown_fields=True):
    """Collectives of a trace that are alike."""

    kind: str
    size: int
    ranks: int
    count: int


class TraceSummaryOutput(Struct, forbid_unknown_fields=True):
    """Content of a trace, by `mrc scenario trace`; times in seconds of one step."""

    name: str
    ranks: int
    tasks: int
    computations: int
    messages: int
    sent_bytes: int
    busiest_s: Number
    ideal_s: Number
    collectives: list[TracedCollectiveOutput]
    notes: list[str]
    """Sentences on what the trace has and the replay has not, or has otherwise."""


class ListedScenarioOutput(Struct, forbid_unknown_fields=True):
    """Scenario of `mrc scenario list`; `paper`: its experiment there."""

    name: str
    paper: str
    title: str
    runs: int


class TimelineRowOutput(Struct, forbid_unknown_fields=True):
    """Part of a run; `end_s` null: an instant. `estimated`: by the bytes at the full rate."""

    kind: Annotated[str, Meta(description="fabric, work, fault or rule.")]
    text: str
    begin_s: Number
    end_s: Number | None
    is_estimated: bool = field(name="estimated")


class TimelineOutput(Struct, forbid_unknown_fields=True):
    """Time line of a run, in seconds from the start of its work."""

    end_s: Number
    is_estimated: bool = field(name="estimated")
    rows: list[TimelineRowOutput]


class ShownScenarioOutput(Struct, forbid_unknown_fields=True):
    """Scenario of `mrc scenario show`: runs, and the parts of the first one."""

    name: str
    title: str
    paper: dict[str, Any] | None
    fabric: str
    sizes: list[str]
    runs: list[str]
    faults: list[str]
    timeline: TimelineOutput
    expect: list[str]


class CheckedTopologyOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc topology check`."""

    schema: str
    file: str
    problems: list[ProblemOutput]


class TopologyHostOutput(Struct, forbid_unknown_fields=True):
    """Host of a topology, with the planes that it has a port on."""

    name: str
    rack: int
    planes: list[int]


class TopologyLinkOutput(Struct, forbid_unknown_fields=True):
    """Link of a topology, the lower end first; `rate_bps` null: as fast as the machine."""

    nodes: list[str]
    interfaces: list[str]
    tier: str
    rate_bps: Number | None
    delay_s: Number


class TopologyPlaneOutput(Struct):
    """Plane of a topology: switches by number, and links."""

    plane: int
    t0: dict[str, str]
    t1: dict[str, str]
    links: list[dict[str, Any]]


class TopologyOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc topology show`."""

    schema: str
    hosts: list[TopologyHostOutput]
    planes: list[TopologyPlaneOutput]
    base_rtt_s: Number


class PlanOutput(Struct):
    """Result of `mrc plan`: sizes of a fabric, the cost of failures, and whether it fits here."""

    planes: int
    t0s: int
    tiers: int
    switches: int
    links: int
    port_bps: Number
    paths: int
    evs: int
    oversubscription: Number
    usid_bits: int
    entries: dict[str, int]
    blast: list[dict[str, Any]]
    single_plane: dict[str, Any] | None


class SimtestOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc simtest`: counts, and the invariants that were violated."""

    first: int
    seeds: int
    jobs: int
    wall_s: Number
    cpu_s: Number
    passed: bool
    stats: dict[str, Number]
    kinds: dict[str, int]
    faults: dict[str, int]
    failures: list[dict[str, Any]]


class SimtestScheduleOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc simtest --seed`: one schedule, and its failure."""

    schedule: dict[str, Any]
    stats: dict[str, Number]
    failure: dict[str, Any] | None


class P4FuzzOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc fuzz p4`: counts of programs, and what differed by program."""

    programs: int
    same_count: int = field(name="same")
    differs: int
    our_refusals: int = field(name="ours")
    their_refusals: int = field(name="theirs")
    common_refusals: int = field(name="both")
    packets: int
    seconds: Number
    restarts: dict[str, int]
    findings: dict[str, str]
    refusals: dict[str, str] = field(name="refused")


class CompiledOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc compile`."""

    folder: str
    seconds: Number


RUN_OUTPUTS: dict[str, Any] = {
    "run": (list[RunReportOutput], MistakesOutput),
    "study": (StudyOutput, FailureStudyOutput, StudyEstimateOutput, MistakesOutput),
    "merge": list[MergedOutput],
    "compare": ComparisonOutput,
    "report": list[PageOutput],
    "plan": PlanOutput,
    "scenario trace": TraceSummaryOutput,
    "scenario validate": list[CheckedScenarioOutput],
    "scenario check": list[CheckedScenarioOutput],
    "scenario list": list[ListedScenarioOutput],
    "scenario show": ShownScenarioOutput,
    "topology check": CheckedTopologyOutput,
    "topology show": TopologyOutput,
    "simtest": (SimtestOutput, SimtestScheduleOutput),
    "fuzz": P4FuzzOutput,
    "compile": CompiledOutput,
}
"""Types of the JSON of each command; several where an option or a mistake changes it."""
