"""STF, the language in which p4c's tests say what a switch does with packets: text -> commands.

    # forward by destination
    add ipv4_lpm hdr.ipv4.dst:10.0.1.0/24 forward(port:2)
    packet 1 ffffffffffff 020000000001 0800 45...
    expect 2 ffffffffffff ************ 0800 45* $

One command a line, `#` begins a comment. What each command means, which are p4c's and which are ours, and how values
are written: docs/p4-development.md. switch/tools/stf_run.py runs a script against a device in memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class StfError(Exception):
    """A script that cannot be read or run: `file:line: what, and what would have worked`."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(f"{where}: {message}")
        self.where = where
        self.message = message


@dataclass(frozen=True, slots=True)
class StfCall:
    """`forward(port:2)`: names and values as written."""

    name: str
    args: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """One line. `word` is its first word; `fields` depend on it (see _READERS)."""

    where: str
    word: str
    fields: dict[str, Any] = field(default_factory=dict)
    text: str = ""


def read_script(path: Path) -> list[Command]:
    """The commands of a file. Raises StfError."""
    try:
        text = path.read_text()
    except OSError as error:
        raise StfError(str(path), error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise StfError(str(path), "is not UTF-8 text") from None
    return parse_script(text, str(path))


def parse_script(text: str, name: str = "<stf>") -> list[Command]:
    """The commands of a text; `name` stands for the file in messages. Raises StfError."""
    out: list[Command] = []
    macros: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{name}:{number}"
        line = line.partition("#")[0].strip()
        for macro, data in macros.items():
            line = line.replace(f"{{{macro}}}", data)
        if not line:
            continue
        left = re.search(r"\{\w*\}", line)
        if left:
            raise StfError(where, f"{left[0]} is not defined: write `let {left[0][1:-1]} DATA` before it")
        word, rest = _word(line)
        if word == "let":
            macro, data = _word(rest)
            if not re.fullmatch(r"\w+", macro) or not data:
                raise StfError(where, "let takes a name and data: let eth ffffffffffff 020000000001 0800")
            macros[macro] = data
            continue
        out += _command(where, word, rest, line)
    return out


def _command(where: str, word: str, rest: str, line: str) -> list[Command]:
    word = word.lower()
    if word == "repeat":
        times, rest = _word(rest)
        count = _natural(where, times, "repeat")
        if count > 100_000:
            raise StfError(where, f"repeat {count}: at most 100000 times")
        inner, rest = _word(rest)
        return _command(where, inner, rest, line) * count
    reader = _READERS.get(word)
    if reader is None:
        raise StfError(where, f"no command {word!r} (has: {', '.join(sorted({*_READERS, 'let', 'repeat'}))})")
    return [Command(where, word, reader(where, rest), line)]


def _word(text: str) -> tuple[str, str]:
    head, *tail = text.split(None, 1) or [""]
    return head, tail[0].strip() if tail else ""


def _natural(where: str, text: str, what: str) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        raise StfError(where, f"{what}: {text!r} is no number") from None
    if value < 0:
        raise StfError(where, f"{what}: {value} is negative")
    return value


def seconds(where: str, text: str) -> float:
    """A time such as 5, 10ms, 2.5us, 1s; without a unit: seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|ms|us|ns)?", text)
    if not found:
        raise StfError(where, f"{text!r} is no time (want 10ms, 2us, 1s)")
    return float(found[1]) * {"s": 1, None: 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[found[2]]


def bits_per_second(where: str, text: str) -> int:
    """A rate such as 10M, 2.5G, 64000."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kKMG]?)", text)
    if not found:
        raise StfError(where, f"{text!r} is no rate (want 10M, 64k, 1G: bits per second)")
    return round(float(found[1]) * {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}[found[2]])


# ---- lines: (where, rest of the line) -> fields


def _packet(where: str, rest: str) -> dict[str, object]:
    port, data = _word(rest)
    digits = "".join(data.split())
    if not re.fullmatch(r"[0-9a-fA-F]*", digits):
        raise StfError(where, f"packet data must be hexadecimal, not {data[:40]!r}")
    if len(digits) % 2:  # p4c's runner makes a byte of a last digit that stands alone
        digits = f"{digits[:-1]}0{digits[-1]}"
    return {"port": _natural(where, port, "port"), "data": bytes.fromhex(digits)}


def _expect(where: str, rest: str) -> dict[str, object]:
    port, data = _word(rest)
    digits = "".join(data.split()).lower()
    exact = digits.endswith("$")
    digits = digits.removesuffix("$")
    if not re.fullmatch(r"[0-9a-f*]*", digits):
        raise StfError(where, f"expected data is hexadecimal with * for any digit, not {data[:40]!r}")
    return {"port": _natural(where, port, "port"), "digits": digits, "exact": exact, "any": not digits and not exact}


def parse_call(where: str, text: str) -> StfCall:
    """`name(arg:value, ...)`, or a name alone."""
    found = re.fullmatch(r"([\w.$\[\]]+)\s*(?:\((.*)\))?", text.strip())
    if not found:
        raise StfError(where, f"{text!r} is no action: write name(parameter:value, ...)")
    args = []
    for one in filter(None, map(str.strip, (found[2] or "").split(","))):
        name, colon, value = one.partition(":")
        if not colon:
            raise StfError(where, f"{one!r}: arguments are written parameter:value")
        args.append((name.strip(), value.strip()))
    return StfCall(found[1], tuple(args))


def _add(where: str, rest: str) -> dict[str, object]:
    table, rest = _word(rest)
    handle = None
    found = re.search(r"=\s*(\$?\w+)\s*$", rest)
    if found:
        handle, rest = found[1].lstrip("$"), rest[: found.start()].strip()
    priority = None
    if re.fullmatch(r"\d+", _word(rest)[0]):
        text, rest = _word(rest)
        priority = int(text)
    opening = rest.find("(")
    head = rest[:opening].split() if opening >= 0 else rest.split()
    if not table or not head:
        raise StfError(where, "add takes TABLE [PRIORITY] KEY:VALUE ... ACTION(PARAMETER:VALUE, ...)")
    action = head.pop() + (rest[opening:] if opening >= 0 else "")
    matches = []
    for one in head:
        found = re.fullmatch(r"([^:\[]*(?:\[[^\]]*\][^:\[]*)*):(.*)", one)  # a name may have [7:0] in it
        if not found:
            raise StfError(where, f"{one!r}: keys are written name:value")
        name, value = found.groups()
        matches.append((name, value))
    return {
        "table": table,
        "priority": priority,
        "match": tuple(matches),
        "action": parse_call(where, action),
        "handle": handle,
    }


def _setdefault(where: str, rest: str) -> dict[str, object]:
    table, action = _word(rest)
    return {"table": table, "action": parse_call(where, action)}


_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_CHECK = re.compile(r"([\w.$]+)\s*(?:[(\[]\s*(\$?\w+)\s*[)\]])?\s*(packets|bytes)?\s*(==|!=|<=|>=|<|>)?\s*(\w+)?", re.I)


def _check(where: str, rest: str) -> dict[str, object]:
    found = _CHECK.fullmatch(rest)
    if not found or (found[4] and found[5] is None):
        raise StfError(where, "want NAME(INDEX) [packets|bytes] == NUMBER")
    return {
        "name": found[1],
        "index": found[2],
        "unit": (found[3] or "").lower(),
        "operator": found[4] or "==",
        "value": None if found[5] is None else _natural(where, found[5], "value"),
    }


def _register_read(where: str, rest: str) -> dict[str, object]:
    words = rest.split()
    if len(words) not in (1, 2):
        raise StfError(where, "register_read takes NAME [INDEX]")
    return {"name": words[0], "index": _natural(where, words[1], "index") if len(words) == 2 else None}


def _register_reset(where: str, rest: str) -> dict[str, object]:
    if len(rest.split()) != 1:
        raise StfError(where, "register_reset takes NAME")
    return {"name": rest}


def _register_write(where: str, rest: str) -> dict[str, object]:
    words = rest.split()
    if len(words) != 3:
        raise StfError(where, "register_write takes NAME INDEX VALUE")
    numbers = [_natural(where, word, "register_write") for word in words[1:]]
    return {"name": words[0], "index": numbers[0], "value": numbers[1]}


def _numbers(names: str, more: str = "") -> Callable[[str, str], dict[str, object]]:
    """A reader of natural numbers: one for each of `names`; with `more`, then any count of further ones."""

    def read(where: str, rest: str) -> dict[str, object]:
        words, wanted = rest.split(), names.split()
        if len(words) < len(wanted) or (len(words) > len(wanted) and not more):
            raise StfError(where, f"takes {names.upper()}{' ' + more.upper() + ' ...' if more else ''}")
        values = [_natural(where, word, "number") for word in words]
        out: dict[str, object] = dict(zip(wanted, values, strict=False))
        if more:
            out[more] = values[len(wanted) :]
        return out

    return read


def _member(where: str, rest: str) -> dict[str, object]:
    profile, rest = _word(rest)
    number, action = _word(rest)
    return {"profile": profile, "id": _natural(where, number, "member"), "action": parse_call(where, action)}


def _group(where: str, rest: str) -> dict[str, object]:
    profile, rest = _word(rest)
    number, rest = _word(rest)
    members = []
    for one in rest.split():
        found = re.fullmatch(r"(\d+)(?:\*(\d+))?(?:@(\d+))?", one)
        if not found:
            raise StfError(where, f"{one!r} is no member: write ID, ID*WEIGHT, ID@WATCHPORT or ID*WEIGHT@WATCHPORT")
        members.append((int(found[1]), int(found[2] or 1), int(found[3]) if found[3] else None))
    return {"profile": profile, "id": _natural(where, number, "group"), "members": members}


def _port(where: str, rest: str) -> dict[str, object]:
    number, state = _word(rest)
    if state not in ("up", "down"):
        raise StfError(where, f"port {number}: {state!r} (want up or down)")
    return {"port": _natural(where, number, "port"), "up": state == "up"}


def _rate(where: str, rest: str) -> dict[str, object]:
    words = rest.split()
    if len(words) not in (2, 3):
        raise StfError(where, "rate takes PORT BITS_PER_SECOND [PRIORITY], or PORT 500pps [PRIORITY]")
    out: dict[str, object] = {"port": _natural(where, words[0], "port")}
    out["priority"] = _natural(where, words[2], "priority") if len(words) == 3 else None
    if words[1].endswith("pps"):
        out["pps"] = _natural(where, words[1].removesuffix("pps"), "rate")
    else:
        out["bps"] = bits_per_second(where, words[1])
    return out


def _depth(where: str, rest: str) -> dict[str, object]:
    words = rest.split()
    if len(words) != 3:
        raise StfError(where, "depth takes PORT PRIORITY PACKETS (0: no limit)")
    return dict(zip(("port", "priority", "packets"), (_natural(where, word, "depth") for word in words), strict=True))


def _check_queue(where: str, rest: str) -> dict[str, object]:
    words = rest.split()
    if len(words) != 5 or words[2] not in ("depth", "sent", "dropped") or words[3] not in _COMPARISONS:
        raise StfError(where, "check_queue takes PORT PRIORITY depth|sent|dropped == NUMBER")
    port, priority, value = (_natural(where, words[at], "check_queue") for at in (0, 1, 4))
    if priority > 7:
        raise StfError(where, f"check_queue: priority {priority} is not in 0..7")
    return {"port": port, "priority": priority, "what": words[2], "operator": words[3], "value": value}


def _cable(where: str, rest: str) -> tuple[int, str, str]:
    """(port, value, direction) of PORT VALUE [input|output]."""
    words = rest.split()
    if len(words) not in (2, 3) or (len(words) == 3 and words[2] not in ("input", "output")):
        raise StfError(where, "want PORT VALUE [input|output]")
    return _natural(where, words[0], "port"), words[1], words[2] if len(words) == 3 else "output"


def _delay(where: str, rest: str) -> dict[str, object]:
    port, text, direction = _cable(where, rest)
    return {"port": port, "direction": direction, "seconds": seconds(where, text)}


def _loss(where: str, rest: str) -> dict[str, object]:
    port, text, direction = _cable(where, rest)
    if text.strip("01"):
        raise StfError(where, f"loss: {text!r} is no pattern: a digit a packet, 1 loses it, repeated")
    return {"port": port, "direction": direction, "pattern": text if "1" in text else ""}


def _advance(where: str, rest: str) -> dict[str, object]:
    return {"seconds": seconds(where, rest) if rest else None}


def _nothing(_where: str, _rest: str) -> dict[str, object]:
    return {}


def _meter(where: str, rest: str) -> dict[str, object]:
    words = rest.split()
    if len(words) != 6:
        raise StfError(where, "meter takes NAME INDEX CIR CBURST PIR PBURST (per second, in packets or bytes)")
    numbers = [_natural(where, word, "meter") for word in words[1:]]
    return {"name": words[0], "index": numbers[0], "config": numbers[1:]}


def _meter_entry(where: str, rest: str) -> dict[str, object]:
    words = rest.split()
    if len(words) != 5:
        raise StfError(where, "meter_entry takes HANDLE CIR CBURST PIR PBURST (per second, in packets or bytes)")
    return {"handle": words[0].lstrip("$"), "config": [_natural(where, word, "meter") for word in words[1:]]}


def _value_set(where: str, rest: str) -> dict[str, object]:
    name, rest = _word(rest)
    if not name:
        raise StfError(where, "value_set takes NAME MEMBER ..., a member being VALUE or VALUE,VALUE")
    return {"name": name, "members": [one.split(",") for one in rest.split()]}


def _expect_digest(where: str, rest: str) -> dict[str, object]:
    words = rest.split()
    if not words or any(":" not in word for word in words[1:]):
        raise StfError(where, "expect_digest takes NAME FIELD:VALUE ...")
    return {"name": words[0], "fields": tuple(tuple(word.split(":", 1)) for word in words[1:])}


_READERS: dict[str, Callable[[str, str], dict[str, object]]] = {
    # p4c's
    "packet": _packet,
    "expect": _expect,
    "no_packet": _nothing,
    "add": _add,
    "setdefault": _setdefault,
    "check_counter": _check,
    "wait": _advance,
    "remove": _nothing,
    "register_read": _register_read,
    "register_reset": _register_reset,
    "register_write": _register_write,
    "mirroring_add": _numbers("session port"),
    "mirroring_add_mc": _numbers("session group"),
    "mc_mgrp_create": _numbers("group"),
    "mc_node_create": _numbers("rid", "ports"),
    "mc_node_associate": _numbers("group node"),
    # ours
    "check_register": _check,
    "expect_digest": _expect_digest,
    "value_set": _value_set,
    "meter": _meter,
    "meter_entry": _meter_entry,
    "member": _member,
    "group": _group,
    "port": _port,
    "rate": _rate,
    "depth": _depth,
    "delay": _delay,
    "loss": _loss,
    "check_queue": _check_queue,
    "advance": _advance,
}
