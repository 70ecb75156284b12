"""All mistakes of a file in one pass: what is wrong is left out, and the rest is read again.

    runs = with_all_mistakes(document, plan)      # plan(document), or ScenarioError with every mistake

A reader refuses a file at its first pass that fails (yaml_loader.py). Here each refused part is taken out of a copy of
the file, and the reader goes on with the rest, until nothing is refused. A mistake that only follows from a part that
was taken out is not reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, TypeVar

from mrc_testbed.experiments.language.yaml_loader import Document, Loc, Problem, ScenarioError
from mrc_testbed.topologies.plan.plan import LIMITS

ROUNDS_MAX = 60
"""Most readings of a file; each takes out one part at least."""
LARGE = 12
"""Dimension of a fabric where that of the file cannot be used: few names need a larger one."""
SCENARIO_FILLERS: dict[str, Any] = {
    "title": "untitled",
    "workload": [{"permutation": "all", "bytes": 1}],
    "duration": 1e7,
}
"""Values in the place of parts of a scenario that are needed, or that others depend on."""
DEPENDENTS: dict[str, tuple[str, ...]] = {
    "fabric": ("links", "transport"),
    "links": ("links", "transport"),
    "transport": ("links", "transport"),
    "queues": ("links",),
    "duration": ("measure",),
    "measure": ("expect", "figures"),
    "names": ("holes", "own_links"),
}
"""Part that was mistaken -> parts whose references say nothing then."""
PLACEHOLDERS: dict[str, Any] = {"variants": {}, "scale": {}, "sweep": [None]}
"""Values of mistaken entries whose names stay known."""

Result = TypeVar("Result")


def with_all_mistakes(
    document: Document, read: Callable[[Document], Result], fillers: Mapping[str, Any] | None = None
) -> Result:
    """Return what `read` makes of a document. Raises ScenarioError with every mistake that it has.

    `fillers`: values in the place of parts that are needed and mistaken.
    """
    try:
        return read(document)
    except ScenarioError as error:
        first = error
    repair = _Repair(document, fillers or {})
    repair.take(first.problems)
    for _ in range(ROUNDS_MAX):
        # Names are checked in one pass, the last: those of a file with other mistakes are known then.
        if repair.is_over:
            break
        try:
            read(repair.document)
            break
        except ScenarioError as error:
            repair.take(error.problems)
    raise ScenarioError(first.path, list(repair.problems))


class _Repair:
    """A copy of a document without its mistaken parts, and the mistakes."""

    def __init__(self, document: Document, fillers: Mapping[str, Any]) -> None:
        self._raw = document.raw
        self._fillers = fillers
        self._removals: set[Loc] = set()
        self._has_lost_work = False
        self.document = replace(document, raw=deepcopy(document.raw), duplicates=[], kept_items={})
        self.problems: dict[Problem, None] = dict.fromkeys(document.duplicates)
        self.is_over = False

    def take(self, problems: Iterable[Problem]) -> None:
        """Note mistakes that are no consequences, and leave out their parts."""
        problems = list(problems)
        earlier = deepcopy(self.document.raw)
        new_problems = [problem for problem in problems if not self._follows(problem)]
        self.problems |= dict.fromkeys(new_problems)
        for problem in problems:
            self._leave_out(problem.loc)
        is_unchanged = self.document.raw == earlier and not any(problem.loc == () for problem in problems)
        self.is_over = is_unchanged or any(problem.is_reference for problem in problems)

    def _follows(self, problem: Problem) -> bool:
        """Whether a mistake comes from what was left out, not from its author."""
        loc = problem.loc
        if loc and any(removal[: len(loc)] == loc for removal in self._removals):
            return True
        mistaken_parts = {removal[0] for removal in self._removals}
        value = self._value_in_file(loc)
        if "sweep" in mistaken_parts and isinstance(value, str) and "$" in value:
            return True
        if not problem.is_reference:
            return False
        return (self._has_lost_work and loc[0] in ("expect", "figures")) or any(
            loc[0] in DEPENDENTS.get(str(part), ()) for part in mistaken_parts
        )

    def _value_in_file(self, loc: Loc) -> Any:
        node: Any = self._raw
        for part in loc:
            if isinstance(node, dict):
                node = node.get(part)
            else:
                node = node[part] if isinstance(node, list) and isinstance(part, int) and part < len(node) else None
        return node

    def _leave_out(self, loc: Loc) -> None:
        """Take the nearest part of a location out that is still there, or put another value into its place."""
        while loc and not self._remove(loc):
            loc = loc[:-1]
        if not loc:
            return
        raw, key = self.document.raw, str(loc[0])
        if key == "workload":
            item = self._value_in_file(loc[:2])
            # A workload keeps its name for the rules when only its other keys are mistaken.
            self._has_lost_work |= len(loc) < 3 or not (isinstance(item, dict) and item.get("name")) or "name" in loc
        if key in self._fillers and not raw.get(key):
            raw[key] = deepcopy(self._fillers[key])
        if key == "fabric":
            self._enlarge_fabric()

    def _remove(self, loc: Loc) -> bool:
        """Take one part out; False: it is not there."""
        *parents, last = loc
        node: Any = self.document.raw
        loc_now: Loc = ()
        for part in parents:
            node = self._child(node, loc_now, part)
            loc_now = (*loc_now, part)
        if isinstance(node, dict) and last in node:
            if len(loc) == 2 and loc[0] in PLACEHOLDERS and loc not in self._removals:
                node[last] = deepcopy(PLACEHOLDERS[str(loc[0])])
            else:
                del node[last]
        elif isinstance(node, list) and isinstance(last, int):
            numbers = self.document.kept_items.setdefault(loc_now, list(range(len(node))))
            if last not in numbers:
                return False
            del node[numbers.index(last)]
            numbers.remove(last)
        elif not (loc == (last,) and last in self._fillers and loc not in self._removals):
            # A needed part that the file lacks is filled.
            return False
        self._removals.add(loc)
        return True

    def _child(self, node: Any, loc: Loc, part: str | int) -> Any:
        """Return a part of the copy by its location in the file; None: it is not there."""
        if isinstance(node, dict):
            return node.get(part)
        if not isinstance(node, list) or not isinstance(part, int):
            return None
        numbers = self.document.kept_items.get(loc, list(range(len(node))))
        return node[numbers.index(part)] if part in numbers else None

    def _enlarge_fabric(self) -> None:
        """Give dimensions that were mistaken values with which what is named exists."""
        sizes, sizes_left = self._raw.get("fabric"), self.document.raw.get("fabric")
        sizes = sizes if isinstance(sizes, dict) else {}
        sizes_left = sizes_left if isinstance(sizes_left, dict) else {}
        if "file" in sizes_left:
            return
        mistaken_keys = [str(loc[1]) for loc in self._removals if loc[0] == "fabric" and len(loc) > 1]
        for key, (low, high, _) in LIMITS.items():
            size = sizes.get(key)
            largest = min(max(size, low), high) if isinstance(size, int) and not isinstance(size, bool) else LARGE
            # A key that nobody knows may be meant for a dimension that is not given.
            if not mistaken_keys or (key not in sizes_left and get_close_matches(key, mistaken_keys)):
                sizes_left[key] = largest
        self.document.raw["fabric"] = sizes_left
