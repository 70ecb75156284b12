"""Keeps one switch as the plan wants it: connect, load the program, write what differs, read back, compare; and
again when the switch comes back after a restart.

The one rule about writes: tables are read first and only differences are written, and only when a stream begins
or we become primary again. A controller that starts on a fabric that is right writes nothing; after the first
verification writes happen only when a switch came back without its tables (`restart`) or another controller
changed them while it was primary (`repair`); each is counted with its reason.

Entries that follow what is alive (pruning.py) are the exception: they are written when that changes, as the
difference to what was written last; they count apart and belong to no digest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

from mrc_testbed.controller.api.rpc_client import pause_s
from mrc_testbed.controller.config import SwitchAddress
from mrc_testbed.controller.errors import SwitchError
from mrc_testbed.controller.p4runtime.entries import (
    Catalog,
    Difference,
    NamedEntry,
    compare,
    digest,
    updates_for,
    with_watch_ports,
)
from mrc_testbed.controller.p4runtime.pruning import reason_of
from mrc_testbed.controller.p4runtime.session import P4RuntimeSession, SessionEvent
from mrc_testbed.controller.problems import ProblemKind, Problems
from mrc_testbed.ipc.service import end_tasks

SHOWN_DIFFERENCES = 3
LIVE_AGAIN_S = 1.0
"""Pause after a switch refused entries that follow what is alive."""

UNWRITTEN_EFFECT = "it goes on sending to ports and uplinks that are dead until it takes these entries"
"""Effect of entries that follow what is alive and are refused."""

log = logging.getLogger(__name__)


class SwitchState(Enum):
    """State of the provisioning of one switch."""

    CONNECTING = "connecting"  # no stream yet, or not again
    SYNCING = "syncing"  # stream open: comparing and writing
    VERIFIED = "verified"  # read back, equal to the plan
    BACKUP = "backup"  # another controller is primary: we may read only
    LOST = "lost"  # had a stream, has none
    FAILED = "failed"  # refused what we sent; will refuse it again


@dataclass(slots=True)
class SwitchStatus:
    """State of one switch's provisioning. Times are CLOCK_MONOTONIC seconds."""

    state: SwitchState = SwitchState.CONNECTING
    reason: str = "not tried yet"
    """Why it is in this state; the last error while it is not verified."""
    since: float = field(default_factory=time.monotonic)
    connected: bool = False
    pipeline: bool = False
    """Our program runs there."""
    verified: bool = False
    """The last comparison found no difference, and the stream has been open since."""
    entries: int = 0
    """Entries read back at the last verification."""
    digest: str | None = None
    """Digest of those (mrc_testbed.controller.p4runtime.entries.digest)."""
    start_digest: str | None = None
    """Digest of the first verification of this controller."""
    writes: int = 0
    """Entries written, deleted or changed since this controller started."""
    pipeline_loads: int = 0
    writes_after_start: Counter[str] = field(default_factory=Counter)
    """Of `writes`, those after the first verification, by reason."""
    live_entries: int = 0
    """Entries that follow what is alive, now."""
    live_writes: Counter[str] = field(default_factory=Counter)
    """Writes of those, by reason: dead port, port alive, prune, restore."""
    live_written_s: float | None = None
    """Duration of the last of those, from `want` to the switch's answer."""
    restarts: int = 0
    """Times it came back without our program."""
    reconnects: int = 0
    """Times its stream was opened again, restarts included."""

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state.value,
            "reason": self.reason,
            "since": self.since,
            "connected": self.connected,
            "pipeline": self.pipeline,
            "verified": self.verified,
            "entries": self.entries,
            "digest": self.digest,
            "start_digest": self.start_digest,
            "entries_written": self.writes,
            "pipeline_loads": self.pipeline_loads,
            "writes_after_start": sum(self.writes_after_start.values()),
            "writes_after_start_by_reason": dict(self.writes_after_start),
            "live_entries": self.live_entries,
            "live_writes": dict(self.live_writes),
            "live_written_s": self.live_written_s,
            "restarts": self.restarts,
            "reconnects": self.reconnects,
        }


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of reading a switch's tables once more. `error`: they could not be read."""

    digest: str | None
    lines: tuple[str, ...]
    differences: tuple[Difference, ...]
    error: str | None = None


class SwitchProvisioner:
    """One switch. `run()` is its task; `on_change(provisioner)` is called at every change of `status.state`."""

    def __init__(
        self,
        target: SwitchAddress,
        catalog: Catalog,
        on_change: Callable[[SwitchProvisioner], None],
        on_live: Callable[[SwitchProvisioner, str, int, float], None] = lambda *_: None,
        problems: Problems | None = None,
    ) -> None:
        self._problems = problems or Problems()
        self.target = target
        self.on_digest: Callable[[SwitchProvisioner, str, list[Any]], None] = lambda *_: None
        """Called with (provisioner, name of the digest, its data) when the switch sends a list."""
        self.status = SwitchStatus()
        self._catalog = catalog
        self._on_change = on_change
        self._on_live = on_live
        self._live: tuple[NamedEntry, ...] = ()
        self._live_written: tuple[NamedEntry, ...] = ()
        """Those on the switch, as last written or read."""
        self._live_wanted_at = 0.0
        self._live_wake = asyncio.Event()
        self._session: P4RuntimeSession | None = None
        self._reading = asyncio.Lock()
        self._restoring = False
        """Whether it has restarted and is not verified again yet."""
        self.was_provisioned = False
        """Whether a controller before this one had written it: what it refuses now, it may take later."""

    async def run(self) -> None:
        """Connect, keep, reconnect; until cancelled, or until the switch refuses what it is sent at the start.

        A switch that was provisioned before the controller restarted is past its start: a refusal may pass.
        """
        attempt = 0
        while True:
            try:
                await self._one_session()
            except SwitchError as error:
                if not error.retry and self.status.start_digest is None and not self.was_provisioned:
                    self._enter(SwitchState.FAILED, str(error))
                    return
                attempt = 0 if self.status.verified else attempt
                self._lose(str(error))
            await asyncio.sleep(pause_s(attempt))
            attempt += 1

    def want_live(self, entries: tuple[NamedEntry, ...]) -> None:
        """From now on these entries, beside the plan's; written at once when the switch is ours and in line."""
        if {str(e) for e in entries} != {str(e) for e in self._live}:
            self._live, self._live_wanted_at = entries, time.monotonic()
            self._live_wake.set()

    def give_up_absent(self) -> None:
        """Count it as lost, not late, when it was provisioned before the controller restarted and does not answer."""
        if self.status.state is SwitchState.CONNECTING:
            self._enter(SwitchState.LOST, self.status.reason)

    def describe(self) -> str:
        """State and reason in one line that begins with the switch's name."""
        status = self.status
        if status.reason.startswith(str(self.target)):
            return status.reason
        return f"{self.target}: {status.state.value}: {status.reason}"

    async def verify(self) -> Verification:
        """Read all tables now and compare them with the plan. Changes nothing, not even the status."""
        session = self._session
        if session is None:
            return Verification(None, (), (), self.describe())
        try:
            async with self._reading:
                # An entry that follows what is alive and is still to be written is no difference.
                wanted = (*self.target.entries, *self._live_written)
                actual = await self._read(session)
        except SwitchError as error:
            return Verification(None, (), (), str(error))
        lines = tuple(sorted(str(entry) for entry in actual))
        return Verification(digest(self._static(actual)), lines, tuple(compare(wanted, actual)))

    async def counters(self, ports: Iterable[int]) -> list[Any]:
        """The cells of these ports in every P4 counter. Raises SwitchError."""
        session = self._session
        if session is None:
            raise SwitchError(self.describe(), retry=True)
        async with self._reading:
            return await session.read_counters(list(ports))

    async def cells(self, counter: str, cells: list[int]) -> dict[int, int]:
        """Packets in some cells of a P4 counter, by index. Raises SwitchError."""
        session = self._session
        if session is None:
            raise SwitchError(self.describe(), retry=True)
        return await session.read_cells(counter, cells)

    async def _read(self, session: P4RuntimeSession) -> list[NamedEntry]:
        """All entries of the switch. Raises SwitchError."""
        actual = await session.read()
        if self.target.tells_watch_ports:
            return actual
        return with_watch_ports(actual, (*self.target.entries, *self._live_written, *self._live))

    def _static(self, actual: list[NamedEntry]) -> list[NamedEntry]:
        """Without the entries that follow what is alive: those are no part of what never changes."""
        live = {str(entry) for entry in (*self._live, *self._live_written)}
        return [entry for entry in actual if str(entry) not in live]

    # ---- one connection ---------------------------------------------------------------------------------

    async def _one_session(self) -> None:
        """From connecting to the end of the stream. Ends with a SwitchError."""
        session = await P4RuntimeSession.open(self.target, self._catalog)
        writer: asyncio.Task[None] | None = None
        try:
            self._session = session
            self.status.connected = True
            if self.status.start_digest is not None:
                self.status.reconnects += 1
            session.on_digest = lambda name, data: self.on_digest(self, name, data)
            writing = self._problems.keep(f"entries of {self.target.name}", partial(self._write_live, session))
            writer = asyncio.create_task(writing, name=f"live {self.target.name}")
            while (event := await session.next_event()) is not SessionEvent.LOST:
                if event is SessionEvent.PRIMARY:
                    await self._bring_in_line_while_primary(session)
                else:
                    self._enter(
                        SwitchState.BACKUP,
                        f"another controller is primary (election id {session.primary_id}): stop it or let it leave",
                    )
            raise SwitchError(session.lost_reason, retry=True)
        finally:
            self._session = None
            if writer is not None:
                await end_tasks([writer])
            await session.close()

    async def _bring_in_line_while_primary(self, session: P4RuntimeSession) -> None:
        """Bring the switch in line, unless another controller has become primary meanwhile: the stream tells of it."""
        try:
            await self._bring_in_line(session)
        except SwitchError:
            if session.is_primary:
                raise

    async def _bring_in_line(self, session: P4RuntimeSession) -> None:
        """Load the program if it is not there, write what differs, read back."""
        self._enter(SwitchState.SYNCING, "comparing with the plan")
        status = self.status
        async with self._reading:
            await self._load_program(session)
            live = self._live
            desired = (*self.target.entries, *live)
            differences = compare(desired, await self._read(session))
            if differences:
                self._count_writes(differences, live)
                await session.write(updates_for(differences))
            actual = await self._read(session)
            self._live_written = live
            await session.subscribe_digests()
        if left := compare(desired, actual):
            raise SwitchError(f"{self.target}: reads back other than written: {_shown(left)}", retry=False)
        actual = self._static(actual)
        status.entries, status.digest, status.live_entries = len(actual), digest(actual), len(live)
        status.start_digest = status.start_digest or status.digest
        status.verified = True
        self._enter(SwitchState.VERIFIED, "restarted, written again" if self._restoring else "equal to the plan")
        self._restoring = False
        self._live_wake.set()

    async def _write_live(self, session: P4RuntimeSession) -> None:
        """Write entries that follow what is alive, whenever they change, while the switch is in line."""
        failed: SwitchError | None = None
        while True:
            await self._live_wake.wait()
            self._live_wake.clear()
            if self.status.state is not SwitchState.VERIFIED:
                continue  # bringing it in line takes them along, and wakes us
            async with self._reading:
                wanted, since = self._live, self._live_wanted_at
                differences: list[Difference] = []
                try:
                    if failed is not None:  # its answer may be lost and not the write
                        self._live_written = await self._read_live(session)
                    differences = compare(wanted, self._live_written)
                    if differences:
                        await session.write(updates_for(differences))
                except SwitchError as error:
                    failed = error
                else:
                    failed, self._live_written = None, wanted
            if failed is None:
                self._problems.end(ProblemKind.UNWRITTEN, self.target.name)
                if differences:
                    self._count_live(differences, time.monotonic() - since)
                continue
            if not failed.retry:
                self._problems.begin(ProblemKind.UNWRITTEN, self.target.name, str(failed), UNWRITTEN_EFFECT)
            log.warning("%s", failed)
            await asyncio.sleep(LIVE_AGAIN_S)  # the answer was lost, or it goes down and ends this task
            self._live_wake.set()

    async def _read_live(self, session: P4RuntimeSession) -> tuple[NamedEntry, ...]:
        """Entries on the switch that are not the plan's. Raises SwitchError."""
        planned = {entry.what for entry in self.target.entries}
        return tuple(entry for entry in await self._read(session) if entry.what not in planned)

    def _count_live(self, differences: list[Difference], took_s: float) -> None:
        status = self.status
        status.live_entries, status.live_written_s = len(self._live_written), took_s
        told: Counter[str] = Counter()
        for difference in differences:
            told[reason_of(difference.what, difference.wants is not None)] += 1
        status.live_writes.update(told)
        for reason, number in told.items():
            log.info("%s: %s: %d entries, %.1f ms", self.target.name, reason, number, 1e3 * took_s)
            self._on_live(self, reason, number, took_s)

    async def _load_program(self, session: P4RuntimeSession) -> None:
        """Load the program unless it runs; a switch that has lost it since we verified it has restarted."""
        status = self.status
        status.pipeline = await session.pipeline_cookie() == self._catalog.cookie
        if status.pipeline:
            return
        if status.start_digest is not None and not self._restoring:
            self._restoring = True
            status.restarts += 1
        await session.push_pipeline()
        status.pipeline_loads += 1
        status.pipeline = True

    def _count_writes(self, differences: list[Difference], live: tuple[NamedEntry, ...]) -> None:
        """Count what is about to be written. `live`: entries that follow what is alive, as they are written now: others
        may be wanted since.
        """
        follows = {e.what for e in (*live, *self._live_written)}
        live_ones = [d for d in differences if d.what in follows]
        differences = [d for d in differences if d not in live_ones]
        for one in live_ones:
            self.status.live_writes[reason_of(one.what, one.wants is not None)] += 1
        self.status.writes += len(differences)
        if not differences:
            return
        if self.status.start_digest is None:
            return
        reason = "restart" if self._restoring else "repair"
        self.status.writes_after_start[reason] += len(differences)
        log.warning("%s: %d entries to write (%s): %s", self.target, len(differences), reason, _shown(differences))

    # ---- state ------------------------------------------------------------------------------------------

    def _lose(self, reason: str) -> None:
        status = self.status
        had_stream = status.connected or status.state is SwitchState.LOST
        status.connected = status.pipeline = status.verified = False
        self._enter(SwitchState.LOST if had_stream else SwitchState.CONNECTING, reason)

    def _enter(self, state: SwitchState, reason: str) -> None:
        status = self.status
        status.reason = reason
        if state is SwitchState.BACKUP:
            status.verified = False
        if state is not status.state:
            status.state, status.since = state, time.monotonic()
            self._on_change(self)


def _shown(differences: list[Difference]) -> str:
    more = f" and {len(differences) - SHOWN_DIFFERENCES} more" if len(differences) > SHOWN_DIFFERENCES else ""
    return "; ".join(str(d) for d in differences[:SHOWN_DIFFERENCES]) + more
