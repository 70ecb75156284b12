"""A disk that fails at each of its calls in turn, for every command that writes.

No traceback, no half file, no old file lost, the file named, the verdict printed, an exit code of its own.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mrc_testbed.capture.packet_files import CapturedPacket, PcapFile
from mrc_testbed.cli import app
from mrc_testbed.errors import EXIT_UNWRITTEN, FullDiskError
from mrc_testbed.native_build import build
from mrc_testbed.topologies.lab.p4_program import compile_program
from tests.capture.explain.made_frames import a_write, made_frame
from tests.repository import ROOT

SCENARIO = """\
title: a transfer
fabric: {planes: 2, racks: 1, spines: 1, hosts_per_rack: 2}
duration: 1s
workload: [{collective: all_reduce, name: sum, size: 16K, ranks: all, iterations: 2}]
"""
STUDY = """\
title: round trips
scenario: a.yaml
parameters: {links.rtt: [5ms]}
seeds: {min: 2, max: 2, step: 1}
metrics: [{metric: busbw.sum, within: 50%}]
"""
PROGRAM = str(ROOT / "p4src" / "srv6.p4")


class FullDisk:
    """A disk that has no room at the `number`th call that opens, syncs or names a file or makes a folder.

    What is written to one that is open is refused by the kernel, in `no_file_over`.
    """

    now: FullDisk | None = None
    """The one that the process has: an audit hook cannot be removed."""

    def __init__(self, monkeypatch, number: int, folder: Path) -> None:
        self.left, self._folder = number, str(folder)
        self.refused = ""
        for name in ("fsync", "replace", "mkdir", "rename"):
            monkeypatch.setattr(os, name, self._failing(getattr(os, name)))
        monkeypatch.setattr(FullDisk, "now", self)

    def _failing(self, call):
        def failing(*words, **options):
            self.count(*words[:1])
            return call(*words, **options)

        return failing

    def count(self, what: object) -> None:
        self.left -= 1
        if self.left == 0:
            self.refused = str(what)
            name = None if isinstance(what, int) else str(what)  # as the kernel: a descriptor has none
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

    def opens(self, path: object, flags: int) -> None:
        """Count a file that is opened to be written, in the test's own folder."""
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and os.path.abspath(str(path)).startswith(self._folder):
            self.count(path)


def watch(event: str, arguments: tuple) -> None:
    if event == "open" and FullDisk.now is not None and not isinstance(arguments[0], int):
        FullDisk.now.opens(os.fsdecode(arguments[0]), arguments[2])


sys.addaudithook(watch)


def end_of(monkeypatch, words: list[str]) -> int:
    """Return the exit code of a command. Whatever else it raises is a traceback for its user."""
    monkeypatch.setattr(sys, "argv", ["mrc", *words])
    with pytest.raises(SystemExit) as end:
        app.main()
    return int(end.value.code or 0)


@dataclass
class Writer:
    """A command that writes, in a folder of its own for each trial."""

    words: str
    file: str = "NEW"
    """File that a message has to name."""
    codes: set[int] = field(default_factory=lambda: {EXIT_UNWRITTEN})
    """Exit codes that are allowed when its disk is full."""
    verdict: str = ""
    """Text that it prints even then, at least twice."""
    step: int = 1
    """Between the calls that are tried; more than 1 where each trial starts processes."""


WRITERS = [
    Writer("run a.yaml --virtual --out NEW", verdict="passed"),
    Writer("run a.yaml --fluid --out NEW", verdict="passed"),
    Writer("study study.yaml --out NEW --jobs 1", verdict="busbw.sum", step=7),
    Writer("merge made --out NEW", verdict="passed"),
    Writer("report made", "made/"),
    Writer("report made --parquet NEW"),
    Writer("report made --nccl-tests NEW"),
    Writer("dash made", "made/replay"),
    Writer(f"p4 compile {PROGRAM} -o NEW"),
    Writer(f"p4 graph {PROGRAM} --format dot -o NEW"),
    Writer("pcap a.pcap --explain --out NEW"),
    Writer("pcap --install-dissector", ".local"),
    Writer("plan --planes 2 --racks 2 --spines 2 --hosts-per-rack 1 --infragraph NEW"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results, a scenario, a study, a capture; the cache has its builds already and needs no room."""
    folder = tmp_path_factory.mktemp("disk")
    (folder / "a.yaml").write_text(SCENARIO)
    (folder / "study.yaml").write_text(STUDY)
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRC_CACHE_DIR", str(cache))
        patch.chdir(folder)
        assert end_of(patch, ["run", "a.yaml", "--virtual", "--out", "made"]) == 0
        assert end_of(patch, ["p4", "compile", PROGRAM, "-o", "built"]) == 0
        shutil.copytree("made", "drawn")
        assert end_of(patch, ["report", "drawn"]) == 0  # matplotlib has its folders
        shutil.rmtree("drawn")
        with (folder / "a.pcap").open("wb") as out:
            PcapFile(out).write(CapturedPacket(0, frame := made_frame(a_write(1)), len(frame)))
        yield folder


def tried(folder: Path, place: Path, monkeypatch, writer: Writer) -> int:
    """Run a command in a folder of its own; return its exit code.

    No file may be there in part then, and none be lost.
    """
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(place))
    code = end_of(monkeypatch, writer.words.split())
    assert not list(place.rglob("*.part"))
    for path in folder.rglob("*"):
        assert path.is_dir() or (place / path.relative_to(folder)).read_bytes() == path.read_bytes()
    assert code in {0, *writer.codes}
    return code


@pytest.mark.thorough
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.words)
def test_a_command__whose_disk_is_full_at_any_moment_tells_file_and_cure(folder, tmp_path, monkeypatch, capsys, writer):
    if "--parquet" in writer.words:
        pytest.importorskip("pyarrow")
    codes, judged = [], 0
    for number in range(1, 200, writer.step):
        place = shutil.copytree(folder, tmp_path / f"{number}")
        with monkeypatch.context() as patch:
            disk = FullDisk(patch, number, place)
            codes.append(tried(folder, place, patch, writer))
        said = "".join(capsys.readouterr())
        if disk.left > 0:  # it ended without that many
            break
        if codes[-1] != 0:
            assert said.count("No space left on device") == 1 and said.count("make room") == 1, (disk.refused, said)
            # old releases of scapy make their settings and cache folders when they are imported
            is_scapys = disk.refused.endswith(("/.config", "/.cache")) and disk.refused in said
            assert writer.file in said or is_scapys, (disk.refused, said)
        judged += writer.verdict in said
    assert codes[-1] == 0 and EXIT_UNWRITTEN in codes and judged >= 2


@contextmanager
def no_file_over(size: int) -> Iterator[None]:
    """Let the kernel refuse each write that makes a file longer (EFBIG); it takes the bytes before."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.words)
def test_a_command__whose_writes_are_cut_leaves_no_half_file_and_tells_it(
    folder, tmp_path, monkeypatch, capsys, writer
):
    if "--parquet" in writer.words:
        pytest.importorskip("pyarrow")
    for size in (0, 1200):
        place = shutil.copytree(folder, tmp_path / f"{size}")
        with monkeypatch.context() as patch, no_file_over(size):
            code = tried(folder, place, patch, writer)
        said = "".join(capsys.readouterr())
        if code != 0:
            assert said.count("File too large") == 1 and writer.file in said, (size, said)
        assert code == EXIT_UNWRITTEN or size > 0, said


FAKE_GCC = """#!/bin/sh
for word; do [ "$last" = -o ] && echo made > "$word"; last=$word; done
[ -z "$GCC_SAYS" ] || { echo "as: $GCC_SAYS" >&2; exit 1; }
"""
FAKE_MYPYC = """
import os, pathlib, sys
made = pathlib.Path(sys.argv[2])
made.mkdir()
(made / "engine.so").write_text("half")
sys.exit(os.environ.get("GCC_SAYS"))
"""
SMALL_PROGRAM = str(ROOT / "tests" / "switch" / "p4" / "queues.p4")


@pytest.fixture
def fake_compilers(folder, tmp_path, monkeypatch):
    """A gcc and a mypyc that make something at once; what they say is in GCC_SAYS.

    `folder` has had this process make the parser.
    """
    assert folder.exists()
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "gcc").write_text(FAKE_GCC)
    (programs / "gcc").chmod(0o755)
    (programs / "mypyc.py").write_text(FAKE_MYPYC)
    monkeypatch.setattr(build, "SCRIPT", programs / "mypyc.py")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path / "run"))


def compiled_in(place: Path, monkeypatch, words: str) -> int:
    """Run a command with a cache of its own; return its exit code.

    It may leave whole files alone in the cache.
    """
    monkeypatch.chdir(place)
    monkeypatch.setenv("MRC_CACHE_DIR", str(place / "cache"))
    code = end_of(monkeypatch, words.split())
    assert not list(place.rglob(".*")), "nothing half made stays"
    assert (code == 0) is any(place.rglob("compiled-*/engine.so" if words == "compile" else "*.config.p4"))
    return code


@pytest.mark.usefixtures("fake_compilers")
@pytest.mark.parametrize(("words", "step"), [(f"p4 compile {SMALL_PROGRAM} -o NEW", 3), ("compile", 293)])
def test_a_compiler__whose_cache_is_full_at_any_moment_tells_it_and_the_cure(
    tmp_path, monkeypatch, capsys, words, step
):
    codes = []
    for number in range(1, 2000, step):
        place = tmp_path / f"{number}"
        place.mkdir()
        with monkeypatch.context() as patch:
            disk = FullDisk(patch, number, place)
            codes.append(compiled_in(place, patch, words))
        said = "".join(capsys.readouterr())
        if disk.left > 0:
            break
        if codes[-1] != 0:
            assert said.count("No space left on device") == 1 and said.count("make room") == 1, (disk.refused, said)
            assert f"{place}/cache" in said or "NEW" in said, said
    assert codes[-1] == 0 and EXIT_UNWRITTEN in codes and set(codes) <= {0, EXIT_UNWRITTEN}


@pytest.mark.usefixtures("fake_compilers")
@pytest.mark.parametrize("words", [f"p4 compile {SMALL_PROGRAM} -o NEW", "compile"])
def test_a_compiler__whose_gcc_finds_no_room_tells_it_as_a_full_disk(tmp_path, monkeypatch, capsys, words):
    for said_by_gcc, code in (("x.o: No space left on device", EXIT_UNWRITTEN), ("x.c:1: error: no such word", 1)):
        with monkeypatch.context() as patch:
            patch.setenv("GCC_SAYS", said_by_gcc)
            (place := tmp_path / f"{code}").mkdir()
            assert compiled_in(place, patch, words) == code
        said = "".join(capsys.readouterr())
        assert ("make room there, or set MRC_CACHE_DIR to another folder" in said) is (code == EXIT_UNWRITTEN), said
        assert "Traceback" not in said


@pytest.mark.usefixtures("fake_compilers")
def test_a_fabric__whose_program_finds_no_room_ends_with_the_code_of_a_full_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("GCC_SAYS", "x.o: No space left on device")
    with pytest.raises(FullDiskError, match="make room there, or set MRC_CACHE_DIR"):
        compile_program(tmp_path / "program", "embedded", SMALL_PROGRAM)
    assert not list((tmp_path / "program").iterdir())
