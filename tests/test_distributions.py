"""The wheel and the sdist, as a stranger gets them.

One name, the core alone, beside folders of the same names.
"""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from mrc_testbed.errors import EXTRAS
from tests.repository import ROOT

# Packages are installed from a registry, and the engine is compiled.
pytestmark = [pytest.mark.build, pytest.mark.thorough, pytest.mark.timeout(1200)]


def run(*command, cwd, **environment):
    env = {
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(cwd),
        "MRC_CACHE_DIR": str(cwd / "cache"),
        **environment,
    }
    return subprocess.run(list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, timeout=900)


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """Folder with the wheel and the sdist, which is what the wheel is made from.

    setuptools collects an sdist in the checkout, in a folder that two workers would share: one waits for the other.
    """
    folder = tmp_path_factory.mktemp("dist")
    with (ROOT / "pyproject.toml").open() as checkout:
        fcntl.flock(checkout, fcntl.LOCK_EX)
        process = subprocess.run(
            [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], capture_output=True, text=True
        )
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def bin_dir(distributions, tmp_path_factory):
    """`bin` of an environment that has the wheel, with the extra `compile`, and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    [wheel] = distributions.glob("*.whl")
    subprocess.run([folder / "bin" / "pip", "install", "-q", f"{wheel}[compile]"], check=True, timeout=900)
    return folder / "bin"


@pytest.fixture
def elsewhere(tmp_path):
    """A folder whose own packages have the names of ours."""
    for name in ("hosts", "mrc", "switch", "tools"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('this is not ours')\n")
    return tmp_path


def test_wheel__has_one_name_and_all_data(distributions):
    [wheel] = distributions.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"mrc_testbed"}
    data = {path.suffix for path in map(Path, names)}
    assert {".p4", ".yaml", ".c", ".h", ".lark", ".lua", ".js", ".css", ".html"} <= data
    assert not [name for name in names if name.startswith(("mrc_testbed/tests", "mrc_testbed/docs"))]


@pytest.mark.parametrize(
    "command, pattern",
    [
        ("mrc --version", r"mrc-testbed \d"),
        ("mrc p4 check srv6 spray", ""),
        ("mrc run e7 --virtual --seed 1", r"(?s)  ok .*digest \w+"),
        ("python -m mrc_testbed run e7 --virtual --seed 1 --out again", "digest"),
        ("mrc compile", "compiled-"),
    ],
)
def test_wheel__works_beside_folders_of_its_names(bin_dir, elsewhere, command, pattern):
    program, *arguments = command.split()
    process = run(bin_dir / program, *arguments, cwd=elsewhere)
    assert process.returncode == 0 and re.search(pattern, process.stdout + process.stderr), (
        process.stdout + process.stderr
    )


@pytest.mark.parametrize(
    "command, package, extra",
    [("mrc up", "mininet", "live"), ("mrc report results", "matplotlib", "plots")],
)
def test_wheel__names_the_extra_of_what_is_missing(bin_dir, elsewhere, command, package, extra):
    if "report" in command:
        assert run(bin_dir / "mrc", "run", "e10", "--fluid", "--seed", "1", cwd=elsewhere).returncode == 0
    program, *arguments = command.split()
    process = run(bin_dir / program, *arguments, cwd=elsewhere)
    assert process.returncode == 1 and "Traceback" not in process.stderr
    assert f"{package}, which is not installed: pip install 'mrc-testbed[{extra}]'" in process.stderr


def test_wheel__asks_for_the_address_of_a_page_without_extras(bin_dir, elsewhere):
    process = run(bin_dir / "mrc", "dash", cwd=elsewhere)
    assert process.returncode == 1 and "not installed" not in process.stderr and "Cure: " in process.stderr


def test_sdist__has_what_its_tests_need(distributions, tmp_path):
    [sdist] = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    [tree] = tmp_path.glob("mrc_testbed-*")
    tests = ("tests/hosts/engine/wire", "tests/topologies/plan", "tests/faults", "tests/console")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not root and not build", *tests]
    process = run(*command, cwd=tree, PYTHONPATH=str(tree))
    assert process.returncode == 0, process.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", process.stdout)[1]) > 100


def test_extras__are_those_of_pyproject():
    text = (ROOT / "pyproject.toml").read_text()
    packages_by_extra = dict(
        re.findall(r"^(\w[\w-]*) = \[(.*?)\]", text.partition("[project.optional-dependencies]")[2], re.M | re.S)
    )
    other_names = {"prometheus_client": "prometheus-client"}
    for module, extra in EXTRAS.items():
        assert f'"{other_names.get(module, module)}>=' in packages_by_extra[extra], module
