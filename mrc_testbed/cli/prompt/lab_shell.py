"""Prompt of `mrc p4 run`: Mininet's CLI with `reload`, `entries`, `load`, and an `iperf` of our own."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import IO, Any

from mrc_testbed.cli.prompt.iperf import iperf, iperfudp
from mrc_testbed.cli.prompt.unexpected import unexpected_failure
from mrc_testbed.errors import UsageError
from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.mininet import CLI, lg
from mrc_testbed.topologies.p4lab.lab import P4Lab

USER_ERRORS = (FabricError, UsageError, JsonlError)
"""Errors of the user or the lab: shown, and the session goes on."""


class LabCLI(CLI):
    """Mininet's CLI over a running lab; a mistake costs a line, never the session."""

    def __init__(self, lab: P4Lab, stdin: IO[str] | None = None, stdout: IO[str] | None = None) -> None:
        self.lab, self.failures, self._is_started = lab, 0, False
        super().__init__(lab.mininet, stdin=stdin or sys.stdin, stdout=stdout or sys.stdout)
        self.locals["lab"] = lab

    def run(self) -> None:
        """Do nothing at the end of Mininet's constructor, which calls this; `run_session` runs the commands."""
        if self._is_started:
            super().run()

    def run_session(self) -> int:
        """Run commands until `exit` or the end of the input; return the number of those that failed."""
        self.use_rawinput = self.isatty() and self.stdin is sys.stdin
        self.prompt = CLI.prompt if self.isatty() else ""
        old_streams = [(handler, handler.setStream(self.stdout)) for handler in lg.handlers]
        self._is_started = True
        try:
            self.run()
        finally:
            for handler, stream in old_streams:
                if stream is not None:
                    handler.setStream(stream)
        return self.failures

    def print_text(self, text: str) -> None:
        """Print a text on the session's output."""
        print(text, file=self.stdout, flush=True)

    def onecmd(self, line: str) -> Any:
        """Run one command line; a mistake is reported, and the session goes on."""
        try:
            return super().onecmd(line)
        except USER_ERRORS as error:
            self.failures += 1
            self.print_text(f"*** {error}")
        except Exception as error:  # Mininet's own words raise bare exceptions
            self.failures += 1
            self.print_text(f"*** {unexpected_failure(line, error, self.lab.run_dir.log('cli'))}")
        return None

    def default(self, line: str) -> None:
        """Run a command in a node (`h1 ping h2`); anything else is a mistake."""
        name, _, command = line.strip().partition(" ")
        if name not in self.mn:
            self.failures += 1
            self.print_text(f"*** no command or node {name!r}; `help` lists what there is")
            return
        if not command.strip():
            self.failures += 1
            self.print_text(f"*** usage: {name} COMMAND, as in: {name} ip addr")
            return
        node = self.mn[name]
        node.sendCmd(command if self.isatty() else f"eval {quote(command)} </dev/null")
        self.waitForNode(node)

    def waitForNode(self, node: Any) -> None:
        """Show what a command in a node prints; at a terminal it also gets what is typed."""
        if self.isatty():
            super().waitForNode(node)
            return
        while node.waiting:
            self.stdout.write(node.monitor())
        self.stdout.flush()

    # ---- words ------------------------------------------------------------------------------------------

    def do_reload(self, line: str) -> None:
        """Compile the programs again and swap them under traffic: `reload [FILE.p4] [SWITCH...]`.

        Entries that fit stay, and those that do not are listed.
        A program with mistakes changes nothing. A switch goes from one packet to the next to the new program.
        """
        words = line.split()
        sources = [word for word in words if word.endswith(".p4")]
        if len(sources) > 1:
            raise UsageError(f"reload {line}: two programs. Cure: `reload FILE.p4 SWITCH...` for each")
        switches = tuple(word for word in words if not word.endswith(".p4"))
        for reload in self.lab.running.reload(Path(sources[0]) if sources else None, switches):
            self.print_text(reload.text())

    def do_iperf(self, line: str) -> None:
        """Measure TCP for five seconds: `iperf [HOST HOST]`, by default the first and the last."""
        iperf(self._hosts, line.split(), self.print_text)

    def do_iperfudp(self, line: str) -> None:
        """Measure UDP at a rate in bits per second: `iperfudp [RATE HOST HOST]`, by default 10M."""
        iperfudp(self._hosts, line.split(), self.print_text)

    @property
    def _hosts(self) -> dict[str, Any]:
        return {host.name: host for host in self.mn.hosts}

    def do_entries(self, line: str) -> None:
        """List the entries of a switch, or of all: `entries [SWITCH]`."""
        for name in line.split() or [switch.name for switch in self.lab.topology.switches]:
            lines = self.lab.running.entry_lines(name)
            self.print_text(f"{name}: {self.lab.running.sources[name].name}, {len(lines)} entries")
            for text in lines:
                self.print_text(f"  {text}")

    def do_load(self, line: str) -> None:
        """Write the entries of a file to a switch: `load s1 s1-runtime.json`."""
        words = line.split()
        if len(words) != 2:
            raise UsageError("usage: load SWITCH FILE.json, as in: load s1 s1-runtime.json")
        count = self.lab.running.load_entries(words[0], Path(words[1]))
        self.print_text(f"{words[0]}: {count} entries written")

    def _node_names(self) -> list[str]:
        return [switch.name for switch in self.lab.topology.switches]

    def complete_reload(self, text: str, *_arguments: Any) -> list[str]:
        """Offer switches and P4 files."""
        return [name for name in (*self._node_names(), *map(str, Path().glob("*.p4"))) if name.startswith(text)]

    def complete_entries(self, text: str, *_arguments: Any) -> list[str]:
        """Offer switches."""
        return [name for name in self._node_names() if name.startswith(text)]

    complete_load = complete_entries
