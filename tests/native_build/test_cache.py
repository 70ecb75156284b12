"""The form of the engine that a process runs, and its reason."""

import json
import os
import subprocess
import sys

import pytest

from mrc_testbed.files.package import PACKAGE
from mrc_testbed.native_build import cache, modules
from tests.repository import ROOT

PROGRAM = """
import json
import mrc_testbed.hosts.engine.config as config
from mrc_testbed import native_build
form = native_build.state()
print(json.dumps([form.active, form.reason, config.__file__]))
"""


def form_and_stderr(cache_dir, prelude="", **environment):
    """Return the form of the engine in a process of its own, and what that says on stderr."""
    env = {name: value for name, value in os.environ.items() if name != "MRC_COMPILED"}
    env |= {"MRC_CACHE_DIR": str(cache_dir), "PYTHONPATH": str(ROOT), **environment}
    result = subprocess.run(
        [sys.executable, "-c", prelude + PROGRAM], env=env, capture_output=True, text=True, check=True, cwd="/"
    )
    return json.loads(result.stdout), result.stderr


def form(cache_dir, **environment):
    return form_and_stderr(cache_dir, **environment)[0]


def made_build(cache_dir):
    """Return a folder that has the name and the files of the build of these sources, without machine code."""
    folder = cache_dir / cache.build_dir().name
    for file in cache.CompiledFinder(folder).files():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"no shared object")
    return folder


def test_state__without_a_build_is_python_and_says_how_to_get_one(tmp_path):
    active, reason, file = form(tmp_path)
    assert not active
    assert "mrc compile" in reason
    assert file.endswith("config.py")


def test_state__a_build_of_other_sources_is_not_used(tmp_path):
    (tmp_path / "compiled-0123456789abcdef0123").mkdir()
    active, reason, _ = form(tmp_path)
    assert not active
    assert "other sources" in reason


def test_state__a_build_that_cannot_be_loaded_costs_nothing_but_speed(tmp_path):
    made_build(tmp_path)
    (active, reason, file), stderr = form_and_stderr(tmp_path)
    assert not active
    assert "cannot be loaded" in reason and "--force" in reason
    assert file.endswith("config.py")
    assert stderr == f"mrc: running the engine in Python: {reason}\n"


def test_state__a_build_without_one_of_its_files_is_not_used(tmp_path):
    file = next(reversed([*cache.CompiledFinder(made_build(tmp_path)).files()]))
    file.unlink()
    (active, reason, _), _ = form_and_stderr(tmp_path)
    assert not active
    assert reason == f"{file} is missing or cannot be read: mrc compile --force"


def test_state__a_build_is_not_used_where_its_package_is_not_installed(tmp_path):
    """The cache is shared by environments; one that has no mypy need not have mypy's extensions."""
    made_build(tmp_path)
    lacking = "import sys; sys.modules['mypy_extensions'] = None\n"
    (active, reason, file), stderr = form_and_stderr(tmp_path, lacking)
    assert not active
    assert reason.endswith(f"which this environment lacks: {sys.executable} -m pip install mypy_extensions")
    assert file.endswith("config.py")
    assert stderr.count("\n") == 1 and reason in stderr


def test_state__a_cache_that_may_not_be_read_is_told_and_gone_without(tmp_path):
    """`sudo -u` and `su` keep the HOME of another user.

    A file in the folder's place is as unreadable to root.
    """
    (tmp_path / "file").write_text("")
    (active, reason, file), stderr = form_and_stderr(tmp_path / "file")
    assert not active
    assert reason == f"{tmp_path / 'file'} cannot be read (Not a directory): set MRC_CACHE_DIR to a folder of yours"
    assert file.endswith("config.py")
    assert stderr.count("\n") == 1 and reason in stderr


def test_state__a_closed_stderr_hears_nothing_and_stdout_no_more_than_the_answer(tmp_path):
    (tmp_path / "file").write_text("")
    (active, *_), stderr = form_and_stderr(tmp_path / "file", "import os, sys; sys.stderr = None\n")
    assert not active and not stderr


def test_state__a_user_whom_no_list_knows_goes_without_a_cache():
    homeless = "import os, pwd; del os.environ['HOME'], os.environ['MRC_CACHE_DIR']; pwd.getpwuid = {}.__getitem__\n"
    (active, reason, _), stderr = form_and_stderr("/nowhere", homeless, HOME="/")
    assert not active and reason == "not built yet: mrc compile" and not stderr


def test_state__the_variable_switches_it_off(tmp_path):
    made_build(tmp_path)
    assert form(tmp_path, MRC_COMPILED="0")[:2] == [False, "MRC_COMPILED=0"]


def test_digest__changes_with_every_file_that_the_machine_code_relies_on(tmp_path, monkeypatch):
    for path in modules.source_files():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((PACKAGE / path).read_bytes())
    monkeypatch.setattr(modules, "ROOT", tmp_path)
    monkeypatch.setattr(cache, "ROOT", tmp_path)
    cache.digest.cache_clear()
    try:
        old_digest = cache.digest()
        for name in ("hosts/engine/requestor.py", "topologies/plan/plan.py", "simulator/ports.py"):
            with (tmp_path / name).open("a") as file:
                file.write("# another\n")
            cache.digest.cache_clear()
            assert cache.digest() != old_digest, name
            old_digest = cache.digest()
    finally:
        cache.digest.cache_clear()


def test_compiled_files__are_the_engine_and_what_is_per_packet_in_the_fabric():
    names = {path.as_posix() for path in modules.compiled_files()}
    assert {"hosts/engine/requestor.py", "hosts/engine/wire/codec.py", "simulator/ports.py"} <= names
    assert not any(name.endswith("__init__.py") for name in names)


@pytest.mark.parametrize("package", ["hosts/engine", "simulator"])
def test_packages__choose_the_form_before_they_import(package):
    """Each package with compiled modules calls use() above its own imports.

    Else the first ones would be Python.
    """
    lines = (PACKAGE / package / "__init__.py").read_text().splitlines()
    import_lines = [
        n for n, line in enumerate(lines) if line.startswith(("from mrc_testbed.hosts.", "from mrc_testbed.simulator."))
    ]
    assert lines.index("use()") < min(import_lines, default=len(lines))
