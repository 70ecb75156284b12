"""Bandwidth between two hosts over IP by iperf3, under Mininet's words `iperf` and `iperfudp`.

Mininet's own need iperf 2 and telnet, and end the session with a traceback when a host cannot be reached.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from shutil import which
from subprocess import PIPE, STDOUT
from typing import Any

from mrc_testbed.errors import UsageError
from mrc_testbed.ipc.rundir import FabricError

PORT = "5001"
"""TCP and UDP port, as in Mininet: 5201 may be that of a user's own iperf3."""
DURATION_S = 5
CONNECT_TIMEOUT_MS = 5000
LISTENING = "Server listening"
DEFAULT_UDP_RATE = "10M"
UDP_RATE = re.compile(r"\d+(\.\d+)?[KMG]?", re.ASCII | re.IGNORECASE)
"""Bits per second as iperf3 takes them; it reads other words as 0, which is as fast as it can."""
TCP_USAGE = "usage: iperf [HOST HOST], as in: iperf h1 h2"
UDP_USAGE = "usage: iperfudp [RATE HOST HOST], as in: iperfudp 10M h1 h2"
PrintText = Callable[[str], None]


def iperf(hosts: Mapping[str, Any], words: Sequence[str], print_text: PrintText) -> None:
    """Measure TCP for five seconds, and print Mininet's two lines. Raises UsageError, FabricError."""
    client, server = _ends(hosts, words, TCP_USAGE)
    print_text(f"*** Iperf: testing TCP bandwidth between {client.name} and {server.name}")
    print_text(f"*** Results: {_rates(client, server, ())}")


def iperfudp(hosts: Mapping[str, Any], words: Sequence[str], print_text: PrintText) -> None:
    """Measure UDP for five seconds, and print Mininet's two lines. Raises UsageError, FabricError."""
    rate, *names = words or (DEFAULT_UDP_RATE,)
    if not UDP_RATE.fullmatch(rate) or (words and not names):
        raise UsageError(UDP_USAGE)
    client, server = _ends(hosts, names, UDP_USAGE)
    print_text(f"*** Iperf: testing UDP bandwidth between {client.name} and {server.name}")
    print_text(f"*** Results: {[rate, *_rates(client, server, ('-u', '-b', rate))]}")


def _ends(hosts: Mapping[str, Any], names: Sequence[str], usage: str) -> tuple[Any, Any]:
    """Return client and server, by default the first and the last host. Raises UsageError."""
    if not names and len(hosts) > 1:
        names = (next(iter(hosts)), list(hosts)[-1])
    if len(names) != 2 or names[0] == names[1]:
        raise UsageError(usage)
    for name in names:
        if name not in hosts:
            raise UsageError(f"no host {name!r} (has: {', '.join(hosts)})")
    return hosts[names[0]], hosts[names[1]]


def _rates(client: Any, server: Any, options: Sequence[str]) -> list[str]:
    """Return the rates that the server received and the client sent. Raises FabricError."""
    if which("iperf3") is None:
        raise FabricError("iperf: no iperf3 on this machine. Cure: `apt-get install iperf3`")
    with ExitStack() as stack:
        listener = stack.enter_context(
            server.popen(["iperf3", "-s", "-1", "-p", PORT, "--forceflush"], stdout=PIPE, stderr=STDOUT, text=True)
        )
        stack.callback(listener.kill)
        output = ""
        while LISTENING not in output:
            line = listener.stdout.readline()
            if not line:
                raise FabricError(f"iperf: {server.name}: {output.strip() or 'iperf3 ended'}")
            output += line
        command = ["iperf3", "-c", server.IP(), "-p", PORT, "-t", str(DURATION_S), "--json"]
        command += ["--connect-timeout", str(CONNECT_TIMEOUT_MS), *options]
        sender = stack.enter_context(client.popen(command, stdout=PIPE, stderr=STDOUT, text=True))
        stack.callback(sender.kill)
        report, _ = sender.communicate()
    return [f"{bps / 1e6:.2f} Mbits/sec" for bps in _rates_bps(report, f"{client.name} to {server.name}")]


def _rates_bps(report: str, pair: str) -> tuple[float, float]:
    """Return the rates received and sent of iperf3's JSON. Raises FabricError with its words."""
    try:
        fields = json.loads(report)
    except ValueError:
        raise FabricError(f"iperf: {pair}: {report.strip() or 'iperf3 ended without a report'}") from None
    if "error" in fields:
        raise FabricError(f"iperf: {pair}: {fields['error']}")
    end = fields["end"]
    return end["sum_received"]["bits_per_second"], end["sum_sent"]["bits_per_second"]
