"""One P4Runtime connection to one switch: arbitration, pipeline, tables.

Design notes
1. Built on finsy's P4Client (channel, stubs, error details; stream: grpc_streams.py), not on its Switch. Switch
   waits 10 s after every quick failure, which is what a rebooting switch looks like; a refused pipeline ends it as a
   cancelled task, with the reason in its log only; and it wants port state from the P4Runtime address.
2. We never bid against another controller. Our election id is fixed: a person with a shell may take a switch over
   with a higher one, we then wait as backup and compare the tables when we are primary again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

from finsy import GRPCStatusCode, P4ClientError, P4DigestList
from finsy.p4schema import P4ConfigAction, P4ConfigResponseType
from finsy.proto import U128, p4r
from google.protobuf.message import DecodeError

from mrc_testbed.controller.config import SwitchAddress
from mrc_testbed.controller.errors import SwitchError
from mrc_testbed.controller.p4runtime.counters import CELL_BITS
from mrc_testbed.controller.p4runtime.entries import Catalog, NamedEntry, short_name
from mrc_testbed.controller.p4runtime.grpc_streams import StatusKeepingP4Client
from mrc_testbed.ipc.patience import AnswerLimit
from mrc_testbed.ipc.service import end_tasks

ELECTION_ID = 10
"""Ours. p4runtime-shell starts with 1, so it is backup unless told otherwise."""
ANSWER_S = 5.0
"""First limit of an answer, seconds; a switch that misses it is tried again."""
WRITE_BATCH = 500
"""Updates in one WriteRequest: about 40 kB, far below gRPC's 4 MiB message limit."""
DIGEST_CONFIG = {"max_timeout_ns": 0, "max_list_size": 1, "ack_timeout_ns": 1_000_000_000}
"""Every datum at once: a report of a dead next hop is worth nothing later."""
SHOWN_ERRORS = 3
"""Refused updates named in an error; the rest is counted."""

RETRY_CODES = frozenset(
    {
        GRPCStatusCode.UNAVAILABLE,  # not listening yet, switched off, connection broken
        GRPCStatusCode.DEADLINE_EXCEEDED,  # busy, or compiling the program
        GRPCStatusCode.NOT_FOUND,  # device not there yet
        GRPCStatusCode.ABORTED,
        GRPCStatusCode.CANCELLED,
        GRPCStatusCode.FAILED_PRECONDITION,  # rebooted between two of our requests: no pipeline any more
        GRPCStatusCode.PERMISSION_DENIED,  # not primary any more
    }
)
"""gRPC codes of states that pass. Every other code is a refusal that would be repeated."""

log = logging.getLogger(__name__)


class SessionEvent(Enum):
    """Events of an open stream."""

    PRIMARY = "primary"  # we may write
    BACKUP = "backup"  # another controller may, with a higher election id
    LOST = "lost"  # the stream has ended: no further events


class P4RuntimeSession:
    """Session with one switch. Use `open()`; then `next_event()` until LOST; then `close()`.

    All methods raise SwitchError.
    """

    def __init__(self, target: SwitchAddress, catalog: Catalog, limit: AnswerLimit | None = None) -> None:
        self.target = target
        self.primary_id = 0
        """Election id of the primary, as last reported by the switch."""
        self.on_digest: Callable[[str, list[Any]], None] = lambda *_: None
        """Callback with (name, data) for each list of digests."""
        self.lost_reason = ""
        """Reason of the end of the stream, set before the event LOST."""
        self._catalog = catalog
        self._limit = limit or AnswerLimit(ANSWER_S)
        self._client = StatusKeepingP4Client(target.address, wait_for_ready=False)
        self._client.limit = self._limit
        self._election_id = ELECTION_ID
        self._events: asyncio.Queue[SessionEvent] = asyncio.Queue()
        self._receiver: asyncio.Task[None] | None = None
        self._closed = False
        self.is_primary = False
        """Whether this session is primary, as last reported by the switch."""

    @classmethod
    async def open(cls, target: SwitchAddress, catalog: Catalog, limit: AnswerLimit | None = None) -> P4RuntimeSession:
        """Connect and arbitrate; the first event (PRIMARY or BACKUP) is queued then.

        `limit`: of each answer; it grows with those that do not come in time.
        """
        self = cls(target, catalog, limit)
        try:
            with self._operation("arbitrate"):
                await self._client.open(complete_request=self._sign)
                await self._bid()
                first = await asyncio.wait_for(self._next_arbitration(), self._limit.limit_s)
                if self._take_arbitration(first):
                    await self._bid()
        except asyncio.TimeoutError:
            self._limit.miss()
            await self.close()
            raise SwitchError(
                f"{target}: no answer to arbitration: switched off, or no P4Runtime switch", retry=True
            ) from None
        except BaseException:
            await self.close()
            raise
        self._receiver = asyncio.create_task(self._receive(), name=f"receive {target.name}")
        return self

    def take_program(self, target: SwitchAddress, catalog: Catalog) -> None:
        """Speak of another program from now on, which runs on the switch; as primary, compare its tables next."""
        self.target, self._catalog = target, catalog
        if self.is_primary:
            self._events.put_nowait(SessionEvent.PRIMARY)

    async def close(self) -> None:
        """End the stream and the connection. Idempotent. Requests that are on their way end as SwitchErrors."""
        self._closed = True
        if self._receiver is not None:
            await end_tasks([self._receiver])
            self._receiver = None
        await self._client.close()

    async def next_event(self) -> SessionEvent:
        """Return the next event of the stream; wait for it."""
        return await self._events.get()

    # ---- requests ---------------------------------------------------------------------------------------

    async def pipeline_cookie(self) -> int | None:
        """Return the cookie of the pipeline that runs; None without one."""
        request = p4r.GetForwardingPipelineConfigRequest(
            device_id=self.target.device_id, response_type=P4ConfigResponseType.COOKIE_ONLY.vt()
        )
        with self._operation("read the pipeline"):
            try:
                reply = await self._client.request(request)
            except P4ClientError as error:
                if error.code == GRPCStatusCode.FAILED_PRECONDITION:
                    return None
                raise
        return reply.config.cookie.cookie if reply.config.HasField("cookie") else None

    async def push_pipeline(self) -> None:
        """Load the program; the switch forgets all tables."""
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self.target.device_id,
            action=P4ConfigAction.VERIFY_AND_COMMIT.vt(),
            config=self._catalog.schema.get_pipeline_config(),
        )
        with self._operation("load the program"):
            await self._client.request(request)

    async def read(self) -> list[NamedEntry]:
        """Return all entries of tables and action profiles, also those of other writers."""
        request = p4r.ReadRequest(
            device_id=self.target.device_id, entities=self._catalog.wildcards(self.target.entries)
        )
        out = []
        with self._operation("read the tables"):
            async for reply in self._client.request_iter(request):
                out += [self._catalog.describe(entity) for entity in reply.entities]
        return out

    async def read_counters(self, ports: Iterable[int]) -> list[p4r.CounterEntry]:
        """Return the cells of these ports in every counter that is indexed by port, and all of other counters.

        The index may have a reason before the port. All cells would be ten thousand a switch, nearly all of them 0.
        """
        requests = []
        for counter in self._catalog.schema.counters:
            rows, remainder = divmod(counter.size, 1 << CELL_BITS)
            cells = [row << CELL_BITS | port for row in range(rows) for port in ports] if not remainder else [None]
            requests += [(counter.id, cell) for cell in cells]
        with self._operation("read the counters"):
            return await self._read_cells(requests)

    async def read_cells(self, counter: str, cells: list[int]) -> dict[int, int]:
        """Return the packets in some cells of a counter, by index; empty without such a counter."""
        ids = [
            counter_info.id
            for counter_info in self._catalog.schema.counters
            if short_name(counter_info.name) == counter
        ]
        if not ids or not cells:
            return {}
        with self._operation(f"read {counter}"):
            entries = await self._read_cells([(ids[0], cell) for cell in cells])
        return {entry.index.index: entry.data.packet_count for entry in entries}

    async def _read_cells(self, cells: Iterable[tuple[int, int | None]]) -> list[p4r.CounterEntry]:
        """Return cells by counter id and index; an index of None: all of the counter."""
        entities = [
            p4r.Entity(
                counter_entry=p4r.CounterEntry(
                    counter_id=counter, index=None if cell is None else p4r.Index(index=cell)
                )
            )
            for counter, cell in cells
        ]
        request = p4r.ReadRequest(device_id=self.target.device_id, entities=entities)
        return [entity.counter_entry async for reply in self._client.request_iter(request) for entity in reply.entities]

    async def write(self, updates: Sequence[p4r.Update]) -> None:
        """Send updates in batches, in order."""
        for start in range(0, len(updates), WRITE_BATCH):
            batch = updates[start : start + WRITE_BATCH]
            with self._operation(f"write {len(batch)} entries"):
                try:
                    await self._client.request(p4r.WriteRequest(device_id=self.target.device_id, updates=batch))
                except P4ClientError as error:
                    if error.details:
                        raise self._refused_updates(batch, error) from error
                    raise

    async def subscribe_digests(self) -> None:
        """Ask for every digest of the program, unless the switch sends it already with the same settings.

        A switch without digests is accepted: a warning is logged, and the other sources have to suffice.
        """
        for digest in self._catalog.schema.digests:
            wanted_entry = p4r.DigestEntry(digest_id=digest.id, config=p4r.DigestEntry.Config(**DIGEST_CONFIG))
            try:
                present_entry = await self._digest_entry(digest.id)
                if present_entry != wanted_entry:
                    kind = p4r.Update.INSERT if present_entry is None else p4r.Update.MODIFY
                    await self.write([p4r.Update(type=kind, entity=p4r.Entity(digest_entry=wanted_entry))])
            except SwitchError as error:
                if error.retry:
                    raise
                log.warning("%s: digest %s is not to be had: %s", self.target.name, digest.alias, error)

    async def _digest_entry(self, digest_id: int) -> p4r.DigestEntry | None:
        """Return the subscription to a digest; None without one."""
        entity = p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=digest_id))
        request = p4r.ReadRequest(device_id=self.target.device_id, entities=[entity])
        entries: list[p4r.DigestEntry] = []
        with self._operation("read the digest subscription"):
            try:
                async for reply in self._client.request_iter(request):
                    entries += [entity.digest_entry for entity in reply.entities]
            except P4ClientError as error:
                if error.code != GRPCStatusCode.NOT_FOUND:
                    raise
        return entries[0] if entries else None

    # ---- the stream -------------------------------------------------------------------------------------

    def _sign(self, message: object) -> None:
        """Put the election id into a request that only the primary may make."""
        if isinstance(message, (p4r.SetForwardingPipelineConfigRequest, p4r.WriteRequest)):
            message.election_id.CopyFrom(U128.encode(self._election_id))

    async def _bid(self) -> None:
        bid = p4r.MasterArbitrationUpdate(device_id=self.target.device_id, election_id=U128.encode(self._election_id))
        await self._client.send(p4r.StreamMessageRequest(arbitration=bid))

    async def _next_arbitration(self) -> p4r.MasterArbitrationUpdate:
        while True:
            message = await self._next_message()
            if message.HasField("arbitration"):
                return message.arbitration

    async def _next_message(self) -> p4r.StreamMessageResponse:
        try:
            return await self._client.receive()
        except RuntimeError as error:  # what P4Client makes of an orderly end of the stream
            raise SwitchError(f"{self.target}: the switch ended the stream", retry=True) from error

    def _take_arbitration(self, update: p4r.MasterArbitrationUpdate) -> bool:
        """Turn an answer into an event. Return whether to bid again, because the primary has left."""
        self.primary_id = U128.decode(update.election_id)
        if update.status.code == GRPCStatusCode.NOT_FOUND:
            self._election_id = max(self._election_id, self.primary_id)
            return True
        self.is_primary = update.status.code == GRPCStatusCode.OK
        self._events.put_nowait(SessionEvent.PRIMARY if self.is_primary else SessionEvent.BACKUP)
        return False

    async def _receive(self) -> None:
        """Read the stream until it ends. Packets are ignored."""
        try:
            with self._operation("stream"):
                while True:
                    message = await self._next_message()
                    match message.WhichOneof("update"):
                        case "arbitration":
                            if self._take_arbitration(message.arbitration):
                                await self._bid()
                        case "error":
                            log.warning("%s: stream error: %s", self.target.name, message.error.message)
                        case "digest":
                            await self._take_digest(message)
                        case other:
                            log.debug("%s: %s ignored", self.target.name, other)
        except SwitchError as error:
            self.lost_reason = str(error)
        self._events.put_nowait(SessionEvent.LOST)

    async def _take_digest(self, message: p4r.StreamMessageResponse) -> None:
        """Acknowledge a list and pass it to `on_digest`."""
        lists = P4DigestList.decode(message, self._catalog.schema)
        ack = p4r.DigestListAck(digest_id=message.digest.digest_id, list_id=message.digest.list_id)
        await self._client.send(p4r.StreamMessageRequest(digest_ack=ack))
        self.on_digest(lists.digest_id, list(lists.data))

    # ---- errors -----------------------------------------------------------------------------------------

    @contextmanager
    def _operation(self, operation: str) -> Iterator[None]:
        """Turn any failure of a request to a switch into a SwitchError with its context."""
        try:
            yield
        except asyncio.CancelledError:
            # What gRPC makes of a request whose channel is closed under it; or somebody means this task.
            if not self._closed or _is_cancelled():
                raise
            reason = "the connection was closed meanwhile"
            raise SwitchError(f"{self.target}: {operation}: {reason}", retry=True) from None
        except P4ClientError as error:
            if error.is_election_id_used:
                raise SwitchError(
                    f"{self.target}: another controller uses election id {self._election_id}: stop it (`mrc down`)",
                    retry=True,
                ) from error
            if error.code is GRPCStatusCode.DEADLINE_EXCEEDED:
                self._limit.miss()
            reason = f"{error.code.name}: {error.message or 'no reason given'}"
            raise SwitchError(f"{self.target}: {operation}: {reason}", retry=error.code in RETRY_CODES) from error
        except (
            DecodeError,
            ValueError,
            AssertionError,
            KeyError,
        ) as error:  # finsy and an answer that makes no sense
            raise SwitchError(f"{self.target}: {operation}: answer not understood: {error!r}", retry=False) from error

    def _refused_updates(self, batch: Sequence[p4r.Update], error: P4ClientError) -> SwitchError:
        """Name the updates that were refused, each with the switch's reason."""
        lines = []
        for index, detail in list(error.details.items())[:SHOWN_ERRORS]:
            update = batch[index] if index < len(batch) else p4r.Update()
            verb = p4r.Update.Type.Name(update.type).lower()
            entry = self._catalog.describe(update.entity)
            lines.append(f"{verb} {entry}: {detail.canonical_code.name}: {detail.message}")
        if len(error.details) > SHOWN_ERRORS:
            lines.append(f"{len(error.details) - SHOWN_ERRORS} more")
        codes = {detail.canonical_code for detail in error.details.values()}
        return SwitchError(f"{self.target}: {'; '.join(lines)}", retry=codes <= RETRY_CODES)


def _is_cancelled() -> bool:
    """Return whether the running task is being cancelled; False in Python 3.10, which does not know."""
    cancelling = getattr(asyncio.current_task(), "cancelling", None)
    return cancelling is not None and cancelling() > 0
