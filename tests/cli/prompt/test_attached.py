"""Notices at an attached prompt, and its words about a connection that ends."""

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
def prompt(tmp_path, monkeypatch):
    """An attached prompt, which prints into a buffer."""
    with open(os.devnull) as no_input:
        monkeypatch.setattr(sys, "stdin", no_input)
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        yield AttachedCLI("b", StandInFabric(tmp_path), lambda _node, words: words)


def test_follow__goes_on_after_it_was_cut_off(prompt, monkeypatch):
    prompt._client = Connections(["fault 2: ..."])
    prompt._follow(iter(["fault 1: ..."]))
    assert prompt.stdout.getvalue().splitlines() == [
        "fault 1: ...",
        "notices were lost: this prompt did not read for a while",
        "fault 2: ...",
        "b has ended: `exit` leaves this prompt",
    ]
