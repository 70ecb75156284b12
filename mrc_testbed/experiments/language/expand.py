"""Variants, sweeps and repeats of a scenario as single runs.

    for run in expand(document, backend="virtual"):
        run.label        # {"variant": "mrc", "loss": "1%"}; empty in a scenario without variants and sweeps
        run.seed         # the same for all variants and sweep values of one repeat: they meet the same dice
        run.scenario     # typed, with everything applied and checked

A sweep names values and uses them by `$name` anywhere in the file, or by the path of the key they replace:

    sweep: {loss: [0%, 0.1%, 1%], workload.0.size: {from: 64K, to: 4M, factor: 4}}

Values that are mappings have names, which then stand in labels and rules:

    sweep: {faults.0: {link: {at: 1s, cut: h0 p0-t0-0}, hole: {at: 1s, blackhole: p0-t1-0}}}

`live: {sweep: {size: [1M]}}` gives the sweep other values in live runs; a variant may have a `live` of its own. `bmv2`
holds overrides for BMv2, on top of `live`. Rules name the ends of a sweep `first` and `last`.

`scale: {paper: {...}}` holds overrides for runs at that scale, on top of `virtual`; a variant may have a `scale` of its
own. Environments and scales select variants, too (`live: {variants: [mrc, roce-1]}`); the last selection decides.
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
from mrc_testbed.experiments.language.yaml_loader import Document, Loc, ScenarioError, parse_scenario
from mrc_testbed.faults.terms import suggestion

ENVIRONMENTS = ("virtual", "live", "bmv2")
"""Keys of settings for one environment, at the top of a file and in a variant."""
RUNS_MAX = 2000
"""Runs of one scenario; more is a mistake in a sweep."""
SWEPT_MAX = 1e15
"""Largest number of a range of values."""
ONLY_AT_TOP = (
    "variants",
    "sweep",
    *ENVIRONMENTS,
    "scale",
    "only",
    "repeat",
    "seed",
    "name",
    "schema",
    "expect",
    "figures",
    "paper",
)
"""Keys that an override cannot change; but those of ENVIRONMENTS may give other values to a sweep."""
SELECTION_KEYS = ("sweep", "variants")
"""Keys of an environment and of a scale that select which of the file's runs are made."""
ENDS = {"first": 0, "last": -1}
"""Words that stand for a value of a sweep in rules."""
_REFERENCE = re.compile(r"\$([A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes that a study makes to a scenario, applied after all overrides of the file."""

    settings: dict[str, Any] = field(default_factory=dict)
    """Path of a key -> value, in all runs."""
    sweep: dict[str, list[Any]] = field(default_factory=dict)
    """Name of a sweep of the file, or path of a key -> values, in the place of the file's."""
    paths: frozenset[str] = frozenset()
    """Names in `sweep` that are paths of keys though they have no dot."""
    variants: list[str] | None = None
    """Names of the variants to run; None: the file's choice."""


NO_CHANGES = Changes()


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a scenario."""

    scenario: Scenario
    label: dict[str, Any]
    repeat: int
    seed: int
    environments: tuple[str, ...] = ("virtual",)
    """Environments of the run, the general one first (environments_of)."""
    scale: str | None = None
    """Name of the file's scale; None: the file without a scale."""

    @property
    def name(self) -> str:
        """Name such as `mrc loss=1% #2`; a file name once blanks are replaced."""
        number = [f"#{self.repeat + 1}"] if self.scenario.repeat > 1 else []
        return " ".join([*label_parts(self.label), *number]) or "run"


def label_parts(label: dict[str, Any]) -> list[str]:
    """Return the parts of a run's name that distinguish it within its scenario: `mrc`, `loss=1%`."""
    return [str(value) if key == "variant" else f"{key}={value}" for key, value in label.items()]


def environments_of(backend: str, target: str) -> tuple[str, ...]:
    """Return a run's environments, the general one first.

    Examples: ("virtual",), ("live", "embedded"), ("live", "bmv2"). A fluid run has the environment of virtual runs.
    """
    return ("virtual",) if backend in ("virtual", "fluid") else (backend, target)


def is_for(document: Document, backend: str) -> bool:
    """Return whether a file is for runs of a back end (its key `only`)."""
    return document.raw.get("only") in (None, environments_of(backend, "")[0])


def expand(
    document: Document,
    backend: str,
    *,
    target: str = "embedded",
    seed: int | None = None,
    repeat: int | None = None,
    scale: str | None = None,
    changes: Changes = NO_CHANGES,
) -> list[Run]:
    """Return all runs of a file, in its order: repeats outermost, then variants, then sweep values.

    `backend`: "virtual", "fluid" or "live", there with the switches of `target`; `seed`, `repeat`: instead of the
    file's; `scale`: a name of its `scale`; `changes`: those of a study. Raises ScenarioError.
    """
    base = parse_scenario(document, _without_sweep(document))  # the file by itself must make sense
    if scale is not None and scale not in base.scale:
        known_text = f"has: {', '.join(base.scale)}" if base.scale else "the file has no scales"
        raise _error(document, ("scale",) if base.scale else (), f"no scale {scale!r} ({known_text})")
    environments = environments_of(backend, target)
    values = _sweep_values(document, base, environments, scale) | changes.sweep
    labelled_scenarios: list[tuple[Scenario, dict[str, Any]]] = []
    for variant in changes.variants or _variants(document, base, environments, scale):
        for sweep_point in product(*values.values()):
            label = ({"variant": variant} if variant else {}) | dict(zip(values, sweep_point, strict=True))
            scenario = _apply_overrides(document, environments, label, values, scale, changes)
            if backend == "live" and _clocks(scenario) != {1.0}:
                text = "clock: the times of a live fabric are those of its links; give it under `virtual`"
                raise _error(document, ("transport", "clock"), text)
            labelled_scenarios.append(
                (scenario if repeat is None else scenario.model_copy(update={"repeat": repeat}), label)
            )
    first = base.seed if seed is None else seed
    return [
        Run(scenario, label, number, first + number, environments, scale)
        for number in range(repeat or base.repeat)
        for scenario, label in labelled_scenarios
    ]


def _clocks(scenario: Scenario) -> set[float]:
    transports = (scenario.transport, *(work.transport for work in scenario.workload))
    return {transport.clock for transport in transports if transport}


def _variants(document: Document, base: Scenario, environments: tuple[str, ...], scale: str | None) -> list[str]:
    """Return the names of the variants to run; one empty name for a file without variants."""
    parts: list[tuple[Loc, Any]] = [
        ((environment,), (document.raw.get(environment) or {}).get("variants")) for environment in environments
    ]
    if scale is not None:
        parts.append((("scale", scale), base.scale[scale].variants))
    variants = list(base.variants)
    for loc, names in parts:
        if names is None:
            continue
        if not isinstance(names, list):
            raise _error(document, (*loc, "variants"), f"must be a list of variant names; got {names!r}")
        for name in names:
            if name not in base.variants:
                raise _error(document, (*loc, "variants"), f"no variant {name!r} ({suggestion(name, base.variants)})")
        variants = [name for name in base.variants if name in names]  # what is applied last decides
    return variants or [""]


def _apply_overrides(
    document: Document,
    environments: tuple[str, ...],
    label: dict[str, Any],
    sweeps: dict[str, list[Any]],
    scale: str | None,
    study: Changes,
) -> Scenario:
    """Apply overrides in the order environments, scale, variant, study, sweep values."""
    raw = deepcopy(document.raw)
    swept_values = {name: _value_behind(document, name, value) for name, value in label.items() if name != "variant"}
    prefix: Loc = ()
    for environment in environments:
        if document.raw.get(environment):
            prefix = (environment,)
            _merge(
                document, raw, {k: v for k, v in document.raw[environment].items() if k not in SELECTION_KEYS}, prefix
            )
    if scale is not None:
        prefix = ("scale", scale)
        changes = dict(document.raw["scale"][scale] or {})
        if isinstance(raw.get("paper"), dict):
            _deep(raw["paper"], changes.pop("paper", None) or {})
        _merge(document, raw, {k: v for k, v in changes.items() if k not in SELECTION_KEYS}, prefix)
        # Mistakes of the scale are not the variant's.
        parse_scenario(document, _substitute(document, raw, swept_values, ()), prefix)
    if "variant" in label:
        prefix = ("variants", label["variant"])
        changes = document.raw["variants"][label["variant"]] or {}
        _merge(document, raw, {k: v for k, v in changes.items() if k not in (*ENVIRONMENTS, "scale")}, prefix)
        for environment in environments:
            if changes.get(environment):
                _merge(document, raw, changes[environment], (*prefix, environment))
        if scale is not None and (at_scale := (changes.get("scale") or {}).get(scale)):
            _merge(document, raw, at_scale, (*prefix, "scale", scale))
    for name, value in study.settings.items():
        prefix = ("set", name)
        _put(document, raw, name, value, prefix)
    for name, value in swept_values.items():
        if "." in name or name in study.paths:
            prefix = ("sweep", name)
            _put(document, raw, name, deepcopy(value), prefix)
    raw = _substitute(document, raw, swept_values, ())
    _name_ends(raw, sweeps)
    return parse_scenario(document, raw, prefix)


def _name_ends(raw: dict[str, Any], sweeps: dict[str, list[Any]]) -> None:
    """Replace `first` and `last` in rules and figures by the ends of the sweeps."""
    for rule in [*(raw.get("expect") or []), *(raw.get("figures") or [])]:
        for key in ("where", "compared_to"):
            selection = rule.get(key) if isinstance(rule, dict) else None
            if not isinstance(selection, dict):
                continue
            for name, value in selection.items():
                if name in sweeps and isinstance(value, str) and value in ENDS:
                    selection[name] = sweeps[name][ENDS[value]]


def _without_sweep(document: Document) -> dict[str, Any]:
    """Return the file with the first value of every sweep in its place."""
    sweep = document.raw.get("sweep")
    firsts = {}
    if isinstance(sweep, dict):
        for name, values in sweep.items():
            firsts[name] = _value_behind(document, name, values_of(document, ("sweep", name), values)[0])
    raw: dict[str, Any] = _substitute(document, document.raw, firsts, ())
    return raw


def _sweep_values(
    document: Document, scenario: Scenario, environments: tuple[str, ...], scale: str | None
) -> dict[str, list[Any]]:
    values = {name: values_of(document, ("sweep", name), definition) for name, definition in scenario.sweep.items()}
    override_locs: list[Loc] = [(environment,) for environment in environments] + (
        [("scale", scale)] if scale is not None else []
    )
    for loc in override_locs:
        part: Any = document.raw
        for key in loc:
            part = part.get(key) or {}
        overrides = part.get("sweep") or {}
        if not isinstance(overrides, dict):
            raise _error(document, (*loc, "sweep"), f"must be a mapping of sweeps; got {overrides!r}")
        for name, definition in overrides.items():
            if name not in values:
                text = f"no sweep {name!r} in the file ({suggestion(name, values)})"
                raise _error(document, (*loc, "sweep", name), text)
            values[name] = values_of(document, (*loc, "sweep", name), definition)
            # A sweep of names may be made smaller; what they stand for is the file's.
            names = document.raw["sweep"][name]
            if _has_names(names) and _has_names(definition):
                text = f"give a list of names: [{next(iter(definition))}]; what they stand for is the file's `sweep`"
                raise _error(document, (*loc, "sweep", name), text)
            if _has_names(names) and (unknown := [value for value in values[name] if value not in names]):
                text = f"no value {unknown[0]!r} of this sweep ({suggestion(str(unknown[0]), names)})"
                raise _error(document, (*loc, "sweep", name), text)
    total = scenario.repeat * max(len(scenario.variants), 1)
    for value in values.values():
        total *= len(value)
    if total > RUNS_MAX:
        raise _error(document, ("sweep",), f"{total} runs: at most {RUNS_MAX}")
    return values


def values_of(document: Document, loc: Loc, definition: Any) -> list[Any]:
    """Return the values of one sweep. Raises ScenarioError."""
    if isinstance(definition, list) and definition and not any(isinstance(value, (dict, list)) for value in definition):
        return definition
    if _has_names(definition):
        return list(definition)
    if not isinstance(definition, dict) or "from" not in definition or "to" not in definition or len(definition) != 3:
        text = "a list of values, or {from, to, step} or {from, to, factor}, or names with a mapping each"
        raise _error(document, loc, text)
    return list(_range(document, loc, definition))


def _has_names(definition: Any) -> bool:
    """Return whether the values of a sweep are mappings with names."""
    return isinstance(definition, dict) and bool(definition) and all(isinstance(v, dict) for v in definition.values())


def _value_behind(document: Document, name: str, value: Any) -> Any:
    """Return what a value of a sweep stands for: the mapping of that name, else itself."""
    definition: Any = (document.raw.get("sweep") or {}).get(name)
    return definition[value] if _has_names(definition) else value


def _range(document: Document, loc: Loc, definition: dict[str, Any]) -> Iterator[Any]:
    """Yield numbers, or sizes like 64K, between two ends, both included."""
    if "step" not in definition and "factor" not in definition:
        raise _error(
            document, loc, f"no key {sorted(set(definition) - {'from', 'to'})[0]!r} here (has: from, to, step, factor)"
        )
    texts = any(isinstance(definition[key], str) for key in ("from", "to"))
    try:
        low, high = (float(units.size(definition[key])) if texts else float(definition[key]) for key in ("from", "to"))
        increment = (
            float(definition.get("step") or definition["factor"])
            if not texts or "factor" in definition
            else units.size(definition["step"])
        )
    except (units.UnitError, TypeError, ValueError, KeyError, OverflowError) as error:
        text = f"{error.args[0]}: no value" if isinstance(error, KeyError) else error
        raise _error(document, loc, f"{text}; a range has numbers or sizes") from None
    if not all(abs(number) <= SWEPT_MAX for number in (low, high, increment)):
        raise _error(document, loc, f"from {low:g} to {high:g} by {increment:g}: give numbers up to {SWEPT_MAX:g}")
    if low > high or increment <= (1 if "factor" in definition else 0) or (low <= 0 and "factor" in definition):
        raise _error(document, loc, "a range goes up: from <= to, step > 0, factor > 1 (and from > 0)")
    # A sweep with too many values is found before its runs are planned.
    value, count = low, 0
    while value <= high * (1 + 1e-9):
        yield int(value) if value == int(value) else value
        value = value * increment if "factor" in definition else low + (count + 1) * increment
        count += 1
        if count > RUNS_MAX:
            raise _error(document, loc, f"more than {RUNS_MAX} values")


def _substitute(document: Document, node: Any, values: dict[str, Any], loc: Loc) -> Any:
    """Return `node` with every `$name` replaced by its sweep value."""
    if isinstance(node, dict):
        skip = {"sweep"} if not loc else set()
        return {k: v if k in skip else _substitute(document, v, values, (*loc, k)) for k, v in node.items()}
    if isinstance(node, list):
        return [_substitute(document, value, values, (*loc, index)) for index, value in enumerate(node)]
    if isinstance(node, str) and "$" in node:
        for name in _REFERENCE.findall(node):
            if name not in values:
                raise _error(document, loc, f"${name}: no sweep of that name ({suggestion(name, values)})")
            if node == f"${name}":
                return values[name]  # a number stays one
            node = node.replace(f"${name}", str(values[name]))
    return node


def _merge(document: Document, target: dict[str, Any], changes: Any, loc: Loc) -> None:
    """Merge `changes` into `target`: mappings key by key, anything else replaced."""
    if not isinstance(changes, dict):
        raise _error(document, loc, f"must be a mapping of overrides; got {changes!r}")
    for key, value in changes.items():
        if key in ONLY_AT_TOP:
            raise _error(document, (*loc, key), f"{key} cannot differ from run to run")
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _deep(target[key], value)
        else:
            target[key] = deepcopy(value)


def _deep(target: dict[str, Any], changes: dict[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _deep(target[key], value)
        else:
            target[key] = deepcopy(value)


def _put(document: Document, raw: dict[str, Any], path: str, value: Any, loc: Loc) -> None:
    """Replace the key at a dotted path. Raises ScenarioError when a part of the path is missing."""
    node: Any = raw
    *way, last = path.split(".")
    for part in way:
        try:
            node = node.setdefault(part, {}) if isinstance(node, dict) else node[int(part)]
        except (ValueError, IndexError, AttributeError, TypeError):
            raise _error(document, loc, f"the file has no {part!r} on the way to {path}") from None
    try:
        if isinstance(node, list):
            node[int(last)] = value
        else:
            node[last] = value
    except (ValueError, IndexError, TypeError):
        raise _error(document, loc, f"the file has no key {path}") from None


def _error(document: Document, loc: Loc, text: str) -> ScenarioError:
    return ScenarioError(document.path, [document.problem(loc, text)])
