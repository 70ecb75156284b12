"""Files that are whole or not there."""

from __future__ import annotations

import ast
import errno
import os
import resource
import threading
from collections.abc import Iterator

import pytest

from mrc_testbed.files.whole_files import GrowingFile, write_output, write_random
from tests.repository import ROOT


def test_write_output__keeps_what_was_there_when_the_disk_fails(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"before")

    def raise_disk_full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", raise_disk_full)
    with pytest.raises(OSError, match=r"No space left on device: .*a'"):
        write_output(path, b"after")
    assert path.read_bytes() == b"before" and os.listdir(tmp_path) == ["a"]


def test_write_output__writes_to_a_pipe_and_leaves_it_one(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
    reader.start()
    write_output(path, b"data")
    reader.join()
    assert read == [b"data"] and path.is_fifo()


def test_write_random__leaves_nothing_of_a_file_that_does_not_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda size: (_ for _ in ()).throw(OSError(errno.EIO, os.strerror(errno.EIO))))
    with pytest.raises(OSError, match="Input/output error"):
        write_random(tmp_path / "a", 10)
    assert os.listdir(tmp_path) == []


def test_a_growing_file__has_what_was_flushed_and_no_part_of_the_rest(tmp_path):
    path = tmp_path / "a"
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    with GrowingFile(path) as file:
        file.write(b"whole")
        file.flush()
        file.write(b"too long")
        resource.setrlimit(resource.RLIMIT_FSIZE, (8, limit[1]))
        try:
            with pytest.raises(OSError, match=r"File too large: .*a'"):
                file.flush()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert path.read_bytes() == b"whole"


PRODUCT = ("controller", "hosts", "mrc_testbed", "topologies")
OTHER_WRITERS = {
    "mrc_testbed/native_build/build.py": "a lock, and a copy of the sources in a temporary folder",
    "mrc_testbed/native_build/mypyc_setup.py": "in a temporary folder",
    "controller/faults/observations.py": "a log",
    "mrc_testbed/experiments/executors/crash.py": "a report of a crash, for which the message itself stands in",
    "mrc_testbed/experiments/executors/submitit_crew.py": "a log",
    "hosts/dissector/__init__.py": "a copy in a temporary folder",
    "mrc_testbed/ipc/processes.py": "a log",
    "mrc_testbed/switch/system/cache_folder.py": "a lock",
    "mrc_testbed/ipc/rundir.py": "write_private, of the run folder",
    "mrc_testbed/testing/checked_transfer.py": "random bytes for a test, which fails without them",
    "mrc_testbed/doctor/doctor.py": "asks for the lock of a file, and writes nothing",
    "mrc_testbed/simulator/simtest/fuzz.py": "the corpus of a fuzzer, in the cache",
    "mrc_testbed/cli/prompt/unexpected.py": "a log",
    "topologies/lab/cluster/clock.py": "/proc",
    "topologies/lab/cluster/connection.py": "a log",
    "topologies/lab/cluster/remote_machine.py": "a log",
    "topologies/lab/netdev.py": "/proc",
    "hosts/ip/tun.py": "/proc",
    "hosts/nicd/launch.py": "a lock, and a log",
    "mrc_testbed/cli/prompt/commands/tools.py": "a log",
}
"""Files of the product that write in another way, and why.

None of them leaves a half file where a whole one is expected.
"""
WRITERS = ("write_text", "write_bytes", "savefig", "copyfile", "copytree", "tofile", "NamedTemporaryFile")


def writes(tree: ast.Module) -> Iterator[int]:
    """Lines of calls that write a file by its name."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        modes = [
            argument.value
            for argument in [*call.args, *(key.value for key in call.keywords)]
            if isinstance(argument, ast.Constant)
        ]
        opens = name == "open" and any(
            isinstance(mode, str) and set(mode) <= set("wxab+tr") and set(mode) & set("wxa+") for mode in modes
        )
        if name in WRITERS or opens:
            yield call.lineno


@pytest.mark.house
def test_files_of_the_product__are_written_by_whole_files_alone():
    lines_by_file = {}
    for path in (path for package in PRODUCT for path in (ROOT / package).rglob("*.py")):
        if lines := list(writes(ast.parse(path.read_text(encoding="utf-8")))):
            lines_by_file[str(path.relative_to(ROOT))] = lines
    assert set(lines_by_file) == set(OTHER_WRITERS), {
        name: lines_by_file.get(name) for name in set(lines_by_file) ^ set(OTHER_WRITERS)
    }
