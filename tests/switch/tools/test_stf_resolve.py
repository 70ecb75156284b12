"""Ternary keys of STF: which bits count, as p4c's runner has it."""

import pytest
from finsy.proto import p4i

from mrc_testbed.switch.tools.stf_resolve import StfError, field_match

KEY = p4i.MatchField(id=1, name="h.f", bitwidth=8, match_type=p4i.MatchField.TERNARY)


@pytest.mark.parametrize(
    ("text", "value", "mask"),
    [
        ("0x01", 0x01, 0xFF),
        ("0x1", 0x01, 0x0F),  # digits left out match anything
        ("0b10", 0b10, 0b11),
        ("0x1*", 0x10, 0xF0),
        ("0b1*0", 0b100, 0b101),
        ("1", 0x01, 0xFF),
        ("0x1&&&0x81", 0x01, 0x81),
        ("0x10/4", 0x10, 0xF0),
    ],
)
def test_ternary__mask_of_what_is_written(text, value, mask):
    match = field_match("t.stf:1", KEY, text)
    assert (match.value, match.mask) == (bytes([value]), bytes([mask]))


@pytest.mark.parametrize("text", ["*", "0x**"])
def test_ternary__stars_alone_match_anything(text):
    assert field_match("t.stf:1", KEY, text) is None


@pytest.mark.parametrize("text", ["0x1g", "0x123", "1*"])
def test_ternary__what_is_no_number_of_the_key_is_refused(text):
    with pytest.raises(StfError, match=r"t.stf:1.*h\.f"):
        field_match("t.stf:1", KEY, text)
