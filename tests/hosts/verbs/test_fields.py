"""Fields of EVs: expansion of packed ones, and what cannot be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_testbed.hosts.verbs import (
    EvField,
    VerbsError,
    collapse,
    expand,
)
from mrc_testbed.hosts.verbs.fields import all_generated, packed_width


def test_expand__by_hand():
    """Masks with holes: bits go to the mask's places from the most significant down.

    The rest is the initial value.
    """
    field = EvField(width=8, init_val=0b1010_1010, mask=0b0110_0110)
    assert field.overlay(0b1111) == 0b1110_1110
    assert field.overlay(0b1000) == 0b1100_1000
    assert field.overlay(0b0001) == 0b1000_1010
    constant = EvField(width=4, init_val=0xC)
    assert expand(0b1000, [constant, field]) == 0xCC8
    assert expand(0b1000, [field, constant]) == 0xC8C
    assert expand(0, [constant], [8, 8]) == 0x0C00  # wider format field: zeros on the left; one without EV field: 0


def test_expand__more_bits_than_the_masks_take():
    with pytest.raises(VerbsError, match="EV 0x10 does not fit the 4 bits"):
        expand(0x10, [EvField(8, mask=0x0F)])


@st.composite
def field_lists(draw):
    out = []
    for _ in range(draw(st.integers(1, 6))):
        width = draw(st.integers(1, 20))
        mask = draw(st.integers(0, (1 << width) - 1))
        top = (1 << mask.bit_count()) - 1
        low = draw(st.integers(0, top))
        out.append(EvField(width, draw(st.integers(0, (1 << width) - 1)), low, draw(st.integers(low, top)), mask))
    return out


@settings(max_examples=200, deadline=None)
@given(field_lists(), st.data())
def test_expand__round_trip_and_constants_stay(fields, data):
    widths = [f.width + data.draw(st.integers(0, 4)) for f in fields]
    packed = data.draw(st.integers(0, (1 << packed_width(fields)) - 1))
    value = expand(packed, fields, widths)
    assert collapse(value, fields, widths) == packed
    for field, width in zip(reversed(fields), reversed(widths), strict=True):
        part, value = value & (1 << width) - 1, value >> width
        assert part & ~field.mask == field.init_val & ~field.mask
    assert value == 0


@settings(max_examples=50, deadline=None)
@given(field_lists())
def test_generated__stay_in_their_ranges(fields):
    for _, packed in zip(range(50), all_generated(fields), strict=False):
        for field in reversed(fields):
            assert field.min_val <= packed & (1 << field.bits) - 1 <= field.max_val
            packed >>= field.bits


@pytest.mark.parametrize(
    "values, words",
    [
        ({"width": 0}, "must be 1 to 128"),
        ({"width": 4, "init_val": 16}, "init_val = 0x10 is wider than 4 bits"),
        ({"width": 4, "mask": 0x1F}, "mask = 0x1f is wider than 4 bits"),
        ({"width": 8, "mask": 0x03, "max_val": 4}, "max_val = 0x4 is wider than the 2 bits of the mask"),
        ({"width": 8, "mask": 0xFF, "min_val": 2, "max_val": 1}, "min_val = 0x2 is above max_val"),
        ({"width": 8, "max_val": -1}, "max_val = -1: must be 0 to"),
    ],
)
def test_field__that_cannot_be(values, words):
    with pytest.raises(VerbsError, match=words):
        EvField(**values)
