"""Refusal of commands that read local interfaces when the fabric spans machines."""

from __future__ import annotations

from mrc_testbed.errors import UsageError
from mrc_testbed.ipc.rundir import RunFiles


def refuse_several_machines(files: RunFiles) -> None:
    """Raises UsageError for a fabric on several machines, whose interfaces are not all here."""
    if files.machines:
        raise UsageError(
            f"this fabric is on machines {', '.join(files.machines)}, and this looks at interfaces of one: ask at the "
            "prompt where the fabric was begun (`links`, `evs`, `queues`), or capture there with a program of the "
            "machine: `h0 tcpdump -w h0.pcap -i h0-eth0`"
        )
