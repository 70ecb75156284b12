"""Models of the JSON that `mrc ... --json` prints, and the JSON schemas made of them (`mrc schema`).

SCHEMAS is the one table: name of a command, and the type of what it prints. Types of links, paths, faults and programs
are here, those of other commands in outputs/. Tests read real outputs by these types.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from mrc_testbed.cli.outputs.bench_outputs import BENCH_OUTPUTS
from mrc_testbed.cli.outputs.fabric_outputs import FABRIC_OUTPUTS, FaultReplayOutput
from mrc_testbed.cli.outputs.run_outputs import RUN_OUTPUTS
from mrc_testbed.errors import UsageError

Directions = Annotated[list[float | None], Meta(min_length=2, max_length=2, description="[up, down]; null: unknown.")]


class LinkOutput(Struct, forbid_unknown_fields=True):
    """Link of `mrc links`: state, settings and use, in both directions."""

    plane: int
    link: str
    is_up: bool = field(name="up")
    rate_bps: Directions
    delay_s: Directions
    loss: Directions
    corruption: Directions
    use_bps: Directions | None


class ProbesOutput(Struct, forbid_unknown_fields=True):
    """Probes of one path: sent, arrived, answered, and the shortest round trip."""

    sent: int
    out: int
    answered_count: int = field(name="back")
    rtt_s: float | None


class EvOutput(Struct, forbid_unknown_fields=True):
    """Path of `mrc evs`: EV, way, state, counts and what probes find now."""

    ev: int
    plane: int
    uplink: int | None
    address: str | None
    path: list[str]
    state: Annotated[str, Meta(description="good, skip, assumed_bad, port_down, denied, or unknown without a QP.")]
    active: bool
    ports_down: list[str]
    rtt_s: float | None
    sent: int
    acked: int
    lost: int
    marked: int
    trimmed: int
    probes_answered: int
    denied_by: list[str]
    probes: ProbesOutput


class EvsOutput(Struct, forbid_unknown_fields=True):
    """Paths from one host to another, by `mrc evs`."""

    peer: str
    qps: int
    evs: list[EvOutput]


class InjectionOutput(Struct, forbid_unknown_fields=True):
    """Injected fault; times are seconds of the machine's monotonic clock."""

    number: int
    kind: str
    location: str = field(name="where")
    detail: str
    sender: str | None
    began_at: float = field(name="at")
    ended_at: float | None
    error: str | None


class QueueOutput(Struct, forbid_unknown_fields=True):
    """Queue of `mrc queues`: limits, depth and counts of one priority of a port."""

    interface: str
    port_rate_bps: int | None
    priority: int
    rate_bps: int | None
    rate_pps: int | None
    max_packets: int | None
    max_bytes: int | None
    depth_packets: int
    depth_bytes: int
    transmit_pkts: int
    transmit_octets: int
    dropped_pkts: int
    dropped_octets: int
    peak_packets: int


class DeviceProgramOutput(Struct, forbid_unknown_fields=True):
    """Program that uses an RDMA device; packets and bytes of all its QPs."""

    pid: int
    qps: int
    cqs: int
    regions: int
    registered_bytes: int
    packets_sent: int
    retransmitted: int
    lost: int
    bytes_sent: int
    bytes_received: int
    evs_out: int


class TrainStepOutput(Struct, forbid_unknown_fields=True):
    """Step of `mrc train`; the last two are sums over the ranks' NICs since they began."""

    step: int
    seconds: float
    retransmitted: int
    evs_out: int


class TrainOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc train --json`."""

    backend: str
    hosts: list[str]
    exit_codes: list[int]
    status: int
    steps: list[TrainStepOutput]
    sha256: Annotated[str | None, Meta(description="SHA-256 of the parameters; null unless equal on all ranks.")]


class DeviceOutput(Struct, forbid_unknown_fields=True):
    """RDMA device of a host; its NIC process begins with the first program."""

    host: str
    device: str
    ports: int
    is_running: bool
    programs: list[DeviceProgramOutput]


class FaultOutput(Struct):
    """Fault of the controller's list; it may have further fields by its kind."""

    number: int
    kind: str
    location: str
    state: Annotated[str, Meta(description="active, cleared or merged.")]
    text: str
    first_seen: float
    last_seen: float
    raised_at: float = field(name="raised")
    cleared_at: float | None = field(name="cleared")
    evidence: list[dict[str, Any]]
    injection: InjectionOutput | None = field(name="injected")
    found_after_s: float | None


class CheckOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc check`: a row for each link, and the verdict."""

    ok: bool
    verdict: str
    suspects: list[str]
    links: list[dict[str, Any]]
    note: str


class DoctorOutput(Struct, forbid_unknown_fields=True):
    """Line of `mrc doctor`; `needed`: the testbed does not work without it."""

    name: str
    ok: bool
    finding: str = field(name="found")
    cure: str
    needed: bool
    figures: dict[str, float] | None
    """Measured numbers by name and unit; null for a line without."""


class P4ErrorOutput(Struct, forbid_unknown_fields=True):
    """Mistake of a program; column 0: only the line is known, null: not in the program."""

    file: str | None
    line: int | None
    column: int | None
    message: str


class P4WarningOutput(Struct, forbid_unknown_fields=True):
    """Warning about a program; `kind` is p4c's name of it."""

    file: str | None
    line: int | None
    column: int | None
    message: str
    kind: str


class P4ProgramOutput(Struct, forbid_unknown_fields=True):
    """Program that `mrc p4 check` has checked."""

    program: str
    ok: bool
    errors: list[P4ErrorOutput]
    warnings: list[P4WarningOutput]


class P4CheckOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc p4 check`."""

    ok: bool
    programs: list[P4ProgramOutput]


class StfScriptOutput(Struct, forbid_unknown_fields=True):
    """STF script that `mrc p4 test` has run; `error`: why it could not be run."""

    script: str
    passed: bool
    failures: list[str]
    error: str | None
    packets_in: int
    packets_out: int
    checks: int


class P4TestOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc p4 test`."""

    program: str
    passed: bool
    scripts: list[StfScriptOutput]


class GraphBoxOutput(Struct, forbid_unknown_fields=True):
    """Box of `mrc p4 graph`: a state, table, condition, action, code or end."""

    number: int
    kind: str
    groups: Annotated[list[str], Meta(description="Titles of the frames around it, the outermost first.")] = field(
        name="in"
    )
    text: str
    location: str | None = field(name="where")


class GraphEdgeOutput(Struct, forbid_unknown_fields=True):
    """Edge of `mrc p4 graph`, between the numbers of two boxes."""

    source: int = field(name="from")
    target: int = field(name="to")
    label: str


class P4GraphOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc p4 graph --json`."""

    program: str
    boxes: list[GraphBoxOutput]
    edges: list[GraphEdgeOutput]


class P4TraceOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc p4 trace`: steps of one packet, and the frames that leave."""

    device: str
    program: str
    port: int
    frame: str
    steps: list[dict[str, Any]]
    sent: list[dict[str, Any]]
    dropped: str | None


SCHEMAS: dict[str, Any] = {
    "links": list[LinkOutput],
    "evs": EvsOutput,
    "faults": (list[FaultOutput], FaultReplayOutput),
    "injected": list[InjectionOutput],
    "devices": list[DeviceOutput],
    "train": TrainOutput,
    "queues": list[QueueOutput],
    "check": CheckOutput,
    "doctor": list[DoctorOutput],
    "p4 check": P4CheckOutput,
    "p4 test": P4TestOutput,
    "p4 graph": P4GraphOutput,
    "p4 trace": P4TraceOutput,
    **FABRIC_OUTPUTS,
    **RUN_OUTPUTS,
    **BENCH_OUTPUTS,
}
"""Type of the JSON of each command, or the types that it may have."""


def types_of(name: str) -> tuple[Any, ...]:
    """Return the types that the JSON of a command may have."""
    types = SCHEMAS[name]
    return types if isinstance(types, tuple) else (types,)


FILES = ("state",)
"""Kinds of files that have a schema here too; `state`: of `save` and `load`."""


def schema(name: str) -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a command's output, or of a kind of file.

    Raises UsageError for an unknown name.
    """
    if name in FILES:
        from mrc_testbed.experiments.language import saved_state

        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **saved_state.schema()}
    if name not in SCHEMAS:
        names = [*SCHEMAS, *FILES]
        close = get_close_matches(name, names, n=3)
        hint = f"did you mean {', '.join(close)}? " if close else ""
        raise UsageError(f"no schema {name!r} ({hint}has: {', '.join(names)})")
    title = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"mrc {name} --json"}
    schemas, parts = msgspec.json.schema_components(types_of(name), ref_template="#/$defs/{name}")
    return {**title, **(schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}), "$defs": parts}
