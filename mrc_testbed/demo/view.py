"""View of `mrc demo`: live picture in a terminal, else one line a second, and the report at the end."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from rich.bar import Bar
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mrc_testbed.console.units import bits
from mrc_testbed.demo.plan import DemoPlan
from mrc_testbed.demo.report import DemoReport
from mrc_testbed.demo.timeline import TimelineRecorder
from mrc_testbed.topologies.plan import ev_plane

LINE_EVERY_S = 1.0
EV_STYLE = {"good": "green", "port down": "yellow", "skip": "cyan", "assumed_bad": "red", "denied": "magenta"}


def delay(seconds: float | None) -> str:
    """Return a delay as `+12 ms`, `+1.23 s` or `never`."""
    if seconds is None:
        return "never"
    return f"+{seconds * 1000:.0f} ms" if abs(seconds) < 1 else f"+{seconds:.2f} s"


def _withdrawn(cut: dict[str, Any]) -> str:
    """Return the delay until the last EV through a cut link was withdrawn, and the number of its EVs.

    EVs that were withdrawn before the cut are counted apart: nothing was sent over them.
    """
    withdrawn_earlier = f", {len(cut['evs_out_before'])} before" if cut["evs_out_before"] else ""
    return f"{delay(cut['evs_withdrawn_after_s'])} ({len(cut['evs'])}{withdrawn_earlier})"


class DemoView:
    """Progress of one demo on a console. Without a terminal it prints lines; it never needs one."""

    def __init__(self, console: Console, plan: DemoPlan) -> None:
        self.console, self.plan = console, plan
        self.start_s = time.monotonic()
        self._display: Live | None = None
        self._last_line_at = 0.0
        self._planes: deque[tuple[float, list[int]]] = deque(maxlen=12)

    def start(self) -> None:
        """Print the start of the transfer."""
        self.start_s = time.monotonic()
        self.console.print(f"sending {self.plan.size:,} bytes at {bits(self.plan.rate_bps)}: {self.plan}")
        if self.console.is_terminal:
            self._display = Live(console=self.console, auto_refresh=False, transient=True)
            self._display.start()

    def stop(self) -> None:
        if self._display is not None:
            self._display.stop()
            self._display = None

    def note(self, t: float, text: str) -> None:
        """Print an event at CLOCK_MONOTONIC `t`; `text` may carry rich markup."""
        self.console.print(f"{t - self.start_s:7.3f} s  {text}", soft_wrap=True)

    def update(self, done_bytes: int, status: dict[str, Any], recorder: TimelineRecorder) -> None:
        """Show bytes done, rate of each plane, state of each EV."""
        now = time.monotonic()
        self._planes.append((now, [port["tx_bytes"] for port in status["ports"].values()]))
        evs: list[dict[str, Any]] = next((qp["evs"] for qp in status["qps"]), [])
        if self._display is not None:
            self._display.update(self._picture(done_bytes, evs, recorder), refresh=True)
        elif now - self._last_line_at >= LINE_EVERY_S:
            self._last_line_at = now
            usable_count = sum(recorder.usable(ev) for ev in recorder.evs)
            rates = " ".join(bits(rate) for rate in self._plane_rates())
            share = 100 * done_bytes / self.plan.size
            self.console.print(
                f"{now - self.start_s:7.3f} s  {share:5.1f} %  planes {rates}  "
                f"EVs usable {usable_count}/{len(recorder.evs)}"
            )

    def _plane_rates(self) -> list[float]:
        if len(self._planes) < 2:
            return [0.0] * self.plan.fabric.planes
        (t0, first), (t1, last) = self._planes[0], self._planes[-1]
        return [(b - a) * 8 / (t1 - t0) for a, b in zip(first, last, strict=True)]

    def _picture(self, done_bytes: int, evs: list[dict[str, Any]], recorder: TimelineRecorder) -> Panel:
        bar, size = Table.grid(padding=(0, 1)), self.plan.size
        bar.add_row(
            ProgressBar(total=size, completed=done_bytes, width=50),
            f"{100 * done_bytes / size:5.1f} %  {done_bytes >> 20} of {size >> 20} MiB",
        )
        table = Table("plane", "rate sent", "", "EVs (uplinks)", box=None, padding=(0, 2))
        full_scale_bps = max(self.plan.rate_bps / max(1, self.plan.fabric.planes - 1), 1.0) * 1.3
        for plane, rate in enumerate(self._plane_rates()):
            cells = Text()
            for ev in (row for row in evs if ev_plane(row["ev"]) == plane):
                plane_down = ev["state"] == "good" and not recorder.usable(ev["ev"])
                state = "port down" if plane_down else ev["state"]
                cells.append(f"{ev['ev']:#06x} {state}  ", style=EV_STYLE.get(state, ""))
            table.add_row(
                str(plane), f"{bits(rate):>12}", Bar(full_scale_bps, 0, min(rate, full_scale_bps), width=30), cells
            )
        return Panel(Group(bar, table), title=str(self.plan))

    # ---- the report -------------------------------------------------------------------------------------

    def report(self, report: DemoReport) -> None:
        """Print the report of a finished demo."""

        def show(content: Any = "", *, soft_wrap: bool = False) -> None:
            self.console.print(content, soft_wrap=soft_wrap)

        show()
        show(
            f"{report.plan.size:,} bytes in {report.seconds:.2f} s ({bits(report.goodput_bps)}); "
            + ", ".join(f"{count:,} packets {event}" for event, count in report.counters.items())
        )
        show(f"SHA-256 sent      {report.sha256_sent}", soft_wrap=True)
        show(f"SHA-256 received  {report.sha256_received}", soft_wrap=True)
        show(f"CPU: {report.machine['needed']}")
        show()
        show(self._timeline(report))
        show()
        for condition, ok, value in report.checks:
            show(f"{'[green]ok  [/green]' if ok else '[red]FAIL[/red]'}  {condition} ({value})")
        for note in report.machine["notes"]:
            show(f"[yellow]note[/yellow]  {note}")
        verdict = "[green]passed[/green]" if report.passed else "[red]failed[/red]"
        show(f"\ndemo {verdict}")

    def _timeline(self, report: DemoReport) -> Table:
        table = Table(title="timeline of the cuts", title_justify="left")
        table.add_column("")
        for cut in report.cuts:
            table.add_column(cut["link"], justify="right")
        # One row a fact, one column a cut.
        rows = (
            ("cut at", lambda c: f"{c['cut_at_s'] - self.start_s:.2f} s"),
            ("  down within", lambda c: delay(c["down_within_s"])),
            ("  controller saw it", lambda c: delay(c["controller_saw_down_after_s"])),
            ("  first loss noticed", lambda c: delay(c["first_loss_after_s"]) if c["lost_packets"] else "no loss"),
            ("  EVs withdrawn", _withdrawn),
            ("  rate before", lambda c: bits(c["rate_before_bps"])),
            ("  lowest rate (0.2 s)", lambda c: bits(c["rate_lowest_bps"])),
            (
                "  rate back",
                lambda c: "never left" if c["rate_back_after_s"] == 0 else delay(c["rate_back_after_s"]),
            ),
            ("  packets lost", lambda c: f"{c['lost_packets']:,}"),
            (
                "restored at",
                lambda c: f"{c['restored_at_s'] - self.start_s:.2f} s" if c["restored_at_s"] else "never",
            ),
            ("  controller saw it", lambda c: delay(c["controller_saw_up_after_s"])),
            ("  EVs back", lambda c: delay(c["evs_back_after_s"])),
        )
        for name, cell in rows:
            table.add_row(name, *(cell(cut) for cut in report.cuts))
        return table
