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
HEADERS = (*SINGLE, *(f"st[{i}]" for i in range(STACK)))
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
    """Return a random list of operations; each is a tuple of a word and its operands."""
    out: list[tuple[Any, ...]] = []
    for _ in range(count):
        target, source = rng.choice(HEADERS), rng.choice(HEADERS)
        out.append(
            rng.choice(
                (
                    ("copy", target, source),
                    ("drop", target),
                    ("make", target, rng.randrange(256), rng.randrange(16), rng.randrange(4096)),
                    ("set", target, "c", rng.randrange(4096)),
                    ("set", target, "b", rng.randrange(16)),
                    ("add", target, source),
                    ("push", rng.randrange(1, STACK + 1)),
                    ("pop", rng.randrange(1, STACK + 1)),
                    ("keep", target),
                    ("give", target),
                    ("swap", target, source),
                )
            )
        )
    return out


def as_p4(ops: list[tuple[Any, ...]]) -> str:
    lines = []
    for number, op in enumerate(ops):
        match op:
            case ("copy", target, source):
                text = f"hdr.{target} = hdr.{source};"
            case ("drop", target):
                text = f"hdr.{target}.setInvalid();"
            case ("make", target, a, b, c):
                text = f"hdr.{target}.setValid(); hdr.{target} = {{ {a}, {b}, {c} }};"
            case ("set", target, name, value):
                # Fields of an invalid header are undefined: only a valid one may be written or read
                text = f"if (hdr.{target}.isValid()) {{ hdr.{target}.{name} = {value}; }}"
            case ("add", target, source):
                text = (
                    f"if (hdr.{target}.isValid() && hdr.{source}.isValid()) "
                    f"{{ hdr.{target}.a = hdr.{target}.a + (bit<8>) hdr.{source}.b; }}"
                )
            case ("push", n):
                text = f"hdr.st.push_front({n});"
            case ("pop", n):
                text = f"hdr.st.pop_front({n});"
            case ("keep", target):
                text = f"meta.kept = hdr.{target};"
            case ("give", target):
                text = f"hdr.{target} = meta.kept;"
            case _:
                _, target, source = op
                text = f"h_t t{number} = hdr.{target}; hdr.{target} = hdr.{source}; hdr.{source} = t{number};"
        lines.append(f"        {text}")
    return "\n".join(lines)


Header = list[int] | None
"""[a, b, c], or None: invalid."""


def by_hand(ops: list[tuple[Any, ...]], headers: dict[str, Header]) -> None:
    """Apply the operations to `headers`, which has every header of the program and `kept`."""

    def move(count: int) -> None:
        elements = [headers[f"st[{i}]"] for i in range(STACK)]
        for i in range(STACK):
            headers[f"st[{i}]"] = elements[i - count] if 0 <= i - count < STACK else None

    def copy(value: Header) -> Header:
        return None if value is None else list(value)

    for op in ops:
        match op:
            case ("copy", target, source):
                headers[target] = copy(headers[source])
            case ("drop", target):
                headers[target] = None
            case ("make", target, a, b, c):
                headers[target] = [a, b, c]
            case ("set", target, name, value):
                # As in `as_p4`: an invalid header is left alone
                if (header := headers[target]) is not None:
                    header["abc".index(name)] = value
            case ("add", target, source):
                target_header, source_header = headers[target], headers[source]
                if target_header is not None and source_header is not None:
                    target_header[0] = target_header[0] + source_header[1] & 0xFF
            case ("push", n):
                move(n)
            case ("pop", n):
                move(-n)
            case ("keep", target):
                headers["kept"] = copy(headers[target])
            case ("give", target):
                headers[target] = copy(headers["kept"])
            case _:
                _, target, source = op
                headers[target], headers[source] = headers[source], headers[target]


def disagreement(seed: int) -> str:
    """Return the first difference between compiled program and lists; empty when there is none."""
    rng = random.Random(seed)
    ingress, egress = operations(rng, rng.randrange(8)), operations(rng, rng.randrange(8))
    program = TEMPLATE.format(stack=STACK, ingress=as_p4(ingress), egress=as_p4(egress))
    bench = Bench(compile_program(program))
    for _ in range(24):
        elements = rng.randrange(STACK + 1)
        flags = [rng.randrange(2) for _ in SINGLE]
        headers: dict[str, Header] = dict.fromkeys((*HEADERS, "kept"))
        valid_headers = [name for name, flag in zip(SINGLE, flags, strict=True) if flag]
        valid_headers += [f"st[{i}]" for i in range(elements)]
        for name in valid_headers:
            headers[name] = [rng.randrange(256), rng.randrange(16), rng.randrange(4096)]
        first = bytes((elements << 4 | flags[0] << 3 | flags[1] << 2 | flags[2] << 1 | flags[3], 0x5A))
        payload = rng.randbytes(rng.choice((0, 1, 30)))
        sent = first + wire(headers) + payload
        by_hand(ingress, headers)
        by_hand(egress, headers)
        expected_frame = first + wire(headers) + payload
        out = bench.send(1, sent)
        if out != [(1, expected_frame)]:
            frames = [frame.hex() for _, frame in out]
            return f"seed {seed}: {sent.hex()} -> {frames}, wanted {expected_frame.hex()}\n{program}"
    return ""


def wire(headers: dict[str, Header]) -> bytes:
    ordered_headers = (headers[name] for name in ORDER)
    return b"".join(
        (a << 16 | b << 12 | c).to_bytes(3, "big")
        for a, b, c in (header for header in ordered_headers if header is not None)
    )


@pytest.mark.parametrize("seed", range(6))
def test_random_headers__leave_as_the_program_says(seed):
    assert disagreement(seed) == ""
