"""Tests of the types as the backend sees them."""

from __future__ import annotations

from mrc_testbed.switch.compiler.sema import types
from mrc_testbed.switch.compiler.sema.types import Bits, Tuple


def test_form__struct_of_a_tuple_has_a_name_that_depends_on_its_type_alone():
    """Test the name in two orders of use: once it was a number by first use, so cached C had two texts."""
    pair, triple = Tuple((Bits(8), Bits(16))), Tuple((Bits(8), Bits(16), Bits(8)))
    names = []
    for order in ((pair, triple), (triple, pair)):
        types._tuple_record.cache_clear()
        names.append({tuple_type: types.form(tuple_type).name for tuple_type in order})
    assert names[0] == names[1] and len(set(names[0].values())) == 2
