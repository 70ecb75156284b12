"""`mrc bench faults`: does the controller name what is broken, and how soon does each source tell?

Faults of every kind are put at random places of a live fabric that carries traffic, in all planes at once (planes share
no switch, so each is a test of its own and all of them are one of the machine). A round is right when the controller
names the kind and the location, and a false alarm is anything else that it raised in that plane meanwhile. Then pairs
of simultaneous faults, some of them chosen so that two explanations fit: there it has to say that it cannot tell.

Times are of one machine with a few cores that also carries the packets: read them beside each other.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from mrc_testbed.ipc.agent_client import AgentClient, AgentError
from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.fault_injection import Injection
from mrc_testbed.topologies.lab.open_fabric import open_fabric
from mrc_testbed.topologies.lab.options import DEFAULT_LAB
from mrc_testbed.topologies.plan import Link, Plan, Switch

SOURCES = ("gnmi", "p4runtime", "digest", "mapper", "ev")
LINGER_S = 2.5
"""Seconds after a fault was named in which slower sources may report it too."""
CLEAR_S = 40.0
"""Longest time of a fault in the list after its removal, seconds.

A lossy link clears after 100 good probes.
"""
RATE_BPS = 2e6
FILE_BYTES = 8 << 20
POLL_S = 0.02
QUIET_S = 1.0
"""Seconds without a new fault before a round begins."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault: its places, how it is injected, and the name that the controller has to give it."""

    name: str
    elements: Callable[[Plan, int], list[Any]]
    inject: Callable[[Fabric, Any], Injection]
    calls: str | None
    """The controller's word; None: that of a link, a NIC port or a switch that is down."""
    within_s: float
    """A controller that has not named it by then has not found it."""
    passes: bool = False
    """Whether the fault ends by itself: it must be named once, however often it comes and goes."""
    one_way: bool = False
    """Whether the fault takes one direction of a link, from the lower end; the controller must name it."""

    def expected_name(self, element: Any) -> tuple[str, str]:
        if isinstance(element, Link):
            return (self.calls or ("NIC port" if element.lower.node.startswith("h") else "link"), element.name)
        return (self.calls or f"T{element.tier}", element.name)


def _hosts(plan: Plan) -> set[str]:
    return {host.name for host in plan.hosts}


def fabric_links(plan: Plan, plane: int) -> list[Link]:
    """T0-T1 links of a plane."""
    return [k for k in plan.links if k.plane == plane and k.lower.node not in _hosts(plan)]


def nic_links(plan: Plan, plane: int) -> list[Link]:
    """Host-T0 links of a plane."""
    return [k for k in plan.links if k.plane == plane and k.lower.node in _hosts(plan)]


def all_links(plan: Plan, plane: int) -> list[Link]:
    """All links of a plane."""
    return [k for k in plan.links if k.plane == plane]


def switches(plan: Plan, plane: int) -> list[Any]:
    """All switches of a plane."""
    return [s for s in plan.switches if s.plane == plane]


def _ends(link: Link) -> tuple[str, str]:
    return link.lower.node, link.upper.node


def _power_off(fabric: Fabric, switch: Switch) -> Injection:
    injection = fabric.inject.power(switch.name)
    assert injection is not None  # only giving power back makes none
    return injection


def _flap(fabric: Fabric, link: Link) -> Injection:
    return fabric.inject.flap(*_ends(link), period_s=1.0, times=3)


KINDS = {
    kind.name: kind
    for kind in (
        FaultKind("link cut", fabric_links, lambda f, k: f.inject.cut(*_ends(k)), "link", 5.0),
        FaultKind("NIC port down", nic_links, lambda f, k: f.inject.cut_port(*_ends(k)), "NIC port", 5.0),
        FaultKind("switch off", switches, _power_off, None, 5.0),
        FaultKind("blackhole", switches, lambda f, s: f.inject.blackhole(s.name), "blackhole", 10.0),
        FaultKind(
            "one-way cut", fabric_links, lambda f, k: f.inject.one_way_cut(*_ends(k)), "lossy link", 10.0, one_way=True
        ),
        FaultKind("lossy link", all_links, lambda f, k: f.inject.loss(*_ends(k), 0.1), "lossy link", 30.0),
        FaultKind("reboot", switches, lambda f, s: f.inject.reboot(s.name, 1.0), None, 10.0, passes=True),
        FaultKind("flap", all_links, _flap, None, 10.0, passes=True),
    )
}


@dataclass(slots=True)
class FaultRound:
    """Result of one round."""

    kind: str
    plane: int
    expected_names: list[tuple[str, str]]
    """(kind, location) of each fault that was made."""
    named_s: list[float] = field(default_factory=list)
    """Times from a fault to its name, for each fault that was named."""
    by_source: dict[str, float] = field(default_factory=dict)
    """Times from the (first) fault to the report of each source."""
    cleared_s: float | None = None
    unclear: str | None = None
    """The controller's text when it reported several explanations."""
    errors: list[str] = field(default_factory=list)
    """False alarms, and faults not named in time."""

    @property
    def locations(self) -> str:
        return ", ".join(location for _, location in self.expected_names)

    @property
    def is_right(self) -> bool:
        return not self.errors

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "plane": self.plane,
            "expected": self.expected_names,
            "named_s": self.named_s,
            "by_source": self.by_source,
            "cleared_s": self.cleared_s,
            "unclear": self.unclear,
            "wrong": self.errors,
        }


class RoundLedger:
    """The controller's fault list by plane, from its event stream, which a thread reads."""

    def __init__(self, fabric: Fabric) -> None:
        self._watch = fabric.controller.watch(events="fault")
        self._lock = threading.Lock()
        self._faults: dict[int, dict[str, Any]] = {}
        self._first: dict[tuple[int, str, str, int], float] = {}
        self.ended = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for event in self._watch:
            fault = event["fault"]
            with self._lock:
                self._faults[fault["number"]] = fault
                if fault["state"] == "active":
                    name = (fault["number"], fault["kind"], fault["location"], fault["flaps"])
                    self._first.setdefault(name, event["t"])
        self.ended = True

    def close(self) -> None:
        self._watch.close()
        self._thread.join(5.0)

    def active(self, plane: int) -> list[dict[str, Any]]:
        with self._lock:
            return [f for f in self._faults.values() if f["plane"] == plane and f["state"] == "active"]

    def raised_since(self, plane: int, t: float) -> list[dict[str, Any]]:
        """Everything raised in a plane since then, whatever became of it."""
        with self._lock:
            return [f for f in self._faults.values() if f["plane"] == plane and f["raised"] >= t]

    def names(self, number: int) -> set[tuple[str, str]]:
        """Everything a fault was called, by kind and location."""
        with self._lock:
            return {(kind, location) for n, kind, location, _ in self._first if n == number}

    def named_at(self, fault: dict[str, Any], start_time: float) -> float:
        """Time at which it first had its present name, after `start_time`."""
        with self._lock:
            name = (fault["number"], fault["kind"], fault["location"])
            return min(
                t for (*fault_name, _), t in self._first.items() if tuple(fault_name) == name and t >= start_time
            )


def wait_until(condition: Callable[[], bool], limit_s: float) -> bool:
    """Return whether `condition()` has become true within `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def run_round(
    fabric: Fabric,
    ledger: RoundLedger,
    plane: int,
    faults: list[tuple[FaultKind, Any]],
    *,
    may_be_unclear: bool = False,
) -> FaultRound:
    """Inject faults at once, compare the controller's names, undo them, wait until they are cleared."""
    expected_names = [kind.expected_name(element) for kind, element in faults]
    out = FaultRound(" + ".join(kind.name for kind, _ in faults), plane, expected_names)
    began = time.monotonic()
    injections = [kind.inject(fabric, element) for kind, element in faults]
    began_at = min(injection.began_at for injection in injections)

    def has_settled() -> bool:
        reported_faults = ledger.active(plane)
        if may_be_unclear and any(f["kind"] == "unclear" for f in reported_faults):
            return True
        # A fault that ends by itself may have left the list: its record counts.
        if passes:
            reported_faults = ledger.raised_since(plane, began)
        return {(f["kind"], f["location"]) for f in reported_faults} >= set(expected_names)

    passes = any(kind.passes for kind, _ in faults)
    wait_until(has_settled, max(kind.within_s for kind, _ in faults))
    time.sleep(LINGER_S)
    reported_faults = ledger.raised_since(plane, began) if passes else ledger.active(plane)
    # A flapping fault must be one entry, not one for each flap.
    if passes and len({fault["number"] for fault in reported_faults}) > len(expected_names):
        out.errors.append(
            f"a shower of {len(reported_faults)} faults: {'; '.join(fault['text'] for fault in reported_faults)}"
        )
    _judge(out, reported_faults, ledger, began_at, may_be_unclear)
    _check_directions(out, reported_faults, faults)
    _time_sources(out, reported_faults, began_at)
    undone = time.monotonic()
    for injection in injections:
        fabric.inject.undo(injection)
    if wait_until(lambda: not ledger.active(plane), CLEAR_S):
        out.cleared_s = time.monotonic() - undone
    else:
        out.errors.append(f"not cleared in {CLEAR_S:g} s: {', '.join(f['text'] for f in ledger.active(plane))}")
    time.sleep(QUIET_S)
    _check_names(out, reported_faults, ledger, plane, began)
    return out


def _check_directions(
    out: FaultRound, reported_faults: list[dict[str, Any]], faults: list[tuple[FaultKind, Any]]
) -> None:
    directions = {element.name: " -> ".join(_ends(element)) for kind, element in faults if kind.one_way}
    for fault in reported_faults:
        direction = directions.get(fault["location"])
        if direction not in (None, fault["direction"]):
            out.errors.append(f"direction of {fault['location']}: {fault['direction']}, and not {direction}")


def _time_sources(out: FaultRound, reported_faults: list[dict[str, Any]], began_at: float) -> None:
    """Seconds from the fault to the first word of each source."""
    for fault in [
        f for f in reported_faults if not f["flaps"]
    ]:  # of one that came again only the last evidence is known
        for evidence in fault["evidence"]:
            source = evidence["source"].split()[0]
            if evidence["heard"] >= began_at:
                out.by_source[source] = min(out.by_source.get(source, 1e9), evidence["heard"] - began_at)


def _check_names(
    out: FaultRound, reported_faults: list[dict[str, Any]], ledger: RoundLedger, plane: int, began: float
) -> None:
    """False alarms, and names that a fault of this round had only for a while."""
    numbers = {f["number"] for f in reported_faults}
    locations = {location for _, location in out.expected_names}
    for number in numbers:
        for kind, location in sorted(ledger.names(number)):
            if kind != "unclear" and location not in locations:
                out.errors.append(f"called {kind} {location} for a while")
    for fault in ledger.raised_since(plane, began):
        if fault["number"] not in numbers and not (set(fault["into"]) & numbers):
            out.errors.append(f"false alarm: {fault['text']}")


def _judge(
    out: FaultRound, reported_faults: list[dict[str, Any]], ledger: RoundLedger, began_at: float, may_be_unclear: bool
) -> None:
    unnamed = list(out.expected_names)
    for fault in reported_faults:
        name = (fault["kind"], fault["location"])
        if name in unnamed:
            unnamed.remove(name)
            out.named_s.append(ledger.named_at(fault, began_at) - began_at)
        elif fault["kind"] == "unclear":
            out.unclear = fault["text"]
            choices = [{(c["kind"], c["location"]) for c in choice} for choice in fault["alternatives"]]
            if not may_be_unclear or not any(choice <= set(out.expected_names) for choice in choices):
                out.errors.append(f"says {fault['text']}")
            unnamed = [name for name in unnamed if not any(name in choice for choice in choices)]
            out.named_s.append(ledger.named_at(fault, began_at) - began_at)
        else:
            out.errors.append(f"false alarm: {fault['text']}")
    out.errors += [f"not named: {kind} {location}" for kind, location in unnamed]
    if may_be_unclear and out.unclear is None:
        out.errors.append(f"two explanations fit, and it named one: {', '.join(f['text'] for f in reported_faults)}")


# ---- pairs --------------------------------------------------------------------------------------------------


def pairs(plan: Plan, plane: int, rng: random.Random) -> Iterator[tuple[list[tuple[FaultKind, Any]], bool]]:
    """(two or more faults at once, whether two explanations fit), again and again."""
    links, nics = fabric_links(plan, plane), nic_links(plan, plane)
    t1s = [s for s in switches(plan, plane) if s.tier == 1]
    while True:
        t1 = rng.choice(t1s)
        t1_links = [k for k in links if t1.name in k.ends]
        other_links = [k for k in links if t1.name not in k.ends]
        nic, other_nic = rng.sample(nics, 2)
        all_cuts = [(KINDS["link cut"], link) for link in t1_links]
        # All links of a T1 that still answers: the T1, or both links?
        if len(t1_links) == 2:
            yield all_cuts, True
        yield [(KINDS["link cut"], rng.choice(links)), (KINDS["NIC port down"], nic)], False
        yield [(KINDS["link cut"], rng.choice(t1_links)), (KINDS["link cut"], rng.choice(other_links))], False
        yield [(KINDS["switch off"], t1), (KINDS["NIC port down"], nic)], False
        if len(t1_links) == 2:
            yield all_cuts, True
        yield [(KINDS["blackhole"], t1), (KINDS["link cut"], rng.choice(other_links))], False
        # A NIC link loses packets and the only other host of the rack has no port: its link, or their T0?
        is_unclear = plan.hosts_per_rack == 2 and nic.upper.node == other_nic.upper.node
        yield [(KINDS["lossy link"], nic), (KINDS["NIC port down"], other_nic)], is_unclear


# ---- the run ------------------------------------------------------------------------------------------------


@contextmanager
def traffic(fabric: Fabric, folder: Path) -> Iterator[None]:
    """Every host sends to one in another rack, over and over, so that EVs carry packets."""
    plan, stop = fabric.plan, threading.Event()
    source = folder / "data"
    with source.open("wb") as out:
        out.truncate(FILE_BYTES)

    def send(name: str) -> None:
        peers = [h for h in plan.hosts if h.rack != plan.host(name).rack] or [h for h in plan.hosts if h.name != name]
        peer = peers[plan.host(name).number % len(peers)].name
        while not stop.is_set():
            try:
                with AgentClient(fabric.run_dir.agent_socket(name)) as agent:
                    answer = agent.send_file(source, peer, dest_path=str(folder / f"from-{name}"), rate_bps=RATE_BPS)
                    while not stop.is_set():
                        try:
                            agent.wait(answer["transfer"], timeout_s=2.0)
                            break
                        # A timeout or a failed transfer under faults is expected: try again.
                        except AgentError:
                            continue
            except AgentError:
                stop.wait(0.5)

    threads = [threading.Thread(target=send, args=(host.name,), daemon=True) for host in plan.hosts]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(5.0)


def run(
    plan: Plan,
    *,
    loop: int,
    pair_count: int,
    kinds: list[str],
    seed: int,
    console: Console,
    with_traffic: bool = True,
) -> dict[str, Any]:
    """Bring a fabric up, run `loop` single faults and `pair_count` pairs; return the result as JSON.

    `passed` is a part of it.
    """
    with ExitStack() as stack:
        fabric = stack.enter_context(open_fabric(plan, DEFAULT_LAB, console))
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="mrc-faults-")))
        ledger = RoundLedger(fabric)
        stack.callback(ledger.close)
        if with_traffic:
            stack.enter_context(traffic(fabric, folder))
        wait_until(lambda: fabric.controller.request("status")["sources"]["mapper"]["paths"] > 0, 15.0)
        time.sleep(3.0)  # probes of all paths, EVs warm
        faults_before = [fault["text"] for fault in fabric.controller.request("faults")["faults"]]
        singles = _run_planes(fabric, ledger, plan, loop, seed, console, lambda p, rng: _singles(plan, p, kinds, rng))
        doubles = _run_planes(
            fabric, ledger, plan, pair_count, seed + 1, console, lambda p, rng: islice(pairs(plan, p, rng), p, None)
        )
        fabric.check()
    rounds = [*singles, *doubles]
    result = {
        "plan": plan.to_json(),
        "seed": seed,
        "singles": _summary(singles),
        "pairs": {
            "rounds": len(doubles),
            "right": sum(double.is_right for double in doubles),
            "cannot_tell": sum(double.unclear is not None and double.is_right for double in doubles),
        },
        "sources": _sources(rounds),
        "before": faults_before,
        "wrong": [
            f"{round_.kind} at {', '.join(location for _, location in round_.expected_names)}: {w}"
            for round_ in rounds
            for w in round_.errors
        ],
        "rounds": [round_.to_json() for round_ in rounds],
    }
    result["passed"] = not result["wrong"] and not faults_before and len(singles) >= loop and len(doubles) >= pair_count
    _print(result, singles, doubles, console)
    return result


Plot = Iterator[tuple[list[tuple[FaultKind, Any]], bool]]


def _singles(plan: Plan, plane: int, kinds: list[str], rng: random.Random) -> Plot:
    """Every kind in turn, at random places; planes begin with different ones."""
    turn = plane
    while True:
        kind = KINDS[kinds[turn % len(kinds)]]
        turn += 1
        yield [(kind, rng.choice(kind.elements(plan, plane)))], False


def _run_planes(
    fabric: Fabric,
    ledger: RoundLedger,
    plan: Plan,
    total: int,
    seed: int,
    console: Console,
    plot: Callable[[int, random.Random], Plot],
) -> list[FaultRound]:
    """`total` rounds, as many in each plane, all planes side by side."""
    out: list[FaultRound] = []
    rounds_left = [total]
    lock = threading.Lock()
    errors: list[BaseException] = []

    def work(plane: int) -> None:
        # A generator of its own makes a plane's faults independent of the other planes' speed.
        story = plot(plane, random.Random(f"{seed}/{plane}"))
        try:
            while not errors:
                with lock:
                    if rounds_left[0] <= 0:
                        return
                    rounds_left[0] -= 1
                fabric.check()
                faults, may_be_unclear = next(story)
                round_ = run_round(fabric, ledger, plane, faults, may_be_unclear=may_be_unclear)
                with lock:
                    out.append(round_)
                    _print_round(round_, len(out), total, console)
        except (JsonlError, FabricError, OSError) as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(plane,)) for plane in range(plan.planes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return out


def _print_round(round_: FaultRound, number: int, total: int, console: Console) -> None:
    mark = "[green]ok[/green]   " if round_.is_right else "[red]WRONG[/red]"
    times = ", ".join(f"{name} {1e3 * s:.0f}" for name, s in sorted(round_.by_source.items(), key=lambda p: p[1]))
    verdict = f"named after {1e3 * max(round_.named_s):.0f} ms" if round_.named_s else "not named"
    console.print(
        f"{number:>4}/{total}  {mark} {round_.kind}: {round_.locations}: {verdict} ({times}) {'; '.join(round_.errors)}"
    )


def spread(values: list[float]) -> dict[str, float]:
    """Median, 95th percentile and maximum, and how many there are."""
    sorted_values = sorted(values)
    return {
        "n": len(sorted_values),
        "median": statistics.median(sorted_values),
        "p95": sorted_values[min(len(sorted_values) - 1, round(0.95 * (len(sorted_values) - 1)))],
        "max": sorted_values[-1],
    }


def _summary(rounds: list[FaultRound]) -> dict[str, Any]:
    out: dict[str, Any] = {"rounds": len(rounds), "right": sum(round_.is_right for round_ in rounds), "kinds": {}}
    for name in dict.fromkeys(round_.kind for round_ in rounds):
        kind_rounds = [round_ for round_ in rounds if round_.kind == name]
        naming_times, clearing_times = (
            [s for round_ in kind_rounds for s in round_.named_s],
            [o.cleared_s for o in kind_rounds if o.cleared_s is not None],
        )
        out["kinds"][name] = {
            "rounds": len(kind_rounds),
            "right": sum(round_.is_right for round_ in kind_rounds),
            "named_s": spread(naming_times) if naming_times else None,
            "cleared_s": spread(clearing_times) if clearing_times else None,
            "sources": _sources(kind_rounds),
        }
    return out


def _sources(rounds: list[FaultRound]) -> dict[str, Any]:
    out = {}
    for source in SOURCES:
        if source_times := [round_.by_source[source] for round_ in rounds if source in round_.by_source]:
            out[source] = spread(source_times)
    return out


def _ms(values: dict[str, float] | None) -> list[str]:
    return ["-"] * 3 if values is None else [f"{1e3 * values[key]:.0f}" for key in ("median", "p95", "max")]


def _print(result: dict[str, Any], singles: list[FaultRound], doubles: list[FaultRound], console: Console) -> None:
    table = Table(title="time from a fault to its name, ms", title_justify="left")
    for column in ("kind", "rounds", "right", "median", "p95", "max", "cleared, median"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for name, stats in result["singles"]["kinds"].items():
        clearing = f"{1e3 * stats['cleared_s']['median']:.0f}" if stats["cleared_s"] else "-"
        table.add_row(name, str(stats["rounds"]), str(stats["right"]), *_ms(stats["named_s"]), clearing)
    console.print(table)
    table = Table(title="time from a fault to the word of a source, ms", title_justify="left")
    for column in ("kind", "source", "told", "median", "p95", "max"):
        table.add_column(column, justify="left" if column in ("kind", "source") else "right")
    for name, stats in [*result["singles"]["kinds"].items(), ("all", {"sources": result["sources"]})]:
        for source, values in stats["sources"].items():
            table.add_row(name, source, str(values["n"]), *_ms(values))
    console.print(table)
    counts = result["pairs"]
    console.print(
        f"single faults: {result['singles']['right']} of {len(singles)} right; "
        f'pairs: {counts["right"]} of {counts["rounds"]} right, {counts["cannot_tell"]} of them rightly "cannot tell"'
    )
    for double in doubles:
        if double.unclear:
            console.print(f"  {double.unclear}")
    for text in [*(f"before any fault: {text}" for text in result["before"]), *result["wrong"]]:
        console.print(f"[red]{text}[/red]")
    console.print("[green]passed[/green]" if result["passed"] else "[red]failed[/red]")
