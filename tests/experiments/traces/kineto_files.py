"""Small traces in the format of PyTorch's profiler, made by hand for tests."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any


def span(category: str, name: str, start: float, dur: float, tid: int = 7, **values: Any) -> dict[str, Any]:
    """Return one event that lasts; times are microseconds."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 0,
        "tid": tid,
        "ts": start,
        "dur": dur,
        "args": values,
    }


def collective(name: str, start: float, duration: float, **changes: Any) -> dict[str, Any]:
    """Return the kernel of a collective of 1,024 floats of two ranks; None takes a value away."""
    values: dict[str, Any] = {
        "stream": 20,
        "Collective name": name,
        "In msg nelems": 1024,
        "Out msg nelems": 1024,
        "In split size": "[]",
        "Out split size": "[]",
        "dtype": "Float",
        "Group size": 2,
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": "[0, 1]",
    }
    values |= {key.replace("_", " "): value for key, value in changes.items()}
    values = {key: value for key, value in values.items() if value is not None}
    return span("kernel", "ncclDevKernel_Sum_f32_RING_LL", start, duration, 20, **values)


def write_rank(folder: Path, rank: int, events: list[dict[str, Any]], *, ranks: int = 2, packed: bool = False) -> Path:
    """Write the file of a rank as the profiler does, with gzip when it is `packed`."""
    group = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": ranks, "ranks": list(range(ranks))}
    data = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "GPU"}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks, "pg_count": 1, "pg_config": [group]},
        "displayTimeUnit": "ms",
        "traceEvents": [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}, *events],
    }
    path = folder / f"node_{1000 + rank}.1700000{rank}.pt.trace.json{'.gz' if packed else ''}"
    text = json.dumps(data, indent=1).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    return path
