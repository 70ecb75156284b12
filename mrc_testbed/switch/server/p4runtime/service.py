"""The P4Runtime service: the RPCs, their checks and the stream of each controller.

Status codes are those of the specification; two choices are ours:

1. A device that is switched off answers UNAVAILABLE, and so do its streams the moment it loses power.
2. A stream that asks for a device which is switched off is not refused: its arbitration is answered when the
   device comes on. A client of a rebooting switch meets the same (its connection waits), and finsy, which waits
   10 seconds after a quick refusal, is back within milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from finsy.proto import p4r, p4r_grpc, rpc_code

from mrc_testbed.switch.device.entities import TableError
from mrc_testbed.switch.device.loop import PortError
from mrc_testbed.switch.server.chassis import Chassis, Registry
from mrc_testbed.switch.server.grpc_server import BadRequestError
from mrc_testbed.switch.server.p4runtime.arbitration import UNSET, ArbitratedController, election_id_of
from mrc_testbed.switch.server.p4runtime.errors import RpcError, abort, abort_batch
from mrc_testbed.switch.server.p4runtime.packetio import packet_out_frame
from mrc_testbed.switch.server.p4runtime.pipeline import Compiler, Pipeline, build_pipeline
from mrc_testbed.switch.server.p4runtime.read import CHUNK, read_entities
from mrc_testbed.switch.server.p4runtime.reconcile import carry_over
from mrc_testbed.switch.server.p4runtime.write import apply_updates

P4RUNTIME_VERSION = "1.4.1"
PACKETS_WAITING_MAX = 1024
"""Packet-ins queued for one controller; later ones are dropped and counted."""
NOTICES_WAITING_MAX = 8192
"""Messages of any kind queued for one controller, beyond which digests and idle timeouts are dropped."""

ConfigRequest = p4r.SetForwardingPipelineConfigRequest
ConfigResponse = p4r.GetForwardingPipelineConfigResponse
_BUILDS = (
    ConfigRequest.VERIFY,
    ConfigRequest.VERIFY_AND_SAVE,
    ConfigRequest.VERIFY_AND_COMMIT,
    ConfigRequest.RECONCILE_AND_COMMIT,
)
"""Actions with a config."""

log = logging.getLogger(__name__)


class _Stream:
    """The way out of one StreamChannel: messages wait here for the client to read them."""

    def __init__(self) -> None:
        self.controller = ArbitratedController(self.send)
        self.chassis: Chassis | None = None
        self._waiting: deque[p4r.StreamMessageResponse] = deque()
        self._packets = 0
        self._end: RpcError | None = None
        self._wake = asyncio.Event()

    @property
    def ended(self) -> bool:
        return self._end is not None

    def send(self, message: p4r.StreamMessageResponse) -> None:
        self._waiting.append(message)
        self._wake.set()

    def send_packet(self, message: p4r.StreamMessageResponse) -> bool:
        if self._packets >= PACKETS_WAITING_MAX:
            return False
        self._packets += 1
        self.send(message)
        return True

    def send_notice(self, message: p4r.StreamMessageResponse) -> None:
        if len(self._waiting) < NOTICES_WAITING_MAX:
            self.send(message)

    def close(self, code: rpc_code.Code.ValueType, text: str) -> None:
        self._end = self._end or RpcError(code, text)
        self._wake.set()

    async def messages(self) -> AsyncIterator[p4r.StreamMessageResponse]:
        """Messages to send, until the stream is closed. Raises RpcError unless it was closed with OK."""
        while True:
            while self._waiting and self._end is None:
                message = self._waiting.popleft()
                self._packets -= message.WhichOneof("update") == "packet"
                yield message
            if self._end is not None:
                if self._end.code == rpc_code.OK:
                    return
                raise self._end
            self._wake.clear()
            await self._wake.wait()

    def leave(self) -> None:
        """The stream is over: its device forgets it."""
        if self.chassis is not None:
            self.chassis.streams.pop(self.controller, None)
            self.chassis.arbitration.leave(self.controller)


class P4RuntimeService(p4r_grpc.P4RuntimeServicer):
    """P4Runtime for all devices of a registry."""

    def __init__(self, registry: Registry, compiler: Compiler) -> None:
        self._registry = registry
        self._compiler = compiler

    # ---- stream -----------------------------------------------------------------------------------------

    async def StreamChannel(
        self, requests: AsyncIterator[p4r.StreamMessageRequest], context: Any
    ) -> AsyncIterator[p4r.StreamMessageResponse]:
        stream = _Stream()
        reader = asyncio.ensure_future(self._read_stream(stream, requests))
        try:
            async for message in stream.messages():
                yield message
        except RpcError as error:
            await abort(context, error)
        finally:
            reader.cancel()
            stream.leave()

    async def _read_stream(self, stream: _Stream, requests: AsyncIterator[p4r.StreamMessageRequest]) -> None:
        try:
            async for request in requests:
                if stream.ended:
                    return
                await self._stream_request(stream, request)
            stream.close(rpc_code.OK, "")
        except RpcError as error:
            stream.close(error.code, str(error))
        except BadRequestError as error:
            stream.close(rpc_code.INVALID_ARGUMENT, str(error))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.exception("StreamChannel failed")
            stream.close(rpc_code.INTERNAL, f"internal error: {type(error).__name__}: {error}")

    async def _stream_request(self, stream: _Stream, request: p4r.StreamMessageRequest) -> None:
        kind = request.WhichOneof("update")
        if kind == "arbitration":
            await self._arbitrate(stream, request.arbitration)
        elif kind == "packet":
            try:
                self._packet_out(stream, request.packet)
            except RpcError as error:
                _stream_error(stream, error, packet_out=p4r.PacketOutError(packet_out=request.packet))
        elif kind == "digest_ack":
            try:
                self._digest_ack(stream, request.digest_ack)
            except RpcError as error:
                details = p4r.DigestListAckError(digest_list_ack=request.digest_ack)
                _stream_error(stream, error, digest_list_ack=details)
        else:
            unknown = RpcError(rpc_code.INVALID_ARGUMENT, f"stream message of kind {kind or 'none'}")
            _stream_error(stream, unknown, other=p4r.StreamOtherError())

    async def _arbitrate(self, stream: _Stream, message: p4r.MasterArbitrationUpdate) -> None:
        chassis = stream.chassis
        if chassis is None:
            while not (chassis := self._registry.with_id(message.device_id)).on:
                await chassis.power_event.wait()
        async with chassis.writing:  # a new primary hears of it when the writes of the old one are done
            chassis.arbitration.update(stream.controller, message)
            stream.chassis = chassis
            chassis.streams[stream.controller] = stream

    def _digest_ack(self, stream: _Stream, ack: p4r.DigestListAck) -> None:
        chassis = stream.chassis
        if chassis is None or not chassis.arbitration.is_primary(stream.controller):
            raise RpcError(rpc_code.PERMISSION_DENIED, "digest ack: only a primary controller gets digests")
        chassis.client_contents()
        if chassis.running_contents is not None:
            chassis.running_contents.digests.acknowledge(ack)

    def _packet_out(self, stream: _Stream, packet: p4r.PacketOut) -> None:
        chassis = stream.chassis
        if chassis is None or not chassis.arbitration.is_primary(stream.controller):
            raise RpcError(rpc_code.PERMISSION_DENIED, "packet-out: only a primary controller may send packets")
        contents = chassis.running_contents or chassis.client_contents()
        frame = packet_out_frame(contents.pipeline.program.p4info, contents.device.schema.type_bits, packet)
        try:
            self._registry.loop.inject(chassis.running(), frame)
        except (ValueError, PortError) as error:
            raise RpcError(rpc_code.INVALID_ARGUMENT, f"packet-out: {error}") from None

    # ---- pipeline ---------------------------------------------------------------------------------------

    async def SetForwardingPipelineConfig(
        self, request: ConfigRequest, context: Any
    ) -> p4r.SetForwardingPipelineConfigResponse:
        try:
            chassis = self._registry.with_id(request.device_id)
            self._check_primary(chassis, request)
            if not chassis.arbitration.scope(request.role).pushes:
                raise RpcError(rpc_code.PERMISSION_DENIED, f"role {request.role!r} may not push a pipeline")
            await self._set_pipeline(chassis, request)
        except RpcError as error:
            await abort(context, error)
        return p4r.SetForwardingPipelineConfigResponse()

    async def _set_pipeline(self, chassis: Chassis, request: ConfigRequest) -> None:
        device, action = chassis.running(), request.action
        if action not in _BUILDS and action != ConfigRequest.COMMIT:
            known_names = ", ".join(ConfigRequest.Action.keys()[1:])
            raise RpcError(rpc_code.INVALID_ARGUMENT, f"action {action} (has: {known_names})")
        if action == ConfigRequest.COMMIT and request.HasField("config"):
            raise RpcError(rpc_code.INVALID_ARGUMENT, "COMMIT takes no config: VERIFY_AND_SAVE took it")
        pipeline = await build_pipeline(self._compiler, request.config) if action in _BUILDS else None
        async with chassis.writing:
            if chassis.running() is not device:
                raise RpcError(rpc_code.UNAVAILABLE, f"{chassis.name} was switched off and on during the request")
            self._check_primary(chassis, request)
            try:
                self._take_pipeline(chassis, action, pipeline)
            except TableError as error:
                raise RpcError(rpc_code.INVALID_ARGUMENT, error.message) from None

    @staticmethod
    def _take_pipeline(chassis: Chassis, action: int, pipeline: Pipeline | None) -> None:
        """Raises RpcError, TableError; what ran runs on then."""
        if action == ConfigRequest.COMMIT:
            if chassis.saved_contents is None:
                raise RpcError(rpc_code.NOT_FOUND, "COMMIT without a VERIFY_AND_SAVE before it")
            chassis.run(chassis.saved_contents)
            return
        assert pipeline is not None
        old = chassis.saved_contents or chassis.running_contents
        if action == ConfigRequest.VERIFY_AND_COMMIT or (action == ConfigRequest.RECONCILE_AND_COMMIT and old is None):
            chassis.start(pipeline)
            log.info("%s: pipeline %s", chassis.name, pipeline.program.name)
            return
        trial = chassis.save(pipeline)
        if action == ConfigRequest.VERIFY_AND_SAVE:
            chassis.saved_contents = trial
        elif action == ConfigRequest.RECONCILE_AND_COMMIT and old is not None:
            if old is chassis.running_contents and old.pipeline.same_program(pipeline):
                old.pipeline = pipeline  # the cookie may be another
                return
            with chassis.running().packets_paused():  # what packets count and write meanwhile would be lost
                carry_over(old, trial)
                chassis.run(trial)
            log.info("%s: pipeline %s, entries kept", chassis.name, pipeline.program.name)

    async def GetForwardingPipelineConfig(
        self, request: p4r.GetForwardingPipelineConfigRequest, context: Any
    ) -> ConfigResponse:
        response_type, kinds = request.response_type, p4r.GetForwardingPipelineConfigRequest
        try:
            pipeline = self._registry.with_id(request.device_id).client_contents().pipeline
            if response_type not in kinds.ResponseType.values():
                known_names = ", ".join(kinds.ResponseType.keys())
                raise RpcError(rpc_code.INVALID_ARGUMENT, f"response type {response_type} (has: {known_names})")
        except RpcError as error:
            await abort(context, error)
        response = ConfigResponse()
        response.config.SetInParent()
        if pipeline.config.HasField("cookie"):
            response.config.cookie.CopyFrom(pipeline.config.cookie)
        if response_type in (kinds.ALL, kinds.P4INFO_AND_COOKIE):
            response.config.p4info.CopyFrom(pipeline.config.p4info)
        if response_type in (kinds.ALL, kinds.DEVICE_CONFIG_AND_COOKIE):
            response.config.p4_device_config = pipeline.config.p4_device_config
        return response

    # ---- entities ---------------------------------------------------------------------------------------

    async def Write(self, request: p4r.WriteRequest, context: Any) -> p4r.WriteResponse:
        try:
            errors = await self._write(request)
        except RpcError as error:
            await abort(context, error)
        if any(errors):
            await abort_batch(context, errors, "update")
        return p4r.WriteResponse()

    async def _write(self, request: p4r.WriteRequest) -> list[RpcError | None]:
        chassis = self._registry.with_id(request.device_id)
        self._check_primary(chassis, request)
        async with chassis.writing:
            self._check_primary(chassis, request)  # another may have become primary while it waited
            contents, scope = chassis.client_contents(), chassis.arbitration.scope(request.role)
            try:
                return await apply_updates(chassis, contents, request, scope)
            finally:
                if contents is chassis.running_contents:
                    contents.watch_idle()

    async def Read(self, request: p4r.ReadRequest, context: Any) -> AsyncIterator[p4r.ReadResponse]:
        try:
            chassis = self._registry.with_id(request.device_id)
            async with chassis.writing:  # the state before or after a Write, and nothing between
                scope = chassis.arbitration.scope(request.role)
                entities, errors = read_entities(chassis.client_contents(), request, scope)
        except RpcError as error:
            await abort(context, error)
        for offset in range(0, len(entities), CHUNK):
            yield p4r.ReadResponse(entities=entities[offset : offset + CHUNK])
        if any(errors):
            await abort_batch(context, errors, "entity")

    async def Capabilities(self, _request: p4r.CapabilitiesRequest, _context: Any) -> p4r.CapabilitiesResponse:
        return p4r.CapabilitiesResponse(p4runtime_api_version=P4RUNTIME_VERSION)

    @staticmethod
    def _check_primary(chassis: Chassis, request: ConfigRequest | p4r.WriteRequest) -> None:
        """Check that a request comes from the primary of its role.

        Raises RpcError UNAVAILABLE, NOT_FOUND (the role), or PERMISSION_DENIED when it does not.
        """
        chassis.running()
        if not chassis.arbitration.knows(request.role):
            has = ", ".join(map(repr, chassis.arbitration.role_names())) or "the default role only"
            text = f"device {chassis.device_id} has no role {request.role!r} (has: {has}; a StreamChannel brings one)"
            raise RpcError(rpc_code.NOT_FOUND, text)
        election_id = election_id_of(request)
        if chassis.arbitration.may_write(request.role, election_id):
            return
        primary = chassis.arbitration.primary_election_id(request.role)
        client = "no election id" if election_id == UNSET else f"election id {election_id}"
        client += f", role {request.role!r}," if request.role else ""
        reason = f"the primary has {primary}" if primary is not None else "there is no primary (open a StreamChannel)"
        raise RpcError(
            rpc_code.PERMISSION_DENIED, f"{client} is not the primary of device {chassis.device_id}: {reason}"
        )


def _stream_error(stream: _Stream, error: RpcError, **details: Any) -> None:
    message = p4r.StreamError(canonical_code=error.code, message=str(error), **details)
    stream.send(p4r.StreamMessageResponse(error=message))
