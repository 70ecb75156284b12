"""Root cause analysis of one plane: the fewest causes that explain its symptoms (mrc-protocol §9). Pure and stateless.

Three kinds of symptom, three functions:

    ports and streams   `explain_ports`       a port that is down names its link, a lost stream its switch; all links
                                              of a switch gone together are that switch
    dead paths          `explain_dead_paths`  something on each of them forwards nothing, and nothing that a good path
                                              has crossed since does that: the fewest causes that meet all dead paths
    losing paths        `explain_losses`      the cause under which the losses of all paths, also of those without,
                                              are likeliest

Two explanations that fit equally well are both returned: who asks has to say "cannot tell".
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
"""Share of packets that a healthy path of this testbed may lose: a busy machine drops one now and then."""
EVIDENCE_MIN = 8.0
"""Log-likelihood that a cause of losses must gain over chance: e**8 = 3,000 times likelier."""
CLEAN_MAX = 6.0
"""Losses that paths without any should have had, together, under a cause: with more (e**-6 by chance) it is not it."""
EVIDENCE_MARGIN = math.log(1000)
"""Links less than so much behind the best explanation fit as well. The losses are weighed again with every reading, and
one in R true causes seems R times less likely than another at some time."""
SWITCH_MARGIN = math.log(30)
"""The same for switches: one that loses some of its packets on all its links is rarer than a link that does."""
DIRECTION_MARGIN = 10.0
"""Log-likelihood by which the direction of a loss has to be the best one. It is asked for again and again: of links
that lose 10 % both ways, and two loops of 75 probes, 1 in 100,000 seems at a time to lose one way only."""
LOSS_MAX = 0.999
"""Share of packets that something loses which still lets some through."""
FIT_STEPS = 25
"""Thirds of the range of losses that are cut off, one after the other: to 1 in 25,000 of it."""
LINKS_MAX = 3
"""Links that lose at the same time are an explanation beside their switch, up to so many."""


class How(Enum):
    """In which way something is broken."""

    DOWN = "down"  # ports or streams say so
    SILENT = "silent"  # nothing passes, and no port says so
    LOSSY = "lossy"  # some of it does not pass


Explanation = tuple[Cause, ...]
"""Causes that together explain a finding; most often one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is broken; more than one explanation means that it cannot be told which."""

    how: How
    explanations: tuple[Explanation, ...]
    reports: tuple[Hashable, ...]
    """Keys of the reports that it explains."""
    loss: float | None = None
    """Share of packets lost, where it is not all of them."""
    arcs: frozenset[str] = frozenset()
    """Of one link: the directions that are broken, where that can be told."""

    @property
    def causes(self) -> frozenset[Cause]:
        """Everything that appears in an explanation."""
        return frozenset(cause for explanation in self.explanations for cause in explanation)


def by_name(cause: Cause) -> tuple[int, str]:
    """Order of causes in texts: switches first."""
    return (0 if isinstance(cause, Switch) else 1, cause.name)


# ---- ports and streams --------------------------------------------------------------------------------------


def explain_ports(
    switches: Sequence[Switch],
    links_of: Callable[[Switch], Sequence[Link]],
    down: dict[Link, float],
    lost: Iterable[Switch],
    answering: frozenset[Switch],
    together_s: float,
) -> list[Finding]:
    """Causes of the links of one plane that are down (since when, seconds) and of its switches' lost streams.

    1. A switch whose stream is lost is a fault by itself; it explains every bad link it has.
    2. A switch with all its links down, gone within `together_s`, at least two of them not explained by another switch,
       is a fault; the one that explains most comes first (four bad links at a T0 are that T0, not the two T1 above it).
       When it answers (`answering`), and few links are left that no other switch explains, those may as well be it.
    3. What is left are faults of single links.
    """
    guilty = sorted(lost, key=by_name)
    alone: dict[Switch, tuple[Link, ...]] = {}
    """Of a switch found by its links: those that only it explains."""
    unexplained = set(down) - {link for switch in guilty for link in links_of(switch)}

    def went_together(links: Sequence[Link]) -> bool:
        times = [down[link] for link in links if link in down]
        return len(times) == len(links) and max(times) - min(times) <= together_s

    while True:
        best, best_count = None, 1
        for switch in switches:
            new = len(unexplained.intersection(links_of(switch)))
            if switch not in guilty and new > best_count and went_together(links_of(switch)):
                best, best_count = switch, new
        if best is None:
            break
        guilty.append(best)
        alone[best] = tuple(link for link in links_of(best) if link in unexplained)
        unexplained.difference_update(links_of(best))
    findings = []
    for switch in guilty:
        mine = tuple(link for link in links_of(switch) if link in down)
        links = alone.get(switch, ())
        unclear = switch in answering and 2 <= len(links) <= LINKS_MAX
        explanations = ((switch,), links) if unclear else ((switch,),)
        findings.append(Finding(How.DOWN, explanations, (switch, *mine)))
    explained = {link for switch in guilty for link in links_of(switch)}
    findings += [Finding(How.DOWN, ((link,),), (link,)) for link in down if link not in explained]
    return findings


# ---- dead paths ---------------------------------------------------------------------------------------------


def explain_dead_paths(
    segmenter: PathSegmenter,
    dead: dict[Hashable, PathSegments],
    proven: Callable[[Hashable, str], bool],
    sure: Callable[[Hashable, Link], bool] = lambda _path, _link: True,
    confirming: bool = False,
) -> tuple[list[Finding], list[Hashable]]:
    """Causes of dead paths, and the paths that nothing can explain.

    `confirming`: there are sources that tell a switch from its links, so that one of which they do not say so may as
    well be a few of its links.

    `proven(path, part)`: the part has forwarded since that path died. `sure(path, link)`: it has been dead for so long
    that chance is out of the question; only such paths tell a direction of the link.
    """
    suspects: dict[Hashable, frozenset[Cause]] = {}
    for key, trace in dead.items():
        suspects[key] = frozenset(segmenter.cause(part) for part in trace.parts if not proven(key, part))
    unexplained = [key for key, causes in suspects.items() if not causes]
    findings: list[Finding] = []
    for knot in _knots({key: causes for key, causes in suspects.items() if causes}):
        covers = _least_covers([suspects[key] for key in knot])
        if not covers:  # more causes at once than we look for: say what each path may suffer from
            covers = [frozenset(causes) for causes in {suspects[key] for key in knot}]
        findings += _split(How.SILENT, covers, knot, {key: suspects[key] for key in knot})
    if confirming:
        findings = [_with_links(finding, suspects) for finding in findings]
    return [_with_direction(segmenter, finding, dead, suspects, proven, sure) for finding in findings], unexplained


def _with_links(finding: Finding, suspects: dict[Hashable, frozenset[Cause]]) -> Finding:
    """The finding of one switch, and beside it the few links of it that explain the same, unless a path is dead that
    only the switch explains.
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
    dead: dict[Hashable, PathSegments],
    suspects: dict[Hashable, frozenset[Cause]],
    proven: Callable[[Hashable, str], bool],
    sure: Callable[[Hashable, Link], bool],
) -> Finding:
    """The finding of one link with its broken directions, where every direction is known to be broken or to forward.

    A dead path that nothing but one direction of the link explains shows that direction broken.
    """
    link = next(iter(finding.causes))
    if len(finding.causes) != 1 or not isinstance(link, Link):
        return finding
    broken: set[str] = set()
    possible: set[str] = set()
    for key in [key for key in finding.reports if suspects[key] == finding.causes]:
        arcs = {arc for arc in segmenter.arcs(link) if arc in dead[key].arcs and not proven(key, arc)}
        possible |= arcs
        if len(arcs) == 1 and sure(key, link):
            broken |= arcs
    return replace(finding, arcs=frozenset(broken)) if broken == possible else finding


def _knots(suspects: dict[Hashable, frozenset[Cause]]) -> list[list[Hashable]]:
    """Groups of paths that share a suspect, directly or over others."""
    groups: list[tuple[set[Cause], list[Hashable]]] = []
    for key, causes in suspects.items():
        mine: tuple[set[Cause], list[Hashable]] = (set(causes), [key])
        apart = []
        for group in groups:
            if group[0].isdisjoint(mine[0]):
                apart.append(group)
            else:
                mine = (group[0] | mine[0], group[1] + mine[1])
        groups = [*apart, mine]
    return [keys for _, keys in groups]


def _least_covers(paths: Iterable[frozenset[Cause]]) -> list[frozenset[Cause]]:
    """All smallest sets of causes that meet every path; none when COVER_MAX causes are not enough."""
    shortest_first = sorted(set(paths), key=len)
    for size in range(1, COVER_MAX + 1):
        found: set[frozenset[Cause]] = set()
        _grow(shortest_first, frozenset(), size, found)
        if found:
            return sorted(found, key=lambda cover: sorted(map(by_name, cover)))
    return []


def _grow(paths: list[frozenset[Cause]], chosen: frozenset[Cause], left: int, found: set[frozenset[Cause]]) -> None:
    open_path = next((path for path in paths if path.isdisjoint(chosen)), None)
    if open_path is None:
        found.add(chosen)
    elif left:
        for cause in open_path:
            _grow(paths, chosen | {cause}, left - 1, found)


def _split(
    how: How, covers: list[frozenset[Cause]], keys: list[Hashable], suspects: dict[Hashable, frozenset[Cause]]
) -> list[Finding]:
    """Causes that all covers share are certain, each a finding; the rest is one finding that cannot be told.

    A rest that is a choice of one among some, beside another such choice, is two findings and not their product.
    """
    certain = frozenset.intersection(*covers)
    findings = [Finding(how, ((cause,),), _met(keys, suspects, {cause})) for cause in sorted(certain, key=by_name)]
    rests = {cover - certain for cover in covers}
    if rests == {frozenset()}:
        return findings
    for choice in _choices(rests):
        mine = _met(keys, suspects, {cause for one in choice for cause in one}) or tuple(keys)
        findings.append(Finding(how, choice[:EXPLANATIONS_MAX], mine))
    return findings


def _choices(rests: set[frozenset[Cause]]) -> list[tuple[Explanation, ...]]:
    """Independent choices whose product the sets are, where they are one; else one choice among all of them."""
    together: dict[Cause, set[Cause]] = {}
    everything = frozenset().union(*rests)
    for cause in everything:
        together[cause] = {other for rest in rests if cause in rest for other in rest} - {cause}
    groups: list[set[Cause]] = []
    for cause in sorted(everything, key=by_name):  # causes that never occur together are alternatives
        home = next((group for group in groups if all(cause not in together[other] for other in group)), None)
        if home is None:
            groups.append({cause})
        else:
            home.add(cause)
    is_product = math.prod(len(group) for group in groups) == len(rests)  # asked first: the product may be endless
    if is_product and {frozenset(one) for one in product(*groups)} == rests:
        return [tuple((cause,) for cause in sorted(group, key=by_name)) for group in groups]
    return [tuple(sorted((tuple(sorted(rest, key=by_name)) for rest in rests), key=lambda one: [*map(by_name, one)]))]


def _met(keys: list[Hashable], suspects: dict[Hashable, frozenset[Cause]], causes: set[Cause]) -> tuple[Hashable, ...]:
    return tuple(key for key in keys if not suspects[key].isdisjoint(causes))


# ---- losing paths -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PathSample:
    """One sample of a path: packets sent over it in some time, and how many of them were lost."""

    trace: PathSegments
    sent: int
    lost: int


def explain_losses(
    segmenter: PathSegmenter,
    trials: dict[Hashable, PathSample],
    losing: Iterable[Hashable],
    even: Callable[[Hashable], bool] = lambda _path: True,
    known: frozenset[Cause] = frozenset(),
) -> tuple[list[Finding], list[Hashable]]:
    """Causes of the losses of one plane's paths, and the losing paths that none of them explains.

    `losing`: the paths that somebody complained about; the others count as witnesses. One cause after the other: the
    one that makes all trials likeliest, then the paths through it have had their explanation. When all are found each
    is looked at again without the losses that another one explains, or the first would take for its own what they
    share. `even(path)`: its packets are sent evenly, whatever becomes of them; only such trials are compared with each
    other for the direction. `known`: causes of losses that have been told; it takes twice as many packets that came
    through to acquit them.
    """
    trials = {key: trial for key, trial in trials.items() if trial.sent}
    left = trials
    complaints = [key for key in losing if key in left]
    findings: list[Finding] = []
    while complaints and (likeliest := _likeliest(segmenter, left, complaints, known)):
        fitting, finding = likeliest
        met = {key for key in left if any(segmenter.crosses(left[key].trace, cause) for cause in fitting)}
        mine = tuple(key for key in complaints if key in met)
        if not mine:
            break
        findings.append(replace(finding, reports=mine))
        left = {key: trial for key, trial in left.items() if key not in met}
        complaints = [key for key in complaints if key not in met]
    findings = _distinct(_looked_at_again(segmenter, one, findings, trials, known) for one in findings)
    fair = [trial for key, trial in trials.items() if even(key)]
    return [_with_losing_direction(segmenter, one, findings, fair) for one in findings], complaints


def _likeliest(
    segmenter: PathSegmenter, trials: dict[Hashable, PathSample], complaints: list[Hashable], known: frozenset[Cause]
) -> tuple[list[Cause], Finding] | None:
    """The causes that make all trials likeliest, and the finding of them; None where chance does as well."""
    suspects = {segmenter.cause(part) for key in complaints for part in trials[key].trace.parts}
    gains = {cause: _best_gain(cause, trials.values(), 2 if cause in known else 1) for cause in suspects}
    best = max(gains.values(), key=lambda gain: gain[0])[0]
    if best < EVIDENCE_MIN:
        return None
    fitting = sorted((cause for cause in suspects if gains[cause][0] > best - _margin(cause)), key=by_name)
    fitting.sort(key=lambda cause: -gains[cause][0])
    fitting = [one for one in fitting if not _are_both(one, fitting[0], trials.values())][:EXPLANATIONS_MAX]
    explanations: tuple[Explanation, ...] = tuple((cause,) for cause in fitting)
    if len(fitting) == 1 and isinstance(fitting[0], Switch):
        own = [suspect for suspect in suspects if isinstance(suspect, Link) and fitting[0].name in suspect.ends]
        explanations += tuple((one,) for one in sorted(own, key=by_name) if gains[one][0] >= best / 2)
        explanations += _losing_links(segmenter, fitting[0], trials.values())
        explanations = explanations[:EXPLANATIONS_MAX]
    elif len(fitting) == 1:
        explanations += _losing_pairs(fitting[0], best, suspects, trials.values())
    return fitting, Finding(How.LOSSY, explanations, (), gains[fitting[0]][1])


def _looked_at_again(
    segmenter: PathSegmenter,
    finding: Finding,
    findings: list[Finding],
    trials: dict[Hashable, PathSample],
    known: frozenset[Cause],
) -> Finding:
    """The finding as it is without the losses of paths that another one explains, whichever cause that is."""
    others = [one for one in findings if one is not finding]
    own = {key: trial for key, trial in trials.items() if not (trial.lost and _explains_any(segmenter, others, trial))}
    complaints = [key for key in finding.reports if key in own]
    if len(own) == len(trials) or not complaints:
        return finding
    likeliest = _likeliest(segmenter, own, complaints, known)
    return replace(likeliest[1], reports=finding.reports) if likeliest else finding


def _distinct(findings: Iterable[Finding]) -> list[Finding]:
    """Those that have become the same one are one."""
    out: dict[frozenset[frozenset[Cause]], Finding] = {}
    for finding in findings:
        key = frozenset(frozenset(explanation) for explanation in finding.explanations)
        same = out.get(key)
        out[key] = finding if same is None else replace(same, reports=(*same.reports, *finding.reports))
    return list(out.values())


def _explains_any(segmenter: PathSegmenter, findings: list[Finding], trial: PathSample) -> bool:
    """One of the findings explains what the path loses, each of its explanations does."""
    return any(
        all(any(segmenter.crosses(trial.trace, cause) for cause in explanation) for explanation in finding.explanations)
        for finding in findings
    )


def _margin(cause: Cause) -> float:
    return SWITCH_MARGIN if isinstance(cause, Switch) else EVIDENCE_MARGIN


def _losing_pairs(
    link: Cause, best: float, suspects: Iterable[Cause], trials: Iterable[PathSample]
) -> tuple[Explanation, ...]:
    """Two links that explain what a link loses at least as well as it does, each with paths of its own over it."""
    trials = [trial for trial in trials if not trial.lost or PathSegmenter.crosses(trial.trace, link)]
    links = sorted((suspect for suspect in suspects if isinstance(suspect, Link) and suspect != link), key=by_name)
    out = []
    for index, one in enumerate(links):
        gain = _best_gain(one, trials, 1)[0]
        rest = [trial for trial in trials if not PathSegmenter.crosses(trial.trace, one)]
        for other in links[index + 1 :]:
            beside = _best_gain(other, rest, 1)[0]
            if min(gain, beside) >= EVIDENCE_MIN and gain + beside >= best:
                out.append((one, other))
    return tuple(out[: EXPLANATIONS_MAX - 1])


def _are_both(one: Cause, other: Cause, trials: Iterable[PathSample]) -> bool:
    """Each of them loses packets on paths that avoid the other: they are two causes, and no choice."""
    return all(
        _best_gain(mine, [t for t in trials if not PathSegmenter.crosses(t.trace, others)], 1)[0] >= EVIDENCE_MIN
        for mine, others in ((one, other), (other, one))
    )


def _losing_links(segmenter: PathSegmenter, switch: Switch, trials: Iterable[PathSample]) -> tuple[Explanation, ...]:
    """The few links of a switch that would all have to lose packets for it to seem to."""
    paths = []
    for trial in trials:
        if trial.lost and segmenter.crosses(trial.trace, switch):
            around = [segmenter.cause(arc) for arc in trial.trace.arcs]
            paths.append(frozenset(one for one in around if isinstance(one, Link) and switch.name in one.ends))
    covers = [cover for cover in _least_covers(paths) if 2 <= len(cover) <= LINKS_MAX]
    return tuple(tuple(sorted(cover, key=by_name)) for cover in covers[: EXPLANATIONS_MAX - 1])


def _with_losing_direction(
    segmenter: PathSegmenter, finding: Finding, findings: list[Finding], trials: Iterable[PathSample]
) -> Finding:
    """The finding of one link with the directions in which it loses, where paths that lose nowhere else tell them.

    A path that loses nothing tells in any case; one that loses some, where the rest of what it crosses is known not to.
    """
    link = finding.explanations[0][0]
    if len(finding.causes) != 1 or not isinstance(link, Link):
        return finding
    others = {cause for one in findings if one is not finding for cause in one.causes}
    trials = list(trials)
    avoiding = [trial for trial in trials if not segmenter.crosses(trial.trace, link)]
    telling = [
        trial
        for trial in trials
        if segmenter.crosses(trial.trace, link)
        and not any(segmenter.crosses(trial.trace, cause) for cause in others)
        and (not trial.lost or _loses_there_alone(trial, segmenter.arcs(link), avoiding))
    ]
    fits = sorted(((_fit(way, telling), way) for way in _ways(link)), reverse=True)
    if fits[0][0] > fits[1][0] + DIRECTION_MARGIN:
        return replace(finding, arcs=frozenset(fits[0][1]))
    return finding


def _loses_there_alone(trial: PathSample, there: tuple[str, str], avoiding: Iterable[PathSample]) -> bool:
    """Other paths show that each other part of the path does not lose what it does."""
    loss = min(trial.lost / trial.sent, LOSS_MAX)
    acquitted = dict.fromkeys((part for part in trial.trace.parts if part not in there), 0.0)
    for other in avoiding:
        gain = other.lost * math.log(loss / BACKGROUND_LOSS)
        gain += (other.sent - other.lost) * math.log((1 - loss) / (1 - BACKGROUND_LOSS))
        for part in acquitted.keys() & set(other.trace.parts):
            acquitted[part] += max(-gain, 0.0)
    return all(doubt > CLEAN_MAX for doubt in acquitted.values())


def _fit(way: tuple[str, ...], trials: Sequence[PathSample]) -> float:
    """Log-likelihood of the trials when each of these parts loses the same share, whichever fits best.

    A path that crosses a link twice has two chances to lose a packet on one that loses both ways: what it loses beside
    a path that crosses it once tells as much as which of them lose.
    """
    crossed = [sum(part in way for part in trial.trace.parts) for trial in trials]

    def at(kept_once: float) -> float:
        out = 0.0
        for trial, times in zip(trials, crossed, strict=True):
            kept = (1 - BACKGROUND_LOSS) * kept_once**times
            out += trial.lost * math.log(1 - kept) + (trial.sent - trial.lost) * math.log(kept)
        return out

    low, high = math.log(1 - LOSS_MAX), 0.0  # the likelihood has one maximum over the logarithm of what is kept
    for _ in range(FIT_STEPS):
        third = (high - low) / 3
        if at(math.exp(low + third)) < at(math.exp(high - third)):
            low += third
        else:
            high -= third
    return at(math.exp((low + high) / 2))


def _best_gain(cause: Cause, trials: Iterable[PathSample], doubt: float) -> tuple[float, float]:
    """(log-likelihood gained by "this loses packets" over "nothing does", its loss); a link may lose one way only."""
    return max(_gain(way, trials, doubt) for way in _ways(cause))


def _ways(cause: Cause) -> tuple[tuple[str, ...], ...]:
    """In which of its parts a cause may lose packets."""
    if isinstance(cause, Switch):
        return ((cause.name,),)
    one, other = cause.lower.interface, cause.upper.interface
    return (one, other), (one,), (other,)


def _over(way: tuple[str, ...], trials: Iterable[PathSample]) -> list[PathSample]:
    """Those that cross one of the parts."""
    return [trial for trial in trials if not set(way).isdisjoint(trial.trace.parts)]


def _gain(way: tuple[str, ...], trials: Iterable[PathSample], doubt: float) -> tuple[float, float]:
    """`_likelihood` of a suspect; nothing where too many (`doubt`: times CLEAN_MAX) of the trials over it are clean."""
    over = _over(way, trials)
    gain, loss = _likelihood(over)
    if loss * sum(trial.sent for trial in over if not trial.lost) > doubt * CLEAN_MAX:
        return 0.0, 0.0
    return gain, loss


def _likelihood(trials: list[PathSample]) -> tuple[float, float]:
    """(log-likelihood with the loss that the trials show, against the background loss; that loss)."""
    sent, lost = sum(t.sent for t in trials), sum(t.lost for t in trials)
    if not sent or lost <= sent * BACKGROUND_LOSS:
        return 0.0, 0.0
    loss = lost / sent
    kept = (sent - lost) * math.log((1 - loss) / (1 - BACKGROUND_LOSS)) if lost < sent else 0.0
    return lost * math.log(loss / BACKGROUND_LOSS) + kept, loss
