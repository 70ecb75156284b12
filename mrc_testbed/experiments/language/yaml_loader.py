"""Loading a scenario file: a Scenario, or errors a person can act on: file, line, mistake, cure.

    scenario = load(Path("scenarios/e10.yaml"))        # raises ScenarioError with all problems found
    document = read(path); document.raw, document.line_of(("faults", 0, "cut"))

Four passes, each only over what the one before let through: YAML; types (model.py); names (hosts, links, switches,
configuration keys, metrics); the same again for every variant, sweep value, and the live and virtual overrides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from mrc_testbed.experiments.language.model import WORK_KINDS, Scenario
from mrc_testbed.faults.terms import Part

FILE_MAX = 1 << 20
"""Bytes of a scenario file; more is a mistake."""
DEPTH_MAX = 20
"""Levels of a scenario file; the deepest that means anything is 6."""

AnyPart = TypeVar("AnyPart", bound=Part)
Loc = tuple[str | int, ...]
"""A place in a file: keys and list positions from the top."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a file. `line` counts from 1."""

    line: int
    loc: Loc
    text: str

    def __str__(self) -> str:
        where = ".".join(map(str, self.loc))
        return f"line {self.line}: {where + ': ' if where else ''}{self.text}"


class ScenarioError(ValueError):
    """A file is not a scenario; `problems` has the mistakes, each with its line."""

    def __init__(self, path: Path, problems: Sequence[Problem]) -> None:
        self.path = path
        self.problems = sorted(problems, key=lambda problem: problem.line)
        super().__init__("\n".join(f"{path}: {problem}" for problem in self.problems))


@dataclass(slots=True)
class Document:
    """A parsed file: plain data, and where each part of it stands."""

    path: Path
    raw: dict[str, Any]
    lines: dict[Loc, int] = field(default_factory=dict)
    name: str = ""
    """Of the scenario, unless the file says one: that of the file."""

    def __post_init__(self) -> None:
        self.name = self.name or self.path.stem

    def line_of(self, loc: Loc) -> int:
        """Line of the nearest part of `loc` that the file has."""
        for length in range(len(loc), -1, -1):
            if (line := self.lines.get(loc[:length])) is not None:
                return line
        return 1

    def problem(self, loc: Loc, text: str) -> Problem:
        return Problem(self.line_of(loc), loc, text)


def read(path: Path) -> Document:
    """YAML into a Document. Raises ScenarioError."""

    def refuse(text: str, line: int = 1) -> ScenarioError:
        return ScenarioError(path, [Problem(line, (), text)])

    try:
        data = path.read_bytes()
    except OSError as error:
        raise refuse(f"cannot be read: {error.strerror}") from None
    if len(data) > FILE_MAX:
        raise refuse(f"{len(data)} bytes: a scenario has at most {FILE_MAX}")
    try:
        tree = YAML(typ="rt").load(data.decode())
    except UnicodeDecodeError as error:
        raise refuse(f"not UTF-8 text (byte {error.start})") from None
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        what = (error.problem or "not YAML").split("\n")[0]
        raise refuse(f"{what} {error.context or ''}".strip(), line) from None
    except (YAMLError, RecursionError, ValueError) as error:
        raise refuse(f"not YAML: {str(error).splitlines()[0] if str(error) else type(error).__name__}") from None
    if not isinstance(tree, CommentedMap):
        raise refuse("a scenario is a mapping of keys, beginning with `title:`")
    document = Document(path, {})
    try:
        document.raw = _plain(tree, (), 1, document.lines, set())
    except RecursionError:
        raise refuse(f"nested deeper than {DEPTH_MAX} levels, or an alias of itself") from None
    return document


def _plain(node: Any, loc: Loc, line: int, lines: dict[Loc, int], inside: set[int]) -> Any:
    """Plain data of a ruamel tree; notes the line of every part."""
    lines[loc] = line
    if not isinstance(node, (CommentedMap, CommentedSeq)):
        return _scalar(node)
    if len(loc) > DEPTH_MAX or id(node) in inside:
        raise RecursionError
    inside = inside | {id(node)}
    if isinstance(node, CommentedMap):
        out: dict[str, Any] = {}
        for key, value in node.items():
            at = node.lc.data.get(key, (line - 1,))[0] + 1 if node.lc.data else line
            out[str(key)] = _plain(value, (*loc, str(key)), at, lines, inside)
        return out
    positions = node.lc.data or {}
    return [
        _plain(value, (*loc, number), positions.get(number, (line - 1,))[0] + 1, lines, inside)
        for number, value in enumerate(node)
    ]


def _scalar(node: Any) -> Any:
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node if node is None else str(node)


def typed(document: Document, raw: dict[str, Any], prefix: Loc = ()) -> Scenario:
    """`raw` as a Scenario. `prefix`: where to put errors, when raw is the file with something changed there.

    Raises ScenarioError.
    """
    return validated(document, {"name": document.name, **raw}, Scenario, prefix)


def validated(document: Document, raw: dict[str, Any], model: type[AnyPart], prefix: Loc = ()) -> AnyPart:
    """`raw` as a model of a whole file. Raises ScenarioError, as typed() does."""
    try:
        return model.model_validate(raw, context={"folder": document.path.resolve().parent})
    except ValidationError as error:
        raise ScenarioError(document.path, [_problem(document, one, prefix) for one in error.errors()]) from None


def _problem(document: Document, error: Any, prefix: Loc) -> Problem:
    """A pydantic error as one of ours: its place without the union tags, its text in our words."""
    loc: Loc = tuple(part for at, part in enumerate(error["loc"]) if not _is_tag(part, error["loc"][:at]))
    context = error.get("ctx") or {}
    if key := context.get("key"):
        loc = (*loc, key)
    text = context.get("text") or _words(error)
    if prefix:
        return Problem(document.line_of(prefix), prefix, f"makes {'.'.join(map(str, loc))} wrong: {text}")
    return document.problem(loc, text)


def _is_tag(part: str | int, before: Sequence[str | int]) -> bool:
    """Pydantic names the member of a union it tried; a file has no such level."""
    if isinstance(part, int):
        return False
    if len(before) == 2 and before[0] == "workload":
        return part in WORK_KINDS
    return not part.isidentifier() or part in ("Random", "str", "list", "tuple")


def _words(error: Any) -> str:
    given = error["input"]
    shown = f"; got {given!r}" if isinstance(given, (str, int, float, bool)) or given is None else ""
    match error["type"]:
        case "missing":
            return "is needed and is not there"
        case "value_error":
            return str(error["ctx"]["error"])
        case "union_tag_not_found" | "union_tag_invalid":
            keys = [str(key) for key in given] if isinstance(given, dict) else []
            return f"a workload has one of the keys {', '.join(WORK_KINDS)}; got {', '.join(keys) or 'no mapping'}"
        case "literal_error":
            return f"must be one of {error['ctx']['expected'].replace(' or ', ', ')}{shown}"
        case _:
            return f"{error['msg'][0].lower()}{error['msg'][1:]}{shown}"
