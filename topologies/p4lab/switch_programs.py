"""Programs of the switches of a daemon: load them, swap them under traffic, list their entries."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from finsy.proto import p4i, p4r

from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.switch.compiler import CompiledProgram
from mrc_testbed.topologies.lab.targets import unix_address
from mrc_testbed.topologies.p4lab.entries import ProgramNames, read_entries
from mrc_testbed.topologies.p4lab.switch import LabSwitchError, Reload, SwitchClient, compile_file

TABLES_OF_OURS = ({"my_usid", "usid_next"}, {"route", "uplink_choice", "uplinks"})
"""Tables of srv6 and of spray, which the controller of a fabric fills."""


def is_foreign(program: CompiledProgram) -> bool:
    """Return whether a program lacks the tables that controller and MRC hosts need."""
    aliases = {table.preamble.alias for table in program.p4info.tables}
    return not any(tables <= aliases for tables in TABLES_OF_OURS)


class SwitchPrograms:
    """Files and programs by switch.

    `socket`: P4Runtime of the daemon. `device_ids`: its switches.
    """

    def __init__(self, socket: Path, device_ids: Mapping[str, int], sources: Mapping[str, Path]) -> None:
        self._address, self._device_ids = unix_address(socket), dict(device_ids)
        self.sources = dict(sources)
        self.programs: dict[str, CompiledProgram] = {}
        """Programs that were compiled here, by switch."""
        self.infos: dict[str, p4i.P4Info] = {}
        """P4Info of what each switch runs."""

    def compile(self, switches: Sequence[str]) -> dict[str, CompiledProgram]:
        """Compile the files of switches, each once. Raises ProgramError."""
        by_source = {path: compile_file(path) for path in dict.fromkeys(self.sources[name] for name in switches)}
        return {name: by_source[self.sources[name]] for name in switches}

    def switch_name(self, name: str) -> str:
        """Return the name when it is a switch's. Raises FabricError."""
        if name not in self._device_ids:
            raise FabricError(f"no switch {name!r} (has: {', '.join(self._device_ids)})")
        return name

    def client(self, name: str) -> SwitchClient:
        """Return a P4Runtime client of a switch, to be used in a `with` block."""
        return SwitchClient(name, self._address, self._device_ids[self.switch_name(name)])

    def load(self, name: str, program: CompiledProgram, updates: Sequence[p4r.Update] = ()) -> None:
        """Load a program and its entries into a switch. Raises LabSwitchError."""
        with self.client(name) as client:
            client.load(program)
            self.programs[name], self.infos[name] = program, program.p4info
            _write(client, updates)

    def load_entries(self, switch: str, path: Path) -> int:
        """Write the entries of a file to a switch; return their number. Raises UsageError, LabSwitchError."""
        updates = read_entries(path, self.infos[self.switch_name(switch)])
        with self.client(switch) as client:
            _write(client, updates)
        return len(updates)

    def reload(
        self,
        source: Path | None = None,
        switches: Sequence[str] = (),
        check: Callable[[Mapping[str, CompiledProgram]], None] = lambda _programs: None,
    ) -> list[Reload]:
        """Compile programs anew and swap them under traffic; entries that fit stay.

        `source` None: the file that each switch has now; `switches`: none for all. Raises ProgramError and leaves all
        as it was when a program has mistakes, or `check` raises.
        """
        begin = time.monotonic()
        names = [self.switch_name(name) for name in switches] or list(self.sources)
        sources = {name: source or self.sources[name] for name in names}
        by_source = {path: compile_file(path) for path in dict.fromkeys(sources.values())}
        check({name: by_source[path] for name, path in sources.items()})
        reloads = []
        for name, path in sources.items():
            with self.client(name) as client:
                reloads.append(client.swap(self.infos[name], by_source[path], begin))
            self.programs[name], self.sources[name] = by_source[path], path
            self.infos[name] = by_source[path].p4info
        return reloads

    def entry_lines(self, switch: str) -> list[str]:
        """Describe what was written to a switch, a line for each entry."""
        info = self.infos[self.switch_name(switch)]
        names = ProgramNames(info)
        with self.client(switch) as client:
            return [names.entry_text(entity) for entity in client.read(info)]


def _write(client: SwitchClient, updates: Sequence[p4r.Update]) -> None:
    reasons = [f"entry {index}: {reason}" for index, reason in enumerate(client.write(updates)) if reason is not None]
    if reasons:
        raise LabSwitchError("\n".join(f"{client.name}: {reason}" for reason in reasons))
