"""A finished run as a page: what is in it, and a person at a real browser, without a server."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager

import pytest

from mrc_testbed.dash import recording as recordings
from mrc_testbed.dash import uplot
from mrc_testbed.dash.recording import locations_in, thin, write_pages
from mrc_testbed.experiments.language.yaml_loader import read
from mrc_testbed.experiments.results import Results, ResultsError
from mrc_testbed.experiments.run_store import RunStore
from mrc_testbed.experiments.runner import plan_runs, run_scenario
from mrc_testbed.topologies.plan import Plan
from tests.repository import SCENARIOS

SCENARIO = """
title: One link & </script> two writers
fabric: {planes: 2, racks: 2, spines: 2, hosts_per_rack: 1}
links: {rate: 10M, rtt: 10ms}
workload: [{stream: h0 h1, name: flow, message: 64K, depth: 4}]
duration: 4s
faults:
  - {at: 1s, cut: p1-t0-0 p1-t1-1, for: 1s}
  - {at: 3s, power_off: p0-t1-0}
measure: {queues: [p0-t0-1-eth1]}
"""
CUT = "p1-t0-0 p1-t1-1"
BROWSER = shutil.which("chromium")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium on PATH (`make test` installs it on Debian)")


class Quiet:
    """Tells nobody."""

    def on_start(self, runs): ...

    def on_progress(self, run, share, now): ...

    def on_end(self, run, outcome): ...

    def on_stop(self, kept_count, folder): ...


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "small.yaml").write_text(SCENARIO)
    run_scenario(plan_runs(read(folder / "small.yaml"), "virtual"), Quiet(), out=folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def four_planes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("four")
    (folder / "four.yaml").write_text(
        "title: a job\nfabric: {planes: 4, racks: 2, spines: 2, hosts_per_rack: 1}\nlinks: {rate: 5M}\n"
        "duration: 500ms\n"
        "workload: [{collective: all_reduce, ranks: [h0, h1], size: 16K, name: job, iterations: 900}]\n"
        "expect: [{unfinished: job}]\n"
    )
    run_scenario(plan_runs(read(folder / "four.yaml"), "virtual"), Quiet(), out=folder / "out")
    (path,) = write_pages(folder / "out")
    return path


@pytest.fixture(scope="module")
def page(results):
    (path,) = write_pages(results)
    return path


def data_of(path):
    (text,) = re.findall(r'<script type="application/json" id="recording">(.*?)</script>', path.read_text(), re.DOTALL)
    return json.loads(text)


def test_page__has_what_the_run_recorded(page):
    data = data_of(page)
    assert data["title"] == "small: One link & </script> two writers"
    assert [(fault["where"], fault["effect"], fault["from"], fault["to"]) for fault in data["faults"]] == [
        ([CUT], "down", 1.0, 2.0),
        (["p0-t1-0"], "off", 3.0, 5.0),
    ]
    assert data["found"] is None, "no controller looks in virtual time"
    assert len(data["times_s"]) == 40 and len(data["plan"]["planes"]) == 2
    up_bps, _ = data["links"][CUT]
    assert max(up_bps[:9]) > 1e6 and max(up_bps[12:20]) == 0 and len(up_bps) == 40, "nothing passes a link that is cut"
    (lost,) = (path for path in data["pairs"]["h0 h1"] if path["ev"] == 0x0101)
    assert lost["path"] == ["h0", "p1-t0-0", "p1-t1-1", "p1-t0-1", "h1"] and lost["address"].startswith("fcbb:")
    assert [state for _, state in lost["states"]][:3] == ["good", "assumed_bad", "good"]
    assert any("EV 0x0101 assumed_bad" in line["text"] for line in data["log"])
    assert data["queues"] and sum(data["packets"]["flow:h0-h1"]["257"][12:20]) <= 3, "but for probes of the path"


def test_page__of_an_older_run_says_what_it_lacks(results, tmp_path):
    old_results = tmp_path / "old"
    shutil.copytree(results, old_results)
    (run,), manifest = Results.open(old_results)[1], json.loads((old_results / "manifest.json").read_text())
    run.series.link_bps = {}
    manifest["runs"] = [
        RunStore.for_runs(old_results / "runs", [run.name]).write(run, manifest["runs"][0]["load"]).entry()
    ]
    (old_results / "manifest.json").write_text(json.dumps(manifest))
    (path,) = write_pages(old_results)
    assert data_of(path)["links"] == {}


def test_page__without_a_run_is_refused(tmp_path):
    with pytest.raises(ResultsError, match="no folder"):
        write_pages(tmp_path / "none")


def test_locations_in__are_links_and_switches_of_the_plan():
    plan = Plan(2, 2, 2, 1)
    assert locations_in(plan, f"cut {CUT}, h0 p0-t0-0") == [CUT, "h0 p0-t0-0"]
    assert locations_in(plan, "one way p1-t1-1 -> p1-t0-0") == [CUT]
    assert locations_in(plan, "power off p0-t1-0") == ["p0-t1-0"]
    assert locations_in(plan, "T0 p0-t0-1 (P4Runtime stream lost, all 3 links down)") == ["p0-t0-1"]
    assert locations_in(plan, "heal") == []


def test_thin__keeps_what_is_unknown():
    assert thin([1, None, 3, 5, None, None], 2) == [1, 4, None]
    assert thin([1, None, 3, 5, None, None], 2, add=True) == [1, 8, None]
    assert thin([1, None, 3, 5, 7], 2, last=True) == [1, 5, 7]


def test_long_run__has_fewer_points(results, monkeypatch):
    monkeypatch.setattr(recordings, "POINTS_MAX", 10)
    (path,) = write_pages(results)
    data = data_of(path)
    assert len(data["times_s"]) == 10 == len(data["links"][CUT][0]) and data["every_s"] == 0.4
    monkeypatch.undo()
    write_pages(results)


@contextmanager
def browser_tab(page, **options):
    """Open the page in Chromium; it must load nothing but itself, and print nothing."""
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        tab = browser.new_page(**options)
        urls, problems = [], []
        tab.on("request", lambda request: urls.append(request.url))
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("console", lambda message: problems.append(message.text))
        tab.goto(page.as_uri())
        yield tab, expect
        browser.close()
    assert problems == [] and urls == [page.as_uri()]


@needs_browser
def test_browser__draws_curves_that_zoom_together_and_choose_a_time(page):
    with browser_tab(page) as (tab, expect):
        expect(tab.locator("#curves .uplot")).to_have_count(3)
        ink = """(canvas) => { const {width, height} = canvas;
            const dots = canvas.getContext("2d").getImageData(0, 0, width, height).data;
            return dots.reduce((sum, value, nth) => sum + (nth % 4 === 3 && value > 0), 0); }"""
        assert tab.locator("#curves canvas").first.evaluate(ink) > 2000, "lines and axes, not an empty canvas"
        plots = "[...curves.charts.values()].map(({plot}) => [plot.scales.x.min, plot.scales.x.max])"
        full_ranges = tab.evaluate(plots)
        box = tab.locator("#curves .u-over").first.bounding_box()
        middle = box["y"] + box["height"] / 2
        tab.mouse.click(box["x"] + box["width"] / 2, middle)
        expect(tab.locator("#now")).to_contain_text(re.compile(r"^(1\.9|2\.)"))
        tab.mouse.move(box["x"] + box["width"] / 4, middle)
        expect(tab.locator("#curves .u-value").nth(1)).to_contain_text("b/s")
        tab.mouse.down()
        tab.mouse.move(box["x"] + box["width"] / 2, middle, steps=4)
        tab.mouse.up()
        zoomed_ranges = tab.evaluate(plots)
        assert all(0.8 < low < 1.3 and 1.8 < high < 2.3 for low, high in zoomed_ranges), "all charts, not one"
        tab.mouse.dblclick(box["x"] + box["width"] / 4, middle)
        assert tab.evaluate(plots) == full_ranges


@needs_browser
def test_browser__without_uplot_says_what_brings_it(results, monkeypatch):
    monkeypatch.setattr(uplot, "find_spec", lambda _name: None)
    (path,) = write_pages(results)
    with browser_tab(path) as (tab, expect):
        expect(tab.locator("#curves")).to_contain_text("pip install --no-deps 'uplot-python")
        tab.fill("#time", "1.5")
        expect(tab.locator("#summary")).to_contain_text("11 of 12 links up")
    monkeypatch.undo()
    write_pages(results)


@needs_browser
def test_browser__slides_through_the_run(page):
    with browser_tab(page) as (tab, expect):
        cut = tab.locator(f'[data-link="{CUT}"] + .link')
        expect(tab.locator("#summary")).to_contain_text("12 of 12 links up")
        expect(tab.locator("#faults")).to_have_text("none at this time")
        expect(tab.locator("#card")).not_to_contain_text("break")
        expect(cut).not_to_have_class(re.compile("down"))
        tab.fill("#time", "1.5")
        expect(cut).to_have_class(re.compile("down"))
        expect(tab.locator("#summary")).to_contain_text("11 of 12 links up")
        expect(tab.locator("#log")).to_contain_text(f"cut {CUT}")
        expect(tab.locator("#faults")).to_have_text(f"cut {CUT} injected")
        expect(tab.locator('.ev[data-ev="257"]')).to_have_class(re.compile("assumed_bad"))
        tab.locator(f'[data-link="{CUT}"]').press("Enter")
        expect(tab.locator("#curves")).to_contain_text(CUT)
        expect(tab.locator("#card button")).to_have_count(0)
        tab.locator("#time").press("End")
        expect(tab.locator('[data-node="p0-t1-0"]')).to_have_class(re.compile("off"))
        tab.fill("#time", "2.5")
        tab.locator("#time").blur()
        expect(cut).not_to_have_class(re.compile("down"))
        tab.click("#play")
        expect(tab.locator('[data-node="p0-t1-0"]')).to_have_class(re.compile("off"), timeout=20_000)
        assert "#t=" in tab.url or tab.click("#play") is None


@needs_browser
@pytest.mark.parametrize(("width", "columns"), [(1400, 2), (2400, 4), (500, 1)])
def test_browser__panels_stand_in_rows_of_equal_length(four_planes, width, columns):
    with browser_tab(four_planes, viewport={"width": width, "height": 900}) as (tab, expect):
        expect(tab.locator("#fabric figure")).to_have_count(4)
        tops = tab.locator("#fabric figure").evaluate_all("(all) => all.map((one) => one.getBoundingClientRect().top)")
        assert tops.count(tops[0]) == columns


@needs_browser
def test_browser__a_job_says_how_many_iterations_were_planned(four_planes):
    with browser_tab(four_planes) as (tab, expect):
        expect(tab.locator("#from")).to_have_value("h0")
        expect(tab.locator("#transfers")).to_contain_text("job (all_reduce): 0 of 900 iterations")
        tab.locator("#time").press("End")
        expect(tab.locator("#transfers")).to_contain_text(
            re.compile(r"job \(all_reduce\): [1-9]\d* of 900 iterations: sums")
        )


@needs_browser
def test_browser__a_path_that_is_lit_says_its_state_at_the_time(page):
    with browser_tab(page) as (tab, expect):
        tab.click('.ev[data-ev="257"]')
        expect(tab.locator("#answer")).to_contain_text("EV 0x0101, good")
        tab.fill("#time", "1.5")
        expect(tab.locator("#answer")).to_contain_text("EV 0x0101, assumed_bad")


@needs_browser
def test_browser__a_run_of_microseconds_has_them_on_slider_curves_and_events(tmp_path):
    text = (SCENARIOS / "headline-us-rate.yaml").read_text().replace("duration: 1.5ms", "duration: 700us")
    (tmp_path / "instant.yaml").write_text(text[: text.index("variants:")])
    run_scenario(plan_runs(read(tmp_path / "instant.yaml"), "virtual"), Quiet(), out=tmp_path / "results")
    (page,) = write_pages(tmp_path / "results")
    with browser_tab(page) as (tab, expect):
        tab.fill("#time", "0.00055")
        expect(tab.locator("#now")).to_have_text("550.00 of 700.0 us")
        expect(tab.locator("#summary")).to_contain_text(re.compile(r"hosts send 1\.\d+ Tb/s"))
        expect(tab.locator("#log")).to_contain_text("500.00 us")
        expect(tab.locator("#log")).to_contain_text(re.compile(r"52\d\.\d\d us.*assumed_bad"))
        expect(tab.locator("#curves .u-value").first).to_have_text("550 us")
        tab.locator("#time").blur()
        assert tab.url.endswith("#t=0.00055000"), "the address brings the same moment back"
