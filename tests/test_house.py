"""The house in order: eight numbers that have to be 0.

`python -m tests.test_house` prints them, with places.

Circles of imports, public class names that stand twice, modules in the top of a package that are not its face, dead
references in comments and documents, ignores that no checker checks, patches of dotted text,
lines kept from ruff's format that are no tables, two variables that a rename made one.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.repository import ROOT
from tests.test_imports import CODE, PACKAGE, imports_of
from tests.test_references import dead_references

pytestmark = pytest.mark.house

FACES = {
    "mrc_testbed": {"__main__", "errors"},
    "mrc_testbed.capture": {
        "live_fabric",
        "live_tables",
        "packet_files",
        "pcap",
        "replay",
        "several_machines",
        "trace",
    },
    "mrc_testbed.cli": {
        "app",
        "completion",
        "detached",
        "fabrics",
        "guest",
        "host_shell",
        "link_options",
        "options",
        "p4",
        "p4_programs",
        "json_schemas",
        "p4runtime_shell",
        "plan",
        "run_request",
        "running_fabric",
        "scenarios",
        "show",
        "topology",
        "training",
        "words",
    },
    "mrc_testbed.cli.prompt": {
        "attached",
        "iperf",
        "lab_shell",
        "outputs",
        "shell",
        "unexpected",
        "word_client",
        "word_server",
    },
    "mrc_testbed.controller": {"__main__", "app", "config", "denylist", "errors", "problems", "reconvergence"},
    "mrc_testbed.experiments": {"command", "compare", "console_summary", "merge", "results", "run_store", "runner"},
    "mrc_testbed.hosts": set(),
    "mrc_testbed.hosts.agent": {
        "__main__",
        "agent",
        "connections",
        "denylist",
        "engine_defaults",
        "event_json",
        "operations",
        "path_health",
        "ports",
        "regions",
        "session",
        "timerfd",
        "turn_selector",
        "turns",
    },
    "mrc_testbed.hosts.engine": {
        "config",
        "config_limits",
        "connection",
        "deadlines",
        "endpoint",
        "errors",
        "events",
        "memory",
        "messages",
        "qp",
        "reassembly",
        "requestor",
        "resources",
        "responder",
    },
    "mrc_testbed.simulator": {
        "border",
        "events",
        "fabric",
        "fault_target",
        "frames",
        "halves",
        "host",
        "impairment",
        "message_slots",
        "pfc",
        "planned_fabric",
        "ports",
        "profiles",
        "switches",
        "trace",
        "verbs",
        "wire",
        "workloads",
    },
    "mrc_testbed.switch": set(),
    "mrc_testbed.switch.compiler": {"compiler", "errors"},
    "mrc_testbed.switch.server": {
        "__main__",
        "app",
        "chassis",
        "control",
        "counts",
        "grpc_server",
        "interfaces",
        "netlink",
        "portstate",
        "shared_wires",
        "wires",
    },
    "mrc_testbed.topologies": {"infragraph_file", "sizing"},
    "mrc_testbed.topologies.lab": {
        "mininet",
        "cables",
        "ebpf",
        "fabric",
        "fabric_programs",
        "fault_injection",
        "fault_target",
        "machine_speed",
        "netdev",
        "network",
        "nodes",
        "open_fabric",
        "options",
        "p4_program",
        "part_watch",
        "preflight",
        "slots",
        "switch_counters",
        "targets",
        "traffic_control",
        "traffic_control_gnmi",
        "traffic_control_thrift",
        "wires",
    },
    "tools": {"commands", "plain_words"},
}
"""Package that has packages -> modules at its top.

One without packages is its modules, whatever they are.
"""


def module_of(path: Path) -> str:
    """Return the dotted name of a module by its file.

    Folders at the top of the checkout are links in the package.
    """
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] in (PACKAGE, "tools") else (PACKAGE, *parts)
    return ".".join(parts).removesuffix(".__init__")


@cache
def modules() -> dict[str, Path]:
    """Return every module outside of tests, by its dotted name."""
    paths = [path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py"))]
    return {module_of(path): path for path in paths}


def circles() -> list[set[str]]:
    """Return the strongly connected components of more than one module (Tarjan)."""
    paths = modules()
    graph = {
        name: {target for _, target in imports_of(path) if target in paths and target != name}
        for name, path in paths.items()
    }
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out: list[set[str]] = []

    # Value of `low`: the first module, by order of visit, that a module's subtree reaches back to.
    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in sorted(graph[module]):
            if target not in index:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            start = stack.index(module)
            if len(stack) - start > 1:
                out.append(set(stack[start:]))
            del stack[start:]

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return out


def imports_in_circles() -> list[str]:
    """Return the circles of imports; those under TYPE_CHECKING and inside functions count."""
    return sorted(" <-> ".join(sorted(circle)) for circle in circles())


def names_twice() -> list[str]:
    """Return the public class names that stand in more than one place."""
    locations_by_name = defaultdict(list)
    for path in modules().values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                locations_by_name[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return sorted(
        f"{name}: {', '.join(locations)}" for name, locations in locations_by_name.items() if len(locations) > 1
    )


def packages_with_packages() -> set[str]:
    return {name for name, path in modules().items() if path.name == "__init__.py" and [*path.parent.glob("*/*.py")]}


def loose_modules() -> list[str]:
    """Return the modules in the top of a package that are not its face, and faces that are not there."""
    out = [f"{package}: has packages, and no face" for package in packages_with_packages() - FACES.keys()]
    for package, face in FACES.items():
        module_names = {path.stem for path in ROOT.joinpath(*package.split(".")).glob("*.py")} - {"__init__"}
        out += [f"{package}.{name}: not its face" for name in module_names - face]
        out += [f"{package}.{name}: its face, and not there" for name in face - module_names]
    return sorted(out)


# ---- ignores -------------------------------------------------------------------------------------------------------

IGNORE = re.compile(r"#\s*type:\s*ignore(?P<code>\[[\w, -]+\])?|#\s*(?:mypy|pyright):")
NOQA = re.compile(r"#\s*(?:ruff:\s*|flake8:\s*)?noqa(?P<code>:\s*[A-Z]+\d+)?")
LAX_SETTING = re.compile(
    r'^(ignore_errors *= *true|warn_unused_ignores *= *false|disable_error_code *= *(\[\s*)?").*',
    re.MULTILINE,
)
SETTINGS = (ROOT / "pyproject.toml").read_text()


def ignores_unchecked(name: str, text: str, typed: bool) -> list[str]:
    """Return the ignores of one file without a code, or unread by a checker: mypy reads `typed` files."""
    out = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        location = f"{name}:{token.start[0]}: {token.string}"
        if ignore := IGNORE.search(token.string):
            out += [location] * (not ignore["code"] or not typed)
        elif ignore := NOQA.search(token.string):
            out += [location] * (not ignore["code"])
    return out


def unchecked_ignores() -> list[str]:
    """Return ignores of types outside what mypy reads, ignores without a code, and settings like them.

    mypy's strict mode fails on an ignore that is not needed, ruff's RUF100 on such a noqa.
    """
    checked = re.search(r"^\[tool\.mypy\]\nfiles = (\[.*\])$", SETTINGS, re.MULTILINE)
    typed_folders = set(ast.literal_eval(checked[1])) if checked else set()
    typed_folders |= {
        path.name for path in (ROOT / PACKAGE).iterdir() if path.is_symlink() and PACKAGE in typed_folders
    }
    out = [f"pyproject.toml: {setting[0].strip()}" for setting in LAX_SETTING.finditer(SETTINGS)]
    if not re.search(r"^strict = true$", SETTINGS, re.MULTILINE):
        out.append("pyproject.toml: mypy is not strict")
    if not re.search(r"^select = \[.*\"RUF\"", SETTINGS, re.MULTILINE) or '"RUF100"' in SETTINGS:
        out.append("pyproject.toml: ruff lets a noqa pass that is not needed")
    for folder in (*CODE, "tests", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            out += ignores_unchecked(str(path.relative_to(ROOT)), path.read_text(), folder in typed_folders)
    return out


# ---- patches -------------------------------------------------------------------------------------------------------

PATCHES = {"setattr", "delattr", "patch"}


def dotted_patches_of(name: str, text: str) -> list[str]:
    """Return the places where a test names what it patches by dotted text.

    A move would break it, and no checker sees the name.
    """
    return [
        f"{name}:{node.lineno}: {node.args[0].value}"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and node.args
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in PATCHES
        and isinstance(node.args[0], ast.Constant)
        and "." in str(node.args[0].value)
    ]


def dotted_patches() -> list[str]:
    paths = sorted((ROOT / "tests").rglob("*.py"))
    return [
        dotted_patch
        for path in paths
        for dotted_patch in dotted_patches_of(str(path.relative_to(ROOT)), path.read_text())
    ]


# ---- format -------------------------------------------------------------------------------------------------------

MOST_TABLES = 60


def unformatted_code_of(name: str, text: str) -> list[str]:
    """Return the places of `fmt: skip` outside a table.

    A table is a collection that a module or class assigns.
    """
    tables: set[int] = set()
    module = ast.parse(text)
    for body in (module.body, *(node.body for node in module.body if isinstance(node, ast.ClassDef))):
        for node in body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(
                node.value, (ast.Dict, ast.List, ast.Tuple, ast.Set, ast.Call)
            ):
                tables.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return [
        f"{name}:{token.start[0]}"
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
        and re.match(r"# fmt: (skip|off)", token.string)
        and token.start[0] not in tables
    ]


def marked_lines() -> dict[str, str]:
    paths = [path for folder in (*CODE, "tests", "examples") for path in sorted((ROOT / folder).rglob("*.py"))]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    return {name: text for name, text in texts.items() if re.search(r"# fmt: (skip|off)", text)}


def unformatted_code() -> list[str]:
    return [location for name, text in marked_lines().items() for location in unformatted_code_of(name, text)]


# ---- names that a rename made equal ---------------------------------------------------------------------------------


def merged_names_of(name: str, text: str) -> list[str]:
    """Return comparisons of a value with itself, and targets that bind one name twice."""
    locations = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Compare(left=ast.Name() | ast.Attribute() | ast.Subscript() as left, comparators=values):
                if any(ast.dump(value) == ast.dump(left) for value in values):
                    locations.append(f"{name}:{node.lineno}: {ast.unparse(node)}")
            case ast.Tuple(elts=elements, ctx=ast.Store()):
                targets = [part.id for part in elements if isinstance(part, ast.Name) and part.id != "_"]
                if len(set(targets)) < len(targets):
                    locations.append(f"{name}:{node.lineno}: {ast.unparse(node)}")
    return locations


def merged_names() -> list[str]:
    paths = [path for folder in (*CODE, "tests", "examples") for path in sorted((ROOT / folder).rglob("*.py"))]
    return [location for path in paths for location in merged_names_of(str(path.relative_to(ROOT)), path.read_text())]


# ---- the eight numbers -----------------------------------------------------------------------------------------------

RULES: dict[str, Callable[[], list[str]]] = {
    "circles of imports": imports_in_circles,
    "public class names that stand twice": names_twice,
    "modules in the top of a package that are not its face": loose_modules,
    "dead references in comments and documents": dead_references,
    "unchecked ignores": unchecked_ignores,
    "patches of dotted text": dotted_patches,
    "unformatted lines that are no tables": unformatted_code,
    "names that a rename made equal": merged_names,
}


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "dead references in comments and documents"])
def test_house__has_no(rule):
    """Dead references have tests/test_references.py."""
    assert RULES[rule]() == []


def test_ignores_unchecked__without_a_code_or_a_checker():
    valid_code = "a = 1  # type: ignore[assignment]\nb = '# noqa'  # noqa: E501 - a reason\n"
    assert ignores_unchecked("a.py", valid_code, typed=True) == []
    assert ignores_unchecked("a.py", valid_code, typed=False) == ["a.py:1: # type: ignore[assignment]"]
    for comment in ("# type: ignore", "# noqa", "# ruff: noqa", "# mypy: ignore-errors", "# pyright: basic"):
        assert ignores_unchecked("a.py", f"a = 1\n{comment}\n", typed=True) == [f"a.py:2: {comment}"]
    settings = "ignore_errors = false\nwarn_unused_ignores = true\ndisable_error_code = []\n"
    assert not LAX_SETTING.search(settings)
    assert LAX_SETTING.search("[x]\nignore_errors = true\n") and LAX_SETTING.search('disable_error_code = ["misc"]')


def test_dotted_patches__are_seen_and_those_of_an_object_are_not():
    valid_code = 'monkeypatch.setattr(qp, "MTU", 1)\nmock.patch.object(qp, "MTU", 1)\nsetattr(qp, name, 1)\n'
    assert dotted_patches_of("a.py", valid_code) == []
    for call in ('monkeypatch.setattr("a.qp.MTU", 1)', 'mock.patch("a.qp.MTU")', 'patch("a.qp")'):
        assert len(dotted_patches_of("a.py", call)) == 1


def test_unformatted_code__is_seen_and_tables_are_not():
    assert unformatted_code_of("a.py", "ROWS = [\n    (1,  2),\n]  # fmt: skip\n") == []
    for code in ("f(1,  2)  # fmt: skip\n", "def f():\n    return [\n        1\n    ]  # fmt: skip\n", "# fmt: off\n"):
        assert len(unformatted_code_of("a.py", code)) == 1
    assert sum(len(re.findall(r"# fmt: (?:skip|off)\n", text)) for text in marked_lines().values()) <= MOST_TABLES


def test_merged_names__are_seen_and_calls_compared_twice_are_not():
    valid_code = "assert run() == run()\na, _, _ = x\na is b\n"
    assert merged_names_of("a.py", valid_code) == []
    for code in ("a.name == a.name", "a is not a", "for a, a in pairs: pass", "a, a = pairs", "[a for a, a in pairs]"):
        assert len(merged_names_of("a.py", code)) == 1


def main() -> int:
    """Print the eight numbers, each with its places; exit code 1 unless all are 0."""
    total = 0
    for rule, find in RULES.items():
        problems = find()
        total += len(problems)
        print(f"{len(problems):4}  {rule}", *(f"        {problem}" for problem in problems), sep="\n")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
