"""Memory of the machine: how much is free, and folders in it that are found again and freed."""

import json
import os
from pathlib import Path

import pytest

from mrc_testbed.files import memory
from mrc_testbed.ipc.rundir import IN_MEMORY_VARIABLE, RunDir, RunState

SIZE = 8 << 20
root = [
    pytest.mark.root,
    pytest.mark.skipif(memory.obstacle() is not None, reason="needs root and huge pages for tmpfs: mounts"),
]


def machine(root, available="1000 kB", group="0::/", **limits):
    """A machine's files: its free memory, this process's control group, and `name: (max, current)`."""
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "meminfo").write_text(f"MemTotal:  9999999 kB\nMemAvailable: {available}\n")
    (root / "proc" / "self" / "cgroup").write_text(f"{group}\n")
    for name, (limit, current) in limits.items():
        folder = root / "sys" / "fs" / "cgroup" / name.replace("__", "/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{current}\n")
    return root


def test_free_memory__what_the_kernel_says_or_a_control_group_leaves(tmp_path):
    assert memory.free_memory(machine(tmp_path / "bare")) == 1000 * 1024
    assert memory.free_memory(machine(tmp_path / "old", group="4:memory:/x")) == 1000 * 1024
    own_group = machine(tmp_path / "own", group="0::/a/b", a=(500_000, 100_000), a__b=("max", 5))
    assert memory.free_memory(own_group) == 400_000
    full_group = machine(tmp_path / "full", group="0::/a", a=(500_000, 600_000))
    assert memory.free_memory(full_group) == 0
    assert memory.free_memory() > 0


def test_paths_of_mountinfo():
    assert memory._unescape("/a\\040b\\134c") == "/a b\\c"
    assert memory._unescape("/a\\134040") == "/a\\040"


def test_keep_data_in_memory__on_disk_where_it_cannot_be(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_forbidden", lambda: "no huge pages")
    with RunDir(tmp_path / "run") as run_dir:
        run_dir.begin()
        assert not run_dir.keep_data_in_memory()
        (run_dir.data / "file").write_text("x")
        assert memory.obstacle() == "no huge pages" and memory.mounted_folders(run_dir.state.memory) == []
        run_dir.clean_leftovers()
    assert not run_dir.data.exists()


class TestMountedFolder:
    pytestmark = root

    @pytest.fixture
    def folder(self, tmp_path):
        """A folder in memory, by a name of its own."""
        path, name = tmp_path / "a folder", RunState().memory
        path.mkdir()
        memory.mount_folder(path, name, SIZE)
        yield path, name
        memory.unmount_folders(name)

    def test_folder__is_found_by_its_name_and_freed_with_what_is_in_it(self, folder):
        path, name = folder
        (path / "kept").write_text("precious")
        with (path / "kept").open() as reader:
            assert memory.mounted_folders(name) == [path] and memory.mounted_folders(f"{name}0") == []
            assert memory.unmount_folders(name) == [path]
            assert reader.read() == "precious", "who has a file open keeps it"
        assert list(path.iterdir()) == [] and memory.mounted_folders(name) == [] and memory.unmount_folders(name) == []

    def test_folder__has_its_size_and_huge_pages(self, folder):
        path, name = folder
        has = os.statvfs(path)
        assert has.f_blocks * has.f_frsize == SIZE
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        (line,) = [line for line in lines if f" tmpfs {name} " in line]
        assert "huge=within_size" in line and "nosuid,nodev" in line

    def test_mount_folder__says_what_is_wrong(self, tmp_path):
        with pytest.raises(OSError, match=r"No such file or directory: .*none"):
            memory.mount_folder(tmp_path / "none", RunState().memory, SIZE)

    def test_run__frees_its_memory_even_when_it_was_killed(self, tmp_path):
        run_dir = RunDir(tmp_path / "run")
        with run_dir:
            run_dir.begin()
            assert run_dir.keep_data_in_memory()
            (run_dir.data / "file").write_bytes(bytes(1000))
            assert json.loads(run_dir.state_file.read_text())["token"] in run_dir.state.memory
            assert os.statvfs(run_dir.data).f_blocks * os.statvfs(run_dir.data).f_frsize <= memory.free_memory()
        with RunDir(tmp_path / "run") as later_run:
            assert later_run.clean_leftovers() == [f"files in memory at {run_dir.data}"]
            assert not run_dir.data.exists() and memory.mounted_folders(run_dir.state.memory) == []
            assert later_run.clean_leftovers() == []

    def test_run__leaves_files_on_disk_when_asked(self, tmp_path, monkeypatch):
        monkeypatch.setenv(IN_MEMORY_VARIABLE, "0")
        with RunDir(tmp_path / "run") as run_dir:
            run_dir.begin()
            assert not run_dir.keep_data_in_memory() and memory.mounted_folders(run_dir.state.memory) == []
            run_dir.remove_files()
