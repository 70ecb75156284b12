"""Models of the JSON of commands on fabrics: words of the prompt, captures, traces, the demo.

json_schemas.py has the table of all commands. Objects whose keys are names of hosts or counters stay mappings.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

Number = int | float


class WordOutput(Struct, forbid_unknown_fields=True):
    """Word of the prompt that changes or reads something: what it printed."""

    word: str
    arguments: list[str]
    text: str


class TransferOutput(Struct):
    """Transfer begun by `send`, with the names of its two hosts; `outcome` empty: not over."""

    label: str
    bytes: int
    bytes_done: int
    state: Annotated[str, Meta(description="running, done or failed.")]
    outcome: str | None


class TransferWordOutput(Struct, forbid_unknown_fields=True):
    """Words `send` and `wait`: what they printed, and the transfers."""

    word: str
    arguments: list[str]
    text: str
    transfers: list[TransferOutput]


class SwitchCountersOutput(Struct, forbid_unknown_fields=True):
    """Counters of a switch that are not zero, by name, and those of its ports."""

    switch: str
    counters: dict[str, list[dict[str, Any]]]
    ports: list[dict[str, Any]]


class HostDenylistOutput(Struct):
    """Denylist of a host: its entries, and the EVs that they deny by peer."""

    entries: list[dict[str, Any]]
    denied: dict[str, list[int]] | None


class HopOutput(Struct, forbid_unknown_fields=True):
    """Switch on the way of a packet; `trace` is that of `mrc p4 trace`."""

    switch: str
    ingress: str = field(name="in")
    egress: str | None = field(name="out")
    note: str
    trace: dict[str, Any]


class PacketTraceOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc trace`: hops of a packet, and where it ended."""

    source: str = field(name="from")
    destination: str = field(name="to")
    ev: int
    plane: int
    frame: str
    hops: list[HopOutput]
    arrived: bool
    end: str


class FaultReplayOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc faults --replay`: changes of faults, and the text of those that are active."""

    changes: list[dict[str, Any]]
    active: list[Any]


class ListedFabricOutput(Struct, forbid_unknown_fields=True):
    """Fabric of `mrc ls`."""

    name: str
    state: Annotated[str, Meta(description="up, starting or dead.")]
    mode: str
    size: str
    hosts: int
    began: str = field(name="since")
    pid: int | None
    ports: dict[str, int]
    command: Any
    run_dir: str


class RemovedFabricOutput(Struct, forbid_unknown_fields=True):
    """Fabric of `mrc down`; `removed`: what it had left behind."""

    name: str
    state: str
    leftovers: list[str] = field(name="removed")


class DemoCheckOutput(Struct, forbid_unknown_fields=True):
    """Condition of the demo."""

    condition: str = field(name="what")
    ok: bool
    value: str = field(name="seen")


class DemoOutput(Struct, forbid_unknown_fields=True):
    """Result of `mrc demo`; times in seconds, rates in bits/s, sizes in bytes."""

    schema: str
    passed: bool
    fabric: dict[str, Any]
    source: str
    destination: str
    bytes: int
    seconds: Number
    goodput_bps: Number
    longest_gap_s: Number
    sha256: dict[str, str]
    packets: dict[str, Any]
    cuts: list[dict[str, Any]]
    machine: dict[str, Any]
    checks: list[DemoCheckOutput]


class LivePageOutput(Struct, forbid_unknown_fields=True):
    """Address of the page that `mrc dash` shows."""

    url: str


class RecordedPagesOutput(Struct, forbid_unknown_fields=True):
    """Pages that `mrc dash DIR` wrote."""

    pages: list[str]


class CaptureOutput(Struct, forbid_unknown_fields=True):
    """Capture of `mrc pcap`; `lost`: frames that the kernel had no room for."""

    ports: list[str]
    path: str
    packets: int
    received: int
    sent: int
    lost: int
    end_cause: str = field(name="ended")


class ExplainedCaptureOutput(Struct, forbid_unknown_fields=True):
    """Capture with comments, of `mrc pcap FILE --explain`."""

    capture: str
    path: str
    packets: int
    explained_count: int = field(name="explained")
    plan: str
    skipped: dict[str, int]


class ReloadOutput(Struct, forbid_unknown_fields=True):
    """Program that `mrc reload` swapped on a switch; the time includes the compilation."""

    switch: str
    program: str
    kept_count: int = field(name="kept")
    refusals: list[str] = field(name="refused")
    has_counts: bool = field(name="counters_kept")
    duration_s: float


CHANGING_WORDS = (
    "link power rate delay loss corrupt oneway blackhole flap reboot deny allow heal save load routes".split()  # noqa: SIM905
)
"""Words whose JSON is what they print."""
FABRIC_OUTPUTS: dict[str, Any] = {
    **dict.fromkeys(CHANGING_WORDS, WordOutput),
    "send": TransferWordOutput,
    "wait": TransferWordOutput,
    "reload": list[ReloadOutput],
    "entries": list[str],
    "counters": (SwitchCountersOutput, dict[str, SwitchCountersOutput]),
    "denylist": dict[str, HostDenylistOutput],
    "trace": PacketTraceOutput,
    "ls": list[ListedFabricOutput],
    "down": list[RemovedFabricOutput],
    "demo": DemoOutput,
    "dash": (LivePageOutput, RecordedPagesOutput),
    "pcap": (CaptureOutput, ExplainedCaptureOutput),
}
"""Types of the JSON of each command; several where an argument changes it."""
