"""Backend mrc of torch.distributed: ranks on the NIC processes of hosts, one a host, without root."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mrc_testbed.hosts.libmrc import SOCKET_VARIABLE
from tests.hosts.nicd.nic_processes import NicProcesses

pytest.importorskip("torch", reason="needs PyTorch: pip install 'mrc-testbed[torch]'")
PROGRAM = Path(__file__).with_name("rank_program.py")


def _cases(table_name: str) -> list[str]:
    """Return the names in a table of the program, which registers a backend when it is imported."""
    table = next(
        node.value
        for node in ast.parse(PROGRAM.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == table_name
    )
    return [element.id for element in table.generators[0].iter.elts]


def run(server, case, ranks, folder):
    """Run a case on as many ranks; return how each ended."""
    with NicProcesses(folder, hosts=[f"n{rank}" for rank in range(ranks)]) as processes:
        # One rank a host: the fabric carries nothing from a host to itself.
        variables = [
            {"STORE": str(folder / "store"), SOCKET_VARIABLE: str(socket)} for socket in processes.sockets.values()
        ]
        return server.run(PROGRAM, [case], variables, folder)


@pytest.mark.parametrize("case", _cases("CASES"))
def test_backend__of_two_ranks(tmp_path, rank_server, case):
    ends = run(rank_server, case, 2, tmp_path)
    lasting_ranks = [0] if case == "dead_rank" else [0, 1]
    for rank in lasting_ranks:
        assert ends[rank].check(rank).endswith("passed\n")


@pytest.mark.parametrize("case", _cases("MANY_CASES"))
@pytest.mark.parametrize("ranks", [3, pytest.param(8, marks=pytest.mark.thorough)])
def test_backend__of_many_ranks(tmp_path, rank_server, case, ranks):
    for rank, end in enumerate(run(rank_server, case, ranks, tmp_path)):
        assert end.check(rank).endswith("passed\n")
