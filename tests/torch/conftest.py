"""Fixture of jobs of ranks."""

import pytest

from tests.torch.rank_server import RankServer


@pytest.fixture(scope="session")
def rank_server():
    with RankServer() as server:
        yield server
