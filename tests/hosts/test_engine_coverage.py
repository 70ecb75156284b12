"""docs/mrc-coverage.md names only what exists, and all keys and open points there are."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from hosts.engine.config import Config

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/mrc-coverage.md").read_text()
REFERENCE = re.compile(r"`([\w/]+\.py): ([\w.]+)`")


def source(file: str) -> Path:
    """Where a file named on the page is."""
    if "/" in file:
        return ROOT / file
    return ROOT / ("tests/hosts" if file.startswith("test_") else "hosts/engine") / file


def test_page__names_files_and_functions_that_exist() -> None:
    found = REFERENCE.findall(PAGE)
    assert len(found) > 200
    missing = []
    for file, name in found:
        path = source(file)
        text = path.read_text() if path.is_file() else ""
        for part in name.split("."):
            if not re.search(rf"^\s*((async )?def|class) {part}\b|^\s*{part}\b( =|:)", text, re.MULTILINE):
                missing.append(f"{file}: {name}")
    assert missing == []


def test_page__each_rule_has_a_place_and_a_test() -> None:
    tables = PAGE[: PAGE.index("## §12")]
    rules = [line for line in tables.splitlines() if line.startswith("| ") and not line.startswith("| Rule ")]
    assert len(rules) > 100
    for line in rules:
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        assert len(cells) == 3, line
        assert REFERENCE.search(cells[1]) and "test_" not in cells[1], line
        assert all("test_" in file for file, _ in REFERENCE.findall(cells[2])) and REFERENCE.search(cells[2]), line


def test_page__knows_every_key_and_no_other() -> None:
    named = set(re.findall(r"`Config\.(\w+)`", PAGE))
    known = {field.name for field in fields(Config)}
    methods = {"retry_interval_s"}
    assert known - named == set() and named - known - methods == set()


def test_page__has_all_44_open_points() -> None:
    rows = re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)
    assert rows == [str(n) for n in range(1, 45)]
