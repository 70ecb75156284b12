"""Messages of agents that set up and end QPs, with one line lost, doubled or late.

Nothing hangs or is left.

Two agents' services, the real client and server, lines in memory and virtual time.
"""

import asyncio
from pathlib import Path
from random import Random

import pytest

from mrc_testbed.hosts.engine.qp import EngineQpState
from mrc_testbed.ipc.rpc import JsonlError, RpcClient
from tests.hosts.agent.services.test_services import Side
from tests.jumping_loop import JumpingLoop
from tests.lines_in_memory import Fate, LinesInMemory

LATE_S = 25.0
"""Later than an answer is waited for."""
FATES = {"lost": Fate(copies=0), "doubled": Fate(copies=2), "late": Fate(late_s=LATE_S)}
ENDED_S = 120.0
STORIES = 30
"""Stories with answers lost at random, for each share of them."""
LINES = 12
"""Lines of the story: 3 requests to open twice, 1 to close, 2 for a QP of a test, and the answers."""


async def story(sides):
    """Open a QP, open it again, close it at both ends, open one for a test; errors that were raised."""
    connections, errors = sides["h0"].connections, []
    for _ in range(2):
        try:
            agent = await connections.dial("h1")
            try:
                await connections.open(agent, 1024, fresh=False)
            finally:
                agent.close()
        except JsonlError as error:
            errors.append(str(error))
    for connection in list(connections):
        connections.close(connection)
        errors += filter(None, [await connections.close_remote(connection)])
    agent = await connections.dial("h1")
    try:
        connection = await connections.open_reserved(agent, 1024, "mrc")
        connections.discard(connection)
    except JsonlError as error:
        errors.append(str(error))
    agent.close()
    return errors


def is_known(error):
    """Return whether an error names the exchange that failed, and its cause."""
    return "no answer in" in error or "closed" in error or "no QP" in error


def play(monkeypatch, folder, fate=lambda _line: Fate()):
    """Return (reported errors, lines sent) of a story in which `fate` decides on each line.

    Checks that nothing is left at the end.
    """
    loop, lines = JumpingLoop(), LinesInMemory()
    lines.fate = fate
    monkeypatch.setattr(RpcClient, "connect", lines.connect)

    async def run():
        sides = {name: Side(name, Path(folder)) for name in ("h0", "h1")}
        for name, side in sides.items():
            side.server = lines.listen(name, side.table.handle)
        errors = await asyncio.wait_for(story(sides), ENDED_S)
        await asyncio.sleep(2 * LATE_S)
        for side in sides.values():
            connections = list(side.connections)
            assert not any(connection.is_busy or connection.is_reserved for connection in connections), connections
            assert all(connection.qp.state is EngineQpState.RTS for connection in connections), connections
        lines.fate = lambda _line: Fate()
        agent = await sides["h0"].connections.dial("h1")
        assert (await sides["h0"].connections.open(agent, 1024, fresh=False)).qp.state is EngineQpState.RTS
        agent.close()
        return errors

    try:
        return loop.run_until_complete(run()), len(lines.lines)
    finally:
        loop.close()


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("number", range(LINES))
def test_a_line_between_agents(monkeypatch, tmp_path, number, fate):
    errors, _ = play(monkeypatch, tmp_path, lambda line: FATES[fate] if line.number == number else Fate())
    assert all(is_known(error) for error in errors), errors
    assert fate != "doubled" or not [e for e in errors if "no answer" in e]


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.9])
def test_answers_lost_at_random(monkeypatch, tmp_path, share):
    """Rare acts of a host are drawn as in `mrc simtest` (docs/simulation-testing.md).

    Any answers of a story, by seeds.
    """
    lost = 0
    for seed in range(STORIES):
        rng = Random(seed)

        def fate(line, rng=rng):
            nonlocal lost
            happens = not line.to_server and rng.random() < share
            lost += happens
            return FATES["lost"] if happens else Fate()

        errors, _ = play(monkeypatch, tmp_path, fate)
        assert all(is_known(error) for error in errors), (seed, errors)
    assert lost


def test_the_story_without_a_fault(monkeypatch, tmp_path):
    errors, lines = play(monkeypatch, tmp_path)
    assert errors == [] and lines == LINES + 4  # a QP is opened once more in the end
