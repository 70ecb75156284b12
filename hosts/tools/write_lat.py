"""mrc-write-lat: latency of single RDMA writes, with the statistics of perftest's ib_write_lat."""

from __future__ import annotations

import json
import sys
from typing import Annotated

from mrc_testbed.hosts.tools import common, perftest_json
from mrc_testbed.hosts.tools.common import Event, Work

TOOL = "mrc-write-lat"
SCHEMA = "mrc-write-lat/1"
EXAMPLES = (
    "`mrc-write-lat h2`: 1000 writes of 2 bytes, one at a time, inside a host",
    "`mrc-write-lat --from h0 h2 -s 4096`: from outside, one full packet a write",
    "`mrc-write-lat h2 -a`: all sizes from 2 B to 8 MiB",
    "`mrc-write-lat h2 -D 10 --json`: ten seconds, for programs",
)
RULE = "-" * 98
TIMES = ("t_min_us", "t_max_us", "t_typical_us", "t_avg_us", "t_stdev_us", "p99_us", "p99_9_us")
COLUMNS = (
    f" {'#bytes':<8} {'#iterations':<11} {'t_min':<10} {'t_max':<10} {'t_typical':<10} {'t_avg':<10} {'t_stdev':<10} "
    f"{'99%':<10} 99.9%"
)
WIDTHS = (10, 10, 10, 10, 10, 10, 0)


def header(setup: Event) -> str:
    """Header of the table: transport, path MTU, QPNs."""
    (qp,) = setup["qps"]
    return "\n".join(
        [
            RULE,
            f"{'MRC' if setup['transport'] == 'mrc' else setup['transport']} write latency, posting to completion, "
            f"in microseconds: {setup['host']} to {setup['peer']}",
            f" Transport : {setup['transport']:<20} Path MTU  : {setup['pmtu_bytes']} bytes",
            f" QPN local : {qp['qpn']:#08x}             QPN remote: {qp['remote_qpn']:#08x}",
            RULE,
            COLUMNS,
        ]
    )


def row(result: Event) -> str:
    """Return one line of the table."""
    times = ["-" if result[key] is None else f"{result[key]:.2f}" for key in TIMES]
    cells = " ".join(f"{text:<{width}}" for text, width in zip(times, WIDTHS, strict=True))
    lost = f"\n {'':<8} {result['lost']} packets lost" if result["lost"] else ""
    return f" {result['bytes']:<8} {result['writes']:<11} {cells}{lost}"


def command(
    peer: common.Peer,
    source: common.Source = None,
    size: Annotated[
        int, common.option("-s", "--size", parser=common.size_type, metavar="N", help="Bytes of a write (2).")
    ] = 2,
    all_sizes: common.AllSizes = False,
    iters: common.Iterations = None,
    duration: common.Duration = None,
    warm_up: Annotated[
        int,
        common.option(
            "--warm-up", parser=common.int_type(0), metavar="N", help="Writes before the first one counts (20)."
        ),
    ] = 20,
    mtu: common.Mtu = None,
    transport: common.Transport = "mrc",
    rocev2: common.RoCEv2 = False,
    run_dir: common.RunDir = None,
    out_json: common.OutJson = False,
    out_json_file: common.OutJsonFile = None,
    as_json: common.Json = False,
) -> Work:
    """Latency of RDMA writes to another host, from posting to completion.

    One way there, the acknowledgment back, and the host software at both ends, in microseconds. (ib_write_lat reports
    half of a ping-pong.) Ctrl-C ends the test and prints the measurement so far.
    """
    transport = "rocev2" if rocev2 else transport
    options = common.TestOptions(peer, size, all_sizes, iters, duration, warm_up, mtu, transport)

    def work() -> int:
        file = perftest_json.file_for(out_json, out_json_file, all_sizes)
        measuring_host = common.find_measuring_host(TOOL, run_dir, source)
        measuring_host.peer(peer)
        setup: Event = {}
        results: list[Event] = []

        def on_begin(event: Event) -> None:
            setup.update(event)
            if not as_json:
                print(header(event), flush=True)

        def on_event(event: Event) -> None:
            del event["event"]
            results.append(event)
            if not as_json:
                print(row(event), flush=True)

        # Text is printed as events come; JSON is one document at the end.
        end = common.conduct(measuring_host, "write_lat", options.fields(), on_begin, on_event)
        if as_json:
            document = {"schema": SCHEMA, **setup, "state": end["state"], "error": end["error"], "results": results}
            print(json.dumps(document, indent=2))
        else:
            print(RULE)
        if file is not None:
            perftest_json.write_file(file, perftest_json.latency(setup, results))
        return common.finish(end, TOOL)

    return work


def main(argv: list[str] | None = None) -> int:
    """The console script; its exit code (hosts/tools/common.py)."""
    return common.run(TOOL, command, EXAMPLES, argv)


if __name__ == "__main__":
    sys.exit(main())
