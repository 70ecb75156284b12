"""The file of failure rates that comes with the testbed, and mistakes in such a file."""

from __future__ import annotations

import pytest

from mrc_testbed.experiments.failure_cost.command import plan_run_sets
from mrc_testbed.experiments.failure_cost.model import CHOICE, LEVELS, is_failure_study, read_failure_study
from mrc_testbed.experiments.language.yaml_loader import ScenarioError
from mrc_testbed.experiments.study.command import STUDIES
from mrc_testbed.topologies.sizing import FabricSize

FILE = STUDIES / "failures.yaml"


def test_levels_are_in_order_and_sourced():
    study = read_failure_study(FILE)
    for name, levels in study.rows():
        values = [levels.value_at(level) for level in LEVELS]
        assert values == sorted(values), name
    used_sources = {levels.entry_at(level).source for _, levels in study.rows() for level in LEVELS}
    assert used_sources == set(study.sources)
    assert CHOICE in used_sources


def test_counts_are_the_plans():
    study = read_failure_study(FILE)
    size = FabricSize.for_nics(1000, radix=512, planes=8, nic_bps=800e9)
    counts = study.counts("MRC", "1,000 GPUs")
    assert counts["nic_links"] + counts["fabric_links"] == size.links
    assert counts["t0s"] + counts["t1s"] == size.switches
    assert counts["nics"] == 1000 and counts["nic_links"] == 8000


def test_samples_have_every_failure_and_transport_of_the_rates():
    study = read_failure_study(FILE)
    run_sets = plan_run_sets(study, FILE)
    sampled_pairs = {(run.label["variant"], run.label["failure"]) for run in run_sets["samples"].runs}
    for transport in study.transports:
        for rate in study.rates:
            assert {(transport, rate.sample_at(level, study.times)) for level in LEVELS} <= sampled_pairs
    assert sorted(run_sets) == ["paces-1", "paces-2", "samples"]


def test_only_files_of_its_schema_are_failure_studies():
    assert is_failure_study(FILE) and not is_failure_study(STUDIES / "loss.yaml")


@pytest.mark.parametrize(
    ("text", "mistake", "message"),
    [
        ("source: HPN", "source: HPM", "no source 'HPM' under sources"),
        ("transport: MRC}", "transport: MRD}", "no transport 'MRD' under transports"),
        ("radix: [512, 512]", "radix: [512]", "give one for each of the 2 sizes"),
        ("parts: t0s", "parts: t2s", "parts"),
    ],
)
def test_mistakes__are_named(tmp_path, text, mistake, message):
    path = tmp_path / "mine.yaml"
    path.write_text(FILE.read_text().replace(text, mistake))
    with pytest.raises(ScenarioError, match=message):
        read_failure_study(path)
