"""The index of a set of results: a line a scenario; virtual and live side by side, with the first figure of each."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from experiments.report.page_frame import e, mark, shell, table
from experiments.report.written_page import Page

STATES = {"passed": ("good", "passed"), "FAILED": ("bad", "FAILED"), "unfinished": ("bad", "unfinished")}


def index(folder: Path, pages: list[Page], skipped: list[str]) -> str:
    """HTML; links and pictures are relative to `folder`. `skipped`: why some folders are not here."""
    by_name: dict[str, list[Page]] = {}
    for page in pages:
        by_name.setdefault(str(page.manifest["scenario"]), []).append(page)
    names = sorted(by_name, key=natural)
    wheres = sorted({page.where for page in pages}, key=lambda where: (where != "virtual", where))
    rows = []
    for name in names:
        cells = ["<br>".join(_cell(folder, page) for page in by_name[name] if page.where == where) for where in wheres]
        rows.append(
            (f'<a href="#{e(name)}">{e(name)}</a>', e(by_name[name][0].title), *(cell or "–" for cell in cells))
        )
    passed = sum(page.passed for page in pages)
    overloaded = sum(_overloaded(page) for page in pages)
    note = ""
    if overloaded:
        text = f"* In {overloaded} of these the machine was overloaded: do not trust times and rates there, trust"
        note = f'<p class="warn" role="note">{text} bytes and sums. The pages say more.</p>'
    body = [
        f"<h1>{passed} of {len(pages)} results passed</h1>",
        f'<p class="soft">{len(names)} scenarios; rules that held of those there are</p>',
        table(("scenario", "", *map(e, wheres)), rows), note,
        *(f'<p class="warn" role="note">Left out: {e(text)}</p>' for text in skipped),
        *(_section(folder, name, by_name[name], wheres) for name in names),
    ]  # fmt: skip
    return shell(folder.name or "results", "\n".join(body))


def _cell(folder: Path, page: Page) -> str:
    kind, text = STATES[page.state]
    good = sum(verdict.passed for verdict in page.verdicts)
    star = " *" if _overloaded(page) else ""
    link = f'<a href="{e(_to(folder, page.folder / "report.html"))}">{good} of {len(page.verdicts)}</a>'
    return f'<span class="{kind}">{text}</span> {link}{star}'


def _overloaded(page: Page) -> bool:
    return any(one["load"]["overloaded"] for one in page.manifest["runs"])


def _section(folder: Path, name: str, pages: list[Page], wheres: list[str]) -> str:
    """The scenario's first figure of each result, next to each other."""
    cells = []
    for page in sorted(pages, key=lambda page: wheres.index(page.where)):
        href = e(_to(folder, page.folder / "report.html"))
        head = f"{e(page.where)}, seed {page.manifest['seed']}: {mark(page.passed, bad=page.state)}"
        picture = "<p>no figure</p>"
        if page.picture is not None:
            source = e(_to(folder, page.folder / "figures" / f"{page.picture}.png"))
            words = e(f"{page.title}, {page.where}: the scenario's first figure")
            picture = f'<a href="{href}"><img src="{source}" alt="{words}" loading="lazy"></a>'
        cells.append(f'<figure class="half"><figcaption><a href="{href}">{head}</a></figcaption>{picture}</figure>')
    head = f"<h2>{e(name)}: {e(pages[0].title)}</h2>"
    return f'<section id="{e(name)}">{head}<div class="pair">{"".join(cells)}</div></section>'


def _to(folder: Path, path: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix().replace(" ", "%20")


def natural(name: str) -> list[Any]:
    """e2 before e10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]
