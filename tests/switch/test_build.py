"""switch/build.py: several sources side by side, whole files in the cache or none."""

from __future__ import annotations

import ctypes

import pytest

from mrc_testbed.switch.build import BuildError, build_shared


def test_several_sources__make_one_library(tmp_path, monkeypatch):
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path / "cache"))
    shown = '__attribute__((visibility("default"))) int one(void);'
    (tmp_path / "one.c").write_text(f"int two(void);\n{shown}\nint one(void) {{ return two() - 1; }}\n")
    (tmp_path / "two.c").write_text("int two(void);\nint two(void) { return 2; }\n")
    made = build_shared([tmp_path / "one.c", tmp_path / "two.c"])
    assert ctypes.CDLL(str(made)).one() == 1
    assert [one.name for one in (tmp_path / "cache").iterdir()] == [made.name]
    assert build_shared([tmp_path / "one.c", tmp_path / "two.c"]) == made


def test_several_sources__what_gcc_says_of_one_is_told_and_nothing_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "good.c").write_text("int good;\n")
    (tmp_path / "bad.c").write_text("int bad(void) { return nothing; }\n")
    with pytest.raises(BuildError, match=r"(?s)bad\.c:1:24: error: .nothing. undeclared.*command: .*gcc"):
        build_shared([tmp_path / "good.c", tmp_path / "bad.c"])
    assert not list((tmp_path / "cache").iterdir())
