"""The line about what a long command does and how long it still will; its times are given, not taken."""

from __future__ import annotations

import io
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from mrc_testbed.console import progress as module
from mrc_testbed.console.progress import Progress, _Estimate, _last, _remember, left_by_share


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MRC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "durations.json"


def begin_estimate(*arguments):
    estimate = _Estimate(*arguments)
    estimate.begin(100.0)
    return estimate


def test_rest__by_the_part_that_is_done_whatever_else_is_known():
    estimate = begin_estimate({"size": 1.0, "total_s": 500.0, "steps": []}, 900.0, 1.0)
    estimate.share = 0.25
    assert estimate.left_s(110.0) == 30.0 and estimate.text(110.0) == "0:10, about 0:30 left"
    estimate.share = 1.0
    assert estimate.text(140.0) == "0:40, nearly done"


def test_rest__by_the_last_time_step_by_step():
    estimate = begin_estimate(
        {"size": 16.0, "total_s": 10.0, "steps": [("starting", 2.0), ("waiting for #", 6.0)]}, None, 16.0
    )
    assert estimate.left_s(101.0) == 9.0
    estimate.step("starting", 101.0)  # a second sooner than the last time
    assert estimate.left_s(101.0) == 8.0
    estimate.step("waiting for 12", 107.0)  # a second later
    assert estimate.left_s(107.0) == 4.0 and estimate.left_s(200.0) == 0.0
    estimate.step("none that was there", 108.0)
    assert estimate.left_s(108.0) == 3.0


def test_rest__grows_with_the_size():
    assert begin_estimate({"size": 16.0, "total_s": 4.0, "steps": []}, None, 64.0).left_s(100.0) == 16.0


def test_rest__the_first_time_is_a_guess_or_unknown():
    assert begin_estimate(None, 75.0, 1.0).text(100.0) == "0:00, about 1:15 left"
    assert begin_estimate(None, None, 1.0).text(100.0) == "0:00, how long it takes is known the next time"


ALL_FLOATS = st.floats(allow_nan=True, allow_infinity=True)
TIMES = st.floats(0, 1e6)


@given(share=ALL_FLOATS, elapsed_s=ALL_FLOATS)
def test_left_by_share__is_never_negative_and_known_for_what_is_begun(share, elapsed_s):
    left_s = left_by_share(elapsed_s, share)
    assert left_s is None or left_s >= 0
    if 1e-9 < share < 1 and 0 <= elapsed_s < 1e6:
        assert left_s is not None
    if share >= 1 and 0 <= elapsed_s < 1e6 and share < float("inf"):
        assert left_s == 0


@given(
    last=st.none()
    | st.fixed_dictionaries(
        {
            "size": st.floats(1e-3, 1e4),
            "total_s": TIMES,
            "steps": st.lists(st.tuples(st.sampled_from("abc"), TIMES)),
        }
    ),
    guess=st.none() | TIMES,
    size=st.floats(1e-3, 1e4),
    share=st.none() | ALL_FLOATS,
    steps=st.lists(st.tuples(st.sampled_from("abcd"), TIMES)),
    now=st.floats(-1e3, 1e6),
)
def test_rest__tells_no_negative_time_whatever_it_remembers_and_is_told(last, guess, size, share, steps, now):
    estimate = _Estimate(last, guess, size)
    estimate.begin(0.0)
    for name, time in steps:
        estimate.step(name, time)
    estimate.share = share
    left_s = estimate.left_s(now)
    assert left_s is None or left_s >= 0
    assert "-" not in estimate.text(now)


def test_rest__before_it_begins_and_beyond_its_end():
    estimate = begin_estimate(None, 10.0, 1.0)
    estimate.share = -0.02  # the work begins in a moment
    assert estimate.text(100.0) == "0:00, about 0:10 left" and estimate.text(99.0) == "0:00, about 0:11 left"
    estimate.share = 1.2
    assert estimate.text(130.0) == "0:30, nearly done"


def test_memory__is_read_back_and_survives_what_it_cannot_read(cache):
    assert _last("up") is None
    _remember("up", {"size": 16, "total_s": 3.5, "steps": [["a #", 1.0]]})
    _remember("down", {"size": 16, "total_s": 1.5, "steps": []})
    assert _last("up") == {"size": 16.0, "total_s": 3.5, "steps": [("a #", 1.0)]}
    for bad_text in (
        "[",
        "[]",
        '{"up": 3}',
        '{"up": {"size": 0, "total_s": 1, "steps": []}}',
        '{"up": {"size": 1, "total_s": NaN, "steps": []}}',
        '{"up": {"size": 1, "total_s": 1, "steps": [["a", -3]]}}',
    ):
        cache.write_text(bad_text)
        assert _last("up") is None
    cache.unlink()
    cache.mkdir()
    _remember("up", {"size": 1, "total_s": 1.0, "steps": []})  # cannot be written: no error


def lines(out):
    return [line for line in out.getvalue().splitlines() if line.strip()]


def test_pipe__has_the_lines_of_the_steps_alone():
    out = io.StringIO()
    with Progress(Console(file=out, width=100), "up", guess_s=9.0) as progress:
        progress.step("starting [switches]")
        progress.step("silently", quiet=True)
        progress.share(0.5, "half")
    assert lines(out) == ["starting [switches]"]


def test_terminal__tells_step_and_rest_and_leaves_nothing(monkeypatch):
    monkeypatch.setattr(module, "AFTER_S", 0.0)
    is_drawn = threading.Event()
    rest_text = _Estimate.text
    monkeypatch.setattr(_Estimate, "text", lambda self, now: (is_drawn.set(), rest_text(self, now))[1])
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    with Progress(console, "up", guess_s=90.0, text="making the network") as progress:
        assert is_drawn.wait(30)
        with Progress(console, "inner") as inner:
            inner.step("starting switches")
        progress.share(0.0)
    output = out.getvalue()
    assert "making the network" in output and "left" in output and "starting switches" in output
    assert output.endswith("\x1b[?25h\r\x1b[1A\x1b[2K") and not module._on_screen


def test_failure__is_not_remembered(cache, monkeypatch):
    monkeypatch.setattr(module, "AFTER_S", -1.0)
    console = Console(file=io.StringIO())
    with pytest.raises(KeyError), Progress(console, "up"):
        raise KeyError
    assert not cache.exists()
    with Progress(console, "up", size=3.0) as progress:
        progress.step("round 1 of 20")
    assert json.loads(cache.read_text())["up"]["steps"][0][0] == "round # of #"
