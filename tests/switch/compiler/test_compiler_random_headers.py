"""Random programs that add, remove, copy, move and change headers, against lists of them in Python.

The compiled deparser patches the frame where it can and builds the headers anew where it must
(switch/compiler/backend/emit_parser.py); which one it does must not show.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from mrc_testbed.switch.compiler import compile_program
from tests.switch.compiled_programs import Bench

SINGLE = ("h0", "h1", "h2", "h3")
STACK = 3
PLACES = (*SINGLE, *(f"st[{i}]" for i in range(STACK)))
ORDER = ("h0", "h1", *(f"st[{i}]" for i in range(STACK)), "h2", "h3")
"""Headers as the parser finds them and the deparser sends them."""
TEMPLATE = """
#include <core.p4>
#include <v1model.p4>
header first_t {{ bit<4> n; bit<1> h0; bit<1> h1; bit<1> h2; bit<1> h3; bit<8> spare; }}
header h_t {{ bit<8> a; bit<4> b; bit<12> c; }}
struct headers_t {{ first_t first; h_t h0; h_t h1; h_t[{stack}] st; h_t h2; h_t h3; }}
struct meta_t {{ bit<4> left; h_t kept; }}
parser P(packet_in b, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{
    state start {{
        b.extract(hdr.first);
        meta.left = hdr.first.n;
        transition select(hdr.first.h0) {{ 1: p0; default: n1; }}
    }}
    state p0 {{ b.extract(hdr.h0); transition n1; }}
    state n1 {{ transition select(hdr.first.h1) {{ 1: p1; default: more; }} }}
    state p1 {{ b.extract(hdr.h1); transition more; }}
    state more {{ transition select(meta.left) {{ 0: n2; default: element; }} }}
    state element {{ b.extract(hdr.st.next); meta.left = meta.left - 1; transition more; }}
    state n2 {{ transition select(hdr.first.h2) {{ 1: p2; default: n3; }} }}
    state p2 {{ b.extract(hdr.h2); transition n3; }}
    state n3 {{ transition select(hdr.first.h3) {{ 1: p3; default: accept; }} }}
    state p3 {{ b.extract(hdr.h3); transition accept; }}
}}
control V(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{
    apply {{
        std.egress_spec = 1;
{ingress}
    }}
}}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{
    apply {{
{egress}
    }}
}}
control C(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
control D(packet_out b, in headers_t hdr) {{ apply {{ b.emit(hdr); }} }}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


def operations(rng: random.Random, count: int) -> list[tuple[Any, ...]]:
    """A random list of things to do; each is a tuple of a word and what it is done with."""
    out: list[tuple[Any, ...]] = []
    for _ in range(count):
        here, there = rng.choice(PLACES), rng.choice(PLACES)
        out.append(
            rng.choice(
                (
                    ("copy", here, there),
                    ("drop", here),
                    ("make", here, rng.randrange(256), rng.randrange(16), rng.randrange(4096)),
                    ("set", here, "c", rng.randrange(4096)),
                    ("set", here, "b", rng.randrange(16)),
                    ("add", here, there),
                    ("push", rng.randrange(1, STACK + 1)),
                    ("pop", rng.randrange(1, STACK + 1)),
                    ("keep", here),
                    ("give", here),
                    ("swap", here, there),
                )
            )
        )
    return out


def as_p4(ops: list[tuple[Any, ...]]) -> str:
    lines = []
    for number, op in enumerate(ops):
        match op:
            case ("copy", here, there):
                text = f"hdr.{here} = hdr.{there};"
            case ("drop", here):
                text = f"hdr.{here}.setInvalid();"
            case ("make", here, a, b, c):
                text = f"hdr.{here}.setValid(); hdr.{here} = {{ {a}, {b}, {c} }};"
            case ("set", here, name, value):
                text = f"if (hdr.{here}.isValid()) {{ hdr.{here}.{name} = {value}; }}"
            case ("add", here, there):
                text = (
                    f"if (hdr.{here}.isValid() && hdr.{there}.isValid()) "
                    f"{{ hdr.{here}.a = hdr.{here}.a + (bit<8>) hdr.{there}.b; }}"
                )
            case ("push", n):
                text = f"hdr.st.push_front({n});"
            case ("pop", n):
                text = f"hdr.st.pop_front({n});"
            case ("keep", here):
                text = f"meta.kept = hdr.{here};"
            case ("give", here):
                text = f"hdr.{here} = meta.kept;"
            case _:
                _, here, there = op
                text = f"h_t t{number} = hdr.{here}; hdr.{here} = hdr.{there}; hdr.{there} = t{number};"
        lines.append(f"        {text}")
    return "\n".join(lines)


Header = list[int] | None
"""[a, b, c], or None: invalid."""


def by_hand(ops: list[tuple[Any, ...]], headers: dict[str, Header]) -> None:
    """Do it to `headers`, which has every place and `kept`."""

    def move(by: int) -> None:
        old = [headers[f"st[{i}]"] for i in range(STACK)]
        for i in range(STACK):
            headers[f"st[{i}]"] = old[i - by] if 0 <= i - by < STACK else None

    def copy(value: Header) -> Header:
        return None if value is None else list(value)

    for op in ops:
        match op:
            case ("copy", here, there):
                headers[here] = copy(headers[there])
            case ("drop", here):
                headers[here] = None
            case ("make", here, a, b, c):
                headers[here] = [a, b, c]
            case ("set", here, name, value):
                if (found := headers[here]) is not None:
                    found["abc".index(name)] = value
            case ("add", here, there):
                left, right = headers[here], headers[there]
                if left is not None and right is not None:
                    left[0] = left[0] + right[1] & 0xFF
            case ("push", n):
                move(n)
            case ("pop", n):
                move(-n)
            case ("keep", here):
                headers["kept"] = copy(headers[here])
            case ("give", here):
                headers[here] = copy(headers["kept"])
            case _:
                _, here, there = op
                headers[here], headers[there] = headers[there], headers[here]


def disagreement(seed: int) -> str:
    """Return what the compiled program sends otherwise; empty: nothing."""
    rng = random.Random(seed)
    ingress, egress = operations(rng, rng.randrange(8)), operations(rng, rng.randrange(8))
    program = TEMPLATE.format(stack=STACK, ingress=as_p4(ingress), egress=as_p4(egress))
    bench = Bench(compile_program(program))
    for _ in range(24):
        elements = rng.randrange(STACK + 1)
        flags = [rng.randrange(2) for _ in SINGLE]
        headers: dict[str, Header] = dict.fromkeys((*PLACES, "kept"))
        found = [name for name, flag in zip(SINGLE, flags, strict=True) if flag]
        found += [f"st[{i}]" for i in range(elements)]
        for name in found:
            headers[name] = [rng.randrange(256), rng.randrange(16), rng.randrange(4096)]
        first = bytes((elements << 4 | flags[0] << 3 | flags[1] << 2 | flags[2] << 1 | flags[3], 0x5A))
        payload = rng.randbytes(rng.choice((0, 1, 30)))
        sent = first + wire(headers) + payload
        by_hand(ingress, headers)
        by_hand(egress, headers)
        wanted = first + wire(headers) + payload
        out = bench.send(1, sent)
        if out != [(1, wanted)]:
            return f"seed {seed}: {sent.hex()} -> {[one.hex() for _, one in out]}, wanted {wanted.hex()}\n{program}"
    return ""


def wire(headers: dict[str, Header]) -> bytes:
    found = (headers[name] for name in ORDER)
    return b"".join((a << 16 | b << 12 | c).to_bytes(3, "big") for a, b, c in (one for one in found if one is not None))


@pytest.mark.parametrize("seed", range(6))
def test_random_headers__leave_as_the_program_says(seed):
    assert disagreement(seed) == ""
