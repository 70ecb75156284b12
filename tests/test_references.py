"""Every section, file, heading and name that is cited exists (rules: docs/spec/README.md)."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import product
from pathlib import PurePosixPath

import pytest

from tests.repository import ROOT
from tests.test_imports import CODE, MAY_IMPORT, PACKAGE

pytestmark = pytest.mark.house

SPECS = {name: f"docs/spec/{name}.md" for name in ("mrc-protocol", "nscc")}
KINDS = {".py", ".p4", ".c", ".h", ".lark", ".lua", ".stf", ".yaml", ".toml", ".sh", ".md", ""}
SELF = "tests/test_references.py"
EXTERNAL = r"RFC\ \d+|P4_16|P4Runtime|OCP|paper|UET|IBTA"
CITATION = re.compile(
    rf"""
    (?:(?P<external>{EXTERNAL})(?:\ specification)?,?\s+
      |(?:docs/spec/)?(?P<spec>mrc-protocol|nscc)(?:\.md)?[`\])]*(?:\([\w/.#-]*\))?,?\s+)?
    §(?P<first>[\w.]*\w)
    (?P<more>(?:\s*(?:,|-|to|and|or)\s*§[\w.]*\w)*)
    (?:\s+rows?\s+(?P<rows>\d+(?:(?:,|\s+and|\s+to)\s+\d+)*))?
    """,
    re.VERBOSE,
)
DEFAULT = re.compile(r'(?<!")Sections \(§\) without a name are those of \[?(mrc-protocol|nscc)\.md')
ANNEX = re.compile(r"(?<!/)\bAnnex ([A-Z])\b")
NOT_HERE = re.compile(
    r"\b[Ii]ssue #?\d+|\bDESIGN\b|\bshared/|(?<!docs/)\breference/|\b(?:house|style|users|field)\.md\b"
)
LINK = re.compile(r"(?<!\!)\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
ROOMS = tuple(room for room in MAY_IMPORT if "." not in room)
"""A comment may name a module or file from the package on, without `mrc_testbed`."""
FOLDERS = (*CODE, *ROOMS, "tests", "docs", "examples", "scripts", "p4src", "scenarios")
TOPS = (ROOT, ROOT / PACKAGE)
FILE = re.compile(r"(?<![\w./*$~{}<>-])((?:[\w-]+/)*[\w-]+\.(?:py|md|p4|c|h|lark|lua|stf))(?![\w*{<(/]|\.\w)")
PATH = re.compile(rf"(?<![\w./~<-])((?:{'|'.join(FOLDERS)})/[\w./*-]*[\w*])(?![\w{{<])")
MODULE = re.compile(rf"(?<![\w./{{-])((?:{'|'.join((*CODE, *ROOMS, 'tests'))})(?:\.[a-z_]\w*)+)(?![\w(/])")
CODE_REFERENCE = re.compile(r"`([\w/]+\.(?:py|c|h)): ([\w.]+)`")
SPAN = re.compile(r"`([^`\n]+)`")
WORD = re.compile(r"(?<![\w*])(?<!\.\.)[A-Za-z_]\w*(?![\w*])")
FOREIGN_FILES = {
    "Python.h",
    "a.p4",
    "b.p4",
    "config.p4",
    "fabric.p4",
    "file.p4",
    "hdr.h",
    "mrc.h",
    "mrc_ctl.h",
    "my.p4",
    "my_hooks.py",
    "program.p4",
    "router.p4",
    "verbs.h",
    "x.p4",
    "analyze_perf_json.py",
    "test_c10d_gloo.py",
}
"""Names that examples give the user's own files, and files of other projects."""
OTHER_NAMES = re.compile(
    r"pytest_plugins|ibv?_\w+|mrc_ctl\w*|mrc_\w+_(device|port|qp|cq|context|hint|version|events?)(_ex)?|bad_wr|bonding_masters|__sk_buff"
    r"|P4C_16_INCLUDE_PATH|ignore_ipv6_zero_checksum|\w+NNN"
    r"|report_gbits|tps_average|analyze_perf_json|tls_config|ca_file"
    r"|run_infinitely|oL|allreduce_recdoub|linear_alltoall|halvingDoubling|test_c10d_gloo"
)
"""Names in texts that other projects define, and a placeholder.

Those of libibverbs, perftest, nccl-tests, `mrc.h`, the kernel, p4c, Prometheus and Wireshark.
"""


@cache
def sections(text: str) -> set[str]:
    """Return the numbers that can be cited.

    Headings, annexes, and items of a list that stands right below a chapter's heading.
    """
    numbers: set[str] = set()
    chapter = ""
    for line in text.splitlines():
        if heading := re.match(r"#+ (?:Annex )?(\d+(?:\.\d+)*|[A-Z](?=\.))\.?(?: |$)", line):
            numbers.add(heading[1])
            chapter = heading[1] if "." not in heading[1] else ""
        elif line.startswith("#"):
            chapter = ""
        elif chapter and (item := re.match(r"(\d+)\. ", line)):
            numbers.add(f"{chapter}.{item[1]}")
    return numbers


@cache
def rows(text: str, section: str) -> set[str]:
    """Return the numbers in the first column of a section's tables."""
    part = re.search(rf"^#+ {re.escape(section)}\.? .*?(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"^\| (\d+) \|", part[0], re.MULTILINE)) if part else set()


def citations(text: str, default: str) -> Iterator[tuple[int, str, str, list[str]]]:
    """(line, document, section, rows) of each § of ours in a text; `default`: what a bare one means."""
    if "§" not in text:
        return
    plain = re.sub(r"\n[ \t]*(?:#|//|\*|--)?[ \t]*", lambda gap: " " * (len(gap[0]) - 1) + "\n", text)
    for citation in CITATION.finditer(plain):
        if citation["external"]:
            continue
        document = citation["spec"] or default
        line = plain.count("\n", 0, citation.start("first")) + 1
        numbers = [citation["first"], *re.findall(r"§([\w.]*\w)", citation["more"])]
        for number in numbers[:-1]:
            yield line, document, number, []
        yield line, document, numbers[-1], re.findall(r"\d+", citation["rows"] or "")


def default_of(name: str, text: str) -> str:
    """Return which document a bare § of this file means."""
    if name in SPECS.values():
        return PurePosixPath(name).stem
    declaration = DEFAULT.search(text)
    return declaration[1] if declaration else "mrc-protocol"


def dead_sections(name: str, text: str, specs: dict[str, str]) -> list[str]:
    problems = []
    for line, document, section, lines in citations(text, default_of(name, text)):
        if section not in sections(specs[document]):
            problems.append(f"{name}:{line}: {document} has no §{section}")
        elif missing_rows := set(lines) - rows(specs[document], section):
            problems.append(f"{name}:{line}: §{section} has no row {', '.join(sorted(missing_rows))}")
    for annex in ANNEX.finditer(text):
        if annex[1] not in sections(specs["mrc-protocol"]):
            problems.append(f"{name}:{text.count(chr(10), 0, annex.start()) + 1}: no Annex {annex[1]}")
    return problems


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub makes of a document's headings."""
    prose = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)
    out: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", prose, re.MULTILINE):
        bare = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", bare.lower()).replace(" ", "-")
        out.add(slug if slug not in out else f"{slug}-1")
    return out


def dead_links(name: str, text: str, files: Iterable[str], read) -> list[str]:
    """Return the links of a document to files or headings that do not exist.

    `read` gives the text of a file of ours.
    """
    file_names = set(files)
    folders = {str(parent) for file in file_names for parent in PurePosixPath(file).parents}
    problems = []
    for link in LINK.finditer(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        target = link[1] or link[2]
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked_file = name if not path else _join(PurePosixPath(name).parent, path)
        if linked_file not in file_names and linked_file.rstrip("/") not in folders:
            problems.append(f"{name}: no file {path}")
        elif anchor and anchor not in anchors(read(linked_file)):
            problems.append(f"{name}: no heading #{anchor} in {linked_file}")
    return problems


def _join(folder: PurePosixPath, path: str) -> str:
    parts: list[str] = []
    for part in (*folder.parts, *PurePosixPath(path).parts):
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


@cache
def endings(files: tuple[str, ...]) -> set[str]:
    """Return all ways to name one of these files: with its folders, or without the first ones."""
    parts = [PurePosixPath(file).parts for file in files]
    return {"/".join(part[n:]) for part in parts for n in range(len(part))}


def dead_files(name: str, text: str, files: Iterable[str]) -> list[str]:
    """Return the files that comments or documents name and that are not here.

    A name may leave out the folders before it.
    """
    ends = endings(tuple(files))
    problems = []
    for match in FILE.finditer(text):
        file_name = match[1]
        is_local = file_name.startswith(FOLDERS) if "/" in file_name else not file_name.endswith(".stf")
        if (
            is_local
            and file_name not in ends
            and file_name not in FOREIGN_FILES
            and not PurePosixPath(file_name).stem.isupper()
        ):
            problems.append(f"{name}: no file {file_name}")
    return problems


def dead_paths(name: str, text: str) -> list[str]:
    """Return the files and folders, named from the top of the tree, that are not here.

    `*` stands for any, an ending may miss.
    """
    problems = []
    for path in PATH.findall(text):
        ways = [path] if "*" in path else [path, f"{path}.py", f"{path}.yaml"]
        if "NAME" not in path and not any(next(top.glob(way), None) for way in ways for top in TOPS):
            problems.append(f"{name}: no {path}")
    return problems


def is_module(name: str) -> bool:
    """Return whether a dotted name leads to a module, or to a word in a module's text."""
    parts = name.split(".")
    for k, top in product(range(len(parts), 0, -1), TOPS):
        base = top.joinpath(*parts[:k])
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return k == len(parts) or bool(re.search(rf"\b{parts[k]}\b", path.read_text()))
        if base.is_dir() and k == len(parts):
            return True
    return False


def dead_modules(name: str, text: str) -> list[str]:
    """Return the dotted names below our packages that lead nowhere."""
    dotted_names = [
        dotted_name
        for dotted_name in MODULE.findall(text)
        if not dotted_name.endswith((".js", ".json", ".jsonl", ".md", ".py", ".sock"))
    ]
    return [f"{name}: no {dotted_name}" for dotted_name in dotted_names if not is_module(dotted_name)]


def comments(name: str, text: str) -> str:
    """Return the prose of a file.

    Of a source its comments and docstrings (of fields too), of a page all but its code blocks.
    """
    if name.endswith(".py"):
        remarks = re.findall(r"(?:^|\s)#[^\n]*", text)
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                remarks.append(node.value.value)
        return "\n".join(remarks)
    if name.endswith((".p4", ".c", ".h", ".lark")):
        return "\n".join(re.findall(r"//[^\n]*|/\*.*?\*/", text, re.DOTALL))
    if name.endswith(".lua"):
        return "\n".join(re.findall(r"--[^\n]*", text))
    if name.endswith((".yaml", ".toml", ".stf", ".sh")) or "." not in PurePosixPath(name).name:
        return "\n".join(re.findall(r"(?:^|\s)#[^\n]*", text, re.MULTILINE))
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def dead_places(name: str, text: str, read: Callable[[str], list[str]]) -> list[str]:
    """Return `file: Class.function` pairs whose file or name does not exist.

    `read` gives the texts of files so named.
    """
    problems = []
    for file, names in CODE_REFERENCE.findall(text):
        sources = read(file)
        patterns = [
            rf"^\s*(?:(?:async )?def|class) {word}\b|^\s*{word}\b(?: =|:)|^[\w *]*\b{word}\("
            for word in names.split(".")
        ]
        if not sources:
            problems.append(f"{name}: no file {file}")
        elif not any(all(re.search(pattern, text, re.MULTILINE) for pattern in patterns) for text in sources):
            problems.append(f"{name}: no {names} in {file}")
    return problems


def dead_names(name: str, text: str, code_words: set[str]) -> list[str]:
    """Return the names of code between backticks (`snake_case`, `CamelCase`) that no code has."""
    quoted_words = dict.fromkeys(word for span in SPAN.findall(text) for word in WORD.findall(span))
    identifiers = [word for word in quoted_words if re.search(r"[^\W_]_[^\W_]|[a-z][A-Z]", word)]
    return [f"{name}: no {word}" for word in identifiers if word not in code_words and not OTHER_NAMES.fullmatch(word)]


def dead_members(name: str, text: str, classes: dict[str, str]) -> list[str]:
    """Return each `Class.member` between backticks where no such class has it.

    `classes`: name -> text of its files.
    """
    problems = []
    for span in SPAN.findall(text):
        for owner, member in re.findall(r"(?<![\w.])([A-Z]\w*[a-z]\w*)\.([a-z_]\w*)\b(?![/.])", span):
            if not owner.startswith("My") and not re.search(rf"\b{member}\b", classes.get(owner, "")):
                problems.append(f"{name}: no {owner}.{member}")
    return problems


@cache
def tracked_files() -> tuple[str, ...]:
    """Return the files of the tree, by git where there is one (a copy without it: what lies there)."""
    process = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if process.returncode == 0 and process.stdout:
        files = process.stdout.splitlines()
    else:
        skip = {"__pycache__", "results", "build"}
        every = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
        files = [str(path) for path in every if not any(part in skip or part[0] == "." for part in path.parts)]
    return tuple(file for file in files if (ROOT / file).is_file())


@cache
def text_of(name: str) -> str | None:
    path = ROOT / name
    return path.read_text() if path.is_file() else None


@cache
def texts() -> dict[str, str]:
    names = [name for name in tracked_files() if PurePosixPath(name).suffix in KINDS and name != SELF]
    out = {}
    for name in names:
        try:
            out[name] = text_of(name) or ""
        except UnicodeDecodeError:
            continue
    return out


def documents() -> dict[str, str]:
    return {name: text for name, text in texts().items() if name.endswith(".md")}


@cache
def prose_of_files() -> dict[str, str]:
    """Return the prose of each file but the changelog, which describes removed parts."""
    return {name: comments(name, text) for name, text in texts().items() if name != "CHANGELOG.md"}


@cache
def words() -> set[str]:
    """Return the words of the code outside comments, of file names, and of the specification."""
    code_words = {word for name in tracked_files() for word in re.findall(r"\w+", name)}
    for name, text in texts().items():
        count = Counter(re.findall(r"\w+", text))
        if not name.endswith(".md"):
            count -= Counter(re.findall(r"\w+", prose_of_files()[name]))
        if not name.endswith(".md") or name.startswith("docs/spec/"):
            code_words |= set(count)
    return code_words


@cache
def classes() -> dict[str, str]:
    out: dict[str, str] = {}
    for name, text in texts().items():
        for class_name in re.findall(r"^\s*class (\w+)", text, re.MULTILINE) if name.endswith(".py") else ():
            out[class_name] = out.get(class_name, "") + text
    return out


def texts_of(file: str) -> list[str]:
    """Return the texts of the files that a name can mean, which may leave out the folders before it."""
    return [text for name, text in texts().items() if f"/{name}".endswith(f"/{file}")]


def dead_references() -> list[str]:
    """Return everything cited in comments and documents that is not in the tree, by file."""
    specs = {name: text_of(path) for name, path in SPECS.items()}
    problems = []
    for name, text in texts().items():
        problems += dead_sections(name, text, specs)
        problems += [f"{name}: {match[0]}" for match in NOT_HERE.finditer(text)]
    for name, text in prose_of_files().items():
        problems += dead_files(name, text, tracked_files()) + dead_paths(name, text) + dead_modules(name, text)
        if not name.startswith("docs/spec/"):
            problems += dead_names(name, text, words())
    for name, text in documents().items():
        problems += dead_links(name, text, tracked_files(), text_of) + dead_places(name, text, texts_of)
        problems += dead_members(name, text, classes())
    return problems


def test_references__all_lead_somewhere():
    count = sum(1 for name, text in texts().items() for _ in citations(text, default_of(name, text)))
    assert count > 500, "the pattern finds hardly anything: has the way of citing changed?"
    assert dead_references() == []


def test_switch__names_the_document_of_every_section():
    """switch/ knows nothing of MRC, so a bare § there would be one of another specification."""
    bare = [
        f"{name}:{line}"
        for name, text in texts().items()
        if name.startswith("mrc_testbed/switch/")
        for line, *_ in citations(text, "mrc-protocol")
    ]
    assert bare == []


def test_walks__name_their_stays():
    assert len(CODE_REFERENCE.findall(text_of("docs/design/walks.md"))) > 30


def test_index__lists_every_page():
    index_text = text_of("docs/index.md") + text_of("docs/design/README.md") + text_of("docs/spec/README.md")
    pages = [PurePosixPath(name).relative_to("docs") for name in documents() if name.startswith("docs/")]
    missing_pages = [
        str(page) for page in pages if page.name not in ("index.md", "README.md") and page.name not in index_text
    ]
    assert missing_pages == []


# The functions above find what is wrong ----------------------------------------------------------------------------

SPEC = {
    "mrc-protocol": "# T\n## 1. A\n### 1.2 B\n1. no\n## 3. C\n1. one\n7. two\n## 12. D\n| 4 | x |\n## Annex C. E\n",
    "nscc": "## 6. P\n### 6.5 Q\n### 6.10 R\n",
}


def test_sections__headings_items_and_annexes():
    assert sections(SPEC["mrc-protocol"]) == {"1", "1.2", "3", "3.1", "3.7", "12", "C"}
    assert rows(SPEC["mrc-protocol"], "12") == {"4"} and rows(SPEC["mrc-protocol"], "1") == set()


@pytest.mark.parametrize(
    "text",
    [
        "(§1.2)",
        "§3.7 and §1",
        "§12 row 4",
        "§1.2, §12 row 4",
        "nscc.md §6.5, §6.10",
        "[nscc.md](spec/nscc.md) §6.5",
        "§1-§3",
        "mrc-protocol §1.2, nscc.md §6.10",
        "RFC 8754 §99.1",
        "P4Runtime §77",
        "paper §2.1",
        "Annex C",
        "nscc.md\n    # §6.5",
        "Sections (§) without a name are those of nscc.md. §6.5",
        "§1.2.",
    ],
)
def test_dead_sections__what_exists_passes(text):
    assert dead_sections("a.py", text, SPEC) == []


@pytest.mark.parametrize(
    "text",
    [
        "(§1.3)",
        "§3.8",
        "§1, §2",
        "§12 row 5",
        "§12 rows 4 and 6",
        "nscc.md §1.2",
        "nscc.md §6.5, §1.2",
        "§6.5",
        "Annex Z",
        "mrc-protocol.md §6.5",
        "Sections (§) without a name are those of nscc.md. §1.2",
    ],
)
def test_dead_sections__what_does_not_exist_is_found(text):
    assert len(dead_sections("a.py", text, SPEC)) == 1


def test_dead_links__files_headings_folders():
    pages = {"docs/a.md": "# One, two!\n", "docs/x/b.md": "", "README.md": ""}
    valid_links = "[a](../a.md) [b](../a.md#one-two) [c](https://example.org) [d](../../README.md) [e](../x/)"
    assert dead_links("docs/x/b.md", valid_links, pages, pages.get) == []
    broken_links = "[a](a.md) [b](../a.md#three) ![c](p.png)"
    assert len(dead_links("docs/x/b.md", broken_links, pages, pages.get)) == 3


def test_dead_files__names_without_folders_too():
    files = ["hosts/engine/wire/psn.py", "docs/a.md"]
    assert (
        dead_files(
            "a.py", "hosts/engine/wire/psn.py, hosts/engine/wire/psn.py, psn.py; docs/a.md; linux/netlink.h", files
        )
        == []
    )
    assert len(dead_files("a.py", "hosts/psn.py and gone.py, docs/b.md", files)) == 3


def test_not_here__is_found():
    for text in ("(issue 6)", "DESIGN §4", "/work/shared/x", "reference/mrc-protocol.md", "house.md"):
        assert NOT_HERE.search(text), text
    for text in ("a reissue", "designed", "the issue is", "docs/reference/x"):
        assert not NOT_HERE.search(text), text


def test_comments__leave_out_strings_that_are_data():
    assert "gone.py" not in comments("a.py", 'x = "gone.py"\n')
    assert "gone.py" in comments("a.py", 'x = 1\n"""See gone.py."""\n') and "gone.py" in comments(
        "a.py", "x = 1  # gone.py\n"
    )
    assert "b.md" in comments("a.c", "int x; /* b.md\n */") and "b.md" not in comments("a.c", 'char *x = "b.md";')


def test_dead_places__file_and_name():
    sources = {"a.py": ["", "class A:\n    def b(self): ...\n"], "c.c": ["static int d(int e)\n{\n"]}
    assert dead_places("w", "`a.py: A.b` `c.c: d`", lambda file: sources.get(file, [])) == []
    assert len(dead_places("w", "`a.py: A.x` `c.c: f` `z.py: A`", lambda file: sources.get(file, []))) == 3


def test_dead_paths__files_folders_and_patterns():
    assert dead_paths("w", "tests/test_*.py, hosts/engine/ and scenarios/e7, docs/NAME.md") == []
    assert dead_paths("w", "tests/nosuch_*.py and hosts/motor/") == ["w: no tests/nosuch_*.py", "w: no hosts/motor"]


def test_dead_modules__packages_modules_and_what_they_say():
    assert (
        dead_modules("w", "mrc_testbed.hosts.engine, mrc_testbed.hosts.engine.qp, tests.test_imports.ROOT, switch.json")
        == []
    )
    assert dead_modules("w", "hosts.motor and tests.test_imports.NOWHERE") == ["w: no hosts.motor"]
    assert dead_modules("w", "tests.test_imports.nowhere") == ["w: no tests.test_imports.nowhere"]


def test_dead_names__words_and_members():
    assert dead_names("w", "`a_b(c)` `Ab.cd` `plain` a_c `ibv_post_send`", {"a_b"}) == []
    assert dead_names("w", "`a_b` and `AbCd()`", {"x"}) == ["w: no a_b", "w: no AbCd"]
    assert dead_members("w", "`Ab.cd()` `Ab.ef` `results.Ab.x` `IO.x`", {"Ab": "def cd"}) == ["w: no Ab.ef"]
