"""A prompt over a stand-in for a fabric."""

import io
import os

import pytest

from mrc_testbed.cli.prompt.shell import FabricCLI
from tests.cli.prompt.session_doubles import StandInFabric


@pytest.fixture
def fabric(tmp_path):
    return StandInFabric(tmp_path)


@pytest.fixture
def cli(fabric):
    with open(os.devnull) as no_input:
        yield FabricCLI(fabric, no_input, io.StringIO())
