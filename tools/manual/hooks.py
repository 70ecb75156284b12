"""Hooks of mkdocs: pages from outside docs/ and of the code, links that hold on GitHub and here.

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
    for source, target in FROM_ELSEWHERE.items():
        if (old_file := files.get_file_from_path(target)) is not None:
            files.remove(old_file)
        files.append(File.generated(config, target, content=(ROOT / source).read_text()))
    for target, page in PAGES.items():
        files.append(File.generated(config, target, content=page()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Make links lead to the places of the site."""
    page_path = page.file.src_uri
    source = next((origin for origin, target in FROM_ELSEWHERE.items() if target == page_path), f"docs/{page_path}")

    def moved_link(match: re.Match[str]) -> str:
        return match[1] + in_site(match[2], source, page_path, files, config)

    fences = [(fence.start(), fence.end()) for fence in FENCE.finditer(markdown)]
    return LINK.sub(lambda f: f[0] if any(a <= f.start() < b for a, b in fences) else moved_link(f), markdown)


def in_site(target: str, source: str, page_path: str, files: Any, config: Any) -> str:
    """Return the target of a link in the site.

    `source`: file in the repository in which the link stands; `page_path`: path of its page in the site.
    """
    path, mark, anchor = target.partition("#")
    if not path or re.match(r"\w+:", target) or page_path in PAGES:
        return target
    target_path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if (ROOT / target_path).is_dir():
        target_path += "/README.md"
    site_path = FROM_ELSEWHERE.get(target_path) or target_path.removeprefix("docs/")
    if site_path == target_path:  # no page
        if not (ROOT / target_path).is_file() or target_path.endswith(".md"):
            return target  # mkdocs says that it leads nowhere: a document is a page or in FROM_ELSEWHERE
        site_path = f"{COPIES}/{target_path}"
        if files.get_file_from_path(site_path) is None:
            files.append(File.generated(config, site_path, abs_src_path=str(ROOT / target_path)))
    return posixpath.relpath(site_path, posixpath.dirname(page_path) or ".") + mark + anchor
