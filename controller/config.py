"""Start-up configuration of the controller: plan, switches and program of the run folder.

plan.json        Plan.to_json()
switches.json    {"p0-t0-0": {"address": "127.0.0.1:9559", "device_id": 1, "gnmi": "127.0.0.1:9339"}, ...}, and
                 "tells_watch_ports": false where a switch does not read them back, "program": folder of a program
                 of its own, "foreign": true where the controller has no business
program/         p4info.txtpb and one config.*
discipline.json  optional: what of the egress discipline is not as the plan has it (controller/p4runtime/qos.py)

docs/architecture.md describes the files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

from finsy import P4Schema

from mrc_testbed.controller.errors import InputError
from mrc_testbed.controller.p4runtime.entries import Catalog, NamedEntry
from mrc_testbed.controller.p4runtime.qos import DEFAULT, Discipline
from mrc_testbed.controller.p4runtime.routes import entries_of, recognise
from mrc_testbed.ipc.rundir import RunFiles
from mrc_testbed.topologies.plan import Plan, PlanError, Switch

DEVICE_ID_MAX = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class SwitchProgram:
    """Program of a switch: its kind, and its P4Info."""

    kind: str
    """`srv6` or `spray`: whose routes its tables take."""
    catalog: Catalog


@dataclass(frozen=True, slots=True)
class SwitchAddress:
    """Address of a switch, and its entries."""

    switch: Switch
    address: str
    device_id: int
    gnmi: str | None
    """Address of the gNMI server that knows its ports; None when there is none."""
    entries: tuple[NamedEntry, ...]
    tells_watch_ports: bool = True
    """Whether members of a group are read back with their watch ports (not by BMv2: with_watch_ports)."""
    own_program: SwitchProgram | None = None
    """Program of this switch, where that is another than the fabric's."""

    @property
    def name(self) -> str:
        return self.switch.name

    def __str__(self) -> str:
        return f"{self.name} ({self.address}, device {self.device_id})"


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Start-up configuration, checked: the fabric, its program, and where its switches answer."""

    run_dir: Path
    program: str
    plan: Plan
    catalog: Catalog
    targets: tuple[SwitchAddress, ...]
    """Switches with a program that has the tables of ours; the others are not the controller's."""

    def program_of(self, target: SwitchAddress) -> SwitchProgram:
        """Return the program of a switch: its own, or the fabric's."""
        return target.own_program or SwitchProgram(self.program, self.catalog)

    @property
    def gnmi_addresses(self) -> list[str]:
        """Every gNMI server once, in the order of the switches."""
        return list(dict.fromkeys(t.gnmi for t in self.targets if t.gnmi is not None))


def read_inputs(run_dir: Path, program: str | None = None) -> ControllerConfig:
    """Load and check all inputs before a switch is touched.

    `program` None: the program is recognised by the P4Info. Raises InputError naming the file and the cure.
    """
    if not run_dir.is_dir():
        raise InputError(f"no run folder {run_dir}: start the fabric with `mrc up`, or name it with --run-dir")
    files = RunFiles(run_dir)
    try:
        plan = Plan.from_json(_read_json(files.plan_file))
    except (PlanError, TypeError) as error:
        raise InputError(f"{files.plan_file}: {error}") from error
    catalog = Catalog(_read_program(files.program))
    program = program or recognise(catalog)
    path = files.switches_file
    addresses = _read_json(path)
    if not isinstance(addresses, dict):
        raise InputError(f"{path}: wants an object of switches, each with address, device_id and gnmi")
    names = {s.name for s in plan.switches}
    if missing_names := sorted(names - addresses.keys()):
        raise InputError(f"{path}: no entry for {', '.join(missing_names)}, which the plan ({plan}) has")
    if unknown_names := sorted(addresses.keys() - names):
        raise InputError(f"{path}: {', '.join(unknown_names)} not in the plan ({plan})")
    discipline = _read_discipline(files.discipline_file)
    targets = []
    # Each switch gets the entries of its own program, or of the fabric's.
    for switch in plan.switches:
        record = addresses[switch.name]
        if isinstance(record, dict) and record.get("foreign") is True:
            continue
        own_program = _own_program(run_dir, record)
        kind, switch_catalog = (own_program.kind, own_program.catalog) if own_program else (program, catalog)
        entries = tuple(entries_of(kind, plan, switch, switch_catalog, discipline))
        targets.append(replace(_target(switch, record, entries, path), own_program=own_program))
    return ControllerConfig(run_dir, program, plan, catalog, tuple(targets))


def _own_program(run_dir: Path, record: Any) -> SwitchProgram | None:
    folder = record.get("program") if isinstance(record, dict) else None
    if not isinstance(folder, str):
        return None
    catalog = Catalog(_read_program(run_dir / folder))
    return SwitchProgram(recognise(catalog), catalog)


def _target(switch: Switch, record: Any, entries: tuple[NamedEntry, ...], path: Path) -> SwitchAddress:
    location = f"{path}: {switch.name}"
    if not isinstance(record, dict):
        raise InputError(f"{location}: wants an object with address, device_id and gnmi, not {record!r}")
    address, device_id, gnmi = record.get("address"), record.get("device_id"), record.get("gnmi")
    if not _is_address(address):
        raise InputError(
            f'{location}: address = {address!r}: wants "host:port", like "127.0.0.1:9559", or "unix:/path"'
        )
    if not isinstance(device_id, int) or isinstance(device_id, bool) or not 0 < device_id <= DEVICE_ID_MAX:
        raise InputError(f"{location}: device_id = {device_id!r}: wants a number from 1, like {switch.device_id}")
    if gnmi is not None and not _is_address(gnmi):
        format_text = '"host:port", like "127.0.0.1:9339", "unix:/path", or null'
        raise InputError(f"{location}: gnmi = {gnmi!r}: wants {format_text}")
    tells = record.get("tells_watch_ports", True)
    if not isinstance(tells, bool):
        raise InputError(f"{location}: tells_watch_ports = {tells!r}: wants true or false")
    return SwitchAddress(switch, address, device_id, gnmi, entries, tells)


def _is_address(value: Any) -> TypeGuard[str]:
    """Return whether gRPC takes a value for the address of a server, by TCP or by a Unix socket."""
    return isinstance(value, str) and (value.startswith("unix:/") or value.rpartition(":")[2].isdecimal())


def _read_discipline(path: Path) -> Discipline:
    if not path.exists():
        return DEFAULT
    data = _read_json(path)
    try:
        return Discipline.from_json(data)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _read_program(folder: Path) -> P4Schema:
    p4info = folder / "p4info.txtpb"
    _read_bytes(p4info)  # the same errors for all files
    configs = sorted(folder.glob("config.*"))
    if len(configs) != 1:
        have = ", ".join(c.name for c in configs) or "none"
        raise InputError(f"{folder}: wants exactly one config.* (the device config of the target), has: {have}")
    config = _read_bytes(configs[0])
    try:
        schema = P4Schema(p4info, config)
    except Exception as error:  # text_format, finsy and its assertions each raise their own
        raise InputError(f"{p4info}: not a P4Info in text format: {error or type(error).__name__}") from error
    if not len(schema.tables):
        raise InputError(f"{p4info}: the program has no tables")
    return schema


def _read_json(path: Path) -> Any:
    try:
        return json.loads(_read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from error


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path} is missing: `mrc up` writes it before it starts the controller") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
