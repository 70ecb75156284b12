"""Annotations in P4Info, as p4c writes them: text, structured, documentation, package."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from finsy.proto import p4i, p4t

from mrc_testbed.switch.compiler.errors import fail
from mrc_testbed.switch.compiler.frontend import tree
from mrc_testbed.switch.compiler.frontend.lexer import Lexeme

_FIELD_ANNOTATIONS = ("name", "id", "brief", "description")
_EXPRESSION_ANNOTATIONS = (
    "noWarn",
    "deprecated",
    "length",
    "synchronous",
    "field_list",
    "match",
    "command_line",
    "controller_header",
)
"""Annotations that p4c prints as expressions; others as tokens with blanks between."""
_PACKAGE = ("name", "version", "organization", "contact", "url", "arch")
_OPERATORS = (
    ast.Expression,
    ast.Constant,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
    ast.FloorDiv,
    ast.Mod,
    ast.USub,
    ast.UAdd,
    ast.Invert,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
)
"""AST nodes allowed in the expressions of structured annotations."""


def fill_notes(message: Any, notes: Iterable[tree.Annotation], skip: tuple[str, ...] = ()) -> None:
    """Enter annotations in a P4Info message, without those with fields of their own and those of `skip`."""
    for note in notes:
        if note.name in ("brief", "description"):
            if "doc" in message.DESCRIPTOR.fields_by_name:
                setattr(message.doc, note.name, note.string() or "")
        elif note.name in _FIELD_ANNOTATIONS or note.name in skip:
            continue
        elif note.bracket == "[" and "structured_annotations" in message.DESCRIPTOR.fields_by_name:
            _fill_structured(note, message.structured_annotations.add(name=note.name))
        else:
            message.annotations.append(note_text(note))


def note_text(note: tree.Annotation) -> str:
    """An annotation as P4 text, the way p4c prints it."""
    if note.body is None:
        return f"@{note.name}"
    close = "]" if note.bracket == "[" else ")"
    text = (
        _join_tokens(note.body) if note.name in _EXPRESSION_ANNOTATIONS else " ".join(token.text for token in note.body)
    )
    return f"@{note.name}{note.bracket}{text}{close}" if text or note.bracket == "[" else f"@{note.name}"


def _join_tokens(tokens: Iterable[Lexeme]) -> str:
    out = ""
    for token in tokens:
        out += (" " if out and token.kind not in ("COMMA", "DOT", "RPAR") and out[-1] not in "(." else "") + token.text
    return out


# ---- @name[...]


def _fill_structured(note: tree.Annotation, out: p4t.StructuredAnnotation) -> None:
    parts = _parts(note.body or [])
    if not parts:
        return
    if len(parts[0]) > 1 and parts[0][1].kind == "ASSIGN":
        for part in parts:
            if len(part) < 3 or part[1].kind != "ASSIGN":
                fail(note.location, f"@{note.name}: a list of expressions, or of NAME = EXPRESSION, not of both")
            pair = out.kv_pair_list.kv_pairs.add(key=part[0].text)
            _value(note, part[2:], pair.value)
        return
    for part in parts:
        _value(note, part, out.expression_list.expressions.add())


def _parts(tokens: list[Lexeme]) -> list[list[Lexeme]]:
    """The tokens between the commas that stand in no parentheses."""
    out: list[list[Lexeme]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text in "([{") - (token.text in ")]}")
        if token.kind == "COMMA" and not depth:
            out.append([])
        else:
            out[-1].append(token)
    return out if out != [[]] else []


def _value(note: tree.Annotation, tokens: list[Lexeme], out: p4t.Expression) -> None:
    if tokens and all(token.kind == "STRING_LITERAL" for token in tokens):
        out.string_value = "".join(tree.unquote(token.text) for token in tokens)
        return
    value = _evaluate(tokens)
    if isinstance(value, bool):
        out.bool_value = value
    elif value is not None and -(1 << 63) <= value < 1 << 63:
        out.int64_value = value
    else:
        text = "".join(token.text for token in tokens)
        fail(note.location, f"@{note.name}: {text}: want a string, true or false, or a number of 64 bits")


def _evaluate(tokens: list[Lexeme]) -> int | bool | None:
    """A constant expression of numbers and truth values; None for anything else."""
    words = {"true": "True", "false": "False", "/": "//"}
    text = " ".join(
        str(tree.parse_integer(token.text)[0]) if token.kind == "INTEGER" else words.get(token.text, token.text)
        for token in tokens
    )
    try:
        node = ast.parse(text, mode="eval")
        if len(text) > 200 or not all(isinstance(operator, _OPERATORS) for operator in ast.walk(node)):
            return None
        value = eval(compile(node, "", "eval"), {"__builtins__": {}})
    except (SyntaxError, ArithmeticError, ValueError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, (int, bool)) else None


# ---- the package


def fill_package(main: tree.Instance, info: p4i.P4Info) -> None:
    """`@pkginfo`, `@platform_property`, documentation and other annotations of `main`."""
    package = info.pkg_info
    for note in main.annotations:
        if note.name == "pkginfo":
            for key, value in _pairs(note):
                if key.text in _PACKAGE and value.kind == "STRING_LITERAL":
                    setattr(package, key.text, tree.unquote(value.text))
        elif note.name == "platform_property":
            property_names = [field.name for field in package.platform_properties.DESCRIPTOR.fields]
            for key, value in _pairs(note):
                if key.text not in property_names or value.kind != "INTEGER":
                    fail(note.location, f"@platform_property: {key.text}: want NUMBERs for {', '.join(property_names)}")
                setattr(package.platform_properties, key.text, tree.parse_integer(value.text)[0])
        else:
            fill_notes(package, [note])


def _pairs(note: tree.Annotation) -> list[tuple[Lexeme, Lexeme]]:
    tokens = note.body or []
    return [
        (tokens[index - 1], tokens[index + 1])
        for index, token in enumerate(tokens)
        if token.kind == "ASSIGN" and 0 < index < len(tokens) - 1
    ]
