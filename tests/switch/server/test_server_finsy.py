"""finsy, the client of our controller, against the daemon.

Connect, push, write, lose power, come back. No root.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import finsy as fy
import pytest
from finsy import switch as switch_module
from finsy.p4client import P4ClientError
from finsy.proto import stratum
from google.protobuf import text_format

from mrc_testbed.switch.system.rtnetlink import InterfaceState
from tests.switch.mini_program import BY_MAC, mini
from tests.switch.server.running_server import MINI_CONFIG, running_daemon, use_mini_program, with_timeout


class Blob:
    """A device config that is not in a file."""

    def __bytes__(self) -> bytes:
        return MINI_CONFIG


@pytest.fixture
def options(monkeypatch, tmp_path) -> fy.SwitchOptions:
    use_mini_program(monkeypatch)
    p4info = tmp_path / "p4info.txtpb"
    p4info.write_text(text_format.MessageToString(mini().p4info))
    return fy.SwitchOptions(p4info=p4info, p4blob=Blob())


class Readiness:
    """Counts calls of the ready handler."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[fy.Switch] = asyncio.Queue()

    async def __call__(self, switch: fy.Switch) -> None:
        await self.calls.put(switch)

    async def next(self) -> fy.Switch:
        return await with_timeout(self.calls.get())


@asynccontextmanager
async def controller_of(daemon, options: fy.SwitchOptions, readiness: Readiness, *device_ids: int):
    """Run a finsy Controller with a Switch for each device."""
    address = f"127.0.0.1:{daemon.p4runtime_port}"
    switches = [
        fy.Switch(f"s{device_id}", address, options(device_id=device_id, ready_handler=readiness))
        for device_id in device_ids
    ]
    async with fy.Controller(switches):
        yield switches


def test_switch__pushes_the_pipeline_writes_and_reads_back(options):
    async def check():
        readiness = Readiness()
        async with running_daemon() as daemon, controller_of(daemon, options, readiness, 1):
            switch = await readiness.next()
            assert switch.is_primary
            entry = fy.P4TableEntry("by_mac", match=fy.Match(dst=0x0102), action=fy.Action("forward", port=7))
            await switch.insert([entry])
            assert [e async for e in switch.read(fy.P4TableEntry("by_mac"))] == [entry]
            with pytest.raises(P4ClientError) as caught:
                await switch.insert([entry])
            assert caught.value.details[0].canonical_code == fy.GRPCStatusCode.ALREADY_EXISTS
            await switch.delete([entry])
            await switch.delete([entry], strict=False)
            await switch.delete_all()

    asyncio.run(check())


def test_switch__comes_back_by_itself_after_its_power(options, monkeypatch):
    monkeypatch.setattr(switch_module, "_FAIL_MIN_TIME_SECS", 0.0)  # the test is quicker than a switch that boots

    async def check():
        readiness = Readiness()
        async with running_daemon(devices=2) as daemon, controller_of(daemon, options, readiness, 1, 2):
            assert {(await readiness.next()).name for _ in range(2)} == {"s1", "s2"}
            chassis = daemon.registry.with_name("s1")
            for _ in range(2):
                await chassis.power_off("s1 was switched off")
                await chassis.power_on()
                switch = await readiness.next()
                assert (switch.name, switch.is_primary) == ("s1", True)
                assert [e async for e in switch.read(fy.P4TableEntry("by_mac"))] == []
            assert readiness.calls.empty()

    asyncio.run(check())


def test_switch__while_off_it_waits_instead_of_failing(options, monkeypatch, caplog):
    monkeypatch.setattr(switch_module, "_FAIL_MIN_TIME_SECS", 0.0)

    async def check():
        readiness = Readiness()
        async with running_daemon() as daemon:
            await daemon.registry.with_name("s1").power_off("off")
            async with controller_of(daemon, options, readiness, 1) as (switch,):
                await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0.1)
                assert not switch.is_up and readiness.calls.empty()
                await daemon.registry.with_name("s1").power_on()
                await readiness.next()

    asyncio.run(check())
    assert not [record for record in caplog.records if record.levelname == "CRITICAL"]


def test_two_controllers__the_backup_takes_over(options):
    async def check():
        first, second = Readiness(), Readiness()
        async with running_daemon() as daemon:
            async with controller_of(daemon, options, first, 1):
                assert (await first.next()).is_primary
                backup = controller_of(daemon, options, second, 1)
                await backup.__aenter__()
                assert not (await second.next()).is_primary
            switch = await second.next()
            assert switch.is_primary and switch.election_id == 10
            await backup.__aexit__(None, None, None)

    asyncio.run(check())


def test_switch_ports__are_tracked_over_the_p4runtime_address(options):
    async def check():
        readiness = Readiness()
        async with running_daemon(devices=0) as daemon:
            daemon.watcher._update(InterfaceState("zzs1-eth1", 999_999, True, "UP", 1500, 0))
            daemon.interfaces.add_device("s1", ["zzs1-eth1"])
            await daemon.registry.add("s1", 1, {})
            async with controller_of(daemon, options, readiness, 1):
                switch = await readiness.next()
                assert switch.ports["zzs1-eth1"].up and switch.ports["zzs1-eth1"].id == 999_999
                watching = switch.gnmi_client.subscribe()
                watching.on_change(fy.GNMIPath("interfaces/interface[name=zzs1-eth1]/state/oper-status"))
                async for _ in watching.synchronize():
                    pass
                updates = aiter(watching.updates())
                daemon.watcher._update(InterfaceState("zzs1-eth1", 999_999, True, "LOWER_LAYER_DOWN", 1500, 0))
                assert (await with_timeout(anext(updates))).value == "LOWER_LAYER_DOWN"
                watching.cancel()

    asyncio.run(check())


def test_switch__one_shots_idle_timeouts_and_reconciling(options):
    async def check():
        readiness = Readiness()
        async with running_daemon() as daemon, controller_of(daemon, options, readiness, 1):
            switch = await readiness.next()
            shot = fy.P4IndirectAction([2 * fy.Action("forward", port=1), 1 * fy.Action("forward", port=2)])
            spread = fy.P4TableEntry("by_hash", match=fy.Match(c=7), action=shot)
            idle_entry = fy.P4TableEntry(
                "by_mac", match=fy.Match(dst=1), action=fy.Action("forward", port=7), idle_timeout_ns=15_000_000
            )
            await switch.insert([spread, idle_entry])
            assert [e async for e in switch.read(fy.P4TableEntry("by_hash"))] == [spread]
            async for note in switch.read_idle_timeouts():
                assert [entry.match for entry in note] == [idle_entry.match]
                break
            await switch.delete_all()
            assert [e async for e in switch.read(fy.P4TableEntry())] == []

    asyncio.run(check())


def test_role__writes_its_objects_only(options):
    async def check():
        first, second = Readiness(), Readiness()
        config = stratum.P4RoleConfig(exclusive_p4_ids=[BY_MAC], can_push_pipeline=True)
        limited = options(role_name="mac", role_config=config)
        async with running_daemon() as daemon, controller_of(daemon, options, first, 1):
            await first.next()
            async with controller_of(daemon, limited, second, 1):
                switch = await second.next()
                await switch.insert([fy.P4TableEntry("by_mac", match=fy.Match(dst=1), action=fy.Action("drop"))])
                with pytest.raises(P4ClientError) as caught:
                    await switch.insert(
                        [fy.P4TableEntry("by_hash", match=fy.Match(c=1), action=fy.P4IndirectAction(member_id=1))]
                    )
                assert caught.value.details[0].canonical_code == fy.GRPCStatusCode.PERMISSION_DENIED

    asyncio.run(check())
