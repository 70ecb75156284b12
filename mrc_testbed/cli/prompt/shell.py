"""Mininet's CLI with MRC commands: `link p1-t0-0 p1-t1-1 down`, `evs h0 h2`, `send h0 h2 64M`, `help`.

The words are in cli/prompt/commands/; this is the conversation: reading, completion, help, errors. Mininet's own
commands keep working, `pingall` and `iperf` with MRC packets over every path. A mistake costs one line on the screen,
never the session. Commands may also come from a pipe or a file; then there is no prompt, and `run_cli` returns how many
failed.
"""

from __future__ import annotations

import glob
import inspect
import json
import shlex
import signal
import sys
from cmd import Cmd
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from mrc_testbed.cli.prompt.commands import WORDS, Answer, CliCommand, CliSession, CommandError, Transfers
from mrc_testbed.cli.prompt.commands.links import OTHER_NAMES, cure_of
from mrc_testbed.cli.prompt.commands.notices import FaultFollower, Notices
from mrc_testbed.cli.prompt.outputs import CallerStream, Outputs
from mrc_testbed.cli.prompt.unexpected import unexpected_failure
from mrc_testbed.cli.prompt.word_client import FILE_POSITIONS
from mrc_testbed.console.terminal import Style, fold_for, width_of
from mrc_testbed.console.units import UnitError
from mrc_testbed.errors import UsageError
from mrc_testbed.ipc.fabrics import Fabrics
from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.mininet import CLI, lg
from mrc_testbed.topologies.plan import PlanError

UNAVAILABLE = {
    "dpctl": "switches here speak P4Runtime, not OpenFlow: see `p4sh SWITCH`, `routes` and `counters`",
}
"""Commands that mean nothing at this prompt, and what to use."""
TOOLS_IN_HOSTS = ("ip", "mrc-ping", "mrc-stat", "mrc-write-bw", "mrc-write-lat")
"""Commands that Tab offers after a node."""
PLAIN_OUTPUT = "TERM=dumb NO_COLOR=1 TTY_COMPATIBLE=0 "
"""Environment of a node command whose output goes to a pipe or a file: no escape sequences."""
LetGo = Callable[[Path], None]
OpenPage = Callable[[CliSession], str]
Serve = Callable[["FabricCLI"], AbstractContextManager[None]]
USER_ERRORS = (FabricError, PlanError, JsonlError, CommandError, UnitError, UsageError)
"""Errors that are the user's or the fabric's: one line. Anything else is our bug."""


def goes_on(name: str) -> str:
    """Say how to come back to a fabric whose prompt is left."""
    return f"{name} goes on: `mrc attach {name}` comes back, `mrc down {name}` ends it"


def run_cli(
    fabric: Fabric,
    *,
    stdin: IO[str] | None = None,
    stdout: IO[str] | None = None,
    open_page: OpenPage | None = None,
    commands: Sequence[str] = (),
    prompt: bool = True,
    let_go: LetGo | None = None,
    serve: Serve | None = None,
) -> int:
    """Run commands until `exit` or the end of the input, and return how many failed.

    `open_page`: as of CliSession; `commands`: those before the first one that is read. `prompt`: reads commands.
    `let_go`: lets go of the terminal for a log, after `detach` or without a prompt at once, until a signal ends the
    process. `serve`: does words of other shells meanwhile.
    """
    cli = FabricCLI(fabric, stdin or sys.stdin, stdout or sys.stdout, open_page)
    cli.run_session(commands, prompt=prompt, let_go=let_go, serve=serve)
    return cli.failures


class FabricCLI(CLI):
    """Mininet's CLI over a running Fabric."""

    identchars = Cmd.identchars + "-"  # or `p1-t0-0 ip link` would be the command `p1`

    def __init__(
        self,
        fabric: Fabric,
        stdin: IO[str],
        stdout: IO[str],
        open_page: OpenPage | None = None,
        colleague: FabricCLI | None = None,
    ) -> None:
        """`colleague`: another prompt of this process, whose transfers and outputs this one has too."""
        self.fabric = fabric
        self.failures = 0
        self.notices = Notices(stdout)
        self.outputs: Outputs = Outputs(stdout, self.notices.notify) if colleague is None else colleague.outputs
        self.transfers: Transfers = (
            Transfers(fabric, self.outputs.print_text, self.outputs.notify)
            if colleague is None
            else colleague.transfers
        )
        self.session = CliSession(
            fabric, stdout, Style.for_stream(stdout), self.transfers, open_page=open_page, notices=self.notices
        )
        self._is_started = self._can_detach = self._is_detached = False
        super().__init__(fabric.mininet, stdin=stdin, stdout=stdout)
        self.locals["fabric"] = fabric

    def run(self) -> None:
        """Do nothing at the end of Mininet's constructor, which calls this; `converse` runs the commands."""
        if self._is_started:
            super().run()

    def run_session(
        self,
        commands: Sequence[str] = (),
        *,
        prompt: bool = True,
        let_go: LetGo | None = None,
        serve: Serve | None = None,
    ) -> None:
        """Run the given commands and those of the input, as `run_cli` has them."""
        interactive = self.session.is_terminal = prompt and self.isatty()
        self.use_rawinput = interactive and self.stdin is sys.stdin
        self.prompt = self.prompt_text if interactive else ""
        # Mininet's words talk on stderr, and are given by several people at the same time.
        old_streams = [(handler, handler.setStream(CallerStream(self.outputs))) for handler in lg.handlers]
        try:
            if interactive:
                self.print_text(self.welcome_text)
            self._is_started = True
            self.fabric.notice = self.outputs.notify
            self.fabric.parts.cures = True
            with ExitStack() as stack:
                stack.callback(self.transfers.close)
                if serve is not None:
                    stack.enter_context(serve(self))
                if interactive or not prompt:
                    stack.callback(FaultFollower(self.fabric, self.notices.notify).close)
                self._can_detach = let_go is not None
                with self.notices.editing() if self.use_rawinput else nullcontext():
                    for line in commands:
                        self.onecmd(line)
                    if prompt:
                        self.run()
                if self._is_detached:
                    self.print_text(goes_on(Fabrics.name_of(self.fabric.run_dir.path)))
                if let_go is not None and (self._is_detached or not prompt):
                    self.session.is_terminal = False
                    let_go(self.fabric.run_dir.log("front"))
                    while True:
                        signal.pause()
        finally:
            self._is_started = False
            for handler, stream in old_streams:
                if stream is not None:  # None: it was that stream already
                    handler.setStream(stream)

    prompt_text = CLI.prompt

    @property
    def welcome_text(self) -> str:
        """First line of a session at a terminal."""
        return f"{self.fabric.plan}. `help` lists the commands, `exit` ends and removes everything."

    def print_text(self, text: str) -> None:
        """Print a text on the session's output; who reads it from a pipe gets each line whole."""
        print(fold_for(self.stdout, text), file=self.stdout, flush=True)

    def fail(self, text: str) -> None:
        self.failures += 1
        self.print_text(f"*** {text}")

    def do_word(self, word: CliCommand, line: str) -> None:
        """Run one of our commands and print its result. Raises EXPECTED."""
        try:
            args = shlex.split(line)
        except ValueError as error:
            raise CommandError(f"{word.name} {line}: {str(error).lower()}: close the quotes") from None
        wants_json = word.reads and "--json" in args
        if wants_json:
            args.remove("--json")
        self.session.style = replace(self.session.style, width=width_of(self.stdout))  # a terminal may have another
        answer = word.run(self.session, args)
        if isinstance(answer, Answer) and wants_json:
            self.print_text(json.dumps(answer.data, indent=2))
        elif answer:
            self.print_text(self.session.style.fold(answer.text if isinstance(answer, Answer) else answer))
        if word.reads and not wants_json:
            self._print_dead_parts()

    def _print_dead_parts(self) -> None:
        """Warn that a word's output may be old, or wrong, while a part is dead."""
        for part in self.fabric.parts.dead_parts:
            self.print_text(self.session.style.fold(f"dead: {part.cause}: {part.loses}; {part.cure}", hang=6))

    # ---- Cmd's hooks ------------------------------------------------------------------------------------

    def preloop(self) -> None:
        if self.use_rawinput:
            import readline

            readline.set_completer_delims(" \t\n")  # node names hold dashes
            self.notices.reading()

    def precmd(self, line: str) -> str:
        if self.use_rawinput:
            self.notices.running()
        return without_comment(line)

    def postcmd(self, stop: Any, line: str) -> Any:
        # As `exit`, `detach` within `source` or `time` ends nothing.
        self._is_detached = self._is_detached and bool(stop)
        if self.use_rawinput and not stop:
            self.notices.reading()
        return super().postcmd(stop, line)

    def onecmd(self, line: str) -> Any:
        """Run one command line; any failure is reported in one line."""
        try:
            return super().onecmd(line)
        except USER_ERRORS as error:
            self.fail(str(error))
            self._print_dead_parts()
        except Exception as error:
            self.fail(unexpected_failure(line, error, self.fabric.run_dir.log("cli")))
        return None

    def default(self, line: str) -> None:
        """Run a command in a node (`h0 ip link`); anything else is a mistake."""
        first, command, _ = self.parseline(line)
        first = first or (line.split() or [""])[0]
        if first in self.mn:
            if not command:
                raise CommandError(f"usage: {first} COMMAND, as in: {first} ip link")
            # A node's shell has a terminal of its own, whatever ours is.
            plain = "" if self.stdout.isatty() else f"{PLAIN_OUTPUT}COLUMNS={width_of(self.stdout)} "
            # Piped input is ours: a command that reads gets the end of its input.
            no_input = "" if self.isatty() else " </dev/null"
            if plain or no_input:
                command = f"{plain}eval {shlex.quote(command)}{no_input}"
            node = self.mn[first]
            if node.revive():
                self.print_text(f"{first}: its shell had ended; a new one has begun")
            node.sendCmd(command)
            self.waitForNode(node)
            return
        if first in OTHER_NAMES:
            raise CommandError(f"no command {first!r}. Cure: {cure_of(self.session, first, (command or '').split())}")
        close = get_close_matches(first, [*self._commands(), *self.mn], n=3, cutoff=0.5)
        hint = f" (did you mean: {', '.join(close)}?)" if close else ""
        self.fail(f"no command or node {first!r}{hint}; `help` lists what there is")

    def waitForNode(self, node: Any) -> None:
        """Show what a command in a node prints; at a terminal it also gets what is typed."""
        if self.isatty():
            with self.notices.hold():
                super().waitForNode(node)
            return
        try:
            line_end = ""
            while node.waiting:
                # A node's terminal ends lines in CR LF, which may come in two parts.
                text = (line_end + node.monitor()).replace("\r\n", "\n")
                line_end = "\r" if text.endswith("\r") else ""
                self.stdout.write(text.removesuffix(line_end) if line_end else text)
            self.stdout.write(line_end)
        finally:
            if node.waiting:
                node.sendInt()
                node.waitOutput()
        self.stdout.flush()

    def do_help(self, line: str) -> None:
        """Describe commands: `help`, `help link`."""
        style = replace(self.session.style, width=width_of(self.stdout))
        if line and line not in self._commands():
            close = get_close_matches(line, self._commands(), n=3)
            raise CommandError(f"no command {line!r}" + (f" (did you mean: {', '.join(close)}?)" if close else ""))
        if line:
            self.print_text(style.fill(WORDS[line].help if line in WORDS else _help_of(self, line)))
            return
        self.print_text("MRC words (`help WORD` shows examples):")
        sorted_words = sorted(
            (word for word in WORDS.values() if word.group), key=lambda word: _GROUPS.index(word.group)
        )
        for group, words in groupby(sorted_words, key=lambda word: word.group):
            self.print_text(f" {style.paint(group, 'head')}")
            for word in words:
                self.print_text(style.fold(f"  {word.name:<12} {word.summary}", hang=13))
        hidden_words = {*WORDS, "EOF", "help", *UNAVAILABLE}
        self.print_text(
            style.fold("Mininet's: " + " ".join(c for c in self._commands() if c not in hidden_words), hang=11)
        )
        self.print_text(style.fold("A command in a node:  h0 mrc-ping h2    h0 ip link    p1-t0-0 ip link", hang=22))

    def _commands(self) -> list[str]:
        return sorted(name[3:] for name in self.get_names() if name.startswith("do_") and name != "do_word")

    def completenames(self, text: str, *_arguments: Any) -> list[str]:
        return _starting(text, [*self._commands(), *self.mn])

    def complete_help(self, text: str, *_arguments: Any) -> list[str]:
        return _starting(text, self._commands())

    def complete_switch(self, text: str, line: str, begin: int, _end: int) -> list[str]:
        has_switch = len(line[:begin].split()) > 1
        return _starting(
            text, ("start", "stop") if has_switch else [switch.name for switch in self.fabric.plan.switches]
        )

    def complete_source(self, text: str, *_arguments: Any) -> list[str]:
        return _files(text)

    def completedefault(self, text: str, line: str, begin: int, _end: int) -> list[str]:
        """Complete a command in a node: our tools first; after them, as after Mininet's words, the nodes."""
        words = line[:begin].split()
        return _starting(text, TOOLS_IN_HOSTS if len(words) == 1 and words[0] in self.mn else self.mn)

    # ---- Mininet's, changed -----------------------------------------------------------------------------

    def do_detach(self, _line: str) -> str:
        """Leave this prompt; the fabric stays up, and `mrc attach` opens another one."""
        if not self._can_detach:
            raise CommandError("this prompt is at no terminal. Cure: `mrc up -d`, then `mrc attach`")
        self._is_detached = True
        return "detached by user command"

    def do_switch(self, line: str) -> None:
        """Mininet's word for power: `switch p1-t1-0 stop`, `switch p1-t1-0 start`."""
        args = line.split()
        if len(args) != 2:
            raise CommandError("usage: switch SWITCH start|stop")
        name, state = args
        if state not in ("start", "stop"):
            raise CommandError(f"start or stop, not {state!r}: switch SWITCH start|stop")
        self.do_word(WORDS["power"], f"{name} {'on' if state == 'start' else 'off'}")

    def do_nodes(self, line: str) -> None:
        """List all nodes, and those that are off."""
        super().do_nodes(line)
        if nodes := self.fabric.nodes_off:
            self.print_text(f"off: {' '.join(nodes)} (`power {nodes[0]} on`)")

    def do_sh(self, line: str) -> None:
        """Run a command of this machine: `sh ip link`."""
        with self.notices.hold():
            super().do_sh(line)

    def do_source(self, line: str) -> None:
        """Run the commands in a file: `source FILE`."""
        args = line.split()
        if len(args) != 1:
            raise CommandError("usage: source FILE")
        (path,) = args
        try:
            with open(path) as commands:
                lines = commands.read().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
        for command_line in lines:
            self.onecmd(self.precmd(command_line))


_GROUPS = list(dict.fromkeys(word.group for word in WORDS.values() if word.group))


def _help_of(cli: FabricCLI, name: str) -> str:
    return inspect.getdoc(getattr(cli, f"do_{name}")) or f"{name}: one of Mininet's"


def without_comment(line: str) -> str:
    """Return a line without its comment: from a # on that begins a word outside quotes."""
    quote = ""
    for position, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "#" and (position == 0 or line[position - 1].isspace()):
            return line[:position]
    return line


def _starting(text: str, names: Any) -> list[str]:
    """Names with that beginning and a space behind, which Python's readline does not add."""
    return [f"{name} " for name in names if name.startswith(text)]


def _doer(word: CliCommand) -> Callable[[FabricCLI, str], None]:
    def do(self: FabricCLI, line: str) -> None:
        self.do_word(word, line)

    do.__doc__ = word.help
    return do


def _completer(word: CliCommand) -> Callable[..., list[str]]:
    def complete(self: FabricCLI, text: str, line: str, _begin: int, _end: int) -> list[str]:
        words = line[: len(line) - len(text)].split()[1:]
        names = [*word.complete(self.fabric, words), *(("--json",) if word.reads and text.startswith("-") else ())]
        files = _files(text) if len(words) + 1 in FILE_POSITIONS.get(word.name, ()) and text else []
        return _starting(text, names) + files

    return complete


def _files(text: str) -> list[str]:
    """Files with that beginning; a folder ends in a slash."""
    paths = sorted(glob.glob(f"{glob.escape(text)}*"))
    return [f"{path}/" if Path(path).is_dir() else f"{path} " for path in paths]


def _refuser(cure: str) -> Callable[[FabricCLI, str], None]:
    def do(_self: FabricCLI, _line: str) -> None:
        raise CommandError(cure)

    do.__doc__ = f"Not in this fabric: {cure}"
    return do


for _word in WORDS.values():  # cmd.Cmd looks for methods by name
    setattr(FabricCLI, f"do_{_word.name}", _doer(_word))
    setattr(FabricCLI, f"complete_{_word.name}", _completer(_word))
for _name, _cure in UNAVAILABLE.items():
    setattr(FabricCLI, f"do_{_name}", _refuser(_cure))
