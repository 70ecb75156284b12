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
from tests.switch.server.running_server import soon

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
    """`2s` in nanoseconds."""
    return int(text.removesuffix("s")) * SECOND


def of_gnmic() -> tuple[str, list[dict]]:
    """(encoding, subscriptions) of gnmic.yaml, as pygnmi takes them."""
    file = YAML(typ="safe").load(EXAMPLES / "gnmic.yaml")
    assert file["targets"].keys() == {GNMIC_TARGET} and file["insecure"]
    wanted = [file["subscriptions"][name] for name in file["targets"][GNMIC_TARGET]["subscriptions"]]
    found = []
    for one in wanted:
        assert one["mode"] == "stream"
        for path in one["paths"]:
            mine = {"path": path, "mode": one["stream-mode"]}
            for key in {"sample-interval", "heartbeat-interval"} & one.keys():
                mine[key.replace("-", "_")] = seconds(one[key])
            found.append(mine)
    return file["encoding"], found


def of_telegraf() -> tuple[str, list[dict]]:
    """Return the settings of telegraf.conf."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    (given,) = tomllib.loads((EXAMPLES / "telegraf.conf").read_text())["inputs"]["gnmi"]
    assert given["addresses"] == ["127.0.0.1:9339"]
    found = []
    for one in given["subscription"]:
        mine = {"path": f"{one['origin']}:{one['path']}", "mode": one["subscription_mode"]}
        mine |= {key: seconds(one[key]) for key in {"sample_interval", "heartbeat_interval"} & one.keys()}
        found.append(mine)
    return given["encoding"], found


class Foreign:
    """The client's process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def answer(self) -> dict:
        """The next one: the first is all up to sync_response."""
        line = await soon(self._process.stdout.readline())
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
    """Path, as pygnmi writes it -> value."""
    return {update["path"]: update["val"] for update in answer["update"].get("update", [])}


@pytest.mark.parametrize("reader", [of_gnmic, of_telegraf])
def test_files__subscribe_to_what_there_is(reader):
    encoding, subscriptions = reader()

    async def run():
        async with bench() as server:
            asked = {"mode": "stream", "encoding": encoding, "subscription": subscriptions}
            async with foreign(server, "subscribe", json.dumps(asked)) as client:
                first = leaves(await client.answer())
                ports = {"s1-eth1", "s1-eth2", "s2-eth1"}
                for pattern in PATHS:
                    assert {found[1] for path in first if (found := re.search(pattern, path))} == ports
                status = next(path for path in first if "s1-eth2" in path and path.endswith("oper-status"))
                now = first[status]
                other = "UP" if now != "UP" else "DOWN"
                server.interfaces.publish_values("s1-eth2", {("state", "oper-status"): other})
                told, sampled = None, set()
                while told is None or not sampled:
                    news = leaves(await client.answer())
                    told = news.get(status, told)
                    sampled |= {path for path in news if "transmit-pkts" in path}
                assert told == other, "ON_CHANGE"
                assert any("s2-eth1" in path for path in sampled), "SAMPLE"
                counted = next(value for path, value in first.items() if path.endswith("in-pkts"))
                assert counted == ("0" if encoding == "json_ietf" else 0), "64 bits are text in JSON_IETF (RFC 7951)"

    asyncio.run(run())


def test_capabilities__name_models_and_encodings():
    async def run():
        async with bench() as server, foreign(server, "capabilities") as client:
            told = await client.answer()
            assert {"openconfig-interfaces", "openconfig-qos"} <= {one["name"] for one in told["supported_models"]}
            assert {"json_ietf", "proto"} <= set(told["supported_encodings"])

    asyncio.run(run())


def test_subscription__to_what_is_not_there_is_refused_by_name():
    async def run():
        asked = {
            "mode": "stream",
            "encoding": "proto",
            "subscription": [{"path": "openconfig:/system", "mode": "sample"}],
        }
        async with bench() as server, foreign(server, "subscribe", json.dumps(asked)) as client:
            assert (await client.answer())["error"].startswith("no path /system here (served: /interfaces")

    asyncio.run(run())
