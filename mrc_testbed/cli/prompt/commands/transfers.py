"""Commands that send files: send, wait; and the transfers, each followed by a thread that reports."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrc_testbed.cli.prompt.commands.base import (
    SEND,
    Args,
    CliSession,
    CommandError,
    ShowProgress,
    arguments,
    command,
    host,
    two_hosts_then,
)
from mrc_testbed.console.progress import Progress
from mrc_testbed.console.units import UnitError
from mrc_testbed.console.units import rate as rate_of
from mrc_testbed.console.units import size as size_of
from mrc_testbed.files.whole_files import write_random
from mrc_testbed.ipc.agent_client import PEER_S
from mrc_testbed.ipc.rpc import JsonlError, Watch
from mrc_testbed.ipc.rundir import HostOffError

if TYPE_CHECKING:
    from mrc_testbed.topologies.lab.fabric import Fabric

DEFAULT_SEND = "64M"
PROGRESS_STEP = 0.25
"""Share of a transfer between two lines about it."""
FOLLOWERS_MAX = 50
"""Transfers that are remembered."""
TRANSPORTS = ("mrc", "rocev2")
WAIT_S = 10.0
"""Duration of `wait`, an estimate for the first time, seconds."""
WAIT_PERIOD_S = 0.25
"""Time between two looks at the transfers that are waited for, seconds."""
SHOWN_MAX = 4
"""Transfers that `wait` names one by one."""


@command("send", SEND, complete=two_hosts_then("64M", "--rocev2"))
def send(session: CliSession, args: Args) -> None:
    """Send random bytes or a file from host to host, in the background.

    send h0 h2                    64 MiB
    send h0 h2 16M                that many bytes (K, M, G are powers of 1024)
    send h0 h2 ./model.bin        a file
    send h0 h2 1G 40M             at 40 Mb/s
    send h0 h2 64M --rocev2       by the baseline: RoCEv2 RC over a single path
    """
    assert session.transfers is not None
    session.transfers.start(args)


@command("wait", SEND)
def wait(session: CliSession, args: Args) -> str | None:
    """Wait until every transfer begun with `send` has ended, and show how far each one is.

    wait
    """
    arguments(args, "wait", 0)
    assert session.transfers is not None
    running = running_transfers(session.transfers.progress())
    if not running and not (failed := session.transfers.wait()):
        return "no transfer is running"
    if running:
        print(f"waiting for {waiting_text(running)}", file=session.out, flush=True)
        size = sum(transfer["bytes"] for transfer in running)
        with session.progress("wait", WAIT_S, size) as progress:
            failed = session.transfers.wait(partial(_show_waiting, progress, size), progress.note)
    if failed:
        raise CommandError(f"{failed} of the transfers failed")
    return None


def running_transfers(transfers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of `BackgroundTransfers.progress` that have not ended."""
    return [transfer for transfer in transfers if transfer["state"] == "running"]


def waiting_text(running: list[dict[str, Any]]) -> str:
    """Text on running transfers: number, ends and the share that has arrived of each."""
    texts = [
        f"{transfer['name']} ({transfer['from']} to {transfer['to']}): {_share_done(transfer):.0%}"
        for transfer in running[:SHOWN_MAX]
    ]
    return ", ".join(texts) + (f" and {len(running) - SHOWN_MAX} more" if len(running) > SHOWN_MAX else "")


def _share_done(transfer: dict[str, Any]) -> float:
    return float(transfer["bytes_done"] / transfer["bytes"]) if transfer["bytes"] else 0.0


def _show_waiting(progress: Progress, size: int, transfers: list[dict[str, Any]]) -> None:
    """Update the line at the terminal; `size`: bytes of all transfers that ran when the wait began."""
    if running := running_transfers(transfers):
        rest_bytes = sum(transfer["bytes"] - transfer["bytes_done"] for transfer in running)
        progress.share(1 - rest_bytes / size if size else 0.0, f"waiting for {waiting_text(running)}")


class Transfers:
    """Transfers begun with `send`, each followed by a thread that reports on it.

    `say` answers a command; `tell` is for what happens later (and during `wait`, which asks for it, `say` is).
    """

    def __init__(self, fabric: Fabric, print_text: Callable[[str], None], notify: Callable[[str], None]) -> None:
        self._fabric = fabric
        self._print_text = print_text
        self._notify = notify
        self._is_waited_for = False
        self._note: Callable[[str], None] | None = None
        """Print a line beside the progress of `wait`; None: none is shown."""
        self._followers: deque[_Follower] = deque(maxlen=FOLLOWERS_MAX)
        self._running: dict[threading.Thread, Watch] = {}
        self._count = 0
        self._failed = 0

    def start(self, args: Args) -> None:
        """Start `send HOST HOST [SIZE|FILE] [RATE] [--rocev2]`.

        Raises CommandError; refusals of the agent as JsonlError.
        """
        usage = "send HOST HOST [SIZE|FILE] [RATE] [--rocev2], as in: send h0 h2 64M 40M"
        transport = next((name for name in TRANSPORTS if f"--{name}" in args), None)
        args = [text for text in args if text not in [f"--{name}" for name in TRANSPORTS]]
        if unknown := [text for text in args if text.startswith("--")]:
            raise CommandError(f"no option {unknown[0]!r} (has: --rocev2): {usage}")
        args = arguments(args, usage, 2, 4)
        source, destination = (host(self._fabric.plan, name) for name in args[:2])
        for name in (source, destination):
            if name in self._fabric.nodes_off:
                raise HostOffError(name)
        if source == destination:
            raise CommandError(f"{source} cannot send to itself: {usage}")
        rate = None
        if len(args) == 4:
            rate = rate_of(args[3])
            if rate < 1:
                raise CommandError(f"rate {args[3]!r}: give 1 bit/s or more, such as 500K, 40M or 1G")
        self._count += 1
        path, is_ours = self._file(args[2] if len(args) > 2 else DEFAULT_SEND)
        try:
            self._launch(source, destination, path, is_ours, rate, transport)
        except BaseException:
            if is_ours:
                path.unlink(missing_ok=True)
            raise

    def wait(self, show: ShowProgress | None = None, note: Callable[[str], None] | None = None) -> int:
        """Wait for all; return the number that failed since the last call. `show` gets the progress."""
        self._is_waited_for, self._note = True, note
        try:
            for thread in list(self._running):
                while thread.is_alive():
                    thread.join(WAIT_PERIOD_S)
                    if show is not None:
                        show(self.progress())
        finally:
            self._is_waited_for, self._note = False, None
        failed, self._failed = self._failed, 0
        return failed

    def progress(self) -> list[dict[str, Any]]:
        """Return the latest transfers, also ended ones: label, name, from, to, bytes, bytes_done, state.

        The state is `running`, `done` or `failed`.
        """
        return [follower.to_json() for follower in list(self._followers)]

    def close(self) -> None:
        """Stop following. Idempotent."""
        for thread, watch in list(self._running.items()):
            watch.close()
            thread.join()

    def _report(self, text: str) -> None:
        (self._note or self._print_text if self._is_waited_for else self._notify)(text)

    def _file(self, argument: str) -> tuple[Path, bool]:
        """The file to send, and whether it is a temporary one of ours."""
        size = _size(argument)
        if size is None:
            path = Path(argument).expanduser().absolute()
            if not path.is_file():
                raise CommandError(f"{argument!r} is neither a file nor a size such as 4096, 16M or 1G")
            return path, False
        path = self._fabric.run_dir.data / f"send-{self._count}"
        disk = os.statvfs(path.parent)
        if size * 2 > disk.f_bavail * disk.f_frsize:
            raise CommandError(f"{path.parent} has no room for two copies of {size:,} bytes: send less, or a file")
        write_random(path, size)
        return path, True

    def _launch(
        self, source: str, destination: str, path: Path, is_ours: bool, rate: float | None, transport: str | None
    ) -> None:
        agent = self._fabric.agent(source)
        sent_path = self._fabric.bring(source, path)
        fields: dict[str, Any] = {"path": str(sent_path), "peer": destination}
        if rate is not None:
            fields["rate_bps"] = rate
        if transport is not None:
            fields["transport"] = transport
        watch = agent.watch()
        try:
            transfer = agent.request("send_file", timeout_s=PEER_S, patient=True, **fields)["transfer"]
        except BaseException:
            watch.close()
            if sent_path != path:
                self._fabric.discard(source, sent_path)
            raise
        transport_text = f", {transport}" if transport else ""
        size = path.stat().st_size
        name = f"send {self._count}"
        label = f"{name} ({source} to {destination}, {size:,} bytes{transport_text})"
        self._print_text(f"{label}: begun")
        ends = {"name": name, "from": source, "to": destination}
        follower = _Follower(label, ends, transfer, size, watch, self._report)
        self._followers.append(follower)

        def run() -> None:
            if not follower.run():
                self._failed += 1
            if sent_path != path:
                self._fabric.discard(source, sent_path)
            if is_ours:  # random bytes, at either end of no further use
                path.unlink(missing_ok=True)
                if follower.remote_path is not None:
                    self._fabric.discard(destination, follower.remote_path)
            self._running.pop(thread, None)
            watch.close()

        thread = threading.Thread(target=run, name=label, daemon=True)
        self._running[thread] = watch
        thread.start()


class _Follower:
    """Report on one transfer, from its agent's events."""

    def __init__(
        self,
        label: str,
        ends: dict[str, str],
        transfer: int,
        size: int,
        watch: Watch,
        report: Callable[[str], None],
    ) -> None:
        self.label, self.ends, self.transfer, self.size = label, ends, transfer, size
        self.watch, self.report = watch, report
        self.began = time.monotonic()
        self.next_share = PROGRESS_STEP
        self.outcome = ""
        """Line about its end; empty until then."""
        self.bytes_done = 0
        self.state = "running"
        """`running`, `done` or `failed`."""
        self.remote_path: Path | None = None
        """Description of the destination of the bytes, once they have arrived."""

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            **self.ends,
            "bytes": self.size,
            "bytes_done": self.bytes_done,
            "state": self.state,
            "outcome": self.outcome,
        }

    def run(self) -> bool:
        """Follow the transfer until it ends or the watch is closed; whether the bytes arrived."""
        try:
            while True:
                event = self.watch.get()
                assert event is not None
                if event.get("transfer") != self.transfer:
                    continue
                if event["event"] == "transfer" and event["state"] in ("done", "failed"):
                    self.state = event["state"]
                    return self._report_end(event)
                if event["event"] == "progress":
                    self._progress(event)
        except JsonlError as error:
            self.state, self.outcome = "failed", f"{self.label}: no more news: {error}"
            self.report(self.outcome)
            return False

    def _progress(self, event: dict[str, Any]) -> None:
        self.bytes_done = event["bytes_done"]
        share = event["bytes_done"] / self.size if self.size else 1.0
        if self.next_share <= share < 1.0:
            self.report(f"{self.label}: {share:.0%} after {event['t'] - self.began:.1f} s")
            self.next_share = (share // PROGRESS_STEP + 1) * PROGRESS_STEP

    def _report_end(self, event: dict[str, Any]) -> bool:
        if event["state"] == "failed":
            self.outcome = f"{self.label}: failed after {event['t'] - self.began:.1f} s: {event['error']}"
            self.report(self.outcome)
            return False
        self.remote_path = Path(event["remote_path"])
        self.bytes_done = self.size
        counters = event["counters"]
        rate = f", {event['goodput_bps'] / 1e6:.0f} Mb/s" if event["goodput_bps"] else ""
        self.outcome = (
            f"{self.label}: arrived bit for bit in {event['duration_s']:.2f} s{rate}; "
            f"{counters.get('lost', 0)} packets lost, {counters.get('retransmitted', 0)} retransmitted"
        )
        self.report(self.outcome)
        return True


def _size(text: str) -> int | None:
    """Bytes of a size such as `16M`; None for any other text, which may be a file."""
    try:
        value = size_of(text)
    except UnitError:
        return None
    return value if 0 < value < 2**50 else None
