"""Results in long form, a row for each run, time and metric, as Parquet and for pandas (docs/data.md).

    write_parquet([Path("results")], Path("results.parquet"))
    frame([Path("results")], Rows.METRICS)

Rows come from the results of `mrc run` (experiments/results.py). pyarrow and pandas are the extra `data`; without it
UsageError names the missing package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Flag, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mrc_testbed.errors import UsageError
from mrc_testbed.experiments.backend.outcome import Outcome
from mrc_testbed.experiments.language.metric_names import find
from mrc_testbed.experiments.results import Results, ResultsError, folders_below, read_manifest
from mrc_testbed.files.whole_files import whole_file

if TYPE_CHECKING:
    import pandas
    import pyarrow

VARIANT, SWEEP = "variant", "sweep_"
"""Columns of a run's label: the variant's name, and the value of each key that a scenario sweeps."""


class Rows(Flag):
    """Kinds of rows."""

    METRICS = auto()
    """Metrics of a whole run, `metrics` in its JSON file; they have no time."""
    SERIES = auto()
    """Series by interval, named as in the CSV file, and iterations, each at its end time."""
    METRICS_AND_SERIES = METRICS | SERIES


class LongRow(NamedTuple):
    """Columns that differ between the rows of one run. `value` None: not measured, or unreadable."""

    time_s: float | None
    metric: str
    value: float | None
    unit: str


@dataclass(frozen=True, slots=True)
class ResultFolder:
    """A readable folder of results, with its runs as the manifest lists them."""

    path: Path
    manifest: dict[str, Any]
    outcomes: list[Outcome]


def result_folders(paths: Sequence[Path], skipped: list[str]) -> Iterator[ResultFolder]:
    """Yield all folders of results at or below the paths, each once, one in memory at a time.

    Folders that cannot be read (of another version, half removed) are left out, and `skipped` gets the reason.
    Raises ResultsError when no folder can be read.
    """
    read = False
    for folder in _folders(paths):
        try:
            results, outcomes = Results.open(folder)
        except ResultsError as error:
            skipped.append(str(error))
            continue
        read = True
        yield ResultFolder(folder, results.manifest, outcomes)
    if not read:
        raise ResultsError(skipped[-1])


def _folders(paths: Sequence[Path]) -> list[Path]:
    """Return folders of results, each once. Raises ResultsError for a path without any."""
    return list({folder.resolve(): folder for path in paths for folder in folders_below(path)}.values())


def long_rows(outcome: Outcome, kinds: Rows = Rows.METRICS_AND_SERIES) -> Iterator[LongRow]:
    """Yield the rows of one run."""
    if Rows.METRICS in kinds:
        works = outcome.works()
        for name, value in outcome.metrics.items():
            description = find(name, works, outcome.series.queues)
            yield LongRow(None, name, value, description.unit if description else "")
    if Rows.SERIES in kinds:
        for collective in outcome.collectives:
            for iteration in collective.iterations:
                yield LongRow(
                    iteration.finished_s,
                    f"iteration_s {collective.work}",
                    iteration.finished_s - iteration.started_s,
                    "s",
                )
        for column in outcome.series.columns():
            for time_s, value in zip(outcome.series.times_s, column.values, strict=False):
                yield LongRow(time_s, column.name, value, column.unit)


# ---- Arrow: one table a folder ------------------------------------------------------------------------------------


def write_parquet(paths: Sequence[Path], file: Path, skipped: list[str] | None = None) -> int:
    """Write all rows of all results at or below the paths; return their number.

    The file appears when it is whole. `skipped` gets the reason for each folder left out. Raises ResultsError,
    UsageError, OSError.
    """
    _need("pyarrow")
    import pyarrow.parquet as parquet

    labels = _labels(paths)
    total = 0
    with whole_file(file) as out, parquet.ParquetWriter(out, _schema(labels), compression="zstd") as writer:
        for table in _tables(paths, Rows.METRICS_AND_SERIES, labels, [] if skipped is None else skipped):
            writer.write_table(table)
            total += table.num_rows
    return total


def frame(paths: Sequence[Path], kinds: Rows, skipped: list[str] | None = None) -> pandas.DataFrame:
    """Return the rows as a pandas frame. Raises ResultsError, UsageError."""
    _need("pandas")
    _need("pyarrow")
    import pyarrow as pa

    labels = _labels(paths)
    tables = list(_tables(paths, kinds, labels, [] if skipped is None else skipped))
    return pa.concat_tables([_schema(labels).empty_table(), *tables]).to_pandas()


def _need(package: str) -> None:
    """Raise UsageError if a package of the extra `data` is not installed."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise UsageError(
            f"tables need {package}, which is not installed: "
            "install the extra `data` (in the checkout: .venv/bin/pip install -e '.[data]')"
        )


def _labels(paths: Sequence[Path]) -> dict[str, pyarrow.DataType]:
    """Return label keys of all runs with the type of their column: numbers where all values are numbers."""
    import pyarrow as pa

    values: dict[str, list[Any]] = {}
    for folder in _folders(paths):
        with suppress(ResultsError, KeyError, TypeError, AttributeError):  # `result_folders` reports the error
            for run in read_manifest(folder)["runs"]:
                for key, value in run["label"].items():
                    values.setdefault(key, []).append(value)
    types: dict[str, pyarrow.DataType] = {VARIANT: pa.string()}
    for key, label_values in sorted(values.items()):
        if key != VARIANT:
            numbers = all(
                isinstance(label_value, int | float) and not isinstance(label_value, bool)
                for label_value in label_values
            )
            types[key] = pa.float64() if numbers else pa.string()
    return types


def _schema(labels: dict[str, pyarrow.DataType]) -> pyarrow.Schema:
    import pyarrow as pa

    text, number = pa.string(), pa.float64()
    return pa.schema(
        [
            ("folder", text),
            ("scenario", text),
            ("where", text),
            ("target", text),
            ("commit", text),
            ("run", text),
            ("seed", pa.int64()),
            ("repeat", pa.int64()),
            ("overloaded", pa.bool_()),
            ("cause", text),
            *((column_of(key), kind) for key, kind in labels.items()),
            ("time_s", number),
            ("metric", text),
            ("value", number),
            ("unit", text),
        ]
    )


def column_of(label: str) -> str:
    """Return the column of a key of a run's label."""
    return label if label == VARIANT else SWEEP + label


def _tables(
    paths: Sequence[Path], kinds: Rows, labels: dict[str, pyarrow.DataType], skipped: list[str]
) -> Iterator[pyarrow.Table]:
    """Yield a table for each run."""
    import pyarrow as pa

    schema = _schema(labels)
    for folder in result_folders(paths, skipped):
        loads = {entry["name"]: entry["load"] for entry in folder.manifest["runs"]}
        for outcome in folder.outcomes:
            rows = list(long_rows(outcome, kinds))
            columns: dict[str, Any] = dict(zip(LongRow._fields, zip(*rows, strict=True), strict=True)) if rows else {}
            for name, value in _of_run(folder, outcome, loads[outcome.name], labels).items():
                columns[name] = pa.repeat(pa.scalar(value, schema.field(name).type), len(rows))
            if rows:
                yield pa.table([pa.array(columns[entry.name], entry.type) for entry in schema], schema=schema)


def _of_run(
    folder: ResultFolder, outcome: Outcome, load: dict[str, Any], labels: dict[str, pyarrow.DataType]
) -> dict[str, Any]:
    """Return the columns that are the same in all rows of a run."""
    import pyarrow as pa

    manifest = folder.manifest
    target = (manifest["target"] or "embedded") if outcome.where == "live" else None
    label = {key: outcome.label.get(key) for key in labels}
    return {
        "folder": str(folder.path),
        "scenario": outcome.scenario,
        "where": outcome.where,
        "target": target,
        "commit": manifest["machine"]["commit"],
        "run": outcome.name,
        "seed": outcome.seed,
        "repeat": outcome.repeat,
        "overloaded": bool(load["overloaded"]),
        "cause": outcome.cause or None,
        **{column_of(key): _as(value, text=labels[key] == pa.string()) for key, value in label.items()},
    }


def _as(value: Any, *, text: bool) -> str | float | None:
    return None if value is None else str(value) if text else float(value)
