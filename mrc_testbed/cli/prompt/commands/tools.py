"""Commands that run one of our tools beside the CLI: ping, bw, lat, stat, capture, trace, p4sh, iperf."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from mrc_testbed.cli.prompt.commands.base import (
    INSPECT,
    SEND,
    SHOW,
    Args,
    CliSession,
    CommandError,
    arguments,
    command,
    host_names,
    host_on,
    nodes_and_ports,
    switch,
    switch_names,
    two_hosts,
    two_hosts_then,
)
from mrc_testbed.cli.prompt.iperf import iperfudp as iperfudp_over_ip
from mrc_testbed.errors import EXIT_INTERRUPTED, EXIT_NOT_ARRIVED
from mrc_testbed.files.package import PACKAGE
from mrc_testbed.ipc import processes
from mrc_testbed.ipc.fabrics import OWN_FABRIC

if TYPE_CHECKING:
    from mrc_testbed.topologies.lab.fabric import Fabric

TOOLS = {"bw": "write_bw", "lat": "write_lat", "ping": "ping", "stat": "stat"}
"""Word -> module of mrc_testbed.hosts.tools."""
IPERF_DEPTH = "16"
"""Writes of 64 KiB in flight for `iperf`: a MiB fills any path here, and drains in 1 s on slow links."""
IPERF_S = 5
"""Duration of `iperf`, seconds."""
CAPTURE_S = 5
"""Default duration of `capture`, seconds."""


@command("ping", SEND, complete=two_hosts_then("-c", "-i", "-W", "-v", "--json"))
def ping(session: CliSession, args: Args) -> None:
    """Probe every path between two hosts, one line a path (mrc-ping).

    ping h0 h2
    ping h0 h2 -c 1               one round; -i 0.05 -W 2 as in ping(8)
    """
    _tool(session, "ping", args)


@command("mping", "", complete=two_hosts_then("-c", "-i", "-W", "-v", "--json"))
def mping(session: CliSession, args: Args) -> None:
    """The older name of `ping`.

    mping h0 h2
    """
    _tool(session, "ping", args, "mping")


@command("bw", SEND, complete=two_hosts_then("-s", "-a", "-n", "-D", "-q", "-t", "-b", "-i", "--rocev2", "--json"))
def bw(session: CliSession, args: Args) -> None:
    """Measure the bandwidth of writes from host to host (mrc-write-bw).

    bw h0 h2                      1000 writes of 64 KiB
    bw h0 h2 -D 5 -i 1 -q 4       five seconds, a line each second, four QPs
    bw h0 h2 --transport rocev2   the single-path baseline
    bw --help                     all options
    """
    _tool(session, "bw", args)


@command("lat", SEND, complete=two_hosts_then("-s", "-a", "-n", "-D", "--rocev2", "--json"))
def lat(session: CliSession, args: Args) -> None:
    """Measure the latency of writes from host to host (mrc-write-lat).

    lat h0 h2
    lat h0 h2 -s 4096 -n 500
    """
    _tool(session, "lat", args)


@command(
    "stat", SHOW, complete=lambda fabric, words: ("-e", "-i", "-c", "--json") if words else host_names(fabric, words)
)
def stat(session: CliSession, args: Args) -> None:
    """Live QPs, EV states and counters of all hosts or of one (mrc-stat).

    stat
    stat h0 -e                    every EV
    stat h0 -i 1                  again every second; Ctrl-C ends it
    """
    _tool(session, "stat", args)


@command("iperf", SEND, complete=two_hosts_then())
def iperf(session: CliSession, args: Args) -> str:
    """Bandwidth between two hosts as Mininet's iperf says it, measured with MRC writes for five seconds.

    iperf                         the first host and the first one in another rack
    iperf h0 h3
    """
    usage = "iperf [HOST HOST], as in: iperf h0 h2 (`bw` has options)"
    args = arguments(args, usage, 0, 2)
    if not args:
        first = session.plan.hosts[0].name
        args = (first, session.plan.first_remote_host(first).name)
    source, destination = two_hosts(session, arguments(args, usage, 2), usage)
    argv = _argv(session, "bw", ["--from", source, "-D", str(IPERF_S), "-t", IPERF_DEPTH, "--json", destination])
    with session.progress("iperf", IPERF_S + 1.0):
        run = subprocess.run(argv, cwd=PACKAGE.parent, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if run.returncode:
        output_lines = (run.stderr or run.stdout).strip().splitlines() or [f"ended with exit code {run.returncode}"]
        raise CommandError(f"iperf: {output_lines[-1]}")
    rate_bps = json.loads(run.stdout)["results"][-1]["bw_average_bps"]
    head = f"*** Iperf: testing MRC bandwidth between {source} and {destination}"
    return f"{head}\n*** Results: ['{rate_bps / 1e6:.1f} Mbits/sec']"


@command("iperfudp", "")
def iperfudp(session: CliSession, args: Args) -> None:
    """Mininet's UDP test with iperf3, over IP at one rate for five seconds.

    iperfudp                      10 Mb/s from the first host to the last
    iperfudp 5M h0 h2
    """
    iperfudp_over_ip(session.fabric.hosts, args, lambda text: print(text, file=session.out, flush=True))


@command("exec", SEND, complete=lambda fabric, words: () if words else host_names(fabric, words))
def execute(session: CliSession, args: Args) -> None:
    """Run a program with the RDMA device of a host, as `mrc exec` does.

    exec h2 ib_write_bw -d mrc0 -D 10 &      perftest's server; & leaves the prompt free
    exec h0 ib_write_bw -d mrc0 -D 10 h2     its client: `link p0-t0-0 p0-t1-0 down` elsewhere meanwhile
    """
    host, *program = arguments(args, "exec HOST PROGRAM [ARGUMENTS], as in: exec h0 ibv_devices", 2, 999)
    program = program[1:] if program[0] == "--" else program
    in_background = program[-1:] == ["&"]
    words = ["exec", host_on(session, host), "--", *(program[:-1] if in_background else program)]
    if in_background:
        log = session.fabric.run_dir.log(f"exec-{host}")
        run_behind(session, words, log)
        session.out.write(f"{host}: {program[0]} runs; its output is in {log}\n")
        return
    _mrc(session, "exec", words, interactive=session.is_terminal)


# ---- looking inside -------------------------------------------------------------------------------------------


def _capture_complete(fabric: Fabric, words: list[str]) -> Iterable[str]:
    return ("--count", "--duration", "--snaplen", "--out", "--explain") if words else nodes_and_ports(fabric, words)


@command("capture", INSPECT, complete=_capture_complete)
def capture(session: CliSession, args: Args) -> None:
    """Capture the packets of a port, or of all ports of a node, to a file (`mrc pcap`).

    capture p1-t0-0-eth3          five seconds to p1-t0-0-eth3.pcap
    capture h0 --count 1000       the next 1000 packets of all its ports to h0.pcapng
    capture h0-eth2 --duration 60 --snaplen 128 --out long.pcap
    capture p1-t0-0 --explain     with a comment on each packet
    """
    if not {"-h", "--help", "--count", "--duration"} & {text.partition("=")[0] for text in args}:
        usage = "capture PORT|NODE [OPTIONS], as in: capture p1-t0-0-eth3 --count 100 (`capture --help` shows all)"
        args = [*arguments(args, usage, 1, 99), "--duration", str(CAPTURE_S)]
    _mrc(session, "capture", ["pcap", *args])


@command("pcap", "", complete=_capture_complete)
def pcap(session: CliSession, args: Args) -> None:
    """The older name of `capture`.

    pcap p1-t0-0-eth3
    """
    capture(session, args)


def _trace_complete(fabric: Fabric, words: list[str]) -> Sequence[str]:
    if len(words) < 2:
        return [sender.name for sender in fabric.plan.hosts]
    try:
        source, destination = (fabric.plan.host(name) for name in words[:2])
    except ValueError:
        return ()
    return [f"{ev:#06x}" for ev in fabric.plan.evs(source, destination)] if len(words) == 2 else ("--full",)


@command("trace", INSPECT, complete=_trace_complete)
def trace(session: CliSession, args: Args) -> None:
    """Follow one packet hop by hop: what each switch's program decides, with the tables it has now.

    trace h0 h2 0x0101            a write over that EV
    trace h0 h2 0x0101 --full     every step of the program in each switch

    The tables are read from the switches over P4Runtime and loaded into the same program in memory, with the ports
    that are down now; then a frame is pushed through. Nothing is sent, no counter moves.
    """
    usage = "trace HOST HOST EV [--full], as in: trace h0 h2 0x0101 (`evs h0 h2` lists them)"
    arguments(args, usage, 3, 5)
    two_hosts(session, args, usage)
    _mrc(session, "trace", ["trace", *args], success_codes=(0, EXIT_NOT_ARRIVED, EXIT_INTERRUPTED))


@command("dash", INSPECT)
def dash(session: CliSession, args: Args) -> str:
    """Open the live view: a page that draws the fabric, shows events, and cuts and heals on a click.

    dash

    The page is for this machine's browser alone, and its address has a key in it: whoever has it may break things.
    """
    arguments(args, "dash", 0)
    if session.open_page is None:
        raise CommandError("no live view here: use the prompt of `mrc up`")
    return session.open_page(session)


@command("p4sh", INSPECT, complete=switch_names)
def p4sh(session: CliSession, args: Args) -> None:
    """Open p4runtime-shell on a switch, to read its tables; `exit` comes back here (`mrc shell`).

    p4sh p1-t0-0
    """
    (name,) = arguments(args, "p4sh SWITCH, as in: p4sh p1-t0-0", 1)
    if switch(session.plan, name) in session.fabric.nodes_off:
        raise CommandError(f"{name} is off and has no tables. Cure: `power {name} on`")
    _mrc(session, "p4sh", ["shell", name], interactive=session.is_terminal)


# ---- running --------------------------------------------------------------------------------------------------


def _tool(session: CliSession, name: str, args: Args, word: str | None = None) -> None:
    """Run a tool such as `bw HOST HOST [OPTIONS]` and copy its output as it comes.

    Ctrl-C is for the tool, which then tells what it has so far. Raises CommandError when it failed.
    """
    word = word or name
    if name != "stat" and "-h" not in args and "--help" not in args:
        usage = f"{word} HOST HOST [OPTIONS], as in: {word} h0 h2 (`{word} --help` shows all)"
        source, destination, *options = arguments(args, usage, 2, 99)
        args = ["--from", host_on(session, source), *options, host_on(session, destination)]
    run(session, word, _argv(session, name, args), cwd=PACKAGE.parent)


def _argv(session: CliSession, name: str, args: Args) -> list[str]:
    module = f"mrc_testbed.hosts.tools.{TOOLS[name]}"
    return [sys.executable, "-m", module, "--run-dir", str(session.fabric.run_dir.path), *args]


def _mrc(
    session: CliSession,
    word: str,
    args: Args,
    *,
    interactive: bool = False,
    success_codes: tuple[int, ...] = (0, EXIT_INTERRUPTED),
) -> None:
    """Run a sub-command of `mrc` on this fabric; `fine`: exit codes that are no failure."""
    environment, argv = _environment(session), [sys.executable, "-m", "mrc_testbed", *args]
    if interactive:
        with session.notices.hold() if session.notices else nullcontext():
            code = subprocess.run(argv, env={**os.environ, **environment}, check=False).returncode
        if code not in (0, EXIT_INTERRUPTED):
            raise CommandError(f"{word}: ended with exit code {code}")
        return
    run(session, word, argv, env=environment, success_codes=success_codes)


def _environment(session: CliSession) -> dict[str, str]:
    """Return the variables that make a sub-command of `mrc` use this fabric."""
    return {"MRC_RUN_DIR": str(session.fabric.run_dir.path), OWN_FABRIC: "1", "PYTHONPATH": str(PACKAGE.parent)}


def run_behind(session: CliSession, words: Sequence[str], log: Path) -> None:
    """Run a sub-command of `mrc` on this fabric without waiting for it; it ends with the fabric."""
    with log.open("ab") as output:
        processes.popen(
            [sys.executable, "-m", "mrc_testbed", *words],
            session.fabric.run_dir.state.token,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **_environment(session)},
        )


def run(
    session: CliSession,
    word: str,
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    success_codes: tuple[int, ...] = (0, EXIT_INTERRUPTED),
) -> None:
    """Run one of the `mrc` commands and copy its output to `out` as it comes. Raises CommandError."""
    process = processes.popen(
        argv,
        session.fabric.run_dir.state.token,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": str(session.style.width), **(env or {})},
    )
    try:
        code = _copy(process, session.out)
    except BaseException:
        process.kill()
        raise
    finally:
        if process.stdout is not None:
            process.stdout.close()
        process.wait()
    if code not in success_codes:
        raise CommandError(f"{word}: ended with exit code {code}")


def _copy(process: subprocess.Popen[Any], out: IO[str]) -> int:
    """Copy the output of a process until it ends, and return its exit code.

    In a session of its own, the process gets our Ctrl-C once.
    """
    while True:
        try:
            for line in process.stdout or ():
                out.write(line)
                out.flush()
            return int(process.wait())
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
