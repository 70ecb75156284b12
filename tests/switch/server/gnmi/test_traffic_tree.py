"""gNMI Set, Get and Subscribe of traffic settings, against the daemon's real server.

No ports are opened, so no root is needed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from finsy import GNMIClient, GNMIPath
from finsy.gnmiclient import GNMIClientError
from finsy.proto import gnmi, gnmi_grpc

from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.traffic import Impairment, PortSettings
from mrc_testbed.switch.device.traffic_paths import CONFIG_LEAVES
from mrc_testbed.switch.server.chassis import Chassis
from mrc_testbed.switch.server.gnmi.interface_traffic import ChassisTraffic
from mrc_testbed.switch.server.gnmi.server import GnmiService
from mrc_testbed.switch.server.grpc_server import start_server
from mrc_testbed.switch.server.interfaces import Interfaces
from mrc_testbed.switch.server.netlink import InterfaceWatcher
from tests.switch.server.running_server import with_timeout

PORTS = {"s1": {1: "s1-eth1", 2: "s1-eth2"}, "s2": {1: "s2-eth1"}}


class Bench:
    """Two switches in memory behind a real server."""

    def __init__(
        self,
        stub: gnmi_grpc.gNMIStub,
        client: GNMIClient,
        chassis: dict[str, Chassis],
        interfaces: Interfaces,
        address: str,
    ) -> None:
        self.interfaces = interfaces
        self.address = address
        self.stub = stub
        self.client = client
        self.chassis = chassis

    async def set(self, **parts) -> gnmi.SetResponse:
        return await with_timeout(self.stub.Set(gnmi.SetRequest(**parts)))

    async def expect_refusal(self, code: grpc.StatusCode, *words: str, **parts) -> str:
        """Send a Set that must fail, and must have changed nothing."""
        settings_before = [dict(chassis.traffic) for chassis in self.chassis.values()]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.set(**parts)
        text = caught.value.details()
        assert caught.value.code() is code, text
        for word in words:
            assert word in text
        assert [dict(chassis.traffic) for chassis in self.chassis.values()] == settings_before
        return text

    def settings(self, switch: str, port: int) -> PortSettings:
        return self.chassis[switch].device.traffic.get(port)


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    interfaces, traffic, all_chassis = Interfaces(InterfaceWatcher()), ChassisTraffic(), {}
    for number, (name, ports) in enumerate(PORTS.items(), 1):
        chassis = all_chassis[name] = Chassis(name, number, ports, None)
        chassis.device = P4Device(number, name)
        traffic.add(chassis)
        interfaces.add_device(name, list(ports.values()))
    service = GnmiService(interfaces, traffic)
    server, port = await start_server(
        "127.0.0.1", 0, "gNMI", [lambda s: gnmi_grpc.add_gNMIServicer_to_server(service, s)]
    )
    try:
        async with (
            GNMIClient(f"127.0.0.1:{port}") as client,
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            yield Bench(gnmi_grpc.gNMIStub(channel), client, all_chassis, interfaces, f"127.0.0.1:{port}")
    finally:
        await server.stop(0)


def qos(name: str, leaf_path: str) -> GNMIPath:
    return GNMIPath(f"qos/interfaces/interface[interface-id={name}]/output/{leaf_path}")


def cable(name: str, leaf_path: str) -> GNMIPath:
    return GNMIPath(f"interfaces/interface[name={name}]/impairments/{leaf_path}")


def update(path: GNMIPath, **value) -> gnmi.Update:
    return gnmi.Update(path=path.path, val=gnmi.TypedValue(**value))


def as_json(value) -> dict[str, bytes]:
    return {"json_ietf_val": json.dumps(value).encode()}


RATE = qos("s1-eth1", "config/rate-bps")
DEPTH = qos("s1-eth1", "queues/queue[name=0]/config/max-packets")
DELAY = cable("s1-eth1", "output/config/delay-us")
PATTERN = cable("s1-eth1", "input/config/loss-pattern")


def test_set__leaves_reach_the_device_and_can_be_read():
    async def check():
        async with bench() as b:
            await with_timeout(b.client.set(update=[(RATE, 10_000_000), (DEPTH, 30), (DELAY, 500), (PATTERN, "0001")]))
            want = PortSettings(
                rate_bps=10_000_000, input=Impairment(loss_pattern="0001"), output=Impairment(delay_us=500)
            ).with_queue(0, max_packets=30)
            assert b.settings("s1", 1) == want
            assert b.settings("s1", 2) == PortSettings()
            got = {str(u.path): u.value for u in await b.client.get(RATE, DEPTH, DELAY, PATTERN)}
            assert sorted(map(str, got.values())) == sorted(["10000000", "30", "500", "0001"])

    asyncio.run(check())


def test_set__containers_as_json_replace_and_delete():
    async def check():
        async with bench() as b:
            queues = [{"name": "7", "config": {"max-packets": 9}}, {"name": 0, "config": {"rate-bps": "5000000"}}]
            body = {"config": {"rate-pps": 7}, "queues": {"queue": queues}}
            await b.set(update=[update(qos("s1-eth1", ""), **as_json(body))])
            assert b.settings("s1", 1) == PortSettings(rate_pps=7).with_queue(7, max_packets=9).with_queue(
                0, rate_bps=5_000_000
            )
            queue = qos("s1-eth1", "queues/queue[name=7]/config")
            await b.set(replace=[update(queue, **as_json({"max-bytes": 100}))])
            assert b.settings("s1", 1).queues[7].max_packets == 0
            assert b.settings("s1", 1).queues[7].max_bytes == 100
            assert b.settings("s1", 1).queues[0].rate_bps == 5_000_000
            reply = await b.set(delete=[qos("s1-eth1", "queues").path])
            assert b.settings("s1", 1) == PortSettings(rate_pps=7)
            assert [result.op for result in reply.response] == [gnmi.UpdateResult.DELETE]

    asyncio.run(check())


def test_set__delete_may_mean_all_and_target_narrows_it():
    async def check():
        async with bench() as b:
            everywhere = [(cable(name, "input/config/loss-ppm"), 5) for name in ("s1-eth1", "s1-eth2", "s2-eth1")]
            await with_timeout(b.client.set(update=everywhere))
            all_cables = cable("*", "input").path
            await b.set(prefix=gnmi.Path(target="s1"), delete=[all_cables])
            assert [b.settings(s, p).input.loss_ppm for s, p in (("s1", 1), ("s1", 2), ("s2", 1))] == [0, 0, 5]
            await b.set(delete=[gnmi.Path()])
            assert b.settings("s2", 1) == PortSettings()
            await b.expect_refusal(
                grpc.StatusCode.NOT_FOUND,
                "'s2-eth1'",
                "s1-eth1, s1-eth2",
                prefix=gnmi.Path(target="s1"),
                update=[update(cable("s2-eth1", "input/config/loss-ppm"), uint_val=1)],
            )

    asyncio.run(check())


def test_set__order_is_delete_replace_update():
    async def check():
        async with bench() as b:
            await b.set(update=[update(RATE, uint_val=1)])
            await b.set(update=[update(RATE, uint_val=3)], replace=[update(RATE, uint_val=2)], delete=[RATE.path])
            assert b.settings("s1", 1).rate_bps == 3

    asyncio.run(check())


INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("code", "words", "path", "value"),
    [
        (INVALID, ("delay-us = 60000001", "0 to 60000000"), DELAY, {"uint_val": 60_000_001}),
        (INVALID, ("rate-bps = -1", "0 to"), RATE, {"int_val": -1}),
        (INVALID, ("rate-bps = '10'", "whole number"), RATE, {"string_val": "10"}),
        (INVALID, ("rate-bps = True",), RATE, as_json(True)),
        (INVALID, ("rate-bps = 1.5",), RATE, as_json(1.5)),
        (INVALID, ("not JSON", "NaN"), RATE, {"json_val": b"NaN"}),
        (INVALID, ("not JSON",), RATE, {"json_ietf_val": b"[" * 100_000}),
        (INVALID, ("not JSON",), RATE, {"json_ietf_val": b"\xff"}),
        (INVALID, ("double_val",), RATE, {"double_val": 1.0}),
        (INVALID, ("no value",), RATE, {}),
        (INVALID, ("loss-pattern = '012'", "0 and 1"), PATTERN, {"string_val": "012"}),
        (INVALID, ("...", "at most 4096"), PATTERN, {"string_val": "0" * 4097}),
        (INVALID, ("read-only",), qos("s1-eth1", "queues/queue[name=0]/state/depth-packets"), {"uint_val": 1}),
        (NOT_FOUND, ("no such path", "rate-bps"), qos("s1-eth1", "config/rate"), {"uint_val": 1}),
        (NOT_FOUND, ("no such path",), qos("s1-eth1", "queues/queue[name=8]/config/rate-bps"), {"uint_val": 1}),
        (NOT_FOUND, ("no such path",), GNMIPath("interfaces/interface[name=s1-eth1]/state/mtu"), {"uint_val": 1}),
        (NOT_FOUND, ("'s1-eth9'", "s1-eth1"), cable("s1-eth9", "input/config/seed"), {"uint_val": 1}),
        (INVALID, ("no *",), cable("s1-eth1", "*/config/seed"), {"uint_val": 1}),
        (INVALID, ("name one interface",), cable("*", "input/config/seed"), {"uint_val": 1}),
        (INVALID, ("name one interface",), GNMIPath("qos"), as_json({})),
        (INVALID, ("a container takes a JSON object",), qos("s1-eth1", "config"), {"uint_val": 1}),
        (INVALID, ("a container takes a JSON object", "rate-bps"), qos("s1-eth1", "config"), as_json([1])),
        (INVALID, ("no 'rate-mbps' here (has: rate-bps, rate",), qos("s1-eth1", "config"), as_json({"rate-mbps": 1})),
        (INVALID, ("no queue '8'",), qos("s1-eth1", "queues"), as_json({"queue": [{"name": "8"}]})),
        (INVALID, ("JSON list",), qos("s1-eth1", "queues/queue"), as_json({"name": "1"})),
        (INVALID, ("read-only",), qos("s1-eth1", "queues/queue[name=1]"), as_json({"state": {"depth-packets": 1}})),
    ],
)
def test_set__hostile_requests_change_nothing_and_say_what_is_allowed(code, words, path, value):
    async def check():
        async with bench() as b:
            await b.expect_refusal(code, *words, update=[update(DEPTH, uint_val=5), update(path, **value)])

    asyncio.run(check())


def test_set__old_paths_foreign_origins_and_union_replace_are_refused():
    async def check():
        async with bench() as b:
            old_style_update = gnmi.Update(path=gnmi.Path(element=["qos"]), val=gnmi.TypedValue(uint_val=1))
            await b.expect_refusal(INVALID, "elem", update=[old_style_update])
            foreign_path = gnmi.Path(origin="cli", elem=RATE.path.elem)
            await b.expect_refusal(NOT_FOUND, "openconfig", delete=[foreign_path])
            await b.expect_refusal(grpc.StatusCode.UNIMPLEMENTED, "replace", union_replace=[update(RATE, uint_val=1)])
            await b.expect_refusal(NOT_FOUND, "no target 's9'", prefix=gnmi.Path(target="s9"), delete=[RATE.path])

    asyncio.run(check())


def test_get__types_and_the_whole_port():
    async def check():
        async with bench() as b:
            await b.set(update=[update(RATE, uint_val=5)])
            port = GNMIPath("qos/interfaces/interface[interface-id=s1-eth1]").path
            for kind, names in ((1, {"config"}), (2, {"interface-id", "name", "state"}), (0, None)):
                reply = await with_timeout(b.stub.Get(gnmi.GetRequest(path=[port], type=kind)))
                paths = [[e.name for e in u.path.elem] for n in reply.notification for u in n.update]
                if names is not None:
                    assert {p[-2] if p[-2] in ("config", "state") else p[-1] for p in paths} == names
                else:
                    assert len(paths) == 9 + 2 + 8 * (4 + 7)
            mtu = GNMIPath("interfaces/interface[name=s1-eth1]/state/mtu").path
            with pytest.raises(grpc.aio.AioRpcError, match="nothing of type CONFIG"):
                await with_timeout(b.stub.Get(gnmi.GetRequest(path=[mtu], type=1)))

    asyncio.run(check())


def test_subscribe__on_change_tells_settings_as_they_are_set():
    async def check():
        async with bench() as b:
            stream = b.client.subscribe()
            stream.on_change(qos("*", "config"), cable("s1-eth1", "output/config/delay-us"))
            assert len([u async for u in stream.synchronize()]) == 3 * 2 + 1
            updates = aiter(stream.updates())
            await b.set(update=[update(RATE, uint_val=8), update(DELAY, uint_val=0)])  # the second is no change
            await b.set(update=[update(DELAY, uint_val=9)])
            first, second = [await with_timeout(anext(updates)) for _ in range(2)]
            assert (first.path["interface-id"], first.value, second.value) == ("s1-eth1", 8, 9)
            stream.cancel()

    asyncio.run(check())


def test_subscribe__depths_are_sampled_and_never_on_change():
    async def check():
        async with bench() as b:
            depth = qos("s1-eth1", "queues/queue[name=0]/state/depth-packets")
            stream = b.client.subscribe()
            stream.sample(depth, sample_interval=100_000_000)
            assert [u.value async for u in stream.synchronize()] == [0]
            assert (await with_timeout(anext(aiter(stream.updates())))).value == 0
            stream.cancel()
            stream = b.client.subscribe()
            stream.on_change(depth)
            with pytest.raises(GNMIClientError, match="SAMPLE or ONCE"):
                [u async for u in stream.synchronize()]

    asyncio.run(check())


def test_settings__outlast_the_power_but_not_the_device():
    async def check():
        async with bench() as b:
            await b.set(update=[update(DELAY, uint_val=9)])
            b.chassis["s1"].device.close()
            b.chassis["s1"].device = None
            await b.set(update=[update(RATE, uint_val=4)])  # a switch that is off takes settings
            state = qos("s1-eth1", "queues/queue[name=0]/state/depth-packets")
            assert [u.value for u in await b.client.get(state, RATE, DELAY)] == [9, 4, 0]
            assert b.chassis["s1"].traffic == {1: PortSettings(rate_bps=4, output=Impairment(delay_us=9))}

    asyncio.run(check())


def test_capabilities__list_the_models():
    async def check():
        async with bench() as b:
            models = {model.name for model in (await b.client.capabilities()).supported_models}
            assert models == {"openconfig-interfaces", "openconfig-qos", "mrc-testbed-impairments"}

    asyncio.run(check())


def test_paths__every_config_leaf_can_be_set_and_deleted():
    async def check():
        async with bench() as b:
            updates = []
            for leaf, config_leaf in CONFIG_LEAVES.items():
                kind = cable if leaf[0] == "impairments" else qos
                leaf_path = "/".join(leaf[1:])
                value = {"uint_val": 1} if config_leaf.maximum is not None else {"string_val": "1"}
                updates.append(update(kind("s2-eth1", leaf_path), **value))
            await b.set(update=updates)
            settings = b.settings("s2", 1)
            assert settings.input == settings.output == Impairment(1, 1, "1", 1, "1", 1)
            assert (settings.rate_bps, settings.rate_pps) == (1, 1)
            assert {(q.rate_bps, q.rate_pps, q.max_packets, q.max_bytes) for q in settings.queues} == {(1, 1, 1, 1)}
            await b.set(delete=[u.path for u in updates])
            assert b.settings("s2", 1) == PortSettings()

    asyncio.run(check())
