"""The address of the live view, as `mrc dash` tells it."""

import asyncio
import io
import json
import queue
from types import SimpleNamespace

import pytest

from mrc_testbed.cli.prompt.commands import CliSession
from mrc_testbed.dash import server as server_module
from mrc_testbed.dash.live_page import address
from mrc_testbed.dash.server import DashServer
from mrc_testbed.errors import UsageError
from tests.cli.prompt.session_doubles import StandInFabric


@pytest.fixture
def run_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path))
    return tmp_path


def test_address__is_that_of_the_run_folder(run_dir):
    (run_dir / "dash.json").write_text(json.dumps({"url": "http://127.0.0.1:9341/?key=x", "pid": 1}))
    assert address(run_dir) == "http://127.0.0.1:9341/?key=x"


def test_address__without_a_fabric_or_a_view_says_what_to_do(run_dir):
    with pytest.raises(UsageError, match=r"no fabric is running\. Cure: start one with `mrc up --dash`"):
        address(run_dir)
    (run_dir / "state.json").write_text("{}")
    with pytest.raises(UsageError, match=r"fabric has no live view\. Cure: type `dash` at its prompt"):
        address(run_dir)


def test_address__that_cannot_be_read(run_dir):
    (run_dir / "dash.json").write_text("[1]")
    with pytest.raises(UsageError, match="cannot be read"):
        address(run_dir)


def test_view__that_ends_by_an_error_is_told_and_begins_again(run_dir, monkeypatch):
    notices = queue.SimpleQueue()
    (run_dir / "log").mkdir(exist_ok=True)
    fabric = StandInFabric(run_dir)
    fabric.notice, fabric.run_dir.path = notices.put, run_dir
    transfers = SimpleNamespace(progress=list)
    server = DashServer(CliSession(fabric, io.StringIO(), transfers=transfers), port=0)

    async def fails(_self):
        raise KeyError("h9")

    with monkeypatch.context() as patch:
        patch.setattr(server_module._Stream, "look_on", fails)
        server.start()
        assert notices.get(timeout=60) == "the live view has ended (KeyError: 'h9'). Cure: type `dash`"
    monkeypatch.setattr(server_module._Stream, "look_on", lambda _self: asyncio.sleep(60))
    assert server.start().startswith("http://127.0.0.1:")
    server.close()
    assert notices.empty()
