"""Results in the JSON shape of perftest's --out_json (docs/data.md): one object, of one size of write.

What is not ours is absent, not made up: SRQ, PCIe, CQ moderation, inline data, GPU memory. Rates are in MiB/s and
millions of writes a second, times in microseconds, as perftest has them unless it is told otherwise.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mrc_testbed.errors import DISK_FULL_ERRNOS, EXIT_UNWRITTEN
from mrc_testbed.files.whole_files import write_output
from mrc_testbed.hosts.tools.common import USAGE_ERROR, Event, ToolError

DEFAULT_FILE = "perftest_out.json"
"""Default output file, in the working directory."""
MIB_BITS = 8 << 20
TIMES = {
    "t_min": "t_min_us",
    "t_max": "t_max_us",
    "t_typical": "t_typical_us",
    "t_avg": "t_avg_us",
    "t_stdev": "t_stdev_us",
    "percentile_99": "p99_us",
    "percentile_99.9": "p99_9_us",
}
"""perftest's key of each of our times."""


def file_for(out_json: bool, out_json_file: Path | None, all_sizes: bool) -> Path | None:
    """Return the file that the options ask for.

    Raises ToolError with -a: the shape has room for one size.
    """
    if not out_json and out_json_file is None:
        return None
    if all_sizes:
        raise ToolError("-a and --out_json exclude each other: its shape has one size; give -s, or take --json")
    return out_json_file or Path(DEFAULT_FILE)


def write_file(file: Path, document: dict[str, Any] | None) -> None:
    """Write a document; none when nothing was measured, and an older file goes then. Raises ToolError."""
    try:
        if document is None:
            file.unlink(missing_ok=True)
        else:
            write_output(file, (json.dumps(document, indent=1) + "\n").encode())
    except OSError as error:
        code = EXIT_UNWRITTEN if error.errno in DISK_FULL_ERRNOS else USAGE_ERROR
        raise ToolError(f"{file}: {error.strerror}: give --out_json_file a file that can be written", code) from None


def bandwidth(setup: Event, results: list[Event]) -> dict[str, Any] | None:
    """Document of a bandwidth test; rates with -b are of both directions. None: nothing measured."""
    if not results or results[0]["bw_average_bps"] is None:
        return None
    result = results[0]
    sides = [result, *([result["reverse"]] if result.get("reverse") else [])]

    def sum_of_sides(key: str) -> float:
        return sum(side[key] or 0.0 for side in sides)

    name = "RDMA_Write_Bidirectional_BW_Test" if setup["bidirectional"] else "RDMA_Write_BW_Test"
    return {
        "test_info": _test_info(name, setup, result),
        "results": {
            "MsgSize": result["bytes"],
            "n_iterations": result["writes"],
            "BW_peak": round(sum_of_sides("bw_peak_bps") / MIB_BITS, 6),
            "BW_average": round(sum_of_sides("bw_average_bps") / MIB_BITS, 6),
            "MsgRate": round(sum_of_sides("msg_rate_pps") / 1e6, 6),
        },
    }


def latency(setup: Event, results: list[Event]) -> dict[str, Any] | None:
    """Document of a latency test; None: nothing measured."""
    if not results or results[0]["t_avg_us"] is None:
        return None
    result = results[0]
    times = {key: result[time] for key, time in TIMES.items()}
    return {
        "test_info": _test_info("RDMA_Write_Latency_Test", setup, result),
        "results": {"MsgSize": result["bytes"], "n_iterations": result["writes"], **times},
    }


def _test_info(name: str, setup: Event, result: Event) -> dict[str, Any]:
    """Return the description of the test. perftest says `IB` and `RC` of RoCEv2; MRC has no name there."""
    mrc = setup["transport"] == "mrc"
    return {
        "test": name,
        "Device": setup["host"],
        "Number_of_qps": len(setup["qps"]),
        "Transport_type": "MRC" if mrc else "IB",
        "Connection_type": "MRC" if mrc else "RC",
        "TX_depth": result["depth"],
        "Mtu": setup["pmtu_bytes"],
        "Link_type": "Ethernet",
    }
