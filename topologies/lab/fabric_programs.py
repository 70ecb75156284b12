"""P4 programs of a fabric's switches: one of all, those of chosen ones, and swaps under traffic.

A program with the tables of `srv6` or `spray` is filled by the controller; a foreign one is loaded here, empty, and its
entries are the user's. Compilers and gRPC are loaded when they are needed: most fabrics have neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mrc_testbed.errors import UsageError
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab import p4_program
from mrc_testbed.topologies.lab.options import EMBEDDED, LabOptions
from mrc_testbed.topologies.plan import Plan

if TYPE_CHECKING:
    from mrc_testbed.ipc.controller_client import Northbound
    from mrc_testbed.ipc.rundir import RunDir
    from mrc_testbed.switch.compiler import CompiledProgram
    from mrc_testbed.topologies.p4lab.switch import Reload
    from mrc_testbed.topologies.p4lab.switch_programs import SwitchPrograms


class FabricParts(Protocol):
    """Parts of a fabric that have to do with programs; mrc_testbed.topologies.lab.fabric.Fabric has them."""

    plan: Plan
    lab: LabOptions
    run_dir: RunDir
    program: str

    @property
    def controller(self) -> Northbound: ...

    def write_switches(self) -> None: ...


class FabricPrograms:
    """Programs of the switches of one fabric."""

    def __init__(self, fabric: FabricParts) -> None:
        self._fabric = fabric
        self._running: SwitchPrograms | None = None
        self._folder_names: set[str] = set()
        """Switches whose program is in a folder of its own, for the controller."""
        self.foreign: set[str] = set()
        """Switches with a foreign program."""

    def prepare(self) -> None:
        """Compile the programs of chosen switches. Raises ProgramError, PlanError."""
        choices = self._fabric.lab.own_programs
        for name in choices:
            self._fabric.plan.switch(name)
        if not choices:
            return
        from mrc_testbed.topologies.p4lab.switch_programs import is_foreign

        programs = self.running.compile(list(choices))
        self.running.programs |= programs
        self.foreign = {name for name, program in programs.items() if is_foreign(program)}
        self._folder_names = set(programs) - self.foreign

    @property
    def running(self) -> SwitchPrograms:
        """Programs as the switches run them. Raises FabricError where they cannot be swapped."""
        if self._running is None:
            from mrc_testbed.topologies.p4lab.switch_programs import SwitchPrograms

            fabric = self._fabric
            if fabric.lab.target != EMBEDDED or fabric.lab.servers is not None or fabric.lab.compile_program is None:
                raise FabricError("programs are swapped on embedded switches of this machine. Cure: `mrc up` again")
            base = p4_program.source_of(fabric.program)
            names = [switch.name for switch in fabric.plan.switches]
            sources = {name: Path(fabric.lab.own_programs.get(name, base)) for name in names}
            device_ids = {switch.name: switch.device_id for switch in fabric.plan.switches}
            self._running = SwitchPrograms(fabric.run_dir.p4runtime_socket, device_ids, sources)
        return self._running

    def address_fields(self, name: str) -> dict[str, Any]:
        """Return what the controller has to know of the program of a switch."""
        if name in self.foreign:
            return {"foreign": True}
        return (
            {"program": str(self._folder(name).relative_to(self._fabric.run_dir.path))}
            if name in self._folder_names
            else {}
        )

    def load_foreign(self, switches: Sequence[str] | None = None) -> None:
        """Load foreign programs, and write the others of chosen switches for the controller; None: of all."""
        for name in self._folder_names if switches is None else ():
            self._write_folder(name)
        for name in sorted(self.foreign if switches is None else self.foreign & set(switches)):
            self.running.load(name, self.running.programs[name])

    def reload(self, source: Path | None = None, switches: Sequence[str] = ()) -> list[Reload]:
        """Compile programs anew and swap them under traffic; entries that fit stay.

        `source` None: the file that each switch has now; `switches`: none for all. Raises ProgramError and leaves all
        as it was when a program has mistakes, UsageError for one that needs a controller that a switch has not.
        """
        running = self.running
        names = [running.switch_name(name) for name in switches] or list(running.sources)
        self._recall(names)
        reloads = running.reload(source, names, check=self._check_swap)
        refreshed_names = [name for name in names if name not in self.foreign]
        for name in refreshed_names:
            self._write_folder(name)
        if refreshed_names and self._fabric.lab.controller:
            self._folder_names |= set(refreshed_names)
            self._fabric.write_switches()
            self._fabric.controller.request("reload")
        return reloads

    def entry_lines(self, switch: str) -> list[str]:
        """Describe what was written to a switch, a line for each entry. Raises FabricError."""
        self._recall([switch])
        return self.running.entry_lines(switch)

    def load_entries(self, switch: str, path: Path) -> int:
        """Write the entries of a file to a switch with a foreign program; return their number.

        Raises UsageError, FabricError.
        """
        if switch not in self.foreign:
            raise FabricError(
                f"{switch}: its tables are the controller's. Cure: `mrc up --program {switch}=FILE` with a program "
                "without the tables of srv6 and spray"
            )
        return self.running.load_entries(switch, path)

    def _recall(self, names: Iterable[str]) -> None:
        """Look up the P4Info of what switches run, in the folder that the controller reads."""
        for name in names:
            if name not in self.running.infos:
                folder = self._folder(name) if name in self._folder_names else self._fabric.run_dir.program
                self.running.infos[name] = p4_program.read_info(folder)

    def _check_swap(self, programs: Mapping[str, CompiledProgram]) -> None:
        """Raise UsageError where the controller would gain or lose a switch."""
        from mrc_testbed.topologies.p4lab.switch_programs import is_foreign

        for name, program in programs.items():
            if is_foreign(program) is not (name in self.foreign):
                lacks = "lacks" if is_foreign(program) else "has"
                raise UsageError(
                    f"{name}: {program.name} {lacks} the tables of srv6 and spray, which the controller fills, other "
                    f"than what runs there. Cure: begin with it, `mrc up --program {name}=FILE`"
                )

    def _folder(self, name: str) -> Path:
        return self._fabric.run_dir.program / name

    def _write_folder(self, name: str) -> None:
        folder = self._folder(name)
        folder.mkdir(parents=True, exist_ok=True)
        p4_program.write_program(folder, self.running.programs[name])
