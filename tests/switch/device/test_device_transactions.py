"""Rollback of failed transactions of a device, and packets during a held transaction."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from mrc_testbed.switch.device import native
from mrc_testbed.switch.device.device import P4Device
from mrc_testbed.switch.device.entities import (
    ActionCall,
    ActionSet,
    CloneSession,
    CounterData,
    FieldMatch,
    Group,
    GroupMember,
    GroupRef,
    MeterConfig,
    MulticastGroup,
    ProfileMember,
    Replica,
    SetMember,
    TableEntry,
    TableError,
    ValueSetMembers,
)
from mrc_testbed.switch.device.tables import DeviceTables
from tests.switch.compiled_programs import bench_of
from tests.switch.mini_program import (
    BY_ACL,
    BY_ADDR,
    BY_HASH,
    BY_MAC,
    BY_PORT,
    FORWARD,
    SEEN_REGISTER,
    SPRAY,
    frame,
    mini,
)


def forward(port: int) -> ActionCall:
    return ActionCall(FORWARD, ((1, port.to_bytes(1, "big")),))


def mac(number: int, port: int = 1, **fields) -> TableEntry:
    return TableEntry(BY_MAC, (FieldMatch.exact(1, bytes([number])),), forward(port), **fields)


def state(device: P4Device) -> list[object]:
    """Return all readable state, in an order that does not depend on when it was written."""
    schema = device.schema
    parts: list[object] = sorted(map(repr, device.read(defaults=True)))
    parts += [*device.read_members(), *device.read_groups(), *device.read_multicast(), *device.read_sessions()]
    parts += [device.read_counter(counter) for counter in schema.counters] + [
        device.read_register(register) for register in schema.registers
    ]
    parts += [device.read_meter(meter) for meter in schema.meters]
    parts += [
        device.read_direct_meter(entry)
        for entry in device.read(defaults=True)
        if entry.table_id in schema.tables_with_meter
    ]
    return parts + [sorted(map(repr, device.read_value_set(value_set).members)) for value_set in schema.value_sets]


def settle(device: P4Device) -> list[object]:
    """Return `state` without the times since the last hit."""
    return [part.partition("idle_ns=")[0] if isinstance(part, str) else part for part in state(device)]


class Fault(Exception):
    pass


@contextmanager
def failing_transaction(device: P4Device) -> Iterator[None]:
    with device.transaction():
        yield
        raise Fault


@contextmanager
def taken_back(device: P4Device) -> Iterator[None]:
    """Open a transaction that fails after the block."""
    with pytest.raises(Fault), failing_transaction(device):
        yield


@pytest.fixture
def device() -> P4Device:
    device = P4Device(1, "s1")
    device.load(mini())
    for number in (1, 2, 3):
        device.insert_member(ProfileMember(SPRAY, number, forward(number)))
    device.insert_group(Group(SPRAY, 1, (GroupMember(1, 2, 5), GroupMember(2)), max_size=8))
    device.insert(TableEntry(BY_HASH, (FieldMatch.exact(1, b"\1"),), GroupRef(1)))
    for number in range(1, 5):
        device.insert(mac(number, metadata=bytes([number]), cookie=number, idle_timeout_ns=10**12))
        device.process(1, frame(0, dst=number))
    device.insert_replication(MulticastGroup(1, (Replica(1), Replica(2)), b"m"))
    device.insert_replication(CloneSession(1, (Replica(3),), 2, 100))
    return device


def random_step(device: P4Device, rng: random.Random) -> None:
    """Make one change of any kind; most succeed."""
    number, port = rng.randrange(1, 7), rng.randrange(1, 200)
    acl = TableEntry(BY_ACL, (FieldMatch.range(2, b"\1", bytes([number + 1])),), forward(port), number)
    entry = mac(number, port, metadata=bytes([port]), idle_timeout_ns=port, counter=CounterData(port, port))
    write = rng.choice([device.insert, device.modify, device.delete])
    kinds = [
        lambda: write(rng.choice([entry, acl, replace(acl, match=()), mac(number)])),
        lambda: device.modify(TableEntry(BY_MAC, (), forward(port), is_default=True, metadata=b"d")),
        lambda: rng.choice([device.insert_member, device.modify_member, device.delete_member])(
            ProfileMember(SPRAY, number, forward(port))
        ),
        lambda: rng.choice([device.insert_group, device.modify_group, device.delete_group])(
            Group(SPRAY, rng.randrange(1, 3), (GroupMember(rng.randrange(1, 4), 3),), max_size=8)
        ),
        lambda: device.write_counter(BY_PORT, rng.choice([None, number]), CounterData(port, port)),
        lambda: device.write_register(SEEN_REGISTER, rng.choice([None, number % 4]), port),
        lambda: rng.choice([device.insert_replication, device.modify_replication, device.delete_replication])(
            rng.choice([MulticastGroup(number, (Replica(port),)), CloneSession(number, (Replica(port),))])
        ),
    ]
    rng.choice(kinds)()


@pytest.mark.parametrize("seed", range(12))
def test_any_changes__are_taken_back(device: P4Device, seed: int) -> None:
    rng, state_before, step_count = random.Random(seed), settle(device), 0
    with device.packets_paused(), taken_back(device):
        for _ in range(60):
            try:
                random_step(device, rng)
                step_count += 1
            except TableError:
                continue
        assert settle(device) != state_before
    assert step_count > 10 and settle(device) == state_before
    device.insert(mac(9))  # and an ordinary write is for good
    with device.transaction():
        device.delete(mac(9))
    assert settle(device) == state_before


def test_a_hit_and_a_meter__come_back_as_they_were(device: P4Device) -> None:
    entry_before = device.read_one(mac(1))
    with taken_back(device):
        device.delete(mac(1))
    entry_after = device.read_one(mac(1))
    assert entry_after == entry_before and entry_after.idle_ns >= entry_before.idle_ns
    bench = bench_of("meters")
    table = bench.info.tables[0].preamble.id
    default = TableEntry(table, is_default=True)
    bench.set_default("entries_of", "metered")
    bench.device.write_direct_meter(default, MeterConfig(1, 1, 1, 1))
    assert bench.send(1, b"\3\1\0")[0][1][2] == 0  # the bucket is empty now
    with taken_back(bench.device):
        bench.device.write_direct_meter(default, MeterConfig(9, 9, 9, 9))
        bench.device.write_meter(bench.info.meters[0].preamble.id, None, MeterConfig(9, 9, 9, 9))
    assert bench.device.read_direct_meter(default) == MeterConfig(1, 1, 1, 1)
    assert all(config is None for _, config in bench.device.read_meter(bench.info.meters[0].preamble.id))
    assert bench.send(1, b"\3\1\0")[0][1][2] == 2


def test_write_value_set__memory_that_ends_midway_leaves_the_previous_members(monkeypatch):
    """Test a failure of the second insertion: once the set lost its members, deleted before."""
    bench = bench_of("subparsers")
    value_set = next(iter(bench.device.schema.value_sets.values()))

    def members(*values: int) -> ValueSetMembers:
        field = value_set.fields[0]
        return ValueSetMembers(
            value_set.id, tuple((FieldMatch(field.id, bytes([value]), kind=field.match),) for value in values)
        )

    bench.device.write_value_set(members(5))
    write_member = DeviceTables._write_member
    inserted_keys = []

    def fail_second_insertion(tables, op, schema, key):
        if op == native.INSERT:
            inserted_keys.append(key)
            if len(inserted_keys) == 2:
                raise TableError("RESOURCE_EXHAUSTED", "out of memory")
        write_member(tables, op, schema, key)

    monkeypatch.setattr(DeviceTables, "_write_member", fail_second_insertion)
    with pytest.raises(TableError, match="out of memory"):
        bench.device.write_value_set(members(6, 7))
    assert bench.device.read_value_set(value_set.id) == members(5)


def test_one_shot_sets_and_value_sets__come_back(device: P4Device) -> None:
    bench = bench_of("subparsers")
    number = next(iter(bench.device.schema.value_sets))
    field = bench.device.schema.value_sets[number].fields[0]
    bench.device.write_value_set(ValueSetMembers(number, ((FieldMatch(field.id, b"\5", kind=field.match),),)))
    state_before = settle(bench.device)
    with taken_back(bench.device):
        bench.device.write_value_set(ValueSetMembers(number))
    assert settle(bench.device) == state_before
    other_device = P4Device(2)
    other_device.load(mini())
    entry = TableEntry(BY_HASH, (FieldMatch.exact(1, b"\1"),), ActionSet((SetMember(forward(3), 2, 7),)))
    other_device.insert(entry)
    for change in (other_device.delete, lambda old_entry: other_device.modify(replace(old_entry, action=ActionSet()))):
        with taken_back(other_device):
            change(entry)
        assert list(other_device.read(BY_HASH)) == [entry]


def test_held__packets_see_all_or_nothing(device: P4Device) -> None:
    """Two prefixes lead to the same port, but for a moment between two writes: nobody ever sees that."""

    def route(prefix: int, port: int) -> TableEntry:
        return TableEntry(BY_ADDR, (FieldMatch.lpm(1, bytes([prefix, 0, 0, 0]), 8),), forward(port))

    for prefix in (1, 2):
        device.insert(route(prefix, 1))
    stop, port_pairs = threading.Event(), set()

    # One look is two packets under one lock: a port pair that differs would be a half-done write
    def traffic() -> None:
        while not stop.is_set():
            with device.packets_paused():
                port_pairs.add(tuple(device.process(1, frame(1, a=prefix << 24))[0][0] for prefix in (1, 2)))

    threads = [threading.Thread(target=traffic) for _ in range(2)]
    for thread in threads:
        thread.start()
    for port in range(2, 150):
        steps = [device.prepare(1, route(prefix, port)) for prefix in (1, 2)]
        with device.packets_paused():
            for step in steps:
                step()
    stop.set()
    for thread in threads:
        thread.join()
    assert len(port_pairs) > 1 and all(first == second for first, second in port_pairs)
    with device.packets_paused(), device.packets_paused():
        pass
    assert device.process(1, frame(1, a=1 << 24))[0][0] == 149


@pytest.mark.parametrize("op", ["modify", "delete", "default"])
def test_a_write_that_could_not_be_taken_back__is_refused(monkeypatch, op):
    """Once it was done, and stayed when the transaction failed; a default action's ended in struct.error."""
    device = P4Device(1, "s1", seed=1)
    device.load(mini())
    device.insert(mac(1))
    entries_before = list(device.read(defaults=True))
    change = {
        "modify": lambda: device.modify(mac(1, port=2)),
        "delete": lambda: device.delete(mac(1)),
        "default": lambda: device.modify(TableEntry(BY_MAC, (), forward(3), is_default=True)),
    }[op]
    with monkeypatch.context() as patch:
        patch.setattr(native, "take_block", lambda *_arguments: (native.NO_MEMORY, b""))
        with pytest.raises(TableError, match="out of memory"), device.transaction():
            change()
    assert list(device.read(defaults=True)) == entries_before
    device.close()
