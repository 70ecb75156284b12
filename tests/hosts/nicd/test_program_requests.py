"""Random requests of every operation: each is answered or ends its program, and none raises more."""

from __future__ import annotations

import inspect
import logging
from random import Random

import pytest

from mrc_testbed.hosts.nicd.control import ProgramControl
from mrc_testbed.hosts.nicd.layout import (
    CC_VALUES,
    EP_VALUES,
    EV_ENTRY_VALUES,
    FIELD_VALUES,
    MAX_VALUES,
    NAME_VALUES,
    QP_VALUES,
    numbers_of,
)
from mrc_testbed.hosts.nicd.program import VerbsProgram
from tests.hosts.nicd.nic_processes import NicProcesses
from tests.hosts.nicd.raw_program import EndedError, RawProgram

OPERATIONS = {name: number for name, number in numbers_of("OP_").items() if name != "HELLO"}
REST_COUNTS = {
    "CREATE_QP": (7,),
    "MODIFY_QP": (QP_VALUES,),
    "CTL_MODIFY_EV_FMT": range(9),
    "CTL_MODIFY_EV_PROFILE": [7 + FIELD_VALUES * count for count in range(5)],
    "CTL_EV_OP": [EV_ENTRY_VALUES * count for count in range(4)],
    "CTL_MODIFY_CC_PROFILE": (NAME_VALUES + CC_VALUES,),
    "CTL_EP_ADD": [EP_VALUES * count for count in range(4)],
}
"""Numbers of values behind those that a handler names."""
EDGES = [1 << bit for bit in range(64)] + [(1 << bit) - 1 for bit in range(1, 65)]


def named_values(name: str) -> int:
    """Return the number of values that the handler of an operation has names for."""
    owner, method = (
        (ProgramControl, name[4:].lower()) if name.startswith("CTL_") else (VerbsProgram, f"_{name.lower()}")
    )
    parameters = inspect.signature(getattr(owner, method)).parameters.values()
    return sum(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters) - 1


def random_value(rng: Random) -> int:
    kind = rng.random()
    if kind < 0.6:
        return rng.randrange(9)
    return rng.choice(EDGES) if kind < 0.9 else rng.getrandbits(64)


def random_request(rng: Random) -> tuple[int, tuple[int, ...]]:
    name = rng.choice(list(OPERATIONS))
    count = named_values(name) + rng.choice(REST_COUNTS.get(name, (0,)))
    if rng.random() < 0.03:
        count = rng.randrange(MAX_VALUES + 1)
    return OPERATIONS[name], tuple(random_value(rng) for _ in range(count))


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(3, 30))]
)
def test_random_requests(tmp_path, caplog, seed):
    caplog.set_level(logging.INFO, "mrc_testbed.hosts.nicd")
    rng = Random(seed)
    with NicProcesses(tmp_path) as processes:
        program = RawProgram(processes.sockets["a"])
        for _ in range(1500):
            request = random_request(rng)
            try:
                program.send(*request, [])
                program.receive()
            except EndedError:
                program.close()
                program = RawProgram(processes.sockets["a"])
            assert not [record for record in caplog.records if record.exc_info], request
        program.close()
        processes.wait_until(lambda: not processes.daemons[0]._programs)
