"""Who may import whom, read from the source: also imports inside functions count.

mrc > bench, experiments > simulator > hosts;  mrc > controller;  topologies > switch
simulator, topologies > faults, which needs leaves alone
compiled, ipc and mrc_testbed.topologies.plan are leaves, for all
"""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CODE = (
    "bench",
    "compiled",
    "controller",
    "experiments",
    "faults",
    "hosts",
    "ipc",
    "mrc",
    "simulator",
    "switch",
    "topologies",
)
"""Folders of Python outside tests."""
OURS = (*CODE, "tests", "scenarios")
LEAVES = ("compiled", "ipc", "mrc_testbed.topologies.plan")

MAY_IMPORT = {
    "compiled": ("compiled", "ipc"),
    "ipc": ("ipc",),
    "topologies/plan": ("mrc_testbed.topologies.plan",),
    "faults": ("faults", *LEAVES),
    "switch": ("switch",),
    "topologies": ("topologies", "faults", "switch", "ipc"),
    "controller": ("controller", *LEAVES),
    "hosts": ("hosts", *LEAVES),
    "simulator": ("simulator", "faults", "hosts", "mrc_testbed.switch.build", *LEAVES),
    "experiments": ("experiments", "faults", "simulator", "hosts", "controller", "topologies", "compiled", "ipc"),
    "bench": (
        "bench",
        "experiments",
        "faults",
        "simulator",
        "hosts",
        "controller",
        "topologies",
        "switch",
        "compiled",
        "ipc",
    ),
    "mrc": CODE,
}
"""Folder -> modules of ours it may import."""


@cache
def imports_of(path: Path, root: Path = ROOT) -> list[tuple[int, str]]:
    """(line, full module name) of every import; `from a import b` gives a.b when that is a module, else a."""
    package = path.relative_to(root).parts[:-1]
    out = []
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            out += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = root.joinpath(*base.split("."), alias.name)
                is_module = whole.with_suffix(".py").exists() or (whole / "__init__.py").exists()
                out.append((node.lineno, f"{base}.{alias.name}" if is_module else base))
    return out


def is_in(module: str, allowed: tuple[str, ...]) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in allowed)


def broken(folder: str, wrong) -> list[str]:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files, f"{folder}/ has no Python files: has it moved?"
    return [
        f"{path.relative_to(ROOT)}:{line}: imports {module}"
        for path in files
        for line, module in imports_of(path)
        if wrong(module)
    ]


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_folder__imports_only_what_it_may(folder):
    allowed = MAY_IMPORT[folder]
    assert broken(folder, lambda m: m.split(".")[0] in OURS and not is_in(m, allowed)) == []


def test_page__has_the_same_arrows():
    """docs/architecture.md, table by table row: a folder and what it may import beside itself."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `([\w/]+)` \| ((?:[\w.]+(?:, )?)*) ?\|$", page, re.MULTILINE)
    assert {folder: set(filter(None, may.split(", "))) for folder, may in rows} == {
        folder: {one for one in may if one != folder.replace("/", ".")} for folder, may in MAY_IMPORT.items()
    }


def test_engine__needs_only_the_standard_library():
    def wrong(module):
        return module.split(".")[0] not in sys.stdlib_module_names and not is_in(module, ("mrc_testbed.hosts.engine", "compiled"))

    assert broken("hosts/engine", wrong) == []


def test_engine__has_no_clock_socket_thread_or_randomness_of_its_own():
    banned = ("time", "socket", "select", "selectors", "threading", "asyncio", "subprocess", "secrets")
    assert broken("hosts/engine", lambda m: is_in(m, banned)) == []


@pytest.mark.parametrize("folder", ["topologies/plan", "hosts/engine"])
def test_leaves__need_only_the_standard_library(folder):
    """Everybody imports these; they must stay light."""
    assert broken(folder, lambda m: m.split(".")[0] not in (*sys.stdlib_module_names, *OURS)) == []


@pytest.mark.parametrize("name", ["rpc", "framing", "units", "errors", "agent_client", "controller_client"])
def test_ipc__what_hosts_and_tools_load_is_light(name):
    found = [module for _, module in imports_of(ROOT / "ipc" / f"{name}.py") if not is_in(module, ("ipc",))]
    assert [module for module in found if module.split(".")[0] not in sys.stdlib_module_names] == []


def test_imports_of__sees_every_form(tmp_path):
    package = tmp_path / "controller"
    package.mkdir()
    (tmp_path / "topologies" / "lab").mkdir(parents=True)
    (tmp_path / "topologies" / "lab" / "fabric.py").touch()
    (package / "app.py").write_text(
        "import os.path\nfrom mrc_testbed.topologies.lab import fabric\nfrom . import b\nfrom .c import d\n"
        "from mrc_testbed.topologies.plan import Plan\ndef late():\n    from mrc_testbed.hosts.engine import qp\n"
    )
    assert [name for _, name in imports_of(package / "app.py", tmp_path)] == [
        "os.path",
        "mrc_testbed.topologies.lab.fabric",
        "controller",
        "controller.c",
        "mrc_testbed.topologies.plan",
        "mrc_testbed.hosts.engine",
    ]
