"""Time series of a live run: one sample of agents and switches per interval, in a thread of its own.

Sampling never delays faults; a late sample makes its interval longer, and the next one shorter. Values that could not
be read are None.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from statistics import fmean
from typing import Any

from mrc_testbed.experiments.backend.outcome import LINKS_MAX, Outcome
from mrc_testbed.experiments.live.counts import CELLS, SwitchTotals
from mrc_testbed.experiments.live.live_programs import LivePrograms
from mrc_testbed.experiments.live.live_work import Answers, LiveWork, flow_name
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.fabric import Fabric

EV_FLOWS_MAX = 8
"""Packets by EV are recorded in runs of at most this many flows."""
LATE_INTERVALS = 3.0
"""Intervals between two samples above which a run gets a note: the rates are means over a longer time."""
SHORTEST_SHARE = 0.2
"""Shortest interval after a late reading, as a part of the configured one."""


class LiveSampler:
    """Sampler of a live run: `start`, then `wait` repeatedly, at last `finish`. Fills `outcome.series`."""

    def __init__(
        self, fabric: Fabric, work: LiveWork, programs: LivePrograms, outcome: Outcome, note: Callable[[str], None]
    ) -> None:
        self.fabric, self.work, self.programs, self.outcome = fabric, work, programs, outcome
        self.measure, self.plan = work.plan.measure, work.plan.fabric
        self.reorder_max: dict[str, int] = {}
        """Most packets a receiver held above a hole, by flow, or by collective and host."""
        self.latencies: dict[str, list[float]] = {}
        self.switch_totals = SwitchTotals()
        self.last: Answers = {}
        """Last answers of the agents."""
        self.error: Exception | None = None
        """Error that ended sampling."""
        self._note = note
        self._last_reading: dict[str, Any] = {}
        self._longest_s = 0.0
        self._ports = self._ports_to_record()
        self._octets: dict[str, tuple[int, int]] = {}
        """Link -> bytes (away from the hosts, towards the hosts) at `_links_at`."""
        self._links_at = 0.0
        self._sample_condition = threading.Condition()
        self._sample_count = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)

    # ---- its thread -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start sampling, when the work starts; earlier counts are left out."""
        self._thread.start()

    def finish(self) -> None:
        """Take the last sample, unless the previous one is recent. Raises the error that ended sampling."""
        self._end_thread()
        try:
            if self.error is not None:
                raise self.error
            last_sample_time = self.work.start_time + (self.outcome.series.times_s or [0.0])[-1]
            if time.monotonic() - last_sample_time >= self.measure.every * SHORTEST_SHARE:
                self._sample()
        finally:
            self.stop()
        if self._longest_s > LATE_INTERVALS * self.measure.every:
            self._note(f"the machine was too busy: up to {self._longest_s:.2g} s between two readings of the hosts")

    def stop(self) -> None:
        """Stop reading. Idempotent."""
        self._end_thread()

    def _end_thread(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def wait(self, samples: int, timeout_s: float) -> int:
        """Wait until more than `samples` samples are taken, or a timeout; return their number. Raises `error`."""
        with self._sample_condition:
            self._sample_condition.wait_for(
                lambda: self._sample_count > samples or self.error is not None, max(0.0, timeout_s)
            )
            if self.error is not None:
                raise self.error
            return self._sample_count

    @property
    def received(self) -> dict[str, int]:
        """Payload bytes of each flow at the last sample."""
        received: dict[str, int] = self._last_reading.get("received", {})
        return received

    @property
    def share_done(self) -> float:
        """Share of the work's bytes that are received."""
        total = self.work.total_bytes
        return sum(self.received.values()) / total if total else 0.0

    def _run(self) -> None:
        every, start_time = self.measure.every, self.work.start_time
        tick = every
        self._attempt(self._read_baseline)
        while self.error is None and not self._stop.wait(max(0.0, start_time + tick - time.monotonic())):
            self._attempt(self._sample)
            with self._sample_condition:
                self._sample_count += 1
                self._sample_condition.notify_all()
            tick = max(tick + every, time.monotonic() - start_time + every * SHORTEST_SHARE)

    def _attempt(self, read: Callable[[], None]) -> None:
        """Read; an error is raised in the thread that waits."""
        try:
            read()
        except Exception as error:
            with self._sample_condition:
                self.error = error
                self._sample_condition.notify_all()

    def _read_baseline(self) -> None:
        """Take the counts from which the first sample counts."""
        self._read_switches()
        self._note_links()
        self.outcome.series.link_bps.clear()
        self._last_reading = self._reading()
        if self.measure.evs:
            self._note_paths()

    # ---- a sample ---------------------------------------------------------------------------------------

    def _reading(self) -> dict[str, Any]:
        """Read all agents; return the totals of flows and planes."""
        read = self.last = self.work.ask_all("flow_read")
        received: dict[str, int] = {}
        times: dict[str, float] = {}
        """Time of each flow's reading by the receiver's own clock: a busy host answers late."""
        packets: dict[str, dict[str, int]] = {}
        planes = [0] * self.plan.planes
        lost, retransmitted = self.programs.packets_lost()
        for host, answer in read.items():
            for name, sink in answer["sinks"].items():
                received[name], times[name] = sink["received_bytes"], answer["t"]
                self.reorder_max[name] = max(self.reorder_max.get(name, 0), sink["held"])
            for name, rank in answer["ranks"].items():
                self.reorder_max[f"{name}@{host}"] = max(self.reorder_max.get(f"{name}@{host}", 0), rank["held"])
                for peer, amount in rank["received"].items():
                    received[f"{name}:{peer}-{host}"], times[f"{name}:{peer}-{host}"] = amount, answer["t"]
            qps = [(name, qp) for name, source in answer["sources"].items() for qp in source["qps"]]
            qps += [(name, qp) for name, rank in answer["ranks"].items() for qp in rank["qps"]]
            for name, qp in qps:
                lost, retransmitted = lost + qp["lost"], retransmitted + qp["retransmitted"]
                ev_packets = packets.setdefault(name, {})
                for ev, plane, _, sent in qp["evs"]:
                    key = f"{ev:#06x}"
                    ev_packets[key] = ev_packets.get(key, 0) + sent
                    planes[plane] += sent
            for name, source in answer["sources"].items():
                self.latencies.setdefault(name, []).extend(source["latencies_s"])
        frame = self.plan.frame_bytes()  # agents count packets by plane: all of them count as full frames
        return {
            "at": fmean(answer["t"] for answer in read.values()) - self.work.start_time,
            "received": received,
            "times": times,
            "lost": lost,
            "retransmitted": retransmitted,
            "evs": packets,
            "planes": [count * frame for count in planes],
        }

    def _sample(self) -> None:
        previous, reading = self._last_reading, self._reading()
        elapsed_s = reading["at"] - previous["at"]
        if elapsed_s <= 0:
            return
        # Rates of flows are over the receiver's own clock, those of planes over the mean of all agents.
        self._last_reading = reading
        self._longest_s = max(self._longest_s, elapsed_s)
        series = self.outcome.series
        series.times_s.append(round(reading["at"], 6))
        for name, value in reading["received"].items():
            rates = series.received_bps.setdefault(name, [0.0] * (len(series.times_s) - 1))
            span = reading["times"][name] - previous["times"].get(name, self.work.start_time)
            rates.append((value - previous["received"].get(name, 0)) * 8 / span if span > 0 else 0.0)
        for key in ("lost", "retransmitted"):
            getattr(series, key).append(reading[key] - previous[key])
        series.plane_bps.append(
            [(a - b) * 8 / elapsed_s for a, b in zip(reading["planes"], previous["planes"], strict=True)]
        )
        if self.measure.evs and len(self.work.flows) <= EV_FLOWS_MAX:
            for name, sent in reading["evs"].items():
                was = previous["evs"].get(name, {})
                news = {ev: count - was.get(ev, 0) for ev, count in sent.items() if count > was.get(ev, 0)}
                series.ev_packets.setdefault(name, []).append(news)
        self._note_links()
        news, depths = self._read_switches()
        for key in ("marked", "trimmed", "dropped", "link_lost"):
            getattr(series, key).append(news.get(key))
        for port in self._ports:
            series.queues.setdefault(port, []).append(depths.get(port))

    def _note_links(self) -> None:
        """Record the rates of links since the last sample, by the counters of their upper ends."""
        if len(self.plan.links) > LINKS_MAX:
            return
        try:
            ports = self.fabric.link_states()
        except FabricError as error:
            self._note(f"rates of links are missing: {error}")
            ports = {}
        now = time.monotonic()
        elapsed_s, self._links_at = now - self._links_at, now
        for link in self.plan.links:
            port, previous = ports.get(link.upper.interface), self._octets.get(link.name)
            rates = None
            if port is not None:
                count = (port.rx_bytes, port.tx_bytes)
                if previous is not None and elapsed_s > 0:
                    rates = [round(8 * max(a - b, 0) / elapsed_s) for a, b in zip(count, previous, strict=True)]
                self._octets[link.name] = count
            self.outcome.series.link_bps.setdefault(link.name, []).append(rates)

    def _read_switches(self) -> tuple[dict[str, int | None], dict[str, int | None]]:
        """Return switch counts since the last reading, and the depths of the recorded queues."""
        try:
            counts = self.fabric.target.counts(CELLS, self._ports)
        except FabricError as error:
            self._note(f"some switch counters are missing: {error}")
            self.switch_totals.note_gap()
            return {}, {}
        return self.switch_totals.update(counts), counts.depths

    def _ports_to_record(self) -> list[str]:
        out: list[str] = []
        for name in self.measure.queues:
            if name == "last-hop":
                targets = {flow.target for flow in self.work.flows}
                out += [k.upper.interface for k in self.plan.links if k.lower.node in targets]
            else:
                out.append(name)
        return list(dict.fromkeys(out))

    def _note_paths(self) -> None:
        """Record the EVs of every QP from the last answers."""
        for flow in self.work.flows:
            name = flow_name(flow)
            if flow.transport.kind == "mrc":
                for qp in self.last[flow.source]["sources"][name]["qps"]:
                    self.outcome.note_evs(name, qp["qpn"], [ev[:3] for ev in qp["evs"]])
        for group in self.work.groups:
            if group.transport.kind == "mrc":
                for host in group.ranks:
                    for qp in self.last[host]["ranks"][group.work]["qps"]:
                        name = f"{group.work}:{host}-{qp['peer']}"
                        self.outcome.note_evs(name, qp["qpn"], [ev[:3] for ev in qp["evs"]])
