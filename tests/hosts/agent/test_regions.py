"""Memory regions of an agent: files that are mapped and received, and what is refused."""

from __future__ import annotations

import asyncio
import hashlib
import os
from random import Random

import pytest

from mrc_testbed.files import memory
from mrc_testbed.hosts.agent.regions import RegionError, Regions
from mrc_testbed.hosts.engine.memory import Memory


class OnlyMemory:
    """The engine's register and deregister, and nothing else."""

    def __init__(self) -> None:
        self.memory = Memory(Random(1))
        self.register, self.deregister = self.memory.register, self.memory.deregister


@pytest.fixture
def regions():
    memory_regions = Regions(OnlyMemory())
    yield memory_regions
    memory_regions.close()


def test_receive_file__takes_its_name_when_it_is_whole(regions, tmp_path):
    region = regions.receive_file(tmp_path / "deep" / "file", 3_000_000)
    region.memory.view[:5] = b"hello"
    assert (tmp_path / "deep" / "file.part").stat().st_size == 3_000_000
    digest = hashlib.sha256(b"hello" + bytes(2_999_995)).hexdigest()
    assert asyncio.run(regions.sha256(region)) == digest
    assert regions.commit(region) == tmp_path / "deep" / "file"
    assert (tmp_path / "deep" / "file").read_bytes()[:5] == b"hello"
    assert list(regions) == [] and not (tmp_path / "deep" / "file.part").exists()


def test_receive_file__removed_leaves_nothing_and_keeps_an_old_one(regions, tmp_path):
    (tmp_path / "file").write_text("old")
    regions.remove(regions.receive_file(tmp_path / "file", 100))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_receive_file__an_empty_one(regions, tmp_path):
    region = regions.receive_file(tmp_path / "empty", 0)
    assert asyncio.run(regions.sha256(region)) == hashlib.sha256().hexdigest()
    regions.commit(region)
    assert (tmp_path / "empty").stat().st_size == 0


def test_receive_file__twice_at_once_is_refused(regions, tmp_path):
    regions.receive_file(tmp_path / "file", 100)
    with pytest.raises(RegionError, match="being received already"):
        regions.receive_file(tmp_path / "file", 100)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or memory.obstacle() is not None, reason="needs root and huge pages: mounts")
def test_receive_file__in_memory_that_is_too_small(regions, tmp_path):
    memory.mount_folder(tmp_path, "mrc-test-too-small", 8 << 20)
    try:
        with pytest.raises(RegionError, match=r"no room for 8388609 bytes \(8388608 free there\).* give a dest_path"):
            regions.receive_file(tmp_path / "file", (8 << 20) + 1)
        assert list(tmp_path.iterdir()) == [] and list(regions) == []
        region = regions.receive_file(tmp_path / "file", 8 << 20)
        region.memory.view[-1] = 7
        regions.commit(region)
        assert (tmp_path / "file").read_bytes() == bytes((8 << 20) - 1) + b"\x07"
    finally:
        memory.unmount_folders("mrc-test-too-small")


def test_sha256__of_a_region_removed_meanwhile(regions):
    region = regions.add_memory(5_000_000)
    hashing = regions.sha256(region)
    hashing.send(None)
    regions.remove(region)
    with pytest.raises(RegionError, match="was removed"):
        hashing.send(None)


def test_add_file__maps_what_is_there(regions, tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"0123456789")
    region = regions.add_file(path, None, False)
    region.memory.view[0:1] = b"X"
    regions.remove(region)
    assert path.read_bytes() == b"X123456789"


REFUSALS = {
    "no region 7": lambda r, tmp: r.get(7),
    "1 to": lambda r, tmp: r.add_memory(0),
    "No such file": lambda r, tmp: r.add_file(tmp / "none", None, False),
    "fewer than the 11": lambda r, tmp: r.add_file(tmp / "ten", 11, False),
    "choose another name": lambda r, tmp: r.add_file(tmp / "ten", 5, True),
    "needs a length": lambda r, tmp: r.add_file(tmp / "new", None, True),
    "is a folder": lambda r, tmp: r.receive_file(tmp, 5),
    "a file has 0 to": lambda r, tmp: r.receive_file(tmp / "huge", 1 << 60),
    "Not a directory": lambda r, tmp: r.receive_file(tmp / "ten" / "file", 5),
    "no file being received": lambda r, tmp: r.commit(r.add_memory(5)),
}


@pytest.mark.parametrize("message", REFUSALS)
def test_regions__refuse_and_say_why(regions, tmp_path, message):
    (tmp_path / "ten").write_bytes(b"0123456789")
    with pytest.raises(RegionError, match=message):
        REFUSALS[message](regions, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ten"]
