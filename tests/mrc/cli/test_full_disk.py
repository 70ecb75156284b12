"""A disk that fails at each write in turn: no traceback, no half file, the verdict printed, an exit code of its own."""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ipc.errors import UNWRITTEN
from mrc.cli import app

SCENARIO = """\
title: a transfer
fabric: {planes: 2, racks: 1, spines: 1, hosts_per_rack: 2}
workload: [{stream: h0 h1, name: flow, bytes: 64K}]
"""


class FullDisk:
    """The disk has no room at the `number`th call that makes, syncs or names a file."""

    def __init__(self, monkeypatch, number: int) -> None:
        self.left = number
        for name in ("fsync", "replace", "mkdir"):
            monkeypatch.setattr(os, name, self._failing(getattr(os, name)))

    def _failing(self, call):
        def failing(*words, **options):
            self.left -= 1
            if self.left == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*words, **options)

        return failing


def end_of(monkeypatch, words: list[str]) -> int:
    """Exit code of a command. Whatever else it raises is a traceback for its user."""
    monkeypatch.setattr(sys, "argv", ["mrc", *words])
    with pytest.raises(SystemExit) as end:
        app.main()
    return int(end.value.code or 0)


def test_run__with_a_disk_that_fails_at_any_moment_tells_verdict_and_cure(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "a.yaml").write_text(SCENARIO)
    ends, judged = [], 0
    for number in range(1, 40):
        out = tmp_path / f"out{number}"
        with monkeypatch.context() as patch:
            disk = FullDisk(patch, number)
            ends.append(end_of(patch, ["run", str(tmp_path / "a.yaml"), "--virtual", "--out", str(out)]))
        said = capsys.readouterr()
        assert not list(tmp_path.rglob("*.part")), number
        if disk.left > 0:  # it ended without that many
            break
        if ends[-1] != 0:
            assert "No space left on device" in said.out + said.err, number
        if ends[-1] == UNWRITTEN and "passed" in said.out:
            judged += 1
    assert ends[-1] == 0 and disk.left > 0
    assert set(ends[:-1]) <= {0, 1, UNWRITTEN} and judged >= 2


@contextmanager
def no_file_over(size: int) -> Iterator[None]:
    """Let the kernel refuse each write that makes a file longer (EFBIG); it takes the bytes before."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


PROGRAM = str(Path(__file__).resolve().parents[3] / "p4src" / "srv6.p4")


@pytest.mark.parametrize("words", ["report made", "merge made --out new", f"p4 compile {PROGRAM} -o new"])
def test_commands__whose_writes_are_cut_leave_no_half_file_and_tell_it(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(SCENARIO)
    assert end_of(monkeypatch, ["run", "a.yaml", "--virtual", "--out", "made"]) == 0
    if words.startswith("p4"):
        assert end_of(monkeypatch, ["p4", "check", PROGRAM]) == 0  # compiled already: the cache needs no room
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    capsys.readouterr()
    with no_file_over(100):
        code = end_of(monkeypatch, words.split())
    said = capsys.readouterr()
    assert code == UNWRITTEN and "File too large" in said.out + said.err, said
    assert {path for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock"} <= before
