"""Figures as files, and as SVG in the page with the page's text colour and words for screen readers."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup, escape
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG

from mrc_testbed.experiments.report.canvas import Drawing
from mrc_testbed.experiments.report.line_colours import INK
from mrc_testbed.experiments.run_store import file_name
from mrc_testbed.files.whole_files import write_whole

PNG_DPI = 110
"""Pixels an inch."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure of a page."""

    svg: Markup
    text: str
    """Caption and alternative text."""
    remarks: list[tuple[str, str]] = field(default_factory=list)
    """(subject, words) printed below the figure, e.g. distances to the paper."""


def file_of(drawing: Drawing) -> str:
    """Return the name of a figure's files, without suffix."""
    return file_name(drawing.name)


def save(drawing: Drawing, folder: Path) -> Picture:
    """Write a figure's SVG and PNG files to `folder`.

    The canvases lay out and draw each file once; `savefig` would do so twice.
    """
    name = file_of(drawing)
    drawing.canvas.dpi = PNG_DPI
    png = io.BytesIO()
    FigureCanvasAgg(drawing.canvas).print_png(png)
    write_whole(folder / f"{name}.png", png.getvalue())
    text = io.StringIO()
    metadata = {"Date": None, "Creator": None, "Title": drawing.title}
    FigureCanvasSVG(drawing.canvas).print_svg(text, metadata=metadata)
    write_whole(folder / f"{name}.svg", text.getvalue().encode())
    return Picture(_for_page(text.getvalue(), drawing), drawing.text, drawing.remarks)


def _for_page(svg: str, drawing: Drawing) -> Markup:
    svg = _unique(svg[svg.index("<svg") :], drawing.name)
    svg = svg.replace(INK, "currentColor").replace("fill: #ffffff", "fill: none")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r">\s*\n\s*<", "><", svg)
    return Markup(svg.replace("<svg ", f'<svg role="img" aria-label="{escape(drawing.text)}" ', 1))


def _unique(svg: str, name: str) -> str:
    """Return `svg` with ids that differ from those of the page's other pictures."""
    prefix = re.sub(r"\W", "_", name) + "_"
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'(xlink:href|href)="#', rf'\1="#{prefix}', svg)
    return re.sub(r"url\(#", f"url(#{prefix}", svg)
