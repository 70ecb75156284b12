"""Models of the JSON of `mrc bench ...`: the fields that every run of a benchmark has.

json_schemas.py has the table of all commands. What is measured for each round, size or variant is an open mapping.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

Number = int | float
Figures = dict[str, Any]


class SwitchBenchOutput(Struct):
    """Cost of the embedded switch beside a bare forwarder, microseconds a frame."""

    program: str
    rounds: int
    packets: int
    rows: list[Figures]
    hops: list[Figures]
    memory_ns: dict[str, Number]
    ratio: Number
    goal: Number
    lost: int
    remarks: list[str]


class MrcBenchOutput(Struct):
    """Cost of a transfer, microseconds of CPU a packet."""

    schema: str
    fabric: Figures
    wires: Any
    pmtu: int
    bytes: int
    goodput_bps: Number
    bytes_equal: bool
    cpu_us_per_packet: dict[str, Number]


class ClusterBenchOutput(Struct):
    """Cost of the same transfers on one machine and on several."""

    schema: str
    fabric: Figures
    pmtu: int
    bytes: int
    processors: int
    machines: list[str]
    rounds: list[Figures]
    ratios: Figures


class SprayBenchOutput(Struct):
    """Loss after a cut in a mode where switches spray, with and without the controller."""

    mode: str
    rounds: int
    packets_per_s: int
    watched_s: Number
    with_controller: Figures
    without_controller: Figures
    target_s: Number
    met: bool


class FaultsBenchOutput(Struct):
    """Diagnosis of injected faults on the live fabric."""

    plan: Figures
    seed: int
    singles: Figures
    pairs: dict[str, int]
    sources: Figures
    faults_before: list[str] = field(name="before")
    errors_by_round: list[str] = field(name="wrong")
    rounds: list[Figures]
    passed: bool


class VirtualFaultsBenchOutput(Struct):
    """Diagnosis of random sets of faults in virtual time."""

    seed: int
    set_count: int = field(name="drawn")
    sets: dict[str, int]
    causes: dict[str, int]
    details: list[Figures]
    passed: bool


class FluidBenchOutput(Struct):
    """Errors of the fluid model beside the packet simulator."""

    schema: str
    errors: list[Figures]
    table: Any
    start: Figures


class FluidCalibrationOutput(Struct):
    """Measured parameters of the fluid model, by pipe, and those in use."""

    schema: str
    calibration: dict[str, Figures]
    in_use: list[Figures]


class FluidDetectionOutput(Struct):
    """Times until a dead link is known, and until a mended one is used."""

    returns: list[Figures]
    clustermapper: list[Any]


class TransportBenchOutput(Struct):
    """Figures of the transport in virtual time, with their targets."""

    schema: str
    rows: list[Figures]
    met: bool


class VirtualBenchOutput(Struct):
    """Result of a benchmark of virtual time, by the number of hosts."""

    schema: str
    packets_wanted: int
    wire: bool
    build: Any = field(name="compiled")
    sizes: list[Figures]
    flatness: Figures
    met: bool


class PeersBenchOutput(Struct):
    """Flows of the virtual fabric beside those of htsim_uec."""

    schema: str
    fabric: Figures
    cases: list[Figures]
    seeds: int


class TracesBenchOutput(Struct):
    """Step times of traces beside those of other simulators."""

    schema: str
    fabric: Figures
    cases: list[Figures]


class ExecBenchOutput(Struct):
    """Cost of a packet for a program over libmrc, beside the hosts' agents."""

    schema: str
    fabric: Figures
    pmtu: int
    seconds: Number
    agent: Figures
    program: Figures
    program_bytes_right: bool
    ratio: Figures
    goal: Number
    met: bool
    latency_us: Figures
    messages_per_s: Number | None


class CollectivesBenchOutput(Struct):
    """Times of all_reduce by backend, ranks and bytes."""

    schema: str
    fabric: Figures
    seconds: dict[str, dict[int, dict[int, Number]] | None]
    ratio: dict[int, dict[int, Number]]


class ProvisionBenchOutput(Struct):
    """Time until a fabric is up and every table is verified."""

    schema: str
    plan: Figures
    rounds: list[Figures]
    median_s: Number
    slowest_s: Number
    target_s: Number
    met: bool


class IncastBenchOutput(Struct):
    """Trims and rates under an incast, by variant of the queues."""

    schema: str
    plan: Figures
    seconds: Number
    variants: dict[str, Figures]
    met: bool


BENCH_OUTPUTS: dict[str, Any] = {
    "bench switch": SwitchBenchOutput,
    "bench mrc": MrcBenchOutput,
    "bench cluster": ClusterBenchOutput,
    "bench spray": SprayBenchOutput,
    "bench faults": (FaultsBenchOutput, VirtualFaultsBenchOutput),
    "bench fluid": (FluidBenchOutput, FluidCalibrationOutput, FluidDetectionOutput),
    "bench transport": TransportBenchOutput,
    "bench virtual": VirtualBenchOutput,
    "bench peers": PeersBenchOutput,
    "bench traces": TracesBenchOutput,
    "bench exec": ExecBenchOutput,
    "bench collectives": CollectivesBenchOutput,
    "bench provision": ProvisionBenchOutput,
    "bench incast": IncastBenchOutput,
}
"""Types of the JSON of each benchmark; several where an option changes it."""
