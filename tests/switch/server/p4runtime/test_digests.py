"""digest(): from the program to a controller, batched and acknowledged by the P4Runtime specification."""

from __future__ import annotations

import asyncio

import finsy as fy
import pytest
from finsy.proto import p4d, p4r, rpc_code
from google.protobuf import text_format

from mrc_testbed.switch.compiler import compile_program
from mrc_testbed.switch.device.entities import Digest
from mrc_testbed.switch.device.p4data import p4_data
from mrc_testbed.switch.server.p4runtime.digests import Digests
from mrc_testbed.switch.server.p4runtime.errors import RpcError
from tests.switch.compiled_programs import P4_FOLDER, bench_of
from tests.switch.server.running_server import primary_of, running_daemon, with_timeout
from tests.switch.server.test_server_finsy import Readiness, controller_of

PROGRAM = compile_program(P4_FOLDER / "digests.p4")
IDS = {digest.preamble.name: digest.preamble.id for digest in PROGRAM.p4info.digests}
LEARN = IDS["learn_t"]


def frame(op: int, mac: int) -> bytes:
    return bytes([op]) + b"\x12\x34" + mac.to_bytes(6, "big")


def test_p4info__digests_are_named_and_numbered_as_p4c_does():
    assert IDS == {"learn_t": 398033514, "whole_t": 401134417, "digest_0": 401776493}
    assert PROGRAM.p4info.digests[0].type_spec.struct.name == "learn_t"
    members = {
        member.name: member.type_spec.WhichOneof("type_spec")
        for member in PROGRAM.p4info.type_info.structs["learn_t"].members
    }
    assert members == {"mac": "bitstring", "port": "new_type", "kind": "serializable_enum", "odd": "bool"}


@pytest.mark.parametrize(
    ("op", "name", "text"),
    [
        (
            1,
            "learn_t",
            r'struct { members { bitstring: "\007" } members { bitstring: "\003" } members { enum_value: "\007" } '
            "members { bool: true } }",
        ),
        (
            3,
            "whole_t",
            r'struct { members { header { is_valid: true bitstrings: "\003" bitstrings: "\001#" bitstrings: "\004" '
            r'bitstrings: "\007" } } members { bitstring: "M" } }',
        ),
        (4, "digest_0", r'tuple { members { bitstring: "\001#" } members { bitstring: "\004" } }'),
    ],
)
def test_data__as_p4runtime_has_it(op, name, text):
    bench = bench_of("digests")
    bench.send(3, frame(op, 7))
    (digest,) = bench.device.digests()
    assert digest.digest_id == IDS[name]
    spec = next(
        digest_info for digest_info in PROGRAM.p4info.digests if digest_info.preamble.id == digest.digest_id
    ).type_spec
    assert p4_data(spec, PROGRAM.p4info, digest.data) == text_format.Parse(text, p4d.P4Data())


def test_device__keeps_digests_in_order_and_counts_what_it_cannot_keep():
    bench = bench_of("digests")
    for mac in range(20_000):
        bench.send(3, frame(1, mac))
    assert bench.device.digests_waiting + bench.device.digests_lost == 20_000
    digests = bench.device.digests()
    assert 9_000 < len(digests) < 20_000
    assert [int.from_bytes(digest.data[:6], "big") for digest in digests] == list(range(len(digests)))
    assert bench.device.digests() == []


class Clock:
    """Timers that run when told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waiting: list[tuple[float, object]] = []

    def call_later(self, delay, callback):
        self.waiting.append((self.now + delay, callback))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for timer in self.waiting if timer[0] <= self.now]
        self.waiting = [timer for timer in self.waiting if timer[0] > self.now]
        for _, callback in due:
            callback()


class Learning:
    """Digests with one entry, and what was sent: (list id, last bytes of the data)."""

    def __init__(self, **config: int) -> None:
        self.clock, self.lists, self.is_delivered = Clock(), [], True
        self.digests = Digests(PROGRAM.p4info, self.send, self.clock)
        if config:
            entry = p4r.DigestEntry(digest_id=LEARN, config=p4r.DigestEntry.Config(**config))
            self.digests.insert(entry)

    def send(self, message) -> bool:
        macs = [datum.struct.members[0].bitstring[-1] for datum in message.digest.data]
        self.lists += [(message.digest.list_id, macs)] if self.is_delivered else []
        return self.is_delivered

    def acknowledge(self, list_id: int) -> None:
        self.digests.acknowledge(p4r.DigestListAck(digest_id=LEARN, list_id=list_id))

    def feed(self, *macs: int) -> None:
        self.digests.feed([Digest(LEARN, mac.to_bytes(6, "big") + b"\0\1\7\1", 0) for mac in macs])


MS = 1_000_000


def test_no_entry_nothing_is_sent():
    learning = Learning()
    learning.feed(1, 2)
    assert learning.lists == []


def test_timeout_0_sends_each_datum_at_once():
    learning = Learning(max_list_size=10)
    learning.feed(1, 2, 1)
    assert learning.lists == [(1, [1]), (2, [2]), (3, [1])]


def test_a_full_list_leaves_and_the_rest_waits_for_its_time():
    learning = Learning(max_timeout_ns=100 * MS, max_list_size=2)
    learning.feed(1, 2, 3)
    assert learning.lists == [(1, [1, 2])]
    learning.clock.advance(0.05)
    learning.feed(4)
    assert learning.lists == [(1, [1, 2]), (2, [3, 4])]
    learning.feed(5)
    learning.clock.advance(0.06)  # the timers of lists that left say nothing of this one
    assert len(learning.lists) == 2
    learning.clock.advance(0.05)
    assert learning.lists[2:] == [(3, [5])]


def test_a_datum_is_not_repeated_until_acknowledged():
    learning = Learning(max_list_size=1, ack_timeout_ns=500 * MS)
    learning.feed(1, 1, 2)
    assert learning.lists == [(1, [1]), (2, [2])]
    learning.acknowledge(1)
    learning.acknowledge(77)  # never sent: says nothing
    learning.feed(1, 2)
    assert learning.lists[2:] == [(3, [1])]


def test_a_list_never_acknowledged_is_forgotten_after_its_time():
    learning = Learning(max_list_size=1, ack_timeout_ns=500 * MS)
    learning.feed(1)
    learning.clock.advance(0.4)
    learning.feed(1)
    assert learning.lists == [(1, [1])]
    learning.clock.advance(0.2)
    learning.feed(1)
    assert learning.lists == [(1, [1]), (2, [1])]


def test_an_acknowledgement_that_is_doubled__is_of_its_list_alone():
    learning = Learning(max_list_size=1, ack_timeout_ns=500 * MS)
    learning.feed(1)
    learning.acknowledge(1)
    learning.feed(1)
    learning.acknowledge(1)
    learning.feed(1)
    assert learning.lists == [(1, [1]), (2, [1])]
    learning.clock.advance(0.6)  # the timer of list 1 says nothing of list 2, whose own has run out
    learning.feed(1)
    assert learning.lists[2:] == [(3, [1])]


def test_an_acknowledgement_that_is_late__says_nothing_of_the_list_that_was_sent_meanwhile():
    learning = Learning(max_list_size=1, ack_timeout_ns=500 * MS)
    learning.feed(1)
    learning.clock.advance(0.6)
    learning.feed(1)
    learning.acknowledge(1)
    learning.feed(1)
    assert learning.lists == [(1, [1]), (2, [1])]
    learning.acknowledge(2)
    learning.feed(1)
    assert learning.lists[2:] == [(3, [1])]


@pytest.mark.parametrize("change", ["modify", "delete"])
@pytest.mark.parametrize("timeout_ns", [0, 10**12])
def test_a_change_that_is_taken_back__sends_nothing_twice_and_leaves_no_datum_waiting(change, timeout_ns):
    """Once, a list sent by a modification was sent again, and after a deletion data waited for ever."""
    learning = Learning(max_timeout_ns=100 * MS, max_list_size=8, ack_timeout_ns=10**12)
    learning.feed(1)
    saved_state = learning.digests.saved_state(LEARN)
    config = p4r.DigestEntry.Config(max_timeout_ns=100 * MS, ack_timeout_ns=timeout_ns)
    getattr(learning.digests, change)(p4r.DigestEntry(digest_id=LEARN, config=config))
    learning.digests.restore(LEARN, saved_state)
    learning.feed(1, 2)
    learning.clock.advance(0.15)
    assert [mac for _, macs in learning.lists for mac in macs] == [1, 2]
    assert learning.digests.entries(LEARN)[0].config.max_list_size == 8


def test_a_list_without_a_primary_is_lost_and_its_data_may_come_again():
    learning = Learning(max_list_size=1, ack_timeout_ns=500 * MS)
    learning.is_delivered = False
    learning.feed(1)
    learning.is_delivered = True
    learning.feed(1)
    assert learning.lists == [(2, [1])]


def test_entries__are_checked_and_read_back():
    learning = Learning(max_list_size=1)
    digests, entry = learning.digests, p4r.DigestEntry(digest_id=LEARN)
    assert [digest_entry.config.max_list_size for digest_entry in digests.entries(0)] == [1]
    digests.modify(entry)
    assert [digest_entry.config.max_list_size for digest_entry in digests.entries(LEARN)] == [0]
    for call, argument, code in [
        (digests.insert, entry, rpc_code.ALREADY_EXISTS),
        (digests.modify, p4r.DigestEntry(digest_id=IDS["whole_t"]), rpc_code.NOT_FOUND),
        (digests.delete, p4r.DigestEntry(digest_id=5), rpc_code.INVALID_ARGUMENT),
        (digests.entries, 5, rpc_code.INVALID_ARGUMENT),
        (digests.acknowledge, p4r.DigestListAck(digest_id=5), rpc_code.INVALID_ARGUMENT),
        (
            digests.modify,
            p4r.DigestEntry(digest_id=LEARN, config=p4r.DigestEntry.Config(max_list_size=-1)),
            rpc_code.INVALID_ARGUMENT,
        ),
    ]:
        with pytest.raises(RpcError) as caught:
            call(argument)
        assert caught.value.code == code
    digests.delete(entry)
    assert digests.entries(0) == []


def test_stream__lists_reach_the_primary_and_acks_are_answered():
    async def check():
        async with running_daemon() as daemon, primary_of(daemon) as client:
            config = p4r.ForwardingPipelineConfig(p4info=PROGRAM.p4info, p4_device_config=PROGRAM.config)
            await client.set_pipeline(config)
            settings = p4r.DigestEntry.Config(max_list_size=1, ack_timeout_ns=10**12)
            entity = p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=LEARN, config=settings))
            await client.write(p4r.Update(type=p4r.Update.INSERT, entity=entity))
            assert await client.read(p4r.Entity(digest_entry=p4r.DigestEntry())) == [entity]
            device = daemon.registry.with_name("s1").device
            # The second 7 is a duplicate before its acknowledgement: no list carries it
            for mac in (7, 7, 9):
                daemon.loop.inject(device, frame(1, mac), 3)
            first, second = [(await client.next_message()).digest for _ in range(2)]
            assert [digest_list.data[0].struct.members[0].bitstring for digest_list in (first, second)] == [
                b"\7",
                b"\x09",
            ]
            ack = p4r.DigestListAck(digest_id=LEARN, list_id=first.list_id)
            await client.stream.write(p4r.StreamMessageRequest(digest_ack=ack))
            unknown_ack = p4r.DigestListAck(digest_id=5, list_id=1)
            await client.stream.write(p4r.StreamMessageRequest(digest_ack=unknown_ack))
            error = (await client.next_message()).error
            assert (error.canonical_code, error.digest_list_ack.digest_list_ack) == (
                rpc_code.INVALID_ARGUMENT,
                unknown_ack,
            )
            for mac in (9, 7):
                daemon.loop.inject(device, frame(1, mac), 3)
            assert (await client.next_message()).digest.data[0].struct.members[0].bitstring == b"\7"

    asyncio.run(check())


def test_finsy_receives_digests(tmp_path):
    class Blob:
        def __bytes__(self) -> bytes:
            return PROGRAM.config

    async def check():
        p4info = tmp_path / "p4info.txtpb"
        p4info.write_text(text_format.MessageToString(PROGRAM.p4info))
        readiness = Readiness()
        options = fy.SwitchOptions(p4info=p4info, p4blob=Blob())
        async with running_daemon() as daemon, controller_of(daemon, options, readiness, 1):
            switch = await readiness.next()
            await switch.insert([fy.P4DigestEntry("learn_t", max_list_size=1, ack_timeout_ns=10**12)])
            lists = aiter(switch.read_digests("learn_t"))
            next_list = asyncio.ensure_future(anext(lists))
            await asyncio.sleep(0)
            daemon.loop.inject(daemon.registry.with_name("s1").device, frame(1, 0xABCDEF), 3)
            digest_list = await with_timeout(next_list)
            assert digest_list.data == [{"mac": 0xABCDEF, "port": 3, "kind": 7, "odd": True}]
            await switch.write([digest_list.ack()])

    asyncio.run(check())
