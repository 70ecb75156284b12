"""Checks that the names in a scenario exist: hosts, links, switches, keys, metrics, variants.

problems = check(document, scenario)      # [] when all is well
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mrc_testbed.console.units import short_seconds, show_rate, show_seconds
from mrc_testbed.experiments.language.metric_names import all_names, find
from mrc_testbed.experiments.language.model import (
    OWN_SCALE,
    AnyRule,
    Collective,
    Expect,
    ExpectFailure,
    Incast,
    Permutation,
    ProgramWork,
    RankWork,
    Scenario,
    ScenarioFault,
    Stream,
    TraceWork,
    Training,
    Transport,
    Work,
)
from mrc_testbed.experiments.language.topology import grid_problem, tier_speed, topology_of
from mrc_testbed.experiments.language.yaml_loader import Document, Loc, Problem
from mrc_testbed.experiments.resolve.engine_clock import FROM_LINKS, config_times, rc_times
from mrc_testbed.experiments.resolve.placement import jobs_of, placements
from mrc_testbed.experiments.resolve.recipe import tier_queues
from mrc_testbed.experiments.traces.errors import TraceError
from mrc_testbed.experiments.traces.read import trace_of
from mrc_testbed.faults import KINDS
from mrc_testbed.faults.places import host_mistakes
from mrc_testbed.faults.terms import suggestion
from mrc_testbed.hosts.engine.config import KEYS, Config, ConfigError
from mrc_testbed.hosts.engine.errors import LocalError
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from mrc_testbed.hosts.traffic.collectives import CollectiveError
from mrc_testbed.hosts.traffic.mailbox_collectives import AllToAll
from mrc_testbed.hosts.traffic.tree_collectives import AllReduceHierarchical, members_of
from mrc_testbed.simulator.profiles import ProfileError, engine_keys, scaled_profiles
from mrc_testbed.topologies.plan import Mode, Outline, Plan, PlanError
from mrc_testbed.topologies.plan.link_speeds import round_trip_s, scaled_speed

RECIPE_RTT_S = 0.010
"""Round trip that the engines' default timers are made for, seconds; a clock of 1."""
TIMER_RTTS_MAX = 100.0
"""Longest retry timer, in round trips: the recipe's is 6.7, and losses that wait longer are no result."""
PROBE_TIMER_RTTS = 1.5
"""Probes' timer over the retry timer, as the recipe has them."""
CLOCK_MIN = 1e-3
SAMPLES_MAX = 1e6
"""Most intervals of a run's series."""
MODES_WITH_PATHS = ("srv6", "stev")
"""Modes in which an EV names a path, so that it can be pinned or denied."""


def dimensions_of(scenario: Scenario) -> Plan:
    """Return a settled scenario's fabric; an outline where only the fluid model takes it.

    Mode and rates are not in it, but for a topology file's, whose links may have their own.

    Raises PlanError.
    """
    part = scenario.fabric
    if (topology := topology_of(scenario)) is not None:
        return topology.plan(scenario.mode, pmtu_bytes=scenario.transport.pmtu, links=scenario.links)
    sizes = part.planes, part.racks, part.spines, part.hosts_per_rack
    try:
        return Plan(*sizes)
    except PlanError:
        return Outline(*sizes)


def work_names(scenario: Scenario) -> list[str]:
    """Return the names of the workloads: `name`, or the kind; numbered when that is not unique."""
    out: list[str] = []
    for work in scenario.workload:
        name = work.name or _default_name(work)
        alike = [earlier for earlier in out if earlier == name or earlier.startswith(name + "-")]
        out.append(f"{name}-{len(alike) + 1}" if name in out else name)
    return out


def _default_name(work: Any) -> str:
    match work:
        case Stream():
            return "-".join(work.stream)
        case Permutation():
            return "permutation"
        case Incast():
            return "incast"
        case Collective():
            return work.collective
        case Training():
            return "training"
        case TraceWork():
            return "trace"
        case ProgramWork():
            return "program"
    raise TypeError(work)


def check(document: Document, scenario: Scenario, *, outlined: bool = False, live: bool = False) -> list[Problem]:
    """Return the problems of one scenario, `live` or in virtual time.

    `outlined`: its fabric may be larger than a plan can be.
    """
    part = scenario.fabric
    try:
        sizes = part.planes, part.racks, part.spines, part.hosts_per_rack
        plan = dimensions_of(scenario) if outlined or part.file else Plan(*sizes)
    except PlanError as error:
        return [grid_problem(document, error)]
    return [document.problem(loc, text, is_reference=True) for loc, text in _problems(scenario, plan, live=live)]


def _problems(scenario: Scenario, plan: Plan, *, live: bool) -> Iterator[tuple[Loc, str]]:
    yield from _workload(scenario, plan, live=live)
    yield from _transport(("transport",), scenario.transport)
    yield from _links(scenario, live=live)
    for index, fault in enumerate(scenario.faults):
        yield from _fault(("faults", index), fault, scenario, plan)
    yield from _expectations(scenario, plan)
    if scenario.duration is not None and (count := scenario.duration / scenario.measure.every) > SAMPLES_MAX:
        length = short_seconds(scenario.duration)
        text = f"{count:.3g} intervals in {length}: at most {SAMPLES_MAX:g}; give a longer one"
        yield ("measure", "every"), text
    if scenario.duration is None and any(_endless(work) for work in scenario.workload):
        yield ("workload",), "a workload without bytes never ends: give the scenario a duration, or the workload bytes"


def _endless(work: Any) -> bool:
    return not isinstance(work, RankWork | ProgramWork) and work.bytes is None and work.stop is None


def _workload(scenario: Scenario, plan: Plan, *, live: bool) -> Iterator[tuple[Loc, str]]:
    index_by_name: dict[str, int] = {}
    hosts_by_work = placements(scenario, plan, scenario.seed)
    for index, work in enumerate(scenario.workload):
        loc: Loc = ("workload", index)
        if work.name and work.name in index_by_name:
            yield (*loc, "name"), f"{work.name!r} is the name of workload {index_by_name[work.name] + 1} already"
        index_by_name.setdefault(work.name, index)
        if "." in work.name or work.name == "total":
            yield (*loc, "name"), f"{work.name!r}: a name has no dots and is not `total`"
        mistakes = [*_work(work, scenario, plan)]
        if isinstance(work, RankWork):
            mistakes += _jobs(work, hosts_by_work[index], plan)
        if isinstance(work, ProgramWork):
            mistakes += _program(work, hosts_by_work[index], live=live)
        for key, text in mistakes:
            yield (*loc, key), text
        for key, name in _hosts_of(work):
            yield from (((*loc, key), text) for text in host_mistakes(name, plan))
        if work.transport is not None:
            yield from _transport((*loc, "transport"), work.transport)


def _hosts_of(work: Work) -> list[tuple[str, str]]:
    """Return (key, name) of every host that a workload names."""
    match work:
        case Stream():
            return [("stream", name) for name in work.stream]
        case Permutation() if work.permutation != "all":
            senders, receivers = work.permutation
            return [("permutation", name) for name in (*senders, *receivers)]
        case Incast():
            return [("incast", work.incast), *(("sources", name) for name in work.sources)]
        case RankWork() | ProgramWork() if isinstance(work.ranks, list):
            return [("ranks", name) for name in work.ranks]
    return []


def _work(work: Work, scenario: Scenario, plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield (key, mistake) of one workload, names of hosts apart."""
    match work:
        case Stream():
            if work.stream[0] == work.stream[1]:
                yield "stream", f"{work.stream[0]} cannot send to itself"
            yield from _pins("pin", work.pin, scenario, plan)
        case Permutation() if work.permutation != "all":
            senders, receivers = work.permutation
            if len(senders) != len(receivers):
                yield "permutation", f"{len(senders)} senders and {len(receivers)} receivers: as many of each"
        case Incast():
            if work.incast in work.sources:
                yield "sources", f"{work.incast} cannot send to itself"
            yield from _pins("pins", work.pins, scenario, plan)
            if work.pins and len(work.pins) != len(work.sources):
                yield "pins", f"{len(work.pins)} nodes and {len(work.sources)} senders: as many of each"


def _pins(key: str, pinned_nodes: list[str] | None, scenario: Scenario, plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield (key, mistake) of the nodes that paths have to cross."""
    nodes = [*(node.name for part in (plan.hosts, plan.switches) for node in part)] if pinned_nodes else []
    for node in pinned_nodes or ():
        if node not in nodes:
            yield key, f"no node {node!r} ({suggestion(node, nodes)})"
    if pinned_nodes and scenario.mode not in MODES_WITH_PATHS:
        yield key, f"in mode {scenario.mode} an EV names no path (modes: {', '.join(MODES_WITH_PATHS)})"


def _program(work: ProgramWork, hosts: tuple[str, ...], *, live: bool) -> Iterator[tuple[str, str]]:
    """Yield (key, mistake) of a program on these hosts."""
    if not live:
        yield (
            "program",
            "a program runs on the live fabric only: virtual time has no processes. Cure: without --virtual, as root, "
            "and `only: live` in the file",
        )
    if isinstance(work.ranks, int) and len(hosts) < work.ranks:
        yield "ranks", f"{work.ranks} ranks, and {len(hosts)} hosts are free: one rank a host"
    if len(set(hosts)) != len(hosts) or not hosts:
        yield "ranks", "one rank a host, and at least one"
    if work.transport is not None:
        yield "transport", "a program has the transport of the hosts' RDMA devices. Cure: leave it out"
    if work.stop is not None and work.stop <= work.start:
        yield "stop", f"{short_seconds(work.stop)} is not after its start"


def _jobs(work: RankWork, hosts: tuple[str, ...], plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the mistakes of a workload with ranks on these hosts; of several jobs, the first faulty one."""
    if not isinstance(work.ranks, int):
        if work.jobs > 1:
            yield "jobs", f"{work.jobs} jobs choose their hosts by `placement`: give how many `ranks` each has"
            return
    elif len(hosts) < work.ranks * work.jobs:
        demand = f"{work.jobs} jobs of {work.ranks} ranks" if work.jobs > 1 else f"{work.ranks} ranks"
        yield "jobs" if work.jobs > 1 else "ranks", f"{demand}, and {len(hosts)} hosts are free: one rank a host"
        return
    host_names = {host.name for host in plan.hosts}
    for ranks in jobs_of(work, hosts):
        if mistakes := [*_ranks(work, ranks, plan, host_names)]:
            yield from mistakes
            return


def _ranks(work: RankWork, ranks: tuple[str, ...], plan: Plan, host_names: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the mistakes of one job of a workload on these hosts."""
    if len(ranks) < 2 or len(set(ranks)) != len(ranks):
        yield "ranks", "two different ranks or more"
        return
    if isinstance(work, Collective) and work.collective == AllReduceHierarchical.kind and set(ranks) <= host_names:
        # racks of unknown hosts cannot be compared: _workload() reports the names
        try:
            members_of(tuple(plan.host(name).rack for name in ranks), len(ranks))
        except CollectiveError as error:
            yield "ranks", str(error)
    if isinstance(work, Collective) and work.at_once and work.collective != AllToAll.kind:
        yield "at_once", f"a collective {work.collective!r} has an order of its own: only all_to_all takes it"
    if isinstance(work, TraceWork):
        try:
            trace_ranks = len(trace_of(work).ranks)
        except TraceError as error:
            yield "trace", str(error)
            return
        if trace_ranks > len(plan.hosts):
            yield "trace", f"trace of {trace_ranks} ranks on a fabric of {len(plan.hosts)} hosts: one rank a host"
        elif work.ranks != "all" and len(ranks) != trace_ranks:
            yield "ranks", f"{len(ranks)} ranks for a trace of {trace_ranks}"
    if isinstance(work, Training):
        shape = work.training
        if len(ranks) % shape.stages or shape.layers % shape.stages:
            yield (
                "training",
                f"{len(ranks)} ranks and {shape.layers} layers in {shape.stages} stages: both must be multiples of it",
            )


def _transport(loc: Loc, transport: Transport) -> Iterator[tuple[Loc, str]]:
    try:
        Config.from_json(transport.config) if transport.kind == "mrc" else RcConfig(**transport.config)
    except (ConfigError, LocalError, ValueError) as error:
        yield (*loc, "config"), str(error)
    except TypeError as error:
        known_keys = list(RcConfig.__dataclass_fields__)
        unknown = [key for key in transport.config if key not in known_keys]
        yield (
            (*loc, "config"),
            f"no key {unknown[0]!r} ({suggestion(unknown[0], known_keys)})" if unknown else str(error),
        )


def _links(scenario: Scenario, *, live: bool) -> Iterator[tuple[Loc, str]]:
    """Yield mistakes in the recipe's values for links and clocks, each at the key that it comes from."""
    links, planes = scenario.links, scenario.fabric.planes
    rates: dict[Loc, float] = {("links", "rate"): links.rate}
    for tier in ("host", "fabric"):
        if (rate := getattr(links, tier).rate) is not None:
            rates["links", tier, "rate"] = rate
    slow = [loc for loc, rate in rates.items() if rate <= 0]
    yield from ((loc, "must be more than 0, such as 10M") for loc in slow)
    if links.rtt <= 0:
        yield ("links", "rtt"), "must be more than 0, such as 10ms"
    if slow or links.rtt <= 0:
        return
    transports: list[tuple[Loc, Transport]] = [(("transport",), scenario.transport)]
    transports += [
        (("workload", index, "transport"), work.transport)
        for index, work in enumerate(scenario.workload)
        if work.transport is not None
    ]
    for loc, transport in transports:
        mistakes = [*_derived_keys(loc, transport, scenario)]
        yield from mistakes
        if (*loc, "clock") not in (key_loc for key_loc, _ in mistakes):
            yield from _unfit_timers(loc, transport, scenario, live=live)
    try:
        scaled_profiles(planes, rate_bps=links.rate, rtt_s=links.rtt, pmtu_bytes=scenario.transport.pmtu)
    except ProfileError as error:
        yield ("links",), f"{error}: give a higher rate, a longer rtt or a smaller pmtu"
    except ConfigError:
        pass  # _derived_keys has reported it, at its key
    for rate_loc, rate in rates.items():
        try:
            tier_queues(scenario, rate)
        except ProfileError as error:
            yield (
                rate_loc,
                f"queues of {rate * links.rtt / 8:g} bytes a BDP: {error}; give a higher rate or a longer rtt",
            )


def _derived_keys(loc: Loc, transport: Transport, scenario: Scenario) -> Iterator[tuple[Loc, str]]:
    """Yield derived engine keys that are out of range, and timers that do not fit the round trip."""
    links = scenario.links
    keys = engine_keys(scenario.fabric.planes, rate_bps=links.rate, rtt_s=links.rtt, pmtu_bytes=transport.pmtu)
    sources: dict[str, tuple[Loc, float]] = {key: (("links", "rtt"), links.rtt) for key in FROM_LINKS}
    sources["link_rate_bps"] = ("links", "rate"), links.rate
    by_rtt = "rtt" in links.model_fields_set and "rate" not in links.model_fields_set
    sources["cwnd_bytes"] = sources["base_rtt_s" if by_rtt else "link_rate_bps"]
    reported_locs: set[Loc] = set()
    for key, value in (keys | config_times(transport.clock)).items():
        key_loc, source = sources.get(key, ((*loc, "clock"), transport.clock))
        if key_loc in reported_locs or (transport.kind == "mrc" and key in transport.config):
            continue
        limit = KEYS[key].range
        if limit is None or limit.allows(
            value
        ):  # what links and clocks make are numbers; `scaled_profiles` makes them whole
            continue
        reported_locs.add(key_loc)
        low, high = limit.low / value * source, limit.high / value * source
        if key == "timeout":  # an exponent
            low, high = (2.0 ** (exponent - KEYS[key].default) for exponent in (limit.low, limit.high))
        # A source shows its unit, as the file has it: a clock and a rate have none or another than a time.
        units: dict[str, Callable[[float], str]] = {"rtt": show_seconds, "rate": show_rate}
        show = units.get(str(key_loc[-1]), "{:.4g}".format)
        yield (
            key_loc,
            f"{show(source)} makes {key} = {value:.3g}: {limit}; give {show(low)} to {show(high)}, "
            f"or {key} in transport.config",
        )


def _unfit_timers(loc: Loc, transport: Transport, scenario: Scenario, *, live: bool) -> Iterator[tuple[Loc, str]]:
    """Yield the first timer that is shorter than the round trip, or far longer than the recipe's.

    A timer that the file itself sets is the file's choice. Live fabrics have no clock: their timers may be short.
    """
    round_trip = _longest_round_trip(scenario)
    timers = config_times(transport.clock) if transport.kind == "mrc" else rc_times(transport.clock)
    if transport.kind == "mrc":
        config = Config.of(**timers)
        candidates = [("timeout", "retry", config.loss.base_timeout_s)]
        candidates += [("probe_timeout_s", "probe", config.to_json()["probe_timeout_s"])]
    else:
        candidates = [("timeout", "retry", RcConfig(**timers).timeout_s)]
    for key, name, timer_s in candidates:
        trips = timer_s / round_trip
        most_trips = TIMER_RTTS_MAX * PROBE_TIMER_RTTS if key == "probe_timeout_s" else TIMER_RTTS_MAX
        least_trips = 0.0 if live else 1.0
        if key in transport.config or least_trips <= trips <= most_trips:
            continue
        key_loc: Loc = ("links", "rtt")
        if "clock" in transport.model_fields_set:
            key_loc = (*loc, "clock")
        elif round_trip > 2 * scenario.links.rtt:  # delays or rates of single tiers made it
            key_loc = ("links",)
        clock = max(CLOCK_MIN, round_trip / RECIPE_RTT_S)
        cure = f"give transport: {{clock: {clock:.3g}}} (virtual time alone), or {key} in transport.config"
        yield (
            key_loc,
            f"the {name} timer is {show_seconds(timer_s)}, {trips:.{0 if trips > 10 else 2}f} round trips of "
            f"{show_seconds(round_trip)}: {cure}",
        )
        return


def _longest_round_trip(scenario: Scenario) -> float:
    """Return the unloaded round trip over a T1, seconds: of `links.rtt`, or longer by what its tiers have."""
    links, pmtu, mode = scenario.links, scenario.transport.pmtu, Mode(scenario.mode)
    try:
        base = scaled_speed(links.rate, links.rtt, pmtu, mode)
        host, fabric = tier_speed(base, links.host), tier_speed(base, links.fabric)
    except PlanError:
        return links.rtt  # the plan of the fabric reports it
    return max(links.rtt, round_trip_s([host, fabric, fabric, host], pmtu, mode))


def _fault(loc: Loc, fault: ScenarioFault, scenario: Scenario, plan: Plan) -> Iterator[tuple[Loc, str]]:
    for sub_loc, text in KINDS[fault.action].check(fault.value, plan):
        yield (*loc, fault.action, *sub_loc), text
    if fault.at is not None and fault.at.seconds is not None and scenario.duration is not None:
        late = fault.at.seconds >= scenario.duration
        if late:
            yield (*loc, "at"), f"{fault.at} is not before the end of the run ({short_seconds(scenario.duration)})"


def _expectations(scenario: Scenario, plan: Plan) -> Iterator[tuple[Loc, str]]:
    works = work_names(scenario)
    ports = [*scenario.measure.queues]
    for index, port in enumerate(ports):
        interfaces = [p.interface for switch in plan.switches for p in plan.ports(switch.name)]
        if port != "last-hop" and port not in interfaces:
            yield (
                ("measure", "queues", index),
                f"no interface {port!r} of a switch ({suggestion(port, ['last-hop', *interfaces[:3]])})",
            )
    labels = {"variant": list(scenario.variants)} | {name: None for name in scenario.sweep}
    scales = [OWN_SCALE, *scenario.scale]
    for index, rule in enumerate(scenario.expect):
        yield from _rule(("expect", index), rule, works, ports, labels)
        yield from _selection(("expect", index, "where"), rule.where, labels)
        if rule.scale is not None and rule.scale not in scales:
            yield ("expect", index, "scale"), f"no scale {rule.scale!r} ({suggestion(rule.scale, scales)})"
    for index, figure in enumerate(scenario.figures):
        if find(figure.metric, works, ports) is None:
            yield (
                ("figures", index, "metric"),
                f"no metric {figure.metric!r} ({suggestion(figure.metric, all_names(works, ports))})",
            )
        if figure.x is not None and figure.x not in scenario.sweep:
            yield ("figures", index, "x"), f"no sweep {figure.x!r} ({suggestion(figure.x, scenario.sweep)})"
        yield from _selection(("figures", index, "where"), figure.where, labels)


def _rule(
    loc: Loc, rule: AnyRule, works: list[str], ports: list[str], labels: dict[str, Any]
) -> Iterator[tuple[Loc, str]]:
    if not isinstance(rule, Expect):
        key, work = ("failed", rule.failed) if isinstance(rule, ExpectFailure) else ("unfinished", rule.unfinished)
        if work not in works:
            yield (*loc, key), f"no workload {work!r} ({suggestion(work, works)})"
        return
    for key in ("metric", "of"):
        name = getattr(rule, key)
        if name is None or (key == "of" and name in ("baseline", "capacity")):
            continue
        metric = find(name, works, ports)
        if metric is None:
            yield (*loc, key), f"no metric {name!r} ({suggestion(name, all_names(works, ports))})"
        elif key == "metric" and not metric.series and (rule.start or rule.stop or rule.each):
            yield (*loc, key), f"{name} is one number for the whole run: `from`, `to` and `each` make no sense"
    yield from _selection((*loc, "compared_to"), rule.compared_to or {}, labels)


def _selection(loc: Loc, selection: dict[str, Any], labels: dict[str, Any]) -> Iterator[tuple[Loc, str]]:
    """Yield mistakes in the variants and sweeps that select runs."""
    for name, value in selection.items():
        if name not in labels:
            yield loc, f"no sweep or variant key {name!r} ({suggestion(name, labels)})"
        elif name == "variant" and not set(value if isinstance(value, list) else [value]) <= set(labels["variant"]):
            yield loc, f"no variant {value!r} ({suggestion(value, labels['variant'])})"
