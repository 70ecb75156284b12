"""Types of a file of failure rates: rates and times at three levels, each with its source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from mrc_testbed.experiments.language.yaml_loader import parse_model, read
from mrc_testbed.faults.terms import Part
from mrc_testbed.topologies.sizing import FabricSize

SCHEMA = "mrc-failures/1"
Level = Literal["low", "mid", "high"]
LEVELS: tuple[Level, ...] = ("low", "mid", "high")
CHOICE = "choice"
"""Source of a value that no publication was found for."""
FLAP = "$flap"
"""Part of a sample's name that stands for the length of a flap at a level: `5s`."""
Positive = Annotated[float, Field(gt=0)]


class SourcedValue(Part):
    """A value, the source that has it, and how it follows from there."""

    value: Positive
    source: str
    reason: str


class Levels(Part):
    """A value at each level."""

    low: SourcedValue
    mid: SourcedValue
    high: SourcedValue

    def value_at(self, level: Level) -> float:
        """Return the value at a level."""
        return self.entry_at(level).value

    def entry_at(self, level: Level) -> SourcedValue:
        """Return the value at a level with its source."""
        return {"low": self.low, "mid": self.mid, "high": self.high}[level]


class Times(Part):
    """Times in seconds."""

    link_repair_s: Levels
    switch_repair_s: Levels
    flap_s: Levels
    restart_s: Levels
    """Time from the death of a job until it computes again."""
    checkpoint_s: Levels
    """Between two checkpoints."""
    step_s: Levels

    def value_at(self, name: str, level: Level) -> float:
        """Return the time of a name at a level."""
        levels: Levels = getattr(self, name)
        return levels.value_at(level)


class Rate(Levels):
    """Failures of one part in 30 days."""

    failure: str
    parts: Literal["nics", "nic_links", "fabric_links", "t0s", "t1s"]
    sample: str
    """Failure of the samples that this one is; FLAP in it stands for the length of a flap."""
    lasts: Literal["link_repair_s", "switch_repair_s", "flap_s"]

    def sample_at(self, level: Level, times: Times) -> str:
        """Return the name of the sample at a level."""
        return self.sample.replace(FLAP, f"{times.flap_s.value_at(level):g}s")


class Runs(Part):
    """A scenario, and the number of its seeds."""

    scenario: str
    seeds: Annotated[int, Field(ge=1, le=100)]


class Paces(Runs):
    """The scenario of the fluid model. `transport`: the one that it is about."""

    transport: str


class Size(Part):
    """A number of NICs. `scale`: that of the paces' scenario.

    `seeds`, `months`: of paces and months, where they are not the file's.
    """

    nics: Annotated[int, Field(ge=2)]
    scale: str | None = None
    seeds: Annotated[int, Field(ge=1, le=100)] | None = None
    months: Annotated[int, Field(ge=2, le=10_000)] | None = None


class TransportNetwork(Part):
    """Network of a transport. `radix`: ports of a switch at the rate of a plane, for each size in turn."""

    planes: Annotated[int, Field(ge=1)]
    radix: list[int]


class FailureStudy(Part):
    """A whole file of failure rates."""

    schema_: Literal["mrc-failures/1"] = Field(alias="schema")
    title: str
    days: Positive
    months: Annotated[int, Field(ge=2, le=10_000)]
    samples: Runs
    paces: Paces
    sizes: dict[str, Size] = Field(min_length=1)
    transports: dict[str, TransportNetwork] = Field(min_length=1)
    sources: dict[str, str]
    rates: list[Rate] = Field(min_length=1)
    times: Times
    exposed_share: Levels
    """Share of a step that waits for collectives."""

    @model_validator(mode="after")
    def _check(self) -> FailureStudy:
        for name, levels in self.rows():
            for level in LEVELS:
                source = levels.entry_at(level).source
                if source not in self.sources:
                    raise ValueError(f"{name}, {level}: no source {source!r} under sources")
        if self.paces.transport not in self.transports:
            raise ValueError(f"paces.transport: no transport {self.paces.transport!r} under transports")
        for name, network in self.transports.items():
            if len(network.radix) != len(self.sizes):
                raise ValueError(f"transports.{name}.radix: give one for each of the {len(self.sizes)} sizes")
        return self

    def rows(self) -> list[tuple[str, Levels]]:
        """Return every row of the table: rates, times, the exposed share."""
        times: list[tuple[str, Levels]] = [(name, getattr(self.times, name)) for name in Times.model_fields]
        return [*((rate.failure, rate) for rate in self.rates), *times, ("exposed_share", self.exposed_share)]

    def counts(self, transport: str, size: str) -> dict[str, int]:
        """Return the number of parts of each kind, as `mrc plan` counts them. Raises UsageError."""
        network = self.transports[transport]
        plan = FabricSize.for_nics(
            self.sizes[size].nics,
            radix=network.radix[list(self.sizes).index(size)],
            planes=network.planes,
            nic_bps=8e11,
        )
        return {
            "nics": plan.nics,
            "nic_links": plan.planes * plan.nics,
            "fabric_links": plan.links - plan.planes * plan.nics,
            "t0s": plan.planes * plan.t0s,
            "t1s": plan.planes * plan.t1s,
        }


def is_failure_study(path: Path) -> bool:
    """Return whether a file is one of failure rates. Raises ScenarioError for a file that is no YAML."""
    return read(path, "study").raw.get("schema") == SCHEMA


def read_failure_study(path: Path) -> FailureStudy:
    """Read a file of failure rates. Raises ScenarioError with its mistakes."""
    document = read(path, "study")
    return parse_model(document, document.raw, FailureStudy)
