"""The house in order: names that stand once, circles of imports, packages without bags, references that lead
somewhere.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.test_imports import CODE, ROOT, imports_of

FACES = {
    "bench": None,
    "controller": {"__main__", "app", "config", "denylist", "errors", "reconvergence"},
    "experiments": {
        "command",
        "compare",
        "console_summary",
        "flows",
        "metric_values",
        "metrics",
        "outcome",
        "repeats",
        "results",
        "runner",
        "worker_pool",
    },
    "faults": None,
    "hosts": set(),
    "hosts.engine": {
        "config",
        "config_limits",
        "connection",
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
    "ipc": None,
    "mrc": None,
    "simulator": None,
    "switch": {"build"},
    "switch.compiler": {"compiler", "errors"},
    "switch.server": {
        "__main__",
        "app",
        "chassis",
        "control",
        "counts",
        "grpc_server",
        "interfaces",
        "netlink",
        "portstate",
    },
    "topologies": set(),
}
"""Package -> modules at its top; None: the package is its modules, whatever they are."""


@cache
def modules() -> dict[str, Path]:
    """Every module outside of tests, by its dotted name."""
    found = [path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py"))]
    return {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in found}


def circles() -> list[set[str]]:
    """Strongly connected components of more than one module (Tarjan)."""
    known = modules()
    graph = {name: {to for _, to in imports_of(path) if to in known and to != name} for name, path in known.items()}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out: list[set[str]] = []

    def visit(one: str) -> None:
        index[one] = low[one] = len(index)
        stack.append(one)
        for to in sorted(graph[one]):
            if to not in index:
                visit(to)
                low[one] = min(low[one], low[to])
            elif to in stack:
                low[one] = min(low[one], index[to])
        if low[one] == index[one]:
            at = stack.index(one)
            if len(stack) - at > 1:
                out.append(set(stack[at:]))
            del stack[at:]

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return out


def test_circles__of_imports_are_none():
    """Those under TYPE_CHECKING and inside functions count."""
    found = sorted(sorted(one) for one in circles())
    print(f"{len(found)} circles of imports")
    assert found == []


def test_public_classes__stand_once():
    places = defaultdict(list)
    for path in modules().values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    twice = {name: where for name, where in places.items() if len(where) > 1}
    print(f"{len(places)} public classes, {len(twice)} names stand twice")
    assert twice == {}


@pytest.mark.parametrize("package", [name for name, face in FACES.items() if face is not None])
def test_packages__have_their_face_at_the_top_and_nothing_else(package):
    folder = ROOT.joinpath(*package.split("."))
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == FACES[package]


# ---- references in comments, docstrings and pages ------------------------------------------------------------------

TOPS = (*CODE, "tests", "docs", "examples", "scripts", "p4src", "scenarios")
A_PATH = re.compile(rf"(?<![\w./~<-])((?:{'|'.join(TOPS)})/[\w./-]*\w)(?!\w|[*{{<])")
A_MODULE = re.compile(
    rf"(?<![\w./{{-])((?:{'|'.join(one for one in (*CODE, 'tests') if one != 'mrc')})(?:\.[a-z_]\w*)+)(?![\w(/])"
)
"""Not of mrc: what begins with `mrc.` is a field of the dissector."""
A_FILE = re.compile(r"(?<![\w./*<-])([a-z]\w*\.(?:py|c|h|lark|lua|p4))(?![\w(/])")
NOT_OURS = {
    "a.p4", "b.p4", "config.p4", "fabric.p4", "file.p4", "hdr.h", "mrc.h", "mrc_ctl.h", "my_hooks.py", "program.p4",
    "router.p4", "verbs.h", "x.p4",
}  # fmt: skip
"""File names of examples in texts, and of other projects."""


def texts(path: Path) -> str:
    """What people read of a file: all of a page, comments and docstrings of code."""
    text = path.read_text()
    if path.suffix != ".py":
        return text
    docs = [
        node.value.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    comments = [t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT]
    return "\n".join(docs + comments)


def sources() -> list[Path]:
    pages = [
        *ROOT.glob("*.md"),
        ROOT / "Makefile",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs/design").glob("*.md"),
        *(ROOT / "p4src").glob("*"),
    ]
    code = [path for folder in (*CODE, "tests", "examples") for path in (ROOT / folder).rglob("*.py")]
    return sorted([*pages, *code, *(ROOT / "switch/runtime").glob("*.[ch]")])


def is_module(name: str) -> bool:
    """Whether a dotted name leads to a module, or to something that its module says by that name."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        base = ROOT.joinpath(*parts[:k])
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return k == len(parts) or bool(re.search(rf"\b{parts[k]}\b", path.read_text()))
        if base.is_dir() and k == len(parts):
            return True
    return False


def test_references__lead_to_files_and_modules_that_exist():
    names = {path.name for path in ROOT.rglob("*") if ".venv" not in str(path)}
    dead = []
    for path in sources():
        text, where = texts(path), path.relative_to(ROOT)
        for found in A_PATH.findall(text):
            if "NAME" in found:  # stands for any
                continue
            one = ROOT / found
            if not (one.exists() or one.with_suffix(".py").exists() or one.with_suffix(".yaml").exists()):
                dead.append(f"{where}: {found}")
        dead += [
            f"{where}: {found}"
            for found in A_MODULE.findall(text)
            if not (is_module(found) or found.endswith((".json", ".jsonl", ".py")))
        ]
        dead += [f"{where}: {found}" for found in A_FILE.findall(text) if found not in names | NOT_OURS]
    print(f"{len(dead)} dead references")
    assert dead == []
