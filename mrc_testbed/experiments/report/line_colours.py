"""Colours of lines by name: a transport or variant has one colour in all figures.

A set that people with colour blindness can distinguish (Okabe and Ito). A name that is no transport takes the colour
that its letters choose, or the next free one: up to len(COLOURS) names of one report differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from zlib import crc32

INK = "#1d2734"
"""Colour of text; the page has its own text colour in its place."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", INK, "#999933")
BLUE, VERMILION, GREEN, PINK, ORANGE, SKY = COLOURS[:6]
TRANSPORTS = {
    "mrc": BLUE,
    "srv6": BLUE,
    "roce": VERMILION,
    "dcqcn": VERMILION,
    "flowecmp": GREEN,
    "ecmp": PINK,
    "switchspray": ORANGE,
    "stev": SKY,
}
"""Beginning of a name, letters alone -> its colour."""


def line_colours(names: Iterable[str], report_names: Iterable[str] = ()) -> dict[str, str]:
    """Return the colours of the variants of a figure, in whatever order the names come.

    `report_names`: those of the whole report, of which a figure may show some. More than len(COLOURS) of them cannot
    differ; then those of the figure do. A transport's own name comes first, then those that begin with one.
    """
    figure_names = set(names)
    all_names = figure_names | set(report_names)
    ranked_names = sorted(
        all_names if len(all_names) <= len(COLOURS) else figure_names,
        key=lambda name: (_letters(name) not in TRANSPORTS, not _transport(name), name),
    )
    out: dict[str, str] = {}
    free_colours: list[str] = []
    for name in ranked_names:
        # More names than colours: they begin again, and dashes distinguish the lines.
        free_colours = free_colours or list(COLOURS)
        start = crc32(name.casefold().encode()) % len(COLOURS)
        candidates = [TRANSPORTS.get(_transport(name), ""), *COLOURS[start:], *COLOURS[:start]]
        out[name] = next(colour for colour in candidates if colour in free_colours)
        free_colours.remove(out[name])
    return out


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def _transport(name: str) -> str:
    """Return the key of TRANSPORTS that a name begins with; empty for none."""
    return next((key for key in TRANSPORTS if _letters(name).startswith(key)), "")
