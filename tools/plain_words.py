"""Ratchet of the words: counts, per package, names and texts that a stranger stumbles over.

`make lint` fails when a count rises.

    python -m tools.plain_words                       the table of counts
    python -m tools.plain_words --list names hosts    each place in hosts/, with the word
    python -m tools.plain_words --update              store lower counts; a higher one is refused

The counts stand in plain_words.json beside this file. The words that count, with the reasons for exceptions, are the
tables below.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COUNTS = Path(__file__).with_suffix(".json")
PACKAGES = ("controller", "hosts", "topologies", "mrc_testbed", "tools", "tests", "examples", "docs")
"""Top folders of Python; those below mrc_testbed count one by one."""


def _words(text: str) -> frozenset[str]:
    """Return the words of a text as a set: a table of words stays readable as lines."""
    return frozenset(text.split())


PRONOUNS = _words(
    """
    one ones it its itself they them their theirs mine ours yours my our your this that these those he she some
    any each other others another several none nobody somebody everybody everything something nothing more most
    many few rest else same such own both here there all
    """
)
QUESTIONS = _words(
    """
    what whatever who whoever whom whose which where when why how whether
    """
)
PREPOSITIONS = _words(
    """
    of in at by to with within into over under above below behind beside beyond before until since from about
    among around between through off up down back again apart away along inside outside per via then thus ever
    never yet still soon twice together alone after
    """
)
PARTICIPLES = _words(
    """
    found told given taken made seen heard known wanted left held done begun said kept drawn chosen gone hidden
    broken written shown asked shared planned looking going leaving giving taking making being having
    """
)
ADJECTIVES = _words(
    """
    old new whole full right wrong bad good dead live late early fresh free wide short long silent idle busy ready
    missing alive loose calm worst best least longest newest oldest usable common real true false big small
    """
)
VAGUE = _words(
    """
    place places thing things stuff tell told say begins look hear somehow todo ask answer_of
    """
)
"""Nouns and verbs that fit everything.

A place is a link, a node, an lvalue; to tell is to report or to print.
"""
PROTOCOL = _words(
    """
    acked lost trimmed sent received denied marked retransmitted dropped posted completed connected corrupted
    delivered duplicated forwarded delayed skipped failed need seed speed feed embed shed fed red bed exceed
    proceed succeed limited advertised signed unsigned packed checked
    """
)
"""Participles that count packets or name a state in the reference (§5 to §7).

Some of these words only look like participles.
"""
ALWAYS_BAD = PRONOUNS | QUESTIONS | PREPOSITIONS | VAGUE
FLAGS = PARTICIPLES | ADJECTIVES
"""Bad names but of a boolean: `ready: bool` says all there is to say."""

FRAGMENT_STARTS = _words(
    """
    of what whatever that those these this it its they the-same as whose who whoever whom which where when why how
    in on at for to from with without by over under after before until since also and or but so if because while
    not nobody nothing somebody there here is are was were has have had does did can may must should would will
    only same else then thus both-of given
    """
)
"""First words of a docstring that begins in the middle of a sentence."""
PARTICIPLE_STARTS = re.compile(
    r"^(\w+ed|made|told|seen|kept|sent|held|known|found|taken|drawn|given|left|lost|done|written|begun|heard|meant|read)"
    r"\s+(by|from|to|in|on|at|for|with|when|where|while|after|before|until|once|if|as|only|again|so|it|here|there|anew|"
    r"and|or|but|since|of|not|because|through|per)\b",
    re.IGNORECASE,
)
PRONOUN_SUBJECT = re.compile(
    r"(?:^|[.:;!?]\s+)(it|they|that|this|these|those|what|who|whoever|nobody|somebody|one|he|there)"
    r"(?:'s|'re)?\s+(?:is|are|was|were|has|have|had|does|do|did|can|could|may|might|must|should|would|will|[a-z]+s|[a-z]+ed)\b",
    re.IGNORECASE,
)
LONG_FUNCTION = 25
MAX_PARAMETERS = 8
MAX_FIRST_LINE = 100

MEANINGS = {
    "names": "names that are pronouns, participles, question words, bare adjectives or prepositions",
    "fragments": "docstrings that begin in the middle of a sentence or do not end one",
    "first_lines": f"docstrings whose first line is no whole sentence of at most {MAX_FIRST_LINE} characters",
    "fmt_skip": "tables kept from the formatter",
    "parameters": f"functions of more than {MAX_PARAMETERS} parameters",
    "uncommented": f"functions of more than {LONG_FUNCTION} lines without a comment",
    "texts": "help and error texts with a pronoun as subject",
}
"""Meaning of each count, in the order of the columns."""


@dataclass(frozen=True)
class WordFinding:
    """One place that counts."""

    count: str
    """Key of MEANINGS."""
    path: str
    line: int
    text: str


@dataclass(frozen=True)
class WordReport:
    """All findings of a tree, with the number of names bound in it by package."""

    findings: tuple[WordFinding, ...]
    names: Counter[str]


def is_bad_name(name: str, is_flag: bool) -> bool:
    """Return whether a name is no noun; a boolean may be an adjective, a dunder is Python's own."""
    if name.startswith("__") and name.endswith("__"):
        return False
    word = name.strip("_").lower()
    if word in ALWAYS_BAD:
        return True
    if is_flag or word in PROTOCOL:
        return False
    return word in FLAGS or re.fullmatch(r"[a-z]+ed", word) is not None


def _is_boolean(value: ast.expr | None) -> bool:
    """Return whether an expression or annotation is visibly a boolean."""
    match value:
        case ast.Constant(value=constant):
            return isinstance(constant, bool) or constant in ("bool", "bool | None")
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
            return True
        case ast.Name(id="bool"):
            return True
        case ast.BinOp(left=left):
            return _is_boolean(left)
        case ast.Subscript(value=ast.Name(id="Annotated" | "ClassVar" | "Final"), slice=ast.Tuple(elts=[kind, *_])):
            return _is_boolean(kind)
        case ast.Subscript(value=ast.Name(id="ClassVar" | "Final"), slice=kind):
            return _is_boolean(kind)
        case ast.Call(func=ast.Name(id="bool" | "any" | "all" | "isinstance")):
            return True
    return False


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int, bool]]:
    """Yield (name, line, whether it is visibly a boolean) for each name that a module binds."""
    flags: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node.lineno, _is_boolean(node.returns)
            case ast.ClassDef():
                yield node.name, node.lineno, False
            case ast.arg():
                yield node.arg, node.lineno, _is_boolean(node.annotation)
            case ast.Assign(targets=targets, value=value) if _is_boolean(value):
                flags.update(id(target) for target in targets)
            case ast.AnnAssign(target=target, annotation=annotation) if _is_boolean(annotation):
                flags.add(id(target))
            case ast.ExceptHandler(name=str(name)):
                yield name, node.lineno, False
            case ast.alias(asname=str(name)):
                yield name, node.lineno, False
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno, id(node) in flags


def docstrings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield (text, line) of each docstring, also those below an assignment."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for position, statement in enumerate(body):
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    previous = body[position - 1] if position else None
                    if isinstance(previous, ast.Assign | ast.AnnAssign) or (documented and not position):
                        yield text, statement.lineno


def is_fragment(text: str) -> bool:
    """Return whether a docstring begins in the middle of a sentence, or its first paragraph ends in one."""
    paragraph = text.strip().split("\n\n")[0].strip()
    words = re.findall(r"[\w'`]+", paragraph.lower())
    if not words:
        return True
    start = words[0]
    if start in FRAGMENT_STARTS or words[:2] in (["the", "same"], ["both", "of"], ["all", "of"]):
        return True
    if PARTICIPLE_STARTS.match(paragraph):
        return True
    return not re.search(r"[.:!?][)`\"'»]*$", paragraph)


def is_bad_first_line(text: str) -> bool:
    """Return whether the first line of a docstring is too long or ends before its sentence."""
    line = text.strip().split("\n")[0].strip()
    return len(line) > MAX_FIRST_LINE or not re.search(r"[.:!?][)`\"'»]*$", line)


def _texts(node: ast.expr | None) -> Iterator[str]:
    """Yield the text of a string or f-string."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=values):
            yield "".join(str(v.value) if isinstance(v, ast.Constant) else "x" for v in values)
        case ast.BinOp(left=left, right=right):
            yield from _texts(left)
            yield from _texts(right)


def messages(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield (text, line) of each help text and each text given to an exception that is raised."""
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Call(args=arguments)):
                for argument in arguments:
                    yield from ((text, node.lineno) for text in _texts(argument))
            case ast.keyword(arg="help", value=value):
                yield from ((text, value.lineno) for text in _texts(value))


def _function_findings(tree: ast.AST, comment_lines: set[int], path: str) -> Iterator[WordFinding]:
    """Yield functions with too many parameters, and long ones without a comment."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        arguments = node.args
        parameters = [
            a for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if a.arg not in ("self", "cls")
        ]
        if len(parameters) > MAX_PARAMETERS:
            yield WordFinding("parameters", path, node.lineno, f"{node.name}: {len(parameters)}")
        first = node.body[1] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body[0]
        lines = range(first.lineno, (node.end_lineno or node.lineno) + 1)
        if len(lines) > LONG_FUNCTION and comment_lines.isdisjoint(lines):
            yield WordFinding("uncommented", path, node.lineno, f"{node.name}: {len(lines)} lines")


def findings_of(path: str, source: str) -> tuple[list[WordFinding], int]:
    """Return what counts in one file, and how many names it binds."""
    tree = ast.parse(source)
    comments = {
        n for n, line in enumerate(source.split("\n"), 1) if re.search(r"(^|\s)#\s?(?!noqa|type:|fmt:|pragma)\w", line)
    }
    names = list(bound_names(tree))
    findings = [WordFinding("names", path, line, name) for name, line, flag in names if is_bad_name(name, flag)]
    for text, line in docstrings(tree):
        first_line = text.strip().split("\n")[0]
        if is_fragment(text):
            findings.append(WordFinding("fragments", path, line, first_line))
        if is_bad_first_line(text):
            findings.append(WordFinding("first_lines", path, line, first_line))
    findings += [
        WordFinding("fmt_skip", path, n, line.strip())
        for n, line in enumerate(source.split("\n"), 1)
        if re.search(r"#\s*fmt:\s*(skip|off)\s*$", line)
    ]
    findings += _function_findings(tree, comments, path)
    findings += [
        WordFinding("texts", path, line, text) for text, line in messages(tree) if PRONOUN_SUBJECT.search(text)
    ]
    return findings, len(names)


def package_of(path: str) -> str:
    """Return the row of a file: its top folder, or its room of mrc_testbed."""
    parts = path.split("/")
    if parts[0] == "mrc_testbed":
        return "/".join(parts[:2]) if len(parts) > 2 else "mrc_testbed"
    return parts[0]


def read_tree(root: Path = ROOT) -> WordReport:
    """Return the findings of all Python files below `root` that are no links."""
    findings: list[WordFinding] = []
    names: Counter[str] = Counter()
    for top in PACKAGES:
        for file in sorted(_python_files(root / top)):
            path = file.relative_to(root).as_posix()
            file_findings, name_count = findings_of(path, file.read_text())
            findings += file_findings
            names[package_of(path)] += name_count
    return WordReport(tuple(findings), names)


def _python_files(folder: Path) -> Iterator[Path]:
    """Yield the Python files below a folder; links are not followed, or files would count twice."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for path in folder.iterdir():
        if path.is_dir():
            yield from _python_files(path)
        elif path.suffix == ".py" and not path.is_symlink():
            yield path


def counts_of(report: WordReport) -> dict[str, dict[str, int]]:
    """Return package > count > number; zeros are left out."""
    counts: dict[str, dict[str, int]] = {package: {} for package in sorted(report.names)}
    for finding in report.findings:
        row = counts[package_of(finding.path)]
        row[finding.count] = row.get(finding.count, 0) + 1
    return counts


def rises(old_counts: dict[str, dict[str, int]], now: dict[str, dict[str, int]]) -> list[str]:
    """Return a line for each count that is higher than its stored value."""
    return [
        f"{package}: {count} rose from {old_counts.get(package, {}).get(count, 0)} to {number}"
        for package, row in now.items()
        for count, number in row.items()
        if number > old_counts.get(package, {}).get(count, 0)
    ]


def table(report: WordReport) -> str:
    """Return the counts as a table, one row a package, with the share of bad names."""
    counts = counts_of(report)
    lines = [f"{'package':26}{'bound':>7}{'share':>8}" + "".join(f"{count:>13}" for count in MEANINGS)]
    for package in counts:
        lines.append(_row(package, report.names[package], counts[package]))
    product = [package for package in counts if package not in ("tests", "examples", "docs")]
    total: Counter[str] = Counter()
    for package in product:
        total.update(counts[package])
    lines.append(_row("all but tests", sum(report.names[p] for p in product), total))
    return "\n".join(lines)


def _row(package: str, bound: int, row: dict[str, int]) -> str:
    """Return one line of the table."""
    share = f"{100 * row.get('names', 0) / bound:.2f}%" if bound else ""
    return f"{package:26}{bound:>7}{share:>8}" + "".join(f"{row.get(count, 0):>13}" for count in MEANINGS)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="Print nothing but counts that rose; exit status 1 then.")
    parser.add_argument("--update", action="store_true", help="Store the counts; refused when one rose.")
    parser.add_argument("--list", nargs="+", metavar="WORD", help="A count, and prefixes of paths: print each place.")
    options = parser.parse_args(arguments)
    report = read_tree()
    # A list goes to a reader alone: the stored counts play no part in it.
    if options.list:
        count, *prefixes = options.list
        if count not in MEANINGS:
            parser.error(f"no count {count!r}; known: {', '.join(MEANINGS)}")
        for finding in report.findings:
            if finding.count == count and (not prefixes or finding.path.startswith(tuple(prefixes))):
                print(f"{finding.path}:{finding.line}: {finding.text}")
        return 0
    old_counts = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    now = counts_of(report)
    if not options.check:
        print(table(report))
    higher = rises(old_counts, now) if old_counts else []
    for line in higher:
        print(
            f"plain_words: {line}. Cure: `python -m tools.plain_words --list {line.split()[1]}` and better words",
            file=sys.stderr,
        )
    if options.update and not higher:
        COUNTS.write_text(json.dumps(now, indent=1) + "\n")
    return 1 if higher else 0


if __name__ == "__main__":
    raise SystemExit(main())
