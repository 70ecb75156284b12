"""Commands that keep the state of a fabric in a file, and apply such a file: save, load."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrc_testbed.cli.prompt.commands.base import (
    BREAK,
    SHOW,
    Args,
    CliSession,
    CommandError,
    arguments,
    command,
    switch_names,
)
from mrc_testbed.cli.prompt.commands.inject import NO_STEP, injection_text
from mrc_testbed.cli.prompt.commands.programs import load_entries
from mrc_testbed.faults import KINDS, FaultError, FaultHolds
from mrc_testbed.files.whole_files import write_output
from mrc_testbed.ipc.controller_client import SWITCHES_S
from mrc_testbed.ipc.rpc import JsonlError
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.fault_target import LiveFaultTarget

if TYPE_CHECKING:
    from mrc_testbed.experiments.language.saved_state import QueueLine, SavedState
    from mrc_testbed.topologies.lab.fabric import Fabric

Loc = tuple[str | int, ...]
"""Place in a file: keys and positions."""
TABLES = "--tables"


@command("save", SHOW, complete=lambda _fabric, words: (TABLES,) if words else ())
def save(session: CliSession, args: Args) -> str:
    """Write the faults that hold now to a file, for `load`; with --tables also the switches' entries.

    save state.yaml
    save state.yaml --tables
    save state.json              as JSON

    Saved are links that are cut, nodes without power, losses, rates, delays and so on, and queue settings that `load`
    made; not the denylist, transfers, QPs. `mrc schema state` prints the schema of the file.
    """
    from mrc_testbed.experiments.language.saved_state import state_text

    wants_tables = TABLES in args
    (name,) = arguments([word for word in args if word != TABLES], f"save FILE [{TABLES}], as in: save state.yaml", 1)
    if name.startswith("-"):
        raise CommandError(f"no option {name!r} (has: {TABLES}): save FILE [{TABLES}]")
    faults, queues = _lines(session)
    tables: Mapping[str, list[str]] = _read_tables(session) if wants_tables else {}
    path = Path(name).expanduser()
    text = state_text(faults, queues, tables, as_json=path.suffix == ".json")
    try:
        write_output(path, text.encode())
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from error
    counts = _counts(len(faults), len(queues), len(tables))
    return f"{path}: {counts or 'nothing is injected: an empty list of faults'}; `load {name}` applies it"


def _counts(faults: int, queues: int, switches: int) -> str:
    """Return `2 faults, 1 queue, tables of 8 switches`; empty for nothing."""
    parts = [f"{count} {word}{'s' * (count != 1)}" for count, word in ((faults, "fault"), (queues, "queue")) if count]
    if switches:
        parts.append(f"tables of {switches} switch{'es' * (switches != 1)}")
    return ", ".join(parts)


def _lines(session: CliSession) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return the lines of faults and queues that hold now, also of cuts and power that no injection made."""
    fabric = session.fabric
    active = fabric.inject.active
    faults = [injection.line for injection in active if injection.line is not None and injection.kind != "queue"]
    queues = [injection.line for injection in active if injection.line is not None and injection.kind == "queue"]
    held_interfaces = {name for injection in active for name in injection.interfaces}
    cut_links = dict.fromkeys(fabric.plan.link_of_interface(name).name for name in fabric.cut - held_interfaces)
    faults += [{"cut": name} for name in sorted(cut_links)]
    held_nodes = {injection.node for injection in active}
    faults += [{"power_off": name} for name in fabric.nodes_off if name not in held_nodes]
    return faults, queues


@command("load", BREAK, complete=switch_names)
def load(session: CliSession, args: Args) -> str:
    """Apply a file of `save` to this fabric, or write a file of table entries to a switch.

    load state.yaml               faults, queue settings, table entries
    load p0-t1-0 s1-runtime.json  to a switch with a foreign program, sX-runtime.json

    Faults that hold already stay and are not made twice; `heal` before leaves those of the file alone. If one cannot be
    made, those before it are undone. Entries replace all of a switch's own, and stay after `heal`; load the ones saved
    before to have them back.
    """
    from mrc_testbed.experiments.language.saved_state import read_state
    from mrc_testbed.experiments.language.yaml_loader import ScenarioError

    if len(args) == 2 or any(word in switch_names(session.fabric, []) for word in args):
        name, entries = arguments(args, "load SWITCH FILE.json, as in: load p0-t1-0 s1-runtime.json", 2)
        return load_entries(session, name, entries)
    (name,) = arguments(args, "load [SWITCH] FILE, as in: load state.yaml", 1)
    path = Path(name).expanduser()
    try:
        document, state = read_state(path, session.plan)
        if problems := [document.problem(loc, text) for loc, text in _table_mistakes(session, state.tables)]:
            raise ScenarioError(path, problems)
    except ScenarioError as error:
        raise CommandError(str(error)) from error
    injections = FaultHolds()
    loc: Loc = ("tables",)
    try:
        changes = _write_tables(session, state.tables)  # first: a fault may switch a switch off
        for loc, begin in _steps(session, state, injections):  # noqa: B007 - an error names its line
            begin()
    except (FabricError, FaultError, JsonlError) as error:
        for injection in reversed(injections):
            with suppress(FabricError):
                session.fabric.inject.undo(injection)
        problem = document.problem(loc, f"{error}; no fault of the file holds")
        raise CommandError(str(ScenarioError(path, [problem]))) from error
    lines = [injection_text(injection) for injection in injections]
    known_count = len(state.faults) + len(state.queues) - len(injections)
    if known_count > 0:
        lines.append(f"{known_count} held already")
    lines += [
        f"{name}: {count} entries changed, {len(state.tables[name])} in the file" for name, count in changes.items()
    ]
    return "\n".join(lines or [f"{path}: nothing in it"])


def _steps(session: CliSession, state: SavedState, injections: FaultHolds) -> Iterator[tuple[Loc, Callable[[], None]]]:
    """Yield the lines that do not hold yet: place in the file, and what begins it.

    `injections` takes what was begun. What is begun raises FabricError, FaultError.
    """
    from mrc_testbed.experiments.language.saved_state import QueueLine, SavedFault

    fabric = session.fabric
    fault_lines, queue_lines = _lines(session)
    known_faults = [SavedFault.model_validate(line) for line in fault_lines]
    known_queues = [QueueLine.model_validate(line) for line in queue_lines]
    for number, line in enumerate(state.faults):
        if line not in known_faults:
            fault = KINDS[line.action].resolve(line.value, session.plan, random.Random(number))
            yield ("faults", number), partial(fault.begin, LiveFaultTarget(fabric), injections, NO_STEP)
    for number, queue in enumerate(state.queues):
        if queue not in known_queues:
            yield ("queues", number), partial(_begin_queue, fabric, queue, injections)


def _begin_queue(fabric: Fabric, queue: QueueLine, injections: FaultHolds) -> None:
    injections.append(
        fabric.inject.queue(queue.port, priority=queue.priority, rate_bps=queue.rate, packets=queue.packets)
    )


# ---- tables ---------------------------------------------------------------------------------------------------


def _read_tables(session: CliSession) -> dict[str, list[str]]:
    """Return the entries of all switches that answer, and name the others."""
    answer = session.fabric.controller.request("tables", timeout_s=SWITCHES_S, patient=True)
    for name, reason in answer["unread"].items():
        print(f"{name}: its tables are left out: {reason}", file=session.out, flush=True)
    tables: dict[str, list[str]] = answer["tables"]
    return tables


def _table_mistakes(session: CliSession, tables: Mapping[str, list[str]]) -> Iterator[tuple[Loc, str]]:
    """Yield place and text of the lines that the program has no entry for. Raises JsonlError."""
    for switch, lines in tables.items():
        answer = session.fabric.controller.request("set_tables", tables={switch: lines}, dry=True)
        for mistake in answer["mistakes"]:
            yield ("tables", switch, mistake["number"]), mistake["text"]


def _write_tables(session: CliSession, tables: Mapping[str, list[str]]) -> dict[str, int]:
    """Write the entries of each switch; return how many were not there. Raises JsonlError."""
    counts: dict[str, int] = {}
    for switch, lines in tables.items():  # one request a switch: a body has a limit
        answer = session.fabric.controller.request(
            "set_tables", timeout_s=SWITCHES_S, patient=True, tables={switch: lines}
        )
        counts |= answer["written"]
    return counts
