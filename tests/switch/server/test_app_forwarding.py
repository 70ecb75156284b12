"""The whole switch on scratch veths, steered by finsy as our controller does: srv6.p4 and spray.p4.

Needs root.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import IPv6Address
from pathlib import Path

import finsy as fy
import pytest
from finsy.proto import p4r
from google.protobuf import text_format

from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.switch.server.app import Daemon
from mrc_testbed.switch.system.rtnetlink import read_links, set_admin_state
from tests.cables import wait_until_up
from tests.repository import P4SRC
from tests.switch.server.running_server import running_daemon, with_timeout

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes veths and opens AF_PACKET sockets: needs root"),
]

PORTS = 3
ETH_P_ALL = 3
EXPERIMENTAL = 0x88B5
"""EtherType of frames which the switch is told to punt."""


def switch_end(port: int) -> str:
    return f"zzb2s{port}"


def wire_end(port: int) -> str:
    return f"zzb2w{port}"


@pytest.fixture
def veths() -> Iterator[None]:
    """Make a veth pair for each port, both ends up and without IPv6 of their own."""
    try:
        for port in range(1, PORTS + 1):
            pair = ["link", "add", switch_end(port), "type", "veth", "peer", "name", wire_end(port)]
            subprocess.run(["ip", *pair], check=True)
            for name in (switch_end(port), wire_end(port)):
                Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
                set_admin_state(name, True)
            wait_until_up(switch_end(port), wire_end(port))
        yield
    finally:
        for port in range(1, PORTS + 1):
            subprocess.run(["ip", "link", "del", switch_end(port)], stderr=subprocess.DEVNULL, check=False)


class Wire:
    """The far end of a port: sends frames into the switch and waits for what comes out."""

    def __init__(self, port: int) -> None:
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # hears nothing until it is bound
        self.socket.bind((wire_end(port), ETH_P_ALL))
        self.socket.setblocking(False)

    def send(self, frame: bytes) -> None:
        self.socket.send(frame)

    async def receive(self) -> bytes:
        """Return the next frame from the switch."""
        loop = asyncio.get_running_loop()
        while True:
            readable = loop.create_future()
            loop.add_reader(self.socket.fileno(), lambda waiting=readable: waiting.done() or waiting.set_result(None))
            try:
                await with_timeout(readable)
            finally:
                loop.remove_reader(self.socket.fileno())
            frame, address = self.socket.recvfrom(65536)
            if address[2] != socket.PACKET_OUTGOING:
                return frame

    def drain(self) -> int:
        """Read the frames from the switch that wait already; return their number."""
        count = 0
        while True:
            try:
                _, address = self.socket.recvfrom(65536)
            except BlockingIOError:
                return count
            except OSError as error:
                if error.errno != errno.ENETDOWN:  # told once after the interface was down
                    raise
                continue
            count += address[2] != socket.PACKET_OUTGOING


@contextmanager
def wires() -> Iterator[dict[int, Wire]]:
    out = {port: Wire(port) for port in range(1, PORTS + 1)}
    try:
        yield out
    finally:
        for wire in out.values():
            wire.socket.close()


def ipv6_frame(destination: str, *, flow_label: int = 0, hop_limit: int = 64) -> bytes:
    """Return an Ethernet frame with IPv6 and no next header, 60 bytes or more."""
    payload = b"payload!"
    header = (6 << 28 | flow_label).to_bytes(4, "big") + len(payload).to_bytes(2, "big") + bytes([59, hop_limit])
    addresses = IPv6Address("fd00::1").packed + IPv6Address(destination).packed
    return bytes(12) + b"\x86\xdd" + header + addresses + payload


def options(program: str, folder: Path) -> fy.SwitchOptions:
    built = compile_program(P4SRC / f"{program}.p4")
    (folder / "p4info.txtpb").write_text(text_format.MessageToString(built.p4info))
    (folder / "config.p4").write_bytes(built.config)
    return fy.SwitchOptions(p4info=folder / "p4info.txtpb", p4blob=folder / "config.p4", device_id=1)


@asynccontextmanager
async def switch_with_ports() -> AsyncIterator[Daemon]:
    async with running_daemon(devices=0) as daemon:
        await daemon.add_device("zzb2", 1, {port: switch_end(port) for port in range(1, PORTS + 1)})
        yield daemon


def address_of(daemon: Daemon) -> str:
    return f"127.0.0.1:{daemon.p4runtime_port}"


def srv6_entries() -> list[fy.P4TableEntry]:
    def entry(table: str, usid: int, action: fy.Action) -> fy.P4TableEntry:
        return fy.P4TableEntry(table, match=fy.Match(locator_usid=0xFCBBBB00 << 16 | usid), action=action)

    return [
        entry("my_usid", 0x2001, fy.Action("shift")),
        entry("usid_next", 0x1001, fy.Action("forward", port=2)),
        entry("usid_next", 0x1002, fy.Action("forward", port=3)),
    ]


def test_srv6__shifts_and_forwards_by_the_next_usid(veths, tmp_path):
    async def check():
        async with switch_with_ports() as daemon, fy.Switch("s", address_of(daemon), options("srv6", tmp_path)) as s:
            await s.insert(srv6_entries())
            with wires() as wire:
                wire[1].send(ipv6_frame("fcbb:bb00:2001:1002:3001::"))
                assert await wire[3].receive() == ipv6_frame("fcbb:bb00:1002:3001::", hop_limit=63)
                wire[1].send(ipv6_frame("fcbb:bb00:2001:1001::"))
                assert await wire[2].receive() == ipv6_frame("fcbb:bb00:1001::", hop_limit=63)
            counters = {e.index: e.packet_count async for e in s.read(fy.P4CounterEntry("forwarded")) if e.packet_count}
            assert counters == {2: 1, 3: 1}
            stats = daemon.registry.with_name("zzb2").stats()
            assert (stats["ports"]["1"]["rx_packets"], stats["ports"]["3"]["tx_packets"]) == (2, 1)

    asyncio.run(check())


def test_packet_in_and_out(veths, tmp_path):
    async def check():
        async with switch_with_ports() as daemon, fy.Switch("s", address_of(daemon), options("srv6", tmp_path)) as s:
            punt = fy.P4TableEntry("punt", match=fy.Match(ether_type=EXPERIMENTAL), action=fy.Action("to_controller"))
            await s.insert([punt])
            frame = bytes(12) + EXPERIMENTAL.to_bytes(2, "big") + bytes(46)
            with wires() as wire:
                packets = s.read_packets()
                packet_in = asyncio.ensure_future(anext(packets))
                await asyncio.sleep(0)  # lets finsy open its queue
                wire[2].send(frame)
                packet = await with_timeout(packet_in)
                assert (packet.payload, packet["ingress_port"]) == (frame, 2)
                await s.write([fy.P4PacketOut(frame, egress_port=3, pad=0)])
                assert await wire[3].receive() == frame

    asyncio.run(check())


def test_packet_out__wrong_ones_are_answered_with_stream_errors(veths, tmp_path):
    async def check():
        async with switch_with_ports() as daemon, fy.Switch("s", address_of(daemon), options("srv6", tmp_path)) as s:
            errors: asyncio.Queue[p4r.StreamError] = asyncio.Queue()
            s.ee.on(fy.SwitchEvent.STREAM_ERROR, lambda _, message: errors.put_nowait(message.error))
            cases = {
                "metadata 1 egress_port is missing": {},
                "metadata 2 pad is missing": {1: b"\3"},
                "no metadata 9": {1: b"\3", 2: b"\0", 9: b"\0"},
                "does not fit in 9 bits": {1: b"\2\0", 2: b"\0"},
                "empty byte string": {1: b"", 2: b"\0"},
            }
            for words, metadata in cases.items():
                packet = p4r.PacketOut(payload=bytes(60))
                for metadata_id, value in metadata.items():
                    packet.metadata.add(metadata_id=metadata_id, value=value)
                await s._p4client.send(p4r.StreamMessageRequest(packet=packet))
                assert words in (await with_timeout(errors.get())).message

    asyncio.run(check())


def test_power__off_takes_the_light_away_on_begins_empty(veths, tmp_path):
    async def check():
        async with switch_with_ports() as daemon:
            chassis = daemon.registry.with_name("zzb2")
            async with fy.Switch("s", address_of(daemon), options("srv6", tmp_path)) as s:
                await s.insert(srv6_entries())
                set_admin_state(switch_end(3), False)  # a port that was down before is down after
                await chassis.power_off("off")
                links = read_links()
                assert [links[wire_end(p)].oper_status for p in (1, 2, 3)] == ["LOWER_LAYER_DOWN"] * 3
            await chassis.power_on()
            links = read_links()
            assert [links[switch_end(p)].admin_up for p in (1, 2, 3)] == [True, True, False]
            async with fy.Switch("s", address_of(daemon), options("srv6", tmp_path)) as s:
                assert [e async for e in s.read(fy.P4TableEntry("usid_next"))] == []
                await s.insert(srv6_entries())
                with wires() as wire:
                    wire[1].send(ipv6_frame("fcbb:bb00:2001:1001::"))
                    assert await wire[2].receive() == ipv6_frame("fcbb:bb00:1001::", hop_limit=63)

    asyncio.run(check())


def test_power__keep_links_leaves_a_blackhole_with_light(veths):
    async def check():
        async with switch_with_ports() as daemon:
            await daemon.registry.with_name("zzb2").power_off("off", keep_links=True)
            assert read_links()[wire_end(1)].oper_status == "UP"

    asyncio.run(check())


async def write_spray_tables(switch: fy.Switch) -> None:
    """Route fd00::/32 to a group of ports 2 and 3, which are watched, and fd01::/32 to port 1."""
    members = [
        fy.P4ActionProfileMember("uplink_selector", member_id=port, action=fy.Action("use_uplink", port=port))
        for port in (2, 3)
    ]
    group_members = [fy.P4Member(port, weight=(1, port)) for port in (2, 3)]
    group = fy.P4ActionProfileGroup("uplink_selector", group_id=1, max_size=2, members=group_members)
    spray, forward = fy.Action("spray", uplink_group=1), fy.Action("forward", port=1)
    await switch.insert(members)
    await switch.insert([group])
    await switch.insert(
        [
            fy.P4TableEntry("uplinks", match=fy.Match(uplink_group=1), action=fy.P4IndirectAction(group_id=1)),
            fy.P4TableEntry("route", match=fy.Match(dst_addr="fd00::/32"), action=spray),
            fy.P4TableEntry("route", match=fy.Match(dst_addr="fd01::/32"), action=forward),
        ]
    )
    assert [e async for e in switch.read(fy.P4ActionProfileGroup("uplink_selector"))] == [group]


async def leaving_by(wire: dict[int, Wire]) -> dict[int, int]:
    """Return the number of flows out of 64 that leave by each uplink.

    The arrival of the last frame, back at port 1, shows that all frames passed.
    """
    for label in range(64):
        wire[1].send(ipv6_frame("fd00::9", flow_label=label))
    wire[1].send(ipv6_frame("fd01::1"))
    await wire[1].receive()
    return {port: wire[port].drain() for port in (2, 3)}


def test_spray__a_dead_uplink_leaves_the_hash_at_once_and_comes_back(veths, tmp_path):
    async def check():
        async with switch_with_ports() as daemon, fy.Switch("s", address_of(daemon), options("spray", tmp_path)) as s:
            await write_spray_tables(s)
            ports: asyncio.Queue[tuple[int, bool]] = asyncio.Queue()
            daemon.registry._publish = lambda event, **fields: ports.put_nowait((fields["port"], fields["up"]))
            with wires() as wire:
                flow_counts = await leaving_by(wire)
                assert sum(flow_counts.values()) == 64 and min(flow_counts.values()) > 10
                set_admin_state(wire_end(2), False)
                while await with_timeout(ports.get()) != (2, False):
                    pass
                assert await leaving_by(wire) == {2: 0, 3: 64}
                set_admin_state(wire_end(2), True)
                while await with_timeout(ports.get()) != (2, True):
                    pass
                assert await leaving_by(wire) == flow_counts

    asyncio.run(check())


def test_spray__a_port_that_was_down_before_the_program_came_is_not_chosen(veths, tmp_path):
    async def check():
        set_admin_state(wire_end(3), False)
        async with switch_with_ports() as daemon, fy.Switch("s", address_of(daemon), options("spray", tmp_path)) as s:
            await write_spray_tables(s)
            with wires() as wire:
                assert await leaving_by(wire) == {2: 64, 3: 0}

    asyncio.run(check())


def setting(path: str) -> fy.GNMIPath:
    return fy.GNMIPath(path)


OUTPUT = "qos/interfaces/interface[interface-id=zzb2s2]/output"
CABLE = "interfaces/interface[name=zzb2s2]/impairments/output"


async def value_of(client: fy.GNMIClient, path: str) -> object:
    """Return the value of a leaf, by Get."""
    (update,) = await with_timeout(client.get(setting(path)))
    return update.value


def test_traffic__set_over_gnmi_counted_there_and_kept_over_a_power_cycle(veths, tmp_path):
    async def check():
        async with switch_with_ports() as daemon, fy.GNMIClient(f"127.0.0.1:{daemon.gnmi_port}") as client:
            await client.set(
                update=[
                    (setting(f"{OUTPUT}/config/rate-bps"), 1),
                    (setting(f"{OUTPUT}/queues/queue[name=0]/config/max-packets"), 2),
                    (setting(f"{CABLE}/config/loss-pattern"), "01"),
                ]
            )
            for second_round in (False, True):
                async with fy.Switch("s", address_of(daemon), options("srv6", tmp_path)) as s:
                    await s.insert(srv6_entries())
                    with wires() as wire:
                        for _ in range(5):  # one on the link for ever, two wait, two too many
                            wire[1].send(ipv6_frame("fcbb:bb00:2001:1001::"))
                        while await value_of(client, f"{OUTPUT}/queues/queue[name=0]/state/dropped-pkts") != 2:
                            await asyncio.sleep(0.01)
                        assert await value_of(client, f"{OUTPUT}/queues/queue[name=0]/state/depth-packets") == 2
                        discards = "interfaces/interface[name=zzb2s2]/state/counters/out-discards"
                        assert await value_of(client, discards) == 2
                        assert await value_of(client, f"{CABLE}/state/held-pkts") == 1
                        stats = daemon.registry.with_name("zzb2").stats()
                        assert stats["traffic"]["2"]["queues"]["0"]["dropped_pkts"] == 2
                        assert stats["frames"]["dropped_queue"] == 2
                        if not second_round:
                            await client.set(update=[(setting(f"{OUTPUT}/config/rate-bps"), 10_000_000)])
                            got = [await wire[2].receive() for _ in range(2)]  # the second of three is lost
                            assert got == [ipv6_frame("fcbb:bb00:1001::", hop_limit=63)] * 2
                            assert await value_of(client, f"{CABLE}/state/lost-pkts") == 1
                            await client.set(update=[(setting(f"{OUTPUT}/config/rate-bps"), 1)])
                chassis = daemon.registry.with_name("zzb2")
                await chassis.power_off("test", keep_links=True)
                assert await value_of(client, f"{OUTPUT}/queues/queue[name=0]/state/dropped-pkts") == 0
                await chassis.power_on()

    asyncio.run(check())
