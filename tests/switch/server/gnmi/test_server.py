"""The gNMI server over loopback gRPC.

With made-up link messages (no root), and with real veths (root).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from finsy import GNMIClient, GNMIPath
from finsy.gnmiclient import GNMIClientError
from finsy.grpcutil import GRPCStatusCode
from finsy.proto import gnmi, gnmi_grpc

from mrc_testbed.switch.server.gnmi import server as server_module
from mrc_testbed.switch.server.gnmi.server import GnmiService
from mrc_testbed.switch.server.grpc_server import start_server
from mrc_testbed.switch.server.interfaces import Interfaces
from mrc_testbed.switch.server.netlink import InterfaceWatcher
from mrc_testbed.switch.system.rtnetlink import InterfaceState, set_admin_state

OPER = GNMIPath("interfaces/interface[name=*]/state/oper-status")
TIMEOUT_S = 10.0
"""Patience for an event; passing tests take milliseconds."""

root = pytest.mark.skipif(os.geteuid() != 0, reason="makes veths: needs root")


class FakeWatcher(InterfaceWatcher):
    """A watcher that hears from the test instead of from netlink."""

    def put(self, name: str, oper: str, *, admin_up: bool = True, ifindex: int = 7) -> None:
        self._update(InterfaceState(name, ifindex, admin_up, oper, 1500, 0))

    def drop(self, name: str) -> None:
        self._remove(name, self.links[name].ifindex)


@asynccontextmanager
async def serving(interfaces: Interfaces) -> AsyncIterator[GNMIClient]:
    server, port = await start_server(
        "127.0.0.1", 0, "gNMI", [lambda s: gnmi_grpc.add_gNMIServicer_to_server(GnmiService(interfaces), s)]
    )
    try:
        async with GNMIClient(f"127.0.0.1:{port}") as client:
            yield client
    finally:
        await server.stop(0)


@asynccontextmanager
async def two_switches() -> AsyncIterator[tuple[FakeWatcher, Interfaces, GNMIClient]]:
    watcher = FakeWatcher()
    watcher.put("s1-eth1", "UP", ifindex=11)
    watcher.put("s2-eth1", "DOWN", ifindex=21)
    interfaces = Interfaces(watcher)
    interfaces.add_device("s1", ["s1-eth1", "s1-eth2"])
    interfaces.add_device("s2", ["s2-eth1"])
    async with serving(interfaces) as client:
        yield watcher, interfaces, client


def values_by_name(updates) -> dict[str, object]:
    return {str(update.path["name"]): update.value for update in updates}


async def with_timeout(awaitable):
    return await asyncio.wait_for(awaitable, TIMEOUT_S)


def target(name: str) -> GNMIPath:
    return GNMIPath("", target=name)


def test_get__all_interfaces_and_missing_ones_are_not_present():
    async def check():
        async with two_switches() as (_, _, client):
            assert values_by_name(await client.get(OPER)) == {
                "s1-eth1": "UP",
                "s1-eth2": "NOT_PRESENT",
                "s2-eth1": "DOWN",
            }
            assert values_by_name(await client.get(OPER, prefix=target("s2"))) == {"s2-eth1": "DOWN"}
            index = await client.get(GNMIPath("interfaces/interface[name=s1-eth1]/state/ifindex"))
            assert values_by_name(index) == {"s1-eth1": 11}

    asyncio.run(check())


@pytest.mark.parametrize(
    ("path", "target_name", "words"),
    [
        ("interfaces/interface[name=eth9]/state/mtu", "", "no interface 'eth9' (has: s1-eth1"),
        ("interfaces/interface[name=s2-eth1]/state/mtu", "s1", "on s1"),
        ("interfaces/interface[name=*]/state/speed", "", "oper-status"),
        ("interfaces", "s3", "no target 's3' (has: s1, s2"),
    ],
)
def test_get__unknown_things_say_what_is_there(path, target_name, words):
    async def check():
        async with two_switches() as (_, _, client):
            with pytest.raises(GNMIClientError) as caught:
                await client.get(GNMIPath(path), prefix=target(target_name))
            assert caught.value.code == GRPCStatusCode.NOT_FOUND
            assert words in caught.value.message

    asyncio.run(check())


def test_set__is_refused_and_capabilities_tell_the_model():
    async def check():
        async with two_switches() as (_, _, client):
            with pytest.raises(GNMIClientError, match="read-only") as caught:
                await client.set(update=[(GNMIPath("interfaces/interface[name=s1-eth1]/config/enabled"), True)])
            assert caught.value.code == GRPCStatusCode.UNIMPLEMENTED
            reply = await client.capabilities()
            assert [model.name for model in reply.supported_models] == ["openconfig-interfaces"]
            assert gnmi.PROTO in reply.supported_encodings

    asyncio.run(check())


def test_on_change__first_all_then_each_change():
    async def check():
        async with two_switches() as (watcher, _, client):
            stream = client.subscribe()
            stream.on_change(OPER)
            assert len([update async for update in stream.synchronize()]) == 3
            updates = aiter(stream.updates())
            watcher.put("s1-eth1", "LOWER_LAYER_DOWN", ifindex=11)
            watcher.put("s2-eth1", "UP", ifindex=21)
            watcher.drop("s1-eth1")
            watcher.put("s1-eth1", "UP", ifindex=31)
            received = [await with_timeout(anext(updates)) for _ in range(4)]
            assert [(str(u.path["name"]), u.value) for u in received] == [
                ("s1-eth1", "LOWER_LAYER_DOWN"),
                ("s2-eth1", "UP"),
                ("s1-eth1", "NOT_PRESENT"),
                ("s1-eth1", "UP"),
            ]
            stream.cancel()

    asyncio.run(check())


def test_on_change__target_narrows_to_one_switch():
    async def check():
        async with two_switches() as (watcher, _, client):
            stream = client.subscribe(prefix=target("s2"))
            stream.on_change(OPER)
            assert values_by_name([u async for u in stream.synchronize()]) == {"s2-eth1": "DOWN"}
            updates = aiter(stream.updates())
            watcher.put("s1-eth1", "DOWN", ifindex=11)
            watcher.put("s2-eth1", "UP", ifindex=21)
            update = await with_timeout(anext(updates))
            assert (update.path["name"], update.value) == ("s2-eth1", "UP")
            stream.cancel()

    asyncio.run(check())


def test_on_change__a_device_that_comes_and_goes():
    async def check():
        async with two_switches() as (watcher, interfaces, client):
            stream = client.subscribe()
            stream.on_change(OPER)
            async for _ in stream.synchronize():
                pass
            updates = aiter(stream.updates())
            watcher.put("s3-eth1", "UP", ifindex=41)
            interfaces.add_device("s3", ["s3-eth1"])
            update = await with_timeout(anext(updates))
            assert (update.path["name"], update.value) == ("s3-eth1", "UP")
            interfaces.remove_device("s3")
            update = await with_timeout(anext(updates))
            assert (update.path["name"], update.typed_value) == ("s3-eth1", None)
            stream.cancel()

    asyncio.run(check())


def test_on_change__a_subscriber_far_behind_gets_the_state_instead_of_each_change(monkeypatch):
    monkeypatch.setattr(server_module, "PENDING_MAX", 3)

    async def check():
        async with two_switches() as (watcher, _, client):
            stream = client.subscribe()
            stream.on_change(OPER)
            async for _ in stream.synchronize():
                pass
            for turn in range(10):
                watcher.put("s1-eth1", "UP" if turn % 2 else "DOWN", ifindex=11)
            updates = aiter(stream.updates())
            received = [await with_timeout(anext(updates)) for _ in range(3)]
            assert values_by_name(received) == {"s1-eth1": "UP", "s1-eth2": "NOT_PRESENT", "s2-eth1": "DOWN"}
            stream.cancel()

    asyncio.run(check())


def test_on_change_of_packet_counters__is_refused_with_the_cure():
    async def check():
        async with two_switches() as (_, _, client):
            stream = client.subscribe()
            stream.on_change(GNMIPath("interfaces/interface[name=*]/state/counters/in-pkts"))
            with pytest.raises(GNMIClientError, match="SAMPLE"):
                async for _ in stream.synchronize():
                    pass

    asyncio.run(check())


def test_once_and_sample__counters_of_loopback():
    async def check():
        watcher = InterfaceWatcher()
        watcher.start()
        async with serving(Interfaces(watcher, ("lo",))) as client:
            path = GNMIPath("interfaces/interface[name=lo]/state/counters/in-pkts")
            once = client.subscribe()
            once.once(path)
            first_updates = [update async for update in once.synchronize()]
            assert len(first_updates) == 1 and first_updates[0].value > 0
            sampling = client.subscribe()
            sampling.sample(path, sample_interval=100_000_000)
            async for _ in sampling.synchronize():
                pass
            updates = aiter(sampling.updates())
            assert (await with_timeout(anext(updates))).value > first_updates[0].value  # our own gRPC goes over lo
            sampling.cancel()
        watcher.close()

    asyncio.run(check())


def test_sample__suppress_redundant_sends_only_news():
    async def check():
        async with two_switches() as (watcher, _, client):
            stream = client.subscribe(prefix=target("s1"))
            stream.sample(OPER, sample_interval=100_000_000, suppress_redundant=True)
            assert len([u async for u in stream.synchronize()]) == 2
            updates = aiter(stream.updates())
            first = [await with_timeout(anext(updates)) for _ in range(2)]  # the first sample knows of nothing sent
            assert values_by_name(first) == {"s1-eth1": "UP", "s1-eth2": "NOT_PRESENT"}
            watcher.put("s1-eth1", "DOWN", ifindex=11)
            update = await with_timeout(anext(updates))
            assert (update.path["name"], update.value) == ("s1-eth1", "DOWN")
            stream.cancel()

    asyncio.run(check())


def test_poll__answers_each_poll():
    async def check():
        async with two_switches() as (watcher, _, client):
            call = client._stub.Subscribe()
            subscriptions = gnmi.SubscriptionList(mode=gnmi.SubscriptionList.POLL, encoding=gnmi.PROTO)
            subscriptions.subscription.add(path=GNMIPath("interfaces/interface[name=s2-eth1]/state/oper-status").path)
            await call.write(gnmi.SubscribeRequest(subscribe=subscriptions))

            async def values() -> list[str]:
                out = []
                while (message := await with_timeout(call.read())).WhichOneof("response") == "update":
                    out.append(message.update.update[0].val.string_val)
                return out

            assert await values() == ["DOWN"]
            watcher.put("s2-eth1", "UP", ifindex=21)
            await call.write(gnmi.SubscribeRequest(poll=gnmi.Poll()))
            assert await values() == ["UP"]
            call.cancel()

    asyncio.run(check())


@pytest.mark.root
@root
def test_on_change__real_veths_down_up_deleted_made_again():
    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    async def check():
        watcher = InterfaceWatcher()
        watcher.start()
        interfaces = Interfaces(watcher)
        interfaces.add_device("zz", ["zzb2a0"])
        async with serving(interfaces) as client:
            stream = client.subscribe()
            stream.on_change(OPER)
            assert values_by_name([u async for u in stream.synchronize()]) == {"zzb2a0": "NOT_PRESENT"}
            updates = aiter(stream.updates())

            # The kernel may report intermediate states: only the last one is checked
            async def wait_for_status(status: str) -> None:
                while (await with_timeout(anext(updates))).value != status:
                    pass

            ip("link", "add", "zzb2a0", "type", "veth", "peer", "name", "zzb2a1")
            await wait_for_status("DOWN")
            set_admin_state("zzb2a0", True)
            await wait_for_status("LOWER_LAYER_DOWN")
            set_admin_state("zzb2a1", True)
            await wait_for_status("UP")
            set_admin_state("zzb2a1", False)
            await wait_for_status("LOWER_LAYER_DOWN")
            ip("link", "del", "zzb2a0")
            await wait_for_status("NOT_PRESENT")
            stream.cancel()
        watcher.close()

    try:
        asyncio.run(check())
    finally:
        subprocess.run(["ip", "link", "del", "zzb2a0"], stderr=subprocess.DEVNULL, check=False)
