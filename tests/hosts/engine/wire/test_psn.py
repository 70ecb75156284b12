from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mrc_testbed.hosts.engine.wire import psn


def test_unwrap__goes_to_the_nearest() -> None:
    assert psn.unwrap(0x000001, near=0xFFFFFF) == 0x1000001
    assert psn.unwrap(0xFFFFFF, near=0x1000001) == 0xFFFFFF
    assert psn.unwrap(0xFFFFFF, near=3) == -1


@given(st.integers(0, 1 << 40), st.integers(-(1 << 23), (1 << 23) - 1))
def test_unwrap__undoes_wire(near: int, distance: int) -> None:
    assert psn.unwrap(psn.wire(near + distance), near) == near + distance


def test_before__is_half_of_the_ring() -> None:
    assert psn.precedes(0xFFFFFF, 0)
    assert not psn.precedes(0, 0xFFFFFF)
    assert not psn.precedes(7, 7)
    assert not psn.precedes(0, 1 << 23)


def test_advance__examples_of_nscc_3_2() -> None:
    assert psn.advance(0xFFFFFE, 0x000003) == 5
    assert psn.advance(0x000003, 0xFFFFFE) == 0
