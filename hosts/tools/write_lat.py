"""mrc-write-lat: latency of single RDMA writes, with the statistics of perftest's ib_write_lat."""

from __future__ import annotations

import json
import sys
from typing import Any

from hosts.tools import common
from hosts.tools.common import Event

TOOL = "mrc-write-lat"
SCHEMA = "mrc-write-lat/1"
EXAMPLES = """\
  mrc-write-lat h2                      1000 writes of 2 bytes, one at a time, inside a host
  mrc-write-lat --from h0 h2 -s 4096    from outside, one full packet a write
  mrc-write-lat h2 -a                   all sizes from 2 B to 8 MiB
  mrc-write-lat h2 -D 10 --json         ten seconds, for programs

Latency is that of a write as its poster sees it: from posting to completion, so one way there, the acknowledgment
back, and the host software at both ends. (ib_write_lat tells half of a ping-pong.) Times are microseconds.
Ctrl-C ends the test and tells what was measured so far.
"""
RULE = "-" * 127
TIMES = ("t_min_us", "t_max_us", "t_typical_us", "t_avg_us", "t_stdev_us", "p99_us", "p99_9_us")
COLUMNS = (
    f" {'#bytes':<8} {'#iterations':<12} {'t_min[usec]':<13} {'t_max[usec]':<13} {'t_typical[usec]':<17} "
    f"{'t_avg[usec]':<13} {'t_stdev[usec]':<15} {'99%[usec]':<13} 99.9%[usec]"
)
WIDTHS = (13, 13, 17, 13, 15, 13, 0)


def arguments(argv: list[str] | None) -> Any:
    made = common.parser(TOOL, "Latency of RDMA writes to another host, from posting to completion.", EXAMPLES)
    common.add_test_options(made, size=2, warm_up=20)
    return made.parse_args(argv)


def header(begun: Event) -> str:
    """What was set up."""
    (qp,) = begun["qps"]
    return "\n".join([
        RULE,
        f"{'MRC' if begun['transport'] == 'mrc' else begun['transport']} write latency, posting to completion: "
        f"{begun['host']} to {begun['peer']}",
        f" Transport : {begun['transport']:<20} Path MTU  : {begun['pmtu_bytes']} bytes",
        f" QPN local : {qp['qpn']:#08x}             QPN remote: {qp['remote_qpn']:#08x}",
        RULE,
        COLUMNS,
    ])  # fmt: skip


def row(result: Event) -> str:
    """One line of the table."""
    times = ["-" if result[key] is None else f"{result[key]:.2f}" for key in TIMES]
    cells = " ".join(f"{text:<{width}}" for text, width in zip(times, WIDTHS, strict=True))
    lost = f"   ({result['lost']} packets lost)" if result["lost"] else ""
    return f" {result['bytes']:<8} {result['writes']:<12} {cells}{lost}"


def main(argv: list[str] | None = None) -> int:
    """The console script; its exit code (hosts/tools/common.py)."""

    def body() -> int:
        given = arguments(argv)
        place = common.find_place(given)
        place.peer(given.peer)
        begun: Event = {}
        results: list[Event] = []

        def on_begin(event: Event) -> None:
            begun.update(event)
            if not given.json:
                print(header(event), flush=True)

        def on_event(event: Event) -> None:
            del event["event"]
            results.append(event)
            if not given.json:
                print(row(event), flush=True)

        end = common.conduct(place, "write_lat", common.test_fields(given), on_begin, on_event)
        if given.json:
            document = {"schema": SCHEMA, **begun, "state": end["state"], "error": end["error"], "results": results}
            print(json.dumps(document, indent=2))
        else:
            print(RULE)
        return common.finish(end, TOOL)

    return common.run(TOOL, body)


if __name__ == "__main__":
    sys.exit(main())
