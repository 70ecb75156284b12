"""State file: faults, queue settings and table entries of a fabric, of `save` and `load`.

    document, state = read_state(path, plan)         # raises ScenarioError with the line of each mistake
    path.write_text(state_text(faults, queues, tables))

A fault is a line of a scenario's `faults` without its time (docs/scenarios.md), so that lines can be copied there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from mrc_testbed.experiments.language.model import KindLine
from mrc_testbed.experiments.language.yaml_loader import Document, Loc, ScenarioError, parse_model, read
from mrc_testbed.faults import KINDS
from mrc_testbed.faults.terms import Part, Rate, suggestion
from mrc_testbed.topologies.plan import Plan

SCHEMA = "mrc-state/1"
SAVED_KINDS = (
    *("cut", "one_way", "silent", "loss", "corrupt", "line", "flap"),
    *("blackhole", "corrupts", "power_off"),
)
"""Kinds of faults that hold until they are undone."""

if TYPE_CHECKING:
    SavedFault = KindLine
else:
    SavedFault = create_model(
        "SavedFault", __base__=KindLine, **{key: (KINDS[key].value_type | None, None) for key in SAVED_KINDS}
    )
"""One fault, with a key for each kind; exactly one is set."""


class QueueLine(Part):
    """Settings of one queue of a switch port, or of the whole port."""

    port: str
    """Interface, such as p0-t0-0-eth3."""
    priority: Annotated[int, Field(ge=0, le=7)] | None = None
    """Queue; None: the port."""
    rate: Rate | None = None
    """Bits/s."""
    packets: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    """Most packets that wait; of a queue."""

    @model_validator(mode="after")
    def _check_figures(self) -> QueueLine:
        if self.rate is None and self.packets is None:
            raise ValueError("give rate, packets, or both")
        if self.packets is not None and self.priority is None:
            raise ValueError("packets are those of a queue: give its priority")
        return self


class SavedState(Part):
    """Whole state file."""

    schema_name: Literal["mrc-state/1"] = Field("mrc-state/1", alias="schema")
    """Format of the file."""
    faults: list[SavedFault] = Field(default_factory=list)
    """Faults that hold, each as in a scenario, without a time."""
    queues: list[QueueLine] = Field(default_factory=list)
    """Settings of queues that are not the plan's."""
    tables: dict[str, list[str]] = Field(default_factory=dict)
    """Table entries by switch, one a line, as the controller writes them."""


def schema() -> dict[str, Any]:
    """Return the JSON Schema of state files."""
    return {"$id": SCHEMA, **SavedState.model_json_schema(by_alias=True)}


def read_state(path: Path, plan: Plan) -> tuple[Document, SavedState]:
    """Read a state file and check its names against a plan. Raises ScenarioError with every mistake."""
    document = read(path, "state file", "schema")
    state = parse_model(document, document.raw, SavedState)
    if problems := [document.problem(loc, text) for loc, text in _mistakes(state, plan)]:
        raise ScenarioError(path, problems)
    return document, state


def _mistakes(state: SavedState, plan: Plan) -> Iterator[tuple[Loc, str]]:
    switches = [switch.name for switch in plan.switches]
    for number, line in enumerate(state.faults):
        for keys, text in KINDS[line.action].check(line.value, plan):
            yield ("faults", number, line.action, *keys), text
    ports = [port.interface for name in switches for port in plan.ports(name)]
    for number, queue in enumerate(state.queues):
        if queue.port not in ports:
            yield ("queues", number, "port"), f"no switch port {queue.port!r} ({suggestion(queue.port, ports)})"
    for name in state.tables:
        if name not in switches:
            yield ("tables", name), f"no switch {name!r} ({suggestion(name, switches)})"


def state_text(
    faults: Sequence[Mapping[str, Any]],
    queues: Sequence[Mapping[str, Any]],
    tables: Mapping[str, Sequence[str]],
    *,
    as_json: bool = False,
) -> str:
    """Return the text of a state file, YAML or JSON."""
    data: dict[str, Any] = {"schema": SCHEMA, "faults": list(faults), "queues": list(queues), "tables": dict(tables)}
    if as_json:
        return json.dumps(data, indent=2) + "\n"
    data["faults"], data["queues"] = ([_in_one_line(line) for line in lines] for lines in (faults, queues))
    yaml, out = YAML(), StringIO()
    yaml.width = 1 << 16
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.dump(data, out)
    return out.getvalue()


def _in_one_line(line: Mapping[str, Any]) -> CommentedMap:
    flow = CommentedMap(line)
    flow.fa.set_flow_style()
    return flow
