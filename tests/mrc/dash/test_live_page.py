"""The address of the live view, as `mrc dash` tells it."""

import json

import pytest

from ipc.errors import UsageError
from mrc.dash.live_page import address


@pytest.fixture
def run_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path))
    return tmp_path


def test_address__is_that_of_the_run_folder(run_dir):
    (run_dir / "dash.json").write_text(json.dumps({"url": "http://127.0.0.1:9341/?key=x", "pid": 1}))
    assert address() == "http://127.0.0.1:9341/?key=x"


def test_address__without_a_fabric_or_a_view_says_what_to_do(run_dir):
    with pytest.raises(UsageError, match="no fabric and no live view: begin with `mrc up --dash`"):
        address()
    (run_dir / "state.json").write_text("{}")
    with pytest.raises(UsageError, match="the fabric has no live view: type `dash` at its prompt"):
        address()


def test_address__that_cannot_be_read(run_dir):
    (run_dir / "dash.json").write_text("[1]")
    with pytest.raises(UsageError, match="cannot be read"):
        address()
