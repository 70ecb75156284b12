"""C text being written: names, literals, types, and lines of which some are known only at the end."""

from __future__ import annotations

import re
from collections.abc import Callable

from mrc_testbed.switch.compiler.errors import Location, raise_unsupported
from mrc_testbed.switch.compiler.sema.types import BOOL, ERROR, MAX_BITS, Bits, EnumType, Type, plain

_C_WORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while asm typeof
    linux unix i386 is_valid at main NULL dev pkt p v frame len error errno steps key data act entry result block old
    same done phv variables parse deparse ingress egress u128 i128 uint8_t uint16_t uint32_t uint64_t memcpy memset
    error_names trace_fields keep_fields begin parse_only forget send
    replace_headers varbits meters counters registers tables actions profiles digests
"""
_RESERVED_WORDS = frozenset(_C_WORDS.split())
_RESERVED_PATTERN = re.compile(
    r"(p4|P4|_|U128$|(action|table|control|state|stack|array|function|varbit|wide|metered|tuple|ACTION)_|\w+_(MAX|MIN|WIDTH|C)$)|\w+_$"
)
"""Names of the generated file, p4rt.h and the C headers, and names that end like escaped ones."""


def c_name(name: str) -> str:
    """A P4 name as a C name, one to one: those that mean something to C get an underscore behind."""
    return name + "_" if name in _RESERVED_WORDS or _RESERVED_PATTERN.match(name) else name


def c_comment(text: str) -> str:
    """Text from outside (file names, @name) made harmless in a C comment."""
    clean = "".join(char if 32 <= ord(char) < 127 else "?" for char in text)
    return clean.replace("*/", "* /").replace("/*", "/ *")


def c_word(name: str) -> str:
    """A dotted control-plane name as one C word: for names of functions and constants."""
    return "".join(char if char.isalnum() else "_" for char in name)


def c_string(text: str) -> str:
    """A C string literal."""
    out = "".join(
        char if 32 <= ord(char) < 127 and char not in '"\\?' else "".join(f"\\{byte:03o}" for byte in char.encode())
        for char in text
    )
    return f'"{out}"'


def bits_of(p4_type: Type, location: Location) -> int:
    """Bits of a scalar in C. Raises P4Error for those that are too wide."""
    base = plain(p4_type)
    if isinstance(base, Bits):
        if not 0 <= base.width <= MAX_BITS:
            raise_unsupported(location, f"{base}", f"up to {MAX_BITS} bits are")
        return base.width
    if isinstance(base, EnumType):
        return 32
    if base == BOOL:
        return 1
    if base == ERROR:
        return 32
    raise_unsupported(location, f"a value of type {p4_type}")


def c_type(bits: int) -> str:
    """The smallest C integer with that many bits."""
    for width in (8, 16, 32, 64):
        if bits <= width:
            return f"uint{width}_t"
    return "u128"


def work_type(bits: int) -> str:
    """C integer to compute in: never one that C would promote to a signed int."""
    return "uint32_t" if bits <= 32 else "uint64_t" if bits <= 64 else "u128"


def literal(value: int) -> str:
    """A non-negative value below 2**128."""
    if value < 10:
        return str(value)
    if value < 1 << 31:
        return str(value) if value < 1000 else hex(value)
    if value < 1 << 32:
        return f"{hex(value)}u"
    if value < 1 << 64:
        return f"{hex(value)}ull"
    return f"U128({hex(value >> 64)}ull, {hex(value & (1 << 64) - 1)}ull)"


def mask_text(text: str, bits: int) -> str:
    """`text`, of type work_type(bits), cut to `bits` bits."""
    if bits in (32, 64, 128):
        return text
    return f"({text} & {literal((1 << bits) - 1)})"


def narrow_text(text: str, bits: int, target_bits: int) -> str:
    """Narrow `text`, computed with `bits` bits, to the C type of `target_bits`; `mask_text` relies on it."""
    return f"({c_type(target_bits)}){text}" if work_type(bits) != work_type(target_bits) else text


def location_string(location: Location) -> str:
    """A place as a C string literal, for trace events."""
    return c_string(location.short_text)


DeferredLines = Callable[[], list[str]]


class Code:
    """Lines of C with their indentation.

    A line may be a function that returns its lines when all else is written.
    """

    def __init__(self) -> None:
        self.lines: list[tuple[int, str | DeferredLines]] = []
        self.depth = 0

    def add(self, *lines: str) -> None:
        for line in lines:
            self.lines.append((self.depth, line))

    def add_deferred(self, lines: DeferredLines) -> None:
        self.lines.append((self.depth, lines))

    def open(self, line: str) -> None:
        self.add(line)
        self.depth += 1

    def close(self, line: str = "}") -> None:
        self.depth -= 1
        self.add(line)

    def text(self) -> str:
        out = []
        for depth, line in self.lines:
            for text_line in [line] if isinstance(line, str) else line():
                out.append("    " * depth + text_line if text_line else "")
        return "\n".join(out) + "\n"
