"""What the MRC words of the CLI do: each takes a fabric and arguments and gives text; tests need no terminal.

Every mistake raises an error whose text is one line with what would have worked: UsageError here, PlanError for
names, FabricError and JsonlError for what the fabric cannot do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any

from topologies import processes
from topologies.jsonl import JsonlError, Watch
from topologies.net import Fabric
from topologies.plan import Plan, PlanError, ev_plane

WORDS = ("link", "links", "power", "evs", "faults", "routes", "send", "wait", "bw", "lat", "mping", "stat", "pcap")
DEFAULT_SEND = "64M"
SIZE_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
RATE_UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}
INTERRUPTED = 130
"""Exit code of a tool after Ctrl-C."""
PCAP_S = 5
"""How long `pcap` captures when not told otherwise, seconds."""
PROGRESS_STEP = 0.25
"""Share of a transfer between two lines about it."""
VERIFY_TIMEOUT_S = 60.0


class UsageError(Exception):
    """A word was not used as it must be; the text says how."""


def arguments(given: Sequence[str], usage: str, low: int, high: int | None = None) -> Sequence[str]:
    """`given` when its number is right. Raises UsageError."""
    if not low <= len(given) <= (low if high is None else high):
        raise UsageError(f"usage: {usage}")
    return given


def _known(plan: Plan, name: str) -> str:
    """`name` when it is a node. Raises UsageError with the names that look like it."""
    names = [node.name for node in (*plan.hosts, *plan.switches)]
    if name not in names:
        close = get_close_matches(name, names, n=3)
        hint = f"did you mean {', '.join(close)}?" if close else f"has {names[0]} ... {names[-1]}"
        raise UsageError(f"no node {name!r} ({hint})")
    return name


def _host(plan: Plan, name: str) -> str:
    if name not in {host.name for host in plan.hosts}:
        raise UsageError(f"no host {name!r} (has: {plan.hosts[0].name} ... {plan.hosts[-1].name})")
    return name


def neighbours(plan: Plan, name: str) -> list[str]:
    """Nodes linked to `name`, in port order; none for an unknown name."""
    return list(dict.fromkeys(n for link in plan.links if name in link.ends for n in sorted(link.ends - {name})))


# ---- links and switches ---------------------------------------------------------------------------------------


def link(fabric: Fabric, given: Sequence[str]) -> str:
    """`link A B up|down`."""
    a, b, state = arguments(given, "link NODE NODE up|down, as in: link p1-t0-0 p1-t1-1 down", 3)
    if state not in ("up", "down"):
        raise UsageError(f"up or down, not {state!r}: link {a} {b} up|down")
    _known(fabric.plan, a), _known(fabric.plan, b)
    fabric.link(a, b, up=state == "up")
    one = fabric.plan.link(a, b)
    if state == "up" and not fabric.link_is_up(one):
        off = [n for n in one.ends if n in fabric.switches and not fabric.switches[n].powered]
        return f"{one.name} will be up when {' and '.join(off)} has power" if off else f"{one.name} has no carrier"
    return f"{one.name} is {state}"


def links(fabric: Fabric, given: Sequence[str]) -> str:
    """`links [NODE]`: a line for each link."""
    arguments(given, "links [NODE]", 0, 1)
    of_node = _known(fabric.plan, given[0]) if given else None
    chosen = [one for one in fabric.plan.links if of_node is None or of_node in one.ends]
    states = [(one, fabric.link_is_up(one)) for one in chosen]
    lines = [f"plane {one.plane}  {one.name:<22} {'up' if up else 'DOWN'}" for one, up in states]
    return "\n".join([*lines, f"{sum(up for _, up in states)} of {len(states)} links are up"])


def power(fabric: Fabric, given: Sequence[str]) -> str:
    """`power SWITCH on|off`."""
    name, state = arguments(given, "power SWITCH on|off, as in: power p1-t1-0 off", 2)
    if state not in ("on", "off"):
        raise UsageError(f"on or off, not {state!r}: power {name} on|off")
    if name not in fabric.switches:
        close = get_close_matches(name, fabric.switches, n=3) or list(fabric.switches)[:3]
        raise UsageError(f"no switch {name!r} (did you mean {', '.join(close)}?)")
    if fabric.switches[name].powered == (state == "on"):
        return f"{name} is {state} already"
    fabric.power(name, state == "on")
    return f"{name} is {state}"


# ---- what hosts and controller know ---------------------------------------------------------------------------


def evs(fabric: Fabric, given: Sequence[str]) -> str:
    """`evs A B`: the EV table of each live QP of A towards B."""
    given = arguments(given, "evs HOST HOST, as in: evs h0 h2", 2)
    source, destination = (_host(fabric.plan, name) for name in given)
    status = fabric.agent(source).request("status")
    qps = [qp for qp in status["qps"] if qp["peer"] == destination]
    if not qps:
        raise UsageError(f"{source} has no QP with {destination} now: `send {source} {destination} 16M` makes one")
    out = []
    for qp in qps:
        out.append(f"QP {qp['qpn']:#x} of {source} to {destination}")
        out += [_ev_line(fabric.plan, source, destination, one) for one in qp["evs"]]
    return "\n".join(out)


def _ev_line(plan: Plan, source: str, destination: str, one: dict[str, Any]) -> str:
    try:
        path = " ".join(plan.path(plan.host(source), plan.host(destination), one["ev"]).nodes[1:-1])
    except PlanError:
        path = "(no path of the plan)"
    return f"  EV {one['ev']:#06x}  plane {ev_plane(one['ev'])}  {one['state']:<12} {path}"


def faults(fabric: Fabric) -> str:
    """`faults`: the controller's list, newest last."""
    known = fabric.controller.request("faults")["faults"]
    now = time.monotonic()
    lines = []
    for fault in known:
        since = f"{now - fault['first_seen']:.1f} s ago"
        lines.append(f"{fault['number']:>3}  {fault['state']:<8} {fault['text']}  (first seen {since})")
    active = sum(fault["state"] == "active" for fault in known)
    return "\n".join([*lines, f"{active} active, {len(known) - active} past"])


def routes(fabric: Fabric) -> str:
    """`routes`: read back and compare. Raises UsageError when a table differs."""
    answer = fabric.controller.request("verify", timeout_s=VERIFY_TIMEOUT_S)
    differences = answer.get("differences", [])
    if differences or not answer["unchanged_since_start"]:
        shown = "; ".join(str(one) for one in differences[:5]) or "digests differ from those at the start"
        raise UsageError(f"switch tables differ from what was written: {shown}")
    return f"tables of {len(answer['digests'])} switches read back: unchanged since the start"


# ---- tools in the hosts ---------------------------------------------------------------------------------------

TOOLS = {"bw": "write_bw", "lat": "write_lat", "mping": "ping", "stat": "stat"}
"""Word -> module of hosts.tools."""


def tool(fabric: Fabric, word: str, given: Sequence[str], out: IO[str]) -> None:
    """`bw HOST HOST [OPTIONS]` and the like: run the tool and copy what it says to `out` as it comes.

    Ctrl-C is for the tool, which then tells what it has so far. Raises UsageError when it failed.
    """
    if word != "stat" and "-h" not in given and "--help" not in given:
        usage = f"{word} HOST HOST [OPTIONS], as in: {word} h0 h2 (`{word} --help` shows all)"
        source, destination, *options = arguments(given, usage, 2, 99)
        given = ["--from", _host(fabric.plan, source), *options, _host(fabric.plan, destination)]
    argv = [sys.executable, "-m", f"hosts.tools.{TOOLS[word]}", "--run-dir", str(fabric.run_dir.path), *given]
    _run(fabric, word, argv, out, cwd=processes.ROOT)


def pcap(fabric: Fabric, given: Sequence[str], out: IO[str]) -> None:
    """`pcap PORT|NODE [OPTIONS]`: `mrc pcap` on this fabric, for PCAP_S seconds unless told. Raises UsageError."""
    if not {"-h", "--help", "--count", "--seconds"} & {word.partition("=")[0] for word in given}:
        usage = "pcap PORT|NODE [OPTIONS], as in: pcap p1-t0-0-eth3 --count 100 (`pcap --help` shows all)"
        given = [*arguments(given, usage, 1, 99), "--seconds", str(PCAP_S)]
    where = {"MRC_RUN_DIR": str(fabric.run_dir.path), "PYTHONPATH": str(processes.ROOT)}
    _run(fabric, "pcap", [sys.executable, "-m", "testbed.cli", "pcap", *given], out, env=where)


def _run(
    fabric: Fabric, word: str, argv: Sequence[str], out: IO[str], *, cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> None:  # fmt: skip
    """Run a command of ours and copy what it says to `out` as it comes. Raises UsageError when it failed."""
    running = processes.popen(
        argv, fabric.run_dir.state.token, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "120", **(env or {})},
    )  # fmt: skip
    try:
        code = _copy(running, out)
    except BaseException:
        running.kill()
        raise
    finally:
        if running.stdout is not None:
            running.stdout.close()
        running.wait()
    if code not in (0, INTERRUPTED):
        raise UsageError(f"{word}: ended with exit code {code}")


def _copy(running: subprocess.Popen[str], out: IO[str]) -> int:
    """Copy what a process says until it ends; its exit code. In a session of its own, it gets our Ctrl-C once."""
    while True:
        try:
            for line in running.stdout or ():
                out.write(line)
                out.flush()
            return running.wait()
        except KeyboardInterrupt:
            running.send_signal(signal.SIGINT)


# ---- transfers ------------------------------------------------------------------------------------------------


def parse_number(text: str, units: dict[str, int]) -> float | None:
    """`16M` -> the number with its unit, or None when it is no positive number with a unit of those."""
    unit = units.get(text[-1:].upper(), 1)
    digits = text[:-1] if text[-1:].upper() in units else text
    try:
        value = float(digits) * unit
    except ValueError:
        return None
    return value if 0 < value < 2**50 else None


class Transfers:
    """The transfers begun with `send`: each is followed by a thread that says how it goes."""

    def __init__(self, fabric: Fabric, say: Callable[[str], None]) -> None:
        self._fabric = fabric
        self._say = say
        self._running: dict[threading.Thread, Watch] = {}
        self._count = 0
        self._failed = 0

    def begin(self, given: Sequence[str]) -> None:
        """`send HOST HOST [SIZE|FILE] [RATE]`. Raises UsageError; refusals of the agent as JsonlError."""
        usage = "send HOST HOST [SIZE|FILE] [RATE], as in: send h0 h2 64M 40M"
        given = arguments(given, usage, 2, 4)
        source, destination = (_host(self._fabric.plan, name) for name in given[:2])
        if source == destination:
            raise UsageError(f"{source} cannot send to itself: {usage}")
        rate = None
        if len(given) == 4 and (rate := parse_number(given[3], RATE_UNITS)) is None:
            raise UsageError(f"rate {given[3]!r}: give bits/s, such as 500K, 40M or 1G")
        self._count += 1
        path, is_ours = self._file(given[2] if len(given) > 2 else DEFAULT_SEND)
        try:
            self._launch(source, destination, path, is_ours, rate)
        except BaseException:
            if is_ours:
                path.unlink(missing_ok=True)
            raise

    def wait(self) -> int:
        """Wait for all; returns how many failed since the last time."""
        for thread in list(self._running):
            thread.join()
        failed, self._failed = self._failed, 0
        return failed

    def close(self) -> None:
        """Stop following. Idempotent."""
        for thread, watch in list(self._running.items()):
            watch.close()
            thread.join()

    def _file(self, what: str) -> tuple[Path, bool]:
        """The file to send, and whether it is a temporary one of ours."""
        size = parse_number(what, SIZE_UNITS)
        if size is None:
            path = Path(what).expanduser().absolute()
            if not path.is_file():
                raise UsageError(f"{what!r} is neither a file nor a size such as 4096, 16M or 1G")
            return path, False
        path = self._fabric.run_dir.data / f"send-{self._count}"
        left = int(size)
        free = os.statvfs(path.parent)
        if left * 2 > free.f_bavail * free.f_frsize:
            raise UsageError(f"{path.parent} has no room for two copies of {left:,} bytes: send less, or a file")
        with path.open("wb") as out:
            while left > 0:
                left -= out.write(os.urandom(min(left, 1 << 20)))
        return path, True

    def _launch(self, source: str, destination: str, path: Path, is_ours: bool, rate: float | None) -> None:
        agent = self._fabric.agent(source)
        fields: dict[str, Any] = {"path": str(path), "peer": destination}
        if rate is not None:
            fields["rate_bps"] = rate
        watch = agent.watch()
        try:
            transfer = agent.request("send_file", timeout_s=30.0, **fields)["transfer"]
        except BaseException:
            watch.close()
            raise
        label = f"send {self._count} ({source} to {destination}, {path.stat().st_size:,} bytes)"
        self._say(f"{label}: begun")
        follow = _Follow(label, transfer, path.stat().st_size, watch, self._say)

        def run() -> None:
            if not follow.run():
                self._failed += 1
            if is_ours:  # random bytes, at either end of no further use
                path.unlink(missing_ok=True)
                if follow.remote_path is not None:
                    follow.remote_path.unlink(missing_ok=True)
            self._running.pop(thread, None)
            watch.close()

        thread = threading.Thread(target=run, name=label, daemon=True)
        self._running[thread] = watch
        thread.start()


class _Follow:
    """Says how one transfer goes, from its agent's events."""

    def __init__(self, label: str, transfer: int, size: int, watch: Watch, say: Callable[[str], None]) -> None:
        self.label, self.transfer, self.size = label, transfer, size
        self.watch, self.say = watch, say
        self.began = time.monotonic()
        self.next_share = PROGRESS_STEP
        self.remote_path: Path | None = None
        """Where the bytes are, once they have arrived."""

    def run(self) -> bool:
        """Until the transfer ends or the watch is closed; whether the bytes arrived."""
        try:
            while True:
                event = self.watch.get()
                assert event is not None
                if event.get("transfer") != self.transfer:
                    continue
                if event["event"] == "transfer" and event["state"] in ("done", "failed"):
                    return self._ended(event)
                if event["event"] == "progress":
                    self._progress(event)
        except JsonlError as error:
            self.say(f"{self.label}: no more news: {error}")
            return False

    def _progress(self, event: dict[str, Any]) -> None:
        share = event["bytes_done"] / self.size if self.size else 1.0
        if self.next_share <= share < 1.0:
            self.say(f"{self.label}: {share:.0%} after {event['t'] - self.began:.1f} s")
            self.next_share = (share // PROGRESS_STEP + 1) * PROGRESS_STEP

    def _ended(self, event: dict[str, Any]) -> bool:
        if event["state"] == "failed":
            self.say(f"{self.label}: failed after {event['t'] - self.began:.1f} s: {event['error']}")
            return False
        self.remote_path = Path(event["remote_path"])
        counters = event["counters"]
        rate = f", {event['goodput_bps'] / 1e6:.0f} Mb/s" if event["goodput_bps"] else ""
        self.say(
            f"{self.label}: arrived bit for bit in {event['duration_s']:.2f} s{rate}; "
            f"{counters.get('lost', 0)} packets lost, {counters.get('retransmitted', 0)} retransmitted"
        )
        return True
