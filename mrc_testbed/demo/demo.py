"""`mrc demo`: a file crosses the fabric while links are cut under it; the report says how the paths healed.

The plan of the show, by share of the file acknowledged: a T0-T1 link on the way goes down and comes back, then a
NIC-T0 link of the receiver does. The load is paced so that there is traffic before, during and after each cut.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from mrc_testbed.demo.display import DemoDisplay
from mrc_testbed.demo.report import DemoReport
from mrc_testbed.demo.transfer_monitor import FollowedTransfer
from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.live.cpu import CpuWatch
from mrc_testbed.files.whole_files import write_random
from mrc_testbed.ipc.controller_client import SWITCHES_S
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.open_fabric import open_fabric
from mrc_testbed.topologies.lab.targets import check_wires
from mrc_testbed.topologies.plan import Link, Plan
from mrc_testbed.topologies.servers import Servers

DEFAULT_BYTES = {"fast": 64 << 20, "scapy": 6 << 20}
"""Random bytes sent when no file is given, by NIC: a scapy packet costs a hundred times as much."""
MIN_BYTES = 4 << 20
"""A smaller file would not put packets on every path while a link is cut."""
SHOW_S = 10.0
"""The default offered load makes the file last about this long, seconds ..."""
MAX_RATE_BPS = {"fast": 100e6, "scapy": 5e6}
"""... but is never more than this, bits/s: the point is to look, `mrc bench mrc` is for speed."""
CUTS = ((0.15, 0.38), (0.50, 0.74))
"""Share of the file at which each link goes down and comes back."""
TICK_S = 0.05
HEAL_LIMIT_S = 20.0
"""Longest wait for one more EV to be usable after the transfer, seconds: probes come each 0.2 s, three must answer."""
STALL_LIMIT_S = 30.0
"""The transfer has stalled for good when nothing is acknowledged for this long, seconds."""


@dataclass(frozen=True)
class Options:
    """Options of `mrc demo`."""

    plan: Plan
    file: Path | None = None
    rate_bps: float | None = None
    target: str = "embedded"
    nic: str = "fast"
    wires: str | None = None
    servers: Servers | None = None
    source: str = "h0"


class DemoError(UsageError):
    """The demonstration cannot run with these options; the message names the cure."""


def check(options: Options) -> None:
    """Refuse what cannot work before anything is made. Raises DemoError, and FabricError for wires."""
    plan = options.plan
    check_wires(options.target, options.wires)
    if plan.racks < 2:
        raise DemoError("the demo sends to a host in another rack: give --racks 2 or more")
    if plan.planes < 2:
        raise DemoError("the demo cuts a NIC-T0 link; with one plane no path would be left: give --planes 2 or more")
    if options.file is None:
        return
    try:
        size = options.file.stat().st_size
        with options.file.open("rb"):
            pass
    except OSError as error:
        raise DemoError(f"cannot read {options.file}: {error.strerror}") from error
    if not options.file.is_file():
        raise DemoError(f"{options.file} is not a regular file")
    if size < MIN_BYTES:
        raise DemoError(
            f"{options.file} has {size:,} bytes; the demo needs {MIN_BYTES >> 20} MiB or more to have packets on every "
            "path while links are cut (without --file it sends 64 MiB of random bytes)"
        )


def run(options: Options, console: Console) -> DemoReport:
    """Bring the fabric up, give the show, take it down. Raises DemoError and the errors of the fabric and agents."""
    check(options)
    with open_fabric(
        options.plan,
        target=options.target,
        wires=options.wires,
        servers=options.servers,
        nic=options.nic,
        console=console,
    ) as fabric:
        show = _Show(options, fabric, console)
        try:
            report = show.run()
        finally:
            show.close()
    show.display.report(report)
    return report


def links_to_cut(plan: Plan, source: str, destination: str) -> tuple[Link, Link]:
    """The T0-T1 link (last T1, plane 1) and the receiver's NIC-T0 link (another plane) that the demo cuts."""
    here, there = plan.host(source), plan.host(destination)
    plane_of_fabric_cut, plane_of_nic_cut = 1 % plan.planes, 2 % plan.planes
    t0, t1 = plan.t0_name(plane_of_fabric_cut, here.rack), plan.t1_name(plane_of_fabric_cut, plan.spines - 1)
    return plan.link(t0, t1), plan.link(destination, plan.t0_name(plane_of_nic_cut, there.rack))


def transfer_reached(transfer: FollowedTransfer, share: float) -> bool:
    """The transfer is that far; 1.0 means over, not only acknowledged (SHA-256 of both ends known)."""
    return transfer.over or (share < 1.0 and transfer.share >= share)


class _Show:
    """One demonstration on a fabric that is up."""

    def __init__(self, options: Options, fabric: Fabric, console: Console) -> None:
        self.options, self.fabric, self.plan = options, fabric, options.plan
        here, there = self.plan.host(options.source), self.plan.first_remote_host(options.source)
        self.display = DemoDisplay(console, self.plan, here.name, there.name)
        self.transfer = FollowedTransfer(fabric, here.name, there.name, self.display.note)
        self.recorder = self.transfer.recorder
        self.stalled = ""
        self.cpu = CpuWatch(fabric.thread_seconds, fabric.processors)
        self.links = links_to_cut(self.plan, here.name, there.name)

    def close(self) -> None:
        self.display.stop()
        self.transfer.close()

    def run(self) -> DemoReport:
        path = self._file()
        size = path.stat().st_size
        tables_before = self.fabric.controller.request("verify", timeout_s=SWITCHES_S, patient=True)
        rate = self.options.rate_bps or min(MAX_RATE_BPS[self.options.nic], size * 8 / SHOW_S)
        received = self.fabric.path_for(self.transfer.there.name, f"{self.transfer.there.name}-received")
        if self.options.servers is None:
            self._require_space(received, size)
        self.cpu.begin()
        self.transfer.start(path, received, rate)
        self.display.start(size, rate)
        self._through_the_cuts()
        machine = self.cpu.report()
        self._wait_for_healing()
        return self._report(tables_before, machine)

    def _file(self) -> Path:
        if self.options.file is not None:
            return self.options.file.resolve()
        path = self.fabric.run_dir.data / f"{self.transfer.here.name}-random"
        size = DEFAULT_BYTES[self.options.nic]
        self._require_space(path, size)
        write_random(path, size)
        return path

    @staticmethod
    def _require_space(path: Path, size: int) -> None:
        free = shutil.disk_usage(path.parent).free
        if free < size * 1.05:
            raise DemoError(
                f"{path.parent} has {free >> 20} MiB free and {size >> 20} MiB are needed for {path.name}: "
                "set MRC_RUN_DIR to a folder with room, or send a smaller file"
            )

    def _through_the_cuts(self) -> None:
        """Cut and restore each link at its share of the file, and follow the transfer to its end."""
        transfer = self.transfer
        for link, (down_at, up_at) in zip(self.links, CUTS, strict=True):
            self._follow_to(down_at)
            if transfer.over or self.stalled:
                return
            cut = transfer.cut(link)
            self._follow_to(up_at)
            transfer.restore(cut)
        self._follow_to(1.0)

    def _follow_to(self, share: float) -> None:
        while not self.stalled and not transfer_reached(self.transfer, share):
            self._tick()
            if time.monotonic() - self.transfer.last_progress_at > STALL_LIMIT_S:
                self.stalled = f"nothing was acknowledged for {STALL_LIMIT_S:g} s"

    def _tick(self) -> None:
        """Take what agents and controller reported, show it, wait for the rest of a tick."""
        until = time.monotonic() + TICK_S
        self.transfer.poll()
        self.display.update(self.transfer.done_bytes, self.transfer.agent.status(), self.recorder)
        time.sleep(max(0.0, until - time.monotonic()))

    # ---- after ------------------------------------------------------------------------------------------

    def _wait_for_healing(self) -> None:
        usable, until = -1, 0.0
        while not self.recorder.all_usable:
            if (count := self.recorder.count_usable) > usable:
                usable, until = count, time.monotonic() + HEAL_LIMIT_S
            if time.monotonic() >= until:
                break
            self._tick()
        self._tick()

    def _report(self, tables_before: dict[str, Any], machine: dict[str, Any]) -> DemoReport:
        transfer, outcome = self.transfer, self.transfer.outcome or {}
        seconds = outcome.get("duration_s") or 0.0
        report = DemoReport(self.plan, transfer.here.name, transfer.there.name, transfer.size, seconds)
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
        self, report: DemoReport, outcome: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
    ) -> Iterator[tuple[str, bool, str]]:
        equal = bool(report.sha256_sent) and report.sha256_sent == report.sha256_received
        yield "every byte arrived", equal, f"SHA-256 {report.sha256_received[:16] or 'missing'}..."
        error = self.stalled or outcome.get("error")
        gap = f"longest time without an acknowledged byte {report.longest_gap_s * 1000:.0f} ms"
        yield "the transfer never stalled for good", not error, error or gap
        yield (
            "both links were cut while bytes were flowing",
            len(self.recorder.cuts) == len(CUTS),
            (f"{len(self.recorder.cuts)} of {len(CUTS)}"),
        )
        for cut in self.recorder.cuts:
            total = len(cut.evs)
            early = f", {len(cut.out_before)} of them before the cut" if cut.out_before else ""
            yield (
                f"every EV through {cut.link.name} was withdrawn",
                cut.all_withdrawn,
                f"{len(cut.withdrawn_at)} of {total}{early}",
            )
            yield "  and came back", cut.all_back, f"{len(cut.back_at)} of {total}"
        same = before["digests"] == after["digests"] and after["unchanged_since_start"]
        yield "no switch table changed", same, f"{len(after['digests'])} switches read back and compared"
