"""Bring a fabric up with its program compiled and its progress shown: what `mrc up`, demo and benches share."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from topologies.lab.fabric import Fabric
from topologies.lab.p4_program import compile_program
from topologies.plan import Plan


def open_fabric(
    plan: Plan, *, target: str, nic: str, console: Console, program: str | None = None, **options: Any
) -> Fabric:
    """An unstarted Fabric (a context manager) that reports each step on `console`; `options` are its own.

    Raises FabricError, ProcessError or RunDirError on entering, with everything removed again.
    """

    def progress(message: str) -> None:
        console.print(f"[dim]{message}[/dim]")

    return Fabric(
        plan, target=target, program=program, nic=nic, compile_program=compile_program, progress=progress, **options
    )
