"""Descriptors that the runtime reads: direct meters of actions, masks of constant entries."""

from __future__ import annotations

import re

import pytest

from mrc_testbed.switch.compiler import P4Error, compile_program
from mrc_testbed.switch.compiler.compiler import translate

TEXT = """
#include <core.p4>
#include <v1model.p4>
struct headers_t { }
struct metadata_t { bit<2> colour; }
parser P(packet_in b, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start { transition accept; }
}
control V(inout headers_t h, inout metadata_t m) { apply { } }
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    direct_meter<bit<2>>(MeterType.packets) rate;
    meter(4, MeterType.packets) rates;
    action direct() { rate.read(m.colour); }
    action nested() { if (s.ingress_port == 1) { direct(); } }
    action indexed() { rates.execute_meter(1, m.colour); }
    action neither() { mark_to_drop(s); }
    table limited { key = { s.ingress_port : exact; } actions = { direct; nested; indexed; neither; } meters = rate; }
    apply { limited.apply(); }
}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control D(packet_out b, in headers_t h) { apply { } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
"""


def test_actions__tell_whether_they_read_a_direct_meter():
    c_text = compile_program(TEXT).c_path.read_text()
    rows = re.findall(r'\] = \{"I\.(\w+)", \d+, \d+, params_\w+, \d+, (\d)\},', c_text)
    assert {name: int(meter) for name, meter in rows} == {"direct": 1, "nested": 1, "indexed": 0, "neither": 0}


def with_entry(kind: str, key: str) -> str:
    """Return the program with an entry of a key of that kind, translated to C."""
    table = f"key = {{ s.ingress_port : {kind}; }} const entries = {{ ({key}) : neither(); }} actions"
    return translate(TEXT.replace("key = { s.ingress_port : exact; } actions", table))


@pytest.mark.parametrize("kind", ["exact", "lpm", "ternary", "range", "optional"])
def test_entries__a_whole_mask_is_the_value_alone(kind):
    assert with_entry(kind, "5 &&& 0x1ff") == with_entry(kind, "5")


@pytest.mark.parametrize("kind", ["exact", "range", "optional"])
def test_entries__a_mask_that_leaves_bits_out_is_refused_by_name(kind):
    for mask in ("0", "0xff"):
        with pytest.raises(P4Error, match=f"the mask {int(mask, 16):#x} for a key of kind {kind}"):
            with_entry(kind, f"5 &&& {mask}")
