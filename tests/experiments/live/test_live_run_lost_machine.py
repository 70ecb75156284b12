"""A live run whose fabric loses something: what is told."""

import contextlib
from types import SimpleNamespace

import pytest

from mrc_testbed.experiments.live import live_run
from mrc_testbed.ipc.rundir import FabricError

LOST = "machine b is lost, with plane 2 (4 switches), host h2: its ssh connection has ended"
MACHINE_STATE = "machine b (plane 2 (4 switches), host h2) cannot be asked: it is off"


def test_run__what_has_become_of_a_lost_machine_is_told_with_its_loss(monkeypatch):
    @contextlib.contextmanager
    def fabric(notices):
        try:
            yield
        finally:
            notices += [LOST, MACHINE_STATE]

    def start_run(*_):
        notices = []

        def carry_out(_progress):
            raise FabricError(LOST)

        return SimpleNamespace(fabric=fabric(notices), notices=notices, carry_out=carry_out)

    monkeypatch.setattr(live_run, "LiveRun", start_run)
    with pytest.raises(FabricError) as caught:
        live_run.LiveRunner().run(None)
    assert str(caught.value).splitlines() == [LOST, MACHINE_STATE]
