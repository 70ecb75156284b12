"""Expressions -> C expressions.

Values are unsigned C integers with the unused high bits zero (p4ops.h). Header fields that are read or written are
noted per header, so that the parser loads only these and the deparser stores only those written.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from switch.p4 import tree
from switch.p4.check_calls import data_fields, is_data
from switch.p4.code import Code, bits_of, c_name, c_type, literal, masked, narrowed, work_type
from switch.p4.elaborate import ControlInstance, Program
from switch.p4.errors import Location, unsupported
from switch.p4.tree import walk
from switch.p4.types import (
    BOOL,
    ERROR,
    INT,
    MAX_BITS,
    STRING,
    Applied,
    Bits,
    Enum,
    Record,
    Stack,
    Tuple,
    Type,
    Varbit,
    Wide,
    form,
)

_STD = "standard_metadata_t"


@dataclass(frozen=True)
class Place:
    """Something that can be read, and perhaps written: a C lvalue and what it stands for in P4.

    `key` names it in the bookkeeping of header fields: `p.hdr.outer`; equal keys are one thing.
    """

    c: str
    type: Type
    key: str
    shared: bool = False
    """Outlives the function (the packet's headers and metadata): may be passed by name instead of by copy."""
    field: tuple[str, Record, str] | None = None
    """Of a header's field: key of the header, its type, name of the field."""
    siblings: tuple[str, ...] = ()
    """Of a member of a header union: the others, of which none is valid when this one is."""


@dataclass
class Usage:
    """Fields of the headers of the program that are read and written anywhere, as (key of the header, field)."""

    reads: set[tuple[str, str]] = field(default_factory=set)
    writes: set[tuple[str, str]] = field(default_factory=set)
    types: dict[str, Record] = field(default_factory=dict)

    def note(self, key: str, record: Record, names: Any, write: bool) -> None:
        self.types[key] = record
        (self.writes if write else self.reads).update((key, name) for name in names)

    def touched(self, key: str) -> list[str]:
        """Fields of the header `key` that are read or written, in the order of the header."""
        both = self.reads | self.writes
        return [name for name in self.types[key].fields if (key, name) in both] if key in self.types else []

    def of_type(self, record: Record) -> list[str]:
        """Fields of any header of this type that are read or written."""
        keys = [key for key, of in self.types.items() if of is record]
        used = {name for key in keys for name in self.touched(key)}
        return [name for name in record.fields if name in used]


@dataclass
class Frame:
    """Where code is being written: a function of the C file."""

    code: Code
    bindings: dict[int, Place]
    """id() of a Param or Var -> its place."""
    control: ControlInstance | None
    phase: str
    used_names: set[str] = field(default_factory=set)
    at_exit: str = "return 1;"
    in_parser: bool = False
    labels: str = ""
    """Of a parser: what tells the labels of this application from others."""
    accept: str = "done"
    """Label that `accept` goes to."""
    loops: list[tuple[str, str]] = field(default_factory=list)
    """Labels that break and continue of the loops around go to, the innermost last."""
    returns: Type | None = None
    """Of a function of the program: the type of its result."""

    def name(self, wanted: str) -> str:
        """A C name for a local, not used before in this function."""
        base, n = c_name(wanted), 2
        out = base
        while out in self.used_names:
            out, n = f"{base}_{n}", n + 1
        self.used_names.add(out)
        return out


class ExprEmitter:
    """Writes expressions. `frame` is the function being written."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.usage = Usage()
        self.structs: list[Record | Stack | Varbit] = []
        self.temporaries = 0
        self.implied_lists: list[list[str]] = []
        """Field lists given in place: C paths below the metadata."""

    # ---- places

    def struct(self, record: Record | Stack | Varbit) -> str:
        """C type of a struct, header, stack or varbit; remembers that it is needed, parts before the whole."""
        if isinstance(record, (Varbit, Wide)):
            if record not in self.structs:
                self.structs.append(record)
            return f"struct {'wide' if isinstance(record, Wide) else 'varbit'}_{record.width}"
        if isinstance(record, Stack):
            self.struct(record.element)
            if record not in self.structs:
                self.structs.append(record)
            return f"struct stack_{c_name(record.element.name)}_{record.size}"
        if record not in self.structs:
            for of in record.fields.values():
                base = form(of)
                if isinstance(base, (Record, Stack, Varbit, Wide)):
                    self.struct(base)
            self.structs.append(record)
        return f"struct {c_name(record.name)}"

    def declare_type(self, of: Type, where: Location) -> str:
        base = form(of)
        if isinstance(base, Wide) and base.width % 8:
            unsupported(where, f"{of}", "more than 128 bits are in whole bytes")
        if isinstance(base, (Record, Stack, Varbit, Wide)):
            return self.struct(base)
        return c_type(bits_of(of, where))

    def place(self, e: tree.Expr, frame: Frame) -> Place:
        """The place an expression names. Raises P4Error for what the backend cannot address."""
        if isinstance(e, tree.Path):
            found = frame.bindings.get(id(e.decl))
            if found is None and isinstance(e.decl, tree.Const) and isinstance(form(e.type), (Record, Wide)):
                return self.temporary_place(e.decl.value, frame)
            if found is None:
                unsupported(e.where, f"{e.name} here")
            return found
        if isinstance(e, tree.Index) and isinstance(e.base.type, Stack):
            return self._element(self.place(e.base, frame), e.index, frame)
        if isinstance(e, tree.Index):
            assert isinstance(e.base.type, Tuple)
            tuple_place = self.place(e.base, frame)
            return parts_of(tuple_place)[e.index.const]
        if isinstance(e, tree.Member) and isinstance(e.base.type, Stack):
            return self.last_or_next(self.place(e.base, frame), e, frame)
        if isinstance(e, tree.Member):
            base = self.place(e.base, frame)
            record = form(base.type)
            assert isinstance(record, Record)
            name = e.name if record.name == _STD else c_name(e.name)
            part = (base.key, record, e.name) if record.kind == "header" else base.field
            others: tuple[str, ...] = ()
            if record.kind == "header_union":
                others = tuple(f"{base.c}.{c_name(one)}" for one in record.fields if one != e.name)
            return Place(f"{base.c}.{name}", record.fields[e.name], f"{base.key}.{e.name}", base.shared, part, others)
        if isinstance(form(e.type), (Record, Stack, Wide)):
            return self.temporary_place(e, frame)
        unsupported(e.where, "this as something to write to")

    def temporary_place(self, e: tree.Expr, frame: Frame) -> Place:
        """A new local that holds the value of an expression that is no place: a list, a call, a choice."""
        self.temporaries += 1
        name = frame.name("t")
        place = Place(name, e.type, f"temporary {self.temporaries}")
        frame.code.add(f"{self.declare_type(e.type, e.where)} {name} = {{0}};")
        self.assign(place, e, frame)
        return place

    def assign(self, place: Place, e: tree.Expr, frame: Frame) -> None:
        """place = e; written by emit_stmt.py."""
        raise NotImplementedError

    def acts(self, e: Any) -> bool:
        """Does evaluating an expression do anything but give a value, or need statements before it?"""
        return any(
            isinstance(one, tree.Call)
            and one.callee is not None
            and (one.callee.kind in ("user", "table", "method") or one.callee.kind == "function")
            for one in walk(e)
        )

    def values(self, exprs: list[tree.Expr], frame: Frame) -> list[str]:
        """C values of expressions evaluated from left to right: what a later one may change is taken before it."""
        out = []
        for at, e in enumerate(exprs):
            text = self.value(e, frame)
            if e.const is None and any(self.acts(one) for one in exprs[at + 1 :]):
                name = frame.name("t")
                frame.code.add(f"{self.declare_type(e.type, e.where)} {name} = {text};")
                text = name
            out.append(text)
        return out

    def _element(self, stack: Place, index: tree.Expr, frame: Frame) -> Place:
        """stack[index]. An index beyond the end, known only at run time, means an element that nobody sees."""
        of = form(stack.type)
        assert isinstance(of, Stack)
        if index.const is not None:
            return element_of(stack, index.const)
        name = frame.name("i")
        frame.code.add(f"uint32_t {name} = p4_index({self.value(index, frame)}, {of.size});")
        return replace(element_of(stack, 0), c=f"{stack.c}.h[{name}]", shared=False)

    def last_or_next(self, stack: Place, e: tree.Member, frame: Frame) -> Place:
        """stack.next and stack.last, which only a parser has (emit_parser.py)."""
        unsupported(e.where, f"`{e.name}` of a header stack here")

    def alone(self, place: Place, frame: Frame) -> None:
        """A member of a header union has become valid: the others are not."""
        frame.code.add(*(f"{one}.is_valid = 0;" for one in place.siblings))

    def note(self, place: Place, write: bool) -> None:
        """A place is read or written: remember which fields of which headers that touches."""
        if place.field:
            key, record, name = place.field
            self.usage.note(key, record, [name], write)
        self.note_whole(place, write)

    def note_whole(self, place: Place, write: bool) -> None:
        """A struct or header is read or written as a whole: all fields of all headers in it."""
        record = form(place.type)
        if isinstance(record, Stack):
            self.note_whole(element_of(place, 0), write)
        elif isinstance(record, Record) and record.kind == "header":
            self.usage.note(place.key, record, record.fields, write)
        elif isinstance(record, Record):
            for one in parts_of(place):
                self.note_whole(one, write)

    # ---- values

    def value(self, e: tree.Expr, frame: Frame) -> str:
        """C expression for the value of a scalar."""
        if e.const is not None and not (isinstance(e, tree.Call) and e.callee.kind != "header"):
            return self.constant(e)
        return getattr(self, "_" + type(e).__name__.lower())(e, frame)

    def constant(self, e: tree.Expr) -> str:
        of = form(e.type)
        if isinstance(e.const, str):
            if e.type == ERROR:
                return f"P4_ERROR_{e.const}"
            if isinstance(e.type, Enum):
                return literal(e.type.number(e.const) & 0xFFFFFFFF, 32)
            unsupported(e.where, "a string here")
        if of == BOOL:
            return "1" if e.const else "0"
        bits = bits_of(of, e.where) if isinstance(of, Bits) else 128
        if of == INT and not 0 <= e.const < 1 << 128:
            unsupported(e.where, f"the number {e.const}", "give it a width")
        return literal(e.const & (1 << bits) - 1, bits)

    def _path(self, e: tree.Path, frame: Frame) -> str:
        if isinstance(e.decl, tree.Param) and frame.control and e.decl.name in frame.control.constants:
            bits = bits_of(e.type, e.where)
            return literal(int(frame.control.constants[e.decl.name]) & (1 << bits) - 1, bits)
        if isinstance(e.decl, tree.Const):
            return self.value(e.decl.value, frame)
        return self._read(e, frame)

    def _read(self, e: tree.Expr, frame: Frame) -> str:
        place = self.place(e, frame)
        self.note(place, False)
        if not isinstance(form(place.type), Record):
            bits_of(place.type, e.where)
        return place.c

    def _member(self, e: tree.Member, frame: Frame) -> str:
        if isinstance(e.base.type, Applied):
            assert isinstance(e.base, tree.Call)
            call = self.call_value(e.base, frame)
            return f"{call}.hit" if e.name == "hit" else f"!{call}.hit"
        if isinstance(e.base.type, Stack) and e.name == "lastIndex":
            return f"({self.place(e.base, frame).c}.next - 1)"
        return self._read(e, frame)

    def _index(self, e: tree.Index, frame: Frame) -> str:
        return self._read(e, frame)

    def call_value(self, e: tree.Call, frame: Frame) -> str:
        """C expression of a call; statements (emit_stmt.py) knows tables and functions."""
        raise NotImplementedError

    def _call(self, e: tree.Call, frame: Frame) -> str:
        if e.callee.kind == "header":
            return self._is_valid(self.place(e.callee.base, frame))
        return self.call_value(e, frame)

    def _is_valid(self, place: Place) -> str:
        record = form(place.type)
        if isinstance(record, Record) and record.kind == "header_union":
            return "(" + " | ".join(self._is_valid(one) for one in parts_of(place)) + ")"
        self.note_valid(place)
        return f"{place.c}.is_valid"

    def note_valid(self, place: Place) -> None:
        self.usage.note(place.key, form(place.type), [], False)  # type: ignore[arg-type]

    def _slice(self, e: tree.Slice, frame: Frame) -> str:
        high, low = e.high.const, e.low.const
        whole = form(e.base.type)
        if isinstance(whole, Wide):
            place = self.place(e.base, frame)
            self.note(place, False)
            bits = high - low + 1
            return f"({c_type(bits)}){load_bits(f'{place.c}.b', whole.width - 1 - high, bits_of(e.type, e.where))}"
        text, bits = self.value(e.base, frame), bits_of(e.base.type, e.where)
        if low:
            text = f"({text} >> {low})"
        if high < bits - 1:
            text = f"({text} & {literal((1 << high - low + 1) - 1, bits)})"
        return narrowed(text, bits, high - low + 1)

    def _unary(self, e: tree.Unary, frame: Frame) -> str:
        text = self.value(e.operand, frame)
        if e.op == "!":
            return f"!{text}" if text[0] != "!" else f"!({text})"
        if e.op == "+":
            return text
        bits = bits_of(e.type, e.where)
        return masked(f"({e.op}({work_type(bits)}){text})", bits)

    def _ternary(self, e: tree.Ternary, frame: Frame) -> str:
        if self.acts(e.then) or self.acts(e.other):
            name = frame.name("t")
            frame.code.add(f"{self.declare_type(e.type, e.where)} {name};")
            frame.code.open(f"if ({self.value(e.condition, frame)}) {{")
            frame.code.add(f"{name} = {self.value(e.then, frame)};")
            frame.code.close("} else {")
            frame.code.depth += 1
            frame.code.add(f"{name} = {self.value(e.other, frame)};")
            frame.code.close()
            return name
        parts = [self.value(one, frame) for one in (e.condition, e.then, e.other)]
        return f"({parts[0]} ? {parts[1]} : {parts[2]})"

    def _cast(self, e: tree.Cast, frame: Frame) -> str:
        of, to = form(e.operand.type), form(e.type)
        if isinstance(of, Wide) and isinstance(to, Bits):
            place = self.place(e.operand, frame)
            self.note(place, False)
            return f"({c_type(to.width)}){load_bits(f'{place.c}.b', of.width - to.width, to.width)}"
        text = self.value(e.operand, frame)
        if of in (to, BOOL):
            return text
        if to == BOOL:
            return f"({text} != 0)"
        assert isinstance(of, Bits) and isinstance(to, Bits)
        bits_of(to, e.where)
        if to.width > of.width:
            if of.signed:
                text = f"((u128)p4_signed({text}, {of.width}) & {literal((1 << to.width) - 1, 128)})"
            return f"({c_type(to.width)}){text}"
        if to.width == of.width:
            return text
        text = f"({text} & {literal((1 << to.width) - 1, to.width)})"
        return narrowed(text, of.width, to.width)

    # ---- binary operators

    def _binary(self, e: tree.Binary, frame: Frame) -> str:
        if e.op in ("==", "!="):
            return self._equality(e, frame)
        if e.op in ("&&", "||"):
            return self._logical(e, frame)
        left, right = self.values([e.left, e.right], frame)
        of = form(e.left.type)
        assert isinstance(of, Bits)
        bits = bits_of(of, e.where)
        if e.op in ("<", ">", "<=", ">="):
            if of.signed:
                left, right = f"p4_signed({left}, {bits})", f"p4_signed({right}, {bits})"
            return f"({left} {e.op} {right})"
        if e.op in ("&", "|", "^"):
            return f"({left} {e.op} {right})"
        if e.op in ("/", "%"):
            return f"({c_type(bits)})p4_{'div' if e.op == '/' else 'mod'}({left}, {right})"
        if e.op in ("+", "-", "*"):
            return masked(f"(({work_type(bits)}){left} {e.op} {right})", bits)
        if e.op == "++":
            low = bits_of(e.right.type, e.where)
            return f"(({work_type(bits_of(e.type, e.where))}){left} << {low} | {right})"
        if e.op in ("|+|", "|-|"):
            return self._saturating(e.op, left, right, of)
        return self._shift(e, left, right, of)

    def _logical(self, e: tree.Binary, frame: Frame) -> str:
        """&& and ||: the right side is evaluated only when it matters."""
        if not self.acts(e.right):
            return f"({self.value(e.left, frame)} {e.op} {self.value(e.right, frame)})"
        name = frame.name("t")
        frame.code.add(f"uint8_t {name} = {self.value(e.left, frame)};")
        frame.code.open(f"if ({'' if e.op == '&&' else '!'}{name}) {{")
        frame.code.add(f"{name} = {self.value(e.right, frame)};")
        frame.code.close()
        return name

    @staticmethod
    def _saturating(op: str, left: str, right: str, of: Bits) -> str:
        word = "add" if op == "|+|" else "sub"
        if of.signed:
            return f"({c_type(of.width)})p4_{word}_sat_signed({left}, {right}, {of.width})"
        tail = f", {of.width}" if word == "add" else ""
        return f"({c_type(of.width)})p4_{word}_sat({left}, {right}{tail})"

    def _shift(self, e: tree.Binary, left: str, right: str, of: Bits) -> str:
        bits, by = of.width, e.right.const
        if e.op == "<<":
            if by is None:
                return f"({c_type(bits)})p4_shl({left}, {right}, {bits})"
            return masked(f"(({work_type(bits)}){left} << {by})", bits) if by < bits else "0"
        if of.signed:
            return f"({c_type(bits)})p4_sar({left}, {right if by is None else min(by, bits)}, {bits})"
        if by is None:
            return f"({c_type(bits)})p4_shr({left}, {right})"
        return f"({left} >> {by})" if by < bits else "0"

    def _equality(self, e: tree.Binary, frame: Frame) -> str:
        record = form(e.left.type)
        if not isinstance(record, (Record, Stack, Varbit, Wide)):
            if e.left.type == STRING or (not isinstance(record, (Bits, Enum)) and record not in (BOOL, ERROR, INT)):
                unsupported(e.where, f"comparing values of type {e.left.type}")
            left_text, right_text = self.values([e.left, e.right], frame)
            return f"({left_text} {e.op} {right_text})"
        left, right = self.place(e.left, frame), self.place(e.right, frame)
        self.note_whole(left, False)
        self.note_whole(right, False)
        text = self._same(left, right)
        return text if e.op == "==" else f"!{text}"

    def _same(self, left: Place, right: Place) -> str:
        record = form(left.type)
        if isinstance(record, Wide):
            return f"(!memcmp({left.c}.b, {right.c}.b, {record.width // 8}))"
        if isinstance(record, Varbit):
            return f"(p4_same_varbit({left.c}.bits, {left.c}.bytes, {right.c}.bits, {right.c}.bytes))"
        if not isinstance(record, (Record, Stack)):
            return f"({left.c} == {right.c})"
        pairs = zip(parts_of(left), parts_of(right), strict=True)
        body = " && ".join(self._same(*pair) for pair in pairs) or "1"
        if isinstance(record, Record) and record.kind == "header":
            both = f"{left.c}.is_valid == {right.c}.is_valid"
            return f"({both} && (!{left.c}.is_valid || ({body})))"
        return f"({body})"

    # ---- values laid out as bits: hashes and checksums

    def packed(self, data: list[tree.Expr], frame: Frame, buffer: str) -> int | str:
        """Write statements that lay out values, most significant bit first, in `buffer`; returns its bytes (C)."""
        leaves: list[tuple[str, int | Varbit]] = []
        for e in data:
            for leaf, of in data_fields(e):
                assert leaf is not None
                if of == INT:
                    unsupported(leaf.where, "a number without a width here", "write 8w1, say")
                if not is_data(of):
                    unsupported(leaf.where, f"a {of} as data of a hash")
                self._leaves(leaf, of, frame, leaves)
        fixed = [bits for _, bits in leaves if isinstance(bits, int)]
        if len(fixed) < len(leaves):
            return self._packed_varbits(leaves, frame, buffer)
        total = sum(fixed)
        size = (total + 7) // 8
        clear = "" if total == 0 or all(bits % 8 == 0 for bits in fixed) else " = {0}"
        frame.code.add(f"uint8_t {buffer}[{max(size, 1)}]{clear};")
        at = 0
        for (text, _), bits in zip(leaves, fixed, strict=True):
            frame.code.add(store_bits(buffer, at, bits, text))
            at += bits
        return size

    @staticmethod
    def _packed_varbits(leaves: list[tuple[str, int | Varbit]], frame: Frame, buffer: str) -> str:
        """The same where a varbit field makes the places of what follows it known at run time only."""
        most = sum(bits if isinstance(bits, int) else bits.width for _, bits in leaves)
        at = frame.name("bits")
        frame.code.add(f"uint8_t {buffer}[{(most + 7) // 8}] = {{0}};", f"uint32_t {at} = 0;")
        for text, bits in leaves:
            if isinstance(bits, int):
                frame.code.add(f"p4_put_bits({buffer}, {at}, {bits}, {text});", f"{at} += {bits};")
                continue
            byte = frame.name("i")
            frame.code.open(f"for (uint32_t {byte} = 0; {byte} < {text}.bits / 8u; {byte}++, {at} += 8)")
            frame.code.add(f"p4_put_bits({buffer}, {at}, 8, {text}.bytes[{byte}]);")
            frame.code.depth -= 1
        return f"({at} + 7) / 8"

    def padded(self, e: tree.Expr, of: Type, frame: Frame, buffer: str) -> int:
        """Write statements that lay out a value for the control plane (typespec.py) in `buffer`; returns its bytes."""
        leaves: list[tuple[str, int]] = []
        self._padded(e, of, frame, leaves)
        size = sum((bits + 7) // 8 for _, bits in leaves)
        frame.code.add(f"uint8_t {buffer}[{max(size, 1)}];")
        at = 0
        for text, bits in leaves:
            width = (bits + 7) // 8 * 8
            frame.code.add(store_bits(buffer, at, width, text))
            at += width
        return size

    def _padded(self, e: tree.Expr, of: Type, frame: Frame, out: list[tuple[str, int]]) -> None:
        base = form(of)
        if isinstance(e, tree.Path) and isinstance(e.decl, tree.Const):
            self._padded(e.decl.value, of, frame, out)
        elif isinstance(base, (Record, Tuple)) and isinstance(e, (tree.ListExpr, tree.RecordExpr)):
            parts = list(base.fields.values()) if isinstance(base, Record) else list(base.items)
            named = dict(e.items) if isinstance(e, tree.RecordExpr) else {}
            items = [named[one] for one in base.fields] if named and isinstance(base, Record) else list(e.items)
            if isinstance(base, Record) and base.kind == "header":
                out.append(("1", 8))
            for item, part in zip(items, parts, strict=True):
                self._padded(item, part, frame, out)
        elif isinstance(base, Record):
            place = self.place(e, frame)
            self.note_whole(place, False)
            self._padded_place(place, e.where, out)
        elif of == INT:
            unsupported(e.where, "a number without a width here", "write 8w1, say")
        else:
            out.append((self.value(e, frame), bits_of(of, e.where)))

    def _padded_place(self, place: Place, where: Location, out: list[tuple[str, int]]) -> None:
        record = form(place.type)
        if not isinstance(record, Record):
            out.append((place.c, bits_of(place.type, where)))
            return
        if record.kind == "header":
            out.append((f"{place.c}.is_valid", 8))
        for name, of in record.fields.items():
            self._padded_place(Place(f"{place.c}.{c_name(name)}", of, ""), where, out)

    def _leaves(self, e: tree.Expr, of: Type, frame: Frame, out: list[tuple[str, int | Varbit]]) -> None:
        if not isinstance(form(of), (Record, Stack, Varbit, Wide)):
            out.append((self.value(e, frame), bits_of(of, e.where)))
            return
        place = self.place(e, frame)
        self.note(place, False)
        self._spread(place, e.where, out)

    def _spread(self, place: Place, where: Location, out: list[tuple[str, int | Varbit]]) -> None:
        record = form(place.type)
        if isinstance(record, Varbit):
            out.append((place.c, record))
        elif isinstance(record, Wide):
            out.append((place.c, wide_bits(record, where)))
        elif isinstance(record, (Record, Stack)):
            for one in parts_of(place):
                self._spread(one, where, out)
        else:
            out.append((place.c, bits_of(place.type, where)))


def element_of(stack: Place, index: int) -> Place:
    """An element of a header stack. All of them share one key: what is read of one is loaded for all."""
    of = form(stack.type)
    assert isinstance(of, Stack)
    return Place(f"{stack.c}.h[{index}]", of.element, f"{stack.key}[]", stack.shared)


def parts_of(place: Place) -> list[Place]:
    """The fields of a struct or header, or the elements of a stack."""
    of = form(place.type)
    if isinstance(of, Stack):
        return [element_of(place, index) for index in range(of.size)]
    assert isinstance(of, Record)
    return [
        Place(f"{place.c}.{c_name(name)}", one, f"{place.key}.{name}", place.shared) for name, one in of.fields.items()
    ]


def scalar_leaves(c: str, of: Type, where: Location) -> list[tuple[str, int]]:
    """(C lvalue, bits) of a header's field: more than one when it is a struct."""
    record = form(of)
    if isinstance(record, Wide):
        return [(c, wide_bits(record, where))]
    if not isinstance(record, Record):
        return [(c, bits_of(of, where))]
    return [leaf for name, one in record.fields.items() for leaf in scalar_leaves(f"{c}.{c_name(name)}", one, where)]


def wide_bits(of: Wide, where: Location) -> int:
    """Raises P4Error for a long number that is not whole bytes."""
    if of.width % 8:
        unsupported(where, f"{of}", "more than 128 bits are in whole bytes")
    return of.width


def load_field(c: str, base: str, offset: int, bits: int) -> str:
    """C statement: fill the field `c` from `bits` bits that begin `offset` bits after the pointer `base`."""
    if bits <= MAX_BITS:
        return f"{c} = {load_bits(base, offset, bits)};"
    if offset % 8 == 0:
        return f"memcpy({c}.b, {base} + {offset // 8}, {bits // 8});"
    body = f"{c}.b[i] = (uint8_t)p4_get_bits({base}, {offset} + 8 * i, 8);"
    return f"for (uint32_t i = 0; i < {bits // 8}; i++) {body}"


def load_bits(base: str, offset: int, bits: int) -> str:
    """C expression: `bits` bits that begin `offset` bits after the pointer `base`."""
    at = f"{base} + {offset // 8}" if offset >= 8 else base
    if offset % 8 == 0 and bits in (16, 32, 64, 128):
        return f"p4_get{bits}({at})"
    if offset % 8 == 0 and bits == 8:
        return f"{base}[{offset // 8}]"
    if offset % 8 == 0 and bits % 8 == 0:
        return f"p4rt_get{'' if bits <= 64 else '128'}({at}, {bits // 8})"
    last = (offset + bits - 1) // 8
    if last == offset // 8:
        shift = 7 - (offset + bits - 1) % 8
        moved = f"{base}[{last}] >> {shift}" if shift else f"{base}[{last}]"
        return f"({moved} & {literal((1 << bits) - 1, 8)})"
    return f"({c_type(bits)})p4_get_bits({base}, {offset}, {bits})"


def store_bits(base: str, offset: int, bits: int, value: str) -> str:
    """C statement: store a value of `bits` bits there, leaving the bits around it alone."""
    if bits > MAX_BITS:
        if offset % 8 == 0:
            return f"memcpy({base} + {offset // 8}, {value}.b, {bits // 8});"
        body = f"p4_put_bits({base}, {offset} + 8 * i, 8, {value}.b[i]);"
        return f"for (uint32_t i = 0; i < {bits // 8}; i++) {body}"
    at = f"{base} + {offset // 8}" if offset >= 8 else base
    if offset % 8 == 0 and bits in (16, 32, 64, 128):
        return f"p4_put{bits}({at}, {value});"
    if offset % 8 == 0 and bits == 8:
        return f"{base}[{offset // 8}] = (uint8_t){value};"
    if offset % 8 == 0 and bits % 8 == 0:
        return f"p4rt_put{'' if bits <= 64 else '128'}({at}, {value}, {bits // 8});"
    return f"p4_put_bits({base}, {offset}, {bits}, {value});"
