"""Test that each file of tests has the name of a source.

`hosts/engine/qp.py` has `tests/hosts/engine/test_qp.py`, and files with a theme behind that name.
The package's name stands for `__init__` and `__main__`, and for tests of a package as a whole.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.repository import ROOT
from tests.test_imports import CODE, PACKAGE

pytestmark = pytest.mark.house

LIST = ROOT / "tests" / "sources_without_a_test.txt"
LONG_SOURCE_LINES = 150
FOLDERS_WITHOUT_SOURCES = (Path(), Path("resilience"))
"""Folders of tests of the repository and of whole fabrics, which no source names."""


def folder_of(source: Path) -> Path:
    """Return the folder of a source's tests below tests/."""
    folder = source.parent.relative_to(ROOT)
    return folder.relative_to(PACKAGE) if folder.parts[0] == PACKAGE else folder


def name_of(source: Path) -> str:
    return source.parent.name if source.stem in ("__init__", "__main__") else source.stem


@cache
def names() -> dict[Path, set[str]]:
    """Folder of tests -> names that its tests may have."""
    out: dict[Path, set[str]] = defaultdict(set)
    for source in (*sources(), *(ROOT / "p4src").glob("*.p4")):
        out[folder_of(source)] |= {name_of(source), source.parent.name}
    return out


def sources() -> list[Path]:
    return [path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py"))]


def paths_of_tests() -> list[Path]:
    return sorted(path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py"))


def source_name(test: Path) -> str | None:
    """Return the name of the source that a test is named by: the longest that fits; None without one."""
    stem = test.stem.removeprefix("test_")
    fitting = [name for name in names()[test.parent] if f"{stem}_".startswith(f"{name}_")]
    return max(fitting, key=len, default=None)


def test_names__each_test_stands_in_the_folder_of_its_source_and_has_its_name():
    assert [
        str(test)
        for test in paths_of_tests()
        if test.parent not in FOLDERS_WITHOUT_SOURCES and source_name(test) is None
    ] == []


def test_sources__long_ones_have_a_test_of_their_name_or_are_listed():
    sources_of_tests = {(test.parent, source_name(test)) for test in paths_of_tests()}
    untested_sources = {
        str(source.relative_to(ROOT))
        for source in sources()
        if len(source.read_text().splitlines()) > LONG_SOURCE_LINES
        and (folder_of(source), name_of(source)) not in sources_of_tests
    }
    listed_sources = LIST.read_text().split()
    assert listed_sources == sorted(set(listed_sources))
    assert untested_sources - set(listed_sources) == set(), (
        f"over {LONG_SOURCE_LINES} lines and without a test of their name: add one"
    )
    assert set(listed_sources) - untested_sources == set(), (
        f"have a test now, are short or gone: take them off {LIST.name}"
    )


def test_source_name__is_the_longest_that_fits_and_of_the_same_folder():
    assert source_name(Path("hosts/engine/test_requestor_writes.py")) == "requestor"
    assert source_name(Path("hosts/engine/rocev2/test_rc_requestor.py")) == "rc_requestor"
    assert source_name(Path("controller/test_controller_live.py")) == "controller"  # __main__ goes by its package
    assert source_name(Path("p4src/test_egress_properties.py")) == "egress"
    assert (
        source_name(Path("hosts/test_requestor.py")) is None and source_name(Path("hosts/engine/test_qps.py")) is None
    )


def test_tests__that_run_alone_are_where_make_test_looks_for_them():
    files = {
        path.relative_to(ROOT / "tests").parts[0]
        for path in (ROOT / "tests").rglob("test_*.py")
        if "pytest.mark." + "alone" in path.read_text(encoding="utf-8")
    }
    assert files == {"resilience"}
