"""Load a scenario file as a Scenario, or raise errors with file, line, column, mistake and cure.

    document = read(path)                              # raises ScenarioError where nothing can be read
    document.raw, document.position_of(("faults", 0, "cut"))
    scenario = parse_scenario(document, document.raw)

Four passes, each only over what the one before let through: YAML; types (model.py); names (hosts, links, switches,
configuration keys, metrics); the same again for every variant, sweep value, and the live and virtual overrides.
language/all_mistakes.py goes on behind the first one that refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import RoundTripConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from mrc_testbed.experiments.language.model import WORK_KINDS, Scenario
from mrc_testbed.faults.terms import Part

TYPE_WORDS = "input should be a valid "
"""Beginning of the text of a mistaken type."""
FILE_MAX = 1 << 20
"""Bytes of a scenario file; more is a mistake."""
DEPTH_MAX = 20
"""Levels of a scenario file; the deepest that means anything is 6."""

AnyPart = TypeVar("AnyPart", bound=Part)
Loc = tuple[str | int, ...]
"""Location in a file: keys and list positions from the top."""


class Position(NamedTuple):
    """Position in a file: line and column, both counted from 1."""

    line: int
    column: int


TOP = Position(1, 1)


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file."""

    position: Position
    loc: Loc
    text: str
    is_reference: bool = False
    """Whether the mistake is a name or value that the rest of the file decides about."""

    @property
    def line(self) -> int:
        return self.position.line

    @property
    def key(self) -> str:
        """Path of the mistaken key, with dots."""
        return ".".join(map(str, self.loc))

    def __str__(self) -> str:
        return f"{self.position.line}:{self.position.column}: {self.key + ': ' if self.loc else ''}{self.text}"

    def to_json(self) -> dict[str, Any]:
        return {"line": self.position.line, "column": self.position.column, "key": self.key, "text": self.text}


class ScenarioError(ValueError):
    """Mistakes of a scenario file, each with its position, in `problems`."""

    def __init__(self, path: Path, problems: Sequence[Problem]) -> None:
        self.path = path
        self.problems = sorted(problems, key=lambda problem: problem.position)
        super().__init__("\n".join(f"{path}:{problem}" for problem in self.problems))


@dataclass(slots=True)
class Document:
    """A parsed file: plain data, and the position of each part."""

    path: Path
    raw: dict[str, Any]
    keys: dict[Loc, Position] = field(default_factory=dict)
    """Position of each key, and of each item of a list."""
    values: dict[Loc, Position] = field(default_factory=dict)
    """Position of each value in one word."""
    name: str = ""
    """Name of the scenario, where the file gives none: the file's name."""
    duplicates: list[Problem] = field(default_factory=list)
    """Keys that are given twice: refused with the first pass over the types."""
    kept_items: dict[Loc, list[int]] = field(default_factory=dict)
    """List -> numbers that its items have in the file, where some were left out (all_mistakes.py)."""

    def __post_init__(self) -> None:
        self.name = self.name or self.path.stem

    def position_of(self, loc: Loc, *, of_key: bool = False) -> Position:
        """Return the position of the nearest part of `loc` that the file has: of its value, or `of_key`."""
        for length in range(len(loc), -1, -1):
            # What stands above a part that the file lacks is reported at its key.
            is_exact = length == len(loc) and not of_key
            if is_exact and (position := self.values.get(loc[:length])) is not None:
                return position
            if (position := self.keys.get(loc[:length])) is not None:
                return position
        return TOP

    def loc_in_file(self, loc: Loc) -> Loc:
        """Return a location in `raw` as one in the file."""
        out: Loc = ()
        for part in loc:
            numbers = self.kept_items.get(out)
            out = (*out, numbers[part] if numbers and isinstance(part, int) and part < len(numbers) else part)
        return out

    def problem(self, loc: Loc, text: str, *, of_key: bool = False, is_reference: bool = False) -> Problem:
        loc = self.loc_in_file(loc)
        return Problem(self.position_of(loc, of_key=of_key), loc, text, is_reference)


class _NotingConstructor(RoundTripConstructor):
    """Constructor that notes a key given twice and goes on."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.duplicates: list[tuple[str, Position]] = []

    def check_mapping_key(self, _node: Any, key_node: Any, mapping: Any, key: Any, _value: Any) -> bool:
        if key not in mapping:
            return True
        self.duplicates.append((str(key), _position(key_node.start_mark.line, key_node.start_mark.column)))
        return False


def _position(line: int, column: int) -> Position:
    """Return a mark of the YAML reader, which counts from 0."""
    return Position(line + 1, column + 1)


def read(path: Path, subject: str = "scenario", first_key: str = "title") -> Document:
    """Read YAML into a Document. `subject`, `first_key`: for messages. Raises ScenarioError."""

    def refuse(text: str, position: Position = TOP) -> ScenarioError:
        return ScenarioError(path, [Problem(position, (), text)])

    yaml = YAML(typ="rt")
    yaml.Constructor = _NotingConstructor

    try:
        data = path.read_bytes()
    except OSError as error:
        raise refuse(f"cannot be read: {error.strerror}") from None
    if len(data) > FILE_MAX:
        raise refuse(f"{len(data)} bytes: a {subject} has at most {FILE_MAX}")
    try:
        tree = yaml.load(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise refuse(f"not UTF-8 text (byte {error.start})") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark
        reason = (error.problem or "not YAML").split("\n")[0]
        position = _position(mark.line, mark.column) if mark else TOP
        raise refuse(f"{reason} {error.context or ''}".strip(), position) from None
    except (YAMLError, RecursionError, ValueError) as error:
        raise refuse(f"not YAML: {str(error).splitlines()[0] if str(error) else type(error).__name__}") from None
    # The parser returns text and lists as well: a file of one word is YAML.
    if not isinstance(tree, CommentedMap):
        raise refuse(f"a {subject} is a mapping of keys, beginning with `{first_key}:`")
    document = Document(path, {})
    try:
        document.raw = _plain(document, tree, (), TOP, set())
    except RecursionError:
        raise refuse(f"nested deeper than {DEPTH_MAX} levels, or an alias of itself") from None
    document.duplicates = [
        Problem(position, (), f"duplicate key {key!r}. Cure: take one of them out")
        for key, position in yaml.constructor.duplicates
    ]
    return document


def _plain(document: Document, node: Any, loc: Loc, position: Position, ancestors: set[int]) -> Any:
    """Return plain data of a ruamel tree; note the positions of its parts. `position`: of the key."""
    document.keys[loc] = position
    if not isinstance(node, (CommentedMap, CommentedSeq)):
        return _scalar(node)
    if len(loc) > DEPTH_MAX or id(node) in ancestors:
        raise RecursionError
    ancestors = ancestors | {id(node)}
    marks = node.lc.data or {}
    if isinstance(node, CommentedMap):
        out: dict[str, Any] = {}
        for key, value in node.items():
            entry = (*loc, str(key))
            key_position = position
            # Keys of a merged mapping have no mark here.
            if (mark := marks.get(key)) is not None:
                key_position = _position(mark[0], mark[1])
                if value is not None and not isinstance(value, (CommentedMap, CommentedSeq)):
                    document.values[entry] = _position(mark[2], mark[3])
            out[str(key)] = _plain(document, value, entry, key_position, ancestors)
        return out
    items = []
    for number, value in enumerate(node):
        item_position = _position(*marks[number]) if number in marks else position
        items.append(_plain(document, value, (*loc, number), item_position, ancestors))
    return items


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
    if document.duplicates:
        raise ScenarioError(document.path, document.duplicates)
    try:
        return model.model_validate(raw, context={"folder": document.path.resolve().parent})
    except ValidationError as error:
        problems = [problem for detail in error.errors() for problem in _problems(document, detail, prefix)]
        raise ScenarioError(document.path, [*_one_of_each_value(problems)]) from None


def _one_of_each_value(problems: list[Problem]) -> Iterator[Problem]:
    """Yield one mistake of a value that may be of several types: pydantic has one for each of them."""
    by_loc: dict[Loc, list[Problem]] = {}
    for problem in problems:
        by_loc.setdefault(problem.loc, []).append(problem)
    for loc, alike in by_loc.items():
        types = [problem for problem in alike if problem.text.startswith(TYPE_WORDS)]
        yield from (problem for problem in alike if problem not in types)
        # A type that the value nearly has says more, below it.
        if types and not any(deeper[: len(loc)] == loc and len(deeper) > len(loc) for deeper in by_loc):
            type_names = [problem.text.partition(";")[0].removeprefix(TYPE_WORDS) for problem in types]
            yield replace(
                types[0], text=types[0].text.replace(type_names[0], " or ".join(dict.fromkeys(type_names)), 1)
            )


def _problems(document: Document, error: Any, prefix: Loc) -> list[Problem]:
    """Return a pydantic error as Problems: location without the union tags, text in our words."""
    loc: Loc = tuple(part for index, part in enumerate(error["loc"]) if not _is_tag(part, error["loc"][:index]))
    unknown_keys: dict[str, str] = (error.get("ctx") or {}).get("texts") or {}
    mistakes = [((*loc, key), text) for key, text in unknown_keys.items()] or [(loc, _words(error))]
    if not prefix:
        return [document.problem(loc, text, of_key=bool(unknown_keys)) for loc, text in mistakes]
    problems = []
    for loc, text in mistakes:
        # An override stands below its prefix; where it does not, the prefix is reported.
        position = document.position_of(document.loc_in_file((*prefix, *loc)), of_key=bool(unknown_keys))
        problems.append(Problem(position, prefix, f"makes {'.'.join(map(str, loc))} wrong: {text}"))
    return problems


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
