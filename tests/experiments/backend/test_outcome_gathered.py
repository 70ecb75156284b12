"""Tests of metrics that are one number of an outcome: gathered from all of its parts.

Parts are ports, hosts, QPs, looks and changes of tables.

Mutants take the last part alone, and must give another number; test_metric_values_mutants.py has all other mutants.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import pytest

from mrc_testbed.experiments.backend.outcome import Outcome, Series
from mrc_testbed.experiments.language.expand import expand
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.live.counts import SwitchTotals
from mrc_testbed.experiments.live.live_run import LiveRun
from mrc_testbed.experiments.metrics.metric_values import Measurement
from mrc_testbed.experiments.resolve.run_plan import resolve
from mrc_testbed.experiments.virtual import virtual_run
from mrc_testbed.experiments.virtual.control_plane import VirtualControl
from mrc_testbed.experiments.virtual.virtual_run import VirtualRun
from mrc_testbed.faults import CutFault
from mrc_testbed.simulator import VirtualFabric
from mrc_testbed.topologies.lab.switch_counters import Counts, SwitchCounts
from mrc_testbed.topologies.plan import Plan
from tests.experiments import exam

VIRTUAL_VALUES = {
    "marked": 111.0, "trimmed": 222.0, "trimmed.last_hop": 202.0, "dropped.queue": 1443.0, "pauses": 777.0,
    "pauses.longest": 0.9, "storms": 888.0, "corrupted": 66.0, "evs.denied": 4.0, "evs.bad": 5.0,
    "queue.last-hop.max": 91.0, "table_writes": 3.0,
}  # fmt: skip
LIVE_VALUES = {
    "marked": 33.0, "trimmed": 99.0, "trimmed.last_hop": 66.0, "dropped.queue": 132.0, "corrupted": 66.0,
    "evs.denied": 4.0, "evs.bad": 5.0, "queue.last-hop.max": 90.0, "table_writes": 444.0,
}  # fmt: skip
"""Form of a run -> its metrics, each from the parts below."""


def every(parts):
    return parts


def last(parts):
    return parts[-1:]


def measurement(outcome, folder):
    (folder / "exam.yaml").write_text(exam.SCENARIO)
    (run,) = expand(read(folder / "exam.yaml"), "virtual")
    return Measurement(outcome, resolve(run))


def blank(backend):
    return Outcome("exam", "run", {}, backend, 1, 0, "srv6", 1.0, series=Series(1.0))


# ---- virtual ------------------------------------------------------------------------------------------------

PORTS = [
    SimpleNamespace(
        name=f"p0-t0-{number}-eth1",
        marked=marked,
        trimmed=2 * marked,
        last_hop=number != 1,
        peak_bytes=(91, 99, 1)[number],
        dropped=Counter(queue_full=10 * marked, not_trimmable=2 * marked, headroom_full=marked, control_queue_full=5),
        pause=SimpleNamespace(pauses=7 * marked, storms=8 * marked, longest_s=(0.4, 0.9, 0.1)[number], frames=0),
    )
    for number, marked in enumerate((100, 10, 1))
]
HOSTS = [SimpleNamespace(dropped=Counter({"iCRC": count, "port down": 9})) for count in (50, 10, 6)]
STATES = [
    ["assumed_bad", "assumed_bad", "denied", "good"],
    ["assumed_bad"] * 2 + ["denied"] * 2,
    ["assumed_bad", "denied"],
]
"""States of the EVs of each QP."""


def table_writes(part):
    """Let two links be cut one after the other; table writes of all changes, or of the last."""
    control = VirtualControl(SimpleNamespace(denylist="off", react_after=0.01), None)
    fabric = VirtualFabric(Plan(1, 2, 2, 1))
    control.plan = fabric.plan
    control.attach(fabric)
    counts = [0]
    for second, name in enumerate(("p0-t0-0 p0-t1-0", "p0-t0-1 p0-t1-1"), 1):
        fabric.schedule(float(second), CutFault.on(name), until_s=None if second == 2 else 1.5)
        fabric.run_until(second + 0.1)
        control.links_changed()
        fabric.run_until(second + 0.2)
        counts.append(control.table_writes)
    return sum(part([later - earlier for earlier, later in pairwise(counts)]))


def gathered_virtual(monkeypatch, part):
    run = object.__new__(VirtualRun)
    run.outcome, run.collectives = blank("virtual"), []
    run.fabric = SimpleNamespace(
        ports={port.name: port for port in part(PORTS)},
        hosts=dict(enumerate(part(HOSTS))),
        owns=lambda _host: True,
        gather=lambda value: (value,),
        of_owners=lambda _hosts, values: values,
    )
    qps = [SimpleNamespace(ev_states=lambda states=states: [{"state": state} for state in states]) for states in STATES]
    ends = SimpleNamespace(source="h0", target="h1")
    run.flows = [
        SimpleNamespace(outcome=lambda: ends, pairs=[(qp, None)], source="h0", received_bytes=0, reorder_max=0)
        for qp in part(qps)
    ]
    run.control = SimpleNamespace(table_writes=table_writes(part))
    monkeypatch.setattr(virtual_run, "pause_of", lambda port: port.pause)
    run._gather()
    run.outcome.flows = []
    return run.outcome


# ---- live ---------------------------------------------------------------------------------------------------


def counts(factor):
    """Return a look at two switches, which have counted `factor` times what they do between two looks."""

    def switch(marked):
        cells = {"marked": [marked], "trimmed": [marked, 2 * marked], "drops": [marked, marked, 0]}
        return SwitchCounts(True, cells, [2 * marked, 0], 0)

    return Counts({"a": switch(10 * factor), "b": switch(factor)}, {})


def gathered_live(part):
    run = object.__new__(LiveRun)
    run.outcome, run.plan = blank("live"), SimpleNamespace(fabric=Plan(1, 2, 1, 1))
    totals = SwitchTotals()
    totals.update(counts(0))
    for factor in (1, 3):
        all_counts = counts(factor)
        totals.update(Counts(dict(part(list(all_counts.switches.items()))), {}) if part is last else all_counts)
    run.sampler = SimpleNamespace(switch_totals=totals)
    ports = {str(number): {"rx_dropped": {"iCRC": count, "ring full": 9}} for number, count in enumerate((40, 10, 6))}
    answers = {"h0": {"ports": {"0": {"rx_dropped": {"iCRC": 10}}}}, "h1": {"ports": dict(part(list(ports.items())))}}
    run.work = SimpleNamespace(ask_all=lambda _op, _hosts: dict(part(list(answers.items()))))
    switches = {name: {"live_writes": {"prune": count, "restore": count}} for name, count in (("a", 200), ("b", 20))}
    status = {"writes_after_start": 4 if part is every else 0, "switches": dict(part(list(switches.items())))}
    run.fabric = SimpleNamespace(controller=SimpleNamespace(request=lambda _op: status))
    depths = {"p0-t0-0-eth1": [3, 90, None, 4], "p0-t0-1-eth1": [1, 2, 7]}
    run.outcome.series.queues = {port: part(port_depths) for port, port_depths in part(list(depths.items()))}
    run._count()
    qps = [{"evs": [[0, 0, state, 0] for state in states]} for states in STATES]
    answer = {"sources": {"flow": {"qps": part(qps)}}, "ranks": {}}
    run._count_evs({"h0": answer})
    return run.outcome


@pytest.mark.parametrize("name", VIRTUAL_VALUES)
def test_virtual(tmp_path, monkeypatch, name):
    assert measurement(gathered_virtual(monkeypatch, every), tmp_path).value(name) == VIRTUAL_VALUES[name]
    assert measurement(gathered_virtual(monkeypatch, last), tmp_path).value(name) != VIRTUAL_VALUES[name]


@pytest.mark.parametrize("name", LIVE_VALUES)
def test_live(tmp_path, name):
    assert measurement(gathered_live(every), tmp_path).value(name) == LIVE_VALUES[name]
    assert measurement(gathered_live(last), tmp_path).value(name) != LIVE_VALUES[name]
