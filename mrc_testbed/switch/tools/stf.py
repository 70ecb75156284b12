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

    def __init__(self, location: str, message: str) -> None:
        super().__init__(f"{location}: {message}")
        self.location = location
        self.message = message


@dataclass(frozen=True, slots=True)
class StfCall:
    """`forward(port:2)`: names and values as written."""

    name: str
    args: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """One line. `word` is its first word; `fields` depend on it (see _READERS)."""

    location: str
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
        location = f"{name}:{number}"
        line = line.partition("#")[0].strip()
        for macro, data in macros.items():
            line = line.replace(f"{{{macro}}}", data)
        if not line:
            continue
        macro_match = re.search(r"\{\w*\}", line)
        if macro_match:
            raise StfError(
                location, f"{macro_match[0]} is not defined: write `let {macro_match[0][1:-1]} DATA` before it"
            )
        word, arguments = _word(line)
        if word == "let":
            macro, data = _word(arguments)
            if not re.fullmatch(r"\w+", macro) or not data:
                raise StfError(location, "let takes a name and data: let eth ffffffffffff 020000000001 0800")
            macros[macro] = data
            continue
        out += _command(location, word, arguments, line)
    return out


def _command(location: str, word: str, arguments: str, line: str) -> list[Command]:
    word = word.lower()
    if word == "repeat":
        times, arguments = _word(arguments)
        count = _natural(location, times, "repeat")
        if count > 100_000:
            raise StfError(location, f"repeat {count}: at most 100000 times")
        inner, arguments = _word(arguments)
        return _command(location, inner, arguments, line) * count
    reader = _READERS.get(word)
    if reader is None:
        raise StfError(location, f"no command {word!r} (has: {', '.join(sorted({*_READERS, 'let', 'repeat'}))})")
    return [Command(location, word, reader(location, arguments), line)]


def _word(text: str) -> tuple[str, str]:
    head, *tail = text.split(None, 1) or [""]
    return head, tail[0].strip() if tail else ""


def _natural(location: str, text: str, subject: str) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        raise StfError(location, f"{subject}: {text!r} is no number") from None
    if value < 0:
        raise StfError(location, f"{subject}: {value} is negative")
    return value


def seconds(location: str, text: str) -> float:
    """A time such as 5, 10ms, 2.5us, 1s; without a unit: seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|ms|us|ns)?", text)
    if not match:
        raise StfError(location, f"{text!r} is no time (want 10ms, 2us, 1s)")
    return float(match[1]) * {"s": 1, None: 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[match[2]]


def bits_per_second(location: str, text: str) -> int:
    """A rate such as 10M, 2.5G, 64000."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKMG]?)", text)
    if not match:
        raise StfError(location, f"{text!r} is no rate (want 10M, 64k, 1G: bits per second)")
    return round(float(match[1]) * {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}[match[2]])


# ---- lines: (where, rest of the line) -> fields


def _packet(location: str, arguments: str) -> dict[str, object]:
    port, data = _word(arguments)
    digits = "".join(data.split())
    if not re.fullmatch(r"[0-9a-fA-F]*", digits):
        raise StfError(location, f"packet data must be hexadecimal, not {data[:40]!r}")
    if len(digits) % 2:  # p4c's runner makes a byte of a last digit that stands alone
        digits = f"{digits[:-1]}0{digits[-1]}"
    return {"port": _natural(location, port, "port"), "data": bytes.fromhex(digits)}


def _expect(location: str, arguments: str) -> dict[str, object]:
    port, data = _word(arguments)
    digits = "".join(data.split()).lower()
    exact = digits.endswith("$")
    digits = digits.removesuffix("$")
    if not re.fullmatch(r"[0-9a-f*]*", digits):
        raise StfError(location, f"expected data is hexadecimal with * for any digit, not {data[:40]!r}")
    return {"port": _natural(location, port, "port"), "digits": digits, "exact": exact, "any": not digits and not exact}


def parse_call(location: str, text: str) -> StfCall:
    """`name(arg:value, ...)`, or a name alone."""
    match = re.fullmatch(r"([\w.$\[\]]+)\s*(?:\((.*)\))?", text.strip())
    if not match:
        raise StfError(location, f"{text!r} is no action: write name(parameter:value, ...)")
    args = []
    for element in filter(None, map(str.strip, (match[2] or "").split(","))):
        name, colon, value = element.partition(":")
        if not colon:
            raise StfError(location, f"{element!r}: arguments are written parameter:value")
        args.append((name.strip(), value.strip()))
    return StfCall(match[1], tuple(args))


def _add(location: str, arguments: str) -> dict[str, object]:
    table, arguments = _word(arguments)
    handle = None
    match = re.search(r"=\s*(\$?\w+)\s*$", arguments)
    if match:
        handle, arguments = match[1].lstrip("$"), arguments[: match.start()].strip()
    priority = None
    if re.fullmatch(r"\d+", _word(arguments)[0]):
        text, arguments = _word(arguments)
        priority = int(text)
    opening = arguments.find("(")
    head = arguments[:opening].split() if opening >= 0 else arguments.split()
    if not table or not head:
        raise StfError(location, "add takes TABLE [PRIORITY] KEY:VALUE ... ACTION(PARAMETER:VALUE, ...)")
    action = head.pop() + (arguments[opening:] if opening >= 0 else "")
    matches = []
    for key_text in head:
        match = re.fullmatch(r"([^:\[]*(?:\[[^\]]*\][^:\[]*)*):(.*)", key_text)  # a name may have [7:0] in it
        if not match:
            raise StfError(location, f"{key_text!r}: keys are written name:value")
        name, value = match.groups()
        matches.append((name, value))
    return {
        "table": table,
        "priority": priority,
        "match": tuple(matches),
        "action": parse_call(location, action),
        "handle": handle,
    }


def _setdefault(location: str, arguments: str) -> dict[str, object]:
    table, action = _word(arguments)
    return {"table": table, "action": parse_call(location, action)}


_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_CHECK = re.compile(r"([\w.$]+)\s*(?:[(\[]\s*(\$?\w+)\s*[)\]])?\s*(packets|bytes)?\s*(==|!=|<=|>=|<|>)?\s*(\w+)?", re.I)


def _check(location: str, arguments: str) -> dict[str, object]:
    match = _CHECK.fullmatch(arguments)
    if not match or (match[4] and match[5] is None):
        raise StfError(location, "want NAME(INDEX) [packets|bytes] == NUMBER")
    return {
        "name": match[1],
        "index": match[2],
        "unit": (match[3] or "").lower(),
        "operator": match[4] or "==",
        "value": None if match[5] is None else _natural(location, match[5], "value"),
    }


def _register_read(location: str, arguments: str) -> dict[str, object]:
    words = arguments.split()
    if len(words) not in (1, 2):
        raise StfError(location, "register_read takes NAME [INDEX]")
    return {"name": words[0], "index": _natural(location, words[1], "index") if len(words) == 2 else None}


def _register_reset(location: str, arguments: str) -> dict[str, object]:
    if len(arguments.split()) != 1:
        raise StfError(location, "register_reset takes NAME")
    return {"name": arguments}


def _register_write(location: str, arguments: str) -> dict[str, object]:
    words = arguments.split()
    if len(words) != 3:
        raise StfError(location, "register_write takes NAME INDEX VALUE")
    numbers = [_natural(location, word, "register_write") for word in words[1:]]
    return {"name": words[0], "index": numbers[0], "value": numbers[1]}


def _numbers(names: str, repeated_name: str = "") -> Callable[[str, str], dict[str, object]]:
    """A reader of natural numbers: one for each of `names`; with `more`, then any count of further ones."""

    def read(location: str, arguments: str) -> dict[str, object]:
        words, required_names = arguments.split(), names.split()
        if len(words) < len(required_names) or (len(words) > len(required_names) and not repeated_name):
            raise StfError(
                location, f"takes {names.upper()}{' ' + repeated_name.upper() + ' ...' if repeated_name else ''}"
            )
        values = [_natural(location, word, "number") for word in words]
        out: dict[str, object] = dict(zip(required_names, values, strict=False))
        if repeated_name:
            out[repeated_name] = values[len(required_names) :]
        return out

    return read


def _member(location: str, arguments: str) -> dict[str, object]:
    profile, arguments = _word(arguments)
    number, action = _word(arguments)
    return {"profile": profile, "id": _natural(location, number, "member"), "action": parse_call(location, action)}


def _group(location: str, arguments: str) -> dict[str, object]:
    profile, arguments = _word(arguments)
    number, arguments = _word(arguments)
    members = []
    for member_text in arguments.split():
        match = re.fullmatch(r"(\d+)(?:\*(\d+))?(?:@(\d+))?", member_text)
        if not match:
            raise StfError(
                location, f"{member_text!r} is no member: write ID, ID*WEIGHT, ID@WATCHPORT or ID*WEIGHT@WATCHPORT"
            )
        members.append((int(match[1]), int(match[2] or 1), int(match[3]) if match[3] else None))
    return {"profile": profile, "id": _natural(location, number, "group"), "members": members}


def _port(location: str, arguments: str) -> dict[str, object]:
    number, state = _word(arguments)
    if state not in ("up", "down"):
        raise StfError(location, f"port {number}: {state!r} (want up or down)")
    return {"port": _natural(location, number, "port"), "is_up": state == "up"}


def _rate(location: str, arguments: str) -> dict[str, object]:
    words = arguments.split()
    if len(words) not in (2, 3):
        raise StfError(location, "rate takes PORT BITS_PER_SECOND [PRIORITY], or PORT 500pps [PRIORITY]")
    out: dict[str, object] = {"port": _natural(location, words[0], "port")}
    out["priority"] = _natural(location, words[2], "priority") if len(words) == 3 else None
    if words[1].endswith("pps"):
        out["pps"] = _natural(location, words[1].removesuffix("pps"), "rate")
    else:
        out["bps"] = bits_per_second(location, words[1])
    return out


def _depth(location: str, arguments: str) -> dict[str, object]:
    words = arguments.split()
    if len(words) != 3:
        raise StfError(location, "depth takes PORT PRIORITY PACKETS (0: no limit)")
    return dict(
        zip(("port", "priority", "packets"), (_natural(location, word, "depth") for word in words), strict=True)
    )


def _check_queue(location: str, arguments: str) -> dict[str, object]:
    words = arguments.split()
    if len(words) != 5 or words[2] not in ("depth", "sent", "dropped") or words[3] not in _COMPARISONS:
        raise StfError(location, "check_queue takes PORT PRIORITY depth|sent|dropped == NUMBER")
    port, priority, value = (_natural(location, words[index], "check_queue") for index in (0, 1, 4))
    if priority > 7:
        raise StfError(location, f"check_queue: priority {priority} is not in 0..7")
    return {"port": port, "priority": priority, "quantity": words[2], "operator": words[3], "value": value}


def _cable(location: str, arguments: str) -> tuple[int, str, str]:
    """(port, value, direction) of PORT VALUE [input|output]."""
    words = arguments.split()
    if len(words) not in (2, 3) or (len(words) == 3 and words[2] not in ("input", "output")):
        raise StfError(location, "want PORT VALUE [input|output]")
    return _natural(location, words[0], "port"), words[1], words[2] if len(words) == 3 else "output"


def _delay(location: str, arguments: str) -> dict[str, object]:
    port, text, direction = _cable(location, arguments)
    return {"port": port, "direction": direction, "seconds": seconds(location, text)}


def _loss(location: str, arguments: str) -> dict[str, object]:
    port, text, direction = _cable(location, arguments)
    if text.strip("01"):
        raise StfError(location, f"loss: {text!r} is no pattern: a digit a packet, 1 loses it, repeated")
    return {"port": port, "direction": direction, "pattern": text if "1" in text else ""}


def _advance(location: str, arguments: str) -> dict[str, object]:
    return {"seconds": seconds(location, arguments) if arguments else None}


def _no_fields(_location: str, _arguments: str) -> dict[str, object]:
    return {}


def _meter(location: str, arguments: str) -> dict[str, object]:
    words = arguments.split()
    if len(words) != 6:
        raise StfError(location, "meter takes NAME INDEX CIR CBURST PIR PBURST (per second, in packets or bytes)")
    numbers = [_natural(location, word, "meter") for word in words[1:]]
    return {"name": words[0], "index": numbers[0], "config": numbers[1:]}


def _meter_entry(location: str, arguments: str) -> dict[str, object]:
    words = arguments.split()
    if len(words) != 5:
        raise StfError(location, "meter_entry takes HANDLE CIR CBURST PIR PBURST (per second, in packets or bytes)")
    return {"handle": words[0].lstrip("$"), "config": [_natural(location, word, "meter") for word in words[1:]]}


def _value_set(location: str, arguments: str) -> dict[str, object]:
    name, arguments = _word(arguments)
    if not name:
        raise StfError(location, "value_set takes NAME MEMBER ..., a member being VALUE or VALUE,VALUE")
    return {"name": name, "members": [member.split(",") for member in arguments.split()]}


def _expect_digest(location: str, arguments: str) -> dict[str, object]:
    words = arguments.split()
    if not words or any(":" not in word for word in words[1:]):
        raise StfError(location, "expect_digest takes NAME FIELD:VALUE ...")
    return {"name": words[0], "fields": tuple(tuple(word.split(":", 1)) for word in words[1:])}


_READERS: dict[str, Callable[[str, str], dict[str, object]]] = {
    # p4c's
    "packet": _packet,
    "expect": _expect,
    "no_packet": _no_fields,
    "add": _add,
    "setdefault": _setdefault,
    "check_counter": _check,
    "wait": _advance,
    "remove": _no_fields,
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
