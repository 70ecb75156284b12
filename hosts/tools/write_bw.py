"""mrc-write-bw: bandwidth of RDMA writes from one host to another, like perftest's ib_write_bw."""

from __future__ import annotations

import json
import sys
from typing import Annotated

from mrc_testbed.console.terminal import Style
from mrc_testbed.hosts.tools import common, perftest_json
from mrc_testbed.hosts.tools.common import Event, ToolError, Work, megabits, planes_text

TOOL = "mrc-write-bw"
SCHEMA = "mrc-write-bw/1"
EXAMPLES = (
    "`mrc-write-bw h2`: 1000 writes of 64 KiB on one QP, inside a host",
    "`mrc-write-bw --from h0 h2 -D 10 -i 1`: ten seconds, a line every second, from outside",
    "`mrc-write-bw h2 -a`: all sizes from 2 B to 8 MiB",
    "`mrc-write-bw h2 -q 4 -b -D 5`: four QPs, both directions at once",
    "`mrc-write-bw h2 --rocev2`: the same over RoCEv2 RC: one path, Go-Back-N",
    "`mrc-write-bw h2 -s 1M -n 500 --json`: for programs",
    "`mrc-write-bw h2 -D 10 --out_json`: for programs that read perftest's file",
)
RULE = "-" * 100
STYLE = Style()
"""Style of rows printed one by one, in fixed columns: as wide on a terminal as in a file."""


def header(setup: Event) -> str:
    """Header of the table: transport, QPs, path MTU, paths."""
    direction = "both ways" if setup["bidirectional"] else "one way"
    depths = sorted(set(setup["depth"]))
    depth = str(depths[0]) if len(depths) == 1 else f"{depths[0]} to {depths[-1]}"
    mtu, paths = f"{setup['pmtu_bytes']} bytes", f"{setup['evs']} EVs, {setup['planes']} planes"
    lines = [
        RULE,
        f"{'MRC' if setup['transport'] == 'mrc' else setup['transport']} write bandwidth: "
        f"{setup['host']} to {setup['peer']}",
        f" Transport : {setup['transport']:<20} Path MTU  : {mtu}",
        f" QPs       : {len(setup['qps']):<20} Paths     : {paths}",
        f" TX depth  : {depth:<20} Direction : {direction}",
    ]
    lines += [f" QPN local : {qp['qpn']:#08x}             QPN remote: {qp['remote_qpn']:#08x}" for qp in setup["qps"]]
    return "\n".join([*lines, RULE])


COLUMNS = (
    f" {'#bytes':<9} {'#iterations':<11} {'BW peak[Mb/s]':<13} {'BW average[Mb/s]':<16} {'MsgRate[Kpps]':<13} "
    f"{'retrans':<8} {'trimmed':<8} marked"
)


def row(result: Event) -> str:
    """Return one line of the table and one with the planes' rates, of a result that `total` made."""
    rate = result["msg_rate_pps"]
    planes = STYLE.fold(f" {'':<9} planes[Mb/s] {planes_text(result['plane_bps'])}")
    return (
        f" {result['bytes']:<9} {result['writes']:<11} {megabits(result['bw_peak_bps']):<13} "
        f"{megabits(result['bw_average_bps']):<16} {'-' if rate is None else f'{rate / 1e3:.3f}':<13} "
        f"{result['retransmitted']:<8} {result['trimmed']:<8} {result['marked']:<7}".rstrip()
        + f"\n{planes}"
    )


def interval_row(event: Event) -> str:
    """Return the line of an interval."""
    received = f"   received {megabits(event['received_bps'])}" if event["received_bps"] else ""
    return STYLE.fold(
        f" [{event['from_s']:6.2f} -{event['to_s']:6.2f} s]  {megabits(event['bw_bps']):>9} Mb/s{received}   "
        f"retrans {event['retransmitted']}   planes {planes_text(event['plane_bps'])}"
    )


def total(result: Event) -> Event:
    """Return both directions of a result added up; the result itself when there is only one."""
    reverse = result.get("reverse")
    if reverse is None:
        return result
    out = dict(result)
    for key in ("writes", "retransmitted", "trimmed", "marked", "bw_peak_bps", "bw_average_bps", "msg_rate_pps"):
        out[key] = (result[key] or 0) + (reverse[key] or 0)
    out["plane_bps"] = [a + b for a, b in zip(result["plane_bps"], reverse["plane_bps"], strict=False)]
    return out


class Output:
    """Output of a test: printed as it runs, or collected for --json."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.setup: Event = {}
        self.results: list[Event] = []
        self._intervals: list[Event] = []
        self._headed = False

    def begin(self, setup: Event) -> None:
        self.setup = setup
        if not self._as_json:
            print(header(setup), flush=True)

    def event(self, event: Event) -> None:
        kind = event.pop("event")
        (self.results if kind == "result" else self._intervals).append(event)
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
            rate_out, rate_back = megabits(event["bw_average_bps"]), megabits(reverse["bw_average_bps"])
            host, peer = self.setup["host"], self.setup["peer"]
            print(f" {'':<9} {host} to {peer}: {rate_out} Mb/s, {peer} to {host}: {rate_back} Mb/s", flush=True)

    def end(self, end: Event) -> None:
        if self._as_json:
            document = {"schema": SCHEMA, **self.setup, "state": end["state"], "error": end["error"]}
            print(json.dumps({**document, "results": self.results, "intervals": self._intervals}, indent=2))
        else:
            print(RULE)


def command(
    peer: common.Peer,
    source: common.Source = None,
    size: Annotated[
        int, common.option("-s", "--size", parser=common.size_type, metavar="N", help="Bytes of a write (65536).")
    ] = 65536,
    all_sizes: common.AllSizes = False,
    iters: common.Iterations = None,
    duration: common.Duration = None,
    warm_up: Annotated[
        int,
        common.option(
            "--warm-up", parser=common.int_type(0), metavar="N", help="Writes before the first one counts (8)."
        ),
    ] = 8,
    mtu: common.Mtu = None,
    transport: common.Transport = "mrc",
    rocev2: common.RoCEv2 = False,
    qps: Annotated[
        int, common.option("-q", "--qp", parser=common.count_type, metavar="N", help="Queue pairs (1).")
    ] = 1,
    tx_depth: Annotated[
        int | None,
        common.option(
            "-t",
            "--tx-depth",
            parser=common.count_type,
            metavar="N",
            help="Posted writes of a QP at a time (128, fewer for large ones).",
        ),
    ] = None,
    bidirectional: Annotated[
        bool, common.option("-b", "--bidirectional", help="Write in both directions at once.")
    ] = False,
    interval: Annotated[
        float | None,
        common.option(
            "-i", "--interval", parser=common.seconds_type, metavar="S", help="A line every S seconds, at least 0.05."
        ),
    ] = None,
    run_dir: common.RunDir = None,
    out_json: common.OutJson = False,
    out_json_file: common.OutJsonFile = None,
    as_json: common.Json = False,
) -> Work:
    """Bandwidth of RDMA writes to another host.

    Bandwidths count payload. BW peak is the highest over any 100 ms; with -b all rates are the sum of both directions.
    Ctrl-C ends the test and prints the measurement so far.
    """
    transport = "rocev2" if rocev2 else transport
    options = common.TestOptions(peer, size, all_sizes, iters, duration, warm_up, mtu, transport)

    def work() -> int:
        file = perftest_json.file_for(out_json, out_json_file, all_sizes)
        measuring_host = common.find_measuring_host(TOOL, run_dir, source)
        measuring_host.peer(peer)
        fields = {**options.fields(), "qps": qps, "bidirectional": bidirectional}
        if tx_depth is not None:
            fields["depth"] = tx_depth
        if interval is not None:
            if interval < 0.05:
                raise ToolError(f"-i {interval:g}: at least 0.05 s")
            fields["interval_s"] = interval
        output = Output(as_json)
        end = common.conduct(measuring_host, "write_bw", fields, output.begin, output.event)
        output.end(end)
        if file is not None:
            perftest_json.write_file(file, perftest_json.bandwidth(output.setup, output.results))
        return common.finish(end, TOOL)

    return work


def main(argv: list[str] | None = None) -> int:
    """The console script; its exit code (hosts/tools/common.py)."""
    return common.run(TOOL, command, EXAMPLES, argv)


if __name__ == "__main__":
    sys.exit(main())
