"""Types of a scenario file. yaml_loader.py reads YAML into them, expand.py makes runs of them.

A quantity in a file is a text with a unit (console/units.py); here it is a float in bits/s, bytes or seconds. Keys
that are not here are refused. Nothing in this module touches a fabric.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    create_model,
    model_validator,
)

from mrc_testbed.console import units
from mrc_testbed.faults import KINDS
from mrc_testbed.faults.terms import Part, Rate, Seconds, Share, Size

OWN_SCALE = "own"
"""Name, in rules, of a file as it is without one of its scales."""
PROGRAM_ITERATIONS_MAX, PROGRAM_WARM_UP_MAX = 100, 20
"""Steps of a program: one rank may be all of them ahead of another, and 127 are the limit (collective_rank.py)."""
DEPTH_MAX = 1e6
"""Deepest queue that a file can ask for, in BDPs: no buffer is so deep."""
Depth = Annotated[float, Field(ge=0, le=DEPTH_MAX)]
MODES = ("srv6", "stev", "ecmp", "switch-spray", "flow-ecmp")


@dataclass(frozen=True, slots=True)
class When:
    """A time of a run: seconds from the start of the workload, or a share of its bytes done."""

    seconds: float | None = None
    share: float | None = None

    def __str__(self) -> str:
        return f"{self.seconds:g}s" if self.seconds is not None else f"{100 * (self.share or 0):g}%"


def _when(value: object) -> When:
    if isinstance(value, When):
        return value
    try:
        if isinstance(value, str) and value.strip().endswith("%"):
            return When(share=units.share(value))
        return When(seconds=units.seconds(value))
    except units.UnitError as error:
        raise ValueError(f"{error}; or a share of the work, such as 40%") from None


Moment = Annotated[When, BeforeValidator(_when)]


def _pair(value: object) -> object:
    """`h0 h5`, or a list of two."""
    return value.split() if isinstance(value, str) else value


Pair = Annotated[tuple[str, str], BeforeValidator(_pair)]


# ---- the fabric -----------------------------------------------------------------------------------------------


class FabricPart(Part):
    """Dimensions of the plan."""

    planes: int = 4
    racks: int = 2
    spines: int = 2
    hosts_per_rack: int = 2


class Tier(Part):
    """One tier of links. `delay` is one-way."""

    rate: Rate | None = None
    delay: Seconds | None = None


class LinksPart(Part):
    """Rates and delays. `rtt` sets all delays so that the unloaded round trip over a T1 is that (§11.4)."""

    rate: Rate = 10e6
    rtt: Seconds = 0.010
    host: Tier = Tier()
    """NIC-T0 links, where they differ."""
    fabric: Tier = Tier()
    """T0-T1 links, where they differ."""
    jitter: Seconds = 0.0
    """Virtual runs only."""


class PfcPart(Part):
    """Priority flow control (simulator/pfc.py). Depths are shares of the plane's BDP, of what came in by one link."""

    xoff: Annotated[Depth, Field(gt=0)] = 1.0
    xon: Depth = 0.75
    headroom: Depth = 0.5
    """A link's round trip holds a quarter of the BDP, to which come packets that had begun."""
    storm_after: Annotated[float, Field(gt=0, le=DEPTH_MAX)] = 20.0
    """Round trips that a pause lasts to be counted as a storm."""

    @model_validator(mode="after")
    def _ordered(self) -> PfcPart:
        if self.xon > self.xoff:
            raise ValueError(f"xon = {self.xon:g} must not be above xoff = {self.xoff:g}")
        return self


class QueuesPart(Part):
    """The egress discipline of switches (§4.2 to §4.4). Depths are shares of the plane's BDP."""

    ecn: bool = True
    trim: bool = True
    last_hop_ecn: bool = False
    ecn_min: Depth = 0.2
    ecn_max: Depth = 0.8
    trim_at: Depth = 1.0
    trim_last_hop: Depth = 1.5
    limit: Annotated[Depth, Field(gt=0)] | None = None
    """Hard limit; None: 3, and 5 without trimming."""
    pfc: PfcPart | None = None
    """Lossless by pauses, virtual runs only; needs `trim: false`. `{}` is PFC with its defaults."""

    @model_validator(mode="after")
    def _one_discipline(self) -> QueuesPart:
        if self.ecn and self.ecn_min > self.ecn_max:
            raise ValueError(f"ecn_min = {self.ecn_min:g} must not be above ecn_max = {self.ecn_max:g}")
        if self.pfc is not None and self.trim:
            raise ValueError("pfc and trim: a queue that pauses its senders never trims; give trim: false with pfc")
        return self


class ControlPlane(Part):
    """Behaviour of the network's control plane, for baselines whose switches route around failures."""

    react_after: Seconds | None = None
    """Time from a failure until switches avoid the paths it cut off; None: never."""
    denylist: Literal["off", "lossy", "all"] = "off"
    """Policy of the controller towards hosts (§9)."""


# ---- who sends what ---------------------------------------------------------------------------------------------


class Transport(Part):
    """`mrc`, or the baseline `rocev2` (RC, one path a QP, Go-Back-N)."""

    kind: Literal["mrc", "rocev2"] = "mrc"
    qps: Annotated[int, Field(ge=1, le=256)] = 1
    """QPs a flow is spread over; each has its own window."""
    pmtu: Literal[256, 512, 1024, 2048, 4096] = 1024
    config: dict[str, Any] = {}
    """Keys of mrc_testbed.hosts.engine.config.Config (mrc) or of rocev2's RcConfig."""
    clock: Annotated[float, Field(ge=1e-3, le=1e3)] = 1.0
    """Factor on every time that `config` does not set, for round trips other than 10 ms (§11.4). Virtual runs only."""


class Work(Part):
    """Base of workloads. `name` is what results and expectations call it."""

    name: str = ""
    start: Seconds = 0.0
    stop: Seconds | None = None
    """Post no more from here on; None: as long as there is something to send."""
    transport: Transport | None = None
    """Instead of the scenario's, for this one."""


class Stream(Work):
    """Writes from one host to another, `depth` outstanding. Without `bytes` it goes on until `stop`."""

    stream: Pair
    bytes: Annotated[Size, Field(ge=1)] | None = None
    message: Size = 1 << 18
    depth: int = Field(2, ge=1, le=1024)
    bidirectional: bool = False
    rate: Rate | None = None
    """Offered load; None: as fast as it goes."""
    pin: list[str] | None = None
    """Only EVs whose path crosses all of these nodes."""


class Permutation(Work):
    """Each host of the first list sends to one of the second (chosen by seed); `all` = every host to another."""

    permutation: Literal["all"] | tuple[list[str], list[str]]
    bytes: Annotated[Size, Field(ge=1)] | None = None
    message: Size = 1 << 18
    depth: int = Field(2, ge=1, le=1024)
    spread: Seconds = 0.0
    """Flows begin at times drawn by the seed, up to this long after `start`; 0: together."""


class Incast(Work):
    """All `sources` send to one host; `every` apart when given."""

    incast: str
    sources: list[str]
    bytes: Annotated[Size, Field(ge=1)] | None = None
    message: Size = 1 << 18
    depth: int = Field(2, ge=1, le=1024)
    every: Seconds = 0.0


class RankWork(Work):
    """Base of what runs as ranks, again and again."""

    ranks: Literal["all"] | Annotated[int, Field(ge=2)] | list[str] = "all"
    """Hosts in the order of their ranks, or how many `placement` chooses."""
    placement: Literal["packed", "spread", "random"] = "packed"
    """Where `ranks` is a number or `all`: rack by rack, one of each rack in turn, or drawn by the seed."""
    jobs: int = Field(1, ge=1, le=65_536)
    """So many equal ones of that many ranks, no two on one host; results and rules have them under one name."""
    iterations: int = Field(1, ge=1)
    warm_up: int = Field(0, ge=0)


class Collective(RankWork):
    """A collective of numpy int32 buffers whose result is checked; `size` per rank as nccl-tests count it."""

    collective: Literal[
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "send_recv",
        "all_to_allv",
        "all_reduce_tree",
        "all_reduce_halving",
        "all_reduce_hierarchical",
    ]
    size: Size = 1 << 20
    experts: int = Field(0, ge=0, le=4096)
    """all_to_allv: experts, expert e at rank e modulo ranks; 0: one a rank."""
    skew: float = Field(0.0, ge=0, le=4)
    """all_to_allv: exponent of Zipf's law for the experts' shares, drawn anew for each iteration; 0: all alike."""
    at_once: int = Field(0, ge=0, le=4096)
    """all_to_all: peers that a rank writes to at a time, the next when one write is complete; 0: all."""


class TrainingPart(Part):
    """A training step. Computing takes time and nothing else; what is sent is real and checked.

    Ranks are `stages` of a pipeline with as many replicas each. A replica's layers run forward, then backward, for each
    micro-batch; a layer's gradients are reduced over the replicas of its stage while the layers below it still compute.
    """

    layers: int = Field(4, ge=1, le=128)
    """Of the whole model, a multiple of `stages`."""
    forward: Seconds = 0.01
    """Of one layer and micro-batch."""
    backward: Seconds = 0.02
    """The same, backward."""
    optimizer: Seconds = 0.0
    """After all gradients are there."""
    gradients: Size = 1 << 18
    """Of one layer."""
    all_reduce: Literal["all_reduce", "all_reduce_tree", "all_reduce_halving", "all_reduce_hierarchical"] = "all_reduce"
    stages: int = Field(1, ge=1, le=64)
    micro_batches: int = Field(1, ge=1, le=64)
    activations: Size = 1 << 16
    """That a replica sends to the next stage, and gradients of them back, for each micro-batch."""
    expert_every: int = Field(0, ge=0)
    """Every so many layers one of experts: dispatch and combine are all_to_allv; 0: none."""
    experts: int = Field(0, ge=0, le=4096)
    """Of such a layer; 0: one a replica."""
    tokens: Size = 1 << 17
    """That a replica dispatches at such a layer."""
    skew: float = Field(1.0, ge=0, le=4)
    """Exponent of Zipf's law for the experts' shares of the tokens."""


class Training(RankWork):
    """A training job: steps in which computing and sending overlap; its result is the time of each iteration."""

    training: TrainingPart
    iterations: int = Field(1, ge=1, le=PROGRAM_ITERATIONS_MAX)
    warm_up: int = Field(0, ge=0, le=PROGRAM_WARM_UP_MAX)


def _beside(value: object, info: ValidationInfo) -> object:
    """A path as it stands in a file, from the folder of the file."""
    if not isinstance(value, str) or not isinstance(info.context, dict):
        return value
    return str(Path(info.context["folder"], value))


PathInFile = Annotated[str, BeforeValidator(_beside)]


class TraceWork(RankWork):
    """A trace of a training job, replayed (docs/traces.md): computing takes its time, what is sent is checked."""

    trace: PathInFile
    """GOAL file, folder of Chakra's .et files, or one of them; from the folder of the scenario."""
    groups: PathInFile | None = None
    """JSON file with the ranks of each process group, {"0": [0, 1], ...}, where the trace does not say."""
    compute_scale: float = Field(1.0, gt=0, le=1e9)
    """Factor on the time that computing takes."""
    size_scale: float = Field(1.0, gt=0, le=1e6)
    """Factor on the sizes of messages and collectives."""
    iterations: int = Field(1, ge=1, le=PROGRAM_ITERATIONS_MAX)
    warm_up: int = Field(0, ge=0, le=PROGRAM_WARM_UP_MAX)


WORK_KINDS = {
    "stream": Stream,
    "permutation": Permutation,
    "incast": Incast,
    "collective": Collective,
    "training": Training,
    "trace": TraceWork,
}


def _work_kind(value: Any) -> str | None:
    """Kind of work of a mapping, by the key that only this kind has; None: no kind, or more than one."""
    if isinstance(value, Work):
        return next(kind for kind, cls in WORK_KINDS.items() if type(value) is cls)
    found = [kind for kind in WORK_KINDS if isinstance(value, dict) and kind in value]
    return found[0] if len(found) == 1 else None


AnyWork = Annotated[
    Annotated[Stream, Tag("stream")]
    | Annotated[Permutation, Tag("permutation")]
    | Annotated[Incast, Tag("incast")]
    | Annotated[Collective, Tag("collective")]
    | Annotated[Training, Tag("training")]
    | Annotated[TraceWork, Tag("trace")],
    Discriminator(_work_kind),
]


# ---- what breaks ------------------------------------------------------------------------------------------------


class Poisson(Part):
    """A fault again and again, on average `rate` a second between `start` and `stop`."""

    rate: float = Field(gt=0)
    start: Seconds = 0.0
    stop: Seconds


class FaultLine(Part):
    """One line of `faults` without its actions: when (`at` or `poisson`), for how long."""

    at: Moment | None = None
    poisson: Poisson | None = None
    duration: Seconds | None = Field(None, alias="for")
    """Undone after this; None: it stays (or until a line that undoes it)."""

    @model_validator(mode="after")
    def _one(self) -> FaultLine:
        given = [key for key in KINDS if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"one action a line, out of {', '.join(KINDS)}; got {', '.join(given) or 'none'}")
        if (self.at is None) == (self.poisson is None):
            raise ValueError("give one of at and poisson")
        if self.duration is not None and not KINDS[given[0]].lasts:
            raise ValueError(f"`for` makes no sense with {given[0]}")
        return self

    @property
    def action(self) -> str:
        """The key of what happens, out of faults.KINDS."""
        return next(key for key in KINDS if getattr(self, key) is not None)

    @property
    def value(self) -> Any:
        """Value of that key."""
        return getattr(self, self.action)


if TYPE_CHECKING:
    ScenarioFault = FaultLine
else:
    actions = {key: (kind.given | None, None) for key, kind in KINDS.items()}
    ScenarioFault = create_model("ScenarioFault", __base__=FaultLine, **actions)
"""One line of `faults`, with a key for each kind; exactly one is set."""


# ---- what is looked at, and what has to come out -----------------------------------------------------------------


class Measure(Part):
    """Measurements beside the rates of all flows."""

    every: Seconds = 0.1
    """Interval of the time series."""
    queues: list[str] = []
    """Interfaces whose queue depth is recorded; `last-hop` = the T0 downlinks of all targets."""
    evs: bool = True
    latency: bool = False
    """Completion time of each message."""
    slowed: Annotated[Share, Field(gt=0)] = 0.05
    """A job is slowed when its iterations take longer than before a fault by more than this share."""


class Reference(Part):
    """The paper's result, for the report: `series` by label, points as [x, y], y normalised as the figure says."""

    id: str
    figure: str = ""
    saw: str = ""
    """In our words."""
    scaled: str = ""
    """The scaling of this scenario."""
    cannot: str = ""
    """The part that this testbed cannot show."""
    size_divisor: Annotated[float, Field(gt=0)] = 1.0
    """A size of the paper over the one here that stands for it (Figs 16 and 17)."""
    series: dict[str, list[tuple[float, float]]] = {}


class Figure(Part):
    """Kind of figure."""

    kind: Literal["rate_over_time", "size_curve", "bars", "latency_cdf", "iteration_cdf", "queue_over_time"] = (
        "rate_over_time"
    )
    x: str | None = None
    """Name of the swept value on the x axis, for size_curve and bars."""
    metric: str = "rate.total"
    of: str | None = None
    """Reference of the values: a variant's name, `baseline` or `capacity`."""
    where: dict[str, Any] = {}
    """Only runs with these variant and sweep values."""
    title: str = ""


Place = Literal["live", "virtual", "embedded", "bmv2"]


class Rule(Part):
    """Base of what has to come out of runs: which of them, and why."""

    where: dict[str, Any] = {}
    """Only runs with these variant and sweep values, as in {variant: mrc, loss: 1%}."""
    only: Place | list[Place] | None = None
    """Where it holds: in live runs, in virtual ones, in live ones with these switches, or at any place of a list."""
    why: str = ""
    scale: str | None = None
    """Only at this scale of the file; `own` is the file as it is without one. None: at every scale."""

    def is_at(self, places: tuple[str, ...], scale: str | None) -> bool:
        """Whether it holds there. `places`: expand.places_of; `scale`: the file's, None without one."""
        only = self.only if isinstance(self.only, list) else [self.only]
        return (self.only is None or bool(set(only) & set(places))) and self.scale in (None, scale or OWN_SCALE)


class Expect(Rule):
    """A metric (docs/scenarios.md lists them) and its bound.

    `of`: the bound is a share of `baseline` (the mean before the first fault), `capacity` (of the senders' NICs),
    or another metric. `start`/`stop`: only this part of the run; `each`: in every interval of that length there.
    """

    metric: str
    at_least: float | None = None
    at_most: float | None = None
    about: float | None = None
    within: Share = 0.05
    """Tolerance of `about`, a share of it."""
    of: str | None = None
    start: Moment | None = Field(None, alias="from")
    stop: Moment | None = Field(None, alias="to")
    each: Seconds | None = None
    compared_to: dict[str, Any] | None = None
    """`of` is taken from the run with these values instead."""
    paper: float | None = None
    """The paper's value of the same quantity, for the report; no bound."""

    @model_validator(mode="after")
    def _bounded(self) -> Expect:
        if self.at_least is None and self.at_most is None and self.about is None:
            raise ValueError("give at_least, at_most or about")
        return self


class ExpectFailure(Rule):
    """A failure that the scenario wants: QPs of a workload die. Its failed messages and missing end go with them.

    Without it nothing may fail in any run (failures.py). Damage, a dead process of ours and parts of the plan that are
    left out cannot be wanted.
    """

    failed: str
    """The workload."""
    at_least: int = Field(1, ge=0)
    """QPs that die; 0: it may fail, and need not."""
    at_most: int | None = Field(None, ge=0)
    start: Moment | None = Field(None, alias="from")
    stop: Moment | None = Field(None, alias="to")
    """Each of them dies in this part of the run."""
    error: str | None = None
    """A text that each of their errors has."""

    @model_validator(mode="after")
    def _possible(self) -> ExpectFailure:
        if self.at_most is not None and self.at_most < self.at_least:
            raise ValueError(f"at_most {self.at_most} is less than at_least {self.at_least} (1 unless it is there)")
        return self


class ExpectUnfinished(Rule):
    """A workload whose end the run's own end is to cut off: more iterations or bytes than there is time for."""

    unfinished: str
    """The workload."""


RULE_KINDS = {"failed": ExpectFailure, "unfinished": ExpectUnfinished}


def _rule_kind(value: Any) -> str:
    """Kind of rule of a mapping, by the key that only this kind has; tags are no identifiers, for yaml_loader.py."""
    for kind, cls in RULE_KINDS.items():
        if isinstance(value, cls) or (isinstance(value, dict) and kind in value):
            return f"rule {kind}"
    return "rule metric"


AnyRule = Annotated[
    Annotated[Expect, Tag("rule metric")]
    | Annotated[ExpectFailure, Tag("rule failed")]
    | Annotated[ExpectUnfinished, Tag("rule unfinished")],
    Discriminator(_rule_kind),
]


class Span(Part):
    """A part of a run."""

    start: Seconds = Field(alias="from")
    stop: Seconds = Field(alias="to")

    @model_validator(mode="after")
    def _forward(self) -> Span:
        if self.stop <= self.start:
            raise ValueError("`to` must be after `from`")
        return self


class ScalePart(BaseModel, extra="allow"):
    """A scale of a file: keys of Scenario that are different there, beside those that only a scale has."""

    sweep: dict[str, Any] = {}
    """Other values of the file's sweeps."""
    variants: list[str] | None = None
    """The variants that are run; None: all."""


class Scenario(Part):
    """A whole file."""

    schema_: Literal["mrc-scenario/1"] = Field("mrc-scenario/1", alias="schema")
    name: str = ""
    title: str
    paper: Reference | None = None
    fabric: FabricPart = FabricPart()
    links: LinksPart = LinksPart()
    queues: QueuesPart = QueuesPart()
    mode: Literal["srv6", "stev", "ecmp", "switch-spray", "flow-ecmp"] = "srv6"
    control_plane: ControlPlane = ControlPlane()
    transport: Transport = Transport()
    workload: list[AnyWork] = Field(min_length=1)
    duration: Seconds | None = None
    """The run ends here; None: when all work is done."""
    limit: Seconds = 600.0
    """Never longer than this; a run that gets here has failed."""
    faults: list[ScenarioFault] = []
    measure: Measure = Measure()
    variants: dict[str, dict[str, Any]] = {}
    """Name -> parts of this file that are different; every variant is run."""
    sweep: dict[str, Any] = {}
    """Path of a key (`faults.0.loss.rate`), or a name used as `$name` -> list or {from, to, step|factor}; every
    combination is run."""
    repeat: int = Field(1, ge=1)
    seed: int = 1
    live: dict[str, Any] = {}
    """Parts that are different on the live fabric."""
    bmv2: dict[str, Any] = {}
    """Parts that are different on the live fabric when its switches are BMv2, on top of `live`."""
    virtual: dict[str, Any] = {}
    """Parts that are different in virtual time."""
    scale: dict[str, ScalePart] = {}
    """Name -> parts of this file that are different when it is run at that scale (`--scale NAME`); virtual only."""
    baseline: Span | None = None
    """`baseline` of the rules: the mean over this part; None: before the first fault, without the start."""
    expect: list[AnyRule] = []
    figures: list[Figure] = []

    @property
    def bounds(self) -> list[Expect]:
        """The rules on metrics."""
        return [rule for rule in self.expect if isinstance(rule, Expect)]
