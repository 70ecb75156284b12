"""Output for people: its width, its colours, tables that fit, long lines folded between words.

A terminal has the width it has, or COLUMNS; a pipe or a file has PIPE_WIDTH, so that a page of output is the same
wherever it was made. Programs read `--json`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import StringIO, TextIOWrapper
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod
    from rich.text import Text

Cell = str | tuple[str, str]
"""Text, or (text, style name)."""
PIPE_WIDTH = 100
"""Columns of output that goes to no terminal."""
WIDTH_MIN = 40
"""Columns that are always taken: on anything narrower tables could not be read."""
GAP = 2
"""Columns between two of a table."""
LOWER_INDENT = 4
"""Columns by which what stands below the first columns of a row is indented."""
_CODES = {"good": "32", "bad": "1;31", "warn": "33", "dim": "2", "head": "1"}
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def width_of(out: IO[str]) -> int:
    """Columns to fill on a stream."""
    if isinstance(columns := getattr(out, "columns", None), int):  # a stream to a terminal elsewhere
        return max(columns, WIDTH_MIN)
    columns_text = os.environ.get("COLUMNS", "")
    columns = int(columns_text) if columns_text.isdecimal() else 0
    if not columns and _is_terminal(out):
        try:
            columns = os.get_terminal_size(out.fileno()).columns
        except (OSError, ValueError):  # a terminal that is none any more, or has no file
            columns = 0
    return max(columns or PIPE_WIDTH, WIDTH_MIN)


def encode_all() -> None:
    """Let standard output and error escape characters that their encoding lacks, such as ± in a C locale."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def fold_for(out: IO[str], text: str) -> str:
    """Return `text` for a stream; for a terminal, long lines are broken between words.

    A terminal itself would break them anywhere.
    """
    return Style(width=width_of(out)).fold(text) if _is_terminal(out) else text


def _is_terminal(out: IO[str]) -> bool:
    return bool(out.isatty()) if hasattr(out, "isatty") else False


@dataclass(frozen=True)
class Style:
    """Whether to colour, and how wide to write. NO_COLOR and a dumb terminal are respected."""

    colour: bool = False
    width: int = PIPE_WIDTH

    @classmethod
    def for_stream(cls, out: IO[str]) -> Style:
        """Style that suits a stream, now: a terminal may change its width."""
        colour = _is_terminal(out) and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        return cls(colour, width_of(out))

    def paint(self, text: str, style_name: str) -> str:
        """Colour a text by `style_name`: good, bad, warn, dim, head, or "" for none."""
        code = _CODES.get(style_name)
        return f"\033[{code}m{text}\033[0m" if self.colour and code and text else text

    def fold(self, text: str, hang: int = 4) -> str:
        """`text` with its long lines broken between words; what follows is indented by `hang` columns more."""
        return "\n".join(part for line in text.split("\n") for part in _fold_line(line, self.width, hang))

    def fill(self, text: str) -> str:
        """`text` with those paragraphs filled anew that have a line which is too long."""
        paragraphs = text.split("\n\n")
        for number, paragraph in enumerate(paragraphs):
            if any(_length(line) > self.width for line in paragraph.split("\n")):
                paragraphs[number] = self.fold(" ".join(paragraph.split()), hang=0)
        return "\n\n".join(paragraphs)


def console(*, stderr: bool = False) -> Console:
    """A rich console of standard output or error, as wide as `Style.for_stream` says."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, width=width_of(sys.stderr if stderr else sys.stdout))


def _fold_line(line: str, width: int, hang: int) -> list[str]:
    if _length(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip(" ")) + hang)
    out: list[str] = []
    now = ""
    for word in re.findall(r" *[^ ]+", line):
        if now and _length(now) + _length(word) > width:
            out.append(now)
            now = indent + word.lstrip(" ")
        else:
            now += word
    return [*out, now]


def _length(text: str) -> int:
    return len(_ESCAPES.sub("", text))


def table(
    style: Style,
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right_columns: Sequence[str] = (),
    indent: int = 0,
) -> str:
    """Lines of a table; columns named in `right_columns` are aligned to the right. No line ends in spaces.

    What is wider than `style.width` is wrapped inside its cells, between words. Where the longest words of all columns
    do not fit side by side, the last columns of each row stand below its first ones; a word is broken only when it is
    wider than all there is. `indent`: columns left free before each line.
    """
    cells = [[_text(style, cell) for cell in row] for row in ([(head, "head") for head in heads], *rows)]
    sides: list[JustifyMethod] = ["right" if head in right_columns else "left" for head in heads]
    room = style.width - indent
    count = _side_by_side(cells, room)
    widths = _widths([row[:count] for row in cells], room)
    if count == len(heads):
        lines = _lines(style, cells, widths, sides)
    else:
        lower_widths = _widths([row[count:] for row in cells], room - LOWER_INDENT)
        lines = []
        for row in cells:
            lines += _lines(style, [row[:count]], widths, sides)
            lines += [" " * LOWER_INDENT + line for line in _lines(style, [row[count:]], lower_widths, sides[count:])]
    return "\n".join(" " * indent + line.rstrip() for line in lines)


def _lines(style: Style, rows: list[list[Text]], widths: list[int], sides: Sequence[JustifyMethod]) -> list[str]:
    from rich.console import Console
    from rich.table import Table

    grid = Table(box=None, show_header=False, padding=(0, GAP, 0, 0), pad_edge=False)
    for side, width in zip(sides, widths, strict=False):
        grid.add_column(justify=side, width=width, overflow="fold")
    for row in rows:
        grid.add_row(*row)
    out = StringIO()
    room = sum(widths) + GAP * len(widths)
    Console(file=out, width=room, force_terminal=style.colour, color_system="standard", no_color=False).print(grid)
    return out.getvalue().splitlines()


def _text(style: Style, cell: Any) -> Text:
    from rich.text import Text

    text, style_name = cell if isinstance(cell, tuple) else (str(cell), "")
    return Text.from_ansi(style.paint(text, style_name))


def _max_widths(rows: list[list[Text]], parts: Callable[[str], list[str]]) -> list[int]:
    """Width of the longest part of each column's cells: of its words, or of its lines."""
    from rich.cells import cell_len

    return [
        max((cell_len(part) for cell in column for part in parts(cell.plain)), default=0)
        for column in zip(*rows, strict=True)
    ]


def _side_by_side(rows: list[list[Text]], room: int) -> int:
    """Return the number of first columns that stand side by side in a line.

    All do when no word is broken by that, else as many as fit whole.
    """
    words, lines = _max_widths(rows, str.split), _max_widths(rows, str.splitlines)
    count = len(words)
    if sum(words) + GAP * (count - 1) > room:
        while count > 1 and sum(lines[:count]) + GAP * (count - 1) > room:
            count -= 1
    return count


def _widths(rows: list[list[Text]], room: int) -> list[int]:
    """Return a width for each column: what its cells want; the widest shrink, down to their longest words."""
    widths = _max_widths(rows, str.splitlines)
    spare = room - GAP * (len(widths) - 1)
    for min_widths in (_max_widths(rows, str.split), [1] * len(widths)):
        while sum(widths) > spare:
            can = [number for number, width in enumerate(widths) if width > min_widths[number]]
            if not can:
                break
            widths[max(can, key=widths.__getitem__)] -= 1
    return [max(width, 1) for width in widths]
