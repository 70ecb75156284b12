"""Building: once, by one process at a time, and whole or not at all.

One small module is compiled here, for real.
"""

import os
import signal
import subprocess
import sys
import time

import pytest

from mrc_testbed.files.package import PACKAGE
from mrc_testbed.native_build import build as building
from mrc_testbed.native_build import cache
from mrc_testbed.native_build.modules import ACYCLIC, NARROW
from mrc_testbed.native_build.mypyc_setup import without_trashcan
from mrc_testbed.switch.system.cache_folder import BuildError
from mrc_testbed.switch.system.gcc import MissingToolError
from tests.machine_code import needs_compiler
from tests.repository import ROOT

PROGRAM = """
from mrc_testbed.native_build import modules
modules.COMPILED_PATTERNS, modules.C_MODULES, modules.ACYCLIC = ("hosts/engine/wire/psn.py",), (), {}
modules.NARROW = {}
from mrc_testbed.native_build.build import build
print(build(lambda said: print("progress:", said, flush=True)), flush=True)
"""
USE = """
from mrc_testbed.native_build import cache, modules
modules.COMPILED_PATTERNS, modules.C_MODULES, modules.ACYCLIC = ("hosts/engine/wire/psn.py",), (), {}
cache.C_MODULES = ()
modules.NARROW = {}
from mrc_testbed import native_build
from mrc_testbed.hosts.engine.wire import psn
print(native_build.state().active, psn.__file__, psn.unwrap(5, 1 << 24))
"""
WAIT_S = 900.0
"""Bound of a wait for a compiling process, which gives way to all others, seconds."""


def start(cache_dir, program=PROGRAM):
    env = {name: value for name, value in os.environ.items() if name != "MRC_COMPILED"}
    env |= {"MRC_CACHE_DIR": str(cache_dir), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd="/",
        start_new_session=True,
    )


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@needs_compiler
def test_build__interrupted_killed_and_raced_leaves_one_that_works(tmp_path):
    for way in (signal.SIGINT, signal.SIGKILL):
        hurt = start(tmp_path)
        assert "reading 1 files" in hurt.stdout.readline()
        if way == signal.SIGINT:
            hurt.send_signal(way)
        else:
            hurt.kill()  # the compiling process ends with it
        hurt.communicate(timeout=WAIT_S)  # to the end of what all its processes write
        assert not list(tmp_path.glob("compiled-*/")), "a part of a build looks like a whole one"
    assert list(tmp_path.glob(".compiled-*")), "nothing was killed: the test shows nothing"

    builds = [start(tmp_path), start(tmp_path)]
    outputs = [build.communicate(timeout=WAIT_S)[0] for build in builds]
    assert [build.returncode for build in builds] == [0, 0], outputs
    assert sorted("waiting for it" in text for text in outputs) == [False, True], outputs
    assert sum("reading 1 files" in text for text in outputs) == 1, "both compiled"
    assert not list(tmp_path.glob(".compiled-*")), "what the killed one left is still there"

    repetition = start(tmp_path)
    assert "progress:" not in repetition.communicate(timeout=WAIT_S)[0]
    active, file, psn = start(tmp_path, USE).communicate(timeout=WAIT_S)[0].split()
    assert active == "True"
    assert file.startswith(str(tmp_path))
    assert int(psn) == (1 << 24) + 5


def test_build__without_a_compiler_names_what_is_missing_and_the_cure(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match=r"a C compiler \(Debian, Ubuntu: apt-get install gcc"):
        building.build(print)


def test_build__where_nothing_can_be_written_names_the_variable(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path / "file" / "under"))
    monkeypatch.setattr(building, "missing_requirements", list)
    with pytest.raises(BuildError, match="MRC_CACHE_DIR"):
        building.build(print)


def test_remove_builds__keeps_ours_and_those_used_last(tmp_path, monkeypatch):
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path))
    for number in range(5):
        folder = tmp_path / f"{cache.PREFIX}{number:020}"
        folder.mkdir()
        os.utime(folder, (time.time() + number,) * 2)
    cache.build_dir().mkdir()
    cache.remove_builds(3)
    names = sorted(path.name for path in tmp_path.glob(f"{cache.PREFIX}*"))
    assert names == sorted([f"{cache.PREFIX}{3:020}", f"{cache.PREFIX}{4:020}", cache.build_dir().name])


def test_acyclic__is_marked_in_front_of_decorators_and_no_line_moves():
    source = "\n".join(
        [
            "from __future__ import annotations",
            "",
            "",
            "@dataclass(",
            "    slots=True",
            ")",
            "class A:",
            "    pass",
            "",
            "",
            "class AB:",
            "    pass",
            "",
        ]
    )
    lines = building.for_mypyc(source, ("A", "AB")).split("\n")
    assert lines[0].endswith("; from mypy_extensions import i16, i32, mypyc_attr")
    assert len(lines) == len(source.split("\n"))
    assert [i for i, line in enumerate(lines) if line.startswith("@mypyc_attr(acyclic=True")] == [2, 9]
    assert [lines[3], lines[10]] == ["@dataclass(", "class AB:"]
    with pytest.raises(BuildError, match="no class Gone"):
        building.for_mypyc(source, ("Gone",))


def test_acyclic__objects_without_the_collectors_header_never_enter_the_trashcan():
    """The trashcan writes before their start: the heap was corrupted at a nesting over 50."""
    dealloc = (
        "a___{0}_dealloc(a___{0}Object *self)\n{{\n{1}    CPy_TRASHCAN_BEGIN(self, a___{0}_dealloc)\n    free(self);\n"
    )
    dealloc += "    CPy_TRASHCAN_END(self)\n    done: ;\n}}\n\n"
    collectable = dealloc.format("Flow", "    PyObject_GC_UnTrack(self);\n")
    c_code = without_trashcan(collectable + dealloc.format("Frame", "") + collectable)
    assert c_code.count("TRASHCAN_BEGIN") == c_code.count("TRASHCAN_END") == 2
    assert c_code.startswith(collectable) and c_code.endswith(collectable)
    assert "a___Frame_dealloc(a___FrameObject *self)\n{\n    free(self);\n    done: ;\n}\n" in c_code
    with pytest.raises(ValueError, match="outside of a dealloc"):
        without_trashcan("void clear(void)\n{\n    CPy_TRASHCAN_BEGIN(self, x)\n}\n")


@pytest.mark.parametrize("name", ACYCLIC)
def test_acyclic__all_classes_are_there(name):
    building.for_mypyc((PACKAGE / name).read_text(), ACYCLIC[name])


def test_narrow__replaces_the_type_in_its_class_alone():
    source = "\n".join(
        [
            "from __future__ import annotations",
            "",
            "",
            "class A:",
            "    size: int",
            "    port: int",
            "",
            "class B:",
            "    port: int",
            "",
        ]
    )
    lines = building.for_mypyc(source, narrow={"A": {"port": "i16"}}).split("\n")
    assert lines[4:9] == ["    size: int", "    port: i16", "", "class B:", "    port: int"]
    for wrong_types, message in (
        ({"A": {"plane": "i16"}}, "plane: int"),
        ({"B": {"size": "i16"}}, "size: int"),
        ({"C": {}}, "C"),
    ):
        with pytest.raises(BuildError, match=message):
            building.for_mypyc(source, narrow=wrong_types)


@pytest.mark.parametrize("name", NARROW)
def test_narrow__all_attributes_are_there(name):
    building.for_mypyc((PACKAGE / name).read_text(), narrow=NARROW[name])
