"""The rows of `mrc bench transport`, where they are cheap enough to be made here."""

import json

import pytest
from rich.console import Console

from tools.bench import transport
from tools.bench.transport import Row


@pytest.mark.parametrize(
    ("target", "value", "met"),
    [
        (">= 0.96", 0.96, True),
        (">= 0.96", 0.95, False),
        ("<= 2", 2.0, True),
        ("< 0.3", 0.3, False),
        ("= 1", 1, True),
        ("= 1", 2, False),
        ("", 5, None),
    ],
)
def test_row__target_as_it_reads(target, value, met):
    assert Row("g", "w", value, target).met is met


def test_lose_one__costs_one_retransmission_and_at_most_a_round_trip():
    runs = [run for seed in range(6) if (run := transport._lose_one(seed, 100)) is not None]
    assert runs and all(run.retransmitted == 1 for run in runs)
    assert all(run.later_rtts <= 1.1 for run in runs if not run.tail)


def test_dead_path__meets_its_targets():
    assert transport._cut_path(0, 1 << 20, 2) <= 2 and transport._cut_path(0, 1024, 200) <= 2
    assert transport._cut_calm(0) <= 2
    assert transport._one_at_a_time(0).last_use <= 1


def test_run__prints_and_returns_what_it_found(monkeypatch):
    rows = [Row("a", "x", 1.0, ">= 1"), Row("a", "y", 2.0)]
    monkeypatch.setattr(transport, "GROUPS", (lambda: iter(rows),))
    monkeypatch.setattr(transport.GROUPS[0], "__name__", "a", raising=False)
    console = Console(record=True, width=100)
    result = transport.run(console)
    assert json.loads(json.dumps(result))["met"] is True and result["schema"] == "mrc-bench-transport/1"
    assert "met" in console.export_text()
