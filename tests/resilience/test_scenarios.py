"""Live scenarios as resilience tests: `make resilience` runs all of them, `make test` the quick ones.

make resilience ARGS="-k e10"       one of them
make resilience SEED=2              with other dice; results stay in results/resilience-2 for `mrc report`

A scenario that misses rates or times while the machine was overloaded, as measured from /proc/stat, says nothing of the
fabric: it is run again, up to ATTEMPTS times in all, and the results of such runs are kept in
results/overloaded-resilience-2. Damaged bytes, wrong sums and failed QPs are failures at once, and so is anything on a
machine that had time.
"""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path

import pytest

from mrc_testbed.experiments.command import SCENARIOS
from mrc_testbed.experiments.language.expand import is_for
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.live.live_run import LiveRunner
from mrc_testbed.experiments.runner import plan_runs, run_scenario
from mrc_testbed.topologies.lab.options import LabOptions

QUICK = ("e10", "x-drain")
"""Always run: a dead T0, and a plane taken out for maintenance."""
RUNS_ALL = os.environ.get("MRC_SCENARIOS") == "all"
"""Set by `make resilience`."""
SEED = int(os.environ["MRC_SEED"]) if os.environ.get("MRC_SEED") else None
"""Instead of the files' seeds."""
RESULTS = Path(os.environ["MRC_RESULTS"]) if os.environ.get("MRC_RESULTS") else None
"""Folder in which results stay; None: results go with the test's folder."""
ATTEMPTS = 5
"""Runs of a scenario on a machine that is overloaded."""


class Quiet:
    """Listener to a run that reports nothing."""

    def on_start(self, runs) -> None: ...

    def on_progress(self, run, share, now) -> None: ...

    def on_end(self, run, outcome) -> None: ...

    def on_stop(self, kept_count, folder) -> None: ...


def names() -> list[str]:
    return sorted(
        path.stem
        for path in SCENARIOS.glob("*.yaml")
        if path.stem in QUICK or (RUNS_ALL and is_for(read(path), "live"))
    )


@pytest.fixture(autouse=True)
def tables_unchanged():
    """Replace the folder's fixture, so that the shared fabric stays down; each scenario has its own."""


@pytest.mark.alone  # its rules are of rates
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", names())
def test_scenario(name, target, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root: network namespaces and raw sockets (run `make resilience`)")
    if name.startswith("x-training"):
        pytest.importorskip("torch", reason="needs PyTorch: pip install 'mrc-testbed[torch]'")
    base = RESULTS or tmp_path / "results"
    label = name if target == "embedded" else f"{name}-{target}"
    out, aside = base / label, base.with_name(f"overloaded-{base.name}")
    for earlier in (out, *aside.glob(f"{label}-[0-9]")):  # of an earlier `make resilience` with this seed
        shutil.rmtree(earlier, ignore_errors=True)
    for attempt in range(1, ATTEMPTS + 1):
        run_set = plan_runs(read(SCENARIOS / f"{name}.yaml"), "live", target=target, seed=SEED)
        report = run_scenario(run_set, Quiet(), out=out, live_runner=LiveRunner(LabOptions(target=target)))
        if not report.inconclusive or attempt == ATTEMPTS:
            break
        kept_folder = aside / f"{label}-{attempt}"
        kept_folder.parent.mkdir(parents=True, exist_ok=True)
        out.rename(kept_folder)
        warnings.warn(
            f"{label} failed on an overloaded machine and is run again; its results: {kept_folder}", stacklevel=1
        )
    failed_verdicts = [verdict for verdict in report.verdicts if not verdict.passed]
    notes = [note for _, outcome in report.runs for note in outcome.notes]
    texts = [
        f"{v.run}: {v.rule}: expected {v.expected}, seen {v.seen}\n" + "\n".join(v.events) for v in failed_verdicts
    ]
    assert not failed_verdicts, "\n".join([*texts, *notes])
