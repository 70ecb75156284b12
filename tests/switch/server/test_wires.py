"""Wires of a daemon: the control socket's operations, what gNMI shows of them, power.

No root, no interfaces.
"""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from mrc_testbed.switch.device.loop import PortError
from mrc_testbed.switch.server.wires import DaemonWires
from tests.switch.mini_program import frame
from tests.switch.server.running_server import running_daemon, with_timeout
from tests.switch.server.test_control import lines_to


@pytest.fixture
def path(tmp_path):
    return tmp_path / "control.sock"


async def two_switches(client):
    """Add switches a and b, whose first ports are the ends of a wire."""
    assert (await client.request("add_wires", wires=[["a1", "b1"]]))["ok"]
    for number, name in enumerate("ab", 1):
        assert (await client.request("add_device", name=name, device_id=number, ports={"1": f"{name}1"}))["ok"]


def interface_leaves(daemon, name):
    """Return (admin-status, oper-status, mtu, carrier-transitions) of an interface, as in gNMI."""
    values = daemon.interfaces.values(name)
    leaves = (("admin-status",), ("oper-status",), ("mtu",), ("counters", "carrier-transitions"))
    return tuple(values[("state", *leaf)] for leaf in leaves)


def test_set_wires__either_end_takes_the_others_carrier(path):
    async def check():
        async with running_daemon(path, devices=0) as daemon, lines_to(path) as client:
            await two_switches(client)
            assert interface_leaves(daemon, "a1") == interface_leaves(daemon, "b1") == ("UP", "UP", 9216, 0)
            changes = []
            daemon.interfaces.listen(lambda change: changes.append((change.device, change.name)))
            assert (await client.request("set_wires", interfaces=["b1"], up=False))["ok"]
            assert interface_leaves(daemon, "b1") == ("DOWN", "DOWN", 9216, 1)
            assert interface_leaves(daemon, "a1") == ("UP", "LOWER_LAYER_DOWN", 9216, 1)
            assert sorted(changes) == [("a", "a1"), ("b", "b1")]
            assert (await client.request("set_wires", interfaces=["b1"], up=False))["ok"]
            assert len(changes) == 2, "nothing changed"
            assert (await client.request("set_wires", interfaces=["a1", "b1"], up=True))["ok"]
            assert interface_leaves(daemon, "a1") == ("UP", "UP", 9216, 2)

    asyncio.run(check())


def test_power__an_end_is_down_with_its_switch_and_comes_back(path):
    async def check():
        async with running_daemon(path, devices=0) as daemon, lines_to(path) as client:
            await two_switches(client)
            assert (await client.request("power", name="b", on=False))["ok"]
            assert (
                interface_leaves(daemon, "b1")[:2] == ("DOWN", "DOWN")
                and interface_leaves(daemon, "a1")[1] == "LOWER_LAYER_DOWN"
            )
            assert (await client.request("power", name="b", on=True))["ok"]
            assert interface_leaves(daemon, "a1")[:2] == interface_leaves(daemon, "b1")[:2] == ("UP", "UP")
            assert (await client.request("power", name="b", on=False, keep_links=True))["ok"]
            assert interface_leaves(daemon, "a1")[1] == "UP"

    asyncio.run(check())


def test_wires__counters_of_both_ends_and_over_gnmi(path):
    async def check():
        async with running_daemon(path, devices=0) as daemon, lines_to(path) as client:
            await two_switches(client)
            device = daemon.registry.with_name("a").device
            daemon.loop.send(device, 1, frame(0, payload=b"x" * 80))
            while (ends := (await client.request("wires"))["wires"])["b1"]["rx_packets"] < 1:
                await asyncio.sleep(0.001)
            assert (ends["a1"]["tx_packets"], ends["a1"]["tx_bytes"], ends["b1"]["rx_bytes"]) == (1, 102, 102)
            assert ends["a1"]["far"] == "b1" and ends["a1"]["up"] is True
            assert list((await client.request("wires", interfaces=["b1"]))["wires"]) == ["b1"]
            counters = daemon.interfaces.counters()
            assert counters["a1"]["state", "counters", "out-pkts"] == 1
            assert counters["b1"]["state", "counters", "in-octets"] == 102

    asyncio.run(check())


def test_tap__frames_of_an_end_until_untap(path):
    async def check():
        async with running_daemon(path, devices=0) as daemon, lines_to(path) as client:
            await two_switches(client)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
                listening.bind(f"\0test-{path}")
                listening.listen(1)
                answer = await client.request("tap", interface="b1", to=f"test-{path}", snap=30)
                tap, _ = listening.accept()
            with tap:
                tap.setblocking(False)
                sent = frame(0, payload=b"seen")
                daemon.loop.send(daemon.registry.with_name("a").device, 1, sent)
                message = await with_timeout(asyncio.get_running_loop().sock_recv(tap, 4096))
                assert struct.unpack_from("=QI", message)[1] == len(sent) and message[16:] == sent[:30]
                assert (await client.request("untap", tap=answer["tap"]))["lost"] == 0
                assert await with_timeout(asyncio.get_running_loop().sock_recv(tap, 4096)) == b""

    asyncio.run(check())


BAD_REQUESTS = {
    "add_wires": (
        ({}, "wires is missing"),
        ({"wires": [["a"]]}, "is no pair of interface names"),
        ({"wires": [["a", 3]]}, "is no pair of interface names"),
        ({"wires": [["c1", "d1"], ["e1", "a1"]]}, "one of these is an end of a wire already"),
        ({"wires": [["c1", "d" * 16]]}, "1 to 15 characters"),
        ({"wires": [["c1", "d1"]], "mtu": 70000}, "mtu 70000: give 68 to 16366"),
        ({"wires": [["c1", "d1"]], "mtu": "big"}, "mtu = 'big'"),
    ),
    "remove_wires": (({"interfaces": ["a1"]}, "a port is at one of its ends"), ({"interfaces": ["x"]}, "no wire has")),
    "set_wires": (
        ({"interfaces": ["x"], "up": True}, "no wire has an end 'x' (has: "),
        ({"interfaces": [1], "up": True}, "want a list of interface names"),
        ({"interfaces": ["a1"]}, "up is missing"),
    ),
    "wires": (({"interfaces": ["x"]}, "no wire has an end 'x'"), ({"interfaces": "a1"}, "want a list")),
    "tap": (
        ({"interface": "a1", "to": "mrc-nobody-is-there"}, "no listener at"),
        ({"interface": "a1", "to": "x" * 200}, "no listener at"),
        ({"interface": "a1", "to": "x", "snap": 0}, "want 1 to"),
        ({"interface": 1, "to": "x"}, "interface = 1"),
    ),
    "untap": (({"tap": 77}, "no tap 77"), ({"tap": 1 << 70}, "untap"), ({"tap": "a"}, "tap = 'a'")),
}


def test_refused__with_the_cause_and_nothing_changes(path):
    async def check():
        async with running_daemon(path, devices=0) as daemon, lines_to(path) as client:
            await two_switches(client)
            for op, cases in BAD_REQUESTS.items():
                for fields, words in cases:
                    answer = await client.request(op, **fields)
                    assert answer["ok"] is False and words in answer["error"], (op, fields, answer)
            assert set(daemon.loop.wires()) == {"a1", "b1"}, "wires before the refused one are gone again"

    asyncio.run(check())


def test_remove_wires__then_their_interfaces_are_not_present(path):
    async def check():
        async with running_daemon(path, devices=0) as daemon, lines_to(path) as client:
            await two_switches(client)
            for name in "ab":
                assert (await client.request("remove_device", name=name))["ok"]
            assert (await client.request("remove_wires", interfaces=["b1"]))["ok"]
            assert daemon.wires.links == {} and (await client.request("wires"))["wires"] == {}

    asyncio.run(check())


def test_listen__until_told_otherwise():
    class Loop:
        """An event loop without wires."""

        def wires(self):
            return {}

        def set_wire(self, name, is_up):
            raise PortError(f"no wire has an end {name!r}")

    wires = DaemonWires(Loop())
    stop = wires.listen(lambda name, state: None)
    stop()
    assert wires._listeners == []
    with pytest.raises(PortError, match="no wire has an end 'x'"):
        wires.set_up("x", True)
