"""mrc-write-bw: bandwidth of RDMA writes from one host to another, as perftest's ib_write_bw tells it."""

from __future__ import annotations

import json
import sys
from typing import Any

from hosts.tools import common
from hosts.tools.common import Event, ToolError, megabits, planes_text

TOOL = "mrc-write-bw"
SCHEMA = "mrc-write-bw/1"
EXAMPLES = """\
  mrc-write-bw h2                       1000 writes of 64 KiB on one QP, inside a host
  mrc-write-bw --from h0 h2 -D 10 -i 1  ten seconds, a line every second, from outside
  mrc-write-bw h2 -a                    all sizes from 2 B to 8 MiB
  mrc-write-bw h2 -q 4 -b -D 5          four QPs, both directions at once
  mrc-write-bw h2 --rocev2              the same over RoCEv2 RC: one path, Go-Back-N
  mrc-write-bw h2 -s 1M -n 500 --json   for programs

Bandwidths count payload. BW peak is the highest over any 100 ms; with -b all rates are the sum of both directions.
Ctrl-C ends the test and tells what was measured so far.
"""
RULE = "-" * 100


def arguments(argv: list[str] | None) -> Any:
    made = common.parser(TOOL, "Bandwidth of RDMA writes to another host.", EXAMPLES)
    common.add_test_options(made, size=65536, warm_up=8)
    made.add_argument("-q", "--qp", type=common.count_type, default=1, metavar="N", help="queue pairs (1)")
    made.add_argument(
        "-t", "--tx-depth", type=common.count_type, metavar="N",
        help="writes of a QP that are posted at a time (128, fewer for large ones)",
    )  # fmt: skip
    made.add_argument("-b", "--bidirectional", action="store_true", help="write in both directions at once")
    made.add_argument(
        "-i", "--interval", type=common.seconds_type, metavar="S", help="print a line every S seconds, at least 0.05"
    )
    return made.parse_args(argv)


def header(begun: Event) -> str:
    """What was set up."""
    direction = "both ways" if begun["bidirectional"] else "one way"
    depths = sorted(set(begun["depth"]))
    depth = str(depths[0]) if len(depths) == 1 else f"{depths[0]} to {depths[-1]}"
    mtu, paths = f"{begun['pmtu_bytes']} bytes", f"{begun['evs']} EVs, {begun['planes']} planes"
    lines = [
        RULE,
        f"{'MRC' if begun['transport'] == 'mrc' else begun['transport']} write bandwidth: "
        f"{begun['host']} to {begun['peer']}",
        f" Transport : {begun['transport']:<20} Path MTU  : {mtu}",
        f" QPs       : {len(begun['qps']):<20} Paths     : {paths}",
        f" TX depth  : {depth:<20} Direction : {direction}",
    ]
    lines += [
        f" QPN local : {one['qpn']:#08x}             QPN remote: {one['remote_qpn']:#08x}" for one in begun["qps"]
    ]
    return "\n".join([*lines, RULE])


COLUMNS = (
    f" {'#bytes':<10} {'#iterations':<12} {'BW peak[Mb/s]':<15} {'BW average[Mb/s]':<18} {'MsgRate[Kpps]':<15} "
    f"{'retrans':<8} {'trimmed':<8} {'marked':<7} planes[Mb/s]"
)


def row(result: Event) -> str:
    """One line of the table, from what `total` gives."""
    rate = result["msg_rate_pps"]
    return (
        f" {result['bytes']:<10} {result['writes']:<12} {megabits(result['bw_peak_bps']):<15} "
        f"{megabits(result['bw_average_bps']):<18} {'-' if rate is None else f'{rate / 1e3:.3f}':<15} "
        f"{result['retransmitted']:<8} {result['trimmed']:<8} {result['marked']:<7} {planes_text(result['plane_bps'])}"
    )


def interval_row(event: Event) -> str:
    """What happened between two looks."""
    received = f"   received {megabits(event['received_bps'])}" if event["received_bps"] else ""
    return (
        f" [{event['from_s']:6.2f} -{event['to_s']:6.2f} s]  {megabits(event['bw_bps']):>9} Mb/s{received}   "
        f"retrans {event['retransmitted']}   planes {planes_text(event['plane_bps'])}"
    )


def total(result: Event) -> Event:
    """Both directions of a result added up; the result itself when there is one only."""
    reverse = result.get("reverse")
    if reverse is None:
        return result
    out = dict(result)
    for key in ("writes", "retransmitted", "trimmed", "marked", "bw_peak_bps", "bw_average_bps", "msg_rate_pps"):
        out[key] = (result[key] or 0) + (reverse[key] or 0)
    out["plane_bps"] = [a + b for a, b in zip(result["plane_bps"], reverse["plane_bps"], strict=False)]
    return out


class Output:
    """Prints a test as it goes, or gathers it for --json."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._begun: Event = {}
        self._results: list[Event] = []
        self._intervals: list[Event] = []
        self._headed = False

    def begin(self, begun: Event) -> None:
        self._begun = begun
        if not self._as_json:
            print(header(begun), flush=True)

    def event(self, event: Event) -> None:
        kind = event.pop("event")
        (self._results if kind == "result" else self._intervals).append(event)
        if self._as_json:
            return
        if kind == "interval":
            print(interval_row(event), flush=True)
            return
        if not self._headed or self._intervals:
            print(COLUMNS)
            self._headed = True
        print(row(total(event)), flush=True)
        if reverse := event.get("reverse"):
            there, back = megabits(event["bw_average_bps"]), megabits(reverse["bw_average_bps"])
            host, peer = self._begun["host"], self._begun["peer"]
            print(f" {'':<10} {host} to {peer}: {there} Mb/s, {peer} to {host}: {back} Mb/s", flush=True)

    def end(self, end: Event) -> None:
        if self._as_json:
            document = {"schema": SCHEMA, **self._begun, "state": end["state"], "error": end["error"]}
            print(json.dumps({**document, "results": self._results, "intervals": self._intervals}, indent=2))
        else:
            print(RULE)


def main(argv: list[str] | None = None) -> int:
    """The console script; its exit code (hosts/tools/common.py)."""

    def body() -> int:
        given = arguments(argv)
        place = common.find_place(given)
        place.peer(given.peer)
        fields = {**common.test_fields(given), "qps": given.qp, "bidirectional": given.bidirectional}
        if given.tx_depth is not None:
            fields["depth"] = given.tx_depth
        if given.interval is not None:
            if given.interval < 0.05:
                raise ToolError(f"-i {given.interval:g}: at least 0.05 s")
            fields["interval_s"] = given.interval
        output = Output(given.json)
        end = common.conduct(place, "write_bw", fields, output.begin, output.event)
        output.end(end)
        return common.finish(end, TOOL)

    return common.run(TOOL, body)


if __name__ == "__main__":
    sys.exit(main())
