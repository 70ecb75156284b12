"""A stream that is refused at once ends with the server's status, whenever our write comes.

The order is forced: the client's loop stands still, and with it what it knows, between the call's being begun and its
first write; the server is another thread and ends the stream meanwhile. Each test goes on until grpc has hidden the
status of several streams from a plain call, however fast the machine is.
"""

import asyncio
import threading
import time
from collections import Counter

import grpc
import pytest
from finsy import GNMIPath, GRPCStatusCode, P4ClientError
from finsy.gnmiclient import GNMIClientError
from finsy.proto import gnmi_grpc, p4r, p4r_grpc
from grpc import _common

from mrc_testbed.controller.config import SwitchAddress
from mrc_testbed.controller.errors import SwitchError
from mrc_testbed.controller.p4runtime import grpc_streams
from mrc_testbed.controller.p4runtime.grpc_streams import (
    PLACEHOLDER,
    StatusKeepingGNMIClient,
    StatusKeepingP4Client,
    StatusKeepingStream,
)
from mrc_testbed.controller.p4runtime.session import P4RuntimeSession
from mrc_testbed.topologies.plan import Plan

HIDDEN_MIN = 20
"""Streams whose status grpc has hidden, before a test believes itself."""
UNAVAILABLE, OK = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.OK


class Refusing(p4r_grpc.P4RuntimeServicer, gnmi_grpc.gNMIServicer):
    """Ends each stream before it reads anything."""

    def __init__(self, code):
        self.code = code

    async def StreamChannel(self, _requests, context):
        if self.code is not OK:
            await context.abort(self.code, "refused at once")
        return
        yield

    Subscribe = StreamChannel


@pytest.fixture
def serve():
    """Serve from a thread of its own: `serve(code)` returns the address."""
    loop, servers = asyncio.new_event_loop(), []
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start(code):
        server = grpc.aio.server()
        p4r_grpc.add_P4RuntimeServicer_to_server(Refusing(code), server)
        gnmi_grpc.add_gNMIServicer_to_server(Refusing(code), server)
        servers.append(server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return f"127.0.0.1:{port}"

    async def stop():
        for server in servers:
            await server.stop(None)

    yield lambda code: asyncio.run_coroutine_threadsafe(start(code), loop).result()
    asyncio.run_coroutine_threadsafe(stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def write_counts(monkeypatch):
    """Count the writes that grpc answers with its placeholder.

    Each third is not held back, the others ever longer.
    """
    counts = Counter()
    write = StatusKeepingStream.write
    serialize = grpc._common.serialize

    # The delay lets the refusal of the stream overtake the write: only then does grpc hide the status.
    def serialize_late(message, serializer):
        counts["writes"] += 1
        time.sleep(counts["writes"] % 3 * 0.002 * (1 + counts["writes"] // 60))
        return serialize(message, serializer)

    async def count_writes(self, message):
        call = self._call
        plain = call.write

        async def write_and_count(message):
            try:
                await plain(message)
            except grpc.aio.AioRpcError as error:
                counts["hidden"] += (error.code(), error.details()) == PLACEHOLDER
                raise

        call.write = write_and_count
        await write(self, message)

    monkeypatch.setattr(_common, "serialize", serialize_late)
    monkeypatch.setattr(StatusKeepingStream, "write", count_writes)
    return counts


def codes(write_counts, run_stream):
    """Return the ends of `ask()`, called until enough statuses were hidden."""
    ends = Counter()

    async def story():
        while write_counts["hidden"] < HIDDEN_MIN:
            ends[await run_stream()] += 1

    asyncio.run(story())
    return set(ends)


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAUTHENTICATED, UNAVAILABLE, grpc.StatusCode.INTERNAL])
def test_p4runtime__a_stream_refused_at_once_tells_its_status(serve, write_counts, code):
    address = serve(code)

    async def run_stream():
        async with StatusKeepingP4Client(address, wait_for_ready=False) as client:
            try:
                await client.send(p4r.StreamMessageRequest())
                await client.receive()
            except P4ClientError as error:
                return error.code, error.message

    assert codes(write_counts, run_stream) == {(GRPCStatusCode.from_status_code(code), "refused at once")}


def test_p4runtime__a_stream_ended_in_order_is_an_end_and_no_error(serve, write_counts):
    address = serve(OK)

    async def run_stream():
        async with StatusKeepingP4Client(address, wait_for_ready=False) as client:
            await client.send(p4r.StreamMessageRequest())
            with pytest.raises(RuntimeError, match="EOF"):
                await client.receive()
        return OK

    assert codes(write_counts, run_stream) == {OK}


@pytest.mark.parametrize(("code", "says"), [(UNAVAILABLE, "UNAVAILABLE: refused at once"), (OK, "ended the stream")])
def test_session__of_a_switch_that_restarts_is_tried_again(serve, write_counts, srv6, code, says):
    target = SwitchAddress(Plan().switches[0], serve(code), 1, None, ())

    async def run_stream():
        with pytest.raises(SwitchError, match=says) as caught:
            await P4RuntimeSession.open(target, srv6)
        return caught.value.retry

    assert codes(write_counts, run_stream) == {True}


def test_gnmi__a_subscription_refused_at_once_tells_its_status(serve, write_counts):
    address = serve(grpc.StatusCode.UNAUTHENTICATED)

    async def run_stream():
        async with StatusKeepingGNMIClient(address) as client:
            subscription = client.subscribe()
            subscription.on_change(GNMIPath("interfaces"))
            with pytest.raises(GNMIClientError) as caught:
                async for _ in subscription.synchronize():
                    pass
            return caught.value.code

    assert codes(write_counts, run_stream) == {GRPCStatusCode.UNAUTHENTICATED}


class EndsUnder:
    """A call whose write fails before or after its status is there, and keeps the placeholder in between."""

    def __init__(self, *statuses):
        self.statuses, self.status, self.callbacks = list(statuses), None, []

    def add_done_callback(self, callback):
        self.callbacks.append(callback)

    def done(self):
        return self.status is not None

    cancel = done

    def end(self, status):
        self.status = status
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback(self)

    async def write(self, _message):
        first, *later = self.statuses
        self.end(first)
        if first == PLACEHOLDER:
            for delay, status in enumerate(later):
                asyncio.get_running_loop().call_later(0.01 * (delay + 1), self.end, status)
        for status in later if first != PLACEHOLDER else ():
            self.end(status)
        raise grpc.aio.AioRpcError(self.status[0], grpc.aio.Metadata(), grpc.aio.Metadata(), self.status[1])

    async def code(self):
        return self.status[0]

    async def details(self):
        return self.status[1]

    async def initial_metadata(self):
        return grpc.aio.Metadata()

    trailing_metadata = initial_metadata

    async def debug_error_string(self):
        return ""


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([(UNAVAILABLE, "gone"), PLACEHOLDER], UNAVAILABLE),
        ([PLACEHOLDER, (UNAVAILABLE, "gone")], UNAVAILABLE),
        ([PLACEHOLDER], grpc.StatusCode.INTERNAL),
    ],
)
def test_write__waits_for_the_status_in_either_order_and_not_for_ever(monkeypatch, statuses, code):
    monkeypatch.setattr(grpc_streams, "LOOK_S", 0.0005 if len(statuses) == 1 else 0.02)
    monkeypatch.setattr(grpc_streams, "LOOKS_MAX", 20)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        asyncio.run(StatusKeepingStream(EndsUnder(*statuses)).write(None))
    assert caught.value.code() is code
