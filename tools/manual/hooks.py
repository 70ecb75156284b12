"""Hooks of mkdocs: pages from outside docs/, pages made of the code, and links that hold on GitHub and in the site.

The documents are written to be read where they lie: a link says where a file is in the repository. In the site it leads
to the page made of that file, or to a copy of it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from tools.manual.reference import PAGES

ROOT = Path(__file__).resolve().parents[2]
FROM_ELSEWHERE = {
    "README.md": "index.md",
    "docs/index.md": "reading-order.md",
    "LIMITATIONS.md": "limitations.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "p4src/README.md": "p4src.md",
    "mrc_testbed/switch/README.md": "switch.md",
}
"""Files of the repository that are pages under another name: README is the front page."""
COPIES = "files"
"""Folder of the site with copies of files that documents link to and that are no pages."""
LINK = re.compile(r"(\]\(|^\[[^\]]+\]: )([^)\s]+)", re.MULTILINE)
FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2", re.MULTILINE | re.DOTALL)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/."""
    for source, place in FROM_ELSEWHERE.items():
        if (old := files.get_file_from_path(place)) is not None:
            files.remove(old)
        files.append(File.generated(config, place, content=(ROOT / source).read_text()))
    for place, page in PAGES.items():
        files.append(File.generated(config, place, content=page()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Make links lead to the places of the site."""
    here = page.file.src_uri
    source = next((one for one, place in FROM_ELSEWHERE.items() if place == here), f"docs/{here}")

    def moved(found: re.Match[str]) -> str:
        return found[1] + in_site(found[2], source, here, files, config)

    fences = [(one.start(), one.end()) for one in FENCE.finditer(markdown)]
    return LINK.sub(lambda f: f[0] if any(a <= f.start() < b for a, b in fences) else moved(f), markdown)


def in_site(target: str, source: str, here: str, files: Any, config: Any) -> str:
    """Target of a link in the site. `source`: the file in the repository it stands in; `here`: that page's place."""
    path, mark, anchor = target.partition("#")
    if not path or re.match(r"\w+:", target) or here in PAGES:
        return target
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if (ROOT / wanted).is_dir():
        wanted += "/README.md"
    place = FROM_ELSEWHERE.get(wanted) or wanted.removeprefix("docs/")
    if place == wanted:  # no page
        if not (ROOT / wanted).is_file() or wanted.endswith(".md"):
            return target  # mkdocs says that it leads nowhere: a document is a page or in FROM_ELSEWHERE
        place = f"{COPIES}/{wanted}"
        if files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, abs_src_path=str(ROOT / wanted)))
    return posixpath.relpath(place, posixpath.dirname(here) or ".") + mark + anchor
