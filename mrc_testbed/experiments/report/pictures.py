"""Figures as files beside the page, and as SVG inside it: the page's text colour, words for screen readers."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup, escape
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG

from mrc_testbed.experiments.report.canvas import INK, Drawn
from mrc_testbed.experiments.run_store import file_name
from mrc_testbed.files.whole_files import write_whole

PNG_DPI = 110
"""Pixels an inch."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure as a page shows it."""

    svg: Markup
    text: str
    """Caption and alternative text."""
    beside: list[tuple[str, str]] = field(default_factory=list)
    """(subject, words) printed under it, e.g. distances to the paper."""


def file_of(drawn: Drawn) -> str:
    """Name of a figure's files, without ending."""
    return file_name(drawn.name)


def save(drawn: Drawn, folder: Path) -> Picture:
    """Write a figure's SVG and PNG files to `folder`.

    Each is laid out and drawn once, by the canvases; `savefig` would do it twice for each.
    """
    name = file_of(drawn)
    drawn.canvas.dpi = PNG_DPI
    png = io.BytesIO()
    FigureCanvasAgg(drawn.canvas).print_png(png)
    write_whole(folder / f"{name}.png", png.getvalue())
    text = io.StringIO()
    metadata = {"Date": None, "Creator": None, "Title": drawn.title}
    FigureCanvasSVG(drawn.canvas).print_svg(text, metadata=metadata)
    write_whole(folder / f"{name}.svg", text.getvalue().encode())
    return Picture(_for_page(text.getvalue(), drawn), drawn.text, drawn.beside)


def _for_page(svg: str, drawn: Drawn) -> Markup:
    svg = _unique(svg[svg.index("<svg") :], drawn.name)
    svg = svg.replace(INK, "currentColor").replace("fill: #ffffff", "fill: none")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r">\s*\n\s*<", "><", svg)
    return Markup(svg.replace("<svg ", f'<svg role="img" aria-label="{escape(drawn.text)}" ', 1))


def _unique(svg: str, name: str) -> str:
    """`svg` with ids that differ from those of the page's other pictures."""
    prefix = re.sub(r"\W", "_", name) + "_"
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'(xlink:href|href)="#', rf'\1="#{prefix}', svg)
    return re.sub(r"url\(#", f"url(#{prefix}", svg)
