"""Casts between all types of a kind: what p4c 1.2.5 (34b86e9) takes, and nothing else."""

from __future__ import annotations

import pytest

from mrc_testbed.switch.compiler.compiler import front
from mrc_testbed.switch.compiler.errors import P4Error

PROGRAM = """#include <core.p4>
#include <v1model.p4>
type bit<8> N8; type bit<16> N16; type N8 NN; type int<8> NI; type bool NB;
typedef bit<8> TD;
enum E8 { x, y }
enum bit<8> S8 { p = 1, q = 2 }
struct headers_t { }
struct meta_t { }
parser P(packet_in b, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start { transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    apply {
        SOURCE value; TARGET result = (TARGET) value;
    }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control D(packet_out b, in headers_t h) { apply { } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
"""
TARGETS = {
    "bit<8>": ["bit<8>", "bit<16>", "int<8>", "bit<1>", "N8", "S8", "TD"],
    "bit<16>": ["bit<8>", "bit<16>", "int<16>", "bit<1>", "N16", "TD"],
    "int<8>": ["bit<8>", "int<8>", "int<16>", "TD", "NI"],
    "int<16>": ["bit<16>", "int<8>", "int<16>"],
    "bool": ["bool", "bit<1>", "NB"],
    "bit<1>": ["bit<8>", "bit<16>", "bool", "bit<1>", "TD"],
    "N8": ["bit<8>", "N8", "NN", "TD"],
    "N16": ["bit<16>", "N16"],
    "NN": ["N8", "NN"],
    "E8": [],
    "S8": ["bit<8>", "S8", "TD"],
    "TD": ["bit<8>", "bit<16>", "int<8>", "bit<1>", "N8", "S8", "TD"],
    "NI": ["int<8>", "NI"],
    "NB": ["bool", "NB"],
}
"""Type -> types that a run-time value of it can be cast to."""


def is_taken(source: str, target: str) -> bool:
    try:
        front(PROGRAM.replace("SOURCE", source).replace("TARGET", target))
    except P4Error as error:
        if " cannot be cast to " not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize("source", TARGETS)
def test_cast__is_taken_where_p4c_takes_it(source):
    assert [target for target in TARGETS if is_taken(source, target)] == [
        target for target in TARGETS if target in TARGETS[source]
    ]


def test_cast__of_a_constant_reaches_a_named_type_in_one_step():
    def constant_is_taken(target: str) -> bool:
        try:
            front(PROGRAM.replace("SOURCE value; TARGET", target).replace("(TARGET) value", f"({target}) 5"))
        except P4Error:
            return False
        return True

    targets = [target for target in TARGETS if constant_is_taken(target)]
    assert targets == ["bit<8>", "bit<16>", "int<8>", "int<16>", "bit<1>", "N8", "N16", "S8", "TD", "NI"]


def test_cast__names_the_type_to_go_by():
    with pytest.raises(P4Error, match="N8 cannot be cast to N16: N8 is made of bit<8>, cast to that first"):
        front(PROGRAM.replace("SOURCE", "N8").replace("TARGET", "N16"))
