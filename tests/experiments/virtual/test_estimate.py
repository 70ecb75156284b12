"""Estimates of wall time: from a measured piece, in proportion to what runs move; words.

Times of engines by clock.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mrc_testbed.experiments.executors.worker_pool import WorkerPool
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.resolve.engine_clock import config_times, rc_times
from mrc_testbed.experiments.resolve.run_plan import resolve
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.experiments.virtual.estimate import (
    Piece,
    choose_samples,
    describe_estimate,
    describe_memory,
    duration,
    estimate,
    measure,
    memory_bytes,
    payload_bytes,
)
from mrc_testbed.experiments.virtual.virtual_run import VirtualRun
from mrc_testbed.hosts.engine.config import Config
from mrc_testbed.hosts.engine.rocev2.rc_config import RcConfig
from mrc_testbed.simulator.fabric import VirtualFabric

TEXT = """\
title: collectives of two sizes
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 1}
links: {rate: 5M}
workload: [{collective: all_reduce, name: ring, size: $size}]
variants: {one: {}, two: {transport: {kind: rocev2}}}
sweep: {loss: [0%, 1%, 2%], size: [16K, 64K]}
faults: [{at: 0s, loss: {into: hosts, rate: $loss}}]
"""


def runs_of(tmp_path, text=TEXT):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return plan_runs(read(path), "virtual").runs


def with_transport(run, **changes):
    transport = run.scenario.transport.model_copy(update=changes)
    return resolve(replace(run, scenario=run.scenario.model_copy(update={"transport": transport})))


def test_estimate__one_piece_a_variant_and_in_proportion_to_the_bytes(tmp_path):
    runs = runs_of(tmp_path)
    pieces = {run.name: Piece(1.0, 2.0) for run in choose_samples(runs)}
    assert list(pieces) == ["one loss=1% size=16K", "two loss=1% size=16K"]
    costs = estimate(runs, pieces)
    assert {name: cost for name, cost in costs.items() if name.endswith("16K")}.keys() == {
        run.name for run in runs if run.label["size"] == "16K"
    }
    assert set(costs.values()) == {3.0, 9.0}
    assert (
        describe_estimate(runs, costs, 2)
        == "12 runs, about 36 s with 2 side by side (a short piece of each variant was measured)"
    )
    assert describe_estimate(runs[:1], {runs[0].name: 500.0}, 8).startswith("1 runs, about 8 min (")


def test_memory__is_told_when_it_is_a_lot_and_what_to_do_when_there_is_less(tmp_path):
    runs = runs_of(tmp_path, TEXT.replace("[16K, 64K]", "[16K, 1G]"))
    largest = max(memory_bytes(run) for run in runs)
    assert largest == 2 * ((1 << 30) + (1 << 29)), "two ranks, data and what comes in while it is reduced"
    assert describe_memory(runs, 2, 8 << 30) == "up to 3.2 GB of memory each"
    assert describe_memory(runs, 2, 5 << 30) == "up to 3.2 GB of memory each, and 5.4 GB are free: give --jobs 1"
    assert describe_memory(runs, 2, 1 << 30).endswith("and 1.1 GB are free: give --jobs 1")
    assert describe_memory(runs, 1, 1 << 30).endswith("runs will fail or swap")
    assert describe_memory(runs_of(tmp_path), 2, 1 << 20) == ""


def test_measure__a_run_that_ends_within_its_piece(tmp_path):
    piece = measure(runs_of(tmp_path)[0], piece_s=60.0)
    assert piece.set_up_s > 0 and piece.work_s > 0


def test_measure__goes_on_until_something_has_arrived(tmp_path):
    """Steps of hundreds of hosts take longer than a piece, and a share of 0 once became "about 8 s"."""
    assert measure(runs_of(tmp_path)[0], piece_s=0.0).work_s > 0


def test_measure__goes_through_computing_in_long_steps(tmp_path, monkeypatch):
    """Half a round trip at a time, steps of 100 ms at 10 us once made "about 2.1 h" of three minutes."""
    training = "training: {layers: 2, forward: 20s, backward: 20s, gradients: 16K}, placement: spread"
    text = TEXT[: TEXT.index("workload")] + f"workload: [{{{training}, name: job, iterations: 1}}]\n"
    step_count = 0
    run_for = VirtualFabric.run_for

    def counting(fabric, seconds):
        nonlocal step_count
        step_count += 1
        return run_for(fabric, seconds)

    monkeypatch.setattr(VirtualFabric, "run_for", counting)
    assert measure(runs_of(tmp_path, text)[0], piece_s=60.0).work_s > 0
    assert 10 < step_count < 1000, "80 s are 16,000 half round trips"


def test_measure__in_other_processes(tmp_path):
    runs = choose_samples(runs_of(tmp_path))
    with WorkerPool(2) as crew:
        pieces = {run.name: piece for run, piece in crew.measure(runs)}
        assert pieces.keys() == {run.name for run in runs} and all(piece.work_s > 0 for piece in pieces.values())
        with pytest.raises(Exception, match="no_such_kind"):
            list(crew.measure([with_transport(runs[0], kind="no_such_kind")]))


def test_hand_in__begins_with_the_dearest(tmp_path):
    runs = runs_of(tmp_path)[:4]
    costs = {run.name: float(number % 3) for number, run in enumerate(runs)}
    with WorkerPool(1) as crew:
        news_queue = crew.hand_in(runs, costs)
        ended_numbers = []
        while len(ended_numbers) < len(runs):
            number, news = news_queue.get()
            if isinstance(news, tuple):
                ended_numbers.append(number)
    assert ended_numbers == [2, 1, 0, 3]


def test_payload_bytes__of_a_duration_is_what_the_senders_could_send(tmp_path):
    (run,) = runs_of(
        tmp_path,
        TEXT[: TEXT.index("workload")] + "workload: [{stream: h0 h1}, {stream: h1 h0}]\nduration: 2s\n",
    )
    assert payload_bytes(run) == 2 * 5e6 / 8 * 2 * 2
    (run,) = runs_of(tmp_path, TEXT[: TEXT.index("workload")] + "workload: [{stream: h0 h1, bytes: 1M}]\n")
    assert payload_bytes(run) == 1 << 20


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "1 s"), (90, "90 s"), (540, "9 min"), (9000, "2.5 h")])
def test_duration__in_words(seconds, text):
    assert duration(seconds) == text


def test_share_done__follows_the_work_or_the_time(tmp_path):
    text = TEXT[: TEXT.index("workload")] + "workload: [{stream: h0 h1}]\nduration: 2s\n"
    virtual = VirtualRun(runs_of(tmp_path, text)[0])
    virtual.begin()
    virtual.fabric.run_for(0.5)
    assert virtual.share_done == pytest.approx(0.25)


def test_clock__is_on_every_time_that_the_links_do_not_give():
    defaults, clocked_keys = Config().to_json(), Config.of(**config_times(0.001)).to_json()
    link_keys = {"base_rtt_s", "base_rtt_min_s", "sack_flush_s", "incast_hold_s", "rx_drain_bytes_per_s"}
    for key in [key for key in defaults if key.endswith("_s")]:
        factor = 1 if key in link_keys else 0.001
        assert clocked_keys[key] == pytest.approx(factor * defaults[key]), key
    timers = [Config.of(**keys).loss.base_timeout_s for keys in (clocked_keys, defaults)]
    assert timers[0] == pytest.approx(0.001 * timers[1], rel=0.03)
    other_keys = [key for key in defaults if not key.endswith("_s") and key != "timeout"]
    assert [key for key in other_keys if clocked_keys[key] != defaults[key]] == []
    rc = RcConfig(**rc_times(0.001))
    assert rc.alpha_period_s == pytest.approx(55e-6) and rc.cnp_interval_s == pytest.approx(50e-6)
    assert rc.increase_bps == RcConfig().increase_bps
    assert config_times(1.0) == rc_times(1.0) == {}
