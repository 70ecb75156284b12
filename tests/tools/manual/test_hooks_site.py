"""The documents as a site: built without a warning, whole, with a search that needs nobody."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from mrc_testbed.cli.app import app
from mrc_testbed.cli.prompt.commands import WORDS
from mrc_testbed.experiments.language import model
from mrc_testbed.experiments.language.metric_names import METRICS
from mrc_testbed.hosts.engine.config import KEYS
from tests.repository import ROOT
from tools.manual.reference import PAGES, fields_of
from tools.manual.scenario_keys import reference

pytestmark = pytest.mark.documents

BROWSER = shutil.which("chromium")


class Page(HTMLParser):
    """Ids of a page, what it links to, and what a browser fetches for it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids, self.links, self.resources = set(), [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids.add(attributes.get("id") or attributes.get("name"))
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        elif tag in ("img", "script", "link", "iframe") and (
            address := attributes.get("src") or attributes.get("href")
        ):
            self.resources.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if find_spec("material") is None:
        pytest.skip("no mkdocs-material here: `make docs` or `make test` installs it")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    process = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0 and "WARNING" not in process.stderr, process.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path.resolve(): Page(path) for path in site.rglob("*.html")}


def test_links__all_lead_somewhere_in_the_site(site, pages):
    assert len(pages) > 45
    dead_links = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links are those of a server's top folder
            continue
        for link in page.links + page.resources:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            anchored = not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].ids
            if not target.is_file() or not anchored:
                dead_links.append(f"{path.relative_to(site)}: {link}")
    assert dead_links == []


def test_pages__fetch_nothing_from_elsewhere(pages):
    assert [address for page in pages.values() for address in page.resources if re.match(r"\w+://|//", address)] == []


def test_reference__has_every_command_word_key_and_metric():
    text = {name.partition("/")[2]: page() for name, page in PAGES.items()}

    def walk(command, words):
        yield " ".join(words)
        for name, subcommand in getattr(command, "commands", {}).items():
            if not subcommand.hidden:  # a second name of another
                yield from walk(subcommand, [*words, name])

    from typer.main import get_command

    for command in walk(get_command(app), ["mrc"]):
        assert re.search(rf"^#+ {command}$", text["commands.md"], re.MULTILINE), command
    assert "`--resume`" in text["commands.md"] and "| `--planes` | number | `4` |" in text["commands.md"]
    assert all(f"### {word}\n" in text["prompt.md"] for word in WORDS)
    assert all(f"| `{metric.pattern}` | {metric.unit} |" in text["metrics.md"] for metric in METRICS)
    page = reference()
    assert all(f"| `{key}` |" in page for key in list(model.Scenario.keys()))
    assert "| `cut` | a link, a list of them, or `{random: ...}` |" in page
    assert all(f"| `{key}` |" in text["engine.md"] for key in KEYS)


def test_fields__have_the_text_below_them():
    fields = {key: (kind, default, text) for key, kind, default, text in fields_of(model.Measure)}
    assert fields["every"] == ("SomeSeconds", "0.1", "Interval of the time series.")
    assert {key: default for key, _, default, _ in fields_of(model.Span)} == {"from": "needed", "to": "needed"}


@pytest.mark.skipif(BROWSER is None, reason="no chromium on PATH (`make test` installs it on Debian)")
def test_browser__searches_without_a_server(site):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page()
        requested_urls = []
        page.on("request", lambda request: requested_urls.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.click("[data-md-component=search-query]")
        page.keyboard.type("assumed bad")
        page.wait_for_selector(".md-search-result__item")
        assert page.locator(".md-search-result__item").count() >= 5
        browser.close()
    assert {urlsplit(url).scheme for url in requested_urls} <= {"file", "data", "blob"}
