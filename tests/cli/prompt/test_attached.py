"""An attached prompt: what it hears from the front process, and what it says of a connection that ends."""

import contextlib
import io
import os
import sys

import pytest

from mrc_testbed.cli.prompt.attached import AttachedCLI
from mrc_testbed.ipc.rundir import FabricError
from tests.cli.prompt.session_doubles import StandInFabric


class Connections:
    """The notices of a front process, a list for each connection; then it has ended."""

    def __init__(self, *texts):
        self.texts = list(texts)

    @contextlib.contextmanager
    def notices(self):
        if not self.texts:
            raise FabricError("the fabric b has ended")
        yield iter(self.texts.pop(0))


@pytest.fixture
def attached(tmp_path, monkeypatch):
    """An attached prompt, which prints into a buffer."""
    with open(os.devnull) as no_input:
        monkeypatch.setattr(sys, "stdin", no_input)
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        yield AttachedCLI("b", StandInFabric(tmp_path), lambda _node, words: words)


def test_follow__goes_on_after_it_was_cut_off(attached, monkeypatch):
    attached._client = Connections(["fault 2: ..."])
    attached._follow(iter(["fault 1: ..."]))
    assert attached.stdout.getvalue().splitlines() == [
        "fault 1: ...",
        "notices were lost: this prompt did not read for a while",
        "fault 2: ...",
        "b has ended: `exit` leaves this prompt",
    ]
