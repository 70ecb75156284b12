"""P4Runtime client for one switch: load a program, write entries, swap the program and keep what fits.

It speaks in a role of its own, so that it is primary beside whatever controller is: neither disturbs the other.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from finsy import P4Schema
from finsy.proto import p4i, p4r, p4r_grpc, rpc_code, rpc_status

from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.switch.compiler import CompiledProgram, P4Error, compile_program
from mrc_testbed.topologies.lab.p4_program import ProgramError
from mrc_testbed.topologies.p4lab.entries import ProgramNames

ROLE = "mrc-lab"
ELECTION_ID = 1
ROLE_WAIT_S = 10.0
"""Longest wait for the role, seconds; it is free some time after the last client has closed."""
ROLE_RETRY_S = 0.02
BATCH = 200
"""Updates of one Write: their errors must fit gRPC's metadata."""
DETAILS = "grpc-status-details-bin"
Action = p4r.SetForwardingPipelineConfigRequest.Action


class LabSwitchError(FabricError):
    """A switch refused a request, or did not answer."""


@dataclass(frozen=True, slots=True)
class Reload:
    """Result of a swap of the program of one switch."""

    switch: str
    program: str
    kept_count: int
    """Entries that the new program has too."""
    refusals: tuple[str, ...]
    """Entries that it has not, each with the reason."""
    has_counts: bool
    """Whether counters and registers went on."""
    duration_s: float
    """Time from the request, compiling included, until the switch ran it, seconds."""

    def to_json(self) -> dict[str, Any]:
        return {
            "switch": self.switch,
            "program": self.program,
            "kept": self.kept_count,
            "refused": list(self.refusals),
            "counters_kept": self.has_counts,
            "duration_s": round(self.duration_s, 3),
        }

    def text(self) -> str:
        """Describe the swap in a line, and each lost entry in another."""
        counts = "" if self.has_counts else "; counters and registers began anew"
        lost = f", {len(self.refusals)} do not fit" if self.refusals else ""
        lines = [
            f"{self.switch}: runs {self.program} after {self.duration_s:.2f} s; "
            f"{self.kept_count} entries kept{lost}{counts}"
        ]
        return "\n".join([*lines, *(f"  gone: {text}" for text in self.refusals)])


def compile_file(path: Path) -> CompiledProgram:
    """Compile a program. Raises ProgramError with file:line:column lines."""
    if not path.is_file():
        raise ProgramError(f"no P4 program {path}. Cure: give the path of a .p4 file")
    try:
        return compile_program(path)
    except P4Error as error:
        raise ProgramError("\n".join(error.lines())) from None


class SwitchClient:
    """Connection to one switch, as a context manager. All methods raise LabSwitchError."""

    def __init__(self, name: str, address: str, device_id: int) -> None:
        self.name, self.address, self.device_id = name, address, device_id
        self._channel = grpc.insecure_channel(
            address, [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", 64 << 20)]
        )
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)
        self._requests: queue.SimpleQueue[p4r.StreamMessageRequest | None]
        self._stream: Any = None

    def __enter__(self) -> SwitchClient:
        deadline = time.monotonic() + ROLE_WAIT_S
        try:
            while refusal := self.take_role():
                if time.monotonic() > deadline:
                    raise LabSwitchError(
                        f"{refusal}; still so after {ROLE_WAIT_S:.0f} s. Cure: wait for the other command, or end it"
                    )
                time.sleep(ROLE_RETRY_S)
        except BaseException:
            self._channel.close()
            raise
        return self

    def take_role(self) -> str:
        """Become primary of the role; return the switch's reason while another client has it, else ""."""
        request = p4r.StreamMessageRequest()
        request.arbitration.device_id = self.device_id
        request.arbitration.role.name = ROLE
        request.arbitration.election_id.low = ELECTION_ID
        self._requests = queue.SimpleQueue()
        self._requests.put(request)
        try:
            self._stream = self._stub.StreamChannel(iter(self._requests.get, None), wait_for_ready=True)
            for answer in self._stream:  # kept: without it the stream would end
                if answer.HasField("arbitration"):
                    break
        except grpc.RpcError as error:
            self._requests.put(None)  # ends the thread that reads the requests
            refusal = self._error("arbitration", error)
            # The code of P4Runtime 5.3 for an election id that another controller has.
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                return str(refusal)
            raise refusal from None
        return ""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests.put(None)
        self._channel.close()

    def load(self, program: CompiledProgram, action: Action.ValueType = Action.VERIFY_AND_COMMIT) -> None:
        """Load a program; by default the switch forgets its entries."""
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self.device_id, role=ROLE, election_id=p4r.Uint128(low=ELECTION_ID), action=action
        )
        if action != Action.COMMIT:
            request.config.p4info.CopyFrom(program.p4info)
            request.config.p4_device_config = program.config
            # By it a controller made with finsy, as ours, knows what runs.
            request.config.cookie.cookie = _cookie_of(program)
        try:
            self._stub.SetForwardingPipelineConfig(request)
        except grpc.RpcError as error:
            raise self._error("load the program", error) from None

    def write(self, updates: Sequence[p4r.Update]) -> list[str | None]:
        """Write updates in their order; return the reason of each that was refused."""
        reasons: list[str | None] = []
        for start in range(0, len(updates), BATCH):
            batch = updates[start : start + BATCH]
            request = p4r.WriteRequest(
                device_id=self.device_id, role=ROLE, election_id=p4r.Uint128(low=ELECTION_ID), updates=batch
            )
            try:
                self._stub.Write(request)
                reasons += [None] * len(batch)
            except grpc.RpcError as error:
                batch_reasons = _reasons(error)
                if len(batch_reasons) != len(batch):
                    raise self._error("write", error) from None
                reasons += batch_reasons
        return reasons

    def read(self, info: p4i.P4Info) -> list[p4r.Entity]:
        """Return everything that was written: profiles, groups, replication, entries, changed default actions.

        `info`: P4Info of the program that runs.
        """
        entities = [
            p4r.Entity(action_profile_member=p4r.ActionProfileMember()),
            p4r.Entity(action_profile_group=p4r.ActionProfileGroup()),
            p4r.Entity(packet_replication_engine_entry=_wildcard(multicast_group_entry=p4r.MulticastGroupEntry())),
            p4r.Entity(packet_replication_engine_entry=_wildcard(clone_session_entry=p4r.CloneSessionEntry())),
            p4r.Entity(table_entry=p4r.TableEntry()),
        ]
        defaults = [table for table in info.tables if not table.const_default_action_id]
        entities += [
            p4r.Entity(table_entry=p4r.TableEntry(table_id=table.preamble.id, is_default_action=True))
            for table in defaults
        ]
        constant_ids = {table.preamble.id for table in info.tables if table.is_const_table}
        initial = {table.preamble.id: _initial_default(table) for table in defaults}
        out = []
        for entity in self._read(entities):
            entry = entity.table_entry if entity.HasField("table_entry") else None
            if entry is not None and (entry.table_id in constant_ids or entry.is_const):
                continue
            if entry is not None and entry.is_default_action and entry.action.action == initial[entry.table_id]:
                continue
            out.append(entity)
        return out

    def _read(self, entities: list[p4r.Entity]) -> Iterator[p4r.Entity]:
        request = p4r.ReadRequest(device_id=self.device_id, role=ROLE, entities=entities)
        try:
            for answer in self._stub.Read(request):
                yield from answer.entities
        except grpc.RpcError as error:
            raise self._error("read", error) from None

    def swap(self, old_info: p4i.P4Info, new_program: CompiledProgram, begin: float | None = None) -> Reload:
        """Run another program from one packet to the next, with all entries that fit it.

        `old_info`: P4Info of the program that runs. `begin`: time from which its duration counts,
        CLOCK_MONOTONIC seconds; None: now.
        """
        begin = time.monotonic() if begin is None else begin
        entities = self.read(old_info)
        refusals: list[str] = []
        try:
            self.load(new_program, Action.RECONCILE_AND_COMMIT)
            has_counts = True
        except LabSwitchError:  # an entry does not fit: they are written one by one to a second device, which then runs
            has_counts = False
            self.load(new_program, Action.VERIFY_AND_SAVE)
            updates = [p4r.Update(type=_write_kind(entity), entity=entity) for entity in entities]
            names = ProgramNames(old_info)
            reasons = [names.lack(entity, new_program.p4info) for entity in entities]
            fitting = [update for update, reason in zip(updates, reasons, strict=True) if reason is None]
            answers = iter(self.write(fitting))
            reasons = [next(answers) if reason is None else reason for reason in reasons]
            self.load(new_program, Action.COMMIT)
            refusals = [
                f"{names.entry_text(entity)}: {reason}"
                for entity, reason in zip(entities, reasons, strict=True)
                if reason is not None and "ALREADY_EXISTS" not in reason
            ]
        duration_s = time.monotonic() - begin
        return Reload(
            self.name, new_program.name, len(entities) - len(refusals), tuple(refusals), has_counts, duration_s
        )

    def _error(self, request: str, error: grpc.RpcError) -> LabSwitchError:
        reasons = "; ".join(reason for reason in _reasons(error) if reason) or error.details()
        return LabSwitchError(f"{self.name}: {request}: {reasons}")


_cookies: dict[Path, int] = {}
"""Cookie of each program, by the file of its C text, whose name has the digest of the program."""


def _cookie_of(program: CompiledProgram) -> int:
    """Return the number that finsy has for P4Info and device config together."""
    if program.c_path not in _cookies:
        _cookies[program.c_path] = P4Schema(program.p4info, program.config).p4cookie
    return _cookies[program.c_path]


def _wildcard(**entry: Any) -> p4r.PacketReplicationEngineEntry:
    return p4r.PacketReplicationEngineEntry(**entry)


def _initial_default(table: Any) -> p4r.Action:
    """Return the default action that a program gives a table, as a read of it shows it."""
    initial = table.initial_default_action
    action = p4r.Action(action_id=initial.action_id)
    for argument in initial.arguments:
        action.params.add(param_id=argument.param_id, value=argument.value.lstrip(b"\0") or b"\0")
    return action


def _write_kind(entity: p4r.Entity) -> p4r.Update.Type.ValueType:
    is_default = entity.HasField("table_entry") and entity.table_entry.is_default_action
    return p4r.Update.MODIFY if is_default else p4r.Update.INSERT


def _reasons(error: grpc.RpcError) -> list[str | None]:
    """Return the reason of each update of a batch, from the details of an error; empty without details."""
    metadata: dict[str, Any] = dict(error.trailing_metadata() or ())  # type: ignore[arg-type]
    if DETAILS not in metadata:
        return []
    status = rpc_status.Status.FromString(metadata[DETAILS])
    out: list[str | None] = []
    for detail in status.details:
        update_error = p4r.Error()
        detail.Unpack(update_error)
        code = update_error.canonical_code
        if code == rpc_code.OK:
            out.append(None)
        else:
            prefix = "ALREADY_EXISTS: " if code == rpc_code.ALREADY_EXISTS else ""
            out.append(f"{prefix}{update_error.message}")
    return out
