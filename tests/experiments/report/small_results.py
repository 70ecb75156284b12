"""Results of small scenarios, for tests of what reads results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.runner import plan_runs, run_scenario

SMALL_SCENARIO = """\
title: one link of <two> planes
paper:
  id: E8
  figure: 9c
  saw: nothing
  series: {paper: [[0, 1], [1, 0.9]]}
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 1}
links: {rate: 5M}
workload:
  - {stream: h0 h1, name: flow, message: 16K, depth: 2}
duration: 1s
faults:
  - {at: 0.4s, cut: p0-t0-0 p0-t1-0}
measure: {every: 100ms, latency: true, queues: [p0-t0-1-eth1]}
expect:
  - {metric: rate.flow, from: 0.5s, to: 1s, at_least: 0.5, of: baseline, paper: 1}
  - {metric: lost, at_most: 0, why: a link is cut}
figures:
  - {kind: rate_over_time, metric: rate.flow, of: baseline}
  - {kind: bars, metric: lost}
  - {kind: latency_cdf}
"""


class Quiet:
    """Tells nobody."""

    def on_start(self, runs):
        pass

    def on_progress(self, run, share, now):
        pass

    def on_end(self, run, outcome):
        pass

    def on_stop(self, kept_count, folder):
        pass


def make(folder: Path, text: str = SMALL_SCENARIO, **keys) -> Path:
    folder.mkdir(parents=True)
    (folder / "small.yaml").write_text(text)
    out = folder / "out"
    run_scenario(plan_runs(read(folder / "small.yaml"), "virtual", **keys), Quiet(), out=out)
    return out


def changed_copy(source_dir: Path, target_dir: Path, **keys) -> Path:
    """Return a copy of results with other words in the manifest."""
    shutil.copytree(source_dir, target_dir)
    manifest = json.loads((target_dir / "manifest.json").read_text())
    manifest.update(keys)
    (target_dir / "manifest.json").write_text(json.dumps(manifest))
    return target_dir


RULES_SCENARIO = """\
title: rules of places and scales
fabric: {planes: 2, racks: 2, spines: 1, hosts_per_rack: 1}
links: {rate: 5M}
workload: [{stream: h0 h1, name: flow, message: 16K}]
duration: 200ms
scale: {fast: {links: {rate: 8M}}}
expect:
  - {metric: qp_errors, at_most: 0, only: virtual}
  - {metric: damaged, at_most: 0, only: [live, virtual]}
  - {metric: failed, at_most: 0, only: live}
  - {metric: lost, at_most: 0, scale: fast}
  - {metric: timeouts, at_most: 0, scale: own}
figures: [{metric: rate.flow}]
"""
