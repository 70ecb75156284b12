"""Numbers of a scenario at their extremes: each is taken, or refused at its line.

None ends in a traceback.
"""

from __future__ import annotations

import re

import pytest

from mrc_testbed.experiments.language.model import Scenario
from mrc_testbed.experiments.language.yaml_loader import ScenarioError, read
from mrc_testbed.experiments.runner import plan_runs
from mrc_testbed.experiments.virtual.virtual_run import VirtualRun
from mrc_testbed.hosts.engine.config import KEYS

EXTREMES = (
    "0",
    "-1",
    "1e-300",
    "1e-30us",
    "1e-9",
    "1e9",
    "1e30",
    "1e400",
    "'1e400'",
    "9" * 40,
    ".nan",
    ".inf",
    "3 parsecs",
    "true",
    "null",
    "''",
    "[]",
    "0x10",
    "1_000",
)
NUMBERS = (
    "links.rate",
    "links.rtt",
    "links.jitter",
    "links.host.rate",
    "links.host.delay",
    "links.fabric.rate",
    "links.fabric.delay",
    "queues.ecn_min",
    "queues.ecn_max",
    "queues.trim_at",
    "queues.trim_last_hop",
    "queues.limit",
    "queues.pfc.xoff",
    "queues.pfc.xon",
    "queues.pfc.headroom",
    "queues.pfc.storm_after",
    "transport.qps",
    "transport.pmtu",
    "transport.clock",
    *(f"transport.config.{name}" for name, key in KEYS.items() if key.range),
    "duration",
    "limit",
    "repeat",
    "seed",
    "measure.every",
    "control_plane.react_after",
    "fabric.planes",
    "fabric.racks",
    "fabric.spines",
    "fabric.hosts_per_rack",
    "workload.message",
    "workload.depth",
    "workload.rate",
    "workload.start",
    "workload.stop",
    "workload.bytes",
    "workload.transport.clock",
    "faults.poisson.rate",
    "faults.poisson.start",
    "faults.poisson.stop",
    "expect.each",
    "expect.at_least",
    "baseline.from",
)


LISTS = ("workload", "faults", "expect")


def scenario_of(path: str, value: str) -> str:
    """Return a small scenario with one key set."""
    parts: dict = {"fabric": {"planes": "2", "racks": "2", "spines": "2", "hosts_per_rack": "1"}, "duration": "1ms"}
    parts["workload"] = {"stream": "h0 h1", "name": "flow"}
    *sections, key = path.split(".")
    part = parts
    for name in sections:
        part = part.setdefault(name, {})
    part[key] = value
    if "faults" in parts:
        parts["faults"] |= {"cut": "p0-t0-0 p0-t1-0"}
        parts["faults"]["poisson"] = {"rate": "1", "stop": "1s"} | parts["faults"]["poisson"]
    if "expect" in parts:
        parts["expect"] = {"metric": "rate.total", "at_least": "1"} | parts["expect"]
    if "baseline" in parts:
        parts["baseline"] |= {"to": "1ms"}
    if "pfc" in path:
        parts["queues"]["trim"] = "false"
    return "title: extremes\n" + "".join(
        f"{name}: {f'[{flow_text(part)}]' if name in LISTS else flow_text(part)}\n" for name, part in parts.items()
    )


def flow_text(part: dict | str) -> str:
    if isinstance(part, str):
        return part
    return "{" + ", ".join(f"{key}: {flow_text(value)}" for key, value in part.items()) + "}"


def refusal(tmp_path, text: str) -> str:
    """Return the refusal of a scenario, empty when it is accepted; then its fabric is built too."""
    file = tmp_path / "extreme.yaml"
    file.write_text(text)
    try:
        runs = plan_runs(read(file), "virtual").runs
    except ScenarioError as error:
        return str(error)
    VirtualRun(runs[0])
    return ""


# Every value meets a sixth of the keys in `make test`, every key a sixth of the values.
@pytest.mark.parametrize(
    "path, values",
    [
        pytest.param(
            path, EXTREMES[sixth::6], id=f"{path}-{sixth}", marks=[] if number % 6 == sixth else [pytest.mark.thorough]
        )
        for number, path in enumerate(NUMBERS)
        for sixth in range(6)
    ],
)
def test_numbers__at_their_extremes_are_taken_or_refused_at_their_line(tmp_path, path, values):
    for value in values:
        text = scenario_of(path, value)
        message = refusal(tmp_path, text)
        assert not message or re.search(r"\.yaml:\d+:\d+: ", message), (value, message)


LIMITS = {
    # name: (parts, what it has to say)
    "a round trip below the SACK timer": (
        "links: {rate: 100G, rtt: 8us}\ntransport: {pmtu: 256, clock: 0.001}\n",
        "2:26: links.rtt: 8 us makes sack_flush_s = 8e-07: must be 1e-06 to 60; give 10 us to 600 s",
    ),
    "a round trip without a clock that fits": (
        "links: {rate: 100G, rtt: 10us}\ntransport: {pmtu: 4096}\n",
        "2:26: links.rtt: the retry timer is 67.1 ms, 6711 round trips of 10 us: give transport: {clock: 0.001}",
    ),
    "the same of the baseline": (
        "links: {rate: 100G, rtt: 10us}\ntransport: {kind: rocev2, pmtu: 4096}\n",
        "give transport: {clock: 0.001}",
    ),
    "a retry timer of the file, and probes without a clock that fits": (
        "links: {rate: 100G, rtt: 10us}\ntransport: {pmtu: 4096, config: {timeout: 6}}\n",
        "2:26: links.rtt: the probe timer is 100 ms, 10000 round trips of 10 us: give transport: {clock: 0.001}",
    ),
    "a retry timer shorter than the round trip": (
        "links: {rtt: 100ms}\n",
        "2:14: links.rtt: the retry timer is 67.1 ms, 0.67 round trips of 100 ms: give transport: {clock: 10}",
    ),
    "a clock that goes with another round trip": (
        "links: {rtt: 10ms}\ntransport: {clock: 0.001}\n",
        "3:20: transport.clock: the retry timer is 65.5 us, 0.01 round trips of 10 ms: give transport: {clock: 1}",
    ),
    "delays of a tier beyond the round trip": (
        "links: {host: {delay: 1s}}\n",
        "2:1: links: the retry timer is 67.1 ms, 0.02 round trips of 4.01 s: give transport: {clock: 401}",
    ),
    "a rate of a tier that alone takes seconds": (
        "links: {fabric: {rate: 1k}}\n",
        "2:1: links: the retry timer is 67.1 ms, 0.00 round trips of ",
    ),
    "a clock beyond the timer's exponent": (
        "links: {rtt: 10s}\ntransport: {clock: 1000}\n",
        "3:20: transport.clock: 1000 makes timeout = 26",
    ),
    "a window that no engine holds": ("links: {rate: 1e30}\n", "2:15: links.rate: 1e+18 Tb/s makes cwnd_bytes = "),
    "a tier without rate": ("links: {fabric: {rate: 0}}\n", "2:24: links.fabric.rate: must be more than 0"),
    "a rate beyond any link": ("links: {rate: 5T}\n", "no unit 'T'; give bits/s, such as"),
    "a round trip beyond a life": ("links: {rtt: 1e308}\n", "1e+308 is too much: give at most 1e8 seconds"),
    "faults without end": (
        "faults: [{poisson: {rate: 1e300, stop: 1s}, cut: p0-t0-0 p0-t1-0}]\n",
        "2:11: faults.0.poisson: 1e+300 faults on average: at most 10000",
    ),
    "a sweep without end": ("sweep: {seed: {from: 1, to: 1e300, factor: 2}}\n", "2:9: sweep.seed: from 1 to 1e+300"),
    "a sweep from no number": ("sweep: {seed: {from: .nan, to: 1, step: 1}}\n", "2:9: sweep.seed: from nan to 1"),
    "a sweep by nothing": ("sweep: {seed: {from: 1, to: 2, step: null}}\n", "2:9: sweep.seed: factor: no value"),
    "more intervals than memory": ("measure: {every: 0.1ns}\n", "2:18: measure.every: 1e+07 intervals in 1ms"),
    "a rule that no number fits": (
        "expect: [{metric: rate.total, at_least: .nan}]\n",
        "2:41: expect.0.at_least: input should be a finite number",
    ),
    "marks from beyond their end": ("queues: {ecn_min: 0.9}\n", "ecn_min = 0.9 must not be above ecn_max = 0.8"),
    "a transfer of nothing": ("", "2:35: workload.0.bytes: "),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits_of_the_engine__are_told_at_the_key_they_come_from(tmp_path, name):
    parts, words = LIMITS[name]
    size = ", bytes: 0" if not parts else ""
    message = refusal(tmp_path, f"title: limits\n{parts}workload: [{{stream: h0 h2{size}}}]\nduration: 1ms\n")
    assert words in message


def test_limits_of_the_engine__taken_with_a_clock_that_fits(tmp_path):
    parts = "links: {rate: 100G, rtt: 10us}\ntransport: {pmtu: 4096, clock: 0.001}\n"
    assert not refusal(tmp_path, f"title: fits\n{parts}workload: [{{stream: h0 h2}}]\nduration: 1ms\n")


RULES = {
    "rate.total > 9.5 Mb/s": ("at_least", 9.5e6, None),
    "time <= 20 ms": ("at_most", 0.02, None),
    "rate.total > 95 % of baseline": ("at_least", 0.95, "baseline"),
    "lost<0": ("at_most", 0.0, None),
    "queue.x.max < 64 KiB": ("at_most", 65536.0, None),
}


@pytest.mark.parametrize("text", RULES)
def test_rule__in_one_line_with_units(text):
    (rule,) = Scenario.model_validate({"title": "t", "workload": [{"stream": "h0 h1"}], "expect": [text]}).bounds
    key, bound, reference = RULES[text]
    assert (getattr(rule, key), rule.of) == (pytest.approx(bound), reference)


@pytest.mark.parametrize(
    ("text", "words"),
    [("rate.total", "give METRIC < BOUND"), ("rate.total > 9 parsecs", "has no unit of a metric: give 20 ms")],
)
def test_rule__in_one_line_that_is_wrong(tmp_path, text, words):
    message = refusal(tmp_path, f"title: t\nworkload: [{{stream: h0 h2}}]\nduration: 1s\nexpect:\n  - {text}\n")
    assert "5:5: expect.0" in message and words in message
