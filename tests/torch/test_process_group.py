"""Backend mrc of torch.distributed: ranks on the NIC processes of hosts, one a host, without root."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mrc_testbed.hosts.libmrc import SOCKET_VARIABLE, library
from tests.hosts.nicd.nic_processes import NicProcesses

pytest.importorskip("torch", reason="needs PyTorch: pip install 'mrc-testbed[torch]'")
PROGRAM = Path(__file__).with_name("rank_program.py")
PATIENCE_S = 110


def _cases(table_name: str) -> list[str]:
    """Return the names in a table of the program, which registers a backend when it is imported."""
    table = next(
        node.value
        for node in ast.parse(PROGRAM.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == table_name
    )
    return [element.id for element in table.generators[0].iter.elts]


def run(case, ranks, folder):
    """Run a case on as many ranks; return what each has printed."""
    with NicProcesses(folder, hosts=[f"n{rank}" for rank in range(ranks)]) as processes:
        # One rank a host: the fabric carries nothing from a host to itself.
        processes_of_ranks = [
            subprocess.Popen(
                [sys.executable, str(PROGRAM), case],
                env={
                    **os.environ,
                    "RANK": str(rank),
                    "WORLD_SIZE": str(ranks),
                    "STORE": str(folder / "store"),
                    SOCKET_VARIABLE: str(socket),
                    "LD_PRELOAD": str(library()),
                    "OMP_NUM_THREADS": "1",
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank, socket in enumerate(processes.sockets.values())
        ]
        try:
            return [process.communicate(timeout=PATIENCE_S)[0] for process in processes_of_ranks]
        finally:
            for process in processes_of_ranks:
                process.kill()


@pytest.mark.parametrize("case", _cases("CASES"))
def test_backend__of_two_ranks(tmp_path, case):
    outputs = run(case, 2, tmp_path)
    lasting_ranks = [0] if case == "dead_rank" else [0, 1]
    for rank in lasting_ranks:
        assert outputs[rank].endswith("passed\n"), outputs[rank]


@pytest.mark.parametrize("case", _cases("MANY_CASES"))
@pytest.mark.parametrize("ranks", [3, pytest.param(8, marks=pytest.mark.thorough)])
def test_backend__of_many_ranks(tmp_path, case, ranks):
    for output in run(case, ranks, tmp_path):
        assert output.endswith("passed\n"), output
