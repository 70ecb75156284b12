"""`GET /metrics`: the fabric in the text format of Prometheus or in OpenMetrics, read at each scrape.

Names follow its conventions: base units, `_total` for counters, which begin anew when a switch or an agent does. EVs
are added up by plane and T1, so that the number of series grows with switches and ports and not with pairs of hosts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics

from mrc_testbed.controller.app import FabricController
from mrc_testbed.controller.errors import SwitchError
from mrc_testbed.controller.faults.correlator import PORT_IS_BAD
from mrc_testbed.controller.p4runtime.counters import NO_PORT, counters_by_name, read_ports, read_queues
from mrc_testbed.controller.p4runtime.provisioner import SwitchProvisioner
from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.topologies.plan import CPU_PORT

AT_ONCE = 16
"""Switches and hosts that are asked side by side."""


@dataclass(frozen=True, slots=True)
class ExpositionFormat:
    """One format of a scrape."""

    content_type: str
    encode: Callable[[CollectorRegistry], bytes]


TEXT = ExpositionFormat("text/plain; version=0.0.4; charset=utf-8", generate_latest)
OPEN_METRICS = ExpositionFormat(
    "application/openmetrics-text; version=1.0.0; charset=utf-8", openmetrics.generate_latest
)


def negotiated_format(accept: str) -> ExpositionFormat:
    """Return the format that an Accept header prefers (RFC 9110 12.5.1), text where it names neither."""
    ranges = []
    for media_range in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in media_range.split(";"))
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        try:
            quality = float(values.get("q", 1))
        except ValueError:
            continue
        if quality > 0:
            ranges.append((quality, kind, values.get("version", "1.0.0").strip('"')))
    for _, kind, version in sorted(ranges, key=lambda media_range: -media_range[0]):
        # Version 0.0.1 was a draft, with other rules.
        if kind == "application/openmetrics-text" and version == "1.0.0":
            return OPEN_METRICS
        if kind in ("text/plain", "text/*", "*/*"):
            return TEXT
    return TEXT


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: `labels` in order; a name that ends in `_total` is a counter, any other a gauge."""

    name: str
    labels: tuple[str, ...]
    text: str

    def empty(self) -> GaugeMetricFamily | CounterMetricFamily:
        """Return the family without samples."""
        kind = CounterMetricFamily if self.name.endswith("_total") else GaugeMetricFamily
        return kind(self.name, self.text, labels=self.labels)


_SWITCH = ("switch", "plane", "tier")
_PATH = ("plane", "t1")
FAMILIES = (
    Family("mrc_fabric_info", ("mode", "program", "planes", "racks", "spines", "hosts_per_rack"), "Always 1."),
    Family("mrc_link_up", ("link", "plane", "kind"), "1: both ends are up, as far as the controller knows."),
    Family("mrc_switch_verified", _SWITCH, "1: connected, and its tables were found as planned."),
    Family("mrc_switch_table_writes_total", _SWITCH, "Entries written since the first verification."),
    Family("mrc_faults_active", ("kind",), "Faults that the controller names now."),
    Family("mrc_evs", (*_PATH, "state"), "EVs of all pairs of hosts by state; t1 is empty inside a rack."),
    Family("mrc_path_sent_packets_total", _PATH, "Packets that requestors sent over these paths."),
    Family("mrc_path_lost_packets_total", _PATH, "Packets that requestors found lost on them."),
    Family("mrc_path_marked_packets_total", _PATH, "SACKs that told of a CE mark on them."),
    Family("mrc_path_trimmed_packets_total", _PATH, "Packets trimmed on them before the last hop."),
    Family("mrc_switch_marked_packets_total", _SWITCH, "Packets given a CE mark."),
    Family("mrc_switch_trimmed_packets_total", (*_SWITCH, "where"), "Packets trimmed, at a last hop or before."),
    Family("mrc_switch_dropped_packets_total", (*_SWITCH, "reason"), "Packets that the P4 program dropped."),
    Family("mrc_port_receive_bytes_total", ("switch", "port"), "Bytes that came to a port."),
    Family("mrc_port_transmit_bytes_total", ("switch", "port"), "Bytes that left by a port."),
    Family("mrc_queue_depth_bytes", ("switch", "port", "queue"), "Bytes that wait."),
    Family("mrc_queue_dropped_packets_total", ("switch", "port", "queue"), "Packets for which a queue had no room."),
    Family("mrc_scrape_silent", ("what",), "Switches and hosts that did not answer this scrape."),
)
"""Every metric; docs/monitoring.md and the dashboard are checked against this."""
_METRIC_OF_COUNT = {"sent": "sent", "lost": "lost", "marked": "marked", "trimmed": "trimmed"}
"""Count of an agent's health -> part of the name of its metric."""


@dataclass(slots=True, eq=False)  # the registry keeps it as a key
class _Samples:
    """Samples of one scrape: (labels, value) by metric."""

    by_name: dict[str, list[tuple[tuple[str, ...], float]]] = field(default_factory=dict)

    def add(self, name: str, labels: Iterable[object], value: float) -> None:
        self.by_name.setdefault(name, []).append((tuple(map(str, labels)), float(value)))

    def collect(self) -> Iterator[Metric]:
        """Yield all families that have samples; Prometheus' library calls this."""
        for family in FAMILIES:
            if family.name in self.by_name:
                metric = family.empty()
                for labels, value in self.by_name[family.name]:
                    metric.add_metric(labels, value)
                yield metric


async def exposition(app: FabricController) -> CollectorRegistry:
    """Return the state of the fabric now. Switches and hosts that do not answer are omitted and counted."""
    samples = _Samples()
    _add_controller_state(app, samples)
    turn = asyncio.Semaphore(AT_ONCE)
    silent_counts: Counter[str] = Counter({"switches": 0, "hosts": 0})

    async def query(kind: str, question: Callable[[], Awaitable[None]]) -> None:
        async with turn:
            try:
                await question()
            except (SwitchError, JsonlError):
                silent_counts[kind] += 1

    paths: Counter[tuple[str, tuple[object, ...]]] = Counter()
    jobs = [query("switches", partial(_switch, app, provisioner, samples)) for provisioner in app.provisioners.values()]
    jobs += [query("hosts", partial(_host, app, host.name, paths)) for host in app.inputs.plan.hosts]
    await asyncio.gather(*jobs)
    for (name, labels), value in sorted(paths.items(), key=str):
        samples.add(name, labels, value)
    for kind, number in silent_counts.items():
        samples.add("mrc_scrape_silent", (kind,), number)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(samples)
    return registry


def _add_controller_state(app: FabricController, samples: _Samples) -> None:
    """Add the metrics that need no request to a switch or host."""
    plan = app.inputs.plan
    samples.add(
        "mrc_fabric_info",
        (plan.mode.value, app.inputs.program, plan.planes, plan.racks, plan.spines, plan.hosts_per_rack),
        1,
    )
    for link in plan.links:
        ends = [app.status.get(end.interface) for end in (link.lower, link.upper)]
        statuses = [status for status in ends if status is not None]
        if statuses:
            is_up = not any(PORT_IS_BAD.get(status, True) for status in statuses)
            samples.add("mrc_link_up", (link.name, link.plane, link.kind), is_up)
    for provisioner in app.provisioners.values():
        status = provisioner.status
        samples.add("mrc_switch_verified", _labels(provisioner), status.connected and status.verified)
        samples.add("mrc_switch_table_writes_total", _labels(provisioner), sum(status.writes_after_start.values()))
    for kind, number in Counter(fault.kind for fault in app.faults.active()).items():
        samples.add("mrc_faults_active", (kind,), number)


def _labels(provisioner: SwitchProvisioner) -> tuple[object, ...]:
    switch = provisioner.target.switch
    return provisioner.target.name, switch.plane, switch.tier


async def _switch(app: FabricController, provisioner: SwitchProvisioner, samples: _Samples) -> None:
    """Add counters, ports and queues of a switch. Raises SwitchError."""
    ports = {port.number: port.interface for port in app.inputs.plan.ports(provisioner.target.name)}
    cells = await provisioner.counters([*ports, NO_PORT, CPU_PORT])
    counters = counters_by_name(provisioner.catalog, cells, ports)
    labels = _labels(provisioner)
    samples.add("mrc_switch_marked_packets_total", labels, _packets(counters.get("marked", ())))
    for kind, number in _by_reason(counters.get("trimmed", ()), ("trimmed", "trimmed last hop")).items():
        location = "last hop" if kind.endswith("last hop") else "before"
        samples.add("mrc_switch_trimmed_packets_total", (*labels, location), number)
    for reason, number in _by_reason(counters.get("drops", ())).items():
        samples.add("mrc_switch_dropped_packets_total", (*labels, reason), number)
    if provisioner.target.gnmi is None:
        return
    for port, row in (await read_ports(provisioner.target.gnmi, list(ports.values()))).items():
        for way, leaf in (("receive", "in_octets"), ("transmit", "out_octets")):
            if isinstance(row.get(leaf), int):
                samples.add(f"mrc_port_{way}_bytes_total", (provisioner.target.name, port), row[leaf])
    for row in await read_queues(provisioner.target.gnmi, list(ports.values()), missing_ok=True):
        queue = (provisioner.target.name, row["interface"], row["queue"])
        for name, leaf in (("depth_bytes", "depth_bytes"), ("dropped_packets_total", "dropped_pkts")):
            if isinstance(row.get(leaf), int):
                samples.add(f"mrc_queue_{name}", queue, row[leaf])


def _packets(rows: Iterable[dict[str, Any]]) -> int:
    return sum(row["packets"] for row in rows)


def _by_reason(rows: Iterable[dict[str, Any]], always: Iterable[str] = ()) -> Counter[str]:
    totals: Counter[str] = Counter(dict.fromkeys(always, 0))
    for row in rows:
        totals[str(row.get("reason", ""))] += row["packets"]
    return totals


async def _host(app: FabricController, host: str, paths: Counter[tuple[str, tuple[object, ...]]]) -> None:
    """Add the EVs of a host's QPs to `paths`. Raises JsonlError."""
    for peer in await app.agents.health(host):
        for row in peer["evs"]:
            nodes = row.get("path") or []
            t1 = nodes[2] if len(nodes) == 5 else ""
            path_labels = (row["plane"], t1)
            paths["mrc_evs", (*path_labels, row["state"])] += 1
            for count, name in _METRIC_OF_COUNT.items():
                paths[f"mrc_path_{name}_packets_total", path_labels] += row[count]
