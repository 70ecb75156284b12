"""Random programs against an interpreter of a few lines: assignments, blocks, calls with directions, returns, switches.

What an expression is worth, test_p4_expressions.py looks at; here it is what happens in which order: arguments copied
in and out, operands with side effects, lists that read what they replace, returns in the middle.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from p4_kit import Bench

from switch.p4 import compile_program

SCALARS = {
    "hdr.h.a": 8, "hdr.h.b": 16, "hdr.h.c": 8, "hdr.g.a": 8, "hdr.g.b": 16, "hdr.g.c": 8,
    "meta.s.x": 8, "meta.s.y": 8, "meta.t.x": 8, "meta.t.y": 8, "meta.v": 16, "meta.w": 8,
}  # fmt: skip
PARTS = {
    "hdr.h": {"a": 8, "b": 16, "c": 8}, "hdr.g": {"a": 8, "b": 16, "c": 8},
    "meta.s": {"x": 8, "y": 8}, "meta.t": {"x": 8, "y": 8},
}  # fmt: skip
LIKE = {"hdr.h": "hdr.g", "hdr.g": "hdr.h", "meta.s": "meta.t", "meta.t": "meta.s"}
BYTES = sum(SCALARS.values()) // 8
TEMPLATE = """
#include <core.p4>
#include <v1model.p4>
header H {{ bit<8> a; bit<16> b; bit<8> c; }}
header in_t {{ {inputs} }}
struct S {{ bit<8> x; bit<8> y; }}
struct headers_t {{ in_t i; in_t o; H h; H g; }}
struct meta_t {{ S s; S t; bit<16> v; bit<8> w; }}
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


class Routine:
    """An action, a control or a function. `params`: (direction, name, bits)."""

    def __init__(self, kind: str, name: str, params: list[tuple[str, str, int]]) -> None:
        self.kind, self.name, self.params = kind, name, params
        self.body: list[Any] = []
        self.result: Any = None
        self.scope: dict[str, int] = {}


class Maker:
    """Writes a random program as a tree of tuples."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.routines: list[Routine] = []
        self.count = 0
        self.functions = [self._routine("function", n) for n in range(2)]
        self.controls = [self._routine("control", n) for n in range(2)]
        self.actions: list[Routine] = []
        for n in range(3):
            self.actions.append(self._routine("action", n))
        self.body = self.block(dict(SCALARS), 3, self.actions + self.controls, self.functions, may_return=True, size=9)

    def _routine(self, kind: str, number: int) -> Routine:
        rng = self.rng
        params = [
            (rng.choice(("in", "inout", "out")), f"p{i}", rng.choice((8, 8, 16))) for i in range(rng.randrange(1, 4))
        ]
        one = Routine(kind, f"{kind}_{number}", params)
        scope = {name: bits for way, name, bits in params}
        writable = {name: bits for way, name, bits in params if way != "in"}
        calls = list(self.actions) if kind == "action" else []
        functions = [] if kind == "function" else self.functions
        if kind == "action":
            scope, writable = scope | SCALARS, writable | SCALARS
        outs = {name: bits for way, name, bits in params if way == "out"}
        known = {name: bits for name, bits in scope.items() if name not in outs}
        one.body = [("set", name, self.expr(known, bits, 1, [])) for name, bits in outs.items()]
        one.body += self.block(scope, 2, calls, functions, may_return=True, size=4, writable=writable, kind=kind)
        if kind == "function":
            one.body.append(("return", self.expr(scope, 8, 2, [])))
        return one

    # ---- statements

    def block(
        self, scope: dict[str, int], depth: int, calls: list[Routine], functions: list[Routine], *,
        may_return: bool, size: int, writable: dict[str, int] | None = None, kind: str = "",
    ) -> list[Any]:  # fmt: skip
        rng, out = self.rng, []
        scope = dict(scope)
        writable = dict(scope if writable is None else writable)
        more: dict[str, Any] = {"may_return": may_return, "kind": kind}
        for _ in range(rng.randrange(1, size + 1)):
            what = rng.randrange(12)
            if what == 0 and depth and kind != "action":
                name, bits = f"l{self.count}", rng.choice((8, 16))
                self.count += 1
                out.append(("var", name, bits, self.expr(scope, bits, 2, functions)))
                scope[name] = writable[name] = bits
            elif what in (1, 2) and depth:
                then = self.block(scope, depth - 1, calls, functions, size=3, writable=writable, **more)
                other = self.block(scope, depth - 1, calls, functions, size=3, writable=writable, **more)
                out.append(("if", self.condition(scope, 2, functions), then, other if rng.random() < 0.6 else []))
            elif what == 3 and depth and kind != "action":

                def inner() -> list[Any]:
                    return self.block(scope, depth - 1, calls, functions, size=2, writable=writable, **more)

                labels = rng.sample(range(8), rng.randrange(1, 4))
                rows = [(label, None if rng.random() < 0.3 else inner()) for label in labels]
                by = ("and", self.expr(scope, 8, 1, functions), ("const", 7, 8), 8)
                out.append(("switch", by, rows, inner()))
            elif what in (4, 5) and calls:
                out.append(self.call(rng.choice(calls), scope, writable, functions))
            elif what == 6 and all(name in writable for name in SCALARS):
                whole = rng.choice(list(PARTS))
                if rng.random() < 0.4:
                    out.append(("copy", whole, LIKE[whole]))
                else:
                    values = [self.expr(scope, bits, 1, functions) for bits in PARTS[whole].values()]
                    out.append(("list", whole, values))
            elif what == 7 and may_return and depth < 3 and rng.random() < 0.3 and kind != "function":
                out.append(("return", None))
                break
            elif what == 8 and writable:
                name = rng.choice(list(writable))
                high = rng.randrange(writable[name])
                low = rng.randrange(high + 1)
                width = high - low + 1
                value = self.expr(scope, 16, 1, functions)
                out.append(("slice", name, high, low, ("cast", value, width)))
            elif writable:
                name = rng.choice(list(writable))
                out.append(("set", name, self.expr(scope, writable[name], 3, functions)))
        return out or [("nothing",)]

    def call(self, of: Routine, scope: dict[str, int], writable: dict[str, int], functions: list[Routine]) -> Any:
        args = []
        for way, _, bits in of.params:
            fits = [name for name, n in writable.items() if n == bits]
            if way == "in":
                args.append(self.expr(scope, bits, 1, functions))
            elif fits:
                args.append(("name", self.rng.choice(fits), bits))
            else:
                return ("nothing",)
        return ("call", of, args)

    # ---- expressions

    def expr(self, scope: dict[str, int], bits: int, depth: int, functions: list[Routine]) -> Any:
        rng = self.rng
        names = [name for name, n in scope.items() if n == bits]
        what = rng.randrange(10) if depth else rng.randrange(3)
        if what == 0 or (what < 3 and not names):
            return ("const", rng.randrange(1 << bits), bits)
        if what < 3:
            return ("name", rng.choice(names), bits)
        if what < 6:
            op = rng.choice(("add", "sub", "and", "xor"))
            return (
                op,
                self.expr(scope, bits, depth - 1, functions),
                self.expr(scope, bits, depth - 1, functions),
                bits,
            )
        if what == 6 and bits == 16:
            return ("join", self.expr(scope, 8, depth - 1, functions), self.expr(scope, 8, depth - 1, functions), 16)
        if what == 7:
            return ("cast", self.expr(scope, 24 - bits, depth - 1, functions), bits)
        if what == 8 and bits == 8 and functions:
            called = self.call(rng.choice(functions), scope, {k: v for k, v in scope.items() if self._may_write(k)}, [])
            if called[0] == "call":
                return called
        return ("choose", self.condition(scope, depth - 1, functions), self.expr(scope, bits, depth - 1, functions),
                self.expr(scope, bits, depth - 1, functions), bits)  # fmt: skip

    @staticmethod
    def _may_write(name: str) -> bool:
        """`in` parameters may not be given to inout ones; parameters are left alone altogether."""
        return not name.startswith("p")

    def condition(self, scope: dict[str, int], depth: int, functions: list[Routine]) -> Any:
        rng = self.rng
        if depth > 0 and rng.random() < 0.4:
            op = rng.choice(("both", "either"))
            return (op, self.condition(scope, depth - 1, functions), self.condition(scope, depth - 1, functions))
        bits = rng.choice((8, 16))
        op = rng.choice(("eq", "lt", "ge"))
        return (op, self.expr(scope, bits, max(depth, 0), functions), self.expr(scope, bits, max(depth, 0), functions))


# ---- as P4 -----------------------------------------------------------------------------------------------------

SIGNS = {
    "add": "+",
    "sub": "-",
    "and": "&",
    "xor": "^",
    "join": "++",
    "eq": "==",
    "lt": "<",
    "ge": ">=",
    "both": "&&",
    "either": "||",
}


def text(e: Any) -> str:
    match e[0]:
        case "const":
            return f"{e[2]}w{e[1]}"
        case "name":
            return e[1]
        case "cast":
            return f"(bit<{e[2]}>) ({text(e[1])})"
        case "choose":
            return f"(({text(e[1])}) ? ({text(e[2])}) : ({text(e[3])}))"
        case "call":
            return f"{e[1].name}({', '.join(text(one) for one in e[2])})"
        case op:
            return f"(({text(e[1])}) {SIGNS[op]} ({text(e[2])}))"


def lines(block: list[Any], pad: str) -> list[str]:
    out = []
    for s in block:
        match s[0]:
            case "set":
                out.append(f"{pad}{s[1]} = {text(s[2])};")
            case "slice":
                out.append(f"{pad}{s[1]}[{s[2]}:{s[3]}] = {text(s[4])};")
            case "var":
                out.append(f"{pad}bit<{s[2]}> {s[1]} = {text(s[3])};")
            case "copy":
                out.append(f"{pad}{s[1]} = {s[2]};")
            case "list":
                out.append(f"{pad}{s[1]} = {{ {', '.join(text(one) for one in s[2])} }};")
            case "if":
                out += [f"{pad}if ({text(s[1])}) {{", *lines(s[2], pad + "    "), f"{pad}}}"]
                if s[3]:
                    out += [f"{pad}else {{", *lines(s[3], pad + "    "), f"{pad}}}"]
            case "switch":
                out.append(f"{pad}switch ({text(s[1])}) {{")
                for label, inner in s[2]:
                    out.append(f"{pad}    {label}:" + ("" if inner is None else " {"))
                    out += [] if inner is None else [*lines(inner, pad + "        "), f"{pad}    }}"]
                out += [f"{pad}    default: {{", *lines(s[3], pad + "        "), f"{pad}    }}", f"{pad}}}"]
            case "call":
                name = f"{s[1].name}_i.apply" if s[1].kind == "control" else s[1].name
                out.append(f"{pad}{name}({', '.join(text(one) for one in s[2])});")
            case "return":
                out.append(f"{pad}return{'' if s[1] is None else ' ' + text(s[1])};")
    return out


def source(made: Maker) -> str:
    def params(of: Routine) -> str:
        return ", ".join(f"{way} bit<{bits}> {name}" for way, name, bits in of.params)

    def written(of: Routine, head: str, pad: str) -> str:
        return "\n".join([f"{pad}{head} {{", *lines(of.body, pad + "    "), f"{pad}}}"])

    return TEMPLATE.format(
        inputs=" ".join(f"bit<{bits}> f{i};" for i, bits in enumerate(SCALARS.values())),
        functions="\n".join(written(one, f"bit<8> {one.name}({params(one)})", "") for one in made.functions),
        controls="\n".join(
            f"control {one.name}({params(one)}) {{\n{written(one, 'apply', '    ')}\n}}" for one in made.controls
        ),
        actions="\n".join(written(one, f"action {one.name}({params(one)})", "    ") for one in made.actions),
        instances="\n".join(f"    {one.name}() {one.name}_i;" for one in made.controls),
        body="\n".join(lines(made.body, "        ")),
        load="\n".join(f"        {name} = hdr.i.f{i};" for i, name in enumerate(SCALARS)),
        store="\n".join(f"        hdr.o.f{i} = {name};" for i, name in enumerate(SCALARS)),
    )


# ---- and by hand -----------------------------------------------------------------------------------------------


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
            case "call":
                return self.call(e, frame)
        left, right = self.value(e[1], frame), self.value(e[2], frame)
        match e[0]:
            case "add":
                return left + right & (1 << e[3]) - 1
            case "sub":
                return left - right & (1 << e[3]) - 1
            case "and":
                return left & right
            case "xor":
                return left ^ right
            case "join":
                return left << 8 | right
            case "eq":
                return int(left == right)
            case "lt":
                return int(left < right)
        return int(left >= right)

    def read(self, name: str, frame: dict[str, Any]) -> int:
        return frame[name] if name in frame else self.globals[name]

    def write(self, name: str, value: int, frame: dict[str, Any]) -> None:
        (frame if name in frame else self.globals)[name] = value

    def call(self, e: Any, frame: dict[str, Any]) -> int:
        of: Routine = e[1]
        inner = {}
        for (way, name, _), arg in zip(of.params, e[2], strict=True):
            inner[name] = 0 if way == "out" else self.value(arg, frame)
        result = 0
        try:
            self.run(of.body, inner)
        except Return as done:
            result = done.args[0]
        for (way, name, _), arg in zip(of.params, e[2], strict=True):
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
                    values = [self.value(one, frame) for one in s[2]]
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


def by_hand(made: Maker, values: list[int]) -> list[int]:
    machine = Machine()
    machine.globals = dict(zip(SCALARS, values, strict=True))
    with suppress(Return):
        machine.run(made.body, {})
    return [machine.globals[name] for name in SCALARS]


def pack(values: list[int]) -> bytes:
    return b"".join(value.to_bytes(bits // 8, "big") for value, bits in zip(values, SCALARS.values(), strict=True))


def disagreement(seed: int) -> str:
    """What the compiled program does otherwise; empty: nothing."""
    made = Maker(seed)
    program = source(made)
    bench = Bench(compile_program(program))
    rng = random.Random(seed + 1)
    for _ in range(12):
        values = [rng.choice((0, 1, 7, (1 << bits) - 1, rng.randrange(1 << bits))) for bits in SCALARS.values()]
        ((_, sent),) = bench.send(1, pack(values))
        wanted = pack(by_hand(made, values))
        if sent != wanted:
            return f"seed {seed}: {pack(values).hex()} -> {sent.hex()}, wanted {wanted.hex()}\n{program}"
    return ""


@pytest.mark.parametrize("seed", range(6))
def test_random_programs__do_what_the_language_says(seed):
    assert disagreement(seed) == ""
