"""One-shot action selector programming.

A table entry that brings its actions, weights and watch ports itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import grpc
import pytest
from finsy.proto import p4r, rpc_code

from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import (
    ActionCall,
    ActionSet,
    FieldMatch,
    Group,
    GroupRef,
    MemberRef,
    ProfileMember,
    SetMember,
    TableEntry,
    TableError,
)
from tests.switch.mini_program import BY_HASH, BY_MAC, DROP, FORWARD, SPRAY, frame, mini
from tests.switch.server.p4runtime_entities import delete, entries_of, forward, insert, member, modify
from tests.switch.server.running_server import (
    error_details,
    mini_config,
    primary_of,
    running_daemon,
    use_mini_program,
)


def set_member(port: int, weight: int = 1, watch: int | None = None) -> SetMember:
    return SetMember(ActionCall(FORWARD, ((1, bytes([port])),)), weight, watch)


def entry(number: int, *members: SetMember) -> TableEntry:
    return TableEntry(BY_HASH, (FieldMatch.exact(1, bytes([number])),), ActionSet(members))


@pytest.fixture
def device() -> P4Device:
    device = P4Device(1, "s1")
    device.load(mini())
    return device


def ports(device: P4Device, number: int = 1) -> Counter[int]:
    return Counter(out[0][0] for src in range(300) if (out := device.process(1, frame(4, src=src, c=number))))


def test_packets__spread_by_weight_and_leave_out_dead_ports(device: P4Device) -> None:
    device.insert(entry(1, set_member(11, 2, 11), set_member(12), set_member(12), set_member(13, 1, 13)))
    device.insert(entry(2, set_member(21)))
    spread = ports(device)
    assert 90 < spread[11] < 150 and 90 < spread[12] < 150 and 35 < spread[13] < 85
    device.set_port_up(11, False)
    assert set(ports(device)) == {12, 13} and set(ports(device, 2)) == {21}
    device.modify(entry(1, set_member(14, 1, 11)))
    assert not ports(device)
    device.set_port_up(11, True)
    assert set(ports(device)) == {14}
    device.modify(entry(1))
    assert not ports(device)
    assert list(device.read(BY_HASH)) == [entry(1), entry(2, set_member(21))]
    assert list(device.read_members()) == list(device.read_groups()) == []


def test_room__members_count_until_the_entry_goes(device: P4Device) -> None:
    device.insert(entry(1, *(set_member(port) for port in range(1, 6))))
    with pytest.raises(TableError, match="no room in the table, or for 4 more members") as caught:
        device.insert(entry(2, *(set_member(port) for port in range(1, 5))))
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    device.modify(entry(1, *(set_member(port) for port in range(1, 9))))  # what it replaces makes room
    device.delete(entry(1))
    device.insert(entry(2, *(set_member(port) for port in range(1, 9))))
    device.unload()
    device.load(mini())
    device.insert_member(ProfileMember(SPRAY, 1, set_member(1).action))


def test_mixing__is_refused_both_ways(device: P4Device) -> None:
    device.insert(entry(1, set_member(1)))
    for call, argument in (
        (device.insert_member, ProfileMember(SPRAY, 1, set_member(1).action)),
        (device.insert_group, Group(SPRAY, 1)),
    ):
        with pytest.raises(TableError, match="cannot be mixed") as caught:
            call(argument)
        assert caught.value.code == "INVALID_ARGUMENT"
    device.delete(entry(1))
    device.insert_member(ProfileMember(SPRAY, 1, set_member(1).action))
    with pytest.raises(TableError, match="cannot be mixed"):
        device.insert(entry(1, set_member(1)))
    device.insert(TableEntry(BY_HASH, entry(1).match, MemberRef(1)))
    with pytest.raises(TableError, match="cannot be mixed"):
        device.modify(entry(1, set_member(1)))


BAD_ENTRIES = {
    "weight 0": (entry(1, set_member(1, 0)), "weight 0 is not in 1"),
    "too large": (entry(1, set_member(1, 17)), "weights sum to 17, at most 16"),
    "no port": (entry(1, set_member(1, 1, 511)), "watch port 511"),
    "unknown action": (entry(1, SetMember(ActionCall(99))), "no action with id 99"),
    "scope": (entry(1, SetMember(ActionCall(DROP))), "drop is for the default entry only"),
    "parameter": (entry(1, SetMember(ActionCall(FORWARD))), "has the parameters port 1; got none"),
    "not a selector": (
        TableEntry(BY_MAC, (FieldMatch.exact(1, b"\1"),), ActionSet((set_member(1),))),
        "has no action profile",
    ),
    "default": (
        TableEntry(BY_HASH, (), ActionSet((set_member(1),)), is_default=True),
        "default entry takes an action only",
    ),
}


@pytest.mark.parametrize("case", BAD_ENTRIES)
def test_refusals(device: P4Device, case: str) -> None:
    bad_entry, words = BAD_ENTRIES[case]
    with pytest.raises(TableError, match=words):
        (device.modify if bad_entry.is_default else device.insert)(bad_entry)
    assert list(device.read(BY_HASH)) == []
    device.insert_member(ProfileMember(SPRAY, 1, set_member(1).action))  # nothing is left that would be in the way
    device.insert_group(Group(SPRAY, 1))
    device.insert(TableEntry(BY_HASH, entry(1).match, GroupRef(1)))


def test_server__reads_back_what_was_written(monkeypatch) -> None:
    use_mini_program(monkeypatch)
    shot = p4r.TableEntry(table_id=BY_HASH)
    shot.match.add(field_id=1).exact.value = b"\1"
    add = shot.action.action_profile_action_set.action_profile_actions.add
    add(action=forward(b"\5"), weight=2, watch_port=b"\5")
    add(action=forward(b"\6"), weight=1)
    add(action=forward(b"\6"), weight=1)
    entity = p4r.Entity(table_entry=shot)

    async def check() -> None:
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            await client.write(insert(entity))
            assert await client.read(entries_of(BY_HASH)) == [entity]
            assert await client.read(entries_of(BY_HASH, match=shot.match)) == [entity]
            # A profile with one-shot entries takes no members of its own
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.write(insert(member(1)))
            assert [error_detail.canonical_code for error_detail in error_details(caught.value)] == [
                rpc_code.INVALID_ARGUMENT
            ]
            shot.action.action_profile_action_set.action_profile_actions[0].weight = 3
            await client.write(modify(entity))
            assert await client.read(entries_of(BY_HASH)) == [entity]
            await client.write(delete(entity), insert(member(1)))

    asyncio.run(check())
