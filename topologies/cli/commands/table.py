"""Aligned tables, coloured on a terminal only. A cell is text, or (text, look)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

Cell = str | tuple[str, str]
_CODES = {"good": "32", "bad": "1;31", "warn": "33", "dim": "2", "head": "1"}


@dataclass(frozen=True)
class Style:
    """Whether to colour. NO_COLOR and a dumb terminal are respected."""

    colour: bool = False

    @classmethod
    def of(cls, out: IO[str]) -> Style:
        """Style that suits a stream."""
        is_terminal = out.isatty() if hasattr(out, "isatty") else False
        return cls(is_terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb")

    def paint(self, text: str, look: str) -> str:
        """Colour a text by its `look`: good, bad, warn, dim, head, or "" for none."""
        code = _CODES.get(look)
        return f"\033[{code}m{text}\033[0m" if self.colour and code and text else text


def table(style: Style, heads: Sequence[str], rows: Sequence[Sequence[Cell]], *, right: Sequence[str] = ()) -> str:
    """Table as text; columns named in `right` are aligned to the right. No line ends in spaces."""
    cells = [[_pair(cell) for cell in row] for row in rows]
    widths = [
        max([len(head), *(len(row[at][0]) for row in cells)]) if cells else len(head) for at, head in enumerate(heads)
    ]
    lines = [_line(style, [(head, "head") for head in heads], widths, heads, right)]
    lines += [_line(style, row, widths, heads, right) for row in cells]
    return "\n".join(lines)


def _pair(cell: Cell) -> tuple[str, str]:
    return cell if isinstance(cell, tuple) else (str(cell), "")


def _line(
    style: Style, row: Sequence[tuple[str, str]], widths: Sequence[int], heads: Sequence[str], right: Sequence[str]
) -> str:
    out = []
    for (text, look), width, head in zip(row, widths, heads, strict=True):
        space = " " * (width - len(text))
        painted = style.paint(text, look)
        out.append(space + painted if head in right else painted + space)
    return "  ".join(out).rstrip()
