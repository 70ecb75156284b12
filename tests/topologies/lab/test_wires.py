"""The front process's side of wires, with a real daemon and no root.

States, ends as interfaces, captures.
"""

import asyncio
import contextlib

import pytest

from mrc_testbed.capture.packet_files import WireReader
from mrc_testbed.cli.prompt.commands.links import _use
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.netdev import IFF_NOARP, IFF_UP
from mrc_testbed.topologies.lab.wires import (
    PortLook,
    WireClient,
    WiredDevices,
    link_states,
    links_between_switches,
    states_of,
)
from mrc_testbed.topologies.plan import Plan
from tests.switch.server.running_server import TIMEOUT_S, running_daemon

PLAN = Plan(1, 2, 1, 1)
LINK = PLAN.link("p0-t0-0", "p0-t1-0")
LOWER, UPPER = LINK.lower.interface, LINK.upper.interface


def with_daemon(tmp_path, check):
    """Run check(daemon, control, wires) in a thread beside a daemon with the plan's wires and its T1."""

    async def main():
        control = tmp_path / "switchd.sock"
        async with running_daemon(control, devices=0) as daemon:
            with contextlib.closing(WireClient(control)) as wires:
                await asyncio.to_thread(wires.add, links_between_switches(PLAN))
                ports = {port.number: port.interface for port in PLAN.ports("p0-t1-0")}
                await daemon.add_device("p0-t1-0", 1, ports)
                await asyncio.wait_for(asyncio.to_thread(check, daemon, control, wires), 3 * TIMEOUT_S)

    asyncio.run(main())


def test_links_between_switches__are_those_without_hosts():
    assert [link.name for link in links_between_switches(PLAN)] == ["p0-t0-0 p0-t1-0", "p0-t0-1 p0-t1-0"]


def test_wired_devices__set_ends_as_interfaces(tmp_path):
    def check(_daemon, control, wires):
        devices = WiredDevices(wires, links_between_switches(PLAN))
        with contextlib.closing(devices):
            assert devices.flags(LOWER) == IFF_UP | IFF_NOARP and devices.is_up(LOWER)
            devices.set_flags(UPPER, clear=IFF_UP)
            assert devices.flags(UPPER) == IFF_NOARP and devices.flags(LOWER) & IFF_UP
            assert not devices.is_up(LOWER) and not devices.is_up(UPPER)
            devices.set_flags(UPPER, on=IFF_NOARP)
            assert not devices.flags(UPPER) & IFF_UP, "only the flag that was meant"
            devices.set_flags(UPPER, on=IFF_UP)
            devices.offloads_off(UPPER)
            assert devices.is_up(LOWER) and states_of(control).ends[LOWER]["carrier_changes"] == 2
            assert devices.flags("lo") is not None, "what is no wire is the kernel's"
            with pytest.raises(FabricError, match="interface zznothere"):
                devices.set_flags("zznothere", on=IFF_UP)

    with_daemon(tmp_path, check)


def test_states_of__none_without_a_daemon_and_an_error_of_one_that_is_gone(tmp_path):
    assert states_of(tmp_path / "switchd.sock") == ({}, {})
    with (
        contextlib.closing(WireClient(tmp_path / "switchd.sock")) as wires,
        pytest.raises(FabricError, match="wires: "),
    ):
        wires.set_up(LOWER, True)


def test_use__of_a_wire_is_counted_by_the_daemon(tmp_path):
    def check(daemon, control, _wires):
        daemon.loop.send(daemon.registry.with_name("p0-t1-0").device, LINK.upper.number, bytes(100))
        assert _use(lambda: link_states([LINK], states_of(control)))[LINK.upper.interface] == (0.0, 0.0)
        states = link_states([LINK], states_of(control))
        assert states == {LINK.upper.interface: PortLook(True, 0, 100)}

    with_daemon(tmp_path, check)


def test_wire_reader__frames_cut_to_size_with_their_length(tmp_path):
    def check(daemon, _control, wires):
        reader = WireReader(wires, LOWER, 64)
        with contextlib.closing(reader):
            assert list(reader.read()) == [] and not reader.gone()
            frame = bytes(12) + b"\x88\xb5" + bytes(range(200))
            device = daemon.registry.with_name("p0-t1-0").device
            for _ in range(3):
                daemon.loop.send(device, LINK.upper.number, frame)
            got = []
            while len(got) < 3:
                got += reader.read(2)
            assert [(packet.frame, packet.length) for packet in got] == [(frame[:64], len(frame))] * 3
            assert [packet.at_ns for packet in got] == sorted(packet.at_ns for packet in got)
            assert reader.count_lost() == 0 and reader.count_lost() == 0
            while not reader.gone():
                assert list(reader.read()) == []
        with pytest.raises(FabricError, match="no wire has an end 'zznothere'"):
            WireReader(wires, "zznothere")

    with_daemon(tmp_path, check)
