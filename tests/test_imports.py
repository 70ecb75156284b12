"""Permitted imports between rooms, read from the source; imports inside functions count too.

The rows stand in the order of the house: each imports rooms above it alone, but for those that say otherwise.
"""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.repository import ROOT

pytestmark = pytest.mark.house

CODE = ("controller", "hosts", "mrc_testbed", "tools", "topologies")
"""Folders of Python outside tests.

The package has links to the others, which a walk through it does not follow.
"""
PACKAGE = "mrc_testbed"
LEAVES = ("console", "errors", "files", "ipc", "native_build", "switch.system", "topologies.plan")
FRONT = ("api", "capture", "cli", "dash", "demo", "doctor", "testing")

MAY_IMPORT = {
    "errors": (),
    "files": ("errors",),
    "topologies.plan": (),
    "switch.system": (),
    "switch": (),
    "console": ("errors", "switch.system"),
    "native_build": ("files", "switch.system"),
    "ipc": ("errors", "files", "switch.system"),
    "faults": ("console", "topologies.plan"),
    "topologies": ("console", "errors", "faults", "files", "ipc", "switch"),
    "controller": ("errors", "ipc", "switch.system", "topologies.plan"),
    "hosts": LEAVES,
    "simulator": ("faults", "hosts", *LEAVES),
    "experiments": ("controller", "faults", "hosts", "simulator", "topologies", *LEAVES),
    "capture": ("console", "controller", "errors", "files", "hosts", "ipc", "switch", "topologies"),
    "demo": ("console", "errors", "experiments", "files", "ipc", "topologies"),
    "testing": ("demo", "switch", "topologies"),
    "cli.prompt": ("console", "errors", "experiments", "faults", "files", "hosts", "ipc", "topologies"),
    "api": ("capture", "cli", "experiments", "faults", "hosts", "simulator", "topologies", *LEAVES),
    "dash": ("cli.prompt", "controller", "doctor", "experiments", "hosts", "topologies", *LEAVES),
    "torch": ("hosts", *LEAVES),
    "doctor": ("dash", "hosts", "topologies", *LEAVES),
    "cli": (*FRONT, "controller", "experiments", "faults", "hosts", "simulator", "switch", "topologies", *LEAVES),
}
"""Room of the package -> rooms it may import, beside itself. Tools import what they measure."""


EXPERIMENTS = (
    ("language",),
    ("traces",),
    ("resolve",),
    ("backend",),
    ("virtual", "fluid", "live"),
    ("metrics",),
    ("run_store",),
    ("results",),
    ("report", "export", "executors"),
    ("runner",),
    ("console_summary", "compare"),
    ("command",),
    ("merge", "failure_cost"),
    ("study",),
)
"""Rooms and files of experiments as a scenario goes through them.

Each imports what stands before it, and itself.
"""


def folder_of(room: str) -> Path:
    """Return the folder of a room, or the file of a module."""
    path = ROOT.joinpath(PACKAGE, *room.split("."))
    return path if path.is_dir() else path.with_suffix(".py")


@cache
def imports_of(path: Path, root: Path = ROOT) -> list[tuple[int, str]]:
    """Return (line, full module name) of every import.

    `from a import b` gives a.b when that is a module, else a.
    """
    package = path.relative_to(root).parts[:-1]
    out = []
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            out += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                candidate = root.joinpath(*base.split("."), alias.name)
                is_module = candidate.with_suffix(".py").exists() or (candidate / "__init__.py").exists()
                out.append((node.lineno, f"{base}.{alias.name}" if is_module else base))
    return out


def is_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def forbidden_imports(folder: Path, is_forbidden) -> list[str]:
    folder = folder.resolve()
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]
    assert files, f"{folder} has no Python files: has it moved?"
    return [
        f"{path.relative_to(ROOT)}:{line}: imports {module}"
        for path in files
        for line, module in imports_of(path)
        if is_forbidden(module)
    ]


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_room__imports_only_what_it_may(room):
    inner = tuple(f"{PACKAGE}.{name}" for name in MAY_IMPORT if name.startswith(f"{room}."))
    allowed_packages = tuple(f"{PACKAGE}.{name}" for name in (room, *MAY_IMPORT[room]))

    def is_forbidden(module):
        return module.split(".")[0] in (PACKAGE, "tests") and not is_in(module, allowed_packages)

    lines = forbidden_imports(folder_of(room), is_forbidden)
    assert [line for line in lines if not (inner and is_in(_module_at(line), inner))] == []


def _module_at(line: str) -> str:
    """Return the module of the file that a line of forbidden_imports() names."""
    path = Path(line.partition(":")[0]).with_suffix("")
    return ".".join(path.parts if path.parts[0] == PACKAGE else (PACKAGE, *path.parts))


def test_tools__are_imported_by_the_command_alone():
    importing = [
        line
        for folder in CODE
        if folder != "tools"
        for line in forbidden_imports(ROOT / folder, lambda m: is_in(m, ("tools",)))
    ]
    assert {line.partition(":")[0] for line in importing} == {"mrc_testbed/cli/app.py"}


def test_every_room_has_its_row():
    rooms = {path.stem for path in (ROOT / PACKAGE).iterdir() if path.is_dir() or path.suffix == ".py"}
    data = {"p4src", "scenarios", "py", "__init__", "__main__", "__pycache__"}
    assert rooms - data == {room for room in MAY_IMPORT if "." not in room}


@pytest.mark.parametrize("room", [room for rooms in EXPERIMENTS for room in rooms])
def test_experiments__a_scenario_goes_down_only(room):
    step = next(number for number, rooms in enumerate(EXPERIMENTS) if room in rooms)
    earlier_rooms = (room, *(name for rooms in EXPERIMENTS[:step] for name in rooms))
    allowed_packages = tuple(f"{PACKAGE}.experiments.{name}" for name in earlier_rooms)
    experiments = (f"{PACKAGE}.experiments",)
    assert (
        forbidden_imports(
            folder_of(f"experiments.{room}"), lambda m: is_in(m, experiments) and not is_in(m, allowed_packages)
        )
        == []
    )


def test_experiments__every_room_has_its_step():
    rooms = {path.stem for path in folder_of("experiments").iterdir() if path.stem not in ("__init__", "__pycache__")}
    assert rooms == {room for rooms in EXPERIMENTS for room in rooms}


def test_page__has_the_same_arrows():
    """docs/architecture.md, table by table row: a room and what it may import beside itself."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `([\w.]+)` \| ((?:[\w.]+(?:, )?)*) ?\|$", page, re.MULTILINE)
    assert {room: set(filter(None, may.split(", "))) for room, may in rows} == {
        room: set(may) for room, may in MAY_IMPORT.items()
    }


def test_engine__needs_only_the_standard_library():
    def is_forbidden(module):
        return module.split(".")[0] not in sys.stdlib_module_names and not is_in(
            module, ("mrc_testbed.hosts.engine", "mrc_testbed.native_build")
        )

    assert forbidden_imports(ROOT / "hosts" / "engine", is_forbidden) == []


def test_engine__has_no_clock_socket_thread_or_randomness_of_its_own():
    banned_modules = ("time", "socket", "select", "selectors", "threading", "asyncio", "subprocess", "secrets")
    assert forbidden_imports(ROOT / "hosts" / "engine", lambda m: is_in(m, banned_modules)) == []


@pytest.mark.parametrize("folder", ["topologies/plan", "hosts/engine"])
def test_leaves__need_only_the_standard_library(folder):
    """Everybody imports these; they must stay light."""
    assert forbidden_imports(ROOT / folder, lambda m: m.split(".")[0] not in (*sys.stdlib_module_names, PACKAGE)) == []


@pytest.mark.parametrize(
    "name", ["ipc.rpc", "ipc.framing", "console.units", "errors", "ipc.agent_client", "ipc.controller_client"]
)
def test_ipc__what_hosts_and_tools_load_is_light(name):
    modules = [module for _, module in imports_of(folder_of(name)) if not is_in(module, (PACKAGE,))]
    assert [module for module in modules if module.split(".")[0] not in sys.stdlib_module_names] == []


def test_imports_of__sees_every_form(tmp_path):
    package = tmp_path / "controller"
    package.mkdir()
    (tmp_path / "mrc_testbed" / "topologies" / "lab").mkdir(parents=True)
    (tmp_path / "mrc_testbed" / "topologies" / "lab" / "fabric.py").touch()
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
