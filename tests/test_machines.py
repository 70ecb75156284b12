"""Vagrantfile, Dockerfile and devcontainer.

One provisioning, and the releases that `mrc doctor` knows.
"""

import json
import os
import re
import shutil
import subprocess

import pytest

from mrc_testbed.doctor.doctor import RELEASES
from tests.repository import ROOT

VAGRANTFILE = (ROOT / "Vagrantfile").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
DEVCONTAINER = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
RIGHTS = {"NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_NICE"}


def vagrant(tmp_path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("vagrant") is None:
        pytest.skip("no vagrant here (Debian 12 has a package `vagrant`)")
    home = {"VAGRANT_HOME": str(tmp_path / "home"), "VAGRANT_DOTFILE_PATH": str(tmp_path / "dot")}
    home["VAGRANT_CHECKPOINT_DISABLE"] = "1"
    return subprocess.run(
        ["vagrant", *arguments],
        cwd=ROOT,
        env=os.environ | home | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_vagrantfile__is_valid(tmp_path):
    """The file is checked without a provider: there is none where these tests run."""
    process = vagrant(tmp_path, "validate", "--ignore-provider", MRC_RELEASE="debian-13", MRC_BMV2="no")
    assert process.returncode == 0 and process.stdout.endswith("Vagrantfile validated successfully.\n"), process.stderr


def test_vagrantfile__a_release_it_does_not_have_is_refused_with_those_it_has(tmp_path):
    process = vagrant(tmp_path, "validate", "--ignore-provider", MRC_RELEASE="debian-9")
    assert process.returncode == 1
    assert process.stderr.strip() == f"Vagrantfile: no release debian-9 (has: {', '.join(RELEASES)})"


def test_vagrantfile__boots_the_releases_that_doctor_knows():
    table = re.findall(r'^  "([a-z]+-[\d.]+)" +=> \["bento/([a-z]+-[\d.]+)", "\d+\.\d+\.\d+"\],$', VAGRANTFILE, re.M)
    assert table == [(name, name) for name in RELEASES]
    assert 'ENV.fetch("MRC_RELEASE", "ubuntu-24.04")' in VAGRANTFILE


def test_all__share_one_provisioning():
    assert "/vagrant/scripts/provision --into" in VAGRANTFILE
    assert re.findall(r"^RUN (.*)$", DOCKERFILE, re.M) == ["scripts/provision --no-bmv2"]
    assert DEVCONTAINER["postCreateCommand"] == "scripts/provision --tests"
    for words in ("apt-get", "pip"):
        assert words not in VAGRANTFILE + DOCKERFILE + json.dumps(DEVCONTAINER)


def test_containers__have_a_release_we_know_and_the_rights_of_the_documents():
    images = {*re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE, re.M), DEVCONTAINER["image"]}
    assert images == {"debian:13"} and "debian-13" in RELEASES
    assert {option.removeprefix("--cap-add=") for option in DEVCONTAINER["runArgs"] if "cap-add" in option} == RIGHTS
    page = (ROOT / "docs" / "install.md").read_text()
    for text in (DOCKERFILE, page):
        assert set(re.findall(r"--cap-add[ =](\w+)", text)) == RIGHTS and "--security-opt apparmor=unconfined" in text


def test_dockerfile__copies_no_virtual_environment_and_no_build():
    assert {".git", ".venv*", "build", "results"} <= set((ROOT / ".dockerignore").read_text().split())


def test_line_ends__are_lf_on_windows_too():
    attributes = subprocess.run(
        ["git", "check-attr", "eol", "scripts/provision", "Vagrantfile"], cwd=ROOT, capture_output=True, text=True
    )
    assert attributes.stdout.splitlines() == ["scripts/provision: eol: lf", "Vagrantfile: eol: lf"]
