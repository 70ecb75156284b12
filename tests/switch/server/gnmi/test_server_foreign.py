"""gNMI as foreign clients use it: pygnmi with the subscriptions of the files for gnmic and telegraf."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.repository import ROOT
from tests.switch.server.gnmi.test_traffic_tree import Bench, bench
from tests.switch.server.running_server import with_timeout

EXAMPLES = ROOT / "examples/monitoring"
CLIENT = Path(__file__).with_name("pygnmi_client.py")
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pygnmi") is None, reason="needs pygnmi: pip install -e .[dev]"
)
SECOND = 1_000_000_000
PATHS = (
    r"interface\[name=([\w-]+)\]/state/oper-status",
    r"interface\[name=([\w-]+)\]/state/counters/in-pkts",
    r"interface-id=([\w-]+)\]/output/queues/queue\[name=0\]/state/transmit-octets",
)
"""Leaves that the first answer has of every port."""


GNMIC_TARGET = "unix:///run/mrc-testbed/gnmi.sock"


def seconds(text: str) -> int:
    """Return a duration such as `2s` in nanoseconds."""
    return int(text.removesuffix("s")) * SECOND


def of_gnmic() -> tuple[str, list[dict]]:
    """Return (encoding, subscriptions) of gnmic.yaml, as pygnmi takes them."""
    file = YAML(typ="safe").load(EXAMPLES / "gnmic.yaml")
    assert file["targets"].keys() == {GNMIC_TARGET} and file["insecure"]
    entries = [file["subscriptions"][name] for name in file["targets"][GNMIC_TARGET]["subscriptions"]]
    subscriptions = []
    for entry in entries:
        assert entry["mode"] == "stream"
        for path in entry["paths"]:
            subscription = {"path": path, "mode": entry["stream-mode"]}
            for key in {"sample-interval", "heartbeat-interval"} & entry.keys():
                subscription[key.replace("-", "_")] = seconds(entry[key])
            subscriptions.append(subscription)
    return file["encoding"], subscriptions


def of_telegraf() -> tuple[str, list[dict]]:
    """Return the settings of telegraf.conf."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    (settings,) = tomllib.loads((EXAMPLES / "telegraf.conf").read_text())["inputs"]["gnmi"]
    assert settings["addresses"] == ["127.0.0.1:9339"]
    subscriptions = []
    for entry in settings["subscription"]:
        subscription = {"path": f"{entry['origin']}:{entry['path']}", "mode": entry["subscription_mode"]}
        subscription |= {key: seconds(entry[key]) for key in {"sample_interval", "heartbeat_interval"} & entry.keys()}
        subscriptions.append(subscription)
    return settings["encoding"], subscriptions


class Foreign:
    """The client's process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def answer(self) -> dict:
        """Return the next answer; the first has all values up to sync_response."""
        line = await with_timeout(self._process.stdout.readline())
        assert line, (await self._process.stderr.read()).decode()
        return json.loads(line)


@asynccontextmanager
async def foreign(server: Bench, *words: str):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(CLIENT),
        server.address,
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    try:
        yield Foreign(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def leaves(answer: dict) -> dict[str, object]:
    """Return the values of an answer by path, as pygnmi writes paths."""
    return {update["path"]: update["val"] for update in answer["update"].get("update", [])}


@pytest.mark.parametrize("reader", [of_gnmic, of_telegraf])
def test_files__subscribe_to_what_there_is(reader):
    encoding, subscriptions = reader()

    async def run():
        async with bench() as server:
            request = {"mode": "stream", "encoding": encoding, "subscription": subscriptions}
            async with foreign(server, "subscribe", json.dumps(request)) as client:
                first = leaves(await client.answer())
                ports = {"s1-eth1", "s1-eth2", "s2-eth1"}
                for pattern in PATHS:
                    assert {match[1] for path in first if (match := re.search(pattern, path))} == ports
                status = next(path for path in first if "s1-eth2" in path and path.endswith("oper-status"))
                status_before = first[status]
                flipped_status = "UP" if status_before != "UP" else "DOWN"
                server.interfaces.publish_values("s1-eth2", {("state", "oper-status"): flipped_status})
                reported_status, sampled_paths = None, set()
                while reported_status is None or not sampled_paths:
                    news = leaves(await client.answer())
                    reported_status = news.get(status, reported_status)
                    sampled_paths |= {path for path in news if "transmit-pkts" in path}
                assert reported_status == flipped_status, "ON_CHANGE"
                assert any("s2-eth1" in path for path in sampled_paths), "SAMPLE"
                in_packets = next(value for path, value in first.items() if path.endswith("in-pkts"))
                assert in_packets == ("0" if encoding == "json_ietf" else 0), "64 bits are text in JSON_IETF (RFC 7951)"

    asyncio.run(run())


def test_capabilities__name_models_and_encodings():
    async def run():
        async with bench() as server, foreign(server, "capabilities") as client:
            capabilities = await client.answer()
            assert {"openconfig-interfaces", "openconfig-qos"} <= {
                model["name"] for model in capabilities["supported_models"]
            }
            assert {"json_ietf", "proto"} <= set(capabilities["supported_encodings"])

    asyncio.run(run())


def test_subscription__to_what_is_not_there_is_refused_by_name():
    async def run():
        request = {
            "mode": "stream",
            "encoding": "proto",
            "subscription": [{"path": "openconfig:/system", "mode": "sample"}],
        }
        async with bench() as server, foreign(server, "subscribe", json.dumps(request)) as client:
            assert (await client.answer())["error"].startswith("no path /system here (served: /interfaces")

    asyncio.run(run())
