"""Commands of the CLI: a function with a name, help and completion; its session and arguments.

A word gets a `CliSession` and its arguments and returns what to say: text, or an `Answer` that is data as well
(`--json`). Every mistake raises an error whose text is one line with what would have worked: CommandError here,
PlanError for names, UnitError for numbers, FabricError and JsonlError for what the fabric cannot do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import IO, TYPE_CHECKING, Any, Protocol

from mrc_testbed.console.progress import Progress
from mrc_testbed.console.terminal import Style
from mrc_testbed.ipc.rundir import HostOffError
from mrc_testbed.topologies.plan import Link, Plan

if TYPE_CHECKING:
    from mrc_testbed.cli.prompt.commands.notices import Notices
    from mrc_testbed.topologies.lab.fabric import Fabric

Args = Sequence[str]
ShowProgress = Callable[[list[dict[str, Any]]], None]
"""Takes what `BackgroundTransfers.progress` returns."""
OFF_VALUES = ("off", "none", "0", "0%")
"""Word that removes a loss, a corruption, a rate or a delay."""


LISTED_MAX = 24
"""Names that an error lists one by one."""


class CommandError(Exception):
    """Wrong use of a command; the text says what would be right."""


class ArgumentCountError(CommandError):
    """Wrong number of arguments; `CliCommand.run` adds which names may follow."""


class BackgroundTransfers(Protocol):
    """Transfers in the background, as mrc_testbed.cli.prompt.commands.transfers.Transfers has them."""

    def start(self, args: Args) -> None:
        """Begin a transfer, with the arguments of `send`. Raises CommandError."""

    def wait(self, show: ShowProgress | None = None, note: Callable[[str], None] | None = None) -> int:
        """Wait for all; return the number that failed since the last call. `show` gets the progress."""
        ...

    def progress(self) -> list[dict[str, Any]]:
        """Return the latest transfers, also ended ones: label, name, from, to, bytes, bytes_done, state.

        The state is `running`, `done` or `failed`.
        """
        ...


@dataclass
class CliSession:
    """Session of a CLI: the fabric, the output stream and its style.

    `open_page`: starts the live view of a session and returns its address; None: this program has none. `notices`: None
    without a user at a prompt.
    """

    fabric: Fabric
    out: IO[str]
    style: Style = field(default_factory=Style)
    transfers: BackgroundTransfers | None = None
    is_terminal: bool = False
    open_page: Callable[[CliSession], str] | None = None
    notices: Notices | None = None

    @property
    def plan(self) -> Plan:
        return self.fabric.plan

    @contextmanager
    def progress(self, command: str, guess_s: float, size: float = 1.0) -> Iterator[Progress]:
        """A line about a command that takes its time; notices wait meanwhile."""
        from rich.console import Console

        screen = Console(file=self.out, force_terminal=self.is_terminal, highlight=False, width=self.style.width)
        with (
            self.notices.hold() if self.notices and self.is_terminal else nullcontext(),
            Progress(screen, command, guess_s=guess_s, size=size) as progress,
        ):
            yield progress


@dataclass(frozen=True)
class Answer:
    """Result of a reading command: text for people, data for `--json`."""

    text: str
    data: Any


Run = Callable[[CliSession, Args], "str | Answer | None"]
Complete = Callable[["Fabric", list[str]], Iterable[str]]


@dataclass(frozen=True)
class CliCommand:
    """One command of the CLI."""

    name: str
    group: str
    function: Run
    complete: Complete
    """(fabric, words before) -> what may come next."""
    reads: bool
    """Takes `--json`."""

    def run(self, session: CliSession, args: Args) -> str | Answer | None:
        """Run it. Raises CommandError that lists what exists, PlanError, UnitError, FabricError, JsonlError."""
        try:
            return self.function(session, args)
        except ArgumentCountError as error:
            raise CommandError(f"{error}{self._next_names(session.fabric, list(args))}") from None

    def _next_names(self, fabric: Fabric, args: list[str]) -> str:
        """Part of an error: names that may follow, or stand in the place of the first wrong argument."""
        names = {*fabric.plan.node_names, *interfaces(fabric)}
        for position, argument in enumerate(args):
            choices = list(self.complete(fabric, args[:position]))
            # Only names have a complete list; sizes, rates and files may be others than those that Tab offers.
            if choices and names.issuperset(choices) and argument not in names:
                return f"; no {argument!r} ({alternatives(argument, choices)})"
        choices = [choice for choice in self.complete(fabric, args) if not choice.startswith("-")]
        return f"; after `{' '.join([self.name, *args])}`: {name_list(choices)}" if choices else ""

    @property
    def help(self) -> str:
        return inspect.getdoc(self.function) or self.name

    @property
    def summary(self) -> str:
        return self.help.splitlines()[0]


SHOW, BREAK, SEND, INSPECT = "Look", "Break and heal", "Send", "Look inside"
WORDS: dict[str, CliCommand] = {}
"""Every command, in the order of `help`."""


def _no_words(_fabric: Fabric, _words: list[str]) -> Iterable[str]:
    return ()


def command(name: str, group: str, *, complete: Complete | None = None, reads: bool = False) -> Callable[[Run], Run]:
    """Register a function as a command. Its docstring is the help: a line, then examples."""

    def register(run: Run) -> Run:
        WORDS[name] = CliCommand(name, group, run, complete or _no_words, reads)
        return run

    return register


# ---- arguments ------------------------------------------------------------------------------------------------


def arguments(args: Args, usage: str, low: int, high: int | None = None) -> Args:
    """`args` when their number is right. Raises ArgumentCountError."""
    high = low if high is None else high
    if len(args) > high:
        raise CommandError(f"unexpected {' '.join(args[high:])!r}: usage: {usage}")
    if len(args) < low:
        raise ArgumentCountError(f"usage: {usage}")
    return args


def name_list(names: Sequence[str]) -> str:
    """Names for an error: all, or the first ones and how many more there are."""
    text = ", ".join(names[:LISTED_MAX])
    return f"{text} and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else text


def alternatives(name: str, names: Sequence[str]) -> str:
    """Part of an error about an unknown name: the names that look like it, then the list."""
    close = get_close_matches(name, names, n=3)
    return (f"did you mean {', '.join(close)}? " if close else "") + f"has: {name_list(names)}"


def known_node(plan: Plan, name: str) -> str:
    """`name` when it is a node. Raises CommandError with the names that look like it."""
    return one_of(name, plan.node_names, "node")


def host(plan: Plan, name: str) -> str:
    """`name` when it is a host. Raises CommandError."""
    return one_of(name, [host.name for host in plan.hosts], "host")


def host_on(session: CliSession, name: str) -> str:
    """`name` when it is a host with power. Raises CommandError, HostOffError."""
    if host(session.plan, name) in session.fabric.nodes_off:
        raise HostOffError(name)
    return name


def switch(plan: Plan, name: str) -> str:
    """`name` when it is a switch. Raises CommandError with the names that look like it."""
    return one_of(name, [switch.name for switch in plan.switches], "switch")


def one_of(name: str, names: Sequence[str], kind: str) -> str:
    """`name` when it is one of those. Raises CommandError with the names that look like it."""
    if name in names:
        return name
    raise CommandError(f"no {kind} {name!r} ({alternatives(name, names)})")


def two_hosts(session: CliSession, args: Args, usage: str) -> tuple[str, str]:
    """The two different hosts that were given, which are on. Raises CommandError, HostOffError."""
    source, destination = (host_on(session, name) for name in args[:2])
    if source == destination:
        raise CommandError(f"give two hosts: {usage}")
    return source, destination


def take_link(plan: Plan, args: Args, usage: str) -> tuple[Link, str | None, Args]:
    """Return (link, sender, other arguments): `A B ...` is a link, `A-eth1 ...` its end that sends.

    Also takes `A,B` and `A:B`. Raises CommandError.
    """
    if not args:
        raise ArgumentCountError(f"usage: {usage}")
    first, following = args[0], list(args[1:])
    for mark in (",", ":"):
        if mark in first:
            first, _, second = first.partition(mark)
            following.insert(0, second)
    ends = {end.interface: (link, end.node) for link in plan.links for end in (link.lower, link.upper)}
    if first in ends:
        link, sender = ends[first]
        return link, sender, following
    known_first = (
        one_of(first, [*plan.node_names, *ends], "node or port") if "-eth" in first else known_node(plan, first)
    )
    if not following:
        raise ArgumentCountError(f"{first} has several links: usage: {usage}")
    return plan.link(known_first, known_node(plan, following[0])), None, following[1:]


# ---- completion -----------------------------------------------------------------------------------------------


def neighbours(plan: Plan, name: str) -> list[str]:
    """Nodes linked to `name`, in port order; none for an unknown name."""
    return list(dict.fromkeys(n for link in plan.links if name in link.ends for n in sorted(link.ends - {name})))


def node_names(fabric: Fabric, _words: list[str]) -> Iterable[str]:
    """Every node."""
    return fabric.plan.node_names


def host_names(fabric: Fabric, _words: list[str]) -> Iterable[str]:
    """Every host."""
    return [host.name for host in fabric.plan.hosts]


def switch_names(fabric: Fabric, _words: list[str]) -> Iterable[str]:
    """Every switch."""
    return [switch.name for switch in fabric.plan.switches]


def interfaces(fabric: Fabric) -> list[str]:
    """Every interface of the fabric, NICs included."""
    return [end.interface for link in fabric.plan.links for end in (link.lower, link.upper)]


def two_hosts_then(*choices: str) -> Complete:
    """Two different hosts, then one of `after`."""

    def complete(fabric: Fabric, words: list[str]) -> Iterable[str]:
        if len(words) >= 2:
            return [choice for choice in choices if choice not in words]
        return [name for name in host_names(fabric, words) if name not in words]

    return complete


def denylist_target(fabric: Fabric, words: list[str]) -> Iterable[str]:
    """A switch, or two ends of a link; before it the host that it is said of (`--host h0`)."""
    if words[:1] == ["--host"]:
        if len(words) == 1:
            return host_names(fabric, words)
        words = words[2:]
    if not words:
        return [*node_names(fabric, words), "--host"]
    return neighbours(fabric.plan, words[0]) if len(words) == 1 else ()


def nodes_and_ports(fabric: Fabric, words: list[str]) -> Iterable[str]:
    """Every node and every interface."""
    return [*node_names(fabric, words), *interfaces(fabric)]


def link_then(*choices: str) -> Complete:
    """Two ends of a link, then one of `after`."""

    def complete(fabric: Fabric, words: list[str]) -> Iterable[str]:
        if not words:
            return node_names(fabric, words)
        if words[0] in interfaces(fabric):
            return choices
        return neighbours(fabric.plan, words[0]) if len(words) == 1 else choices if len(words) == 2 else ()

    return complete


def nodes_then(*choices: str) -> Complete:
    """Nodes, then one of `choices`."""

    def complete(fabric: Fabric, words: list[str]) -> Iterable[str]:
        more_nodes = [name for name in node_names(fabric, words) if name not in words]
        return [*choices, *more_nodes] if words else more_nodes

    return complete
