"""Load a scenario file as a Scenario, or raise errors with file, line, mistake and cure.

    document = read(path)                              # raises ScenarioError with all problems found
    document.raw, document.line_of(("faults", 0, "cut"))
    scenario = parse_scenario(document, document.raw)

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
"""Location in a file: keys and list positions from the top."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file. `line` counts from 1."""

    line: int
    loc: Loc
    text: str

    def __str__(self) -> str:
        location = ".".join(map(str, self.loc))
        return f"line {self.line}: {location + ': ' if location else ''}{self.text}"


class ScenarioError(ValueError):
    """Mistakes of a scenario file, each with its line, in `problems`."""

    def __init__(self, path: Path, problems: Sequence[Problem]) -> None:
        self.path = path
        self.problems = sorted(problems, key=lambda problem: problem.line)
        super().__init__("\n".join(f"{path}: {problem}" for problem in self.problems))


@dataclass(slots=True)
class Document:
    """A parsed file: plain data, and the line of each part."""

    path: Path
    raw: dict[str, Any]
    lines: dict[Loc, int] = field(default_factory=dict)
    name: str = ""
    """Name of the scenario, where the file gives none: the file's name."""

    def __post_init__(self) -> None:
        self.name = self.name or self.path.stem

    def line_of(self, loc: Loc) -> int:
        """Return the line of the nearest part of `loc` that the file has."""
        for length in range(len(loc), -1, -1):
            if (line := self.lines.get(loc[:length])) is not None:
                return line
        return 1

    def problem(self, loc: Loc, text: str) -> Problem:
        return Problem(self.line_of(loc), loc, text)


def read(path: Path, subject: str = "scenario", first_key: str = "title") -> Document:
    """Read YAML into a Document. `subject`, `first_key`: for messages. Raises ScenarioError."""

    def refuse(text: str, line: int = 1) -> ScenarioError:
        return ScenarioError(path, [Problem(line, (), text)])

    try:
        data = path.read_bytes()
    except OSError as error:
        raise refuse(f"cannot be read: {error.strerror}") from None
    if len(data) > FILE_MAX:
        raise refuse(f"{len(data)} bytes: a {subject} has at most {FILE_MAX}")
    try:
        tree = YAML(typ="rt").load(data.decode())
    except UnicodeDecodeError as error:
        raise refuse(f"not UTF-8 text (byte {error.start})") from None
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        reason = (error.problem or "not YAML").split("\n")[0]
        raise refuse(f"{reason} {error.context or ''}".strip(), line) from None
    except (YAMLError, RecursionError, ValueError) as error:
        raise refuse(f"not YAML: {str(error).splitlines()[0] if str(error) else type(error).__name__}") from None
    # The parser returns text and lists as well: a file of one word is YAML.
    if not isinstance(tree, CommentedMap):
        raise refuse(f"a {subject} is a mapping of keys, beginning with `{first_key}:`")
    document = Document(path, {})
    try:
        document.raw = _plain(tree, (), 1, document.lines, set())
    except RecursionError:
        raise refuse(f"nested deeper than {DEPTH_MAX} levels, or an alias of itself") from None
    return document


def _plain(node: Any, loc: Loc, line: int, lines: dict[Loc, int], ancestors: set[int]) -> Any:
    """Return plain data of a ruamel tree; note the line of every part."""
    lines[loc] = line
    if not isinstance(node, (CommentedMap, CommentedSeq)):
        return _scalar(node)
    if len(loc) > DEPTH_MAX or id(node) in ancestors:
        raise RecursionError
    ancestors = ancestors | {id(node)}
    if isinstance(node, CommentedMap):
        out: dict[str, Any] = {}
        for key, value in node.items():
            entry_line = node.lc.data.get(key, (line - 1,))[0] + 1 if node.lc.data else line
            out[str(key)] = _plain(value, (*loc, str(key)), entry_line, lines, ancestors)
        return out
    positions = node.lc.data or {}
    return [
        _plain(value, (*loc, number), positions.get(number, (line - 1,))[0] + 1, lines, ancestors)
        for number, value in enumerate(node)
    ]


def _scalar(node: Any) -> Any:
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node if node is None else str(node)


def parse_scenario(document: Document, raw: dict[str, Any], prefix: Loc = ()) -> Scenario:
    """Parse `raw` as a Scenario. `prefix`: where errors are reported, when a part of the file was changed.

    Raises ScenarioError.
    """
    return parse_model(document, {"name": document.name, **raw}, Scenario, prefix)


def parse_model(document: Document, raw: dict[str, Any], model: type[AnyPart], prefix: Loc = ()) -> AnyPart:
    """Parse `raw` as a model of a whole file. Raises ScenarioError, as parse_scenario() does."""
    try:
        return model.model_validate(raw, context={"folder": document.path.resolve().parent})
    except ValidationError as error:
        raise ScenarioError(document.path, [_problem(document, detail, prefix) for detail in error.errors()]) from None


def _problem(document: Document, error: Any, prefix: Loc) -> Problem:
    """Return a pydantic error as a Problem: location without the union tags, text in our words."""
    loc: Loc = tuple(part for index, part in enumerate(error["loc"]) if not _is_tag(part, error["loc"][:index]))
    context = error.get("ctx") or {}
    if key := context.get("key"):
        loc = (*loc, key)
    text = context.get("text") or _words(error)
    if prefix:
        return Problem(document.line_of(prefix), prefix, f"makes {'.'.join(map(str, loc))} wrong: {text}")
    return document.problem(loc, text)


def _is_tag(part: str | int, parents: Sequence[str | int]) -> bool:
    """Whether a part of a location is the union member that pydantic tried; a file has no such level."""
    if isinstance(part, int):
        return False
    if len(parents) == 2 and parents[0] == "workload":
        return part in WORK_KINDS
    if len(parents) == 2 and parents[0] == "expect":
        return part.startswith("rule ")  # the tags of model.AnyRule
    return "[" in part or part in ("Random", "str", "list", "tuple")


def _words(error: Any) -> str:
    value = error["input"]
    value_text = f"; got {value!r}" if isinstance(value, (str, int, float, bool)) or value is None else ""
    match error["type"]:
        case "missing":
            return "is needed and missing"
        case "value_error":
            return str(error["ctx"]["error"])
        case "union_tag_not_found" | "union_tag_invalid":
            keys = [str(key) for key in value] if isinstance(value, dict) else []
            return f"a workload has one of the keys {', '.join(WORK_KINDS)}; got {', '.join(keys) or 'no mapping'}"
        case "literal_error":
            return f"must be one of {error['ctx']['expected'].replace(' or ', ', ')}{value_text}"
        case "greater_than":
            return f"must be more than {error['ctx']['gt']:g}{value_text}"
        case _:
            return f"{error['msg'][0].lower()}{error['msg'][1:]}{value_text}"
