from __future__ import annotations

from random import Random

import pytest

from mrc_testbed.hosts.engine.memory import AccessError, Memory, PayloadSink


def memory() -> Memory:
    return Memory(Random(1))


def test_register__regions_do_not_touch() -> None:
    space = memory()
    first, second = space.register(bytearray(100)), space.register(bytearray(100))
    assert first.rkey != second.rkey
    assert second.va >= first.va + first.length + 4096


@pytest.mark.parametrize("offset, length", [(0, 100), (99, 1), (100, 0), (0, 0), (50, 50)])
def test_check__inside(offset: int, length: int) -> None:
    space = memory()
    region = space.register(bytearray(100))
    assert space.check(region.rkey, region.va + offset, length) is region


@pytest.mark.parametrize("offset, length", [(0, 101), (-1, 1), (100, 1), (1 << 63, 1), (0, 1 << 64), (-1, 2)])
def test_check__outside_is_refused(offset: int, length: int) -> None:
    space = memory()
    region = space.register(bytearray(100))
    with pytest.raises(AccessError, match="leave region"):
        space.check(region.rkey, region.va + offset, length)


def test_check__no_wrap_at_the_top_of_the_address_space() -> None:
    space = memory()
    low = space.register(bytearray(100), va=0)
    high = space.register(bytearray(100), va=(1 << 64) - 100)
    with pytest.raises(AccessError):
        space.check(high.rkey, (1 << 64) - 50, 100)
    with pytest.raises(AccessError):
        space.check(low.rkey, (1 << 64) - 1, 2)


def test_check__wrong_rkey_closed_region_and_gone_region() -> None:
    space = memory()
    region, closed_region = space.register(bytearray(8)), space.register(bytearray(8), remote_write=False)
    with pytest.raises(AccessError, match="no region with R_Key"):
        space.check(region.rkey ^ 1, region.va, 1)
    with pytest.raises(AccessError, match="not open"):
        space.check(closed_region.rkey, closed_region.va, 1)
    space.deregister(region)
    space.deregister(region)
    with pytest.raises(AccessError):
        space.check(region.rkey, region.va, 1)


def test_deregister__lets_go_of_the_buffer() -> None:
    space, buffer = memory(), bytearray(8)
    space.deregister(space.register(buffer))
    buffer.extend(b"more")  # BufferError while a view of it exists


@pytest.mark.parametrize("buffer", [b"read only", memoryview(bytearray(8))[::2], 7])
def test_register__refuses_what_cannot_be_written(buffer: object) -> None:
    with pytest.raises(ValueError, match=r"can(not)? be registered"):
        memory().register(buffer)


def test_register__an_rkey_in_use_is_drawn_again() -> None:
    class ScriptedRandom(Random):
        rkeys = iter((7, 7, 8))

        def getrandbits(self, _bits: int) -> int:
            return next(self.rkeys)

    space = Memory(ScriptedRandom())
    assert [space.register(bytearray(8)).rkey for _ in range(2)] == [7, 8]


def test_register__a_sink_takes_what_is_placed() -> None:
    class Sink(PayloadSink):
        def __init__(self) -> None:
            super().__init__(100)
            self.writes: list[tuple[int, bytes]] = []

        def write(self, start: int, data: bytes | memoryview) -> None:
            self.writes.append((start, bytes(data)))

    space, sink = memory(), Sink()
    region = space.register(sink)
    assert region.length == 100 and not len(region.view)
    assert space.check(region.rkey, region.va + 90, 10) is region
    with pytest.raises(AccessError, match="leave region"):
        space.check(region.rkey, region.va + 91, 10)
    space.write(region, region.va + 90, b"0123456789")
    assert sink.writes == [(90, b"0123456789")]
    with pytest.raises(NotImplementedError):
        PayloadSink(1).write(0, b"x")
