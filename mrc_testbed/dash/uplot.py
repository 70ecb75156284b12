"""uPlot, which draws the page's curves: its files out of the PyPI package `uplot-python`, which carries them.

The package is never imported: that would bring IPython along, and its files are all that is needed. Without it the page
works and says in the place of the curves how to get it.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

CURE = "pip install --no-deps 'uplot-python>=1.1'"
"""Command that brings the package; also in scripts/setup."""
MISSING = f"Curves are drawn by uPlot, which is not installed. This brings it: {CURE}"


def script() -> str:
    """uPlot as a script that defines `uPlot`; without the package one that defines `uPlotMissing`, a text."""
    found = _file("uPlot.iife.js")
    return found.read_text(encoding="utf-8") if found else f"const uPlotMissing = {json.dumps(MISSING)};\n"


def style() -> str:
    """Style sheet of uPlot; empty without the package."""
    found = _file("uPlot.min.css")
    return found.read_text(encoding="utf-8") if found else ""


def installed() -> bool:
    """Whether the curves can be drawn."""
    return _file("uPlot.iife.js") is not None


def _file(name: str) -> Path | None:
    """A file of the package; None where it is not, or is another package of that name."""
    spec = find_spec("uplot")
    folders = spec.submodule_search_locations if spec else None
    return next((path for folder in folders or () if (path := Path(folder) / "static" / name).is_file()), None)
