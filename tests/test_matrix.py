"""scripts/matrix: which interpreters it takes, and what it says of those it does not find."""

import os
import subprocess
import sys

import pytest

from tests.repository import ROOT


def matrix(tmp_path, version: str) -> subprocess.CompletedProcess[str]:
    """A run with no pyenv and a PATH where one name of an interpreter is this one."""
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / f"python{version}").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (bare / f"python{version}").chmod(0o755)
    env = {"PATH": f"{bare}:{os.defpath}", "PYENV_ROOT": str(tmp_path), "MRC_CACHE_DIR": str(tmp_path / "cache")}
    (tmp_path / "cache").write_text("a file: no environment can be made in it")
    return subprocess.run(
        [ROOT / "scripts" / "matrix"],
        env=env | {"HOME": str(tmp_path), "PYTHONS": version},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_matrix__an_interpreter_that_answers_for_another_version_is_not_found(tmp_path):
    process = matrix(tmp_path, "3.99")
    assert process.returncode == 1 and process.stdout == "matrix: Python 3.99 not found\n"


@pytest.mark.skipif(sys.version_info >= (3, 15), reason="not a supported version")
def test_matrix__an_environment_that_cannot_be_made_has_failed(tmp_path):
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    process = matrix(tmp_path, version)
    assert process.returncode == 1 and f"matrix: Python {version} FAILED: its packages" in process.stdout
