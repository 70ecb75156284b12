"""Counters and queues by gNMI: what a server without queues, as BMv2's, means to who asks."""

import asyncio

import pytest
from finsy.proto import gnmi_grpc

from mrc_testbed.controller.errors import SwitchError
from mrc_testbed.controller.p4runtime.counters import read_ports, read_queues
from mrc_testbed.switch.server.gnmi.server import GnmiService
from mrc_testbed.switch.server.grpc_server import start_server
from mrc_testbed.switch.server.interfaces import Interfaces
from mrc_testbed.switch.server.netlink import InterfaceWatcher
from mrc_testbed.switch.system.rtnetlink import InterfaceState


class WatcherOfOne(InterfaceWatcher):
    """A watcher that knows a single interface and hears of no other."""

    def __init__(self) -> None:
        super().__init__()
        self._update(InterfaceState("s1-eth1", 11, True, "UP", 1500, 0))


def test_queues__a_server_without_them_has_none_where_that_may_be():
    async def scenario() -> None:
        interfaces = Interfaces(WatcherOfOne())
        interfaces.add_device("s1", ["s1-eth1"])
        services = [lambda server: gnmi_grpc.add_gNMIServicer_to_server(GnmiService(interfaces), server)]
        server, port = await start_server("127.0.0.1", 0, "gNMI", services)
        address = f"127.0.0.1:{port}"
        try:
            assert "s1-eth1" in await read_ports(address, ["s1-eth1"])
            assert await read_queues(address, ["s1-eth1"], missing_ok=True) == []
            with pytest.raises(SwitchError, match="NOT_FOUND"):
                await read_queues(address, ["s1-eth1"])
        finally:
            await server.stop(0)

    asyncio.run(scenario())


def test_queues__who_does_not_answer_is_silent_all_the_same():
    with pytest.raises(SwitchError, match="UNAVAILABLE"):
        asyncio.run(read_queues("127.0.0.1:1", ["s1-eth1"], missing_ok=True))
