"""Reference of scenario files, made of their models.

A key has one row, with type, default, unit and an example:
    python -m tools.manual.scenario_keys          write the tables into docs/scenarios.md, between their marks

Examples are values that the scenarios of this repository give to the key; a key that none of them uses has an example
of its type. A test holds that the page is as this module would write it.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo
from ruamel.yaml import YAML

from mrc_testbed.experiments.language import model
from mrc_testbed.experiments.language.model import Command, Moment, Pair, PathInFile
from mrc_testbed.faults import KINDS
from mrc_testbed.faults.terms import Part, Rate, Seconds, Share, Size
from tools.manual.reference import code, fault_value, fields_of, first_sentence, table

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "scenarios.md"
BEGIN, END = "<!-- keys: made by tools/manual/scenario_keys.py -->", "<!-- end of keys -->"
MAX_EXAMPLE = 44
"""Most characters of a key's example."""
MAX_VALUES = 60
"""Most characters of the list of a key's values."""

SECTIONS: tuple[tuple[str, type[Part]], ...] = (
    ("The file", model.Scenario),
    ("`fabric`", model.GridPart),
    ("`fabric` by a file", model.FabricPart),
    ("`links`", model.LinkRates),
    ("`links` beside rates", model.LinksPart),
    ("`links.host`, `links.fabric`", model.Tier),
    ("`queues`", model.QueuesPart),
    ("`queues.pfc`", model.PfcPart),
    ("`control_plane`", model.ControlPlane),
    ("`transport`", model.Transport),
    ("Each line of `workload`", model.Work),
    ("`workload`: `stream`", model.Stream),
    ("`workload`: `permutation`", model.Permutation),
    ("`workload`: `incast`", model.Incast),
    ("`workload`: `collective`, `training`, `trace`", model.RankWork),
    ("`workload`: `collective`", model.Collective),
    ("`workload`: `training`", model.Training),
    ("`training`", model.TrainingPart),
    ("`workload`: `trace`", model.TraceWork),
    ("`workload`: `program`", model.ProgramWork),
    ("Each line of `faults`", model.FaultLine),
    ("`poisson` of a line of `faults`", model.Poisson),
    ("`measure`", model.Measure),
    ("`baseline`", model.Span),
    ("Each line of `expect`", model.Rule),
    ("`expect`: `metric`", model.Expect),
    ("`expect`: `failed`", model.ExpectFailure),
    ("`expect`: `unfinished`", model.ExpectIncomplete),
    ("Each line of `figures`", model.Figure),
    ("`paper`", model.Reference),
)
"""Headings and models in the order of the page; a test holds that no model of a file is missing."""


def scale(value: float, units: tuple[tuple[str, float], ...]) -> str:
    """Return a value in the largest unit that leaves at least 1, as a file writes it."""
    for unit, factor in units:
        if abs(value) >= factor:
            return f"{value / factor:g}{unit}"
    return f"{value:g}{units[-1][0]}"


BITS = (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
BYTES = (("M", float(1 << 20)), ("K", float(1 << 10)), ("", 1.0))
TIMES = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))


def _metadata_of(kind: Any) -> Any:
    return get_args(kind)[1]


QUANTITIES: tuple[tuple[Any, str, str, str], ...] = (
    (_metadata_of(Rate), "rate", "bits/s", "10M"),
    (_metadata_of(Size), "size", "bytes", "64K"),
    (_metadata_of(Seconds), "time", "s", "5ms"),
    (_metadata_of(Share), "share", "0 to 1", "5%"),
    (_metadata_of(Moment), "time, or share of the work", "s", "2s"),
    (_metadata_of(Pair), "two hosts", "", "h0 h5"),
    (_metadata_of(Command), "text, or list of its words", "", "sleep 3"),
    (_metadata_of(PathInFile), "path", "", "step.goal"),
)
"""Validator of a type of terms.py or model.py, the words for it, its unit, an example."""
PLAIN = {int: ("whole number", "3"), float: ("number", "1.5"), str: ("text", "name"), bool: ("true or false", "true")}


def quantity_of(metadata: Any) -> tuple[str, str, str] | None:
    """Return words, unit and example of a quantity by its metadata; None: no quantity."""
    for validator, words, unit, example in QUANTITIES:
        if any(entry is validator for entry in metadata):
            return words, unit, example
    return None


def type_words(kind: Any, metadata: Any = ()) -> tuple[str, str, str]:
    """Return (words, unit, example) of a key's type."""
    if (quantity := quantity_of(metadata)) is not None:
        return quantity
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return type_words(arguments[0], arguments[1:])
    if origin is Literal:
        words = ", ".join(code(_yaml(value)) for value in arguments)
        return words if len(words) <= MAX_VALUES else f"one of {len(arguments)} kinds", "", _yaml(arguments[-1])
    if origin in (Union, types.UnionType):
        members = [type_words(member) for member in arguments if member is not type(None)]
        return " or ".join(dict.fromkeys(member[0] for member in members)), members[0][1], members[0][2]
    if origin is list:
        item_words, unit, example = type_words(arguments[0])
        return f"list of: {item_words}", unit, f"[{example}]" if example else ""
    if origin is dict:
        return "mapping", "", ""
    if origin is tuple:
        return "two lists of hosts", "", "[[h0], [h1]]"
    if isinstance(kind, type) and issubclass(kind, Part):
        return "mapping", "", ""
    words, example = PLAIN.get(kind, ("any", "1"))
    return words, "", example


def limits_of(field: FieldInfo) -> str:
    """Return the limits of a number as text, such as "1 to 256"; empty without any."""
    low = next((entry.ge for entry in field.metadata if isinstance(entry, Ge)), None)
    lower_bound = next((entry.gt for entry in field.metadata if isinstance(entry, Gt)), None)
    high = next((entry.le for entry in field.metadata if isinstance(entry, Le)), None)
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    parts = [
        f"at least {low:g}" if low is not None else "",
        f"above {lower_bound:g}" if lower_bound is not None else "",
    ]
    return ", ".join(part for part in (*parts, f"at most {high:g}" if high is not None else "") if part)


def _yaml(value: Any) -> str:
    """Return a value in one line of YAML, without the quotes that a reader of the page does not need."""
    writer, stream = YAML(typ="safe", pure=True), StringIO()
    writer.default_flow_style, writer.width = True, 10_000
    writer.dump(value, stream)
    text = stream.getvalue().removesuffix("...\n").strip()
    return '""' if text == "''" else text.replace("'", "")


def default_of(field: FieldInfo, words: str) -> str:
    """Return the default as a file would write it.

    "needed" without one, "none" where absence has a meaning.
    """
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, Part):
        return "its defaults"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return code(_yaml(value))
    units = {"rate": BITS, "size": BYTES, "time": TIMES}.get(words)
    if words == "share":
        return code(f"{100 * value:g}%")
    return code(scale(value, units) if units and value else f"{value:g}")


def parts_in(kind: Any) -> Iterator[type[Part]]:
    """Yield the models that a type may hold."""
    if isinstance(kind, type) and issubclass(kind, Part):
        yield kind
    for argument in get_args(kind):
        yield from parts_in(argument)


@cache
def read_examples() -> dict[tuple[str, str], str]:
    """Return the shortest value that a scenario gives to each key.

    Layout: (class that declares the key, key) -> YAML.
    """
    examples: dict[tuple[str, str], str] = {}

    def visit(part: type[Part], data: dict[str, Any]) -> None:
        for name, field in part.model_fields.items():
            key = field.alias or name
            if key not in data:
                continue
            owner = next(base for base in reversed(part.__mro__) if name in getattr(base, "__annotations__", {}))
            text = _yaml(data[key])
            if "$" in text or text in ("[]", "{}"):  # a swept name, or nothing: no help to a reader
                continue
            shortest = examples.get((owner.__name__, key))
            if len(text) <= MAX_EXAMPLE and (shortest is None or (len(text), text) < (len(shortest), shortest)):
                examples[owner.__name__, key] = text
            children = data[key] if isinstance(data[key], list) else [data[key]]
            for child in (child for child in children if isinstance(child, dict)):
                for candidate in parts_in(field.annotation):
                    if set(child) <= set(candidate.keys()):
                        visit(candidate, child)
                        break

    for path in sorted((ROOT / "scenarios").glob("*.yaml")):
        visit(model.Scenario, YAML(typ="safe").load(path.read_text()))
    return examples


def rows_of(part: type[Part], examples: dict[tuple[str, str], str]) -> Iterator[tuple[str, ...]]:
    """Yield (key, type, default, unit, example, meaning) of each key that a model itself declares."""
    texts = {key: text for key, _, _, text in fields_of(part)}
    for name, field in part.model_fields.items():
        if name not in part.__annotations__:
            continue
        key = field.alias or name
        words, unit, example = type_words(field.annotation, field.metadata)
        limits = limits_of(field)
        shown_example = examples.get((part.__name__, key), example)
        description = f"{words}, {limits}" if limits else words
        yield code(key), description, default_of(field, words), unit, code(shown_example), " ".join(texts[key].split())


def reference() -> str:
    """Return all tables in Markdown."""
    examples = read_examples()
    parts = []
    for heading, part in SECTIONS:
        parts += [f"### {heading}", first_sentence(part)]
        parts.append(table(("key", "type", "default", "unit", "example", "meaning"), rows_of(part, examples)))
        parts += [
            f"Kinds of {code(name)}: {', '.join(code(_yaml(value)) for value in get_args(field.annotation))}."
            for name, field in part.model_fields.items()
            if name in part.__annotations__ and type_words(field.annotation)[0].endswith("kinds")
        ]
        if part is model.FaultLine:
            parts.append("Each line has one of these actions:")
            rows = [(code(kind.action), fault_value(kind.value_type), first_sentence(kind)) for kind in KINDS.values()]
            parts.append(table(("action", "value", "meaning"), rows))
    return "\n\n".join(parts)


def with_reference(page: str) -> str:
    """Return a page with the tables between its marks."""
    head, _, remainder = page.partition(BEGIN)
    _, _, tail = remainder.partition(END)
    return f"{head}{BEGIN}\n\n{reference()}\n\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(with_reference(PAGE.read_text()))
    print(f"{PAGE.relative_to(ROOT)}: {len(SECTIONS)} tables")
