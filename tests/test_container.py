"""Fabrics in containers of podman and runc, over this machine's own files."""

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mrc_testbed.switch.system.cache_folder import safe_cache_dir
from tests.repository import ROOT

OPTIONS = [option for option in json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())["runArgs"] if option]
"""Options of the documents too: tests/test_machines.py compares them."""
MISSING_PROGRAMS = [program for program in ("podman", "runc") if shutil.which(program) is None]
DEMO_OPTIONS = ("--planes", "2", "--hosts-per-rack", "1", "--json")

pytestmark = [
    pytest.mark.root,
    pytest.mark.thorough,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        bool(MISSING_PROGRAMS), reason=f"no {', '.join(MISSING_PROGRAMS)} here: apt-get install podman runc"
    ),
]


@pytest.fixture
def container(tmp_path):
    """Return a function that runs a command of mrc in a container."""
    root, store = tmp_path / "root", tempfile.mkdtemp(prefix="mrc-")  # podman's bound for its paths is 50 characters
    for folder in ("usr", "etc", "tmp", "proc", "sys", "dev", "run", "var/tmp", "root"):
        (root / folder).mkdir(parents=True)
    for folder in ("bin", "sbin", "lib", "lib64"):
        if Path("/", folder).is_symlink():
            (root / folder).symlink_to(Path("/", folder).readlink())
    for name in ("passwd", "group", "ld.so.cache", "os-release", "alternatives"):
        source = Path("/etc", name)
        (shutil.copytree if source.is_dir() else shutil.copy)(
            source, root / "etc" / name, **({"symlinks": True} if source.is_dir() else {})
        )
    storage = [f"--root={store}/root", f"--runroot={store}/run", f"--tmpdir={store}/tmp", "--storage-driver=vfs"]
    podman = ["podman", *storage, "--events-backend=file", "--cgroup-manager=cgroupfs", "--runtime=runc", "run", "--rm"]
    # The bounds of the test's machine may be below podman's own.
    podman += ["--network=none", "--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"]
    for folder in {"/usr", sys.base_prefix, str(ROOT)}:
        podman.append(f"--volume={folder}:{folder}:ro")
    podman.append(f"--volume={safe_cache_dir()}:/root/.cache/mrc-testbed")  # programs that are compiled already

    def run(*command: str, without: str = "") -> subprocess.CompletedProcess[str]:
        options = [option for option in OPTIONS if option != without]
        line = f"cd /tmp && {shlex.join([sys.executable, '-m', 'mrc_testbed', *command])}"
        environment = ["--env=PYTHONDONTWRITEBYTECODE=1", f"--env=PYTHONPATH={ROOT}"]
        return subprocess.run(
            [*podman, *options, *environment, "--rootfs", str(root), "/bin/sh", "-c", line],
            capture_output=True,
            text=True,
        )

    yield run
    shutil.rmtree(store)


def test_options__suffice_for_the_demo(container):
    demo = container("demo", *DEMO_OPTIONS)
    assert demo.returncode == 0, demo.stderr[-2000:]
    assert json.loads(demo.stdout)["passed"]


@pytest.mark.parametrize("capability", ["NET_RAW", "SYS_ADMIN"])
def test_doctor__fails_where_no_fabric_can_start(container, capability):
    doctor = container("doctor", "--json", without=f"--cap-add={capability}")
    lacking = [check["name"] for check in json.loads(doctor.stdout) if check["needed"] and not check["ok"]]
    assert lacking == [{"NET_RAW": "AF_PACKET", "SYS_ADMIN": "network namespaces"}[capability]]
    assert doctor.returncode != 0
