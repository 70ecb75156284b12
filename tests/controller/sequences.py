"""Random orders of faults and restores over the whole controller.

    python -m tests.controller.sequences --sequences 10000

Each sequence draws a fabric, a program, a policy and 5 to 40 steps: links that flap, switches that go, restart, stop,
answer late, lose answers, refuse writes and counters or are taken by another controller; ports, EVs and probes that
are told twice, late, out of order, not at all or of places that do not exist; agents, Clustermapper and the controller
itself that end and come back. Then all is restored. No exception may escape a reaction, and within bounded virtual
time there is no fault and no problem left, every switch holds the plan's entries and every agent the controller's
denylist.

A sequence that fails is shrunk to the steps that it needs, and printed so that `run_sequence` takes them.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from finsy.proto import gnmi

from mrc_testbed.controller.app import NotReady
from mrc_testbed.topologies.plan import Plan
from tests.controller.conftest import catalog_of
from tests.controller.fabric_in_memory import FabricInMemory, in_memory
from tests.jumping_loop import JumpingLoop
from tests.lines_in_memory import Fate

FABRICS = ((1, 2, 2, 1), (2, 2, 2, 1), (1, 2, 2, 2), (1, 3, 2, 1))
"""(planes, racks, spines, hosts in a rack)."""
SETTLED_S = 120.0
"""Time from the last restore until nothing may be left, virtual seconds.

A stream that is stopped, a request that waits, the soak of a flapping fault and the pause of a client are each far
below it.
"""
CALM_S = 15.0
"""A fabric that is as it ought to be for so long stays so.

Every tenth sequence waits for all of `SETTLED_S`.
"""
LOOK_S = 1.0
READY_S = 20.0
"""Longest time that a controller takes to be ready on a fabric that is whole."""
AFTER_READY_S = 2.0
DEADLINE_S = 61.0
"""Time that a controller has to bring the fabric in line when it begins, and a little."""
CHUNK = 10

catalog = cache(catalog_of)


@dataclass(frozen=True)
class Step:
    """Something that happens `after_s` the step before; `choice` and `number` choose among what there is."""

    after_s: float
    name: str
    choice: int = 0
    number: float = 0.0


@dataclass(frozen=True)
class Sequence:
    seed: int
    fabric: tuple[int, int, int, int]
    program: str
    options: tuple[tuple[str, object], ...]
    steps: tuple[Step, ...]


def draw(seed: int) -> Sequence:
    rng = random.Random(seed)
    program = rng.choice(("srv6", "spray"))
    options: list[tuple[str, object]] = [("denylist", rng.choice((None, "off", "lossy", "all")))]
    if program == "spray":
        options.append(("react_after_s", rng.choice((0.0, 0.4, 3.0))))
    steps = []
    mean_pause_s = rng.choice((0.05, 0.5, 3.0))
    names = sorted(STEPS)
    if rng.random() < 0.5:
        names = rng.sample(names, 6)
    for _ in range(rng.randint(5, 40)):
        pause_s = round(rng.expovariate(1 / mean_pause_s), 3)
        steps.append(Step(pause_s, rng.choice(names), rng.randrange(1000), rng.random()))
    return Sequence(seed, rng.choice(FABRICS), program, tuple(options), tuple(steps))


# ---- the steps ----------------------------------------------------------------------------------------------


def _pick(items, step):
    items = list(items)
    return items[step.choice % len(items)]


def _switch(fabric, step):
    return _pick(fabric.switches.values(), step)


def _link(fabric, step):
    return _pick(fabric.plan.links, step)


def _core_arc(fabric, step):
    links = [link for link in fabric.plan.links if link.lower.node in fabric.switches]
    return _pick([arc for link in links for arc in fabric.segmenter.arcs(link)], step)


async def _power(fabric, step, on):
    _switch(fabric, step).power(on)
    fabric.apply_changes()


async def _black_hole(fabric, step):
    switch = _switch(fabric, step)
    switch.is_black_hole = not switch.is_black_hole
    fabric.apply_changes()


async def _toggle(target, name):
    setattr(target, name, not getattr(target, name))


async def _restart_controller(fabric, step):
    await fabric.stop()
    await asyncio.sleep(step.number)
    await fabric.start(**dict(fabric.options))


def _agent(fabric, step):
    return _pick(fabric.agents.values(), step)


async def _agent_dies(fabric, step):
    fabric.lines.kill(_agent(fabric, step).host.name)


async def _agent_begins(fabric, step):
    agent = _agent(fabric, step)
    if agent.host.name not in fabric.lines.servers:
        agent.begin()


async def _stop_process(fabric, step, name):
    if name in fabric.lines.servers:
        fabric.lines.go_on(name) if name in fabric.lines.held_lines else fabric.lines.stop(name)


async def _mapper(fabric, is_running):
    if is_running and "mapper" not in fabric.lines.servers:
        fabric.mapper.begin()
        fabric.mapper.update_states()
    elif not is_running:
        fabric.lines.kill("mapper")


STRANGE = (
    {"peer": "h99", "ev": 1, "old": "good", "new": "assumed_bad", "qpn": 1},
    {"peer": "SELF", "ev": 1, "old": "good", "new": "assumed_bad", "qpn": 1},
    {"peer": "h0", "ev": 1 << 40, "old": "good", "new": "assumed_bad"},
    {"peer": "h0", "ev": -1, "old": "good", "new": "assumed_bad"},
    {"peer": None, "ev": None}, {}, {"peer": "h1", "ev": "x"}, {"peer": "h1", "ev": 0, "new": 3, "qpn": "q"},
    {"peer": "h1", "ev": 1e300, "new": "good"}, {"peer": "h1", "ev": [1], "new": "good"},
)  # fmt: skip
STRANGE_PROBES = (
    {"kind": "t0", "host": "h99", "plane": 0, "target": "p0-t0-0", "state": "down", "since": 0.0, "loss": 1.0},
    {"kind": "loop", "host": "h0", "plane": 7, "target": "x", "walk": ["h0", "h1"], "state": "down", "since": 0.0},
    {"kind": "loop", "host": "h0", "plane": 0, "target": "x", "walk": [], "state": "down", "since": 0.0},
    {"kind": "t1", "host": "h0", "plane": 99, "target": "p0-t1-0", "state": "ok", "since": 0.0},
    {"kind": "t1", "host": "h0", "plane": 0, "target": "p0-t1-0", "state": "lossy", "since": 0.0, "loss": None},
    {"kind": [], "host": {}, "plane": None}, {},
)  # fmt: skip


async def _strange_ev(fabric, step):
    agent = _agent(fabric, step)
    event = dict(STRANGE[int(step.number * len(STRANGE))])
    if event.get("peer") == "SELF":
        event["peer"] = agent.host.name
    agent.server.publish("ev", t=fabric.now, **event)


async def _strange_probe(fabric, step):
    fabric.mapper.server.publish("probe", t=fabric.now, **STRANGE_PROBES[int(step.number * len(STRANGE_PROBES))])


async def _strange_port(fabric, step):
    words = ("UP", "WEIRD", "", "DORMANT", "UNKNOWN")
    interface = _pick([*fabric.gnmi.status, "eth99", ""], step)
    value = gnmi.TypedValue(string_val=words[int(step.number * len(words))])
    fabric.gnmi.strange(("interfaces", ("interface", interface), "state", "oper-status"), value)
    fabric.gnmi.strange(("interfaces",), gnmi.TypedValue(json_ietf_val=b"[[["))
    fabric.gnmi.strange((), gnmi.TypedValue(uint_val=3))
    if interface in fabric.gnmi.status:
        fabric.gnmi.announce(interface)


async def _unknown_port_status(fabric, step):
    fabric.controller.watches[0].on_status("p9-t9-9-eth9", "DOWN", "gnmi x")


async def _lines(fabric, step):
    """Let lines of events from now on be lost, doubled, late or out of order, or all is well."""
    kind = int(step.number * 5)
    rng = random.Random(step.choice)

    def fate(line):
        if kind == 0 or (line.message.get("event") is None and kind != 4):
            return Fate()
        if kind == 1:
            return Fate(copies=2)
        if kind == 2:
            return Fate(late_s=rng.random() * 2)
        if kind == 3:
            return Fate(late_s=rng.random() * 2, in_order=False)
        return Fate(copies=rng.choice((0, 1, 1, 2)), late_s=rng.random(), in_order=False)

    fabric.lines.fate = fate


async def _policy(fabric, step):
    fabric.controller.set_policy(("off", "lossy", "all")[int(step.number * 3)])


async def _full_queue(fabric, step):
    switch = _switch(fabric, step)
    for reason in (8, 9, 10):
        switch.drops[reason << 9 | int(step.number * 4)] += 20


async def _counters_anew(fabric, step):
    _switch(fabric, step).forwarded.clear()
    if step.number < 0.3:
        fabric.gnmi.received.clear()


async def _intrude(fabric, step):
    _switch(fabric, step).intrude(11 + int(step.number * 3))


async def _digest(fabric, step):
    ports = [p.number for p in fabric.plan.ports(_switch(fabric, step).name)]
    provisioner = fabric.controller.provisioners[_switch(fabric, step).name]
    data = [
        [{"reason": 10, "egress_port": _pick(ports, step), "ingress_port": 1, "dst_addr": 1}],
        [{"reason": 99, "egress_port": 500}],
        [None],
        [3, {}],
        [],
    ][int(step.number * 5)]
    provisioner.on_digest(provisioner, ("next_hop_report", "other")[step.choice % 2], data)


async def _set(target, name, value):
    setattr(target, name, value)


STEPS = {
    "link down": lambda f, s: _aside(f.set_link, _link(f, s), False),
    "link up": lambda f, s: _aside(f.set_link, _link(f, s), True),
    "link flaps": lambda f, s: _flap(f, s),
    "one-way cut": lambda f, s: _aside(f.set_arc, _core_arc(f, s), False),
    "one-way mended": lambda f, s: _aside(f.set_arc, _core_arc(f, s), True),
    "switch off": lambda f, s: _power(f, s, False),
    "switch on": lambda f, s: _power(f, s, True),
    "black hole": _black_hole,
    "switch stops or goes on": lambda f, s: _aside(_switch(f, s).stop, not _switch(f, s).is_stopped),
    "switch is late": lambda f, s: _set(_switch(f, s), "late_s", 12 * s.number if s.choice % 2 else 0.0),
    "switch loses answers": lambda f, s: _set(_switch(f, s), "lost_answers", 1 + int(3 * s.number)),
    "switch refuses writes": lambda f, s: _set(_switch(f, s), "refused_writes", 1 + int(3 * s.number)),
    "switch refuses counters": lambda f, s: _toggle(_switch(f, s), "counts_are_refused"),
    "switch ends streams": lambda f, s: _aside(_switch(f, s).break_streams, s.number < 0.5),
    "another controller": _intrude,
    "another controller spoils": lambda f, s: _aside(_switch(f, s).spoil),
    "another controller leaves": lambda f, s: _aside(_switch(f, s).leave),
    "gnmi ends": lambda f, s: _aside(f.gnmi.end, s.number < 0.5),
    "gnmi ends before sync": lambda f, s: _run_in_order(
        _set(f.gnmi, "ends_before_sync", 1 + int(3 * s.number)), _aside(f.gnmi.end, True)
    ),
    "gnmi off": lambda f, s: _aside(f.gnmi.power, False),
    "gnmi on": lambda f, s: _aside(f.gnmi.power, True),
    "gnmi stops or goes on": lambda f, s: _toggle(f.gnmi, "is_stopped"),
    "gnmi doubles": lambda f, s: _toggle(f.gnmi, "doubles"),
    "gnmi refuses counters": lambda f, s: _toggle(f.gnmi, "counts_are_refused"),
    "strange port": _strange_port,
    "port of nobody": _unknown_port_status,
    "agent dies": _agent_dies,
    "agent begins": _agent_begins,
    "agent stops or goes on": lambda f, s: _stop_process(f, s, _agent(f, s).host.name),
    "agent refuses": lambda f, s: _toggle(_agent(f, s), "refuses"),
    "strange ev": _strange_ev,
    "mapper dies": lambda f, _s: _mapper(f, False),
    "mapper begins": lambda f, _s: _mapper(f, True),
    "mapper stops or goes on": lambda f, s: _stop_process(f, s, "mapper"),
    "strange probe": _strange_probe,
    "lines": _lines,
    "policy": _policy,
    "full queue": _full_queue,
    "counters begin anew": _counters_anew,
    "digest": _digest,
    "controller restarts": _restart_controller,
}


async def _aside(method, *arguments):
    method(*arguments)


async def _run_in_order(first, second):
    await first
    await second


async def _flap(fabric, step):
    for _ in range(2 + step.choice % 3):
        fabric.set_link(_link(fabric, step), False)
        await asyncio.sleep(step.number)
        fabric.set_link(_link(fabric, step), True)
        await asyncio.sleep(step.number)


def restore(fabric):
    """Mend all."""
    fabric.lines.fate = lambda _line: Fate()
    fabric.down_links.clear(), fabric.dead_arcs.clear()
    for switch in fabric.switches.values():
        switch.late_s, switch.lost_answers, switch.refused_writes = 0.0, 0, 0
        switch.is_black_hole = switch.counts_are_refused = False
        switch.leave()
        switch.power(True)
        switch.stop(False)
    server = fabric.gnmi
    server.ends_before_sync, server.is_stopped, server.counts_are_refused, server.doubles = 0, False, False, False
    server.power(True)
    for agent in fabric.agents.values():
        agent.refuses = False
        fabric.lines.go_on(agent.host.name)
        if agent.host.name not in fabric.lines.servers:
            agent.begin()
    fabric.lines.go_on("mapper")
    if "mapper" not in fabric.lines.servers:
        fabric.mapper.begin()
    fabric.apply_changes()


# ---- one sequence -------------------------------------------------------------------------------------------


async def _wait_until(condition, limit_s, calm_s=0.0):
    """Wait until it holds at each look for `calm_s`, at most `limit_s`."""
    loop = asyncio.get_running_loop()
    true_from, end = None, loop.time() + limit_s
    while loop.time() < end and (true_from is None or loop.time() - true_from < calm_s):
        await asyncio.sleep(LOOK_S)
        true_from = (loop.time() if true_from is None else true_from) if condition() else None


async def _play(sequence: Sequence, folder: Path, holder) -> list[str]:
    fabric = FabricInMemory(Plan(*sequence.fabric), catalog(sequence.program), sequence.program, folder)
    fabric.options = sequence.options
    holder.fabric = fabric
    failures: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(f"loop: {context}"))
    (folder / "log").mkdir(exist_ok=True)
    await fabric.start(**dict(sequence.options))
    await _wait_until(lambda: fabric.controller.ready, READY_S)
    await asyncio.sleep(AFTER_READY_S)
    if not fabric.controller.began:
        failures.append("the controller was never ready")
    internal_errors: list[str] = []

    def internal(controller):
        return [p.text for p in controller.problems.all_problems() if p.kind.name == "INTERNAL"]

    for step in sequence.steps:
        await asyncio.sleep(step.after_s)
        if fabric.has_ended:
            break
        controller = fabric.controller
        await STEPS[step.name](fabric, step)
        if fabric.controller is not controller:
            internal_errors += internal(controller)
    restore(fabric)
    if not fabric.controller.ready:
        await asyncio.wait({fabric.running}, timeout=DEADLINE_S)
    if fabric.has_ended:  # it gave up to begin on a fabric that is broken, and says so; somebody starts it again
        if not isinstance(fabric.running.exception(), NotReady):
            failures.append(f"the controller ended: {fabric.running.exception()!r}")
        fabric.close_journal()
        internal_errors += internal(fabric.controller)
        await fabric.start(**dict(sequence.options))
    if sequence.seed % 10:
        await _wait_until(lambda: fabric.has_ended or not fabric.differences(), SETTLED_S, CALM_S)
    else:
        await asyncio.sleep(SETTLED_S)
    failures += internal_errors + internal(fabric.controller)
    if fabric.has_ended:
        failures.append(f"the controller ended: {fabric.running.exception()!r}")
    else:
        failures += [d for d in fabric.differences() if d not in failures]
        await fabric.stop()
    return failures


def run_sequence(sequence: Sequence) -> list[str]:
    """Return the failures of a sequence; empty when all is as it should be."""
    folder = Path(tempfile.mkdtemp(prefix="mrc-sequence-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    loop = JumpingLoop()
    state = random.getstate()
    random.seed(sequence.seed)
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with in_memory(loop) as holder:
            return loop.run_until_complete(_play(sequence, folder, holder))
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    finally:
        random.setstate(state)
        logging.disable(level)
        loop.close()
        shutil.rmtree(folder, ignore_errors=True)


def shrink(sequence: Sequence) -> Sequence:
    """Return the same failure with the fewest steps.

    Halves, then quarters and so on are left out as long as something is wrong.
    """
    size = max(1, len(sequence.steps) // 2)
    while size:
        start = 0
        while start < len(sequence.steps):
            steps = sequence.steps[:start] + sequence.steps[start + size :]
            fewer = Sequence(sequence.seed, sequence.fabric, sequence.program, sequence.options, steps)
            if run_sequence(fewer):
                sequence = fewer
            else:
                start += size
        size //= 2
    return sequence


def _run_some(seeds: range) -> list[tuple[int, list[str]]]:
    return [(seed, failures) for seed in seeds if (failures := run_sequence(draw(seed)))]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequences", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first one's (0)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    parser.add_argument("--no-shrink", action="store_true")
    options = parser.parse_args(arguments)
    for program in ("srv6", "spray"):
        catalog(program)
    began, seeds = time.monotonic(), range(options.seed, options.seed + options.sequences)
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    failed: list[tuple[int, list[str]]] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for number, chunk_failures in enumerate(pool.map(_run_some, chunks), 1):
            failed += chunk_failures
            for seed, failures in chunk_failures:
                print(f"sequence {seed}: {'; '.join(failures[:4])}", flush=True)
            if number % 10 == 0:
                print(f"{min(number * CHUNK, len(seeds))} sequences, {len(failed)} failed", flush=True)
    if failed and not options.no_shrink:
        for seed, _ in failed[:3]:
            shrunk_sequence = shrink(draw(seed))
            print(f"shrunk: {shrunk_sequence}\n    {run_sequence(shrunk_sequence)}")
    print(f"{len(seeds)} sequences from seed {options.seed}: {len(failed)} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
