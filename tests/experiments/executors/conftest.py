"""Results that every executor must give."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from mrc_testbed.cli.app import app
from tests.experiments.executors.killed_study import digest, files


@pytest.fixture(scope="module")
def study_digest(tmp_path_factory) -> str:
    """Digest of the study made in one go, by one process."""
    folder = tmp_path_factory.mktemp("expected")
    result = CliRunner().invoke(app, ["study", str(files(folder)), "--jobs", "1", "--out", str(folder / "out")])
    assert result.exit_code == 0, result.output
    return digest(folder / "out")
