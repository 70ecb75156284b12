"""Index of a set of results: a line per scenario, virtual and live side by side."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mrc_testbed.experiments.report.rendering import render
from mrc_testbed.experiments.report.written_page import Page


def index(folder: Path, pages: list[Page], skipped: list[str]) -> str:
    """Return the HTML of an index; links are relative to `folder`. `skipped`: reasons of missing folders."""
    by_name: dict[str, list[Page]] = {}
    for page in pages:
        by_name.setdefault(str(page.manifest["scenario"]), []).append(page)

    def link(page: Page, file: str) -> str:
        return Path(os.path.relpath(page.folder / file, folder)).as_posix().replace(" ", "%20")

    return render(
        "index.html",
        title=folder.name or "results",
        total=len(pages),
        passed=sum(page.passed for page in pages),
        scenarios=sorted(by_name.items(), key=lambda item: natural(item[0])),
        backends=sorted({page.backend for page in pages}, key=lambda backend: (backend != "virtual", backend)),
        overloaded=sum(page.overloaded for page in pages),
        skipped=skipped,
        link=link,
    )


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key that has e2 before e10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]
