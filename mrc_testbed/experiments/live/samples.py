"""The time series of a live run: one look at agents and switches an interval, in a thread of its own.

Faults come on time whatever a look takes; a look that is late makes its interval longer, and the next one shorter.
Values that could not be read are None.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from statistics import fmean
from typing import Any

from mrc_testbed.experiments.backend.outcome import LINKS_MAX, Outcome
from mrc_testbed.experiments.live.counts import CELLS, SwitchTotals
from mrc_testbed.experiments.live.live_work import Answers, LiveWork, flow_name
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.fabric import Fabric

EV_FLOWS_MAX = 8
"""Packets by EV are recorded in runs of at most this many flows."""
LATE_INTERVALS = 3.0
"""A reading this many intervals after the one before is noted: its rates are means over a longer time."""
SHORTEST_SHARE = 0.2
"""Shortest interval after a late reading, as a part of the configured one."""


class LiveSampler:
    """`begin`, then `wait` again and again, at last `end`. Fills `outcome.series`."""

    def __init__(self, fabric: Fabric, work: LiveWork, outcome: Outcome, note: Callable[[str], None]) -> None:
        self.fabric, self.work, self.outcome = fabric, work, outcome
        self.measure, self.plan = work.plan.measure, work.plan.fabric
        self.held: dict[str, int] = {}
        """Most packets a receiver held above a hole, by flow, or by collective and host."""
        self.latencies: dict[str, list[float]] = {}
        self.counted = SwitchTotals()
        self.last: Answers = {}
        """Last answers of the agents."""
        self.error: Exception | None = None
        """Why there are no more samples."""
        self._note = note
        self._before: dict[str, Any] = {}
        self._longest_s = 0.0
        self._ports = self._recorded()
        self._octets: dict[str, tuple[int, int]] = {}
        """(away from the hosts, towards them) by link, at `_links_at`."""
        self._links_at = 0.0
        self._looked = threading.Condition()
        self._looks = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)

    # ---- its thread -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start of the work: earlier counts are left out."""
        self._look_at_switches()
        self._note_links()
        self.outcome.series.link_bps.clear()
        self._before = self._reading()
        if self.measure.evs:
            self._note_paths()
        self._thread.start()

    def end(self) -> None:
        """The last look, unless there was one just now. Raises what made looking fail."""
        self._end_thread()
        try:
            if self.error is not None:
                raise self.error
            since = self.work.begins + (self.outcome.series.times_s or [0.0])[-1]
            if time.monotonic() - since >= self.measure.every * SHORTEST_SHARE:
                self._sample()
        finally:
            self.stop()
        if self._longest_s > LATE_INTERVALS * self.measure.every:
            self._note(f"the machine was too busy: up to {self._longest_s:.2g} s between two looks at the hosts")

    def stop(self) -> None:
        """Stop reading. Idempotent."""
        self._end_thread()

    def _end_thread(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def wait(self, looks: int, timeout_s: float) -> int:
        """Until there are more than `looks` looks, at most that long. Returns how many there are. Raises `error`."""
        with self._looked:
            self._looked.wait_for(lambda: self._looks > looks or self.error is not None, max(0.0, timeout_s))
            if self.error is not None:
                raise self.error
            return self._looks

    @property
    def received(self) -> dict[str, int]:
        """Payload bytes of each flow at the last look."""
        found: dict[str, int] = self._before.get("received", {})
        return found

    @property
    def share_done(self) -> float:
        """Of the bytes there are to send."""
        total = self.work.total_bytes
        return sum(self._before["received"].values()) / total if total else 0.0

    def _run(self) -> None:
        every, begins = self.measure.every, self.work.begins
        tick = every
        while not self._stop.wait(max(0.0, begins + tick - time.monotonic())):
            try:
                self._sample()
            except Exception as error:  # told to whoever waits, and raised there
                self.error = error
            with self._looked:
                self._looks += 1
                self._looked.notify_all()
            if self.error is not None:
                return
            tick = max(tick + every, time.monotonic() - begins + every * SHORTEST_SHARE)

    # ---- a look -----------------------------------------------------------------------------------------

    def _reading(self) -> dict[str, Any]:
        """Current answers of all agents; the totals of flows and planes."""
        read = self.last = self.work.ask_all("flow_read")
        received: dict[str, int] = {}
        at: dict[str, float] = {}
        """Time of each flow's reading by the receiver's own clock: a busy host answers late."""
        packets: dict[str, dict[str, int]] = {}
        planes, lost, again = [0] * self.plan.planes, 0, 0
        for host, one in read.items():
            for name, sink in one["sinks"].items():
                received[name], at[name] = sink["received_bytes"], one["t"]
                self.held[name] = max(self.held.get(name, 0), sink["held"])
            for name, rank in one["ranks"].items():
                self.held[f"{name}@{host}"] = max(self.held.get(f"{name}@{host}", 0), rank["held"])
                for peer, amount in rank["received"].items():
                    received[f"{name}:{peer}-{host}"], at[f"{name}:{peer}-{host}"] = amount, one["t"]
            qps = [(name, qp) for name, source in one["sources"].items() for qp in source["qps"]]
            qps += [(name, qp) for name, rank in one["ranks"].items() for qp in rank["qps"]]
            for name, qp in qps:
                lost, again = lost + qp["lost"], again + qp["retransmitted"]
                mine = packets.setdefault(name, {})
                for ev, plane, _, sent in qp["evs"]:
                    key = f"{ev:#06x}"
                    mine[key] = mine.get(key, 0) + sent
                    planes[plane] += sent
            for name, source in one["sources"].items():
                self.latencies.setdefault(name, []).extend(source["latencies_s"])
        frame = self.plan.frame_bytes()
        return {
            "at": fmean(one["t"] for one in read.values()) - self.work.begins,
            "received": received,
            "times": at,
            "lost": lost,
            "retransmitted": again,
            "evs": packets,
            "planes": [count * frame for count in planes],
        }

    def _sample(self) -> None:
        before, after = self._before, self._reading()
        passed = after["at"] - before["at"]
        if passed <= 0:
            return
        self._before = after
        self._longest_s = max(self._longest_s, passed)
        series = self.outcome.series
        series.times_s.append(round(after["at"], 6))
        for name, value in after["received"].items():
            rates = series.received_bps.setdefault(name, [0.0] * (len(series.times_s) - 1))
            span = after["times"][name] - before["times"].get(name, self.work.begins)
            rates.append((value - before["received"].get(name, 0)) * 8 / span if span > 0 else 0.0)
        for key in ("lost", "retransmitted"):
            getattr(series, key).append(after[key] - before[key])
        series.plane_bps.append([(a - b) * 8 / passed for a, b in zip(after["planes"], before["planes"], strict=True)])
        if self.measure.evs and len(self.work.flows) <= EV_FLOWS_MAX:
            for name, sent in after["evs"].items():
                was = before["evs"].get(name, {})
                news = {ev: count - was.get(ev, 0) for ev, count in sent.items() if count > was.get(ev, 0)}
                series.ev_packets.setdefault(name, []).append(news)
        self._note_links()
        news, depths = self._look_at_switches()
        for key in ("marked", "trimmed", "dropped", "link_lost"):
            getattr(series, key).append(news.get(key))
        for port in self._ports:
            series.queues.setdefault(port, []).append(depths.get(port))

    def _note_links(self) -> None:
        """The rates of links since the last look, by the counters of their upper ends."""
        if len(self.plan.links) > LINKS_MAX:
            return
        try:
            ports = self.fabric.link_states()
        except FabricError as error:
            self._note(f"rates of links are missing: {error}")
            ports = {}
        now = time.monotonic()
        passed, self._links_at = now - self._links_at, now
        for link in self.plan.links:
            port, before = ports.get(link.upper.interface), self._octets.get(link.name)
            rates = None
            if port is not None:
                count = (port.rx_bytes, port.tx_bytes)
                if before is not None and passed > 0:
                    rates = [round(8 * max(a - b, 0) / passed) for a, b in zip(count, before, strict=True)]
                self._octets[link.name] = count
            self.outcome.series.link_bps.setdefault(link.name, []).append(rates)

    def _look_at_switches(self) -> tuple[dict[str, int | None], dict[str, int | None]]:
        """Switch counts since the last reading, and the depths of the recorded queues."""
        try:
            counts = self.fabric.target.counts(CELLS, self._ports)
        except FabricError as error:
            self._note(f"some of what switches counted is missing: {error}")
            self.counted.missed()
            return {}, {}
        return self.counted.look(counts), counts.depths

    def _recorded(self) -> list[str]:
        out: list[str] = []
        for name in self.measure.queues:
            if name == "last-hop":
                targets = {flow.target for flow in self.work.flows}
                out += [k.upper.interface for k in self.plan.links if k.lower.node in targets]
            else:
                out.append(name)
        return list(dict.fromkeys(out))

    def _note_paths(self) -> None:
        """The EVs of every QP as they were read last."""
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
