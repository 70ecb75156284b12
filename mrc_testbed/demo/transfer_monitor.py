"""One transfer on a live fabric, followed from outside: started, watched, its links cut and restored.

What `mrc demo` shows and what the scripted resilience tests assert both stand on this; the reading of events is
`timeline.Recorder`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mrc_testbed.demo.timeline import CutRecord, TimelineRecorder
from mrc_testbed.ipc.agent_client import PEER_S, AgentClient, AgentWatch
from mrc_testbed.ipc.controller_client import EventStream
from mrc_testbed.ipc.patience import Standstill
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.plan import Host, Link

POLL_S = 0.05
"""Seconds between readings of events while waiting."""
USABLE_STATES = ("good", "skip")

Note = Callable[[float, str], None]


class FollowedTransfer:
    """A file on its way from one host to another, with the story of every link cut meanwhile.

    `note(t, text)` gets each event in words (rich markup). Close it, or use it as a context manager; the fabric
    stays as it is, so restore what you cut. Raises the errors of the fabric and of the agents.
    """

    def __init__(self, fabric: Fabric, source: str, destination: str, note: Note | None = None) -> None:
        self.fabric, self.plan = fabric, fabric.plan
        self.sender: Host = self.plan.host(source)
        self.receiver: Host = self.plan.host(destination)
        self.recorder = TimelineRecorder(self.plan.evs(self.sender, self.receiver))
        self.size = 0
        self.done_bytes = 0
        self.outcome: dict[str, Any] | None = None
        """The agent's last event of the transfer, once it is done or failed."""
        self._note = note or (lambda _t, _text: None)
        self._transfer = 0
        self.agent = AgentClient(fabric.run_dir.agent_socket(source), works=fabric.works(source))
        self._watches: list[AgentWatch | EventStream] = [self.agent.watch(), fabric.controller.watch()]

    def __enter__(self) -> FollowedTransfer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        for watch in self._watches:
            watch.close()
        self.agent.close()

    def start(self, path: Path, received: Path, rate_bps: float | None = None) -> None:
        """Start to send `path`; it arrives as `received`, a path on the receiver's machine."""
        self.size = path.stat().st_size
        reply = self.agent.send_file(
            self.fabric.bring(self.sender.name, path),
            self.receiver.name,
            dest_path=str(received),
            rate_bps=rate_bps,
            fresh=True,
            timeout_s=PEER_S,
            patient=True,
        )
        self._transfer = reply["transfer"]

    @property
    def is_over(self) -> bool:
        return self.outcome is not None

    @property
    def share(self) -> float:
        """Share of the file acknowledged; 1 when the transfer is over, however it ended."""
        return 1.0 if self.is_over else self.done_bytes / max(1, self.size)

    def poll(self) -> None:
        """Take every event that has come. Raises ProcessError when a process of the fabric has died."""
        self.fabric.check()
        for watch in self._watches:
            while (event := watch.get(0.0)) is not None:
                handler = getattr(self, f"_on_{event['event']}", None)
                if handler is not None:
                    handler(event)

    def standstill(self, quiet_s: float) -> Standstill:
        """Return the judge of whether sender and receiver have stopped (ipc/patience.py)."""
        names = (self.sender.name, self.receiver.name)
        return Standstill(quiet_s, {name: self.fabric.processes[name].work for name in names})

    def wait_until(self, condition: Callable[[], bool], quiet_s: float) -> bool:
        """Handle events until `condition()` holds; return False at a standstill of `quiet_s` seconds."""
        standstill = self.standstill(quiet_s)
        while True:
            self.poll()
            if condition():
                return True
            if standstill.is_over((self.done_bytes, self.is_over, self.recorder.count_usable)):
                return False
            time.sleep(POLL_S)

    def cut(self, link: Link) -> CutRecord:
        """Take a link down, both ends."""
        evs = self.plan.evs_through(self.sender, self.receiver, link)
        self.poll()  # what was withdrawn before is known before
        cut = self.recorder.cut(link, evs, time.monotonic())
        self.fabric.link(link.lower.node, link.upper.node, is_up=False)
        self.recorder.is_down(cut, time.monotonic())
        self._note(cut.cut_at, f"[red]cut[/red] {link.name} (EVs {', '.join(f'{ev:#06x}' for ev in evs) or 'none'})")
        return cut

    def restore(self, cut: CutRecord) -> None:
        """Restore a link, both ends."""
        time_s = time.monotonic()
        self.recorder.restore(cut, time_s)
        self.fabric.link(cut.link.lower.node, cut.link.upper.node, is_up=True)
        self._note(time_s, f"[green]restored[/green] {cut.link.name}")

    # ---- events -----------------------------------------------------------------------------------------

    def _on_progress(self, event: dict[str, Any]) -> None:
        if event["transfer"] != self._transfer or event["bytes_done"] == self.done_bytes:
            return
        self.done_bytes = event["bytes_done"]
        self.recorder.progress.add(event["t"], self.done_bytes)

    def _on_transfer(self, event: dict[str, Any]) -> None:
        if event["transfer"] == self._transfer and event["state"] in ("done", "failed"):
            self.outcome = event

    def _on_lost(self, event: dict[str, Any]) -> None:
        self.recorder.loss(event["ev"], event["t"])

    def _on_ev(self, event: dict[str, Any]) -> None:
        if "host" in event:
            return  # the controller repeats what the agents told it
        good = event["to"] in USABLE_STATES
        self.recorder.ev_state(event["ev"], good, event["t"])
        colour = "green" if good else "yellow"
        self._note(event["t"], f"EV {event['ev']:#06x} [{colour}]{event['to']}[/{colour}]: {event['cause']}")

    def _on_plane(self, event: dict[str, Any]) -> None:
        self.recorder.plane_state(event["peer"] or self.sender.name, event["plane"], event["up"], event["t"])
        host = event["peer"] or self.sender.name
        state = "up again" if event["up"] else "down: its EVs leave the rotation"
        self._note(event["t"], f"plane {event['plane']} at {host} is {state}")

    def _on_port(self, event: dict[str, Any]) -> None:
        if "link" in event:  # the controller's; agents report their own ports as well
            self.recorder.link_seen(event["link"], event["status"] == "UP", event["t"])

    def _on_fault(self, event: dict[str, Any]) -> None:
        if event["change"] != "updated":
            self._note(event["t"], f"controller: {event['fault']['text']} ({event['change']})")
