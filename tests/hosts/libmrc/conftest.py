"""NIC processes for the C programs of a test file."""

from __future__ import annotations

import pytest

from tests.hosts.nicd.nic_processes import NicProcesses


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    with NicProcesses(tmp_path_factory.mktemp("nic")) as processes:
        yield processes
