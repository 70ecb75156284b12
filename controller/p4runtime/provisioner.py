"""Provisioner of one switch: connect, load the program, write differences, read back, compare.

It does so again when the switch comes back after a restart.

The one rule about writes: tables are read first and only differences are written, and only when a stream begins
or the controller becomes primary again. A controller that starts on a fabric equal to the plan writes nothing; after
the first verification writes happen only when a switch came back without its tables (`restart`) or another controller
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
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
from mrc_testbed.controller.p4runtime.session import ANSWER_S, P4RuntimeSession, SessionEvent
from mrc_testbed.controller.problems import ProblemKind, Problems
from mrc_testbed.ipc.patience import AnswerLimit
from mrc_testbed.ipc.service import end_tasks

MAX_SHOWN_DIFFERENCES = 3
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
    """Reason of the state; the last error while the switch is not verified."""
    entered_at: float = field(default_factory=time.monotonic)
    """Time at which the state was entered."""
    connected: bool = False
    pipeline: bool = False
    """Whether the fabric's program runs there."""
    verified: bool = False
    """Whether the last comparison found no difference, with the stream open since."""
    entries: int = 0
    """Entries read back at the last verification."""
    digest: str | None = None
    """Digest of these entries (mrc_testbed.controller.p4runtime.entries.digest)."""
    start_digest: str | None = None
    """Digest of the first verification of this controller."""
    writes: int = 0
    """Entries written, deleted or changed since this controller started."""
    pipeline_loads: int = 0
    writes_after_start: Counter[str] = field(default_factory=Counter)
    """Writes after the first verification, by reason; included in `writes`."""
    live_entries: int = 0
    """Entries that follow what is alive, now."""
    live_writes: Counter[str] = field(default_factory=Counter)
    """Writes of `live_entries`, by reason: dead port, port alive, prune, restore."""
    live_written_s: float | None = None
    """Duration of the last of these writes, from `want_live` to the answer, seconds; None: none yet."""
    restarts: int = 0
    """Times the switch came back without the fabric's program."""
    reconnects: int = 0
    """Times the switch's stream was opened again, restarts included."""

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state.value,
            "reason": self.reason,
            "since": self.entered_at,
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
    """Result of reading a switch's tables once more. `error`: reason when they could not be read."""

    digest: str | None
    lines: tuple[str, ...]
    differences: tuple[Difference, ...]
    error: str | None = None
    static_lines: tuple[str, ...] = ()
    """Lines without those that follow what is alive."""


class SwitchProvisioner:
    """Provisioner of one switch.

    `run()` is its task; `on_change(provisioner)` is called at every change of `status.state`.
    """

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
        """Callback with (provisioner, name of the digest, its data) when the switch sends a list."""
        self.status = SwitchStatus()
        self.catalog = catalog
        """P4Info of its program."""
        self._on_change = on_change
        self._on_live = on_live
        self._live_wanted: tuple[NamedEntry, ...] = ()
        self._live_written: tuple[NamedEntry, ...] = ()
        """Live entries on the switch, as last written or read."""
        self._live_wanted_at = 0.0
        self._live_wake = asyncio.Event()
        self._session: P4RuntimeSession | None = None
        self._limit = AnswerLimit(ANSWER_S)
        """Limit of the switch's answers, which grows on a slow machine."""
        self._reading = asyncio.Lock()
        self._restoring = False
        """Whether the switch has restarted and is not verified again yet."""
        self.was_provisioned = False
        """Whether an earlier controller wrote the switch: what it refuses now, it may take later."""

    async def run(self) -> None:
        """Connect, provision, reconnect; until cancelled, or until the switch refuses a write at the start.

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
        """Set the live entries, beside the plan's; written at once while the switch is verified."""
        if {str(e) for e in entries} != {str(e) for e in self._live_wanted}:
            self._live_wanted, self._live_wanted_at = entries, time.monotonic()
            self._live_wake.set()

    def take_program(self, target: SwitchAddress, catalog: Catalog) -> None:
        """Take another program and its entries, which was swapped in: only differences are written."""
        self.target, self.catalog = target, catalog
        if self._session is not None:
            self._session.take_program(target, catalog)

    def give_up_absent(self) -> None:
        """Count a switch without an answer as lost, not late.

        The caller knows that it was provisioned before the controller restarted.
        """
        if self.status.state is SwitchState.CONNECTING:
            self._enter(SwitchState.LOST, self.status.reason)

    def describe(self) -> str:
        """Return state and reason in one line that begins with the switch's name."""
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
                wanted_entries = (*self.target.entries, *self._live_written)
                actual_entries = await self._read(session)
        except SwitchError as error:
            return Verification(None, (), (), str(error))
        lines = tuple(sorted(str(entry) for entry in actual_entries))
        static_entries = self._static(actual_entries)
        return Verification(
            digest(static_entries),
            lines,
            tuple(compare(wanted_entries, actual_entries)),
            static_lines=tuple(sorted(str(entry) for entry in static_entries)),
        )

    async def replace_entries(self, entries: tuple[NamedEntry, ...]) -> int:
        """Write entries in place of the plan's, and keep them so; return how many differed.

        A default entry that is not among them stays, as a table always has one. Raises SwitchError, and leaves the
        switch as it was as far as it takes that.
        """
        session = self._session
        if session is None:
            raise SwitchError(self.describe(), retry=True)
        keys = {entry.key for entry in entries}
        entries = (*entries, *(e for e in self.target.entries if e.is_default and e.key not in keys))
        async with self._reading:
            differences = compare((*entries, *self._live_written), await self._read(session))
            try:
                if differences:
                    await session.write(updates_for(differences))
            except SwitchError:
                with suppress(SwitchError):
                    damage = compare((*self.target.entries, *self._live_written), await self._read(session))
                    await session.write(updates_for(damage))
                raise
            self.target = replace(self.target, entries=entries)
            self.status.entries, self.status.digest = len(entries), digest(entries)
            if differences:
                self.status.writes_after_start["load"] += len(differences)
        return len(differences)

    async def counters(self, ports: Iterable[int]) -> list[Any]:
        """Return the cells of these ports in every P4 counter. Raises SwitchError."""
        session = self._session
        if session is None:
            raise SwitchError(self.describe(), retry=True)
        async with self._reading:
            return await session.read_counters(list(ports))

    async def cells(self, counter: str, cells: list[int]) -> dict[int, int]:
        """Return the packets in some cells of a P4 counter, by index. Raises SwitchError."""
        session = self._session
        if session is None:
            raise SwitchError(self.describe(), retry=True)
        return await session.read_cells(counter, cells)

    async def _read(self, session: P4RuntimeSession) -> list[NamedEntry]:
        """Return all entries of the switch. Raises SwitchError."""
        actual = await session.read()
        if self.target.tells_watch_ports:
            return actual
        return with_watch_ports(actual, (*self.target.entries, *self._live_written, *self._live_wanted))

    def _static(self, actual: list[NamedEntry]) -> list[NamedEntry]:
        """Return the entries without live ones, which change with the fabric."""
        live_lines = {str(entry) for entry in (*self._live_wanted, *self._live_written)}
        return [entry for entry in actual if str(entry) not in live_lines]

    # ---- one connection ---------------------------------------------------------------------------------

    async def _one_session(self) -> None:
        """Run one session from connecting to the end of the stream. Ends with a SwitchError."""
        session = await P4RuntimeSession.open(self.target, self.catalog, self._limit)
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
        """Bring the switch in line; an error while another controller is primary is ignored.

        The stream has an event for that.
        """
        try:
            await self._bring_in_line(session)
        except SwitchError:
            if session.is_primary:
                raise

    async def _bring_in_line(self, session: P4RuntimeSession) -> None:
        """Load the program if it does not run, write differences, read back."""
        self._enter(SwitchState.SYNCING, "comparing with the plan")
        status = self.status
        async with self._reading:
            await self._load_program(session)
            live_entries = self._live_wanted
            wanted_entries = (*self.target.entries, *live_entries)
            differences = compare(wanted_entries, await self._read(session))
            if differences:
                self._count_writes(differences, live_entries)
                await session.write(updates_for(differences))
            actual_entries = await self._read(session)
            self._live_written = live_entries
            await session.subscribe_digests()
        if differences_left := compare(wanted_entries, actual_entries):
            raise SwitchError(
                f"{self.target}: reads back other than written: {_differences_text(differences_left)}", retry=False
            )
        actual_entries = self._static(actual_entries)
        status.entries, status.live_entries = len(actual_entries), len(live_entries)
        status.digest = digest(actual_entries)
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
                wanted_entries, requested_at = self._live_wanted, self._live_wanted_at
                differences: list[Difference] = []
                try:
                    if failed is not None:  # its answer may be lost and not the write
                        self._live_written = await self._read_live(session)
                    differences = compare(wanted_entries, self._live_written)
                    if differences:
                        await session.write(updates_for(differences))
                except SwitchError as error:
                    failed = error
                else:
                    failed, self._live_written = None, wanted_entries
            if failed is None:
                self._problems.end(ProblemKind.UNWRITTEN, self.target.name)
                if differences:
                    self._count_live(differences, time.monotonic() - requested_at)
                continue
            if not failed.retry:
                self._problems.begin(ProblemKind.UNWRITTEN, self.target.name, str(failed), UNWRITTEN_EFFECT)
            log.warning("%s", failed)
            await asyncio.sleep(LIVE_AGAIN_S)  # the answer was lost, or it goes down and ends this task
            self._live_wake.set()

    async def _read_live(self, session: P4RuntimeSession) -> tuple[NamedEntry, ...]:
        """Return the entries on the switch that are not the plan's. Raises SwitchError."""
        planned_keys = {entry.key for entry in self.target.entries}
        return tuple(entry for entry in await self._read(session) if entry.key not in planned_keys)

    def _count_live(self, differences: list[Difference], took_s: float) -> None:
        status = self.status
        status.live_entries, status.live_written_s = len(self._live_written), took_s
        counts: Counter[str] = Counter()
        for difference in differences:
            counts[reason_of(difference.key, difference.wants is not None)] += 1
        status.live_writes.update(counts)
        for reason, number in counts.items():
            log.info("%s: %s: %d entries, %.1f ms", self.target.name, reason, number, 1e3 * took_s)
            self._on_live(self, reason, number, took_s)

    async def _load_program(self, session: P4RuntimeSession) -> None:
        """Load the program unless it runs; a verified switch without it has restarted."""
        status = self.status
        status.pipeline = await session.pipeline_cookie() == self.catalog.cookie
        if status.pipeline:
            return
        if status.start_digest is not None and not self._restoring:
            self._restoring = True
            status.restarts += 1
        await session.push_pipeline()
        status.pipeline_loads += 1
        status.pipeline = True

    def _count_writes(self, differences: list[Difference], live_entries: tuple[NamedEntry, ...]) -> None:
        """Count the writes that follow, by reason.

        `live_entries`: those that are written now; others may be wanted since.
        """
        live_keys = {e.key for e in (*live_entries, *self._live_written)}
        live_differences = [d for d in differences if d.key in live_keys]
        differences = [d for d in differences if d not in live_differences]
        for difference in live_differences:
            self.status.live_writes[reason_of(difference.key, difference.wants is not None)] += 1
        self.status.writes += len(differences)
        if not differences:
            return
        if self.status.start_digest is None:
            return
        reason = "restart" if self._restoring else "repair"
        self.status.writes_after_start[reason] += len(differences)
        log.warning(
            "%s: %d entries to write (%s): %s", self.target, len(differences), reason, _differences_text(differences)
        )

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
            status.state, status.entered_at = state, time.monotonic()
            self._on_change(self)


def _differences_text(differences: list[Difference]) -> str:
    suffix = f" and {len(differences) - MAX_SHOWN_DIFFERENCES} more" if len(differences) > MAX_SHOWN_DIFFERENCES else ""
    return "; ".join(str(d) for d in differences[:MAX_SHOWN_DIFFERENCES]) + suffix
