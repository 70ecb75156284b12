"""Root cause analysis of one plane: the fewest causes that explain its symptoms (mrc-protocol §9).

Pure and stateless. Three kinds of symptom, three functions:

    ports and streams   `explain_ports`       a port that is down names its link, a lost stream its switch; all links
                                              of a switch gone together are that switch
    dead paths          `explain_dead_paths`  some part of each dead path forwards nothing; parts that a good path has
                                              crossed since are innocent: the fewest causes that meet all dead paths
    losing paths        `explain_losses`      the cause under which the losses of all paths, also of paths without
                                              loss, are likeliest

Explanations that fit equally well are all returned: the caller has to report "cannot tell".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import product

from mrc_testbed.controller.faults.path_segments import Cause, PathSegmenter, PathSegments
from mrc_testbed.topologies.plan import Link, Switch

COVER_MAX = 4
"""Simultaneous causes that are searched for among dead paths which share suspects."""
EXPLANATIONS_MAX = 6
"""Tied explanations that are reported, at most."""
BACKGROUND_LOSS = 0.001
"""Share of packets that a healthy path may lose: a busy machine drops one now and then."""
EVIDENCE_MIN = 8.0
"""Log-likelihood that a cause of losses must gain over chance: e**8 = 3,000 times likelier."""
CLEAN_MAX = 6.0
"""Losses expected under a cause, over all paths without loss, above which the cause is excluded.

As many would be missing by chance with probability e**-6.
"""
EVIDENCE_MARGIN = math.log(1000)
"""Log-likelihood within which a link fits as well as the best explanation.

The losses are weighed again with every reading, and one in R true causes seems R times less likely than another at
some time.
"""
SWITCH_MARGIN = math.log(30)
"""EVIDENCE_MARGIN of switches: a switch lossy on all its links is rarer than a lossy link."""
DIRECTION_MARGIN = 10.0
"""Log-likelihood by which the best direction of a loss must lead before it is reported.

The direction is weighed again and again: of links that lose 10 % both ways, and two loops of 75 probes, 1 in 100,000
seems at a time to lose one way only.
"""
LOSS_MAX = 0.999
"""Largest share of packets lost by a cause that still lets some through."""
FIT_STEPS = 25
"""Steps of a ternary search over the range of losses; the last range is 1 in 25,000 of the first."""
LINKS_MAX = 3
"""Most simultaneously lossy links that are an explanation beside their switch."""


class FailureMode(Enum):
    """Way in which a cause is broken."""

    REPORTED_DOWN = "down"  # ports or streams say so
    SILENT_DOWN = "silent"  # nothing passes, and no port says so
    LOSSY = "lossy"  # some of it does not pass


Explanation = tuple[Cause, ...]
"""Causes that together explain a finding; most often one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is broken; with more than one explanation the cause is ambiguous."""

    mode: FailureMode
    explanations: tuple[Explanation, ...]
    reports: tuple[Hashable, ...]
    """Keys of the reports that the finding explains."""
    loss: float | None = None
    """Share of packets lost; None when all are lost."""
    arcs: frozenset[str] = frozenset()
    """Broken directions of a single link; empty when not known."""

    @property
    def causes(self) -> frozenset[Cause]:
        """Everything that appears in an explanation."""
        return frozenset(cause for explanation in self.explanations for cause in explanation)


def by_name(cause: Cause) -> tuple[int, str]:
    """Order of causes in texts: links last."""
    return (1 if isinstance(cause, Link) else 0, cause.name)


# ---- ports and streams --------------------------------------------------------------------------------------


def explain_ports(
    switches: Sequence[Switch],
    links_of: Callable[[Switch], Sequence[Link]],
    down_since: dict[Link, float],
    lost: Iterable[Switch],
    answering: frozenset[Switch],
    together_s: float,
) -> list[Finding]:
    """Return the causes of one plane's links that are down and of its switches' lost streams.

    `down_since` is in seconds; `answering` are switches whose stream is open.

    1. A switch whose stream is lost is a fault by itself; it explains every bad link it has.
    2. A switch with all its links down, gone within `together_s`, at least two of them not explained by another switch,
       is a fault; the one that explains most comes first (four bad links at a T0 are that T0, not the two T1 above it).
    3. The remaining links are faults of their own.
    """
    guilty = sorted(lost, key=by_name)
    sole_links: dict[Switch, tuple[Link, ...]] = {}
    """Links that only this switch explains, by switch found by its links."""
    unexplained_links = set(down_since) - {link for switch in guilty for link in links_of(switch)}

    def went_together(links: Sequence[Link]) -> bool:
        times = [down_since[link] for link in links if link in down_since]
        return len(times) == len(links) and max(times) - min(times) <= together_s

    # Greedy: each round blames the switch that explains most of the links left, so that a T0 goes before its T1s.
    while True:
        candidate, best_count = None, 1
        for switch in switches:
            link_count = len(unexplained_links.intersection(links_of(switch)))
            if switch not in guilty and link_count > best_count and went_together(links_of(switch)):
                candidate, best_count = switch, link_count
        if candidate is None:
            break
        guilty.append(candidate)
        sole_links[candidate] = tuple(link for link in links_of(candidate) if link in unexplained_links)
        unexplained_links.difference_update(links_of(candidate))
    findings = []
    for switch in guilty:
        down_links = tuple(link for link in links_of(switch) if link in down_since)
        links = sole_links.get(switch, ())
        # A switch that answers is not dead as a whole: a few links that no other switch explains may have failed alone.
        unclear = switch in answering and 2 <= len(links) <= LINKS_MAX
        explanations = ((switch,), links) if unclear else ((switch,),)
        findings.append(Finding(FailureMode.REPORTED_DOWN, explanations, (switch, *down_links)))
    explained_links = {link for switch in guilty for link in links_of(switch)}
    findings += [
        Finding(FailureMode.REPORTED_DOWN, ((link,),), (link,)) for link in down_since if link not in explained_links
    ]
    return findings


# ---- dead paths ---------------------------------------------------------------------------------------------


def explain_dead_paths(
    segmenter: PathSegmenter,
    dead_paths: dict[Hashable, PathSegments],
    proven: Callable[[Hashable, str], bool],
    sure: Callable[[Hashable, Link], bool] = lambda _path, _link: True,
    confirming: bool = False,
) -> tuple[list[Finding], list[Hashable]]:
    """Return the causes of dead paths, and the paths without an explanation.

    `confirming`: some source distinguishes a switch from its links, so that a switch which no source blames may as
    well be a few of its links.

    `proven(path, part)`: the part has forwarded since that path died. `sure(path, link)`: the path has been dead for
    so long that chance is out of the question; only such paths show a direction of the link.
    """
    suspects: dict[Hashable, frozenset[Cause]] = {}
    for key, trace in dead_paths.items():
        suspects[key] = frozenset(segmenter.cause(part) for part in trace.parts if not proven(key, part))
    unexplained_paths = [key for key, causes in suspects.items() if not causes]
    findings: list[Finding] = []
    for group in _groups_sharing_suspects({key: causes for key, causes in suspects.items() if causes}):
        covers = _least_covers([suspects[key] for key in group])
        if not covers:  # more simultaneous causes than COVER_MAX: report the suspects of each path
            covers = [frozenset(causes) for causes in {suspects[key] for key in group}]
        findings += _split(FailureMode.SILENT_DOWN, covers, group, {key: suspects[key] for key in group})
    if confirming:
        findings = [_with_links(finding, suspects) for finding in findings]
    return [
        _with_direction(segmenter, finding, dead_paths, suspects, proven, sure) for finding in findings
    ], unexplained_paths


def _with_links(finding: Finding, suspects: dict[Hashable, frozenset[Cause]]) -> Finding:
    """Add to the finding of one switch the few links of it that explain the same paths.

    Not where a path is dead that only the switch explains.
    """
    switch = next(iter(finding.causes))
    if len(finding.causes) != 1 or not isinstance(switch, Switch):
        return finding
    paths = [
        frozenset(cause for cause in suspects[key] if isinstance(cause, Link) and switch.name in cause.ends)
        for key in finding.reports
        if switch in suspects[key]
    ]
    if not all(paths):
        return finding
    covers = [cover for cover in _least_covers(paths) if 2 <= len(cover) <= LINKS_MAX]
    links = tuple(tuple(sorted(cover, key=by_name)) for cover in covers)
    return replace(finding, explanations=(*finding.explanations, *links[: EXPLANATIONS_MAX - 1]))


def _with_direction(
    segmenter: PathSegmenter,
    finding: Finding,
    dead_paths: dict[Hashable, PathSegments],
    suspects: dict[Hashable, frozenset[Cause]],
    proven: Callable[[Hashable, str], bool],
    sure: Callable[[Hashable, Link], bool],
) -> Finding:
    """Add the broken directions to the finding of one link, if each is known to be broken or good.

    A dead path that nothing but one direction of the link explains shows that direction broken.
    """
    link = next(iter(finding.causes))
    if len(finding.causes) != 1 or not isinstance(link, Link):
        return finding
    broken_arcs: set[str] = set()
    possible_arcs: set[str] = set()
    for key in [key for key in finding.reports if suspects[key] == finding.causes]:
        arcs = {arc for arc in segmenter.arcs(link) if arc in dead_paths[key].arcs and not proven(key, arc)}
        possible_arcs |= arcs
        if len(arcs) == 1 and sure(key, link):
            broken_arcs |= arcs
    return replace(finding, arcs=frozenset(broken_arcs)) if broken_arcs == possible_arcs else finding


def _groups_sharing_suspects(suspects: dict[Hashable, frozenset[Cause]]) -> list[list[Hashable]]:
    """Return groups of paths that share a suspect, directly or over other paths."""
    groups: list[tuple[set[Cause], list[Hashable]]] = []
    for key, causes in suspects.items():
        joined_group: tuple[set[Cause], list[Hashable]] = (set(causes), [key])
        disjoint_groups = []
        for group in groups:
            if group[0].isdisjoint(joined_group[0]):
                disjoint_groups.append(group)
            else:
                joined_group = (group[0] | joined_group[0], group[1] + joined_group[1])
        groups = [*disjoint_groups, joined_group]
    return [keys for _, keys in groups]


def _least_covers(paths: Iterable[frozenset[Cause]]) -> list[frozenset[Cause]]:
    """Return all smallest sets of causes that meet every path; none when COVER_MAX causes are not enough."""
    shortest_first = sorted(set(paths), key=len)
    for size in range(1, COVER_MAX + 1):
        covers: set[frozenset[Cause]] = set()
        _grow(shortest_first, frozenset(), size, covers)
        if covers:
            return sorted(covers, key=lambda cover: sorted(map(by_name, cover)))
    return []


def _grow(paths: list[frozenset[Cause]], cover: frozenset[Cause], budget: int, covers: set[frozenset[Cause]]) -> None:
    open_path = next((path for path in paths if path.isdisjoint(cover)), None)
    if open_path is None:
        covers.add(cover)
    elif budget:
        for cause in open_path:
            _grow(paths, cover | {cause}, budget - 1, covers)


def _split(
    mode: FailureMode, covers: list[frozenset[Cause]], keys: list[Hashable], suspects: dict[Hashable, frozenset[Cause]]
) -> list[Finding]:
    """Return a finding for each cause that all covers share, and ambiguous findings for the remainder.

    A remainder that is a product of independent choices is one finding for each choice, not one for the product.
    """
    certain = frozenset.intersection(*covers)
    findings = [
        Finding(mode, ((cause,),), _keys_suspecting(keys, suspects, {cause})) for cause in sorted(certain, key=by_name)
    ]
    remainders = {cover - certain for cover in covers}
    if remainders == {frozenset()}:
        return findings
    for choice in _choices(remainders):
        reports = _keys_suspecting(keys, suspects, {cause for explanation in choice for cause in explanation}) or tuple(
            keys
        )
        findings.append(Finding(mode, choice[:EXPLANATIONS_MAX], reports))
    return findings


def _choices(remainders: set[frozenset[Cause]]) -> list[tuple[Explanation, ...]]:
    """Return the independent choices whose product the sets are; else one choice among all sets."""
    companions: dict[Cause, set[Cause]] = {}
    causes = frozenset().union(*remainders)
    for cause in causes:
        companions[cause] = {companion for remainder in remainders if cause in remainder for companion in remainder} - {
            cause
        }
    groups: list[set[Cause]] = []
    for cause in sorted(causes, key=by_name):  # causes that never occur together are alternatives
        home = next((group for group in groups if all(cause not in companions[member] for member in group)), None)
        if home is None:
            groups.append({cause})
        else:
            home.add(cause)
    # Compare the sizes first: the product of wrong groups may have too many members to build.
    is_product = math.prod(len(group) for group in groups) == len(remainders)
    if is_product and {frozenset(combination) for combination in product(*groups)} == remainders:
        return [tuple((cause,) for cause in sorted(group, key=by_name)) for group in groups]
    return [
        tuple(
            sorted(
                (tuple(sorted(remainder, key=by_name)) for remainder in remainders),
                key=lambda explanation: [*map(by_name, explanation)],
            )
        )
    ]


def _keys_suspecting(
    keys: list[Hashable], suspects: dict[Hashable, frozenset[Cause]], causes: set[Cause]
) -> tuple[Hashable, ...]:
    return tuple(key for key in keys if not suspects[key].isdisjoint(causes))


# ---- losing paths -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PathSample:
    """Packets sent over a path in some time, and how many of them were lost."""

    trace: PathSegments
    sent: int
    lost: int


def explain_losses(
    segmenter: PathSegmenter,
    trials: dict[Hashable, PathSample],
    losing: Iterable[Hashable],
    even: Callable[[Hashable], bool] = lambda _path: True,
    known_causes: frozenset[Cause] = frozenset(),
) -> tuple[list[Finding], list[Hashable]]:
    """Return the causes of the losses of one plane's paths, and the losing paths without an explanation.

    `losing`: paths that a source reported; the others count as witnesses. Causes are found one after the other: the
    cause that makes all trials likeliest explains the paths through it, and the search goes on with the other paths.
    In the end each finding is weighed again without the losses that another finding explains, or the first cause
    would be charged with losses that they share. `even(path)`: its packets are sent evenly, whether or not they are
    lost; only such trials are compared with each other for the direction. `known_causes`: lossy causes reported
    already; twice as many packets must come through to acquit them.
    """
    trials = {key: trial for key, trial in trials.items() if trial.sent}
    remaining = trials
    complaints = [key for key in losing if key in remaining]
    findings: list[Finding] = []
    while complaints and (likeliest := _likeliest(segmenter, remaining, complaints, known_causes)):
        fitting, finding = likeliest
        crossing_keys = {
            key for key in remaining if any(segmenter.crosses(remaining[key].trace, cause) for cause in fitting)
        }
        reports = tuple(key for key in complaints if key in crossing_keys)
        if not reports:
            break
        findings.append(replace(finding, reports=reports))
        remaining = {key: trial for key, trial in remaining.items() if key not in crossing_keys}
        complaints = [key for key in complaints if key not in crossing_keys]
    findings = _distinct(
        _without_foreign_losses(segmenter, finding, findings, trials, known_causes) for finding in findings
    )
    fair = [trial for key, trial in trials.items() if even(key)]
    return [_with_losing_direction(segmenter, finding, findings, fair) for finding in findings], complaints


def _likeliest(
    segmenter: PathSegmenter,
    trials: dict[Hashable, PathSample],
    complaints: list[Hashable],
    known_causes: frozenset[Cause],
) -> tuple[list[Cause], Finding] | None:
    """Return the likeliest causes and their finding; None where chance explains as much."""
    suspects = {segmenter.cause(part) for key in complaints for part in trials[key].trace.parts}
    gains = {cause: _best_gain(cause, trials.values(), 2 if cause in known_causes else 1) for cause in suspects}
    top_gain = max(gains.values(), key=lambda gain: gain[0])[0]
    if top_gain < EVIDENCE_MIN:
        return None
    fitting = sorted((cause for cause in suspects if gains[cause][0] > top_gain - _margin(cause)), key=by_name)
    fitting.sort(key=lambda cause: -gains[cause][0])
    fitting = [cause for cause in fitting if not _are_independent(cause, fitting[0], trials.values())][
        :EXPLANATIONS_MAX
    ]
    explanations: tuple[Explanation, ...] = tuple((cause,) for cause in fitting)
    if len(fitting) == 1 and isinstance(fitting[0], Switch):
        switch_links = [
            suspect for suspect in suspects if isinstance(suspect, Link) and fitting[0].name in suspect.ends
        ]
        explanations += tuple((link,) for link in sorted(switch_links, key=by_name) if gains[link][0] >= top_gain / 2)
        explanations += _losing_links(segmenter, fitting[0], trials.values())
        explanations = explanations[:EXPLANATIONS_MAX]
    elif len(fitting) == 1:
        explanations += _losing_pairs(fitting[0], top_gain, suspects, trials.values())
    return fitting, Finding(FailureMode.LOSSY, explanations, (), gains[fitting[0]][1])


def _without_foreign_losses(
    segmenter: PathSegmenter,
    finding: Finding,
    findings: list[Finding],
    trials: dict[Hashable, PathSample],
    known_causes: frozenset[Cause],
) -> Finding:
    """Weigh a finding again without the losses of paths that another finding explains."""
    other_findings = [candidate for candidate in findings if candidate is not finding]
    own_trials = {
        key: trial
        for key, trial in trials.items()
        if not (trial.lost and _explains_any(segmenter, other_findings, trial))
    }
    complaints = [key for key in finding.reports if key in own_trials]
    if len(own_trials) == len(trials) or not complaints:
        return finding
    likeliest = _likeliest(segmenter, own_trials, complaints, known_causes)
    return replace(likeliest[1], reports=finding.reports) if likeliest else finding


def _distinct(findings: Iterable[Finding]) -> list[Finding]:
    """Join the findings with equal explanations."""
    out: dict[frozenset[frozenset[Cause]], Finding] = {}
    for finding in findings:
        key = frozenset(frozenset(explanation) for explanation in finding.explanations)
        duplicate = out.get(key)
        out[key] = finding if duplicate is None else replace(duplicate, reports=(*duplicate.reports, *finding.reports))
    return list(out.values())


def _explains_any(segmenter: PathSegmenter, findings: list[Finding], trial: PathSample) -> bool:
    """Return whether all explanations of some finding cross the path."""
    return any(
        all(any(segmenter.crosses(trial.trace, cause) for cause in explanation) for explanation in finding.explanations)
        for finding in findings
    )


def _margin(cause: Cause) -> float:
    return SWITCH_MARGIN if isinstance(cause, Switch) else EVIDENCE_MARGIN


def _losing_pairs(
    link: Cause, top_gain: float, suspects: Iterable[Cause], trials: Iterable[PathSample]
) -> tuple[Explanation, ...]:
    """Return pairs of links that explain the losses of a link as well as the link itself.

    Each link of a pair has lossy paths of its own.
    """
    trials = [trial for trial in trials if not trial.lost or PathSegmenter.crosses(trial.trace, link)]
    links = sorted((suspect for suspect in suspects if isinstance(suspect, Link) and suspect != link), key=by_name)
    out = []
    for index, first_link in enumerate(links):
        first_gain = _best_gain(first_link, trials, 1)[0]
        remaining_trials = [trial for trial in trials if not PathSegmenter.crosses(trial.trace, first_link)]
        for second_link in links[index + 1 :]:
            second_gain = _best_gain(second_link, remaining_trials, 1)[0]
            if min(first_gain, second_gain) >= EVIDENCE_MIN and first_gain + second_gain >= top_gain:
                out.append((first_link, second_link))
    return tuple(out[: EXPLANATIONS_MAX - 1])


def _are_independent(first: Cause, second: Cause, trials: Iterable[PathSample]) -> bool:
    """Return whether each cause loses packets on paths that avoid the other: two causes, not a choice."""
    return all(
        _best_gain(cause, [t for t in trials if not PathSegmenter.crosses(t.trace, avoided_cause)], 1)[0]
        >= EVIDENCE_MIN
        for cause, avoided_cause in ((first, second), (second, first))
    )


def _losing_links(segmenter: PathSegmenter, switch: Switch, trials: Iterable[PathSample]) -> tuple[Explanation, ...]:
    """Return the small sets of a switch's links whose simultaneous loss would look like the switch's."""
    paths = []
    for trial in trials:
        if trial.lost and segmenter.crosses(trial.trace, switch):
            arc_links = [segmenter.cause(arc) for arc in trial.trace.arcs]
            paths.append(frozenset(link for link in arc_links if isinstance(link, Link) and switch.name in link.ends))
    covers = [cover for cover in _least_covers(paths) if 2 <= len(cover) <= LINKS_MAX]
    return tuple(tuple(sorted(cover, key=by_name)) for cover in covers[: EXPLANATIONS_MAX - 1])


def _with_losing_direction(
    segmenter: PathSegmenter, finding: Finding, findings: list[Finding], trials: Iterable[PathSample]
) -> Finding:
    """Add the losing directions to the finding of one link, where paths that lose nowhere else show them.

    A path without loss is always evidence; a losing path only if its other parts are known not to lose packets.
    """
    link = finding.explanations[0][0]
    if len(finding.causes) != 1 or not isinstance(link, Link):
        return finding
    other_causes = {cause for candidate in findings if candidate is not finding for cause in candidate.causes}
    trials = list(trials)
    avoiding = [trial for trial in trials if not segmenter.crosses(trial.trace, link)]
    usable_trials = [
        trial
        for trial in trials
        if segmenter.crosses(trial.trace, link)
        and not any(segmenter.crosses(trial.trace, cause) for cause in other_causes)
        and (not trial.lost or _loses_only_on(trial, segmenter.arcs(link), avoiding))
    ]
    fits = sorted(((_fit(way, usable_trials), way) for way in _ways(link)), reverse=True)
    if fits[0][0] > fits[1][0] + DIRECTION_MARGIN:
        return replace(finding, arcs=frozenset(fits[0][1]))
    return finding


def _loses_only_on(trial: PathSample, arcs: tuple[str, str], avoiding: Iterable[PathSample]) -> bool:
    """Return whether other paths acquit each part of the path but `arcs` of its loss."""
    loss = min(trial.lost / trial.sent, LOSS_MAX)
    doubts = dict.fromkeys((part for part in trial.trace.parts if part not in arcs), 0.0)
    for witness in avoiding:
        gain = witness.lost * math.log(loss / BACKGROUND_LOSS)
        gain += (witness.sent - witness.lost) * math.log((1 - loss) / (1 - BACKGROUND_LOSS))
        for part in doubts.keys() & set(witness.trace.parts):
            doubts[part] += max(-gain, 0.0)
    return all(doubt > CLEAN_MAX for doubt in doubts.values())


def _fit(way: tuple[str, ...], trials: Sequence[PathSample]) -> float:
    """Return the log-likelihood of the trials when each part in `way` loses the same, best-fitting share.

    A path that crosses a link twice has two chances to lose a packet where both ways are lossy: the ratio of its loss
    to that of a path that crosses once is as much evidence as the set of losing paths.
    """
    crossings = [sum(part in way for part in trial.trace.parts) for trial in trials]

    def log_likelihood(pass_rate: float) -> float:
        out = 0.0
        for trial, times in zip(trials, crossings, strict=True):
            pass_share = (1 - BACKGROUND_LOSS) * pass_rate**times
            out += trial.lost * math.log(1 - pass_share) + (trial.sent - trial.lost) * math.log(pass_share)
        return out

    low, high = math.log(1 - LOSS_MAX), 0.0  # the likelihood has one maximum over the logarithm of the pass rate
    for _ in range(FIT_STEPS):
        third = (high - low) / 3
        if log_likelihood(math.exp(low + third)) < log_likelihood(math.exp(high - third)):
            low += third
        else:
            high -= third
    return log_likelihood(math.exp((low + high) / 2))


def _best_gain(cause: Cause, trials: Iterable[PathSample], doubt: float) -> tuple[float, float]:
    """Return (log-likelihood gain of "this cause is lossy" over "nothing is", its loss), by the best way."""
    return max(_gain(way, trials, doubt) for way in _ways(cause))


def _ways(cause: Cause) -> tuple[tuple[str, ...], ...]:
    """Return the sets of parts in which a cause may lose packets; a link may lose one way only."""
    if not isinstance(cause, Link):
        return ((cause.name,),)
    upward, downward = cause.lower.interface, cause.upper.interface
    return (upward, downward), (upward,), (downward,)


def _crossing_trials(way: tuple[str, ...], trials: Iterable[PathSample]) -> list[PathSample]:
    """Return the trials that cross one of the parts."""
    return [trial for trial in trials if not set(way).isdisjoint(trial.trace.parts)]


def _gain(way: tuple[str, ...], trials: Iterable[PathSample], doubt: float) -> tuple[float, float]:
    """Return `_likelihood` of the trials over a suspect; zero where too many of them are clean.

    `doubt` multiplies CLEAN_MAX.
    """
    crossing = _crossing_trials(way, trials)
    gain, loss = _likelihood(crossing)
    if loss * sum(trial.sent for trial in crossing if not trial.lost) > doubt * CLEAN_MAX:
        return 0.0, 0.0
    return gain, loss


def _likelihood(trials: list[PathSample]) -> tuple[float, float]:
    """Return (log-likelihood of the trials' mean loss against the background loss, the mean loss)."""
    sent, lost = sum(t.sent for t in trials), sum(t.lost for t in trials)
    if not sent or lost <= sent * BACKGROUND_LOSS:
        return 0.0, 0.0
    loss = lost / sent
    delivery_term = (sent - lost) * math.log((1 - loss) / (1 - BACKGROUND_LOSS)) if lost < sent else 0.0
    return lost * math.log(loss / BACKGROUND_LOSS) + delivery_term, loss
