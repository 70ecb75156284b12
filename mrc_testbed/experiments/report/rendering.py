"""Rendering of the report's pages from templates/, with everything escaped that is not marked as HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def _count_noun(count: int, noun: str) -> str:
    """Return a count with its noun: `1 run`, `2 runs`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
PAGES.filters["several"] = _count_noun


def render(template: str, **values: Any) -> str:
    """Return the HTML of a page."""
    return PAGES.get_template(template).render(values)
