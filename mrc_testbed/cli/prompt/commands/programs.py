"""P4 programs of the switches: swapped under traffic, their entries listed and written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from mrc_testbed.cli.prompt.commands.base import (
    INSPECT,
    Answer,
    Args,
    CliSession,
    CommandError,
    arguments,
    command,
    switch,
    switch_names,
)

if TYPE_CHECKING:
    from mrc_testbed.topologies.lab.fabric import Fabric


def _other_switches(fabric: Fabric, words: list[str]) -> Iterable[str]:
    return (name for name in switch_names(fabric, words) if name not in words)


@command("reload", INSPECT, complete=_other_switches, reads=True)
def reload(session: CliSession, args: Args) -> Answer:
    """Compile P4 programs again and swap them under traffic, from one packet to the next.

    reload                        every switch: the file of its program
    reload p0-t1-0                one switch
    reload my.p4 p0-t1-0 p1-t1-0  another file

    Entries stay, and those that do not fit are listed. A program with mistakes changes nothing.
    """
    sources = [word for word in args if word.endswith(".p4")]
    if len(sources) > 1:
        raise CommandError(f"two programs: {', '.join(sources)}: usage: reload [FILE.p4] [SWITCH...]")
    names = [switch(session.plan, word) for word in args if not word.endswith(".p4")]
    reloads = session.fabric.programs.reload(Path(sources[0]).absolute() if sources else None, names)
    return Answer("\n".join(reload.text() for reload in reloads), [reload.to_json() for reload in reloads])


@command("entries", INSPECT, complete=switch_names, reads=True)
def entries(session: CliSession, args: Args) -> Answer:
    """List the table entries of a switch, whoever wrote them.

    entries p0-t1-0
    """
    name = switch(session.plan, arguments(args, "entries SWITCH, as in: entries p0-t1-0", 1)[0])
    lines = session.fabric.programs.entry_lines(name)
    return Answer("\n".join([*lines, f"{name}: {len(lines)} entries"]), lines)


def load_entries(session: CliSession, name: str, path: str) -> str:
    """Write a file of table entries, sX-runtime.json, to a switch with a foreign program."""
    count = session.fabric.programs.load_entries(switch(session.plan, name), Path(path))
    return f"{name}: {count} entries written"
