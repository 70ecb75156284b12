"""Slot of a fabric on its machine: interface names and TCP ports that no other fabric has.

Switches of all fabrics are in one network namespace. The first fabric has the plain names and numbers; one that is
brought up beside it gets the next slot by itself: `2p0-t0-0-eth1` in place of `p0-t0-0-eth1`, 10559 in place of 9559.
A slot is held by a socket without a file, whose name, like those of interfaces, means the same in one network namespace
alone, and is free again when the front process ends, however that was.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from mrc_testbed.ipc.processes import Processes
from mrc_testbed.ipc.rundir import FabricError, RunDir, read_json
from mrc_testbed.topologies.lab import preflight
from mrc_testbed.topologies.lab.options import LabOptions
from mrc_testbed.topologies.lab.targets import TARGETS, Target
from mrc_testbed.topologies.plan import Plan, PlanError

PREFIXES = ("", *"23456789abcdefgijklmnoqrstuvwxyz")
"""Begin of the names of switch interfaces, by slot. No h and no p, with which names of nodes begin."""
PORT_STEP = 1000
"""Distance between the TCP ports of two slots."""
HOLDER = "\0mrc-testbed-slot-{}"
"""Name of the socket that holds a slot, in Linux's abstract space."""


@contextlib.contextmanager
def take_slot(plan: Plan, lab: LabOptions, folder: Path) -> Iterator[tuple[Plan, LabOptions]]:
    """Hold the first free slot within; return plan and options with the names and ports of it.

    `folder`: run folder of the fabric, whose own leftovers are not in the way. A fabric on several machines has the
    plain names and ports. Raises FabricError when no slot is free.
    """
    if lab.servers is not None:
        yield plan, lab
        return
    refusal: Exception | None = None
    with ExitStack() as stack:
        for number, prefix in enumerate(PREFIXES):
            holder = stack.enter_context(socket.socket(socket.AF_UNIX))
            try:
                holder.bind(HOLDER.format(number))
            except OSError:  # another fabric has this slot
                continue
            try:
                slot_plan = replace(plan, interface_prefix=prefix)
                slot_lab = replace(lab, ports=lab.ports.with_offset(number * PORT_STEP))
                _check_free(slot_plan, slot_lab, folder)
            except PlanError as error:  # no longer name has room in Linux: the next slots are no better
                refusal = refusal or FabricError(f"beside another fabric, {error}, or end the other one (`mrc down`)")
                break
            except FabricError as error:
                refusal = refusal or error
                holder.close()
                continue
            yield slot_plan, slot_lab
            return
    raise refusal or FabricError(f"{len(PREFIXES)} fabrics are up. Cure: `mrc down NAME` ends one")


def _check_free(plan: Plan, lab: LabOptions, folder: Path) -> None:
    """Raises FabricError when an interface or a port is another's."""
    run_dir = RunDir(folder)
    target: Target = TARGETS[lab.target](run_dir, Processes(run_dir), lab.ports, plan)
    preflight.check_tcp_ports(target.tcp_ports())
    ports = [port for switch in plan.switches for port in plan.ports(switch.name)]
    try:
        leftovers = set(read_json(run_dir.state_file)["interfaces"])
    except (OSError, ValueError, KeyError, TypeError):  # no run was here, or its reader says what is wrong
        leftovers = set()
    preflight.check_interfaces({name for port in ports for name in (port.interface, port.plug)} - leftovers)
