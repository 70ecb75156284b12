"""Time series of a run as named columns: what the CSV files and the Parquet files have, by the same names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from experiments.outcome import Series

COUNTED = ("lost", "retransmitted", "marked", "trimmed", "dropped", "link_lost")
"""Series of packets in each interval."""


class SeriesColumn(NamedTuple):
    """One series. `values`: one an interval, None where it could not be read; may end early."""

    name: str
    unit: str
    values: Sequence[float | None]


def series_columns(series: Series) -> list[SeriesColumn]:
    """Rates of flows, packets counted, rates of planes, depths of queues."""
    columns = [SeriesColumn(f"rate_bps {name}", "bit/s", values) for name, values in series.received_bps.items()]
    columns += [SeriesColumn(key, "packets", getattr(series, key)) for key in COUNTED]
    planes = len(series.plane_bps[0]) if series.plane_bps else 0
    columns += [
        SeriesColumn(f"plane{plane}_bps", "bit/s", [values[plane] for values in series.plane_bps])
        for plane in range(planes)
    ]
    columns += [SeriesColumn(f"queue_bytes {name}", "bytes", values) for name, values in series.queues.items()]
    return columns
