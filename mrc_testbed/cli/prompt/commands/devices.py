"""Command about the RDMA devices of hosts, for programs that loaded libmrc."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mrc_testbed.cli.prompt.commands.base import SHOW, Answer, Args, CliSession, arguments, command, host_names
from mrc_testbed.console.terminal import Cell, table
from mrc_testbed.console.units import show_size
from mrc_testbed.hosts.nicd.status import programs_of

DEVICE = "mrc0"


@command("devices", SHOW, complete=host_names, reads=True)
def devices(session: CliSession, args: Args) -> Answer:
    """The RDMA device of each host, and the programs that use it (`mrc exec`).

    devices
    devices h0
    """
    arguments(args, "devices [HOST], as in: devices h0", 0, 1)
    plan, run_dir = session.plan, session.fabric.run_dir
    # A host without programs has a row too: its device is there.
    rows: list[list[Cell]] = []
    data: list[dict[str, Any]] = []
    for host in [plan.host(args[0])] if args else plan.hosts:
        programs = programs_of(run_dir.nic_socket(host.name))
        data.append(
            {
                "host": host.name,
                "device": DEVICE,
                "ports": plan.planes,
                "is_running": programs is not None,
                "programs": [asdict(program) for program in programs or ()],
            }
        )
        if not programs:
            state = "none yet" if programs is None else "none"
            rows.append([host.name, DEVICE, str(plan.planes), state, *[""] * 6])
        for program in programs or ():
            rows.append(
                [
                    host.name,
                    DEVICE,
                    str(plan.planes),
                    f"pid {program.pid}",
                    str(program.qps),
                    show_size(program.registered_bytes),
                    str(program.packets_sent),
                    str(program.retransmitted),
                    show_size(program.bytes_sent),
                    show_size(program.bytes_received),
                ]
            )
    heads = ("host", "device", "ports", "program", "QPs", "registered", "packets", "sent again", "sent", "received")
    return Answer(table(session.style, heads, rows, right_columns=("ports", *heads[4:])), data)
