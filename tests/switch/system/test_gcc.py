"""Building: several sources side by side, whole files in the cache or none."""

from __future__ import annotations

import ctypes
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from mrc_testbed.switch.system.cache_folder import BuildError, FullCacheError, unwritten
from mrc_testbed.switch.system.gcc import build_extension, build_shared


def test_several_sources__make_one_library(tmp_path, monkeypatch):
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path / "cache"))
    prototype = '__attribute__((visibility("default"))) int one(void);'
    (tmp_path / "one.c").write_text(f"int two(void);\n{prototype}\nint one(void) {{ return two() - 1; }}\n")
    (tmp_path / "two.c").write_text("int two(void);\nint two(void) { return 2; }\n")
    library = build_shared([tmp_path / "one.c", tmp_path / "two.c"])
    assert ctypes.CDLL(str(library)).one() == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [library.name]
    assert build_shared([tmp_path / "one.c", tmp_path / "two.c"]) == library


def test_several_sources__what_gcc_says_of_one_is_told_and_nothing_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "good.c").write_text("int good;\n")
    (tmp_path / "bad.c").write_text("int bad(void) { return nothing; }\n")
    with pytest.raises(BuildError, match=r"(?s)bad\.c:1:24: error: .nothing. undeclared.*command: .*gcc"):
        build_shared([tmp_path / "good.c", tmp_path / "bad.c"])
    assert not list((tmp_path / "cache").iterdir())


def test_an_extension__of_which_several_are_asked_for_at_once_is_compiled_once(tmp_path, monkeypatch):
    calls = tmp_path / "calls"
    (tmp_path / "gcc").write_text(
        f'#!/bin/sh\necho call >> {calls}\nfor word; do [ "$last" = -o ] && echo > "$word"; last=$word; done\n'
    )
    (tmp_path / "gcc").chmod(0o755)
    (tmp_path / "one.c").write_text("int one;\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path / "cache"))
    with ThreadPoolExecutor(8) as threads:
        files = set(threads.map(lambda _: build_extension(tmp_path / "one.c", (), "one"), range(8)))
    assert len(files) == 1 and calls.read_text() == "call\n"


def test_what_gcc_says__of_a_full_disk_is_the_error_of_the_cache(tmp_path):
    for words in ("as: x.o: No space left on device", "x.c: Read-only file system"):
        assert isinstance(unwritten(tmp_path, words), FullCacheError)
    copy_errors = shutil.Error([("a", "b", "[Errno 122] Disk quota exceeded: 'b'")])
    assert "Disk quota exceeded: make room there" in str(unwritten(tmp_path, copy_errors))
    assert not isinstance(unwritten(tmp_path, PermissionError(13, "Permission denied")), FullCacheError)
