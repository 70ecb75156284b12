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

from finsy.proto import U128, p4r, p4r_grpc, rpc_code

from switch.daemon.arbitration import ArbitrationError, Controller
from switch.daemon.chassis import Chassis, Registry
from switch.daemon.errors import RpcError, abort, abort_write
from switch.daemon.packetio import packet_out_frame
from switch.daemon.pipeline import Compiler, build_pipeline
from switch.daemon.read import CHUNK, read_entities
from switch.daemon.write import apply_updates
from switch.entities import TableError
from switch.loop import PortError
from switch.serve import BadRequest

P4RUNTIME_VERSION = "1.4.1"
PACKETS_WAITING_MAX = 1024
"""Packet-ins queued for one controller; later ones are dropped and counted."""

ConfigRequest = p4r.SetForwardingPipelineConfigRequest
ConfigResponse = p4r.GetForwardingPipelineConfigResponse

log = logging.getLogger(__name__)


class _Stream:
    """The way out of one StreamChannel: messages wait here for the client to read them."""

    def __init__(self) -> None:
        self.controller = Controller(self.send)
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

    def close(self, code: int, text: str) -> None:
        self._end = self._end or RpcError(code, text)
        self._wake.set()

    async def messages(self) -> AsyncIterator[p4r.StreamMessageResponse]:
        """What is sent, until the stream is closed. Raises RpcError unless that was with OK."""
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
        except (RpcError, ArbitrationError) as error:
            stream.close(error.code, str(error))
        except BadRequest as error:
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
            error = RpcError(rpc_code.INVALID_ARGUMENT, f"stream message of kind {kind or 'none'}")
            _stream_error(stream, error, other=p4r.StreamOtherError())

    async def _arbitrate(self, stream: _Stream, message: p4r.MasterArbitrationUpdate) -> None:
        chassis = stream.chassis
        if chassis is None:
            while not (chassis := self._registry.with_id(message.device_id)).on:
                await chassis.powered.wait()
        chassis.arbitration.update(stream.controller, message)
        stream.chassis = chassis
        chassis.streams[stream.controller] = stream

    def _digest_ack(self, stream: _Stream, ack: p4r.DigestListAck) -> None:
        chassis = stream.chassis
        if chassis is None or stream.controller not in chassis.arbitration.primaries():
            raise RpcError(rpc_code.PERMISSION_DENIED, "digest ack: only a primary controller gets digests")
        chassis.configured()
        if chassis.digests is not None:
            chassis.digests.acknowledge(ack)

    def _packet_out(self, stream: _Stream, packet: p4r.PacketOut) -> None:
        chassis = stream.chassis
        if chassis is None or stream.controller not in chassis.arbitration.primaries():
            raise RpcError(rpc_code.PERMISSION_DENIED, "packet-out: only a primary controller may send packets")
        device, pipeline = chassis.configured()
        frame = packet_out_frame(pipeline.program.p4info, packet)
        try:
            self._registry.loop.inject(device, frame)
        except (ValueError, PortError) as error:
            raise RpcError(rpc_code.INVALID_ARGUMENT, f"packet-out: {error}") from None

    # ---- pipeline ---------------------------------------------------------------------------------------

    async def SetForwardingPipelineConfig(
        self, request: ConfigRequest, context: Any
    ) -> p4r.SetForwardingPipelineConfigResponse:
        try:
            chassis = self._registry.with_id(request.device_id)
            self._check_primary(chassis, request)
            await self._set_pipeline(chassis, request)
        except RpcError as error:
            await abort(context, error)
        return p4r.SetForwardingPipelineConfigResponse()

    async def _set_pipeline(self, chassis: Chassis, request: ConfigRequest) -> None:
        device, action = chassis.running(), request.action
        if action == ConfigRequest.RECONCILE_AND_COMMIT:
            self._reconcile(chassis, request)
            return
        if action == ConfigRequest.COMMIT:
            pipeline = chassis.saved
            if request.HasField("config"):
                raise RpcError(rpc_code.INVALID_ARGUMENT, "COMMIT takes no config: VERIFY_AND_SAVE took it")
            if pipeline is None:
                raise RpcError(rpc_code.FAILED_PRECONDITION, "COMMIT without a VERIFY_AND_SAVE before it")
        elif action in (ConfigRequest.VERIFY, ConfigRequest.VERIFY_AND_SAVE, ConfigRequest.VERIFY_AND_COMMIT):
            pipeline = await build_pipeline(self._compiler, request.config)
        else:
            raise RpcError(rpc_code.INVALID_ARGUMENT, f"action {action} (want VERIFY_AND_COMMIT)")
        if action == ConfigRequest.VERIFY:
            return
        async with chassis.writing:
            if chassis.running() is not device:
                raise RpcError(rpc_code.UNAVAILABLE, f"{chassis.name} was switched off and on during the request")
            self._check_primary(chassis, request)
            if action == ConfigRequest.VERIFY_AND_SAVE:
                chassis.saved = pipeline
                return
            try:
                chassis.start(pipeline)
            except TableError as error:
                raise RpcError(rpc_code.INVALID_ARGUMENT, error.message) from None
        log.info("%s: pipeline %s", chassis.name, pipeline.program.name)

    def _reconcile(self, chassis: Chassis, request: ConfigRequest) -> None:
        """Keeping state across a change of program is not supported; across the same program it is no change."""
        _, pipeline = chassis.configured()
        same = (
            request.config.p4_device_config == pipeline.config.p4_device_config
            and request.config.p4info == pipeline.config.p4info
        )
        if not same:
            raise RpcError(
                rpc_code.UNIMPLEMENTED,
                "RECONCILE_AND_COMMIT of another program than the running one: use VERIFY_AND_COMMIT",
            )
        pipeline.config.cookie.CopyFrom(request.config.cookie)

    async def GetForwardingPipelineConfig(
        self, request: p4r.GetForwardingPipelineConfigRequest, context: Any
    ) -> ConfigResponse:
        try:
            _, pipeline = self._registry.with_id(request.device_id).configured()
        except RpcError as error:
            await abort(context, error)
        wanted, kinds = request.response_type, p4r.GetForwardingPipelineConfigRequest
        response = ConfigResponse()
        if pipeline.config.HasField("cookie"):
            response.config.cookie.CopyFrom(pipeline.config.cookie)
        if wanted in (kinds.ALL, kinds.P4INFO_AND_COOKIE):
            response.config.p4info.CopyFrom(pipeline.program.p4info)
        if wanted in (kinds.ALL, kinds.DEVICE_CONFIG_AND_COOKIE):
            response.config.p4_device_config = pipeline.config.p4_device_config
        return response

    # ---- entities ---------------------------------------------------------------------------------------

    async def Write(self, request: p4r.WriteRequest, context: Any) -> p4r.WriteResponse:
        try:
            errors = await self._write(request)
        except RpcError as error:
            await abort(context, error)
        if any(errors):
            await abort_write(context, errors)
        return p4r.WriteResponse()

    async def _write(self, request: p4r.WriteRequest) -> list[RpcError | None]:
        chassis = self._registry.with_id(request.device_id)
        self._check_primary(chassis, request)
        if request.atomicity != p4r.WriteRequest.CONTINUE_ON_ERROR:
            name = p4r.WriteRequest.Atomicity.Name(request.atomicity) if request.atomicity in (1, 2) else "?"
            raise RpcError(rpc_code.UNIMPLEMENTED, f"atomicity {name} is not supported (has: CONTINUE_ON_ERROR)")
        async with chassis.writing:
            device, _ = chassis.configured()
            return await apply_updates(chassis, device, request.updates)

    async def Read(self, request: p4r.ReadRequest, context: Any) -> AsyncIterator[p4r.ReadResponse]:
        try:
            chassis = self._registry.with_id(request.device_id)
            device, pipeline = chassis.configured()
            entities = read_entities(chassis, device, pipeline.program.p4info, request)
        except RpcError as error:
            await abort(context, error)
        for at in range(0, len(entities), CHUNK):
            yield p4r.ReadResponse(entities=entities[at : at + CHUNK])

    async def Capabilities(self, request: p4r.CapabilitiesRequest, context: Any) -> p4r.CapabilitiesResponse:
        return p4r.CapabilitiesResponse(p4runtime_api_version=P4RUNTIME_VERSION)

    @staticmethod
    def _check_primary(chassis: Chassis, request: ConfigRequest | p4r.WriteRequest) -> None:
        """Raises RpcError UNAVAILABLE, or PERMISSION_DENIED when the request is not the primary's."""
        chassis.running()
        election_id = U128.decode(request.election_id)
        if chassis.arbitration.may_write(request.role, election_id):
            return
        primary = chassis.arbitration.primary_election_id(request.role)
        who = f"election id {election_id}" + (f", role {request.role!r}," if request.role else "")
        why = f"the primary has {primary}" if primary is not None else "there is no primary (open a StreamChannel)"
        raise RpcError(rpc_code.PERMISSION_DENIED, f"{who} is not the primary of device {chassis.device_id}: {why}")


def _stream_error(stream: _Stream, error: RpcError, **details: Any) -> None:
    message = p4r.StreamError(canonical_code=error.code, message=str(error), **details)
    stream.send(p4r.StreamMessageResponse(error=message))
