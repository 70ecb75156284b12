"""The services of two agents over their real sockets, in one process.

Packets go from engine to engine, no NIC.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from mrc_testbed.hosts.agent.connections import Connections
from mrc_testbed.hosts.agent.engine_defaults import host_config
from mrc_testbed.hosts.agent.operations import rpc_table
from mrc_testbed.hosts.agent.regions import Regions
from mrc_testbed.hosts.agent.turn_selector import TurnSelector, no_turn
from mrc_testbed.hosts.engine.endpoint import Endpoint
from mrc_testbed.ipc.rpc import RpcServer
from mrc_testbed.ipc.service import cancel_others
from mrc_testbed.topologies.plan import Plan

PLAN = Plan(planes=2, racks=2, spines=2, hosts_per_rack=1)
SHAPE = {"message_bytes": 5000, "messages": 3, "depth": 2}


class Ports:
    """Stands for HostPorts: all up, no rates."""

    def __init__(self) -> None:
        self.nic = SimpleNamespace(kind="none", ports={0: None, 1: None})
        self.rates: dict[int, float] = {}

    def set_rate(self, plane, rate_bps) -> None:
        self.rates[plane] = rate_bps

    def is_up(self, plane) -> bool:
        return True

    def to_json(self):
        return {"0": {"up": True}, "1": {"up": True}}

    status_json = to_json


class Side:
    """One agent without its loop, its NIC and its links."""

    def __init__(self, name: str, folder: Path) -> None:
        config, loop = host_config(PLAN, {}), asyncio.get_running_loop()
        self.endpoint = Endpoint(name, config, planes=PLAN.planes, seed=1)
        self.regions = Regions(self.endpoint)
        self.connections = Connections(
            PLAN, PLAN.host(name), self.endpoint, lambda host: folder / f"{host}.sock", loop.time
        )
        self.table = rpc_table(
            self.endpoint,
            config,
            Ports(),
            self.connections,
            self.regions,
            loop,
            data_dir=folder / "data" / name,
            publish=self.publish,
            stop=lambda: None,
        )
        self.path = folder / f"{name}.sock"
        self.server: RpcServer | None = None

    async def start(self) -> None:
        self.server = await RpcServer.start(self.path, self.table.handle)

    def publish(self, event: str, fields) -> None:
        self.server.publish(event, **fields())


class RefusedError(Exception):
    """An answer that is an error."""


class Client:
    """One connection to an agent, whose answers and events come one after the other."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(20)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")
        self._events: list[dict] = []

    def __enter__(self):
        return self

    def __exit__(self, *exc) -> None:
        self._lines.close()
        self._socket.close()

    def request(self, op: str, **fields) -> dict:
        self._socket.sendall(json.dumps({"op": op, "id": 1, **fields}).encode() + b"\n")
        while "event" in (line := json.loads(self._lines.readline())):
            self._events.append(line)
        if not line.pop("ok"):
            raise RefusedError(line["error"])
        del line["id"]
        return line

    def events_to_the_end(self) -> list[dict]:
        while not self._events or self._events[-1]["event"] != "end":
            self._events.append(json.loads(self._lines.readline()))
        events, self._events = self._events, []
        return events


class Pair:
    """Two agents in a thread of their own, their packets moved in the turns of their loop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._selector = TurnSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.sides: dict[str, Side] = {}
        self._run_in_loop(self._start())

    def _run_in_loop(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)

    async def _start(self) -> None:
        for host in PLAN.hosts:
            self.sides[host.name] = Side(host.name, self._folder)
            await self.sides[host.name].start()
        self._selector.turn = self._turn

    def _turn(self) -> float | None:
        sides, handled_count, now = self.sides.values(), 0, time.monotonic()
        for side in sides:
            due = side.endpoint.next_timer()
            if due is not None and due <= now:
                side.endpoint.on_timer(now)
            for plane, peer, packet in list(side.endpoint.transmit(now, 1000)):
                self.sides[peer].endpoint.receive(packet, plane, side.connections.host.name, now)
                handled_count += 1
        for side in sides:
            for event in side.endpoint.events():
                side.connections.on_event(event)
                handled_count += 1
        times = [due for side in sides if (due := side.endpoint.next_timer()) is not None]
        return 0.0 if handled_count else min(times, default=None)

    def client(self, name: str) -> Client:
        return Client(self._folder / f"{name}.sock")

    async def _stop(self) -> None:
        self._selector.turn = no_turn
        await cancel_others()
        for side in self.sides.values():
            await side.server.close()
            side.regions.close()

    def close(self) -> None:
        self._run_in_loop(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture
def pair(tmp_path):
    with contextlib.closing(Pair(tmp_path)) as agents:
        yield agents


def is_empty(pair: Pair) -> bool:
    """Return whether within 10 s no agent has a QP or a region left."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not any([*side.connections, *side.regions] for side in pair.sides.values()):
            return True
        time.sleep(0.01)
    return False


def test_hello_and_status__name_the_host(pair):
    with pair.client("h0") as agent:
        assert (agent.request("hello")["host"], agent.request("status")["transfers"]) == ("h0", [])
        assert agent.request("nic_rate", rate_bps=1e6) == {"rates": {"0": 1e6, "1": 1e6}}
        with pytest.raises(RefusedError, match="at least 1000, or 0 for no limit"):
            agent.request("nic_rate", rate_bps=5)


def test_send_file__arrives_whole(pair, tmp_path):
    sent = tmp_path / "sent.bin"
    sent.write_bytes(bytes(range(256)) * 1000)
    with pair.client("h0") as agent:
        transfer = agent.request("send_file", path=str(sent), peer="h1")["transfer"]
        result = agent.request("wait", transfer=transfer)
        assert (result["state"], Path(result["remote_path"]).read_bytes() == sent.read_bytes()) == ("done", True)
        with pytest.raises(RefusedError, match=rf"no transfer 9 \(has: {transfer}\)"):
            agent.request("wait", transfer=9)


def test_denylist__is_set_read_and_cleared(pair):
    with pair.client("h0") as agent:
        denied = agent.request("deny", entries=[{"scope": "t1", "name": "p1-t1-1"}])
        assert [entry["name"] for entry in denied["entries"]] == ["p1-t1-1"] and agent.request("denylist") == denied
        assert agent.request("denylist", entries=[])["entries"] == []
        assert agent.request("health")["peers"] == []


def test_flows__count_and_go_with_their_client(pair):
    with pair.client("h0") as source_agent, pair.client("h1") as sink_agent:
        qps = [client.request("flow_qp", peer=peer) for client, peer in ((source_agent, "h1"), (sink_agent, "h0"))]
        for client, local_qp, remote_qp in ((source_agent, *qps), (sink_agent, *reversed(qps))):
            config = {"no_receive": "deliver"}
            client.request("flow_connect", qpn=local_qp["qpn"], remote=remote_qp["attributes"], config=config)
        sink = sink_agent.request("flow_sink", flow="f", qpns=[qps[1]["qpn"]], shape=SHAPE)
        source_agent.request(
            "flow_source",
            flow="f",
            qpns=[qps[0]["qpn"]],
            shape=SHAPE,
            start_s=time.monotonic(),
            **sink,
        )
        deadline = time.monotonic() + 10
        while not (source := source_agent.request("flow_read")["sources"]["f"])["over"] and time.monotonic() < deadline:
            time.sleep(0.01)
        got = sink_agent.request("flow_read")["sinks"]["f"]
        assert (source["completed"], source["failed"], got["checked"], got["damaged"]) == (3, 0, 3, 0)
        with pytest.raises(RefusedError, match="was not made for this client"):
            source_agent.request("flow_sink", flow="g", qpns=[qps[1]["qpn"] + 1000], shape=SHAPE)
        source_agent.request("release")
        assert source_agent.request("flow_read")["sources"] == {}
    assert is_empty(pair)


@pytest.mark.parametrize("is_bidirectional", [False, True])
def test_write_bw__measures_and_leaves_nothing(pair, is_bidirectional):
    with pair.client("h0") as agent:
        first_test = agent.request(
            "write_bw", peer="h1", sizes=[4000], iterations=[20], qps=2, bidirectional=is_bidirectional
        )
        assert (first_test["host"], first_test["peer"], len(first_test["qps"]), first_test["planes"]) == (
            "h0",
            "h1",
            2,
            2,
        )
        *_, result, end = agent.events_to_the_end()
        assert (result["event"], result["writes"], end["state"], end["error"]) == ("result", 40, "done", None)
        assert ("reverse" in result) is is_bidirectional
        assert is_empty(pair)
        second_test = agent.request("write_lat", peer="h1", sizes=[8], iterations=[5])
        assert second_test["work"] == first_test["work"] + 1


def test_write_bw__one_test_per_connection_until_it_is_stopped(pair):
    with pair.client("h0") as agent, pair.client("h0") as second_client:
        work = agent.request("write_bw", peer="h1", sizes=[1000], duration_s=60.0)["work"]
        with pytest.raises(RefusedError, match="this connection has a test running"):
            agent.request("ev_sweep", peer="h1")
        second_client.request("stop_work", work=work)
        assert agent.events_to_the_end()[-1]["state"] == "stopped"
    assert is_empty(pair)


def test_write_bw__ends_with_its_client(pair):
    with pair.client("h0") as agent:
        agent.request("write_bw", peer="h1", sizes=[1000], duration_s=60.0)
    assert is_empty(pair)


def test_ev_sweep__probes_every_path(pair):
    with pair.client("h0") as agent:
        sweep = agent.request("ev_sweep", peer="h1", count=2, interval_s=0.01)
        *probes, end = agent.events_to_the_end()
        assert end["state"] == "done"
        assert sorted((p["round"], p["ev"]) for p in probes) == sorted(
            (r, ev) for r in (0, 1) for ev, _ in sweep["evs"]
        )
        assert all(p["out"] and p["back"] and p["port_up"] for p in probes)


def test_requests__unknown_and_missing_fields_are_named(pair):
    with pair.client("h0") as agent:
        for op, fields, message in [
            ("send_file", {"path": "x", "peer": "h1", "rate": 5}, "send_file has no field 'rate' (has: path, peer, "),
            ("send_file", {"path": "x"}, "send_file needs 'peer' (str)"),
            ("hello", {"x": 1}, "hello has no field 'x' (has: none)"),
            ("flow_sink", {"flow": "f", "qpns": ["x"], "shape": SHAPE}, "qpns = ['x']: numbers of QPs"),
            ("flow_sink", {"flow": "f", "qpns": [1], "shape": {**SHAPE, "depth": 99}}, "depth = 99: must be 1 to 32"),
            ("flow_sink", {"flow": "f", "qpns": [1], "shape": {"depth": 1}}, "flow_sink needs 'message_bytes' (int)"),
            (
                "post_write",
                {"qpn": 1, "region": 1, "remote_va": 1 << 64, "rkey": 1},
                "remote_va = 18446744073709551616",
            ),
            ("run_writes", {"sizes": [1], "duration_s": 1, "qpns": []}, "qpns = []: 1 to 256 numbers"),
        ]:
            with pytest.raises(RefusedError) as caught:
                agent.request(op, **fields)
            assert message in str(caught.value)
