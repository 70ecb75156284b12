"""The page of a scenario that runs (`mrc run --dash`): its flows, collectives and faults.

It breaks nothing.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from mrc_testbed.dash.live_page import RunPages
from mrc_testbed.dash.recording import write_pages
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.live.live_run import LiveRunner
from mrc_testbed.experiments.runner import plan_runs, run_scenario
from tests.dash.dash_client import WAIT_S, Watching, command

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and raw sockets"),
]
CUT = "p1-t0-0 p1-t1-1"
SCENARIO = f"""
title: A stream and a collective
fabric: {{planes: 2, racks: 2, spines: 2, hosts_per_rack: 1}}
links: {{rate: 10M, rtt: 10ms}}
workload:
  - {{stream: h0 h1, name: flow, message: 64K, depth: 2, rate: 2M}}
  - {{collective: all_reduce, name: ring, ranks: [h0, h1], size: 128K, iterations: 3, warm_up: 0}}
duration: 3s
faults: [{{at: 1s, cut: {CUT}}}]
"""


class Quiet:
    """Tells nobody."""

    def on_start(self, runs): ...

    def on_progress(self, run, share, now): ...

    def on_end(self, run, outcome): ...

    def on_stop(self, kept_count, folder): ...


def test_run__is_watched_and_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("MRC_RUN_DIR", str(tmp_path / "run"))
    (tmp_path / "two.yaml").write_text(SCENARIO)
    lines, labels, answers = [], set(), []
    # Each of them has a part of the page: a stream, a collective, a link that is cut.
    names = {"flow:h0-h1", "all_reduce ring", CUT}
    pages = RunPages(lines.append)

    def read_stream(server):
        watching = Watching(server)
        while not names <= labels:
            _, _, data = watching.next()
            labels.update(label for label, transfer in data.get("transfers", {}).items() if transfer["bytes_done"])
            labels.update(injection["where"] for injection in data.get("injected", {}).values() if injection)

    @contextmanager
    def watcher(fabric, work_done):
        with pages(fabric, work_done):
            server = SimpleNamespace(url=lines[0].removeprefix("live view: "))
            answers.append(command(server, f"link {CUT} down"))
            reader = threading.Thread(target=read_stream, args=(server,), daemon=True)
            reader.start()
            yield
            reader.join(WAIT_S)

    runs = plan_runs(read(tmp_path / "two.yaml"), "live")
    report = run_scenario(runs, Quiet(), out=tmp_path / "out", live_runner=LiveRunner(watcher=watcher))
    ((_, outcome),) = report.runs
    assert outcome.finished and len(lines) == 1
    assert names <= labels
    ((status, answer),) = answers
    assert status == 409 and "while a scenario runs" in answer["error"]
    rates = outcome.series.link_bps[CUT]
    assert len(rates) == len(outcome.series.times_s) and max(max(rate) for rate in rates if rate) > 100_000
    (page,) = write_pages(tmp_path / "out")
    assert "ring (all_reduce)" in page.read_text()
