"""Metrics of a run by name, for rules and figures. A test compares them with docs/scenarios.md.

A name is parts joined by dots; NAME is a workload's name, PORT an interface. Metrics marked as series may be evaluated
over a part of a run (`from`, `to`, `each`), and are then means over it; others are one number for the whole run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """Metric that rules and figures may name.

    `pattern`: the name; `unit`; `series`: can be evaluated over a part of a run.

    `timed`: an overloaded machine may change it; the others are exact on any machine.
    """

    pattern: str
    unit: str
    text: str
    series: bool = False
    timed: bool = True


METRICS = (
    Metric("rate.total", "bit/s", "payload received by all hosts", series=True),
    Metric("rate.NAME", "bit/s", "payload of a workload, all its flows", series=True),
    Metric("rate.NAME.min", "bit/s", "its slowest flow", series=True),
    Metric("rate.NAME.max", "bit/s", "its fastest flow", series=True),
    Metric("jain.NAME", "0..1", "Jain's fairness index over its flows' rates", series=True),
    Metric("loss.total", "packets/s", "packets that requestors found lost", series=True),
    Metric("outage.total", "s", "longest time below a quarter of the baseline, all hosts"),
    Metric("outage.NAME", "s", "longest time below a quarter of the baseline, one workload"),
    Metric("dip.total", "share", "deepest fall below the baseline of one interval, all hosts"),
    Metric("dip.NAME", "share", "deepest fall below the baseline of one interval, one workload"),
    Metric("recover.total", "s", "from the last fault's end until the rate is within 5 % of the baseline for good"),
    Metric("time", "s", "from the start of the workload to its end"),
    Metric("time.NAME", "s", "from the start of a workload to its last completion"),
    Metric("algbw.NAME", "bit/s", "of a collective: size over time, as nccl-tests have it"),
    Metric("busbw.NAME", "bit/s", "of a collective: algbw times the factor of its kind"),
    Metric("slowest.NAME", "rank", "of a collective: the rank that ended last, most often"),
    Metric("wrong.NAME", "elements", "of a collective: elements that are not what they have to be", timed=False),
    Metric("iteration.NAME.mean", "s", "of a collective or training: from the end of one iteration to the next end"),
    Metric("iteration.NAME.p50", "s", "the same, median"),
    Metric("iteration.NAME.p95", "s", "the same, 95th percentile"),
    Metric("iteration.NAME.p99", "s", "the same, 99th percentile"),
    Metric("iteration.NAME.max", "s", "the same, longest"),
    Metric(
        "iteration.NAME.back",
        "s",
        "from the first fault until iterations take at most 1 % more than before on average, and none 5 % more",
    ),
    Metric(
        "slowed.NAME",
        "share",
        "jobs whose iterations after the first fault are slower than before, in the median (measure.slowed)",
    ),
    Metric("slowed.NAME.once", "share", "the same, in any one iteration"),
    Metric(
        "exposed.NAME", "share", "of training: part of an iteration in which a rank computes nothing, mean of ranks"
    ),
    Metric("step.p50", "s", "of programs: time of a step as its first rank printed it, median"),
    Metric("step.p99", "s", "the same, 99th percentile"),
    Metric("step.max", "s", "the same, longest"),
    Metric("step.before", "s", "the same, median of the steps before the first fault"),
    Metric("steps", "count", "of programs: steps that their first ranks printed"),
    Metric(
        "exit_code",
        "count",
        "of programs: worst exit code of all ranks, 128 and the signal's number of a killed one",
        timed=False,
    ),
    Metric("exit_code.NAME", "count", "the same, of one program", timed=False),
    Metric("digests", "count", "of programs: different SHA-256 of the parameters that ranks printed", timed=False),
    Metric("latency.NAME.p50", "s", "posting to completion of its messages (measure.latency)"),
    Metric("latency.NAME.p99", "s", "the same, 99th percentile"),
    Metric("latency.NAME.max", "s", "the same, longest"),
    Metric("sent", "packets", "data packets, retransmissions included"),
    Metric("lost", "packets", "data packets that requestors found lost"),
    Metric("lost.per_qp.max", "packets", "the same, of the QP that lost most"),
    Metric("retransmitted", "packets", "data packets sent again"),
    Metric("retransmitted.bytes", "bytes", "payload of these packets, taken as full"),
    Metric("retransmitted.first", "s", "from the first fault until a packet was sent again (live: to one interval)"),
    Metric("timeouts", "count", "retransmission timers that expired"),
    Metric("marked", "packets", "CE marks made by switches"),
    Metric("trimmed", "packets", "packets trimmed by switches, all ports"),
    Metric("trimmed.last_hop", "packets", "packets trimmed at the last hop"),
    Metric("dropped.queue", "packets", "packets dropped in switches because a queue was full"),
    Metric("pauses", "count", "times that PFC made a port hold data back"),
    Metric("pauses.longest", "s", "longest of these pauses that ended"),
    Metric("storms", "count", "pauses that lasted (queues.pfc.storm_after)"),
    Metric("corrupted", "packets", "packets with a wrong iCRC at receivers", timed=False),
    Metric("qp_errors", "count", "QPs that failed", timed=False),
    Metric("failed", "count", "messages that did not complete", timed=False),
    Metric("damaged", "count", "messages whose bytes are not what was sent", timed=False),
    Metric("reorder.max", "packets", "most packets a responder was found to hold above a hole, one look an interval"),
    Metric("evs.denied", "count", "EVs denied at the end of the run"),
    Metric("evs.bad", "count", "EVs ASSUMED_BAD at the end of the run"),
    Metric("evs.first_bad", "s", "from the first fault until an EV through it is ASSUMED_BAD"),
    Metric("evs.last_bad", "s", "from the first fault until every EV that was used through it is ASSUMED_BAD"),
    Metric("evs.restored", "s", "from the last fault's end until no EV is ASSUMED_BAD"),
    Metric("evs.swapped_in_plane", "0/1", "each EV that went bad was replaced by one of its own plane"),
    Metric("off_pinned.NAME", "share", "its packets on EVs that no `pin` of another workload names", series=True),
    Metric("queue.PORT", "bytes", "depth of the data queue of an interface (measure.queues)", series=True),
    Metric("queue.PORT.max", "bytes", "its deepest"),
    Metric("queue.last-hop.max", "bytes", "deepest data queue of all T0 downlinks"),
    Metric("control.reacted", "s", "from the first fault until the control plane had changed its tables"),
    Metric("table_writes", "count", "writes to tables of switches after the start", timed=False),
)
"""Every metric; a name that fits none of these is refused when a scenario is read."""


def find(name: str, works: Iterable[str], ports: Iterable[str]) -> Metric | None:
    """Return the metric of a name, given workloads and recorded ports; None when no metric has the name."""
    names, queues = sorted(works, key=len, reverse=True), list(ports)
    for metric in METRICS:
        if metric.pattern == name:
            return metric
        if "NAME" in metric.pattern and any(metric.pattern.replace("NAME", work) == name for work in names):
            return metric
        if "PORT" in metric.pattern and any(metric.pattern.replace("PORT", port) == name for port in queues):
            return metric
    return None


def unit_by_name(name: str) -> str:
    """Return the unit of a metric whose workload or port is not known; empty: no metric."""
    for metric in METRICS:
        if re.fullmatch(re.escape(metric.pattern).replace("NAME", ".+").replace("PORT", ".+"), name):
            return metric.unit
    return ""


def all_names(works: Iterable[str], ports: Iterable[str]) -> list[str]:
    """Return every name that find() knows, for messages."""
    works, ports = list(works), list(ports)
    out: list[str] = []
    for metric in METRICS:
        if "NAME" in metric.pattern:
            out += [metric.pattern.replace("NAME", work) for work in works]
        elif "PORT" in metric.pattern:
            out += [metric.pattern.replace("PORT", port) for port in ports]
        else:
            out.append(metric.pattern)
    return out
