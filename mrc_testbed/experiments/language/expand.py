"""Variants, sweeps and repeats of a scenario as single runs.

    for run in expand(document, where="virtual"):
        run.label        # {"variant": "mrc", "loss": "1%"}; empty in a scenario without variants and sweeps
        run.seed         # the same for all variants and sweep values of one repeat: they meet the same dice
        run.scenario     # typed, with everything applied and checked

A sweep names values and uses them by `$name` anywhere in the file, or by the path of the key they replace:

    sweep: {loss: [0%, 0.1%, 1%], workload.0.size: {from: 64K, to: 4M, factor: 4}}

`live: {sweep: {size: [1M]}}` has other values there, and a variant may have a `live` of its own. `bmv2` has what is
different on BMv2, on top of `live`. Rules say `first` and `last` for the ends of a sweep, whatever they are.

`scale: {paper: {...}}` is what is different when the file is run at that scale, on top of `virtual`; a variant may have
a `scale` of its own. Places and scales choose among the variants, too (`live: {variants: [mrc, roce-1]}`); the last
of them that does so decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from mrc_testbed.console import units
from mrc_testbed.experiments.language.model import Scenario
from mrc_testbed.experiments.language.yaml_loader import Document, Loc, Problem, ScenarioError, typed
from mrc_testbed.faults.terms import suggestion

PLACES = ("virtual", "live", "bmv2")
"""Keys of the settings that differ there, at the top of a file and in a variant."""
RUNS_MAX = 2000
"""Runs of one scenario; more is a mistake in a sweep."""
ONLY_AT_TOP = ("variants", "sweep", *PLACES, "scale", "repeat", "seed", "name", "schema", "expect", "figures", "paper")
"""Keys that an override cannot change; but those of PLACES may give other values to a sweep."""
CHOOSES = ("sweep", "variants")
"""Keys of PLACES and of a scale that say which of the file's runs are made there."""
ENDS = {"first": 0, "last": -1}
"""Words that stand for a value of a sweep in rules."""
_REFERENCE = re.compile(r"\$([A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True)
class Changes:
    """What a study makes different in a scenario, after everything that the file itself says."""

    settings: dict[str, Any] = field(default_factory=dict)
    """Path of a key -> value, in all runs."""
    sweep: dict[str, list[Any]] = field(default_factory=dict)
    """Name of a sweep of the file, or path of a key -> values, in the place of the file's."""
    paths: frozenset[str] = frozenset()
    """Names in `sweep` that are paths of keys though they have no dot."""
    variants: list[str] | None = None
    """Those that are run; None: the file's choice."""


NO_CHANGES = Changes()


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a scenario."""

    scenario: Scenario
    label: dict[str, Any]
    repeat: int
    seed: int
    places: tuple[str, ...] = ("virtual",)
    """Where it is made (places_of)."""
    scale: str | None = None
    """Of the file's."""

    @property
    def name(self) -> str:
        """`mrc loss=1% #2`; a file name once blanks are replaced."""
        number = [f"#{self.repeat + 1}"] if self.scenario.repeat > 1 else []
        return " ".join([*told_apart(self.label), *number]) or "run"


def told_apart(label: dict[str, Any]) -> list[str]:
    """Parts of a run's name that distinguish it within its scenario: `mrc`, `loss=1%`."""
    return [str(value) if key == "variant" else f"{key}={value}" for key, value in label.items()]


def places_of(where: str, target: str) -> tuple[str, ...]:
    """Names of the place of a run, the general one first: ("virtual",), ("live", "embedded"), ("live", "bmv2").

    A fluid run has the place of virtual ones: it answers for them.
    """
    return ("virtual",) if where in ("virtual", "fluid") else (where, target)


def expand(
    document: Document,
    where: str,
    *,
    target: str = "embedded",
    seed: int | None = None,
    repeat: int | None = None,
    scale: str | None = None,
    changes: Changes = NO_CHANGES,
) -> list[Run]:
    """All runs of a file, in its order: repeats outermost, then variants, then sweep values.

    `where`: "virtual" or "live", there with the switches of `target`; `seed`, `repeat`: instead of the file's; `scale`:
    a name of its `scale`; `changes`: of a study. Raises ScenarioError.
    """
    base = typed(document, _without_sweep(document))  # the file by itself must make sense
    if scale is not None and scale not in base.scale:
        known = f"has: {', '.join(base.scale)}" if base.scale else "it has none"
        raise _error(document, ("scale",) if base.scale else (), f"no scale {scale!r} ({known})")
    places = places_of(where, target)
    values = _sweep_values(document, base, places, scale) | changes.sweep
    made: list[tuple[Scenario, dict[str, Any]]] = []
    for variant in changes.variants or _variants(document, base, places, scale):
        for chosen in product(*values.values()):
            label = ({"variant": variant} if variant else {}) | dict(zip(values, chosen, strict=True))
            scenario = _applied(document, places, label, values, scale, changes)
            if where == "live" and _clocks(scenario) != {1.0}:
                text = "clock: the times of a live fabric are those of its links; give it under `virtual`"
                raise _error(document, ("transport", "clock"), text)
            made.append((scenario if repeat is None else scenario.model_copy(update={"repeat": repeat}), label))
    first = base.seed if seed is None else seed
    return [
        Run(scenario, label, number, first + number, places, scale)
        for number in range(repeat or base.repeat)
        for scenario, label in made
    ]


def _clocks(scenario: Scenario) -> set[float]:
    return {one.clock for one in (scenario.transport, *(work.transport for work in scenario.workload)) if one}


def _variants(document: Document, base: Scenario, places: tuple[str, ...], scale: str | None) -> list[str]:
    """Names of the variants that are run; one empty name when the file has none."""
    parts: list[tuple[Loc, Any]] = [((place,), (document.raw.get(place) or {}).get("variants")) for place in places]
    if scale is not None:
        parts.append((("scale", scale), base.scale[scale].variants))
    chosen = list(base.variants)
    for at, names in parts:
        if names is None:
            continue
        if not isinstance(names, list):
            raise _error(document, (*at, "variants"), f"a list of variants that are run there; got {names!r}")
        for name in names:
            if name not in base.variants:
                raise _error(document, (*at, "variants"), f"no variant {name!r} ({suggestion(name, base.variants)})")
        chosen = [name for name in base.variants if name in names]  # what is applied last decides
    return chosen or [""]


def _applied(
    document: Document,
    places: tuple[str, ...],
    label: dict[str, Any],
    sweeps: dict[str, list[Any]],
    scale: str | None,
    study: Changes,
) -> Scenario:
    """The file with live or virtual parts, a scale, a variant and sweep values put in."""
    raw = deepcopy(document.raw)
    prefix: Loc = ()
    for place in places:
        if document.raw.get(place):
            prefix = (place,)
            _merge(document, raw, {k: v for k, v in document.raw[place].items() if k not in CHOOSES}, prefix)
    if scale is not None:
        prefix = ("scale", scale)
        changes = dict(document.raw["scale"][scale] or {})
        if isinstance(raw.get("paper"), dict):
            _deep(raw["paper"], changes.pop("paper", None) or {})
        _merge(document, raw, {k: v for k, v in changes.items() if k not in CHOOSES}, prefix)
        typed(document, _resolved(document, raw, label, ()), prefix)  # its mistakes are not the variant's
    if "variant" in label:
        prefix = ("variants", label["variant"])
        changes = document.raw["variants"][label["variant"]] or {}
        _merge(document, raw, {k: v for k, v in changes.items() if k not in (*PLACES, "scale")}, prefix)
        for place in places:
            if changes.get(place):
                _merge(document, raw, changes[place], (*prefix, place))
        if scale is not None and (at_scale := (changes.get("scale") or {}).get(scale)):
            _merge(document, raw, at_scale, (*prefix, "scale", scale))
    for name, value in study.settings.items():
        prefix = ("set", name)
        _put(document, raw, name, value, prefix)
    for name, value in label.items():
        if name != "variant" and ("." in name or name in study.paths):
            prefix = ("sweep", name)
            _put(document, raw, name, value, prefix)
    raw = _resolved(document, raw, {name: value for name, value in label.items() if name != "variant"}, ())
    _name_ends(raw, sweeps)
    return typed(document, raw, prefix)


def _name_ends(raw: dict[str, Any], sweeps: dict[str, list[Any]]) -> None:
    """Put the values in for `first` and `last` in rules and figures."""
    for rule in [*(raw.get("expect") or []), *(raw.get("figures") or [])]:
        for key in ("where", "compared_to"):
            named = rule.get(key) if isinstance(rule, dict) else None
            if not isinstance(named, dict):
                continue
            for name, value in named.items():
                if name in sweeps and isinstance(value, str) and value in ENDS:
                    named[name] = sweeps[name][ENDS[value]]


def _without_sweep(document: Document) -> dict[str, Any]:
    """The file with the first value of every sweep in its place."""
    sweep = document.raw.get("sweep")
    firsts = {}
    if isinstance(sweep, dict):
        for name, values in sweep.items():
            found = values_of(document, ("sweep", name), values)
            firsts[name] = found[0]
    resolved: dict[str, Any] = _resolved(document, document.raw, firsts, ())
    return resolved


def _sweep_values(
    document: Document, scenario: Scenario, places: tuple[str, ...], scale: str | None
) -> dict[str, list[Any]]:
    values = {name: values_of(document, ("sweep", name), given) for name, given in scenario.sweep.items()}
    changed: list[Loc] = [(place,) for place in places] + ([("scale", scale)] if scale is not None else [])
    for at in changed:
        part: Any = document.raw
        for key in at:
            part = part.get(key) or {}
        others = part.get("sweep") or {}
        if not isinstance(others, dict):
            raise _error(document, (*at, "sweep"), f"a mapping of sweeps; got {others!r}")
        for name, given in others.items():
            if name not in values:
                text = f"no sweep {name!r} in the file ({suggestion(name, values)})"
                raise _error(document, (*at, "sweep", name), text)
            values[name] = values_of(document, (*at, "sweep", name), given)
    total = scenario.repeat * max(len(scenario.variants), 1)
    for value in values.values():
        total *= len(value)
    if total > RUNS_MAX:
        raise _error(document, ("sweep",), f"{total} runs: at most {RUNS_MAX}")
    return values


def values_of(document: Document, at: Loc, given: Any) -> list[Any]:
    """The values of one sweep. Raises ScenarioError."""
    if isinstance(given, list) and given and not any(isinstance(value, (dict, list)) for value in given):
        return given
    if not isinstance(given, dict) or "from" not in given or "to" not in given or len(given) != 3:
        raise _error(document, at, "a list of values, or {from, to, step} or {from, to, factor}")
    return list(_range(document, at, given))


def _range(document: Document, at: Loc, given: dict[str, Any]) -> Iterator[Any]:
    """Numbers, or sizes like 64K, between two ends, both included."""
    if "step" not in given and "factor" not in given:
        raise _error(
            document, at, f"no key {sorted(set(given) - {'from', 'to'})[0]!r} here (has: from, to, step, factor)"
        )
    texts = any(isinstance(given[key], str) for key in ("from", "to"))
    try:
        low, high = (float(units.size(given[key])) if texts else float(given[key]) for key in ("from", "to"))
        by = (
            float(given.get("step") or given["factor"]) if not texts or "factor" in given else units.size(given["step"])
        )
    except (units.UnitError, TypeError, ValueError) as error:
        raise _error(document, at, f"{error}; a range has numbers or sizes") from None
    if low > high or by <= (1 if "factor" in given else 0) or (low <= 0 and "factor" in given):
        raise _error(document, at, "a range goes up: from <= to, step > 0, factor > 1 (and from > 0)")
    value, count = low, 0
    while value <= high * (1 + 1e-9):
        yield int(value) if value == int(value) else value
        value = value * by if "factor" in given else low + (count + 1) * by
        count += 1
        if count > RUNS_MAX:
            raise _error(document, at, f"more than {RUNS_MAX} values")


def _resolved(document: Document, node: Any, values: dict[str, Any], loc: Loc) -> Any:
    """`node` with every `$name` replaced by its sweep value."""
    if isinstance(node, dict):
        skip = {"sweep"} if not loc else set()
        return {k: v if k in skip else _resolved(document, v, values, (*loc, k)) for k, v in node.items()}
    if isinstance(node, list):
        return [_resolved(document, value, values, (*loc, at)) for at, value in enumerate(node)]
    if isinstance(node, str) and "$" in node:
        for name in _REFERENCE.findall(node):
            if name not in values:
                raise _error(document, loc, f"${name}: no sweep of that name ({suggestion(name, values)})")
            if node == f"${name}":
                return values[name]  # a number stays one
            node = node.replace(f"${name}", str(values[name]))
    return node


def _merge(document: Document, into: dict[str, Any], changes: Any, loc: Loc) -> None:
    """Put `changes` into `into`: mappings key by key, anything else replaced."""
    if not isinstance(changes, dict):
        raise _error(document, loc, f"a mapping of what is different; got {changes!r}")
    for key, value in changes.items():
        if key in ONLY_AT_TOP:
            raise _error(document, (*loc, key), f"{key} cannot differ from run to run")
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _deep(into[key], value)
        else:
            into[key] = deepcopy(value)


def _deep(into: dict[str, Any], changes: dict[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _deep(into[key], value)
        else:
            into[key] = deepcopy(value)


def _put(document: Document, raw: dict[str, Any], path: str, value: Any, at: Loc) -> None:
    """Replace the key at a dotted path. Raises ScenarioError when there is nothing on the way to it."""
    node: Any = raw
    *way, last = path.split(".")
    for part in way:
        try:
            node = node.setdefault(part, {}) if isinstance(node, dict) else node[int(part)]
        except (ValueError, IndexError, AttributeError, TypeError):
            raise _error(document, at, f"the file has no {part!r} on the way to {path}") from None
    try:
        if isinstance(node, list):
            node[int(last)] = value
        else:
            node[last] = value
    except (ValueError, IndexError, TypeError):
        raise _error(document, at, f"the file has no place {path}") from None


def _error(document: Document, loc: Loc, text: str) -> ScenarioError:
    return ScenarioError(document.path, [Problem(document.line_of(loc), loc, text)])
