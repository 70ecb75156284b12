"""Files that are whole or not there."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from ipc.whole_files import write_output


def test_write_output__keeps_what_was_there_when_the_disk_fails(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"before")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
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
