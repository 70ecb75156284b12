"""Random valid P4 programs with packets and entries, for the fuzz of both switches and a unit test.

A `Maker` writes statements and expressions as a tree of tuples, which `lines` turns into P4 and the interpreter of
tests/switch/compiler/test_compiler_random_programs.py runs. A `Whole` is a program around such statements: a parser
with selects, optional headers and a stack, tables of every kind with entries, registers, hashes, checksums, copies
and rounds.

Nothing that the specification leaves open is written: fields of a header are read where it is valid, variables after
they were set, and an `out` parameter is set first. What docs/p4-target.md names as a difference from simple_switch is
not written either.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

Node = Any
"""A tuple: a word, and what belongs to it."""

WRONG_RANGE_BITS = 31
"""Width from which on p4c 1.2.5 gives `_` of a range key in `entries` a wrong end (docs/p4-target.md)."""
WIDTHS = (1, 4, 8, 8, 12, 16, 16, 32, 48)
"""Widths of local variables and parameters."""
SIGNS = {
    "add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^", "mul": "*", "sat_add": "|+|", "sat_sub": "|-|",
    "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "both": "&&", "either": "||",
}  # fmt: skip
ARITHMETIC = ("add", "sub", "and", "or", "xor", "add", "sub", "xor", "mul", "sat_add", "sat_sub")
COMPARISONS = ("eq", "lt", "ge", "ne", "le", "gt")


class Routine:
    """An action, a control or a function. `params`: (direction, name, bits); table actions have none."""

    def __init__(self, kind: str, name: str, params: list[tuple[str, str, int]]) -> None:
        self.kind, self.name, self.params = kind, name, params
        self.body: list[Node] = []


class Maker:
    """Statements and expressions over named places. Every draw comes from `seed`."""

    scalars: dict[str, int]
    """Places that are always there, and their bits."""
    parts: dict[str, dict[str, int]]
    """Headers and structs of those places, and their fields."""
    like: dict[str, str]
    """Header or struct -> another one of its type."""
    reads_own = True
    """A list may read the header that it is assigned to."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.count = 0
        self.actions: list[Routine] = []
        self.functions: list[Routine] = []
        self.controls: list[Routine] = []

    def routines(self, functions: int, controls: int, actions: int) -> None:
        for n in range(functions):
            self.functions.append(self.routine("function", n))
        for n in range(controls):
            self.controls.append(self.routine("control", n))
        for n in range(actions):
            self.actions.append(self.routine("action", n))

    def routine(self, kind: str, number: int) -> Routine:
        rng = self.rng
        params = [
            (rng.choice(("in", "inout", "out")), f"p{i}", rng.choice((8, 8, 16, rng.choice(WIDTHS))))
            for i in range(rng.randrange(1, 4))
        ]
        routine = Routine(kind, f"{kind}_{number}", params)
        scope = {name: bits for way, name, bits in params}
        writable = {name: bits for way, name, bits in params if way != "in"}
        calls = list(self.actions) if kind == "action" else []
        functions = [] if kind == "function" else self.functions
        if kind == "action":
            scope, writable = scope | self.scalars, writable | self.scalars
        outs = {name: bits for way, name, bits in params if way == "out"}
        readable = {name: bits for name, bits in scope.items() if name not in outs}
        routine.body = [("set", name, self.expr(readable, bits, 1, [])) for name, bits in outs.items()]
        routine.body += self.block(scope, 2, calls, functions, may_return=True, size=4, writable=writable, kind=kind)
        if kind == "function":
            routine.body.append(("return", self.expr(scope, 8, 2, [])))
        return routine

    # ---- statements

    def block(
        self,
        scope: dict[str, int],
        depth: int,
        calls: list[Routine],
        functions: list[Routine],
        *,
        may_return: bool,
        size: int,
        writable: dict[str, int] | None = None,
        kind: str = "",
    ) -> list[Node]:
        rng = self.rng
        out: list[Node] = []
        scope = dict(scope)
        writable = dict(scope if writable is None else writable)
        options: dict[str, Any] = {"may_return": may_return, "kind": kind}
        for _ in range(rng.randrange(1, size + 1)):
            choice = rng.randrange(12)
            if choice == 0 and depth and kind != "action":
                name, bits = f"l{self.count}", rng.choice(WIDTHS)
                self.count += 1
                out.append(("var", name, bits, self.expr(scope, bits, 2, functions)))
                scope[name] = writable[name] = bits
            elif choice in (1, 2) and depth:
                then_block = self.block(scope, depth - 1, calls, functions, size=3, writable=writable, **options)
                else_block = self.block(scope, depth - 1, calls, functions, size=3, writable=writable, **options)
                out.append(
                    ("if", self.condition(scope, 2, functions), then_block, else_block if rng.random() < 0.6 else [])
                )
            elif choice == 3 and depth and kind not in ("action", "function"):  # p4c: "not supported in actions"

                def inner() -> list[Node]:
                    return self.block(scope, depth - 1, calls, functions, size=2, writable=writable, **options)

                labels = rng.sample(range(8), rng.randrange(1, 4))
                rows = [(label, None if rng.random() < 0.3 else inner()) for label in labels]
                selector = ("and", self.expr(scope, 8, 1, functions), ("const", 7, 8), 8)
                out.append(("switch", selector, rows, inner()))
            elif choice in (4, 5) and calls:
                out.append(self.call(rng.choice(calls), scope, writable, functions))
            elif choice == 6 and all(name in writable for name in self.scalars):
                struct = rng.choice(list(self.parts))
                if rng.random() < 0.4:
                    out.append(("copy", struct, self.like[struct]))
                else:
                    readable = scope
                    if not self.reads_own:
                        readable = {name: bits for name, bits in scope.items() if not name.startswith(struct + ".")}
                    values = [self.expr(readable, bits, 1, functions) for bits in self.parts[struct].values()]
                    out.append(("list", struct, values))
            elif choice == 7 and may_return and depth < 3 and rng.random() < 0.3 and kind != "function":
                out.append(("return", None))
                break
            elif choice == 8 and writable:
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

    def call(self, routine: Routine, scope: dict[str, int], writable: dict[str, int], functions: list[Routine]) -> Node:
        args = []
        for way, _, bits in routine.params:
            fits = [name for name, n in writable.items() if n == bits]
            if way == "in":
                args.append(self.expr(scope, bits, 1, functions))
            elif fits:
                args.append(("name", self.rng.choice(fits), bits))
            else:
                return ("nothing",)
        return ("call", routine, args)

    # ---- expressions

    def expr(self, scope: dict[str, int], bits: int, depth: int, functions: list[Routine]) -> Node:
        rng = self.rng
        names = [name for name, n in scope.items() if n == bits]
        choice = rng.randrange(14) if depth else rng.randrange(3)
        if choice == 0:
            return ("const", self.value(bits), bits)
        if choice < 3:
            if names:
                return ("name", rng.choice(names), bits)
            # No variable has the width: a cast makes one of another.
            variables = [(name, n) for name, n in scope.items() if n != bits]
            return ("cast", ("name", *rng.choice(variables)), bits) if variables else ("const", self.value(bits), bits)

        def part(of_bits: int) -> Node:
            return self.expr(scope, of_bits, depth - 1, functions)

        if choice < 6:
            return (rng.choice(ARITHMETIC), part(bits), part(bits), bits)
        if choice == 6 and bits > 1:
            low = rng.choice([n for n in (1, 4, 8, bits // 2) if 0 < n < bits])
            return ("join", part(bits - low), part(low), low, bits)
        if choice == 7:
            return ("cast", part(rng.choice([width for width in WIDTHS if width != bits])), bits)
        if choice == 8 and bits == 8 and functions:
            call = self.call(rng.choice(functions), scope, {k: v for k, v in scope.items() if self._may_write(k)}, [])
            if call[0] == "call":
                return call
        if choice == 9:
            return (rng.choice(("neg", "not")), part(bits), bits)
        if choice == 10:
            distance = ("const", rng.randrange(bits + 2), 8) if rng.random() < 0.6 else part(8)
            return (rng.choice(("shl", "shr")), part(bits), distance, bits)
        if choice == 11 and bits > 1:
            return ("sar", part(bits), rng.randrange(bits), bits)
        if choice == 12:
            wider_widths = [n for n in scope.values() if n > bits]
            if wider_widths:
                width = rng.choice(wider_widths)
                low = rng.randrange(width - bits + 1)
                return ("part", part(width), low + bits - 1, low)
        return ("choose", self.condition(scope, depth - 1, functions), part(bits), part(bits), bits)

    def value(self, bits: int) -> int:
        """Mostly one that is met again."""
        rng, largest = self.rng, (1 << bits) - 1
        return rng.choice(
            (0, 1, 7 & largest, largest, largest >> 1, rng.randrange(largest + 1), rng.randrange(largest + 1))
        )

    @staticmethod
    def _may_write(name: str) -> bool:
        """`in` parameters may not be given to inout ones; parameters are left alone altogether."""
        return not name.startswith("p") and not name.startswith("std.")

    def condition(self, scope: dict[str, int], depth: int, functions: list[Routine]) -> Node:
        rng = self.rng
        if depth > 0 and rng.random() < 0.4:
            op = rng.choice(("both", "either"))
            return (op, self.condition(scope, depth - 1, functions), self.condition(scope, depth - 1, functions))
        if depth > 0 and rng.random() < 0.1:
            return ("no", self.condition(scope, depth - 1, functions))
        bits = rng.choice((8, 16, rng.choice(WIDTHS)))
        left_side, right_side = (self.expr(scope, bits, max(depth, 0), functions) for _ in range(2))
        if bits > 1 and rng.random() < 0.2:
            return ("slt", left_side, right_side, bits)
        return (rng.choice(COMPARISONS), left_side, right_side)


# ---- as P4


def text(e: Node) -> str:
    """An expression as P4."""
    match e[0]:
        case "const":
            return f"{e[2]}w{e[1]}"
        case "name":
            return str(e[1])
        case "cast":
            return f"(bit<{e[2]}>) ({text(e[1])})"
        case "choose":
            return f"(({text(e[1])}) ? ({text(e[2])}) : ({text(e[3])}))"
        case "call":
            return f"{e[1].name}({', '.join(text(argument) for argument in e[2])})"
        case "join":
            return f"(({text(e[1])}) ++ ({text(e[2])}))"
        case "neg":
            return f"(-({text(e[1])}))"
        case "not":
            return f"(~({text(e[1])}))"
        case "no":
            return f"(!({text(e[1])}))"
        # P4 shifts arithmetically on signed types alone.
        case "sar":
            return f"(bit<{e[3]}>) (((int<{e[3]}>) ({text(e[1])})) >> {e[2]})"
        case "part":
            return f"({text(e[1])})[{e[2]}:{e[3]}]"
        case "slt":
            return f"((int<{e[3]}>) ({text(e[1])}) < (int<{e[3]}>) ({text(e[2])}))"
        case "shl" | "shr":
            return f"(({text(e[1])}) {SIGNS[e[0]]} ({text(e[2])}))"
        case op:
            return f"(({text(e[1])}) {SIGNS[op]} ({text(e[2])}))"


def lines(block: list[Node], pad: str) -> list[str]:
    """The statements of a block as lines of P4, indented by `pad`."""
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
                out.append(f"{pad}{s[1]} = {{ {', '.join(text(element) for element in s[2])} }};")
            case "if":
                out += _if(f"if ({text(s[1])})", s[2], s[3], pad)
            case "when":  # a condition in P4's words
                out += _if(f"if ({s[1]})", s[2], s[3], pad)
            case "switch":
                out += _switch(text(s[1]), s[2], s[3], pad)
            case "run":
                out += _switch(f"{s[1]}.apply().action_run", s[2], s[3], pad)
            case "call":
                name = f"{s[1].name}_i.apply" if s[1].kind == "control" else s[1].name
                out.append(f"{pad}{name}({', '.join(text(argument) for argument in s[2])});")
            case "return":
                out.append(f"{pad}return{'' if s[1] is None else ' ' + text(s[1])};")
            case "raw":
                out.append(f"{pad}{s[1]}")
    return out


def _if(head: str, then_block: list[Node], else_block: list[Node], pad: str) -> list[str]:
    out = [f"{pad}{head} {{", *lines(then_block, pad + "    "), f"{pad}}}"]
    return [*out, f"{pad}else {{", *lines(else_block, pad + "    "), f"{pad}}}"] if else_block else out


def _switch(selector: str, rows: list[Any], default_block: list[Node], pad: str) -> list[str]:
    out = [f"{pad}switch ({selector}) {{"]
    for label, inner in rows:
        out.append(f"{pad}    {label}:" + ("" if inner is None else " {"))
        out += [] if inner is None else [*lines(inner, pad + "        "), f"{pad}    }}"]
    return [*out, f"{pad}    default: {{", *lines(default_block, pad + "        "), f"{pad}    }}", f"{pad}}}"]


def params(routine: Routine) -> str:
    """The parameters of a routine as P4."""
    return ", ".join(f"{way} bit<{bits}> {name}".strip() for way, name, bits in routine.params)


def declaration(routine: Routine, pad: str) -> str:
    """The whole declaration."""
    heads = {
        "function": f"bit<8> {routine.name}({params(routine)})",
        "action": f"action {routine.name}({params(routine)})",
    }
    if routine.kind == "control":
        body = "\n".join([f"{pad}    apply {{", *lines(routine.body, pad + "        "), f"{pad}    }}"])
        return f"{pad}control {routine.name}({params(routine)}) {{\n{body}\n{pad}}}"
    return "\n".join([f"{pad}{heads[routine.kind]} {{", *lines(routine.body, pad + "    "), f"{pad}}}"])


# ---- whole programs

FIELDS = ((8,), (16,), (4, 4), (3, 13), (1, 7), (32,), (12, 20), (48,), (9, 23), (8, 8), (1, 1, 6))
"""Fields that fill whole bytes."""
OPTIONAL = ("o0", "o1", "o2")
STACK = 3
MULTICAST, CLONES = 1, 5
"""A group to ports 5 and 6, a session to port 7."""
HASHES = {"crc16": 16, "crc32": 32, "csum16": 16, "identity": 32}
PROGRAM_TEMPLATE = """#include <core.p4>
#include <v1model.p4>
// Random program {seed} of tools/campaigns/p4_random.py.
header first_t {{ bit<8> kind; bit<4> n; bit<1> f0; bit<1> f1; bit<1> f2; bit<1> f3; }}
header H {{ {h} }}
header O {{ {o} }}
header E {{ {e} }}
header sum_t {{ bit<16> sum; bit<16> a; bit<16> b; }}
struct S {{ {s} }}
struct headers_t {{ first_t first; H h; H g; sum_t sum; O o0; O o1; O o2; E[{stack}] st; }}
struct meta_t {{ S s; S t; bit<4> left; bit<8> round; @field_list(1) bit<16> kept; bit<16> lost; }}
{functions}
parser P(packet_in b, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{
    state start {{
        b.extract(hdr.first);
        meta.left = hdr.first.n & 3;
        b.extract(hdr.h);
        b.extract(hdr.g);
{parser}
    }}
    state sum {{ b.extract(hdr.sum); transition accept; }}
}}
control V(inout headers_t hdr, inout meta_t meta) {{ apply {{ {verify} }} }}
{controls}
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{
    register<bit<16>>(8) reg;
    counter(8, CounterType.packets_and_bytes) cnt;
    bit<16> temp;
{actions}
{tables}
{instances}
    apply {{
        temp = 0;
        meta.round = std.instance_type == 4 ? 8w1 : 8w0;
        std.egress_spec = (bit<9>) (hdr.first.kind & 3) + 1;
        if (std.parser_error != error.NoError) {{
            std.egress_spec = 9;
            if (std.parser_error == error.PacketTooShort) {{ std.egress_spec = 10; }}
            exit;
        }}
{ingress}
    }}
}}
control E_(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {{
{egress_tables}
    apply {{
        if (std.parser_error == error.NoError && hdr.h.isValid() && hdr.g.isValid()) {{
{egress}
        }}
    }}
}}
control C(inout headers_t hdr, inout meta_t meta) {{ apply {{ {update} }} }}
control D(packet_out b, in headers_t hdr) {{ apply {{ {deparser} }} }}
V1Switch(P(), V(), I(), E_(), C(), D()) main;
"""


class RandomTable:
    """A table, and the lines of STF that fill it."""

    def __init__(self, name: str, keys: list[tuple[str, str, int]], actions: list[Routine]) -> None:
        self.name, self.keys, self.actions = name, keys, actions
        self.default = ""
        self.const: list[str] = []
        self.script: list[str] = []

    def text(self, pad: str) -> str:
        keys = " ".join(f'{key} : {kind} @name("k{n}");' for n, (key, kind, _) in enumerate(self.keys))
        names = " ".join(f"{action.name};" for action in self.actions)
        out = [f"table {self.name} {{", f"    key = {{ {keys} }}", f"    actions = {{ {names} NoAction; }}"]
        if self.const:
            out += ["    const entries = {", *(f"        {entry}" for entry in self.const), "    }"]
        return "\n".join(pad + line for line in [*out, f"    default_action = {self.default};", "}"])


class RandomProgram(Maker):
    """A program, its entries and packets. `program` is P4, `script` STF without expectations."""

    reads_own = False
    """p4c 1.2.5 leaves a header invalid that it was given a list that reads it (docs/p4-target.md)."""

    def __init__(self, seed: int, packets: int = 24) -> None:
        super().__init__(seed)
        rng = self.rng
        self.seed = seed
        self.h, self.o, self.e = (self._fields(low, high) for low, high in ((2, 5), (1, 3), (1, 2)))
        self.s = {f"x{n}": rng.choice(WIDTHS) for n in range(rng.randrange(2, 5))}
        self.parts = {"hdr.h": self.h, "hdr.g": self.h, "meta.s": self.s, "meta.t": self.s}
        self.like = {"hdr.h": "hdr.g", "hdr.g": "hdr.h", "meta.s": "meta.t", "meta.t": "meta.s"}
        self.scalars = {
            f"{struct}.{name}": bits for struct, fields in self.parts.items() for name, bits in fields.items()
        }
        self.scalars["meta.kept"] = 16
        self.routines(rng.randrange(3), rng.randrange(3), rng.randrange(1, 4))
        self.table_actions = [self._table_action(n) for n in range(3)]
        self.tables = [self._table(f"t{n}", self.table_actions) for n in range(rng.randrange(1, 4))]
        self.waiting = list(self.tables)
        """Tables that nothing applies so far: BMv2 has each once."""
        self.readable = self.scalars | {"std.packet_length": 32, "hdr.first.kind": 8}
        ingress = self._ingress()
        self.egress_tables: list[Any] = []
        egress = self._egress()
        self.program = self._text(ingress, egress)
        self.script = "\n".join([*self._state(), *self._packets(packets)]) + "\n"

    def _fields(self, low: int, high: int) -> dict[str, int]:
        widths = [n for _ in range(self.rng.randrange(low, high + 1)) for n in self.rng.choice(FIELDS)]
        return {f"f{n}": bits for n, bits in enumerate(widths)}

    # ---- tables

    def _table_action(self, number: int) -> Routine:
        """An action whose arguments entries give."""
        rng = self.rng
        params = [("", f"p{n}", rng.choice(WIDTHS)) for n in range(rng.randrange(3))]
        action = Routine("action", f"keyed_{number}", params)
        scope = self.scalars | {name: bits for _, name, bits in params}
        action.body = self.block(
            scope, 2, [], self.functions, may_return=True, size=4, writable=self.scalars, kind="action"
        )
        if rng.random() < 0.3:
            action.body.append(("raw", f"cnt.count({rng.randrange(9)});"))
        return action

    def _table(self, name: str, actions: list[Routine], spare: str = "") -> RandomTable:
        rng = self.rng
        keys = []
        for _ in range(rng.randrange(1, 4)):
            field, bits = rng.choice(list(self.scalars.items()))
            kind = rng.choice(("exact", "exact", "ternary", "range", "optional"))
            if bits > 4 and rng.random() < 0.4:
                bits = rng.randrange(1, 4)
                field = f"{field}[{bits - 1}:0]"
            keys.append((field, kind, bits))
        if not any(kind in ("ternary", "range", "optional") for _, kind, _ in keys) and rng.random() < 0.5:
            index = rng.randrange(len(keys))
            if keys[index][2] % 8 == 0:  # PI refuses prefixes of other widths: it counts the zeros behind them in bytes
                keys[index] = (keys[index][0], "lpm", keys[index][2])
        table = RandomTable(name, keys, rng.sample(actions, rng.randrange(1, len(actions) + 1)))
        run = rng.choice(table.actions)
        table.default = f"{run.name}({', '.join(str(self.value(bits)) for _, _, bits in run.params)})"
        if rng.random() < 0.3:
            table.default = "NoAction"
        is_const = rng.random() < 0.25 and not spare
        for priority, match in enumerate(self._matches(keys)):
            run = rng.choice(table.actions)
            values = [self.value(bits) for _, _, bits in run.params]
            if is_const:
                row = ", ".join(key.partition(" ")[2] for key in match)
                table.const.append(f"({row}) : {run.name}({', '.join(map(str, values))});")
            else:
                fields = " ".join(self._stf(n, keys[n][1], key) for n, key in enumerate(match) if key != "any _")
                args = ", ".join(f"{name}:{value}" for (_, name, _), value in zip(run.params, values, strict=True))
                table.script.append(f"add {name} {priority} {fields} {run.name}({args})")
        return table

    def _matches(self, keys: list[tuple[str, str, int]]) -> Iterable[tuple[str, ...]]:
        """Different rows of (kind, P4 text) for each key, no two of which match the same by form."""
        rows = set()
        for _ in range(self.rng.randrange(1, 7)):
            row = tuple(self._match(kind, bits) for _, kind, bits in keys)
            if row not in rows:
                rows.add(row)
                yield row

    def _match(self, kind: str, bits: int) -> str:
        rng, largest, value = self.rng, (1 << bits) - 1, self.value(bits)
        if kind == "exact" or (kind == "optional" and rng.random() < 0.7):
            return f"value {value:#x}"
        if kind == "range":
            low, high = sorted((value, self.value(bits)))
            if (low, high) == (0, largest) and bits >= WRONG_RANGE_BITS:
                low = 1
            return f"range {low:#x} .. {high:#x}" if (low, high) != (0, largest) else "any _"
        if kind == "ternary" and rng.random() < 0.8:
            mask = rng.choice((largest, 1, largest & 3, largest ^ largest >> 1, rng.randrange(largest + 1)))
            return f"mask {value & mask:#x} &&& {mask:#x}" if mask else "any _"
        if kind == "lpm":
            length = rng.randrange(bits + 1)
            mask = largest ^ largest >> length
            return f"mask {value & mask:#x} &&& {mask:#x}" if length else "any _"
        return "any _"

    def _stf(self, number: int, kind: str, match: str) -> str:
        word, _, operand = match.partition(" ")
        if word == "range":
            return f"k{number}:{operand.replace(' .. ', '->')}"
        if word == "mask":
            value, _, mask = operand.partition(" &&& ")
            if kind == "lpm":
                return f"k{number}:{int(value, 16)}/{int(mask, 16).bit_count()}"
            return f"k{number}:{int(value, 16)}&&&{int(mask, 16)}"
        return f"k{number}:{int(operand, 16)}"

    # ---- controls

    def _ingress(self) -> list[Node]:
        rng = self.rng
        calls = self.actions + self.controls
        out: list[Node] = []
        for field, bits in self.scalars.items():
            if field.startswith("meta."):
                out.append(
                    (
                        "set",
                        field,
                        self.expr({k: v for k, v in self.scalars.items() if k.startswith("hdr")}, bits, 1, []),
                    )
                )
        for _ in range(rng.randrange(2, 6)):
            out += self.block(self.readable, 3, calls, self.functions, may_return=False, size=3, writable=self.scalars)
            out += self._special()
        while self.waiting and rng.random() < 0.8:
            out += self._apply(self.waiting.pop())
        return out + self._ways()

    def _apply(self, table: RandomTable) -> list[Node]:
        rng = self.rng

        def inner() -> list[Node]:
            return self.block(self.readable, 1, [], [], may_return=False, size=2, writable=self.scalars)

        way = rng.randrange(4)
        if way == 0:
            return [("raw", f"{table.name}.apply();")]
        if way == 1:
            return [("when", f"{table.name}.apply().{rng.choice(('hit', 'miss'))}", inner(), inner())]
        if way == 2:
            return [("when", f"!{table.name}.apply().hit", inner(), [])]
        names = rng.sample(table.actions, rng.randrange(1, len(table.actions) + 1))
        rows = [(name.name, None if name is not names[-1] and rng.random() < 0.3 else inner()) for name in names]
        return [("run", table.name, rows, inner())]

    def _special(self) -> list[Node]:
        """Features of a switch alone: headers that come and go, registers, hashes, counters, tables."""
        rng = self.rng
        headers = rng.choice(OPTIONAL)
        element = f"st[{rng.randrange(STACK)}]"
        match rng.randrange(12):
            case 0:
                values = ", ".join(text(self.expr(self.scalars, bits, 1, [])) for bits in self.o.values())
                return [("raw", f"hdr.{headers}.setValid();"), ("raw", f"hdr.{headers} = {{ {values} }};")]
            case 1:
                return [("raw", f"hdr.{headers}.setInvalid();")]
            case 2:
                name, bits = rng.choice(list(self.o.items()))
                scope = self.scalars | {f"hdr.{headers}.{field}": n for field, n in self.o.items()}
                change = ("set", f"hdr.{headers}.{name}", self.expr(scope, bits, 2, []))
                return [("when", f"hdr.{headers}.isValid()", [change], [])]
            case 3:
                return [("raw", f"hdr.{headers} = hdr.{rng.choice(OPTIONAL)};")]
            case 4:
                return [("raw", f"hdr.st.{rng.choice(('push', 'pop'))}_front({rng.randrange(1, STACK + 1)});")]
            case 5:
                name, bits = rng.choice(list(self.e.items()))
                return [
                    (
                        "when",
                        f"hdr.{element}.isValid()",
                        [("set", f"hdr.{element}.{name}", self.expr(self.scalars, bits, 2, []))],
                        [],
                    )
                ]
            case 6:
                # The index stays within the register: beyond it targets may differ.
                index = text(("and", self.expr(self.scalars, 32, 1, []), ("const", 7, 32), 32))
                value = text(self.expr(self.scalars | {"temp": 16}, 16, 2, []))
                return [
                    ("raw", f"reg.read(temp, {index});"),
                    ("raw", f"reg.write({index}, {value});"),
                    ("set", "meta.kept", ("xor", ("name", "meta.kept", 16), ("name", "temp", 16), 16)),
                ]
            case 7:
                kind, bits = rng.choice(list(HASHES.items()))
                data = [(self.expr(self.scalars, n, 1, []), n) for n in (rng.choice((8, 16, 32, 48)) for _ in range(2))]
                base, largest = rng.randrange(16), rng.choice((1, 7, 256, 65535))
                fields = ", ".join(text(expression) for expression, _ in data)
                return [
                    ("raw", f"hash(temp, HashAlgorithm.{kind}, 16w{base}, {{ {fields} }}, 32w{largest});"),
                    ("set", "meta.kept", ("name", "temp", 16)),
                ]
            case 8:
                return [("raw", f"cnt.count({rng.randrange(9)});")]
            case 9:
                return [
                    (
                        "when",
                        f"hdr.sum.isValid() && hdr.{headers}.isValid()",
                        [("raw", f"hdr.sum.a = {text(self.expr(self.scalars, 16, 1, []))};")],
                        [],
                    )
                ]
            case _:
                return self._apply(self.waiting.pop()) if self.waiting else []

    def _ways(self) -> list[Node]:
        """Destination of a packet, by its kind."""
        rng = self.rng
        ways = {
            "mark": [("raw", "mark_to_drop(std);")],
            "mcast": [("raw", f"std.mcast_grp = {MULTICAST};")],
            "nogroup": [("raw", "std.mcast_grp = 9;")],
            "clone": [("raw", f"clone(CloneType.I2E, {CLONES});")],
            "clone_fields": [("raw", f"clone_preserving_field_list(CloneType.I2E, {CLONES}, 1);")],
            "resubmit": [("when", "std.instance_type == 0", [("raw", "resubmit_preserving_field_list(1);")], [])],
            "truncate": [("raw", f"truncate(32w{rng.randrange(1, 40)});")],
            "drop_spec": [("raw", "std.egress_spec = 511;")],
            "exit": [("raw", "exit;")],
        }
        out: list[Node] = []
        for name in rng.sample(list(ways), 3):
            out.append(("when", f"hdr.first.kind[7:4] == {rng.randrange(1, 8)}", ways[name], []))
        return out

    def _egress(self) -> list[Node]:
        rng = self.rng
        scope = {k: v for k, v in self.scalars.items() if k.startswith("hdr")}
        # Egress statements use headers alone: metadata of ingress is not kept by every copy.
        all_scalars, self.scalars = self.scalars, scope
        self.parts = {k: v for k, v in self.parts.items() if k.startswith("hdr")}
        self.like = {k: v for k, v in self.like.items() if k.startswith("hdr")}
        readable = scope | {
            "std.egress_port": 9,
            "std.instance_type": 32,
            "std.packet_length": 32,
            "std.egress_rid": 16,
        }
        actions = [Routine("action", f"late_{n}", [("", "p0", 16)]) for n in range(2)]
        for action in actions:
            action.body = self.block(
                readable | {"p0": 16}, 1, [], [], may_return=False, size=3, writable=scope, kind="action"
            )
        table = self._table("late", actions)
        self.egress_tables, self.egress_actions = [table], actions
        out = self.block(readable, 2, [], self.functions, may_return=False, size=4, writable=scope)
        out.append(("raw", "late.apply();"))
        if rng.random() < 0.3:
            out.append(("when", f"std.egress_port == {rng.randrange(1, 8)}", [("raw", "mark_to_drop(std);")], []))
        if rng.random() < 0.2:
            out.append(
                (
                    "when",
                    "std.instance_type == 0 && meta.round == 0 && hdr.first.kind[3:3] == 1",
                    [("raw", "recirculate_preserving_field_list(1);")],
                    [],
                )
            )
        if rng.random() < 0.2:
            out.append(
                (
                    "when",
                    "std.instance_type == 0",
                    [("raw", f"clone_preserving_field_list(CloneType.E2E, {CLONES}, 1);")],
                    [],
                )
            )
        self.scalars = all_scalars
        return out

    # ---- the text

    def _parser(self) -> str:
        """The rest of the start state and the states behind it."""
        rng = self.rng
        out = []
        if rng.random() < 0.3:
            out.append(f"        verify(hdr.first.kind != {rng.choice((0x7F, 0x11, 0))}, error.NoMatch);")
        if rng.random() < 0.3:
            out.append("        meta.lost = (bit<16>) hdr.first.kind;")
        # Each optional header is taken or passed over, in a random order.
        order = rng.sample(OPTIONAL, len(OPTIONAL))
        out += [f"        transition take_{order[0]};", "    }"]
        for n, name in enumerate(order):
            next_state = f"take_{order[n + 1]}" if n + 1 < len(order) else "stack"
            key, case = rng.choice(
                (
                    (f"hdr.first.f{n}", "1"),
                    ("hdr.first.kind", "0x00 &&& 0x01"),
                    ("hdr.first.kind", "3 .. 99"),
                    (f"hdr.first.f{n}, hdr.first.kind", "(1, 0x80 &&& 0xc0)"),
                    (f"hdr.first.f{n}, hdr.first.n", "(_, 2 .. 7)"),
                )
            )
            out.append(
                f"    state take_{name} {{ transition select({key}) {{ {case}: do_{name}; default: {next_state}; }} }}"
            )
            out.append(f"    state do_{name} {{ b.extract(hdr.{name}); transition {next_state}; }}")
        out.append("    state stack { transition select(meta.left) { 0: behind; default: element; } }")
        out.append("    state element { b.extract(hdr.st.next); meta.left = meta.left - 1; transition stack; }")
        ahead = rng.choice(("hdr.first.f3", "b.lookahead<bit<8>>()[0:0]", "hdr.first.f3"))
        out.append(f"    state behind {{ transition select({ahead}) {{ 1: sum; default: accept; }} ")
        return "\n".join(out)

    def _text(self, ingress: list[Node], egress: list[Node]) -> str:
        rng = self.rng

        def fields(widths: dict[str, int]) -> str:
            return " ".join(f"bit<{bits}> {name};" for name, bits in widths.items())

        checked = "hdr.sum.isValid(), { hdr.sum.a, hdr.sum.b }, hdr.sum.sum, HashAlgorithm.csum16"
        emits = "b.emit(hdr);"
        if rng.random() < 0.4:
            # A deparser may emit header by header, in another order.
            last = rng.sample(("o0", "o1", "o2", "st", "sum"), 5)
            emits = " ".join(f"b.emit(hdr.{name});" for name in ("first", "h", "g", *last))
        pad = "    "
        declarations = [declaration(action, pad) for action in self.egress_actions] + [
            egress_table.text(pad) for egress_table in self.egress_tables
        ]
        return PROGRAM_TEMPLATE.format(
            seed=self.seed,
            stack=STACK,
            h=fields(self.h),
            o=fields(self.o),
            e=fields(self.e),
            s=fields(self.s),
            functions="\n".join(declaration(function, "") for function in self.functions),
            parser=self._parser(),
            verify=f"verify_checksum({checked});" if rng.random() < 0.3 else "",
            controls="\n".join(declaration(control, "") for control in self.controls),
            actions="\n".join(declaration(action, pad) for action in self.actions + self.table_actions),
            tables="\n".join(table.text(pad) for table in self.tables if table not in self.waiting),
            instances="\n".join(f"    {control.name}() {control.name}_i;" for control in self.controls),
            ingress="\n".join(lines(ingress, pad * 2)),
            egress_tables="\n".join(declarations),
            egress="\n".join(lines(egress, pad * 3)),
            update=f"update_checksum({checked});" if rng.random() < 0.5 else "",
            deparser=emits,
        )

    # ---- entries and packets

    def _state(self) -> list[str]:
        out = [
            f"mc_mgrp_create {MULTICAST}",
            "mc_node_create 1 5",
            "mc_node_create 2 6",
            *(f"mc_node_associate {MULTICAST} {node}" for node in (0, 1)),
            f"mirroring_add {CLONES} 7",
        ]
        return out + [
            row for table in (*self.tables, *self.egress_tables) if table not in self.waiting for row in table.script
        ]

    def _packets(self, count: int) -> list[str]:
        rng = self.rng
        out = []
        for _ in range(count):
            first = rng.choice((0, 1, 0x10, 0x7F, rng.randrange(256), rng.randrange(256)))
            elements = rng.choice((0, 0, 1, 2, 3, rng.randrange(16)))
            frame = bytes((first, elements << 4 | rng.randrange(16)))
            for header, times in ((self.h, 2), (self.o, 3), (self.e, 3)):
                frame += b"".join(self._header(header) for _ in range(times))
            frame += rng.randbytes(rng.choice((0, 6, 6, 20)))
            if rng.random() < 0.15:
                frame = frame[: rng.randrange(1, len(frame))]
            out.append(f"packet {rng.randrange(1, 4)} {frame.hex()}")
        return out

    def _header(self, fields: dict[str, int]) -> bytes:
        value = 0
        for bits in fields.values():
            value = value << bits | self.value(bits)
        return value.to_bytes(sum(fields.values()) // 8, "big")
