"""Results that `mrc run` wrote, as pandas frames and as Parquet (docs/data.md)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mrc_testbed.api.records import ApiError
from mrc_testbed.experiments.export.tables import Rows, frame, write_parquet

if TYPE_CHECKING:
    import pandas


class ResultSet:
    """All folders of results at or below some paths. They are read anew by each call.

    Folders that cannot be read, of another version or half removed, are left out where others can: `skipped` says why.
    The calls raise ResultsError when nothing can be read, and UsageError without the extra `data` (pandas, pyarrow).
    """

    def __init__(self, *paths: Path | str) -> None:
        if not paths:
            raise ApiError('ResultSet(): give a folder of results, such as ResultSet("results")')
        self.paths = [Path(path) for path in paths]
        self.skipped: list[str] = []
        """Reasons of folders left out in the last call."""

    def frame(self) -> pandas.DataFrame:
        """A row a run and metric: what the run was, `metric`, `value`, `unit`. NaN: not measured."""
        return self._frame(Rows.METRICS).drop(columns="time_s")

    def series_frame(self) -> pandas.DataFrame:
        """Return a row for each run, time and series.

        The columns are the same, and `time_s`, the end of an interval or of an iteration.
        """
        return self._frame(Rows.SERIES)

    def write_parquet(self, file: Path | str) -> int:
        """Write both kinds of rows to one file; return their number. Raises ApiError.

        `time_s` is null in rows of a whole run.
        """
        self.skipped = []
        try:
            return write_parquet(self.paths, Path(file), self.skipped)
        except OSError as error:
            raise ApiError(f"{file}: {error.strerror}: give a file in a folder that exists") from None

    def _frame(self, rows: Rows) -> pandas.DataFrame:
        self.skipped = []
        return frame(self.paths, rows, self.skipped)
