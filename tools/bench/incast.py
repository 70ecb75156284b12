"""`mrc bench incast`: seven hosts of one rack send to one of another; effect on a neighbour's flow.

Live: Mininet, the P4 switches at the plan's rates, host agents with NSCC. The fabric has one plane and more spines than
senders, so that the only overloaded port is the one to the receiver's NIC (mrc-protocol §11, E17). First the
victim flow is alone, then the incast joins it. The same again with parts of the egress discipline switched off
(controller/p4runtime/qos.py), for the difference. What switches did is read from the counters of the P4 program
(p4src/README.md) and of the traffic manager, before and after.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import mean
from typing import Any

from rich.console import Console
from rich.table import Table

from mrc_testbed.console.progress import Progress
from mrc_testbed.controller.p4runtime.counters import CELL_BITS
from mrc_testbed.controller.p4runtime.qos import DEFAULT, Discipline
from mrc_testbed.ipc.rpc import JsonlClient, Watch
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.options import LabOptions
from mrc_testbed.topologies.lab.traffic_control import switch_ports
from mrc_testbed.topologies.plan import Plan

SCHEMA = "mrc-bench-incast/1"
SENDERS = 7
VARIANT_S = 5.0
"""Guess of a variant's time beside its measurements, for the first run, seconds."""
VARIANTS = {
    "as designed": DEFAULT,
    "no ECN": Discipline(ecn=False),
    "no trimming": Discipline(trimming=False),
    "neither": Discipline(ecn=False, trimming=False),
}
VICTIM_TARGET = 0.95
"""Share of its rate alone."""
MESSAGE_BYTES = 16 << 10
DEPTH = 4
SETTLE_S = 1.0
"""Time from the start of the incast until the victim's rate counts, seconds: slow start is over."""
INTERVAL_S = 0.25
WAIT_S = 60.0
REASONS = {8: "NOT_TRIMMABLE", 9: "QUEUE"}
"""Drop reasons of p4src/headers.p4 that mean a full queue; every other reason is `other`."""
REASON_MAX = 16
"""drop_reason_t has 4 bits."""


class Load:
    """One write_bw of a host's agent, followed by a thread."""

    def __init__(self, fabric: Fabric, source: str, target: str, duration_s: float) -> None:
        self.name = f"{source} to {target}"
        self.rates: list[tuple[float, float]] = []
        """(seconds since it began, payload bits/s of the interval that ends there)."""
        self.result: dict[str, Any] = {}
        self.end: dict[str, Any] = {}
        self._client = JsonlClient(fabric.run_dir.agent_socket(source), name=source, timeout_s=WAIT_S)
        self._client.request(
            "write_bw", peer=target, sizes=[MESSAGE_BYTES], depth=DEPTH, duration_s=duration_s, interval_s=INTERVAL_S
        )
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        with Watch(self._client) as watch:
            for event in watch:
                match event.get("event"):
                    case "interval":
                        self.rates.append((event["to_s"], event["bw_bps"]))
                    case "result":
                        self.result = event
                    case "end":
                        self.end = event
                        return

    def wait(self) -> Load:
        """Raises RuntimeError when it failed or does not end."""
        self._thread.join(WAIT_S)
        if self.end.get("state") != "done":
            raise RuntimeError(f"{self.name}: {self.end.get('error') or 'did not end'}")
        return self


def switch_counts(fabric: Fabric) -> Counter[str]:
    """Return marked, trimmed, trimmed_last_hop and the drop reasons, summed over switches and ports.

    Raises FabricError.
    """
    cells = {"marked": [0], "trimmed": [0, 1 << CELL_BITS], "drops": [code << CELL_BITS for code in range(REASON_MAX)]}
    out: Counter[str] = Counter()
    for switch in fabric.target.counts(cells).switches.values():
        counts = {name: switch.cells.get(name) or [0] * len(offsets) for name, offsets in cells.items()}
        out["marked"] += sum(counts["marked"])
        for key, packets in zip(("trimmed", "trimmed_last_hop"), counts["trimmed"], strict=True):
            out[key] += packets
        for code, packets in enumerate(counts["drops"]):
            out[REASONS.get(code, "other")] += packets
    return out


@contextmanager
def fabric_with(plan: Plan, want: Discipline) -> Iterator[Fabric]:
    """A live fabric with this egress discipline."""
    with Fabric(plan, LabOptions(mapper=False, discipline=want.to_json())) as fabric:
        yield fabric


def measure(plan: Plan, want: Discipline, seconds: float) -> dict[str, Any]:
    """One variant: the victim alone, then with the incast."""
    per_rack = plan.hosts_per_rack
    receiver, neighbour = "h0", "h1"
    senders, victim = [f"h{per_rack + n}" for n in range(per_rack - 1)], f"h{2 * per_rack - 1}"
    with fabric_with(plan, want) as fabric:
        lone_load = Load(fabric, victim, neighbour, seconds).wait()
        counts_before = switch_counts(fabric)
        joint_load = Load(fabric, victim, neighbour, seconds + SETTLE_S)
        incast = [Load(fabric, sender, receiver, seconds + SETTLE_S) for sender in senders]
        for load in (joint_load, *incast):
            load.wait()
        did = switch_counts(fabric) - counts_before
        queue_drops = sum(queue.dropped_pkts for port in switch_ports(plan) for queue in fabric.traffic.queues(port))
    # Until SETTLE_S the incast is in slow start.
    joint = [rate for time, rate in joint_load.rates if time > SETTLE_S]
    rates = [load.result["bw_average_bps"] for load in incast]
    return {
        "victim_alone_bps": lone_load.result["bw_average_bps"],
        "victim_bps": mean(joint),
        "victim_lowest_bps": min(joint),
        "incast_bps": sum(rates),
        "incast_jain": sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates)),
        "switches": {key: did[key] for key in ("marked", "trimmed", "trimmed_last_hop", *REASONS.values(), "other")},
        "traffic_manager_dropped": queue_drops,
        "hosts": {
            key: sum(load.result[key] for load in (joint_load, *incast))
            for key in ("retransmitted", "lost", "timeouts", "trimmed", "trimmed_lasthop", "marked")
        },
    }


def run(
    *, rate_bps: float, rtt_s: float, seconds: float, variants: list[str], console: Console, senders: int = SENDERS
) -> dict[str, Any]:
    """Run all variants, print their table and return the result.

    Raises RuntimeError for a flow that failed, and the errors of Fabric.
    """
    size = senders + 1
    plan = Plan.scaled(1, 2, size, size, rate_bps=rate_bps, rtt_s=rtt_s)
    out: dict[str, Any] = {"schema": SCHEMA, "plan": plan.to_json(), "seconds": seconds, "variants": {}}
    guess_s = len(variants) * (VARIANT_S + 3 * seconds)
    with Progress(console, "bench incast", guess_s=guess_s, size=guess_s) as progress:
        for name in variants:
            progress.step(f"{name}: {senders} to 1, {plan.describe_links()}")
            out["variants"][name] = measure(plan, VARIANTS[name], seconds)
    first = out["variants"].get("as designed")
    out["met"] = first is None or judge(first)
    console.print(table(out))
    return out


def judge(variant: dict[str, Any]) -> bool:
    """Whether it held: last-hop trims and no silent loss, the victim keeps its rate."""
    silent_drops = variant["traffic_manager_dropped"] + variant["switches"]["QUEUE"] + variant["hosts"]["lost"]
    keeps = variant["victim_bps"] >= VICTIM_TARGET * variant["victim_alone_bps"]
    return variant["switches"]["trimmed_last_hop"] > 0 and not silent_drops and keeps


def table(result: dict[str, Any]) -> Table:
    """The variants beside each other."""
    out = Table(title=f"Incast: the target is a victim at {VICTIM_TARGET:g} of its rate alone and no silent loss")
    out.add_column("")
    rows: dict[str, list[str]] = {}

    def add(label: str, text: str) -> None:
        rows.setdefault(label, []).append(text)

    # One column a variant: rows collect their cells first.
    for name, variant in result["variants"].items():
        out.add_column(name, justify="right")
        add("victim alone, Mb/s", f"{variant['victim_alone_bps'] / 1e6:.2f}")
        add("victim with the incast", f"{variant['victim_bps'] / variant['victim_alone_bps']:.2f}")
        add("  its lowest quarter second", f"{variant['victim_lowest_bps'] / variant['victim_alone_bps']:.2f}")
        add("incast, all together, Mb/s", f"{variant['incast_bps'] / 1e6:.2f}")
        add("  fairness (Jain)", f"{variant['incast_jain']:.3f}")
        add("marked", f"{variant['switches']['marked']}")
        add("trimmed in the fabric", f"{variant['switches']['trimmed']}")
        add("trimmed at the last hop", f"{variant['switches']['trimmed_last_hop']}")
        add("dropped: queue full, trimming off", f"{variant['switches']['QUEUE']}")
        add("dropped: not trimmable", f"{variant['switches']['NOT_TRIMMABLE']}")
        add("dropped by the traffic manager", f"{variant['traffic_manager_dropped']}")
        add("hosts: taken for lost", f"{variant['hosts']['lost']}")
        add("hosts: retransmitted", f"{variant['hosts']['retransmitted']}")
        add("hosts: timeouts", f"{variant['hosts']['timeouts']}")
    for label, cells in rows.items():
        out.add_row(label, *cells)
    return out
