"""Expressions: worked examples, and random ones against the language's rules in Python integers."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from mrc_testbed.switch.compiler import compile_program
from tests.switch.compiled_programs import Bench
from tests.switch.compiler.test_errors import program

INPUTS = {"a": 8, "b": 8, "c": 16, "d": 33, "e": 64, "f": 7, "w": 128, "x": 100}
SIGNED = {"sa": 8, "sb": 8, "sd": 33, "sw": 128}
LONG_INPUTS = {"y": 129, "z": 300}
LONG_SIGNED = {"sy": 200}
MAX_WIDTH = 320
"""Bits of a result, and of the longest number in between."""
TEMPLATE = """
#include <core.p4>
#include <v1model.p4>
header in_t {{ {inputs} bit<{pad}> pad_; }}
header out_t {{ {outputs} }}
struct headers_t {{ in_t i; out_t room; out_t o; }}
struct meta_t {{ }}
parser P(packet_in b, out headers_t h, inout meta_t m, inout standard_metadata_t s) {{
    state start {{ b.extract(h.i); b.extract(h.room); transition accept; }}
}}
control V(inout headers_t h, inout meta_t m) {{ apply {{ }} }}
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {{
    apply {{
        s.egress_spec = 1;
        h.o.setValid();
{body}
        h.i.setInvalid();
        h.room.setInvalid();
    }}
}}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {{ apply {{ }} }}
control C(inout headers_t h, inout meta_t m) {{ apply {{ }} }}
control D(packet_out b, in headers_t h) {{ apply {{ b.emit(h.o); }} }}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""
WIDTHS = {**INPUTS, **LONG_INPUTS, **SIGNED, **LONG_SIGNED}


def run(expressions: list[str], rows: list[dict[str, int]]) -> list[list[int]]:
    """Return the values of expressions of type bit<N> for each row of inputs, by compiled code."""
    inputs = " ".join(f"bit<{n}> {name};" for name, n in (INPUTS | LONG_INPUTS).items())
    inputs += " " + " ".join(f"int<{n}> {name};" for name, n in (SIGNED | LONG_SIGNED).items())
    pad = -sum(WIDTHS.values()) % 8 or 8
    text = TEMPLATE.format(
        inputs=inputs,
        pad=pad,
        outputs=" ".join(f"bit<{MAX_WIDTH}> r{i};" for i in range(len(expressions))),
        body="\n".join(
            f"        h.o.r{i} = (bit<{MAX_WIDTH}>)({expression});" for i, expression in enumerate(expressions)
        ),
    )
    bench = Bench(compile_program(text))
    out = []
    for row in rows:
        value = bits = 0
        for name, n in WIDTHS.items():
            value, bits = value << n | (row.get(name, 0) & (1 << n) - 1), bits + n
        size = MAX_WIDTH // 8
        frame = (value << pad).to_bytes((bits + pad) // 8, "big") + bytes(size * len(expressions))
        ((_, sent),) = bench.send(1, frame)
        out.append([int.from_bytes(sent[size * i : size * (i + 1)], "big") for i in range(len(expressions))])
    return out


CASES = [
    ("h.i.a + h.i.b", {"a": 200, "b": 100}, 44),
    ("h.i.a - h.i.b", {"a": 1, "b": 2}, 255),
    ("h.i.a * h.i.b", {"a": 255, "b": 255}, 1),
    ("h.i.c * h.i.c", {"c": 0xFFFF}, 1),
    ("h.i.d + 1", {"d": (1 << 33) - 1}, 0),
    ("h.i.w + 1", {"w": (1 << 128) - 1}, 0),
    ("-h.i.a", {"a": 1}, 255),
    ("~h.i.f", {"f": 0b1010101}, 0b0101010),
    ("h.i.a |+| h.i.b", {"a": 200, "b": 100}, 255),
    ("h.i.a |-| h.i.b", {"a": 1, "b": 2}, 0),
    ("h.i.w |+| h.i.w", {"w": 1 << 127}, (1 << 128) - 1),
    ("(bit<8>)(h.i.sa |+| h.i.sb)", {"sa": 100, "sb": 100}, 127),
    ("(bit<8>)(h.i.sa |-| h.i.sb)", {"sa": -100, "sb": 100}, 0x80),
    ("(bit<128>)(h.i.sw |-| 1)", {"sw": 1 << 127}, 1 << 127),
    ("h.i.a ++ h.i.f", {"a": 0x81, "f": 1}, 0x81 << 7 | 1),
    ("h.i.e ++ h.i.e", {"e": 0x8000000000000001}, 0x80000000000000018000000000000001),
    ("h.i.c[11:4]", {"c": 0xABCD}, 0xBC),
    ("h.i.w[127:80]", {"w": 0xFCBBBB0023011305 << 64}, 0xFCBBBB002301),
    ("h.i.w[127:64]", {"w": 0x8123456789ABCDEF << 64}, 0x8123456789ABCDEF),
    ("h.i.a << 3", {"a": 0xFF}, 0xF8),
    ("h.i.a << 8", {"a": 0xFF}, 0),
    ("h.i.a << h.i.b", {"a": 1, "b": 7}, 128),
    ("h.i.a << h.i.b", {"a": 1, "b": 200}, 0),
    ("h.i.w >> h.i.b", {"w": 1 << 127, "b": 127}, 1),
    ("h.i.w >> h.i.b", {"w": 1 << 127, "b": 128}, 0),
    ("(bit<8>)(h.i.sa >> 1)", {"sa": -2}, 0xFF),
    ("(bit<8>)(h.i.sa >> h.i.b)", {"sa": -2, "b": 255}, 0xFF),
    ("(bit<8>)(h.i.sa >> 9)", {"sa": 5}, 0),
    ("(bit<16>)(int<16>)h.i.sa", {"sa": -1}, 0xFFFF),
    ("(bit<128>)(int<128>)h.i.sd", {"sd": -3}, (1 << 128) - 3),
    ("(bit<4>)h.i.a", {"a": 0xAB}, 0xB),
    ("(bit<32>)h.i.f - (bit<32>)h.i.e", {"f": 0, "e": 1 << 63 | 1}, 0xFFFFFFFF),
    ("h.i.e[31:0] - h.i.e[63:32]", {"e": 1 << 32}, 0xFFFFFFFF),
    ("(bit<1>)(h.i.sa < h.i.sb)", {"sa": -1, "sb": 1}, 1),
    ("(bit<1>)(h.i.a < h.i.b)", {"a": 0xFF, "b": 1}, 0),
    ("(bit<1>)(h.i.sw > 0)", {"sw": 1 << 127}, 0),
    ("h.i.a > 5 ? h.i.b : 8w7", {"a": 6, "b": 9}, 9),
    ("h.i.a > 5 ? h.i.b : 8w7", {"a": 5, "b": 9}, 7),
    ("(bit<1>)(h.i.a == 1 && !(h.i.b == 2) || h.i.c == 3)", {"a": 1, "b": 2, "c": 3}, 1),
    ("h.i.a & 0x0F | h.i.b ^ 0xFF", {"a": 0xAB, "b": 0xF0}, 0x0F),
    ("(bit<1>)(bool)h.i.a[0:0]", {"a": 3}, 1),
    ("8w5 - 8w6 + h.i.a", {"a": 0}, 255),
    ("(bit<8>)(17 % 5 + 7 / 2)", {}, 5),
    ("(bit<16>)(16w0xABCD[15:8] ++ 4w0xF ++ 4w0)", {}, 0xABF0),
    ("h.i.z / 1000", {"z": 10**80 + 7}, 10**77),
    ("h.i.z % (bit<300>)h.i.e", {"z": 10**80 + 7, "e": 10**9 + 7}, (10**80 + 7) % (10**9 + 7)),
    ("h.i.z / (bit<300>)h.i.a", {"z": 5}, 0),
    ("h.i.z % (bit<300>)h.i.a", {"z": 5}, 5),
    ("h.i.a << h.i.z", {"a": 3, "z": 1 << 299}, 0),
    ("h.i.z << h.i.y", {"z": 3, "y": 290}, 3 << 290),
    ("h.i.z[h.i.a +: 160]", {"z": 5 << 200, "a": 200}, 5),
    ("h.i.z[h.i.c +: 16]", {"z": 5 << 290, "c": 288}, 5 << 2),
    ("(bit<200>)(h.i.sy |+| h.i.sy)", {"sy": (1 << 199) - 1}, (1 << 199) - 1),
    ("(bit<200>)(h.i.sy |-| 1)", {"sy": -(1 << 199)}, 1 << 199),
    ("(bit<200>)(h.i.sy >> 400)", {"sy": -5}, (1 << 200) - 1),
]


def test_worked_examples__widths_wrap_signs_and_shifts():
    got = run([text for text, _, _ in CASES], [row for _, row, _ in CASES])
    mismatches = [
        f"{text} with {row}: {got[i][i]:#x}, expected {want:#x}"
        for i, (text, row, want) in enumerate(CASES)
        if got[i][i] != want
    ]
    assert mismatches == []


@dataclass
class Random:
    """Random expressions with their meaning: (P4 text, width, signed, function of a row of inputs)."""

    rng: random.Random
    long: bool = False
    """Expressions with numbers of more than 128 bits."""

    def leaf(self, signed: bool):
        if self.rng.random() < 0.25:
            n = self.rng.choice([1, 7, 8, 13, 32, 33, 64, 100, 128, *(129, 255, 312) * self.long])
            n = max(n, 2) if signed else n
            value = self.rng.choice([0, 1, (1 << n - 1) - 1, (1 << n) - 1, self.rng.getrandbits(n)])
            value = wrap(value, n, signed)
            text = f"{n}{'s' if signed else 'w'}{value & (1 << n) - 1}"
            return text, n, lambda row: value
        names = [*(SIGNED if signed else INPUTS), *list(LONG_SIGNED if signed else LONG_INPUTS) * 3 * self.long]
        name = self.rng.choice(names)
        n = WIDTHS[name]
        return f"h.i.{name}", n, lambda row: wrap(row[name], n, signed)

    def make(self, depth: int, signed: bool):
        if depth == 0:
            return self.leaf(signed)
        kind = self.rng.choice(["binary", "binary", "shift", "unary", "cast", "ternary", "slice", "concat", "compare"])
        if signed and kind in ("slice", "concat", "compare"):
            kind = "binary"
        return getattr(self, kind)(depth - 1, signed)

    def binary(self, depth: int, signed: bool):
        op = self.rng.choice(["+", "-", "*", "&", "|", "^", "|+|", "|-|"])
        left_text, n, f = self.make(depth, signed)
        right_text, _, g = self.make(depth, signed)
        right_text = f"({'int' if signed else 'bit'}<{n}>)({right_text})"

        def value(row):
            a, b = f(row), wrap(g(row), n, signed)
            plain = {"+": a + b, "-": a - b, "*": a * b, "&": a & b, "|": a | b, "^": a ^ b}
            if op in plain:
                return wrap(plain[op], n, signed)
            low, high = (-(1 << n - 1), (1 << n - 1) - 1) if signed else (0, (1 << n) - 1)
            return min(max(a + b if op == "|+|" else a - b, low), high)

        return f"({left_text} {op} {right_text})", n, value

    def shift(self, depth: int, signed: bool):
        op = self.rng.choice(["<<", ">>"])
        left_text, n, f = self.make(depth, signed)
        if self.rng.random() < 0.5:
            distance = self.rng.randrange(340 if self.long else 140)
            right_text, g = str(distance), lambda row: distance
        else:
            right_text, _, g = self.make(0, False)
        return (
            f"({left_text} {op} {right_text})",
            n,
            lambda row: wrap(f(row) << min(g(row), 400) if op == "<<" else f(row) >> min(g(row), 400), n, signed),
        )

    def unary(self, depth: int, signed: bool):
        op = self.rng.choice(["-", "~"])
        text, n, f = self.make(depth, signed)
        return f"({op}{text})", n, lambda row: wrap(-f(row) if op == "-" else ~f(row), n, signed)

    def cast(self, depth: int, signed: bool):
        if self.rng.random() < 0.4:
            text, n, f = self.make(depth, not signed)
            if n == 1:
                return self.leaf(signed)
            return f"(({'int' if signed else 'bit'}<{n}>)({text}))", n, lambda row: wrap(f(row), n, signed)
        text, _, f = self.make(depth, signed)
        m = self.rng.choice([2, 7, 8, 16, 31, 32, 33, 63, 64, 65, 128, *(129, 160, 257) * 2 * self.long])
        return f"(({'int' if signed else 'bit'}<{m}>)({text}))", m, lambda row: wrap(f(row), m, signed)

    def ternary(self, depth: int, signed: bool):
        test, _, c = self.compare(depth, False)
        then_text, n, f = self.make(depth, signed)
        else_text, _, g = self.make(depth, signed)
        text = f"(({test}) == 1 ? {then_text} : ({'int' if signed else 'bit'}<{n}>)({else_text}))"
        return text, n, lambda row: f(row) if c(row) else wrap(g(row), n, signed)

    def slice(self, depth: int, signed: bool):
        text, n, f = self.make(depth, self.rng.random() < 0.3)
        low = self.rng.randrange(n)
        high = self.rng.randrange(low, n)
        return f"({text})[{high}:{low}]", high - low + 1, lambda row: f(row) >> low & (1 << high - low + 1) - 1

    def concat(self, depth: int, signed: bool):
        high_text, n, f = self.make(depth, False)
        low_text, m, g = self.make(depth, False)
        if n + m > (MAX_WIDTH if self.long else 128):
            return self.leaf(signed)
        return f"({high_text} ++ {low_text})", n + m, lambda row: f(row) << m | g(row)

    def compare(self, depth: int, signed: bool):
        op = self.rng.choice(["==", "!=", "<", ">", "<=", ">="])
        is_signed = self.rng.random() < 0.4
        left_text, n, f = self.make(depth, is_signed)
        right_text, _, g = self.make(depth, is_signed)
        right_text = f"({'int' if is_signed else 'bit'}<{n}>)({right_text})"
        tests = {
            "==": int.__eq__,
            "!=": int.__ne__,
            "<": int.__lt__,
            ">": int.__gt__,
            "<=": int.__le__,
            ">=": int.__ge__,
        }
        return (
            f"(bit<1>)({left_text} {op} {right_text})",
            1,
            lambda row: int(tests[op](f(row), wrap(g(row), n, is_signed))),
        )


def wrap(value: int, n: int, signed: bool) -> int:
    value &= (1 << n) - 1
    return value - (1 << n) if signed and value >> n - 1 else value


@pytest.mark.parametrize("seed", range(6))
def test_random_expressions__compiled_code_agrees_with_python(seed):
    rng, is_long = random.Random(seed), seed >= 4
    expressions = []
    for _ in range(60):
        signed = rng.random() < 0.3
        text, n, f = Random(rng, is_long).make(rng.randrange(1, 4), signed)
        expressions.append((f"(bit<{n}>)({text})" if signed else text, n, f))
    rows = [{name: pick(rng, n) for name, n in WIDTHS.items()} for _ in range(25)]
    got = run([text for text, _, _ in expressions], rows)
    for row, values in zip(rows, got, strict=True):
        for (text, n, f), value in zip(expressions, values, strict=True):
            assert value == f(row) & (1 << n) - 1, f"seed {seed}: {text} with {row}"


def pick(rng: random.Random, n: int) -> int:
    return rng.choice([0, 1, (1 << n) - 1, 1 << n - 1, (1 << n - 1) - 1, rng.getrandbits(n), rng.getrandbits(n)])


NO_BITS = dict(
    top="header none_t { bit<8> n; bit<0> z; bit<8> m; }",
    fields="none_t none;",
    parse="b.extract(hdr.data); b.extract(hdr.none);",
    local="""action put(bit<0> x, bit<8> y) { hdr.none.z = x; hdr.none.n = y; }
    table u { key = { hdr.none.z : exact; hdr.none.n : ternary; } actions = { put; } }""",
    apply="""u.apply(); bit<0> v = hdr.none.z + 1; bit<8> e = 0;
    if (v == hdr.none.z && v - 1 == 0 && !(v < hdr.none.z)) { e = 5; }
    hdr.data.b = (v ++ e) + (bit<8>)(v & hdr.none.z | ~v);
    hdr.none.m = (e << v) + (bit<8>)(e[7:7] == 0 ? v : hdr.none.z |+| v);
    std.egress_spec = 1;""",
)


def test_numbers_without_bits__are_0_in_fields_keys_and_parameters():
    bench = Bench(compile_program(program(**NO_BITS)))
    bench.add("u", (0, (7, 255)), "put", priority=1, x=0, y=11)
    assert bench.send(0, bytes([1, 7, 0, 0, 0, 0, 0, 0, 7, 3])) == [(1, bytes([1, 5, 0, 0, 0, 0, 0, 0, 11, 5]))]
