"""docs/mrc-coverage.md names only what exists, and all keys and open points there are."""

from __future__ import annotations

import re
from pathlib import Path

from mrc_testbed.hosts.engine import config
from mrc_testbed.hosts.engine.config import KEYS
from mrc_testbed.hosts.engine.config_limits import Choice
from tests.repository import ROOT

FIELDS = {f"{key.group}.{key.field}" for key in KEYS.values()}
PAGE = (ROOT / "docs/mrc-coverage.md").read_text()
REFERENCE = re.compile(r"`([\w/]+\.py): ([\w.]+)`")


def source(file: str) -> Path:
    """Return where a file named on the page is."""
    if "/" in file:
        return ROOT / file
    folder = ROOT / ("tests/hosts" if file.startswith("test_") else "hosts/engine")
    paths = sorted(folder.rglob(file))
    return paths[0] if len(paths) == 1 else folder / file


def test_page__names_files_and_functions_that_exist() -> None:
    references = REFERENCE.findall(PAGE)
    assert len(references) > 200
    bad_references = []
    for file, name in references:
        path = source(file)
        text = path.read_text() if path.is_file() else ""
        for part in name.split("."):
            if not re.search(rf"^\s*((async )?def|class) {part}\b|^\s*{part}\b( =|:)", text, re.MULTILINE):
                bad_references.append(f"{file}: {name}")
    assert bad_references == []


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
    page_keys = set(re.findall(r"`Config\.([\w.]+)`", PAGE))
    assert FIELDS - page_keys == set() and page_keys - FIELDS == set()


def test_page__has_all_44_open_points_each_with_a_key_and_a_test() -> None:
    rows = re.findall(r"^\| (\d+) \| .+ \| (`Config.+`) \| .+ \| (`test_.+`) \|$", PAGE, re.MULTILINE)
    assert [number for number, _, _ in rows] == [str(n) for n in range(1, 45)]
    text = Path(config.__file__).read_text()
    for number, keys, tests in rows:
        names = re.findall(r"`Config\.([\w.]+)`", keys)
        assert names and set(names) <= FIELDS and REFERENCE.search(tests), number
        explained_names = [name for name in names if number in row_numbers(doc_of(text, name.partition(".")[2]))]
        assert explained_names, f"no text of {', '.join(names)} in Config names row {number}"


def doc_of(source: str, key: str) -> str:
    """Return the text below a field of a group of Config, or of the next field that has one."""
    match = re.search(rf"^    {key}: .*?$\n(?:    \w+: .*\n)*    \"\"\"(.*?)\"\"\"", source, re.MULTILINE | re.DOTALL)
    return match.group(1) if match else ""


def row_numbers(text: str) -> set[str]:
    """Return the rows of §12 that a text names."""
    return {n for numbers in re.findall(r"§12\s+rows? (\d+(?: and \d+)?)", text) for n in numbers.split(" and ")}


def test_choices__every_key_with_variants_has_its_default_among_them() -> None:
    for name, key in KEYS.items():
        for choice in (limit for limit in key.limits if isinstance(limit, Choice)):
            assert key.default in choice.values and len(choice.values) > 1, name
