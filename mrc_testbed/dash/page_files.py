"""Files of the page by URL path: the server sends them, and a recording embeds them."""

from __future__ import annotations

from importlib.resources import files

from mrc_testbed.dash import uplot

CONTENT_TYPES = {
    "/": "text/html",
    "/uplot.css": "text/css",
    "/dash.css": "text/css",
    "/uplot.js": "text/javascript",
    "/curves.js": "text/javascript",
    "/dash.js": "text/javascript",
}


def text(path: str) -> str:
    """Return the text of one of CONTENT_TYPES."""
    if path == "/uplot.css":
        return uplot.style()
    if path == "/uplot.js":
        return uplot.script()
    name = "index.html" if path == "/" else path[1:]
    return (files("mrc_testbed.dash") / "page" / name).read_text(encoding="utf-8")
