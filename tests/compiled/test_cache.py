"""Which form of the engine a process runs, and why."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from compiled import cache, modules

ROOT = Path(__file__).resolve().parents[2]
ASK = """
import json, compiled, hosts.engine.config as config
form = compiled.state()
print(json.dumps([form.active, form.why, config.__file__]))
"""


def form(cache_dir, **environment):
    env = {name: value for name, value in os.environ.items() if name != "MRC_COMPILED"}
    env |= {"MRC_CACHE_DIR": str(cache_dir), "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, text=True, check=True, cwd="/")
    return json.loads(done.stdout)


def test_state__without_a_build_is_python_and_says_how_to_get_one(tmp_path):
    active, why, file = form(tmp_path)
    assert not active
    assert "mrc compile" in why
    assert file.endswith("config.py")


def test_state__a_build_of_other_sources_is_not_used(tmp_path):
    (tmp_path / "compiled-0123456789abcdef0123").mkdir()
    active, why, _ = form(tmp_path)
    assert not active
    assert "other sources" in why


def test_state__a_build_that_cannot_be_loaded_costs_nothing_but_speed(tmp_path):
    folder = tmp_path / cache.build_dir().name
    folder.mkdir()
    (folder / f"{cache.LIBRARY}{cache.SUFFIX}").write_bytes(b"no shared object")
    active, why, file = form(tmp_path)
    assert not active
    assert "--again" in why
    assert file.endswith("config.py")


def test_state__the_variable_switches_it_off(tmp_path):
    (tmp_path / cache.build_dir().name).mkdir()
    assert form(tmp_path, MRC_COMPILED="0")[:2] == [False, "MRC_COMPILED=0"]


def test_digest__changes_with_every_file_that_the_machine_code_relies_on(tmp_path, monkeypatch):
    for path in modules.source_files():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / path).read_bytes())
    monkeypatch.setattr(modules, "ROOT", tmp_path)
    monkeypatch.setattr(cache, "ROOT", tmp_path)
    cache.digest.cache_clear()
    try:
        before = cache.digest()
        for name in ("hosts/engine/requestor.py", "topologies/plan/plan.py", "simulator/ports.py"):
            with (tmp_path / name).open("a") as file:
                file.write("# another\n")
            cache.digest.cache_clear()
            assert cache.digest() != before, name
            before = cache.digest()
    finally:
        cache.digest.cache_clear()


def test_compiled_files__are_the_engine_and_what_is_per_packet_in_the_fabric():
    names = {path.as_posix() for path in modules.compiled_files()}
    assert {"hosts/engine/requestor.py", "hosts/engine/wire/codec.py", "simulator/ports.py"} <= names
    assert not any(name.endswith("__init__.py") for name in names)


@pytest.mark.parametrize("package", ["hosts/engine", "simulator"])
def test_packages__choose_the_form_before_they_import(package):
    """Each package with compiled modules calls use() above its own imports: else the first ones would be Python."""
    lines = (ROOT / package / "__init__.py").read_text().splitlines()
    ours = [n for n, line in enumerate(lines) if line.startswith(("from hosts.", "from simulator."))]
    assert lines.index("use()") < min(ours, default=len(lines))
