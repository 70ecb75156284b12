"""Files of uPlot, which draws the page's curves, from the PyPI package `uplot-python`.

The package is never imported, because that would import IPython. Without the package the page works and shows how to
install it in the place of the curves.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

CURE = "pip install --no-deps 'uplot-python>=1.1'"
"""Command that brings the package; also in scripts/setup."""
INSTALL_HINT = f"Curves are drawn by uPlot, which is not installed. Cure: {CURE}"


def script() -> str:
    """Return a script that defines `uPlot`; without the package one that defines the text `uPlotMissing`."""
    script_file = _file("uPlot.iife.js")
    return (
        script_file.read_text(encoding="utf-8")
        if script_file
        else f"const uPlotMissing = {json.dumps(INSTALL_HINT)};\n"
    )


def style() -> str:
    """Return the style sheet of uPlot; empty without the package."""
    style_file = _file("uPlot.min.css")
    return style_file.read_text(encoding="utf-8") if style_file else ""


def installed() -> bool:
    """Whether the curves can be drawn."""
    return _file("uPlot.iife.js") is not None


def _file(name: str) -> Path | None:
    """Return a file of the package; None without the package, or with another one of that name."""
    spec = find_spec("uplot")
    folders = spec.submodule_search_locations if spec else None
    return next((path for folder in folders or () if (path := Path(folder) / "static" / name).is_file()), None)
