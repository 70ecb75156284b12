"""A prompt on a fabric of another process: `mrc attach`.

It reads, completes and helps as the fabric's own prompt does, whose class it has. Words are done by the front process
(cli/prompt/word_server.py); programs in hosts and our tools run here, at this terminal.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from mrc_testbed.cli.prompt.commands import CommandError
from mrc_testbed.cli.prompt.shell import USER_ERRORS, FabricCLI, goes_on
from mrc_testbed.cli.prompt.word_client import WordClient
from mrc_testbed.console.terminal import Style, width_of

LOCAL_WORDS = frozenset(
    ("ping", "mping", "bw", "lat", "stat", "iperf", "exec", "capture", "pcap", "trace", "p4sh", "notices")
)
"""Words that are programs of ours, or about this prompt: done here, at this terminal."""
LOCAL_COMMANDS = frozenset(("help", "sh", "source", "exit", "quit", "EOF", "detach", "noecho", "time"))
"""Commands of the prompt itself; all others are the front process's."""
HostCommand = Callable[[str, Sequence[str]], Sequence[str]]
"""Takes a node and a program's words, returns the words that run it in that node."""


class AttachedCLI(FabricCLI):
    """A prompt on the fabric of another process, by its name; leaving it leaves the fabric as it is."""

    def __init__(self, name: str, fabric: Any, host_command: HostCommand) -> None:
        self._name, self._host_command = name, host_command
        self._client = WordClient(fabric.run_dir.path, prompt=os.getpid())
        # What Mininet's CLI and FabricCLI want of a fabric that they hold.
        fabric.mininet = {node: SimpleNamespace(name=node, waiting=False) for node in fabric.plan.node_names}
        fabric.parts = SimpleNamespace(cures=False, dead_parts=[])
        self.prompt_text = f"{name}> "
        super().__init__(fabric, sys.stdin, sys.stdout)

    @property
    def welcome_text(self) -> str:
        return f"{self._name}: {self.fabric.plan}. `help` lists the commands, `detach` or Ctrl-D leaves the fabric up."

    def attach(self) -> None:
        """Run commands until the end of the input, and tell what happens. Raises FabricError."""
        with self._client.notices() as notices:
            threading.Thread(target=self._follow, args=(notices,), name="notices", daemon=True).start()
            self.run_session()
        if self.session.is_terminal:
            self.print_text(goes_on(self._name))

    def _follow(self, notices: Any) -> None:
        with suppress(OSError):  # closed by `attach`
            for text in notices:
                self.notices.notify(text.rstrip())
            try:
                # A fabric that is up has cut this prompt off, as one that was stopped.
                with self._client.notices() as later_notices:
                    self.notices.notify("notices were lost: this prompt did not read for a while")
                    self._follow(later_notices)
            except USER_ERRORS:
                self.notices.notify(f"{self._name} has ended: `exit` leaves this prompt")

    def onecmd(self, line: str) -> Any:
        """Run a command line here or in the front process; any failure is reported in one line."""
        name, _, _ = self.parseline(line)
        if not name or name in LOCAL_COMMANDS or name in LOCAL_WORDS or name not in self._commands():
            return super().onecmd(line)
        style = Style.for_stream(self.stdout)
        try:
            self._client.run_line(line, self._write, self.fail, columns=width_of(self.stdout), colour=style.colour)
        except USER_ERRORS as error:
            self.fail(str(error))
        return None

    def _write(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()

    def default(self, line: str) -> None:
        """Run a command in a node, at this terminal; anything else is a mistake."""
        name, command, _ = self.parseline(line)
        if name not in self.mn:
            super().default(line)
            return
        if not command:
            raise CommandError(f"usage: {name} COMMAND, as in: {name} ip link")
        words = self._host_command(name, ("bash", "-c", command))
        with self.notices.hold():
            process = subprocess.Popen(words, stdin=None if self.isatty() else subprocess.DEVNULL)
            while process.poll() is None:
                with suppress(KeyboardInterrupt):  # it is the program's
                    process.wait()

    def do_detach(self, line: str) -> str:
        """Leave this prompt; the fabric stays up."""
        return str(self.do_exit(line))
