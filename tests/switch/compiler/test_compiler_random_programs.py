"""Random programs against an interpreter of a few lines.

Assignments, blocks, calls with directions, returns, switches.

What an expression is worth, test_compiler_expressions.py looks at; here it is what happens in which order: arguments
copied in and out, operands with side effects, lists that read what they replace, returns in the middle.
"""

from __future__ import annotations

import operator
import random
from contextlib import suppress
from typing import Any

import pytest

from mrc_testbed.switch.compiler import compile_program
from tests.switch.compiled_programs import Bench
from tools.campaigns.p4_random import Maker, Routine, declaration, lines

PARTS = {
    **{struct_name: {"a": 8, "b": 16, "c": 4, "d": 12, "e": 32} for struct_name in ("hdr.h", "hdr.g")},
    **{struct_name: {"x": 8, "y": 1, "z": 48} for struct_name in ("meta.s", "meta.t")},
}
SCALARS = {f"{struct_name}.{name}": bits for struct_name, fields in PARTS.items() for name, bits in fields.items()}
SCALARS |= {"meta.v": 16, "meta.w": 8, "meta.u": 6}
LIKE = {"hdr.h": "hdr.g", "hdr.g": "hdr.h", "meta.s": "meta.t", "meta.t": "meta.s"}
TEMPLATE = """
#include <core.p4>
#include <v1model.p4>
header H {{ bit<8> a; bit<16> b; bit<4> c; bit<12> d; bit<32> e; }}
header in_t {{ {inputs} }}
struct S {{ bit<8> x; bit<1> y; bit<48> z; }}
struct headers_t {{ in_t i; in_t o; H h; H g; }}
struct meta_t {{ S s; S t; bit<16> v; bit<8> w; bit<6> u; }}
{functions}
parser P(packet_in b, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{
    state start {{ b.extract(hdr.i); transition accept; }}
}}
control V(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
{controls}
control Body(inout headers_t hdr, inout meta_t meta) {{
{actions}
{instances}
    apply {{
{body}
    }}
}}
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{
    Body() inner;
    apply {{
        std.egress_spec = 1;
        hdr.h.setValid();
        hdr.g.setValid();
{load}
        inner.apply(hdr, meta);
{store}
        hdr.o.setValid();
        hdr.i.setInvalid();
        hdr.h.setInvalid();
        hdr.g.setInvalid();
    }}
}}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{ apply {{ }} }}
control C(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
control D(packet_out b, in headers_t hdr) {{ apply {{ b.emit(hdr.o); }} }}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


class Return(Exception):
    """A return statement; args[0] is its value."""


class SmallProgram(Maker):
    """Blocks, calls and expressions over SCALARS: what the interpreter below knows."""

    scalars, parts, like = SCALARS, PARTS, LIKE

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.routines(2, 2, 3)
        self.body = self.block(dict(SCALARS), 3, self.actions + self.controls, self.functions, may_return=True, size=9)


def source(program: SmallProgram) -> str:
    return TEMPLATE.format(
        inputs=" ".join(f"bit<{bits}> f{i};" for i, bits in enumerate(SCALARS.values())),
        functions="\n".join(declaration(function, "") for function in program.functions),
        controls="\n".join(declaration(control, "") for control in program.controls),
        actions="\n".join(declaration(action, "    ") for action in program.actions),
        instances="\n".join(f"    {control.name}() {control.name}_i;" for control in program.controls),
        body="\n".join(lines(program.body, "        ")),
        load="\n".join(f"        {name} = hdr.i.f{i};" for i, name in enumerate(SCALARS)),
        store="\n".join(f"        hdr.o.f{i} = {name};" for i, name in enumerate(SCALARS)),
    )


# ---- and by hand -----------------------------------------------------------------------------------------------


OPERATORS = {
    "add": "add", "sub": "sub", "and": "and_", "or": "or_", "xor": "xor", "mul": "mul",
    "shl": "lshift", "shr": "rshift",
}  # fmt: skip


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


class Machine:
    """Runs the tree. A frame maps names to values; `widths` knows how wide they are."""

    def __init__(self) -> None:
        self.globals: dict[str, int] = {}

    def value(self, e: Any, frame: dict[str, Any]) -> int:
        match e[0]:
            case "const":
                return e[1]
            case "name":
                return self.read(e[1], frame)
            case "cast":
                return self.value(e[1], frame) & (1 << e[2]) - 1
            case "choose":
                return self.value(e[2] if self.value(e[1], frame) else e[3], frame)
            case "both":
                return int(bool(self.value(e[1], frame)) and bool(self.value(e[2], frame)))
            case "either":
                return int(bool(self.value(e[1], frame)) or bool(self.value(e[2], frame)))
            case "no":
                return int(not self.value(e[1], frame))
            case "neg":
                return -self.value(e[1], frame) & (1 << e[2]) - 1
            case "not":
                return ~self.value(e[1], frame) & (1 << e[2]) - 1
            case "sar":
                return signed(self.value(e[1], frame), e[3]) >> e[2] & (1 << e[3]) - 1
            case "part":
                return self.value(e[1], frame) >> e[3] & (1 << e[2] - e[3] + 1) - 1
            case "call":
                return self.call(e, frame)
        # The operators below evaluate both operands, left first; those above decide by themselves
        left_value, right_value = self.value(e[1], frame), self.value(e[2], frame)
        match e[0]:
            case "join":
                return left_value << e[3] | right_value
            case "slt":
                return int(signed(left_value, e[3]) < signed(right_value, e[3]))
            case "eq" | "ne" | "lt" | "le" | "gt" | "ge":
                return int(getattr(operator, e[0])(left_value, right_value))
            case "sat_add":
                return min(left_value + right_value, (1 << e[3]) - 1)
            case "sat_sub":
                return max(left_value - right_value, 0)
        return getattr(operator, OPERATORS[e[0]])(left_value, right_value) & (1 << e[3]) - 1

    def read(self, name: str, frame: dict[str, Any]) -> int:
        return frame[name] if name in frame else self.globals[name]

    def write(self, name: str, value: int, frame: dict[str, Any]) -> None:
        (frame if name in frame else self.globals)[name] = value

    def call(self, e: Any, frame: dict[str, Any]) -> int:
        routine: Routine = e[1]
        inner = {}
        for (way, name, _), arg in zip(routine.params, e[2], strict=True):
            inner[name] = 0 if way == "out" else self.value(arg, frame)
        result = 0
        try:
            self.run(routine.body, inner)
        except Return as returned_value:
            result = returned_value.args[0]
        for (way, name, _), arg in zip(routine.params, e[2], strict=True):
            if way != "in":
                self.write(arg[1], inner[name], frame)
        return result

    def run(self, block: list[Any], frame: dict[str, Any]) -> None:
        for s in block:
            match s[0]:
                case "set":
                    self.write(s[1], self.value(s[2], frame), frame)
                case "slice":
                    value = self.value(s[4], frame)
                    mask = ((1 << s[2] - s[3] + 1) - 1) << s[3]
                    self.write(s[1], self.read(s[1], frame) & ~mask | value << s[3], frame)
                case "var":
                    frame[s[1]] = self.value(s[3], frame)
                case "copy":
                    for name in PARTS[s[1]]:
                        self.globals[f"{s[1]}.{name}"] = self.globals[f"{s[2]}.{name}"]
                case "list":
                    values = [self.value(element, frame) for element in s[2]]
                    for name, value in zip(PARTS[s[1]], values, strict=True):
                        self.globals[f"{s[1]}.{name}"] = value
                case "if":
                    self.run(s[2] if self.value(s[1], frame) else s[3], frame)
                case "switch":
                    self.switch(s, frame)
                case "call":
                    self.call(s, frame)
                case "return":
                    raise Return(0 if s[1] is None else self.value(s[1], frame))

    def switch(self, s: Any, frame: dict[str, Any]) -> None:
        value, met = self.value(s[1], frame), False
        for label, inner in s[2]:
            met = met or label == value
            if met and inner is not None:
                self.run(inner, frame)
                return
        self.run(s[3], frame)


def by_hand(program: SmallProgram, values: list[int]) -> list[int]:
    machine = Machine()
    machine.globals = dict(zip(SCALARS, values, strict=True))
    with suppress(Return):
        machine.run(program.body, {})
    return [machine.globals[name] for name in SCALARS]


def pack(values: list[int]) -> bytes:
    number = 0
    for value, bits in zip(values, SCALARS.values(), strict=True):
        number = number << bits | value
    return number.to_bytes(sum(SCALARS.values()) // 8, "big")


def disagreement(seed: int) -> str:
    """Return the first difference between compiled program and interpreter; empty when there is none."""
    program = SmallProgram(seed)
    text = source(program)
    bench = Bench(compile_program(text))
    rng = random.Random(seed + 1)
    for _ in range(12):
        values = [
            rng.choice((0, 1, 7 & (1 << bits) - 1, (1 << bits) - 1, rng.randrange(1 << bits)))
            for bits in SCALARS.values()
        ]
        ((_, sent),) = bench.send(1, pack(values))
        expected_output = pack(by_hand(program, values))
        if sent != expected_output:
            return f"seed {seed}: {pack(values).hex()} -> {sent.hex()}, wanted {expected_output.hex()}\n{text}"
    return ""


@pytest.mark.parametrize("seed", range(6))
def test_random_programs__do_what_the_language_says(seed):
    assert disagreement(seed) == ""
