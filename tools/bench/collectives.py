"""`mrc bench collectives`: time of all_reduce over the fabric, by MRC and by what people use over IP.

On one fabric, one after the other, for 2 ranks and for 4: torch's backend `mrc`; gloo over the fabric's IP; where it is
installed Open MPI over the same; and gloo over loopback, past the fabric, for what the machine itself takes. Each runs
examples/all_reduce.py, or its form for MPI, examples/mpi/all_reduce.c: the median of five. Every sum is checked.

Schema `mrc-bench-collectives/1` (`--json`):

    fabric
    seconds     backend -> {ranks: {bytes: seconds}}; null for MPI without Open MPI
    ratio       {ranks: {bytes: gloo / mrc}}: how many times as long gloo takes
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mrc_testbed.console.units import show_seconds
from mrc_testbed.files.package import PACKAGE
from mrc_testbed.hosts.ip.tun import INTERFACE
from mrc_testbed.ipc.fabrics import OWN_FABRIC
from mrc_testbed.ipc.rundir import FabricError
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.open_fabric import open_fabric
from mrc_testbed.topologies.lab.options import LabOptions
from mrc_testbed.topologies.plan import Plan

SCHEMA = "mrc-bench-collectives/1"
RANKS = (2, 4)
BACKENDS = ("mrc", "gloo", "MPI", "loopback")
EXAMPLES = PACKAGE.parent / "examples"
LIMIT_S = 300.0
"""Longest time of one backend: they take seconds."""
_ROW = re.compile(r"^all_reduce (\d+) bytes ([\d.]+) s", re.MULTILINE)

Times = dict[int, float]
"""Bytes -> seconds."""


def run(plan: Plan, lab: LabOptions, console: Console) -> dict[str, Any]:
    """Measure all backends. Raises the fabric's errors, and FabricError where one fails."""
    with open_fabric(plan, lab, console) as fabric, tempfile.TemporaryDirectory() as folder:
        programs = {backend: None if backend == "MPI" else str(EXAMPLES / "all_reduce.py") for backend in BACKENDS}
        if shutil.which("mpirun") and shutil.which("mpicc"):
            programs["MPI"] = build(Path(folder))
        seconds: dict[str, dict[int, Times] | None] = {}
        for backend, program in programs.items():
            console.print(f"{backend}: {'not measured, needs Open MPI' if program is None else 'measuring'}")
            seconds[backend] = None
            if program is not None:
                seconds[backend] = {ranks: measure(fabric, plan, backend, [program], ranks) for ranks in RANKS}
    mrc, gloo = seconds["mrc"], seconds["gloo"]
    assert mrc is not None and gloo is not None
    ratio = {ranks: {size: round(gloo[ranks][size] / mrc[ranks][size], 2) for size in mrc[ranks]} for ranks in RANKS}
    _print(seconds, ratio, console)
    return {"schema": SCHEMA, "fabric": plan.to_json(), "seconds": seconds, "ratio": ratio}


def build(folder: Path) -> str:
    """Return the example for MPI as a program in a folder. Raises FabricError."""
    program = folder / "all_reduce"
    command = ["mpicc", "-O2", "-o", str(program), str(EXAMPLES / "mpi" / "all_reduce.c")]
    compiler = subprocess.run(command, capture_output=True, text=True)
    if compiler.returncode:
        raise FabricError(f"cannot compile {EXAMPLES.name}/mpi/all_reduce.c: {compiler.stderr.strip()}")
    return str(program)


def command_of(plan: Plan, backend: str, words: list[str], ranks: int) -> list[str]:
    """Return the words behind `mrc` that run a program with its arguments on some ranks."""
    if backend != "MPI":
        return ["train", "--backend", backend, "--ranks", str(ranks), *words]
    hosts = [host.name for host in plan.hosts[:ranks]] if ranks > 2 else ["h0", plan.first_remote_host("h0").name]
    parameters = {
        "plm_rsh_agent": f"{sys.executable} -m mrc_testbed ssh",
        "btl": "tcp,self",
        "btl_tcp_if_include": INTERFACE,
        "oob_tcp_if_include": INTERFACE,
    }
    options = [word for name, value in parameters.items() for word in ("--mca", name, value)]
    return ["exec", "h0", "--", "mpirun", "--allow-run-as-root", *options, "-H", ",".join(hosts), *words]


def measure(fabric: Fabric, plan: Plan, backend: str, words: list[str], ranks: int) -> Times:
    """Return the times that a program prints on some ranks. Raises FabricError."""
    command = [sys.executable, "-m", "mrc_testbed", *command_of(plan, backend, words, ranks)]
    environment = {**os.environ, "MRC_RUN_DIR": str(fabric.run_dir.path), OWN_FABRIC: "1"}
    try:
        output = subprocess.run(
            command, cwd=PACKAGE.parent, env=environment, capture_output=True, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise FabricError(f"{backend} with {ranks} ranks did not end in {LIMIT_S:.0f} s") from None
    if output.returncode:
        lines = (output.stdout + output.stderr).strip()
        raise FabricError(f"{backend} with {ranks} ranks ended with {output.returncode}: {lines[-400:]}")
    return times_in(output.stdout)


def times_in(text: str) -> Times:
    """Return the times that a program printed. Raises FabricError where there are none."""
    times = {int(size): float(seconds) for size, seconds in _ROW.findall(text)}
    if not times:
        raise FabricError(f"no time of an all_reduce in {text.strip()[-200:]!r}")
    return times


def _print(seconds: dict[str, dict[int, Times] | None], ratio: dict[int, Times], console: Console) -> None:
    headings = {"mrc": "MRC", "gloo": "gloo, IP", "MPI": "Open MPI, IP", "loopback": "gloo, loopback"}
    for ranks, ratios in ratio.items():
        table = Table("bytes", *headings.values(), "gloo / MRC", title=f"all_reduce of {ranks} ranks, median")
        for size, quotient in ratios.items():
            cells = ["-" if times is None else show_seconds(times[ranks][size]) for times in seconds.values()]
            table.add_row(f"{size:,}", *cells, f"{quotient:.1f}")
        console.print(table)
