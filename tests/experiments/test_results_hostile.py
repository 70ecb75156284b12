"""Foreign result folders lead nowhere out of themselves, and nothing is written outside of --out."""

import json
import os

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from mrc_testbed.experiments.results import Results, ResultsError, read_manifest
from mrc_testbed.files.file_names import is_plain, read_regular
from tests.experiments.test_merge import SCENARIO, file, make_results

NAMES = {
    "up": "../../elsewhere", "absolute": "/tmp/elsewhere", "parent": "..", "here": ".", "none": "", "zero": "a\0b",
    "line": "a\nb", "long": "x" * 256, "number": 7, "list": ["a"], "surrogate": "\ud800", "down": "a/b",
}  # fmt: skip


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture(scope="module")
def result_folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("hostile")
    return [make_results(file(base, SCENARIO, name), base / "in" / name, 1, 1) for name in ("short", "other")]


@pytest.fixture
def copies(result_folders, tmp_path):
    import shutil

    for folder in result_folders:
        shutil.copytree(folder, tmp_path / "in" / folder.name)
    return tmp_path / "in"


def change_manifest(folder, **values):
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


COMMANDS = (("merge",), ("report",), ("report", "--summary"))


# `make test` has each name under each key, with one of the commands.
@pytest.mark.parametrize(
    ("words", "key", "name"),
    [
        pytest.param(
            words,
            key,
            name,
            id=f"{' '.join(words)}-{key}-{label}",
            marks=[] if (number + key_number) % len(COMMANDS) == command_number else [pytest.mark.thorough],
        )
        for command_number, words in enumerate(COMMANDS)
        for key_number, key in enumerate(("scenario", "study"))
        for number, (label, name) in enumerate(NAMES.items())
    ],
)
def test_names__of_a_manifest_that_lead_elsewhere_are_refused(copies, tmp_path, key, name, words):
    change_manifest(copies / "short", **{key: name if key == "scenario" else {"study": name}})
    files_before = files_below(tmp_path)
    out = ["--out", str(tmp_path / "deep" / "er" / "merged")] if words == ("merge",) else []
    folder = copies if words == ("merge",) else copies / "short"
    result = CliRunner().invoke(app, [*words, str(folder), *out])
    assert result.exit_code != 0 and isinstance(result.exception, ResultsError | SystemExit), result.output
    if isinstance(result.exception, ResultsError):
        assert "is no name of a file" in str(result.exception) or "is not of schema" in str(result.exception)
    assert files_below(tmp_path) == files_before
    assert not is_plain(name)


@pytest.mark.parametrize("link", ["runs", "manifest.json", "scenario.yaml", "study.yaml", "tasks", "figures", "replay"])
def test_links__out_of_a_folder_of_results_are_refused(copies, tmp_path, link):
    secret = tmp_path / "secret"
    link_path = copies / "short" / link
    if link_path.exists():
        link_path.rename(secret)
    else:
        secret.mkdir()
    link_path.symlink_to(secret)
    files_before = files_below(tmp_path)
    result = CliRunner().invoke(app, ["merge", str(copies / "short"), "--out", str(tmp_path / "merged")])
    assert result.exit_code != 0, result.output
    assert files_below(tmp_path) == files_before


def test_links__of_a_run_count_as_damage(copies, tmp_path):
    run = next((copies / "short" / "runs").glob("*.json"))
    (tmp_path / "moved").write_bytes(run.read_bytes())
    run.unlink()
    run.symlink_to(tmp_path / "moved")
    with pytest.raises(ResultsError, match="symbolic link"):
        Results.open(copies / "short")


def test_links__that_stand_where_a_report_is_written_are_replaced(copies, tmp_path):
    folder = copies / "short"
    precious = tmp_path / "precious"
    precious.write_text("precious")
    CliRunner().invoke(app, ["report", str(folder)], catch_exceptions=False)
    pages = [path for path in folder.rglob("*") if path.suffix in (".html", ".svg", ".png")]
    assert pages
    for path in pages:
        path.unlink()
        path.symlink_to(precious)
    CliRunner().invoke(app, ["report", str(folder)], catch_exceptions=False)
    assert precious.read_text() == "precious" and not [path for path in pages if path.is_symlink()]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)], ids=["pipe", "device"])
def test_read_regular__never_waits_for_what_has_no_end(tmp_path, make):
    make(tmp_path / "manifest.json")
    with pytest.raises(OSError, match=r"regular|symbolic"):
        read_regular(tmp_path / "manifest.json")
    with pytest.raises(ResultsError):
        read_manifest(tmp_path)


@pytest.mark.parametrize("name", ["e7", "x-jobs", "ä", "a b", "..a", "x" * 255])
def test_is_plain__takes_names_of_files(name):
    assert is_plain(name)
