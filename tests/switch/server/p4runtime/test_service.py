"""The P4Runtime server with bare gRPC stubs: arbitration, pipeline, entities, errors.

No root, no ports.

The program is the hand-written one of mini_program.c, so that nothing here depends on the compiler.
"""

from __future__ import annotations

import asyncio

import grpc
import pytest
from finsy.proto import p4r, rpc_code

from tests.switch.mini_program import (
    BY_ACL,
    BY_ADDR,
    BY_BOTH,
    BY_HASH,
    BY_MAC,
    BY_PORT,
    COPY_WIDE,
    DROP,
    SEEN_REGISTER,
)
from tests.switch.server.p4runtime_entities import (
    code_of,
    delete,
    entries_of,
    forward,
    group,
    insert,
    mac_entry,
    member,
    modify,
)
from tests.switch.server.running_server import (
    client_of,
    error_details,
    mini_config,
    primary_of,
    running_daemon,
    use_mini_program,
    with_timeout,
)

ACTIONS = p4r.SetForwardingPipelineConfigRequest


@pytest.fixture(autouse=True)
def _mini(monkeypatch):
    use_mini_program(monkeypatch)


# ---- arbitration ----------------------------------------------------------------------------------------------


def test_stream__backup_takes_over_when_the_primary_closes():
    async def check():
        async with running_daemon() as daemon, client_of(daemon, election_id=5) as backup:
            async with primary_of(daemon, election_id=6):
                await backup.send_bid()
                assert await backup.next_status() == rpc_code.ALREADY_EXISTS
            assert await backup.next_status() == rpc_code.NOT_FOUND
            await backup.send_bid(6)
            assert await backup.next_status() == rpc_code.OK

    asyncio.run(check())


def test_stream__unknown_device_and_used_election_id_close_it():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon), client_of(daemon) as second:
            await second.send_bid()
            code, text = await code_of(second.next_message())
            assert code is grpc.StatusCode.INVALID_ARGUMENT and "Election id 1 is already used" in text
            async with client_of(daemon, device_id=9) as lost:
                await lost.send_bid()
                code, text = await code_of(lost.next_message())
                assert code is grpc.StatusCode.NOT_FOUND and "no device 9 (has: 1)" in text

    asyncio.run(check())


def test_requests__only_from_the_primary():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            client.election_id = 2
            code, text = await code_of(client.write(insert(mac_entry(b"\1"))))
            assert code is grpc.StatusCode.PERMISSION_DENIED and "the primary has 1" in text
            code, _ = await code_of(client.set_pipeline(mini_config()))
            assert code is grpc.StatusCode.PERMISSION_DENIED
            client.election_id, client.device_id = 1, 4
            assert (await code_of(client.write()))[0] is grpc.StatusCode.NOT_FOUND

    asyncio.run(check())


# ---- pipeline -------------------------------------------------------------------------------------------------


def test_pipeline__none_at_first_then_what_was_set():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            get = p4r.GetForwardingPipelineConfigRequest
            code, text = await code_of(client.stub.GetForwardingPipelineConfig(get(device_id=1)))
            assert code is grpc.StatusCode.FAILED_PRECONDITION and "No forwarding pipeline config" in text
            assert (await code_of(client.write(insert(mac_entry(b"\1")))))[0] is grpc.StatusCode.FAILED_PRECONDITION
            await client.set_pipeline(mini_config(cookie=99))
            answer = await client.stub.GetForwardingPipelineConfig(get(device_id=1))
            assert answer.config == mini_config(cookie=99)
            cookie = await client.stub.GetForwardingPipelineConfig(get(device_id=1, response_type=get.COOKIE_ONLY))
            assert cookie.config.cookie.cookie == 99
            assert not cookie.config.HasField("p4info") and not cookie.config.p4_device_config
            blob = get(device_id=1, response_type=get.DEVICE_CONFIG_AND_COOKIE)
            assert (await client.stub.GetForwardingPipelineConfig(blob)).config.p4_device_config

    asyncio.run(check())


def test_pipeline__verify_changes_nothing_and_save_waits_for_commit():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            chassis = daemon.registry.with_id(1)
            await client.set_pipeline(mini_config(), ACTIONS.VERIFY)
            code, _ = await code_of(client.set_pipeline(None, ACTIONS.COMMIT))
            assert chassis.pipeline is None and code is grpc.StatusCode.NOT_FOUND
            await client.set_pipeline(mini_config(), ACTIONS.VERIFY_AND_SAVE)
            assert chassis.pipeline is None
            await client.set_pipeline(None, ACTIONS.COMMIT)
            assert chassis.pipeline is not None

    asyncio.run(check())


def test_pipeline__reconcile_keeps_entries_of_the_same_program_and_commit_clears_them():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            await client.write(insert(mac_entry(b"\1")))
            await client.set_pipeline(mini_config(cookie=8), ACTIONS.RECONCILE_AND_COMMIT)
            assert len(await client.read(entries_of(BY_MAC))) == 1
            await client.set_pipeline(mini_config())
            assert await client.read(entries_of(BY_MAC)) == []

    asyncio.run(check())


def test_pipeline__foreign_p4info_names_the_first_difference():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            config = mini_config()
            config.p4info.tables[1].match_fields[0].bitwidth = 16
            code, text = await code_of(client.set_pipeline(config))
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert "tables[mini.by_addr].match_fields[a].bitwidth is 16 in the sent one, 32" in text
            config = mini_config()
            del config.p4info.actions[5]
            code, text = await code_of(client.set_pipeline(config))
            assert "actions: mini.drop (0x1000006) is in the compiled one only" in text

    asyncio.run(check())


# ---- entries --------------------------------------------------------------------------------------------------


def test_entries__insert_read_modify_delete():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            sent = mac_entry(b"\1\2")
            await client.write(insert(sent))
            assert await client.read(entries_of(BY_MAC)) == [sent]
            modified_entry = mac_entry(b"\1\2", b"\x01\x00")
            await client.write(modify(modified_entry))
            assert await client.read(sent) == [modified_entry]
            await client.write(delete(sent))
            assert await client.read(entries_of(BY_MAC)) == await client.read(sent) == []

    asyncio.run(check())


def test_entries__values_come_back_canonical():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            await client.write(insert(mac_entry(b"\0\0\0\0\0\1", b"\0\7")))
            assert await client.read(entries_of(BY_MAC)) == [mac_entry(b"\1", b"\7")]

    asyncio.run(check())


def test_entries__every_match_kind_both_ways():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            action = p4r.TableAction(action=forward(b"\7"))
            lpm = p4r.TableEntry(table_id=BY_ADDR, action=action)
            lpm.match.add(field_id=1, lpm=p4r.FieldMatch.LPM(value=b"\x0a\0\0\0", prefix_len=8))
            acl = p4r.TableEntry(table_id=BY_ACL, action=action, priority=10)
            acl.match.add(field_id=1, ternary=p4r.FieldMatch.Ternary(value=b"\x12\0", mask=b"\xff\0"))
            acl.match.add(field_id=2, range=p4r.FieldMatch.Range(low=b"\1", high=b"\x20"))
            acl.match.add(field_id=3, optional=p4r.FieldMatch.Optional(value=b"\3"))
            sent = [p4r.Entity(table_entry=lpm), p4r.Entity(table_entry=acl)]
            await client.write(*map(insert, sent))
            got = [e for e in await client.read(entries_of()) if not e.table_entry.is_const]
            assert [e for e in got if e.table_entry.table_id in (BY_ADDR, BY_ACL)] == sent
            assert await client.read(entries_of(BY_ACL, priority=11)) == []

    asyncio.run(check())


def test_entries__default_entry():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            default = entries_of(BY_MAC, is_default_action=True, action=p4r.TableAction(action=forward(b"\5")))
            await client.write(modify(default))
            assert await client.read(entries_of(BY_MAC, is_default_action=True)) == [default]
            assert await client.read(entries_of(BY_MAC)) == []
            await client.write(modify(entries_of(BY_MAC, is_default_action=True)))
            first = (await client.read(entries_of(BY_MAC, is_default_action=True)))[0]
            assert first.table_entry.action.action.action_id == DROP
            with pytest.raises(grpc.aio.AioRpcError):
                await client.write(insert(default))

    asyncio.run(check())


def test_entries__metadata_is_kept_until_the_entry_goes():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            entry = mac_entry(b"\1", metadata=b"mine")
            await client.write(insert(entry))
            assert await client.read(entries_of(BY_MAC)) == [entry]
            await client.write(delete(mac_entry(b"\1")), insert(mac_entry(b"\1")))
            assert await client.read(entries_of(BY_MAC)) == [mac_entry(b"\1")]

    asyncio.run(check())


def test_entries__direct_counter_only_when_asked_for():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            entry = mac_entry(b"\1", counter_data=p4r.CounterData(packet_count=3, byte_count=300))
            await client.write(insert(entry))
            assert await client.read(entries_of(BY_MAC, counter_data=p4r.CounterData())) == [entry]
            assert await client.read(entries_of(BY_MAC)) == [mac_entry(b"\1")]

    asyncio.run(check())


# ---- profiles, counters, registers ------------------------------------------------------------------------------


def test_groups__members_weights_and_watch_ports():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            members = [
                p4r.ActionProfileGroup.Member(member_id=1, weight=1, watch_port=b"\7"),
                p4r.ActionProfileGroup.Member(member_id=2, weight=3),
            ]
            entry = p4r.TableEntry(table_id=BY_HASH, action=p4r.TableAction(action_profile_group_id=4))
            entry.match.add(field_id=1).exact.value = b"\1"
            sent = [member(1), member(2, b"\x09"), group(4, *members), p4r.Entity(table_entry=entry)]
            await client.write(*map(insert, sent))
            assert await client.read(p4r.Entity(action_profile_member=p4r.ActionProfileMember())) == sent[:2]
            assert await client.read(p4r.Entity(action_profile_group=p4r.ActionProfileGroup())) == [sent[2]]
            assert await client.read(entries_of(BY_HASH)) == [sent[3]]

            group_with_watch = group(4, p4r.ActionProfileGroup.Member(member_id=1, weight=1, watch=7))
            await client.write(modify(group_with_watch))
            assert await client.read(p4r.Entity(action_profile_group=p4r.ActionProfileGroup(group_id=4))) == [
                group(4, members[0])
            ]
            await client.write(delete(sent[3]), delete(sent[2]), delete(sent[0]), delete(sent[1]))
            assert await client.read(p4r.Entity(action_profile_member=p4r.ActionProfileMember())) == []

    asyncio.run(check())


def test_registers_and_counters__cells():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            cell = p4r.RegisterEntry(register_id=SEEN_REGISTER, index=p4r.Index(index=2))
            cell.data.bitstring = b"\x12\x34"
            count = p4r.CounterEntry(
                counter_id=BY_PORT, index=p4r.Index(index=5), data=p4r.CounterData(packet_count=1, byte_count=60)
            )
            await client.write(modify(p4r.Entity(register_entry=cell)), modify(p4r.Entity(counter_entry=count)))
            read = await client.read(
                p4r.Entity(register_entry=p4r.RegisterEntry(register_id=SEEN_REGISTER, index=p4r.Index(index=2))),
                p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=BY_PORT)),
            )
            assert read[0].register_entry == cell
            assert [e.counter_entry.index.index for e in read[1:]] == list(range(16))
            assert read[6].counter_entry == count

    asyncio.run(check())


# ---- errors -----------------------------------------------------------------------------------------------------


def test_write__each_update_has_its_own_error_and_the_good_ones_are_done():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            entry_without_key = p4r.Entity(table_entry=p4r.TableEntry(table_id=BY_MAC))
            updates = [
                insert(mac_entry(b"\1")),
                insert(mac_entry(b"\1")),
                delete(mac_entry(b"\2")),
                insert(entry_without_key),
                insert(mac_entry(b"\3")),
            ]
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.write(*updates)
            assert caught.value.code() is grpc.StatusCode.UNKNOWN
            assert "3 of 5 updates failed; first: update 1" in caught.value.details()
            codes = [error.canonical_code for error in error_details(caught.value)]
            want = [rpc_code.OK, rpc_code.ALREADY_EXISTS, rpc_code.NOT_FOUND, rpc_code.INVALID_ARGUMENT, rpc_code.OK]
            assert codes == want
            assert await client.read(entries_of(BY_MAC)) == [mac_entry(b"\1"), mac_entry(b"\3")]

    asyncio.run(check())


def test_write__too_many_errors_for_the_metadata_are_counted():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            deletions = [delete(mac_entry(number.to_bytes(2, "big"))) for number in range(1, 2001)]
            code, text = await code_of(client.write(*deletions))
            assert code is grpc.StatusCode.UNKNOWN
            assert "2000 of 2000 updates failed" in text and "NOT_FOUND" in text

    asyncio.run(check())


def test_write__ten_thousand_entries_in_one_batch():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            updates = []
            for number in range(1, 10_001):
                entry = p4r.TableEntry(table_id=BY_ADDR, action=p4r.TableAction(action=forward(b"\1")))
                entry.match.add(
                    field_id=1, lpm=p4r.FieldMatch.LPM(value=number.to_bytes(2, "big") + b"\0\0", prefix_len=16)
                )
                updates.append(insert(p4r.Entity(table_entry=entry)))
            await client.write(*updates)
            assert len(await client.read(entries_of(BY_ADDR))) == 10_000

    asyncio.run(check())


one_shot = p4r.TableEntry(table_id=BY_HASH)
one_shot.match.add(field_id=1).exact.value = b"\1"
one_shot.action.action_profile_action_set.action_profile_actions.add(weight=1)

BAD_UPDATES = {
    "no entity": (p4r.Update(type=1), rpc_code.INVALID_ARGUMENT, "without an entity"),
    "no type": (p4r.Update(entity=mac_entry(b"\1")), rpc_code.INVALID_ARGUMENT, "INSERT, MODIFY or DELETE"),
    "extern": (
        insert(p4r.Entity(extern_entry=p4r.ExternEntry(extern_id=1))),
        rpc_code.UNIMPLEMENTED,
        "extern_entry cannot",
    ),
    "one-shot": (insert(p4r.Entity(table_entry=one_shot)), rpc_code.INVALID_ARGUMENT, "no action with id 0"),
    "no such table": (insert(entries_of(77)), rpc_code.INVALID_ARGUMENT, "by_mac"),
    "no match kind": (
        insert(entries_of(BY_MAC, match=[p4r.FieldMatch(field_id=1)])),
        rpc_code.INVALID_ARGUMENT,
        "leave the field",
    ),
    "too wide": (insert(mac_entry(b"\1" * 7)), None, "48"),
    "empty value": (insert(mac_entry(b"")), rpc_code.INVALID_ARGUMENT, ""),
    "no member": (insert(group(1, p4r.ActionProfileGroup.Member(member_id=9, weight=1))), rpc_code.NOT_FOUND, "9"),
    "insert counter": (
        insert(p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=BY_PORT))),
        rpc_code.INVALID_ARGUMENT,
        "MODIFY",
    ),
    "negative counter": (
        modify(
            p4r.Entity(
                counter_entry=p4r.CounterEntry(
                    counter_id=BY_PORT, index=p4r.Index(index=0), data=p4r.CounterData(packet_count=-1)
                )
            )
        ),
        rpc_code.INVALID_ARGUMENT,
        "negative",
    ),
    "negative index": (
        modify(p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=BY_PORT, index=p4r.Index(index=-1)))),
        rpc_code.INVALID_ARGUMENT,
        "-1",
    ),
    "register without data": (
        modify(p4r.Entity(register_entry=p4r.RegisterEntry(register_id=SEEN_REGISTER))),
        rpc_code.INVALID_ARGUMENT,
        "bitstring",
    ),
    "wide parameter": (
        insert(
            p4r.Entity(
                table_entry=p4r.TableEntry(
                    table_id=BY_MAC,
                    action=p4r.TableAction(
                        action=p4r.Action(action_id=COPY_WIDE, params=[p4r.Action.Param(param_id=2, value=b"\1")])
                    ),
                )
            )
        ),
        rpc_code.INVALID_ARGUMENT,
        "",
    ),
}


@pytest.mark.parametrize("case", BAD_UPDATES)
def test_write__bad_updates_say_what_is_wrong(case):
    update, code, words = BAD_UPDATES[case]

    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.write(update)
            (detail,) = error_details(caught.value)
            assert code in (None, detail.canonical_code), detail
            assert words in detail.message

    asyncio.run(check())


def test_write_and_read__what_is_not_supported_is_named():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            code, text = await code_of(client.write(atomicity=9))
            assert code is grpc.StatusCode.INVALID_ARGUMENT and "DATAPLANE_ATOMIC" in text
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.read(p4r.Entity(extern_entry=p4r.ExternEntry()), entries_of(BY_ACL), entries_of(77))
            assert caught.value.code() is grpc.StatusCode.UNKNOWN
            extern_error, acl_error, table_error = error_details(caught.value)
            assert (
                extern_error.canonical_code == rpc_code.UNIMPLEMENTED
                and "extern_entry cannot be read" in extern_error.message
            )
            assert acl_error.canonical_code == rpc_code.OK
            assert table_error.canonical_code == rpc_code.INVALID_ARGUMENT and "77" in table_error.message
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.read(p4r.Entity())
            assert [error_detail.canonical_code for error_detail in error_details(caught.value)] == [
                rpc_code.INVALID_ARGUMENT
            ]

    asyncio.run(check())


def test_entries__initial_entries_of_the_program_are_read():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            await client.set_pipeline(mini_config())
            (entry,) = await client.read(entries_of(BY_BOTH))
            assert entry.table_entry.match[1].lpm.prefix_len == 8

    asyncio.run(check())


# ---- power ------------------------------------------------------------------------------------------------------


def test_power__off_ends_streams_on_answers_the_waiting_one_and_begins_empty():
    async def check():
        async with (
            running_daemon(devices=2) as daemon,
            primary_of(daemon) as client,
            primary_of(daemon, 2) as other_client,
        ):
            chassis = daemon.registry.with_name("s1")
            await client.set_pipeline(mini_config())
            await chassis.power_off("s1 was switched off")
            code, text = await code_of(client.next_message())
            assert (code, text) == (grpc.StatusCode.UNAVAILABLE, "s1 was switched off")
            assert (await code_of(client.write()))[0] is grpc.StatusCode.UNAVAILABLE
            assert (await code_of(client.read(entries_of())))[0] is grpc.StatusCode.UNAVAILABLE
            async with client_of(daemon) as new_client:
                await new_client.send_bid()
                status = asyncio.ensure_future(new_client.next_status())
                await asyncio.wait([status], timeout=0.05)
                assert not status.done()  # not refused: it waits for the switch, as for one that boots
                await chassis.power_on()
                assert await with_timeout(status) == rpc_code.OK
                assert (await code_of(new_client.read(entries_of())))[0] is grpc.StatusCode.FAILED_PRECONDITION
            await other_client.set_pipeline(mini_config())  # the other device has noticed nothing

    asyncio.run(check())


def test_power__a_stream_that_waits_for_a_device_hears_when_it_is_removed():
    async def check():
        async with running_daemon() as daemon, client_of(daemon) as client:
            await daemon.registry.with_name("s1").power_off("off")
            await client.send_bid()
            message = asyncio.ensure_future(client.next_message())
            await asyncio.wait([message], timeout=0.05)
            await daemon.registry.remove("s1")
            assert (await code_of(message))[0] is grpc.StatusCode.NOT_FOUND

    asyncio.run(check())


def test_capabilities():
    async def check():
        async with running_daemon() as daemon, client_of(daemon) as client:
            assert (await client.stub.Capabilities(p4r.CapabilitiesRequest())).p4runtime_api_version == "1.4.1"

    asyncio.run(check())
