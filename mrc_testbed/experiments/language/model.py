"""Types of a scenario file. yaml_loader.py reads YAML into them, expand.py makes runs of them.

A quantity in a file is a text with a unit (console/units.py); here it is a float in bits/s, bytes or seconds. Keys
that are not here are refused. Nothing in this module touches a fabric.
"""

from __future__ import annotations

import re
import shlex
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
from mrc_testbed.faults.terms import TIME_MAX_S, Part, Rate, Seconds, Share, Size, SomeSeconds, SomeSize

OWN_SCALE = "own"
"""Name, in rules, of a file as it is without one of its scales."""
PROGRAM_ITERATIONS_MAX, PROGRAM_WARM_UP_MAX = 100, 20
"""Most steps of a program; a rank may be that far ahead of another, 127 at most (collective_rank.py)."""
POISSON_FAULTS_MAX = 10_000
"""Most faults that one line may draw, on average."""
DEPTH_MAX = 1e6
"""Deepest queue that a file can ask for, in BDPs: no buffer is so deep."""
Depth = Annotated[float, Field(ge=0, le=DEPTH_MAX)]
MODES = ("srv6", "stev", "ecmp", "switch-spray", "flow-ecmp")


@dataclass(frozen=True, slots=True)
class Instant:
    """Time of a run: seconds from the start of the workload, or a share of its bytes done."""

    seconds: float | None = None
    share: float | None = None

    def __str__(self) -> str:
        return units.short_seconds(self.seconds) if self.seconds is not None else f"{100 * (self.share or 0):g}%"


def _instant(value: object) -> Instant:
    if isinstance(value, Instant):
        return value
    try:
        if isinstance(value, str) and value.strip().endswith("%"):
            return Instant(share=units.share(value))
        instant = Instant(seconds=units.seconds(value))
        if instant.seconds is not None and instant.seconds > TIME_MAX_S:
            raise ValueError(f"{value!r} is too much: give at most 1e8 seconds")
        return instant
    except units.UnitError as error:
        raise ValueError(f"{error}; or a share of the work, such as 40%") from None


Moment = Annotated[Instant, BeforeValidator(_instant)]


def _pair(value: object) -> object:
    """Split `h0 h5` into two names; a list of two is kept."""
    return value.split() if isinstance(value, str) else value


_RATE_ENDING = re.compile(r"(bit/s|b/s|bps)$", re.IGNORECASE)
_BYTES_ENDING = re.compile(r"[0-9.]\s*([KMG]i)?B$")


def _bound(value: object) -> object:
    """Return a bound with a unit as a number: seconds, bits/s, bytes, or a share."""
    text = value.strip() if isinstance(value, str) else ""
    if not text:
        return value
    try:
        if text.endswith("%"):
            return units.share(text)
        if _RATE_ENDING.search(text):
            return units.rate(text)
        return units.size(text) if _BYTES_ENDING.search(text) else units.seconds(text)
    except units.UnitError:
        raise ValueError(f"{text!r} has no unit of a metric: give 20 ms, 9.5 Mb/s, 64 KiB, 95 % or a number") from None


Bound = Annotated[float, BeforeValidator(_bound)]
_RULE = re.compile(r"(?P<metric>\S+)\s*(?P<sign><=?|>=?)\s*(?P<bound>.+?)(?:\s+of\s+(?P<of>\S+))?")


def _rule_of_text(value: object) -> object:
    """Return the keys of a rule in one line, such as `time.job < 20 ms`; other values stay."""
    if not isinstance(value, str):
        return value
    match = _RULE.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"{value!r}: give METRIC < BOUND or METRIC > BOUND, such as: rate.total > 9.5 Mb/s")
    keys = {"metric": match["metric"], "at_most" if match["sign"][0] == "<" else "at_least": match["bound"]}
    return keys if match["of"] is None else keys | {"of": match["of"]}


Pair = Annotated[tuple[str, str], BeforeValidator(_pair)]


# ---- the fabric -----------------------------------------------------------------------------------------------


class GridPart(Part):
    """Dimensions of the plan."""

    planes: int = 4
    """Planes; each host has one port on each."""
    racks: int = 2
    """Racks; each has one T0 on each plane."""
    spines: int = 2
    """T1 switches on each plane."""
    hosts_per_rack: int = 2
    """Hosts in each rack."""


def _resolve_path(value: object, info: ValidationInfo) -> object:
    """Return a path of a file, taken from the folder of the file."""
    if not isinstance(value, str) or not isinstance(info.context, dict):
        return value
    return str(Path(info.context["folder"], value))


PathInFile = Annotated[str, BeforeValidator(_resolve_path)]


def _nearest_copy(value: object, info: ValidationInfo) -> object:
    """Return a path, or its copy in the folder of the file: results hold one, whatever folder it was in."""
    if not isinstance(value, str) or not isinstance(info.context, dict):
        return value
    folder = info.context["folder"]
    copy = Path(folder, Path(value).name)
    return str(copy) if copy.exists() and not Path(folder, value).exists() else value


class FabricPart(GridPart):
    """Dimensions of the plan, or the topology file that has them (docs/topology-files.md)."""

    file: Annotated[PathInFile | None, BeforeValidator(_nearest_copy)] = None
    """Topology file, from the folder of the scenario; then the dimensions are those of the file."""

    @model_validator(mode="after")
    def _check_owner(self) -> FabricPart:
        if self.file is not None and (sizes := sorted(self.model_fields_set - {"file"})):
            raise ValueError(f"{', '.join(sizes)} beside `file`. Cure: the dimensions stand in one of both")
        return self


class Tier(Part):
    """One tier of links. `delay` is one-way."""

    rate: Rate | None = None
    """Rate of each link; None: as `links.rate`."""
    delay: Seconds | None = None
    """Delay one way; None: from `links.rtt`."""


class LinkRates(Part):
    """Rates and delays. `rtt` sets all delays so that the unloaded round trip over a T1 is that (§11.4)."""

    rate: Rate = 10e6
    """Rate of all links."""
    rtt: SomeSeconds = 0.010
    """Round trip of the unloaded fabric over a T1."""
    host: Tier = Tier()
    """NIC-T0 links, where they differ."""
    fabric: Tier = Tier()
    """T0-T1 links, where they differ."""


class LinksPart(LinkRates):
    """Rates, delays and jitter of the links of a run."""

    jitter: Seconds = 0.0
    """Virtual runs only."""


class PfcPart(Part):
    """Priority flow control (simulator/pfc.py). Depths count what one link brought, in BDPs of the plane."""

    xoff: Annotated[Depth, Field(gt=0)] = 1.0
    """Depth at which a port pauses its sender, in BDPs."""
    xon: Depth = 0.75
    """Depth at which the sender goes on, in BDPs; at most `xoff`."""
    headroom: Depth = 0.5
    """Room for a link's round trip (a quarter of the BDP) and for packets whose transmission has begun."""
    storm_after: Annotated[float, Field(gt=0, le=DEPTH_MAX)] = 20.0
    """Round trips that a pause lasts to be counted as a storm."""

    @model_validator(mode="after")
    def _check_order(self) -> PfcPart:
        if self.xon > self.xoff:
            raise ValueError(f"xon = {self.xon:g} must not be above xoff = {self.xoff:g}")
        return self


class QueuesPart(Part):
    """The egress discipline of switches (§4.2 to §4.4). Depths are shares of the plane's BDP."""

    ecn: bool = True
    """Whether switches mark packets (CE)."""
    trim: bool = True
    """Whether full queues trim packets to their headers instead of dropping them."""
    last_hop_ecn: bool = False
    """Whether T0 downlinks mark as well."""
    ecn_min: Depth = 0.2
    """Depth at which marking begins."""
    ecn_max: Depth = 0.8
    """Depth from which each packet is marked."""
    trim_at: Depth = 1.0
    """Depth at which packets are trimmed."""
    trim_last_hop: Depth = 1.5
    """Depth at which T0 downlinks trim."""
    limit: Annotated[Depth, Field(gt=0)] | None = None
    """Hard limit; None: 3, and 5 without trimming."""
    pfc: PfcPart | None = None
    """Lossless by pauses, virtual runs only; needs `trim: false`. `{}` is PFC with its defaults."""

    @model_validator(mode="after")
    def _check_discipline(self) -> QueuesPart:
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


# ---- workloads ---------------------------------------------------------------------------------------------------


class Transport(Part):
    """`mrc`, or the baseline `rocev2` (RC, one path a QP, Go-Back-N)."""

    kind: Literal["mrc", "rocev2"] = "mrc"
    """MRC, or RoCEv2 as the baseline."""
    qps: Annotated[int, Field(ge=1, le=256)] = 1
    """QPs a flow is spread over; each has its own window."""
    pmtu: Literal[256, 512, 1024, 2048, 4096] = 1024
    """Largest payload of a packet, in bytes."""
    config: dict[str, Any] = {}
    """Keys of mrc_testbed.hosts.engine.config.Config (mrc) or of rocev2's RcConfig."""
    clock: Annotated[float, Field(ge=1e-3, le=1e3)] = 1.0
    """Factor on times that `config` does not set, for round trips other than 10 ms (§11.4); virtual only."""


class Work(Part):
    """Base of workloads. `name` identifies the workload in results and expectations."""

    name: str = ""
    """Name in metrics and rules; empty: the kind of workload."""
    start: Seconds = 0.0
    """Time of the first post."""
    stop: Seconds | None = None
    """Post no more from here on; None: as long as there is something to send."""
    transport: Transport | None = None
    """Transport of this workload; None: the scenario's."""


class Stream(Work):
    """Writes from one host to another, `depth` outstanding. Without `bytes` it goes on until `stop`."""

    stream: Pair
    """Sender and receiver."""
    bytes: SomeSize | None = None
    """Bytes to send; None: until `stop` or the end of the run."""
    message: SomeSize = 1 << 18
    """Size of each write."""
    depth: int = Field(2, ge=1, le=1024)
    """Writes outstanding at a time."""
    bidirectional: bool = False
    """Whether the receiver sends the same back."""
    rate: Rate | None = None
    """Offered load; None: as fast as it goes."""
    pin: list[str] | None = None
    """Nodes that all paths cross; EVs of other paths are not used. None: all EVs."""


class Permutation(Work):
    """Each host of the first list sends to a host of the second, drawn by seed; `all`: among all hosts."""

    permutation: Literal["all"] | tuple[list[str], list[str]]
    """`all` hosts, or lists of senders and receivers of equal length."""
    bytes: SomeSize | None = None
    """Bytes of each flow; None: until `stop` or the end of the run."""
    message: SomeSize = 1 << 18
    """Size of each write."""
    depth: int = Field(2, ge=1, le=1024)
    """Writes outstanding at a time."""
    spread: Seconds = 0.0
    """Flows begin at times drawn by the seed, up to this long after `start`; 0: together."""


class Incast(Work):
    """All `sources` send to one host; `every` apart when given."""

    incast: str
    """The receiver."""
    sources: list[str]
    """The senders."""
    bytes: SomeSize | None = None
    """Bytes of each sender; None: until `stop` or the end of the run."""
    message: SomeSize = 1 << 18
    """Size of each write."""
    depth: int = Field(2, ge=1, le=1024)
    """Writes outstanding at a time."""
    every: Seconds = 0.0
    """Time between the starts of two senders; 0: together."""
    pins: list[str] | None = None
    """Node of each sender, in their order, that all its paths cross. None: all EVs."""


class RankWork(Work):
    """Base of workloads that run as ranks, for a number of iterations."""

    ranks: Literal["all"] | Annotated[int, Field(ge=2)] | list[str] = "all"
    """Hosts in the order of their ranks, or how many `placement` chooses."""
    placement: Literal["packed", "spread", "random"] = "packed"
    """Choice of hosts for a number or `all`: rack by rack, one of each rack in turn, or drawn by seed."""
    jobs: int = Field(1, ge=1, le=65_536)
    """Number of equal jobs, each with that many ranks on hosts of its own; results use one name for all."""
    iterations: int = Field(1, ge=1)
    """Iterations that are measured."""
    warm_up: int = Field(0, ge=0)
    """Iterations before them that are not measured."""


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
    """Kind of collective."""
    size: SomeSize = 1 << 20
    """Bytes of each rank."""
    experts: int = Field(0, ge=0, le=4096)
    """all_to_allv: experts, expert e at rank e modulo ranks; 0: one a rank."""
    skew: float = Field(0.0, ge=0, le=4)
    """all_to_allv: exponent of Zipf's law for experts' shares, drawn for each iteration; 0: equal shares."""
    at_once: int = Field(0, ge=0, le=4096)
    """all_to_all: peers that a rank writes to at a time, the next when one write is complete; 0: all."""


class TrainingPart(Part):
    """A training step. Computing takes time and nothing else; what is sent is real and checked.

    Ranks are `stages` of a pipeline with as many replicas each. A replica's layers run forward, then backward, for each
    micro-batch; a layer's gradients are reduced over the replicas of its stage while the layers below it still compute.
    """

    layers: int = Field(4, ge=1, le=128)
    """Layers of the whole model, a multiple of `stages`."""
    forward: Seconds = 0.01
    """Forward time of one layer and micro-batch."""
    backward: Seconds = 0.02
    """Backward time of one layer and micro-batch."""
    optimizer: Seconds = 0.0
    """Time of the optimizer, after all gradients are there."""
    gradients: Size = 1 << 18
    """Gradient bytes of one layer."""
    all_reduce: Literal["all_reduce", "all_reduce_tree", "all_reduce_halving", "all_reduce_hierarchical"] = "all_reduce"
    """Algorithm that reduces gradients."""
    stages: int = Field(1, ge=1, le=64)
    """Stages of the pipeline; ranks are a multiple."""
    micro_batches: int = Field(1, ge=1, le=64)
    """Micro-batches of each step."""
    activations: Size = 1 << 16
    """Bytes that a replica sends to the next stage, and gradient bytes back, for each micro-batch."""
    expert_every: int = Field(0, ge=0)
    """Distance of expert layers: dispatch and combine are all_to_allv there; 0: no expert layers."""
    experts: int = Field(0, ge=0, le=4096)
    """Experts of an expert layer; 0: one a replica."""
    tokens: Size = 1 << 17
    """Bytes that a replica dispatches at an expert layer."""
    skew: float = Field(1.0, ge=0, le=4)
    """Exponent of Zipf's law for the experts' shares of the tokens."""


class Training(RankWork):
    """Training job whose steps overlap computing and sending; the result is the time of each iteration."""

    training: TrainingPart
    """The training step."""
    iterations: int = Field(1, ge=1, le=PROGRAM_ITERATIONS_MAX)
    """Steps that are measured."""
    warm_up: int = Field(0, ge=0, le=PROGRAM_WARM_UP_MAX)
    """Steps before them that are not measured."""


class TraceWork(RankWork):
    """Replay of a training job's trace (docs/traces.md): computing takes time, what is sent is checked."""

    trace: PathInFile
    """File of a trace, or the folder with one a rank; from the file's folder."""
    groups: PathInFile | None = None
    """JSON file with the ranks of each process group, {"0": [0, 1], ...}, where the trace does not say."""
    compute_scale: float = Field(1.0, gt=0, le=1e9)
    """Factor on the time that computing takes."""
    size_scale: float = Field(1.0, gt=0, le=1e6)
    """Factor on the sizes of messages and collectives."""
    iterations: int = Field(1, ge=1, le=PROGRAM_ITERATIONS_MAX)
    """Replays that are measured."""
    warm_up: int = Field(0, ge=0, le=PROGRAM_WARM_UP_MAX)
    """Replays before them that are not measured."""


def _command(value: object) -> object:
    """Return a command as a list of words: a text is split as a shell would."""
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as error:
        raise ValueError(f"{value!r}: {error}. Cure: close the quotes, or give a list of words") from None


Command = Annotated[list[str], BeforeValidator(_command), Field(min_length=1)]


class ProgramWork(Work):
    """Command that runs on hosts of the live fabric as `mrc exec` would run it, or as a training job."""

    program: Command
    """Command with its arguments, as one text or as a list; no shell reads it."""
    ranks: Literal["all"] | Annotated[int, Field(ge=1)] | list[str] = 1
    """Hosts in the order of their ranks, or how many `placement` chooses."""
    placement: Literal["packed", "spread", "random"] = "packed"
    """Choice of hosts for a number or `all`: rack by rack, one of each rack in turn, or drawn by seed."""
    backend: Literal["mrc", "gloo", "loopback"] | None = None
    """Python program as a training job with this backend of `mrc train`; None: a plain command."""
    folder: PathInFile | None = None
    """Folder in which it runs, from the file's folder; None: that of `mrc run`."""
    steps: int | None = Field(None, ge=1)
    """Steps that its first rank has to print, the work of which faults have a share; None: any number."""


WORK_KINDS = {
    "stream": Stream,
    "permutation": Permutation,
    "incast": Incast,
    "collective": Collective,
    "training": Training,
    "trace": TraceWork,
    "program": ProgramWork,
}


def _work_kind(value: Any) -> str | None:
    """Return a mapping's kind of work by the key that only this kind has; None: no kind, or several."""
    if isinstance(value, Work):
        return next(kind for kind, cls in WORK_KINDS.items() if type(value) is cls)
    kinds = [kind for kind in WORK_KINDS if isinstance(value, dict) and kind in value]
    return kinds[0] if len(kinds) == 1 else None


AnyWork = Annotated[
    Annotated[Stream, Tag("stream")]
    | Annotated[Permutation, Tag("permutation")]
    | Annotated[Incast, Tag("incast")]
    | Annotated[Collective, Tag("collective")]
    | Annotated[Training, Tag("training")]
    | Annotated[TraceWork, Tag("trace")]
    | Annotated[ProgramWork, Tag("program")],
    Discriminator(_work_kind),
]


# ---- what breaks ------------------------------------------------------------------------------------------------


class Poisson(Part):
    """A fault again and again, on average `rate` a second between `start` and `stop`."""

    rate: float = Field(gt=0)
    """Faults a second, on average."""
    start: Seconds = 0.0
    """Time from which faults come."""
    stop: Seconds
    """Time of the last possible fault."""

    @model_validator(mode="after")
    def _check_count(self) -> Poisson:
        if (count := self.rate * (self.stop - self.start)) > POISSON_FAULTS_MAX:
            raise ValueError(f"{count:.3g} faults on average: at most {POISSON_FAULTS_MAX}; give a lower rate")
        return self


class KindLine(Part):
    """A fault without its time. Subclasses have a key for each kind of fault, of which one is set."""

    @model_validator(mode="after")
    def _check_kind(self) -> KindLine:
        action_keys = [key for key in self._kinds() if getattr(self, key) is not None]
        if len(action_keys) != 1:
            raise ValueError(
                f"one action a line, out of {', '.join(self._kinds())}; got {', '.join(action_keys) or 'none'}"
            )
        return self

    @classmethod
    def _kinds(cls) -> list[str]:
        return [key for key in KINDS if key in cls.model_fields]

    @property
    def action(self) -> str:
        """Key of the action, out of faults.KINDS."""
        return next(key for key in self._kinds() if getattr(self, key) is not None)

    @property
    def value(self) -> Any:
        """Value of that key."""
        return getattr(self, self.action)


class FaultLine(KindLine):
    """One line of `faults` without its actions: time (`at` or `poisson`) and duration."""

    at: Moment | None = None
    """Time of the fault: seconds, or a share of the bytes to be sent or `steps` to be made."""
    poisson: Poisson | None = None
    """Random times instead of `at`."""
    duration: Seconds | None = Field(None, alias="for")
    """Seconds until the fault is undone; None: it stays, or a later line undoes it."""

    @model_validator(mode="after")
    def _check_time(self) -> FaultLine:
        if (self.at is None) == (self.poisson is None):
            raise ValueError("give one of at and poisson")
        if self.duration is not None and not KINDS[self.action].lasts:
            raise ValueError(f"`for` makes no sense with {self.action}")
        return self


if TYPE_CHECKING:
    ScenarioFault = FaultLine
else:
    actions = {key: (kind.value_type | None, None) for key, kind in KINDS.items()}
    ScenarioFault = create_model("ScenarioFault", __base__=FaultLine, **actions)
"""One line of `faults`, with a key for each kind; exactly one is set."""


# ---- measurements and expected results ---------------------------------------------------------------------------


class Measure(Part):
    """Measurements beside the rates of all flows."""

    every: SomeSeconds = 0.1
    """Interval of the time series."""
    queues: list[str] = []
    """Interfaces whose queue depth is recorded; `last-hop` = the T0 downlinks of all targets."""
    evs: bool = True
    """Whether states of EVs are recorded."""
    latency: bool = False
    """Completion time of each message."""
    slowed: Annotated[Share, Field(gt=0)] = 0.05
    """A job is slowed when its iterations take longer than before a fault by more than this share."""


class Reference(Part):
    """Result of the paper, for the report.

    `series`: points [x, y] by label, y normalised as in the figure.
    """

    id: str
    """Name of the experiment in the paper."""
    figure: str = ""
    """Figure or table of the paper."""
    saw: str = ""
    """Result of the paper, in our words."""
    scaled: str = ""
    """The scaling of this scenario."""
    cannot: str = ""
    """The part that this testbed cannot show."""
    size_divisor: Annotated[float, Field(gt=0)] = 1.0
    """A size of the paper over the one here that stands for it (Figs 16 and 17)."""
    series: dict[str, list[tuple[float, float]]] = {}
    """Curves of the paper: label -> points [x, y]."""


class Figure(Part):
    """Kind of figure."""

    kind: Literal[
        "rate_over_time",
        "size_curve",
        "bars",
        "latency_cdf",
        "iteration_cdf",
        "iterations_over_time",
        "queue_over_time",
    ] = "rate_over_time"
    """Kind of picture."""
    x: str | None = None
    """Name of the swept value on the x axis, for size_curve and bars."""
    metric: str = "rate.total"
    """Metric that is drawn."""
    of: str | None = None
    """Reference of the values: a variant's name, `baseline` or `capacity`."""
    where: dict[str, Any] = {}
    """Variant and sweep values of the runs shown; empty: all runs."""
    log: bool = False
    """Whether the axis of the values of `bars` is logarithmic."""
    start: SomeSeconds | None = Field(default=None, alias="from")
    """Start of the time axis of a figure over time; None: of the runs."""
    stop: SomeSeconds | None = Field(default=None, alias="to")
    """End of that axis; None: of the longest run."""
    title: str = ""
    """Title above the picture."""


Environment = Literal["live", "virtual", "embedded", "bmv2"]


class Rule(Part):
    """Base of the rules: the runs that a rule is for, and its reason."""

    where: dict[str, Any] = {}
    """Variant and sweep values of judged runs, as in {variant: mrc, loss: 1%}; empty: all runs."""
    only: Environment | list[Environment] | None = None
    """Environments in which the rule holds; None: in all."""
    why: str = ""
    """Reason of the rule, printed when it fails."""
    scale: str | None = None
    """Scale of the file at which the rule holds; `own`: the file without a scale; None: every scale."""

    def is_at(self, environments: tuple[str, ...], scale: str | None) -> bool:
        """Whether the rule holds in these environments (environments_of) at a scale; None: no scale."""
        only = self.only if isinstance(self.only, list) else [self.only]
        return (self.only is None or bool(set(only) & set(environments))) and self.scale in (None, scale or OWN_SCALE)


class Expect(Rule):
    """Rule on a metric (docs/scenarios.md lists them): its bound.

    `of`: the bound is a share of `baseline` (the mean before the first fault), `capacity` (of the senders' NICs),
    or another metric. `start`/`stop`: only this part of the run; `each`: in every interval of that length there.
    """

    metric: str
    """Metric that is judged."""
    at_least: Bound | None = None
    """Lowest value that holds."""
    at_most: Bound | None = None
    """Highest value that holds."""
    about: Bound | None = None
    """Value that holds within `within`."""
    within: Share = 0.05
    """Tolerance of `about`, a share of it."""
    of: str | None = None
    """Reference of the bound: `baseline`, `capacity` or another metric; None: the value itself."""
    start: Moment | None = Field(None, alias="from")
    """Start of the part that is judged; None: of the run."""
    stop: Moment | None = Field(None, alias="to")
    """End of the part that is judged; None: of the run."""
    each: SomeSeconds | None = None
    """Length of the intervals that are judged one by one; None: the part as a whole."""
    compared_to: dict[str, Any] | None = None
    """Values of the run from which `of` is taken instead."""
    paper: float | None = None
    """The paper's value of the same quantity, for the report; no bound."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Expect:
        if self.at_least is None and self.at_most is None and self.about is None:
            raise ValueError("give at_least, at_most or about")
        return self


class ExpectFailure(Rule):
    """Rule that QPs, or ranks of a program, fail. Failed messages and a missing end are allowed with them.

    Without such a rule no run may have a failure (failures.py). Damage, a dead process of ours and omitted parts of the
    plan cannot be expected.
    """

    failed: str
    """The workload."""
    at_least: int = Field(1, ge=0)
    """QPs or ranks that fail; 0: a failure is allowed, not needed."""
    at_most: int | None = Field(None, ge=0)
    """Most of them that fail; None: any number."""
    start: Moment | None = Field(None, alias="from")
    """Start of the part of the run in which each of them fails."""
    stop: Moment | None = Field(None, alias="to")
    """End of the part of the run in which each of them fails."""
    error: str | None = None
    """Text that each of their errors contains."""

    @model_validator(mode="after")
    def _possible(self) -> ExpectFailure:
        if self.at_most is not None and self.at_most < self.at_least:
            raise ValueError(f"at_most {self.at_most} is less than at_least {self.at_least} (1 where not given)")
        return self


class ExpectIncomplete(Rule):
    """Rule that the end of the run cuts a workload off: more iterations or bytes than time allows."""

    unfinished: str
    """The workload."""


RULE_KINDS = {"failed": ExpectFailure, "unfinished": ExpectIncomplete}


def _rule_kind(value: Any) -> str:
    """Return a mapping's kind of rule by the key that only this kind has.

    Tags are no identifiers, so that yaml_loader.py can tell them from keys.
    """
    for kind, cls in RULE_KINDS.items():
        if isinstance(value, cls) or (isinstance(value, dict) and kind in value):
            return f"rule {kind}"
    return "rule metric"


AnyRule = Annotated[
    Annotated[Expect, Tag("rule metric")]
    | Annotated[ExpectFailure, Tag("rule failed")]
    | Annotated[ExpectIncomplete, Tag("rule unfinished")],
    Discriminator(_rule_kind),
]


class Span(Part):
    """A part of a run."""

    start: Seconds = Field(alias="from")
    """Start, from the start of the workload."""
    stop: Seconds = Field(alias="to")
    """End."""

    @model_validator(mode="after")
    def _forward(self) -> Span:
        if self.stop <= self.start:
            raise ValueError("`to` must be after `from`")
        return self


class ScalePart(BaseModel, extra="allow"):
    """One scale of a file: overrides of Scenario's keys, beside the keys that only a scale has."""

    sweep: dict[str, Any] = {}
    """Other values of the file's sweeps."""
    variants: list[str] | None = None
    """Names of the variants to run; None: all."""


class Scenario(Part):
    """A whole file."""

    schema_: Literal["mrc-scenario/1"] = Field("mrc-scenario/1", alias="schema")
    """Version of the format."""
    name: str = ""
    """Name in results; empty: the name of the file."""
    title: str
    """One line that says what is tried."""
    only: Literal["virtual", "live"] | None = None
    """The only environment that the file is for; None: it runs in both."""
    paper: Reference | None = None
    """Result of the paper, for the report."""
    fabric: FabricPart = FabricPart()
    """Dimensions of the fabric."""
    links: LinksPart = LinksPart()
    """Rates and delays."""
    queues: QueuesPart = QueuesPart()
    """Egress discipline of the switches."""
    mode: Literal["srv6", "stev", "ecmp", "switch-spray", "flow-ecmp"] = "srv6"
    """Forwarding of the switches."""
    control_plane: ControlPlane = ControlPlane()
    """Behaviour of the control plane."""
    transport: Transport = Transport()
    """Transport of all workloads."""
    workload: list[AnyWork] = Field(min_length=1)
    """Traffic of the run."""
    duration: SomeSeconds | None = None
    """The run ends here; None: when all work is done."""
    limit: SomeSeconds = 600.0
    """Longest run; a run that reaches this has failed."""
    faults: list[ScenarioFault] = []
    """Faults and repairs, in the order of time."""
    measure: Measure = Measure()
    """Measurements beside rates."""
    variants: dict[str, dict[str, Any]] = {}
    """Name -> parts of this file that are different; every variant is run."""
    sweep: dict[str, Any] = {}
    """Path of a key (`faults.0.loss.rate`) or `$name` -> list, {from, to, step or factor}, or mappings."""
    repeat: int = Field(1, ge=1)
    """Repetitions; repetition n has the seed + n."""
    seed: int = 1
    """The seed of all random choices."""
    live: dict[str, Any] = {}
    """Overrides on the live fabric."""
    bmv2: dict[str, Any] = {}
    """Overrides on the live fabric when its switches are BMv2, on top of `live`."""
    virtual: dict[str, Any] = {}
    """Overrides in virtual time."""
    scale: dict[str, ScalePart] = {}
    """Name -> overrides of runs at that scale (`--scale NAME`); virtual runs only."""
    baseline: Span | None = None
    """`baseline` of the rules: the mean over this part; None: before the first fault, without the start."""
    expect: list[Annotated[AnyRule, BeforeValidator(_rule_of_text)]] = []
    """Rules; each must hold in each run."""
    figures: list[Figure] = []
    """Pictures of the report."""

    @property
    def bounds(self) -> list[Expect]:
        """Rules on metrics."""
        return [rule for rule in self.expect if isinstance(rule, Expect)]
