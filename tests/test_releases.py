"""Every release's provisioning in a fresh root of that release, and then something real in it.

A fabric with packets.

A root takes a minute to make (kept in the cache folder) and two to provision, so these tests run when asked:

    MRC_RELEASES=all .venv/bin/python -m pytest tests/test_releases.py              # as root
    MRC_RELEASES=debian-13,ubuntu-24.04 .venv/bin/python -m pytest tests/test_releases.py

Needs debootstrap, and the keyring of the release's archive. The mirror is this machine's own where it is of the same
distribution, else debootstrap's default.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrc_testbed.doctor.doctor import RELEASES
from mrc_testbed.switch.system.cache_folder import safe_cache_dir
from tests.repository import ROOT

SUITES = {
    "debian-12": "bookworm",
    "debian-13": "trixie",
    "ubuntu-22.04": "jammy",
    "ubuntu-24.04": "noble",
    "ubuntu-26.04": "resolute",
}
DISTRIBUTIONS = {
    "debian": ("Debian", "sid", "main", "debian-archive-keyring"),
    "ubuntu": ("Ubuntu", "gutsy", "main,universe", "ubuntu-keyring (Debian 12: ubuntu-archive-keyring)"),
}
"""Origin of the packages, debootstrap's script for other suites, components, package of the keyring."""

REQUESTED_RELEASES = os.environ.get("MRC_RELEASES", "")
NETWORK = ("http_proxy", "https_proxy", "no_proxy", "PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
"""Settings for reaching the world hold for the root as well; those that name a file have it copied."""
CHECKOUT = "/root/mrc-testbed"

ENTER = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mkdir -p .outside
pivot_root . .outside
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount --rbind /.outside/dev /dev
mount -t tmpfs tmpfs /run
umount --lazy /.outside
rmdir /.outside
shift
exec "$@"
"""
"""Script that makes a folder the root of a mount namespace; its mounts end with its last process.

A chroot would not do: who enters a host's namespaces leaves a chroot.
"""

pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not REQUESTED_RELEASES, reason="takes minutes a release: MRC_RELEASES=all or names, " + ", ".join(SUITES)
    ),
]


def test_suites__are_those_of_the_releases_we_know():
    assert list(SUITES) == list(RELEASES)


def mirror_of(origin: str) -> str:
    """Return where this machine has that distribution's packages from; empty when it is of another one."""
    command = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)", "Created-By: Packages"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return next((line.split()[2] for line in lines if line.split()[:2] == [origin, origin]), "")


def base_of(name: str) -> Path:
    """Return a tar archive of the release's minimal root, from the cache or made now.

    Skips the test where it cannot be made here.
    """
    archive = safe_cache_dir() / "releases" / f"{name}.tar"
    if archive.exists():
        return archive
    if shutil.which("debootstrap") is None:
        pytest.skip("no debootstrap here: apt-get install debootstrap")
    origin, script, components, package = DISTRIBUTIONS[name.split("-")[0]]
    keyring = Path(f"/usr/share/keyrings/{origin.lower()}-archive-keyring.gpg")
    if not keyring.exists():
        pytest.skip(f"no {keyring}, so {origin}'s packages could not be verified: apt-get install {package}")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=archive.parent) as folder:
        root = Path(folder) / "root"
        suite_script = Path(f"/usr/share/debootstrap/scripts/{SUITES[name]}")
        process = subprocess.run(
            [
                "debootstrap",
                "--variant=minbase",
                f"--components={components}",
                f"--keyring={keyring}",
                SUITES[name],
                root,
                mirror_of(origin),
                suite_script if suite_script.exists() else suite_script.with_name(script),
            ],
            capture_output=True,
            text=True,
            env=os.environ | {"LC_ALL": "C.UTF-8"},
        )
        if "Failed getting release file" in process.stdout + process.stderr:
            pytest.skip(f"no mirror of {name} can be reached from here: {process.stderr.splitlines()[-1]}")
        assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
        # A tar that was cut short must not pass for the root of a later run.
        new_archive = archive.with_suffix(".new")
        subprocess.run(["tar", "--create", "--numeric-owner", "-C", root, "-f", new_archive, "."], check=True)
        new_archive.replace(archive)
    return archive


class Release:
    """A root of a release with a checkout in /src.

    `run` is a command in it, as if it were the machine's root.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
        shutil.copyfile("/etc/resolv.conf", root / "etc" / "resolv.conf")
        for variable in NETWORK:
            value = os.environ.get(variable)
            if value and value.startswith("/"):
                shutil.copyfile(value, root / "etc" / f"machine-{variable}")
                value = f"/etc/machine-{variable}"
            if value:
                self.environment[variable] = value
        left_out = shutil.ignore_patterns(
            ".git", ".venv*", "__pycache__", "build", "results", ".*_cache", ".hypothesis"
        )
        shutil.copytree(ROOT, root / "src", ignore=left_out)

    def run(self, script: str, *, own_network: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a bash script in the root; fails unless the script ends well.

        It uses the machine's network or one of its own.
        """
        namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--ipc", *(["--net"] if own_network else [])]
        loopback_up = "ip link set lo up; " if own_network else ""
        process = subprocess.run(
            ["unshare", *namespaces, "bash", "-c", ENTER, "enter", self.root, "bash", "-ec", loopback_up + script],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert process.returncode == 0, f"{script}:\n{process.stdout[-4000:]}\n{process.stderr[-4000:]}"
        return process


@pytest.fixture(scope="module", params=SUITES)
def release(request) -> Iterator[Release]:
    if REQUESTED_RELEASES != "all" and request.param not in REQUESTED_RELEASES.split(","):
        pytest.skip(f"MRC_RELEASES={REQUESTED_RELEASES}")
    archive = base_of(request.param)
    with tempfile.TemporaryDirectory(prefix=f"{request.param}-", dir=archive.parent) as folder:
        subprocess.run(["tar", "--extract", "--numeric-owner", "-p", "-C", folder, "-f", archive], check=True)
        yield Release(Path(folder))
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        assert not [mount for mount in mounts if mount.startswith(folder)], "mounts left behind"


def test_provision__then_a_fabric_with_packets(release):
    """One test a release, in the order of its life: what fails first is what to look at."""
    log = release.run(f"/src/scripts/provision --into {CHECKOUT}").stderr
    assert log.endswith(f"provision: ready: cd {CHECKOUT} && make demo\n"), log
    assert release.run(f"{CHECKOUT}/scripts/setup --quiet").stderr == ""  # nothing is left to do

    mrc = f"cd {CHECKOUT} && .venv/bin/mrc"
    assert release.run(f"{mrc} --version").stdout.startswith("mrc-testbed ")
    checks = {check["name"]: check for check in json.loads(release.run(f"{mrc} doctor --json").stdout)}
    assert checks["release"]["ok"], checks["release"]
    assert "  ok    " in release.run(f"{mrc} run e7 --virtual").stdout

    size_options = "--planes 2 --hosts-per-rack 1 --json"
    demo = release.run(f"cd {CHECKOUT} && make -s demo ARGS='{size_options}'", own_network=True)
    assert json.loads(demo.stdout)["passed"]


def test_rootless__an_ordinary_user_of_the_release(release):
    """The user has no sudo: `make demo` makes the Python environments, and the fabric in a user namespace."""
    release.run(
        "useradd --create-home somebody && cp -r /src /home/somebody/mrc && chown -R somebody: /home/somebody/mrc"
    )
    script = "cd ~/mrc && make -s demo ROOT=no ARGS='--planes 2 --hosts-per-rack 1 --json'"
    demo = release.run(f'su somebody -c "{script}"')
    assert json.loads(demo.stdout)["passed"]
