"""Client of an agent over a real socket: refusals, an absent agent, events awaited by name."""

from __future__ import annotations

import pytest

from mrc_testbed.ipc.agent_client import AgentClient, AgentError
from tests.ipc.test_rpc import ServerThread


@pytest.fixture
def server(tmp_path):
    running = ServerThread(tmp_path / "h0.sock")
    yield running
    running.stop()


@pytest.fixture
def client(server, tmp_path):
    with AgentClient(tmp_path / "h0.sock") as connected:
        yield connected


def test_call__a_refusal_names_host_and_operation(client):
    with pytest.raises(AgentError, match="h0: hello: no op 'hello'") as caught:
        client.hello()
    assert caught.value.host == "h0" and caught.value.is_refusal


def test_call__an_agent_that_is_not_there_is_no_refusal(tmp_path):
    with pytest.raises(AgentError, match="h7") as caught, AgentClient(tmp_path / "h7.sock") as client:
        client.status()
    assert not caught.value.is_refusal


def test_until__passes_over_events_that_do_not_fit(server, client):
    with client.watch() as events:
        assert events.wait_for("hello", timeout_s=5)
        server.publish("transfer", number=1)
        server.publish("transfer", number=2)
        assert events.wait_for("transfer", timeout_s=5, number=2)["number"] == 2


def test_until__names_what_came_instead(client):
    with client.watch() as events, pytest.raises(AgentError, match=r"no event lost, ev = 3 in 0.2 s \(saw 1: hello\)"):
        events.wait_for("lost", timeout_s=0.2, ev=3)
