"""The compiled half of the fast NIC against the Python one.

Same bytes out, same records in, nothing more taken.
"""

from __future__ import annotations

import contextlib
import errno
import random
import socket
import struct
import zlib
from dataclasses import fields, replace

import pytest

from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.wire.codec import UDP_PORTS, Codec, WireError, write_size
from mrc_testbed.hosts.engine.wire.packets import IMM_OPCODES, Nack, NackReason, Opcode, Sack, TransportAck, Write
from mrc_testbed.hosts.nic import native as native_module
from mrc_testbed.hosts.nic.encapsulation import Decapsulation, Encapsulation
from mrc_testbed.hosts.nic.native import EXAMPLES, load
from mrc_testbed.native_build import state
from mrc_testbed.switch.system.cache_folder import BuildError
from mrc_testbed.switch.system.gcc import MissingToolError
from mrc_testbed.topologies.plan import Plan
from tests.allocation_failures import results_without_memory

PLAN = Plan(planes=2, racks=2, spines=2, hosts_per_rack=1)
H0, H1 = PLAN.hosts
WRITES = [Opcode(code) for code in range(Opcode.WRITE_FIRST, Opcode.WRITE_ONLY_IMM + 1)]


@pytest.fixture(scope="module")
def compiled_module():
    try:
        return load()
    except MissingToolError as error:
        pytest.skip(str(error))


class Ends:
    """h0 sends to h1 over plane 1, with either half on both sides."""

    def __init__(self, module, config: Config, mode: str = "srv6") -> None:
        self.module, self.config, self.codec = module, config, Codec(config)
        plan, wire = replace(PLAN, mode=mode), config.wire
        self.capsule = Encapsulation(plan, H0, H1, 1)
        self.decapsulation = Decapsulation(plan, H1, 1, self.codec)
        self.port = module.Port(
            plane=1,
            own_usid=self.decapsulation.own_usid,
            own_address=self.decapsulation.own_address,
            peers=self.decapsulation.peers,
            ports=tuple(UDP_PORTS | {wire.udp_dport}),
            dport=wire.udp_dport,
            pkey=wire.pkey,
            low=wire.ev_layout == "L",
            trimmed=(config.dscp.trimmed, config.dscp.trimmed_lasthop),
        )
        capsule = self.capsule
        self.route = module.Route(capsule.ethernet, capsule.source, capsule.addressing.pair, capsule.destination)

    def python_frame(self, record) -> bytes:
        frame = self.codec.encode(record, self.capsule.addressing)
        return self.capsule.outer(record.ev, frame.header[:4], frame.size) + frame.join()

    def arrived_frame(self, frame: bytes) -> bytearray:
        """Return the frame as the switches leave it: addressed to the port's own uSID."""
        if not self.capsule.outer_header:
            return bytearray(frame)
        return bytearray(frame[:38] + self.decapsulation.own_usid + frame[54:])

    def python_opens(self, frame: bytes):
        """Return (plane, peer, record), or None where it raises."""
        try:
            return 1, *self.decapsulation.open(memoryview(frame))
        except WireError:
            return None


@pytest.fixture(params=["L", "H", "stev"])
def ends(request, compiled_module):
    """srv6 mode with either layout of the EV, and one without outer header (they are all alike to a NIC)."""
    if request.param == "stev":
        return Ends(compiled_module, Config(), "stev")
    return Ends(compiled_module, Config.of(ev_layout=request.param))


def a_write(rng: random.Random) -> Write:
    opcode = rng.choice(WRITES)
    payload = rng.randbytes(rng.choice((0, 1, 2, 3, 4, 63, 64, 65, 1000, 4096)))
    stamp = rng.choice((None, rng.getrandbits(16)))
    return Write(
        rng.getrandbits(24),
        rng.getrandbits(32),
        1,
        rng.choice((0, 4, 46)),
        rng.getrandbits(2),
        opcode,
        rng.getrandbits(24),
        rng.getrandbits(16),
        rng.getrandbits(64),
        rng.getrandbits(32),
        rng.getrandbits(32),
        payload,
        write_size(opcode, len(payload), stamp is not None),
        rng.getrandbits(16),
        rng.getrandbits(32) if opcode in IMM_OPCODES else 0,
        stamp,
        0 if stamp is None else rng.getrandbits(1),
        rng.random() < 0.5,
        rng.random() < 0.5,
        rng.random() < 0.5,
    )


def a_sack(rng: random.Random) -> Sack:
    probe = rng.choice((None, rng.getrandbits(16)))
    return Sack(
        rng.getrandbits(24),
        rng.getrandbits(32),
        1,
        46,
        0,
        rng.getrandbits(24),
        rng.randrange(-0x8000, 0x8000),
        rng.getrandbits(64),
        rng.randrange(-0x8000, 0x8000) if probe is None else 0,
        probe,
        rng.getrandbits(32),
        rng.getrandbits(2),
        rng.getrandbits(16),
        rng.getrandbits(24),
        rng.getrandbits(15),
        rng.getrandbits(8),
        rng.getrandbits(7),
        rng.random() < 0.5,
        rng.random() < 0.5,
        rng.getrandbits(16),
        rng.getrandbits(16),
        rng.getrandbits(4),
    )


def an_ack(rng: random.Random) -> TransportAck:
    return TransportAck(
        rng.getrandbits(24), rng.getrandbits(32), 1, 46, 0, rng.getrandbits(24), rng.getrandbits(8), rng.getrandbits(24)
    )


def records(count: int, seed: int):
    rng = random.Random(seed)
    return [rng.choices((a_write, a_sack, an_ack), (5, 3, 2))[0](rng) for _ in range(count)]


@pytest.mark.parametrize("way", [0, 1, 2], ids=["table", "folding", "wide folding"])
def test_crc32__as_zlib(compiled_module, way):
    rng = random.Random(5)
    for size in (*range(600), 4095, 4096, 9000):
        data, start = rng.randbytes(size), rng.getrandbits(32)
        assert compiled_module.crc32(data, start, way) == zlib.crc32(data, start)
    assert compiled_module.crc32(data) == zlib.crc32(data)


def test_build__the_same_bytes_as_python(ends):
    for record in records(400, seed=1):
        assert ends.port.build(ends.route, record) == ends.python_frame(record)


def test_open__the_same_records_as_python(ends):
    for record in records(400, seed=2):
        frame = ends.arrived_frame(ends.python_frame(record))
        result = ends.port.open(frame)
        assert result is not None and result == ends.python_opens(frame) == (1, "h0", record)
        assert type(result[2]) is type(record)
        for field in fields(record):
            opened_value, record_value = getattr(result[2], field.name), getattr(record, field.name)
            assert type(opened_value) in (int, bytes) or type(opened_value) is type(record_value), field.name


def test_open__takes_nothing_that_python_refuses(ends):
    """One to three bits of a good frame flipped, or its length changed.

    None, or exactly what Python makes of it.
    """
    rng = random.Random(3)
    opened_count = 0
    for record in records(1500, seed=4):
        frame = ends.arrived_frame(ends.python_frame(record))
        for _ in range(rng.randint(1, 3)):
            frame[rng.randrange(min(len(frame), 140))] ^= 1 << rng.randrange(8)
        change = rng.random()
        if change < 0.1:
            del frame[rng.randrange(len(frame)) :]
        elif change < 0.2:
            frame += rng.randbytes(rng.randint(1, 8))
        result = ends.port.open(frame)
        if result is not None:
            opened_count += 1
            assert result == ends.python_opens(frame)
    assert opened_count  # what changes in flight (hop limit, DSCP, Ethernet) makes no frame bad


def test_open__garbage_of_every_length(ends):
    rng = random.Random(6)
    for size in range(300):
        assert ends.port.open(rng.randbytes(size)) is None


def test_build__what_it_does_not_know_is_left_to_python(ends):
    write, sack, ack = a_write(random.Random(7)), a_sack(random.Random(8)), an_ack(random.Random(9))
    for record in (
        Nack(5, 1, 1, 46, 0, 9, 1, 7),
        object(),
        replace(write, psn=1 << 24),
        replace(write, va=-1),
        replace(write, payload="text"),
        replace(sack, bitmap=1 << 64),
        replace(sack, penalty=128),
        replace(write, payload=bytes(70_000)),
        replace(write, ack_request="yes"),
        replace(ack, syndrome=256),
        replace(ack, msn=1 << 24),
        replace(ack, psn=-1),
        replace(ack, dest_qp=1 << 24),
    ):
        assert ends.port.build(ends.route, record) is None
    assert ends.port.build(object(), write) is None


def test_open__ce_in_either_header(ends):
    for inner in range(4):
        for outer in range(4):
            frame = ends.arrived_frame(ends.python_frame(replace(a_write(random.Random(9)), ecn=inner)))
            frame[15] = frame[15] & 0xCF | outer << 4
            result = ends.port.open(frame)
            assert result is not None and result == ends.python_opens(frame)


def test_setup__refuses_records_with_other_fields(compiled_module):
    write, sack, ack = EXAMPLES
    nack = Nack(3, 0, 0, 46, 0, 0, NackReason.NO_BITMAP, 0, 0)
    for records in ((write, nack, ack), (write, sack, nack), (write, sack, Sack)):
        with pytest.raises(ValueError, match="other fields"):
            compiled_module.setup(*records, Opcode)
    compiled_module.setup(*EXAMPLES, Opcode)


def test_port__attach_checks_the_ring(ends):
    with pytest.raises(ValueError, match="does not fit"):
        ends.port.attach(0, memoryview(bytearray(4096)), 4096, 1024, 8, 8)
    with pytest.raises(TypeError, match="attached"):
        ends.port.receive(1, [], print)


class Pipe:
    """A port over a socket whose other end we read."""

    def __init__(self, ends: Ends) -> None:
        self.module, self.port = ends.module, ends.port
        self.port_end, self.peer_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.peer_end.setblocking(False)
        self.port.attach(self.port_end.fileno(), memoryview(bytearray(1 << 12)), 1 << 12, 1 << 10, 4, 4)
        self.port.add_route("h1", ends.route)

    def close(self) -> None:
        self.port.detach()
        self.port_end.close(), self.peer_end.close()

    def send(self, items: list, start: int = 0, blocked_planes: int = 0) -> tuple[int, list]:
        refusals: list = []
        return self.module.send_many((None, self.port), items, start, blocked_planes, refusals), refusals

    def frames(self) -> list[bytes]:
        frames = []
        with contextlib.suppress(BlockingIOError):
            while True:
                frames.append(self.peer_end.recv(10_000))
        return frames


@pytest.fixture
def pipe(ends):
    with contextlib.closing(Pipe(ends)) as open_pipe:
        yield open_pipe


def test_send_many__the_frames_that_build_makes(ends, pipe):
    items = [(1, "h1", record) for record in records(200, 11)]
    for start in range(0, 200, 8):
        assert pipe.send(items[: start + 8], start) == (start + 8, [])
        assert pipe.frames() == [ends.port.build(ends.route, record) for _, _, record in items[start : start + 8]]
    assert ends.port.take_counts()[0] == 200


def test_send_many__what_the_kernel_takes_no_more_is_named_from_there_on(ends, pipe):
    pipe.port_end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 15)
    items = [(1, "h1", record) for record in records(200, 12)]
    went_on_at, refusals = pipe.send(items)
    sent_count = len(pipe.frames())
    assert 0 < sent_count < went_on_at < 200
    assert refusals == [(number, errno.EAGAIN) for number in range(sent_count, went_on_at)]
    assert ends.port.take_counts()[0] == sent_count


def test_send_many__stops_at_what_is_for_python(pipe):
    items = [(1, "h1", record) for record in records(3, 13)]
    for odd in (
        (1, "h1", Nack(7, 0, 0, 46, 0, 9, 1, 0)),
        (1, "h9", items[0][2]),
        (0, "h1", items[0][2]),
        (7, "h1", items[0][2]),
        (-1, "h1", items[0][2]),
        ("plane", "h1", items[0][2]),
        (1, [], items[0][2]),
        (1, "h1"),
        None,
    ):
        try:
            assert pipe.send([*items, odd, *items]) == (3, [])
        except TypeError:
            assert odd in (("plane", "h1", items[0][2]), (1, [], items[0][2]))  # a bug of ours, not a packet
        assert len(pipe.frames()) in (0, 3)
    assert pipe.send(items, blocked_planes=1 << 1) == (0, [])
    assert pipe.send([]) == (0, [])
    pipe.port.detach()
    assert pipe.send(items) == (0, [])


def test_send_many__says_what_it_takes(pipe):
    for arguments in (((), [], 0, 0), ([], [], 0, 0, []), ((), (), 0, 0, []), ((), [], 0, 0, ())):
        with pytest.raises(TypeError, match="send_many"):
            pipe.module.send_many(*arguments)
    with pytest.raises(ValueError, match="start < 0"):
        pipe.module.send_many((), [], -1, 0, [])
    with pytest.raises(TypeError, match="add_route"):
        pipe.port.add_route("h1", None)


def test_build__without_a_compiler_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingToolError, match="apt-get install gcc"):
        native_module.build()


def test_build__in_a_folder_that_cannot_be_made(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path / "file" / "under"))
    with pytest.raises(BuildError, match="MRC_CACHE_DIR"):
        native_module.build()


def test_native__switched_off(monkeypatch):
    monkeypatch.setenv("MRC_NATIVE", "0")
    assert native_module.native.__wrapped__() is None


SHORT_OF_MEMORY = pytest.mark.skipif(
    state().active, reason="records as machine code: mypyc ends the process where memory is short"
)


@SHORT_OF_MEMORY
def test_an_allocation_that_fails__is_a_memory_error_and_the_next_frame_is_the_same(ends):
    rng = random.Random(5)
    for record in (a_write(rng), a_sack(rng), an_ack(rng)):
        frame = ends.python_frame(record)
        frames = set(results_without_memory(lambda record=record: ends.port.build(ends.route, record)))
        assert MemoryError in frames and frames <= {MemoryError, frame}
        assert ends.port.build(ends.route, record) == frame
        results = list(results_without_memory(lambda frame=frame: ends.port.open(ends.arrived_frame(frame))))
        assert ends.port.open(ends.arrived_frame(frame)) in results and MemoryError in results


@SHORT_OF_MEMORY
def test_an_allocation_that_fails__sends_a_frame_once_or_says_so(ends, pipe):
    """One frame alone, and many.

    Those before the one that had no memory may have left, and none is sent twice.
    """
    record = a_sack(random.Random(6))
    frame = ends.port.build(ends.route, record)
    for result in results_without_memory(lambda: pipe.port.send(ends.route, record)):
        assert pipe.frames() in ([frame], []) if result is MemoryError else (result, pipe.frames()) == (0, [frame])
    items = [(1, "h1", record) for record in records(40, 14)]
    frames = [ends.port.build(ends.route, record) for _, _, record in items]
    ends.port.take_counts()
    for result in results_without_memory(lambda: pipe.send(items)):
        sent = pipe.frames()
        assert frames[: len(sent)] == sent and (result is MemoryError or (result, len(sent)) == ((40, []), 40))
        assert ends.port.take_counts()[0] == len(sent)
    pipe.port_end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 15)
    for result in results_without_memory(lambda: pipe.send(items * 5)):
        assert result is MemoryError or result[1][0] == (len(pipe.frames()), errno.EAGAIN)
        pipe.frames()
    ends.port.take_counts()
    assert pipe.send(items) == (40, []) and pipe.frames() == frames
    results = [counts for counts in results_without_memory(ends.port.take_counts) if counts is not MemoryError]
    assert len(results) < 60 and results[0] == (40, sum(map(len, frames)), 0, 0), "counts go when they have been taken"


SLOT, SLOTS = 1 << 13, 4


@SHORT_OF_MEMORY
def test_an_allocation_that_fails__loses_one_received_frame_at_most_and_the_ring_goes_on(ends):
    ring = bytearray(SLOT * SLOTS)
    port_end, peer_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ends.port.attach(port_end.fileno(), memoryview(ring), SLOT * SLOTS, SLOT, SLOTS, SLOTS)
    rng = random.Random(7)
    sent = [a_write(rng), a_sack(rng), an_ack(rng), None]
    frames = [b"something else" if record is None else ends.arrived_frame(ends.python_frame(record)) for record in sent]
    expected_records = [(1, "h0", record) for record in sent[:3]] + [b"something else"]

    def fill():
        for slot, frame in enumerate(frames):
            struct.pack_into("=IIIH", ring, slot * SLOT, 1, len(frame), len(frame), 64)
            ring[slot * SLOT + 64 : slot * SLOT + 64 + len(frame)] = frame

    fill()
    received, lost = [], 0
    for result in results_without_memory(lambda: ends.port.receive(SLOTS, received, bytes)):
        # The first call may have ended at the frame without memory: the second one takes those behind it
        ends.port.receive(SLOTS, received, bytes)
        assert not any(ring[slot * SLOT] for slot in range(SLOTS))
        assert [record for record in expected_records if record in received] == received
        assert len(received) >= len(expected_records) - (result is MemoryError)
        lost += len(expected_records) - len(received)
        received.clear()
        fill()
    assert lost > 5 and result is False
    ends.port.detach()
    port_end.close(), peer_end.close()


@SHORT_OF_MEMORY
def test_an_allocation_that_fails__makes_no_half_port_or_route(ends):
    """Making an object without enough memory is an error, and what there was before is as it was."""
    capsule, usid = ends.capsule, ends.decapsulation.own_usid
    route = (capsule.ethernet, capsule.source, capsule.addressing.pair, capsule.destination)
    port = {
        "plane": 1,
        "own_usid": usid,
        "own_address": ends.decapsulation.own_address,
        "peers": ends.decapsulation.peers,
        "ports": tuple(UDP_PORTS),
        "dport": ends.config.wire.udp_dport,
        "pkey": ends.config.wire.pkey,
        "low": True,
        "trimmed": (1,),
    }
    record = a_sack(random.Random(8))
    frame = ends.port.build(ends.route, record)
    calls = {
        "route": lambda: ends.module.Route(*route),
        "port": lambda: ends.module.Port(**port),
        "add_route": lambda: ends.port.add_route(f"h{random.random()}", ends.route),
        "setup": lambda: ends.module.setup(*EXAMPLES, Opcode),
        "crc32": lambda: ends.module.crc32(b"1"),
    }
    for name, call in calls.items():
        results = list(results_without_memory(call))
        # The last try had enough memory; crc32 needs none
        assert results[-1] is not MemoryError, name
        assert name == "crc32" or MemoryError in results, name
        for result in results:
            if name == "route" and result is not MemoryError:
                assert ends.port.build(result, record) == frame
        assert ends.port.build(ends.route, record) == frame, name
