"""The Mininet CLI with MRC words: `link p1-t0-0 p1-t1-1 down`, `evs h0 h2`, `send h0 h2 64M`, `help`.

Mininet's own commands keep working, except those that need kernel addresses on fabric interfaces (`pingall`,
`iperf`), which say what to use instead. A mistake costs one line on the screen, never the session. Commands may
also come from a pipe or a file; then there is no prompt, and `run_cli` returns how many failed.
"""

from __future__ import annotations

import inspect
import shlex
import sys
import traceback
from cmd import Cmd
from difflib import get_close_matches
from typing import IO, Any

from mininet.cli import CLI
from mininet.log import lg

from topologies import words
from topologies.jsonl import JsonlError
from topologies.net import Fabric
from topologies.plan import PlanError
from topologies.rundir import FabricError
from topologies.words import UsageError

NOT_HERE = ("pingall", "pingallfull", "pingpair", "pingpairfull", "iperf", "iperfudp", "dpctl")
NO_KERNEL_ADDRESSES = "fabric interfaces have no kernel addresses, only MRC packets travel on them"


def run_cli(fabric: Fabric, *, stdin: IO[str] | None = None, stdout: IO[str] | None = None) -> int:
    """Run commands until `exit` or the end of the input; returns how many failed."""
    cli = FabricCLI(fabric, stdin or sys.stdin, stdout or sys.stdout)
    cli.converse()
    return cli.failures


class FabricCLI(CLI):
    """Mininet's CLI over a running Fabric."""

    identchars = Cmd.identchars + "-"  # or `p1-t0-0 ip link` would be the command `p1`

    def __init__(self, fabric: Fabric, stdin: IO[str], stdout: IO[str]) -> None:
        self.fabric = fabric
        self.failures = 0
        self.transfers = words.Transfers(fabric, self.say)
        self._begun = False
        super().__init__(fabric.mininet, stdin=stdin, stdout=stdout)
        self.locals["fabric"] = fabric

    def run(self) -> None:
        """Mininet's constructor calls this at its end; the conversation begins with `converse`."""
        if self._begun:
            super().run()

    def converse(self) -> None:
        """Read and do commands until the end."""
        interactive = self.isatty()
        self.use_rawinput = interactive and self.stdin is sys.stdin
        self.prompt = CLI.prompt if interactive else ""
        old_streams = [(handler, handler.setStream(self.stdout)) for handler in lg.handlers]  # it talks on stderr
        try:
            if interactive:
                self.say(f"{self.fabric.plan}. `help` lists the commands, `exit` ends and removes everything.")
            self._begun = True
            self.run()
        finally:
            self._begun = False
            self.transfers.close()
            for handler, stream in old_streams:
                if stream is not None:  # None: it was that stream already
                    handler.setStream(stream)

    def say(self, text: str) -> None:
        """Print a line where the user looks."""
        print(text, file=self.stdout, flush=True)

    def fail(self, text: str) -> None:
        self.failures += 1
        self.say(f"*** {text}")

    # ---- Cmd's hooks ------------------------------------------------------------------------------------

    def preloop(self) -> None:
        if self.use_rawinput:
            import readline

            readline.set_completer_delims(" \t\n")  # node names hold dashes

    def onecmd(self, line: str) -> Any:
        """One command; whatever goes wrong in it is one line."""
        try:
            return super().onecmd(line)
        except (FabricError, PlanError, JsonlError, UsageError) as error:
            self.fail(str(error))
        except Exception as error:
            log = self.fabric.run_dir.log("cli")
            with log.open("a") as out:
                traceback.print_exc(file=out)
            what = f"internal error in {line.split()[0]!r}: {type(error).__name__}: {error}"
            self.fail(f"{what} (traceback in {log})")
        return None

    def default(self, line: str) -> None:
        """`h0 ip link`: a command in a node; anything else is a mistake."""
        first, command, _ = self.parseline(line)
        first = first or (line.split() or [""])[0]
        if first in self.mn:
            if not command:
                raise UsageError(f"usage: {first} COMMAND, as in: {first} ip link")
            if not self.isatty():  # piped input is ours: a command that reads gets the end of its input
                command = f"eval {shlex.quote(command)} </dev/null"
            self.mn[first].sendCmd(command)
            self.waitForNode(self.mn[first])
            return
        close = get_close_matches(first, [*self._commands(), *self.mn], n=3, cutoff=0.5)
        hint = f" (did you mean: {', '.join(close)}?)" if close else ""
        self.fail(f"no command or node {first!r}{hint}; `help` lists what there is")

    def waitForNode(self, node: Any) -> None:
        """Show what a command in a node prints; at a terminal it also gets what is typed."""
        if self.isatty():
            super().waitForNode(node)
            return
        try:
            while node.waiting:
                self.stdout.write(node.monitor())
        finally:
            if node.waiting:
                node.sendInt()
                node.waitOutput()
        self.stdout.flush()

    def do_help(self, line: str) -> None:
        """Describe commands: `help`, `help link`."""
        if line and line not in self._commands():
            close = get_close_matches(line, self._commands(), n=3)
            raise UsageError(f"no command {line!r}" + (f" (did you mean: {', '.join(close)}?)" if close else ""))
        if line:
            self.say(inspect.getdoc(getattr(self, f"do_{line}")) or f"{line}: one of Mininet's")
            return
        self.say("MRC words (`help WORD` shows examples):")
        for name in words.WORDS:
            self.say(f"  {name:<8} {getattr(self, f'do_{name}').__doc__.splitlines()[0]}")
        mine = {*words.WORDS, "EOF", "help", *NOT_HERE}
        self.say("Mininet's: " + " ".join(c for c in self._commands() if c not in mine))
        self.say("A command in a node:  h0 mrc-ping h2    h0 ip link    p1-t0-0 ip -s link show p1-t0-0-eth1")

    def _commands(self) -> list[str]:
        return sorted(name[3:] for name in self.get_names() if name.startswith("do_"))

    def completenames(self, text: str, *_ignored: Any) -> list[str]:
        return _starting(text, [*self._commands(), *self.mn])

    # ---- words ------------------------------------------------------------------------------------------

    def do_link(self, line: str) -> None:
        """Cut a link or restore it.

        link p1-t0-0 p1-t1-1 down     a T0-T1 link
        link h0 p2-t0-0 down          one port of a NIC
        link p1-t0-0 p1-t1-1 up
        """
        self.say(words.link(self.fabric, line.split()))

    def do_links(self, line: str) -> None:
        """State of each link, or of those of one node.

        links
        links p1-t0-0
        """
        self.say(words.links(self.fabric, line.split()))

    def do_power(self, line: str) -> None:
        """Switch a switch off (state lost, ports down) or on.

        power p1-t1-0 off
        power p1-t1-0 on
        """
        self.say(words.power(self.fabric, line.split()))

    def do_switch(self, line: str) -> None:
        """Mininet's word for power: `switch p1-t1-0 stop`, `switch p1-t1-0 start`."""
        name, what = words.arguments(line.split(), "switch SWITCH start|stop", 2)
        if what not in ("start", "stop"):
            raise UsageError(f"start or stop, not {what!r}: switch SWITCH start|stop")
        self.say(words.power(self.fabric, [name, "on" if what == "start" else "off"]))

    def do_evs(self, line: str) -> None:
        """EV table of the live QPs between two hosts: plane, path, state.

        evs h0 h2
        """
        self.say(words.evs(self.fabric, line.split()))

    def do_faults(self, line: str) -> None:
        """Faults the controller knows: what, since when, by what evidence.

        faults
        """
        words.arguments(line.split(), "faults", 0)
        self.say(words.faults(self.fabric))

    def do_routes(self, line: str) -> None:
        """Read every switch table again and compare it with what was written at the start.

        routes
        """
        words.arguments(line.split(), "routes", 0)
        self.say(words.routes(self.fabric))

    def do_send(self, line: str) -> None:
        """Send random bytes or a file from host to host, in the background.

        send h0 h2                    64 MiB
        send h0 h2 16M                that many bytes (K, M, G are powers of 1024)
        send h0 h2 ./model.bin        a file
        send h0 h2 1G 40M             at 40 Mb/s
        """
        self.transfers.begin(line.split())

    def do_wait(self, line: str) -> None:
        """Wait until every transfer begun with `send` has ended.

        wait
        """
        words.arguments(line.split(), "wait", 0)
        if failed := self.transfers.wait():
            raise UsageError(f"{failed} of the transfers failed")

    def do_bw(self, line: str) -> None:
        """Measure the bandwidth of writes from host to host (mrc-write-bw).

        bw h0 h2                      1000 writes of 64 KiB
        bw h0 h2 -D 5 -i 1 -q 4       five seconds, a line each second, four QPs
        bw h0 h2 --transport rocev2   the single-path baseline
        bw --help                     all options
        """
        words.tool(self.fabric, "bw", line.split(), self.stdout)

    def do_lat(self, line: str) -> None:
        """Measure the latency of writes from host to host (mrc-write-lat).

        lat h0 h2
        lat h0 h2 -s 4096 -n 500
        """
        words.tool(self.fabric, "lat", line.split(), self.stdout)

    def do_mping(self, line: str) -> None:
        """Probe every path between two hosts, one line a path (mrc-ping).

        mping h0 h2
        mping h0 h2 -c 1
        """
        words.tool(self.fabric, "mping", line.split(), self.stdout)

    def do_stat(self, line: str) -> None:
        """Live QPs, EV states and counters of all hosts or of one (mrc-stat).

        stat
        stat h0 -e                    every EV
        stat h0 -i 1                  again every second; Ctrl-C ends it
        """
        words.tool(self.fabric, "stat", line.split(), self.stdout)

    def do_pcap(self, line: str) -> None:
        """Capture the packets of a port, or of all ports of a node, to a file.

        pcap p1-t0-0-eth3             five seconds to p1-t0-0-eth3.pcap
        pcap h0 --count 1000          the next 1000 packets of all its ports to h0.pcapng
        pcap h0-eth2 --seconds 60 --snap 128 --out long.pcap
        """
        words.pcap(self.fabric, line.split(), self.stdout)

    # ---- Mininet's, changed -----------------------------------------------------------------------------

    def _no_addresses(self, _line: str) -> None:
        """Not in this fabric: use `mping h0 h2`, `bw h0 h2` and `send h0 h2 1M`."""
        raise UsageError(f"{NO_KERNEL_ADDRESSES}: use `mping h0 h2`, `bw h0 h2` and `send h0 h2 1M`")

    do_pingall = do_pingallfull = do_pingpair = do_pingpairfull = do_iperf = do_iperfudp = _no_addresses

    def do_dpctl(self, _line: str) -> None:
        """Not in this fabric: switches speak P4Runtime, not OpenFlow."""
        raise UsageError("switches here speak P4Runtime, not OpenFlow: see `routes`")

    def do_source(self, line: str) -> None:
        """Do the commands in a file: `source FILE`."""
        (path,) = words.arguments(line.split(), "source FILE", 1)
        try:
            with open(path) as commands:
                lines = commands.read().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
        for one in lines:
            self.onecmd(self.precmd(one))

    # ---- completion -------------------------------------------------------------------------------------

    def complete_link(self, text: str, line: str, _begin: int, _end: int) -> list[str]:
        before = line[: len(line) - len(text)].split()[1:]
        if not before:
            return _starting(text, self.fabric.mininet)
        if len(before) == 1:
            return _starting(text, words.neighbours(self.fabric.plan, before[0]))
        return _starting(text, ("up", "down"))

    def complete_power(self, text: str, line: str, _begin: int, _end: int) -> list[str]:
        first = len(line[: len(line) - len(text)].split()) == 1
        return _starting(text, self.fabric.switches if first else ("on", "off"))

    def complete_links(self, text: str, *_position: Any) -> list[str]:
        return _starting(text, self.fabric.mininet)

    def complete_evs(self, text: str, *_position: Any) -> list[str]:
        return _starting(text, self.fabric.hosts)

    complete_send = complete_bw = complete_lat = complete_mping = complete_stat = complete_evs

    def complete_pcap(self, text: str, *_position: Any) -> list[str]:
        ports = [end.interface for link in self.fabric.plan.links for end in (link.lower, link.upper)]
        return _starting(text, [*self.fabric.hosts, *self.fabric.switches, *ports])


def _starting(text: str, names: Any) -> list[str]:
    """With a space behind, so that the next word can be typed at once (Python's readline adds none)."""
    return [f"{name} " for name in names if name.startswith(text)]
