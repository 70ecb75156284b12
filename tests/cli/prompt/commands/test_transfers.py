"""Transfers in the background of the prompt."""

import os
import re
import shutil
import threading
import time
from pathlib import Path

import pytest

from mrc_testbed.cli.prompt.commands.transfers import _size, running_transfers, waiting_text
from mrc_testbed.ipc.rpc import JsonlError
from tests.cli.prompt.session_doubles import output_of


class Agent:
    """An agent that takes a file and tells `events` about it."""

    def __init__(self, *events):
        self.events = list(events)
        self.sent = {}

    def watch(self):
        return self

    def get(self):
        if not self.events:
            raise JsonlError("closed")
        return self.events.pop(0)

    def close(self):
        pass

    def request(self, op, **fields):
        assert op == "send_file"
        self.sent = fields
        self.sent["bytes"] = os.path.getsize(fields["path"])
        return {"transfer": 7}


def event(name, **fields):
    return {"event": name, "t": 1e9, "transfer": 7, **fields}


def test_send__says_how_it_goes_and_removes_its_random_files(cli, fabric, tmp_path):
    (tmp_path / "arrived").write_bytes(b"x")
    # Events of other transfers, and progress of less than a line, say nothing.
    fabric.agents["h0"] = agent = Agent(
        {"event": "lost", "t": 1.0, "qpn": 1},
        event("transfer", state="sending"),
        event("progress", bytes_done=30_000, transfer=6),
        event("progress", bytes_done=20_000),
        event("progress", bytes_done=60_000),
        event("progress", bytes_done=61_000),
        event(
            "transfer",
            state="done",
            duration_s=2.0,
            goodput_bps=40e6,
            remote_path=str(tmp_path / "arrived"),
            counters={"lost": 3, "retransmitted": 4},
        ),
    )
    out = output_of(cli, "send h0 h2 100000 40M") + "\n"
    cli.transfers.wait()
    out = cli.stdout.getvalue()
    assert [re.sub(r" after .* s", "", line.partition("): ")[2]) for line in out.splitlines()] == [
        "begun",
        "60%",
        "arrived bit for bit in 2.00 s, 40 Mb/s; 3 packets lost, 4 retransmitted",
    ]
    assert (
        "transport" not in agent.sent
        and agent.sent["bytes"] == 100_000
        and agent.sent["rate_bps"] == 40e6
        and agent.sent["peer"] == "h2"
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == []
    assert cli.failures == 0


def test_wait__shows_what_it_waits_for(cli, fabric, tmp_path):
    """The output names the transfers that run, with the share that has arrived, or says that none runs."""
    assert output_of(cli, "wait") == "no transfer is running"
    end_event = threading.Event()

    class SlowAgent(Agent):
        def get(self):
            if len(self.events) == 1:
                end_event.wait()
            return super().get()

    end = event("transfer", state="failed", error="retry budget spent")
    fabric.agents["h0"] = SlowAgent(event("progress", bytes_done=250), end)
    (tmp_path / "model.bin").write_bytes(bytes(1000))
    output_of(cli, f"send h0 h2 {tmp_path / 'model.bin'}")
    while cli.transfers.progress()[0]["bytes_done"] == 0:
        time.sleep(0.01)
    texts = []

    def show(transfers):
        texts.append(waiting_text(running_transfers(transfers)))
        end_event.set()

    assert cli.transfers.wait(show) == 1 and texts[0] == "send 1 (h0 to h2): 25%"


def test_wait__of_many_transfers_is_one_short_line():
    transfers = [
        {"name": f"send {n}", "from": "h0", "to": "h1", "bytes": 100, "bytes_done": n, "state": "running"}
        for n in range(1, 10)
    ]
    assert waiting_text(transfers).endswith(", send 4 (h0 to h1): 4% and 5 more")


@pytest.mark.parametrize("is_refused", [False, True])
def test_send__the_users_file_is_brought_to_the_senders_machine_and_the_copy_removed(cli, fabric, tmp_path, is_refused):
    (tmp_path / "model.bin").write_bytes(bytes(1000))
    brought = tmp_path / "h0-copy"
    fabric.bring = lambda host, path: Path(shutil.copy(path, brought))
    agent = fabric.agents["h0"] = Agent(event("transfer", state="failed", error="retry budget spent"))
    if is_refused:
        agent.request = lambda op, **fields: agent.sent.update(fields) or fabric.agent("nobody")
    output_of(cli, f"send h0 h2 {tmp_path / 'model.bin'}")
    cli.onecmd("wait")
    assert agent.sent["path"] == str(brought)
    assert (tmp_path / "model.bin").exists() and not brought.exists()


def test_send__failure_is_counted_at_wait_and_the_users_file_stays(cli, fabric, tmp_path):
    (tmp_path / "model.bin").write_bytes(bytes(1000))
    fabric.agents["h0"] = Agent(event("transfer", state="failed", error="retry budget spent"))
    output_of(cli, f"send h0 h2 {tmp_path / 'model.bin'}")
    cli.onecmd("wait")
    assert "failed after" in cli.stdout.getvalue() and "retry budget spent" in cli.stdout.getvalue()
    assert "*** 1 of the transfers failed" in cli.stdout.getvalue()
    assert (tmp_path / "model.bin").exists() and cli.failures == 1


@pytest.mark.parametrize("text, value", [("4096", 4096), ("16M", 16 << 20), ("1.5k", 1536), ("1G", 1 << 30)])
def test_size__in_bytes(text, value):
    assert _size(text) == value


@pytest.mark.parametrize("text", ["", "M", "-1", "0", "nan", "inf", "1T", "ten", "1e30", "0x10"])
def test_size__what_is_none_may_be_a_file(text):
    assert _size(text) is None
