"""Aligned tables, coloured on a terminal only. A cell is text, or (text, look)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

Cell = str | tuple[str, str]
WIDTH_MAX = 10_000
"""Columns that a table may take: more than any has, so that a pipe gets each row as one line."""
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


def table(style: Style, heads: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = ()) -> str:
    """Lines of a table; columns named in `right` are aligned to the right. No line ends in spaces, none is wrapped."""
    grid = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for head in heads:
        grid.add_column(justify="right" if head in right else "left", no_wrap=True)
    for row in ([(head, "head") for head in heads], *rows):
        grid.add_row(*(_text(style, cell) for cell in row))
    out = StringIO()
    Console(file=out, width=WIDTH_MAX, force_terminal=style.colour, color_system="standard", no_color=False).print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _text(style: Style, cell: object) -> Text:
    text, look = cell if isinstance(cell, tuple) else (str(cell), "")
    return Text.from_ansi(style.paint(text, look))
