"""Demonstration on a running fabric: a file crosses while links on its paths are cut, as planned."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from mrc_testbed.demo.plan import DemoError, DemoPlan
from mrc_testbed.demo.report import DemoReport
from mrc_testbed.demo.timeline import TimelineRecorder
from mrc_testbed.demo.transfer_monitor import FollowedTransfer
from mrc_testbed.experiments.live.cpu import CpuWatch
from mrc_testbed.files.whole_files import write_random
from mrc_testbed.ipc.controller_client import SWITCHES_S
from mrc_testbed.ipc.processes import ASKING_SHARE
from mrc_testbed.topologies.lab.fabric import Fabric

TICK_S = 0.05
HEAL_LIMIT_S = 20.0
"""Longest standstill until one more EV is usable after the transfer, seconds (ipc/patience.py).

Probes come each 0.2 s, and three must answer.
"""
STALL_LIMIT_S = 30.0
"""Standstill after which the transfer has stalled for good, seconds (ipc/patience.py)."""


class DemoWatch(Protocol):
    """Observer of a demonstration; demo/view.py prints to a console."""

    def start(self) -> None: ...

    def note(self, t: float, text: str) -> None: ...

    def update(self, done_bytes: int, status: dict[str, Any], recorder: TimelineRecorder) -> None: ...

    def stop(self) -> None: ...


def transfer_reached(transfer: FollowedTransfer, share: float) -> bool:
    """Return whether the transfer has reached a share; 1.0 means over (SHA-256 of both ends known)."""
    return transfer.is_over or (share < 1.0 and transfer.share >= share)


class DemoRun:
    """Demonstration on a running fabric. Use it as a context manager; call `run` once."""

    def __init__(self, plan: DemoPlan, fabric: Fabric, view: DemoWatch) -> None:
        self.plan, self.fabric, self.view = plan, fabric, view
        self.transfer = FollowedTransfer(fabric, plan.source, plan.destination, view.note)
        self.recorder = self.transfer.recorder
        self.stall_reason = ""
        self._show_at = 0.0
        self.cpu = CpuWatch(fabric.thread_seconds, fabric.processors)

    def __enter__(self) -> DemoRun:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.view.stop()
        self.transfer.close()

    def run(self) -> DemoReport:
        """Send, cut, restore, wait for healing. Raises DemoError and the errors of the fabric and agents."""
        path = self._file()
        tables_before = self.fabric.controller.request("verify", timeout_s=SWITCHES_S, patient=True)
        received = self.fabric.path_for(self.plan.destination, f"{self.plan.destination}-received")
        if self.plan.lab.servers is None:
            self._require_space(received)
        self.cpu.start()
        self.transfer.start(path, received, self.plan.rate_bps)
        self.view.start()
        self._through_the_cuts()
        machine = self.cpu.report()
        self._wait_for_healing()
        return self._report(tables_before, machine)

    def _file(self) -> Path:
        if self.plan.file is not None:
            return self.plan.file
        path = self.fabric.run_dir.data / f"{self.plan.source}-random"
        self._require_space(path)
        write_random(path, self.plan.size)
        return path

    def _require_space(self, path: Path) -> None:
        size = self.plan.size
        free_bytes = shutil.disk_usage(path.parent).free
        if free_bytes < size * 1.05:
            raise DemoError(
                f"{path.parent} has {free_bytes >> 20} MiB free and {size >> 20} MiB are needed for {path.name}: "
                "set MRC_RUN_DIR to a folder with room, or send a smaller file"
            )

    def _through_the_cuts(self) -> None:
        """Cut and restore each link at its share of the file, and follow the transfer to its end."""
        transfer = self.transfer
        for link, down_at, up_at in self.plan.cuts:
            self._follow_to(down_at)
            if transfer.is_over or self.stall_reason:
                return
            cut = transfer.cut(link)
            self._follow_to(up_at)
            transfer.restore(cut)
        self._follow_to(1.0)

    def _follow_to(self, share: float) -> None:
        standstill = self.transfer.standstill(STALL_LIMIT_S)
        while not self.stall_reason and not transfer_reached(self.transfer, share):
            self._tick()
            if standstill.is_over(self.transfer.done_bytes):
                self.stall_reason = f"nothing was acknowledged for {STALL_LIMIT_S:g} s and more"

    def _tick(self) -> None:
        """Take what agents and controller reported, show it, wait for the rest of a tick."""
        deadline = time.monotonic() + TICK_S
        self.transfer.poll()
        if time.monotonic() >= self._show_at:
            began = time.monotonic()
            self.view.update(self.transfer.done_bytes, self.transfer.agent.status(), self.recorder)
            # The picture must not cost a slow sender its time.
            self._show_at = time.monotonic() + ASKING_SHARE * (time.monotonic() - began)
        time.sleep(max(0.0, deadline - time.monotonic()))

    # ---- after ------------------------------------------------------------------------------------------

    def _wait_for_healing(self) -> None:
        usable_count, standstill = -1, self.transfer.standstill(HEAL_LIMIT_S)
        while not self.recorder.all_usable:
            usable_count = max(usable_count, self.recorder.count_usable)
            if standstill.is_over(usable_count):
                break
            self._tick()
        self._tick()

    def _report(self, tables_before: dict[str, Any], machine: dict[str, Any]) -> DemoReport:
        outcome = self.transfer.outcome or {}
        seconds = outcome.get("duration_s") or 0.0
        report = DemoReport(self.plan, seconds)
        report.sha256_sent = outcome.get("sha256") or ""
        report.sha256_received = outcome.get("remote_sha256") or ""
        report.machine = machine
        report.longest_gap_s = self.recorder.progress.longest_gap()
        report.cuts = [self.recorder.story(cut) for cut in self.recorder.cuts]
        counters = outcome.get("counters", {})
        report.counters = {key: counters.get(key, 0) for key in ("sent", "retransmitted", "lost")}
        tables_after = self.fabric.controller.request("verify", timeout_s=SWITCHES_S, patient=True)
        report.checks = list(self._checks(report, outcome, tables_before, tables_after))
        return report

    def _checks(
        self, report: DemoReport, outcome: dict[str, Any], tables_before: dict[str, Any], tables_after: dict[str, Any]
    ) -> Iterator[tuple[str, bool, str]]:
        equal = bool(report.sha256_sent) and report.sha256_sent == report.sha256_received
        yield "every byte arrived", equal, f"SHA-256 {report.sha256_received[:16] or 'missing'}..."
        error = self.stall_reason or outcome.get("error")
        gap = f"longest time without an acknowledged byte {report.longest_gap_s * 1000:.0f} ms"
        yield "the transfer never stalled for good", not error, error or gap
        yield (
            "both links were cut while bytes were flowing",
            len(self.recorder.cuts) == len(self.plan.cuts),
            f"{len(self.recorder.cuts)} of {len(self.plan.cuts)}",
        )
        for cut in self.recorder.cuts:
            total = len(cut.evs)
            withdrawn_earlier = f", {len(cut.out_before)} of them before the cut" if cut.out_before else ""
            yield (
                f"every EV through {cut.link.name} was withdrawn",
                cut.all_withdrawn,
                f"{len(cut.withdrawn_at)} of {total}{withdrawn_earlier}",
            )
            yield "  and came back", cut.all_back, f"{len(cut.back_at)} of {total}"
        is_unchanged = tables_before["digests"] == tables_after["digests"] and tables_after["unchanged_since_start"]
        yield "no switch table changed", is_unchanged, f"{len(tables_after['digests'])} switches read back and compared"
