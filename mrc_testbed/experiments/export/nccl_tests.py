"""Collectives of results in the JSON shape of nccl-tests (version 3 of its output file; docs/data.md).

Keys without an equivalent are absent: in-place buffers, NCCL's version, the environment, devices beside their host.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from mrc_testbed.experiments.backend.outcome import CollectiveOutcome, Outcome
from mrc_testbed.experiments.export.tables import ResultFolder, result_folders
from mrc_testbed.experiments.results import ResultsError, trust
from mrc_testbed.experiments.run_store import file_name
from mrc_testbed.files.whole_files import write_output
from mrc_testbed.hosts.traffic.collective_base import ELEMENT
from mrc_testbed.hosts.traffic.collectives import KINDS

VERSION = 3
KINDS_BY_SHARE = ("all_gather", "reduce_scatter", "all_to_all", "all_to_allv")
"""Kinds whose `count` is that of one rank's share; for the others it is that of the whole buffer."""
REDUCING = ("all_reduce", "reduce_scatter")
"""Name prefixes of kinds that add elements."""
NO_ROOT = f"{-1:6}"
"""Root of a collective without one, padded as nccl-tests writes it."""

RunCollective = tuple[Outcome, CollectiveOutcome]


def write_nccl_tests(paths: Sequence[Path], folder: Path, skipped: list[str]) -> list[Path]:
    """Write a document for each collective and set of ranks of each folder of results; return the files.

    `skipped` gets why a folder of results was left out. Raises ResultsError without any collective, OSError.
    """
    files: list[Path] = []
    for results in result_folders(paths, skipped):
        for (kind, ranks), group in _groups(results.outcomes).items():
            stem = file_name(f"{results.path.resolve().name}-{kind}")
            file, number = folder / f"{stem}.json", 2
            while file in files:  # a job on other hosts, or a folder of the same name elsewhere
                file, number = folder / f"{stem}-{number}.json", number + 1
            folder.mkdir(parents=True, exist_ok=True)
            write_output(file, (json.dumps(document(results, kind, ranks, group), indent=1) + "\n").encode())
            files.append(file)
    if not files:
        paths_text = ", ".join(str(path) for path in paths)
        raise ResultsError(
            f"no collective with measured iterations in {paths_text}: give results of scenarios that have one"
        )
    return files


def _groups(outcomes: Sequence[Outcome]) -> dict[tuple[str, tuple[str, ...]], list[RunCollective]]:
    """Return (kind, ranks) -> collectives of that kind on these ranks; training has no single kind."""
    groups: dict[tuple[str, tuple[str, ...]], list[RunCollective]] = {}
    for outcome in outcomes:
        for collective in outcome.collectives:
            if collective.kind in KINDS and collective.iterations and collective.mean_s > 0:
                groups.setdefault((collective.kind, tuple(collective.ranks)), []).append((outcome, collective))
    return groups


def document(
    results: ResultFolder, kind: str, ranks: Sequence[str], run_collectives: Sequence[RunCollective]
) -> dict[str, Any]:
    """Return one document: a row for each run, named in `experiment_name`.

    Runs that failed are listed as errors, and left out of averages.
    """
    rows = [_row(outcome, collective) for outcome, collective in run_collectives]
    # numbers of a run that failed are no measurement
    valid_rows = [row for row, (outcome, _) in zip(rows, run_collectives, strict=True) if not outcome.cause]
    failed = [f"{outcome.name}: {outcome.cause}" for outcome, _ in run_collectives if outcome.cause]
    wrong_count = sum(row["out_of_place"]["nwrong"] > 0 for row in rows)
    manifest, sizes = results.manifest, [row["size"] for row in rows]
    return {
        "version": VERSION,
        "start_time": time.strftime("%Y-%m-%d %H:%M:%S", time.strptime(manifest["began"][:19], "%Y-%m-%dT%H:%M:%S")),
        "args": shlex.split(manifest["command"]),
        "config": {
            "minimum_bytes": min(sizes),
            "maximum_bytes": max(sizes),
            "iterations": max(row["actual_iterations"] for row in rows),
            "aggregated_iterations": 1,
            "validation": 1,
            "per_iter_timing": "true",
            "per_iter_skip": 0,
            "devices": [{"rank": rank, "group": 0, "hostname": host} for rank, host in enumerate(ranks)],
        },
        "results": rows,
        "out_of_bounds": {"count": wrong_count, "okay": "false" if wrong_count else "true"},
        "average_bus_bandwidth": {
            "bandwidth": fmean(row["out_of_place"]["bus_bw"] for row in valid_rows) if valid_rows else None,
            "okay": "false" if failed else "unchecked",
        },
        "errors": failed,
        "mrc_testbed": {
            "collective": kind,
            "scenario": manifest["scenario"],
            "where": manifest["where"],
            "times": trust(manifest),
        },
    }


def _row(outcome: Outcome, collective: CollectiveOutcome) -> dict[str, Any]:
    elements = collective.size_bytes // ELEMENT.itemsize
    bytes_a_second = collective.size_bytes / collective.mean_s
    return {
        "size": collective.size_bytes,
        "count": elements // len(collective.ranks) if collective.kind in KINDS_BY_SHARE else elements,
        "type": str(ELEMENT),
        "redop": "sum" if collective.kind.startswith(REDUCING) else "none",
        "root": NO_ROOT,
        "out_of_place": {
            "time": collective.mean_s * 1e6,
            "alg_bw": bytes_a_second / 1e9,
            "bus_bw": bytes_a_second * collective.bus_factor / 1e9,
            "nwrong": float(sum(iteration.wrong for iteration in collective.iterations)),
        },
        "out_of_place_per_iter": _per_iteration([1e6 * (i.finished_s - i.started_s) for i in collective.iterations]),
        "actual_iterations": len(collective.iterations),
        "experiment_name": " ".join(_names(outcome, collective)),
    }


def _names(outcome: Outcome, collective: CollectiveOutcome) -> Iterator[str]:
    """Yield the name of the run, and of the workload where the run has several."""
    yield outcome.name
    if len(outcome.collectives) > 1:
        yield collective.work


def _per_iteration(times_us: list[float]) -> dict[str, Any]:
    """Return statistics with nccl-tests' own definitions of median and percentiles."""
    sorted_us, mean = sorted(times_us), fmean(times_us)
    deviation = pstdev(times_us, mean)

    def percentile(percent: int) -> float:
        return sorted_us[-(-len(sorted_us) * percent // 100) - 1]

    return {
        "skipped_iterations": 0,
        "min_us": sorted_us[0],
        "max_us": sorted_us[-1],
        "avg_us": mean,
        "p50_us": sorted_us[len(sorted_us) // 2],
        "p95_us": percentile(95),
        "p99_us": percentile(99),
        "stdev_us": deviation,
        "cv_pct": 100 * deviation / mean,
        "times_us": times_us,
    }
