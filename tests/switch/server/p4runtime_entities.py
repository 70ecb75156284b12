"""P4Runtime entities of mini_program.c, and updates of them, for the tests of the server."""

from __future__ import annotations

import grpc
import pytest
from finsy.proto import p4r

from tests.switch.mini_program import BY_MAC, FORWARD, SPRAY


def insert(entity: p4r.Entity) -> p4r.Update:
    return p4r.Update(type=p4r.Update.INSERT, entity=entity)


def modify(entity: p4r.Entity) -> p4r.Update:
    return p4r.Update(type=p4r.Update.MODIFY, entity=entity)


def delete(entity: p4r.Entity) -> p4r.Update:
    return p4r.Update(type=p4r.Update.DELETE, entity=entity)


def forward(port: bytes) -> p4r.Action:
    return p4r.Action(action_id=FORWARD, params=[p4r.Action.Param(param_id=1, value=port)])


def mac_entry(mac: bytes, port: bytes = b"\x07", **fields) -> p4r.Entity:
    entry = p4r.TableEntry(table_id=BY_MAC, action=p4r.TableAction(action=forward(port)), **fields)
    entry.match.add(field_id=1).exact.value = mac
    return p4r.Entity(table_entry=entry)


def entries_of(table_id: int = 0, **fields) -> p4r.Entity:
    return p4r.Entity(table_entry=p4r.TableEntry(table_id=table_id, **fields))


def member(member_id: int, port: bytes = b"\x07") -> p4r.Entity:
    return p4r.Entity(
        action_profile_member=p4r.ActionProfileMember(
            action_profile_id=SPRAY, member_id=member_id, action=forward(port)
        )
    )


def group(group_id: int, *members: p4r.ActionProfileGroup.Member) -> p4r.Entity:
    return p4r.Entity(
        action_profile_group=p4r.ActionProfileGroup(action_profile_id=SPRAY, group_id=group_id, members=members)
    )


async def code_of(awaitable) -> tuple[grpc.StatusCode, str]:
    """Return status and text of an RPC that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaitable
    return caught.value.code(), caught.value.details()
