"""Prometheus metrics of the controller: names and labels of the table, and the dashboard's queries.

The dashboard queries no other metric.
"""

from __future__ import annotations

import json
import re

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from mrc_testbed.controller.api.metrics import FAMILIES, OPEN_METRICS, TEXT, negotiated_format
from mrc_testbed.topologies.plan import Plan
from tests.controller.controller_fixture import Rig, scrape
from tests.repository import ROOT

LABELS = {family.name: set(family.labels) for family in FAMILIES}


def test_names__follow_the_conventions():
    for family in FAMILIES:
        assert re.fullmatch(r"mrc_[a-z0-9_]+", family.name) and family.text.endswith(".")
        assert not re.search(r"(bits|kb|ms|percent)", family.name), "base units"


def test_dashboard__asks_for_what_there_is():
    board = json.loads((ROOT / "examples/monitoring/grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(expressions) > 10
    for expression in expressions:
        (name,) = set(re.findall(r"mrc_\w+", expression))
        assert name in LABELS, expression
        grouping = re.search(r"by \(([^)]*)\)", expression)
        assert set(re.split(r",\s*", grouping[1]) if grouping else ()) <= LABELS[name], expression
        assert set(re.findall(r"(\w+)[!=]~?\"", expression)) <= LABELS[name], expression
        assert name.endswith("_total") is ("rate(" in expression), expression
    used_names = {name for expression in expressions for name in re.findall(r"mrc_\w+", expression)}
    assert len(used_names) >= 11


PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;"
    "q=0.5,text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
"""Header of Prometheus 3."""


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        (PROMETHEUS, OPEN_METRICS),
        ("application/openmetrics-text", OPEN_METRICS),
        ("Application/OpenMetrics-Text; Version=1.0.0; charset=utf-8", OPEN_METRICS),
        ("text/plain;q=0.9, application/openmetrics-text;q=0.1", TEXT),
        ("text/plain;q=0.1, application/openmetrics-text;q=0.9", OPEN_METRICS),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text; version=0.0.1", TEXT),
        ("application/openmetrics-text;q=high, text/html", TEXT),
        (",;=,", TEXT),
    ],
)
def test_negotiated_format(accept, form):
    assert negotiated_format(accept) is form


def test_scrape__of_switches_without_hosts(tmp_path):
    """A real controller over real switches. No agent runs and no port is there, which the scrape says."""
    with Rig(tmp_path, Plan(2, 2, 2, 1)) as rig:
        rig.start_daemon()
        rig.start_controller()
        kind, text = scrape(rig.controller)
        assert kind.startswith("text/plain; version=0.0.4")
        families = {family.name: family for family in text_string_to_metric_families(text)}
        kind, text = scrape(rig.controller, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
        assert kind == OPEN_METRICS.content_type and text.endswith("# EOF\n")
        assert {family.name for family in openmetrics_families(text)} == set(families)
        assert scrape(rig.controller, method="HEAD") == (TEXT.content_type, "")
    names = {family.name.removesuffix("_total") for family in FAMILIES}
    assert set(families) <= names
    assert {sample.labels["switch"]: sample.value for sample in families["mrc_switch_verified"].samples} == {
        switch.name: 1.0 for switch in Plan(2, 2, 2, 1).switches
    }
    silent_counts = {sample.labels["what"]: sample.value for sample in families["mrc_scrape_silent"].samples}
    assert silent_counts == {"switches": 8.0, "hosts": 2.0}
    assert [sample.value for sample in families["mrc_switch_marked_packets"].samples] == [0.0] * 8, (
        "P4 counters are told"
    )
    assert families["mrc_switch_marked_packets"].type == "counter" and families["mrc_switch_verified"].type == "gauge"
