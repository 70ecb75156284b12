"""The live view of a whole fabric: who may, what the stream tells, and a person at a real browser."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from contextlib import contextmanager

import pytest

from mrc_testbed.cli.prompt.commands import CliSession, Transfers
from mrc_testbed.dash.server import COMMAND_HEADER, DashServer
from mrc_testbed.topologies.lab.fabric import Fabric
from mrc_testbed.topologies.lab.options import LabOptions, Ports
from mrc_testbed.topologies.plan import Plan
from tests.dash.dash_client import WAIT_S, Watching, command, place_and_key, request

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and raw sockets"),
]
LINK = ("p1-t0-0", "p1-t1-1")
NAME = " ".join(LINK)
WAIT_MS = 1000 * WAIT_S


@pytest.fixture(scope="module")
def served_fabric(tmp_path_factory):
    """A fabric of two planes, and the server of its live view."""
    ports = Ports(p4runtime=29661, gnmi=29441)
    run = tmp_path_factory.mktemp("dash") / "run"
    with Fabric(Plan(2, 2, 2, 1), LabOptions(ports=ports), run) as fabric:
        out = io.StringIO()

        def print_text(text):
            print(text, file=out)

        session = CliSession(fabric, out, transfers=Transfers(fabric, print_text, print_text))
        server = DashServer(session, port=0)
        server.start()
        try:
            yield fabric, server
        finally:
            server.close()
            session.transfers.close()


@pytest.fixture(autouse=True)
def healed_fabric(served_fabric):
    """Heal the fabric after each test, so that each begins with nothing broken."""
    yield
    served_fabric[0].inject.heal()


# ---- who may ------------------------------------------------------------------------------------------------


def test_page__needs_the_key_and_a_host_of_this_machine(served_fabric):
    fabric, server = served_fabric
    _, key = place_and_key(server)
    for path in ("/", "/plan", "/stream", "/evs?from=h0&to=h1", "/dash.js", "/nothing"):
        status, text, _ = request(server, path, key="wrong")
        assert status == 403 and "mrc dash" in text
        status, text, _ = request(server, path, host="evil.example:80")
        assert status == 403 and "evil.example" in text
    assert request(server, "/?key=wrong", key="")[0] == 403
    assert [request(server, path, method="HEAD")[:2] for path in ("/plan", "/stream")] == [(200, "")] * 2
    status, _, headers = request(server, f"/?key={key}", key="")
    assert status == 303 and headers["Location"] == "/"
    assert "HttpOnly" in headers["Set-Cookie"] and "SameSite=Strict" in headers["Set-Cookie"]
    status, text, headers = request(server, "/")
    assert status == 200 and "<title>MRC fabric</title>" in text
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
    assert oct(fabric.run_dir.dash_file.stat().st_mode)[-3:] == "600"
    assert json.loads(fabric.run_dir.dash_file.read_text())["url"] == server.url


def test_command__needs_origin_header_and_key_and_changes_nothing_without(served_fabric):
    fabric, server = served_fabric
    line = f"link {NAME} down"
    for wrong_headers in (
        {"Origin": "http://evil.example"},
        {"Origin": None},
        {COMMAND_HEADER: None},
        {"Cookie": "a=b"},
    ):
        status, answer = command(server, line, **wrong_headers)
        assert status == 403 and answer["error"]
    assert request(server, f"/command?command={line.replace(' ', '+')}")[0] == 405
    assert fabric.inject.active == [] and fabric.link_is_up(fabric.plan.link(*LINK))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("link p1-t0-0 p9-t1-1 down", "p9-t1-1"),
        ("p4sh p0-t0-0", "no command 'p4sh'"),
        ("", "no command ''"),
        ("sh rm -rf /", "no command 'sh'"),
        ("loss p1-t0-0 p1-t1-1 200%", "200"),
        ("link", "usage: link"),
    ],
)
def test_command__that_makes_no_sense_gets_one_line(served_fabric, line, reason):
    status, answer = command(served_fabric[1], line)
    assert status == 409 and reason in answer["error"] and "Traceback" not in answer["error"]


@pytest.mark.parametrize("body", [b"", b"[1]", b'{"command": 1}', b"\xff", b'{"command": "' + b"x" * 9000 + b'"}'])
def test_command__that_is_none_is_refused(served_fabric, body):
    server = served_fabric[1]
    address, _ = place_and_key(server)
    headers = {"Origin": f"http://{address}", COMMAND_HEADER: "1"}
    assert request(server, "/command", method="POST", body=body, headers=headers)[0] in (400, 413)
    assert request(server, "/plan")[0] == 200, "it lives on"


# ---- what it tells ------------------------------------------------------------------------------------------


def test_stream__tells_of_a_cut_and_who_saw_it_and_is_taken_up_again(served_fabric):
    fabric, server = served_fabric
    watching = Watching(server)
    kind, _, state = watching.next()
    assert kind == "state" and len(state["links"]) == len(fabric.plan.links)
    assert all(link["up"] for link in state["links"].values())
    assert set(state["switches"]) == {switch.name for switch in fabric.plan.switches}
    assert command(server, f"link {NAME} down") == (200, {"said": f"{NAME} is down"})
    last = watching.wait_for(lambda data: data.get("links", {}).get(NAME, {}).get("up") is False)
    watching.close()
    second_watch = Watching(server, last)
    second_watch.wait_for(
        lambda data: any(NAME in (fault or {}).get("text", "") for fault in data.get("faults", {}).values())
    )
    assert command(server, "heal")[0] == 200
    second_watch.wait_for(lambda data: data.get("links", {}).get(NAME, {}).get("up") is True)
    second_watch.close()
    afresh = Watching(server, "1")  # of another life
    kind, _, state = afresh.next()
    afresh.close()
    assert kind == "state"
    texts = [line["text"] for line in state["log"].values()]
    assert any(text.startswith(f"cut on {NAME}") for text in texts)
    assert any(text.startswith("controller:") and NAME in text and "after it was made" in text for text in texts)


def test_evs__of_a_pair_and_a_trace_along_one(served_fabric):
    _, server = served_fabric
    status, text, _ = request(server, "/evs?from=h0&to=h1")
    answer = json.loads(text)
    assert status == 200 and [ev["ev"] for ev in answer["evs"]] == [0x0, 0x1, 0x100, 0x101]
    assert answer["evs"][3]["path"] == ["h0", "p1-t0-0", "p1-t1-1", "p1-t0-1", "h1"]
    for query in ("from=h0&to=h0", "from=h0", "from=h0&to=h9", ""):
        assert request(server, f"/evs?{query}")[0] == 400
    status, answer = command(server, "trace h0 h1 0x0101")
    assert status == 200 and "p1-t1-1" in answer["said"]


# ---- a person -----------------------------------------------------------------------------------------------


@contextmanager
def browser_page(server, **context):
    """Open a page of Debian's Chromium with the live view."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e .[dev]")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs chromium: apt-get install chromium")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(**context).new_page()
        problems = []
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(server.url)
        playwright.expect(page.locator("#summary")).to_contain_text("links up", timeout=WAIT_MS)
        yield page, playwright.expect
        browser.close()
        assert not problems


def line_of(page, link=NAME):
    """Return the line of a link."""
    return page.locator(f'[data-link="{link}"] + .link')


def has(name):
    return re.compile(rf"\b{name}\b")


def test_browser__cutting_a_link_changes_fabric_and_page(served_fabric):
    fabric, server = served_fabric
    with browser_page(server) as (page, expect):
        assert "key=" not in page.url, "the key is not left in the address"
        expect(page.locator("#summary")).to_contain_text("12 of 12 links up")
        page.locator(f'[data-link="{NAME}"]').focus()
        page.keyboard.press("Enter")
        page.get_by_role("button", name="cut", exact=True).click()
        expect(line_of(page)).to_have_class(has("down"), timeout=WAIT_MS)
        assert not fabric.link_is_up(fabric.plan.link(*LINK))
        expect(page.locator("#faults")).to_contain_text(NAME, timeout=WAIT_MS)
        expect(page.locator("#curves")).to_contain_text(f"Bytes that wait: {NAME}", timeout=WAIT_MS)
        expect(page.locator("#curves .uplot canvas")).to_have_count(4)
        fed = "[...curves.charts.values()].every(({plot}) => plot.data[0].length > 1)"
        assert page.evaluate(fed), "every chart has values"
        page.reload()
        expect(line_of(page)).to_have_class(has("down"), timeout=WAIT_MS)
        expect(line_of(page)).to_have_class(has("chosen"))  # a choice survives a reload
        page.get_by_role("button", name="heal all").click()
        expect(line_of(page)).not_to_have_class(has("down"), timeout=WAIT_MS)
        assert fabric.link_is_up(fabric.plan.link(*LINK))


def test_browser__sending_lights_paths_and_ends(served_fabric):
    _, server = served_fabric
    with browser_page(server, viewport={"width": 390, "height": 800}, color_scheme="dark") as (page, expect):
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing to scroll sideways"
        page.get_by_role("button", name="send 16M").click()
        expect(page.locator("#transfers")).to_contain_text("done", timeout=4 * WAIT_MS)
        expect(page.locator(".ev")).to_have_count(4)
        page.locator('[data-ev="257"]').click()
        expect(line_of(page)).to_have_class(has("path"))
        page.get_by_role("button", name="trace a packet along it").click()
        expect(page.locator("#answer")).to_contain_text("p1-t0-1", timeout=2 * WAIT_MS)
